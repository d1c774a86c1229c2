//! The race check: what is told apart, what is not, and that what it accepts never races.

use std::collections::BTreeSet;

use tesserine_compiler::{
    Session,
    diagnostics::codes,
    interp::{self, Arg, Args, Tensor},
    ir::tile,
    target::Target,
};
use tesserine_set::DType;

fn instance(text: &str, name: &str) -> Result<tile::Instance, String> {
    let mut session = Session::new();
    let made = session
        .load_text("program.tess", text)
        .and_then(|module| session.instantiate(module, name, Target::ALL[4]));
    made.map_err(|list| {
        let codes: BTreeSet<&str> = list.iter().map(|d| d.code.as_str()).collect();
        codes.into_iter().collect::<Vec<_>>().join(" ")
    })
}

/// The codes that are said of a kernel; none if it is accepted.
fn verdict(signature: &str, grid: &str, body: &str) -> String {
    let text = format!("kernel k({signature}) grid ({grid}) {{ {body} }}");
    instance(&text, "k").err().unwrap_or_default()
}

fn accepts(signature: &str, grid: &str, bodies: &[&str]) {
    for body in bodies {
        assert_eq!(verdict(signature, grid, body), "", "{grid}: {body}");
    }
}

fn refuses(code: &str, signature: &str, grid: &str, bodies: &[&str]) {
    for body in bodies {
        assert_eq!(verdict(signature, grid, body), code, "{grid}: {body}");
    }
}

const ROWS: &str = "y: mut view<f32>[n, m], p: view<i32>[n + 1] sorted, u: view<i32>[n + 1], d: view<i32>[n] distinct, \
     w: view<i32>[n, 2] distinct, e: view<i64>[n] distinct, s: i32";

#[test]
fn strides_cover_what_lies_below_them() {
    let y = "y: mut view<f32>[n]";
    accepts(
        y,
        "i in ceil_div(n, 8)",
        &[
            "y[i*8 +: 8] = 0.0;",
            "y[i*-8 +: 8] = 0.0;",
            "y[n - i*8 +: 8] = 0.0;",
            // A loop whose ends are constants is like an axis.
            "for c in 0..4 { y[i*8 + c*2 +: 2] = 0.0; }",
            "for c in 0..4 rev { y[i*8 + 6 - c*2 +: 2] = 0.0; }",
            "for c in 0..8 step 2 { y[i*8 + c +: 1] = 0.0; }",
            "for c in 0..4 { for d in 0..2 { y[i*8 + c*2 + d] = 0.0; } }",
            // As is a remainder.
            "y[i*8 + i % 8] = 0.0;",
            "y[i*8 + min(max(n, 0), 7)] = 0.0;",
        ],
    );
    refuses(
        "E0401",
        y,
        "i in ceil_div(n, 8)",
        &[
            "y[i*8 +: 9] = 0.0;",
            "y[i*-8 +: 9] = 0.0;",
            "for c in 0..5 { y[i*8 + c*2 +: 2] = 0.0; }",
            "for c in 0..4 { y[i*8 + c*2 +: 3] = 0.0; }",
            "for c in 0..9 step 2 { y[i*8 + c +: 1] = 0.0; }",
            "for c in 0..n { y[i*8 + c] = 0.0; }",
            "for c in -1..8 { y[i*8 + c] = 0.0; }",
            "y[i*8 + i % 9] = 0.0;",
            "y[i*8 + i % n] = 0.0;",
            "y[i*8 + min(n, 7)*2] = 0.0; y[i*8 + 1] = 0.0; y[i*8 + 8] = 0.0;",
            "y[i*8 - i*7 +: 2] = 0.0;",
        ],
    );
    // A sum that depends on more than is told apart before.
    refuses(
        "E0401",
        "y: out view<f32>[n, m]",
        "i in n, j in ceil_div(m, 8)",
        &[
            "y[i + j, j*8 + i +: 8] = 0.0;",
            "y[i*2 + j, j*8 +: 9] = 0.0;",
        ],
    );
    accepts(
        "y: out view<f32>[n, m]",
        "i in n, j in ceil_div(m, 8)",
        &[
            "y[i + j, j*8 +: 8] = 0.0;",
            "y[i, j*8 + i*i*5 +: 8] = 0.0;",
            "y[i, j*8 +: 8 until i*8] = 0.0;",
        ],
    );
}

#[test]
fn what_wraps_tells_nothing() {
    let y = "y: out view<f32>[n], e: view<i64>[n] distinct, d: view<i32>[n] distinct";
    // Of 64-bit elements, multiples may meet modulo 2^64.
    refuses(
        "E0401",
        y,
        "i in n",
        &["y[e[i]*2] = 0.0;", "y[e[i]*4 +: 4] = 0.0;"],
    );
    accepts(
        y,
        "i in n",
        &[
            "y[e[i]] = 0.0;",
            "y[e[i] + 7] = 0.0;",
            "y[-e[i]] = 0.0;",
            "y[d[i]*4 +: 4] = 0.0;",
        ],
    );
    refuses("E0401", y, "i in n", &["y[i * 4611686018427387904] = 0.0;"]);
    // Narrowing forgets.
    refuses(
        "E0401",
        "y: out view<f32>[n], t: view<i32>[1]",
        "i in n",
        &[
            "let small = (i + iota<i64>[1]) as i8; y[small[0]] = 0.0;",
            "let small = i*256 + (iota<i32>[1] as i8); y[small[0]] = 0.0;",
        ],
    );
}

