//! `tess explain`: the page of an error code.

use tesserine_compiler::diagnostics::codes;

use crate::{
    args::Explain,
    failure::Failure,
    terminal::{self, say},
};

pub fn run(args: &Explain) -> Result<(), Failure> {
    let Some(code) = &args.code else {
        for (code, summary, _) in codes::ALL {
            say!("{code}  {summary}");
        }
        return Ok(());
    };
    match codes::explain(code) {
        Some(page) => terminal::print(format_args!("{}\n", page.trim_end())),
        None => Err(Failure::Usage(format!(
            "there is no error code `{code}`; `tess explain` lists all"
        ))),
    }
}
