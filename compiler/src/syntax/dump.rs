//! The tree itself, as `tess emit --stage ast` prints it: a node a line, with its kind, its names and values, and its span.
//!
//! Invariant: one node's children stand directly under it, four columns further in, in the order of the source.

use super::{ast::*, fmt};
use crate::span::{SourceMap, Span};

/// The tree of a file. Spans are `line:column-line:column`, both from 1.
pub fn dump(file: &File, sources: &SourceMap) -> String {
    let mut d = Dumper {
        sources,
        out: String::new(),
        depth: 0,
    };
    if let Some(doc) = &file.doc {
        d.line(&format!("doc {doc:?}"));
    }
    for item in &file.items {
        d.item(item);
    }
    d.out
}

struct Dumper<'a> {
    sources: &'a SourceMap,
    out: String,
    depth: usize,
}

impl Dumper<'_> {
    fn line(&mut self, text: &str) {
        self.out.extend(std::iter::repeat_n("    ", self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// A node with a span, and under it what `inner` writes.
    fn node(&mut self, text: &str, span: Span, inner: impl FnOnce(&mut Self)) {
        let place = match self.sources.get(span.file) {
            Some(file) => {
                let clamp = |at: u32| file.line_column(at.min(file.text.len() as u32));
                let ((l0, c0), (l1, c1)) = (clamp(span.start), clamp(span.end));
                format!(" @{l0}:{c0}-{l1}:{c1}")
            }
            None => String::new(),
        };
        self.line(&format!("{text}{place}"));
        self.depth += 1;
        inner(self);
        self.depth -= 1;
    }

    /// What is part of a node without a span of its own.
    fn part(&mut self, text: &str, inner: impl FnOnce(&mut Self)) {
        self.line(text);
        self.depth += 1;
        inner(self);
        self.depth -= 1;
    }

    fn item(&mut self, item: &Item) {
        let head = match &item.kind {
            ItemKind::Use(u) => {
                let names = u.names.as_ref().map(|names| {
                    names
                        .iter()
                        .map(|n| n.name.as_str())
                        .collect::<Vec<_>>()
                        .join(", ")
                });
                format!(
                    "use {}{}",
                    path(&u.path),
                    names.map(|n| format!("::{{{n}}}")).unwrap_or_default()
                )
            }
            ItemKind::Const(c) => format!("const {}", c.name.name),
            ItemKind::Struct(s) => format!("struct {}", s.name.name),
            ItemKind::Interface(i) => format!("interface {}", i.name.name),
            ItemKind::Variant(v) => {
                let interface = v
                    .interface
                    .as_ref()
                    .map(|p| format!(": {}", path(p)))
                    .unwrap_or_default();
                format!("variant {}{interface}", v.name.name)
            }
            ItemKind::Layout(l) => {
                let indices: Vec<_> = l.indices.iter().map(|i| i.name.as_str()).collect();
                format!("layout {}({})", l.name.name, indices.join(", "))
            }
            ItemKind::Fn(f) => format!("fn {}", f.name.name),
            ItemKind::Kernel(k) => format!(
                "kernel {}{}",
                k.name.name,
                if k.signature.is_none() {
                    " (body for targets)"
                } else {
                    ""
                }
            ),
            ItemKind::Schedule(s) => format!("schedule {}", path(&s.kernel)),
            ItemKind::Op(o) => format!("op {}", o.name.name),
            ItemKind::Test(t) => format!("test {}", t.name.name),
            ItemKind::Error => "error".into(),
        };
        self.node(&head, item.span, |d| {
            if let Some(doc) = &item.doc {
                d.line(&format!("doc {doc:?}"));
            }
            match &item.kind {
                ItemKind::Use(_) | ItemKind::Error => {}
                ItemKind::Const(c) => {
                    d.opt_ty(&c.ty);
                    d.expr(&c.value);
                }
                ItemKind::Struct(s) => {
                    d.cparams(&s.cparams);
                    d.fields(&s.fields);
                }
                ItemKind::Interface(i) => i.fns.iter().for_each(|f| d.method(f)),
                ItemKind::Variant(v) => {
                    d.cparams(&v.cparams);
                    d.fields(&v.fields);
                    v.fns.iter().for_each(|f| d.method(f));
                }
                ItemKind::Layout(l) => {
                    d.dims(&l.dims);
                    d.part("size", |d| d.expr(&l.size));
                    d.part("offset", |d| d.expr(&l.offset));
                }
                ItemKind::Fn(f) => d.function(f),
                ItemKind::Kernel(k) => {
                    if let Some(s) = &k.signature {
                        d.cparams(&s.cparams);
                        d.params(&s.params);
                    }
                    if let Some(t) = &k.targets {
                        d.line(&format!("for {}", targets(t)));
                    }
                    k.wheres.iter().for_each(|w| d.part("where", |d| d.expr(w)));
                    d.grid(&k.grid);
                    d.block("body", &k.body);
                }
                ItemKind::Schedule(s) => {
                    d.cargs(&s.cargs);
                    s.entries.iter().for_each(|e| d.schedule_entry(e));
                }
                ItemKind::Op(o) => {
                    d.cparams(&o.cparams);
                    d.params(&o.params);
                    o.wheres.iter().for_each(|w| d.part("where", |d| d.expr(w)));
                    d.block("body", &o.body);
                }
                ItemKind::Test(t) => d.block("body", &t.body),
            }
        });
    }

    fn method(&mut self, f: &Fn) {
        self.node(&format!("fn {}", f.name.name), f.span, |d| {
            if let Some(doc) = &f.doc {
                d.line(&format!("doc {doc:?}"));
            }
            d.function(f);
        });
    }

    fn function(&mut self, f: &Fn) {
        self.cparams(&f.cparams);
        self.params(&f.params);
        if let Some(ret) = &f.ret {
            self.part("returns", |d| d.ty(ret));
        }
        match &f.body {
            FnBody::Block(b) => self.block("body", b),
            FnBody::Expr(e) => self.part("body", |d| d.expr(e)),
            FnBody::None => {}
        }
    }

    fn fields(&mut self, fields: &[Field]) {
        for f in fields {
            self.node(
                &format!("field {}{}", f.name.name, mark(f.optional)),
                f.span,
                |d| d.opt_ty(&f.ty),
            );
        }
    }

    fn params(&mut self, params: &[Param]) {
        for p in params {
            self.node(
                &format!("param {}{}", p.name.name, mark(p.optional)),
                p.span,
                |d| {
                    d.opt_ty(&p.ty);
                    d.opt_expr("default", &p.default);
                },
            );
        }
    }

    fn cparams(&mut self, cparams: &[CParam]) {
        for c in cparams {
            let kind = match &c.kind {
                CKind::Path(p) => path(p),
                CKind::Fn(_) => "fn".into(),
            };
            self.node(&format!("cparam {}: {kind}", c.name.name), c.span, |d| {
                c.allowed
                    .iter()
                    .flatten()
                    .for_each(|e| d.part("allowed", |d| d.expr(e)));
                if let Some(default) = &c.default {
                    d.part("default", |d| d.cvalue(default));
                }
            });
        }
    }

    fn cargs(&mut self, cargs: &[CArg]) {
        for c in cargs {
            let name = c
                .name
                .as_ref()
                .map(|n| format!(" {}", n.name))
                .unwrap_or_default();
            self.node(&format!("carg{name}"), c.span, |d| d.cvalue(&c.value));
        }
    }

    fn cvalue(&mut self, v: &CValue) {
        match v {
            CValue::Expr(e) => self.expr(e),
            CValue::Applied {
                path: p,
                cargs,
                span,
            } => self.node(&format!("applied {}", path(p)), *span, |d| d.cargs(cargs)),
        }
    }

    fn grid(&mut self, g: &Grid) {
        let walk = match (g.persistent, g.dynamic) {
            (true, true) => " persistent dynamic",
            (true, false) => " persistent",
            _ => "",
        };
        self.node(&format!("grid{walk}"), g.span, |d| {
            for a in &g.axes {
                d.node(
                    &format!(
                        "axis {}{}",
                        a.name.name,
                        if a.cluster { " cluster" } else { "" }
                    ),
                    a.span,
                    |d| {
                        d.expr(&a.extent);
                        d.opt_expr("until", &a.until);
                    },
                );
            }
            g.order.iter().for_each(|o| d.part("order", |d| d.expr(o)));
        });
    }

    fn schedule_entry(&mut self, entry: &ScheduleEntry) {
        match entry {
            ScheduleEntry::Targets {
                targets: t,
                values,
                condition,
                span,
            } => {
                self.node(&format!("targets {}", targets(t)), *span, |d| {
                    values.iter().for_each(|v| d.key_value(v));
                    d.opt_expr("where", condition);
                });
            }
            ScheduleEntry::Tune {
                values,
                condition,
                span,
            } => self.node("tune", *span, |d| {
                values.iter().for_each(|v| d.key_value(v));
                d.opt_expr("where", condition);
            }),
            ScheduleEntry::Specialize { facts, span } => self.node("specialize", *span, |d| {
                facts.iter().for_each(|f| d.expr(f))
            }),
        }
    }

    fn key_value(&mut self, kv: &KeyValue) {
        let field = kv
            .field
            .as_ref()
            .map(|f| format!(".{}", f.name))
            .unwrap_or_default();
        self.node(&format!("key {}{field}", kv.key.name), kv.span, |d| {
            d.expr(&kv.value)
        });
    }

    fn opt_ty(&mut self, ty: &Option<Type>) {
        if let Some(ty) = ty {
            self.ty(ty);
        }
    }

    fn ty(&mut self, ty: &Type) {
        self.node(
            &format!("type {}", fmt::print_type(ty).replace('\n', " ")),
            ty.span,
            |_| {},
        );
    }

    fn dims(&mut self, dims: &[Dim]) {
        for dim in dims {
            self.part(if dim.strided { "dim strided" } else { "dim" }, |d| {
                d.expr(&dim.expr)
            });
        }
    }

    fn block(&mut self, name: &str, b: &Block) {
        self.node(name, b.span, |d| {
            b.stmts.iter().for_each(|s| d.stmt(s));
            if let Some(value) = &b.value {
                d.part("value", |d| d.expr(value));
            }
        });
    }

    fn stmt(&mut self, s: &Stmt) {
        let head = match &s.kind {
            StmtKind::Let { .. } => "let".into(),
            StmtKind::Expr(_) => "evaluate".into(),
            StmtKind::Assign { op, scatter, .. } => format!(
                "{}assign {}",
                if *scatter { "scatter " } else { "" },
                op.as_str()
            ),
            StmtKind::If(i) => return self.if_(i),
            StmtKind::For(f) => {
                let label = f
                    .label
                    .as_ref()
                    .map(|l| format!("{}: ", l.name))
                    .unwrap_or_default();
                let part = f
                    .part
                    .as_ref()
                    .map(|p| format!(", {}", p.name))
                    .unwrap_or_default();
                let constant = if f.constant { "const " } else { "" };
                format!(
                    "{label}for {constant}{}{part}{}",
                    f.index.name,
                    if f.rev { " rev" } else { "" }
                )
            }
            StmtKind::While { .. } => "while".into(),
            StmtKind::Break => "break".into(),
            StmtKind::Continue => "continue".into(),
            StmtKind::Return(_) => "return".into(),
            StmtKind::Assert { constant, .. } => {
                if *constant { "assert const" } else { "assert" }.into()
            }
            StmtKind::Require(names) => format!(
                "require {}",
                names
                    .iter()
                    .map(|n| n.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            StmtKind::Workspace { name, .. } => format!("workspace {}", name.name),
            StmtKind::Launch { kernel, .. } => format!("launch {}", path(kernel)),
            StmtKind::Call {
                scatter, kernel, ..
            } => format!(
                "{}call {}",
                if *scatter { "scatter " } else { "" },
                path(kernel)
            ),
            StmtKind::Channel {
                name, over, across, ..
            } => {
                let over = over
                    .as_ref()
                    .map(|n| format!(" over {}", n.name))
                    .unwrap_or_default();
                let across = across
                    .as_ref()
                    .map(|n| format!(" across {}", n.name))
                    .unwrap_or_default();
                format!("channel {}{over}{across}", name.name)
            }
            StmtKind::Release { channel, lag } => {
                format!("release {}{}", channel.name.name, lag_text(*lag))
            }
            StmtKind::Pingpong(_) => "pingpong".into(),
            StmtKind::Put { channel, .. } => format!("put {}", channel.name.name),
            StmtKind::Roles(_) => "roles".into(),
            StmtKind::Error => "error".into(),
        };
        self.node(&head, s.span, |d| match &s.kind {
            StmtKind::Let { pat, ty, value } => {
                d.pat(pat);
                d.opt_ty(ty);
                d.expr(value);
            }
            StmtKind::Expr(e) => d.expr(e),
            StmtKind::Assign { target, value, .. } => {
                d.expr(target);
                d.expr(value);
            }
            StmtKind::For(f) => {
                f.bounds.iter().for_each(|b| d.part("bound", |d| d.expr(b)));
                d.opt_expr("step", &f.step);
                d.block("body", &f.body);
            }
            StmtKind::While { cond, body } => {
                d.expr(cond);
                d.block("body", body);
            }
            StmtKind::Return(value) => value.iter().for_each(|e| d.expr(e)),
            StmtKind::Assert { args, .. } => d.args(args),
            StmtKind::Workspace { ty, fill, .. } => {
                d.ty(ty);
                d.opt_expr("fill", fill);
            }
            StmtKind::Launch { cargs, args, .. } => {
                d.cargs(cargs);
                d.args(args);
            }
            StmtKind::Call {
                cargs, args, at, ..
            } => {
                d.cargs(cargs);
                d.args(args);
                at.iter().for_each(|e| d.part("at", |d| d.expr(e)));
            }
            StmtKind::Channel {
                count,
                payload,
                depth,
                ..
            } => {
                d.opt_expr("count", count);
                d.ty(payload);
                d.part("depth", |d| d.expr(depth));
            }
            StmtKind::Release { channel, .. } => d.channel(channel),
            StmtKind::Pingpong(p) => d.pingpong(p),
            StmtKind::Put {
                channel,
                slot,
                at,
                values,
            } => {
                d.channel(channel);
                d.opt_expr("in", slot);
                at.iter()
                    .flatten()
                    .for_each(|e| d.part("at", |d| d.expr(e)));
                values.iter().for_each(|e| d.expr(e));
            }
            StmtKind::Roles(roles) => roles.iter().for_each(|r| d.role(r)),
            StmtKind::If(_)
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Require(_)
            | StmtKind::Error => {}
        });
    }

    fn role(&mut self, r: &Role) {
        let unit = match r.unit {
            RoleUnit::Warp => "warps",
            RoleUnit::Warpgroup => "warpgroups",
        };
        self.node(&format!("role {} in {unit}", r.name.name), r.span, |d| {
            d.part("size", |d| d.expr(&r.size));
            for modifier in &r.modifiers {
                match modifier {
                    RoleModifier::Regs(e) => d.part("regs", |d| d.expr(e)),
                    RoleModifier::Split(axis) => d.line(&format!("split {axis}")),
                    RoleModifier::Replicate { index, count } => {
                        d.part(&format!("replicate {}", index.name), |d| d.expr(count))
                    }
                }
            }
            d.block("body", &r.body);
        });
    }

    fn channel(&mut self, c: &Channel) {
        if let Some(index) = &c.index {
            self.part("index", |d| d.expr(index));
        }
    }

    fn pat(&mut self, p: &Pat) {
        let head = match &p.kind {
            PatKind::Bind { mutable, name } => {
                format!("bind {}{}", if *mutable { "mut " } else { "" }, name.name)
            }
            PatKind::Wild => "bind _".into(),
            PatKind::Tuple(_) => "bind tuple".into(),
        };
        self.node(&head, p.span, |d| {
            if let PatKind::Tuple(pats) = &p.kind {
                pats.iter().for_each(|p| d.pat(p));
            }
        });
    }

    fn if_(&mut self, i: &If) {
        self.node(if i.constant { "if const" } else { "if" }, i.span, |d| {
            d.expr(&i.cond);
            d.block("then", &i.then);
            match i.els.as_deref() {
                None => {}
                Some(Else::If(i)) => d.part("else", |d| d.if_(i)),
                Some(Else::Block(b)) => d.block("else", b),
            }
        });
    }

    fn pingpong(&mut self, p: &Pingpong) {
        if let Some(cond) = &p.cond {
            self.part("if", |d| d.expr(cond));
        }
        self.block("body", &p.body);
    }

    fn opt_expr(&mut self, name: &str, e: &Option<Expr>) {
        if let Some(e) = e {
            self.part(name, |d| d.expr(e));
        }
    }

    fn args(&mut self, args: &[Arg]) {
        for a in args {
            match &a.name {
                Some(name) => self.part(&format!("arg {}", name.name), |d| d.expr(&a.value)),
                None => self.expr(&a.value),
            }
        }
    }

    fn expr(&mut self, e: &Expr) {
        let head = match &e.kind {
            ExprKind::Int(n) => format!("int {n}"),
            ExprKind::Float(x) => format!("float {x:?}"),
            ExprKind::Bool(b) => format!("bool {b}"),
            ExprKind::Str(s) => format!("string {s:?}"),
            ExprKind::Inf => "inf".into(),
            ExprKind::Nan => "nan".into(),
            ExprKind::Path(p) => format!("name {}", path(p)),
            ExprKind::Applied { path: p, .. } => format!("applied {}", path(p)),
            ExprKind::Tuple(_) => "tuple".into(),
            ExprKind::List(_) => "list".into(),
            ExprKind::Paren(_) => "paren".into(),
            ExprKind::Zeros { elem, .. } => format!("zeros {}", path(elem)),
            ExprKind::Iota { elem, .. } => format!("iota {}", path(elem)),
            ExprKind::Full { elem, .. } => format!("full {}", path(elem)),
            ExprKind::Bitcast { elem, .. } => format!("bitcast {}", path(elem)),
            ExprKind::Ptx { ty, .. } => format!("ptx {}", path(ty)),
            ExprKind::Unary {
                op: UnaryOp::Neg, ..
            } => "unary -".into(),
            ExprKind::Unary {
                op: UnaryOp::Not, ..
            } => "unary !".into(),
            ExprKind::Binary { op, .. } => format!("binary {op}"),
            ExprKind::Cast { ty, .. } => format!("cast {}", path(ty)),
            ExprKind::Await { lag, .. } => format!("await{}", lag_text(*lag)),
            ExprKind::Get(c) => format!("get {}", c.name.name),
            ExprKind::View(_) => "view".into(),
            ExprKind::Index { .. } => "index".into(),
            ExprKind::Field { name, .. } => format!("field {}", name.name),
            ExprKind::Element { index, .. } => format!("element {index}"),
            ExprKind::Call { .. } => "call".into(),
            ExprKind::If(i) => return self.if_(i),
            ExprKind::Pingpong(_) => "pingpong".into(),
            ExprKind::Error => "error".into(),
        };
        self.node(&head, e.span, |d| match &e.kind {
            ExprKind::Applied { cargs, .. } => d.cargs(cargs),
            ExprKind::Tuple(values) | ExprKind::List(values) => {
                values.iter().for_each(|v| d.expr(v))
            }
            ExprKind::Paren(value)
            | ExprKind::Bitcast { value, .. }
            | ExprKind::Unary { value, .. }
            | ExprKind::Cast { value, .. }
            | ExprKind::Await { value, .. }
            | ExprKind::View(value)
            | ExprKind::Field { base: value, .. }
            | ExprKind::Element { base: value, .. } => d.expr(value),
            ExprKind::Zeros { dims, .. } | ExprKind::Iota { dims, .. } => d.dims(dims),
            ExprKind::Full { dims, value, .. } => {
                d.dims(dims);
                d.expr(value);
            }
            ExprKind::Ptx {
                args, otherwise, ..
            } => {
                d.args(args);
                d.part("else", |d| d.expr(otherwise));
            }
            ExprKind::Binary { left, right, .. } => {
                d.expr(left);
                d.expr(right);
            }
            ExprKind::Get(channel) => d.channel(channel),
            ExprKind::Index { base, indices } => {
                d.expr(base);
                indices.iter().for_each(|i| d.index(i));
            }
            ExprKind::Call { callee, args } => {
                d.expr(callee);
                d.args(args);
            }
            ExprKind::Pingpong(p) => d.pingpong(p),
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Bool(_)
            | ExprKind::Str(_)
            | ExprKind::Inf
            | ExprKind::Nan
            | ExprKind::Path(_)
            | ExprKind::If(_)
            | ExprKind::Error => {}
        });
    }

    fn index(&mut self, index: &Index) {
        match &index.kind {
            IndexKind::Expr(e) => self.expr(e),
            IndexKind::NewAxis => self.node("new axis", index.span, |_| {}),
            IndexKind::Range { start, end } => self.node("range", index.span, |d| {
                d.opt_expr("from", start);
                d.opt_expr("to", end);
            }),
            IndexKind::Slice {
                start,
                len,
                from,
                until,
            } => self.node("slice", index.span, |d| {
                d.expr(start);
                d.expr(len);
                if from.is_some() {
                    d.opt_expr("from", from);
                }
                d.opt_expr("until", until);
            }),
        }
    }
}

fn mark(optional: bool) -> &'static str {
    if optional { "?" } else { "" }
}

fn lag_text(lag: Option<u64>) -> String {
    lag.map(|n| format!(" lag {n}")).unwrap_or_default()
}

fn path(p: &Path) -> String {
    p.segments
        .iter()
        .map(|s| s.name.as_str())
        .collect::<Vec<_>>()
        .join("::")
}

fn targets(targets: &[Target]) -> String {
    let each = targets.iter().map(|t| match t {
        Target::One(name) => name.name.clone(),
        Target::Range(from, to) => format!("{} ..= {}", from.name, to.name),
    });
    each.collect::<Vec<_>>().join(", ")
}
