//! Folds constants, merges equal operations, removes what has no effect.
//!
//! Exact: a folded value is the one that the interpreter would compute, bit for bit; what depends on how a device rounds
//! (transcendental functions, narrow floats) stays. An operation on tiles that are broadcasts of scalars becomes a
//! broadcast of the scalar operation. Loads merge only from views that the kernel does not store to. Code that a loop
//! repeats stays in it: moving it is LLVM's business.

use std::{
    collections::{HashMap, HashSet},
    ops::{Add, Div, Mul, Sub},
};

use tesserine_set::{Access, DType};

use crate::ir::{
    OpId, RegionId, ValueDef, ValueId,
    tile::{BinaryOp, CompareOp, Constant, Kernel, OpKind, ReduceOp, TileBody, Type, UnaryOp},
};
use crate::span::Span;

pub fn run(kernel: &mut Kernel) {
    let mut simplify = Simplify {
        from: &kernel.body,
        to: TileBody::new(),
        map: HashMap::new(),
        scopes: vec![HashMap::new()],
        roles: !kernel.channels.is_empty(),
    };
    let root = simplify.to.root;
    simplify.region(kernel.body.root, root);
    kernel.body = live(&simplify.to);
}

struct Simplify<'a> {
    from: &'a TileBody,
    to: TileBody,
    /// From values of `from` to those of `to`.
    map: HashMap<ValueId, ValueId>,
    /// Operations of `to` without effects, by what they are, one map for each region around.
    scopes: Vec<HashMap<String, ValueId>>,
    /// The kernel is one of the role level.
    roles: bool,
}

