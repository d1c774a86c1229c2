//! Reading the textual form of role operations, layouts, buffers and roles.

use std::collections::BTreeMap;

use cranelift_entity::PrimaryMap;

use super::{
    Buffer, BufferId, Channel, ChannelId, Fill, Kernel, Like, MapDim, OpKind, ProductOperand,
    RingBarriers, Role, SharedTile, SlotPart, Strategy, TensorMap, Type,
};
use crate::{
    ir::{
        ValueId,
        text::{ParseError, Parser},
        tile::{self, parse_access_path, parse_atomic, parse_cache, parse_reduce, parse_tile_op},
    },
    layout::{fragments::MmaShape, swizzle::SharedLayout},
};

/// Reads one kernel, as its `Display` writes it. What it gives is not verified yet.
pub fn parse(text: &str) -> Result<Kernel, ParseError> {
    let mut p = Parser::new(text);
    p.layouts()?;
    p.header()?;
    let mut buffers = PrimaryMap::new();
    while p.eat_word("buffer") {
        // A buffer may name only itself here, so that they come in order.
        p.buffers += 1;
        let id = p.buffer()?;
        if id != buffers.next_key() {
            return p.error("buffers are numbered from 0 in the order of their declarations");
        }
        p.expect(":")?;
        let bytes = p.integer()?;
        p.expect_word("align")?;
        let align = p.integer()?;
        let offset = if p.eat_word("at") {
            Some(p.integer()?)
        } else {
            None
        };
        buffers.push(Buffer {
            bytes,
            align,
            offset,
        });
    }
    let mut channels = PrimaryMap::new();
    while p.eat_word("channel") {
        p.channels += 1;
        let id = p.channel()?;
        if id != channels.next_key() {
            return p.error("channels are numbered from 0 in the order of their declarations");
        }
        channels.push(parse_channel(&mut p)?);
    }
    let mut maps = PrimaryMap::new();
    while p.eat_word("map") {
        p.maps += 1;
        let id = p.map()?;
        if id != maps.next_key() {
            return p.error("maps are numbered from 0 in the order of their declarations");
        }
        maps.push(parse_map(&mut p)?);
    }
    p.expect_word("shared")?;
    let shared_bytes = p.integer()?;
    let mut roles = Vec::new();
    while !p.at_end() {
        p.expect_word("role")?;
        let name = p.string()?;
        p.expect_word("warps")?;
        let warps = p.integer()?;
        let first_warp = if p.eat_word("from") { p.integer()? } else { 0 };
        let registers = if p.eat_word("registers") {
            Some(p.integer()?)
        } else {
            None
        };
        let mut like = None;
        if p.eat_word("like") {
            let (role, count) = (p.integer()?, p.integer::<u32>()?);
            let mut found = BTreeMap::new();
            for _ in 0..count {
                let own = p.buffer()?;
                p.expect_word("as")?;
                found.insert(own, p.buffer()?);
            }
            like = Some(Like {
                role,
                buffers: found,
            });
        }
        let body = p.body()?;
        roles.push(Role {
            name,
            first_warp,
            warps,
            registers,
            body,
            like,
        });
    }
    Ok(Kernel {
        header: p.into_header(),
        roles,
        buffers,
        channels,
        maps,
        shared_bytes,
    })
}

