//! Texts, launches and arguments that nobody means: whatever comes, there is an error or a result, in bounded time, and no panic.
//!
//! Real texts are changed at random places by bytes, lines, words and numbers. A failure names the text and the seed, which give the same
//! change again.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use tesserine_emulator::{
    FaultKind, Launch, LoadError, Memory, Module, Options,
    target::{TARGETS, Target},
};

/// Name, text, threads of a block and blocks of a cluster.
const TEXTS: [(&str, &str, u32, u32); 7] = [
    ("families", include_str!("hostile/families.ptx"), 128, 1),
    (
        "grouped_gemm",
        include_str!("hostile/grouped_gemm.ptx"),
        256,
        1,
    ),
    ("hopper", include_str!("hostile/hopper.ptx"), 160, 1),
    (
        "normalise_rows",
        include_str!("hostile/normalise_rows.ptx"),
        32,
        1,
    ),
    ("number", include_str!("hostile/number.ptx"), 32, 1),
    ("softmax", include_str!("hostile/softmax.ptx"), 256, 1),
    ("together", include_str!("hostile/together.ptx"), 32, 4),
];

/// SplitMix64: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

const NUMBERS: [&str; 20] = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "16",
    "31",
    "32",
    "33",
    "255",
    "1024",
    "65535",
    "65536",
    "0x7fffffff",
    "0x80000000",
    "0xffffffff",
    "4294967296",
    "0x7fffffffffffffff",
    "0xffffffffffffffff",
];

const WORDS: [&str; 24] = [
    "%r0",
    "%rd0",
    "%p1",
    "%h0",
    "%f1",
    "_",
    "{}",
    "{%r1, %r2}",
    "[%rd1]",
    "[%r3+4]",
    "[]",
    "!%p1",
    "%r1|%p2",
    "%tid.x",
    "%clock64",
    "0f7FC00000",
    "0d7FF0000000000000",
    "-",
    "\"",
    ";",
    "//",
    "/*",
    ".reg .b32 %r<5>",
    "@%p1",
];

/// Where words of a line begin and end: runs of letters, digits, `%`, `_` and `$`.
fn words(line: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut start = None;
    for (at, byte) in line.bytes().chain([b' ']).enumerate() {
        let inside = byte.is_ascii_alphanumeric() || matches!(byte, b'%' | b'_' | b'$');
        match (inside, start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                found.push((from, at));
                start = None;
            }
            _ => {}
        }
    }
    found
}

fn mutate(text: &str, random: &mut Random) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..1 + random.below(2) {
        if lines.is_empty() {
            break;
        }
        let at = random.below(lines.len());
        let other = random.below(lines.len());
        match random.below(20) {
            0 => {
                let mut bytes = lines[at].clone().into_bytes();
                let place = random.below(bytes.len() + 1);
                let byte = b' ' + random.below(95) as u8;
                match random.below(3) {
                    0 => bytes.insert(place, byte),
                    1 if place < bytes.len() => bytes[place] = byte,
                    _ if place < bytes.len() => drop(bytes.remove(place)),
                    _ => {}
                }
                lines[at] = String::from_utf8_lossy(&bytes).into_owned();
            }
            1 | 12 | 13 => drop(lines.remove(at)),
            2 => {
                let line = lines[at].clone();
                lines.insert(other, line);
            }
            3 => lines.swap(at, other),
            4 => lines.truncate(at.max(1)),
            14.. => {
                // A register for another of its class.
                let class = |word: &str| {
                    word.trim_end_matches(|c: char| c.is_ascii_digit())
                        .to_owned()
                };
                let found = words(&lines[at]);
                let found: Vec<_> = found
                    .into_iter()
                    .filter(|(from, _)| lines[at][*from..].starts_with('%'))
                    .collect();
                if found.is_empty() {
                    continue;
                }
                let (from, to) = random.of(&found);
                let mine = class(&lines[at][from..to]);
                let theirs: Vec<String> = lines
                    .iter()
                    .flat_map(|l| words(l).into_iter().map(|(a, b)| l[a..b].to_owned()))
                    .filter(|w| class(w) == mine && *w != mine)
                    .collect();
                if !theirs.is_empty() {
                    let with = theirs[random.below(theirs.len())].clone();
                    lines[at].replace_range(from..to, &with);
                }
            }
            kind => {
                let found = words(&lines[at]);
                if found.is_empty() {
                    continue;
                }
                let numbers: Vec<_> = found
                    .iter()
                    .copied()
                    .filter(|(from, _)| lines[at].as_bytes()[*from].is_ascii_digit())
                    .collect();
                let (from, to) = match kind {
                    5..=7 if !numbers.is_empty() => random.of(&numbers),
                    _ => random.of(&found),
                };
                let with = match kind {
                    5..=7 => random.of(&NUMBERS).to_owned(),
                    8 => random.of(&WORDS).to_owned(),
                    _ => {
                        let theirs = words(&lines[other]);
                        match theirs.is_empty() {
                            true => String::new(),
                            false => {
                                let (from, to) = random.of(&theirs);
                                lines[other][from..to].to_owned()
                            }
                        }
                    }
                };
                lines[at].replace_range(from..to, &with);
            }
        }
    }
    lines.join("\n")
}

