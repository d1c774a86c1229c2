//! The textual form of both levels, and their verifiers.

use std::sync::Arc;

use proptest::prelude::*;
use tesserine_compiler::{
    interp::{self, Arg, Args, FaultKind, InterpError, Tensor},
    ir::{
        Body, GridAxis, Header, Op, Order, RegionId, Schedule, ValueId, role,
        tile::{
            self, BinaryOp, Builder, Cache, CompareOp, Constant, Index, Kernel, OpKind, ReduceOp,
            TileBody, Type, UnaryOp, loaded,
        },
    },
    layout::Layout,
    span::Span,
};
use tesserine_set::{
    Access, DType, Fact, Formula, FormulaOp, Param, ParamKind, Signature, ViewFacts, ViewParam,
};

// A generator that makes only kernels that the verifier accepts.

fn view(name: &str, dtype: DType, access: Access, extents: Vec<Formula>) -> Param {
    Param {
        name: name.into(),
        optional: false,
        kind: ParamKind::View(ViewParam {
            dtype,
            access,
            extents,
            strided: name.ends_with('s'),
            facts: ViewFacts {
                sorted: name == "starts",
                distinct: name == "rows",
                align: (name == "x").then_some(16),
            },
        }),
    }
}

fn scalar(name: &str, dtype: DType, default: Option<f64>) -> Param {
    Param {
        name: name.into(),
        optional: name == "seed",
        kind: ParamKind::Scalar { dtype, default },
    }
}

const PARAMS: u32 = 9;

fn header(facts: Vec<Formula>) -> Header {
    let m = || Formula::dim(0);
    let n = || Formula::dim(1);
    Header {
        name: "k<bf16, BM = 64, E = Bias<bf16>>".into(),
        signature: Signature {
            dims: vec!["m".into(), "n".into()],
            params: vec![
                view("x", DType::Bf16, Access::Read, vec![m(), n()]),
                view("starts", DType::I32, Access::Read, vec![n()]),
                view("rows", DType::U4, Access::Read, vec![m(), Formula::int(8)]),
                view("y", DType::F32, Access::ReadWrite, vec![m()]),
                view(
                    "epi.out",
                    DType::U1,
                    Access::Write,
                    vec![n(), m(), Formula::int(3)],
                ),
                scalar("eps", DType::F32, Some(1e-5)),
                scalar("count", DType::I64, None),
                scalar("limit", DType::F64, Some(f64::INFINITY)),
                scalar("seed", DType::U32, None),
            ],
        },
        requires: facts.into_iter().map(Fact::Holds).collect(),
        facts: vec![Fact::Aligned {
            param: 0,
            bytes: 16,
        }],
        cost: None,
        axes: vec![
            GridAxis::new(
                "i",
                Formula::binary(FormulaOp::CeilDiv, m(), Formula::int(4)),
            ),
            GridAxis {
                rev: true,
                ..GridAxis::new("j", n())
            },
            GridAxis {
                cluster: true,
                ..GridAxis::new("s", Formula::int(2))
            },
        ],
        order: Order::Grouped { group: 8 },
        persistent: true,
        dynamic: true,
        schedule: Schedule {
            warps: Some(4),
            stages: None,
            blocks_per_sm: Some(2),
            max_regs: None,
            loops: vec![("p".into(), 3)],
            consumers: Some(2),
            producers: Some(0),
            cluster: vec![2, 1],
            overlap: true,
            multicast: true,
            pair: true,
            promote: Some(128),
        },
        span: Span::NONE,
    }
}

/// Bytes that decide what is built; 0 when they are used up.
struct Script<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Script<'_> {
    fn next(&mut self, below: usize) -> usize {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte as usize % below
    }

    fn ends(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> Option<T> {
        if list.is_empty() {
            return None;
        }
        let i = self.next(list.len());
        Some(list[i].clone())
    }
}

const FLOATS: [f64; 9] = [
    0.0,
    -0.0,
    1.5,
    -2.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    0.5,
    4.0,
];

fn value_types() -> Vec<DType> {
    DType::ALL.into_iter().filter(|&t| loaded(t) == t).collect()
}

struct Generator<'a> {
    script: Script<'a>,
    body: TileBody,
    header: Header,
    views: Vec<ValueId>,
    /// Loops may run for ever.
    loops: bool,
}

