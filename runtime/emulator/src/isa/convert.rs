//! `cvt` (PTX ISA §9.7.9.21) and `cvt.pack` (§9.7.9.22).
//!
//! Stochastic rounding (`.rs`), scaled packed forms and `.s2f6x2` are refused: the document leaves their bits open, or they need a version
//! of PTX that no toolchain here writes.

use super::operands::{Decoder, Dst, Refused, Src, Src32, Type, Word};
use crate::{
    fault::Fault,
    machine::{LANES, Step},
    numeric::{
        Modifiers, Rounding, convert,
        format::{BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, F32, F64, Format, TF32},
        lanes, single,
    },
};

/// A type of a conversion: one number of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer {
        bits: u32,
        signed: bool,
    },
    Float(&'static Format),
    /// In the upper bits of 32.
    Tf32,
    /// A power of two.
    Ue8m0,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Low bits of one register, and their sign or zeroes above, without `.sat`.
    Extend {
        to: Dst,
        from: Src,
        bits: u32,
        signed: bool,
    },
    /// Of one number.
    One {
        to: Dst,
        from: Src,
        how: How,
    },
    /// Of one number, by the host, which rounds and clamps alike.
    Native {
        to: Dst,
        from: Src,
        what: Native,
    },
    WidenF16 {
        to: Word,
        from: Src32,
    },
    /// One `.f32` to the nearest `.f16` or `.bf16`, or two to a pair, the first above.
    Narrow {
        to: Word,
        high: Option<Src32>,
        low: Src32,
        brain: bool,
    },
    /// Two numbers of one register to two of one.
    Two {
        to: Dst,
        from: Src,
        from_bits: u32,
        to_bits: u32,
        how: How,
    },
    /// Two registers to two numbers of one, the first above.
    Join {
        to: Dst,
        high: Src32,
        low: Src32,
        to_bits: u32,
        how: How,
    },
    /// Clamped integers, above them the low bits of `rest`.
    Pack {
        to: Word,
        high: Src32,
        low: Src32,
        rest: Src32,
        bits: u32,
        how: How,
    },
}

/// The conversions that programs are full of, as the host does them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Native {
    /// `cvt.rn.f32.s32`
    SignedToSingle,
    /// `cvt.rn.f32.u32`
    UnsignedToSingle,
    /// `cvt.rzi.s32.f32`
    SingleToSigned,
    /// `cvt.rzi.u32.f32`
    SingleToUnsigned,
    /// `cvt.rni.f32.f32`
    Nearest,
    /// `cvt.rzi.f32.f32`
    Truncated,
    /// `cvt.rmi.f32.f32`
    Floor,
    /// `cvt.rpi.f32.f32`
    Ceiling,
}

impl Native {
    fn of(how: How) -> Option<Native> {
        let rounding = how.modifiers.rounding;
        let bare = Modifiers {
            rounding,
            ..Modifiers::default()
        };
        if how.modifiers != bare || how.finite {
            return None;
        }
        let nearest = rounding == Rounding::NearestEven;
        let zero = rounding == Rounding::Zero;
        Some(match (how.from, how.to) {
            (Kind::Integer { bits: 32, signed }, Kind::Float(&F32)) if nearest => match signed {
                true => Native::SignedToSingle,
                false => Native::UnsignedToSingle,
            },
            (Kind::Float(&F32), Kind::Integer { bits: 32, signed }) if zero => match signed {
                true => Native::SingleToSigned,
                false => Native::SingleToUnsigned,
            },
            (Kind::Float(&F32), Kind::Float(&F32)) if how.whole => match rounding {
                Rounding::NearestEven => Native::Nearest,
                Rounding::Zero => Native::Truncated,
                Rounding::Down => Native::Floor,
                Rounding::Up => Native::Ceiling,
                Rounding::NearestAway => return None,
            },
            _ => return None,
        })
    }

    fn apply(self, values: &[u64; LANES]) -> [u64; LANES] {
        fn float(values: &[u64; LANES], of: impl Fn(u32) -> f32) -> [u64; LANES] {
            values.map(|v| single::canonical(of(v as u32)).into())
        }
        let bits = f32::from_bits;
        match self {
            Native::SignedToSingle => float(values, |v| v as i32 as f32),
            Native::UnsignedToSingle => float(values, |v| v as f32),
            Native::SingleToSigned => values.map(|v| u64::from(bits(v as u32) as i32 as u32)),
            Native::SingleToUnsigned => values.map(|v| u64::from(bits(v as u32) as u32)),
            Native::Nearest => float(values, |v| bits(v).round_ties_even()),
            Native::Truncated => float(values, |v| bits(v).trunc()),
            Native::Floor => float(values, |v| bits(v).floor()),
            Native::Ceiling => float(values, |v| bits(v).ceil()),
        }
    }
}

