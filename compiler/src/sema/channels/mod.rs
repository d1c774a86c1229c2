//! The check of channels: puts and gets match in number, nobody waits for ever, slots are held where they are read and given
//! back once, parts fill a slot, replicas take their turns, and counts of products in flight are as stated.
//!
//! Control around channel operations depends only on what all roles share or have received, so it is known when the atoms
//! of its terms have values. The roles' skeletons are executed for small values of them, and for those at which comparisons turn,
//! until longer loops show no state that has not been seen at a loop's head. A tile that ends with all slots free
//! leaves nothing to the next, so one tile stands for all of a persistent grid, whatever its outcomes are.

mod report;
mod run;
mod skeleton;
mod split;
mod terms;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        RegionId,
        tile::{ChannelId, Kernel, OpKind, RoleHead, RoleOp},
    },
};
use report::Report;
use run::{Fault, Given, Machine, Net, Oracle, Progress, Wait};
use skeleton::{Ends, Role, Skeleton, Step};
use terms::{Nowhere, Place, Term, TermId, Terms, Values};

/// Values of atoms that are tried at one bound.
const MAX_COMBINATIONS: usize = 60_000;
/// Executions of the roles.
const MAX_RUNS: usize = 6_000;
/// Steps of one execution.
const MAX_STEPS: usize = 300_000;
/// Steps of all.
const MAX_WORK: usize = 4_000_000;
/// Turns of a loop that are tried, at most.
const MAX_TURNS: i64 = 80;

/// What is wrong with the channels of `kernel`.
pub(crate) fn check(kernel: &Kernel) -> Vec<Diagnostic> {
    let body = &kernel.body;
    let root = &body.regions[body.root].ops;
    let roles = root.iter().find_map(|&op| match &body.ops[op].kind {
        OpKind::Role(RoleOp::Roles(heads)) => Some((heads, &body.ops[op].regions)),
        _ => None,
    });
    let Some((heads, regions)) = roles else {
        return Vec::new();
    };
    match (heads.is_empty(), kernel.channels.is_empty()) {
        (true, _) => Vec::new(),
        _ => {
            let found = checked(kernel, heads, regions);
            let much = found.iter().any(|d| d.code == codes::E0730);
            match split::split(kernel, regions).filter(|_| much) {
                Some(parts) => parts.iter().flat_map(check).collect(),
                None => found,
            }
        }
    }
}

fn checked(kernel: &Kernel, heads: &[RoleHead], regions: &[RegionId]) -> Vec<Diagnostic> {
    let mut terms = Terms::new(kernel, regions);
    let skeleton = skeleton::extract(kernel, heads, regions, &mut terms);
    if !skeleton.refused.is_empty() {
        return report::refused(&skeleton.refused);
    }
    let ends = Ends::of(&skeleton.roles);
    let found = producers(kernel, &skeleton, &ends);
    if !found.is_empty() {
        return found;
    }
    let parts = match parts(kernel, &skeleton, &terms) {
        Ok(parts) => parts,
        Err(found) => return found,
    };
    let mut search = Search::new(kernel, &skeleton, &mut terms, &ends, &parts);
    search.run(&mut terms)
}

