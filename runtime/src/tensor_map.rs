//! Tensor maps: what a body's bulk copies know of its views, worked out from a launch's arguments.
//!
//! The manifest says how the map's dimensions follow from the view's; extents and strides are the launch's. What the driver asks of a
//! map is checked here first, so that an error names the argument.

use std::sync::{Mutex, MutexGuard, TryLockError};

use smallvec::SmallVec;

use tesserine_emulator::tensor_map::{
    self, Code, DataType, Interleave, L2Promotion, OobFill, Swizzle,
};
use tesserine_set::{ArgShape, DType, TensorMapRecord};

use crate::{Device, Error};

/// Dimensions of a map, at most.
const RANK: usize = 5;

/// Bytes that addresses and strides of a map are multiples of.
const ALIGN: u64 = 16;

/// A map as a kernel takes it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct MapBytes(pub [u8; 128]);

/// The parameters of `cuTensorMapEncodeTiled`, by its names, the innermost dimension first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapParameters {
    // First, since it is what tells most maps of a kernel apart.
    pub global_address: u64,
    pub data_type: DataType,
    pub rank: usize,
    pub global_dim: [u64; RANK],
    /// Bytes, of all dimensions but the innermost.
    pub global_strides: [u64; RANK],
    pub box_dim: [u32; RANK],
    pub swizzle: Swizzle,
}

impl MapParameters {
    /// What a launch of `kernel` gives for the map of `record`, whose view is argument `name`.
    pub(crate) fn of(
        kernel: &str,
        name: &str,
        record: &TensorMapRecord,
        argument: Option<&ArgShape<'_>>,
    ) -> Result<MapParameters, Error> {
        let refused = |reason: String| Error::TensorMap {
            kernel: kernel.to_owned(),
            param: name.to_owned(),
            reason,
        };
        let Some(ArgShape::View {
            shape,
            strides,
            address,
            ..
        }) = argument
        else {
            return Err(refused("it is not given".into()));
        };
        let data_type = data_type(record.elem)
            .ok_or_else(|| refused(format!("there is no tensor map of {}", record.elem)))?;
        let swizzle = match record.swizzle {
            0 => Swizzle::None,
            32 => Swizzle::B32,
            64 => Swizzle::B64,
            128 => Swizzle::B128,
            other => return Err(refused(format!("there is no swizzle of {other} bytes"))),
        };
        if !address.is_multiple_of(ALIGN) {
            return Err(refused(format!(
                "it begins at {address:#x}, which is no multiple of {ALIGN} bytes"
            )));
        }
        // Of packed elements, the map sees bytes: its innermost steps are as many of them as share one.
        let bits = i128::from(record.elem.bits());
        let innermost = record.dims.first().map_or(1, |d| i128::from(d.step));
        let bytes = match record.elem.is_packed() {
            true => innermost * bits / 8,
            false => bits / 8,
        };
        let empty = shape.contains(&0);
        let mut parameters = MapParameters {
            data_type,
            rank: record.dims.len(),
            global_address: *address,
            global_dim: [1; RANK],
            global_strides: [0; RANK],
            box_dim: [1; RANK],
            swizzle,
        };
        if !(1..=RANK).contains(&record.dims.len()) {
            return Err(refused(format!(
                "its map has {} dimensions",
                record.dims.len()
            )));
        }
        for (i, dim) in record.dims.iter().enumerate() {
            let place = dim.dim as usize;
            let (Some(&extent), Some(&stride)) = (shape.get(place), strides.get(place)) else {
                return Err(refused(format!("it has no dimension {place}")));
            };
            let extent = match dim.extent {
                Some(extent) => u64::from(extent),
                None => (extent.max(0) as u64).div_ceil(u64::from(dim.step.max(1))),
            };
            // One that is empty is never copied from, and the driver takes none.
            parameters.global_dim[i] = extent.max(1);
            parameters.box_dim[i] = dim.extent_of_box;
            let stride = i128::from(stride) * i128::from(dim.step) * bits / 8;
            if i == 0 {
                if stride != bytes {
                    return Err(refused(format!(
                        "its elements along dimension {place} are {stride} bytes apart, not {bytes}"
                    )));
                }
                continue;
            }
            let fits = u64::try_from(stride).ok().filter(|s| *s < 1 << 40);
            match fits {
                Some(stride) if stride.is_multiple_of(ALIGN) => {
                    parameters.global_strides[i - 1] = stride;
                }
                // Nobody goes further along it.
                _ if extent <= 1 || empty => parameters.global_strides[i - 1] = ALIGN,
                _ => {
                    return Err(refused(format!(
                        "its elements along dimension {place} are {stride} bytes apart, which is no multiple of {ALIGN} from 0 to 2^40"
                    )));
                }
            }
        }
        Ok(parameters)
    }

