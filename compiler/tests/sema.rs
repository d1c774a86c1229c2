//! Sema from the outside: programs in, tile IR or diagnostics out.

use std::path::{Path, PathBuf};

use tesserine_compiler::{Session, diagnostics::render, ir::tile, target::Target};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in the workspace")
        .to_owned()
}

#[test]
fn the_kernel_library_instantiates() {
    for (file, instances) in [
        ("basics/axpy.tess", &["axpy<f16>", "axpy<bf16>"][..]),
        ("basics/transpose.tess", &["transpose<f16>"]),
        (
            "norm/rmsnorm.tess",
            &[
                "rmsnorm<bf16>",
                "fused_add_rmsnorm<f16>",
                "rmsnorm<f32, B = 1024>",
            ],
        ),
        ("norm/layernorm.tess", &["layernorm<bf16>"]),
        ("norm/softmax.tess", &["softmax<bf16>"]),
        (
            "activation/gated.tess",
            &["silu_and_mul<bf16>", "gelu_tanh_and_mul<f16>"],
        ),
    ] {
        let path = repository().join("kernels-dsl").join(file);
        let mut session = Session::new();
        let module = session
            .load(&path, None)
            .unwrap_or_else(|d| panic!("{file}: {d:#?}"));
        for instance in instances {
            for target in [Target::ALL[0], Target::ALL[4]] {
                match session.instantiate(module, instance, target) {
                    Ok(made) => {
                        assert!(
                            made.bodies.len() >= 2,
                            "{instance}: specialised and general"
                        );
                        assert!(!made.bodies[0].header.facts.is_empty());
                        assert!(made.bodies[made.bodies.len() - 1].header.facts.is_empty());
                        for body in &made.bodies {
                            assert_eq!(tile::verify(body), Ok(()), "{instance}");
                        }
                    }
                    Err(diagnostics) => {
                        for d in diagnostics.iter() {
                            println!("{}", render(d, session.sources(), false));
                        }
                        panic!("{instance} for {}", target.name());
                    }
                }
            }
        }
    }
}

#[test]
fn samples_load_and_check_without_panic() {
    let folder = repository().join("tests/samples");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the samples are there")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "tess"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 10);
    for path in paths {
        let mut session = Session::new();
        let module = match session.load(&path, None) {
            Ok(module) => module,
            Err(diagnostics) => {
                for d in diagnostics.iter() {
                    println!("{}", render(d, session.sources(), false));
                }
                panic!("{}", path.display());
            }
        };
        for d in session.check(module).iter() {
            if d.code.as_str() != "E0010" {
                println!("{}", render(d, session.sources(), false));
            }
        }
    }
}

/// Each file of `tests/diagnostics` that says `// expect: CODE, …` gives those codes in that order, `check`ed or, where it
/// says `// instance: …`, as that instance.
#[test]
fn wrong_programs_get_their_codes() {
    let folder = repository().join("tests/diagnostics");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the wrong programs are there")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "tess"))
        .collect();
    paths.sort();
    let mut wrong = Vec::new();
    let mut asserted = 0;
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        let header = |key: &str| {
            text.lines()
                .take_while(|l| l.starts_with("//"))
                .find_map(|l| l.strip_prefix("// ")?.strip_prefix(key)?.strip_prefix(": "))
        };
        // What is wrong only when it runs is the business of the snapshots.
        let runs = header("run").is_some() || text.starts_with("// test\n");
        let Some(expected) = header("expect").filter(|_| !runs) else {
            continue;
        };
        let mut expected: Vec<&str> = expected.split(", ").collect();
        expected.sort_unstable();
        let target =
            header("target").map_or(Target::ALL[4], |t| Target::parse(t).expect("a target"));
        let mut session = Session::new();
        let diagnostics = match session.load(&path, None) {
            Err(diagnostics) => diagnostics,
            Ok(module) => match header("instance") {
                None => session.check(module),
                Some(instance) => session
                    .instantiate(module, instance, target)
                    .map(|_| Default::default())
                    .unwrap_or_else(|d| d),
            },
        };
        let mut found: Vec<&str> = diagnostics.iter().map(|d| d.code.as_str()).collect();
        found.sort_unstable();
        if found != expected {
            wrong.push(format!("{}: {found:?}, not {expected:?}", path.display()));
        }
        for d in diagnostics.iter() {
            println!("{}", render(d, session.sources(), false));
        }
        asserted += 1;
    }
    assert!(asserted >= 40, "{asserted} programs say what they expect");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Damaged programs: what a sample is after a token was removed, doubled or exchanged. Nothing may panic, and checking
