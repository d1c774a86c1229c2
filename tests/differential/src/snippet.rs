//! Snippets: an instruction or a few, with what they take and give, and the kernel that a snippet becomes.
//!
//! Every thread loads its operands into `%i0`, `%i1`, …, executes the body, and stores `%o0`, `%o1`, …. Besides these a body may use
//! `%tid_` (thread of the block), `%lane_`, `%gid` (thread of the grid), the 64-bit addresses `%raw` (input bytes that all threads see) and
//! `%extra` (words that it may change, compared afterwards), and scratch registers `%h0`–`%h31` (16 bits), `%r0`–`%r127` (32), `%q0`–`%q63`
//! (64) and `%p0`–`%p31`. Where [`Snippet::shared`] is not 0 there is a `.shared` array `shared`, aligned to 1024 bytes.
//!
//! Invariant: a snippet's result depends on its operands only, whatever the order of threads and blocks.

use std::{
    fmt::{self, Write},
    sync::Arc,
};

use tesserine_emulator::tensor_map::{DataType, L2Promotion, MAP_BYTES, OobFill, Swizzle};

use crate::kind::{Bound, Draw, Element, Operand, Random};

/// What first has an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// 80 for `sm_80`.
    pub sm: u32,
    /// PTX version that its kernels need at least.
    pub ptx: (u32, u32),
    /// The `a` targets that alone have it; empty if all from `sm` on do.
    pub exact: &'static [u32],
}

const fn since(sm: u32, ptx: (u32, u32)) -> Since {
    Since {
        sm,
        ptx,
        exact: &[],
    }
}

pub const SM_75: Since = since(75, (8, 6));
pub const SM_80: Since = since(80, (8, 6));
pub const SM_86: Since = since(86, (8, 6));
pub const SM_89: Since = since(89, (8, 6));
pub const SM_90: Since = since(90, (8, 6));
pub const SM_100: Since = since(100, (8, 6));
pub const SM_90A: Since = Since {
    exact: &[90],
    ..SM_90
};
/// What the data-centre and the consumer Blackwells share.
pub const BLACKWELL_A: Since = Since {
    exact: &[100, 103, 110, 120, 121],
    ..since(100, (8, 6))
};

/// A `.target` that snippets are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub sm: u32,
    pub exact: bool,
}

impl Target {
    /// Those that PTX is written for, with the PTX version that snippets for them name: one that has nearly everything.
    const ALL: [(u32, bool, (u32, u32)); 10] = [
        (75, false, (8, 6)),
        (80, false, (8, 6)),
        (86, false, (8, 6)),
        (89, false, (8, 6)),
        (90, true, (8, 6)),
        (100, true, (8, 6)),
        (103, true, (8, 8)),
        (110, true, (9, 0)),
        (120, true, (8, 7)),
        (121, true, (8, 8)),
    ];

    /// All targets, ascending.
    pub fn all() -> impl Iterator<Item = Target> {
        let of = |(sm, exact, _)| Target { sm, exact };
        Target::ALL.into_iter().map(of)
    }

    pub fn named(name: &str) -> Option<Target> {
        Target::all().find(|t| t.to_string() == name)
    }

    /// Whether it has what came with `since`.
    pub fn has(self, since: Since) -> bool {
        match since.exact {
            [] => self.sm >= since.sm,
            exact => self.exact && exact.contains(&self.sm),
        }
    }

    /// The PTX version that a kernel for it needs if it uses what came with `since`.
    pub fn ptx(self, since: Since) -> (u32, u32) {
        let own = Target::ALL.into_iter().find(|t| t.0 == self.sm);
        own.map_or(since.ptx, |t| t.2.max(since.ptx))
    }

    /// The first target that has it.
    pub fn first(since: Since) -> Option<Target> {
        Target::all().find(|t| t.has(since))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.sm, if self.exact { "a" } else { "" })
    }
}

/// A register that a snippet gives, and how far two devices' may differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Output {
    pub of: Operand,
    pub bound: Bound,
}

