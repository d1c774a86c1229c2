//! Names, types, instances, passes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tesserine_robustness::Target;

fuzz_target!(|bytes: &[u8]| Target::Check.run(bytes));