#[test]
fn rows_that_differ_tell_apart() {
    accepts(
        ROWS,
        "i in n",
        &[
            "y[d[i], 0] = 0.0;",
            "y[d[i]*2 +: 2, 0] = 0.0;",
            "y[w[i, 0], w[i, 1]*8 +: 8] = 0.0;",
            "y[w[i, 1] + 3, w[i, 0]] = 0.0;",
        ],
    );
    refuses(
        "E0401",
        ROWS,
        "i in n",
        &[
            "y[u[i], 0] = 0.0;",
            "y[p[i], 0] = 0.0;",
            "y[w[i, 0], 0] = 0.0;",
            "y[w[i, 0], w[i, 0]] = 0.0;",
            "y[w[i, 0], w[i, 1]*8 +: 9] = 0.0;",
            "y[w[i, 0], w[i + 1, 1]] = 0.0;",
            "y[d[i + 1], 0] = 0.0;",
            "y[d[i] + i, 0] = 0.0;",
            "y[d[i / 2], 0] = 0.0;",
        ],
    );
    refuses(
        "E0401",
        ROWS,
        "i in n + 1",
        &["y[d[i], 0] = 0.0;", "y[w[i, 0], w[i, 1]] = 0.0;"],
    );
}

#[test]
fn guards_fix_an_index() {
    let y = "y: mut view<f32>[n], lens: view<i32>[n]";
    accepts(
        y,
        "i in n, g in n",
        &[
            "if g == 0 { y[i] = 0.0; }",
            "if g == n - 1 { y[i] = 0.0; }",
            "if i == 3 && g == 2 { y[5] = 0.0; }",
            "if !(g != 2) { y[i] = 0.0; }",
            "if g == lens[i] { y[i] = 0.0; }",
            "if g*2 == 4 { y[i] = 0.0; }",
            "if g != 0 { return; } y[i] = 0.0;",
            "if g == i { y[i] = 0.0; }",
            // Both of two sums, whatever is under them.
            "if i == g + 5 { y[g] = 0.0; }",
        ],
    );
    refuses(
        "E0401",
        y,
        "i in n, g in n",
        &[
            "if g > 0 { y[i] = 0.0; }",
            "if g != 0 { y[i] = 0.0; }",
            "if g == 0 || g == 1 { y[i] = 0.0; }",
            "if g / 2 == 0 { y[i] = 0.0; }",
            "if g % 2 == 0 { y[i] = 0.0; }",
            "if g == lens[g] { y[i] = 0.0; }",
            "if g + i == 4 { y[0] = 0.0; }",
            "if g == 0 { y[i] = 0.0; } else { y[i] = 1.0; }",
            "if g == 0 { y[i] = 0.0; } if g == 1 { y[i] = 1.0; }",
        ],
    );
}

#[test]
fn quotients_and_remainders_give_the_whole() {
    let y = "y: mut view<f32>[n, m], s: i32, t: view<i32>[4]";
    accepts(
        y,
        "i in n * m",
        &[
            "y[i / 8, i % 8] = 0.0;",
            "y[i / s, i % s] = 0.0;",
            "let c = t[2]; y[i / c, i % c] = 0.0;",
            "y[i % 8, (i / 8)*4 +: 4] = 0.0;",
            "let x = i*3 + 1; y[x / 8, x % 8] = 0.0;",
            "let (a, b) = (i / 8, i % 8); y[a / 4, (a % 4)*8 + b] = 0.0;",
        ],
    );
    refuses(
        "E0401",
        y,
        "i in n * m",
        &[
            "y[i / 8, i % 4] = 0.0;",
            "y[i / 8, (i + 1) % 8] = 0.0;",
            "y[i / 8, i % 8 +: 2] = 0.0;",
            "let c = t[i % 4]; y[i / c, i % c] = 0.0;",
            "let (a, b) = (i / 8, i % 8); y[a / 4, (a % 4)*4 + b] = 0.0;",
        ],
    );
}

#[test]
fn reads_of_what_is_stored() {
    let y = "y: mut view<f32>[n], x: view<i32>[n]";
    accepts(
        y,
        "i in ceil_div(n, 8)",
        &[
            "y[i*8 +: 8] = y[i*8 +: 8];",
            "y[i*8 +: 8] = y[i*8 + 1];",
            // Two reads of one element are no race, and what one block does is in order.
            "let a = y[i*8 +: 8]; y[i*8 +: 8] = a; let b = y[i*8 + 4 +: 4]; y[i*8 +: 4] = b;",
        ],
    );
    refuses(
        "E0402",
        y,
        "i in ceil_div(n, 8)",
        &[
            "y[i*8 +: 8] = y[0 +: 8];",
            "y[i*8 +: 8] = y[i*8 +: 9][0..8];",
            "y[i*8 +: 8] = y[i*8 - 1 +: 8];",
            "y[i*8 +: 8] = y[i*16 +: 8];",
            "y[i*8 +: 8] = y[x[i] +: 8];",
            "if i == 0 { y[0 +: 8] = y[8 +: 8]; } let a = y[i*8 +: 8];",
        ],
    );
}

