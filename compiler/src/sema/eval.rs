//! The state of a walk: scopes, the body that it emits, and what every part of it needs — constants, types in words,
//! elementwise operations with their broadcasts.

use std::{collections::HashMap, rc::Rc};

use indexmap::IndexMap;
use tesserine_set::{DType, Fact, Formula, FormulaOp, Signature, Term};

use super::{
    Eval, Told,
    modules::{Def, Module, Program, nearest},
    roles::Roles,
    value::{Host, Symbol, TypeValue, Value, VariantType, ViewValue},
    views::Logical,
};
use crate::{
    diagnostics::{Code, Diagnostic, Diagnostics, codes},
    interp::floats::{from_int, round_to},
    ir::{
        OpId, RegionId, ValueId,
        tile::{BinaryOp, Builder, Constant, TileBody, Type, UnaryOp},
    },
    span::Span,
    syntax::{ast, habits},
    target::Target,
};

/// Steps of a walk: what unrolling and inlining may grow to.
const MAX_STEPS: u64 = 1_000_000;
/// Nesting of expressions, blocks and calls together.
const MAX_DEPTH: u32 = 2_000;
/// Errors of one walk that are told.
const MAX_ERRORS: u32 = 100;
/// Calls that an error shows, the innermost ones.
const MAX_CALLS: usize = 16;
/// Elements of one tile.
const MAX_ELEMENTS: u64 = 1 << 24;

/// One name in scope.
#[derive(Clone, Debug)]
pub(crate) struct Binding<'a> {
    pub value: Value<'a>,
    pub mutable: bool,
    pub span: Span,
}

/// The scopes of one function, kernel or declaration.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub module: Module,
    pub scopes: Vec<IndexMap<String, Binding<'a>>>,
    /// What is being walked, so that recursion shows: the function, and its variant's name.
    pub function: Option<(*const ast::Fn, String)>,
}

impl<'a> Frame<'a> {
    pub fn new(module: Module) -> Frame<'a> {
        Frame {
            module,
            scopes: vec![IndexMap::new()],
            function: None,
        }
    }
}

pub(crate) struct Evaluator<'a> {
    pub program: &'a Program,
    pub target: Target,
    pub diagnostics: Diagnostics,
    pub body: TileBody,
    /// Where operations go.
    pub region: RegionId,
    /// The region that every block of the kernel runs, those apart that an axis's `until` leaves out.
    pub spine: RegionId,
    /// Operations at the beginning of the root region that come before the walk's own.
    prologue: usize,
    constants: HashMap<(u64, DType), ValueId>,
    symbols: HashMap<Symbol, ValueId>,
    views: HashMap<(u32, DType), ValueId>,
    /// In an `op`: what stands for a formula.
    pub hosts: HashMap<ValueId, Formula>,
    pub signature: Signature,
    /// The grid axes of several blocks that form a cluster, by bit.
    pub cluster_axes: u32,
    /// Facts that the body itself asks for (`assume`).
    pub assumed: Vec<Fact>,
    /// Facts without which the kernel does not run: its `where`.
    pub required: Vec<Fact>,
    /// Of the index of each loop that runs, where it begins and its step.
    pub counters: HashMap<ValueId, (ValueId, ValueId)>,
    pub frames: Vec<Frame<'a>>,
    /// Calls being walked, outermost first.
    pub calls: Vec<(Span, String)>,
    /// What `return` gave, until its function takes it.
    pub returned: Option<Value<'a>>,
    /// What the block about to be walked ends.
    pub tail: Tail,
    /// That `break` or `continue` was met, until its loop takes it.
    pub left: Option<Left>,
    /// The loops being walked in this function: whether each is written out.
    pub loops: Vec<bool>,
    /// Of accesses by index tiles, what the race check can know of them.
    pub logical: HashMap<OpId, Logical>,
    /// Whether stores are the author's promise: within `scatter`.
    pub scatter: bool,
    /// Channels, and the role being walked.
    pub roles: Roles<'a>,
    /// Kernels whose bodies are being walked because they were called.
    pub fused: Vec<*const ast::Kernel>,
    steps: u64,
    errors: u32,
    depth: u32,
    /// Where names are looked up that mean nothing else: the modules of the interfaces that an instance's name may fill.
    pub beyond: Vec<Module>,
    /// Constants whose values are being evaluated.
    pub evaluating: Vec<*const ast::Const>,
    /// In a test: the tensors that it makes.
    pub tensors: Option<crate::testing::Tensors>,
}

/// What a walk had emitted at some time.
pub(crate) struct Emitted {
    body: TileBody,
    constants: HashMap<(u64, DType), ValueId>,
    symbols: HashMap<Symbol, ValueId>,
    views: HashMap<(u32, DType), ValueId>,
    counters: HashMap<ValueId, (ValueId, ValueId)>,
    logical: HashMap<OpId, Logical>,
    prologue: usize,
    assumed: usize,
}

/// What the end of a block is also the end of: what can be left from there early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    Nothing,
    Function,
    /// One iteration of a loop that runs.
    Loop,
}

/// How an iteration was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Break,
    Continue,
}

/// What an elementwise operation sees in an operand.
pub(crate) enum Shape {
    Constant,
    Scalar(DType),
    Tile(DType, Vec<u32>),
}

