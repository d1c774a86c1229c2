//! Instances: a kernel with its compile-time arguments, for one target.
//!
//! The name of an instance is read, its parameters are bound (what is written, else the schedule's value for the target,
//! else the default), the signature and the grid become formulas, and the body is walked. An instance has a body for each
//! `specialize` and one without, for which the schedule's `general` entry may have values of its own; where parameters are
//! optional, one more for each that may be left out.

use std::{rc::Rc, thread};

use tesserine_set::{
    Access, DType, Fact, Formula, FormulaOp, Param, ParamKind, Term, ViewFacts, ViewParam,
};

use super::{
    Eval, Told,
    call::{CArgument, bare, list},
    eval::{Binding, Evaluator, Frame, find_interface},
    modules::{Def, Module, Program, nearest},
    races, uniform,
    value::{Symbol, TypeValue, Value, VariantType, VariantValue, ViewValue},
};
use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    ir::{GridAxis, Header, Order, Schedule, tile},
    span::Span,
    syntax::ast,
    target::Target,
};

/// The stack of a walk: nesting is limited, and this is what the limit needs.
const STACK: usize = 128 << 20;

/// A kernel as it is declared.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelInfo {
    pub name: String,
    /// Its `///` lines.
    pub doc: Option<String>,
    pub span: Span,
    pub cparams: Vec<CParamInfo>,
}

/// A compile-time parameter as it is declared.
#[derive(Clone, Debug, PartialEq)]
pub struct CParamInfo {
    pub name: String,
    /// `dtype`, `int`, `bool`, `fn`, or an interface's name.
    pub kind: String,
    /// The values between the braces of `in { … }`, as written.
    pub allowed: Option<Vec<String>>,
    /// The default, as written.
    pub default: Option<String>,
}

/// The kernels that a module declares, in source order.
pub fn kernels(program: &Program, module: Module) -> Vec<KernelInfo> {
    let text = |span: Span| program.sources.text(span).to_owned();
    program
        .ast(module)
        .items
        .iter()
        .filter_map(|item| {
            let ast::ItemKind::Kernel(kernel) = &item.kind else {
                return None;
            };
            let signature = kernel.signature.as_ref()?;
            let cparams = signature.cparams.iter().map(|p| CParamInfo {
                name: p.name.name.clone(),
                kind: match &p.kind {
                    ast::CKind::Path(path) => text(path.span),
                    ast::CKind::Fn(_) => "fn".into(),
                },
                allowed: p
                    .allowed
                    .as_ref()
                    .map(|a| a.iter().map(|e| text(e.span)).collect()),
                default: p.default.as_ref().map(|d| match d {
                    ast::CValue::Expr(e) => text(e.span),
                    ast::CValue::Applied { span, .. } => text(*span),
                }),
            });
            Some(KernelInfo {
                name: kernel.name.name.clone(),
                doc: item.doc.clone(),
                span: kernel.name.span,
                cparams: cparams.collect(),
            })
        })
        .collect()
}

/// Runs `f` where the stack is large enough for the deepest walk.
pub(crate) fn with_stack<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let handle = thread::Builder::new()
            .stack_size(STACK)
            .spawn_scoped(scope, f)
            .expect("a thread for the walk can be started");
        match handle.join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// The instance named `text` of a kernel of `module`, for `target`.
pub fn instantiate(
    program: &Program,
    module: Module,
    text: &str,
    target: Target,
) -> Result<tile::Instance, Diagnostics> {
    with_stack(|| {
        let mut diagnostics = Diagnostics::default();
        let (name, cargs) = match parse_instance(text) {
            Ok(parsed) => parsed,
            Err(why) => {
                diagnostics.push(
                    Diagnostic::error(
                        codes::E0501,
                        Span::NONE,
                        format!("`{text}` names no instance: {why}"),
                    )
                    .help("write it as `kernel<bf16, BM = 64>`"),
                );
                return Err(diagnostics);
            }
        };
        let Some((owner, kernel)) = find_kernel(program, module, &name) else {
            let names: Vec<String> = kernels(program, module)
                .into_iter()
                .map(|k| k.name)
                .collect();
            let file = program
                .sources
                .get(program.file(module))
                .map_or("", |f| f.name.as_str());
            let mut diagnostic = Diagnostic::error(
                codes::E0502,
                Span::NONE,
                format!("`{file}` has no kernel `{name}`"),
            );
            if let Some(near) = nearest(&name, names.iter().map(String::as_str)) {
                diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
            } else if !names.is_empty() {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                diagnostic = diagnostic.note(format!("it has {}", list(&names)));
            }
            diagnostics.push(diagnostic);
            return Err(diagnostics);
        };
        let (instance, diagnostics) = make(program, (module, owner), kernel, &cargs, target);
        match instance {
            Some(instance) if !diagnostics.has_errors() => Ok(instance),
            _ => Err(diagnostics),
        }
    })
}

/// The kernel `name` of a module, or one that it uses.
pub(crate) fn find_kernel<'p>(
    program: &'p Program,
    module: Module,
    name: &str,
) -> Option<(Module, &'p ast::Kernel)> {
    match find_item(program, module, name)? {
        (owner, ast::ItemKind::Kernel(kernel)) => Some((owner, kernel)),
        _ => None,
    }
}

