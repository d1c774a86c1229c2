//! Roles that the compiler makes of kernels of the tile level, or takes from kernels that are called: what they are, that they can be read as source, and what stands in their way.

use std::path::Path;

use tesserine_compiler::{
    Session,
    diagnostics::{Diagnostics, render},
    emit::source,
    ir::tile,
    passes,
    target::Target,
};

const FILE: &str = "tests/conformance/tiles/made_roles.tess";
const CALLED: &str = "tests/conformance/tiles/called_roles.tess";

fn target() -> Target {
    Target::parse("sm_90a").expect("a target")
}

fn told(session: &Session, list: &Diagnostics) -> String {
    let texts = list.iter().map(|d| render(d, session.sources(), false));
    texts.collect()
}

fn bodies(instance: &str) -> (Session, Vec<tile::Kernel>) {
    bodies_of(FILE, instance)
}

fn bodies_of(file: &str, instance: &str) -> (Session, Vec<tile::Kernel>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut session = Session::new();
    let made = session
        .load(&root.join(file), None)
        .and_then(|module| session.instantiate(module, instance, target()));
    let made = made.unwrap_or_else(|e| panic!("{instance}: {}", told(&session, &e)));
    (session, made.bodies)
}

fn from_text(text: &str, instance: &str) -> (Session, tile::Kernel) {
    let mut session = Session::new();
    let made = session
        .load_text("made.tess", text)
        .and_then(|module| session.instantiate(module, instance, target()));
    let made = made.unwrap_or_else(|e| panic!("{text}\n{}", told(&session, &e)));
    let body = made.bodies.into_iter().next().expect("a body");
    (session, body)
}

/// What the passes say of a kernel.
fn refused(text: &str, instance: &str) -> String {
    let (session, kernel) = from_text(text, instance);
    let found = passes::lower(&kernel, &target());
    told(&session, &found.expect_err("roles cannot be made"))
}

fn printed(session: &Session, kernel: &tile::Kernel) -> String {
    source::print(kernel, target()).unwrap_or_else(|e| panic!("{}", told(session, &e)))
}

/// The lines of a text that are statements of roles.
fn statements(text: &str) -> Vec<&str> {
    let words = ["put ", "release ", "roles", "load:", "math:", "require"];
    let of_roles = |l: &&str| {
        words.iter().any(|w| l.starts_with(w)) || l.contains("= get ") || l.contains("= mma(")
    };
    text.lines().map(str::trim).filter(of_roles).collect()
}

#[test]
fn a_product_in_a_loop_has_two_roles() {
    let (session, bodies) = bodies("rolled_nt");
    let text = printed(&session, &bodies[0]);
    let found = statements(&text);
    assert_eq!(
        found,
        [
            "roles {",
            "load: 1 warp {",
            "require(bulk);",
            "put tiles { a[i * 64 +: 64, v2 * 64 +: 64], b[j * 64 +: 64, v2 * 64 +: 64] }",
            "math: 1 warpgroup {",
            "let (v5, v6) = get tiles;",
            "let v7 = mma(v5, v6.t, v4);",
            "release tiles lag 1;",
        ]
        .map(|line| line.to_owned())
        .map(|line| renamed(&line, &text)),
        "{text}"
    );
}

/// A line whose values have the names that the text gives them, if the text has one like it.
fn renamed(line: &str, text: &str) -> String {
    let plain = |l: &str| -> String {
        let mut out = String::new();
        let mut digits = false;
        for c in l.chars() {
            digits = match c {
                'v' => true,
                c if c.is_ascii_digit() && digits => continue,
                _ => false,
            };
            out.push(c);
        }
        out
    };
    let same = text
        .lines()
        .map(str::trim)
        .find(|l| plain(l) == plain(line));
    same.unwrap_or(line).to_owned()
}

#[test]
fn the_body_without_facts_keeps_one_role() {
    let (session, bodies) = bodies("rolled_nt");
    assert_eq!(bodies.len(), 2);
    let lower = |kernel| passes::lower(kernel, &target()).map_err(|e| told(&session, &e));
    let roles: Vec<usize> = bodies
        .iter()
        .map(|kernel| lower(kernel).expect("it is compiled").roles.len())
        .collect();
    assert_eq!(roles, [2, 1]);
}

#[test]
fn what_is_printed_means_the_same() {
    let called = ["called_alone", "called_apart"].map(|i| (CALLED, i));
    let instances = [
        "rolled_nt",
        "rolled_nt<bf16, BM = 128, BN = 128>",
        "rolled_gated",
        "rolled_attention",
        "rolled_ranges",
        "rolled_eight",
        "rolled_eight<P = 64>",
        "rolled_rows",
    ];
    for (file, instance) in instances.map(|i| (FILE, i)).into_iter().chain(called) {
        let (session, bodies) = bodies_of(file, instance);
        let text = printed(&session, &bodies[0]);
        assert!(text.contains("= mma("), "{instance} has no roles:\n{text}");
        let mut again = Session::new();
        let module = again
            .load_text("printed.tess", &text)
            .unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        let checked = again.check(module);
        assert!(!checked.has_errors(), "{}\n{text}", told(&again, &checked));
        let name = instance.split('<').next().expect("a name");
        let made = again
            .instantiate(module, name, target())
            .unwrap_or_else(|e| panic!("{}\n{text}", told(&again, &e)));
        let lower = |kernel: &tile::Kernel| {
            let lowered = passes::lower(kernel, &target());
            let text = lowered
                .unwrap_or_else(|e| panic!("{instance}: {e:?}"))
                .to_string();
            // What the launch is told stands otherwise in `where`.
            let said = ["kernel ", "  fact ", "  require "];
            let kept = text
                .lines()
                .filter(|l| !said.iter().any(|s| l.starts_with(s)));
            // Values may be numbered otherwise, and constants stand elsewhere.
            let mut lines: Vec<String> = kept.map(unnumbered).collect();
            lines.sort();
            lines
        };
        assert_eq!(
            lower(&bodies[0]),
            lower(&made.bodies[0]),
            "{instance}:\n{text}"
        );
    }
}

