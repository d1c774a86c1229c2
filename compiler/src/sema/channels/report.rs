//! What is said of channels that do not work: the channel, the roles, and the operations at fault.

use std::collections::BTreeMap;

use super::{
    run::{Fault, Machine, Net, Wait},
    skeleton::{Ends, Refused, Role, Skeleton, Step, Why},
    terms::{TermId, Terms},
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::tile::{ChannelId, Kernel},
    span::Span,
};

pub(super) struct Report<'r> {
    pub kernel: &'r Kernel,
    pub skeleton: &'r Skeleton,
    pub ends: &'r Ends,
}

/// Control that roles cannot share.
pub(super) fn refused(list: &[Refused]) -> Vec<Diagnostic> {
    let mut out: Vec<Diagnostic> = Vec::new();
    for one in list {
        let Refused {
            span, what, role, ..
        } = one;
        let mut diagnostic = match &one.why {
            Why::Unfit(unfit) => {
                let title = match one.around_what.is_empty() {
                    true => format!("{what} in `{role}` depends on what only this role knows"),
                    false => format!(
                        "{what} around {} in `{role}` depends on what only this role knows",
                        one.around_what
                    ),
                };
                Diagnostic::error(codes::E0720, *span, title).label(unfit.span, unfit.why)
            }
            Why::Index => Diagnostic::error(
                codes::E0720,
                *span,
                format!(
                    "{what} around {} in `{role}` asks more of a loop's index than whether it is near an end",
                    one.around_what
                ),
            )
            .note("around channel operations an index may be compared with the ends of its loop, plus or minus a constant"),
            Why::While => Diagnostic::error(
                codes::E0720,
                *span,
                format!("{what} is around {} in `{role}`", one.around_what),
            )
            .note("how often a `while` turns is known to this role only"),
            Why::Cluster(axis) => Diagnostic::error(
                codes::E0720,
                *span,
                format!("{what} around channel operations in `{role}` depends on `{axis}`, in which the blocks of a cluster differ"),
            )
            .note("a slot of a channel `across` a cluster is in all its blocks, so all do the same with it"),
        };
        if one.around.is_some() && one.around != *span {
            diagnostic = diagnostic.label(one.around, "this is done under it");
        }
        if matches!(one.why, Why::Unfit(_) | Why::While) {
            diagnostic = diagnostic.note("control around channel operations depends on constants, loop indices, scalars bound before `roles`, and scalars received through channels");
        }
        if matches!(one.why, Why::Unfit(_)) {
            diagnostic = diagnostic.help(
                "bind it before `roles`, or let the condition choose values instead of operations",
            );
        }
        if !out.iter().any(|d| d.primary.0 == *span) {
            out.push(diagnostic);
        }
    }
    out
}

