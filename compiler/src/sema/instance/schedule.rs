//! What schedules say of an instance: values of its parameters, of its block and loops, facts, and what a tuner may try.

use std::rc::Rc;

use tesserine_set::{Choice, Fact, Formula, Term, Tune};

use super::{
    super::{
        Eval, Told,
        access::count,
        call::list,
        modules::{Module, nearest},
        value::{Host, Value},
    },
    Maker, covers,
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::Schedule,
    span::Span,
    syntax::ast,
    target::{Feature, Target},
};

/// Combinations of listed values of a kernel: each is a body.
const MAX_CHOICES: usize = 64;

/// Keys of a schedule that are no parameters.
pub(crate) const SCHEDULE_KEYS: &[&str] = &[
    "warps",
    "stages",
    "blocks_per_sm",
    "max_regs",
    "consumers",
    "producers",
    "persistent",
    "cluster",
    "multicast",
    "pair",
    "promote",
    "overlap",
    "cost",
];

impl<'a> Maker<'_, 'a> {
    /// The schedules of this kernel that apply to its arguments.
    pub(super) fn schedules(&mut self) -> Vec<(Module, &'a ast::Schedule)> {
        let program = self.ev.program;
        let mut found = Vec::new();
        for module in program.with_related(self.owner) {
            for item in &program.ast(module).items {
                if let ast::ItemKind::Schedule(schedule) = &item.kind
                    && schedule
                        .kernel
                        .segments
                        .last()
                        .is_some_and(|n| n.name == self.kernel.name.name)
                {
                    found.push((module, schedule));
                }
            }
        }
        found.retain(|(module, schedule)| self.applies(*module, schedule));
        found
    }

    /// Whether a schedule's `for` names the arguments of this instance.
    pub(super) fn applies(&mut self, module: Module, schedule: &'a ast::Schedule) -> bool {
        let Some(signature) = &self.kernel.signature else {
            return true;
        };
        schedule.cargs.iter().enumerate().all(|(i, carg)| {
            let cparam = match &carg.name {
                Some(name) => signature.cparams.iter().find(|p| p.name.name == name.name),
                None => signature.cparams.get(i),
            };
            let bound = cparam
                .and_then(|p| self.ev.local(&p.name.name))
                .map(|b| b.value.clone());
            match bound {
                Some(bound) => self
                    .in_module(module, |ev| ev.cvalue(&carg.value))
                    .is_ok_and(|wanted| wanted.same(&bound)),
                None => false,
            }
        })
    }

    /// What the schedules say for this target. Of the values of one key, those of a `general` entry come first (for the
    /// general body), then those of the schedule that names the most arguments; lesser ones are left out.
    pub(super) fn schedule_values(&mut self) -> Vec<(Module, &'a ast::KeyValue)> {
        let target = self.ev.target;
        let mut all: Vec<((bool, usize), Module, &'a ast::KeyValue)> = Vec::new();
        for (module, schedule) in self.schedules() {
            for entry in &schedule.entries {
                let ast::ScheduleEntry::Targets {
                    targets, values, ..
                } = entry
                else {
                    continue;
                };
                let general = self.general && is_general(targets);
                if general || covers(targets, target) {
                    let rank = (general, schedule.cargs.len());
                    all.extend(values.iter().map(|kv| (rank, module, kv)));
                }
            }
        }
        let same = |a: &ast::KeyValue, b: &ast::KeyValue| {
            a.key.name == b.key.name
                && a.field.as_ref().map(|f| &f.name) == b.field.as_ref().map(|f| &f.name)
        };
        let best = |(rank, _, kv): &&((bool, usize), Module, &ast::KeyValue)| {
            all.iter()
                .all(|(other, _, k)| !same(kv, k) || rank >= other)
        };
        let kept = all.iter().filter(best);
        kept.map(|(_, module, kv)| (*module, *kv)).collect()
    }

    /// The value of a key: of a list, the one that is chosen.
    pub(super) fn listed(&mut self, kv: &'a ast::KeyValue) -> Eval<&'a ast::Expr> {
        let ast::ExprKind::List(items) = &kv.value.kind else {
            return Ok(&kv.value);
        };
        let chosen = self.choice.get(self.lists.len()).copied().unwrap_or(0);
        self.lists.push(items.len());
        if self.lists.iter().product::<usize>() > MAX_CHOICES {
            return self.ev.error(
                codes::E0602,
                kv.value.span,
                format!("a launch chooses among at most {MAX_CHOICES} combinations of values"),
            );
        }
        match items.get(chosen) {
            Some(item) => Ok(item),
            None => self.ev.error(
                codes::E0602,
                kv.value.span,
                format!("`{}` needs a value to be taken", kv.key.name),
            ),
        }
    }

    /// Whether the `where` of entries admits the values that were taken from lists. The first of each must be.
    pub(super) fn admitted(&mut self) -> Eval<bool> {
        let target = self.ev.target;
        let mut all = true;
        for (module, schedule) in self.schedules() {
            for entry in &schedule.entries {
                let ast::ScheduleEntry::Targets {
                    targets,
                    values,
                    condition: Some(condition),
                    ..
                } = entry
                else {
                    continue;
                };
                if !covers(targets, target) {
                    continue;
                }
                let is_list = |kv: &ast::KeyValue| matches!(kv.value.kind, ast::ExprKind::List(_));
                if !values.iter().any(is_list) {
                    return self.ev.fail(
                        Diagnostic::error(
                            codes::E0602,
                            condition.span,
                            "this `where` chooses among values of a list, and there is none",
                        )
                        .note("facts about a launch belong into `specialize`"),
                    );
                }
                match self.in_module(module, |ev| ev.expr(condition))? {
                    Value::Bool(true) => {}
                    // What an instance's name says leaves nothing to choose.
                    Value::Bool(false) if self.lists.is_empty() || self.general => {}
                    Value::Bool(false) if self.choice.is_empty() => {
                        return self.ev.error(
                            codes::E0602,
                            condition.span,
                            "the first values of the lists are what a launch begins with, and this excludes them",
                        );
                    }
                    Value::Bool(false) => all = false,
                    other => {
                        let what = self.ev.describe(&other);
                        return self.ev.error(
                            codes::E0602,
                            condition.span,
                            format!("this is {what}, and values are chosen by a condition"),
                        );
                    }
                }
            }
        }
        Ok(all)
    }

    /// What the body costs, by which a launch chooses: wanted where values come from lists.
    pub(super) fn cost(&mut self) -> Eval<Option<Formula>> {
        if self.lists.is_empty() {
            return Ok(None);
        }
        let values = self.schedule_values();
        let Some((module, kv)) = values.iter().find(|(_, kv)| kv.key.name == "cost") else {
            let list = values.iter().find_map(|(_, kv)| match kv.value.kind {
                ast::ExprKind::List(_) if kv.key.name != "cluster" => Some(kv.value.span),
                _ => None,
            });
            return self.ev.fail(
                Diagnostic::error(
                    codes::E0602,
                    list.unwrap_or(self.kernel.name.span),
                    "nothing says which of these values a launch takes",
                )
                .help("add `cost: …`, an integer expression over the dimensions and these values: the least is taken"),
            );
        };
        let (module, expr) = (*module, &kv.value);
        self.in_module(module, |ev| {
            ev.frame().scopes.push(indexmap::IndexMap::new());
            let name = "multiprocessors".to_owned();
            let value = Value::Host(Rc::new(Host::Formula(Formula(vec![Term::Multiprocessors]))));
            ev.bind(
                &ast::Ident {
                    name,
                    span: expr.span,
                },
                value,
                false,
            );
            let made = ev.attempt(|ev| ev.formula(expr, false));
            ev.frame().scopes.pop();
            match made {
                Ok(formula) => Ok(Some(formula)),
                Err(None) => Err(Told),
                Err(Some((span, why))) => ev.fail(Diagnostic::error(codes::E0602, span, why).note(
                    "a cost is made of dimensions, integer parameters and `multiprocessors`",
                )),
            }
        })
    }

    /// The first `general` entry of the schedules.
    pub(super) fn general_entry(&mut self) -> Option<Span> {
        let schedules = self.schedules();
        schedules
            .iter()
            .flat_map(|(_, s)| &s.entries)
            .find_map(|e| match e {
                ast::ScheduleEntry::Targets { targets, span, .. } if is_general(targets) => {
                    Some(*span)
                }
                _ => None,
            })
    }

    /// What the schedules say of the block, and whether the grid is persistent if they say so.
    pub(super) fn schedule(&mut self) -> Eval<(Schedule, Option<bool>)> {
        let mut schedule = Schedule::default();
        let mut persistent = None;
        let signature = self
            .kernel
            .signature
            .as_ref()
            .expect("a declared kernel has a signature");
        let mut seen: Vec<(String, Span)> = Vec::new();
        for (module, kv) in self.schedule_values() {
            let name = written(kv);
            if let Some((_, first)) = seen.iter().find(|(k, _)| *k == name) {
                return self.ev.fail(
                    Diagnostic::error(
                        codes::E0602,
                        kv.span,
                        format!("`{name}` is given twice for {}", self.ev.target.name()),
                    )
                    .label(*first, "first here"),
                );
            }
            seen.push((name.clone(), kv.span));
            if let Some(field) = &kv.field {
                self.check_loop(&kv.key, field)?;
                let stages = self.count(module, kv, &name, 1..=64)?;
                schedule.loops.push((kv.key.name.clone(), stages));
                continue;
            }
            let key = kv.key.name.as_str();
            if signature.cparams.iter().any(|p| p.name.name == key) {
                continue;
            }
            match key {
                "warps" => schedule.warps = Some(self.count(module, kv, key, 1..=32)?),
                "stages" => schedule.stages = Some(self.count(module, kv, key, 1..=64)?),
                "blocks_per_sm" => {
                    schedule.blocks_per_sm = Some(self.count(module, kv, key, 1..=32)?)
                }
                "max_regs" => {
                    let most = Target::MAX_REGISTERS;
                    schedule.max_regs = Some(self.count(module, kv, key, 1..=most)?)
                }
                "consumers" => {
                    schedule.consumers = Some(self.count(module, kv, key, 1..=7)?);
                }
                "producers" => {
                    schedule.producers = Some(self.count(module, kv, key, 0..=4)?);
                }
                "promote" => {
                    schedule.promote = Some(self.count(module, kv, key, 16..=1 << 16)?);
                }
                "persistent" => persistent = Some(self.flag(module, kv, key)?),
                "multicast" => {
                    schedule.multicast = self.flag(module, kv, key)?;
                    if schedule.multicast {
                        self.needs(kv, Feature::Cluster, "clusters")?;
                        return self.unused(kv);
                    }
                }
                "pair" => {
                    schedule.pair = self.flag(module, kv, key)?;
                    if schedule.pair {
                        self.needs(kv, Feature::TensorMemory, "products of two blocks")?;
                        return self.unused(kv);
                    }
                }
                "overlap" => {
                    schedule.overlap = self.flag(module, kv, key)?;
                    if schedule.overlap {
                        self.needs(kv, Feature::Bulk, "launches that overlap")?;
                    }
                }
                // Of what it chooses among, `lists` speaks.
                "cost" => {}
                "cluster" => schedule.cluster = self.cluster_shape(module, kv)?,
                _ => return self.ev.fail(unknown_key(&kv.key, signature)),
            }
        }
        // A block's roles are warpgroups that wait for bulk copies.
        let roles = schedule.producers.is_some_and(|p| p > 0);
        if roles && !self.ev.target.has(Feature::Bulk) {
            let values = self.schedule_values();
            if let Some((_, kv)) = values.iter().find(|(_, kv)| kv.key.name == "producers") {
                self.needs(
                    kv,
                    Feature::Bulk,
                    "copies that a producer could issue for others",
                )?;
            }
        }
        Ok((schedule, persistent))
    }

    /// The value of a key that counts something.
    fn count(
        &mut self,
        module: Module,
        kv: &'a ast::KeyValue,
        key: &str,
        range: std::ops::RangeInclusive<u32>,
    ) -> Eval<u32> {
        let value = self.in_module(module, |ev| ev.const_int(&kv.value, &format!("`{key}`")))?;
        match u32::try_from(value) {
            Ok(value) if range.contains(&value) => Ok(value),
            _ => self.ev.error(
                codes::E0602,
                kv.value.span,
                format!(
                    "`{key}` is from {} to {}, and this is {value}",
                    range.start(),
                    range.end()
                ),
            ),
        }
    }

    fn flag(&mut self, module: Module, kv: &'a ast::KeyValue, key: &str) -> Eval<bool> {
        match self.in_module(module, |ev| ev.expr(&kv.value))? {
            Value::Bool(value) => Ok(value),
            _ => self.ev.error(
                codes::E0602,
                kv.value.span,
                format!("`{key}` is `true` or `false`"),
            ),
        }
    }

    /// A key that says what no pass asks for yet.
    fn unused<T>(&mut self, kv: &ast::KeyValue) -> Eval<T> {
        let what = format!("the schedule's `{}`", kv.key.name);
        self.ev.not_yet(kv.span, &what)
    }

    /// The target must have what a key asks for.
    fn needs(&mut self, kv: &ast::KeyValue, feature: Feature, what: &str) -> Eval<()> {
        let target = self.ev.target;
        if target.has(feature) {
            return Ok(());
        }
        let having: Vec<&str> = Target::ALL
            .into_iter()
            .filter(|t| t.has(feature))
            .map(Target::name)
            .collect();
        self.ev.fail(
            Diagnostic::error(
                codes::E0602,
                kv.span,
                format!(
                    "{} has no {what}, which `{}` asks for",
                    target.name(),
                    kv.key.name
                ),
            )
            .note(format!("there are some on {}", having.join(", "))),
        )
    }

    /// `cluster: [2, 1]`
    fn cluster_shape(&mut self, module: Module, kv: &'a ast::KeyValue) -> Eval<Vec<u32>> {
        let span = kv.value.span;
        let value = self.in_module(module, |ev| ev.expr(&kv.value))?;
        let sizes = match &value {
            Value::Int(size) => vec![*size],
            Value::List(sizes) | Value::Tuple(sizes) => {
                let sizes = sizes.iter().map(|s| match s {
                    Value::Int(size) => *size,
                    _ => 0,
                });
                sizes.collect()
            }
            _ => vec![0],
        };
        if sizes.is_empty() || sizes.len() > 3 || sizes.iter().any(|s| *s < 1) {
            return self.ev.error(
                codes::E0602,
                span,
                "`cluster` is a list of one to three sizes, as `[2, 1]`",
            );
        }
        let whole = sizes.iter().fold(1i128, |all, s| all.saturating_mul(*s));
        let target = self.ev.target;
        if whole > i128::from(target.max_cluster()) {
            return self.ev.fail(
                Diagnostic::error(
                    codes::E0606,
                    span,
                    format!(
                        "a cluster on {} has at most {}, and this asks for {whole}",
                        target.name(),
                        count(target.max_cluster() as usize, "block")
                    ),
                )
                .note("clusters of more than one block are of sm_90a to sm_110a"),
            );
        }
        Ok(sizes.into_iter().map(|s| s as u32).collect())
    }

    /// `name.stages` is about a loop of the body.
    fn check_loop(&mut self, name: &ast::Ident, field: &ast::Ident) -> Eval<()> {
        if field.name != "stages" {
            return self.ev.fail(
                Diagnostic::error(
                    codes::E0601,
                    field.span,
                    format!("`{}` is no key of a loop", field.name),
                )
                .note("of a loop, `stages` can be said"),
            );
        }
        let mut labels = Vec::new();
        block_labels(&self.source.body, &mut labels);
        if labels.iter().any(|l| *l == name.name) {
            return Ok(());
        }
        let diagnostic = Diagnostic::error(
            codes::E0601,
            name.span,
            format!("`{}` has no loop `{}`", self.kernel.name.name, name.name),
        );
        let near = nearest(&name.name, labels.iter().copied());
        self.ev.fail(match near {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None => diagnostic.help(format!("name the loop: `{}: for …`", name.name)),
        })
    }

    /// What the schedules name for a tuner to try.
    pub(super) fn tunes(&mut self) -> Vec<Tune> {
        let program = self.ev.program;
        let text = |span: Span| program.sources.text(span).to_owned();
        let mut tunes = Vec::new();
        for (_, schedule) in self.schedules() {
            for entry in &schedule.entries {
                let ast::ScheduleEntry::Tune {
                    values, condition, ..
                } = entry
                else {
                    continue;
                };
                let choices = values.iter().map(|kv| Choice {
                    name: written(kv),
                    values: match &kv.value.kind {
                        ast::ExprKind::List(items) => items.iter().map(|i| text(i.span)).collect(),
                        _ => vec![text(kv.value.span)],
                    },
                });
                tunes.push(Tune {
                    choices: choices.collect(),
                    wheres: condition.iter().map(|c| text(c.span)).collect(),
                });
            }
        }
        tunes
    }

    pub(super) fn specialised(&mut self) -> Eval<Vec<Vec<Fact>>> {
        let mut all = Vec::new();
        for (module, schedule) in self.schedules() {
            for entry in &schedule.entries {
                if let ast::ScheduleEntry::Specialize { facts, .. } = entry {
                    let mut list = Vec::new();
                    for fact in facts {
                        self.in_module(module, |ev| ev.facts(fact, &mut list))?;
                    }
                    if !list.is_empty() {
                        all.push(list);
                    }
                }
            }
        }
        Ok(all)
    }
}

/// The diagnostic for a schedule's key that means nothing.
pub(crate) fn unknown_key(key: &ast::Ident, signature: &ast::Signature) -> Diagnostic {
    let known: Vec<&str> = SCHEDULE_KEYS
        .iter()
        .copied()
        .chain(signature.cparams.iter().map(|p| p.name.name.as_str()))
        .collect();
    let diagnostic = Diagnostic::error(
        codes::E0601,
        key.span,
        format!(
            "`{}` is neither a key of schedules nor a parameter of this kernel",
            key.name
        ),
    );
    match nearest(&key.name, known.iter().copied()) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => diagnostic.note(format!("the keys are {}", list(SCHEDULE_KEYS))),
    }
}

