//! The facts that a body of the role level needs for bulk copies, where its author states none.
//!
//! What a `put` moves by bulk copies or by wide ones begins at multiples of 16 bytes in all rows, and what is stored in wide pieces ends so too.
//! A body that says nothing of that has one beside it that is compiled under these facts; a launch takes it where they hold.

use std::collections::BTreeSet;

use tesserine_set::{Fact, Formula, FormulaOp, ParamKind};

use crate::{
    ir::{
        OpId, RegionId, ValueId,
        tile::{Index, Kernel, OpKind, PutSource, RoleOp},
    },
    target::{Feature, Target},
};

/// Bytes of an alignment that bulk copies need.
const ALIGNED: u32 = 16;

/// What would let the slices that the kernel's roles put be bulk copies, if nothing is stated of how any of their views is aligned.
pub(super) fn facts(kernel: &Kernel, target: Target) -> Vec<Fact> {
    if !target.has(Feature::Bulk) {
        return Vec::new();
    }
    let body = &kernel.body;
    let mut roles = Vec::new();
    for op in body.ops.values() {
        if let OpKind::Role(RoleOp::Roles(_)) = op.kind {
            op.regions
                .iter()
                .for_each(|&r| inside(kernel, r, &mut roles));
        }
    }
    let (mut put, mut stored) = (BTreeSet::new(), BTreeSet::new());
    for id in roles {
        let op = &body.ops[id];
        match &op.kind {
            OpKind::Role(RoleOp::Put { sources, .. }) => {
                let mut at = 0;
                for source in sources {
                    if let PutSource::Slice { indices, .. } = source {
                        put.extend(param(kernel, op.operands[at]));
                        at += indices.iter().map(|i: &Index| i.operands()).sum::<usize>();
                    }
                    at += 1;
                }
            }
            OpKind::Store { indices, .. }
                if indices.last().is_some_and(|i| i.extent().is_some()) =>
            {
                stored.extend(param(kernel, op.operands[0]));
            }
            _ => {}
        }
    }
    let header = &kernel.header;
    let stated = |param: &u32| {
        let facts = header.requires.iter().chain(&header.facts);
        let mut of_view =
            facts.filter(|f| matches!(f, Fact::Aligned { param: of, .. } if of == param));
        match &header.signature.params[*param as usize].kind {
            ParamKind::View(view) => view.facts.align.is_some() || of_view.next().is_some(),
            ParamKind::Scalar { .. } => true,
        }
    };
    if put.is_empty() || put.iter().any(stated) {
        return Vec::new();
    }
    let all: BTreeSet<u32> = put.union(&stored).copied().collect();
    let missing = all.into_iter().filter(|p| !stated(p));
    let mut facts: Vec<Fact> = missing
        .map(|param| Fact::Aligned {
            param,
            bytes: ALIGNED,
        })
        .collect();
    for param in stored {
        let ParamKind::View(view) = &header.signature.params[param as usize].kind else {
            continue;
        };
        let Some(extent) = view.extents.last().filter(|e| e.as_int().is_none()) else {
            continue;
        };
        let per = Formula::int(i64::from(ALIGNED * 8 / view.dtype.bits()));
        let rest = Formula::binary(FormulaOp::Rem, extent.clone(), per);
        let fact = Fact::Holds(Formula::binary(FormulaOp::Eq, rest, Formula::int(0)));
        if !header.requires.contains(&fact) && !facts.contains(&fact) {
            facts.push(fact);
        }
    }
    facts
}

/// All operations in a region, those of inner ones too.
fn inside(kernel: &Kernel, region: RegionId, found: &mut Vec<OpId>) {
    for &id in &kernel.body.regions[region].ops {
        found.push(id);
        for &inner in &kernel.body.ops[id].regions {
            inside(kernel, inner, found);
        }
    }
}

/// The parameter that a view is, unless it is seen with other elements.
fn param(kernel: &Kernel, view: ValueId) -> Option<u32> {
    match kernel.body.ops[kernel.body.defining_op(view)?].kind {
        OpKind::Param(index) => Some(index),
        _ => None,
    }
}