#[test]
fn scatter_is_a_promise_about_stores() {
    let y = "y: mut view<f32>[n, m], at: view<i32>[n]";
    accepts(
        y,
        "i in n",
        &[
            "scatter y[at[i], 0] = 0.0;",
            "scatter y[0, 0] = 0.0; y[i, 0] = 1.0;",
            // The row tells apart; a block sees its own stores.
            "scatter y[i, at[i]] = 0.0; let got = y[i, 0 +: 4]; y[i, 0 +: 4] = got;",
        ],
    );
    refuses(
        "E0402",
        y,
        "i in n",
        &[
            "scatter y[at[i], 0] = y[i, 0];",
            "scatter y[i, 0] = y[i + 1, 0];",
            "let a = y[i, 0]; scatter y[0, 0] = a;",
        ],
    );
}

#[test]
fn the_last_to_arrive_is_one() {
    let y = "y: mut view<f32>[n, m], part: mut view<f32>[s, n], c: mut view<i32>[n], b: mut view<i32>[n]";
    accepts(
        y,
        "i in n, j in s",
        &[
            "part[j, i] = 1.0; if arrive(c[i], s) { let mut a = 0.0; for z in 0..s { a = a + part[z, i]; } y[i, 0] = a; }",
            // In a loop, over tiles that blocks share.
            "let mut u = j*3; while u < j*3 + 3 { let t = u / 2; part[j, i] = 1.0; if arrive(c[t], 2) { y[t / 4, (t % 4)*8 +: 8] = part[0, 0]; } u = u + 1; }",
            "let last = arrive(c[i], s); if last && j >= 0 { y[i, 0] = 0.0; }",
        ],
    );
    refuses(
        "E0401",
        y,
        "i in n, j in s",
        &[
            // Another counter in each block, one element for all.
            "if arrive(c[i], s) { y[0, 0] = 0.0; }",
            "if arrive(c[0], s) { y[i, 0] = 0.0; } else { y[i, 0] = 1.0; }",
            "if !arrive(c[i], s) { y[i, 0] = 0.0; }",
            "if arrive(c[i], s) || j == 1 { y[i, 0] = 0.0; }",
            // Two arrivals are two blocks.
            "if arrive(c[i], s) { y[i, 0] = 0.0; } if arrive(b[i], s) { y[i, 0] = 1.0; }",
            "if arrive(c[i], s) { y[i, 0] = 0.0; } y[i, 0] = 1.0;",
            "let t = i + j; if arrive(c[t], 2) { y[t / 4, (t % 4)*8 +: 9] = 0.0; }",
        ],
    );
    refuses(
        "E0402",
        y,
        "i in n, j in s",
        &[
            // Read before, or stored after.
            "let a = part[0, i]; part[j, i] = a; if arrive(c[i], s) { y[i, 0] = a; }",
            "if arrive(c[i], s) { y[i, 0] = part[0, i]; } part[j, i] = 1.0;",
            "if arrive(c[i], s) { part[i, j] = 1.0; y[i, 0] = part[0, 0]; }",
        ],
    );
    // A counter is nothing else.
    refuses(
        "E0401",
        y,
        "i in n, j in s",
        &[
            "if arrive(c[i], s) { y[i, 0] = 0.0; } c[0] = 1;",
            "c[i] = 0; if arrive(c[i], s) { y[i, 0] = 0.0; }",
        ],
    );
}

#[test]
fn atomics_mix_with_nothing() {
    let y = "y: mut view<i32>[n], done: mut view<i32>[1], z: mut view<f32>[n]";
    accepts(
        y,
        "i in n",
        &[
            "atomic_add(y[0], 1);",
            "let old = atomic_max(y[i % 4], i); atomic_add(z[old], 1.0);",
            "atomic_add(y[i], 1); y[i] = 0;",
            "atomic_add(y[0], 1); if arrive(done[0], n) { z[0] = y[0] as f32; }",
            "let was = atomic_cas(y[0], 0, i); atomic_xor(y[1], was);",
        ],
    );
    refuses("E0401", y, "i in n", &["atomic_add(y[0], 1); y[i] = 0;"]);
    refuses(
        "E0402",
        y,
        "i in n",
        &[
            "atomic_add(y[0], 1); z[i] = y[0] as f32;",
            "atomic_add(y[0], 1); z[i] = y[i] as f32;",
        ],
    );
    // What an atomic gave tells nothing.
    refuses(
        "E0401",
        y,
        "i in n",
        &["let slot = atomic_add(y[0], 1); z[slot] = 0.0;"],
    );
}

