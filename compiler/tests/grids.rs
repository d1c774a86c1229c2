//! Grids, schedules and control, from source to what a launch is told.

use tesserine_compiler::{
    Session,
    diagnostics::{Diagnostics, render},
    interp::{self, Arg, Args, Tensor},
    ir::tile,
    passes,
    target::Target,
};
use tesserine_set::DType;

fn make_for(text: &str, name: &str, target: &str) -> Result<tile::Instance, String> {
    let mut session = Session::new();
    let shown = |session: &Session, all: Diagnostics| -> String {
        all.iter()
            .map(|d| render(d, session.sources(), false))
            .collect()
    };
    let module = match session.load_text("program.tess", text) {
        Ok(module) => module,
        Err(all) => return Err(shown(&session, all)),
    };
    let target = Target::parse(target).expect("a target");
    let made = session
        .instantiate(module, name, target)
        .map_err(|all| shown(&session, all))?;
    for body in &made.bodies {
        assert_eq!(tile::verify(body), Ok(()), "{body}");
    }
    Ok(made)
}

fn make(text: &str, name: &str) -> tile::Instance {
    make_for(text, name, "sm_90a").unwrap_or_else(|all| panic!("{all}"))
}

fn tensor(dtype: DType, shape: &[usize], values: &[f64]) -> Arg {
    Tensor::from_f64(dtype, shape.to_vec(), values)
        .expect("a tensor")
        .into()
}

/// What the kernel leaves in `y`.
fn run(instance: &tile::Instance, args: &[(&str, Arg)]) -> Vec<f64> {
    let mut args: Args = args
        .iter()
        .map(|(n, a)| ((*n).to_owned(), a.clone()))
        .collect();
    interp::launch(instance, &mut args).unwrap_or_else(|e| panic!("{e}"));
    match &args["y"] {
        Arg::Tensor(tensor) => tensor.to_f64(),
        Arg::Scalar(_) => panic!("`y` is a tensor"),
    }
}

#[test]
fn an_axis_ends_where_the_device_says() {
    let text = "kernel k(x: view<f32>[n], ends: view<i32>[2], y: mut view<f32>[n]) \
                grid persistent dynamic (i in ceil_div(n, 4) until ends[0] + ends[1]) order rev(i) \
                { y[i*4 +: 4] = x[i*4 +: 4]; }";
    let instance = make(text, "k");
    let header = &instance.bodies[0].header;
    assert!(header.persistent && header.dynamic && header.axes[0].rev);
    let x: Vec<f64> = (1..=18).map(f64::from).collect();
    for ends in [[0.0, 0.0], [1.0, 2.0], [7.0, 0.0], [-3.0, 1.0]] {
        let got = run(
            &instance,
            &[
                ("x", tensor(DType::F32, &[18], &x)),
                ("ends", tensor(DType::I32, &[2], &ends)),
                ("y", tensor(DType::F32, &[18], &[0.0; 18])),
            ],
        );
        let end = (ends[0] + ends[1]) * 4.0;
        let wanted: Vec<f64> = x.iter().map(|&v| if v <= end { v } else { 0.0 }).collect();
        assert_eq!(got, wanted, "{ends:?}");
    }
}

#[test]
fn what_is_assumed_of_dimensions_is_checked_at_launch() {
    let requires = |grid: &str, body: &str| {
        let text = format!(
            "kernel k(x: view<f32>[n], e: view<i32>[1], y: mut view<f32>[n]) grid (i in n{grid}) {{ {body} y[i] = x[i]; }}"
        );
        make(&text, "k").bodies[0].header.requires.len()
    };
    assert_eq!(requires("", "assume(n % 4 == 0);"), 1);
    assert_eq!(requires(" until e[0]", "assume(n % 4 == 0);"), 1);
    assert_eq!(requires("", "assume(x[i] > 0.0);"), 0);
    assert_eq!(
        requires("", "if x[i] > 0.0 { return; } assume(n % 4 == 0);"),
        0
    );
}

