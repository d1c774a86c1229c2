//! Declarations of variables, parameters and registers, and initial values (PTX ISA §5.2, §5.4).

use std::sync::Arc;

use super::{
    INITIAL_LIMIT, Parser, Result,
    body::{Binding, Body},
    constant::Constant,
    error_at, space_of,
};
use crate::ptx::{Class, Function, Space, Variable, lex::Token};

/// The largest variable, in bytes.
const SIZE_LIMIT: u64 = 1 << 40;
/// Dimensions of an array.
const RANK_LIMIT: usize = 16;

/// A fundamental type: its bits, and whether its values are floating-point numbers.
#[derive(Clone, Copy, Debug)]
struct Type {
    bits: u32,
    float: bool,
    predicate: bool,
}

fn type_named(word: &str) -> Option<Type> {
    let (bits, float) = match word {
        "pred" => (1, false),
        "b8" | "u8" | "s8" => (8, false),
        "b16" | "u16" | "s16" => (16, false),
        "f16" | "bf16" => (16, true),
        "b32" | "u32" | "s32" | "u16x2" | "s16x2" | "f16x2" | "bf16x2" => (32, false),
        "f32" | "tf32" => (32, true),
        "b64" | "u64" | "s64" | "f32x2" => (64, false),
        "f64" => (64, true),
        "b128" => (128, false),
        _ => return None,
    };
    Some(Type {
        bits,
        float,
        predicate: word == "pred",
    })
}

impl Type {
    fn class(self) -> Class {
        match self.bits {
            1 => Class::Predicate,
            8 | 16 => Class::Half,
            32 => Class::Word,
            64 => Class::Double,
            _ => Class::Quad,
        }
    }
}

/// What stands before a declaration's names.
struct Kind {
    align: u32,
    element: Type,
    /// 1, 2, 4 or 8 elements.
    lanes: u32,
}

impl Kind {
    fn bytes(&self) -> u64 {
        u64::from(self.element.bits / 8 * self.lanes)
    }
}

impl<'a> Parser<'a> {
    /// `.align 4 .v2 .f32`, in any order; a parameter's `.ptr .global .align 16` is about what it points to.
    fn kind(&mut self) -> Result<Kind> {
        let mut align = None;
        let mut element = None;
        let mut lanes = 1;
        let mut pointee = false;
        while let Token::Dot(word) = self.peek() {
            if word == "attribute" {
                self.skip_attribute()?;
                continue;
            }
            self.next();
            match word {
                "align" => {
                    let bytes = self.small("an alignment")?;
                    if !bytes.is_power_of_two() || bytes > 1 << 20 {
                        return self.error(format!("an alignment of {bytes} bytes"));
                    }
                    if !pointee {
                        align = Some(bytes);
                    }
                }
                "ptr" => pointee = true,
                "v2" => lanes = 2,
                "v4" => lanes = 4,
                "v8" => lanes = 8,
                _ if pointee && space_of(word).is_some() => {}
                _ => match type_named(word) {
                    Some(known) if element.is_none() => element = Some(known),
                    Some(_) => return self.error(format!("a second type, `.{word}`")),
                    None => return self.error(format!("`.{word}` is no type that is known here")),
                },
            }
        }
        let Some(element) = element else {
            return self.unexpected("a type");
        };
        let natural = (element.bits / 8 * lanes).max(1);
        Ok(Kind {
            align: align.unwrap_or(natural),
            element,
            lanes,
        })
    }

    /// `.shared .align 16 .b8 a[4], b;`.
    pub(super) fn variables(&mut self, external: bool) -> Result<Vec<Variable>> {
        let Token::Dot(word) = self.next() else {
            return self.unexpected("a state space");
        };
        let Some(space) = space_of(word) else {
            return self.error(format!("`.{word}` is no state space of variables"));
        };
        let kind = self.kind()?;
        let mut variables = Vec::new();
        loop {
            variables.push(self.declarator(space, &kind, external)?);
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b';')?;
        Ok(variables)
    }

