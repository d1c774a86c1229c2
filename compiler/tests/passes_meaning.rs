//! Random tile programs mean the same before and after the passes.
//!
//! The role IR is executed here thread by thread, each with its own registers, operation by operation; what crosses
//! threads is a conversion, a reduction or memory, and whatever two threads touch with no barrier between is an error.
//! So is a slot of a channel that is read before its copies are waited for, or filled while it may be read.
//! The other side is the interpreter of tile IR. Values are integers, in products as floats that hold them, so that both
//! must agree exactly.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;
use tesserine_compiler::{
    interp::{self, Arg, Args, Tensor},
    ir::{
        GridAxis, Header, RegionId, Schedule, ValueId,
        role::{self, OpKind},
        tile::{
            self, BinaryOp, Builder, Cache, CompareOp, Constant, Index, Kernel, ReduceOp, ScanOp,
            TileBody, UnaryOp,
        },
    },
    layout::{Layout, copy_layout, copy_piece, register_sources},
    passes,
    span::Span,
    target::Target,
};
use tesserine_set::{
    Access, DType, Fact, Formula, Param, ParamKind, Signature, ViewFacts, ViewParam,
};

const ROWS: usize = 70;
const COLUMNS: usize = 88;
const SHAPES: [[u32; 2]; 8] = [
    [8, 16],
    [16, 8],
    [7, 5],
    [4, 80],
    [64, 32],
    [1, 48],
    [33, 3],
    [16, 64],
];

/// One step of a program; the numbers choose among what is there.
type Step = (u8, u16, u16, u16);

fn view(name: &str, access: Access, extents: Vec<Formula>) -> Param {
    Param {
        name: name.to_owned(),
        optional: false,
        kind: ParamKind::View(ViewParam {
            dtype: DType::I32,
            access,
            extents,
            strided: false,
            facts: ViewFacts {
                align: (access != Access::Write).then_some(16),
                ..ViewFacts::default()
            },
        }),
    }
}

struct Program {
    params: Vec<Param>,
    signature: Signature,
    pool: Vec<ValueId>,
}

impl Program {
    fn pick(&self, n: u16) -> ValueId {
        self.pool[n as usize % self.pool.len()]
    }

    /// A tile of the shape of `x`.
    fn like(&self, b: &Builder<'_>, x: ValueId, n: u16) -> ValueId {
        let same: Vec<ValueId> = self
            .pool
            .iter()
            .copied()
            .filter(|&v| b.ty(v) == b.ty(x))
            .collect();
        same[n as usize % same.len()]
    }

    fn load(&self, b: &mut Builder<'_>, param: u32, shape: [u32; 2], at: [ValueId; 2]) -> ValueId {
        let view = b.param(&self.signature, param);
        let pad = b.constant(Constant::Int(-3, DType::I32));
        let indices = shape.map(|len| Index::Range {
            len,
            from: false,
            until: false,
        });
        b.load(view, indices.to_vec(), at.to_vec(), pad, Cache::Normal)
    }

    fn step(&mut self, b: &mut Builder<'_>, (what, i, j, k): Step) {
        let x = self.pick(i);
        let shape = b.ty(x).shape().to_vec();
        let rank = shape.len();
        let start = |b: &mut Builder<'_>, n: u16| b.int([0, 8, 16, -4, 3, 40][n as usize % 6]);
        let made = match what % 23 {
            0 => {
                let at = [start(b, j), start(b, k)];
                self.load(b, 0, SHAPES[i as usize % SHAPES.len()], at)
            }
            1 | 2 => {
                let y = self.like(b, x, j);
                let op = [BinaryOp::Add, BinaryOp::Mul, BinaryOp::Max, BinaryOp::Xor];
                b.binary(op[k as usize % 4], x, y)
            }
            3 => {
                let y = self.like(b, x, j);
                let less = b.compare(CompareOp::Lt, x, y);
                let minus = b.unary(UnaryOp::Neg, y);
                b.select(less, minus, x)
            }
            4 => {
                let by = 1 + j as usize % rank.max(1);
                b.permute(x, (0..rank).map(|d| ((d + by) % rank) as u32).collect())
            }
            5 => {
                let size: u32 = shape.iter().product();
                let bits = size.trailing_zeros().min(u32::from(j % 6));
                match k % 4 {
                    0 => b.reshape(x, &[size]),
                    1 => b.reshape(x, &[size >> bits, 1 << bits]),
                    2 => b.reshape(x, &[1 << bits, size >> bits]),
                    _ => b.reshape(x, &[&shape[..], &[1]].concat()),
                }
            }
            6 if rank > 1 => {
                let op = [ReduceOp::Sum, ReduceOp::Max][j as usize % 2];
                b.reduce(op, x, Some(u32::from(k) % rank as u32))
            }
            7 => {
                let axis = j as usize % rank;
                let reduced = b.reduce(ReduceOp::Sum, x, Some(axis as u32));
                let mut unit = shape.clone();
                unit[axis] = 1;
                let back = if rank == 1 {
                    b.broadcast(reduced, &shape)
                } else {
                    let unit = b.reshape(reduced, &unit);
                    b.broadcast(unit, &shape)
                };
                b.binary(BinaryOp::Sub, x, back)
            }
            8 => {
                let iota = b.iota(DType::I32, &shape);
                let five = b.constant(Constant::Int(5, DType::I32));
                let five = b.broadcast(five, &shape);
                let y = b.binary(BinaryOp::Mul, iota, five);
                b.binary(BinaryOp::Add, x, y)
            }
            9 => {
                let halves: Vec<u32> = shape.iter().map(|d| d.div_ceil(2)).collect();
                let offsets = (0..rank)
                    .map(|d| {
                        if j as usize % rank == d {
                            shape[d] / 2
                        } else {
                            0
                        }
                    })
                    .collect();
                b.slice(x, offsets, &halves)
            }
            10 => {
                // Carries a tile, and loads along the way.
                let shape2 = SHAPES[j as usize % SHAPES.len()];
                let at = [b.int(0), b.int(0)];
                let init = self.load(b, 0, shape2, at);
                let (lo, hi, step) = (b.int(0), b.dim(0), b.int(24));
                let inner = b.body.new_region();
                let index = b.body.add_argument(inner, tile::Type::Scalar(DType::I64));
                let ty = b.ty(init).clone();
                let carried = b.body.add_argument(inner, ty);
                let mut l = b.at(inner);
                let next = self.load(&mut l, 0, shape2, [index, at[1]]);
                let sum = l.binary(BinaryOp::Add, carried, next);
                l.yield_(vec![sum]);
                let op = b.for_(None, k % 2 == 0, [lo, hi, step], &[init], inner);
                b.body.ops[op].results[0]
            }
            11 => {
                let (n, limit) = (b.dim(1), b.int(i64::from(k % 200)));
                let cond = b.compare(CompareOp::Lt, n, limit);
                let y = self.like(b, x, j);
                let regions = [x, y].map(|v| {
                    let region = b.body.new_region();
                    let mut r = b.at(region);
                    let v = r.binary(BinaryOp::Add, v, v);
                    r.yield_(vec![v]);
                    region
                });
                let ty = b.ty(x).clone();
                let op = b.if_(cond, vec![ty], regions[0], regions[1]);
                b.body.ops[op].results[0]
            }
            12 if rank == 2 => {
                // Stores to the scratch matrix, and reads it again elsewhere.
                let view = b.param(&self.signature, 1);
                let at = [start(b, j), start(b, k)];
                let indices = shape
                    .iter()
                    .map(|&len| Index::Range {
                        len,
                        from: false,
                        until: false,
                    })
                    .collect();
                b.store(view, indices, at.to_vec(), x, Cache::Normal, false);
                let at = if k % 2 == 0 {
                    at
                } else {
                    [start(b, k), start(b, i)]
                };
                self.load(b, 1, [shape[0], shape[1]], at)
            }
            13 => {
                let all = b.reduce(ReduceOp::Max, x, None);
                let all = b.broadcast(all, &shape);
                b.binary(BinaryOp::Sub, x, all)
            }
            14 => {
                // A row, up to a limit.
                let view = b.param(&self.signature, u32::from(k % 2));
                let pad = b.constant(Constant::Int(9, DType::I32));
                let (row, at, limit) = (start(b, k), start(b, j), b.int(i64::from(i % 100)));
                let len = [16, 80, 48, 5][i as usize % 4];
                let indices = vec![
                    Index::Scalar,
                    Index::Range {
                        len,
                        from: false,
                        until: true,
                    },
                ];
                b.load(view, indices, vec![row, at, limit], pad, Cache::Normal)
            }
            15 if rank == 1 => {
                let view = b.param(&self.signature, 1);
                let (row, at) = (start(b, k), start(b, j));
                let range = Index::Range {
                    len: shape[0],
                    from: false,
                    until: false,
                };
                b.store(
                    view,
                    vec![Index::Scalar, range],
                    vec![row, at],
                    x,
                    Cache::Normal,
                    false,
                );
                let column = vec![range, Index::Scalar];
                let pad = b.constant(Constant::Int(9, DType::I32));
                b.load(view, column, vec![row, at], pad, Cache::Normal)
            }
            16 => {
                // A scalar stored, and read by all.
                let view = b.param(&self.signature, 1);
                let pad = b.constant(Constant::Int(9, DType::I32));
                let all = b.reduce(ReduceOp::Max, x, None);
                let indices = || vec![Index::Scalar, Index::Scalar];
                let at = vec![start(b, j), start(b, k)];
                b.store(view, indices(), at.clone(), all, Cache::Normal, false);
                let back = b.load(view, indices(), at, pad, Cache::Normal);
                let back = b.broadcast(back, &shape);
                b.binary(BinaryOp::Add, x, back)
            }
            17 => {
                // Doubles until it is large, at most so often as the count says.
                let count = b.constant(Constant::Int(i64::from(k % 4), DType::I64));
                let [head, step] = [0, 1].map(|_| b.body.new_region());
                let ty = b.ty(x).clone();
                let args = [head, step].map(|region| {
                    [
                        b.body.add_argument(region, tile::Type::Scalar(DType::I64)),
                        b.body.add_argument(region, ty.clone()),
                    ]
                });
                let mut h = b.at(head);
                let zero = h.int(0);
                let more = h.compare(CompareOp::Lt, zero, args[0][0]);
                h.yield_(vec![more]);
                let mut w = b.at(step);
                let one = w.int(1);
                let left = w.binary(BinaryOp::Sub, args[1][0], one);
                let twice = w.binary(BinaryOp::Add, args[1][1], args[1][1]);
                w.yield_(vec![left, twice]);
                let op = b.while_(&[count, x], head, step);
                b.body.ops[op].results[1]
            }
            18 => {
                let op = [ScanOp::Sum, ScanOp::Max][j as usize % 2];
                b.scan(op, x, u32::from(k) % rank as u32)
            }
            19 => {
                // From wherever the values of another say, inside or not.
                let y = self.like(b, x, j);
                let low = b.constant(Constant::Int(i64::from(i % 16), DType::I32));
                let low = b.broadcast(low, &shape);
                let index = b.binary(BinaryOp::And, y, low);
                let index = b.binary(BinaryOp::Sub, index, low);
                let index = b.unary(UnaryOp::Neg, index);
                b.take(x, index, u32::from(k) % rank as u32)
            }
            20 if shape.iter().product::<u32>() < 2048 => {
                let y = self.like(b, x, j);
                b.concat(x, y, u32::from(k) % rank as u32)
            }
            21 => b.histogram(x, 1 + u32::from(k % 90)),
            22 => {
                let wide = b.cast(x, DType::I64);
                let sorted = b.sort(vec![wide], false)[0];
                b.cast(sorted, DType::I32)
            }
            _ => return,
        };
        if b.ty(made).shape().len() <= 4 && !b.ty(made).shape().is_empty() {
            self.pool.push(made);
        }
    }
}

