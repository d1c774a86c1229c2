//! `launch` in a test: arguments, the interpreter, the device.

use tesserine_set::{Access, DType, ParamKind, ScalarValue, Signature};

use super::{
    Launch, What,
    compare::{Tolerance, compare, neighbours},
    run::{Expected, Mode, Runner, differing},
    tensors::value_type,
};
use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    interp::{self, Arg, Args, Data, Tensor},
    ir::{
        ValueId,
        tile::{OpKind, RoleOp, Type},
    },
    sema::{
        Eval, Module,
        call::CArgument,
        instance::instantiate,
        instantiate_op, is_unordered,
        modules::{Def, Program, nearest},
        value::{TypeValue, Value},
    },
    span::Span,
    syntax::ast,
};

/// What is passed for one parameter, before its signature is known.
struct Passed<'a> {
    /// The parameter, or a field of a variant by its dotted name.
    name: String,
    value: Value<'a>,
    span: Span,
}

/// A tensor that a launch may store to.
struct Slot {
    param: String,
    value: ValueId,
    access: Access,
}

impl<'a> Runner<'a, '_> {
    /// `launch kernel<…>(…);`
    pub fn launch(
        &mut self,
        kernel: &'a ast::Path,
        cargs: &'a [ast::CArg],
        args: &'a [ast::Arg],
        span: Span,
    ) -> Eval<()> {
        let expected = self.expected.take();
        let program = self.ev.program;
        let found = kernel
            .as_ident()
            .and_then(|name| Some((name, launchable(program, self.module, &name.name)?)));
        let Some((name, params)) = found else {
            let text = self.ev.quote(kernel.span);
            let mut diagnostic = Diagnostic::error(
                codes::E0502,
                kernel.span,
                format!("{text} is no kernel or op that is known here"),
            );
            let names = program
                .names(self.module)
                .filter(|n| launchable(program, self.module, n).is_some());
            if let Some(near) = nearest(text.trim_matches('`'), names) {
                diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
            }
            return self.ev.fail(diagnostic);
        };
        let cargs = self.ev.cargs(cargs)?;
        let instance = self.instance_text(&name.name, &cargs, span)?;
        let mut passed = Vec::new();
        let evaluated = self.ev.arguments_of(args)?;
        let names: Vec<&str> = params.iter().map(|p| p.name.name.as_str()).collect();
        let placed = self.ev.place(&name.name, &names, evaluated, span)?;
        for (param, arg) in names.into_iter().zip(placed) {
            if let Some(arg) = arg {
                let arg = self.known_argument(arg)?;
                flatten(param.to_owned(), arg.value, arg.span, &mut passed);
            }
        }
        if !self.launched.contains(&instance) {
            self.launched.push(instance.clone());
        }
        if self.mode == Mode::Walk {
            return Ok(());
        }
        self.settle()?;
        let result = self.execute(&instance, passed, span);
        self.judge(result, expected, &instance, span)
    }

    /// Compares how a launch ended with how it should have.
    fn judge(
        &mut self,
        result: Result<(), Diagnostics>,
        expected: Option<Expected>,
        instance: &str,
        span: Span,
    ) -> Eval<()> {
        match (result, expected) {
            (Ok(()), None) => Ok(()),
            (Ok(()), Some(expected)) => self.ev.fail(
                Diagnostic::error(
                    codes::E0811,
                    span,
                    format!("this launch succeeds, and {} is expected", expected.code),
                )
                .label(expected.span, "expected here"),
            ),
            (Err(found), Some(expected)) => {
                let fits = |d: &Diagnostic| {
                    let said = || {
                        let texts = std::iter::once(&d.title).chain(&d.notes).chain(&d.help);
                        expected
                            .text
                            .as_deref()
                            .is_none_or(|text| texts.into_iter().any(|t| t.contains(text)))
                    };
                    d.code.to_string().eq_ignore_ascii_case(&expected.code) && said()
                };
                if found.iter().any(fits) {
                    return Ok(());
                }
                let mut diagnostic = Diagnostic::error(
                    codes::E0811,
                    span,
                    format!("this launch fails otherwise than with {}", expected.code),
                )
                .label(expected.span, "expected here");
                for one in found.iter() {
                    diagnostic = diagnostic.note(format!("{}: {}", one.code, one.title));
                }
                self.ev.fail(diagnostic)
            }
            (Err(found), None) => {
                // A kernel that does not exist for this target leaves its tests out.
                if !found.is_empty() && found.iter().all(|d| d.code == codes::E0605) {
                    self.ignored = Some(format!(
                        "`{instance}` is not for {}",
                        self.options.target.name()
                    ));
                    return Err(crate::sema::Told);
                }
                let mut told = crate::sema::Told;
                for mut diagnostic in found {
                    if diagnostic.primary.0 != span && span.is_some() {
                        diagnostic.labels.push((span, "in this launch".into()));
                    }
                    told = self.ev.report(diagnostic);
                }
                Err(told)
            }
        }
    }

    /// The instance as the command line would name it.
    fn instance_text(&mut self, kernel: &str, cargs: &[CArgument<'a>], span: Span) -> Eval<String> {
        let mut parts = Vec::new();
        for (name, value, at) in cargs {
            let written = match value {
                Value::Int(_) | Value::Float(..) | Value::Bool(_) | Value::DType(_) => true,
                Value::Type(TypeValue::Variant(_)) | Value::Builtin(_) => true,
                Value::Fn(f) => f.variant.is_none() && f.cargs.is_empty(),
                _ => false,
            };
            if !written {
                let what = self.ev.describe(value);
                let at = if at.is_some() { *at } else { span };
                return self.ev.error(
                    codes::E0813,
                    at,
                    format!("the name of an instance holds numbers, types, functions and variants, and this is {what}"),
                );
            }
            parts.push(match name {
                Some(name) => format!("{} = {value}", name.name),
                None => value.to_string(),
            });
        }
        Ok(if parts.is_empty() {
            kernel.to_owned()
        } else {
            format!("{kernel}<{}>", parts.join(", "))
        })
    }

    /// Makes the instance, runs it, and gives what it stored to the test's tensors.
    fn execute(
        &mut self,
        name: &str,
        passed: Vec<Passed<'a>>,
        span: Span,
    ) -> Result<(), Diagnostics> {
        let one = |diagnostic: Diagnostic| {
            let mut all = Diagnostics::default();
            all.push(diagnostic);
            all
        };
        let target = self.options.target;
        let program = self.ev.program;
        let (instance, op);
        let what = if crate::sema::is_op(program, self.module, name) {
            op = instantiate_op(program, self.module, name, target)?;
            What::Op(&op)
        } else {
            instance = instantiate(program, self.module, name, target)?;
            if instance.bodies.is_empty() {
                return Ok(());
            }
            What::Kernel(&instance)
        };
        let (mut args, slots) = self.bind(what.signature(), passed).map_err(one)?;
        let before = self.options.device.map(|_| args.clone());
        let (ran, at) = match what {
            What::Kernel(instance) => (
                interp::launch(instance, &mut args).map(|_| ()),
                instance.bodies[0].header.span,
            ),
            What::Op(op) => (interp::run_op(op, &mut args).map(|_| ()), op.span),
        };
        ran.map_err(|error| one(error.diagnostic(at)))?;
        if let (Some(device), Some(mut on_device)) = (self.options.device, before) {
            let launch = Launch {
                module: self.module,
                name,
                what,
                target,
            };
            device.launch(&launch, &mut on_device).map_err(|error| {
                one(Diagnostic::error(
                    codes::E0812,
                    span,
                    format!("`{name}` does not run on the device: {error}"),
                ))
            })?;
            agree(what, &slots, &args, &on_device, span).map_err(one)?;
            // What the device wrote is what the expectations are about; what was written, the interpreter knows.
            for slot in &slots {
                if let (Some(Arg::Tensor(new)), Some(Arg::Tensor(old))) =
                    (on_device.get_mut(&slot.param), args.get(&slot.param))
                {
                    new.written.clone_from(&old.written);
                }
            }
            args = on_device;
        }
        for slot in slots {
            if slot.access == Access::Read {
                continue;
            }
            if let Some(Arg::Tensor(tensor)) = args.shift_remove(&slot.param) {
                self.now.set(&self.ev.body, slot.value, tensor.to_data());
                match tensor.written {
                    Some(written) if self.written.contains_key(&slot.value) => {
                        self.written.insert(slot.value, written);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Arguments as the interpreter takes them, and which values of the test they are.
    fn bind(
        &mut self,
        signature: &Signature,
        passed: Vec<Passed<'a>>,
    ) -> Result<(Args, Vec<Slot>), Diagnostic> {
        let mut args = Args::default();
        let mut slots: Vec<Slot> = Vec::new();
        if let Some(tensors) = &mut self.ev.tensors {
            for id in tensors.empty.drain(..) {
                self.written.insert(id, Vec::new());
            }
        }
        for Passed {
            name,
            value,
            span: at,
        } in passed
        {
            let wrong =
                |what: &str| Diagnostic::error(codes::E0813, at, format!("`{name}` is {what}"));
            let param = signature.param(&name).map(|i| &signature.params[i].kind);
            let arg = match (&value, param) {
                (Value::Int(v), _) => match i64::try_from(*v) {
                    Ok(v) => Arg::Scalar(ScalarValue::Int(v)),
                    Err(_) => return Err(wrong("a scalar, and this leaves the 64-bit range")),
                },
                (Value::Float(v, _), _) => Arg::Scalar(ScalarValue::Float(*v)),
                (Value::Bool(v), _) => Arg::Scalar(ScalarValue::Int((*v).into())),
                (Value::Run(id), Some(ParamKind::View(view))) => {
                    let Type::Tile(tile) = self.ev.body.ty(*id).clone() else {
                        return Err(wrong("a view, and this is a scalar"));
                    };
                    let Some(data) = self.now.get(*id) else {
                        return Err(wrong("a view, and this could not be computed"));
                    };
                    // Packed types are values of wider ones.
                    let dtype = if value_type(view.dtype) == tile.elem {
                        view.dtype
                    } else {
                        tile.elem
                    };
                    for slot in &slots {
                        if slot.value == *id
                            && (slot.access != Access::Read || view.access != Access::Read)
                        {
                            return Err(wrong(&format!(
                                "the same tensor as `{}`, and one of them is stored to",
                                slot.param
                            )));
                        }
                    }
                    let shape: Vec<usize> = tile.shape.iter().map(|&d| d as usize).collect();
                    let mut tensor = match Tensor::from_data(dtype, shape, &data) {
                        Ok(tensor) => tensor,
                        Err(error) => return Err(wrong(&error.to_string())),
                    };
                    if let Some(written) = self.written.get(id)
                        && !written.is_empty()
                    {
                        tensor.written = Some(written.clone());
                    }
                    slots.push(Slot {
                        param: name.clone(),
                        value: *id,
                        access: view.access,
                    });
                    Arg::Tensor(tensor)
                }
                (Value::Run(_), Some(_)) => return Err(wrong("a scalar, and a tensor is given")),
                (Value::Run(_), None) => {
                    return Err(Diagnostic::error(
                        codes::E0107,
                        at,
                        format!("this instance has no parameter `{name}`"),
                    ));
                }
                (Value::Absent(_), _) => continue,
                (other, _) => {
                    return Err(wrong(&format!(
                        "given {}, which no launch takes",
                        self.ev.describe(other)
                    )));
                }
            };
            args.insert(name, arg);
        }
        Ok((args, slots))
    }
}

/// The parameters of a kernel or op of that name.
fn launchable<'a>(program: &'a Program, module: Module, name: &str) -> Option<&'a [ast::Param]> {
    let Def::Item(owner, index) = program.lookup(module, name)? else {
        return None;
    };
    match &program.item(owner, index).kind {
        ast::ItemKind::Kernel(kernel) => Some(&kernel.signature.as_ref()?.params),
        ast::ItemKind::Op(op) => Some(&op.params),
        _ => None,
    }
}

/// Takes a variant apart into the parameters that the runtime passes.
fn flatten<'a>(name: String, value: Value<'a>, span: Span, out: &mut Vec<Passed<'a>>) {
    match &value {
        Value::Variant(v) => {
            for (field, value) in v.ty.item.fields.iter().zip(&v.fields) {
                let name = format!("{name}.{}", field.name.name);
                flatten(name, value.clone(), span, out);
            }
        }
        // A variant named without fields.
        Value::Type(TypeValue::Variant(v)) if v.item.fields.is_empty() => {}
        _ => out.push(Passed { name, value, span }),
    }
}

/// Whether a device wrote what the interpreter wrote.
fn agree(
    what: What<'_>,
    slots: &[Slot],
    expected: &Args,
    found: &Args,
    span: Span,
) -> Result<(), Diagnostic> {
    // What depends on the order of blocks may differ.
    if what.bodies().any(is_unordered) {
        return Ok(());
    }
    let stored = |slot: &&Slot| slot.access != Access::Read;
    let tensor = |args: &Args, name: &str| match args.get(name) {
        Some(Arg::Tensor(tensor)) => Some((tensor.dtype, tensor.to_data(), tensor.shape.clone())),
        _ => None,
    };
    let mut types: Vec<DType> = Vec::new();
    let mut products = false;
    for body in what.bodies() {
        for op in body.body.ops.values() {
            if matches!(op.kind, OpKind::Dot | OpKind::Role(RoleOp::Mma)) {
                products = true;
                types.push(body.body.ty(op.operands[0]).elem());
            }
        }
    }
    for slot in slots.iter().filter(stored) {
        types.extend(tensor(expected, &slot.param).map(|(t, ..)| t));
    }
    let tolerance = Tolerance::of(types);
    for slot in slots.iter().filter(stored) {
        let (Some((dtype, wanted, shape)), Some((_, got, _))) =
            (tensor(expected, &slot.param), tensor(found, &slot.param))
        else {
            continue;
        };
        // The error of a product grows with the root of its summed squares, of which the size of its elements speaks.
        let scale = match &wanted {
            Data::Float(v) if products && !v.is_empty() => {
                let finite = v.iter().filter(|x| x.is_finite());
                let (n, sum) = finite.fold((0usize, 0.0), |(n, s), x| (n + 1, s + x * x));
                (sum / n.max(1) as f64).sqrt().max(1.0)
            }
            _ => 1.0,
        };
        let near = |a: f64, b: f64| {
            if dtype.is_float() && dtype.bits() < 16 {
                neighbours(dtype, a, b)
            } else {
                dtype.is_float() && (a - b).abs() <= tolerance.abs * scale + tolerance.rel * b.abs()
            }
        };
        if let Some(difference) = compare(&got, &wanted, near) {
            let shape: Vec<u32> = shape.iter().map(|&d| d as u32).collect();
            let name = format!("`{}`", slot.param);
            return Err(differing(
                codes::E0812,
                span,
                (&name, &shape),
                &difference,
                " by the interpreter",
            ));
        }
    }
    Ok(())
}
