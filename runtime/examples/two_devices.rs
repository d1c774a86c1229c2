//! One kernel set on two devices at once: from one thread in turn, and from a thread for each; products are checked.
//!
//! `cargo run --release -p tesserine --example two_devices SET.tset [DEVICE DEVICE]`. The set has `gemm_nt<bf16>`; the devices are
//! `cuda:0` and `cuda:1` unless two others are named, `emulator:sm_90a` twice, say. Exits 1 if a product is wrong.

use std::{error::Error, process::ExitCode, sync::Barrier};

use tesserine::{Args, DType, Device, DeviceTensor, Kernel, KernelSet, Stream};

const KERNEL: &str = "gemm_nt<bf16>";
const M: usize = 256;
const N: usize = 264;
const K: usize = 72;

fn main() -> ExitCode {
    match run() {
        Ok(()) => {
            println!("all products are right");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

type Fault = Box<dyn Error + Send + Sync>;

fn run() -> Result<(), Fault> {
    let mut args = std::env::args().skip(1);
    let path = args
        .next()
        .ok_or("usage: two_devices SET.tset [DEVICE DEVICE]")?;
    let names = match (args.next(), args.next()) {
        (Some(first), Some(second)) => [first, second],
        _ => ["cuda:0".to_owned(), "cuda:1".to_owned()],
    };
    let kernel = KernelSet::open(path)?.kernel(KERNEL)?;
    let devices = [Device::named(&names[0])?, Device::named(&names[1])?];
    let rounds = match devices[0] {
        Device::Emulator(_) => 2,
        _ => 500,
    };

    // The second device first, then in turn, from this thread.
    let mut here = Vec::new();
    for (i, device) in devices.iter().enumerate().rev() {
        let product = Product::new(device, i as u64)?;
        product.queue(&kernel)?;
        product.check("alone")?;
        here.push(product);
    }
    for _ in 0..rounds {
        for product in &here {
            product.queue(&kernel)?;
        }
    }
    for product in &here {
        product.check("in turn")?;
    }

    // A thread for each device; both load its code, queue, wait and copy at the same time.
    let fresh = KernelSet::from(tesserine::set::KernelSet::open(
        std::env::args().nth(1).unwrap_or_default(),
    )?);
    let kernel = fresh.kernel(KERNEL)?;
    let together = Barrier::new(devices.len());
    let results: Vec<Result<(), Fault>> = std::thread::scope(|scope| {
        let threads: Vec<_> = devices
            .iter()
            .enumerate()
            .map(|(i, device)| {
                let (kernel, together) = (kernel.clone(), &together);
                scope.spawn(move || {
                    let products: Result<Vec<Product>, Fault> = (0..4)
                        .map(|j| Product::new(device, 10 * i as u64 + j))
                        .collect();
                    together.wait();
                    let products = products?;
                    for _ in 0..rounds {
                        for product in &products {
                            product.queue(&kernel)?;
                        }
                    }
                    products
                        .iter()
                        .try_for_each(|p| p.check("from two threads"))
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err("a thread panicked".into()))
            })
            .collect()
    });
    results.into_iter().collect::<Result<Vec<()>, Fault>>()?;

    // What lies on one device is refused on the other.
    let crossed = Args::new()
        .tensor("a", here[0].a.view())
        .tensor("b", here[1].b.view())
        .tensor("c", here[0].c.view());
    match kernel.launch(&here[0].stream, &crossed) {
        Err(error @ tesserine::Error::OtherDevice { .. }) => {
            println!("refused, as it should be: {error}");
            Ok(())
        }
        Err(error) => Err(error.into()),
        Ok(_) => Err("tensors of two devices were taken".into()),
    }
}

/// A product of its own numbers on one device.
struct Product {
    stream: Stream,
    left: Vec<half::bf16>,
    right: Vec<half::bf16>,
    a: DeviceTensor,
    b: DeviceTensor,
    c: DeviceTensor,
}

impl Product {
    fn new(device: &Device, seed: u64) -> Result<Product, Fault> {
        let (left, right) = (random(M * K, 2 * seed + 1), random(N * K, 2 * seed + 2));
        let tensor = |rows: usize, columns: usize, values: &[half::bf16]| {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            device.upload(DType::Bf16, &[rows as i64, columns as i64], &bytes)
        };
        let c = device.alloc(DType::Bf16, &[M as i64, N as i64])?;
        c.fill(0xff)?;
        Ok(Product {
            stream: device.stream()?,
            a: tensor(M, K, &left)?,
            b: tensor(N, K, &right)?,
            c,
            left,
            right,
        })
    }

    fn queue(&self, kernel: &Kernel) -> Result<(), Fault> {
        let args = Args::new()
            .tensor("a", self.a.view())
            .tensor("b", self.b.view())
            .tensor("c", self.c.view());
        kernel.launch(&self.stream, &args)?;
        Ok(())
    }

    fn check(&self, when: &str) -> Result<(), Fault> {
        self.stream.synchronize()?;
        let bytes = self.c.read()?;
        let stored = bytes.chunks_exact(2);
        let stored: Vec<f64> = stored
            .map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f64())
            .collect();
        let mut worst = 0f64;
        for (i, a) in self.left.chunks_exact(K).enumerate() {
            for (j, b) in self.right.chunks_exact(K).enumerate() {
                let sum: f64 = a.iter().zip(b).map(|(x, y)| x.to_f64() * y.to_f64()).sum();
                let error = (sum - stored[i * N + j]).abs();
                if error.is_nan() || error >= 0.07 {
                    let device = self.c.device();
                    return Err(format!(
                        "{device} {when}: element {i}, {j} is {}, and should be {sum}",
                        stored[i * N + j]
                    )
                    .into());
                }
                worst = worst.max(error);
            }
        }
        println!("{} {when}: largest error {worst:.2e}", self.c.device());
        Ok(())
    }
}

/// Numbers from -1 to 1, the same at each call.
fn random(count: usize, seed: u64) -> Vec<half::bf16> {
    let mut state = seed;
    let mut draw = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        half::bf16::from_f64((state >> 33) as f64 / (1u64 << 30) as f64 - 1.0)
    };
    (0..count).map(|_| draw()).collect()
}
