//! What is left early: `break`, `continue` and `return`, as variables that no program can name.
//!
//! They are constants wherever it is known whether something was left, so that code which nothing leaves is as it stands.

use std::rc::Rc;

use super::{
    super::{
        Eval, Told,
        eval::{Evaluator, Left, Tail},
        value::Value,
    },
    Arm,
};
use crate::{
    diagnostics::codes,
    ir::tile::BinaryOp,
    span::Span,
    syntax::ast::{self, ExprKind, StmtKind},
};

/// Whether the loop was broken off.
pub(super) const BREAK: &str = "break";
/// Whether the iteration was left.
pub(super) const SKIP: &str = "continue";
/// Whether the function has returned.
pub(super) const RETURN: &str = "return";
/// What it has returned.
pub(super) const RESULT: &str = "return value";

/// Whether what follows a statement is reached.
pub(super) enum Reached<'a> {
    Always,
    Never,
    /// If this is false at run time.
    Unless(Value<'a>),
}

impl<'a> Evaluator<'a> {
    pub(super) fn value_of(&self, name: &str) -> Value<'a> {
        self.local(name).map_or(Value::Unit, |b| b.value.clone())
    }

    /// Whether what comes next is reached, as far as `break`, `continue` and `return` say.
    pub(super) fn reached(&mut self, span: Span) -> Eval<Reached<'a>> {
        let mut away = Value::Bool(false);
        for name in [RETURN, BREAK, SKIP] {
            let flag = match self.local(name) {
                Some(flag) => flag.value.clone(),
                None => continue,
            };
            away = match (&away, flag) {
                (_, Value::Bool(false)) => continue,
                (_, Value::Bool(true)) => return Ok(Reached::Never),
                (_, Value::Error) => return Err(Told),
                (Value::Bool(_), flag) => flag,
                (_, flag) => self.arithmetic(BinaryOp::Or, (&away, span), (&flag, span), span)?,
            };
        }
        Ok(match away {
            Value::Bool(_) => Reached::Always,
            away => Reached::Unless(away),
        })
    }

    /// At a place that is reached, nothing was left.
    pub(super) fn here(&mut self) -> Vec<(&'static str, Value<'a>)> {
        let mut before = Vec::new();
        for name in [RETURN, BREAK, SKIP] {
            if let Some(flag) = self.local_mut(name) {
                let value = std::mem::replace(&mut flag.value, Value::Bool(false));
                before.push((name, value));
            }
        }
        before
    }

    /// Notes that a function, loop or iteration is left.
    pub(super) fn note(&mut self, name: &str, value: Value<'a>) {
        if let Some(flag) = self.local_mut(name) {
            flag.value = value;
        }
    }

    /// `break` or `continue`.
    pub(super) fn leave(&mut self, left: Left, tail: Tail, span: Span) -> Eval<()> {
        if self.loops.is_empty() {
            let word = if left == Left::Break {
                "break"
            } else {
                "continue"
            };
            return self.error(codes::E0108, span, format!("`{word}` stands in no loop"));
        }
        match left {
            Left::Break => self.note(BREAK, Value::Bool(true)),
            // The end of the block is the iteration's.
            Left::Continue if tail == Tail::Loop => {}
            Left::Continue => self.note(SKIP, Value::Bool(true)),
        }
        self.left = Some(left);
        Ok(())
    }
}

/// The value of [`RESULT`] where no `return` was met.
pub(super) fn nothing_yet<'a>() -> Value<'a> {
    Value::Absent(Rc::from(RESULT))
}

pub(super) fn is_nothing_yet(value: &Value<'_>) -> bool {
    matches!(value, Value::Absent(name) if **name == *RESULT)
}

/// Whether a block's last statement leaves what the block ends early.
pub(super) fn leaves(block: &ast::Block, tail: Tail) -> bool {
    let last = block.stmts.last().map(|s| &s.kind);
    block.value.is_none()
        && match tail {
            Tail::Nothing => false,
            Tail::Function => matches!(last, Some(StmtKind::Return(_))),
            Tail::Loop => matches!(
                last,
                Some(StmtKind::Break | StmtKind::Continue | StmtKind::Return(_))
            ),
        }
}

