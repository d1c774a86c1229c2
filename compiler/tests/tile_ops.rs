//! Operations on whole tiles: small programs against plain Rust, by the interpreter, as written and as the `expand` pass
//! writes them out; and the code of each for every target, assembled where `ptxas` is found.

use std::fmt::Display;

use tesserine_compiler::{
    Session,
    diagnostics::render,
    interp::{self, Arg, Args, Tensor},
    ir::tile,
    passes,
    target::Target,
};
use tesserine_set::DType;

/// Cheap reproducible numbers.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: u64) -> i64 {
        (self.next() % n) as i64
    }

    /// Whole numbers in `lo..hi`.
    fn ints(&mut self, count: usize, lo: i64, hi: i64) -> Vec<f64> {
        (0..count)
            .map(|_| (lo + self.below((hi - lo) as u64)) as f64)
            .collect()
    }
}

struct Program {
    instance: tile::Instance,
    /// The body after the `expand` pass.
    expanded: tile::Kernel,
}

/// The program, whose code is assembled for every target.
fn program(text: &str) -> Program {
    everywhere(text);
    interpreted(text)
}

/// The program, without its code.
fn interpreted(text: &str) -> Program {
    let target = Target::ALL[4];
    let mut session = Session::new();
    let made = session
        .load_text("program.tess", text)
        .and_then(|module| session.instantiate(module, "k", target));
    let instance = made.unwrap_or_else(|diagnostics| {
        let all: String = diagnostics
            .iter()
            .map(|d| render(d, session.sources(), false))
            .collect();
        panic!("{all}")
    });
    let body = &instance.bodies[0];
    assert_eq!(tile::verify(body), Ok(()), "{body}");
    let mut expanded = None;
    let mut observe = |name: &str, kernel: &dyn Display| {
        if name == "expand" {
            expanded = Some(kernel.to_string());
        }
    };
    passes::lower_with(body, &target, &mut observe).unwrap_or_else(|d| panic!("{d:?}"));
    let expanded = expanded.expect("there is a pass of that name");
    let expanded = tile::parse(&expanded).unwrap_or_else(|e| panic!("{e}\n{expanded}"));
    Program { instance, expanded }
}

#[cfg(feature = "llvm")]
fn everywhere(text: &str) {
    use tesserine_compiler::{codegen, emit::ptxas::Ptxas};
    let tool = Ptxas::find().ok();
    for target in Target::ALL {
        let mut session = Session::new();
        let made = session
            .load_text("program.tess", text)
            .and_then(|module| session.instantiate(module, "k", target))
            .unwrap_or_else(|d| panic!("{d:?}"));
        let role = passes::lower(&made.bodies[0], &target).unwrap_or_else(|d| panic!("{d:?}"));
        let module = codegen::compile(&role, target, session.sources()).unwrap_or_else(|d| {
            let text = codegen::llvm_text(&role, target, session.sources());
            panic!("{target}: {d:?}\n{role}\n{}", text.unwrap_or_default())
        });
        if let Some(tool) = &tool {
            let cubin = tool
                .assemble(&module.ptx, target)
                .unwrap_or_else(|e| panic!("{e}\n{}", module.ptx));
            // The sort in `occurrence` holds sixteen keys of 64 bits a thread: `ptxas` spills some words of them for sm_80.
            let spills = text.contains("occurrence");
            let lost = cubin.losses.iter();
            let lost = lost.filter(|l| !(spills && l.starts_with("registers are spilled")));
            assert_eq!(lost.count(), 0, "{target}: {text}: {:?}", cubin.losses);
        }
    }
}

#[cfg(not(feature = "llvm"))]
fn everywhere(_: &str) {}

type Named<'a> = (&'a str, DType, Vec<usize>, Vec<f64>);

