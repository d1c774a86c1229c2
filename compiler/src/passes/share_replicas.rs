//! Two replicas of a role run one body where theirs are alike.
//!
//! Replicas are lowered one by one, their number a constant, and so differ in constants, in which of a channel's rings they use, and in what
//! simplification made of a 0. Two copies of the code take the room of one in the instruction cache, and twice the time to compile. Bodies
//! are walked side by side; where a constant differs, [`OpKind::Replica`] chooses; where one has a sum that the other needs not, it is the
//! sum with 0 there.
//!
//! Invariants: each replica does what it did, in its order; the second keeps its own body, which nobody executes, beside what differs in
//! shared memory. Bodies that do not match are left as they are.

use std::collections::{BTreeMap, HashMap};

use tesserine_set::DType;

use crate::{
    diagnostics::Diagnostics,
    ir::{
        Body, OpId, RegionId, ValueId,
        role::{
            BufferId, ChannelId, Kernel, Like, OpKind, ProductOperand, RingBarriers, RoleBody, Type,
        },
        tile::{self, BinaryOp, Constant, OpKind as Tile},
    },
    span::Span,
    target::Target,
};

pub fn run(kernel: &mut Kernel, _: Target) -> Result<(), Diagnostics> {
    for first in 0..kernel.roles.len().saturating_sub(1) {
        if !are_replicas(kernel, first) {
            continue;
        }
        let [a, b] = [first, first + 1].map(|role| &kernel.roles[role].body);
        let Some((body, buffers)) = Shared::of(kernel, a, b) else {
            continue;
        };
        kernel.roles[first].body = body;
        kernel.roles[first + 1].like = Some(Like {
            role: first as u32,
            buffers,
        });
    }
    Ok(())
}

/// Whether the role and the next are all replicas of one, of whole warpgroups side by side.
fn are_replicas(kernel: &Kernel, first: usize) -> bool {
    let base = |role: usize| {
        let role = kernel.roles.get(role)?;
        role.name.split_once('[').map(|(base, _)| base)
    };
    let [a, b] = [&kernel.roles[first], &kernel.roles[first + 1]];
    let own = base(first);
    own.is_some()
        && own == base(first + 1)
        && own != base(first + 2)
        && (first == 0 || own != base(first - 1))
        && a.warps == b.warps
        && a.warps.is_multiple_of(4)
        && a.registers == b.registers
        && a.first_warp + a.warps == b.first_warp
}

/// The two bodies, by number.
const SIDES: [usize; 2] = [0, 1];

struct Shared<'a> {
    kernel: &'a Kernel,
    from: [&'a RoleBody; 2],
    to: RoleBody,
    /// What a value of each body is in the shared one.
    map: [HashMap<ValueId, ValueId>; 2],
    /// What of the shared body equals a value of it where the replica is this one.
    equals: [HashMap<ValueId, ValueId>; 2],
    /// Scalars without effects, by what they are, one map for each region around.
    scopes: Vec<HashMap<String, ValueId>>,
    channels: BTreeMap<ChannelId, ChannelId>,
    buffers: BTreeMap<BufferId, BufferId>,
}

impl<'a> Shared<'a> {
    fn of(
        kernel: &'a Kernel,
        a: &'a RoleBody,
        b: &'a RoleBody,
    ) -> Option<(RoleBody, BTreeMap<BufferId, BufferId>)> {
        let mut shared = Shared {
            kernel,
            from: [a, b],
            to: Body::new(),
            map: Default::default(),
            equals: Default::default(),
            scopes: Vec::new(),
            channels: BTreeMap::new(),
            buffers: BTreeMap::new(),
        };
        let root = shared.to.root;
        shared.region([a.root, b.root], root)?;
        Some((shared.to, shared.buffers))
    }