/// A line without the numbers of its values.
fn unnumbered(line: &str) -> String {
    let mut out = String::new();
    let mut number = false;
    for c in line.trim().chars() {
        number = c == '%' || number && c.is_ascii_digit();
        if !number || c == '%' {
            out.push(c);
        }
    }
    out
}

/// A product of `rows` rows whose loop says what `body` says.
fn product(rows: u32, body: &str, schedule: &str) -> String {
    format!(
        "kernel p(a: view<f16>[m, k], b: view<f16>[n, k], at: view<i32>[m], c: out view<f32>[m, n])
where k % 8 == 0, aligned(a, 16), aligned(b, 16)
grid (i in ceil_div(m, {rows}), j in ceil_div(n, 64))
{{
    let mut acc = zeros<f32>[{rows}, 64];
    let mut from = 0;
    {body}
    c[i*{rows} +: {rows}, j*64 +: 64] = acc;
}}

schedule p {{ sm_90a {{ {schedule} }} }}
"
    )
}

const PLAIN: &str = "for p in 0..ceil_div(k, 64) { acc = dot(a[i*64 +: 64, p*64 +: 64], b[j*64 +: 64, p*64 +: 64].t, acc); }";

#[test]
fn zero_producers_ask_for_none() {
    let (session, kernel) = from_text(&product(64, PLAIN, "producers: 0"), "p");
    let lowered = passes::lower(&kernel, &target());
    let lowered = lowered.unwrap_or_else(|e| panic!("{}", told(&session, &e)));
    assert_eq!(lowered.roles.len(), 1);
}

#[test]
fn what_stands_in_the_way_is_said() {
    let cases = [
        (
            product(
                32,
                &PLAIN.replace("i*64 +: 64", "i*32 +: 32"),
                "consumers: 1",
            ),
            "this product has 32 rows, which are no multiple of 64",
        ),
        (
            product(64, PLAIN, "consumers: 3"),
            "3 warpgroups do not divide this product of 64 by 64",
        ),
        (
            product(
                64,
                "acc = dot(a[i*64 +: 64, 0 +: 64], b[j*64 +: 64, 0 +: 64].t, acc);",
                "consumers: 1",
            ),
            "no product stands in a loop, so nothing is copied ahead",
        ),
        (
            product(
                64,
                "for p in 0..ceil_div(k, 64) {
        acc = dot(a[i*64 +: 64, from +: 64], b[j*64 +: 64, from +: 64].t, acc);
        from = from + acc.max() as i32;
    }",
                "consumers: 1",
            )
            .replace("acc.max() as i32", "at[p]"),
            "where this slice lies depends on what is computed from others",
        ),
        (
            product(
                64,
                "let mut p = 0;
    while p < k {
        acc = dot(a[i*64 +: 64, p +: 64], b[j*64 +: 64, p +: 64].t, acc);
        p = p + 64;
    }",
                "consumers: 1",
            ),
            "stands in a `while`",
        ),
    ];
    for (text, says) in cases {
        let found = refused(&text, "p");
        assert!(
            found.contains(says) && found.contains("E0623"),
            "{text}\n{found}"
        );
    }
}

#[test]
fn slices_that_no_facts_align_are_an_error_under_facts() {
    let text = product(64, PLAIN, "consumers: 1")
        .replace("where k % 8 == 0, aligned(a, 16), aligned(b, 16)\n", "");
    let text = format!("{text}\nschedule p {{ specialize {{ aligned(a, 16) }} }}\n");
    let found = refused(&text, "p");
    assert!(
        found.contains("E0708") && found.contains("the schedule's `consumers`"),
        "{found}"
    );
}

#[test]
fn branches_share_the_roles_of_one_size() {
    let (session, bodies) = bodies_of(CALLED, "called_apart");
    let lowered = passes::lower(&bodies[0], &target());
    let lowered = lowered.unwrap_or_else(|e| panic!("{}", told(&session, &e)));
    let roles = lowered
        .roles
        .iter()
        .map(|r| (&r.name[..], r.warps, r.registers));
    let roles: Vec<(&str, u32, Option<u32>)> = roles.collect();
    assert_eq!(
        roles,
        [
            ("load", 1, Some(40)),
            ("math", 4, Some(208)),
            ("store", 4, Some(64)),
        ]
    );
}
