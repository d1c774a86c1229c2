//! What is said of accesses that are not proven apart: the index, the view, and what would make it provable.

use std::collections::BTreeSet;

use super::{
    Access, Checker, Kind,
    forms::{Form, Inside, TermId},
};
use crate::diagnostics::{Diagnostic, codes};

impl Checker<'_> {
    fn name(&self, param: u32) -> &str {
        &self.forms.kernel.header.signature.params[param as usize].name
    }

    /// A store through an index tile.
    pub(super) fn gathered(&self, access: &Access) -> Diagnostic {
        let view = self.name(access.param);
        Diagnostic::error(
            codes::E0401,
            access.span,
            format!("elements of `{view}` are chosen by a tile of indices, which may hold one twice"),
        )
        .help(format!("if no two are equal, in this block and in all others, promise it: `scatter {view}[…] = …`"))
    }

    /// An access that two blocks may do on one element.
    pub(super) fn not_apart(&self, access: &Access, open: &[usize]) -> Diagnostic {
        let header = &self.forms.kernel.header;
        // Inside `arrive` only what chooses the counter must be told apart.
        let mut counted = BTreeSet::new();
        for index in access.arrivals.iter().flat_map(|a| &a.indices) {
            self.axes_of(index, &mut counted);
        }
        let chosen: Vec<usize> = open
            .iter()
            .copied()
            .filter(|i| counted.contains(i))
            .collect();
        let open = if chosen.is_empty() { open } else { &chosen[..] };
        let names: Vec<&str> = open.iter().map(|&i| header.axes[i].name.as_str()).collect();
        let axis = names.first().copied().unwrap_or("?");
        let view = self.name(access.param);
        let mut diagnostic = match access.kind {
            Kind::Load => Diagnostic::error(
                codes::E0402,
                access.span,
                format!(
                    "blocks that differ in `{axis}` may read elements of `{view}` that another stores"
                ),
            ),
            _ => Diagnostic::error(
                codes::E0401,
                access.span,
                format!(
                    "blocks that differ in `{axis}` may store to the same elements of `{view}`"
                ),
            ),
        };
        // A dimension that begins as it should, and is too long.
        let index = open.first().copied().unwrap_or(0) as u32;
        for dim in &access.dims {
            let Some(start) = &dim.start else { continue };
            for (&term, &c) in &start.terms {
                if matches!(self.forms.inside(term), Inside::Grid(axis) if *axis == index)
                    && c.unsigned_abs() < dim.extent.unsigned_abs()
                {
                    let extent = dim.extent;
                    diagnostic = diagnostic.note(format!(
                        "its starts are {} apart from one `{axis}` to the next, and the slice has {extent} elements",
                        c.unsigned_abs()
                    ));
                }
            }
        }
        for note in self.tables(access) {
            diagnostic = diagnostic.note(note);
        }
        if !access.arrivals.is_empty() {
            diagnostic = diagnostic.note(
                "one block is the last at each counter, and blocks that are so at different counters may store here: the slice must tell the counter's indices",
            );
        }
        if names.len() > 1 {
            let rest: Vec<String> = names[1..].iter().map(|n| format!("`{n}`")).collect();
            diagnostic =
                diagnostic.note(format!("nor does anything tell {} apart", rest.join(", ")));
        }
        diagnostic = diagnostic.note(format!(
            "a slice tells blocks apart where a dimension starts at `{axis}*S + …` with S at least its length, or is indexed by `{axis}`; what is added may depend only on indices that are told apart already"
        ));
        match access.kind {
            Kind::Load => diagnostic.help("read the slice that this block stores, or take the data through a second, read-only view"),
            _ => diagnostic.help(format!(
                "let `{axis}` choose the slice, or store under `if {axis} == 0`; if what is stored differs by construction, write `scatter`"
            )),
        }
    }

    /// The grid axes that a sum is made of.
    fn axes_of(&self, form: &Form, out: &mut BTreeSet<usize>) {
        let mut todo: Vec<TermId> = form.terms.keys().copied().collect();
        let mut seen = BTreeSet::new();
        while let Some(term) = todo.pop() {
            if !seen.insert(term) {
                continue;
            }
            let data = &self.forms.terms[term as usize];
            if let Inside::Grid(axis) = data.inside {
                out.insert(axis as usize);
            }
            let of = data.of.iter().flatten();
            todo.extend(of.flat_map(|form| form.terms.keys().copied()));
        }
    }

    /// What is missing at the tables that an access goes by.
    fn tables(&self, access: &Access) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        let mut note = |text: String| {
            if !out.contains(&text) {
                out.push(text);
            }
        };
        for dim in &access.dims {
            for limit in [&dim.from, &dim.until].into_iter().flatten() {
                for p in self.tables_of(limit, 8) {
                    if self.forms.view(p).is_some_and(|v| !v.facts.sorted) {
                        let name = self.name(p);
                        note(format!(
                            "ranges between neighbours of `{name}` do not overlap if it is `sorted`: declare it so, if it is"
                        ));
                    }
                }
            }
            let Some(start) = &dim.start else { continue };
            for &term in start.terms.keys() {
                let Inside::Element(p, index, _) = self.forms.inside(term) else {
                    continue;
                };
                let (name, Some(view)) = (self.name(*p), self.forms.view(*p)) else {
                    continue;
                };
                if !view.facts.distinct {
                    let what = if index.len() == 1 { "elements" } else { "rows" };
                    note(format!(
                        "{what} of `{name}` tell blocks apart if no two are equal: declare it `distinct`, if so"
                    ));
                } else if index.len() == 1 {
                    note(format!(
                        "`{name}` is `distinct`, but only inside: outside of it everything reads alike. A grid axis of its own extent stays inside"
                    ));
                } else {
                    note(format!(
                        "`{name}` is `distinct` by rows: all columns of a row together tell blocks apart, of a grid axis of its own extent"
                    ));
                }
            }
        }
        out
    }

    /// The views whose elements `limit` is made of.
    fn tables_of(&self, limit: &Form, depth: u32) -> Vec<u32> {
        let Some(depth) = depth.checked_sub(1) else {
            return Vec::new();
        };
        match self.forms.look(limit) {
            Some(Inside::Element(p, ..)) => vec![*p],
            Some(Inside::Min(x, y) | Inside::Max(x, y)) => {
                let mut all = self.tables_of(x, depth);
                all.extend(self.tables_of(y, depth));
                all
            }
            _ => Vec::new(),
        }
    }

    /// Two accesses that each tell blocks apart, but not together.
    pub(super) fn not_alike(&self, at: &Access, from: &Access) -> Diagnostic {
        let view = self.name(at.param);
        let code = match at.kind {
            Kind::Load => codes::E0402,
            _ => codes::E0401,
        };
        let diagnostic = Diagnostic::error(
            code,
            at.span,
            format!("two blocks may touch the same elements of `{view}`: here, and at another access of it"),
        )
        .label(from.span, "the other access");
        if from.kind == Kind::Arrive || at.kind == Kind::Arrive {
            return diagnostic
                .note("a counter is counted by `arrive` only; it is 0 before and after");
        }
        if from.kind == Kind::Atomic || at.kind == Kind::Atomic {
            return diagnostic
                .note("blocks may combine into one element by atomic operations, but not store to it or read it meanwhile")
                .help("read the result in a later launch, or inside `if arrive(…)`");
        }
        if at.kind == Kind::Load && !at.arrivals.is_empty() {
            return diagnostic
                .note("the last block to arrive sees what the others stored before they arrived, and nothing that is stored after")
                .help("store first, then arrive");
        }
        if from.kind == Kind::Scatter {
            return diagnostic
                .note("`scatter` promises that blocks store apart from each other, not that none reads what another stores");
        }
        let diagnostic = diagnostic.note("each alone tells blocks apart, but not in the same way: the same dimension, the same stride, and both within one stride");
        diagnostic.help(
            "let both take the same slice of a block's own, or let one of them take another view",
        )
    }
}
