//! Scalars as sums: what the race check knows of a value.
//!
//! A form is `c0 + Σ c·t` modulo 2^64 over terms. A term is a grid index, something that no block can tell (a loop index,
//! what a loop carries, what an atomic gave), or the result of a pure operation on other forms. Terms are compared by
//! structure, so that two computations of one thing are one term: the same values give the same value, in every block
//! and at every place.

use std::collections::{BTreeMap, HashMap};

use tesserine_set::{
    Access as Mode, DType, Formula, FormulaOp, ParamKind, Term as Step, ViewParam,
};

use crate::ir::{
    OpId, RegionId, ValueId,
    tile::{BinaryOp, CompareOp, Constant, Index, Kernel, OpKind, Type, UnaryOp},
};

pub(super) type TermId = u32;

/// No view has more elements along a dimension; binding sees to it.
pub(super) const MAX_EXTENT: i128 = tesserine_set::MAX_EXTENT as i128;

/// A grid has at most 2^31 blocks.
const MAX_BLOCKS: i128 = 1 << 31;

/// Deeper functions of functions are looked at no further.
const MAX_DEPTH: u32 = 500;

/// Products of sums are written out up to this many terms.
const MAX_PRODUCT: usize = 8;

/// A sum of terms with coefficients, and a constant; modulo 2^64.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Form {
    pub terms: BTreeMap<TermId, i64>,
    pub constant: i64,
}

impl Form {
    pub fn constant(value: i64) -> Form {
        Form {
            terms: BTreeMap::new(),
            constant: value,
        }
    }

    pub fn term(id: TermId) -> Form {
        Form {
            terms: BTreeMap::from([(id, 1)]),
            constant: 0,
        }
    }

    /// `self + factor·other`, unless a number leaves 64 bits.
    pub fn plus(&self, other: &Form, factor: i64) -> Option<Form> {
        let mut out = self.clone();
        out.constant = out
            .constant
            .checked_add(other.constant.checked_mul(factor)?)?;
        for (&term, &c) in &other.terms {
            let sum = out
                .terms
                .get(&term)
                .copied()
                .unwrap_or(0)
                .checked_add(c.checked_mul(factor)?)?;
            if sum == 0 {
                out.terms.remove(&term);
            } else {
                out.terms.insert(term, sum);
            }
        }
        Some(out)
    }

    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The term that it is, if it is only that.
    pub fn as_term(&self) -> Option<TermId> {
        match self.terms.iter().next() {
            Some((&term, 1)) if self.terms.len() == 1 && self.constant == 0 => Some(term),
            _ => None,
        }
    }
}

/// Something that a form is a sum of.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// What it is a function of; `None`: no block can tell.
    pub of: Option<Vec<Form>>,
    pub inside: Inside,
    /// The least and the greatest value that its type allows.
    pub range: (i128, i128),
    /// How many functions of functions it is.
    depth: u32,
}

/// What a term is made of, where a rule looks inside.
#[derive(Clone, Debug)]
pub(super) enum Inside {
    Opaque,
    Grid(u32),
    /// Rounded down.
    Quotient(Form, Form),
    Remainder(Form, Form),
    Product(TermId, TermId),
    Min(Form, Form),
    Max(Form, Form),
    /// The second or the third.
    Select(Form, Form),
    /// An element of a view that no block stores to; outside it is the last form.
    Element(u32, Vec<Form>, Form),
    /// Index of a loop over `from..until`.
    Loop(Form, Form),
}

/// The forms of a kernel's scalars.
pub(super) struct Forms<'k> {
    pub kernel: &'k Kernel,
    pub terms: Vec<Term>,
    by_key: HashMap<String, TermId>,
    forms: HashMap<ValueId, Form>,
    /// Of a choice, what it goes by.
    choices: HashMap<TermId, ValueId>,
}

fn type_range(elem: DType) -> (i128, i128) {
    let bits = elem.bits().min(64);
    if elem.is_signed() || bits == 64 {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    }
}