/// How one number becomes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct How {
    from: Kind,
    to: Kind,
    modifiers: Modifiers,
    /// `.satfinite`; every format without infinities has it.
    finite: bool,
    /// `.rni`, `.rzi`, `.rmi`, `.rpi`
    whole: bool,
}

const INTEGERS: [(&str, u32, bool); 8] = [
    ("u8", 8, false),
    ("u16", 16, false),
    ("u32", 32, false),
    ("u64", 64, false),
    ("s8", 8, true),
    ("s16", 16, true),
    ("s32", 32, true),
    ("s64", 64, true),
];

/// A type's numbers, how many a register holds, and the bits of each.
fn kind_of(part: &str) -> Option<(Kind, u32, u32)> {
    if let Some((_, bits, signed)) = INTEGERS.into_iter().find(|(name, ..)| *name == part) {
        return Some((Kind::Integer { bits, signed }, 1, bits));
    }
    let float = |format: &'static Format, count, bits| Some((Kind::Float(format), count, bits));
    match part {
        "f16" => float(&F16, 1, 16),
        "bf16" => float(&BF16, 1, 16),
        "f32" => float(&F32, 1, 32),
        "f64" => float(&F64, 1, 64),
        "tf32" => Some((Kind::Tf32, 1, 32)),
        "f16x2" => float(&F16, 2, 16),
        "bf16x2" => float(&BF16, 2, 16),
        "e4m3x2" => float(&E4M3, 2, 8),
        "e5m2x2" => float(&E5M2, 2, 8),
        "e2m3x2" => float(&E2M3, 2, 8),
        "e3m2x2" => float(&E3M2, 2, 8),
        "e2m1x2" => float(&E2M1, 2, 4),
        "ue8m0x2" => Some((Kind::Ue8m0, 2, 8)),
        _ => None,
    }
}

/// The type of a register that holds so many numbers of so many bits.
fn register_type(count: u32, bits: u32) -> Type {
    match count * bits {
        8 => Type::B8,
        16 => Type::B16,
        32 => Type::B32,
        _ => Type::B64,
    }
}

