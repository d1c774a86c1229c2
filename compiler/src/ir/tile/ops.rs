//! The operations of tile IR.
//!
//! Each kind says its operands and results in the form `operands -> results`. `s` is a scalar, `t` a tile, `x` either.
//! Elementwise operations take operands of one shape and, but for `select`'s condition, one element type: sema inserts
//! `broadcast` and `cast`. Nothing here has a side effect but `store`, `atomic`, `arrive`, `assert`, `debug` and the
//! terminators; a `load` from a view that the kernel also stores to is ordered with those by its place.
//!
//! A view is a parameter, or one seen with other elements: parts of views, transposed, split, paged ones and those with a
//! layout are resolved before, to indices of the parameter.

use cranelift_entity::entity_impl;

use super::Constant;
use crate::span::Span;

/// A channel of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(u32);
entity_impl!(ChannelId, "channel");

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
    /// `x -> x` of the result's element type, by the rules of the language's casts. At the role level also `t -> pending` of the same type: a
    /// product that is over.
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
    /// `a […, M, K], b […, K, N], acc […, M, N] -> […, M, N]`: `acc` plus the matrix product, of `acc`'s type, for each
    /// index of the leading dimensions, which are the same in all. Each element is summed in an order of the compiler's
    /// choosing, in at least the precision of `acc`.
    Dot,
    /// `t -> t`: element j is the sum (or maximum) of those up to and with j along `axis`. Types as for `reduce`.
    Scan { op: ScanOp, axis: u32 },
    /// `keys, payloads… -> keys, payloads…`, all of one shape: ordered along the last axis, stable, NaN at the end.
    Sort { descending: bool },
    /// `t -> values, indices`: the `k` largest along the last axis, the largest first, ties by lower index, NaN last; the
    /// indices are `i32`.
    TopK { k: u32 },
    /// `t -> i32 [n]`: how many elements equal each of 0..n; others count nowhere.
    Histogram { n: u32 },
    /// `t -> i32 t`: how many equal elements stand before each one, in row-major order.
    Occurrence,
    /// `x, index -> t`: element `[…, j, …]` of the result is element `[…, index[…, j, …], …]` of `x`, where j stands at
    /// `axis`; 0 if the index is outside. All other dimensions are the same; the index is `i32` or `i64`.
    Take { axis: u32 },
    /// `a, b -> t`: b behind a along `axis`.
    Concat { axis: u32 },
    /// `x…, meaning -> x`: an instruction for each element, `$0` its result and `$1…` its operands; `meaning` is what it
    /// gives in the interpreter and where the instruction does not exist. All of one shape.
    Ptx { text: String },
    /// `x -> x`: over the blocks of the cluster that differ in grid axis `axis`, elementwise. Every block reaches it.
    ClusterReduce { op: ClusterOp, axis: u32 },

    /// `view -> view`: the same memory as elements of the result's type, which rescale the last dimension.
    ViewBitcast,

    /// `view, index operands…, pad -> t | s`: what lies outside the view (or past a limit) reads as `pad`.
    Load { indices: Vec<Index>, cache: Cache },
    /// `view, index operands…, x`: what lies outside the view (or past a limit) is dropped. `scatter`: the author promises
    /// that what is stored differs between blocks and within the tile.
    Store {
        indices: Vec<Index>,
        cache: Cache,
        scatter: bool,
    },
    /// `view, index operands…, x -> x` (`cas`: `…, expected, x -> x`): each element is replaced by `op` of it and x, in
    /// one step; gives what was there before, 0 outside.
    Atomic { op: AtomicOp, indices: Vec<Index> },
    /// `view, index scalars…, n -> bool`: this block's earlier stores happen before; counts, and is true in the n-th block
    /// to arrive, which sees the stores of all n and leaves the counter at 0.
    Arrive { indices: Vec<Index> },

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
    /// `x`: prints it, with this text before.
    Debug { label: String },

    /// What stands at the role level only.
    Role(RoleOp),
}

