//! Formulas: values against wide arithmetic, and how they read.

use proptest::prelude::*;
use tesserine_set::{Env, Formula, FormulaError, FormulaOp, Term};

const BINARY: [FormulaOp; 17] = [
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

/// The value in 128 bits; `None` for a division by zero.
fn wide(op: FormulaOp, a: i128, b: i128) -> Option<i128> {
    let floor = |a: i128, b: i128| match b {
        0 => None,
        b if b < 0 => Some((-a).div_euclid(-b)),
        b => Some(a.div_euclid(b)),
    };
    Some(match op {
        FormulaOp::Neg => -a,
        FormulaOp::Not => (a == 0) as i128,
        FormulaOp::Add => a + b,
        FormulaOp::Sub => a - b,
        FormulaOp::Mul => a * b,
        FormulaOp::Div => floor(a, b)?,
        FormulaOp::Rem => a - floor(a, b)? * b,
        FormulaOp::CeilDiv => -floor(-a, b)?,
        FormulaOp::RoundUp => -floor(-a, b)? * b,
        FormulaOp::Min => a.min(b),
        FormulaOp::Max => a.max(b),
        FormulaOp::And => (a != 0 && b != 0) as i128,
        FormulaOp::Or => (a != 0 || b != 0) as i128,
        FormulaOp::Eq => (a == b) as i128,
        FormulaOp::Ne => (a != b) as i128,
        FormulaOp::Lt => (a < b) as i128,
        FormulaOp::Le => (a <= b) as i128,
        FormulaOp::Gt => (a > b) as i128,
        FormulaOp::Ge => (a >= b) as i128,
    })
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![-20i64..20, any::<i64>(), Just(i64::MIN), Just(i64::MAX)]
}

proptest! {
    /// A result is the exact one, or none where it does not fit. Operations may also give up where only a step on the
    /// way overflows, which takes operands near the ends of the range.
    #[test]
    fn operations_are_exact(op in prop::sample::select(&BINARY[..]), a in number(), b in number()) {
        let exact = wide(op, a as i128, b as i128).and_then(|v| i64::try_from(v).ok());
        let small = a.unsigned_abs() < 1 << 31 && b.unsigned_abs() < 1 << 31;
        match op.apply(a, b) {
            Some(value) => prop_assert_eq!(Some(value), exact),
            None => prop_assert!(!small || exact.is_none(), "{op:?} {a} {b}"),
        }
    }
}

#[test]
fn division_rounds_down_and_never_panics() {
    assert_eq!(FormulaOp::Div.apply(-7, 2), Some(-4));
    assert_eq!(FormulaOp::Rem.apply(-7, 2), Some(1));
    assert_eq!(FormulaOp::CeilDiv.apply(-7, 2), Some(-3));
    assert_eq!(FormulaOp::RoundUp.apply(9, 8), Some(16));
    for op in [
        FormulaOp::Div,
        FormulaOp::Rem,
        FormulaOp::CeilDiv,
        FormulaOp::RoundUp,
    ] {
        assert_eq!(op.apply(1, 0), None);
        assert_eq!(op.apply(i64::MIN, -1), None);
    }
}

#[test]
fn constants_are_folded_and_faults_are_told_apart() {
    let sum = Formula::binary(FormulaOp::Add, Formula::int(2), Formula::int(3));
    assert_eq!(sum.as_int(), Some(5));
    let env = Env {
        dims: &[7],
        scalars: &[],
        given: &[],
        multiprocessors: 1,
    };
    let half = Formula::binary(FormulaOp::Div, Formula::dim(0), Formula::int(2));
    assert_eq!(half.eval(&env), Ok(3));
    let by_zero = Formula::binary(FormulaOp::Div, Formula::dim(0), Formula::int(0));
    assert_eq!(by_zero.eval(&env), Err(FormulaError::Arithmetic));
    for terms in [
        vec![],
        vec![Term::Dim(1)],
        vec![Term::Scalar(0)],
        vec![Term::Int(1), Term::Int(2)],
    ] {
        assert_eq!(Formula(terms).eval(&env), Err(FormulaError::Malformed));
    }
}

#[test]
fn formulas_read_as_source() {
    let (m, n) = (Formula::dim(0), Formula::dim(1));
    let show = |formula: &Formula| {
        formula
            .display(&["m".into(), "n".into()], &["s", "bias"])
            .to_string()
    };
    let sum = Formula::binary(FormulaOp::Add, m.clone(), n.clone());
    let product = Formula::binary(FormulaOp::Mul, Formula::int(2), sum.clone());
    assert_eq!(show(&product), "2 * (m + n)");
    let tail = Formula::binary(
        FormulaOp::Sub,
        m.clone(),
        Formula::binary(FormulaOp::Sub, n.clone(), m.clone()),
    );
    assert_eq!(show(&tail), "m - (n - m)");
    let blocks = Formula::binary(FormulaOp::CeilDiv, sum, Formula::int(128));
    assert_eq!(show(&blocks), "ceil_div(m + n, 128)");
    let given = Formula::unary(FormulaOp::Not, Formula(vec![Term::Given(1)]));
    let both = Formula::binary(
        FormulaOp::And,
        given,
        Formula::binary(FormulaOp::Lt, Formula(vec![Term::Scalar(0)]), n),
    );
    assert_eq!(show(&both), "!given(bias) && s < n");
}
