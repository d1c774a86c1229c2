//! What roles may do with views: each is stored to by one role, or by replicas that are apart within the block, and what
//! is stored to nobody reads, because roles go on at their own pace.

use std::collections::BTreeSet;

use super::{Access, Checker, Dim, Kind};
use crate::diagnostics::{Diagnostic, codes};

impl Checker<'_> {
    /// Stores and reads that no order of the roles could make right.
    pub(super) fn judge_roles(&self) -> Vec<Diagnostic> {
        let heads = &self.heads;
        // Those of called kernels stand in the branches that call.
        let body = &self.forms.kernel.body;
        let called = heads
            .iter()
            .any(|(_, op)| !body.regions[body.root].ops.contains(op));
        let params = &self.forms.kernel.header.signature.params;
        let mut out = Vec::new();
        let mut told = BTreeSet::new();
        for (i, a) in self.accesses.iter().enumerate() {
            let view = &params[a.param as usize].name;
            let Some(role) = a.role else {
                if a.kind == Kind::Load {
                    out.push(self.read(a, view));
                } else if !called {
                    out.push(
                        Diagnostic::error(
                            codes::E0701,
                            a.span,
                            "what stands before `roles` each role does, so nothing is stored there",
                        )
                        .help("let one of the roles do it"),
                    );
                }
                continue;
            };
            if a.kind == Kind::Load {
                out.push(self.read(a, view));
                continue;
            }
            for b in &self.accesses[..i] {
                let Some(other) = b.role else { continue };
                if b.param != a.param || other == role || b.kind == Kind::Load {
                    continue;
                }
                let ((one, here), (two, there)) = (&heads[other], &heads[role]);
                // A block takes one branch.
                if here != there {
                    continue;
                }
                if one.name != two.name {
                    let atomic = |x: &Access| matches!(x.kind, Kind::Atomic | Kind::Arrive);
                    if !(atomic(a) && atomic(b)) && told.insert((a.param, role, other)) {
                        out.push(
                            Diagnostic::error(
                                codes::E0706,
                                a.span,
                                format!("`{}` and `{}` both store to `{view}`", one.name, two.name),
                            )
                            .label(b.span, format!("`{}` stores here", one.name))
                            .note("roles go on at their own pace, so neither knows when the other has stored")
                            .help("pass the values through a channel to the role that stores"),
                        );
                    }
                    continue;
                }
                let promised = a.kind == Kind::Scatter || b.kind == Kind::Scatter;
                if promised || !a.conflicts(b) || separate(a, b) {
                    continue;
                }
                if told.insert((a.param, usize::MAX, 0)) {
                    out.push(
                        Diagnostic::error(
                            codes::E0706,
                            a.span,
                            format!(
                                "the replicas of `{}` may store to the same elements of `{view}`",
                                two.name
                            ),
                        )
                        .note("their slices must differ by a constant: `x + r*N +: N`, where `r` is the replica's index")
                        .help("or let one of them store: `if const r == 0 { … }`"),
                    );
                }
            }
        }
        out
    }

    fn read(&self, access: &Access, view: &str) -> Diagnostic {
        Diagnostic::error(
            codes::E0706,
            access.span,
            format!("`{view}` may be stored to, and a kernel with roles reads no such view"),
        )
        .note(
            "roles go on at their own pace: what one stores another may read too early or too late",
        )
        .help("pass the values through a channel")
    }
}

/// Whether two accesses of one block touch nothing in common: in some dimension they lie a constant apart that reaches.
fn separate(a: &Access, b: &Access) -> bool {
    if a.bits != b.bits {
        return false;
    }
    let apart = |(x, y): (&Dim, &Dim)| {
        let (Some(s), Some(t)) = (&x.start, &y.start) else {
            return false;
        };
        let way = t.plus(s, -1).and_then(|way| way.as_constant());
        way.is_some_and(|way| way >= x.extent || -way >= y.extent)
    };
    a.dims.iter().zip(&b.dims).any(apart)
        || match (&a.logical, &b.logical) {
            (Some((s, x)), Some((t, y))) => s == t && x.iter().zip(y).any(apart),
            _ => false,
        }
}
