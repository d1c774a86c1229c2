//! The role level: channels, roles, and what passes between them.
//!
//! Channels are declared and scalars bound in the kernel's own block; `roles` ends it. Each role, and each replica of one,
//! is walked by itself over what was bound before, and becomes a region of the `roles` operation: nothing that one changes
//! is seen in another. Whether the operations of all roles fit together is for the check of channels, which executes them.

mod fuse;
mod limits;
mod products;

use std::rc::Rc;

use cranelift_entity::PrimaryMap;
use tesserine_set::DType;

use super::{
    Eval, Told,
    access::Slice,
    call::bare,
    eval::{Evaluator, Shape, Tail, cast_help, show_shape},
    value::{Symbol, Value},
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        RegionId, ValueId,
        tile::{
            Cache, Channel, ChannelId, Feature, OpKind, PutSource, RoleHead, RoleOp, TileType,
            Type, loaded,
        },
    },
    span::Span,
    syntax::ast::{self, ExprKind},
    target,
};

pub(crate) use fuse::fuse;
pub(crate) use limits::check as check_limits;
pub(super) use products::becomes;
pub(crate) use products::check as check_products;

/// Rings of one declaration.
const MAX_CHANNELS: i64 = 64;
/// Slots of a ring.
const MAX_DEPTH: i64 = 64;
/// Warps of a block.
const MAX_WARPS: i64 = 32;

/// What the walk of a kernel knows of its roles.
#[derive(Default)]
pub(crate) struct Roles<'a> {
    pub channels: PrimaryMap<ChannelId, Channel>,
    /// The role that is being walked.
    pub within: Option<RoleHead>,
    /// What `require` asks for, at this place.
    pub required: Vec<(Feature, Span)>,
    /// Where `roles` stands, once it is walked.
    done: Option<Span>,
    /// The target has none of this, as has been said.
    refused: bool,
    /// What must hold for a point of the grid to be one, if the axes have an `until`.
    pub inside: Option<Value<'a>>,
}

/// The name of a channel, or of an array of them.
#[derive(Clone, Debug)]
pub(crate) struct ChannelValue {
    pub name: String,
    first: ChannelId,
    /// Of an array, how many.
    count: Option<u32>,
    span: Span,
}

impl ChannelValue {
    fn at(&self, index: u32) -> ChannelId {
        use cranelift_entity::EntityRef;
        ChannelId::new(self.first.index() + index as usize)
    }
}

/// What a tile of a slot is filled with, with its operands.
struct Source {
    source: PutSource,
    operands: Vec<ValueId>,
    elem: DType,
    shape: Vec<u32>,
    span: Span,
}

impl<'a> Evaluator<'a> {
    /// Refuses what stands in roles only.
    pub(super) fn in_role(&mut self, span: Span, what: &str) -> Eval<()> {
        if self.roles.within.is_some() {
            return Ok(());
        }
        self.fail(
            Diagnostic::error(
                codes::E0701,
                span,
                format!("{what} stands in a role, and this is outside of all"),
            )
            .help("name who does it: `roles { name: 1 warp { … } }`"),
        )
    }

    /// What follows `roles` in a kernel's body.
    pub(super) fn after_roles(&mut self, span: Span) -> Eval<()> {
        match self.roles.done {
            Some(roles) if self.roles.within.is_none() => self.fail(
                Diagnostic::error(codes::E0701, span, "nothing follows `roles` in a kernel")
                    .label(roles, "the block's work ends here, for each role by itself")
                    .help("let one of the roles do it"),
            ),
            _ => Ok(()),
        }
    }

    fn role_target(&mut self, span: Span) -> Eval<()> {
        if self.target.has(target::Feature::Bulk) {
            return Ok(());
        }
        if std::mem::replace(&mut self.roles.refused, true) {
            return Err(Told);
        }
        let name = self.target.name();
        self.fail(
            Diagnostic::error(
                codes::E0708,
                span,
                format!("{name} has no barriers for bulk copies, which channels are made of"),
            )
            .note("the role level is for `sm_90a` and later")
            .help("give the kernel a body without roles, and this one `for sm_90a`"),
        )
    }

    // Channels.

