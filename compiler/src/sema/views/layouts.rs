//! Layouts: orders in memory that an author declares.
//!
//! Invariant: a layout that a kernel uses has been tried for elements that share a place, or have one past its size.

use std::collections::HashMap;

use tesserine_set::{Env, Formula, Term};

use super::access::{Ix, Walk};
use crate::{
    diagnostics::{Diagnostic, codes},
    sema::{
        Eval, Module, Told,
        access::count,
        call::bare,
        eval::{Binding, Evaluator, Frame},
        modules::Def,
        value::{Num, Symbol, Value, ViewValue},
    },
    span::Span,
    syntax::ast,
};

impl<'a> Evaluator<'a> {
    /// The layout that a path names, for a view of `rank` dimensions.
    pub fn layout_item(&mut self, path: &'a ast::Path, rank: usize) -> Eval<(Module, usize)> {
        let program = self.program;
        let mut def = program.lookup(self.module(), &path.segments[0].name);
        for segment in &path.segments[1..] {
            def = match def {
                Some(Def::Module(inner)) => program.lookup(inner, &segment.name),
                _ => None,
            };
        }
        let found = match def {
            Some(Def::Item(module, index)) => match &program.item(module, index).kind {
                ast::ItemKind::Layout(layout) => Some((module, index, layout)),
                _ => None,
            },
            _ => None,
        };
        let Some((module, index, layout)) = found else {
            let text = self.quote(path.span);
            return self.fail(
                Diagnostic::error(codes::E0101, path.span, format!("{text} is no layout"))
                    .help("a layout is declared as `layout name(r, c) of [m, n] size … = …;`"),
            );
        };
        if layout.dims.len() != rank || layout.indices.len() != rank {
            return self.fail(
                Diagnostic::error(
                    codes::E0210,
                    path.span,
                    format!(
                        "the layout `{}` is of {}, and this view has {rank}",
                        layout.name.name,
                        count(layout.dims.len(), "dimension")
                    ),
                )
                .label(layout.name.span, "declared here"),
            );
        }
        Ok((module, index))
    }

    /// How many elements a buffer in a layout has, where the view has these extents.
    pub fn layout_size(
        &mut self,
        (module, item): (Module, usize),
        extents: &[Formula],
        span: Span,
    ) -> Eval<Formula> {
        let program = self.program;
        let ast::ItemKind::Layout(layout) = &program.item(module, item).kind else {
            return Err(Told);
        };
        // The layout's own names stand for dimensions that no signature has, and then for what they are.
        let place = |k: usize| u32::MAX - k as u32;
        self.frames.push(Frame::new(module));
        self.calls.push((span, layout.name.name.clone()));
        for (k, dim) in layout.dims.iter().enumerate() {
            if let Some(name) = bare(&dim.expr) {
                self.bind(name, Value::Symbol(Symbol::Dim(place(k))), false);
            }
        }
        let size = self.host(&layout.size, false, codes::E0208, "the size of a layout");
        self.calls.pop();
        self.frames.pop();
        let size = size?;
        self.check_layout((module, item), &size, span)?;
        let mut terms = Vec::new();
        for term in size.0 {
            match term {
                Term::Dim(d) if (0..extents.len()).any(|k| place(k) == d) => {
                    terms.extend(extents[(u32::MAX - d) as usize].0.iter().copied());
                }
                term => terms.push(term),
            }
        }
        Ok(Formula(terms))
    }

    /// A layout gives every element a place of its own within its size, as far as extents of whole tiles show.
    fn check_layout(
        &mut self,
        (module, item): (Module, usize),
        size: &Formula,
        span: Span,
    ) -> Eval<()> {
        let program = self.program;
        let ast::ItemKind::Layout(layout) = &program.item(module, item).kind else {
            return Err(Told);
        };
        let rank = layout.dims.len();
        let place = |k: usize| u32::MAX - k as u32;
        self.frames.push(Frame::new(module));
        self.calls.push((span, layout.name.name.clone()));
        let dims = layout.dims.iter().map(|d| bare(&d.expr));
        let names = dims.chain(layout.indices.iter().map(Some));
        for (k, name) in names.enumerate() {
            if let Some(name) = name {
                self.bind(name, Value::Symbol(Symbol::Dim(place(k))), false);
            }
        }
        let offset = self.host(
            &layout.offset,
            false,
            codes::E0208,
            "the offset of a layout",
        );
        self.calls.pop();
        self.frames.pop();
        let own = |formula: &Formula| {
            let terms = formula.0.iter().map(|term| match *term {
                Term::Dim(d) if u32::MAX - d < 2 * rank as u32 => Term::Dim(u32::MAX - d),
                term => term,
            });
            Formula(terms.collect())
        };
        let (offset, size) = (own(&offset?), own(size));
        if let Some(why) = collision(&offset, &size, rank) {
            return self.fail(
                Diagnostic::error(
                    codes::E0212,
                    layout.offset.span,
                    format!("`{}` is no layout: {why}", layout.name.name),
                )
                .label(span, "used here"),
            );
        }
        Ok(())
    }

