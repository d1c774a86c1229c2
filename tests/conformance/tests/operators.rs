//! The operators of the crate `tesserine` on an emulated device: each finds its kernel, and computes what a loop in f64 says. The
//! set is `kernels-dsl/ops.toml`, for sm_90a, with the kernels that a test names.
#![cfg(feature = "llvm")]

use half::f16;
use tesserine::{DType, Device, DeviceTensor, Error, KernelSet, Stream, activation, norm};
use tesserine_compiler::{
    Session,
    emit::set::{self, SetFile},
    target::Target,
};

/// The set with those kernels of the list that are named.
fn set_of(kernels: &[&str]) -> KernelSet {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels-dsl/ops.toml");
    let mut file = SetFile::read(path.as_ref()).unwrap();
    file.retarget(&[Target::parse("sm_90a").unwrap()]);
    for source in &mut file.kernels {
        source.instances.retain(|i| kernels.contains(&i.as_str()));
    }
    file.kernels.retain(|k| !k.instances.is_empty());
    let listed: usize = file.kernels.iter().map(|k| k.instances.len()).sum();
    assert_eq!(
        listed,
        kernels.len(),
        "kernels-dsl/ops.toml lacks one of {kernels:?}"
    );
    let built = set::build(&mut Session::new(), &file, None, &|_, _| {}).unwrap();
    KernelSet::from_bytes(built.bytes).unwrap()
}

struct Bench {
    device: Device,
    stream: Stream,
}

impl Bench {
    fn new() -> Bench {
        let device = Device::named("emulator:sm_90a").unwrap();
        let stream = device.stream().unwrap();
        Bench { device, stream }
    }

    fn halves(&self, shape: &[i64], values: &[f64]) -> DeviceTensor {
        let bytes = values.iter().flat_map(|v| f16::from_f64(*v).to_le_bytes());
        let bytes: Vec<u8> = bytes.collect();
        self.device.upload(DType::F16, shape, &bytes).unwrap()
    }

    fn floats(&self, shape: &[i64], values: &[f64]) -> DeviceTensor {
        let bytes = values.iter().flat_map(|v| (*v as f32).to_le_bytes());
        let bytes: Vec<u8> = bytes.collect();
        self.device.upload(DType::F32, shape, &bytes).unwrap()
    }

    fn empty(&self, shape: &[i64]) -> DeviceTensor {
        let tensor = self.device.alloc(DType::F16, shape).unwrap();
        tensor.fill(0x7e).unwrap();
        tensor
    }
}

/// Numbers of f16 between −2 and 2, the same at each call.
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        f16::from_f64((state >> 11) as f64 / (1u64 << 51) as f64 - 2.0).to_f64()
    };
    (0..count).map(|_| next()).collect()
}

/// Whether a tensor of f16 holds these numbers, to one rounding of f16 and what f32 loses before it.
fn expect(tensor: &DeviceTensor, wanted: &[f64]) {
    let bytes = tensor.read().unwrap();
    assert_eq!(bytes.len(), 2 * wanted.len());
    for (i, (pair, want)) in bytes.chunks_exact(2).zip(wanted).enumerate() {
        let got = f16::from_le_bytes([pair[0], pair[1]]).to_f64();
        let allowed = 6e-4 * want.abs() + 1e-6;
        assert!(
            (got - want).abs() <= allowed,
            "element {i}: {got}, and {want} is right"
        );
    }
}

/// x / √(mean(x²) + eps) · weight, row by row.
fn rms(x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let row = |x: &[f64]| {
        let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        let scaled = x.iter().zip(weight);
        scaled
            .map(|(v, w)| v / (mean + eps).sqrt() * w)
            .collect::<Vec<f64>>()
    };
    x.chunks_exact(weight.len()).flat_map(row).collect()
}

