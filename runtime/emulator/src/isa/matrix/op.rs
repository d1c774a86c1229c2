//! Instructions on matrices: decoded, and executed on a warp.

use super::{
    element::{Accumulator, Element},
    group,
    mma::{BitProduct, Mma},
    rows,
};
use crate::{
    check::Access,
    fault::{Fault, FaultKind},
    isa::{
        Together,
        operands::{Addr, Decoder, Double, Refused, Src32, Src64, Type, Word},
    },
    machine::{LANES, Step},
    memory::Region,
    ptx::{Operand, Space},
};

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// `ldmatrix` (PTX ISA §9.7.14.5.15).
    Load {
        to: Box<[Word]>,
        space: Space,
        from: Addr,
        transposed: bool,
    },
    /// `stmatrix` (§9.7.14.5.16).
    Store {
        space: Space,
        to: Addr,
        from: Box<[Src32]>,
        transposed: bool,
    },
    /// `movmatrix` (§9.7.14.5.17).
    Transpose { to: Word, from: Src32 },
    /// `mma` (§9.7.14.5.14) of elements up to 32 bits.
    Multiply(Box<Multiply<Word, Src32>>),
    /// `mma` of `.f64`.
    MultiplyDoubles(Box<Multiply<Double, Src64>>),
    /// `wgmma` (§9.7.15).
    Group(group::Op),
}

/// An `mma` with its registers.
#[derive(Clone, Debug)]
pub(crate) struct Multiply<D, S> {
    mma: Mma,
    d: Box<[D]>,
    a: Box<[S]>,
    b: Box<[S]>,
    c: Box<[S]>,
}

/// The most registers of A, and of C or D.
const FOUR: usize = 4;
/// The most registers of A and B of `.f64`.
const EIGHT: usize = 8;

pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<(Op, Together), Refused> {
    let op = match &*d.parts()[0] {
        "ldmatrix" => decode_load(d)?,
        "stmatrix" => decode_store(d)?,
        "movmatrix" => {
            needs(d, 75)?;
            if d.parts()[1..]
                .iter()
                .map(|p| &**p)
                .ne(["sync", "aligned", "m8n8", "trans", "b16"])
            {
                return Err("".into());
            }
            d.expect_count(2..=2)?;
            let from = d.src32(d.operand(1)?, Type::B32)?;
            let to = d.dst32(d.operand(0)?)?;
            Op::Transpose { to, from }
        }
        "mma" => decode_multiply(d)?,
        "wgmma" => Op::Group(group::decode(d)?),
        _ => return Err("".into()),
    };
    Ok((op, Together::Warp))
}

/// Refuses an instruction that the target does not have.
pub(super) fn needs(d: &Decoder<'_>, sm: u32) -> Result<(), Refused> {
    if d.target.sm < sm {
        return Err(Refused(format!("it needs sm_{sm} or later")));
    }
    Ok(())
}

/// The matrices that `.x1`, `.x2` or `.x4` asks for, of 8x8 elements of 16 bits.
fn matrices(d: &Decoder<'_>) -> Result<usize, Refused> {
    let known = [
        "sync",
        "aligned",
        "m8n8",
        "x1",
        "x2",
        "x4",
        "trans",
        "shared",
        "shared::cta",
        "b16",
    ];
    d.only(&known)?;
    let count = [(1, "x1"), (2, "x2"), (4, "x4")]
        .into_iter()
        .find(|(_, name)| d.has(name))
        .map(|(count, _)| count);
    match count {
        Some(count) if d.has("m8n8") && d.has("b16") => Ok(count),
        _ => Err("it lacks `.m8n8`, a count or `.b16`".into()),
    }
}

fn space(d: &Decoder<'_>) -> Space {
    if d.has("shared") || d.has("shared::cta") {
        Space::Shared
    } else {
        Space::Generic
    }
}

/// The elements of an operand that is a vector of `count`.
pub(super) fn fragment<'a>(
    d: &Decoder<'a>,
    index: usize,
    count: usize,
) -> Result<&'a [Operand], Refused> {
    let Operand::Vector(elements) = d.operand(index)? else {
        return Err("registers in braces must stand here".into());
    };
    if elements.len() != count {
        let has = elements.len();
        let which = index + 1;
        return Err(Refused(format!(
            "operand {which} has {has} registers, and {count} are needed"
        )));
    }
    Ok(elements)
}

fn sources(d: &mut Decoder<'_>, index: usize, count: usize) -> Result<Box<[Src32]>, Refused> {
    let elements = fragment(d, index, count)?;
    elements.iter().map(|e| d.src32(e, Type::B32)).collect()
}

