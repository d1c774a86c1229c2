//! The command line as a script sees it: exit codes, what goes to stdout and what to stderr, the fields of `--json`.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn tess() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tess"));
    command
        .current_dir(root())
        .env_remove("TESSERINE_SETS")
        .env_remove("XDG_DATA_HOME");
    command
}

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn run(args: &[&str]) -> Ran {
    ran(tess().args(args).output().unwrap())
}

const RMSNORM: &str = "kernels-dsl/norm/rmsnorm.tess";

fn run_rmsnorm(more: &[&str]) -> Ran {
    let mut args = vec![
        "run",
        RMSNORM,
        "rmsnorm<bf16>",
        "--arg",
        "x=randn:bf16[3,70]",
        "--arg",
        "weight=uniform:bf16[70]",
        "--arg",
        "eps=1e-6",
    ];
    args.extend_from_slice(more);
    run(&args)
}

/// Every key of every object in `value`.
fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                found.insert(key.clone());
                keys(value, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

/// The output parses, and docs/cli.md names each of its fields under the command's heading.
fn documented(command: &str, json: &str) -> Value {
    let value: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {json}"));
    let page = std::fs::read_to_string(root().join("docs/cli.md")).unwrap();
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with(&format!("`tess {command}")))
        .unwrap_or_else(|| panic!("docs/cli.md has no section on `tess {command}`"));
    let names: BTreeSet<&str> = section
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    let mut found = BTreeSet::new();
    keys(&value, &mut found);
    for key in found {
        assert!(
            names.contains(key.as_str()),
            "docs/cli.md does not name `{key}` under `tess {command}`"
        );
    }
    value
}

fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn wrong_command_lines_exit_with_2() {
    for args in [
        &["frobnicate"][..],
        &["check"],
        &["explain", "E9999"],
        &["run", RMSNORM, "rmsnorm<bf16>", "--tol", "1,1"],
        &["run", RMSNORM, "rmsnorm<bf16>", "--device", "tpu"],
        &["run", RMSNORM, "rmsnorm<bf16>", "--device", "all"],
        &[
            "run",
            RMSNORM,
            "rmsnorm<bf16>",
            "--device",
            "emulator:sm_10",
        ],
        &["test", RMSNORM, "--device", "emulator:"],
        &["test", RMSNORM, "--against", "emulator"],
        &[
            "test",
            RMSNORM,
            "--device",
            "emulator",
            "--against",
            "interp",
        ],
        &["run", RMSNORM, "rmsnorm<bf16>", "--arg", "x"],
        &["run", RMSNORM, "rmsnorm<bf16>", "--arg", "y=1"],
        &["run", RMSNORM, "rmsnorm<bf16>", "--out", "out=bf99[3]"],
        &["emit", RMSNORM, "rmsnorm<bf16>", "--target", "sm_10"],
        &["emit", RMSNORM, "rmsnorm<bf16>", "--stage", "wasm"],
        &["emit", RMSNORM, "rmsnorm<bf16>", "--dump-after", "nothing"],
        #[cfg(feature = "llvm")]
        &["build", "--target", "sm_10"],
    ] {
        let ran = run(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with("error: "), "{args:?}: {}", ran.err);
        assert_eq!(ran.out, "", "{args:?}");
    }
}

#[test]
fn missing_files_are_named() {
    for args in [
        &["check", "no/such.tess"][..],
        &["emit", "no/such.tess", "k"],
        &["run", "no/such.tess", "k"],
        #[cfg(feature = "llvm")]
        &["build", "no/such.toml"],
        &["list-modules", "no/such.tset"],
    ] {
        let ran = run(args);
        assert_eq!(ran.code, Some(1), "{args:?}: {}", ran.err);
        assert!(ran.err.contains("no/such."), "{args:?}: {}", ran.err);
    }
}

#[test]
fn help_and_version_succeed() {
    for args in [
        &["--help"][..],
        &["--version"],
        &["run", "--help"],
        &["build", "-h"],
    ] {
        let ran = run(args);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{args:?}");
        assert!(!ran.out.is_empty(), "{args:?}");
    }
}