/// The item `name` of a module, or one that it uses.
pub(crate) fn find_item<'p>(
    program: &'p Program,
    module: Module,
    name: &str,
) -> Option<(Module, &'p ast::ItemKind)> {
    let Def::Item(owner, index) = program.lookup(module, name)? else {
        return None;
    };
    Some((owner, &program.item(owner, index).kind))
}

/// The compile-time arguments of an instance.
#[derive(Clone, Copy)]
pub(crate) enum CArgs<'c, 'a> {
    /// As written, to be evaluated in this module.
    Written(Module, &'a [ast::CArg]),
    Values(&'c [CArgument<'a>]),
}

/// Makes an instance of `kernel`, which `owner` declares. `cargs` are evaluated in `scope`.
pub(crate) fn make<'a>(
    program: &'a Program,
    (scope, owner): (Module, Module),
    kernel: &'a ast::Kernel,
    cargs: &'a [ast::CArg],
    target: Target,
) -> (Option<tile::Instance>, Diagnostics) {
    let name = instance_name(program, &kernel.name.name, cargs);
    make_given(
        program,
        owner,
        kernel,
        name,
        CArgs::Written(scope, cargs),
        target,
    )
}

/// Makes an instance of `kernel`, which `owner` declares, and calls it `name`.
pub(crate) fn make_given<'a>(
    program: &'a Program,
    owner: Module,
    kernel: &'a ast::Kernel,
    name: String,
    cargs: CArgs<'_, 'a>,
    target: Target,
) -> (Option<tile::Instance>, Diagnostics) {
    let mut all = Diagnostics::default();
    // A target's own bodies come first, each where its `where` holds.
    let mut sources: Vec<(Module, &ast::Kernel)> = Vec::new();
    for m in program.with_related(owner) {
        for item in &program.ast(m).items {
            if let ast::ItemKind::Kernel(k) = &item.kind
                && k.signature.is_none()
                && k.name.name == kernel.name.name
                && k.targets.as_ref().is_some_and(|t| covers(t, target))
            {
                sources.push((m, k));
            }
        }
    }
    let general = match &kernel.targets {
        Some(targets) => covers(targets, target),
        None => true,
    };
    if general {
        sources.push((owner, kernel));
    }
    if sources.is_empty() {
        let span = kernel.name.span;
        all.push(
            Diagnostic::error(
                codes::E0605,
                span,
                format!("`{}` has no body for {}", kernel.name.name, target.name()),
            )
            .note("it is declared `for` other targets"),
        );
        return (None, all);
    }
    let mut special = Vec::new();
    let mut plain = Vec::new();
    for (module, source) in sources {
        let mut given: Option<Vec<bool>> = None;
        loop {
            let mut walk = |general: bool| {
                let mut ev = Evaluator::new(program, target, owner);
                let mut maker = Maker {
                    ev: &mut ev,
                    kernel,
                    source,
                    source_module: module,
                    owner,
                    general,
                };
                let result = maker.body(cargs, given.as_deref(), &name);
                let diagnostics = std::mem::take(&mut ev.diagnostics);
                let failed = diagnostics.has_errors();
                all.extend(diagnostics);
                result.map(|made| (made, failed))
            };
            let Ok((made, mut failed)) = walk(false) else {
                break;
            };
            let optional = made.optional;
            let mut unspecial = made.kernel.clone();
            if let Some(entry) = made.general {
                let Ok((general, also)) = walk(true) else {
                    break;
                };
                failed |= also;
                let (one, other) = (&made.kernel.header, &general.kernel.header);
                let mut wrong = None;
                if made.specialised.is_empty() {
                    wrong = Some(
                        Diagnostic::error(
                            codes::E0602,
                            entry,
                            format!(
                                "`general` is for the body beside the specialised one, and `{}` has none",
                                kernel.name.name
                            ),
                        )
                        .help("give the values to the targets, or add `specialize { … }`"),
                    );
                } else if one.signature != other.signature || one.requires != other.requires {
                    wrong = Some(
                        Diagnostic::error(
                            codes::E0602,
                            entry,
                            "these values change what a launch must satisfy, which is one for all bodies",
                        )
                        .note("extents of views and `where` facts may not depend on them"),
                    );
                }
                if let Some(wrong) = wrong {
                    all.push(wrong);
                    break;
                }
                unspecial = general.kernel;
            }
            if !failed {
                for facts in &made.specialised {
                    let mut kernel = made.kernel.clone();
                    kernel.header.facts = [facts.clone(), kernel.header.facts].concat();
                    special.push(kernel);
                }
                plain.push(unspecial);
            }
            // All given first, then one left out after another.
            let mut mask = given.unwrap_or_else(|| vec![true; optional]);
            let Some(last) = mask.iter().rposition(|g| *g) else {
                break;
            };
            mask[last] = false;
            mask[last + 1..].fill(true);
            given = Some(mask);
        }
    }
    let bodies: Vec<tile::Kernel> = special.into_iter().chain(plain).collect();
    let instance = (!bodies.is_empty()).then_some(tile::Instance { name, bodies });
    (instance, all)
}