impl Generator<'_> {
    fn builder(&mut self, region: RegionId) -> Builder<'_> {
        Builder {
            body: &mut self.body,
            region,
            span: Span::NONE,
        }
    }

    fn of(&self, pool: &[ValueId], fits: impl Fn(&Type) -> bool) -> Vec<ValueId> {
        pool.iter()
            .copied()
            .filter(|&v| fits(self.body.ty(v)))
            .collect()
    }

    fn int(&mut self, region: RegionId, pool: &[ValueId]) -> ValueId {
        let ints = self.of(pool, |t| *t == Type::Scalar(DType::I64));
        match self.script.pick(&ints) {
            Some(value) => value,
            None => self.builder(region).int(3),
        }
    }

    fn condition(&mut self, region: RegionId, pool: &[ValueId]) -> ValueId {
        let bools = self.of(pool, |t| *t == Type::Scalar(DType::Bool));
        match self.script.pick(&bools) {
            Some(value) => value,
            None => self.builder(region).constant(Constant::Bool(true)),
        }
    }

    fn constant(&mut self, region: RegionId, elem: DType) -> ValueId {
        let choice = self.script.next(FLOATS.len());
        let constant = if elem.is_float() {
            // What every float type has.
            let value = if tile_value(elem, FLOATS[choice]) {
                FLOATS[choice]
            } else {
                1.0
            };
            Constant::Float(value, elem)
        } else if elem == DType::Bool {
            Constant::Bool(choice.is_multiple_of(2))
        } else {
            let low = i64::MIN >> (64 - elem.bits());
            let values = if elem == DType::U64 {
                [0, -1, 7]
            } else if elem.is_signed() {
                [low, -1, 7]
            } else {
                [0, (1i64 << elem.bits()) - 1, 7]
            };
            Constant::Int(values[choice % 3], elem)
        };
        self.builder(region).constant(constant)
    }

    /// Adds one operation to `region`, and what it gives to `pool`.
    fn step(&mut self, region: RegionId, pool: &mut Vec<ValueId>, depth: usize) {
        let what = self.script.next(20);
        let tiles = self.of(pool, |t| matches!(t, Type::Tile(_)));
        let tile = self.script.pick(&tiles);
        let Some(x) = self.script.pick(pool) else {
            return;
        };
        let ty = self.body.ty(x).clone();
        let elem = ty.elem();
        let number = elem.is_int() || elem.is_float();
        let equals = self.of(pool, |t| *t == ty);
        let y = self.script.pick(&equals).unwrap_or(x);
        let z = self.script.pick(&equals).unwrap_or(y);
        let same_shape = ty.with_elem(DType::Bool);
        let conditions = self.of(pool, |t| *t == same_shape);
        let condition = self.script.pick(&conditions);
        let types = value_types();
        let other = self.script.pick(&types).unwrap_or(DType::F32);
        let choice = self.script.next(64);
        let made = match what {
            0 => self.constant(region, other),
            1 => self.builder(region).dim(choice as u32 % 2),
            2 => self.builder(region).grid_index(choice as u32 % 2),
            3 => {
                let signature = self.header.signature.clone();
                self.builder(region)
                    .param(&signature, 5 + choice as u32 % 4)
            }
            4 => {
                let fits: Vec<UnaryOp> = UnaryOp::ALL
                    .into_iter()
                    .filter(|op| match op {
                        UnaryOp::Neg | UnaryOp::Abs => number,
                        UnaryOp::Not => !elem.is_float(),
                        UnaryOp::Popcount | UnaryOp::Clz => elem.is_int(),
                        _ => elem.is_float(),
                    })
                    .collect();
                let op = fits[choice % fits.len()];
                self.builder(region).unary(op, x)
            }
            5 | 6 => {
                let fits: Vec<BinaryOp> = BinaryOp::ALL
                    .into_iter()
                    .filter(|op| match op {
                        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => !elem.is_float(),
                        BinaryOp::Shl | BinaryOp::Shr | BinaryOp::MulHi => elem.is_int(),
                        _ => number,
                    })
                    .collect();
                let op = fits[choice % fits.len()];
                self.builder(region).binary(op, x, y)
            }
            7 => {
                let fits = if number { 6 } else { 2 };
                self.builder(region)
                    .compare(CompareOp::ALL[choice % fits], x, y)
            }
            8 if elem.is_float() => self.builder(region).fma(x, y, z),
            8 | 9 => {
                let condition = match condition {
                    Some(condition) => condition,
                    None => self.builder(region).cast(x, DType::Bool),
                };
                self.builder(region).select(condition, y, z)
            }
            10 => self.builder(region).cast(x, other),
            11 => {
                let fits: Vec<DType> = types
                    .into_iter()
                    .filter(|t| t.bits() == elem.bits() && *t != DType::Bool)
                    .collect();
                if elem == DType::Bool {
                    return;
                }
                self.builder(region).bitcast(x, fits[choice % fits.len()])
            }
            12 => {
                let mut shape = ty.shape().to_vec();
                if let Some(first) = shape.first_mut().filter(|d| **d == 1) {
                    *first = 1 + choice as u32 % 4;
                }
                if shape.len() < 3 {
                    shape.insert(0, 1 + choice as u32 % 3);
                }
                self.builder(region).broadcast(x, &shape)
            }
            13 => {
                let count: u32 = ty.shape().iter().product();
                let shape: &[u32] = match choice % 3 {
                    0 => &[count],
                    1 => &[1, count],
                    _ if count == 1 => &[],
                    _ => &[count, 1],
                };
                self.builder(region).reshape(x, shape)
            }
            14 => {
                let Some(tile) = tile else { return };
                let rank = self.body.ty(tile).shape().len() as u32;
                let turn = choice as u32 % rank;
                let perm = (0..rank).map(|d| (d + turn) % rank).collect();
                self.builder(region).permute(tile, perm)
            }
            15 => {
                let Some(tile) = tile else { return };
                let from = self.body.ty(tile).shape().to_vec();
                let offsets: Vec<u32> = from.iter().map(|&d| choice as u32 % d).collect();
                let shape: Vec<u32> = from.iter().zip(&offsets).map(|(d, o)| d - o).collect();
                self.builder(region).slice(tile, offsets, &shape)
            }
            16 => {
                let elem = if other.is_int() { other } else { DType::I32 };
                let shape = [1 + choice as u32 % 5, 1 + choice as u32 % 3];
                self.builder(region).iota(elem, &shape[..1 + choice % 2])
            }
            17 => {
                let Some(tile) = tile else { return };
                let ty = self.body.ty(tile);
                let rank = ty.shape().len();
                let axis = (choice % (rank + 1)) as u32;
                let axis = (axis < rank as u32).then_some(axis);
                let ops: &[ReduceOp] = if ty.elem() == DType::Bool {
                    &[ReduceOp::Any, ReduceOp::All, ReduceOp::Sum]
                } else {
                    &[
                        ReduceOp::Sum,
                        ReduceOp::Max,
                        ReduceOp::Min,
                        ReduceOp::ArgMax,
                        ReduceOp::ArgMin,
                    ]
                };
                self.builder(region)
                    .reduce(ops[choice % ops.len()], tile, axis)
            }
            18 => return self.access(region, pool, choice),
            _ if depth < 3 => return self.control(region, pool, depth, choice, x),
            _ => return,
        };
        pool.push(made);
    }

    fn access(&mut self, region: RegionId, pool: &mut Vec<ValueId>, choice: usize) {
        let param = choice % self.views.len();
        let ParamKind::View(view) = self.header.signature.params[param].kind.clone() else {
            return;
        };
        let mut indices = Vec::new();
        let mut operands = Vec::new();
        for extent in &view.extents {
            let len = 1 + self.script.next(4) as u32;
            let index = match (self.script.next(4), extent.as_int()) {
                (0, _) => Index::Scalar,
                (1, Some(extent)) => Index::Whole { len: extent as u32 },
                (2, _) => Index::Gather { len, joined: false },
                _ => Index::Range {
                    len,
                    from: self.script.next(2) == 0,
                    until: self.script.next(2) == 0,
                },
            };
            for _ in 0..index.operands() {
                let scalar = self.int(region, pool);
                operands.push(match index {
                    Index::Gather { len, .. } => self.builder(region).broadcast(scalar, &[len]),
                    _ => scalar,
                });
            }
            indices.push(index);
        }
        let cache = Cache::ALL[choice % 3];
        let elem = loaded(view.dtype);
        let target = self.views[param];
        if view.access == Access::Read
            || view.access == Access::ReadWrite && choice.is_multiple_of(2)
        {
            let pad = self.constant(region, elem);
            let made = self
                .builder(region)
                .load(target, indices, operands, pad, cache);
            pool.push(made);
            return;
        }
        let ty = tile::accessed(view.dtype, &indices);
        let fits = self.of(pool, |t| *t == ty);
        let x = match self.script.pick(&fits) {
            Some(x) => x,
            None => {
                let x = self.constant(region, elem);
                match ty.shape() {
                    [] => x,
                    shape => self.builder(region).broadcast(x, shape),
                }
            }
        };
        self.builder(region)
            .store(target, indices, operands, x, cache, choice % 3 == 1);
    }

    /// Up to five operations inside, with what is visible outside; gives a value of `ty` made there.
    fn inside(&mut self, region: RegionId, pool: &[ValueId], depth: usize, ty: &Type) -> ValueId {
        let mut inner = pool.to_vec();
        for _ in 0..self.script.next(6) {
            self.step(region, &mut inner, depth + 1);
        }
        let fits = self.of(&inner, |t| t == ty);
        self.script
            .pick(&fits)
            .expect("a value of this type is visible from outside")
    }

    fn control(
        &mut self,
        region: RegionId,
        pool: &mut Vec<ValueId>,
        depth: usize,
        choice: usize,
        x: ValueId,
    ) {
        let ty = self.body.ty(x).clone();
        let op = match choice % 4 {
            1 | 2 if !self.loops => return,
            0 => {
                let cond = self.condition(region, pool);
                let sides = [self.body.new_region(), self.body.new_region()];
                for side in sides {
                    let value = self.inside(side, pool, depth, &ty);
                    self.builder(side).yield_(vec![value]);
                }
                self.builder(region).if_(cond, vec![ty], sides[0], sides[1])
            }
            1 => {
                let bounds = [0; 3].map(|_| self.int(region, pool));
                let inner = self.body.new_region();
                let index = self.body.add_argument(inner, Type::Scalar(DType::I64));
                let carried = self.body.add_argument(inner, ty.clone());
                let mut visible = pool.clone();
                visible.extend([index, carried]);
                let value = self.inside(inner, &visible, depth, &ty);
                self.builder(inner).yield_(vec![value]);
                let label = choice
                    .is_multiple_of(3)
                    .then(|| "main \"loop\"\\".to_owned());
                self.builder(region)
                    .for_(label, choice.is_multiple_of(2), bounds, &[x], inner)
            }
            2 => {
                let regions = [self.body.new_region(), self.body.new_region()];
                let carried = regions.map(|r| self.body.add_argument(r, ty.clone()));
                let cond = self.condition(regions[0], pool);
                self.builder(regions[0]).yield_(vec![cond]);
                let mut visible = pool.clone();
                visible.push(carried[1]);
                let value = self.inside(regions[1], &visible, depth, &ty);
                self.builder(regions[1]).yield_(vec![value]);
                self.builder(region).while_(&[x], regions[0], regions[1])
            }
            _ => {
                let cond = self.condition(region, pool);
                self.builder(region)
                    .assert(cond, "a \"quoted\\\" line\nand another: é")
            }
        };
        pool.extend(self.body.ops[op].results.clone());
    }
}

