//! Loading and launching on the emulator, and what only emulated devices do.

mod common;
mod launches;

use common::{PTX, manifest, set_bytes};
use tesserine::{Args, DType, Device, Error, KernelSet, TensorRef, emulator::FaultKind};

fn device() -> Option<Device> {
    Some(Device::emulator("sm_90a").unwrap())
}

#[test]
fn every_target_has_a_device() {
    let targets = [75, 80, 86, 89, 90, 100, 103, 110, 120, 121];
    let names: Vec<String> = tesserine::emulators().collect();
    assert_eq!(names.len(), targets.len());
    for (name, sm) in names.iter().zip(targets) {
        let target = format!("sm_{sm}{}", if sm >= 90 { "a" } else { "" });
        assert_eq!(*name, format!("emulator:{target}"));
        let device = Device::named(name).unwrap();
        assert_eq!(device.to_string(), *name);
        assert_eq!(device.info().name, format!("emulated {target}"));
        let capability = device.info().capability;
        assert_eq!(10 * capability.major + capability.minor, sm);
        assert!(device.traits().ptx_only && device.multiprocessors() > 1);
    }
    let default = Device::named("emulator").unwrap();
    assert_eq!(default.to_string(), "emulator:sm_90a");
    for name in ["sm_90", "", "all", "sm_90a "] {
        match Device::emulator(name) {
            Err(Error::UnknownDevice(named)) => assert_eq!(named, format!("emulator:{name}")),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn each_device_has_memory_of_its_own() {
    let (a, b) = (device().unwrap(), device().unwrap());
    assert_eq!(a, a.clone());
    assert_ne!(a, b);
    let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
    let tensor = a.upload(DType::U8, &[8], &bytes).unwrap();
    assert_eq!(tensor.read().unwrap(), bytes);
    let copy = a.alloc(DType::I16, &[4]).unwrap();
    a.stream().unwrap().copy(&tensor, &copy).unwrap();
    assert_eq!(copy.read().unwrap(), bytes);
    copy.fill(0x5A).unwrap();
    assert_eq!(copy.read().unwrap(), [0x5A; 8]);
    assert_eq!(tensor.read().unwrap(), bytes);
    let empty = a.upload(DType::F32, &[0, 3], &[]).unwrap();
    assert!(empty.read().unwrap().is_empty());

    let set = KernelSet::from_bytes(set_bytes(manifest(), PTX)).unwrap();
    let axpy = set.kernel("axpy<f32>").unwrap();
    let x = a.upload(DType::F32, &[2], &bytes).unwrap();
    let y = b.upload(DType::F32, &[2], &bytes).unwrap();
    let args = Args::new().tensor("x", x.view()).tensor("y", y.view());
    let error = axpy.launch(&b.stream().unwrap(), &args).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`x` lies on emulator:sm_90a, and `axpy<f32>` is launched on emulator:sm_90a"
    );
}

#[test]
fn memory_is_limited() {
    let device = device().unwrap();
    let gib = |n: i64| n << 30;
    let error = device.alloc(DType::U8, &[gib(17)]).unwrap_err();
    let text = error.to_string();
    assert_eq!(
        text,
        "emulator:sm_90a: 18253611008 bytes of memory are wanted, and 17179869184 are free"
    );
}

#[test]
fn facts_are_checked_from_the_start() {
    let device = device().unwrap();
    assert!(device.checks_facts());
}

#[test]
fn older_targets_do_not_take_newer_code() {
    let newer = PTX.replace("sm_75", "sm_80");
    let set = KernelSet::from_bytes(set_bytes(manifest(), &newer)).unwrap();
    let device = Device::emulator("sm_75").unwrap();
    let error = set.kernel("axpy<f32>").unwrap();
    let error = error.prepare(&device, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "emulator:sm_75 does not take the PTX of `axpy<f32>` for sm_75: code for sm_80 does not run on sm_75"
    );
}

#[test]
fn a_fault_names_kernel_device_line_and_threads() {
    let device = Device::emulator("sm_90a").unwrap();
    let set = KernelSet::from_bytes(set_bytes(manifest(), PTX)).unwrap();
    let axpy = set.kernel("axpy<f32>").unwrap();
    let stream = device.stream().unwrap();
    let x = device.upload(DType::F32, &[4], &[0; 16]).unwrap();
    let y = device.upload(DType::F32, &[8], &[0; 32]).unwrap();
    // SAFETY: it reaches 4 elements too far, which the emulator is to find: it touches no memory of this program.
    let far = unsafe { TensorRef::from_raw(x.view().pointer(), DType::F32, &[8], &[1]) };
    let args = Args::new().tensor("x", far).tensor("y", y.view());
    let error = axpy.launch(&stream, &args).unwrap_err();
    let text = error.to_string();
    match &error {
        Error::Emulator {
            kernel,
            device,
            fault,
        } => {
            assert_eq!((&kernel[..], &device[..]), ("axpy<f32>", "emulator:sm_90a"));
            assert_eq!(fault.kind, FaultKind::OutOfBounds);
            // The first of those that read too far.
            assert_eq!(fault.threads[0].thread, 4);
            let line = PTX.lines().position(|l| l.contains("ld.global.f32 %f1"));
            let place = fault.place.as_ref().unwrap();
            assert_eq!(Some(place.ptx_line as usize), line.map(|l| l + 1));
        }
        other => panic!("{other}"),
    }
    assert!(
        text.starts_with("`axpy<f32>` on emulator:sm_90a: "),
        "{text}"
    );

    // The device goes on.
    let x = device.upload(DType::F32, &[8], &[0; 32]).unwrap();
    let args = Args::new().tensor("x", x.view()).tensor("y", y.view());
    axpy.launch(&stream, &args).unwrap();
}