fn program(steps: &[Step], warps: u32) -> Kernel {
    let inputs = vec![
        view("a", Access::Read, vec![Formula::dim(0), Formula::dim(1)]),
        view(
            "w",
            Access::ReadWrite,
            vec![Formula::dim(0), Formula::dim(1)],
        ),
    ];
    let mut program = Program {
        signature: Signature {
            dims: vec!["m".to_owned(), "n".to_owned()],
            params: inputs.clone(),
        },
        params: inputs,
        pool: Vec::new(),
    };
    let mut body = TileBody::new();
    let mut b = Builder::new(&mut body);
    let zero = b.int(0);
    let first = program.load(&mut b, 0, SHAPES[steps.len() % SHAPES.len()], [zero, zero]);
    program.pool.push(first);
    for &step in steps {
        program.step(&mut b, step);
    }
    let stored: Vec<ValueId> = program.pool.iter().rev().take(3).copied().collect();
    for (i, value) in stored.into_iter().enumerate() {
        let shape = b.ty(value).shape().to_vec();
        let extents = shape.iter().map(|&d| Formula::int(i64::from(d))).collect();
        let name = format!("o{i}");
        program.params.push(view(&name, Access::Write, extents));
        program.signature.params = program.params.clone();
        let out = b.param(&program.signature, 2 + i as u32);
        let indices = shape.iter().map(|&len| Index::Whole { len }).collect();
        b.store(out, indices, Vec::new(), value, Cache::Normal, false);
    }
    b.return_();
    Kernel {
        header: Header {
            name: "random".to_owned(),
            signature: program.signature,
            requires: Vec::new(),
            facts: vec![Fact::Holds(Formula(vec![
                tesserine_set::Term::Dim(1),
                tesserine_set::Term::Int(8),
                tesserine_set::Term::Op(tesserine_set::FormulaOp::Rem),
                tesserine_set::Term::Int(0),
                tesserine_set::Term::Op(tesserine_set::FormulaOp::Eq),
            ]))],
            cost: None,
            axes: vec![GridAxis::new("i", Formula::int(1))],
            order: tesserine_compiler::ir::Order::Rows,
            persistent: false,
            dynamic: false,
            schedule: Schedule {
                warps: Some(warps),
                ..Schedule::default()
            },
            span: Span::NONE,
        },
        channels: cranelift_entity::PrimaryMap::new(),
        body,
    }
}

/// A value of the role IR: one number, or the registers of each thread.
#[derive(Clone)]
enum Val {
    Scalar(i64),
    Tile(Vec<Vec<i64>>),
    View(usize),
}

/// Who touched an element since the last barrier.
#[derive(Clone, Default)]
struct Touched {
    epoch: u32,
    writer: Option<usize>,
    readers: Vec<usize>,
}

struct Memory {
    shape: Vec<i64>,
    data: Vec<i64>,
    touched: Vec<Touched>,
    shared: bool,
}

struct Machine<'a> {
    kernel: &'a role::Kernel,
    body: &'a role::RoleBody,
    threads: usize,
    values: HashMap<ValueId, Val>,
    views: Vec<Memory>,
    epoch: u32,
    /// Reads of scratch since the last barrier.
    scratch: Vec<std::ops::Range<u32>>,
    dims: Vec<i64>,
    /// What lies in slots of channels.
    slots: HashMap<(role::ChannelId, i64, u32), Slot>,
    /// Copies begun since the last group, then groups on their way, oldest first.
    begun: Vec<Copied>,
    groups: VecDeque<Vec<Copied>>,
}

/// A tile that is to arrive in a slot.
type Copied = ((role::ChannelId, i64, u32), HashMap<[u32; 2], i64>);

/// One tile of a slot.
#[derive(Default)]
struct Slot {
    /// `None` while copies are on their way, or after others have had the bytes.
    elements: Option<HashMap<[u32; 2], i64>>,
    /// The barriers counted when it was last filled and read.
    filled: u32,
    read: u32,
}

