//! The role level in tile IR: its textual form, and its rules.
//!
//! ```text
//! channel channel0 "ab" tile<bf16>[128, 64] tile<bf16>[256, 64] depth 4
//! {
//!   …
//!   roles ("load" warps 1 regs 24, "math" groups 2 split 0 regs 240) {
//!     put channel0 = %3[%8 +: 128, %9 +: 64], %4[%10 +: 256, %9 +: 64]
//!     yield
//!   } {
//!     %20, %21 = get channel0 : tile<bf16>[128, 64], tile<bf16>[256, 64]
//!     …
//!     release channel0 lag 1
//!     yield
//!   }
//!   return
//! }
//! ```

use cranelift_entity::{EntityRef, PrimaryMap};

use super::{
    Cache, Channel, ChannelId, Feature, Index, Kernel, OpKind, PutSource, RoleHead, RoleOp, Type,
    parse::{parse_access_path, parse_cache},
    print::access_path,
};
use crate::{
    ir::{
        OpId, RegionId, ValueId,
        text::{ParseError, Parser, Printer},
    },
    span::Span,
};

impl Feature {
    pub const ALL: [Feature; 5] = [
        Feature::Bulk,
        Feature::CpAsync,
        Feature::MmaSync,
        Feature::Wgmma,
        Feature::Tcgen05,
    ];

    /// As `require` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Feature::Bulk => "bulk",
            Feature::CpAsync => "cp_async",
            Feature::MmaSync => "mma_sync",
            Feature::Wgmma => "wgmma",
            Feature::Tcgen05 => "tcgen05",
        }
    }
}

impl RoleHead {
    /// As a message names it: `math`, `math[1]`.
    pub fn label(&self) -> String {
        match self.replicas {
            1 => self.name.clone(),
            _ => format!("{}[{}]", self.name, self.replica),
        }
    }

    fn print(&self, out: &mut Printer<'_>) {
        out.string(&self.name);
        match self.groups {
            true => write!(out, " groups {}", self.warps / 4),
            false => write!(out, " warps {}", self.warps),
        }
        if let Some(axis) = self.split {
            write!(out, " split {axis}");
        }
        if let Some(registers) = self.registers {
            write!(out, " regs {registers}");
        }
        if self.replicas != 1 {
            write!(out, " replica {} of {}", self.replica, self.replicas);
        }
    }

    fn parse(p: &mut Parser<'_>) -> Result<RoleHead, ParseError> {
        let name = p.string()?;
        let groups = p.eat_word("groups");
        if !groups {
            p.expect_word("warps")?;
        }
        let size: u32 = p.integer()?;
        let warps = match groups {
            true => size.saturating_mul(4),
            false => size,
        };
        let split = match p.eat_word("split") {
            true => Some(p.integer()?),
            false => None,
        };
        let registers = match p.eat_word("regs") {
            true => Some(p.integer()?),
            false => None,
        };
        let (mut replica, mut replicas) = (0, 1);
        if p.eat_word("replica") {
            replica = p.integer()?;
            p.expect_word("of")?;
            replicas = p.integer()?;
        }
        Ok(RoleHead {
            name,
            replica,
            replicas,
            warps,
            groups,
            split,
            registers,
        })
    }
}

