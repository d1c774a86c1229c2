//! The textual form of role operations, layouts, buffers and roles.

use std::fmt;

use super::{BufferId, Fill, Kernel, OpKind, ProductOperand, SlotPart, Strategy, Type, parse};
use crate::ir::{
    Op, ValueId,
    text::{Dialect, ParseError, Parser, Printer},
    tile::{Cache, access_path, access_rest, reduce_attributes},
};

fn scratch(out: &mut Printer<'_>, buffer: Option<BufferId>) {
    if let Some(buffer) = buffer {
        write!(out, " scratch {buffer}");
    }
}

fn width(out: &mut Printer<'_>, width: u32) {
    if width != 1 {
        write!(out, " width {width}");
    }
}

fn product_operand(out: &mut Printer<'_>, operand: ProductOperand) {
    match operand {
        ProductOperand::Registers => out.write(" registers"),
        ProductOperand::Slot {
            channel,
            tile,
            part,
            transposed,
        } => {
            write!(out, " {channel} tile {tile}");
            if let Some(SlotPart { offsets, shape }) = part {
                write!(out, " at {offsets:?} of {shape:?}");
            }
            if transposed {
                out.write(" transposed");
            }
        }
    }
}

impl Fill {
    pub const ALL: [Fill; 3] = [Fill::CpAsync, Fill::Bulk, Fill::Registers];

    pub fn name(self) -> &'static str {
        match self {
            Fill::CpAsync => "cp_async",
            Fill::Bulk => "bulk",
            Fill::Registers => "registers",
        }
    }
}

impl Dialect for OpKind {
    type Type = Type;

    fn print_op(op: &Op<OpKind>, out: &mut Printer<'_>) {
        let operands = &op.operands;
        match &op.kind {
            OpKind::Tile(kind) => kind.print(operands, out),
            OpKind::Load {
                indices,
                cache,
                width: w,
            } => {
                out.write("load");
                let used = access_path(out, operands, indices);
                access_rest(out, "pad", operands.get(used..), *cache);
                width(out, *w);
            }
            OpKind::Store {
                indices,
                cache,
                width: w,
            } => {
                out.write("store");
                let used = access_path(out, operands, indices);
                access_rest(out, "=", operands.get(used..), *cache);
                width(out, *w);
            }
            OpKind::Atomic {
                op,
                indices,
                scratch: buffer,
            } => {
                write!(out, "atomic {}", op.name());
                scratch(out, *buffer);
                let used = access_path(out, operands, indices);
                access_rest(out, "=", operands.get(used..), Cache::Normal);
            }
            OpKind::Arrive {
                indices,
                scratch: buffer,
            } => {
                out.write("arrive");
                scratch(out, *buffer);
                let used = access_path(out, operands, indices);
                access_rest(out, "of", operands.get(used..), Cache::Normal);
            }
            OpKind::Reduce {
                op,
                axis,
                scratch: buffer,
            } => {
                reduce_attributes(out, *op, *axis);
                scratch(out, *buffer);
                out.operands(operands);
            }
            OpKind::Convert { scratch: buffer } => {
                out.write("convert");
                scratch(out, *buffer);
                out.operands(operands);
            }
            OpKind::Through {
                op,
                scratch: buffer,
            } => {
                out.write("through");
                scratch(out, *buffer);
                out.write(" ");
                op.print(operands, out);
            }
            OpKind::Dot { strategy } => {
                match strategy {
                    Strategy::MmaSync(s) => {
                        write!(out, "dot mma_sync [{}, {}, {}]", s.m, s.n, s.k);
                        if s.per != 2 {
                            write!(out, " per {}", s.per);
                        }
                    }
                    Strategy::Fma => out.write("dot fma"),
                }
                out.operands(operands);
            }
            OpKind::CopyAsync {
                channel,
                tile,
                indices,
                width: w,
            }
            | OpKind::Copy {
                channel,
                tile,
                indices,
                width: w,
            } => {
                let word = match op.kind {
                    OpKind::Copy { .. } => "copy",
                    _ => "copy_async",
                };
                write!(out, "{word} {channel} tile {tile}");
                let used = access_path(out, operands, indices);
                access_rest(out, "slot", operands.get(used..), Cache::Normal);
                width(out, *w);
            }
            OpKind::FetchColumns { channel, indices } => {
                write!(out, "fetch_columns {channel}");
                let used = access_path(out, operands, indices);
                access_rest(out, "slot", operands.get(used..), Cache::Normal);
            }
            OpKind::CopyColumn {
                channel,
                tile,
                stage,
            } => {
                write!(out, "copy_column {channel} tile {tile} from {stage}");
                out.operands(operands);
            }
            OpKind::WaitFull { channel } => {
                write!(out, "wait_full {channel}");
                out.operands(operands);
            }
            OpKind::WaitEmpty { channel } => {
                write!(out, "wait_empty {channel}");
                out.operands(operands);
            }
            OpKind::ExpectBytes { channel, bytes } => {
                write!(out, "expect_bytes {channel} {bytes}");
                out.operands(operands);
            }
            OpKind::CopyBulk {
                channel,
                tile,
                map,
                offset,
                multicast,
                cache,
            } => {
                write!(out, "copy_bulk {channel} tile {tile} at {offset} {map}");
                if *multicast {
                    out.write(" multicast");
                }
                if *cache != Cache::Normal {
                    write!(out, " {}", cache.name());
                }
                out.operands(operands);
            }
            OpKind::StoreBulk {
                channel,
                tile,
                map,
                offset,
            } => {
                write!(out, "store_bulk {channel} tile {tile} at {offset} {map}");
                out.operands(operands);
            }
            OpKind::TakeTurn { warps } => write!(out, "take_turn warps {warps}"),
            OpKind::PassTurn { to, warps } => write!(out, "pass_turn {to} warps {warps}"),
            OpKind::ClearRows { channel, tile } => {
                write!(out, "clear_rows {channel} tile {tile}");
                out.operands(operands);
            }
            OpKind::ArriveFull { channel } => {
                write!(out, "arrive_full {channel}");
                out.operands(operands);
            }
            OpKind::ArriveCopied { channel } => {
                write!(out, "arrive_copied {channel}");
                out.operands(operands);
            }
            OpKind::ArriveEmpty { channel } => {
                write!(out, "arrive_empty {channel}");
                out.operands(operands);
            }
            OpKind::Product { a, b, columns } => {
                out.write("product");
                product_operand(out, *a);
                out.write(" by");
                product_operand(out, *b);
                if *columns {
                    out.write(" split 1");
                }
                out.operands(operands);
            }
            OpKind::WaitProducts { pending } => {
                write!(out, "wait_products {pending}");
                out.operands(operands);
            }
            OpKind::WaitStores { pending, read } => {
                write!(out, "wait_stores {pending}");
                if *read {
                    out.write(" read");
                }
            }
            OpKind::CommitCopies => out.write("commit_copies"),
            OpKind::WaitCopies { pending } => write!(out, "wait_copies {pending}"),
            OpKind::WriteShared {
                channel,
                tile,
                offsets,
            } => {
                write!(out, "write_shared {channel} tile {tile}");
                if *offsets != [0, 0] {
                    write!(out, " at {offsets:?}");
                }
                out.operands(operands);
            }
            OpKind::ReadShared {
                channel,
                tile,
                offsets,
                transposed,
            } => {
                write!(out, "read_shared {channel} tile {tile} at {offsets:?}");
                if *transposed {
                    out.write(" transposed");
                }
                out.operands(operands);
            }
            OpKind::Barrier => out.write("barrier"),
            OpKind::Replica => out.write("replica"),
        }
    }

