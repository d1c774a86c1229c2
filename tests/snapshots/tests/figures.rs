//! Registers, spills, shared memory and a hash of the PTX of every body in the default set, as the pinned `ptxas` sees them.

use std::{collections::BTreeMap, fmt::Write};

use sha2::{Digest, Sha256};
use tesserine_compiler::{
    Session, diagnostics,
    emit::{
        ptxas::Ptxas,
        set::{self, Body, BuildError},
    },
};
use tesserine_snapshots::{default_set, kernel_name, root, snapshot};

/// The version whose figures the snapshots hold.
const PINNED: &str = "13.0.88";

fn pinned() -> Ptxas {
    let path = root().join(format!("target/tools/ptxas-{PINNED}/nvidia/cu13/bin/ptxas"));
    let ptxas = Ptxas::at(path)
        .or_else(|_| Ptxas::find())
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        ptxas.version(),
        PINNED,
        "the figures are those of ptxas {PINNED}: `cargo xtask setup` installs it"
    );
    ptxas
}

fn line(body: &Body) -> String {
    let resources = body.resources.expect("ptxas ran");
    let hash = Sha256::digest(body.ptx.as_bytes());
    let hash: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{:<32} {:<8} {:<7} {:>9} {:>6} {:>6}  {hash}\n",
        body.kernel,
        body.target.name(),
        body.label(),
        resources.registers,
        resources.spill_store_bytes + resources.spill_load_bytes,
        resources.shared_bytes,
    )
}

#[test]
fn every_body_is_assembled_without_spills() {
    let set = default_set();
    let mut session = Session::new();
    let built = match set::build(&mut session, &set, Some(&pinned()), &|_, _| ()) {
        Ok(built) => built,
        Err(BuildError::Diagnostics(list)) => {
            let text: Vec<String> = list
                .iter()
                .map(|d| diagnostics::render(d, session.sources(), false))
                .collect();
            panic!("{}", text.join("\n"))
        }
        Err(error) => panic!("{error}"),
    };
    let mut tables: BTreeMap<String, String> = BTreeMap::new();
    let mut bad = String::new();
    for body in &built.bodies {
        let table = tables
            .entry(kernel_name(&body.kernel).to_owned())
            .or_insert_with(|| {
                format!(
                    "{:<32} {:<8} {:<7} registers spills shared  PTX\n",
                    "instance", "target", "body"
                )
            });
        table.push_str(&line(body));
        let resources = body.resources.expect("ptxas ran");
        if resources.spill_store_bytes + resources.spill_load_bytes > 0 {
            writeln!(bad, "{} for {} spills", body.kernel, body.target.name()).unwrap();
        }
        for loss in &body.losses {
            writeln!(bad, "{} for {}: {loss}", body.kernel, body.target.name()).unwrap();
        }
    }
    for (kernel, table) in &tables {
        snapshot("figures", kernel, table);
    }
    assert_eq!(bad, "");
}

#[test]
fn the_set_is_the_same_from_run_to_run() {
    let mut set = default_set();
    set.retarget(&[tesserine_snapshots::target()]);
    let bytes = |_: u32| {
        let mut session = Session::new();
        set::build(&mut session, &set, None, &|_, _| ())
            .unwrap_or_else(|error| panic!("{error}"))
            .bytes
    };
    assert!(bytes(0) == bytes(1), "two builds of one set differ");
}
