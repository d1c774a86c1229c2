//! The operators of the crate `tesserine` on an emulated device: each finds its kernel, and computes what a loop in f64 says. The
//! set is `kernels-dsl/ops.toml`, for sm_90a, with the kernels that a test names.
#![cfg(feature = "llvm")]

use half::f16;
use tesserine::{
    DType, Device, DeviceTensor, Error, KernelSet, Operator, Stream, TensorRef, Workspace,
    activation, norm, page,
    quant::{self, Quantised},
    rope, sampling, topk,
};
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
        let named = |i: &String| kernels.contains(&i.replace("> >", ">>").as_str());
        source.instances.retain(named);
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
fn norms_with_settings() {
    let set = set_of(&[
        "rmsnorm<f16, GEMMA = true>",
        "qk_rmsnorm<f16>",
        "qk_rmsnorm_in_place<f16, GEMMA = true>",
    ]);
    let bench = Bench::new();
    let (tokens, heads, n) = (2usize, 3usize, 40usize);
    let (x, w) = (numbers(tokens * heads * n, 6), numbers(n, 7));
    let plus: Vec<f64> = w.iter().map(|w| w + 1.0).collect();
    let shape = [tokens as i64, heads as i64, n as i64];
    let rows = [(tokens * heads) as i64, n as i64];
    let on_w = bench.halves(&[n as i64], &w);

    let (on_x, mut out) = (bench.halves(&rows, &x), bench.empty(&rows));
    let gemma = norm::rmsnorm(&set, &on_x, &on_w, &mut out).gemma(true);
    gemma.launch(&bench.stream).unwrap();
    expect(&out, &rms(&x, &plus, 1e-6));

    let (mut on_x, mut out) = (bench.halves(&shape, &x), bench.empty(&shape));
    let heads = norm::qk_rmsnorm(&set, &on_x, &on_w, &mut out);
    heads.launch(&bench.stream).unwrap();
    expect(&out, &rms(&x, &w, 1e-6));
    let in_place = norm::qk_rmsnorm_in_place(&set, &mut on_x, &on_w).gemma(true);
    in_place.launch(&bench.stream).unwrap();
    expect(&on_x, &rms(&x, &plus, 1e-6));
}

/// What a byte of e4m3 stands for.
fn e4m3(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    let value = match exponent {
        0 => mantissa * 2f64.powi(-9),
        _ => (8.0 + mantissa) * 2f64.powi(exponent - 10),
    };
    if code & 128 != 0 { -value } else { value }
}

#[test]
fn quantised() {
    let set = set_of(&[
        "rmsnorm_quant<f16, Q = PerTensor>",
        "act_and_mul_quant<f16, A = gelu, Q = PerTensor>",
        "quantise_per_tensor<f16>",
        "dequantise<f16, S = OfTensor>",
    ]);
    let bench = Bench::new();
    let (m, n) = (2usize, 96usize);
    let rows = [m as i64, n as i64];
    let (x, w) = (numbers(m * n, 8), numbers(n, 9));
    let (on_x, on_w) = (bench.halves(&rows, &x), bench.halves(&[n as i64], &w));
    let codes = bench.device.alloc(DType::E4m3, &rows).unwrap();
    let quarter = bench.floats(&[1], &[0.25]);
    // A number of e4m3 is within 1/16 of what is rounded to it.
    let stored = |tensor: &DeviceTensor, wanted: &[f64]| {
        let bytes = tensor.read().unwrap();
        assert_eq!(bytes.len(), wanted.len());
        for (code, want) in bytes.iter().zip(wanted) {
            let got = e4m3(*code);
            assert!(
                (got - want).abs() <= want.abs() / 15.0 + 2e-3,
                "{got}, and {want} is right"
            );
        }
    };

    let to = Quantised::PerTensor {
        y: codes.view(),
        scale: quarter.view(),
    };
    norm::rmsnorm_quant(&set, &on_x, &on_w, to)
        .launch(&bench.stream)
        .unwrap();
    let wanted: Vec<f64> = rms(&x, &w, 1e-6).iter().map(|v| v * 4.0).collect();
    stored(&codes, &wanted);

    let both = bench.halves(&[m as i64 / 2, 2 * n as i64], &x);
    let codes = bench
        .device
        .alloc(DType::E4m3, &[m as i64 / 2, n as i64])
        .unwrap();
    let to = Quantised::PerTensor {
        y: codes.view(),
        scale: quarter.view(),
    };
    activation::act_and_mul_quant(&set, activation::Activation::Gelu, &both, to)
        .launch(&bench.stream)
        .unwrap();
    // Gelu by its tanh form is within 10⁻³ of it.
    let gelu = |g: f64| 0.5 * g * (1.0 + (0.7978845608028654 * (g + 0.044715 * g.powi(3))).tanh());
    let wanted: Vec<f64> = (0..n).map(|j| gelu(x[j]) * x[n + j] * 4.0).collect();
    let bytes = codes.read().unwrap();
    for (code, want) in bytes.iter().zip(&wanted) {
        assert!((e4m3(*code) - want).abs() <= want.abs() / 15.0 + 2e-2);
    }

    // Two launches, with a workspace between them; and back.
    let (codes, scale) = (
        bench.device.alloc(DType::E4m3, &rows).unwrap(),
        bench.floats(&[1], &[0.0]),
    );
    let found = quant::quantise_per_tensor(&set, &on_x, &codes, &scale);
    assert!(found.launch(&bench.stream).is_err(), "it needs a workspace");
    let workspace = Workspace::new(&bench.device, found.workspace_size().unwrap()).unwrap();
    found.launch_with(&bench.stream, &workspace).unwrap();
    let largest = x.iter().fold(0.0, |a: f64, v| a.max(v.abs()));
    let bytes: [u8; 4] = scale.read().unwrap().try_into().unwrap();
    let got = f64::from(f32::from_le_bytes(bytes));
    assert!((got - largest / 448.0).abs() < 1e-6 * got);
    let from = Quantised::PerTensor {
        y: codes.view(),
        scale: scale.view(),
    };
    let mut back = bench.empty(&rows);
    quant::dequantise(&set, from, &mut back)
        .launch(&bench.stream)
        .unwrap();
    let codes = codes.read().unwrap();
    let wanted: Vec<f64> = codes.iter().map(|c| e4m3(*c) * got).collect();
    expect(&back, &wanted);
}

