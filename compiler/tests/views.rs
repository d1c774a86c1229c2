//! Views derived from other views, against plain Rust: what each form reads, and what it stores.

use tesserine_compiler::{
    Session,
    diagnostics::render,
    interp::{self, Arg, Args, FaultKind, InterpError, Tensor},
    ir::tile,
    target::Target,
};
use tesserine_set::DType;

fn try_make(text: &str, instance: &str) -> Result<tile::Instance, String> {
    let mut session = Session::new();
    let made = session
        .load_text("program.tess", text)
        .and_then(|module| session.instantiate(module, instance, Target::ALL[3]));
    match made {
        Ok(made) => {
            for body in &made.bodies {
                assert_eq!(tile::verify(body), Ok(()), "{body}");
                let again =
                    tile::parse(&body.to_string()).unwrap_or_else(|e| panic!("{e}\n{body}"));
                assert_eq!(again.to_string(), body.to_string());
            }
            Ok(made)
        }
        Err(diagnostics) => Err(diagnostics
            .iter()
            .map(|d| render(d, session.sources(), false))
            .collect()),
    }
}

fn make(text: &str, instance: &str) -> tile::Instance {
    try_make(text, instance).unwrap_or_else(|e| panic!("{e}"))
}

fn fails(text: &str, instance: &str, code: &str, part: &str) {
    let Err(told) = try_make(text, instance) else {
        panic!("this should be {code}:\n{text}")
    };
    assert!(told.contains(code), "{code} is missing:\n{told}");
    assert!(told.contains(part), "`{part}` is missing:\n{told}");
}

fn tensor(dtype: DType, shape: &[usize], values: impl IntoIterator<Item = f64>) -> Arg {
    let values: Vec<f64> = values.into_iter().collect();
    Tensor::from_f64(dtype, shape.to_vec(), &values)
        .expect("a tensor")
        .into()
}

fn ramp(n: usize) -> impl Iterator<Item = f64> {
    (0..n).map(|i| i as f64 + 1.0)
}

fn named(args: Vec<(&str, Arg)>) -> Args {
    args.into_iter().map(|(n, a)| (n.to_owned(), a)).collect()
}

/// Runs an instance and gives the values of `out`.
fn run(instance: &tile::Instance, args: Vec<(&str, Arg)>, out: &str) -> Vec<f64> {
    let mut args = named(args);
    interp::launch(instance, &mut args).unwrap_or_else(|e| panic!("{e}"));
    match &args[out] {
        Arg::Tensor(tensor) => tensor.to_f64(),
        Arg::Scalar(_) => panic!("`{out}` is a scalar"),
    }
}

/// The element at `i`, or 0 if it is outside.
fn at(values: &[f64], i: i64) -> f64 {
    usize::try_from(i)
        .ok()
        .and_then(|i| values.get(i))
        .copied()
        .unwrap_or(0.0)
}

#[test]
fn a_part_reads_zero_outside_its_clamped_bounds() {
    let text = "kernel k(x: view<f32>[n], lo: i32, hi: i32, s: i32, l: i32, y: out view<f32>[3, 5]) grid (one in 1) {
        let p = view x[lo .. hi];
        y[0, ..] = p[s +: 5];
        y[1, ..] = p[s +: 5 until l];
        y[2, ..] = zeros<f32>[5] + p[s] + (p.dim(0) as f32) * 100.0;
    }";
    let instance = make(text, "k");
    let n = 11;
    let x: Vec<f64> = ramp(n).collect();
    for (lo, hi) in [
        (0, 11),
        (3, 8),
        (-4, 5),
        (7, 40),
        (9, 2),
        (11, 11),
        (4, 4),
        (-9, -3),
        (60, 70),
    ] {
        for (s, l) in [(0, 2), (-2, 9), (1, 4), (4, 3), (-9, -1), (100, 100)] {
            let first = i64::from(lo).clamp(0, n as i64);
            let end = i64::from(hi).clamp(first, n as i64);
            let part = &x[first as usize..end as usize];
            let got = run(
                &instance,
                vec![
                    ("x", tensor(DType::F32, &[n], x.clone())),
                    ("lo", Arg::from(i64::from(lo))),
                    ("hi", Arg::from(i64::from(hi))),
                    ("s", Arg::from(s)),
                    ("l", Arg::from(l)),
                    ("y", tensor(DType::F32, &[3, 5], vec![0.0; 15])),
                ],
                "y",
            );
            let mut expected = Vec::new();
            expected.extend((s..s + 5).map(|i| at(part, i)));
            expected.extend((s..s + 5).map(|i| if i < l { at(part, i) } else { 0.0 }));
            expected.extend([at(part, s) + part.len() as f64 * 100.0; 5]);
            assert_eq!(got, expected, "{lo}..{hi} from {s} until {l}");
        }
    }
}

