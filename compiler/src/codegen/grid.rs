//! Which tile a block works on: the order of the grid, and blocks that go on from tile to tile.

use super::{
    builder::{Effect, I32, I64, Place, Val},
    lower::Lower,
};
use crate::{diagnostics::Diagnostic, ir::Order};

impl Lower<'_> {
    /// The kernel's operations, once for the block's tile or for each of its tiles.
    pub(super) fn blocks(&mut self) -> Result<(), Diagnostic> {
        let root = self.body.root;
        let place = self.b.go_to(Place::Prologue);
        let block = self.special_register("ctaid.x");
        if !self.kernel.header.persistent {
            self.axes = self.grid_indices(block);
            self.b.go_to(place);
            self.region(root)?;
            self.b.return_void();
            return Ok(());
        }
        let blocks = self.special_register("nctaid.x");
        let mut tiles = Val::i32(1);
        for i in 0..self.kernel.header.axes.len() {
            let extent = self.extent(i);
            tiles = self.b.mul(tiles, extent);
        }
        let some = self.b.icmp("ult", block, tiles);
        self.b.go_to(place);
        let (head, after) = (self.b.label(), self.b.label());
        let before = self.b.block();
        self.b.branch(some, head, after, false);
        self.b.begin(head);
        let slot = self.b.phis(&[I32]);
        let tile = slot.results()[0];
        self.axes = self.grid_indices(tile);
        self.region(root)?;
        if self.kernel.shared_bytes > 0 {
            // The next tile uses the shared memory anew.
            self.barrier()?;
        }
        let next = self.b.add(tile, blocks);
        let again = self.b.icmp("ult", next, tiles);
        let latch = self.b.block();
        self.b.branch(again, head, after, true);
        self.b
            .fill(slot, &[(before, vec![block]), (latch, vec![next])]);
        self.b.begin(after);
        self.b.return_void();
        Ok(())
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
        let axes = self.kernel.header.axes.len();
        let (mut rest, first) = match self.kernel.header.order {
            Order::Grouped { group } if axes > 0 => {
                let (first, rest) = self.grouped(number, group);
                (rest, Some(first))
            }
            _ => (number, None),
        };
        let mut indices = vec![Val::i32(0); axes];
        let outer = usize::from(first.is_some());
        for i in (outer..axes).rev() {
            let single = |a: &crate::ir::GridAxis| a.extent.as_int() == Some(1);
            indices[i] = if single(&self.kernel.header.axes[i]) {
                Val::i32(0)
            } else if self.kernel.header.axes[outer..i].iter().all(single) {
                rest
            } else {
                let extent = self.extent(i);
                let (quotient, remainder) = self.divide(rest, extent);
                rest = quotient;
                remainder
            };
        }
        if let Some(first) = first {
            indices[0] = first;
        }
        indices
            .into_iter()
            .map(|index| self.b.cast("zext", index, I64))
            .collect()
    }

    /// The index on the first axis, and the place among the other axes, when the first is walked in groups of `group`.
    fn grouped(&mut self, number: Val, group: u32) -> (Val, Val) {
        let extent = self.extent(0);
        let mut others = Val::i32(1);
        for i in 1..self.kernel.header.axes.len() {
            let other = self.extent(i);
            others = self.b.mul(others, other);
        }
        let tiles = self.b.mul(others, Val::i32(group));
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
