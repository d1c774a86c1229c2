//! Loading and launching, on the device that [`device`](super::device) of the test gives; without one, each test passes.

use crate::{
    common::{PTX, manifest, op_manifest, set_bytes},
    device,
};
use tesserine::{Args, DType, Device, DeviceTensor, Error, KernelSet, TensorRef, Workspace};
use tesserine_set::{
    BodyRecord, Formula, FormulaOp, Manifest, ParamKind, Persistent, StepArg, Term, ViewArg,
    ViewBase, ViewFacts,
};

/// `many`, or on the emulator, which takes its time, 64 times fewer.
fn count_for(device: &Device, many: usize) -> usize {
    match device {
        Device::Emulator(_) => many / 64,
        _ => many,
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let chunks = bytes.chunks_exact(4);
    chunks
        .map(|c| f32::from_le_bytes(c.try_into().unwrap()))
        .collect()
}

fn ramp(count: usize) -> Vec<f32> {
    (0..count).map(|i| i as f32 * 0.5).collect()
}

#[test]
fn a_kernel_runs() {
    let Some(device) = device() else { return };
    let set = KernelSet::from_bytes(set_bytes(manifest(), PTX)).unwrap();
    let axpy = set.kernel("axpy<f32>").unwrap();
    let stream = device.stream().unwrap();
    let count = 1000;
    let x = device
        .upload(DType::F32, &[count as i64], &bytes(&ramp(count)))
        .unwrap();
    let y = device
        .upload(DType::F32, &[count as i64], &bytes(&vec![1.0; count]))
        .unwrap();
    let args = Args::new()
        .tensor("x", x.view())
        .tensor("y", y.view())
        .float("s", 2.0);
    let (begin, end) = (device.event().unwrap(), device.event().unwrap());
    begin.record(&stream).unwrap();
    let launch = axpy.launch(&stream, &args).unwrap();
    end.record(&stream).unwrap();
    assert_eq!((launch.body, launch.blocks), (0, 4));
    assert!(begin.elapsed_ms(&end).unwrap() >= 0.0);
    let wanted: Vec<f32> = ramp(count).iter().map(|v| 2.0 * v + 1.0).collect();
    assert_eq!(floats(&y.read().unwrap()), wanted);

    // Once more, from code that is loaded, on the default stream and with the default scalar.
    let args = Args::new().tensor("x", x.view()).tensor("y", y.view());
    axpy.launch(&device.default_stream(), &args).unwrap();
    device.synchronize().unwrap();
    let wanted: Vec<f32> = ramp(count).iter().map(|v| 3.0 * v + 1.0).collect();
    assert_eq!(floats(&y.read().unwrap()), wanted);
}

#[test]
fn strides_are_the_callers_and_misaligned_tensors_take_the_general_body() {
    let Some(device) = device() else { return };
    let set = KernelSet::from_bytes(set_bytes(manifest(), PTX)).unwrap();
    let axpy = set.kernel("axpy<f32>").unwrap();
    let stream = device.stream().unwrap();
    let x = device
        .upload(DType::F32, &[301], &bytes(&ramp(301)))
        .unwrap();
    let y = device
        .upload(DType::F32, &[100], &bytes(&[0.0; 100]))
        .unwrap();
    // Every third element from the second on.
    // SAFETY: elements 1 to 298 of a tensor of 301.
    let every_third =
        unsafe { TensorRef::from_raw(x.view().pointer() + 4, DType::F32, &[100], &[3]) };
    let args = Args::new().tensor("x", every_third).tensor("y", y.view());
    let launch = axpy.launch(&stream, &args).unwrap();
    assert_eq!((launch.body, launch.blocks), (1, 2));
    stream.synchronize().unwrap();
    let wanted: Vec<f32> = (0..100).map(|i| (3 * i + 1) as f32 * 0.5).collect();
    assert_eq!(floats(&y.read().unwrap()), wanted);
}

#[test]
fn an_empty_grid_launches_nothing() {
    let Some(device) = device() else { return };
    let set = KernelSet::from_bytes(set_bytes(manifest(), PTX)).unwrap();
    let empty = device.alloc(DType::F32, &[0]).unwrap();
    let other = device.alloc(DType::F32, &[0]).unwrap();
    let args = Args::new()
        .tensor("x", empty.view())
        .tensor("y", other.view());
    let stream = device.stream().unwrap();
    let launch = set
        .kernel("axpy<f32>")
        .unwrap()
        .launch(&stream, &args)
        .unwrap();
    assert_eq!(launch.blocks, 0);
}

/// The kernel by hand again, where a block goes on to the chunk that is as many further as there are blocks.
fn walking() -> String {
    let before = "    mul.wide.u32 %d0, %r0, %r1;\n";
    let body = PTX
        .replace(before, &format!("again:\n{before}"))
        .replace("st.global.f32 [%d5], %f3;\n    ret;", "st.global.f32 [%d5], %f3;\n    mov.u32 %r3, %nctaid.x;\n    add.u32 %r0, %r0, %r3;\n    bra again;");
    assert!(body.contains("again:") && body.contains("bra again"));
    body
}

#[test]
fn a_persistent_body_is_launched_as_often_as_it_fits() {
    let Some(device) = device() else { return };
    for (blocks_per_sm, at_most) in [(Some(1), 1), (Some(2), 2), (None, 32)] {
        let mut manifest = manifest();
        for body in &mut manifest.instances[0].bodies {
            body.persistent = Some(Persistent {
                blocks_per_sm,
                dynamic: false,
            });
        }
        let set = KernelSet::from_bytes(set_bytes(manifest, &walking())).unwrap();
        let axpy = set.kernel("axpy<f32>").unwrap();
        let stream = device.stream().unwrap();
        for count in [1000usize, count_for(&device, 1 << 22)] {
            let x = device
                .upload(DType::F32, &[count as i64], &bytes(&ramp(count)))
                .unwrap();
            let y = device
                .upload(DType::F32, &[count as i64], &bytes(&vec![1.0; count]))
                .unwrap();
            let args = Args::new().tensor("x", x.view()).tensor("y", y.view());
            let launch = axpy.launch(&stream, &args).unwrap();
            stream.synchronize().unwrap();
            let points = count.div_ceil(256) as u32;
            let sms = device.multiprocessors();
            assert!(launch.blocks >= sms.min(points), "{launch:?}");
            assert!(launch.blocks <= (at_most * sms).min(points), "{launch:?}");
            if let Some(blocks) = blocks_per_sm {
                assert_eq!(launch.blocks, (blocks * sms).min(points));
            }
            let wanted: Vec<f32> = ramp(count).iter().map(|v| v + 1.0).collect();
            assert!(floats(&y.read().unwrap()) == wanted, "{count} elements");
        }
    }
}

#[test]
fn of_bodies_that_compete_the_cheapest_runs() {
    let Some(device) = device() else { return };
    let n = || Formula::dim(0);
    let mut manifest = manifest();
    let bodies = &mut manifest.instances[0].bodies;
    let general = bodies.pop().unwrap();
    let one = bodies.pop().unwrap();
    // The first costs `n`, the second as much as the device has multiprocessors, the third overflows.
    let mut body = |cost: Formula| {
        bodies.push(BodyRecord {
            cost: Some(cost),
            ..one.clone()
        })
    };
    body(n());
    body(Formula(vec![Term::Multiprocessors]));
    body(Formula::binary(
        FormulaOp::Mul,
        Formula::binary(FormulaOp::Sub, n(), Formula::int(i64::MAX)),
        Formula::int(4),
    ));
    bodies.push(general);
    let set = KernelSet::from_bytes(set_bytes(manifest, PTX)).unwrap();
    let axpy = set.kernel("axpy<f32>").unwrap();
    let stream = device.stream().unwrap();
    let sms = device.multiprocessors() as usize;
    for (count, skipped, body) in [
        (sms - 1, 0, 0),
        (sms, 0, 0),
        (sms + 1, 0, 1),
        // Not aligned: none of them serves.
        (sms + 1, 1, 3),
    ] {
        let whole = device
            .upload(
                DType::F32,
                &[(count + skipped) as i64],
                &bytes(&ramp(count + skipped)),
            )
            .unwrap();
        let y = device
            .upload(DType::F32, &[count as i64], &bytes(&vec![1.0; count]))
            .unwrap();
        let x = whole.view();
        let shape = [count as i64];
        // SAFETY: a part of the tensor, which is kept.
        let x = unsafe {
            TensorRef::from_raw(x.pointer() + 4 * skipped as u64, DType::F32, &shape, &[1])
        };
        let args = Args::new().tensor("x", x).tensor("y", y.view());
        assert_eq!(axpy.launch(&stream, &args).unwrap().body, body, "{count}");
        stream.synchronize().unwrap();
    }
}

#[test]
fn the_drivers_log_is_shown() {
    let Some(device) = device() else { return };
    let broken = PTX.replace("fma.rn.f32", "fma.rn.f33");
    let set = KernelSet::from_bytes(set_bytes(manifest(), &broken)).unwrap();
    let error = set
        .kernel("axpy<f32>")
        .unwrap()
        .prepare(&device, None)
        .unwrap_err();
    match &error {
        Error::Load { report, code, .. } => {
            assert_eq!(*code, "PTX");
            assert!(report.contains("line"), "{error}");
            // The driver's error comes first.
            let lines = report.lines().count();
            assert!(
                lines > 1 || matches!(device, Device::Emulator(_)),
                "{error}"
            );
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_description_is_no_memory() {
    let Some(device) = device() else { return };
    let set = KernelSet::from_bytes(set_bytes(manifest(), PTX)).unwrap();
    let y = device.alloc(DType::F32, &[8]).unwrap();
    let described = TensorRef::described(0x1000, DType::F32, &[8], &[1]);
    let args = Args::new().tensor("x", described).tensor("y", y.view());
    let stream = device.stream().unwrap();
    let error = set
        .kernel("axpy<f32>")
        .unwrap()
        .launch(&stream, &args)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "`x` is only a description: `axpy<f32>` cannot be launched on it"
    );
}

#[test]
fn threads_share_a_device() {
    let Some(device) = device() else { return };
    let set = KernelSet::from_bytes(set_bytes(manifest(), PTX)).unwrap();
    std::thread::scope(|scope| {
        for i in 0..4 {
            let (set, device) = (set.clone(), &device);
            scope.spawn(move || {
                let axpy = set.kernel("axpy<f32>").unwrap();
                let stream = device.stream().unwrap();
                let x = device
                    .upload(DType::F32, &[64], &bytes(&[i as f32; 64]))
                    .unwrap();
                let y = device
                    .upload(DType::F32, &[64], &bytes(&[1.0; 64]))
                    .unwrap();
                let args = Args::new().tensor("x", x.view()).tensor("y", y.view());
                for _ in 0..10 {
                    axpy.launch(&stream, &args).unwrap();
                }
                stream.synchronize().unwrap();
                assert_eq!(floats(&y.read().unwrap()), [10.0 * i as f32 + 1.0; 64]);
            });
        }
    });
}

#[test]
fn what_follows_a_launch_is_checked_as_it_was() {
    let Some(device) = device() else { return };
    let set = KernelSet::from_bytes(set_bytes(manifest(), PTX)).unwrap();
    let axpy = set.kernel("axpy<f32>").unwrap();
    let stream = device.stream().unwrap();
    let x = device
        .upload(DType::F32, &[2048], &bytes(&ramp(2048)))
        .unwrap();
    let y = device.alloc(DType::F32, &[2048]).unwrap();
    let (from, to) = (x.view().pointer(), y.view().pointer());
    let part = |base: u64, start: u64| unsafe {
        // SAFETY: `start` and 100 elements more are in the tensor, or nothing is launched on the part.
        TensorRef::from_raw(base + 4 * start, DType::F32, &[100], &[1])
    };
    let launch = |x, y, s| {
        let args = Args::new().tensor("x", x).tensor("y", y).float("s", s);
        let launch = axpy.launch(&stream, &args)?;
        stream.synchronize()?;
        Ok::<_, Error>((launch.body, launch.blocks))
    };
    // Of each: where x and y begin, the factor, and the body that fits. Those that are not aligned to 16 bytes have the general one.
    let cases = [
        (0, 0, 2.0, 0),
        (64, 64, 2.0, 0),
        (128, 640, -1.0, 0),
        (1, 64, 2.0, 1),
        (64, 65, 2.0, 1),
        (65, 64, 2.0, 1),
        (4, 8, 0.0, 0),
        (4, 8, -0.0, 0),
        (1024, 1024, 3.0, 0),
    ];
    for _ in 0..2 {
        for (i, j, s, body) in cases {
            y.write(&bytes(&[1.0; 2048])).unwrap();
            let blocks = if body == 0 { 1 } else { 2 };
            let done = launch(part(from, i), part(to, j), s).unwrap();
            assert_eq!(done, (body, blocks), "{i} {j}");
            let stored = floats(&y.read().unwrap());
            let wanted = (0..2048).map(|e| {
                let inside = (j as usize..j as usize + 100).contains(&e);
                let x = (e as f32 - j as f32 + i as f32) * 0.5;
                if inside { s as f32 * x + 1.0 } else { 1.0 }
            });
            assert_eq!(stored, wanted.collect::<Vec<f32>>(), "{i} {j} {s}");
        }
        // The same form, and addresses that do not do.
        for (i, j) in [(0u64, 64), (64, 0), (0, 0), (32, 128)] {
            let error = launch(part(from, i), part(from, j), 2.0).unwrap_err();
            assert!(error.to_string().contains("overlap"), "{error}");
        }
        let error = launch(part(from + 2, 0), part(to, 0), 2.0).unwrap_err();
        assert!(
            error.to_string().contains("a multiple of 4 bytes"),
            "{error}"
        );
        let error = launch(part(u64::MAX - 255, 0), part(to, 0), 2.0).unwrap_err();
        assert!(error.to_string().contains("address space"), "{error}");
    }
}

/// The device, and another of its kind.
fn two_devices() -> Option<[Device; 2]> {
    let first = device()?;
    let second = match &first {
        Device::Cuda(_) => match Device::cuda(1) {
            Ok(device) => device,
            Err(error) => {
                eprintln!("not run: {error}");
                return None;
            }
        },
        _ => device()?,
    };
    Some([first, second])
}

#[test]
fn two_devices_run_one_set_from_two_threads_at_once() {
    let Some(devices) = two_devices() else { return };
    let set = KernelSet::from_bytes(set_bytes(manifest(), PTX)).unwrap();
    let axpy = set.kernel("axpy<f32>").unwrap();
    let together = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for (i, device) in devices.iter().enumerate() {
            let (axpy, together) = (axpy.clone(), &together);
            scope.spawn(move || {
                let stream = device.stream().unwrap();
                let count = 256 * (i + 1);
                let shape = [count as i64];
                let x = device.upload(DType::F32, &shape, &bytes(&ramp(count)));
                let x = x.unwrap();
                let y = device.alloc(DType::F32, &shape).unwrap();
                y.fill(0).unwrap();
                let args = Args::new().tensor("x", x.view()).tensor("y", y.view());
                together.wait();
                for round in 1..=20 {
                    axpy.launch(&stream, &args).unwrap();
                    stream.synchronize().unwrap();
                    let wanted: Vec<f32> = ramp(count).iter().map(|v| v * round as f32).collect();
                    assert_eq!(floats(&y.read().unwrap()), wanted);
                }
            });
        }
    });
    // From one thread in turn; what lies on one device is refused on the other.
    let made: Vec<_> = devices
        .iter()
        .map(|d| {
            let x = d.upload(DType::F32, &[64], &bytes(&ramp(64))).unwrap();
            let y = d.upload(DType::F32, &[64], &bytes(&[1.0; 64])).unwrap();
            (x, y, d.stream().unwrap())
        })
        .collect();
    for round in 1..=4 {
        for (x, y, stream) in &made {
            let args = Args::new().tensor("x", x.view()).tensor("y", y.view());
            axpy.launch(stream, &args).unwrap();
        }
        for (_, y, stream) in &made {
            stream.synchronize().unwrap();
            let wanted: Vec<f32> = ramp(64).iter().map(|v| v * round as f32 + 1.0).collect();
            assert_eq!(floats(&y.read().unwrap()), wanted);
        }
    }
    let crossed = Args::new()
        .tensor("x", made[0].0.view())
        .tensor("y", made[0].1.view());
    let error = axpy.launch(&made[1].2, &crossed).unwrap_err();
    assert!(matches!(error, Error::OtherDevice { .. }), "{error}");
}

/// The op by hand adds 2 + 2 * s * x to y.
fn op_args<'a>(x: &'a DeviceTensor, y: &'a DeviceTensor) -> Args<'a> {
    Args::new()
        .tensor("x", x.view())
        .tensor("y", y.view())
        .float("s", 0.5)
}

#[test]
fn an_op_fits_its_workspace_exactly() {
    let Some(device) = device() else { return };
    let set = KernelSet::from_bytes(set_bytes(op_manifest(), PTX)).unwrap();
    let op = set.op("shifted<f32>").unwrap();
    let stream = device.stream().unwrap();
    for count in [1usize, 64, 1000] {
        let x = device
            .upload(DType::F32, &[count as i64], &bytes(&ramp(count)))
            .unwrap();
        let y = device
            .upload(DType::F32, &[count as i64], &bytes(&vec![1.0; count]))
            .unwrap();
        let args = op_args(&x, &y);
        let size = op.workspace_for(&args).unwrap();
        assert_eq!(size, (4 * count as u64).next_multiple_of(256));
        assert_eq!(op.workspace_size(&[("n", count as i64)]).unwrap(), size);
        // What lies behind the workspace is nobody's business.
        let memory = device.alloc(DType::U8, &[size as i64 + 256]).unwrap();
        memory.fill(0xA5).unwrap();
        // SAFETY: the memory is as long, and of nobody else.
        let workspace = unsafe { Workspace::from_raw(memory.view().pointer(), size) }.unwrap();
        let launches = op.run(&stream, &args, &workspace).unwrap();
        assert_eq!(launches.len(), 2);
        stream.synchronize().unwrap();
        let wanted: Vec<f32> = ramp(count).iter().map(|v| 1.0 + 2.0 + v).collect();
        assert_eq!(floats(&y.read().unwrap()), wanted);
        let left = memory.read().unwrap();
        assert!(left[size as usize..].iter().all(|b| *b == 0xA5));

        // SAFETY: as above.
        let small = unsafe { Workspace::from_raw(memory.view().pointer(), size - 256) }.unwrap();
        let error = op.run(&stream, &args, &small).unwrap_err();
        assert!(matches!(error, Error::WorkspaceSize { .. }), "{error}");
    }
}

#[test]
fn a_captured_op_is_replayed_on_two_streams() {
    let Some(device) = device() else { return };
    let set = KernelSet::from_bytes(set_bytes(op_manifest(), PTX)).unwrap();
    let op = set.op("shifted<f32>").unwrap();
    op.prepare(&device, None).unwrap();
    let count = 3000usize;
    let replays = 20;
    let mut lanes = Vec::new();
    for lane in 0..2 {
        let values: Vec<f32> = (0..count).map(|i| (i % 7 + lane) as f32).collect();
        let x = device
            .upload(DType::F32, &[count as i64], &bytes(&values))
            .unwrap();
        let y = device
            .upload(DType::F32, &[count as i64], &bytes(&vec![0.0; count]))
            .unwrap();
        let size = op.workspace_for(&op_args(&x, &y)).unwrap();
        let workspace = Workspace::new(&device, size).unwrap();
        lanes.push((device.stream().unwrap(), x, y, workspace, values));
    }
    let graphs: Vec<_> = lanes
        .iter()
        .map(|(stream, x, y, workspace, _)| {
            stream
                .capture(|stream| op.run(stream, &op_args(x, y), workspace).map(|_| ()))
                .unwrap()
        })
        .collect();
    // Nothing has run yet.
    for (_, _, y, ..) in &lanes {
        assert_eq!(floats(&y.read().unwrap()), vec![0.0; count]);
    }
    for _ in 0..replays {
        for ((stream, ..), graph) in lanes.iter().zip(&graphs) {
            graph.launch(stream).unwrap();
        }
    }
    for (stream, _, y, _, values) in &lanes {
        stream.synchronize().unwrap();
        let wanted: Vec<f32> = values.iter().map(|v| replays as f32 * (2.0 + v)).collect();
        assert_eq!(floats(&y.read().unwrap()), wanted);
    }
}

/// The kernel by hand, where blocks draw the chunks that they work on from the word of state, which the last one leaves at 0: a
/// launch that shares the word with another misses chunks.
fn drawing() -> String {
    let body = PTX
        .replace(".param .f32 s\n", ".param .f32 s, .param .u64 word\n")
        .replace(
            ".reg .f32 %f<4>;",
            ".reg .f32 %f<4>;\n    .reg .b64 %w;\n    .reg .b32 %c;\n    .reg .pred %q;\n    .shared .align 4 .b32 drawn;",
        )
        .replace(
            "    mul.wide.u32 %d0, %r0, %r1;\n",
            "    ld.param.u64 %w, [word];\n    setp.ne.u32 %q, %r2, 0;\n    @%q bra wait;\n    mov.u32 %c, %nctaid.x;\n    sub.u32 %c, %c, 1;\n    atom.global.inc.u32 %c, [%w], %c;\n    st.shared.u32 [drawn], %c;\nwait:\n    bar.sync 0;\n    ld.shared.u32 %r0, [drawn];\n    mul.wide.u32 %d0, %r0, %r1;\n",
        );
    for part in ["atom.global.inc", "word\n", "%w;"] {
        assert!(body.contains(part));
    }
    body
}

#[test]
fn words_of_state_are_each_streams_own_and_each_captured_launchs() {
    let Some(device) = device() else { return };
    let mut manifest = manifest();
    for body in &mut manifest.instances[0].bodies {
        body.abi.push(tesserine_set::AbiArg::Counter);
    }
    let set = KernelSet::from_bytes(set_bytes(manifest, &drawing())).unwrap();
    let axpy = set.kernel("axpy<f32>").unwrap();
    axpy.prepare(&device, None).unwrap();
    let count = count_for(&device, 1 << 16);
    let mut lanes = Vec::new();
    for _ in 0..2 {
        let x = device
            .upload(DType::F32, &[count as i64], &bytes(&vec![1.0; count]))
            .unwrap();
        let y = device
            .upload(DType::F32, &[count as i64], &bytes(&vec![0.0; count]))
            .unwrap();
        lanes.push((device.stream().unwrap(), x, y));
    }
    let args = |lane: usize| {
        let (_, x, y) = &lanes[lane];
        Args::new().tensor("x", x.view()).tensor("y", y.view())
    };
    // Bare launches on both streams, then graphs of three launches, replayed side by side.
    for _ in 0..10 {
        for (lane, (stream, ..)) in lanes.iter().enumerate() {
            axpy.launch(stream, &args(lane)).unwrap();
        }
    }
    let graphs: Vec<_> = lanes
        .iter()
        .enumerate()
        .map(|(lane, (stream, ..))| {
            stream
                .capture(|stream| {
                    for _ in 0..3 {
                        axpy.launch(stream, &args(lane))?;
                    }
                    Ok(())
                })
                .unwrap()
        })
        .collect();
    for _ in 0..10 {
        for ((stream, ..), graph) in lanes.iter().zip(&graphs) {
            graph.launch(stream).unwrap();
        }
    }
    // A graph's words go back, and serve the next one.
    drop(graphs);
    let (stream, ..) = &lanes[0];
    let graph = stream
        .capture(|stream| axpy.launch(stream, &args(0)).map(|_| ()))
        .unwrap();
    graph.launch(stream).unwrap();
    for (lane, (stream, _, y)) in lanes.iter().enumerate() {
        stream.synchronize().unwrap();
        let wanted = if lane == 0 { 41.0 } else { 40.0 };
        assert!(
            floats(&y.read().unwrap()) == vec![wanted; count],
            "lane {lane}"
        );
    }
}

/// The set by hand, whose `x` is an i32 view with these facts, the bits of floats, and whose op launches the kernel once, on y.
fn promising(facts: ViewFacts) -> Manifest {
    let mut manifest = op_manifest();
    let op = &mut manifest.ops[0];
    for (signature, facts) in [
        (&mut op.signature, ViewFacts::default()),
        (&mut manifest.instances[0].signature, facts),
    ] {
        let ParamKind::View(x) = &mut signature.params[0].kind else {
            panic!("`x` is a view");
        };
        x.dtype = DType::I32;
        x.facts = facts;
    }
    op.steps.truncate(1);
    op.steps[0].args[1] = Some(StepArg::View(ViewArg {
        base: ViewBase::Param(1),
        steps: Vec::new(),
    }));
    manifest
}

#[test]
fn facts_are_checked_where_the_device_is_told_to() {
    let Some(device) = device() else { return };
    let sorted = ViewFacts {
        sorted: true,
        ..ViewFacts::default()
    };
    let distinct = ViewFacts {
        distinct: true,
        ..ViewFacts::default()
    };
    let values = [1.0f32, 2.0, 4.0, 3.0, 8.0, 2.0];
    let x = device.upload(DType::I32, &[6], &bytes(&values)).unwrap();
    let stream = device.stream().unwrap();
    let bits = |value: f32| value.to_bits();
    for (facts, fault) in [
        (
            sorted,
            format!(
                "declared `sorted`, but element 3 is {}, and the one before it is {}",
                bits(3.0),
                bits(4.0)
            ),
        ),
        (
            distinct,
            "declared `distinct`, but row 5 is equal to row 1".to_owned(),
        ),
    ] {
        let set = KernelSet::from_bytes(set_bytes(promising(facts), PTX)).unwrap();
        let (axpy, op) = (
            set.kernel("axpy<f32>").unwrap(),
            set.op("shifted<f32>").unwrap(),
        );
        let y = device.upload(DType::F32, &[6], &bytes(&[1.0; 6])).unwrap();
        let args = op_args(&x, &y);
        let workspace = Workspace::new(&device, op.workspace_for(&args).unwrap()).unwrap();

        device.check_facts(false);
        axpy.launch(&stream, &args).unwrap();
        stream.synchronize().unwrap();
        let trusted: Vec<f32> = values.iter().map(|v| 1.0 + 0.5 * v).collect();
        assert_eq!(floats(&y.read().unwrap()), trusted);

        // Clones are the same device.
        device.clone().check_facts(true);
        assert!(stream.device().checks_facts());
        let error = axpy.launch(&stream, &args).unwrap_err();
        assert_eq!(error.to_string(), format!("`axpy<f32>`: `x` is {fault}"));
        let error = op.run(&stream, &args, &workspace).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("in `shifted<f32>`: `axpy<f32>`: `x` is {fault}")
        );
        // What is captured has nothing to check yet.
        let captured = stream.capture(|stream| axpy.launch(stream, &args).map(|_| ()));
        let error = captured.unwrap_err();
        assert!(matches!(error, Error::PromiseInCapture { .. }), "{error}");
        stream.synchronize().unwrap();
        assert_eq!(floats(&y.read().unwrap()), trusted);

        // Elements 0, 2 and 4 are as promised.
        // SAFETY: they are of a tensor of 6.
        let even = unsafe { TensorRef::from_raw(x.view().pointer(), DType::I32, &[3], &[2]) };
        let z = device.upload(DType::F32, &[3], &bytes(&[0.0; 3])).unwrap();
        let args = Args::new().tensor("x", even).tensor("y", z.view());
        axpy.launch(&stream, &args).unwrap();
        let args = args.float("s", 2.0);
        op.run(&stream, &args, &workspace).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(floats(&z.read().unwrap()), [3.0, 12.0, 24.0]);
        let empty = device.alloc(DType::I32, &[0]).unwrap();
        let none = device.alloc(DType::F32, &[0]).unwrap();
        let launch = axpy.launch(&stream, &op_args(&empty, &none)).unwrap();
        assert_eq!(launch.blocks, 0);
    }
}

#[test]
fn facts_are_checked_of_what_was_queued_before() {
    let Some(device) = device() else { return };
    let facts = ViewFacts {
        sorted: true,
        ..ViewFacts::default()
    };
    let set = KernelSet::from_bytes(set_bytes(promising(facts), PTX)).unwrap();
    let axpy = set.kernel("axpy<f32>").unwrap();
    let stream = device.stream().unwrap();
    let count = count_for(&device, 1 << 20);
    let upload = |dtype, values: &[f32]| {
        device
            .upload(dtype, &[count as i64], &bytes(values))
            .unwrap()
    };
    let rising: Vec<f32> = ramp(count).iter().map(|v| v + 1.0).collect();
    let falling: Vec<f32> = rising.iter().rev().copied().collect();
    let (rising, falling) = (upload(DType::I32, &rising), upload(DType::I32, &falling));
    let x = upload(DType::I32, &vec![0.0; count]);
    let y = upload(DType::F32, &vec![0.0; count]);
    device.check_facts(true);
    for (from, holds) in [(&rising, true), (&falling, false), (&rising, true)] {
        stream.copy(from, &x).unwrap();
        let launched = axpy.launch(&stream, &op_args(&x, &y));
        assert_eq!(launched.is_ok(), holds);
    }
}
