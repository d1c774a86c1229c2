//! Kernel-set files: what is written is read, and nothing else is.

use proptest::prelude::*;
use tesserine_set::{
    AbiArg, Access, BodyRecord, DType, FORMAT_VERSION, Fact, Formula, FormulaOp, Instance,
    KernelSet, Manifest, ModuleKind, Param, ParamKind, Persistent, SetFault, SetWriter, Signature,
    Term, ViewFacts, ViewParam, WriteError,
};

const PTX: &str = ".version 8.0\n.target sm_90a\n.entry axpy_0123abcd() { ret; }\n";
const CUBIN: &[u8] = b"\x7fELF and so on, \0 included";

/// `axpy(x: view<f32>[n], y: mut view<f32>[n], s: f32 = 1.0)` for one target.
fn manifest() -> Manifest {
    let n = || Formula::dim(0);
    let view = |name: &str, access| Param {
        name: name.into(),
        optional: false,
        kind: ParamKind::View(ViewParam {
            dtype: DType::F32,
            access,
            extents: vec![n()],
            strided: false,
            facts: ViewFacts::default(),
        }),
    };
    let body = |facts: Vec<Fact>| BodyRecord {
        target: "sm_90a".into(),
        facts,
        cost: None,
        entry: "axpy_0123abcd".into(),
        grid: vec![Formula::binary(FormulaOp::CeilDiv, n(), Formula::int(1024))],
        persistent: None,
        cluster: 1,
        overlap: false,
        threads: 128,
        shared_bytes: 0,
        tensor_maps: Vec::new(),
        abi: vec![
            AbiArg::Pointer { param: 0 },
            AbiArg::Pointer { param: 1 },
            AbiArg::Dim { dim: 0 },
            AbiArg::Scalar { param: 2 },
        ],
        ptx_version: (8, 0),
        ptx: 0,
        cubin: Some(1),
        resources: None,
    };
    Manifest {
        name: "default".into(),
        compiler: "0.1.0".into(),
        instances: vec![Instance {
            name: "axpy<f32>".into(),
            source: "basics/axpy.tess".into(),
            source_hash: "00".repeat(32),
            signature: Signature {
                dims: vec!["n".into()],
                params: vec![
                    view("x", Access::Read),
                    view("y", Access::ReadWrite),
                    Param {
                        name: "s".into(),
                        optional: false,
                        kind: ParamKind::Scalar {
                            dtype: DType::F32,
                            default: Some(1.0),
                        },
                    },
                ],
            },
            requires: vec![],
            bodies: vec![
                body(vec![Fact::Aligned {
                    param: 0,
                    bytes: 16,
                }]),
                body(vec![]),
            ],
            unordered: false,
            tune: Vec::new(),
        }],
        ops: Vec::new(),
    }
}

fn file() -> Vec<u8> {
    let mut writer = SetWriter::new(manifest());
    assert_eq!(writer.add_module(ModuleKind::Ptx, PTX.as_bytes()), 0);
    assert_eq!(writer.add_module(ModuleKind::Cubin, CUBIN), 1);
    // The same once more is the same module.
    assert_eq!(writer.add_module(ModuleKind::Ptx, PTX.as_bytes()), 0);
    writer.finish().unwrap()
}

fn fault(bytes: Vec<u8>) -> String {
    KernelSet::from_bytes(bytes)
        .map(|_| ())
        .unwrap_err()
        .to_string()
}

/// Recomputes the header's hash after an edit, as one who means harm would.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    let modules = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let manifest = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) as usize;
    let end = 56 + manifest + modules * 64;
    let mut hasher = Sha256::new();
    hasher.update(&bytes[8..24]);
    hasher.update(&bytes[56..end]);
    let hash: [u8; 32] = hasher.finalize().into();
    bytes[24..56].copy_from_slice(&hash);
    bytes
}

fn table_row(bytes: &[u8], index: usize) -> usize {
    let manifest = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) as usize;
    56 + manifest + index * 64
}

