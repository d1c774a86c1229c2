//! A kernel's tile IR as Tess: a file that stands alone, passes `tess check`, and gives the same code.
//!
//! What compile-time arguments decided is decided in it: functions are inlined, loops unrolled, arguments are numbers. Each value that an
//! operation gives has a name, and is computed where it was.
//!
//! Invariants: reading what is printed gives tile IR that prints the same; what cannot be said in Tess is an error, not another program.

mod access;
mod header;
mod ops;
mod roles;

use std::{collections::HashSet, fmt::Write as _};

use cranelift_entity::SecondaryMap;
use tesserine_set::DType;

use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    ir::{
        Op, OpId, RegionId, ValueId,
        tile::{Constant, Kernel, OpKind, Type},
    },
    passes,
    span::Span,
    target::Target,
};

/// What cannot be said.
struct Unsaid {
    what: String,
    span: Span,
}

type Said<T> = Result<T, Unsaid>;

/// The one body `kernel` as a source file for `target`, with the roles that its schedule asks for.
pub fn print(kernel: &Kernel, target: Target) -> Result<String, Diagnostics> {
    let kernel = &passes::with_roles(kernel, target)?;
    let mut writer = Writer::new(kernel, target);
    match writer.file() {
        Ok(()) => Ok(writer.text),
        Err(Unsaid { what, span }) => {
            let mut diagnostics = Diagnostics::default();
            let what = format!("{what} as source: this is not yet compiled");
            diagnostics.push(Diagnostic::error(codes::E0010, span, what));
            Err(diagnostics)
        }
    }
}

struct Writer<'k> {
    kernel: &'k Kernel,
    target: Target,
    text: String,
    indent: usize,
    /// What a value is called, or for some what it is.
    names: SecondaryMap<ValueId, Option<String>>,
    /// Of values: `v7`.
    prefix: &'static str,
    next: u32,
    /// Values are not bound, but written where they are used.
    inline: bool,
    /// How often each value is used.
    uses: SecondaryMap<ValueId, u32>,
    /// Values that are written where they are used if nothing else comes first, with what they are.
    waiting: Vec<(ValueId, String)>,
}

impl<'k> Writer<'k> {
    fn new(kernel: &'k Kernel, target: Target) -> Writer<'k> {
        let header = &kernel.header;
        let signature = &header.signature;
        let mut taken: HashSet<&str> = signature.dims.iter().map(String::as_str).collect();
        taken.extend(signature.params.iter().map(|p| p.name.as_str()));
        taken.extend(header.axes.iter().map(|a| a.name.as_str()));
        taken.extend(kernel.channels.values().map(|c| c.name.as_str()));
        let numbered = |prefix: &str| {
            taken.iter().any(|name| {
                let rest = name.strip_prefix(prefix);
                rest.is_some_and(|r| !r.is_empty() && r.bytes().all(|b| b.is_ascii_digit()))
            })
        };
        let mut uses = SecondaryMap::new();
        for op in kernel.body.ops.values() {
            op.operands.iter().for_each(|&v| uses[v] += 1);
        }
        let prefixes = ["v", "value_", "value_of_kernel_"];
        let prefix = prefixes.into_iter().find(|p| !numbered(p));
        Writer {
            kernel,
            target,
            text: String::new(),
            indent: 0,
            names: SecondaryMap::new(),
            prefix: prefix.unwrap_or("value_of_the_kernel_"),
            next: 0,
            inline: false,
            uses,
            waiting: Vec::new(),
        }
    }

    fn line(&mut self, text: &str) {
        if !text.is_empty() {
            let width = 4 * self.indent;
            let _ = write!(self.text, "{:width$}{text}", "");
        }
        self.text.push('\n');
    }

    fn ty(&self, value: ValueId) -> &'k Type {
        self.kernel.body.ty(value)
    }