impl Simplify<'_> {
    /// The operations of `region`, terminator included, into `into`.
    fn region(&mut self, region: RegionId, into: RegionId) {
        for &arg in &self.from.regions[region].args {
            let new = self.to.add_argument(into, self.from.ty(arg).clone());
            self.map.insert(arg, new);
        }
        for id in self.from.regions[region].ops.clone() {
            self.op(id, into);
        }
    }

    /// The operations of `region` but the terminator, whose operands are returned.
    fn inline(&mut self, region: RegionId, into: RegionId) -> Vec<ValueId> {
        let ops = self.from.regions[region].ops.clone();
        let Some((&last, ops)) = ops.split_last() else {
            return Vec::new();
        };
        ops.iter().for_each(|&id| self.op(id, into));
        self.operands(last)
    }

    fn operands(&self, id: OpId) -> Vec<ValueId> {
        self.from.ops[id]
            .operands
            .iter()
            .map(|v| self.map[v])
            .collect()
    }

    fn op(&mut self, id: OpId, into: RegionId) {
        let op = &self.from.ops[id];
        let operands = self.operands(id);
        match &op.kind {
            OpKind::If => {
                if let Some(Constant::Bool(cond)) = self.constant(operands[0]) {
                    let values = self.inline(op.regions[!cond as usize], into);
                    self.results(id, &values);
                    return;
                }
            }
            OpKind::For { .. } => {
                let bounds = [0, 1, 2].map(|i| self.int(operands[i]));
                if let [Some(lo), Some(hi), Some(step)] = bounds
                    && step > 0
                {
                    if lo >= hi {
                        self.results(id, &operands[3..]);
                        return;
                    }
                    if i128::from(lo) + i128::from(step) >= i128::from(hi) {
                        let args = &self.from.regions[op.regions[0]].args;
                        let entries = std::iter::once(operands[0]).chain(operands[3..].to_vec());
                        for (&arg, value) in args.iter().zip(entries) {
                            self.map.insert(arg, value);
                        }
                        let values = self.inline(op.regions[0], into);
                        self.results(id, &values);
                        return;
                    }
                }
            }
            _ => {}
        }
        if op.regions.is_empty() && op.results.len() == 1 {
            let ty = self.from.ty(op.results[0]).clone();
            let kind = match op.kind {
                OpKind::Constant(constant) => OpKind::Constant(constant.settled()),
                ref kind => kind.clone(),
            };
            let value = self.simple(kind, operands, ty, into, op.span);
            self.map.insert(op.results[0], value);
            return;
        }
        let regions = op
            .regions
            .iter()
            .map(|&inner| {
                let new = self.to.new_region();
                self.scopes.push(HashMap::new());
                self.region(inner, new);
                self.scopes.pop();
                new
            })
            .collect();
        let types = op
            .results
            .iter()
            .map(|&r| self.from.ty(r).clone())
            .collect();
        let new = self
            .to
            .append(into, op.kind.clone(), operands, types, regions, op.span);
        let values = self.to.ops[new].results.clone();
        self.results(id, &values);
    }

    fn results(&mut self, id: OpId, values: &[ValueId]) {
        for (&old, &new) in self.from.ops[id].results.iter().zip(values) {
            self.map.insert(old, new);
        }
    }

    /// A value equal to the operation's result: an operand, an earlier value, or a new operation's.
    fn simple(
        &mut self,
        kind: OpKind,
        operands: Vec<ValueId>,
        ty: Type,
        into: RegionId,
        span: Span,
    ) -> ValueId {
        if let Some(constant) = self.folded(&kind, &operands, &ty) {
            return self.emit(OpKind::Constant(constant), Vec::new(), ty, into, span);
        }
        if let Some(value) = self.same(&kind, &operands, &ty) {
            return value;
        }
        if let Some((kind, operands)) = self.shorter(&kind, &operands, &ty) {
            return self.simple(kind, operands, ty, into, span);
        }
        if let Some((kind, inner, ty_inner, factor)) = self.scaled(&kind, &operands, &ty) {
            let value = self.simple(kind, inner, ty_inner, into, span);
            let factor = self.simple(OpKind::Broadcast, vec![factor], ty.clone(), into, span);
            let mul = OpKind::Binary(BinaryOp::Mul);
            return self.simple(mul, vec![value, factor], ty, into, span);
        }
        if let Some((axis, value, factor)) = self.scaled_by(&kind, &operands) {
            return self.largest(axis, value, factor, ty, into, span);
        }
        if let Some((value, [a, b])) = self.scaled_twice(&kind, &operands) {
            let mul = OpKind::Binary(BinaryOp::Mul);
            let scalar = Type::Scalar(ty.elem());
            let factor = self.simple(mul.clone(), vec![a, b], scalar, into, span);
            let factor = self.simple(OpKind::Broadcast, vec![factor], ty.clone(), into, span);
            return self.simple(mul, vec![value, factor], ty, into, span);
        }
        if let Some(scalars) = self.scalars(&kind, &operands) {
            let scalar = Type::Scalar(ty.elem());
            let value = self.simple(kind, scalars, scalar, into, span);
            return self.simple(OpKind::Broadcast, vec![value], ty, into, span);
        }
        self.emit(kind, operands, ty, into, span)
    }

    fn emit(
        &mut self,
        kind: OpKind,
        operands: Vec<ValueId>,
        ty: Type,
        into: RegionId,
        span: Span,
    ) -> ValueId {
        let mergeable = match &kind {
            OpKind::Load { .. } => {
                matches!(self.to.ty(operands[0]), Type::View(v) if v.access == Access::Read)
            }
            OpKind::Atomic { .. } | OpKind::Arrive { .. } | OpKind::Role(_) => false,
            _ => true,
        };
        let key = format!("{kind:?} {operands:?} {ty:?}");
        if mergeable && let Some(&value) = self.scopes.iter().rev().find_map(|s| s.get(&key)) {
            return value;
        }
        let op = self
            .to
            .append(into, kind, operands, vec![ty], Vec::new(), span);
        let value = self.to.ops[op].results[0];
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(key, value);
        }
        value
    }

    fn def(&self, value: ValueId) -> Option<(&OpKind, &[ValueId])> {
        match self.to.values[value].def {
            ValueDef::Result { op, .. } => {
                let op = &self.to.ops[op];
                Some((&op.kind, &op.operands))
            }
            ValueDef::Argument { .. } => None,
        }
    }

    fn constant(&self, value: ValueId) -> Option<Constant> {
        match self.def(value)? {
            (&OpKind::Constant(constant), _) => Some(constant),
            _ => None,
        }
    }

    fn int(&self, value: ValueId) -> Option<i64> {
        match self.constant(value)? {
            Constant::Int(value, _) => Some(value),
            _ => None,
        }
    }

    /// The scalar that a tile is everywhere, or a scalar itself.
    fn scalar(&self, value: ValueId) -> Option<ValueId> {
        if let Type::Scalar(_) = self.to.ty(value) {
            return Some(value);
        }
        match self.def(value)? {
            (OpKind::Broadcast, operands) if self.to.ty(operands[0]).shape().is_empty() => {
                Some(operands[0])
            }
            _ => None,
        }
    }

    fn folded(&self, kind: &OpKind, operands: &[ValueId], ty: &Type) -> Option<Constant> {
        let Type::Scalar(elem) = *ty else {
            return None;
        };
        let values: Vec<Constant> = operands
            .iter()
            .map(|&v| self.constant(v))
            .collect::<Option<_>>()?;
        match (kind, &values[..]) {
            (OpKind::Unary(op), &[a]) => unary(*op, a),
            (OpKind::Binary(op), &[a, b]) => binary(*op, a, b),
            (OpKind::Compare(op), &[a, b]) => compare(*op, a, b).map(Constant::Bool),
            (OpKind::Select, &[Constant::Bool(c), a, b]) => Some(if c { a } else { b }),
            (OpKind::Cast, &[a]) => cast(a, elem),
            _ => None,
        }
    }

    /// An existing value that the result equals.
    fn same(&self, kind: &OpKind, operands: &[ValueId], ty: &Type) -> Option<ValueId> {
        let first = *operands.first()?;
        let scalar_constant = |v: ValueId| self.scalar(v).and_then(|s| self.constant(s));
        match kind {
            OpKind::Cast | OpKind::Bitcast | OpKind::Broadcast | OpKind::Reshape
                if self.to.ty(first) == ty =>
            {
                Some(first)
            }
            // There and back through a type that holds every value of the first.
            OpKind::Cast => match self.def(first)? {
                (OpKind::Cast, inner)
                    if self.to.ty(inner[0]) == ty && holds(self.to.ty(first).elem(), ty.elem()) =>
                {
                    Some(inner[0])
                }
                _ => None,
            },
            OpKind::Permute(perm) => perm
                .iter()
                .enumerate()
                .all(|(i, &p)| i as u32 == p)
                .then_some(first),
            OpKind::Slice(_) => (self.to.ty(first) == ty).then_some(first),
            OpKind::Select => match scalar_constant(first) {
                Some(Constant::Bool(true)) => Some(operands[1]),
                Some(Constant::Bool(false)) => Some(operands[2]),
                _ => (operands[1] == operands[2]).then_some(operands[1]),
            },
            OpKind::Binary(op) => {
                let (a, b) = (scalar_constant(first), scalar_constant(operands[1]));
                neutral(*op, a, b).map(|side| operands[side])
            }
            OpKind::Unary(UnaryOp::Neg) => match self.def(first)? {
                (OpKind::Unary(UnaryOp::Neg), inner) => Some(inner[0]),
                _ => None,
            },
            _ => None,
        }
    }

    /// The same from further up the chain, past operations that move nothing.
    fn shorter(
        &self,
        kind: &OpKind,
        operands: &[ValueId],
        ty: &Type,
    ) -> Option<(OpKind, Vec<ValueId>)> {
        let first = *operands.first()?;
        let (inner, from) = match kind {
            OpKind::Broadcast | OpKind::Reshape | OpKind::Permute(_) | OpKind::Slice(_) => {
                self.def(first)?
            }
            _ => return None,
        };
        match (kind, inner) {
            (OpKind::Broadcast, OpKind::Broadcast) => Some((OpKind::Broadcast, from.to_vec())),
            // A broadcast puts leading ones in front by itself.
            (OpKind::Broadcast, OpKind::Reshape) => {
                let (short, long) = (self.to.ty(from[0]).shape(), self.to.ty(first).shape());
                let lead = long.len().checked_sub(short.len())?;
                let pads = long[..lead].iter().all(|&d| d == 1) && &long[lead..] == short;
                pads.then(|| (OpKind::Broadcast, from.to_vec()))
            }
            (OpKind::Reshape, OpKind::Reshape) => Some((OpKind::Reshape, from.to_vec())),
            // Numbers in row-major order stay so.
            (OpKind::Reshape, OpKind::Iota) if !ty.shape().is_empty() => {
                Some((OpKind::Iota, Vec::new()))
            }
            (OpKind::Permute(outer), OpKind::Permute(inner)) => {
                let perm = outer.iter().map(|&p| inner[p as usize]).collect();
                Some((OpKind::Permute(perm), from.to_vec()))
            }
            // All elements are one scalar: no matter which are picked.
            (_, OpKind::Broadcast) if self.to.ty(from[0]).shape().is_empty() => {
                Some((OpKind::Broadcast, from.to_vec()))
            }
            _ => None,
        }
    }

    /// An operation that gives the same before all is multiplied by a positive constant: what is left out of a maximum, or the maximum itself.
    /// Rounding keeps the order, so the product of the largest is the largest product. What else is done to the products can then be
    /// contracted with the multiplication, and there is one for a row in place of one for an element. Role kernels alone, whose
    /// authors count the operations between two products.
    fn scaled(
        &self,
        kind: &OpKind,
        operands: &[ValueId],
        ty: &Type,
    ) -> Option<(OpKind, Vec<ValueId>, Type, ValueId)> {
        if !self.roles || !matches!(ty, Type::Tile(_)) || !ty.elem().is_float() {
            return None;
        }
        let of = match kind {
            OpKind::Reduce {
                op: ReduceOp::Max, ..
            } => 0,
            OpKind::Select => {
                let other = self.constant(self.scalar(operands[2])?)?;
                matches!(other, Constant::Float(v, _) if v == f64::NEG_INFINITY).then_some(1)?
            }
            _ => return None,
        };
        let (OpKind::Binary(BinaryOp::Mul), &[value, by]) = self.def(operands[of])? else {
            return None;
        };
        let factor = self.scalar(by)?;
        let Constant::Float(by, _) = self.constant(factor)? else {
            return None;
        };
        if !(by > 0.0 && by.is_finite()) || self.scalar(value).is_some() {
            return None;
        }
        let mut operands = operands.to_vec();
        operands[of] = value;
        Some((kind.clone(), operands, ty.clone(), factor))
    }

    /// A maximum of products by a scalar that is not known: what is multiplied, and the scalar. Role kernels alone, as above.
    fn scaled_by(
        &self,
        kind: &OpKind,
        operands: &[ValueId],
    ) -> Option<(Option<u32>, ValueId, ValueId)> {
        let &OpKind::Reduce {
            op: ReduceOp::Max,
            axis,
        } = kind
        else {
            return None;
        };
        let (OpKind::Binary(BinaryOp::Mul), &[value, by]) = self.def(operands[0])? else {
            return None;
        };
        let factor = self.scalar(by)?;
        let known = self.constant(factor).is_some() || self.scalar(value).is_some();
        let known = known || !self.roles || !self.to.ty(value).elem().is_float();
        (!known).then_some((axis, value, factor))
    }

    /// The maximum of `value` times `factor`: that of `value`, or where the factor turns the order its minimum, times `factor`.
    fn largest(
        &mut self,
        axis: Option<u32>,
        value: ValueId,
        factor: ValueId,
        ty: Type,
        into: RegionId,
        span: Span,
    ) -> ValueId {
        let elem = ty.elem();
        let zero = OpKind::Constant(Constant::Float(0.0, elem));
        let zero = self.simple(zero, Vec::new(), Type::Scalar(elem), into, span);
        let compare = OpKind::Compare(CompareOp::Gt);
        let bool = Type::Scalar(DType::Bool);
        let keeps = self.simple(compare, vec![factor, zero], bool, into, span);
        let mut regions = Vec::new();
        for op in [ReduceOp::Max, ReduceOp::Min] {
            let region = self.to.new_region();
            let reduce = OpKind::Reduce { op, axis };
            let types = vec![ty.clone()];
            let reduce = self
                .to
                .append(region, reduce, vec![value], types, Vec::new(), span);
            let found = self.to.ops[reduce].results.clone();
            self.to
                .append(region, OpKind::Yield, found, Vec::new(), Vec::new(), span);
            regions.push(region);
        }
        let types = vec![ty.clone()];
        let found = self
            .to
            .append(into, OpKind::If, vec![keeps], types, regions, span);
        let found = self.to.ops[found].results[0];
        let factor = self.simple(OpKind::Broadcast, vec![factor], ty.clone(), into, span);
        let mul = OpKind::Binary(BinaryOp::Mul);
        self.simple(mul, vec![found, factor], ty, into, span)
    }

    /// A tile that is multiplied by one scalar, then by another: the tile, and the scalars. Their product is taken first, as the language
    /// allows. Role kernels alone, as above.
    fn scaled_twice(&self, kind: &OpKind, operands: &[ValueId]) -> Option<(ValueId, [ValueId; 2])> {
        let (true, OpKind::Binary(BinaryOp::Mul), &[inner, by]) = (self.roles, kind, operands)
        else {
            return None;
        };
        let b = self.scalar(by)?;
        if self.scalar(inner).is_some() || self.to.ty(inner).elem() != DType::F32 {
            return None;
        }
        let (OpKind::Binary(BinaryOp::Mul), &[value, by]) = self.def(inner)? else {
            return None;
        };
        let a = self.scalar(by)?;
        self.scalar(value).is_none().then_some((value, [a, b]))
    }

    /// The scalars that all operands of an elementwise operation on tiles are broadcasts of.
    fn scalars(&self, kind: &OpKind, operands: &[ValueId]) -> Option<Vec<ValueId>> {
        let elementwise = matches!(
            kind,
            OpKind::Unary(_)
                | OpKind::Binary(_)
                | OpKind::Compare(_)
                | OpKind::Fma
                | OpKind::Select
                | OpKind::Cast
                | OpKind::Bitcast
        );
        let tiles = operands
            .iter()
            .any(|&v| matches!(self.to.ty(v), Type::Tile(_)));
        (elementwise && tiles)
            .then(|| operands.iter().map(|&v| self.scalar(v)).collect())
            .flatten()
    }
}

