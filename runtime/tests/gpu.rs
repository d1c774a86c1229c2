//! Loading and launching on a real device. On a machine without one, each test says so and passes.

mod common;
mod launches;

use tesserine::Device;

/// The device that `$TESS_DEVICE` names, else the first; `None` where there is none and none was named.
fn device() -> Option<Device> {
    match Device::from_env() {
        Ok(device) => Some(device),
        Err(error) if std::env::var_os("TESS_DEVICE").is_some() => panic!("{error}"),
        Err(error) => {
            eprintln!("not run: {error}");
            None
        }
    }
}
