//! Builds the LLVM IR of one kernel as text, with types checked here and constants folded on the way.
//!
//! Text, because it reaches LLVM through its parser: a mistake of ours is then an error message, never a crash, and what
//! inkwell cannot say (self-referential loop metadata, debug information for line directives only) needs no second way.
//!
//! Invariants: registers and labels are numbered in the order of emission, so that the text is the same from run to run;
//! the prologue is straight-line code that dominates everything else.

use std::{
    collections::BTreeSet,
    fmt::{self, Write},
};

use indexmap::IndexMap;

use crate::span::{FileId, SourceMap, Span};

/// A first-class scalar type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scalar {
    I1,
    I8,
    I16,
    I32,
    I64,
    I128,
    F16,
    Bf16,
    F32,
    F64,
    /// A pointer to global memory.
    Global,
    /// A pointer to shared memory.
    Shared,
    /// A pointer to any memory.
    Generic,
}

/// A scalar, or a vector of two and more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ty {
    pub scalar: Scalar,
    pub lanes: u8,
}

pub const I1: Ty = Ty::of(Scalar::I1);
pub const I8: Ty = Ty::of(Scalar::I8);
pub const I16: Ty = Ty::of(Scalar::I16);
pub const I32: Ty = Ty::of(Scalar::I32);
pub const I64: Ty = Ty::of(Scalar::I64);
pub const I128: Ty = Ty::of(Scalar::I128);
pub const F16: Ty = Ty::of(Scalar::F16);
pub const BF16: Ty = Ty::of(Scalar::Bf16);
pub const F32: Ty = Ty::of(Scalar::F32);
pub const F64: Ty = Ty::of(Scalar::F64);
pub const GLOBAL: Ty = Ty::of(Scalar::Global);
pub const SHARED: Ty = Ty::of(Scalar::Shared);
pub const GENERIC: Ty = Ty::of(Scalar::Generic);

impl Ty {
    pub const fn of(scalar: Scalar) -> Ty {
        Ty { scalar, lanes: 1 }
    }

    pub fn vector(self, lanes: usize) -> Ty {
        debug_assert_eq!(self.lanes, 1);
        Ty {
            scalar: self.scalar,
            lanes: lanes as u8,
        }
    }

    pub fn element(self) -> Ty {
        Ty::of(self.scalar)
    }

    /// Bits of one element.
    pub fn bits(self) -> u32 {
        match self.scalar {
            Scalar::I1 => 1,
            Scalar::I8 => 8,
            Scalar::I16 | Scalar::F16 | Scalar::Bf16 => 16,
            Scalar::I32 | Scalar::F32 => 32,
            Scalar::I64 | Scalar::F64 | Scalar::Global | Scalar::Shared | Scalar::Generic => 64,
            Scalar::I128 => 128,
        }
    }

    pub fn is_int(self) -> bool {
        matches!(
            self.scalar,
            Scalar::I1 | Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64 | Scalar::I128
        )
    }

    /// The suffix of overloaded intrinsics.
    pub fn suffix(self) -> String {
        let scalar = match self.scalar {
            Scalar::I1 => "i1",
            Scalar::I8 => "i8",
            Scalar::I16 => "i16",
            Scalar::I32 => "i32",
            Scalar::I64 => "i64",
            Scalar::I128 => "i128",
            Scalar::F16 => "f16",
            Scalar::Bf16 => "bf16",
            Scalar::F32 => "f32",
            Scalar::F64 => "f64",
            Scalar::Global => "p1",
            Scalar::Shared => "p3",
            Scalar::Generic => "p0",
        };
        match self.lanes {
            1 => scalar.to_owned(),
            n => format!("v{n}{scalar}"),
        }
    }

    /// The integer type of the same width.
    pub fn as_int(self) -> Ty {
        Ty::int(self.bits())
    }

