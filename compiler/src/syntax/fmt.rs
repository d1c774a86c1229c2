//! Trees back to source, in one canonical form.
//!
//! Invariants: what is printed parses to the tree that it was printed from, spans aside (comments that document nothing are
//! lost); printing again what was parsed from it changes nothing. The tree has no `Error` nodes.

use super::ast::*;

/// Lists and headers longer than this go onto several lines.
const WIDTH: usize = 120;

/// A file as source.
pub fn print(file: &File) -> String {
    let mut p = Printer::default();
    if let Some(doc) = &file.doc {
        p.doc("//!", doc);
        p.out.push('\n');
    }
    for (i, item) in file.items.iter().enumerate() {
        if i > 0
            && !matches!(
                (&item.kind, &file.items[i - 1].kind),
                (ItemKind::Use(_), ItemKind::Use(_))
            )
        {
            p.out.push('\n');
        }
        p.item(item);
    }
    p.out
}

/// An expression on its own, as diagnostics quote it.
pub fn print_expr(expr: &Expr) -> String {
    let mut p = Printer::default();
    p.expr(expr);
    p.out
}

/// A type on its own, as diagnostics quote it.
pub fn print_type(ty: &Type) -> String {
    let mut p = Printer::default();
    p.ty(ty);
    p.out
}

#[derive(Default)]
struct Printer {
    out: String,
    indent: usize,
}