/// Whether a list of targets contains `target`. Unknown names contain nothing; `check` reports them.
pub(crate) fn covers(targets: &[ast::Target], target: Target) -> bool {
    targets.iter().any(|t| match t {
        ast::Target::One(name) => name.name == target.name(),
        ast::Target::Range(first, last) => {
            match (Target::parse(&first.name), Target::parse(&last.name)) {
                (Ok(first), Ok(last)) => (first..=last).contains(&target),
                _ => false,
            }
        }
    })
}

/// What walking one body gave.
struct Made {
    kernel: tile::Kernel,
    /// The facts of each `specialize`.
    specialised: Vec<Vec<Fact>>,
    /// How many parameters may be left out.
    optional: usize,
    /// Where a schedule gives the general body values of its own.
    general: Option<Span>,
}

pub(crate) struct Maker<'e, 'a> {
    ev: &'e mut Evaluator<'a>,
    /// The kernel with the signature.
    kernel: &'a ast::Kernel,
    /// The kernel whose grid and body are walked: the same, or a target's own.
    source: &'a ast::Kernel,
    source_module: Module,
    owner: Module,
    /// Whether the values of `general` entries are taken.
    general: bool,
}

/// A parameter that the runtime passes: declared so, or the field of a variant.
struct Slot<'a> {
    name: String,
    optional: bool,
    ty: &'a ast::Type,
    default: Option<&'a ast::Expr>,
    /// The variant whose field it is: its compile-time parameters are in scope.
    variant: Option<Rc<VariantType<'a>>>,
    span: Span,
}

/// The value of a parameter, over slots.
enum Tree<'a> {
    Slot(usize),
    Variant(Rc<VariantType<'a>>, Vec<Tree<'a>>),
}

/// Keys of a schedule that are no parameters.
pub(crate) const SCHEDULE_KEYS: &[&str] =
    &["warps", "stages", "blocks_per_sm", "max_regs", "persistent"];

/// Keys that later versions compile.
pub(crate) const LATER_KEYS: &[&str] = &[
    "consumers",
    "producers",
    "cluster",
    "multicast",
    "pair",
    "promote",
];

impl<'e, 'a> Maker<'e, 'a> {
    fn body(&mut self, cargs: CArgs<'_, 'a>, given: Option<&[bool]>, name: &str) -> Eval<Made> {
        let kernel = self.kernel;
        let signature = kernel
            .signature
            .as_ref()
            .expect("a declared kernel has a signature");
        self.bind_cparams(cargs, signature)?;
        let (schedule, persistent) = self.schedule()?;
        let general = self.general_entry();
        let optional = self.parameters(signature, given)?;
        if given.is_none() && optional > 4 {
            return self
                .ev
                .not_yet(kernel.name.span, "more than four optional parameters");
        }

        // The body may stand in another file: its names are that file's.
        self.ev.frame().module = self.source_module;
        let mut axes = self.axes()?;
        let order = self.order(&mut axes)?;
        let mut requires = Vec::new();
        let mut facts = Vec::new();
        let own = !std::ptr::eq(self.kernel, self.source);
        self.ev.frame().module = self.owner;
        for fact in &kernel.wheres {
            self.ev.facts(fact, &mut requires)?;
        }
        if own {
            self.ev.frame().module = self.source_module;
            for fact in &self.source.wheres {
                self.ev.facts(fact, &mut facts)?;
            }
        }
        let mut seen = 0;
        for (i, param) in self.ev.signature.params.iter().enumerate() {
            if param.optional {
                let term = Formula(vec![Term::Given(i as u32)]);
                let present = given.is_none_or(|g| g[seen]);
                facts.push(Fact::Holds(if present {
                    term
                } else {
                    Formula::unary(FormulaOp::Not, term)
                }));
                seen += 1;
            }
        }
        let specialised = self.specialised()?;

        self.ev.frame().module = self.source_module;
        let ev = &mut *self.ev;
        let value = ev.kernel_body(self.source)?;
        if !matches!(value, Value::Unit) {
            let at = self
                .source
                .body
                .value
                .as_ref()
                .map_or(self.source.body.span, |v| v.span);
            let what = ev.describe(&value);
            return ev.fail(
                Diagnostic::error(
                    codes::E0108,
                    at,
                    format!("this gives {what}, and a kernel has no value"),
                )
                .help("store it to an `out view`"),
            );
        }
        ev.builder(self.source.body.span).return_();
        requires.append(&mut ev.assumed);
        let persistent = persistent.unwrap_or(self.source.grid.persistent);
        let header = Header {
            name: name.to_owned(),
            signature: ev.signature.clone(),
            requires,
            facts,
            axes,
            order,
            persistent,
            dynamic: persistent && self.source.grid.dynamic,
            schedule,
            span: self.kernel.name.span,
        };
        let kernel = tile::Kernel {
            header,
            body: std::mem::take(&mut ev.body),
        };
        for diagnostic in races::check(&kernel)
            .into_iter()
            .chain(uniform::check(&kernel))
        {
            ev.diagnostics.push(diagnostic);
        }
        Ok(Made {
            kernel,
            specialised,
            optional,
            general,
        })
    }

