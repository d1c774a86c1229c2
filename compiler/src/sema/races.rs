//! The race check: blocks run in any order, so what one stores no other may touch in the same launch.
//!
//! It works on emitted tile IR, where functions are inlined and names gone. Scalars become affine forms over grid indices,
//! dimensions, parameters and opaque terms (compared by structure, so that two computations of one thing are one term). A
//! slice tells blocks apart by *keys*, found one after another: a dimension that starts at `g*S + r`, with |S| at least
//! the slice's extent and `r` a function of earlier keys, gives `g`; several indices at once where each stride covers the
//! ones below it. Everything that is not proven by these forms is an error; there is no search beyond them.

use std::collections::{BTreeMap, HashMap};

use tesserine_set::ParamKind;

use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        OpId, RegionId, ValueId,
        tile::{BinaryOp, CompareOp, Constant, Index, Kernel, OpKind, UnaryOp},
    },
    span::Span,
};

/// Every store, and every load of a stored view, that is not proven apart from those of other blocks.
pub(crate) fn check(kernel: &Kernel) -> Vec<Diagnostic> {
    let mut checker = Checker {
        kernel,
        terms: Vec::new(),
        by_key: HashMap::new(),
        forms: HashMap::new(),
        accesses: Vec::new(),
    };
    checker.region(kernel.body.root, &[]);
    checker.judge()
}

type TermId = u32;

/// A grid has at most 2^31 blocks, so that multiples of this are still told apart in 64 bits.
const MAX_STRIDE: i64 = 1 << 31;

/// Something that a form is a sum of.
#[derive(Clone, Debug)]
struct Term {
    /// The grid axes that it depends on, by bit.
    axes: u64,
    /// Whether it has one value in a block: no loop index, nothing carried, nothing read from a stored view.
    fixed: bool,
    /// The axis, if it is a grid index.
    grid: Option<u32>,
    /// What it is made of, where a rule looks inside.
    inside: Inside,
}

#[derive(Clone, Debug)]
enum Inside {
    Opaque,
    /// Rounded down.
    Quotient(Form, Form),
    Remainder(Form, Form),
    /// An element of a `distinct` view of one dimension.
    Distinct(Form),
}

/// A sum of terms with coefficients, and a constant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Form {
    terms: BTreeMap<TermId, i64>,
    constant: i64,
}

impl Form {
    fn constant(value: i64) -> Form {
        Form {
            terms: BTreeMap::new(),
            constant: value,
        }
    }

    fn term(id: TermId) -> Form {
        Form {
            terms: BTreeMap::from([(id, 1)]),
            constant: 0,
        }
    }

    fn plus(&self, other: &Form, factor: i64) -> Option<Form> {
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

    fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The term that it is, if it is only that.
    fn as_term(&self) -> Option<TermId> {
        match self.terms.iter().next() {
            Some((&term, 1)) if self.terms.len() == 1 && self.constant == 0 => Some(term),
            _ => None,
        }
    }
}

/// A store, or a load.
struct Access {
    param: u32,
    stores: bool,
    span: Span,
    /// Of each dimension: where it starts and how many elements it has. `None`: all of them.
    dims: Vec<Option<(Form, i64)>>,
    /// Axes that have one value here, and which.
    guards: Vec<(u32, Form)>,
}

/// What a dimension tells apart.
#[derive(Clone, Debug, PartialEq)]
struct Key {
    dim: usize,
    /// Coefficients of the grid indices that it gives.
    strides: Vec<(u32, i64)>,
    /// What else is added, but for the constant.
    rest: BTreeMap<TermId, i64>,
    /// The window of constants and extents: from, and past the end.
    window: (i64, i64),
}

struct Checker<'k> {
    kernel: &'k Kernel,
    terms: Vec<Term>,
    by_key: HashMap<String, TermId>,
    forms: HashMap<ValueId, Form>,
    accesses: Vec<Access>,
}