impl<'a> Evaluator<'a> {
    pub fn new(program: &'a Program, target: Target, module: Module) -> Evaluator<'a> {
        let body = TileBody::new();
        Evaluator {
            program,
            target,
            diagnostics: Diagnostics::default(),
            region: body.root,
            spine: body.root,
            body,
            prologue: 0,
            constants: HashMap::new(),
            symbols: HashMap::new(),
            views: HashMap::new(),
            hosts: HashMap::new(),
            signature: Signature::default(),
            cluster_axes: 0,
            assumed: Vec::new(),
            required: Vec::new(),
            counters: HashMap::new(),
            frames: vec![Frame::new(module)],
            calls: Vec::new(),
            returned: None,
            tail: Tail::Nothing,
            left: None,
            loops: Vec::new(),
            logical: HashMap::new(),
            scatter: false,
            roles: Roles::default(),
            fused: Vec::new(),
            steps: 0,
            errors: 0,
            depth: 0,
            beyond: Vec::new(),
            evaluating: Vec::new(),
            tensors: None,
        }
    }

    // Errors.

    /// Reports an error, with the calls that led here.
    pub fn report(&mut self, mut diagnostic: Diagnostic) -> Told {
        if self.errors >= MAX_ERRORS {
            return Told;
        }
        self.errors += 1;
        diagnostic.calls = self.calls.iter().rev().take(MAX_CALLS).cloned().collect();
        self.diagnostics.push(diagnostic);
        Told
    }

    pub fn error<T>(&mut self, code: Code, span: Span, title: impl Into<String>) -> Eval<T> {
        Err(self.report(Diagnostic::error(code, span, title)))
    }

    pub fn fail<T>(&mut self, diagnostic: Diagnostic) -> Eval<T> {
        Err(self.report(diagnostic))
    }

    pub fn not_yet<T>(&mut self, span: Span, what: &str) -> Eval<T> {
        self.error(
            codes::E0010,
            span,
            format!("{what}: parsed, but not yet compiled"),
        )
    }

    /// Counts a step; every expression and statement takes one.
    pub fn step(&mut self, span: Span) -> Eval<()> {
        self.steps += 1;
        if self.steps == MAX_STEPS && self.tensors.is_some() {
            return self.error(codes::E0814, span, "this test runs too long");
        }
        if self.steps == MAX_STEPS {
            return self.error(
                codes::E0305,
                span,
                "this kernel grows too large when its functions are inlined and its constant loops unrolled",
            );
        }
        if self.steps > MAX_STEPS {
            Err(Told)
        } else {
            Ok(())
        }
    }

    /// Walks one level deeper.
    pub fn nested<T>(&mut self, span: Span, f: impl FnOnce(&mut Self) -> Eval<T>) -> Eval<T> {
        self.step(span)?;
        if self.depth >= MAX_DEPTH {
            // Nothing is gained by walking the rest.
            self.steps = MAX_STEPS;
            return self.error(codes::E0305, span, "functions are nested too deeply here");
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    /// The text of `span` between backquotes, or `this` if it is long.
    pub fn quote(&self, span: Span) -> String {
        let text = self.program.sources.text(span);
        if text.is_empty() || text.len() > 48 || text.contains('\n') {
            "this".to_owned()
        } else {
            format!("`{text}`")
        }
    }

    /// What a value is, in words.
    pub fn describe(&self, value: &Value<'a>) -> String {
        match value {
            Value::Error => "an error".into(),
            Value::Unit => "nothing".into(),
            Value::Int(v) => format!("the integer {v}"),
            Value::Float(v, None) => format!("the number {v:?}"),
            Value::Float(v, Some(t)) => format!("the `{t}` constant {v:?}"),
            Value::Bool(v) => format!("`{v}`"),
            Value::Str(_) => "a text".into(),
            Value::DType(t) => format!("the type `{t}`"),
            Value::Any => "`any`".into(),
            Value::Run(id) => describe_type(self.body.ty(*id)),
            Value::Symbol(_) => "a scalar".into(),
            Value::View(view) => format!("the view `{}`", view.name),
            Value::Channel(channel) => format!("the channel `{}`", channel.name),
            Value::Host(host) => match &**host {
                Host::View(view) => format!("the view `{}`", view.name),
                Host::Formula(_) => "a scalar".into(),
            },
            Value::Tuple(v) => format!("a tuple of {}", v.len()),
            Value::List(v) => format!("a list of {}", v.len()),
            Value::Struct(v) => format!("`{}`", v.item.name.name),
            Value::Variant(v) => format!("a value of `{}`", v.ty),
            Value::Type(t) => format!("the type `{}`", Value::Type(t.clone())),
            Value::Fn(f) => format!("the function `{}`", f.item.name.name),
            Value::Builtin(name) => format!("the function `{name}`"),
            Value::Absent(name) => format!("`{name}`, which this launch leaves out"),
        }
    }

    // Scopes.

    pub fn frame(&mut self) -> &mut Frame<'a> {
        self.frames.last_mut().expect("a walk has a frame")
    }

    pub fn module(&self) -> Module {
        self.frames.last().expect("a walk has a frame").module
    }

    pub fn bind(&mut self, name: &ast::Ident, value: Value<'a>, mutable: bool) {
        let binding = Binding {
            value,
            mutable,
            span: name.span,
        };
        let scopes = &mut self.frame().scopes;
        scopes
            .last_mut()
            .expect("a frame has a scope")
            .insert(name.name.clone(), binding);
    }

    pub fn local(&self, name: &str) -> Option<&Binding<'a>> {
        let frame = self.frames.last().expect("a walk has a frame");
        frame.scopes.iter().rev().find_map(|s| s.get(name))
    }

    pub fn local_mut(&mut self, name: &str) -> Option<&mut Binding<'a>> {
        self.frame()
            .scopes
            .iter_mut()
            .rev()
            .find_map(|s| s.get_mut(name))
    }

