//! Checks of what views declare of their elements, for devices that are asked for them ([`Device::check_facts`]).
//!
//! Invariants: a launch without such views, or on a device that does not check, pays nothing; a fact is checked on what the
//! launch would read, after all work before it on its stream; nothing that could not be checked passes for checked.

use tesserine_set::{
    ArgShape, Binding, DType, HostView, ParamKind, Signature, ViewFacts, byte_span,
};

use crate::{Device, Error, Stream};

/// Facts of one view, and where its elements are.
#[derive(Debug)]
pub(crate) struct Promise {
    param: String,
    facts: ViewFacts,
    dtype: DType,
    shape: Vec<i64>,
    strides: Vec<i64>,
    address: u64,
}

/// Whether views declare something of their elements.
pub(crate) fn promised(signature: &Signature) -> bool {
    let mut params = signature.params.iter();
    params.any(|p| matches!(&p.kind, ParamKind::View(view) if view.facts.of_elements()))
}

/// What a launch on these arguments must check; nothing where the device does not.
pub(crate) fn promises(device: &Device, binding: &Binding<'_>) -> Vec<Promise> {
    if !device.checks_facts() {
        return Vec::new();
    }
    let params = binding.signature.params.iter().zip(binding.args);
    let promised = params.filter_map(|(param, arg)| {
        let ParamKind::View(view) = &param.kind else {
            return None;
        };
        let Some(ArgShape::View {
            dtype,
            shape,
            strides,
            address,
        }) = arg
        else {
            return None;
        };
        view.facts.of_elements().then(|| Promise {
            param: param.name.clone(),
            facts: view.facts,
            dtype: *dtype,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            address: *address,
        })
    });
    promised.collect()
}

/// Waits for the stream, and checks that all hold of what is there then.
pub(crate) fn check(kernel: &str, stream: &Stream, promises: &[Promise]) -> Result<(), Error> {
    let Some(first) = promises.first() else {
        return Ok(());
    };
    if stream.is_capturing()? {
        return Err(Error::PromiseInCapture {
            kernel: kernel.to_owned(),
            param: first.param.clone(),
        });
    }
    for promise in promises {
        promise.check(kernel, |address, bytes| {
            // SAFETY: tensors are described by who owns them, under a promise that all elements are allocated memory, and
            // who has facts checked promises so of what lies between them.
            unsafe { stream.read(address, bytes) }
        })?;
    }
    Ok(())
}

impl Promise {
    /// Reads the view's bytes with `read`, and checks them.
    fn check(
        &self,
        kernel: &str,
        read: impl FnOnce(u64, &mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let too_large = |bytes| Error::PromiseSize {
            kernel: kernel.to_owned(),
            param: self.param.clone(),
            bytes,
        };
        let span = byte_span(self.dtype, &self.shape, &self.strides);
        let (low, high) = span.ok_or_else(|| too_large(u64::MAX))?;
        let bytes = high.abs_diff(low);
        let length = usize::try_from(bytes).map_err(|_| too_large(bytes))?;
        let mut memory = Vec::new();
        memory
            .try_reserve_exact(length)
            .map_err(|_| too_large(bytes))?;
        memory.resize(length, 0u8);
        if length > 0 {
            read(self.address.wrapping_add_signed(low), &mut memory)?;
        }
        let origin = low.unsigned_abs() as usize;
        let view = HostView::new(self.dtype, &self.shape, &self.strides, &memory, origin);
        let view = view.ok_or_else(|| too_large(bytes))?;
        match self.facts.broken(&view) {
            None => Ok(()),
            Some(broken) => Err(Error::Promise {
                kernel: kernel.to_owned(),
                param: self.param.clone(),
                broken,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A view of `[3, -1, 2, 5, 4]` as i32 at address 1000.
    fn checked(facts: ViewFacts, extent: i64, stride: i64, first: u64) -> Result<(), String> {
        let memory: Vec<u8> = [3i32, -1, 2, 5, 4]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        let promise = Promise {
            param: "p".into(),
            facts,
            dtype: DType::I32,
            shape: vec![extent],
            strides: vec![stride],
            address: 1000 + 4 * first,
        };
        let checked = promise.check("k<i32>", |address, bytes| {
            let at = (address - 1000) as usize;
            bytes.copy_from_slice(&memory[at..at + bytes.len()]);
            Ok(())
        });
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn errors_name_kernel_parameter_fact_and_index() {
        let sorted = ViewFacts {
            sorted: true,
            ..ViewFacts::default()
        };
        assert_eq!(checked(sorted, 3, 1, 1), Ok(()));
        assert_eq!(
            checked(sorted, 4, 1, 1).unwrap_err(),
            "`k<i32>`: `p` is declared `sorted`, but element 3 is 4, and the one before it is 5"
        );
        // 4, 2, 3 from the end, and nothing at all.
        assert_eq!(
            checked(sorted, 3, -2, 4).unwrap_err(),
            "`k<i32>`: `p` is declared `sorted`, but element 1 is 2, and the one before it is 4"
        );
        assert_eq!(checked(sorted, 0, 1, 0), Ok(()));
        let distinct = ViewFacts {
            distinct: true,
            ..ViewFacts::default()
        };
        assert_eq!(checked(distinct, 5, 1, 0), Ok(()));
        assert_eq!(
            checked(distinct, 2, 0, 0).unwrap_err(),
            "`k<i32>`: `p` is declared `distinct`, but row 1 is equal to row 0"
        );
    }

    #[test]
    fn what_no_host_can_hold_is_not_passed_over() {
        let sorted = ViewFacts {
            sorted: true,
            ..ViewFacts::default()
        };
        let error = checked(sorted, 1 << 48, 1 << 20, 0).unwrap_err();
        assert!(error.contains("too many bytes"), "{error}");
    }
}