impl RoleOp {
    /// Name, attributes and operands.
    pub(super) fn print(&self, operands: &[ValueId], out: &mut Printer<'_>) {
        out.write(self.name());
        match self {
            RoleOp::Roles(heads) => {
                out.write(" (");
                for (i, head) in heads.iter().enumerate() {
                    out.write(if i == 0 { "" } else { ", " });
                    head.print(out);
                }
                out.write(")");
            }
            RoleOp::Put {
                channel,
                sources,
                part,
                within,
            } => {
                write!(out, " {channel} =");
                let mut rest = operands;
                for (i, source) in sources.iter().enumerate() {
                    out.write(if i == 0 { "" } else { "," });
                    let used = match source {
                        PutSource::Slice { indices, cache } => {
                            let used = access_path(out, rest, indices);
                            if *cache != Cache::Normal {
                                write!(out, " {}", cache.name());
                            }
                            used
                        }
                        PutSource::Value => {
                            out.operands(rest.get(..1).unwrap_or_default());
                            1
                        }
                    };
                    rest = rest.get(used..).unwrap_or_default();
                }
                let (at, slot) =
                    rest.split_at(rest.len() - usize::from(*within && !rest.is_empty()));
                if *part {
                    out.write(" at");
                    out.operands(at);
                }
                if *within {
                    out.write(" in");
                    out.operands(slot);
                }
            }
            RoleOp::Get { channel } => write!(out, " {channel}"),
            RoleOp::Release { channel, lag } => {
                write!(out, " {channel}");
                if let Some(lag) = lag {
                    write!(out, " lag {lag}");
                }
            }
            RoleOp::Await { lag } => {
                if let Some(lag) = lag {
                    write!(out, " lag {lag}");
                }
                out.operands(operands);
            }
            RoleOp::Mma | RoleOp::Pingpong => out.operands(operands),
            RoleOp::Require(feature) => write!(out, " {}", feature.name()),
        }
    }

