//! Ops: several launches with the workspace between them, as data.
//!
//! An op says nothing that depends on what tensors hold: which launches run, what each takes and how large the workspace is
//! are formulas over the dimensions and integer scalars of its signature. Invariants: resolving never panics, whatever a
//! record holds; each workspace begins at a multiple of [`WORKSPACE_ALIGN`] bytes, in the order of the record, with the
//! words of state behind them.

use serde::{Deserialize, Serialize};

use crate::{
    AbiArg, ArgShape, Binding, DType, Env, Fact, Formula, FormulaError, Instance, ScalarValue,
    Signature,
};

/// Where a workspace may begin: at multiples of this many bytes.
pub const WORKSPACE_ALIGN: u64 = 256;
/// Bytes of a word of state.
pub const STATE_WORD: u64 = 8;

/// A sequence of launches with its compile-time arguments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpRecord {
    /// As written: `gemm_nt_splitk<bf16>`.
    pub name: String,
    /// The source file, relative to the set file's folder.
    pub source: String,
    /// SHA-256 of the source and everything that it uses, in hex.
    pub source_hash: String,
    pub signature: Signature,
    /// `where` facts and `assume`: each must hold at every run.
    #[serde(default)]
    pub requires: Vec<Fact>,
    #[serde(default)]
    pub workspaces: Vec<WorkspaceRecord>,
    /// In the order in which they run.
    pub steps: Vec<Step>,
}

/// A tensor that lives as long as one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceRecord {
    pub name: String,
    pub dtype: DType,
    /// One formula a dimension; it lies in row-major order without gaps.
    pub extents: Vec<Formula>,
    /// It takes no memory where this is zero.
    #[serde(default)]
    pub when: Option<Formula>,
    /// The bits of the element that it is filled with before the first launch.
    #[serde(default)]
    pub fill: Option<u64>,
    /// Every run leaves it as it was filled: it is filled when the memory is new, and not again.
    #[serde(default)]
    pub once: bool,
}

/// One launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Index in `Manifest::instances`.
    pub instance: u32,
    /// It runs where this is not zero.
    #[serde(default)]
    pub when: Option<Formula>,
    /// One a parameter of the instance; `None` leaves it out.
    pub args: Vec<Option<StepArg>>,
}

/// What a launch of an op takes for one parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepArg {
    View(ViewArg),
    /// An integer or bool.
    Int(Formula),
    /// A floating constant, as the bits of an `f64`.
    Float(u64),
    /// The value of scalar parameter `param` of the op; left out if it was.
    Scalar {
        param: u32,
    },
}

/// A tensor of the op, seen through transformations that move nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ViewArg {
    pub base: ViewBase,
    #[serde(default)]
    pub steps: Vec<ViewStep>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewBase {
    /// View parameter of the op.
    Param(u32),
    /// Index in `OpRecord::workspaces`.
    Workspace(u32),
}

/// One transformation of a view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewStep {
    /// Elements `from..to` of dimension `dim`, both clamped to what is there.
    Slice {
        dim: u32,
        from: Formula,
        to: Formula,
    },
    /// Element `index` of dimension `dim`, which is dropped.
    Select { dim: u32, index: Formula },
    /// Dimension `i` of the result is dimension `perm[i]`.
    Permute(Vec<u32>),
    /// Dimension `dim` of extent `d` becomes two, `d / by` and `by`.
    Split { dim: u32, by: Formula },
    /// Dimensions `dim` and `dim + 1` become one.
    Merge { dim: u32 },
    /// The same bytes as other elements; the last dimension is rescaled.
    Bitcast(DType),
}

/// Why an op cannot run on its arguments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    #[error("the {what}, `{formula}`: {error}")]
    Formula {
        what: String,
        formula: String,
        error: FormulaError,
    },
    #[error("workspace `{name}` would have {extent} elements in dimension {dim}")]
    Extent {
        name: String,
        dim: usize,
        extent: i64,
    },
    #[error("workspace `{name}` is larger than any memory")]
    TooLarge { name: String },
    #[error("`{view}`: {reason}")]
    View { view: String, reason: String },
    #[error("a launch refers to what the op does not have")]
    Malformed,
}