/// Channels that several roles put whole, or nobody puts or gets.
fn producers(kernel: &Kernel, skeleton: &Skeleton, ends: &Ends) -> Vec<Diagnostic> {
    let mut out = Vec::new();
    let put = |role: &Role, id: ChannelId| {
        role.steps
            .iter()
            .zip(&role.spans)
            .find_map(|(s, span)| match s {
                Step::Put { channel, part, .. } if *channel == id => Some((*span, part.is_some())),
                _ => None,
            })
    };
    for (id, channel) in &kernel.channels {
        let by = ends.puts.get(&id).map_or(&[][..], |p| p);
        let puts: Vec<_> = by
            .iter()
            .filter_map(|&r| {
                let role = &skeleton.roles[r];
                put(role, id).map(|(span, part)| (role.head.label(), span, part))
            })
            .collect();
        if let [(first, at, _), (second, span, _), ..] = &puts[..]
            && puts.iter().any(|(_, _, part)| !part)
        {
            out.push(
                Diagnostic::error(
                    codes::E0728,
                    *span,
                    format!(
                        "`{first}` and `{second}` both put into `{}`, in no order",
                        channel.name
                    ),
                )
                .label(*at, format!("`{first}` puts here"))
                .label(channel.span, "declared here")
                .note("a channel has one producer, so that what it passes does not depend on timing; several may put fixed parts of each slot")
                .help("make it an array, with a channel for each: `channel c[2]: …`"),
            );
            continue;
        }
        let gets = ends.gets.get(&id).map_or(&[][..], |p| p);
        let got = gets.first().and_then(|&r| {
            let role = &skeleton.roles[r];
            let step = role.steps.iter().zip(&role.spans);
            let mut steps =
                step.filter(|(s, _)| matches!(s, Step::Get { channel, .. } if *channel == id));
            steps.next().map(|(_, span)| (role.head.label(), *span))
        });
        match (puts.first(), got) {
            (Some((role, span, _)), None) => out.push(
                Diagnostic::error(
                    codes::E0722,
                    *span,
                    format!("`{role}` puts into `{}`, and no role gets it", channel.name),
                )
                .label(channel.span, "declared here")
                .help(format!(
                    "`get {}` in a role, and `release` it",
                    channel.name
                )),
            ),
            (None, Some((role, span))) => out.push(
                Diagnostic::error(
                    codes::E0722,
                    span,
                    format!("`{role}` gets `{}`, and no role puts into it", channel.name),
                )
                .label(channel.span, "declared here"),
            ),
            _ => {}
        }
        // Who writes in place must be alone with the slot.
        let Some(over) = channel.over else { continue };
        let readers = ends.gets.get(&over).map_or(&[][..], |p| p);
        if let ([first, second, ..], Some((role, span, _))) = (readers, puts.first()) {
            let other = [first, second]
                .into_iter()
                .find(|&&r| skeleton.roles[r].head.label() != *role);
            let other = other.map_or(String::new(), |&r| skeleton.roles[r].head.label());
            let of = &kernel.channels[over];
            out.push(
                Diagnostic::error(
                    codes::E0729,
                    *span,
                    format!(
                        "`{role}` writes into a slot of `{}` that `{other}` reads too",
                        of.name
                    ),
                )
                .label(of.span, "declared here")
                .note("a slot is handed on by the one role that gets it"),
            );
        }
    }
    out
}

