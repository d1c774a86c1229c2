//! Snippets as kernel sets, and their runs on a device.

use tesserine::{Args, DType, Device, Error, KernelSet};
use tesserine_set::{
    AbiArg, Access, BodyRecord, Formula, Instance, Manifest, ModuleKind, Param, ParamKind,
    SetWriter, Signature, ViewFacts, ViewParam, WriteError,
};

use crate::{
    map::{self, MapError},
    snippet::{Cases, SLOT, Snippet, Target, head, words},
};

/// Why a snippet gave no results.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{0}")]
    Device(#[from] Error),
    #[error("{0}")]
    Write(#[from] WriteError),
    #[error("{0}")]
    Map(#[from] MapError),
}

/// Snippets of one module, ready to run. One that cannot be loaded takes the others of its module with it.
pub struct Loaded {
    set: KernelSet,
    target: String,
}

fn view(name: &str, access: Access, dim: usize) -> Param {
    Param {
        name: name.into(),
        optional: false,
        kind: ParamKind::View(ViewParam {
            dtype: DType::U64,
            access,
            extents: vec![Formula::dim(dim as u32)],
            strided: false,
            facts: ViewFacts::default(),
        }),
    }
}

/// The text of a module of snippets, all of which the target has.
pub fn module_text(snippets: &[&Snippet], target: Target) -> String {
    let mut text = head(target, module_ptx(snippets, target));
    for (index, snippet) in snippets.iter().enumerate() {
        text += &snippet.entry(&format!("k{index}"));
    }
    text
}

fn module_ptx(snippets: &[&Snippet], target: Target) -> (u32, u32) {
    let versions = snippets.iter().map(|s| target.ptx(s.since));
    versions.max().unwrap_or((7, 0))
}

impl Loaded {
    /// A set in memory with one module of these snippets.
    pub fn new(snippets: &[&Snippet], target: Target) -> Result<Loaded, RunError> {
        let text = module_text(snippets, target);
        let ptx_version = module_ptx(snippets, target);
        let instance = |(index, snippet): (usize, &&Snippet)| Instance {
            name: format!("k{index}"),
            source: "differential".into(),
            source_hash: String::new(),
            signature: Signature {
                dims: vec!["I".into(), "O".into()],
                params: vec![
                    view("in", Access::Read, 0),
                    view("out", Access::ReadWrite, 1),
                ],
            },
            requires: Vec::new(),
            bodies: vec![BodyRecord {
                target: target.to_string(),
                facts: Vec::new(),
                cost: None,
                entry: format!("k{index}"),
                grid: vec![Formula::int(snippet.grid as i64)],
                persistent: None,
                cluster: snippet.cluster,
                overlap: false,
                threads: snippet.block,
                shared_bytes: 0,
                tensor_maps: Vec::new(),
                abi: vec![AbiArg::Pointer { param: 0 }, AbiArg::Pointer { param: 1 }],
                ptx_version,
                ptx: 0,
                cubin: None,
                resources: None,
            }],
            unordered: false,
            tune: Vec::new(),
        };
        let mut writer = SetWriter::new(Manifest {
            name: "differential".into(),
            compiler: env!("CARGO_PKG_VERSION").into(),
            instances: snippets.iter().enumerate().map(instance).collect(),
            ops: Vec::new(),
        });
        writer.add_module(ModuleKind::Ptx, text.as_bytes());
        Ok(Loaded {
            set: KernelSet::from_bytes(writer.finish()?)?,
            target: target.to_string(),
        })
    }

    /// Runs the snippet that stood at `index`: its results, output by output.
    pub fn run(
        &self,
        device: &Device,
        index: usize,
        snippet: &Snippet,
        cases: &Cases,
    ) -> Result<Vec<Vec<u64>>, RunError> {
        let upload = |bytes: Vec<u8>| {
            let count = (bytes.len() / SLOT) as i64;
            device.upload(DType::U64, &[count], &bytes)
        };
        let tensor = match &snippet.tensor {
            Some(tensor) => Some((tensor, upload(words(&cases.tensor))?)),
            None => None,
        };
        let mut cases = cases.clone();
        if let Some((tensor, memory)) = &tensor {
            let emulated = device.to_string().starts_with("emulator");
            cases.raw = map::encode(tensor, memory.view().pointer(), emulated)?;
        }
        let cases = &cases;
        let input = upload(snippet.input_bytes(cases))?;
        let output = upload(snippet.output_bytes(cases))?;
        let args = Args::new()
            .tensor("in", input.view())
            .tensor("out", output.view());
        let stream = device.stream()?;
        let kernel = self.set.kernel(&format!("k{index}"))?;
        kernel.launch_for(&stream, &args, Some(&self.target))?;
        stream.synchronize()?;
        let mut results = snippet.results(&output.read()?);
        if let Some((_, memory)) = &tensor {
            let bytes = memory.read()?;
            let word = |b: &[u8]| b.iter().rev().fold(0u64, |all, b| all << 8 | *b as u64);
            results.push(bytes.chunks(SLOT).map(word).collect());
        }
        Ok(results)
    }
}

/// Loads snippets and runs none: the names and messages of those that the device refuses.
pub fn refused(device: &Device, snippets: &[&Snippet], target: Target) -> Vec<(String, String)> {
    let load = |snippets: &[&Snippet]| {
        let loaded = Loaded::new(snippets, target).map_err(|e| e.to_string())?;
        let kernel = loaded.set.kernel("k0").map_err(|e| e.to_string())?;
        let ready = kernel.prepare(device, Some(&loaded.target));
        ready.map(|_| ()).map_err(|e| e.to_string())
    };
    if load(snippets).is_ok() {
        return Vec::new();
    }
    let one = |s: &&Snippet| load(&[s]).err().map(|error| (s.name.clone(), error));
    snippets.iter().filter_map(one).collect()
}

/// Runs snippets one after the other, those of a chunk from one module; a chunk that does not load is run one by one, so that only those at
/// fault fail.
pub fn run_all(
    device: &Device,
    snippets: &[&Snippet],
    target: Target,
    seed: u64,
) -> Vec<Result<Vec<Vec<u64>>, String>> {
    let loaded = Loaded::new(snippets, target).ok();
    let together = loaded.filter(|l| {
        let first = l.set.kernel("k0");
        first
            .and_then(|k| k.prepare(device, Some(&l.target)))
            .is_ok()
    });
    let one = |(index, snippet): (usize, &&Snippet)| {
        let cases = snippet.cases(seed);
        let run = || match &together {
            Some(loaded) => loaded.run(device, index, snippet, &cases),
            None => Loaded::new(&[snippet], target)?.run(device, 0, snippet, &cases),
        };
        run().map_err(|e| e.to_string())
    };
    snippets.iter().enumerate().map(one).collect()
}