    /// `channel name[count]: payload depth d over s across r;`
    #[expect(clippy::too_many_arguments, reason = "the parts of one declaration")]
    pub(super) fn channel(
        &mut self,
        name: &'a ast::Ident,
        count: Option<&'a ast::Expr>,
        payload: &'a ast::Type,
        depth: &'a ast::Expr,
        over: Option<&'a ast::Ident>,
        across: Option<&'a ast::Ident>,
        span: Span,
    ) -> Eval<()> {
        let made = self.channel_value(name, count, payload, depth, (over, across), span);
        let value = match &made {
            Ok(value) => Value::Channel(Rc::new(value.clone())),
            Err(_) => Value::Error,
        };
        self.bind(name, value, false);
        made.map(|_| ())
    }

    fn channel_value(
        &mut self,
        name: &'a ast::Ident,
        count: Option<&'a ast::Expr>,
        payload: &'a ast::Type,
        depth: &'a ast::Expr,
        (over, across): (Option<&'a ast::Ident>, Option<&'a ast::Ident>),
        span: Span,
    ) -> Eval<ChannelValue> {
        // Where a called kernel's may stand is seen when all is walked.
        let inner = self.region != self.body.root && self.fused.is_empty();
        if self.roles.within.is_some() || inner {
            return self.fail(
                Diagnostic::error(
                    codes::E0701,
                    span,
                    "a channel is declared in the kernel's own block, before `roles`",
                )
                .note("it exists once, for all roles"),
            );
        }
        self.role_target(span)?;
        let count = match count {
            None => None,
            Some(count) => {
                Some(self.small(count, "the length of an array of channels", MAX_CHANNELS)?)
            }
        };
        let tiles = self.payload(payload)?;
        let depth = self.small(depth, "the number of slots", MAX_DEPTH)?;
        let over = match over {
            None => None,
            Some(other) => {
                let storage = self.channel_named(other)?;
                if storage.count != count {
                    let title =
                        "a channel and what it lies over are both single, or arrays of one length";
                    let diagnostic = Diagnostic::error(codes::E0704, other.span, title)
                        .label(storage.span, "declared here");
                    return self.fail(diagnostic);
                }
                let first = &self.roles.channels[storage.first];
                let bytes = |tiles: &[TileType]| tiles.iter().map(limits::bytes).sum::<u64>();
                let (has, needs) = (bytes(&first.tiles), bytes(&tiles));
                if has < needs {
                    let diagnostic = Diagnostic::error(
                        codes::E0704,
                        other.span,
                        format!(
                            "a slot of `{}` has {needs} bytes, and one of `{}` only {has}",
                            name.name, other.name
                        ),
                    )
                    .label(storage.span, "declared here");
                    return self.fail(diagnostic);
                }
                Some(storage)
            }
        };
        let across = match across {
            None => None,
            Some(axis) => {
                let found = self.local(&axis.name).map(|b| b.value.clone());
                match found {
                    Some(Value::Symbol(Symbol::Grid(i))) if self.cluster_axes & 1 << i != 0 => {
                        Some(i)
                    }
                    // A cluster of one block.
                    Some(Value::Int(0)) => None,
                    _ => {
                        let diagnostic = Diagnostic::error(
                            codes::E0704,
                            axis.span,
                            format!("`across` names an axis of the grid that forms a cluster, and `{}` is none", axis.name),
                        )
                        .help(format!("write `{} in 2 cluster` in the grid", axis.name));
                        return self.fail(diagnostic);
                    }
                }
            }
        };
        let mut first = None;
        // Kernels that are called may have channels of one name.
        let mut own = name.name.clone();
        let taken =
            |channel: &Channel, own: &str| channel.name.split('[').next().is_some_and(|n| n == own);
        while !self.fused.is_empty() && self.roles.channels.values().any(|c| taken(c, &own)) {
            own.push('_');
        }
        for i in 0..count.unwrap_or(1) {
            let name = match count {
                None => own.clone(),
                Some(_) => format!("{own}[{i}]"),
            };
            let id = self.roles.channels.push(Channel {
                name,
                tiles: tiles.clone(),
                depth,
                over: over.as_ref().map(|o| o.at(i)),
                across,
                tensor_memory: false,
                span,
            });
            first.get_or_insert(id);
        }
        let Some(first) = first else { return Err(Told) };
        Ok(ChannelValue {
            name: name.name.clone(),
            first,
            count,
            span,
        })
    }

