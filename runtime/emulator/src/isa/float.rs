//! Floating-point instructions (PTX ISA §9.7.3), half-precision ones (§9.7.4) and those of mixed precision (§9.7.5).
//!
//! Plain `.f32` sums, products, minima and powers of two run on all 32 lanes at once (`numeric::lanes`); the rest lane by lane. Comparisons
//! are in `select`, conversions in `convert`.

use super::operands::{Decoder, Double, Predicate, Refused, Src32, Src64, Type, Word};
use crate::{
    fault::Fault,
    machine::{LANES, Step},
    numeric::{
        Modifiers, Rounding, Selection, approximate, double,
        format::{F32, F64, Format},
        half::Half,
        lanes, single,
    },
};

/// An operation on up to three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Add,
    Sub,
    Mul,
    Fma,
    Div,
    DivApproximate,
    DivFull,
    Rcp,
    RcpApproximate,
    Sqrt,
    SqrtApproximate,
    RsqrtApproximate,
    Sin,
    Cos,
    Lg2,
    Ex2,
    Tanh,
    Abs,
    Neg,
    Copysign,
    Select(Selection),
}

/// What `testp` asks (PTX ISA §9.7.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Property {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// On all lanes at once: to the nearest, without `.sat`.
    Lanes {
        to: Word,
        a: Src32,
        b: Src32,
        what: What,
        ftz: bool,
    },
    LanesFma {
        to: Word,
        a: Src32,
        b: Src32,
        c: Src32,
        ftz: bool,
    },
    Single {
        to: Word,
        sources: [Src32; 3],
        what: What,
        modifiers: Modifiers,
    },
    /// The first `widened` sources are of 16 bits, and become `.f32` first.
    Mixed {
        to: Word,
        sources: [Src32; 3],
        widened: usize,
        from: Half,
        what: What,
        modifiers: Modifiers,
    },
    /// Two `.f32`.
    Pair {
        to: Double,
        sources: [Src64; 3],
        what: What,
        modifiers: Modifiers,
    },
    Double {
        to: Double,
        sources: [Src64; 3],
        what: What,
        modifiers: Modifiers,
    },
    /// The `.ftz` approximations of the upper half.
    Gross { to: Double, a: Src64, what: What },
    Half {
        to: Word,
        sources: [Src32; 3],
        what: What,
        of: Half,
        packed: bool,
        modifiers: Modifiers,
    },
    TestSingle {
        to: Predicate,
        a: Src32,
        property: Property,
    },
    TestDouble {
        to: Predicate,
        a: Src64,
        property: Property,
    },
}

fn rounding_of(d: &Decoder<'_>) -> Result<Option<Rounding>, Refused> {
    let mut found = None;
    for part in &d.parts()[1..] {
        let rounding = match &**part {
            "rn" => Rounding::NearestEven,
            "rz" => Rounding::Zero,
            "rm" => Rounding::Down,
            "rp" => Rounding::Up,
            _ => continue,
        };
        if found.replace(rounding).is_some() {
            return Err("it has two roundings".into());
        }
    }
    Ok(found)
}

fn modifiers_of(d: &Decoder<'_>) -> Result<Modifiers, Refused> {
    Ok(Modifiers {
        rounding: rounding_of(d)?.unwrap_or_default(),
        ftz: d.has("ftz"),
        saturate: d.has("sat"),
        relu: d.has("relu"),
    })
}