/// What stands behind a channel's name.
fn parse_channel(p: &mut Parser<'_>) -> Result<Channel, ParseError> {
    p.expect(":")?;
    p.expect_word("depth")?;
    let depth = p.integer()?;
    p.expect_word("fill")?;
    let word = p.word("a way to fill a channel")?;
    let Some(fill) = Fill::ALL.into_iter().find(|f| f.name() == word) else {
        return p.error(format!("`{word}` is no way to fill a channel"));
    };
    p.expect_word("in")?;
    let buffer = p.buffer()?;
    let barriers = if p.eat_word("barriers") {
        let buffer = p.buffer()?;
        p.expect_word("full")?;
        let full = p.integer()?;
        p.expect_word("empty")?;
        let empty = p.integer()?;
        let copied = p.eat_word("copied");
        let blocks = if p.eat_word("blocks") {
            p.integer()?
        } else {
            1
        };
        Some(RingBarriers {
            buffer,
            full,
            empty,
            copied,
            blocks,
        })
    } else {
        None
    };
    let mut tiles = Vec::new();
    while p.eat_word("tile") {
        let elem = p.dtype()?;
        let shape = parse_pair(p)?;
        let mut number = |word: &str| -> Result<u32, ParseError> {
            p.expect_word(word)?;
            p.integer()
        };
        tiles.push(SharedTile {
            elem,
            shape,
            offset: number("at")?,
            layout: SharedLayout {
                rows: number("rows")?,
                pitch: number("pitch")?,
                mask: number("mask")?,
                shift: number("shift")?,
                panels: if p.eat_word("panels") {
                    p.integer()?
                } else {
                    1
                },
            },
        });
    }
    Ok(Channel {
        tiles,
        depth,
        fill,
        buffer,
        barriers,
    })
}

/// What stands behind a map's name.
fn parse_map(p: &mut Parser<'_>) -> Result<TensorMap, ParseError> {
    p.expect(":")?;
    let param = p.param()?;
    let elem = p.dtype()?;
    p.expect_word("swizzle")?;
    let swizzle = p.integer()?;
    let mut dims = Vec::new();
    while p.eat_word("dim") {
        let dim = p.integer()?;
        p.expect_word("step")?;
        let step = p.integer()?;
        let extent = if p.eat_word("extent") {
            Some(p.integer()?)
        } else {
            None
        };
        p.expect_word("box")?;
        dims.push(MapDim {
            dim,
            step,
            extent,
            extent_of_box: p.integer()?,
        });
    }
    Ok(TensorMap {
        param,
        elem,
        dims,
        swizzle,
    })
}

/// `channel0 tile 1 at [0, 64] of [64, 64] transposed`, or `registers`.
fn parse_product_operand(p: &mut Parser<'_>) -> Result<ProductOperand, ParseError> {
    if p.eat_word("registers") {
        return Ok(ProductOperand::Registers);
    }
    let (channel, tile) = parse_channel_tile(p)?;
    let mut part = None;
    if p.eat_word("at") {
        let offsets = parse_pair(p)?;
        p.expect_word("of")?;
        let shape = parse_pair(p)?;
        part = Some(SlotPart { offsets, shape });
    }
    Ok(ProductOperand::Slot {
        channel,
        tile,
        part,
        transposed: p.eat_word("transposed"),
    })
}

fn parse_pair(p: &mut Parser<'_>) -> Result<[u32; 2], ParseError> {
    match p.numbers()?[..] {
        [a, b] => Ok([a, b]),
        _ => p.error("two numbers belong here"),
    }
}

fn parse_strategy(p: &mut Parser<'_>) -> Result<Strategy, ParseError> {
    if p.eat_word("fma") {
        return Ok(Strategy::Fma);
    }
    p.expect_word("mma_sync")?;
    let [m, n, k] = p.numbers()?[..] else {
        return p.error("three numbers belong here");
    };
    let per = if p.eat_word("per") { p.integer()? } else { 2 };
    Ok(Strategy::MmaSync(MmaShape { m, n, k, per }))
}

/// `channel0 tile 1`
fn parse_channel_tile(p: &mut Parser<'_>) -> Result<(ChannelId, u32), ParseError> {
    let channel = p.channel()?;
    p.expect_word("tile")?;
    Ok((channel, p.integer()?))
}

fn parse_scratch(p: &mut Parser<'_>) -> Result<Option<BufferId>, ParseError> {
    if p.eat_word("scratch") {
        Ok(Some(p.buffer()?))
    } else {
        Ok(None)
    }
}

