//! Atomic operations (PTX ISA §9.7.13.5 `atom`, §9.7.13.6 `red`) on global and shared memory.
//!
//! Lanes of a warp take their turns in ascending order, which is one of the orders that the ISA allows. `atom` and `red` differ in their
//! result only. 128-bit forms and `red.async` (§9.7.13.7) are refused.
//!
//! Invariant: an operation is one [`Step::update`] an element, so no other access comes between its read and its write. Elements of the
//! vector forms are atomic each by itself, as the ISA has it.

use super::{
    memory::{Access, Order, space_and_order},
    operands::{Addr, Decoder, Dst, Refused, Src, Type},
};
use crate::{
    fault::Fault,
    machine::{LANES, Step, lanes_of},
    memory::space_at,
    numeric::{Modifiers, Selection, double, half::Half, single},
    ptx::{Operand, Space},
};

/// What an operation makes of what lies in memory (the ISA's `.op`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Add,
    Min,
    Max,
    /// Counts up to the operand, then wraps to 0.
    Inc,
    /// Counts down to 0, then wraps to the operand.
    Dec,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
}

impl Kind {
    fn named(part: &str) -> Option<Kind> {
        Some(match part {
            "add" => Kind::Add,
            "min" => Kind::Min,
            "max" => Kind::Max,
            "inc" => Kind::Inc,
            "dec" => Kind::Dec,
            "and" => Kind::And,
            "or" => Kind::Or,
            "xor" => Kind::Xor,
            "exch" => Kind::Exchange,
            "cas" => Kind::CompareAndSwap,
            _ => return None,
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Op {
    kind: Kind,
    ty: Type,
    space: Space,
    access: Access,
    address: Addr,
    /// The old values; empty for `red`.
    to: Vec<Dst>,
    /// An element each.
    with: Vec<Src>,
    /// What `cas` stores; `with` is what it compares.
    swap: Option<Src>,
}

/// Whether the operation has that type (§9.7.13.5, "Description"), in a vector form or alone.
fn has(kind: Kind, ty: Type, vector: bool) -> bool {
    use Type::{B16, B32, B64, Bf16, Bf16x2, F16, F16x2, F32, F64, S32, S64, U32, U64};
    if vector {
        return match kind {
            Kind::Add => matches!(ty, F32 | F16 | F16x2 | Bf16 | Bf16x2),
            Kind::Min | Kind::Max => matches!(ty, F16 | F16x2 | Bf16 | Bf16x2),
            _ => false,
        };
    }
    match kind {
        Kind::Add => matches!(
            ty,
            U32 | S32 | U64 | F32 | F64 | F16 | F16x2 | Bf16 | Bf16x2
        ),
        Kind::Min | Kind::Max => matches!(ty, U32 | S32 | U64 | S64),
        Kind::Inc | Kind::Dec => ty == U32,
        Kind::And | Kind::Or | Kind::Xor | Kind::Exchange => matches!(ty, B32 | B64),
        Kind::CompareAndSwap => matches!(ty, B16 | B32 | B64),
    }
}

/// Bits that operands of the type's registers have: halves lie in words.
fn fits_src(src: Src, ty: Type) -> bool {
    matches!(
        (src, ty.bits()),
        (Src::Small(_), ..=32) | (Src::Large(_), 64)
    )
}

fn fits_dst(dst: Dst, ty: Type) -> bool {
    match dst {
        Dst::Sink => true,
        Dst::Word(_) => ty.bits() <= 32,
        Dst::Double(_) => ty.bits() == 64,
        Dst::Quad(_) => false,
    }
}

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    let returns = &*d.parts()[0] == "atom";
    if d.has("async") {
        return Err("asynchronous reductions are not known".into());
    }
    // The type may stand before the operation: `atom.global.v4.f32.add`.
    let types: Vec<Type> = d.parts()[1..]
        .iter()
        .filter_map(|p| Type::named(p))
        .collect();
    let [ty] = types[..] else {
        return Err("it names one type".into());
    };
    if ty == Type::B128 {
        return Err("128-bit forms are not known".into());
    }
    let kinds: Vec<Kind> = d.parts()[1..]
        .iter()
        .filter_map(|p| Kind::named(p))
        .collect();
    let [kind] = kinds[..] else {
        return Err("it names one operation".into());
    };
    if !returns && matches!(kind, Kind::Exchange | Kind::CompareAndSwap) {
        return Err("`red` has no such operation".into());
    }
    let more = [
        "add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas", "noftz", "v2", "v4",
        "v8",
    ];
    let (mut space, access) = space_and_order(d, &more)?;
    let strange = ["volatile", "mmio", "weak", "nc", "unified"];
    if access.non_coherent || strange.iter().any(|m| d.has(m)) {
        return Err("a modifier is of loads and stores only".into());
    }
    if !returns && matches!(access.order, Order::Acquire | Order::AcquireRelease) {
        return Err("a reduction reads nothing, so it acquires nothing".into());
    }
    let width = match () {
        () if d.has("v8") => 8,
        () if d.has("v4") => 4,
        () if d.has("v2") => 2,
        () => 1,
    };
    if !has(kind, ty, width > 1) {
        return Err("the operation has no such type".into());
    }
    let packed = matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2);
    if packed != d.has("noftz") {
        return Err("`.noftz` stands with the 16-bit float types, and only there".into());
    }
    if ty.bits() * width > 128 {
        return Err("a vector has at most 16 bytes".into());
    }
    let hint = usize::from(d.has("L2::cache_hint"));
    let cas = usize::from(kind == Kind::CompareAndSwap);
    let first = usize::from(returns);
    let count = first + 2 + cas + hint;
    d.expect_count(count..=count)?;
    if hint == 1 {
        d.src(d.operand(count - 1)?, Type::B64)?;
    }
    let (address, named) = d.address(d.operand(first)?)?;
    if let (Space::Generic, Some(named)) = (space, named) {
        space = named;
    }
    if !matches!(
        space,
        Space::Generic | Space::Global | Space::Shared | Space::SharedCluster
    ) {
        return Err("atomic operations work on global and shared memory only".into());
    }
    if width > 1 && !matches!(space, Space::Global | Space::Generic) {
        return Err("vector forms work on global memory only".into());
    }
    let vector = |operand: &Operand| -> Result<Vec<Operand>, Refused> {
        match operand {
            Operand::Vector(elements) if width > 1 && elements.len() == width as usize => {
                Ok(elements.clone())
            }
            Operand::Vector(_) => Err(Refused(format!("a vector of {width} must stand here"))),
            Operand::Sink if width > 1 => Ok(vec![Operand::Sink; width as usize]),
            one if width == 1 => Ok(vec![one.clone()]),
            _ => Err(Refused(format!("a vector of {width} must stand here"))),
        }
    };
    let with = vector(d.operand(first + 1)?)?
        .iter()
        .map(|e| d.src(e, ty))
        .collect::<Result<Vec<_>, _>>()?;
    let swap = match cas {
        1 => Some(d.src(d.operand(first + 2)?, ty)?),
        _ => None,
    };
    let to = match returns {
        true => vector(d.operand(0)?)?
            .iter()
            .map(|e| d.dst(e))
            .collect::<Result<Vec<_>, _>>()?,
        false => Vec::new(),
    };
    let sources = with.iter().chain(&swap);
    if sources.into_iter().any(|s| !fits_src(*s, ty)) || to.iter().any(|t| !fits_dst(*t, ty)) {
        return Err("registers must be as wide as the type".into());
    }
    Ok(Op {
        kind,
        ty,
        space,
        access,
        address,
        to,
        with,
        swap,
    })
}

fn half(kind: Kind, format: Half, old: u16, with: u16) -> u16 {
    match kind {
        Kind::Add => format.add(old, with, Modifiers::default()),
        _ => {
            let selection = Selection {
                largest: kind == Kind::Max,
                ..Selection::default()
            };
            format.select(old, with, selection)
        }
    }
}

/// What stands in memory afterwards. Float sums differ in global memory: §9.7.13.5 has `add.f32` flush subnormals there, and keep them in
/// shared memory.
fn change(kind: Kind, ty: Type, old: u64, with: u64, swap: u64, global: bool) -> u64 {
    let halves = |format: Half| {
        let of = |shift: u32| {
            let value = half(kind, format, (old >> shift) as u16, (with >> shift) as u16);
            u64::from(value) << shift
        };
        match ty.bits() {
            16 => of(0),
            _ => of(0) | of(16),
        }
    };
    match (kind, ty) {
        (_, Type::F16 | Type::F16x2) => halves(Half::F16),
        (_, Type::Bf16 | Type::Bf16x2) => halves(Half::Bf16),
        (_, Type::F32) => {
            let modifiers = Modifiers {
                ftz: global,
                ..Modifiers::default()
            };
            single::add(old as u32, with as u32, modifiers).into()
        }
        (_, Type::F64) if global => double::add_in_global(old, with),
        (_, Type::F64) => double::add(old, with, Default::default()),
        (Kind::Add, _) => old.wrapping_add(with),
        (Kind::Min, Type::S32) => u64::from((old as i32).min(with as i32) as u32),
        (Kind::Max, Type::S32) => u64::from((old as i32).max(with as i32) as u32),
        (Kind::Min, Type::S64) => (old as i64).min(with as i64) as u64,
        (Kind::Max, Type::S64) => (old as i64).max(with as i64) as u64,
        (Kind::Min, _) => old.min(with),
        (Kind::Max, _) => old.max(with),
        (Kind::Inc, _) if old >= with => 0,
        (Kind::Inc, _) => old + 1,
        (Kind::Dec, _) if old == 0 || old > with => with,
        (Kind::Dec, _) => old - 1,
        (Kind::And, _) => old & with,
        (Kind::Or, _) => old | with,
        (Kind::Xor, _) => old ^ with,
        (Kind::Exchange, _) => with,
        (Kind::CompareAndSwap, _) if old == with => swap,
        (Kind::CompareAndSwap, _) => old,
    }
}

impl Op {
    pub(super) fn execute(&self, step: &mut Step<'_>) -> Result<(), Fault> {
        let Op {
            kind,
            ty,
            space,
            access,
            ..
        } = *self;
        let bytes = ty.bits() / 8;
        let mask = u64::MAX >> (64 - ty.bits());
        let addresses = step.addresses(self.address);
        let with: Vec<[u64; LANES]> = self.with.iter().map(|s| step.any(*s)).collect();
        let swap = self.swap.map_or([0; LANES], |s| step.any(s));
        let mut old = vec![[0; LANES]; with.len()];
        for lane in lanes_of(step.lanes) {
            let address = addresses[lane];
            if with.len() > 1 {
                let whole = u64::from(bytes) * with.len() as u64;
                step.resolve(space, address, whole, whole, lane)?;
            }
            let global = match space {
                Space::Generic => space_at(address) == Space::Global,
                _ => space == Space::Global,
            };
            for (i, with) in with.iter().enumerate() {
                let at = address + u64::from(bytes) * i as u64;
                let (with, swap) = (with[lane] & mask, swap[lane] & mask);
                old[i][lane] = step.update(space, at, bytes, lane, access, |old| {
                    change(kind, ty, old, with, swap, global)
                })?;
            }
        }
        for (to, old) in self.to.iter().zip(&old) {
            step.set_any(*to, old);
        }
        Ok(())
    }
}
