//! Reductions: within a thread, over lanes by shuffles, over warps through shared memory.
//!
//! Every thread ends with the whole result, and all of them with the same bits: operands are combined in one order,
//! whoever does it. Padding counts as the operation's neutral element, replicas count once.

use tesserine_set::DType;

use super::{
    builder::{Effect, F32, F64, I1, I32, I64, Ty, Val},
    lower::Lower,
};
use crate::{
    diagnostics::Diagnostic,
    ir::{
        Op,
        role::{BufferId, OpKind},
        tile::ReduceOp,
    },
    layout::{Layout, scratch::ReduceBuffer},
    target::legality::Instruction,
};

/// Independent sums in a thread, so that one need not wait for the other.
const CHAINS: usize = 4;

/// A partial result: the value, and where it lies for `argmax` and `argmin`.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Partial {
    pub value: Val,
    index: Option<Val>,
}

impl Partial {
    pub fn of(value: Val) -> Partial {
        Partial { value, index: None }
    }
}

/// How partial results are kept and combined.
#[derive(Clone, Copy)]
pub(super) struct Scheme {
    op: ReduceOp,
    pub ty: Ty,
    /// Integers only.
    signed: bool,
}

impl Scheme {
    pub fn new(op: ReduceOp, elem: DType) -> Scheme {
        let ty = match elem {
            DType::F64 => F64,
            t if t.is_float() => F32,
            DType::I64 | DType::U64 => I64,
            _ => I32,
        };
        Scheme {
            op,
            ty,
            signed: elem.is_signed(),
        }
    }

    fn is_arg(self) -> bool {
        matches!(self.op, ReduceOp::ArgMax | ReduceOp::ArgMin)
    }

    pub fn neutral(self) -> Partial {
        let (low, high) = match (self.ty, self.signed) {
            (I64, true) => (i64::MIN, i64::MAX),
            (I64, false) => (0, -1),
            (_, true) => (i32::MIN as i64, i32::MAX as i64),
            (_, false) => (0, -1),
        };
        let value = match (self.op, self.ty.is_int()) {
            (ReduceOp::Sum, true) | (ReduceOp::Any, _) => Val::int(0, self.ty),
            (ReduceOp::All, _) => Val::int(1, self.ty),
            (ReduceOp::Sum, false) => Val::float(0.0, self.ty),
            (ReduceOp::Max | ReduceOp::ArgMax, true) => Val::int(low, self.ty),
            (ReduceOp::Min | ReduceOp::ArgMin, true) => Val::int(high, self.ty),
            // Next to a NaN every number counts, and nothing but NaN gives NaN.
            (ReduceOp::Max | ReduceOp::Min, false) => Val::float(f64::NAN, self.ty),
            (ReduceOp::ArgMax, false) => Val::float(f64::NEG_INFINITY, self.ty),
            (ReduceOp::ArgMin, false) => Val::float(f64::INFINITY, self.ty),
        };
        Partial {
            value,
            index: self.is_arg().then(|| Val::i32(i32::MAX as u32)),
        }
    }
}

