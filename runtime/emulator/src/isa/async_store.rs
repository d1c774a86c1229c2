//! Stores and reductions in shared memory of the cluster that complete bytes on an mbarrier (`st.async`, PTX ISA §9.7.9.13; `red.async`,
//! §9.7.13.7). Done when issued, as bulk copies are, by operations of the generic proxy.

use super::{
    bulk::{Reduction, combine},
    operands::{Addr, Decoder, Refused, Src, Type},
};
use crate::{
    check::Proxy,
    fault::{Fault, FaultKind},
    machine::{Step, lanes_of},
    ptx::Space,
};

#[derive(Clone, Debug)]
pub(crate) struct Op {
    to: Addr,
    mbarrier: Addr,
    /// Elements that follow each other.
    from: Vec<Src>,
    ty: Type,
    reduction: Option<Reduction>,
}

/// Whether `red.async` has the operation on that type.
fn reduces(op: Reduction, ty: Type) -> bool {
    use Type::*;
    match op {
        Reduction::Inc | Reduction::Dec => ty == U32,
        Reduction::Min | Reduction::Max => matches!(ty, U32 | S32),
        Reduction::Add => matches!(ty, U32 | S32 | U64),
        Reduction::And | Reduction::Or | Reduction::Xor => ty == B32,
    }
}

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    if d.target.sm < 90 {
        return Err("it needs sm_90 or later".into());
    }
    let reduces_memory = &*d.parts()[0] == "red";
    let ty = d.last_type()?;
    let (mut count, mut reduction, mut completes, mut cluster) = (1, None, false, false);
    let parts = &d.parts()[1..];
    for part in &parts[..parts.len() - 1] {
        match &**part {
            "async" => {}
            "weak" if !reduces_memory => {}
            "relaxed" | "cluster" if reduces_memory => {}
            "shared::cluster" => cluster = true,
            "mbarrier::complete_tx::bytes" => completes = true,
            "v2" if !reduces_memory => count = 2,
            "v4" if !reduces_memory => count = 4,
            name => match Reduction::named(name).filter(|_| reduces_memory) {
                Some(op) if reduces(op, ty) => reduction = Some(op),
                _ => return Err(Refused(format!("`.{name}` is not known here"))),
            },
        }
    }
    if !completes || !cluster || reduces_memory != reduction.is_some() {
        return Err("".into());
    }
    if !reduces_memory && (!matches!(ty.bits(), 32 | 64) || ty.bits() * count > 128) {
        return Err("it stores elements of 32 or 64 bits, up to 16 bytes".into());
    }
    d.expect_count(3..=3)?;
    let to = d.address(d.operand(0)?)?.0;
    let elements = d.elements(d.operand(1)?);
    if elements.len() != count as usize {
        return Err(Refused(format!("a vector of {count} must stand here")));
    }
    let from = elements
        .iter()
        .map(|e| d.src(e, ty))
        .collect::<Result<_, _>>()?;
    let mbarrier = d.address(d.operand(2)?)?.0;
    Ok(Op {
        to,
        mbarrier,
        from,
        ty,
        reduction,
    })
}

impl Op {
    pub(super) fn execute(&self, step: &mut Step<'_>) -> Result<(), Fault> {
        let (targets, mbarriers) = (step.addresses(self.to), step.addresses(self.mbarrier));
        let values: Vec<_> = self.from.iter().map(|s| step.any(*s)).collect();
        let size = self.ty.bits() / 8;
        let bytes = size * values.len() as u32;
        for lane in lanes_of(step.lanes) {
            let space = Space::SharedCluster;
            let width = u64::from(bytes);
            let spot = step.shared_spot(space, targets[lane], bytes, width, lane)?;
            let its = step.mbarrier_spot(space, mbarriers[lane], lane)?;
            if its.0 != spot.0 {
                let message = "the mbarrier lies in another block than the bytes it waits for";
                return Err(step.fault(FaultKind::Operand, message, 1 << lane));
            }
            let region = crate::memory::Region::Shared {
                rank: spot.0,
                offset: spot.1,
            };
            let agent = step.agent_start(lane, Proxy::Generic);
            match self.reduction {
                Some(op) => {
                    let (ty, value) = (self.ty, values[0][lane]);
                    let change = |old| combine(op, ty, old, value);
                    step.agent_update(agent, region, size, lane, change)?;
                }
                None => {
                    let mut buffer = [0; 16];
                    for (i, value) in values.iter().enumerate() {
                        let place = &mut buffer[i * size as usize..][..size as usize];
                        place.copy_from_slice(&value[lane].to_le_bytes()[..size as usize]);
                    }
                    step.agent_store(agent, region, &buffer[..bytes as usize], lane)?;
                }
            }
            step.complete_bytes(agent, &[spot.0], its.1, bytes, lane)?;
        }
        Ok(())
    }
}
