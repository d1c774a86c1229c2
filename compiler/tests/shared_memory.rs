//! Atomic operations and arrivals, as the interpreter runs them: values, and what happens before what.

use tesserine_compiler::{
    Session,
    diagnostics::{codes, render},
    interp::{self, Arg, Args, InterpError, Tensor},
    ir::tile,
    target::Target,
};
use tesserine_set::DType;

fn make(text: &str) -> tile::Instance {
    let mut session = Session::new();
    let made = session
        .load_text("program.tess", text)
        .and_then(|module| session.instantiate(module, "k", Target::ALL[4]));
    made.unwrap_or_else(|list| {
        let all: Vec<String> = list
            .iter()
            .map(|d| render(d, session.sources(), false))
            .collect();
        panic!("{}", all.join("\n"))
    })
}

fn ints(values: &[f64]) -> Arg {
    typed(DType::I32, &[values.len()], values)
}

fn typed(dtype: DType, shape: &[usize], values: &[f64]) -> Arg {
    Tensor::from_f64(dtype, shape.to_vec(), values)
        .expect("a tensor")
        .into()
}

fn launch(text: &str, args: Vec<(&str, Arg)>) -> Result<Args, InterpError> {
    let mut args: Args = args.into_iter().map(|(n, a)| (n.to_owned(), a)).collect();
    interp::launch(&make(text), &mut args).map(|_| args)
}

fn values(args: &Args, name: &str) -> Vec<f64> {
    match &args[name] {
        Arg::Tensor(tensor) => tensor.to_f64(),
        Arg::Scalar(_) => panic!("`{name}` is a scalar"),
    }
}

#[test]
fn atomics_combine() {
    let x: Vec<f64> = (0..23).map(|i| f64::from((i * 7) % 11)).collect();
    let text = "kernel k(x: view<i32>[n], sum: mut view<i32>[5], most: mut view<i32>[1], least: mut view<i64>[1],
                         bits: mut view<u32>[3], real: mut view<f32>[2]) grid (i in n) {
        atomic_add(sum[x[i] % 5], x[i]);
        atomic_max(most[0], x[i]);
        atomic_min(least[0], x[i]);
        atomic_or(bits[0], 1 << x[i]);
        atomic_and(bits[1], x[i]);
        atomic_xor(bits[2], x[i]);
        atomic_add(real[i % 2], 0.5);
    }";
    let args = launch(
        text,
        vec![
            ("x", ints(&x)),
            ("sum", ints(&[0.0; 5])),
            ("most", ints(&[-7.0])),
            ("least", typed(DType::I64, &[1], &[100.0])),
            ("bits", typed(DType::U32, &[3], &[0.0, 15.0, 9.0])),
            ("real", typed(DType::F32, &[2], &[1.0, 2.0])),
        ],
    )
    .unwrap();
    let mut sum = [0.0; 5];
    let (mut or, mut and, mut xor) = (0u32, 15u32, 9u32);
    for &v in &x {
        sum[v as usize % 5] += v;
        or |= 1 << v as u32;
        and &= v as u32;
        xor ^= v as u32;
    }
    assert_eq!(values(&args, "sum"), sum);
    assert_eq!(values(&args, "most"), [10.0]);
    assert_eq!(values(&args, "least"), [0.0]);
    assert_eq!(values(&args, "bits"), [or, and, xor].map(f64::from));
    assert_eq!(values(&args, "real"), [1.0 + 12.0 * 0.5, 2.0 + 11.0 * 0.5]);
}

#[test]
fn atomics_of_tiles_go_element_by_element() {
    // Equal indices in one tile count one after another; outside nothing is touched, and 0 comes back.
    let text = "kernel k(at: view<i32>[8], count: mut view<i32>[4], old: out view<i32>[8]) grid (one in 1) {
        old[..] = atomic_add(count[at[..]], 10);
    }";
    let args = launch(
        text,
        vec![
            ("at", ints(&[2.0, 0.0, 2.0, -1.0, 4.0, 2.0, 3.0, 0.0])),
            ("count", ints(&[1.0, 2.0, 3.0, 4.0])),
            ("old", ints(&[0.0; 8])),
        ],
    )
    .unwrap();
    assert_eq!(values(&args, "count"), [21.0, 2.0, 33.0, 14.0]);
    assert_eq!(
        values(&args, "old"),
        [3.0, 1.0, 13.0, 0.0, 0.0, 23.0, 4.0, 11.0]
    );
}

#[test]
fn what_was_there_decides_an_exchange() {
    // Blocks go in order: the first one that finds 0 puts its number.
    let text =
        "kernel k(x: view<i32>[n], first: mut view<i32>[3], won: out view<i32>[n]) grid (i in n) {
        let was = atomic_cas(first[x[i]], 0, i + 1);
        won[i] = if was == 0 { 1 } else { 0 };
    }";
    let args = launch(
        text,
        vec![
            ("x", ints(&[1.0, 0.0, 1.0, 2.0, 0.0])),
            ("first", ints(&[0.0, 0.0, 9.0])),
            ("won", ints(&[0.0; 5])),
        ],
    )
    .unwrap();
    assert_eq!(values(&args, "first"), [2.0, 1.0, 9.0]);
    assert_eq!(values(&args, "won"), [1.0, 1.0, 0.0, 0.0, 0.0]);
}

const SUMS: &str = "kernel k(x: view<f32>[m, n], part: mut view<f32>[m, n], done: mut view<i32>[c], y: out view<f32>[n], many: i32)
    grid (s in m, j in n) {
        part[s, j] = x[s, j] * 2.0;
        if arrive(done[j], many) {
            let mut sum = 0.0;
            for z in 0..m { sum = sum + part[z, j]; }
            y[j] = sum;
        }
    }";

