//! Which operations the opcodes of integers name.

use super::{Basic, CarryOp, Op, PermuteMode, wider};
use crate::{
    isa::operands::{Decoder, Dst, Refused, Src, Type},
    ptx::Operand,
};

pub(in crate::isa) fn decode(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    let first = &*d.parts()[0];
    // The modes of `prmt` stand behind its type.
    let ty = match first {
        "prmt" => Type::B32,
        _ => d.last_type()?,
    };
    let binary = |d: &mut Decoder<'_>, what: Basic| -> Result<Op, Refused> {
        d.expect_count(3..=3)?;
        // Counts of shifts are 32 bits wide whatever is shifted.
        let of_b = if matches!(what, Basic::Shl | Basic::Shr) {
            Type::U32
        } else {
            ty
        };
        let a = d.src(d.operand(1)?, ty)?;
        let b = d.src(d.operand(2)?, of_b)?;
        let to = d.dst(d.operand(0)?)?;
        if matches!(ty, Type::U16x2 | Type::S16x2) {
            return Ok(Op::Packed {
                what,
                signed: ty == Type::S16x2,
                to,
                a,
                b,
            });
        }
        Ok(Op::Basic { what, ty, to, a, b })
    };
    let unary = |d: &mut Decoder<'_>, what: Basic| -> Result<Op, Refused> {
        d.expect_count(2..=2)?;
        let a = d.src(d.operand(1)?, ty)?;
        Ok(Op::Basic {
            what,
            ty,
            to: d.dst(d.operand(0)?)?,
            a,
            b: a,
        })
    };
    let with_type = |d: &Decoder<'_>, known: &[&str]| -> Result<(), Refused> {
        let others = d.parts()[1..].iter().filter(|p| Type::named(p).is_none());
        for part in others {
            if !known.contains(&&**part) {
                return Err(Refused(format!("`.{part}` is not known here")));
            }
        }
        Ok(())
    };
    if d.has("cc") || matches!(first, "addc" | "subc" | "madc") {
        return decode_carry(d, ty);
    }
    match first {
        "add" => {
            with_type(d, &["sat"])?;
            binary(
                d,
                if d.has("sat") {
                    Basic::AddSaturating
                } else {
                    Basic::Add
                },
            )
        }
        "sub" => {
            with_type(d, &["sat"])?;
            binary(
                d,
                if d.has("sat") {
                    Basic::SubSaturating
                } else {
                    Basic::Sub
                },
            )
        }
        "mul" | "mul24" => {
            with_type(d, &["lo", "hi", "wide"])?;
            let what = product(d, first == "mul24")?;
            binary(d, what)
        }
        "mad" | "mad24" => {
            with_type(d, &["lo", "hi", "wide", "sat"])?;
            d.expect_count(4..=4)?;
            let product = product(d, first == "mad24")?;
            let wide = if product == Basic::MulWide {
                wider(ty)
            } else {
                ty
            };
            let a = d.src(d.operand(1)?, ty)?;
            let b = d.src(d.operand(2)?, ty)?;
            let c = d.src(d.operand(3)?, wide)?;
            let to = d.dst(d.operand(0)?)?;
            Ok(Op::Mad {
                product,
                ty,
                saturating: d.has("sat"),
                to,
                a,
                b,
                c,
            })
        }
        "div" | "rem" | "abs" | "neg" | "not" | "cnot" | "shl" | "shr" | "popc" | "clz"
        | "brev" => {
            with_type(d, &[])?;
            match first {
                "div" => binary(d, Basic::Div),
                "rem" => binary(d, Basic::Rem),
                "shl" => binary(d, Basic::Shl),
                "shr" => binary(d, Basic::Shr),
                "abs" => unary(d, Basic::Abs),
                "neg" => unary(d, Basic::Neg),
                "not" if ty == Type::Pred => {
                    d.expect_count(2..=2)?;
                    let a = d.src_predicate(d.operand(1)?)?;
                    let to = d
                        .dst_predicate(d.operand(0)?)?
                        .ok_or("a predicate must stand here")?;
                    Ok(Op::Logic {
                        what: Basic::Not,
                        to,
                        a,
                        b: a,
                    })
                }
                "not" => unary(d, Basic::Not),
                "cnot" => unary(d, Basic::ConditionalNot),
                "popc" => unary(d, Basic::PopulationCount),
                "clz" => unary(d, Basic::LeadingZeros),
                _ => unary(d, Basic::Reverse),
            }
        }
        "bfind" => {
            with_type(d, &["shiftamt"])?;
            unary(
                d,
                if d.has("shiftamt") {
                    Basic::FindShift
                } else {
                    Basic::FindBit
                },
            )
        }
        "min" | "max" => {
            with_type(d, &["relu"])?;
            binary(
                d,
                match (first, d.has("relu")) {
                    ("min", false) => Basic::Min,
                    ("min", true) => Basic::MinRelu,
                    (_, false) => Basic::Max,
                    (_, true) => Basic::MaxRelu,
                },
            )
        }
        "and" | "or" | "xor" => {
            with_type(d, &[])?;
            let what = match first {
                "and" => Basic::And,
                "or" => Basic::Or,
                _ => Basic::Xor,
            };
            if ty == Type::Pred {
                d.expect_count(3..=3)?;
                let a = d.src_predicate(d.operand(1)?)?;
                let b = d.src_predicate(d.operand(2)?)?;
                let to = d
                    .dst_predicate(d.operand(0)?)?
                    .ok_or("a predicate must stand here")?;
                return Ok(Op::Logic { what, to, a, b });
            }
            binary(d, what)
        }
        "sad" => {
            with_type(d, &[])?;
            let [to, a, b, c] = ternary(d, ty)?;
            Ok(Op::Sad {
                ty,
                to: to.0,
                a: a.1,
                b: b.1,
                c: c.1,
            })
        }
        "lop3" => {
            with_type(d, &["or", "and"])?;
            let combine = d.has("or") || d.has("and");
            let count = if combine { 6 } else { 5 };
            d.expect_count(count..=count)?;
            let (to, also) = match d.operand(0)? {
                Operand::Pair(pair) => (&pair.0, Some(&pair.1)),
                one => (one, None),
            };
            let a = d.src(d.operand(1)?, ty)?;
            let b = d.src(d.operand(2)?, ty)?;
            let c = d.src(d.operand(3)?, ty)?;
            let table = d.constant(d.operand(4)?)? as u32 & 0xff;
            let or = match (combine, also) {
                (true, Some(p)) => {
                    let q = d.src_predicate(d.operand(5)?)?;
                    d.dst_predicate(p)?.map(|p| (p, q, d.has("or")))
                }
                _ => None,
            };
            Ok(Op::Lop3 {
                table,
                to: d.dst(to)?,
                a,
                b,
                c,
                or,
            })
        }
        "shf" => {
            with_type(d, &["l", "r", "wrap", "clamp"])?;
            let [to, a, b, c] = ternary(d, Type::U32)?;
            let (left, clamp) = (d.has("l"), d.has("clamp"));
            Ok(Op::Funnel {
                left,
                clamp,
                to: to.0,
                a: a.1,
                b: b.1,
                c: c.1,
            })
        }
        "prmt" => {
            with_type(d, &["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"])?;
            let mode = match () {
                () if d.has("f4e") => PermuteMode::Forward4,
                () if d.has("b4e") => PermuteMode::Backward4,
                () if d.has("rc8") => PermuteMode::Replicate8,
                () if d.has("ecl") => PermuteMode::EdgeLeft,
                () if d.has("ecr") => PermuteMode::EdgeRight,
                () if d.has("rc16") => PermuteMode::Replicate16,
                () => PermuteMode::Index,
            };
            let [to, a, b, c] = ternary(d, Type::U32)?;
            Ok(Op::Permute {
                mode,
                to: to.0,
                a: a.1,
                b: b.1,
                c: c.1,
            })
        }
        "bfe" => {
            with_type(d, &[])?;
            d.expect_count(4..=4)?;
            let a = d.src(d.operand(1)?, ty)?;
            let position = d.src(d.operand(2)?, Type::U32)?;
            let length = d.src(d.operand(3)?, Type::U32)?;
            Ok(Op::Extract {
                ty,
                to: d.dst(d.operand(0)?)?,
                a,
                position,
                length,
            })
        }
        "bfi" => {
            with_type(d, &[])?;
            d.expect_count(5..=5)?;
            let a = d.src(d.operand(1)?, ty)?;
            let b = d.src(d.operand(2)?, ty)?;
            let position = d.src(d.operand(3)?, Type::U32)?;
            let length = d.src(d.operand(4)?, Type::U32)?;
            Ok(Op::Insert {
                ty,
                to: d.dst(d.operand(0)?)?,
                a,
                b,
                position,
                length,
            })
        }
        "fns" => {
            let [to, mask, base, offset] = ternary(d, Type::U32)?;
            Ok(Op::FindNth {
                to: to.0,
                mask: mask.1,
                base: base.1,
                offset: offset.1,
            })
        }
        "szext" | "bmsk" => {
            with_type(d, &["clamp", "wrap"])?;
            d.expect_count(3..=3)?;
            let a = d.src(d.operand(1)?, ty)?;
            let b = d.src(d.operand(2)?, Type::U32)?;
            let to = d.dst(d.operand(0)?)?;
            let clamp = d.has("clamp");
            Ok(match first {
                "szext" => Op::SignExtend {
                    signed: ty.is_signed(),
                    clamp,
                    to,
                    a,
                    bits: b,
                },
                _ => Op::BitMask { clamp, to, a, b },
            })
        }
        "dp4a" | "dp2a" => {
            with_type(d, &["lo", "hi"])?;
            let types: Vec<Type> = d.parts()[1..]
                .iter()
                .filter_map(|p| Type::named(p))
                .collect();
            let [ta, tb] = types[..] else {
                return Err("two types must stand here".into());
            };
            let [to, a, b, c] = ternary(d, Type::U32)?;
            Ok(Op::Dot {
                bytes_of_b: first == "dp4a",
                signed: [ta.is_signed(), tb.is_signed()],
                high: d.has("hi"),
                to: to.0,
                a: a.1,
                b: b.1,
                c: c.1,
            })
        }
        _ => Err("".into()),
    }
}