fn wrap(ty: &tile::Type, value: i64) -> i64 {
    match ty.elem() {
        DType::I32 => i64::from(value as i32),
        DType::Bool => i64::from(value != 0),
        _ => value,
    }
}

/// An element of what goes through scratch.
fn moved(
    kind: &tile::OpKind,
    tiles: &[HashMap<Vec<u32>, i64>],
    from: &[u32],
    to: &[u32],
    at: &[u32],
) -> i64 {
    let x = &tiles[0];
    let with = |d: u32, i: u32| {
        let mut at = at.to_vec();
        at[d as usize] = i;
        at
    };
    match kind {
        tile::OpKind::Scan { op, axis } => {
            let line = (0..=at[*axis as usize]).map(|i| x[&with(*axis, i)]);
            match op {
                ScanOp::Sum => line.fold(0, i64::wrapping_add),
                ScanOp::Max => line.max().expect("an element"),
            }
        }
        tile::OpKind::Take { axis } => {
            let place = u32::try_from(tiles[1][at]).unwrap_or(u32::MAX);
            x.get(&with(*axis, place)).copied().unwrap_or(0)
        }
        tile::OpKind::Concat { axis } => match at[*axis as usize].checked_sub(from[*axis as usize])
        {
            Some(behind) => tiles[1][&with(*axis, behind)],
            None => x[at],
        },
        tile::OpKind::Histogram { .. } => {
            x.values().filter(|&&v| v == i64::from(at[0])).count() as i64
        }
        tile::OpKind::Sort { .. } => {
            let last = at.len() as u32 - 1;
            let mut row: Vec<i64> = (0..to[last as usize]).map(|i| x[&with(last, i)]).collect();
            row.sort_unstable();
            row[at[last as usize] as usize]
        }
        tile::OpKind::Slice(offsets) => {
            x[&at
                .iter()
                .zip(offsets)
                .map(|(a, o)| a + o)
                .collect::<Vec<_>>()]
        }
        tile::OpKind::Reshape => {
            let mut number = at.iter().zip(to).fold(0, |n, (&a, &s)| n * s + a);
            let mut source = vec![0; from.len()];
            for (place, extent) in source.iter_mut().zip(from).rev() {
                *place = number % extent;
                number /= extent;
            }
            x[&source]
        }
        _ => panic!("not made here: {kind:?}"),
    }
}

/// What no one may look at.
const GARBAGE: i64 = 0x5a5a_5a5a;

