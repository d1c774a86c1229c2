//! Loads a kernel set, launches `rmsnorm<bf16>` on random rows, and compares a row with a plain loop.
//!
//! `cargo run -p tesserine --example launch [SET.tset]`. Without a file it takes the first set that has the kernel;
//! on a machine without a CUDA driver it checks the arguments and says that nothing was launched.

use std::process::ExitCode;

use tesserine::{Args, DType, Device, Error, Kernel, KernelSet, TensorRef, find_sets};

const KERNEL: &str = "rmsnorm<bf16>";
const ROWS: usize = 256;
const COLUMNS: usize = 4096;
const EPS: f64 = 1e-6;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let kernel = match std::env::args_os().nth(1) {
        Some(path) => Some(KernelSet::open(path)?.kernel(KERNEL)?),
        None => find_kernel(),
    };
    let Some(kernel) = kernel else {
        println!("no kernel set has {KERNEL}; `tess build` writes one to target/sets");
        return Ok(());
    };
    let shape = [ROWS as i64, COLUMNS as i64];

    // The arguments can be checked with no device at hand.
    let described =
        |address, shape, strides| TensorRef::described(address, DType::Bf16, shape, strides);
    let args = Args::new()
        .tensor("x", described(1 << 30, &shape, &[COLUMNS as i64, 1]))
        .tensor("weight", described(2 << 30, &shape[1..], &[1]))
        .tensor("out", described(3 << 30, &shape, &[COLUMNS as i64, 1]))
        .float("eps", EPS);
    for (name, extent) in kernel.check(&args)?.dims {
        println!("{name} = {extent}");
    }

    let device = match Device::from_env() {
        Ok(device) => device,
        Err(error @ (Error::NoDriver | Error::DriverInit { .. } | Error::NoDevice { .. })) => {
            println!("nothing was launched: {error}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let (x, weight) = (random(ROWS * COLUMNS, 1), random(COLUMNS, 2));
    let x_on_device = device.upload(DType::Bf16, &shape, &bytes(&x))?;
    let weight_on_device = device.upload(DType::Bf16, &shape[1..], &bytes(&weight))?;
    let out = device.alloc(DType::Bf16, &shape)?;
    let args = Args::new()
        .tensor("x", x_on_device.view())
        .tensor("weight", weight_on_device.view())
        .tensor("out", out.view())
        .float("eps", EPS);
    let stream = device.stream()?;
    let launch = kernel.launch(&stream, &args)?;
    stream.synchronize()?;
    println!(
        "{} ran on {} ({}): {} blocks of its {} code",
        kernel.name(),
        device,
        device.info().name,
        launch.blocks,
        launch.target
    );

    let result = out.read()?;
    let row = &x[..COLUMNS];
    let mean = row.iter().map(|v| v.to_f64().powi(2)).sum::<f64>() / COLUMNS as f64;
    let scale = 1.0 / (mean + EPS).sqrt();
    let mut worst = 0f64;
    for ((value, weight), stored) in row.iter().zip(&weight).zip(result.chunks_exact(2)) {
        let stored = half::bf16::from_le_bytes([stored[0], stored[1]]).to_f64();
        worst = worst.max((value.to_f64() * scale * weight.to_f64() - stored).abs());
    }
    println!("largest error of the first row: {worst:.2e}");
    Ok(())
}

fn find_kernel() -> Option<Kernel> {
    for found in find_sets() {
        match found.set {
            Ok(set) => {
                if let Ok(kernel) = set.kernel(KERNEL) {
                    println!("{KERNEL} of {}", found.path.display());
                    return Some(kernel);
                }
            }
            Err(error) => eprintln!("skipped: {error}"),
        }
    }
    None
}

/// Numbers from -1 to 1, the same at each call.
fn random(count: usize, seed: u64) -> Vec<half::bf16> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        half::bf16::from_f64((state >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
    };
    (0..count).map(|_| next()).collect()
}

fn bytes(values: &[half::bf16]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}