/// A destination and three sources of one type; each stands in its own half of a pair.
fn ternary(d: &mut Decoder<'_>, ty: Type) -> Result<[(Dst, Src); 4], Refused> {
    d.expect_count(4..=4)?;
    let a = d.src(d.operand(1)?, ty)?;
    let b = d.src(d.operand(2)?, ty)?;
    let c = d.src(d.operand(3)?, ty)?;
    let to = d.dst(d.operand(0)?)?;
    Ok([(to, a), (to, a), (to, b), (to, c)])
}

fn product(d: &Decoder<'_>, short: bool) -> Result<Basic, Refused> {
    Ok(match (d.has("lo"), d.has("hi"), d.has("wide"), short) {
        (true, false, false, false) => Basic::MulLow,
        (false, true, false, false) => Basic::MulHigh,
        (false, false, true, false) => Basic::MulWide,
        (true, false, false, true) => Basic::Mul24Low,
        (false, true, false, true) => Basic::Mul24High,
        _ => return Err("it must say which half of the product".into()),
    })
}

fn decode_carry(d: &mut Decoder<'_>, ty: Type) -> Result<Op, Refused> {
    let first = &*d.parts()[0];
    d.only(&["cc", "lo", "hi", "u32", "s32", "u64", "s64"])?;
    let what = match (first, d.has("hi")) {
        ("add" | "addc", _) => CarryOp::Add,
        ("sub" | "subc", _) => CarryOp::Sub,
        ("mad" | "madc", false) => CarryOp::MadLow,
        ("mad" | "madc", true) => CarryOp::MadHigh,
        _ => return Err("".into()),
    };
    let product = matches!(what, CarryOp::MadLow | CarryOp::MadHigh);
    let count = if product { 4 } else { 3 };
    d.expect_count(count..=count)?;
    let a = d.src(d.operand(1)?, ty)?;
    let b = d.src(d.operand(2)?, ty)?;
    let c = if product {
        Some(d.src(d.operand(3)?, ty)?)
    } else {
        None
    };
    let to = d.dst(d.operand(0)?)?;
    let carry_in = first.ends_with('c');
    Ok(Op::Carry {
        what,
        ty,
        carry_in,
        carry_out: d.has("cc"),
        to,
        a,
        b,
        c,
    })
}