#[test]
fn parts_of_parts_stay_within_both() {
    let text = "kernel k(x: view<f32>[n, 4], b: view<i32>[4], at: view<i32>[6], s: i32, y: out view<f32>[3, 6]) grid (one in 1) {
        let p = view x[b[0] .. b[1], ..];
        let q = view p[b[2] .. b[3], 2];
        y[0, ..] = q[s +: 6];
        y[1, ..] = q[at[..]];
        y[2, ..] = zeros<f32>[6] + q[s];
    }";
    let instance = make(text, "k");
    let (n, x) = (13usize, ramp(52).collect::<Vec<f64>>());
    let index = [0.0, -1.0, 2.0, 5.0, 1.0, 12.0];
    for b in [
        [2, 9, 1, 5],
        [0, 13, 0, 13],
        [3, 7, -2, 40],
        [5, 6, 1, 1],
        [8, 3, 0, 4],
        [4, 12, 7, 8],
    ] {
        for s in [-3, 0, 1, 2] {
            let part = |v: Vec<f64>, lo: i64, hi: i64| {
                let lo = lo.clamp(0, v.len() as i64);
                let hi = hi.clamp(lo, v.len() as i64);
                v[lo as usize..hi as usize].to_vec()
            };
            let column: Vec<f64> = (0..n).map(|r| x[r * 4 + 2]).collect();
            let q = part(part(column, b[0], b[1]), b[2], b[3]);
            let got = run(
                &instance,
                vec![
                    ("x", tensor(DType::F32, &[n, 4], x.clone())),
                    ("b", tensor(DType::I32, &[4], b.map(|v| v as f64))),
                    ("at", tensor(DType::I32, &[6], index)),
                    ("s", Arg::from(s)),
                    ("y", tensor(DType::F32, &[3, 6], vec![0.0; 18])),
                ],
                "y",
            );
            let mut expected: Vec<f64> = (s..s + 6).map(|i| at(&q, i)).collect();
            expected.extend(index.map(|i| at(&q, i as i64)));
            expected.extend([at(&q, s); 6]);
            assert_eq!(got, expected, "{b:?} from {s}");
        }
    }
}

#[test]
fn open_bounds_and_constant_ones() {
    let text = "kernel k(x: view<f32>[n, 7], a: i32, y: out view<f32>[3, 4]) grid (one in 1) {
        let c = view x[.., 2 .. 6];
        y[0, ..] = c[a, ..];
        y[1, ..] = c[a, 1 +: 4];
        let d = view x[a .., 1 ..];
        y[2, ..] = (view d[.. 2, ..])[1, 3 +: 4];
    }";
    let instance = make(text, "k");
    let n = 5;
    let x: Vec<f64> = ramp(35).collect();
    for a in [-1i64, 0, 2, 4, 5] {
        let row = |r: i64| -> Vec<f64> {
            if (0..n).contains(&r) {
                x[r as usize * 7..r as usize * 7 + 7].to_vec()
            } else {
                vec![0.0; 7]
            }
        };
        let got = run(
            &instance,
            vec![
                ("x", tensor(DType::F32, &[5, 7], x.clone())),
                ("a", Arg::from(a)),
                ("y", tensor(DType::F32, &[3, 4], vec![0.0; 12])),
            ],
            "y",
        );
        let c = &row(a)[2..6];
        let mut expected = c.to_vec();
        expected.extend((1..5).map(|i| at(c, i)));
        // A negative start is clamped to 0, so that row 1 of the part is row 1.
        let d = &row(a.max(0) + 1)[1..];
        expected.extend((3..7).map(|i| at(d, i)));
        assert_eq!(got, expected, "{a}");
    }
}

#[test]
fn a_part_that_is_stored_to_drops_what_is_outside() {
    let text =
        "kernel k(p: view<i32>[r + 1] sorted, y: mut view<f32>[n, m]) grid (i in r, j in 2) {
        let rows = view y[p[i] .. p[i + 1], ..];
        rows[0 +: 4, j*3 +: 3] = full<f32>[4, 3]((i + 1) as f32);
    }";
    let instance = make(text, "k");
    let p = [0usize, 3, 3, 5, 6];
    let got = run(
        &instance,
        vec![
            ("p", tensor(DType::I32, &[5], p.map(|v| v as f64))),
            ("y", tensor(DType::F32, &[8, 5], vec![-1.0; 40])),
        ],
        "y",
    );
    let mut expected = vec![-1.0; 40];
    for i in 0..4 {
        for row in p[i]..p[i + 1].min(p[i] + 4) {
            expected[row * 5..row * 5 + 5].fill(i as f64 + 1.0);
        }
    }
    assert_eq!(got, expected);
}