    /// The integer type of `bits` bits.
    pub fn int(bits: u32) -> Ty {
        match bits {
            1 => I1,
            8 => I8,
            16 => I16,
            32 => I32,
            64 => I64,
            128 => I128,
            _ => unreachable!("no register has {bits} bits"),
        }
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scalar = match self.scalar {
            Scalar::F16 => "half",
            Scalar::Bf16 => "bfloat",
            Scalar::F32 => "float",
            Scalar::F64 => "double",
            Scalar::Global => "ptr addrspace(1)",
            Scalar::Shared => "ptr addrspace(3)",
            Scalar::Generic => "ptr",
            _ => &self.element().suffix(),
        };
        match self.lanes {
            1 => f.write_str(scalar),
            n => write!(f, "<{n} x {scalar}>"),
        }
    }
}

/// An operand: a register or a constant, with its type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Val {
    pub ty: Ty,
    pub kind: Kind,
}

/// What an operand is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// `%vN`
    Register(u32),
    /// `%aN`: an argument of the kernel.
    Argument(u32),
    /// Sign-extended from the type's width.
    Int(i64),
    /// Representable in the type.
    Float(f64),
    Poison,
    /// The start of the block's dynamic shared memory.
    SharedBase,
}

impl Val {
    pub fn int(value: i64, ty: Ty) -> Val {
        debug_assert!(ty.is_int());
        let unused = 64 - ty.bits().min(64);
        Val {
            ty,
            kind: Kind::Int(value << unused >> unused),
        }
    }

    pub fn i32(value: u32) -> Val {
        Val::int(value as i64, I32)
    }

    pub fn i64(value: i64) -> Val {
        Val::int(value, I64)
    }

    pub fn bool(value: bool) -> Val {
        Val::int(value as i64, I1)
    }

    pub fn float(value: f64, ty: Ty) -> Val {
        Val {
            ty,
            kind: Kind::Float(value),
        }
    }

    pub fn f32(value: f32) -> Val {
        Val::float(value as f64, F32)
    }

    pub fn poison(ty: Ty) -> Val {
        Val {
            ty,
            kind: Kind::Poison,
        }
    }

    pub fn as_int(self) -> Option<i64> {
        match self.kind {
            // A true `i1` reads as −1 of one bit.
            Kind::Int(value) => Some(if self.ty == I1 { value & 1 } else { value }),
            _ => None,
        }
    }

    pub fn is_true(self) -> bool {
        self.ty == I1 && self.as_int() == Some(1)
    }

    pub fn is_false(self) -> bool {
        self.ty == I1 && self.as_int() == Some(0)
    }
}

/// The operand without its type.
impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Register(n) => write!(f, "%v{n}"),
            Kind::Argument(n) => write!(f, "%a{n}"),
            Kind::Int(value) if self.ty == I1 => write!(f, "{}", value & 1 == 1),
            Kind::Int(value) => write!(f, "{value}"),
            Kind::Float(value) => match self.ty.scalar {
                Scalar::F16 => write!(f, "0xH{:04X}", half::f16::from_f64(value).to_bits()),
                Scalar::Bf16 => write!(f, "0xR{:04X}", half::bf16::from_f64(value).to_bits()),
                _ if value.is_nan() => f.write_str("0x7FF8000000000000"),
                _ => write!(f, "0x{:016X}", value.to_bits()),
            },
            Kind::Poison => f.write_str("poison"),
            Kind::SharedBase => f.write_str("@shared"),
        }
    }
}

/// An operand with its type.
struct Typed(Val);

impl fmt::Display for Typed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.ty, self.0)
    }
}

/// What a call may do, as far as LLVM must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// A function of its operands (and of memory that never changes).
    Pure,
    /// Reads or writes memory, or is ordered with what does.
    Memory,
    /// All threads of a warp or block execute it together.
    Convergent,
    /// A function of its operands that all threads of a warp compute together.
    Together,
}

impl Effect {
    fn attributes(self) -> &'static str {
        match self {
            Effect::Pure => "nounwind willreturn memory(none)",
            Effect::Memory => "nounwind",
            Effect::Convergent => "convergent nounwind",
            Effect::Together => "convergent nounwind willreturn memory(none)",
        }
    }
}

/// Which code is being appended to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Prologue,
    Body,
}

/// A basic block's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label(u32);

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

/// A place in the body where phis are written once their incoming values are known.
#[derive(Debug)]
pub struct PhiSlot {
    at: usize,
    results: Vec<Val>,
}

/// A place in the body where the prologue goes for a while.
#[derive(Debug)]
pub struct Section {
    at: usize,
    outer: String,
}