fn tile_value(elem: DType, value: f64) -> bool {
    tesserine_compiler::interp::floats::is_value(elem, value)
}

fn generate(bytes: &[u8], facts: Vec<Formula>) -> Kernel {
    generate_with(bytes, facts, true)
}

fn generate_with(bytes: &[u8], facts: Vec<Formula>, loops: bool) -> Kernel {
    let header = header(facts);
    let mut generator = Generator {
        script: Script { bytes, at: 0 },
        body: TileBody::new(),
        header: header.clone(),
        views: Vec::new(),
        loops,
    };
    let root = generator.body.root;
    for param in 0..5 {
        let view = generator.builder(root).param(&header.signature, param);
        generator.views.push(view);
    }
    let mut pool = vec![generator.builder(root).int(1)];
    let half = generator.builder(root).float(0.5, DType::F32);
    pool.push(generator.builder(root).broadcast(half, &[2, 3]));
    while !generator.script.ends() {
        generator.step(root, &mut pool, 0);
    }
    generator.builder(root).return_();
    Kernel {
        header,
        channels: cranelift_entity::PrimaryMap::new(),
        body: generator.body,
    }
}

fn formula() -> impl Strategy<Value = Formula> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Formula::int),
        (-9i64..9).prop_map(Formula::int),
        (0u32..2).prop_map(Formula::dim),
        Just(Formula(vec![tesserine_set::Term::Scalar(6)])),
        Just(Formula(vec![tesserine_set::Term::Given(8)])),
    ];
    let ops = [
        FormulaOp::Add,
        FormulaOp::Sub,
        FormulaOp::Mul,
        FormulaOp::Div,
        FormulaOp::Rem,
        FormulaOp::CeilDiv,
        FormulaOp::RoundUp,
        FormulaOp::Min,
        FormulaOp::Max,
        FormulaOp::And,
        FormulaOp::Or,
        FormulaOp::Eq,
        FormulaOp::Ne,
        FormulaOp::Lt,
        FormulaOp::Le,
        FormulaOp::Gt,
        FormulaOp::Ge,
    ];
    leaf.prop_recursive(5, 30, 2, move |inner| {
        prop_oneof![
            (inner.clone(), inner.clone(), 0..ops.len())
                .prop_map(move |(a, b, op)| Formula::binary(ops[op], a, b)),
            inner
                .clone()
                .prop_map(|a| Formula::unary(FormulaOp::Neg, a)),
            inner.prop_map(|a| Formula::unary(FormulaOp::Not, a)),
        ]
    })
}