/// How many parts fill a slot of each channel that is put so.
fn parts(
    kernel: &Kernel,
    skeleton: &Skeleton,
    terms: &Terms<'_>,
) -> Result<HashMap<ChannelId, u32>, Vec<Diagnostic>> {
    let mut found = Vec::new();
    let mut out = HashMap::new();
    let axes = &kernel.header.axes;
    for (id, channel) in &kernel.channels {
        let mut puts = Vec::new();
        for (r, role) in skeleton.roles.iter().enumerate() {
            for (step, span) in role.steps.iter().zip(&role.spans) {
                match step {
                    Step::Put {
                        channel,
                        part: Some(part),
                        ..
                    } if *channel == id => puts.push((r, part, *span)),
                    _ => {}
                }
            }
        }
        let Some(tile) = channel.tiles.first().filter(|_| !puts.is_empty()) else {
            let whole = skeleton.roles.iter().find_map(|role| {
                let mut steps = role.steps.iter().zip(&role.spans);
                let mine =
                    steps.find(|(s, _)| matches!(s, Step::Put { channel, .. } if *channel == id));
                mine.map(|(_, span)| (role.head.label(), *span))
            });
            if let (Some(_), Some((role, span))) = (channel.across, whole) {
                let title = format!(
                    "`{role}` of each block of the cluster fills the same slots of `{}`",
                    channel.name
                );
                found.push(
                    Diagnostic::error(codes::E0725, span, title)
                        .label(channel.span, "declared here")
                        .note("a slot of a channel `across` a cluster exists in all its blocks, and what one puts arrives in all")
                        .help("let each put its part: `put … at […]`"),
                );
            }
            continue;
        };
        // The axis of the cluster that the parts begin by.
        let mut by = 0u32;
        for (r, part, span) in &puts {
            for &start in &part.start {
                let about = terms.about(start);
                let cluster = |i: usize| axes.get(i).is_some_and(|a| a.cluster);
                let only = (0..32).all(|i| about.axes >> i & 1 == 0 || cluster(i));
                let grid = about
                    .atoms
                    .iter()
                    .all(|t| matches!(terms.term(*t), Term::Leaf(terms::Leaf::Grid(_))));
                if !only || !grid || !about.indices.is_empty() || !about.got.is_empty() {
                    let role = skeleton.roles[*r].head.label();
                    found.push(
                        Diagnostic::error(
                            codes::E0725,
                            *span,
                            format!("where this part of a slot of `{}` begins is not fixed", channel.name),
                        )
                        .label(channel.span, "declared here")
                        .note(format!("`{role}` puts it at constants, or at multiples of an index of a cluster's axis, so that the parts of all fill the slot")),
                    );
                }
                by |= about.axes;
            }
        }
        if !found.is_empty() {
            continue;
        }
        let extent = |i: u32| {
            let axis = axes.get(i as usize);
            axis.and_then(|a| a.extent.as_int())
                .unwrap_or(1)
                .clamp(1, 64)
        };
        let whole: i64 = tile.shape.iter().map(|d| i64::from(*d)).product();
        // Of `across`, the parts of all blocks fill a slot; else those of each block by itself.
        let own = by & !channel.across.map_or(0, |a| 1 << a);
        let own = (own != 0).then(|| own.trailing_zeros());
        let all = channel.across.map_or(1, extent);
        let groups = (0..own.map_or(1, extent)).map(|r| (0..all).map(move |a| (r, a)));
        let mut count = 0;
        for group in groups {
            let mut rects: Vec<(Vec<(i64, i64)>, usize, crate::span::Span, (i64, i64))> =
                Vec::new();
            for rank in group {
                for (r, part, span) in &puts {
                    let mut atoms = Vec::new();
                    for &start in &part.start {
                        for &atom in &terms.about(start).atoms {
                            let across = matches!(terms.term(atom), Term::Leaf(terms::Leaf::Grid(a)) if channel.across == Some(*a));
                            atoms.push((atom, if across { rank.1 } else { rank.0 }));
                        }
                    }
                    let mut values = Values::default();
                    terms.values(&[], &atoms, &mut values);
                    let rect: Vec<(i64, i64)> = part
                        .start
                        .iter()
                        .zip(&part.shape)
                        .map(|(t, n)| {
                            let at = terms.eval(*t, &values, &mut Nowhere).unwrap_or(0);
                            (at, at + i64::from(*n))
                        })
                        .collect();
                    if !rects
                        .iter()
                        .any(|(o, by, _, at)| (o, by, at) == (&rect, r, &rank))
                    {
                        rects.push((rect, *r, *span, rank));
                    }
                }
            }
            let outside = rects.iter().find(|(rect, ..)| {
                let inside = rect.iter().zip(&tile.shape);
                inside
                    .into_iter()
                    .any(|((a, b), d)| *a < 0 || *b > i64::from(*d))
            });
            let mut overlap = None;
            for (i, a) in rects.iter().enumerate() {
                for b in &rects[..i] {
                    let apart = a.0.iter().zip(&b.0).any(|(x, y)| x.1 <= y.0 || y.1 <= x.0);
                    if !apart && overlap.is_none() {
                        overlap = Some((b.clone(), a.clone()));
                    }
                }
            }
            let label = |r: usize| skeleton.roles[r].head.label();
            let volume: i64 = rects
                .iter()
                .map(|(rect, ..)| rect.iter().map(|(a, b)| b - a).product::<i64>())
                .sum();
            let show = |rect: &[(i64, i64)]| {
                let axes: Vec<String> = rect.iter().map(|(a, b)| format!("{a}..{b}")).collect();
                format!("[{}]", axes.join(", "))
            };
            let wrong = if let Some((rect, _, span, _)) = outside {
                let title = format!(
                    "the part {} lies outside of a slot of `{}`",
                    show(rect),
                    channel.name
                );
                Some(Diagnostic::error(codes::E0725, *span, title))
            } else if let Some((a, b)) = overlap {
                let title = format!(
                    "parts of a slot of `{}` overlap: {} of `{}`, and {} of `{}`",
                    channel.name,
                    show(&a.0),
                    label(a.1),
                    show(&b.0),
                    label(b.1)
                );
                let mut wrong = Diagnostic::error(codes::E0725, b.2, title);
                if a.1 == b.1 && a.3 != b.3 {
                    wrong =
                        wrong.note("each block of the cluster puts its part into the slots of all");
                }
                if a.2 != b.2 {
                    wrong = wrong.label(a.2, "the other is put here");
                }
                Some(wrong)
            } else if volume != whole {
                let title = format!(
                    "the parts put into `{}` fill {volume} of the {whole} elements of a slot",
                    channel.name
                );
                let parts: Vec<String> = rects.iter().map(|(rect, ..)| show(rect)).collect();
                let span = rects.first().map_or(channel.span, |r| r.2);
                let note = format!("there are {}", parts.join(", "));
                Some(Diagnostic::error(codes::E0725, span, title).note(note))
            } else {
                None
            };
            if let Some(wrong) = wrong {
                found.push(wrong.label(channel.span, "declared here"));
                break;
            }
            count = rects.len() as i64;
        }
        // Each block puts its share at the same time as the others.
        out.insert(id, (count / all).max(1) as u32);
    }
    match found.is_empty() {
        true => Ok(out),
        false => Err(found),
    }
}

