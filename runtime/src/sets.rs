//! Open kernel sets, and where they are looked for.

use std::{
    collections::HashMap,
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use tesserine_set::{Manifest, SetError};

use crate::{
    Error,
    device::{Module, ModuleKey},
    launch::{Kernel, Loaded},
    op::Op,
};

/// A kernel set, shared by all clones, with the modules that devices have loaded of it.
#[derive(Clone, Debug)]
pub struct KernelSet {
    pub(crate) shared: Arc<SharedSet>,
}

#[derive(Debug)]
pub(crate) struct SharedSet {
    pub(crate) set: tesserine_set::KernelSet,
    /// By what loaded it and index. A module stays loaded as long as the set is open.
    pub(crate) modules: Mutex<Vec<(ModuleKey, u32, Arc<Module>)>>,
    /// What kernels have loaded, by instance: whoever asks for a kernel again finds it.
    pub(crate) loaded: Vec<Loaded>,
    /// Instances by their canonical names.
    names: HashMap<String, usize>,
    /// Ops by theirs.
    ops: HashMap<String, usize>,
}

impl SharedSet {
    /// The instance of a canonical name.
    pub(crate) fn index(&self, canonical: &str) -> Option<usize> {
        self.names.get(canonical).copied()
    }

    /// The op of a canonical name.
    pub(crate) fn op_index(&self, canonical: &str) -> Option<usize> {
        self.ops.get(canonical).copied()
    }
}

impl KernelSet {
    /// Opens a `.tset` file. It must not be changed in place while it is open.
    pub fn open(path: impl AsRef<Path>) -> Result<KernelSet, Error> {
        Ok(KernelSet::from(tesserine_set::KernelSet::open(path)?))
    }

    /// Reads a set from memory.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<KernelSet, Error> {
        Ok(KernelSet::from(tesserine_set::KernelSet::from_bytes(
            bytes,
        )?))
    }

    /// What the set says of itself.
    pub fn manifest(&self) -> &Manifest {
        self.shared.set.manifest()
    }

    /// The file as the format's crate sees it.
    pub fn file(&self) -> &tesserine_set::KernelSet {
        &self.shared.set
    }

    /// The instance of that name, `rmsnorm<bf16>`; spaces do not count.
    pub fn kernel(&self, name: &str) -> Result<Kernel, Error> {
        match self.shared.index(&tesserine_set::canonical_name(name)) {
            Some(index) => Ok(Kernel::new(self.shared.clone(), index)),
            None => Err(Error::NoKernel {
                place: format!("kernel set `{}`", self.manifest().name),
                name: name.to_owned(),
                available: self.kernels().map(|k| k.name().to_owned()).collect(),
            }),
        }
    }

    /// The op of that name, `gemm_nt_splitk<bf16>`; spaces do not count.
    pub fn op(&self, name: &str) -> Result<Op, Error> {
        match self.shared.op_index(&tesserine_set::canonical_name(name)) {
            Some(index) => Ok(Op::new(self.shared.clone(), index)),
            None => Err(Error::NoOp {
                place: format!("kernel set `{}`", self.manifest().name),
                name: name.to_owned(),
                available: self.ops().map(|op| op.name().to_owned()).collect(),
            }),
        }
    }

    /// Whether the set has an op of that name.
    pub fn has_op(&self, name: &str) -> bool {
        let canonical = tesserine_set::canonical_name(name);
        self.shared.op_index(&canonical).is_some()
    }

    /// All ops, in the set's order.
    pub fn ops(&self) -> impl Iterator<Item = Op> + '_ {
        let count = self.manifest().ops.len();
        (0..count).map(|index| Op::new(self.shared.clone(), index))
    }

    /// All instances, in the set's order.
    pub fn kernels(&self) -> impl Iterator<Item = Kernel> + '_ {
        let count = self.manifest().instances.len();
        (0..count).map(|index| Kernel::new(self.shared.clone(), index))
    }
}

impl From<tesserine_set::KernelSet> for KernelSet {
    fn from(set: tesserine_set::KernelSet) -> KernelSet {
        let instances = &set.manifest().instances;
        let loaded = instances.iter().map(|_| Loaded::default()).collect();
        let names = by_name(instances.iter().map(|i| i.name.as_str()));
        let ops = by_name(set.manifest().ops.iter().map(|op| op.name.as_str()));
        let shared = Arc::new(SharedSet {
            set,
            modules: Mutex::default(),
            loaded,
            names,
            ops,
        });
        KernelSet { shared }
    }
}

