//! Forms: what the arguments of a launch are apart from where they lie, and what follows from that.
//!
//! Most launches differ from one before only in addresses. All that a form decides (dimensions, facts, the body, the grid, the
//! arguments but for pointers) is kept with it, so that such a launch compares instead of working it out again. Invariants: a form
//! fits arguments only if every check would pass on them and would decide the same; where addresses have a say that is not plain (views
//! that lie in each other's range), it does not fit, and the launch is checked in full; no launch waits for another thread here.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use smallvec::SmallVec;
use tesserine_set::{
    AbiArg, Access, ArgShape, DType, Fact, Instance, ParamKind, ScalarValue, Short, byte_span,
};

use crate::{
    launch::{Decided, Words},
    tensor_map::{MapParameters, WantedMaps},
};

/// Addresses are told apart by their place in a piece of so many bytes: alignments that divide it are those of the form.
const PIECE: u64 = 256;

/// One form, and the launch that it gives.
#[derive(Debug)]
pub(crate) struct Form {
    params: Short<Option<Given>>,
    /// Of the body, in the kernel's code for the device.
    pub(crate) position: usize,
    pub(crate) blocks: u32,
    /// Pointers are those of the launch that the form was made of.
    arguments: Words,
    /// Arguments that are pointers, with the parameters whose they are.
    pointers: SmallVec<[(u16, u16); 8]>,
    /// Of the launch that the form was made of, with the parameters whose they are.
    maps: SmallVec<[(u16, usize, MapParameters); 4]>,
}

/// An argument that was given.
#[derive(Debug)]
enum Given {
    Scalar(ScalarValue),
    View {
        dtype: DType,
        extents: SmallVec<[i64; 4]>,
        strides: SmallVec<[i64; 4]>,
        /// Of the address, in its piece.
        place: u64,
        /// Bytes from the address to the lowest and past the highest element; nothing of an empty view.
        reach: Option<(i64, i64)>,
        stored: bool,
    },
}

