//! Views derived from other views: what they are made of.
//!
//! A derived view is a description: scalars of the body that bound it, and the view that it is derived from. What an access
//! through one is on the parameter says [`access`]; [`layouts`] are the orders in memory that authors declare.
//!
//! Invariants: bounds of a part are clamped into order and into its base; a derived view is of the parameter's memory, with
//! elements of one type from the parameter up.

mod access;
mod layouts;

use std::rc::Rc;

use tesserine_set::{DType, Fact, Formula, FormulaOp, ParamKind, Term};

use super::{
    Eval,
    access::count,
    call::Argument,
    eval::Evaluator,
    value::{Extent, Num, Origin, Part, Value, ViewValue},
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{ValueId, tile::BinaryOp},
    span::Span,
    syntax::ast::{self, ExprKind, IndexKind},
};
pub(crate) use access::{AxisOrder, Ix, Logical};

impl<'a> Evaluator<'a> {
    // Integers of the body.

    pub fn num(&mut self, value: &Value<'a>, span: Span, what: &str) -> Eval<Num> {
        if let Value::Int(v) = value {
            return match i64::try_from(*v) {
                Ok(v) => Ok(Num::Int(v)),
                Err(_) => self.error(codes::E0302, span, "this constant leaves the 64-bit range"),
            };
        }
        Ok(Num::Run(self.int_scalar((value, span), what)?))
    }

    fn num_expr(&mut self, expr: &'a ast::Expr, what: &str) -> Eval<Num> {
        let value = self.expr(expr)?;
        self.num(&value, expr.span, what)
    }

    pub fn num_id(&mut self, num: Num) -> ValueId {
        match num {
            Num::Int(v) => self.int(v),
            Num::Run(id) => id,
        }
    }

    fn num_op(&mut self, op: BinaryOp, a: Num, b: Num, span: Span) -> Eval<Num> {
        let value = self.arithmetic(op, (&a.value(), span), (&b.value(), span), span)?;
        self.num(&value, span, "an index")
    }

    fn add(&mut self, a: Num, b: Num, span: Span) -> Eval<Num> {
        self.num_op(BinaryOp::Add, a, b, span)
    }

    /// The extent of a dimension as a scalar of the body.
    pub fn extent_num(&mut self, extent: &Extent, span: Span) -> Eval<Num> {
        if let Some(v) = extent.as_int() {
            return Ok(Num::Int(v));
        }
        match extent {
            Extent::Launch(formula) => {
                let value = self.formula_value(formula, span)?;
                self.num(&value, span, "an extent")
            }
            Extent::Num(num) => Ok(*num),
            Extent::Between(from, to) => self.num_op(BinaryOp::Sub, *to, *from, span),
            Extent::Quotient(of, by) => {
                let of = self.extent_num(of, span)?;
                self.num_op(BinaryOp::Div, of, Num::Int(*by), span)
            }
            Extent::Product(a, b) => {
                let a = self.extent_num(a, span)?;
                let b = self.extent_num(b, span)?;
                self.num_op(BinaryOp::Mul, a, b, span)
            }
        }
    }