/// The operation, how many sources it has, and the modifiers that each type takes.
fn what_of(d: &Decoder<'_>) -> Result<(What, usize), Refused> {
    let approximate = d.has("approx");
    let exact = rounding_of(d)?.is_some();
    let either = |exactly, roughly| match (exact, approximate) {
        (true, false) => Ok(exactly),
        (false, true) => Ok(roughly),
        _ => Err(Refused::from("it needs a rounding, or `.approx`")),
    };
    let roughly = |what| match approximate {
        true => Ok((what, 1)),
        false => Err(Refused::from("it needs `.approx`")),
    };
    Ok(match &*d.parts()[0] {
        "add" => (What::Add, 2),
        "sub" => (What::Sub, 2),
        "mul" => (What::Mul, 2),
        "fma" | "mad" if exact => (What::Fma, 3),
        "fma" | "mad" => return Err("it needs a rounding".into()),
        "div" if d.has("full") && !exact && !approximate => (What::DivFull, 2),
        "div" => (either(What::Div, What::DivApproximate)?, 2),
        "rcp" => (either(What::Rcp, What::RcpApproximate)?, 1),
        "sqrt" => (either(What::Sqrt, What::SqrtApproximate)?, 1),
        "rsqrt" => roughly(What::RsqrtApproximate)?,
        "sin" => roughly(What::Sin)?,
        "cos" => roughly(What::Cos)?,
        "lg2" => roughly(What::Lg2)?,
        "ex2" => roughly(What::Ex2)?,
        "tanh" => roughly(What::Tanh)?,
        "abs" => (What::Abs, 1),
        "neg" => (What::Neg, 1),
        "copysign" => (What::Copysign, 2),
        "min" | "max" => {
            let xorsign = d.has("xorsign");
            let selection = Selection {
                largest: &*d.parts()[0] == "max",
                ftz: d.has("ftz"),
                propagate: d.has("NaN"),
                xorsign,
                magnitudes: d.has("abs"),
            };
            if xorsign && !selection.magnitudes {
                return Err("`.xorsign` stands with `.abs`".into());
            }
            (What::Select(selection), d.count().saturating_sub(1))
        }
        _ => return Err("".into()),
    })
}

/// The modifiers that an instruction takes in a type; none where the type has no such instruction.
fn known(what: What, ty: Type) -> Option<&'static [&'static str]> {
    let half = matches!(ty, Type::F16 | Type::F16x2);
    let brain = matches!(ty, Type::Bf16 | Type::Bf16x2);
    Some(match (what, ty) {
        (What::Add | What::Sub | What::Mul, Type::F32) => &["rn", "rz", "rm", "rp", "ftz", "sat"],
        (What::Fma, Type::F32) => &["rn", "rz", "rm", "rp", "ftz", "sat"],
        (What::Add | What::Sub | What::Mul | What::Fma, Type::F32x2) => {
            &["rn", "rz", "rm", "rp", "ftz"]
        }
        (What::Add | What::Sub | What::Mul | What::Fma, Type::F64) => &["rn", "rz", "rm", "rp"],
        (What::Add | What::Sub | What::Mul, _) if half => &["rn", "ftz", "sat"],
        (What::Add | What::Sub | What::Mul, _) if brain => &["rn"],
        (What::Fma, _) if half => &["rn", "ftz", "sat", "relu"],
        (What::Fma, _) if brain => &["rn", "relu"],
        (What::Div | What::Rcp | What::Sqrt, Type::F32) => &["rn", "rz", "rm", "rp", "ftz"],
        (What::Div | What::Rcp | What::Sqrt, Type::F64) => &["rn", "rz", "rm", "rp"],
        (What::DivFull, Type::F32) => &["full", "ftz"],
        (
            What::DivApproximate
            | What::RcpApproximate
            | What::SqrtApproximate
            | What::RsqrtApproximate
            | What::Sin
            | What::Cos
            | What::Lg2
            | What::Ex2,
            Type::F32,
        ) => &["approx", "ftz"],
        (What::RcpApproximate | What::RsqrtApproximate, Type::F64) => &["approx", "ftz"],
        (What::Ex2, _) if half => &["approx"],
        (What::Ex2, _) if brain => &["approx", "ftz"],
        (What::Tanh, _) if half || brain || ty == Type::F32 => &["approx"],
        (What::Abs | What::Neg, Type::F64) => &[],
        (What::Abs | What::Neg, _) if half || ty == Type::F32 => &["ftz"],
        (What::Abs | What::Neg, _) if brain => &[],
        (What::Copysign, Type::F32 | Type::F64) => &[],
        (What::Select(_), Type::F64) => &[],
        (What::Select(_), Type::F32) => &["ftz", "NaN", "xorsign", "abs"],
        (What::Select(_), _) if half => &["ftz", "NaN", "xorsign", "abs"],
        (What::Select(_), _) if brain => &["NaN", "xorsign", "abs"],
        _ => return None,
    })
}

