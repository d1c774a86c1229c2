//! Indexing: slices of views that are read and stored, and parts of tiles.

use std::rc::Rc;

use tesserine_set::{Access as Mode, DType};

use super::{
    Eval,
    eval::{Evaluator, Shape, broadcast, cast_help, operand, show_shape},
    value::{Num, Value, ViewValue},
    views::{AxisOrder, Ix, Logical},
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        OpId, ValueId,
        tile::{Cache, CompareOp, Constant, Index, ReduceOp, Type, loaded, tile_or_scalar},
    },
    span::Span,
    syntax::ast::{self, IndexKind},
};

/// A slice of a view: what a load or store needs.
pub(crate) struct Slice {
    pub view: Rc<ViewValue>,
    /// The shape of the values that go in and out; empty for one element.
    pub shape: Vec<u32>,
    /// Of the parameter.
    pub indices: Vec<Index>,
    pub operands: Vec<ValueId>,
    /// From the tile of the operation to the author's: see [`Evaluator::author_order`].
    pub order: AxisOrder,
    pub logical: Option<Logical>,
    pub span: Span,
}

impl Slice {
    /// Element type and shape of the values that go in and out.
    pub fn ty(&self) -> Type {
        tile_or_scalar(loaded(self.view.elem), self.shape.clone())
    }
}

impl<'a> Evaluator<'a> {
    /// `base[…]`: reads a view, or takes a part of a tile.
    pub fn index(
        &mut self,
        base: (Value<'a>, Span),
        indices: &'a [ast::Index],
        span: Span,
    ) -> Eval<Value<'a>> {
        match &base.0 {
            Value::View(view) => {
                let slice = self.slice(view.clone(), indices, span)?;
                self.load(&slice, None, Cache::Normal)
            }
            Value::List(items) | Value::Tuple(items) => {
                let [
                    ast::Index {
                        kind: IndexKind::Expr(index),
                        ..
                    },
                ] = indices
                else {
                    return self.error(codes::E0202, span, "a list takes one constant index");
                };
                let at = self.const_int(index, "an index of a list")?;
                match usize::try_from(at).ok().and_then(|i| items.get(i)) {
                    Some(item) => Ok(item.clone()),
                    None => self.error(
                        codes::E0207,
                        index.span,
                        format!("{at} is outside this list of {}", items.len()),
                    ),
                }
            }
            value => match self.shape_of(value) {
                Some(Shape::Tile(_, shape)) => {
                    let id = self.materialise(value, base.1)?;
                    self.part(id, &shape, indices, span)
                }
                Some(_) => {
                    let what = self.describe(value);
                    self.fail(
                        Diagnostic::error(
                            codes::E0202,
                            span,
                            format!("{what} has no axes to index"),
                        )
                        .help("the indices of all dimensions stand in one pair of brackets: `x[i, j]`"),
                    )
                }
                None => {
                    let what = self.describe(value);
                    self.error(codes::E0108, span, format!("{what} cannot be indexed"))
                }
            },
        }
    }

    /// An index for each dimension is needed, and no new axis.
    pub fn check_count(
        &mut self,
        view: &ViewValue,
        indices: &'a [ast::Index],
        span: Span,
    ) -> Eval<()> {
        if let Some(new) = indices
            .iter()
            .find(|i| matches!(i.kind, IndexKind::NewAxis))
        {
            return self.fail(
                Diagnostic::error(
                    codes::E0202,
                    new.span,
                    "a slice of a view has the view's own axes",
                )
                .help("read first, then add the axis: `v[…][.., _]`"),
            );
        }
        if indices.len() != view.extents.len() {
            return self.fail(
                Diagnostic::error(
                    codes::E0202,
                    span,
                    format!(
                        "{} has {}, and {} given",
                        view.called(),
                        count(view.extents.len(), "dimension"),
                        if indices.len() == 1 {
                            "1 index is".into()
                        } else {
                            format!("{} indices are", indices.len())
                        },
                    ),
                )
                .label(view.span, "declared here")
                .help("every dimension has an index; `..` takes a whole one of constant extent"),
            );
        }
        Ok(())
    }

