//! The operations of tile IR.
//!
//! Each kind says its operands and results in the form `operands -> results`. `s` is a scalar, `t` a tile, `x` either.
//! Elementwise operations take operands of one shape and, but for `select`'s condition, one element type: sema inserts
//! `broadcast` and `cast`. Nothing here has a side effect but `store`, `assert` and the terminators; a `load` from a
//! view that the kernel also stores to is ordered with those stores by its place.

use super::Constant;

/// What an operation does, with its attributes.
#[derive(Clone, Debug, PartialEq)]
pub enum OpKind {
    /// `-> s`
    Constant(Constant),
    /// `-> s | view`: parameter `signature.params[i]`.
    Param(u32),
    /// `-> i64`: the extent of dimension `signature.dims[i]`.
    Dim(u32),
    /// `-> i64`: this block's index on axis `header.axes[i]`.
    GridIndex(u32),

    /// `x -> x`
    Unary(UnaryOp),
    /// `x, x -> x`
    Binary(BinaryOp),
    /// `x, x -> bool`
    Compare(CompareOp),
    /// `a, b, c -> a * b + c`, rounded once.
    Fma,
    /// `bool, x, x -> x`: never lets the other side's NaN through.
    Select,
    /// `x -> x` of the result's element type, by the rules of the language's casts.
    Cast,
    /// `x -> x` of the result's element type, of the same width: the bits stay.
    Bitcast,

    /// `x -> t`: to the result's shape, as NumPy does (dimensions are aligned at the end; 1 stretches).
    Broadcast,
    /// `t -> x`: to the result's shape, row-major; to a scalar if the tile has one element.
    Reshape,
    /// `t -> t`: dimension `i` of the result is dimension `perm[i]` of the operand.
    Permute(Vec<u32>),
    /// `t -> t`: `shape[i]` elements from `offsets[i]` on, the shape being the result's.
    Slice(Vec<u32>),
    /// `-> t`: the row-major index of each element, in the result's integer type.
    Iota,
    /// `t -> t | s`: drops `axis`; of everything, to a scalar, if it is `None`. `argmax` and `argmin` give `i32`
    /// (`i64` as a scalar), `sum` of narrow floats `f32`, of `bool` a count in `i32` (`i64` as a scalar).
    Reduce { op: ReduceOp, axis: Option<u32> },
    /// `a [M, K], b [K, N], acc [M, N] -> [M, N]`: `acc` plus the matrix product, of `acc`'s type. Each element is summed
    /// in an order of the compiler's choosing, in at least the precision of `acc`.
    Dot,

    /// `view, index operands…, pad -> t | s`: what lies outside the view (or past a limit) reads as `pad`.
    Load { indices: Vec<Index>, cache: Cache },
    /// `view, index operands…, x`: what lies outside the view (or past a limit) is dropped.
    Store { indices: Vec<Index>, cache: Cache },

    /// `cond, -> results`: two regions without arguments, each ended by `yield` of the results.
    If,
    /// `lo, hi, step, inits… -> finals…`: one region with arguments `index, carried…`, ended by `yield` of the carried.
    /// The step is positive; `rev` runs the same indices in the opposite order.
    For { label: Option<String>, rev: bool },
    /// `inits… -> finals…`: the first region has arguments `carried…` and ends in `yield cond`, the second has arguments
    /// `carried…` and ends in `yield carried…`.
    While,
    /// `values…`: ends a region.
    Yield,
    /// Ends the root region.
    Return,
    /// `cond`: an error of the program if it is false, with this text; checked by the interpreter and debug builds.
    Assert { message: String },
}

impl OpKind {
    /// Whether each element of the result comes from those at its place in the operands.
    pub fn is_elementwise(&self) -> bool {
        matches!(
            self,
            OpKind::Unary(_)
                | OpKind::Binary(_)
                | OpKind::Compare(_)
                | OpKind::Fma
                | OpKind::Select
                | OpKind::Cast
                | OpKind::Bitcast
        )
    }
}

/// How one dimension of a view is indexed, in order of the view's dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Index {
    /// One operand, an `i64` scalar: drops the dimension.
    Scalar,
    /// `start +: len`, perhaps `until limit`: one operand, or two. Keeps a dimension of `len`.
    Range { len: u32, until: bool },
    /// No operand: the whole dimension, whose extent is the constant `len`.
    Whole { len: u32 },
}

impl Index {
    /// How many operands it takes.
    pub fn operands(self) -> usize {
        match self {
            Index::Whole { .. } => 0,
            Index::Scalar | Index::Range { until: false, .. } => 1,
            Index::Range { until: true, .. } => 2,
        }
    }

    /// The extent of the dimension that it leaves in the tile.
    pub fn extent(self) -> Option<u32> {
        match self {
            Index::Scalar => None,
            Index::Range { len, .. } | Index::Whole { len } => Some(len),
        }
    }
}

/// A hint on what becomes of the cache lines touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cache {
    #[default]
    Normal,
    EvictFirst,
    EvictLast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    Neg,
    /// Bits of an integer; the opposite of a `bool`.
    Not,
    Abs,
    Exp,
    Exp2,
    Log,
    Log2,
    Sqrt,
    Rsqrt,
    Rcp,
    Tanh,
    Erf,
    Sigmoid,
    Sin,
    Cos,
    Floor,
    Ceil,
    /// To the nearest, ties to even.
    Round,
    Popcount,
    Clz,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    /// A product that is rounded by itself: never contracted.
    MulExact,
    /// The high half of the integer product.
    MulHi,
    /// Integers round down.
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    Sum,
    Max,
    Min,
    Any,
    All,
    ArgMax,
    ArgMin,
}