#[test]
fn what_is_written_is_read() {
    let bytes = file();
    assert_eq!(bytes, file());
    let set = KernelSet::from_bytes(bytes.clone()).unwrap();
    assert_eq!(*set.manifest(), manifest());
    assert_eq!(set.ptx(0).unwrap(), PTX);
    assert_eq!(set.module(1).unwrap(), CUBIN);
    assert_eq!(set.modules()[1].length, CUBIN.len() as u64);
    assert!(set.instance("axpy< f32 >").is_some());
    assert!(set.instance("axpy<f16>").is_none());

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("default.tset");
    std::fs::write(&path, &bytes).unwrap();
    let set = KernelSet::open(&path).unwrap();
    assert_eq!(set.ptx(0).unwrap(), PTX);
    assert_eq!(set.path(), Some(path.as_path()));
    assert_eq!(set.file_size(), bytes.len() as u64);
}

#[test]
fn a_saved_set_replaces_the_file_and_leaves_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("default.tset");
    let save = |path: &std::path::Path| {
        let mut writer = SetWriter::new(manifest());
        writer.add_module(ModuleKind::Ptx, PTX.as_bytes());
        writer.add_module(ModuleKind::Cubin, CUBIN);
        writer.save(path)
    };
    save(&path).unwrap();
    let open = KernelSet::open(&path).unwrap();
    save(&path).unwrap();
    assert_eq!(open.ptx(0).unwrap(), PTX);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let nowhere = save(&folder.path().join("none/default.tset")).unwrap_err();
    assert!(
        nowhere.to_string().contains("none/default.tset: "),
        "{nowhere}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn an_error_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let missing = KernelSet::open(folder.path().join("gone.tset")).unwrap_err();
    assert!(missing.to_string().contains("gone.tset: "), "{missing}");
    assert!(KernelSet::open(folder.path()).is_err());
    let empty = folder.path().join("empty.tset");
    std::fs::write(&empty, b"").unwrap();
    let error = KernelSet::open(&empty).unwrap_err().to_string();
    assert!(
        error.ends_with("empty.tset: this is no kernel set"),
        "{error}"
    );
}

#[test]
fn modules_are_asked_for_by_an_index_that_exists() {
    let set = KernelSet::from_bytes(file()).unwrap();
    assert_eq!(
        set.module(2).unwrap_err().to_string(),
        "the set has no module 2; it has 2"
    );
    assert_eq!(
        set.ptx(1).unwrap_err().to_string(),
        "module 1 is no PTX: it is a cubin"
    );
}

#[test]
fn foreign_and_newer_files_are_told_apart() {
    assert_eq!(fault(b"PK\x03\x04 zip".to_vec()), "this is no kernel set");
    assert_eq!(fault(vec![]), "this is no kernel set");
    let mut newer = file();
    newer[8..12].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
    assert_eq!(
        fault(newer),
        "the set has format version 3, and this program reads up to 2; a newer release reads it"
    );
    // A set of the version before: it says nothing of what came later.
    let mut before = file();
    before[8..12].copy_from_slice(&1u32.to_le_bytes());
    assert!(KernelSet::from_bytes(resealed(before)).is_ok());
    let mut none = file();
    none[8..12].copy_from_slice(&0u32.to_le_bytes());
    assert_eq!(
        fault(none),
        "format version 0 does not exist; the file is damaged"
    );
}

#[test]
fn damage_is_found() {
    let whole = file();
    let mut bytes = whole.clone();
    bytes.truncate(40);
    assert_eq!(
        fault(bytes),
        "the file is cut short: 56 bytes are needed, and it has 40"
    );
    let mut bytes = whole.clone();
    bytes.pop();
    assert!(fault(bytes).starts_with("the file is cut short: "));
    let mut bytes = whole.clone();
    bytes.push(0);
    assert_eq!(fault(bytes), "the file has 1 bytes too many");
    let mut bytes = whole.clone();
    bytes[60] ^= 1;
    assert_eq!(
        fault(bytes),
        "the manifest is damaged: its hash does not agree"
    );
    // A flipped bit in the last module.
    let mut bytes = whole.clone();
    let last = bytes.len() - 6;
    bytes[last] ^= 4;
    let set = KernelSet::from_bytes(bytes).unwrap();
    assert_eq!(set.ptx(0).unwrap(), PTX);
    let error = set.module(1).unwrap_err();
    assert!(matches!(
        error.reason,
        SetFault::ModuleData { index: 1, .. } | SetFault::ModuleHash { index: 1 }
    ));
}