fn constant_type(part: &str, count: u32, bits: u32) -> Type {
    Type::named(part).unwrap_or(register_type(count, bits))
}

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    let parts = d.parts();
    if d.has("pack") {
        return decode_pack(d);
    }
    let [_, modifiers @ .., to, from] = parts else {
        return Err("it needs two types".into());
    };
    let unknown = |part: &str| Refused(format!("`.{part}` is not known here"));
    let (to_kind, to_count, to_bits) = kind_of(to).ok_or_else(|| unknown(to))?;
    let (from_kind, from_count, from_bits) = kind_of(from).ok_or_else(|| unknown(from))?;
    let mut how = How {
        from: from_kind,
        to: to_kind,
        modifiers: Modifiers::default(),
        finite: false,
        whole: false,
    };
    let mut rounding = None;
    for part in modifiers {
        let (mode, whole) = match &**part {
            "rn" => (Rounding::NearestEven, false),
            "rz" => (Rounding::Zero, false),
            "rm" => (Rounding::Down, false),
            "rp" => (Rounding::Up, false),
            "rna" => (Rounding::NearestAway, false),
            "rni" => (Rounding::NearestEven, true),
            "rzi" => (Rounding::Zero, true),
            "rmi" => (Rounding::Down, true),
            "rpi" => (Rounding::Up, true),
            "ftz" if !how.modifiers.ftz => {
                how.modifiers.ftz = true;
                continue;
            }
            "sat" if !how.modifiers.saturate => {
                how.modifiers.saturate = true;
                continue;
            }
            "relu" if !how.modifiers.relu => {
                how.modifiers.relu = true;
                continue;
            }
            "satfinite" if !how.finite => {
                how.finite = true;
                continue;
            }
            other => return Err(unknown(other)),
        };
        if rounding.replace(mode).is_some() {
            return Err("it has two roundings".into());
        }
        how.modifiers.rounding = mode;
        how.whole = whole;
    }
    check(how, (to_count, from_count), rounding)?;
    let first = first_target(how, to_count);
    if d.target.sm < first {
        return Err(Refused(format!("it needs sm_{first}")));
    }
    let single = d.count() == 2;
    d.expect_count(2..=3)?;
    let wide = constant_type(from, from_count, from_bits);
    if to_count == 2 && from_count == 1 {
        if single || from_kind != Kind::Float(&F32) {
            return Err("a pair is made of two `.f32`".into());
        }
        let high = d.src32(d.operand(1)?, Type::F32)?;
        let low = d.src32(d.operand(2)?, Type::F32)?;
        let to = d.dst(d.operand(0)?)?;
        return Ok(match (to, nearest_half(how)) {
            (Dst::Word(to), Some(brain)) => Op::Narrow {
                to,
                high: Some(high),
                low,
                brain,
            },
            _ => Op::Join {
                to,
                high,
                low,
                to_bits,
                how,
            },
        });
    }
    if !single || to_count != from_count {
        return Err("the operands do not fit the types".into());
    }
    let source = d.operand(1)?;
    let from = d.src(source, wide)?;
    let to = d.dst(d.operand(0)?)?;
    if let Some(what) = Native::of(how) {
        return Ok(Op::Native { to, from, what });
    }
    if to_count == 2 {
        return Ok(Op::Two {
            to,
            from,
            from_bits,
            to_bits,
            how,
        });
    }
    Ok(match (how.from, how.to, to, from) {
        (
            Kind::Integer { bits, signed },
            Kind::Integer {
                bits: wanted,
                signed: as_signed,
            },
            ..,
        ) if !how.modifiers.saturate => {
            // A narrower result is cut out, and extended by its own type; a wider one by the source's, and, where that has a sign
            // and the result has none, cut out again.
            if wanted <= bits {
                Op::Extend {
                    to,
                    from,
                    bits: wanted,
                    signed: as_signed,
                }
            } else if signed && !as_signed && wanted < 64 {
                Op::One { to, from, how }
            } else {
                Op::Extend {
                    to,
                    from,
                    bits,
                    signed,
                }
            }
        }
        (Kind::Float(&F16), Kind::Float(&F32), Dst::Word(to), Src::Small(from)) if plain(how) => {
            Op::WidenF16 { to, from }
        }
        (Kind::Float(&F32), Kind::Float(_), Dst::Word(to), Src::Small(low)) => {
            match nearest_half(how) {
                Some(brain) => Op::Narrow {
                    to,
                    high: None,
                    low,
                    brain,
                },
                None => Op::One {
                    to: Dst::Word(to),
                    from: Src::Small(low),
                    how,
                },
            }
        }
        _ => Op::One { to, from, how },
    })
}

fn plain(how: How) -> bool {
    how.modifiers == Modifiers::default() && !how.finite && !how.whole
}

/// Whether it is the plain conversion of an `.f32` to the nearest `.f16` (false) or `.bf16` (true).
fn nearest_half(how: How) -> Option<bool> {
    if !plain(how) || how.from != Kind::Float(&F32) {
        return None;
    }
    match how.to {
        Kind::Float(&F16) => Some(false),
        Kind::Float(&BF16) => Some(true),
        _ => None,
    }
}

