//! Lowering of kernels made by the builder: what layouts, widths, conversions, barriers and buffers come out.

use std::sync::Arc;

use tesserine_compiler::{
    ir::{
        Header, RegionId, Schedule, ValueId,
        role::{self, OpKind},
        tile::{
            self, BinaryOp, Builder, Cache, Constant, Index, Kernel, ReduceOp, TileBody, UnaryOp,
        },
    },
    layout::{Layout, convert_sources, register_sources},
    passes,
    span::Span,
    target::Target,
};
use tesserine_set::{
    Access, DType, Fact, Formula, FormulaOp, Param, ParamKind, Signature, Term, ViewFacts,
    ViewParam,
};

fn view(name: &str, dtype: DType, access: Access, extents: &[Formula]) -> Param {
    Param {
        name: name.to_owned(),
        optional: false,
        kind: ParamKind::View(ViewParam {
            dtype,
            access,
            extents: extents.to_vec(),
            strided: false,
            facts: ViewFacts::default(),
        }),
    }
}

fn scalar(name: &str) -> Param {
    Param {
        name: name.to_owned(),
        optional: false,
        kind: ParamKind::Scalar {
            dtype: DType::F32,
            default: None,
        },
    }
}

/// `dim % by == 0`
fn multiple(dim: u32, by: i64) -> Fact {
    Fact::Holds(Formula(vec![
        Term::Dim(dim),
        Term::Int(by),
        Term::Op(FormulaOp::Rem),
        Term::Int(0),
        Term::Op(FormulaOp::Eq),
    ]))
}

struct Make {
    header: Header,
    body: TileBody,
}

impl Make {
    fn new(dims: &[&str], params: Vec<Param>, facts: Vec<Fact>) -> Make {
        Make {
            header: Header {
                name: "k".to_owned(),
                signature: Signature {
                    dims: dims.iter().map(|d| d.to_string()).collect(),
                    params,
                },
                requires: Vec::new(),
                facts,
                cost: None,
                axes: ["i", "j"]
                    .map(|name| tesserine_compiler::ir::GridAxis::new(name, Formula::dim(0)))
                    .to_vec(),
                order: tesserine_compiler::ir::Order::Rows,
                persistent: false,
                dynamic: false,
                schedule: Schedule::default(),
                span: Span::NONE,
            },
            body: TileBody::new(),
        }
    }

    fn lower(self, target: &str) -> Result<role::Kernel, Vec<String>> {
        let kernel = Kernel {
            header: self.header,
            channels: cranelift_entity::PrimaryMap::new(),
            body: self.body,
        };
        let target = Target::parse(target).expect("a target");
        let lowered = passes::lower(&kernel, &target)
            .map_err(|d| d.iter().map(|d| d.code.to_string()).collect::<Vec<_>>())?;
        check(&lowered);
        Ok(lowered)
    }
}