#[test]
fn transposed_and_permuted_views_read_and_store() {
    let text = "kernel k(x: view<f32>[a, b, 3], y: out view<f32>[3, b, a], z: out view<f32>[b, a]) grid (one in 1) {
        y.permute([2, 1, 0])[0 +: 4, 0 +: 5, ..] = x[0 +: 4, 0 +: 5, ..];
        z.t[0 +: 4, 0 +: 5] = (view x[.., .., 1]).t.t[0 +: 4, 0 +: 5];
    }";
    let instance = make(text, "k");
    let (a, b) = (3, 5);
    let x: Vec<f64> = ramp(a * b * 3).collect();
    let args = || {
        vec![
            ("x", tensor(DType::F32, &[a, b, 3], x.clone())),
            ("y", tensor(DType::F32, &[3, b, a], vec![0.0; a * b * 3])),
            ("z", tensor(DType::F32, &[b, a], vec![0.0; a * b])),
        ]
    };
    let mut y = Vec::new();
    for k in 0..3 {
        for j in 0..b {
            y.extend((0..a).map(|i| x[(i * b + j) * 3 + k]));
        }
    }
    assert_eq!(run(&instance, args(), "y"), y);
    let mut z = Vec::new();
    for j in 0..b {
        z.extend((0..a).map(|i| x[(i * b + j) * 3 + 1]));
    }
    assert_eq!(run(&instance, args(), "z"), z);
}

#[test]
fn split_dimensions_in_every_combination() {
    // 14 = 4 · 3 + 2: the last two are no part of the split view.
    let text = "kernel k(x: view<f32>[n], i: i32, j: i32, t: view<i32>[3], y: out view<f32>[8, 6]) grid (one in 1) {
        let v = x.split(0, 3);
        y[0, 0 +: 3] = v[i, ..];
        y[1, 0 +: 6] = v[i +: 2, ..].reshape([6]);
        y[2, 0 +: 6] = v[i +: 3, j +: 2].reshape([6]);
        y[3, 0 +: 4] = v[i +: 4, j];
        y[4, 0 +: 3] = v[t[..], j];
        y[5, 0 +: 6] = v[t[..], j +: 2].reshape([6]);
        y[6, 0 +: 1] = zeros<f32>[1] + v[i, j] + (v.dim(0) as f32) * 1000.0;
        y[7, 0 +: 5] = v[i, j +: 5 until 2];
    }";
    let instance = make(text, "k");
    let x: Vec<f64> = ramp(14).collect();
    let t = [1i64, 4, -1];
    for i in [-1i64, 0, 2, 3, 4] {
        for j in [-1i64, 0, 1, 2, 3] {
            let v = |o: i64, n: i64| {
                if (0..4).contains(&o) && (0..3).contains(&n) {
                    x[(o * 3 + n) as usize]
                } else {
                    0.0
                }
            };
            let mut expected = vec![vec![0.0; 6]; 8];
            (0..3).for_each(|n| expected[0][n] = v(i, n as i64));
            (0..6).for_each(|k| expected[1][k] = v(i + k as i64 / 3, k as i64 % 3));
            (0..6).for_each(|k| expected[2][k] = v(i + k as i64 / 2, j + k as i64 % 2));
            (0..4).for_each(|k| expected[3][k] = v(i + k as i64, j));
            (0..3).for_each(|k| expected[4][k] = v(t[k], j));
            (0..6).for_each(|k| expected[5][k] = v(t[k / 2], j + k as i64 % 2));
            expected[6][0] = v(i, j) + 4000.0;
            (0..5).for_each(|k| {
                let n = j + k as i64;
                expected[7][k] = if n < 2 { v(i, n) } else { 0.0 };
            });
            let got = run(
                &instance,
                vec![
                    ("x", tensor(DType::F32, &[14], x.clone())),
                    ("i", Arg::from(i)),
                    ("j", Arg::from(j)),
                    ("t", tensor(DType::I32, &[3], t.map(|v| v as f64))),
                    ("y", tensor(DType::F32, &[8, 6], vec![0.0; 48])),
                ],
                "y",
            );
            assert_eq!(got, expected.concat(), "{i}, {j}");
        }
    }
}

#[test]
fn merged_dimensions_count_row_by_row() {
    let text = "kernel k(x: view<f32>[a, b, 2], s: i32, t: view<i32>[4], y: out view<f32>[4, 8]) grid (one in 1) {
        let v = x.merge(0, 1);
        y[0, ..] = v[s +: 8, 1];
        y[1, 0 +: 4] = v[t[..], 0];
        y[2, 0 +: 2] = v[s, ..];
        let p = view v[1 .. 7, ..];
        y[3, ..] = p[s +: 8, 0] + (p.dim(0) as f32) * 100.0;
    }";
    let instance = make(text, "k");
    let x: Vec<f64> = ramp(24).collect();
    let t = [3i64, 11, -1, 12];
    for (a, b) in [(3, 4), (4, 3), (12, 1), (0, 5), (5, 0)] {
        let rows = a * b;
        for s in [-2i64, 0, 5, 9] {
            let v = |r: i64, c: usize| {
                if (0..rows as i64).contains(&r) {
                    x[r as usize * 2 + c]
                } else {
                    0.0
                }
            };
            let mut expected = vec![vec![0.0; 8]; 4];
            (0..8).for_each(|k| expected[0][k] = v(s + k as i64, 1));
            (0..4).for_each(|k| expected[1][k] = v(t[k], 0));
            (0..2).for_each(|c| expected[2][c] = v(s, c));
            let (first, end) = (
                1.min(rows as i64),
                7.min(rows as i64).max(1.min(rows as i64)),
            );
            (0..8).for_each(|k| {
                let r = s + k as i64;
                let inside = (0..end - first).contains(&r);
                expected[3][k] =
                    if inside { v(first + r, 0) } else { 0.0 } + (end - first) as f64 * 100.0;
            });
            let got = run(
                &instance,
                vec![
                    ("x", tensor(DType::F32, &[a, b, 2], x.clone())),
                    ("s", Arg::from(s)),
                    ("t", tensor(DType::I32, &[4], t.map(|v| v as f64))),
                    ("y", tensor(DType::F32, &[4, 8], vec![0.0; 32])),
                ],
                "y",
            );
            assert_eq!(got, expected.concat(), "{a} × {b} from {s}");
        }
    }
}

