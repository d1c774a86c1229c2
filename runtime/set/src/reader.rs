//! Reads kernel sets, whatever a file holds.
//!
//! Invariants: a set that opens is undamaged in its manifest and module table, and the manifest is valid (see
//! [`Manifest::validate`]); a module is decompressed when it is asked for, into no more bytes than were declared, and
//! given out only if its hash agrees; nothing here panics on a file's account.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use flate2::{Decompress, FlushDecompress, Status};
use memmap2::Mmap;

use crate::{
    Instance, Manifest, ManifestError, ModuleEntry, ModuleKind,
    container::{
        self, ENTRY, FORMAT_VERSION, Hash, MAGIC, MAX_MANIFEST, MAX_MODULE, MAX_MODULES,
        OLDEST_VERSION, PREFIX,
    },
    validate::canonical_name,
};

/// An open kernel set.
#[derive(Debug)]
pub struct KernelSet {
    path: Option<PathBuf>,
    bytes: Bytes,
    manifest: Manifest,
    modules: Vec<ModuleEntry>,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

/// A kernel set that cannot be used, and which.
#[derive(Debug, thiserror::Error)]
#[error("{}{reason}", path.as_ref().map_or(String::new(), |p| format!("kernel set {}: ", p.display())))]
pub struct SetError {
    pub path: Option<PathBuf>,
    pub reason: SetFault,
}

/// What is wrong with a kernel set.
#[derive(Debug, thiserror::Error)]
pub enum SetFault {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("this is no kernel set")]
    NotASet,
    #[error(
        "the set has format version {found}, and this program reads up to {FORMAT_VERSION}; a newer release reads it"
    )]
    Newer { found: u32 },
    #[error("format version {found} does not exist; the file is damaged")]
    NoSuchVersion { found: u32 },
    #[error("the file is cut short: {needed} bytes are needed, and it has {found}")]
    Truncated { needed: u64, found: u64 },
    #[error("the file has {extra} bytes too many")]
    TrailingBytes { extra: u64 },
    #[error("the manifest claims {length} bytes, and no set has more than {MAX_MANIFEST}")]
    ManifestTooLong { length: u64 },
    #[error("the set claims {count} modules, and no set has more than {MAX_MODULES}")]
    TooManyModules { count: u32 },
    #[error("the manifest is damaged: its hash does not agree")]
    HeaderHash,
    #[error("the manifest cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    #[error("module {index} is of unknown kind {kind}")]
    ModuleKind { index: u32, kind: u32 },
    #[error("module {index} does not lie where the one before it ends")]
    ModulePlace { index: u32 },
    #[error("module {index} claims {length} bytes, and no module has more than {MAX_MODULE}")]
    ModuleTooLong { index: u32, length: u64 },
    #[error(
        "module {index} claims {length} bytes, which its {compressed} compressed ones cannot give"
    )]
    ModuleInflation {
        index: u32,
        length: u64,
        compressed: u64,
    },
    #[error("the set has no module {index}; it has {count}")]
    NoModule { index: u32, count: u32 },
    #[error("module {index} is damaged: it does not decompress to its {length} bytes")]
    ModuleData { index: u32, length: u64 },
    #[error("module {index} is damaged: its hash does not agree")]
    ModuleHash { index: u32 },
    #[error("module {index} is no PTX: it is a {kind}")]
    NotPtx { index: u32, kind: ModuleKind },
    #[error("module {index} is PTX, but not UTF-8 text")]
    PtxText { index: u32 },
}

impl KernelSet {
    /// Opens a file through a memory map. The file must not be changed while the set is open; replace it by renaming
    /// another over it.
    pub fn open(path: impl AsRef<Path>) -> Result<KernelSet, SetError> {
        let path = path.as_ref();
        KernelSet::open_file(path).map_err(|reason| SetError {
            path: Some(path.to_owned()),
            reason,
        })
    }

