//! Comparison and selection (PTX ISA §9.7.7 `set`, `setp`, `selp`, `slct`, and their half-precision forms in §9.7.8).

use std::cmp::Ordering;

use super::operands::{Decoder, Dst, Predicate, Refused, Src, SrcP, Type};
use crate::{
    fault::Fault,
    machine::{LANES, Step},
    numeric,
    ptx::Operand,
};

/// Comparison operators (§9.3.1, §9.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Unordered: also true if an operand is a NaN.
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    And,
    Or,
    Xor,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// `setp`: `p = (a op b) combined with c`, `q = !(a op b) combined with c`. Packed types compare each half: into p and q.
    SetPredicate {
        to: [Option<Predicate>; 2],
        compare: Compare,
        ty: Type,
        flush: bool,
        operands: [Src; 2],
        combine: Option<(Combine, SrcP)>,
    },
    /// `set`: all ones or 1.0 where it holds.
    Set {
        to: Dst,
        to_type: Type,
        compare: Compare,
        ty: Type,
        flush: bool,
        operands: [Src; 2],
        combine: Option<(Combine, SrcP)>,
    },
    Select {
        to: Dst,
        operands: [Src; 2],
        condition: SrcP,
    },
    /// `slct`: a where c ≥ 0.
    SelectBySign {
        to: Dst,
        operands: [Src; 2],
        condition: Src,
        float: bool,
        flush: bool,
    },
}

fn compare_named(part: &str) -> Option<Compare> {
    Some(match part {
        "eq" => Compare::Eq,
        "ne" => Compare::Ne,
        "lt" | "lo" => Compare::Lt,
        "le" | "ls" => Compare::Le,
        "gt" | "hi" => Compare::Gt,
        "ge" | "hs" => Compare::Ge,
        "equ" => Compare::Equ,
        "neu" => Compare::Neu,
        "ltu" => Compare::Ltu,
        "leu" => Compare::Leu,
        "gtu" => Compare::Gtu,
        "geu" => Compare::Geu,
        "num" => Compare::Num,
        "nan" => Compare::Nan,
        _ => return None,
    })
}

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    let first = &*d.parts()[0];
    let ty = d.last_type()?;
    match first {
        "selp" => {
            d.expect_count(4..=4)?;
            if d.parts().len() != 2 {
                return Err("selp has a type only".into());
            }
            let operands = [d.src(d.operand(1)?, ty)?, d.src(d.operand(2)?, ty)?];
            let condition = d.src_predicate(d.operand(3)?)?;
            return Ok(Op::Select {
                to: d.dst(d.operand(0)?)?,
                operands,
                condition,
            });
        }
        "slct" => {
            d.expect_count(4..=4)?;
            let value = d.parts().iter().skip(1).find_map(|p| Type::named(p));
            let value = value.ok_or("slct has two types")?;
            let operands = [d.src(d.operand(1)?, value)?, d.src(d.operand(2)?, value)?];
            let condition = d.src(d.operand(3)?, ty)?;
            let to = d.dst(d.operand(0)?)?;
            return Ok(Op::SelectBySign {
                to,
                operands,
                condition,
                float: ty == Type::F32,
                flush: d.has("ftz"),
            });
        }
        _ => {}
    }
    let mut compare = None;
    let mut combine = None;
    let mut flush = false;
    let mut types = Vec::new();
    for part in &d.parts()[1..] {
        match &**part {
            "and" => combine = Some(Combine::And),
            "or" => combine = Some(Combine::Or),
            "xor" => combine = Some(Combine::Xor),
            "ftz" => flush = true,
            part => match (compare_named(part), Type::named(part)) {
                (Some(found), _) => compare = Some(found),
                (None, Some(ty)) => types.push(ty),
                (None, None) => return Err(Refused(format!("`.{part}` is not known here"))),
            },
        }
    }
    let compare = compare.ok_or("a comparison must stand here")?;
    let count = 3 + usize::from(combine.is_some());
    d.expect_count(count..=count)?;
    let operands = [d.src(d.operand(1)?, ty)?, d.src(d.operand(2)?, ty)?];
    let combine = match combine {
        Some(combine) => Some((combine, d.src_predicate(d.operand(3)?)?)),
        None => None,
    };
    if first == "set" {
        let [to_type, ty] = types[..] else {
            return Err("set has two types".into());
        };
        let to = d.dst(d.operand(0)?)?;
        return Ok(Op::Set {
            to,
            to_type,
            compare,
            ty,
            flush,
            operands,
            combine,
        });
    }
    let to = match d.operand(0)? {
        Operand::Pair(pair) => [d.dst_predicate(&pair.0)?, d.dst_predicate(&pair.1)?],
        one => [d.dst_predicate(one)?, None],
    };
    Ok(Op::SetPredicate {
        to,
        compare,
        ty,
        flush,
        operands,
        combine,
    })
}