impl Printer {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn line(&mut self) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n("    ", self.indent));
    }

    /// Comment lines, each ended.
    fn doc(&mut self, mark: &str, doc: &str) {
        for line in doc.split('\n') {
            self.put(mark);
            if !line.is_empty() {
                self.put(" ");
                self.put(line);
            }
            self.line();
        }
    }

    /// The width of the line being written.
    fn column(&self) -> usize {
        self.out.len() - self.out.rfind('\n').map_or(0, |i| i + 1)
    }

    /// `open a, b close`; one to a line where that is too wide.
    fn list<T>(
        &mut self,
        open: &str,
        items: &[T],
        close: &str,
        mut each: impl FnMut(&mut Printer, &T),
    ) {
        let (start, column) = (self.out.len(), self.column());
        self.put(open);
        for (i, item) in items.iter().enumerate() {
            self.put(if i > 0 { ", " } else { "" });
            each(self, item);
        }
        self.close(close);
        let written = &self.out[start..];
        if items.is_empty() || column + written.find('\n').unwrap_or(written.len()) <= WIDTH {
            return;
        }
        self.out.truncate(start);
        self.put(open.trim_end());
        self.indent += 1;
        for item in items {
            self.line();
            each(self, item);
            self.put(",");
        }
        self.indent -= 1;
        self.line();
        self.put(close.trim_start());
    }

    /// A closer; two `>` would read as one sign.
    fn close(&mut self, close: &str) {
        if close.starts_with('>') && self.out.ends_with('>') {
            self.put(" ");
        }
        self.put(close);
    }

    /// `a, b` without brackets.
    fn separated<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Printer, &T)) {
        for (i, item) in items.iter().enumerate() {
            self.put(if i > 0 { ", " } else { "" });
            each(self, item);
        }
    }

    // ── Items ──

    fn item(&mut self, item: &Item) {
        if let Some(doc) = &item.doc {
            self.doc("///", doc);
        }
        match &item.kind {
            ItemKind::Use(u) => {
                self.put("use ");
                self.path(&u.path);
                if let Some(names) = &u.names {
                    self.list("::{", names, "}", Printer::name);
                }
                self.put(";");
            }
            ItemKind::Const(c) => {
                self.put("const ");
                self.name(&c.name);
                self.annotation(&c.ty);
                self.put(" = ");
                self.expr(&c.value);
                self.put(";");
            }
            ItemKind::Struct(s) => {
                self.put("struct ");
                self.name(&s.name);
                self.cparams(&s.cparams);
                self.list(" { ", &s.fields, " }", Printer::field);
            }
            ItemKind::Interface(i) => {
                self.put("interface ");
                self.name(&i.name);
                self.put(" {");
                self.functions(&i.fns);
                self.put("}");
            }
            ItemKind::Variant(v) => {
                self.put("variant ");
                self.name(&v.name);
                self.cparams(&v.cparams);
                if let Some(interface) = &v.interface {
                    self.put(": ");
                    self.path(interface);
                }
                self.put(" {");
                self.indent += 1;
                for (i, field) in v.fields.iter().enumerate() {
                    self.line();
                    self.field(field);
                    if i + 1 < v.fields.len() {
                        self.put(",");
                    }
                }
                self.indent -= 1;
                if v.fns.is_empty() && !v.fields.is_empty() {
                    self.line();
                }
                self.functions(&v.fns);
                self.put("}");
            }
            ItemKind::Layout(l) => {
                self.put("layout ");
                self.name(&l.name);
                self.list("(", &l.indices, ")", Printer::name);
                self.put(" of ");
                self.dims(&l.dims);
                self.put(" size ");
                self.expr(&l.size);
                self.put(" = ");
                self.expr(&l.offset);
                self.put(";");
            }
            ItemKind::Fn(f) => self.function(f),
            ItemKind::Kernel(k) => {
                self.put("kernel ");
                self.name(&k.name);
                if let Some(s) = &k.signature {
                    self.cparams(&s.cparams);
                    self.list("(", &s.params, ")", Printer::param);
                }
                if let Some(targets) = &k.targets {
                    self.put(" for ");
                    self.separated(targets, Printer::target);
                }
                self.wheres(&k.wheres);
                self.line();
                self.grid(&k.grid);
                self.line();
                self.block(&k.body);
            }
            ItemKind::Schedule(s) => {
                self.put("schedule ");
                self.path(&s.kernel);
                if !s.cargs.is_empty() {
                    self.put(" for ");
                    self.separated(&s.cargs, Printer::carg);
                }
                self.put(" {");
                self.indent += 1;
                for entry in &s.entries {
                    self.line();
                    self.schedule_entry(entry);
                }
                self.indent -= 1;
                self.line();
                self.put("}");
            }
            ItemKind::Op(o) => {
                self.put("op ");
                self.name(&o.name);
                self.cparams(&o.cparams);
                self.list("(", &o.params, ")", Printer::param);
                self.wheres(&o.wheres);
                self.line();
                self.block(&o.body);
            }
            ItemKind::Test(t) => {
                self.put("test ");
                self.name(&t.name);
                self.put(" ");
                self.block(&t.body);
            }
            ItemKind::Error => self.put("<error>"),
        }
        self.line();
    }

    /// Functions in braces, which the caller writes.
    fn functions(&mut self, fns: &[Fn]) {
        for f in fns {
            self.indent += 1;
            self.line();
            if let Some(doc) = &f.doc {
                self.doc("///", doc);
            }
            self.function(f);
            self.indent -= 1;
        }
        if !fns.is_empty() {
            self.line();
        }
    }

    fn function(&mut self, f: &Fn) {
        self.put("fn ");
        self.name(&f.name);
        self.cparams(&f.cparams);
        self.list("(", &f.params, ")", Printer::param);
        if let Some(ret) = &f.ret {
            self.put(" -> ");
            self.ty(ret);
        }
        match &f.body {
            FnBody::Block(block) => {
                self.put(" ");
                self.block(block);
            }
            FnBody::Expr(value) => {
                self.put(" = ");
                self.expr(value);
                self.put(";");
            }
            FnBody::None => self.put(";"),
        }
    }

    fn field(&mut self, f: &Field) {
        self.name(&f.name);
        self.put(if f.optional { "?" } else { "" });
        self.annotation(&f.ty);
    }

    fn param(&mut self, p: &Param) {
        self.name(&p.name);
        self.put(if p.optional { "?" } else { "" });
        self.annotation(&p.ty);
        if let Some(default) = &p.default {
            self.put(" = ");
            self.expr(default);
        }
    }

    fn cparams(&mut self, cparams: &[CParam]) {
        if cparams.is_empty() {
            return;
        }
        self.list("<", cparams, ">", |p, c| {
            p.name(&c.name);
            p.put(": ");
            match &c.kind {
                CKind::Path(path) => p.path(path),
                CKind::Fn(_) => p.put("fn"),
            }
            if let Some(allowed) = &c.allowed {
                p.list(" in {", allowed, "}", Printer::expr);
            }
            if let Some(default) = &c.default {
                p.put(" = ");
                p.cvalue(default);
            }
        });
    }

    fn cargs(&mut self, cargs: &[CArg]) {
        if !cargs.is_empty() {
            self.list("<", cargs, ">", Printer::carg);
        }
    }

    fn carg(&mut self, c: &CArg) {
        if let Some(name) = &c.name {
            self.name(name);
            self.put(" = ");
        }
        self.cvalue(&c.value);
    }

    fn cvalue(&mut self, v: &CValue) {
        match v {
            CValue::Expr(e) => self.expr(e),
            CValue::Applied { path, cargs, .. } => {
                self.path(path);
                self.list("<", cargs, ">", Printer::carg);
            }
        }
    }

    fn target(&mut self, t: &Target) {
        match t {
            Target::One(name) => self.name(name),
            Target::Range(from, to) => {
                self.name(from);
                self.put(" ..= ");
                self.name(to);
            }
        }
    }

    fn wheres(&mut self, wheres: &[Expr]) {
        if !wheres.is_empty() {
            self.put(" where ");
            self.separated(wheres, Printer::expr);
        }
    }

    fn grid(&mut self, g: &Grid) {
        self.put("grid ");
        self.put(if g.persistent { "persistent " } else { "" });
        self.put(if g.dynamic { "dynamic " } else { "" });
        self.list("(", &g.axes, ")", |p, a| {
            p.name(&a.name);
            p.put(" in ");
            p.expr(&a.extent);
            if let Some(until) = &a.until {
                p.put(" until ");
                p.expr(until);
            }
            p.put(if a.cluster { " cluster" } else { "" });
        });
        if !g.order.is_empty() {
            self.put(" order ");
            self.separated(&g.order, Printer::expr);
        }
    }

    fn schedule_entry(&mut self, entry: &ScheduleEntry) {
        match entry {
            ScheduleEntry::Targets {
                targets,
                values,
                condition,
                ..
            } => {
                self.separated(targets, Printer::target);
                match condition {
                    None => self.list(" { ", values, " }", Printer::key_value),
                    Some(condition) => {
                        self.put(" { ");
                        self.separated(values, Printer::key_value);
                        self.put(" where ");
                        self.expr(condition);
                        self.put(" }");
                    }
                }
            }
            ScheduleEntry::Tune {
                values, condition, ..
            } => {
                self.put("tune { ");
                self.separated(values, Printer::key_value);
                if let Some(condition) = condition {
                    self.put(" where ");
                    self.expr(condition);
                }
                self.put(" }");
            }
            ScheduleEntry::Specialize { facts, .. } => {
                self.list("specialize { ", facts, " }", Printer::expr)
            }
        }
    }

    fn key_value(&mut self, kv: &KeyValue) {
        self.name(&kv.key);
        if let Some(field) = &kv.field {
            self.put(".");
            self.name(field);
        }
        self.put(": ");
        self.expr(&kv.value);
    }

    // ── Types ──

    fn annotation(&mut self, ty: &Option<Type>) {
        if let Some(ty) = ty {
            self.put(": ");
            self.ty(ty);
        }
    }

    fn ty(&mut self, ty: &Type) {
        match &ty.kind {
            TypeKind::View {
                mode,
                elem,
                dims,
                layout,
                facts,
            } => {
                self.put(match mode {
                    ViewMode::Read => "",
                    ViewMode::Out => "out ",
                    ViewMode::Mut => "mut ",
                });
                self.shaped("view", elem, dims);
                if let Some(layout) = layout {
                    self.put(" in ");
                    self.path(layout);
                }
                for fact in facts {
                    match fact {
                        ViewFact::Sorted(_) => self.put(" sorted"),
                        ViewFact::Distinct(_) => self.put(" distinct"),
                        ViewFact::Align(n, _) => self.put(&format!(" align {n}")),
                    }
                }
            }
            TypeKind::Tile { elem, dims } => self.shaped("tile", elem, dims),
            TypeKind::Accum { elem, dims } => self.shaped("accum", elem, dims),
            TypeKind::Path { path, cargs } => {
                self.path(path);
                self.cargs(cargs);
            }
            TypeKind::Tuple(types) => self.list("(", types, ")", Printer::ty),
        }
    }

    /// `tile<f32>[m, n]`
    fn shaped(&mut self, word: &str, elem: &Path, dims: &[Dim]) {
        self.put(word);
        self.put("<");
        self.path(elem);
        self.put(">");
        self.dims(dims);
    }

    fn dims(&mut self, dims: &[Dim]) {
        self.list("[", dims, "]", |p, d| {
            p.expr(&d.expr);
            p.put(if d.strided { " strided" } else { "" });
        });
    }

    // ── Statements ──

    fn block(&mut self, b: &Block) {
        if b.stmts.is_empty() {
            match &b.value {
                None => return self.put("{}"),
                Some(value) => {
                    let start = self.out.len();
                    self.put("{ ");
                    self.expr(value);
                    self.put(" }");
                    if self.column() <= WIDTH && !self.out[start..].contains('\n') {
                        return;
                    }
                    self.out.truncate(start);
                }
            }
        }
        self.put("{");
        self.indent += 1;
        for stmt in &b.stmts {
            self.line();
            self.stmt(stmt);
        }
        if let Some(value) = &b.value {
            self.line();
            self.expr(value);
        }
        self.indent -= 1;
        self.line();
        self.put("}");
    }

    fn stmt(&mut self, s: &Stmt) {
        match &s.kind {
            StmtKind::Let { pat, ty, value } => {
                self.put("let ");
                self.pat(pat);
                self.annotation(ty);
                self.put(" = ");
                self.expr(value);
                self.put(";");
            }
            StmtKind::Expr(e) => {
                self.expr(e);
                self.put(";");
            }
            StmtKind::Assign {
                target,
                op,
                value,
                scatter,
            } => {
                self.put(if *scatter { "scatter " } else { "" });
                self.expr(target);
                self.put(&format!(" {} ", op.as_str()));
                self.expr(value);
                self.put(";");
            }
            StmtKind::If(i) => self.if_(i),
            StmtKind::For(f) => {
                if let Some(label) = &f.label {
                    self.name(label);
                    self.put(": ");
                }
                self.put(if f.constant { "for const " } else { "for " });
                match &f.part {
                    None => self.name(&f.index),
                    Some(part) => {
                        self.put("(");
                        self.name(&f.index);
                        self.put(", ");
                        self.name(part);
                        self.put(")");
                    }
                }
                self.put(" in ");
                let dots = if f.bounds.iter().all(is_short) {
                    ".."
                } else {
                    " .. "
                };
                for (i, bound) in f.bounds.iter().enumerate() {
                    self.put(if i > 0 { dots } else { "" });
                    self.expr(bound);
                }
                self.put(if f.rev { " rev" } else { "" });
                if let Some(step) = &f.step {
                    self.put(" step ");
                    self.expr(step);
                }
                self.put(" ");
                self.block(&f.body);
            }
            StmtKind::While { cond, body } => {
                self.put("while ");
                self.expr(cond);
                self.put(" ");
                self.block(body);
            }
            StmtKind::Break => self.put("break;"),
            StmtKind::Continue => self.put("continue;"),
            StmtKind::Return(value) => {
                self.put("return");
                if let Some(value) = value {
                    self.put(" ");
                    self.expr(value);
                }
                self.put(";");
            }
            StmtKind::Assert { constant, args } => {
                self.put(if *constant { "assert const" } else { "assert" });
                self.args(args);
                self.put(";");
            }
            StmtKind::Require(names) => {
                self.list("require(", names, ");", Printer::name);
            }
            StmtKind::Workspace { name, ty, fill } => {
                self.put("workspace ");
                self.name(name);
                self.put(": ");
                self.ty(ty);
                if let Some(fill) = fill {
                    self.put(" = ");
                    self.expr(fill);
                }
                self.put(";");
            }
            StmtKind::Launch {
                kernel,
                cargs,
                args,
            } => {
                self.put("launch ");
                self.path(kernel);
                self.cargs(cargs);
                self.args(args);
                self.put(";");
            }
            StmtKind::Call {
                scatter,
                kernel,
                cargs,
                args,
                at,
            } => {
                self.put(if *scatter { "scatter call " } else { "call " });
                self.path(kernel);
                self.cargs(cargs);
                self.args(args);
                self.list(" at (", at, ");", Printer::expr);
            }
            StmtKind::Channel {
                name,
                count,
                payload,
                depth,
                over,
                across,
            } => {
                self.put("channel ");
                self.name(name);
                if let Some(count) = count {
                    self.put("[");
                    self.expr(count);
                    self.put("]");
                }
                self.put(": ");
                self.ty(payload);
                self.put(" depth ");
                self.expr(depth);
                for (word, name) in [(" over ", over), (" across ", across)] {
                    if let Some(name) = name {
                        self.put(word);
                        self.name(name);
                    }
                }
                self.put(";");
            }
            StmtKind::Release { channel, lag } => {
                self.put("release ");
                self.channel(channel);
                self.lag(*lag);
                self.put(";");
            }
            StmtKind::Pingpong(p) => self.pingpong(p),
            StmtKind::Put {
                channel,
                slot,
                at,
                values,
            } => {
                self.put("put ");
                self.channel(channel);
                if let Some(slot) = slot {
                    self.put(" in ");
                    self.expr(slot);
                }
                if let Some(at) = at {
                    self.list(" at [", at, "]", Printer::expr);
                }
                self.list(" { ", values, " }", Printer::expr);
            }
            StmtKind::Roles(roles) => {
                self.put("roles {");
                self.indent += 1;
                for role in roles {
                    self.line();
                    self.role(role);
                }
                self.indent -= 1;
                self.line();
                self.put("}");
            }
            StmtKind::Error => self.put("<error>"),
        }
    }

    fn role(&mut self, r: &Role) {
        self.name(&r.name);
        self.put(": ");
        self.expr(&r.size);
        let one = matches!(r.size.kind, ExprKind::Int(1));
        self.put(match (r.unit, one) {
            (RoleUnit::Warp, true) => " warp",
            (RoleUnit::Warp, false) => " warps",
            (RoleUnit::Warpgroup, true) => " warpgroup",
            (RoleUnit::Warpgroup, false) => " warpgroups",
        });
        for modifier in &r.modifiers {
            match modifier {
                RoleModifier::Regs(n) => {
                    self.put(", regs ");
                    self.expr(n);
                }
                RoleModifier::Split(axis) => self.put(&format!(", split {axis}")),
                RoleModifier::Replicate { index, count } => {
                    self.put(", replicate ");
                    self.name(index);
                    self.put(" in ");
                    self.expr(count);
                }
            }
        }
        self.put(" ");
        self.block(&r.body);
    }

    fn channel(&mut self, c: &Channel) {
        self.name(&c.name);
        if let Some(index) = &c.index {
            self.put("[");
            self.expr(index);
            self.put("]");
        }
    }

    fn lag(&mut self, lag: Option<u64>) {
        if let Some(lag) = lag {
            self.put(&format!(" lag {lag}"));
        }
    }

    fn pat(&mut self, p: &Pat) {
        match &p.kind {
            PatKind::Bind { mutable, name } => {
                self.put(if *mutable { "mut " } else { "" });
                self.name(name);
            }
            PatKind::Wild => self.put("_"),
            PatKind::Tuple(pats) => self.list("(", pats, ")", Printer::pat),
        }
    }

    fn if_(&mut self, i: &If) {
        self.put(if i.constant { "if const " } else { "if " });
        self.expr(&i.cond);
        self.put(" ");
        self.block(&i.then);
        match i.els.as_deref() {
            None => {}
            Some(Else::If(i)) => {
                self.put(" else ");
                self.if_(i);
            }
            Some(Else::Block(b)) => {
                self.put(" else ");
                self.block(b);
            }
        }
    }

    fn pingpong(&mut self, p: &Pingpong) {
        self.put("pingpong ");
        if let Some(cond) = &p.cond {
            self.put("if ");
            self.expr(cond);
            self.put(" ");
        }
        self.block(&p.body);
    }

    // ── Expressions ──

    fn expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Int(n) => self.put(&n.to_string()),
            ExprKind::Float(x) => self.put(&format!("{x:?}")),
            ExprKind::Bool(b) => self.put(if *b { "true" } else { "false" }),
            ExprKind::Str(s) => self.string(s),
            ExprKind::Inf => self.put("inf"),
            ExprKind::Nan => self.put("nan"),
            ExprKind::Path(path) => self.path(path),
            ExprKind::Applied { path, cargs } => {
                self.path(path);
                self.list("::<", cargs, ">", Printer::carg);
            }
            ExprKind::Tuple(values) => match &values[..] {
                [value] => {
                    self.put("(");
                    self.expr(value);
                    self.put(",)");
                }
                _ => self.list("(", values, ")", Printer::expr),
            },
            ExprKind::List(values) => self.list("[", values, "]", Printer::expr),
            ExprKind::Paren(value) => {
                self.put("(");
                self.expr(value);
                self.put(")");
            }
            ExprKind::Zeros { elem, dims } => self.shaped("zeros", elem, dims),
            ExprKind::Iota { elem, dims } => self.shaped("iota", elem, dims),
            ExprKind::Full { elem, dims, value } => {
                self.shaped("full", elem, dims);
                self.put("(");
                self.expr(value);
                self.put(")");
            }
            ExprKind::Bitcast { elem, value } => {
                self.put("bitcast<");
                self.path(elem);
                self.put(">(");
                self.expr(value);
                self.put(")");
            }
            ExprKind::Ptx {
                args,
                ty,
                otherwise,
            } => {
                self.put("ptx");
                self.args(args);
                self.put(" -> ");
                self.path(ty);
                self.put(" else ");
                self.expr(otherwise);
            }
            ExprKind::Unary { op, value } => {
                self.put(match op {
                    UnaryOp::Neg => "-",
                    UnaryOp::Not => "!",
                });
                self.expr(value);
            }
            ExprKind::Binary { op, left, right } => {
                self.expr(left);
                self.put(&format!(" {op} "));
                self.expr(right);
            }
            ExprKind::Cast { value, ty } => {
                self.expr(value);
                self.put(" as ");
                self.path(ty);
            }
            ExprKind::Await { value, lag } => {
                self.put("await ");
                self.expr(value);
                self.lag(*lag);
            }
            ExprKind::Get(channel) => {
                self.put("get ");
                self.channel(channel);
            }
            ExprKind::View(value) => {
                self.put("view ");
                self.expr(value);
            }
            ExprKind::Index { base, indices } => {
                self.expr(base);
                self.list("[", indices, "]", Printer::index);
            }
            ExprKind::Field { base, name } => {
                self.expr(base);
                self.put(".");
                self.name(name);
            }
            ExprKind::Element { base, index } => {
                self.expr(base);
                // `1.0` would be a number.
                let number = matches!(base.kind, ExprKind::Int(_) | ExprKind::Float(_));
                self.put(&format!("{}.{index}", if number { " " } else { "" }));
            }
            ExprKind::Call { callee, args } => {
                self.expr(callee);
                self.args(args);
            }
            ExprKind::If(i) => self.if_(i),
            ExprKind::Pingpong(p) => self.pingpong(p),
            ExprKind::Error => self.put("<error>"),
        }
    }

    fn args(&mut self, args: &[Arg]) {
        self.list("(", args, ")", |p, a| {
            if let Some(name) = &a.name {
                p.name(name);
                p.put(" = ");
            }
            p.expr(&a.value);
        });
    }

    fn index(&mut self, index: &Index) {
        match &index.kind {
            IndexKind::Expr(e) => self.expr(e),
            IndexKind::NewAxis => self.put("_"),
            IndexKind::Range { start, end } => {
                let wide =
                    start.is_some() && end.is_some() && !start.iter().chain(end).all(is_short);
                if let Some(start) = start {
                    self.expr(start);
                }
                self.put(if wide { " .. " } else { ".." });
                if let Some(end) = end {
                    self.expr(end);
                }
            }
            IndexKind::Slice {
                start,
                len,
                from,
                until,
            } => {
                self.expr(start);
                self.put(" +: ");
                self.expr(len);
                if let Some(from) = from {
                    self.put(" from ");
                    self.expr(from);
                }
                if let Some(until) = until {
                    self.put(" until ");
                    self.expr(until);
                }
            }
        }
    }

    fn string(&mut self, s: &str) {
        self.put("\"");
        for c in s.chars() {
            match c {
                '\n' => self.put("\\n"),
                '\t' => self.put("\\t"),
                '\r' => self.put("\\r"),
                '"' => self.put("\\\""),
                '\\' => self.put("\\\\"),
                c => self.out.push(c),
            }
        }
        self.put("\"");
    }

    fn path(&mut self, path: &Path) {
        for (i, segment) in path.segments.iter().enumerate() {
            self.put(if i > 0 { "::" } else { "" });
            self.name(segment);
        }
    }

    fn name(&mut self, name: &Ident) {
        self.put(&name.name);
    }
}

/// Whether `..` may follow without a space and still be read at a glance.
fn is_short(e: &Expr) -> bool {
    matches!(
        e.kind,
        ExprKind::Int(_)
            | ExprKind::Path(_)
            | ExprKind::Field { .. }
            | ExprKind::Call { .. }
            | ExprKind::Index { .. }
            | ExprKind::Paren(_)
    )
}