#[test]
fn lies_about_sizes_and_places_are_refused() {
    let edit = |at: usize, value: &[u8]| {
        let mut bytes = file();
        bytes[at..at + value.len()].copy_from_slice(value);
        bytes
    };
    assert_eq!(
        fault(edit(16, &u64::MAX.to_le_bytes())),
        "the manifest claims 18446744073709551615 bytes, and no set has more than 67108864"
    );
    assert_eq!(
        fault(edit(12, &u32::MAX.to_le_bytes())),
        "the set claims 4294967295 modules, and no set has more than 65536"
    );
    let row = table_row(&file(), 0);
    let sealed = |at: usize, value: &[u8]| fault(resealed(edit(row + at, value)));
    assert_eq!(
        sealed(0, &9u32.to_le_bytes()),
        "module 0 is of unknown kind 9"
    );
    let place = "module 0 does not lie where the one before it ends";
    assert_eq!(sealed(8, &0u64.to_le_bytes()), place);
    assert_eq!(sealed(16, &u64::MAX.to_le_bytes()), place);
    // Two modules in one place.
    let mut bytes = file();
    let first = bytes[row + 8..row + 16].to_vec();
    bytes[row + 72..row + 80].copy_from_slice(&first);
    assert_eq!(
        fault(resealed(bytes)),
        "module 1 does not lie where the one before it ends"
    );
    assert_eq!(
        sealed(24, &(1u64 << 40).to_le_bytes()),
        "module 0 claims 1099511627776 bytes, and no module has more than 268435456"
    );
    assert!(sealed(24, &(100u64 << 20).to_le_bytes()).contains("compressed ones cannot give"));
}

#[test]
fn a_module_gives_no_more_and_no_less_than_it_declares() {
    for length in [PTX.len() as u64 - 1, PTX.len() as u64 + 1] {
        let mut bytes = file();
        let row = table_row(&bytes, 0);
        bytes[row + 24..row + 32].copy_from_slice(&length.to_le_bytes());
        let set = KernelSet::from_bytes(resealed(bytes)).unwrap();
        assert_eq!(
            set.module(0).unwrap_err().to_string(),
            format!("module 0 is damaged: it does not decompress to its {length} bytes")
        );
    }
}

