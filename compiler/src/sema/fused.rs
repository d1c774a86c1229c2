//! `call`: another kernel's body at indices of the caller's choosing, as if it stood there.
//!
//! The caller's values are bound to the parameters as a launch would bind them: names of dimensions follow from the views,
//! and what else the extents say must hold, by proof or at each launch.

use std::rc::Rc;

use tesserine_set::{Access, DType, Fact, Formula, FormulaOp, ParamKind, Term};

use super::{
    Eval, Told,
    call::{Argument, CArgument, bare},
    eval::{Evaluator, Frame, Tail},
    instance::{CArgs, Maker, implies, sources},
    modules::{Def, Module},
    value::{Origin, Symbol, TypeValue, Value, VariantType, VariantValue, ViewValue},
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::tile::{BinaryOp, CompareOp},
    span::Span,
    syntax::ast::{self, ExprKind},
};

/// A view that is passed, and how the callee declares it.
struct Passed<'a> {
    view: Rc<ViewValue>,
    ty: &'a ast::Type,
    /// The variant whose field it is.
    variant: Option<Rc<VariantType<'a>>>,
    span: Span,
}

/// What a `call` statement says.
pub(super) struct Call<'a> {
    pub kernel: &'a ast::Path,
    pub cargs: &'a [ast::CArg],
    pub args: &'a [ast::Arg],
    pub at: &'a [ast::Expr],
    pub scatter: bool,
}

impl<'a> Evaluator<'a> {
    /// `call k<…>(…) at (…);`
    pub(super) fn call_kernel(&mut self, call: Call<'a>, span: Span) -> Eval<()> {
        let (owner, kernel) = self.kernel_named(call.kernel)?;
        let name = &kernel.name.name;
        if self.fused.iter().any(|k| std::ptr::eq(*k, kernel)) {
            return self.fail(
                Diagnostic::error(codes::E0112, span, format!("`{name}` calls itself"))
                    .label(kernel.name.span, "defined here")
                    .note(
                        "a called kernel's body stands in place of the call, so it cannot recurse",
                    ),
            );
        }
        let bodies = sources(self.program, owner, kernel, self.target);
        let cargs = self.cargs(call.cargs)?;
        let args = self.arguments_of(call.args)?;
        let mut at = Vec::new();
        for index in call.at {
            let value = self.expr(index)?;
            self.int_scalar((&value, index.span), "an index of the grid")?;
            at.push((value, index.span));
        }
        self.frames.push(Frame::new(owner));
        self.calls.push((span, name.clone()));
        self.fused.push(kernel);
        let tail = std::mem::replace(&mut self.tail, Tail::Nothing);
        let loops = std::mem::take(&mut self.loops);
        let returned = self.returned.take();
        let inside = self.roles.inside.take();
        let scatter = self.scatter;
        self.scatter |= call.scatter;
        let result = self.nested(span, |this| {
            this.bind_call(owner, kernel, (cargs, args), span)?;
            let Some((module, source)) = this.serving(&bodies, kernel)? else {
                let title = format!("`{name}` has no body for {}", this.target.name());
                return this.error(codes::E0605, call.kernel.span, title);
            };
            this.frame().module = module;
            this.indices(name, source, &at, span)?;
            this.fused_body(source, &at)
        });
        self.scatter = scatter;
        self.roles.inside = inside;
        self.returned = returned;
        self.loops = loops;
        self.tail = tail;
        self.fused.pop();
        self.calls.pop();
        self.frames.pop();
        result
    }

