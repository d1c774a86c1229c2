//! Binding: what a launch's arguments mean under a signature.
//!
//! Owns every check that needs no device: missing arguments, element types, ranks, extents against the signature's
//! equations, strides, alignment, and overlap of what is stored to. Invariants: binding never panics, whatever the
//! arguments or the formulas hold; the names of dimensions are bound in the order of the parameters, bare occurrences
//! first; each error names the argument at fault.

use std::fmt;

use smallvec::{SmallVec, smallvec};

use crate::{
    Access, DType, Env, Fact, Formula, FormulaError, FormulaOp, ParamKind, Signature, Term,
    ViewParam,
};

/// No tensor has more elements along a dimension. The compiler counts on it: products of indices do not wrap.
pub const MAX_EXTENT: i64 = 1 << 48;

/// What is passed for one parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArgShape<'a> {
    /// A tensor. Its memory is not touched.
    View {
        dtype: DType,
        /// Extents, in elements.
        shape: &'a [i64],
        /// One stride a dimension, in elements.
        strides: &'a [i64],
        /// Where element 0 lies, in bytes. A caller whose tensors have no addresses passes distinct, aligned ones that
        /// are as far apart as the tensors are long.
        address: u64,
    },
    /// A number.
    Scalar(ScalarValue),
}

/// The value of a scalar argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalarValue {
    /// For integers, bools (0 or 1) and floats alike.
    Int(i64),
    /// For floats only.
    Float(f64),
}

impl ScalarValue {
    /// The value as a float.
    pub fn as_f64(self) -> f64 {
        match self {
            ScalarValue::Int(value) => value as f64,
            ScalarValue::Float(value) => value,
        }
    }

    /// The value as an integer; a float is truncated.
    pub fn as_i64(self) -> i64 {
        match self {
            ScalarValue::Int(value) => value,
            ScalarValue::Float(value) => value as i64,
        }
    }
}

impl fmt::Display for ScalarValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScalarValue::Int(value) => write!(f, "{value}"),
            ScalarValue::Float(value) => write!(f, "{value}"),
        }
    }
}

/// A list that needs no allocation as long as it is short: a launch allocates as little as it can.
pub type Short<T> = SmallVec<[T; 8]>;

/// Arguments that passed every check, and what they bound.
#[derive(Clone, Debug)]
pub struct Binding<'a> {
    /// Whose parameters they are.
    pub signature: &'a Signature,
    /// As passed, one a parameter.
    pub args: &'a [Option<ArgShape<'a>>],
    /// Extents, as `Signature::dims` lists the names. A dimension of optional tensors only, none of which was given,
    /// is 0.
    pub dims: Short<i64>,
    /// Integer scalars, as `Signature::params` lists the parameters; 0 for all others.
    pub scalars: Short<i64>,
    /// Scalars with their defaults filled in; `None` for tensors and for what was left out.
    pub values: Short<Option<ScalarValue>>,
    /// Whether each parameter was given.
    pub given: Short<bool>,
    /// The parameter that bound each dimension.
    sources: Short<Option<u32>>,
}

