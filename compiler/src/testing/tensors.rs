//! The functions that make a test's tensors.

use tesserine_set::DType;

use super::random;
use crate::{
    diagnostics::{Diagnostic, codes},
    interp::{
        Data,
        floats::{from_int, round_to},
    },
    ir::{
        ValueId,
        tile::{OpKind, Type},
    },
    sema::{
        Eval,
        call::Argument,
        eval::{Evaluator, fit_int},
        value::Value,
    },
    span::Span,
};

/// Elements of one tensor of a test.
const MAX_ELEMENTS: u64 = 1 << 24;

/// A tensor's elements, made when they are needed: who only walks a test needs none.
pub struct Making(Box<dyn FnOnce() -> Data>);

impl Making {
    pub(super) fn new(make: impl FnOnce() -> Data + 'static) -> Making {
        Making(Box::new(make))
    }

    pub(super) fn make(self) -> Data {
        (self.0)()
    }
}

impl std::fmt::Debug for Making {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Making")
    }
}

/// The tensors that a test has made and that its values do not hold yet.
#[derive(Debug, Default)]
pub struct Tensors {
    pub(super) made: Vec<(ValueId, Making)>,
    /// Those that began `empty`.
    pub(super) empty: Vec<ValueId>,
}

/// The element type of a tile of what memory holds as `elem`.
pub(super) fn value_type(elem: DType) -> DType {
    match elem {
        DType::U1 => DType::Bool,
        DType::U4 => DType::U8,
        DType::I4 => DType::I8,
        elem => elem,
    }
}

