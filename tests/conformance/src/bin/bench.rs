//! Measures the library's kernels on a GPU against a plain copy. See `--help`.
//!
//! One sample is a run of launches between two events, long enough for the events not to matter, and rotates over
//! tensors that together pass the caches. Each round takes one sample of everything, in a new random order, so that the
//! clock's drift and what ran before hit all alike; the median of the rounds counts.

use std::{env, fmt::Write as _, fs, process::ExitCode};

use tesserine::{Args, DType, Device, DeviceTensor, Event, Kernel, KernelSet, Stream, TensorRef};

const HELP: &str = "\
Measures the kernels of a set on a GPU, against a copy from device memory to device memory.

  bench --set FILE [--device cuda:N] [--filter TEXT]... [--rounds N] [--quick] [--json FILE]

  --set FILE     the kernel set
  --filter TEXT  only what has TEXT in its name; may be repeated: any of them
  --rounds N     samples of each (default 9)
  --quick        the largest shapes only
  --json FILE    also write one JSON object a line: kernel, shape, us, lo_us, hi_us, gb_s, copy_percent
";

/// Bytes over which the inputs of one sample rotate, at least.
const SPAN: usize = 512 << 20;
/// Bytes of each of the two pools that tensors are cut from.
const POOL: usize = 2 << 30;
/// How long a sample is to last.
const SAMPLE_MS: f64 = 3.0;

struct Options {
    set: Option<String>,
    device: usize,
    filters: Vec<String>,
    rounds: usize,
    quick: bool,
    json: Option<String>,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options {
        set: env::var("TESS_SET").ok(),
        device: 0,
        filters: Vec::new(),
        rounds: 9,
        quick: false,
        json: None,
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("`{arg}` needs a value"));
        match arg.as_str() {
            "--set" => options.set = Some(value()?),
            "--json" => options.json = Some(value()?),
            "--filter" => options.filters.push(value()?),
            "--quick" => options.quick = true,
            "--device" => {
                let text = value()?;
                options.device = text
                    .strip_prefix("cuda")
                    .map(|rest| rest.strip_prefix(':').unwrap_or("0"))
                    .and_then(|n| n.parse().ok())
                    .ok_or(format!(
                        "`{text}` is no device; devices are `cuda` and `cuda:N`"
                    ))?;
            }
            "--rounds" => {
                let text = value()?;
                options.rounds = match text.parse() {
                    Ok(n) if n > 0 => n,
                    _ => return Err(format!("`{text}` is no number of rounds")),
                };
            }
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("`{arg}` is no option; see --help")),
        }
    }
    Ok(Some(options))
}

/// How a kernel uses a tensor.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    Read,
    Write,
    Both,
    /// A few rows' worth: neither rotated nor counted.
    Small,
}