/// ends.
#[test]
fn damaged_programs_do_not_panic() {
    let mut texts: Vec<String> = Vec::new();
    for folder in ["tests/samples", "tests/diagnostics", "kernels-dsl/norm"] {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(repository().join(folder))
            .expect("a folder")
            .map(|e| e.expect("an entry").path())
            .filter(|p| p.extension().is_some_and(|e| e == "tess"))
            .collect();
        paths.sort();
        texts.extend(
            paths
                .iter()
                .map(|p| std::fs::read_to_string(p).expect("a readable file")),
        );
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    for round in 0..400 {
        let text = &texts[round % texts.len()];
        let mut tokens: Vec<&str> = Vec::new();
        let mut rest = text.as_str();
        while let Some(first) = rest.chars().next() {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            let end = if word(first) {
                rest.find(|c| !word(c)).unwrap_or(rest.len())
            } else {
                first.len_utf8()
            };
            tokens.push(&rest[..end]);
            rest = &rest[end..];
        }
        for _ in 0..1 + random(3) {
            let (a, b) = (random(tokens.len()), random(tokens.len()));
            match random(4) {
                0 => {
                    tokens.remove(a);
                }
                1 => tokens.insert(a, tokens[b]),
                2 => tokens.swap(a, b),
                _ => tokens[a] = tokens[b],
            }
        }
        let damaged = tokens.concat();
        let mut session = Session::new();
        if let Ok(module) = session.load_text("damaged.tess", &damaged) {
            let _ = session.check(module);
        }
    }
}

/// Programs that would grow or nest without end are errors.
#[test]
fn growth_is_limited() {
    let kernel =
        "kernel k(x: view<f32>[n], y: out view<f32>[n]) grid (i in n) { y[i] = step0(x[i]); }";
    for body in [
        "step{next}(x)",
        "step{next}(x) + step{next}(x)",
        "select(x > 0.0, (if x < 0.0 { x } else { max(step{next}(x), 1.0) }), 2.0)",
    ] {
        let mut text = String::new();
        for i in 0..5000 {
            text.push_str(&format!(
                "fn step{i}(x) = {};\n",
                body.replace("{next}", &(i + 1).to_string())
            ));
        }
        text.push_str("fn step5000(x) = x;\n");
        text.push_str(kernel);
        let mut session = Session::new();
        let module = session.load_text("grown.tess", &text).expect("it parses");
        let diagnostics = session
            .instantiate(module, "k", Target::ALL[0])
            .expect_err("too large");
        let codes: Vec<&str> = diagnostics.iter().map(|d| d.code.as_str()).collect();
        assert_eq!(codes, ["E0305"], "{diagnostics:?}");
        assert!(diagnostics.iter().all(|d| d.calls.len() <= 16));
    }
    let text = format!(
        "fn step0(x) {{ let mut s = x; for const a in 0..60000 {{ for const b in 0..60000 {{ s += 1.0; }} }} s }}\n{kernel}"
    );
    let mut session = Session::new();
    let module = session.load_text("grown.tess", &text).expect("it parses");
    let diagnostics = session
        .instantiate(module, "k", Target::ALL[0])
        .expect_err("too large");
    assert!(diagnostics.iter().all(|d| d.code.as_str() == "E0305"));
}

/// A fresh folder of these files.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    for (file, text) in files {
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    folder
}

