//! Ops and words of state on a GPU: counts of arrivals, drawn tiles, captured runs, two streams at once. On a machine without one
//! each test says so and passes; on one that cannot compile, `$TESS_SET` names a set built from `ops/ops.toml`.

use tesserine::{Args, DType, Device, DeviceTensor, KernelSet, Op, Stream, Workspace};
#[cfg(feature = "llvm")]
use tesserine_compiler::emit::set::{self, BuildError, SetFile};
use tesserine_compiler::{Session, interp, target::Target};

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

/// The set that `$TESS_SET` names, else one compiled from `ops/ops.toml` for these targets.
#[cfg(feature = "llvm")]
fn compiled(targets: &[Target]) -> KernelSet {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/ops/ops.toml");
    let mut file = SetFile::read(path.as_ref()).unwrap();
    file.retarget(targets);
    let mut session = Session::new();
    let built = set::build(&mut session, &file, None, &|_, _| {});
    let built = built.unwrap_or_else(|error| match error {
        BuildError::Diagnostics(list) => {
            let lines = list.iter().map(|d| d.title.clone());
            panic!("{}", lines.collect::<Vec<_>>().join("; "))
        }
        error => panic!("{error}"),
    });
    KernelSet::from_bytes(built.bytes).unwrap()
}

#[cfg(feature = "llvm")]
fn compiled_for(device: &Device) -> KernelSet {
    let capability = device.info().capability;
    let own = format!("sm_{}{}", capability.major, capability.minor);
    let target = Target::parse(&format!("{own}a")).or_else(|_| Target::parse(&own));
    compiled(&[target.unwrap()])
}

#[cfg(not(feature = "llvm"))]
fn compiled_for(_: &Device) -> KernelSet {
    panic!("nothing can be compiled here: name a kernel set in `$TESS_SET`")
}

fn set_for(device: &Device) -> KernelSet {
    match std::env::var_os("TESS_SET") {
        Some(path) => KernelSet::open(path).unwrap(),
        None => compiled_for(device),
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn floats(tensor: &DeviceTensor) -> Vec<f32> {
    let bytes = tensor.read().unwrap();
    let chunks = bytes.chunks_exact(4);
    chunks
        .map(|c| f32::from_le_bytes(c.try_into().unwrap()))
        .collect()
}

fn upload(device: &Device, shape: &[i64], values: &[f32]) -> DeviceTensor {
    device.upload(DType::F32, shape, &bytes(values)).unwrap()
}

/// A stream with arguments, a workspace, and what one run adds to `z`.
struct Lane {
    stream: Stream,
    x: DeviceTensor,
    z: DeviceTensor,
    workspace: Workspace,
    added: Vec<f32>,
}

impl Lane {
    fn new(device: &Device, op: &Op, parts: usize, n: usize, seed: usize) -> Lane {
        let value = |i: usize| ((i * 7 + seed) % 13) as f32 - 6.0;
        let values: Vec<f32> = (0..parts * n).map(value).collect();
        let sums = (0..n).map(|j| (0..parts).map(|p| 2.0 * values[p * n + j]).sum::<f32>());
        let added = sums.map(|s| s * 1.5).collect();
        let size = op
            .workspace_size(&[("parts", parts as i64), ("n", n as i64)])
            .unwrap();
        let words = 2 * 8u64;
        let exact = [
            (4 * parts * n) as u64,
            4 * n.div_ceil(128) as u64,
            4 * n as u64,
            words,
        ];
        assert_eq!(
            size,
            exact.iter().map(|b| b.next_multiple_of(256)).sum::<u64>()
        );
        Lane {
            stream: device.stream().unwrap(),
            x: upload(device, &[parts as i64, n as i64], &values),
            z: upload(device, &[n as i64], &vec![0.0; n]),
            workspace: Workspace::new(device, size).unwrap(),
            added,
        }
    }

    fn args(&self) -> Args<'_> {
        Args::new()
            .tensor("x", self.x.view())
            .tensor("z", self.z.view())
    }

    fn check(&self, runs: usize) {
        self.stream.synchronize().unwrap();
        let wanted: Vec<f32> = self.added.iter().map(|v| v * runs as f32).collect();
        assert!(floats(&self.z) == wanted, "after {runs} runs");
    }
}

#[test]
fn the_interpreter_computes_what_the_ops_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/ops/ops.tess");
    let mut session = Session::new();
    let module = session.load(path.as_ref(), None).unwrap();
    let target = Target::parse("sm_90a").unwrap();
    let op = session
        .instantiate_op(module, "summed_twice", target)
        .unwrap();
    for (parts, n) in [(1usize, 1usize), (3, 128), (5, 301)] {
        let value = |i: usize| ((i * 7) % 13) as f64 - 6.0;
        let x: Vec<f64> = (0..parts * n).map(value).collect();
        let tensor = |shape: Vec<usize>, values: &[f64]| {
            interp::Tensor::from_f64(DType::F32, shape, values).unwrap()
        };
        let mut args = interp::Args::default();
        args.insert("x".into(), tensor(vec![parts, n], &x).into());
        args.insert("z".into(), tensor(vec![n], &vec![1.0; n]).into());
        let report = interp::run_op(&op, &mut args).unwrap();
        let names: Vec<&str> = report.launches.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["slabs", "drawn", "drawn"]);
        let column = |j: usize| (0..parts).map(|p| x[p * n + j]).sum::<f64>();
        let wanted: Vec<f64> = (0..n).map(|j| 1.0 + 3.0 * column(j)).collect();
        match &args["z"] {
            interp::Arg::Tensor(z) => assert_eq!(z.to_f64(), wanted),
            interp::Arg::Scalar(_) => panic!("`z` is a tensor"),
        }
    }
}

