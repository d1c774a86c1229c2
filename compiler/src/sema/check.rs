//! Everything that is wrong with a module: the names of every item, used or not; that variants fit their interfaces and
//! schedules their kernels; and each kernel, instantiated for representative arguments and for each group of targets that
//! its schedules and bodies tell apart.

use super::{
    builtins::NAMES,
    eval::{Evaluator, find_interface, unknown_name},
    instance::{
        CArgs, SCHEDULE_KEYS, covers, find_kernel, is_general, make, unknown_key, with_stack,
    },
    modules::{Def, Module, Program, nearest},
    op::{as_kernel, make_op},
};
use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    span::Span,
    syntax::ast::{self, ExprKind, StmtKind},
    target::Target,
};

/// Combinations of compile-time arguments that one kernel is checked for.
const MAX_COMBINATIONS: usize = 16;

/// What integers without a value of their own are tried with.
const GUESSES: [u64; 3] = [64, 16, 256];

/// Where an op is checked: the first of these that has all its kernels.
const OP_TARGETS: [&str; 4] = ["sm_90a", "sm_80", "sm_100a", "sm_120a"];

/// Checks every item of `module`.
pub fn check(program: &Program, module: Module) -> Diagnostics {
    with_stack(|| {
        let mut all = Vec::new();
        let mut names = Names {
            program,
            module,
            scopes: Vec::new(),
            ended: Vec::new(),
            out: Vec::new(),
        };
        for item in &program.ast(module).items {
            names.item(item);
        }
        all.append(&mut names.out);
        structure(program, module, &mut all);
        for (index, item) in program.ast(module).items.iter().enumerate() {
            match &item.kind {
                ast::ItemKind::Const(constant) => {
                    let mut ev = Evaluator::new(program, Target::ALL[0], module);
                    let _ = ev.definition(Def::Item(module, index), &constant.name);
                    all.extend(ev.diagnostics);
                }
                ast::ItemKind::Kernel(kernel) if kernel.signature.is_some() => {
                    instances(program, module, kernel, &mut all);
                }
                ast::ItemKind::Op(op) => op_instances(program, module, op, &mut all),
                ast::ItemKind::Test(test) => {
                    if let Err(diagnostics) = crate::testing::walk(program, module, test) {
                        let told: Vec<Span> =
                            all.iter().map(|d: &Diagnostic| d.primary.0).collect();
                        all.extend(
                            diagnostics
                                .into_iter()
                                .filter(|d| !told.contains(&d.primary.0)),
                        );
                    }
                }
                _ => {}
            }
        }
        // One mistake shows in many instances: it is told once.
        let mut out = Diagnostics::default();
        let mut seen: Vec<(codes::Code, Span)> = Vec::new();
        for diagnostic in all {
            let key = (diagnostic.code, diagnostic.primary.0);
            if !seen.contains(&key) {
                seen.push(key);
                out.push(diagnostic);
            }
        }
        out
    })
}

// Kernels for representative arguments.

fn instances(program: &Program, module: Module, kernel: &ast::Kernel, out: &mut Vec<Diagnostic>) {
    let mut guessed = false;
    let mut first = match tried(program, module, kernel, GUESSES[0], &mut guessed) {
        Some(diagnostics) => diagnostics,
        None => return,
    };
    if guessed {
        // What is wrong whatever the integers are is wrong; what is wrong for some may be the guess.
        for guess in &GUESSES[1..] {
            let again = tried(program, module, kernel, *guess, &mut guessed).unwrap_or_default();
            first.retain(|d| {
                again
                    .iter()
                    .any(|e| e.code == d.code && e.primary.0 == d.primary.0)
            });
        }
    }
    out.append(&mut first);
}