/// Every tile has a layout, and every operation moves no more than it may.
fn check(kernel: &role::Kernel) {
    for role in &kernel.roles {
        let body = &role.body;
        let layout = |v: ValueId| body.ty(v).layout.clone();
        for (id, op) in &body.ops {
            let text = format!("{id}: {op:?} in\n{kernel}");
            for &v in op.operands.iter().chain(&op.results) {
                let tile = matches!(body.ty(v).ty, tile::Type::Tile(_));
                assert_eq!(layout(v).is_some(), tile, "{text}");
                if let Some(l) = layout(v) {
                    assert_eq!(l.shape, body.ty(v).ty.shape(), "{text}");
                    assert_eq!((l.lane.len(), l.warps()), (5, role.warps), "{text}");
                }
            }
            let tiles: Vec<Arc<Layout>> = op
                .operands
                .iter()
                .chain(&op.results)
                .filter_map(|&v| layout(v))
                .collect();
            let same = tiles.windows(2).all(|w| w[0] == w[1]);
            match &op.kind {
                OpKind::Tile(
                    kind @ (tile::OpKind::Permute(_)
                    | tile::OpKind::Slice(_)
                    | tile::OpKind::Reshape
                    | tile::OpKind::Broadcast),
                ) if tiles.len() == 2 => {
                    assert!(
                        register_sources(kind, &tiles[0], &tiles[1]).is_some(),
                        "{text}"
                    );
                }
                OpKind::Tile(tile::OpKind::Yield | tile::OpKind::For { .. }) => {}
                OpKind::Tile(_) => assert!(same, "{text}"),
                OpKind::Load { width, .. } | OpKind::Store { width, .. } => {
                    if let Some(l) = tiles.first() {
                        assert!(
                            l.contiguous(l.shape.len() - 1).is_multiple_of(*width),
                            "{text}"
                        );
                    }
                }
                OpKind::Convert { scratch } => {
                    let free = convert_sources(&tiles[0], &tiles[1]).is_some();
                    assert_eq!(scratch.is_none(), free, "{text}");
                }
                OpKind::Reduce { axis, .. } => {
                    if let (Some(axis), [from, to]) = (axis, &tiles[..]) {
                        assert_eq!(&from.without_axis(*axis as usize), &**to, "{text}");
                    }
                }
                // The verifier knows how these lie.
                _ => {}
            }
        }
        for buffer in kernel.buffers.values() {
            let offset = buffer.offset.expect("placed");
            assert!(offset + buffer.bytes <= kernel.shared_bytes);
        }
    }
}

fn count(kernel: &role::Kernel, wanted: impl Fn(&OpKind) -> bool) -> usize {
    fn ops(body: &role::RoleBody, region: RegionId, out: &mut Vec<OpKind>) {
        for &id in &body.regions[region].ops {
            out.push(body.ops[id].kind.clone());
            body.ops[id].regions.iter().for_each(|&r| ops(body, r, out));
        }
    }
    let mut all = Vec::new();
    let body = &kernel.roles[0].body;
    ops(body, body.root, &mut all);
    all.iter().filter(|k| wanted(k)).count()
}

fn widths(kernel: &role::Kernel) -> Vec<u32> {
    kernel.roles[0]
        .body
        .ops
        .values()
        .filter_map(|op| match op.kind {
            OpKind::Load { width, .. } | OpKind::Store { width, .. } => Some(width),
            _ => None,
        })
        .collect()
}

fn converts(kernel: &role::Kernel) -> usize {
    count(kernel, |k| matches!(k, OpKind::Convert { .. }))
}

fn barriers(kernel: &role::Kernel) -> usize {
    count(kernel, |k| matches!(k, OpKind::Barrier))
}

fn range(len: u32) -> Index {
    Index::Range {
        len,
        from: false,
        until: false,
    }
}