    fn region(&mut self, regions: [RegionId; 2], into: RegionId) -> Option<()> {
        let args = SIDES.map(|s| self.from[s].regions[regions[s]].args.clone());
        if args[0].len() != args[1].len() {
            return None;
        }
        for (&a, &b) in args[0].iter().zip(&args[1]) {
            let ty = self.from[0].ty(a);
            if ty != self.from[1].ty(b) {
                return None;
            }
            let new = self.to.add_argument(into, ty.clone());
            self.map[0].insert(a, new);
            self.map[1].insert(b, new);
        }
        self.scopes.push(HashMap::new());
        let lists = SIDES.map(|s| {
            let ops = &self.from[s].regions[regions[s]].ops;
            let is_constant = |id: &&OpId| self.constant(s, **id).is_some();
            ops.iter().filter(|id| !is_constant(id)).copied().collect()
        });
        let done = self.list(lists, into);
        self.scopes.pop();
        done
    }

    fn list(&mut self, lists: [Vec<OpId>; 2], into: RegionId) -> Option<()> {
        let mut at = [0, 0];
        loop {
            let left = SIDES.map(|s| &lists[s][at[s]..]);
            match left {
                [[], []] => return Some(()),
                [[a, ..], [b, ..]] if self.both([*a, *b], into).is_some() => {
                    at = at.map(|i| i + 1);
                }
                _ => {
                    // The longer side has something that the other needs not.
                    let longer = usize::from(left[1].len() > left[0].len());
                    let alone = [longer, 1 - longer]
                        .into_iter()
                        .find(|&s| left[s].first().is_some_and(|&id| self.alone(s, id, into)));
                    at[alone?] += 1;
                }
            }
        }
    }

    /// An operation that both bodies have.
    fn both(&mut self, ids: [OpId; 2], into: RegionId) -> Option<()> {
        let ops = SIDES.map(|s| &self.from[s].ops[ids[s]]);
        let counts = ops.map(|op| (op.operands.len(), op.results.len(), op.regions.len()));
        let types = SIDES.map(|s| -> Vec<&Type> {
            let results = ops[s].results.iter();
            results.map(|&r| self.from[s].ty(r)).collect()
        });
        if counts[0] != counts[1] || types[0] != types[1] {
            return None;
        }
        let found = self.pairs([&ops[0].kind, &ops[1].kind])?;
        let mut operands = Vec::new();
        for (&a, &b) in ops[0].operands.iter().zip(&ops[1].operands) {
            operands.push(self.operand([a, b], into, ops[0].span)?);
        }
        self.channels.extend(found.0);
        self.buffers.extend(found.1);
        let mut regions = Vec::new();
        for (&a, &b) in ops[0].regions.iter().zip(&ops[1].regions) {
            let inner = self.to.new_region();
            self.region([a, b], inner)?;
            regions.push(inner);
        }
        let types: Vec<Type> = types[0].iter().map(|&ty| ty.clone()).collect();
        let kind = ops[0].kind.clone();
        let key = is_scalar(&kind, &types).then(|| format!("{kind:?} {operands:?}"));
        let new = self
            .to
            .append(into, kind, operands, types, regions, ops[0].span);
        let results = self.to.ops[new].results.clone();
        for s in SIDES {
            let own = ops[s].results.iter().copied();
            self.map[s].extend(own.zip(results.iter().copied()));
        }
        if let Some(key) = key {
            self.remember(key, results[0]);
        }
        Some(())
    }