/// Places by canonical names. Of two of one name the first counts.
fn by_name<'a>(
    names: impl DoubleEndedIterator<Item = &'a str> + ExactSizeIterator,
) -> HashMap<String, usize> {
    let places = names.enumerate().rev();
    places
        .map(|(i, name)| (tesserine_set::canonical_name(name), i))
        .collect()
}

/// A file that is, by its place, a kernel set.
#[derive(Debug)]
pub struct FoundSet {
    pub path: PathBuf,
    pub set: Result<KernelSet, SetError>,
}

/// The files and folders in which sets are looked for, in order: those of `$TESSERINE_SETS` (separated by `:`),
/// `target/sets`, and `tesserine/sets` in the user's data folder.
pub fn set_places() -> Vec<PathBuf> {
    let (named, usual) = places(|name| env::var_os(name));
    [named, usual].concat()
}

/// Opens all sets of [`set_places`], those of a folder by name. One that cannot be opened is listed with its error, and
/// so is what `$TESSERINE_SETS` names and is not there.
pub fn find_sets() -> Vec<FoundSet> {
    let (named, usual) = places(|name| env::var_os(name));
    let mut found = Vec::new();
    for place in &named {
        find_in(place, true, &mut found);
    }
    for place in &usual {
        find_in(place, false, &mut found);
    }
    found
}

/// What `$TESSERINE_SETS` names, and the usual places.
fn places(variable: impl Fn(&str) -> Option<OsString>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut named: Vec<PathBuf> = variable("TESSERINE_SETS")
        .iter()
        .flat_map(env::split_paths)
        .collect();
    named.retain(|p| !p.as_os_str().is_empty());
    // A relative data folder is to be ignored, says the XDG specification.
    let data = variable("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|d| d.is_absolute())
        .or_else(|| Some(Path::new(&variable("HOME")?).join(".local/share")));
    let mut usual = vec![PathBuf::from("target/sets")];
    usual.extend(data.map(|d| d.join("tesserine/sets")));
    (named, usual)
}

fn find_in(place: &Path, named: bool, found: &mut Vec<FoundSet>) {
    let mut files = Vec::new();
    match place.read_dir() {
        Ok(entries) => {
            files.extend(entries.filter_map(|e| Some(e.ok()?.path())));
            files.retain(|f| f.extension().is_some_and(|e| e == "tset"));
            files.sort();
        }
        Err(_) if named => files.push(place.to_owned()),
        Err(_) => {}
    }
    for path in files {
        if found.iter().any(|f| f.path == path) {
            continue;
        }
        let set = tesserine_set::KernelSet::open(&path).map(KernelSet::from);
        found.push(FoundSet { path, set });
    }
}

#[cfg(test)]
mod tests {
    use tesserine_set::SetWriter;

    use super::*;

    #[test]
    fn places_are_those_of_the_variable_then_the_usual_ones() {
        let with = |pairs: &[(&str, &str)]| {
            let (named, usual) = places(|name| {
                let found = pairs.iter().find(|(n, _)| *n == name);
                found.map(|(_, value)| OsString::from(value))
            });
            [named, usual]
                .concat()
                .iter()
                .map(|p| p.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(with(&[]), ["target/sets"]);
        assert_eq!(
            with(&[
                ("TESSERINE_SETS", "a.tset::/b"),
                ("HOME", "/h"),
                ("XDG_DATA_HOME", "relative")
            ]),
            [
                "a.tset",
                "/b",
                "target/sets",
                "/h/.local/share/tesserine/sets"
            ]
        );
        assert_eq!(
            with(&[("HOME", "/h"), ("XDG_DATA_HOME", "/data")]),
            ["target/sets", "/data/tesserine/sets"]
        );
    }

    #[test]
    fn folders_give_their_sets_by_name_and_damage_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        };
        let good = SetWriter::new(Manifest::default()).finish().unwrap();
        write("b.tset", &good);
        write("a.tset", b"not a set");
        write("notes.txt", b"");
        let mut found = Vec::new();
        find_in(folder.path(), false, &mut found);
        // A file that was found already is not listed twice.
        find_in(&folder.path().join("b.tset"), true, &mut found);
        find_in(&folder.path().join("none"), false, &mut found);
        find_in(&folder.path().join("gone.tset"), true, &mut found);
        let listed: Vec<(String, bool)> = found
            .iter()
            .map(|f| {
                let name = f.path.file_name().unwrap();
                (name.to_string_lossy().into_owned(), f.set.is_ok())
            })
            .collect();
        assert_eq!(
            listed,
            [
                ("a.tset".to_owned(), false),
                ("b.tset".to_owned(), true),
                ("gone.tset".to_owned(), false)
            ]
        );
    }
}
