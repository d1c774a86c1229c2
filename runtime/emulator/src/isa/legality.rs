//! Which instructions exist where: the "PTX ISA Notes" and "Target ISA Notes" of each instruction of PTX ISA §9.7, as a table.
//!
//! A row names instructions by a pattern and says what they need; an instruction needs what each row says that fits it. What no row fits
//! exists since PTX 6.3 and sm_75, or is not known at all, which decoding says. Rows for what is older than that are there where it is cheap.
//!
//! Invariant: code that passes for its own `.target` passes for the device too, since [`Code::of`] admits only targets that run there.

use std::{collections::HashMap, sync::LazyLock};

use crate::{
    LoadError,
    ptx::{self, Operand},
    target::Target,
};

/// `.version 7.8` is (7, 8).
type Version = (u32, u32);

/// What a target must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// That SM or a later one.
    Sm(u32),
    /// The `a` target of just that SM.
    Exact(u32),
    /// The `f` target of that SM, or an `f` or `a` target of the same family that is not older.
    Family(u32),
}

use Need::{Exact, Family, Sm};

/// Instructions, and the ways to have them: one of them is enough.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Opcodes, parted by `|`; then conditions. A condition is alternatives parted by `|`, each a part of the instruction, or several parts
    /// that follow each other joined by dots; one after `!` must not hold. `#3` stands for instructions of three operands.
    pattern: &'static str,
    any: &'static [(Version, Need)],
}

const fn row(pattern: &'static str, any: &'static [(Version, Need)]) -> Row {
    Row { pattern, any }
}

/// sm_100a, sm_101a (sm_110a now) and sm_120a since PTX 8.6 and 8.7, and their families.
const BLACKWELL: &[(Version, Need)] = &[
    ((8, 6), Exact(100)),
    ((8, 6), Exact(110)),
    ((8, 7), Exact(120)),
    ((8, 8), Family(100)),
    ((8, 8), Family(110)),
    ((8, 8), Family(120)),
];

/// The same without sm_120a.
const TENSOR_MEMORY: &[(Version, Need)] = &[
    ((8, 6), Exact(100)),
    ((8, 6), Exact(110)),
    ((8, 8), Family(100)),
    ((8, 8), Family(110)),
];

/// What sm_90a had first, and the `a` targets after it have too.
const HOPPER_ON: &[(Version, Need)] = &[
    ((8, 0), Exact(90)),
    ((8, 6), Exact(100)),
    ((8, 6), Exact(110)),
    ((8, 7), Exact(120)),
    ((8, 8), Family(100)),
    ((8, 8), Family(110)),
    ((8, 8), Family(120)),
];