    /// A constant in 1..=most.
    fn small(&mut self, expr: &'a ast::Expr, what: &str, most: i64) -> Eval<u32> {
        let value = self.const_int(expr, what)?;
        match u32::try_from(value) {
            Ok(v) if (1..=most).contains(&value) => Ok(v),
            _ => self.error(
                codes::E0704,
                expr.span,
                format!("{what} is in 1..={most}, and this is {value}"),
            ),
        }
    }

    fn payload(&mut self, ty: &'a ast::Type) -> Eval<Vec<TileType>> {
        match &ty.kind {
            ast::TypeKind::Tile { elem, dims } => {
                let elem = self.value_type(elem)?;
                let shape = self.dims(dims, ty.span)?;
                if shape.is_empty() {
                    return self.error(
                        codes::E0704,
                        ty.span,
                        "a channel passes tiles, not scalars",
                    );
                }
                self.check_elements(&shape, ty.span)?;
                Ok(vec![TileType { elem, shape }])
            }
            ast::TypeKind::Tuple(types) => {
                let mut tiles = Vec::new();
                for ty in types {
                    if matches!(ty.kind, ast::TypeKind::Tuple(_)) {
                        return self.error(
                            codes::E0704,
                            ty.span,
                            "a slot is a tile or a tuple of tiles, and no tuple in a tuple",
                        );
                    }
                    tiles.extend(self.payload(ty)?);
                }
                Ok(tiles)
            }
            ast::TypeKind::Accum { .. } if self.target.has(target::Feature::TensorMemory) => {
                self.not_yet(ty.span, "tensor memory")
            }
            ast::TypeKind::Accum { .. } => {
                let name = self.target.name();
                self.error(
                    codes::E0708,
                    ty.span,
                    format!("`accum` lies in tensor memory, and {name} has none"),
                )
            }
            _ => {
                let diagnostic = Diagnostic::error(
                    codes::E0704,
                    ty.span,
                    "a channel passes a tile, or a tuple of tiles",
                )
                .help("write `tile<bf16>[128, 64]`, or `(tile<…>[…], tile<…>[…])`");
                self.fail(diagnostic)
            }
        }
    }

    fn channel_named(&mut self, name: &'a ast::Ident) -> Eval<Rc<ChannelValue>> {
        let found = self.local(&name.name).map(|b| b.value.clone());
        match found {
            Some(Value::Channel(channel)) => Ok(channel),
            Some(Value::Error) => Err(Told),
            None => Err(self.unknown(name)),
            Some(value) => {
                let what = self.describe(&value);
                self.error(
                    codes::E0705,
                    name.span,
                    format!("a channel is wanted here, and `{}` is {what}", name.name),
                )
            }
        }
    }

    fn channel_of(&mut self, channel: &'a ast::Channel) -> Eval<ChannelId> {
        let value = self.channel_named(&channel.name)?;
        let name = &channel.name.name;
        match (&channel.index, value.count) {
            (None, None) => Ok(value.first),
            (Some(index), Some(count)) => {
                let at = self.const_int(index, "the index of a channel")?;
                match u32::try_from(at) {
                    Ok(i) if i < count => Ok(value.at(i)),
                    _ => {
                        let diagnostic = Diagnostic::error(
                            codes::E0705,
                            index.span,
                            format!("`{name}` has {count} channels, and there is no {at}"),
                        )
                        .label(value.span, "declared here");
                        self.fail(diagnostic)
                    }
                }
            }
            (None, Some(count)) => {
                let diagnostic = Diagnostic::error(
                    codes::E0705,
                    channel.span,
                    format!("`{name}` is an array of {count} channels"),
                )
                .label(value.span, "declared here")
                .help(format!("name one: `{name}[0]`"));
                self.fail(diagnostic)
            }
            (Some(_), None) => {
                let diagnostic =
                    Diagnostic::error(codes::E0705, channel.span, format!("`{name}` is no array"))
                        .label(value.span, "declared here");
                self.fail(diagnostic)
            }
        }
    }

    // What roles do with channels.