/// The same operations, whatever the numbers of values and regions are.
fn assert_same<K: PartialEq + std::fmt::Debug, T: PartialEq + std::fmt::Debug>(
    a: &Body<K, T>,
    b: &Body<K, T>,
) {
    fn walk<K: PartialEq + std::fmt::Debug, T: PartialEq + std::fmt::Debug>(
        (a, ra): (&Body<K, T>, RegionId),
        (b, rb): (&Body<K, T>, RegionId),
        map: &mut std::collections::HashMap<ValueId, ValueId>,
    ) {
        let (x, y) = (&a.regions[ra], &b.regions[rb]);
        let pair = |v: &[ValueId], w: &[ValueId], map: &mut std::collections::HashMap<_, _>| {
            assert_eq!(v.len(), w.len());
            for (&v, &w) in v.iter().zip(w) {
                assert_eq!(a.ty(v), b.ty(w));
                map.insert(v, w);
            }
        };
        pair(&x.args, &y.args, map);
        assert_eq!(x.ops.len(), y.ops.len());
        for (&p, &q) in x.ops.iter().zip(&y.ops) {
            let (p, q): (&Op<K>, &Op<K>) = (&a.ops[p], &b.ops[q]);
            assert_eq!(p.kind, q.kind);
            let mapped: Vec<ValueId> = p.operands.iter().map(|v| map[v]).collect();
            assert_eq!(mapped, q.operands);
            assert_eq!(p.regions.len(), q.regions.len());
            for (&r, &s) in p.regions.iter().zip(&q.regions) {
                walk((a, r), (b, s), map);
            }
            pair(&p.results, &q.results, map);
        }
    }
    walk((a, a.root), (b, b.root), &mut Default::default());
}

fn errors_of(result: Result<(), Vec<tesserine_compiler::ir::VerifyError>>) -> String {
    match result {
        Ok(()) => String::new(),
        Err(errors) => errors.iter().map(|e| format!("{e}\n")).collect(),
    }
}

// Role kernels of the same operations.

fn layout(shape: &[u32], spread: bool) -> Arc<Layout> {
    let rank = shape.len();
    let mut lane = vec![vec![0; rank]; 5];
    let mut register = Vec::new();
    let mut repeat = shape.to_vec();
    if spread {
        // Two elements a register pair, then two lanes, along the last dimension.
        let unit = |v: u32| {
            let mut at = vec![0; rank];
            at[rank - 1] = v;
            at
        };
        register = vec![unit(1)];
        lane[0] = unit(2);
        repeat[rank - 1] = repeat[rank - 1].div_ceil(4);
    }
    Arc::new(Layout {
        shape: shape.to_vec(),
        register,
        lane,
        warp: vec![vec![0; rank]; 2],
        repeat,
    })
}

