//! Random shapes, blocks, layouts and values against the interpreter.

use proptest::prelude::*;
use tesserine_conformance::{Case, Layout, Op, Tier, Values, Verdict, backend::Interpreter, check};
use tesserine_set::DType;

fn case() -> impl Strategy<Value = Case> {
    let op = prop::sample::select(&Op::ALL);
    let dtype = prop::sample::select(&[DType::F16, DType::Bf16, DType::F32]);
    let block = prop::sample::select(&[1u32, 7, 16, 48, 64, 128]);
    let layout =
        prop::sample::select(&[Layout::Tight, Layout::Padded, Layout::Odd, Layout::Shifted]);
    let values = prop::sample::select(&[Values::Normal, Values::Wide, Values::Special]);
    (op, dtype, block, 1usize..6, 1usize..300, layout, values).prop_map(
        |(op, dtype, block, rows, cols, layout, values)| Case {
            op,
            dtype,
            block: Some(block),
            rows,
            cols,
            layout,
            values,
            tier: Tier::Core,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_shape_agrees_with_the_reference(case in case()) {
        let mut interpreter = Interpreter::new().map_err(TestCaseError::fail)?;
        match check(&case, &mut interpreter) {
            Verdict::Passed(_) => {}
            Verdict::Skipped(why) | Verdict::Failed(why) => {
                return Err(TestCaseError::fail(format!("{case}: {why}")));
            }
        }
    }
}