/// From the operands of all threads, `inputs[operand][thread]`, the results, `outputs[output][thread]`. Written on its own, from the
/// meaning of the instruction.
type Reference = Arc<dyn Fn(&[Vec<u64>]) -> Vec<Vec<u64>> + Send + Sync>;

/// From the operands, how far the results may be off beside what their bounds say, `slack[output][thread]`.
type Slack = Arc<dyn Fn(&[Vec<u64>]) -> Vec<Vec<f64>> + Send + Sync>;

/// An instruction or a few, with operands and results.
#[derive(Clone)]
pub struct Snippet {
    pub family: &'static str,
    /// Unique.
    pub name: String,
    pub since: Since,
    pub inputs: Vec<Operand>,
    pub outputs: Vec<Output>,
    pub body: String,
    /// What stands before the entry: constants and global variables.
    pub globals: String,
    pub block: u32,
    pub grid: u32,
    /// Blocks of a cluster.
    pub cluster: u32,
    /// Bytes of static shared memory.
    pub shared: u32,
    /// Bytes that all threads read: registers of that kind.
    pub raw: Option<(Operand, usize)>,
    /// Words that the kernel changes: registers of that kind, drawn at random or zero at first.
    pub extra: Option<(Output, usize, bool)>,
    /// A tensor in global memory, of which `%raw` is the address of a tensor map; compared afterwards.
    pub tensor: Option<Tensor>,
    pub reference: Option<Reference>,
    /// What is added to the bounds of single cases.
    pub slack: Option<Slack>,
}

/// A tensor that bulk copies reach by a map: the parameters of `cuTensorMapEncodeTiled`, but for the address.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub data_type: DataType,
    /// Elements, innermost first.
    pub dims: Vec<u64>,
    /// Bytes, of all dimensions but the innermost.
    pub strides: Vec<u64>,
    pub box_dim: Vec<u32>,
    pub element_strides: Vec<u32>,
    pub swizzle: Swizzle,
    pub promotion: L2Promotion,
    pub fill: OobFill,
    /// What its memory is drawn as: registers of 64 bits, so many of them.
    pub of: Operand,
    pub words: usize,
    pub bound: Bound,
}

/// Values that a snippet runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cases {
    /// `inputs[operand][thread]`.
    pub inputs: Vec<Vec<u64>>,
    pub raw: Vec<u64>,
    pub extra: Vec<u64>,
    pub tensor: Vec<u64>,
}

/// Bytes of a register in memory, of operands and results.
pub const SLOT: usize = 8;

impl Snippet {
    pub fn new(family: &'static str, name: impl Into<String>) -> Snippet {
        Snippet {
            family,
            name: name.into(),
            since: SM_75,
            inputs: Vec::new(),
            outputs: Vec::new(),
            body: String::new(),
            globals: String::new(),
            block: 128,
            grid: 32,
            cluster: 1,
            shared: 0,
            raw: None,
            extra: None,
            tensor: None,
            reference: None,
            slack: None,
        }
    }

    /// One instruction, named by its mnemonic and perhaps a remark after a comma, with a result of `output` and the operands `inputs` in that order.
    pub fn of(
        family: &'static str,
        mnemonic: &str,
        inputs: &[Operand],
        output: Operand,
        bound: Bound,
    ) -> Snippet {
        let operands: Vec<String> = (0..inputs.len()).map(|i| format!("%i{i}")).collect();
        // What follows a comma tells snippets of one instruction apart.
        let instruction = mnemonic.split(',').next().unwrap_or_default();
        Snippet::new(family, mnemonic)
            .takes(inputs)
            .gives(output, bound)
            .body(format!("{instruction} %o0, {};", operands.join(", ")))
    }

    pub fn since(self, since: Since) -> Snippet {
        Snippet { since, ..self }
    }

    pub fn takes(mut self, inputs: &[Operand]) -> Snippet {
        self.inputs.extend(inputs);
        self
    }

    pub fn gives(mut self, of: Operand, bound: Bound) -> Snippet {
        self.outputs.push(Output { of, bound });
        self
    }

