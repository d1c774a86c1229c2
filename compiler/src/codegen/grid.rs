//! Which tile a block works on: the order of the grid, and blocks that go on from tile to tile.
//!
//! Tiles are numbered by cluster: the blocks of one have neighbouring numbers, the first of them a multiple of the cluster's
//! size, and the rank in the cluster is what remains.

use super::{
    builder::{Effect, I32, I64, Kind, Place, SHARED, Ty, Val},
    lower::Lower,
    ptx_table::{self, Template},
    roles::{
        ahead::{Ahead, STEPS},
        draw,
    },
};
use crate::{
    diagnostics::Diagnostic,
    ir::{GridAxis, Order},
    target::legality::Instruction,
};

/// Bytes of shared memory by which a block's threads learn which tile was drawn, while nothing else is there.
pub(super) const DRAWN: u32 = 16;

impl Lower<'_> {
    /// The role's operations, once for the block's tile or for each of its tiles. Ends in an open block.
    pub(super) fn blocks(&mut self) -> Result<(), Diagnostic> {
        let root = self.body.root;
        let place = self.b.go_to(Place::Prologue);
        let block = self.special_register("ctaid.x");
        if !self.kernel.header.persistent {
            self.axes = self.grid_indices(block);
            self.b.go_to(place);
            for &value in &self.body.regions[root].args {
                self.set(value, vec![Val::i32(0)]);
            }
            self.region(root)?;
            return Ok(());
        }
        let blocks = self.special_register("nctaid.x");
        let mut tiles = Val::i32(1);
        for i in 0..self.kernel.header.axes.len() {
            let extent = self.extent(i);
            tiles = self.b.mul(tiles, extent);
        }
        let some = self.b.icmp("ult", block, tiles);
        let last = self.b.sub(tiles, Val::i32(1));
        self.b.go_to(place);
        let ahead = self.ahead();
        let (head, after) = (self.b.label(), self.b.label());
        let mut before = self.b.block();
        let mut scalars = Vec::new();
        if let Some(ahead) = &ahead {
            let enter = self.b.label();
            self.b.branch(some, enter, after, false);
            self.b.begin(enter);
            scalars = self.of_tile(block, ahead)?;
            before = self.b.block();
            self.b.jump(head);
        } else {
            self.b.branch(some, head, after, false);
        }
        self.b.begin(head);
        let state = &self.body.regions[root].args;
        let draws = draw::draws(self.kernel);
        let carried = 1 + state.len() + usize::from(draws);
        let mut types = vec![I32; carried];
        types.extend(scalars.iter().map(|v| v.ty));
        let slot = self.b.phis(&types);
        let phis = slot.results().to_vec();
        let tile = phis[0];
        for (&value, &carried) in state.iter().zip(&phis[1..]) {
            self.set(value, vec![carried]);
        }
        let (next, state_after, ahead_after) = match &ahead {
            None => {
                self.axes = self.grid_indices(tile);
                let state = self.region(root)?;
                let alone = self.kernel.header.dynamic && !draws;
                if !alone && self.reuses_scratch() {
                    // The next tile uses the shared memory anew.
                    self.barrier()?;
                }
                let next = match alone {
                    true => self.draw(blocks, tiles)?,
                    false => self.next_tile(tile, phis[carried - 1], [blocks, tiles])?,
                };
                (next, state, Vec::new())
            }
            Some(ahead) => {
                let own = &phis[carried..];
                self.take_ahead(own, ahead);
                self.list(&ahead.others[0])?;
                let next = self.next_tile(tile, phis[carried - 1], [blocks, tiles])?;
                let there = self.b.intrinsic("llvm.umin", &[next, last]);
                let mut made = Vec::new();
                self.step_ahead(there, ahead, 0, &mut made)?;
                self.take_ahead(own, ahead);
                self.list(&ahead.others[1])?;
                self.step_ahead(there, ahead, 1, &mut made)?;
                self.take_ahead(own, ahead);
                let state = self.list(&ahead.others[2])?.unwrap_or_default();
                if self.reuses_scratch() {
                    self.barrier()?;
                }
                let scalars = self.step_ahead(there, ahead, 2, &mut made)?;
                (next, state, scalars)
            }
        };
        let mut then = vec![next];
        then.extend(state_after);
        if draws {
            then.push(self.b.add(phis[carried - 1], Val::i32(1)));
        }
        then.extend(ahead_after);
        let again = self.b.icmp("ult", next, tiles);
        let latch = self.b.block();
        let mut first = vec![block];
        first.resize(carried, Val::i32(0));
        first.extend(scalars);
        self.b.branch(again, head, after, true);
        self.b.fill(slot, &[(before, first), (latch, then)]);
        self.b.begin(after);
        Ok(())
    }

    /// The scalars of a tile that are worked out ahead, all at once.
    fn of_tile(&mut self, tile: Val, ahead: &Ahead) -> Result<Vec<Val>, Diagnostic> {
        let mut made = Vec::new();
        let mut scalars = Vec::new();
        for step in 0..STEPS {
            scalars = self.step_ahead(tile, ahead, step, &mut made)?;
        }
        Ok(scalars)
    }

    /// One step to the scalars of a tile; `made` are those of the steps before, and of this one afterwards. Gives the tile's indices, then what
    /// the others need: all of it after the last step.
    fn step_ahead(
        &mut self,
        tile: Val,
        ahead: &Ahead,
        step: usize,
        made: &mut Vec<Val>,
    ) -> Result<Vec<Val>, Diagnostic> {
        let body = self.body;
        match step {
            0 => *made = self.grid_indices(tile),
            _ => {
                for (value, &scalar) in ahead.made(body, step).zip(&made[self.axes.len()..]) {
                    self.set(value, vec![scalar]);
                }
            }
        }
        let axes = self.kernel.header.axes.len();
        self.axes = made[..axes].to_vec();
        self.list(&ahead.steps[step])?;
        made.truncate(axes);
        for value in ahead.made(body, step + 1) {
            made.extend(self.get(value).iter());
        }
        let mut scalars = made[..axes].to_vec();
        if step + 1 == STEPS {
            for &value in &ahead.values {
                scalars.extend(self.get(value).iter());
            }
        }
        Ok(scalars)
    }

    /// The opposite of [`of_tile`](Lower::of_tile): the operations to come see these.
    fn take_ahead(&mut self, scalars: &[Val], ahead: &Ahead) {
        let (axes, values) = scalars.split_at(self.axes.len());
        self.axes = axes.to_vec();
        for (&value, &scalar) in ahead.values.iter().zip(values) {
            self.set(value, vec![scalar]);
        }
    }

    /// The tile that the role goes on to; `count` tiles have been drawn.
    fn next_tile(
        &mut self,
        tile: Val,
        count: Val,
        [blocks, tiles]: [Val; 2],
    ) -> Result<Val, Diagnostic> {
        match draw::draws(self.kernel) {
            true => self.draw_in_role(count, blocks, tiles),
            false => Ok(self.b.add(tile, blocks)),
        }
    }

    /// The tile that the block goes on to, from the counter. The first tile of each block is its own number; of `tiles`
    /// clusters' tiles, as many are drawn as remain then, and each cluster draws once in vain: whoever draws last, which is
    /// when `tiles` have been drawn in all, leaves the counter at 0.
    fn draw(&mut self, blocks: Val, tiles: Val) -> Result<Val, Diagnostic> {
        let cluster = self.kernel.header.cluster();
        let counter = self.counter();
        let shared = Val {
            ty: SHARED,
            kind: Kind::SharedBase,
        };
        let place = self.b.go_to(Place::Prologue);
        let size = Val::i32(cluster);
        let (groups, _) = self.divide(tiles, size);
        let (first, _) = self.divide(blocks, size);
        let rank = self.cluster_rank();
        let last = self.b.sub(groups, Val::i32(1));
        let leader = self.b.icmp("eq", self.thread, Val::i32(0));
        let lead = self.b.icmp("eq", rank, Val::i32(0));
        let leader = self.b.and(leader, lead);
        self.b.go_to(place);
        // All are done with the shared memory.
        self.meet(cluster)?;
        let (draw, after) = (self.b.label(), self.b.label());
        self.b.branch(leader, draw, after, false);
        self.b.begin(draw);
        let drawn = self.ptx(&ptx_table::draw(), &[counter], I64);
        let drawn = self.b.resize(drawn, I32, false);
        let done = self.b.icmp("eq", drawn, last);
        let reset = ptx_table::reset();
        self.b.asm(
            &reset.text,
            &reset.constraints,
            &[],
            &[counter, done],
            Effect::Memory,
        );
        let next = self.b.add(drawn, first);
        self.b.store(next, shared, 4);
        self.b.jump(after);
        self.b.begin(after);
        self.meet(cluster)?;
        let next = if cluster > 1 {
            self.ptx(&ptx_table::load_first(), &[shared], I32)
        } else {
            self.b.load(shared, I32, 4, false)
        };
        self.meet(cluster)?;
        // Far beyond the end, the product would wrap.
        let next = self.b.intrinsic("llvm.umin", &[next, groups]);
        let start = self.b.mul(next, size);
        Ok(self.b.add(start, rank))
    }

    /// All threads of the block's cluster meet, and see what each has written to shared memory.
    pub(super) fn meet(&mut self, cluster: u32) -> Result<(), Diagnostic> {
        if cluster > 1 {
            self.need(Instruction::Cluster)?;
            let meet = ptx_table::meet();
            self.b
                .asm(&meet.text, &meet.constraints, &[], &[], Effect::Convergent);
            return Ok(());
        }
        self.barrier()
    }

    /// The rank of the block in its cluster, row-major over the axes of the cluster; 0 where there is none.
    pub(super) fn cluster_rank(&mut self) -> Val {
        let cluster = self.kernel.header.cluster();
        let place = self.b.go_to(Place::Prologue);
        let block = self.special_register("ctaid.x");
        let (_, rank) = self.divide(block, Val::i32(cluster));
        self.b.go_to(place);
        rank
    }

    fn ptx(&mut self, template: &Template, args: &[Val], result: Ty) -> Val {
        let (text, constraints) = (&template.text, &template.constraints);
        self.b
            .asm(text, constraints, &[result], args, Effect::Memory)[0]
    }

    fn special_register(&mut self, name: &str) -> Val {
        let name = format!("llvm.nvvm.read.ptx.sreg.{name}");
        self.b.call(Some(I32), &name, &[], Effect::Pure)
    }

    /// The extent of axis `i`: a grid has fewer than 2³¹ blocks.
    fn extent(&mut self, i: usize) -> Val {
        let extent = self.formula(&self.kernel.header.axes[i].extent);
        self.b.resize(extent, I32, false)
    }

    /// The index on each axis of the tile that comes at place `number`.
    fn grid_indices(&mut self, number: Val) -> Vec<Val> {
        let axes = &self.kernel.header.axes;
        let single = |a: &GridAxis| a.extent.as_int() == Some(1);
        let mut indices = vec![Val::i32(0); axes.len()];
        let inner = |i: &usize| axes[*i].cluster && !single(&axes[*i]);
        let outer: Vec<usize> = (0..axes.len()).filter(|i| !axes[*i].cluster).collect();
        let mut rest = number;
        let cluster = self.kernel.header.cluster();
        if cluster > 1 {
            (rest, _) = self.divide(number, Val::i32(cluster));
            let mut rank = self.cluster_rank();
            let inner: Vec<usize> = (0..axes.len()).filter(inner).collect();
            for &i in inner.iter().rev() {
                let extent = self.extent(i);
                (rank, indices[i]) = self.divide(rank, extent);
            }
        }
        let mut outer = &outer[..];
        let order = self.kernel.header.order;
        if let (Order::Grouped { group }, [first, others @ ..]) = (order, outer) {
            (indices[*first], rest) = self.grouped(rest, group, *first, others);
            outer = others;
        }
        for (n, &i) in outer.iter().enumerate().rev() {
            indices[i] = if single(&axes[i]) {
                Val::i32(0)
            } else if outer[..n].iter().all(|&o| single(&axes[o])) {
                rest
            } else {
                let extent = self.extent(i);
                let (quotient, remainder) = self.divide(rest, extent);
                rest = quotient;
                remainder
            };
        }
        for (i, axis) in axes.iter().enumerate() {
            if axis.rev {
                let extent = self.extent(i);
                let last = self.b.sub(extent, Val::i32(1));
                indices[i] = self.b.sub(last, indices[i]);
            }
        }
        indices
            .into_iter()
            .map(|index| self.b.cast("zext", index, I64))
            .collect()
    }

    /// The index on the axis `first`, and the place among the axes `others`, when the first is walked in groups of `group`.
    fn grouped(&mut self, number: Val, group: u32, first: usize, others: &[usize]) -> (Val, Val) {
        let extent = self.extent(first);
        let mut columns = Val::i32(1);
        for &i in others {
            let other = self.extent(i);
            columns = self.b.mul(columns, other);
        }
        let tiles = self.b.mul(columns, Val::i32(group));
        let (which, within) = self.divide(number, tiles);
        let start = self.b.mul(which, Val::i32(group));
        let left = self.b.sub(extent, start);
        let size = self.b.intrinsic("llvm.umin", &[left, Val::i32(group)]);
        let (rest, index) = self.divide(within, size);
        (self.b.add(start, index), rest)
    }

    fn divide(&mut self, a: Val, b: Val) -> (Val, Val) {
        if b.as_int() == Some(1) {
            return (a, Val::i32(0));
        }
        let quotient = self.b.binary("udiv", a, b);
        let product = self.b.mul(quotient, b);
        let remainder = self.b.sub(a, product);
        (quotient, remainder)
    }
}
