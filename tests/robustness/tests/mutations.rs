//! Mutated programs, few enough for CI; the binary `mutate` runs as many as wanted.

use std::{path::Path, sync::LazyLock};

use proptest::prelude::*;
use tesserine_robustness::{Corpus, Mutator, Target};

static CORPUS: LazyLock<Corpus> =
    LazyLock::new(|| Corpus::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")));

#[test]
fn the_corpus_serves_every_target() {
    for target in Target::ALL {
        let seeds = CORPUS.seeds(target);
        assert!(
            seeds.len() >= 10,
            "{}: {} seeds",
            target.name(),
            seeds.len()
        );
    }
}

#[test]
fn an_input_is_a_function_of_its_number() {
    let seeds = CORPUS.seeds(Target::Check);
    let (mut a, mut b) = (Mutator::new(seeds.clone()), Mutator::new(seeds));
    b.input(17);
    for number in 0..50 {
        assert_eq!(a.input(number), b.input(number));
    }
}

fn run(target: Target, number: u64) {
    target.run(&Mutator::new(CORPUS.seeds(target)).input(number));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn syntax(number: u64) {
        run(Target::Syntax, number);
    }

    #[test]
    fn check(number: u64) {
        run(Target::Check, number);
    }

    #[test]
    fn ir(number: u64) {
        run(Target::Ir, number);
    }

    #[test]
    fn interpret(number: u64) {
        run(Target::Interpret, number);
    }

    #[test]
    fn no_program_at_all(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for target in Target::ALL {
            target.run(&bytes);
        }
    }
}