/// `out[i, 0 +: B] = x[i, 0 +: B] * rsqrt(mean of squares) * weight`, then the same for what lies beyond, in a loop.
fn rmsnorm(facts: Vec<Fact>) -> Make {
    let n = || Formula::dim(1);
    let rows = [Formula::dim(0), n()];
    let mut make = Make::new(
        &["m", "n"],
        vec![
            view("x", DType::Bf16, Access::Read, &rows),
            view("weight", DType::Bf16, Access::Read, &[n()]),
            view("out", DType::Bf16, Access::Write, &rows),
            scalar("eps"),
        ],
        facts,
    );
    const B: u32 = 8192;
    let signature = make.header.signature.clone();
    let mut b = Builder::new(&mut make.body);
    let [x, weight, out, eps] = [0, 1, 2, 3].map(|p| b.param(&signature, p));
    let n = b.dim(1);
    let i = b.grid_index(0);
    let (zero, one, block) = (b.int(0), b.int(1), b.int(i64::from(B)));
    let pad = b.float(0.0, DType::Bf16);
    let row = vec![Index::Scalar, range(B)];
    let head = b.load(x, row.clone(), vec![i, zero], pad, Cache::Normal);
    let head = b.cast(head, DType::F32);
    let squares = b.binary(BinaryOp::Mul, head, head);
    let sum = b.reduce(ReduceOp::Sum, squares, None);
    let nf = b.cast(n, DType::F32);
    let mean = b.binary(BinaryOp::Div, sum, nf);
    let mean = b.binary(BinaryOp::Add, mean, eps);
    let scale = b.unary(UnaryOp::Rsqrt, mean);
    let scale = b.broadcast(scale, &[B]);
    let write = |b: &mut Builder<'_>, v: ValueId, at: ValueId| {
        let w = b.load(weight, vec![range(B)], vec![at], pad, Cache::Normal);
        let w = b.cast(w, DType::F32);
        let y = b.binary(BinaryOp::Mul, v, scale);
        let y = b.binary(BinaryOp::Mul, y, w);
        let y = b.cast(y, DType::Bf16);
        b.store(out, row.clone(), vec![i, at], y, Cache::Normal, false);
    };
    write(&mut b, head, zero);
    let blocks = b.binary(BinaryOp::Div, n, block);
    let inner = b.body.new_region();
    let c = b.body.add_argument(inner, tile::Type::Scalar(DType::I64));
    {
        let mut b = b.at(inner);
        let at = b.binary(BinaryOp::Mul, c, block);
        let v = b.load(x, row.clone(), vec![i, at], pad, Cache::Normal);
        let v = b.cast(v, DType::F32);
        write(&mut b, v, at);
        b.yield_(Vec::new());
    }
    b.for_(None, false, [one, blocks, one], &[], inner);
    b.return_();
    make
}

fn aligned(params: &[u32]) -> Vec<Fact> {
    params
        .iter()
        .map(|&param| Fact::Aligned { param, bytes: 16 })
        .collect()
}

#[test]
fn a_row_kernel_has_whole_vectors_and_no_conversions() {
    let facts = [aligned(&[0, 1, 2]), vec![multiple(1, 8)]].concat();
    let kernel = rmsnorm(facts).lower("sm_90a").expect("lowers");
    assert_eq!(kernel.roles[0].warps, 8);
    assert_eq!(widths(&kernel), [8; 6]);
    assert_eq!((converts(&kernel), barriers(&kernel)), (0, 0), "{kernel}");
    assert_eq!(kernel.shared_bytes, 32);
    let load = &kernel.roles[0]
        .body
        .ops
        .values()
        .find(|op| matches!(op.kind, OpKind::Load { .. }));
    let layout = load.map(|op| kernel.roles[0].body.ty(op.results[0]).layout.clone());
    let layout = layout.flatten().expect("a tile");
    assert_eq!((layout.contiguous(0), layout.registers()), (8, 32));
}

#[test]
fn without_proof_accesses_are_single_and_side_by_side() {
    for facts in [
        vec![],
        aligned(&[0, 1, 2]),
        vec![multiple(1, 8)],
        [aligned(&[0, 1, 2]), vec![multiple(1, 9)]].concat(),
    ] {
        let kernel = rmsnorm(facts).lower("sm_75").expect("lowers");
        assert_eq!(widths(&kernel), [1; 6]);
        assert_eq!(converts(&kernel), 0, "{kernel}");
    }
    // Half the vector, where only half is proven.
    let facts = [aligned(&[0, 1, 2]), vec![multiple(1, 12)]].concat();
    assert_eq!(
        widths(&rmsnorm(facts).lower("sm_75").expect("lowers")),
        [4; 6]
    );
}