fn meets(a: &std::ops::Range<u32>, b: &std::ops::Range<u32>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Machine<'_> {
    fn layout(&self, value: ValueId) -> Option<&Layout> {
        self.body.ty(value).layout.as_deref()
    }

    fn int(&self, value: ValueId) -> i64 {
        match self.values[&value] {
            Val::Scalar(x) => x,
            _ => panic!("{value} is no scalar"),
        }
    }

    fn tile(&self, value: ValueId) -> &Vec<Vec<i64>> {
        match &self.values[&value] {
            Val::Tile(t) => t,
            _ => panic!("{value} is no tile"),
        }
    }

    fn split(thread: usize) -> (u32, u32) {
        (thread as u32 % 32, thread as u32 / 32)
    }

    /// What each thread holds of a tile whose elements `element` gives.
    fn distribute(&self, layout: &Layout, element: impl Fn(&[u32]) -> i64) -> Vec<Vec<i64>> {
        (0..self.threads)
            .map(|thread| {
                let (lane, warp) = Machine::split(thread);
                (0..layout.registers())
                    .map(|r| {
                        let at = layout.coordinate(r, lane, warp);
                        if layout.contains(&at) {
                            element(&at)
                        } else {
                            GARBAGE
                        }
                    })
                    .collect()
            })
            .collect()
    }

    /// A tile's elements by coordinate; replicas must agree.
    fn gather(&self, value: ValueId) -> HashMap<Vec<u32>, i64> {
        let layout = self.layout(value).expect("a tile").clone();
        let mut elements = HashMap::new();
        for (thread, registers) in self.tile(value).iter().enumerate() {
            let (lane, warp) = Machine::split(thread);
            for (r, &x) in registers.iter().enumerate() {
                let at = layout.coordinate(r as u32, lane, warp);
                if layout.contains(&at) {
                    let before = elements.insert(at, x);
                    assert!(before.is_none_or(|b| b == x), "replicas differ");
                }
            }
        }
        elements
    }

    fn barrier(&mut self) {
        self.epoch += 1;
        self.scratch.clear();
    }

    fn through(&mut self, buffer: Option<role::BufferId>) {
        if let Some(buffer) = buffer {
            let buffer = &self.kernel.buffers[buffer];
            let start = buffer.offset.expect("placed");
            let bytes = start..start + buffer.bytes;
            for read in &self.scratch {
                let apart = read.end <= bytes.start || bytes.end <= read.start;
                assert!(apart, "scratch is overwritten while it may be read");
            }
            for id in self.kernel.channels.keys() {
                if meets(&self.channel_bytes(id), &bytes) {
                    for (_, slot) in self.slots.iter_mut().filter(|(k, _)| k.0 == id) {
                        assert!(
                            slot.read < self.epoch,
                            "a slot is overwritten while it may be read"
                        );
                        assert!(
                            slot.elements.is_some(),
                            "scratch while copies are on their way"
                        );
                        assert!(slot.filled < self.epoch, "scratch while slots are filled");
                    }
                    self.slots.retain(|k, _| k.0 != id);
                }
            }
            self.barrier();
            self.scratch.push(bytes);
        }
    }

    fn channel_bytes(&self, id: role::ChannelId) -> std::ops::Range<u32> {
        let buffer = &self.kernel.buffers[self.kernel.channels[id].buffer];
        let start = buffer.offset.expect("placed");
        start..start + buffer.bytes
    }

    /// A slot's tile, about to be filled.
    fn fill(&mut self, key: (role::ChannelId, i64, u32)) -> &mut Slot {
        let channel = &self.kernel.channels[key.0];
        assert!(
            (0..i64::from(channel.depth)).contains(&key.1),
            "no such slot"
        );
        let bytes = self.channel_bytes(key.0);
        let apart = self.scratch.iter().all(|r| !meets(r, &bytes));
        assert!(apart, "a slot is filled while scratch may be read");
        for id in self.kernel.channels.keys().filter(|&id| id != key.0) {
            if meets(&self.channel_bytes(id), &bytes) {
                for slot in self.slots.iter().filter(|(k, _)| k.0 == id).map(|(_, s)| s) {
                    assert!(
                        slot.read < self.epoch && slot.elements.is_some(),
                        "channels share bytes"
                    );
                }
                self.slots.retain(|k, _| k.0 != id);
            }
        }
        let epoch = self.epoch;
        let slot = self.slots.entry(key).or_default();
        assert!(slot.read < epoch, "a slot is filled while it may be read");
        slot
    }

    fn shared(&mut self, op: &tesserine_compiler::ir::Op<OpKind>) {
        let o = &op.operands;
        match &op.kind {
            OpKind::CopyAsync {
                channel,
                tile,
                indices,
                width,
            }
            | OpKind::Copy {
                channel,
                tile,
                indices,
                width,
            } => {
                let at_once = matches!(op.kind, OpKind::Copy { .. });
                let Val::View(view) = self.values[&o[0]] else {
                    panic!("a copy from a view");
                };
                let (starts, rest) = o[1..].split_at(o.len() - 3);
                let (slot, live) = (self.int(rest[0]), self.int(rest[1]) != 0);
                let filled = &self.kernel.channels[*channel].tiles[*tile as usize];
                let (shape, warps) = (filled.shape, self.threads as u32 / 32);
                let piece = match at_once {
                    true => copy_piece(shape, filled.elem).max(*width),
                    false => *width,
                };
                let layout = copy_layout(shape, piece, warps);
                let mut elements = HashMap::new();
                for row in 0..shape[0] {
                    for column in 0..shape[1] {
                        let at = [row, column];
                        let (_, lane, warp) = layout.holder(&at).expect("covered");
                        let thread = (warp * 32 + lane) as usize;
                        let starts = self.starts(starts, indices, thread, &at);
                        let from = self.address(view, indices, &starts, &at).filter(|_| live);
                        elements.insert(at, from.map_or(0, |a| self.views[view].data[a]));
                    }
                }
                let key = (*channel, slot, *tile);
                let epoch = self.epoch;
                let slot = self.fill(key);
                if at_once {
                    slot.elements = Some(elements);
                    slot.filled = epoch;
                } else {
                    slot.elements = None;
                    self.begun.push((key, elements));
                }
            }
            OpKind::CommitCopies => {
                let group = std::mem::take(&mut self.begun);
                self.groups.push_back(group);
            }
            OpKind::WaitCopies { pending } => {
                while self.groups.len() > *pending as usize {
                    for (key, elements) in self.groups.pop_front().expect("there is one") {
                        let epoch = self.epoch;
                        let slot = self.slots.get_mut(&key).expect("begun");
                        assert!(slot.elements.is_none(), "two copies to one slot");
                        slot.elements = Some(elements);
                        slot.filled = epoch;
                    }
                }
            }
            OpKind::WriteShared { channel, tile, .. } => {
                let mut elements = HashMap::new();
                for (at, x) in self.gather(o[0]) {
                    elements.insert([at[0], at[1]], x);
                }
                let (slot, epoch) = (self.int(o[1]), self.epoch);
                let slot = self.fill((*channel, slot, *tile));
                slot.elements = Some(elements);
                slot.filled = epoch;
            }
            OpKind::ReadShared {
                channel,
                tile,
                offsets,
                transposed,
            } => {
                let key = (*channel, self.int(o[0]), *tile);
                let epoch = self.epoch;
                let layout = self.layout(op.results[0]).expect("a tile").clone();
                let slot = self.slots.get_mut(&key).expect("a slot that was filled");
                assert!(slot.filled < epoch, "no barrier behind the copies");
                slot.read = epoch;
                let elements = slot.elements.clone().expect("copies were waited for");
                let value = self.distribute(&layout, |at| {
                    let at = if *transposed {
                        [at[1], at[0]]
                    } else {
                        [at[0], at[1]]
                    };
                    elements[&[offsets[0] + at[0], offsets[1] + at[1]]]
                });
                self.values.insert(op.results[0], Val::Tile(value));
            }
            OpKind::Dot { .. } => {
                // Each warp by what it holds itself.
                let [a, b, acc] = [0, 1, 2].map(|i| self.layout(o[i]).expect("a tile").clone());
                let k = a.shape[1];
                let mut out = self.tile(o[2]).clone();
                let warps = self.threads / 32;
                for warp in 0..warps {
                    let held = |value: ValueId, layout: &Layout| {
                        let mut elements = HashMap::new();
                        for lane in 0..32 {
                            for (r, &x) in self.tile(value)[warp * 32 + lane].iter().enumerate() {
                                let at = layout.coordinate(r as u32, lane as u32, warp as u32);
                                if layout.contains(&at) {
                                    elements.insert([at[0], at[1]], x);
                                }
                            }
                        }
                        elements
                    };
                    let (a, b) = (held(o[0], &a), held(o[1], &b));
                    for lane in 0..32 {
                        for (r, x) in out[warp * 32 + lane].iter_mut().enumerate() {
                            let at = acc.coordinate(r as u32, lane as u32, warp as u32);
                            if acc.contains(&at) {
                                *x += (0..k).map(|p| a[&[at[0], p]] * b[&[p, at[1]]]).sum::<i64>();
                            }
                        }
                    }
                }
                self.values.insert(op.results[0], Val::Tile(out));
            }
            kind => panic!("not made here: {kind:?}"),
        }
    }

    fn touch(&mut self, view: usize, at: usize, thread: usize, stores: bool) {
        let epoch = self.epoch;
        let memory = &mut self.views[view];
        if !memory.shared {
            return;
        }
        let touched = &mut memory.touched[at];
        if touched.epoch != epoch {
            *touched = Touched {
                epoch,
                ..Touched::default()
            };
        }
        let others = |who: &usize| *who != thread;
        assert!(!touched.writer.iter().any(others), "element {at} races");
        if stores {
            assert!(!touched.readers.iter().any(others), "element {at} races");
            touched.writer = Some(thread);
        } else {
            touched.readers.push(thread);
        }
    }

    /// The operands of indices for the element at `at`, as `thread` has them: of index tiles, the element for it.
    fn starts(
        &self,
        operands: &[ValueId],
        indices: &[Index],
        thread: usize,
        at: &[u32],
    ) -> Vec<i64> {
        let mut operands = operands.iter();
        let (mut dim, mut gathered) = (0, 0);
        let mut starts = Vec::new();
        for index in indices {
            if let Index::Gather { joined, .. } = index {
                let value = *operands.next().expect("an index tile");
                if !joined {
                    gathered = dim;
                }
                let layout = self.layout(value).expect("a tile");
                let (lane, warp) = Machine::split(thread);
                let register = (0..layout.registers())
                    .find(|&r| layout.coordinate(r, lane, warp) == [at[gathered]])
                    .expect("a thread has the indices of what it accesses");
                starts.push(self.tile(value)[thread][register as usize]);
            } else {
                let own = operands.by_ref().take(index.operands());
                starts.extend(own.map(|&v| self.int(v)));
            }
            dim += usize::from(index.extent().is_some());
        }
        starts
    }

    /// The element of a view at the coordinates of a tile, if it is inside.
    fn address(&self, view: usize, indices: &[Index], starts: &[i64], at: &[u32]) -> Option<usize> {
        let (mut starts, mut at) = (starts.iter(), at.iter());
        let mut flat = 0;
        for (index, &extent) in indices.iter().zip(&self.views[view].shape) {
            let mut own = || i64::from(*at.next().expect("of the rank"));
            let i = match index {
                Index::Scalar => *starts.next().expect("a start"),
                Index::Gather { joined, .. } => {
                    if !joined {
                        own();
                    }
                    *starts.next().expect("an element")
                }
                Index::Range { from, until, .. } => {
                    let i = starts.next().expect("a start") + own();
                    let lowest = from.then(|| *starts.next().expect("a lower limit"));
                    if lowest.is_some_and(|l| i < l) {
                        return None;
                    }
                    let limit = until.then(|| *starts.next().expect("a limit"));
                    if limit.is_some_and(|l| i >= l) {
                        return None;
                    }
                    i
                }
                Index::Whole { .. } => own(),
            };
            if !(0..extent).contains(&i) {
                return None;
            }
            flat = flat * extent + i;
        }
        Some(flat as usize)
    }

    fn region(&mut self, region: RegionId) -> Vec<ValueId> {
        for &id in &self.body.regions[region].ops {
            let op = &self.body.ops[id];
            if matches!(
                op.kind,
                OpKind::Tile(tile::OpKind::Yield | tile::OpKind::Return)
            ) {
                return op.operands.clone();
            }
            self.op(id);
        }
        Vec::new()
    }

    fn elementwise(&self, operands: &[ValueId], result: ValueId, f: impl Fn(&[i64]) -> i64) -> Val {
        let ty = &self.body.ty(result).ty;
        match self.layout(result) {
            None => {
                let x: Vec<i64> = operands.iter().map(|&v| self.int(v)).collect();
                Val::Scalar(wrap(ty, f(&x)))
            }
            Some(layout) => Val::Tile(
                (0..self.threads)
                    .map(|t| {
                        (0..layout.registers() as usize)
                            .map(|r| {
                                let x: Vec<i64> =
                                    operands.iter().map(|&v| self.tile(v)[t][r]).collect();
                                wrap(ty, f(&x))
                            })
                            .collect()
                    })
                    .collect(),
            ),
        }
    }

    fn op(&mut self, id: tesserine_compiler::ir::OpId) {
        let op = self.body.ops[id].clone();
        let o = &op.operands;
        let value = match &op.kind {
            OpKind::Tile(kind) => match kind {
                tile::OpKind::Constant(Constant::Int(x, _)) => Val::Scalar(*x),
                tile::OpKind::Param(i) => Val::View(*i as usize),
                tile::OpKind::Constant(Constant::Float(x, _)) => Val::Scalar(*x as i64),
                tile::OpKind::Constant(Constant::Bool(x)) => Val::Scalar(i64::from(*x)),
                tile::OpKind::Dim(i) => Val::Scalar(self.dims[*i as usize]),
                tile::OpKind::Cast => self.elementwise(o, op.results[0], |x| x[0]),
                tile::OpKind::Compare(CompareOp::Eq) => {
                    self.elementwise(o, op.results[0], |x| i64::from(x[0] == x[1]))
                }
                tile::OpKind::Unary(UnaryOp::Neg) => {
                    self.elementwise(o, op.results[0], |x| x[0].wrapping_neg())
                }
                tile::OpKind::Binary(kind) => self.elementwise(o, op.results[0], |x| match kind {
                    BinaryOp::Add => x[0].wrapping_add(x[1]),
                    BinaryOp::Sub => x[0].wrapping_sub(x[1]),
                    BinaryOp::Mul => x[0].wrapping_mul(x[1]),
                    BinaryOp::Max => x[0].max(x[1]),
                    BinaryOp::Xor => x[0] ^ x[1],
                    BinaryOp::And => x[0] & x[1],
                    BinaryOp::Div => x[0].div_euclid(x[1]),
                    BinaryOp::Rem => x[0].rem_euclid(x[1]),
                    _ => panic!("not made here: {kind:?}"),
                }),
                tile::OpKind::Compare(CompareOp::Lt) => {
                    self.elementwise(o, op.results[0], |x| i64::from(x[0] < x[1]))
                }
                tile::OpKind::Select => {
                    self.elementwise(o, op.results[0], |x| if x[0] != 0 { x[1] } else { x[2] })
                }
                tile::OpKind::Iota => {
                    let layout = self.layout(op.results[0]).expect("a tile");
                    let number = |at: &[u32]| {
                        at.iter()
                            .zip(&layout.shape)
                            .fold(0, |n, (&a, &s)| n * i64::from(s) + i64::from(a))
                    };
                    Val::Tile(self.distribute(layout, number))
                }
                tile::OpKind::Broadcast
                | tile::OpKind::Reshape
                | tile::OpKind::Permute(_)
                | tile::OpKind::Slice(_) => {
                    let result = self.layout(op.results[0]);
                    match (self.layout(o[0]), result) {
                        (None, Some(to)) => {
                            let x = self.int(o[0]);
                            Val::Tile(vec![vec![x; to.registers() as usize]; self.threads])
                        }
                        (Some(_), None) => {
                            let tile = self.tile(o[0]);
                            assert!(tile.iter().all(|t| t[0] == tile[0][0]), "not uniform");
                            Val::Scalar(tile[0][0])
                        }
                        (Some(from), Some(to)) => {
                            let sources = register_sources(kind, from, to).expect("moves nothing");
                            let pick =
                                |t: &Vec<i64>| sources.iter().map(|&s| t[s as usize]).collect();
                            Val::Tile(self.tile(o[0]).iter().map(pick).collect())
                        }
                        (None, None) => self.values[&o[0]].clone(),
                    }
                }
                tile::OpKind::If => {
                    let taken = op.regions[usize::from(self.int(o[0]) == 0)];
                    let values = self.region(taken);
                    for (&result, value) in op.results.iter().zip(values) {
                        let value = self.values[&value].clone();
                        self.values.insert(result, value);
                    }
                    return;
                }
                tile::OpKind::For { rev, .. } => {
                    let [lo, hi, step] = [0, 1, 2].map(|i| self.int(o[i]));
                    let mut indices: Vec<i64> = (lo..hi).step_by(step as usize).collect();
                    if *rev {
                        indices.reverse();
                    }
                    let mut carried: Vec<Val> =
                        o[3..].iter().map(|v| self.values[v].clone()).collect();
                    let args = self.body.regions[op.regions[0]].args.clone();
                    for index in indices {
                        self.values.insert(args[0], Val::Scalar(index));
                        for (&arg, value) in args[1..].iter().zip(carried) {
                            self.values.insert(arg, value);
                        }
                        let yielded = self.region(op.regions[0]);
                        carried = yielded.iter().map(|v| self.values[v].clone()).collect();
                    }
                    for (&result, value) in op.results.iter().zip(carried) {
                        self.values.insert(result, value);
                    }
                    return;
                }
                tile::OpKind::While => {
                    let mut carried: Vec<Val> = o.iter().map(|v| self.values[v].clone()).collect();
                    loop {
                        for &region in &op.regions {
                            let args = self.body.regions[region].args.clone();
                            for (arg, value) in args.into_iter().zip(&carried) {
                                self.values.insert(arg, value.clone());
                            }
                        }
                        let cond = self.region(op.regions[0]);
                        if self.int(cond[0]) == 0 {
                            break;
                        }
                        let yielded = self.region(op.regions[1]);
                        carried = yielded.iter().map(|v| self.values[v].clone()).collect();
                    }
                    for (&result, value) in op.results.iter().zip(carried) {
                        self.values.insert(result, value);
                    }
                    return;
                }
                _ => panic!("not made here: {kind:?}"),
            },
            OpKind::Load { indices, .. } => {
                let Val::View(view) = self.values[&o[0]] else {
                    panic!("a load from a view");
                };
                let places = &o[1..o.len() - 1];
                let pad = self.int(o[o.len() - 1]);
                let Some(layout) = self.layout(op.results[0]).cloned() else {
                    let starts = self.starts(places, indices, 0, &[]);
                    let address = self.address(view, indices, &starts, &[]);
                    if let Some(a) = address {
                        (0..self.threads).for_each(|t| self.touch(view, a, t, false));
                    }
                    let value = address.map_or(pad, |a| self.views[view].data[a]);
                    self.values.insert(op.results[0], Val::Scalar(value));
                    return;
                };
                let mut tile = Vec::new();
                for thread in 0..self.threads {
                    let (lane, warp) = Machine::split(thread);
                    let mut registers = Vec::new();
                    for r in 0..layout.registers() {
                        let at = layout.coordinate(r, lane, warp);
                        if !layout.contains(&at) {
                            registers.push(GARBAGE);
                            continue;
                        }
                        let starts = self.starts(places, indices, thread, &at);
                        registers.push(match self.address(view, indices, &starts, &at) {
                            Some(a) => {
                                self.touch(view, a, thread, false);
                                self.views[view].data[a]
                            }
                            None => pad,
                        });
                    }
                    tile.push(registers);
                }
                Val::Tile(tile)
            }
            OpKind::Store { indices, .. } => {
                let Val::View(view) = self.values[&o[0]] else {
                    panic!("a store to a view");
                };
                let places = &o[1..o.len() - 1];
                let value = o[o.len() - 1];
                let Some(layout) = self.layout(value).cloned() else {
                    let starts = self.starts(places, indices, 0, &[]);
                    if let Some(a) = self.address(view, indices, &starts, &[]) {
                        self.touch(view, a, 0, true);
                        self.views[view].data[a] = self.int(value);
                    }
                    return;
                };
                for thread in 0..self.threads {
                    let (lane, warp) = Machine::split(thread);
                    if lane & layout.replicated_lanes() != 0
                        || warp & layout.replicated_warps() != 0
                    {
                        continue;
                    }
                    for r in 0..layout.registers() {
                        let at = layout.coordinate(r, lane, warp);
                        if !layout.contains(&at) {
                            continue;
                        }
                        let starts = self.starts(places, indices, thread, &at);
                        if let Some(a) = self.address(view, indices, &starts, &at) {
                            self.touch(view, a, thread, true);
                            self.views[view].data[a] = self.tile(value)[thread][r as usize];
                        }
                    }
                }
                return;
            }
            OpKind::Reduce {
                op: kind,
                axis,
                scratch,
            } => {
                let mut groups: HashMap<Vec<u32>, i64> = HashMap::new();
                for (mut at, x) in self.gather(o[0]) {
                    match axis {
                        Some(axis) => drop(at.remove(*axis as usize)),
                        None => at.clear(),
                    }
                    groups
                        .entry(at)
                        .and_modify(|sum| {
                            *sum = match kind {
                                ReduceOp::Sum => sum.wrapping_add(x),
                                _ => x.max(*sum),
                            }
                        })
                        .or_insert(x);
                }
                let crosses = {
                    let from = self.layout(o[0]).expect("a tile");
                    match axis {
                        Some(axis) => from.warps_along(*axis as usize) != 0,
                        None => from.replicated_warps() != from.warps() - 1,
                    }
                };
                assert_eq!(crosses, scratch.is_some(), "scratch exactly over warps");
                self.through(*scratch);
                let ty = &self.body.ty(op.results[0]).ty;
                match self.layout(op.results[0]) {
                    None => Val::Scalar(wrap(ty, groups[&vec![]])),
                    Some(layout) => Val::Tile(self.distribute(layout, |at| wrap(ty, groups[at]))),
                }
            }
            OpKind::Convert { scratch } => {
                let elements = self.gather(o[0]);
                self.through(*scratch);
                let layout = self.layout(op.results[0]).expect("a tile");
                Val::Tile(self.distribute(layout, |at| elements[at]))
            }
            OpKind::Through { op: kind, scratch } => {
                let tiles: Vec<_> = o.iter().map(|&v| self.gather(v)).collect();
                self.through(*scratch);
                let ty = &self.body.ty(op.results[0]).ty;
                let from = self.body.ty(o[0]).ty.shape();
                let element = |at: &[u32]| wrap(ty, moved(kind, &tiles, from, ty.shape(), at));
                let layout = self.layout(op.results[0]).expect("a tile");
                Val::Tile(self.distribute(layout, element))
            }
            OpKind::Barrier => {
                self.barrier();
                return;
            }
            OpKind::Dot { .. }
            | OpKind::CopyAsync { .. }
            | OpKind::Copy { .. }
            | OpKind::CommitCopies
            | OpKind::WaitCopies { .. }
            | OpKind::WriteShared { .. }
            | OpKind::ReadShared { .. } => {
                self.shared(&op);
                return;
            }
            _ => panic!("not made here: {:?}", op.kind),
        };
        self.values.insert(op.results[0], value);
    }
}

