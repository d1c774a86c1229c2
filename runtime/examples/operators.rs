//! Operators of the crate, one after the other on a stream: gate, add and normalise.
//!
//! `cargo run -p tesserine --example operators SET.tset`, with a set of `kernels-dsl/ops.toml`; `$TESS_DEVICE` names the
//! device, `emulator` where there is no GPU.

use std::process::ExitCode;

use half::f16;
use tesserine::{DType, Device, DeviceTensor, Error, KernelSet, activation, norm};

const TOKENS: usize = 4;
const HIDDEN: usize = 256;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("operators SET.tset");
        return ExitCode::from(2);
    };
    match KernelSet::open(path).and_then(|set| run(&set)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(set: &KernelSet) -> Result<(), Error> {
    let device = Device::from_env()?;
    let stream = device.stream()?;
    let projected = upload(&device, &[TOKENS, 2 * HIDDEN], 1)?;
    let weight = upload(&device, &[HIDDEN], 2)?;
    let mut residual = upload(&device, &[TOKENS, HIDDEN], 3)?;
    let mut gated = upload(&device, &[TOKENS, HIDDEN], 4)?;

    activation::silu_and_mul(set, &projected, &mut gated).launch(&stream)?;
    norm::fused_add_rmsnorm(set, &mut gated, &mut residual, &weight)
        .eps(1e-5)
        .launch(&stream)?;
    stream.synchronize()?;

    println!("{device}");
    println!("residual {:?}", first(&residual)?);
    println!("normed   {:?}", first(&gated)?);
    Ok(())
}

/// Numbers from −1 to 1 in f16, the same at each call.
fn upload(device: &Device, shape: &[usize], seed: u64) -> Result<DeviceTensor, Error> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        f16::from_f64((state >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
    };
    let bytes: Vec<u8> = (0..shape.iter().product())
        .flat_map(|_| next().to_le_bytes())
        .collect();
    let shape: Vec<i64> = shape.iter().map(|&e| e as i64).collect();
    device.upload(DType::F16, &shape, &bytes)
}

/// The first elements.
fn first(tensor: &DeviceTensor) -> Result<Vec<f16>, Error> {
    let bytes = tensor.read()?;
    let pairs = bytes.chunks_exact(2).take(4);
    Ok(pairs.map(|p| f16::from_le_bytes([p[0], p[1]])).collect())
}