/// A tensor argument: name, use, type, shape.
type Operand = (&'static str, Use, DType, Vec<i64>);

/// A kernel at a shape.
struct Work {
    instance: String,
    shape: String,
    tensors: Vec<Operand>,
    scalar: Option<(&'static str, f64)>,
}

fn row_kernel(name: &'static str, dtype: DType, m: i64, n: i64) -> Work {
    let matrix = |param, how| (param, how, dtype, vec![m, n]);
    let vector = |param, ty| (param, Use::Small, ty, vec![n]);
    let (tensors, scalar) = match name {
        "rmsnorm" => (
            vec![
                matrix("x", Use::Read),
                vector("weight", dtype),
                matrix("out", Use::Write),
            ],
            Some(("eps", 1e-6)),
        ),
        "fused_add_rmsnorm" => (
            vec![
                matrix("x", Use::Both),
                matrix("residual", Use::Both),
                vector("weight", dtype),
            ],
            Some(("eps", 1e-6)),
        ),
        "layernorm" => (
            vec![
                matrix("x", Use::Read),
                vector("gamma", DType::F32),
                vector("beta", DType::F32),
                matrix("out", Use::Write),
            ],
            Some(("eps", 1e-5)),
        ),
        "softmax" => (vec![matrix("x", Use::Read), matrix("y", Use::Write)], None),
        "transpose" => (
            vec![matrix("x", Use::Read), ("y", Use::Write, dtype, vec![n, m])],
            None,
        ),
        "axpy" => {
            let flat = |param, how| (param, how, dtype, vec![m * n]);
            (
                vec![
                    flat("x", Use::Read),
                    flat("z", Use::Read),
                    flat("y", Use::Write),
                ],
                Some(("s", 0.5)),
            )
        }
        _ => (
            vec![
                ("x", Use::Read, dtype, vec![m, 2 * n]),
                matrix("out", Use::Write),
            ],
            None,
        ),
    };
    Work {
        instance: format!("{name}<{dtype}>"),
        shape: if name == "axpy" {
            format!("[{}]", m * n)
        } else {
            format!("[{m}, {n}]")
        },
        tensors,
        scalar,
    }
}

/// Everything that is measured.
fn plan(options: &Options) -> Vec<Work> {
    let mut list = Vec::new();
    for name in [
        "rmsnorm",
        "softmax",
        "layernorm",
        "fused_add_rmsnorm",
        "silu_and_mul",
        "gelu_tanh_and_mul",
        "axpy",
        "transpose",
    ] {
        for dtype in [DType::Bf16, DType::F16] {
            let shapes: &[(i64, i64)] = match (options.quick, dtype) {
                (true, _) => &[(16384, 8192)],
                (_, DType::F16) => &[(16384, 8192), (4096, 4096)],
                _ => &[
                    (16384, 8192),
                    (16384, 4096),
                    (4096, 16384),
                    (4096, 8192),
                    (4096, 4096),
                    (4096, 1024),
                    (64, 8192),
                    (1, 8192),
                ],
            };
            for &(m, n) in shapes {
                let work = row_kernel(name, dtype, m, n);
                let title = format!("{} {}", work.instance, work.shape);
                if options.filters.is_empty() || options.filters.iter().any(|f| title.contains(f)) {
                    list.push(work);
                }
            }
        }
    }
    list
}

fn bytes_of(operand: &Operand) -> usize {
    let elements: i64 = operand.3.iter().product();
    elements as usize * operand.2.bits() as usize / 8
}

impl Work {
    /// Bytes that it must move: what is read, and what is written.
    fn traffic(&self) -> usize {
        self.tensors
            .iter()
            .map(|t| {
                bytes_of(t)
                    * match t.1 {
                        Use::Both => 2,
                        Use::Read | Use::Write | Use::Small => 1,
                    }
            })
            .sum()
    }

    /// The launches of one rotation: the same kernel on tensors of their own.
    fn launches(&self, set: &KernelSet, pools: &Pools) -> Result<Vec<Launch>, String> {
        let kernel = set.kernel(&self.instance).map_err(|e| e.to_string())?;
        let read: usize = self
            .tensors
            .iter()
            .filter(|t| matches!(t.1, Use::Read | Use::Both))
            .map(bytes_of)
            .sum();
        let wanted = SPAN.div_ceil(read.max(1)).clamp(1, 4096);
        let mut cursors = [0, 0];
        let mut out = Vec::new();
        for _ in 0..wanted {
            let mut tensors = Vec::new();
            for tensor in &self.tensors {
                let pool = matches!(tensor.1, Use::Write | Use::Both) as usize;
                let at = cursors[pool];
                cursors[pool] += bytes_of(tensor).next_multiple_of(4096);
                tensors.push(Placed {
                    name: tensor.0,
                    address: pools.0[pool].view().pointer() + at as u64,
                    dtype: tensor.2,
                    strides: tesserine::contiguous_strides(&tensor.3),
                    shape: tensor.3.clone(),
                });
            }
            if cursors.iter().any(|&end| end > POOL) {
                break;
            }
            out.push(Launch {
                kernel: kernel.clone(),
                tensors,
                scalar: self.scalar,
            });
        }
        if out.is_empty() {
            return Err(format!("{} {} does not fit", self.instance, self.shape));
        }
        Ok(out)
    }
}

/// A tensor within a pool.
struct Placed {
    name: &'static str,
    address: u64,
    dtype: DType,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// A kernel with its arguments.
struct Launch {
    kernel: Kernel,
    tensors: Vec<Placed>,
    scalar: Option<(&'static str, f64)>,
}

impl Launch {
    fn run(&self, stream: &Stream) -> Result<(), tesserine::Error> {
        let mut args = Args::new();
        for t in &self.tensors {
            // SAFETY: all that the shape reaches from the address lies in a pool, which outlives all launches; what the
            // launches of one stream do to it is in order.
            let view = unsafe { TensorRef::from_raw(t.address, t.dtype, &t.shape, &t.strides) };
            args = args.tensor(t.name, view);
        }
        if let Some((name, value)) = self.scalar {
            args = args.float(name, value);
        }
        self.kernel.launch(stream, &args).map(|_| ())
    }
}

/// Memory that tensors are cut from: what is only read, and what is written.
struct Pools([DeviceTensor; 2]);

impl Pools {
    fn new(device: &Device) -> Result<Pools, String> {
        // Values of bf16 near N(0, 1), which are as harmless when read as f16 or f32.
        let mut state = 0x1234_5678_9abc_def0u64;
        let mut uniform = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 24) as f32
        };
        let block: Vec<u8> = (0..16 << 20)
            .flat_map(|_| {
                let sum = uniform() + uniform() + uniform() + uniform() - 2.0;
                ((sum * 3f32.sqrt()).to_bits() >> 16).to_le_bytes()[..2].to_vec()
            })
            .collect();
        let data = block.repeat(POOL / block.len());
        let pool = || {
            let pool = device
                .alloc(DType::U8, &[POOL as i64])
                .map_err(|e| e.to_string())?;
            pool.write(&data).map_err(|e| e.to_string())?;
            Ok::<_, String>(pool)
        };
        Ok(Pools([pool()?, pool()?]))
    }
}

/// What runs between two events.
enum Body {
    Copy,
    Kernel(Vec<Launch>),
}

struct Item {
    name: String,
    shape: String,
    bytes: usize,
    body: Body,
    /// Launches of one sample.
    count: usize,
    /// Microseconds a launch, one a round.
    samples: Vec<f64>,
}

impl Item {
    /// Microseconds a launch, over `count` launches that start with the `from`-th.
    fn sample(
        &self,
        count: usize,
        from: usize,
        stream: &Stream,
        events: &[Event; 2],
        pools: &Pools,
    ) -> Result<f64, tesserine::Error> {
        events[0].record(stream)?;
        for i in 0..count {
            match &self.body {
                Body::Copy => stream.copy(&pools.0[0], &pools.0[1])?,
                Body::Kernel(launches) => launches[(from + i) % launches.len()].run(stream)?,
            }
        }
        events[1].record(stream)?;
        Ok(events[0].elapsed_ms(&events[1])? as f64 * 1e3 / count as f64)
    }

    fn median(&self) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    /// GB/s of the traffic that it cannot avoid.
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.median() * 1e-3
    }
}

fn run(options: &Options) -> Result<(), String> {
    let path = options
        .set
        .as_ref()
        .ok_or("no kernel set: give `--set FILE`, as written by `tess build`")?;
    let text = |e: tesserine::Error| e.to_string();
    let set = KernelSet::open(path).map_err(text)?;
    let device = Device::cuda(options.device).map_err(text)?;
    let stream = device.stream().map_err(text)?;
    let events = [device.event().map_err(text)?, device.event().map_err(text)?];
    let pools = Pools::new(&device)?;
    let mut items = vec![Item {
        name: "copy".to_owned(),
        shape: format!("{} MiB", POOL >> 20),
        bytes: 2 * POOL,
        body: Body::Copy,
        count: 4,
        samples: Vec::new(),
    }];
    for work in plan(options) {
        items.push(Item {
            bytes: work.traffic(),
            body: Body::Kernel(work.launches(&set, &pools)?),
            name: work.instance,
            shape: work.shape,
            count: 1,
            samples: Vec::new(),
        });
    }
    // Warm up, and find how many launches make a sample.
    for item in &mut items {
        item.sample(3, 0, &stream, &events, &pools).map_err(text)?;
        let us = item.sample(5, 3, &stream, &events, &pools).map_err(text)?;
        if let Body::Kernel(_) = item.body {
            item.count = ((SAMPLE_MS * 1e3 / us) as usize).clamp(10, 2000);
        }
    }
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..options.rounds {
        let mut order: Vec<usize> = (0..items.len()).collect();
        for i in (1..order.len()).rev() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            order.swap(i, (state >> 33) as usize % (i + 1));
        }
        for i in order {
            let item = &items[i];
            let us = item
                .sample(item.count, round * 7, &stream, &events, &pools)
                .map_err(text)?;
            items[i].samples.push(us);
        }
    }
    report(options, &items)
}