/// The first target that has an instruction, by the notes on targets of each section.
fn first_target(what: What, types: (Type, Option<Type>), count: usize, relu: bool) -> u32 {
    let (ty, from) = types;
    let half = matches!(ty, Type::F16 | Type::F16x2);
    let brain = matches!(ty, Type::Bf16 | Type::Bf16x2);
    if from.is_some() || ty == Type::F32x2 {
        return 100;
    }
    match what {
        What::Select(_) if count == 3 => 100,
        What::Select(selection) if selection.xorsign => 86,
        What::Select(selection) if selection.propagate || half || brain => 80,
        What::Fma if relu || brain => 80,
        What::Abs | What::Neg if brain => 80,
        _ if brain => 90,
        _ => 75,
    }
}

/// Operands from the second on, the missing ones zero.
fn sources32(d: &mut Decoder<'_>, count: usize, types: [Type; 3]) -> Result<[Src32; 3], Refused> {
    let mut sources = [Src32::Imm(0); 3];
    for i in 0..count.min(3) {
        sources[i] = d.src32(d.operand(i + 1)?, types[i])?;
    }
    Ok(sources)
}

fn sources64(d: &mut Decoder<'_>, count: usize, ty: Type) -> Result<[Src64; 3], Refused> {
    let mut sources = [Src64::Imm(0); 3];
    for (i, source) in sources.iter_mut().enumerate().take(count) {
        *source = d.src64(d.operand(i + 1)?, ty)?;
    }
    Ok(sources)
}

fn half_of(ty: Type) -> Option<(Half, bool)> {
    Some(match ty {
        Type::F16 => (Half::F16, false),
        Type::F16x2 => (Half::F16, true),
        Type::Bf16 => (Half::Bf16, false),
        Type::Bf16x2 => (Half::Bf16, true),
        _ => return None,
    })
}

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    if &*d.parts()[0] == "testp" {
        return decode_test(d);
    }
    let types: Vec<Type> = d.parts()[1..]
        .iter()
        .filter_map(|p| Type::named(p))
        .collect();
    let (what, count) = what_of(d)?;
    d.expect_count(count + 1..=count + 1)?;
    let modifiers = modifiers_of(d)?;
    let (ty, from) = match types[..] {
        [ty] => (ty, None),
        [Type::F32, from] => (Type::F32, Some(from)),
        _ => return Err("the types are not known here".into()),
    };
    let known = known(what, ty).ok_or("the type is not known here")?;
    for part in &d.parts()[1..] {
        if !known.contains(&&**part) && Type::named(part).is_none() {
            return Err(Refused(format!("`.{part}` is not known here")));
        }
    }
    if let What::Select(selection) = what {
        let three = count == 3 && ty == Type::F32 && !selection.xorsign;
        if count != 2 && !three || count == 2 && selection.magnitudes && !selection.xorsign {
            return Err("the operands do not fit the modifiers".into());
        }
    }
    if modifiers.relu && modifiers.saturate {
        return Err("`.relu` and `.sat` exclude each other".into());
    }
    let first = first_target(what, (ty, from), count, modifiers.relu);
    if d.target.sm < first {
        return Err(Refused(format!("it needs sm_{first}")));
    }
    if let Some(from) = from {
        let widened = match what {
            What::Add | What::Sub => 1,
            What::Fma => 2,
            _ => return Err("it is not known in mixed precision".into()),
        };
        let Some((half, false)) = half_of(from) else {
            return Err("the types are not known here".into());
        };
        if modifiers.ftz {
            return Err("`.ftz` is not known here".into());
        }
        let kinds = [from, if widened == 2 { from } else { ty }, ty];
        let sources = sources32(d, count, kinds)?;
        let to = d.dst32(d.operand(0)?)?;
        return Ok(Op::Mixed {
            to,
            sources,
            widened,
            from: half,
            what,
            modifiers,
        });
    }
    if let Some((of, packed)) = half_of(ty) {
        if what == What::Ex2 && of == Half::Bf16 && !modifiers.ftz {
            return Err("it needs `.ftz`".into());
        }
        let sources = sources32(d, count, [ty; 3])?;
        let to = d.dst32(d.operand(0)?)?;
        return Ok(Op::Half {
            to,
            sources,
            what,
            of,
            packed,
            modifiers,
        });
    }
    match ty {
        Type::F64 => {
            let sources = sources64(d, count, ty)?;
            let to = d.dst64(d.operand(0)?)?;
            if modifiers.ftz {
                return Ok(Op::Gross {
                    to,
                    a: sources[0],
                    what,
                });
            }
            if what == What::RcpApproximate {
                return Err("it needs `.ftz`".into());
            }
            Ok(Op::Double {
                to,
                sources,
                what,
                modifiers,
            })
        }
        Type::F32x2 => {
            let sources = sources64(d, count, ty)?;
            let to = d.dst64(d.operand(0)?)?;
            Ok(Op::Pair {
                to,
                sources,
                what,
                modifiers,
            })
        }
        _ => {
            let sources = sources32(d, count, [ty; 3])?;
            let to = d.dst32(d.operand(0)?)?;
            Ok(single_op(to, sources, what, count, modifiers))
        }
    }
}