/// Whether every value of `narrow` is one of `wide`, so that a cast there and back changes nothing.
fn holds(wide: DType, narrow: DType) -> bool {
    match wide {
        DType::F64 => narrow.is_float() || (narrow.is_int() && narrow.bits() <= 32),
        DType::F32 => {
            (narrow.is_float() && narrow.bits() <= 16) || (narrow.is_int() && narrow.bits() <= 16)
        }
        _ if wide.is_int() && narrow.is_int() => {
            // Wrapping back undoes any widening.
            wide.bits() >= narrow.bits()
        }
        _ => false,
    }
}

/// Which operand (0 or 1) the result is, if the other is neutral.
fn neutral(op: BinaryOp, a: Option<Constant>, b: Option<Constant>) -> Option<usize> {
    use Constant::{Bool, Float, Int};
    let zero = |x: f64, negative: bool| x == 0.0 && x.is_sign_negative() == negative;
    match (op, a, b) {
        (BinaryOp::Add | BinaryOp::Or | BinaryOp::Xor, _, Some(Int(0, _))) => Some(0),
        (BinaryOp::Add | BinaryOp::Or | BinaryOp::Xor, Some(Int(0, _)), _) => Some(1),
        (BinaryOp::Sub | BinaryOp::Shl | BinaryOp::Shr, _, Some(Int(0, _))) => Some(0),
        (BinaryOp::Mul | BinaryOp::Div, _, Some(Int(1, _))) => Some(0),
        (BinaryOp::Mul, Some(Int(1, _)), _) => Some(1),
        (BinaryOp::Mul, _, Some(Int(0, _))) => Some(1),
        (BinaryOp::Mul, Some(Int(0, _)), _) => Some(0),
        (BinaryOp::Or, Some(Bool(true)), _) | (BinaryOp::And, Some(Bool(false)), _) => Some(0),
        (BinaryOp::Or, _, Some(Bool(true))) | (BinaryOp::And, _, Some(Bool(false))) => Some(1),
        (BinaryOp::Or, _, Some(Bool(false))) | (BinaryOp::And, _, Some(Bool(true))) => Some(0),
        (BinaryOp::Or, Some(Bool(false)), _) | (BinaryOp::And, Some(Bool(true)), _) => Some(1),
        // x + 0 is not x if that is −0; x + −0 and x − 0 are.
        (BinaryOp::Add, _, Some(Float(z, _))) if zero(z, true) => Some(0),
        (BinaryOp::Add, Some(Float(z, _)), _) if zero(z, true) => Some(1),
        (BinaryOp::Sub, _, Some(Float(z, _))) if zero(z, false) => Some(0),
        (BinaryOp::Mul | BinaryOp::MulExact | BinaryOp::Div, _, Some(Float(1.0, _))) => Some(0),
        (BinaryOp::Mul | BinaryOp::MulExact, Some(Float(1.0, _)), _) => Some(1),
        _ => None,
    }
}