/// The rules on roundings and modifiers of PTX ISA §9.7.9.21.
fn check(how: How, counts: (u32, u32), rounding: Option<Rounding>) -> Result<(), Refused> {
    let Modifiers {
        ftz,
        saturate,
        relu,
        ..
    } = how.modifiers;
    let digits = |kind| match kind {
        Kind::Float(format) => Some(format.mantissa),
        Kind::Tf32 => Some(TF32.mantissa),
        Kind::Integer { .. } | Kind::Ue8m0 => None,
    };
    let refuse = |reason: &str| Err(Refused(reason.to_owned()));
    let narrow = |kind| matches!(kind, Kind::Float(f) if !f.infinity || *f == E5M2);
    let nearest_only = rounding == Some(Rounding::NearestEven) && !how.whole;
    let single = how.from == Kind::Float(&F32) || how.to == Kind::Float(&F32);
    if ftz && !single {
        return refuse("`.ftz` is for `.f32`");
    }
    let brain = how.from == Kind::Float(&BF16) || how.to == Kind::Float(&BF16);
    if brain && saturate {
        return refuse("`.sat` is not for `.bf16`");
    }
    let byte = |kind| matches!(kind, Kind::Integer { bits: 8, .. });
    if brain && (byte(how.from) || byte(how.to)) {
        return refuse("`.bf16` and integers of 8 bits do not convert");
    }
    if rounding == Some(Rounding::NearestAway) && how.to != Kind::Tf32 {
        return refuse("`.rna` is for `.tf32`");
    }
    match (how.from, how.to) {
        (
            Kind::Integer { bits, signed },
            Kind::Integer {
                bits: wanted,
                signed: as_signed,
            },
        ) => {
            if rounding.is_some() || ftz || relu || how.finite {
                return refuse("integers take only `.sat`");
            }
            let holds = match (signed, as_signed) {
                (true, false) => false,
                (false, true) => wanted > bits,
                _ => wanted >= bits,
            };
            if saturate && holds {
                return refuse("nothing is there for `.sat` to clamp");
            }
        }
        (Kind::Integer { .. }, Kind::Float(_)) if !narrow(how.to) => {
            if rounding.is_none() || how.whole || relu || how.finite {
                return refuse("an integer becomes a float by `.rn`, `.rz`, `.rm` or `.rp`");
            }
        }
        (Kind::Float(_), Kind::Integer { .. }) if !narrow(how.from) => {
            if !how.whole || relu || how.finite {
                return refuse("a float becomes an integer by `.rni`, `.rzi`, `.rmi` or `.rpi`");
            }
        }
        (Kind::Float(&F32), Kind::Tf32) => {
            let away = rounding == Some(Rounding::NearestAway) && !relu;
            let other = matches!(rounding, Some(Rounding::NearestEven | Rounding::Zero));
            if how.whole || ftz || saturate || !(away || other) {
                return refuse("`.tf32` is made by `.rna`, `.rn` or `.rz`");
            }
        }
        (Kind::Float(from), Kind::Ue8m0) => {
            let mode = matches!(rounding, Some(Rounding::Zero | Rounding::Up)) && !how.whole;
            let source = *from == F32 || (*from == BF16 && counts == (2, 2));
            if !mode || !source || relu || saturate || ftz {
                return refuse("`.ue8m0x2` is made of `.f32` or `.bf16x2` by `.rz` or `.rp`");
            }
        }
        (Kind::Ue8m0, Kind::Float(&BF16)) => {
            if !nearest_only || relu || saturate || how.finite {
                return refuse("`.ue8m0x2` becomes `.bf16x2` by `.rn`");
            }
        }
        (Kind::Float(from), Kind::Float(to)) if narrow(how.to) => {
            let source = (*from == F32 && counts == (2, 1)) || (*from == F16 && counts == (2, 2));
            let six_bits = *to == E2M3 || *to == E3M2;
            if !source
                || (six_bits && *from == F16)
                || !nearest_only
                || !how.finite
                || saturate
                || ftz
            {
                return refuse("a narrow pair is made by `.rn.satfinite`");
            }
        }
        (Kind::Float(_), Kind::Float(to)) if narrow(how.from) => {
            if *to != F16 || counts != (2, 2) || !nearest_only || saturate || how.finite {
                return refuse("a narrow pair becomes `.f16x2` by `.rn`");
            }
        }
        (Kind::Float(from), Kind::Float(to)) => {
            if counts == (2, 2) || counts.1 == 2 {
                return refuse("pairs of these types do not convert");
            }
            let half = *to == F16 || *to == BF16;
            if (relu || how.finite) && (*from != F32 || !half) {
                return refuse("`.relu` and `.satfinite` need `.f32` to `.f16` or `.bf16`");
            }
            let halves = (*from == F16 && *to == BF16) || (*from == BF16 && *to == F16);
            let loses = digits(how.from) > digits(how.to) || halves;
            let nearer = matches!(rounding, Some(Rounding::NearestEven | Rounding::Zero));
            if counts.0 == 2 && (!nearer || ftz || saturate) {
                return refuse("a pair is made by `.rn` or `.rz`");
            }
            match rounding {
                None if loses => return refuse("a narrowing conversion needs a rounding"),
                Some(_) if how.whole && from != to => {
                    return refuse("whole numbers are made within a type");
                }
                // Of `.bf16` a rounding may stand there, which changes nothing.
                Some(_) if !how.whole && !loses && (*from != BF16 || from == to) => {
                    return refuse("a conversion that loses nothing takes no rounding");
                }
                _ => {}
            }
        }
        _ => return refuse("the types do not convert"),
    }
    Ok(())
}

