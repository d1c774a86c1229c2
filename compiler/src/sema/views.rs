//! Views derived from other views, and what an access through one is on the parameter.
//!
//! A derived view is a description: scalars of the body that bound it, and the view that it is derived from. An access
//! has an index for each dimension; they are carried down, one view after another, until they are indices of the
//! parameter. Affine maps stay starts and lengths; what is none becomes an index tile.
//!
//! Invariants: an index outside a derived view is outside the parameter when it gets there (−1 by choice); lower limits are
//! never negative; every axis of the access belongs to one range, or to index tiles only.

use std::{collections::HashMap, rc::Rc};

use tesserine_set::{DType, Env, Fact, Formula, FormulaOp, ParamKind, Term};

use super::{
    Eval,
    access::count,
    call::Argument,
    eval::{Evaluator, Frame, broadcast},
    modules::Def,
    value::{Extent, Num, Origin, Part, Symbol, Value, ViewValue},
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        ValueId,
        tile::{BinaryOp, Cache, CompareOp, Index, Type},
    },
    span::Span,
    syntax::ast::{self, ExprKind, IndexKind},
};

/// An index of one dimension of a view, while an access is carried down. `axes`: those of the access that it makes, by
/// number, from the slowest to the fastest.
#[derive(Clone, Debug)]
pub(crate) enum Ix {
    /// One element; no axis.
    At(Num),
    /// `len` elements from `start` on; those below `from` or not below `until` are outside. `inside`: `until` is not past
    /// the end of the dimension.
    Range {
        start: Num,
        len: u32,
        from: Option<Num>,
        until: Option<Num>,
        inside: bool,
        axes: Vec<usize>,
    },
    /// All, of a constant extent.
    Whole { len: u32, axes: Vec<usize> },
    /// The elements with the indices of an integer tile, whose shape is that of the axes.
    Tile { index: ValueId, axes: Vec<usize> },
}

/// An access to a parameter.
pub(crate) struct Access {
    pub indices: Vec<Index>,
    pub operands: Vec<ValueId>,
    /// Where the axes of the tile of the operation go.
    pub order: AxisOrder,
    pub logical: Option<Logical>,
}

/// The indices of an access before they became index tiles: of elements that lie in different places if they differ.
#[derive(Clone, Debug)]
pub(crate) struct Logical {
    /// The view that they are of: accesses of one parameter in one space are comparable.
    pub space: String,
    pub indices: Vec<Ix>,
}

impl Logical {
    /// `indices` of `view`, if it is the parameter in another order only, in one way for all blocks.
    fn new(view: &ViewValue, indices: &[Ix]) -> Option<Logical> {
        fn space(view: &ViewValue, out: &mut String) -> Option<()> {
            let base = match &view.origin {
                Origin::Param(_) => return Some(()),
                Origin::Part(..) | Origin::Paged { .. } => return None,
                Origin::Permute(base, perm) => {
                    out.push_str(&format!("permute {perm:?} "));
                    base
                }
                Origin::Split { base, dim, inner } => {
                    out.push_str(&format!("split {dim} {inner} "));
                    base
                }
                Origin::Merge { base, dim } => {
                    out.push_str(&format!("merge {dim} "));
                    base
                }
                // A parameter is in one layout.
                Origin::Layout { base, .. } => {
                    out.push_str("layout ");
                    base
                }
            };
            space(base, out)
        }
        let mut name = format!("{} ", view.elem);
        space(view, &mut name)?;
        Some(Logical {
            space: name,
            indices: indices.to_vec(),
        })
    }
}