    /// The operation called `word`, which has been taken; `None` if none is.
    pub(super) fn parse(
        word: &str,
        p: &mut Parser<'_>,
    ) -> Result<Option<(OpKind, Vec<ValueId>)>, ParseError> {
        let mut operands = Vec::new();
        let op = match word {
            "roles" => {
                p.expect("(")?;
                let mut heads = Vec::new();
                while !p.eat(")") {
                    if !heads.is_empty() {
                        p.expect(",")?;
                    }
                    heads.push(RoleHead::parse(p)?);
                }
                RoleOp::Roles(heads)
            }
            "put" => {
                let channel = p.tile_channel()?;
                p.expect("=")?;
                let mut sources = Vec::new();
                while sources.is_empty() || p.eat(",") {
                    let slice = p.ahead(|p| p.value().is_ok() && p.eat("["));
                    if slice {
                        let (own, indices) = parse_access_path(p)?;
                        operands.extend(own);
                        let cache = parse_cache(p);
                        sources.push(PutSource::Slice { indices, cache });
                    } else {
                        operands.push(p.value()?);
                        sources.push(PutSource::Value);
                    }
                }
                let part = p.eat_word("at");
                if part {
                    operands.extend(p.operands()?);
                }
                let within = p.eat_word("in");
                if within {
                    operands.push(p.value()?);
                }
                RoleOp::Put {
                    channel,
                    sources,
                    part,
                    within,
                }
            }
            "get" => RoleOp::Get {
                channel: p.tile_channel()?,
            },
            "release" => RoleOp::Release {
                channel: p.tile_channel()?,
                lag: parse_lag(p)?,
            },
            "await" => {
                let lag = parse_lag(p)?;
                operands = p.operands()?;
                RoleOp::Await { lag }
            }
            "mma" => {
                operands = p.operands()?;
                RoleOp::Mma
            }
            "pingpong" => {
                operands = p.operands()?;
                RoleOp::Pingpong
            }
            "require" => {
                let word = p.word("a feature")?;
                match Feature::ALL.into_iter().find(|f| f.name() == word) {
                    Some(feature) => RoleOp::Require(feature),
                    None => return p.error(format!("`{word}` is no feature")),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some((OpKind::Role(op), operands)))
    }
}

fn parse_lag(p: &mut Parser<'_>) -> Result<Option<u32>, ParseError> {
    match p.eat_word("lag") {
        true => Ok(Some(p.integer()?)),
        false => Ok(None),
    }
}

impl Channel {
    pub(super) fn print(&self, id: ChannelId, out: &mut Printer<'_>) {
        write!(out, "channel {id} ");
        out.string(&self.name);
        for tile in &self.tiles {
            write!(out, " {}", Type::Tile(tile.clone()));
        }
        write!(out, " depth {}", self.depth);
        if let Some(over) = self.over {
            write!(out, " over {over}");
        }
        if let Some(axis) = self.across {
            out.write(" across ");
            out.axis(axis);
        }
        if self.tensor_memory {
            out.write(" tensor_memory");
        }
        out.write("\n");
    }
}

/// The channels before a body.
pub(super) fn parse_channels(
    p: &mut Parser<'_>,
) -> Result<PrimaryMap<ChannelId, Channel>, ParseError> {
    let mut channels = PrimaryMap::new();
    while p.eat_word("channel") {
        p.channels += 1;
        if p.tile_channel()? != channels.next_key() {
            return p.error("channels are numbered from 0 in the order of their declarations");
        }
        let name = p.string()?;
        let mut tiles = Vec::new();
        while p.ahead(|p| p.eat_word("tile")) {
            if let Type::Tile(tile) = Type::parse(p)? {
                tiles.push(tile);
            }
        }
        p.expect_word("depth")?;
        let depth = p.integer()?;
        let over = match p.eat_word("over") {
            true => Some(p.tile_channel()?),
            false => None,
        };
        let across = match p.eat_word("across") {
            true => Some(p.axis()?),
            false => None,
        };
        let tensor_memory = p.eat_word("tensor_memory");
        let span = Span::NONE;
        channels.push(Channel {
            name,
            tiles,
            depth,
            over,
            across,
            tensor_memory,
            span,
        });
    }
    Ok(channels)
}

/// What is wrong with the role level of a kernel, with the operation: where its operations stand, and what they pass.
pub(super) fn check(kernel: &Kernel) -> Vec<(OpId, String)> {
    let mut found = Vec::new();
    for (id, channel) in &kernel.channels {
        let fault = match channel.over {
            Some(over) if over.index() >= id.index() => Some("lies over one declared later"),
            _ if channel.tiles.is_empty() => Some("passes nothing"),
            _ if channel.depth == 0 => Some("has no slots"),
            _ => None,
        };
        if let (Some(fault), Some(first)) = (fault, kernel.body.ops.keys().next()) {
            found.push((first, format!("`{}` {fault}", channel.name)));
        }
    }
    walk(kernel, kernel.body.root, true, false, &mut found);
    found
}

fn walk(
    kernel: &Kernel,
    region: RegionId,
    root: bool,
    in_role: bool,
    found: &mut Vec<(OpId, String)>,
) {
    for &id in &kernel.body.regions[region].ops {
        let op = &kernel.body.ops[id];
        let mut inside = in_role;
        if let OpKind::Role(kind) = &op.kind {
            let roles = matches!(kind, RoleOp::Roles(_));
            let free = matches!(kind, RoleOp::Require(_));
            if roles && !root {
                found.push((id, "roles stand in the root region".into()));
            } else if !roles && !free && !in_role {
                found.push((id, format!("`{}` stands outside of roles", kind.name())));
            } else if let Err(message) = typing(kernel, id, kind) {
                found.push((id, message));
            }
            inside |= roles;
        }
        for &inner in &op.regions {
            walk(kernel, inner, false, inside, found);
        }
    }
}

macro_rules! ensure {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            return Err(format!($($message)*));
        }
    };
}