/// `y[j*N +: N, i*M +: M] = x[i*M +: M, j*N +: N].t`
fn transpose(m: u32, n: u32, dtype: DType, facts: Vec<Fact>) -> Make {
    let (fm, fn_) = (Formula::dim(0), Formula::dim(1));
    let mut make = Make::new(
        &["m", "n"],
        vec![
            view("x", dtype, Access::Read, &[fm.clone(), fn_.clone()]),
            view("y", dtype, Access::Write, &[fn_, fm]),
        ],
        facts,
    );
    let signature = make.header.signature.clone();
    let mut b = Builder::new(&mut make.body);
    let [x, y] = [0, 1].map(|p| b.param(&signature, p));
    let (i, j) = (b.grid_index(0), b.grid_index(1));
    let (bm, bn) = (b.int(i64::from(m)), b.int(i64::from(n)));
    let i = b.binary(BinaryOp::Mul, i, bm);
    let j = b.binary(BinaryOp::Mul, j, bn);
    let pad = b.float(0.0, dtype);
    let t = b.load(x, vec![range(m), range(n)], vec![i, j], pad, Cache::Normal);
    let t = b.permute(t, vec![1, 0]);
    b.store(
        y,
        vec![range(n), range(m)],
        vec![j, i],
        t,
        Cache::Normal,
        false,
    );
    b.return_();
    make
}

#[test]
fn a_transpose_passes_through_shared_memory() {
    let facts = [aligned(&[0, 1]), vec![multiple(0, 8), multiple(1, 8)]].concat();
    for facts in [Vec::new(), facts] {
        let wide = !facts.is_empty();
        let kernel = transpose(64, 64, DType::F16, facts)
            .lower("sm_80")
            .expect("lowers");
        assert_eq!(
            widths(&kernel),
            if wide { [8, 8] } else { [1, 1] },
            "{kernel}"
        );
        assert_eq!((converts(&kernel), barriers(&kernel)), (1, 0), "{kernel}");
        assert!(
            (64 * 64 * 2..64 * 80 * 2).contains(&kernel.shared_bytes),
            "{kernel}"
        );
    }
}

#[test]
fn what_does_not_fit_is_an_error_with_its_code() {
    let codes = transpose(512, 512, DType::F32, Vec::new())
        .lower("sm_90a")
        .map(|_| ());
    assert_eq!(codes, Err(vec!["E0621".to_owned()]));
    let mut make = rmsnorm(Vec::new());
    make.header.schedule.warps = Some(6);
    assert_eq!(
        make.lower("sm_80").map(|_| ()),
        Err(vec!["E0620".to_owned()])
    );
    let mut make = rmsnorm(Vec::new());
    make.header.schedule.warps = Some(16);
    assert_eq!(make.lower("sm_80").map(|k| k.roles[0].warps), Ok(16));
}

/// Softmax over the rows of a `[R, B]` tile, with the row maxima stored.
fn softmax(rows: u32, columns: u32, facts: Vec<Fact>) -> Make {
    let shape = [Formula::dim(0), Formula::dim(1)];
    let mut make = Make::new(
        &["m", "n"],
        vec![
            view("x", DType::F16, Access::Read, &shape),
            view("y", DType::F16, Access::Write, &shape),
            view("top", DType::F32, Access::Write, &shape[..1]),
        ],
        facts,
    );
    let signature = make.header.signature.clone();
    let mut b = Builder::new(&mut make.body);
    let [x, y, top] = [0, 1, 2].map(|p| b.param(&signature, p));
    let i = b.grid_index(0);
    let step = b.int(i64::from(rows));
    let i = b.binary(BinaryOp::Mul, i, step);
    let zero = b.int(0);
    let pad = b.float(f64::NEG_INFINITY, DType::F16);
    let tile = vec![range(rows), range(columns)];
    let v = b.load(x, tile.clone(), vec![i, zero], pad, Cache::Normal);
    let v = b.cast(v, DType::F32);
    let hi = b.reduce(ReduceOp::Max, v, Some(1));
    b.store(top, vec![range(rows)], vec![i], hi, Cache::Normal, false);
    let hi = b.reshape(hi, &[rows, 1]);
    let hi = b.broadcast(hi, &[rows, columns]);
    let e = b.binary(BinaryOp::Sub, v, hi);
    let e = b.unary(UnaryOp::Exp, e);
    let sum = b.reduce(ReduceOp::Sum, e, Some(1));
    let sum = b.reshape(sum, &[rows, 1]);
    let sum = b.broadcast(sum, &[rows, columns]);
    let e = b.binary(BinaryOp::Div, e, sum);
    let e = b.cast(e, DType::F16);
    b.store(y, tile, vec![i, zero], e, Cache::Normal, false);
    b.return_();
    make
}