#[test]
fn index_tiles_of_any_rank_gather() {
    let text = "kernel k(x: view<f32>[m, n], r: view<i32>[2, 3], c: view<i64>[3], y: out view<f32>[2, 3], z: out view<f32>[2, 3, 2], w: out view<f32>[2, 2, 3], q: out view<f32>[3, 2]) grid (one in 1) {
        y[.., ..] = x[r[.., ..], c[..]];
        z[.., .., ..] = load(x[r[.., ..], 1 +: 2], pad = -5.0);
        w[.., .., ..] = x[0 +: 2, r[.., ..]];
        q[.., ..] = x.t[c[..], 1 +: 2];
    }";
    let instance = make(text, "k");
    let (m, n) = (4i64, 3i64);
    let x: Vec<f64> = ramp(12).collect();
    let (r, c) = ([0i64, 3, -1, 2, 9, 1], [2i64, 0, 3]);
    let v = |i: i64, j: i64, pad: f64| {
        if (0..m).contains(&i) && (0..n).contains(&j) {
            x[(i * n + j) as usize]
        } else {
            pad
        }
    };
    let args = || {
        vec![
            ("x", tensor(DType::F32, &[4, 3], x.clone())),
            ("r", tensor(DType::I32, &[2, 3], r.map(|v| v as f64))),
            ("c", tensor(DType::I64, &[3], c.map(|v| v as f64))),
            ("y", tensor(DType::F32, &[2, 3], [0.0; 6])),
            ("z", tensor(DType::F32, &[2, 3, 2], [0.0; 12])),
            ("w", tensor(DType::F32, &[2, 2, 3], [0.0; 12])),
            ("q", tensor(DType::F32, &[3, 2], [0.0; 6])),
        ]
    };
    let y: Vec<f64> = (0..6).map(|k| v(r[k], c[k % 3], 0.0)).collect();
    assert_eq!(run(&instance, args(), "y"), y);
    let z: Vec<f64> = (0..12)
        .map(|k| v(r[k / 2], 1 + k as i64 % 2, -5.0))
        .collect();
    assert_eq!(run(&instance, args(), "z"), z);
    let w: Vec<f64> = (0..12).map(|k| v(k as i64 / 6, r[k % 6], 0.0)).collect();
    assert_eq!(run(&instance, args(), "w"), w);
    let q: Vec<f64> = (0..6).map(|k| v(1 + k as i64 % 2, c[k / 2], 0.0)).collect();
    assert_eq!(run(&instance, args(), "q"), q);
}

