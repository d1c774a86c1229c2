//! Which code of an instance a device runs. Pure: everything that it asks a device is in [`Traits`].
//!
//! In this order: a cubin for the device's own SM; a cubin for an earlier SM of the same major version; the newest PTX
//! that device and driver take. Code of an `a` target runs on its own SM only. PTX needs a driver that knows its
//! version. The emulator takes no cubins. A target whose last, most general body the device cannot take is no choice.

use std::{fmt, str::FromStr};

use tesserine_set::{BodyRecord, Instance};

/// A device's compute capability: (9, 0) is `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

/// What code was compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    pub capability: Capability,
    /// An `a` target: its code runs on no other SM.
    pub exact: bool,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{}",
            self.capability,
            if self.exact { "a" } else { "" }
        )
    }
}

/// The text names no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no target; targets read like `sm_80` and `sm_90a`")]
pub struct UnknownTarget(pub String);

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(text: &str) -> Result<Target, UnknownTarget> {
        let parse = || {
            let rest = text.strip_prefix("sm_")?;
            let (digits, exact) = match rest.strip_suffix('a') {
                Some(digits) => (digits, true),
                None => (rest, false),
            };
            if !(2..=4).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            let number: u32 = digits.parse().ok()?;
            let capability = Capability {
                major: number / 10,
                minor: number % 10,
            };
            Some(Target { capability, exact })
        };
        parse().ok_or_else(|| UnknownTarget(text.to_owned()))
    }
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    pub capability: Capability,
    /// The newest CUDA version that the driver serves: (12, 4).
    pub cuda: (u32, u32),
    /// It takes no cubins: the emulator.
    pub ptx_only: bool,
}

/// A module of the set to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Cubin(u32),
    Ptx(u32),
}

/// A body that the device can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Index in `Instance::bodies`.
    pub body: usize,
    pub code: Code,
    /// The PTX, where `code` is a cubin and device and driver take that too: for drivers that refuse the cubin.
    pub fallback: Option<Code>,
}

/// The bodies of the target that was chosen, in the order in which a launch tries them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub target: Target,
    pub candidates: Vec<Candidate>,
}

/// Why a device can run none of an instance's code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    #[error("{0}")]
    Target(#[from] UnknownTarget),
    #[error("`{kernel}` has no code for {device}; it has code for {}", available.join(", "))]
    NoCode {
        kernel: String,
        device: Capability,
        available: Vec<String>,
    },
    #[error(
        "the driver is too old for `{kernel}`: its code for {target} is PTX {}.{}, which CUDA {}.{} brought, and this driver serves CUDA {}.{}, which takes PTX up to {}.{}",
        ptx.0, ptx.1, needs.0, needs.1, cuda.0, cuda.1, takes.0, takes.1
    )]
    DriverTooOld {
        kernel: String,
        target: Target,
        /// What the code is.
        ptx: (u32, u32),
        /// The CUDA version whose drivers take it.
        needs: (u32, u32),
        /// The driver's CUDA version.
        cuda: (u32, u32),
        /// The PTX version that it takes.
        takes: (u32, u32),
    },
    #[error("`{kernel}` has no code for {target}; it has code for {}", available.join(", "))]
    NotCompiledFor {
        kernel: String,
        target: Target,
        available: Vec<String>,
    },
    #[error("code for {target} does not run on {device}")]
    Unfit { target: Target, device: Capability },
}