    /// Reads a set from memory.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<KernelSet, SetError> {
        KernelSet::read(None, Bytes::Owned(bytes.into()))
            .map_err(|reason| SetError { path: None, reason })
    }

    fn open_file(path: &Path) -> Result<KernelSet, SetFault> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            // Pipes and the like cannot be mapped; a folder fails here with the system's own words.
            let mut bytes = Vec::new();
            let most = MAX_MODULE + MAX_MANIFEST;
            file.by_ref().take(most).read_to_end(&mut bytes)?;
            return KernelSet::read(Some(path.to_owned()), Bytes::Owned(bytes));
        }
        if metadata.len() < PREFIX as u64 {
            // An empty file cannot be mapped either.
            let mut bytes = Vec::new();
            file.take(PREFIX as u64).read_to_end(&mut bytes)?;
            return KernelSet::read(Some(path.to_owned()), Bytes::Owned(bytes));
        }
        // SAFETY: the map is read only. That the file is not changed meanwhile is asked of the caller; sets are written
        // to a temporary name and renamed.
        let map = unsafe { Mmap::map(&file)? };
        KernelSet::read(Some(path.to_owned()), Bytes::Mapped(map))
    }

    fn read(path: Option<PathBuf>, bytes: Bytes) -> Result<KernelSet, SetFault> {
        let file = bytes.get();
        let known = file.len().min(MAGIC.len());
        if file.is_empty() || file[..known] != MAGIC[..known] {
            return Err(SetFault::NotASet);
        }
        let truncated = |needed: u64| SetFault::Truncated {
            needed,
            found: file.len() as u64,
        };
        let prefix = file.get(..PREFIX).ok_or_else(|| truncated(PREFIX as u64))?;
        let numbers = &prefix[8..24];
        let version = u32_at(numbers, 0);
        if version > FORMAT_VERSION {
            return Err(SetFault::Newer { found: version });
        }
        if version < OLDEST_VERSION {
            return Err(SetFault::NoSuchVersion { found: version });
        }
        let count = u32_at(numbers, 4);
        if count > MAX_MODULES {
            return Err(SetFault::TooManyModules { count });
        }
        let length = u64_at(numbers, 8);
        if length > MAX_MANIFEST {
            return Err(SetFault::ManifestTooLong { length });
        }
        let table_start = PREFIX + length as usize;
        let data_start = table_start + count as usize * ENTRY;
        if file.len() < data_start {
            return Err(truncated(data_start as u64));
        }
        let (manifest, table) = (&file[PREFIX..table_start], &file[table_start..data_start]);
        let hash: Hash = prefix[24..56]
            .try_into()
            .expect("the prefix holds 32 bytes of hash");
        if container::header_hash(numbers, manifest, table) != hash {
            return Err(SetFault::HeaderHash);
        }

        let mut modules = Vec::with_capacity(count as usize);
        let mut end = data_start as u64;
        for (index, row) in (0u32..).zip(table.chunks_exact(ENTRY)) {
            let kind = u32_at(row, 0);
            let entry = ModuleEntry {
                kind: ModuleKind::from_code(kind).ok_or(SetFault::ModuleKind { index, kind })?,
                offset: u64_at(row, 8),
                compressed: u64_at(row, 16),
                length: u64_at(row, 24),
                hash: row[32..64]
                    .try_into()
                    .expect("a row holds 32 bytes of hash"),
            };
            if entry.offset != end {
                return Err(SetFault::ModulePlace { index });
            }
            end = end
                .checked_add(entry.compressed)
                .ok_or(SetFault::ModulePlace { index })?;
            if end > file.len() as u64 {
                return Err(truncated(end));
            }
            if entry.length > MAX_MODULE {
                return Err(SetFault::ModuleTooLong {
                    index,
                    length: entry.length,
                });
            }
            if entry.length > container::inflation_limit(entry.compressed) {
                return Err(SetFault::ModuleInflation {
                    index,
                    length: entry.length,
                    compressed: entry.compressed,
                });
            }
            modules.push(entry);
        }
        if end < file.len() as u64 {
            return Err(SetFault::TrailingBytes {
                extra: file.len() as u64 - end,
            });
        }
        let manifest: Manifest = serde_json::from_slice(manifest)?;
        let kinds: Vec<ModuleKind> = modules.iter().map(|m| m.kind).collect();
        manifest.validate(&kinds)?;
        Ok(KernelSet {
            path,
            bytes,
            manifest,
            modules,
        })
    }

    /// The file that it came from.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The module table, in the order that bodies index.
    pub fn modules(&self) -> &[ModuleEntry] {
        &self.modules
    }

    /// Bytes of the whole file.
    pub fn file_size(&self) -> u64 {
        self.bytes.get().len() as u64
    }

    /// The instance of that name; spaces do not count.
    pub fn instance(&self, name: &str) -> Option<&Instance> {
        let name = canonical_name(name);
        let instances = &self.manifest.instances;
        instances.iter().find(|i| canonical_name(&i.name) == name)
    }

    /// Decompresses and checks module `index`.
    pub fn module(&self, index: u32) -> Result<Vec<u8>, SetError> {
        self.inflate(index).map_err(|reason| self.fault(reason))
    }

    /// The text of PTX module `index`.
    pub fn ptx(&self, index: u32) -> Result<String, SetError> {
        let bytes = self.module(index)?;
        match self.modules[index as usize].kind {
            ModuleKind::Ptx => {
                String::from_utf8(bytes).map_err(|_| self.fault(SetFault::PtxText { index }))
            }
            kind => Err(self.fault(SetFault::NotPtx { index, kind })),
        }
    }

    fn fault(&self, reason: SetFault) -> SetError {
        SetError {
            path: self.path.clone(),
            reason,
        }
    }

    fn inflate(&self, index: u32) -> Result<Vec<u8>, SetFault> {
        let entry = self.modules.get(index as usize).ok_or(SetFault::NoModule {
            index,
            count: self.modules.len() as u32,
        })?;
        let damaged = SetFault::ModuleData {
            index,
            length: entry.length,
        };
        // The table was checked against the file when the set was opened.
        let from = entry.offset as usize;
        let data = &self.bytes.get()[from..from + entry.compressed as usize];
        // One byte more, so that a stream that goes on is seen to.
        let mut module = Vec::with_capacity(entry.length as usize + 1);
        let mut inflater = Decompress::new(false);
        let status = inflater.decompress_vec(data, &mut module, FlushDecompress::Finish);
        let whole = matches!(status, Ok(Status::StreamEnd))
            && inflater.total_in() == entry.compressed
            && module.len() as u64 == entry.length;
        if !whole {
            return Err(damaged);
        }
        if container::module_hash(&module) != entry.hash {
            return Err(SetFault::ModuleHash { index });
        }
        Ok(module)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