/// Where workspaces lie in the memory of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceLayout {
    /// Bytes in all, a multiple of [`WORKSPACE_ALIGN`].
    pub bytes: u64,
    /// One a workspace of the record; `None` for those that this run does without.
    pub places: Vec<Option<Place>>,
    /// Where the words of state begin.
    pub words: u64,
    /// How many there are.
    pub word_count: u32,
}

/// Where one workspace lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Bytes from the beginning of the memory.
    pub offset: u64,
    pub bytes: u64,
    pub shape: Vec<i64>,
}

/// An argument of a launch, with memory of its own for shape and strides.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedArg {
    View(PlacedView),
    Scalar(ScalarValue),
}

/// A view in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedView {
    /// Whose memory it is.
    pub base: ViewBase,
    pub dtype: DType,
    pub shape: Vec<i64>,
    /// In elements.
    pub strides: Vec<i64>,
    pub address: u64,
}

impl OwnedArg {
    /// As a signature binds it.
    pub fn shape(&self) -> ArgShape<'_> {
        match self {
            OwnedArg::View(view) => ArgShape::View {
                dtype: view.dtype,
                shape: &view.shape,
                strides: &view.strides,
                address: view.address,
            },
            OwnedArg::Scalar(value) => ArgShape::Scalar(*value),
        }
    }
}

/// Whether a launch of this instance may need a word of state.
pub fn has_state(instance: &Instance) -> bool {
    let mut args = instance.bodies.iter().flat_map(|b| &b.abi);
    args.any(|arg| matches!(arg, AbiArg::Counter))
}

impl OpRecord {
    /// Where the workspaces of a run lie. `instances` are those that the steps index.
    pub fn layout(
        &self,
        env: &Env<'_>,
        instances: &[Instance],
    ) -> Result<WorkspaceLayout, OpError> {
        let words = self.steps.iter().filter(|step| {
            let instance = instances.get(step.instance as usize);
            instance.is_some_and(has_state)
        });
        self.layout_with(env, words.count() as u32)
    }

    /// As [`OpRecord::layout`], with so many words of state.
    pub fn layout_with(&self, env: &Env<'_>, word_count: u32) -> Result<WorkspaceLayout, OpError> {
        let mut layout = WorkspaceLayout {
            word_count,
            ..WorkspaceLayout::default()
        };
        for workspace in &self.workspaces {
            let too_large = || OpError::TooLarge {
                name: workspace.name.clone(),
            };
            let what = || format!("extent of workspace `{}`", workspace.name);
            if !self.holds(workspace.when.as_ref(), env, what)? {
                layout.places.push(None);
                continue;
            }
            let mut bits = u64::from(workspace.dtype.bits());
            let mut shape = Vec::with_capacity(workspace.extents.len());
            let mut empty = false;
            for (dim, formula) in workspace.extents.iter().enumerate() {
                let extent = self.eval(formula, env, what)?;
                if extent < 0 {
                    return Err(OpError::Extent {
                        name: workspace.name.clone(),
                        dim,
                        extent,
                    });
                }
                empty |= extent == 0;
                bits = bits
                    .checked_mul(extent.max(1) as u64)
                    .ok_or_else(too_large)?;
                shape.push(extent);
            }
            let bytes = if empty { 0 } else { bits.div_ceil(8) };
            layout.places.push(Some(Place {
                offset: layout.bytes,
                bytes,
                shape,
            }));
            layout.bytes = layout
                .bytes
                .checked_add(bytes)
                .and_then(|b| b.checked_next_multiple_of(WORKSPACE_ALIGN))
                .filter(|b| *b <= i64::MAX as u64)
                .ok_or_else(too_large)?;
        }
        layout.words = layout.bytes;
        layout.bytes += (u64::from(word_count) * STATE_WORD).next_multiple_of(WORKSPACE_ALIGN);
        Ok(layout)
    }

    /// Whether a condition holds; what has none always does.
    pub fn holds(
        &self,
        when: Option<&Formula>,
        env: &Env<'_>,
        what: impl Fn() -> String,
    ) -> Result<bool, OpError> {
        match when {
            Some(formula) => Ok(self.eval(formula, env, what)? != 0),
            None => Ok(true),
        }
    }

