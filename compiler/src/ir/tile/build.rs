//! Building tile IR: the result type of every operation follows from its operands here, in one place, so that sema and
//! passes need not spell it out, and the verifier compares with the same rules.

use tesserine_set::{DType, ParamKind, Signature};

use super::{
    BinaryOp, Cache, CompareOp, Constant, Index, OpKind, ReduceOp, TileBody, Type, UnaryOp,
    ViewType,
};
use crate::{
    ir::{OpId, RegionId, ValueId},
    span::Span,
};

/// Appends operations to one region. Operands must have the types that the operation asks for: the builder derives the
/// result's type and leaves judging to the verifier.
pub struct Builder<'a> {
    pub body: &'a mut TileBody,
    /// Where operations are appended.
    pub region: RegionId,
    /// What they are the code of.
    pub span: Span,
}

impl<'a> Builder<'a> {
    /// Appends to the root region.
    pub fn new(body: &'a mut TileBody) -> Builder<'a> {
        let region = body.root;
        Builder {
            body,
            region,
            span: Span::NONE,
        }
    }

    /// Appends to another region of the same body.
    pub fn at(&mut self, region: RegionId) -> Builder<'_> {
        Builder {
            body: self.body,
            region,
            span: self.span,
        }
    }

    /// Appends an operation without regions.
    pub fn op(&mut self, kind: OpKind, operands: Vec<ValueId>, results: Vec<Type>) -> OpId {
        self.body
            .append(self.region, kind, operands, results, Vec::new(), self.span)
    }

    fn one(&mut self, kind: OpKind, operands: Vec<ValueId>, result: Type) -> ValueId {
        let op = self.op(kind, operands, vec![result]);
        self.body.ops[op].results[0]
    }

    pub fn ty(&self, value: ValueId) -> &Type {
        self.body.ty(value)
    }

    pub fn constant(&mut self, constant: Constant) -> ValueId {
        let ty = Type::Scalar(constant.dtype());
        self.one(OpKind::Constant(constant), Vec::new(), ty)
    }

    /// An `i64` constant.
    pub fn int(&mut self, value: i64) -> ValueId {
        self.constant(Constant::Int(value, DType::I64))
    }

    /// A float constant, which must already be a value of `ty`.
    pub fn float(&mut self, value: f64, ty: DType) -> ValueId {
        self.constant(Constant::Float(value, ty))
    }

    /// Parameter `index` of `signature`.
    pub fn param(&mut self, signature: &Signature, index: u32) -> ValueId {
        let ty = param_type(&signature.params[index as usize].kind);
        self.one(OpKind::Param(index), Vec::new(), ty)
    }

    pub fn dim(&mut self, index: u32) -> ValueId {
        self.one(OpKind::Dim(index), Vec::new(), Type::Scalar(DType::I64))
    }

    pub fn grid_index(&mut self, index: u32) -> ValueId {
        self.one(
            OpKind::GridIndex(index),
            Vec::new(),
            Type::Scalar(DType::I64),
        )
    }

    pub fn unary(&mut self, op: UnaryOp, x: ValueId) -> ValueId {
        let ty = self.ty(x).clone();
        self.one(OpKind::Unary(op), vec![x], ty)
    }

