//! Loads and stores of views: addresses, bounds, and the inline PTX of one access.
//!
//! An address is a uniform 64-bit part, a part that the thread gives, and a constant for each register. Bounds become
//! one 32-bit number a dimension, compared with the register's constant; what is proven costs nothing.

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use tesserine_set::{DType, Formula, FormulaOp, Term};

use super::{
    builder::{Effect, F32, I1, I8, I16, I32, I64, Kind, Place, Val},
    lower::{Lower, register_type, view_parameter},
    ptx_table::{self, words},
};
use crate::{
    diagnostics::Diagnostic,
    ir::{
        Op, ValueId,
        role::OpKind,
        tile::{Cache, Index},
    },
    layout::Layout,
    target::legality::Instruction,
};

/// How the elements of one tile lie in a view.
pub struct Plan {
    /// Where the thread's first element lies; of packed elements, where the view begins.
    base: Val,
    /// Of packed elements: the number of the thread's first one, counted from there.
    packed: Option<Val>,
    /// Bits of an element in memory.
    pub bits: u32,
    dims: Vec<Dim>,
    /// The whole access happens only if it holds.
    condition: Val,
    pointers: HashMap<Vec<u32>, Val>,
    /// By the constant parts of a coordinate that strides scale: the distance of an element, in elements.
    distances: HashMap<Vec<u32>, Val>,
    conditions: HashMap<(usize, u32), Val>,
}

/// One dimension of the tile.
struct Dim {
    len: u32,
    /// In elements.
    stride: Val,
    /// Registers whose constant is less than this are inside; `None` if all are.
    above: Option<Val>,
    /// Registers whose constant is at least this are inside; `None` if all are.
    below: Option<Val>,
    /// The bound `above` only tells padding from the tile.
    padding_only: bool,
    /// The largest coordinate that a thread gives by itself.
    reach: u32,
    /// The dimensions of the view that index tiles choose elements of, if it is such.
    gathered: Vec<Gathered>,
}

/// A dimension of a view that an index tile chooses elements of.
struct Gathered {
    /// By coordinate of register: the element.
    at: HashMap<u32, Val>,
    stride: Val,
    extent: Val,
}

/// How far along a dimension of its tile a loop has come: what is planned in it is of the thread's first coordinate and `by` more.
#[derive(Clone, Copy)]
pub struct Along {
    pub dim: usize,
    /// A multiple of `step`, which is a power of two.
    pub by: Val,
    pub step: u32,
    /// How many multiples of `step` there are.
    pub steps: u32,
    /// How many of them a pass takes.
    pub together: u32,
}

/// When an access happens.
#[derive(Clone, Copy, PartialEq)]
pub enum When {
    Always,
    Never,
    If(Val),
}

