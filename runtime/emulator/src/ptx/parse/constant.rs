//! Constant expressions (PTX ISA §4.5.5): 64-bit integers, signed unless an operand is unsigned.

use super::{Parser, Result};
use crate::ptx::{Operand, lex::Token};

/// A value of a constant expression.
#[derive(Clone, Copy, Debug)]
pub(super) enum Constant {
    Integer { bits: u64, unsigned: bool },
    Float(u32),
    Double(u64),
}

impl Constant {
    pub(super) fn operand(self) -> Operand {
        match self {
            Constant::Integer { bits, .. } => Operand::Integer(bits),
            Constant::Float(bits) => Operand::Float(bits),
            Constant::Double(bits) => Operand::Double(bits),
        }
    }
}

/// How tightly each operator binds: sums bind as [`SUM`], products tighter.
const SUM: u32 = 9;

#[derive(Clone, Copy)]
enum Operator {
    Either,
    Both,
    Or,
    Xor,
    And,
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// What comparisons and logical operators give: a signed 1 or 0.
fn truth(so: bool) -> Constant {
    Constant::Integer {
        bits: u64::from(so),
        unsigned: false,
    }
}

impl Parser<'_> {
    /// Whether a constant expression begins here.
    pub(super) fn constant_begins(&self) -> bool {
        match self.peek() {
            Token::Integer(..) | Token::Float(_) | Token::Double(_) | Token::Decimal(_) => true,
            // Before a name it negates a predicate.
            Token::Mark(b'!') => matches!(self.ahead(1), Token::Integer(..) | Token::Mark(_)),
            Token::Mark(mark) => matches!(mark, b'-' | b'+' | b'~' | b'('),
            Token::Name(name) => name == "WARP_SZ",
            _ => false,
        }
    }

    pub(super) fn constant(&mut self) -> Result<Constant> {
        self.enter()?;
        let condition = self.binary(1)?;
        let value = if self.peek() == Token::Mark(b'?') {
            self.next();
            let then = self.constant()?;
            self.expect(b':')?;
            let otherwise = self.constant()?;
            self.choose(condition, then, otherwise)?
        } else {
            condition
        };
        self.leave();
        Ok(value)
    }

    /// `condition ? then : otherwise`, unsigned if either is (the usual conversions).
    fn choose(&self, condition: Constant, then: Constant, otherwise: Constant) -> Result<Constant> {
        use Constant::Integer;
        let Integer { bits, .. } = condition else {
            return self.error("a condition is an integer");
        };
        let taken = if bits != 0 { then } else { otherwise };
        Ok(match (taken, then, otherwise) {
            (Integer { bits, .. }, Integer { unsigned: a, .. }, Integer { unsigned: b, .. }) => {
                Integer {
                    bits,
                    unsigned: a || b,
                }
            }
            _ => taken,
        })
    }

    /// An integer expression.
    pub(super) fn integer(&mut self) -> Result<u64> {
        match self.constant()? {
            Constant::Integer { bits, .. } => Ok(bits),
            _ => self.error("a floating-point number where an integer is needed"),
        }
    }

    /// `+8`, `-4*2`, after a base; 0 without any.
    pub(super) fn offset(&mut self) -> Result<i64> {
        let mut sum = 0i64;
        while let Token::Mark(sign @ (b'+' | b'-')) = self.peek() {
            self.next();
            let Constant::Integer { bits, .. } = self.binary(SUM + 1)? else {
                return self.error("an offset is an integer");
            };
            sum = match sign {
                b'+' => sum.wrapping_add(bits as i64),
                _ => sum.wrapping_sub(bits as i64),
            };
        }
        Ok(sum)
    }

    /// The operator that is next, how tightly it binds, and its tokens.
    fn operator(&self) -> Option<(Operator, u32, usize)> {
        let Token::Mark(mark) = self.peek() else {
            return None;
        };
        let doubled = self.ahead(1) == Token::Mark(mark);
        let equals = self.ahead(1) == Token::Mark(b'=');
        Some(match mark {
            b'|' if doubled => (Operator::Either, 1, 2),
            b'&' if doubled => (Operator::Both, 2, 2),
            b'|' => (Operator::Or, 3, 1),
            b'^' => (Operator::Xor, 4, 1),
            b'&' => (Operator::And, 5, 1),
            b'=' if doubled => (Operator::Equal, 6, 2),
            b'!' if equals => (Operator::Unequal, 6, 2),
            b'<' if doubled => (Operator::ShiftLeft, 8, 2),
            b'>' if doubled => (Operator::ShiftRight, 8, 2),
            b'<' if equals => (Operator::AtMost, 7, 2),
            b'>' if equals => (Operator::AtLeast, 7, 2),
            b'<' => (Operator::Less, 7, 1),
            b'>' => (Operator::Greater, 7, 1),
            b'+' => (Operator::Add, SUM, 1),
            b'-' => (Operator::Subtract, SUM, 1),
            b'*' => (Operator::Multiply, SUM + 1, 1),
            b'/' => (Operator::Divide, SUM + 1, 1),
            b'%' => (Operator::Remainder, SUM + 1, 1),
            _ => return None,
        })
    }