impl PhiSlot {
    pub fn results(&self) -> &[Val] {
        &self.results
    }
}

/// The builder; see the module.
pub struct Builder<'a> {
    prologue: String,
    body: String,
    place: Place,
    registers: u32,
    labels: u32,
    block: Label,
    declarations: BTreeSet<String>,
    globals: String,
    metadata: Vec<String>,
    sources: &'a SourceMap,
    scopes: IndexMap<FileId, usize>,
    locations: IndexMap<(u32, u32, usize), usize>,
    location: Option<usize>,
    no_unroll: Option<usize>,
}

const COMPILE_UNIT: usize = 1;
const SUBPROGRAM: usize = 3;

impl<'a> Builder<'a> {
    /// A builder for a kernel that stands at `span`.
    pub fn new(sources: &'a SourceMap, span: Span, entry: &str) -> Builder<'a> {
        let mut builder = Builder {
            prologue: String::new(),
            body: String::new(),
            place: Place::Body,
            registers: 0,
            labels: 1,
            block: Label(0),
            declarations: BTreeSet::new(),
            globals: String::new(),
            metadata: Vec::new(),
            sources,
            scopes: IndexMap::new(),
            locations: IndexMap::new(),
            location: None,
            no_unroll: None,
        };
        let flags = r#"!{i32 2, !"Debug Info Version", i32 3}"#;
        builder.metadata.push(flags.to_owned());
        if let Some(file) = sources.get(span.file) {
            let line = file.line_column(span.start).0;
            builder.metadata.push(
                "distinct !DICompileUnit(language: DW_LANG_C, file: !2, producer: \"tess\", isOptimized: true, \
                 runtimeVersion: 0, emissionKind: DebugDirectivesOnly)"
                    .to_owned(),
            );
            builder.metadata.push(file_node(&file.name));
            builder.metadata.push(format!(
                "distinct !DISubprogram(name: \"{entry}\", linkageName: \"{entry}\", scope: !2, file: !2, line: {line}, \
                 type: !4, scopeLine: {line}, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !{COMPILE_UNIT})"
            ));
            builder
                .metadata
                .push("!DISubroutineType(types: !5)".to_owned());
            builder.metadata.push("!{}".to_owned());
            builder.scopes.insert(span.file, SUBPROGRAM);
        }
        builder
    }

    /// Later instructions come from `span`.
    pub fn set_location(&mut self, span: Span) {
        let Some(file) = self
            .sources
            .get(span.file)
            .filter(|_| !self.scopes.is_empty())
        else {
            return;
        };
        let scope = match self.scopes.get(&span.file) {
            Some(&scope) => scope,
            None => {
                let node = self.node(file_node(&file.name));
                let scope = self.node(format!(
                    "!DILexicalBlockFile(scope: !{SUBPROGRAM}, file: !{node}, discriminator: 0)"
                ));
                self.scopes.insert(span.file, scope);
                scope
            }
        };
        let (line, column) = file.line_column(span.start);
        self.location = Some(match self.locations.get(&(line, column, scope)) {
            Some(&location) => location,
            None => {
                let node = self.node(format!(
                    "!DILocation(line: {line}, column: {column}, scope: !{scope})"
                ));
                self.locations.insert((line, column, scope), node);
                node
            }
        });
    }

    fn node(&mut self, text: String) -> usize {
        self.metadata.push(text);
        self.metadata.len() - 1
    }

    /// Continues in `place`; gives the place before.
    pub fn go_to(&mut self, place: Place) -> Place {
        std::mem::replace(&mut self.place, place)
    }

    /// Until [`Builder::close_prologue`], the prologue is straight-line code at the head of the block just begun.
    pub fn open_prologue(&mut self) -> Section {
        Section {
            at: self.body.len(),
            outer: std::mem::take(&mut self.prologue),
        }
    }

    /// All phis of the section have been filled.
    pub fn close_prologue(&mut self, section: Section) {
        let inner = std::mem::replace(&mut self.prologue, section.outer);
        self.body.insert_str(section.at, &inner);
    }

    fn line(&mut self, text: fmt::Arguments<'_>) {
        let out = match self.place {
            Place::Prologue => &mut self.prologue,
            Place::Body => &mut self.body,
        };
        let _ = write!(out, "  {text}");
        if let Some(location) = self.location {
            let _ = write!(out, ", !dbg !{location}");
        }
        out.push('\n');
    }

    fn emit(&mut self, ty: Ty, text: fmt::Arguments<'_>) -> Val {
        let register = self.registers;
        self.registers += 1;
        self.line(format_args!("%v{register} = {text}"));
        Val {
            ty,
            kind: Kind::Register(register),
        }
    }

    /// `op` on two operands of one type, integers by the named methods.
    pub fn binary(&mut self, op: &str, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty, "{op}");
        self.emit(a.ty, format_args!("{op} {}, {b}", Typed(a)))
    }

