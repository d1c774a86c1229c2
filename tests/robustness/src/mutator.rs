//! Programs that are almost right.
//!
//! Invariant: an input is a function of the seeds and its number.

/// Makes inputs out of seeds.
#[derive(Debug)]
pub struct Mutator<'c> {
    seeds: Vec<&'c str>,
    state: u64,
}

/// Numbers at the edges of types and limits.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "31",
    "32",
    "64",
    "127",
    "128",
    "255",
    "256",
    "1024",
    "4096",
    "65536",
    "65537",
    "16777216",
    "16777217",
    "2147483647",
    "2147483648",
    "4294967295",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e309",
    "1e-320",
    "0.5",
    "-1",
    "-0.0",
    "inf",
    "nan",
    "0x",
    "0xffff_ffff_ffff_ffff",
];

/// Signs and words that change what is around them.
const WORDS: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    ",",
    ";",
    ":",
    "::",
    ".",
    "..",
    "+:",
    "->",
    "=",
    "==",
    "!=",
    "<=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "<<",
    ">>",
    "&",
    "&&",
    "|",
    "||",
    "^",
    "!",
    "_",
    "as",
    "if",
    "else",
    "for",
    "const",
    "while",
    "let",
    "mut",
    "in",
    "until",
    "rev",
    "step",
    "break",
    "continue",
    "return",
    "scatter",
    "view",
    "out",
    "grid",
    "where",
    "order",
    "cluster",
    "persistent",
    "dynamic",
    "kernel",
    "fn",
    "op",
    "test",
    "launch",
    "call",
    "at",
    "f32",
    "f16",
    "bf16",
    "f64",
    "i32",
    "i64",
    "u8",
    "u1",
    "i4",
    "e4m3",
    "bool",
    "tile",
    "zeros",
    "full",
    "iota",
    "dot",
    "sum",
    "max",
    "exp",
    "select",
    "load",
    "store",
    "cumsum",
    "sort",
    "topk",
    "take",
    "arrive",
    "given",
    "x",
    "self",
    "\"",
    "//",
    "///",
    "\u{3a3}",
    "\0",
    "%0",
    "%1",
    "%2",
    "yield",
    "if",
    "for",
];

impl<'c> Mutator<'c> {
    pub fn new(seeds: Vec<&'c str>) -> Mutator<'c> {
        assert!(!seeds.is_empty(), "nothing to mutate");
        Mutator { seeds, state: 0 }
    }

    /// A number below `n`, at least 1.
    fn below(&mut self, n: usize) -> usize {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }

    fn seed(&mut self) -> &'c str {
        let index = self.below(self.seeds.len());
        self.seeds[index]
    }

    fn pick<'t>(&mut self, list: &[&'t str]) -> &'t str {
        list[self.below(list.len())]
    }

    /// Input `number`.
    pub fn input(&mut self, number: u64) -> Vec<u8> {
        self.state = number.wrapping_mul(0xd134_2543_de82_ef95);
        let seed = self.seed();
        let mut parts: Vec<String> = split(seed).map(str::to_owned).collect();
        // Mostly one change: what is wrong in many places is refused by the parser.
        let changes = [1, 1, 1, 1, 2, 2, 3, 8][self.below(8)];
        for _ in 0..changes {
            self.change(&mut parts);
        }
        let mut bytes = parts.concat().into_bytes();
        if self.below(16) == 0 && !bytes.is_empty() {
            for _ in 0..1 + self.below(4) {
                let at = self.below(bytes.len());
                match self.below(3) {
                    0 => bytes[at] = self.below(256) as u8,
                    1 => bytes.insert(at, self.below(256) as u8),
                    _ => bytes.truncate(at.max(1)),
                }
            }
        }
        bytes
    }

    fn change(&mut self, parts: &mut Vec<String>) {
        if parts.is_empty() {
            parts.push(self.pick(WORDS).to_owned());
            return;
        }
        let at = self.below(parts.len());
        let other = self.below(parts.len());
        match self.below(14) {
            0 => {
                parts.remove(at);
            }
            1 => parts.insert(at, format!(" {} ", self.pick(WORDS))),
            2 => parts[at] = self.pick(WORDS).to_owned(),
            3 => parts.swap(at, other),
            // A piece of the same text.
            4 => parts[at] = parts[other].clone(),
            5 => {
                let end = (at + 1 + self.below(12)).min(parts.len());
                let piece = parts[at..end].to_vec();
                parts.splice(other..other, piece);
            }
            6 => {
                let end = (at + 1 + self.below(12)).min(parts.len());
                parts.drain(at..end);
            }
            // A piece of another.
            7 => {
                let from: Vec<String> = split(self.seed()).map(str::to_owned).collect();
                if !from.is_empty() {
                    let start = self.below(from.len());
                    let end = (start + 1 + self.below(24)).min(from.len());
                    parts.splice(at..at, from[start..end].iter().cloned());
                }
            }
            8 => {
                let times = [2, 3, 50, 300][self.below(4)];
                let one = parts[at].clone();
                parts[at] = one.repeat(times);
            }
            // Numbers and names, where there are some.
            9..=11 => {
                let numbers: Vec<usize> = (0..parts.len())
                    .filter(|&i| parts[i].starts_with(|c: char| c.is_ascii_digit()))
                    .collect();
                match numbers.is_empty() {
                    true => parts.insert(at, self.pick(NUMBERS).to_owned()),
                    false => {
                        parts[numbers[self.below(numbers.len())]] = self.pick(NUMBERS).to_owned()
                    }
                }
            }
            _ => {
                let names: Vec<usize> = (0..parts.len())
                    .filter(|&i| parts[i].starts_with(|c: char| c.is_ascii_alphabetic()))
                    .collect();
                if !names.is_empty() {
                    let (to, from) = (
                        names[self.below(names.len())],
                        names[self.below(names.len())],
                    );
                    parts[to] = parts[from].clone();
                }
            }
        }
    }
}

/// Words, numbers, runs of spaces, and single signs; together the whole text.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let class = |c: char| match c {
        c if c.is_ascii_alphanumeric() || c == '_' => 0,
        c if c.is_whitespace() => 1,
        _ => 2,
    };
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = class(rest.chars().next()?);
        let end = match first {
            2 => rest.chars().next().map_or(0, char::len_utf8),
            _ => rest.find(|c| class(c) != first).unwrap_or(rest.len()),
        };
        let (part, after) = rest.split_at(end);
        rest = after;
        Some(part)
    })
}