fn parse_width(p: &mut Parser<'_>) -> Result<u32, ParseError> {
    if p.eat_word("width") {
        p.integer()
    } else {
        Ok(1)
    }
}

/// The operation, and its operands.
pub(super) fn parse_op(p: &mut Parser<'_>) -> Result<(OpKind, Vec<ValueId>), ParseError> {
    let word = p.word("an operation")?;
    match word {
        "load" => {
            let (mut operands, indices) = parse_access_path(p)?;
            p.expect_word("pad")?;
            operands.push(p.value()?);
            let cache = parse_cache(p);
            let width = parse_width(p)?;
            let kind = OpKind::Load {
                indices,
                cache,
                width,
            };
            Ok((kind, operands))
        }
        "store" => {
            let (mut operands, indices) = parse_access_path(p)?;
            p.expect("=")?;
            operands.push(p.value()?);
            let cache = parse_cache(p);
            let width = parse_width(p)?;
            let kind = OpKind::Store {
                indices,
                cache,
                width,
            };
            Ok((kind, operands))
        }
        "atomic" => {
            let op = parse_atomic(p)?;
            let scratch = parse_scratch(p)?;
            let (mut operands, indices) = parse_access_path(p)?;
            p.expect("=")?;
            operands.extend(p.operands()?);
            let kind = OpKind::Atomic {
                op,
                indices,
                scratch,
            };
            Ok((kind, operands))
        }
        "arrive" => {
            let scratch = parse_scratch(p)?;
            let (mut operands, indices) = parse_access_path(p)?;
            p.expect_word("of")?;
            operands.push(p.value()?);
            Ok((OpKind::Arrive { indices, scratch }, operands))
        }
        "reduce" => {
            let (op, axis) = parse_reduce(p)?;
            let scratch = parse_scratch(p)?;
            Ok((OpKind::Reduce { op, axis, scratch }, p.operands()?))
        }
        "convert" => {
            let scratch = parse_scratch(p)?;
            Ok((OpKind::Convert { scratch }, p.operands()?))
        }
        "through" => {
            let scratch = parse_scratch(p)?;
            let word = p.word("an operation")?;
            let (op, operands) = parse_tile_op(word, p)?;
            Ok((OpKind::Through { op, scratch }, operands))
        }
        "dot" => {
            let strategy = parse_strategy(p)?;
            Ok((OpKind::Dot { strategy }, p.operands()?))
        }
        "copy" | "copy_async" => {
            let (channel, tile) = parse_channel_tile(p)?;
            let (mut operands, indices) = parse_access_path(p)?;
            p.expect_word("slot")?;
            operands.extend(p.operands()?);
            let width = parse_width(p)?;
            let kind = if word == "copy" {
                OpKind::Copy {
                    channel,
                    tile,
                    indices,
                    width,
                }
            } else {
                OpKind::CopyAsync {
                    channel,
                    tile,
                    indices,
                    width,
                }
            };
            Ok((kind, operands))
        }
        "fetch_columns" => {
            let channel = p.channel()?;
            let (mut operands, indices) = parse_access_path(p)?;
            p.expect_word("slot")?;
            operands.extend(p.operands()?);
            Ok((OpKind::FetchColumns { channel, indices }, operands))
        }
        "copy_column" => {
            let (channel, tile) = parse_channel_tile(p)?;
            p.expect_word("from")?;
            let stage = p.channel()?;
            let kind = OpKind::CopyColumn {
                channel,
                tile,
                stage,
            };
            Ok((kind, p.operands()?))
        }
        "commit_copies" => Ok((OpKind::CommitCopies, Vec::new())),
        "wait_copies" => {
            let pending = p.integer()?;
            Ok((OpKind::WaitCopies { pending }, Vec::new()))
        }
        "write_shared" => {
            let (channel, tile) = parse_channel_tile(p)?;
            let offsets = match p.eat_word("at") {
                true => parse_pair(p)?,
                false => [0, 0],
            };
            let kind = OpKind::WriteShared {
                channel,
                tile,
                offsets,
            };
            Ok((kind, p.operands()?))
        }
        "read_shared" => {
            let (channel, tile) = parse_channel_tile(p)?;
            p.expect_word("at")?;
            let offsets = parse_pair(p)?;
            let transposed = p.eat_word("transposed");
            let kind = OpKind::ReadShared {
                channel,
                tile,
                offsets,
                transposed,
            };
            Ok((kind, p.operands()?))
        }
        "wait_full" => {
            let channel = p.channel()?;
            Ok((OpKind::WaitFull { channel }, p.operands()?))
        }
        "wait_empty" => {
            let channel = p.channel()?;
            Ok((OpKind::WaitEmpty { channel }, p.operands()?))
        }
        "expect_bytes" => {
            let (channel, bytes) = (p.channel()?, p.integer()?);
            Ok((OpKind::ExpectBytes { channel, bytes }, p.operands()?))
        }
        "copy_bulk" | "store_bulk" => {
            let (channel, tile) = parse_channel_tile(p)?;
            p.expect_word("at")?;
            let offset = p.integer()?;
            let map = p.map()?;
            let kind = if word == "copy_bulk" {
                OpKind::CopyBulk {
                    channel,
                    tile,
                    map,
                    offset,
                    multicast: p.eat_word("multicast"),
                    cache: parse_cache(p),
                }
            } else {
                OpKind::StoreBulk {
                    channel,
                    tile,
                    map,
                    offset,
                }
            };
            Ok((kind, p.operands()?))
        }
        "take_turn" => {
            p.expect_word("warps")?;
            let warps = p.integer()?;
            Ok((OpKind::TakeTurn { warps }, Vec::new()))
        }
        "pass_turn" => {
            let to = p.integer()?;
            p.expect_word("warps")?;
            let warps = p.integer()?;
            Ok((OpKind::PassTurn { to, warps }, Vec::new()))
        }
        "clear_rows" => {
            let (channel, tile) = parse_channel_tile(p)?;
            Ok((OpKind::ClearRows { channel, tile }, p.operands()?))
        }
        "arrive_full" => {
            let channel = p.channel()?;
            Ok((OpKind::ArriveFull { channel }, p.operands()?))
        }
        "arrive_copied" => {
            let channel = p.channel()?;
            Ok((OpKind::ArriveCopied { channel }, p.operands()?))
        }
        "arrive_empty" => {
            let channel = p.channel()?;
            Ok((OpKind::ArriveEmpty { channel }, p.operands()?))
        }
        "product" => {
            let a = parse_product_operand(p)?;
            p.expect_word("by")?;
            let b = parse_product_operand(p)?;
            let columns = p.eat_word("split");
            if columns && p.integer::<u32>()? != 1 {
                return p.error("products are split by rows, or by columns: `split 1`");
            }
            Ok((OpKind::Product { a, b, columns }, p.operands()?))
        }
        "wait_products" => {
            let pending = p.integer()?;
            Ok((OpKind::WaitProducts { pending }, p.operands()?))
        }
        "wait_stores" => {
            let pending = p.integer()?;
            let read = p.eat_word("read");
            Ok((OpKind::WaitStores { pending, read }, Vec::new()))
        }
        "barrier" => Ok((OpKind::Barrier, Vec::new())),
        "replica" => Ok((OpKind::Replica, Vec::new())),
        _ => {
            let (kind, operands) = parse_tile_op(word, p)?;
            Ok((OpKind::Tile(kind), operands))
        }
    }
}

pub(super) fn parse_type(p: &mut Parser<'_>) -> Result<Type, ParseError> {
    let ty = tile::Type::parse(p)?;
    let layout = p.layout()?;
    Ok(Type { ty, layout })
}