impl<'a> Evaluator<'a> {
    /// `randn`, `uniform_ints`, `tensor` or `empty`.
    pub(crate) fn test_tensor(
        &mut self,
        name: &str,
        args: Vec<Argument<'a>>,
        span: Span,
    ) -> Eval<Value<'a>> {
        let names: &[&str] = match name {
            "randn" => &["T", "shape", "seed"],
            "uniform_ints" => &["T", "shape", "lo", "hi", "seed"],
            "tensor" => &["T", "values"],
            _ => &["T", "shape"],
        };
        let placed = self.place(name, names, args, span)?;
        let mut given = Vec::new();
        for (arg, parameter) in placed.into_iter().zip(names) {
            match arg {
                Some(arg) => given.push(arg),
                None if *parameter == "seed" => given.push(Argument {
                    name: None,
                    value: Value::Int(0),
                    span,
                }),
                None => {
                    return self.error(
                        codes::E0107,
                        span,
                        format!("`{name}` needs a value for `{parameter}`"),
                    );
                }
            }
        }
        let elem = match &given[0].value {
            Value::DType(t) => *t,
            other => {
                let what = self.describe(other);
                return self.error(
                    codes::E0108,
                    given[0].span,
                    format!("`{name}` begins with an element type, and this is {what}"),
                );
            }
        };
        match name {
            "randn" => {
                if !elem.is_float() {
                    return self.fail(
                        Diagnostic::error(
                            codes::E0102,
                            given[0].span,
                            format!("`randn` makes floats, and `{elem}` is none"),
                        )
                        .help("for integers, write `uniform_ints(T, shape, lo, hi, seed = n)`"),
                    );
                }
                let shape = self.tensor_shape(&given[1])?;
                let seed = self.as_const_int(&given[2].value, given[2].span, "a seed")?;
                let n = elements(&shape);
                let data = Making::new(move || {
                    let values = (0..n).map(|i| round_to(elem, random::normal(seed as u64, i)));
                    Data::Float(values.collect())
                });
                Ok(self.made(elem, &shape, data, span))
            }
            "uniform_ints" => {
                let shape = self.tensor_shape(&given[1])?;
                let lo = self.as_const_int(&given[2].value, given[2].span, "a bound")?;
                let hi = self.as_const_int(&given[3].value, given[3].span, "a bound")?;
                let seed = self.as_const_int(&given[4].value, given[4].span, "a seed")?;
                if lo >= hi {
                    return self.error(
                        codes::E0813,
                        given[3].span,
                        format!("there is no integer from {lo} on and below {hi}"),
                    );
                }
                let held = value_type(elem);
                for bound in [lo, hi - 1] {
                    let fits = match elem {
                        DType::Bool | DType::U1 => (0..=1).contains(&bound),
                        t if t.is_int() => fit_int(bound.into(), t).is_some(),
                        _ => true,
                    };
                    if !fits {
                        return self.error(
                            codes::E0306,
                            span,
                            format!("{bound} does not fit in `{elem}`"),
                        );
                    }
                }
                let n = elements(&shape);
                let data = Making::new(move || {
                    let values = (0..n).map(|i| random::within(seed as u64, i, lo, hi));
                    if held == DType::Bool {
                        Data::Bool(values.map(|v| v != 0).collect())
                    } else if held.is_float() {
                        Data::Float(values.map(|v| from_int(held, v.into())).collect())
                    } else {
                        Data::Int(values.collect())
                    }
                });
                Ok(self.made(held, &shape, data, span))
            }
            "tensor" => {
                let mut leaves = Vec::new();
                let mut shape = Vec::new();
                self.nested_list(&given[1].value, 0, given[1].span, &mut shape, &mut leaves)?;
                self.listed(elem, &shape, &leaves, given[1].span)
            }
            _ => {
                let shape = self.tensor_shape(&given[1])?;
                let n = elements(&shape) as usize;
                let held = value_type(elem);
                // What nobody stores should show: floats are NaN, integers an odd pattern.
                let data = Making::new(move || {
                    if held == DType::Bool {
                        Data::Bool(vec![true; n])
                    } else if held.is_float() {
                        let canary = round_to(held, f64::NAN);
                        Data::Float(vec![canary; n])
                    } else {
                        let bits = elem.bits();
                        let pattern = 0xA5A5_A5A5_A5A5_A5A5u64 as i64 as i128;
                        let canary = crate::sema::eval::wrap_int(pattern, elem);
                        debug_assert!(bits >= 4);
                        Data::Int(vec![canary as i64; n])
                    }
                });
                let value = self.made(held, &shape, data, span);
                if let (Value::Run(id), Some(tensors)) = (&value, &mut self.tensors) {
                    tensors.empty.push(*id);
                }
                Ok(value)
            }
        }
    }

    /// A value of a test that has these elements.
    pub(super) fn made(
        &mut self,
        elem: DType,
        shape: &[u32],
        data: Making,
        span: Span,
    ) -> Value<'a> {
        let ty = if shape.is_empty() {
            Type::Scalar(elem)
        } else {
            Type::tile(elem, shape)
        };
        let root = self.body.root;
        let op = self.body.append(
            root,
            OpKind::Param(0),
            Vec::new(),
            vec![ty],
            Vec::new(),
            span,
        );
        let id = self.body.ops[op].results[0];
        if let Some(tensors) = &mut self.tensors {
            tensors.made.push((id, data));
        }
        Value::Run(id)
    }

    /// Extents of a tensor: 0 is one of them.
    fn tensor_shape(&mut self, arg: &Argument<'a>) -> Eval<Vec<u32>> {
        let items: Vec<Value<'a>> = match &arg.value {
            Value::List(items) | Value::Tuple(items) => items.to_vec(),
            value @ Value::Int(_) => vec![value.clone()],
            other => {
                let what = self.describe(other);
                return self.fail(
                    Diagnostic::error(
                        codes::E0813,
                        arg.span,
                        format!("a shape is a list of constant integers, and this is {what}"),
                    )
                    .help("write `[37, 64]`"),
                );
            }
        };
        let mut shape = Vec::new();
        for item in &items {
            let extent = self.as_const_int(item, arg.span, "an extent")?;
            match u32::try_from(extent) {
                Ok(extent) => shape.push(extent),
                Err(_) => {
                    return self.error(
                        codes::E0813,
                        arg.span,
                        format!("an extent is from 0 to {}, and this is {extent}", u32::MAX),
                    );
                }
            }
        }
        let n = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d.into()));
        if n.is_none_or(|n| n > MAX_ELEMENTS) || shape.is_empty() || shape.len() > 8 {
            return self.error(
                codes::E0813,
                arg.span,
                format!(
                    "a test's tensor has from 1 to 8 dimensions and at most {MAX_ELEMENTS} elements"
                ),
            );
        }
        Ok(shape)
    }

    /// Takes nested lists apart: `[[1, 2], [3, 4]]`.
    fn nested_list(
        &mut self,
        value: &Value<'a>,
        depth: usize,
        span: Span,
        shape: &mut Vec<u32>,
        leaves: &mut Vec<Value<'a>>,
    ) -> Eval<()> {
        let Value::List(items) = value else {
            if depth == shape.len() && depth > 0 {
                leaves.push(value.clone());
                return Ok(());
            }
            let what = self.describe(value);
            return self.error(
                codes::E0813,
                span,
                format!("a tensor's values are lists of one depth, as `[[1, 2], [3, 4]]`, and here is {what}"),
            );
        };
        let n = items.len() as u32;
        // The first list of each depth says its extent.
        if depth == shape.len() && leaves.is_empty() && depth < 8 {
            shape.push(n);
        } else if shape.get(depth) != Some(&n) {
            return self.error(
                codes::E0813,
                span,
                "a tensor's lists of one depth are equally long",
            );
        }
        for item in items.iter() {
            self.nested_list(item, depth + 1, span, shape, leaves)?;
        }
        Ok(())
    }

    fn listed(
        &mut self,
        elem: DType,
        shape: &[u32],
        leaves: &[Value<'a>],
        span: Span,
    ) -> Eval<Value<'a>> {
        let held = value_type(elem);
        let mut floats = Vec::new();
        let mut ints = Vec::new();
        let mut bools = Vec::new();
        for leaf in leaves {
            match leaf {
                Value::Bool(v) if held == DType::Bool => bools.push(*v),
                Value::Int(v) if elem == DType::U1 && (0..=1).contains(v) => bools.push(*v != 0),
                Value::Int(v) if held.is_float() => floats.push(from_int(held, *v)),
                Value::Float(v, _) if held.is_float() => floats.push(round_to(held, *v)),
                Value::Int(v) if held.is_int() => match fit_int(*v, elem) {
                    Some(v) => ints.push(v),
                    None => {
                        return self.error(
                            codes::E0306,
                            span,
                            format!("{v} does not fit in `{elem}`"),
                        );
                    }
                },
                other => {
                    let what = self.describe(other);
                    return self.error(
                        codes::E0813,
                        span,
                        format!("the values are constants of `{elem}`, and here is {what}"),
                    );
                }
            }
        }
        let data = if held == DType::Bool {
            Data::Bool(bools)
        } else if held.is_float() {
            Data::Float(floats)
        } else {
            Data::Int(ints)
        };
        Ok(self.made(held, shape, Making::new(move || data), span))
    }
}

fn elements(shape: &[u32]) -> u64 {
    shape.iter().map(|&d| u64::from(d)).product()
}