#[test]
fn rows_of_a_tile_keep_to_their_warps() {
    let facts = [aligned(&[0, 1]), vec![multiple(1, 8)]].concat();
    let kernel = softmax(16, 256, facts.clone())
        .lower("sm_90a")
        .expect("lowers");
    assert_eq!(converts(&kernel), 0, "{kernel}");
    assert_eq!(kernel.shared_bytes, 0, "{kernel}");
    assert_eq!(widths(&kernel)[0], 8, "{kernel}");
    // Odd sizes and one row lower too.
    for (rows, columns) in [(1, 4096), (7, 80), (3, 176), (5, 1), (1, 1), (176, 7)] {
        for facts in [Vec::new(), facts.clone()] {
            let kernel = softmax(rows, columns, facts)
                .lower("sm_75")
                .expect("lowers");
            assert_eq!(converts(&kernel), 0, "{kernel}");
        }
    }
}

#[test]
fn a_block_that_rereads_what_it_stored_waits() {
    // residual[i, 0 +: B] = x + 1; y = residual[i, shift +: B] …
    let build = |shift: i64, block: u32| {
        let mut make = Make::new(
            &["m", "n"],
            vec![view(
                "x",
                DType::F32,
                Access::ReadWrite,
                &[Formula::dim(0), Formula::dim(1)],
            )],
            Vec::new(),
        );
        make.header.schedule.warps = Some(4);
        let signature = make.header.signature.clone();
        let mut b = Builder::new(&mut make.body);
        let x = b.param(&signature, 0);
        let i = b.grid_index(0);
        let (zero, shift) = (b.int(0), b.int(shift));
        let pad = b.float(0.0, DType::F32);
        let row = vec![Index::Scalar, range(block)];
        let v = b.load(x, row.clone(), vec![i, zero], pad, Cache::Normal);
        let v = b.binary(BinaryOp::Add, v, v);
        b.store(x, row.clone(), vec![i, zero], v, Cache::Normal, false);
        let w = b.load(x, row.clone(), vec![i, shift], pad, Cache::Normal);
        let w = b.binary(BinaryOp::Mul, w, w);
        b.store(x, row, vec![i, shift], w, Cache::Normal, false);
        b.return_();
        make.lower("sm_80").expect("lowers")
    };
    // In place: each thread its own elements.
    assert_eq!(barriers(&build(0, 1024)), 0);
    // Replicas read what one of them stored.
    assert_eq!(barriers(&build(0, 64)), 3);
    // Shifted: after the first store, and before the second overwrites what others read.
    assert_eq!(barriers(&build(1, 1024)), 1);
}

#[test]
fn loops_wait_only_for_what_comes_around() {
    let build = |stride: i64| {
        let mut make = Make::new(
            &["n"],
            vec![view("x", DType::F32, Access::ReadWrite, &[Formula::dim(0)])],
            Vec::new(),
        );
        make.header.schedule.warps = Some(4);
        let signature = make.header.signature.clone();
        let mut b = Builder::new(&mut make.body);
        let x = b.param(&signature, 0);
        let n = b.dim(0);
        let (zero, one, stride) = (b.int(0), b.int(1), b.int(stride));
        let pad = b.float(0.0, DType::F32);
        let inner = b.body.new_region();
        let c = b.body.add_argument(inner, tile::Type::Scalar(DType::I64));
        {
            let mut b = b.at(inner);
            let at = b.binary(BinaryOp::Mul, c, stride);
            let v = b.load(x, vec![range(512)], vec![at], pad, Cache::Normal);
            let v = b.binary(BinaryOp::Add, v, v);
            b.store(x, vec![range(512)], vec![at], v, Cache::Normal, false);
            b.yield_(Vec::new());
        }
        b.for_(None, false, [zero, n, one], &[], inner);
        b.return_();
        make.lower("sm_80").expect("lowers")
    };
    assert_eq!(barriers(&build(512)), 0);
    assert_eq!(barriers(&build(256)), 1);
    // Multiples of the length meet in whole, each element in its own thread.
    assert_eq!(barriers(&build(0)), 0);
}

