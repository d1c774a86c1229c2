//! The verifier of tile IR.
//!
//! Beside the structure that all levels share (`ir/verify.rs`), it checks, for each operation, the number of operands,
//! results and regions, and these rules. "Shape" includes being a scalar.
//!
//! - Types: a tile has rank ≥ 1, every extent ≥ 1 and at most 2³¹ − 1 elements; scalars and tiles have no element type
//!   that exists only in memory (`u1 u4 i4`); only `param` gives a view, and only `load` and `store` take one.
//! - `constant`: in its type's range, a float is a value of its type; result of that type.
//! - `param dim grid`: in range; the parameter's type, `i64`, `i64`.
//! - unary: result as operand; `neg abs` numbers, `not` integers and `bool`, `popcount clz` integers, others floats.
//! - binary: operands and result of one type; `and or xor` integers and `bool`, `shl shr mul_hi` integers, others numbers.
//! - `compare`: operands of one type, of numbers, or of `bool` for `eq ne`; `bool` of the same shape.
//! - `fma`: floats of one type. `select`: `bool` of the same shape as two of the result's type.
//! - `cast`, `bitcast`: same shape; for `bitcast` the same width, and no `bool`.
//! - `broadcast`: to a tile; dimensions aligned at the end are equal or 1. `reshape`: as many elements.
//! - `permute`: a permutation of the operand's dimensions. `slice`: within the operand. `iota`: a tile of integers.
//! - `reduce`: of a tile; the axis is one of it; `any all` of `bool`, `sum` of numbers or `bool`, others of numbers; the
//!   result as [`reduced`](super::reduced) says.
//! - `dot`: `[…, M, K]` times `[…, K, N]` of types whose products are added up in the type of `[…, M, N]`
//!   ([`product_types`](super::product_types)), which is the result's.
//! - `scan`: of a tile, of numbers or (sums) `bool`; the result as [`scanned`](super::scanned) says. `sort`: tiles of one
//!   shape, keys of numbers, results as operands. `topk`: k ≤ the last extent. `histogram occurrence`: of integers.
//! - `take`: an index of `i32` or `i64` that agrees with the tile in all dimensions but the axis. `concat`: two tiles that
//!   do so. `ptx`: results and operands of one shape. `cluster`: of numbers, on an axis of the grid.
//! - `view_bitcast`: a view of the same rank and access.
//! - `load`, `store`: the view may be read (stored to); one index a dimension, each length ≥ 1; index operands are `i64`
//!   scalars, of a gather a tile of its length of `i32` or `i64`; a joined one follows another of its length; a whole
//!   dimension's length is its declared extent; the pad is a scalar of the loaded type; the tile as
//!   [`accessed`](super::accessed) says.
//! - `atomic`: a `mut` view of 32- or 64-bit numbers, the values as accessed. `arrive`: one scalar index a dimension of a
//!   `mut view<i32>`, an `i64`.
//! - `if`: condition a `bool` scalar; two regions without arguments, each yielding the results' types.
//! - `for`: bounds `i64` scalars; arguments `i64` and the carried types; yields and results are the carried types.
//! - `while`: both regions' arguments are the carried types; the first yields a `bool` scalar, the second the carried.
//! - `assert`: a `bool` scalar.

use tesserine_set::{Access, DType, ParamKind};

use super::{
    AtomicOp, BinaryOp, CompareOp, Constant, Index, Kernel, OpKind, ReduceOp, RoleOp, ScanOp, Type,
    UnaryOp, accessed, loaded, param_type, product_types, reduced, scanned,
};
use crate::{
    interp::floats,
    ir::{
        Op,
        verify::{Checker, Finding, Verifiable, VerifyError, ensure},
    },
};

