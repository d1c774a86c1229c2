//! Instances: a kernel with its compile-time arguments, for one target.
//!
//! The name of an instance is read, its parameters are bound (what is written, else the schedule's value for the target,
//! else the default), the signature and the grid become formulas, and the body is walked. An instance has a body for each
//! `specialize` (of roles that put slices also without it, for bulk copies) and one without, for which the schedule's `general` entry may have values of its own; where parameters are
//! optional, one more for each that may be left out.

mod bulk;
mod grid;
mod name;
mod schedule;
mod signature;

use std::{rc::Rc, thread};

use tesserine_set::{
    Access, DType, Fact, Formula, FormulaOp, Param, ParamKind, Term, Tune, ViewFacts, ViewParam,
};

use super::{
    Eval, Told,
    call::{CArgument, bare, list},
    channels,
    eval::{Binding, Evaluator, Frame, find_interface},
    modules::{Def, Module, Program, nearest},
    races, roles, uniform,
    value::{Extent, Origin, Symbol, TypeValue, Value, VariantType, VariantValue, ViewValue},
};
use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    ir::{GridAxis, Header, Order, tile},
    span::Span,
    syntax::ast,
    target::Target,
};

pub(crate) use name::{instance_name, named_instance, parse_instance};
pub(crate) use schedule::{SCHEDULE_KEYS, is_general, unknown_key};

/// The stack of a walk: nesting is limited, and this is what the limit needs.
const STACK: usize = 128 << 20;

