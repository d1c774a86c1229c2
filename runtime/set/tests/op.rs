//! What an op's record resolves to: views that move nothing, workspaces, and what no run can take.

use tesserine_set::{
    Access, ArgShape, DType, Formula, FormulaOp, OpRecord, OwnedArg, Param, ParamKind, Signature,
    Step, StepArg, Term, ViewArg, ViewBase, ViewFacts, ViewParam, ViewStep, WorkspaceRecord,
};

/// Memory of a matrix, element `i` at byte `BASE + size * i`.
const BASE: u64 = 0x10_0000;

fn signature(dtype: DType, rank: usize) -> Signature {
    let dims: Vec<String> = (0..rank).map(|d| format!("d{d}")).collect();
    let extents = (0..rank as u32).map(Formula::dim).collect();
    let x = Param {
        name: "x".into(),
        optional: true,
        kind: ParamKind::View(ViewParam {
            dtype,
            access: Access::Read,
            extents,
            strided: true,
            facts: ViewFacts::default(),
        }),
    };
    let k = Param {
        name: "k".into(),
        optional: false,
        kind: ParamKind::Scalar {
            dtype: DType::I32,
            default: Some(2.0),
        },
    };
    Signature {
        dims,
        params: vec![x, k],
    }
}

fn op(signature: Signature, steps: Vec<ViewStep>) -> OpRecord {
    let arg = StepArg::View(ViewArg {
        base: ViewBase::Param(0),
        steps,
    });
    OpRecord {
        name: "o".into(),
        signature,
        steps: vec![Step {
            instance: 0,
            when: None,
            args: vec![Some(arg)],
        }],
        ..OpRecord::default()
    }
}

/// Shape and the place of each element, counted from the base in elements of the result; or what is said instead.
fn seen(
    dtype: DType,
    shape: &[i64],
    strides: &[i64],
    steps: Vec<ViewStep>,
) -> Result<(Vec<i64>, Vec<i64>), String> {
    let op = op(signature(dtype, shape.len()), steps);
    let args = [
        Some(ArgShape::View {
            dtype,
            shape,
            strides,
            address: BASE,
        }),
        None,
    ];
    let binding = op.signature.bind(&args).map_err(|e| e.to_string())?;
    let layout = op.layout_with(&binding.env(), 0).unwrap();
    let made = op.arguments(&op.steps[0], &binding, &layout, 0);
    let made = made.map_err(|e| e.to_string())?.unwrap();
    let Some(OwnedArg::View(view)) = &made[0] else {
        panic!("{made:?}");
    };
    let bits = i64::from(view.dtype.bits());
    let start = (view.address - BASE) as i64 * 8 / bits;
    let count: i64 = view.shape.iter().product();
    let places = (0..count).map(|mut i| {
        let mut at = start;
        for (extent, stride) in view.shape.iter().zip(&view.strides).rev() {
            at += i % extent * stride;
            i /= extent;
        }
        at
    });
    Ok((view.shape.clone(), places.collect()))
}

fn int(value: i64) -> Formula {
    Formula::int(value)
}

/// `k`, which is 2 unless it is passed.
fn k() -> Formula {
    Formula(vec![Term::Scalar(1)])
}

fn slice(dim: u32, from: Formula, to: Formula) -> ViewStep {
    ViewStep::Slice { dim, from, to }
}

#[test]
fn views_are_what_the_transformations_say() {
    let f32 = |steps| seen(DType::F32, &[3, 4], &[10, 1], steps).unwrap();
    assert_eq!(
        f32(vec![slice(0, int(1), k())]),
        (vec![1, 4], vec![10, 11, 12, 13])
    );
    // Bounds are clamped, and in order.
    assert_eq!(f32(vec![slice(1, int(2), int(99))]).0, [3, 2]);
    assert_eq!(f32(vec![slice(1, int(3), int(1))]).0, [3, 0]);
    assert_eq!(
        f32(vec![slice(1, int(-5), int(2)), slice(0, k(), int(3))]),
        (vec![1, 2], vec![20, 21])
    );
    assert_eq!(
        f32(vec![ViewStep::Select { dim: 0, index: k() }]),
        (vec![4], vec![20, 21, 22, 23])
    );
    assert_eq!(
        f32(vec![
            ViewStep::Permute(vec![1, 0]),
            slice(0, int(3), int(4))
        ]),
        (vec![1, 3], vec![3, 13, 23])
    );
    assert_eq!(
        f32(vec![
            ViewStep::Split { dim: 1, by: k() },
            ViewStep::Permute(vec![1, 0, 2])
        ]),
        (
            vec![2, 3, 2],
            vec![0, 1, 10, 11, 20, 21, 2, 3, 12, 13, 22, 23]
        )
    );
    let whole = seen(
        DType::F32,
        &[3, 4],
        &[4, 1],
        vec![ViewStep::Merge { dim: 0 }],
    );
    assert_eq!(whole.unwrap(), (vec![12], (0..12).collect()));
    // One row, or one element a row, merges whatever the strides.
    for (shape, strides, wanted) in [
        ([1, 3], [99, 2], vec![0, 2, 4]),
        ([3, 1], [7, 99], vec![0, 7, 14]),
    ] {
        let merged = seen(
            DType::F32,
            &shape,
            &strides,
            vec![ViewStep::Merge { dim: 0 }],
        );
        assert_eq!(merged.unwrap(), (vec![3], wanted));
    }
    // Other elements of the same bytes.
    let narrow = seen(
        DType::I32,
        &[2, 3],
        &[8, 1],
        vec![ViewStep::Bitcast(DType::U8)],
    );
    let (shape, places) = narrow.unwrap();
    assert_eq!((shape, places[12]), (vec![2, 12], 32));
    let wide = seen(
        DType::U8,
        &[2, 8],
        &[16, 1],
        vec![ViewStep::Bitcast(DType::F32)],
    );
    assert_eq!(wide.unwrap(), (vec![2, 2], vec![0, 1, 4, 5]));
}

