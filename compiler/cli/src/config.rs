//! `tess show-config`: what this `tess` is and what it finds here.

use std::path::PathBuf;

use serde_json::{Value, json};
use tesserine_compiler::emit;

use crate::{
    args::ShowConfig,
    failure::Failure,
    terminal::{self, say},
};

pub fn run(args: &ShowConfig) -> Result<(), Failure> {
    let llvm = llvm_version();
    let ptxas = emit::ptxas::Ptxas::find();
    let driver = tesserine::driver_version();
    let devices = match &driver {
        Ok(_) => tesserine::cuda_devices(),
        Err(_) => Ok(Vec::new()),
    };
    let sets = tesserine::find_sets();
    let cache = cache_folder();
    if args.json {
        let ptx = |cuda| tesserine::select::ptx_of_driver(cuda);
        let version = |(major, minor): (u32, u32)| format!("{major}.{minor}");
        return terminal::json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "set_format": tesserine_set::FORMAT_VERSION,
            "llvm": llvm,
            "ptxas": ptxas.as_ref().ok().map(|p| json!({
                "path": p.path().display().to_string(),
                "version": p.version(),
            })),
            "driver": driver.as_ref().ok().map(|&cuda| json!({
                "cuda": version(cuda),
                "ptx": version(ptx(cuda)),
            })),
            "driver_missing": driver.as_ref().err().map(|e| e.to_string()),
            "devices": devices.unwrap_or_default().iter().map(device_json).collect::<Vec<_>>(),
            "cache": cache.map(|p| p.display().to_string()),
            "sets": sets.iter().map(|s| s.path.display().to_string()).collect::<Vec<_>>(),
        }));
    }
    say!("tess         {}", env!("CARGO_PKG_VERSION"));
    say!("set format   {}", tesserine_set::FORMAT_VERSION);
    match llvm {
        Some(version) => say!("LLVM         {version}"),
        None => say!("LLVM         none: this tess was built without code generation"),
    }
    match &ptxas {
        Ok(ptxas) => say!(
            "ptxas        {} ({})",
            ptxas.version(),
            ptxas.path().display()
        ),
        Err(error) => say!("ptxas        none: {error}"),
    }
    match &driver {
        Ok(cuda) => {
            let ptx = tesserine::select::ptx_of_driver(*cuda);
            say!(
                "driver       CUDA {}.{}, PTX {}.{}",
                cuda.0,
                cuda.1,
                ptx.0,
                ptx.1
            );
        }
        Err(error) => say!("driver       none: {error}"),
    }
    match devices {
        Ok(devices) => {
            for device in &devices {
                say!(
                    "device {}     {}, {}, {:.1} GiB",
                    device.ordinal,
                    device.name,
                    device.capability,
                    device.memory as f64 / f64::from(1 << 30)
                );
            }
        }
        Err(error) => say!("devices      none: {error}"),
    }
    match &cache {
        Some(path) => say!("cache        {}", path.display()),
        None => say!("cache        none: neither XDG_CACHE_HOME nor HOME is set"),
    }
    if sets.is_empty() {
        say!("kernel sets  none found");
    }
    for found in &sets {
        match &found.set {
            Ok(set) => say!(
                "kernel set   {} ({}, {} kernels)",
                found.path.display(),
                set.manifest().name,
                set.manifest().instances.len()
            ),
            Err(error) => say!("kernel set   {} is unusable: {error}", found.path.display()),
        }
    }
    Ok(())
}

fn device_json(device: &tesserine::DeviceInfo) -> Value {
    json!({
        "ordinal": device.ordinal,
        "name": device.name,
        "target": device.capability.to_string(),
        "memory_bytes": device.memory,
    })
}

#[cfg(feature = "llvm")]
fn llvm_version() -> Option<String> {
    Some(tesserine_compiler::codegen::llvm_version())
}

#[cfg(not(feature = "llvm"))]
fn llvm_version() -> Option<String> {
    None
}

/// Where what is compiled at run time is kept.
fn cache_folder() -> Option<PathBuf> {
    let folder = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    folder("XDG_CACHE_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("tesserine"))
}