#[rustfmt::skip]
static TABLE: &[Row] = &[
    // Integers (§9.7.1) and bits (§9.7.8).
    row("lop3",                                                  &[((4, 3), Sm(50))]),
    row("lop3 and|or",                                           &[((8, 2), Sm(70))]),
    row("shf",                                                   &[((3, 1), Sm(32))]),
    row("dp4a|dp2a",                                             &[((5, 0), Sm(61))]),
    row("szext|bmsk",                                            &[((7, 6), Sm(70))]),
    row("fns",                                                   &[((6, 0), Sm(30))]),
    row("add|min|max u16x2|s16x2",                               &[((8, 0), Sm(90))]),
    row("min|max relu s32|s16x2",                                &[((8, 0), Sm(90))]),
    // Floats (§9.7.3 to §9.7.5).
    row("add|sub|mul f16|f16x2 !f32.f16",                        &[((4, 2), Sm(53))]),
    row("add|sub|mul bf16|bf16x2 !f32.bf16",                     &[((7, 8), Sm(90))]),
    row("add|sub|fma f32.f16|f32.bf16",                          &[((8, 6), Sm(100))]),
    row("fma f16|f16x2",                                         &[((4, 2), Sm(53))]),
    row("fma bf16|bf16x2",                                       &[((7, 0), Sm(80))]),
    row("fma relu",                                              &[((7, 0), Sm(80))]),
    row("fma oob",                                               &[((8, 1), Sm(90))]),
    row("add|sub|mul|fma f32x2",                                 &[((8, 6), Sm(100))]),
    row("neg f16|f16x2",                                         &[((6, 0), Sm(53))]),
    row("abs f16|f16x2",                                         &[((6, 5), Sm(53))]),
    row("neg|abs bf16|bf16x2",                                   &[((7, 0), Sm(80))]),
    row("min|max f16|f16x2|bf16|bf16x2",                         &[((7, 0), Sm(80))]),
    row("min|max NaN",                                           &[((7, 0), Sm(80))]),
    row("min|max xorsign",                                       &[((7, 2), Sm(86))]),
    row("min|max f32 #4",                                        &[((8, 8), Sm(100))]),
    row("ex2 f16|f16x2",                                         &[((7, 0), Sm(75))]),
    row("ex2 bf16|bf16x2",                                       &[((7, 8), Sm(90))]),
    row("tanh",                                                  &[((7, 0), Sm(75))]),
    row("tanh bf16|bf16x2",                                      &[((7, 8), Sm(90))]),
    row("set|setp f16|f16x2",                                    &[((4, 2), Sm(53))]),
    row("set u16|s16|u32|s32 f16|f16x2",                         &[((6, 5), Sm(53))]),
    row("set|setp bf16|bf16x2",                                  &[((7, 8), Sm(90))]),
    // Conversions (§9.7.9.21, §9.7.9.22).
    row("cvt bf16.f32|bf16x2.f32|f16x2.f32",                     &[((7, 0), Sm(80))]),
    row("cvt f32.bf16",                                          &[((7, 1), Sm(80))]),
    row("cvt bf16 !bf16.f32 !f32.bf16",                          &[((7, 8), Sm(90))]),
    row("cvt relu",                                              &[((7, 0), Sm(80))]),
    row("cvt satfinite f16.f32|f16x2.f32|bf16.f32|bf16x2.f32",   &[((8, 1), Sm(75))]),
    row("cvt tf32.f32",                                          &[((7, 0), Sm(80))]),
    row("cvt rn|rz tf32.f32",                                    &[((7, 8), Sm(90))]),
    row("cvt rna satfinite tf32.f32",                            &[((8, 1), Sm(80))]),
    row("cvt rn|rz satfinite tf32.f32",                          &[((8, 6), Sm(100))]),
    row("cvt e4m3x2|e5m2x2",                                     &[((7, 8), Sm(90)), ((8, 1), Sm(89))]),
    row("cvt e2m1x2|e2m3x2|e3m2x2|ue8m0x2",                      BLACKWELL),
    row("cvt rs",                                                &[((8, 7), Exact(100)), ((8, 8), Exact(103))]),
    row("cvt pack",                                              &[((6, 5), Sm(72))]),
    // Data movement (§9.7.9).
    row("mov|ld|st|atom b128",                                   &[((8, 3), Sm(70))]),
    row("ld|st|atom|red relaxed|acquire|release|acq_rel",        &[((6, 0), Sm(70))]),
    row("ld|st mmio",                                            &[((8, 2), Sm(70))]),
    row("ld|st|atom|red|fence|membar cluster",                   &[((7, 8), Sm(90))]),
    row("ld|st|atom|red|cvta|isspacep|mapa shared::cluster",     &[((7, 8), Sm(90))]),
    row("ld|st|atom|red|cvta|isspacep|ldmatrix shared::cta",     &[((7, 8), Sm(30))]),
    row("ld|st param::entry|param::func",                        &[((8, 3), Sm(30))]),
    row("isspacep|cvta param",                                   &[((7, 7), Sm(70))]),
    row("isspacep|cvta param::entry",                            &[((8, 3), Sm(70))]),
    row("ld|st L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate", &[((7, 4), Sm(70))]),
    row("ld|st L2::evict_normal|L2::evict_first|L2::evict_last", &[((8, 8), Sm(100))]),
    row("ld|st|atom|red|cp L2::cache_hint",                      &[((7, 4), Sm(80))]),
    row("ld L2::64B|L2::128B",                                   &[((7, 4), Sm(75))]),
    row("ld L2::256B",                                           &[((7, 4), Sm(80))]),
    row("cp L2::64B|L2::128B|L2::256B",                          &[((7, 4), Sm(80))]),
    row("ld|st v8",                                              &[((8, 8), Sm(100))]),
    row("ld|st v4 b64|u64|s64|f64",                              &[((8, 8), Sm(100))]),
    row("ld nc",                                                 &[((3, 1), Sm(32))]),
    row("prefetch L2::evict_last|L2::evict_normal",              &[((7, 4), Sm(80))]),
    row("prefetch tensormap",                                    &[((8, 0), Sm(90))]),
    row("applypriority|discard|createpolicy",                    &[((7, 4), Sm(80))]),
    row("mapa|getctarank",                                       &[((7, 8), Sm(90))]),
    row("multimem",                                              &[((8, 1), Sm(90))]),
    row("st async",                                              &[((8, 1), Sm(90))]),
    row("red async",                                             &[((8, 1), Sm(90))]),
    row("st bulk",                                               &[((8, 6), Sm(100))]),
    row("cp async",                                              &[((7, 0), Sm(80))]),
    row("cp bulk",                                               &[((8, 0), Sm(90))]),
    row("cp bulk shared::cta.global",                            &[((8, 6), Sm(90))]),
    row("cp bulk cp_mask",                                       &[((8, 6), Sm(100))]),
    row("cp tile::gather4",                                      &[((8, 6), Sm(100))]),
    row("cp tile::gather4 shared::cluster",                      TENSOR_MEMORY),
    row("cp tile::scatter4|im2col::w|im2col::w::128|cta_group::1|cta_group::2", TENSOR_MEMORY),
    row("tensormap replace",                                     &[
        ((8, 3), Exact(90)), ((8, 6), Exact(100)), ((8, 6), Exact(110)), ((8, 7), Exact(120)),
        ((8, 8), Family(100)), ((8, 8), Family(110)), ((8, 8), Family(120)),
    ]),
    row("tensormap cp_fenceproxy",                               &[((8, 3), Sm(90))]),
    // Control flow (§9.7.12) and synchronisation (§9.7.13).
    row("brx",                                                   &[((6, 0), Sm(30))]),
    row("barrier",                                               &[((6, 0), Sm(30))]),
    row("bar warp",                                              &[((6, 0), Sm(30))]),
    row("bar|barrier cta",                                       &[((7, 8), Sm(30))]),
    row("barrier cluster",                                       &[((7, 8), Sm(90))]),
    row("barrier cluster acquire|release|relaxed",               &[((8, 0), Sm(90))]),
    row("fence",                                                 &[((6, 0), Sm(70))]),
    row("fence|membar proxy",                                    &[((7, 5), Sm(70))]),
    row("fence async|async.global|async.shared::cta|async::generic", &[((8, 0), Sm(90))]),
    row("fence async::generic",                                  &[((8, 6), Sm(90))]),
    row("fence tensormap::generic",                              &[((8, 3), Sm(90))]),
    row("fence mbarrier_init",                                   &[((8, 0), Sm(90))]),
    row("fence acquire|release !mbarrier_init !proxy",           &[((8, 6), Sm(90))]),
    row("shfl|vote sync",                                        &[((6, 0), Sm(30))]),
    row("match",                                                 &[((6, 0), Sm(70))]),
    row("activemask",                                            &[((6, 2), Sm(30))]),
    row("redux",                                                 &[((7, 0), Sm(80))]),
    row("redux f32",                                             &[((8, 6), Exact(100)), ((8, 8), Family(100))]),
    row("elect",                                                 &[((8, 0), Sm(90))]),
    row("griddepcontrol",                                        &[((7, 8), Sm(90))]),
    row("mbarrier",                                              &[((7, 0), Sm(80))]),
    row("mbarrier parity",                                       &[((7, 1), Sm(80))]),
    row("mbarrier try_wait",                                     &[((7, 8), Sm(90))]),
    row("mbarrier expect_tx|complete_tx",                        &[((8, 0), Sm(90))]),
    row("mbarrier shared::cta",                                  &[((7, 8), Sm(80))]),
    row("mbarrier acquire|release|cta",                          &[((8, 0), Sm(80))]),
    row("mbarrier cluster|shared::cluster|relaxed",              &[((8, 0), Sm(90))]),
    row("mbarrier relaxed arrive|arrive_drop|test_wait|try_wait", &[((8, 6), Sm(90))]),
    row("mbarrier arrive|arrive_drop !noComplete !expect_tx #3", &[((7, 8), Sm(90))]),
    row("clusterlaunchcontrol",                                  &[((8, 6), Sm(100))]),
    row("nanosleep",                                             &[((6, 3), Sm(70))]),
    row("setmaxnreg",                                            HOPPER_ON),
    // Atomic operations (§9.7.13.5, §9.7.13.6).
    row("atom|red cta|gpu|sys",                                  &[((5, 0), Sm(60))]),
    row("atom|red add f64",                                      &[((5, 0), Sm(60))]),
    row("atom|red f16x2",                                        &[((6, 2), Sm(60))]),
    row("atom|red f16",                                          &[((6, 3), Sm(70))]),
    row("atom|red bf16|bf16x2",                                  &[((7, 8), Sm(90))]),
    row("atom|red v2|v4|v8",                                     &[((8, 1), Sm(90))]),
    row("atom cas b16",                                          &[((6, 3), Sm(70))]),
    row("atom b128",                                             &[((8, 3), Sm(90))]),
    // Matrices (§9.7.14 to §9.7.16).
    row("ldmatrix",                                              &[((6, 5), Sm(75))]),
    row("ldmatrix b8|m16n16|m8n16",                              BLACKWELL),
    row("stmatrix",                                              &[((7, 8), Sm(90))]),
    row("stmatrix b8|m16n8",                                     BLACKWELL),
    row("movmatrix",                                             &[((7, 8), Sm(75))]),
    row("mma m8n8k4 f16",                                        &[((6, 4), Sm(70))]),
    row("mma m16n8k8|m8n8k16|m8n8k32",                           &[((6, 5), Sm(75))]),
    row("mma m8n8k128",                                          &[((7, 0), Sm(75))]),
    row("mma m16n8k4|m16n8k16|m16n8k32|m16n8k64|m16n8k128|m16n8k256", &[((7, 0), Sm(80))]),
    row("mma bf16|tf32|f64",                                     &[((7, 0), Sm(80))]),
    row("mma and.popc",                                          &[((7, 1), Sm(80))]),
    row("mma f64 m16n8k4|m16n8k8|m16n8k16",                      &[((7, 8), Sm(90))]),
    row("mma sp",                                                &[((7, 1), Sm(80))]),
    row("mma sp::ordered_metadata",                              &[((8, 5), Sm(80))]),
    row("mma e4m3|e5m2",                                         &[((8, 4), Sm(89))]),
    row("mma e4m3|e5m2 f16|m16n8k16",                            &[((8, 7), Sm(89))]),
    row("mma kind::f8f6f4|kind::mxf8f6f4|kind::mxf4|kind::mxf4nvf4|e2m1|e2m3|e3m2", &[((8, 7), Exact(120)), ((8, 8), Family(120))]),
    row("wgmma",                                                 &[((8, 0), Exact(90))]),
    row("tcgen05",                                               TENSOR_MEMORY),
];