/// An op for representative arguments, on a target that has all that it launches.
fn op_instances(program: &Program, module: Module, op: &ast::Op, out: &mut Vec<Diagnostic>) {
    let kernel = as_kernel(op);
    let mut guessed = false;
    let attempt = |guess: u64, guessed: &mut bool| {
        let combinations = combinations(program, module, &kernel, guess, guessed)?;
        let mut out = Vec::new();
        for cargs in &combinations {
            let mut first: Option<Diagnostics> = None;
            for target in OP_TARGETS.iter().filter_map(|t| Target::parse(t).ok()) {
                let cargs = CArgs::Written(module, cargs);
                let (_, diagnostics) = make_op(program, module, op, cargs, None, target);
                let absent = diagnostics.iter().any(|d| d.code == codes::E0605);
                first.get_or_insert(diagnostics.clone());
                if !absent {
                    first = Some(diagnostics);
                    break;
                }
            }
            let diagnostics = first.unwrap_or_default();
            let failed = diagnostics.has_errors();
            out.extend(diagnostics);
            if failed {
                break;
            }
        }
        Some(out)
    };
    let Some(mut first) = attempt(GUESSES[0], &mut guessed) else {
        return;
    };
    if guessed {
        for guess in &GUESSES[1..] {
            let again = attempt(*guess, &mut guessed).unwrap_or_default();
            first.retain(|d| {
                again
                    .iter()
                    .any(|e| e.code == d.code && e.primary.0 == d.primary.0)
            });
        }
    }
    out.append(&mut first);
}

/// What is wrong with a kernel for representative arguments, integers without a value of their own being `guess`.
fn tried(
    program: &Program,
    module: Module,
    kernel: &ast::Kernel,
    guess: u64,
    guessed: &mut bool,
) -> Option<Vec<Diagnostic>> {
    let combinations = combinations(program, module, kernel, guess, guessed)?;
    let mut out = Vec::new();
    for target in representative_targets(program, module, kernel) {
        for cargs in &combinations {
            let (_, diagnostics) = make(program, (module, module), kernel, cargs, target);
            let failed = diagnostics.has_errors();
            out.extend(diagnostics);
            if failed {
                break;
            }
        }
    }
    Some(out)
}

/// Representative compile-time arguments.
fn combinations(
    program: &Program,
    module: Module,
    kernel: &ast::Kernel,
    guess: u64,
    guessed: &mut bool,
) -> Option<Vec<Vec<ast::CArg>>> {
    let signature = kernel.signature.as_ref()?;
    let mut combinations: Vec<Vec<ast::CArg>> = vec![Vec::new()];
    for cparam in &signature.cparams {
        let values = representatives(program, module, kernel, cparam, guess, guessed)?;
        if values.is_empty() {
            continue;
        }
        combinations = combinations
            .iter()
            .flat_map(|before| {
                values.iter().map(|value| {
                    let mut all = before.clone();
                    all.push(ast::CArg {
                        name: Some(cparam.name.clone()),
                        value: value.clone(),
                        span: Span::NONE,
                    });
                    all
                })
            })
            .take(MAX_COMBINATIONS)
            .collect();
    }
    Some(combinations)
}

/// Values to try a compile-time parameter with. Empty: it has one of its own. `None`: nobody can say.
fn representatives(
    program: &Program,
    module: Module,
    kernel: &ast::Kernel,
    cparam: &ast::CParam,
    guess: u64,
    guessed: &mut bool,
) -> Option<Vec<ast::CValue>> {
    let is_dtype = matches!(&cparam.kind, ast::CKind::Path(p) if p.as_ident().is_some_and(|i| i.name == "dtype"));
    let scheduled = program.with_related(module).any(|m| {
        program.ast(m).items.iter().any(|item| match &item.kind {
            ast::ItemKind::Schedule(s) => {
                s.kernel
                    .segments
                    .last()
                    .is_some_and(|n| n.name == kernel.name.name)
                    && s.entries.iter().any(|e| {
                        matches!(e, ast::ScheduleEntry::Targets { values, .. }
                            if values.iter().any(|kv| kv.key.name == cparam.name.name))
                    })
            }
            _ => false,
        })
    });
    if cparam.default.is_some() || scheduled {
        return Some(Vec::new());
    }
    if let Some(allowed) = &cparam.allowed {
        return Some(
            allowed
                .iter()
                .map(|e| ast::CValue::Expr(e.clone()))
                .collect(),
        );
    }
    let ident = |name: &str| {
        ast::CValue::Expr(ast::Expr {
            kind: ExprKind::Path(ast::Path {
                segments: vec![ast::Ident {
                    name: name.to_owned(),
                    span: Span::NONE,
                }],
                span: Span::NONE,
            }),
            span: Span::NONE,
        })
    };
    if is_dtype {
        return Some(vec![ident("f16")]);
    }
    let ast::CKind::Path(path) = &cparam.kind else {
        return None;
    };
    match path.as_ident().map(|i| i.name.as_str()) {
        Some("bool") => Some(
            [false, true]
                .map(|v| {
                    ast::CValue::Expr(ast::Expr {
                        kind: ExprKind::Bool(v),
                        span: Span::NONE,
                    })
                })
                .to_vec(),
        ),
        Some("int") => {
            *guessed = true;
            Some(vec![ast::CValue::Expr(ast::Expr {
                kind: ExprKind::Int(guess),
                span: Span::NONE,
            })])
        }
        _ => {
            // A variant of the interface that can be named here and takes nothing.
            let (_, interface) = find_interface(program, module, path)?;
            let names: Vec<String> = program.names(module).map(str::to_owned).collect();
            names.iter().find_map(|name| {
                let Def::Item(m, i) = program.lookup(module, name)? else {
                    return None;
                };
                let ast::ItemKind::Variant(variant) = &program.item(m, i).kind else {
                    return None;
                };
                let implements = find_interface(program, m, variant.interface.as_ref()?)
                    .is_some_and(|(_, i)| std::ptr::eq(i, interface));
                (implements && variant.cparams.is_empty()).then(|| vec![ident(name)])
            })
        }
    }
}