/// What became of a text.
#[derive(Default, Debug)]
struct Tally {
    refused: usize,
    faults: usize,
    ended: usize,
}

/// Loads a text, and launches its entries with arguments of all kinds.
fn try_text(
    text: &str,
    (block, cluster): (u32, u32),
    device: Target,
    random: &mut Random,
    tally: &mut Tally,
) {
    let module = match Module::load(text, device) {
        Ok(module) => module,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            tally.refused += 1;
            return;
        }
    };
    let memory = Memory::new();
    let buffers: Vec<u64> = (0..3)
        .map(|_| memory.allocate(1 << 16).expect("memory"))
        .collect();
    for entry in module.entries() {
        let argument = |random: &mut Random, bytes: u64, pointer: bool| -> Vec<u8> {
            let value = match random.below(12) {
                0..=7 if pointer => random.of(&buffers),
                0..=7 => 1 + random.below(100) as u64,
                8 => random.of(&buffers),
                9 => random.of(&buffers) + random.below(1 << 16) as u64,
                10 => random.next(),
                _ => random.next() >> random.below(64),
            };
            let mut argument = vec![0; bytes.min(1 << 16) as usize];
            for chunk in argument.chunks_mut(8) {
                let count = chunk.len();
                chunk.copy_from_slice(&value.to_le_bytes()[..count]);
            }
            argument
        };
        let head = text.split('{').next().unwrap_or_default();
        let pointers = head.split(".param").skip(1).map(|p| p.contains(".ptr"));
        let pointers = pointers.chain(std::iter::repeat(false));
        let parameters = entry.parameters.iter().zip(pointers);
        let arguments: Vec<Vec<u8>> = parameters
            .map(|((bytes, _), pointer)| argument(random, *bytes, pointer))
            .collect();
        let arguments: Vec<&[u8]> = arguments.iter().map(|a| &a[..]).collect();
        let cluster = random.of(&[cluster, cluster, cluster, 1, 2]);
        let others = random.of(&[32, 64, 128, 160, 256, 33, 1]);
        let launch = Launch {
            entry: &entry.name,
            grid: [cluster * random.of(&[1, 1, 2]), 1, 1],
            block: [random.of(&[block, block, block, others]), 1, 1],
            cluster: [cluster, 1, 1],
            shared_bytes: random.of(&[0, 1024, 20480, 20480, 40000]),
            arguments: &arguments,
        };
        let options = Options {
            step_limit: 5_000,
            check_races: random.below(4) > 0,
            workers: 1 + random.below(2),
            seed: random.next(),
        };
        match module.launch(&memory, &launch, &options) {
            Ok(report) => {
                tally.ended += 1;
                assert!(report.warp_instructions <= 5_000);
            }
            Err(fault) => {
                tally.faults += 1;
                assert!(!fault.to_string().is_empty());
            }
        }
    }
}

fn attack(seeds: std::ops::Range<u64>) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        for (name, text, block, cluster) in TEXTS {
            let mut random = Random(seed);
            let text = mutate(text, &mut random);
            let own = if text.contains("sm_90a") {
                "sm_90a"
            } else {
                "sm_80"
            };
            let device = match random.below(4) {
                0 => random.of(&TARGETS),
                _ => Target::named(own).expect("a target"),
            };
            let started = Instant::now();
            let run = || try_text(&text, (block, cluster), device, &mut random, &mut tally);
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                panic!("`{name}` with seed {seed} panics on {device}:\n{text}");
            }
            let took = started.elapsed();
            assert!(
                took < Duration::from_secs(30),
                "`{name}` with seed {seed} takes {took:?} on {device}:\n{text}"
            );
        }
    }
    tally
}

#[test]
fn changed_texts() {
    let tally = attack(0..150);
    // The changes are such that much is left to run.
    assert!(tally.ended + tally.faults > 60, "{tally:?}");
    assert!(tally.refused > 60, "{tally:?}");
}

#[test]
#[ignore = "minutes; EMULATOR_SEEDS says how many"]
fn many_changed_texts() {
    let seeds = std::env::var("EMULATOR_SEEDS")
        .ok()
        .and_then(|s| s.parse().ok());
    println!("{:?}", attack(1000..1000 + seeds.unwrap_or(3000)));
}

#[test]
fn unchanged_texts_load_for_their_targets() {
    for (name, text, block, cluster) in TEXTS {
        let own = if text.contains("sm_90a") {
            "sm_90a"
        } else {
            "sm_80"
        };
        let device = Target::named(own).expect("a target");
        if let Err(error) = Module::load(text, device) {
            panic!("{name}: {error}");
        }
        let mut tally = Tally::default();
        try_text(text, (block, cluster), device, &mut Random(1), &mut tally);
        assert_eq!(tally.ended + tally.faults, 1, "{name}");
    }
}