/// The integer in the range of `ty`, by its bits.
fn wrap(value: i128, ty: DType) -> Constant {
    let bits = ty.bits();
    let low = value & ((1i128 << bits) - 1);
    let signed = ty.is_signed() || bits == 64;
    let value = if signed && low >> (bits - 1) & 1 == 1 {
        low - (1i128 << bits)
    } else {
        low
    };
    Constant::Int(value as i64, ty)
}

/// The mathematical value of an integer constant; `u64` is kept by its bits.
fn exact(value: i64, ty: DType) -> i128 {
    if ty == DType::U64 {
        i128::from(value as u64)
    } else {
        i128::from(value)
    }
}

fn unary(op: UnaryOp, a: Constant) -> Option<Constant> {
    Some(match (op, a) {
        (UnaryOp::Neg, Constant::Int(a, ty)) => wrap(-exact(a, ty), ty),
        (UnaryOp::Not, Constant::Int(a, ty)) => wrap(!exact(a, ty), ty),
        (UnaryOp::Not, Constant::Bool(a)) => Constant::Bool(!a),
        (UnaryOp::Neg, Constant::Float(a, ty @ (DType::F32 | DType::F64))) => {
            Constant::Float(-a, ty)
        }
        (UnaryOp::Abs, Constant::Float(a, ty @ (DType::F32 | DType::F64))) => {
            Constant::Float(a.abs(), ty)
        }
        _ => return None,
    })
}