fn sums(counters: usize, many: i64) -> Result<Args, InterpError> {
    let x: Vec<f64> = (0..12).map(f64::from).collect();
    launch(
        SUMS,
        vec![
            ("x", typed(DType::F32, &[3, 4], &x)),
            ("part", typed(DType::F32, &[3, 4], &[0.0; 12])),
            ("done", ints(&vec![0.0; counters])),
            ("y", typed(DType::F32, &[4], &[0.0; 4])),
            ("many", many.into()),
        ],
    )
}

#[test]
fn the_last_block_sees_what_all_stored() {
    let args = sums(4, 3).unwrap();
    assert_eq!(values(&args, "y"), [24.0, 30.0, 36.0, 42.0]);
    assert_eq!(values(&args, "done"), [0.0; 4]);
}

#[test]
fn counters_are_counted_out() {
    for many in [1, 2, 4, 0] {
        let error = sums(4, many).expect_err("not 3 blocks");
        let code = error.diagnostic(tesserine_compiler::span::Span::NONE).code;
        // With too few, what is read there another block has yet to store.
        let early = code == codes::E0805 && (1..3).contains(&many);
        assert!(early || code == codes::E0808, "{many}: {error}");
    }
    // Outside of the view nobody is counted.
    let args = sums(2, 3).unwrap();
    assert_eq!(values(&args, "y"), [24.0, 30.0, 0.0, 0.0]);
}

#[test]
fn what_did_not_arrive_is_not_seen() {
    let race = |text: &str, args: Vec<(&str, Arg)>| match launch(text, args) {
        Ok(_) => panic!("no race in {text}"),
        Err(error) => {
            let code = error.diagnostic(tesserine_compiler::span::Span::NONE).code;
            assert!(code == codes::E0805, "{error}");
        }
    };
    // Blocks of another counter.
    race(
        "kernel k(part: mut view<f32>[n], done: mut view<i32>[2], y: out view<f32>[2]) grid (i in n) {
            part[i] = 1.0;
            if arrive(done[i % 2], 2) { y[i % 2] = part[0] + part[1]; }
        }",
        vec![
            ("part", typed(DType::F32, &[4], &[0.0; 4])),
            ("done", ints(&[0.0; 2])),
            ("y", typed(DType::F32, &[2], &[0.0; 2])),
        ],
    );
    // One who knows of another's arrival at a counter before knows what that one saw.
    let chain = |second: &str| {
        format!(
            "kernel k(part: mut view<f32>[4], first: mut view<i32>[2], last: mut view<i32>[1], y: out view<f32>[1]) grid (i in 4) {{
                part[i] = 1.0 + (i as f32);
                if arrive(first[i / 2], 2) {{
                    if arrive(last[0], {second}) {{ y[0] = part[0] + part[1] + part[2] + part[3]; }}
                }}
            }}"
        )
    };
    let args = || {
        vec![
            ("part", typed(DType::F32, &[4], &[0.0; 4])),
            ("first", ints(&[0.0; 2])),
            ("last", ints(&[0.0])),
            ("y", typed(DType::F32, &[1], &[0.0])),
        ]
    };
    let done = launch(&chain("2"), args()).unwrap();
    assert_eq!(values(&done, "y"), [10.0]);
    // A sum of atomics is seen by the last.
    let total = launch(
        "kernel k(sum: mut view<i32>[1], done: mut view<i32>[1], y: out view<i32>[1]) grid (i in 5) {
            atomic_add(sum[0], i);
            if arrive(done[0], 5) { y[0] = sum[0]; }
        }",
        vec![("sum", ints(&[0.0])), ("done", ints(&[0.0])), ("y", ints(&[0.0]))],
    )
    .unwrap();
    assert_eq!(values(&total, "y"), [10.0]);
    race(
        "kernel k(sum: mut view<i32>[1], done: mut view<i32>[1], y: out view<i32>[1]) grid (i in 5) {
            atomic_add(sum[0], i);
            if i != 2 { if arrive(done[0], 4) { y[0] = sum[0]; } }
        }",
        vec![("sum", ints(&[0.0])), ("done", ints(&[0.0])), ("y", ints(&[0.0]))],
    );
}

#[test]
fn promises_of_scatter_are_checked() {
    let text =
        "kernel k(at: view<i32>[n], y: out view<f32>[4]) grid (i in n) { scatter y[at[i]] = 1.0; }";
    let run = |at: &[f64]| {
        launch(
            text,
            vec![("at", ints(at)), ("y", typed(DType::F32, &[4], &[0.0; 4]))],
        )
    };
    assert_eq!(
        values(&run(&[3.0, -1.0, 0.0, -1.0]).unwrap(), "y"),
        [1.0, 0.0, 0.0, 1.0]
    );
    let code = |error: InterpError| error.diagnostic(tesserine_compiler::span::Span::NONE).code;
    assert!(code(run(&[3.0, 1.0, 3.0]).unwrap_err()) == codes::E0805);
    let text = "kernel k(at: view<i32>[4], y: out view<f32>[4]) grid (one in 1) { scatter y[at[..]] = full<f32>[4](1.0); }";
    let at = ints(&[0.0, 2.0, 1.0, 2.0]);
    let twice = launch(
        text,
        vec![("at", at), ("y", typed(DType::F32, &[4], &[0.0; 4]))],
    );
    assert!(code(twice.unwrap_err()) == codes::E0807);
}