/// The views after one block of the lowered kernel has run.
fn execute(kernel: &role::Kernel, dims: Vec<i64>, views: Vec<Memory>) -> Vec<Memory> {
    let role = &kernel.roles[0];
    let mut machine = Machine {
        kernel,
        body: &role.body,
        threads: role.warps as usize * 32,
        values: HashMap::new(),
        views,
        epoch: 1,
        scratch: Vec::new(),
        dims,
        slots: HashMap::new(),
        begun: Vec::new(),
        groups: VecDeque::new(),
    };
    machine.region(role.body.root);
    assert!(
        machine.begun.is_empty() && machine.groups.is_empty(),
        "copies are left behind"
    );
    machine.views
}

fn noise(i: usize) -> i64 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x >> 50) as i64 - 8000
}

fn compare(steps: &[Step], warps: u32) -> Result<(), TestCaseError> {
    let kernel = program(steps, warps);
    if let Err(errors) = tile::verify(&kernel) {
        panic!("{}\n{kernel}", errors[0]);
    }
    compare_kernel(&kernel, "sm_90a", &[ROWS, COLUMNS])
}

/// Runs `kernel` in both ways, on dimensions of these sizes.
fn compare_kernel(kernel: &Kernel, target: &str, dims: &[usize]) -> Result<(), TestCaseError> {
    let target = Target::parse(target).expect("a target");
    let lowered = match passes::lower(kernel, &target) {
        Ok(lowered) => lowered,
        // What is not yet compiled says so; nothing else is refused.
        Err(diagnostics) => {
            let codes: Vec<String> = diagnostics.iter().map(|d| d.code.to_string()).collect();
            prop_assert!(
                codes.iter().all(|c| c == "E0010"),
                "{:?}\n{}",
                codes,
                kernel
            );
            return Ok(());
        }
    };
    let mut args = Args::new();
    let mut views = Vec::new();
    for (p, param) in kernel.header.signature.params.iter().enumerate() {
        let ParamKind::View(view) = &param.kind else {
            panic!("views only");
        };
        let shape: Vec<usize> = view
            .extents
            .iter()
            .map(|e| match e.as_dim() {
                Some(d) => dims[d as usize],
                None => e.as_int().expect("a constant") as usize,
            })
            .collect();
        let element = |i: usize| match view.dtype.is_float() {
            // Sums of products stay exact in f16.
            true => noise(i + p).rem_euclid(4) - 1,
            false => noise(i + p),
        };
        let data: Vec<i64> = (0..shape.iter().product()).map(element).collect();
        let floats: Vec<f64> = data.iter().map(|&x| x as f64).collect();
        let tensor = Tensor::from_f64(view.dtype, shape.clone(), &floats).expect("a tensor");
        args.insert(param.name.clone(), Arg::Tensor(tensor));
        views.push(Memory {
            shape: shape.iter().map(|&d| d as i64).collect(),
            touched: vec![Touched::default(); data.len()],
            data,
            shared: view.access != Access::Read,
        });
    }
    let sizes = dims.iter().map(|&d| d as i64).collect();
    let after = execute(&lowered, sizes, views);
    interp::run(kernel, &mut args).expect("interpreted");
    for (param, memory) in kernel.header.signature.params.iter().zip(after) {
        let Arg::Tensor(tensor) = &args[&param.name] else {
            panic!("tensors only");
        };
        let expected: Vec<i64> = tensor.to_f64().iter().map(|&x| x as i64).collect();
        prop_assert!(
            expected == memory.data,
            "`{}` differs\n{}\n{}",
            param.name,
            kernel,
            lowered
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lowered_programs_mean_the_same(
        steps in prop::collection::vec(any::<Step>(), 1..10),
        warps in 0u32..4,
    ) {
        compare(&steps, 1 << warps)?;
    }
}

/// A product over all of `k`, for the first two column tiles: what differs between programs.
#[derive(Clone, Debug)]
struct Product {
    /// M, K, N.
    dims: [usize; 3],
    tile: [u32; 3],
    /// Whether `a` lies as `[k, m]`, and `b` as `[k, n]`.
    swapped: [bool; 2],
    elem: DType,
    /// Cast to `f32` before the product.
    widened: bool,
    out: DType,
    aligned: bool,
    stages: Option<u32>,
    warps: u32,
    /// Column tiles in a loop.
    looped: bool,
}

impl Product {
    fn kernel(&self) -> Kernel {
        let [bm, bn, bk] = self.tile;
        let (elem, out) = (self.elem, self.out);
        let matrix = |swapped: bool, rows: &'static str, columns: &'static str| match swapped {
            true => format!("[{columns}, {rows}]"),
            false => format!("[{rows}, {columns}]"),
        };
        let (a, b) = (
            matrix(self.swapped[0], "m", "k"),
            matrix(self.swapped[1], "n", "k"),
        );
        let mut text = format!(
            "kernel \"product\"\n  dims m, k, n\n  param a: view<{elem}>{a}\n  param b: view<{elem}>{b}\n  \
             param r: view<{out}>[n]\n  param c: out view<{out}>[m, n]\n"
        );
        if self.aligned {
            for dim in ["m", "k", "n"] {
                text += &format!("  fact {dim} % 8 == 0\n");
            }
            text += "  fact aligned(a, 16)\n  fact aligned(b, 16)\n  fact aligned(c, 16)\n";
        }
        text += "  axis i in 1\n";
        text += &format!("  warps {}\n", self.warps);
        if let Some(stages) = self.stages {
            text += &format!("  stages {stages}\n");
        }
        let acc = format!("tile<f32>[{bm}, {bn}]");
        text += &format!(
            "{{
  %0 = param a : view<{elem}>[?, ?]
  %1 = param b : view<{elem}>[?, ?]
  %2 = param c : out view<{out}>[?, ?]
  %3 = param r : view<{out}>[?]
  %4 = constant 0 : i64
  %5 = constant 1 : i64
  %6 = constant {bk} : i64
  %7 = constant {bn} : i64
  %8 = constant 0.0 : f32
  %9 = constant 0.0 : {elem}
  %10 = constant 0.0 : {out}
  %11 = dim k : i64
  %12 = constant {} : i64
  %13 = add %11, %12 : i64
  %14 = div %13, %6 : i64
  %15 = constant 2 : i64
",
            bk - 1
        );
        if self.looped {
            text += "  for %4, %15, %5 { |%16: i64|\n";
        } else {
            text += "  %16 = constant 0 : i64\n";
        }
        text += &format!(
            "  %17 = mul %16, %7 : i64
  %18 = broadcast %8 : {acc}
  %19 = for %4, %14, %5, %18 : {acc} {{ |%20: i64, %21: {acc}|
    %22 = mul %20, %6 : i64
"
        );
        let mut operand =
            |number: u32, view: &str, start: &str, rows: u32, swapped: bool, want: bool| {
                let (index, shape) = match swapped {
                    true => (format!("%22 +: {bk}, {start} +: {rows}"), [bk, rows]),
                    false => (format!("{start} +: {rows}, %22 +: {bk}"), [rows, bk]),
                };
                text += &format!(
                    "    %{number} = load {view}[{index}] pad %9 : tile<{elem}>{shape:?}\n"
                );
                let mut at = number;
                let (mut ty, mut shape) = (elem, shape);
                if self.widened {
                    ty = DType::F32;
                    text += &format!("    %{} = cast %{at} : tile<{ty}>{shape:?}\n", at + 1);
                    at += 1;
                }
                if swapped != want {
                    shape.reverse();
                    text += &format!(
                        "    %{} = permute [1, 0] %{at} : tile<{ty}>{shape:?}\n",
                        at + 1
                    );
                    at += 1;
                }
                at
            };
        let left = operand(30, "%0", "%4", bm, self.swapped[0], false);
        let right = operand(40, "%1", "%17", bn, self.swapped[1], true);
        text += &format!(
            "    %50 = dot %{left}, %{right}, %21 : {acc}
    yield %50
  }}
  %51 = load %3[%17 +: {bn}] pad %10 : tile<{out}>[{bn}]
  %52 = broadcast %51 : tile<{out}>[{bm}, {bn}]
  %53 = cast %19 : tile<{out}>[{bm}, {bn}]
  %54 = add %53, %52 : tile<{out}>[{bm}, {bn}]
  store %2[%4 +: {bm}, %17 +: {bn}] = %54
"
        );
        text += match self.looped {
            true => "  yield\n  }\n  return\n}\n",
            false => "  return\n}\n",
        };
        let text = match out {
            // A cast to the type that it has is none.
            DType::F32 => text.replace("%53 = cast %19 :", "%53 = neg %19 :"),
            _ => text,
        };
        let kernel = tile::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        if let Err(errors) = tile::verify(&kernel) {
            panic!("{}\n{kernel}", errors[0]);
        }
        kernel
    }
}

fn products() -> impl Strategy<Value = Product> {
    let size = |n: usize| 1..n;
    let tile = (
        prop_oneof![Just(16u32), Just(32), Just(24), Just(7)],
        prop_oneof![Just(16u32), Just(32), Just(40), Just(8)],
        prop_oneof![Just(16u32), Just(32), Just(48), Just(24), Just(6)],
    );
    let kind = prop_oneof![
        Just((DType::F16, false)),
        Just((DType::Bf16, false)),
        Just((DType::F16, true)),
        Just((DType::F32, false)),
    ];
    let how = (
        any::<bool>(),
        prop::option::of(1u32..5),
        0u32..4,
        any::<bool>(),
    );
    (
        (size(40), size(110), size(90)),
        tile,
        any::<[bool; 2]>(),
        kind,
        any::<bool>(),
        how,
    )
        .prop_map(|((m, k, n), (bm, bn, bk), swapped, kind, narrow, how)| {
            let (aligned, stages, warps, looped) = how;
            let up = |x: usize| if aligned { x.next_multiple_of(8) } else { x };
            Product {
                dims: [up(m), up(k), up(n)],
                tile: [bm, bn, bk],
                swapped,
                elem: kind.0,
                widened: kind.1,
                out: if narrow { DType::F16 } else { DType::F32 },
                aligned,
                stages,
                warps: 1 << warps,
                looped,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn products_mean_the_same(product in products(), target in 0usize..Target::ALL.len()) {
        compare_kernel(&product.kernel(), Target::ALL[target].name(), &product.dims)?;
    }
}

/// Products whose operands are not all slices of views: outside of loops, computed, chained, fixed in the loop.
fn chained(target: &str, elem: &str, warps: u32, tail: &str) -> Result<(), TestCaseError> {
    let text = format!(
        r#"kernel "chained"
  dims m, k, n
  param q: view<{elem}>[m, k]
  param x: view<{elem}>[n, k]
  param y: view<{elem}>[n, k]
  param c: out view<f32>[m, k]
  axis i in 1
  warps {warps}
{{
  %0 = param q : view<{elem}>[?, ?]
  %1 = param x : view<{elem}>[?, ?]
  %2 = param y : view<{elem}>[?, ?]
  %3 = param c : out view<f32>[?, ?]
  %4 = constant 0 : i64
  %5 = constant 32 : i64
  %6 = constant 0.0 : {elem}
  %7 = constant 0.0 : f32
  %8 = dim n : i64
  %9 = load %0[%4 +: 32, %4 +: 16] pad %6 : tile<{elem}>[32, 16]
  %10 = broadcast %7 : tile<f32>[32, 16]
  %11 = broadcast %7 : tile<f32>[32, 32]
{tail}"#
    );
    let kernel = tile::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    if let Err(errors) = tile::verify(&kernel) {
        panic!("{}\n{kernel}", errors[0]);
    }
    compare_kernel(&kernel, target, &[24, 16, 70])
}

#[test]
fn products_of_what_is_computed_mean_the_same() {
    let alone = |elem: &str| {
        format!(
            "  %20 = load %1[%4 +: 32, %4 +: 16] pad %6 : tile<{elem}>[32, 16]
  %21 = permute [1, 0] %20 : tile<{elem}>[16, 32]
  %22 = dot %9, %21, %11 : tile<f32>[32, 32]
  store %3[%4 +: 32, %4 +: 32] = %22
  return
}}
"
        )
    };
    let attention = |elem: &str| {
        format!(
            "  %20 = for %4, %8, %5, %10 : tile<f32>[32, 16] {{ |%21: i64, %22: tile<f32>[32, 16]|
    %23 = load %1[%21 +: 32, %4 +: 16] pad %6 : tile<{elem}>[32, 16]
    %24 = permute [1, 0] %23 : tile<{elem}>[16, 32]
    %25 = dot %9, %24, %11 : tile<f32>[32, 32]
    %26 = broadcast %7 : tile<f32>[32, 32]
    %27 = max %25, %26 : tile<f32>[32, 32]
    %28 = cast %27 : tile<{elem}>[32, 32]
    %29 = load %2[%21 +: 32, %4 +: 16] pad %6 : tile<{elem}>[32, 16]
    %30 = dot %28, %29, %22 : tile<f32>[32, 16]
    %31 = reduce max axis 1 %25 : tile<f32>[32]
    %32 = reshape %31 : tile<f32>[32, 1]
    %33 = broadcast %32 : tile<f32>[32, 16]
    %34 = add %30, %33 : tile<f32>[32, 16]
    yield %34
  }}
  store %3[%4 +: 32, %4 +: 16] = %20
  return
}}
"
        )
    };
    let twice = |elem: &str| {
        format!(
            "  %20 = for %4, %8, %5, %11 : tile<f32>[32, 32] {{ |%21: i64, %22: tile<f32>[32, 32]|
    %23 = load %1[%21 +: 32, %4 +: 16] pad %6 : tile<{elem}>[32, 16]
    %24 = permute [1, 0] %23 : tile<{elem}>[16, 32]
    %25 = add %23, %23 : tile<{elem}>[32, 16]
    %26 = dot %25, %24, %22 : tile<f32>[32, 32]
    %27 = load %2[%21 +: 32, %4 +: 16] pad %6 : tile<{elem}>[32, 16]
    %28 = permute [1, 0] %27 : tile<{elem}>[16, 32]
    %29 = dot %27, %28, %26 : tile<f32>[32, 32]
    yield %29
  }}
  store %3[%4 +: 32, %4 +: 16] = %20
  return
}}
"
        )
        .replace(
            "%3[%4 +: 32, %4 +: 16] = %20",
            "%3[%4 +: 32, %4 +: 32] = %20",
        )
    };
    for target in ["sm_75", "sm_90a"] {
        for elem in ["f16", "bf16"] {
            for warps in [1, 4] {
                for tail in [alone(elem), attention(elem), twice(elem)] {
                    if let Err(error) = chained(target, elem, warps, &tail) {
                        panic!("{target} {elem} {warps}: {error}");
                    }
                }
            }
        }
    }
}