impl Lower<'_> {
    /// Plans accesses to a slice of a view, which happen where `condition` holds.
    pub fn plan(
        &mut self,
        view: ValueId,
        indices: &[Index],
        operands: &[ValueId],
        layout: Option<&Layout>,
        condition: Val,
    ) -> Result<Plan, Diagnostic> {
        self.plan_along(view, indices, operands, layout, condition, None)
    }

    /// As [`plan`](Self::plan), in a loop along a dimension of the tile.
    pub fn plan_along(
        &mut self,
        view: ValueId,
        indices: &[Index],
        operands: &[ValueId],
        layout: Option<&Layout>,
        mut condition: Val,
        along: Option<Along>,
    ) -> Result<Plan, Diagnostic> {
        let param = view_parameter(self.body, view);
        let bits = self.elem(view).bits();
        let coordinates = layout.map(|l| self.coordinates_along(l, along));

        let mut uniform = Val::i64(0);
        let mut own = Val::i64(0);
        let mut dims: Vec<Dim> = Vec::new();
        let mut operands = operands.iter().copied();
        for (d, index) in indices.iter().enumerate() {
            let last = d + 1 == indices.len();
            let stride = self.seen_stride(view, d as u32);
            let extent = &self.seen_extent(view, d, last);
            match *index {
                Index::Gather { len, joined } => {
                    let tile = operands.next().expect("indices have their operands");
                    let own = self.layout(tile).expect("index tiles have layouts");
                    let mut found = BTreeMap::new();
                    for (register, value) in self.get(tile).iter().enumerate() {
                        let coordinate = own.coordinate(register as u32, 0, 0)[0];
                        found.entry(coordinate).or_insert(*value);
                    }
                    let dim = dims.len() - usize::from(joined);
                    if let Some(along) = along.filter(|a| a.dim == dim) {
                        found = self.further_along(&found, along);
                    }
                    let mut at = HashMap::new();
                    for (coordinate, value) in found {
                        let wide = self.b.resize(value, I64, true);
                        at.insert(coordinate, wide);
                    }
                    let gathered = Gathered {
                        at,
                        stride,
                        extent: self.formula(extent),
                    };
                    match dims.last_mut() {
                        Some(dim) if joined => dim.gathered.push(gathered),
                        _ => {
                            let at = dims.len();
                            let layout = layout.expect("index tiles give a tile");
                            let base = coordinates.as_ref().expect("index tiles give a tile")[at];
                            let padded = layout.padded()[at] > len;
                            dims.push(Dim {
                                len,
                                stride: Val::i64(0),
                                above: padded.then(|| self.b.sub(Val::i32(len), base)),
                                below: None,
                                padding_only: true,
                                reach: Lower::reach_along(layout, at, along),
                                gathered: vec![gathered],
                            });
                        }
                    }
                }
                Index::Scalar => {
                    let at = operands.next().expect("indices have their operands");
                    let value = self.scalar(at);
                    if !self.is_nonnegative(at, 8) {
                        let inside = self.b.icmp("sge", value, Val::i64(0));
                        condition = self.b.and(condition, inside);
                    }
                    if !self.is_below(at, extent) {
                        let extent = self.formula(extent);
                        let inside = self.b.icmp("slt", value, extent);
                        condition = self.b.and(condition, inside);
                    }
                    let part = self.b.mul(value, stride);
                    uniform = self.b.add(uniform, part);
                }
                Index::Range { len, .. } | Index::Whole { len } => {
                    let at = dims.len();
                    let layout = layout.expect("ranges give a tile");
                    let base = coordinates.as_ref().expect("ranges give a tile")[at];
                    let reach = Lower::reach_along(layout, at, along);
                    let padded = layout.padded()[at] > len;
                    let above;
                    let mut below = None;
                    let mut padding_only = false;
                    if let Index::Range {
                        from: lower, until, ..
                    } = *index
                    {
                        let start = operands.next().expect("indices have their operands");
                        let from = self.scalar(start);
                        let lower = if lower {
                            let lower = operands.next().expect("indices have their operands");
                            let lower = self.scalar(lower);
                            Some(self.b.intrinsic("llvm.smax", &[lower, Val::i64(0)]))
                        } else {
                            None
                        };
                        let limit = if until {
                            operands.next().map(|v| self.scalar(v))
                        } else {
                            None
                        };
                        let mut end = self.formula(extent);
                        if let Some(limit) = limit {
                            end = self.b.intrinsic("llvm.smin", &[end, limit]);
                        }
                        // Of `len` elements from `from` on, those before `end`.
                        let fits = match (from.as_int(), end.as_int()) {
                            (Some(f), Some(e)) => f.checked_add(len as i64).is_some_and(|t| t <= e),
                            _ => false,
                        };
                        if fits {
                            padding_only = true;
                            above = padded.then_some(Val::i32(len));
                        } else {
                            let count = self.b.sub(end, from);
                            let count = self
                                .b
                                .intrinsic("llvm.smin", &[count, Val::i64(len as i64)]);
                            let count = self.b.intrinsic("llvm.smax", &[count, Val::i64(0)]);
                            let count = self.b.resize(count, I32, true);
                            above = Some(count);
                        }
                        if lower.is_some() || !self.is_nonnegative(start, 8) {
                            let skip = self.b.sub(lower.unwrap_or(Val::i64(0)), from);
                            let skip = self.b.intrinsic("llvm.smax", &[skip, Val::i64(0)]);
                            let skip = self.b.intrinsic("llvm.smin", &[skip, Val::i64(len as i64)]);
                            let skip = self.b.resize(skip, I32, true);
                            below = Some(self.b.sub(skip, base));
                        }
                        let part = self.b.mul(from, stride);
                        uniform = self.b.add(uniform, part);
                    } else {
                        padding_only = true;
                        above = padded.then_some(Val::i32(len));
                    }
                    let scaled = if stride.as_int() == Some(1) {
                        self.b.cast("zext", base, I64)
                    } else {
                        let wide = self.b.cast("zext", base, I64);
                        self.b.mul(wide, stride)
                    };
                    own = self.b.add(own, scaled);
                    dims.push(Dim {
                        len,
                        stride,
                        above,
                        below,
                        padding_only,
                        reach,
                        gathered: Vec::new(),
                    });
                }
            }
        }
        // A condition on the whole access rides on a bound where there is one.
        for (at, dim) in dims.iter_mut().enumerate() {
            if let (Some(mut above), true) = (dim.above, dim.gathered.is_empty()) {
                if !dim.padding_only {
                    above = self.b.select(condition, above, Val::i32(0));
                    condition = Val::bool(true);
                }
                let base = coordinates.as_ref().expect("ranges give a tile")[at];
                dim.above = Some(self.b.sub(above, base));
            }
        }
        let start = self.pointer(param);
        let (base, packed) = if bits < 8 {
            (start, Some(self.b.add(uniform, own)))
        } else {
            let size = Val::i64(i64::from(bits / 8));
            let bytes = self.b.mul(uniform, size);
            let base = self.b.offset(start, bytes);
            let bytes = self.b.mul(own, size);
            (self.b.offset(base, bytes), None)
        };
        Ok(Plan {
            base,
            packed,
            bits,
            dims,
            condition,
            pointers: HashMap::new(),
            distances: HashMap::new(),
            conditions: HashMap::new(),
        })
    }

    /// The part of each coordinate that the thread gives, and how far along a loop has come.
    pub fn coordinates_along(&mut self, layout: &Layout, along: Option<Along>) -> Rc<[Val]> {
        let own = self.thread_coordinates(layout);
        let Some(along) = along else {
            return own;
        };
        let mut all = own.to_vec();
        all[along.dim] = self.b.add(all[along.dim], along.by);
        all.into()
    }

    /// The largest coordinate along `dim` that a thread gives with what a loop adds.
    fn reach_along(layout: &Layout, dim: usize, along: Option<Along>) -> u32 {
        let reach = Lower::thread_reach(layout, dim);
        match along {
            Some(a) if a.dim == dim => reach + (a.steps - a.together) * a.step,
            _ => reach,
        }
    }

    /// Of what registers hold by coordinates along the loop's dimension: what those of the pass hold.
    fn further_along(&mut self, of: &BTreeMap<u32, Val>, along: Along) -> BTreeMap<u32, Val> {
        let mut found = BTreeMap::new();
        for first in 0..along.together {
            let passes = (first..along.steps).step_by(along.together as usize);
            let mut values: Vec<Val> = passes
                .filter_map(|p| of.get(&(p * along.step)).copied())
                .collect();
            let mut bit = along.step * along.together;
            while values.len() > 1 {
                let odd = self.b.and(along.by, Val::i32(bit));
                let odd = self.b.icmp("ne", odd, Val::i32(0));
                values = values
                    .chunks(2)
                    .map(|pair| self.b.select(odd, pair[pair.len() - 1], pair[0]))
                    .collect();
                bit *= 2;
            }
            found.extend(values.first().map(|&value| (first * along.step, value)));
        }
        found
    }

    /// The stride of a dimension of a view, in the elements that it is seen with.
    fn seen_stride(&mut self, view: ValueId, dim: u32) -> Val {
        let param = view_parameter(self.body, view);
        let stride = self.stride(param, dim);
        let (own, seen) = (self.view(param).dtype.bits(), self.elem(view).bits());
        if own == seen || stride.as_int() == Some(1) {
            return stride;
        }
        let place = self.b.go_to(Place::Prologue);
        let bits = self.b.mul(stride, Val::i64(i64::from(own)));
        let stride = self.b.ashr(bits, seen.trailing_zeros());
        self.b.go_to(place);
        stride
    }

    /// The extent of a dimension of a view, in the elements that it is seen with, which scale the last one.
    fn seen_extent(&self, view: ValueId, dim: usize, last: bool) -> Formula {
        let parameter = self.view(view_parameter(self.body, view));
        let extent = parameter.extents[dim].clone();
        let (own, seen) = (parameter.dtype.bits(), self.elem(view).bits());
        if !last || own == seen {
            return extent;
        }
        let mut terms = extent.0;
        terms.extend([
            Term::Int(i64::from(own)),
            Term::Op(FormulaOp::Mul),
            Term::Int(i64::from(seen)),
            Term::Op(FormulaOp::Div),
        ]);
        Formula(terms)
    }

    /// What of the register's coordinate is not constant in memory, how far from the thread's first element that is, in
    /// elements, and the constant distance from there.
    fn distance(&mut self, plan: &mut Plan, at: &[u32]) -> (Vec<u32>, Val, i64) {
        let mut constant = 0;
        let mut variable = Vec::new();
        for (dim, &c) in plan.dims.iter().zip(at) {
            match dim.stride.as_int() {
                Some(stride) if dim.gathered.is_empty() => {
                    constant += i64::from(c) * stride;
                    variable.push(0);
                }
                _ => variable.push(c),
            }
        }
        if let Some(&distance) = plan.distances.get(&variable) {
            return (variable, distance, constant);
        }
        let mut distance = Val::i64(0);
        for (dim, &c) in plan.dims.iter().zip(&variable) {
            let part = self.b.mul(dim.stride, Val::i64(i64::from(c)));
            distance = self.b.add(distance, part);
            for gathered in &dim.gathered {
                let index = gathered.at.get(&c).copied().unwrap_or(Val::i64(0));
                let part = self.b.mul(gathered.stride, index);
                distance = self.b.add(distance, part);
            }
        }
        plan.distances.insert(variable.clone(), distance);
        (variable, distance, constant)
    }

    /// The pointer and the constant distance from it, in bytes, of the element at the register's coordinate. Of packed
    /// elements it must be the first of its byte.
    pub fn address(&mut self, plan: &mut Plan, at: &[u32]) -> (Val, i64) {
        let (variable, distance, constant) = self.distance(plan, at);
        let constant = constant * i64::from(plan.bits) / 8;
        if let Some(&pointer) = plan.pointers.get(&variable) {
            return (pointer, constant);
        }
        let bytes = match plan.packed {
            Some(first) => {
                let element = self.b.add(first, distance);
                let bits = self.b.mul(element, Val::i64(i64::from(plan.bits)));
                self.b.ashr(bits, 3)
            }
            None => {
                let size = Val::i64(i64::from(plan.bits / 8));
                self.b.mul(distance, size)
            }
        };
        let pointer = self.b.offset(plan.base, bytes);
        plan.pointers.insert(variable, pointer);
        (pointer, constant)
    }

    /// Of a packed element: the pointer to its byte, and the bit in it where it begins.
    fn bit_address(&mut self, plan: &mut Plan, at: &[u32]) -> (Val, Val) {
        let (_, distance, constant) = self.distance(plan, at);
        let first = plan.packed.unwrap_or(Val::i64(0));
        let element = self.b.add(first, distance);
        let element = self.b.add(element, Val::i64(constant));
        let bits = self.b.mul(element, Val::i64(i64::from(plan.bits)));
        let bytes = self.b.ashr(bits, 3);
        let pointer = self.b.offset(plan.base, bytes);
        let low = self.b.resize(bits, I32, false);
        let bit = self.b.and(low, Val::i32(7));
        (pointer, bit)
    }

    /// Whether the element at the register's coordinate is inside.
    pub fn when(&mut self, plan: &mut Plan, at: &[u32]) -> When {
        let mut all = plan.condition;
        for (d, &c) in at.iter().enumerate() {
            let dim = &plan.dims[d];
            if c >= dim.len {
                return When::Never;
            }
            let (above, below) = (dim.above, dim.below);
            // A bound that only padding makes does not concern what lies before it.
            let no_bound = dim.padding_only && below.is_none() && c + dim.reach < dim.len;
            if no_bound && dim.gathered.is_empty() {
                continue;
            }
            let condition = match plan.conditions.get(&(d, c)) {
                Some(&condition) => condition,
                None => {
                    let mut inside = Val::bool(true);
                    if let (Some(above), false) = (above, no_bound) {
                        inside = self.b.icmp("sgt", above, Val::i32(c));
                    }
                    if let Some(below) = below {
                        let after = self.b.icmp("sle", below, Val::i32(c));
                        inside = self.b.and(inside, after);
                    }
                    for gathered in &dim.gathered {
                        let index = gathered.at.get(&c).copied().unwrap_or(Val::i64(-1));
                        let within = self.b.icmp("ult", index, gathered.extent);
                        inside = self.b.and(inside, within);
                    }
                    plan.conditions.insert((d, c), inside);
                    inside
                }
            };
            all = self.b.and(all, condition);
        }
        if all.is_true() {
            When::Always
        } else if all.is_false() {
            When::Never
        } else {
            When::If(all)
        }
    }

    pub fn load(
        &mut self,
        op: &Op<OpKind>,
        indices: &[Index],
        cache: Cache,
        width: u32,
    ) -> Result<(), Diagnostic> {
        let result = op.results[0];
        let layout = self.layout(result);
        let (&pad, rest) = op.operands.split_last().expect("loads have padding");
        let view = op.operands[0];
        let mut plan = self.plan(view, indices, &rest[1..], layout, Val::bool(true))?;
        let elem = self.elem(view);
        let ty = register_type(elem);
        let pad = self.scalar(pad);
        let param = view_parameter(self.body, view);
        // The kernel before may still write when this one begins.
        let constant = self.view(param).access == tesserine_set::Access::Read
            && !self.kernel.header.schedule.overlap;
        if cache != Cache::Normal {
            self.need(Instruction::EvictionPriority)?;
        }

        let Some(layout) = layout else {
            let when = self.when(&mut plan, &[]);
            let value = if elem.is_packed() {
                vec![self.load_bits(&mut plan, &[], elem, when, pad, constant)]
            } else {
                self.load_words(plan.base, 0, elem, 1, when, pad, constant, cache)
            };
            self.set(result, value);
            return Ok(());
        };
        let single = width * elem.bits() < 8;
        let width = if single { 1 } else { width };
        let mut regs = vec![Val::poison(ty); layout.registers() as usize];
        let mut seen: HashMap<Vec<u32>, usize> = HashMap::new();
        for first in (0..regs.len()).step_by(width as usize) {
            let at = layout.coordinate(first as u32, 0, 0);
            if let Some(&same) = seen.get(&at) {
                for i in 0..width as usize {
                    regs[first + i] = regs[same + i];
                }
                continue;
            }
            let when = self.when(&mut plan, &at);
            let values = if single {
                vec![self.load_bits(&mut plan, &at, elem, when, pad, constant)]
            } else {
                let (pointer, offset) = self.address(&mut plan, &at);
                self.load_words(pointer, offset, elem, width, when, pad, constant, cache)
            };
            regs[first..first + width as usize].copy_from_slice(&values);
            seen.insert(at, first);
        }
        self.set(result, regs);
        Ok(())
    }

    /// One access of `width` elements.
    fn load_words(
        &mut self,
        pointer: Val,
        offset: i64,
        elem: DType,
        width: u32,
        when: When,
        pad: Val,
        constant: bool,
        cache: Cache,
    ) -> Vec<Val> {
        if when == When::Never {
            return vec![pad; width as usize];
        }
        let bytes = width * elem.bits() / 8;
        let shape = words(bytes);
        let words = if when == When::Always && cache == Cache::Normal {
            let pointer = self.b.offset(pointer, Val::i64(offset));
            let ty = match bytes {
                1 => I8,
                2 => I16,
                4 => I32,
                _ => I32.vector(shape.count),
            };
            let all = self.b.load(pointer, ty, bytes, constant);
            match bytes {
                1 | 2 => vec![self.b.resize(all, I32, false)],
                _ => (0..shape.count).map(|i| self.b.extract(all, i)).collect(),
            }
        } else {
            let mut args = vec![pointer];
            if let When::If(condition) = when {
                args.push(condition);
                let filled = self.pack_memory(&vec![pad; width as usize], elem);
                args.extend(filled);
            }
            let template =
                ptx_table::load(shape, offset, matches!(when, When::If(_)), constant, cache);
            let effect = if constant {
                Effect::Pure
            } else {
                Effect::Memory
            };
            self.b.asm(
                &template.text,
                &template.constraints,
                &vec![I32; shape.count],
                &args,
                effect,
            )
        };
        self.unpack_memory(&words, elem, width)
    }

    /// The register of a zero.
    pub fn zero(&self, elem: DType) -> Val {
        match register_type(elem) {
            ty if ty.is_int() => Val::int(0, ty),
            ty => Val::float(0.0, ty),
        }
    }

    /// One access of `width` elements of memory that no one changes, which stays where it stands.
    pub fn load_in_order(
        &mut self,
        pointer: Val,
        offset: i64,
        elem: DType,
        width: u32,
        when: When,
        pad: Val,
    ) -> Vec<Val> {
        if when == When::Never {
            return vec![pad; width as usize];
        }
        let shape = words(width * elem.bits() / 8);
        let mut args = vec![pointer];
        if let When::If(condition) = when {
            args.push(condition);
            args.extend(vec![Val::i32(0); shape.count]);
        }
        let predicated = matches!(when, When::If(_));
        let template = ptx_table::load(shape, offset, predicated, true, Cache::Normal);
        let words = self.b.asm(
            &template.text,
            &(template.constraints + ",~{memory}"),
            &vec![I32; shape.count],
            &args,
            Effect::Memory,
        );
        self.unpack(&words, elem, width)
    }

    /// One packed element.
    fn load_bits(
        &mut self,
        plan: &mut Plan,
        at: &[u32],
        elem: DType,
        when: When,
        pad: Val,
        constant: bool,
    ) -> Val {
        if when == When::Never {
            return pad;
        }
        let (pointer, bit) = self.bit_address(plan, at);
        let zero = Val::int(0, I8);
        let cache = Cache::Normal;
        let byte = self.load_words(pointer, 0, DType::U8, 1, when, zero, constant, cache)[0];
        let word = self.b.resize(byte, I32, false);
        let word = self.b.binary("lshr", word, bit);
        let value = self.unpack_memory(&[word], elem, 1)[0];
        match when {
            When::If(condition) => self.b.select(condition, value, pad),
            _ => value,
        }
    }

    pub fn store(
        &mut self,
        op: &Op<OpKind>,
        indices: &[Index],
        cache: Cache,
        width: u32,
    ) -> Result<(), Diagnostic> {
        let (&value, rest) = op.operands.split_last().expect("stores have a value");
        let layout = self.layout(value);
        let view = op.operands[0];
        let mut plan = self.plan(view, indices, &rest[1..], layout, Val::bool(true))?;
        let elem = self.elem(view);
        let regs = self.get(value);
        if cache != Cache::Normal {
            self.need(Instruction::EvictionPriority)?;
        }
        let owner = self.owner(layout);
        plan.condition = self.b.and(plan.condition, owner);

        let count = layout.map_or(1, |l| l.registers() as usize);
        let mut seen: Vec<Vec<u32>> = Vec::new();
        for first in (0..count).step_by(width as usize) {
            let at = layout.map_or(Vec::new(), |l| l.coordinate(first as u32, 0, 0));
            if seen.contains(&at) {
                continue;
            }
            let when = self.when(&mut plan, &at);
            if when == When::Never {
                continue;
            }
            let (pointer, offset) = self.address(&mut plan, &at);
            let words = self.pack_memory(&regs[first..first + width as usize], elem);
            let shape = ptx_table::words(width * elem.bits() / 8);
            let predicated = matches!(when, When::If(_));
            let template = ptx_table::store(shape, offset, predicated, cache);
            let mut args = vec![pointer];
            args.extend(words);
            if let When::If(condition) = when {
                args.push(condition);
            }
            self.b.asm(
                &template.text,
                &template.constraints,
                &[],
                &args,
                Effect::Memory,
            );
            seen.push(at);
        }
        Ok(())
    }

    /// As [`Lower::pack`], for memory, where narrow elements are packed.
    fn pack_memory(&mut self, values: &[Val], elem: DType) -> Vec<Val> {
        if !elem.is_packed() {
            return self.pack(values, elem);
        }
        let bits = elem.bits();
        values
            .chunks((32 / bits) as usize)
            .map(|chunk| {
                let mut word = Val::i32(0);
                for (i, &value) in (0..).zip(chunk) {
                    let wide = self.b.resize(value, I32, false);
                    let own = self.b.and(wide, Val::i32((1 << bits) - 1));
                    let up = self.b.shl(own, i * bits);
                    word = self.b.or(word, up);
                }
                word
            })
            .collect()
    }

    /// The opposite of [`Lower::pack_memory`].
    fn unpack_memory(&mut self, words: &[Val], elem: DType, count: u32) -> Vec<Val> {
        if !elem.is_packed() {
            return self.unpack(words, elem, count);
        }
        let (bits, ty) = (elem.bits(), register_type(elem));
        let per = 32 / bits;
        (0..count)
            .map(|i| {
                let word = words[(i / per) as usize];
                let place = i % per * bits;
                let part = if elem.is_signed() && elem.is_int() {
                    let up = self.b.shl(word, 32 - bits - place);
                    self.b.ashr(up, 32 - bits)
                } else {
                    let down = self.b.lshr(word, place);
                    self.b.and(down, Val::i32((1 << bits) - 1))
                };
                self.b.resize(part, ty, false)
            })
            .collect()
    }

    /// Registers as 32-bit words in memory order; a word that is not full has zeros above.
    pub fn pack(&mut self, values: &[Val], elem: DType) -> Vec<Val> {
        let bits = elem.bits().max(8);
        match bits {
            64 => values
                .iter()
                .flat_map(|&v| {
                    let whole = self.b.bitcast(v, I64);
                    let low = self.b.resize(whole, I32, false);
                    let high = self.b.lshr(whole, 32);
                    [low, self.b.resize(high, I32, false)]
                })
                .collect(),
            32 => values.iter().map(|&v| self.b.bitcast(v, I32)).collect(),
            _ => values
                .chunks((32 / bits) as usize)
                .map(|chunk| self.pack_word(chunk, elem))
                .collect(),
        }
    }

    /// The word that `chunk` are all parts of, in order.
    fn whole_word(&self, chunk: &[Val]) -> Option<Val> {
        let part = |v: &Val| match v.kind {
            Kind::Register(register) => self.parts.get(&register).copied(),
            _ => None,
        };
        let [low, high] = chunk else { return None };
        let ((word, 0), (other, 1)) = (part(low)?, part(high)?) else {
            return None;
        };
        (word == other).then_some(word)
    }

    fn pack_word(&mut self, chunk: &[Val], elem: DType) -> Val {
        if let Some(word) = self.whole_word(chunk) {
            return word;
        }
        // The same constant in all places, as padding is, is a constant.
        let uniform = chunk.iter().all(|v| *v == chunk[0]);
        if uniform && let Some(bits) = constant_bits(chunk[0]) {
            let mut word = 0u32;
            for i in 0..chunk.len() as u32 {
                word |= (bits as u32) << (i * elem.bits());
            }
            return Val::int(word as i32 as i64, I32);
        }
        let chunk: Vec<Val> = chunk
            .iter()
            .map(|&v| match v.ty {
                I1 => self.b.cast("zext", v, I8),
                _ => v,
            })
            .collect();
        let width = chunk[0].ty.bits();
        if chunk.len() as u32 * width == 32 {
            let all = self.b.vector(&chunk);
            return self.b.bitcast(all, I32);
        }
        let mut word = Val::i32(0);
        for (i, &v) in chunk.iter().enumerate() {
            let bits = self.b.bitcast(v, v.ty.as_int());
            let wide = self.b.cast("zext", bits, I32);
            let up = self.b.shl(wide, i as u32 * width);
            word = self.b.or(word, up);
        }
        word
    }

    /// The opposite of [`Lower::pack`].
    pub fn unpack(&mut self, words: &[Val], elem: DType, count: u32) -> Vec<Val> {
        let ty = register_type(elem);
        let bits = elem.bits().max(8);
        (0..count)
            .map(|i| match bits {
                64 => {
                    let low = self.b.cast("zext", words[2 * i as usize], I64);
                    let high = self.b.cast("zext", words[2 * i as usize + 1], I64);
                    let up = self.b.shl(high, 32);
                    let whole = self.b.or(up, low);
                    self.b.bitcast(whole, ty)
                }
                32 => self.b.bitcast(words[i as usize], ty),
                _ => {
                    let per = 32 / bits;
                    let word = words[(i / per) as usize];
                    let part = self.b.lshr(word, i % per * bits);
                    if ty == I1 {
                        let byte = self.b.resize(part, I8, false);
                        return self.b.icmp("ne", byte, Val::int(0, I8));
                    }
                    let part = self.b.resize(part, ty.as_int(), false);
                    let part = self.b.bitcast(part, ty);
                    if let (16, Kind::Register(register)) = (bits, part.kind) {
                        self.parts.insert(register, (word, i % per));
                    }
                    part
                }
            })
            .collect()
    }
}

/// The bits of a constant of 16 bits or fewer.
fn constant_bits(value: Val) -> Option<u64> {
    let bits = match value.kind {
        Kind::Int(v) if value.ty == I1 => (v & 1) as u64,
        Kind::Int(v) => v as u64,
        Kind::Float(v) if value.ty == super::builder::F16 => {
            half::f16::from_f64(v).to_bits() as u64
        }
        Kind::Float(v) if value.ty == super::builder::BF16 => {
            half::bf16::from_f64(v).to_bits() as u64
        }
        _ => return None,
    };
    debug_assert_ne!(value.ty, F32);
    Some(bits & (u64::MAX >> (64 - value.ty.bits().max(8))))
}