    /// The first body whose facts are known to hold here, with the module where it stands.
    fn serving(
        &mut self,
        bodies: &[(Module, &'a ast::Kernel)],
        kernel: &'a ast::Kernel,
    ) -> Eval<Option<(Module, &'a ast::Kernel)>> {
        let owner = self.module();
        for &(module, body) in bodies {
            if std::ptr::eq(body, kernel) || body.wheres.is_empty() {
                return Ok(Some((module, body)));
            }
            self.frame().module = module;
            let told = self.diagnostics.clone();
            // What no launch can evaluate is not known.
            let facts: Eval<Vec<Fact>> = self.attempt(|this| {
                let mut facts = Vec::new();
                for fact in &body.wheres {
                    this.facts(fact, &mut facts)?;
                }
                Ok(facts)
            });
            self.diagnostics = told;
            self.frame().module = owner;
            if facts.is_ok_and(|facts| facts.iter().all(|fact| self.is_known(fact))) {
                return Ok(Some((module, body)));
            }
        }
        Ok(None)
    }

    fn is_known(&self, fact: &Fact) -> bool {
        let stated = self.required.iter().chain(&self.assumed);
        let mut stated = stated.map(|known| implies(known, fact));
        let declared = match fact {
            Fact::Aligned { param, bytes } => match &self.signature.params[*param as usize].kind {
                ParamKind::View(view) => view.facts.align.is_some_and(|a| a % bytes == 0),
                ParamKind::Scalar { .. } => false,
            },
            Fact::Holds(_) => false,
        };
        declared || stated.any(|is| is)
    }

    /// As many indices as the body's grid has axes.
    fn indices(
        &mut self,
        name: &str,
        source: &'a ast::Kernel,
        at: &[(Value<'a>, Span)],
        span: Span,
    ) -> Eval<()> {
        let axes = &source.grid.axes;
        if at.len() != axes.len() {
            let names: Vec<&str> = axes.iter().map(|a| a.name.name.as_str()).collect();
            return self.fail(
                Diagnostic::error(
                    codes::E0107,
                    span,
                    format!(
                        "the grid of `{name}` has {}, and {} given",
                        match axes.len() {
                            1 => "1 axis".to_owned(),
                            n => format!("{n} axes"),
                        },
                        match at.len() {
                            1 => "1 index is".to_owned(),
                            n => format!("{n} indices are"),
                        }
                    ),
                )
                .note(format!(
                    "`at` gives an index for each: ({})",
                    names.join(", ")
                )),
            );
        }
        Ok(())
    }

    fn kernel_named(&mut self, path: &'a ast::Path) -> Eval<(Module, &'a ast::Kernel)> {
        let program = self.program;
        let found = match &path.segments[..] {
            [name] => program.lookup(self.module(), &name.name),
            [module, name] => match program.lookup(self.module(), &module.name) {
                Some(Def::Module(module)) => program.lookup(module, &name.name),
                _ => None,
            },
            _ => None,
        };
        if let Some(Def::Item(owner, index)) = found
            && let ast::ItemKind::Kernel(kernel) = &program.item(owner, index).kind
        {
            return Ok((owner, kernel));
        }
        let text = self.quote(path.span);
        self.error(
            codes::E0101,
            path.span,
            format!("{text} is no kernel that is known here"),
        )
    }

    /// Binds a called kernel's compile-time parameters, dimensions and parameters, in its frame.
    fn bind_call(
        &mut self,
        owner: Module,
        kernel: &'a ast::Kernel,
        (mut cargs, args): (Vec<CArgument<'a>>, Vec<Argument<'a>>),
        span: Span,
    ) -> Eval<()> {
        let Some(signature) = &kernel.signature else {
            return Err(Told);
        };
        let name = &kernel.name.name;
        let names: Vec<&str> = signature.params.iter().map(|p| &*p.name.name).collect();
        let placed = self.place(name, &names, args, span)?;
        // A variant says by its value which it is.
        for (param, arg) in signature.params.iter().zip(&placed) {
            if let Some(ast::TypeKind::Path { path, .. }) = param.ty.as_ref().map(|t| &t.kind)
                && let Some(arg) = arg
                && let Value::Variant(variant) = &arg.value
                && let Some(place) = signature
                    .cparams
                    .iter()
                    .position(|c| path.as_ident().is_some_and(|n| n.name == c.name.name))
            {
                let cparam = &signature.cparams[place].name;
                let given = cargs.iter().enumerate().any(|(i, (n, ..))| match n {
                    Some(n) => n.name == cparam.name,
                    None => i == place,
                });
                if !given {
                    let ty = Value::Type(TypeValue::Variant(variant.ty.clone()));
                    cargs.push((Some(cparam), ty, arg.span));
                }
            }
        }
        Maker::new(self, kernel, owner).bind_cparams(CArgs::Values(&cargs), signature)?;

        let mut values: Vec<(&'a ast::Param, Value<'a>, Span)> = Vec::new();
        for (param, arg) in signature.params.iter().zip(placed) {
            let (value, at) = match arg {
                Some(arg) => (arg.value, arg.span),
                None => (self.left_out(name, param, span)?, span),
            };
            values.push((param, value, at));
        }
        // Scalars may stand in extents.
        let mut passed: Vec<Passed<'a>> = Vec::new();
        for (param, value, at) in values {
            let Some(ty) = &param.ty else {
                return Err(Told);
            };
            let value = match value {
                Value::Absent(_) if param.optional => value,
                Value::Absent(name) => {
                    return self.error(
                        codes::E0116,
                        at,
                        format!(
                            "`{name}` may be missing, and `{}` takes a value",
                            param.name.name
                        ),
                    );
                }
                value => self.argument(value, ty, None, at, &mut passed)?,
            };
            self.bind(&param.name, value, false);
        }
        for pass in &passed {
            self.bare_extents(pass)?;
        }
        for pass in &passed {
            self.solved_extents(pass)?;
        }
        for pass in &passed {
            self.check_extents(pass)?;
            self.check_facts(pass)?;
        }
        for fact in &kernel.wheres {
            let facts = self.state(fact)?;
            self.assume_facts(facts);
        }
        Ok(())
    }

    fn assume_facts(&mut self, facts: Vec<Fact>) {
        for fact in facts {
            if !self.assumed.contains(&fact) {
                self.assumed.push(fact);
            }
        }
    }

    /// The value of a parameter for which nothing is given.
    fn left_out(&mut self, name: &str, param: &'a ast::Param, span: Span) -> Eval<Value<'a>> {
        if let Some(default) = &param.default {
            return self.expr(default);
        }
        if param.optional {
            return Ok(Value::Absent(Rc::from(param.name.name.as_str())));
        }
        if let Some(ast::TypeKind::Path { path, .. }) = param.ty.as_ref().map(|t| &t.kind)
            && let Some(name) = path.as_ident()
            && let Some(Value::Type(TypeValue::Variant(ty))) =
                self.local(&name.name).map(|b| b.value.clone())
            && ty.item.fields.is_empty()
        {
            let fields = Vec::new();
            return Ok(Value::Variant(Rc::new(VariantValue { ty, fields })));
        }
        self.fail(
            Diagnostic::error(
                codes::E0107,
                span,
                format!("`{name}` needs an argument for `{}`", param.name.name),
            )
            .label(param.span, "declared here"),
        )
    }

    /// A value as a parameter takes it; views that it has are listed.
    fn argument(
        &mut self,
        value: Value<'a>,
        ty: &'a ast::Type,
        variant: Option<&Rc<VariantType<'a>>>,
        span: Span,
        passed: &mut Vec<Passed<'a>>,
    ) -> Eval<Value<'a>> {
        match (&ty.kind, &value) {
            (ast::TypeKind::View { .. }, Value::View(view)) => {
                passed.push(Passed {
                    view: view.clone(),
                    ty,
                    variant: variant.cloned(),
                    span,
                });
                self.in_variant_scope(variant, |this| this.parameter(value.clone(), ty, span))
            }
            (ast::TypeKind::Path { .. }, Value::Variant(given)) => {
                let value = match variant {
                    None => self.annotated(value.clone(), Some(ty), span)?,
                    Some(_) => value.clone(),
                };
                for (field, inner) in given.ty.item.fields.iter().zip(&given.fields) {
                    if let Some(ty) = &field.ty
                        && !matches!(inner, Value::Absent(_))
                    {
                        self.argument(inner.clone(), ty, Some(&given.ty), span, passed)?;
                    }
                }
                Ok(value)
            }
            (ast::TypeKind::Path { path, .. }, _) => self.in_variant_scope(variant, |this| {
                let int = path.as_ident().is_some_and(|n| n.name == "int");
                let elem = match int && this.local("int").is_none() {
                    true => DType::I64,
                    false => this.value_type(path)?,
                };
                // Scalars are wide in a body, whatever a launch passes.
                if elem.is_int() {
                    this.int_scalar((&value, span), "this argument")?;
                    return Ok(value);
                }
                let wide = match elem {
                    t if t.is_float() && t != DType::F64 => DType::F32,
                    t => t,
                };
                this.scalar_as(value, wide, span)
            }),
            _ => self.annotated(value, Some(ty), span),
        }
    }

    /// Runs `f` where a variant's compile-time parameters are in scope beside what is.
    fn in_variant_scope<T>(
        &mut self,
        variant: Option<&Rc<VariantType<'a>>>,
        f: impl FnOnce(&mut Self) -> Eval<T>,
    ) -> Eval<T> {
        let Some(variant) = variant else {
            return f(self);
        };
        let outer = std::mem::replace(&mut self.frame().module, variant.module);
        let result = self.scoped(|this| {
            for (cparam, value) in variant.item.cparams.iter().zip(&variant.args) {
                this.bind(&cparam.name, value.clone(), false);
            }
            f(this)
        });
        self.frame().module = outer;
        result
    }

    /// The extents of a view that is passed, as declared and as they are.
    fn extents(&mut self, pass: &Passed<'a>) -> Eval<Vec<(&'a ast::Expr, Value<'a>)>> {
        let ast::TypeKind::View { dims, .. } = &pass.ty.kind else {
            return Ok(Vec::new());
        };
        let mut out = Vec::new();
        for (dim, extent) in dims.iter().zip(&pass.view.extents) {
            out.push((&dim.expr, self.extent_value(extent, pass.span)?));
        }
        Ok(out)
    }

    /// Whether a name in an extent is bound to nothing yet.
    fn is_free(&mut self, name: &ast::Ident, pass: &Passed<'a>) -> bool {
        let known = pass.variant.as_ref().is_some_and(|v| {
            v.item.cparams.iter().any(|c| c.name.name == name.name)
                || self.program.lookup(v.module, &name.name).is_some()
        });
        !known && self.is_open(name)
    }

    fn bare_extents(&mut self, pass: &Passed<'a>) -> Eval<()> {
        for (expr, extent) in self.extents(pass)? {
            if let Some(name) = bare(expr)
                && self.is_free(name, pass)
            {
                self.bind(name, extent, false);
            }
        }
        Ok(())
    }

    /// `name + c`, `name - c` and `name * c`, of names that stand bare nowhere.
    fn solved_extents(&mut self, pass: &Passed<'a>) -> Eval<()> {
        for (expr, extent) in self.extents(pass)? {
            let ExprKind::Binary { op, left, right } = &expr.kind else {
                continue;
            };
            let (name, other) = match (bare(left), bare(right)) {
                (Some(name), _) if self.is_free(name, pass) => (name, right),
                (_, Some(name)) if self.is_free(name, pass) => (name, left),
                _ => continue,
            };
            let undo = match op {
                ast::BinaryOp::Add => BinaryOp::Sub,
                ast::BinaryOp::Sub if std::ptr::eq(other, right) => BinaryOp::Add,
                ast::BinaryOp::Mul => BinaryOp::Div,
                _ => continue,
            };
            let variant = pass.variant.clone();
            let c = self.in_variant_scope(variant.as_ref(), |this| this.expr(other))?;
            let at = expr.span;
            let value = self.arithmetic(undo, (&extent, at), (&c, at), at)?;
            self.bind(name, value, false);
        }
        Ok(())
    }

    fn check_extents(&mut self, pass: &Passed<'a>) -> Eval<()> {
        for (i, (expr, extent)) in self.extents(pass)?.into_iter().enumerate() {
            let variant = pass.variant.clone();
            let wanted = self.in_variant_scope(variant.as_ref(), |this| this.expr(expr))?;
            let span = pass.span;
            let formulas = (self.host_formula(&wanted), self.host_formula(&extent));
            match formulas {
                (Some(a), Some(b)) if a == b => {}
                (Some(a), Some(b)) => {
                    if let (Some(a), Some(b)) = (a.as_int(), b.as_int()) {
                        let text = self.program.sources.text(expr.span).to_owned();
                        let title = format!(
                            "dimension {i} of `{}` is {b}, and `{text}` is {a} here",
                            pass.view.name
                        );
                        return self.fail(
                            Diagnostic::error(codes::E0202, span, title)
                                .label(expr.span, "wanted so"),
                        );
                    }
                    let equal = Formula::binary(FormulaOp::Eq, b, a);
                    self.assume_facts(vec![Fact::Holds(equal)]);
                }
                _ => {
                    let equal =
                        self.compare(CompareOp::Eq, (&wanted, span), (&extent, span), span)?;
                    let id = self.materialise(&equal, span)?;
                    let text = self.program.sources.text(expr.span);
                    let message =
                        format!("dimension {i} of `{}` is to be `{text}`", pass.view.name);
                    self.builder(span).assert(id, message);
                }
            }
        }
        Ok(())
    }

    /// What a launch would compute a scalar from, if it can.
    fn host_formula(&self, value: &Value<'a>) -> Option<Formula> {
        match value {
            Value::Int(v) => i64::try_from(*v).ok().map(Formula::int),
            Value::Symbol(Symbol::Dim(i)) => Some(Formula::dim(*i)),
            Value::Symbol(Symbol::Param(i)) => match &self.signature.params[*i as usize].kind {
                ParamKind::Scalar { dtype, .. } if !dtype.is_float() => {
                    Some(Formula(vec![Term::Scalar(*i)]))
                }
                _ => None,
            },
            Value::Run(id) => self.formula_of(*id),
            _ => None,
        }
    }

    /// What the callee counts on, the caller's view must promise.
    fn check_facts(&mut self, pass: &Passed<'a>) -> Eval<()> {
        let ast::TypeKind::View { mode, facts, .. } = &pass.ty.kind else {
            return Ok(());
        };
        if matches!(mode, ast::ViewMode::Out) && pass.view.access == Access::Read {
            return Err(Told);
        }
        let param = pass.view.param();
        let known = match &self.signature.params[param as usize].kind {
            ParamKind::View(view) => view.facts,
            ParamKind::Scalar { .. } => return Ok(()),
        };
        for fact in facts {
            let word = match fact {
                ast::ViewFact::Sorted(_) if !known.sorted => "sorted",
                ast::ViewFact::Distinct(_) if !known.distinct => "distinct",
                ast::ViewFact::Align(bytes, _) => {
                    let bytes = u32::try_from(*bytes).unwrap_or(u32::MAX);
                    match pass.view.origin {
                        Origin::Param(_) if known.align.is_some_and(|a| a % bytes == 0) => {}
                        Origin::Param(_) => {
                            self.assume_facts(vec![Fact::Aligned { param, bytes }]);
                        }
                        _ => {
                            let name = &pass.view.name;
                            let title = format!(
                                "what is called counts on this being aligned to {bytes} bytes, and where a part of `{name}` lies is \
                                 known at run time only"
                            );
                            let error = Diagnostic::error(codes::E0403, pass.span, title);
                            return self.fail(error.label(pass.ty.span, "declared so here"));
                        }
                    }
                    continue;
                }
                _ => continue,
            };
            let name = &pass.view.name;
            let title = format!("what is called counts on `{name}` being `{word}`");
            return self.fail(
                Diagnostic::error(codes::E0403, pass.span, title)
                    .label(pass.ty.span, "declared so here")
                    .help(format!("declare `{name}` so too: `view<…>[…] {word}`")),
            );
        }
        Ok(())
    }

    fn fused_body(&mut self, source: &'a ast::Kernel, at: &[(Value<'a>, Span)]) -> Eval<()> {
        let value = self.scoped(|this| {
            for (axis, (index, _)) in source.grid.axes.iter().zip(at) {
                this.bind(&axis.name, index.clone(), false);
            }
            this.kernel_body(source)
        })?;
        if matches!(value, Value::Unit) {
            return Ok(());
        }
        let what = self.describe(&value);
        self.error(
            codes::E0108,
            source.body.span,
            format!("this gives {what}, and a kernel has no value"),
        )
    }
}