/// Runs a program as written and as expanded; `outs` are what it must give.
fn check(program: &Program, ins: &[Named<'_>], outs: &[Named<'_>]) {
    let args = || -> Args {
        let given = ins.iter().map(|(name, dtype, shape, values)| {
            let tensor = Tensor::from_f64(*dtype, shape.clone(), values).unwrap();
            ((*name).to_owned(), Arg::Tensor(tensor))
        });
        let empty = outs.iter().map(|(name, dtype, shape, _)| {
            let tensor = Tensor::zeros(*dtype, shape.clone()).unwrap();
            ((*name).to_owned(), Arg::Tensor(tensor))
        });
        given.chain(empty).collect()
    };
    let (mut direct, mut expanded) = (args(), args());
    interp::launch(&program.instance, &mut direct).unwrap_or_else(|e| panic!("{e}"));
    interp::run(&program.expanded, &mut expanded).unwrap_or_else(|e| panic!("{e}"));
    for (what, args) in [("as written", &direct), ("expanded", &expanded)] {
        for (name, _, _, wanted) in outs {
            let Arg::Tensor(tensor) = &args[*name] else {
                panic!("`{name}` is a scalar")
            };
            let found = tensor.to_f64();
            let same = |(x, y): (&f64, &f64)| {
                x == y && x.is_sign_negative() == y.is_sign_negative() || x.is_nan() && y.is_nan()
            };
            if let Some(at) = found.iter().zip(wanted).position(|p| !same(p)) {
                panic!(
                    "{what}, `{name}` at {at}: {} and not {}",
                    found[at], wanted[at]
                );
            }
            assert_eq!(found.len(), wanted.len());
        }
    }
}

/// The index of an element of three dimensions of which the middle one is the axis.
fn at(i: usize, j: usize, k: usize, n: usize, inner: usize) -> usize {
    (i * n + j) * inner + k
}

#[test]
fn running_sums_and_maxima() {
    let mut noise = Noise(1);
    for (shape, axis) in [
        (vec![1usize], 0usize),
        (vec![7], 0),
        (vec![80], 0),
        (vec![5000], 0),
        (vec![7, 80], 1),
        (vec![176, 3], 0),
        (vec![4, 33, 5], 1),
    ] {
        let dims = format!("{shape:?}");
        let all = vec![".."; shape.len()].join(", ");
        let text = format!(
            "kernel k(x: view<i32>{dims}, s: out view<i32>{dims}, m: out view<i32>{dims}, c: out view<i32>{dims}) grid (b in 1) {{
                let t = x[{all}];
                s[{all}] = cumsum(t, {axis});
                m[{all}] = t.cummax({axis});
                c[{all}] = cumsum(t > 0, {axis});
            }}"
        );
        let count: usize = shape.iter().product();
        let x = noise.ints(count, -1000, 1000);
        let (mut s, mut m) = (x.clone(), x.clone());
        let mut c: Vec<f64> = x.iter().map(|&v| f64::from(v > 0.0)).collect();
        let (n, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
        for i in 0..count / n / inner {
            for j in 1..n {
                for k in 0..inner {
                    let (now, before) = (at(i, j, k, n, inner), at(i, j - 1, k, n, inner));
                    s[now] += s[before];
                    c[now] += c[before];
                    m[now] = m[now].max(m[before]);
                }
            }
        }
        let t = DType::I32;
        check(
            &program(&text),
            &[("x", t, shape.clone(), x)],
            &[
                ("s", t, shape.clone(), s),
                ("m", t, shape.clone(), m),
                ("c", t, shape.clone(), c),
            ],
        );
    }
}

#[test]
fn running_sums_of_floats() {
    let text = "kernel k(x: view<bf16>[48], d: view<f64>[48], s: out view<f32>[48], m: out view<bf16>[48], e: out view<f64>[48]) grid (b in 1) {
        s[..] = cumsum(x[..]);
        m[..] = cummax(x[..]);
        e[..] = cumsum(d[..]);
    }";
    let mut noise = Noise(2);
    let mut x = noise.ints(48, -50, 50);
    x[0] = f64::NAN;
    x[20] = f64::NAN;
    let d = noise.ints(48, -50, 50);
    let sums = |v: &[f64]| -> Vec<f64> {
        let add = |sum: &mut f64, x: &f64| {
            *sum += x;
            Some(*sum)
        };
        v.iter().scan(0.0, add).collect()
    };
    let s = sums(&x);
    let e = sums(&d);
    let mut m = x.clone();
    for i in 1..48 {
        m[i] = m[i].max(m[i - 1]);
    }
    let shape = vec![48];
    check(
        &program(text),
        &[
            ("x", DType::Bf16, shape.clone(), x),
            ("d", DType::F64, shape.clone(), d),
        ],
        &[
            ("s", DType::F32, shape.clone(), s),
            ("m", DType::Bf16, shape.clone(), m),
            ("e", DType::F64, shape, e),
        ],
    );
}

