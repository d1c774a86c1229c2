//! A kernel set written by hand: `axpy<f32>`, with a body for 16-byte accesses' sake and a general one.

use tesserine_set::{
    AbiArg, Access, BodyRecord, DType, Fact, Formula, FormulaOp, Instance, Manifest, ModuleKind,
    OpRecord, Param, ParamKind, SetWriter, Signature, Step, StepArg, Term, ViewArg, ViewBase,
    ViewFacts, ViewParam, WorkspaceRecord,
};

/// `y[i] = s * x[i] + y[i]`, an element a thread; `x` may be strided.
pub const PTX: &str = r#".version 6.3
.target sm_75
.address_size 64
.visible .entry axpy(
    .param .u64 x, .param .u64 stride, .param .u64 y, .param .u64 n, .param .f32 s
)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %d<8>;
    .reg .f32 %f<4>;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %d0, %r0, %r1;
    cvt.u64.u32 %d1, %r2;
    add.u64 %d0, %d0, %d1;
    ld.param.u64 %d2, [n];
    setp.ge.u64 %p, %d0, %d2;
    @%p ret;
    ld.param.u64 %d3, [x];
    ld.param.u64 %d4, [stride];
    ld.param.u64 %d5, [y];
    ld.param.f32 %f0, [s];
    mul.lo.u64 %d6, %d0, %d4;
    shl.b64 %d6, %d6, 2;
    add.u64 %d3, %d3, %d6;
    shl.b64 %d7, %d0, 2;
    add.u64 %d5, %d5, %d7;
    ld.global.f32 %f1, [%d3];
    ld.global.f32 %f2, [%d5];
    fma.rn.f32 %f3, %f0, %f1, %f2;
    st.global.f32 [%d5], %f3;
    ret;
}
"#;

/// `axpy(x: view<f32>[n strided], y: mut view<f32>[n], s: f32 = 1.0) where n <= 1 << 40`, for sm_75.
pub fn manifest() -> Manifest {
    let n = || Formula::dim(0);
    let view = |name: &str, access, strided| Param {
        name: name.into(),
        optional: false,
        kind: ParamKind::View(ViewParam {
            dtype: DType::F32,
            access,
            extents: vec![n()],
            strided,
            facts: ViewFacts::default(),
        }),
    };
    let body = |facts: Vec<Fact>, threads: u32| BodyRecord {
        target: "sm_75".into(),
        facts,
        cost: None,
        entry: "axpy".into(),
        grid: vec![Formula::binary(
            FormulaOp::CeilDiv,
            n(),
            Formula::int(threads as i64),
        )],
        persistent: None,
        cluster: 1,
        overlap: false,
        threads,
        shared_bytes: 0,
        tensor_maps: Vec::new(),
        abi: vec![
            AbiArg::Pointer { param: 0 },
            AbiArg::Stride { param: 0, dim: 0 },
            AbiArg::Pointer { param: 1 },
            AbiArg::Dim { dim: 0 },
            AbiArg::Scalar { param: 2 },
        ],
        ptx_version: (6, 3),
        ptx: 0,
        cubin: None,
        resources: None,
    };
    let aligned = |param| Fact::Aligned { param, bytes: 16 };
    let small = Formula(vec![
        Term::Dim(0),
        Term::Int(1 << 40),
        Term::Op(FormulaOp::Le),
    ]);
    Manifest {
        name: "by-hand".into(),
        compiler: "none".into(),
        instances: vec![Instance {
            name: "axpy<f32>".into(),
            source: "axpy.tess".into(),
            source_hash: String::new(),
            signature: Signature {
                dims: vec!["n".into()],
                params: vec![
                    view("x", Access::Read, true),
                    view("y", Access::ReadWrite, false),
                    Param {
                        name: "s".into(),
                        optional: false,
                        kind: ParamKind::Scalar {
                            dtype: DType::F32,
                            default: Some(1.0),
                        },
                    },
                ],
            },
            requires: vec![Fact::Holds(small)],
            bodies: vec![body(vec![aligned(0), aligned(1)], 256), body(vec![], 64)],
            unordered: false,
            tune: Vec::new(),
        }],
        ops: Vec::new(),
    }
}

/// `op shifted(x: view<f32>[n strided], y: mut view<f32>[n], s: f32) where n < 1 << 20 { workspace w: view<f32>[n] = 1.0;
/// launch axpy(x, w, s); if n > 0 { launch axpy(w, y, 2.0); } }`
pub fn op_manifest() -> Manifest {
    let mut manifest = manifest();
    let view = |base| {
        let steps = Vec::new();
        Some(StepArg::View(ViewArg { base, steps }))
    };
    let (x, y, w) = (
        ViewBase::Param(0),
        ViewBase::Param(1),
        ViewBase::Workspace(0),
    );
    let n = || Formula::dim(0);
    manifest.ops.push(OpRecord {
        name: "shifted<f32>".into(),
        source: "axpy.tess".into(),
        source_hash: String::new(),
        signature: manifest.instances[0].signature.clone(),
        requires: vec![Fact::Holds(Formula::binary(
            FormulaOp::Lt,
            n(),
            Formula::int(1 << 20),
        ))],
        workspaces: vec![WorkspaceRecord {
            name: "w".into(),
            dtype: DType::F32,
            extents: vec![n()],
            when: None,
            fill: Some(1f32.to_bits().into()),
            once: false,
        }],
        steps: vec![
            Step {
                instance: 0,
                when: None,
                args: vec![view(x), view(w), Some(StepArg::Scalar { param: 2 })],
            },
            Step {
                instance: 0,
                when: Some(Formula::binary(FormulaOp::Gt, n(), Formula::int(0))),
                args: vec![view(w), view(y), Some(StepArg::Float(2f64.to_bits()))],
            },
        ],
    });
    manifest
}

/// The set's file, with other PTX if wanted.
pub fn set_bytes(manifest: Manifest, ptx: &str) -> Vec<u8> {
    let mut writer = SetWriter::new(manifest);
    writer.add_module(ModuleKind::Ptx, ptx.as_bytes());
    writer.finish().unwrap()
}
