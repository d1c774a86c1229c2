//! What the emulated devices differ in: facts of each SM target, as data.

use std::fmt;

/// An SM target, `sm_90a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// 90 for `sm_90` and `sm_90a`.
    pub sm: u32,
    /// An `a` target, whose code runs on no other.
    pub exact: bool,
    /// The most dynamic shared memory of a block, in bytes (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
    pub shared_limit: u32,
    /// Shared memory of a multiprocessor, in bytes.
    pub shared_per_sm: u32,
    /// Threads that a multiprocessor holds.
    pub threads_per_sm: u32,
    /// The most blocks of a portable cluster; 1 where there are none.
    pub cluster_limit: u32,
}

const KIB: u32 = 1024;

const fn row(
    sm: u32,
    exact: bool,
    shared: u32,
    shared_sm: u32,
    threads: u32,
    cluster: u32,
) -> Target {
    Target {
        sm,
        exact,
        shared_limit: shared * KIB,
        shared_per_sm: shared_sm * KIB,
        threads_per_sm: threads,
        cluster_limit: cluster,
    }
}

/// Those that the emulator can be.
pub const TARGETS: [Target; 10] = [
    row(75, false, 64, 64, 1024, 1),
    row(80, false, 163, 164, 2048, 1),
    row(86, false, 99, 100, 1536, 1),
    row(89, false, 99, 100, 1536, 1),
    row(90, true, 227, 228, 2048, 8),
    row(100, true, 227, 228, 2048, 8),
    row(103, true, 227, 228, 2048, 8),
    row(110, true, 227, 228, 1536, 8),
    row(120, true, 99, 100, 1536, 8),
    row(121, true, 99, 100, 1536, 8),
];

impl Target {
    /// The target of that name.
    pub fn named(name: &str) -> Option<Target> {
        TARGETS.into_iter().find(|t| t.to_string() == name)
    }

    /// Whether a device of this target runs code for `code`: that of its own and of older ones, of an `a` target its own only, of an
    /// `f` target that of its own family (PTX ISA §11.1.2).
    pub fn runs(&self, code: &str) -> bool {
        let Some(digits) = code.strip_prefix("sm_") else {
            return false;
        };
        let end = digits.find(|c: char| !c.is_ascii_digit());
        let (digits, suffix) = digits.split_at(end.unwrap_or(digits.len()));
        match (digits.parse::<u32>(), suffix) {
            (Ok(sm), "") => sm <= self.sm,
            (Ok(sm), "a") => sm == self.sm,
            (Ok(sm), "f") => sm <= self.sm && sm / 10 == self.sm / 10,
            _ => false,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.sm, if self.exact { "a" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_run_older_code_and_exact_code_of_their_own() {
        let device = |name| Target::named(name).unwrap();
        for (name, runs, refuses) in [
            ("sm_75", &["sm_75", "sm_70"][..], &["sm_80", "sm_90a"][..]),
            (
                "sm_90a",
                &["sm_90a", "sm_90", "sm_80"],
                &["sm_100", "sm_80a"],
            ),
            (
                "sm_103a",
                &["sm_103a", "sm_100f", "sm_100"],
                &["sm_100a", "sm_90a", "sm_110f"],
            ),
            (
                "sm_121a",
                &["sm_121a", "sm_120f", "sm_75"],
                &["sm_120a", "sm_100f"],
            ),
        ] {
            for code in runs {
                assert!(device(name).runs(code), "{code} on {name}");
            }
            for code in refuses.iter().chain(&["", "sm_", "sm_x", "90", "sm_90b"]) {
                assert!(!device(name).runs(code), "{code} on {name}");
            }
        }
    }
}
