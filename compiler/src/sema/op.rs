//! Ops: host scalars, workspaces and launches become formulas and lists.
//!
//! The body of an `op` is walked once. Integers over dimensions and scalar parameters become formulas, what `if` decides
//! becomes the condition of the launches in it, `for const` is written out, and a launch of another op is that op's launches.
//! Views move nothing: each is a tensor of the op with a list of transformations. What a launch gets is checked against the
//! kernel's signature as far as it is known here; the rest is checked when the op runs, before the first launch.

use std::rc::Rc;

use tesserine_set::{
    Access, DType, Fact, Formula, FormulaOp, OpRecord, ParamKind, Signature, Step, StepArg, Term,
    ViewArg, ViewBase, ViewStep, WorkspaceRecord,
};

use super::{
    Eval, Told,
    access::count,
    call::{Argument, CArgument, bare, list},
    eval::{Binding, Evaluator, Frame},
    host::MAX_TERMS,
    instance::{CArgs, Maker, find_item, make_given, named_instance, parse_instance, with_stack},
    modules::{Def, Module, Program, nearest},
    value::{Extent, Host, HostView, Symbol, TypeValue, Value},
};
use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    interp::floats,
    ir::{
        ValueId,
        op::{Launched, Op},
        tile::{Constant, OpKind},
    },
    span::Span,
    syntax::ast::{self, ExprKind, StmtKind},
    target::Target,
};

/// Ops that launch ops.
const MAX_NESTING: usize = 16;
/// Launches of one op.
const MAX_STEPS: usize = 1024;

/// The ops that a module declares, in source order.
pub fn ops(program: &Program, module: Module) -> Vec<String> {
    let items = program.ast(module).items.iter();
    items
        .filter_map(|item| match &item.kind {
            ast::ItemKind::Op(op) => Some(op.name.name.clone()),
            _ => None,
        })
        .collect()
}

/// Whether `text`, the name of an instance, is of an op of `module` or of one that it uses.
pub fn is_op(program: &Program, module: Module, text: &str) -> bool {
    parse_instance(text).is_ok_and(|(name, _)| find_op(program, module, &name).is_some())
}

fn find_op<'p>(program: &'p Program, module: Module, name: &str) -> Option<(Module, &'p ast::Op)> {
    match find_item(program, module, name)? {
        (owner, ast::ItemKind::Op(op)) => Some((owner, op)),
        _ => None,
    }
}

/// The op named `text`, with what it launches for `target`.
pub fn instantiate_op(
    program: &Program,
    module: Module,
    text: &str,
    target: Target,
) -> Result<Op, Diagnostics> {
    with_stack(|| {
        let mut diagnostics = Diagnostics::default();
        let found = parse_instance(text).ok().and_then(|(name, cargs)| {
            let (owner, op) = find_op(program, module, &name)?;
            Some((owner, op, cargs))
        });
        let Some((owner, op, cargs)) = found else {
            diagnostics.push(Diagnostic::error(
                codes::E0502,
                Span::NONE,
                format!("there is no `op` named `{text}`"),
            ));
            return Err(diagnostics);
        };
        let (made, diagnostics) = make_op(
            program,
            owner,
            op,
            CArgs::Written(module, &cargs),
            None,
            target,
        );
        match made {
            Some(made) if !diagnostics.has_errors() => Ok(made),
            _ => Err(diagnostics),
        }
    })
}

/// Makes an op that `owner` declares. `name`: of the instance, if it is not to be read off what is written.
pub(crate) fn make_op(
    program: &Program,
    owner: Module,
    op: &ast::Op,
    cargs: CArgs<'_, '_>,
    name: Option<String>,
    target: Target,
) -> (Option<Op>, Diagnostics) {
    let mut left = MAX_STEPS;
    make_nested(program, owner, op, cargs, name, target, (&[], &mut left))
}

fn make_nested(
    program: &Program,
    owner: Module,
    op: &ast::Op,
    cargs: CArgs<'_, '_>,
    name: Option<String>,
    target: Target,
    (around, left): (&[*const ast::Op], &mut usize),
) -> (Option<Op>, Diagnostics) {
    // The parameters of an op are those that a kernel has.
    let kernel = as_kernel(op);
    let name = name.unwrap_or_else(|| match cargs {
        CArgs::Written(_, cargs) => super::instance::instance_name(program, &op.name.name, cargs),
        CArgs::Values(values) => named_instance(&op.name.name, values),
    });
    let mut ev = Evaluator::new(program, target, owner);
    let mut nesting = around.to_vec();
    nesting.push(std::ptr::from_ref(op));
    let mut walk = Walk {
        target,
        when: None,
        stopped: None,
        workspaces: Vec::new(),
        steps: Vec::new(),
        instances: Vec::new(),
        requires: Vec::new(),
        nesting,
        left: *left,
        told: Diagnostics::default(),
    };
    let result = walk.op(&mut ev, &kernel, owner, op, cargs);
    *left = walk.left;
    let mut diagnostics = std::mem::take(&mut ev.diagnostics);
    diagnostics.extend(walk.told);
    if result.is_err() || diagnostics.has_errors() {
        return (None, diagnostics);
    }
    let made = Op {
        record: OpRecord {
            name,
            source: String::new(),
            source_hash: String::new(),
            signature: ev.signature,
            requires: walk.requires,
            workspaces: walk.workspaces,
            steps: walk.steps,
        },
        instances: walk.instances,
        span: op.name.span,
    };
    (Some(made), diagnostics)
}

/// A kernel with the parameters of an op and no body.
pub(crate) fn as_kernel(op: &ast::Op) -> ast::Kernel {
    let span = op.name.span;
    ast::Kernel {
        name: op.name.clone(),
        signature: Some(ast::Signature {
            cparams: op.cparams.clone(),
            params: op.params.clone(),
        }),
        targets: None,
        wheres: Vec::new(),
        grid: ast::Grid {
            persistent: false,
            dynamic: false,
            axes: Vec::new(),
            order: Vec::new(),
            span,
        },
        body: ast::Block {
            stmts: Vec::new(),
            value: None,
            span,
        },
    }
}

struct Walk {
    target: Target,
    /// Under which condition the statement being walked runs.
    when: Option<Formula>,
    /// Under which condition a `return` has been met.
    stopped: Option<Formula>,
    workspaces: Vec<WorkspaceRecord>,
    steps: Vec<Step>,
    instances: Vec<Launched>,
    requires: Vec<Fact>,
    /// Launches that may still be walked, those of inner ops included.
    left: usize,
    /// The ops being walked, outermost first.
    nesting: Vec<*const ast::Op>,
    /// What was said of the kernels that are launched.
    told: Diagnostics,
}

/// What a launch passes for the parameters of its kernel or op, by flattened names.
struct Passed<'a> {
    list: Vec<(String, Value<'a>, Span)>,
}