/// Optional parameters of a kernel: twice as many bodies for each.
const MAX_OPTIONAL: usize = 6;

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
    let sources = sources(program, owner, kernel, target);
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
    let mut tune: Vec<Tune> = Vec::new();
    for (index, (module, source)) in sources.into_iter().enumerate() {
        let mut given: Option<Vec<bool>> = None;
        loop {
            let mut walk = |general: bool, choice: &[usize]| {
                let mut ev = Evaluator::new(program, target, owner);
                let mut maker = Maker {
                    ev: &mut ev,
                    kernel,
                    source,
                    source_module: module,
                    owner,
                    general,
                    choice: choice.to_vec(),
                    lists: Vec::new(),
                };
                let result = maker.body(cargs, given.as_deref(), &name);
                let diagnostics = std::mem::take(&mut ev.diagnostics);
                let failed = diagnostics.has_errors();
                all.extend(diagnostics);
                result.map(|made| made.map(|made| (made, failed)))
            };
            let Ok(Some((made, mut failed))) = walk(false, &[]) else {
                break;
            };
            // A target's own body, or else the general one's specialised bodies, for each combination of listed values.
            let mut others = Vec::new();
            for choice in choices(&made.lists).filter(|_| index == 0) {
                match walk(false, &choice) {
                    Ok(Some((other, also))) => {
                        failed |= also;
                        others.push((choice, other));
                    }
                    Ok(None) => {}
                    Err(_) => failed = true,
                }
            }
            let optional = made.optional;
            for one in &made.tune {
                if !tune.contains(one) {
                    tune.push(one.clone());
                }
            }
            let mut unspecial = made.kernel.clone();
            // What serves only where its own facts hold has no body beside it: the general values are the kernel's body's.
            let header = &made.kernel.header;
            let holds = |fact: &Fact| header.requires.contains(fact) || header.facts.contains(fact);
            let one_of_own =
                !source.wheres.is_empty() && made.specialised.iter().flatten().all(holds);
            if let Some(entry) = made.general.filter(|_| !one_of_own) {
                let Ok(Some((general, also))) = walk(true, &[]) else {
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
                let competing = !others.is_empty();
                let own = !std::ptr::eq(kernel, source) || made.specialised.is_empty();
                let first = (Vec::new(), made);
                for (choice, made) in std::iter::once(first).chain(others) {
                    let cost = made.cost.filter(|_| competing);
                    let mut specialised = made.specialised;
                    if specialised.is_empty() {
                        let facts = bulk::facts(&made.kernel, target);
                        specialised.extend((!facts.is_empty()).then_some(facts));
                    }
                    for facts in &specialised {
                        let mut kernel = made.kernel.clone();
                        kernel.header.facts = [facts.clone(), kernel.header.facts].concat();
                        kernel.header.cost = cost.clone();
                        special.push((choice.clone(), kernel));
                    }
                    if own && competing {
                        let mut kernel = made.kernel;
                        kernel.header.cost = cost;
                        plain.push((choice, kernel));
                    }
                }
                if !(own && competing) {
                    plain.push((Vec::new(), unspecial));
                }
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
    let mut bodies = reached(special.into_iter().chain(plain).collect());
    // What only some bodies require is theirs to ask for.
    let all_require = |fact: &Fact| bodies.iter().all(|b| b.header.requires.contains(fact));
    let first = bodies.first().map(|b| b.header.requires.clone());
    let common: Vec<Fact> = first.into_iter().flatten().filter(all_require).collect();
    for body in &mut bodies {
        let own = std::mem::replace(&mut body.header.requires, common.clone());
        let own = own.into_iter().filter(|fact| !common.contains(fact));
        body.header.facts.extend(own);
    }
    let instance = (!bodies.is_empty()).then_some(tile::Instance { name, bodies, tune });
    (instance, all)
}

/// The combinations of listed values but the first: which value of each list, the last fastest.
fn choices(lists: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let lists = lists.to_vec();
    let all: usize = lists.iter().product();
    (1..all).map(move |mut number| {
        let mut choice = vec![0; lists.len()];
        for (at, length) in choice.iter_mut().zip(&lists).rev() {
            *at = number % length;
            number /= length;
        }
        choice
    })
}

/// Without the bodies that no launch takes: an earlier one serves wherever they could, and does not compete with them by its cost.
fn reached(bodies: Vec<(Vec<usize>, tile::Kernel)>) -> Vec<tile::Kernel> {
    let mut kept: Vec<(Vec<usize>, tile::Kernel)> = Vec::new();
    for (choice, mut kernel) in bodies {
        let facts = &mut kernel.header.facts;
        let mut seen: Vec<Fact> = Vec::new();
        facts.retain(|fact| {
            let new = !seen.contains(fact);
            seen.push(fact.clone());
            new
        });
        let served = kept.iter().any(|(other, k)| {
            let (theirs, own) = (&k.header, &kernel.header);
            let competes = theirs.cost.is_some() && own.cost.is_some() && *other != choice;
            let holds = |fact: &Fact| {
                seen.iter()
                    .chain(&own.requires)
                    .any(|stated| implies(stated, fact))
            };
            !competes && theirs.facts.iter().chain(&theirs.requires).all(holds)
        });
        if !served {
            kept.push((choice, kernel));
        }
    }
    kept.into_iter().map(|(_, kernel)| kernel).collect()
}

/// Whether one fact says the other.
pub(crate) fn implies(stated: &Fact, fact: &Fact) -> bool {
    match (stated, fact) {
        (
            Fact::Aligned { param, bytes },
            Fact::Aligned {
                param: of,
                bytes: least,
            },
        ) => param == of && *least > 0 && bytes.is_multiple_of(*least),
        _ => stated == fact,
    }
}

/// The bodies of `kernel` for `target`, with the modules where they stand. A target's own come first, each where its
/// `where` holds.
pub(crate) fn sources<'a>(
    program: &'a Program,
    owner: Module,
    kernel: &'a ast::Kernel,
    target: Target,
) -> Vec<(Module, &'a ast::Kernel)> {
    let mut sources = Vec::new();
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
    if kernel.targets.as_ref().is_none_or(|t| covers(t, target)) {
        sources.push((owner, kernel));
    }
    sources
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
    tune: Vec<Tune>,
    /// The lengths of the lists that values were taken from.
    lists: Vec<usize>,
    /// What it costs, where there are lists.
    cost: Option<Formula>,
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
    /// Which value of each list is taken, in the order of the parameters; the first of those that are not named.
    choice: Vec<usize>,
    /// The lengths of the lists that values were taken from.
    lists: Vec<usize>,
}

impl<'e, 'a> Maker<'e, 'a> {
    /// The body under the chosen values; nothing if a schedule does not admit them together.
    fn body(
        &mut self,
        cargs: CArgs<'_, 'a>,
        given: Option<&[bool]>,
        name: &str,
    ) -> Eval<Option<Made>> {
        let kernel = self.kernel;
        let signature = kernel
            .signature
            .as_ref()
            .expect("a declared kernel has a signature");
        self.bind_cparams(cargs, signature)?;
        let (schedule, persistent) = self.schedule()?;
        let general = self.general_entry();
        if !self.admitted()? {
            return Ok(None);
        }
        let groups = self.parameters(signature, given)?;
        let cost = self.cost()?;
        let optional = groups.iter().flatten().max().map_or(0, |last| last + 1);
        if given.is_none() && optional > MAX_OPTIONAL {
            return self.ev.fail(
                Diagnostic::error(
                    codes::E0503,
                    kernel.name.span,
                    format!("a kernel has at most {MAX_OPTIONAL} optional parameters, and this one has {optional}"),
                )
                .note("each may be given or not, and every combination has a body of its own")
                .help("put what is given together into a variant: `extra?: V`"),
            );
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
        self.ev.required = requires.clone();
        if own {
            self.ev.frame().module = self.source_module;
            for fact in &self.source.wheres {
                if self.ev.never_holds(fact)? {
                    return Ok(None);
                }
                self.ev.facts(fact, &mut facts)?;
            }
            self.ev.required.extend(facts.iter().cloned());
        }
        for (i, group) in groups.into_iter().enumerate() {
            let Some(group) = group else { continue };
            let term = Formula(vec![Term::Given(i as u32)]);
            facts.push(Fact::Holds(match given.is_none_or(|g| g[group]) {
                true => term,
                false => Formula::unary(FormulaOp::Not, term),
            }));
        }
        let specialised = self.specialised()?;
        let tune = self.tunes();

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
            cost: None,
            axes,
            order,
            persistent,
            dynamic: persistent && self.source.grid.dynamic,
            schedule,
            span: self.kernel.name.span,
        };
        let mut kernel = tile::Kernel {
            header,
            channels: std::mem::take(&mut ev.roles.channels),
            body: std::mem::take(&mut ev.body),
        };
        let logical = std::mem::take(&mut ev.logical);
        let races = races::check(&kernel, &logical);
        if !ev.diagnostics.has_errors() {
            roles::fuse(&mut kernel).map_err(|diagnostic| ev.report(diagnostic))?;
        }
        for diagnostic in races
            .into_iter()
            .chain(uniform::check(&kernel))
            .chain(roles::check_products(&kernel))
            .chain(roles::check_limits(&kernel, ev.target))
        {
            ev.diagnostics.push(diagnostic);
        }
        // Roles with errors lack operations.
        if !ev.diagnostics.has_errors() {
            for diagnostic in channels::check(&kernel) {
                ev.diagnostics.push(diagnostic);
            }
        }
        Ok(Some(Made {
            kernel,
            specialised,
            optional,
            general,
            tune,
            lists: std::mem::take(&mut self.lists),
            cost,
        }))
    }

    // Compile-time parameters and the schedule.

    pub fn bind_cparams(
        &mut self,
        cargs: CArgs<'_, 'a>,
        signature: &'a ast::Signature,
    ) -> Eval<()> {
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
        for cparam in &signature.cparams {
            if self.ev.local(&cparam.name.name).is_some() {
                continue;
            }
            // Schedules may be for values of the parameters before.
            let values = self.schedule_values();
            let scheduled = values
                .iter()
                .find(|(_, kv)| kv.key.name == cparam.name.name && kv.field.is_none());
            if let Some((module, kv)) = scheduled {
                let written = self.listed(kv)?;
                let value = self.in_module(*module, |ev| ev.expr(written))?;
                let value = self
                    .ev
                    .check_cparam(&name.name, cparam, value, written.span)?;
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
            choice: Vec::new(),
            lists: Vec::new(),
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
}
