//! Which instructions that a program writes itself exist where.
//!
//! A row names an instruction by its first word and by modifiers that set it apart; the first row that fits counts. What
//! no row fits is taken to exist everywhere, and `ptxas` has the last word.

use super::{PtxVersion, Target, legality::NEWEST};

/// One row of the table.
struct Row {
    /// The first word, then modifiers that the instruction has in any order.
    words: &'static [&'static str],
    /// One letter a target, in the order of [`Target::ALL`]: `Y` where it exists.
    targets: &'static str,
    ptx: PtxVersion,
}

const fn row(words: &'static [&'static str], targets: &'static str, ptx: PtxVersion) -> Row {
    Row {
        words,
        targets,
        ptx,
    }
}

#[rustfmt::skip]
static TABLE: &[Row] = &[
    //                            75 80 86 89|90a|100a 103a 110a|120a 121a
    row(&["tanh", "bf16"],        "nnnnYYYYYY", (7, 8)),
    row(&["tanh", "bf16x2"],      "nnnnYYYYYY", (7, 8)),
    row(&["tanh"],                "YYYYYYYYYY", (7, 0)),
    row(&["ex2", "bf16"],         "nnnnYYYYYY", (7, 8)),
    row(&["ex2", "bf16x2"],       "nnnnYYYYYY", (7, 8)),
    row(&["ex2", "f16"],          "YYYYYYYYYY", (7, 0)),
    row(&["ex2", "f16x2"],        "YYYYYYYYYY", (7, 0)),
    row(&["add", "f32x2"],        "nnnnnYYYYY", (8, 6)),
    row(&["mul", "f32x2"],        "nnnnnYYYYY", (8, 6)),
    row(&["fma", "f32x2"],        "nnnnnYYYYY", (8, 6)),
    row(&["add", "bf16"],         "nnnnYYYYYY", (7, 8)),
    row(&["add", "bf16x2"],       "nnnnYYYYYY", (7, 8)),
    row(&["sub", "bf16"],         "nnnnYYYYYY", (7, 8)),
    row(&["sub", "bf16x2"],       "nnnnYYYYYY", (7, 8)),
    row(&["mul", "bf16"],         "nnnnYYYYYY", (7, 8)),
    row(&["mul", "bf16x2"],       "nnnnYYYYYY", (7, 8)),
    row(&["fma", "bf16"],         "nYYYYYYYYY", (7, 0)),
    row(&["fma", "bf16x2"],       "nYYYYYYYYY", (7, 0)),
    row(&["fma", "relu"],         "nYYYYYYYYY", (7, 0)),
    row(&["min", "bf16"],         "nYYYYYYYYY", (7, 0)),
    row(&["max", "bf16"],         "nYYYYYYYYY", (7, 0)),
    row(&["min", "bf16x2"],       "nYYYYYYYYY", (7, 0)),
    row(&["max", "bf16x2"],       "nYYYYYYYYY", (7, 0)),
    row(&["min", "f16"],          "nYYYYYYYYY", (7, 0)),
    row(&["max", "f16"],          "nYYYYYYYYY", (7, 0)),
    row(&["min", "f16x2"],        "nYYYYYYYYY", (7, 0)),
    row(&["max", "f16x2"],        "nYYYYYYYYY", (7, 0)),
    row(&["min", "relu", "s32"],  "nnnnYYYYYY", (8, 0)),
    row(&["max", "relu", "s32"],  "nnnnYYYYYY", (8, 0)),
    row(&["min", "NaN"],          "nYYYYYYYYY", (7, 0)),
    row(&["max", "NaN"],          "nYYYYYYYYY", (7, 0)),
    row(&["min", "xorsign"],      "nnYYYYYYYY", (7, 2)),
    row(&["max", "xorsign"],      "nnYYYYYYYY", (7, 2)),
    row(&["min", "s16x2"],        "nnnnYYYYYY", (8, 0)),
    row(&["max", "s16x2"],        "nnnnYYYYYY", (8, 0)),
    row(&["neg", "bf16"],         "nYYYYYYYYY", (7, 0)),
    row(&["abs", "bf16"],         "nYYYYYYYYY", (7, 0)),
    row(&["cvt", "e2m1x2"],       "nnnnnYYYYY", (8, 6)),
    row(&["cvt", "e2m3x2"],       "nnnnnYYYYY", (8, 6)),
    row(&["cvt", "e3m2x2"],       "nnnnnYYYYY", (8, 6)),
    row(&["cvt", "ue8m0x2"],      "nnnnnYYYYY", (8, 6)),
    row(&["cvt", "e4m3x2"],       "nnnYYYYYYY", (8, 1)),
    row(&["cvt", "e5m2x2"],       "nnnYYYYYYY", (8, 1)),
    row(&["cvt", "rna", "tf32"],  "nYYYYYYYYY", (7, 0)),
    row(&["cvt", "tf32"],         "nnnnYYYYYY", (7, 8)),
    row(&["cvt", "rs"],           "nnnnnYYnnn", (8, 7)),
    row(&["cvt", "bf16x2"],       "nYYYYYYYYY", (7, 0)),
    row(&["cvt", "f16x2"],        "nYYYYYYYYY", (7, 0)),
    row(&["cvt", "bf16", "f32"],  "nYYYYYYYYY", (7, 0)),
    row(&["cvt", "bf16"],         "nnnnYYYYYY", (7, 8)),
    row(&["szext"],               "YYYYYYYYYY", (7, 6)),
    row(&["bmsk"],                "YYYYYYYYYY", (7, 6)),
    row(&["dp4a"],                "YYYYYYYYYY", (5, 0)),
    row(&["dp2a"],                "YYYYYYYYYY", (5, 0)),
    row(&["lop3"],                "YYYYYYYYYY", (4, 3)),
    row(&["prmt"],                "YYYYYYYYYY", (2, 0)),
    row(&["bfe"],                 "YYYYYYYYYY", (2, 0)),
    row(&["bfi"],                 "YYYYYYYYYY", (2, 0)),
    row(&["bfind"],               "YYYYYYYYYY", (2, 0)),
    row(&["brev"],                "YYYYYYYYYY", (2, 0)),
    row(&["shf"],                 "YYYYYYYYYY", (3, 1)),
    row(&["copysign"],            "YYYYYYYYYY", (2, 0)),
    row(&["testp"],               "YYYYYYYYYY", (2, 0)),
    row(&["sin"],                 "YYYYYYYYYY", (1, 4)),
    row(&["cos"],                 "YYYYYYYYYY", (1, 4)),
    row(&["lg2"],                 "YYYYYYYYYY", (1, 4)),
    row(&["ex2"],                 "YYYYYYYYYY", (1, 4)),
    row(&["rcp"],                 "YYYYYYYYYY", (2, 1)),
    row(&["rsqrt"],               "YYYYYYYYYY", (2, 1)),
    row(&["sqrt"],                "YYYYYYYYYY", (1, 4)),
    row(&["mad"],                 "YYYYYYYYYY", (2, 0)),
    row(&["mov"],                 "YYYYYYYYYY", (1, 0)),
];

