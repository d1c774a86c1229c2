//! Where kernels run, as `--device` names it.

use tesserine::Device;
use tesserine_compiler::target::Target;

use crate::{failure::Failure, gpu};

/// The interpreter, or a device of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Interpreter,
    /// A name that [`Device::named`] takes.
    Device(String),
}

impl Place {
    /// The one place of that name.
    pub fn parse(name: &str) -> Result<Place, Failure> {
        let known = match name.split_once(':') {
            None => matches!(name, "interp" | "cuda" | "emulator"),
            Some(("cuda", number)) => {
                number.bytes().all(|b| b.is_ascii_digit()) && number.parse::<usize>().is_ok()
            }
            Some(("emulator", _)) => tesserine::emulators().any(|emulator| emulator == name),
            Some(_) => false,
        };
        match (known, name) {
            (true, "interp") => Ok(Place::Interpreter),
            (true, name) => Ok(Place::Device(name.to_owned())),
            (false, _) => Err(Failure::Usage(format!(
                "there is no device `{name}`: `interp`, `cuda`, `cuda:1`, `emulator` and `emulator:TARGET` name one, where TARGET is {}",
                Target::ALL.map(Target::name).join(", ")
            ))),
        }
    }

    /// The places of that name: `all` and `emulator:all` are the emulators of every target.
    pub fn parse_several(name: &str) -> Result<Vec<Place>, Failure> {
        match name {
            "all" | "emulator:all" => Ok(tesserine::emulators().map(Place::Device).collect()),
            name => Ok(vec![Place::parse(name)?]),
        }
    }
}

/// The device of a place.
pub fn open(name: &str) -> Result<Device, Failure> {
    Device::named(name).map_err(gpu::failed)
}

/// The newest target that the device runs.
pub fn newest(device: &Device) -> Result<Target, Failure> {
    let capability = device.info().capability;
    let runs = |target: &Target| {
        let parsed: Result<tesserine::Target, _> = target.name().parse();
        parsed.is_ok_and(|parsed| tesserine::select::ptx_runs(parsed, capability))
    };
    Target::ALL.into_iter().rfind(runs).ok_or_else(|| {
        Failure::Failed(format!(
            "{} is {capability}, for which there is no target",
            device.info().name
        ))
    })
}

/// `cuda:0 (NVIDIA H200)`, `emulator:sm_90a`.
pub fn described(device: &Device) -> String {
    match device {
        Device::Cuda(_) => format!("{device} ({})", device.info().name),
        _ => device.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_names() {
        assert_eq!(Place::parse("interp").unwrap(), Place::Interpreter);
        for name in ["cuda", "cuda:12", "emulator", "emulator:sm_75"] {
            assert_eq!(Place::parse(name).unwrap(), Place::Device(name.to_owned()));
        }
        for name in ["", "cuda:", "cuda:+1", "emulator:", "emulator:sm_90", "all"] {
            match Place::parse(name) {
                Err(Failure::Usage(text)) => assert!(text.contains(&format!("`{name}`"))),
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn all_are_the_emulators_of_every_target() {
        let all = Place::parse_several("all").unwrap();
        let wanted = Target::ALL.map(|t| Place::Device(format!("emulator:{}", t.name())));
        assert_eq!(all, wanted);
        assert_eq!(Place::parse_several("emulator:all").unwrap(), all);
        assert_eq!(
            Place::parse_several("cuda").unwrap(),
            [Place::Device("cuda".to_owned())]
        );
    }
}