fn report(options: &Options, items: &[Item]) -> Result<(), String> {
    let copy = items[0].rate();
    println!(
        "{:<26} {:<16} {:>10} {:>10} {:>10} {:>8} {:>8}",
        "kernel", "shape", "us", "least", "most", "GB/s", "% copy"
    );
    let mut lines = String::new();
    for item in items {
        let (us, rate) = (item.median(), item.rate());
        let lo = item.samples.iter().copied().fold(f64::INFINITY, f64::min);
        let hi = item.samples.iter().copied().fold(0.0, f64::max);
        let share = 100.0 * rate / copy;
        println!(
            "{:<26} {:<16} {us:>10.2} {lo:>10.2} {hi:>10.2} {rate:>8.0} {share:>8.1}",
            item.name, item.shape
        );
        writeln!(
            lines,
            "{{\"kernel\":\"{}\",\"shape\":\"{}\",\"us\":{us:.3},\"lo_us\":{lo:.3},\"hi_us\":{hi:.3},\"gb_s\":{rate:.1},\"copy_percent\":{share:.2}}}",
            item.name, item.shape
        )
        .map_err(|e| e.to_string())?;
    }
    if let Some(path) = &options.json {
        fs::write(path, lines).map_err(|e| format!("{path}: {e}"))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let done = match parse(env::args().skip(1)) {
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(Some(options)) => run(&options),
        Err(why) => Err(why),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::from(2)
        }
    }
}