fn to_roles(kernel: &Kernel, bytes: &[u8]) -> role::Kernel {
    let mut script = Script { bytes, at: 0 };
    let from = &kernel.body;
    let mut body = role::RoleBody::new();
    let mut buffers = cranelift_entity::PrimaryMap::new();
    for i in 0..3 {
        buffers.push(role::Buffer {
            bytes: 100 * (i + 1),
            align: 1 << i,
            offset: (i > 0).then_some(i * 128),
        });
    }
    let any_buffer = |script: &mut Script<'_>| {
        let i = script.next(4);
        (i < 3).then(|| buffers.keys().nth(i).expect("there are three"))
    };
    let ty = |ty: &Type| role::Type {
        ty: ty.clone(),
        layout: matches!(ty, Type::Tile(_)).then(|| layout(ty.shape(), false)),
    };
    fn copy(
        from: &TileBody,
        (old, new): (RegionId, RegionId),
        body: &mut role::RoleBody,
        ty: &dyn Fn(&Type) -> role::Type,
        kind: &mut dyn FnMut(&OpKind) -> role::OpKind,
        map: &mut std::collections::HashMap<ValueId, ValueId>,
    ) {
        for &arg in &from.regions[old].args {
            let new = body.add_argument(new, ty(from.ty(arg)));
            map.insert(arg, new);
        }
        for &op in &from.regions[old].ops {
            let op = &from.ops[op];
            let regions: Vec<RegionId> = op
                .regions
                .iter()
                .map(|&r| {
                    let inner = body.new_region();
                    copy(from, (r, inner), body, ty, kind, map);
                    inner
                })
                .collect();
            let operands: Vec<ValueId> = op.operands.iter().map(|v| map[v]).collect();
            let results = op.results.iter().map(|&v| ty(from.ty(v))).collect();
            let made = body.append(new, kind(&op.kind), operands, results, regions, Span::NONE);
            for (i, &old) in op.results.iter().enumerate() {
                let result = body.ops[made].results[i];
                map.insert(old, result);
            }
        }
    }
    let root = body.root;
    let mut kind = |kind: &OpKind| match kind {
        OpKind::Load { indices, cache } => role::OpKind::Load {
            indices: indices.clone(),
            cache: *cache,
            width: 1,
        },
        OpKind::Store { indices, cache, .. } => role::OpKind::Store {
            indices: indices.clone(),
            cache: *cache,
            width: 1,
        },
        OpKind::Reduce { op, axis } => role::OpKind::Reduce {
            op: *op,
            axis: *axis,
            scratch: any_buffer(&mut script),
        },
        kind => role::OpKind::Tile(kind.clone()),
    };
    copy(
        from,
        (from.root, root),
        &mut body,
        &ty,
        &mut kind,
        &mut Default::default(),
    );
    // A conversion of every tile that the root defines, and a barrier, before the `return`.
    let ret = body.regions[root].ops.pop();
    let tiles: Vec<ValueId> = body.regions[root]
        .ops
        .iter()
        .flat_map(|&op| body.ops[op].results.clone())
        .filter(|&v| body.ty(v).layout.is_some())
        .collect();
    for tile in tiles {
        let mut to = body.ty(tile).clone();
        to.layout = Some(layout(to.ty.shape(), true));
        let scratch = any_buffer(&mut script);
        let kind = role::OpKind::Convert { scratch };
        body.append(root, kind, vec![tile], vec![to], vec![], Span::NONE);
    }
    body.append(
        root,
        role::OpKind::Barrier,
        vec![],
        vec![],
        vec![],
        Span::NONE,
    );
    body.regions[root].ops.extend(ret);
    role::Kernel {
        header: kernel.header.clone(),
        roles: vec![role::Role {
            name: "all".into(),
            first_warp: 0,
            warps: 4,
            registers: None,
            body,
            like: None,
        }],
        buffers,
        channels: cranelift_entity::PrimaryMap::new(),
        maps: cranelift_entity::PrimaryMap::new(),
        shared_bytes: 640,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn tile_text_reads_back(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        facts in prop::collection::vec(formula(), 0..3),
    ) {
        let kernel = generate(&bytes, facts);
        let text = kernel.to_string();
        prop_assert_eq!(errors_of(tile::verify(&kernel)), "", "{}", text);
        let again = match tile::parse(&text) {
            Ok(again) => again,
            Err(error) => return Err(TestCaseError::fail(format!("{error}\n{text}"))),
        };
        prop_assert_eq!(&again.header, &kernel.header, "{}", text);
        assert_same(&kernel.body, &again.body);
        prop_assert_eq!(again.to_string(), text);
        prop_assert_eq!(errors_of(tile::verify(&again)), "");
    }

    /// Whatever passes the verifier runs, or stops with an error, on whatever arguments bind.
    #[test]
    fn verified_kernels_run_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        m in 0usize..6,
        n in 0usize..6,
        seed in any::<Option<i64>>(),
    ) {
        let mut kernel = generate_with(&bytes, vec![], false);
        kernel.header.facts.clear();
        let tensor = |dtype: DType, shape: &[usize]| {
            let count: usize = shape.iter().product();
            let values: Vec<f64> = (0..count).map(|i| (i % 7) as f64 - 1.0).collect();
            Tensor::from_f64(dtype, shape.to_vec(), &values).expect("it is small")
        };
        let starts: Vec<f64> = (0..n).map(|i| i as f64).collect();
        let mut args: Args = [
            ("starts", Tensor::from_f64(DType::I32, vec![n], &starts).expect("it is small")),
            ("y", tensor(DType::F32, &[m])),
            ("epi.out", tensor(DType::U1, &[n, m, 3])),
        ]
        .into_iter()
        .map(|(name, tensor)| (name.to_owned(), Arg::Tensor(tensor)))
        .collect();
        let aligned = Tensor::strided(DType::Bf16, vec![m, n], vec![8, 1], vec![0x3f; 16 * m + 16]);
        args.insert("x".into(), Arg::Tensor(aligned.expect("it is long enough")));
        // `distinct` rows: none, or one.
        let rows = tensor(DType::U4, &[m, 8]);
        args.insert("rows".into(), Arg::Tensor(rows));
        args.insert("count".into(), Arg::from(3));
        if let Some(seed) = seed {
            args.insert("seed".into(), Arg::from(seed & 0xffff));
        }
        let before = args.keys().cloned().collect::<Vec<_>>();
        let result = interp::run(&kernel, &mut args);
        prop_assert_eq!(before, args.keys().cloned().collect::<Vec<_>>());
        match result {
            Ok(_)
            | Err(InterpError::Fault {
                kind: FaultKind::DivisionByZero
                    | FaultKind::Assertion(_)
                    | FaultKind::Race { .. }
                    | FaultKind::Twice { .. }
                    | FaultKind::Misfit { .. }
                    | FaultKind::Absent { .. },
                ..
            })
            | Err(InterpError::Promise { .. }) => {}
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        }
    }

    #[test]
    fn role_text_reads_back(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        choices in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let kernel = to_roles(&generate(&bytes, vec![]), &choices);
        let text = kernel.to_string();
        prop_assert_eq!(errors_of(role::verify(&kernel)), "", "{}", text);
        let again = match role::parse(&text) {
            Ok(again) => again,
            Err(error) => return Err(TestCaseError::fail(format!("{error}\n{text}"))),
        };
        prop_assert_eq!(&again.header, &kernel.header);
        prop_assert_eq!(&again.buffers, &kernel.buffers);
        assert_same(&kernel.roles[0].body, &again.roles[0].body);
        prop_assert_eq!(again.to_string(), text);
    }

    /// Damaged text is refused or read, and what is read is verified or refused; nothing panics.
    #[test]
    fn damaged_text_is_no_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        cut in any::<prop::sample::Index>(),
        junk in "[ -~\\n]{0,6}",
        length in 0usize..12,
    ) {
        let text = generate(&bytes, vec![]).to_string();
        let starts: Vec<usize> = text.char_indices().map(|(i, _)| i).collect();
        let from = starts[cut.index(starts.len())];
        let to = text[from..].char_indices().nth(length).map_or(text.len(), |(i, _)| from + i);
        let damaged = format!("{}{junk}{}", &text[..from], &text[to..]);
        if let Ok(kernel) = tile::parse(&damaged) {
            let _ = tile::verify(&kernel);
            let _ = kernel.to_string();
        }
    }

    #[test]
    fn any_text_is_no_panic(text in "\\PC{0,200}") {
        let _ = tile::parse(&text);
        let _ = role::parse(&text);
    }
}

#[test]
fn the_generator_makes_every_kind_of_operation() {
    let mut state = 7u64;
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..400)
            .map(|_| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (state >> 40) as u8
            })
            .collect();
        for (_, op) in &generate(&bytes, vec![]).body.ops {
            let name = format!("{:?}", op.kind);
            let end = name
                .find(|c: char| !c.is_alphanumeric())
                .unwrap_or(name.len());
            names.insert(name[..end].to_owned());
        }
    }
    let all = [
        "Assert",
        "Binary",
        "Bitcast",
        "Broadcast",
        "Cast",
        "Compare",
        "Constant",
        "Dim",
        "Fma",
        "For",
        "GridIndex",
        "If",
        "Iota",
        "Load",
        "Param",
        "Permute",
        "Reduce",
        "Reshape",
        "Return",
        "Select",
        "Slice",
        "Store",
        "Unary",
        "While",
        "Yield",
    ];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), all);
    assert_eq!(header(vec![]).signature.params.len(), PARAMS as usize);
}

