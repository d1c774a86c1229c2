//! Products in flight: `await`, turns at them, and what may be done with them before.

use std::collections::HashSet;

use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        RegionId, ValueId,
        tile::{Feature, Kernel, OpKind, RoleOp, TileBody, TileType, Type},
    },
    sema::{Eval, Told, eval::Evaluator, value::Value},
    span::Span,
    syntax::ast,
};

/// Of a pending tile, what it will be.
fn pending(body: &TileBody, value: ValueId) -> Option<&TileType> {
    match body.ty(value) {
        Type::Pending(tile) => Some(tile),
        _ => None,
    }
}

/// Whether one is the product in flight that gives the other, a tile.
pub(in crate::sema) fn becomes(tile: &Type, flight: &Type) -> bool {
    matches!((tile, flight), (Type::Tile(a), Type::Pending(b)) if a == b)
}

impl<'a> Evaluator<'a> {
    /// Where the product in flight begins, if that is in sight.
    fn begins(&self, value: ValueId) -> Option<Span> {
        let op = &self.body.ops[self.body.defining_op(value)?];
        matches!(op.kind, OpKind::Role(RoleOp::Mma)).then_some(op.span)
    }

    /// A product that is used before it is awaited.
    pub(in crate::sema) fn unawaited(&mut self, value: ValueId, span: Span) -> Told {
        let text = self.quote(span);
        let mut diagnostic = Diagnostic::error(
            codes::E0702,
            span,
            format!("{text} is a product in flight, and is used before it is awaited"),
        );
        if let Some(begin) = self.begins(value)
            && begin != span
        {
            diagnostic = diagnostic.label(begin, "it begins here");
        }
        let text = match text.as_str() {
            "this" => "…".to_owned(),
            text => {
                let text = text.trim_matches('`');
                match text.contains([' ', '(']) {
                    true => format!("({text})"),
                    false => text.to_owned(),
                }
            }
        };
        diagnostic = diagnostic
            .note("in flight it may be what the next product adds to, carried by a loop, put, or awaited")
            .help(format!("write `await {text}`"));
        self.report(diagnostic)
    }

    /// A tile as a product that is over.
    pub(in crate::sema) fn in_flight(&mut self, value: ValueId, span: Span) -> ValueId {
        let Type::Tile(tile) = self.body.ty(value).clone() else {
            return value;
        };
        let ty = vec![Type::Pending(tile)];
        let op = self.builder(span).op(OpKind::Cast, vec![value], ty);
        self.body.ops[op].results[0]
    }

    /// `a` times `b`, plus `acc`, begun: what the checks of `dot` let through.
    pub(in crate::sema) fn begin_product(
        &mut self,
        (a, b, acc): (ValueId, ValueId, Option<ValueId>),
        product: TileType,
        span: Span,
    ) -> Eval<ValueId> {
        if product.shape.len() != 2 {
            return self.not_yet(span, "a product of more than two axes in a role");
        }
        let narrow = self.roles.within.as_ref().is_some_and(|h| h.warps < 4);
        let wgmma = self
            .roles
            .required
            .iter()
            .find(|(f, _)| *f == Feature::Wgmma);
        if let (true, Some(&(_, required))) = (narrow, wgmma) {
            let warps = self.roles.within.as_ref().map_or(0, |h| h.warps);
            return self.fail(
                Diagnostic::error(
                    codes::E0708,
                    span,
                    format!(
                        "`wgmma` is for whole warpgroups of four warps, and this role has {warps}"
                    ),
                )
                .label(required, "required here"),
            );
        }
        let operands = [a, b].into_iter().chain(acc).collect();
        let ty = vec![Type::Pending(product)];
        let kind = OpKind::Role(RoleOp::Mma);
        let op = self.builder(span).op(kind, operands, ty);
        Ok(self.body.ops[op].results[0])
    }