/// Why arguments do not fit a signature.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BindError {
    #[error("{given} arguments were passed, and the kernel has {expected} parameters")]
    Count { given: usize, expected: usize },
    #[error("`{param}` is missing")]
    Missing { param: String },
    #[error("`{param}` is a tensor of {expected}, and a number was passed")]
    ScalarForView { param: String, expected: DType },
    #[error("`{param}` is a number ({expected}), and a tensor was passed")]
    ViewForScalar { param: String, expected: DType },
    #[error("`{param}` is {expected}, and {value} was passed")]
    ScalarValue {
        param: String,
        expected: DType,
        value: ScalarValue,
    },
    #[error("`{param}` has elements of {given}, and the kernel takes {expected}")]
    DType {
        param: String,
        given: DType,
        expected: DType,
    },
    #[error("`{param}` has {given} dimensions, and the kernel takes {expected}: {declared}")]
    Rank {
        param: String,
        given: usize,
        expected: usize,
        declared: String,
    },
    #[error("`{param}` has {strides} strides for {shape} dimensions")]
    StrideCount {
        param: String,
        strides: usize,
        shape: usize,
    },
    #[error("`{param}` has {extent} elements in dimension {dim}")]
    NegativeExtent {
        param: String,
        dim: usize,
        extent: i64,
    },
    #[error("`{param}` has {extent} elements in dimension {dim}, and 2^48 are the most")]
    LargeExtent {
        param: String,
        dim: usize,
        extent: i64,
    },
    #[error("`{param}` has {given} elements in dimension {dim}, but {expected}")]
    Extent {
        param: String,
        dim: usize,
        given: i64,
        /// "`n` is 4096 (from `x`)".
        expected: String,
    },
    #[error(
        "`{param}` has {given} elements in dimension {dim}, which is `{formula}` for no extent `{name}`"
    )]
    Unsolvable {
        param: String,
        dim: usize,
        given: i64,
        formula: String,
        name: String,
    },
    #[error("no argument gives dimension `{dim}` its extent")]
    Unbound { dim: String },
    #[error("dimension {dim} of `{param}` should have `{formula}` elements: {error}")]
    Formula {
        param: String,
        dim: usize,
        formula: String,
        error: FormulaError,
    },
    #[error("`{param}` reaches outside the address space")]
    TooLarge { param: String },
    #[error("`{param}` has stride {stride} in its last dimension, and the kernel takes 1")]
    LastStride { param: String, stride: i64 },
    #[error("`{param}` has stride 0 in dimension {dim}, and the kernel stores to it")]
    RepeatedStore { param: String, dim: usize },
    #[error("`{param}` must start at a multiple of {bytes} bytes, and its address is {address:#x}")]
    Address {
        param: String,
        bytes: u32,
        address: u64,
    },
    #[error(
        "the rows of `{param}` must start at multiples of {bytes} bytes, and its stride in dimension {dim} is {stride} elements of {dtype}"
    )]
    StrideAlignment {
        param: String,
        bytes: u32,
        dim: usize,
        stride: i64,
        dtype: DType,
    },
    #[error("`{first}` and `{second}` overlap in memory, and the kernel stores to `{written}`")]
    Overlap {
        first: String,
        second: String,
        written: String,
    },
}

impl Signature {
    /// The index of the parameter of that name.
    pub fn param(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|p| p.name == name)
    }

    /// A formula with this signature's names.
    pub fn show(&self, formula: &Formula) -> String {
        let names: Vec<&str> = self.params.iter().map(|p| p.name.as_str()).collect();
        formula.display(&self.dims, &names).to_string()
    }

    /// A fact with this signature's names: `n % 8 == 0`, `aligned(x, 16)`.
    pub fn show_fact(&self, fact: &Fact) -> String {
        match fact {
            Fact::Holds(formula) => self.show(formula),
            Fact::Aligned { param, bytes } => {
                let name = self.params.get(*param as usize).map_or("?", |p| &p.name);
                format!("aligned({name}, {bytes})")
            }
        }
    }

    /// A view's shape as declared: `[m, 2 * n]`.
    fn show_extents(&self, view: &ViewParam) -> String {
        let extents: Vec<String> = view.extents.iter().map(|e| self.show(e)).collect();
        format!("[{}]", extents.join(", "))
    }

    /// Checks `args`, one a parameter, and gives the extents that they bind.
    pub fn bind<'a>(&'a self, args: &'a [Option<ArgShape<'a>>]) -> Result<Binding<'a>, BindError> {
        if args.len() != self.params.len() {
            return Err(BindError::Count {
                given: args.len(),
                expected: self.params.len(),
            });
        }
        let count = self.params.len();
        let mut binding = Binding {
            signature: self,
            args,
            dims: smallvec![0; self.dims.len()],
            scalars: smallvec![0; count],
            values: smallvec![None; count],
            given: args.iter().map(Option::is_some).collect(),
            sources: smallvec![None; self.dims.len()],
        };
        binding.take_scalars()?;
        binding.check_forms()?;
        binding.solve_dims()?;
        binding.check_extents()?;
        binding.check_memory()?;
        binding.check_overlap()?;
        Ok(binding)
    }
}