#[test]
fn unusual_nans_keep_their_bits() {
    let text = |bits: u64| {
        let mut body = TileBody::new();
        let mut b = Builder::new(&mut body);
        b.float(f64::from_bits(bits), DType::F64);
        b.return_();
        let header = header(vec![]);
        Kernel {
            header,
            channels: cranelift_entity::PrimaryMap::new(),
            body,
        }
        .to_string()
    };
    for bits in [
        f64::NAN.to_bits(),
        0xfff8_0000_0000_0001,
        0x7ff0_0000_0000_0001,
    ] {
        let text = text(bits);
        let kernel = tile::parse(&text).unwrap();
        let (_, op) = kernel.body.ops.iter().next().unwrap();
        let OpKind::Constant(Constant::Float(value, DType::F64)) = op.kind else {
            panic!("{text}")
        };
        assert_eq!(value.to_bits(), bits);
    }
}

#[test]
fn errors_of_the_parser_say_where() {
    for (text, expected) in [
        (
            "",
            "1:1: expected `kernel`, found the end of the line or text",
        ),
        (
            "kernel \"k\"\n{\n  %0 = frob %1 : f32\n}",
            "3:13: `frob` is no operation",
        ),
        (
            "kernel \"k\"\n{\n  %0 = neg %1 : f32\n}",
            "3:12: `%1` is not defined before here",
        ),
        (
            "kernel \"k\"\n{\n  %0 = dim n : i64\n}",
            "3:12: `n` is no dimension of this kernel",
        ),
        (
            "kernel \"k\"\n{\n  %0 = constant 1 : i63\n}",
            "3:21: `i63` is no element type",
        ),
        (
            "kernel \"k\"\n{\n  %0 = constant 1 : i64\n  %0 = constant 1 : i64\n}",
            "4:3: `%0` is defined twice",
        ),
        (
            "kernel \"k\"\n{\n  constant 1 : i64\n}",
            "3:3: this operation names 0 results and gives 1 types",
        ),
        (
            "kernel \"k\"\n{\n  return\n} x",
            "4:3: nothing may follow the body",
        ),
        (
            "kernel \"k\"\n  param x: view<f32>[q]\n{\n  return\n}",
            "2:22: `q` is no dimension or parameter",
        ),
    ] {
        let found = tile::parse(text).map(|_| ()).unwrap_err().to_string();
        assert_eq!(found, expected, "{text}");
    }
    let deep = "kernel \"k\"\n{".to_owned() + &"if {".repeat(1000);
    let found = tile::parse(&deep).map(|_| ()).unwrap_err().message;
    assert_eq!(found, "this is nested too deeply");
}

/// A kernel with one operation, or several, between given values and `return`.
fn with(lines: &str) -> String {
    format!(
        r#"kernel "k"
  dims n
  param x: view<f32>[n, 8]
  param y: out view<f32>[n]
  param m: mut view<u4>[n]
  param s: f32
  axis i in n
{{
  %0 = param x : view<f32>[?, ?]
  %1 = param y : out view<f32>[?]
  %2 = param m : mut view<u4>[?]
  %3 = constant 1 : i64
  %4 = constant 2.0 : f32
  %5 = constant true : bool
  %6 = broadcast %4 : tile<f32>[4, 8]
  %7 = iota : tile<i32>[4, 8]
  %8 = compare lt %6, %6 : tile<bool>[4, 8]
  {lines}
  return
}}
"#
    )
}