    /// The map as the emulator takes it.
    pub(crate) fn emulated(&self) -> Result<MapBytes, String> {
        let map = tensor_map::TensorMap::encode(&tensor_map::Parameters {
            data_type: self.data_type,
            rank: self.rank as u32,
            global_address: self.global_address,
            global_dim: &self.global_dim,
            global_strides: &self.global_strides,
            box_dim: &self.box_dim,
            element_strides: &[1; RANK],
            interleave: Interleave::None,
            swizzle: self.swizzle,
            l2_promotion: L2Promotion::B256,
            oob_fill: OobFill::Zero,
        });
        map.map(|map| MapBytes(map.to_bytes()))
            .map_err(|error| error.to_string())
    }

    /// The driver's numbers: of the type, the interleaving, the swizzle, the promotion and the filling.
    pub(crate) fn codes(&self) -> [u32; 5] {
        [
            self.data_type.code(),
            Interleave::None.code(),
            self.swizzle.code(),
            L2Promotion::B256.code(),
            OobFill::Zero.code(),
        ]
    }
}

/// What a launch's tensor maps are to be, each with the number of its argument.
pub(crate) type WantedMaps = SmallVec<[(usize, MapParameters); 4]>;

/// Tensor maps of a launch, each with the number of the argument that it is.
pub(crate) type MapArguments = SmallVec<[(usize, MapBytes); 4]>;

/// The maps that were encoded last: a launch on known tensors only compares.
///
/// A launch that finds another thread at the list encodes its maps itself: none waits for another.
#[derive(Debug, Default)]
pub(crate) struct Encoded(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    list: Vec<(MapParameters, MapBytes)>,
    /// What the next one replaces once the list is full.
    oldest: usize,
}

/// Maps that are kept: those of a few launches.
const KEPT: usize = 16;

impl Encoded {
    /// The maps of these arguments; else which one the device refuses, and why.
    pub(crate) fn get(
        &self,
        device: &Device,
        wanted: &[(usize, MapParameters)],
    ) -> Result<MapArguments, (usize, String)> {
        let mut maps = MapArguments::new();
        if wanted.is_empty() {
            return Ok(maps);
        }
        let mut new: SmallVec<[usize; 4]> = SmallVec::new();
        {
            let known = self.free();
            let list = known.as_ref().map_or(&[][..], |k| &k.list);
            for (i, (argument, parameters)) in wanted.iter().enumerate() {
                let map = match list.iter().find(|(p, _)| p == parameters) {
                    Some((_, map)) => *map,
                    None => {
                        new.push(i);
                        MapBytes([0; 128])
                    }
                };
                maps.push((*argument, map));
            }
        }
        if new.is_empty() {
            return Ok(maps);
        }
        let encoder = device
            .encoder()
            .map_err(|reason| (wanted[new[0]].0, reason))?;
        for &i in &new {
            let (argument, parameters) = &wanted[i];
            maps[i].1 = encoder
                .encode(parameters)
                .map_err(|reason| (*argument, reason))?;
        }
        if let Some(mut known) = self.free() {
            for &i in &new {
                known.keep(wanted[i].1, maps[i].1);
            }
        }
        Ok(maps)
    }