/// A tensor argument beside its declaration.
#[derive(Clone, Copy)]
struct View<'a> {
    index: usize,
    name: &'a str,
    declared: &'a ViewParam,
    dtype: DType,
    shape: &'a [i64],
    strides: &'a [i64],
    address: u64,
}

impl View<'_> {
    fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// The first unmet part of "the base and every stride but the last are multiples of `bytes`". What no index but 0
    /// reaches has no say.
    fn misalignment(&self, bytes: u32) -> Option<BindError> {
        if self.is_empty() || bytes == 0 {
            return None;
        }
        if !self.address.is_multiple_of(bytes as u64) {
            return Some(BindError::Address {
                param: self.name.to_owned(),
                bytes,
                address: self.address,
            });
        }
        let rows = self.shape.len().saturating_sub(1);
        let dim = (0..rows).find(|&d| {
            let (stride, bits, unit) = (self.strides[d], self.dtype.bits(), 8 * bytes as i64);
            let rest = match stride.checked_mul(bits as i64) {
                Some(bits) => bits % unit,
                None => (stride as i128 * bits as i128 % unit as i128) as i64,
            };
            self.shape[d] > 1 && rest != 0
        })?;
        Some(BindError::StrideAlignment {
            param: self.name.to_owned(),
            bytes,
            dim,
            stride: self.strides[dim],
            dtype: self.dtype,
        })
    }

    /// Bits from the base to the lowest and past the highest element.
    fn reach(&self) -> (i128, i128) {
        if let Some((low, high)) = self.short_reach() {
            return (low as i128, high as i128);
        }
        let bits = self.dtype.bits() as i128;
        let (mut low, mut high) = (0, bits);
        for (&extent, &stride) in self.shape.iter().zip(self.strides) {
            let span = (extent as i128 - 1).saturating_mul(stride as i128 * bits);
            if span < 0 {
                low = span.saturating_add(low);
            } else {
                high = span.saturating_add(high);
            }
        }
        (low, high)
    }

    /// The same, where 64 bits do: all but tensors that no address space holds.
    fn short_reach(&self) -> Option<(i64, i64)> {
        let bits = self.dtype.bits() as i64;
        let (mut low, mut high) = (0i64, bits);
        for (&extent, &stride) in self.shape.iter().zip(self.strides) {
            let span = (extent - 1).checked_mul(stride)?.checked_mul(bits)?;
            let end = if span < 0 { &mut low } else { &mut high };
            *end = end.checked_add(span)?;
        }
        Some((low, high))
    }

    /// The window within each period of `period` bits that the elements lie in, as its start relative to the base and
    /// its length.
    fn window(&self, period: i128) -> (i128, i128) {
        let bits = self.dtype.bits() as i128;
        let (mut low, mut high) = (0i128, bits);
        for (&extent, &stride) in self.shape.iter().zip(self.strides) {
            let stride = stride as i128 * bits;
            if extent > 1 && stride % period != 0 {
                let span = (extent as i128 - 1).saturating_mul(stride);
                if span < 0 {
                    low += span;
                } else {
                    high += span;
                }
            }
        }
        (low, high - low)
    }
}

/// Whether two tensors provably share no bit: their whole extents lie apart, or some stride of theirs is a period in
/// which each keeps to its own window (slices of one parent along a dimension).
fn disjoint(a: &View<'_>, b: &View<'_>) -> bool {
    if a.is_empty() || b.is_empty() {
        return true;
    }
    let (base_a, base_b) = (a.address as i128 * 8, b.address as i128 * 8);
    let ((low_a, high_a), (low_b, high_b)) = (a.reach(), b.reach());
    if base_a + high_a <= base_b + low_b || base_b + high_b <= base_a + low_a {
        return true;
    }
    let periods = [a, b].into_iter().flat_map(|v| {
        let bits = v.dtype.bits() as i128;
        let dims = v.shape.iter().zip(v.strides);
        dims.filter(|(extent, stride)| **extent > 1 && **stride != 0)
            .map(move |(_, stride)| (*stride as i128 * bits).abs())
    });
    for period in periods {
        let ((start_a, length_a), (start_b, length_b)) = (a.window(period), b.window(period));
        if length_a + length_b > period {
            continue;
        }
        let gap = (base_b + start_b - base_a - start_a).rem_euclid(period);
        if gap >= length_a && gap + length_b <= period {
            return true;
        }
    }
    false
}