/// The first target that has a conversion (PTX ISA §9.7.9.21, Target ISA Notes).
fn first_target(how: How, to_count: u32) -> u32 {
    let eight = |kind| matches!(kind, Kind::Float(&E4M3 | &E5M2));
    let fewer = |kind| kind == Kind::Ue8m0 || matches!(kind, Kind::Float(&E2M1 | &E2M3 | &E3M2));
    let brain = Kind::Float(&BF16);
    let single = Kind::Float(&F32);
    if fewer(how.from) || fewer(how.to) {
        return 100;
    }
    if eight(how.from) || eight(how.to) {
        return 89;
    }
    if how.to == Kind::Tf32 {
        return match (how.modifiers.rounding, how.finite) {
            (Rounding::NearestAway, _) => 80,
            (_, true) => 100,
            (_, false) => 90,
        };
    }
    if how.from == brain || how.to == brain {
        let plain = how.to == single && !how.modifiers.ftz;
        return if plain || how.from == single { 80 } else { 90 };
    }
    if to_count == 2 || how.modifiers.relu || how.finite {
        80
    } else {
        75
    }
}

fn decode_pack(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    let names: Vec<&str> = d.parts()[1..].iter().map(|p| &**p).collect();
    let (to, from, with) = match names[..] {
        ["pack", "sat", to, from] => (to, from, false),
        ["pack", "sat", to, from, "b32"] => (to, from, true),
        _ => return Err("it is `cvt.pack.sat`, with two types".into()),
    };
    let (bits, signed) = match (to, with) {
        ("u16", false) => (16, false),
        ("s16", false) => (16, true),
        ("u8", true) => (8, false),
        ("s8", true) => (8, true),
        ("u4", true) => (4, false),
        ("s4", true) => (4, true),
        ("u2", true) => (2, false),
        ("s2", true) => (2, true),
        _ => return Err("the type is not known here".into()),
    };
    if from != "s32" {
        return Err("it packs `.s32`".into());
    }
    d.expect_count(3 + usize::from(with)..=3 + usize::from(with))?;
    let high = d.src32(d.operand(1)?, Type::S32)?;
    let low = d.src32(d.operand(2)?, Type::S32)?;
    let rest = if with {
        d.src32(d.operand(3)?, Type::B32)?
    } else {
        Src32::Imm(0)
    };
    let to = d.dst32(d.operand(0)?)?;
    let how = How {
        from: Kind::Integer {
            bits: 32,
            signed: true,
        },
        to: Kind::Integer { bits, signed },
        modifiers: Modifiers {
            saturate: true,
            ..Modifiers::default()
        },
        finite: false,
        whole: false,
    };
    Ok(Op::Pack {
        to,
        high,
        low,
        rest,
        bits,
        how,
    })
}

/// The low bits of a register as the integer they are.
fn integer(value: u64, bits: u32, signed: bool) -> i128 {
    let shift = 64 - bits;
    if signed {
        i128::from((value << shift) as i64 >> shift)
    } else {
        i128::from(value << shift >> shift)
    }
}

impl How {
    /// The result's bits; of integers extended to 64.
    fn apply(&self, value: u64) -> u64 {
        let modifiers = self.modifiers;
        match (self.from, self.to) {
            (
                Kind::Integer { bits, signed },
                Kind::Integer {
                    bits: wanted,
                    signed: as_signed,
                },
            ) => {
                let number = integer(value, bits, signed);
                if !modifiers.saturate {
                    return integer(number as u64, wanted, as_signed) as u64;
                }
                let (least, most) = if as_signed {
                    (-(1i128 << (wanted - 1)), (1i128 << (wanted - 1)) - 1)
                } else {
                    (0, (1i128 << wanted) - 1)
                };
                number.clamp(least, most) as u64
            }
            (Kind::Integer { bits, signed }, Kind::Float(format)) => {
                convert::from_integer(integer(value, bits, signed), format, modifiers)
            }
            (Kind::Float(format), Kind::Integer { bits, signed }) => {
                let Modifiers { rounding, ftz, .. } = modifiers;
                let number = convert::integer(value, format, bits, signed, rounding, ftz);
                integer(number, bits, signed) as u64
            }
            (Kind::Float(from), Kind::Tf32) => {
                let bits = convert::float(value, from, &TF32, modifiers, self.finite);
                if TF32.is_nan(bits) {
                    return 0x7fff_ffff;
                }
                bits << (F32.mantissa - TF32.mantissa)
            }
            (Kind::Float(from), Kind::Ue8m0) => {
                let up = modifiers.rounding == Rounding::Up;
                convert::to_ue8m0(value, from, up, self.finite).into()
            }
            (Kind::Ue8m0, Kind::Float(to)) => {
                let power = convert::from_ue8m0(value as u8).to_bits();
                convert::float(power.into(), &F32, to, modifiers, false)
            }
            (Kind::Float(from), Kind::Float(to)) if self.whole && from == to => {
                convert::whole(value, from, modifiers)
            }
            // Upper bits, which keep a NaN's payload too.
            (Kind::Float(&BF16), Kind::Float(&F32)) if plain(*self) => value << 16,
            (Kind::Float(from), Kind::Float(to)) => {
                convert::float(value, from, to, modifiers, self.finite)
            }
            // Refused when decoding.
            (Kind::Tf32 | Kind::Ue8m0, _) | (Kind::Integer { .. }, Kind::Tf32 | Kind::Ue8m0) => {
                value
            }
        }
    }
}