fn targets(d: &mut Decoder<'_>, index: usize, count: usize) -> Result<Box<[Word]>, Refused> {
    let elements = fragment(d, index, count)?;
    elements.iter().map(|e| d.dst32(e)).collect()
}

fn decode_load(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    needs(d, 75)?;
    let count = matrices(d)?;
    d.expect_count(2..=2)?;
    let (from, _) = d.address(d.operand(1)?)?;
    Ok(Op::Load {
        to: targets(d, 0, count)?,
        space: space(d),
        from,
        transposed: d.has("trans"),
    })
}

fn decode_store(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    needs(d, 90)?;
    let count = matrices(d)?;
    d.expect_count(2..=2)?;
    let (to, _) = d.address(d.operand(0)?)?;
    Ok(Op::Store {
        space: space(d),
        to,
        from: sources(d, 1, count)?,
        transposed: d.has("trans"),
    })
}

/// Rows, columns and depth of `m16n8k16`.
pub(super) fn shape(part: &str) -> Option<[usize; 3]> {
    let (m, rest) = part.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    Some([m.parse().ok()?, n.parse().ok()?, k.parse().ok()?])
}

fn decode_multiply(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    let mut parts = d.parts()[1..].iter().map(|p| &**p).peekable();
    let mut take = |expected: &str| match parts.next_if_eq(&expected) {
        Some(_) => Ok(()),
        None => Err(Refused(format!("`.{expected}` must stand there"))),
    };
    take("sync")?;
    take("aligned")?;
    let [m, n, k] = parts.next().and_then(shape).ok_or("it lacks a shape")?;
    for layout in ["row", "col"] {
        if parts.next_if_eq(&layout).is_none() {
            return Err(Refused(format!("`.{layout}` must stand there")));
        }
    }
    let saturate = parts.next_if_eq(&"satfinite").is_some();
    let mixed = parts.next_if_eq(&"kind::f8f6f4").is_some();
    let types: Vec<&str> = parts.by_ref().take(4).collect();
    let rest: Vec<&str> = parts.collect();
    let bits = match rest[..] {
        [] | ["xor", "popc"] => BitProduct::Xor,
        ["and", "popc"] => BitProduct::And,
        _ => return Err(Refused(format!("`.{}` is not known here", rest.join(".")))),
    };
    let [of_d, of_a, of_b, of_c] = types[..] else {
        return Err("it lacks types".into());
    };
    let unknown = |name: &str| Refused(format!("`.{name}` is not known here"));
    let mma = Mma {
        m,
        k,
        a: Element::named(of_a).ok_or_else(|| unknown(of_a))?,
        b: Element::named(of_b).ok_or_else(|| unknown(of_b))?,
        c: Accumulator::named(of_c).ok_or_else(|| unknown(of_c))?,
        d: Accumulator::named(of_d).ok_or_else(|| unknown(of_d))?,
        saturate,
        bits,
    };
    let eight_bits = matches!(mma.a, Element::E4m3 | Element::E5m2);
    let target = match mma.first_target() {
        _ if n != 8 || rest.is_empty() == (mma.a == Element::B1) => None,
        // Those of `.kind::f8f6f4` have 32 elements of k, and come with `sm_120a`.
        Some(_) if mixed && !(eight_bits && k == 32) => None,
        Some(_) if mixed => Some(120),
        target => target,
    };
    needs(
        d,
        target.ok_or("the shape, the types and the modifiers do not fit")?,
    )?;
    d.expect_count(4..=4)?;
    let (of_c, of_d) = (
        mma.accumulator_registers(mma.c),
        mma.accumulator_registers(mma.d),
    );
    if mma.a == Element::F64 {
        let mut doubles = |index, count| -> Result<Box<[Src64]>, Refused> {
            let elements = fragment(d, index, count)?;
            elements.iter().map(|e| d.src64(e, Type::F64)).collect()
        };
        let a = doubles(1, mma.a_registers())?;
        let b = doubles(2, mma.b_registers())?;
        let c = doubles(3, of_c)?;
        let elements = fragment(d, 0, of_d)?;
        let to: Result<Box<[Double]>, Refused> = elements.iter().map(|e| d.dst64(e)).collect();
        let d = to?;
        return Ok(Op::MultiplyDoubles(Box::new(Multiply { mma, d, a, b, c })));
    }
    let a = sources(d, 1, mma.a_registers())?;
    let b = sources(d, 2, mma.b_registers())?;
    let c = sources(d, 3, of_c)?;
    let d = targets(d, 0, of_d)?;
    Ok(Op::Multiply(Box::new(Multiply { mma, d, a, b, c })))
}