    // Compile-time parameters and the schedule.

    fn bind_cparams(&mut self, cargs: CArgs<'_, 'a>, signature: &'a ast::Signature) -> Eval<()> {
        let name = &self.kernel.name;
        match cargs {
            CArgs::Written(scope, cargs) => {
                let cargs = self.evaluated(scope, cargs, signature)?;
                self.ev
                    .bind_cargs(&name.name, &signature.cparams, &cargs, name.span)?;
            }
            CArgs::Values(cargs) => {
                self.ev
                    .bind_cargs(&name.name, &signature.cparams, cargs, name.span)?
            }
        }
        let values = self.schedule_values();
        for cparam in &signature.cparams {
            if self.ev.local(&cparam.name.name).is_some() {
                continue;
            }
            let scheduled = values
                .iter()
                .find(|(_, kv)| kv.key.name == cparam.name.name && kv.field.is_none());
            if let Some((module, kv)) = scheduled {
                let value = self.in_module(*module, |ev| ev.expr(&kv.value))?;
                let value = self
                    .ev
                    .check_cparam(&name.name, cparam, value, kv.value.span)?;
                self.ev.bind(&cparam.name, value, false);
            }
        }
        self.ev
            .finish_cparams(&name.name, &signature.cparams, name.span)
    }

    /// The parameters of an `op`, which has the kernel's signature.
    pub fn head(&mut self, cargs: CArgs<'_, 'a>) -> Eval<()> {
        let signature = self
            .kernel
            .signature
            .as_ref()
            .expect("a declared kernel has a signature");
        self.bind_cparams(cargs, signature)?;
        self.parameters(signature, None)?;
        Ok(())
    }

    pub fn new(ev: &'e mut Evaluator<'a>, kernel: &'a ast::Kernel, owner: Module) -> Maker<'e, 'a> {
        Maker {
            ev,
            kernel,
            source: kernel,
            source_module: owner,
            owner,
            general: false,
        }
    }

