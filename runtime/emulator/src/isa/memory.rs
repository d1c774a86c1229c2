//! Loads and stores (PTX ISA §9.7.9.8 `ld`, §9.7.9.9 `ld.global.nc`, §9.7.9.11 `ldu`, §9.7.9.12 `st`), and hints that move nothing
//! (§9.7.9.15 `prefetch`, §9.7.9.16 `applypriority`, §9.7.9.17 `discard`, §9.7.9.18 `createpolicy`).
//!
//! Compilers widen accesses beyond what they use. Vectors that are stored may hold elements that nothing defined, and of vectors that are
//! loaded only some may have been written (or be used, by `used_bytes_mask`): such elements are undefined, which is no fault until they are used.
//!
//! Cache operators, eviction priorities and prefetch sizes change no value and are accepted where the syntax has them.

use super::operands::{Addr, Decoder, Dst, Refused, Src, Type};
use crate::{
    fault::{Fault, FaultKind},
    machine::{LANES, Step, lanes_of},
    ptx::{Operand, Space},
};

pub(crate) use crate::memory::{Access, Order};

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Load {
        space: Space,
        ty: Type,
        to: Vec<Dst>,
        from: Addr,
        access: Access,
        /// Of the bytes of the access, those that the program uses (PTX ISA §11.8.4); others are neither read nor checked.
        used: u32,
    },
    Store {
        space: Space,
        ty: Type,
        to: Addr,
        from: Vec<Src>,
        access: Access,
    },
    /// A cache policy: any 64 bits do.
    Policy(Dst),
    /// A hint, whose address need not be mapped.
    Nothing,
}

/// The space and order that modifiers name; refuses those that are not known.
pub(crate) fn space_and_order(d: &Decoder<'_>, more: &[&str]) -> Result<(Space, Access), Refused> {
    let (mut space, mut access) = (Space::Generic, Access::default());
    for part in &d.parts()[1..] {
        match &**part {
            "global" => space = Space::Global,
            "shared" | "shared::cta" => space = Space::Shared,
            "shared::cluster" => space = Space::SharedCluster,
            "local" => space = Space::Local,
            "param" | "param::entry" | "param::func" => space = Space::Parameter,
            "const" => space = Space::Constant,
            "relaxed" | "volatile" | "mmio" => access.order = Order::Relaxed,
            "acquire" => access.order = Order::Acquire,
            "release" => access.order = Order::Release,
            "acq_rel" => access.order = Order::AcquireRelease,
            "nc" => access.non_coherent = true,
            "cta" => access.near = true,
            "weak" | "cluster" | "gpu" | "sys" | "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt"
            | "unified" => {}
            hint if hint.starts_with("L1::") || hint.starts_with("L2::") => {}
            other if more.contains(&other) || Type::named(other).is_some() => {}
            other => return Err(Refused(format!("`.{other}` is not known here"))),
        }
    }
    Ok((space, access))
}

/// Elements of a vector form.
fn width(d: &Decoder<'_>) -> usize {
    match () {
        () if d.has("v8") => 8,
        () if d.has("v4") => 4,
        () if d.has("v2") => 2,
        () => 1,
    }
}

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    let first = &*d.parts()[0];
    match first {
        "ld" | "ldu" | "st" => {}
        "createpolicy" => {
            let to = d.operand(0)?;
            return Ok(Op::Policy(d.dst(to)?));
        }
        // `discard` makes the bytes undefined; keeping them is one of the outcomes.
        _ => {
            d.address(d.operand(0)?)?;
            return Ok(Op::Nothing);
        }
    }
    let ty = d.last_type()?;
    if ty == Type::Pred {
        return Err("predicates are not loaded or stored".into());
    }
    let (mut space, access) = space_and_order(d, &["v2", "v4", "v8"])?;
    let hint = usize::from(
        d.instruction
            .opcode
            .iter()
            .any(|p| &**p == "L2::cache_hint"),
    );
    d.expect_count(2 + hint..=2 + hint)?;
    if hint == 1 {
        d.src(d.operand(2)?, Type::B64)?;
    }
    let (place, value) = if first == "st" { (0, 1) } else { (1, 0) };
    let (addr, named) = d.address(d.operand(place)?)?;
    // `[variable]` in the generic form means the variable's own space, whose addresses are offsets here.
    if let (Space::Generic, Some(named)) = (space, named) {
        space = named;
    }
    let elements = match d.operand(value)? {
        Operand::Vector(elements) => &elements[..],
        other => std::slice::from_ref(other),
    };
    if elements.len() != width(d) {
        return Err(Refused(format!("a vector of {} must stand here", width(d))));
    }
    if ty.bits() as usize * elements.len() > 256 {
        return Err("an access has at most 32 bytes".into());
    }
    if first == "st" {
        let from = elements
            .iter()
            .map(|e| {
                if elements.len() == 1 {
                    d.src(e, ty)
                } else {
                    d.src_part(e, ty)
                }
            })
            .collect::<Result<_, _>>()?;
        return Ok(Op::Store {
            space,
            ty,
            to: addr,
            from,
            access,
        });
    }
    let to = elements
        .iter()
        .map(|e| d.dst(e))
        .collect::<Result<_, _>>()?;
    Ok(Op::Load {
        space,
        ty,
        to,
        from: addr,
        access,
        used: d.instruction.used_bytes,
    })
}