/// The values of atoms that are tried, and what has been seen.
struct Search<'s, 'k> {
    kernel: &'k Kernel,
    skeleton: &'s Skeleton,
    ends: &'s Ends,
    parts: &'s HashMap<ChannelId, u32>,
    /// What decides: conditions, and the bounds of loops.
    forms: Vec<Form>,
    atoms: Vec<TermId>,
    /// Values of each atom beyond the small ones.
    critical: HashMap<TermId, BTreeSet<i64>>,
    divisors: HashMap<TermId, BTreeSet<i64>>,
    /// Conditions that hold at every launch.
    assumed: Vec<TermId>,
    oracle: Oracle,
    /// How far constants push what matters.
    extra: i64,
    seen: HashSet<u64>,
    runs: usize,
    work: usize,
}

enum Form {
    /// A condition, or a part of one.
    Condition(TermId),
    Loop(TermId, TermId, TermId),
}

/// Where a loop's index is its first.
struct AtStart<'s, 't> {
    terms: &'t Terms<'t>,
    values: &'t Values,
    firsts: &'s HashMap<RegionId, TermId>,
    depth: u32,
}

impl Place for AtStart<'_, '_> {
    fn index(&self, region: RegionId) -> Option<i64> {
        let lo = self.firsts.get(&region)?;
        let mut inner = AtStart {
            depth: self.depth + 1,
            ..*self
        };
        match self.depth {
            0..32 => self.terms.eval(*lo, self.values, &mut inner),
            _ => None,
        }
    }

    fn received(&mut self, _: TermId) -> Option<i64> {
        Some(0)
    }
}

impl<'s, 'k> Search<'s, 'k> {
    fn new(
        kernel: &'k Kernel,
        skeleton: &'s Skeleton,
        terms: &mut Terms<'k>,
        ends: &'s Ends,
        parts: &'s HashMap<ChannelId, u32>,
    ) -> Search<'s, 'k> {
        let mut search = Search {
            kernel,
            skeleton,
            ends,
            parts,
            forms: Vec::new(),
            atoms: Vec::new(),
            critical: HashMap::new(),
            divisors: HashMap::new(),
            assumed: Vec::new(),
            oracle: Oracle::default(),
            extra: 0,
            seen: HashSet::new(),
            runs: 0,
            work: 0,
        };
        search.collect(terms);
        search
    }

