//! Products of the role level: the forms that warpgroups have, and what an author hears of others.

use tesserine_compiler::{
    Session,
    diagnostics::{codes, render},
    passes,
    target::Target,
};

/// A kernel of one product: of `a`, a tile of `[m, k]` in memory as `a_shape` says, and `b`.
fn kernel(left: (&str, &str), right: (&str, &str), sum: &str, product: &str) -> String {
    let ((ta, a), (tb, b)) = (left, right);
    format!(
        "kernel k(a: view<{ta}>[ma, ka], b: view<{tb}>[mb, kb], c: out view<{sum}>[m, n]) for sm_90a
        grid persistent (i in ceil_div(m, 64)) {{
            channel ab: (tile<{ta}>{a}, tile<{tb}>{b}) depth 2;
            roles {{
                load: 1 warp {{ put ab {{ a[{}], b[{}] }} }}
                math: 1 warpgroup {{
                    let (x, y) = get ab;
                    let s = await mma({product});
                    release ab;
                    store_all(c, s, i);
                }}
            }}
        }}
        fn store_all(c, s, i) {{ c[i*64 +: s.shape(0), 0 +: s.shape(1)] = s; }}",
        slice(a),
        slice(b)
    )
}

/// The slice of a view that a tile of such a shape is.
fn slice(shape: &str) -> String {
    let extents = shape.trim_matches(['[', ']']).split(", ");
    let parts: Vec<String> = extents.map(|e| format!("0 +: {e}")).collect();
    parts.join(", ")
}

fn lowered(text: &str) -> Result<String, String> {
    let mut session = Session::new();
    let target = Target::parse("sm_90a").expect("a target");
    let made = session
        .load_text("k.tess", text)
        .and_then(|module| session.instantiate(module, "k", target))
        .unwrap_or_else(|list| {
            let all = list.iter().map(|d| render(d, session.sources(), false));
            panic!("{}\n{text}", all.collect::<String>())
        });
    match passes::lower(&made.bodies[0], &target) {
        Ok(kernel) => Ok(kernel.to_string()),
        Err(list) => {
            let is_of_form = list.iter().all(|d| d.code == codes::E0010);
            assert!(is_of_form, "{list:?}");
            Err(list
                .iter()
                .map(|d| render(d, session.sources(), false))
                .collect())
        }
    }
}

#[test]
fn forms_that_do_not_exist_are_named() {
    let rows = "[64, 64]";
    let cases = [
        (
            ("f32", rows),
            ("f32", rows),
            "f32",
            "x, y.t",
            "write `x as tf32`",
        ),
        (
            ("e4m3", rows),
            ("e4m3", rows),
            "f32",
            "x, y",
            "K runs along the rows",
        ),
        (
            ("i8", rows),
            ("i8", rows),
            "i32",
            "x.t, y.t",
            "K runs along the rows",
        ),
        (
            ("f32", rows),
            ("f32", rows),
            "f32",
            "x as tf32, y as tf32",
            "K runs along the rows",
        ),
        (
            ("i8", rows),
            ("i8", "[40, 64]"),
            "i32",
            "x, y.t",
            "a multiple of 16",
        ),
        (
            ("f16", "[32, 64]"),
            ("f16", rows),
            "f32",
            "x, y.t",
            "M is a multiple of 64",
        ),
        (
            ("f16", rows),
            ("f16", "[264, 64]"),
            "f32",
            "x, y.t",
            "a multiple of 8 up to 256",
        ),
        (
            ("f16", rows),
            ("f16", "[60, 64]"),
            "f32",
            "x, y.t",
            "a multiple of 8 up to 256",
        ),
        (
            ("e4m3", "[64, 16]"),
            ("e4m3", "[64, 16]"),
            "f32",
            "x, y.t",
            "a multiple of 32",
        ),
        (
            ("f16", rows),
            ("f16", rows),
            "f32",
            "x, (y * 2.0).t",
            "the right factor lies in a channel's slot",
        ),
        (
            ("f16", rows),
            ("f16", rows),
            "f16",
            "x, y.t, zeros<f16>[64, 64]",
            "its sums are f32",
        ),
    ];
    for (left, right, sum, product, expected) in cases {
        let text = kernel(left, right, sum, product);
        let Err(said) = lowered(&text) else {
            panic!("`mma({product})` of {left:?} and {right:?} is compiled");
        };
        assert!(said.contains(expected), "{said}");
        // The form is named, with what lies where.
        assert!(
            said.contains("a product of ") && said.contains("in sums of "),
            "{said}"
        );
    }
}

#[test]
fn f32_is_read_in_place_as_tf32() {
    let rows = "[64, 32]";
    let text = kernel(
        ("f32", rows),
        ("f32", rows),
        "f32",
        "x as tf32, (y as tf32).t",
    );
    let text = lowered(&text).expect("a form that exists");
    let product = text.lines().find(|l| l.contains(" = product "));
    let product = product.expect("a product");
    assert!(
        product.contains("product channel0 tile 0 by channel0 tile 1"),
        "{product}"
    );
    assert!(!text.contains("read_shared"), "{text}");
}

/// What a product reads from registers stays there until it is over: nothing is in flight where a loop begins again.
#[test]
fn factors_in_registers_are_read_before_others_take_their_place() {
    let text = "kernel k(a: view<f16>[m, k], b: view<f16>[n, k], c: out view<f32>[m, n]) for sm_90a
        grid persistent (i in ceil_div(m, 64), j in ceil_div(n, 64)) {
            channel ab: (tile<f16>[64, 64], tile<f16>[64, 64]) depth 3;
            roles {
                load: 1 warp { for p in 0..ceil_div(k, 64) { put ab { a[i*64 +: 64, p*64 +: 64], b[j*64 +: 64, p*64 +: 64] } } }
                math: 1 warpgroup {
                    let mut s = zeros<f32>[64, 64];
                    for p in 0..ceil_div(k, 64) {
                        let (x, y) = get ab;
                        s = mma(LEFT, y.t, s);
                        release ab lag 1;
                    }
                    c[i*64 +: 64, j*64 +: 64] = await s;
                }
            }
        }";
    // What the first wait behind the product leaves in flight.
    let left_in_flight = |left: &str| -> String {
        let text = lowered(&text.replace("LEFT", left)).expect("a form that exists");
        let behind = text.lines().skip_while(|l| !l.contains(" = product "));
        let mut waits = behind.filter_map(|l| l.split("wait_products ").nth(1));
        let wait = waits.next().expect("a wait");
        wait.split(' ').next().unwrap_or_default().to_owned()
    };
    assert_eq!(left_in_flight("x"), "1");
    assert_eq!(left_in_flight("x * 2.0"), "0");
}
