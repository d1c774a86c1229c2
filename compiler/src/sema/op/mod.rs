//! Ops: host scalars, workspaces and launches become formulas and lists.
//!
//! The body of an `op` is walked once. Integers over dimensions and scalar parameters become formulas, what `if` decides
//! becomes the condition of the launches in it, `for const` is written out, and a launch of another op is that op's launches.
//! Views move nothing: each is a tensor of the op with a list of transformations. What a launch gets is checked against the
//! kernel's signature as far as it is known here; the rest is checked when the op runs, before the first launch.

mod inner;
mod launch;
mod values;

use std::rc::Rc;

use tesserine_set::{
    Access, DType, Fact, Formula, FormulaOp, OpRecord, Step, Term, ViewArg, ViewBase,
    WorkspaceRecord,
};

use values::{host, sized, truth};

use super::{
    Eval, Told,
    call::bare,
    eval::{Binding, Evaluator},
    instance::{CArgs, Maker, find_item, named_instance, parse_instance, with_stack},
    modules::{Module, Program},
    value::{Host, HostView, Value},
};
use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    interp::floats,
    ir::op::{Launched, Op},
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

pub(super) struct Walk {
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
    pub(super) fn guard(&self) -> Option<Formula> {
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
    pub(super) fn require(&mut self, fact: Fact, guard: Option<&Formula>) {
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
        // Whether a parameter is given is constant in a kernel, and a condition like any other here.
        let given = condition.0.iter().any(|t| matches!(t, Term::Given(_)));
        if branch.constant && condition.as_int().is_none() && !given {
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