    pub fn fneg(&mut self, a: Val) -> Val {
        match a.kind {
            Kind::Float(value) => Val::float(-value, a.ty),
            _ => self.emit(a.ty, format_args!("fneg {}", Typed(a))),
        }
    }

    fn folded(
        &mut self,
        op: &str,
        a: Val,
        b: Val,
        fold: impl FnOnce(i64, i64) -> i64,
        identity: Option<i64>,
    ) -> Val {
        match (a.kind, b.kind) {
            (Kind::Int(x), Kind::Int(y)) if a.ty.bits() <= 64 => Val::int(fold(x, y), a.ty),
            (_, Kind::Int(y)) if identity == Some(y) => a,
            _ => self.binary(op, a, b),
        }
    }

    pub fn add(&mut self, a: Val, b: Val) -> Val {
        if a.as_int() == Some(0) {
            return b;
        }
        self.folded("add", a, b, i64::wrapping_add, Some(0))
    }

    pub fn sub(&mut self, a: Val, b: Val) -> Val {
        self.folded("sub", a, b, i64::wrapping_sub, Some(0))
    }

    pub fn mul(&mut self, a: Val, b: Val) -> Val {
        match (a.as_int(), b.as_int()) {
            (Some(1), _) if a.ty != I1 => b,
            (Some(0), _) | (_, Some(0)) => Val::int(0, a.ty),
            _ => self.folded("mul", a, b, i64::wrapping_mul, Some(1)),
        }
    }

    pub fn and(&mut self, a: Val, b: Val) -> Val {
        if a.is_true() {
            return b;
        }
        if a.as_int() == Some(0) || b.as_int() == Some(0) {
            return Val::int(0, a.ty);
        }
        self.folded("and", a, b, |x, y| x & y, Some(-1))
    }

    pub fn or(&mut self, a: Val, b: Val) -> Val {
        if a.as_int() == Some(0) {
            return b;
        }
        self.folded("or", a, b, |x, y| x | y, Some(0))
    }

    pub fn xor(&mut self, a: Val, b: Val) -> Val {
        if a.as_int() == Some(0) {
            return b;
        }
        self.folded("xor", a, b, |x, y| x ^ y, Some(0))
    }

    /// The opposite of an `i1`, or all bits of an integer turned.
    pub fn not(&mut self, a: Val) -> Val {
        self.xor(a, Val::int(-1, a.ty))
    }

    /// By a constant less than the width.
    pub fn shl(&mut self, a: Val, bits: u32) -> Val {
        let count = Val::int(bits as i64, a.ty);
        self.folded("shl", a, count, |x, y| x << y, Some(0))
    }

    /// By a constant less than the width, filling with zeros.
    pub fn lshr(&mut self, a: Val, bits: u32) -> Val {
        let count = Val::int(bits as i64, a.ty);
        let width = a.ty.bits();
        self.folded(
            "lshr",
            a,
            count,
            |x, y| ((x as u64 & (u64::MAX >> (64 - width.min(64)))) >> y) as i64,
            Some(0),
        )
    }

    /// By a constant less than the width, filling with the sign.
    pub fn ashr(&mut self, a: Val, bits: u32) -> Val {
        let count = Val::int(bits as i64, a.ty);
        self.folded("ashr", a, count, |x, y| x >> y, Some(0))
    }

