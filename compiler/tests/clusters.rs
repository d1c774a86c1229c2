//! Clusters: what their blocks exchange, on the interpreter, and exchanges that a block may miss.

use tesserine_compiler::{
    Session,
    diagnostics::render,
    interp::{self, Arg, Args, Tensor},
    ir::tile,
    target::Target,
};
use tesserine_set::DType;

fn make(text: &str, name: &str) -> Result<tile::Instance, String> {
    let mut session = Session::new();
    let made = session
        .load_text("program.tess", text)
        .and_then(|module| session.instantiate(module, name, Target::ALL[4]));
    made.map_err(|all| {
        all.iter()
            .map(|d| render(d, session.sources(), false))
            .collect()
    })
}

fn tensor(dtype: DType, shape: &[usize], values: &[f64]) -> Arg {
    Tensor::from_f64(dtype, shape.to_vec(), values)
        .expect("a tensor")
        .into()
}

fn run(instance: &tile::Instance, args: &[(&str, Arg)], out: &str) -> Vec<f64> {
    let mut args: Args = args
        .iter()
        .map(|(n, a)| ((*n).to_owned(), a.clone()))
        .collect();
    let report = interp::launch(instance, &mut args).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(report.unwritten, Vec::new());
    match &args[out] {
        Arg::Tensor(tensor) => tensor.to_f64(),
        Arg::Scalar(_) => panic!("`{out}` is a tensor"),
    }
}

/// A row of `n` numbers lies in a cluster of C blocks; each finds the running sums of its part, the row's largest number and
/// how many steps halve the sum below 1.
const ROWS: &str = "
kernel rows<C: int = 4, N: int = 8>(x: view<f32>[m, n], sums: out view<f32>[m, n], top: out view<f32>[m, C], steps: out view<i32>[m, C])
where n <= C * N
grid (c in C cluster, i in m)
{
    let own = x[i, c*N +: N];
    let mut run = zeros<f32>[N];
    let col = iota<i32>[N];
    for j in 0..N {
        let first = select(col <= j, own, 0.0).sum();
        run = select(col == j, first, run);
    }
    sums[i, c*N +: N] = run + own.sum().cluster_before(c);
    top[i, c] = load(x[i, c*N +: N], pad = -inf).max().cluster_max(c);
    let mut rest = own.sum();
    let mut n_steps = 0;
    while rest.cluster_sum(c) >= 1.0 {
        rest = rest * 0.5;
        if n_steps > 100 { break; }
        n_steps += 1;
    }
    steps[i, c] = n_steps as i32;
}";