/// PTX versions with the first CUDA version whose drivers take them, ascending. From NVIDIA's PTX ISA, release notes.
const PTX_RELEASES: [((u32, u32), (u32, u32)); 29] = [
    ((6, 0), (9, 0)),
    ((6, 1), (9, 1)),
    ((6, 2), (9, 2)),
    ((6, 3), (10, 0)),
    ((6, 4), (10, 1)),
    ((6, 5), (10, 2)),
    ((7, 0), (11, 0)),
    ((7, 1), (11, 1)),
    ((7, 2), (11, 2)),
    ((7, 3), (11, 3)),
    ((7, 4), (11, 4)),
    ((7, 5), (11, 5)),
    ((7, 6), (11, 6)),
    ((7, 7), (11, 7)),
    ((7, 8), (11, 8)),
    ((8, 0), (12, 0)),
    ((8, 1), (12, 1)),
    ((8, 2), (12, 2)),
    ((8, 3), (12, 3)),
    ((8, 4), (12, 4)),
    ((8, 5), (12, 5)),
    ((8, 6), (12, 7)),
    ((8, 7), (12, 8)),
    ((8, 8), (12, 9)),
    ((9, 0), (13, 0)),
    ((9, 1), (13, 1)),
    ((9, 2), (13, 2)),
    ((9, 3), (13, 3)),
    ((9, 4), (13, 4)),
];

/// The newest PTX version that a driver of this CUDA version takes; (0, 0) if it is older than all that is known.
pub fn ptx_of_driver(cuda: (u32, u32)) -> (u32, u32) {
    let known = PTX_RELEASES.iter().rev().find(|(_, first)| *first <= cuda);
    known.map_or((0, 0), |(ptx, _)| *ptx)
}

/// The first CUDA version whose drivers take this PTX version.
pub fn cuda_of_ptx(ptx: (u32, u32)) -> (u32, u32) {
    let known = PTX_RELEASES.iter().find(|(version, _)| *version >= ptx);
    // A version after the last release: the majors of PTX and CUDA have been four apart since CUDA 11.
    known.map_or((ptx.0 + 4, ptx.1), |(_, first)| *first)
}

/// The newest CUDA version that is known here.
pub(crate) fn newest_cuda() -> (u32, u32) {
    PTX_RELEASES[PTX_RELEASES.len() - 1].1
}

/// How good a target's code is; the greatest is chosen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Ptx,
    CubinOfMajor,
    CubinOfSm,
}

/// Whether PTX for `target` can run on `device`, drivers apart.
pub fn ptx_runs(target: Target, device: Capability) -> bool {
    if target.exact {
        target.capability == device
    } else {
        target.capability <= device
    }
}

fn cubin_rank(target: Target, device: Capability) -> Option<Rank> {
    let sm = target.capability;
    if sm == device {
        Some(Rank::CubinOfSm)
    } else if !target.exact && sm.major == device.major && sm.minor < device.minor {
        Some(Rank::CubinOfMajor)
    } else {
        None
    }
}

/// How a device runs one body, if it can.
fn body_code(
    target: Target,
    body: &BodyRecord,
    traits: &Traits,
) -> Option<(Rank, Code, Option<Code>)> {
    let ptx = ptx_runs(target, traits.capability) && body.ptx_version <= ptx_of_driver(traits.cuda);
    let ptx = ptx.then_some(Code::Ptx(body.ptx));
    let cubin = body.cubin.filter(|_| !traits.ptx_only);
    match (cubin, cubin_rank(target, traits.capability)) {
        (Some(cubin), Some(rank)) => Some((rank, Code::Cubin(cubin), ptx)),
        _ => ptx.map(|code| (Rank::Ptx, code, None)),
    }
}