impl Walk {
    fn op<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        kernel: &'a ast::Kernel,
        owner: Module,
        op: &'a ast::Op,
        cargs: CArgs<'_, 'a>,
    ) -> Eval<()> {
        Maker::new(ev, kernel, owner).head(cargs)?;
        for fact in &op.wheres {
            let mut facts = Vec::new();
            ev.facts(fact, &mut facts)?;
            self.requires.append(&mut facts);
        }
        self.block(ev, &op.body)?;
        if self.steps.is_empty() && !ev.diagnostics.has_errors() && !self.told.has_errors() {
            return ev.fail(
                Diagnostic::error(
                    codes::E0508,
                    op.name.span,
                    format!("`{}` launches nothing", op.name.name),
                )
                .help("an `op` is a sequence of launches: `launch kernel(…);`"),
            );
        }
        Ok(())
    }

    fn block<'a>(&mut self, ev: &mut Evaluator<'a>, block: &'a ast::Block) -> Eval<()> {
        ev.frame().scopes.push(indexmap::IndexMap::new());
        let mut told = None;
        for stmt in &block.stmts {
            if let Err(t) = self.stmt(ev, stmt) {
                told = Some(t);
                // What it was to bind is bound, so that nothing more is said of it.
                match &stmt.kind {
                    StmtKind::Let { pat, .. } => bind_errors(ev, pat),
                    StmtKind::Workspace { name, .. } => ev.bind(name, Value::Error, false),
                    _ => {}
                }
            }
        }
        ev.frame().scopes.pop();
        if let Some(value) = &block.value {
            return ev.error(
                codes::E0508,
                value.span,
                "an `op` has no value: it launches kernels",
            );
        }
        told.map_or(Ok(()), Err)
    }

    /// Under which condition a statement that stands here runs.
    fn guard(&self) -> Option<Formula> {
        let live = self
            .stopped
            .clone()
            .map(|stopped| Formula::unary(FormulaOp::Not, stopped));
        Formula::both(live, self.when.clone())
    }

    fn stmt<'a>(&mut self, ev: &mut Evaluator<'a>, stmt: &'a ast::Stmt) -> Eval<()> {
        ev.step(stmt.span)?;
        match &stmt.kind {
            StmtKind::Let { pat, value, ty } => {
                let value = self.value(ev, value)?;
                let value = match (&value, ty) {
                    (Value::Host(_), _) | (_, None) => value,
                    _ => ev.annotated(value, ty.as_ref(), stmt.span)?,
                };
                bind_pattern(ev, pat, value)
            }
            StmtKind::Assign {
                target,
                op,
                value,
                scatter: false,
            } => self.assign(ev, target, *op, value),
            StmtKind::If(branch) => self.branch(ev, branch),
            StmtKind::For(loop_) if loop_.constant => self.unroll(ev, loop_, stmt.span),
            StmtKind::For(_) | StmtKind::While { .. } => ev.fail(
                Diagnostic::error(
                    codes::E0508,
                    stmt.span,
                    "an `op` is a list of launches, so its loops have constant bounds",
                )
                .help("write `for const i in a..b`, or put the loop into a kernel"),
            ),
            StmtKind::Return(None) => {
                let here = self.guard().unwrap_or(Formula::int(1));
                self.stopped = Some(match self.stopped.take() {
                    Some(before) => Formula::binary(FormulaOp::Or, before, here),
                    None => here,
                });
                Ok(())
            }
            StmtKind::Assert {
                constant: true,
                args,
            } => ev.assert(true, args, stmt.span),
            StmtKind::Expr(expr) => self.expression(ev, expr),
            StmtKind::Workspace { name, ty, fill } => self.workspace(ev, name, ty, fill.as_ref()),
            StmtKind::Launch {
                kernel,
                cargs,
                args,
            } => self.launch(ev, kernel, cargs, args, stmt.span),
            StmtKind::Error => Err(Told),
            _ => ev.fail(
                Diagnostic::error(
                    codes::E0508,
                    stmt.span,
                    "this is for kernels, and an `op` only launches them",
                )
                .note("an `op` has `let`, `if`, `for const`, `workspace` and `launch`"),
            ),
        }
    }

    fn expression<'a>(&mut self, ev: &mut Evaluator<'a>, expr: &'a ast::Expr) -> Eval<()> {
        if let ExprKind::Call { callee, args } = &expr.kind
            && bare(callee).is_some_and(|n| n.name == "assume")
            && let [ast::Arg { value, .. }, ..] = &args[..]
        {
            let mut facts = Vec::new();
            ev.facts(value, &mut facts)?;
            let guard = self.guard();
            for fact in facts {
                self.require(fact, guard.as_ref());
            }
            return Ok(());
        }
        ev.fail(
            Diagnostic::error(codes::E0508, expr.span, "this has no effect in an `op`")
                .help("name the result with `let`, or launch a kernel: `launch kernel(…);`"),
        )
    }

    /// Asks for a fact where `guard` holds.
    fn require(&mut self, fact: Fact, guard: Option<&Formula>) {
        self.requires.push(match (fact, guard) {
            (Fact::Holds(formula), Some(guard)) => {
                let not = Formula::unary(FormulaOp::Not, guard.clone());
                Fact::Holds(Formula::binary(FormulaOp::Or, not, formula))
            }
            (fact, _) => fact,
        });
    }

    fn assign<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        target: &'a ast::Expr,
        op: ast::AssignOp,
        value: &'a ast::Expr,
    ) -> Eval<()> {
        let Some(name) = bare(target) else {
            return ev.error(
                codes::E0508,
                target.span,
                "an `op` stores nothing itself: it launches kernels that do",
            );
        };
        let right = self.scalar(ev, value)?;
        match ev.local(&name.name) {
            None => return Err(ev.unknown(name)),
            Some(binding) if !binding.mutable => {
                let at = binding.span;
                return ev.fail(
                    Diagnostic::error(
                        codes::E0111,
                        target.span,
                        format!("`{}` is not `mut`", name.name),
                    )
                    .label(at, "bound here")
                    .help(format!("write `let mut {}`", name.name)),
                );
            }
            Some(_) => {}
        }
        let before = self.scalar(ev, target)?;
        let after = match op {
            ast::AssignOp::Set => right,
            ast::AssignOp::Add => Formula::binary(FormulaOp::Add, before.clone(), right),
            ast::AssignOp::Sub => Formula::binary(FormulaOp::Sub, before.clone(), right),
            ast::AssignOp::Mul => Formula::binary(FormulaOp::Mul, before.clone(), right),
            ast::AssignOp::Or => Formula::binary(FormulaOp::Or, before.clone(), right),
            ast::AssignOp::And => Formula::binary(FormulaOp::And, before.clone(), right),
        };
        let after = match self.guard() {
            Some(guard) => Formula::select(guard, after, before),
            None => after,
        };
        let after = sized(ev, after, value.span)?;
        if let Some(binding) = ev.local_mut(&name.name) {
            binding.value = host(after);
        }
        Ok(())
    }

    fn branch<'a>(&mut self, ev: &mut Evaluator<'a>, branch: &'a ast::If) -> Eval<()> {
        let condition = self.scalar(ev, &branch.cond)?;
        if branch.constant && condition.as_int().is_none() {
            return ev.error(
                codes::E0301,
                branch.cond.span,
                "the condition of `if const` is known when the op runs only",
            );
        }
        let outer = self.when.clone();
        let mut result = Ok(());
        if condition.as_int() != Some(0) {
            self.when = Formula::both(outer.clone(), Some(truth(condition.clone())));
            result = self.block(ev, &branch.then);
        }
        if condition.as_int().is_none_or(|c| c == 0)
            && let Some(els) = &branch.els
        {
            let not = Formula::unary(FormulaOp::Not, condition);
            self.when = Formula::both(outer.clone(), Some(not));
            let other = match &**els {
                ast::Else::If(inner) => self.branch(ev, inner),
                ast::Else::Block(block) => self.block(ev, block),
            };
            result = result.and(other);
        }
        self.when = outer;
        result
    }

    fn unroll<'a>(&mut self, ev: &mut Evaluator<'a>, loop_: &'a ast::For, span: Span) -> Eval<()> {
        let ([lo, hi], None) = (&loop_.bounds[..], &loop_.part) else {
            return ev.error(
                codes::E0508,
                span,
                "a loop of an `op` has two bounds: `for const i in a..b`",
            );
        };
        let lo = ev.const_int(lo, "a bound of `for const`")?;
        let hi = ev.const_int(hi, "a bound of `for const`")?;
        let step = match &loop_.step {
            Some(step) => ev.const_int(step, "the step of `for const`")?,
            None => 1,
        };
        if step < 1 {
            return ev.error(codes::E0305, span, "a step must be positive");
        }
        let mut indices = Vec::new();
        let mut i = lo;
        while i < hi {
            indices.push(i);
            if indices.len() > MAX_STEPS {
                return ev.error(
                    codes::E0305,
                    span,
                    format!("an `op` has at most {MAX_STEPS} launches"),
                );
            }
            let Some(next) = i.checked_add(step) else {
                break;
            };
            i = next;
        }
        if loop_.rev {
            indices.reverse();
        }
        for i in indices {
            ev.frame().scopes.push(indexmap::IndexMap::new());
            ev.bind(&loop_.index, Value::Int(i.into()), false);
            let result = self.block(ev, &loop_.body);
            ev.frame().scopes.pop();
            result?;
        }
        Ok(())
    }

    fn workspace<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        name: &'a ast::Ident,
        ty: &'a ast::Type,
        fill: Option<&'a ast::Expr>,
    ) -> Eval<()> {
        let ast::TypeKind::View {
            elem,
            dims,
            layout,
            facts,
            ..
        } = &ty.kind
        else {
            return ev.fail(
                Diagnostic::error(codes::E0507, ty.span, "a workspace is a view")
                    .help(format!("write `workspace {}: view<f32>[n];`", name.name)),
            );
        };
        if let Some(layout) = layout {
            return ev.error(
                codes::E0507,
                layout.span,
                "a workspace lies in rows, and in no layout",
            );
        }
        if !facts.is_empty() {
            return ev.error(
                codes::E0507,
                ty.span,
                "facts about a workspace belong to the kernels that take it",
            );
        }
        if dims.is_empty() || dims.len() > 8 {
            return ev.error(
                codes::E0507,
                ty.span,
                format!(
                    "a view has from 1 to 8 dimensions, and `{}` has {}",
                    name.name,
                    dims.len()
                ),
            );
        }
        let dtype = ev.elem_type(elem)?;
        let mut extents = Vec::new();
        for dim in dims {
            let extent = self.scalar(ev, &dim.expr)?;
            if extent.as_int().is_some_and(|e| e < 0) {
                return ev.error(codes::E0507, dim.expr.span, "this extent is negative");
            }
            extents.push(extent);
        }
        let fill = match fill {
            Some(expr) => Some(fill_bits(ev, expr, dtype)?),
            None => None,
        };
        let index = self.workspaces.len() as u32;
        let taken = self.workspaces.iter().filter(|w| {
            w.name == name.name
                || w.name
                    .strip_prefix(&name.name)
                    .is_some_and(|r| r.starts_with('.'))
        });
        let unique = match taken.count() {
            0 => name.name.clone(),
            n => format!("{}.{}", name.name, n + 1),
        };
        self.workspaces.push(WorkspaceRecord {
            name: unique,
            dtype,
            extents: extents.clone(),
            when: self.guard(),
            fill,
            // Until a launch shows that it does more than count.
            once: fill == Some(0),
        });
        let view = HostView {
            name: name.name.clone(),
            arg: ViewArg {
                base: ViewBase::Workspace(index),
                steps: Vec::new(),
            },
            dtype,
            access: Access::ReadWrite,
            extents,
        };
        ev.bind(name, Value::Host(Rc::new(Host::View(view))), false);
        Ok(())
    }

    // Values.

    /// What a `let` names or a launch gets: a view, a host scalar, a constant, or what is made of them.
    fn value<'a>(&mut self, ev: &mut Evaluator<'a>, expr: &'a ast::Expr) -> Eval<Value<'a>> {
        if let Some(view) = self.view(ev, expr)? {
            return Ok(Value::Host(Rc::new(Host::View(view))));
        }
        if is_if(expr) {
            return Ok(host(self.scalar(ev, expr)?));
        }
        let value = ev.expr(expr)?;
        match &value {
            Value::Run(id) if ev.is_scalar(*id) && !ev.body.ty(*id).elem().is_float() => {
                Ok(host(self.scalar(ev, expr)?))
            }
            _ => Ok(value),
        }
    }

    /// An integer or condition as a formula.
    fn scalar<'a>(&mut self, ev: &mut Evaluator<'a>, expr: &'a ast::Expr) -> Eval<Formula> {
        match &expr.kind {
            ExprKind::Paren(inner) if is_if(inner) => self.scalar(ev, inner),
            ExprKind::If(branch) => self.choice(ev, branch, expr.span),
            _ => match ev.formula(expr, false) {
                Ok(formula) => sized(ev, formula, expr.span),
                Err(None) => Err(Told),
                Err(Some((span, why))) => ev.fail(Diagnostic::error(codes::E0508, span, why).note(
                    "an `op` decides by dimensions and integer parameters, before anything has run",
                )),
            },
        }
    }

    /// `if c { a } else { b }` of scalars.
    fn choice<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        branch: &'a ast::If,
        span: Span,
    ) -> Eval<Formula> {
        let condition = self.scalar(ev, &branch.cond)?;
        let yes = self.arm(ev, &branch.then)?;
        let no = match branch.els.as_deref() {
            Some(ast::Else::If(inner)) => self.choice(ev, inner, span)?,
            Some(ast::Else::Block(block)) => self.arm(ev, block)?,
            None => {
                return ev.error(
                    codes::E0508,
                    span,
                    "this `if` has no value without an `else`",
                );
            }
        };
        sized(ev, Formula::select(condition, yes, no), span)
    }

    fn arm<'a>(&mut self, ev: &mut Evaluator<'a>, block: &'a ast::Block) -> Eval<Formula> {
        ev.frame().scopes.push(indexmap::IndexMap::new());
        let mut result = Ok(());
        for stmt in &block.stmts {
            result = match &stmt.kind {
                StmtKind::Let { .. } => self.stmt(ev, stmt),
                _ => ev.error(
                    codes::E0508,
                    stmt.span,
                    "only `let` may stand before the value of this `if`",
                ),
            };
            if result.is_err() {
                break;
            }
        }
        let value = match (&block.value, result) {
            (_, Err(told)) => Err(told),
            (Some(value), Ok(())) => self.scalar(ev, value),
            (None, Ok(())) => ev.error(codes::E0508, block.span, "this arm has no value"),
        };
        ev.frame().scopes.pop();
        value
    }

    /// The view that an expression is; `None` if it is none.
    fn view<'a>(&mut self, ev: &mut Evaluator<'a>, expr: &'a ast::Expr) -> Eval<Option<HostView>> {
        match &expr.kind {
            ExprKind::Paren(inner) => self.view(ev, inner),
            ExprKind::Path(path) => {
                let Some(name) = path.as_ident() else {
                    return Ok(None);
                };
                Ok(ev.local(&name.name).and_then(|b| as_view(&b.value)))
            }
            ExprKind::View(inner) => {
                let ExprKind::Index { base, indices } = &inner.kind else {
                    return self.view(ev, inner);
                };
                let Some(view) = self.view(ev, base)? else {
                    return Ok(None);
                };
                self.sub_view(ev, view, indices, inner.span).map(Some)
            }
            ExprKind::Field { base, name } => match self.view(ev, base)? {
                Some(view) if name.name == "t" => transposed(ev, view, expr.span).map(Some),
                Some(_) => Ok(None),
                None => {
                    let Some(owner) = bare(base) else {
                        return Ok(None);
                    };
                    let field = ev
                        .local(&owner.name)
                        .and_then(|b| b.value.field(&name.name));
                    Ok(field.as_ref().and_then(as_view))
                }
            },
            ExprKind::Bitcast { elem, value } => {
                let Some(mut view) = self.view(ev, value)? else {
                    return Ok(None);
                };
                let dtype = ev.elem_type(elem)?;
                let (old, new) = (i64::from(view.dtype.bits()), i64::from(dtype.bits()));
                if let Some(last) = view.extents.last_mut().filter(|_| old != new) {
                    let bits = Formula::binary(FormulaOp::Mul, last.clone(), Formula::int(old));
                    *last = match last.as_int() {
                        Some(n) if i128::from(n) * i128::from(old) % i128::from(new) != 0 => {
                            return ev.error(
                                codes::E0507,
                                expr.span,
                                format!(
                                    "{n} elements of `{}` are no number of `{dtype}`",
                                    view.dtype
                                ),
                            );
                        }
                        _ => Formula::binary(FormulaOp::Div, bits, Formula::int(new)),
                    };
                }
                view.dtype = dtype;
                view.arg.steps.push(ViewStep::Bitcast(dtype));
                Ok(Some(view))
            }
            ExprKind::Call { callee, args } => {
                let ExprKind::Field { base, name } = &callee.kind else {
                    return Ok(None);
                };
                if !matches!(name.name.as_str(), "permute" | "split" | "merge") {
                    return Ok(None);
                }
                let Some(view) = self.view(ev, base)? else {
                    return Ok(None);
                };
                self.method(ev, view, name, args, expr.span).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn method<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        mut view: HostView,
        name: &'a ast::Ident,
        args: &'a [ast::Arg],
        span: Span,
    ) -> Eval<HostView> {
        let rank = view.extents.len();
        let wrong = |ev: &mut Evaluator<'a>, how: &str| {
            ev.fail(
                Diagnostic::error(
                    codes::E0107,
                    span,
                    format!("`{}` does not fit a view of {rank} dimensions", name.name),
                )
                .help(format!("write `{how}`")),
            )
        };
        let mut dims = Vec::new();
        match (name.name.as_str(), args) {
            ("permute", [ast::Arg { value, .. }]) => {
                let ExprKind::List(items) = &value.kind else {
                    return wrong(ev, "view.permute([1, 0])");
                };
                for item in items {
                    dims.push(ev.const_int(item, "a dimension")?);
                }
                let mut sorted = dims.clone();
                sorted.sort_unstable();
                if sorted != (0..rank as i64).collect::<Vec<_>>() {
                    return wrong(ev, "view.permute([1, 0])");
                }
                view.extents = dims
                    .iter()
                    .map(|d| view.extents[*d as usize].clone())
                    .collect();
                let perm = dims.iter().map(|d| *d as u32).collect();
                view.arg.steps.push(ViewStep::Permute(perm));
            }
            ("merge", [i, j]) => {
                let i = ev.const_int(&i.value, "a dimension")?;
                let j = ev.const_int(&j.value, "a dimension")?;
                if i < 0 || j != i + 1 || j >= rank as i64 {
                    return wrong(ev, "view.merge(0, 1)");
                }
                let i = i as usize;
                let second = view.extents.remove(i + 1);
                let first = view.extents[i].clone();
                view.extents[i] = Formula::binary(FormulaOp::Mul, first, second);
                view.arg.steps.push(ViewStep::Merge { dim: i as u32 });
            }
            ("split", [i, by]) => {
                let i = ev.const_int(&i.value, "a dimension")?;
                let by = self.scalar(ev, &by.value)?;
                if !(0..rank as i64).contains(&i) || by.as_int().is_some_and(|b| b < 1) {
                    return wrong(ev, "view.split(0, 16)");
                }
                let i = i as usize;
                let outer = Formula::binary(FormulaOp::Div, view.extents[i].clone(), by.clone());
                view.extents.splice(i..=i, [outer, by.clone()]);
                view.arg.steps.push(ViewStep::Split { dim: i as u32, by });
            }
            ("permute", _) => return wrong(ev, "view.permute([1, 0])"),
            ("merge", _) => return wrong(ev, "view.merge(0, 1)"),
            _ => return wrong(ev, "view.split(0, 16)"),
        }
        Ok(view)
    }

    fn sub_view<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        mut view: HostView,
        indices: &'a [ast::Index],
        span: Span,
    ) -> Eval<HostView> {
        if indices.len() > view.extents.len() {
            return ev.error(
                codes::E0202,
                span,
                format!(
                    "`{}` has {}, and {} are indexed",
                    view.name,
                    count(view.extents.len(), "dimension"),
                    indices.len()
                ),
            );
        }
        let mut dim = 0;
        for index in indices {
            let extent = view.extents[dim].clone();
            match &index.kind {
                ast::IndexKind::Range {
                    start: None,
                    end: None,
                } => dim += 1,
                ast::IndexKind::Range { start, end } => {
                    let from = match start {
                        Some(start) => self.scalar(ev, start)?,
                        None => Formula::int(0),
                    };
                    let to = match end {
                        Some(end) => self.scalar(ev, end)?,
                        None => extent.clone(),
                    };
                    let clamp = |x: Formula, lo: Formula| {
                        let above = Formula::binary(FormulaOp::Max, x, lo);
                        Formula::binary(FormulaOp::Min, above, extent.clone())
                    };
                    let low = clamp(from.clone(), Formula::int(0));
                    let high = clamp(to.clone(), low.clone());
                    view.extents[dim] =
                        sized(ev, Formula::binary(FormulaOp::Sub, high, low), index.span)?;
                    view.arg.steps.push(ViewStep::Slice {
                        dim: dim as u32,
                        from,
                        to,
                    });
                    dim += 1;
                }
                ast::IndexKind::Expr(expr) => {
                    let index = self.scalar(ev, expr)?;
                    view.extents.remove(dim);
                    view.arg.steps.push(ViewStep::Select {
                        dim: dim as u32,
                        index,
                    });
                }
                ast::IndexKind::NewAxis | ast::IndexKind::Slice { .. } => {
                    return ev.fail(
                        Diagnostic::error(
                            codes::E0508,
                            index.span,
                            "a sub-view takes whole axes, ranges `a .. b` and single indices",
                        )
                        .help("write `view x[a .. b, ..]`"),
                    );
                }
            }
        }
        Ok(view)
    }

    // Launches.

    fn launch<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        path: &'a ast::Path,
        cargs: &'a [ast::CArg],
        args: &'a [ast::Arg],
        span: Span,
    ) -> Eval<()> {
        let program = ev.program;
        let (owner, item) = self.find(ev, path)?;
        let mut values: Vec<CArgument<'a>> = ev.cargs(cargs)?;
        let name = &path.segments.last().expect("a path has a segment").name;
        let (cparams, params) = match item {
            ast::ItemKind::Kernel(kernel) => match &kernel.signature {
                Some(signature) => (&signature.cparams, &signature.params),
                None => return Err(Told),
            },
            ast::ItemKind::Op(op) => (&op.cparams, &op.params),
            _ => return Err(Told),
        };
        let names: Vec<&str> = params.iter().map(|p| p.name.name.as_str()).collect();
        let mut evaluated = Vec::new();
        for arg in args {
            evaluated.push(Argument {
                name: arg.name.as_ref(),
                value: self.value(ev, &arg.value)?,
                span: arg.value.span,
            });
        }
        let placed = ev.place(name, &names, evaluated, span)?;
        let mut passed = Passed { list: Vec::new() };
        for (param, arg) in params.iter().zip(placed) {
            let Some(arg) = arg else { continue };
            // A variant says by its value which it is.
            if let Some(ast::TypeKind::Path { path, .. }) = param.ty.as_ref().map(|t| &t.kind)
                && let Some(place) = cparams
                    .iter()
                    .position(|c| path.as_ident().is_some_and(|n| n.name == c.name.name))
                && let Value::Variant(variant) = &arg.value
                && !values.iter().enumerate().any(|(i, (name, ..))| match name {
                    Some(name) => name.name == cparams[place].name.name,
                    None => i == place,
                })
            {
                let ty = Value::Type(TypeValue::Variant(variant.ty.clone()));
                let default = cparams[place].default.as_ref().and_then(|default| {
                    ev.frames.push(Frame::new(owner));
                    let value = ev.cvalue(default).ok();
                    ev.frames.pop();
                    value
                });
                if default.is_some_and(|default| default.same(&ty)) {
                    passed.flatten(&param.name.name, arg.value, arg.span);
                    continue;
                }
                values.push((Some(&cparams[place].name), ty, arg.span));
            }
            passed.flatten(&param.name.name, arg.value, arg.span);
        }
        let text = named_instance(name, &values);
        if self.left == 0 || self.steps.len() >= MAX_STEPS {
            return ev.error(
                codes::E0305,
                span,
                format!("an `op` has at most {MAX_STEPS} launches"),
            );
        }
        self.left -= 1;
        match item {
            ast::ItemKind::Kernel(kernel) => {
                let known = self
                    .instances
                    .iter()
                    .position(|l| l.instance.name == text && l.module == owner);
                let index = match known {
                    Some(index) => index,
                    None => {
                        let (instance, diagnostics) = make_given(
                            program,
                            owner,
                            kernel,
                            text.clone(),
                            CArgs::Values(&values),
                            self.target,
                        );
                        self.tell(ev, diagnostics, &text, span);
                        let Some(instance) = instance else {
                            return Err(Told);
                        };
                        self.instances.push(Launched {
                            instance,
                            module: owner,
                        });
                        self.instances.len() - 1
                    }
                };
                let header = &self.instances[index].instance.bodies[0].header;
                let signature = header.signature.clone();
                let args = self.arguments(ev, &text, &signature, passed, span)?;
                self.note_uses(index, &args);
                let when = self.guard();
                if let Some(when) = &when {
                    sized(ev, when.clone(), span)?;
                }
                self.steps.push(Step {
                    instance: index as u32,
                    when,
                    args,
                });
                Ok(())
            }
            ast::ItemKind::Op(op) => {
                let key: *const ast::Op = op;
                if self.nesting.contains(&key) || self.nesting.len() >= MAX_NESTING {
                    return ev.fail(
                        Diagnostic::error(codes::E0112, span, format!("`{name}` launches itself"))
                            .label(op.name.span, "defined here"),
                    );
                }
                let (made, diagnostics) = make_nested(
                    program,
                    owner,
                    op,
                    CArgs::Values(&values),
                    Some(text.clone()),
                    self.target,
                    (&self.nesting, &mut self.left),
                );
                self.tell(ev, diagnostics, &text, span);
                let Some(made) = made else {
                    return Err(Told);
                };
                let signature = made.record.signature.clone();
                let args = self.arguments(ev, &text, &signature, passed, span)?;
                self.splice(ev, made, &args, span)
            }
            _ => Err(Told),
        }
    }

    /// Passes on what was said of a kernel that is launched, with the launch that led to it.
    fn tell(&mut self, ev: &Evaluator<'_>, diagnostics: Diagnostics, name: &str, span: Span) {
        for mut diagnostic in diagnostics {
            diagnostic.calls.push((span, name.to_owned()));
            diagnostic.calls.extend(ev.calls.iter().rev().cloned());
            self.told.push(diagnostic);
        }
    }

    fn find<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        path: &'a ast::Path,
    ) -> Eval<(Module, &'a ast::ItemKind)> {
        let program = ev.program;
        let found = match &path.segments[..] {
            [name] => program.lookup(ev.module(), &name.name),
            [module, name] => match program.lookup(ev.module(), &module.name) {
                Some(Def::Module(m)) => program.lookup(m, &name.name),
                _ => None,
            },
            _ => None,
        };
        let last = path.segments.last().expect("a path has a segment");
        if let Some(Def::Item(owner, index)) = found {
            let item = &program.item(owner, index).kind;
            match item {
                ast::ItemKind::Kernel(kernel) if kernel.signature.is_some() => {
                    return Ok((owner, item));
                }
                ast::ItemKind::Op(_) => return Ok((owner, item)),
                _ => {
                    return ev.error(
                        codes::E0108,
                        path.span,
                        format!(
                            "`{}` is neither a kernel nor an `op`, and only these are launched",
                            last.name
                        ),
                    );
                }
            }
        }
        let mut diagnostic = Diagnostic::error(
            codes::E0101,
            path.span,
            format!("there is no kernel or `op` named `{}` here", last.name),
        );
        if let Some(near) = nearest(&last.name, program.names(ev.module())) {
            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
        }
        ev.fail(diagnostic)
    }

    /// What is passed, in the order of the parameters of what is launched.
    fn arguments<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        callee: &str,
        signature: &Signature,
        passed: Passed<'a>,
        span: Span,
    ) -> Eval<Vec<Option<StepArg>>> {
        let mut args = Vec::with_capacity(signature.params.len());
        let mut dims: Vec<Option<Formula>> = vec![None; signature.dims.len()];
        let mut views: Vec<(usize, HostView, Span)> = Vec::new();
        for (name, value, at) in &passed.list {
            if signature.param(name).is_none() {
                let what = ev.describe(value);
                return ev.fail(
                    Diagnostic::error(
                        codes::E0506,
                        *at,
                        format!("`{callee}` takes no {what} for `{name}`"),
                    )
                    .note(format!(
                        "it takes {}",
                        list(
                            &signature
                                .params
                                .iter()
                                .map(|p| p.name.as_str())
                                .collect::<Vec<_>>()
                        )
                    )),
                );
            }
        }
        for (index, param) in signature.params.iter().enumerate() {
            let given = passed.list.iter().find(|(name, ..)| *name == param.name);
            let Some((_, value, at)) = given else {
                let default = matches!(
                    param.kind,
                    ParamKind::Scalar {
                        default: Some(_),
                        ..
                    }
                );
                if !param.optional && !default {
                    return ev.error(
                        codes::E0506,
                        span,
                        format!("`{callee}` needs an argument for `{}`", param.name),
                    );
                }
                args.push(None);
                continue;
            };
            match &param.kind {
                ParamKind::View(wanted) => {
                    let Some(view) = as_view(value) else {
                        let what = ev.describe(value);
                        return ev.error(
                            codes::E0506,
                            *at,
                            format!(
                                "`{}` of `{callee}` is a view, and this is {what}",
                                param.name
                            ),
                        );
                    };
                    if view.dtype != wanted.dtype {
                        return ev.fail(
                            Diagnostic::error(
                                codes::E0506,
                                *at,
                                format!(
                                    "`{}` of `{callee}` is a view of `{}`, and `{}` is of `{}`",
                                    param.name, wanted.dtype, view.name, view.dtype
                                ),
                            )
                            .note("a launch converts nothing"),
                        );
                    }
                    if view.extents.len() != wanted.extents.len() {
                        return ev.error(
                            codes::E0506,
                            *at,
                            format!(
                                "`{}` of `{callee}` has {}, and `{}` has {}",
                                param.name,
                                count(wanted.extents.len(), "dimension"),
                                view.name,
                                view.extents.len()
                            ),
                        );
                    }
                    if wanted.access != Access::Read && view.access == Access::Read {
                        return ev.fail(
                            Diagnostic::error(
                                codes::E0506,
                                *at,
                                format!(
                                    "`{callee}` stores to `{}`, and `{}` is read-only",
                                    param.name, view.name
                                ),
                            )
                            .help(format!("declare it as `{}: out view<…>[…]`", view.name)),
                        );
                    }
                    for (extent, formula) in view.extents.iter().zip(&wanted.extents) {
                        if let Some(dim) = formula.as_dim() {
                            dims[dim as usize].get_or_insert_with(|| extent.clone());
                        }
                    }
                    args.push(Some(StepArg::View(view.arg.clone())));
                    views.push((index, view, *at));
                }
                ParamKind::Scalar { dtype, .. } => {
                    let arg = self.scalar_arg(ev, value, *dtype, &param.name, *at)?;
                    args.push(Some(arg));
                }
            }
        }
        self.check_shapes(ev, callee, signature, &views, &dims, &args)?;
        Ok(args)
    }

    /// What the shapes of a launch contradict already.
    fn check_shapes(
        &mut self,
        ev: &mut Evaluator<'_>,
        callee: &str,
        signature: &Signature,
        views: &[(usize, HostView, Span)],
        dims: &[Option<Formula>],
        args: &[Option<StepArg>],
    ) -> Eval<()> {
        for (index, view, at) in views {
            let param = &signature.params[*index];
            let ParamKind::View(wanted) = &param.kind else {
                continue;
            };
            for (dim, (formula, extent)) in wanted.extents.iter().zip(&view.extents).enumerate() {
                let known = formula.substitute(|term| match term {
                    Term::Dim(d) => dims.get(d as usize).cloned().flatten(),
                    Term::Scalar(p) => match args.get(p as usize) {
                        Some(Some(StepArg::Int(formula))) => Some(formula.clone()),
                        _ => None,
                    },
                    _ => None,
                });
                let both = (known.and_then(|k| k.as_int()), extent.as_int());
                if let (Some(wanted), Some(found)) = both
                    && wanted != found
                {
                    return ev.fail(
                        Diagnostic::error(
                            codes::E0506,
                            *at,
                            format!(
                                "dimension {dim} of `{}` has {found} elements, and `{}` of `{callee}` has {wanted}",
                                view.name, param.name
                            ),
                        )
                        .note(format!(
                            "it is declared `{}`",
                            signature.show(formula)
                        )),
                    );
                }
            }
        }
        Ok(())
    }

    fn scalar_arg<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        value: &Value<'a>,
        dtype: DType,
        name: &str,
        span: Span,
    ) -> Eval<StepArg> {
        let wrong = |ev: &mut Evaluator<'a>| {
            let what = ev.describe(value);
            ev.fail(
                Diagnostic::error(
                    codes::E0506,
                    span,
                    format!("`{name}` is a scalar of `{dtype}`, and {what} cannot be passed for it"),
                )
                .note("a launch of an `op` passes constants, formulas over dimensions and integer parameters, and parameters as they are"),
            )
        };
        match value {
            Value::Int(v) => match i64::try_from(*v) {
                Ok(v) if dtype.is_float() => Ok(StepArg::Float((v as f64).to_bits())),
                Ok(v) => Ok(StepArg::Int(Formula::int(v))),
                Err(_) => wrong(ev),
            },
            Value::Bool(v) if dtype == DType::Bool => Ok(StepArg::Int(Formula::int((*v).into()))),
            Value::Float(v, _) if dtype.is_float() => Ok(StepArg::Float(v.to_bits())),
            Value::Symbol(Symbol::Param(param)) => Ok(StepArg::Scalar { param: *param }),
            Value::Symbol(Symbol::Dim(dim)) => Ok(StepArg::Int(Formula::dim(*dim))),
            Value::Host(host) => match &**host {
                Host::Formula(formula) => match formula.0[..] {
                    [Term::Scalar(param)] => Ok(StepArg::Scalar { param }),
                    _ => Ok(StepArg::Int(formula.clone())),
                },
                Host::View(_) => wrong(ev),
            },
            Value::Run(id) => match traced(ev, *id) {
                Some(StepArg::Int(formula)) => Ok(StepArg::Int(formula)),
                Some(arg) if dtype.is_float() => Ok(arg),
                _ => wrong(ev),
            },
            _ => wrong(ev),
        }
    }

    /// A workspace is filled once if no launch does more with it than count arrivals.
    fn note_uses(&mut self, instance: usize, args: &[Option<StepArg>]) {
        for (param, arg) in args.iter().enumerate() {
            let Some(StepArg::View(ViewArg {
                base: ViewBase::Workspace(workspace),
                ..
            })) = arg
            else {
                continue;
            };
            let bodies = &self.instances[instance].instance.bodies;
            if !bodies
                .iter()
                .all(|body| only_arrives(&body.body, param as u32))
            {
                self.workspaces[*workspace as usize].once = false;
            }
        }
    }

    /// Puts the launches of an inner op in the place of its launch.
    fn splice(
        &mut self,
        ev: &mut Evaluator<'_>,
        inner: Op,
        args: &[Option<StepArg>],
        span: Span,
    ) -> Eval<()> {
        let record = inner.record;
        let views: Vec<Option<&ViewArg>> = args
            .iter()
            .map(|arg| match arg {
                Some(StepArg::View(view)) => Some(view),
                _ => None,
            })
            .collect();
        let dims = match self.inner_dims(ev, &record.signature, &views) {
            Some(dims) => dims,
            None => {
                return ev.error(
                    codes::E0508,
                    span,
                    format!(
                        "the dimensions of `{}` do not follow from what is passed",
                        record.name
                    ),
                );
            }
        };
        let term = |term: Term| match term {
            Term::Dim(d) => dims.get(d as usize).cloned(),
            Term::Scalar(p) => match args.get(p as usize)? {
                Some(StepArg::Int(formula)) => Some(formula.clone()),
                Some(StepArg::Scalar { param }) => Some(Formula(vec![Term::Scalar(*param)])),
                Some(_) => None,
                None => match record.signature.params.get(p as usize)?.kind {
                    ParamKind::Scalar {
                        default: Some(v), ..
                    } => Some(Formula::int(v as i64)),
                    // As a run has it: what was left out is 0.
                    _ => Some(Formula::int(0)),
                },
            },
            Term::Given(p) => Some(match args.get(p as usize)? {
                None => Formula::int(0),
                Some(StepArg::Scalar { param })
                | Some(StepArg::View(ViewArg {
                    base: ViewBase::Param(param),
                    ..
                })) if ev.signature.params[*param as usize].optional => {
                    Formula(vec![Term::Given(*param)])
                }
                Some(_) => Formula::int(1),
            }),
            other => Some(Formula(vec![other])),
        };
        let grown = std::cell::Cell::new(false);
        let formula = |f: &Formula| {
            let made = f.substitute(term).ok_or(Told)?;
            grown.set(grown.get() || made.0.len() > MAX_TERMS);
            Ok::<Formula, Told>(made)
        };
        let guard = self.guard();
        let under = |when: &Option<Formula>| -> Eval<Option<Formula>> {
            let inner = when.as_ref().map(formula).transpose()?;
            Ok(Formula::both(guard.clone(), inner))
        };
        for fact in &record.requires {
            match fact {
                Fact::Holds(f) => self.require(Fact::Holds(formula(f)?), guard.as_ref()),
                Fact::Aligned { param, bytes } => {
                    // Of what is made on the way, the kernels' own facts speak.
                    if let Some(Some(ViewArg {
                        base: ViewBase::Param(param),
                        steps,
                    })) = views.get(*param as usize)
                        && steps.is_empty()
                        && guard.is_none()
                    {
                        self.requires.push(Fact::Aligned {
                            param: *param,
                            bytes: *bytes,
                        });
                    }
                }
            }
        }
        let first = self.workspaces.len() as u32;
        for workspace in &record.workspaces {
            self.workspaces.push(WorkspaceRecord {
                name: format!("{}.{}", first, workspace.name),
                dtype: workspace.dtype,
                extents: workspace
                    .extents
                    .iter()
                    .map(formula)
                    .collect::<Eval<Vec<_>>>()?,
                when: under(&workspace.when)?,
                fill: workspace.fill,
                once: workspace.once,
            });
        }
        let mut places = Vec::new();
        for launched in inner.instances {
            let known = self.instances.iter().position(|l| {
                l.instance.name == launched.instance.name && l.module == launched.module
            });
            places.push(known.unwrap_or(self.instances.len()));
            if known.is_none() {
                self.instances.push(launched);
            }
        }
        if self.steps.len() + record.steps.len() > MAX_STEPS {
            return ev.error(
                codes::E0305,
                span,
                format!("an `op` has at most {MAX_STEPS} launches"),
            );
        }
        for step in &record.steps {
            let mut list = Vec::new();
            for arg in &step.args {
                list.push(match arg {
                    None => None,
                    Some(StepArg::Float(bits)) => Some(StepArg::Float(*bits)),
                    Some(StepArg::Int(f)) => Some(StepArg::Int(formula(f)?)),
                    Some(StepArg::Scalar { param }) => {
                        let default = match record.signature.params[*param as usize].kind {
                            ParamKind::Scalar {
                                dtype,
                                default: Some(v),
                            } => Some(match dtype.is_float() {
                                true => StepArg::Float(v.to_bits()),
                                false => StepArg::Int(Formula::int(v as i64)),
                            }),
                            _ => None,
                        };
                        args[*param as usize].clone().or(default)
                    }
                    Some(StepArg::View(view)) => {
                        let (base, mut steps) = match view.base {
                            ViewBase::Workspace(i) => (ViewBase::Workspace(first + i), Vec::new()),
                            ViewBase::Param(i) => match views[i as usize] {
                                Some(outer) => (outer.base, outer.steps.clone()),
                                None => {
                                    list.push(None);
                                    continue;
                                }
                            },
                        };
                        for step in &view.steps {
                            steps.push(match step {
                                ViewStep::Slice { dim, from, to } => ViewStep::Slice {
                                    dim: *dim,
                                    from: formula(from)?,
                                    to: formula(to)?,
                                },
                                ViewStep::Select { dim, index } => ViewStep::Select {
                                    dim: *dim,
                                    index: formula(index)?,
                                },
                                ViewStep::Split { dim, by } => ViewStep::Split {
                                    dim: *dim,
                                    by: formula(by)?,
                                },
                                other => other.clone(),
                            });
                        }
                        Some(StepArg::View(ViewArg { base, steps }))
                    }
                });
            }
            let index = places[step.instance as usize];
            self.note_uses(index, &list);
            self.steps.push(Step {
                instance: index as u32,
                when: under(&step.when)?,
                args: list,
            });
        }
        if grown.get() {
            return ev.error(
                codes::E0305,
                span,
                "this grows too large when it is written out over dimensions and parameters",
            );
        }
        Ok(())
    }

    /// The dimensions of an inner op as formulas of this one.
    fn inner_dims(
        &self,
        ev: &Evaluator<'_>,
        signature: &Signature,
        views: &[Option<&ViewArg>],
    ) -> Option<Vec<Formula>> {
        let mut dims: Vec<Option<Formula>> = vec![None; signature.dims.len()];
        let mut later = Vec::new();
        for (param, view) in signature.params.iter().zip(views) {
            let (ParamKind::View(wanted), Some(view)) = (&param.kind, view) else {
                continue;
            };
            let extents = self.extents(ev, view)?;
            for (formula, extent) in wanted.extents.iter().zip(extents) {
                match formula.0[..] {
                    [Term::Dim(d)] => {
                        dims[d as usize].get_or_insert(extent);
                    }
                    _ => later.push((formula.clone(), extent)),
                }
            }
        }
        for (formula, extent) in later {
            let (d, op, c) = match formula.0[..] {
                [Term::Dim(d), Term::Int(c), Term::Op(FormulaOp::Add)]
                | [Term::Int(c), Term::Dim(d), Term::Op(FormulaOp::Add)] => (d, FormulaOp::Sub, c),
                [Term::Dim(d), Term::Int(c), Term::Op(FormulaOp::Sub)] => (d, FormulaOp::Add, c),
                [Term::Dim(d), Term::Int(c), Term::Op(FormulaOp::Mul)]
                | [Term::Int(c), Term::Dim(d), Term::Op(FormulaOp::Mul)]
                    if c != 0 =>
                {
                    (d, FormulaOp::Div, c)
                }
                _ => continue,
            };
            dims[d as usize].get_or_insert_with(|| Formula::binary(op, extent, Formula::int(c)));
        }
        // What only tensors mention that are left out is 0.
        Some(
            dims.into_iter()
                .map(|d| d.unwrap_or(Formula::int(0)))
                .collect(),
        )
    }

    /// The extents of a view.
    fn extents(&self, ev: &Evaluator<'_>, view: &ViewArg) -> Option<Vec<Formula>> {
        let mut extents = match view.base {
            ViewBase::Workspace(i) => self.workspaces.get(i as usize)?.extents.clone(),
            ViewBase::Param(i) => match &ev.signature.params.get(i as usize)?.kind {
                ParamKind::View(view) => view.extents.clone(),
                ParamKind::Scalar { .. } => return None,
            },
        };
        let mut bits = match view.base {
            ViewBase::Workspace(i) => self.workspaces[i as usize].dtype.bits(),
            ViewBase::Param(i) => match &ev.signature.params[i as usize].kind {
                ParamKind::View(view) => view.dtype.bits(),
                ParamKind::Scalar { .. } => return None,
            },
        };
        for step in &view.steps {
            match step {
                ViewStep::Slice { dim, from, to } => {
                    let extent = extents.get(*dim as usize)?.clone();
                    let clamp = |x: &Formula, lo: Formula| {
                        let above = Formula::binary(FormulaOp::Max, x.clone(), lo);
                        Formula::binary(FormulaOp::Min, above, extent.clone())
                    };
                    let low = clamp(from, Formula::int(0));
                    let high = clamp(to, low.clone());
                    extents[*dim as usize] = Formula::binary(FormulaOp::Sub, high, low);
                }
                ViewStep::Select { dim, .. } => {
                    extents.remove(*dim as usize);
                }
                ViewStep::Permute(perm) => {
                    extents = perm.iter().map(|p| extents[*p as usize].clone()).collect();
                }
                ViewStep::Split { dim, by } => {
                    let dim = *dim as usize;
                    let outer =
                        Formula::binary(FormulaOp::Div, extents.get(dim)?.clone(), by.clone());
                    extents.splice(dim..=dim, [outer, by.clone()]);
                }
                ViewStep::Merge { dim } => {
                    let dim = *dim as usize;
                    let second = extents.remove(dim + 1);
                    extents[dim] = Formula::binary(FormulaOp::Mul, extents[dim].clone(), second);
                }
                ViewStep::Bitcast(dtype) => {
                    let last = extents.last_mut()?;
                    let all = Formula::binary(
                        FormulaOp::Mul,
                        last.clone(),
                        Formula::int(i64::from(bits)),
                    );
                    bits = dtype.bits();
                    *last = Formula::binary(FormulaOp::Div, all, Formula::int(i64::from(bits)));
                }
            }
        }
        Some(extents)
    }
}