#[test]
fn ranges_between_neighbours_do_not_meet() {
    accepts(
        ROWS,
        "i in n",
        &[
            "(view y[p[i] .. p[i + 1], ..])[0 +: 8, 0] = 0.0;",
            "(view y[p[i] .. p[i + 1], ..])[s +: 8, 0 +: 4] = 0.0;",
            "(view y[p[i] .. p[i + 1], ..])[s, 0 +: 4] = 0.0;",
            "(view y[.., p[i] .. p[i + 1]])[0, 0 +: 4] = 0.0;",
            "for c in 0..s { (view y[p[i] .. p[i + 1], ..])[c*8 +: 8, 0] = 0.0; }",
            "(view y[p[i] .. p[i + 1], ..])[0 +: 8 until s, 0] = 0.0;",
            "let mine = view y[p[i] .. p[i + 1], ..]; mine[0 +: 8, 0] = mine[1 +: 8, 0];",
            "(view (view y[p[i] .. p[i + 1], ..])[2 .. s, ..])[0 +: 8, 0] = 0.0;",
        ],
    );
    // Inside of a range, the usual.
    accepts(
        ROWS,
        "i in n, j in s",
        &[
            "(view y[p[i] .. p[i + 1], ..])[j*8 +: 8, 0] = 0.0;",
            "let r = i*3; (view y[p[i] .. p[i + 1], ..])[j*8 + r*r +: 8, 0] = 0.0;",
        ],
    );
    accepts(
        ROWS,
        "i in n",
        &["let b = w[i, 0]; (view y[p[b] .. p[b + 1], ..])[w[i, 1]*8 +: 8, 0] = 0.0;"],
    );
    refuses(
        "E0401",
        ROWS,
        "i in n",
        &[
            // Not sorted; not neighbours; of two views; not the next.
            "(view y[u[i] .. u[i + 1], ..])[0 +: 8, 0] = 0.0;",
            "(view y[p[i] .. p[i + 2], ..])[0 +: 8, 0] = 0.0;",
            "(view y[p[i] .. u[i + 1], ..])[0 +: 8, 0] = 0.0;",
            "(view y[p[i] .. p[i] + 8, ..])[0 +: 8, 0] = 0.0;",
            "(view y[p[i] .. p[i + 1] + 1, ..])[0 +: 8, 0] = 0.0;",
            "(view y[p[i] - 1 .. p[i + 1], ..])[0 +: 8, 0] = 0.0;",
            "(view y[p[i + 1] .. p[i], ..])[0 +: 8, 0] = 0.0;",
            "(view y[p[i] .. , ..])[0 +: 8, 0] = 0.0;",
            "(view y[.. p[i + 1], ..])[0 +: 8, 0] = 0.0;",
            // Rows may be the same.
            "(view y[p[i / 2] .. p[i / 2 + 1], ..])[0 +: 8, 0] = 0.0;",
            "let b = u[i]; (view y[p[b] .. p[b + 1], ..])[0 +: 8, 0] = 0.0;",
            "let b = w[i, 0]; (view y[p[b] .. p[b + 1], ..])[w[i, 1]*7 +: 8, 0] = 0.0;",
            "let b = w[i, 0]; (view y[p[b] .. p[b + 1], ..])[w[i, 0]*8 +: 8, 0] = 0.0;",
            // Outside of the table all is as the pad says.
            "let (a, b) = (load(p[i], pad = 1), load(p[i + 1], pad = 7)); (view y[a .. b, ..])[0 +: 8, 0] = 0.0;",
        ],
    );
    refuses(
        "E0401",
        ROWS,
        "i in n, j in s",
        &[
            "(view y[p[i] .. p[i + 1], ..])[0 +: 8, 0] = 0.0;",
            "(view y[p[i] .. p[i + 1], ..])[j*7 +: 8, 0] = 0.0;",
            "(view y[p[j] .. p[j + 1], ..])[i*7 +: 8, 0] = 0.0;",
        ],
    );
    refuses(
        "E0402",
        ROWS,
        "i in n",
        &[
            "let a = (view y[p[i] .. p[i + 1], ..])[0 +: 4, 0]; (view y[p[i + 1] .. p[i + 2], ..])[0 +: 4, 0] = a;",
            "let a = y[p[i] +: 4, 0]; (view y[p[i] .. p[i + 1], ..])[0 +: 4, 0] = a;",
        ],
    );
}

#[test]
fn parts_of_equal_length_do_not_meet() {
    let y = "y: mut view<f32>[n, m], parts: i32";
    accepts(
        y,
        "i in parts",
        &[
            "(view y[i*8 .. (i + 1)*8, ..])[0 +: 16, 0] = 0.0;",
            "(view y[i*8 .. i*8 + 5, ..])[0 +: 16, 0] = 0.0;",
            "(view y[i*8 .. min((i + 1)*8, n), ..])[0 +: 16, 0] = 0.0;",
            "let per = ceil_div(n, parts); (view y[i*per .. min((i + 1)*per, n), ..])[0 +: 16, 0] = 0.0;",
            "let per = n / parts; (view y[i*per .. i*per + per, ..])[0 +: 16, 0] = 0.0;",
            "let per = ceil_div(n, parts); for r in 0..per { (view y[i*per .. (i + 1)*per, ..])[r, 0 +: 4] = 0.0; }",
        ],
    );
    refuses(
        "E0401",
        y,
        "i in parts",
        &[
            "(view y[i*8 .. i*8 + 9, ..])[0 +: 16, 0] = 0.0;",
            "(view y[i*8 .. n, ..])[0 +: 16, 0] = 0.0;",
            "let per = ceil_div(n, parts); (view y[i*per .. (i + 2)*per, ..])[0 +: 16, 0] = 0.0;",
            "let per = ceil_div(n, i + 1); (view y[i*per .. (i + 1)*per, ..])[0 +: 16, 0] = 0.0;",
            "let per = ceil_div(n, parts); (view y[i*per .. (i + 1)*per + 1, ..])[0 +: 16, 0] = 0.0;",
            // What nothing bounds may wrap around.
            "let per = n * n; (view y[i*per .. (i + 1)*per, ..])[0 +: 16, 0] = 0.0;",
        ],
    );
}