    /// The list, unless another thread is at it.
    fn free(&self) -> Option<MutexGuard<'_, Known>> {
        match self.0.try_lock() {
            Ok(known) => Some(known),
            // A panic elsewhere cannot leave the list half-written.
            Err(TryLockError::Poisoned(known)) => Some(known.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Known {
    fn keep(&mut self, parameters: MapParameters, map: MapBytes) {
        if self.list.len() < KEPT {
            self.list.push((parameters, map));
        } else {
            self.list[self.oldest] = (parameters, map);
            self.oldest = (self.oldest + 1) % KEPT;
        }
    }
}

/// How a map sees elements: their bytes are moved as they are.
fn data_type(elem: DType) -> Option<DataType> {
    Some(match elem {
        DType::F64 => DataType::Float64,
        DType::F32 | DType::Tf32 => DataType::Float32,
        DType::F16 => DataType::Float16,
        DType::Bf16 => DataType::Bfloat16,
        DType::I32 => DataType::Int32,
        DType::U32 => DataType::Uint32,
        DType::I64 => DataType::Int64,
        DType::U64 => DataType::Uint64,
        DType::I16 | DType::U16 => DataType::Uint16,
        t if t.bits() <= 8 => DataType::Uint8,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use tesserine_set::TensorMapDim;

    use super::*;

    fn record() -> TensorMapRecord {
        let dim = |dim, step, extent, extent_of_box| TensorMapDim {
            dim,
            step,
            extent,
            extent_of_box,
        };
        TensorMapRecord {
            param: 0,
            elem: DType::Bf16,
            dims: vec![
                dim(1, 1, Some(64), 64),
                dim(0, 1, None, 128),
                dim(1, 64, None, 2),
            ],
            swizzle: 128,
        }
    }

    fn made(shape: &[i64], strides: &[i64], address: u64) -> Result<MapParameters, Error> {
        let view = ArgShape::View {
            dtype: DType::Bf16,
            shape,
            strides,
            address,
        };
        MapParameters::of("k", "a", &record(), Some(&view))
    }

    #[test]
    fn dimensions_follow_from_the_view() {
        let map = made(&[300, 200], &[208, 1], 4096).unwrap();
        assert_eq!(map.global_dim[..3], [64, 300, 4]);
        assert_eq!(map.global_strides[..2], [416, 128]);
        assert_eq!(map.box_dim[..3], [64, 128, 2]);
        assert!(map.emulated().is_ok());
        // Nothing is copied from an empty view, and there is a map of it all the same.
        assert_eq!(made(&[0, 200], &[208, 1], 0).unwrap().global_dim[1], 1);
        let map = made(&[300, 0], &[1, 1], 0).unwrap();
        assert_eq!((map.global_dim[0], map.global_strides[0]), (64, 16));
        assert!(map.emulated().is_ok());
    }

    /// Packed elements are moved by bytes: two of four bits each.
    #[test]
    fn packed_elements_are_bytes() {
        let mut record = record();
        record.elem = DType::E2m1;
        record.dims.truncate(2);
        (record.dims[0].step, record.dims[0].extent) = (2, None);
        let view = ArgShape::View {
            dtype: DType::E2m1,
            shape: &[300, 256],
            strides: &[320, 1],
            address: 4096,
        };
        let map = MapParameters::of("k", "w", &record, Some(&view)).unwrap();
        assert_eq!(map.data_type, DataType::Uint8);
        assert_eq!(map.global_dim[..2], [128, 300]);
        assert_eq!(map.global_strides[0], 160);
        assert!(map.emulated().is_ok());
    }

    #[test]
    fn known_maps_are_kept() {
        let device = Device::emulator("sm_90a").unwrap();
        let known = Encoded::default();
        let at = |address| made(&[300, 200], &[208, 1], address).unwrap();
        let get = |address| known.get(&device, &[(3, at(address))]).unwrap();
        let first = get(4096);
        assert_eq!(first[0].0, 3);
        for i in 0..2 * KEPT as u64 {
            assert_ne!(get(8192 + 16 * i)[0].1.0, first[0].1.0);
        }
        assert_eq!(known.0.lock().unwrap().list.len(), KEPT);
        assert_eq!(get(4096)[0].1.0, first[0].1.0);
        // A launch that finds the list taken makes its maps without it.
        let taken = known.0.lock().unwrap();
        assert_eq!(get(4096)[0].1.0, first[0].1.0);
        assert_ne!(get(1 << 20)[0].1.0, first[0].1.0);
        assert!(taken.list.iter().all(|(p, _)| p.global_address != 1 << 20));
    }

    #[test]
    fn what_the_hardware_cannot_address_is_named() {
        for (shape, strides, address, what) in [
            ([300, 200], [208, 1], 4104, "no multiple of 16"),
            (
                [300, 200],
                [201, 1],
                4096,
                "dimension 0 are 402 bytes apart",
            ),
            (
                [300, 200],
                [1, 300],
                4096,
                "dimension 1 are 600 bytes apart",
            ),
            ([300, 200], [-208, 1], 4096, "dimension 0 are -416 bytes"),
        ] {
            let error = made(&shape, &strides, address).unwrap_err().to_string();
            assert!(error.contains("`a`") && error.contains(what), "{error}");
        }
    }
}