#[test]
fn paged_rows_come_from_their_pages() {
    let text = "kernel k<P: int>(cache: view<f32>[pages, P, 2], indptr: view<i32>[b + 1] sorted, ids: view<i32>[total], last: view<i32>[b], s: i32, u: i32, y: out view<f32>[b, 3, 8]) grid (i in b) {
        let own = view ids[indptr[i] .. indptr[i + 1]];
        let len = max(own.dim(0) - 1, 0) * P + select(own.dim(0) > 0, last[i], 0);
        let v = paged(cache, own, len);
        y[i, 0, ..] = v[s +: 8, 1];
        y[i, 1, ..] = v[s +: 8 until u, 0];
        y[i, 2, ..] = zeros<f32>[8] + v[s, 1] + (v.dim(0) as f32) * 1000.0;
    }";
    let (indptr, ids, last) = ([0usize, 3, 3, 5], [4i64, 0, 2, 6, 1], [2i64, 0, 1]);
    let pages = 5;
    for p in [3usize, 4] {
        let instance = make(text, &format!("k<P = {p}>"));
        let cache: Vec<f64> = ramp(pages * p * 2).collect();
        for (s, u) in [(0i64, 5i64), (-3, 3), (4, 100), (6, 6)] {
            let mut expected = Vec::new();
            for i in 0..3 {
                let own = &ids[indptr[i]..indptr[i + 1]];
                let len = own.len().saturating_sub(1) * p
                    + if own.is_empty() { 0 } else { last[i] as usize };
                let v = |t: i64, c: usize| {
                    let Some(t) = usize::try_from(t).ok().filter(|&t| t < len) else {
                        return 0.0;
                    };
                    let page = own[t / p] as usize;
                    if page < pages {
                        cache[(page * p + t % p) * 2 + c]
                    } else {
                        0.0
                    }
                };
                expected.extend((0..8).map(|k| v(s + k, 1)));
                expected.extend((0..8).map(|k| if s + k < u { v(s + k, 0) } else { 0.0 }));
                expected.extend([v(s, 1) + len as f64 * 1000.0; 8]);
            }
            let got = run(
                &instance,
                vec![
                    ("cache", tensor(DType::F32, &[pages, p, 2], cache.clone())),
                    ("indptr", tensor(DType::I32, &[4], indptr.map(|v| v as f64))),
                    ("ids", tensor(DType::I32, &[5], ids.map(|v| v as f64))),
                    ("last", tensor(DType::I32, &[3], last.map(|v| v as f64))),
                    ("s", Arg::from(s)),
                    ("u", Arg::from(u)),
                    ("y", tensor(DType::F32, &[3, 3, 8], vec![0.0; 72])),
                ],
                "y",
            );
            assert_eq!(got, expected, "pages of {p}, from {s} until {u}");
        }
    }
}

#[test]
fn functions_take_derived_views() {
    let text = "fn rows<N: int>(v, s) = v[s +: N, ..].sum(0);
        fn fill(to: out view<f32>[d], x) { to[0 +: 4] = full<f32>[4](x + (d as f32)); }
        struct Pair { one, two }
        kernel k(x: view<f32>[n, 4], p: view<i32>[3], y: mut view<f32>[3, 4]) grid (one in 1) {
            let a = view x[p[0] .. p[1], ..];
            let pair = Pair(one = a, two = view x[p[1] .. p[2], ..]);
            let (first, second) = (pair.one, pair.two);
            y[0, ..] = rows::<4>(first, 0);
            y[1, ..] = rows::<4>(second, 1);
            fill(view y[2, 1 .. 3], 0.5);
        }";
    let instance = make(text, "k");
    let x: Vec<f64> = ramp(28).collect();
    let sum = |lo: usize, hi: usize| -> Vec<f64> {
        (0..4)
            .map(|c| (lo..hi).map(|r| x[r * 4 + c]).sum())
            .collect()
    };
    let got = run(
        &instance,
        vec![
            ("x", tensor(DType::F32, &[7, 4], x.clone())),
            ("p", tensor(DType::I32, &[3], [1.0, 3.0, 7.0])),
            ("y", tensor(DType::F32, &[3, 4], [9.0; 12])),
        ],
        "y",
    );
    let expected = [sum(1, 3), sum(4, 7), vec![9.0, 2.5, 2.5, 9.0]].concat();
    assert_eq!(got, expected);
}

#[test]
fn a_view_with_other_elements_shares_the_memory() {
    let text = "kernel k(x: view<u8>[m, n], w: view<u32>[m, 2], y: out view<u32>[m, 2], z: out view<u8>[m, 3]) grid (i in m) {
        y[i, ..] = bitcast<u32>(x)[i, 0 +: 2];
        z[i, ..] = bitcast<u8>(w)[i, 3 +: 3];
    }";
    let instance = make(text, "k");
    let x: Vec<f64> = (0..24).map(|i| f64::from(i * 7 % 256)).collect();
    let w: Vec<f64> = (0..6)
        .map(|i| f64::from(0x0102_0304 + i * 0x1111_1111))
        .collect();
    let args = || {
        vec![
            ("x", tensor(DType::U8, &[3, 8], x.clone())),
            ("w", tensor(DType::U32, &[3, 2], w.clone())),
            ("y", tensor(DType::U32, &[3, 2], [0.0; 6])),
            ("z", tensor(DType::U8, &[3, 3], [0.0; 9])),
        ]
    };
    let word = |b: &[f64]| b.iter().rev().fold(0.0, |w, v| w * 256.0 + v);
    let y: Vec<f64> = x.chunks(4).map(word).collect();
    assert_eq!(run(&instance, args(), "y"), y);
    let bytes: Vec<u8> = w.iter().flat_map(|v| (*v as u32).to_le_bytes()).collect();
    let z: Vec<f64> = bytes
        .chunks(8)
        .flat_map(|r| r[3..6].iter().map(|b| f64::from(*b)))
        .collect();
    assert_eq!(run(&instance, args(), "z"), z);
}