#[test]
fn clusters_are_for_targets_that_have_them() {
    let text = "kernel k<S: int = 2, R: int = 1>(x: view<f32>[n], y: out view<f32>[n]) \
                grid (s in S cluster, i in ceil_div(n, 64 * S), r in R cluster) \
                { y[(i*S + s)*64 +: 64] = x[(i*S + s)*64 +: 64]; }\n\
                schedule k { sm_75 ..= sm_89 { S: 1 } sm_120a, sm_121a { S: 1 } }";
    let size = |target, name| make_for(text, name, target).map(|i| i.bodies[0].header.cluster());
    assert_eq!(size("sm_90a", "k"), Ok(2));
    assert_eq!(size("sm_80", "k"), Ok(1));
    assert_eq!(size("sm_121a", "k"), Ok(1));
    assert_eq!(size("sm_100a", "k<S = 16>"), Ok(16));
    for (target, name) in [
        ("sm_89", "k<S = 2>"),
        ("sm_120a", "k<S = 2>"),
        ("sm_90a", "k<S = 32>"),
        ("sm_90a", "k<S = 8, R = 4>"),
    ] {
        let found = size(target, name).unwrap_err();
        assert!(found.contains("E0606"), "{found}");
    }
}

const LOOPS: &str = "
kernel mm(a: view<f16>[m, k], b: view<f16>[k, n], y: out view<f32>[m, n])
where k % 8 == 0, n % 8 == 0, aligned(a, 16), aligned(b, 16)
grid (i in ceil_div(m, 64), j in ceil_div(n, 64))
{
    let mut acc = zeros<f32>[64, 64];
    p: for q in 0..ceil_div(k, 32) {
        acc = dot(a[i*64 +: 64, q*32 +: 32], b[q*32 +: 32, j*64 +: 64], acc);
    }
    r: for q in 0..ceil_div(k, 32) {
        acc = dot(a[i*64 +: 64, q*32 +: 32], b[q*32 +: 32, j*64 +: 64], acc);
    }
    y[i*64 +: 64, j*64 +: 64] = acc;
}
schedule mm {
    sm_80 ..= sm_121a { warps: 4, stages: 3, p.stages: 2 }
    sm_90a ..= sm_110a { producers: 0, cluster: [2, 1] }
    tune { stages: [2, 3, 4], p.stages: [2, 1 + 2] where stages > 1 }
}";

#[test]
fn schedules_speak_of_single_loops() {
    let made = make_for(LOOPS, "mm", "sm_90a").unwrap();
    let schedule = &made.bodies[0].header.schedule;
    assert_eq!(schedule.stages_of(Some("p")), Some(2));
    assert_eq!(schedule.stages_of(Some("r")), Some(3));
    assert_eq!(schedule.stages_of(None), Some(3));
    assert_eq!((schedule.consumers, schedule.producers), (None, Some(0)));
    assert_eq!(schedule.cluster, [2, 1]);
    assert!(!schedule.multicast && !schedule.pair);
    let values = |values: &[&str]| values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>();
    let [tune] = &made.tune[..] else {
        panic!("{:?}", made.tune)
    };
    assert_eq!(tune.choices[0].name, "stages");
    assert_eq!(tune.choices[0].values, values(&["2", "3", "4"]));
    assert_eq!(tune.choices[1].name, "p.stages");
    assert_eq!(tune.choices[1].values, values(&["2", "1 + 2"]));
    assert_eq!(tune.wheres, ["stages > 1"]);
    // The copies of a loop run as far ahead as its stages say.
    let roles = passes::lower(&made.bodies[0], &Target::ALL[4]).expect("roles");
    let depths: Vec<u32> = roles.channels.values().map(|c| c.depth).collect();
    assert_eq!(depths, [2, 3]);
    for (from, to, words) in [
        ("producers: 0", "promote: 8", "from 16"),
        ("p.stages: 2", "q.stages: 2", "no loop `q`"),
        ("p.stages: 2", "p.warps: 2", "no key of a loop"),
        ("producers: 0", "producers: 9", "from 0 to 4"),
        ("cluster: [2, 1]", "cluster: [8, 4]", "at most 16"),
        ("cluster: [2, 1]", "cluster: [2, 0]", "list"),
        ("producers: 0", "pair: true", "products of two blocks"),
        ("producers: 0", "multicast: 1", "`true` or `false`"),
        ("producers: 0", "overlap: 1", "`true` or `false`"),
    ] {
        let found = make_for(&LOOPS.replace(from, to), "mm", "sm_90a").unwrap_err();
        assert!(found.contains("E060") && found.contains(words), "{found}");
    }
    let shared = LOOPS.replace("producers: 0", "multicast: true");
    let found = make_for(&shared, "mm", "sm_90a").unwrap_err();
    assert!(
        found.contains("E0010") && found.contains("multicast"),
        "{found}"
    );
    let text = LOOPS.replace("sm_90a ..= sm_110a", "sm_80");
    let found = make_for(&text, "mm", "sm_80").unwrap_err();
    assert!(
        found.contains("E0606") || found.contains("E0602"),
        "{found}"
    );
}

