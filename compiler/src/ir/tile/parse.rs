//! Reading the textual form of tile operations and types.

use tesserine_set::DType;

use super::{
    AtomicOp, BinaryOp, Cache, ClusterOp, CompareOp, Constant, Index, Kernel, OpKind, ReduceOp,
    RoleOp, ScanOp, TileType, Type, UnaryOp, ViewType,
};
use crate::ir::{
    ValueId,
    text::{ParseError, Parser},
};

/// Reads one kernel, as its `Display` writes it. What it gives is not verified yet.
pub fn parse(text: &str) -> Result<Kernel, ParseError> {
    let mut p = Parser::new(text);
    p.header()?;
    let channels = super::roles::parse_channels(&mut p)?;
    let body = p.body()?;
    if !p.at_end() {
        return p.error("nothing may follow the body");
    }
    Ok(Kernel {
        header: p.into_header(),
        channels,
        body,
    })
}

/// `%v[%i, %j +: 64 from %a until %n, .. 8, at %t +: 4, with %u +: 4]`: the view with the operands of the indices, and the indices.
pub(in crate::ir) fn parse_access_path(
    p: &mut Parser<'_>,
) -> Result<(Vec<ValueId>, Vec<Index>), ParseError> {
    let mut operands = vec![p.value()?];
    let mut indices = Vec::new();
    p.expect("[")?;
    while !p.eat("]") {
        if !indices.is_empty() {
            p.expect(",")?;
        }
        if p.eat("..") {
            indices.push(Index::Whole { len: p.integer()? });
            continue;
        }
        let joined = p.eat_word("with");
        if joined || p.eat_word("at") {
            operands.push(p.value()?);
            p.expect("+:")?;
            let len = p.integer()?;
            indices.push(Index::Gather { len, joined });
            continue;
        }
        operands.push(p.value()?);
        if !p.eat("+:") {
            indices.push(Index::Scalar);
            continue;
        }
        let len = p.integer()?;
        let from = p.eat_word("from");
        if from {
            operands.push(p.value()?);
        }
        let until = p.eat_word("until");
        if until {
            operands.push(p.value()?);
        }
        indices.push(Index::Range { len, from, until });
    }
    Ok((operands, indices))
}

/// A cache hint, or nothing.
pub(in crate::ir) fn parse_cache(p: &mut Parser<'_>) -> Cache {
    if p.eat_word("evict_first") {
        Cache::EvictFirst
    } else if p.eat_word("evict_last") {
        Cache::EvictLast
    } else {
        Cache::Normal
    }
}

/// `sum axis 1`, after the word `reduce`.
pub(in crate::ir) fn parse_reduce(
    p: &mut Parser<'_>,
) -> Result<(ReduceOp, Option<u32>), ParseError> {
    let word = p.word("a reduction")?;
    let Some(op) = ReduceOp::ALL.into_iter().find(|op| op.name() == word) else {
        return p.error(format!("`{word}` is no reduction"));
    };
    let axis = if p.eat_word("axis") {
        Some(p.integer()?)
    } else {
        None
    };
    Ok((op, axis))
}

fn parse_constant(p: &mut Parser<'_>) -> Result<Constant, ParseError> {
    if p.eat_word("true") {
        return Ok(Constant::Bool(true));
    }
    if p.eat_word("false") {
        return Ok(Constant::Bool(false));
    }
    if p.eat_word("any") {
        return p.ahead(|p| {
            p.expect(":")?;
            Ok(Constant::Any(p.dtype()?))
        });
    }
    // The type behind the literal says how to read it.
    let ty = p.ahead(|p| {
        p.float(false)?;
        p.expect(":")?;
        p.dtype()
    })?;
    if ty.is_float() {
        Ok(Constant::Float(p.float(ty == DType::F32)?, ty))
    } else {
        Ok(Constant::Int(p.integer()?, ty))
    }
}

