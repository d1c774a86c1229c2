//! Kernels written by hand, and their launches.

use tesserine_emulator::{
    FaultKind, Launch, Memory, Module, Options, target::Target, tensor_map::TensorMap,
};

/// A kernel with up to four parameters of 64 bits, and a tensor map.
pub struct Kernel {
    pub module: Module,
    pub memory: Memory,
    block: u32,
    grid: u32,
    cluster: u32,
    shared: u32,
}

pub const HEAD: &str = "
.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 shared[];
.visible .entry kernel(
  .param .u64 p0, .param .u64 p1, .param .u64 p2, .param .align 64 .b8 map[128])
{
  .reg .pred %p<8>;
  .reg .b16 %h<8>;
  .reg .b32 %r<32>;
  .reg .f32 %f<8>;
  .reg .b64 %rd<32>;
  ld.param.u64 %rd0, [p0];
  ld.param.u64 %rd1, [p1];
  ld.param.u64 %rd2, [p2];
  mov.b64 %rd3, map;
  cvta.param.u64 %rd3, %rd3;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, shared;
";

impl Kernel {
    /// A body: `%rd0` to `%rd2` are the parameters, `%rd3` the map's address, `%r0` the thread, `%r1` shared memory.
    pub fn new(body: &str, block: u32) -> Kernel {
        let text = format!("{HEAD}{body}\n  ret;\n}}\n");
        let device = Target::named("sm_90a").expect("a target");
        let module = Module::load(&text, device).unwrap_or_else(|e| panic!("{e}\n{text}"));
        Kernel {
            module,
            memory: Memory::new(),
            block,
            grid: 1,
            cluster: 1,
            shared: 16 << 10,
        }
    }

    pub fn cluster(mut self, blocks: u32) -> Kernel {
        (self.grid, self.cluster) = (blocks, blocks);
        self
    }

    pub fn blocks(mut self, blocks: u32) -> Kernel {
        self.grid = blocks;
        self
    }

    pub fn bytes(&self, bytes: &[u8]) -> u64 {
        let at = self.memory.allocate(bytes.len()).expect("memory");
        self.memory.write(at, bytes).expect("memory");
        at
    }

    pub fn words(&self, words: &[u32]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.bytes(&bytes)
    }

    pub fn read(&self, at: u64, words: usize) -> Vec<u32> {
        let mut bytes = vec![0; words * 4];
        self.memory.read(at, &mut bytes).expect("memory");
        let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        bytes.chunks(4).map(word).collect()
    }

    pub fn try_run(
        &self,
        parameters: [u64; 3],
        map: Option<&TensorMap>,
    ) -> Result<(), tesserine_emulator::Fault> {
        let [a, b, c] = parameters.map(u64::to_le_bytes);
        let map = map.map_or([0; 128], TensorMap::to_bytes);
        let launch = Launch {
            entry: "kernel",
            grid: [self.grid, 1, 1],
            block: [self.block, 1, 1],
            cluster: [self.cluster, 1, 1],
            shared_bytes: self.shared,
            arguments: &[&a, &b, &c, &map],
        };
        let options = Options {
            step_limit: 1 << 20,
            ..Options::default()
        };
        self.module
            .launch(&self.memory, &launch, &options)
            .map(|_| ())
    }

    pub fn run(&self, parameters: [u64; 3], map: Option<&TensorMap>) {
        if let Err(fault) = self.try_run(parameters, map) {
            panic!("{fault}");
        }
    }

    /// The kind and the text of the fault that there must be.
    pub fn fault(&self, parameters: [u64; 3], map: Option<&TensorMap>) -> (FaultKind, String) {
        match self.try_run(parameters, map) {
            Ok(()) => panic!("the kernel runs to its end"),
            Err(fault) => (fault.kind, fault.to_string()),
        }
    }
}

pub fn ramp(count: u32) -> Vec<u32> {
    (0..count)
        .map(|i| i.wrapping_mul(2_654_435_761) ^ 0x5a)
        .collect()
}
