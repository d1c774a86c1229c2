//! `tess check`: every diagnostic of source files.

use serde_json::{Value, json};
use tesserine_compiler::{
    Session,
    diagnostics::{self, Diagnostics, Severity},
};

use crate::{
    args::Check,
    failure::{Failure, report},
    source, terminal,
};

pub fn run(args: &Check) -> Result<(), Failure> {
    let mut session = Session::new();
    let mut all = Diagnostics::default();
    for path in &args.files {
        source::readable(path)?;
        match session.load(path, None) {
            Ok(module) => all.extend(session.check(module)),
            Err(diagnostics) => all.extend(diagnostics),
        }
    }
    let count = |severity: Severity| all.iter().filter(|d| d.severity == severity).count();
    if args.json {
        let list: Vec<Value> = all
            .iter()
            .map(|d| diagnostics::to_json(d, session.sources()))
            .collect();
        terminal::json(&json!({
            "errors": count(Severity::Error),
            "warnings": count(Severity::Warning),
            "diagnostics": list,
        }))?;
    } else {
        report(&all, session.sources());
    }
    if all.has_errors() {
        Err(Failure::Reported)
    } else {
        Ok(())
    }
}
