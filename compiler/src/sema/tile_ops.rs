//! The operations on whole tiles: products, scans, sorting, gathering within a tile, random numbers, and what the blocks of
//! a cluster work out together.

use tesserine_set::DType;

use super::{
    Eval,
    access::count,
    call::Argument,
    eval::{Evaluator, Shape, broadcast, cast_help, show_shape},
    value::Value,
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        ValueId,
        tile::{
            BinaryOp, ClusterOp, CompareOp, Constant, OpKind, ScanOp, TileType, Type, product_types,
        },
    },
    span::Span,
    syntax::ast,
};

/// The multipliers and the increments of the key in Philox 4×32.
const PHILOX_M: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const PHILOX_W: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const PHILOX_ROUNDS: u32 = 10;

/// A tile of the body, with its type.
struct TileValue {
    id: ValueId,
    elem: DType,
    shape: Vec<u32>,
}

impl<'a> Evaluator<'a> {
    /// An argument that must be a tile.
    fn tile_of(&mut self, function: &str, arg: &Argument<'a>) -> Eval<TileValue> {
        if let Some(Shape::Tile(elem, shape)) = self.shape_of(&arg.value) {
            let id = self.materialise(&arg.value, arg.span)?;
            return Ok(TileValue { id, elem, shape });
        }
        if let Value::Error = arg.value {
            return Err(super::Told);
        }
        let what = self.describe(&arg.value);
        let mut diagnostic = Diagnostic::error(
            codes::E0102,
            arg.span,
            format!("`{function}` takes a tile, and this is {what}"),
        );
        if let Value::View(view) = &arg.value {
            let slices = vec![".."; view.extents.len()].join(", ");
            diagnostic =
                diagnostic.help(format!("read a slice of it, as `{}[{slices}]`", view.name));
        }
        self.fail(diagnostic)
    }

    /// The axis that an argument names; of a tile of one axis it may be left out.
    fn axis_of(
        &mut self,
        function: &str,
        arg: Option<Argument<'a>>,
        shape: &[u32],
        span: Span,
    ) -> Eval<u32> {
        match arg {
            Some(arg) => self.axis(&arg, shape.len(), &show_shape(shape)),
            None if shape.len() == 1 => Ok(0),
            None => self.fail(
                Diagnostic::error(
                    codes::E0107,
                    span,
                    format!(
                        "`{function}` goes along one axis, and {} has {}",
                        show_shape(shape),
                        count(shape.len(), "axis")
                    ),
                )
                .help(format!("say which, as the last argument of `{function}`")),
            ),
        }
    }

    /// Arguments by place or name, of which those from `needed` on may be left out.
    fn some_of<const N: usize>(
        &mut self,
        function: &str,
        names: [&str; N],
        needed: usize,
        args: Vec<Argument<'a>>,
        span: Span,
    ) -> Eval<[Option<Argument<'a>>; N]> {
        let placed = self.place(function, &names, args, span)?;
        if let Some(missing) = (0..needed).find(|&i| placed[i].is_none()) {
            return self.error(
                codes::E0107,
                span,
                format!("`{function}` needs its argument `{}`", names[missing]),
            );
        }
        match <[Option<Argument<'a>>; N]>::try_from(placed) {
            Ok(placed) => Ok(placed),
            Err(_) => self.error(
                codes::E0107,
                span,
                format!("`{function}` takes {}", count(N, "argument")),
            ),
        }
    }

