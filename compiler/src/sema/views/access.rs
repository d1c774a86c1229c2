//! Accesses through derived views: their indices are carried down, one view after another, until they are indices of the
//! parameter. Affine maps stay starts and lengths; what is none becomes an index tile.
//!
//! Invariants: an index outside a derived view is outside the parameter when it gets there (−1 by choice); lower limits are
//! never negative; every axis of the access belongs to one range, or to index tiles only.

use tesserine_set::DType;

use super::{divides, quotient};
use crate::{
    ir::{
        ValueId,
        tile::{BinaryOp, Cache, CompareOp, Index, Type},
    },
    sema::{
        Eval,
        eval::{Evaluator, Shape, broadcast},
        value::{Extent, Num, Origin, Part, Value, ViewValue},
    },
    span::Span,
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
    pub(super) fn inside(
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
            Some(Shape::Tile(..)) => Ix::Tile {
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

    /// Indices as integers that broadcast over the axes of all of them, in ascending order: scalars, or tiles of `i64` with
    /// as many dimensions as there are axes.
    pub(super) fn operands_of(
        &mut self,
        ixs: &[&Ix],
        walk: &Walk,
    ) -> Eval<(Vec<Value<'a>>, Vec<usize>)> {
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
    pub(super) fn as_index(&mut self, value: Value<'a>, axes: Vec<usize>, walk: &Walk) -> Eval<Ix> {
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

/// What carrying an access down needs at every step.
pub(super) struct Walk {
    /// The lengths of the axes.
    pub lens: Vec<u32>,
    pub span: Span,
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
    /// Whether the tile of the operation is the author's.
    pub fn is_same(&self) -> bool {
        self.is_sorted() && self.fine == self.flat
    }

    fn is_sorted(&self) -> bool {
        self.place.iter().enumerate().all(|(i, &p)| i as u32 == p)
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

/// What the number of a page outside the table reads as: outside every cache.
fn pad_of(elem: DType) -> i128 {
    if elem.is_signed() {
        -1
    } else {
        (1i128 << elem.bits()) - 1
    }
}