#[test]
fn sorting_is_stable_and_exact() {
    let mut noise = Noise(3);
    for (elem, dtype) in [
        ("f32", DType::F32),
        ("bf16", DType::Bf16),
        ("f64", DType::F64),
        ("i8", DType::I8),
        ("u32", DType::U32),
        ("u64", DType::U64),
        ("i64", DType::I64),
    ] {
        for (rows, n) in [(1usize, 1usize), (3, 7), (2, 176)] {
            for descending in [false, true] {
                let text = format!(
                    "kernel k(x: view<{elem}>[{rows}, {n}], y: out view<{elem}>[{rows}, {n}], p: out view<i32>[{rows}, {n}]) grid (b in 1) {{
                        let (s, by) = sort(x[.., ..], iota<i32>[{n}], descending = {descending});
                        y[.., ..] = s;
                        p[.., ..] = by;
                    }}"
                );
                let mut x = match dtype {
                    DType::U32 => noise.ints(rows * n, 0, 1 << 32),
                    DType::U64 | DType::I64 => noise.ints(rows * n, 0, 1 << 50),
                    _ => noise.ints(rows * n, -5, 5),
                };
                if dtype.is_float() && n > 3 {
                    (x[0], x[2], x[3], x[n / 2]) = (f64::NAN, -0.0, f64::INFINITY, f64::NAN);
                    x[n - 1] = f64::NEG_INFINITY;
                }
                let mut y = Vec::new();
                let mut p = Vec::new();
                for row in x.chunks(n) {
                    let mut by: Vec<usize> = (0..n).collect();
                    by.sort_by(|&i, &j| match (row[i].is_nan(), row[j].is_nan()) {
                        (false, false) if descending => row[j].partial_cmp(&row[i]).unwrap(),
                        (false, false) => row[i].partial_cmp(&row[j]).unwrap(),
                        (i, j) => i.cmp(&j),
                    });
                    y.extend(by.iter().map(|&i| row[i]));
                    p.extend(by.iter().map(|&i| i as f64));
                }
                let shape = vec![rows, n];
                let with_code = n == 7 && (descending || dtype == DType::F64);
                let make = if with_code { program } else { interpreted };
                check(
                    &make(&text),
                    &[("x", dtype, shape.clone(), x)],
                    &[("y", dtype, shape.clone(), y), ("p", DType::I32, shape, p)],
                );
            }
        }
    }
}

#[test]
fn the_largest_of_each_row() {
    let mut noise = Noise(4);
    for (elem, dtype) in [
        ("f32", DType::F32),
        ("i32", DType::I32),
        ("f64", DType::F64),
        ("u8", DType::U8),
    ] {
        for (rows, n, k) in [
            (1usize, 5usize, 5usize),
            (3, 80, 2),
            (2, 80, 8),
            (2, 80, 40),
        ] {
            let text = format!(
                "kernel k(x: view<{elem}>[{rows}, {n}], y: out view<{elem}>[{rows}, {k}], p: out view<i32>[{rows}, {k}]) grid (b in 1) {{
                    let (v, at) = topk(x[.., ..], {k});
                    y[.., ..] = v;
                    p[.., ..] = at;
                }}"
            );
            let mut x = noise.ints(rows * n, 0, 12);
            if dtype.is_float() {
                (x[0], x[1], x[3]) = (f64::NAN, -0.0, f64::NEG_INFINITY);
            }
            let (mut y, mut p) = (Vec::new(), Vec::new());
            for row in x.chunks(n) {
                let mut left: Vec<usize> = (0..n).collect();
                for _ in 0..k {
                    let better = |a: f64, b: f64| a > b || b.is_nan() && !a.is_nan();
                    let best = (1..left.len()).fold(0, |m, i| {
                        if better(row[left[i]], row[left[m]]) {
                            i
                        } else {
                            m
                        }
                    });
                    let best = left.remove(best);
                    y.push(row[best]);
                    p.push(best as f64);
                }
            }
            let shape = vec![rows, k];
            let make = if rows > 1 { program } else { interpreted };
            check(
                &make(&text),
                &[("x", dtype, vec![rows, n], x)],
                &[("y", dtype, shape.clone(), y), ("p", DType::I32, shape, p)],
            );
        }
    }
}

