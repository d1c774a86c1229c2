//! The operations that the language knows by name.

use tesserine_set::{DType, Fact};

use super::{
    Eval,
    access::count,
    call::Argument,
    eval::{Evaluator, Shape, broadcast, show_shape},
    value::Value,
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        ValueId,
        tile::{BinaryOp, Cache, CompareOp, ReduceOp, ScanOp, Type, UnaryOp},
    },
    span::Span,
    syntax::ast::{self, ExprKind},
};

/// Every function that a name can call.
pub(crate) const NAMES: &[&str] = &[
    "min",
    "max",
    "abs",
    "fma",
    "clamp",
    "select",
    "mul_exact",
    "mul_hi",
    "popcount",
    "clz",
    "exp",
    "exp2",
    "log",
    "log2",
    "sqrt",
    "rsqrt",
    "rcp",
    "tanh",
    "erf",
    "sigmoid",
    "sin",
    "cos",
    "floor",
    "ceil",
    "round",
    "ceil_div",
    "round_up",
    "reshape",
    "permute",
    "broadcast",
    "split",
    "join",
    "uniform",
    "assume",
    "load",
    "store",
    "given",
    "aligned",
    "dot",
    "dot_scaled",
    "mma",
    "mma_scaled",
    "cumsum",
    "cummax",
    "sort",
    "topk",
    "histogram",
    "occurrence",
    "take",
    "concat",
    "philox",
    "cluster_sum",
    "cluster_max",
    "cluster_min",
    "cluster_before",
    "arrive",
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "atomic_and",
    "atomic_or",
    "atomic_xor",
    "atomic_cas",
    "debug",
    "paged",
    "randn",
    "uniform_ints",
    "tensor",
    "empty",
    "expect",
    "expect_error",
];

/// What only a value before a dot calls.
pub(crate) const METHODS: &[&str] = &[
    "sum",
    "max",
    "min",
    "argmax",
    "argmin",
    "any",
    "all",
    "shape",
    "dim",
    "reshape",
    "permute",
    "broadcast",
    "split",
    "merge",
];

