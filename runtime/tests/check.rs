//! What is refused before a device is needed, and what a machine without a driver says.

mod common;

use common::{PTX, manifest, op_manifest, set_bytes};
use tesserine::{Args, DType, Device, Error, Kernel, KernelSet, ScalarValue, TensorRef};
use tesserine_set::{Formula, ModuleKind, OpRecord, SetWriter};

fn axpy() -> Kernel {
    let set = KernelSet::from_bytes(set_bytes(manifest(), PTX)).unwrap();
    set.kernel("axpy < f32 >").unwrap()
}

fn tensor<'a>(address: u64, shape: &'a [i64]) -> TensorRef<'a> {
    TensorRef::described(address, DType::F32, shape, &[1])
}

#[test]
fn good_arguments_give_dimensions_and_scalars() {
    let args = Args::new()
        .tensor("y", tensor(0x1000, &[100]))
        .tensor("x", tensor(0x2000, &[100]));
    let checked = axpy().check(&args).unwrap();
    assert_eq!(checked.dims, [("n".to_owned(), 100)]);
    assert_eq!(checked.scalars, [("s".to_owned(), ScalarValue::Float(1.0))]);
}

#[test]
fn errors_name_kernel_and_argument() {
    let refused = |args: &Args<'_>| axpy().check(args).unwrap_err().to_string();
    let x = ("x", tensor(0x1000, &[100]));
    let y = ("y", tensor(0x2000, &[100]));
    let both = || Args::new().tensor(x.0, x.1).tensor(y.0, y.1);
    assert_eq!(
        refused(&Args::new().tensor(x.0, x.1)),
        "`axpy<f32>`: `y` is missing"
    );
    assert_eq!(
        refused(&both().float("alpha", 2.0)),
        "`axpy<f32>` has no parameter `alpha`; it takes `x`, `y` and `s`"
    );
    assert_eq!(
        refused(&both().int("s", 2).float("s", 2.0)),
        "`s` is passed twice to `axpy<f32>`"
    );
    assert_eq!(
        refused(&Args::new().tensor("x", tensor(0, &[99])).tensor(y.0, y.1)),
        "`axpy<f32>`: `y` has 100 elements in dimension 0, but `n` is 99 (from `x`)"
    );
    assert_eq!(
        refused(&Args::new().tensor(x.0, x.1).tensor("y", x.1)),
        "`axpy<f32>`: `x` and `y` overlap in memory, and the kernel stores to `y`"
    );
    let huge = [(1i64 << 40) + 4];
    let args = Args::new()
        .tensor("x", tensor(1 << 50, &huge))
        .tensor("y", tensor(1 << 60, &huge));
    assert_eq!(
        refused(&args),
        "`axpy<f32>` cannot run on these arguments: it needs n <= 1099511627776 (`n` is 1099511627780, from `x`)"
    );
}

#[test]
fn the_first_body_whose_facts_hold_is_taken() {
    let body = |address: u64| {
        let args = Args::new()
            .tensor("x", tensor(address, &[100]))
            .tensor("y", tensor(0x2000, &[100]));
        axpy().body_for("sm_75", &args).unwrap()
    };
    assert_eq!(body(0x1000), 0);
    assert_eq!(body(0x1004), 1);

    let mut special = manifest();
    special.instances[0].bodies.pop();
    let set = KernelSet::from_bytes(set_bytes(special, PTX)).unwrap();
    let kernel = set.kernel("axpy<f32>").unwrap();
    let args = Args::new()
        .tensor("x", tensor(0x1004, &[100]))
        .tensor("y", tensor(0x2000, &[100]));
    assert_eq!(
        kernel.body_for("sm_75", &args).unwrap_err().to_string(),
        "no body of `axpy<f32>` for sm_75 fits these arguments: aligned(x, 16) (`x` must start at a multiple of 16 bytes, and its address is 0x1004)"
    );
    assert_eq!(
        kernel.body_for("sm_80", &args).unwrap_err().to_string(),
        "`axpy<f32>` has no code for sm_80; it has code for sm_75"
    );
}

#[test]
fn a_set_names_what_it_has() {
    let set = KernelSet::from_bytes(set_bytes(manifest(), PTX)).unwrap();
    assert_eq!(
        set.kernel("rmsnorm<bf16>").unwrap_err().to_string(),
        "kernel set `by-hand` has no kernel `rmsnorm<bf16>`; it has `axpy<f32>`"
    );
    assert_eq!(set.kernels().count(), 1);
}