impl<'a> Passed<'a> {
    /// A variant's fields go by dotted names.
    fn flatten(&mut self, name: &str, value: Value<'a>, span: Span) {
        match &value {
            Value::Variant(variant) => {
                let fields = variant.ty.item.fields.iter().zip(&variant.fields);
                for (field, value) in fields {
                    self.flatten(&format!("{name}.{}", field.name.name), value.clone(), span);
                }
            }
            Value::Absent(_) => {}
            // A variant without fields needs no value.
            Value::Type(TypeValue::Variant(variant)) if variant.item.fields.is_empty() => {}
            _ => self.list.push((name.to_owned(), value, span)),
        }
    }
}

/// Whether a body does no more with parameter `param` than count arrivals.
fn only_arrives(body: &crate::ir::tile::TileBody, param: u32) -> bool {
    let values: Vec<ValueId> = body
        .ops
        .values()
        .filter(|op| op.kind == OpKind::Param(param))
        .flat_map(|op| op.results.iter().copied())
        .collect();
    body.ops.values().all(|op| {
        is_arrival(&op.kind) || !op.operands.iter().any(|operand| values.contains(operand))
    })
}

/// Whether an operation only counts on its view.
fn is_arrival(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Arrive { .. })
}

fn host<'a>(formula: Formula) -> Value<'a> {
    match formula.as_int() {
        Some(v) => Value::Int(v.into()),
        None => Value::Host(Rc::new(Host::Formula(formula))),
    }
}