impl<'a> Evaluator<'a> {
    /// A function of the language, by name.
    pub fn builtin(
        &mut self,
        name: &'static str,
        args: Vec<Argument<'a>>,
        (at, span): (Span, Span),
    ) -> Eval<Value<'a>> {
        if let Some(op) = unary(name) {
            let [x] = self.exactly(name, ["x"], args, span)?;
            return self.unary(op, (&x.value, x.span), span);
        }
        let binary = match name {
            "min" => Some(BinaryOp::Min),
            "max" => Some(BinaryOp::Max),
            "mul_exact" => Some(BinaryOp::MulExact),
            "mul_hi" => Some(BinaryOp::MulHi),
            _ => None,
        };
        if let Some(op) = binary {
            if let ("min" | "max", [_]) = (name, &args[..]) {
                return self.fail(
                    Diagnostic::error(
                        codes::E0107,
                        span,
                        format!("`{name}` takes two values and is elementwise"),
                    )
                    .help(format!(
                        "to reduce a tile, write `x.{name}(axis)`, or `x.{name}()` for all of it"
                    )),
                );
            }
            let [a, b] = self.exactly(name, ["a", "b"], args, span)?;
            return self.arithmetic(op, (&a.value, a.span), (&b.value, b.span), span);
        }
        match name {
            "fma" => {
                let [a, b, c] = self.exactly(name, ["a", "b", "c"], args, span)?;
                let all = [(&a.value, a.span), (&b.value, b.span), (&c.value, c.span)];
                let (elem, shape) = self.unify(&all, span)?;
                let elem = elem.unwrap_or(DType::F32);
                if !elem.is_float() {
                    return self.error(
                        codes::E0102,
                        span,
                        format!("`fma` takes floats, and these are `{elem}`"),
                    );
                }
                let mut ids = Vec::new();
                for (value, at) in all {
                    ids.push(self.coerce(value, elem, &shape, at)?);
                }
                Ok(Value::Run(self.builder(span).fma(ids[0], ids[1], ids[2])))
            }
            "clamp" => {
                let [x, lo, hi] = self.exactly(name, ["x", "lo", "hi"], args, span)?;
                let low = self.arithmetic(
                    BinaryOp::Max,
                    (&x.value, x.span),
                    (&lo.value, lo.span),
                    span,
                )?;
                self.arithmetic(BinaryOp::Min, (&low, span), (&hi.value, hi.span), span)
            }
            "select" => {
                let [c, a, b] = self.exactly(name, ["c", "a", "b"], args, span)?;
                self.select(&c, &a, &b, span)
            }
            "ceil_div" | "round_up" => {
                let [a, b] = self.exactly(name, ["a", "b"], args, span)?;
                let (x, y) = ((&a.value, a.span), (&b.value, b.span));
                for side in [x, y] {
                    let float = match self.shape_of(side.0) {
                        Some(Shape::Scalar(t) | Shape::Tile(t, _)) => t.is_float(),
                        _ => matches!(side.0, Value::Float(..)),
                    };
                    if float {
                        return self.error(
                            codes::E0102,
                            side.1,
                            format!("`{name}` takes integers"),
                        );
                    }
                }
                let quotient = self.ceil_div(x, y, span)?;
                if name == "ceil_div" {
                    return Ok(quotient);
                }
                self.arithmetic(BinaryOp::Mul, (&quotient, span), y, span)
            }
            "uniform" => {
                let [u] = self.exactly(name, ["u"], args, span)?;
                let bits = self.arithmetic(
                    BinaryOp::Shr,
                    (&u.value, u.span),
                    (&Value::Int(8), span),
                    span,
                )?;
                let real = self.cast((&bits, span), DType::F32, span)?;
                let scale = Value::Float((-24f64).exp2(), None);
                self.arithmetic(BinaryOp::Mul, (&real, span), (&scale, span), span)
            }
            "reshape" | "permute" | "broadcast" => {
                let [x, shape] = self.exactly(name, ["x", "shape"], args, span)?;
                self.reshaping(name, &x, &shape, span)
            }
            "split" => {
                let [x] = self.exactly(name, ["x"], args, span)?;
                self.split(&x, span)
            }
            "join" => {
                let [a, b] = self.exactly(name, ["a", "b"], args, span)?;
                self.join_last(&a, &b, span)
            }
            "dot" | "mma" => self.dot(name, args, span),
            "cumsum" => self.scan(ScanOp::Sum, name, args, span),
            "cummax" => self.scan(ScanOp::Max, name, args, span),
            "sort" => self.sort(args, span),
            "topk" => self.topk(args, span),
            "histogram" => self.histogram(args, span),
            "occurrence" => self.occurrence(args, span),
            "take" => self.take(args, span),
            "concat" => self.concat(args, span),
            "philox" => self.philox(args, span),
            "cluster_sum" | "cluster_max" | "cluster_min" | "cluster_before" => {
                self.cluster(name, args, span)
            }
            "debug" => self.debug(args, span),
            "paged" => self.paged(args, span),
            "assume" => {
                let [c] = self.exactly(name, ["c"], args, span)?;
                self.assume(&c, span)
            }
            "load" | "store" | "given" => self.error(
                codes::E0108,
                at,
                format!("`{name}` is called by its name, with its arguments in place"),
            ),
            "aligned" => self.fail(
                Diagnostic::error(
                    codes::E0401,
                    span,
                    "`aligned` is a fact about a launch, not a value",
                )
                .help("state it in the kernel's `where`, or in `specialize` of its schedule"),
            ),
            "randn" | "uniform_ints" | "tensor" | "empty" if self.tensors.is_some() => {
                self.test_tensor(name, args, span)
            }
            "randn" | "uniform_ints" | "tensor" | "empty" | "expect" | "expect_error" => {
                self.error(codes::E0108, at, format!("`{name}` is for tests"))
            }
            _ => self.not_yet(at, &format!("`{name}`")),
        }
    }

    pub fn exactly<const N: usize>(
        &mut self,
        name: &str,
        names: [&str; N],
        args: Vec<Argument<'a>>,
        span: Span,
    ) -> Eval<[Argument<'a>; N]> {
        let placed = self.place(name, &names, args, span)?;
        let mut all = Vec::new();
        for (arg, parameter) in placed.into_iter().zip(names) {
            match arg {
                Some(arg) => all.push(arg),
                None => {
                    return self.error(
                        codes::E0107,
                        span,
                        format!(
                            "`{name}` takes {}: `{parameter}` is missing",
                            count(N, "argument")
                        ),
                    );
                }
            }
        }
        match <[Argument<'a>; N]>::try_from(all) {
            Ok(all) => Ok(all),
            Err(_) => self.error(
                codes::E0107,
                span,
                format!("`{name}` takes {}", count(N, "argument")),
            ),
        }
    }

    fn select(
        &mut self,
        c: &Argument<'a>,
        a: &Argument<'a>,
        b: &Argument<'a>,
        span: Span,
    ) -> Eval<Value<'a>> {
        let (ctype, cshape) = self.unify(&[(&c.value, c.span)], c.span)?;
        let is_bool = matches!(c.value, Value::Bool(_)) || ctype == Some(DType::Bool);
        if !is_bool {
            let what = self.describe(&c.value);
            return self.fail(
                Diagnostic::error(
                    codes::E0109,
                    c.span,
                    format!("the condition of `select` is of `bool`, and this is {what}"),
                )
                .help(format!(
                    "write `{} != 0`",
                    self.quote(c.span).trim_matches('`')
                )),
            );
        }
        let sides = [(&a.value, a.span), (&b.value, b.span)];
        let (elem, shape) = self.unify(&sides, span)?;
        if let (Value::Bool(c), true) = (&c.value, elem.is_none()) {
            return Ok(if *c { a.value.clone() } else { b.value.clone() });
        }
        let elem = elem.unwrap_or(match (&a.value, &b.value) {
            (Value::Bool(_), Value::Bool(_)) => DType::Bool,
            (Value::Int(_), Value::Int(_)) if cshape.is_empty() => DType::I64,
            (Value::Int(_), Value::Int(_)) => DType::I32,
            _ => DType::F32,
        });
        let Some(joined) = broadcast(&cshape, &shape) else {
            let side = if matches!(self.shape_of(&a.value), Some(Shape::Tile(..))) {
                a
            } else {
                b
            };
            return Err(self.shapes_differ((&c.value, c.span), (&side.value, side.span), span));
        };
        let x = self.coerce(&a.value, elem, &joined, a.span)?;
        let y = self.coerce(&b.value, elem, &joined, b.span)?;
        if let Value::Bool(c) = c.value {
            return Ok(Value::Run(if c { x } else { y }));
        }
        let mask = self.coerce(&c.value, DType::Bool, &joined, c.span)?;
        Ok(Value::Run(self.builder(span).select(mask, x, y)))
    }

    fn assume(&mut self, c: &Argument<'a>, span: Span) -> Eval<Value<'a>> {
        self.bool_scalar((&c.value, c.span), "what `assume` states")?;
        match &c.value {
            Value::Bool(true) => return Ok(Value::Unit),
            Value::Bool(false) => {
                return self.error(
                    codes::E0303,
                    c.span,
                    format!("{} never holds", self.quote(c.span)),
                );
            }
            _ => {}
        }
        let id = self.materialise(&c.value, c.span)?;
        // What mentions dimensions and scalars only is checked at launch.
        if self.region == self.spine
            && let Some(formula) = self.formula_of(id)
        {
            self.assumed.push(Fact::Holds(formula));
        } else {
            let text = self.program.sources.text(c.span).to_owned();
            self.builder(span).assert(id, text);
        }
        Ok(Value::Unit)
    }

    // What takes its arguments unevaluated.

    pub fn special(&mut self, name: &str, args: &'a [ast::Arg], span: Span) -> Eval<Value<'a>> {
        match name {
            "given" => {
                let [ast::Arg { name: None, value }] = args else {
                    return self.error(
                        codes::E0107,
                        span,
                        "`given` takes the name of an optional parameter",
                    );
                };
                let found = match super::call::bare(value) {
                    Some(ident) => self.local(&ident.name).map(|b| b.value.clone()),
                    None => match &value.kind {
                        ExprKind::Field { base, name } => match self.expr(base)? {
                            variant @ Value::Variant(_) => variant.field(&name.name),
                            _ => None,
                        },
                        _ => None,
                    },
                };
                match found {
                    Some(Value::Error) => Err(super::Told),
                    Some(Value::Absent(_)) => Ok(Value::Bool(false)),
                    Some(_) => Ok(Value::Bool(true)),
                    None => {
                        let text = self.quote(value.span);
                        self.error(codes::E0107, value.span, format!("`given` takes the name of an optional parameter, and {text} is none"))
                    }
                }
            }
            "load" => {
                let (target, rest) = self.slice_argument(name, args, span)?;
                let mut pad: Option<(Value<'a>, Span)> = None;
                let mut cache = Cache::Normal;
                for arg in rest {
                    match arg.name.as_ref().map(|n| n.name.as_str()) {
                        Some("pad") => {
                            let any =
                                super::call::bare(&arg.value).is_some_and(|n| n.name == "any");
                            let value = if any {
                                Value::Any
                            } else {
                                self.expr(&arg.value)?
                            };
                            pad = Some((value, arg.value.span));
                        }
                        Some("cache") => cache = self.cache(&arg.value)?,
                        _ => {
                            return self.error(
                                codes::E0107,
                                arg.value.span,
                                "`load` takes a slice, `pad = …` and `cache = …`",
                            );
                        }
                    }
                }
                self.load(&target, pad.as_ref().map(|(v, s)| (v, *s)), cache)
            }
            "store" => {
                let (target, rest) = self.slice_argument(name, args, span)?;
                let mut value = None;
                let mut cache = Cache::Normal;
                for arg in rest {
                    match arg.name.as_ref().map(|n| n.name.as_str()) {
                        None if value.is_none() => {
                            value = Some((self.expr(&arg.value)?, arg.value.span))
                        }
                        Some("cache") => cache = self.cache(&arg.value)?,
                        _ => {
                            return self.error(
                                codes::E0107,
                                arg.value.span,
                                "`store` takes a slice, a value and `cache = …`",
                            );
                        }
                    }
                }
                let Some((value, at)) = value else {
                    return self.error(codes::E0107, span, "`store` takes a slice and a value");
                };
                self.store(&target, (&value, at), cache)?;
                Ok(Value::Unit)
            }
            name if super::atomics::takes_slice(name) => self.synchronised(name, args, span),
            _ => self.builtin("aligned", Vec::new(), (span, span)),
        }
    }

    pub(super) fn slice_argument(
        &mut self,
        name: &str,
        args: &'a [ast::Arg],
        span: Span,
    ) -> Eval<(super::access::Slice, &'a [ast::Arg])> {
        let Some((first, rest)) = args.split_first() else {
            return self.error(
                codes::E0107,
                span,
                format!("`{name}` takes a slice of a view"),
            );
        };
        let at = first.value.span;
        if let ExprKind::Index { base, indices } = &first.value.kind
            && let Value::View(view) = self.expr(base)?
        {
            return Ok((self.slice(view, indices, at)?, rest));
        }
        let text = self.quote(at);
        self.error(
            codes::E0108,
            at,
            format!("`{name}` takes a slice of a view, as `v[…]`, and {text} is none"),
        )
    }

    pub(super) fn cache(&mut self, expr: &'a ast::Expr) -> Eval<Cache> {
        match super::call::bare(expr).map(|n| n.name.as_str()) {
            Some("evict_first") => Ok(Cache::EvictFirst),
            Some("evict_last") => Ok(Cache::EvictLast),
            _ => self.error(
                codes::E0107,
                expr.span,
                "`cache` is `evict_first` or `evict_last`",
            ),
        }
    }

    // Methods.

    pub fn builtin_method(
        &mut self,
        receiver: Argument<'a>,
        name: &'a ast::Ident,
        args: Vec<Argument<'a>>,
        span: Span,
    ) -> Eval<Value<'a>> {
        let method = name.name.as_str();
        if let Value::View(view) = &receiver.value {
            let view = view.clone();
            return match method {
                "dim" | "shape" => {
                    let [i] = self.exactly(method, ["i"], args, span)?;
                    let axis = self.axis(&i, view.extents.len(), &format!("`{}`", view.name))?;
                    let extent = &view.extents[axis as usize];
                    if method == "shape" && extent.as_int().is_none() {
                        return self.fail(
                            Diagnostic::error(
                                codes::E0301,
                                span,
                                format!("the extent of `{}` is known at run time only", view.name),
                            )
                            .help(format!("write `{}.dim({axis})`", view.name)),
                        );
                    }
                    self.extent_value(extent, span)
                }
                "permute" | "split" | "merge" => {
                    let view = (view, receiver.span);
                    Ok(Value::View(self.rearranged(method, view, args, span)?))
                }
                _ => {
                    let slices = vec![".."; view.extents.len()].join(", ");
                    self.fail(
                        Diagnostic::error(
                            codes::E0108,
                            receiver.span,
                            format!("`.{method}` is of tiles, and `{}` is a view", view.name),
                        )
                        .help(format!("read a slice of it, as `{}[{slices}]`", view.name)),
                    )
                }
            };
        }
        match method {
            "shape" | "dim" if method == "shape" || self.tensors.is_some() => {
                let [i] = self.exactly(method, ["i"], args, span)?;
                let Some(Shape::Tile(_, shape)) = self.shape_of(&receiver.value) else {
                    let what = self.describe(&receiver.value);
                    return self.error(codes::E0106, span, format!("{what} has no shape"));
                };
                let axis = self.axis(&i, shape.len(), &show_shape(&shape))?;
                Ok(Value::Int(shape[axis as usize].into()))
            }
            "dim" => {
                let what = self.describe(&receiver.value);
                self.fail(
                    Diagnostic::error(
                        codes::E0106,
                        span,
                        format!("`.dim` is of views, and this is {what}"),
                    )
                    .help("write `.shape(i)` for the constant extent of a tile"),
                )
            }
            "reshape" | "permute" | "broadcast" => {
                let [shape] = self.exactly(method, ["shape"], args, span)?;
                self.reshaping(method, &receiver, &shape, span)
            }
            "split" => {
                let [] = self.exactly(method, [], args, span)?;
                self.split(&receiver, span)
            }
            "merge" => self.not_yet(span, "`.merge`"),
            _ => {
                let op = match method {
                    "sum" => ReduceOp::Sum,
                    "max" => ReduceOp::Max,
                    "min" => ReduceOp::Min,
                    "any" => ReduceOp::Any,
                    "all" => ReduceOp::All,
                    "argmax" => ReduceOp::ArgMax,
                    _ => ReduceOp::ArgMin,
                };
                self.reduce(op, method, receiver, args, span)
            }
        }
    }

    fn reduce(
        &mut self,
        op: ReduceOp,
        method: &str,
        x: Argument<'a>,
        args: Vec<Argument<'a>>,
        span: Span,
    ) -> Eval<Value<'a>> {
        let Some(Shape::Tile(elem, shape)) = self.shape_of(&x.value) else {
            let what = self.describe(&x.value);
            let mut diagnostic = Diagnostic::error(
                codes::E0108,
                span,
                format!("`.{method}` reduces a tile, and this is {what}"),
            );
            if matches!(method, "max" | "min") && !args.is_empty() {
                diagnostic = diagnostic.help(format!(
                    "the {method}imum of two values is `{method}(a, b)`",
                ));
            }
            return self.fail(diagnostic);
        };
        let axis = match &args[..] {
            [] => None,
            [axis] => {
                if let Some(name) = axis.name.filter(|name| name.name != "axis") {
                    return self.fail(
                        Diagnostic::error(
                            codes::E0107,
                            name.span,
                            format!("`.{method}` has no parameter `{}`", name.name),
                        )
                        .help(format!("write the axis: `x.{method}(0)`")),
                    );
                }
                if matches!(self.shape_of(&axis.value), Some(Shape::Tile(..)))
                    && matches!(method, "max" | "min")
                {
                    return self.fail(
                        Diagnostic::error(
                            codes::E0206,
                            axis.span,
                            format!("`.{method}` takes an axis, and this is a tile"),
                        )
                        .help(format!("the elementwise {method}imum is `{method}(a, b)`")),
                    );
                }
                Some(self.axis(axis, shape.len(), &show_shape(&shape))?)
            }
            _ => {
                return self.error(
                    codes::E0107,
                    span,
                    format!("`.{method}` takes one axis, or none for all of them"),
                );
            }
        };
        let (ok, wants) = match op {
            ReduceOp::Any | ReduceOp::All => (elem == DType::Bool, "`bool`"),
            ReduceOp::Sum => (true, ""),
            _ => (elem != DType::Bool, "numbers"),
        };
        if !ok {
            return self.error(
                codes::E0102,
                span,
                format!("`.{method}` takes {wants}, and this is a tile of `{elem}`"),
            );
        }
        let id = self.materialise(&x.value, x.span)?;
        let axis = if shape.len() == 1 { None } else { axis };
        let id = self.builder(span).reduce(op, id, axis);
        Ok(Value::Run(self.scalar_width(id, span)))
    }

    /// A constant axis of something with `rank` axes.
    pub(super) fn axis(&mut self, arg: &Argument<'a>, rank: usize, of: &str) -> Eval<u32> {
        let axis = self.as_const_int(&arg.value, arg.span, "an axis")?;
        match u32::try_from(axis) {
            Ok(axis) if (axis as usize) < rank => Ok(axis),
            _ => self.fail(
                Diagnostic::error(
                    codes::E0206,
                    arg.span,
                    format!(
                        "{of} has {}, and {axis} is none of them",
                        count(rank, "axis")
                    ),
                )
                .note("axes count from 0"),
            ),
        }
    }

    fn reshaping(
        &mut self,
        what: &str,
        x: &Argument<'a>,
        shape: &Argument<'a>,
        span: Span,
    ) -> Eval<Value<'a>> {
        let have = match self.shape_of(&x.value) {
            Some(Shape::Tile(_, have)) => have,
            Some(_) => Vec::new(),
            None => {
                let is = self.describe(&x.value);
                return self.error(
                    codes::E0108,
                    x.span,
                    format!("`{what}` takes a tile, and this is {is}"),
                );
            }
        };
        let Value::List(items) = &shape.value else {
            let is = self.describe(&shape.value);
            return self.error(
                codes::E0107,
                shape.span,
                format!("`{what}` takes a list, as `[8, 16]`, and this is {is}"),
            );
        };
        let mut numbers = Vec::new();
        for item in items.iter() {
            numbers.push(self.as_const_int(item, shape.span, "an entry of this list")?);
        }
        let id = self.materialise(&x.value, x.span)?;
        if what == "permute" {
            let mut sorted = numbers.clone();
            sorted.sort_unstable();
            if sorted != (0..have.len() as i64).collect::<Vec<_>>() {
                return self.error(
                    codes::E0206,
                    shape.span,
                    format!(
                        "the axes of {} are 0 to {}, each named once",
                        show_shape(&have),
                        have.len().saturating_sub(1)
                    ),
                );
            }
            let perm: Vec<u32> = numbers.iter().map(|&n| n as u32).collect();
            return Ok(Value::Run(self.builder(span).permute(id, perm)));
        }
        let mut target = Vec::new();
        for n in numbers {
            target.push(self.extent(n, shape.span)?);
        }
        self.check_elements(&target, span)?;
        if what == "broadcast" {
            if broadcast(&have, &target).as_ref() != Some(&target) {
                return self.error(
                    codes::E0201,
                    span,
                    format!(
                        "a tile {} does not stretch to {}",
                        show_shape(&have),
                        show_shape(&target)
                    ),
                );
            }
            return Ok(Value::Run(self.builder(span).broadcast(id, &target)));
        }
        let elements = |s: &[u32]| s.iter().map(|&d| u64::from(d)).product::<u64>();
        if elements(&have) != elements(&target) {
            return self.error(
                codes::E0204,
                span,
                format!(
                    "{} has {} elements, and {} has {}",
                    show_shape(&have),
                    elements(&have),
                    show_shape(&target),
                    elements(&target)
                ),
            );
        }
        if have.is_empty() {
            return Ok(Value::Run(self.builder(span).broadcast(id, &target)));
        }
        let id = self.builder(span).reshape(id, &target);
        Ok(Value::Run(self.scalar_width(id, span)))
    }

    /// A last axis of two, as two tiles.
    fn split(&mut self, x: &Argument<'a>, span: Span) -> Eval<Value<'a>> {
        let shape = match self.shape_of(&x.value) {
            Some(Shape::Tile(_, shape)) if shape.last() == Some(&2) => shape,
            _ => {
                let what = self.describe(&x.value);
                return self.error(
                    codes::E0204,
                    span,
                    format!("`split` takes a tile whose last axis has 2, and this is {what}"),
                );
            }
        };
        let id = self.materialise(&x.value, x.span)?;
        let mut halves = Vec::new();
        for i in 0..2 {
            let mut offsets = vec![0; shape.len()];
            offsets[shape.len() - 1] = i;
            let mut part = shape.clone();
            part[shape.len() - 1] = 1;
            let mut b = self.builder(span);
            let half = b.slice(id, offsets, &part);
            let half = b.reshape(half, &shape[..shape.len() - 1]);
            halves.push(Value::Run(self.scalar_width(half, span)));
        }
        Ok(Value::Tuple(halves.into()))
    }

    /// Two tiles along a new last axis.
    fn join_last(&mut self, a: &Argument<'a>, b: &Argument<'a>, span: Span) -> Eval<Value<'a>> {
        let both = [(&a.value, a.span), (&b.value, b.span)];
        let (elem, shape) = self.unify(&both, span)?;
        let elem = elem.unwrap_or(DType::F32);
        let mut wide: Vec<u32> = shape.clone();
        wide.push(2);
        self.check_elements(&wide, span)?;
        let mut column = shape.clone();
        column.push(1);
        let mut sides: Vec<ValueId> = Vec::new();
        for (value, at) in both {
            let id = self.coerce(value, elem, &shape, at)?;
            let mut builder = self.builder(span);
            let id = if shape.is_empty() {
                id
            } else {
                builder.reshape(id, &column)
            };
            sides.push(builder.broadcast(id, &wide));
        }
        let zero = self.constant(crate::ir::tile::Constant::Int(0, DType::I32));
        let mut builder = self.builder(span);
        let which = builder.iota(DType::I32, &[2]);
        let zeros = builder.broadcast(zero, &[2]);
        let first = builder.compare(CompareOp::Eq, which, zeros);
        let first = builder.broadcast(first, &wide);
        Ok(Value::Run(builder.select(first, sides[0], sides[1])))
    }

    /// Whether a value is a scalar of the body.
    pub fn is_scalar(&self, id: ValueId) -> bool {
        matches!(self.body.ty(id), Type::Scalar(_))
    }
}

fn unary(name: &str) -> Option<UnaryOp> {
    Some(match name {
        "abs" => UnaryOp::Abs,
        "exp" => UnaryOp::Exp,
        "exp2" => UnaryOp::Exp2,
        "log" => UnaryOp::Log,
        "log2" => UnaryOp::Log2,
        "sqrt" => UnaryOp::Sqrt,
        "rsqrt" => UnaryOp::Rsqrt,
        "rcp" => UnaryOp::Rcp,
        "tanh" => UnaryOp::Tanh,
        "erf" => UnaryOp::Erf,
        "sigmoid" => UnaryOp::Sigmoid,
        "sin" => UnaryOp::Sin,
        "cos" => UnaryOp::Cos,
        "floor" => UnaryOp::Floor,
        "ceil" => UnaryOp::Ceil,
        "round" => UnaryOp::Round,
        "popcount" => UnaryOp::Popcount,
        "clz" => UnaryOp::Clz,
        _ => return None,
    })
}