    /// The slice that `indices` name.
    pub fn slice(
        &mut self,
        view: Rc<ViewValue>,
        indices: &'a [ast::Index],
        span: Span,
    ) -> Eval<Slice> {
        self.check_count(&view, indices, span)?;
        // Index tiles that are neighbours share their axes, so their shapes are known before any axis has its number.
        let mut values = Vec::new();
        let mut run: Option<(Vec<u32>, usize)> = None;
        let mut ended = false;
        for (i, index) in indices.iter().enumerate() {
            let IndexKind::Expr(expr) = &index.kind else {
                ended |= run.is_some();
                values.push(None);
                continue;
            };
            let value = self.expr(expr)?;
            if let Some(Shape::Tile(elem, shape)) = self.shape_of(&value) {
                if !elem.is_int() {
                    let what = self.describe(&value);
                    return self.error(
                        codes::E0102,
                        index.span,
                        format!("an index is an integer scalar or a tile of integers, and this is {what}"),
                    );
                }
                if ended {
                    return self.fail(
                        Diagnostic::error(
                            codes::E0202,
                            index.span,
                            "index tiles must be neighbours, and there is another index between these",
                        )
                        .help("bring the dimensions side by side: `v.permute([…])[…]`"),
                    );
                }
                run = Some(match run {
                    None => (shape, i),
                    Some((other, first)) => match broadcast(&other, &shape) {
                        Some(joined) => (joined, first),
                        None => {
                            return self.error(
                                codes::E0201,
                                index.span,
                                format!(
                                    "index tiles run together, and the shapes {} and {} do not fit",
                                    show_shape(&other),
                                    show_shape(&shape)
                                ),
                            );
                        }
                    },
                });
            } else {
                ended |= run.is_some();
            }
            values.push(Some(value));
        }
        let mut shape: Vec<u32> = Vec::new();
        let mut tiles: Vec<usize> = Vec::new();
        let mut parts = Vec::new();
        for (i, (index, value)) in indices.iter().zip(values).enumerate() {
            if let (Some((own, first)), Some(value)) = (&run, &value)
                && let Some(Shape::Tile(elem, _)) = self.shape_of(value)
            {
                if i == *first {
                    tiles = (shape.len()..shape.len() + own.len()).collect();
                    shape.extend(own);
                }
                let own = own.clone();
                let mut tile = self.materialise(value, index.span)?;
                if !matches!(elem, DType::I32 | DType::I64) {
                    tile = self.builder(index.span).cast(tile, DType::I64);
                }
                parts.push(Ix::Tile {
                    index: self.builder(index.span).broadcast(tile, &own),
                    axes: tiles.clone(),
                });
                continue;
            }
            let extent = view.extents[i].as_int();
            match &index.kind {
                IndexKind::Expr(expr) => {
                    let value = value.unwrap_or(Value::Error);
                    parts.push(Ix::At(self.num(&value, expr.span, "an index")?));
                }
                IndexKind::NewAxis => {}
                IndexKind::Range { start, end } => {
                    let lo = match start {
                        Some(e) => Some((self.const_int(e, "the start of a range")?, e.span)),
                        None => None,
                    };
                    let hi = match end {
                        Some(e) => Some((self.const_int(e, "the end of a range")?, e.span)),
                        None => None,
                    };
                    let Some(extent) = extent else {
                        let name = view.called();
                        return self.fail(
                            Diagnostic::error(
                                codes::E0209,
                                index.span,
                                format!("dimension {i} of {name} has no constant extent, and a tile's shape must be constant"),
                            )
                            .label(view.span, "declared here")
                            .help("write `start +: N` with a constant N: what lies outside reads as 0 and is not stored"),
                        );
                    };
                    let (a, b) = (lo.map_or(0, |l| l.0), hi.map_or(extent, |h| h.0));
                    if a < 0 || b > extent || a >= b {
                        return self.error(
                            codes::E0207,
                            index.span,
                            format!("the range {a}..{b} is not within dimension {i} of {}, which has {extent}", view.called()),
                        );
                    }
                    let len = self.extent(b - a, index.span)?;
                    let axes = vec![shape.len()];
                    parts.push(if a == 0 && b == extent {
                        Ix::Whole { len, axes }
                    } else {
                        Ix::Range {
                            start: Num::Int(a),
                            len,
                            from: None,
                            until: None,
                            inside: true,
                            axes,
                        }
                    });
                    shape.push(len);
                }
                IndexKind::Slice {
                    start,
                    len,
                    from,
                    until,
                } => {
                    let value = self.expr(start)?;
                    let start = self.num(&value, start.span, "the start of a slice")?;
                    let n = self.const_int(len, "the length of a slice")?;
                    let len = self.extent(n, len.span)?;
                    let mut limit = |limit: &'a Option<ast::Expr>| match limit {
                        Some(limit) => {
                            let value = self.expr(limit)?;
                            Ok(Some(self.num(&value, limit.span, "a limit")?))
                        }
                        None => Ok(None),
                    };
                    let (from, until) = (limit(from)?, limit(until)?);
                    parts.push(Ix::Range {
                        start,
                        len,
                        from,
                        until,
                        inside: false,
                        axes: vec![shape.len()],
                    });
                    shape.push(len);
                }
            }
        }
        self.check_elements(&shape, span)?;
        let access = self.access(&view, parts, &shape, span)?;
        Ok(Slice {
            view,
            shape,
            indices: access.indices,
            operands: access.operands,
            order: access.order,
            logical: access.logical,
            span,
        })
    }

    /// An integer scalar of the body.
    pub fn int_scalar(&mut self, value: (&Value<'a>, Span), what: &str) -> Eval<ValueId> {
        match self.shape_of(value.0) {
            Some(Shape::Constant) if matches!(value.0, Value::Int(_)) => {
                self.typed_constant(value.0, DType::I64, value.1)
            }
            Some(Shape::Scalar(DType::I64)) => self.materialise(value.0, value.1),
            _ => {
                let got = self.describe(value.0);
                let mut diagnostic = Diagnostic::error(
                    codes::E0102,
                    value.1,
                    format!(
                        "{what} must be an integer scalar, and {} is {got}",
                        self.quote(value.1)
                    ),
                );
                if let Some(Shape::Scalar(t)) = self.shape_of(value.0)
                    && t.is_float()
                {
                    diagnostic = diagnostic.help(cast_help(&self.quote(value.1), DType::I32));
                }
                self.fail(diagnostic)
            }
        }
    }

    /// Reads a slice. `pad`: what stands for elements outside; 0 if none is given.
    pub fn load(
        &mut self,
        slice: &Slice,
        pad: Option<(&Value<'a>, Span)>,
        cache: Cache,
    ) -> Eval<Value<'a>> {
        self.check_readable(slice)?;
        let view = slice.view.clone();
        let elem = loaded(view.elem);
        let pad = match pad {
            None => self.zero(elem, slice.span)?,
            Some((Value::Any, _)) => self.constant(Constant::Any(elem)),
            Some((value, span)) => {
                let (t, shape) = self.unify(&[(value, span)], span)?;
                if !shape.is_empty()
                    || t.is_some_and(|t| t != elem && !(t == DType::I64 && elem.is_int()))
                {
                    let what = self.describe(value);
                    return self.error(
                        codes::E0102,
                        span,
                        format!("`pad` is a scalar of `{elem}`, and this is {what}"),
                    );
                }
                self.coerce(value, elem, &[], span)?
            }
        };
        self.check_even(slice)?;
        let id = self.view_id(&view);
        let value = self.builder(slice.span).load(
            id,
            slice.indices.clone(),
            slice.operands.clone(),
            pad,
            cache,
        );
        self.note_logical(self.body.defining_op(value), slice);
        let value = self.author_order(value, &slice.order, slice.span);
        Ok(Value::Run(self.scalar_width(value, slice.span)))
    }

    /// Scalars are 64-bit integers and `f32` (or `f64`), whatever they come from.
    pub fn scalar_width(&mut self, value: ValueId, span: Span) -> ValueId {
        match *self.body.ty(value) {
            Type::Scalar(t) if t.is_int() => self.builder(span).cast(value, DType::I64),
            Type::Scalar(t) if t.is_float() && t != DType::F64 => {
                self.builder(span).cast(value, DType::F32)
            }
            _ => value,
        }
    }

    /// Checks that a slice may be read.
    pub fn check_readable(&mut self, slice: &Slice) -> Eval<()> {
        let view = &slice.view;
        if view.access == Mode::Write {
            let diagnostic = Diagnostic::error(
                codes::E0118,
                slice.span,
                format!(
                    "`{}` is an `out view`: it is stored to, never read",
                    view.name
                ),
            )
            .label(view.span, "declared here")
            .help(format!(
                "declare it `{}: mut view<…>[…]` to read it too",
                view.name
            ));
            return self.fail(diagnostic);
        }
        Ok(())
    }

    /// Checks that a slice may be stored to.
    pub fn check_storable(&mut self, slice: &Slice) -> Eval<()> {
        let view = &slice.view;
        if view.access == Mode::Read {
            let diagnostic = Diagnostic::error(codes::E0117, slice.span, format!("`{}` is read-only", view.name))
                .label(view.span, "declared here")
                .help(format!(
                    "declare it `{0}: out view<…>[…]` to store to it, or `{0}: mut view<…>[…]` to read it too",
                    view.name
                ));
            return self.fail(diagnostic);
        }
        Ok(())
    }

    /// Stores to a slice.
    pub fn store(&mut self, slice: &Slice, value: (&Value<'a>, Span), cache: Cache) -> Eval<()> {
        self.check_storable(slice)?;
        let ty = slice.ty();
        let (elem, shape) = (ty.elem(), ty.shape().to_vec());
        let (found, have) = self.unify(&[value], value.1)?;
        if !have.is_empty() && have != shape {
            let what = self.describe(value.0);
            let mut diagnostic = Diagnostic::error(
                codes::E0203,
                slice.span,
                format!(
                    "a tile {} is stored to a slice {}",
                    show_shape(&have),
                    show_shape(&shape)
                ),
            )
            .label(value.1, what);
            let mut swapped = have.clone();
            if swapped.len() >= 2 {
                let n = swapped.len();
                swapped.swap(n - 2, n - 1);
                if swapped == shape {
                    let text = self.quote(value.1);
                    diagnostic = diagnostic.help(format!(
                        "did you mean `{}.t`?",
                        operand(text.trim_matches('`'))
                    ));
                }
            }
            return self.fail(diagnostic);
        }
        if let Some(found) = found
            && found != elem
            && !(found == DType::I64 && elem.is_int() && have.is_empty())
        {
            let what = self.describe(value.0);
            let text = self.quote(value.1);
            let view = slice.view.clone();
            let diagnostic = Diagnostic::error(
                codes::E0102,
                value.1,
                format!(
                    "`{}` is of `{}`, and {what} is stored to it",
                    view.name, view.elem
                ),
            )
            .label(view.span, "declared here")
            .help(cast_help(&text, elem));
            return self.fail(diagnostic);
        }
        self.check_bytes(slice)?;
        let x = self.coerce(value.0, elem, &shape, value.1)?;
        let x = self.memory_order(x, &slice.order, slice.span);
        let id = self.view_id(&slice.view.clone());
        let scatter = self.scatter;
        let op = self.builder(slice.span).store(
            id,
            slice.indices.clone(),
            slice.operands.clone(),
            x,
            cache,
            scatter,
        );
        self.note_logical(Some(op), slice);
        Ok(())
    }

    /// Keeps for the race check what tells the elements of an access apart.
    pub fn note_logical(&mut self, op: Option<OpId>, slice: &Slice) {
        if let (Some(op), Some(indices)) = (op, &slice.logical) {
            self.logical.insert(op, indices.clone());
        }
    }

    /// `tile[…]`.
    fn part(
        &mut self,
        tile: ValueId,
        shape: &[u32],
        indices: &'a [ast::Index],
        span: Span,
    ) -> Eval<Value<'a>> {
        let axes = indices
            .iter()
            .filter(|i| !matches!(i.kind, IndexKind::NewAxis))
            .count();
        if axes != shape.len() {
            return self.fail(
                Diagnostic::error(
                    codes::E0202,
                    span,
                    format!(
                        "a tile {} has {}, and {axes} are indexed",
                        show_shape(shape),
                        count(shape.len(), "axis")
                    ),
                )
                .help("every axis has an index; `..` takes a whole one, `_` adds one"),
            );
        }
        let mut offsets = Vec::new();
        let mut kept = Vec::new();
        // Of each original axis: its place in the result, or a scalar that picks from it.
        let mut picks: Vec<Option<ValueId>> = Vec::new();
        let mut result = Vec::new();
        for index in indices {
            let axis = offsets.len();
            let extent = || i64::from(shape[axis]);
            let (start, len) = match &index.kind {
                IndexKind::NewAxis => {
                    result.push(1);
                    continue;
                }
                IndexKind::Range { start, end } => {
                    let a = match start {
                        Some(e) => self.const_int(e, "the start of a range")?,
                        None => 0,
                    };
                    let b = match end {
                        Some(e) => self.const_int(e, "the end of a range")?,
                        None => extent(),
                    };
                    (a, b.saturating_sub(a))
                }
                IndexKind::Slice {
                    start,
                    len,
                    from,
                    until,
                } => {
                    if let Some(limit) = from.as_ref().or(until.as_ref()) {
                        return self.error(
                            codes::E0202,
                            limit.span,
                            "a tile has no limit but its shape: `from` and `until` are for views",
                        );
                    }
                    let a = self.const_int(start, "the start of a slice of a tile")?;
                    (a, self.const_int(len, "the length of a slice")?)
                }
                IndexKind::Expr(expr) => {
                    let value = self.expr(expr)?;
                    match (&value, self.shape_of(&value)) {
                        (Value::Int(v), _) => {
                            let v = i64::try_from(*v).unwrap_or(-1);
                            if v < 0 || v >= extent() {
                                let mut d = Diagnostic::error(
                                    codes::E0207,
                                    index.span,
                                    format!("{v} is outside axis {axis}, which has {}", extent()),
                                );
                                if v < 0 && extent() + v >= 0 {
                                    d = d.help(format!(
                                        "indices count from 0: write `{}`",
                                        extent() + v
                                    ));
                                }
                                return self.fail(d);
                            }
                            offsets.push(v as u32);
                            kept.push(1);
                            picks.push(None);
                            continue;
                        }
                        (_, Some(Shape::Tile(..))) => {
                            return self.fail(
                                Diagnostic::error(
                                    codes::E0202,
                                    index.span,
                                    "a tile is not indexed by a tile",
                                )
                                .help(
                                    "to gather elements of a tile, write `take(x, indices, axis)`",
                                ),
                            );
                        }
                        _ => {
                            let id = self.int_scalar((&value, expr.span), "an index")?;
                            offsets.push(0);
                            kept.push(shape[axis]);
                            picks.push(Some(id));
                            continue;
                        }
                    }
                }
            };
            let end = start.saturating_add(len);
            if start < 0 || len < 1 || end > extent() {
                return self.error(
                    codes::E0207,
                    index.span,
                    format!(
                        "the range {start}..{} is not within axis {axis}, which has {}",
                        end,
                        extent()
                    ),
                );
            }
            offsets.push(start as u32);
            kept.push(len as u32);
            picks.push(None);
            result.push(len as u32);
        }
        let mut id = tile;
        if kept != shape {
            id = self.builder(span).slice(id, offsets, &kept);
        }
        for axis in (0..picks.len()).rev() {
            if let Some(at) = picks[axis] {
                id = self.pick(id, axis, at, span);
            }
        }
        let id = self.builder(span).reshape(id, &result);
        Ok(Value::Run(self.scalar_width(id, span)))
    }

    /// The elements at run-time index `at` of `axis`, which is dropped: a sum over all but one that are cleared.
    fn pick(&mut self, tile: ValueId, axis: usize, at: ValueId, span: Span) -> ValueId {
        let shape = self.body.ty(tile).shape().to_vec();
        let elem = self.body.ty(tile).elem();
        let zero = self.zero(elem, span).expect("every type has a zero");
        let mut column = vec![1; shape.len() - axis];
        column[0] = shape[axis];
        let mut b = self.builder(span);
        let index = b.iota(DType::I64, &[shape[axis]]);
        let index = b.reshape(index, &column);
        let index = b.broadcast(index, &shape);
        let at = b.broadcast(at, &shape);
        let here = b.compare(CompareOp::Eq, index, at);
        let zeros = b.broadcast(zero, &shape);
        let one = b.select(here, tile, zeros);
        let op = if elem == DType::Bool {
            ReduceOp::Any
        } else {
            ReduceOp::Sum
        };
        let axis = if shape.len() == 1 {
            None
        } else {
            Some(axis as u32)
        };
        let picked = b.reduce(op, one, axis);
        b.cast(picked, elem)
    }
}

/// "2 dimensions".
pub(crate) fn count(n: usize, what: &str) -> String {
    match (n, what) {
        (1, _) => format!("1 {what}"),
        (_, "axis") => format!("{n} axes"),
        _ => format!("{n} {what}s"),
    }
}