#[test]
fn rearranged_views_tell_apart_as_they_are() {
    let text = |body: &str| {
        format!(
            "layout l(r, c) of [m, n] size m * n = c * m + r;
             kernel k(y: mut view<f32>[n, m], z: mut view<f32>[n, m] in l) grid (i in n, j in m) {{ {body} }}"
        )
    };
    for body in [
        "z[i, j] = 0.0;",
        "if j == 0 { z[i, 0 +: 8] = z[i, 0 +: 8]; }",
        "if j == 0 { (view y[i, ..]).split(0, 4)[0 +: 2, 1..3] = full<f32>[2, 2](0.0); }",
        "if j == 0 { y.merge(0, 1)[i*8 +: 8] = 0.0; }",
        "y.merge(0, 1)[i*m + j] = 0.0;",
        "y.t[j, i] = 0.0;",
        "y.permute([1, 0])[j, i] = 0.0;",
    ] {
        let made = instance(&text(body), "k").err();
        let known = ["(view y[i, ..]).split", "i*m + j"]
            .iter()
            .any(|k| body.contains(k));
        assert!(made.is_none() || known, "{body}: {made:?}");
    }
    for body in [
        "z[i, 0] = 0.0;",
        "if j == 0 { z[i*4 +: 5, 0] = 0.0; }",
        "if j == 0 { y.merge(0, 1)[i*8 +: 9] = 0.0; }",
        "if j == 0 { y.merge(0, 1)[i*8 +: 8] = 0.0; } y[i, j] = 1.0;",
        "y.t[i, 0] = 0.0;",
    ] {
        assert_eq!(
            instance(&text(body), "k").err().as_deref(),
            Some("E0401"),
            "{body}"
        );
    }
}

#[test]
fn deep_programs_are_judged_in_time() {
    let y = "y: mut view<f32>[n, m], p: view<i32>[n + 1] sorted";
    let mut limit = "i".to_owned();
    let mut sum = String::new();
    let mut power = "let x0 = i + n; ".to_owned();
    let mut loops = String::new();
    for k in 0..40 {
        limit = format!("min(max({limit}, p[i + {k}]), p[{k}]) + i");
        sum.push_str(&format!("min(p[{k}], i) + "));
        power.push_str(&format!("let x{} = x{k} * x{k} + x{k} / 3; ", k + 1));
        let outer = if k == 0 {
            "n".to_owned()
        } else {
            format!("c{}", k - 1)
        };
        loops.push_str(&format!("for c{k} in 0..{outer} {{ "));
    }
    let stores: String = (0..700)
        .map(|k| format!("y[i, p[{k}] +: 4] = y[i, p[{}] +: 4]; ", k + 1))
        .collect();
    let begun = std::time::Instant::now();
    for (body, wanted) in [
        (
            format!("(view y[{limit} .. {limit} + 1, ..])[0 +: 4, 0] = 0.0;"),
            "E0401",
        ),
        (
            format!("(view y[{sum} 0 .. {sum} 1, ..])[0 +: 4, 0] = 0.0;"),
            "E0401",
        ),
        (format!("{power} y[x40, 0] = 0.0;"), "E0401"),
        (format!("{loops} y[i, c39] = 0.0; {}", "}".repeat(40)), ""),
        (stores, ""),
    ] {
        assert_eq!(verdict(y, "i in n", &body), wanted, "{body}");
    }
    // Of a build without optimisation, on a busy machine.
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn samples_of_shared_work() {
    for (text, name) in [
        (
            "kernel mm<T: dtype, BM: int = 16, BN: int = 16, BK: int = 16>(
                a: view<T>[m, k], b: view<T>[n, k], c: out view<T>[m, n],
                part: mut view<f32>[splits, m, n], done: mut view<i32>[ceil_div(m, BM), ceil_div(n, BN)],
            ) grid (i in ceil_div(m, BM), j in ceil_div(n, BN), s in splits) {
                let steps = ceil_div(k, BK);
                let mut acc = zeros<f32>[BM, BN];
                for p in s * steps / splits .. (s + 1) * steps / splits {
                    acc = dot(a[i*BM +: BM, p*BK +: BK], b[j*BN +: BN, p*BK +: BK].t, acc);
                }
                part[s, i*BM +: BM, j*BN +: BN] = acc;
                if arrive(done[i, j], splits) {
                    let mut sum = zeros<f32>[BM, BN];
                    for z in 0..splits { sum += part[z, i*BM +: BM, j*BN +: BN]; }
                    c[i*BM +: BM, j*BN +: BN] = sum as T;
                }
            }",
            "mm<f16>",
        ),
        (
            "kernel mm<T: dtype, BM: int = 16, BN: int = 16, BK: int = 16>(
                a: view<T>[m, k], b: view<T>[n, k], c: out view<T>[m, n],
                part: mut view<f32>[workers, 2, BM, BN], done: mut view<i32>[ceil_div(m, BM) * ceil_div(n, BN)],
            ) grid (w in workers) {
                let cols = ceil_div(n, BN);
                let steps = ceil_div(k, BK);
                let per = ceil_div(ceil_div(m, BM) * cols * steps, workers);
                let end = min((w + 1) * per, ceil_div(m, BM) * cols * steps);
                let mut u = w * per;
                while u < end {
                    let t = u / steps;
                    let k0 = u % steps;
                    let k1 = min(steps, k0 + end - u);
                    let i = t / cols;
                    let j = t % cols;
                    let mut acc = zeros<f32>[BM, BN];
                    for p in k0..k1 { acc = dot(a[i*BM +: BM, p*BK +: BK], b[j*BN +: BN, p*BK +: BK].t, acc); }
                    let first = t * steps / per;
                    let last = ((t + 1) * steps - 1) / per;
                    if first == last {
                        scatter c[i*BM +: BM, j*BN +: BN] = acc as T;
                    } else {
                        part[w, if k0 == 0 { 1 } else { 0 }, .., ..] = acc;
                        if arrive(done[t], last - first + 1) {
                            let mut sum = zeros<f32>[BM, BN];
                            for z in first..last + 1 { sum += part[z, if z == first { 1 } else { 0 }, .., ..]; }
                            c[i*BM +: BM, j*BN +: BN] = sum as T;
                        }
                    }
                    u += k1 - k0;
                }
            }",
            "mm<f16>",
        ),
    ] {
        assert_eq!(instance(text, name).err(), None, "{text}");
    }
}