#[test]
fn bits() {
    let set = set_of(&["packbits<LITTLE = true>", "packbits"]);
    let bench = Bench::new();
    let x: Vec<u8> = numbers(19, 10).iter().map(|v| u8::from(*v > 0.0)).collect();
    let on_x = bench.device.upload(DType::U8, &[19], &x).unwrap();
    let y = bench.device.alloc(DType::U8, &[3]).unwrap();
    let byte = |little: bool, bits: &[u8]| {
        let place = |i: usize| if little { i } else { 7 - i };
        bits.iter()
            .enumerate()
            .map(|(i, b)| b << place(i))
            .sum::<u8>()
    };
    for little in [true, false] {
        let packed = quant::packbits(&set, &on_x, &y).little(little);
        packed.launch(&bench.stream).unwrap();
        let wanted: Vec<u8> = x.chunks(8).map(|b| byte(little, b)).collect();
        assert_eq!(y.read().unwrap(), wanted);
    }
}

#[test]
fn pages() {
    let set = set_of(&["append<f16>", "batch_positions", "seq_lens_of_pages"]);
    let bench = Bench::new();
    let integers = |values: &[i32]| {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let shape = [values.len() as i64];
        bench.device.upload(DType::I32, &shape, &bytes).unwrap()
    };
    // Pages of 2 rows: request 0 has pages 3 and 0 with 3 tokens, request 1 page 1 with 2.
    let (indptr, ids, last) = (
        integers(&[0, 2, 3]),
        integers(&[3, 0, 1]),
        integers(&[1, 2]),
    );
    let (lens, request, at) = (integers(&[0, 0]), integers(&[7; 4]), integers(&[7; 4]));
    page::seq_lens(&set, &indptr, &last, 2, &lens)
        .launch(&bench.stream)
        .unwrap();
    // Two tokens for request 0, one for request 1, and one of nobody.
    let appended = integers(&[0, 2, 3]);
    page::batch_positions(&set, &appended, &lens, &request, &at)
        .launch(&bench.stream)
        .unwrap();
    let (k, v) = (numbers(4 * 16, 13), numbers(4 * 8, 14));
    let (on_k, on_v) = (bench.halves(&[4, 1, 16], &k), bench.halves(&[4, 1, 8], &v));
    let (k_cache, v_cache) = (
        bench.halves(&[4, 2, 1, 16], &[0.0; 128]),
        bench.halves(&[4, 2, 1, 8], &[0.0; 64]),
    );
    let places = rope::Places {
        request: request.view(),
        at: at.view(),
        page_indptr: indptr.view(),
        page_ids: ids.view(),
    };
    let caches = (k_cache.view(), v_cache.view());
    page::append(&set, &on_k, &on_v, caches, &places)
        .launch(&bench.stream)
        .unwrap();
    let cached = |rows: &[f64], width: usize| {
        let mut cache = vec![0.0; 8 * width];
        // Tokens 1 and 2 of request 0, and token 1 of request 1.
        for (token, place) in [(0, 7), (1, 0), (2, 3)] {
            let row = &rows[token * width..(token + 1) * width];
            cache[place * width..(place + 1) * width].copy_from_slice(row);
        }
        cache
    };
    expect(&k_cache, &cached(&k, 16));
    expect(&v_cache, &cached(&v, 8));
}