/// Checks every rule above; all errors found, in the order of the text.
pub fn verify(kernel: &Kernel) -> Result<(), Vec<VerifyError>> {
    let mut checker = Checker::new(&kernel.header, &kernel.body);
    checker.header();
    if checker.structure() {
        typing(&mut checker);
        for (op, message) in super::roles::check(kernel) {
            checker.report(op, message);
        }
    }
    if checker.errors.is_empty() {
        Ok(())
    } else {
        Err(checker.errors)
    }
}

impl Verifiable for OpKind {
    fn as_tile(&self) -> Option<OpKind> {
        Some(self.clone())
    }

    fn tile_type(ty: &Type) -> &Type {
        ty
    }
}

/// The rules of tile operations, at any level.
pub(in crate::ir) fn typing<K: Verifiable>(checker: &mut Checker<'_, K>) {
    for (id, op) in &checker.body.ops {
        // Operations that lie in no region do not exist for anyone.
        if let Some(kind) = op.kind.as_tile()
            && let Err(message) = check(checker, &kind, op)
        {
            checker.report(id, message);
        }
    }
}

fn check<K: Verifiable>(checker: &Checker<'_, K>, kind: &OpKind, op: &Op<K>) -> Finding {
    let header = checker.header;
    let body = checker.body;
    let ty = |v: crate::ir::ValueId| K::tile_type(body.ty(v));
    let operands: Vec<&Type> = op.operands.iter().map(|&v| ty(v)).collect();
    let results: Vec<&Type> = op.results.iter().map(|&v| ty(v)).collect();

    // How many of each.
    let variable = usize::MAX;
    let (n_operands, n_results, n_regions) = match kind {
        OpKind::Constant(_)
        | OpKind::Param(_)
        | OpKind::Dim(_)
        | OpKind::GridIndex(_)
        | OpKind::Iota => (0, 1, 0),
        OpKind::Unary(_)
        | OpKind::Cast
        | OpKind::Bitcast
        | OpKind::Broadcast
        | OpKind::Reshape
        | OpKind::Permute(_)
        | OpKind::Slice(_)
        | OpKind::Reduce { .. } => (1, 1, 0),
        OpKind::Binary(_) | OpKind::Compare(_) => (2, 1, 0),
        OpKind::Fma | OpKind::Select | OpKind::Dot => (3, 1, 0),
        OpKind::Load { indices, .. } => (
            2 + indices.iter().map(|i| i.operands()).sum::<usize>(),
            1,
            0,
        ),
        OpKind::Store { indices, .. } => (
            2 + indices.iter().map(|i| i.operands()).sum::<usize>(),
            0,
            0,
        ),
        OpKind::Scan { .. }
        | OpKind::Histogram { .. }
        | OpKind::Occurrence
        | OpKind::ClusterReduce { .. }
        | OpKind::ViewBitcast => (1, 1, 0),
        OpKind::Sort { .. } => (variable, variable, 0),
        OpKind::TopK { .. } => (1, 2, 0),
        OpKind::Take { .. } | OpKind::Concat { .. } => (2, 1, 0),
        OpKind::Ptx { .. } => (variable, 1, 0),
        OpKind::Atomic { op, indices } => (
            2 + usize::from(*op == AtomicOp::Cas)
                + indices.iter().map(|i| i.operands()).sum::<usize>(),
            1,
            0,
        ),
        OpKind::Arrive { indices } => (2 + indices.len(), 1, 0),
        OpKind::If => (1, variable, 2),
        OpKind::For { .. } => (variable, variable, 1),
        OpKind::While => (variable, variable, 2),
        OpKind::Yield => (variable, 0, 0),
        OpKind::Return => (variable, 0, 0),
        OpKind::Assert { .. } | OpKind::Debug { .. } => (1, 0, 0),
        OpKind::Role(op) => match op {
            RoleOp::Roles(heads) => (0, 0, heads.len()),
            RoleOp::Put { .. } => (variable, 0, 0),
            RoleOp::Get { .. } => (0, variable, 0),
            RoleOp::Release { .. } | RoleOp::Require(_) => (0, 0, 0),
            RoleOp::Mma => (variable, 1, 0),
            RoleOp::Await { .. } => (1, 1, 0),
            RoleOp::Pingpong => (1, variable, 1),
        },
    };
    for (what, has, needs) in [
        ("operands", operands.len(), n_operands),
        ("results", results.len(), n_results),
        ("regions", op.regions.len(), n_regions),
    ] {
        ensure!(
            needs == variable || has == needs,
            "needs {needs} {what} and has {has}"
        );
    }

    // What may be a type of a value here.
    let views_in = usize::from(matches!(
        kind,
        OpKind::Load { .. }
            | OpKind::Store { .. }
            | OpKind::Atomic { .. }
            | OpKind::Arrive { .. }
            | OpKind::ViewBitcast
    ));
    let puts = matches!(kind, OpKind::Role(RoleOp::Put { .. }));
    ensure!(
        puts || !operands[views_in..]
            .iter()
            .any(|t| matches!(t, Type::View(_))),
        "takes a view where a scalar or tile belongs"
    );
    let arguments = op.regions.iter().flat_map(|&r| &body.regions[r].args);
    for t in results.iter().copied().chain(arguments.map(|&v| ty(v))) {
        value_type(t, matches!(kind, OpKind::Param(_) | OpKind::ViewBitcast))?;
    }

    match kind {
        OpKind::Constant(constant) => {
            constant_fits(*constant)?;
            same(results[0], &Type::Scalar(constant.dtype()))
        }
        OpKind::Param(index) => match header.signature.params.get(*index as usize) {
            Some(param) => same(results[0], &param_type(&param.kind)),
            None => Err(format!("there is no parameter {index}")),
        },
        OpKind::Dim(index) => {
            ensure!(
                (*index as usize) < header.signature.dims.len(),
                "there is no dimension {index}"
            );
            same(results[0], &Type::Scalar(DType::I64))
        }
        OpKind::GridIndex(index) => {
            ensure!(
                (*index as usize) < header.axes.len(),
                "there is no axis {index}"
            );
            same(results[0], &Type::Scalar(DType::I64))
        }
        OpKind::Unary(unary) => {
            let elem = operands[0].elem();
            let fits = match unary {
                UnaryOp::Neg | UnaryOp::Abs => is_number(elem),
                UnaryOp::Not => elem.is_int() || elem == DType::Bool,
                UnaryOp::Popcount | UnaryOp::Clz => elem.is_int(),
                _ => elem.is_float(),
            };
            ensure!(fits, "`{}` does not take {elem}", unary.name());
            same(results[0], operands[0])
        }
        OpKind::Binary(binary) => {
            let elem = operands[0].elem();
            let fits = match binary {
                BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => {
                    elem.is_int() || elem == DType::Bool
                }
                BinaryOp::Shl | BinaryOp::Shr | BinaryOp::MulHi => elem.is_int(),
                _ => is_number(elem),
            };
            ensure!(fits, "`{}` does not take {elem}", binary.name());
            same(operands[1], operands[0])?;
            same(results[0], operands[0])
        }
        OpKind::Compare(compare) => {
            let elem = operands[0].elem();
            let equality = matches!(compare, CompareOp::Eq | CompareOp::Ne);
            ensure!(
                is_number(elem) || equality && elem == DType::Bool,
                "`{}` does not take {elem}",
                compare.name()
            );
            same(operands[1], operands[0])?;
            same(results[0], &operands[0].with_elem(DType::Bool))
        }
        OpKind::Fma => {
            ensure!(operands[0].elem().is_float(), "`fma` is of floats");
            same(operands[1], operands[0])?;
            same(operands[2], operands[0])?;
            same(results[0], operands[0])
        }
        OpKind::Select => {
            same(operands[0], &operands[1].with_elem(DType::Bool))?;
            same(operands[2], operands[1])?;
            same(results[0], operands[1])
        }
        // A tile is a product that is over.
        OpKind::Cast if matches!((operands[0], results[0]), (Type::Tile(a), Type::Pending(b)) if a == b) => {
            Ok(())
        }
        OpKind::Cast => same(results[0], &operands[0].with_elem(results[0].elem())),
        OpKind::Bitcast => {
            let (from, to) = (operands[0].elem(), results[0].elem());
            ensure!(
                from.bits() == to.bits() && from != DType::Bool && to != DType::Bool,
                "{from} has not the bits of {to}"
            );
            same(results[0], &operands[0].with_elem(to))
        }
        OpKind::Broadcast => {
            let (from, to) = (operands[0].shape(), results[0].shape());
            let aligned = from.iter().rev().zip(to.iter().rev());
            ensure!(
                !to.is_empty()
                    && from.len() <= to.len()
                    && aligned.into_iter().all(|(f, t)| f == t || *f == 1)
                    && operands[0].elem() == results[0].elem(),
                "{} does not broadcast to {}",
                operands[0],
                results[0]
            );
            Ok(())
        }
        OpKind::Reshape => {
            ensure!(
                count(operands[0]) == count(results[0]) && operands[0].elem() == results[0].elem(),
                "{} does not reshape to {}",
                operands[0],
                results[0]
            );
            Ok(())
        }
        OpKind::Permute(perm) => {
            let from = operands[0].shape();
            let mut sorted = perm.clone();
            sorted.sort_unstable();
            ensure!(
                !from.is_empty() && sorted.into_iter().eq(0..from.len() as u32),
                "{perm:?} is no permutation of the dimensions of {}",
                operands[0]
            );
            let shape: Vec<u32> = perm.iter().map(|&p| from[p as usize]).collect();
            same(results[0], &Type::tile(operands[0].elem(), shape))
        }
        OpKind::Slice(offsets) => {
            let (from, to) = (operands[0].shape(), results[0].shape());
            let within = from.len() == to.len()
                && from.len() == offsets.len()
                && (0..from.len())
                    .all(|i| u64::from(offsets[i]) + u64::from(to[i]) <= u64::from(from[i]));
            ensure!(
                !to.is_empty() && within && operands[0].elem() == results[0].elem(),
                "{} at {offsets:?} is not within {}",
                results[0],
                operands[0]
            );
            Ok(())
        }
        OpKind::Iota => {
            ensure!(
                matches!(results[0], Type::Tile(t) if t.elem.is_int()),
                "`iota` gives a tile of integers"
            );
            Ok(())
        }
        OpKind::Reduce { op, axis } => {
            let elem = operands[0].elem();
            let rank = operands[0].shape().len();
            ensure!(rank > 0, "`reduce` is of a tile");
            ensure!(
                axis.is_none_or(|a| (a as usize) < rank),
                "there is no such axis in {}",
                operands[0]
            );
            let fits = match op {
                ReduceOp::Any | ReduceOp::All => elem == DType::Bool,
                ReduceOp::Sum => is_number(elem) || elem == DType::Bool,
                _ => is_number(elem),
            };
            ensure!(fits, "`{}` does not reduce {elem}", op.name());
            same(results[0], &reduced(*op, operands[0], *axis))
        }
        OpKind::Dot => {
            let (a, b, acc) = (operands[0], operands[1], operands[2]);
            let (Some((batch, &[m, k])), Some((others, &[inner, n]))) = (
                a.shape().split_last_chunk::<2>(),
                b.shape().split_last_chunk::<2>(),
            ) else {
                return Err(format!("`dot` of {a} and {b}, which are no matrices"));
            };
            ensure!(
                k == inner && batch == others,
                "`dot` of {a} and {b}: they do not fit"
            );
            ensure!(
                product_types(a.elem(), b.elem()).contains(&acc.elem()),
                "`dot` does not take {} and {} onto {}",
                a.elem(),
                b.elem(),
                acc.elem()
            );
            let shape: Vec<u32> = batch.iter().copied().chain([m, n]).collect();
            same(acc, &Type::tile(acc.elem(), shape))?;
            same(results[0], acc)
        }
        OpKind::Scan { op, axis } => {
            let elem = operands[0].elem();
            ensure!(
                (*axis as usize) < operands[0].shape().len(),
                "there is no such axis in {}",
                operands[0]
            );
            ensure!(
                is_number(elem) || *op == ScanOp::Sum && elem == DType::Bool,
                "`scan {}` does not take {elem}",
                op.name()
            );
            same(results[0], &scanned(*op, operands[0]))
        }
        OpKind::Sort { .. } => {
            ensure!(
                operands
                    .first()
                    .is_some_and(|k| !k.shape().is_empty() && is_number(k.elem())),
                "`sort` needs a tile of numbers as keys"
            );
            ensure!(
                operands.iter().all(|o| o.shape() == operands[0].shape()),
                "`sort` of tiles of different shapes"
            );
            types("gives", results.iter().copied(), &operands)
        }
        OpKind::TopK { k } => {
            let Some((&n, rest)) = operands[0].shape().split_last() else {
                return Err("`topk` is of a tile".into());
            };
            ensure!(
                is_number(operands[0].elem()) && *k >= 1 && *k <= n,
                "`topk` of {k} does not take {}",
                operands[0]
            );
            let shape: Vec<u32> = rest.iter().copied().chain([*k]).collect();
            same(results[0], &Type::tile(operands[0].elem(), shape.clone()))?;
            same(results[1], &Type::tile(DType::I32, shape))
        }
        OpKind::Histogram { n } => {
            ensure!(
                operands[0].elem().is_int() && !operands[0].shape().is_empty() && *n >= 1,
                "`histogram` of {n} does not take {}",
                operands[0]
            );
            same(results[0], &Type::tile(DType::I32, [*n]))
        }
        OpKind::Occurrence => {
            ensure!(
                operands[0].elem().is_int() && !operands[0].shape().is_empty(),
                "`occurrence` does not take {}",
                operands[0]
            );
            same(results[0], &operands[0].with_elem(DType::I32))
        }
        OpKind::Take { axis } => {
            let index = operands[1];
            ensure!(
                matches!(index.elem(), DType::I32 | DType::I64) && agree(operands[0], index, *axis),
                "`take` of {} does not take the index {index}",
                operands[0]
            );
            same(results[0], &index.with_elem(operands[0].elem()))
        }
        OpKind::Concat { axis } => {
            let (a, b) = (operands[0], operands[1]);
            ensure!(
                a.elem() == b.elem() && agree(a, b, *axis),
                "{a} and {b} do not join"
            );
            let mut shape = a.shape().to_vec();
            let at = *axis as usize;
            shape[at] = shape[at].saturating_add(b.shape()[at]);
            same(results[0], &Type::tile(a.elem(), shape))
        }
        OpKind::Ptx { .. } => {
            ensure!(
                !operands.is_empty() && operands.iter().all(|o| o.shape() == results[0].shape()),
                "`ptx` is elementwise"
            );
            same(results[0], operands[operands.len() - 1])
        }
        OpKind::ClusterReduce { axis, .. } => {
            ensure!(
                (*axis as usize) < header.axes.len(),
                "there is no axis {axis}"
            );
            ensure!(
                is_number(operands[0].elem()),
                "`cluster` does not take {}",
                operands[0]
            );
            same(results[0], operands[0])
        }
        OpKind::ViewBitcast => match (operands[0], results[0]) {
            (Type::View(from), Type::View(to)) => {
                ensure!(
                    from.rank == to.rank && from.rank > 0 && from.access == to.access,
                    "{} has not the memory of {}",
                    results[0],
                    operands[0]
                );
                Ok(())
            }
            _ => Err("`view_bitcast` is of a view".into()),
        },
        OpKind::Load { indices, .. } => {
            path(checker, op, &operands, indices, Access::Write, 1)?;
            let elem = operands[0].elem();
            same(operands[operands.len() - 1], &Type::Scalar(loaded(elem)))?;
            same(results[0], &accessed(elem, indices))
        }
        OpKind::Store { indices, .. } => {
            path(checker, op, &operands, indices, Access::Read, 1)?;
            let elem = operands[0].elem();
            same(operands[operands.len() - 1], &accessed(elem, indices))
        }
        OpKind::Atomic {
            op: atomic,
            indices,
        } => {
            let values = 1 + usize::from(*atomic == AtomicOp::Cas);
            path(checker, op, &operands, indices, Access::Read, values)?;
            let elem = operands[0].elem();
            ensure!(
                is_number(elem) && matches!(elem.bits(), 32 | 64),
                "`atomic` does not take {elem}"
            );
            let ty = accessed(elem, indices);
            for value in &operands[operands.len() - values..] {
                same(value, &ty)?;
            }
            same(results[0], &ty)
        }
        OpKind::Arrive { indices } => {
            path(checker, op, &operands, indices, Access::Read, 1)?;
            ensure!(
                operands[0].elem() == DType::I32 && indices.iter().all(|i| *i == Index::Scalar),
                "`arrive` counts in an element of a view of i32"
            );
            same(operands[operands.len() - 1], &Type::Scalar(DType::I64))?;
            same(results[0], &Type::Scalar(DType::Bool))
        }
        OpKind::If => {
            same(operands[0], &Type::Scalar(DType::Bool))?;
            for &region in &op.regions {
                ensure!(
                    body.regions[region].args.is_empty(),
                    "the regions of `if` have no arguments"
                );
                types(
                    "yields",
                    checker.yields(region).iter().map(|&v| ty(v)),
                    &results,
                )?;
            }
            Ok(())
        }
        OpKind::For { .. } => {
            ensure!(operands.len() >= 3, "`for` needs bounds and a step");
            let index = Type::Scalar(DType::I64);
            let (bounds, inits) = operands.split_at(3);
            for bound in bounds {
                same(bound, &index)?;
            }
            let region = op.regions[0];
            let mut arguments = vec![&index];
            arguments.extend(inits);
            types(
                "has arguments",
                body.regions[region].args.iter().map(|&v| ty(v)),
                &arguments,
            )?;
            types(
                "yields",
                checker.yields(region).iter().map(|&v| ty(v)),
                inits,
            )?;
            types("gives", results.iter().copied(), inits)
        }
        OpKind::While => {
            for &region in &op.regions {
                types(
                    "has arguments",
                    body.regions[region].args.iter().map(|&v| ty(v)),
                    &operands,
                )?;
            }
            let yielded = |i: usize| checker.yields(op.regions[i]).iter().map(|&v| ty(v));
            types("yields", yielded(0), &[&Type::Scalar(DType::Bool)])?;
            types("yields", yielded(1), &operands)?;
            types("gives", results.iter().copied(), &operands)
        }
        OpKind::Yield => Ok(()),
        // What the next tile begins with.
        OpKind::Return => {
            let state = body.regions[body.root].args.iter().map(|&v| ty(v));
            types(
                "returns",
                operands.iter().copied(),
                &state.collect::<Vec<_>>(),
            )
        }
        OpKind::Assert { .. } => same(operands[0], &Type::Scalar(DType::Bool)),
        OpKind::Debug { .. } | OpKind::Role(_) => Ok(()),
    }
}