/// A condition as 0 or 1 is one already; another number is compared with 0.
fn truth(formula: Formula) -> Formula {
    match formula.is_condition() || formula.as_int().is_some() {
        true => formula,
        false => Formula::binary(FormulaOp::Ne, formula, Formula::int(0)),
    }
}

/// A formula, unless it has grown too large for a launch to evaluate.
fn sized(ev: &mut Evaluator<'_>, formula: Formula, span: Span) -> Eval<Formula> {
    if formula.0.len() <= MAX_TERMS {
        return Ok(formula);
    }
    ev.fail(
        Diagnostic::error(
            codes::E0305,
            span,
            "this grows too large when it is written out over dimensions and parameters",
        )
        .help("pass it as a parameter"),
    )
}

fn is_if(expr: &ast::Expr) -> bool {
    match &expr.kind {
        ExprKind::If(_) => true,
        ExprKind::Paren(inner) => is_if(inner),
        _ => false,
    }
}

fn as_view(value: &Value<'_>) -> Option<HostView> {
    match value {
        Value::View(view) => {
            // In an `op` nothing is derived but by the runtime, and what lies in a layout is passed on as it lies.
            let (root, param) = view.root();
            let extents = root.extents.iter().map(|extent| match extent {
                Extent::Launch(formula) => Some(formula.clone()),
                _ => None,
            });
            Some(HostView {
                name: view.name.clone(),
                arg: ViewArg {
                    base: ViewBase::Param(param),
                    steps: Vec::new(),
                },
                dtype: view.elem,
                access: view.access,
                extents: extents.collect::<Option<_>>()?,
            })
        }
        Value::Host(host) => match &**host {
            Host::View(view) => Some(view.clone()),
            Host::Formula(_) => None,
        },
        _ => None,
    }
}

