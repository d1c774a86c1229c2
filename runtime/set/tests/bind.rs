//! Arguments against signatures: what binds, what is refused, and in which words.

use tesserine_set::{
    Access, ArgShape, BindError, DType, Fact, Formula, FormulaOp, Param, ParamKind, ScalarValue,
    Signature, Term, ViewFacts, ViewParam,
};

const N: u32 = 1;

fn view(name: &str, access: Access, extents: Vec<Formula>) -> Param {
    Param {
        name: name.into(),
        optional: false,
        kind: ParamKind::View(ViewParam {
            dtype: DType::Bf16,
            access,
            extents,
            strided: false,
            facts: ViewFacts::default(),
        }),
    }
}

fn scalar(name: &str, dtype: DType, default: Option<f64>) -> Param {
    Param {
        name: name.into(),
        optional: false,
        kind: ParamKind::Scalar { dtype, default },
    }
}

/// `(x: view[m, n], weight: view[n], out: out view[m, n], eps: f32 = 1e-6)`
fn rmsnorm() -> Signature {
    let (m, n) = (Formula::dim(0), Formula::dim(N));
    Signature {
        dims: vec!["m".into(), "n".into()],
        params: vec![
            view("x", Access::Read, vec![m.clone(), n.clone()]),
            view("weight", Access::Read, vec![n.clone()]),
            view("out", Access::Write, vec![m, n]),
            scalar("eps", DType::F32, Some(1e-6)),
        ],
    }
}

fn tensor<'a>(shape: &'a [i64], strides: &'a [i64], address: u64) -> Option<ArgShape<'a>> {
    Some(ArgShape::View {
        dtype: DType::Bf16,
        shape,
        strides,
        address,
    })
}

fn message(signature: &Signature, args: &[Option<ArgShape<'_>>]) -> String {
    signature
        .bind(args)
        .map(|b| b.dims.to_vec())
        .unwrap_err()
        .to_string()
}

#[test]
fn names_are_bound_and_defaults_filled_in() {
    let signature = rmsnorm();
    let args = [
        tensor(&[4, 96], &[128, 1], 0x1000),
        tensor(&[96], &[1], 0x2000),
        tensor(&[4, 96], &[96, 1], 0x3000),
        None,
    ];
    let binding = signature.bind(&args).unwrap();
    assert_eq!(binding.dims[..], [4, 96]);
    assert_eq!(binding.dim("n"), Some(96));
    assert_eq!(binding.source(1), Some("x"));
    assert_eq!(binding.values[3], Some(ScalarValue::Float(1e-6)));
    assert_eq!(binding.given[..], [true, true, true, false]);
}

#[test]
fn a_mismatch_names_the_argument_and_where_the_name_came_from() {
    let signature = rmsnorm();
    let args = [
        tensor(&[4, 4096], &[4096, 1], 0x1000),
        tensor(&[4000], &[1], 0x20000),
        tensor(&[4, 4096], &[4096, 1], 0x30000),
        None,
    ];
    assert_eq!(
        message(&signature, &args),
        "`weight` has 4000 elements in dimension 0, but `n` is 4096 (from `x`)"
    );
}

#[test]
fn forms_are_checked_before_extents() {
    let signature = rmsnorm();
    let good = [
        tensor(&[4, 8], &[8, 1], 0x1000),
        tensor(&[8], &[1], 0x2000),
        tensor(&[4, 8], &[8, 1], 0x3000),
        Some(ArgShape::Scalar(ScalarValue::Float(0.5))),
    ];
    assert!(signature.bind(&good).is_ok());
    let with = |index: usize, arg: Option<ArgShape<'static>>| {
        let mut args: Vec<Option<ArgShape<'static>>> = vec![
            tensor(&[4, 8], &[8, 1], 0x1000),
            tensor(&[8], &[1], 0x2000),
            tensor(&[4, 8], &[8, 1], 0x3000),
            None,
        ];
        args[index] = arg;
        message(&rmsnorm(), &args)
    };
    assert_eq!(with(1, None), "`weight` is missing");
    assert_eq!(
        with(1, tensor(&[8, 1], &[1, 1], 0)),
        "`weight` has 2 dimensions, and the kernel takes 1: [n]"
    );
    assert_eq!(
        with(1, tensor(&[-8], &[1], 0)),
        "`weight` has -8 elements in dimension 0"
    );
    assert_eq!(
        with(1, tensor(&[1 << 49], &[0], 0)),
        "`weight` has 562949953421312 elements in dimension 0, and 2^48 are the most"
    );
    assert_eq!(
        with(1, tensor(&[8], &[], 0)),
        "`weight` has 0 strides for 1 dimensions"
    );
    assert_eq!(
        with(0, tensor(&[4, 8], &[16, 2], 0x1000)),
        "`x` has stride 2 in its last dimension, and the kernel takes 1"
    );
    assert_eq!(
        with(0, tensor(&[4, 8], &[8, 1], 0x1001)),
        "`x` must start at a multiple of 2 bytes, and its address is 0x1001"
    );
    assert_eq!(
        with(2, tensor(&[4, 8], &[0, 1], 0x3000)),
        "`out` has stride 0 in dimension 0, and the kernel stores to it"
    );
    assert_eq!(
        with(0, tensor(&[4, 8], &[i64::MAX, 1], 0x1000)),
        "`x` reaches outside the address space"
    );
    assert_eq!(
        with(0, Some(ArgShape::Scalar(ScalarValue::Int(1)))),
        "`x` is a tensor of bf16, and a number was passed"
    );
    assert_eq!(
        with(3, tensor(&[4], &[1], 0)),
        "`eps` is a number (f32), and a tensor was passed"
    );
    assert_eq!(
        with(
            1,
            Some(ArgShape::View {
                dtype: DType::F16,
                shape: &[8],
                strides: &[1],
                address: 0,
            })
        ),
        "`weight` has elements of f16, and the kernel takes bf16"
    );
    assert!(matches!(
        signature.bind(&good[..3]),
        Err(BindError::Count {
            given: 3,
            expected: 4
        })
    ));
}