    fn binary(&mut self, least: u32) -> Result<Constant> {
        self.enter()?;
        let mut left = self.unary()?;
        while let Some((operator, binds, tokens)) = self.operator() {
            if binds < least {
                break;
            }
            for _ in 0..tokens {
                self.next();
            }
            let right = self.binary(binds + 1)?;
            left = self.apply(operator, left, right)?;
        }
        self.leave();
        Ok(left)
    }

    fn unary(&mut self) -> Result<Constant> {
        let token = self.peek();
        let constant = match token {
            Token::Integer(bits, unsigned) => Constant::Integer { bits, unsigned },
            Token::Float(bits) => Constant::Float(bits),
            Token::Double(bits) => Constant::Double(bits),
            Token::Decimal(text) => match text.parse::<f64>() {
                Ok(value) => Constant::Double(value.to_bits()),
                Err(_) => return self.unexpected("a number"),
            },
            Token::Name("WARP_SZ") => Constant::Integer {
                bits: 32,
                unsigned: false,
            },
            Token::Mark(b'(') => {
                self.next();
                let inner = self.constant()?;
                self.expect(b')')?;
                return Ok(inner);
            }
            Token::Mark(sign @ (b'-' | b'+' | b'~' | b'!')) => {
                self.next();
                self.enter()?;
                let inner = self.unary()?;
                self.leave();
                return self.signed(sign, inner);
            }
            _ => return self.unexpected("a constant"),
        };
        self.next();
        Ok(constant)
    }

    fn signed(&self, sign: u8, of: Constant) -> Result<Constant> {
        Ok(match (sign, of) {
            (b'+', _) => of,
            (b'!', Constant::Integer { bits, .. }) => truth(bits == 0),
            (b'-', Constant::Integer { bits, unsigned }) => Constant::Integer {
                bits: bits.wrapping_neg(),
                unsigned,
            },
            (b'-', Constant::Float(bits)) => Constant::Float(bits ^ 1 << 31),
            (b'-', Constant::Double(bits)) => Constant::Double(bits ^ 1 << 63),
            (_, Constant::Integer { bits, unsigned }) => Constant::Integer {
                bits: !bits,
                unsigned,
            },
            _ => return self.error("`~` or `!` of a floating-point number"),
        })
    }

    fn apply(&self, operator: Operator, left: Constant, right: Constant) -> Result<Constant> {
        let (
            Constant::Integer {
                bits: a,
                unsigned: ua,
            },
            Constant::Integer {
                bits: b,
                unsigned: ub,
            },
        ) = (left, right)
        else {
            return self.error("arithmetic on floating-point constants");
        };
        let unsigned = ua || ub;
        let less = |x: u64, y: u64| match unsigned {
            true => x < y,
            false => (x as i64) < y as i64,
        };
        let compared = match operator {
            Operator::Either => Some(a != 0 || b != 0),
            Operator::Both => Some(a != 0 && b != 0),
            Operator::Equal => Some(a == b),
            Operator::Unequal => Some(a != b),
            Operator::Less => Some(less(a, b)),
            Operator::AtLeast => Some(!less(a, b)),
            Operator::Greater => Some(less(b, a)),
            Operator::AtMost => Some(!less(b, a)),
            _ => None,
        };
        if let Some(compared) = compared {
            return Ok(truth(compared));
        }
        let zero = "a constant divided by zero";
        let bits = match operator {
            // Those that compare are done.
            Operator::Either | Operator::Both | Operator::Equal | Operator::Unequal => 0,
            Operator::Less | Operator::AtLeast | Operator::Greater | Operator::AtMost => 0,
            Operator::Or => a | b,
            Operator::Xor => a ^ b,
            Operator::And => a & b,
            Operator::ShiftLeft | Operator::ShiftRight => {
                // The left side alone says whether a shift is signed. Counts of 64 and more shift everything out.
                let count = u32::try_from(b).unwrap_or(64).min(64);
                let bits = match (operator, ua) {
                    (Operator::ShiftLeft, _) => a.checked_shl(count).unwrap_or(0),
                    (_, true) => a.checked_shr(count).unwrap_or(0),
                    (_, false) => (a as i64 >> count.min(63)) as u64,
                };
                return Ok(Constant::Integer { bits, unsigned: ua });
            }
            Operator::Add => a.wrapping_add(b),
            Operator::Subtract => a.wrapping_sub(b),
            Operator::Multiply => a.wrapping_mul(b),
            Operator::Divide | Operator::Remainder if b == 0 => return self.error(zero),
            Operator::Divide if unsigned => a / b,
            Operator::Divide => (a as i64).wrapping_div(b as i64) as u64,
            Operator::Remainder if unsigned => a % b,
            Operator::Remainder => (a as i64).wrapping_rem(b as i64) as u64,
        };
        Ok(Constant::Integer { bits, unsigned })
    }
}