/// An `.f32` operation in the form that runs fastest.
fn single_op(to: Word, sources: [Src32; 3], what: What, count: usize, modifiers: Modifiers) -> Op {
    let ftz = modifiers.ftz;
    let [a, b, c] = sources;
    let plain = Modifiers {
        ftz,
        ..Modifiers::default()
    } == modifiers;
    let bare = |selection: Selection| {
        let largest = selection.largest;
        selection
            == Selection {
                largest,
                ..Selection::default()
            }
    };
    match what {
        What::Add | What::Sub | What::Mul if plain => Op::Lanes {
            to,
            a,
            b,
            what,
            ftz,
        },
        What::Select(selection) if count == 2 && bare(selection) => Op::Lanes {
            to,
            a,
            b,
            what,
            ftz,
        },
        What::Ex2 if ftz => Op::Lanes {
            to,
            a,
            b,
            what,
            ftz,
        },
        What::Fma if plain => Op::LanesFma { to, a, b, c, ftz },
        // A third input that repeats one changes no minimum of two.
        What::Select(_) if count == 2 => Op::Single {
            to,
            sources: [a, b, b],
            what,
            modifiers: Modifiers::default(),
        },
        _ => Op::Single {
            to,
            sources,
            what,
            modifiers,
        },
    }
}

fn decode_test(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    d.expect_count(2..=2)?;
    let property = match d.parts().get(1).map(|p| &**p) {
        Some("finite") => Property::Finite,
        Some("infinite") => Property::Infinite,
        Some("number") => Property::Number,
        Some("notanumber") => Property::NotANumber,
        Some("normal") => Property::Normal,
        Some("subnormal") => Property::Subnormal,
        _ => return Err("the property is not known".into()),
    };
    if d.parts().len() != 3 {
        return Err("it has one property and one type".into());
    }
    let ty = d.last_type()?;
    let source = d.operand(1)?;
    let to = d.dst_predicate(d.operand(0)?)?;
    let to = to.ok_or("a predicate must stand here")?;
    match ty {
        Type::F32 => Ok(Op::TestSingle {
            to,
            a: d.src32(source, ty)?,
            property,
        }),
        Type::F64 => Ok(Op::TestDouble {
            to,
            a: d.src64(source, ty)?,
            property,
        }),
        _ => Err("the type is not known here".into()),
    }
}