#[test]
fn the_blocks_of_a_cluster_exchange_values() {
    let (m, n) = (3usize, 27usize);
    let x: Vec<f64> = (0..m * n)
        .map(|v| f64::from((v * 37 % 64) as u32))
        .collect();
    for (c, width) in [(4usize, 8usize), (1, 32), (16, 2), (3, 9)] {
        let instance = make(ROWS, &format!("rows<{c}, {width}>")).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(instance.bodies[0].header.cluster() as usize, c);
        let args = [
            ("x", tensor(DType::F32, &[m, n], &x)),
            ("sums", tensor(DType::F32, &[m, n], &vec![0.0; m * n])),
            ("top", tensor(DType::F32, &[m, c], &vec![0.0; m * c])),
            ("steps", tensor(DType::I32, &[m, c], &vec![0.0; m * c])),
        ];
        let (mut sums, mut top, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        for row in x.chunks(n) {
            let mut total = 0.0;
            for v in row {
                total += v;
                sums.push(total);
            }
            top.extend(vec![row.iter().fold(0.0, |a: f64, b| a.max(*b)); c]);
            steps.extend(vec![total.log2().floor() + 1.0; c]);
        }
        assert_eq!(run(&instance, &args, "sums"), sums, "{c}");
        assert_eq!(run(&instance, &args, "top"), top, "{c}");
        assert_eq!(run(&instance, &args, "steps"), steps, "{c}");
    }
}

/// Two axes: sums along each, and along one after the other.
const GRID: &str = "
kernel two(x: view<f32>[m, 2, 3], rows: out view<f32>[m, 2, 3], cols: out view<f32>[m, 2, 3], all: out view<f32>[m, 2, 3])
grid (r in 2 cluster, i in m, c in 3 cluster)
{
    let v = x[i, r, c];
    rows[i, r, c] = v.cluster_sum(c);
    cols[i, r, c] = v.cluster_sum(r);
    all[i, r, c] = v.cluster_sum(c).cluster_sum(r);
}";

#[test]
fn a_cluster_has_several_axes() {
    let instance = make(GRID, "two").unwrap_or_else(|e| panic!("{e}"));
    let m = 2;
    let x: Vec<f64> = (0..m * 6).map(|v| f64::from(1u32 << v)).collect();
    let zeros = || tensor(DType::F32, &[m, 2, 3], &vec![0.0; m * 6]);
    let args = [
        ("x", tensor(DType::F32, &[m, 2, 3], &x)),
        ("rows", zeros()),
        ("cols", zeros()),
        ("all", zeros()),
    ];
    let each = |f: &dyn Fn(usize, usize, usize) -> f64| -> Vec<f64> {
        (0..m * 6).map(|v| f(v / 6, v / 3 % 2, v % 3)).collect()
    };
    let at = |i: usize, r: usize, c: usize| x[i * 6 + r * 3 + c];
    let row = |i: usize, r: usize| (0..3).map(|c| at(i, r, c)).sum::<f64>();
    let rows = each(&|i, r, _| row(i, r));
    let cols = each(&|i, _, c| at(i, 0, c) + at(i, 1, c));
    let all = each(&|i, _, _| row(i, 0) + row(i, 1));
    assert_eq!(run(&instance, &args, "rows"), rows);
    assert_eq!(run(&instance, &args, "cols"), cols);
    assert_eq!(run(&instance, &args, "all"), all);
}

#[test]
fn every_block_reaches_an_exchange() {
    let kernel = |body: &str| {
        let text = format!(
            "kernel k(x: view<f32>[m, 64], n: view<i32>[m], y: mut view<f32>[m, 4]) \
             grid (i in m until n[0], c in 4 cluster) {{ let own = x[i, c*16 +: 16]; {body} }}"
        );
        make(&text, "k").map(|_| ())
    };
    for body in [
        "y[i, c] = own.sum().cluster_sum(c);",
        "if n[i] > 0 { y[i, c] = own.sum().cluster_sum(c); }",
        "let s = own.sum().cluster_sum(c); if s > 0.0 { y[i, c] = own.max().cluster_max(c); }",
        "for j in 0..n[i] { y[i, c] = (own * (j as f32)).sum().cluster_sum(c); }",
        "let mut s = own.sum().cluster_sum(c); while s > 1.0 { s = (own * s).sum().cluster_sum(c) * 0.5; } y[i, c] = s;",
        "if i == 0 { return; } y[i, c] = own.sum().cluster_sum(c);",
        "let t = if c == 0 { 1.0 } else { 2.0 }; y[i, c] = (own.sum() * t).cluster_sum(c);",
    ] {
        assert_eq!(kernel(body), Ok(()), "{body}");
    }
    for body in [
        "if c == 0 { y[i, 0] = own.sum().cluster_sum(c); }",
        "if own.sum() > 0.0 { y[i, c] = own.sum().cluster_sum(c); }",
        "for j in 0..c { y[i, c] = (own * (j as f32)).sum().cluster_sum(c); }",
        "let mut s = own.sum(); while s > 1.0 { s = (own * s).sum().cluster_sum(c) + own.max(); } y[i, c] = s;",
        "if c == 3 { return; } y[i, c] = own.sum().cluster_sum(c);",
        "let b = own.sum().cluster_before(c); if b > 0.0 { y[i, c] = own.sum().cluster_sum(c); }",
        "y[i, c] = own.sum(); if y[i, c] > 0.0 { y[i, c] = own.sum().cluster_sum(c); }",
        "let mut s = 0.0; for j in 0..4 { if s > 1.0 { y[i, c] = own.sum().cluster_sum(c); } s = s + own.max(); }",
    ] {
        let found = kernel(body).expect_err(body);
        assert!(found.contains("E0410"), "{body}: {found}");
    }
}