#[test]
fn counting() {
    let mut noise = Noise(5);
    for (elem, dtype) in [("i32", DType::I32), ("u8", DType::U8), ("i64", DType::I64)] {
        let text = format!(
            "kernel k(x: view<{elem}>[7, 80], h: out view<i32>[20], o: out view<i32>[7, 80]) grid (b in 1) {{
                h[..] = histogram(x[.., ..], 20);
                o[.., ..] = occurrence(x[.., ..]);
            }}"
        );
        let low = if dtype == DType::U8 { 0 } else { -3 };
        let x = noise.ints(560, low, 25);
        let mut h = vec![0.0; 20];
        let mut o = Vec::new();
        for (i, &v) in x.iter().enumerate() {
            if (0.0..20.0).contains(&v) {
                h[v as usize] += 1.0;
            }
            o.push(x[..i].iter().filter(|&&w| w == v).count() as f64);
        }
        check(
            &program(&text),
            &[("x", dtype, vec![7, 80], x)],
            &[
                ("h", DType::I32, vec![20], h),
                ("o", DType::I32, vec![7, 80], o),
            ],
        );
    }
}

#[test]
fn taking_and_joining() {
    let text = "kernel k(x: view<f16>[7, 20], i: view<i32>[7, 9], j: view<i64>[30, 20], a: out view<f16>[7, 9], b: out view<f16>[30, 20], c: out view<f16>[7, 29], d: out view<f16>[14, 20], e: out view<f16>[5, 3]) grid (g in 1) {
        let t = x[.., ..];
        let u = take(t, i[.., ..], 1);
        a[.., ..] = u;
        b[.., ..] = take(t, j[.., ..], 0);
        c[.., ..] = concat(t, u, 1);
        d[.., ..] = concat(t, t, 0);
        e[.., ..] = t[1 .. 6, 3 .. 6];
    }";
    let mut noise = Noise(6);
    let x = noise.ints(140, -100, 100);
    let i = noise.ints(63, -3, 24);
    let j = noise.ints(600, -3, 10);
    let pick = |row: i64, column: i64| match (0..7).contains(&row) && (0..20).contains(&column) {
        true => x[(row * 20 + column) as usize],
        false => 0.0,
    };
    let a: Vec<f64> = (0..63)
        .map(|at| pick(at as i64 / 9, i[at] as i64))
        .collect();
    let b: Vec<f64> = (0..600)
        .map(|at| pick(j[at] as i64, at as i64 % 20))
        .collect();
    let c: Vec<f64> = (0..7)
        .flat_map(|r| [&x[r * 20..r * 20 + 20], &a[r * 9..r * 9 + 9]].concat())
        .collect();
    let d = [&x[..], &x[..]].concat();
    let e: Vec<f64> = (0..15).map(|at| pick(1 + at / 3, 3 + at % 3)).collect();
    let t = DType::F16;
    check(
        &program(text),
        &[
            ("x", t, vec![7, 20], x.clone()),
            ("i", DType::I32, vec![7, 9], i),
            ("j", DType::I64, vec![30, 20], j),
        ],
        &[
            ("a", t, vec![7, 9], a),
            ("b", t, vec![30, 20], b),
            ("c", t, vec![7, 29], c),
            ("d", t, vec![14, 20], d),
            ("e", t, vec![5, 3], e),
        ],
    );
}