#[test]
fn what_is_no_view_says_so() {
    let kernel = |params: &str, body: &str| {
        format!("kernel k({params}, y: out view<f32>[4]) grid (one in 1) {{ {body} }}")
    };
    for (params, body, code, part) in [
        (
            "x: view<f32>[n]",
            "let a = view x[0]; y[..] = zeros<f32>[4];",
            "E0210",
            "no dimension left",
        ),
        (
            "x: view<f32>[n, 4, m]",
            "let a = x.merge(0, 2); y[..] = zeros<f32>[4];",
            "E0210",
            "a dimension and the next",
        ),
        (
            "x: view<f32>[n, m]",
            "let a = x.split(2, 2); y[..] = zeros<f32>[4];",
            "E0206",
            "2",
        ),
        (
            "x: view<f32>[n, m]",
            "let a = x.split(0, 0); y[..] = zeros<f32>[4];",
            "E0205",
            "at least 1",
        ),
        (
            "x: view<f32>[n]",
            "y[..] = x.t[..];",
            "E0206",
            "the last two",
        ),
        (
            "x: view<f32>[n, m], p: view<i32>[l]",
            "let a = paged(x, p, 4); y[..] = zeros<f32>[4];",
            "E0210",
            "constant P",
        ),
        (
            "x: view<f32>[n, 4], p: view<f32>[l]",
            "let a = paged(x, p, 4); y[..] = zeros<f32>[4];",
            "E0210",
            "numbers of pages",
        ),
        (
            "x: view<f32>[n]",
            "let a = view x[iota<i32>[4]]; y[..] = zeros<f32>[4];",
            "E0210",
            "index tile",
        ),
        (
            "x: view<f32>[n, 3, n]",
            "y[..] = x[iota<i32>[4], 0, iota<i32>[4]];",
            "E0202",
            "neighbours",
        ),
        (
            "x: view<f32>[n, n]",
            "y[..] = x[iota<i32>[4], iota<i32>[3]];",
            "E0201",
            "run together",
        ),
        (
            "x: view<f32>[n]",
            "y[..] = x[zeros<f32>[4]];",
            "E0102",
            "tile of integers",
        ),
        (
            "x: view<f32>[n], s: i32",
            "y[..] = (view x[s .. s + 4])[..];",
            "E0209",
            "no constant extent",
        ),
        (
            "x: view<f32>[n]",
            "let a = bitcast<u64>(view x[1 ..]); y[..] = zeros<f32>[4];",
            "E0210",
            "cut where",
        ),
    ] {
        fails(&kernel(params, body), "k", code, part);
    }
}

