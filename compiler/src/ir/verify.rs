//! What both verifiers share: structure, headers, and the report of an error.
//!
//! Checked here, for every level:
//! - every region has a last operation that ends it (`yield`; `return` in the root) and no such operation before it;
//! - an operation lies in one region, a region belongs to one operation (the root to none);
//! - operands exist and are defined before their use, in the same region or in one around it;
//! - results and arguments say truly where they are defined;
//! - names of parameters, of dimensions and of axes are unique; a parameter that views' extents, facts and axes mention
//!   exists and is of the right kind; every formula reduces to one value.

use std::collections::HashSet;

use cranelift_entity::EntityRef;
use tesserine_set::{Fact, Formula, ParamKind, Term};

use super::{
    Body, Header, OpId, Order, RegionId, ValueDef, ValueId,
    text::{Dialect, Printer},
    tile,
};
use crate::span::Span;

/// A broken invariant: a bug of whoever made the IR, unless it was read from text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", if op.is_empty() { String::new() } else { format!("\n  in `{op}`") })]
pub struct VerifyError {
    pub message: String,
    /// The operation as printed; empty if the error is in none.
    pub op: String,
    pub span: Span,
}

/// What the shared checks ask of a level.
pub(in crate::ir) trait Verifiable: Dialect {
    /// The tile operation that has the same operands, results and regions; `None` for what tile IR lacks.
    fn as_tile(&self) -> Option<tile::OpKind>;

    fn tile_type(ty: &Self::Type) -> &tile::Type;
}

/// Collects errors over one body.
pub(in crate::ir) struct Checker<'a, K: Verifiable> {
    pub header: &'a Header,
    pub body: &'a Body<K, K::Type>,
    pub errors: Vec<VerifyError>,
}

/// What is wrong, in a sentence without a full stop.
pub(in crate::ir) type Finding = Result<(), String>;

/// `Err(format!(…))` unless the condition holds.
macro_rules! ensure {
    ($cond:expr, $($message:tt)*) => {
        if !$cond {
            return Err(format!($($message)*));
        }
    };
}
pub(in crate::ir) use ensure;

