//! The blocks of a cluster, together: operation by operation where they exchange values, their roles at once, one block after
//! another in between.
//!
//! Control around an exchange is the same in all blocks of a cluster; the checker refuses kernels in which it may differ,
//! and what slips through is a fault here.

use std::rc::Rc;

use cranelift_entity::{EntitySet, SecondaryMap};

use super::{
    Fault, elementwise,
    floats::{round_to, wrap},
    tile::{Machine, Stop},
    value::{Data, Value},
};
use crate::{
    ir::{
        OpId, RegionId, ValueId,
        tile::{BinaryOp, ClusterOp, OpKind, RoleOp, TileBody},
    },
    span::Span,
};

/// One block of a cluster while another runs.
pub(super) struct Resident {
    pub number: u32,
    pub indices: Vec<i64>,
    pub values: SecondaryMap<ValueId, Value>,
}

/// The operations that are exchanges, or have some in their regions.
pub(super) fn exchanges(body: &TileBody) -> EntitySet<OpId> {
    fn walk(body: &TileBody, region: RegionId, found: &mut EntitySet<OpId>) -> bool {
        let mut any = false;
        for &id in &body.regions[region].ops {
            let op = &body.ops[id];
            let mut inside = matches!(
                op.kind,
                OpKind::ClusterReduce { .. } | OpKind::Role(RoleOp::Roles(_))
            );
            for &nested in &op.regions {
                inside |= walk(body, nested, found);
            }
            if inside {
                found.insert(id);
            }
            any |= inside;
        }
        any
    }
    let mut found = EntitySet::new();
    walk(body, body.root, &mut found);
    found
}

