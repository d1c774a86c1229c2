//! Building tile IR: the result type of every operation follows from its operands here, in one place, so that sema and
//! passes need not spell it out, and the verifier compares with the same rules.

use tesserine_set::{DType, ParamKind, Signature};

use super::{
    AtomicOp, BinaryOp, Cache, ClusterOp, CompareOp, Constant, Index, OpKind, ReduceOp, ScanOp,
    TileBody, Type, UnaryOp, ViewType,
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
        scatter: bool,
    ) -> OpId {
        let operands = [vec![view], operands, vec![x]].concat();
        let kind = OpKind::Store {
            indices,
            cache,
            scatter,
        };
        self.op(kind, operands, Vec::new())
    }

    /// What was there before. `values`: x, or for `cas` what is expected and x, of the type that a load would give.
    pub fn atomic(
        &mut self,
        op: AtomicOp,
        view: ValueId,
        indices: Vec<Index>,
        operands: Vec<ValueId>,
        values: Vec<ValueId>,
    ) -> ValueId {
        let ty = accessed(self.ty(view).elem(), &indices);
        let operands = [vec![view], operands, values].concat();
        self.one(OpKind::Atomic { op, indices }, operands, ty)
    }

    /// Whether this block is the last of `n`; `operands`: one index a dimension of the view.
    pub fn arrive(&mut self, view: ValueId, operands: Vec<ValueId>, n: ValueId) -> ValueId {
        let indices = vec![Index::Scalar; operands.len()];
        let operands = [vec![view], operands, vec![n]].concat();
        let ty = Type::Scalar(DType::Bool);
        self.one(OpKind::Arrive { indices }, operands, ty)
    }

    /// The same memory as elements of `elem`.
    pub fn view_bitcast(&mut self, view: ValueId, elem: DType) -> ValueId {
        let ty = self.ty(view).with_elem(elem);
        self.one(OpKind::ViewBitcast, vec![view], ty)
    }

    pub fn scan(&mut self, op: ScanOp, x: ValueId, axis: u32) -> ValueId {
        let ty = scanned(op, self.ty(x));
        self.one(OpKind::Scan { op, axis }, vec![x], ty)
    }

    /// The keys in order, and the payloads along with them.
    pub fn sort(&mut self, values: Vec<ValueId>, descending: bool) -> Vec<ValueId> {
        let types = values.iter().map(|&v| self.ty(v).clone()).collect();
        let op = self.op(OpKind::Sort { descending }, values, types);
        self.body.ops[op].results.clone()
    }

    /// Values and indices.
    pub fn topk(&mut self, x: ValueId, k: u32) -> (ValueId, ValueId) {
        let mut shape = self.ty(x).shape().to_vec();
        if let Some(last) = shape.last_mut() {
            *last = k;
        }
        let values = Type::tile(self.ty(x).elem(), shape);
        let types = vec![values.clone(), values.with_elem(DType::I32)];
        let op = self.op(OpKind::TopK { k }, vec![x], types);
        let results = &self.body.ops[op].results;
        (results[0], results[1])
    }

    pub fn histogram(&mut self, x: ValueId, n: u32) -> ValueId {
        self.one(
            OpKind::Histogram { n },
            vec![x],
            Type::tile(DType::I32, [n]),
        )
    }

    pub fn occurrence(&mut self, x: ValueId) -> ValueId {
        let ty = self.ty(x).with_elem(DType::I32);
        self.one(OpKind::Occurrence, vec![x], ty)
    }

    pub fn take(&mut self, x: ValueId, index: ValueId, axis: u32) -> ValueId {
        let ty = self.ty(index).with_elem(self.ty(x).elem());
        self.one(OpKind::Take { axis }, vec![x, index], ty)
    }

    pub fn concat(&mut self, a: ValueId, b: ValueId, axis: u32) -> ValueId {
        let mut shape = self.ty(a).shape().to_vec();
        shape[axis as usize] += self.ty(b).shape()[axis as usize];
        let ty = Type::tile(self.ty(a).elem(), shape);
        self.one(OpKind::Concat { axis }, vec![a, b], ty)
    }

    /// `operands`: those of the instruction; the result has the type of `meaning`.
    pub fn ptx(
        &mut self,
        text: impl Into<String>,
        mut operands: Vec<ValueId>,
        meaning: ValueId,
    ) -> ValueId {
        let ty = self.ty(meaning).clone();
        operands.push(meaning);
        let text = text.into();
        self.one(OpKind::Ptx { text }, operands, ty)
    }

    pub fn cluster_reduce(&mut self, op: ClusterOp, x: ValueId, axis: u32) -> ValueId {
        let ty = self.ty(x).clone();
        self.one(OpKind::ClusterReduce { op, axis }, vec![x], ty)
    }

    pub fn debug(&mut self, label: impl Into<String>, x: ValueId) -> OpId {
        let label = label.into();
        self.op(OpKind::Debug { label }, vec![x], Vec::new())
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

/// The result's type of a scan of `x`: as for the reduction of the same name, over a tile.
pub fn scanned(op: ScanOp, x: &Type) -> Type {
    match (op, x.elem()) {
        (ScanOp::Sum, DType::Bool) => x.with_elem(DType::I32),
        (ScanOp::Sum, elem) if elem.is_float() && elem != DType::F64 => x.with_elem(DType::F32),
        _ => x.clone(),
    }
}

/// The type in which products of `a` and `b` may be added up; none if there are no such products. The first is the
/// natural one.
pub fn product_types(a: DType, b: DType) -> &'static [DType] {
    let fp8 = |t| matches!(t, DType::E4m3 | DType::E5m2);
    match (a, b) {
        (DType::F64, DType::F64) => &[DType::F64],
        (DType::F16, DType::F16) => &[DType::F32, DType::F16],
        (DType::Bf16, DType::Bf16) | (DType::F32, DType::F32) | (DType::Tf32, DType::Tf32) => {
            &[DType::F32]
        }
        (DType::I8 | DType::U8, DType::I8 | DType::U8) => &[DType::I32],
        _ if fp8(a) && fp8(b) => &[DType::F32],
        _ => &[],
    }
}