    pub fn body(self, body: impl Into<String>) -> Snippet {
        Snippet {
            body: body.into(),
            ..self
        }
    }

    pub fn globals(self, globals: impl Into<String>) -> Snippet {
        Snippet {
            globals: globals.into(),
            ..self
        }
    }

    pub fn launch(self, grid: u32, block: u32) -> Snippet {
        Snippet {
            grid,
            block,
            ..self
        }
    }

    pub fn cluster(self, cluster: u32) -> Snippet {
        Snippet { cluster, ..self }
    }

    pub fn shared(self, shared: u32) -> Snippet {
        Snippet { shared, ..self }
    }

    pub fn raw(self, of: Operand, count: usize) -> Snippet {
        Snippet {
            raw: Some((of, count)),
            ..self
        }
    }

    pub fn extra(self, of: Operand, bound: Bound, count: usize, random: bool) -> Snippet {
        Snippet {
            extra: Some((Output { of, bound }, count, random)),
            ..self
        }
    }

    /// With a tensor, whose map lies where raw bytes do.
    pub fn tensor(self, tensor: Tensor) -> Snippet {
        let map = Operand {
            width: 64,
            element: Element::Bits,
            draw: Draw::Below(1),
        };
        Snippet {
            tensor: Some(tensor),
            raw: Some((map, MAP_BYTES / 8)),
            ..self
        }
    }

    /// Room that hangs on the operands: sums, whose terms' magnitudes bound their errors.
    pub fn slack(
        self,
        of: impl Fn(&[Vec<u64>]) -> Vec<Vec<f64>> + Send + Sync + 'static,
    ) -> Snippet {
        Snippet {
            slack: Some(Arc::new(of)),
            ..self
        }
    }

    /// The bound of a result.
    pub fn bound(
        &self,
        output: usize,
        thread: usize,
        how: Output,
        slack: Option<&Vec<Vec<f64>>>,
    ) -> Bound {
        let more = slack.and_then(|s| s.get(output)?.get(thread));
        more.map_or(how.bound, |more| how.bound.with_slack(*more))
    }

    /// A reference for threads that do not see each other.
    pub fn refer(self, of: impl Fn(&[u64]) -> u64 + Send + Sync + 'static) -> Snippet {
        self.refer_all(move |inputs| {
            let threads = inputs.first().map_or(0, Vec::len);
            let one = |t: usize| {
                let operands: Vec<u64> = inputs.iter().map(|i| i[t]).collect();
                of(&operands)
            };
            vec![(0..threads).map(one).collect()]
        })
    }

    /// A reference for all threads at once.
    pub fn refer_all(
        self,
        of: impl Fn(&[Vec<u64>]) -> Vec<Vec<u64>> + Send + Sync + 'static,
    ) -> Snippet {
        Snippet {
            reference: Some(Arc::new(of)),
            ..self
        }
    }

    /// The same for a few hundred threads, if the number does not matter to it: for quick checks.
    pub fn smaller(self) -> Snippet {
        let free = self.grid == 32 && self.cluster == 1;
        match free && self.raw.is_none() && self.extra.is_none() && self.tensor.is_none() {
            true => Snippet { grid: 4, ..self },
            false => self,
        }
    }

    pub fn threads(&self) -> usize {
        (self.grid * self.block) as usize
    }