#[test]
fn norms() {
    let set = set_of(&["rmsnorm<f16>", "fused_add_rmsnorm<f16>", "layernorm<f16>"]);
    let bench = Bench::new();
    let (m, n) = (3usize, 111usize);
    let (rows, columns) = ([m as i64, n as i64], [n as i64]);
    let (x, w) = (numbers(m * n, 1), numbers(n, 2));
    let (on_x, on_w) = (bench.halves(&rows, &x), bench.halves(&columns, &w));

    let mut out = bench.empty(&rows);
    norm::rmsnorm(&set, &on_x, &on_w, &mut out)
        .launch(&bench.stream)
        .unwrap();
    expect(&out, &rms(&x, &w, 1e-6));
    norm::rmsnorm(&set, &on_x, &on_w, &mut out)
        .eps(0.5)
        .launch(&bench.stream)
        .unwrap();
    expect(&out, &rms(&x, &w, 0.5));

    let residual = numbers(m * n, 3);
    let mut on_residual = bench.halves(&rows, &residual);
    let mut in_place = bench.halves(&rows, &x);
    norm::fused_add_rmsnorm(&set, &mut in_place, &mut on_residual, &on_w)
        .launch(&bench.stream)
        .unwrap();
    let sum: Vec<f64> = x
        .iter()
        .zip(&residual)
        .map(|(x, r)| f16::from_f64(x + r).to_f64())
        .collect();
    expect(&on_residual, &sum);
    expect(&in_place, &rms(&sum, &w, 1e-6));

    let beta = numbers(n, 4);
    let (on_gamma, on_beta) = (bench.floats(&columns, &w), bench.floats(&columns, &beta));
    norm::layernorm(&set, &on_x, &on_gamma, &on_beta, &mut out)
        .eps(1e-3)
        .launch(&bench.stream)
        .unwrap();
    let wanted = x.chunks_exact(n).flat_map(|row| {
        let mean = row.iter().sum::<f64>() / n as f64;
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
        let scale = 1.0 / (variance + 1e-3).sqrt();
        let columns = row.iter().zip(w.iter().zip(&beta));
        columns
            .map(move |(v, (g, b))| (v - mean) * scale * g + b)
            .collect::<Vec<f64>>()
    });
    expect(&out, &wanted.collect::<Vec<f64>>());
}

#[test]
fn activations() {
    let set = set_of(&["silu_and_mul<f16>", "gelu_tanh_and_mul<f16>"]);
    let bench = Bench::new();
    let (m, d) = (2usize, 37usize);
    let x = numbers(2 * m * d, 5);
    let on_x = bench.halves(&[m as i64, 2 * d as i64], &x);
    let mut out = bench.empty(&[m as i64, d as i64]);
    let gated = |act: fn(f64) -> f64| {
        let row = |row: &[f64]| {
            (0..d)
                .map(|j| act(row[j]) * row[d + j])
                .collect::<Vec<f64>>()
        };
        x.chunks_exact(2 * d).flat_map(row).collect::<Vec<f64>>()
    };
    activation::silu_and_mul(&set, &on_x, &mut out)
        .launch(&bench.stream)
        .unwrap();
    expect(&out, &gated(|g| g / (1.0 + (-g).exp())));
    activation::gelu_tanh_and_mul(&set, &on_x, &mut out)
        .launch(&bench.stream)
        .unwrap();
    expect(
        &out,
        &gated(|g| 0.5 * g * (1.0 + (0.7978845608028654 * (g + 0.044715 * g.powi(3))).tanh())),
    );
}

#[test]
fn errors_are_in_the_operators_terms() {
    let set = set_of(&["rmsnorm<f16>"]);
    let bench = Bench::new();
    let (x, w) = (bench.empty(&[2, 8]), bench.empty(&[7]));
    let mut out = bench.empty(&[2, 8]);
    let narrow = norm::rmsnorm(&set, &x, &w, &mut out)
        .launch(&bench.stream)
        .unwrap_err();
    assert!(narrow.to_string().contains("`weight`"), "{narrow}");
    let mut of_floats = bench.floats(&[2, 8], &[0.0; 16]);
    let other = norm::rmsnorm(&set, &x, &w, &mut of_floats)
        .check()
        .unwrap_err();
    assert!(other.to_string().contains("`out`"), "{other}");
    let none = norm::rmsnorm(&set, &of_floats, &w, &mut out)
        .check()
        .unwrap_err();
    match &none {
        Error::NoInstance {
            operator,
            kernel,
            available,
            ..
        } => {
            assert_eq!((*operator, kernel.as_str()), ("rmsnorm", "rmsnorm<f32>"));
            assert_eq!(available, &["rmsnorm<f16>"]);
        }
        other => panic!("{other}"),
    }
}