    /// [`Self::extent_num`] as a value.
    pub fn extent_value(&mut self, extent: &Extent, span: Span) -> Eval<Value<'a>> {
        Ok(self.extent_num(extent, span)?.value())
    }

    // Making views.

    /// `view x[…]`.
    pub fn view_expr(&mut self, expr: &'a ast::Expr) -> Eval<Value<'a>> {
        Ok(Value::View(self.view_of(expr)?))
    }

    fn view_of(&mut self, expr: &'a ast::Expr) -> Eval<Rc<ViewValue>> {
        let value = match &expr.kind {
            ExprKind::Index { base, indices } => {
                let base = self.view_of(base)?;
                return self.part_of(base, indices, expr.span);
            }
            ExprKind::Field { base, name } if name.name == "t" => {
                if let ExprKind::Index { .. } = base.kind {
                    let base = self.view_of(base)?;
                    return self.transposed(&base, expr.span);
                }
                self.expr(expr)?
            }
            _ => self.expr(expr)?,
        };
        match value {
            Value::View(view) => Ok(view),
            other => {
                let what = self.describe(&other);
                self.fail(
                    Diagnostic::error(
                        codes::E0108,
                        expr.span,
                        format!("`view` makes a view of a part of a view, and this is {what}"),
                    )
                    .help("a part of a tile is a tile: leave out `view`"),
                )
            }
        }
    }

    /// The part of a view that `indices` name.
    fn part_of(
        &mut self,
        view: Rc<ViewValue>,
        indices: &'a [ast::Index],
        span: Span,
    ) -> Eval<Rc<ViewValue>> {
        self.check_count(&view, indices, span)?;
        let mut parts = Vec::new();
        let mut extents = Vec::new();
        for (index, extent) in indices.iter().zip(&view.extents) {
            let (lo, hi) = match &index.kind {
                IndexKind::NewAxis => (None, None),
                IndexKind::Expr(expr) => {
                    let value = self.expr(expr)?;
                    if let Some(super::eval::Shape::Tile(..)) = self.shape_of(&value) {
                        return self.fail(
                            Diagnostic::error(
                                codes::E0210,
                                index.span,
                                "a sub-view has bounds, and this is an index tile",
                            )
                            .help("leave out `view` to read the elements with these indices"),
                        );
                    }
                    parts.push(Part::At(self.num(&value, expr.span, "an index")?));
                    continue;
                }
                IndexKind::Range { start, end } => {
                    let lo = match start {
                        Some(e) => Some(self.num_expr(e, "a bound of a view")?),
                        None => None,
                    };
                    let hi = match end {
                        Some(e) => Some(self.num_expr(e, "a bound of a view")?),
                        None => None,
                    };
                    (lo, hi)
                }
                IndexKind::Slice {
                    start,
                    len,
                    from,
                    until,
                } => {
                    if let Some(from) = from {
                        return self.error(
                            codes::E0202,
                            from.span,
                            "a view has no elements before its first: `from` is for what is read or stored",
                        );
                    }
                    let lo = self.num_expr(start, "a bound of a view")?;
                    let len = self.num_expr(len, "the length of a view")?;
                    let mut hi = self.add(lo, len, index.span)?;
                    if let Some(until) = until {
                        let limit = self.num_expr(until, "a limit")?;
                        hi = self.num_op(BinaryOp::Min, hi, limit, until.span)?;
                    }
                    (Some(lo), Some(hi))
                }
            };
            if lo.is_none() && hi.is_none() {
                parts.push(Part::Whole);
                extents.push(extent.clone());
                continue;
            }
            let at = index.span;
            let d = self.extent_num(extent, at)?;
            let zero = Num::Int(0);
            let lo = match lo {
                Some(x) => {
                    let x = self.num_op(BinaryOp::Min, x, d, at)?;
                    Some(self.num_op(BinaryOp::Max, x, zero, at)?)
                }
                None => None,
            };
            let from = lo.unwrap_or(zero);
            let hi = match hi {
                Some(y) => {
                    let y = self.num_op(BinaryOp::Min, y, d, at)?;
                    Some(self.num_op(BinaryOp::Max, y, from, at)?)
                }
                None => None,
            };
            let lo = lo.filter(|l| *l != zero);
            let hi = hi.filter(|h| *h != d || matches!(h, Num::Run(_)));
            if lo.is_none() && hi.is_none() {
                parts.push(Part::Whole);
                extents.push(extent.clone());
                continue;
            }
            parts.push(Part::Range(lo, hi));
            extents.push(Extent::Between(from, hi.unwrap_or(d)));
        }
        if extents.is_empty() {
            return self.fail(
                Diagnostic::error(codes::E0210, span, "this view has no dimension left")
                    .help("leave out `view` to read the element"),
            );
        }
        Ok(self.derived(&view, extents, Origin::Part(view.clone(), parts)))
    }

    fn derived(&self, of: &ViewValue, extents: Vec<Extent>, origin: Origin) -> Rc<ViewValue> {
        Rc::new(ViewValue {
            name: of.name.clone(),
            elem: of.elem,
            access: of.access,
            extents,
            origin,
            span: of.span,
        })
    }

    /// `v.t`.
    pub fn transposed(&mut self, view: &Rc<ViewValue>, span: Span) -> Eval<Rc<ViewValue>> {
        let rank = view.extents.len();
        if rank < 2 {
            return self.error(
                codes::E0206,
                span,
                format!(
                    "`.t` swaps the last two dimensions, and {} has one",
                    view.called()
                ),
            );
        }
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(rank - 2, rank - 1);
        Ok(self.permuted(view, perm))
    }

    fn permuted(&mut self, view: &Rc<ViewValue>, perm: Vec<usize>) -> Rc<ViewValue> {
        let extents = perm.iter().map(|&p| view.extents[p].clone()).collect();
        self.derived(view, extents, Origin::Permute(view.clone(), perm))
    }

    /// `v.permute([…])`, `v.split(i, c)`, `v.merge(i, j)`.
    pub fn rearranged(
        &mut self,
        method: &str,
        (view, at): (Rc<ViewValue>, Span),
        args: Vec<Argument<'a>>,
        span: Span,
    ) -> Eval<Rc<ViewValue>> {
        let rank = view.extents.len();
        let name = view.called();
        match method {
            "permute" => {
                let [list] = self.exactly(method, ["order"], args, span)?;
                let mut perm = Vec::new();
                if let Value::List(items) = &list.value {
                    for item in items.iter() {
                        let i = self.as_const_int(item, list.span, "an entry of this list")?;
                        perm.push(usize::try_from(i).unwrap_or(usize::MAX));
                    }
                }
                let mut sorted = perm.clone();
                sorted.sort_unstable();
                if sorted != (0..rank).collect::<Vec<_>>() {
                    return self.error(
                        codes::E0206,
                        list.span,
                        format!(
                            "`permute` takes a list of the dimensions of {name}, 0 to {}, each once",
                            rank - 1
                        ),
                    );
                }
                Ok(self.permuted(&view, perm))
            }
            "split" => {
                let [i, c] = self.exactly(method, ["i", "c"], args, span)?;
                let dim = self.axis(&i, rank, &name)? as usize;
                let inner = self.as_const_int(&c.value, c.span, "the inner extent of a split")?;
                if inner < 1 {
                    return self.error(
                        codes::E0205,
                        c.span,
                        format!("the inner extent of a split is at least 1, and this is {inner}"),
                    );
                }
                self.check_rank(rank + 1, span)?;
                let mut extents = view.extents.clone();
                extents[dim] = quotient(&view.extents[dim], inner);
                extents.insert(dim + 1, Extent::Num(Num::Int(inner)));
                let base = view.clone();
                Ok(self.derived(&view, extents, Origin::Split { base, dim, inner }))
            }
            _ => {
                let [i, j] = self.exactly(method, ["i", "j"], args, span)?;
                let dim = self.axis(&i, rank, &name)? as usize;
                let other = self.axis(&j, rank, &name)? as usize;
                if other != dim + 1 {
                    return self.fail(
                        Diagnostic::error(
                            codes::E0210,
                            span,
                            format!("`merge` joins a dimension and the next, and these are {dim} and {other}"),
                        )
                        .label(at, format!("{} of {name}", count(rank, "dimension")))
                        .help("bring them side by side: `.permute([…])`"),
                    );
                }
                let mut extents = view.extents.clone();
                let inner = extents.remove(other);
                let outer = extents[dim].clone();
                extents[dim] = match (outer, inner) {
                    (Extent::Launch(a), Extent::Launch(b)) => {
                        Extent::Launch(Formula::binary(FormulaOp::Mul, a, b))
                    }
                    (a, b) => Extent::Product(Box::new(a), Box::new(b)),
                };
                let base = view.clone();
                Ok(self.derived(&view, extents, Origin::Merge { base, dim }))
            }
        }
    }

    fn check_rank(&mut self, rank: usize, span: Span) -> Eval<()> {
        if rank > 8 {
            return self.error(
                codes::E0210,
                span,
                format!("a view has at most 8 dimensions, and this one would have {rank}"),
            );
        }
        Ok(())
    }

    /// `paged(cache, ids, len)`.
    pub fn paged(&mut self, args: Vec<Argument<'a>>, span: Span) -> Eval<Value<'a>> {
        let [cache, ids, len] = self.exactly("paged", ["cache", "ids", "len"], args, span)?;
        let mut views = Vec::new();
        for (arg, what) in [(&cache, "pages"), (&ids, "the numbers of pages")] {
            match &arg.value {
                Value::View(view) => views.push(view.clone()),
                other => {
                    let got = self.describe(other);
                    return self.error(
                        codes::E0108,
                        arg.span,
                        format!("{what} are a view, and this is {got}"),
                    );
                }
            }
        }
        let (base, ids_view) = (views[0].clone(), views[1].clone());
        let page = base
            .extents
            .get(1)
            .and_then(Extent::as_int)
            .filter(|p| *p > 0);
        let Some(page) = page else {
            return self.fail(
                Diagnostic::error(
                    codes::E0210,
                    cache.span,
                    format!(
                        "`paged` takes a view `[pages, P, …]` with a constant P, and {} is none",
                        base.called()
                    ),
                )
                .label(base.span, "declared here"),
            );
        };
        if ids_view.extents.len() != 1 || !ids_view.elem.is_int() {
            return self.fail(
                Diagnostic::error(
                    codes::E0210,
                    ids.span,
                    format!(
                        "the numbers of pages are a view of integers with one dimension, and {} is a view of `{}` with {}",
                        ids_view.called(),
                        ids_view.elem,
                        count(ids_view.extents.len(), "dimension")
                    ),
                )
                .label(ids_view.span, "declared here"),
            );
        }
        let len = self.num(&len.value, len.span, "the length of a paged view")?;
        let mut extents = base.extents.clone();
        extents.remove(0);
        let zero = Num::Int(0);
        extents[0] = Extent::Num(self.num_op(BinaryOp::Max, len, zero, span)?);
        let origin = Origin::Paged {
            base: base.clone(),
            ids: ids_view,
            page,
            len,
        };
        Ok(Value::View(self.derived(&base, extents, origin)))
    }

    /// `bitcast<U>(v)`.
    pub fn view_bitcast(
        &mut self,
        view: &Rc<ViewValue>,
        elem: DType,
        span: Span,
    ) -> Eval<Rc<ViewValue>> {
        if elem == view.elem {
            return Ok(view.clone());
        }
        if elem == DType::Bool || view.elem == DType::Bool {
            return self.error(
                codes::E0102,
                span,
                "a `bool` is no pattern of bits that other elements could have",
            );
        }
        let (root, param) = view.root();
        let declared = match &self.signature.params[param as usize].kind {
            ParamKind::View(declared) => declared.clone(),
            ParamKind::Scalar { .. } => return Err(super::Told),
        };
        if declared.strided {
            return self.fail(
                Diagnostic::error(
                    codes::E0210,
                    span,
                    format!("the last dimension of `{}` is `strided`, so that its elements do not lie side by side", root.name),
                )
                .label(root.span, "declared here"),
            );
        }
        let (from, to) = (i64::from(view.elem.bits()), i64::from(elem.bits()));
        match self.recast(view, elem, (from, to)) {
            Ok(made) => {
                if to > from && to > 8 {
                    let bytes = elem.bits() / 8;
                    let fact = Fact::Aligned { param, bytes };
                    if !self.assumed.contains(&fact) {
                        self.assumed.push(fact);
                    }
                }
                Ok(made)
            }
            Err(why) => self.fail(
                Diagnostic::error(codes::E0210, span, why)
                    .label(view.span, "declared here")
                    .help("bring the parameter to other elements first: `view bitcast<…>(v)[…]`"),
            ),
        }
    }

    /// The same steps from a parameter with other elements.
    fn recast(
        &self,
        view: &ViewValue,
        elem: DType,
        (from, to): (i64, i64),
    ) -> Result<Rc<ViewValue>, String> {
        let last = view.extents.len() - 1;
        let again = |base: &ViewValue| self.recast(base, elem, (from, to));
        let origin = match &view.origin {
            Origin::Param(param) => Origin::Param(*param),
            Origin::Part(base, parts) => {
                let mut parts = parts.clone();
                match parts.last_mut() {
                    Some(Part::Whole) | None => {}
                    Some(Part::At(_)) => {
                        return Err("the last dimension has been indexed, so that elements no longer lie side by side".into());
                    }
                    Some(Part::Range(lo, hi)) => {
                        for bound in [lo, hi] {
                            *bound = match *bound {
                                Some(Num::Int(v)) if v * from % to == 0 => {
                                    Some(Num::Int(v * from / to))
                                }
                                None => None,
                                Some(_) => {
                                    return Err(format!(
                                        "the last dimension has been cut where an element of `{elem}` may not begin"
                                    ));
                                }
                            };
                        }
                    }
                }
                Origin::Part(again(base)?, parts)
            }
            Origin::Permute(base, perm) => {
                if perm.last() != Some(&last) {
                    return Err(
                        "the last dimension is not the one whose elements lie side by side".into(),
                    );
                }
                Origin::Permute(again(base)?, perm.clone())
            }
            Origin::Split { base, dim, inner } => {
                let inner = if *dim + 1 == last {
                    if inner * from % to != 0 {
                        return Err(format!(
                            "the last dimension of {inner} holds no whole number of elements of `{elem}`"
                        ));
                    }
                    inner * from / to
                } else {
                    *inner
                };
                Origin::Split {
                    base: again(base)?,
                    dim: *dim,
                    inner,
                }
            }
            Origin::Merge { base, dim } => {
                if *dim == last {
                    let inner = base.extents[*dim + 1].as_int();
                    if inner.is_none_or(|d| d * from % to != 0) {
                        return Err(
                            "rows have been merged that may hold no whole number of these elements"
                                .into(),
                        );
                    }
                }
                Origin::Merge {
                    base: again(base)?,
                    dim: *dim,
                }
            }
            Origin::Paged {
                base,
                ids,
                page,
                len,
            } => {
                if last == 0 {
                    return Err("the rows of a paged view are counted one by one".into());
                }
                Origin::Paged {
                    base: again(base)?,
                    ids: ids.clone(),
                    page: *page,
                    len: *len,
                }
            }
            Origin::Layout { .. } => {
                return Err("the elements of a layout lie one by one".into());
            }
        };
        let mut extents = view.extents.clone();
        let old = &extents[last];
        extents[last] = match (old.as_int(), from > to) {
            (Some(d), _) => Extent::Num(Num::Int(d * from / to)),
            (None, true) => {
                let factor = Extent::Num(Num::Int(from / to));
                Extent::Product(Box::new(old.clone()), Box::new(factor))
            }
            (None, false) => quotient(old, to / from),
        };
        Ok(Rc::new(ViewValue {
            name: view.name.clone(),
            elem,
            access: view.access,
            extents,
            origin,
            span: view.span,
        }))
    }
}

impl Num {
    pub fn value<'a>(self) -> Value<'a> {
        match self {
            Num::Int(v) => Value::Int(v.into()),
            Num::Run(id) => Value::Run(id),
        }
    }
}

impl ViewValue {
    /// "`q`", or "this view of `q`".
    pub fn called(&self) -> String {
        match self.origin {
            Origin::Param(_) => format!("`{}`", self.name),
            _ => format!("this view of `{}`", self.name),
        }
    }
}

/// `extent / c`, in the form that says most.
fn quotient(extent: &Extent, c: i64) -> Extent {
    match extent {
        _ if extent.as_int().is_some() => {
            Extent::Num(Num::Int(extent.as_int().unwrap_or(0).div_euclid(c)))
        }
        Extent::Launch(formula) => match factor(formula, c) {
            Some(rest) => Extent::Launch(rest),
            None => Extent::Launch(Formula::binary(
                FormulaOp::Div,
                formula.clone(),
                Formula::int(c),
            )),
        },
        other => Extent::Quotient(Box::new(other.clone()), c),
    }
}

/// Whether an extent is a multiple of c, as written.
fn divides(extent: &Extent, c: i64) -> bool {
    match extent {
        _ if c == 1 => true,
        Extent::Launch(formula) => {
            formula.as_int().is_some_and(|d| d % c == 0) || factor(formula, c).is_some()
        }
        Extent::Product(a, b) => divides(a, c) || divides(b, c),
        other => other.as_int().is_some_and(|d| d % c == 0),
    }
}

/// The formula without its factor c, if it is a product with a multiple of it.
fn factor(formula: &Formula, c: i64) -> Option<Formula> {
    let (last, rest) = formula.0.split_last()?;
    if *last != Term::Op(FormulaOp::Mul) {
        return None;
    }
    let scaled = |k: i64, other: &[Term]| {
        let other = Formula(other.to_vec());
        (k % c == 0).then(|| match k / c {
            1 => other,
            k => Formula::binary(FormulaOp::Mul, other, Formula::int(k)),
        })
    };
    match rest {
        [front @ .., Term::Int(k)] if is_one(front) => scaled(*k, front),
        [Term::Int(k), back @ ..] if is_one(back) => scaled(*k, back),
        _ => None,
    }
}

/// Whether the terms are one operand.
fn is_one(terms: &[Term]) -> bool {
    let mut depth = 0i64;
    for (i, term) in terms.iter().enumerate() {
        depth += match term {
            Term::Op(op) => 1 - op.arity() as i64,
            _ => 1,
        };
        if depth < 1 || (depth == 1 && i + 1 == terms.len()) {
            return depth == 1;
        }
    }
    false
}