impl<'a, K: Verifiable> Checker<'a, K> {
    pub fn new(header: &'a Header, body: &'a Body<K, K::Type>) -> Checker<'a, K> {
        Checker {
            header,
            body,
            errors: Vec::new(),
        }
    }

    pub fn report(&mut self, op: OpId, message: String) {
        let op = &self.body.ops[op];
        let text = if self.errors.len() < 10 {
            Printer::new(self.header).one_line(self.body, op)
        } else {
            String::new()
        };
        self.errors.push(VerifyError {
            message,
            op: text,
            span: op.span,
        });
    }

    fn report_body(&mut self, message: String) {
        self.errors.push(VerifyError {
            message,
            op: String::new(),
            span: self.header.span,
        });
    }

    /// The structure. Types may be looked at only if it is sound.
    pub fn structure(&mut self) -> bool {
        let mut walk = Walk {
            visible: vec![false; self.body.values.len()],
            ops: HashSet::new(),
            regions: HashSet::new(),
        };
        self.region(self.body.root, &mut walk);
        self.errors.is_empty()
    }

    /// Walks `region`; a region is walked once, so that even a cyclic body ends.
    fn region(&mut self, region: RegionId, walk: &mut Walk) {
        let body = self.body;
        if !body.regions.is_valid(region) {
            return self.report_body(format!("{region} is not there"));
        }
        if !walk.regions.insert(region) {
            return self.report_body(format!("{region} belongs to more than one operation"));
        }
        let mut inside = Vec::new();
        for (i, &arg) in body.regions[region].args.iter().enumerate() {
            let index = i as u32;
            if body.values.get(arg).map(|v| v.def) != Some(ValueDef::Argument { region, index }) {
                self.report_body(format!("argument {i} of {region} is defined elsewhere"));
                continue;
            }
            walk.visible[arg.index()] = true;
            inside.push(arg);
        }
        let list = &body.regions[region].ops;
        if list.is_empty() {
            self.report_body(format!("{region} is empty: it lacks a terminator"));
        }
        for (at, &id) in list.iter().enumerate() {
            let Some(op) = body.ops.get(id) else {
                self.report_body(format!("{region} names {id}, which is not there"));
                continue;
            };
            if !walk.ops.insert(id) {
                self.report_body(format!("{id} lies in more than one place"));
                continue;
            }
            for &operand in &op.operands {
                if walk.visible.get(operand.index()) != Some(&true) {
                    self.report(
                        id,
                        format!("{operand} is used before its definition or outside its region"),
                    );
                }
            }
            for &inner in &op.regions {
                self.region(inner, walk);
            }
            for (i, &result) in op.results.iter().enumerate() {
                let index = i as u32;
                let def = body.values.get(result).map(|v| v.def);
                if def != Some(ValueDef::Result { op: id, index }) {
                    self.report(id, format!("result {i} is defined elsewhere"));
                    continue;
                }
                walk.visible[result.index()] = true;
                inside.push(result);
            }
            let tile = op.kind.as_tile();
            let returns = matches!(tile, Some(tile::OpKind::Return));
            let ends = returns || matches!(tile, Some(tile::OpKind::Yield));
            let last = at + 1 == list.len();
            if ends && !last {
                self.report(id, "nothing may follow a terminator in its region".into());
            } else if last && !ends {
                self.report(id, "a region must end in a terminator".into());
            } else if ends && returns != (region == body.root) {
                self.report(
                    id,
                    "`return` ends the root region, `yield` every other".into(),
                );
            }
        }
        for value in inside {
            walk.visible[value.index()] = false;
        }
    }

    /// What the last operation of `region` yields.
    pub fn yields(&self, region: RegionId) -> &'a [ValueId] {
        let last = self.body.regions[region].ops.last();
        last.map_or(&[], |&op| &self.body.ops[op].operands)
    }

    /// Names, facts and formulas of the header.
    pub fn header(&mut self) {
        let header = self.header;
        let mut seen = HashSet::new();
        let mut unique = |what: &str, name: &str| {
            ensure!(
                seen.insert(format!("{what} {name}")),
                "{what} `{name}` is declared twice"
            );
            Ok(())
        };
        let mut findings: Vec<Finding> = Vec::new();
        for dim in &header.signature.dims {
            findings.push(unique("dimension", dim));
        }
        for param in &header.signature.params {
            findings.push(unique("parameter", &param.name));
            if let ParamKind::View(view) = &param.kind {
                for extent in &view.extents {
                    findings.push(formula(header, extent));
                }
            }
        }
        for axis in &header.axes {
            findings.push(unique("axis", &axis.name));
            findings.push(formula(header, &axis.extent));
        }
        let clusters = || header.axes.iter().filter(|a| a.cluster);
        for axis in clusters() {
            if !axis.extent.as_int().is_some_and(|e| (1..=16).contains(&e)) {
                findings.push(Err(format!(
                    "the extent of axis `{}` is that of no cluster: a constant from 1 to 16",
                    axis.name
                )));
            }
        }
        if header.cluster() > 16 {
            findings.push(Err("a cluster has at most 16 blocks".to_owned()));
        }
        if clusters().any(|a| a.rev) {
            findings.push(Err("an axis of a cluster is walked upwards".to_owned()));
        }
        if header.dynamic && !header.persistent {
            findings.push(Err(
                "only blocks that walk the grid draw their tiles".to_owned()
            ));
        }
        if let Order::Grouped { group: 0 } = header.order {
            findings.push(Err("groups of no index order the grid".to_owned()));
        }
        if let Some(cost) = &header.cost {
            findings.push(terms(header, cost));
        }
        for fact in header.requires.iter().chain(&header.facts) {
            findings.push(match fact {
                Fact::Holds(holds) => formula(header, holds),
                Fact::Aligned { param, .. } => {
                    match header
                        .signature
                        .params
                        .get(*param as usize)
                        .map(|p| &p.kind)
                    {
                        Some(ParamKind::View(_)) => Ok(()),
                        _ => Err(format!(
                            "`aligned` needs a view, and parameter {param} is none"
                        )),
                    }
                }
            });
        }
        for finding in findings {
            if let Err(message) = finding {
                self.report_body(message);
            }
        }
    }
}

struct Walk {
    /// By value: may it be used here?
    visible: Vec<bool>,
    ops: HashSet<OpId>,
    regions: HashSet<RegionId>,
}

/// Whether `formula` reduces to one value and mentions only what is there.
fn formula(header: &Header, formula: &Formula) -> Finding {
    let asks = formula.0.contains(&Term::Multiprocessors);
    ensure!(
        !asks,
        "a formula mentions `multiprocessors`, which only a cost may"
    );
    terms(header, formula)
}

/// As [`formula`], of one that may ask for the device's multiprocessors.
fn terms(header: &Header, formula: &Formula) -> Finding {
    let params = &header.signature.params;
    let mut depth = 0usize;
    for term in &formula.0 {
        match *term {
            Term::Int(_) => depth += 1,
            Term::Dim(i) => {
                ensure!(
                    (i as usize) < header.signature.dims.len(),
                    "a formula mentions dimension {i}, which is not there"
                );
                depth += 1;
            }
            Term::Scalar(i) => {
                let is_int = params.get(i as usize).is_some_and(
                    |p| matches!(p.kind, ParamKind::Scalar { dtype, .. } if !dtype.is_float()),
                );
                ensure!(
                    is_int,
                    "a formula mentions parameter {i}, which is no integer scalar"
                );
                depth += 1;
            }
            Term::Given(i) => {
                ensure!(
                    params.get(i as usize).is_some_and(|p| p.optional),
                    "a formula asks whether parameter {i} is given, which is not optional"
                );
                depth += 1;
            }
            Term::Multiprocessors => depth += 1,
            Term::Op(op) => {
                ensure!(depth >= op.arity(), "a formula is malformed");
                depth -= op.arity() - 1;
            }
        }
    }
    ensure!(depth == 1, "a formula is malformed");
    Ok(())
}