#[test]
fn simplification_folds_merges_and_drops() {
    let mut make = Make::new(
        &["n"],
        vec![
            view("x", DType::F32, Access::Read, &[Formula::dim(0)]),
            view("y", DType::F32, Access::Write, &[Formula::dim(0)]),
        ],
        Vec::new(),
    );
    let signature = make.header.signature.clone();
    let mut b = Builder::new(&mut make.body);
    let [x, y] = [0, 1].map(|p| b.param(&signature, p));
    let (three, seven) = (b.int(-7), b.int(2));
    let at = b.binary(BinaryOp::Div, three, seven);
    let pad = b.float(0.0, DType::F32);
    let v = b.load(x, vec![range(128)], vec![at], pad, Cache::Normal);
    let w = b.load(x, vec![range(128)], vec![at], pad, Cache::Normal);
    let dead = b.unary(UnaryOp::Exp, w);
    b.unary(UnaryOp::Exp, dead);
    let (one, half) = (b.float(1.0, DType::F32), b.float(0.5, DType::F32));
    let (one, half) = (b.broadcast(one, &[128]), b.broadcast(half, &[128]));
    let both = b.binary(BinaryOp::Add, one, half);
    let v = b.binary(BinaryOp::Mul, v, one);
    let v = b.binary(BinaryOp::Add, v, w);
    let v = b.binary(BinaryOp::Mul, v, both);
    b.store(y, vec![range(128)], vec![at], v, Cache::Normal, false);
    b.return_();
    let kernel = make.lower("sm_80").expect("lowers");
    let loads = count(&kernel, |k| matches!(k, OpKind::Load { .. }));
    let constants: Vec<Constant> = kernel.roles[0]
        .body
        .ops
        .values()
        .filter_map(|op| match op.kind {
            OpKind::Tile(tile::OpKind::Constant(c)) => Some(c),
            _ => None,
        })
        .collect();
    assert_eq!(loads, 1, "{kernel}");
    assert!(
        constants.contains(&Constant::Int(-4, DType::I64)),
        "{kernel}"
    );
    assert!(
        constants.contains(&Constant::Float(1.5, DType::F32)),
        "{kernel}"
    );
    assert_eq!(constants.len(), 3, "{kernel}");
    assert_eq!(
        count(&kernel, |k| matches!(
            k,
            OpKind::Tile(tile::OpKind::Unary(_))
        )),
        0
    );
}

#[test]
fn dumps_follow_the_list_of_passes() {
    let make = rmsnorm(Vec::new());
    let kernel = Kernel {
        header: make.header,
        channels: cranelift_entity::PrimaryMap::new(),
        body: make.body,
    };
    let mut seen = Vec::new();
    let target = Target::parse("sm_120a").expect("a target");
    let text = |kernel: &Kernel| {
        passes::lower(kernel, &target)
            .map(|k| k.to_string())
            .expect("lowers")
    };
    passes::lower_with(&kernel, &target, &mut |name, ir| {
        assert!(ir.to_string().contains("kernel"));
        seen.push(name.to_owned());
    })
    .expect("lowers");
    let names: Vec<&str> = passes::PASSES.iter().map(|p| p.name).collect();
    assert_eq!(seen, names);
    assert_eq!(text(&kernel), text(&kernel));
}