/// The known answers of Philox 4×32-10.
#[test]
fn random_numbers_are_those_of_philox() {
    let text = "kernel k(seed: i64, offset: i64, n: i64, y: out view<u32>[4], z: out view<f32>[4], w: out view<u32>[3, 4]) grid (b in 1) {
        let r = philox(seed, offset, n);
        y[..] = r;
        z[..] = uniform(r);
        w[.., ..] = philox(seed, offset, iota<i64>[3] + n);
    }";
    let program = program(text);
    for (seed, offset, n, words) in [
        (
            0u64,
            0u64,
            0u64,
            [0x6627_e8d5u32, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
        ),
        (
            u64::MAX,
            u64::MAX,
            u64::MAX,
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
        ),
        (
            0x299f_31d0_a409_3822,
            0x0370_7344_1319_8a2e,
            0x85a3_08d3_243f_6a88,
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ] {
        let mut args: Args = [("seed", seed), ("offset", offset), ("n", n)]
            .map(|(name, v)| (name.to_owned(), Arg::from(v as i64)))
            .into_iter()
            .collect();
        for (name, dtype, shape) in [
            ("y", DType::U32, vec![4]),
            ("z", DType::F32, vec![4]),
            ("w", DType::U32, vec![3, 4]),
        ] {
            args.insert(name.into(), Tensor::zeros(dtype, shape).unwrap().into());
        }
        interp::launch(&program.instance, &mut args).unwrap_or_else(|e| panic!("{e}"));
        let get = |name: &str| match &args[name] {
            Arg::Tensor(t) => t.to_f64(),
            Arg::Scalar(_) => panic!("`{name}` is a scalar"),
        };
        assert_eq!(get("y"), words.map(f64::from), "{seed:x} {offset:x} {n:x}");
        let real = words.map(|w| f64::from(w >> 8) / f64::from(1 << 24));
        assert_eq!(get("z"), real);
        assert_eq!(get("w")[..4], words.map(f64::from));
    }
}

#[test]
fn products_of_every_type() {
    let mut noise = Noise(7);
    // Operands, sum, [M, K, N].
    for (a, b, sum, [m, k, n]) in [
        (
            DType::F16,
            DType::F16,
            DType::F16,
            [16usize, 64usize, 24usize],
        ),
        (DType::F16, DType::F16, DType::F32, [7, 80, 176]),
        (DType::Bf16, DType::Bf16, DType::F32, [1, 20, 5]),
        (DType::F16, DType::F16, DType::F32, [3, 2, 9]),
        (DType::Tf32, DType::Tf32, DType::F32, [32, 40, 16]),
        (DType::F32, DType::F32, DType::F32, [7, 11, 20]),
        (DType::F64, DType::F64, DType::F64, [9, 10, 8]),
        (DType::E4m3, DType::E5m2, DType::F32, [16, 80, 16]),
        (DType::E4m3, DType::E4m3, DType::F32, [7, 64, 8]),
        (DType::I8, DType::I8, DType::I32, [16, 96, 32]),
        (DType::U8, DType::I8, DType::I32, [7, 33, 5]),
    ] {
        // tf32 is no type of memory's numbers: it is made on the way.
        let stored = |t: DType| if t == DType::Tf32 { DType::F32 } else { t };
        let (ta, tb) = (stored(a), stored(b));
        let text = format!(
            "kernel k(a: view<{ta}>[{m}, {k}], b: view<{tb}>[{n}, {k}], c: view<{sum}>[{m}, {n}], y: out view<{sum}>[{m}, {n}], z: out view<{sum}>[{n}, {m}]) grid (g in 1) {{
                let x = a[.., ..] as {a};
                let w = b[.., ..] as {b};
                y[.., ..] = dot(x, w.t, c[.., ..]);
                let mut r = zeros<{sum}>[{n}, {m}];
                for i in 0 .. 2 {{ r = dot(load(b[0 +: {n}, 0 +: {k}]) as {b}, (a[0 +: {m}, 0 +: {k}] as {a}).t, r); }}
                z[.., ..] = r;
            }}"
        );
        let whole = |t: DType, noise: &mut Noise, count: usize| match t {
            DType::U8 => noise.ints(count, 0, 256),
            DType::I8 => noise.ints(count, -128, 128),
            _ => noise.ints(count, -3, 4),
        };
        let x = whole(a, &mut noise, m * k);
        let w = whole(b, &mut noise, n * k);
        let c = noise.ints(m * n, -8, 8);
        let product =
            |i: usize, j: usize| -> f64 { (0..k).map(|p| x[i * k + p] * w[j * k + p]).sum() };
        let y = (0..m * n)
            .map(|at| c[at] + product(at / n, at % n))
            .collect();
        let z = (0..m * n).map(|at| 2.0 * product(at % m, at / m)).collect();
        check(
            &program(&text),
            &[
                ("a", ta, vec![m, k], x.clone()),
                ("b", tb, vec![n, k], w.clone()),
                ("c", sum, vec![m, n], c.clone()),
            ],
            &[("y", sum, vec![m, n], y), ("z", sum, vec![n, m], z)],
        );
    }
}

