//! The operations of role IR: those of tile IR, some of them with what the target needs to know.

use super::{BufferId, ChannelId, MapId};
use crate::{ir::tile, layout::fragments::MmaShape};

/// What an operation does, with its attributes. Operands and results are as in tile IR where nothing is said.
#[derive(Clone, Debug, PartialEq)]
pub enum OpKind {
    /// All of tile IR but `load`, `store`, `atomic`, `arrive`, `reduce`, `dot`, and what always goes
    /// [through](OpKind::Through) scratch.
    Tile(tile::OpKind),
    /// As in tile IR. `width` neighbouring elements along the last dimension are fetched by one access: they lie in
    /// `width` consecutive registers, and alignment is proven. Index tiles lie as the result does along the dimension that
    /// they index.
    Load {
        indices: Vec<tile::Index>,
        cache: tile::Cache,
        width: u32,
    },
    /// As in tile IR, with `width` as above.
    Store {
        indices: Vec<tile::Index>,
        cache: tile::Cache,
        width: u32,
    },
    /// As in tile IR, by one thread an element. Where the old values are used, `scratch` passes them to the threads that hold
    /// replicas; it owns the barriers that this needs, before and after.
    Atomic {
        op: tile::AtomicOp,
        indices: Vec<tile::Index>,
        scratch: Option<BufferId>,
    },
    /// As in tile IR: all threads meet, one counts, and `scratch` passes on whether this block is the last. It owns the
    /// barriers that this needs.
    Arrive {
        indices: Vec<tile::Index>,
        scratch: Option<BufferId>,
    },
    /// As in tile IR: within threads, then by shuffles over lanes, then through `scratch` over warps. It owns the
    /// barriers that `scratch` needs, before and after its use.
    Reduce {
        op: tile::ReduceOp,
        axis: Option<u32>,
        scratch: Option<BufferId>,
    },
    /// `t -> t` of another layout: through `scratch`, with the barriers that it needs before and after, or by moving
    /// registers if there is none.
    Convert { scratch: Option<BufferId> },
    /// `op` of tile IR, one that moves elements between threads ([`goes_through`]): through `scratch`, with the barriers
    /// that it needs before and after. A scan within a warp has none.
    Through {
        op: tile::OpKind,
        scratch: Option<BufferId>,
    },
    /// As in tile IR. Accumulator and result have one layout; the operands have those that
    /// [`fragments`](crate::layout::fragments) derives from it for the strategy.
    Dot { strategy: Strategy },
    /// `view, index operands…, slot, live`: begins to copy the slice of the view to tile `tile` of slot `slot`. Where
    /// `live`, a `bool`, is false, or outside the view, zeros are written and nothing is read. `width` neighbouring
    /// elements are copied at once (4, 8 or 16 bytes); alignment is proven. The indices have two extents, those of the
    /// tile's shape, the last dimension's index among them; or one, that of a tile of one row, which may run along any dimension.
    CopyAsync {
        channel: ChannelId,
        tile: u32,
        indices: Vec<tile::Index>,
        width: u32,
    },
    /// As `copy_async`, through registers: it has copied when it ends. Others see it after the next `barrier`. `width`
    /// neighbouring elements are loaded at once, of any size up to 16 bytes.
    Copy {
        channel: ChannelId,
        tile: u32,
        indices: Vec<tile::Index>,
        width: u32,
    },
    /// `view, index operands…, slot`: begins to copy pieces of 16 bytes of each row, from the element on that the indices say, to slot `slot` of
    /// a ring of one tile of such rows, without barriers. Of them, what lies outside the view is 0; they are aligned. The indices have one
    /// extent, and end with a scalar. Who has waited reads them with [`CopyColumn`](OpKind::CopyColumn).
    FetchColumns {
        channel: ChannelId,
        indices: Vec<tile::Index>,
    },
    /// `slot, from, column`: copies a column of slot `from` of `stage` to tile `tile` of the slot, which is one row.
    CopyColumn {
        channel: ChannelId,
        tile: u32,
        stage: ChannelId,
    },
    /// What each thread has begun to copy since the last of these is one group.
    CommitCopies,
    /// Each thread waits until at most `pending` of its newest groups are on their way. Others see what it copied after
    /// the next `barrier`.
    WaitCopies { pending: u32 },
    /// `t, slot`: writes a tile to slot `slot`: element `(i, j)` is element `(offsets[0] + i, offsets[1] + j)` of tile `tile`. Others see it
    /// after the next `barrier`.
    WriteShared {
        channel: ChannelId,
        tile: u32,
        offsets: [u32; 2],
    },
    /// `slot -> t`: element `(i, j)` of the result is element `(offsets[0] + i, offsets[1] + j)` of tile `tile` of that
    /// slot; `(offsets[0] + j, offsets[1] + i)` if `transposed`. The elements of a whole tile of e2m1 become those of the result, of 16 bits.
    ReadShared {
        channel: ChannelId,
        tile: u32,
        offsets: [u32; 2],
        transposed: bool,
    },
    /// All threads of the role arrive and see each other's stores.
    Barrier,
    /// `-> i64`: 0 in the role whose body this is, 1 in the one that is [like](super::Like) it.
    Replica,