    /// Evaluates compile-time arguments in the module where they are written.
    fn evaluated(
        &mut self,
        scope: Module,
        cargs: &'a [ast::CArg],
        signature: &'a ast::Signature,
    ) -> Eval<Vec<CArgument<'a>>> {
        let ev = &mut *self.ev;
        // Outside a source file nothing is imported: there the variants that stand beside an interface are known.
        if cargs.iter().all(|carg| carg.span == Span::NONE) {
            let interfaces = signature.cparams.iter().filter_map(|p| match &p.kind {
                ast::CKind::Path(path) => find_interface(ev.program, self.owner, path),
                ast::CKind::Fn(_) => None,
            });
            ev.beyond = interfaces.map(|(module, _)| module).collect();
        }
        ev.frames.push(Frame::new(scope));
        let cargs: Eval<Vec<CArgument<'a>>> = ev.cargs(cargs);
        ev.frames.pop();
        ev.beyond.clear();
        cargs
    }

    fn in_module<T>(&mut self, module: Module, f: impl FnOnce(&mut Evaluator<'a>) -> T) -> T {
        let outer = std::mem::replace(&mut self.ev.frame().module, module);
        let result = f(self.ev);
        self.ev.frame().module = outer;
        result
    }

    /// The schedules of this kernel that apply to its arguments.
    fn schedules(&mut self) -> Vec<(Module, &'a ast::Schedule)> {
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
    fn applies(&mut self, module: Module, schedule: &'a ast::Schedule) -> bool {
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
    fn schedule_values(&mut self) -> Vec<(Module, &'a ast::KeyValue)> {
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

    /// The first `general` entry of the schedules.
    fn general_entry(&mut self) -> Option<Span> {
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
    fn schedule(&mut self) -> Eval<(Schedule, Option<bool>)> {
        let mut schedule = Schedule::default();
        let mut persistent = None;
        let signature = self
            .kernel
            .signature
            .as_ref()
            .expect("a declared kernel has a signature");
        let mut seen: Vec<(&str, Span)> = Vec::new();
        for (module, kv) in self.schedule_values() {
            let key = kv.key.name.as_str();
            if kv.field.is_some() {
                self.ev.not_yet::<()>(kv.span, "a key of one loop")?;
            }
            if let Some((_, first)) = seen.iter().find(|(k, _)| *k == key) {
                return self.ev.fail(
                    Diagnostic::error(
                        codes::E0602,
                        kv.span,
                        format!("`{key}` is given twice for {}", self.ev.target.name()),
                    )
                    .label(*first, "first here"),
                );
            }
            seen.push((key, kv.span));
            if signature.cparams.iter().any(|p| p.name.name == key) {
                continue;
            }
            if key == "persistent" {
                match self.in_module(module, |ev| ev.expr(&kv.value))? {
                    Value::Bool(value) => persistent = Some(value),
                    _ => {
                        return self.ev.error(
                            codes::E0602,
                            kv.value.span,
                            "`persistent` is `true` or `false`",
                        );
                    }
                }
                continue;
            }
            let (slot, max) = match key {
                "warps" => (&mut schedule.warps, 32),
                "stages" => (&mut schedule.stages, 64),
                "blocks_per_sm" => (&mut schedule.blocks_per_sm, 32),
                "max_regs" => (&mut schedule.max_regs, Target::MAX_REGISTERS.into()),
                _ if LATER_KEYS.contains(&key) => {
                    return self.ev.not_yet(kv.span, &format!("the key `{key}`"));
                }
                _ => return self.ev.fail(unknown_key(&kv.key, signature)),
            };
            let value =
                self.in_module(module, |ev| ev.const_int(&kv.value, &format!("`{key}`")))?;
            if value < 1 || value > max {
                return self.ev.error(
                    codes::E0602,
                    kv.value.span,
                    format!("`{key}` is from 1 to {max}, and this is {value}"),
                );
            }
            *slot = Some(value as u32);
        }
        Ok((schedule, persistent))
    }

    fn specialised(&mut self) -> Eval<Vec<Vec<Fact>>> {
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

    // The signature.

    /// Fills the signature and binds parameters and dimensions. Gives how many parameters are optional.
    fn parameters(&mut self, signature: &'a ast::Signature, given: Option<&[bool]>) -> Eval<usize> {
        let mut slots: Vec<Slot<'a>> = Vec::new();
        let mut trees: Vec<(&'a ast::Param, Tree<'a>)> = Vec::new();
        for param in &signature.params {
            if let Some((first, _)) = trees.iter().find(|(p, _)| p.name.name == param.name.name) {
                let first = first.span;
                return self.ev.fail(
                    Diagnostic::error(
                        codes::E0103,
                        param.name.span,
                        format!("`{}` is declared twice", param.name.name),
                    )
                    .label(first, "first here"),
                );
            }
            if self.ev.local(&param.name.name).is_some() {
                return self.ev.error(
                    codes::E0103,
                    param.name.span,
                    format!("`{}` is a compile-time parameter already", param.name.name),
                );
            }
            let Some(ty) = &param.ty else {
                return self.ev.fail(
                    Diagnostic::error(
                        codes::E0503,
                        param.span,
                        format!(
                            "the parameter `{}` of a kernel needs a type",
                            param.name.name
                        ),
                    )
                    .help("write a view, as `x: view<f32>[n]`, or a scalar, as `s: f32`"),
                );
            };
            let tree = self.slots(
                param.name.name.clone(),
                (param.optional, ty, param.default.as_ref(), param.span),
                None,
                &mut slots,
            )?;
            trees.push((param, tree));
        }
        // Integer scalars may stand in extents, so they are known first.
        let mut kinds: Vec<Option<ParamKind>> = Vec::new();
        for slot in &slots {
            kinds.push(match &slot.ty.kind {
                ast::TypeKind::Path { .. } => Some(self.scalar(slot)?),
                _ => None,
            });
        }
        let placeholder = ParamKind::Scalar {
            dtype: DType::Bool,
            default: None,
        };
        self.ev.signature.params = slots
            .iter()
            .zip(&kinds)
            .map(|(slot, kind)| Param {
                name: slot.name.clone(),
                optional: slot.optional,
                kind: kind.clone().unwrap_or(placeholder.clone()),
            })
            .collect();
        for (i, (slot, kind)) in slots.iter().zip(&kinds).enumerate() {
            if kind.is_some() && slot.variant.is_none() {
                self.bind(
                    &slot.name,
                    Value::Symbol(Symbol::Param(i as u32)),
                    slot.span,
                );
            }
        }
        let mut values = Vec::new();
        for (i, (slot, kind)) in slots.iter().zip(kinds).enumerate() {
            let value = match kind {
                Some(_) => Value::Symbol(Symbol::Param(i as u32)),
                None => {
                    let (param, value) = self.view(slot, i as u32)?;
                    self.ev.signature.params[i].kind = ParamKind::View(param);
                    Value::View(Rc::new(value))
                }
            };
            values.push(value);
        }
        self.check_bound(&slots)?;
        for (i, dim) in self.ev.signature.dims.clone().into_iter().enumerate() {
            if self.ev.local(&dim).is_none() {
                self.bind(
                    &dim,
                    Value::Symbol(Symbol::Dim(i as u32)),
                    self.kernel.name.span,
                );
            }
        }
        let mut optional = 0;
        for (slot, value) in slots.iter().zip(&mut values) {
            if slot.optional {
                if given.is_some_and(|g| !g[optional]) {
                    *value = Value::Absent(Rc::from(slot.name.as_str()));
                }
                optional += 1;
            }
        }
        for (param, tree) in trees {
            let value = tree.value(&values);
            self.bind(&param.name.name, value, param.name.span);
        }
        Ok(optional)
    }

    fn bind(&mut self, name: &str, value: Value<'a>, span: Span) {
        let binding = Binding {
            value,
            mutable: false,
            span,
        };
        let scopes = &mut self.ev.frame().scopes;
        scopes
            .last_mut()
            .expect("a frame has a scope")
            .insert(name.to_owned(), binding);
    }

    /// Takes a parameter apart into what the runtime passes.
    fn slots(
        &mut self,
        name: String,
        (optional, ty, default, span): (bool, &'a ast::Type, Option<&'a ast::Expr>, Span),
        within: Option<&Rc<VariantType<'a>>>,
        slots: &mut Vec<Slot<'a>>,
    ) -> Eval<Tree<'a>> {
        if let ast::TypeKind::Path { path, cargs } = &ty.kind
            && path
                .as_ident()
                .is_none_or(|i| i.name != "int" || self.ev.local("int").is_some())
        {
            let value = self.in_variant(within, |ev| {
                let value = ev.path(path)?;
                match value {
                    Value::Type(TypeValue::VariantItem(module, item)) => {
                        let cargs = ev.cargs(cargs)?;
                        Ok(Value::Type(TypeValue::Variant(
                            ev.variant_type(module, item, cargs, ty.span)?,
                        )))
                    }
                    value => Ok(value),
                }
            })?;
            match value {
                Value::DType(_) => {}
                Value::Type(TypeValue::Variant(variant)) => {
                    if optional {
                        return self.ev.not_yet(span, "an optional variant");
                    }
                    let mut fields = Vec::new();
                    for field in &variant.item.fields {
                        let Some(ty) = &field.ty else {
                            return self.ev.error(
                                codes::E0503,
                                field.span,
                                format!(
                                    "the field `{}` needs a type, since a kernel takes it",
                                    field.name.name
                                ),
                            );
                        };
                        let inner = format!("{name}.{}", field.name.name);
                        let field = (field.optional, ty, None, field.span);
                        fields.push(self.slots(inner, field, Some(&variant), slots)?);
                    }
                    return Ok(Tree::Variant(variant, fields));
                }
                other => {
                    let what = self.ev.describe(&other);
                    return self.ev.fail(Diagnostic::error(
                        codes::E0503,
                        ty.span,
                        format!("a kernel takes views, scalars and variants, and this is {what}"),
                    ));
                }
            }
        }
        match &ty.kind {
            ast::TypeKind::Path { .. } | ast::TypeKind::View { .. } => {}
            _ => {
                return self.ev.fail(
                    Diagnostic::error(
                        codes::E0503,
                        ty.span,
                        "a kernel takes views, scalars and variants",
                    )
                    .help("tiles are made in the body, from slices of views"),
                );
            }
        }
        slots.push(Slot {
            name,
            optional,
            ty,
            default,
            variant: within.cloned(),
            span,
        });
        Ok(Tree::Slot(slots.len() - 1))
    }

    /// Evaluates where a variant's compile-time parameters are in scope.
    fn in_variant<T>(
        &mut self,
        variant: Option<&Rc<VariantType<'a>>>,
        f: impl FnOnce(&mut Evaluator<'a>) -> Eval<T>,
    ) -> Eval<T> {
        let Some(variant) = variant else {
            return f(self.ev);
        };
        self.ev.frames.push(Frame::new(variant.module));
        for (cparam, value) in variant.item.cparams.iter().zip(&variant.args) {
            self.ev.bind(&cparam.name, value.clone(), false);
        }
        let result = f(self.ev);
        self.ev.frames.pop();
        result
    }

    fn scalar(&mut self, slot: &Slot<'a>) -> Eval<ParamKind> {
        let ast::TypeKind::Path { path, .. } = &slot.ty.kind else {
            return Err(Told);
        };
        let dtype = match path.as_ident().map(|i| i.name.as_str()) {
            Some("int") if self.ev.local("int").is_none() => DType::I64,
            _ => self.in_variant(slot.variant.as_ref(), |ev| ev.value_type(path))?,
        };
        if dtype.bits() < 8
            || matches!(
                dtype,
                DType::Ue8m0 | DType::Ue4m3 | DType::E4m3 | DType::E5m2 | DType::Tf32
            )
        {
            return self.ev.fail(
                Diagnostic::error(
                    codes::E0503,
                    slot.ty.span,
                    format!("a scalar parameter cannot be of `{dtype}`"),
                )
                .help("take an `f32`"),
            );
        }
        let default = match slot.default {
            None => None,
            Some(expr) => {
                let value = self.in_variant(slot.variant.as_ref(), |ev| {
                    let value = ev.expr(expr)?;
                    ev.scalar_as(value, dtype, expr.span)
                })?;
                match value {
                    Value::Int(v) => Some(v as f64),
                    Value::Float(v, _) if v.is_finite() => Some(v),
                    Value::Bool(v) => Some(f64::from(u8::from(v))),
                    _ => {
                        return self.ev.error(
                            codes::E0301,
                            expr.span,
                            format!("the default of `{}` must be a finite constant", slot.name),
                        );
                    }
                }
            }
        };
        Ok(ParamKind::Scalar { dtype, default })
    }

    fn view(&mut self, slot: &Slot<'a>, index: u32) -> Eval<(ViewParam, ViewValue)> {
        let ast::TypeKind::View {
            mode,
            elem,
            dims,
            layout,
            facts,
        } = &slot.ty.kind
        else {
            return Err(Told);
        };
        if let Some(layout) = layout {
            return self.ev.not_yet(layout.span, "a view in a layout");
        }
        if let Some(default) = slot.default {
            return self.ev.fail(
                Diagnostic::error(codes::E0503, default.span, "a view has no default")
                    .help(format!("to make it optional, write `{}?: …`", slot.name)),
            );
        }
        if dims.is_empty() || dims.len() > 8 {
            return self.ev.error(
                codes::E0503,
                slot.ty.span,
                format!(
                    "a view has from 1 to 8 dimensions, and `{}` has {}",
                    slot.name,
                    dims.len()
                ),
            );
        }
        let dtype = self.in_variant(slot.variant.as_ref(), |ev| ev.elem_type(elem))?;
        let mut extents = Vec::new();
        let mut strided = false;
        for (i, dim) in dims.iter().enumerate() {
            let formula = self.in_variant(slot.variant.as_ref(), |ev| {
                ev.host(&dim.expr, true, codes::E0208, "an extent")
            })?;
            if let Some(extent) = formula.as_int()
                && extent < 0
            {
                return self.ev.error(
                    codes::E0208,
                    dim.expr.span,
                    format!("an extent is not negative, and this is {extent}"),
                );
            }
            extents.push(formula);
            strided |= dim.strided && i + 1 == dims.len();
        }
        let mut known = ViewFacts::default();
        for fact in facts {
            match fact {
                ast::ViewFact::Sorted(_) => known.sorted = true,
                ast::ViewFact::Distinct(_) => known.distinct = true,
                ast::ViewFact::Align(bytes, span) => {
                    match u32::try_from(*bytes) {
                        Ok(bytes) if bytes.is_power_of_two() && bytes <= 1 << 16 => {
                            known.align = Some(bytes)
                        }
                        _ => {
                            return self.ev.error(
                            codes::E0403,
                            *span,
                            format!("an alignment is a power of two up to 65536, and this is {bytes}"),
                        );
                        }
                    }
                }
            }
        }
        if (known.sorted || known.distinct) && !dtype.is_int() {
            return self.ev.error(
                codes::E0403,
                slot.ty.span,
                format!(
                    "`sorted` and `distinct` are of views of integers, and `{}` is of `{dtype}`",
                    slot.name
                ),
            );
        }
        let access = match mode {
            ast::ViewMode::Read => Access::Read,
            ast::ViewMode::Out => Access::Write,
            ast::ViewMode::Mut => Access::ReadWrite,
        };
        let value = ViewValue {
            name: slot.name.clone(),
            param: index,
            elem: dtype,
            access,
            extents: extents.clone(),
            span: slot.span,
        };
        let param = ViewParam {
            dtype,
            access,
            extents,
            strided,
            facts: known,
        };
        Ok((param, value))
    }

    /// Every dimension must follow from the shape of some argument.
    fn check_bound(&mut self, slots: &[Slot<'a>]) -> Eval<()> {
        let mut bound = vec![false; self.ev.signature.dims.len()];
        let mut first: Vec<Option<Span>> = vec![None; bound.len()];
        for (param, slot) in self.ev.signature.params.iter().zip(slots) {
            let ParamKind::View(view) = &param.kind else {
                continue;
            };
            for extent in &view.extents {
                let solved = match extent.0[..] {
                    [Term::Dim(d)] => Some(d),
                    [
                        Term::Dim(d),
                        Term::Int(_),
                        Term::Op(FormulaOp::Add | FormulaOp::Sub),
                    ]
                    | [Term::Int(_), Term::Dim(d), Term::Op(FormulaOp::Add)] => Some(d),
                    [Term::Dim(d), Term::Int(c), Term::Op(FormulaOp::Mul)]
                    | [Term::Int(c), Term::Dim(d), Term::Op(FormulaOp::Mul)]
                        if c != 0 =>
                    {
                        Some(d)
                    }
                    _ => None,
                };
                if let Some(d) = solved {
                    bound[d as usize] = true;
                }
                for term in &extent.0 {
                    if let Term::Dim(d) = *term {
                        first[d as usize].get_or_insert(slot.span);
                    }
                }
            }
        }
        if let Some(d) = bound.iter().position(|b| !b) {
            let name = self.ev.signature.dims[d].clone();
            let span = first[d].unwrap_or(self.kernel.name.span);
            return self.ev.fail(
                Diagnostic::error(codes::E0208, span, format!("no argument's shape says what `{name}` is"))
                    .note("a dimension is bound where it stands alone in a view's extents, or as `name + c`, `name - c` or `name * c`")
                    .help(format!("add a parameter that says it: `{name}: int`")),
            );
        }
        Ok(())
    }

    // The grid.

    fn axes(&mut self) -> Eval<Vec<GridAxis>> {
        let grid = &self.source.grid;
        if grid.axes.len() > 16 {
            return self
                .ev
                .error(codes::E0505, grid.span, "a grid has at most 16 axes");
        }
        let mut axes: Vec<GridAxis> = Vec::new();
        let mut cluster = 1;
        for (i, axis) in grid.axes.iter().enumerate() {
            if axes.iter().any(|a| a.name == axis.name.name) {
                return self.ev.error(
                    codes::E0103,
                    axis.name.span,
                    format!("`{}` is declared twice", axis.name.name),
                );
            }
            let extent =
                self.ev
                    .host(&axis.extent, false, codes::E0505, "the extent of the grid")?;
            if extent.as_int().is_some_and(|e| e < 1) {
                return self.ev.error(
                    codes::E0505,
                    axis.extent.span,
                    "this axis of the grid has no blocks",
                );
            }
            if axis.cluster {
                cluster = self.cluster_axis(axis, &extent, cluster)?;
            }
            let value = match extent.as_int() {
                Some(1) => Value::Int(0),
                _ => Value::Symbol(Symbol::Grid(i as u32)),
            };
            axes.push(GridAxis {
                cluster: axis.cluster,
                ..GridAxis::new(&axis.name.name, extent)
            });
            // An index of the grid hides a dimension or parameter of its name.
            self.bind(&axis.name.name, value, axis.name.span);
        }
        Ok(axes)
    }

    /// Checks an axis of a cluster; `others` is the size of the cluster without it. Gives the size with it.
    fn cluster_axis(&mut self, axis: &ast::Axis, extent: &Formula, others: i64) -> Eval<i64> {
        let span = axis.extent.span;
        let Some(size) = extent.as_int() else {
            return self.ev.fail(
                Diagnostic::error(
                    codes::E0505,
                    span,
                    "the size of a cluster is a constant, and this is known at the launch only",
                )
                .help("take it from a compile-time parameter: `S: int = 4`"),
            );
        };
        if let Some(until) = &axis.until {
            return self.ev.error(
                codes::E0505,
                until.span,
                "an axis of a cluster has no `until`: its blocks run together",
            );
        }
        let target = self.ev.target;
        let most = i64::from(target.max_cluster());
        let whole = others.saturating_mul(size);
        if whole > most {
            let why = match most {
                1 => format!(
                    "{} has no clusters, and this asks for one of {size} blocks",
                    target.name()
                ),
                _ => format!("a cluster has at most {most} blocks, and this one has {whole}"),
            };
            return self.ev.fail(
                Diagnostic::error(codes::E0606, span, why)
                    .note("clusters of more than one block are of sm_90a to sm_110a")
                    .help("let a schedule give the size: 1 where there are none"),
            );
        }
        Ok(whole)
    }

    /// What follows `order`. Axes that are walked downwards are marked.
    fn order(&mut self, axes: &mut [GridAxis]) -> Eval<Order> {
        let mut order = Order::Rows;
        for expr in &self.source.grid.order {
            let ast::ExprKind::Call { callee, args } = &expr.kind else {
                return self.ev.fail(no_order(expr.span));
            };
            let [ast::Arg { name: None, value }] = &args[..] else {
                return self.ev.fail(no_order(expr.span));
            };
            match bare(callee).map(|n| n.name.as_str()) {
                Some("grouped") => {}
                Some("rev") => {
                    let named = bare(value).map(|n| n.name.as_str());
                    let axis = axes.iter_mut().find(|a| Some(a.name.as_str()) == named);
                    let Some(axis) = axis.filter(|a| !a.cluster) else {
                        return self.ev.error(
                            codes::E0505,
                            value.span,
                            "`rev` names an axis of the grid that is no cluster's",
                        );
                    };
                    if std::mem::replace(&mut axis.rev, true) {
                        return self.ev.error(
                            codes::E0505,
                            expr.span,
                            "this axis is turned round twice",
                        );
                    }
                    continue;
                }
                _ => return self.ev.fail(no_order(expr.span)),
            }
            if order != Order::Rows {
                return self
                    .ev
                    .error(codes::E0505, expr.span, "the grid is grouped twice");
            }
            let group = self.ev.const_int(value, "the length of a group")?;
            if !(1..=1 << 16).contains(&group) {
                return self.ev.error(
                    codes::E0505,
                    value.span,
                    format!("a group has from 1 to 65536 indices, and this is {group}"),
                );
            }
            order = Order::Grouped {
                group: group as u32,
            };
        }
        Ok(order)
    }
}

fn no_order(span: Span) -> Diagnostic {
    Diagnostic::error(codes::E0505, span, "this is no order of a grid").help(
        "write `order grouped(8)`: the first axis is walked within groups of 8 of its indices",
    )
}

/// Whether a schedule's entry is for the general body.
pub(crate) fn is_general(targets: &[ast::Target]) -> bool {
    matches!(targets, [ast::Target::One(name)] if name.name == "general")
}

impl<'a> Tree<'a> {
    fn value(&self, slots: &[Value<'a>]) -> Value<'a> {
        match self {
            Tree::Slot(i) => slots[*i].clone(),
            Tree::Variant(ty, fields) => Value::Variant(Rc::new(VariantValue {
                ty: ty.clone(),
                fields: fields.iter().map(|f| f.value(slots)).collect(),
            })),
        }
    }
}

/// The diagnostic for a schedule's key that means nothing.
pub(crate) fn unknown_key(key: &ast::Ident, signature: &ast::Signature) -> Diagnostic {
    let known: Vec<&str> = SCHEDULE_KEYS
        .iter()
        .chain(LATER_KEYS)
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

// The names of instances.

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