/// Special registers (PTX ISA §10) that not all have, by the beginning of their names.
#[rustfmt::skip]
static SPECIAL: &[(&str, Version, Need)] = &[
    ("%clusterid",            (7, 8), Sm(90)),
    ("%nclusterid",           (7, 8), Sm(90)),
    ("%cluster_",             (7, 8), Sm(90)),
    ("%is_explicit_cluster",  (7, 8), Sm(90)),
    ("%aggr_smem_size",       (8, 1), Sm(90)),
    ("%total_smem_size",      (4, 1), Sm(20)),
    ("%dynamic_smem_size",    (4, 1), Sm(20)),
    ("%reserved_smem_offset", (7, 6), Sm(80)),
    ("%current_graph_exec",   (8, 0), Sm(50)),
    ("%globaltimer",          (3, 1), Sm(30)),
];

/// Targets and the first PTX version that has them (PTX ISA §11.1.2, `.target`).
#[rustfmt::skip]
static TARGETS: &[(&str, Version)] = &[
    ("sm_30", (3, 0)), ("sm_32", (4, 0)), ("sm_35", (3, 1)), ("sm_37", (4, 1)),
    ("sm_50", (4, 0)), ("sm_52", (4, 1)), ("sm_53", (4, 2)), ("sm_60", (5, 0)), ("sm_61", (5, 0)), ("sm_62", (5, 0)),
    ("sm_70", (6, 0)), ("sm_72", (6, 1)), ("sm_75", (6, 3)),
    ("sm_80", (7, 0)), ("sm_86", (7, 1)), ("sm_87", (7, 4)), ("sm_88", (9, 0)), ("sm_89", (7, 8)),
    ("sm_90", (7, 8)), ("sm_90a", (8, 0)),
    ("sm_100", (8, 6)), ("sm_100a", (8, 6)), ("sm_100f", (8, 8)), ("sm_101", (8, 6)), ("sm_101a", (8, 6)), ("sm_101f", (8, 8)),
    ("sm_103", (8, 8)), ("sm_103a", (8, 8)), ("sm_103f", (8, 8)), ("sm_110", (9, 0)), ("sm_110a", (9, 0)), ("sm_110f", (9, 0)),
    ("sm_120", (8, 7)), ("sm_120a", (8, 7)), ("sm_120f", (8, 8)), ("sm_121", (8, 8)), ("sm_121a", (8, 8)), ("sm_121f", (8, 8)),
];