/// Zeros are normal numbers (PTX ISA §9.7.3.1).
fn holds(property: Property, format: &Format, bits: u64) -> bool {
    let nan = format.is_nan(bits);
    let infinite = bits & (format.sign() - 1) == format.infinite();
    let subnormal = format.is_subnormal(bits);
    match property {
        Property::Finite => !nan && !infinite,
        Property::Infinite => infinite,
        Property::Number => !nan,
        Property::NotANumber => nan,
        Property::Normal => !nan && !infinite && !subnormal,
        Property::Subnormal => subnormal,
    }
}

fn on_single(what: What, [a, b, c]: [u32; 3], three: bool, modifiers: Modifiers) -> u32 {
    let ftz = modifiers.ftz;
    match what {
        What::Add => single::add(a, b, modifiers),
        What::Sub => single::sub(a, b, modifiers),
        What::Mul => single::mul(a, b, modifiers),
        What::Fma => single::fma(a, b, c, modifiers),
        What::Div => single::div(a, b, modifiers),
        What::DivApproximate => approximate::div(a, b, ftz),
        What::DivFull => approximate::div_full(a, b, ftz),
        What::Rcp => single::rcp(a, modifiers),
        What::RcpApproximate => approximate::rcp(a, ftz),
        What::Sqrt => single::sqrt(a, modifiers),
        What::SqrtApproximate => approximate::sqrt(a, ftz),
        What::RsqrtApproximate => approximate::rsqrt(a, ftz),
        What::Sin => approximate::sin(a, ftz),
        What::Cos => approximate::cos(a, ftz),
        What::Lg2 => approximate::lg2(a, ftz),
        What::Ex2 => approximate::ex2(a, ftz),
        What::Tanh => approximate::tanh(a),
        What::Abs => single::abs(a, ftz),
        What::Neg => single::neg(a, ftz),
        What::Copysign => single::copysign(a, b),
        What::Select(selection) => {
            let two = single::select(a, b, selection);
            if three {
                single::select(two, c, selection)
            } else {
                two
            }
        }
    }
}

/// Operations that doubles lack are refused when decoding.
fn on_double(what: What, [a, b, c]: [u64; 3], modifiers: Modifiers) -> u64 {
    let rounding = modifiers.rounding;
    match what {
        What::Add => double::add(a, b, rounding),
        What::Sub => double::sub(a, b, rounding),
        What::Mul => double::mul(a, b, rounding),
        What::Fma => double::fma(a, b, c, rounding),
        What::Div => double::div(a, b, rounding),
        What::Rcp => double::rcp(a, rounding),
        What::Sqrt => double::sqrt(a, rounding),
        What::RsqrtApproximate => double::rsqrt(a),
        What::Neg => double::neg(a),
        What::Copysign => double::copysign(a, b),
        What::Select(selection) => double::select(a, b, selection),
        _ => double::abs(a),
    }
}

/// Operations that halves lack are refused when decoding.
fn on_half(what: What, [a, b, c]: [u16; 3], of: Half, modifiers: Modifiers) -> u16 {
    let ftz = modifiers.ftz;
    match what {
        What::Add => of.add(a, b, modifiers),
        What::Sub => of.sub(a, b, modifiers),
        What::Mul => of.mul(a, b, modifiers),
        What::Fma => of.fma(a, b, c, modifiers),
        What::Ex2 => approximate::ex2_half(a, of.format(), ftz),
        What::Tanh => approximate::tanh_half(a, of.format()),
        What::Neg => of.neg(a, ftz),
        What::Select(selection) => of.select(a, b, selection),
        _ => of.abs(a, ftz),
    }
}