/// Bytes of a loaded element as a register's bits: signed types are sign-extended, others zero-extended.
fn extend(bytes: &[u8], signed: bool) -> u64 {
    let mut raw = [0; 8];
    raw[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    let value = u64::from_le_bytes(raw);
    if !signed || bytes.len() >= 8 {
        return value;
    }
    let shift = 64 - 8 * bytes.len() as u32;
    ((value << shift) as i64 >> shift) as u64
}

impl Op {
    /// Loads a vector by its elements, for one that was widened: elements that are not used, or that nothing wrote, are left undefined, as
    /// long as there is one that is.
    fn load_elements(
        &self,
        step: &mut Step<'_>,
        address: u64,
        into: &mut [u8],
        lane: usize,
        undefined: &mut [u32; 8],
    ) -> Result<(), Fault> {
        let Op::Load {
            space,
            ty,
            access,
            used,
            ..
        } = self
        else {
            return Ok(());
        };
        let size = ty.bits() as usize / 8;
        let bytes = into.len() as u64;
        let region = step.resolve(*space, address, bytes, bytes, lane)?;
        let (mut any, mut unwritten) = (false, None);
        for (i, element) in into.chunks_exact_mut(size).enumerate() {
            let mask = u64::from(*used) >> (i * size) & ((1 << size) - 1);
            let loaded = match mask {
                0 => Ok(false),
                _ => {
                    let part = region.after((i * size) as u64);
                    step.load_part(part, element, lane, *access).map(|()| true)
                }
            };
            match loaded {
                Ok(true) => any = true,
                Ok(false) => undefined[i] |= 1 << lane,
                Err(fault) if fault.kind == FaultKind::UninitializedMemory => {
                    undefined[i] |= 1 << lane;
                    unwritten = Some(fault);
                }
                Err(fault) => return Err(fault),
            }
        }
        match unwritten {
            Some(fault) if !any => Err(fault),
            _ => Ok(()),
        }
    }

    #[inline]
    pub(super) fn execute(&self, step: &mut Step<'_>) -> Result<(), Fault> {
        match self {
            Op::Load {
                space,
                ty,
                to,
                from,
                access,
                used,
            } => {
                let addresses = step.addresses(*from);
                let size = ty.bits() as usize / 8;
                let total = size * to.len();
                let mut values = [[0u64; LANES]; 8];
                let mut high = [[0u64; LANES]; 2];
                let mut undefined = [0u32; 8];
                let mut buffer = [0u8; 32];
                for lane in lanes_of(step.lanes) {
                    let into = &mut buffer[..total];
                    let done = match used {
                        &u32::MAX => step.load(*space, addresses[lane], into, lane, *access),
                        _ => self.load_elements(step, addresses[lane], into, lane, &mut undefined),
                    };
                    match done {
                        Ok(()) => {}
                        Err(fault)
                            if to.len() > 1 && fault.kind == FaultKind::UninitializedMemory =>
                        {
                            self.load_elements(step, addresses[lane], into, lane, &mut undefined)?;
                        }
                        Err(fault) => return Err(fault),
                    }
                    for (i, element) in into.chunks_exact(size).enumerate() {
                        values[i][lane] = extend(element, ty.is_signed());
                        if size == 16 {
                            high[i][lane] = extend(&element[8..], false);
                        }
                    }
                }
                for (i, to) in to.iter().enumerate() {
                    step.set_any(*to, &values[i]);
                    if let (Dst::Quad(low), 16) = (to, size) {
                        step.set_double(super::operands::Double(low.0 + 1), &high[i]);
                    }
                    if undefined[i] != 0 {
                        step.undefine(*to, undefined[i]);
                    }
                }
                Ok(())
            }
            Op::Store {
                space,
                ty,
                to,
                from,
                access,
            } => {
                let addresses = step.addresses(*to);
                let size = ty.bits() as usize / 8;
                let total = size * from.len();
                let mut values = [[0u64; LANES]; 8];
                let mut high = [[0u64; LANES]; 2];
                let mut defined = [0u32; 8];
                let (mut all, mut none) = (step.lanes, step.lanes);
                for (i, from) in from.iter().enumerate() {
                    values[i] = step.any(*from);
                    defined[i] = step.defined(*from)?;
                    all &= defined[i];
                    none &= !defined[i];
                    if let (Src::Quad(low), 16) = (from, size) {
                        high[i] = step.double(super::operands::Src64::Reg(
                            super::operands::Double(low.0 + 1),
                        ));
                    }
                }
                if none != 0 {
                    let message = "registers are stored, and nothing wrote them";
                    return Err(step.fault(FaultKind::UninitializedRegister, message, none));
                }
                let mut buffer = [0u8; 32];
                for lane in lanes_of(step.lanes) {
                    for (i, element) in buffer[..total].chunks_exact_mut(size).enumerate() {
                        let low = values[i][lane].to_le_bytes();
                        let first = size.min(8);
                        element[..first].copy_from_slice(&low[..first]);
                        if size == 16 {
                            element[8..].copy_from_slice(&high[i][lane].to_le_bytes());
                        }
                    }
                    if all >> lane & 1 != 0 {
                        step.store(*space, addresses[lane], &buffer[..total], lane, *access)?;
                        continue;
                    }
                    // What nothing defined leaves memory as it is: as undefined as before.
                    let (bytes, at) = (total as u64, addresses[lane]);
                    let region = step.resolve(*space, at, bytes, bytes, lane)?;
                    for (i, element) in buffer[..total].chunks_exact(size).enumerate() {
                        if defined[i] >> lane & 1 != 0 {
                            let part = region.after((i * size) as u64);
                            step.store_part(part, element, lane, *access)?;
                        }
                    }
                }
                Ok(())
            }
            Op::Policy(to) => {
                step.set_any(*to, &[0; LANES]);
                Ok(())
            }
            Op::Nothing => Ok(()),
        }
    }
}