impl Lower<'_> {
    pub fn reduce(
        &mut self,
        op: &Op<OpKind>,
        kind: ReduceOp,
        axis: Option<u32>,
        scratch: Option<BufferId>,
    ) -> Result<(), Diagnostic> {
        let (value, result) = (op.operands[0], op.results[0]);
        let layout = self.layout(value).expect("reductions take tiles");
        let elem = self.elem(value);
        let scheme = Scheme::new(kind, elem);
        let regs = self.get(value);
        let on_axis = |vector: &Vec<u32>| match axis {
            Some(a) => vector[a as usize] != 0,
            None => vector.iter().any(|&v| v != 0),
        };

        // Within the thread: registers with the same coordinate outside the axis.
        let wide = self.widen(&regs, elem, scheme)?;
        let mut keys: Vec<Vec<u32>> = Vec::new();
        let mut members: Vec<Vec<Partial>> = Vec::new();
        let mut seen: Vec<Vec<u32>> = Vec::new();
        for (register, &value) in wide.iter().enumerate() {
            let at = layout.coordinate(register as u32, 0, 0);
            if seen.contains(&at) {
                continue;
            }
            let key: Vec<u32> = match axis {
                Some(a) => {
                    let mut key = at.clone();
                    key.remove(a as usize);
                    key
                }
                None => Vec::new(),
            };
            let place = match keys.iter().position(|k| *k == key) {
                Some(place) => place,
                None => {
                    keys.push(key);
                    members.push(Vec::new());
                    keys.len() - 1
                }
            };
            if let Some(partial) = self.member(layout, axis, register as u32, &at, value, scheme) {
                members[place].push(partial);
            }
            seen.push(at);
        }
        let mut partials: Vec<Partial> = members
            .iter()
            .map(|list| self.combine_list(list, scheme))
            .collect();

        // Over lanes.
        for (bit, vector) in layout.lane.iter().enumerate() {
            if !on_axis(vector) {
                continue;
            }
            self.need(Instruction::Shuffle)?;
            for partial in &mut partials {
                let other = self.shuffle(*partial, 1 << bit);
                *partial = self.combine(*partial, other, scheme);
            }
        }

        // Over warps.
        if let Some(buffer) = ReduceBuffer::new(layout, axis, kind, elem) {
            let scratch = scratch.expect("a reduction over warps has a buffer");
            let start = self.kernel.buffers[scratch].offset.unwrap_or(0);
            self.over_warps(&mut partials, layout, axis, &buffer, start, scheme)?;
        }

        let to = self.elem(result);
        let finished: Vec<Val> = partials
            .iter()
            .map(|&p| self.finish_partial(p, elem, to, scheme))
            .collect::<Result<_, _>>()?;
        let regs: Vec<Val> = match self.layout(result) {
            None => vec![finished[0]],
            Some(layout) => (0..layout.registers())
                .map(|register| {
                    let at = layout.coordinate(register, 0, 0);
                    match keys.iter().position(|k| *k == at) {
                        Some(place) => finished[place],
                        None => self.zero(to),
                    }
                })
                .collect(),
        };
        self.set(result, regs);
        Ok(())
    }

    /// Registers in the type in which they are combined.
    pub(super) fn widen(
        &mut self,
        regs: &[Val],
        elem: DType,
        scheme: Scheme,
    ) -> Result<Vec<Val>, Diagnostic> {
        if elem.is_float() {
            let to = if scheme.ty == F64 {
                DType::F64
            } else {
                DType::F32
            };
            return self.cast_all(regs, elem, to);
        }
        Ok(regs
            .iter()
            .map(|&v| self.b.resize(v, scheme.ty, scheme.signed))
            .collect())
    }

    /// What a register adds to its reduction; `None` if it is padding in every thread.
    fn member(
        &mut self,
        layout: &Layout,
        axis: Option<u32>,
        register: u32,
        at: &[u32],
        value: Val,
        scheme: Scheme,
    ) -> Option<Partial> {
        let neutral = scheme.neutral();
        let mut inside = Val::bool(true);
        for (d, &extent) in layout.shape.iter().enumerate() {
            if axis.is_some_and(|a| a as usize != d) {
                continue;
            }
            if at[d] >= extent {
                return None;
            }
            if at[d] + Lower::thread_reach(layout, d) >= extent {
                let c = self.coordinate(layout, register, d);
                let here = self.b.icmp("slt", c, Val::i32(extent));
                inside = self.b.and(inside, here);
            }
        }
        let mut partial = Partial { value, index: None };
        if scheme.is_arg() {
            let index = match axis {
                Some(a) => self.coordinate(layout, register, a as usize),
                None => {
                    let mut linear = Val::i32(0);
                    for (d, &extent) in layout.shape.iter().enumerate() {
                        let c = self.coordinate(layout, register, d);
                        let up = self.b.mul(linear, Val::i32(extent));
                        linear = self.b.add(up, c);
                    }
                    linear
                }
            };
            if !scheme.ty.is_int() {
                let number = self.b.fcmp("ord", value, value);
                inside = self.b.and(inside, number);
            }
            let none = neutral.index.expect("argmax has indices");
            partial.index = Some(self.b.select(inside, index, none));
        }
        partial.value = self.b.select(inside, value, neutral.value);
        Some(partial)
    }

    fn combine_list(&mut self, list: &[Partial], scheme: Scheme) -> Partial {
        let mut chains: Vec<Partial> = list.iter().take(CHAINS).copied().collect();
        for (i, &partial) in list.iter().enumerate().skip(CHAINS) {
            chains[i % CHAINS] = self.combine(chains[i % CHAINS], partial, scheme);
        }
        while chains.len() > 1 {
            chains = chains
                .chunks(2)
                .map(|pair| match *pair {
                    [a, b] => self.combine(a, b, scheme),
                    _ => pair[0],
                })
                .collect();
        }
        chains.first().copied().unwrap_or(scheme.neutral())
    }

    pub(super) fn combine(&mut self, a: Partial, b: Partial, scheme: Scheme) -> Partial {
        let int = scheme.ty.is_int();
        let (x, y) = (a.value, b.value);
        let name = match (scheme.op, int, scheme.signed) {
            (ReduceOp::Max, false, _) => "llvm.maxnum",
            (ReduceOp::Min, false, _) => "llvm.minnum",
            (ReduceOp::Max, true, true) => "llvm.smax",
            (ReduceOp::Max, true, false) => "llvm.umax",
            (ReduceOp::Min, true, true) => "llvm.smin",
            (ReduceOp::Min, true, false) => "llvm.umin",
            _ => "",
        };
        let value = match scheme.op {
            ReduceOp::Sum if int => self.b.add(x, y),
            ReduceOp::Sum => self.b.binary("fadd contract", x, y),
            ReduceOp::Max | ReduceOp::Min => self.b.intrinsic(name, &[x, y]),
            ReduceOp::Any => self.b.or(x, y),
            ReduceOp::All => self.b.and(x, y),
            ReduceOp::ArgMax | ReduceOp::ArgMin => return self.combine_arg(a, b, scheme),
        };
        Partial { value, index: None }
    }

    /// The better value; of equal ones, the lower index.
    fn combine_arg(&mut self, a: Partial, b: Partial, scheme: Scheme) -> Partial {
        let (i, j) = (
            a.index.expect("argmax has indices"),
            b.index.expect("argmax has indices"),
        );
        let greater = scheme.op == ReduceOp::ArgMax;
        let (better, same) = if scheme.ty.is_int() {
            let predicate = match (greater, scheme.signed) {
                (true, true) => "sgt",
                (true, false) => "ugt",
                (false, true) => "slt",
                (false, false) => "ult",
            };
            (
                self.b.icmp(predicate, b.value, a.value),
                self.b.icmp("eq", b.value, a.value),
            )
        } else {
            let predicate = if greater { "ogt" } else { "olt" };
            (
                self.b.fcmp(predicate, b.value, a.value),
                self.b.fcmp("oeq", b.value, a.value),
            )
        };
        let earlier = self.b.icmp("slt", j, i);
        let tie = self.b.and(same, earlier);
        let takes = self.b.or(better, tie);
        Partial {
            value: self.b.select(takes, b.value, a.value),
            index: Some(self.b.select(takes, j, i)),
        }
    }

    /// The partial result of the lane whose number differs by `mask`.
    fn shuffle(&mut self, partial: Partial, mask: u32) -> Partial {
        Partial {
            value: self.shuffle_value(partial.value, mask),
            index: partial.index.map(|i| self.shuffle_value(i, mask)),
        }
    }

    fn shuffle_value(&mut self, value: Val, mask: u32) -> Val {
        match value.ty.bits() {
            64 => {
                let whole = self.b.bitcast(value, I64);
                let low = self.b.resize(whole, I32, false);
                let high = self.b.lshr(whole, 32);
                let high = self.b.resize(high, I32, false);
                let [low, high] = [low, high].map(|v| {
                    let moved = self.shuffle_value(v, mask);
                    self.b.cast("zext", moved, I64)
                });
                let up = self.b.shl(high, 32);
                let whole = self.b.or(up, low);
                self.b.bitcast(whole, value.ty)
            }
            _ => {
                let name = match value.ty {
                    F32 => "llvm.nvvm.shfl.sync.bfly.f32",
                    _ => "llvm.nvvm.shfl.sync.bfly.i32",
                };
                let args = [Val::int(-1, I32), value, Val::i32(mask), Val::i32(31)];
                self.b.call(Some(value.ty), name, &args, Effect::Convergent)
            }
        }
    }

    /// The thread's number, only the bits in `bits`, moved together from the low end.
    pub(super) fn gather_bits(&mut self, bits: &[u32]) -> Val {
        let mut sum = Val::i32(0);
        let mut i = 0;
        while i < bits.len() {
            let mut run = 1;
            while i + run < bits.len() && bits[i + run] == bits[i] + run as u32 {
                run += 1;
            }
            let mask = ((1u64 << run) - 1) << bits[i];
            let piece = self.b.and(self.thread, Val::i32(mask as u32));
            let piece = match bits[i].checked_sub(i as u32) {
                Some(down) => self.b.lshr(piece, down),
                None => self.b.shl(piece, i as u32 - bits[i]),
            };
            sum = self.b.or(sum, piece);
            i += run;
        }
        sum
    }

    fn over_warps(
        &mut self,
        partials: &mut [Partial],
        layout: &Layout,
        axis: Option<u32>,
        buffer: &ReduceBuffer,
        start: u32,
        scheme: Scheme,
    ) -> Result<(), Diagnostic> {
        // Slots by result, lane, then warp, the warps that are combined being neighbours.
        let count = 1u32 << buffer.warp_bits.len();
        let warps = count << buffer.other_warp_bits.len();
        let lanes = 1u32 << buffer.lane_bits.len();
        let lane = self.gather_bits(&buffer.lane_bits);
        let in_thread = |bits: &[u32]| bits.iter().map(|b| b + 5).collect::<Vec<_>>();
        let own = self.gather_bits(&in_thread(&buffer.warp_bits));
        let others = self.gather_bits(&in_thread(&buffer.other_warp_bits));
        let first = self.b.mul(others, Val::i32(count));
        let row = self.b.mul(lane, Val::i32(warps));
        let row = self.b.add(row, first);
        let row = self.b.mul(row, Val::i32(buffer.slot));
        let row = self.b.add(row, Val::i32(start));
        let distance = self.b.mul(own, Val::i32(buffer.slot));
        let mine = self.b.add(row, distance);
        let (row, mine) = (self.shared_pointer(row), self.shared_pointer(mine));

        // Lanes that hold the same sum: the first of them writes.
        let idle = layout
            .lane
            .iter()
            .enumerate()
            .filter(|(i, _)| !buffer.lane_bits.contains(&(*i as u32)))
            .fold(0u32, |mask, (i, _)| mask | 1 << i);
        debug_assert!(axis.is_some() || idle == 31);
        let writes = if idle == 0 {
            Val::bool(true)
        } else {
            let bits = self.b.and(self.thread, Val::i32(idle));
            self.b.icmp("eq", bits, Val::i32(0))
        };

        let per_result = (lanes * warps * buffer.slot) as i64;
        self.claim_shared(start, buffer.bytes)?;
        for (i, partial) in partials.iter().enumerate() {
            let pointer = self.b.offset(mine, Val::i64(i as i64 * per_result));
            let words = self.words_of(partial.value);
            self.store_shared(pointer, &words, 4 * words.len() as u32, writes);
            if let Some(index) = partial.index {
                let pointer = self.b.offset(pointer, Val::i64(8));
                self.store_shared(pointer, &[index], 4, writes);
            }
        }
        self.barrier()?;
        for (i, partial) in partials.iter_mut().enumerate() {
            let base = self.b.offset(row, Val::i64(i as i64 * per_result));
            let mut list = Vec::new();
            if buffer.slot == 4 {
                // Up to four slots with one access.
                let per = count.min(4);
                for k in (0..count).step_by(per as usize) {
                    let pointer = self.b.offset(base, Val::i64(4 * k as i64));
                    for word in self.load_shared(pointer, 4 * per) {
                        list.push(Partial {
                            value: self.b.bitcast(word, scheme.ty),
                            index: None,
                        });
                    }
                }
            } else {
                for k in 0..count {
                    let at = (k * buffer.slot) as i64;
                    let pointer = self.b.offset(base, Val::i64(at));
                    let words = self.load_shared(pointer, scheme.ty.bits() / 8);
                    let value = self.value_of(&words, scheme.ty);
                    let index = scheme.is_arg().then(|| {
                        let pointer = self.b.offset(base, Val::i64(at + 8));
                        self.load_shared(pointer, 4)[0]
                    });
                    list.push(Partial { value, index });
                }
            }
            let mut all = list[0];
            for &other in &list[1..] {
                all = self.combine(all, other, scheme);
            }
            *partial = all;
        }
        self.note_shared_read(start, buffer.bytes);
        Ok(())
    }

    pub(super) fn words_of(&mut self, value: Val) -> Vec<Val> {
        let elem = if value.ty.bits() == 64 {
            DType::I64
        } else {
            DType::I32
        };
        self.pack(&[value], elem)
    }

    pub(super) fn value_of(&mut self, words: &[Val], ty: Ty) -> Val {
        let elem = if ty.bits() == 64 {
            DType::I64
        } else {
            DType::I32
        };
        let value = self.unpack(words, elem, 1)[0];
        self.b.bitcast(value, ty)
    }

    pub(super) fn finish_partial(
        &mut self,
        partial: Partial,
        elem: DType,
        to: DType,
        scheme: Scheme,
    ) -> Result<Val, Diagnostic> {
        if let Some(index) = partial.index {
            // Nothing but NaN: the first.
            let none = self.b.icmp("eq", index, Val::i32(i32::MAX as u32));
            let index = self.b.select(none, Val::i32(0), index);
            return Ok(self.cast_all(&[index], DType::I32, to)?[0]);
        }
        let kept = match (scheme.ty, scheme.signed) {
            (F64, _) => DType::F64,
            (F32, _) => DType::F32,
            (I64, true) => DType::I64,
            (I64, false) => DType::U64,
            (_, true) => DType::I32,
            (_, false) => DType::U32,
        };
        if elem == DType::Bool && to == DType::Bool {
            let value = self.b.icmp("ne", partial.value, Val::i32(0));
            debug_assert_eq!(value.ty, I1);
            return Ok(value);
        }
        Ok(self.cast_all(&[partial.value], kept, to)?[0])
    }
}
