//! What is the same in all blocks of a cluster: every block must reach an exchange, so the control around it may depend
//! on nothing that differs between them.
//!
//! A value varies on an axis of the cluster if it may depend on the block's index there. Results of an exchange over an
//! axis no longer do. What is loaded from memory that the kernel also stores to, or left by atomics, varies on all.

use cranelift_entity::SecondaryMap;
use tesserine_set::{Access, ParamKind};

use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        RegionId, ValueId,
        tile::{ClusterOp, Kernel, OpKind, RoleOp, Type},
    },
    span::Span,
};

/// Axes of the grid on which a value varies, by bit.
type Axes = u32;

struct Check<'k> {
    kernel: &'k Kernel,
    /// All axes of the cluster.
    all: Axes,
    values: SecondaryMap<ValueId, Axes>,
    /// What encloses the operation at hand and varies, outermost first.
    control: Vec<(Span, Axes)>,
    found: Vec<(Span, Span)>,
}

/// The exchanges of `kernel` that some block of a cluster may miss.
pub(crate) fn check(kernel: &Kernel) -> Vec<Diagnostic> {
    let axes = kernel.header.axes.iter().enumerate();
    let all = axes
        .filter(|(_, a)| a.cluster && a.extent.as_int() != Some(1))
        .fold(0, |all, (i, _)| all | 1 << i);
    if all == 0 {
        return Vec::new();
    }
    let mut check = Check {
        kernel,
        all,
        values: SecondaryMap::new(),
        control: Vec::new(),
        found: Vec::new(),
    };
    check.region(kernel.body.root);
    check
        .found
        .sort_by_key(|(at, _)| (at.file, at.start, at.end));
    check.found.dedup_by_key(|(at, _)| *at);
    let tell = |(at, control): (Span, Span)| {
        Diagnostic::error(
            codes::E0410,
            at,
            "every block of the cluster must reach this, and some may not",
        )
        .label(
            control,
            "this depends on what differs between the blocks of a cluster",
        )
        .help("exchange first, and decide by the result, which is the same in all blocks")
    };
    check.found.into_iter().map(tell).collect()
}

impl Check<'_> {
    fn of(&self, values: &[ValueId]) -> Axes {
        values.iter().fold(0, |all, v| all | self.values[*v])
    }

    /// Notes that values vary; gives whether that is new.
    fn vary(&mut self, values: &[ValueId], axes: Axes) -> bool {
        let mut new = false;
        for &v in values {
            new |= self.values[v] | axes != self.values[v];
            self.values[v] |= axes;
        }
        new
    }

    /// The same of each `to` as of its `from`.
    fn pass(&mut self, from: &[ValueId], to: &[ValueId]) -> bool {
        let mut new = false;
        for (f, t) in from.iter().zip(to) {
            let axes = self.values[*f];
            new |= self.vary(&[*t], axes);
        }
        new
    }

    fn yields(&self, region: RegionId) -> Vec<ValueId> {
        let body = &self.kernel.body;
        let last = body.regions[region].ops.last();
        last.map_or(Vec::new(), |&op| body.ops[op].operands.clone())
    }

    fn under(&mut self, span: Span, axes: Axes, region: RegionId) {
        self.control.push((span, axes));
        self.region(region);
        self.control.pop();
    }

    fn region(&mut self, region: RegionId) {
        let body = &self.kernel.body;
        for &id in &body.regions[region].ops {
            let op = &body.ops[id];
            let operands = self.of(&op.operands);
            match &op.kind {
                OpKind::GridIndex(axis) => {
                    self.vary(&op.results, 1 << axis & self.all);
                }
                OpKind::ClusterReduce { op: how, axis } => {
                    let here = self.control.iter().find(|(_, axes)| *axes != 0);
                    if let Some((control, _)) = here {
                        self.found.push((op.span, *control));
                    }
                    let axis = 1 << axis;
                    let axes = match how {
                        ClusterOp::Before => operands | axis,
                        _ => operands & !axis,
                    };
                    self.vary(&op.results, axes & self.all);
                }
                OpKind::Load { .. } => {
                    let changes = self.changes(op.operands[0]);
                    let axes = if changes { self.all } else { operands };
                    self.vary(&op.results, axes);
                }
                OpKind::Atomic { .. } | OpKind::Arrive { .. } => {
                    self.vary(&op.results, self.all);
                }
                OpKind::If => {
                    for &arm in &op.regions {
                        self.under(op.span, operands, arm);
                        let yields = self.yields(arm);
                        self.pass(&yields, &op.results);
                    }
                    self.vary(&op.results, operands);
                }
                OpKind::For { .. } => {
                    let inner = op.regions[0];
                    let args = body.regions[inner].args.clone();
                    let bounds = self.of(&op.operands[..3]);
                    self.vary(&args, bounds);
                    self.pass(&op.operands[3..], &args[1..]);
                    loop {
                        self.under(op.span, bounds, inner);
                        let yields = self.yields(inner);
                        if !self.pass(&yields, &args[1..]) {
                            break;
                        }
                    }
                    self.pass(&args[1..], &op.results);
                }
                OpKind::While => {
                    let [cond, step] = [op.regions[0], op.regions[1]];
                    let before = body.regions[cond].args.clone();
                    let args = body.regions[step].args.clone();
                    self.pass(&op.operands, &before);
                    let mut axes = 0;
                    loop {
                        self.under(op.span, axes, cond);
                        let test = self.yields(cond);
                        axes = self.of(&test);
                        self.vary(&before, axes);
                        self.pass(&before, &args);
                        self.under(op.span, axes, step);
                        let yields = self.yields(step);
                        let test = self.yields(cond);
                        if !self.pass(&yields, &before) && self.of(&test) == axes {
                            break;
                        }
                    }
                    self.pass(&before, &op.results);
                }
                // What comes through a channel may have been another block's.
                OpKind::Role(RoleOp::Get { .. }) => {
                    self.vary(&op.results, self.all);
                }
                OpKind::Role(_) => {
                    self.vary(&op.results, operands);
                    for &inner in &op.regions {
                        self.under(op.span, operands, inner);
                        let yields = self.yields(inner);
                        self.pass(&yields, &op.results);
                    }
                }
                _ => {
                    self.vary(&op.results, operands);
                }
            }
        }
    }

    /// Whether the kernel may change what is read through a view.
    fn changes(&self, view: ValueId) -> bool {
        let body = &self.kernel.body;
        let mut view = view;
        while let Some(op) = body.defining_op(view) {
            match &body.ops[op].kind {
                OpKind::Param(param) => {
                    let kind = &self.kernel.header.signature.params[*param as usize].kind;
                    return match kind {
                        ParamKind::View(view) => view.access != Access::Read,
                        ParamKind::Scalar { .. } => false,
                    };
                }
                _ => match body.ops[op].operands.first() {
                    Some(&from) if matches!(body.ty(from), Type::View(_)) => view = from,
                    _ => return true,
                },
            }
        }
        true
    }
}