/// What a `.target` promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suffix {
    /// It runs on later SMs too.
    None,
    /// `a`: it runs on this SM only.
    Architecture,
    /// `f`: it runs on later SMs of its family.
    Family,
}

/// What a module says of itself: `.version` and `.target`.
#[derive(Clone, Debug)]
pub(crate) struct Code<'a> {
    version: Version,
    name: &'a str,
    sm: u32,
    suffix: Suffix,
}

/// The oldest SM of a family.
fn family(sm: u32) -> u32 {
    match sm {
        100 | 103 => 100,
        120 | 121 => 120,
        other => other,
    }
}

/// A condition of a pattern.
#[derive(Debug)]
struct Condition {
    holds: bool,
    /// One of them must stand there: parts that follow each other.
    any: Vec<Vec<&'static str>>,
    /// Or the operands are so many.
    operands: Option<usize>,
}

impl Condition {
    fn parse(text: &'static str) -> Condition {
        let (holds, text) = match text.strip_prefix('!') {
            Some(rest) => (false, rest),
            None => (true, text),
        };
        let operands = text.strip_prefix('#').and_then(|n| n.parse().ok());
        let any = match operands {
            Some(_) => Vec::new(),
            None => text.split('|').map(|a| a.split('.').collect()).collect(),
        };
        Condition {
            holds,
            any,
            operands,
        }
    }