    /// Where the elements with these indices of a view in a layout lie.
    pub(super) fn carry_layout(
        &mut self,
        view: &ViewValue,
        module: Module,
        item: usize,
        ix: &[Ix],
        walk: &mut Walk,
    ) -> Eval<Ix> {
        let span = walk.span;
        let program = self.program;
        let ast::ItemKind::Layout(layout) = &program.item(module, item).kind else {
            return Err(Told);
        };
        let refs: Vec<&Ix> = ix.iter().collect();
        let (values, axes) = self.operands_of(&refs, walk)?;
        let mut extents = Vec::new();
        for extent in &view.extents {
            extents.push(self.extent_num(extent, span)?);
        }
        let mut frame = Frame::new(module);
        let scope = frame.scopes.last_mut();
        if let Some(scope) = scope {
            let mut bind = |name: &ast::Ident, value: Value<'a>| {
                let binding = Binding {
                    value,
                    mutable: false,
                    span: name.span,
                };
                scope.insert(name.name.clone(), binding);
            };
            for (name, value) in layout.indices.iter().zip(&values) {
                bind(name, value.clone());
            }
            for (dim, extent) in layout.dims.iter().zip(&extents) {
                if let Some(name) = bare(&dim.expr) {
                    bind(name, extent.value());
                }
            }
        }
        self.frames.push(frame);
        self.calls.push((span, layout.name.name.clone()));
        let offset = self.expr(&layout.offset);
        self.calls.pop();
        self.frames.pop();
        let mut offset = offset?;
        for ((value, extent), ix) in values.iter().zip(&extents).zip(ix) {
            let constant = match (value, extent) {
                (Value::Int(v), Num::Int(e)) => (0..i128::from(*e)).contains(v),
                _ => matches!(ix, Ix::Whole { .. }),
            };
            if !constant {
                let bounds = (Some((value, Num::Int(0))), Some((value, *extent)));
                offset = self.inside(offset, bounds.0, bounds.1, span)?;
            }
        }
        self.as_index(offset, axes, walk)
    }
}

/// Extents at which a layout is tried: such that one for whole tiles only has them whole.
const TRIED: &[[i64; 3]] = &[[128, 64, 2], [64, 256, 2], [256, 16, 4], [16, 128, 8]];

/// Why the elements of a layout have no places of their own. Dimensions of the formulas are the extents, then the indices.
fn collision(offset: &Formula, size: &Formula, rank: usize) -> Option<String> {
    for tried in TRIED {
        let extents: Vec<i64> = (0..rank)
            .map(|d| tried[d.min(2)].min(if d > 2 { 2 } else { i64::MAX }))
            .collect();
        let mut dims = [extents.clone(), vec![0; rank]].concat();
        let at = |formula: &Formula, dims: &[i64]| {
            let env = Env {
                dims,
                scalars: &[],
                given: &[],
                multiprocessors: 1,
            };
            formula.eval(&env).ok()
        };
        let (of, list) = (show(&extents), |v: &[i64]| show(v));
        let Some(size) = at(size, &dims) else {
            return Some(format!("the size of a view {of} has no value"));
        };
        let mut seen: HashMap<i64, Vec<i64>> = HashMap::new();
        loop {
            let index = dims[rank..].to_vec();
            match at(offset, &dims) {
                Some(place) if (0..size).contains(&place) => {
                    if let Some(other) = seen.insert(place, index.clone()) {
                        return Some(format!(
                            "elements {} and {} of a view {of} have one place",
                            list(&other),
                            list(&index)
                        ));
                    }
                }
                Some(place) => {
                    return Some(format!(
                        "element {} of a view {of} has place {place}, and the size is {size}",
                        list(&index)
                    ));
                }
                None => {
                    return Some(format!(
                        "element {} of a view {of} has no place",
                        list(&index)
                    ));
                }
            }
            let Some(d) = (0..rank).rev().find(|&d| dims[rank + d] + 1 < extents[d]) else {
                break;
            };
            dims[rank + d] += 1;
            dims[rank + d + 1..].fill(0);
        }
    }
    None
}

fn show(numbers: &[i64]) -> String {
    let texts: Vec<String> = numbers.iter().map(i64::to_string).collect();
    format!("`[{}]`", texts.join(", "))
}