impl<'k> Forms<'k> {
    pub fn new(kernel: &'k Kernel) -> Forms<'k> {
        Forms {
            kernel,
            terms: Vec::new(),
            by_key: HashMap::new(),
            forms: HashMap::new(),
            choices: HashMap::new(),
        }
    }

    fn intern(
        &mut self,
        key: String,
        of: Option<Vec<Form>>,
        inside: Inside,
        range: (i128, i128),
    ) -> TermId {
        if let Some(&id) = self.by_key.get(&key) {
            return id;
        }
        let ends = match &inside {
            Inside::Loop(from, until) => vec![from, until],
            _ => Vec::new(),
        };
        let forms = of.iter().flatten().chain(ends);
        let made_of = forms.flat_map(|form| form.terms.keys());
        let deepest = made_of.map(|&t| self.terms[t as usize].depth).max();
        let depth = deepest.map_or(0, |d| d + 1);
        let id = self.terms.len() as TermId;
        self.terms.push(if depth > MAX_DEPTH {
            Term {
                of: None,
                inside: Inside::Opaque,
                range,
                depth: 0,
            }
        } else {
            Term {
                of,
                inside,
                range,
                depth,
            }
        });
        self.by_key.insert(key, id);
        id
    }

    /// A value that equals nothing else.
    fn unknown(&mut self, value: ValueId, inside: Inside) -> Form {
        let range = type_range(self.elem(value));
        let id = self.intern(format!("value {value}"), None, inside, range);
        Form::term(id)
    }

    fn elem(&self, value: ValueId) -> DType {
        match self.kernel.body.ty(value) {
            Type::View(_) => DType::I64,
            ty => ty.elem(),
        }
    }

    pub fn form(&mut self, value: ValueId) -> Form {
        match self.forms.get(&value) {
            Some(form) => form.clone(),
            None => self.unknown(value, Inside::Opaque),
        }
    }

    pub fn inside(&self, term: TermId) -> &Inside {
        &self.terms[term as usize].inside
    }

    /// The term that `form` is alone, looked into.
    pub fn look(&self, form: &Form) -> Option<&Inside> {
        form.as_term().map(|t| self.inside(t))
    }

    /// Comparisons of integers that hold where a choice takes its first value.
    pub fn conditions(&mut self, choice: TermId) -> Vec<(CompareOp, Form, Form)> {
        let body = &self.kernel.body;
        let mut todo: Vec<ValueId> = self.choices.get(&choice).copied().into_iter().collect();
        let mut out = Vec::new();
        while let Some(value) = todo.pop() {
            let Some(op) = body.defining_op(value) else {
                continue;
            };
            let data = &body.ops[op];
            match data.kind {
                OpKind::Binary(BinaryOp::And) => todo.extend(&data.operands),
                OpKind::Compare(compare)
                    if *body.ty(data.operands[0]) == Type::Scalar(DType::I64) =>
                {
                    let [a, b] = [0, 1].map(|i| self.form(data.operands[i]));
                    out.push((compare, a, b));
                }
                _ => {}
            }
        }
        out
    }

    fn dim(&mut self, index: u32) -> Form {
        let key = format!("dim {index}");
        let id = self.intern(key, Some(Vec::new()), Inside::Opaque, (0, MAX_EXTENT));
        Form::term(id)
    }

    /// An integer parameter, if it is one.
    fn scalar(&mut self, param: u32) -> Option<Form> {
        match self.kernel.header.signature.params[param as usize].kind {
            ParamKind::Scalar { dtype, .. } if dtype.is_int() => {
                let key = format!("param {param}");
                let range = type_range(dtype);
                let id = self.intern(key, Some(Vec::new()), Inside::Opaque, range);
                Some(Form::term(id))
            }
            _ => None,
        }
    }

    pub fn grid(&mut self, axis: u32) -> Form {
        let extent = self.kernel.header.axes[axis as usize].extent.as_int();
        if extent == Some(1) {
            return Form::constant(0);
        }
        let last = extent.map_or(MAX_BLOCKS, i128::from).clamp(1, MAX_BLOCKS) - 1;
        let id = self.intern(format!("grid {axis}"), None, Inside::Grid(axis), (0, last));
        Form::term(id)
    }

    /// Result `place` of a pure operation.
    fn pure(&mut self, op: OpId, place: usize, operands: &[Form], inside: Inside) -> Form {
        let data = &self.kernel.body.ops[op];
        let result = data.results[place];
        let ty = self.kernel.body.ty(result);
        let elem = self.elem(result);
        // What a cast, an `iota` or a broadcast gives, its result's type says. Two computations with floats may be
        // rounded in two ways.
        let key = if elem.is_float() {
            format!("value {result}")
        } else {
            format!("{:?} {place} {ty:?} {operands:?}", data.kind)
        };
        let range = type_range(elem);
        let id = self.intern(key, Some(operands.to_vec()), inside, range);
        Form::term(id)
    }

    /// The product of two sums, term by term: `(s + 1)·n` is `s·n + n`.
    fn product(&mut self, a: &Form, b: &Form) -> Option<Form> {
        if a.terms.len() * b.terms.len() > MAX_PRODUCT {
            return None;
        }
        let mut out = Form::constant(a.constant.checked_mul(b.constant)?);
        let linear = |form: &Form| Form {
            constant: 0,
            ..form.clone()
        };
        out = out.plus(&linear(a), b.constant)?;
        out = out.plus(&linear(b), a.constant)?;
        for (&s, &c) in &a.terms {
            for (&t, &d) in &b.terms {
                let (s, t) = (s.min(t), s.max(t));
                let of = Some(vec![Form::term(s), Form::term(t)]);
                let inside = Inside::Product(s, t);
                let range = type_range(DType::I64);
                let id = self.intern(format!("product {s} {t}"), of, inside, range);
                out = out.plus(&Form::term(id), c.checked_mul(d)?)?;
            }
        }
        Some(out)
    }

    /// The form of a host formula, where it is a sum.
    pub fn formula(&mut self, formula: &Formula) -> Option<Form> {
        let mut stack: Vec<Form> = Vec::new();
        for step in &formula.0 {
            let form = match step {
                Step::Int(v) => Form::constant(*v),
                Step::Dim(d) => self.dim(*d),
                Step::Scalar(p) => self.scalar(*p)?,
                Step::Op(FormulaOp::Neg) => Form::default().plus(&stack.pop()?, -1)?,
                Step::Op(FormulaOp::Add) => {
                    let b = stack.pop()?;
                    stack.pop()?.plus(&b, 1)?
                }
                Step::Op(FormulaOp::Sub) => {
                    let b = stack.pop()?;
                    stack.pop()?.plus(&b, -1)?
                }
                Step::Op(FormulaOp::Mul) => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    self.product(&a, &b)?
                }
                _ => return None,
            };
            stack.push(form);
        }
        stack.pop()
    }