/// Chooses what a device runs of `instance`: of target `wanted` if the caller names one, else of the best.
pub fn select(
    instance: &Instance,
    traits: &Traits,
    wanted: Option<&str>,
) -> Result<Choice, SelectError> {
    let wanted = wanted.map(str::parse::<Target>).transpose()?;
    let mut targets: Vec<(Target, Vec<usize>)> = Vec::new();
    for (i, body) in instance.bodies.iter().enumerate() {
        let target: Target = body.target.parse()?;
        match targets.iter_mut().find(|(t, _)| *t == target) {
            Some((_, bodies)) => bodies.push(i),
            None => targets.push((target, vec![i])),
        }
    }
    let available = || {
        targets
            .iter()
            .map(|(t, _)| t.to_string())
            .collect::<Vec<_>>()
    };
    if let Some(target) = wanted {
        if !targets.iter().any(|(t, _)| *t == target) {
            return Err(SelectError::NotCompiledFor {
                kernel: instance.name.clone(),
                target,
                available: available(),
            });
        }
        if !ptx_runs(target, traits.capability) {
            return Err(SelectError::Unfit {
                target,
                device: traits.capability,
            });
        }
    }

    let mut best: Option<((Rank, Target), Choice)> = None;
    for (target, bodies) in &targets {
        if wanted.is_some_and(|w| w != *target) {
            continue;
        }
        let mut candidates = Vec::new();
        let mut rank = None;
        for &body in bodies {
            let code = body_code(*target, &instance.bodies[body], traits);
            rank = code.map(|(rank, ..)| rank);
            if let Some((_, code, fallback)) = code {
                candidates.push(Candidate {
                    body,
                    code,
                    fallback,
                });
            }
        }
        let Some(rank) = rank else { continue };
        let key = (rank, *target);
        if best.as_ref().is_none_or(|(b, _)| key > *b) {
            let target = *target;
            best = Some((key, Choice { target, candidates }));
        }
    }
    if let Some((_, choice)) = best {
        return Ok(choice);
    }

    // What would run if the driver were newer: the target that asks least.
    let takes = ptx_of_driver(traits.cuda);
    let refused = targets
        .iter()
        .filter(|(t, _)| wanted.is_none_or(|w| w == *t) && ptx_runs(*t, traits.capability))
        .filter_map(|(t, bodies)| Some((instance.bodies[*bodies.last()?].ptx_version, *t)))
        .min_by_key(|(ptx, t)| (*ptx, std::cmp::Reverse(*t)));
    Err(match refused {
        Some((ptx, target)) => SelectError::DriverTooOld {
            kernel: instance.name.clone(),
            target,
            ptx,
            needs: cuda_of_ptx(ptx),
            cuda: traits.cuda,
            takes,
        },
        None => SelectError::NoCode {
            kernel: instance.name.clone(),
            device: traits.capability,
            available: available(),
        },
    })
}

#[cfg(test)]
mod tests {
    use tesserine_set::{Fact, Formula, Signature};

    use super::*;

    /// An instance with a body for each `(target, PTX version, has a cubin, is special)`.
    fn instance(bodies: &[(&str, (u32, u32), bool, bool)]) -> Instance {
        let record =
            |(i, (target, ptx_version, cubin, special)): (usize, &(&str, _, bool, bool))| {
                BodyRecord {
                    target: target.to_string(),
                    facts: match special {
                        true => vec![Fact::Holds(Formula::int(1))],
                        false => vec![],
                    },
                    cost: None,
                    entry: "k".into(),
                    grid: vec![],
                    persistent: None,
                    cluster: 1,
                    overlap: false,
                    threads: 128,
                    shared_bytes: 0,
                    tensor_maps: Vec::new(),
                    abi: vec![],
                    ptx_version: *ptx_version,
                    ptx: 2 * i as u32,
                    cubin: cubin.then_some(2 * i as u32 + 1),
                    resources: None,
                }
            };
        Instance {
            name: "k<bf16>".into(),
            source: String::new(),
            source_hash: String::new(),
            signature: Signature::default(),
            requires: vec![],
            bodies: bodies.iter().enumerate().map(record).collect(),
            unordered: false,
            tune: Vec::new(),
        }
    }

    fn traits(major: u32, minor: u32, cuda: (u32, u32)) -> Traits {
        Traits {
            capability: Capability { major, minor },
            cuda,
            ptx_only: false,
        }
    }