    pub fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        let ty = self.ty(a).clone();
        self.one(OpKind::Binary(op), vec![a, b], ty)
    }

    pub fn compare(&mut self, op: CompareOp, a: ValueId, b: ValueId) -> ValueId {
        let ty = self.ty(a).with_elem(DType::Bool);
        self.one(OpKind::Compare(op), vec![a, b], ty)
    }

    pub fn fma(&mut self, a: ValueId, b: ValueId, c: ValueId) -> ValueId {
        let ty = self.ty(a).clone();
        self.one(OpKind::Fma, vec![a, b, c], ty)
    }

    pub fn select(&mut self, cond: ValueId, a: ValueId, b: ValueId) -> ValueId {
        let ty = self.ty(a).clone();
        self.one(OpKind::Select, vec![cond, a, b], ty)
    }

    /// `x` itself if it has that element type already.
    pub fn cast(&mut self, x: ValueId, elem: DType) -> ValueId {
        if self.ty(x).elem() == elem {
            return x;
        }
        let ty = self.ty(x).with_elem(elem);
        self.one(OpKind::Cast, vec![x], ty)
    }

    pub fn bitcast(&mut self, x: ValueId, elem: DType) -> ValueId {
        let ty = self.ty(x).with_elem(elem);
        self.one(OpKind::Bitcast, vec![x], ty)
    }

    /// To a tile of `shape`, of rank ≥ 1; `x` itself if it has that shape already.
    pub fn broadcast(&mut self, x: ValueId, shape: &[u32]) -> ValueId {
        if self.ty(x).shape() == shape {
            return x;
        }
        let ty = Type::tile(self.ty(x).elem(), shape);
        self.one(OpKind::Broadcast, vec![x], ty)
    }

    /// A scalar if `shape` is empty; `x` itself if it has that shape already.
    pub fn reshape(&mut self, x: ValueId, shape: &[u32]) -> ValueId {
        if self.ty(x).shape() == shape {
            return x;
        }
        let ty = tile_or_scalar(self.ty(x).elem(), shape.to_vec());
        self.one(OpKind::Reshape, vec![x], ty)
    }

    pub fn permute(&mut self, x: ValueId, perm: Vec<u32>) -> ValueId {
        let from = self.ty(x);
        let shape: Vec<u32> = perm.iter().map(|&p| from.shape()[p as usize]).collect();
        let ty = Type::tile(from.elem(), shape);
        self.one(OpKind::Permute(perm), vec![x], ty)
    }

    pub fn slice(&mut self, x: ValueId, offsets: Vec<u32>, shape: &[u32]) -> ValueId {
        let ty = Type::tile(self.ty(x).elem(), shape);
        self.one(OpKind::Slice(offsets), vec![x], ty)
    }

    pub fn iota(&mut self, elem: DType, shape: &[u32]) -> ValueId {
        self.one(OpKind::Iota, Vec::new(), Type::tile(elem, shape))
    }

    pub fn reduce(&mut self, op: ReduceOp, x: ValueId, axis: Option<u32>) -> ValueId {
        let ty = reduced(op, self.ty(x), axis);
        self.one(OpKind::Reduce { op, axis }, vec![x], ty)
    }

    /// `acc` plus the product of `a` and `b`.
    pub fn dot(&mut self, a: ValueId, b: ValueId, acc: ValueId) -> ValueId {
        let ty = self.ty(acc).clone();
        self.one(OpKind::Dot, vec![a, b, acc], ty)
    }

    /// `operands`: those of `indices`, in order. `pad` has the type of an element ([`loaded`]).
    pub fn load(
        &mut self,
        view: ValueId,
        indices: Vec<Index>,
        operands: Vec<ValueId>,
        pad: ValueId,
        cache: Cache,
    ) -> ValueId {
        let ty = accessed(self.ty(view).elem(), &indices);
        let operands = [vec![view], operands, vec![pad]].concat();
        self.one(OpKind::Load { indices, cache }, operands, ty)
    }

    /// `x` has the type that a load with these indices would give.
    pub fn store(
        &mut self,
        view: ValueId,
        indices: Vec<Index>,
        operands: Vec<ValueId>,
        x: ValueId,
        cache: Cache,
    ) -> OpId {
        let operands = [vec![view], operands, vec![x]].concat();
        self.op(OpKind::Store { indices, cache }, operands, Vec::new())
    }

    /// An `if` whose regions, made and ended by the caller, yield `results`.
    pub fn if_(
        &mut self,
        cond: ValueId,
        results: Vec<Type>,
        then: RegionId,
        otherwise: RegionId,
    ) -> OpId {
        let regions = vec![then, otherwise];
        self.body.append(
            self.region,
            OpKind::If,
            vec![cond],
            results,
            regions,
            self.span,
        )
    }

    /// A `for` whose region, made and ended by the caller, has arguments `index, carried…` and yields the carried.
    pub fn for_(
        &mut self,
        label: Option<String>,
        rev: bool,
        bounds: [ValueId; 3],
        inits: &[ValueId],
        region: RegionId,
    ) -> OpId {
        let results = inits.iter().map(|&v| self.ty(v).clone()).collect();
        let operands = bounds.iter().chain(inits).copied().collect();
        let kind = OpKind::For { label, rev };
        self.body.append(
            self.region,
            kind,
            operands,
            results,
            vec![region],
            self.span,
        )
    }

    /// A `while`: see [`OpKind::While`] for the regions, which the caller makes and ends.
    pub fn while_(&mut self, inits: &[ValueId], cond: RegionId, step: RegionId) -> OpId {
        let results = inits.iter().map(|&v| self.ty(v).clone()).collect();
        let regions = vec![cond, step];
        self.body.append(
            self.region,
            OpKind::While,
            inits.to_vec(),
            results,
            regions,
            self.span,
        )
    }

    pub fn yield_(&mut self, values: Vec<ValueId>) -> OpId {
        self.op(OpKind::Yield, values, Vec::new())
    }

    pub fn return_(&mut self) -> OpId {
        self.op(OpKind::Return, Vec::new(), Vec::new())
    }

    pub fn assert(&mut self, cond: ValueId, message: impl Into<String>) -> OpId {
        let message = message.into();
        self.op(OpKind::Assert { message }, vec![cond], Vec::new())
    }
}

/// A tile, or a scalar if `shape` is empty.
pub fn tile_or_scalar(elem: DType, shape: Vec<u32>) -> Type {
    if shape.is_empty() {
        Type::Scalar(elem)
    } else {
        Type::tile(elem, shape)
    }
}

/// The type of the value of a parameter.
pub fn param_type(kind: &ParamKind) -> Type {
    match kind {
        ParamKind::Scalar { dtype, .. } => Type::Scalar(*dtype),
        ParamKind::View(view) => Type::View(ViewType {
            elem: view.dtype,
            rank: view.extents.len() as u32,
            access: view.access,
        }),
    }
}

/// The element type that memory of type `elem` has in values: the integers that exist only in memory widen.
pub fn loaded(elem: DType) -> DType {
    match elem {
        DType::U1 => DType::Bool,
        DType::U4 => DType::U8,
        DType::I4 => DType::I8,
        _ => elem,
    }
}

/// What a load through `indices` from a view of `elem` gives, and a store takes.
pub fn accessed(elem: DType, indices: &[Index]) -> Type {
    tile_or_scalar(
        loaded(elem),
        indices.iter().filter_map(|i| i.extent()).collect(),
    )
}

/// The result's type of a reduction of `x`: a tile over `axis`, or over everything.
pub fn reduced(op: ReduceOp, x: &Type, axis: Option<u32>) -> Type {
    let mut shape = x.shape().to_vec();
    match axis {
        Some(axis) if (axis as usize) < shape.len() => {
            shape.remove(axis as usize);
        }
        _ => shape.clear(),
    }
    let count = if shape.is_empty() {
        DType::I64
    } else {
        DType::I32
    };
    let elem = match (op, x.elem()) {
        (ReduceOp::ArgMax | ReduceOp::ArgMin, _) | (ReduceOp::Sum, DType::Bool) => count,
        (ReduceOp::Sum, elem) if elem.is_float() && elem != DType::F64 => DType::F32,
        (_, elem) => elem,
    };
    tile_or_scalar(elem, shape)
}