#[test]
fn a_manifest_that_refers_to_nothing_is_neither_written_nor_read() {
    let refused = |change: &dyn Fn(&mut Instance)| {
        let mut manifest = manifest();
        change(&mut manifest.instances[0]);
        let mut writer = SetWriter::new(manifest);
        writer.add_module(ModuleKind::Ptx, PTX.as_bytes());
        writer.add_module(ModuleKind::Cubin, CUBIN);
        match writer.finish() {
            Err(WriteError::Manifest(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        refused(&|i| i.bodies[0].ptx = 7),
        "instance `axpy<f32>`: body 0: it refers to ptx module 7, which the set does not have"
    );
    assert_eq!(
        refused(&|i| i.bodies[0].persistent = Some(Persistent {
            blocks_per_sm: Some(0),
            dynamic: false,
        })),
        "instance `axpy<f32>`: body 0: 0 blocks a multiprocessor are not from 1 to 32"
    );
    assert_eq!(
        refused(&|i| i.bodies[0].cluster = 17),
        "instance `axpy<f32>`: body 0: 17 blocks of a cluster are not from 1 to 16"
    );
    assert_eq!(
        refused(&|i| i.bodies[1].cubin = Some(0)),
        "instance `axpy<f32>`: body 1: it refers to cubin module 0, which the set does not have"
    );
    assert_eq!(
        refused(&|i| i.bodies[0].grid[0] = Formula::dim(1)),
        "instance `axpy<f32>`: grid axis 0 of body 0 is malformed"
    );
    assert_eq!(
        refused(&|i| i.bodies[0].grid[0] = Formula(vec![Term::Op(FormulaOp::Add)])),
        "instance `axpy<f32>`: grid axis 0 of body 0 is malformed"
    );
    assert_eq!(
        refused(&|i| i.bodies[0].grid[0] = Formula(vec![Term::Int(1), Term::Int(1)])),
        "instance `axpy<f32>`: grid axis 0 of body 0 is malformed"
    );
    // A float is no extent.
    assert_eq!(
        refused(&|i| i.requires.push(Fact::Holds(Formula(vec![Term::Scalar(2)])))),
        "instance `axpy<f32>`: required fact 0 is malformed"
    );
    assert_eq!(
        refused(&|i| i.requires.push(Fact::Aligned { param: 2, bytes: 8 })),
        "instance `axpy<f32>`: required fact 0 is about a parameter that is no tensor"
    );
    assert_eq!(
        refused(&|i| i.bodies[0].abi[3] = AbiArg::Stride { param: 0, dim: 1 }),
        "instance `axpy<f32>`: body 0: argument 3 refers to a parameter or dimension that does not fit it"
    );
    assert_eq!(
        refused(&|i| i.bodies[0].threads = 0),
        "instance `axpy<f32>`: body 0: 0 threads are not from 1 to 1024"
    );
    assert_eq!(
        refused(&|i| i.bodies[0].target = "gfx90a".into()),
        "instance `axpy<f32>`: body 0: `gfx90a` is no target"
    );
    assert_eq!(
        refused(&|i| i.signature.params[1].name = "x".into()),
        "instance `axpy<f32>`: the name `x` is empty, too long, or given twice"
    );
    assert_eq!(
        refused(&|i| i.bodies.clear()),
        "instance `axpy<f32>`: it has no body"
    );

    // The reader applies the same rules: take the modules away under a valid manifest.
    let mut bytes = file();
    let row = table_row(&bytes, 1);
    bytes[row..row + 4].copy_from_slice(&1u32.to_le_bytes());
    assert_eq!(
        fault(resealed(bytes)),
        "instance `axpy<f32>`: body 0: it refers to cubin module 1, which the set does not have"
    );
}

#[test]
fn a_manifest_that_is_no_json_is_refused() {
    let mut bytes = file();
    bytes[56] = b'[';
    assert!(fault(resealed(bytes)).starts_with("the manifest cannot be read: "));
}

/// Reads all that a file offers. What opens must hold the data that was written.
fn read_all(bytes: Vec<u8>) {
    let Ok(set) = KernelSet::from_bytes(bytes) else {
        return;
    };
    assert_eq!(*set.manifest(), manifest());
    for (index, wanted) in [PTX.as_bytes(), CUBIN].into_iter().enumerate() {
        if let Ok(module) = set.module(index as u32) {
            assert_eq!(module, wanted);
        }
    }
}

proptest! {
    #[test]
    fn mutations_never_load_wrong_data(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = file();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        read_all(bytes);
    }

    #[test]
    fn truncations_and_extensions_are_refused(cut in any::<prop::sample::Index>(), more in 1usize..100) {
        let mut bytes = file();
        bytes.truncate(cut.index(bytes.len()));
        prop_assert!(KernelSet::from_bytes(bytes).is_err());
        let mut bytes = file();
        bytes.extend(vec![0; more]);
        prop_assert!(KernelSet::from_bytes(bytes).is_err());
    }

    /// Edits under a header that is made to agree: never a panic, whatever it then claims.
    #[test]
    fn sealed_mutations_never_panic(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = file();
        let end = table_row(&bytes, 2);
        for (at, value) in edits {
            bytes[56 + at.index(end - 56)] = value;
        }
        if let Ok(set) = KernelSet::from_bytes(resealed(bytes)) {
            for index in 0..set.modules().len() as u32 {
                let _ = set.module(index);
            }
        }
    }
}