#[test]
fn products_in_batches() {
    let text = "kernel k(a: view<f16>[2, 3, 5, 24], b: view<f16>[2, 3, 24, 9], y: out view<f32>[2, 3, 5, 9]) grid (g in 1) {
        y[.., .., .., ..] = dot(a[.., .., .., ..], b[.., .., .., ..]);
    }
    schedule k { sm_75 ..= sm_121a { warps: 2 } }";
    let mut noise = Noise(8);
    let a = noise.ints(6 * 5 * 24, -4, 5);
    let b = noise.ints(6 * 24 * 9, -4, 5);
    let element = |at: usize| -> f64 {
        let (batch, i, j) = (at / 45, at / 9 % 5, at % 9);
        (0..24)
            .map(|p| a[(batch * 5 + i) * 24 + p] * b[(batch * 24 + p) * 9 + j])
            .sum()
    };
    let y = (0..270).map(element).collect();
    let t = DType::F16;
    check(
        &program(text),
        &[
            ("a", t, vec![2, 3, 5, 24], a.clone()),
            ("b", t, vec![2, 3, 24, 9], b.clone()),
        ],
        &[("y", DType::F32, vec![2, 3, 5, 9], y)],
    );
}

#[test]
fn instructions_of_the_programs_own() {
    let text = "kernel k(x: view<f32>[64], h: view<bf16>[64], i: view<i32>[64], y: out view<f32>[64], g: out view<bf16>[64], z: out view<i32>[64], l: out view<i64>[64]) grid (b in 1) {
        let t = x[..];
        y[..] = ptx(\"fma.rn.f32 $0, $1, $2, $1\", t, 2.0) -> f32 else (fma(t, 2.0, t));
        g[..] = ptx(\"tanh.approx.bf16 $0, $1;\", h[..]) -> bf16 else (h[..] * 0.5);
        let n = i[..];
        z[..] = ptx(\"prmt.b32 $0, $1, $1, 0x0123;\", n) -> i32 else (n + 1);
        l[..] = ptx(\"{ .reg .pred p; setp.lt.s32 p, $1, 0; selp.b64 $0, 1, 0, p; }\", n) -> i64 else ((n < 0) as i64);
        debug(t.sum());
    }";
    let mut noise = Noise(9);
    let (x, h, i) = (
        noise.ints(64, -9, 9),
        noise.ints(64, -9, 9),
        noise.ints(64, -9, 9),
    );
    let shape = vec![64];
    let each = |v: &[f64], f: fn(f64) -> f64| v.iter().map(|&x| f(x)).collect::<Vec<_>>();
    check(
        &program(text),
        &[
            ("x", DType::F32, shape.clone(), x.clone()),
            ("h", DType::Bf16, shape.clone(), h.clone()),
            ("i", DType::I32, shape.clone(), i.clone()),
        ],
        &[
            ("y", DType::F32, shape.clone(), each(&x, |v| 3.0 * v + 0.0)),
            ("g", DType::Bf16, shape.clone(), each(&h, |v| 0.5 * v)),
            ("z", DType::I32, shape.clone(), each(&i, |v| v + 1.0)),
            ("l", DType::I64, shape, each(&i, |v| f64::from(v < 0.0))),
        ],
    );
}

#[test]
fn rests_have_the_sign_of_the_divisor() {
    let text = "kernel k(a: view<f32>[80], b: view<f32>[80], c: view<f64>[80], y: out view<f32>[80], z: out view<f64>[80]) grid (g in 1) {
        y[..] = a[..] % b[..];
        z[..] = c[..] % (b[..] as f64);
    }";
    let mut noise = Noise(10);
    let mut wide = |count: usize| -> Vec<f64> {
        (0..count)
            .map(|_| f64::from(f32::from_bits(noise.next() as u32)))
            .collect()
    };
    let (a, b) = (wide(80), wide(80));
    let floored = |a: f64, b: f64| {
        let r = a % b;
        if r != 0.0 && (r < 0.0) != (b < 0.0) {
            r + b
        } else {
            r
        }
    };
    let z: Vec<f64> = a.iter().zip(&b).map(|(&a, &b)| floored(a, b)).collect();
    let y = z.iter().map(|&r| f64::from(r as f32)).collect();
    let shape = vec![80];
    check(
        &program(text),
        &[
            ("a", DType::F32, shape.clone(), a.clone()),
            ("b", DType::F32, shape.clone(), b),
            ("c", DType::F64, shape.clone(), a),
        ],
        &[
            ("y", DType::F32, shape.clone(), y),
            ("z", DType::F64, shape, z),
        ],
    );
}