impl Report<'_> {
    fn role(&self, role: usize) -> &Role {
        &self.skeleton.roles[role]
    }

    fn label(&self, role: usize) -> String {
        self.role(role).head.label()
    }

    fn name(&self, channel: ChannelId) -> &str {
        &self.kernel.channels[channel].name
    }

    fn span(&self, role: usize, step: usize) -> Span {
        self.role(role).spans[step]
    }

    pub fn fault(&self, fault: &Fault) -> Diagnostic {
        match *fault {
            Fault::NotHeld { role, step } => {
                let (label, span) = (self.label(role), self.span(role, step));
                let name = match &self.role(role).steps[step] {
                    Step::Release { channel, .. } => self.name(*channel),
                    _ => "",
                };
                Diagnostic::error(
                    codes::E0724,
                    span,
                    format!("`{label}` gives back a slot of `{name}` here, and holds none"),
                )
                .note("`release` gives back the oldest slot that the role has got and still holds")
            }
            Fault::Late {
                role,
                step,
                channel,
                given,
            } => {
                let (label, span) = (self.label(role), self.span(role, step));
                let name = self.name(channel);
                let mut diagnostic = Diagnostic::error(
                    codes::E0724,
                    span,
                    format!("`{label}` reads a slot of `{name}` that it no longer holds"),
                );
                if let Some(given) = given {
                    let what = match self.role(role).steps[given] {
                        Step::Put { .. } => "it is handed on here",
                        _ => "it is given back here",
                    };
                    diagnostic = diagnostic.label(self.span(role, given), what);
                }
                diagnostic
                    .note("the slot may be filled anew from then on")
                    .help(format!("move `release {name}` behind the last use"))
            }
            Fault::HandsOn {
                role,
                step,
                channel,
                given,
            } => {
                let (label, span) = (self.label(role), self.span(role, step));
                let name = self.name(channel);
                let mut diagnostic = Diagnostic::error(
                    codes::E0729,
                    span,
                    format!("`{label}` hands on a slot of `{name}` that it does not hold"),
                );
                if let Some(given) = given {
                    let what = match self.role(role).steps[given] {
                        Step::Put { .. } => "it has handed it on here",
                        _ => "it has given it back here",
                    };
                    diagnostic = diagnostic.label(self.span(role, given), what);
                }
                diagnostic.note("a slot is released or handed on, once")
            }
            Fault::InFlight {
                role,
                step,
                product,
                channel,
            } => {
                let (label, span) = (self.label(role), self.span(role, step));
                let name = self.name(channel);
                Diagnostic::error(
                    codes::E0729,
                    span,
                    format!("`{label}` writes into a slot of `{name}` that a product in flight still reads"),
                )
                .label(self.span(role, product), "the product begins here")
                .help("`await` it first")
            }
            Fault::Lag {
                role,
                step,
                counted,
            } => {
                let span = self.span(role, step);
                let stated = match &self.role(role).steps[step] {
                    Step::Await { lag, .. } => lag.unwrap_or(0),
                    _ => 0,
                };
                let products = |n: u64| match n {
                    1 => "1 newer product flies".to_owned(),
                    n => format!("{n} newer products fly"),
                };
                Diagnostic::error(
                    codes::E0727,
                    span,
                    format!("this says that {}, and there the count is {counted}", products(stated.into()).replace("flies", "still flies").replace(" fly", " still fly")),
                )
                .note("`lag` states how many products that are newer than the one awaited stay in flight")
                .help(format!("write `lag {counted}`, or leave it out"))
            }
            Fault::Unawaited { role, step } => {
                let label = self.label(role);
                Diagnostic::error(
                    codes::E0703,
                    self.span(role, step),
                    format!(
                        "this product is still in flight where `{label}` ends, on one of its paths"
                    ),
                )
                .note("every product must be awaited or put, on every path")
            }
            Fault::Held {
                role,
                step,
                channel,
                count,
            } => {
                let (label, name) = (self.label(role), self.name(channel));
                let slots = match count {
                    1 => "a slot".to_owned(),
                    n => format!("{n} slots"),
                };
                Diagnostic::error(
                    codes::E0723,
                    self.span(role, step),
                    format!("`{label}` still holds {slots} of `{name}` when it ends"),
                )
                .note("a slot that is not given back cannot be filled again, and in the next tile the ring would be too short")
                .help(format!("write `release {name};` where the slot has been read"))
            }
        }
    }

    /// The counts that a fault occurs with, where they have names.
    fn example(&self, terms: &Terms<'_>, atoms: &[(TermId, i64)]) -> Option<String> {
        let mut out = Vec::new();
        for &(term, value) in atoms {
            let name = terms.show(term)?;
            out.push(match (terms.is_truth(term), value) {
                (false, _) => format!("`{name}` is {value}"),
                (true, 0) => format!("`{name}` does not hold"),
                (true, _) => format!("`{name}` holds"),
            });
        }
        match out.len() {
            1..=3 => Some(out.join(" and ")),
            _ => None,
        }
    }

    /// Puts and gets that differ in number.
    pub fn counts(
        &self,
        machines: &[Machine<'_>],
        terms: &mut Terms<'_>,
        atoms: &[(TermId, i64)],
    ) -> Vec<Diagnostic> {
        let mut out = Vec::new();
        for (id, channel) in &self.kernel.channels {
            let (Some(puts), Some(gets)) = (self.ends.puts.get(&id), self.ends.gets.get(&id))
            else {
                continue;
            };
            let name = &channel.name;
            let step = |role: usize, put: bool| {
                let steps = self.role(role).steps.iter();
                let mut steps = steps.enumerate().filter(|(_, s)| match s {
                    Step::Put { channel, .. } => put && *channel == id,
                    Step::Get { channel, .. } => !put && *channel == id,
                    _ => false,
                });
                steps.next_back().map(|(i, _)| i)
            };
            // How many slots each producer fills: of parts, each as often.
            let mut filled: Vec<(usize, u64)> = Vec::new();
            for &role in puts {
                let m = &machines[role];
                let parts: Vec<u64> = m
                    .parts
                    .iter()
                    .filter(|((c, _), _)| *c == id)
                    .map(|(_, n)| *n)
                    .collect();
                let is_part = step(role, true).is_some_and(|s| {
                    matches!(self.role(role).steps[s], Step::Put { part: Some(_), .. })
                });
                let count = match is_part {
                    true => {
                        let all = super::skeleton::starts(self.role(role), id);
                        let least = parts.iter().min().copied().unwrap_or(0);
                        let most = parts.iter().max().copied().unwrap_or(0);
                        if most != least || (parts.len() < all && most > 0) {
                            let span =
                                step(role, true).map_or(channel.span, |s| self.span(role, s));
                            out.push(
                                Diagnostic::error(
                                    codes::E0725,
                                    span,
                                    format!("`{}` does not put each part of `{name}` as often as the others", self.label(role)),
                                )
                                .label(channel.span, "declared here")
                                .note("a slot is full when all its parts have been put"),
                            );
                        }
                        most
                    }
                    false => m.puts.get(&id).copied().unwrap_or(0),
                };
                filled.push((role, count));
            }
            let Some(&(putter, count)) = filled.first() else {
                continue;
            };
            if let Some((other, n)) = filled.iter().find(|(_, n)| *n != count) {
                let span = step(*other, true).map_or(channel.span, |s| self.span(*other, s));
                let mut diagnostic = Diagnostic::error(
                    codes::E0725,
                    span,
                    format!(
                        "`{}` puts its part into `{name}` {}, and `{}` {}",
                        self.label(*other),
                        times(*n),
                        self.label(putter),
                        times(count)
                    ),
                )
                .label(channel.span, "declared here")
                .note("a slot is full when all its parts have been put");
                if let Some(example) = self.example(terms, atoms) {
                    diagnostic = diagnostic.note(format!("for example where {example}"));
                }
                out.push(diagnostic);
                continue;
            }
            for &getter in gets {
                let got = machines[getter].gets.get(&id).copied().unwrap_or(0);
                if got == count {
                    continue;
                }
                let (a, b) = (self.label(putter), self.label(getter));
                let spans = (step(putter, true), step(getter, false));
                let (Some(p), Some(g)) = spans else { continue };
                let (put_at, got_at) = (self.span(putter, p), self.span(getter, g));
                let title = format!(
                    "`{a}` puts {} into `{name}`, and `{b}` gets {got}",
                    slots(count)
                );
                let mut diagnostic = Diagnostic::error(codes::E0722, got_at, title)
                    .at(format!("`{b}` gets here"))
                    .label(put_at, format!("`{a}` puts here"));
                if let Some(example) = self.example(terms, atoms) {
                    diagnostic = diagnostic.note(format!("so it is where {example}"));
                }
                let total = |role: usize, put: bool, terms: &mut Terms<'_>| {
                    let mut sum = Vec::new();
                    let mut constant = 0u64;
                    for (i, s) in self.role(role).steps.iter().enumerate() {
                        let here = match s {
                            Step::Put { channel, .. } => put && *channel == id,
                            Step::Get { channel, .. } => !put && *channel == id,
                            _ => false,
                        };
                        if !here {
                            continue;
                        }
                        let text = self.role(role).times(i, terms)?;
                        match text.parse::<u64>() {
                            Ok(n) => constant += n,
                            Err(_) => sum.push(text),
                        }
                    }
                    if constant > 0 || sum.is_empty() {
                        sum.insert(0, constant.to_string());
                    }
                    Some(sum.join(" + "))
                };
                let both = (total(putter, true, terms), total(getter, false, terms));
                if let (Some(x), Some(y)) = both
                    && x != y
                    && (x.parse::<u64>().is_err() || y.parse::<u64>().is_err())
                {
                    let note = format!("`{a}` puts `{x}` times, `{b}` gets `{y}` times");
                    diagnostic = diagnostic.note(note);
                }
                out.push(diagnostic.note("each role that gets a channel sees every slot of it, and all of a tile's are put and got in that tile"));
                break;
            }
        }
        out
    }

    /// Replicas that miss a turn.
    pub fn turns(&self, machines: &[Machine<'_>]) -> Vec<Diagnostic> {
        let mut out = Vec::new();
        for (turn, (name, span)) in self.skeleton.turns.iter().enumerate() {
            let of = |m: &Machine<'_>| m.visits.get(&turn).copied().unwrap_or(0);
            let replicas: Vec<usize> = (0..machines.len())
                .filter(|&r| self.role(r).head.name == *name)
                .collect();
            let counts: Vec<u64> = replicas.iter().map(|&r| of(&machines[r])).collect();
            let (Some(&most), Some(least)) = (
                counts.iter().max(),
                counts.iter().enumerate().min_by_key(|(_, n)| **n),
            ) else {
                continue;
            };
            if most == *least.1 {
                continue;
            }
            let (missing, with) = (replicas[least.0], counts.iter().position(|n| *n == most));
            let other = with.map_or(String::new(), |i| self.label(replicas[i]));
            out.push(
                Diagnostic::error(
                    codes::E0726,
                    *span,
                    format!(
                        "`{}` comes to this `pingpong` {}, and `{other}` {}",
                        self.label(missing),
                        times(*least.1),
                        times(most)
                    ),
                )
                .note("replicas pass in turn, so the others would wait for it for ever")
                .help("let all replicas take the same way around a `pingpong`"),
            );
        }
        out
    }

    /// Roles that wait for each other for ever.
    pub fn circle(
        &self,
        net: &Net<'_>,
        machines: &[Machine<'_>],
        waits: &BTreeMap<usize, Wait>,
        terms: &mut Terms<'_>,
        atoms: &[(TermId, i64)],
    ) -> Vec<Diagnostic> {
        // Who must go on before another can.
        let next = |role: usize| -> Option<usize> {
            let blocked = |r: &usize| waits.contains_key(r);
            match waits.get(&role)? {
                Wait::Full(channel, _) => {
                    let puts = self.ends.puts.get(channel)?;
                    puts.iter().copied().find(blocked)
                }
                Wait::Free(channel, slot) => {
                    let mut at = (*channel, *slot);
                    let depth = |c: ChannelId| u64::from(self.kernel.channels[c].depth);
                    loop {
                        let holders = net.holders(machines, at.0, at.1);
                        if let Some(found) = holders.into_iter().find(|r| blocked(r)) {
                            return Some(found);
                        }
                        // It was handed on: who holds it now?
                        let (to, slot) = net.handed_on(at.0, at.1.checked_sub(depth(at.0))?)?;
                        at = (to, slot + depth(to));
                    }
                }
                Wait::Turn(turn) => {
                    let (name, _) = &self.skeleton.turns[*turn];
                    let replicas = (0..machines.len()).filter(|&r| self.role(r).head.name == *name);
                    let mut others = replicas.filter(|&r| r != role);
                    others.find(blocked)
                }
            }
        };
        let Some(&first) = waits.keys().next() else {
            return Vec::new();
        };
        let mut path = vec![first];
        while let Some(to) = path.last().and_then(|&r| next(r)) {
            if let Some(at) = path.iter().position(|&r| r == to) {
                path.drain(..at);
                break;
            }
            path.push(to);
        }
        // From the role that is written first.
        let smallest = path.iter().enumerate().min_by_key(|(_, r)| **r);
        let turn = smallest.map_or(0, |(i, _)| i);
        path.rotate_left(turn);
        let what = |role: usize| -> (Span, String, String) {
            let span = self.span(role, machines[role].pc);
            match waits.get(&role) {
                Some(Wait::Full(channel, slot)) => (
                    span,
                    format!("`get {}`", self.name(*channel)),
                    format!("for slot {} of `{}`", slot + 1, self.name(*channel)),
                ),
                Some(Wait::Free(channel, slot)) => (
                    span,
                    format!("`put {}`", self.name(*channel)),
                    format!(
                        "for a free slot of `{}`, its {} being taken ({} were put)",
                        self.name(*channel),
                        self.kernel.channels[*channel].depth,
                        slot
                    ),
                ),
                Some(Wait::Turn(_)) | None => (span, "`pingpong`".into(), "for its turn".into()),
            }
        };
        let Some(&start) = path.first() else {
            return Vec::new();
        };
        let (span, at, why) = what(start);
        let label = self.label(start);
        let title = match path.len() {
            1 => format!("`{label}` waits for itself at {at}"),
            _ => {
                let other = path[1];
                let (_, second, _) = what(other);
                format!(
                    "`{label}` waits at {at}, and `{}` at {second}, each for what the other does later",
                    self.label(other)
                )
            }
        };
        let mut diagnostic =
            Diagnostic::error(codes::E0721, span, title).at(format!("`{label}` waits {why}"));
        for &role in &path[1..] {
            let (span, _, why) = what(role);
            diagnostic = diagnostic.label(span, format!("`{}` waits {why}", self.label(role)));
        }
        if path.len() > 2 {
            let names: Vec<String> = path
                .iter()
                .chain([&start])
                .map(|&r| format!("`{}`", self.label(r)))
                .collect();
            diagnostic = diagnostic.note(format!("in a circle: {}", names.join(" waits for ")));
        }
        // Slots that only a product's end frees.
        for &role in &path {
            if let Some((channel, step)) = machines[role].late() {
                let name = self.name(channel);
                let wait = waits
                    .iter()
                    .any(|(_, w)| matches!(w, Wait::Free(c, _) if *c == channel));
                if wait {
                    diagnostic = diagnostic.label(
                        self.span(role, step),
                        format!("a slot of `{name}` is free only when a later product or `await` has shown that this one is over"),
                    );
                    break;
                }
            }
        }
        if let Some(example) = self.example(terms, atoms) {
            diagnostic = diagnostic.note(format!("so it is where {example}"));
        }
        vec![diagnostic.help("put and get in one order in all roles, release slots earlier, or give the channel more depth")]
    }
}

fn slots(n: u64) -> String {
    match n {
        0 => "no slot".to_owned(),
        1 => "1 slot".to_owned(),
        n => format!("{n} slots"),
    }
}

fn times(n: u64) -> String {
    match n {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        n => format!("{n} times"),
    }
}