/// A formula of which at most one dimension is not known yet.
#[derive(Clone, Copy)]
enum Partial {
    Known(i64),
    /// `scale * dim + offset`.
    Linear {
        dim: u32,
        scale: i64,
        offset: i64,
    },
    Opaque,
}

impl Partial {
    fn apply(op: FormulaOp, a: Partial, b: Partial) -> Option<Partial> {
        use Partial::*;
        let linear = |dim, scale: Option<i64>, offset: Option<i64>| match (scale, offset) {
            (Some(scale), Some(offset)) if scale != 0 => Linear { dim, scale, offset },
            _ => Opaque,
        };
        Some(match (op, a, b) {
            (_, Known(a), Known(b)) => Known(op.apply(a, b)?),
            (FormulaOp::Neg, Linear { dim, scale, offset }, _) => {
                linear(dim, scale.checked_neg(), offset.checked_neg())
            }
            (FormulaOp::Add, Linear { dim, scale, offset }, Known(c))
            | (FormulaOp::Add, Known(c), Linear { dim, scale, offset }) => {
                linear(dim, Some(scale), offset.checked_add(c))
            }
            (FormulaOp::Sub, Linear { dim, scale, offset }, Known(c)) => {
                linear(dim, Some(scale), offset.checked_sub(c))
            }
            (FormulaOp::Sub, Known(c), Linear { dim, scale, offset }) => {
                linear(dim, scale.checked_neg(), c.checked_sub(offset))
            }
            (FormulaOp::Mul, Linear { dim, scale, offset }, Known(c))
            | (FormulaOp::Mul, Known(c), Linear { dim, scale, offset }) => {
                linear(dim, scale.checked_mul(c), offset.checked_mul(c))
            }
            _ => Opaque,
        })
    }
}