    /// A scalar that only the body `s` has: what it is for the other, if that has it too.
    fn alone(&mut self, s: usize, id: OpId, into: RegionId) -> bool {
        let op = &self.from[s].ops[id];
        let types: Vec<Type> = op
            .results
            .iter()
            .map(|&r| self.from[s].ty(r).clone())
            .collect();
        if !is_scalar(&op.kind, &types) {
            return false;
        }
        let neutral = match op.kind {
            OpKind::Tile(Tile::Binary(BinaryOp::Add | BinaryOp::Sub)) => 0,
            OpKind::Tile(Tile::Binary(BinaryOp::Mul)) => 1,
            _ => i64::MAX,
        };
        let elem = types[0].ty.elem();
        let mut operands = Vec::new();
        let mut kept = None;
        for (place, &v) in op.operands.iter().enumerate() {
            let constant = self.from[s]
                .defining_op(v)
                .and_then(|id| self.constant(s, id));
            let other = op.operands.len() - 1 - place.min(op.operands.len() - 1);
            operands.push(match constant {
                // With its neutral element, the operation is its other operand.
                Some(Constant::Int(own, _)) if neutral != i64::MAX && place == 1 => {
                    kept = Some(other);
                    let mut values = [neutral; 2];
                    values[s] = own;
                    self.chosen(values, elem, into, op.span)
                }
                Some(constant) => self.emit(
                    OpKind::Tile(Tile::Constant(constant)),
                    vec![],
                    scalar(constant.dtype()),
                    into,
                    op.span,
                ),
                None => match self.map[s].get(&v) {
                    Some(&value) => value,
                    None => return false,
                },
            });
        }
        let o = 1 - s;
        let there = |of: &Shared<'_>, v: ValueId| of.equals[o].get(&v).copied().unwrap_or(v);
        let equal = match kept {
            Some(place) => Some(there(self, operands[place])),
            None => {
                let operands: Vec<ValueId> = operands.iter().map(|&v| there(self, v)).collect();
                self.known(&format!("{:?} {operands:?}", op.kind))
            }
        };
        let key = format!("{:?} {operands:?}", op.kind);
        let value = self.emit(op.kind.clone(), operands, types[0].clone(), into, op.span);
        self.remember(key, value);
        self.map[s].insert(op.results[0], value);
        if let Some(equal) = equal {
            self.equals[o].insert(value, equal);
        }
        true
    }

    fn known(&self, key: &str) -> Option<ValueId> {
        self.scopes.iter().rev().find_map(|s| s.get(key)).copied()
    }