    fn op(&self, op: OpId) -> &'k Op<OpKind> {
        &self.kernel.body.ops[op]
    }

    /// The operation that gives `value`.
    fn source_of(&self, value: ValueId) -> Option<&'k Op<OpKind>> {
        self.kernel.body.defining_op(value).map(|op| self.op(op))
    }

    /// A new name.
    fn fresh(&mut self) -> String {
        let name = format!("{}{}", self.prefix, self.next);
        self.next += 1;
        name
    }

    fn name(&self, value: ValueId, span: Span) -> Said<String> {
        let unknown = || Unsaid {
            what: "a value of no operation".into(),
            span,
        };
        self.names[value].clone().ok_or_else(unknown)
    }

    fn all_names(&self, values: &[ValueId], span: Span) -> Said<Vec<String>> {
        values.iter().map(|v| self.name(*v, span)).collect()
    }

    /// What stands between the parentheses of a call.
    fn arguments(&self, values: &[ValueId], span: Span) -> Said<String> {
        let names = self.all_names(values, span)?;
        let names: Vec<&str> = names.iter().map(|n| bare(n)).collect();
        Ok(names.join(", "))
    }

    /// Says that `value` is `text`.
    fn call(&mut self, value: ValueId, text: impl Into<String>) {
        self.names[value] = Some(text.into());
    }

    /// `let v7 = …;`
    fn bind(&mut self, value: ValueId, text: &str) {
        if self.inline {
            self.call(value, format!("({text})"));
            return;
        }
        let kind = self.source_of(value).map(|op| &op.kind);
        if self.uses[value] == 1 && text.len() <= LONG && kind.is_some_and(is_moved) {
            self.call(value, enclosed(text));
            self.waiting.push((value, text.to_owned()));
            return;
        }
        self.settle();
        let name = self.fresh();
        self.line(&format!("let {name} = {text};"));
        self.call(value, name);
    }

    /// Binds all that waits to be used.
    fn settle(&mut self) {
        for (value, text) in std::mem::take(&mut self.waiting) {
            let name = self.fresh();
            self.line(&format!("let {name} = {text};"));
            self.call(value, name);
        }
    }

    /// What waits and is used by an operation stays in it, if it is evaluated there as it was: as the last, in this order.
    fn takes(&mut self, operands: &[ValueId]) {
        let waits = |v: &&ValueId| self.waiting.iter().any(|(w, _)| w == *v);
        let used: Vec<ValueId> = operands.iter().filter(waits).copied().collect();
        let rest = self.waiting.len() - used.len().min(self.waiting.len());
        let last = self.waiting[rest..].iter().map(|(v, _)| *v);
        if last.eq(used.iter().copied()) {
            self.waiting.truncate(rest);
        } else {
            self.settle();
        }
    }

    /// The names of new values, as a pattern.
    fn pattern(&mut self, values: &[ValueId]) -> String {
        let names: Vec<String> = values
            .iter()
            .map(|&v| {
                let name = self.fresh();
                self.call(v, name.clone());
                name
            })
            .collect();
        tuple(&names)
    }

    /// The operations of a region but its terminator.
    fn region(&mut self, region: RegionId) -> Said<()> {
        let ops = &self.kernel.body.regions[region].ops;
        for &op in &ops[..ops.len().saturating_sub(1)] {
            self.operation(self.op(op))?;
        }
        Ok(())
    }

    /// A region whose values are used behind it.
    fn whole_region(&mut self, region: RegionId) -> Said<()> {
        self.region(region)?;
        self.settle();
        Ok(())
    }

    /// The operands of a region's terminator.
    fn yields(&self, region: RegionId) -> &'k [ValueId] {
        let last = self.kernel.body.regions[region].ops.last();
        last.map_or(&[], |op| &self.op(*op).operands)
    }

    /// A block with the value that its region yields.
    fn arm(&mut self, region: RegionId, span: Span) -> Said<()> {
        self.indent += 1;
        self.region(region)?;
        let yields = self.yields(region);
        self.takes(yields);
        self.settle();
        let names = self.all_names(yields, span)?;
        let names: Vec<String> = names.iter().map(|n| bare(n).to_owned()).collect();
        if !names.is_empty() {
            self.line(&tuple(&names));
        }
        self.indent -= 1;
        Ok(())
    }

    fn file(&mut self) -> Said<()> {
        self.header()?;
        self.indent += 1;
        self.channels();
        let root = self.kernel.body.root;
        self.whole_region(root)?;
        self.indent -= 1;
        self.line("}");
        self.schedule();
        Ok(())
    }
}

/// The longest text that is written into another.
const LONG: usize = 60;

/// What may be computed where it is used: of values alone.
fn is_moved(kind: &OpKind) -> bool {
    kind.is_elementwise() && !matches!(kind, OpKind::Ptx { .. })
        || matches!(
            kind,
            OpKind::Broadcast
                | OpKind::Reshape
                | OpKind::Permute(_)
                | OpKind::Slice(_)
                | OpKind::Iota
                | OpKind::Reduce { .. }
        )
}

/// `text` as an operand of anything.
fn enclosed(text: &str) -> String {
    let mut depth = 0;
    let apart = text.chars().any(|c| {
        depth += match c {
            '(' | '[' => 1,
            ')' | ']' => -1,
            _ => 0,
        };
        depth == 0 && c == ' '
    });
    match apart || text.starts_with(['-', '!']) {
        true => format!("({text})"),
        false => text.to_owned(),
    }
}

/// `text` without parentheses around all of it.
fn bare(text: &str) -> &str {
    let Some(inner) = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')) else {
        return text;
    };
    let mut depth = 0;
    let leaves = inner.chars().any(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth < 0
    });
    let commas = inner
        .split(['(', '['])
        .next()
        .is_some_and(|t| t.contains(','));
    if leaves || commas { text } else { inner }
}

/// `a`, or `(a, b)`
fn tuple(names: &[String]) -> String {
    match names {
        [one] => one.clone(),
        many => format!("({})", many.join(", ")),
    }
}

/// `[64, 128]`
fn dims(shape: &[u32]) -> String {
    format!("{shape:?}")
}

/// A number as it is written.
fn literal(constant: Constant) -> String {
    match constant {
        Constant::Int(value, DType::U64) => (value as u64).to_string(),
        Constant::Int(value, _) if value < 0 => format!("({value})"),
        Constant::Int(value, _) => value.to_string(),
        Constant::Float(value, ty) => {
            let text = float(value, ty);
            match text.starts_with('-') {
                true => format!("({text})"),
                false => text,
            }
        }
        Constant::Bool(value) => value.to_string(),
        Constant::Any(_) => "any".into(),
    }
}

/// The shortest decimal that reads back as `value`.
fn float(value: f64, ty: DType) -> String {
    if ty == DType::F32 && f64::from(value as f32).to_bits() == value.to_bits() {
        return format!("{:?}", value as f32).to_lowercase();
    }
    format!("{value:?}").to_lowercase()
}

/// `text` in quotes.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