    // Parameters.

    /// The parameter that a view is, perhaps seen with other elements.
    pub fn param_of(&self, view: ValueId) -> Option<u32> {
        let data = &self.kernel.body.ops[self.kernel.body.defining_op(view)?];
        match data.kind {
            OpKind::Param(param) => Some(param),
            OpKind::ViewBitcast => self.param_of(data.operands[0]),
            _ => None,
        }
    }

    pub fn view(&self, param: u32) -> Option<&'k ViewParam> {
        match &self.kernel.header.signature.params[param as usize].kind {
            ParamKind::View(view) => Some(view),
            ParamKind::Scalar { .. } => None,
        }
    }

    pub fn is_stored(&self, view: ValueId) -> bool {
        self.param_of(view)
            .and_then(|p| self.view(p))
            .is_none_or(|v| v.access != Mode::Read)
    }

    // Definitions.

    /// Gives the arguments of a region their forms.
    pub fn enter(&mut self, op: Option<OpId>, region: RegionId) {
        let body = &self.kernel.body;
        for (i, &argument) in body.regions[region].args.iter().enumerate() {
            let inside = match op.map(|op| (&body.ops[op].kind, op)) {
                Some((OpKind::For { .. }, op)) if i == 0 => {
                    let [lo, hi] = [0, 1].map(|i| self.form(body.ops[op].operands[i]));
                    Inside::Loop(lo, hi)
                }
                _ => Inside::Opaque,
            };
            let form = self.unknown(argument, inside);
            self.forms.insert(argument, form);
        }
    }

    /// Gives the results of `op` their forms.
    pub fn define(&mut self, op: OpId) {
        let body = &self.kernel.body;
        let data = &body.ops[op];
        for (place, &result) in data.results.iter().enumerate() {
            if matches!(body.ty(result), Type::View(_)) {
                continue;
            }
            let form = self.result(op, place, result);
            self.forms.insert(result, form);
        }
    }

    fn result(&mut self, op: OpId, place: usize, result: ValueId) -> Form {
        let body = &self.kernel.body;
        let data = &body.ops[op];
        let operands: Vec<Form> = data
            .operands
            .iter()
            .filter(|v| !matches!(body.ty(**v), Type::View(_)))
            .map(|v| self.form(*v))
            .collect();
        // Arithmetic of narrower types wraps earlier than forms do.
        let scalar = *body.ty(result) == Type::Scalar(DType::I64);
        let unknown = Inside::Opaque;
        match &data.kind {
            // Small ones are the same number in every type.
            OpKind::Constant(Constant::Int(v, _)) if scalar || (0..=127).contains(v) => {
                Form::constant(*v)
            }
            OpKind::GridIndex(axis) => self.grid(*axis),
            OpKind::Dim(index) => self.dim(*index),
            OpKind::Param(param) if body.ty(result).elem().is_int() => match self.scalar(*param) {
                Some(form) => form,
                None => self.unknown(result, unknown),
            },
            OpKind::Unary(UnaryOp::Neg) if scalar => {
                let negative = Form::default().plus(&operands[0], -1);
                negative.unwrap_or_else(|| self.pure(op, place, &operands, unknown))
            }
            OpKind::Binary(BinaryOp::Add) if scalar => {
                let sum = operands[0].plus(&operands[1], 1);
                sum.unwrap_or_else(|| self.pure(op, place, &operands, unknown))
            }
            OpKind::Binary(BinaryOp::Sub) if scalar => {
                let difference = operands[0].plus(&operands[1], -1);
                difference.unwrap_or_else(|| self.pure(op, place, &operands, unknown))
            }
            OpKind::Binary(BinaryOp::Mul) if scalar => {
                let product = match (operands[0].as_constant(), operands[1].as_constant()) {
                    (_, Some(c)) => Form::default().plus(&operands[0], c),
                    (Some(c), _) => Form::default().plus(&operands[1], c),
                    _ => self.product(&operands[0], &operands[1]),
                };
                product.unwrap_or_else(|| self.pure(op, place, &operands, unknown))
            }
            OpKind::Binary(binary) if scalar => {
                let (a, b) = (operands[0].clone(), operands[1].clone());
                let inside = match binary {
                    BinaryOp::Div => Inside::Quotient(a, b),
                    BinaryOp::Rem => Inside::Remainder(a, b),
                    BinaryOp::Min => Inside::Min(a, b),
                    BinaryOp::Max => Inside::Max(a, b),
                    _ => Inside::Opaque,
                };
                self.pure(op, place, &operands, inside)
            }
            OpKind::Select if scalar => {
                let inside = Inside::Select(operands[1].clone(), operands[2].clone());
                let form = self.pure(op, place, &operands, inside);
                self.choices
                    .extend(form.as_term().map(|t| (t, data.operands[0])));
                form
            }
            OpKind::Cast if body.ty(result).shape().is_empty() && widens(self.kernel, op) => {
                operands[0].clone()
            }
            OpKind::Load { indices, .. } => {
                if self.is_stored(data.operands[0]) {
                    return self.unknown(result, unknown);
                }
                let param = self.param_of(data.operands[0]).unwrap_or(u32::MAX);
                let own = matches!(
                    body.defining_op(data.operands[0])
                        .map(|d| &body.ops[d].kind),
                    Some(OpKind::Param(_))
                );
                let inside = if own && indices.iter().all(|i| *i == Index::Scalar) {
                    let (index, pad) = operands.split_at(operands.len() - 1);
                    Inside::Element(param, index.to_vec(), pad[0].clone())
                } else {
                    Inside::Opaque
                };
                // The view is no operand of the key, so it is named by a constant.
                let mut keyed = operands.clone();
                keyed.push(Form::constant(i64::from(param)));
                keyed.push(Form::constant(i64::from(own)));
                self.pure(op, place, &keyed, inside)
            }
            OpKind::Constant(_)
            | OpKind::Param(_)
            | OpKind::Unary(_)
            | OpKind::Binary(_)
            | OpKind::Compare(_)
            | OpKind::Fma
            | OpKind::Select
            | OpKind::Cast
            | OpKind::Bitcast
            | OpKind::Broadcast
            | OpKind::Reshape
            | OpKind::Permute(_)
            | OpKind::Slice(_)
            | OpKind::Iota
            | OpKind::Reduce { .. }
            | OpKind::Dot
            | OpKind::Scan { .. }
            | OpKind::Sort { .. }
            | OpKind::TopK { .. }
            | OpKind::Histogram { .. }
            | OpKind::Occurrence
            | OpKind::Take { .. }
            | OpKind::Concat { .. } => self.pure(op, place, &operands, unknown),
            // What other blocks, iterations or the machine have a part in.
            _ => self.unknown(result, unknown),
        }
    }
}

/// Whether a cast of integers keeps every value.
fn widens(kernel: &Kernel, op: OpId) -> bool {
    let data = &kernel.body.ops[op];
    let from = kernel.body.ty(data.operands[0]).elem();
    let to = kernel.body.ty(data.results[0]).elem();
    from.is_int()
        && to.is_int()
        && (from.bits() < to.bits() && (to.is_signed() || !from.is_signed()) || from == to)
}
