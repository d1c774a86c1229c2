//! The textual form of tile operations and types.

use std::fmt;

use super::{
    AtomicOp, BinaryOp, Cache, ClusterOp, CompareOp, Constant, Index, Kernel, OpKind, ReduceOp,
    ScanOp, Type, UnaryOp, parse_tile_op,
};
use crate::ir::{
    Op, ValueId,
    text::{Dialect, ParseError, Parser, Printer, access},
};

impl UnaryOp {
    pub const ALL: [UnaryOp; 20] = [
        UnaryOp::Neg,
        UnaryOp::Not,
        UnaryOp::Abs,
        UnaryOp::Exp,
        UnaryOp::Exp2,
        UnaryOp::Log,
        UnaryOp::Log2,
        UnaryOp::Sqrt,
        UnaryOp::Rsqrt,
        UnaryOp::Rcp,
        UnaryOp::Tanh,
        UnaryOp::Erf,
        UnaryOp::Sigmoid,
        UnaryOp::Sin,
        UnaryOp::Cos,
        UnaryOp::Floor,
        UnaryOp::Ceil,
        UnaryOp::Round,
        UnaryOp::Popcount,
        UnaryOp::Clz,
    ];

    pub fn name(self) -> &'static str {
        match self {
            UnaryOp::Neg => "neg",
            UnaryOp::Not => "not",
            UnaryOp::Abs => "abs",
            UnaryOp::Exp => "exp",
            UnaryOp::Exp2 => "exp2",
            UnaryOp::Log => "log",
            UnaryOp::Log2 => "log2",
            UnaryOp::Sqrt => "sqrt",
            UnaryOp::Rsqrt => "rsqrt",
            UnaryOp::Rcp => "rcp",
            UnaryOp::Tanh => "tanh",
            UnaryOp::Erf => "erf",
            UnaryOp::Sigmoid => "sigmoid",
            UnaryOp::Sin => "sin",
            UnaryOp::Cos => "cos",
            UnaryOp::Floor => "floor",
            UnaryOp::Ceil => "ceil",
            UnaryOp::Round => "round",
            UnaryOp::Popcount => "popcount",
            UnaryOp::Clz => "clz",
        }
    }
}

impl BinaryOp {
    pub const ALL: [BinaryOp; 14] = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::MulExact,
        BinaryOp::MulHi,
        BinaryOp::Div,
        BinaryOp::Rem,
        BinaryOp::Min,
        BinaryOp::Max,
        BinaryOp::And,
        BinaryOp::Or,
        BinaryOp::Xor,
        BinaryOp::Shl,
        BinaryOp::Shr,
    ];

    pub fn name(self) -> &'static str {
        match self {
            BinaryOp::Add => "add",
            BinaryOp::Sub => "sub",
            BinaryOp::Mul => "mul",
            BinaryOp::MulExact => "mul_exact",
            BinaryOp::MulHi => "mul_hi",
            BinaryOp::Div => "div",
            BinaryOp::Rem => "rem",
            BinaryOp::Min => "min",
            BinaryOp::Max => "max",
            BinaryOp::And => "and",
            BinaryOp::Or => "or",
            BinaryOp::Xor => "xor",
            BinaryOp::Shl => "shl",
            BinaryOp::Shr => "shr",
        }
    }
}

impl CompareOp {
    pub const ALL: [CompareOp; 6] = [
        CompareOp::Eq,
        CompareOp::Ne,
        CompareOp::Lt,
        CompareOp::Le,
        CompareOp::Gt,
        CompareOp::Ge,
    ];

    pub fn name(self) -> &'static str {
        match self {
            CompareOp::Eq => "eq",
            CompareOp::Ne => "ne",
            CompareOp::Lt => "lt",
            CompareOp::Le => "le",
            CompareOp::Gt => "gt",
            CompareOp::Ge => "ge",
        }
    }
}

impl ReduceOp {
    pub const ALL: [ReduceOp; 7] = [
        ReduceOp::Sum,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::Any,
        ReduceOp::All,
        ReduceOp::ArgMax,
        ReduceOp::ArgMin,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Any => "any",
            ReduceOp::All => "all",
            ReduceOp::ArgMax => "argmax",
            ReduceOp::ArgMin => "argmin",
        }
    }
}

impl ScanOp {
    pub const ALL: [ScanOp; 2] = [ScanOp::Sum, ScanOp::Max];

    pub fn name(self) -> &'static str {
        match self {
            ScanOp::Sum => "sum",
            ScanOp::Max => "max",
        }
    }
}

