//! Kernels compiled from the library's source for the device at hand, each when a case first asks for it.

use std::{collections::HashMap, env, path::PathBuf};

use tesserine::{Device, KernelSet};
use tesserine_compiler::{
    Session,
    emit::set::{self, BuildError, SetFile, SetKernel},
    target::Target,
};

use super::{Refusal, library};

/// A folder of sources, a target, and what has been compiled so far.
pub struct Source {
    folder: PathBuf,
    target: Target,
    sets: HashMap<String, KernelSet>,
}

impl Source {
    /// Finds the library above the current folder.
    pub fn new(device: &Device) -> Result<Source, String> {
        let here = env::current_dir().map_err(|e| format!("the current folder: {e}"))?;
        let folder = here
            .ancestors()
            .map(|above| above.join("kernels-dsl"))
            .find(|folder| folder.is_dir())
            .ok_or("there is no folder `kernels-dsl` here or above")?;
        let capability = device.info().capability;
        let (major, minor) = (capability.major, capability.minor);
        let own = format!("sm_{major}{minor}");
        let target = Target::parse(&format!("{own}a"))
            .or_else(|_| Target::parse(&own))
            .map_err(|e| e.to_string())?;
        Ok(Source {
            folder,
            target,
            sets: HashMap::new(),
        })
    }

    /// A set with `instance`.
    pub fn compile(&mut self, source: &str, instance: &str) -> Result<KernelSet, Refusal> {
        if let Some(set) = self.sets.get(instance) {
            return Ok(set.clone());
        }
        let file = SetFile {
            folder: self.folder.clone(),
            name: "conformance".to_owned(),
            kernels: vec![SetKernel {
                source: source.to_owned(),
                instances: vec![instance.to_owned()],
                targets: vec![self.target],
                own_targets: false,
            }],
        };
        let mut session = Session::new();
        let built = set::build(&mut session, &file, None, &|_, _| {});
        let built = built.map_err(|error| {
            Refusal::Failed(match error {
                BuildError::Diagnostics(d) => library::show(session.sources(), &d),
                error => error.to_string(),
            })
        })?;
        let set = KernelSet::from_bytes(built.bytes).map_err(|e| Refusal::Failed(e.to_string()))?;
        self.sets.insert(instance.to_owned(), set.clone());
        Ok(set)
    }
}