impl Op {
    #[inline]
    pub(super) fn execute(&self, step: &mut Step<'_>) -> Result<(), Fault> {
        match self {
            Op::Extend {
                to,
                from,
                bits,
                signed,
            } => {
                let shift = 64 - bits;
                let value = step.any(*from);
                let value = if *signed {
                    value.map(|v| ((v << shift) as i64 >> shift) as u64)
                } else {
                    value.map(|v| v << shift >> shift)
                };
                step.set_any(*to, &value);
            }
            Op::One { to, from, how } => {
                let value = step.any(*from).map(|v| how.apply(v));
                step.set_any(*to, &value);
            }
            Op::Native { to, from, what } => {
                let value = what.apply(&step.any(*from));
                step.set_any(*to, &value);
            }
            Op::WidenF16 { to, from } => {
                let value = lanes::widen_f16(&step.word(*from));
                step.set_word(*to, &value);
            }
            Op::Narrow {
                to,
                high,
                low,
                brain,
            } => {
                let low = step.word(*low);
                let value = match (high.map(|h| step.word(h)), brain) {
                    (None, false) => lanes::narrow_f16(&low),
                    (None, true) => lanes::narrow_bf16(&low),
                    (Some(high), false) => lanes::pack_f16(&high, &low),
                    (Some(high), true) => lanes::pack_bf16(&high, &low),
                };
                step.set_word(*to, &value);
            }
            Op::Two {
                to,
                from,
                from_bits,
                to_bits,
                how,
            } => {
                let mask = (1u64 << from_bits) - 1;
                let value = step.any(*from).map(|v| {
                    let (low, high) = (v & mask, v >> from_bits & mask);
                    how.apply(low) | how.apply(high) << to_bits
                });
                step.set_any(*to, &value);
            }
            Op::Join {
                to,
                high,
                low,
                to_bits,
                how,
            } => {
                let (high, low) = (step.word(*high), step.word(*low));
                let value: [u64; LANES] = std::array::from_fn(|i| {
                    how.apply(low[i].into()) | how.apply(high[i].into()) << to_bits
                });
                step.set_any(*to, &value);
            }
            Op::Pack {
                to,
                high,
                low,
                rest,
                bits,
                how,
            } => {
                let (high, low, rest) = (step.word(*high), step.word(*low), step.word(*rest));
                let mask = (1u64 << bits) - 1;
                let value = std::array::from_fn(|i| {
                    let one = |v: u32| how.apply(v.into()) & mask;
                    let packed = one(low[i]) | one(high[i]) << bits;
                    (packed | u64::from(rest[i]) << (2 * bits)) as u32
                });
                step.set_word(*to, &value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_conversions_are_the_exact_ones() {
        let word = |signed| Kind::Integer { bits: 32, signed };
        let single = Kind::Float(&F32);
        let modes = [
            Rounding::NearestEven,
            Rounding::Zero,
            Rounding::Down,
            Rounding::Up,
        ];
        let mut checked = 0;
        for (from, to) in [
            (word(true), single),
            (word(false), single),
            (single, word(true)),
            (single, word(false)),
            (single, single),
        ] {
            for rounding in modes {
                let how = How {
                    from,
                    to,
                    modifiers: Modifiers {
                        rounding,
                        ..Modifiers::default()
                    },
                    finite: false,
                    whole: from == single,
                };
                let Some(native) = Native::of(how) else {
                    continue;
                };
                checked += 1;
                for step in (0..=0x1ffffu64).step_by(3) {
                    let bits = step << 15 | (step & 0x7fff);
                    let ours = native.apply(&[bits; LANES])[7] as u32;
                    assert_eq!(ours, how.apply(bits) as u32, "{native:?} {bits:#x}");
                }
            }
        }
        assert_eq!(checked, 8);
    }
}