impl Checker<'_> {
    // Forms.

    fn term(&mut self, key: String, term: Term) -> TermId {
        if let Some(&id) = self.by_key.get(&key) {
            return id;
        }
        let id = self.terms.len() as TermId;
        self.terms.push(term);
        self.by_key.insert(key, id);
        id
    }

    /// A term that equals nothing else.
    fn unknown(&mut self, value: ValueId) -> Form {
        let id = self.term(
            format!("value {value}"),
            Term {
                axes: u64::MAX,
                fixed: false,
                grid: None,
                inside: Inside::Opaque,
            },
        );
        Form::term(id)
    }

    /// Axes and constancy of a form.
    fn nature(&self, form: &Form) -> (u64, bool) {
        form.terms.keys().fold((0, true), |(axes, fixed), &t| {
            let term = &self.terms[t as usize];
            (axes | term.axes, fixed && term.fixed)
        })
    }

    fn form(&self, value: ValueId) -> Form {
        self.forms.get(&value).cloned().unwrap_or_default()
    }

    fn opaque(&mut self, op: OpId, operands: &[Form], inside: Inside) -> Form {
        let data = &self.kernel.body.ops[op];
        let (mut axes, mut fixed) = (0, true);
        // What a cast, an `iota` or a broadcast gives, its result's type says.
        let ty = data.results.first().map(|r| self.kernel.body.ty(*r));
        let mut key = format!("{:?} {ty:?}", data.kind);
        for form in operands {
            let (a, f) = self.nature(form);
            axes |= a;
            fixed &= f;
            key.push_str(&format!(" | {form:?}"));
        }
        let id = self.term(
            key,
            Term {
                axes,
                fixed,
                grid: None,
                inside,
            },
        );
        Form::term(id)
    }

    fn define(&mut self, op: OpId) {
        let body = &self.kernel.body;
        let data = &body.ops[op];
        let Some(&result) = data.results.first() else {
            return;
        };
        let operands: Vec<Form> = data.operands.iter().map(|v| self.form(*v)).collect();
        let integer = body.ty(result).shape().is_empty() && body.ty(result).elem().is_int();
        let form = match &data.kind {
            OpKind::Constant(Constant::Int(v, _)) => Form::constant(*v),
            OpKind::GridIndex(axis) => {
                let extent = self.kernel.header.axes[*axis as usize].extent.as_int();
                if extent == Some(1) {
                    Form::constant(0)
                } else {
                    let id = self.term(
                        format!("grid {axis}"),
                        Term {
                            axes: 1 << (*axis).min(63),
                            fixed: true,
                            grid: Some(*axis),
                            inside: Inside::Opaque,
                        },
                    );
                    Form::term(id)
                }
            }
            OpKind::Unary(UnaryOp::Neg) if integer => Form::default()
                .plus(&operands[0], -1)
                .unwrap_or_else(|| self.unknown(result)),
            OpKind::Binary(BinaryOp::Add) if integer => operands[0]
                .plus(&operands[1], 1)
                .unwrap_or_else(|| self.unknown(result)),
            OpKind::Binary(BinaryOp::Sub) if integer => operands[0]
                .plus(&operands[1], -1)
                .unwrap_or_else(|| self.unknown(result)),
            OpKind::Binary(BinaryOp::Mul) if integer => {
                let product = match (operands[0].as_constant(), operands[1].as_constant()) {
                    (_, Some(c)) => Form::default().plus(&operands[0], c),
                    (Some(c), _) => Form::default().plus(&operands[1], c),
                    _ => Some(self.opaque(op, &operands, Inside::Opaque)),
                };
                product.unwrap_or_else(|| self.unknown(result))
            }
            OpKind::Binary(BinaryOp::Div) if integer => {
                let inside = Inside::Quotient(operands[0].clone(), operands[1].clone());
                self.opaque(op, &operands, inside)
            }
            OpKind::Binary(BinaryOp::Rem) if integer => {
                let inside = Inside::Remainder(operands[0].clone(), operands[1].clone());
                self.opaque(op, &operands, inside)
            }
            OpKind::Cast if integer && widens(self.kernel, op) => operands[0].clone(),
            OpKind::Load { indices, .. } => {
                if self.is_stored(data.operands[0]) {
                    self.unknown(result)
                } else {
                    let distinct = match (self.facts(data.operands[0]), &indices[..]) {
                        (Some(facts), [Index::Scalar])
                            if facts.distinct && self.is_inside(data.operands[0], &operands[1]) =>
                        {
                            Inside::Distinct(operands[1].clone())
                        }
                        _ => Inside::Opaque,
                    };
                    self.opaque(op, &operands, distinct)
                }
            }
            OpKind::If
            | OpKind::For { .. }
            | OpKind::While
            | OpKind::Atomic { .. }
            | OpKind::Arrive { .. }
            | OpKind::ClusterReduce { .. }
            | OpKind::Ptx { .. } => {
                for &result in &data.results {
                    let form = self.unknown(result);
                    self.forms.insert(result, form);
                }
                return;
            }
            _ => self.opaque(op, &operands, Inside::Opaque),
        };
        self.forms.insert(result, form);
    }

    fn param_of(&self, view: ValueId) -> Option<u32> {
        match self.kernel.body.ops[self.kernel.body.defining_op(view)?].kind {
            OpKind::Param(param) => Some(param),
            _ => None,
        }
    }

    fn facts(&self, view: ValueId) -> Option<tesserine_set::ViewFacts> {
        match &self.kernel.header.signature.params[self.param_of(view)? as usize].kind {
            ParamKind::View(view) => Some(view.facts),
            ParamKind::Scalar { .. } => None,
        }
    }

    /// Whether `index` of a view of one dimension is never outside: a grid index whose axis has the view's extent. What
    /// lies outside reads as the pad in every block alike, so that a `distinct` view tells nothing apart there.
    fn is_inside(&self, view: ValueId, index: &Form) -> bool {
        let header = &self.kernel.header;
        let axis = index
            .as_term()
            .and_then(|term| self.terms[term as usize].grid);
        let (Some(axis), Some(param)) = (axis, self.param_of(view)) else {
            return false;
        };
        match &header.signature.params[param as usize].kind {
            ParamKind::View(view) => {
                view.extents.first() == Some(&header.axes[axis as usize].extent)
            }
            ParamKind::Scalar { .. } => false,
        }
    }

    fn is_stored(&self, view: ValueId) -> bool {
        self.param_of(view).is_none_or(|p| {
            matches!(
                &self.kernel.header.signature.params[p as usize].kind,
                ParamKind::View(v) if v.access != tesserine_set::Access::Read
            )
        })
    }

    // The walk.

    fn region(&mut self, region: RegionId, guards: &[(u32, Form)]) {
        let body = &self.kernel.body;
        for &argument in &body.regions[region].args {
            let form = self.unknown(argument);
            self.forms.insert(argument, form);
        }
        for &op in &body.regions[region].ops {
            let data = &body.ops[op];
            match &data.kind {
                OpKind::Load { indices, .. } if self.is_stored(data.operands[0]) => {
                    self.access(op, indices, false, guards)
                }
                OpKind::Store {
                    indices,
                    scatter: false,
                    ..
                } => self.access(op, indices, true, guards),
                OpKind::If => {
                    let (mut yes, mut no) = (guards.to_vec(), guards.to_vec());
                    self.guards(data.operands[0], true, &mut yes);
                    self.guards(data.operands[0], false, &mut no);
                    self.region(data.regions[0], &yes);
                    self.region(data.regions[1], &no);
                }
                OpKind::For { .. } | OpKind::While => {
                    for &inner in &data.regions {
                        self.region(inner, guards);
                    }
                }
                _ => {}
            }
            self.define(op);
        }
    }

    /// What is known of grid indices where `cond` is `truth`: `g == e` where `e` is the same in every block.
    fn guards(&self, cond: ValueId, truth: bool, out: &mut Vec<(u32, Form)>) {
        let body = &self.kernel.body;
        let Some(op) = body.defining_op(cond) else {
            return;
        };
        let data = &body.ops[op];
        match (&data.kind, truth) {
            (OpKind::Binary(BinaryOp::And), true) | (OpKind::Binary(BinaryOp::Or), false) => {
                self.guards(data.operands[0], truth, out);
                self.guards(data.operands[1], truth, out);
            }
            (OpKind::Unary(UnaryOp::Not), _) => self.guards(data.operands[0], !truth, out),
            (OpKind::Compare(CompareOp::Eq), true) | (OpKind::Compare(CompareOp::Ne), false) => {
                let Some(difference) = self
                    .form(data.operands[0])
                    .plus(&self.form(data.operands[1]), -1)
                else {
                    return;
                };
                let mut grid = None;
                for (&term, &c) in &difference.terms {
                    let term = &self.terms[term as usize];
                    match term.grid {
                        Some(axis) if c.unsigned_abs() == 1 && grid.is_none() => {
                            grid = Some((axis, c))
                        }
                        _ if term.axes == 0 && term.fixed => {}
                        _ => return,
                    }
                }
                if let Some((axis, c)) = grid {
                    let mut value = Form::default().plus(&difference, -c).unwrap_or_default();
                    value
                        .terms
                        .retain(|t, _| self.terms[*t as usize].grid.is_none());
                    out.push((axis, value));
                }
            }
            _ => {}
        }
    }

    fn access(&mut self, op: OpId, indices: &[Index], stores: bool, guards: &[(u32, Form)]) {
        let data = &self.kernel.body.ops[op];
        let Some(param) = self.param_of(data.operands[0]) else {
            return;
        };
        let mut operands = data.operands[1..].iter();
        let mut dims = Vec::new();
        for index in indices {
            let start = match index {
                Index::Whole { .. } => None,
                _ => operands.next().map(|v| self.form(*v)),
            };
            if let Index::Range { until: true, .. } = index {
                operands.next();
            }
            dims.push(start.map(|s| (s, index.extent().map_or(1, i64::from))));
        }
        self.accesses.push(Access {
            param,
            stores,
            span: data.span,
            dims,
            guards: guards.to_vec(),
        });
    }

    // The judgement.

    fn judge(&self) -> Vec<Diagnostic> {
        let mut out: Vec<Diagnostic> = Vec::new();
        let params = &self.kernel.header.signature.params;
        for (param, _) in params.iter().enumerate() {
            let accesses: Vec<&Access> = self
                .accesses
                .iter()
                .filter(|a| a.param == param as u32)
                .collect();
            if !accesses.iter().any(|a| a.stores) {
                continue;
            }
            let before = out.len();
            for access in &accesses {
                if let Err(missing) = self.keys(&[access]) {
                    out.push(self.not_apart(access, missing));
                }
            }
            if out.len() > before {
                continue;
            }
            // One by one they are apart; together they must be so in one way.
            if self.keys(&accesses).is_err() {
                let first = accesses[0];
                let other = accesses[1..]
                    .iter()
                    .find(|a| self.keys(&[first, a]).is_err())
                    .copied()
                    .unwrap_or(accesses[accesses.len() - 1]);
                out.push(self.not_alike(first, other));
            }
        }
        out
    }

    /// The keys that all of `accesses` have in common, or the axes that they leave open.
    fn keys(&self, accesses: &[&Access]) -> Result<Vec<Key>, u64> {
        let axes = &self.kernel.header.axes;
        let mut open: u64 = 0;
        for (i, axis) in axes.iter().enumerate() {
            let guarded = accesses[0].guards.iter().any(|(g, value)| {
                *g == i as u32
                    && accesses
                        .iter()
                        .all(|a| a.guards.contains(&(*g, value.clone())))
            });
            if axis.extent.as_int() != Some(1) && !guarded {
                open |= 1 << i.min(63);
            }
        }
        let rank = accesses[0].dims.len();
        let mut keys: Vec<Key> = Vec::new();
        let mut used = vec![false; rank];
        let mut known: u64 = !open;
        while known != u64::MAX {
            let mut progress = false;
            for (dim, used) in used.iter_mut().enumerate() {
                if *used {
                    continue;
                }
                if let Some(key) = self.key(accesses, dim, known) {
                    for (axis, _) in &key.strides {
                        known |= 1 << (*axis).min(63);
                    }
                    *used = true;
                    progress = true;
                    keys.push(key);
                }
            }
            if !progress {
                match self.split_key(accesses, known) {
                    Some(axes) => known |= axes,
                    None => return Err(!known),
                }
            }
        }
        Ok(keys)
    }

    /// What dimension `dim` tells apart in all accesses alike.
    fn key(&self, accesses: &[&Access], dim: usize, known: u64) -> Option<Key> {
        let mut joint: Option<Key> = None;
        for access in accesses {
            let (start, extent) = access.dims[dim].as_ref()?;
            let start = self.resolve(start, *extent);
            let mut strides = Vec::new();
            let mut rest = BTreeMap::new();
            for (&term, &c) in &start.terms {
                let data = &self.terms[term as usize];
                match data.grid {
                    Some(axis) if known >> axis.min(63) & 1 == 0 => strides.push((axis, c)),
                    _ if data.fixed && data.axes & !known == 0 => {
                        rest.insert(term, c);
                    }
                    _ => return None,
                }
            }
            if strides.is_empty() {
                return None;
            }
            let window = (start.constant, start.constant.checked_add(*extent)?);
            joint = Some(match joint {
                None => Key {
                    dim,
                    strides,
                    rest,
                    window,
                },
                Some(key) if key.strides == strides && key.rest == rest => Key {
                    window: (key.window.0.min(window.0), key.window.1.max(window.1)),
                    ..key
                },
                Some(_) => return None,
            });
        }
        let key = joint?;
        // Each stride must cover the window and all smaller strides.
        let mut strides = key.strides.clone();
        strides.sort_by_key(|(_, c)| c.unsigned_abs());
        let mut covered = key.window.1.checked_sub(key.window.0)?;
        for (i, (axis, c)) in strides.iter().enumerate() {
            // Of a larger stride, the multiples for 2^31 blocks could wrap around 64 bits and meet.
            if c.checked_abs()? < covered || c.checked_abs()? > MAX_STRIDE {
                return None;
            }
            if i + 1 < strides.len() {
                let extent = self.kernel.header.axes[*axis as usize].extent.as_int()?;
                covered = c.checked_abs()?.checked_mul(extent)?;
            }
        }
        Some(key)
    }

    /// An element of a `distinct` view gives its index.
    fn resolve(&self, start: &Form, extent: i64) -> Form {
        if extent == 1
            && let Some(term) = start.as_term()
            && let Inside::Distinct(index) = &self.terms[term as usize].inside
        {
            return index.clone();
        }
        start.clone()
    }

    /// `x / c` in one dimension and `x % c` in another give `x`, and so a grid index, if blocks that are not told apart
    /// have one `c`.
    fn split_key(&self, accesses: &[&Access], known: u64) -> Option<u64> {
        let first = accesses[0];
        for (i, dim) in first.dims.iter().enumerate() {
            let Some((form, 1)) = dim else { continue };
            let Some(Inside::Quotient(x, c)) =
                form.as_term().map(|t| &self.terms[t as usize].inside)
            else {
                continue;
            };
            for (j, dim) in first.dims.iter().enumerate() {
                let Some((form, 1)) = dim else { continue };
                let Some(Inside::Remainder(y, d)) =
                    form.as_term().map(|t| &self.terms[t as usize].inside)
                else {
                    continue;
                };
                let alike = accesses[1..]
                    .iter()
                    .all(|a| a.dims[i] == first.dims[i] && a.dims[j] == first.dims[j]);
                let (axes, fixed) = self.nature(c);
                let common = fixed && axes & !known == 0;
                if x != y || c != d || !common || !alike {
                    continue;
                }
                let whole = Access {
                    param: first.param,
                    stores: first.stores,
                    span: first.span,
                    dims: vec![Some((x.clone(), 1))],
                    guards: Vec::new(),
                };
                if let Some(key) = self.key(&[&whole], 0, known) {
                    return Some(
                        key.strides
                            .iter()
                            .fold(0, |axes, (a, _)| axes | 1 << (*a).min(63)),
                    );
                }
            }
        }
        None
    }

    // Words.

    fn not_apart(&self, access: &Access, missing: u64) -> Diagnostic {
        let header = &self.kernel.header;
        let names: Vec<&str> = header
            .axes
            .iter()
            .enumerate()
            .filter(|(i, _)| missing >> (*i).min(63) & 1 == 1)
            .map(|(_, a)| a.name.as_str())
            .collect();
        let axis = names.first().copied().unwrap_or("?");
        let view = &header.signature.params[access.param as usize].name;
        let mut diagnostic = if access.stores {
            Diagnostic::error(
                codes::E0401,
                access.span,
                format!(
                    "blocks that differ in `{axis}` may store to the same elements of `{view}`"
                ),
            )
        } else {
            Diagnostic::error(
                codes::E0402,
                access.span,
                format!(
                    "blocks that differ in `{axis}` may read elements of `{view}` that another stores"
                ),
            )
        };
        // A dimension that begins as it should, and is too long.
        let index = header.axes.iter().position(|a| a.name == axis).unwrap_or(0) as u32;
        for (start, extent) in access.dims.iter().flatten() {
            for (&term, &c) in &start.terms {
                if self.terms[term as usize].grid == Some(index)
                    && c.unsigned_abs() < extent.unsigned_abs()
                {
                    diagnostic = diagnostic.note(format!(
                        "its starts are {} apart from one `{axis}` to the next, and the slice has {extent} elements",
                        c.unsigned_abs()
                    ));
                }
            }
        }
        if names.len() > 1 {
            let rest: Vec<String> = names[1..].iter().map(|n| format!("`{n}`")).collect();
            diagnostic =
                diagnostic.note(format!("nor does anything tell {} apart", rest.join(", ")));
        }
        diagnostic = diagnostic.note(format!(
            "a slice tells blocks apart where a dimension starts at `{axis}*S + …` with S at least its length, or is indexed by `{axis}`; what is added may depend only on indices that are told apart already"
        ));
        if access.stores {
            diagnostic.help(format!(
                "let `{axis}` choose the slice, or store under `if {axis} == 0`; if what is stored differs by construction, write `scatter`"
            ))
        } else {
            diagnostic.help("read the slice that this block stores, or take the data through a second, read-only view")
        }
    }

    fn not_alike(&self, first: &Access, other: &Access) -> Diagnostic {
        let view = &self.kernel.header.signature.params[first.param as usize].name;
        // A read is what the author can move.
        let (at, from) = if other.stores && !first.stores {
            (first, other)
        } else {
            (other, first)
        };
        let code = if at.stores {
            codes::E0401
        } else {
            codes::E0402
        };
        Diagnostic::error(
            code,
            at.span,
            format!("two blocks may touch the same elements of `{view}`: here, and at another access of it"),
        )
        .label(from.span, "the other access")
        .note("each alone tells blocks apart, but not in the same way: the same dimension, the same stride, and both within one stride")
    }
}

/// Whether a cast of integers keeps every value.
fn widens(kernel: &Kernel, op: OpId) -> bool {
    let data = &kernel.body.ops[op];
    let from = kernel.body.ty(data.operands[0]).elem();
    let to = kernel.body.ty(data.results[0]).elem();
    from.is_int()
        && (from.bits() < to.bits() && (to.is_signed() || !from.is_signed()) || from == to)
}