/// The PTX version that all instructions of `text` need on `target`; `None` if one of them is known not to exist there.
pub fn version(text: &str, target: Target) -> Option<PtxVersion> {
    let mut version = target.info().ptx;
    for statement in text.split(';') {
        // Behind the braces of a scope, and a predicate, if there is one; braces inside are of an operand.
        let braces = |c: char| c.is_whitespace() || c == '{' || c == '}';
        let mut words = statement.trim_start_matches(braces).split_whitespace();
        let mut first = words.next();
        if first.is_some_and(|w| w.starts_with('@')) {
            first = words.next();
        }
        let Some(name) = first.filter(|w| w.starts_with(|c: char| c.is_ascii_lowercase())) else {
            continue;
        };
        let parts: Vec<&str> = name.split('.').collect();
        let fits = |row: &&Row| {
            let (word, modifiers) = (row.words[0], &row.words[1..]);
            parts[0] == word && modifiers.iter().all(|m| parts[1..].contains(m))
        };
        match TABLE.iter().find(fits) {
            Some(row) if row.targets.as_bytes()[target.index()] != b'Y' => return None,
            Some(row) => version = version.max(row.ptx),
            None => version = version.max(NEWEST),
        }
    }
    Some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(text: &str, target: &str) -> Option<PtxVersion> {
        version(text, Target::parse(target).unwrap())
    }

    #[test]
    fn instructions_are_found_by_their_words() {
        assert_eq!(on("tanh.approx.f32 $0, $1;", "sm_75"), Some((7, 0)));
        assert_eq!(on("tanh.approx.bf16 $0, $1;", "sm_80"), None);
        assert_eq!(on("cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;", "sm_80"), None);
        assert_eq!(
            on(
                "{ .reg .b16 h; cvt.rn.satfinite.e4m3x2.f32 h, $1, $2; mov.b32 $0, {h, h}; }",
                "sm_89"
            ),
            Some((8, 1))
        );
        assert_eq!(on("add.rn.f32x2 $0, $1, $2;", "sm_90a"), None);
        assert_eq!(on("frobnicate.b32 $0, $1;", "sm_75"), Some(NEWEST));
        for row in TABLE {
            assert_eq!(row.targets.len(), Target::ALL.len());
        }
    }
}