fn transposed(ev: &mut Evaluator<'_>, mut view: HostView, span: Span) -> Eval<HostView> {
    let rank = view.extents.len() as u32;
    if rank < 2 {
        return ev.error(
            codes::E0202,
            span,
            format!(
                "`{}` has one dimension, and `.t` swaps the last two",
                view.name
            ),
        );
    }
    let mut perm: Vec<u32> = (0..rank).collect();
    perm.swap(rank as usize - 2, rank as usize - 1);
    view.extents.swap(rank as usize - 2, rank as usize - 1);
    view.arg.steps.push(ViewStep::Permute(perm));
    Ok(view)
}

/// What a scalar of the walk is, if a launch can be given it: a parameter as it is, a constant, or a formula.
fn traced(ev: &Evaluator<'_>, id: ValueId) -> Option<StepArg> {
    if !ev.is_scalar(id) {
        return None;
    }
    if let Some(formula) = ev.formula_of(id) {
        return Some(match formula.0[..] {
            [Term::Scalar(param)] => StepArg::Scalar { param },
            _ => StepArg::Int(formula),
        });
    }
    let op = &ev.body.ops[ev.body.defining_op(id)?];
    match &op.kind {
        OpKind::Param(param) => Some(StepArg::Scalar { param: *param }),
        OpKind::Constant(Constant::Float(v, _)) => Some(StepArg::Float(v.to_bits())),
        // A parameter is widened at its first use; an integer stays exact as a float where the host converts it.
        OpKind::Cast if ev.body.ty(id).elem().is_float() => {
            let inner = op.operands[0];
            let from = ev.body.ty(inner).elem();
            let defined = &ev.body.ops[ev.body.defining_op(inner)?].kind;
            match (from.is_float(), defined) {
                (true, OpKind::Param(param)) => Some(StepArg::Scalar { param: *param }),
                (false, _) => ev.formula_of(inner).map(StepArg::Int),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The bits of an element that a workspace is filled with.
fn fill_bits<'a>(ev: &mut Evaluator<'a>, expr: &'a ast::Expr, dtype: DType) -> Eval<u64> {
    let value = ev.expr(expr)?;
    let mask = u64::MAX >> (64 - dtype.bits());
    let bits = match &value {
        Value::Int(v) if dtype.is_float() => floats::encode(dtype, *v as f64),
        Value::Float(v, _) if dtype.is_float() => floats::encode(dtype, *v),
        Value::Int(v) if dtype.is_int() => {
            let bits = dtype.bits();
            let (low, high) = match dtype.is_signed() {
                true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
                false => (0, (1i128 << bits) - 1),
            };
            if !(low..=high).contains(v) {
                return ev.error(
                    codes::E0306,
                    expr.span,
                    format!("{v} does not fit in `{dtype}`"),
                );
            }
            *v as u64
        }
        Value::Bool(v) if dtype == DType::Bool || dtype == DType::U1 => u64::from(*v),
        other => {
            let what = ev.describe(other);
            return ev.error(
                codes::E0507,
                expr.span,
                format!("a workspace of `{dtype}` is filled with a constant of its type, and this is {what}"),
            );
        }
    };
    Ok(bits & mask)
}

fn bind_pattern<'a>(ev: &mut Evaluator<'a>, pat: &'a ast::Pat, value: Value<'a>) -> Eval<()> {
    match &pat.kind {
        ast::PatKind::Wild => Ok(()),
        ast::PatKind::Bind { mutable, name } => {
            ev.bind(name, value, *mutable);
            Ok(())
        }
        ast::PatKind::Tuple(pats) => {
            let (Value::Tuple(items) | Value::List(items)) = &value else {
                let what = ev.describe(&value);
                return ev.error(
                    codes::E0108,
                    pat.span,
                    format!("this takes a tuple apart, and the value is {what}"),
                );
            };
            if items.len() != pats.len() {
                return ev.error(
                    codes::E0108,
                    pat.span,
                    format!("{} names for {} values", pats.len(), items.len()),
                );
            }
            let items = items.clone();
            for (pat, item) in pats.iter().zip(items.iter()) {
                bind_pattern(ev, pat, item.clone())?;
            }
            Ok(())
        }
    }
}

fn bind_errors<'a>(ev: &mut Evaluator<'a>, pat: &'a ast::Pat) {
    match &pat.kind {
        ast::PatKind::Wild => {}
        ast::PatKind::Bind { mutable, name } => {
            let binding = Binding {
                value: Value::Error,
                mutable: *mutable,
                span: name.span,
            };
            let scopes = &mut ev.frame().scopes;
            if let Some(scope) = scopes.last_mut() {
                scope.insert(name.name.clone(), binding);
            }
        }
        ast::PatKind::Tuple(pats) => pats.iter().for_each(|p| bind_errors(ev, p)),
    }
}