impl<'a> Binding<'a> {
    /// What formulas are evaluated over.
    pub fn env(&self) -> Env<'_> {
        Env {
            dims: &self.dims,
            scalars: &self.scalars,
            given: &self.given,
            multiprocessors: 1,
        }
    }

    /// The extent of the dimension of that name.
    pub fn dim(&self, name: &str) -> Option<i64> {
        let index = self.signature.dims.iter().position(|d| d == name)?;
        Some(self.dims[index])
    }

    /// Whether `fact` holds. One that cannot be evaluated does not.
    pub fn holds(&self, fact: &Fact) -> bool {
        match fact {
            Fact::Holds(formula) => formula.eval(&self.env()).is_ok_and(|value| value != 0),
            Fact::Aligned { param, bytes } => {
                let given = self.given.get(*param as usize);
                match self.view(*param as usize) {
                    Some(view) => view.misalignment(*bytes).is_none(),
                    None => given == Some(&false),
                }
            }
        }
    }

    /// A failing fact in the caller's terms: "n % 8 == 0 (`n` is 100, from `x`)".
    pub fn explain(&self, fact: &Fact) -> String {
        let text = self.signature.show_fact(fact);
        match fact {
            Fact::Holds(formula) => match self.where_names(formula) {
                names if names.is_empty() => text,
                names => format!("{text} ({names})"),
            },
            Fact::Aligned { param, bytes } => {
                match self
                    .view(*param as usize)
                    .and_then(|v| v.misalignment(*bytes))
                {
                    Some(error) => format!("{text} ({error})"),
                    None => text,
                }
            }
        }
    }

    /// "`n` is 100, from `x`; `k` is 3": the names that a formula mentions.
    fn where_names(&self, formula: &Formula) -> String {
        let mut seen: Vec<String> = Vec::new();
        for term in &formula.0 {
            let text = match *term {
                Term::Dim(dim) => match self.signature.dims.get(dim as usize) {
                    Some(name) => {
                        let from = self.source(dim as usize);
                        let from = from.map_or(String::new(), |s| format!(", from `{s}`"));
                        format!("`{name}` is {}{from}", self.dims[dim as usize])
                    }
                    None => continue,
                },
                Term::Scalar(param) => match self.signature.params.get(param as usize) {
                    Some(p) => format!("`{}` is {}", p.name, self.scalars[param as usize]),
                    None => continue,
                },
                _ => continue,
            };
            if !seen.contains(&text) {
                seen.push(text);
            }
        }
        seen.join("; ")
    }

    /// The name of the parameter that bound dimension `dim`.
    pub fn source(&self, dim: usize) -> Option<&'a str> {
        let param = (*self.sources.get(dim)?)?;
        Some(&self.signature.params[param as usize].name)
    }

    fn view(&self, index: usize) -> Option<View<'a>> {
        let param = self.signature.params.get(index)?;
        match (&param.kind, self.args.get(index)?.as_ref()?) {
            (
                ParamKind::View(declared),
                ArgShape::View {
                    dtype,
                    shape,
                    strides,
                    address,
                },
            ) => Some(View {
                index,
                name: &param.name,
                declared,
                dtype: *dtype,
                shape,
                strides,
                address: *address,
            }),
            _ => None,
        }
    }

    fn views(&self) -> impl Iterator<Item = View<'a>> {
        (0..self.args.len()).filter_map(|i| self.view(i))
    }

    fn take_scalars(&mut self) -> Result<(), BindError> {
        let (signature, args) = (self.signature, self.args);
        for (i, (param, arg)) in signature.params.iter().zip(args).enumerate() {
            let name = || param.name.clone();
            let (dtype, default) = match (&param.kind, arg) {
                (ParamKind::View(_), None) if !param.optional => {
                    return Err(BindError::Missing { param: name() });
                }
                (ParamKind::View(view), Some(ArgShape::Scalar(_))) => {
                    return Err(BindError::ScalarForView {
                        param: name(),
                        expected: view.dtype,
                    });
                }
                (ParamKind::View(_), _) => continue,
                (ParamKind::Scalar { dtype, .. }, Some(ArgShape::View { .. })) => {
                    return Err(BindError::ViewForScalar {
                        param: name(),
                        expected: *dtype,
                    });
                }
                (ParamKind::Scalar { dtype, default }, _) => (*dtype, *default),
            };
            let value = match (arg, default) {
                (Some(ArgShape::Scalar(value)), _) => *value,
                (_, Some(default)) if dtype.is_float() => ScalarValue::Float(default),
                (_, Some(default)) => ScalarValue::Int(default as i64),
                _ if param.optional => continue,
                _ => return Err(BindError::Missing { param: name() }),
            };
            if !scalar_fits(dtype, value) {
                return Err(BindError::ScalarValue {
                    param: name(),
                    expected: dtype,
                    value,
                });
            }
            if !dtype.is_float() {
                self.scalars[i] = value.as_i64();
            }
            self.values[i] = Some(value);
        }
        Ok(())
    }

    fn check_forms(&self) -> Result<(), BindError> {
        for view in self.views() {
            let param = || view.name.to_owned();
            if view.dtype != view.declared.dtype {
                return Err(BindError::DType {
                    param: param(),
                    given: view.dtype,
                    expected: view.declared.dtype,
                });
            }
            if view.shape.len() != view.declared.extents.len() {
                return Err(BindError::Rank {
                    param: param(),
                    given: view.shape.len(),
                    expected: view.declared.extents.len(),
                    declared: self.signature.show_extents(view.declared),
                });
            }
            if view.strides.len() != view.shape.len() {
                return Err(BindError::StrideCount {
                    param: param(),
                    strides: view.strides.len(),
                    shape: view.shape.len(),
                });
            }
            if let Some(dim) = view.shape.iter().position(|&e| e < 0) {
                return Err(BindError::NegativeExtent {
                    param: param(),
                    dim,
                    extent: view.shape[dim],
                });
            }
            if let Some(dim) = view.shape.iter().position(|&e| e > MAX_EXTENT) {
                return Err(BindError::LargeExtent {
                    param: param(),
                    dim,
                    extent: view.shape[dim],
                });
            }
        }
        Ok(())
    }

    fn solve_dims(&mut self) -> Result<(), BindError> {
        let views: Short<View<'a>> = self.views().collect();
        for view in &views {
            for (formula, &extent) in view.declared.extents.iter().zip(view.shape) {
                if let Some(dim) = formula.as_dim().map(|d| d as usize)
                    && self.sources.get(dim) == Some(&None)
                {
                    self.dims[dim] = extent;
                    self.sources[dim] = Some(view.index as u32);
                }
            }
        }
        // Each round binds a dimension or is the last.
        while self.sources.contains(&None) {
            let mut progress = false;
            for view in &views {
                for (d, formula) in view.declared.extents.iter().enumerate() {
                    let extent = view.shape[d];
                    let Some(Partial::Linear { dim, scale, offset }) = self.reduce(formula) else {
                        continue;
                    };
                    let scaled = extent.checked_sub(offset);
                    let value = scaled.filter(|s| s.checked_rem(scale) == Some(0));
                    let value = value.and_then(|s| s.checked_div(scale)).filter(|v| *v >= 0);
                    let Some(value) = value else {
                        return Err(BindError::Unsolvable {
                            param: view.name.to_owned(),
                            dim: d,
                            given: extent,
                            formula: self.signature.show(formula),
                            name: self.signature.dims[dim as usize].clone(),
                        });
                    };
                    self.dims[dim as usize] = value;
                    self.sources[dim as usize] = Some(view.index as u32);
                    progress = true;
                }
            }
            if !progress {
                break;
            }
        }
        for (dim, source) in self.sources.iter().enumerate() {
            if source.is_none() && !self.only_in_omitted(dim) {
                return Err(BindError::Unbound {
                    dim: self.signature.dims[dim].clone(),
                });
            }
        }
        Ok(())
    }

    /// Whether tensors mention a dimension, and none of these was given.
    fn only_in_omitted(&self, dim: usize) -> bool {
        let mut mentioned = false;
        for (i, param) in self.signature.params.iter().enumerate() {
            let ParamKind::View(view) = &param.kind else {
                continue;
            };
            let terms = view.extents.iter().flat_map(|e| &e.0);
            if terms
                .into_iter()
                .any(|t| matches!(t, Term::Dim(d) if *d as usize == dim))
            {
                if self.given[i] {
                    return false;
                }
                mentioned = true;
            }
        }
        mentioned
    }

    /// The formula with the dimensions that are known so far; `None` if it cannot be evaluated.
    fn reduce(&self, formula: &Formula) -> Option<Partial> {
        let mut stack: SmallVec<[Partial; 4]> = SmallVec::new();
        for term in &formula.0 {
            let value = match *term {
                Term::Int(value) => Partial::Known(value),
                Term::Dim(dim) => match self.sources.get(dim as usize)? {
                    Some(_) => Partial::Known(self.dims[dim as usize]),
                    None => Partial::Linear {
                        dim,
                        scale: 1,
                        offset: 0,
                    },
                },
                Term::Scalar(param) => Partial::Known(*self.scalars.get(param as usize)?),
                Term::Given(param) => Partial::Known(*self.given.get(param as usize)? as i64),
                Term::Multiprocessors => return None,
                Term::Op(op) => {
                    let b = match op.arity() {
                        2 => stack.pop()?,
                        _ => Partial::Known(0),
                    };
                    Partial::apply(op, stack.pop()?, b)?
                }
            };
            stack.push(value);
        }
        match stack[..] {
            [value] => Some(value),
            _ => None,
        }
    }

    fn check_extents(&self) -> Result<(), BindError> {
        for view in self.views() {
            for (dim, formula) in view.declared.extents.iter().enumerate() {
                let given = view.shape[dim];
                let expected = formula
                    .eval(&self.env())
                    .map_err(|error| BindError::Formula {
                        param: view.name.to_owned(),
                        dim,
                        formula: self.signature.show(formula),
                        error,
                    })?;
                if given == expected {
                    continue;
                }
                let names = self.where_names(formula);
                let expected = match formula.as_dim() {
                    Some(d) => {
                        let from = self.source(d as usize);
                        let from = from.map_or(String::new(), |s| format!(" (from `{s}`)"));
                        let name = &self.signature.dims[d as usize];
                        format!("`{name}` is {expected}{from}")
                    }
                    None if names.is_empty() => format!("the kernel takes {expected}"),
                    None => format!("`{}` is {expected} ({names})", self.signature.show(formula)),
                };
                return Err(BindError::Extent {
                    param: view.name.to_owned(),
                    dim,
                    given,
                    expected,
                });
            }
        }
        Ok(())
    }

    fn check_memory(&self) -> Result<(), BindError> {
        for view in self.views().filter(|v| !v.is_empty()) {
            if let (Some(&extent), Some(&stride)) = (view.shape.last(), view.strides.last())
                && !view.declared.strided
                && extent > 1
                && stride != 1
            {
                return Err(BindError::LastStride {
                    param: view.name.to_owned(),
                    stride,
                });
            }
            let (low, high) = view.reach();
            let base = view.address as i128 * 8;
            let end = base.checked_add(high);
            if base.checked_add(low).is_none_or(|b| b < 0) || end.is_none_or(|e| e > 8 << 64) {
                return Err(BindError::TooLarge {
                    param: view.name.to_owned(),
                });
            }
            if view.declared.access != Access::Read {
                let repeated = |d: &usize| view.shape[*d] > 1 && view.strides[*d] == 0;
                if let Some(dim) = (0..view.shape.len()).find(repeated) {
                    return Err(BindError::RepeatedStore {
                        param: view.name.to_owned(),
                        dim,
                    });
                }
            }
            let element = view.dtype.bits().div_ceil(8);
            if !view.address.is_multiple_of(element as u64) {
                return Err(BindError::Address {
                    param: view.name.to_owned(),
                    bytes: element,
                    address: view.address,
                });
            }
            // Rows of packed elements begin at bytes.
            if view.dtype.is_packed()
                && let Some(error) = view.misalignment(1)
            {
                return Err(error);
            }
            if let Some(error) = view.declared.facts.align.and_then(|b| view.misalignment(b)) {
                return Err(error);
            }
        }
        Ok(())
    }

    fn check_overlap(&self) -> Result<(), BindError> {
        let stored = |v: &View<'_>| v.declared.access != Access::Read;
        if !self.views().any(|v| stored(&v)) {
            return Ok(());
        }
        for a in self.views() {
            for b in (a.index + 1..self.args.len()).filter_map(|i| self.view(i)) {
                if (stored(&a) || stored(&b)) && !disjoint(&a, &b) {
                    return Err(BindError::Overlap {
                        first: a.name.to_owned(),
                        second: b.name.to_owned(),
                        written: if stored(&b) { b.name } else { a.name }.to_owned(),
                    });
                }
            }
        }
        Ok(())
    }
}

/// Whether a number is a value of a scalar parameter's type. Floats take all, rounding.
pub(crate) fn scalar_fits(dtype: DType, value: ScalarValue) -> bool {
    if dtype.is_float() {
        return true;
    }
    let ScalarValue::Int(value) = value else {
        return false;
    };
    if dtype == DType::Bool {
        return value == 0 || value == 1;
    }
    let bits = dtype.bits();
    if dtype.is_signed() {
        bits == 64 || (value >= -(1i64 << (bits - 1)) && value < 1i64 << (bits - 1))
    } else {
        // `u64` values above 2^63 - 1 cannot be passed.
        value >= 0 && (bits == 64 || value < 1i64 << bits)
    }
}