// What is accepted never races.

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len())]
    }
}

/// A form, mostly of those that the rules know.
fn form(r: &mut Random, names: &[&str], depth: usize) -> String {
    if depth == 0 {
        return match r.below(4) {
            0 => (r.below(9) as i64 - 2).to_string(),
            _ => r.pick(names).to_owned(),
        };
    }
    let inner = |r: &mut Random| form(r, names, depth - 1);
    match r.below(15) {
        0..=2 => format!(
            "({} * {})",
            inner(r),
            r.pick(&["2", "3", "4", "-2", "m", "8"])
        ),
        3..=5 => format!("({} + {})", inner(r), inner(r)),
        6 => format!("({} - {})", inner(r), inner(r)),
        7 => format!("({} / {})", inner(r), r.pick(&["2", "3", "m", "t"])),
        8 => format!("({} % {})", inner(r), r.pick(&["2", "3", "m", "t"])),
        9 => format!("d[{}]", inner(r)),
        10 => format!("p[{}]", inner(r)),
        11 => format!("w[{}, {}]", inner(r), r.pick(&["0", "1"])),
        12 => format!("min({}, {})", inner(r), inner(r)),
        13 => format!("max({}, {})", inner(r), inner(r)),
        _ => inner(r),
    }
}

/// An index of a dimension; its extent in the tile, if it keeps one.
fn index(r: &mut Random, names: &[&str]) -> (String, Option<usize>) {
    let depth = r.below(3);
    let start = form(r, names, depth);
    match r.below(5) {
        0 | 1 => (start, None),
        n => {
            let len = 1 + r.below(4);
            let scaled = if r.below(2) == 0 {
                start
            } else {
                format!("{} * {len}", r.pick(names))
            };
            let until = if n == 4 {
                format!(" until {}", form(r, names, 1))
            } else {
                String::new()
            };
            (format!("{scaled} +: {len}{until}"), Some(len))
        }
    }
}

/// A slice of `y`, or of a part of it, and the shape of its tile.
fn slice(r: &mut Random, names: &[&str]) -> (String, Vec<usize>) {
    let (a, x) = index(r, names);
    let (b, y) = index(r, names);
    let shape = x.into_iter().chain(y).collect();
    let part = if r.below(3) == 0 {
        let e = form(r, names, r.0 as usize % 2);
        let (lo, hi) = match r.below(5) {
            0 | 1 => (format!("p[{e}]"), format!("p[{e} + 1]")),
            2 => (format!("{e} * m"), format!("({e} + 1) * m")),
            3 => (format!("{e} * 4"), format!("min({e} * 4 + 4, m)")),
            _ => (form(r, names, 1), form(r, names, 1)),
        };
        format!("(view y[{lo} .. {hi}, ..])")
    } else {
        "y".to_owned()
    };
    (format!("{part}[{a}, {b}]"), shape)
}

fn access(r: &mut Random, names: &[&str], out: &mut String) {
    let (slice, shape) = slice(r, names);
    let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
    match r.below(6) {
        0 if shape.is_empty() => out.push_str(&format!("z = z + {slice}; ")),
        0 => out.push_str(&format!("z = z + {slice}.sum(); ")),
        _ if shape.is_empty() => out.push_str(&format!("{slice} = z; ")),
        _ => out.push_str(&format!(
            "{slice} = full<f32>[{}](1.0) * z; ",
            dims.join(", ")
        )),
    }
}

fn statement(r: &mut Random, names: &[&str], out: &mut String, depth: usize) {
    match r.below(if depth == 0 { 5 } else { 9 }) {
        0..=4 => access(r, names, out),
        5 => {
            let (a, b) = (form(r, names, 1), form(r, names, 1));
            out.push_str(&format!(
                "if {a} {} {b} {{ ",
                r.pick(&["==", "==", "==", "!=", "<"])
            ));
            statement(r, names, out, depth - 1);
            if r.below(3) == 0 {
                out.push_str("} else { ");
                statement(r, names, out, depth - 1);
            }
            out.push_str("} ");
        }
        6 => {
            let ends = r.pick(&["0..2", "0..4", "1..3", "0..m", "i..i + 2"]);
            out.push_str(&format!("for c in {ends} {{ "));
            let inner: Vec<&str> = names.iter().copied().chain(["c"]).collect();
            statement(r, &inner, out, depth - 1);
            out.push_str("} ");
        }
        7 => {
            let n = form(r, names, 1);
            let at = form(r, names, 1);
            // What is read there is the author's promise.
            let (slice, shape) = slice(r, names);
            let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
            let value = match &dims[..] {
                [] => "1.0".to_owned(),
                _ => format!("full<f32>[{}](1.0)", dims.join(", ")),
            };
            out.push_str(&format!(
                "if arrive(count[{at}], {n}) {{ {slice} = {value}; "
            ));
            out.push_str("} ");
        }
        _ => {
            statement(r, names, out, depth - 1);
            statement(r, names, out, depth - 1);
        }
    }
}