const CALLS: &str = "
interface Shade { fn shade(self, x, j); }
variant Plain: Shade { fn shade(self, x, j) = x; }
variant Add<N: int>: Shade { by: view<f32>[n], fn shade(self, x, j) = x + self.by[j*N +: N]; }

kernel row<N: int = 4, V: Shade = Plain>(x: view<f32>[m, n], at: view<i32>[m] distinct, y: mut view<f32>[m2, n], scale: f32 = 2.0, v: V)
where m2 >= m
grid persistent (i in m until at[0] + 1, j in ceil_div(n, N))
{
    if at[i] < 0 { return; }
    y[at[i], j*N +: N] = v.shade(x[i, j*N +: N], j) * scale;
}

kernel plain(x: view<f32>[a, b], at: view<i32>[a] distinct, y: mut view<f32>[c, b]) grid (i in a)
{
    for j in 0..ceil_div(b, 4) {
        scatter call row(x, at, y) at (i, j);
    }
}

kernel shaded(x: view<f32>[a, b], at: view<i32>[a] distinct, z: view<f32>[b], y: mut view<f32>[c, b]) grid (w in a * ceil_div(b, 8))
{
    let k = ceil_div(b, 8);
    scatter call row<8>(x, at, y, scale = 0.5, v = Add::<8>(by = z)) at (w / k, w % k);
}";

#[test]
fn a_called_kernel_stands_in_place_of_the_call() {
    let (a, b, c) = (4usize, 10usize, 6usize);
    let x: Vec<f64> = (0..a * b).map(|v| f64::from(v as u8) + 1.0).collect();
    let z: Vec<f64> = (0..b).map(|v| f64::from(v as u8) * 100.0).collect();
    // Rows before `at[0] + 1` only.
    let at = [2.0, -1.0, 0.0, 5.0];
    for (name, plain) in [("plain", true), ("shaded", false)] {
        let instance = make(CALLS, name);
        let header = &instance.bodies[0].header;
        let shown: Vec<String> = header
            .requires
            .iter()
            .map(|f| header.signature.show_fact(f))
            .collect();
        assert_eq!(shown, ["c >= a"]);
        assert!(!header.persistent);
        let mut args = vec![
            ("x", tensor(DType::F32, &[a, b], &x)),
            ("at", tensor(DType::I32, &[a], &at)),
            ("y", tensor(DType::F32, &[c, b], &vec![0.0; c * b])),
        ];
        if !plain {
            args.push(("z", tensor(DType::F32, &[b], &z)));
        }
        let got = run(&instance, &args);
        let mut wanted = vec![0.0; c * b];
        for (i, row) in [(0, 2), (2, 0)] {
            for j in 0..b {
                let v = x[i * b + j];
                wanted[row * b + j] = if plain { v * 2.0 } else { (v + z[j]) * 0.5 };
            }
        }
        assert_eq!(got, wanted, "{name}");
    }
}