    /// Runs `f` in a new scope.
    pub fn scoped<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        self.frame().scopes.push(IndexMap::new());
        let result = f(self);
        self.frame().scopes.pop();
        result
    }

    /// The value of a name: of the scopes, then of the module, then of the language.
    pub fn name(&mut self, name: &'a ast::Ident) -> Eval<Value<'a>> {
        if let Some(binding) = self.local(&name.name) {
            let value = binding.value.clone();
            return self.use_value(value, name.span);
        }
        if let Some(def) = self.program.lookup(self.module(), &name.name) {
            return self.definition(def, name);
        }
        if let Ok(dtype) = name.name.parse::<DType>() {
            return Ok(Value::DType(dtype));
        }
        if let Some(builtin) = super::builtins::NAMES.iter().find(|n| **n == name.name) {
            return Ok(Value::Builtin(builtin));
        }
        for module in self.beyond.clone() {
            if let Some(def @ Def::Item(owner, _)) = self.program.lookup(module, &name.name)
                && owner == module
            {
                return self.definition(def, name);
            }
        }
        Err(self.unknown(name))
    }

    /// A value as an expression uses it: symbols are emitted, errors stay silent.
    pub fn use_value(&mut self, value: Value<'a>, span: Span) -> Eval<Value<'a>> {
        match value {
            Value::Error => Err(Told),
            Value::Symbol(symbol) => Ok(Value::Run(self.symbol(symbol))),
            Value::Host(host) => match &*host {
                Host::Formula(formula) => Ok(Value::Run(self.placeholder(formula))),
                Host::View(_) => Ok(Value::Host(host)),
            },
            Value::Absent(name) => self.fail(
                Diagnostic::error(
                    codes::E0116,
                    span,
                    format!("`{name}` may have been left out of the launch"),
                )
                .help(format!(
                    "use it only under `if const given({name}) {{ … }}`"
                )),
            ),
            value => Ok(value),
        }
    }

    /// Reports a name that means nothing here.
    pub fn unknown(&mut self, name: &ast::Ident) -> Told {
        let mut names: Vec<String> = Vec::new();
        let frame = self.frames.last().expect("a walk has a frame");
        for scope in frame.scopes.iter().rev() {
            names.extend(scope.keys().cloned());
        }
        names.extend(self.program.names(frame.module).map(str::to_owned));
        let diagnostic = unknown_name(name, names.iter().map(String::as_str));
        self.report(diagnostic)
    }

    /// What an item is as a value.
    pub fn definition(&mut self, def: Def, name: &'a ast::Ident) -> Eval<Value<'a>> {
        let (module, index) = match def {
            Def::Item(module, index) => (module, index),
            Def::Module(_) => {
                return self.fail(
                    Diagnostic::error(
                        codes::E0108,
                        name.span,
                        format!("`{}` is a module, not a value", name.name),
                    )
                    .help(format!("name one of its items: `{}::…`", name.name)),
                );
            }
        };
        let program = self.program;
        match &program.item(module, index).kind {
            ast::ItemKind::Const(item) => self.constant_item(module, item),
            ast::ItemKind::Struct(item) => Ok(Value::Type(TypeValue::Struct(item))),
            ast::ItemKind::Interface(item) => Ok(Value::Type(TypeValue::Interface(item))),
            ast::ItemKind::Variant(item) if item.cparams.is_empty() => {
                Ok(Value::Type(TypeValue::Variant(Rc::new(VariantType {
                    module,
                    item,
                    args: Vec::new(),
                }))))
            }
            ast::ItemKind::Variant(item) => Ok(Value::Type(TypeValue::VariantItem(module, item))),
            ast::ItemKind::Fn(item) => Ok(Value::Fn(super::value::FnValue {
                module,
                item,
                variant: None,
                cargs: Vec::new(),
            })),
            ast::ItemKind::Kernel(_) => self.error(
                codes::E0108,
                name.span,
                format!(
                    "`{}` is a kernel: it is launched, not used as a value",
                    name.name
                ),
            ),
            _ => self.error(
                codes::E0108,
                name.span,
                format!("`{}` is not a value", name.name),
            ),
        }
    }

    fn constant_item(&mut self, module: Module, item: &'a ast::Const) -> Eval<Value<'a>> {
        let key: *const ast::Const = item;
        if self.evaluating.contains(&key) {
            return self.error(
                codes::E0112,
                item.name.span,
                format!("the constant `{}` is defined by itself", item.name.name),
            );
        }
        self.evaluating.push(key);
        self.frames.push(Frame::new(module));
        let value = self
            .expr(&item.value)
            .and_then(|v| self.annotated(v, item.ty.as_ref(), item.value.span));
        self.frames.pop();
        self.evaluating.pop();
        let value = value?;
        match value {
            Value::Run(_) | Value::View(_) => self.error(
                codes::E0301,
                item.value.span,
                format!("`{}` must be known at compile time", item.name.name),
            ),
            value => Ok(value),
        }
    }

    /// The value of a path: a name, or `module::item`.
    pub fn path(&mut self, path: &'a ast::Path) -> Eval<Value<'a>> {
        if let Some(name) = path.as_ident() {
            return self.name(name);
        }
        let first = &path.segments[0];
        if let Some(Def::Module(module)) = self.program.lookup(self.module(), &first.name)
            && self.local(&first.name).is_none()
        {
            let item = &path.segments[1];
            let def = match self.program.lookup(module, &item.name) {
                Some(def @ Def::Item(m, _)) if m == module => def,
                _ => {
                    let diagnostic = self.program.no_item(module, first, item);
                    return self.fail(diagnostic);
                }
            };
            let value = self.definition(def, item)?;
            return self.members(value, &path.segments[2..]);
        }
        let value = self.name(first)?;
        self.members(value, &path.segments[1..])
    }

    /// `V::f`.
    fn members(&mut self, value: Value<'a>, rest: &'a [ast::Ident]) -> Eval<Value<'a>> {
        let Some(name) = rest.first() else {
            return Ok(value);
        };
        let found = match &value {
            Value::Type(TypeValue::Variant(variant)) => self.variant_fn(variant, &name.name),
            Value::Variant(variant) => {
                let ty = variant.ty.clone();
                self.variant_fn(&ty, &name.name)
            }
            _ => None,
        };
        match found {
            Some(function) if rest.len() == 1 => Ok(Value::Fn(function)),
            _ => {
                let what = self.describe(&value);
                self.error(
                    codes::E0101,
                    name.span,
                    format!("{what} has nothing named `{}`", name.name),
                )
            }
        }
    }

    /// The function `name` of a variant: its own, or its interface's default.
    pub fn variant_fn(
        &mut self,
        variant: &Rc<VariantType<'a>>,
        name: &str,
    ) -> Option<super::value::FnValue<'a>> {
        let own = variant.item.fns.iter().find(|f| f.name.name == name);
        let (module, item) = match own {
            Some(item) => (variant.module, item),
            None => {
                let (module, interface) = self.interface_of(variant)?;
                (module, interface.fns.iter().find(|f| f.name.name == name)?)
            }
        };
        Some(super::value::FnValue {
            module,
            item,
            variant: Some(variant.clone()),
            cargs: Vec::new(),
        })
    }

    pub fn interface_of(&self, variant: &VariantType<'a>) -> Option<(Module, &'a ast::Interface)> {
        let path = variant.item.interface.as_ref()?;
        find_interface(self.program, variant.module, path)
    }

    // The body.

    pub fn builder(&mut self, span: Span) -> Builder<'_> {
        let region = self.region;
        let mut builder = Builder::new(&mut self.body);
        builder.region = region;
        builder.span = span;
        builder
    }

    /// Emits at the beginning of the body, where everything can see it.
    fn prologue(&mut self, f: impl FnOnce(&mut Builder<'_>, &Signature) -> ValueId) -> ValueId {
        let root = self.body.root;
        let before = self.body.regions[root].ops.len();
        let mut builder = Builder::new(&mut self.body);
        let value = f(&mut builder, &self.signature);
        let ops = &mut self.body.regions[root].ops;
        let new: Vec<_> = ops.drain(before..).collect();
        let count = new.len();
        ops.splice(self.prologue..self.prologue, new);
        self.prologue += count;
        value
    }

    pub fn constant(&mut self, constant: Constant) -> ValueId {
        let bits = match constant {
            Constant::Int(v, _) => v as u64,
            Constant::Float(v, _) => v.to_bits(),
            Constant::Bool(v) => u64::from(v),
            Constant::Any(_) => return self.prologue(|b, _| b.constant(constant)),
        };
        let key = (bits, constant.dtype());
        if let Some(&value) = self.constants.get(&key) {
            return value;
        }
        let value = self.prologue(|b, _| b.constant(constant));
        self.constants.insert(key, value);
        value
    }

    /// A scalar that stands for a formula of an `op`, whose body is never run.
    fn placeholder(&mut self, formula: &Formula) -> ValueId {
        let constant = match formula.is_condition() {
            true => Constant::Bool(false),
            false => Constant::Int(0, DType::I64),
        };
        let value = self.prologue(|b, _| b.constant(constant));
        self.hosts.insert(value, formula.clone());
        value
    }

    /// Runs `f` for what it gives, and forgets the operations that it emitted.
    pub fn attempt<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.emitted();
        let region = self.region;
        self.region = self.body.new_region();
        let result = f(self);
        self.forget(before);
        self.region = region;
        result
    }

    /// What was emitted so far.
    pub fn emitted(&self) -> Emitted {
        Emitted {
            body: self.body.clone(),
            constants: self.constants.clone(),
            symbols: self.symbols.clone(),
            views: self.views.clone(),
            counters: self.counters.clone(),
            logical: self.logical.clone(),
            prologue: self.prologue,
            assumed: self.assumed.len(),
        }
    }

    /// Forgets what was emitted since.
    pub fn forget(&mut self, before: Emitted) {
        self.body = before.body;
        self.constants = before.constants;
        self.symbols = before.symbols;
        self.views = before.views;
        self.counters = before.counters;
        self.logical = before.logical;
        self.prologue = before.prologue;
        self.assumed.truncate(before.assumed);
    }

    pub fn int(&mut self, value: i64) -> ValueId {
        self.constant(Constant::Int(value, DType::I64))
    }

    pub fn symbol(&mut self, symbol: Symbol) -> ValueId {
        if let Some(&value) = self.symbols.get(&symbol) {
            return value;
        }
        let value = self.prologue(|b, signature| match symbol {
            Symbol::Dim(i) => b.dim(i),
            Symbol::Grid(i) => b.grid_index(i),
            Symbol::Param(i) => {
                let value = b.param(signature, i);
                match b.ty(value).elem() {
                    t if t.is_int() => b.cast(value, DType::I64),
                    t if t.is_float() && t != DType::F64 => b.cast(value, DType::F32),
                    _ => value,
                }
            }
        });
        self.symbols.insert(symbol, value);
        value
    }

    /// The root of a view in the body, with the view's elements.
    pub fn view_id(&mut self, view: &ViewValue) -> ValueId {
        let (root, param) = view.root();
        let elem = root.elem;
        let key = (param, elem);
        if let Some(&value) = self.views.get(&key) {
            return value;
        }
        let value = self.prologue(|b, signature| {
            let value = b.param(signature, param);
            if b.ty(value).elem() == elem {
                value
            } else {
                b.view_bitcast(value, elem)
            }
        });
        self.views.insert(key, value);
        value
    }

    /// A formula as a scalar of the body.
    pub fn formula_value(&mut self, formula: &Formula, span: Span) -> Eval<Value<'a>> {
        let mut stack: Vec<Value<'a>> = Vec::new();
        for term in &formula.0 {
            let value = match *term {
                Term::Int(v) => Value::Int(v.into()),
                Term::Dim(i) => Value::Run(self.symbol(Symbol::Dim(i))),
                Term::Scalar(i) => Value::Run(self.symbol(Symbol::Param(i))),
                Term::Given(_) => {
                    return self.error(codes::E0301, span, "`given` is no number here");
                }
                Term::Multiprocessors => {
                    let what = "how many multiprocessors there are is known at the launch only";
                    return self.error(codes::E0301, span, what);
                }
                Term::Op(op) => {
                    let b = if op.arity() == 2 { stack.pop() } else { None };
                    let (Some(a), b) = (stack.pop(), b) else {
                        return self.error(codes::E0301, span, "this formula is malformed");
                    };
                    let b = b.unwrap_or(Value::Unit);
                    let mut arith = |op, a: &Value<'a>, b: &Value<'a>| {
                        self.arithmetic(op, (a, span), (b, span), span)
                    };
                    match op {
                        FormulaOp::Add => arith(BinaryOp::Add, &a, &b)?,
                        FormulaOp::Sub => arith(BinaryOp::Sub, &a, &b)?,
                        FormulaOp::Mul => arith(BinaryOp::Mul, &a, &b)?,
                        FormulaOp::Div => arith(BinaryOp::Div, &a, &b)?,
                        FormulaOp::Rem => arith(BinaryOp::Rem, &a, &b)?,
                        FormulaOp::Min => arith(BinaryOp::Min, &a, &b)?,
                        FormulaOp::Max => arith(BinaryOp::Max, &a, &b)?,
                        FormulaOp::Neg => arith(BinaryOp::Sub, &Value::Int(0), &a)?,
                        FormulaOp::CeilDiv => self.ceil_div((&a, span), (&b, span), span)?,
                        FormulaOp::RoundUp => {
                            let q = self.ceil_div((&a, span), (&b, span), span)?;
                            self.arithmetic(BinaryOp::Mul, (&q, span), (&b, span), span)?
                        }
                        _ => return self.error(codes::E0301, span, "a condition is no number"),
                    }
                }
            };
            stack.push(value);
        }
        Ok(stack.pop().unwrap_or(Value::Int(0)))
    }

    // Operands.

    pub fn shape_of(&self, value: &Value<'a>) -> Option<Shape> {
        match value {
            Value::Int(_) | Value::Float(_, None) | Value::Bool(_) => Some(Shape::Constant),
            Value::Float(_, Some(t)) => Some(Shape::Scalar(*t)),
            Value::Run(id) => match self.body.ty(*id) {
                Type::Scalar(t) => Some(Shape::Scalar(*t)),
                // A product in flight has the shape that it will have; what needs its elements does not get them.
                Type::Tile(t) | Type::Pending(t) => Some(Shape::Tile(t.elem, t.shape.clone())),
                Type::View(_) => None,
            },
            _ => None,
        }
    }

    /// A scalar or tile of the body for `value`; constants take their own type.
    pub fn materialise(&mut self, value: &Value<'a>, span: Span) -> Eval<ValueId> {
        match value {
            Value::Run(id) if matches!(self.body.ty(*id), Type::Pending(_)) => {
                Err(self.unawaited(*id, span))
            }
            Value::Run(id) => Ok(*id),
            Value::Int(_) => self.typed_constant(value, DType::I64, span),
            Value::Float(_, t) => self.typed_constant(value, t.unwrap_or(DType::F32), span),
            Value::Bool(_) => self.typed_constant(value, DType::Bool, span),
            Value::Symbol(symbol) => Ok(self.symbol(*symbol)),
            Value::Error => Err(Told),
            other => {
                let what = self.describe(other);
                let this = self.quote(span);
                self.error(codes::E0108, span, no_value(&this, &what))
            }
        }
    }

    /// A constant scalar of type `elem`.
    pub fn typed_constant(&mut self, value: &Value<'a>, elem: DType, span: Span) -> Eval<ValueId> {
        match (value, elem) {
            (Value::Bool(v), DType::Bool) => Ok(self.constant(Constant::Bool(*v))),
            (Value::Int(v), t) if t.is_int() => match fit_int(*v, t) {
                Some(v) => Ok(self.constant(Constant::Int(v, t))),
                None => self.error(codes::E0306, span, format!("{v} does not fit in `{t}`")),
            },
            (Value::Int(v), t) if t.is_float() => {
                Ok(self.constant(Constant::Float(from_int(t, *v), t)))
            }
            (Value::Float(v, _), t) if t.is_float() => {
                Ok(self.constant(Constant::Float(round_to(t, *v), t)))
            }
            (Value::Float(v, _), t) => {
                let diagnostic = Diagnostic::error(
                    codes::E0102,
                    span,
                    format!("{v:?} is no integer, and `{t}` is wanted here"),
                );
                self.fail(diagnostic)
            }
            (v, t) => {
                let what = self.describe(v);
                self.error(codes::E0102, span, format!("{what} is no `{t}`"))
            }
        }
    }

    /// Element type and shape that operands of an elementwise operation agree on. `None` as type: all are constants.
    pub fn unify(
        &mut self,
        operands: &[(&Value<'a>, Span)],
        span: Span,
    ) -> Eval<(Option<DType>, Vec<u32>)> {
        let mut elem: Option<(DType, usize, bool)> = None;
        let mut shape: Vec<u32> = Vec::new();
        let mut shaped_by = 0;
        let mut floats = None;
        for (i, (value, at)) in operands.iter().enumerate() {
            let (t, is_tile) = match self.shape_of(value) {
                Some(Shape::Constant) => {
                    if let Value::Float(..) = value {
                        floats = Some(i);
                    }
                    continue;
                }
                Some(Shape::Scalar(t)) => (t, false),
                Some(Shape::Tile(t, s)) => {
                    match broadcast(&shape, &s) {
                        Some(joined) => {
                            if joined != shape {
                                shaped_by = i;
                            }
                            shape = joined;
                        }
                        None => {
                            let (a, b) = (operands[shaped_by], operands[i]);
                            return Err(self.shapes_differ(a, b, span));
                        }
                    }
                    (t, true)
                }
                None => {
                    if matches!(value, Value::Error) {
                        return Err(Told);
                    }
                    let what = self.describe(value);
                    let mut diagnostic =
                        Diagnostic::error(codes::E0108, *at, no_value(&self.quote(*at), &what));
                    if let Value::View(view) = value {
                        let slices = vec![".."; view.extents.len()].join(", ");
                        diagnostic = diagnostic
                            .help(format!("read a slice of it, as `{}[{slices}]`", view.name));
                    }
                    return self.fail(diagnostic);
                }
            };
            elem = Some(match elem {
                None => (t, i, is_tile),
                Some((u, j, tile)) if u == t => (u, j, tile || is_tile),
                // An integer scalar takes the type of the integer tile that it meets.
                Some((u, _, false)) if is_tile && u == DType::I64 && t.is_int() => (t, i, true),
                Some((u, j, true)) if !is_tile && t == DType::I64 && u.is_int() => (u, j, true),
                Some((u, j, _)) => {
                    let (a, b) = (operands[j], operands[i]);
                    return Err(self.types_differ(a, u, b, t, span));
                }
            });
        }
        // A literal takes any type, but a fraction is no integer.
        if let (Some((t, j, _)), Some(i)) = (elem, floats)
            && !t.is_float()
        {
            let (a, b) = (operands[j], operands[i]);
            let text = self.quote(a.1);
            let diagnostic = Diagnostic::error(
                codes::E0102,
                span,
                format!(
                    "{text} is {}, and {} is a float",
                    self.describe(a.0),
                    self.quote(b.1)
                ),
            )
            .help(cast_help(&text, DType::F32));
            return self.fail(diagnostic);
        }
        Ok((elem.map(|(t, ..)| t), shape))
    }

    pub fn types_differ(
        &mut self,
        a: (&Value<'a>, Span),
        s: DType,
        b: (&Value<'a>, Span),
        t: DType,
        span: Span,
    ) -> Told {
        let (x, y) = (self.quote(a.1), self.quote(b.1));
        let mut diagnostic = Diagnostic::error(codes::E0102, span, "the element types differ")
            .label(a.1, self.describe(a.0))
            .label(b.1, self.describe(b.0));
        diagnostic = match (s.is_float(), t.is_float()) {
            _ if s == DType::Bool || t == DType::Bool => {
                let (text, other) = if s == DType::Bool { (x, t) } else { (y, s) };
                diagnostic.help(cast_help(&text, other))
            }
            (true, true) if s.bits() >= t.bits() => diagnostic.help(cast_help(&y, s)),
            (true, true) => diagnostic.help(cast_help(&x, t)),
            (true, false) => diagnostic.help(cast_help(&y, s)),
            (false, true) => diagnostic.help(cast_help(&x, t)),
            (false, false) if s.bits() >= t.bits() => diagnostic.help(cast_help(&y, s)),
            (false, false) => diagnostic.help(cast_help(&x, t)),
        };
        self.report(diagnostic)
    }

    pub fn shapes_differ(
        &mut self,
        a: (&Value<'a>, Span),
        b: (&Value<'a>, Span),
        span: Span,
    ) -> Told {
        let shape = |v: &Value<'a>| match self.shape_of(v) {
            Some(Shape::Tile(_, s)) => s,
            _ => Vec::new(),
        };
        let (s, t) = (shape(a.0), shape(b.0));
        let (x, y) = (self.quote(a.1), self.quote(b.1));
        let mut diagnostic = Diagnostic::error(
            codes::E0201,
            span,
            format!(
                "the shapes {} and {} do not fit together",
                show_shape(&s),
                show_shape(&t)
            ),
        )
        .label(a.1, self.describe(a.0))
        .label(b.1, self.describe(b.0))
        .note("shapes are aligned at the end; dimensions must be equal, or one of them 1");
        // A vector that fits the other's leading dimension.
        for (short, long, text) in [(&s, &t, &x), (&t, &s, &y)] {
            if short.len() < long.len() && long.starts_with(short) {
                let index = [vec![".."; short.len()], vec!["_"; long.len() - short.len()]]
                    .concat()
                    .join(", ");
                let text = operand(text.trim_matches('`'));
                diagnostic = diagnostic.help(format!("did you mean `{text}[{index}]`?"));
                break;
            }
        }
        self.report(diagnostic)
    }

    /// `value` as a tile (or scalar, if `shape` is empty) of this type; it has been unified with it.
    pub fn coerce(
        &mut self,
        value: &Value<'a>,
        elem: DType,
        shape: &[u32],
        span: Span,
    ) -> Eval<ValueId> {
        let id = match value {
            Value::Int(_) | Value::Float(_, None) | Value::Bool(_) => {
                self.typed_constant(value, elem, span)?
            }
            other => self.materialise(other, span)?,
        };
        let mut builder = self.builder(span);
        let id = builder.cast(id, elem);
        Ok(if shape.is_empty() {
            id
        } else {
            builder.broadcast(id, shape)
        })
    }

    // Arithmetic.

    /// An elementwise operation of two operands, folded where both are known.
    pub fn arithmetic(
        &mut self,
        op: BinaryOp,
        a: (&Value<'a>, Span),
        b: (&Value<'a>, Span),
        span: Span,
    ) -> Eval<Value<'a>> {
        if a.0.is_number() && b.0.is_number() {
            return self.fold(op, a, b, span);
        }
        if let Some(value) = self.identity(op, a.0, b.0) {
            return Ok(value);
        }
        let (elem, shape) = self.unify(&[a, b], span)?;
        let elem = elem.unwrap_or(DType::F32);
        self.check_domain(op, elem, span)?;
        if let (Value::Int(0), BinaryOp::Div | BinaryOp::Rem) = (b.0, op)
            && elem.is_int()
        {
            return self.error(codes::E0302, b.1, "this divides by zero");
        }
        let x = self.coerce(a.0, elem, &shape, a.1)?;
        let y = self.coerce(b.0, elem, &shape, b.1)?;
        Ok(Value::Run(self.builder(span).binary(op, x, y)))
    }

    fn check_domain(&mut self, op: BinaryOp, elem: DType, span: Span) -> Eval<()> {
        let (ok, wants) = match op {
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => {
                (elem.is_int() || elem == DType::Bool, "integers or `bool`")
            }
            BinaryOp::Shl | BinaryOp::Shr | BinaryOp::MulHi => (elem.is_int(), "integers"),
            BinaryOp::MulExact => (elem.is_float(), "floats"),
            _ => (elem != DType::Bool, "numbers"),
        };
        if ok {
            return Ok(());
        }
        let mut diagnostic = Diagnostic::error(
            codes::E0102,
            span,
            format!("this operation takes {wants}, and these are `{elem}`"),
        );
        if elem == DType::Bool {
            diagnostic = diagnostic.help("write `x as i32` to count with it");
        }
        self.fail(diagnostic)
    }

    /// What scalar integer arithmetic with 0 and 1 gives without an operation.
    fn identity(&self, op: BinaryOp, a: &Value<'a>, b: &Value<'a>) -> Option<Value<'a>> {
        let int_scalar = |v: &Value<'a>| match v {
            Value::Run(id) => *self.body.ty(*id) == Type::Scalar(DType::I64),
            _ => false,
        };
        match (op, a, b) {
            (
                BinaryOp::Add
                | BinaryOp::Sub
                | BinaryOp::Or
                | BinaryOp::Xor
                | BinaryOp::Shl
                | BinaryOp::Shr,
                x,
                Value::Int(0),
            )
            | (BinaryOp::Mul | BinaryOp::Div, x, Value::Int(1))
            | (BinaryOp::Add | BinaryOp::Or | BinaryOp::Xor, Value::Int(0), x)
            | (BinaryOp::Mul, Value::Int(1), x)
                if int_scalar(x) =>
            {
                Some(x.clone())
            }
            (BinaryOp::Mul, x, Value::Int(0))
            | (BinaryOp::Mul, Value::Int(0), x)
            | (BinaryOp::Rem, x, Value::Int(1))
                if int_scalar(x) =>
            {
                Some(Value::Int(0))
            }
            (BinaryOp::Sub, Value::Run(x), Value::Run(y)) if x == y && int_scalar(a) => {
                Some(Value::Int(0))
            }
            (BinaryOp::Min | BinaryOp::Max, Value::Run(x), Value::Run(y)) if x == y => {
                Some(a.clone())
            }
            _ => None,
        }
    }

    fn fold(
        &mut self,
        op: BinaryOp,
        a: (&Value<'a>, Span),
        b: (&Value<'a>, Span),
        span: Span,
    ) -> Eval<Value<'a>> {
        match (a.0, b.0) {
            (Value::Int(x), Value::Int(y)) => {
                let zero = *y == 0 && matches!(op, BinaryOp::Div | BinaryOp::Rem);
                if zero {
                    return self.error(codes::E0302, b.1, "this divides by zero");
                }
                match fold_int(op, *x, *y) {
                    Some(v) if i64::try_from(v).is_ok() => Ok(Value::Int(v)),
                    _ => self.error(codes::E0302, span, "this constant leaves the 64-bit range"),
                }
            }
            (Value::Bool(x), Value::Bool(y)) => match op {
                BinaryOp::And => Ok(Value::Bool(*x & *y)),
                BinaryOp::Or => Ok(Value::Bool(*x | *y)),
                BinaryOp::Xor => Ok(Value::Bool(*x ^ *y)),
                _ => {
                    self.check_domain(op, DType::Bool, span)?;
                    Ok(Value::Error)
                }
            },
            (Value::Bool(_), _) | (_, Value::Bool(_)) => self.error(
                codes::E0102,
                span,
                "a `bool` and a number do not go together",
            ),
            (x, y) => {
                let ty = match (x, y) {
                    (Value::Float(_, Some(s)), Value::Float(_, Some(t))) if s != t => {
                        return Err(self.types_differ(a, *s, b, *t, span));
                    }
                    (Value::Float(_, Some(t)), _) | (_, Value::Float(_, Some(t))) => Some(*t),
                    _ => None,
                };
                self.check_domain(op, ty.unwrap_or(DType::F32), span)?;
                let (x, y) = (float_of(x), float_of(y));
                let v = match op {
                    BinaryOp::Add => x + y,
                    BinaryOp::Sub => x - y,
                    BinaryOp::Mul | BinaryOp::MulExact => x * y,
                    BinaryOp::Div => x / y,
                    BinaryOp::Rem => crate::interp::floored_rem(x, y),
                    BinaryOp::Min => x.min(y),
                    BinaryOp::Max => x.max(y),
                    _ => return self.error(codes::E0102, span, "this operation takes integers"),
                };
                Ok(Value::Float(ty.map_or(v, |t| round_result(v, t)), ty))
            }
        }
    }

    /// An elementwise function of floats.
    pub fn unary(&mut self, op: UnaryOp, x: (&Value<'a>, Span), span: Span) -> Eval<Value<'a>> {
        if let Value::Int(v) = x.0 {
            match op {
                UnaryOp::Neg => return self.fold(BinaryOp::Sub, (&Value::Int(0), span), x, span),
                UnaryOp::Not => return Ok(Value::Int(!v)),
                UnaryOp::Abs => return Ok(Value::Int(v.abs())),
                UnaryOp::Popcount => return Ok(Value::Int((*v as i64).count_ones().into())),
                UnaryOp::Clz => return Ok(Value::Int((*v as i64).leading_zeros().into())),
                _ => {}
            }
        }
        if let (Value::Bool(v), UnaryOp::Not) = (x.0, op) {
            return Ok(Value::Bool(!v));
        }
        if x.0.is_number() && !matches!(x.0, Value::Bool(_)) {
            let (v, ty) = match x.0 {
                Value::Float(v, t) => (*v, *t),
                other => (float_of(other), None),
            };
            if let Some(v) = fold_float(op, v) {
                return Ok(Value::Float(ty.map_or(v, |t| round_result(v, t)), ty));
            }
        }
        let (elem, shape) = self.unify(&[x], span)?;
        let elem = elem.unwrap_or(DType::F32);
        let (ok, wants) = match op {
            UnaryOp::Neg | UnaryOp::Abs => (elem != DType::Bool, "numbers"),
            UnaryOp::Not => (!elem.is_float(), "integers or `bool`"),
            UnaryOp::Popcount | UnaryOp::Clz => (elem.is_int(), "integers"),
            _ => (elem.is_float(), "floats"),
        };
        if !ok {
            let text = self.quote(x.1);
            let mut diagnostic = Diagnostic::error(
                codes::E0102,
                span,
                format!(
                    "this operation takes {wants}, and {text} is {}",
                    self.describe(x.0)
                ),
            );
            if wants == "floats" {
                diagnostic = diagnostic.help(cast_help(&text, DType::F32));
            }
            return self.fail(diagnostic);
        }
        let id = self.coerce(x.0, elem, &shape, x.1)?;
        Ok(Value::Run(self.builder(span).unary(op, id)))
    }

    /// Division of integers that rounds up.
    pub fn ceil_div(
        &mut self,
        a: (&Value<'a>, Span),
        b: (&Value<'a>, Span),
        span: Span,
    ) -> Eval<Value<'a>> {
        if let (Value::Int(x), Value::Int(y)) = (a.0, b.0) {
            return match y {
                0 => self.error(codes::E0302, b.1, "this divides by zero"),
                _ => Ok(Value::Int(
                    x / y + i128::from(x % y != 0 && (*x < 0) == (*y < 0)),
                )),
            };
        }
        if let Value::Int(y) = b.0
            && *y > 0
        {
            let sum = self.arithmetic(BinaryOp::Add, a, (&Value::Int(y - 1), b.1), span)?;
            return self.arithmetic(BinaryOp::Div, (&sum, span), b, span);
        }
        // Division rounds down, so twice negated it rounds up.
        let zero = Value::Int(0);
        let minus = self.arithmetic(BinaryOp::Sub, (&zero, span), a, span)?;
        let quotient = self.arithmetic(BinaryOp::Div, (&minus, span), b, span)?;
        self.arithmetic(BinaryOp::Sub, (&zero, span), (&quotient, span), span)
    }

    /// A constant integer, or an error that says what needs one.
    pub fn const_int(&mut self, expr: &'a ast::Expr, what: &str) -> Eval<i64> {
        let value = self.expr(expr)?;
        self.as_const_int(&value, expr.span, what)
    }

    pub fn as_const_int(&mut self, value: &Value<'a>, span: Span, what: &str) -> Eval<i64> {
        match value {
            Value::Int(v) => match i64::try_from(*v) {
                Ok(v) => Ok(v),
                Err(_) => self.error(codes::E0302, span, "this constant leaves the 64-bit range"),
            },
            Value::Error => Err(Told),
            other => {
                let got = self.describe(other);
                let mut diagnostic = Diagnostic::error(
                    codes::E0301,
                    span,
                    format!(
                        "{what} must be a constant integer, and {} is {got}",
                        self.quote(span)
                    ),
                );
                if matches!(other, Value::Run(_)) {
                    diagnostic = diagnostic.note("only constants, compile-time parameters and what is computed from them are known when the kernel is compiled");
                }
                self.fail(diagnostic)
            }
        }
    }

    /// The extent of a tile.
    pub fn extent(&mut self, value: i64, span: Span) -> Eval<u32> {
        match u32::try_from(value) {
            Ok(v) if v >= 1 && u64::from(v) <= MAX_ELEMENTS => Ok(v),
            _ => self.error(
                codes::E0205,
                span,
                format!("the extent of a tile is from 1 to {MAX_ELEMENTS}, and this is {value}"),
            ),
        }
    }

    /// The constant extents of a tile.
    pub fn dims(&mut self, dims: &'a [ast::Dim], span: Span) -> Eval<Vec<u32>> {
        let mut shape = Vec::new();
        for dim in dims {
            let value = self.const_int(&dim.expr, "the extent of a tile")?;
            shape.push(self.extent(value, dim.expr.span)?);
        }
        if shape.is_empty() {
            return self.fail(
                Diagnostic::error(codes::E0205, span, "a tile has at least one dimension")
                    .help("what has none is a scalar: `0.0`"),
            );
        }
        self.check_elements(&shape, span)?;
        Ok(shape)
    }

    pub fn check_elements(&mut self, shape: &[u32], span: Span) -> Eval<()> {
        let elements = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d.into()));
        if elements.is_none_or(|n| n > MAX_ELEMENTS) {
            return self.error(
                codes::E0205,
                span,
                format!(
                    "a tile {} has more than {MAX_ELEMENTS} elements",
                    show_shape(shape)
                ),
            );
        }
        if shape.len() > 8 {
            return self.error(codes::E0205, span, "a tile has at most 8 dimensions");
        }
        Ok(())
    }

    /// The element type that a path names: a type, or a compile-time parameter that stands for one.
    pub fn elem_type(&mut self, path: &'a ast::Path) -> Eval<DType> {
        match self.path(path)? {
            Value::DType(t) => Ok(t),
            other => {
                let what = self.describe(&other);
                self.error(
                    codes::E0108,
                    path.span,
                    format!(
                        "an element type is needed here, and {} is {what}",
                        self.quote(path.span)
                    ),
                )
            }
        }
    }
}

/// The shape that two shapes broadcast to.
pub(crate) fn broadcast(a: &[u32], b: &[u32]) -> Option<Vec<u32>> {
    let rank = a.len().max(b.len());
    let at = |s: &[u32], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |j| s[j]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

pub(crate) fn show_shape(shape: &[u32]) -> String {
    let parts: Vec<String> = shape.iter().map(u32::to_string).collect();
    format!("`[{}]`", parts.join(", "))
}

pub(crate) fn describe_type(ty: &Type) -> String {
    match ty {
        Type::Scalar(DType::I64) => "an integer scalar".into(),
        Type::Scalar(DType::Bool) => "a `bool` scalar".into(),
        Type::Scalar(t) => format!("an `{t}` scalar"),
        Type::Tile(t) => {
            let parts: Vec<String> = t.shape.iter().map(u32::to_string).collect();
            format!("`tile<{}>[{}]`", t.elem, parts.join(", "))
        }
        Type::Pending(t) => format!(
            "the pending `{}`",
            describe_type(&Type::Tile(t.clone())).trim_matches('`')
        ),
        Type::View(t) => format!("a view of `{}`", t.elem),
    }
}

/// "write `(x + y) as f32`".
pub(crate) fn cast_help(text: &str, elem: DType) -> String {
    let text = text.trim_matches('`');
    // What is cast already is cast to something else.
    let bare = match text.rsplit_once(" as ") {
        Some((inner, ty)) if ty.parse::<DType>().is_ok() && operand(inner) == inner => inner,
        _ => text,
    };
    match bare {
        "this" => format!("cast it: `… as {elem}`"),
        bare => format!("write `{} as {elem}`", operand(bare)),
    }
}

/// An expression as an operand that binds tightest: between parentheses, unless it is a postfix expression.
pub(crate) fn operand(text: &str) -> String {
    let mut depth = 0i32;
    let loose = text.chars().any(|c| {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        depth == 0 && !c.is_alphanumeric() && !"_.)]:".contains(c)
    });
    if loose {
        format!("({text})")
    } else {
        text.to_owned()
    }
}

/// That `this`, which is `what`, is no scalar or tile.
fn no_value(this: &str, what: &str) -> String {
    match what.strip_suffix(this) {
        Some(kind) => format!(
            "a scalar or tile is needed here, and {this} is {}",
            kind.trim_end().replacen("the ", "a ", 1)
        ),
        None => format!("a scalar or tile is needed here, and {this} is {what}"),
    }
}

/// The diagnostic for a name that means nothing.
pub(crate) fn unknown_name<'n>(
    name: &ast::Ident,
    candidates: impl Iterator<Item = &'n str>,
) -> Diagnostic {
    if THREADS.contains(&name.name.as_str()) {
        return Diagnostic::error(
            codes::E0115,
            name.span,
            format!("there is no `{}`: a kernel is a program for a whole block", name.name),
        )
        .note("tiles are computed as a whole; the compiler gives each thread its part")
        .help("write `iota<i32>[N]` for the indices of a tile's elements, and name a `grid` index for the block's");
    }
    let diagnostic = Diagnostic::error(
        codes::E0101,
        name.span,
        format!("`{}` is not defined here", name.name),
    );
    if super::builtins::METHODS.contains(&name.name.as_str()) {
        return diagnostic.help(format!(
            "it stands behind a value: write `x.{}(…)`",
            name.name
        ));
    }
    if let Some(help) = habits::name(&name.name) {
        return diagnostic.help(help);
    }
    let known = candidates.chain(super::builtins::NAMES.iter().copied());
    match nearest(&name.name, known) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => diagnostic,
    }
}

/// What authors who think in threads write.
const THREADS: &[&str] = &[
    "tid",
    "threadIdx",
    "thread_idx",
    "thread_id",
    "threadId",
    "lane",
    "lane_id",
    "laneid",
    "blockIdx",
    "block_idx",
    "blockDim",
    "gridDim",
    "warp_id",
    "program_id",
    "syncthreads",
    "__syncthreads",
    "shared",
    "smem",
];

pub(crate) fn find_interface<'a>(
    program: &'a Program,
    module: Module,
    path: &ast::Path,
) -> Option<(Module, &'a ast::Interface)> {
    let mut def = program.lookup(module, &path.segments[0].name)?;
    for segment in &path.segments[1..] {
        let Def::Module(inner) = def else { return None };
        def = program.lookup(inner, &segment.name)?;
    }
    let Def::Item(module, index) = def else {
        return None;
    };
    match &program.item(module, index).kind {
        ast::ItemKind::Interface(interface) => Some((module, interface)),
        _ => None,
    }
}

/// `value` as a constant of `elem`; `u64` by its bits.
pub(crate) fn fit_int(value: i128, elem: DType) -> Option<i64> {
    let bits = elem.bits();
    let (lo, hi) = if elem.is_signed() {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    };
    (lo..=hi).contains(&value).then_some(value as i64)
}

/// `value` wrapped into `elem`.
pub(crate) fn wrap_int(value: i128, elem: DType) -> i128 {
    let bits = elem.bits();
    let low = value & ((1i128 << bits) - 1);
    if elem.is_signed() && low >> (bits - 1) & 1 == 1 {
        low - (1i128 << bits)
    } else {
        low
    }
}

/// The result of an operation of constants, as its type rounds it: narrow types compute in f32 and round once more.
fn round_result(value: f64, elem: DType) -> f64 {
    let value = if elem == DType::F64 {
        value
    } else {
        f64::from(value as f32)
    };
    round_to(elem, value)
}

fn float_of(value: &Value<'_>) -> f64 {
    match value {
        Value::Int(v) => *v as f64,
        Value::Float(v, _) => *v,
        _ => 0.0,
    }
}

fn fold_int(op: BinaryOp, x: i128, y: i128) -> Option<i128> {
    Some(match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x.checked_mul(y)?,
        BinaryOp::Div => x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0),
        BinaryOp::Rem => {
            let q = x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0);
            x - q * y
        }
        BinaryOp::Min => x.min(y),
        BinaryOp::Max => x.max(y),
        BinaryOp::And => x & y,
        BinaryOp::Or => x | y,
        BinaryOp::Xor => x ^ y,
        BinaryOp::Shl => match u32::try_from(y) {
            Ok(y) if y < 64 => i128::from((x as i64) << y),
            _ => 0,
        },
        BinaryOp::Shr => match u32::try_from(y) {
            Ok(y) if y < 64 => x >> y,
            _ => -i128::from(x < 0),
        },
        BinaryOp::MulHi => x.checked_mul(y)? >> 64,
        BinaryOp::MulExact => return None,
    })
}

/// Functions of constants whose value is exact, or the same everywhere.
fn fold_float(op: UnaryOp, x: f64) -> Option<f64> {
    Some(match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rcp => 1.0 / x,
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round_ties_even(),
        _ => return None,
    })
}