fn program(r: &mut Random) -> String {
    let i = r.pick(&["n", "n", "m", "3", "4", "n * m"]);
    let (second, names): (String, Vec<&str>) = match r.below(2) {
        0 => (String::new(), vec!["i"]),
        _ => (
            format!(", j in {}", r.pick(&["n", "m", "2", "4"])),
            vec!["i", "j"],
        ),
    };
    let mut body = String::new();
    for _ in 0..1 + r.below(2) {
        statement(r, &names, &mut body, 2);
    }
    format!(
        "kernel k(y: mut view<f32>[a, b], p: view<i32>[n + 1] sorted, d: view<i32>[n] distinct, w: view<i32>[n, 2] distinct, \
         m_: view<i32>[m], count: mut view<i32>[q], t: i32) grid (i in {i}{second}) {{ let mut z = 1.0; {body} }}"
    )
}

/// Arguments of the kernels of `program`, their facts kept.
fn arguments(r: &mut Random) -> Args {
    let (n, m) = (1 + r.below(4), 1 + r.below(4));
    let ints = |shape: &[usize], values: &[f64]| -> Arg {
        Tensor::from_f64(DType::I32, shape.to_vec(), values)
            .expect("a tensor")
            .into()
    };
    let mut sorted: Vec<f64> = (0..=n).map(|_| r.below(14) as f64 - 2.0).collect();
    sorted.sort_by(f64::total_cmp);
    let mut all: Vec<f64> = (0..12).map(|x| f64::from(x) - 2.0).collect();
    for i in (1..all.len()).rev() {
        all.swap(i, r.below(i + 1));
    }
    let mut rows: Vec<(f64, f64)> = (0..9)
        .map(|x| (f64::from(x / 3), f64::from(x % 3)))
        .collect();
    for i in (1..rows.len()).rev() {
        rows.swap(i, r.below(i + 1));
    }
    let rows: Vec<f64> = rows[..n].iter().flat_map(|&(a, b)| [a, b]).collect();
    let mut args = Args::new();
    let (a, b) = (1 + r.below(12), 1 + r.below(12));
    let y = Tensor::zeros(DType::F32, vec![a, b]).expect("a tensor");
    args.insert("y".into(), y.into());
    args.insert("p".into(), ints(&[n + 1], &sorted));
    args.insert("d".into(), ints(&[n], &all[..n]));
    args.insert("w".into(), ints(&[n, 2], &rows));
    args.insert("m_".into(), ints(&[m], &vec![0.0; m]));
    let q = 1 + r.below(6);
    args.insert("count".into(), ints(&[q], &vec![0.0; q]));
    args.insert("t".into(), (1 + r.below(4) as i64).into());
    args
}

/// Programs that the rules are made for, with holes: `K` a small constant, `L` a length, `E` an index, `C` a condition.
const TEMPLATES: &[&str] = &[
    "(view y[p[E] .. p[E + K], ..])[E*K +: L, E] = z; ",
    "let b = w[E, K]; (view y[p[b] .. p[b + 1], ..])[w[E, K]*K +: L, E] = z; ",
    "(view y[p[E] .. p[E + 1], ..])[K + E*K + E*K +: L, K] = z; ",
    "(view y[p[E] .. p[E + 1], ..])[E, K +: L] = z; ",
    "(view (view y[p[E] .. p[E + 1], ..])[K .. E, ..])[E*K +: L, K] = z; ",
    "(view y[.., p[E] .. p[E + 1]])[E, E*K +: L] = z; ",
    "let a = (view y[p[E] .. p[E + 1], ..])[E +: L, K]; (view y[p[E] .. p[E + 1], ..])[E +: L, K] = a; ",
    "(view y[E*m .. (E + K)*m, ..])[E*K +: L, K] = z; ",
    "let per = ceil_div(a, n); (view y[E*per .. min((E + K)*per, a), ..])[K +: L, K] = z; ",
    "(view y[E*K .. min(E*K + K, a), ..])[E +: L, E] = z; ",
    "y[w[E, K], w[E, K]*K +: L] = z; ",
    "y[d[E]*K +: L, E] = z; ",
    "y[E / K, E % K +: L] = z; ",
    "let x = E*K + E; y[x / m, x % m] = 1.0; let v = y[x / m, x % m]; y[x / m, x % m] = v; ",
    "let x = E; y[(x / K)*L +: L, (x % K)*K + K] = z; ",
    "for c in K..K { for e in 0..K { y[E*K + c*K + e +: L, E] = z; } } ",
    "for c in 0..m step 2 { y[E, E*K + c +: L] = z; } ",
    "y[E*K + E*K +: L, K] = z; y[E*K + K, E] = 1.0; ",
    "if E == E { y[E*K +: L, E] = z; } ",
    "if E == K && E == E { y[K, E] = 1.0; } else { y[E, K] = 1.0; } ",
    "let v = y[E*K + K +: L, E]; y[E*K +: L, E] = v; ",
    "if arrive(count[E], K) { y[E, K +: L] = z; } ",
    "let t = E / K; if arrive(count[t], K) { y[t / K, (t % K)*K +: L] = z; } ",
    "let u = E*K; let mut s = u; while s < u + K { y[s / K, s % K + E*K] = 1.0; s = s + 1; } ",
    "(view y[E, ..]).split(0, 2)[E, K] = 1.0; ",
    "y.merge(0, 1)[E*K + E*K +: L] = z; ",
    "y.t[E, E*K +: L] = z; ",
    "y[min(E, K) + E*K, max(E, K)*K +: L] = z; ",
    "let v = y[E, K +: L]; scatter y[E, E] = 1.0; y[E, K +: L] = v; ",
    "if C { y[E*K +: L, E] = z; } ",
    "if C { return; } y[E*K +: L, E] = z; ",
    "let s = if C { E } else { E }; y[s, E*K +: L] = z; ",
    "y[E*K +: L until E, E] = z; let v = y[E*K +: L until K, E]; ",
];