#[test]
fn an_expression_binds_a_name_that_never_stands_bare() {
    // (x: view[m, d * 2], starts: view[b + 1])
    let double = Formula::binary(FormulaOp::Mul, Formula::dim(1), Formula::int(2));
    let next = Formula::binary(FormulaOp::Add, Formula::dim(2), Formula::int(1));
    let signature = Signature {
        dims: vec!["m".into(), "d".into(), "b".into()],
        params: vec![
            view("x", Access::Read, vec![Formula::dim(0), double]),
            view("starts", Access::Read, vec![next]),
        ],
    };
    let bind = |width: i64, starts: i64| {
        let shape = [3, width];
        let starts = [starts];
        let args = [tensor(&shape, &[64, 1], 0), tensor(&starts, &[1], 0x4000)];
        signature
            .bind(&args)
            .map(|b| b.dims.to_vec())
            .map_err(|e| e.to_string())
    };
    assert_eq!(bind(10, 5), Ok(vec![3, 5, 4]));
    assert_eq!(
        bind(7, 5),
        Err("`x` has 7 elements in dimension 1, which is `d * 2` for no extent `d`".into())
    );
    assert_eq!(
        bind(10, 0),
        Err("`starts` has 0 elements in dimension 0, which is `b + 1` for no extent `b`".into())
    );
}

#[test]
fn a_bare_occurrence_wins_over_an_expression_before_it() {
    // (x: view[m, n * 2], out: out view[m, n]): silu_and_mul
    let double = Formula::binary(FormulaOp::Mul, Formula::int(2), Formula::dim(1));
    let signature = Signature {
        dims: vec!["m".into(), "n".into()],
        params: vec![
            view("x", Access::Read, vec![Formula::dim(0), double]),
            view("out", Access::Write, vec![Formula::dim(0), Formula::dim(1)]),
        ],
    };
    let args = [
        tensor(&[2, 12], &[12, 1], 0),
        tensor(&[2, 5], &[5, 1], 0x1000),
    ];
    assert_eq!(
        message(&signature, &args),
        "`x` has 12 elements in dimension 1, but `2 * n` is 10 (`n` is 5, from `out`)"
    );
}

#[test]
fn a_name_of_omitted_optional_tensors_is_zero_and_one_of_nothing_is_refused() {
    let mut signature = Signature {
        dims: vec!["n".into(), "k".into()],
        params: vec![
            view("x", Access::Read, vec![Formula::dim(0)]),
            view("bias", Access::Read, vec![Formula::dim(1)]),
        ],
    };
    signature.params[1].optional = true;
    let args = [tensor(&[4], &[1], 0), None];
    let binding = signature.bind(&args).unwrap();
    assert_eq!(binding.dims[..], [4, 0]);
    assert!(!binding.holds(&Fact::Holds(Formula(vec![Term::Given(1)]))));
    // Of a tensor that was not given, alignment says nothing.
    assert!(binding.holds(&Fact::Aligned {
        param: 1,
        bytes: 16
    }));

    signature.dims.push("q".into());
    assert_eq!(
        message(&signature, &args),
        "no argument gives dimension `q` its extent"
    );
}