impl Op {
    #[inline]
    pub(super) fn execute(&self, step: &mut Step<'_>) -> Result<(), Fault> {
        match self {
            Op::Lanes {
                to,
                a,
                b,
                what,
                ftz,
            } => {
                let (a, b) = (step.word(*a), step.word(*b));
                let value = match what {
                    What::Add => lanes::add(&a, &b, *ftz),
                    What::Sub => lanes::sub(&a, &b, *ftz),
                    What::Mul => lanes::mul(&a, &b, *ftz),
                    What::Select(selection) => lanes::select(&a, &b, selection.largest),
                    _ => lanes::ex2_ftz(&a),
                };
                step.set_word(*to, &value);
            }
            Op::LanesFma { to, a, b, c, ftz } => {
                let (a, b, c) = (step.word(*a), step.word(*b), step.word(*c));
                step.set_word(*to, &lanes::fma(&a, &b, &c, *ftz));
            }
            Op::Single {
                to,
                sources,
                what,
                modifiers,
            } => {
                let [a, b, c] = sources.map(|s| step.word(s));
                let three = sources[1] != sources[2];
                let value = std::array::from_fn(|i| {
                    on_single(*what, [a[i], b[i], c[i]], three, *modifiers)
                });
                step.set_word(*to, &value);
            }
            Op::Mixed {
                to,
                sources,
                widened,
                from,
                what,
                modifiers,
            } => {
                let mut values = sources.map(|s| step.word(s));
                for value in &mut values[..*widened] {
                    *value = value.map(|bits| from.widen(bits as u16).to_bits());
                }
                let [a, b, c] = values;
                let plain = *modifiers == Modifiers::default();
                let value = match what {
                    What::Add if plain => lanes::add(&a, &b, false),
                    What::Sub if plain => lanes::sub(&a, &b, false),
                    What::Fma if plain => lanes::fma(&a, &b, &c, false),
                    _ => std::array::from_fn(|i| {
                        on_single(*what, [a[i], b[i], c[i]], false, *modifiers)
                    }),
                };
                step.set_word(*to, &value);
            }
            Op::Pair {
                to,
                sources,
                what,
                modifiers,
            } => {
                let [a, b, c] = sources.map(|s| step.double(s));
                let value: [u64; LANES] = std::array::from_fn(|i| {
                    let half = |shift: u32| {
                        let inputs = [a[i], b[i], c[i]].map(|x| (x >> shift) as u32);
                        u64::from(on_single(*what, inputs, false, *modifiers)) << shift
                    };
                    half(0) | half(32)
                });
                step.set_double(*to, &value);
            }
            Op::Double {
                to,
                sources,
                what,
                modifiers,
            } => {
                let [a, b, c] = sources.map(|s| step.double(s));
                let value =
                    std::array::from_fn(|i| on_double(*what, [a[i], b[i], c[i]], *modifiers));
                step.set_double(*to, &value);
            }
            Op::Gross { to, a, what } => {
                let of = match what {
                    What::RcpApproximate => approximate::rcp_double,
                    _ => approximate::rsqrt_double,
                };
                let value = step.double(*a).map(of);
                step.set_double(*to, &value);
            }
            Op::Half {
                to,
                sources,
                what,
                of,
                packed,
                modifiers,
            } => {
                let [a, b, c] = sources.map(|s| step.word(s));
                let value: [u32; LANES] = std::array::from_fn(|i| {
                    let one = |shift: u32| {
                        let inputs = [a[i], b[i], c[i]].map(|x| (x >> shift) as u16);
                        u32::from(on_half(*what, inputs, *of, *modifiers)) << shift
                    };
                    if *packed { one(0) | one(16) } else { one(0) }
                });
                step.set_word(*to, &value);
            }
            Op::TestSingle { to, a, property } => {
                let a = step.word(*a);
                let value = (0..LANES).fold(0, |m, i| {
                    m | u32::from(holds(*property, &F32, a[i].into())) << i
                });
                step.set_predicate(*to, value);
            }
            Op::TestDouble { to, a, property } => {
                let a = step.double(*a);
                let value =
                    (0..LANES).fold(0, |m, i| m | u32::from(holds(*property, &F64, a[i])) << i);
                step.set_predicate(*to, value);
            }
        }
        Ok(())
    }
}