    /// `slot, phase`: waits until the slot is full in that phase. Bulk copies and products that follow see what threads have copied to it.
    WaitFull { channel: ChannelId },
    /// `slot, phase`: waits until the slot is empty again, as its filler in that phase; at once in the first round.
    WaitEmpty { channel: ChannelId },
    /// `slot`: one thread arrives at the slot's full barrier and expects so many bytes of bulk copies, those of other blocks among them.
    ExpectBytes { channel: ChannelId, bytes: u32 },
    /// `slot, coordinates…`: one thread begins a bulk copy of the map's box, which lies at these coordinates (`i32`, the innermost first), to
    /// tile `tile` of the slot, `offset` bytes into it; its bytes count at the slot's full barrier. What lies outside the view is 0.
    /// `multicast`: in all blocks of the cluster alike.
    CopyBulk {
        channel: ChannelId,
        tile: u32,
        map: MapId,
        offset: u32,
        multicast: bool,
        cache: tile::Cache,
    },
    /// Roles take turns: the role waits until it is its turn. So many warps meet there, its own and those of the role that passes on to it.
    TakeTurn { warps: u32 },
    /// It is the turn of that role, by its number among all. Where that is an earlier one, it is its turn at the beginning too.
    PassTurn { to: u32, warps: u32 },
    /// `slot, begin, end`: the role's threads write zeros to rows `begin` to `end` of tile `tile` (`i32`; none if `end` is not above `begin`).
    ClearRows { channel: ChannelId, tile: u32 },
    /// `slot`: the role's warps have filled it from registers, and say so; what they wrote can be read by bulk copies and products.
    ArriveFull { channel: ChannelId },
    /// `slot`: each of the role's threads says that the slot is full as soon as the [`CopyAsync`](OpKind::CopyAsync) that it has begun so far
    /// have ended; it does not wait.
    ArriveCopied { channel: ChannelId },
    /// `slot, after?`: the role's warps have read it, and say so, in all blocks of the cluster where the channel lies across them; not before
    /// the tile `after` (f32) is there.
    ArriveEmpty { channel: ChannelId },
    /// `a, b, acc, accumulate -> t`: begins a product of a warpgroup's kind (`wgmma`), all steps along K as one group; `accumulate`, a `bool`,
    /// is false where `acc` counts as 0. An operand is a slot (`i32`), or of the left one a tile in registers; f32 in a slot is read as
    /// tf32. The result may be used after
    /// [`OpKind::WaitProducts`] only, or as the `acc` of the next product.
    Product {
        a: ProductOperand,
        b: ProductOperand,
        /// The warpgroups divide the result's columns, not its rows.
        columns: bool,
    },
    /// `t… -> t…`: waits until at most `pending` groups of products are in flight; the tiles are all that have been begun and not been waited
    /// for, and can be used afterwards if their group is over.
    WaitProducts { pending: u32 },
    /// `slot, coordinates…`: one thread begins a bulk copy of tile `tile` of the slot to the map's box at these coordinates; what lies outside
    /// the view is dropped. One group each.
    StoreBulk {
        channel: ChannelId,
        tile: u32,
        map: MapId,
        offset: u32,
    },
    /// The thread that stores waits until at most `pending` of its bulk stores have not `read` their slots yet, or not ended.
    WaitStores { pending: u32, read: bool },
}

/// An operand of a warpgroup's product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProductOperand {
    /// Tile `tile` of a channel's slot; `transposed`: in memory, rows are what the product takes as columns.
    Slot {
        channel: ChannelId,
        tile: u32,
        /// `None`: all of the tile.
        part: Option<SlotPart>,
        transposed: bool,
    },
    Registers,
}

/// A part of a tile in a slot, in terms of its rows and columns in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotPart {
    pub offsets: [u32; 2],
    pub shape: [u32; 2],
}

impl SlotPart {
    /// What `part` of a tile is, in bytes from its first one on and in rows and columns, if the products of warpgroups can begin there.
    /// `along_rows`: K is along the rows.
    pub fn of(
        part: Option<SlotPart>,
        tile: &super::SharedTile,
        along_rows: bool,
    ) -> Option<(u32, [u32; 2])> {
        let Some(SlotPart { offsets, shape }) = part else {
            return Some((0, tile.shape));
        };
        let inside = (0..2).all(|d| {
            offsets[d]
                .checked_add(shape[d])
                .is_some_and(|end| end <= tile.shape[d])
        });
        let layout = &tile.layout;
        let at = offsets[1].checked_mul(tile.elem.bits() / 8)?;
        // Rows are swizzled in eights; an instruction takes whole panels where K is along the rows, and steps of 32 bytes else.
        let step = if along_rows { layout.pitch } else { 32 };
        let begins = inside
            && layout.is_swizzled()
            && offsets[0].is_multiple_of(8)
            && at.is_multiple_of(step);
        begins.then(|| {
            let panel = at / layout.pitch * layout.panel_bytes();
            let byte = panel + offsets[0] * layout.pitch + at % layout.pitch;
            (byte, shape)
        })
    }
}

/// Whether an operation of tile IR always goes through scratch. `slice` and `reshape` may where layouts do not allow less.
pub fn goes_through(op: &tile::OpKind) -> bool {
    matches!(
        op,
        tile::OpKind::Scan { .. }
            | tile::OpKind::Sort { .. }
            | tile::OpKind::Histogram { .. }
            | tile::OpKind::Take { .. }
            | tile::OpKind::Concat { .. }
            | tile::OpKind::ClusterReduce { .. }
    )
}

/// How a product is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// By warps, with `mma.sync` of this shape; K is a multiple of its depth.
    MmaSync(MmaShape),
    /// By threads, with multiplications and additions in the accumulator's type.
    Fma,
}