#[cfg(feature = "llvm")]
#[test]
fn the_set_has_what_its_ops_launch_once() {
    let targets = ["sm_80", "sm_90a"].map(|t| Target::parse(t).unwrap());
    let set = compiled(&targets);
    let mut names: Vec<&str> = set
        .manifest()
        .instances
        .iter()
        .map(|i| i.name.as_str())
        .collect();
    names.sort();
    assert_eq!(names, ["drawn", "slabs"]);
    let op = &set.op("slab_sum").unwrap();
    assert!(op.record().workspaces[1].once);
    assert!(!op.record().workspaces[0].once);
    for instance in &set.manifest().instances {
        assert_eq!(instance.bodies.len(), 2, "{}", instance.name);
    }
}

#[test]
fn counts_and_words_are_left_at_zero() {
    let Some(device) = device() else { return };
    let set = set_for(&device);
    let op = set.op("summed_twice").unwrap();
    let lane = Lane::new(&device, &op, 5, 3000, 1);
    for _ in 0..20 {
        op.run(&lane.stream, &lane.args(), &lane.workspace).unwrap();
    }
    lane.check(20);
    // Other dimensions in the same memory: what must be zero lies elsewhere.
    let small = Lane::new(&device, &op, 3, 700, 2);
    for _ in 0..3 {
        op.run(&lane.stream, &small.args(), &lane.workspace)
            .unwrap();
        op.run(&lane.stream, &lane.args(), &lane.workspace).unwrap();
    }
    lane.check(23);
    small.check(3);
}

#[test]
fn captured_runs_are_replayed_on_two_streams_at_once() {
    let Some(device) = device() else { return };
    let set = set_for(&device);
    let op = set.op("summed_twice").unwrap();
    op.prepare(&device, None).unwrap();
    let lanes = [
        Lane::new(&device, &op, 7, 5000, 3),
        Lane::new(&device, &op, 7, 5000, 4),
    ];
    // One workspace has been in use, the other is new.
    op.run(&lanes[0].stream, &lanes[0].args(), &lanes[0].workspace)
        .unwrap();
    let graphs = lanes.each_ref().map(|lane| {
        lane.stream
            .capture(|stream| op.run(stream, &lane.args(), &lane.workspace).map(|_| ()))
            .unwrap()
    });
    for _ in 0..50 {
        for (lane, graph) in lanes.iter().zip(&graphs) {
            graph.launch(&lane.stream).unwrap();
        }
    }
    lanes[0].check(51);
    lanes[1].check(50);
    // A plain run between replays, then other dimensions, which the graph forbids.
    op.run(&lanes[0].stream, &lanes[0].args(), &lanes[0].workspace)
        .unwrap();
    graphs[0].launch(&lanes[0].stream).unwrap();
    lanes[0].check(53);
    let small = Lane::new(&device, &op, 3, 700, 5);
    let error = op
        .run(&lanes[0].stream, &small.args(), &lanes[0].workspace)
        .unwrap_err();
    assert!(
        matches!(error, tesserine::Error::WorkspaceHeld { .. }),
        "{error}"
    );
}

#[test]
fn bare_launches_draw_from_their_streams_words() {
    let Some(device) = device() else { return };
    let set = set_for(&device);
    let kernel = set.kernel("drawn").unwrap();
    kernel.prepare(&device, None).unwrap();
    let n = 1 << 20;
    let lanes: Vec<_> = (0..2)
        .map(|_| {
            let x = upload(&device, &[n], &vec![1.0; n as usize]);
            let y = upload(&device, &[n], &vec![0.0; n as usize]);
            (device.stream().unwrap(), x, y)
        })
        .collect();
    let args = |lane: usize| {
        let (_, x, y) = &lanes[lane];
        Args::new()
            .tensor("x", x.view())
            .tensor("y", y.view())
            .float("s", 1.0)
    };
    for _ in 0..50 {
        for (lane, (stream, ..)) in lanes.iter().enumerate() {
            kernel.launch(stream, &args(lane)).unwrap();
        }
    }
    let graphs: Vec<_> = (0..2)
        .map(|lane| {
            lanes[lane]
                .0
                .capture(|stream| {
                    for _ in 0..4 {
                        kernel.launch(stream, &args(lane))?;
                    }
                    Ok(())
                })
                .unwrap()
        })
        .collect();
    // Graphs beside bare launches of the other stream.
    for _ in 0..10 {
        for (lane, graph) in graphs.iter().enumerate() {
            graph.launch(&lanes[lane].0).unwrap();
            kernel.launch(&lanes[1 - lane].0, &args(1 - lane)).unwrap();
        }
    }
    for (stream, _, y) in &lanes {
        stream.synchronize().unwrap();
        assert!(floats(y) == vec![100.0; n as usize]);
    }
}
