//! Slots that are handed on and slots that are filled in parts: who waits for whom, where they lie, and what is not known well enough to be
//! compiled.

use tesserine_compiler::{
    Session,
    diagnostics::{Diagnostics, codes, render},
    ir::role,
    passes,
    target::Target,
};

/// Three roles; `channels`, what `math` and `store` do in each of four turns.
fn lowered(
    channels: &str,
    math: &str,
    store: &str,
) -> Result<role::Kernel, (Session, Diagnostics)> {
    let text = format!(
        "kernel k(x: view<f16>[n, 64], y: out view<f16>[n, 64]) for sm_90a grid (i in ceil_div(n, 256)) {{
            {channels}
            roles {{
                load: 1 warp {{ for t in 0..4 {{ put a {{ x[i*256 + t*64 +: 64, ..] }} }} }}
                math: 1 warpgroup {{ for t in 0..4 {{ {math} }} }}
                store: 1 warp {{ for t in 0..4 {{ {store} }} }}
            }}
        }}"
    );
    let mut session = Session::new();
    let target = Target::parse("sm_90a").expect("a target");
    let made = session
        .load_text("k.tess", &text)
        .and_then(|module| session.instantiate(module, "k", target));
    match made.and_then(|made| passes::lower(&made.bodies[0], &target)) {
        Ok(kernel) => Ok(kernel),
        Err(list) => Err((session, list)),
    }
}

const CHANNELS: &str = "channel a: tile<f16>[64, 64] depth 2;
    channel b: tile<f16>[64, 64] depth 2 over a;";

const HAND_ON: &str = "let f = get a; let s = await mma(f, f.t); put b in f { s as f16 }";

const STORE: &str = "y[i*256 + t*64 +: 64, ..] = get b; release b;";

fn ok(channels: &str, math: &str, store: &str) -> role::Kernel {
    lowered(channels, math, store).unwrap_or_else(|(session, list)| {
        let all: String = list
            .iter()
            .map(|d| render(d, session.sources(), false))
            .collect();
        panic!("{all}")
    })
}

/// The one warp of `store` makes the slots of `a` empty, the four of `math` make those of `b` full; both lie in the same bytes.
#[test]
fn readers_of_what_is_handed_on_give_the_slots_back() {
    let kernel = ok(CHANNELS, HAND_ON, STORE);
    let rings: Vec<&role::Channel> = kernel.channels.values().collect();
    let [a, b] = rings[..] else {
        panic!("two channels");
    };
    assert_eq!(a.buffer, b.buffer);
    let [of_a, of_b] = [a, b].map(|c| c.barriers.expect("barriers"));
    assert_ne!(of_a.buffer, of_b.buffer);
    assert_eq!((of_a.empty, of_b.full), (1, 4));
    let text = kernel.to_string();
    let count = |what: &str| text.lines().filter(|l| l.trim().starts_with(what)).count();
    assert_eq!(count("arrive_full channel1"), 1, "{text}");
    // Only `load` waits for an empty slot, and only `store` gives one back: of `a`.
    assert_eq!(count("wait_empty"), 1, "{text}");
    assert_eq!(count("wait_empty channel0"), 1, "{text}");
    assert_eq!(count("arrive_empty"), 1, "{text}");
    assert_eq!(count("arrive_empty channel0"), 1, "{text}");
}

/// All warps have read the factor when the first one writes over it.
#[test]
fn what_products_read_is_not_written_over() {
    let kernel = ok(CHANNELS, HAND_ON, STORE);
    let text = kernel.to_string();
    let words = [
        "product",
        "wait_products 0",
        "barrier",
        "write_shared",
        "arrive_full channel1",
    ];
    let places: Vec<usize> = text
        .lines()
        .enumerate()
        .filter(|(_, l)| {
            let l = l.split(" = ").last().unwrap_or(l).trim();
            words.iter().any(|w| l.starts_with(w))
        })
        .map(|(i, _)| i)
        .collect();
    let found: Vec<&str> = text.lines().collect();
    assert_eq!(places.len(), words.len(), "{text}");
    for (&at, word) in places.iter().zip(words) {
        assert!(found[at].contains(word), "{word}: {}", found[at]);
    }
}

/// What a slot holds is passed on as it is: nothing is written.
#[test]
fn values_passed_on_unchanged_cost_nothing() {
    let kernel = ok(CHANNELS, "let f = get a; put b in f { f }", STORE);
    let text = kernel.to_string();
    let count = |what: &str| text.matches(what).count();
    // Nor is it read: `store` stores the slot itself.
    assert_eq!(
        (count("write_shared"), count("read_shared")),
        (0, 0),
        "{text}"
    );
    assert_eq!(count("arrive_full channel1"), 1, "{text}");
}