fn binary(op: BinaryOp, a: Constant, b: Constant) -> Option<Constant> {
    match (a, b) {
        (Constant::Int(a, ty), Constant::Int(b, other)) if ty == other => {
            let (x, y) = (exact(a, ty), exact(b, ty));
            let value = match op {
                BinaryOp::Add => x + y,
                BinaryOp::Sub => x - y,
                BinaryOp::Mul => x.checked_mul(y)?,
                BinaryOp::Div if y != 0 => x.div_euclid(y) - i128::from(y < 0 && x % y != 0),
                BinaryOp::Rem if y != 0 => {
                    x - y * (x.div_euclid(y) - i128::from(y < 0 && x % y != 0))
                }
                BinaryOp::Min => x.min(y),
                BinaryOp::Max => x.max(y),
                BinaryOp::And => x & y,
                BinaryOp::Or => x | y,
                BinaryOp::Xor => x ^ y,
                BinaryOp::Shl if (0..i128::from(ty.bits())).contains(&y) => x << y,
                BinaryOp::Shr if (0..i128::from(ty.bits())).contains(&y) => x >> y,
                _ => return None,
            };
            Some(wrap(value, ty))
        }
        (Constant::Bool(a), Constant::Bool(b)) => Some(Constant::Bool(match op {
            BinaryOp::And => a & b,
            BinaryOp::Or => a | b,
            BinaryOp::Xor => a ^ b,
            _ => return None,
        })),
        (Constant::Float(a, ty), Constant::Float(b, other)) if ty == other => {
            let value = match ty {
                DType::F64 => arithmetic(op, a, b)?,
                DType::F32 => f64::from(arithmetic(op, a as f32, b as f32)?),
                _ => return None,
            };
            Some(Constant::Float(value, ty))
        }
        _ => None,
    }
}