#[test]
fn scalars_are_values_of_their_type() {
    let signature = Signature {
        dims: vec![],
        params: vec![
            scalar("count", DType::I32, None),
            scalar("flag", DType::Bool, Some(0.0)),
        ],
    };
    let bind = |value: ScalarValue| {
        let args = [Some(ArgShape::Scalar(value)), None];
        signature
            .bind(&args)
            .map(|b| b.scalars.to_vec())
            .map_err(|e| e.to_string())
    };
    assert_eq!(bind(ScalarValue::Int(-7)), Ok(vec![-7, 0]));
    assert_eq!(
        bind(ScalarValue::Int(1 << 31)),
        Err("`count` is i32, and 2147483648 was passed".into())
    );
    assert_eq!(
        bind(ScalarValue::Float(0.5)),
        Err("`count` is i32, and 0.5 was passed".into())
    );
    let args = [
        Some(ArgShape::Scalar(ScalarValue::Int(1))),
        Some(ArgShape::Scalar(ScalarValue::Int(2))),
    ];
    assert_eq!(
        message(&signature, &args),
        "`flag` is bool, and 2 was passed"
    );
}

#[test]
fn alignment_is_of_the_base_and_of_every_stride_that_counts() {
    let signature = rmsnorm();
    let aligned = Fact::Aligned {
        param: 0,
        bytes: 16,
    };
    let holds = |shape: &[i64], strides: &[i64], address: u64| {
        let weight = [shape[1]];
        let args = [
            tensor(shape, strides, address),
            tensor(&weight, &[1], 0x20000),
            tensor(shape, &[100, 1], 0x30000),
            None,
        ];
        let binding = signature.bind(&args).unwrap();
        (binding.holds(&aligned), binding.explain(&aligned))
    };
    assert!(holds(&[4, 96], &[96, 1], 0x1000).0);
    assert!(!holds(&[4, 96], &[96, 1], 0x1008).0);
    // A single row's stride is never used.
    assert!(holds(&[1, 96], &[97, 1], 0x1000).0);
    let (held, text) = holds(&[4, 96], &[100, 1], 0x1000);
    assert!(!held);
    assert_eq!(
        text,
        "aligned(x, 16) (the rows of `x` must start at multiples of 16 bytes, and its stride in dimension 0 is 100 elements of bf16)"
    );
    let eighth = Formula::binary(
        FormulaOp::Eq,
        Formula::binary(FormulaOp::Rem, Formula::dim(N), Formula::int(8)),
        Formula::int(0),
    );
    let args = [
        tensor(&[1, 99], &[99, 1], 0),
        tensor(&[99], &[1], 0x2000),
        tensor(&[1, 99], &[99, 1], 0x3000),
        None,
    ];
    let binding = signature.bind(&args).unwrap();
    assert_eq!(
        binding.explain(&Fact::Holds(eighth)),
        "n % 8 == 0 (`n` is 99, from `x`)"
    );
}