/// One target of each group that schedules and bodies tell apart.
fn representative_targets(program: &Program, module: Module, kernel: &ast::Kernel) -> Vec<Target> {
    let mut seen: Vec<Vec<bool>> = Vec::new();
    let mut out = Vec::new();
    for target in Target::ALL {
        let general = kernel.targets.as_ref().is_none_or(|t| covers(t, target));
        let mut served = general;
        let mut key = vec![general];
        for m in program.with_related(module) {
            for item in &program.ast(m).items {
                match &item.kind {
                    ast::ItemKind::Kernel(k)
                        if k.signature.is_none() && k.name.name == kernel.name.name =>
                    {
                        let own = k.targets.as_ref().is_some_and(|t| covers(t, target));
                        served |= own;
                        key.push(own);
                    }
                    ast::ItemKind::Schedule(s)
                        if s.kernel
                            .segments
                            .last()
                            .is_some_and(|n| n.name == kernel.name.name) =>
                    {
                        for entry in &s.entries {
                            if let ast::ScheduleEntry::Targets { targets, .. } = entry {
                                key.push(covers(targets, target));
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        if served && !seen.contains(&key) {
            seen.push(key);
            out.push(target);
        }
    }
    out
}

// What items owe each other.

fn structure(program: &Program, module: Module, out: &mut Vec<Diagnostic>) {
    for item in &program.ast(module).items {
        match &item.kind {
            ast::ItemKind::Variant(variant) => implements(program, module, variant, out),
            ast::ItemKind::Schedule(schedule) => fits(program, module, schedule, out),
            ast::ItemKind::Kernel(kernel) => {
                if let Some(list) = &kernel.targets {
                    targets(list, out);
                }
                if kernel.signature.is_none() {
                    match signature_of(program, module, &kernel.name.name) {
                        None => out.push(Diagnostic::error(
                            codes::E0604,
                            kernel.name.span,
                            format!(
                                "no kernel `{}` with a signature is declared in this folder",
                                kernel.name.name
                            ),
                        )),
                        Some(_) if kernel.targets.is_none() => out.push(
                            Diagnostic::error(
                                codes::E0604,
                                kernel.name.span,
                                format!(
                                    "a second body of `{}` says for which targets it is",
                                    kernel.name.name
                                ),
                            )
                            .help(format!(
                                "write `kernel {} for sm_90a grid …`",
                                kernel.name.name
                            )),
                        ),
                        Some(_) => {}
                    }
                }
            }
            _ => {}
        }
    }
}

/// The signature of the kernel `name`: of this module, of what it uses, or of the files beside it.
fn signature_of<'p>(
    program: &'p Program,
    module: Module,
    name: &str,
) -> Option<&'p ast::Signature> {
    if let Some((_, kernel)) = find_kernel(program, module, name) {
        return kernel.signature.as_ref();
    }
    program.beside(module).find_map(|m| {
        program
            .ast(m)
            .items
            .iter()
            .find_map(|item| match &item.kind {
                ast::ItemKind::Kernel(k) if k.name.name == name => k.signature.as_ref(),
                _ => None,
            })
    })
}

fn implements(
    program: &Program,
    module: Module,
    variant: &ast::Variant,
    out: &mut Vec<Diagnostic>,
) {
    let Some(path) = &variant.interface else {
        return;
    };
    // A name that means nothing has been reported.
    let Some((_, interface)) = find_interface(program, module, path) else {
        if program.lookup(module, &path.segments[0].name).is_some() {
            let name = &path.segments[path.segments.len() - 1];
            out.push(Diagnostic::error(
                codes::E0114,
                path.span,
                format!("`{}` is no interface", name.name),
            ));
        }
        return;
    };
    for declared in &interface.fns {
        let own = variant
            .fns
            .iter()
            .find(|f| f.name.name == declared.name.name);
        match own {
            None if matches!(declared.body, ast::FnBody::None) => out.push(
                Diagnostic::error(
                    codes::E0114,
                    variant.name.span,
                    format!(
                        "`{}` has no `{}`, which `{}` asks for",
                        variant.name.name, declared.name.name, interface.name.name
                    ),
                )
                .label(declared.span, "declared here, without a body"),
            ),
            Some(own) if own.params.len() != declared.params.len() => out.push(
                Diagnostic::error(
                    codes::E0114,
                    own.name.span,
                    format!(
                        "`{}` takes {} parameters here, and {} in `{}`",
                        own.name.name,
                        own.params.len(),
                        declared.params.len(),
                        interface.name.name
                    ),
                )
                .label(declared.span, "declared here"),
            ),
            _ => {}
        }
    }
    for own in &variant.fns {
        if !interface.fns.iter().any(|f| f.name.name == own.name.name) {
            let mut diagnostic = Diagnostic::error(
                codes::E0114,
                own.name.span,
                format!(
                    "`{}` has no function `{}`",
                    interface.name.name, own.name.name
                ),
            );
            let known = interface.fns.iter().map(|f| f.name.name.as_str());
            if let Some(near) = nearest(&own.name.name, known) {
                diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
            }
            out.push(diagnostic);
        }
    }
}

fn targets(list: &[ast::Target], out: &mut Vec<Diagnostic>) {
    let all: Vec<&str> = Target::ALL.iter().map(|t| t.name()).collect();
    let mut known = |name: &ast::Ident| match Target::parse(&name.name) {
        Ok(target) => Some(target),
        Err(_) => {
            let mut diagnostic = Diagnostic::error(
                codes::E0603,
                name.span,
                format!("`{}` is no target", name.name),
            )
            .note(format!("the targets are {}", all.join(", ")));
            if let Some(near) = nearest(&name.name, all.iter().copied()) {
                diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
            }
            out.push(diagnostic);
            None
        }
    };
    let mut empty = Vec::new();
    for target in list {
        match target {
            ast::Target::One(name) => {
                known(name);
            }
            ast::Target::Range(first, last) => {
                if let (Some(a), Some(b)) = (known(first), known(last))
                    && a > b
                {
                    empty.push((first.span.to(last.span), a, b));
                }
            }
        }
    }
    for (span, a, b) in empty {
        out.push(Diagnostic::error(
            codes::E0603,
            span,
            format!(
                "this range is empty: {} stands behind {}",
                a.name(),
                b.name()
            ),
        ));
    }
}

fn fits(program: &Program, module: Module, schedule: &ast::Schedule, out: &mut Vec<Diagnostic>) {
    let name = &schedule.kernel.segments[schedule.kernel.segments.len() - 1];
    let Some(signature) = signature_of(program, module, &name.name) else {
        out.push(Diagnostic::error(
            codes::E0604,
            schedule.kernel.span,
            format!("no kernel `{}` is declared in this folder", name.name),
        ));
        return;
    };
    for entry in &schedule.entries {
        let values = match entry {
            ast::ScheduleEntry::Targets {
                targets: list,
                values,
                ..
            } => {
                if !is_general(list) {
                    targets(list, out);
                }
                values
            }
            ast::ScheduleEntry::Tune { values, .. } => values,
            ast::ScheduleEntry::Specialize { .. } => continue,
        };
        for kv in values {
            let key = kv.key.name.as_str();
            let known = SCHEDULE_KEYS.contains(&key)
                || kv.field.is_some()
                || signature.cparams.iter().any(|p| p.name.name == key);
            if !known {
                out.push(unknown_key(&kv.key, signature));
            }
        }
    }
}

// Names.

/// Walks trees and reports names that mean nothing, whether or not the code is ever instantiated.
struct Names<'p> {
    program: &'p Program,
    module: Module,
    scopes: Vec<Vec<String>>,
    /// Names of this item whose block has ended.
    ended: Vec<String>,
    out: Vec<Diagnostic>,
}

/// Words that stand for values in some arguments.
const WORDS: &[&str] = &["any", "evict_first", "evict_last"];

impl Names<'_> {
    fn bind(&mut self, name: &str) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(name.to_owned());
        }
    }

    fn scoped(&mut self, f: impl FnOnce(&mut Self)) {
        self.scopes.push(Vec::new());
        f(self);
        self.ended.extend(self.scopes.pop().into_iter().flatten());
        if self.scopes.is_empty() {
            self.ended.clear();
        }
    }

    fn known(&self, name: &str) -> bool {
        self.scopes.iter().flatten().any(|n| n == name)
            || self.program.lookup(self.module, name).is_some()
            || name.parse::<tesserine_set::DType>().is_ok()
            || NAMES.contains(&name)
            || WORDS.contains(&name)
    }

    fn use_name(&mut self, name: &ast::Ident) {
        if !self.known(&name.name) {
            let names: Vec<String> = self
                .scopes
                .iter()
                .rev()
                .flatten()
                .cloned()
                .chain(self.program.names(self.module).map(str::to_owned))
                .collect();
            let mut diagnostic = unknown_name(name, names.iter().map(String::as_str));
            if self.ended.contains(&name.name) {
                diagnostic.help = vec![format!(
                    "a `let` ends with its block: declare `let mut {} = …` before it, and assign there",
                    name.name
                )];
            }
            self.out.push(diagnostic);
        }
    }

    fn path(&mut self, path: &ast::Path) {
        let first = &path.segments[0];
        self.use_name(first);
        if let (Some(Def::Module(module)), Some(item)) = (
            self.program.lookup(self.module, &first.name),
            path.segments.get(1),
        ) && self.program.lookup(module, &item.name).is_none()
        {
            self.out.push(self.program.no_item(module, first, item));
        }
    }

    fn item(&mut self, item: &ast::Item) {
        self.scoped(|this| match &item.kind {
            ast::ItemKind::Use(_) | ast::ItemKind::Error => {}
            ast::ItemKind::Const(constant) => {
                constant.ty.iter().for_each(|t| this.ty(t));
                this.expr(&constant.value);
            }
            ast::ItemKind::Struct(item) => {
                this.cparams(&item.cparams);
                this.fields(&item.fields);
            }
            ast::ItemKind::Interface(item) => item.fns.iter().for_each(|f| this.function(f)),
            ast::ItemKind::Variant(item) => {
                item.interface.iter().for_each(|p| this.path(p));
                this.cparams(&item.cparams);
                this.fields(&item.fields);
                item.fns.iter().for_each(|f| this.function(f));
            }
            ast::ItemKind::Layout(item) => {
                item.indices.iter().for_each(|i| this.bind(&i.name));
                item.dims.iter().for_each(|d| this.open(&d.expr));
                this.expr(&item.size);
                this.expr(&item.offset);
            }
            ast::ItemKind::Fn(item) => this.function(item),
            ast::ItemKind::Kernel(item) => this.kernel(item),
            ast::ItemKind::Schedule(item) => this.schedule(item),
            ast::ItemKind::Op(item) => {
                this.cparams(&item.cparams);
                this.params(&item.params, false);
                item.wheres.iter().for_each(|e| this.expr(e));
                this.block(&item.body);
            }
            ast::ItemKind::Test(item) => this.block(&item.body),
        });
    }

    fn cparams(&mut self, cparams: &[ast::CParam]) {
        for cparam in cparams {
            if let ast::CKind::Path(path) = &cparam.kind
                && path
                    .as_ident()
                    .is_none_or(|i| !matches!(i.name.as_str(), "dtype" | "int" | "bool"))
            {
                self.path(path);
            }
            cparam.allowed.iter().flatten().for_each(|e| self.expr(e));
            cparam.default.iter().for_each(|v| self.cvalue(v));
            self.bind(&cparam.name.name);
        }
    }

    fn cvalue(&mut self, value: &ast::CValue) {
        match value {
            ast::CValue::Expr(expr) => self.expr(expr),
            ast::CValue::Applied { path, cargs, .. } => {
                self.path(path);
                self.cargs(cargs);
            }
        }
    }

    fn cargs(&mut self, cargs: &[ast::CArg]) {
        cargs.iter().for_each(|c| self.cvalue(&c.value));
    }

    fn fields(&mut self, fields: &[ast::Field]) {
        for ty in fields.iter().filter_map(|f| f.ty.as_ref()) {
            self.declared(ty, false);
        }
    }

    /// Parameters. `generic`: names in annotations may be bound by the arguments.
    fn params(&mut self, params: &[ast::Param], generic: bool) {
        for param in params {
            self.bind(&param.name.name);
        }
        for param in params {
            param.ty.iter().for_each(|t| self.declared(t, generic));
            param.default.iter().for_each(|e| self.expr(e));
        }
    }

    /// The type of a parameter or field, whose dimensions may be new names.
    fn declared(&mut self, ty: &ast::Type, generic: bool) {
        match &ty.kind {
            ast::TypeKind::View {
                elem, dims, layout, ..
            } => {
                self.element(elem, generic);
                dims.iter().for_each(|d| self.open(&d.expr));
                layout.iter().for_each(|l| self.path(l));
            }
            ast::TypeKind::Tile { elem, dims } | ast::TypeKind::Accum { elem, dims } => {
                self.element(elem, generic);
                dims.iter().for_each(|d| self.open(&d.expr));
            }
            _ => self.ty(ty),
        }
    }

    fn element(&mut self, elem: &ast::Path, generic: bool) {
        match elem.as_ident() {
            Some(name) if generic && !self.known(&name.name) => self.bind(&name.name),
            _ => self.path(elem),
        }
    }

    /// An extent: what it names and nothing knows is a dimension.
    fn open(&mut self, expr: &ast::Expr) {
        match &expr.kind {
            ExprKind::Path(path) => match path.as_ident() {
                Some(name) if !self.known(&name.name) => self.bind(&name.name),
                _ => self.path(path),
            },
            ExprKind::Paren(inner) | ExprKind::Unary { value: inner, .. } => self.open(inner),
            ExprKind::Binary { left, right, .. } => {
                self.open(left);
                self.open(right);
            }
            ExprKind::Call { callee, args } => {
                self.expr(callee);
                args.iter().for_each(|a| self.open(&a.value));
            }
            _ => self.expr(expr),
        }
    }

    fn ty(&mut self, ty: &ast::Type) {
        match &ty.kind {
            ast::TypeKind::View {
                elem, dims, layout, ..
            } => {
                self.path(elem);
                dims.iter().for_each(|d| self.expr(&d.expr));
                layout.iter().for_each(|l| self.path(l));
            }
            ast::TypeKind::Tile { elem, dims } | ast::TypeKind::Accum { elem, dims } => {
                self.path(elem);
                dims.iter().for_each(|d| self.expr(&d.expr));
            }
            ast::TypeKind::Path { path, cargs } => {
                if path.as_ident().is_none_or(|i| i.name != "int") {
                    self.path(path);
                }
                self.cargs(cargs);
            }
            ast::TypeKind::Tuple(types) => types.iter().for_each(|t| self.ty(t)),
        }
    }

    fn function(&mut self, function: &ast::Fn) {
        self.scoped(|this| {
            this.cparams(&function.cparams);
            this.params(&function.params, true);
            function.ret.iter().for_each(|t| this.ty(t));
            match &function.body {
                ast::FnBody::Block(block) => this.block(block),
                ast::FnBody::Expr(expr) => this.expr(expr),
                ast::FnBody::None => {}
            }
        });
    }

    fn kernel(&mut self, kernel: &ast::Kernel) {
        let program = self.program;
        match &kernel.signature {
            Some(signature) => {
                self.cparams(&signature.cparams);
                self.params(&signature.params, false);
            }
            None => {
                // The names of a signature that stands elsewhere; what is wrong with it is told there.
                if let Some(signature) = signature_of(program, self.module, &kernel.name.name) {
                    let before = self.out.len();
                    self.cparams(&signature.cparams);
                    self.params(&signature.params, false);
                    self.out.truncate(before);
                }
            }
        }
        // Fields of variants bring their dimensions along: those of the defaults can be seen from here.
        kernel.wheres.iter().for_each(|e| self.expr(e));
        for axis in &kernel.grid.axes {
            self.expr(&axis.extent);
            axis.until.iter().for_each(|e| self.expr(e));
        }
        kernel
            .grid
            .axes
            .iter()
            .for_each(|a| self.bind(&a.name.name));
        for order in &kernel.grid.order {
            if let ExprKind::Call { args, .. } = &order.kind {
                args.iter().for_each(|a| self.expr(&a.value));
            }
        }
        self.block(&kernel.body);
    }

    fn schedule(&mut self, schedule: &ast::Schedule) {
        let name = &schedule.kernel.segments[schedule.kernel.segments.len() - 1].name;
        if let Some(signature) = signature_of(self.program, self.module, name) {
            let before = self.out.len();
            self.cparams(&signature.cparams);
            self.params(&signature.params, false);
            self.out.truncate(before);
        } else {
            return;
        }
        self.cargs(&schedule.cargs);
        for entry in &schedule.entries {
            match entry {
                ast::ScheduleEntry::Targets {
                    values, condition, ..
                } => {
                    self.scoped(|this| {
                        this.bind("multiprocessors");
                        values.iter().for_each(|kv| this.expr(&kv.value));
                        condition.iter().for_each(|e| this.expr(e));
                    });
                }
                ast::ScheduleEntry::Tune {
                    values, condition, ..
                } => {
                    values.iter().for_each(|kv| self.expr(&kv.value));
                    let keys: Vec<String> = values.iter().map(|kv| kv.key.name.clone()).collect();
                    self.scoped(|this| {
                        keys.iter().for_each(|k| this.bind(k));
                        condition.iter().for_each(|e| this.expr(e));
                    });
                }
                ast::ScheduleEntry::Specialize { facts, .. } => {
                    facts.iter().for_each(|e| self.expr(e))
                }
            }
        }
    }

    fn block(&mut self, block: &ast::Block) {
        self.scoped(|this| {
            block.stmts.iter().for_each(|s| this.stmt(s));
            block.value.iter().for_each(|e| this.expr(e));
        });
    }

    fn pattern(&mut self, pat: &ast::Pat) {
        match &pat.kind {
            ast::PatKind::Bind { name, .. } => self.bind(&name.name),
            ast::PatKind::Wild => {}
            ast::PatKind::Tuple(pats) => pats.iter().for_each(|p| self.pattern(p)),
        }
    }

    fn channel(&mut self, channel: &ast::Channel) {
        self.use_name(&channel.name);
        channel.index.iter().for_each(|e| self.expr(e));
    }

    /// What is launched or called: a kernel or an `op`.
    fn launched(&mut self, path: &ast::Path) {
        self.path(path);
    }

    fn stmt(&mut self, stmt: &ast::Stmt) {
        match &stmt.kind {
            StmtKind::Let { pat, ty, value } => {
                self.expr(value);
                ty.iter().for_each(|t| self.ty(t));
                self.pattern(pat);
            }
            StmtKind::Expr(expr) => self.expr(expr),
            StmtKind::Assign { target, value, .. } => {
                let told = self.out.len();
                self.expr(target);
                if let (ExprKind::Path(path), Some(diagnostic)) =
                    (&target.kind, self.out.get_mut(told))
                    && let Some(name) = path.as_ident()
                    && diagnostic.help.is_empty()
                {
                    let help = format!(
                        "a new name is given by `let {0} = …`, and `let mut {0} = …` if it changes",
                        name.name
                    );
                    diagnostic.help.push(help);
                }
                self.expr(value);
            }
            StmtKind::If(branch) => self.branch(branch),
            StmtKind::For(loop_) => {
                loop_.bounds.iter().for_each(|e| self.expr(e));
                loop_.step.iter().for_each(|e| self.expr(e));
                self.scoped(|this| {
                    this.bind(&loop_.index.name);
                    loop_.part.iter().for_each(|p| this.bind(&p.name));
                    this.block(&loop_.body);
                });
            }
            StmtKind::While { cond, body } => {
                self.expr(cond);
                self.block(body);
            }
            StmtKind::Break | StmtKind::Continue | StmtKind::Require(_) | StmtKind::Error => {}
            StmtKind::Return(value) => value.iter().for_each(|e| self.expr(e)),
            StmtKind::Assert { args, .. } => self.args(args),
            StmtKind::Workspace { name, ty, fill } => {
                self.declared(ty, false);
                fill.iter().for_each(|e| self.expr(e));
                self.bind(&name.name);
            }
            StmtKind::Launch {
                kernel,
                cargs,
                args,
            } => {
                self.launched(kernel);
                self.cargs(cargs);
                self.args(args);
            }
            StmtKind::Call {
                kernel,
                cargs,
                args,
                at,
                ..
            } => {
                self.launched(kernel);
                self.cargs(cargs);
                self.args(args);
                at.iter().for_each(|e| self.expr(e));
            }
            StmtKind::Channel {
                name,
                count,
                payload,
                depth,
                over,
                across,
            } => {
                count.iter().for_each(|e| self.expr(e));
                self.ty(payload);
                self.expr(depth);
                over.iter().chain(across).for_each(|n| self.use_name(n));
                self.bind(&name.name);
            }
            StmtKind::Release { channel, .. } => self.channel(channel),
            StmtKind::Pingpong(pingpong) => {
                pingpong.cond.iter().for_each(|e| self.expr(e));
                self.block(&pingpong.body);
            }
            StmtKind::Put {
                channel,
                slot,
                at,
                values,
            } => {
                self.channel(channel);
                slot.iter().for_each(|e| self.expr(e));
                at.iter().flatten().for_each(|e| self.expr(e));
                values.iter().for_each(|e| self.expr(e));
            }
            StmtKind::Roles(roles) => {
                for role in roles {
                    self.scoped(|this| {
                        this.expr(&role.size);
                        for modifier in &role.modifiers {
                            match modifier {
                                ast::RoleModifier::Regs(e) => this.expr(e),
                                ast::RoleModifier::Split(_) => {}
                                ast::RoleModifier::Replicate { index, count } => {
                                    this.expr(count);
                                    this.bind(&index.name);
                                }
                            }
                        }
                        this.block(&role.body);
                    });
                }
            }
        }
    }

    fn branch(&mut self, branch: &ast::If) {
        self.expr(&branch.cond);
        self.block(&branch.then);
        match branch.els.as_deref() {
            Some(ast::Else::Block(block)) => self.block(block),
            Some(ast::Else::If(inner)) => self.branch(inner),
            None => {}
        }
    }

    fn args(&mut self, args: &[ast::Arg]) {
        args.iter().for_each(|a| self.expr(&a.value));
    }

    fn dims(&mut self, dims: &[ast::Dim]) {
        dims.iter().for_each(|d| self.expr(&d.expr));
    }

    fn expr(&mut self, expr: &ast::Expr) {
        match &expr.kind {
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Bool(_)
            | ExprKind::Str(_)
            | ExprKind::Inf
            | ExprKind::Nan
            | ExprKind::Error => {}
            ExprKind::Path(path) => self.path(path),
            ExprKind::Applied { path, cargs } => {
                self.path(path);
                self.cargs(cargs);
            }
            ExprKind::Tuple(items) | ExprKind::List(items) => {
                items.iter().for_each(|e| self.expr(e))
            }
            ExprKind::Paren(inner) | ExprKind::View(inner) => self.expr(inner),
            ExprKind::Zeros { elem, dims } | ExprKind::Iota { elem, dims } => {
                self.path(elem);
                self.dims(dims);
            }
            ExprKind::Full { elem, dims, value } => {
                self.path(elem);
                self.dims(dims);
                self.expr(value);
            }
            ExprKind::Bitcast { elem, value } => {
                self.path(elem);
                self.expr(value);
            }
            ExprKind::Ptx {
                args,
                ty,
                otherwise,
            } => {
                self.args(args);
                self.path(ty);
                self.expr(otherwise);
            }
            ExprKind::Unary { value, .. } | ExprKind::Await { value, .. } => self.expr(value),
            ExprKind::Binary { left, right, .. } => {
                self.expr(left);
                self.expr(right);
            }
            ExprKind::Cast { value, ty } => {
                self.expr(value);
                self.path(ty);
            }
            ExprKind::Get(channel) => self.channel(channel),
            ExprKind::Index { base, indices } => {
                self.expr(base);
                for index in indices {
                    match &index.kind {
                        ast::IndexKind::Expr(e) => self.expr(e),
                        ast::IndexKind::NewAxis => {}
                        ast::IndexKind::Range { start, end } => {
                            start.iter().chain(end).for_each(|e| self.expr(e));
                        }
                        ast::IndexKind::Slice {
                            start,
                            len,
                            from,
                            until,
                        } => {
                            self.expr(start);
                            self.expr(len);
                            from.iter().chain(until).for_each(|e| self.expr(e));
                        }
                    }
                }
            }
            ExprKind::Field { base, .. } | ExprKind::Element { base, .. } => self.expr(base),
            ExprKind::Call { callee, args } => {
                self.expr(callee);
                self.args(args);
            }
            ExprKind::If(branch) => self.branch(branch),
            ExprKind::Pingpong(pingpong) => {
                pingpong.cond.iter().for_each(|e| self.expr(e));
                self.block(&pingpong.body);
            }
        }
    }
}
