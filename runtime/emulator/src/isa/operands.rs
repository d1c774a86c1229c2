//! Operands as instructions use them: registers by place in a warp's arrays, immediates as bits; and the decoder that makes them.
//!
//! Invariants: each register that a decoded instruction may read or write stands in its `reads` or `writes`, since only the decoder hands
//! out places; the machine checks reads before an instruction runs. 16-bit registers hold their value zero-extended in a word.

use std::sync::Arc;

use crate::ptx::{self, Class, Operand, Reg, Space};

/// A register of up to 32 bits: its place in [`Registers::words`](crate::machine::Registers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub u32);

/// A 64-bit register: its place in `doubles`. A 128-bit one takes two places that follow each other, low half first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Double(pub u32);

/// A predicate: its place in `predicates`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Predicate(pub u32);

/// A source of up to 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Src32 {
    Reg(Word),
    Imm(u32),
}

/// A source of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Src64 {
    Reg(Double),
    Imm(u64),
}

/// A predicate source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SrcP {
    Reg { predicate: Predicate, negated: bool },
    Imm(bool),
}

/// A register of any width, or nothing (`_`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dst {
    Word(Word),
    Double(Double),
    /// 128 bits: the low half's place.
    Quad(Double),
    Sink,
}

/// A source of any width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Src {
    Small(Src32),
    Large(Src64),
    /// 128 bits: the low half's place.
    Quad(Double),
}

/// What an address is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Word(Word),
    Double(Double),
    Fixed,
    /// A module's `.global` or `.const` variable, by its number among them.
    Variable(u32),
}

/// An address operand: `[base + offset]`, in the state space that the instruction names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addr {
    pub base: Base,
    pub offset: i64,
}

/// Types of instructions (PTX ISA §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    Bf16,
    F16x2,
    Bf16x2,
    F32,
    F32x2,
    F64,
    U16x2,
    S16x2,
}

impl Type {
    pub(crate) fn named(part: &str) -> Option<Type> {
        Some(match part {
            "pred" => Type::Pred,
            "b8" => Type::B8,
            "b16" => Type::B16,
            "b32" => Type::B32,
            "b64" => Type::B64,
            "b128" => Type::B128,
            "u8" => Type::U8,
            "u16" => Type::U16,
            "u32" => Type::U32,
            "u64" => Type::U64,
            "s8" => Type::S8,
            "s16" => Type::S16,
            "s32" => Type::S32,
            "s64" => Type::S64,
            "f16" => Type::F16,
            "bf16" => Type::Bf16,
            "f16x2" => Type::F16x2,
            "bf16x2" => Type::Bf16x2,
            "f32" => Type::F32,
            "f32x2" => Type::F32x2,
            "f64" => Type::F64,
            "u16x2" => Type::U16x2,
            "s16x2" => Type::S16x2,
            _ => return None,
        })
    }

    pub(crate) fn bits(self) -> u32 {
        match self {
            Type::Pred => 1,
            Type::B8 | Type::U8 | Type::S8 => 8,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 => 16,
            Type::B32
            | Type::U32
            | Type::S32
            | Type::F32
            | Type::F16x2
            | Type::Bf16x2
            | Type::U16x2
            | Type::S16x2 => 32,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 | Type::F32x2 => 64,
            Type::B128 => 128,
        }
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(
            self,
            Type::F16
                | Type::Bf16
                | Type::F16x2
                | Type::Bf16x2
                | Type::F32
                | Type::F32x2
                | Type::F64
        )
    }
}

/// How many registers of each kind a warp of a function has, and where those of each class begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegisterFile {
    pub halves: u32,
    pub words: u32,
    pub doubles: u32,
    pub predicates: u32,
}

impl RegisterFile {
    pub(crate) fn of(function: &ptx::Function) -> RegisterFile {
        let [predicates, halves, words, doubles, quads] = function.registers;
        RegisterFile {
            halves,
            words: halves + words,
            doubles: doubles + 2 * quads,
            predicates,
        }
    }

    pub(crate) fn word(&self, reg: Reg) -> Option<Word> {
        match reg.class {
            Class::Half => Some(Word(reg.index)),
            Class::Word => Some(Word(self.halves + reg.index)),
            _ => None,
        }
    }

    /// Registers of all kinds have one numbering for what tracks them: words, doubles, predicates.
    pub(crate) fn track_word(&self, word: Word) -> u32 {
        word.0
    }

    pub(crate) fn track_double(&self, double: Double) -> u32 {
        self.words + double.0
    }

    pub(crate) fn track_predicate(&self, predicate: Predicate) -> u32 {
        self.words + self.doubles + predicate.0
    }

    pub(crate) fn tracked(&self) -> u32 {
        self.words + self.doubles + self.predicates
    }
}

/// Why an instruction was not decoded: what is wrong with it, or what is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub String);

impl<T: Into<String>> From<T> for Refused {
    fn from(text: T) -> Refused {
        Refused(text.into())
    }
}

/// Where the variables of a function lie.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub name: Arc<str>,
    pub space: Space,
    /// In its space; for `.global` and `.const` variables of the module, their number.
    pub address: u64,
}

