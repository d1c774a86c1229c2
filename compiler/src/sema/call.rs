//! Calls: of functions, which are inlined; of variants' functions; of structs and variants, which make values; and what
//! compile-time parameters are bound to.

use std::rc::Rc;

use super::{
    Eval,
    access::count,
    builtins::METHODS,
    eval::{Evaluator, Frame, Shape, Tail},
    value::{FnValue, StructValue, TypeValue, Value, VariantType, VariantValue},
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::tile::Type,
    span::Span,
    syntax::ast::{self, ExprKind},
};

/// An argument that has been evaluated.
pub(crate) struct Argument<'a> {
    pub name: Option<&'a ast::Ident>,
    pub value: Value<'a>,
    pub span: Span,
}

/// A compile-time argument that has been evaluated.
pub(crate) type CArgument<'a> = (Option<&'a ast::Ident>, Value<'a>, Span);

impl<'a> Evaluator<'a> {
    pub fn call(
        &mut self,
        callee: &'a ast::Expr,
        args: &'a [ast::Arg],
        span: Span,
    ) -> Eval<Value<'a>> {
        if let ExprKind::Field { base, name } = &callee.kind {
            return self.method(base, name, args, span);
        }
        if let ExprKind::Path(path) = &callee.kind
            && let Some(name) = path.as_ident()
            && (matches!(name.name.as_str(), "load" | "store" | "given" | "aligned")
                || super::atomics::takes_slice(&name.name))
            && self.local(&name.name).is_none()
            && self.program.lookup(self.module(), &name.name).is_none()
        {
            return self.special(&name.name, args, span);
        }
        let function = self.expr(callee)?;
        let args = self.arguments_of(args)?;
        self.apply(function, None, args, (callee.span, span))
    }

    pub fn arguments_of(&mut self, args: &'a [ast::Arg]) -> Eval<Vec<Argument<'a>>> {
        let mut out = Vec::with_capacity(args.len());
        let mut told = None;
        for arg in args {
            // `pad = any` and the like are words, not values in scope.
            match self.expr(&arg.value) {
                Ok(value) => out.push(Argument {
                    name: arg.name.as_ref(),
                    value,
                    span: arg.value.span,
                }),
                Err(t) => told = Some(t),
            }
        }
        told.map_or(Ok(out), Err)
    }

    /// `base.name(args)`.
    fn method(
        &mut self,
        base: &'a ast::Expr,
        name: &'a ast::Ident,
        args: &'a [ast::Arg],
        span: Span,
    ) -> Eval<Value<'a>> {
        let value = self.expr(base);
        let args = self.arguments_of(args);
        let (value, args) = (value?, args?);
        let receiver = Argument {
            name: None,
            value,
            span: base.span,
        };
        // A field that holds a function.
        if let Some(function) = receiver.value.field(&name.name) {
            return self.apply(function, None, args, (name.span, span));
        }
        let of_variant = match &receiver.value {
            Value::Variant(v) => Some(v.ty.clone()),
            Value::Type(TypeValue::Variant(v)) => Some(v.clone()),
            _ => None,
        };
        if let Some(ty) = of_variant
            && let Some(function) = self.variant_fn(&ty, &name.name)
        {
            return self.apply(Value::Fn(function), Some(receiver), args, (name.span, span));
        }
        if METHODS.contains(&name.name.as_str()) && !self.is_user_function(name) {
            return self.builtin_method(receiver, name, args, span);
        }
        if self.is_user_function(name) || super::builtins::NAMES.contains(&name.name.as_str()) {
            let function = self.name(name)?;
            return self.apply(function, Some(receiver), args, (name.span, span));
        }
        let what = self.describe(&receiver.value);
        let mut diagnostic = Diagnostic::error(
            codes::E0106,
            name.span,
            format!("{what} has no function `{}`", name.name),
        );
        if name.name == "t" {
            return self.fail(diagnostic.help("write `x.t`, without parentheses"));
        }
        if let Some(help) = crate::syntax::habits::name(&name.name) {
            return self.fail(diagnostic.help(help));
        }
        let names = METHODS.iter().chain(super::builtins::NAMES).copied();
        if let Some(near) = super::modules::nearest(&name.name, names) {
            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
        }
        self.fail(diagnostic)
    }

    fn is_user_function(&self, name: &ast::Ident) -> bool {
        match self.local(&name.name) {
            Some(binding) => matches!(binding.value, Value::Fn(_) | Value::Builtin(_)),
            None => match self.program.lookup(self.module(), &name.name) {
                Some(super::modules::Def::Item(m, i)) => {
                    matches!(self.program.item(m, i).kind, ast::ItemKind::Fn(_))
                }
                _ => false,
            },
        }
    }

    /// Calls a value. `spans`: of what is called, and of the whole call.
    pub fn apply(
        &mut self,
        function: Value<'a>,
        receiver: Option<Argument<'a>>,
        args: Vec<Argument<'a>>,
        spans: (Span, Span),
    ) -> Eval<Value<'a>> {
        match function {
            Value::Fn(f) => self.call_fn(f, receiver, args, spans.1),
            Value::Builtin(name) => {
                let mut all: Vec<Argument<'a>> = receiver.into_iter().collect();
                all.extend(args);
                self.builtin(name, all, spans)
            }
            Value::Type(TypeValue::Struct(item)) => {
                let fields = self.fields(&item.name.name, &item.fields, args, spans.1)?;
                Ok(Value::Struct(Rc::new(StructValue { item, fields })))
            }
            Value::Type(TypeValue::Variant(ty)) => {
                let fields = self.fields(&ty.item.name.name, &ty.item.fields, args, spans.1)?;
                Ok(Value::Variant(Rc::new(VariantValue { ty, fields })))
            }
            Value::Type(TypeValue::VariantItem(module, item)) => {
                let cargs = self.inferred_cargs(item, &args);
                let ty = self.variant_type(module, item, cargs, spans.0)?;
                let fields = self.fields(&item.name.name, &item.fields, args, spans.1)?;
                Ok(Value::Variant(Rc::new(VariantValue { ty, fields })))
            }
            Value::DType(t) => self.fail(
                Diagnostic::error(
                    codes::E0108,
                    spans.1,
                    format!("`{t}` is a type, not a function"),
                )
                .help(format!("to convert, write `x as {t}`")),
            ),
            other => {
                let what = self.describe(&other);
                self.error(codes::E0108, spans.0, format!("{what} cannot be called"))
            }
        }
    }

    /// The compile-time arguments of a variant that its fields say: `a: A` by the variant given, `view<T>` by its elements.
    fn inferred_cargs(&self, item: &'a ast::Variant, args: &[Argument<'a>]) -> Vec<CArgument<'a>> {
        let mut out = Vec::new();
        for cparam in &item.cparams {
            let found = item.fields.iter().enumerate().find_map(|(i, field)| {
                let arg = args.iter().enumerate().find(|(at, arg)| match arg.name {
                    Some(name) => name.name == field.name.name,
                    None => *at == i,
                });
                let (_, arg) = arg?;
                let value = match (&field.ty.as_ref()?.kind, &arg.value) {
                    (ast::TypeKind::Path { path, .. }, Value::Variant(v))
                        if path.as_ident()?.name == cparam.name.name =>
                    {
                        Value::Type(TypeValue::Variant(v.ty.clone()))
                    }
                    (ast::TypeKind::View { elem, .. }, value)
                        if elem.as_ident()?.name == cparam.name.name =>
                    {
                        Value::DType(match (value, self.shape_of(value)) {
                            (Value::View(view), _) => view.elem,
                            (_, Some(Shape::Tile(t, _))) => t,
                            _ => return None,
                        })
                    }
                    _ => return None,
                };
                Some((Some(&cparam.name), value, arg.span))
            });
            out.extend(found);
        }
        out
    }

    /// The fields of a struct or variant, from arguments by place or name.
    fn fields(
        &mut self,
        name: &str,
        fields: &'a [ast::Field],
        args: Vec<Argument<'a>>,
        span: Span,
    ) -> Eval<Vec<Value<'a>>> {
        let names: Vec<&str> = fields.iter().map(|f| f.name.name.as_str()).collect();
        let placed = self.place(name, &names, args, span)?;
        let mut out = Vec::new();
        for (field, arg) in fields.iter().zip(placed) {
            match arg {
                Some(arg) => {
                    let value = match &field.ty {
                        Some(ty)
                            if matches!(ty.kind, ast::TypeKind::Path { .. })
                                && !matches!(arg.value, Value::Variant(_)) =>
                        {
                            self.annotated(arg.value, Some(ty), arg.span)?
                        }
                        _ => arg.value,
                    };
                    out.push(value);
                }
                None if field.optional => {
                    out.push(Value::Absent(Rc::from(field.name.name.as_str())))
                }
                None => {
                    return self.fail(
                        Diagnostic::error(
                            codes::E0107,
                            span,
                            format!("`{name}` needs a value for `{}`", field.name.name),
                        )
                        .label(field.span, "declared here"),
                    );
                }
            }
        }
        Ok(out)
    }

    /// Arguments in the order of the parameters `names`.
    pub fn place(
        &mut self,
        function: &str,
        names: &[&str],
        args: Vec<Argument<'a>>,
        span: Span,
    ) -> Eval<Vec<Option<Argument<'a>>>> {
        let mut placed: Vec<Option<Argument<'a>>> = names.iter().map(|_| None).collect();
        let given = args.len();
        let mut named = false;
        for (i, arg) in args.into_iter().enumerate() {
            let slot = match arg.name {
                Some(name) => {
                    named = true;
                    match names.iter().position(|n| *n == name.name) {
                        Some(slot) => slot,
                        None => {
                            let mut diagnostic = Diagnostic::error(
                                codes::E0107,
                                name.span,
                                format!("`{function}` has no parameter `{}`", name.name),
                            );
                            if !names.is_empty() {
                                diagnostic = diagnostic.note(format!("it has {}", list(names)));
                            }
                            return self.fail(diagnostic);
                        }
                    }
                }
                None if named => {
                    return self.error(
                        codes::E0107,
                        arg.span,
                        "an argument by place stands behind one by name",
                    );
                }
                None => i,
            };
            match placed.get_mut(slot) {
                Some(place @ None) => *place = Some(arg),
                Some(_) => {
                    return self.error(
                        codes::E0107,
                        arg.span,
                        format!("`{}` is given twice", names[slot]),
                    );
                }
                None => {
                    return self.error(
                        codes::E0107,
                        span,
                        format!(
                            "`{function}` takes {}, and {given} are given",
                            count(names.len(), "argument")
                        ),
                    );
                }
            }
        }
        Ok(placed)
    }

    /// Inlines a function.
    fn call_fn(
        &mut self,
        function: FnValue<'a>,
        receiver: Option<Argument<'a>>,
        args: Vec<Argument<'a>>,
        span: Span,
    ) -> Eval<Value<'a>> {
        let item = function.item;
        let name = &item.name.name;
        let takes_self = item.params.first().is_some_and(|p| p.name.name == "self");
        let mut args = args;
        let of_variant = function.variant.is_some();
        match receiver {
            Some(receiver) if !of_variant || takes_self => args.insert(0, receiver),
            None if of_variant && takes_self => {
                // `V::f(…)`: a variant without fields needs no value.
                let ty = function.variant.clone().expect("it is of a variant");
                if !ty.item.fields.is_empty() && args.len() < item.params.len() {
                    return self.fail(
                        Diagnostic::error(
                            codes::E0107,
                            span,
                            format!("`{name}` of `{ty}` is called on a value"),
                        )
                        .help(format!("write `value.{name}(…)`")),
                    );
                }
                if args.len() < item.params.len() {
                    let value = Value::Variant(Rc::new(VariantValue {
                        ty,
                        fields: Vec::new(),
                    }));
                    args.insert(
                        0,
                        Argument {
                            name: None,
                            value,
                            span,
                        },
                    );
                }
            }
            _ => {}
        }
        let key = (
            std::ptr::from_ref(item),
            function
                .variant
                .as_ref()
                .map_or(String::new(), |v| v.to_string()),
        );
        if self
            .frames
            .iter()
            .any(|f| f.function.as_ref() == Some(&key))
        {
            return self.fail(
                Diagnostic::error(codes::E0112, span, format!("`{name}` calls itself"))
                    .label(item.name.span, "defined here")
                    .note("functions are inlined, so they cannot recurse")
                    .help("write a loop"),
            );
        }
        let names: Vec<&str> = item.params.iter().map(|p| p.name.name.as_str()).collect();
        let placed = self.place(name, &names, args, span)?;

        for (param, arg) in item.params.iter().zip(&placed) {
            if arg.is_none() && param.default.is_none() && !param.optional {
                let title = format!("`{name}` needs an argument for `{}`", param.name.name);
                return self.fail(
                    Diagnostic::error(codes::E0107, span, title).label(param.span, "declared here"),
                );
            }
        }

        let mut frame = Frame::new(function.module);
        frame.function = Some(key);
        self.frames.push(frame);
        self.calls.push((span, name.clone()));
        let tail = std::mem::replace(&mut self.tail, Tail::Nothing);
        let loops = std::mem::take(&mut self.loops);
        let outer = self.returned.take();
        let result = self.nested(span, |this| this.call_body(&function, placed, span));
        self.returned = outer;
        self.tail = tail;
        self.loops = loops;
        self.calls.pop();
        self.frames.pop();
        result
    }

    /// The body of a function, in its frame.
    fn call_body(
        &mut self,
        function: &FnValue<'a>,
        args: Vec<Option<Argument<'a>>>,
        span: Span,
    ) -> Eval<Value<'a>> {
        let item = function.item;
        if let Some(variant) = &function.variant {
            for (cparam, value) in variant.item.cparams.iter().zip(&variant.args) {
                self.bind(&cparam.name, value.clone(), false);
            }
        }
        self.bind_cargs(&item.name.name, &item.cparams, &function.cargs, span)?;
        let mut values = Vec::new();
        for (param, arg) in item.params.iter().zip(args) {
            let (value, at) = match (arg, &param.default) {
                (Some(arg), _) => (arg.value, arg.span),
                (None, Some(default)) => (self.expr(default)?, default.span),
                (None, None) if param.optional => {
                    (Value::Absent(Rc::from(param.name.name.as_str())), span)
                }
                (None, None) => (Value::Error, span),
            };
            values.push((param, value, at));
        }
        // Annotations bind the names that stand in them, then the values are checked against them.
        for (param, value, at) in &values {
            if let Some(ty) = &param.ty {
                self.infer(ty, value, *at)?;
            }
        }
        self.finish_cparams(&item.name.name, &item.cparams, span)?;
        for (param, value, at) in values {
            let value = match (&param.ty, &value) {
                (Some(_), Value::Absent(_)) | (None, _) => value,
                (Some(ty), _) => self.parameter(value, ty, at)?,
            };
            self.bind(&param.name, value, false);
        }
        let result = match &item.body {
            ast::FnBody::Block(block) => self.function_block(block)?,
            ast::FnBody::Expr(value) => self.expr(value)?,
            ast::FnBody::None => {
                return self.fail(
                    Diagnostic::error(
                        codes::E0114,
                        span,
                        format!("`{}` has no body", item.name.name),
                    )
                    .label(item.span, "declared here, for variants to fill in"),
                );
            }
        };
        match &item.ret {
            Some(ret) => self.annotated(result, Some(ret), item.name.span),
            None => Ok(result),
        }
    }

    /// A value as the annotation of a parameter wants it.
    pub fn parameter(
        &mut self,
        value: Value<'a>,
        ty: &'a ast::Type,
        span: Span,
    ) -> Eval<Value<'a>> {
        match &ty.kind {
            ast::TypeKind::View {
                mode, elem, dims, ..
            } => {
                let Value::View(view) = &value else {
                    return self.annotated(value, Some(ty), span);
                };
                let elem = self.elem_type(elem)?;
                if view.elem != elem || view.extents.len() != dims.len() {
                    let found = format!(
                        "`{}` is a view of `{}` with {}",
                        view.name,
                        view.elem,
                        count(view.extents.len(), "dimension")
                    );
                    return self.fail(Diagnostic::error(codes::E0102, span, found).label(
                        ty.span,
                        format!(
                            "a view of `{elem}` with {} is wanted",
                            count(dims.len(), "dimension")
                        ),
                    ));
                }
                let writes = !matches!(mode, ast::ViewMode::Read);
                if writes && view.access == tesserine_set::Access::Read {
                    let name = view.name.clone();
                    return self.fail(
                        Diagnostic::error(codes::E0117, span, format!("`{name}` is read-only"))
                            .label(ty.span, "stored to through this"),
                    );
                }
                Ok(value)
            }
            _ => self.annotated(value, Some(ty), span),
        }
    }

    /// Binds names that stand bare in an annotation and mean nothing yet to what the argument has there.
    fn infer(&mut self, ty: &'a ast::Type, value: &Value<'a>, span: Span) -> Eval<()> {
        match &ty.kind {
            ast::TypeKind::Tile { elem, dims } => {
                let Some(Shape::Tile(t, shape)) = self.shape_of(value) else {
                    return Ok(());
                };
                self.infer_name(elem.as_ident(), Value::DType(t));
                if dims.len() == shape.len() {
                    for (dim, extent) in dims.iter().zip(shape) {
                        self.infer_name(bare(&dim.expr), Value::Int(extent.into()));
                    }
                }
                Ok(())
            }
            ast::TypeKind::View { elem, dims, .. } => {
                let Value::View(view) = value else {
                    return Ok(());
                };
                let view = view.clone();
                self.infer_name(elem.as_ident(), Value::DType(view.elem));
                if dims.len() == view.extents.len() {
                    for (dim, extent) in dims.iter().zip(&view.extents) {
                        if let Some(name) = bare(&dim.expr)
                            && self.is_open(name)
                        {
                            let extent = self.extent_value(extent, span)?;
                            self.infer_name(Some(name), extent);
                        }
                    }
                }
                Ok(())
            }
            ast::TypeKind::Path { path, .. } => {
                if let Some(name) = path.as_ident()
                    && self.is_open(name)
                {
                    match value {
                        Value::Variant(v) => self
                            .infer_name(Some(name), Value::Type(TypeValue::Variant(v.ty.clone()))),
                        Value::Run(id) => {
                            if let Type::Scalar(t) = *self.body.ty(*id) {
                                self.infer_name(Some(name), Value::DType(t));
                            }
                        }
                        _ => {}
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether a name of an annotation is free: bound to nothing here.
    pub fn is_open(&self, name: &ast::Ident) -> bool {
        self.local(&name.name).is_none()
            && self.program.lookup(self.module(), &name.name).is_none()
            && name.name.parse::<tesserine_set::DType>().is_err()
            && name.name != "int"
    }

    fn infer_name(&mut self, name: Option<&'a ast::Ident>, value: Value<'a>) {
        if let Some(name) = name
            && self.is_open(name)
        {
            self.bind(name, value, false);
        }
    }

    // Compile-time parameters.

    /// Evaluates `<…>`.
    pub fn cargs(&mut self, cargs: &'a [ast::CArg]) -> Eval<Vec<CArgument<'a>>> {
        let mut out = Vec::new();
        for carg in cargs {
            let value = self.cvalue(&carg.value)?;
            out.push((carg.name.as_ref(), value, carg.span));
        }
        Ok(out)
    }

    /// Evaluates a compile-time argument.
    pub fn cvalue(&mut self, value: &'a ast::CValue) -> Eval<Value<'a>> {
        match value {
            ast::CValue::Expr(expr) => {
                let value = self.expr(expr)?;
                match value {
                    Value::Run(_) => {
                        let text = self.quote(expr.span);
                        self.error(
                            codes::E0301,
                            expr.span,
                            format!("a compile-time argument must be a constant, and {text} is known at run time only"),
                        )
                    }
                    value => self.complete(value, expr.span),
                }
            }
            ast::CValue::Applied { path, cargs, span } => {
                let value = self.path(path)?;
                let cargs = self.cargs(cargs)?;
                match value {
                    Value::Type(TypeValue::VariantItem(module, item)) => {
                        let ty = self.variant_type(module, item, cargs, *span)?;
                        Ok(Value::Type(TypeValue::Variant(ty)))
                    }
                    Value::Fn(function) => Ok(Value::Fn(FnValue { cargs, ..function })),
                    other => {
                        let what = self.describe(&other);
                        self.error(
                            codes::E0304,
                            *span,
                            format!("{what} takes no compile-time arguments"),
                        )
                    }
                }
            }
        }
    }

    /// A variant named without its arguments, if all have defaults.
    fn complete(&mut self, value: Value<'a>, span: Span) -> Eval<Value<'a>> {
        match value {
            Value::Type(TypeValue::VariantItem(module, item)) => {
                let ty = self.variant_type(module, item, Vec::new(), span)?;
                Ok(Value::Type(TypeValue::Variant(ty)))
            }
            value => Ok(value),
        }
    }

    /// `f::<A, B>`.
    pub fn applied(
        &mut self,
        path: &'a ast::Path,
        cargs: &'a [ast::CArg],
        span: Span,
    ) -> Eval<Value<'a>> {
        let value = self.path(path)?;
        let cargs = self.cargs(cargs)?;
        match value {
            Value::Fn(function) => Ok(Value::Fn(FnValue { cargs, ..function })),
            Value::Type(TypeValue::VariantItem(module, item)) => {
                let ty = self.variant_type(module, item, cargs, span)?;
                Ok(Value::Type(TypeValue::Variant(ty)))
            }
            other => {
                let what = self.describe(&other);
                self.error(
                    codes::E0304,
                    span,
                    format!("{what} takes no compile-time arguments"),
                )
            }
        }
    }

    /// A variant with its compile-time arguments.
    pub fn variant_type(
        &mut self,
        module: super::Module,
        item: &'a ast::Variant,
        cargs: Vec<CArgument<'a>>,
        span: Span,
    ) -> Eval<Rc<VariantType<'a>>> {
        self.frames.push(Frame::new(module));
        let result = self
            .bind_cargs(&item.name.name, &item.cparams, &cargs, span)
            .and_then(|()| self.finish_cparams(&item.name.name, &item.cparams, span))
            .map(|()| {
                let mut args = Vec::new();
                for cparam in &item.cparams {
                    args.push(
                        self.local(&cparam.name.name)
                            .map_or(Value::Error, |b| b.value.clone()),
                    );
                }
                args
            });
        self.frames.pop();
        Ok(Rc::new(VariantType {
            module,
            item,
            args: result?,
        }))
    }

    /// Binds the compile-time arguments that were written. What they are for is checked.
    pub fn bind_cargs(
        &mut self,
        owner: &str,
        cparams: &'a [ast::CParam],
        cargs: &[CArgument<'a>],
        span: Span,
    ) -> Eval<()> {
        for (i, (name, value, at)) in cargs.iter().enumerate() {
            let at = if at.is_some() { *at } else { span };
            let cparam = match name {
                Some(name) => cparams.iter().find(|p| p.name.name == name.name),
                None => cparams.get(i),
            };
            let Some(cparam) = cparam else {
                let names: Vec<&str> = cparams.iter().map(|p| p.name.name.as_str()).collect();
                let title = match name {
                    Some(name) => {
                        format!("`{owner}` has no compile-time parameter `{}`", name.name)
                    }
                    None => format!(
                        "`{owner}` has {}, and {} are given",
                        count(names.len(), "compile-time parameter"),
                        cargs.len()
                    ),
                };
                let mut diagnostic = Diagnostic::error(codes::E0304, at, title);
                if !names.is_empty() {
                    diagnostic = diagnostic.note(format!("it has {}", list(&names)));
                }
                return self.fail(diagnostic);
            };
            if self
                .frame()
                .scopes
                .last()
                .is_some_and(|s| s.contains_key(&cparam.name.name))
            {
                return self.error(
                    codes::E0304,
                    at,
                    format!("`{}` is given twice", cparam.name.name),
                );
            }
            let value = self.check_cparam(owner, cparam, value.clone(), at)?;
            self.bind(&cparam.name, value, false);
        }
        Ok(())
    }

    /// Gives what is unbound its default, and says what has none.
    pub fn finish_cparams(
        &mut self,
        owner: &str,
        cparams: &'a [ast::CParam],
        span: Span,
    ) -> Eval<()> {
        for cparam in cparams {
            let bound = self
                .frame()
                .scopes
                .last()
                .and_then(|s| s.get(&cparam.name.name))
                .map(|b| b.value.clone());
            if let Some(value) = bound {
                // What was inferred has not been checked yet.
                self.check_cparam(owner, cparam, value, span)?;
                continue;
            }
            let Some(default) = &cparam.default else {
                return self.fail(
                    Diagnostic::error(
                        codes::E0304,
                        span,
                        format!(
                            "`{owner}` needs a value for its compile-time parameter `{}`",
                            cparam.name.name
                        ),
                    )
                    .label(cparam.span, "it has no default"),
                );
            };
            let value = self.cvalue(default)?;
            let value = self.check_cparam(owner, cparam, value, cparam.span)?;
            self.bind(&cparam.name, value, false);
        }
        Ok(())
    }

    /// Whether `value` is one that `cparam` takes.
    pub fn check_cparam(
        &mut self,
        owner: &str,
        cparam: &'a ast::CParam,
        value: Value<'a>,
        span: Span,
    ) -> Eval<Value<'a>> {
        let value = self.complete(value, span)?;
        let wanted = match &cparam.kind {
            ast::CKind::Fn(_) => match &value {
                Value::Fn(_) | Value::Builtin(_) => None,
                _ => Some("a function".to_owned()),
            },
            ast::CKind::Path(path) => match (path.as_ident().map(|i| i.name.as_str()), &value) {
                (Some("dtype"), Value::DType(_))
                | (Some("int"), Value::Int(_))
                | (Some("bool"), Value::Bool(_)) => None,
                // A dimension of a view's annotation: known at run time only, and so it stays.
                (Some("int"), Value::Run(_)) => None,
                (Some("dtype"), _) => Some("an element type".into()),
                (Some("int"), _) => Some("a constant integer".into()),
                (Some("bool"), _) => Some("`true` or `false`".into()),
                _ => match self.path(path)? {
                    Value::Type(TypeValue::Interface(interface)) => match &value {
                        Value::Type(TypeValue::Variant(v))
                            if self
                                .interface_of(v)
                                .is_some_and(|(_, i)| std::ptr::eq(i, interface)) =>
                        {
                            None
                        }
                        _ => Some(format!("a variant of `{}`", interface.name.name)),
                    },
                    Value::DType(t) => match (&value, t) {
                        (Value::Float(..), t) if t.is_float() => None,
                        (Value::Int(_), _) => None,
                        _ => Some(format!("a constant of `{t}`")),
                    },
                    _ => {
                        return self.error(
                            codes::E0108,
                            path.span,
                            "a compile-time parameter is a `dtype`, an `int`, a `bool`, a `fn`, or names an interface",
                        );
                    }
                },
            },
        };
        if let Some(wanted) = wanted {
            let what = self.describe(&value);
            let title = format!(
                "`{}` of `{owner}` is {wanted}, and {what} is given",
                cparam.name.name
            );
            let mut diagnostic = Diagnostic::error(codes::E0304, span, title);
            if span != cparam.span {
                diagnostic = diagnostic.label(cparam.span, "declared here");
            }
            return self.fail(diagnostic);
        }
        if let Some(allowed) = &cparam.allowed {
            let mut shown = Vec::new();
            for expr in allowed {
                let one = self.expr(expr)?;
                if one.same(&value) {
                    return Ok(value);
                }
                shown.push(one.to_string());
            }
            let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
            return self.fail(
                Diagnostic::error(
                    codes::E0304,
                    span,
                    format!(
                        "`{}` of `{owner}` is one of {}, and `{value}` is none of them",
                        cparam.name.name,
                        list(&shown)
                    ),
                )
                .label(cparam.span, "declared here"),
            );
        }
        Ok(value)
    }
}

/// The name that an expression is, if it is only that.
pub(crate) fn bare(expr: &ast::Expr) -> Option<&ast::Ident> {
    match &expr.kind {
        ExprKind::Path(path) => path.as_ident(),
        ExprKind::Paren(inner) => bare(inner),
        _ => None,
    }
}

/// "`a`, `b` and `c`".
pub(crate) fn list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => format!("`{one}`"),
        [all @ .., last] => {
            let all: Vec<String> = all.iter().map(|n| format!("`{n}`")).collect();
            format!("{} and `{last}`", all.join(", "))
        }
    }
}
