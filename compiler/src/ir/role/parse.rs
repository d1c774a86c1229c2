//! Reading the textual form of role operations, layouts, buffers and roles.

use cranelift_entity::PrimaryMap;

use super::{Buffer, BufferId, Kernel, OpKind, Role, Type};
use crate::ir::{
    ValueId,
    text::{ParseError, Parser},
    tile::{self, parse_access_path, parse_cache, parse_reduce, parse_tile_op},
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
    p.expect_word("shared")?;
    let shared_bytes = p.integer()?;
    let mut roles = Vec::new();
    while !p.at_end() {
        p.expect_word("role")?;
        let name = p.string()?;
        p.expect_word("warps")?;
        let warps = p.integer()?;
        let body = p.body()?;
        roles.push(Role { name, warps, body });
    }
    Ok(Kernel {
        header: p.into_header(),
        roles,
        buffers,
        shared_bytes,
    })
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
        "reduce" => {
            let (op, axis) = parse_reduce(p)?;
            let scratch = parse_scratch(p)?;
            Ok((OpKind::Reduce { op, axis, scratch }, p.operands()?))
        }
        "convert" => {
            let scratch = parse_scratch(p)?;
            Ok((OpKind::Convert { scratch }, p.operands()?))
        }
        "barrier" => Ok((OpKind::Barrier, Vec::new())),
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