/// Runs a sampler and reads its ids.
fn drawn_ids<S>(bench: &Bench, draw: Operator<'_, S>, ids: &DeviceTensor) -> Vec<i32> {
    let bytes = draw.workspace_size().unwrap();
    let workspace = Workspace::new(&bench.device, bytes).unwrap();
    draw.launch_with(&bench.stream, &workspace).unwrap();
    let bytes = ids.read().unwrap();
    let words = bytes.chunks_exact(4);
    words
        .map(|w| i32::from_le_bytes(w.try_into().unwrap()))
        .collect()
}

#[test]
fn samplers() {
    let set = set_of(&["sample", "sample_all<LOGITS = true>", "top_k_renorm"]);
    let bench = Bench::new();
    let probs = [0.1, 0.4, 0.2, 0.3, 0.0, 0.0, 0.5, 0.5];
    let on_probs = bench.floats(&[2, 4], &probs);
    let ids = bench.device.alloc(DType::I32, &[2, 1]).unwrap();
    for seed in 0..4 {
        let drawn = sampling::sample(&set, &on_probs, &ids).top_k(2).seed(seed);
        let got = drawn_ids(&bench, drawn, &ids);
        assert!(
            [1, 3].contains(&got[0]) && [2, 3].contains(&got[1]),
            "{got:?}"
        );
    }
    let least = bench.floats(&[2], &[1.0, 1.0]);
    let drawn = sampling::sample(&set, &on_probs, &ids).min_p_of(&least);
    let got = drawn_ids(&bench, drawn, &ids);
    assert!(got[0] == 1 && [2, 3].contains(&got[1]), "{got:?}");
    // Of temperature 0 the largest logit, the first of equal ones.
    let cold = sampling::sample_all(&set, &on_probs, &ids)
        .logits()
        .temperature(0.0);
    assert_eq!(drawn_ids(&bench, cold, &ids), [1, 2]);
}

#[test]
fn largest() {
    let set = set_of(&[
        "top_k<f32, S = 256, I = i64>",
        "top_k_page_table<f32>",
        "top_k_ragged<f32, STARTS = true>",
    ]);
    let bench = Bench::new();
    let integers = |shape: &[i64], values: &[i32]| {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        bench.device.upload(DType::I32, shape, &bytes).unwrap()
    };
    let words = |tensor: &DeviceTensor, size: usize| {
        let bytes = tensor.read().unwrap();
        let words = bytes.chunks_exact(size);
        words
            .map(|w| i32::from_le_bytes(w[..4].try_into().unwrap()))
            .collect::<Vec<i32>>()
    };
    let x = [3.0, 9.0, -1.0, 9.0, 5.0, 0.0, 7.0, 1.0, 2.0, 8.0];
    let on_x = bench.floats(&[2, 5], &x);
    let workspace = Workspace::new(&bench.device, 1 << 20).unwrap();

    let vals = bench.floats(&[2, 2], &[0.0; 4]);
    let ids = bench.device.alloc(DType::I64, &[2, 2]).unwrap();
    let found = topk::top_k(&set, &on_x, &vals, &ids).sorted(2);
    assert!(found.workspace_size().unwrap() <= workspace.byte_size());
    found.launch_with(&bench.stream, &workspace).unwrap();
    // Of equal values the first comes first.
    assert_eq!(words(&ids, 8), [1, 3, 4, 1]);

    let lengths = integers(&[2], &[3, 1]);
    let table = integers(&[2, 5], &[10, 11, 12, 13, 14, 20, 21, 22, 23, 24]);
    let ids = integers(&[2, 2], &[0; 4]);
    let raw = integers(&[2, 2], &[0; 4]);
    topk::top_k_page_table(&set, &on_x, &lengths, &table, &ids, &raw)
        .launch_with(&bench.stream, &workspace)
        .unwrap();
    assert_eq!(words(&raw, 4), [0, 1, 0, -1]);
    assert_eq!(words(&ids, 4), [10, 11, 20, -1]);

    let offsets = integers(&[2], &[100, 200]);
    let starts = integers(&[2], &[2, 4]);
    topk::top_k_ragged(&set, &on_x, &lengths, &offsets, &ids)
        .starts(&starts)
        .launch_with(&bench.stream, &workspace)
        .unwrap();
    assert_eq!(words(&ids, 4), [101, 102, 200, -1]);
}