#[test]
fn the_verifier_refuses() {
    let cases = [
        // Types of values.
        ("%9 = constant 300 : u8", "300 is no value of u8"),
        ("%9 = constant 1.1 : bf16", "1.1 is no value of bf16"),
        ("%9 = constant 1 : u4", "u4 exists only in memory"),
        ("%9 = constant 1 : bool", "an integer constant of type bool"),
        ("%9 = broadcast %4 : tile<f32>[]", "is no type of a tile"),
        ("%9 = broadcast %4 : tile<f32>[0]", "is no type of a tile"),
        (
            "%9 = broadcast %4 : tile<f32>[65536, 65536]",
            "is no type of a tile",
        ),
        (
            "%9 = neg %0 : view<f32>[?, ?]",
            "takes a view where a scalar or tile belongs",
        ),
        // What refers to the header.
        ("%9 = param #9 : f32", "there is no parameter 9"),
        ("%9 = param s : f64", "expected f32, found f64"),
        ("%9 = dim #3 : i64", "there is no dimension 3"),
        ("%9 = grid #1 : i64", "there is no axis 1"),
        // Elementwise.
        ("%9 = exp %7 : tile<i32>[4, 8]", "`exp` does not take i32"),
        ("%9 = not %6 : tile<f32>[4, 8]", "`not` does not take f32"),
        ("%9 = clz %5 : bool", "`clz` does not take bool"),
        (
            "%9 = add %6, %4 : tile<f32>[4, 8]",
            "expected tile<f32>[4, 8], found f32",
        ),
        ("%9 = add %5, %5 : bool", "`add` does not take bool"),
        (
            "%9 = shl %6, %6 : tile<f32>[4, 8]",
            "`shl` does not take f32",
        ),
        (
            "%9 = and %6, %6 : tile<f32>[4, 8]",
            "`and` does not take f32",
        ),
        ("%9 = compare lt %5, %5 : bool", "`lt` does not take bool"),
        (
            "%9 = compare lt %6, %6 : bool",
            "expected tile<bool>[4, 8], found bool",
        ),
        (
            "%9 = fma %7, %7, %7 : tile<i32>[4, 8]",
            "`fma` is of floats",
        ),
        (
            "%9 = select %5, %6, %6 : tile<f32>[4, 8]",
            "expected tile<bool>[4, 8], found bool",
        ),
        (
            "%9 = cast %6 : tile<i8>[8, 4]",
            "expected tile<i8>[4, 8], found tile<i8>[8, 4]",
        ),
        (
            "%9 = bitcast %6 : tile<i16>[4, 8]",
            "f32 has not the bits of i16",
        ),
        (
            "%9 = bitcast %8 : tile<u8>[4, 8]",
            "bool has not the bits of u8",
        ),
        // Shapes.
        ("%9 = broadcast %6 : tile<f32>[8, 8]", "does not broadcast"),
        (
            "%9 = broadcast %6 : tile<f32>[4, 8, 1]",
            "does not broadcast",
        ),
        ("%9 = reshape %6 : tile<f32>[31]", "does not reshape"),
        (
            "%9 = permute [0, 0] %6 : tile<f32>[4, 4]",
            "is no permutation",
        ),
        (
            "%9 = permute [1, 0] %6 : tile<f32>[4, 8]",
            "expected tile<f32>[8, 4]",
        ),
        ("%9 = slice [1, 0] %6 : tile<f32>[4, 8]", "is not within"),
        ("%9 = iota : tile<f32>[4]", "gives a tile of integers"),
        (
            "%9 = reduce sum axis 2 %6 : tile<f32>[4]",
            "there is no such axis",
        ),
        (
            "%9 = reduce any axis 0 %6 : tile<f32>[8]",
            "`any` does not reduce f32",
        ),
        (
            "%9 = reduce argmax axis 0 %6 : tile<f32>[8]",
            "expected tile<i32>[8], found tile<f32>[8]",
        ),
        ("%9 = reduce sum %8 : i32", "expected i64, found i32"),
        // Accesses.
        (
            "%9 = load %1[%3] pad %4 : f32",
            "does not allow this access",
        ),
        ("store %0[%3, %3] = %4", "does not allow this access"),
        ("%9 = load %6[%3] pad %4 : f32", "which is no view"),
        (
            "%9 = load %0[%3] pad %4 : f32",
            "1 indices for a view of rank 2",
        ),
        (
            "%9 = load %0[%3, %4] pad %4 : f32",
            "expected i64, found f32",
        ),
        (
            "%9 = load %0[%3, %3 +: 0] pad %4 : tile<f32>[0]",
            "is no type of a tile",
        ),
        (
            "%9 = load %0[%3, .. 7] pad %4 : tile<f32>[7]",
            "a dimension is not 7 long",
        ),
        (
            "%9 = load %0[.. 8, .. 8] pad %4 : tile<f32>[8, 8]",
            "a dimension is not 8 long",
        ),
        (
            "%9 = load %0[%3, .. 8] pad %3 : tile<f32>[8]",
            "expected f32, found i64",
        ),
        (
            "%9 = load %0[%3, .. 8] pad %4 : tile<f32>[4]",
            "expected tile<f32>[8], found tile<f32>[4]",
        ),
        (
            "store %1[%3 +: 2] = %6",
            "expected tile<f32>[2], found tile<f32>[4, 8]",
        ),
        // Control.
        (
            "%9 = if %3 : f32 { yield %4 } { yield %4 }",
            "expected bool, found i64",
        ),
        ("%9 = if %5 : f32 { yield %4 }", "needs 2 regions and has 1"),
        (
            "%9 = if %5 : f32 { yield %4 } { yield %3 }",
            "yields (i64), and should (f32)",
        ),
        ("if %5 { |%9: f32| yield } { yield }", "have no arguments"),
        ("for %3, %3 { |%9: i64| yield }", "needs bounds and a step"),
        (
            "for %3, %3, %4 { |%9: i64| yield }",
            "expected i64, found f32",
        ),
        (
            "%9 = for %3, %3, %3, %4 : f32 { |%10: i64| yield %4 }",
            "has arguments (i64), and should (i64, f32)",
        ),
        (
            "%9 = for %3, %3, %3, %4 : f32 { |%10: i64, %11: f32| yield %10 }",
            "yields (i64), and should (f32)",
        ),
        (
            "%9 = while %4 : f32 { |%10: f32| yield %10 } { |%11: f32| yield %11 }",
            "yields (f32), and should (bool)",
        ),
        ("assert \"x\" %3", "expected bool, found i64"),
        // Structure.
        ("return", "nothing may follow a terminator"),
        ("if %5 { } { yield }", "it lacks a terminator"),
        (
            "if %5 { %9 = neg %4 : f32 } { yield }",
            "must end in a terminator",
        ),
        (
            "if %5 { return } { yield }",
            "`return` ends the root region",
        ),
        (
            "if %5 { %9 = neg %4 : f32 yield } { yield }\n  %10 = neg %9 : f32",
            "outside its region",
        ),
        ("neg %4", "needs 1 results and has 0"),
        ("%9 = neg %4, %4 : f32", "needs 1 operands and has 2"),
    ];
    for (line, expected) in cases {
        let text = with(line);
        let kernel = tile::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let found = errors_of(tile::verify(&kernel));
        assert!(
            found.contains(expected),
            "{line}\n  expected: {expected}\n  found: {found}"
        );
    }
    let fine = tile::parse(&with("%9 = load %2[%3 +: 4] pad %10 : tile<u8>[4]"));
    assert!(fine.is_err(), "%10 is not defined");
    let fine = tile::parse(&with("")).unwrap();
    assert_eq!(errors_of(tile::verify(&fine)), "");
}

#[test]
fn the_verifier_refuses_headers() {
    let kernel = || tile::parse(&with("")).unwrap();
    let mut twice = kernel();
    twice.header.signature.params[1].name = "x".into();
    assert!(errors_of(tile::verify(&twice)).contains("parameter `x` is declared twice"));
    let mut malformed = kernel();
    malformed.header.axes[0].extent = Formula(vec![]);
    assert!(errors_of(tile::verify(&malformed)).contains("a formula is malformed"));
    let mut dim = kernel();
    dim.header.requires = vec![Fact::Holds(Formula::dim(4))];
    assert!(errors_of(tile::verify(&dim)).contains("dimension 4, which is not there"));
    let mut float = kernel();
    float.header.requires = vec![Fact::Holds(Formula(vec![tesserine_set::Term::Scalar(3)]))];
    assert!(errors_of(tile::verify(&float)).contains("no integer scalar"));
    let mut aligned = kernel();
    aligned.header.facts = vec![Fact::Aligned { param: 3, bytes: 4 }];
    assert!(errors_of(tile::verify(&aligned)).contains("needs a view"));
    let mut groups = kernel();
    groups.header.order = Order::Grouped { group: 0 };
    assert!(errors_of(tile::verify(&groups)).contains("groups of no index"));
    let mut cluster = kernel();
    cluster.header.axes[0].cluster = true;
    cluster.header.axes[0].rev = true;
    let found = errors_of(tile::verify(&cluster));
    assert!(found.contains("no cluster") && found.contains("upwards"));
    cluster.header.axes[0].extent = Formula::int(16);
    let more = GridAxis {
        cluster: true,
        ..GridAxis::new("more", Formula::int(2))
    };
    cluster.header.axes.push(more);
    assert!(errors_of(tile::verify(&cluster)).contains("at most 16"));
    let mut drawn = kernel();
    drawn.header.dynamic = true;
    assert!(errors_of(tile::verify(&drawn)).contains("draw their tiles"));
}