impl AtomicOp {
    pub const ALL: [AtomicOp; 7] = [
        AtomicOp::Add,
        AtomicOp::Max,
        AtomicOp::Min,
        AtomicOp::And,
        AtomicOp::Or,
        AtomicOp::Xor,
        AtomicOp::Cas,
    ];

    pub fn name(self) -> &'static str {
        match self {
            AtomicOp::Add => "add",
            AtomicOp::Max => "max",
            AtomicOp::Min => "min",
            AtomicOp::And => "and",
            AtomicOp::Or => "or",
            AtomicOp::Xor => "xor",
            AtomicOp::Cas => "cas",
        }
    }
}

impl ClusterOp {
    pub const ALL: [ClusterOp; 4] = [
        ClusterOp::Sum,
        ClusterOp::Max,
        ClusterOp::Min,
        ClusterOp::Before,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ClusterOp::Sum => "sum",
            ClusterOp::Max => "max",
            ClusterOp::Min => "min",
            ClusterOp::Before => "before",
        }
    }
}

impl Cache {
    pub const ALL: [Cache; 3] = [Cache::Normal, Cache::EvictFirst, Cache::EvictLast];

    pub fn name(self) -> &'static str {
        match self {
            Cache::Normal => "normal",
            Cache::EvictFirst => "evict_first",
            Cache::EvictLast => "evict_last",
        }
    }
}

/// `%v[%i, %j +: 64 from %a until %n, .. 8, at %t +: 4, with %u]` and how many operands that took. Prints what it can of a malformed operation.
pub(in crate::ir) fn access_path(
    out: &mut Printer<'_>,
    operands: &[ValueId],
    indices: &[Index],
) -> usize {
    out.write(" ");
    let mut next = 0;
    let mut operand = |out: &mut Printer<'_>| {
        match operands.get(next) {
            Some(&value) => out.value(value),
            None => out.write("%?"),
        }
        next += 1;
    };
    operand(out);
    out.write("[");
    for (i, index) in indices.iter().enumerate() {
        if i > 0 {
            out.write(", ");
        }
        match index {
            Index::Scalar => operand(out),
            Index::Range { len, from, until } => {
                operand(out);
                write!(out, " +: {len}");
                if *from {
                    out.write(" from ");
                    operand(out);
                }
                if *until {
                    out.write(" until ");
                    operand(out);
                }
            }
            Index::Whole { len } => write!(out, ".. {len}"),
            Index::Gather { len, joined } => {
                out.write(if *joined { "with " } else { "at " });
                operand(out);
                write!(out, " +: {len}");
            }
        }
    }
    out.write("]");
    next
}

/// ` pad %x` or ` = %x`, and a cache hint.
pub(in crate::ir) fn access_rest(
    out: &mut Printer<'_>,
    word: &str,
    rest: Option<&[ValueId]>,
    cache: Cache,
) {
    write!(out, " {word}");
    match rest {
        Some(rest) if !rest.is_empty() => out.operands(rest),
        _ => out.write(" %?"),
    }
    if cache != Cache::Normal {
        write!(out, " {}", cache.name());
    }
}

/// `sum`, `sum axis 1`
pub(in crate::ir) fn reduce_attributes(out: &mut Printer<'_>, op: ReduceOp, axis: Option<u32>) {
    write!(out, "reduce {}", op.name());
    if let Some(axis) = axis {
        write!(out, " axis {axis}");
    }
}