    fn remember(&mut self, key: String, value: ValueId) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.entry(key).or_insert(value);
        }
    }

    fn emit(
        &mut self,
        kind: OpKind,
        operands: Vec<ValueId>,
        ty: Type,
        into: RegionId,
        span: Span,
    ) -> ValueId {
        let op = self
            .to
            .append(into, kind, operands, vec![ty], Vec::new(), span);
        self.to.ops[op].results[0]
    }

    /// The constant of the body `s` that the operation is.
    fn constant(&self, s: usize, id: OpId) -> Option<Constant> {
        match self.from[s].ops[id].kind {
            OpKind::Tile(Tile::Constant(constant)) => Some(constant),
            _ => None,
        }
    }

    /// What an operand of both is.
    fn operand(&mut self, values: [ValueId; 2], into: RegionId, span: Span) -> Option<ValueId> {
        let constants = SIDES.map(|s| {
            let def = self.from[s].defining_op(values[s])?;
            self.constant(s, def)
        });
        match constants {
            [Some(a), Some(b)] if a == b => {
                let kind = OpKind::Tile(Tile::Constant(a));
                return Some(self.emit(kind, Vec::new(), scalar(a.dtype()), into, span));
            }
            [Some(Constant::Int(a, elem)), Some(Constant::Int(b, other))] if elem == other => {
                return Some(self.chosen([a, b], elem, into, span));
            }
            [None, None] => {}
            _ => return None,
        }
        let found = SIDES.map(|s| self.map[s].get(&values[s]).copied());
        let [Some(a), Some(b)] = found else {
            return None;
        };
        if a == b || self.equals[1].get(&a) == Some(&b) {
            return Some(a);
        }
        (self.equals[0].get(&b) == Some(&a)).then_some(b)
    }

    /// The one integer for the first replica, the other for the second.
    fn chosen(&mut self, values: [i64; 2], elem: DType, into: RegionId, span: Span) -> ValueId {
        let wide = scalar(DType::I64);
        let binary = |op| OpKind::Tile(Tile::Binary(op));
        let constant = |shared: &mut Self, value| {
            let kind = OpKind::Tile(Tile::Constant(Constant::Int(value, DType::I64)));
            shared.emit(kind, Vec::new(), scalar(DType::I64), into, span)
        };
        let replica = self.emit(OpKind::Replica, Vec::new(), wide.clone(), into, span);
        let step = constant(self, values[1].wrapping_sub(values[0]));
        let first = constant(self, values[0]);
        let more = self.emit(
            binary(BinaryOp::Mul),
            vec![replica, step],
            wide.clone(),
            into,
            span,
        );
        let value = self.emit(binary(BinaryOp::Add), vec![first, more], wide, into, span);
        match elem {
            DType::I64 => value,
            _ => self.emit(
                OpKind::Tile(Tile::Cast),
                vec![value],
                scalar(elem),
                into,
                span,
            ),
        }
    }

    /// Which rings and buffers correspond where the operations are alike but for them.
    #[allow(clippy::type_complexity)]
    fn pairs(
        &self,
        kinds: [&OpKind; 2],
    ) -> Option<(Vec<(ChannelId, ChannelId)>, Vec<(BufferId, BufferId)>)> {
        let mut same = kinds.map(Clone::clone);
        let [a, b] = &mut same;
        let (of_a, of_b) = (channels(a), channels(b));
        let mut found = Vec::new();
        let mut buffers = Vec::new();
        if of_a.len() != of_b.len() {
            return None;
        }
        for (a, b) in of_a.into_iter().zip(of_b) {
            if self.channels.get(a).is_some_and(|known| known != b) {
                return None;
            }
            if *a != *b {
                let [x, y] = [*a, *b].map(|id| &self.kernel.channels[id]);
                let rings = [x.barriers?, y.barriers?];
                let elsewhere = RingBarriers {
                    buffer: rings[1].buffer,
                    ..rings[0]
                };
                let alike = x.tiles == y.tiles
                    && (x.depth, x.fill) == (y.depth, y.fill)
                    && elsewhere == rings[1];
                if !alike {
                    return None;
                }
                buffers.push((x.buffer, y.buffer));
                buffers.push((rings[0].buffer, rings[1].buffer));
            }
            found.push((*a, *b));
            *b = *a;
        }
        if let [
            OpKind::Convert { scratch: Some(a) },
            OpKind::Convert { scratch: Some(b) },
        ] = &mut same
        {
            buffers.push((*a, *b));
            *b = *a;
        }
        (same[0] == same[1]).then_some((found, buffers))
    }
}

fn scalar(elem: DType) -> Type {
    Type {
        ty: tile::Type::Scalar(elem),
        layout: None,
    }
}

/// Whether an operation makes one scalar of scalars, without effects.
fn is_scalar(kind: &OpKind, results: &[Type]) -> bool {
    let pure = matches!(
        kind,
        OpKind::Tile(
            Tile::Unary(_) | Tile::Binary(_) | Tile::Compare(_) | Tile::Select | Tile::Cast
        )
    );
    pure && matches!(
        results,
        [Type {
            ty: tile::Type::Scalar(_),
            ..
        }]
    )
}

/// The channels that an operation with rings names.
fn channels(kind: &mut OpKind) -> Vec<&mut ChannelId> {
    match kind {
        OpKind::WaitFull { channel }
        | OpKind::WaitEmpty { channel }
        | OpKind::ExpectBytes { channel, .. }
        | OpKind::CopyBulk { channel, .. }
        | OpKind::StoreBulk { channel, .. }
        | OpKind::ArriveFull { channel }
        | OpKind::ArriveEmpty { channel }
        | OpKind::ReadShared { channel, .. }
        | OpKind::WriteShared { channel, .. } => vec![channel],
        OpKind::Product { a, b, .. } => [a, b]
            .into_iter()
            .filter_map(|operand| match operand {
                ProductOperand::Slot { channel, .. } => Some(channel),
                ProductOperand::Registers => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}