    fn print_type(ty: &Type, out: &mut Printer<'_>) {
        ty.ty.print(out);
        if let Some(layout) = &ty.layout {
            out.write(" ");
            out.layout(layout);
        }
    }

    fn parse_op(p: &mut Parser<'_>) -> Result<(OpKind, Vec<ValueId>), ParseError> {
        parse::parse_op(p)
    }

    fn parse_type(p: &mut Parser<'_>) -> Result<Type, ParseError> {
        parse::parse_type(p)
    }
}

/// The textual form, which [`parse`] reads back. Layouts stand in front, under short names.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Printer::new(&self.header);
        out.header();
        for (id, buffer) in &self.buffers {
            write!(
                out,
                "  buffer {id}: {} align {}",
                buffer.bytes, buffer.align
            );
            if let Some(offset) = buffer.offset {
                write!(out, " at {offset}");
            }
            out.write("\n");
        }
        for (id, channel) in &self.channels {
            let fill = channel.fill.name();
            write!(
                out,
                "  channel {id}: depth {} fill {fill} in {}",
                channel.depth, channel.buffer
            );
            if let Some(barriers) = channel.barriers {
                write!(
                    out,
                    " barriers {} full {} empty {}",
                    barriers.buffer, barriers.full, barriers.empty
                );
                if barriers.copied {
                    out.write(" copied");
                }
                if barriers.blocks != 1 {
                    write!(out, " blocks {}", barriers.blocks);
                }
            }
            for tile in &channel.tiles {
                let layout = tile.layout;
                write!(
                    out,
                    "\n    tile {} {:?} at {} rows {} pitch {} mask {} shift {}",
                    tile.elem,
                    tile.shape,
                    tile.offset,
                    layout.rows,
                    layout.pitch,
                    layout.mask,
                    layout.shift
                );
                if layout.panels != 1 {
                    write!(out, " panels {}", layout.panels);
                }
            }
            out.write("\n");
        }
        for (id, map) in &self.maps {
            write!(out, "  map {id}: ");
            out.param(map.param);
            write!(out, " {} swizzle {}", map.elem, map.swizzle);
            for dim in &map.dims {
                write!(out, "\n    dim {} step {}", dim.dim, dim.step);
                if let Some(extent) = dim.extent {
                    write!(out, " extent {extent}");
                }
                write!(out, " box {}", dim.extent_of_box);
            }
            out.write("\n");
        }
        writeln!(out, "  shared {}", self.shared_bytes);
        for role in &self.roles {
            out.write("role ");
            out.string(&role.name);
            write!(out, " warps {} ", role.warps);
            if role.first_warp != 0 {
                write!(out, "from {} ", role.first_warp);
            }
            if let Some(registers) = role.registers {
                write!(out, "registers {registers} ");
            }
            if let Some(like) = &role.like {
                write!(out, "like {} {} ", like.role, like.buffers.len());
                for (own, other) in &like.buffers {
                    write!(out, "{own} as {other} ");
                }
            }
            out.body(&role.body);
        }
        f.write_str(&out.finish())
    }
}