impl OpKind {
    /// Name, attributes and operands; role IR prints its tile operations so too.
    pub(in crate::ir) fn print(&self, operands: &[ValueId], out: &mut Printer<'_>) {
        match self {
            OpKind::Constant(constant) => {
                out.write("constant ");
                match *constant {
                    Constant::Int(value, _) => write!(out, "{value}"),
                    Constant::Float(value, ty) => out.float(value, ty),
                    Constant::Bool(value) => write!(out, "{value}"),
                    Constant::Any(_) => write!(out, "any"),
                }
            }
            OpKind::Param(index) => {
                out.write("param ");
                out.param(*index);
            }
            OpKind::Dim(index) => {
                out.write("dim ");
                out.dim(*index);
            }
            OpKind::GridIndex(index) => {
                out.write("grid ");
                out.axis(*index);
            }
            OpKind::Unary(op) => out.write(op.name()),
            OpKind::Binary(op) => out.write(op.name()),
            OpKind::Compare(op) => write!(out, "compare {}", op.name()),
            OpKind::Fma => out.write("fma"),
            OpKind::Select => out.write("select"),
            OpKind::Cast => out.write("cast"),
            OpKind::Bitcast => out.write("bitcast"),
            OpKind::Broadcast => out.write("broadcast"),
            OpKind::Reshape => out.write("reshape"),
            OpKind::Permute(perm) => write!(out, "permute {perm:?}"),
            OpKind::Slice(offsets) => write!(out, "slice {offsets:?}"),
            OpKind::Iota => out.write("iota"),
            OpKind::Reduce { op, axis } => reduce_attributes(out, *op, *axis),
            OpKind::Dot => out.write("dot"),
            OpKind::Load { indices, cache } => {
                out.write("load");
                let used = access_path(out, operands, indices);
                access_rest(out, "pad", operands.get(used..), *cache);
                return;
            }
            OpKind::Scan { op, axis } => write!(out, "scan {} axis {axis}", op.name()),
            OpKind::Sort { descending } => {
                out.write(if *descending {
                    "sort descending"
                } else {
                    "sort"
                });
            }
            OpKind::TopK { k } => write!(out, "topk {k}"),
            OpKind::Histogram { n } => write!(out, "histogram {n}"),
            OpKind::Occurrence => out.write("occurrence"),
            OpKind::Take { axis } => write!(out, "take axis {axis}"),
            OpKind::Concat { axis } => write!(out, "concat axis {axis}"),
            OpKind::Ptx { text } => {
                out.write("ptx ");
                out.string(text);
            }
            OpKind::ClusterReduce { op, axis } => {
                write!(out, "cluster {} ", op.name());
                out.axis(*axis);
            }
            OpKind::ViewBitcast => out.write("view_bitcast"),
            OpKind::Atomic { op, indices } => {
                write!(out, "atomic {}", op.name());
                let used = access_path(out, operands, indices);
                access_rest(out, "=", operands.get(used..), Cache::Normal);
                return;
            }
            OpKind::Arrive { indices } => {
                out.write("arrive");
                let used = access_path(out, operands, indices);
                access_rest(out, "of", operands.get(used..), Cache::Normal);
                return;
            }
            OpKind::Store {
                indices,
                cache,
                scatter,
            } => {
                out.write(if *scatter { "scatter" } else { "store" });
                let used = access_path(out, operands, indices);
                access_rest(out, "=", operands.get(used..), *cache);
                return;
            }
            OpKind::If => out.write("if"),
            OpKind::For { label, rev } => {
                out.write("for");
                if let Some(label) = label {
                    out.write(" ");
                    out.string(label);
                }
                if *rev {
                    out.write(" rev");
                }
            }
            OpKind::While => out.write("while"),
            OpKind::Yield => out.write("yield"),
            OpKind::Return => out.write("return"),
            OpKind::Assert { message } => {
                out.write("assert ");
                out.string(message);
            }
            OpKind::Debug { label } => {
                out.write("debug ");
                out.string(label);
            }
            OpKind::Role(op) => {
                op.print(operands, out);
                return;
            }
        }
        out.operands(operands);
    }
}

impl Type {
    pub(in crate::ir) fn print(&self, out: &mut Printer<'_>) {
        write!(out, "{self}");
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Scalar(elem) => write!(f, "{elem}"),
            Type::Tile(tile) => write!(f, "tile<{}>{:?}", tile.elem, tile.shape),
            Type::Pending(tile) => write!(f, "pending<{}>{:?}", tile.elem, tile.shape),
            Type::View(view) => {
                write!(f, "{}view<{}>[", access(view.access), view.elem)?;
                for i in 0..view.rank {
                    f.write_str(if i == 0 { "?" } else { ", ?" })?;
                }
                f.write_str("]")
            }
        }
    }
}

impl Dialect for OpKind {
    type Type = Type;

    fn print_op(op: &Op<OpKind>, out: &mut Printer<'_>) {
        op.kind.print(&op.operands, out);
    }

    fn print_type(ty: &Type, out: &mut Printer<'_>) {
        ty.print(out);
    }

    fn parse_op(p: &mut Parser<'_>) -> Result<(OpKind, Vec<ValueId>), ParseError> {
        let word = p.word("an operation")?;
        parse_tile_op(word, p)
    }

    fn parse_type(p: &mut Parser<'_>) -> Result<Type, ParseError> {
        Type::parse(p)
    }
}

/// The textual form, which [`parse`](super::parse) reads back.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Printer::new(&self.header);
        out.header();
        for (id, channel) in &self.channels {
            channel.print(id, &mut out);
        }
        out.body(&self.body);
        f.write_str(&out.finish())
    }
}