    /// `cumsum(x, i)`, `cummax(x, i)`.
    pub(super) fn scan(
        &mut self,
        op: ScanOp,
        name: &str,
        args: Vec<Argument<'a>>,
        span: Span,
    ) -> Eval<Value<'a>> {
        let [Some(x), axis] = self.some_of(name, ["x", "i"], 1, args, span)? else {
            return Err(super::Told);
        };
        let tile = self.tile_of(name, &x)?;
        let axis = self.axis_of(name, axis, &tile.shape, span)?;
        if op == ScanOp::Max && tile.elem == DType::Bool {
            return self.error(
                codes::E0102,
                x.span,
                format!("`{name}` takes numbers, and this is a tile of `bool`"),
            );
        }
        Ok(Value::Run(self.builder(span).scan(op, tile.id, axis)))
    }

    /// `sort(x, payload, descending = true)`: the keys, and the payload with them if there is one.
    pub(super) fn sort(&mut self, args: Vec<Argument<'a>>, span: Span) -> Eval<Value<'a>> {
        let names = ["x", "payload", "descending"];
        let [Some(x), payload, descending] = self.some_of("sort", names, 1, args, span)? else {
            return Err(super::Told);
        };
        let keys = self.tile_of("sort", &x)?;
        if keys.elem == DType::Bool {
            return self.fail(
                Diagnostic::error(
                    codes::E0102,
                    x.span,
                    "`sort` orders numbers, and this is a tile of `bool`",
                )
                .help(cast_help(&self.quote(x.span), DType::I32)),
            );
        }
        let descending = match descending {
            None => false,
            Some(arg) => match arg.value {
                Value::Bool(value) => value,
                _ => {
                    return self.error(
                        codes::E0301,
                        arg.span,
                        "`descending` is `true` or `false`, known at compile time",
                    );
                }
            },
        };
        let Some(payload) = payload else {
            let sorted = self.builder(span).sort(vec![keys.id], descending);
            return Ok(Value::Run(sorted[0]));
        };
        let many = match &payload.value {
            Value::Tuple(items) => items.to_vec(),
            one => vec![one.clone()],
        };
        let mut all = vec![keys.id];
        for value in &many {
            let (elem, shape) = self.unify(&[(value, payload.span)], payload.span)?;
            if broadcast(&shape, &keys.shape).as_ref() != Some(&keys.shape) {
                return Err(self.shapes_differ((&x.value, x.span), (value, payload.span), span));
            }
            let elem = elem.unwrap_or(DType::I32);
            all.push(self.coerce(value, elem, &keys.shape, payload.span)?);
        }
        let sorted = self.builder(span).sort(all, descending);
        let mut sorted: Vec<Value<'a>> = sorted.into_iter().map(Value::Run).collect();
        if let Value::Tuple(_) = payload.value {
            let rest: Vec<Value<'a>> = sorted.drain(1..).collect();
            sorted.push(Value::Tuple(rest.into()));
        }
        Ok(Value::Tuple(sorted.into()))
    }

    /// `topk(x, k)`: values and indices.
    pub(super) fn topk(&mut self, args: Vec<Argument<'a>>, span: Span) -> Eval<Value<'a>> {
        let [x, k] = self.exactly("topk", ["x", "k"], args, span)?;
        let tile = self.tile_of("topk", &x)?;
        if tile.elem == DType::Bool {
            return self.error(
                codes::E0102,
                x.span,
                "`topk` takes numbers, and this is a tile of `bool`",
            );
        }
        let wanted = self.as_const_int(&k.value, k.span, "how many `topk` gives")?;
        let n = tile.shape.last().copied().unwrap_or(1);
        let Some(k) = u32::try_from(wanted).ok().filter(|k| (1..=n).contains(k)) else {
            return self.error(
                codes::E0205,
                k.span,
                format!(
                    "`topk` gives between 1 and {n} of {n} elements, and {wanted} are asked for"
                ),
            );
        };
        let (values, indices) = self.builder(span).topk(tile.id, k);
        Ok(Value::Tuple(
            [Value::Run(values), Value::Run(indices)].into(),
        ))
    }

    fn integers_of(&mut self, function: &str, x: &Argument<'a>) -> Eval<TileValue> {
        let tile = self.tile_of(function, x)?;
        if tile.elem.is_int() {
            return Ok(tile);
        }
        self.error(
            codes::E0102,
            x.span,
            format!(
                "`{function}` takes integers, and this is a tile of `{}`",
                tile.elem
            ),
        )
    }

    /// `histogram(x, n)`.
    pub(super) fn histogram(&mut self, args: Vec<Argument<'a>>, span: Span) -> Eval<Value<'a>> {
        let [x, n] = self.exactly("histogram", ["x", "n"], args, span)?;
        let tile = self.integers_of("histogram", &x)?;
        let bins = self.as_const_int(&n.value, n.span, "the number of counts")?;
        let bins = self.extent(bins, n.span)?;
        self.check_elements(&[bins], span)?;
        Ok(Value::Run(self.builder(span).histogram(tile.id, bins)))
    }

    /// `occurrence(x)`.
    pub(super) fn occurrence(&mut self, args: Vec<Argument<'a>>, span: Span) -> Eval<Value<'a>> {
        let [x] = self.exactly("occurrence", ["x"], args, span)?;
        let tile = self.integers_of("occurrence", &x)?;
        Ok(Value::Run(self.builder(span).occurrence(tile.id)))
    }

    /// `take(x, idx, i)`.
    pub(super) fn take(&mut self, args: Vec<Argument<'a>>, span: Span) -> Eval<Value<'a>> {
        let [Some(x), Some(index), axis] =
            self.some_of("take", ["x", "idx", "i"], 2, args, span)?
        else {
            return Err(super::Told);
        };
        let tile = self.tile_of("take", &x)?;
        let places = self.integers_of("take", &index)?;
        let axis = self.axis_of("take", axis, &tile.shape, span)?;
        // Dimensions but the axis stretch to each other.
        let (mut from, mut at) = (tile.shape.clone(), places.shape.clone());
        let fits = from.len() == at.len()
            && (0..from.len()).all(|d| {
                if d != axis as usize && from[d] != at[d] {
                    let wide = from[d].max(at[d]);
                    if from[d] != 1 && at[d] != 1 {
                        return false;
                    }
                    (from[d], at[d]) = (wide, wide);
                }
                true
            });
        if !fits {
            let diagnostic = Diagnostic::error(
                codes::E0201,
                span,
                format!(
                    "`take` along axis {axis} of {} by indices {}: the other axes differ",
                    show_shape(&tile.shape),
                    show_shape(&places.shape)
                ),
            )
            .label(x.span, self.describe(&x.value))
            .label(index.span, self.describe(&index.value));
            return self.fail(diagnostic);
        }
        self.check_elements(&from, span)?;
        self.check_elements(&at, span)?;
        let wide = places.elem.bits() == 64 || places.elem == DType::U32;
        let mut builder = self.builder(span);
        let places = builder.cast(places.id, if wide { DType::I64 } else { DType::I32 });
        let places = builder.broadcast(places, &at);
        let x = builder.broadcast(tile.id, &from);
        Ok(Value::Run(builder.take(x, places, axis)))
    }

    /// `concat(a, b, i)`.
    pub(super) fn concat(&mut self, args: Vec<Argument<'a>>, span: Span) -> Eval<Value<'a>> {
        let [Some(a), Some(b), axis] = self.some_of("concat", ["a", "b", "i"], 2, args, span)?
        else {
            return Err(super::Told);
        };
        let (x, y) = (self.tile_of("concat", &a)?, self.tile_of("concat", &b)?);
        let axis = self.axis_of("concat", axis, &x.shape, span)?;
        if x.elem != y.elem {
            let (s, t) = (x.elem, y.elem);
            return Err(self.types_differ((&a.value, a.span), s, (&b.value, b.span), t, span));
        }
        let at = axis as usize;
        let fits = x.shape.len() == y.shape.len()
            && (0..x.shape.len()).all(|d| d == at || x.shape[d] == y.shape[d]);
        if !fits {
            let diagnostic = Diagnostic::error(
                codes::E0201,
                span,
                format!(
                    "`concat` along axis {axis} of {} and {}: the other axes differ",
                    show_shape(&x.shape),
                    show_shape(&y.shape)
                ),
            )
            .label(a.span, self.describe(&a.value))
            .label(b.span, self.describe(&b.value));
            return self.fail(diagnostic);
        }
        let mut joined = x.shape.clone();
        let length = i64::from(x.shape[at]) + i64::from(y.shape[at]);
        joined[at] = self.extent(length, span)?;
        self.check_elements(&joined, span)?;
        Ok(Value::Run(self.builder(span).concat(x.id, y.id, axis)))
    }

    /// `philox(seed, offset, n)`: four words for each element.
    pub(super) fn philox(&mut self, args: Vec<Argument<'a>>, span: Span) -> Eval<Value<'a>> {
        let names = ["seed", "offset", "n"];
        let args = self.exactly("philox", names, args, span)?;
        let mut shape = Vec::new();
        for arg in &args {
            let (elem, own) = self.unify(&[(&arg.value, arg.span)], arg.span)?;
            let is_int = elem.map_or(matches!(arg.value, Value::Int(_)), DType::is_int);
            if !is_int {
                let what = self.describe(&arg.value);
                return self.error(
                    codes::E0102,
                    arg.span,
                    format!("`philox` takes integers, and this is {what}"),
                );
            }
            let Some(joined) = broadcast(&shape, &own) else {
                return Err(self.shapes_differ(
                    (&args[0].value, args[0].span),
                    (&arg.value, arg.span),
                    span,
                ));
            };
            shape = joined;
        }
        let mut wide = shape.clone();
        wide.push(4);
        self.check_elements(&wide, span)?;
        let mut halves = Vec::new();
        for arg in &args {
            let id = match &arg.value {
                Value::Int(_) => self.typed_constant(&arg.value, DType::I64, arg.span)?,
                other => self.materialise(other, arg.span)?,
            };
            // Where all elements have one key, it is worked out once.
            let own = self.body.ty(id).shape().to_vec();
            let shift = self.constant(Constant::Int(32, DType::U64));
            let mut b = self.builder(span);
            let bits = b.cast(id, DType::U64);
            let low = b.cast(bits, DType::U32);
            let by = if own.is_empty() {
                shift
            } else {
                b.broadcast(shift, &own)
            };
            let high = b.binary(BinaryOp::Shr, bits, by);
            let high = b.cast(high, DType::U32);
            halves.push([low, high]);
        }
        let [key, high, low] = [halves[0], halves[1], halves[2]];
        let mut counter = [low[0], low[1], high[0], high[1]];
        let mut key = key;
        for round in 0..PHILOX_ROUNDS {
            if round > 0 {
                for (word, step) in key.iter_mut().zip(PHILOX_W) {
                    let step = self.constant(Constant::Int(step.into(), DType::U32));
                    *word = self.u32_op(BinaryOp::Add, *word, step, span);
                }
            }
            let factors = PHILOX_M.map(|m| self.constant(Constant::Int(m.into(), DType::U32)));
            let high0 = self.u32_op(BinaryOp::MulHi, counter[0], factors[0], span);
            let low0 = self.u32_op(BinaryOp::Mul, counter[0], factors[0], span);
            let high1 = self.u32_op(BinaryOp::MulHi, counter[2], factors[1], span);
            let low1 = self.u32_op(BinaryOp::Mul, counter[2], factors[1], span);
            let first = self.u32_op(BinaryOp::Xor, high1, counter[1], span);
            let first = self.u32_op(BinaryOp::Xor, first, key[0], span);
            let third = self.u32_op(BinaryOp::Xor, high0, counter[3], span);
            let third = self.u32_op(BinaryOp::Xor, third, key[1], span);
            counter = [first, low1, third, low0];
        }
        // The words side by side along a last axis of four.
        let mut column = shape.clone();
        column.push(1);
        let mut words = Vec::new();
        for word in counter {
            let mut b = self.builder(span);
            let word = if shape.is_empty() {
                word
            } else {
                let word = b.broadcast(word, &shape);
                b.reshape(word, &column)
            };
            words.push(b.broadcast(word, &wide));
        }
        let numbers = [1, 2, 3].map(|i| self.constant(Constant::Int(i, DType::I32)));
        let mut b = self.builder(span);
        let which = b.iota(DType::I32, &[4]);
        let mut all = words[0];
        for (number, word) in numbers.into_iter().zip(&words[1..]) {
            let number = b.broadcast(number, &[4]);
            let here = b.compare(CompareOp::Eq, which, number);
            let here = b.broadcast(here, &wide);
            all = b.select(here, *word, all);
        }
        Ok(Value::Run(all))
    }

    /// An operation on words, whose shapes stretch to each other.
    fn u32_op(&mut self, op: BinaryOp, a: ValueId, b: ValueId, span: Span) -> ValueId {
        let shape = |this: &Self, v: ValueId| this.body.ty(v).shape().to_vec();
        let joined = broadcast(&shape(self, a), &shape(self, b)).unwrap_or_default();
        let mut builder = self.builder(span);
        let [a, b] = [a, b].map(|v| {
            if joined.is_empty() {
                v
            } else {
                builder.broadcast(v, &joined)
            }
        });
        builder.binary(op, a, b)
    }

    /// `x.cluster_sum(c)` and its like.
    pub(super) fn cluster(
        &mut self,
        name: &'static str,
        args: Vec<Argument<'a>>,
        span: Span,
    ) -> Eval<Value<'a>> {
        let [x, c] = self.exactly(name, ["x", "c"], args, span)?;
        let axis = match c.value {
            // An axis of one block: nobody else is there.
            Value::Int(0) => Some(None),
            Value::Run(id) => match self.body.defining_op(id).map(|op| &self.body.ops[op].kind) {
                Some(&OpKind::GridIndex(axis)) if self.cluster_axes >> axis & 1 == 1 => {
                    Some(Some(axis))
                }
                _ => None,
            },
            _ => None,
        };
        let Some(axis) = axis else {
            let text = self.quote(c.span);
            return self.fail(
                Diagnostic::error(
                    codes::E0107,
                    c.span,
                    format!("`{name}` takes an axis of the cluster, and {text} is none"),
                )
                .help("a cluster's axis is declared in the grid, as `r in 4 cluster`"),
            );
        };
        let (elem, shape) = self.unify(&[(&x.value, x.span)], x.span)?;
        let elem = elem.unwrap_or(match x.value {
            Value::Int(_) => DType::I64,
            Value::Bool(_) => DType::Bool,
            _ => DType::F32,
        });
        if elem == DType::Bool {
            let text = self.quote(x.span);
            return self.fail(
                Diagnostic::error(
                    codes::E0102,
                    x.span,
                    format!("`{name}` takes numbers, and {text} is of `bool`"),
                )
                .help(cast_help(&text, DType::I32)),
            );
        }
        let id = self.coerce(&x.value, elem, &shape, x.span)?;
        let op = match name {
            "cluster_sum" => ClusterOp::Sum,
            "cluster_max" => ClusterOp::Max,
            "cluster_min" => ClusterOp::Min,
            _ => ClusterOp::Before,
        };
        let Some(axis) = axis else {
            if op != ClusterOp::Before {
                return Ok(Value::Run(id));
            }
            let zero = self.zero(elem, span)?;
            return Ok(Value::Run(if shape.is_empty() {
                zero
            } else {
                self.builder(span).broadcast(zero, &shape)
            }));
        };
        Ok(Value::Run(self.builder(span).cluster_reduce(op, id, axis)))
    }

    /// `debug(x)`.
    pub(super) fn debug(&mut self, args: Vec<Argument<'a>>, span: Span) -> Eval<Value<'a>> {
        let [x] = self.exactly("debug", ["x"], args, span)?;
        let id = self.materialise(&x.value, x.span)?;
        let label = self.program.sources.text(x.span).to_owned();
        self.builder(span).debug(label, id);
        Ok(Value::Unit)
    }

    /// `ptx("…", x, …) -> ty else expr`.
    pub(super) fn ptx(
        &mut self,
        args: &'a [ast::Arg],
        ty: &'a ast::Path,
        otherwise: &'a ast::Expr,
        span: Span,
    ) -> Eval<Value<'a>> {
        let elem = self.value_type(ty)?;
        let args = self.arguments_of(args)?;
        let meaning = self.expr(otherwise)?;
        let Some((text, operands)) = args.split_first() else {
            return self.error(
                codes::E0107,
                span,
                "`ptx` takes the text of an instruction, then its operands",
            );
        };
        let Value::Str(template) = &text.value else {
            return self.error(
                codes::E0107,
                text.span,
                "the first argument of `ptx` is the text of an instruction",
            );
        };
        if let Err(wrong) = check_template(template, operands.len()) {
            return self
                .fail(Diagnostic::error(codes::E0107, text.span, wrong).note(
                    "`$0` is the result, `$1` the first operand; an element is one register",
                ));
        }
        if !has_register(elem) {
            return self.error(
                codes::E0102,
                ty.span,
                format!("no register of an instruction holds a `{elem}`"),
            );
        }
        // Operands keep their types: only shapes are brought together.
        let mut shape = Vec::new();
        let mut typed = Vec::new();
        let every = operands
            .iter()
            .map(|a| (&a.value, a.span))
            .chain([(&meaning, otherwise.span)]);
        for (value, at) in every {
            let (found, own) = self.unify(&[(value, at)], at)?;
            let Some(joined) = broadcast(&shape, &own) else {
                return Err(self.shapes_differ((value, at), (&meaning, otherwise.span), span));
            };
            shape = joined;
            typed.push((found, at));
        }
        if let Some((Some(found), at)) = typed.pop()
            && found != elem
            && !(found == DType::I64 && elem.is_int())
        {
            let text = self.quote(at);
            return self.fail(
                Diagnostic::error(
                    codes::E0102,
                    at,
                    format!("the instruction gives `{elem}`, and its meaning is of `{found}`"),
                )
                .help(cast_help(&text, elem)),
            );
        }
        let mut ids = Vec::new();
        for (operand, (found, at)) in operands.iter().zip(typed) {
            let t = found.unwrap_or(match operand.value {
                Value::Int(_) => DType::I32,
                Value::Bool(_) => DType::Bool,
                _ => DType::F32,
            });
            if !has_register(t) {
                return self.error(
                    codes::E0102,
                    at,
                    format!("no register of an instruction holds a `{t}`"),
                );
            }
            ids.push(self.coerce(&operand.value, t, &shape, at)?);
        }
        let meaning = self.coerce(&meaning, elem, &shape, otherwise.span)?;
        let id = self.builder(span).ptx(template.to_string(), ids, meaning);
        let scalar = matches!(self.body.ty(id), Type::Scalar(_));
        let id = if scalar && elem.is_int() {
            self.builder(span).cast(id, DType::I64)
        } else {
            id
        };
        Ok(Value::Run(id))
    }

    /// `dot(a, b)`, `dot(a, b, acc)`.
    pub(super) fn dot(
        &mut self,
        name: &str,
        args: Vec<Argument<'a>>,
        span: Span,
    ) -> Eval<Value<'a>> {
        if name == "mma" {
            self.in_role(span, "`mma`")?;
        }
        let mut placed = self
            .place(name, &["a", "b", "acc"], args, span)?
            .into_iter();
        let (Some(Some(a)), Some(Some(b)), acc) =
            (placed.next(), placed.next(), placed.next().flatten())
        else {
            return self.error(
                codes::E0107,
                span,
                format!("`{name}` takes two tiles, and perhaps a third to add to"),
            );
        };
        let (x, t, s) = self.matrix(name, &a)?;
        let (y, u, r) = self.matrix(name, &b)?;
        let sums = product_types(t, u);
        let Some(&natural) = sums.first() else {
            if t != u && !product_types(t, t).is_empty() && !product_types(u, u).is_empty() {
                let narrow = if t.bits() < u.bits() {
                    (&b, t)
                } else {
                    (&a, u)
                };
                let diagnostic = Diagnostic::error(
                    codes::E0102,
                    span,
                    format!(
                        "`{name}` takes tiles of one element type, and these are of `{t}` and `{u}`"
                    ),
                )
                .label(a.span, self.describe(&a.value))
                .label(b.span, self.describe(&b.value))
                .help(cast_help(&self.quote(narrow.0.span), narrow.1));
                return self.fail(diagnostic);
            }
            let (odd, t) = if product_types(t, t).is_empty() {
                (&a, t)
            } else {
                (&b, u)
            };
            return self.error(
                codes::E0102,
                odd.span,
                format!("`{name}` multiplies floats, `i8` or `u8`, and this is a tile of `{t}`"),
            );
        };
        let (Some((batch, &[m, k])), Some((others, &[inner, n]))) =
            (s.split_last_chunk::<2>(), r.split_last_chunk::<2>())
        else {
            let vector = if s.len() < 2 { &a } else { &b };
            let text = self.quote(vector.span);
            let text = text.trim_matches('`');
            let diagnostic = Diagnostic::error(
                codes::E0201,
                vector.span,
                format!(
                    "`{name}` takes matrices, and this is {}",
                    self.describe(&vector.value)
                ),
            )
            .help(format!(
                "add an axis, `{text}[_, ..]` or `{text}[.., _]`, or write `(a * b).sum(0)`"
            ));
            return self.fail(diagnostic);
        };
        if batch != others {
            let diagnostic = Diagnostic::error(
                codes::E0201,
                span,
                format!(
                    "`{name}` of {} and {}: the axes before the last two differ",
                    show_shape(&s),
                    show_shape(&r)
                ),
            )
            .label(a.span, self.describe(&a.value))
            .label(b.span, self.describe(&b.value));
            return self.fail(diagnostic);
        }
        let product: Vec<u32> = batch.iter().copied().chain([m, n]).collect();
        self.check_elements(&product, span)?;
        if k != inner {
            let mut diagnostic = Diagnostic::error(
                codes::E0201,
                span,
                format!(
                    "`{name}` of {} and {}: the last axis of the first has {k}, the first of the second {inner}",
                    show_shape(&s),
                    show_shape(&r)
                ),
            )
            .label(a.span, self.describe(&a.value))
            .label(b.span, self.describe(&b.value));
            let turned = [(k == n, &b), (m == inner, &a)];
            if let Some((_, arg)) = turned.into_iter().find(|(fits, _)| *fits) {
                let text = self.quote(arg.span);
                let text = text.trim_matches('`');
                diagnostic =
                    diagnostic.help(if text.contains(' ') && !text.ends_with([']', ')']) {
                        format!("did you mean `({text}).t`?")
                    } else {
                        format!("did you mean `{text}.t`?")
                    });
            }
            return self.fail(diagnostic);
        }
        let start = match acc {
            None => None,
            Some(acc) => {
                let (id, elem, shape) = match &acc.value {
                    // The next product may add to one in flight.
                    Value::Run(id) if matches!(self.body.ty(*id), Type::Pending(_)) => {
                        let ty = self.body.ty(*id);
                        (*id, ty.elem(), ty.shape().to_vec())
                    }
                    _ => self.matrix(name, &acc)?,
                };
                if shape != product {
                    let diagnostic = Diagnostic::error(
                        codes::E0201,
                        acc.span,
                        format!(
                            "the product of {} and {} is {}, and it is added to {}",
                            show_shape(&s),
                            show_shape(&r),
                            show_shape(&product),
                            show_shape(&shape)
                        ),
                    )
                    .label(a.span, self.describe(&a.value))
                    .label(b.span, self.describe(&b.value));
                    return self.fail(diagnostic);
                }
                if !sums.contains(&elem) {
                    let diagnostic = Diagnostic::error(
                        codes::E0102,
                        acc.span,
                        format!(
                            "`{name}` of `{t}` adds up in `{natural}`, and this is of `{elem}`"
                        ),
                    )
                    .help(cast_help(&self.quote(acc.span), natural));
                    return self.fail(diagnostic);
                }
                Some(id)
            }
        };
        if self.roles.within.is_some() {
            let elem = start.map_or(natural, |acc| self.body.ty(acc).elem());
            let product = TileType {
                elem,
                shape: product,
            };
            let flight = self.begin_product((x, y, start), product, span)?;
            return Ok(Value::Run(match name {
                "mma" => flight,
                _ => self.await_value(flight, None, span),
            }));
        }
        let start = match start {
            Some(start) => start,
            None => {
                let zero = self.zero(natural, span)?;
                self.builder(span).broadcast(zero, &product)
            }
        };
        Ok(Value::Run(self.builder(span).dot(x, y, start)))
    }

    /// A tile that `{name}` takes.
    fn matrix(&mut self, name: &str, arg: &Argument<'a>) -> Eval<(ValueId, DType, Vec<u32>)> {
        match (&arg.value, self.shape_of(&arg.value)) {
            (_, Some(Shape::Tile(elem, shape))) => {
                let id = self.materialise(&arg.value, arg.span)?;
                Ok((id, elem, shape))
            }
            _ => {
                let what = self.describe(&arg.value);
                let mut diagnostic = Diagnostic::error(
                    codes::E0102,
                    arg.span,
                    format!("`{name}` takes tiles, and this is {what}"),
                );
                if matches!(arg.value, Value::View(_)) {
                    diagnostic =
                        diagnostic.help("a slice of it is a tile: `x[i*BM +: BM, p*BK +: BK]`");
                }
                self.fail(diagnostic)
            }
        }
    }
}

/// Whether an instruction takes elements of this type in registers of their own.
fn has_register(elem: DType) -> bool {
    matches!(elem.bits(), 16 | 32 | 64) || elem == DType::Bool
}

/// What is wrong with the text of an instruction for so many operands, if anything is.
fn check_template(text: &str, operands: usize) -> Result<(), String> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut result = false;
    while at < bytes.len() {
        if bytes[at] != b'$' {
            at += 1;
            continue;
        }
        let digits = bytes[at + 1..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count();
        match text[at + 1..at + 1 + digits].parse::<usize>() {
            Ok(0) => result = true,
            Ok(n) if n <= operands => {}
            Ok(n) => return Err(format!("`${n}` names no operand: there are {operands}")),
            Err(_) => return Err("a `$` stands before the number of an operand".into()),
        }
        at += 1 + digits;
    }
    if !result {
        return Err("the instruction writes no `$0`, its result".into());
    }
    if let Some(odd) = text
        .chars()
        .find(|c| !(' '..='~').contains(c) || matches!(c, '"' | '\\'))
    {
        return Err(format!("{odd:?} does not belong in an instruction"));
    }
    Ok(())
}
