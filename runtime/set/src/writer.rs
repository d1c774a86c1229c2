//! Writes kernel sets. The same calls give the same bytes.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::DeflateEncoder};

use crate::{
    Manifest, ManifestError, ModuleEntry, ModuleKind,
    container::{self, ENTRY, FORMAT_VERSION, MAGIC, MAX_MODULE, MAX_MODULES, PREFIX},
};

/// A kernel set in the making.
#[derive(Debug)]
pub struct SetWriter {
    /// What [`SetWriter::finish`] writes. Its bodies name modules by what [`SetWriter::add_module`] gave.
    pub manifest: Manifest,
    /// Offsets are relative to the first module until the set is finished.
    entries: Vec<ModuleEntry>,
    data: Vec<u8>,
}

/// Why a set cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    #[error("the manifest cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{}: {error}", path.display())]
    Io {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("a kernel set holds at most {MAX_MODULES} modules, and there are {0}")]
    TooManyModules(usize),
    #[error("a module has at most {MAX_MODULE} bytes, and module {index} has {length}")]
    ModuleTooLong { index: usize, length: u64 },
}

impl SetWriter {
    /// A set without modules.
    pub fn new(manifest: Manifest) -> SetWriter {
        SetWriter {
            manifest,
            entries: Vec::new(),
            data: Vec::new(),
        }
    }

    /// Adds a module and gives its index. A module that is there already is not added twice.
    pub fn add_module(&mut self, kind: ModuleKind, bytes: &[u8]) -> u32 {
        let hash = container::module_hash(bytes);
        if let Some(index) = self
            .entries
            .iter()
            .position(|e| e.kind == kind && e.hash == hash)
        {
            return index as u32;
        }
        let offset = self.data.len() as u64;
        let mut encoder = DeflateEncoder::new(std::mem::take(&mut self.data), Compression::best());
        // Writing to a vector cannot fail.
        encoder.write_all(bytes).expect("deflate into memory");
        self.data = encoder.finish().expect("deflate into memory");
        self.entries.push(ModuleEntry {
            kind,
            offset,
            compressed: self.data.len() as u64 - offset,
            length: bytes.len() as u64,
            hash,
        });
        self.entries.len() as u32 - 1
    }

    /// Writes the set to `path`: under another name first, so that whoever has the old file open keeps it whole.
    pub fn save(self, path: &Path) -> Result<(), WriteError> {
        let fault = |error| WriteError::Io {
            path: path.to_owned(),
            error,
        };
        let bytes = self.finish()?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = path.with_file_name(name);
        let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
        written.map_err(|error| {
            // What is left of it is of no use; that it cannot be removed adds nothing to the error.
            let _ = fs::remove_file(&part);
            fault(error)
        })
    }

    /// Checks the manifest against the modules and gives the file's bytes.
    pub fn finish(self) -> Result<Vec<u8>, WriteError> {
        if self.entries.len() > MAX_MODULES as usize {
            return Err(WriteError::TooManyModules(self.entries.len()));
        }
        if let Some(index) = self.entries.iter().position(|e| e.length > MAX_MODULE) {
            return Err(WriteError::ModuleTooLong {
                index,
                length: self.entries[index].length,
            });
        }
        let kinds: Vec<ModuleKind> = self.entries.iter().map(|e| e.kind).collect();
        self.manifest.validate(&kinds)?;
        let manifest = serde_json::to_vec(&self.manifest)?;

        let mut numbers = Vec::with_capacity(16);
        numbers.extend(FORMAT_VERSION.to_le_bytes());
        numbers.extend((self.entries.len() as u32).to_le_bytes());
        numbers.extend((manifest.len() as u64).to_le_bytes());

        let start = (PREFIX + manifest.len() + self.entries.len() * ENTRY) as u64;
        let mut table = Vec::with_capacity(self.entries.len() * ENTRY);
        for entry in &self.entries {
            table.extend(entry.kind.code().to_le_bytes());
            table.extend(0u32.to_le_bytes());
            table.extend((start + entry.offset).to_le_bytes());
            table.extend(entry.compressed.to_le_bytes());
            table.extend(entry.length.to_le_bytes());
            table.extend(entry.hash);
        }

        let mut file = Vec::with_capacity(start as usize + self.data.len());
        file.extend(MAGIC);
        file.extend(&numbers);
        file.extend(container::header_hash(&numbers, &manifest, &table));
        file.extend(manifest);
        file.extend(table);
        file.extend(self.data);
        Ok(file)
    }
}