    /// `.param .u64 .ptr .global .align 16 x`.
    pub(super) fn parameter(&mut self) -> Result<Variable> {
        self.next();
        let kind = self.kind()?;
        let variable = self.declarator(Space::Parameter, &kind, false)?;
        match variable.initial {
            None => Ok(variable),
            Some(_) => error_at(variable.line, "a parameter with an initial value"),
        }
    }

    /// `name[4][2] = { … }`.
    fn declarator(&mut self, space: Space, kind: &Kind, external: bool) -> Result<Variable> {
        let line = self.line();
        let name = self.name("a variable's name")?;
        let name = self.word(name);
        if kind.element.predicate {
            return error_at(line, format!("`{name}` is a predicate in memory"));
        }
        let mut extents = Vec::new();
        let mut open = false;
        while self.eat(b'[') {
            if extents.len() == RANK_LIMIT {
                return self.error(format!("`{name}` has too many dimensions"));
            }
            match self.peek() {
                Token::Mark(b']') if extents.is_empty() => {
                    open = true;
                    extents.push(0);
                }
                _ => extents.push(self.integer()?),
            }
            self.expect(b']')?;
        }
        let oversized = || error_at(line, format!("`{name}` is larger than {SIZE_LIMIT} bytes"));
        // `strides[i]` are the bytes of an element of dimension i; the last are those of a scalar or vector.
        let mut strides = vec![kind.bytes()];
        for extent in extents.iter().skip(1).rev() {
            let last = strides[strides.len() - 1];
            match last.checked_mul(*extent) {
                Some(bytes) if bytes <= SIZE_LIMIT => strides.push(bytes),
                _ => return oversized(),
            }
        }
        strides.reverse();
        let mut size = match extents.first() {
            None => Some(strides[0]),
            Some(extent) => strides[0].checked_mul(*extent),
        };
        let mut initial = None;
        if self.eat(b'=') {
            if space == Space::Shared || space == Space::Local || space == Space::Parameter {
                return error_at(line, format!("`{name}` cannot have an initial value"));
            }
            let mut writer = Writer {
                bytes: Vec::new(),
                kind,
                strides: &strides,
                extents: &extents,
                open,
            };
            let end = match extents.is_empty() && kind.lanes == 1 {
                true => {
                    self.scalar(&mut writer, 0)?;
                    strides[0]
                }
                false => self.braces(&mut writer, 0, 0)?,
            };
            self.initial_left -= writer.bytes.len() as u64;
            if open {
                size = Some(end);
            }
            initial = Some(writer.bytes);
        } else if open && !external && space != Space::Parameter {
            return error_at(line, format!("`{name}` has no extent"));
        }
        match size {
            Some(size) if size <= SIZE_LIMIT => Ok(Variable {
                name,
                space,
                align: kind.align,
                size,
                external,
                initial,
                line,
            }),
            _ => oversized(),
        }
    }

    /// `{ a, b, { c } }` at that byte, of the array's dimension `axis` (or of a vector's lanes, past the last). Gives the bytes that it
    /// spans. Elements without braces fill sub-arrays in order.
    fn braces(&mut self, writer: &mut Writer<'_>, axis: usize, start: u64) -> Result<u64> {
        self.enter()?;
        self.expect(b'{')?;
        let rank = writer.extents.len();
        if axis > rank || axis == rank && writer.kind.lanes == 1 {
            return self.error("too many braces in an initial value");
        }
        let scalar = u64::from(writer.kind.element.bits / 8);
        let step = match axis < rank {
            true => writer.strides[axis],
            false => scalar,
        };
        let capacity = match writer.extents.get(axis) {
            Some(_) if axis == 0 && writer.open => u64::MAX,
            Some(extent) => step.saturating_mul(*extent),
            None => writer.kind.bytes(),
        };
        let mut filled = 0u64;
        while !self.eat(b'}') {
            if filled >= capacity {
                return self.error("more initial values than elements");
            }
            match self.peek() {
                Token::Mark(b'{') => {
                    if step == 0 || !filled.is_multiple_of(step) {
                        return self.error("braces in the middle of an element's initial values");
                    }
                    self.braces(writer, axis + 1, start.saturating_add(filled))?;
                    filled = filled.saturating_add(step);
                }
                _ => {
                    self.scalar(writer, start.saturating_add(filled))?;
                    filled = filled.saturating_add(scalar);
                }
            }
            if !self.eat(b',') && self.peek() != Token::Mark(b'}') {
                return self.unexpected("`,` or `}`");
            }
        }
        self.leave();
        Ok(match step {
            0 => 0,
            _ => filled.div_ceil(step).saturating_mul(step),
        })
    }