fn arithmetic<F>(op: BinaryOp, a: F, b: F) -> Option<F>
where
    F: Add<Output = F> + Sub<Output = F> + Mul<Output = F> + Div<Output = F>,
{
    Some(match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul | BinaryOp::MulExact => a * b,
        BinaryOp::Div => a / b,
        _ => return None,
    })
}

fn compare(op: CompareOp, a: Constant, b: Constant) -> Option<bool> {
    let order = match (a, b) {
        (Constant::Int(a, ty), Constant::Int(b, _)) => Some(exact(a, ty).cmp(&exact(b, ty))),
        (Constant::Float(a, _), Constant::Float(b, _)) => a.partial_cmp(&b),
        (Constant::Bool(a), Constant::Bool(b)) => Some(a.cmp(&b)),
        _ => return None,
    };
    Some(match (op, order) {
        (_, None) => false,
        (CompareOp::Eq, Some(o)) => o.is_eq(),
        (CompareOp::Ne, Some(o)) => o.is_ne(),
        (CompareOp::Lt, Some(o)) => o.is_lt(),
        (CompareOp::Le, Some(o)) => o.is_le(),
        (CompareOp::Gt, Some(o)) => o.is_gt(),
        (CompareOp::Ge, Some(o)) => o.is_ge(),
    })
}

