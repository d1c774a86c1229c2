//! The names of instances: `gemm<bf16, BM = 64>`, read and written.

use super::*;

/// The name and compile-time arguments of `kernel<A, N = B>`.
pub(crate) fn parse_instance(text: &str) -> Result<(String, Vec<ast::CArg>), String> {
    let mut parser = InstanceParser {
        rest: text,
        depth: 0,
    };
    let name = parser.identifier()?;
    let cargs = if parser.eat("<") {
        parser.cargs()?
    } else {
        Vec::new()
    };
    parser.skip();
    if !parser.rest.is_empty() {
        return Err(format!("`{}` is left over", parser.rest));
    }
    Ok((name, cargs))
}

struct InstanceParser<'t> {
    rest: &'t str,
    depth: u32,
}

impl InstanceParser<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn found(&self) -> String {
        match self.rest.chars().next() {
            Some(c) => format!("`{c}`"),
            None => "the end".into(),
        }
    }

    fn identifier(&mut self) -> Result<String, String> {
        self.skip();
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("a name is expected, and {} found", self.found()));
        }
        self.rest = rest;
        Ok(name.to_owned())
    }

    fn cargs(&mut self) -> Result<Vec<ast::CArg>, String> {
        self.depth += 1;
        if self.depth > 32 {
            return Err("it is nested too deeply".into());
        }
        let mut cargs = Vec::new();
        while !self.eat(">") {
            let before = self.rest;
            let named = self.identifier().ok().filter(|_| self.eat("="));
            if named.is_none() {
                self.rest = before;
            }
            let value = self.value()?;
            cargs.push(ast::CArg {
                name: named.map(ident),
                value,
                span: Span::NONE,
            });
            if !self.eat(",") {
                if !self.eat(">") {
                    return Err(format!(
                        "`,` or `>` is expected, and {} found",
                        self.found()
                    ));
                }
                break;
            }
        }
        self.depth -= 1;
        Ok(cargs)
    }

    fn value(&mut self) -> Result<ast::CValue, String> {
        let expr = |kind| ast::Expr {
            kind,
            span: Span::NONE,
        };
        self.skip();
        let negative = self.eat("-");
        self.skip();
        if self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            let end = self
                .rest
                .find(|c: char| !c.is_ascii_alphanumeric() && !"._".contains(c))
                .unwrap_or(self.rest.len());
            let (digits, rest) = self.rest.split_at(end);
            self.rest = rest;
            let plain = digits.replace('_', "");
            let kind = match plain.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok().map(ast::ExprKind::Int),
                None => plain
                    .parse()
                    .map(ast::ExprKind::Int)
                    .ok()
                    .or_else(|| plain.parse().map(ast::ExprKind::Float).ok()),
            };
            let Some(kind) = kind else {
                return Err(format!("`{digits}` is no number"));
            };
            let mut value = expr(kind);
            if negative {
                value = expr(ast::ExprKind::Unary {
                    op: ast::UnaryOp::Neg,
                    value: Box::new(value),
                });
            }
            return Ok(ast::CValue::Expr(value));
        }
        if negative {
            return Err("a number is expected after `-`".into());
        }
        let mut segments = vec![ident(self.identifier()?)];
        while self.eat("::") {
            segments.push(ident(self.identifier()?));
        }
        if let [one] = &segments[..]
            && matches!(one.name.as_str(), "true" | "false")
        {
            return Ok(ast::CValue::Expr(expr(ast::ExprKind::Bool(
                one.name == "true",
            ))));
        }
        let path = ast::Path {
            segments,
            span: Span::NONE,
        };
        if self.eat("<") {
            let cargs = self.cargs()?;
            return Ok(ast::CValue::Applied {
                path,
                cargs,
                span: Span::NONE,
            });
        }
        Ok(ast::CValue::Expr(expr(ast::ExprKind::Path(path))))
    }
}

fn ident(name: String) -> ast::Ident {
    ast::Ident {
        name,
        span: Span::NONE,
    }
}

/// The name of an instance whose arguments have been evaluated.
pub(crate) fn named_instance(name: &str, cargs: &[CArgument<'_>]) -> String {
    if cargs.is_empty() {
        return name.to_owned();
    }
    let parts: Vec<String> = cargs
        .iter()
        .map(|(name, value, _)| match name {
            Some(name) => format!("{} = {value}", name.name),
            None => value.to_string(),
        })
        .collect();
    format!("{name}<{}>", parts.join(", "))
}

/// The name of an instance, in one spelling.
pub(crate) fn instance_name(program: &Program, kernel: &str, cargs: &[ast::CArg]) -> String {
    if cargs.is_empty() {
        return kernel.to_owned();
    }
    let parts: Vec<String> = cargs
        .iter()
        .map(|carg| {
            let value = cvalue_text(program, &carg.value);
            match &carg.name {
                Some(name) => format!("{} = {value}", name.name),
                None => value,
            }
        })
        .collect();
    format!("{kernel}<{}>", parts.join(", "))
}

fn cvalue_text(program: &Program, value: &ast::CValue) -> String {
    let path = |p: &ast::Path| {
        p.segments
            .iter()
            .map(|s| s.name.as_str())
            .collect::<Vec<_>>()
            .join("::")
    };
    match value {
        ast::CValue::Applied { path: p, cargs, .. } => instance_name(program, &path(p), cargs),
        ast::CValue::Expr(expr) => match &expr.kind {
            ast::ExprKind::Int(v) => v.to_string(),
            ast::ExprKind::Float(v) => format!("{v:?}"),
            ast::ExprKind::Bool(v) => v.to_string(),
            ast::ExprKind::Path(p) => path(p),
            ast::ExprKind::Unary { value, .. } => format!(
                "-{}",
                cvalue_text(program, &ast::CValue::Expr((**value).clone()))
            ),
            _ => program.sources.text(expr.span).to_owned(),
        },
    }
}