/// Whether a schedule's entry is for the general body.
pub(crate) fn is_general(targets: &[ast::Target]) -> bool {
    matches!(targets, [ast::Target::One(name)] if name.name == "general")
}

/// A key as written: `stages`, `p.stages`.
fn written(kv: &ast::KeyValue) -> String {
    match &kv.field {
        Some(field) => format!("{}.{}", kv.key.name, field.name),
        None => kv.key.name.clone(),
    }
}

/// The names of the loops of a block.
fn block_labels<'a>(block: &'a ast::Block, labels: &mut Vec<&'a str>) {
    for stmt in &block.stmts {
        match &stmt.kind {
            ast::StmtKind::For(loop_) => {
                labels.extend(loop_.label.as_ref().map(|l| l.name.as_str()));
                block_labels(&loop_.body, labels);
            }
            ast::StmtKind::While { body, .. } => block_labels(body, labels),
            ast::StmtKind::If(branch) => if_labels(branch, labels),
            ast::StmtKind::Pingpong(pingpong) => block_labels(&pingpong.body, labels),
            ast::StmtKind::Roles(roles) => roles.iter().for_each(|r| block_labels(&r.body, labels)),
            _ => {}
        }
    }
}

fn if_labels<'a>(branch: &'a ast::If, labels: &mut Vec<&'a str>) {
    block_labels(&branch.then, labels);
    match branch.els.as_deref() {
        Some(ast::Else::Block(block)) => block_labels(block, labels),
        Some(ast::Else::If(inner)) => if_labels(inner, labels),
        None => {}
    }
}