/// How the tile that the author sees and the tile of the operation differ.
#[derive(Clone, Debug)]
pub(crate) struct AxisOrder {
    /// The shape in the operation.
    flat: Vec<u32>,
    /// The same elements with the author's axes, in the order of memory.
    fine: Vec<u32>,
    /// Axis i of the author is axis `place[i]` of `fine`.
    place: Vec<u32>,
}

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
                IndexKind::Slice { start, len, until } => {
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

    // Layouts.

    /// The layout that a path names, for a view of `rank` dimensions.
    pub fn layout_item(
        &mut self,
        path: &'a ast::Path,
        rank: usize,
    ) -> Eval<(super::Module, usize)> {
        let program = self.program;
        let mut def = program.lookup(self.module(), &path.segments[0].name);
        for segment in &path.segments[1..] {
            def = match def {
                Some(Def::Module(inner)) => program.lookup(inner, &segment.name),
                _ => None,
            };
        }
        let found = match def {
            Some(Def::Item(module, index)) => match &program.item(module, index).kind {
                ast::ItemKind::Layout(layout) => Some((module, index, layout)),
                _ => None,
            },
            _ => None,
        };
        let Some((module, index, layout)) = found else {
            let text = self.quote(path.span);
            return self.fail(
                Diagnostic::error(codes::E0101, path.span, format!("{text} is no layout"))
                    .help("a layout is declared as `layout name(r, c) of [m, n] size … = …;`"),
            );
        };
        if layout.dims.len() != rank || layout.indices.len() != rank {
            return self.fail(
                Diagnostic::error(
                    codes::E0210,
                    path.span,
                    format!(
                        "the layout `{}` is of {}, and this view has {rank}",
                        layout.name.name,
                        count(layout.dims.len(), "dimension")
                    ),
                )
                .label(layout.name.span, "declared here"),
            );
        }
        Ok((module, index))
    }

    /// How many elements a buffer in a layout has, where the view has these extents.
    pub fn layout_size(
        &mut self,
        (module, item): (super::Module, usize),
        extents: &[Formula],
        span: Span,
    ) -> Eval<Formula> {
        let program = self.program;
        let ast::ItemKind::Layout(layout) = &program.item(module, item).kind else {
            return Err(super::Told);
        };
        // The layout's own names stand for dimensions that no signature has, and then for what they are.
        let place = |k: usize| u32::MAX - k as u32;
        self.frames.push(Frame::new(module));
        self.calls.push((span, layout.name.name.clone()));
        for (k, dim) in layout.dims.iter().enumerate() {
            if let Some(name) = super::call::bare(&dim.expr) {
                self.bind(name, Value::Symbol(Symbol::Dim(place(k))), false);
            }
        }
        let size = self.host(&layout.size, false, codes::E0208, "the size of a layout");
        self.calls.pop();
        self.frames.pop();
        let size = size?;
        self.check_layout((module, item), &size, span)?;
        let mut terms = Vec::new();
        for term in size.0 {
            match term {
                Term::Dim(d) if (0..extents.len()).any(|k| place(k) == d) => {
                    terms.extend(extents[(u32::MAX - d) as usize].0.iter().copied());
                }
                term => terms.push(term),
            }
        }
        Ok(Formula(terms))
    }

    /// A layout gives every element a place of its own within its size, as far as extents of whole tiles show.
    fn check_layout(
        &mut self,
        (module, item): (super::Module, usize),
        size: &Formula,
        span: Span,
    ) -> Eval<()> {
        let program = self.program;
        let ast::ItemKind::Layout(layout) = &program.item(module, item).kind else {
            return Err(super::Told);
        };
        let rank = layout.dims.len();
        let place = |k: usize| u32::MAX - k as u32;
        self.frames.push(Frame::new(module));
        self.calls.push((span, layout.name.name.clone()));
        let dims = layout.dims.iter().map(|d| super::call::bare(&d.expr));
        let names = dims.chain(layout.indices.iter().map(Some));
        for (k, name) in names.enumerate() {
            if let Some(name) = name {
                self.bind(name, Value::Symbol(Symbol::Dim(place(k))), false);
            }
        }
        let offset = self.host(
            &layout.offset,
            false,
            codes::E0208,
            "the offset of a layout",
        );
        self.calls.pop();
        self.frames.pop();
        let own = |formula: &Formula| {
            let terms = formula.0.iter().map(|term| match *term {
                Term::Dim(d) if u32::MAX - d < 2 * rank as u32 => Term::Dim(u32::MAX - d),
                term => term,
            });
            Formula(terms.collect())
        };
        let (offset, size) = (own(&offset?), own(size));
        if let Some(why) = collision(&offset, &size, rank) {
            return self.fail(
                Diagnostic::error(
                    codes::E0212,
                    layout.offset.span,
                    format!("`{}` is no layout: {why}", layout.name.name),
                )
                .label(span, "used here"),
            );
        }
        Ok(())
    }

    // Accesses.

    /// The access to the parameter that indices of a view are. `lens`: the lengths of the axes.
    pub fn access(
        &mut self,
        view: &ViewValue,
        indices: Vec<Ix>,
        lens: &[u32],
        span: Span,
    ) -> Eval<Access> {
        let mut walk = Walk {
            lens: lens.to_vec(),
            span,
            logical: None,
        };
        let indices = self.carry(view, indices, &mut walk)?;
        let mut access = self.finish_access(indices, lens, span)?;
        access.logical = walk.logical;
        Ok(access)
    }

    /// Carries indices of a view down to the parameter.
    fn carry(&mut self, view: &ViewValue, mut ix: Vec<Ix>, walk: &mut Walk) -> Eval<Vec<Ix>> {
        let span = walk.span;
        let rearranged = matches!(
            view.origin,
            Origin::Split { .. } | Origin::Merge { .. } | Origin::Layout { .. }
        );
        if rearranged && walk.logical.is_none() {
            walk.logical = Logical::new(view, &ix);
        }
        match &view.origin {
            Origin::Param(_) => Ok(ix),
            Origin::Part(base, parts) => {
                let mut given = ix.into_iter();
                let mut extents = view.extents.iter();
                let mut next = Vec::new();
                for part in parts {
                    next.push(match *part {
                        Part::At(at) => Ix::At(at),
                        Part::Whole => {
                            extents.next();
                            given.next().unwrap_or(Ix::At(Num::Int(0)))
                        }
                        Part::Range(lo, hi) => {
                            let extent = extents.next().and_then(Extent::as_int);
                            let ix = given.next().unwrap_or(Ix::At(Num::Int(0)));
                            self.carry_part(ix, (lo, hi), extent, span)?
                        }
                    });
                }
                self.carry(base, next, walk)
            }
            Origin::Permute(base, perm) => {
                let mut next: Vec<Ix> = vec![Ix::At(Num::Int(0)); perm.len()];
                for (ix, &to) in ix.into_iter().zip(perm) {
                    next[to] = ix;
                }
                self.carry(base, next, walk)
            }
            Origin::Split { base, dim, inner } => {
                let n = ix.remove(dim + 1);
                let o = std::mem::replace(&mut ix[*dim], Ix::At(Num::Int(0)));
                ix[*dim] = self.carry_split(&base.extents[*dim], *inner, o, n, walk)?;
                self.carry(base, ix, walk)
            }
            Origin::Merge { base, dim } => {
                let inner = self.extent_num(&base.extents[dim + 1], span)?;
                let inner = self.num_op(BinaryOp::Max, inner, Num::Int(1), span)?;
                let e = std::mem::replace(&mut ix[*dim], Ix::At(Num::Int(0)));
                let (o, n) = self.divided(&e, inner, walk)?;
                ix[*dim] = o;
                ix.insert(dim + 1, n);
                self.carry(base, ix, walk)
            }
            Origin::Paged {
                base,
                ids,
                page,
                len,
            } => {
                let t = std::mem::replace(&mut ix[0], Ix::At(Num::Int(0)));
                let (page, row) = self.carry_paged(ids, *page, *len, t, walk)?;
                ix[0] = page;
                ix.insert(1, row);
                self.carry(base, ix, walk)
            }
            Origin::Layout { base, module, item } => {
                let offset = self.carry_layout(view, *module, *item, &ix, walk)?;
                self.carry(base, vec![offset], walk)
            }
        }
    }

    fn carry_part(
        &mut self,
        ix: Ix,
        (lo, hi): (Option<Num>, Option<Num>),
        extent: Option<i64>,
        span: Span,
    ) -> Eval<Ix> {
        let zero = Num::Int(0);
        Ok(match ix {
            Ix::At(e) => {
                let moved = match lo {
                    Some(lo) => self.add(lo, e, span)?,
                    None => e,
                };
                if let (Num::Int(e), Some(extent)) = (e, extent)
                    && (0..extent).contains(&e)
                {
                    return Ok(Ix::At(moved));
                }
                let value = e.value();
                let low = lo.map(|_| (&value, zero));
                let moved_value = moved.value();
                let high = hi.map(|hi| (&moved_value, hi));
                Ix::At(self.inside_num(moved, low, high, span)?)
            }
            Ix::Range {
                start,
                len,
                from,
                until,
                inside,
                axes,
            } => {
                let moved = match lo {
                    Some(lo) => self.add(lo, start, span)?,
                    None => start,
                };
                if let (Num::Int(s), Some(extent)) = (start, extent)
                    && s >= 0
                    && s + i64::from(len) <= extent
                    && from.is_none()
                    && until.is_none()
                {
                    return Ok(Ix::Range {
                        start: moved,
                        len,
                        from,
                        until,
                        inside,
                        axes,
                    });
                }
                let from = match (lo, from) {
                    (Some(lo), Some(from)) => Some(self.add(lo, from, span)?),
                    (lo, from) => lo.or(from),
                };
                let limit = match (lo, until) {
                    (Some(lo), Some(until)) => Some(self.add(lo, until, span)?),
                    (_, until) => until,
                };
                let until = match (hi, limit) {
                    (Some(hi), Some(limit)) if !inside => {
                        Some(self.num_op(BinaryOp::Min, hi, limit, span)?)
                    }
                    (hi, limit) => limit.or(hi),
                };
                Ix::Range {
                    start: moved,
                    len,
                    from,
                    until,
                    inside: inside || hi.is_some(),
                    axes,
                }
            }
            Ix::Whole { len, axes } => Ix::Range {
                start: lo.unwrap_or(zero),
                len,
                from: None,
                until: None,
                inside: true,
                axes,
            },
            Ix::Tile { index, axes } => {
                let index = self.builder(span).cast(index, DType::I64);
                let value = Value::Run(index);
                let moved = match lo {
                    Some(lo) => {
                        self.arithmetic(BinaryOp::Add, (&lo.value(), span), (&value, span), span)?
                    }
                    None => value.clone(),
                };
                let low = lo.map(|_| (&value, zero));
                let moved_ref = moved.clone();
                let high = hi.map(|hi| (&moved_ref, hi));
                let kept = self.inside(moved, low, high, span)?;
                Ix::Tile {
                    index: self.materialise(&kept, span)?,
                    axes,
                }
            }
        })
    }

    /// `value`, or −1 where `low.0 < low.1` or `high.0 >= high.1`.
    fn inside(
        &mut self,
        value: Value<'a>,
        low: Option<(&Value<'a>, Num)>,
        high: Option<(&Value<'a>, Num)>,
        span: Span,
    ) -> Eval<Value<'a>> {
        let mut ok: Option<Value<'a>> = None;
        for (op, bound) in [(CompareOp::Ge, low), (CompareOp::Lt, high)] {
            let Some((x, limit)) = bound else { continue };
            let one = self.compare(op, (x, span), (&limit.value(), span), span)?;
            ok = Some(match ok {
                None => one,
                Some(other) => {
                    self.arithmetic(BinaryOp::And, (&other, span), (&one, span), span)?
                }
            });
        }
        match ok {
            None | Some(Value::Bool(true)) => Ok(value),
            Some(Value::Bool(false)) => Ok(Value::Int(-1)),
            Some(cond) => {
                let (_, shape) = self.unify(&[(&value, span)], span)?;
                let (_, wide) = self.unify(&[(&cond, span)], span)?;
                let shape = broadcast(&shape, &wide).unwrap_or(wide);
                let cond = self.coerce(&cond, DType::Bool, &shape, span)?;
                let value = self.coerce(&value, DType::I64, &shape, span)?;
                let outside = self.coerce(&Value::Int(-1), DType::I64, &shape, span)?;
                Ok(Value::Run(self.builder(span).select(cond, value, outside)))
            }
        }
    }

    fn inside_num(
        &mut self,
        num: Num,
        low: Option<(&Value<'a>, Num)>,
        high: Option<(&Value<'a>, Num)>,
        span: Span,
    ) -> Eval<Num> {
        let value = self.inside(num.value(), low, high, span)?;
        self.num(&value, span, "an index")
    }

    /// Of a dimension of `extent` the element `o · c + n`.
    fn carry_split(&mut self, extent: &Extent, c: i64, o: Ix, n: Ix, walk: &mut Walk) -> Eval<Ix> {
        let span = walk.span;
        let times = Num::Int(c);
        // What does not fill a row at the end is not part of the split view.
        let exact = divides(extent, c);
        let rows = if exact {
            None
        } else {
            Some(self.extent_num(&quotient(extent, c), span)?)
        };
        let o = match (o, rows) {
            (Ix::At(o), Some(rows)) => {
                let value = o.value();
                Ix::At(self.inside_num(o, None, Some((&value, rows)), span)?)
            }
            (
                Ix::Range {
                    start,
                    len,
                    from,
                    until,
                    inside: false,
                    axes,
                },
                Some(rows),
            ) => Ix::Range {
                start,
                len,
                from,
                until: Some(match until {
                    Some(until) => self.num_op(BinaryOp::Min, until, rows, span)?,
                    None => rows,
                }),
                inside: true,
                axes,
            },
            (Ix::Tile { index, axes }, Some(rows)) => {
                let index = self.builder(span).cast(index, DType::I64);
                let value = Value::Run(index);
                let kept = self.inside(value.clone(), None, Some((&value, rows)), span)?;
                Ix::Tile {
                    index: self.materialise(&kept, span)?,
                    axes,
                }
            }
            (o, _) => o,
        };
        match (o, n) {
            (Ix::At(o), Ix::Whole { len, axes }) => Ok(Ix::Range {
                start: self.num_op(BinaryOp::Mul, o, times, span)?,
                len,
                from: None,
                until: None,
                inside: true,
                axes,
            }),
            (
                Ix::At(o),
                Ix::Range {
                    start,
                    len,
                    from,
                    until,
                    axes,
                    ..
                },
            ) => {
                let base = self.num_op(BinaryOp::Mul, o, times, span)?;
                let first = self.add(base, start, span)?;
                let within = matches!(start, Num::Int(s) if s >= 0 && s + i64::from(len) <= c);
                let from = match from {
                    None if within => None,
                    from => Some(self.add(base, from.unwrap_or(Num::Int(0)), span)?),
                };
                let until = match until {
                    None if within => None,
                    until => {
                        let until =
                            self.num_op(BinaryOp::Min, until.unwrap_or(times), times, span)?;
                        Some(self.add(base, until, span)?)
                    }
                };
                // A row before the first has no elements, though its limits would be negative.
                let from = match from {
                    Some(from) => Some(self.num_op(BinaryOp::Max, from, Num::Int(0), span)?),
                    None => None,
                };
                Ok(Ix::Range {
                    start: first,
                    len,
                    from,
                    until,
                    inside: false,
                    axes,
                })
            }
            (
                Ix::Range {
                    start,
                    len,
                    from,
                    until,
                    inside,
                    mut axes,
                },
                Ix::Whole {
                    len: row,
                    axes: inner,
                },
            ) => {
                axes.extend(inner);
                let mut scaled = |num: Option<Num>| match num {
                    Some(num) => self.num_op(BinaryOp::Mul, num, times, span).map(Some),
                    None => Ok(None),
                };
                Ok(Ix::Range {
                    start: scaled(Some(start))?.unwrap_or(Num::Int(0)),
                    len: len * row,
                    from: scaled(from)?,
                    until: scaled(until)?,
                    inside,
                    axes,
                })
            }
            (
                Ix::Whole { len, mut axes },
                Ix::Whole {
                    len: row,
                    axes: inner,
                },
            ) => {
                axes.extend(inner);
                let len = len * row;
                Ok(if extent.as_int() == Some(len.into()) {
                    Ix::Whole { len, axes }
                } else {
                    Ix::Range {
                        start: Num::Int(0),
                        len,
                        from: None,
                        until: None,
                        inside: true,
                        axes,
                    }
                })
            }
            (o, n) => {
                let whole = matches!(n, Ix::Whole { .. });
                let (values, axes) = self.operands_of(&[&o, &n], walk)?;
                let rows = self.arithmetic(
                    BinaryOp::Mul,
                    (&values[0], span),
                    (&times.value(), span),
                    span,
                )?;
                let at = self.arithmetic(BinaryOp::Add, (&rows, span), (&values[1], span), span)?;
                let constant =
                    matches!(&values[1], Value::Int(v) if (0..i128::from(c)).contains(v));
                let at = if whole || constant {
                    at
                } else {
                    let n = &values[1];
                    self.inside(at, Some((n, Num::Int(0))), Some((n, times)), span)?
                };
                self.as_index(at, axes, walk)
            }
        }
    }

    /// Quotient and remainder of an index.
    fn divided(&mut self, e: &Ix, by: Num, walk: &mut Walk) -> Eval<(Ix, Ix)> {
        let span = walk.span;
        let (values, axes) = self.operands_of(&[e], walk)?;
        let x = (&values[0], span);
        let by = by.value();
        let o = self.arithmetic(BinaryOp::Div, x, (&by, span), span)?;
        let n = self.arithmetic(BinaryOp::Rem, x, (&by, span), span)?;
        Ok((
            self.as_index(o, axes.clone(), walk)?,
            self.as_index(n, axes, walk)?,
        ))
    }

    /// Page and row of row t.
    fn carry_paged(
        &mut self,
        ids: &ViewValue,
        page: i64,
        len: Num,
        t: Ix,
        walk: &mut Walk,
    ) -> Eval<(Ix, Ix)> {
        let span = walk.span;
        let (values, axes) = self.operands_of(&[&t], walk)?;
        let t = values[0].clone();
        let by = Value::Int(page.into());
        let number = self.arithmetic(BinaryOp::Div, (&t, span), (&by, span), span)?;
        let row = self.arithmetic(BinaryOp::Rem, (&t, span), (&by, span), span)?;
        let number = self.inside(number, Some((&t, Num::Int(0))), Some((&t, len)), span)?;
        let lens: Vec<u32> = axes.iter().map(|&a| walk.lens[a]).collect();
        let at = match self.shape_of(&number) {
            Some(super::eval::Shape::Tile(..)) => Ix::Tile {
                index: self.materialise(&number, span)?,
                axes: (0..lens.len()).collect(),
            },
            _ => Ix::At(self.num(&number, span, "an index")?),
        };
        let lens = if matches!(at, Ix::At(_)) {
            Vec::new()
        } else {
            lens
        };
        let found = self.access(ids, vec![at], &lens, span)?;
        let elem = crate::ir::tile::loaded(ids.elem);
        let pad = self.coerce(&Value::Int(pad_of(elem)), elem, &[], span)?;
        let root = self.view_id(ids);
        let mut number =
            self.builder(span)
                .load(root, found.indices, found.operands, pad, Cache::Normal);
        number = self.author_order(number, &found.order, span);
        if !matches!(elem, DType::I32 | DType::I64) || lens.is_empty() {
            number = self.builder(span).cast(number, DType::I64);
        }
        Ok((
            self.as_index(Value::Run(number), axes.clone(), walk)?,
            self.as_index(row, axes, walk)?,
        ))
    }

    /// Where the elements with these indices of a view in a layout lie.
    fn carry_layout(
        &mut self,
        view: &ViewValue,
        module: super::Module,
        item: usize,
        ix: &[Ix],
        walk: &mut Walk,
    ) -> Eval<Ix> {
        let span = walk.span;
        let program = self.program;
        let ast::ItemKind::Layout(layout) = &program.item(module, item).kind else {
            return Err(super::Told);
        };
        let refs: Vec<&Ix> = ix.iter().collect();
        let (values, axes) = self.operands_of(&refs, walk)?;
        let mut extents = Vec::new();
        for extent in &view.extents {
            extents.push(self.extent_num(extent, span)?);
        }
        let mut frame = Frame::new(module);
        let scope = frame.scopes.last_mut();
        if let Some(scope) = scope {
            let mut bind = |name: &ast::Ident, value: Value<'a>| {
                let binding = super::eval::Binding {
                    value,
                    mutable: false,
                    span: name.span,
                };
                scope.insert(name.name.clone(), binding);
            };
            for (name, value) in layout.indices.iter().zip(&values) {
                bind(name, value.clone());
            }
            for (dim, extent) in layout.dims.iter().zip(&extents) {
                if let Some(name) = super::call::bare(&dim.expr) {
                    bind(name, extent.value());
                }
            }
        }
        self.frames.push(frame);
        self.calls.push((span, layout.name.name.clone()));
        let offset = self.expr(&layout.offset);
        self.calls.pop();
        self.frames.pop();
        let mut offset = offset?;
        for ((value, extent), ix) in values.iter().zip(&extents).zip(ix) {
            let constant = match (value, extent) {
                (Value::Int(v), Num::Int(e)) => (0..i128::from(*e)).contains(v),
                _ => matches!(ix, Ix::Whole { .. }),
            };
            if !constant {
                let bounds = (Some((value, Num::Int(0))), Some((value, *extent)));
                offset = self.inside(offset, bounds.0, bounds.1, span)?;
            }
        }
        self.as_index(offset, axes, walk)
    }

    /// Indices as integers that broadcast over the axes of all of them, in ascending order: scalars, or tiles of `i64` with
    /// as many dimensions as there are axes.
    fn operands_of(&mut self, ixs: &[&Ix], walk: &Walk) -> Eval<(Vec<Value<'a>>, Vec<usize>)> {
        let mut all: Vec<usize> = ixs.iter().flat_map(|ix| ix.axes().to_vec()).collect();
        all.sort_unstable();
        all.dedup();
        let span = walk.span;
        let mut values = Vec::new();
        for ix in ixs {
            let (tile, axes) = match ix {
                Ix::At(num) => {
                    values.push(num.value());
                    continue;
                }
                Ix::Tile { index, axes } => (self.builder(span).cast(*index, DType::I64), axes),
                Ix::Whole { axes, .. } => {
                    let lens: Vec<u32> = axes.iter().map(|&a| walk.lens[a]).collect();
                    (self.builder(span).iota(DType::I64, &lens), axes)
                }
                Ix::Range {
                    start,
                    from,
                    until,
                    axes,
                    ..
                } => {
                    let lens: Vec<u32> = axes.iter().map(|&a| walk.lens[a]).collect();
                    let iota = Value::Run(self.builder(span).iota(DType::I64, &lens));
                    let start = start.value();
                    let at = self.arithmetic(BinaryOp::Add, (&start, span), (&iota, span), span)?;
                    let value = at.clone();
                    let low = from.map(|f| (&at, f));
                    let high = until.map(|u| (&at, u));
                    let kept = self.inside(value, low, high, span)?;
                    (self.coerce(&kept, DType::I64, &lens, span)?, axes)
                }
            };
            values.push(Value::Run(self.spread(tile, axes, &all, &walk.lens, span)));
        }
        Ok((values, all))
    }

    /// A tile over `axes` as one over `all`, which are in ascending order, with 1 where it has none.
    fn spread(
        &mut self,
        tile: ValueId,
        axes: &[usize],
        all: &[usize],
        lens: &[u32],
        span: Span,
    ) -> ValueId {
        let mut tile = tile;
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        if sorted != axes {
            let perm = sorted
                .iter()
                .map(|s| axes.iter().position(|a| a == s).unwrap_or(0) as u32)
                .collect();
            tile = self.builder(span).permute(tile, perm);
        }
        let shape: Vec<u32> = all
            .iter()
            .map(|a| if axes.contains(a) { lens[*a] } else { 1 })
            .collect();
        self.builder(span).reshape(tile, &shape)
    }

    /// An integer over `axes` as an index.
    fn as_index(&mut self, value: Value<'a>, axes: Vec<usize>, walk: &Walk) -> Eval<Ix> {
        let span = walk.span;
        if axes.is_empty() {
            return Ok(Ix::At(self.num(&value, span, "an index")?));
        }
        if let Value::Int(v) = value
            && let Ok(v) = i64::try_from(v)
            && v >= 0
        {
            // The same element along all axes: still a tile, so that the axes are there.
            let lens: Vec<u32> = axes.iter().map(|&a| walk.lens[a]).collect();
            let index = self.coerce(&Value::Int(v.into()), DType::I64, &lens, span)?;
            return Ok(Ix::Tile { index, axes });
        }
        let lens: Vec<u32> = axes.iter().map(|&a| walk.lens[a]).collect();
        let id = match &value {
            Value::Run(id) => *id,
            other => self.coerce(other, DType::I64, &[], span)?,
        };
        let index = self.builder(span).broadcast(id, &lens);
        Ok(Ix::Tile { index, axes })
    }

    /// Indices of the parameter as those of the operation.
    fn finish_access(&mut self, ixs: Vec<Ix>, lens: &[u32], span: Span) -> Eval<Access> {
        let groups = groups(&ixs);
        let mut indices = Vec::new();
        let mut operands = Vec::new();
        let mut flat = Vec::new();
        let mut memory: Vec<usize> = Vec::new();
        let mut seen: Vec<usize> = Vec::new();
        let mut tile_count = 0;
        for ix in ixs {
            match ix {
                Ix::At(num) => {
                    operands.push(self.num_id(num));
                    indices.push(Index::Scalar);
                }
                Ix::Whole { len, axes } => {
                    indices.push(Index::Whole { len });
                    flat.push(len);
                    memory.extend(axes);
                }
                Ix::Range {
                    start,
                    len,
                    from,
                    until,
                    axes,
                    ..
                } => {
                    operands.push(self.num_id(start));
                    for limit in [from, until].into_iter().flatten() {
                        operands.push(self.num_id(limit));
                    }
                    indices.push(Index::Range {
                        len,
                        from: from.is_some(),
                        until: until.is_some(),
                    });
                    flat.push(len);
                    memory.extend(axes);
                }
                Ix::Tile { index, axes } => {
                    let (group, all) = &groups[tile_count];
                    tile_count += 1;
                    let shape: Vec<u32> = all.iter().map(|&a| lens[a]).collect();
                    let tile = self.spread(index, &axes, all, lens, span);
                    let len: u32 = shape.iter().product();
                    let mut b = self.builder(span);
                    let tile = b.broadcast(tile, &shape);
                    let mut tile = b.reshape(tile, &[len]);
                    let elem = b.ty(tile).elem();
                    if !matches!(elem, DType::I32 | DType::I64) {
                        tile = b.cast(tile, DType::I64);
                    }
                    operands.push(tile);
                    let joined = seen.contains(group);
                    indices.push(Index::Gather { len, joined });
                    if !joined {
                        seen.push(*group);
                        flat.push(len);
                        memory.extend(all.iter().copied());
                    }
                }
            }
        }
        let fine = memory.iter().map(|&a| lens[a]).collect();
        let place = (0..lens.len())
            .map(|axis| memory.iter().position(|&a| a == axis).unwrap_or(0) as u32)
            .collect();
        Ok(Access {
            indices,
            operands,
            order: AxisOrder { flat, fine, place },
            logical: None,
        })
    }

    /// What an operation gave, with the axes as the author has them.
    pub fn author_order(&mut self, value: ValueId, order: &AxisOrder, span: Span) -> ValueId {
        if matches!(self.body.ty(value), Type::Scalar(_)) {
            return value;
        }
        let mut b = self.builder(span);
        let value = b.reshape(value, &order.fine);
        if order.is_sorted() {
            return value;
        }
        b.permute(value, order.place.clone())
    }

    /// What the author stores, as the operation takes it.
    pub fn memory_order(&mut self, value: ValueId, order: &AxisOrder, span: Span) -> ValueId {
        if matches!(self.body.ty(value), Type::Scalar(_)) {
            return value;
        }
        let mut b = self.builder(span);
        let mut value = value;
        if !order.is_sorted() {
            let mut back = vec![0; order.place.len()];
            for (axis, &place) in order.place.iter().enumerate() {
                back[place as usize] = axis as u32;
            }
            value = b.permute(value, back);
        }
        b.reshape(value, &order.flat)
    }
}

/// Extents at which a layout is tried: such that one for whole tiles only has them whole.
const TRIED: &[[i64; 3]] = &[[128, 64, 2], [64, 256, 2], [256, 16, 4], [16, 128, 8]];

/// Why the elements of a layout have no places of their own. Dimensions of the formulas are the extents, then the indices.
fn collision(offset: &Formula, size: &Formula, rank: usize) -> Option<String> {
    for tried in TRIED {
        let extents: Vec<i64> = (0..rank)
            .map(|d| tried[d.min(2)].min(if d > 2 { 2 } else { i64::MAX }))
            .collect();
        let mut dims = [extents.clone(), vec![0; rank]].concat();
        let at = |formula: &Formula, dims: &[i64]| {
            let env = Env {
                dims,
                scalars: &[],
                given: &[],
            };
            formula.eval(&env).ok()
        };
        let (of, list) = (show(&extents), |v: &[i64]| show(v));
        let Some(size) = at(size, &dims) else {
            return Some(format!("the size of a view {of} has no value"));
        };
        let mut seen: HashMap<i64, Vec<i64>> = HashMap::new();
        loop {
            let index = dims[rank..].to_vec();
            match at(offset, &dims) {
                Some(place) if (0..size).contains(&place) => {
                    if let Some(other) = seen.insert(place, index.clone()) {
                        return Some(format!(
                            "elements {} and {} of a view {of} have one place",
                            list(&other),
                            list(&index)
                        ));
                    }
                }
                Some(place) => {
                    return Some(format!(
                        "element {} of a view {of} has place {place}, and the size is {size}",
                        list(&index)
                    ));
                }
                None => {
                    return Some(format!(
                        "element {} of a view {of} has no place",
                        list(&index)
                    ));
                }
            }
            let Some(d) = (0..rank).rev().find(|&d| dims[rank + d] + 1 < extents[d]) else {
                break;
            };
            dims[rank + d] += 1;
            dims[rank + d + 1..].fill(0);
        }
    }
    None
}

fn show(numbers: &[i64]) -> String {
    let texts: Vec<String> = numbers.iter().map(i64::to_string).collect();
    format!("`[{}]`", texts.join(", "))
}

/// What carrying an access down needs at every step.
struct Walk {
    /// The lengths of the axes.
    lens: Vec<u32>,
    span: Span,
    /// The indices at the outermost view that is split, merged or in a layout.
    logical: Option<Logical>,
}

impl Ix {
    fn axes(&self) -> &[usize] {
        match self {
            Ix::At(_) => &[],
            Ix::Range { axes, .. } | Ix::Whole { axes, .. } | Ix::Tile { axes, .. } => axes,
        }
    }
}

impl AxisOrder {
    fn is_sorted(&self) -> bool {
        self.place.iter().enumerate().all(|(i, &p)| i as u32 == p)
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

/// Of each index tile the group with which it runs, and the axes of that group: tiles that share an axis run together, and
/// so do all if others would stand between them.
fn groups(ixs: &[Ix]) -> Vec<(usize, Vec<usize>)> {
    let tiles: Vec<&[usize]> = ixs
        .iter()
        .filter_map(|ix| match ix {
            Ix::Tile { axes, .. } => Some(&axes[..]),
            _ => None,
        })
        .collect();
    let mut group: Vec<usize> = (0..tiles.len()).collect();
    for i in 0..tiles.len() {
        for j in 0..i {
            if tiles[i].iter().any(|a| tiles[j].contains(a)) {
                let (from, to) = (group[i], group[j]);
                group
                    .iter_mut()
                    .filter(|g| **g == from)
                    .for_each(|g| *g = to);
            }
        }
    }
    let mut runs = group.clone();
    runs.dedup();
    let mut distinct = runs.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if runs.len() != distinct.len() {
        group.fill(0);
    }
    group
        .iter()
        .map(|g| {
            let mut axes: Vec<usize> = tiles
                .iter()
                .zip(&group)
                .filter(|(_, h)| *h == g)
                .flat_map(|(axes, _)| axes.iter().copied())
                .collect();
            axes.sort_unstable();
            axes.dedup();
            (*g, axes)
        })
        .collect()
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

/// What the number of a page outside the table reads as: outside every cache.
fn pad_of(elem: DType) -> i128 {
    if elem.is_signed() {
        -1
    } else {
        (1i128 << elem.bits()) - 1
    }
}
