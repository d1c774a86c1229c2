//! Operations on values, and control.

use super::{Said, Unsaid, Writer, bare, dims, literal, quoted, tuple};
use crate::ir::{
    Op, ValueId,
    tile::{
        AtomicOp, BinaryOp, CompareOp, Constant, Index, OpKind, ReduceOp, ScanOp, Type, UnaryOp,
    },
};

impl Writer<'_> {
    pub(super) fn operation(&mut self, op: &Op<OpKind>) -> Said<()> {
        let span = op.span;
        let operands = &op.operands;
        self.check_scalars(op)?;
        if let OpKind::For { .. } | OpKind::While = op.kind
            && self.carries_waiting(op)
        {
            self.settle();
        }
        if op.kind == OpKind::Cast && !matches!(self.ty(op.results[0]), Type::Tile(_)) {
            // It may be the same in the source, and used more than once.
            self.settle();
        }
        self.takes(operands);
        let silent = matches!(
            op.kind,
            OpKind::Constant(_) | OpKind::Param(_) | OpKind::Dim(_) | OpKind::GridIndex(_)
        );
        if !silent && !super::is_moved(&op.kind) {
            // It comes behind what waits for others.
            self.settle();
        }
        let name = |this: &Self, i: usize| this.name(operands[i], span);
        let text = match &op.kind {
            OpKind::Constant(constant) => {
                self.call(op.results[0], literal(*constant));
                return Ok(());
            }
            OpKind::Param(index) => {
                let text = self.param_name(*index as usize);
                self.call(op.results[0], text);
                return Ok(());
            }
            OpKind::Dim(index) => {
                let text = self.kernel.header.signature.dims[*index as usize].clone();
                self.call(op.results[0], text);
                return Ok(());
            }
            OpKind::GridIndex(index) => {
                let text = self.kernel.header.axes[*index as usize].name.clone();
                self.call(op.results[0], text);
                return Ok(());
            }
            OpKind::Unary(unary) => match unary {
                UnaryOp::Neg => format!("-{}", name(self, 0)?),
                UnaryOp::Not => format!("!{}", name(self, 0)?),
                unary => format!("{}({})", unary.name(), bare(&name(self, 0)?)),
            },
            OpKind::Binary(binary) => {
                let (a, b) = (name(self, 0)?, name(self, 1)?);
                let scalar = matches!(self.ty(operands[0]), Type::Scalar(_));
                match infix(
                    *binary,
                    scalar && self.ty(operands[0]).elem() == tesserine_set::DType::Bool,
                ) {
                    Some(sign) => format!("{a} {sign} {b}"),
                    None => format!("{}({}, {})", binary.name(), bare(&a), bare(&b)),
                }
            }
            OpKind::Compare(compare) => {
                let sign = match compare {
                    CompareOp::Eq => "==",
                    CompareOp::Ne => "!=",
                    CompareOp::Lt => "<",
                    CompareOp::Le => "<=",
                    CompareOp::Gt => ">",
                    CompareOp::Ge => ">=",
                };
                format!("{} {sign} {}", name(self, 0)?, name(self, 1)?)
            }
            OpKind::Fma | OpKind::Select | OpKind::Dot => {
                let word = match op.kind {
                    OpKind::Fma => "fma",
                    OpKind::Select => "select",
                    _ => "dot",
                };
                format!("{word}({})", self.arguments(operands, span)?)
            }
            OpKind::Cast => return self.cast(op),
            OpKind::Bitcast | OpKind::ViewBitcast => {
                let elem = self.ty(op.results[0]).elem();
                format!("bitcast<{elem}>({})", name(self, 0)?)
            }
            OpKind::Broadcast => {
                let ty = self.ty(op.results[0]);
                let shape = dims(ty.shape());
                let zero = self.source_of(operands[0]).is_some_and(|op| {
                    matches!(op.kind, OpKind::Constant(Constant::Float(v, _)) if v.to_bits() == 0)
                });
                match self.ty(operands[0]) {
                    Type::Scalar(elem) if zero => format!("zeros<{elem}>{shape}"),
                    Type::Scalar(elem) => format!("full<{elem}>{shape}({})", bare(&name(self, 0)?)),
                    _ => format!("{}.broadcast({shape})", name(self, 0)?),
                }
            }
            OpKind::Reshape => {
                let shape = self.ty(op.results[0]).shape();
                let own = self.ty(operands[0]).shape();
                match (self.ty(op.results[0]), self.ty(operands[0])) {
                    (Type::Scalar(_), Type::Tile(_)) => {
                        let firsts = vec!["0"; own.len()];
                        format!("{}[{}]", name(self, 0)?, firsts.join(", "))
                    }
                    (_, Type::Scalar(elem)) => {
                        format!("full<{elem}>{}({})", dims(shape), name(self, 0)?)
                    }
                    _ => format!("{}.reshape({})", name(self, 0)?, dims(shape)),
                }
            }
            OpKind::Permute(perm) if perm[..] == [1, 0] => format!("{}.t", name(self, 0)?),
            OpKind::Permute(perm) => format!("{}.permute({})", name(self, 0)?, dims(perm)),
            OpKind::Slice(offsets) => {
                let shape = self.ty(op.results[0]).shape();
                let whole = self.ty(operands[0]).shape();
                let part = |d: usize| match (offsets[d], shape[d]) {
                    (0, n) if n == whole[d] => "..".to_owned(),
                    (at, n) => format!("{at}..{}", at + n),
                };
                let parts: Vec<String> = (0..shape.len()).map(part).collect();
                format!("{}[{}]", name(self, 0)?, parts.join(", "))
            }
            OpKind::Iota => {
                let ty = self.ty(op.results[0]);
                format!("iota<{}>{}", ty.elem(), dims(ty.shape()))
            }
            OpKind::Reduce { op: reduce, axis } => {
                let axis = axis.map_or(String::new(), |a| a.to_string());
                format!("{}.{}({axis})", name(self, 0)?, reduce_name(*reduce))
            }
            OpKind::ClusterReduce { op: how, axis } => {
                let axis = &self.kernel.header.axes[*axis as usize].name;
                format!("{}.cluster_{}({axis})", name(self, 0)?, how.name())
            }
            OpKind::Scan { op: scan, axis } => {
                let word = match scan {
                    ScanOp::Sum => "cumsum",
                    ScanOp::Max => "cummax",
                };
                format!("{word}({}, {axis})", name(self, 0)?)
            }
            OpKind::Sort { descending } => {
                let names = self.all_names(operands, span)?.join(", ");
                let down = if *descending {
                    ", descending = true"
                } else {
                    ""
                };
                let pattern = self.pattern(&op.results);
                self.line(&format!("let {pattern} = sort({names}{down});"));
                return Ok(());
            }
            OpKind::TopK { k } => {
                let from = name(self, 0)?;
                let pattern = self.pattern(&op.results);
                self.line(&format!("let {pattern} = topk({from}, {k});"));
                return Ok(());
            }
            OpKind::Histogram { n } => format!("histogram({}, {n})", name(self, 0)?),
            OpKind::Occurrence => format!("occurrence({})", name(self, 0)?),
            OpKind::Take { axis } => {
                format!("take({}, {}, {axis})", name(self, 0)?, name(self, 1)?)
            }
            OpKind::Concat { axis } => {
                format!("concat({}, {}, {axis})", name(self, 0)?, name(self, 1)?)
            }
            OpKind::Ptx { text } => {
                let names = self.all_names(operands, span)?;
                let Some((meaning, args)) = names.split_last() else {
                    return Err(Unsaid {
                        what: "an instruction without a meaning".into(),
                        span,
                    });
                };
                let mut list = vec![quoted(text)];
                list.extend_from_slice(args);
                let elem = self.ty(op.results[0]).elem();
                format!("ptx({}) -> {elem} else ({meaning})", list.join(", "))
            }
            OpKind::Load { indices, cache } => return self.load(op, indices, *cache),
            OpKind::Store {
                indices,
                cache,
                scatter,
            } => return self.store(op, indices, *cache, *scatter),
            OpKind::Atomic {
                op: atomic,
                indices,
            } => return self.reach(op, Some(*atomic), indices),
            OpKind::Arrive { indices } => return self.reach(op, None, indices),
            OpKind::If => return self.if_(op),
            OpKind::For { label, rev } => return self.for_(op, label.as_deref(), *rev),
            OpKind::While => return self.while_(op),
            OpKind::Assert { message } => {
                let text = format!("assert({}, {});", name(self, 0)?, quoted(message));
                self.line(&text);
                return Ok(());
            }
            OpKind::Debug { .. } => {
                let text = format!("debug({});", name(self, 0)?);
                self.line(&text);
                return Ok(());
            }
            OpKind::Role(kind) => return self.role_op(op, kind),
            OpKind::Yield | OpKind::Return => return Ok(()),
        };
        self.bind(op.results[0], &text);
        Ok(())
    }

    /// Whether what a loop begins with waits to be used: that is written before its bounds.
    fn carries_waiting(&self, op: &Op<OpKind>) -> bool {
        let inits = match op.kind {
            OpKind::For { .. } => &op.operands[3..],
            _ => &op.operands[..],
        };
        inits
            .iter()
            .any(|v| self.waiting.iter().any(|(w, _)| w == v))
    }

    fn reach(&mut self, op: &Op<OpKind>, atomic: Option<AtomicOp>, indices: &[Index]) -> Said<()> {
        match atomic {
            Some(atomic) => self.atomic(op, atomic, indices),
            None => self.arrive(op, indices),
        }
    }

    /// Scalars change their types by themselves on the way from memory, and to it.
    fn cast(&mut self, op: &Op<OpKind>) -> Said<()> {
        let (from, to) = (op.operands[0], op.results[0]);
        let text = self.name(from, op.span)?;
        if let Type::Pending(_) = self.ty(to) {
            self.call(to, text);
            return Ok(());
        }
        let elem = self.ty(to).elem();
        let scalar = matches!(self.ty(to), Type::Scalar(_));
        let both = scalar && self.is_narrow(from);
        if both && self.is_narrow(to) && self.ty(from).elem().bits() < elem.bits() {
            return Err(Unsaid {
                what: format!(
                    "a cast from `{}` to `{elem}` of a scalar",
                    self.ty(from).elem()
                ),
                span: op.span,
            });
        }
        if scalar && self.is_narrow(to) && self.ty(from).elem().is_float() == elem.is_float() {
            self.call(to, text);
            return Ok(());
        }
        if both {
            // What was made narrow, and is so no longer, has lost something.
            let narrowed = self.source_of(from).filter(|op| op.kind == OpKind::Cast);
            match narrowed {
                Some(_) => {
                    let narrow = self.ty(from).elem();
                    self.bind(to, &format!("{text} as {narrow}"));
                }
                None => self.call(to, text),
            }
            return Ok(());
        }
        self.bind(to, &format!("{text} as {elem}"));
        Ok(())
    }

    fn if_(&mut self, op: &Op<OpKind>) -> Said<()> {
        let cond = self.name(op.operands[0], op.span)?;
        let [then, otherwise] = [op.regions[0], op.regions[1]];
        let names: Vec<String> = op.results.iter().map(|_| self.fresh()).collect();
        let start = match names.is_empty() {
            true => String::new(),
            false => format!("let {} = ", tuple(&names)),
        };
        self.line(&format!("{start}if {} {{", bare(&cond)));
        self.arm(then, op.span)?;
        let empty = self.kernel.body.regions[otherwise].ops.len() <= 1;
        if !(names.is_empty() && empty) {
            self.line("} else {");
            self.arm(otherwise, op.span)?;
        }
        self.line(if names.is_empty() { "}" } else { "};" });
        for (&result, name) in op.results.iter().zip(names) {
            self.call(result, name);
        }
        Ok(())
    }

    /// Variables for what a loop carries.
    fn carried(&mut self, inits: &[ValueId], op: &Op<OpKind>) -> Said<Vec<String>> {
        let mut names = Vec::new();
        for &init in inits {
            let value = self.name(init, op.span)?;
            let name = self.fresh();
            let float = matches!(self.ty(init), Type::Scalar(tesserine_set::DType::F64));
            let constant = self
                .source_of(init)
                .is_some_and(|o| matches!(o.kind, OpKind::Constant(_)));
            let cast = if float && constant { " as f64" } else { "" };
            self.line(&format!("let mut {name} = {value}{cast};"));
            names.push(name);
        }
        Ok(names)
    }

    /// Assigns what an iteration gives, all read before the first is written.
    fn assign(&mut self, names: &[String], values: &[ValueId], op: &Op<OpKind>) -> Said<()> {
        let mut values = self.all_names(values, op.span)?;
        for i in 0..values.len() {
            // One that is written before it is read here.
            if names[..i].contains(&values[i]) {
                let kept = self.fresh();
                let at = format!("let {kept} = {};", values[i]);
                self.line(&at);
                values[i] = kept;
            }
        }
        for (name, value) in names.iter().zip(values) {
            if *name != value {
                self.line(&format!("{name} = {value};"));
            }
        }
        Ok(())
    }

    fn for_(&mut self, op: &Op<OpKind>, label: Option<&str>, rev: bool) -> Said<()> {
        let region = op.regions[0];
        let args = &self.kernel.body.regions[region].args;
        let names = self.carried(&op.operands[3..], op)?;
        let bounds = self.all_names(&op.operands[..3], op.span)?;
        let index = self.fresh();
        let label = label.map_or(String::new(), |l| format!("{l}: "));
        let rev = if rev { " rev" } else { "" };
        let step = match bounds[2].as_str() {
            "1" => String::new(),
            step => format!(" step {step}"),
        };
        let (lo, hi) = (bare(&bounds[0]), bare(&bounds[1]));
        self.line(&format!("{label}for {index} in {lo}..{hi}{rev}{step} {{"));
        self.call(args[0], index);
        for (&arg, name) in args[1..].iter().zip(&names) {
            self.call(arg, name.clone());
        }
        self.indent += 1;
        self.whole_region(region)?;
        self.assign(&names, self.yields(region), op)?;
        self.indent -= 1;
        self.line("}");
        for (&result, name) in op.results.iter().zip(names) {
            self.call(result, name);
        }
        Ok(())
    }

    fn while_(&mut self, op: &Op<OpKind>) -> Said<()> {
        let [cond, step] = [op.regions[0], op.regions[1]];
        let names = self.carried(&op.operands, op)?;
        let regions = &self.kernel.body.regions;
        for region in [cond, step] {
            for (&arg, name) in regions[region].args.iter().zip(&names) {
                self.call(arg, name.clone());
            }
        }
        self.inline = true;
        let walked = self.region(cond);
        self.inline = false;
        walked?;
        let test = self.name(self.yields(cond)[0], op.span)?;
        self.line(&format!("while {} {{", bare(&test)));
        self.indent += 1;
        self.whole_region(step)?;
        self.assign(&names, self.yields(step), op)?;
        self.indent -= 1;
        self.line("}");
        for (&result, name) in op.results.iter().zip(names) {
            self.call(result, name);
        }
        Ok(())
    }
}

/// The sign of an operation that stands between its operands. `truth`: of two truth values.
fn infix(op: BinaryOp, truth: bool) -> Option<&'static str> {
    Some(match op {
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::Rem => "%",
        BinaryOp::And if truth => "&&",
        BinaryOp::Or if truth => "||",
        BinaryOp::And => "&",
        BinaryOp::Or => "|",
        BinaryOp::Xor => "^",
        BinaryOp::Shl => "<<",
        BinaryOp::Shr => ">>",
        BinaryOp::MulExact | BinaryOp::MulHi | BinaryOp::Min | BinaryOp::Max => return None,
    })
}

fn reduce_name(op: ReduceOp) -> &'static str {
    op.name()
}
