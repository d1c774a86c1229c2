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
//! - `dot`: `[M, K]` times `[K, N]` of one float type of at most 32 bits, onto `f32` of `[M, N]`, the result's type.
//! - `load`, `store`: the view may be read (stored to); one index a dimension, each length ≥ 1; index operands are `i64`
//!   scalars; a whole dimension's length is its declared extent; the pad is a scalar of the loaded type; the tile as
//!   [`accessed`](super::accessed) says.
//! - `if`: condition a `bool` scalar; two regions without arguments, each yielding the results' types.
//! - `for`: bounds `i64` scalars; arguments `i64` and the carried types; yields and results are the carried types.
//! - `while`: both regions' arguments are the carried types; the first yields a `bool` scalar, the second the carried.
//! - `assert`: a `bool` scalar.

use tesserine_set::{Access, DType, ParamKind};

use super::{
    BinaryOp, CompareOp, Constant, Index, Kernel, OpKind, ReduceOp, Type, UnaryOp, accessed,
    loaded, param_type, reduced,
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
        OpKind::If => (1, variable, 2),
        OpKind::For { .. } => (variable, variable, 1),
        OpKind::While => (variable, variable, 2),
        OpKind::Yield => (variable, 0, 0),
        OpKind::Return => (0, 0, 0),
        OpKind::Assert { .. } => (1, 0, 0),
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
    let views_in = usize::from(matches!(kind, OpKind::Load { .. } | OpKind::Store { .. }));
    ensure!(
        !operands[views_in..]
            .iter()
            .any(|t| matches!(t, Type::View(_))),
        "takes a view where a scalar or tile belongs"
    );
    let arguments = op.regions.iter().flat_map(|&r| &body.regions[r].args);
    for t in results.iter().copied().chain(arguments.map(|&v| ty(v))) {
        value_type(t, matches!(kind, OpKind::Param(_)))?;
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
            let (&[m, k], &[inner, n]) = (a.shape(), b.shape()) else {
                return Err(format!("`dot` of {a} and {b}, which are no matrices"));
            };
            ensure!(k == inner, "`dot` of {a} and {b}: {k} is not {inner}");
            let elem = a.elem();
            ensure!(
                elem.is_float() && elem.bits() <= 32 && b.elem() == elem,
                "`dot` does not take {elem} and {}",
                b.elem()
            );
            same(acc, &Type::tile(DType::F32, [m, n]))?;
            same(results[0], acc)
        }
        OpKind::Load { indices, .. } => {
            path(checker, op, &operands, indices, Access::Write)?;
            let elem = operands[0].elem();
            same(operands[operands.len() - 1], &Type::Scalar(loaded(elem)))?;
            same(results[0], &accessed(elem, indices))
        }
        OpKind::Store { indices, .. } => {
            path(checker, op, &operands, indices, Access::Read)?;
            let elem = operands[0].elem();
            same(operands[operands.len() - 1], &accessed(elem, indices))
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
        OpKind::Yield | OpKind::Return => Ok(()),
        OpKind::Assert { .. } => same(operands[0], &Type::Scalar(DType::Bool)),
    }
}

/// The view and indices of an access that `forbidden` views do not allow.
fn path<K: Verifiable>(
    checker: &Checker<'_, K>,
    op: &Op<K>,
    operands: &[&Type],
    indices: &[Index],
    forbidden: Access,
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
    for index in &operands[1..operands.len() - 1] {
        same(index, &Type::Scalar(DType::I64))?;
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
        Constant::Bool(_) => {}
    }
    Ok(())
}