impl Compare {
    fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Compare::Eq => order == Some(Ordering::Equal),
            // `ne` of floats is false for a NaN, unlike IEEE's (§9.3.2).
            Compare::Ne => order.is_some_and(|o| o != Ordering::Equal),
            Compare::Lt => order == Some(Ordering::Less),
            Compare::Le => order.is_some_and(|o| o != Ordering::Greater),
            Compare::Gt => order == Some(Ordering::Greater),
            Compare::Ge => order.is_some_and(|o| o != Ordering::Less),
            Compare::Equ => order.is_none_or(|o| o == Ordering::Equal),
            Compare::Neu => order != Some(Ordering::Equal),
            Compare::Ltu => order.is_none_or(|o| o == Ordering::Less),
            Compare::Leu => order != Some(Ordering::Greater),
            Compare::Gtu => order.is_none_or(|o| o == Ordering::Greater),
            Compare::Geu => order != Some(Ordering::Less),
            Compare::Num => order.is_some(),
            Compare::Nan => order.is_none(),
        }
    }
}

/// Lanes where the comparison holds.
fn compare_lanes(
    compare: Compare,
    ty: Type,
    flush: bool,
    a: &[u64; LANES],
    b: &[u64; LANES],
) -> u32 {
    #[inline]
    fn lanes(compare: Compare, order: impl Fn(usize) -> Option<Ordering>) -> u32 {
        let mut mask = 0;
        for lane in 0..LANES {
            mask |= u32::from(compare.holds(order(lane))) << lane;
        }
        mask
    }
    let f32_of = |bits: u64| {
        let value = f32::from_bits(bits as u32);
        if flush && value.is_subnormal() {
            0.0
        } else {
            value
        }
    };
    match ty {
        Type::S16 => lanes(compare, |l| Some((a[l] as i16).cmp(&(b[l] as i16)))),
        Type::S32 => lanes(compare, |l| Some((a[l] as i32).cmp(&(b[l] as i32)))),
        Type::S64 => lanes(compare, |l| Some((a[l] as i64).cmp(&(b[l] as i64)))),
        Type::B16 | Type::U16 => lanes(compare, |l| Some((a[l] as u16).cmp(&(b[l] as u16)))),
        Type::B32 | Type::U32 => lanes(compare, |l| Some((a[l] as u32).cmp(&(b[l] as u32)))),
        Type::F32 => lanes(compare, |l| f32_of(a[l]).partial_cmp(&f32_of(b[l]))),
        Type::F64 => lanes(compare, |l| {
            f64::from_bits(a[l]).partial_cmp(&f64::from_bits(b[l]))
        }),
        Type::F16 | Type::F16x2 => lanes(compare, |l| {
            let of = |bits: u64| {
                let value = numeric::convert::f16_to_f32(bits as u16);
                if flush && value.abs() < 6.103_515_6e-5 {
                    0.0
                } else {
                    value
                }
            };
            of(a[l]).partial_cmp(&of(b[l]))
        }),
        Type::Bf16 | Type::Bf16x2 => lanes(compare, |l| {
            let of = |bits: u64| f32::from_bits((bits as u32 & 0xffff) << 16);
            of(a[l]).partial_cmp(&of(b[l]))
        }),
        _ => lanes(compare, |l| Some(a[l].cmp(&b[l]))),
    }
}

