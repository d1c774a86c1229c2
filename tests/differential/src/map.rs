//! Tensor maps of both sides: by the driver for its devices, by the emulator for its own. The bytes of a map are each side's secret.

use cudarc::driver::sys::{
    self, CUresult, CUtensorMap, CUtensorMapDataType as DriverType,
    CUtensorMapFloatOOBfill as DriverFill, CUtensorMapInterleave as DriverInterleave,
    CUtensorMapL2promotion as DriverPromotion, CUtensorMapSwizzle as DriverSwizzle,
};
use tesserine_emulator::tensor_map::{
    DataType, EncodeError, Interleave, L2Promotion, OobFill, Parameters, Swizzle, TensorMap,
};

use crate::snippet::Tensor;

/// Why there is no map.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    #[error("{0}")]
    Emulator(#[from] EncodeError),
    #[error("cuTensorMapEncodeTiled: {0:?}")]
    Driver(CUresult),
    #[error("the driver has no tensor maps of {0:?}")]
    Unknown(DataType),
}

/// The words of the map of a tensor that lies at an address of the device.
pub(crate) fn encode(tensor: &Tensor, address: u64, emulated: bool) -> Result<Vec<u64>, MapError> {
    match emulated {
        true => {
            let map = TensorMap::encode(&Parameters {
                data_type: tensor.data_type,
                rank: tensor.dims.len() as u32,
                global_address: address,
                global_dim: &tensor.dims,
                global_strides: &tensor.strides,
                box_dim: &tensor.box_dim,
                element_strides: &tensor.element_strides,
                interleave: Interleave::None,
                swizzle: tensor.swizzle,
                l2_promotion: tensor.promotion,
                oob_fill: tensor.fill,
            })?;
            let word = |b: &[u8]| b.iter().rev().fold(0u64, |all, b| all << 8 | *b as u64);
            Ok(map.to_bytes().chunks(8).map(word).collect())
        }
        false => by_driver(tensor, address),
    }
}

fn by_driver(tensor: &Tensor, address: u64) -> Result<Vec<u64>, MapError> {
    use DriverType::*;
    let data_type = match tensor.data_type {
        DataType::Uint8 => CU_TENSOR_MAP_DATA_TYPE_UINT8,
        DataType::Uint16 => CU_TENSOR_MAP_DATA_TYPE_UINT16,
        DataType::Uint32 => CU_TENSOR_MAP_DATA_TYPE_UINT32,
        DataType::Int32 => CU_TENSOR_MAP_DATA_TYPE_INT32,
        DataType::Uint64 => CU_TENSOR_MAP_DATA_TYPE_UINT64,
        DataType::Int64 => CU_TENSOR_MAP_DATA_TYPE_INT64,
        DataType::Float16 => CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DataType::Float32 => CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        DataType::Float64 => CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        DataType::Bfloat16 => CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DataType::Float32Ftz => CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
        DataType::Tfloat32 => CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
        DataType::Tfloat32Ftz => CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ,
        other => return Err(MapError::Unknown(other)),
    };
    let swizzle = match tensor.swizzle {
        Swizzle::None => DriverSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        Swizzle::B32 => DriverSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        Swizzle::B64 => DriverSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        Swizzle::B128 => DriverSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        Swizzle::B128Atom32 => DriverSwizzle::CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B,
        Swizzle::B128Atom32Flip8 => DriverSwizzle::CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B,
        Swizzle::B128Atom64 => DriverSwizzle::CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B,
    };
    let promotion = match tensor.promotion {
        L2Promotion::None => DriverPromotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
        L2Promotion::B64 => DriverPromotion::CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
        L2Promotion::B128 => DriverPromotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        L2Promotion::B256 => DriverPromotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    };
    let fill = match tensor.fill {
        OobFill::Zero => DriverFill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        OobFill::Nan => DriverFill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
    };
    let rank = tensor.dims.len();
    // The driver reads as many values as the rank says, and one stride fewer.
    let mut strides = tensor.strides.clone();
    strides.resize(rank, 0);
    let mut boxes = tensor.box_dim.clone();
    boxes.resize(rank, 1);
    let mut steps = tensor.element_strides.clone();
    steps.resize(rank, 1);
    let mut map = CUtensorMap { opaque: [0; 16] };
    let mut context = std::ptr::null_mut();
    // SAFETY: the driver is loaded, as below. The call wants a context, whichever; that of the first device is retained and stays current.
    let entered = unsafe {
        let _ = sys::cuCtxGetCurrent(&mut context);
        let mut device = 0;
        match context.is_null() && sys::cuDeviceGet(&mut device, 0) == CUresult::CUDA_SUCCESS {
            true => match sys::cuDevicePrimaryCtxRetain(&mut context, device) {
                CUresult::CUDA_SUCCESS => sys::cuCtxSetCurrent(context),
                error => error,
            },
            false => CUresult::CUDA_SUCCESS,
        }
    };
    if entered != CUresult::CUDA_SUCCESS {
        return Err(MapError::Driver(entered));
    }
    // SAFETY: the device that the address belongs to was opened, so the driver is loaded; all arrays have `rank` values.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            data_type,
            rank as u32,
            address as *mut std::ffi::c_void,
            tensor.dims.as_ptr(),
            strides.as_ptr(),
            boxes.as_ptr(),
            steps.as_ptr(),
            DriverInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            promotion,
            fill,
        )
    };
    match result {
        CUresult::CUDA_SUCCESS => Ok(map.opaque.to_vec()),
        error => Err(MapError::Driver(error)),
    }
}