/// Rows that tables name: of both operands of a product, with the numbers of one worked out in the loop, and of a store.
fn gathered(target: &str, elem: &str, warps: u32, aligned: bool) -> Result<(), TestCaseError> {
    let facts = match aligned {
        true => {
            "  fact aligned(a, 16)\n  fact aligned(b, 16)\n  fact aligned(c, 16)\n  fact k % 8 == 0\n"
        }
        false => "",
    };
    let text = format!(
        r#"kernel "gathered"
  dims t, k, r, p
  param a: view<{elem}>[t, k]
  param order: view<i32>[r]
  param b: view<{elem}>[p, 8, 24]
  param ids: view<i32>[r]
  param c: out view<f32>[t, 24]
{facts}  axis i in 1
  warps {warps}
{{
  %0 = param a : view<{elem}>[?, ?]
  %1 = param order : view<i32>[?]
  %2 = param b : view<{elem}>[?, ?, ?]
  %3 = param ids : view<i32>[?]
  %4 = param c : out view<f32>[?, ?]
  %5 = constant 0 : i64
  %6 = constant 32 : i64
  %7 = constant 13 : i32
  %8 = constant -1 : i32
  %9 = load %1[%5 +: 32] pad %8 : tile<i32>[32]
  %10 = broadcast %7 : tile<i32>[32]
  %11 = rem %9, %10 : tile<i32>[32]
  %12 = constant 0.0 : f32
  %13 = constant 0.0 : {elem}
  %14 = broadcast %12 : tile<f32>[32, 24]
  %15 = dim k : i64
  %16 = for %5, %15, %6, %14 : tile<f32>[32, 24] {{ |%17: i64, %18: tile<f32>[32, 24]|
    %19 = load %0[at %11 +: 32, %17 +: 32] pad %13 : tile<{elem}>[32, 32]
    %20 = iota : tile<i32>[32]
    %21 = cast %17 : i32
    %22 = broadcast %21 : tile<i32>[32]
    %23 = add %20, %22 : tile<i32>[32]
    %24 = constant 8 : i32
    %25 = broadcast %24 : tile<i32>[32]
    %26 = div %23, %25 : tile<i32>[32]
    %27 = rem %23, %25 : tile<i32>[32]
    %28 = load %3[at %26 +: 32] pad %8 : tile<i32>[32]
    %29 = rem %28, %25 : tile<i32>[32]
    %30 = load %2[at %29 +: 32, with %27 +: 32, ..24] pad %13 : tile<{elem}>[32, 24]
    %31 = dot %19, %30, %18 : tile<f32>[32, 24]
    yield %31
  }}
  %40 = iota : tile<i32>[32]
  %41 = constant 5 : i32
  %42 = broadcast %41 : tile<i32>[32]
  %43 = mul %40, %42 : tile<i32>[32]
  %44 = constant 31 : i32
  %45 = broadcast %44 : tile<i32>[32]
  %46 = rem %43, %45 : tile<i32>[32]
  %47 = add %40, %45 : tile<i32>[32]
  %48 = constant 30 : i32
  %49 = broadcast %48 : tile<i32>[32]
  %50 = compare lt %49, %40 : tile<bool>[32]
  %51 = select %50, %47, %46 : tile<i32>[32]
  scatter %4[at %51 +: 32, ..24] = %16
  return
}}
"#
    );
    let kernel = tile::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    if let Err(errors) = tile::verify(&kernel) {
        panic!("{}\n{kernel}", errors[0]);
    }
    compare_kernel(&kernel, target, &[29, 80, 30, 6])
}