/// Runs one of the texts with two buffers.
fn run(text: &str, grid: u32, block: u32, more: &[&[u8]]) -> Result<(), tesserine_emulator::Fault> {
    let module = Module::load(text, Target::named("sm_90a").expect("a target"));
    let module = module.unwrap_or_else(|e: LoadError| panic!("{e}"));
    let memory = Memory::new();
    let buffer = || {
        let at = memory.allocate(1 << 14).expect("memory");
        memory.write(at, &[0; 1 << 14]).expect("memory");
        at.to_le_bytes()
    };
    let (a, b) = (buffer(), buffer());
    let arguments: Vec<&[u8]> = [&a[..], &b]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    let name = &module.entries()[0].name;
    let launch = Launch {
        entry: name,
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        cluster: [1, 1, 1],
        shared_bytes: 20480,
        arguments: &arguments,
    };
    let options = Options {
        step_limit: 100_000,
        ..Options::default()
    };
    module.launch(&memory, &launch, &options).map(drop)
}

#[test]
fn texts_written_for_this_run_clean() {
    let [families, hopper] = [TEXTS[0].1, TEXTS[2].1];
    if let Err(fault) = run(
        families,
        1,
        128,
        &[&3u32.to_le_bytes(), &1.5f32.to_le_bytes()],
    ) {
        panic!("{fault}");
    }
    // Both blocks store the same sums at one place, which is a race.
    let one = hopper.replace("[%rd1], [%r3+8192]", "[%rd3], [%r3+8192]");
    let one = one.replace(
        "\t@%p0 bra $end;\n\tcp.async",
        "\t@%p0 bra $end;\n\tmov.u32 %r20, %ctaid.x;\n\tmul.wide.u32 %rd3, %r20, 128;\n\tadd.s64 %rd3, %rd3, %rd1;\n\tcp.async",
    );
    if let Err(fault) = run(&one, 2, 160, &[&[0; 128]]) {
        panic!("{fault}");
    }
    let fault = run(hopper, 2, 160, &[&[0; 128]]).expect_err("a race");
    assert_eq!(fault.kind, FaultKind::Race, "{fault}");
}

#[test]
fn launches_that_cannot_be() {
    let text = TEXTS[0].1;
    let module = Module::load(text, Target::named("sm_90a").expect("a target")).expect("a module");
    let memory = Memory::new();
    let (a, b, c, d) = ([0; 8], [0; 8], [0; 4], [0; 4]);
    let right = Launch {
        entry: "families",
        grid: [1, 1, 1],
        block: [32, 1, 1],
        cluster: [1, 1, 1],
        shared_bytes: 0,
        arguments: &[&a, &b, &c, &d],
    };
    let wrong = [
        Launch {
            entry: "other",
            ..right.clone()
        },
        Launch {
            block: [0, 1, 1],
            ..right.clone()
        },
        Launch {
            block: [u32::MAX, u32::MAX, u32::MAX],
            ..right.clone()
        },
        Launch {
            block: [1025, 1, 1],
            ..right.clone()
        },
        Launch {
            grid: [u32::MAX, 1, 1],
            ..right.clone()
        },
        Launch {
            grid: [1, 65536, 1],
            ..right.clone()
        },
        Launch {
            cluster: [0, 1, 1],
            ..right.clone()
        },
        Launch {
            cluster: [2, 1, 1],
            ..right.clone()
        },
        Launch {
            grid: [32, 1, 1],
            cluster: [32, 1, 1],
            ..right.clone()
        },
        Launch {
            cluster: [u32::MAX, u32::MAX, u32::MAX],
            ..right.clone()
        },
        Launch {
            shared_bytes: 300_000,
            ..right.clone()
        },
        Launch {
            shared_bytes: u32::MAX,
            ..right.clone()
        },
        Launch {
            arguments: &[&a, &b, &c],
            ..right.clone()
        },
        Launch {
            arguments: &[&a, &b, &c, &a],
            ..right.clone()
        },
    ];
    for launch in wrong {
        let fault = module.launch(&memory, &launch, &Options::default());
        let fault = fault.expect_err("a launch that cannot be");
        assert_eq!(fault.kind, FaultKind::Operand, "{launch:?}: {fault}");
    }
    // An empty grid runs nothing; the largest one meets the limit.
    let empty = Launch {
        grid: [0, 1, 1],
        ..right.clone()
    };
    let report = module
        .launch(&memory, &empty, &Options::default())
        .expect("nothing");
    assert_eq!(report.warp_instructions, 0);
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n}\n";
    let module = Module::load(text, Target::named("sm_80").expect("a target")).expect("a module");
    let largest = Launch {
        entry: "k",
        grid: [i32::MAX as u32, 65535, 65535],
        arguments: &[],
        ..right
    };
    for workers in [1, 0] {
        let options = Options {
            step_limit: 1000,
            workers,
            ..Options::default()
        };
        let fault = module
            .launch(&memory, &largest, &options)
            .expect_err("too much");
        assert_eq!(fault.kind, FaultKind::StepLimit, "{fault}");
    }
}
