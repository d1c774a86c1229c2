//! PTX as text: what a module holds, before anything is known of what its instructions mean.
//!
//! The parser resolves names: registers (those of nested scopes too) to [`Reg`]s of the function, labels to indices of instructions.
//! It accepts any instruction that is well-formed by PTX ISA §4 (Syntax) and §5 (State Spaces, Types, and Variables); whether the
//! emulator knows it is for `isa` to say.
//!
//! Invariants: every [`Reg`] is below its class's count in [`Function::registers`]; every label operand is at most the length of the body
//! (a label at the end stands for falling off it, which is an exit); nothing here panics on a text's account.

mod lex;
mod parse;

use std::{fmt, sync::Arc};

pub use parse::parse;

/// A text that is no PTX, or more than this parser reads; `line` counts from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}: {message}")]
pub struct ParseError {
    pub line: u32,
    pub message: String,
}

/// A translation unit (PTX ISA §11, Directives).
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// `.version 8.0` is (8, 0).
    pub version: (u32, u32),
    /// `.target`'s first name: `sm_90a`.
    pub target: String,
    /// Source files by the number that `.loc` uses.
    pub files: Vec<(u32, Arc<str>)>,
    /// Variables outside functions: `.global`, `.const`, and `.shared` ones, which every function sees.
    pub variables: Vec<Variable>,
    pub functions: Vec<Function>,
}

/// An `.entry` (or `.func`, which the emulator does not call yet).
#[derive(Clone, Debug, Default)]
pub struct Function {
    pub name: String,
    pub entry: bool,
    pub parameters: Vec<Variable>,
    /// `.reqntid`: the exact block, x, y, z.
    pub required_block: Option<[u32; 3]>,
    /// `.maxntid`: the most threads a dimension.
    pub largest_block: Option<[u32; 3]>,
    /// `.reqnctapercluster`.
    pub required_cluster: Option<[u32; 3]>,
    /// `.maxnreg`.
    pub largest_registers: Option<u32>,
    /// How many registers of each [`Class`] it has, by `Class as usize`.
    pub registers: [u32; Class::COUNT],
    /// Names of the registers for messages, by class and index: `%rd7`.
    pub register_names: [Vec<Arc<str>>; Class::COUNT],
    /// `.local` and `.shared` variables of its body, and the `.param` ones of its calls; a name that shadows another has a `#` and its
    /// line after it. `.global` and `.const` variables of a body are the module's.
    pub variables: Vec<Variable>,
    pub body: Vec<Instruction>,
    /// Of its name in the text, from 1.
    pub line: u32,
}

/// State spaces of variables (PTX ISA §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    Generic,
    Global,
    Constant,
    Local,
    Parameter,
    /// Of the executing block (`.shared`, `.shared::cta`).
    Shared,
    /// Of any block of the cluster (`.shared::cluster`).
    SharedCluster,
}

/// A variable or parameter (PTX ISA §5.4).
#[derive(Clone, Debug)]
pub struct Variable {
    pub name: Arc<str>,
    pub space: Space,
    /// Bytes; alignment in bytes, a power of two.
    pub align: u32,
    /// Bytes; 0 for an `.extern .shared` array without an extent, which is the launch's dynamic shared memory.
    pub size: u64,
    pub external: bool,
    /// Initial bytes, shorter than `size` if the rest is zero; none without an initialiser. Initialisers that take addresses of symbols are
    /// refused by the parser.
    pub initial: Option<Vec<u8>>,
    pub line: u32,
}

/// What a register can hold. Types of the same width share a class, as PTX's untyped moves do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    Predicate = 0,
    /// `.b8` (in inline assembly only) and `.b16`, `.u16`, `.s16`, `.f16`, `.bf16`.
    Half = 1,
    /// 32 bits, packed types too.
    Word = 2,
    Double = 3,
    Quad = 4,
}

impl Class {
    pub const COUNT: usize = 5;

    /// Bits; 1 for a predicate.
    pub fn bits(self) -> u32 {
        match self {
            Class::Predicate => 1,
            Class::Half => 16,
            Class::Word => 32,
            Class::Double => 64,
            Class::Quad => 128,
        }
    }
}

/// A virtual register of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg {
    pub class: Class,
    pub index: u32,
}

/// Where an instruction comes from in the source (`.loc`), innermost of inlined functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// As in [`Module::files`].
    pub file: u32,
    pub line: u32,
    pub column: u32,
}

/// `@%p1` or `@!%p1` before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    pub predicate: Reg,
    pub negated: bool,
}

/// One instruction as written.
#[derive(Clone, Debug)]
pub struct Instruction {
    pub guard: Option<Guard>,
    /// The opcode and its modifiers, cut at the dots: `ld`, `global`, `nc`, `b16`. `shared::cta` is one part.
    pub opcode: Vec<Arc<str>>,
    pub operands: Vec<Operand>,
    /// Of the text, from 1.
    pub line: u32,
    pub location: Option<Location>,
    /// `.pragma "used_bytes_mask 0xf0f"` before a load: bit i is set if byte i is used; all bits are set without one.
    pub used_bytes: u32,
}

/// An operand as written (PTX ISA §6).
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    Register(Reg),
    /// `!%p1`, of instructions that take negated predicates.
    NotRegister(Reg),
    /// An integer constant: its 64 bits (constant expressions are evaluated).
    Integer(u64),
    /// `0f3F800000`: the bits.
    Float(u32),
    /// `0d3FF0000000000000`, and decimal floating-point constants: the bits.
    Double(u64),
    /// `%tid.x`, `%laneid`, `%clock64`, `%lanemask_lt`.
    Special(Arc<str>),
    /// A variable's address, plus bytes: `shared`, `table+8`.
    Symbol(Arc<str>, i64),
    /// The index of an instruction in the body.
    Label(u32),
    /// `_`.
    Sink,
    /// `{a, b}`: vectors, fragments, coordinates.
    Vector(Vec<Operand>),
    /// `[base+offset]`, `[map, {x, y}]`.
    Address(Box<Address>),
    /// `a|b`: the two results of `setp`, `shfl.sync`, `match.all.sync`, `elect.sync`.
    Pair(Box<(Operand, Operand)>),
}

/// What stands in brackets.
#[derive(Clone, Debug, PartialEq)]
pub struct Address {
    /// A register, a symbol (with offset 0), or an integer.
    pub base: Operand,
    /// Bytes.
    pub offset: i64,
    /// What follows a comma: the coordinates of a tensor copy.
    pub more: Vec<Operand>,
}

impl Module {
    /// The path of a file that `.loc` numbers.
    pub fn file(&self, number: u32) -> Option<&str> {
        let found = self.files.iter().find(|(n, _)| *n == number);
        found.map(|(_, path)| &**path)
    }

    pub fn entry(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.entry && f.name == name)
    }
}

impl Instruction {
    /// `ld.global.nc.b16`.
    pub fn mnemonic(&self) -> String {
        self.opcode.join(".")
    }

    /// Whether a modifier stands there.
    pub fn has(&self, modifier: &str) -> bool {
        self.opcode[1..].iter().any(|part| &**part == modifier)
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.mnemonic())
    }
}