/// Whether two tiles have the same shape but for `axis`, which both have.
fn agree(a: &Type, b: &Type, axis: u32) -> bool {
    let (a, b) = (a.shape(), b.shape());
    a.len() == b.len()
        && (axis as usize) < a.len()
        && (0..a.len()).all(|i| i == axis as usize || a[i] == b[i])
}

/// The view and indices of an access that `forbidden` views do not allow; `values` operands follow the indices'.
fn path<K: Verifiable>(
    checker: &Checker<'_, K>,
    op: &Op<K>,
    operands: &[&Type],
    indices: &[Index],
    forbidden: Access,
    values: usize,
) -> Finding {
    let Type::View(view) = operands[0] else {
        return Err(format!("accesses {}, which is no view", operands[0]));
    };
    ensure!(
        view.access != forbidden,
        "`{}` does not allow this access",
        operands[0]
    );
    ensure!(
        indices.len() == view.rank as usize,
        "{} indices for a view of rank {}",
        indices.len(),
        view.rank
    );
    ensure!(
        indices.iter().all(|i| i.extent() != Some(0)),
        "an access of no elements"
    );
    let mut rest = &operands[1..operands.len() - values];
    let mut gathered = None;
    for index in indices {
        let (own, others) = rest.split_at(index.operands());
        rest = others;
        if let Index::Gather { len, joined } = *index {
            ensure!(
                !joined || gathered == Some(len),
                "an index tile of {len} runs along with none of its length"
            );
            gathered = Some(len);
            ensure!(
                matches!(own[0].elem(), DType::I32 | DType::I64) && own[0].shape() == [len],
                "{} is no index tile of {len}",
                own[0]
            );
        } else {
            for operand in own {
                same(operand, &Type::Scalar(DType::I64))?;
            }
        }
    }
    // The declared extents, where the view is a parameter's.
    let def = checker.body.defining_op(op.operands[0]);
    if let Some(OpKind::Param(p)) = def.and_then(|op| checker.body.ops[op].kind.as_tile())
        && let Some(param) = checker.header.signature.params.get(p as usize)
        && let ParamKind::View(view) = &param.kind
    {
        for (index, extent) in indices.iter().zip(&view.extents) {
            if let Index::Whole { len } = index {
                ensure!(
                    extent.as_int() == Some(i64::from(*len)),
                    "a dimension is not {len} long as a whole"
                );
            }
        }
    }
    Ok(())
}