impl Machine<'_> {
    /// Runs the blocks of one cluster: their numbers, and their indices. After a fault the machine is in the block at
    /// fault.
    pub fn cluster(&mut self, blocks: &[(u32, Vec<i64>)]) -> Result<(), Stop> {
        if let [(number, indices)] = blocks {
            return self.block(*number, indices);
        }
        let root = self.body.root;
        self.residents = blocks
            .iter()
            .map(|(number, indices)| Resident {
                number: *number,
                indices: indices.clone(),
                values: SecondaryMap::new(),
            })
            .collect();
        let result = self.together(root);
        self.residents.clear();
        result
    }

    /// Runs `f` as block `i` of the cluster.
    fn as_block<T>(&mut self, i: usize, f: impl FnOnce(&mut Self) -> T) -> T {
        self.swap(i);
        let result = f(self);
        self.swap(i);
        result
    }

    pub fn swap(&mut self, i: usize) {
        let resident = &mut self.residents[i];
        std::mem::swap(&mut resident.number, &mut self.block);
        std::mem::swap(&mut resident.indices, &mut self.indices);
        std::mem::swap(&mut resident.values, &mut self.values);
    }

    /// Runs `f` as each block, in order of rank. The machine stays in a block that fails.
    fn each(&mut self, mut f: impl FnMut(&mut Self) -> Result<(), Stop>) -> Result<(), Stop> {
        for i in 0..self.residents.len() {
            self.swap(i);
            f(self)?;
            self.swap(i);
        }
        Ok(())
    }

    /// What all blocks agree on.
    fn agreed<T: PartialEq>(&mut self, span: Span, f: impl Fn(&Self) -> T) -> Result<T, Stop> {
        let first = self.as_block(0, |this| f(this));
        for i in 1..self.residents.len() {
            if self.as_block(i, |this| f(this)) != first {
                self.swap(i);
                return Err((Fault::Apart, span));
            }
        }
        Ok(first)
    }

    fn together(&mut self, region: RegionId) -> Result<(), Stop> {
        let body = self.body;
        let mut rest = &body.regions[region].ops[..];
        while !rest.is_empty() {
            let alone = rest.iter().take_while(|op| !self.exchanges.contains(**op));
            let (run, more) = rest.split_at(alone.count());
            self.each(|this| this.run(run))?;
            let Some((&op, more)) = more.split_first() else {
                break;
            };
            self.exchange(op)?;
            rest = more;
        }
        Ok(())
    }

    fn exchange(&mut self, id: OpId) -> Result<(), Stop> {
        let body = self.body;
        let op = &body.ops[id];
        let span = op.span;
        self.take(op).map_err(|fault| (fault, span))?;
        let operands = &op.operands;
        match &op.kind {
            OpKind::ClusterReduce { op: how, axis } => {
                let elem = body.ty(op.results[0]).elem();
                let mut all: Vec<(Vec<i64>, Rc<Data>)> = Vec::new();
                self.each(|this| {
                    let mut indices = this.indices.clone();
                    // The others of the block's row are those that agree but for the axis.
                    let rank = std::mem::replace(&mut indices[*axis as usize], 0);
                    indices.push(rank);
                    all.push((indices, this.data(operands[0]).clone()));
                    Ok(())
                })?;
                for i in 0..all.len() {
                    let (own, data) = &all[i];
                    let row = own.len() - 1;
                    let mut others: Vec<(i64, &Data)> = all
                        .iter()
                        .filter(|(indices, _)| indices[..row] == own[..row])
                        .map(|(indices, data)| (indices[row], &**data))
                        .collect();
                    others.sort_by_key(|(rank, _)| *rank);
                    let parts: Vec<&Data> = others
                        .iter()
                        .filter(|(rank, _)| *how != ClusterOp::Before || *rank < own[row])
                        .map(|(_, data)| *data)
                        .collect();
                    let result =
                        combine(*how, elem, data.len(), &parts).map_err(|fault| (fault, span))?;
                    self.as_block(i, |this| this.set(op.results[0], result));
                }
                Ok(())
            }
            OpKind::If => {
                let on = self.agreed(span, |this| this.bool(operands[0]))?;
                let taken = op.regions[usize::from(!on)];
                self.together(taken)?;
                self.each(|this| {
                    this.pass(this.yields(taken), &op.results);
                    Ok(())
                })
            }
            OpKind::For { rev, .. } => {
                let [lo, hi, step] = self.agreed(span, |this| {
                    [0, 1, 2].map(|i| i128::from(this.int(operands[i])))
                })?;
                if step <= 0 {
                    return Err((Fault::Step(step as i64), span));
                }
                let region = op.regions[0];
                let args = &body.regions[region].args;
                self.each(|this| {
                    this.pass(&operands[3..], &args[1..]);
                    Ok(())
                })?;
                let trips = ((hi - lo + step - 1) / step).max(0);
                for trip in 0..trips {
                    let trip = if *rev { trips - 1 - trip } else { trip };
                    self.each(|this| {
                        this.set(args[0], Data::Int(vec![(lo + trip * step) as i64]));
                        Ok(())
                    })?;
                    self.together(region)?;
                    self.each(|this| {
                        this.pass(this.yields(region), &args[1..]);
                        Ok(())
                    })?;
                }
                self.each(|this| {
                    this.pass(&args[1..], &op.results);
                    Ok(())
                })
            }
            OpKind::While => {
                let [cond, step] = [op.regions[0], op.regions[1]];
                let (cond_args, step_args) = (&body.regions[cond].args, &body.regions[step].args);
                self.each(|this| {
                    this.pass(operands, cond_args);
                    Ok(())
                })?;
                loop {
                    self.together(cond)?;
                    if !self.agreed(span, |this| this.bool(this.yields(cond)[0]))? {
                        break;
                    }
                    self.each(|this| {
                        this.pass(cond_args, step_args);
                        Ok(())
                    })?;
                    self.together(step)?;
                    self.each(|this| {
                        this.pass(this.yields(step), cond_args);
                        Ok(())
                    })?;
                }
                self.each(|this| {
                    this.pass(cond_args, &op.results);
                    Ok(())
                })
            }
            OpKind::Role(RoleOp::Roles(heads)) => self.roles(op, heads),
            _ => unreachable!("only control has regions with exchanges"),
        }
    }
}

/// The blocks' values in one, in order of rank: sums of floats in f64, rounded once.
pub(super) fn combine(
    how: ClusterOp,
    elem: tesserine_set::DType,
    len: usize,
    parts: &[&Data],
) -> Result<Data, Fault> {
    let larger = |op: BinaryOp| {
        let mut parts = parts.iter();
        let first = parts
            .next()
            .map_or(Data::Bool(Vec::new()), |d| (*d).clone());
        parts.try_fold(first, |all, part| {
            elementwise::binary(op, elem, &all, part).map_err(|_| Fault::DivisionByZero)
        })
    };
    match how {
        ClusterOp::Max => larger(BinaryOp::Max),
        ClusterOp::Min => larger(BinaryOp::Min),
        ClusterOp::Sum | ClusterOp::Before if elem.is_float() => {
            let mut sums = vec![0.0f64; len];
            for part in parts {
                if let Data::Float(values) = part {
                    sums.iter_mut().zip(values).for_each(|(s, v)| *s += v);
                }
            }
            Ok(Data::Float(
                sums.into_iter().map(|v| round_to(elem, v)).collect(),
            ))
        }
        ClusterOp::Sum | ClusterOp::Before => {
            let mut sums = vec![0i64; len];
            for part in parts {
                if let Data::Int(values) = part {
                    let pairs = sums.iter_mut().zip(values);
                    pairs.for_each(|(s, v)| *s = wrap(elem, s.wrapping_add(*v)));
                }
            }
            Ok(Data::Int(sums))
        }
    }
}
