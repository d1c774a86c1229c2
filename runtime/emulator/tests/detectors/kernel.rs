//! Kernels in two versions, and what is expected of each.
//!
//! A body has one instruction a line. A line that begins with `wrong|` is of the wrong version alone, one that begins with `right|` of the
//! right one. `<-` at a line's end says that the fault is there, `<~` that a note is. Each instruction has a source line of its own.

use tesserine_emulator::{
    Fault, FaultKind, Launch, Memory, Module, Options, Place, Thread, target::Target,
};

/// Bytes of each of the two buffers.
pub const BUFFER: usize = 4096;
/// Bytes of shared memory.
pub const SHARED: u32 = 16384;

/// `%rd0`, `%rd1`: two buffers of 4096 bytes of zeros. `%rd2`: one of 10 bytes. `%rd3`: the address of a freed one. `%rd4`: 4 times the
/// thread. `%rd5`, `%rd6`: the thread's word in the buffers. `%r0`: the thread. `%r1`: shared memory, `%r3` the thread's word there. `%r2`:
/// the block. `%r4`: the lane, `%r5`: the warp.
const HEAD: &str = "\
.version 8.6
.target sm_90a
.address_size 64
.file 1 \"kernel.tess\"
.extern .shared .align 1024 .b8 shared[];
.const .align 8 .b8 table[8] = {1, 0, 0, 0, 2, 0, 0, 0};
.visible .entry kernel(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3)
{
.reg .pred %p<16>;
.reg .b16 %h<8>;
.reg .b32 %r<64>;
.reg .f32 %f<16>;
.reg .b64 %rd<32>;
.local .align 8 .b8 frame[16];
ld.param.u64 %rd0, [p0];
ld.param.u64 %rd1, [p1];
ld.param.u64 %rd2, [p2];
ld.param.u64 %rd3, [p3];
mov.u32 %r0, %tid.x;
mov.u32 %r2, %ctaid.x;
mov.u32 %r1, shared;
mul.wide.u32 %rd4, %r0, 4;
add.u64 %rd5, %rd0, %rd4;
add.u64 %rd6, %rd1, %rd4;
shl.b32 %r3, %r0, 2;
add.u32 %r3, %r1, %r3;
and.b32 %r4, %r0, 31;
shr.u32 %r5, %r0, 5;
";

/// The source line of a body's first instruction.
const FIRST_SOURCE: u32 = 100;

pub struct Kernel {
    body: String,
    block: u32,
    grid: u32,
    cluster: u32,
    step_limit: u64,
}

/// A text, and where its marks are: lines of the PTX and of the source.
struct Text {
    ptx: String,
    fault: Option<(u32, u32)>,
    note: Option<(u32, u32)>,
}

impl Kernel {
    pub fn new(block: u32, body: impl Into<String>) -> Kernel {
        Kernel {
            body: body.into(),
            block,
            grid: 1,
            cluster: 1,
            step_limit: 1 << 20,
        }
    }

    pub fn grid(mut self, blocks: u32) -> Kernel {
        self.grid = blocks;
        self
    }

    pub fn cluster(mut self, blocks: u32) -> Kernel {
        (self.grid, self.cluster) = (blocks, blocks);
        self
    }

    pub fn step_limit(mut self, steps: u64) -> Kernel {
        self.step_limit = steps;
        self
    }

    fn text(&self, right: bool) -> Text {
        let mut text = Text {
            ptx: HEAD.to_owned(),
            fault: None,
            note: None,
        };
        let (drop, keep) = match right {
            true => ("wrong|", "right|"),
            false => ("right|", "wrong|"),
        };
        for (source, line) in (FIRST_SOURCE..).zip(self.body.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with(drop) {
                continue;
            }
            let line = line.strip_prefix(keep).unwrap_or(line).trim();
            let (line, mark) = match (line.strip_suffix("<-"), line.strip_suffix("<~")) {
                (Some(line), _) => (line, Some(&mut text.fault)),
                (_, Some(line)) => (line, Some(&mut text.note)),
                _ => (line, None),
            };
            text.ptx += &format!(".loc 1 {source} 5\n{}\n", line.trim());
            if let Some(mark) = mark {
                let previous = mark.replace((text.ptx.lines().count() as u32, source));
                assert!(previous.is_none(), "a mark stands once in a version");
            }
        }
        text.ptx += "ret;\n}\n";
        text
    }

    fn launch(&self, text: &str, seed: u64) -> (Result<(), Fault>, Vec<u32>) {
        let target = Target::named("sm_90a").expect("a target");
        let module = Module::load(text, target).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let memory = Memory::new();
        let buffer = |bytes: usize| {
            let at = memory.allocate(bytes).expect("memory");
            memory.write(at, &vec![0; bytes]).expect("memory");
            at
        };
        let buffers = [buffer(BUFFER), buffer(BUFFER), buffer(10), buffer(64)];
        memory.free(buffers[3]).expect("an allocation");
        let arguments = buffers.map(u64::to_le_bytes);
        let arguments = arguments.each_ref().map(|a| &a[..]);
        let launch = Launch {
            entry: "kernel",
            grid: [self.grid, 1, 1],
            block: [self.block, 1, 1],
            cluster: [self.cluster, 1, 1],
            shared_bytes: SHARED,
            arguments: &arguments,
        };
        let options = Options {
            step_limit: self.step_limit,
            workers: 1,
            seed,
            ..Options::default()
        };
        let done = module.launch(&memory, &launch, &options).map(drop);
        let mut bytes = vec![0; BUFFER];
        memory.read(buffers[1], &mut bytes).expect("memory");
        let words = bytes.as_chunks::<4>().0;
        (done, words.iter().map(|w| u32::from_le_bytes(*w)).collect())
    }

    /// The right version runs clean; gives the second buffer, which must not hang on the order of warps.
    pub fn clean(&self) -> Vec<u32> {
        let text = self.text(true).ptx;
        let run = |seed| match self.launch(&text, seed) {
            (Ok(()), out) => out,
            (Err(fault), _) => panic!("{fault}\n{text}"),
        };
        let out = run(0);
        for seed in 1..5 {
            assert!(run(seed) == out, "another order, another result\n{text}");
        }
        out
    }

    /// The wrong version's fault, in the order of seed 0.
    pub fn fault(&self) -> Fault {
        let text = self.text(false).ptx;
        match self.launch(&text, 0) {
            (Err(fault), _) => fault,
            (Ok(()), _) => panic!("the kernel runs to its end\n{text}"),
        }
    }

    /// The wrong version has a fault of that kind, by those threads (block and range) where the mark is, whose message has these words; the
    /// right version has none.
    pub fn detects(&self, kind: FaultKind, threads: &[(u32, Threads)], words: &[&str]) -> Fault {
        let fault = self.fault();
        let text = self.text(false);
        let all = format!("{fault}\n{}", text.ptx);
        assert_eq!(fault.kind, kind, "{all}");
        assert_eq!(fault.threads, list(threads), "{all}");
        if let Some(mark) = text.fault {
            assert_place(fault.place.as_ref(), mark, &all);
        }
        for word in words {
            assert!(fault.to_string().contains(word), "no {word:?} in: {all}");
        }
        for seed in 1..5 {
            let (done, _) = self.launch(&text.ptx, seed);
            let found = done.map_err(|f| f.kind);
            // A read may come before the write that it races with, too.
            let early = kind == FaultKind::Race && found == Err(FaultKind::UninitializedMemory);
            assert!(
                found == Err(kind) || early,
                "seed {seed}: {found:?}, not {all}"
            );
        }
        self.clean();
        fault
    }

    /// The same for a fault that has another party, whose note names those threads and the other mark.
    pub fn detects_pair(
        &self,
        kind: FaultKind,
        threads: &[(u32, Threads)],
        others: &[(u32, Threads)],
        words: &[&str],
    ) {
        let fault = self.detects(kind, threads, words);
        let text = self.text(false);
        let all = format!("{fault}\n{}", text.ptx);
        let [note] = &fault.notes[..] else {
            panic!("one note: {all}");
        };
        assert_eq!(note.threads, list(others), "{all}");
        assert_place(note.place.as_ref(), text.note.expect("a mark"), &all);
    }
}

/// Of a block, with both ends.
pub type Threads = std::ops::RangeInclusive<u32>;

pub fn one(thread: u32) -> Threads {
    thread..=thread
}

fn list(threads: &[(u32, Threads)]) -> Vec<Thread> {
    let of = |(block, range): &(u32, Threads)| {
        let block = [*block, 0, 0];
        range.clone().map(move |thread| Thread { block, thread })
    };
    threads.iter().flat_map(of).collect()
}

fn assert_place(place: Option<&Place>, (ptx_line, source_line): (u32, u32), all: &str) {
    let place = place.unwrap_or_else(|| panic!("no place: {all}"));
    assert_eq!(place.ptx_line, ptx_line, "{all}");
    let source = place
        .source
        .as_ref()
        .map(|(file, line, column)| (&**file, *line, *column));
    assert_eq!(source, Some(("kernel.tess", source_line, 5)), "{all}");
}