    /// The values that it runs on: special values crossed, as many as half the threads take, then random ones.
    pub fn cases(&self, seed: u64) -> Cases {
        let mut random = Random::new(seed, &self.name);
        let threads = self.threads();
        let specials: Vec<Vec<u64>> = self.inputs.iter().map(|i| i.specials()).collect();
        let crossed = specials
            .iter()
            .filter(|s| !s.is_empty())
            .map(Vec::len)
            .fold(1usize, usize::saturating_mul);
        let special = match specials.iter().all(Vec::is_empty) {
            true => 0,
            false => crossed.min(threads / 2),
        };
        let mut inputs = vec![Vec::with_capacity(threads); self.inputs.len()];
        for thread in 0..threads {
            // Which combination of special values; all of them if they fit.
            let mut combination = match crossed <= threads / 2 {
                true => thread,
                false => random.bits() as usize >> 1,
            };
            for ((operand, among), values) in self.inputs.iter().zip(&specials).zip(&mut inputs) {
                values.push(match thread < special && !among.is_empty() {
                    true => {
                        let value = among[combination % among.len()];
                        combination /= among.len();
                        value
                    }
                    false => operand.draw(&mut random),
                });
            }
        }
        let mut fill = |(of, count): (Operand, usize)| -> Vec<u64> {
            (0..count).map(|_| of.draw(&mut random)).collect()
        };
        let raw = self.raw.map_or(Vec::new(), &mut fill);
        let extra = match self.extra {
            Some((output, count, true)) => fill((output.of, count)),
            Some((_, count, false)) => vec![0; count],
            None => Vec::new(),
        };
        let tensor = self
            .tensor
            .as_ref()
            .map_or(Vec::new(), |t| fill((t.of, t.words)));
        Cases {
            inputs,
            raw,
            extra,
            tensor,
        }
    }

    /// Bytes of the operands: each a slot, threads side by side, then the raw registers side by side.
    pub fn input_bytes(&self, cases: &Cases) -> Vec<u8> {
        let mut bytes: Vec<u8> = cases
            .inputs
            .iter()
            .flatten()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        if let Some((of, _)) = self.raw {
            let size = (of.width / 8) as usize;
            let raw = cases
                .raw
                .iter()
                .flat_map(|v| v.to_le_bytes().into_iter().take(size));
            bytes.extend(raw);
        }
        // A device refuses to allocate nothing.
        bytes.resize(bytes.len().next_multiple_of(SLOT).max(SLOT), 0);
        bytes
    }

    /// Bytes of the results before the launch.
    pub fn output_bytes(&self, cases: &Cases) -> Vec<u8> {
        let mut bytes = vec![0u8; self.outputs.len() * self.threads() * SLOT];
        if let Some((output, ..)) = self.extra {
            let size = (output.of.width / 8) as usize;
            let extra = cases
                .extra
                .iter()
                .flat_map(|v| v.to_le_bytes().into_iter().take(size));
            bytes.extend(extra);
        }
        bytes.resize(bytes.len().next_multiple_of(SLOT).max(SLOT), 0);
        bytes
    }

    /// The results in those bytes, output by output; the extra registers are a last output.
    pub fn results(&self, bytes: &[u8]) -> Vec<Vec<u64>> {
        let threads = self.threads();
        let word = |at: usize, size: usize| {
            let mut word = [0u8; 8];
            word[..size].copy_from_slice(&bytes[at..at + size]);
            u64::from_le_bytes(word)
        };
        let mut all: Vec<Vec<u64>> = (0..self.outputs.len())
            .map(|k| {
                (0..threads)
                    .map(|t| word((k * threads + t) * SLOT, SLOT))
                    .collect()
            })
            .collect();
        if let Some((output, count, _)) = self.extra {
            let size = (output.of.width / 8) as usize;
            let start = self.outputs.len() * threads * SLOT;
            all.push((0..count).map(|i| word(start + i * size, size)).collect());
        }
        all
    }

    /// What a run gives, each output with how it compares: the extra registers and the tensor's memory are the last ones.
    pub fn compared(&self) -> Vec<Output> {
        let extra = self.extra.iter().map(|(output, ..)| *output);
        let tensor = self.tensor.iter().map(|t| Output {
            of: t.of,
            bound: t.bound,
        });
        self.outputs
            .iter()
            .copied()
            .chain(extra)
            .chain(tensor)
            .collect()
    }