#[test]
fn what_cannot_be_seen_so_is_refused() {
    let refused = |dtype, shape: &[i64], strides: &[i64], step| {
        seen(dtype, shape, strides, vec![step]).unwrap_err()
    };
    for (step, wanted) in [
        (
            ViewStep::Select {
                dim: 0,
                index: int(3),
            },
            "`x`: element 3 of dimension 0 is taken, which has 3",
        ),
        (
            ViewStep::Select {
                dim: 2,
                index: int(0),
            },
            "`x`: it has not so many dimensions",
        ),
        (
            ViewStep::Split { dim: 1, by: int(3) },
            "`x`: dimension 1 of 4 is split by 3",
        ),
        (
            ViewStep::Split { dim: 1, by: int(0) },
            "`x`: dimension 1 of 4 is split by 0",
        ),
        (
            ViewStep::Merge { dim: 0 },
            "`x`: dimensions 0 and 1 are merged, and rows of 4 elements lie 10 elements apart",
        ),
        (
            ViewStep::Permute(vec![0, 0]),
            "`x`: it has not so many dimensions",
        ),
        (
            slice(
                0,
                Formula::binary(
                    FormulaOp::Div,
                    int(1),
                    Formula::binary(FormulaOp::Sub, k(), k()),
                ),
                int(2),
            ),
            "`x`: `1 / (k - k)`: the formula overflows 64 bits or divides by zero",
        ),
    ] {
        assert_eq!(refused(DType::F32, &[3, 4], &[10, 1], step), wanted);
    }
    assert_eq!(
        refused(DType::U8, &[2, 6], &[8, 1], ViewStep::Bitcast(DType::F32)),
        "`x`: a row of 6 elements is no number of `f32`"
    );
    assert_eq!(
        refused(DType::U4, &[9], &[1], slice(0, int(1), int(9))),
        "`x`: element 1 of dimension 0 begins inside a byte"
    );
}

#[test]
fn what_is_left_out_stays_so() {
    let op = op(signature(DType::F32, 1), vec![slice(0, int(0), int(1))]);
    let args = [None, None];
    let binding = op.signature.bind(&args).unwrap();
    let layout = op.layout_with(&binding.env(), 0).unwrap();
    let made = op.arguments(&op.steps[0], &binding, &layout, 0).unwrap();
    assert_eq!(made, Some(vec![None]));
}

#[test]
fn workspaces_lie_behind_each_other() {
    let workspace = |name: &str, dtype, extents: Vec<Formula>, when| WorkspaceRecord {
        name: name.into(),
        dtype,
        extents,
        when,
        fill: None,
        once: false,
    };
    let record = OpRecord {
        name: "o".into(),
        signature: signature(DType::F32, 1),
        workspaces: vec![
            workspace("a", DType::F32, vec![Formula::dim(0), int(3)], None),
            workspace("b", DType::U1, vec![int(13)], None),
            workspace(
                "c",
                DType::F64,
                vec![int(1000)],
                Some(Formula::binary(FormulaOp::Gt, Formula::dim(0), int(64))),
            ),
        ],
        ..OpRecord::default()
    };
    let layout = |n: i64, words: u32| {
        let args = [
            Some(ArgShape::View {
                dtype: DType::F32,
                shape: &[n],
                strides: &[1],
                address: BASE,
            }),
            None,
        ];
        let binding = record.signature.bind(&args).unwrap();
        record.layout_with(&binding.env(), words).unwrap()
    };
    let small = layout(30, 0);
    assert_eq!((small.bytes, small.words), (768, 768));
    let places: Vec<_> = small
        .places
        .iter()
        .map(|p| p.as_ref().map(|p| (p.offset, p.bytes)))
        .collect();
    assert_eq!(places, [Some((0, 360)), Some((512, 2)), None]);
    let large = layout(65, 3);
    assert_eq!(large.places[2].as_ref().map(|p| p.offset), Some(1280));
    assert_eq!((large.words, large.bytes), (1280 + 8192, 1280 + 8192 + 256));
    assert_eq!(layout(0, 0).bytes, 256);
}

#[test]
fn formulas_choose_and_substitute() {
    let a = || Formula::dim(0);
    let chosen = Formula::select(
        Formula::binary(FormulaOp::Gt, a(), int(3)),
        Formula::binary(FormulaOp::Mul, a(), int(10)),
        int(7),
    );
    for n in 0..8 {
        let env = tesserine_set::Env {
            dims: &[n],
            scalars: &[],
            given: &[],
            multiprocessors: 1,
        };
        assert_eq!(chosen.eval(&env), Ok(if n > 3 { n * 10 } else { 7 }));
        let put = chosen.substitute(|term| match term {
            Term::Dim(0) => Some(int(n)),
            _ => None,
        });
        assert_eq!(put.unwrap().as_int(), chosen.eval(&env).ok());
    }
    assert_eq!(chosen.substitute(|_| None), None);
    // What is known is left out.
    assert_eq!(Formula::select(int(1), a(), int(7)), a());
    let condition = Formula::binary(FormulaOp::Lt, a(), int(9));
    assert_eq!(
        Formula::both(Some(int(1)), Some(condition.clone())),
        Some(condition.clone())
    );
    assert_eq!(
        Formula::binary(FormulaOp::And, condition.clone(), int(0)).as_int(),
        Some(0)
    );
    assert_eq!(
        Formula::binary(FormulaOp::Or, int(0), condition.clone()),
        condition
    );
}