#[test]
fn a_kernel_is_gathered_from_its_folder() {
    let kernel = "use parts::inner::twice;
        use parts;
        kernel k<B: int = 64>(x: view<f32>[n], y: out view<f32>[n]) grid (i in ceil_div(n, B)) {
            y[i*B +: B] = parts::once(twice(x[i*B +: B]));
        }";
    let folder = folder(
        "gathered",
        &[
            ("k.tess", kernel),
            (
                "k_schedules.tess",
                "schedule k { sm_80 { B: 32, warps: 2 }  specialize { n % B == 0 } }",
            ),
            (
                "k_sm_75.tess",
                "const TWO = 2.0;
                kernel k for sm_75 where n <= 64 grid (i in 1) { y[0 +: 64] = x[0 +: 64] * TWO; }",
            ),
            ("parts.tess", "fn once(v) = v;"),
            ("parts/inner.tess", "fn twice(v) = v * 2.0;"),
            // Mentions a kernel of this name, is broken, and is nobody's business here.
            (
                "other.tess",
                "use nowhere::f; kernel k() grid () { } schedule k { sm_80 { warps: 99 } }",
            ),
            ("broken.tess", "kernel k schedule k ((("),
        ],
    );
    let mut session = Session::new();
    let module = session
        .load(&folder.join("k.tess"), Some(&folder))
        .expect("it loads");
    assert!(session.check(module).is_empty());
    let bodies = |target: &str| {
        let target = Target::parse(target).expect("a target");
        session
            .instantiate(module, "k", target)
            .expect("it instantiates")
            .bodies
    };
    let (old, new) = (bodies("sm_75"), bodies("sm_80"));
    assert_eq!(
        (old.len(), new.len()),
        (4, 2),
        "a body of its own, and each specialised"
    );
    assert_eq!(old[0].header.facts.len(), 2);
    assert_eq!(old[2].header.facts.len(), 1, "what its `where` says");
    assert_eq!(new[0].header.schedule.warps, Some(2));
    let names: Vec<&str> = session
        .sources()
        .files()
        .map(|(_, f)| f.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "k.tess",
            "parts/inner.tess",
            "parts.tess",
            "k_schedules.tess",
            "k_sm_75.tess"
        ]
    );
    // Every text that was used counts.
    let hash = session.source_hash(module);
    assert_eq!(hash.len(), 64);
    std::fs::write(folder.join("parts/inner.tess"), "fn twice(v) = v + v;").expect("a file");
    let mut again = Session::new();
    let module = again
        .load(&folder.join("k.tess"), Some(&folder))
        .expect("it loads");
    assert_ne!(again.source_hash(module), hash);
    // The schedules' file by itself knows its kernel.
    let module = again
        .load(&folder.join("k_schedules.tess"), None)
        .expect("it loads");
    assert!(again.check(module).is_empty());
}

#[test]
fn files_that_cannot_be_read_are_errors() {
    let folder = folder(
        "unreadable",
        &[("a.tess", "use b::f;"), ("c.tess", "use std::nothing;")],
    );
    std::fs::write(folder.join("b.tess"), [0xff, 0xfe]).expect("a file");
    let mut session = Session::new();
    for (file, text) in [
        ("a.tess", "is not UTF-8"),
        ("c.tess", "the standard library has no module `nothing`"),
        ("d.tess", "`"),
    ] {
        let diagnostics = session.load(&folder.join(file), None).expect_err(file);
        assert!(
            diagnostics.iter().any(|d| d.title.contains(text)),
            "{diagnostics:?}"
        );
    }
    // What is mended is read anew.
    std::fs::write(folder.join("b.tess"), "fn f(x) = x;").expect("a file");
    assert!(session.load(&folder.join("a.tess"), None).is_ok());
}