#[test]
fn a_call_is_told_what_does_not_fit() {
    let callee = "kernel row<N: int = 4>(x: view<f32>[m, n], w: view<i32>[m] sorted, y: out view<f32>[m, n + 1]) \
                  grid (i in m, j in ceil_div(n, N)) { y[i, j*N +: N] = x[i, j*N +: N]; }\n";
    for (call, code, words) in [
        ("call row(x, w, y) at (i);", "E0107", "2 axes"),
        ("call row(x, w) at (i, 0);", "E0107", "`y`"),
        ("call row(y, w, x) at (i, 0);", "E01", "`x`"),
        ("call row(x, v, y) at (i, 0);", "E0403", "`sorted`"),
        ("call row(x, w, y) at (x[0, 0], 0);", "E01", "index"),
        ("call nothing(x) at (i);", "E0101", "no kernel"),
        ("call k(x, q, w, v, y) at (i);", "E0112", "itself"),
        ("call row(q, w, y) at (i, 0);", "E0202", "dimension 1"),
    ] {
        let text = format!(
            "{callee}kernel k(x: view<f32>[4, 8], q: view<f32>[4, 6], w: view<i32>[4] sorted, v: view<i32>[4], \
             y: out view<f32>[4, 9]) grid (i in 4) {{ {call} }}"
        );
        let found = make_for(&text, "k", "sm_90a").unwrap_err();
        assert!(
            found.contains(code) && found.contains(words),
            "{call}: {found}"
        );
    }
}

const OPTIONAL: &str = "
interface Extra { fn more(self, i); }
variant Two: Extra { by: view<f32>[n], times: f32, fn more(self, i) = self.by[i] * self.times; }
kernel k<E: Extra = Two>(a?: view<f32>[n], b?: view<f32>[n], c?: view<f32>[n], d?: f32, e?: view<f32>[n], x?: E, y: out view<f32>[n])
grid (i in n)
{
    let mut t = 0.0;
    if const given(a) { t += a[i]; }
    if const given(b) { t += b[i] * 10.0; }
    if const given(c) { t += c[i] * 100.0; }
    if const given(d) { t += d * 1000.0; }
    if const given(e) { t += e[i] * 10000.0; assume(n % 2 == 1); }
    if const given(x) { t += x.more(i); }
    y[i] = t;
}";

#[test]
fn every_combination_of_optional_parameters_has_a_body() {
    let instance = make(OPTIONAL, "k");
    assert_eq!(instance.bodies.len(), 64);
    assert!(instance.bodies.iter().all(|b| b.header.requires.is_empty()));
    for mask in 0u32..64 {
        let on = |bit: u32| mask >> bit & 1 == 1;
        let value = |bit: u32| tensor(DType::F32, &[3], &[f64::from(bit + 1); 3]);
        let mut args = vec![("y", tensor(DType::F32, &[3], &[0.0; 3]))];
        let mut wanted = 0.0;
        for (bit, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            let bit = bit as u32;
            if on(bit) {
                let arg = match name {
                    "d" => Arg::Scalar(tesserine_set::ScalarValue::Float(f64::from(bit + 1))),
                    _ => value(bit),
                };
                args.push((name, arg));
                wanted += f64::from(bit + 1) * 10f64.powi(bit as i32);
            }
        }
        if on(5) {
            args.push(("x.by", value(2)));
            let times = tesserine_set::ScalarValue::Float(0.5);
            args.push(("x.times", Arg::Scalar(times)));
            wanted += 1.5;
        }
        assert_eq!(run(&instance, &args), [wanted; 3], "{mask:b}");
    }
    // What one body assumes is asked only of its launches.
    let even = |e: bool| {
        let tensor = || tensor(DType::F32, &[2], &[1.0, 1.0]);
        let mut args: Args = [("y".to_owned(), tensor())].into_iter().collect();
        args.insert(if e { "e" } else { "a" }.to_owned(), tensor());
        interp::launch(&instance, &mut args).is_ok()
    };
    assert!(even(false) && !even(true));
    let text = OPTIONAL.replace("a?: view<f32>[n]", "a?: view<f32>[n], f?: view<f32>[n]");
    let found = make_for(&text, "k", "sm_90a").unwrap_err();
    assert!(
        found.contains("E0503") && found.contains("at most 6"),
        "{found}"
    );
}