#[test]
fn rotary() {
    let set = set_of(&[
        "rope_inplace<f16, A = Theta, NEOX = false>",
        "rope<f16, f16, P = Ragged, A = Theta>",
    ]);
    let bench = Bench::new();
    let (t, hq, hk, d) = (3usize, 2usize, 1usize, 16usize);
    let (q, k) = (numbers(t * hq * d, 11), numbers(t * hk * d, 12));
    let turned = |x: &[f64], heads: usize, positions: &[f64], interleave: bool| {
        let mut out = x.to_vec();
        for (i, row) in out.chunks_exact_mut(d).enumerate() {
            let position = positions[i / heads];
            for c in 0..d / 2 {
                let angle = position / 2.0 * 500f64.powf(-2.0 * c as f64 / d as f64);
                let (a, b) = if interleave {
                    (2 * c, 2 * c + 1)
                } else {
                    (c, c + d / 2)
                };
                let (sin, cos) = angle.sin_cos();
                (row[a], row[b]) = (row[a] * cos - row[b] * sin, row[b] * cos + row[a] * sin);
            }
        }
        out
    };
    let loose = |tensor: &DeviceTensor, wanted: &[f64]| {
        let bytes = tensor.read().unwrap();
        for (pair, want) in bytes.chunks_exact(2).zip(wanted) {
            let got = f16::from_le_bytes([pair[0], pair[1]]).to_f64();
            assert!(
                (got - want).abs() <= 1e-3 * (1.0 + want.abs()),
                "{got}, and {want} is right"
            );
        }
    };
    let integers = |shape: &[i64], values: &[i32]| {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        bench.device.upload(DType::I32, shape, &bytes).unwrap()
    };
    let (q_shape, k_shape) = (
        [t as i64, hq as i64, d as i64],
        [t as i64, hk as i64, d as i64],
    );
    let angles = rope::Angles::Theta {
        theta: 500.0,
        scale: 2.0,
    };

    let (mut on_q, mut on_k) = (bench.halves(&q_shape, &q), bench.halves(&k_shape, &k));
    let ids = integers(&[3], &[4, 0, 9]);
    let positions = rope::Positions::Given(ids.view());
    rope::rope_inplace(&set, &mut on_q, &mut on_k, positions, angles)
        .interleave(true)
        .launch(&bench.stream)
        .unwrap();
    loose(&on_q, &turned(&q, hq, &[4.0, 0.0, 9.0], true));
    loose(&on_k, &turned(&k, hk, &[4.0, 0.0, 9.0], true));

    let (on_q, on_k) = (bench.halves(&q_shape, &q), bench.halves(&k_shape, &k));
    let (out_q, out_k) = (bench.empty(&q_shape), bench.empty(&k_shape));
    let (indptr, offsets) = (integers(&[3], &[0, 2, 3]), integers(&[2], &[7, 30]));
    // All columns turn: the others are none.
    // SAFETY: no element is reached.
    let none = |shape| unsafe { TensorRef::from_raw(0, DType::F16, shape, &[0, 0, 1]) };
    let (q_rest, k_rest) = (none(&[3, 2, 0]), none(&[3, 1, 0]));
    let positions = rope::Positions::Ragged {
        indptr: indptr.view(),
        offsets: offsets.view(),
    };
    let from = rope::Rows {
        q: on_q.view(),
        q_rest,
        k: on_k.view(),
        k_rest,
    };
    let to = rope::Rows {
        q: out_q.view(),
        q_rest,
        k: out_k.view(),
        k_rest,
    };
    rope::rope(&set, from, positions, angles, to)
        .launch(&bench.stream)
        .unwrap();
    loose(&out_q, &turned(&q, hq, &[7.0, 8.0, 30.0], false));
    loose(&out_k, &turned(&k, hk, &[7.0, 8.0, 30.0], false));
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