    /// `get c`
    pub(super) fn get(&mut self, channel: &'a ast::Channel, span: Span) -> Eval<Value<'a>> {
        self.in_role(span, "`get`")?;
        let id = self.channel_of(channel)?;
        let tiles = self.roles.channels[id].tiles.clone();
        let types: Vec<Type> = tiles.into_iter().map(Type::Tile).collect();
        let kind = OpKind::Role(RoleOp::Get { channel: id });
        let op = self.builder(span).op(kind, Vec::new(), types);
        let results = &self.body.ops[op].results;
        Ok(match results[..] {
            [one] => Value::Run(one),
            _ => Value::Tuple(results.iter().map(|v| Value::Run(*v)).collect()),
        })
    }

    /// `release c lag n;`
    pub(super) fn release(
        &mut self,
        channel: &'a ast::Channel,
        lag: Option<u64>,
        span: Span,
    ) -> Eval<()> {
        self.in_role(span, "`release`")?;
        let id = self.channel_of(channel)?;
        let lag = self.lag(lag, span)?;
        let kind = OpKind::Role(RoleOp::Release { channel: id, lag });
        self.builder(span).op(kind, Vec::new(), Vec::new());
        Ok(())
    }

    fn lag(&mut self, lag: Option<u64>, span: Span) -> Eval<Option<u32>> {
        match lag.map(u32::try_from) {
            None => Ok(None),
            Some(Ok(lag)) if lag <= 64 => Ok(Some(lag)),
            Some(_) => self.error(codes::E0705, span, "a `lag` is at most 64 products"),
        }
    }

    /// `put c in slot at […] { … }`
    pub(super) fn put(
        &mut self,
        channel: &'a ast::Channel,
        slot: Option<&'a ast::Expr>,
        at: Option<&'a [ast::Expr]>,
        values: &'a [ast::Expr],
        span: Span,
    ) -> Eval<()> {
        self.in_role(span, "`put`")?;
        let id = self.channel_of(channel);
        // All are walked, so that all are checked.
        let mut sources = Vec::new();
        for value in values {
            sources.push(self.source(value));
        }
        let id = id?;
        let declared = self.roles.channels[id].clone();
        let sources = sources.into_iter().collect::<Eval<Vec<Source>>>()?;
        if sources.len() != declared.tiles.len() {
            let diagnostic = Diagnostic::error(
                codes::E0705,
                span,
                format!(
                    "a slot of `{}` has {}, and {} put",
                    declared.name,
                    counted(declared.tiles.len(), "tile"),
                    match sources.len() {
                        1 => "1 is".to_owned(),
                        n => format!("{n} are"),
                    }
                ),
            )
            .label(declared.span, "declared here");
            return self.fail(diagnostic);
        }
        let start = match at {
            None => None,
            Some(at) => Some(self.part_start(at, &declared, span)?),
        };
        for (i, (source, tile)) in sources.iter().zip(&declared.tiles).enumerate() {
            self.fills(
                source,
                tile,
                &declared,
                start.as_ref().map(|(s, _)| &s[..]),
                i,
            )?;
        }
        let mut operands: Vec<ValueId> = Vec::new();
        let mut kinds = Vec::new();
        for source in sources {
            operands.extend(source.operands);
            kinds.push(source.source);
        }
        let part = start.is_some();
        operands.extend(start.into_iter().flat_map(|(_, ids)| ids));
        let within = slot.is_some();
        operands.extend(self.slot(slot, id, &declared, span)?);
        let kind = OpKind::Role(RoleOp::Put {
            channel: id,
            sources: kinds,
            part,
            within,
        });
        self.builder(span).op(kind, operands, Vec::new());
        Ok(())
    }

    /// Where a part of a slot begins: what is known of it now, and its operands.
    fn part_start(
        &mut self,
        at: &'a [ast::Expr],
        channel: &Channel,
        span: Span,
    ) -> Eval<(Vec<Option<i64>>, Vec<ValueId>)> {
        let [tile] = &channel.tiles[..] else {
            let diagnostic = Diagnostic::error(
                codes::E0705,
                span,
                format!(
                    "parts are of a slot with one tile, and those of `{}` have {}",
                    channel.name,
                    channel.tiles.len()
                ),
            )
            .label(channel.span, "declared here")
            .help("make each tile a channel of its own");
            return self.fail(diagnostic);
        };
        if at.len() != tile.shape.len() {
            return self.error(
                codes::E0705,
                span,
                format!(
                    "a part of {} begins at {}, and {} given",
                    show_shape(&tile.shape),
                    counted(tile.shape.len(), "coordinate"),
                    match at.len() {
                        1 => "1 is".to_owned(),
                        n => format!("{n} are"),
                    }
                ),
            );
        }
        let (mut known, mut ids) = (Vec::new(), Vec::new());
        for expr in at {
            let value = self.expr(expr)?;
            known.push(match &value {
                Value::Int(v) => i64::try_from(*v).ok(),
                _ => None,
            });
            ids.push(self.int_scalar((&value, expr.span), "a coordinate")?);
        }
        Ok((known, ids))
    }

    /// Checks that a source fills a tile of a slot, or its part from `start` on.
    fn fills(
        &mut self,
        source: &Source,
        tile: &TileType,
        channel: &Channel,
        start: Option<&[Option<i64>]>,
        place: usize,
    ) -> Eval<()> {
        let called = match channel.tiles.len() {
            1 => format!("`{}`", channel.name),
            _ => format!("place {place} of `{}`", channel.name),
        };
        if source.elem != tile.elem {
            let text = self.quote(source.span);
            let diagnostic = Diagnostic::error(
                codes::E0705,
                source.span,
                format!(
                    "{called} passes `{}`, and this is of `{}`",
                    tile.elem, source.elem
                ),
            )
            .label(channel.span, "declared here")
            .help(cast_help(&text, tile.elem));
            return self.fail(diagnostic);
        }
        let fits = match start {
            None => source.shape == tile.shape,
            Some(start) => {
                let rank = source.shape.len() == tile.shape.len();
                let inside = source.shape.iter().zip(&tile.shape).zip(start);
                rank && inside.into_iter().all(|((part, all), at)| match at {
                    Some(at) => *at >= 0 && at + i64::from(*part) <= i64::from(*all),
                    None => part <= all,
                })
            }
        };
        if !fits {
            let (a, b) = (show_shape(&source.shape), show_shape(&tile.shape));
            let what = match start {
                None => format!("{called} passes {b}, and this is {a}"),
                Some(_) => format!("{called} passes {b}, and a part {a} does not lie in it there"),
            };
            let mut diagnostic = Diagnostic::error(codes::E0705, source.span, what)
                .label(channel.span, "declared here");
            if start.is_none() && source.shape.len() == tile.shape.len() {
                diagnostic = diagnostic.note("a part of a slot is put with `at […]`");
            }
            return self.fail(diagnostic);
        }
        Ok(())
    }

    /// The slot that is written in place, for a channel that lies over another.
    fn slot(
        &mut self,
        slot: Option<&'a ast::Expr>,
        id: ChannelId,
        channel: &Channel,
        span: Span,
    ) -> Eval<Option<ValueId>> {
        let Some(slot) = slot else {
            let Some(over) = channel.over else {
                return Ok(None);
            };
            let over = self.roles.channels[over].name.clone();
            let diagnostic = Diagnostic::error(
                codes::E0705,
                span,
                format!(
                    "`{}` has no storage of its own: it is put in a slot held from `{over}`",
                    channel.name
                ),
            )
            .label(channel.span, "declared here")
            .help(format!(
                "write `put {} in x {{ … }}`, where `x` is `get {over}`",
                channel.name
            ));
            return self.fail(diagnostic);
        };
        if channel.over.is_none() {
            let diagnostic = Diagnostic::error(
                codes::E0705,
                slot.span,
                format!(
                    "`{}` has slots of its own, so it is put in no other's",
                    channel.name
                ),
            )
            .label(channel.span, "declared here")
            .help("to hand a slot on, declare the channel `over` that of the slot");
            return self.fail(diagnostic);
        }
        let value = self.expr(slot)?;
        let first = match &value {
            Value::Tuple(items) => items.first(),
            value => Some(value),
        };
        let held = match first {
            Some(Value::Run(v)) => {
                let op = self.body.defining_op(*v);
                let from = op.and_then(|op| match self.body.ops[op].kind {
                    OpKind::Role(RoleOp::Get { channel }) => Some(channel),
                    _ => None,
                });
                from.map(|c| (*v, c))
            }
            _ => None,
        };
        match held {
            Some((v, from)) if self.storage(from) == self.storage(id) => Ok(Some(v)),
            Some((_, from)) => {
                let from = self.roles.channels[from].name.clone();
                let diagnostic = Diagnostic::error(
                    codes::E0705,
                    slot.span,
                    format!(
                        "this slot is one of `{from}`, whose storage `{}` does not share",
                        channel.name
                    ),
                )
                .label(channel.span, "declared here");
                self.fail(diagnostic)
            }
            None => {
                let what = self.describe(&value);
                self.error(
                    codes::E0705,
                    slot.span,
                    format!("a slot is what `get` gave, and this is {what}"),
                )
            }
        }
    }

    /// The channel in whose slots this one lies.
    fn storage(&self, id: ChannelId) -> ChannelId {
        let mut id = id;
        while let Some(over) = self.roles.channels[id].over {
            id = over;
        }
        id
    }

    /// What fills a tile of a slot: a slice as it lies in memory, or a value.
    fn source(&mut self, expr: &'a ast::Expr) -> Eval<Source> {
        let span = expr.span;
        let value = match &expr.kind {
            ExprKind::Paren(inner) => return self.source(inner),
            ExprKind::Index { base, indices } => match self.expr(base)? {
                Value::View(view) => {
                    let slice = self.slice(view, indices, span)?;
                    return self.source_slice(slice, Cache::Normal, span);
                }
                value => self.index((value, base.span), indices, span)?,
            },
            ExprKind::Call { callee, args } if is_plain_load(callee, args) => {
                let ExprKind::Index { base, indices } = &args[0].value.kind else {
                    return Err(Told);
                };
                match (self.expr(base)?, &args[1..]) {
                    (Value::View(view), rest) => {
                        let slice = self.slice(view, indices, args[0].value.span)?;
                        let cache = match rest {
                            [cache] => self.cache(&cache.value)?,
                            _ => Cache::Normal,
                        };
                        return self.source_slice(slice, cache, span);
                    }
                    _ => self.expr(expr)?,
                }
            }
            _ => self.expr(expr)?,
        };
        self.source_value(value, span)
    }

    fn source_value(&mut self, value: Value<'a>, span: Span) -> Eval<Source> {
        let Some(Shape::Tile(elem, shape)) = self.shape_of(&value) else {
            let what = self.describe(&value);
            return self.error(
                codes::E0705,
                span,
                format!("tiles and slices of views are put, and this is {what}"),
            );
        };
        let id = match value {
            Value::Run(id) => id,
            other => self.materialise(&other, span)?,
        };
        Ok(Source {
            source: PutSource::Value,
            operands: vec![id],
            elem,
            shape,
            span,
        })
    }

    fn source_slice(&mut self, slice: Slice, cache: Cache, span: Span) -> Eval<Source> {
        let elem = slice.view.elem;
        if slice.shape.is_empty() || loaded(elem) != elem || !slice.order.is_same() {
            let value = self.load(&slice, None, cache)?;
            return self.source_value(value, span);
        }
        self.check_readable(&slice)?;
        self.check_even(&slice)?;
        let view = self.view_id(&slice.view.clone());
        Ok(Source {
            source: PutSource::Slice {
                indices: slice.indices,
                cache,
            },
            operands: [vec![view], slice.operands].concat(),
            elem,
            shape: slice.shape,
            span,
        })
    }

    // Roles.

    /// `roles { … }`
    pub(super) fn roles_statement(&mut self, roles: &'a [ast::Role], span: Span) -> Eval<()> {
        if self.roles.within.is_some() {
            return self.error(codes::E0701, span, "`roles` stand in no role");
        }
        let called = !self.fused.is_empty();
        if self.region != self.body.root && !called {
            return self.fail(
                Diagnostic::error(
                    codes::E0701,
                    span,
                    "`roles` end the kernel's own block, and this is inside of another",
                )
                .note("an `if` with a `return` counts: what follows it is inside of its other arm")
                .help("put the condition into the roles"),
            );
        }
        self.role_target(span)?;
        if self.region == self.body.root {
            self.roles.done = Some(span);
        }
        let mut names: Vec<&ast::Ident> = Vec::new();
        let mut heads = Vec::new();
        let mut regions = Vec::new();
        let mut told = None;
        for role in roles {
            if let Some(first) = names.iter().find(|n| n.name == role.name.name) {
                let diagnostic = Diagnostic::error(
                    codes::E0103,
                    role.name.span,
                    format!("there is a role `{}` already", role.name.name),
                )
                .label(first.span, "defined here");
                told = Some(self.report(diagnostic));
                continue;
            }
            names.push(&role.name);
            match self.role(role) {
                Ok(made) => {
                    for (head, region) in made {
                        heads.push(head);
                        regions.push(region);
                    }
                }
                Err(t) => told = Some(t),
            }
        }
        if let Some(told) = told {
            return Err(told);
        }
        if heads.is_empty() {
            return self.error(codes::E0707, span, "a kernel with roles has one at least");
        }
        let here = self.region;
        let kind = OpKind::Role(RoleOp::Roles(heads));
        self.body
            .append(here, kind, Vec::new(), Vec::new(), regions, span);
        Ok(())
    }

    /// The regions of a role: one for each of its replicas.
    fn role(&mut self, role: &'a ast::Role) -> Eval<Vec<(RoleHead, RegionId)>> {
        let (head, index) = self.role_head(role)?;
        let mut out = Vec::new();
        let mut result = Ok(());
        for replica in 0..head.replicas {
            let head = RoleHead {
                replica,
                ..head.clone()
            };
            let region = self.body.new_region();
            let scopes = self.frame().scopes.clone();
            self.roles.within = Some(head.clone());
            let walked = self.in_region(region, |this| {
                this.scoped(|this| {
                    if let Some(index) = index {
                        this.bind(index, Value::Int(replica.into()), false);
                    }
                    this.role_body(role)
                })
            });
            self.roles.within = None;
            self.roles.required.clear();
            self.frame().scopes = scopes;
            if walked.is_err() {
                // The others are the same text.
                result = walked;
                break;
            }
            out.push((head, region));
        }
        result.map(|()| out)
    }

    fn role_head(&mut self, role: &'a ast::Role) -> Eval<(RoleHead, Option<&'a ast::Ident>)> {
        let name = &role.name.name;
        let size = self.const_int(&role.size, "the size of a role")?;
        let (unit, warps) = match role.unit {
            ast::RoleUnit::Warp => ("warps", size),
            ast::RoleUnit::Warpgroup => ("warpgroups", size.saturating_mul(4)),
        };
        if !(1..=MAX_WARPS).contains(&warps) {
            return self.error(
                codes::E0707,
                role.size.span,
                format!(
                    "a block has at most {MAX_WARPS} warps, and `{name}` would have {size} {unit}"
                ),
            );
        }
        let groups = role.unit == ast::RoleUnit::Warpgroup;
        let mut head = RoleHead {
            name: name.clone(),
            replica: 0,
            replicas: 1,
            warps: warps as u32,
            groups,
            split: None,
            registers: None,
        };
        if !groups && warps > 4 && warps % 4 != 0 {
            return self.fail(
                Diagnostic::error(
                    codes::E0707,
                    role.size.span,
                    format!("`{name}` has {warps} warps, which are no whole warpgroups"),
                )
                .note("a role of up to 4 warps shares a warpgroup with others; a larger one has warpgroups of its own")
                .help(format!("give it {}", (warps / 4 + 1) * 4)),
            );
        }
        let mut replica = None;
        for modifier in &role.modifiers {
            match modifier {
                ast::RoleModifier::Regs(expr) => {
                    let regs = self.const_int(expr, "a number of registers")?;
                    if !(24..=256).contains(&regs) || regs % 8 != 0 {
                        return self.error(
                            codes::E0707,
                            expr.span,
                            format!("a thread of a role has 24 to 256 registers, a multiple of 8, and not {regs}"),
                        );
                    }
                    head.registers = Some(regs as u32);
                }
                ast::RoleModifier::Split(axis) => {
                    if !groups {
                        return self.error(
                            codes::E0707,
                            role.span,
                            format!("`split` is of warpgroups, and `{name}` is declared in warps"),
                        );
                    }
                    match u32::try_from(*axis) {
                        Ok(axis) if axis < 2 => head.split = Some(axis),
                        _ => {
                            return self.error(
                                codes::E0707,
                                role.span,
                                "`split` divides axis 0 or 1 of the tiles",
                            );
                        }
                    }
                }
                ast::RoleModifier::Replicate { index, count } => {
                    let n = self.const_int(count, "a number of replicas")?;
                    if !(1..=MAX_WARPS).contains(&n) {
                        return self.error(
                            codes::E0707,
                            count.span,
                            format!("a role has 1 to {MAX_WARPS} replicas, and not {n}"),
                        );
                    }
                    head.replicas = n as u32;
                    replica = Some(index);
                }
            }
        }
        Ok((head, replica))
    }

    /// The body of a role: a function without value, which ends by itself.
    fn role_body(&mut self, role: &'a ast::Role) -> Eval<()> {
        let span = role.body.span;
        let result = match self.roles.inside.clone() {
            None => self.role_block(&role.body),
            Some(inside) => {
                let cond = self.materialise(&inside, span)?;
                let arms = [self.body.new_region(), self.body.new_region()];
                let result = self.in_region(arms[0], |this| this.role_block(&role.body));
                for arm in arms {
                    self.in_region(arm, |this| this.builder(span).yield_(Vec::new()));
                }
                self.builder(span).if_(cond, Vec::new(), arms[0], arms[1]);
                result
            }
        };
        self.builder(span).yield_(Vec::new());
        result
    }

    fn role_block(&mut self, body: &'a ast::Block) -> Eval<()> {
        self.returning(body);
        self.tail = Tail::Function;
        let value = self.block(body);
        self.tail = Tail::Nothing;
        let value = self.returned.take().map(Ok).unwrap_or(value);
        self.left = None;
        match value? {
            Value::Unit => Ok(()),
            value => {
                let at = body.value.as_ref().map_or(body.span, |v| v.span);
                let what = self.describe(&value);
                self.fail(
                    Diagnostic::error(
                        codes::E0108,
                        at,
                        format!("this gives {what}, and a role has no value"),
                    )
                    .help("put it in a channel, or store it to a view"),
                )
            }
        }
    }

    /// `require(bulk, wgmma);`
    pub(super) fn require(&mut self, features: &'a [ast::Ident], span: Span) -> Eval<()> {
        if self.roles.within.is_none() {
            return self.not_yet(span, "`require` outside of roles");
        }
        for name in features {
            let Some(feature) = Feature::ALL.into_iter().find(|f| f.name() == name.name) else {
                let known: Vec<String> = Feature::ALL
                    .iter()
                    .map(|f| format!("`{}`", f.name()))
                    .collect();
                return self.fail(
                    Diagnostic::error(
                        codes::E0708,
                        name.span,
                        format!("`{}` is nothing that can be required", name.name),
                    )
                    .note(format!("there are {}", known.join(", "))),
                );
            };
            let has = match feature {
                Feature::Bulk => self.target.has(target::Feature::Bulk),
                Feature::CpAsync => self.target.has(target::Feature::CpAsync),
                Feature::MmaSync => true,
                Feature::Wgmma => self.target.has(target::Feature::Wgmma),
                Feature::Tcgen05 => self.target.has(target::Feature::TensorMemory),
            };
            if !has {
                let target = self.target.name();
                return self.error(
                    codes::E0708,
                    name.span,
                    format!(
                        "{target} has no `{}`, which is required here",
                        feature.name()
                    ),
                );
            }
            self.roles.required.push((feature, name.span));
            let kind = OpKind::Role(RoleOp::Require(feature));
            self.builder(name.span).op(kind, Vec::new(), Vec::new());
        }
        Ok(())
    }
}

/// `load(v[…])`, perhaps with `cache = …`: what pads with 0.
fn is_plain_load(callee: &ast::Expr, args: &[ast::Arg]) -> bool {
    let plain = |arg: &ast::Arg| arg.name.as_ref().is_some_and(|n| n.name == "cache");
    bare(callee).is_some_and(|n| n.name == "load")
        && match args {
            [slice] => matches!(slice.value.kind, ExprKind::Index { .. }),
            [slice, rest] => matches!(slice.value.kind, ExprKind::Index { .. }) && plain(rest),
            _ => false,
        }
}

fn counted(n: usize, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}