    fn eval(
        &self,
        formula: &Formula,
        env: &Env<'_>,
        what: impl Fn() -> String,
    ) -> Result<i64, OpError> {
        formula.eval(env).map_err(|error| OpError::Formula {
            what: what(),
            formula: self.signature.show(formula),
            error,
        })
    }

    /// The arguments of step `step`, one a parameter of its instance; `None` if it does not run. `memory` is the address
    /// of the workspace's memory, which `layout` divides.
    pub fn arguments(
        &self,
        step: &Step,
        binding: &Binding<'_>,
        layout: &WorkspaceLayout,
        memory: u64,
    ) -> Result<Option<Vec<Option<OwnedArg>>>, OpError> {
        let env = binding.env();
        if !self.holds(step.when.as_ref(), &env, || {
            "condition of a launch".to_owned()
        })? {
            return Ok(None);
        }
        let mut args = Vec::with_capacity(step.args.len());
        for arg in &step.args {
            args.push(match arg {
                None => None,
                Some(StepArg::Int(formula)) => {
                    let value = self.eval(formula, &env, || "argument of a launch".to_owned())?;
                    Some(OwnedArg::Scalar(ScalarValue::Int(value)))
                }
                Some(StepArg::Float(bits)) => {
                    Some(OwnedArg::Scalar(ScalarValue::Float(f64::from_bits(*bits))))
                }
                Some(StepArg::Scalar { param }) => {
                    let value = binding.values.get(*param as usize);
                    value.ok_or(OpError::Malformed)?.map(OwnedArg::Scalar)
                }
                Some(StepArg::View(view)) => self
                    .view(view, binding, layout, memory)?
                    .map(OwnedArg::View),
            });
        }
        Ok(Some(args))
    }

    /// A view in memory; `None` if it is of a tensor that was left out.
    fn view(
        &self,
        arg: &ViewArg,
        binding: &Binding<'_>,
        layout: &WorkspaceLayout,
        memory: u64,
    ) -> Result<Option<PlacedView>, OpError> {
        let (name, mut view) = match arg.base {
            ViewBase::Param(i) => {
                let param = self.signature.params.get(i as usize);
                let name = &param.ok_or(OpError::Malformed)?.name;
                match binding.args.get(i as usize) {
                    Some(Some(ArgShape::View {
                        dtype,
                        shape,
                        strides,
                        address,
                    })) => (
                        name,
                        PlacedView {
                            base: arg.base,
                            dtype: *dtype,
                            shape: shape.to_vec(),
                            strides: strides.to_vec(),
                            address: *address,
                        },
                    ),
                    Some(None) => return Ok(None),
                    _ => return Err(OpError::Malformed),
                }
            }
            ViewBase::Workspace(i) => {
                let record = self.workspaces.get(i as usize).ok_or(OpError::Malformed)?;
                let place = layout.places.get(i as usize).ok_or(OpError::Malformed)?;
                let Some(place) = place else {
                    return Err(OpError::View {
                        view: record.name.clone(),
                        reason: "this run does without the workspace, and a launch takes it".into(),
                    });
                };
                let mut strides = vec![1i64; place.shape.len()];
                for d in (1..place.shape.len()).rev() {
                    strides[d - 1] = strides[d].saturating_mul(place.shape[d].max(1));
                }
                (
                    &record.name,
                    PlacedView {
                        base: arg.base,
                        dtype: record.dtype,
                        shape: place.shape.clone(),
                        strides,
                        address: memory.wrapping_add(place.offset),
                    },
                )
            }
        };
        for step in &arg.steps {
            self.transform(&mut view, step, &binding.env())
                .map_err(|reason| OpError::View {
                    view: name.clone(),
                    reason,
                })?;
        }
        Ok(Some(view))
    }