#[test]
fn the_verifier_refuses_broken_bodies() {
    let mut kernel = tile::parse(&with("")).unwrap();
    let first = kernel.body.regions[kernel.body.root].ops[0];
    kernel.body.regions[kernel.body.root].ops.insert(1, first);
    assert!(errors_of(tile::verify(&kernel)).contains("lies in more than one place"));

    let mut kernel = tile::parse(&with("")).unwrap();
    let root = kernel.body.root;
    let ret = kernel.body.regions[root].ops.pop().unwrap();
    let yes = kernel.body.append(
        root,
        OpKind::Constant(Constant::Bool(true)),
        vec![],
        vec![Type::Scalar(DType::Bool)],
        vec![],
        Span::NONE,
    );
    let cond = kernel.body.ops[yes].results[0];
    let inner = kernel.body.new_region();
    kernel
        .body
        .append(inner, OpKind::Yield, vec![], vec![], vec![], Span::NONE);
    kernel.body.append(
        root,
        OpKind::If,
        vec![cond],
        vec![],
        vec![inner, inner],
        Span::NONE,
    );
    kernel.body.regions[root].ops.push(ret);
    assert!(errors_of(tile::verify(&kernel)).contains("belongs to more than one operation"));

    let mut kernel = tile::parse(&with("")).unwrap();
    let root = kernel.body.root;
    kernel.body.regions[root].ops.pop();
    kernel.body.append(
        root,
        OpKind::If,
        vec![cond],
        vec![],
        vec![root, root],
        Span::NONE,
    );
    assert!(errors_of(tile::verify(&kernel)).contains("belongs to more than one operation"));
}

const ROLE: &str = r#"#l0 = layout [4, 8] register [[0, 1]] lane [[0, 2], [0, 4], [1, 0], [2, 0], [0, 0]] warp [[0, 0], [0, 0]] repeat [1, 1]
#l1 = layout [4, 8] register [[0, 1], [0, 2]] lane [[0, 4], [1, 0], [2, 0], [0, 0], [0, 0]] warp [[0, 0], [0, 0]] repeat [1, 1]
kernel "k"
  dims n
  param x: view<f32>[n, 8]
  axis i in n
  buffer shared0: 128 align 16 at 0
  shared 128
role "all" warps 4 {
  %0 = param x : view<f32>[?, ?]
  %1 = constant 1 : i64
  %2 = constant 2.0 : f32
  %3 = load %0[%1 +: 4, .. 8] pad %2 width 2 : tile<f32>[4, 8] #l0
  %4 = neg %3 : tile<f32>[4, 8] #l0
  %5 = convert scratch shared0 %4 : tile<f32>[4, 8] #l1
  barrier
  return
}
"#;

#[test]
fn the_role_verifier_refuses() {
    // What is asked of a layout needs its numbers to fit together: the parser refuses already.
    let ragged = ROLE.replacen("repeat [1, 1]", "repeat [1]", 1);
    assert!(role::parse(&ragged).is_err());
    let kernel = role::parse(ROLE).unwrap();
    assert_eq!(errors_of(role::verify(&kernel)), "");
    assert_eq!(kernel.to_string(), ROLE);
    for (from, to, expected) in [
        (
            "%4 = neg %3 : tile<f32>[4, 8] #l0",
            "%4 = neg %3 : tile<f32>[4, 8] #l1",
            "differ in layout",
        ),
        (
            "%4 = neg %3 : tile<f32>[4, 8] #l0",
            "%4 = neg %3 : tile<f32>[4, 8]",
            "some have none",
        ),
        (
            "%1 = constant 1 : i64",
            "%1 = constant 1 : i64 #l0",
            "has a layout and is no tile",
        ),
        (
            "layout [4, 8] register [[0, 1]]",
            "layout [4, 9] register [[0, 1]]",
            "a layout of shape [4, 9]",
        ),
        (
            "lane [[0, 2], [0, 4], [1, 0], [2, 0], [0, 0]]",
            "lane [[0, 2]]",
            "1 lane bits",
        ),
        ("warps 4", "warps 8", "2 warp bits in a role of 8 warps"),
        ("warps 4", "warps 0", "has no warps"),
        (
            "[0, 2], [0, 4], [1, 0]",
            "[0, 2], [0, 0], [1, 0]",
            "do not cover",
        ),
        ("width 2", "width 3", "an access of 3 elements"),
        ("width 2", "width 8", "an access of 8 elements"),
        (
            "tile<f32>[4, 8] #l1\n",
            "tile<i32>[4, 8] #l1\n",
            "`convert` of",
        ),
        ("at 0", "at 8", "lies at 8..136"),
        ("align 16", "align 3", "aligned to 3 bytes"),
        ("shared 128", "shared 64", "in 64 bytes"),
        (
            "  barrier",
            "  %9 = exp2 %1 : i64\n  barrier",
            "`exp2` does not take i64",
        ),
    ] {
        let text = ROLE.replacen(from, to, 1);
        assert_ne!(text, ROLE, "{from}");
        let kernel = role::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let found = errors_of(role::verify(&kernel));
        assert!(
            found.contains(expected),
            "{to}\n  expected: {expected}\n  found: {found}"
        );
    }
    for (from, to, expected) in [
        ("repeat [1, 1]", "repeat [1]", "one entry a dimension"),
        ("shared0:", "shared1:", "`shared1` is no buffer"),
        (
            "scratch shared0",
            "scratch shared7",
            "`shared7` is no buffer",
        ),
        ("#l1 = layout", "#l0 = layout", "`#l0` is defined twice"),
        (
            "[4, 8] #l0\n",
            "[4, 8] #l9\n",
            "`#l9` is not defined before here",
        ),
    ] {
        let found = role::parse(&ROLE.replacen(from, to, 1))
            .map(|_| ())
            .unwrap_err();
        assert!(found.message.contains(expected), "{found}");
    }
}