#[test]
fn ops_are_checked_launch_by_launch() {
    let set = KernelSet::from_bytes(set_bytes(op_manifest(), PTX)).unwrap();
    let op = set.op("shifted< f32 >").unwrap();
    assert!(set.has_op("shifted<f32>") && !set.has_op("axpy<f32>"));
    let args = |n: &'static [i64]| {
        Args::new()
            .tensor("x", tensor(0x1000, n))
            .tensor("y", tensor(0x2000_0000, n))
            .float("s", 0.5)
    };
    let checked = op.check(&args(&[100])).unwrap();
    assert_eq!(checked.dims, [("n".to_owned(), 100)]);
    for (n, bytes) in [(0, 0), (1, 256), (64, 256), (65, 512)] {
        assert_eq!(op.workspace_size(&[("n", n)]).unwrap(), bytes);
    }
    assert_eq!(op.workspace_for(&args(&[65])).unwrap(), 512);
    let refused = |error: Error| error.to_string();
    assert_eq!(
        refused(op.workspace_size(&[]).unwrap_err()),
        "the workspace of `shifted<f32>` depends on `n`, which is not given"
    );
    assert_eq!(
        refused(op.workspace_size(&[("n", -3)]).unwrap_err()),
        "`shifted<f32>`: workspace `w` would have -3 elements in dimension 0"
    );
    assert_eq!(
        refused(op.workspace_size(&[("m", 3)]).unwrap_err()),
        "`shifted<f32>` has no parameter `m`; it takes `n`"
    );
    assert_eq!(
        refused(op.check(&args(&[1 << 21])).unwrap_err()),
        "`shifted<f32>` cannot run on these arguments: it needs n < 1048576 (`n` is 2097152, from `x`)"
    );
    assert_eq!(
        refused(set.op("axpy<f32>").unwrap_err()),
        "kernel set `by-hand` has no op `axpy<f32>`; it has `shifted<f32>`"
    );

    // What only a launch cannot take names the launch.
    let mut manifest = op_manifest();
    manifest.ops[0].workspaces[0].extents = vec![Formula::int(7)];
    let set = KernelSet::from_bytes(set_bytes(manifest, PTX)).unwrap();
    assert_eq!(
        refused(
            set.op("shifted<f32>")
                .unwrap()
                .check(&args(&[100]))
                .unwrap_err()
        ),
        "in `shifted<f32>`: `axpy<f32>`: `y` has 7 elements in dimension 0, but `n` is 100 (from `x`)"
    );
}

#[test]
fn a_set_with_a_broken_op_does_not_open() {
    let refused = |change: &dyn Fn(&mut OpRecord)| {
        let mut manifest = op_manifest();
        change(&mut manifest.ops[0]);
        let mut writer = SetWriter::new(manifest);
        writer.add_module(ModuleKind::Ptx, PTX.as_bytes());
        writer.finish().unwrap_err().to_string()
    };
    for (change, wanted) in [
        (
            &(|op: &mut OpRecord| op.steps[1].instance = 1) as &dyn Fn(&mut OpRecord),
            "op `shifted<f32>`: launch 1: the set has no instance 1",
        ),
        (
            &|op: &mut OpRecord| op.steps.clear(),
            "op `shifted<f32>`: it launches nothing",
        ),
        (
            &|op: &mut OpRecord| op.steps[0].args.truncate(2),
            "op `shifted<f32>`: launch 0: 2 arguments for 3 parameters",
        ),
        (
            &|op: &mut OpRecord| op.steps[0].args.swap(1, 2),
            "op `shifted<f32>`: launch 0: argument 1 does not fit its parameter",
        ),
        (
            &|op: &mut OpRecord| op.workspaces[0].extents[0] = Formula::dim(1),
            "op `shifted<f32>`: the size of workspace `w` is malformed",
        ),
        (
            &|op: &mut OpRecord| op.name = "axpy<f32>".into(),
            "the manifest has two instances `axpy<f32>`",
        ),
    ] {
        assert_eq!(refused(change), wanted);
    }
}

#[test]
fn devices_have_names() {
    for name in [
        "",
        "gpu",
        "cuda:",
        "cuda:x",
        "cuda:-1",
        "cuda:+1",
        "CUDA",
        "emulator:",
        "emulator:sm_90",
        "Emulator",
    ] {
        match Device::named(name) {
            Err(Error::UnknownDevice(named)) => assert_eq!(named, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn without_a_driver_or_device_there_is_a_sentence() {
    // With a driver, no machine has this many devices.
    let error = Device::cuda(1_000_000).unwrap_err();
    let text = error.to_string();
    match error {
        Error::NoDriver => assert_eq!(
            text,
            "there is no CUDA driver here: libcuda.so.1 cannot be loaded"
        ),
        Error::NoDevice { ordinal, count } => assert_eq!(
            text,
            format!("there is no device cuda:{ordinal}; the driver has {count}")
        ),
        Error::DriverInit { .. } => {
            assert!(text.starts_with("the CUDA driver does not start: "))
        }
        other => panic!("{other}"),
    }
}