impl Form {
    /// The form of arguments that passed every check, and of what was decided on them; `None` if what was checked of their
    /// addresses is more than a form remembers.
    pub(crate) fn of(
        instance: &Instance,
        shapes: &[Option<ArgShape<'_>>],
        decided: &Decided,
    ) -> Option<Form> {
        let record = &instance.bodies[decided.body()];
        let facts = instance.bodies.iter().flat_map(|b| &b.facts);
        let aligned = facts.chain(&instance.requires).filter_map(|f| match f {
            Fact::Aligned { bytes, .. } => Some(*bytes),
            Fact::Holds(_) => None,
        });
        let declared = instance.signature.params.iter();
        let declared = declared.filter_map(|p| match &p.kind {
            ParamKind::View(view) => view.facts.align,
            ParamKind::Scalar { .. } => None,
        });
        let of_piece = |bytes: u32| bytes == 0 || PIECE.is_multiple_of(bytes.into());
        if !aligned.chain(declared).all(of_piece) {
            return None;
        }
        let mut params = Short::new();
        for (param, shape) in instance.signature.params.iter().zip(shapes) {
            params.push(match (&param.kind, shape) {
                (_, None) => None,
                (_, Some(ArgShape::Scalar(value))) => Some(Given::Scalar(*value)),
                (
                    ParamKind::View(view),
                    Some(ArgShape::View {
                        dtype,
                        shape,
                        strides,
                        address,
                    }),
                ) => Some(Given::View {
                    dtype: *dtype,
                    extents: SmallVec::from_slice(shape),
                    strides: SmallVec::from_slice(strides),
                    place: address % PIECE,
                    reach: match shape.contains(&0) {
                        true => None,
                        false => Some(byte_span(*dtype, shape, strides)?),
                    },
                    stored: view.access != Access::Read,
                }),
                (ParamKind::Scalar { .. }, Some(ArgShape::View { .. })) => return None,
            });
        }
        let pointers = record
            .abi
            .iter()
            .enumerate()
            .filter_map(|(i, arg)| match *arg {
                AbiArg::Pointer { param } => Some((i as u16, param as u16)),
                _ => None,
            });
        let maps = decided
            .wanted
            .iter()
            .filter_map(|(i, map)| match record.abi[*i] {
                AbiArg::TensorMap { map: number } => {
                    let param = record.tensor_maps[number as usize].param;
                    Some((param as u16, *i, *map))
                }
                _ => None,
            });
        Some(Form {
            params,
            position: decided.position,
            blocks: decided.blocks,
            arguments: decided.arguments.clone(),
            pointers: pointers.collect(),
            maps: maps.collect(),
        })
    }

    /// Whether the launch of these arguments is the form's, at their addresses.
    fn fits(&self, shapes: &[Option<ArgShape<'_>>]) -> bool {
        if shapes.len() != self.params.len() {
            return false;
        }
        // Bytes that views have, and whether they are stored to.
        let mut ranges = Short::<(u64, u64, bool)>::new();
        for (given, shape) in self.params.iter().zip(shapes) {
            match (given, shape) {
                (None, None) => {}
                (Some(Given::Scalar(known)), Some(ArgShape::Scalar(value))) => {
                    if !same_number(*known, *value) {
                        return false;
                    }
                }
                (
                    Some(Given::View {
                        dtype,
                        extents,
                        strides,
                        place,
                        reach,
                        stored,
                    }),
                    Some(ArgShape::View {
                        dtype: given_dtype,
                        shape,
                        strides: given_strides,
                        address,
                    }),
                ) => {
                    if dtype != given_dtype
                        || address % PIECE != *place
                        || extents[..] != **shape
                        || strides[..] != **given_strides
                    {
                        return false;
                    }
                    let Some((low, high)) = *reach else { continue };
                    let (Some(from), Some(to)) = (
                        address.checked_add_signed(low),
                        address.checked_add_signed(high),
                    ) else {
                        return false;
                    };
                    let apart =
                        |&(f, t, s): &(u64, u64, bool)| to <= f || t <= from || !(s || *stored);
                    if !ranges.iter().all(apart) {
                        return false;
                    }
                    ranges.push((from, to, *stored));
                }
                _ => return false,
            }
        }
        true
    }

    /// Arguments of a launch that fits.
    pub(crate) fn arguments(&self, shapes: &[Option<ArgShape<'_>>]) -> Words {
        let mut arguments = Words::from_slice(&self.arguments);
        for (argument, param) in &self.pointers {
            arguments[*argument as usize] = address_of(shapes, *param);
        }
        arguments
    }

    /// Tensor maps of a launch that fits.
    pub(crate) fn maps(&self, shapes: &[Option<ArgShape<'_>>]) -> WantedMaps {
        let at = |(param, argument, map): &(u16, usize, MapParameters)| {
            let global_address = address_of(shapes, *param);
            (
                *argument,
                MapParameters {
                    global_address,
                    ..*map
                },
            )
        };
        self.maps.iter().map(at).collect()
    }
}

/// Null for what is no view or was not given.
fn address_of(shapes: &[Option<ArgShape<'_>>], param: u16) -> u64 {
    match shapes[param as usize] {
        Some(ArgShape::View { address, .. }) => address,
        _ => 0,
    }
}

/// Whether a kernel would be given the same bits.
fn same_number(a: ScalarValue, b: ScalarValue) -> bool {
    match (a, b) {
        (ScalarValue::Int(a), ScalarValue::Int(b)) => a == b,
        (ScalarValue::Float(a), ScalarValue::Float(b)) => a.to_bits() == b.to_bits(),
        _ => false,
    }
}

/// The forms of the last launches.
#[derive(Debug, Default)]
pub(crate) struct Forms(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    list: Vec<Arc<Form>>,
    /// What the next one replaces once the list is full.
    oldest: usize,
}

/// Forms that are kept.
const KEPT: usize = 16;

impl Forms {
    /// The form that fits.
    pub(crate) fn find(&self, shapes: &[Option<ArgShape<'_>>]) -> Option<Arc<Form>> {
        let kept = self.free()?;
        kept.list.iter().find(|f| f.fits(shapes)).cloned()
    }

    pub(crate) fn keep(&self, form: Form) {
        let Some(mut kept) = self.free() else { return };
        let form = Arc::new(form);
        if kept.list.len() < KEPT {
            kept.list.push(form);
        } else {
            let oldest = kept.oldest;
            kept.list[oldest] = form;
            kept.oldest = (oldest + 1) % KEPT;
        }
    }

    /// The list, unless another thread is at it.
    fn free(&self) -> Option<MutexGuard<'_, Kept>> {
        match self.0.try_lock() {
            Ok(kept) => Some(kept),
            // A panic elsewhere cannot leave the list half-written.
            Err(TryLockError::Poisoned(kept)) => Some(kept.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