    /// The kernel, without the module's head.
    pub fn entry(&self, entry: &str) -> String {
        let threads = self.threads();
        let mut text = String::new();
        // Writing to a string cannot fail.
        let mut line = |args: fmt::Arguments<'_>| {
            let _ = text.write_fmt(args);
            text.push('\n');
        };
        line(format_args!("{}", self.globals));
        line(format_args!(
            ".visible .entry {entry}(.param .u64 {entry}_in, .param .u64 {entry}_out)"
        ));
        line(format_args!(".reqntid {}, 1, 1", self.block));
        if self.cluster > 1 {
            line(format_args!(
                ".explicitcluster\n.reqnctapercluster {}, 1, 1",
                self.cluster
            ));
        }
        line(format_args!("{{"));
        line(format_args!("\t.reg .b32 %tid_, %lane_, %gid, %t32;"));
        line(format_args!("\t.reg .b64 %in, %out, %raw, %extra, %t64;"));
        line(format_args!("\t.reg .pred %p<32>;"));
        line(format_args!("\t.reg .b16 %h<32>;"));
        line(format_args!("\t.reg .b32 %r<128>;"));
        line(format_args!("\t.reg .b64 %q<64>;"));
        let class = |o: &Operand| match o.width {
            1 => "pred".to_string(),
            width => format!("b{width}"),
        };
        for (k, input) in self.inputs.iter().enumerate() {
            line(format_args!("\t.reg .{} %i{k};", class(input)));
        }
        for (k, output) in self.outputs.iter().enumerate() {
            line(format_args!("\t.reg .{} %o{k};", class(&output.of)));
        }
        if self.shared > 0 {
            line(format_args!(
                "\t.shared .align 1024 .b8 shared[{}];",
                self.shared
            ));
        }
        line(format_args!("\tld.param.u64 %in, [{entry}_in];"));
        line(format_args!("\tld.param.u64 %out, [{entry}_out];"));
        line(format_args!("\tcvta.to.global.u64 %in, %in;"));
        line(format_args!("\tcvta.to.global.u64 %out, %out;"));
        line(format_args!("\tmov.u32 %tid_, %tid.x;"));
        line(format_args!("\tmov.u32 %t32, %ctaid.x;"));
        line(format_args!(
            "\tmad.lo.u32 %gid, %t32, {}, %tid_;",
            self.block
        ));
        line(format_args!("\tand.b32 %lane_, %tid_, 31;"));
        line(format_args!(
            "\tadd.s64 %raw, %in, {};",
            self.inputs.len() * threads * SLOT
        ));
        line(format_args!(
            "\tadd.s64 %extra, %out, {};",
            self.outputs.len() * threads * SLOT
        ));
        line(format_args!("\tmul.wide.u32 %t64, %gid, {SLOT};"));
        line(format_args!("\tadd.s64 %in, %in, %t64;"));
        line(format_args!("\tadd.s64 %out, %out, %t64;"));
        for (k, input) in self.inputs.iter().enumerate() {
            let offset = k * threads * SLOT;
            match input.width {
                1 => {
                    line(format_args!("\tld.global.u32 %t32, [%in+{offset}];"));
                    line(format_args!("\tsetp.ne.u32 %i{k}, %t32, 0;"));
                }
                width => line(format_args!("\tld.global.b{width} %i{k}, [%in+{offset}];")),
            }
        }
        for part in self.body.lines() {
            line(format_args!("\t{}", part.trim()));
        }
        for (k, output) in self.outputs.iter().enumerate() {
            let offset = k * threads * SLOT;
            match output.of.width {
                1 => {
                    line(format_args!("\tselp.u32 %t32, 1, 0, %o{k};"));
                    line(format_args!("\tst.global.u32 [%out+{offset}], %t32;"));
                }
                width => line(format_args!("\tst.global.b{width} [%out+{offset}], %o{k};")),
            }
        }
        line(format_args!("\tret;\n}}"));
        text
    }
}

/// Words as they lie in memory.
pub fn words(of: &[u64]) -> Vec<u8> {
    of.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// The head of a module.
pub fn head(target: Target, ptx: (u32, u32)) -> String {
    let (major, minor) = ptx;
    format!(".version {major}.{minor}\n.target {target}\n.address_size 64\n\n")
}