    /// The target chosen and the code of its bodies.
    fn chosen(
        instance: &Instance,
        traits: &Traits,
        wanted: Option<&str>,
    ) -> Result<(String, Vec<Code>), String> {
        let choice = select(instance, traits, wanted).map_err(|e| e.to_string())?;
        let codes = choice.candidates.iter().map(|c| c.code).collect();
        Ok((choice.target.to_string(), codes))
    }

    #[test]
    fn targets_are_read_and_printed() {
        for text in ["sm_75", "sm_90a", "sm_100a", "sm_121a"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        let target: Target = "sm_103a".parse().unwrap();
        assert_eq!((target.capability.major, target.capability.minor), (10, 3));
        for text in [
            "sm_", "sm_9", "90a", "sm_90f", "sm_+90", "sm_90aa", "sm_12345",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn drivers_take_the_ptx_of_their_release_and_all_before() {
        for (cuda, ptx) in [
            ((11, 8), (7, 8)),
            ((12, 4), (8, 4)),
            ((12, 5), (8, 5)),
            ((12, 6), (8, 5)),
            ((12, 7), (8, 6)),
            ((12, 8), (8, 7)),
            ((12, 9), (8, 8)),
            ((13, 0), (9, 0)),
            ((99, 0), (9, 4)),
            ((8, 0), (0, 0)),
        ] {
            assert_eq!(ptx_of_driver(cuda), ptx, "{cuda:?}");
        }
        assert_eq!(cuda_of_ptx((8, 5)), (12, 5));
        assert_eq!(cuda_of_ptx((9, 0)), (13, 0));
        assert_eq!(cuda_of_ptx((10, 0)), (14, 0));
        assert!(PTX_RELEASES.is_sorted());
    }

    #[test]
    fn an_own_cubin_then_one_of_the_major_then_ptx() {
        let all = instance(&[
            ("sm_80", (7, 0), true, false),
            ("sm_86", (7, 1), true, false),
            ("sm_90a", (8, 0), true, false),
        ]);
        let cuda = (13, 0);
        assert_eq!(
            chosen(&all, &traits(8, 6, cuda), None),
            Ok(("sm_86".into(), vec![Code::Cubin(3)]))
        );
        assert_eq!(
            chosen(&all, &traits(9, 0, cuda), None),
            Ok(("sm_90a".into(), vec![Code::Cubin(5)]))
        );
        // sm_89 takes the nearer of two cubins of its major version.
        assert_eq!(
            chosen(&all, &traits(8, 9, cuda), None),
            Ok(("sm_86".into(), vec![Code::Cubin(3)]))
        );
        // sm_100 has no cubin, and sm_90a is not for it: the newest plain PTX.
        assert_eq!(
            chosen(&all, &traits(10, 0, cuda), None),
            Ok(("sm_86".into(), vec![Code::Ptx(2)]))
        );
        // A cubin of the same major version goes before the SM's own PTX.
        let mixed = instance(&[
            ("sm_80", (7, 0), true, false),
            ("sm_89", (7, 8), false, false),
        ]);
        assert_eq!(
            chosen(&mixed, &traits(8, 9, cuda), None),
            Ok(("sm_80".into(), vec![Code::Cubin(1)]))
        );
        let choice = select(&mixed, &traits(8, 9, cuda), None).unwrap();
        assert_eq!(choice.candidates[0].fallback, Some(Code::Ptx(0)));
    }

    #[test]
    fn the_emulator_takes_ptx_only() {
        let all = instance(&[
            ("sm_80", (7, 0), true, false),
            ("sm_86", (7, 1), true, false),
            ("sm_90a", (8, 0), true, false),
        ]);
        let emulated = |major, minor| Traits {
            ptx_only: true,
            ..traits(major, minor, newest_cuda())
        };
        for (major, minor, wanted, target, module) in [
            (9, 0, None, "sm_90a", 4),
            (9, 0, Some("sm_80"), "sm_80", 0),
            (8, 9, None, "sm_86", 2),
            (8, 0, None, "sm_80", 0),
        ] {
            assert_eq!(
                chosen(&all, &emulated(major, minor), wanted),
                Ok((target.into(), vec![Code::Ptx(module)]))
            );
        }
        let choice = select(&all, &emulated(9, 0), None).unwrap();
        assert_eq!(choice.candidates[0].fallback, None);
        assert!(chosen(&all, &emulated(7, 5), None).is_err());
    }

    #[test]
    fn an_a_target_runs_on_its_own_sm_only() {
        let hopper = instance(&[("sm_90a", (8, 0), true, false)]);
        assert!(chosen(&hopper, &traits(9, 0, (12, 0)), None).is_ok());
        assert_eq!(
            chosen(&hopper, &traits(10, 0, (13, 0)), None),
            Err("`k<bf16>` has no code for sm_100; it has code for sm_90a".into())
        );
        let blackwell = instance(&[("sm_100a", (8, 6), true, false)]);
        assert!(chosen(&blackwell, &traits(10, 3, (13, 0)), None).is_err());
    }

    #[test]
    fn an_old_driver_gets_older_code_or_an_error_with_both_versions() {
        let both = instance(&[
            ("sm_80", (7, 0), false, false),
            ("sm_90a", (8, 0), false, false),
        ]);
        assert_eq!(
            chosen(&both, &traits(9, 0, (11, 8)), None),
            Ok(("sm_80".into(), vec![Code::Ptx(0)]))
        );
        let new = instance(&[("sm_120a", (8, 8), false, false)]);
        assert_eq!(
            chosen(&new, &traits(12, 0, (12, 8)), None),
            Err("the driver is too old for `k<bf16>`: its code for sm_120a is PTX 8.8, which CUDA 12.9 brought, and this driver serves CUDA 12.8, which takes PTX up to 8.7".into())
        );
        // A cubin needs no PTX version.
        let assembled = instance(&[("sm_120a", (8, 8), true, false)]);
        let choice = select(&assembled, &traits(12, 0, (12, 8)), None).unwrap();
        assert_eq!(choice.candidates[0].code, Code::Cubin(1));
        assert_eq!(choice.candidates[0].fallback, None);
    }

    #[test]
    fn the_caller_may_name_the_target() {
        let all = instance(&[
            ("sm_80", (7, 0), false, false),
            ("sm_90a", (8, 0), true, false),
        ]);
        let h200 = traits(9, 0, (13, 0));
        assert_eq!(
            chosen(&all, &h200, Some("sm_80")),
            Ok(("sm_80".into(), vec![Code::Ptx(0)]))
        );
        assert_eq!(
            chosen(&all, &h200, Some("sm_75")),
            Err("`k<bf16>` has no code for sm_75; it has code for sm_80, sm_90a".into())
        );
        assert_eq!(
            chosen(&all, &traits(8, 0, (13, 0)), Some("sm_90a")),
            Err("code for sm_90a does not run on sm_80".into())
        );
        assert_eq!(
            chosen(&all, &h200, Some("ampere")),
            Err("`ampere` is no target; targets read like `sm_80` and `sm_90a`".into())
        );
    }

    #[test]
    fn all_bodies_of_the_target_are_candidates_in_order() {
        let special = instance(&[
            ("sm_80", (7, 0), false, true),
            ("sm_80", (7, 0), false, false),
            ("sm_90a", (8, 6), false, true),
            ("sm_90a", (8, 0), false, false),
        ]);
        assert_eq!(
            chosen(&special, &traits(9, 0, (13, 0)), None),
            Ok(("sm_90a".into(), vec![Code::Ptx(4), Code::Ptx(6)]))
        );
        // A special body that the driver is too old for drops out; the general one remains.
        assert_eq!(
            chosen(&special, &traits(9, 0, (12, 4)), None),
            Ok(("sm_90a".into(), vec![Code::Ptx(6)]))
        );
    }
}