    fn scalar(&mut self, writer: &mut Writer<'_>, at: u64) -> Result<()> {
        if !self.constant_begins() {
            return match self.peek() {
                Token::Name(name) => self.error(format!(
                    "an initial value that is an address (of `{name}`) is not known here"
                )),
                _ => self.unexpected("an initial value"),
            };
        }
        let value = self.constant()?;
        let bits = match (value, writer.kind.element) {
            (Constant::Integer { bits, .. }, element) if !element.float || element.bits == 16 => {
                bits
            }
            (Constant::Integer { bits, unsigned }, element) => {
                let value = match unsigned {
                    true => bits as f64,
                    false => bits as i64 as f64,
                };
                match element.bits {
                    32 => u64::from((value as f32).to_bits()),
                    _ => value.to_bits(),
                }
            }
            (Constant::Float(bits), element) if element.bits == 32 => u64::from(bits),
            (Constant::Float(bits), element) if element.float && element.bits == 64 => {
                f64::from(f32::from_bits(bits)).to_bits()
            }
            (Constant::Double(bits), element) if element.bits == 64 => bits,
            (Constant::Double(bits), element) if element.float && element.bits == 32 => {
                u64::from((f64::from_bits(bits) as f32).to_bits())
            }
            _ => return self.error("an initial value of another type"),
        };
        let width = writer.kind.element.bits as usize / 8;
        let end = at.saturating_add(width as u64);
        if end > self.initial_left {
            return self.error(format!("initial values of more than {INITIAL_LIMIT} bytes"));
        }
        let at = at as usize;
        if writer.bytes.len() < end as usize {
            writer.bytes.resize(end as usize, 0);
        }
        let kept = width.min(8);
        writer.bytes[at..at + kept].copy_from_slice(&bits.to_le_bytes()[..kept]);
        Ok(())
    }

    /// `.reg .b32 %r<100>, a, b;`; of parameters one, without a semicolon.
    pub(super) fn register_list(
        &mut self,
        function: &mut Function,
        body: &mut Body<'a>,
        many: bool,
    ) -> Result<()> {
        self.next();
        let kind = self.kind()?;
        loop {
            let line = self.line();
            let name = self.name("a register's name")?;
            if many && self.eat(b'<') {
                let count = self.small("a count of registers")?;
                self.expect(b'>')?;
                if count > self.registers_left {
                    return error_at(line, format!("`{name}<{count}>` is too many registers"));
                }
                for index in 0..count {
                    self.register(function, body, &kind, format!("{name}{index}").into(), line)?;
                }
            } else {
                let name = self.word(name);
                self.register(function, body, &kind, name, line)?;
            }
            if !many {
                return Ok(());
            }
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b';')
    }

    fn register(
        &mut self,
        function: &mut Function,
        body: &mut Body<'a>,
        kind: &Kind,
        name: Arc<str>,
        line: u32,
    ) -> Result<()> {
        let class = kind.element.class();
        let binding = match kind.lanes {
            1 => Binding::Register(self.new_register(function, class, name.clone())?),
            lanes => {
                let mut registers = Vec::new();
                for lane in 0..lanes {
                    let part = match LANE_NAMES.get(lane as usize) {
                        Some(letter) => format!("{name}.{letter}"),
                        None => format!("{name}.{lane}"),
                    };
                    registers.push(self.new_register(function, class, part.into())?);
                }
                Binding::Vector(registers.into())
            }
        };
        body.declare(name, binding, line)
    }
}

const LANE_NAMES: [char; 4] = ['x', 'y', 'z', 'w'];

/// Initial bytes as they are written.
struct Writer<'k> {
    bytes: Vec<u8>,
    kind: &'k Kind,
    strides: &'k [u64],
    extents: &'k [u64],
    /// Whether the first dimension is as long as its values.
    open: bool,
}