/// Operations of the role level: roles, what passes between them, and products that are in flight.
///
/// All but `roles` and `require` stand in a region of `roles`. A slot that is held is read through the tiles that `get` gave, which are
/// values like others: products read them in place, transposed by `permute` too.
#[derive(Clone, Debug, PartialEq)]
pub enum RoleOp {
    /// A region without arguments for each role, in the order written, ended by `yield` of nothing. They run at once; values defined before
    /// are seen in all, and each role computes the same. Stands once, at the end of the root region, before `return`.
    Roles(Vec<RoleHead>),
    /// `for each source its operands…, at…`: waits for the next free slot and fills it (or the part of it that begins `at`). Elements of
    /// slices that lie outside their view are 0.
    Put {
        channel: ChannelId,
        /// One for each tile of the payload, in order.
        sources: Vec<PutSource>,
        /// The sources are a part of the payload's one tile, at these coordinates, one `i64` operand a dimension: constants, or multiples of
        /// an index of a cluster axis.
        part: bool,
        /// The last operand is a tile that `get` gave, of a channel that this one lies over: the slot is written in place and handed on.
        within: bool,
    },
    /// `-> t…`: waits for the next slot, and gives its tiles.
    Get { channel: ChannelId },
    /// Gives back the oldest slot that the role holds, once the products that read it are over: at the next `await` of those or later ones,
    /// or as soon as no more than `lag` newer products are in flight.
    Release {
        channel: ChannelId,
        lag: Option<u32>,
    },
    /// `a [M, K], b [K, N], acc? [M, N] -> pending`: begins `acc` plus the product; `acc` is a tile or pending, and nothing is 0. Products of a
    /// role end in the order in which they begin.
    Mma,
    /// `pending -> t`: waits for it and all before it; `lag`, what the author says may stay in flight.
    Await { lag: Option<u32> },
    /// `cond -> results`: a region without arguments, ended by `yield` of the results. Replicas pass one at a time, the first of them first,
    /// where `cond` holds.
    Pingpong,
    /// For the rest of the block, what does not use this is an error.
    Require(Feature),
}

impl RoleOp {
    pub fn name(&self) -> &'static str {
        match self {
            RoleOp::Roles(_) => "roles",
            RoleOp::Put { .. } => "put",
            RoleOp::Get { .. } => "get",
            RoleOp::Release { .. } => "release",
            RoleOp::Mma => "mma",
            RoleOp::Await { .. } => "await",
            RoleOp::Pingpong => "pingpong",
            RoleOp::Require(_) => "require",
        }
    }
}

/// One role, or one replica of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RoleHead {
    /// As written: `math`.
    pub name: String,
    /// 0 but for replicas, which stand next to each other: `math[1]`.
    pub replica: u32,
    pub replicas: u32,
    /// Warps; a multiple of 4 for whole warpgroups.
    pub warps: u32,
    /// Written in warpgroups, not in warps.
    pub groups: bool,
    /// Its warpgroups divide this axis of its tiles.
    pub split: Option<u32>,
    /// Registers of a thread.
    pub registers: Option<u32>,
}

/// What one tile of a slot is filled with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PutSource {
    /// `view, index operands…`, as of a `load` that pads with 0: a bulk copy, copies of threads, or through registers.
    Slice { indices: Vec<Index>, cache: Cache },
    /// `t`: from registers. Of a pending tile, the slot is full when the product ends.
    Value,
}

/// What `require` can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    Bulk,
    CpAsync,
    MmaSync,
    Wgmma,
    Tcgen05,
}

/// A channel: a ring of slots that pass tiles from one role to others, first in, first out.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// As written, with its index in an array: `ring[1]`.
    pub name: String,
    pub tiles: Vec<super::TileType>,
    /// Slots.
    pub depth: u32,
    /// It has no slots of its own: those of this one are handed on.
    pub over: Option<ChannelId>,
    /// The axis of the grid, a cluster's, in each of whose blocks a slot exists.
    pub across: Option<u32>,
    /// Its tiles are accumulators in tensor memory.
    pub tensor_memory: bool,
    pub span: Span,
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
                | OpKind::Ptx { .. }
        )
    }
}

/// How one dimension of a view is indexed, in order of the view's dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Index {
    /// One operand, an `i64` scalar: drops the dimension.
    Scalar,
    /// `start +: len`, perhaps `from` a lower and `until` an upper limit, in this order: one to three operands. Elements
    /// below the lower or not below the upper limit are outside. Keeps a dimension of `len`.
    Range { len: u32, from: bool, until: bool },
    /// No operand: the whole dimension, whose extent is the constant `len`.
    Whole { len: u32 },
    /// One operand, a tile `[len]` of `i32` or `i64`: the elements with these indices. Keeps a dimension of `len`, but for
    /// `joined`: then it runs along with the index tile before it, and the two leave one dimension.
    Gather { len: u32, joined: bool },
}

impl Index {
    /// How many operands it takes.
    pub fn operands(self) -> usize {
        match self {
            Index::Whole { .. } => 0,
            Index::Scalar | Index::Gather { .. } => 1,
            Index::Range { from, until, .. } => 1 + usize::from(from) + usize::from(until),
        }
    }

    /// The extent of the dimension that it leaves in the tile.
    pub fn extent(self) -> Option<u32> {
        match self {
            Index::Scalar | Index::Gather { joined: true, .. } => None,
            Index::Range { len, .. } | Index::Whole { len } | Index::Gather { len, .. } => {
                Some(len)
            }
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanOp {
    Sum,
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    Add,
    Max,
    Min,
    And,
    Or,
    Xor,
    /// Replaced only where it equals what is expected.
    Cas,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterOp {
    Sum,
    Max,
    Min,
    /// The sum over the blocks of lower rank.
    Before,
}