    pub fn icmp(&mut self, predicate: &str, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty, "icmp {predicate}");
        if let (Kind::Int(x), Kind::Int(y)) = (a.kind, b.kind) {
            let mask = u64::MAX >> (64 - a.ty.bits().min(64));
            let (u, v) = (x as u64 & mask, y as u64 & mask);
            let folded = match predicate {
                "eq" => Some(x == y),
                "ne" => Some(x != y),
                "slt" => Some(x < y),
                "sle" => Some(x <= y),
                "sgt" => Some(x > y),
                "sge" => Some(x >= y),
                "ult" => Some(u < v),
                "ule" => Some(u <= v),
                "ugt" => Some(u > v),
                "uge" => Some(u >= v),
                _ => None,
            };
            if let Some(value) = folded {
                return Val::bool(value);
            }
        }
        self.emit(I1, format_args!("icmp {predicate} {}, {b}", Typed(a)))
    }

    pub fn fcmp(&mut self, predicate: &str, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty, "fcmp {predicate}");
        self.emit(I1, format_args!("fcmp {predicate} {}, {b}", Typed(a)))
    }

    pub fn select(&mut self, condition: Val, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty, "select");
        if condition.is_true() || a == b {
            return a;
        }
        if condition.is_false() {
            return b;
        }
        self.emit(
            a.ty,
            format_args!("select {}, {}, {}", Typed(condition), Typed(a), Typed(b)),
        )
    }

    /// A conversion instruction; the value itself if the type is the same.
    pub fn cast(&mut self, op: &str, a: Val, ty: Ty) -> Val {
        if a.ty == ty {
            return a;
        }
        if let (Kind::Int(x), true) = (a.kind, a.ty.bits() <= 64 && ty.bits() <= 64) {
            match op {
                "trunc" | "sext" => return Val::int(x, ty),
                "zext" => {
                    let mask = u64::MAX >> (64 - a.ty.bits());
                    return Val::int((x as u64 & mask) as i64, ty);
                }
                _ => {}
            }
        }
        self.emit(ty, format_args!("{op} {} to {ty}", Typed(a)))
    }

    pub fn bitcast(&mut self, a: Val, ty: Ty) -> Val {
        self.cast("bitcast", a, ty)
    }

    /// To an integer type of any width, cutting or extending by `signed`.
    pub fn resize(&mut self, a: Val, ty: Ty, signed: bool) -> Val {
        let op = match (a.ty.bits() > ty.bits(), signed) {
            (true, _) => "trunc",
            (false, true) => "sext",
            (false, false) => "zext",
        };
        self.cast(op, a, ty)
    }

    /// Element `index` of a vector; the value itself if it is a scalar.
    pub fn extract(&mut self, vector: Val, index: usize) -> Val {
        if vector.ty.lanes == 1 {
            return vector;
        }
        self.emit(
            vector.ty.element(),
            format_args!("extractelement {}, i32 {index}", Typed(vector)),
        )
    }

    /// A vector of `elements`; the element itself if there is one.
    pub fn vector(&mut self, elements: &[Val]) -> Val {
        if let [single] = elements {
            return *single;
        }
        let ty = elements[0].ty.vector(elements.len());
        let mut vector = Val::poison(ty);
        for (i, &element) in elements.iter().enumerate() {
            vector = self.emit(
                ty,
                format_args!(
                    "insertelement {}, {}, i32 {i}",
                    Typed(vector),
                    Typed(element)
                ),
            );
        }
        vector
    }

    /// The pointer `bytes` further.
    pub fn offset(&mut self, pointer: Val, bytes: Val) -> Val {
        if bytes.as_int() == Some(0) {
            return pointer;
        }
        self.emit(
            pointer.ty,
            format_args!("getelementptr i8, {}, {}", Typed(pointer), Typed(bytes)),
        )
    }

    /// `invariant`: what is read never changes while the kernel runs.
    pub fn load(&mut self, pointer: Val, ty: Ty, align: u32, invariant: bool) -> Val {
        let note = if invariant {
            let empty = self.empty_node();
            format!(", !invariant.load !{empty}")
        } else {
            String::new()
        };
        self.emit(
            ty,
            format_args!("load {ty}, {}, align {align}{note}", Typed(pointer)),
        )
    }

    fn empty_node(&mut self) -> usize {
        match self.metadata.iter().position(|m| m == "!{}") {
            Some(node) => node,
            None => self.node("!{}".to_owned()),
        }
    }

    pub fn store(&mut self, value: Val, pointer: Val, align: u32) {
        self.line(format_args!(
            "store {}, {}, align {align}",
            Typed(value),
            Typed(pointer)
        ));
    }

    /// Calls an LLVM function, declaring it. `ty` is `None` where nothing is returned.
    pub fn call(&mut self, ty: Option<Ty>, name: &str, args: &[Val], effect: Effect) -> Val {
        let returned = ty.map_or("void".to_owned(), |t| t.to_string());
        let list = |f: &dyn Fn(&Val) -> String| args.iter().map(f).collect::<Vec<_>>().join(", ");
        let types = list(&|v| v.ty.to_string());
        self.declarations
            .insert(format!("declare {returned} @{name}({types})"));
        let operands = list(&|v| Typed(*v).to_string());
        let attributes = effect.attributes();
        match ty {
            Some(ty) => self.emit(
                ty,
                format_args!("call {returned} @{name}({operands}) {attributes}"),
            ),
            None => {
                self.line(format_args!("call void @{name}({operands}) {attributes}"));
                Val::poison(I1)
            }
        }
    }

    /// As [`Builder::call`], of a function that returns several values.
    pub fn call_many(
        &mut self,
        results: &[Ty],
        name: &str,
        args: &[Val],
        effect: Effect,
    ) -> Vec<Val> {
        if let [one] = results {
            return vec![self.call(Some(*one), name, args, effect)];
        }
        let returned = structure(results);
        let list = |f: &dyn Fn(&Val) -> String| args.iter().map(f).collect::<Vec<_>>().join(", ");
        let types = list(&|v| v.ty.to_string());
        self.declarations
            .insert(format!("declare {returned} @{name}({types})"));
        let operands = list(&|v| Typed(*v).to_string());
        let attributes = effect.attributes();
        let all = self.emit(
            I1,
            format_args!("call {returned} @{name}({operands}) {attributes}"),
        );
        self.parts(&returned, all, results)
    }

    /// The values in a structure of type `returned`.
    fn parts(&mut self, returned: &str, all: Val, results: &[Ty]) -> Vec<Val> {
        results
            .iter()
            .enumerate()
            .map(|(i, &ty)| self.emit(ty, format_args!("extractvalue {returned} {all}, {i}")))
            .collect()
    }

    /// An intrinsic overloaded on its operands' type, which is also its result's.
    pub fn intrinsic(&mut self, name: &str, args: &[Val]) -> Val {
        let ty = args[0].ty;
        let name = format!("{name}.{}", ty.suffix());
        self.call(Some(ty), &name, args, Effect::Pure)
    }

    /// Inline PTX. Results come back one by one.
    pub fn asm(
        &mut self,
        template: &str,
        constraints: &str,
        results: &[Ty],
        args: &[Val],
        effect: Effect,
    ) -> Vec<Val> {
        let returned = match results {
            [] => "void".to_owned(),
            [one] => one.to_string(),
            many => structure(many),
        };
        let operands = args
            .iter()
            .map(|v| Typed(*v).to_string())
            .collect::<Vec<_>>()
            .join(", ");
        let side = match effect {
            Effect::Pure => "",
            _ => "sideeffect ",
        };
        let call = format!(
            "call {returned} asm {side}\"{template}\", \"{constraints}\"({operands}) {}",
            effect.attributes()
        );
        match results {
            [] => {
                self.line(format_args!("{call}"));
                Vec::new()
            }
            [one] => vec![self.emit(*one, format_args!("{call}"))],
            many => {
                let all = self.emit(I1, format_args!("{call}"));
                self.parts(&returned, all, many)
            }
        }
    }

    pub fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// The block that code is appended to.
    pub fn block(&self) -> Label {
        self.block
    }

    pub fn begin(&mut self, label: Label) {
        let _ = writeln!(self.body, "{label}:");
        self.block = label;
    }

    pub fn jump(&mut self, to: Label) {
        self.line(format_args!("br label %{to}"));
    }

    /// `repeats`: one of the targets is the head of a loop.
    pub fn branch(&mut self, condition: Val, yes: Label, no: Label, repeats: bool) {
        let note = if repeats {
            self.loop_note()
        } else {
            String::new()
        };
        self.line(format_args!(
            "br {}, label %{yes}, label %{no}{note}",
            Typed(condition)
        ));
    }

    /// Jumps back to the head of a loop.
    pub fn jump_back(&mut self, to: Label) {
        let note = self.loop_note();
        self.line(format_args!("br label %{to}{note}"));
    }

    fn loop_note(&mut self) -> String {
        let property = match self.no_unroll {
            Some(node) => node,
            None => {
                let node = self.node("!{!\"llvm.loop.unroll.disable\"}".to_owned());
                self.no_unroll = Some(node);
                node
            }
        };
        let node = self.metadata.len();
        self.node(format!("distinct !{{!{node}, !{property}}}"));
        format!(", !llvm.loop !{node}")
    }

    pub fn return_void(&mut self) {
        self.line(format_args!("ret void"));
    }

    /// Registers for phis at the head of the block just begun; [`Builder::fill`] writes them.
    pub fn phis(&mut self, types: &[Ty]) -> PhiSlot {
        let results = types
            .iter()
            .map(|&ty| {
                self.registers += 1;
                Val {
                    ty,
                    kind: Kind::Register(self.registers - 1),
                }
            })
            .collect();
        PhiSlot {
            at: self.body.len(),
            results,
        }
    }

    /// Writes the phis of `slot`. Slots of outer loops begin before those of inner ones, so their places stay true.
    pub fn fill(&mut self, slot: PhiSlot, incoming: &[(Label, Vec<Val>)]) {
        let mut text = String::new();
        for (i, result) in slot.results.iter().enumerate() {
            let pairs: Vec<String> = incoming
                .iter()
                .map(|(label, values)| {
                    debug_assert_eq!(values[i].ty, result.ty);
                    format!("[ {}, %{label} ]", values[i])
                })
                .collect();
            let _ = writeln!(text, "  {result} = phi {} {}", result.ty, pairs.join(", "));
        }
        self.body.insert_str(slot.at, &text);
    }

    /// Adds a global definition, once.
    pub fn global(&mut self, text: &str) {
        if !self.globals.contains(text) {
            self.globals.push_str(text);
            self.globals.push('\n');
        }
    }

    /// The module's text. `parameters` are as in a definition, `attributes` the kernel's.
    pub fn finish(self, entry: &str, parameters: &[String], attributes: &str) -> String {
        let mut out = String::with_capacity(self.body.len() + self.prologue.len() + 4096);
        out.push_str("source_filename = \"tess\"\ntarget triple = \"nvptx64-nvidia-cuda\"\n\n");
        if !self.globals.is_empty() {
            let _ = writeln!(out, "{}", self.globals);
        }
        let debug = if self.scopes.is_empty() {
            String::new()
        } else {
            format!(" !dbg !{SUBPROGRAM}")
        };
        let _ = write!(
            out,
            "define ptx_kernel void @{entry}({}) #0{debug} {{\nb0:\n{}{}}}\n\n",
            parameters.join(", "),
            self.prologue,
            self.body
        );
        for declaration in &self.declarations {
            let _ = writeln!(out, "{declaration}");
        }
        let _ = write!(out, "\nattributes #0 = {{ {attributes} }}\n\n");
        if !self.scopes.is_empty() {
            let _ = writeln!(out, "!llvm.dbg.cu = !{{!{COMPILE_UNIT}}}");
        }
        out.push_str("!llvm.module.flags = !{!0}\n");
        for (i, node) in self.metadata.iter().enumerate() {
            let _ = writeln!(out, "!{i} = {node}");
        }
        out
    }
}

/// The type of several values together.
fn structure(types: &[Ty]) -> String {
    let list: Vec<String> = types.iter().map(Ty::to_string).collect();
    format!("{{ {} }}", list.join(", "))
}

fn file_node(name: &str) -> String {
    let escaped: String = name
        .bytes()
        .map(|b| match b {
            b'"' | b'\\' | 0..32 | 127.. => format!("\\{b:02X}"),
            _ => (b as char).to_string(),
        })
        .collect();
    format!("!DIFile(filename: \"{escaped}\", directory: \"\")")
}