/// The one of `all` whose name comes next.
fn named<T: Copy>(
    p: &mut Parser<'_>,
    what: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, ParseError> {
    let word = p.word(what)?;
    match all.iter().find(|&&op| name(op) == word) {
        Some(&op) => Ok(op),
        None => p.error(format!("`{word}` is not {what}")),
    }
}

/// The operation called `word`, which has been taken, with its attributes and operands.
pub(in crate::ir) fn parse_tile_op(
    word: &str,
    p: &mut Parser<'_>,
) -> Result<(OpKind, Vec<ValueId>), ParseError> {
    let kind = match word {
        "constant" => OpKind::Constant(parse_constant(p)?),
        "param" => OpKind::Param(p.param()?),
        "dim" => OpKind::Dim(p.dim()?),
        "grid" => OpKind::GridIndex(p.axis()?),
        "compare" => {
            let word = p.word("a comparison")?;
            match CompareOp::ALL.into_iter().find(|op| op.name() == word) {
                Some(op) => OpKind::Compare(op),
                None => return p.error(format!("`{word}` is no comparison")),
            }
        }
        "fma" => OpKind::Fma,
        "select" => OpKind::Select,
        "cast" => OpKind::Cast,
        "bitcast" => OpKind::Bitcast,
        "broadcast" => OpKind::Broadcast,
        "reshape" => OpKind::Reshape,
        "permute" => OpKind::Permute(p.numbers()?),
        "slice" => OpKind::Slice(p.numbers()?),
        "iota" => OpKind::Iota,
        "dot" => OpKind::Dot,
        "reduce" => {
            let (op, axis) = parse_reduce(p)?;
            OpKind::Reduce { op, axis }
        }
        "load" => {
            let (mut operands, indices) = parse_access_path(p)?;
            p.expect_word("pad")?;
            operands.push(p.value()?);
            let cache = parse_cache(p);
            return Ok((OpKind::Load { indices, cache }, operands));
        }
        "store" | "scatter" => {
            let (mut operands, indices) = parse_access_path(p)?;
            p.expect("=")?;
            operands.push(p.value()?);
            let cache = parse_cache(p);
            let kind = OpKind::Store {
                indices,
                cache,
                scatter: word == "scatter",
            };
            return Ok((kind, operands));
        }
        "atomic" => {
            let op = parse_atomic(p)?;
            let (mut operands, indices) = parse_access_path(p)?;
            p.expect("=")?;
            operands.extend(p.operands()?);
            return Ok((OpKind::Atomic { op, indices }, operands));
        }
        "arrive" => {
            let (mut operands, indices) = parse_access_path(p)?;
            p.expect_word("of")?;
            operands.push(p.value()?);
            return Ok((OpKind::Arrive { indices }, operands));
        }
        "scan" => {
            let op = named(p, "a scan", &ScanOp::ALL, ScanOp::name)?;
            p.expect_word("axis")?;
            OpKind::Scan {
                op,
                axis: p.integer()?,
            }
        }
        "sort" => OpKind::Sort {
            descending: p.eat_word("descending"),
        },
        "topk" => OpKind::TopK { k: p.integer()? },
        "histogram" => OpKind::Histogram { n: p.integer()? },
        "occurrence" => OpKind::Occurrence,
        "take" => {
            p.expect_word("axis")?;
            OpKind::Take { axis: p.integer()? }
        }
        "concat" => {
            p.expect_word("axis")?;
            OpKind::Concat { axis: p.integer()? }
        }
        "ptx" => OpKind::Ptx { text: p.string()? },
        "cluster" => OpKind::ClusterReduce {
            op: named(p, "a cluster operation", &ClusterOp::ALL, ClusterOp::name)?,
            axis: p.axis()?,
        },
        "view_bitcast" => OpKind::ViewBitcast,
        "debug" => OpKind::Debug { label: p.string()? },
        "if" => OpKind::If,
        "for" => {
            let label = if p.ahead(|p| p.eat("\"")) {
                Some(p.string()?)
            } else {
                None
            };
            OpKind::For {
                label,
                rev: p.eat_word("rev"),
            }
        }
        "while" => OpKind::While,
        "yield" => OpKind::Yield,
        "return" => OpKind::Return,
        "assert" => OpKind::Assert {
            message: p.string()?,
        },
        _ => {
            if let Some(found) = RoleOp::parse(word, p)? {
                return Ok(found);
            }
            if let Some(op) = UnaryOp::ALL.into_iter().find(|op| op.name() == word) {
                OpKind::Unary(op)
            } else if let Some(op) = BinaryOp::ALL.into_iter().find(|op| op.name() == word) {
                OpKind::Binary(op)
            } else {
                return p.error(format!("`{word}` is no operation"));
            }
        }
    };
    Ok((kind, p.operands()?))
}

impl Type {
    pub(in crate::ir) fn parse(p: &mut Parser<'_>) -> Result<Type, ParseError> {
        if p.eat_word("tile") {
            p.expect("<")?;
            let elem = p.dtype()?;
            p.expect(">")?;
            return Ok(Type::tile(elem, p.numbers()?));
        }
        if p.eat_word("pending") {
            p.expect("<")?;
            let elem = p.dtype()?;
            p.expect(">")?;
            let shape = p.numbers()?;
            return Ok(Type::Pending(TileType { elem, shape }));
        }
        let access = p.access();
        if p.eat_word("view") {
            p.expect("<")?;
            let elem = p.dtype()?;
            p.expect(">")?;
            p.expect("[")?;
            let mut rank = 0;
            while !p.eat("]") {
                if rank > 0 {
                    p.expect(",")?;
                }
                p.expect("?")?;
                rank += 1;
            }
            return Ok(Type::View(ViewType { elem, rank, access }));
        }
        Ok(Type::Scalar(p.dtype()?))
    }
}

/// The name of an atomic operation.
pub(in crate::ir) fn parse_atomic(p: &mut Parser<'_>) -> Result<AtomicOp, ParseError> {
    named(p, "an atomic operation", &AtomicOp::ALL, AtomicOp::name)
}