/// Whether a `break` in `block` ends the loop whose body it is.
pub(super) fn breaks(block: &ast::Block) -> bool {
    names_in(block).iter().any(|n| n == BREAK)
}

/// Whether the loop whose body `block` is may end before its indices do.
pub(super) fn ends_early(block: &ast::Block) -> bool {
    names_in(block).iter().any(|n| n == BREAK || n == RETURN)
}

pub(super) fn names_in(block: &ast::Block) -> Vec<String> {
    let mut names = Vec::new();
    scan_block(block, &mut names);
    names
}

/// Names that a block assigns, whether they are its own or not.
pub(super) fn scan_block(block: &ast::Block, names: &mut Vec<String>) {
    scan_stmts(&block.stmts, block.value.as_deref(), names);
}

pub(super) fn scan_stmts(stmts: &[ast::Stmt], value: Option<&ast::Expr>, names: &mut Vec<String>) {
    for stmt in stmts {
        match &stmt.kind {
            StmtKind::Assign { target, value, .. } => {
                if let ExprKind::Path(path) = &target.kind
                    && let Some(name) = path.as_ident()
                {
                    names.push(name.name.clone());
                }
                scan_expr(value, names);
            }
            StmtKind::If(branch) => scan_if(branch, names),
            StmtKind::For(ast::For { body, .. }) | StmtKind::While { body, .. } => {
                let mut inner = Vec::new();
                scan_block(body, &mut inner);
                let own = |n: &String| n == BREAK || n == SKIP;
                names.extend(inner.into_iter().filter(|n| !own(n)));
            }
            StmtKind::Break => names.push(BREAK.to_owned()),
            StmtKind::Continue => names.push(SKIP.to_owned()),
            StmtKind::Return(_) => names.extend([RETURN.to_owned(), RESULT.to_owned()]),
            StmtKind::Let { value, .. } => scan_expr(value, names),
            StmtKind::Pingpong(p) => scan_block(&p.body, names),
            _ => {}
        }
    }
    if let Some(value) = value {
        scan_expr(value, names);
    }
}

/// Blocks that stand in expressions: the arms of a valued `if`.
pub(super) fn scan_expr(expr: &ast::Expr, names: &mut Vec<String>) {
    match &expr.kind {
        ExprKind::If(branch) => scan_if(branch, names),
        ExprKind::Paren(inner) => scan_expr(inner, names),
        ExprKind::Tuple(items) | ExprKind::List(items) => {
            items.iter().for_each(|i| scan_expr(i, names))
        }
        ExprKind::Call { args, .. } => args.iter().for_each(|a| scan_expr(&a.value, names)),
        ExprKind::Pingpong(p) => scan_block(&p.body, names),
        ExprKind::Index { base, indices } => {
            scan_expr(base, names);
            for index in indices {
                if let ast::IndexKind::Expr(e) = &index.kind {
                    scan_expr(e, names);
                }
            }
        }
        _ => {}
    }
}

pub(super) fn scan_if(branch: &ast::If, names: &mut Vec<String>) {
    scan_expr(&branch.cond, names);
    scan_block(&branch.then, names);
    match branch.els.as_deref() {
        Some(ast::Else::Block(block)) => scan_block(block, names),
        Some(ast::Else::If(inner)) => scan_if(inner, names),
        None => {}
    }
}

pub(super) fn scan_arm(arm: Arm<'_>, names: &mut Vec<String>) {
    match arm {
        Arm::Empty => {}
        Arm::Block(block) | Arm::Spine(block) => scan_block(block, names),
        Arm::If(inner) => scan_if(inner, names),
        Arm::Rest(stmts, value) | Arm::Guarded(stmts, value) => scan_stmts(stmts, value, names),
        Arm::Returned => {}
        Arm::Iterations(all) => {
            let inner = names_in(&all.loop_.body);
            names.extend(inner.into_iter().filter(|n| n != SKIP));
        }
    }
}