#[test]
fn explain_prints_a_page() {
    let ran = run(&["explain", "e0010"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.out.contains("E0010"), "{}", ran.out);
    let all = run(&["explain"]).out;
    assert!(all.lines().count() > 3, "{all}");
}

#[test]
fn check_reports_and_exits_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let bad = file(
        folder.path(),
        "bad.tess",
        "kernel k(x: view<f32>[n], y: out view<f32>[n])\ngrid (i in n)\n{\n    y[i] = z;\n}\n",
    );
    let ran = run(&["check", &bad]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("bad.tess:4:12"), "{}", ran.err);
    assert!(!ran.err.contains('\u{1b}'), "colour without a terminal");

    let ran = run(&["check", "--json", &bad, RMSNORM]);
    assert_eq!(ran.code, Some(1));
    let value = documented("check", &ran.out);
    assert_eq!(value["errors"], 1);
    let first = &value["diagnostics"][0];
    assert_eq!((&first["line"], &first["column"]), (&4.into(), &12.into()));
    assert_eq!(first["severity"], "error");

    let ran = run(&["check", RMSNORM]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
}

#[test]
fn the_interpreter_runs_and_saves() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let ran = run_rmsnorm(&[
        "--out",
        "out=bf16[3,70]",
        "--check",
        "--save",
        out,
        "--json",
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let value = documented("run", &ran.out);
    assert_eq!(value["outputs"][0]["name"], "out");
    assert_eq!(value["outputs"][0]["unwritten"], 0);
    assert_eq!(value["check"]["passed"], true);
    // What was saved can be passed again.
    let saved = folder.path().join("out.npy");
    let x = format!("x=@{}", saved.display());
    let ran = run(&[
        "run",
        RMSNORM,
        "rmsnorm<bf16>",
        "--arg",
        &x,
        "--arg",
        "weight=uniform:bf16[70]",
        "--arg",
        "eps=0",
        "--out",
        "out=bf16[3,70]",
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("out"), "{}", ran.out);
}

#[test]
fn wrong_arguments_are_named() {
    for (more, part) in [
        (&[][..], "`out`"),
        (&["--out", "out=bf16[3,71]"], "`out`"),
        (&["--out", "out=f16[3,70]"], "`out`"),
        (
            &["--out", "out=bf16[3,70]", "--arg", "x=randn:bf16[3,70]"],
            "`x`",
        ),
        (
            &["--out", "out=bf16[3,70]", "--out", "weight=bf16[70]"],
            "`weight`",
        ),
        (&["--out", "out=bf16[3,70]", "--arg", "width=3"], "`width`"),
        (&["--out", "out=bf17[3,70]"], "--out out"),
        (&["--arg", "scale=1e999"], "--arg scale"),
    ] {
        let ran = run_rmsnorm(more);
        assert!(matches!(ran.code, Some(1 | 2)), "{more:?}: {}", ran.err);
        assert!(ran.err.contains(part), "{more:?}: {}", ran.err);
    }
}

#[test]
fn tensors_may_be_empty() {
    let ran = run(&[
        "run",
        RMSNORM,
        "rmsnorm<bf16>",
        "--arg",
        "x=randn:bf16[0,70]",
        "--arg",
        "weight=uniform:bf16[70]",
        "--arg",
        "eps=1e-6",
        "--out",
        "out=bf16[0,70]",
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("no elements"), "{}", ran.out);
}

#[test]
fn files_beside_are_not_reported_on() {
    let folder = tempfile::tempdir().unwrap();
    let good = "kernel k(y: out view<f32>[n]) grid (i in n) { y[i] = 1.0; }\n";
    let path = file(folder.path(), "good.tess", good);
    // A kernel of the same name, in files of its own, with errors of its own.
    file(
        folder.path(),
        "bad.tess",
        "use bad::{f};\nfn f16(x) = x;\nkernel k(y: out view<f32>[n]) grid (i in n) { y[0] = z; }\n",
    );
    let ran = run(&["check", &path]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    // What is attached to this file's kernel is.
    file(
        folder.path(),
        "plan.tess",
        "use nowhere::{f};\nschedule k { sm_80 { warps: 4 } }\n",
    );
    let ran = run(&["check", &path]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("plan.tess"), "{}", ran.err);
}

#[test]
fn sources_with_carriage_returns_are_shown_without() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(
        folder.path(),
        "crlf.tess",
        "kernel k(y: out view<f32>[n])\r\ngrid (i in n)\r\n{\r\n    y[i] = q;\r\n}\r\n",
    );
    let ran = run(&["check", &path]);
    assert!(ran.err.contains("4 |     y[i] = q;\n"), "{}", ran.err);
}

#[test]
fn unwritten_elements_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let half = file(
        folder.path(),
        "half.tess",
        "kernel half(x: view<f32>[n], y: out view<f32>[n])\ngrid (i in n / 2)\n{\n    y[i] = x[i];\n}\n",
    );
    let ran = run(&[
        "run",
        &half,
        "half",
        "--arg",
        "x=arange:f32[9]",
        "--out",
        "y=f32[9]",
    ]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(
        ran.err.contains("`y`") && ran.err.contains('5'),
        "{}",
        ran.err
    );
}

#[test]
fn every_stage_without_code_generation_is_printed() {
    for stage in ["ast", "ir", "roles", "role-ir", "layout"] {
        let ran = run(&["emit", RMSNORM, "rmsnorm<bf16>", "--stage", stage]);
        assert_eq!(ran.code, Some(0), "{stage}: {}", ran.err);
        assert!(ran.out.contains("rmsnorm"), "{stage}: {}", ran.out);
    }
    let special = run(&["emit", RMSNORM, "rmsnorm<bf16>", "--stage", "ir"]).out;
    let general = run(&[
        "emit",
        RMSNORM,
        "rmsnorm<bf16>",
        "--stage",
        "ir",
        "--general",
    ])
    .out;
    assert_ne!(special, general);
}

#[test]
fn a_closed_pipe_ends_in_silence() {
    let mut child = tess()
        .args(["emit", RMSNORM, "rmsnorm<bf16>", "--stage", "layout"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = ran(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
}

#[test]
fn config_is_shown() {
    let ran = run(&["show-config", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let value = documented("show-config", &ran.out);
    assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(value["llvm"].is_null(), !cfg!(feature = "llvm"));
    assert_eq!(run(&["show-config"]).code, Some(0));
}

#[test]
fn damaged_sets_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let set = file(folder.path(), "bad.tset", "this is no kernel set");
    let ran = run(&["list-modules", &set]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("bad.tset"), "{}", ran.err);
}

#[cfg(not(feature = "llvm"))]
#[test]
fn without_llvm_code_generation_says_so() {
    for args in [
        &["emit", RMSNORM, "rmsnorm<bf16>", "--stage", "ptx"][..],
        &["build"],
        &["run", RMSNORM, "rmsnorm<bf16>", "--device", "cuda"],
        &["test", RMSNORM, "--device", "emulator"],
    ] {
        let ran = run(args);
        assert_eq!(ran.code, Some(1), "{args:?}: {}", ran.err);
        assert!(ran.err.contains("built without"), "{args:?}: {}", ran.err);
    }
}

#[cfg(feature = "llvm")]
mod with_llvm {
    use super::*;

    const AXPY: &str = "
name = \"one\"
targets = \"sm_80, sm_90a\"
[[kernel]]
source = \"axpy.tess\"
instances = [\"axpy<f16>\"]
";

    #[test]
    fn a_set_is_built_where_one_stands() {
        let folder = tempfile::tempdir().unwrap();
        let source = std::fs::read_to_string(root().join("kernels-dsl/basics/axpy.tess")).unwrap();
        file(folder.path(), "axpy.tess", &source);
        file(folder.path(), "one.toml", AXPY);
        file(
            folder.path(),
            "wrong.toml",
            &AXPY.replace("axpy<f16>", "axpy<f16, Z = 3>"),
        );
        let build = |toml: &str, output: &str| {
            let mut command = tess();
            command.current_dir(folder.path());
            command.args(["build", toml, "--emit", "ptx", "-o", output]);
            ran(command.output().unwrap())
        };
        // Names of sources are relative to the set's folder, however the set is named.
        let wrong = build("wrong.toml", "wrong.tset");
        assert_eq!(wrong.code, Some(1));
        assert!(wrong.err.contains("--> axpy.tess:"), "{}", wrong.err);
        // What is no file is written to, not replaced.
        let made = Command::new("mkfifo")
            .arg(folder.path().join("pipe"))
            .status();
        assert!(made.unwrap().success());
        let pipe = folder.path().join("pipe");
        let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
        assert_eq!(build("one.toml", "pipe").code, Some(0));
        let kind = std::fs::metadata(folder.path().join("pipe")).unwrap();
        assert!(!kind.is_file());
        assert_eq!(build("one.toml", "one.tset").code, Some(0));
        let bytes = std::fs::read(folder.path().join("one.tset")).unwrap();
        assert_eq!(reader.join().unwrap(), bytes);
    }

    #[test]
    fn a_set_is_built_listed_and_refused_when_cut() {
        let folder = tempfile::tempdir().unwrap();
        let source = std::fs::read_to_string(root().join("kernels-dsl/basics/axpy.tess")).unwrap();
        file(folder.path(), "axpy.tess", &source);
        let toml = file(folder.path(), "one.toml", AXPY);
        let set = folder.path().join("one.tset");
        let set = set.to_str().unwrap();
        let out = folder.path().join("out");
        let ran = run(&[
            "build",
            &toml,
            "--emit",
            "ptx",
            "-o",
            set,
            "--out-dir",
            out.to_str().unwrap(),
            "--json",
        ]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let value = documented("build", &ran.out);
        let bodies = value["bodies"].as_array().unwrap();
        let names: Vec<_> = bodies
            .iter()
            .map(|b| (b["kernel"].as_str().unwrap(), b["target"].as_str().unwrap()))
            .collect();
        assert!(
            names.contains(&("axpy<f16>", "sm_80")) && names.contains(&("axpy<f16>", "sm_90a"))
        );
        let mut files: Vec<String> = std::fs::read_dir(&out)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        assert_eq!(
            files,
            [
                "axpy<f16>.sm_80.general.ptx",
                "axpy<f16>.sm_80.ptx",
                "axpy<f16>.sm_90a.general.ptx",
                "axpy<f16>.sm_90a.ptx"
            ]
        );

        let ran = run(&["list-modules", "--detailed", "--json", set]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let value = documented("list-modules", &ran.out);
        assert_eq!(value["sets"][0]["kernels"][0]["name"], "axpy<f16>");
        let text = run(&["list-modules", "--detailed", set]).out;
        assert!(text.contains("x: view<f16>[n]"), "{text}");
        let found = ran_with_sets(folder.path());
        assert!(found.contains("axpy<f16>"), "{found}");

        let bytes = std::fs::read(set).unwrap();
        std::fs::write(set, &bytes[..bytes.len() / 2]).unwrap();
        assert_eq!(run(&["list-modules", set]).code, Some(1));
    }

    fn ran_with_sets(folder: &Path) -> String {
        let output = tess()
            .env("TESSERINE_SETS", folder)
            .arg("list-modules")
            .output()
            .unwrap();
        ran(output).out
    }

    #[test]
    fn ptx_is_printed_for_every_target() {
        for target in ["sm_75", "sm_90a", "sm_121a"] {
            let ran = run(&[
                "emit",
                "kernels-dsl/basics/axpy.tess",
                "axpy<bf16>",
                "--target",
                target,
                "--stage",
                "ptx",
            ]);
            assert_eq!(ran.code, Some(0), "{}", ran.err);
            assert!(
                ran.out.contains(&format!(".target {target}")),
                "{}",
                ran.out
            );
        }
    }

    #[test]
    fn kernels_run_on_the_emulator() {
        let ran = super::run_rmsnorm(&[
            "--out",
            "out=bf16[3,70]",
            "--device",
            "emulator:sm_80",
            "--check",
            "--json",
        ]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let value = documented("run", &ran.out);
        assert_eq!(value["device"], "emulator:sm_80");
        assert_eq!(value["target"], "sm_80");
        assert_eq!(value["check"]["passed"], true);
    }

    #[test]
    fn tests_run_on_every_emulator() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.tess"), TESTED).unwrap();
        let at = |args: &[&str]| {
            let output = tess()
                .current_dir(folder.path())
                .arg("test")
                .args(args)
                .output();
            super::ran(output.unwrap())
        };
        let all = at(&["--device", "all"]);
        assert_eq!(all.code, Some(0), "{}{}", all.out, all.err);
        for target in ["sm_75", "sm_89", "sm_90a", "sm_121a"] {
            for text in [
                format!("running 2 tests on emulator:{target}\n"),
                format!("test result on emulator:{target}: ok. 2 passed; 0 failed;"),
            ] {
                assert!(all.out.contains(&text), "`{text}` in {}", all.out);
            }
        }
        assert_eq!(all.out.matches("test result").count(), 10);
        let two = at(&["--device", "emulator:sm_80", "--against", "emulator:sm_90a"]);
        assert_eq!(two.code, Some(0), "{}{}", two.out, two.err);
        let text = "emulator:sm_80 against emulator:sm_90a: 1 launches equal to the bit, 0 within";
        assert!(two.out.contains(text), "{}", two.out);
    }

    #[test]
    fn promises_are_checked_on_the_emulator() {
        let folder = tempfile::tempdir().unwrap();
        let source = file(
            folder.path(),
            "promises.tess",
            "kernel place(slot: view<i32>[n], x: view<f32>[n], y: mut view<f32>[m]) grid (i in ceil_div(n, 64)) {
    scatter y[load(slot[i*64 +: 64], pad = -1)] = x[i*64 +: 64];
}
kernel look(p: view<i32>[n] sorted, x: view<f32>[n], y: out view<f32>[n]) grid (i in ceil_div(n, 64)) {
    y[i*64 +: 64] = x[i*64 +: 64] + p[i*64 +: 64] as f32;
}
",
        );
        let at = |kernel: &str, args: &[&str]| {
            let mut command = vec!["run", &source, kernel, "--device", "emulator:sm_80"];
            for arg in args {
                command.extend(["--arg", arg]);
            }
            if kernel == "look" {
                command.extend(["--out", "y=f32[200]"]);
            }
            run(&command)
        };
        let (x, y) = ("x=randn:f32[200]", "y=zeros:f32[300]");
        let good = at("place", &["slot=arange:i32[200]", x, y]);
        assert_eq!(good.code, Some(0), "{}", good.err);
        // Every element goes to the first: threads of one warp, of others and of other blocks.
        let bad = at("place", &["slot=zeros:i32[200]", x, y]);
        assert_eq!(bad.code, Some(1), "{}", bad.out);
        for part in ["`place`", "emulator:sm_80", "promises.tess:2:", "st.global"] {
            assert!(bad.err.contains(part), "`{part}` in {}", bad.err);
        }
        let good = at("look", &["p=arange:i32[200]", x]);
        assert_eq!(good.code, Some(0), "{}", good.err);
        let bad = at("look", &["p=uniform:i32[200]", x]);
        assert_eq!(bad.code, Some(1), "{}", bad.out);
        assert!(bad.err.contains("`p` is declared `sorted`"), "{}", bad.err);
    }

    #[test]
    fn a_gpu_is_optional() {
        let ran = super::run_rmsnorm(&["--out", "out=bf16[3,70]", "--device", "cuda:63"]);
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert!(ran.err.starts_with("error: "), "{}", ran.err);
    }
}

#[test]
fn fmt_writes_and_checks() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let (loose, broken) = (inner.join("a.tess"), folder.path().join("b.tess"));
    std::fs::write(&loose, "fn f( x )=x ;   // kept\n").unwrap();
    std::fs::write(folder.path().join("c.txt"), "fn  f").unwrap();
    let path = folder.path().to_str().unwrap();

    let checked = run(&["fmt", "--check", path]);
    assert_eq!(checked.code, Some(1));
    assert!(
        checked.out.ends_with("a.tess:1 is not formatted\n"),
        "{}",
        checked.out
    );
    let text = std::fs::read_to_string(&loose).unwrap();
    assert!(text.starts_with("fn f( x )"), "--check writes nothing");

    assert_eq!(run(&["fmt", path]).code, Some(0));
    let text = std::fs::read_to_string(&loose).unwrap();
    assert_eq!(text, "fn f(x) = x;  // kept\n");
    assert_eq!(run(&["fmt", "--check", path]).code, Some(0));

    std::fs::write(&broken, "fn f( = 1;\n").unwrap();
    let failed = run(&["fmt", path]);
    assert_eq!(failed.code, Some(1));
    assert!(failed.err.contains("E0002"), "{}", failed.err);
    assert_eq!(std::fs::read_to_string(&broken).unwrap(), "fn f( = 1;\n");
    assert_eq!(run(&["fmt", "no-such-folder"]).code, Some(1));
}

#[test]
fn fmt_is_a_filter() {
    let mut child = tess()
        .args(["fmt", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"const  N=4 ;").unwrap();
    let ran = ran(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "const N = 4;\n"));
}

const TESTED: &str = "
kernel double(x: view<f32>[n], y: out view<f32>[n]) grid (i in ceil_div(n, 64)) { y[i*64 +: 64] = x[i*64 +: 64] * 2.0; }
test right { let x = randn(f32, [70]); let y = empty(f32, [70]); launch double(x, y); expect(y, equal = x + x); }
test also_right { expect(1 + 1, equal = 2); }
";

#[test]
fn tests_are_run_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("inner")).unwrap();
    std::fs::write(folder.path().join("inner/a.tess"), TESTED).unwrap();
    std::fs::write(
        folder.path().join("b.tess"),
        "test wrong { expect(1, equal = 2); }",
    )
    .unwrap();
    let at = |args: &[&str]| {
        ran(tess()
            .current_dir(folder.path())
            .arg("test")
            .args(args)
            .output()
            .unwrap())
    };
    let all = at(&[]);
    assert_eq!(all.code, Some(1), "{}", all.err);
    for part in [
        "running 3 tests",
        "test b.tess::wrong ... FAILED",
        "test inner/a.tess::right ... ok",
        "---- b.tess::wrong ----",
        "E0810",
        "b.tess:1:21",
        "test result: FAILED. 2 passed; 1 failed; 0 filtered out; finished in ",
    ] {
        assert!(all.out.contains(part), "`{part}` in {}", all.out);
    }
    let some = at(&["inner", "--filter", "also", "--jobs", "1"]);
    assert_eq!(some.code, Some(0), "{}{}", some.out, some.err);
    assert!(
        some.out
            .contains("test result: ok. 1 passed; 0 failed; 1 filtered out; finished in ")
    );
    assert_eq!(at(&["--device", "abacus"]).code, Some(2));
    assert_eq!(at(&["--set", "x.tset"]).code, Some(2));
    assert_eq!(at(&["nowhere.tess"]).code, Some(1));
    // A file that does not parse fails the command; the tests of others run.
    std::fs::write(folder.path().join("c.tess"), "test {").unwrap();
    let broken = at(&["c.tess", "inner/a.tess"]);
    assert_eq!(broken.code, Some(1));
    assert!(broken.out.contains("2 passed; 0 failed"), "{}", broken.out);
    assert!(broken.err.contains("c.tess:1:"), "{}", broken.err);
}

#[cfg(feature = "llvm")]
#[test]
fn what_tests_launch_goes_into_a_set() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.tess"), TESTED).unwrap();
    let built = ran(tess()
        .current_dir(folder.path())
        .args([
            "build",
            "--tests",
            ".",
            "--target",
            "sm_80",
            "--emit",
            "ptx",
            "-o",
            "tests.tset",
        ])
        .output()
        .unwrap());
    assert_eq!(built.code, Some(0), "{}", built.err);
    let listed = ran(tess()
        .current_dir(folder.path())
        .args(["list-modules", "tests.tset"])
        .output()
        .unwrap());
    assert!(listed.out.contains("double"), "{}", listed.out);
}
