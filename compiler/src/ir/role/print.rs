//! The textual form of role operations, layouts, buffers and roles.

use std::fmt;

use super::{BufferId, Kernel, OpKind, Type, parse};
use crate::ir::{
    Op, ValueId,
    text::{Dialect, ParseError, Parser, Printer},
    tile::{access_path, access_rest, reduce_attributes},
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
            OpKind::Barrier => out.write("barrier"),
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

/// The textual form, which [`parse`](super::parse) reads back. Layouts stand in front, under short names.
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
        writeln!(out, "  shared {}", self.shared_bytes);
        for role in &self.roles {
            out.write("role ");
            out.string(&role.name);
            write!(out, " warps {} ", role.warps);
            out.body(&role.body);
        }
        f.write_str(&out.finish())
    }
}