    fn collect(&mut self, terms: &mut Terms<'k>) {
        let mut used = BTreeSet::new();
        for role in &self.skeleton.roles {
            for step in &role.steps {
                match step {
                    Step::Branch { cond, .. } | Step::Enter { cond, .. } => {
                        self.forms.push(Form::Condition(*cond));
                        terms.within(*cond, &mut used);
                    }
                    Step::Begin(of) => {
                        let l = &role.loops[*of];
                        self.forms.push(Form::Loop(l.lo, l.hi, l.step));
                        for t in [l.lo, l.hi, l.step] {
                            terms.within(t, &mut used);
                        }
                        let count = terms.add(l.hi, l.lo, -1);
                        terms.within(count, &mut used);
                        if let Some(by) = terms.as_int(l.step).filter(|by| *by > 1) {
                            let atoms = terms.about(count).atoms.clone();
                            for atom in atoms {
                                self.divisors.entry(atom).or_default().insert(by);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        let mut atoms = BTreeSet::new();
        for &t in &used {
            atoms.extend(terms.about(t).atoms.iter().copied());
        }
        self.assume(terms, &atoms);
        self.atoms = atoms.into_iter().collect();
        // What decides is what differs: where a difference turns.
        let mut differences: BTreeSet<TermId> = used.clone();
        for &t in &self.assumed {
            terms.within(t, &mut differences);
        }
        for &t in &used {
            if let Term::Min(a, b) | Term::Max(a, b) = *terms.term(t) {
                differences.insert(terms.add(a, b, -1));
            }
        }
        for &t in &differences {
            let (constant, parts) = match terms.term(t) {
                Term::Sum(constant, parts) => (*constant, parts.clone()),
                Term::Div(of, by) => {
                    for &atom in &terms.about(*of).atoms {
                        self.divisors.entry(atom).or_default().insert(*by);
                    }
                    continue;
                }
                Term::Rem(of, by) => {
                    for &atom in &terms.about(*of).atoms {
                        self.divisors.entry(atom).or_default().insert(*by);
                    }
                    continue;
                }
                _ => continue,
            };
            match parts[..] {
                [(atom, factor)] if terms.is_atom(atom) => {
                    let root = -constant / factor;
                    self.critical.entry(atom).or_default().insert(root);
                }
                [] => {}
                _ if constant.abs() <= 32 => self.extra = self.extra.max(constant.abs()),
                _ => {
                    for (atom, factor) in parts {
                        if terms.is_atom(atom) {
                            let root = -constant / factor;
                            self.critical.entry(atom).or_default().insert(root);
                        }
                    }
                }
            }
        }
        // What is received: small values, and those at which comparisons turn.
        for t in used.iter().copied().collect::<Vec<_>>() {
            if terms.about(t).got.is_empty() {
                continue;
            }
            let canonical = terms.canonical(t);
            self.oracle.canonical.insert(t, canonical);
            let critical = self.critical.get(&t).cloned().unwrap_or_default();
            let options = self.oracle.options.entry(canonical).or_default();
            if terms.is_truth(t) {
                *options = vec![0, 1];
            } else {
                options.extend([0, 1, 2]);
                options.extend(critical.iter().flat_map(|c| [c - 1, *c, c + 1]));
                options.sort_unstable();
                options.dedup();
            }
        }
    }

    /// Finds what a launch may rely on, of the atoms that matter.
    fn assume(&mut self, terms: &mut Terms<'k>, atoms: &BTreeSet<TermId>) {
        let kernel = self.kernel;
        let body = &kernel.body;
        let root = body.regions[body.root].ops.iter();
        let asserts = root.filter_map(|&op| match body.ops[op].kind {
            OpKind::Assert { .. } => Some(body.ops[op].operands[0]),
            _ => None,
        });
        let mut known: Vec<TermId> = asserts.filter_map(|v| terms.of(v).ok()).collect();
        let facts = kernel.header.requires.iter().chain(&kernel.header.facts);
        known.extend(facts.filter_map(|fact| terms.fact(fact)));
        for term in known {
            let mine = &terms.about(term).atoms;
            if !mine.is_empty() && mine.is_subset(atoms) {
                self.assumed.push(term);
            }
        }
    }

    /// The values of an atom that are tried, if loops turn up to `bound` times.
    fn samples(&self, terms: &Terms<'_>, atom: TermId, bound: i64) -> Vec<i64> {
        if terms.is_truth(atom) {
            return vec![0, 1];
        }
        let mut out: BTreeSet<i64> = BTreeSet::new();
        let divisors = self.divisors.get(&atom);
        match divisors {
            None => out.extend(0..=bound),
            Some(by) => {
                out.extend(0..=1);
                for &by in by {
                    for i in 0..=bound {
                        let at = by.saturating_mul(i);
                        out.extend([at, at.saturating_add(1)]);
                    }
                }
            }
        }
        for &at in self.critical.get(&atom).into_iter().flatten() {
            if at > bound || at < 0 || divisors.is_some() {
                out.extend((-1..=bound).map(|i| at.saturating_add(i)));
            }
            out.insert(at + 1);
        }
        out.insert(-1);
        if terms.not_negative(atom) {
            out.retain(|v| *v >= 0);
        }
        out.into_iter().collect()
    }

    /// What the values decide: two that decide the same are alike.
    fn decisions(
        &self,
        terms: &Terms<'_>,
        values: &Values,
        firsts: &HashMap<RegionId, TermId>,
        bound: i64,
    ) -> Vec<i64> {
        let mut out = Vec::new();
        let mut start = AtStart {
            terms,
            values,
            firsts,
            depth: 0,
        };
        for form in &self.forms {
            match form {
                Form::Condition(cond) => {
                    self.condition(terms, *cond, values, &mut start, bound, &mut out);
                }
                Form::Loop(lo_term, hi_term, step) => {
                    let value = |t: &TermId, start: &mut AtStart<'_, '_>| {
                        terms.eval(*t, values, start).unwrap_or(0)
                    };
                    let (lo, hi) = (value(lo_term, &mut start), value(hi_term, &mut start));
                    let step = value(step, &mut start).max(1);
                    let moving = [lo_term, hi_term]
                        .iter()
                        .any(|t| !terms.about(**t).indices.is_empty());
                    let most = 4 * (bound + self.extra + 4);
                    let count = match hi > lo {
                        true => (hi - lo - 1) / step + 1,
                        // Where an index moves the ends, it matters how far they are apart.
                        false if moving => (hi - lo).max(-most),
                        false => 0,
                    };
                    out.push(count);
                }
            }
        }
        out
    }

    fn condition(
        &self,
        terms: &Terms<'_>,
        cond: TermId,
        values: &Values,
        start: &mut AtStart<'_, '_>,
        bound: i64,
        out: &mut Vec<i64>,
    ) {
        let about = terms.about(cond);
        if !about.got.is_empty() {
            out.extend(about.atoms.iter().map(|a| values.get(*a).unwrap_or(0)));
            return;
        }
        if about.indices.is_empty() {
            out.push(terms.eval(cond, values, start).unwrap_or(0));
            return;
        }
        match terms.term(cond) {
            Term::And(a, b) | Term::Or(a, b) => {
                self.condition(terms, *a, values, start, bound, out);
                self.condition(terms, *b, values, start, bound, out);
            }
            Term::Not(a) => self.condition(terms, *a, values, start, bound, out),
            Term::Compare(_, difference) => {
                let value = terms.eval(*difference, values, start).unwrap_or(0);
                let most = 4 * (bound + self.extra + 4);
                out.push(value.clamp(-most, most));
            }
            _ => out.extend(about.atoms.iter().map(|a| values.get(*a).unwrap_or(0))),
        }
    }

    fn run(&mut self, terms: &mut Terms<'k>) -> Vec<Diagnostic> {
        let mut firsts = HashMap::new();
        for role in &self.skeleton.roles {
            firsts.extend(role.loops.iter().map(|l| (l.index, l.lo)));
        }
        let depths = self.kernel.channels.values();
        let slots: i64 = depths.map(|c| i64::from(c.depth)).sum();
        let most = (slots + 3).min(MAX_TURNS) + self.extra;
        let mut known: HashSet<Vec<i64>> = HashSet::new();
        let mut quiet = 0;
        let order = self.order(terms);
        let mut values = Values::default();
        let mut before: Option<Vec<Vec<i64>>> = None;
        for bound in 2 + self.extra..=most {
            let lists: Vec<Vec<i64>> = self
                .atoms
                .iter()
                .map(|a| self.samples(terms, *a, bound))
                .collect();
            let combinations = lists
                .iter()
                .fold(1usize, |all, l| all.saturating_mul(l.len()));
            if combinations > MAX_COMBINATIONS {
                return vec![self.too_many(terms)];
            }
            let (seen, runs) = (self.seen.len(), known.len());
            // Only what has a value that was not tried before.
            let fresh: Vec<Vec<bool>> = lists
                .iter()
                .enumerate()
                .map(|(i, l)| {
                    let old = before.as_ref().map(|b: &Vec<Vec<i64>>| &b[i]);
                    l.iter()
                        .map(|v| old.is_none_or(|o| !o.contains(v)))
                        .collect()
                })
                .collect();
            let mut at = vec![0usize; lists.len()];
            loop {
                let fresh = before
                    .as_ref()
                    .is_none_or(|b| at.iter().zip(&fresh).zip(b).any(|((i, f), _)| f[*i]));
                if fresh {
                    let atoms: Vec<(TermId, i64)> = self
                        .atoms
                        .iter()
                        .zip(&at)
                        .zip(&lists)
                        .map(|((a, i), l)| (*a, l[*i]))
                        .collect();
                    terms.values(&order, &atoms, &mut values);
                    let assumed = self.assumed.iter().all(|t| values.get(*t) != Some(0));
                    if assumed && known.insert(self.decisions(terms, &values, &firsts, bound)) {
                        match self.execute(terms, &values, &atoms) {
                            Err(()) => return vec![self.too_many(terms)],
                            Ok(found) if !found.is_empty() => return found,
                            Ok(_) => {}
                        }
                    }
                }
                let Some(next) = (0..at.len()).rev().find(|&i| at[i] + 1 < lists[i].len()) else {
                    break;
                };
                at[next] += 1;
                at[next + 1..].fill(0);
            }
            before = Some(lists);
            if known.len() == runs {
                break;
            }
            quiet = match self.seen.len() == seen {
                true => quiet + 1,
                false => 0,
            };
            if quiet == 2 {
                break;
            }
        }
        Vec::new()
    }

    /// What the atoms decide, so that each term comes after what it is made of.
    fn order(&self, terms: &Terms<'_>) -> Vec<TermId> {
        let mut out = BTreeSet::new();
        let mut add = |t: TermId| terms.within(t, &mut out);
        for form in &self.forms {
            match form {
                Form::Condition(cond) => add(*cond),
                Form::Loop(lo, hi, step) => [lo, hi, step].into_iter().for_each(|t| add(*t)),
            }
        }
        self.assumed.iter().for_each(|t| add(*t));
        let plain = |t: &TermId| {
            let about = terms.about(*t);
            about.indices.is_empty() && about.got.is_empty() && !terms.is_atom(*t)
        };
        out.into_iter().filter(plain).collect()
    }

    fn too_many(&self, terms: &Terms<'_>) -> Diagnostic {
        let names: Vec<String> = self.atoms.iter().filter_map(|a| terms.show(*a)).collect();
        let span = self.skeleton.roles.first().and_then(|r| r.loops.first());
        let span = span.map_or(self.kernel.header.span, |l| l.span);
        let mut diagnostic = Diagnostic::error(
            codes::E0730,
            span,
            "there are too many combinations of counts and outcomes to check the channels of this kernel",
        )
        .note("loops and conditions around channel operations are tried with all small counts, each with each");
        if names.len() > 1 {
            let names: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
            diagnostic = diagnostic.note(format!("they depend on {}", names.join(", ")));
        }
        diagnostic.help("bind what several roles depend on before `roles`, as one scalar, or let conditions choose values instead of operations")
    }

    /// Executes the roles with these values. Gives what is wrong, or nothing if it takes too long.
    fn execute(
        &mut self,
        terms: &mut Terms<'k>,
        values: &Values,
        atoms: &[(TermId, i64)],
    ) -> Result<Vec<Diagnostic>, ()> {
        loop {
            self.runs += 1;
            if self.runs > MAX_RUNS || self.work > MAX_WORK {
                return Err(());
            }
            let found = self.once(terms, values, atoms)?;
            if !found.is_empty() || !self.oracle.advance() {
                return Ok(found);
            }
        }
    }

    fn once(
        &mut self,
        terms: &mut Terms<'k>,
        values: &Values,
        atoms: &[(TermId, i64)],
    ) -> Result<Vec<Diagnostic>, ()> {
        let kernel = self.kernel;
        let roles = &self.skeleton.roles;
        let report = Report {
            kernel,
            skeleton: self.skeleton,
            ends: self.ends,
        };
        // Each by itself.
        self.oracle.restart();
        let mut net = Net::new(&kernel.channels, self.ends, self.parts, false);
        let mut machines: Vec<Machine<'_>> = roles
            .iter()
            .enumerate()
            .map(|(i, r)| Machine::new(i, r))
            .collect();
        let mut faults = Vec::new();
        for machine in &mut machines {
            let given = Given { terms, values };
            let mut steps = 0;
            loop {
                steps += 1;
                match machine.go(&mut net, &given, &mut self.oracle) {
                    Ok(Progress::Ended) => {
                        faults.extend(machine.end(&mut net));
                        break;
                    }
                    Ok(_) if steps > MAX_STEPS => return Err(()),
                    Ok(_) => {}
                    Err(fault) => {
                        faults.push(fault);
                        break;
                    }
                }
            }
            self.work += steps;
        }
        let mut found: Vec<Diagnostic> = Vec::new();
        let early = |f: &Fault| matches!(f, Fault::Held { .. } | Fault::Unawaited { .. });
        for fault in faults.iter().filter(|f| !early(f)) {
            found.push(report.fault(fault));
        }
        if found.is_empty() {
            found.extend(report.counts(&machines, terms, atoms));
            found.extend(report.turns(&machines));
            for fault in &faults {
                found.push(report.fault(fault));
            }
        }
        if !found.is_empty() {
            return Ok(unique(found));
        }
        // Together.
        self.oracle.restart();
        let mut net = Net::new(&kernel.channels, self.ends, self.parts, true);
        std::mem::swap(&mut net.seen, &mut self.seen);
        let mut machines: Vec<Machine<'_>> = roles
            .iter()
            .enumerate()
            .map(|(i, r)| Machine::new(i, r))
            .collect();
        let mut steps = 0;
        let waits: BTreeMap<usize, Wait> = loop {
            let mut waits = BTreeMap::new();
            let mut moved = false;
            for i in 0..machines.len() {
                let given = Given { terms, values };
                loop {
                    let head =
                        matches!(roles[i].steps.get(machines[i].pc), Some(Step::Next { .. }));
                    if head {
                        net.note(&machines);
                    }
                    steps += 1;
                    let ended = machines[i].ended();
                    match machines[i].go(&mut net, &given, &mut self.oracle) {
                        Ok(Progress::Went) => {
                            moved = true;
                            if machines[i].ended() {
                                machines[i].end(&mut net);
                            }
                        }
                        Ok(Progress::Waits(wait)) => {
                            waits.insert(i, wait);
                            break;
                        }
                        Ok(Progress::Ended) => {
                            debug_assert!(ended);
                            break;
                        }
                        Err(_) => return Err(()),
                    }
                    if steps > MAX_STEPS {
                        return Err(());
                    }
                }
            }
            if waits.is_empty() || !moved {
                break waits;
            }
        };
        self.work += steps;
        std::mem::swap(&mut net.seen, &mut self.seen);
        match waits.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(report.circle(&net, &machines, &waits, terms, atoms)),
        }
    }
}

fn unique(mut list: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let mut seen = BTreeSet::new();
    list.retain(|d| {
        let span = d.primary.0;
        seen.insert((d.code, span.file, span.start, span.end))
    });
    list
}