#[test]
fn slots_that_may_be_others_are_refused() {
    let third = format!("{CHANNELS}\n channel c: tile<f16>[64, 64] depth 2 over a;");
    let cases = [
        (
            "channel a: tile<f16>[64, 64] depth 2; channel b: tile<f16>[64, 64] depth 1 over a;",
            HAND_ON,
            STORE,
            "another depth",
        ),
        (
            "channel a: tile<f16>[64, 64] depth 2; channel b: tile<f16>[32, 64] depth 2 over a;",
            "let f = get a; let s = await mma(f, f.t); put b in f { s[0..32, ..] as f16 }",
            "y[i*256 + t*64 +: 32, ..] = get b; release b;",
            "slots of 4096 bytes",
        ),
        (
            &third,
            "let f = get a; let s = await mma(f, f.t);
             if t < 2 { put b in f { s as f16 } } else { put c in f { s as f16 } }",
            "if t < 2 { y[i*256 + t*64 +: 64, ..] = get b; release b; }
             else { y[i*256 + t*64 +: 64, ..] = get c; release c; }",
            "to several",
        ),
    ];
    for (channels, math, store, named) in cases {
        let Err((_, list)) = lowered(channels, math, store) else {
            panic!("{named}: is compiled");
        };
        let found = list
            .iter()
            .any(|d| d.code == codes::E0010 && format!("{d:?}").contains(named));
        assert!(found, "{named}: {list:?}");
    }
}

/// Each of the parts is waited for, whoever puts it; a role goes on to the next slot behind its last part.
#[test]
fn parts_make_a_slot_full() {
    let channels = "channel a: tile<f16>[64, 64] depth 2; channel b: tile<f16>[64, 64] depth 2;";
    let math = "let f = get a; let s = (await mma(f, f.t)) as f16; release a;
        put b at [32, 0] { s[32..64, ..] } put b at [0, 0] { s[0..32, ..] }";
    let kernel = ok(channels, math, STORE);
    let b = kernel.channels.values().nth(1).expect("two channels");
    assert_eq!(b.barriers.expect("barriers").full, 8);
    let text = kernel.to_string();
    let count = |what: &str| text.matches(what).count();
    assert_eq!(count("wait_empty channel1"), 1, "{text}");
    assert_eq!(
        count("write_shared channel1 tile 0 at [32, 0]"),
        1,
        "{text}"
    );
    assert_eq!(count("arrive_full channel1"), 2, "{text}");
}

#[test]
fn parts_that_do_not_make_up_a_slot_are_errors() {
    let channels = "channel a: tile<f16>[64, 64] depth 2; channel b: tile<f16>[64, 64] depth 2;";
    let part = |at: &str| {
        format!(
            "let f = get a; let s = (await mma(f, f.t)) as f16; release a;
             put b at [0, 0] {{ s[0..32, ..] }} put b at {at} {{ s[32..64, ..] }}"
        )
    };
    let cases = [
        (part("[16, 0]"), "overlap", codes::E0725),
        (
            part("[0, 0]"),
            "fill 2048 of the 4096 elements",
            codes::E0725,
        ),
        (part("[t, 0]"), "is not fixed", codes::E0725),
    ];
    for (math, named, code) in cases {
        let Err((_, list)) = lowered(channels, &math, STORE) else {
            panic!("{named}: is compiled");
        };
        let found = list
            .iter()
            .any(|d| d.code == code && format!("{d:?}").contains(named));
        assert!(found, "{named}: {list:?}");
    }
}

/// Parts of slots, of factors and of warpgroups' columns are read as they are written.
#[test]
fn role_ir_is_read_and_written_the_same() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/conformance/tiles/roles.tess"
    );
    let target = Target::parse("sm_90a").expect("a target");
    let cases = [
        ("in_parts<f16>", "at [64, 0]"),
        ("parts_of_slots<f16>", "at [0, 64] of [64, 192]"),
        ("by_columns<f16>", "split 1"),
    ];
    for (instance, word) in cases {
        let mut session = Session::new();
        let made = session
            .load(std::path::Path::new(path), None)
            .and_then(|module| session.instantiate(module, instance, target))
            .and_then(|made| passes::lower(&made.bodies[0], &target));
        let kernel = made.unwrap_or_else(|list| panic!("{instance}: {list:?}"));
        let text = kernel.to_string();
        assert!(text.contains(word), "{instance} has no {word}:\n{text}");
        let again = role::parse(&text).unwrap_or_else(|e| panic!("{instance}: {e:?}\n{text}"));
        role::verify(&again).unwrap_or_else(|e| panic!("{instance}: {e:?}"));
        assert_eq!(again.to_string(), text, "{instance}");
    }
}