    fn transform(
        &self,
        view: &mut PlacedView,
        step: &ViewStep,
        env: &Env<'_>,
    ) -> Result<(), String> {
        let value = |formula: &Formula| {
            let value = formula.eval(env);
            value.map_err(|error| format!("`{}`: {error}", self.signature.show(formula)))
        };
        let none = || "it has not so many dimensions".to_owned();
        let rank = view.shape.len();
        let known = |dim: u32| Some(dim as usize).filter(|d| *d < rank).ok_or_else(none);
        match step {
            ViewStep::Slice { dim, from, to } => {
                let dim = known(*dim)?;
                let extent = view.shape[dim];
                let from = value(from)?.clamp(0, extent);
                let to = value(to)?.clamp(from, extent);
                view.advance(dim, from)?;
                view.shape[dim] = to - from;
            }
            ViewStep::Select { dim, index } => {
                let dim = known(*dim)?;
                let index = value(index)?;
                if !(0..view.shape[dim]).contains(&index) {
                    return Err(format!(
                        "element {index} of dimension {dim} is taken, which has {}",
                        view.shape[dim]
                    ));
                }
                view.advance(dim, index)?;
                view.shape.remove(dim);
                view.strides.remove(dim);
            }
            ViewStep::Permute(perm) => {
                let mut sorted = perm.clone();
                sorted.sort_unstable();
                if sorted.len() != rank || sorted.iter().zip(0..).any(|(p, i)| *p != i) {
                    return Err(none());
                }
                view.shape = perm.iter().map(|p| view.shape[*p as usize]).collect();
                view.strides = perm.iter().map(|p| view.strides[*p as usize]).collect();
            }
            ViewStep::Split { dim, by } => {
                let dim = known(*dim)?;
                let by = value(by)?;
                let (extent, stride) = (view.shape[dim], view.strides[dim]);
                if by < 1 || extent % by != 0 {
                    return Err(format!("dimension {dim} of {extent} is split by {by}"));
                }
                view.shape.splice(dim..=dim, [extent / by, by]);
                let outer = stride.checked_mul(by).ok_or("it is too large")?;
                view.strides.splice(dim..=dim, [outer, stride]);
            }
            ViewStep::Merge { dim } => {
                let dim = known(*dim)?;
                known(dim as u32 + 1)?;
                let (outer, inner) = (view.shape[dim], view.shape[dim + 1]);
                let product = outer.checked_mul(inner).ok_or("it is too large")?;
                let (far, near) = (view.strides[dim], view.strides[dim + 1]);
                let stride = if inner == 1 { far } else { near };
                if outer > 1 && inner > 1 && near.checked_mul(inner) != Some(far) {
                    return Err(format!(
                        "dimensions {dim} and {} are merged, and rows of {inner} elements lie {far} elements apart",
                        dim + 1
                    ));
                }
                view.shape.splice(dim..=dim + 1, [product]);
                view.strides.splice(dim..=dim + 1, [stride]);
            }
            ViewStep::Bitcast(dtype) => view.bitcast(*dtype)?,
        }
        Ok(())
    }
}

impl PlacedView {
    fn advance(&mut self, dim: usize, by: i64) -> Result<(), String> {
        if by == 0 || self.shape.contains(&0) {
            return Ok(());
        }
        let bits = i128::from(by) * i128::from(self.strides[dim]) * i128::from(self.dtype.bits());
        if bits % 8 != 0 {
            return Err(format!(
                "element {by} of dimension {dim} begins inside a byte"
            ));
        }
        let address = i128::from(self.address) + bits / 8;
        self.address = u64::try_from(address).map_err(|_| "it is too large".to_owned())?;
        Ok(())
    }

    fn bitcast(&mut self, dtype: DType) -> Result<(), String> {
        let (old, new) = (i64::from(self.dtype.bits()), i64::from(dtype.bits()));
        self.dtype = dtype;
        if old == new {
            return Ok(());
        }
        let last = self.shape.len().checked_sub(1);
        let last = last.ok_or_else(|| "it has no dimension to rescale".to_owned())?;
        if self.strides[last] != 1 && self.shape[last] > 1 {
            return Err("its last dimension does not lie without gaps".to_owned());
        }
        let scale = |x: i64, what: &str| {
            let bits = x.checked_mul(old).ok_or("it is too large")?;
            if bits % new != 0 {
                return Err(format!("{what} of {x} elements is no number of `{dtype}`"));
            }
            Ok(bits / new)
        };
        self.shape[last] = scale(self.shape[last], "a row")?;
        for d in 0..last {
            if self.shape[d] > 1 {
                self.strides[d] = scale(self.strides[d], "a stride")?;
            }
        }
        Ok(())
    }
}