    /// `await s lag n`
    pub(in crate::sema) fn await_(
        &mut self,
        value: &'a ast::Expr,
        lag: Option<u64>,
        span: Span,
    ) -> Eval<Value<'a>> {
        self.in_role(span, "`await`")?;
        let lag = self.lag(lag, span)?;
        match self.expr(value)? {
            Value::Run(id) => match self.body.ty(id) {
                Type::Pending(_) => Ok(Value::Run(self.await_value(id, lag, span))),
                // What a loop carries is in flight in some iterations only.
                Type::Tile(_) => Ok(Value::Run(id)),
                _ => self.no_product(&Value::Run(id), value.span),
            },
            other => self.no_product(&other, value.span),
        }
    }

    fn no_product(&mut self, value: &Value<'a>, span: Span) -> Eval<Value<'a>> {
        let what = self.describe(value);
        self.fail(
            Diagnostic::error(
                codes::E0702,
                span,
                format!("`await` is of a product, and this is {what}"),
            )
            .help("products are begun by `mma(a, b)`"),
        )
    }

    pub(in crate::sema) fn await_value(
        &mut self,
        value: ValueId,
        lag: Option<u32>,
        span: Span,
    ) -> ValueId {
        let Some(tile) = pending(&self.body, value).cloned() else {
            return value;
        };
        let kind = OpKind::Role(RoleOp::Await { lag });
        let op = self
            .builder(span)
            .op(kind, vec![value], vec![Type::Tile(tile)]);
        self.body.ops[op].results[0]
    }

    /// `pingpong if C { … }`
    pub(in crate::sema) fn pingpong(
        &mut self,
        pingpong: &'a ast::Pingpong,
        span: Span,
    ) -> Eval<Value<'a>> {
        self.in_role(span, "`pingpong`")?;
        let cond = match &pingpong.cond {
            None => Value::Bool(true),
            Some(cond) => {
                let value = self.expr(cond)?;
                self.bool_scalar((&value, cond.span), "the condition of a `pingpong`")?;
                value
            }
        };
        if matches!(cond, Value::Bool(false)) {
            return self.block(&pingpong.body);
        }
        if let Some(head) = &self.roles.within
            && head.replicas == 1
        {
            let name = head.name.clone();
            return self.fail(
                Diagnostic::error(
                    codes::E0701,
                    span,
                    format!("replicas take turns in a `pingpong`, and `{name}` has none"),
                )
                .help("declare the role with `replicate r in 2`"),
            );
        }
        let cond = self.materialise(&cond, span)?;
        let names = self.assigned_in(&pingpong.body);
        let region = self.body.new_region();
        let walked = self.in_region(region, |this| {
            let value = this.block(&pingpong.body)?;
            let mut leaves = Vec::new();
            for value in this.values(&names).iter().chain([&value]) {
                this.leaves(value, span, &mut leaves)?;
            }
            this.builder(span).yield_(leaves.clone());
            Ok((value, leaves))
        });
        let (value, leaves) = match walked {
            Ok(made) => made,
            Err(told) => {
                let errors = vec![Value::Error; names.len()];
                self.set(&names, errors);
                return Err(told);
            }
        };
        let types = leaves.iter().map(|v| self.body.ty(*v).clone()).collect();
        let (here, kind) = (self.region, OpKind::Role(RoleOp::Pingpong));
        let op = self
            .body
            .append(here, kind, vec![cond], types, vec![region], span);
        let mut results = self.body.ops[op].results.clone().into_iter();
        let after = self
            .values(&names)
            .iter()
            .map(|v| self.with_leaves(v, &mut results))
            .collect();
        self.set(&names, after);
        Ok(self.with_leaves(&value, &mut results))
    }
}

/// Products that nobody awaits.
pub(crate) fn check(kernel: &Kernel) -> Vec<Diagnostic> {
    let body = &kernel.body;
    let mut used = HashSet::new();
    let mut begun = Vec::new();
    walk(body, body.root, &mut used, &mut begun);
    let mut spans: Vec<Span> = begun
        .into_iter()
        .filter(|(value, _)| !used.contains(value))
        .map(|(_, span)| span)
        .collect();
    spans.sort_by_key(|s| (s.file, s.start, s.end));
    spans.dedup();
    let tell = |span| {
        Diagnostic::error(codes::E0703, span, "nobody awaits this product")
            .note("every product must be awaited or put, on every path")
            .help("name it, and write `await` where its value is needed")
    };
    spans.into_iter().map(tell).collect()
}

/// The values that are used, and the products in flight with where they begin.
fn walk(
    body: &TileBody,
    region: RegionId,
    used: &mut HashSet<ValueId>,
    begun: &mut Vec<(ValueId, Span)>,
) {
    for &id in &body.regions[region].ops {
        let op = &body.ops[id];
        used.extend(&op.operands);
        for (i, &result) in op.results.iter().enumerate() {
            if pending(body, result).is_none() {
                continue;
            }
            match op.regions.last() {
                None if matches!(op.kind, OpKind::Cast) => {}
                None => begun.push((result, op.span)),
                // What a region yields that is over already needs nobody.
                Some(&inner) => {
                    let end = body.regions[inner].ops.last();
                    let from = end.and_then(|&end| body.ops[end].operands.get(i).copied());
                    let from = from
                        .and_then(|v| body.defining_op(v))
                        .map(|op| &body.ops[op]);
                    match from {
                        Some(op) if matches!(op.kind, OpKind::Cast) => {}
                        Some(op) => begun.push((result, op.span)),
                        None => begun.push((result, op.span)),
                    }
                }
            }
        }
        for &inner in &op.regions {
            walk(body, inner, used, begun);
        }
    }
}
