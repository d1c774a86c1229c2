//! Tokens, trees, printers, the formatter.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tesserine_robustness::Target;

fuzz_target!(|bytes: &[u8]| Target::Syntax.run(bytes));