/// What decoding an instruction needs, and what it collects.
pub(crate) struct Decoder<'a> {
    pub file: RegisterFile,
    pub quads: u32,
    pub placed: &'a [Placed],
    pub instruction: &'a ptx::Instruction,
    pub target: crate::target::Target,
    pub reads: Vec<u32>,
    pub writes: Vec<u32>,
}

impl<'a> Decoder<'a> {
    /// The opcode's parts.
    pub(crate) fn parts(&self) -> &'a [Arc<str>] {
        &self.instruction.opcode
    }

    pub(crate) fn has(&self, modifier: &str) -> bool {
        self.instruction.has(modifier)
    }

    /// Refuses modifiers that are not among `known` (the first part apart).
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Refused> {
        for part in &self.parts()[1..] {
            if !known.contains(&&**part) {
                return Err(Refused(format!("`.{part}` is not known here")));
            }
        }
        Ok(())
    }

    /// The type that stands last.
    pub(crate) fn last_type(&self) -> Result<Type, Refused> {
        let last = self.parts().last().map_or("", |p| &**p);
        Type::named(last).ok_or_else(|| Refused(format!("`.{last}` is no type")))
    }

    pub(crate) fn count(&self) -> usize {
        self.instruction.operands.len()
    }

    pub(crate) fn expect_count(
        &self,
        counts: std::ops::RangeInclusive<usize>,
    ) -> Result<(), Refused> {
        if counts.contains(&self.count()) {
            return Ok(());
        }
        Err(Refused(format!("it has {} operands", self.count())))
    }

    pub(crate) fn operand(&self, index: usize) -> Result<&'a Operand, Refused> {
        let operands = &self.instruction.operands;
        operands
            .get(index)
            .ok_or_else(|| Refused(format!("operand {} is missing", index + 1)))
    }

    fn quad_place(&self, reg: Reg) -> Double {
        Double(self.file.doubles - 2 * self.quads + 2 * reg.index)
    }

    fn write(&mut self, dst: Dst) -> Dst {
        match dst {
            Dst::Word(w) => self.writes.push(self.file.track_word(w)),
            Dst::Double(d) => self.writes.push(self.file.track_double(d)),
            Dst::Quad(d) => {
                self.writes.push(self.file.track_double(d));
                self.writes.push(self.file.track_double(Double(d.0 + 1)));
            }
            Dst::Sink => {}
        }
        dst
    }

    /// A destination of any width, or `_`.
    pub(crate) fn dst(&mut self, operand: &Operand) -> Result<Dst, Refused> {
        let dst = match operand {
            Operand::Sink => Dst::Sink,
            Operand::Register(reg) => match reg.class {
                Class::Half | Class::Word => Dst::Word(self.file.word(*reg).ok_or("no register")?),
                Class::Double => Dst::Double(Double(reg.index)),
                Class::Quad => Dst::Quad(self.quad_place(*reg)),
                Class::Predicate => return Err("a predicate cannot stand here".into()),
            },
            _ => return Err("a register must stand here".into()),
        };
        Ok(self.write(dst))
    }

    /// A destination of at most 32 bits.
    pub(crate) fn dst32(&mut self, operand: &Operand) -> Result<Word, Refused> {
        match self.dst(operand)? {
            Dst::Word(word) => Ok(word),
            _ => Err("a register of at most 32 bits must stand here".into()),
        }
    }

    pub(crate) fn dst64(&mut self, operand: &Operand) -> Result<Double, Refused> {
        match self.dst(operand)? {
            Dst::Double(double) => Ok(double),
            _ => Err("a 64-bit register must stand here".into()),
        }
    }

    pub(crate) fn dst_predicate(
        &mut self,
        operand: &Operand,
    ) -> Result<Option<Predicate>, Refused> {
        match operand {
            Operand::Sink => Ok(None),
            Operand::Register(Reg {
                class: Class::Predicate,
                index,
            }) => {
                let predicate = Predicate(*index);
                self.writes.push(self.file.track_predicate(predicate));
                Ok(Some(predicate))
            }
            _ => Err("a predicate must stand here".into()),
        }
    }

    /// A source of at most 32 bits and of that type; decimal floating-point constants are rounded to it.
    pub(crate) fn src32(&mut self, operand: &Operand, ty: Type) -> Result<Src32, Refused> {
        Ok(match operand {
            Operand::Register(reg) => {
                let word = self
                    .file
                    .word(*reg)
                    .ok_or("a register of at most 32 bits must stand here")?;
                self.reads.push(self.file.track_word(word));
                Src32::Reg(word)
            }
            Operand::Integer(value) => {
                let bits = ty.bits().min(32);
                let mask = if bits >= 32 {
                    u32::MAX
                } else {
                    (1 << bits) - 1
                };
                if ty == Type::F32 {
                    // An integer constant as a float operand is its value in C's manner.
                    return Ok(Src32::Imm((*value as i64 as f32).to_bits()));
                }
                Src32::Imm(*value as u32 & mask)
            }
            Operand::Float(bits) => Src32::Imm(*bits),
            Operand::Double(bits) if ty == Type::F32 => {
                Src32::Imm((f64::from_bits(*bits) as f32).to_bits())
            }
            _ => return Err("a register or constant of at most 32 bits must stand here".into()),
        })
    }

    pub(crate) fn src64(&mut self, operand: &Operand, ty: Type) -> Result<Src64, Refused> {
        Ok(match operand {
            Operand::Register(Reg {
                class: Class::Double,
                index,
            }) => {
                self.reads.push(self.file.track_double(Double(*index)));
                Src64::Reg(Double(*index))
            }
            Operand::Integer(value) if ty == Type::F64 => {
                Src64::Imm((*value as i64 as f64).to_bits())
            }
            Operand::Integer(value) => Src64::Imm(*value),
            Operand::Double(bits) => Src64::Imm(*bits),
            Operand::Float(bits) if ty == Type::F64 => {
                Src64::Imm(f64::from(f32::from_bits(*bits)).to_bits())
            }
            _ => return Err("a 64-bit register or constant must stand here".into()),
        })
    }

    /// A source of the width of its register, or of `ty` if it is a constant.
    pub(crate) fn src(&mut self, operand: &Operand, ty: Type) -> Result<Src, Refused> {
        match operand {
            Operand::Register(reg) if reg.class == Class::Quad => {
                let place = self.quad_place(*reg);
                self.reads.push(self.file.track_double(place));
                self.reads.push(self.file.track_double(Double(place.0 + 1)));
                Ok(Src::Quad(place))
            }
            Operand::Register(reg) if reg.class == Class::Double => {
                Ok(Src::Large(self.src64(operand, ty)?))
            }
            Operand::Register(_) => Ok(Src::Small(self.src32(operand, ty)?)),
            _ if ty.bits() > 32 => Ok(Src::Large(self.src64(operand, ty)?)),
            _ => Ok(Src::Small(self.src32(operand, ty)?)),
        }
    }

    /// A part of something larger that is moved or stored: it may be undefined, which the instruction asks for with
    /// [`Step::defined`](crate::machine::Step::defined).
    pub(crate) fn src_part(&mut self, operand: &Operand, ty: Type) -> Result<Src, Refused> {
        let before = self.reads.len();
        let source = self.src(operand, ty)?;
        self.reads.truncate(before);
        Ok(source)
    }

    pub(crate) fn src_predicate(&mut self, operand: &Operand) -> Result<SrcP, Refused> {
        let (reg, negated) = match operand {
            Operand::Register(reg) => (reg, false),
            Operand::NotRegister(reg) => (reg, true),
            Operand::Integer(value) => return Ok(SrcP::Imm(*value != 0)),
            _ => return Err("a predicate must stand here".into()),
        };
        if reg.class != Class::Predicate {
            return Err("a predicate must stand here".into());
        }
        let predicate = Predicate(reg.index);
        self.reads.push(self.file.track_predicate(predicate));
        Ok(SrcP::Reg { predicate, negated })
    }

    /// A constant integer.
    pub(crate) fn constant(&self, operand: &Operand) -> Result<u64, Refused> {
        match operand {
            Operand::Integer(value) => Ok(*value),
            _ => Err("an integer constant must stand here".into()),
        }
    }

    /// The elements of `{a, b}`, or the operand alone.
    pub(crate) fn elements<'b>(&self, operand: &'b Operand) -> &'b [Operand] {
        match operand {
            Operand::Vector(elements) => elements,
            other => std::slice::from_ref(other),
        }
    }

    /// Where a variable lies.
    pub(crate) fn placed(&self, name: &str) -> Result<&'a Placed, Refused> {
        let found = self.placed.iter().rev().find(|p| &*p.name == name);
        found.ok_or_else(|| Refused(format!("`{name}` is not known")))
    }

    /// `[base + offset]`, and the space of the variable if one is named.
    pub(crate) fn address(&mut self, operand: &Operand) -> Result<(Addr, Option<Space>), Refused> {
        let Operand::Address(address) = operand else {
            return Err("an address must stand here".into());
        };
        let (base, extra, space) = match &address.base {
            Operand::Register(reg) => match reg.class {
                Class::Double => {
                    self.reads.push(self.file.track_double(Double(reg.index)));
                    (Base::Double(Double(reg.index)), 0, None)
                }
                Class::Word => {
                    let word = self.file.word(*reg).ok_or("no register")?;
                    self.reads.push(self.file.track_word(word));
                    (Base::Word(word), 0, None)
                }
                _ => return Err("an address is 32 or 64 bits wide".into()),
            },
            Operand::Symbol(name, offset) => {
                let placed = self.placed(name)?;
                match placed.space {
                    Space::Global | Space::Constant => (
                        Base::Variable(placed.address as u32),
                        *offset,
                        Some(placed.space),
                    ),
                    _ => (
                        Base::Fixed,
                        (placed.address as i64).wrapping_add(*offset),
                        Some(placed.space),
                    ),
                }
            }
            Operand::Integer(value) => (Base::Fixed, *value as i64, None),
            _ => return Err("this is no address".into()),
        };
        let addr = Addr {
            base,
            offset: address.offset.wrapping_add(extra),
        };
        Ok((addr, space))
    }
}