fn combined(step: &Step<'_>, value: u32, combine: Option<(Combine, SrcP)>) -> u32 {
    match combine {
        None => value,
        Some((Combine::And, c)) => value & step.predicate(c),
        Some((Combine::Or, c)) => value | step.predicate(c),
        Some((Combine::Xor, c)) => value ^ step.predicate(c),
    }
}

impl Op {
    #[inline]
    pub(super) fn execute(&self, step: &mut Step<'_>) -> Result<(), Fault> {
        match self {
            Op::SetPredicate {
                to,
                compare,
                ty,
                flush,
                operands,
                combine,
            } => {
                let [a, b] = operands.map(|o| step.any(o));
                let holds = compare_lanes(*compare, *ty, *flush, &a, &b);
                let other = match ty {
                    Type::F16x2 | Type::Bf16x2 => {
                        let [a, b] = [a, b].map(|v| v.map(|v| v >> 16));
                        compare_lanes(*compare, *ty, *flush, &a, &b)
                    }
                    _ => !holds,
                };
                let values = [holds, other].map(|v| combined(step, v, *combine));
                for (to, value) in to.iter().zip(values) {
                    if let Some(to) = to {
                        step.set_predicate(*to, value);
                    }
                }
            }
            Op::Set {
                to,
                to_type,
                compare,
                ty,
                flush,
                operands,
                combine,
            } => {
                let [a, b] = operands.map(|o| step.any(o));
                let low = combined(step, compare_lanes(*compare, *ty, *flush, &a, &b), *combine);
                let high = match ty {
                    Type::F16x2 | Type::Bf16x2 => {
                        let [a, b] = [a, b].map(|v| v.map(|v| v >> 16));
                        Some(combined(
                            step,
                            compare_lanes(*compare, *ty, *flush, &a, &b),
                            *combine,
                        ))
                    }
                    _ => None,
                };
                let one = match to_type {
                    Type::F32 => u64::from(1f32.to_bits()),
                    Type::F16 | Type::F16x2 => 0x3c00,
                    Type::Bf16 | Type::Bf16x2 => 0x3f80,
                    Type::U16 | Type::S16 => 0xffff,
                    _ if high.is_some() => 0xffff,
                    _ => 0xffff_ffff,
                };
                let value = std::array::from_fn(|lane| {
                    let of = |mask: u32| if mask >> lane & 1 != 0 { one } else { 0 };
                    of(low) | high.map_or(0, |high| of(high) << 16)
                });
                step.set_any(*to, &value);
            }
            Op::Select {
                to,
                operands,
                condition,
            } => {
                let chosen = step.predicate(*condition);
                if let (Dst::Word(to), [Src::Small(a), Src::Small(b)]) = (to, operands) {
                    let (a, b) = (step.word(*a), step.word(*b));
                    let value =
                        std::array::from_fn(|l| if chosen >> l & 1 != 0 { a[l] } else { b[l] });
                    step.set_word(*to, &value);
                    return Ok(());
                }
                let [a, b] = operands.map(|o| step.any(o));
                let value = std::array::from_fn(|l| if chosen >> l & 1 != 0 { a[l] } else { b[l] });
                step.set_any(*to, &value);
            }
            Op::SelectBySign {
                to,
                operands,
                condition,
                float,
                flush,
            } => {
                let [a, b] = operands.map(|o| step.any(o));
                let c = step.any(*condition);
                let first = |c: u64| match float {
                    // A subnormal that is flushed is a zero, of either sign.
                    true => {
                        let value = f32::from_bits(c as u32);
                        value >= 0.0 || (*flush && value.is_subnormal())
                    }
                    false => c as i32 >= 0,
                };
                let value = std::array::from_fn(|l| if first(c[l]) { a[l] } else { b[l] });
                step.set_any(*to, &value);
            }
        }
        Ok(())
    }
}