#[test]
fn what_is_stored_to_may_overlap_nothing() {
    // (x: view[m, n], out: out view[m, n])
    let (m, n) = (Formula::dim(0), Formula::dim(N));
    let signature = Signature {
        dims: vec!["m".into(), "n".into()],
        params: vec![
            view("x", Access::Read, vec![m.clone(), n.clone()]),
            view("out", Access::Write, vec![m, n]),
        ],
    };
    let overlap = |strides: [&[i64]; 2], addresses: [u64; 2]| {
        let args = [
            tensor(&[4, 8], strides[0], addresses[0]),
            tensor(&[4, 8], strides[1], addresses[1]),
        ];
        match signature.bind(&args) {
            Ok(_) => false,
            Err(BindError::Overlap { .. }) => true,
            Err(other) => panic!("{other}"),
        }
    };
    // The same tensor; neighbours; the last row shared.
    assert!(overlap([&[8, 1], &[8, 1]], [0x1000, 0x1000]));
    assert!(!overlap([&[8, 1], &[8, 1]], [0x1000, 0x1040]));
    assert!(overlap([&[8, 1], &[8, 1]], [0x1000, 0x1030]));
    // Halves of one [4, 16] tensor along its last dimension, and two windows of it that share columns.
    assert!(!overlap([&[16, 1], &[16, 1]], [0x1000, 0x1010]));
    assert!(!overlap([&[16, 1], &[16, 1]], [0x1010, 0x1000]));
    assert!(overlap([&[16, 1], &[16, 1]], [0x1000, 0x100e]));
    // Even and odd rows of one tensor.
    assert!(!overlap([&[16, 1], &[16, 1]], [0x1000, 0x1010]));
    // Rows upwards in one and downwards in the other.
    assert!(overlap([&[8, 1], &[-8, 1]], [0x1000, 0x1030]));
    // An empty tensor overlaps nothing.
    let args = [
        tensor(&[0, 8], &[8, 1], 0x1000),
        tensor(&[0, 8], &[8, 1], 0x1000),
    ];
    assert!(signature.bind(&args).is_ok());
    let args = [
        tensor(&[4, 8], &[8, 1], 0x1000),
        tensor(&[4, 8], &[8, 1], 0x1010),
    ];
    assert_eq!(
        message(&signature, &args),
        "`x` and `out` overlap in memory, and the kernel stores to `out`"
    );
}

mod properties {
    use proptest::prelude::*;
    use std::collections::HashSet;

    use super::*;

    fn bytes_of(shape: &[i64], strides: &[i64], address: u64) -> HashSet<u64> {
        let mut bytes = HashSet::new();
        for i in 0..shape[0] {
            for j in 0..shape[1] {
                let at = address as i64 + 2 * (i * strides[0] + j * strides[1]);
                bytes.extend([at as u64, at as u64 + 1]);
            }
        }
        bytes
    }

    proptest! {
        /// What the overlap check lets pass shares no byte.
        #[test]
        fn accepted_arguments_share_no_byte(
            shapes in [[0i64..5, 1i64..6], [0i64..5, 1i64..6]],
            strides in [-12i64..13, -12i64..13],
            offsets in [0u64..40, 0u64..40],
        ) {
            let signature = Signature {
                dims: vec!["a".into(), "b".into(), "c".into(), "d".into()],
                params: vec![
                    view("x", Access::Read, vec![Formula::dim(0), Formula::dim(1)]),
                    view("out", Access::ReadWrite, vec![Formula::dim(2), Formula::dim(3)]),
                ],
            };
            let strides = strides.map(|s| [s, 1]);
            let addresses = offsets.map(|o| 0x1000 + 2 * o);
            let args = [
                tensor(&shapes[0], &strides[0], addresses[0]),
                tensor(&shapes[1], &strides[1], addresses[1]),
            ];
            let share = !bytes_of(&shapes[0], &strides[0], addresses[0])
                .is_disjoint(&bytes_of(&shapes[1], &strides[1], addresses[1]));
            if signature.bind(&args).is_ok() {
                prop_assert!(!share);
            }
        }

        /// Whatever is passed, binding answers.
        #[test]
        fn binding_never_panics(
            shape in proptest::collection::vec(any::<i64>(), 0..4),
            strides in proptest::collection::vec(any::<i64>(), 0..4),
            address in any::<u64>(),
            terms in proptest::collection::vec(prop_oneof![
                any::<i64>().prop_map(Term::Int),
                (0u32..4).prop_map(Term::Dim),
                (0u32..4).prop_map(Term::Scalar),
                (0u32..4).prop_map(Term::Given),
                Just(Term::Op(FormulaOp::Add)),
                Just(Term::Op(FormulaOp::Mul)),
                Just(Term::Op(FormulaOp::Sub)),
                Just(Term::Op(FormulaOp::Div)),
                Just(Term::Op(FormulaOp::RoundUp)),
                Just(Term::Op(FormulaOp::Neg)),
            ], 0..6),
        ) {
            let extents = vec![Formula::dim(0), Formula(terms)];
            let signature = Signature {
                dims: vec!["a".into(), "b".into()],
                params: vec![
                    view("x", Access::Read, extents.clone()),
                    view("y", Access::Write, extents),
                ],
            };
            let args = [tensor(&shape, &strides, address), tensor(&shape, &strides, address)];
            if let Err(error) = signature.bind(&args) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