/// Refuses an instruction of which a thread of the warp does not take part.
pub(super) fn whole_warp(step: &Step<'_>) -> Result<(), Fault> {
    if step.lanes == u32::MAX {
        return Ok(());
    }
    let message = format!(
        "only {} threads of the warp take part, and all 32 must",
        step.lanes.count_ones()
    );
    Err(step.fault(FaultKind::Participation, message, step.lanes))
}

/// A row of a matrix in shared memory, by the address of a lane.
fn row(step: &Step<'_>, space: Space, address: u64, lane: usize) -> Result<Region, Fault> {
    let bytes = rows::ROW as u64;
    let region = step.resolve(space, address, bytes, bytes, lane)?;
    if let Region::Shared { .. } = region {
        return Ok(region);
    }
    let message = format!("{address:#x} must be an address of shared memory");
    Err(step.fault(FaultKind::Operand, message, 1 << lane))
}

impl Op {
    pub(crate) fn execute(&self, step: &mut Step<'_>) -> Result<(), Fault> {
        whole_warp(step)?;
        match self {
            Op::Load {
                to,
                space,
                from,
                transposed,
            } => {
                let addresses = step.addresses(*from);
                let mut fragments = [[0; LANES]; FOUR];
                for (matrix, fragment) in fragments[..to.len()].iter_mut().enumerate() {
                    let mut bytes = [[0; rows::ROW]; 8];
                    for (r, into) in bytes.iter_mut().enumerate() {
                        let lane = rows::lane_of_row(matrix, r);
                        let region = row(step, *space, addresses[lane], lane)?;
                        step.load_region(region, into, lane, Access::Read)?;
                    }
                    *fragment = rows::load(&bytes, *transposed);
                }
                for (to, fragment) in to.iter().zip(&fragments) {
                    step.set_word(*to, fragment);
                }
            }
            Op::Store {
                space,
                to,
                from,
                transposed,
            } => {
                let addresses = step.addresses(*to);
                for (matrix, from) in from.iter().enumerate() {
                    let bytes = rows::store(&step.word(*from), *transposed);
                    for (r, bytes) in bytes.iter().enumerate() {
                        let lane = rows::lane_of_row(matrix, r);
                        let region = row(step, *space, addresses[lane], lane)?;
                        step.store_region(region, bytes, lane, Access::Write)?;
                    }
                }
            }
            Op::Transpose { to, from } => {
                let turned = rows::transpose(&step.word(*from));
                step.set_word(*to, &turned);
            }
            Op::Multiply(op) => {
                let (mut a, mut b) = ([[0; LANES]; FOUR], [[0; LANES]; FOUR]);
                let (mut c, mut d) = ([[0; LANES]; FOUR], [[0; LANES]; FOUR]);
                let gather = |into: &mut [[u32; LANES]; FOUR], from: &[Src32]| {
                    for (into, from) in into.iter_mut().zip(from) {
                        *into = step.word(*from);
                    }
                };
                gather(&mut a, &op.a);
                gather(&mut b, &op.b);
                gather(&mut c, &op.c);
                let (a, b, c) = (&a[..op.a.len()], &b[..op.b.len()], &c[..op.c.len()]);
                let d = &mut d[..op.d.len()];
                op.mma.run(a, b, c, d);
                for (to, values) in op.d.iter().zip(&*d) {
                    step.set_word(*to, values);
                }
            }
            Op::MultiplyDoubles(op) => {
                let (mut a, mut b) = ([[0; LANES]; EIGHT], [[0; LANES]; EIGHT]);
                let (mut c, mut d) = ([[0; LANES]; EIGHT], [[0; LANES]; EIGHT]);
                let gather = |into: &mut [[u64; LANES]; EIGHT], from: &[Src64]| {
                    for (into, from) in into.iter_mut().zip(from) {
                        *into = step.double(*from);
                    }
                };
                gather(&mut a, &op.a);
                gather(&mut b, &op.b);
                gather(&mut c, &op.c);
                let (a, b, c) = (&a[..op.a.len()], &b[..op.b.len()], &c[..op.c.len()]);
                let d = &mut d[..op.d.len()];
                op.mma.run_doubles(a, b, c, d);
                for (to, values) in op.d.iter().zip(&*d) {
                    step.set_double(*to, values);
                }
            }
            Op::Group(op) => op.execute(step)?,
        }
        Ok(())
    }
}