#[test]
fn a_layout_puts_logical_elements_anywhere() {
    let text = "layout swizzled(r, c) of [m, n] size round_up(m, 4) * n = (r / 4 * n + c) * 4 + (r + c) % 4;
        kernel k(x: view<f32>[m, 2 * h], s: view<f32>[m, h] in swizzled, r: i32, t: view<i32>[3], y: mut view<f32>[2 * m, h] in swizzled, z: out view<f32>[3, 4]) grid (i in m) {
            y[2 * i, 0 +: 4] = x[i, 0 +: 4] + s[i, 0 +: 4];
            y[2 * i + 1, 0 +: 4] = zeros<f32>[4];
            if i == 0 {
                z[0, ..] = s[r, 0 +: 4];
                z[1, 0 +: 3] = s[t[..], 1];
                z[2, ..] = (view s[r .. r + 2, 1 ..])[0 +: 2, 0 +: 2].reshape([4]);
            }
        }";
    let instance = make(text, "k");
    let (m, h) = (6usize, 3usize);
    let place = |r: usize, c: usize| (r / 4 * h + c) * 4 + (r + c) % 4;
    let x: Vec<f64> = ramp(m * 2 * h).collect();
    let logical: Vec<f64> = (0..m * h).map(|i| 100.0 + i as f64).collect();
    let size = |m: usize| m.next_multiple_of(4) * h;
    let mut flat = vec![-7.0; size(m)];
    (0..m * h).for_each(|i| flat[place(i / h, i % h)] = logical[i]);
    let t = [2i64, -1, 6];
    for r in [-1i64, 0, 5] {
        let args = || {
            vec![
                ("x", tensor(DType::F32, &[m, 2 * h], x.clone())),
                ("s", tensor(DType::F32, &[size(m)], flat.clone())),
                ("r", Arg::from(r)),
                ("t", tensor(DType::I32, &[3], t.map(|v| v as f64))),
                (
                    "y",
                    tensor(DType::F32, &[size(2 * m)], vec![-1.0; size(2 * m)]),
                ),
                ("z", tensor(DType::F32, &[3, 4], vec![-1.0; 12])),
            ]
        };
        let y = run(&instance, args(), "y");
        for i in 0..m {
            for c in 0..h {
                assert_eq!(y[place(2 * i, c)], x[i * 2 * h + c] + logical[i * h + c]);
                assert_eq!(y[place(2 * i + 1, c)], 0.0);
            }
        }
        let v = |r: i64, c: i64| {
            if (0..m as i64).contains(&r) && (0..h as i64).contains(&c) {
                logical[r as usize * h + c as usize]
            } else {
                0.0
            }
        };
        let z = run(&instance, args(), "z");
        let mut expected: Vec<f64> = (0..4).map(|c| v(r, c)).collect();
        expected.extend(t.map(|t| v(t, 1)));
        expected.push(-1.0);
        let first = r.max(0);
        for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            expected.push(if first + a < r + 2 {
                v(first + a, 1 + b)
            } else {
                0.0
            });
        }
        assert_eq!(z, expected, "{r}");
    }
    for (layout, part) in [
        ("size m * n = r * m + c", "and the size is"),
        ("size m * n = r * n / 2 + c", "have one place"),
        ("size m * n = r * (n + 1) + c", "and the size is"),
        ("size m * n = (r - 1) * n + c", "has place -64"),
        ("size m * n = r / (n - 64) * n + c", "has no place"),
    ] {
        let text = format!("layout l(r, c) of [m, n] {layout};
            kernel k(x: view<f32>[m, n] in l, y: out view<f32>[m, n]) grid (i in m) {{ y[i, 0 +: 8] = x[i, 0 +: 8]; }}");
        fails(&text, "k", "E0212", part);
    }
    let unbound = "layout l(r, c) of [m, n] size m * n = r * n + c;
        kernel k(x: view<f32>[m, n] in l, y: out view<f32>[m]) grid (i in m) { y[i] = x[i, 0]; }";
    fails(unbound, "k", "E0208", "`n`");
    let other =
        "kernel k(x: view<f32>[m] in k, y: out view<f32>[m]) grid (i in m) { y[i] = x[i]; }";
    fails(other, "k", "E0101", "no layout");
    let rank = "layout l(r, c) of [m, n] size m * n = r * n + c;
        kernel k(x: view<f32>[m] in l, y: out view<f32>[m]) grid (i in m) { y[i] = x[i]; }";
    fails(rank, "k", "E0210", "2 dimensions");
}
#[test]
fn what_is_stored_twice_at_once_is_told() {
    let text = "kernel k(at: view<i32>[4], y: mut view<f32>[n]) grid (one in 1) {
        scatter y[at[..]] = iota<i32>[4] as f32;
    }";
    let instance = make(text, "k");
    let launch = |at: [f64; 4]| {
        let mut args = named(vec![
            ("at", tensor(DType::I32, &[4], at)),
            ("y", tensor(DType::F32, &[6], [9.0; 6])),
        ]);
        let result = interp::launch(&instance, &mut args);
        match &args["y"] {
            Arg::Tensor(y) => (result, y.to_f64()),
            Arg::Scalar(_) => panic!("`y` is a scalar"),
        }
    };
    let (result, y) = launch([5.0, -1.0, 0.0, 6.0]);
    assert!(result.is_ok());
    assert_eq!(y, [2.0, 9.0, 9.0, 9.0, 9.0, 0.0]);
    let (result, _) = launch([1.0, 3.0, 4.0, 3.0]);
    match result {
        Err(InterpError::Fault { kind, .. }) => assert_eq!(
            kind,
            FaultKind::Twice {
                param: "y".into(),
                index: vec![3]
            }
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn packed_elements_lie_from_the_low_bits_up() {
    let text = "kernel bits(x: view<u8>[n], y: out view<u1>[n]) grid (i in ceil_div(n, 16)) {
            y[i*16 +: 16] = x[i*16 +: 16] != 0;
        }
        kernel back(y: view<u1>[n], s: i32, x: out view<u8>[8], one: out view<u8>[1]) grid (i in 1) {
            x[..] = y[s +: 8] as u8;
            one[0] = if y[s] { 7 } else { 3 };
        }
        kernel halves(a: view<i4>[m, n], b: out view<i4>[m, n], c: out view<u4>[m, n]) grid (i in m) {
            b[i, 0 +: 8] = -a[i, 0 +: 8];
            c[i, 0 +: 8] = bitcast<u8>(a[i, 0 +: 8]) & 15;
        }
        kernel floats(a: view<f32>[m, n], b: mut view<e2m1>[m, n], c: out view<f32>[m, 4]) grid (i in m) {
            b[i, 0 +: 6] = a[i, 0 +: 6] as e2m1;
            c[i, ..] = b[i, 2 +: 4] as f32;
        }
        kernel known(x: view<u8>[n], s: i32, y: mut view<u1>[n]) where s % 8 == 0, n % 16 == 0 grid (one in 1) {
            for j in 0..n step 16 { y[s + j +: 8 until n] = x[s + j +: 8] != 0; }
        }";
    let bytes = |arg: &Arg| match arg {
        Arg::Tensor(tensor) => tensor.data.clone(),
        Arg::Scalar(_) => panic!("a scalar"),
    };
    let launch = |name: &str, args: Vec<(&str, Arg)>| {
        let mut args = named(args);
        interp::launch(&make(text, name), &mut args).unwrap_or_else(|e| panic!("{e}"));
        args
    };
    for n in [1usize, 8, 13, 40] {
        let x: Vec<f64> = (0..n)
            .map(|i| f64::from(u8::from(i * i % 3 == 1)))
            .collect();
        let args = launch(
            "bits",
            vec![
                ("x", tensor(DType::U8, &[n], x.clone())),
                ("y", tensor(DType::U1, &[n], vec![0.0; n])),
            ],
        );
        let mut packed = vec![0u8; n.div_ceil(8)];
        (0..n).for_each(|i| packed[i / 8] |= (x[i] as u8) << (i % 8));
        assert_eq!(bytes(&args["y"]), packed);
        for s in [-3i64, 0, 5] {
            let args = launch(
                "back",
                vec![
                    ("y", args["y"].clone()),
                    ("s", Arg::from(s)),
                    ("x", tensor(DType::U8, &[8], vec![9.0; 8])),
                    ("one", tensor(DType::U8, &[1], vec![9.0])),
                ],
            );
            let expected: Vec<u8> = (s..s + 8).map(|i| at(&x, i) as u8).collect();
            assert_eq!(bytes(&args["x"]), expected);
            assert_eq!(bytes(&args["one"]), [if at(&x, s) != 0.0 { 7 } else { 3 }]);
        }
    }
    // Rows of five: three bytes each.
    let a: Vec<f64> = (0..15).map(|i| f64::from(i * 5 % 16 - 8)).collect();
    let args = launch(
        "halves",
        vec![
            ("a", tensor(DType::I4, &[3, 5], a.clone())),
            ("b", tensor(DType::I4, &[3, 5], vec![0.0; 15])),
            ("c", tensor(DType::U4, &[3, 5], vec![0.0; 15])),
        ],
    );
    let mut rows = vec![[0u8; 9]; 3];
    for (i, v) in a.iter().enumerate() {
        let code = *v as i32;
        for (rows, code) in rows.iter_mut().zip([code, -code, code]) {
            let byte = i / 5 * 3 + i % 5 / 2;
            rows[byte] |= ((code & 15) as u8) << (i % 5 % 2 * 4);
        }
    }
    for (name, row) in ["a", "b", "c"].into_iter().zip(&rows) {
        assert_eq!(bytes(&args[name])[..], row[..], "{name}");
    }
    let a = [
        0.0, 0.3, -1.4, 2.6, 100.0, -0.24, 5.1, -3.4, 0.75, 1.25, -6.0, 1.76,
    ];
    let args = launch(
        "floats",
        vec![
            ("a", tensor(DType::F32, &[2, 6], a)),
            ("b", tensor(DType::E2m1, &[2, 6], vec![0.0; 12])),
            ("c", tensor(DType::F32, &[2, 4], vec![0.0; 8])),
        ],
    );
    // Of 0, 0.5, 1, 1.5, 2, 3, 4, 6 the nearest, ties to the even code.
    let e2m1 = [
        0.0, 0.5, -1.5, 3.0, 6.0, 0.0, 6.0, -3.0, 1.0, 1.0, -6.0, 2.0,
    ];
    match (&args["b"], &args["c"]) {
        (Arg::Tensor(b), Arg::Tensor(c)) => {
            assert_eq!(b.to_f64(), e2m1);
            assert_eq!(c.to_f64(), [&e2m1[2..6], &e2m1[8..12]].concat());
        }
        _ => panic!("scalars"),
    }
    let x: Vec<f64> = (0..48).map(|i| f64::from(u8::from(i % 5 == 0))).collect();
    let args = launch(
        "known",
        vec![
            ("x", tensor(DType::U8, &[48], x.clone())),
            ("s", Arg::from(8)),
            ("y", tensor(DType::U1, &[48], vec![0.0; 48])),
        ],
    );
    let mut packed = [0u8; 6];
    for i in (0..48).filter(|i| i / 8 % 2 == 1) {
        packed[i / 8] |= (x[i] as u8) << (i % 8);
    }
    assert_eq!(bytes(&args["y"]), packed);
}

#[test]
fn any_pad_shows_where_a_result_depends_on_it() {
    let text = "kernel k(x: view<f32>[n], t: view<u8>[n], y: out view<f32>[4], z: out view<u8>[4]) grid (one in 1) {
        y[..] = load(x[0 +: 4], pad = any);
        z[..] = load(t[0 +: 4], pad = any);
    }";
    let instance = make(text, "k");
    let args = || {
        vec![
            ("x", tensor(DType::F32, &[3], ramp(3))),
            ("t", tensor(DType::U8, &[3], ramp(3))),
            ("y", tensor(DType::F32, &[4], vec![0.0; 4])),
            ("z", tensor(DType::U8, &[4], vec![0.0; 4])),
        ]
    };
    let y = run(&instance, args(), "y");
    assert_eq!(y[..3], [1.0, 2.0, 3.0]);
    assert!(y[3].is_nan());
    assert_eq!(
        run(&instance, args(), "z"),
        [1.0, 2.0, 3.0, f64::from(0xa5)]
    );
}