fn typing(kernel: &Kernel, id: OpId, kind: &RoleOp) -> Result<(), String> {
    let body = &kernel.body;
    let op = &body.ops[id];
    let ty = |v: ValueId| body.ty(v);
    match kind {
        RoleOp::Roles(heads) => {
            for head in heads {
                ensure!(
                    head.warps > 0 && head.replica < head.replicas,
                    "the role `{}` has {} warps and is replica {} of {}",
                    head.name,
                    head.warps,
                    head.replica,
                    head.replicas
                );
                ensure!(
                    !head.groups || head.warps.is_multiple_of(4),
                    "the role `{}` has no whole warpgroups",
                    head.name
                );
            }
        }
        RoleOp::Put {
            channel,
            sources,
            part,
            within,
        } => {
            let tiles = &kernel.channels[*channel].tiles;
            ensure!(
                sources.len() == tiles.len() && (!part || tiles.len() == 1),
                "{} sources for {} tiles",
                sources.len(),
                tiles.len()
            );
            let mut at = 0;
            for (source, tile) in sources.iter().zip(tiles) {
                let (elem, shape, used) = match source {
                    PutSource::Slice { indices, .. } => {
                        let Some(Type::View(view)) = op.operands.get(at).map(|v| ty(*v)) else {
                            return Err("a slice is of a view".into());
                        };
                        ensure!(
                            indices.len() == view.rank as usize,
                            "{} indices for a view of rank {}",
                            indices.len(),
                            view.rank
                        );
                        let shape: Vec<u32> = indices.iter().filter_map(|i| i.extent()).collect();
                        let used: usize = indices.iter().map(|i: &Index| i.operands()).sum();
                        (view.elem, shape, 1 + used)
                    }
                    PutSource::Value => match op.operands.get(at).map(|v| ty(*v)) {
                        Some(Type::Tile(t) | Type::Pending(t)) => (t.elem, t.shape.clone(), 1),
                        _ => return Err("a tile or a slice is put".into()),
                    },
                };
                at += used;
                let fits = match part {
                    true => {
                        shape.len() == tile.shape.len()
                            && shape.iter().zip(&tile.shape).all(|(a, b)| a <= b)
                    }
                    false => shape == tile.shape,
                };
                ensure!(
                    elem == tile.elem && fits,
                    "{elem} {shape:?} does not fill {}",
                    Type::Tile(tile.clone())
                );
            }
            let coordinates = if *part { tiles[0].shape.len() } else { 0 };
            ensure!(
                op.operands.len() == at + coordinates + usize::from(*within),
                "{} operands for {at} of its sources, {coordinates} coordinates, and a slot",
                op.operands.len()
            );
        }
        RoleOp::Get { channel } => {
            let tiles = &kernel.channels[*channel].tiles;
            let same = op.results.len() == tiles.len()
                && op
                    .results
                    .iter()
                    .zip(tiles)
                    .all(|(v, t)| *ty(*v) == Type::Tile(t.clone()));
            ensure!(
                same,
                "gives other tiles than `{}` passes",
                kernel.channels[*channel].name
            );
        }
        RoleOp::Release { .. } | RoleOp::Require(_) => {}
        RoleOp::Mma => {
            ensure!(
                matches!(op.operands.len(), 2 | 3),
                "takes a, b and perhaps what is added"
            );
            let Type::Pending(result) = ty(op.results[0]) else {
                return Err("gives a pending tile".into());
            };
            let (Type::Tile(a), Type::Tile(b)) = (ty(op.operands[0]), ty(op.operands[1])) else {
                return Err("multiplies tiles".into());
            };
            let shapes = match (&a.shape[..], &b.shape[..]) {
                ([m, k], [k2, n]) => k == k2 && result.shape == [*m, *n],
                _ => false,
            };
            ensure!(
                shapes,
                "multiplies {:?} and {:?} to {:?}",
                a.shape,
                b.shape,
                result.shape
            );
            if let Some(acc) = op.operands.get(2) {
                let (Type::Tile(acc) | Type::Pending(acc)) = ty(*acc) else {
                    return Err("adds to a tile".into());
                };
                ensure!(acc == result, "adds to another type than it gives");
            }
        }
        RoleOp::Await { .. } => {
            let (Type::Pending(of), Type::Tile(to)) = (ty(op.operands[0]), ty(op.results[0]))
            else {
                return Err("takes a pending tile and gives a tile".into());
            };
            ensure!(of == to, "gives another type than it awaits");
        }
        RoleOp::Pingpong => {}
    }
    Ok(())
}
