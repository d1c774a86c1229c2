//! What stands before a kernel's body and behind it: parameters, facts, the grid, the schedule.

use tesserine_set::{Access, DType, Fact, Formula, ParamKind};

use super::{Said, Unsaid, Writer, float};
use crate::ir::{Order, tile::OpKind};

impl Writer<'_> {
    pub(super) fn header(&mut self) -> Said<()> {
        let header = &self.kernel.header;
        let target = self.target.name();
        let roles = match self.has_roles() {
            true => "",
            false => {
                " It has no roles of its own; `--stage role-ir` shows what the passes make of it."
            }
        };
        self.line(&format!(
            "//! `{}` for {target}, its compile-time arguments bound.{roles}",
            header.name,
        ));
        self.line("");
        let params = (0..header.signature.params.len()).map(|i| self.param(i));
        let params: Vec<String> = params.collect();
        let name = self.kernel_name();
        self.line(&format!("kernel {name}("));
        self.indent += 1;
        for param in params {
            self.line(&format!("{param},"));
        }
        self.indent -= 1;
        let mut facts: Vec<String> = Vec::new();
        for fact in header.requires.iter().chain(&header.facts) {
            let Some(text) = self.fact(fact) else {
                continue;
            };
            if !facts.contains(&text) {
                facts.push(text);
            }
        }
        self.line(&format!(") for {}", self.target.name()));
        if !facts.is_empty() {
            self.line(&format!("where {}", facts.join(", ")));
        }
        let mut grid = String::from("grid ");
        if header.persistent {
            grid.push_str(if header.dynamic {
                "persistent dynamic "
            } else {
                "persistent "
            });
        }
        let axes = header.axes.iter().map(|axis| {
            let cluster = if axis.cluster { " cluster" } else { "" };
            format!("{} in {}{cluster}", axis.name, self.formula(&axis.extent))
        });
        grid.push_str(&format!("({})", axes.collect::<Vec<_>>().join(", ")));
        let mut order: Vec<String> = match header.order {
            Order::Rows => Vec::new(),
            Order::Grouped { group } => vec![format!("grouped({group})")],
        };
        let turned = header.axes.iter().filter(|a| a.rev);
        order.extend(turned.map(|a| format!("rev({})", a.name)));
        if !order.is_empty() {
            grid.push_str(&format!(" order {}", order.join(", ")));
        }
        self.line(&grid);
        self.line("{");
        if header.axes.is_empty() {
            return Err(Unsaid {
                what: "a grid without axes".into(),
                span: header.span,
            });
        }
        Ok(())
    }

    fn has_roles(&self) -> bool {
        let body = &self.kernel.body;
        let mut root = body.regions[body.root].ops.iter();
        root.any(|&op| matches!(body.ops[op].kind, OpKind::Role(_)))
    }

    /// The kernel's own name.
    fn kernel_name(&self) -> &str {
        let name = &self.kernel.header.name;
        name.split('<').next().unwrap_or(name)
    }

    /// Fields of variants become parameters of their own.
    pub(super) fn param_name(&self, index: usize) -> String {
        let params = &self.kernel.header.signature.params;
        let name = &params[index].name;
        let mut plain = name.replace('.', "_");
        let taken = |plain: &str| params.iter().any(|p| p.name == plain);
        while name.contains('.') && taken(&plain) {
            plain.push('_');
        }
        plain
    }

    fn param(&self, index: usize) -> String {
        let param = &self.kernel.header.signature.params[index];
        // What this body is for is there.
        let optional = param.optional
            && !self
                .kernel
                .header
                .facts
                .iter()
                .any(|f| self.gives(f, index));
        let mark = if optional { "?" } else { "" };
        let mut text = format!("{}{mark}: ", self.param_name(index));
        match &param.kind {
            ParamKind::Scalar { dtype, default } => {
                text.push_str(dtype.name());
                if let Some(default) = default {
                    let value = match dtype {
                        DType::U1 | DType::Bool => (*default != 0.0).to_string(),
                        ty if ty.is_float() => float(*default, *ty),
                        _ => format!("{default:.0}"),
                    };
                    text.push_str(&format!(" = {value}"));
                }
            }
            ParamKind::View(view) => {
                text.push_str(match view.access {
                    Access::Read => "",
                    Access::Write => "out ",
                    Access::ReadWrite => "mut ",
                });
                let mut extents: Vec<String> =
                    view.extents.iter().map(|e| self.formula(e)).collect();
                if let Some(last) = extents.last_mut().filter(|_| view.strided) {
                    last.push_str(" strided");
                }
                text.push_str(&format!("view<{}>[{}]", view.dtype, extents.join(", ")));
                if view.facts.sorted {
                    text.push_str(" sorted");
                }
                if view.facts.distinct {
                    text.push_str(" distinct");
                }
                if let Some(bytes) = view.facts.align {
                    text.push_str(&format!(" align {bytes}"));
                }
            }
        }
        text
    }

    /// Whether a fact says that a parameter is given.
    fn gives(&self, fact: &Fact, index: usize) -> bool {
        match fact {
            Fact::Holds(formula) => {
                self.formula(formula) == format!("given({})", self.param_name(index))
            }
            Fact::Aligned { .. } => false,
        }
    }

    /// `None` for what the signature says already.
    fn fact(&self, fact: &Fact) -> Option<String> {
        match fact {
            Fact::Holds(formula) => {
                let params = &self.kernel.header.signature.params;
                let said = (0..params.len()).any(|i| self.gives(fact, i));
                (!said).then(|| self.formula(formula))
            }
            Fact::Aligned { param, bytes } => Some(format!(
                "aligned({}, {bytes})",
                self.param_name(*param as usize)
            )),
        }
    }

    fn formula(&self, formula: &Formula) -> String {
        let signature = &self.kernel.header.signature;
        let names: Vec<String> = (0..signature.params.len())
            .map(|i| self.param_name(i))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        formula.display(&signature.dims, &names).to_string()
    }

    pub(super) fn schedule(&mut self) {
        let schedule = &self.kernel.header.schedule;
        let mut keys: Vec<String> = Vec::new();
        for (name, value) in [
            ("warps", schedule.warps),
            ("stages", schedule.stages),
            ("blocks_per_sm", schedule.blocks_per_sm),
            ("max_regs", schedule.max_regs),
            ("consumers", schedule.consumers),
            ("producers", schedule.producers),
            ("promote", schedule.promote),
        ] {
            keys.extend(value.map(|value| format!("{name}: {value}")));
        }
        for (name, stages) in &schedule.loops {
            keys.push(format!("{name}.stages: {stages}"));
        }
        if !schedule.cluster.is_empty() {
            keys.push(format!("cluster: {:?}", schedule.cluster));
        }
        for (name, on) in [
            ("multicast", schedule.multicast),
            ("pair", schedule.pair),
            ("overlap", schedule.overlap),
        ] {
            if on {
                keys.push(format!("{name}: true"));
            }
        }
        if keys.is_empty() {
            return;
        }
        let (name, target) = (self.kernel_name().to_owned(), self.target.name());
        self.line("");
        self.line(&format!("schedule {name} {{"));
        self.indent += 1;
        self.line(&format!("{target} {{ {} }}", keys.join(", ")));
        self.indent -= 1;
        self.line("}");
    }
}