#[test]
fn rows_that_tables_name_mean_the_same() {
    for target in ["sm_75", "sm_90a"] {
        for elem in ["f16", "bf16"] {
            for warps in [1, 4] {
                for aligned in [false, true] {
                    if let Err(error) = gathered(target, elem, warps, aligned) {
                        panic!("{target} {elem} {warps} {aligned}: {error}");
                    }
                }
            }
        }
    }
}

/// Attention in tiles so large that what stays the same lies in shared memory, block of rows after block of rows.
#[test]
fn operands_kept_in_shared_memory_mean_the_same() {
    let (target, elem) = ("sm_90a", "bf16");
    let text = format!(
        r#"kernel "kept"
  dims m, k, n
  param q: view<{elem}>[m, k]
  param x: view<{elem}>[n, k]
  param y: view<{elem}>[n, k]
  param c: out view<f32>[m, k]
  fact aligned(x, 16)
  fact aligned(y, 16)
  fact k % 8 == 0
  axis i in 1
  warps 1
  stages 2
{{
  %0 = param q : view<{elem}>[?, ?]
  %1 = param x : view<{elem}>[?, ?]
  %2 = param y : view<{elem}>[?, ?]
  %3 = param c : out view<f32>[?, ?]
  %4 = constant 0 : i64
  %5 = constant 64 : i64
  %6 = constant 0.0 : {elem}
  %7 = constant 0.0 : f32
  %8 = dim n : i64
  %9 = constant 2 : i64
  %10 = constant 1 : i64
  %11 = broadcast %7 : tile<f32>[64, 64]
  for %4, %9, %10 {{ |%12: i64|
    %13 = mul %12, %5 : i64
    %14 = load %0[%13 +: 64, %4 +: 64] pad %6 : tile<{elem}>[64, 64]
    %20 = for %4, %8, %5, %11 : tile<f32>[64, 64] {{ |%21: i64, %22: tile<f32>[64, 64]|
      %23 = load %1[%21 +: 64, %4 +: 64] pad %6 : tile<{elem}>[64, 64]
      %24 = permute [1, 0] %23 : tile<{elem}>[64, 64]
      %25 = dot %14, %24, %11 : tile<f32>[64, 64]
      %26 = cast %25 : tile<{elem}>[64, 64]
      %27 = load %2[%21 +: 64, %4 +: 64] pad %6 : tile<{elem}>[64, 64]
      %28 = dot %26, %27, %22 : tile<f32>[64, 64]
      yield %28
    }}
    store %3[%13 +: 64, %4 +: 64] = %20
    yield
  }}
  return
}}
"#
    );
    let kernel = tile::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let lowered = passes::lower(&kernel, &Target::parse(target).unwrap()).expect("lowered");
    let kept = lowered
        .channels
        .values()
        .filter(|c| c.tiles.len() == 1)
        .count();
    assert_eq!(kept, 1, "the rows of `q` are kept on {target}");
    if let Err(error) = compare_kernel(&kernel, target, &[100, 16, 70]) {
        panic!("{target} {elem}: {error}");
    }
}