fn cast(a: Constant, to: DType) -> Option<Constant> {
    Some(match (a, to) {
        (Constant::Int(a, from), _) if to.is_int() => wrap(exact(a, from), to),
        (Constant::Int(a, from), DType::F64) => Constant::Float(exact(a, from) as f64, to),
        (Constant::Int(a, from), DType::F32) => {
            Constant::Float(f64::from(exact(a, from) as f32), to)
        }
        (Constant::Float(a, from), DType::F64) if from.is_float() => Constant::Float(a, to),
        (Constant::Float(a, from), DType::F32) if from.is_float() => {
            Constant::Float(f64::from(a as f32), to)
        }
        _ => return None,
    })
}

/// The body without operations that have no effect and no use.
fn live(body: &TileBody) -> TileBody {
    let mut needed = HashSet::new();
    // Uses come after definitions but for carried values, so that backward passes settle quickly.
    loop {
        let before = needed.len();
        mark(body, body.root, &mut needed);
        if needed.len() == before {
            break;
        }
    }
    let mut to = TileBody::new();
    let root = to.root;
    copy(body, body.root, &mut to, root, &needed, &mut HashMap::new());
    to
}

fn has_effect(kind: &OpKind) -> bool {
    matches!(
        kind,
        OpKind::Store { .. }
            | OpKind::Atomic { .. }
            | OpKind::Arrive { .. }
            | OpKind::Debug { .. }
            | OpKind::Role(_)
            | OpKind::Assert { .. }
            | OpKind::While
            | OpKind::Yield
            | OpKind::Return
    )
}

/// Marks the operations of `region` that are needed, and those that they need.
fn mark(body: &TileBody, region: RegionId, needed: &mut HashSet<OpId>) {
    for &id in body.regions[region].ops.iter().rev() {
        let op = &body.ops[id];
        let inner = op.regions.iter().any(|&r| effects(body, r));
        if has_effect(&op.kind) || inner || needed.contains(&id) {
            needed.insert(id);
            needed.extend(op.operands.iter().filter_map(|&v| body.defining_op(v)));
            op.regions.iter().for_each(|&r| mark(body, r, needed));
        }
    }
}

fn effects(body: &TileBody, region: RegionId) -> bool {
    body.regions[region].ops.iter().any(|&id| {
        let op = &body.ops[id];
        (has_effect(&op.kind) && !matches!(op.kind, OpKind::Yield | OpKind::Return))
            || op.regions.iter().any(|&r| effects(body, r))
    })
}

fn copy(
    from: &TileBody,
    region: RegionId,
    to: &mut TileBody,
    into: RegionId,
    needed: &HashSet<OpId>,
    map: &mut HashMap<ValueId, ValueId>,
) {
    for &arg in &from.regions[region].args {
        map.insert(arg, to.add_argument(into, from.ty(arg).clone()));
    }
    for &id in from.regions[region]
        .ops
        .iter()
        .filter(|&id| needed.contains(id))
    {
        let op = &from.ops[id];
        let regions = op
            .regions
            .iter()
            .map(|&inner| {
                let new = to.new_region();
                copy(from, inner, to, new, needed, map);
                new
            })
            .collect();
        to.append_copy(into, from, id, regions, map);
    }
}