fn filled(r: &mut Random) -> String {
    let grids: &[(&str, &[&str])] = &[
        ("i in n", &["i"]),
        ("i in n", &["i"]),
        ("i in n, j in m", &["i", "j"]),
        ("j in 3, i in n", &["i", "j"]),
        ("i in n*m", &["i"]),
        ("i in 3, j in 4", &["i", "j"]),
        ("i in n, j in 2, g in 2", &["i", "j", "g"]),
    ];
    let (grid, names) = grids[r.below(grids.len())];
    let mut body = String::new();
    for _ in 0..1 + r.below(4) / 3 {
        let length = (1 + r.below(4)).to_string();
        // A few values that come again make more programs right.
        let few: Vec<String> = (0..2).map(|_| r.below(5).to_string()).collect();
        let template = TEMPLATES[r.below(TEMPLATES.len())];
        for (at, letter) in template.char_indices() {
            let alone = |c: Option<char>| !c.is_some_and(char::is_alphanumeric);
            let around = (
                template[..at].chars().next_back(),
                template[at + 1..].chars().next(),
            );
            let hole = alone(around.0) && alone(around.1);
            match letter {
                'K' if hole => body.push_str(&few[r.below(2)]),
                'L' if hole => body.push_str(&length),
                'C' if hole => {
                    let ops = ["==", "==", "!=", "<", ">="];
                    let (a, b) = (r.pick(names), r.pick(names));
                    body.push_str(&format!(
                        "{a} {} {}",
                        r.pick(&ops),
                        r.pick(&["0", "1", b, "m"])
                    ));
                }
                'E' if hole => {
                    let name = r.pick(names);
                    body.push_str(&match r.below(12) {
                        0 => format!("({name} + 1)"),
                        1 => format!("({name} / 2)"),
                        2 => format!("({name} % 2)"),
                        3 => "0".to_owned(),
                        4 => format!("({name} + {})", r.pick(names)),
                        _ => name.to_owned(),
                    });
                }
                'z' if hole => body.push_str(&format!("full<f32>[{length}](1.0)")),
                other => body.push(other),
            }
        }
    }
    format!(
        "kernel k(y: mut view<f32>[a, b], p: view<i32>[n + 1] sorted, d: view<i32>[n] distinct, w: view<i32>[n, 2] distinct, \
         m_: view<i32>[m], count: mut view<i32>[q], t: i32) grid ({grid}) {{ {body} }}"
    )
}

#[test]
fn what_is_accepted_never_races() {
    let programs: u64 = std::env::var("TESS_RACES").map_or(600, |n| n.parse().expect("a number"));
    let (mut accepted, mut refused, mut ran) = (0u64, 0u64, 0u64);
    for seed in 0..programs {
        let mut r = Random(seed.wrapping_mul(0x1234_5678_9abc_def1));
        let text = if seed % 2 == 0 {
            program(&mut r)
        } else {
            filled(&mut r)
        };
        let made = match instance(&text, "k") {
            Ok(made) => made,
            Err(said) => {
                refused += u64::from(said == "E0401" || said == "E0402" || said == "E0401 E0402");
                continue;
            }
        };
        accepted += 1;
        for _ in 0..12 {
            let mut args = arguments(&mut r);
            let before = args.clone();
            match interp::launch(&made, &mut args) {
                Ok(_) => ran += 1,
                Err(error) => {
                    let code = error.diagnostic(made.bodies[0].header.span).code;
                    let tables: Vec<_> = before
                        .iter()
                        .map(|(name, arg)| match arg {
                            Arg::Tensor(t) if name != "y" => {
                                format!("{name} {:?} {:?}", t.shape, t.to_f64())
                            }
                            Arg::Tensor(t) => format!("{name} {:?}", t.shape),
                            Arg::Scalar(s) => format!("{name} {s:?}"),
                        })
                        .collect();
                    assert!(code != codes::E0805, "{error}\n{text}\n{tables:?}");
                }
            }
        }
    }
    println!("{accepted} of {programs} accepted, {refused} refused, {ran} runs");
    assert!(accepted * 20 > programs && refused * 5 > programs && ran > accepted);
}