    fn fits(&self, instruction: &ptx::Instruction) -> bool {
        let parts = &instruction.opcode;
        let stands = |wanted: &Vec<&str>| {
            let mut windows = parts.windows(wanted.len());
            windows.any(|w| {
                w.iter()
                    .zip(wanted)
                    .all(|(part, wanted)| **part == **wanted)
            })
        };
        let found = match self.operands {
            Some(count) => instruction.operands.len() == count,
            None => self.any.iter().any(stands),
        };
        found == self.holds
    }
}

type Rules = HashMap<&'static str, Vec<(Vec<Condition>, &'static [(Version, Need)])>>;

/// The table by opcode.
static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let mut rules = Rules::new();
    for row in TABLE {
        let mut words = row.pattern.split_ascii_whitespace();
        let opcodes = words.next().unwrap_or_default();
        for opcode in opcodes.split('|') {
            let conditions = words.clone().map(Condition::parse).collect();
            rules.entry(opcode).or_default().push((conditions, row.any));
        }
    }
    rules
});

impl<'a> Code<'a> {
    /// What the module says of itself, if the device can run it.
    pub(crate) fn of(module: &'a ptx::Module, device: Target) -> Result<Code<'a>, LoadError> {
        let name = &*module.target;
        let unfit = || LoadError::Unfit {
            code: name.to_owned(),
            device: device.to_string(),
        };
        let known = TARGETS.iter().find(|(target, _)| *target == name);
        let (_, since) = known.ok_or_else(unfit)?;
        let number = name.trim_start_matches("sm_");
        let digits = number.trim_end_matches(['a', 'f']);
        let suffix = match &number[digits.len()..] {
            "a" => Suffix::Architecture,
            "f" => Suffix::Family,
            _ => Suffix::None,
        };
        let sm = match digits.parse().map_err(|_| unfit())? {
            // PTX 9.0 gave it a new number.
            101 => 110,
            sm => sm,
        };
        let runs = match suffix {
            Suffix::None => device.sm >= sm,
            Suffix::Architecture => device.sm == sm && device.exact,
            Suffix::Family => device.sm >= sm && family(device.sm) == family(sm),
        };
        if !runs {
            return Err(unfit());
        }
        let code = Code {
            version: module.version,
            name,
            sm,
            suffix,
        };
        if module.version < *since {
            let what = format!(".target {name}");
            return Err(code.illegal(1, what, version_reason(*since)));
        }
        Ok(code)
    }

    fn illegal(&self, line: u32, instruction: String, reason: String) -> LoadError {
        LoadError::Illegal {
            line,
            instruction,
            target: self.name.to_owned(),
            reason,
        }
    }

    fn has(&self, need: Need) -> bool {
        match need {
            Sm(sm) => self.sm >= sm,
            Exact(sm) => self.sm == sm && self.suffix == Suffix::Architecture,
            Family(sm) => {
                self.suffix != Suffix::None && self.sm >= sm && family(self.sm) == family(sm)
            }
        }
    }

    /// What is missing of the ways to have something, if none of them is there.
    fn missing(&self, any: &[(Version, Need)]) -> Option<String> {
        let here = any.iter().filter(|(_, need)| self.has(*need));
        match here.map(|(version, _)| *version).min() {
            Some(version) if version <= self.version => None,
            Some(version) => Some(version_reason(version)),
            None => Some(target_reason(any)),
        }
    }

    /// Whether the module's target and version have the instruction.
    pub(crate) fn check(&self, instruction: &ptx::Instruction) -> Result<(), LoadError> {
        let illegal = |reason| self.illegal(instruction.line, instruction.mnemonic(), reason);
        let opcode = instruction.opcode.first().map_or("", |part| &**part);
        for (conditions, any) in RULES.get(opcode).into_iter().flatten() {
            if conditions.iter().all(|c| c.fits(instruction))
                && let Some(reason) = self.missing(any)
            {
                return Err(illegal(reason));
            }
        }
        for operand in &instruction.operands {
            let Operand::Special(name) = operand else {
                continue;
            };
            let of = |(beginning, ..): &&(&str, Version, Need)| name.starts_with(beginning);
            if let Some((_, version, need)) = SPECIAL.iter().find(of)
                && let Some(reason) = self.missing(&[(*version, *need)])
            {
                return Err(illegal(format!("{name} {reason}")));
            }
        }
        Ok(())
    }

    /// Whether they have what the entry's directives say (PTX ISA §11.7, Cluster Dimension Directives).
    pub(crate) fn check_entry(&self, function: &ptx::Function) -> Result<(), LoadError> {
        if function.required_cluster.is_some()
            && let Some(reason) = self.missing(&[((7, 8), Sm(90))])
        {
            return Err(self.illegal(function.line, ".reqnctapercluster".to_owned(), reason));
        }
        Ok(())
    }
}

fn version_reason((major, minor): Version) -> String {
    format!("needs PTX {major}.{minor}")
}

/// "needs sm_90a, sm_100a or sm_120a".
fn target_reason(any: &[(Version, Need)]) -> String {
    let least = any.iter().filter_map(|(_, need)| match need {
        Sm(sm) => Some(*sm),
        _ => None,
    });
    if let Some(least) = least.min() {
        return format!("needs sm_{least}");
    }
    let mut names: Vec<String> = Vec::new();
    for (_, need) in any {
        let name = match need {
            // Its `a` target stands there already.
            Family(sm) if any.iter().any(|(_, n)| *n == Exact(*sm)) => continue,
            Family(sm) => format!("sm_{sm}f"),
            Exact(sm) | Sm(sm) => format!("sm_{sm}a"),
        };
        names.push(name);
    }
    match names.split_last() {
        Some((last, [])) => format!("needs {last}"),
        Some((last, rest)) => format!("needs {} or {last}", rest.join(", ")),
        None => "exists nowhere".to_owned(),
    }
}