fn is_number(elem: DType) -> bool {
    elem.is_int() || elem.is_float()
}

fn count(ty: &Type) -> u64 {
    ty.shape().iter().map(|&d| u64::from(d)).product()
}

fn same(found: &Type, expected: &Type) -> Finding {
    ensure!(found == expected, "expected {expected}, found {found}");
    Ok(())
}

fn types<'t>(what: &str, found: impl Iterator<Item = &'t Type>, expected: &[&Type]) -> Finding {
    let list = |types: &[&Type]| {
        let texts: Vec<String> = types.iter().map(|t| t.to_string()).collect();
        format!("({})", texts.join(", "))
    };
    let found: Vec<&Type> = found.collect();
    ensure!(
        found == expected,
        "{what} {}, and should {}",
        list(&found),
        list(expected)
    );
    Ok(())
}

fn value_type(ty: &Type, may_be_view: bool) -> Finding {
    if let Type::Tile(tile) = ty {
        let mut elements = 1u64;
        for &extent in &tile.shape {
            elements = elements.saturating_mul(u64::from(extent));
        }
        ensure!(
            !tile.shape.is_empty() && elements >= 1 && elements <= i32::MAX as u64,
            "{ty} is no type of a tile"
        );
    }
    match ty {
        Type::View(_) => ensure!(may_be_view, "only `param` gives a view"),
        _ => ensure!(
            loaded(ty.elem()) == ty.elem(),
            "{} exists only in memory",
            ty.elem()
        ),
    }
    Ok(())
}

fn constant_fits(constant: Constant) -> Finding {
    match constant {
        Constant::Int(value, elem) => {
            ensure!(elem.is_int(), "an integer constant of type {elem}");
            ensure!(
                floats::wrap(elem, value) == value,
                "{value} is no value of {elem}"
            );
        }
        Constant::Float(value, elem) => {
            ensure!(elem.is_float(), "a float constant of type {elem}");
            ensure!(
                floats::is_value(elem, value),
                "{value:?} is no value of {elem}"
            );
        }
        Constant::Bool(_) | Constant::Any(_) => {}
    }
    Ok(())
}
