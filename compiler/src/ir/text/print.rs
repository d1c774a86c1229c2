//! Printing: headers, regions, numbers.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
    sync::Arc,
};

use indexmap::IndexMap;
use tesserine_set::{Access, DType, Fact, Formula, ParamKind};

use super::Dialect;
use crate::{
    ir::{Body, Header, Op, Order, RegionId, ValueId},
    layout::Layout,
};

/// The text so far, and what names in it stand for.
pub struct Printer<'a> {
    text: String,
    header: &'a Header,
    layouts: IndexMap<Arc<Layout>, ()>,
    values: HashMap<ValueId, u32>,
    /// The regions of this body that stand in the text: a broken body may name one more than once.
    regions: HashSet<RegionId>,
    next: u32,
    indent: usize,
}

impl<'a> Printer<'a> {
    pub fn new(header: &'a Header) -> Printer<'a> {
        Printer {
            text: String::new(),
            header,
            layouts: IndexMap::new(),
            values: HashMap::new(),
            regions: HashSet::new(),
            next: 0,
            indent: 0,
        }
    }

    /// The text, with the layouts that it names in front.
    pub fn finish(self) -> String {
        let mut text = String::new();
        for (i, layout) in self.layouts.keys().enumerate() {
            let _ = writeln!(
                text,
                "#l{i} = layout {:?} register {:?} lane {:?} warp {:?} repeat {:?}",
                layout.shape, layout.register, layout.lane, layout.warp, layout.repeat
            );
        }
        text + &self.text
    }

    pub fn write(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub fn write_fmt(&mut self, args: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.text.write_fmt(args);
    }

    /// Begins a line at the current depth.
    pub fn line(&mut self) {
        for _ in 0..self.indent {
            self.text.push_str("  ");
        }
    }

    /// `%7`; a value that no printed operation defines is `%?`.
    pub fn value(&mut self, value: ValueId) {
        match self.values.get(&value).copied() {
            Some(number) => write!(self, "%{number}"),
            None => self.write("%?"),
        }
    }

    /// ` %1, %2`, or nothing.
    pub fn operands(&mut self, values: &[ValueId]) {
        for (i, &value) in values.iter().enumerate() {
            self.write(if i == 0 { " " } else { ", " });
            self.value(value);
        }
    }

    pub fn dim(&mut self, index: u32) {
        match self.header.signature.dims.get(index as usize) {
            Some(name) => self.text.push_str(name),
            None => write!(self, "#{index}"),
        }
    }

    pub fn param(&mut self, index: u32) {
        match self.header.signature.params.get(index as usize) {
            Some(param) => self.text.push_str(&param.name),
            None => write!(self, "#{index}"),
        }
    }

    pub fn axis(&mut self, index: u32) {
        match self.header.axes.get(index as usize) {
            Some(axis) => self.text.push_str(&axis.name),
            None => write!(self, "#{index}"),
        }
    }

    /// `#l3`
    pub fn layout(&mut self, layout: &Arc<Layout>) {
        let index = self.layouts.insert_full(layout.clone(), ()).0;
        write!(self, "#l{index}");
    }

    /// The shortest decimal that reads back as `value` in type `ty`; NaN with its payload if it has an unusual one.
    pub fn float(&mut self, value: f64, ty: DType) {
        if value.is_nan() {
            if value.to_bits() == f64::NAN.to_bits() {
                self.write("nan");
            } else {
                write!(self, "nan(0x{:016x})", value.to_bits());
            }
        } else if ty == DType::F32 && f64::from(value as f32).to_bits() == value.to_bits() {
            write!(self, "{:?}", value as f32);
        } else {
            write!(self, "{value:?}");
        }
    }

    /// A quoted string.
    pub fn string(&mut self, text: &str) {
        self.write("\"");
        for c in text.chars() {
            match c {
                '"' => self.write("\\\""),
                '\\' => self.write("\\\\"),
                '\n' => self.write("\\n"),
                c => self.text.push(c),
            }
        }
        self.write("\"");
    }

    pub fn formula(&mut self, formula: &Formula) {
        let header = self.header;
        let params: Vec<&str> = header
            .signature
            .params
            .iter()
            .map(|p| p.name.as_str())
            .collect();
        write!(self, "{}", formula.display(&header.signature.dims, &params));
    }

    fn fact(&mut self, keyword: &str, fact: &Fact) {
        write!(self, "  {keyword} ");
        match fact {
            Fact::Holds(formula) => self.formula(formula),
            Fact::Aligned { param, bytes } => {
                self.write("aligned(");
                self.param(*param);
                write!(self, ", {bytes})");
            }
        }
        self.write("\n");
    }

    /// Everything of the header, one thing a line.
    pub fn header(&mut self) {
        let header = self.header;
        self.write("kernel ");
        self.string(&header.name);
        self.write("\n");
        if !header.signature.dims.is_empty() {
            writeln!(self, "  dims {}", header.signature.dims.join(", "));
        }
        for param in &header.signature.params {
            write!(
                self,
                "  param {}{}: ",
                param.name,
                if param.optional { "?" } else { "" }
            );
            match &param.kind {
                ParamKind::Scalar { dtype, default } => {
                    self.write(dtype.name());
                    if let Some(default) = default {
                        self.write(" = ");
                        self.float(*default, DType::F64);
                    }
                }
                ParamKind::View(view) => {
                    self.write(access(view.access));
                    write!(self, "view<{}>[", view.dtype);
                    for (i, extent) in view.extents.iter().enumerate() {
                        if i > 0 {
                            self.write(", ");
                        }
                        self.formula(extent);
                    }
                    self.write("]");
                    if view.strided {
                        self.write(" strided");
                    }
                    if view.facts.sorted {
                        self.write(" sorted");
                    }
                    if view.facts.distinct {
                        self.write(" distinct");
                    }
                    if let Some(bytes) = view.facts.align {
                        write!(self, " align {bytes}");
                    }
                }
            }
            self.write("\n");
        }
        for fact in &header.requires {
            self.fact("require", fact);
        }
        for fact in &header.facts {
            self.fact("fact", fact);
        }
        if let Some(cost) = &header.cost {
            self.write("  cost ");
            self.formula(cost);
            self.write("\n");
        }
        for axis in &header.axes {
            write!(self, "  axis {} in ", axis.name);
            self.formula(&axis.extent);
            self.write(if axis.rev { " rev" } else { "" });
            self.write(if axis.cluster { " cluster" } else { "" });
            self.write("\n");
        }
        match header.order {
            Order::Rows => {}
            Order::Grouped { group } => writeln!(self, "  order grouped({group})"),
        }
        if header.persistent {
            let dynamic = if header.dynamic { " dynamic" } else { "" };
            writeln!(self, "  persistent{dynamic}");
        }
        let schedule = &header.schedule;
        for (name, value) in [
            ("warps", schedule.warps),
            ("stages", schedule.stages),
            ("blocks_per_sm", schedule.blocks_per_sm),
            ("max_regs", schedule.max_regs),
            ("consumers", schedule.consumers),
            ("producers", schedule.producers),
            ("promote", schedule.promote),
        ] {
            if let Some(value) = value {
                writeln!(self, "  {name} {value}");
            }
        }
        for (name, stages) in &schedule.loops {
            writeln!(self, "  loop {name} stages {stages}");
        }
        for size in &schedule.cluster {
            writeln!(self, "  cluster {size}");
        }
        for (name, on) in [
            ("multicast", schedule.multicast),
            ("pair", schedule.pair),
            ("overlap", schedule.overlap),
        ] {
            if on {
                writeln!(self, "  {name}");
            }
        }
    }

    /// `{`, the operations, `}`. Values are numbered from 0.
    pub fn body<K: Dialect>(&mut self, body: &Body<K, K::Type>) {
        self.values.clear();
        self.regions.clear();
        self.next = 0;
        self.region(body, body.root);
        self.write("\n");
    }

    /// `op` without its regions, as it stands in the text of `body`.
    pub(in crate::ir) fn one_line<K: Dialect>(
        mut self,
        body: &Body<K, K::Type>,
        op: &Op<K>,
    ) -> String {
        self.body(body);
        self.text.clear();
        for (i, &result) in op.results.iter().enumerate() {
            self.write(if i > 0 { ", " } else { "" });
            self.value(result);
        }
        if !op.results.is_empty() {
            self.write(" = ");
        }
        K::print_op(op, &mut self);
        self.text
    }

    fn define(&mut self, value: ValueId) {
        self.values.insert(value, self.next);
        self.next += 1;
    }

    fn region<K: Dialect>(&mut self, body: &Body<K, K::Type>, region: RegionId) {
        if !body.regions.is_valid(region) || !self.regions.insert(region) {
            return write!(self, "{{ {region} }}");
        }
        let region = &body.regions[region];
        self.write("{");
        if !region.args.is_empty() {
            self.write(" |");
            for (i, &arg) in region.args.iter().enumerate() {
                if i > 0 {
                    self.write(", ");
                }
                self.define(arg);
                self.value(arg);
                self.write(": ");
                K::print_type(body.ty(arg), self);
            }
            self.write("|");
        }
        self.write("\n");
        self.indent += 1;
        for &op in &region.ops {
            self.line();
            self.op(body, &body.ops[op]);
            self.write("\n");
        }
        self.indent -= 1;
        self.line();
        self.write("}");
    }

    /// One operation with its regions, without indent or line break.
    pub fn op<K: Dialect>(&mut self, body: &Body<K, K::Type>, op: &Op<K>) {
        for (i, &result) in op.results.iter().enumerate() {
            if i > 0 {
                self.write(", ");
            }
            self.define(result);
            self.value(result);
        }
        if !op.results.is_empty() {
            self.write(" = ");
        }
        K::print_op(op, self);
        for (i, &result) in op.results.iter().enumerate() {
            self.write(if i == 0 { " : " } else { ", " });
            K::print_type(body.ty(result), self);
        }
        for &region in &op.regions {
            self.write(" ");
            self.region(body, region);
        }
    }
}

/// `out `, `mut ` or nothing.
pub(in crate::ir) fn access(access: Access) -> &'static str {
    match access {
        Access::Read => "",
        Access::Write => "out ",
        Access::ReadWrite => "mut ",
    }
}
