//! The signature of an instance: parameters, fields of variants among them, and the dimensions that they share.

use super::*;

/// A parameter that the runtime passes: declared so, or the field of a variant.
struct Slot<'a> {
    name: String,
    /// Which of the optional parameters it is given or left out with: itself, or the variant whose field it is.
    group: Option<usize>,
    ty: &'a ast::Type,
    default: Option<&'a ast::Expr>,
    /// The variant whose field it is: its compile-time parameters are in scope.
    variant: Option<Rc<VariantType<'a>>>,
    span: Span,
}

/// The value of a parameter, over slots.
enum Tree<'a> {
    Slot(usize),
    Variant(Rc<VariantType<'a>>, Vec<Tree<'a>>),
    /// A variant that is given or left out as that group of slots.
    Optional(Box<Tree<'a>>, usize),
}

/// What is declared of a parameter: whether it is optional, the group that it is of already, its type, default and place.
type Declared<'a> = (
    bool,
    Option<usize>,
    &'a ast::Type,
    Option<&'a ast::Expr>,
    Span,
);

fn next_group(slots: &[Slot<'_>]) -> usize {
    let last = slots.iter().filter_map(|s| s.group).max();
    last.map_or(0, |g| g + 1)
}

impl<'a> Maker<'_, 'a> {
    /// Fills the signature and binds parameters and dimensions. Gives for each parameter
    /// which optional one it belongs to, if any; `given` says of these which a launch gives.
    pub(super) fn parameters(
        &mut self,
        signature: &'a ast::Signature,
        given: Option<&[bool]>,
    ) -> Eval<Vec<Option<usize>>> {
        let mut slots: Vec<Slot<'a>> = Vec::new();
        let mut trees: Vec<(&'a ast::Param, Tree<'a>)> = Vec::new();
        for param in &signature.params {
            if let Some((first, _)) = trees.iter().find(|(p, _)| p.name.name == param.name.name) {
                let first = first.span;
                return self.ev.fail(
                    Diagnostic::error(
                        codes::E0103,
                        param.name.span,
                        format!("`{}` is declared twice", param.name.name),
                    )
                    .label(first, "first here"),
                );
            }
            if self.ev.local(&param.name.name).is_some() {
                return self.ev.error(
                    codes::E0103,
                    param.name.span,
                    format!("`{}` is a compile-time parameter already", param.name.name),
                );
            }
            let Some(ty) = &param.ty else {
                return self.ev.fail(
                    Diagnostic::error(
                        codes::E0503,
                        param.span,
                        format!(
                            "the parameter `{}` of a kernel needs a type",
                            param.name.name
                        ),
                    )
                    .help("write a view, as `x: view<f32>[n]`, or a scalar, as `s: f32`"),
                );
            };
            let tree = self.slots(
                param.name.name.clone(),
                (param.optional, None, ty, param.default.as_ref(), param.span),
                None,
                &mut slots,
            )?;
            trees.push((param, tree));
        }
        // Integer scalars may stand in extents, so they are known first.
        let mut kinds: Vec<Option<ParamKind>> = Vec::new();
        for slot in &slots {
            kinds.push(match &slot.ty.kind {
                ast::TypeKind::Path { .. } => Some(self.scalar(slot)?),
                _ => None,
            });
        }
        let placeholder = ParamKind::Scalar {
            dtype: DType::Bool,
            default: None,
        };
        self.ev.signature.params = slots
            .iter()
            .zip(&kinds)
            .map(|(slot, kind)| Param {
                name: slot.name.clone(),
                optional: slot.group.is_some(),
                kind: kind.clone().unwrap_or(placeholder.clone()),
            })
            .collect();
        for (i, (slot, kind)) in slots.iter().zip(&kinds).enumerate() {
            if kind.is_some() && slot.variant.is_none() {
                self.bind(
                    &slot.name,
                    Value::Symbol(Symbol::Param(i as u32)),
                    slot.span,
                );
            }
        }
        let mut values = Vec::new();
        for (i, (slot, kind)) in slots.iter().zip(kinds).enumerate() {
            let value = match kind {
                Some(_) => Value::Symbol(Symbol::Param(i as u32)),
                None => {
                    let (param, value) = self.view(slot, i as u32)?;
                    self.ev.signature.params[i].kind = ParamKind::View(param);
                    Value::View(Rc::new(value))
                }
            };
            values.push(value);
        }
        self.check_bound(&slots)?;
        for (i, dim) in self.ev.signature.dims.clone().into_iter().enumerate() {
            if self.ev.local(&dim).is_none() {
                self.bind(
                    &dim,
                    Value::Symbol(Symbol::Dim(i as u32)),
                    self.kernel.name.span,
                );
            }
        }
        let absent = |group: usize| given.is_some_and(|g| !g[group]);
        for (slot, value) in slots.iter().zip(&mut values) {
            if slot.group.is_some_and(absent) {
                *value = Value::Absent(Rc::from(slot.name.as_str()));
            }
        }
        for (param, tree) in trees {
            let value = match &tree {
                Tree::Optional(_, group) if absent(*group) => {
                    Value::Absent(Rc::from(param.name.name.as_str()))
                }
                tree => tree.value(&values),
            };
            self.bind(&param.name.name, value, param.name.span);
        }
        Ok(slots.iter().map(|slot| slot.group).collect())
    }

    pub(super) fn bind(&mut self, name: &str, value: Value<'a>, span: Span) {
        let binding = Binding {
            value,
            mutable: false,
            span,
        };
        let scopes = &mut self.ev.frame().scopes;
        scopes
            .last_mut()
            .expect("a frame has a scope")
            .insert(name.to_owned(), binding);
    }

    /// Takes a parameter apart into what the runtime passes.
    fn slots(
        &mut self,
        name: String,
        (optional, group, ty, default, span): Declared<'a>,
        within: Option<&Rc<VariantType<'a>>>,
        slots: &mut Vec<Slot<'a>>,
    ) -> Eval<Tree<'a>> {
        if let ast::TypeKind::Path { path, cargs } = &ty.kind
            && path
                .as_ident()
                .is_none_or(|i| i.name != "int" || self.ev.local("int").is_some())
        {
            let value = self.in_variant(within, |ev| {
                let value = ev.path(path)?;
                match value {
                    Value::Type(TypeValue::VariantItem(module, item)) => {
                        let cargs = ev.cargs(cargs)?;
                        Ok(Value::Type(TypeValue::Variant(
                            ev.variant_type(module, item, cargs, ty.span)?,
                        )))
                    }
                    value => Ok(value),
                }
            })?;
            match value {
                Value::DType(_) => {}
                Value::Type(TypeValue::Variant(variant)) => {
                    let group = group.or_else(|| optional.then(|| next_group(slots)));
                    let mut fields = Vec::new();
                    for field in &variant.item.fields {
                        let Some(ty) = &field.ty else {
                            return self.ev.error(
                                codes::E0503,
                                field.span,
                                format!(
                                    "the field `{}` needs a type, since a kernel takes it",
                                    field.name.name
                                ),
                            );
                        };
                        let inner = format!("{name}.{}", field.name.name);
                        if field.optional && group.is_some() {
                            return self.ev.error(
                                codes::E0503,
                                field.span,
                                "a variant that may be left out has no field that may be",
                            );
                        }
                        let field = (field.optional, group, ty, None, field.span);
                        fields.push(self.slots(inner, field, Some(&variant), slots)?);
                    }
                    let tree = Tree::Variant(variant, fields);
                    return Ok(match group {
                        Some(group) if optional => Tree::Optional(Box::new(tree), group),
                        _ => tree,
                    });
                }
                other => {
                    let what = self.ev.describe(&other);
                    return self.ev.fail(Diagnostic::error(
                        codes::E0503,
                        ty.span,
                        format!("a kernel takes views, scalars and variants, and this is {what}"),
                    ));
                }
            }
        }
        match &ty.kind {
            ast::TypeKind::Path { .. } | ast::TypeKind::View { .. } => {}
            _ => {
                return self.ev.fail(
                    Diagnostic::error(
                        codes::E0503,
                        ty.span,
                        "a kernel takes views, scalars and variants",
                    )
                    .help("tiles are made in the body, from slices of views"),
                );
            }
        }
        let group = group.or_else(|| optional.then(|| next_group(slots)));
        slots.push(Slot {
            name,
            group,
            ty,
            default,
            variant: within.cloned(),
            span,
        });
        Ok(Tree::Slot(slots.len() - 1))
    }

    /// Evaluates where a variant's compile-time parameters are in scope.
    fn in_variant<T>(
        &mut self,
        variant: Option<&Rc<VariantType<'a>>>,
        f: impl FnOnce(&mut Evaluator<'a>) -> Eval<T>,
    ) -> Eval<T> {
        let Some(variant) = variant else {
            return f(self.ev);
        };
        self.ev.frames.push(Frame::new(variant.module));
        for (cparam, value) in variant.item.cparams.iter().zip(&variant.args) {
            self.ev.bind(&cparam.name, value.clone(), false);
        }
        let result = f(self.ev);
        self.ev.frames.pop();
        result
    }

    fn scalar(&mut self, slot: &Slot<'a>) -> Eval<ParamKind> {
        let ast::TypeKind::Path { path, .. } = &slot.ty.kind else {
            return Err(Told);
        };
        let dtype = match path.as_ident().map(|i| i.name.as_str()) {
            Some("int") if self.ev.local("int").is_none() => DType::I64,
            _ => self.in_variant(slot.variant.as_ref(), |ev| ev.value_type(path))?,
        };
        if dtype.bits() < 8
            || matches!(
                dtype,
                DType::Ue8m0 | DType::Ue4m3 | DType::E4m3 | DType::E5m2 | DType::Tf32
            )
        {
            return self.ev.fail(
                Diagnostic::error(
                    codes::E0503,
                    slot.ty.span,
                    format!("a scalar parameter cannot be of `{dtype}`"),
                )
                .help("take an `f32`"),
            );
        }
        let default = match slot.default {
            None => None,
            Some(expr) => {
                let value = self.in_variant(slot.variant.as_ref(), |ev| {
                    let value = ev.expr(expr)?;
                    ev.scalar_as(value, dtype, expr.span)
                })?;
                match value {
                    Value::Int(v) => Some(v as f64),
                    Value::Float(v, _) if v.is_finite() => Some(v),
                    Value::Bool(v) => Some(f64::from(u8::from(v))),
                    _ => {
                        return self.ev.error(
                            codes::E0301,
                            expr.span,
                            format!("the default of `{}` must be a finite constant", slot.name),
                        );
                    }
                }
            }
        };
        Ok(ParamKind::Scalar { dtype, default })
    }

    fn view(&mut self, slot: &Slot<'a>, index: u32) -> Eval<(ViewParam, ViewValue)> {
        let ast::TypeKind::View {
            mode,
            elem,
            dims,
            layout,
            facts,
        } = &slot.ty.kind
        else {
            return Err(Told);
        };
        if let Some(default) = slot.default {
            return self.ev.fail(
                Diagnostic::error(codes::E0503, default.span, "a view has no default")
                    .help(format!("to make it optional, write `{}?: …`", slot.name)),
            );
        }
        if dims.is_empty() || dims.len() > 8 {
            return self.ev.error(
                codes::E0503,
                slot.ty.span,
                format!(
                    "a view has from 1 to 8 dimensions, and `{}` has {}",
                    slot.name,
                    dims.len()
                ),
            );
        }
        let dtype = self.in_variant(slot.variant.as_ref(), |ev| ev.elem_type(elem))?;
        let mut extents = Vec::new();
        let mut strided = false;
        for (i, dim) in dims.iter().enumerate() {
            let formula = self.in_variant(slot.variant.as_ref(), |ev| {
                ev.host(&dim.expr, true, codes::E0208, "an extent")
            })?;
            if let Some(extent) = formula.as_int()
                && extent < 0
            {
                return self.ev.error(
                    codes::E0208,
                    dim.expr.span,
                    format!("an extent is not negative, and this is {extent}"),
                );
            }
            extents.push(formula);
            strided |= dim.strided && i + 1 == dims.len();
        }
        let mut known = ViewFacts::default();
        for fact in facts {
            match fact {
                ast::ViewFact::Sorted(_) => known.sorted = true,
                ast::ViewFact::Distinct(_) => known.distinct = true,
                ast::ViewFact::Align(bytes, span) => {
                    match u32::try_from(*bytes) {
                        Ok(bytes) if bytes.is_power_of_two() && bytes <= 1 << 16 => {
                            known.align = Some(bytes)
                        }
                        _ => {
                            return self.ev.error(
                            codes::E0403,
                            *span,
                            format!("an alignment is a power of two up to 65536, and this is {bytes}"),
                        );
                        }
                    }
                }
            }
        }
        if (known.sorted || known.distinct) && !dtype.is_int() {
            return self.ev.error(
                codes::E0403,
                slot.ty.span,
                format!(
                    "`sorted` and `distinct` are of views of integers, and `{}` is of `{dtype}`",
                    slot.name
                ),
            );
        }
        let access = match mode {
            ast::ViewMode::Read => Access::Read,
            ast::ViewMode::Out => Access::Write,
            ast::ViewMode::Mut => Access::ReadWrite,
        };
        let mut value = ViewValue {
            name: slot.name.clone(),
            elem: dtype,
            access,
            extents: extents.iter().cloned().map(Extent::Launch).collect(),
            origin: Origin::Param(index),
            span: slot.span,
        };
        if let Some(path) = layout {
            let variant = slot.variant.clone();
            let (module, item) =
                self.in_variant(variant.as_ref(), |ev| ev.layout_item(path, extents.len()))?;
            let size = self.ev.layout_size((module, item), &extents, path.span)?;
            let flat = ViewValue {
                extents: vec![Extent::Launch(size.clone())],
                ..value.clone()
            };
            value.origin = Origin::Layout {
                base: Rc::new(flat),
                module,
                item,
            };
            extents = vec![size];
            strided = false;
        }
        let param = ViewParam {
            dtype,
            access,
            extents,
            strided,
            facts: known,
        };
        Ok((param, value))
    }

    /// Every dimension must follow from the shape of some argument.
    fn check_bound(&mut self, slots: &[Slot<'a>]) -> Eval<()> {
        let mut bound = vec![false; self.ev.signature.dims.len()];
        let mut first: Vec<Option<Span>> = vec![None; bound.len()];
        for (param, slot) in self.ev.signature.params.iter().zip(slots) {
            let ParamKind::View(view) = &param.kind else {
                continue;
            };
            for extent in &view.extents {
                let solved = match extent.0[..] {
                    [Term::Dim(d)] => Some(d),
                    [
                        Term::Dim(d),
                        Term::Int(_),
                        Term::Op(FormulaOp::Add | FormulaOp::Sub),
                    ]
                    | [Term::Int(_), Term::Dim(d), Term::Op(FormulaOp::Add)] => Some(d),
                    [Term::Dim(d), Term::Int(c), Term::Op(FormulaOp::Mul)]
                    | [Term::Int(c), Term::Dim(d), Term::Op(FormulaOp::Mul)]
                        if c != 0 =>
                    {
                        Some(d)
                    }
                    _ => None,
                };
                if let Some(d) = solved {
                    bound[d as usize] = true;
                }
                for term in &extent.0 {
                    if let Term::Dim(d) = *term {
                        first[d as usize].get_or_insert(slot.span);
                    }
                }
            }
        }
        if let Some(d) = bound.iter().position(|b| !b) {
            let name = self.ev.signature.dims[d].clone();
            let span = first[d].unwrap_or(self.kernel.name.span);
            return self.ev.fail(
                Diagnostic::error(codes::E0208, span, format!("no argument's shape says what `{name}` is"))
                    .note("a dimension is bound where it stands alone in a view's extents, or as `name + c`, `name - c` or `name * c`")
                    .help(format!("add a parameter that says it: `{name}: int`")),
            );
        }
        Ok(())
    }
}

impl<'a> Tree<'a> {
    fn value(&self, slots: &[Value<'a>]) -> Value<'a> {
        match self {
            Tree::Slot(i) => slots[*i].clone(),
            Tree::Optional(tree, _) => tree.value(slots),
            Tree::Variant(ty, fields) => Value::Variant(Rc::new(VariantValue {
                ty: ty.clone(),
                fields: fields.iter().map(|f| f.value(slots)).collect(),
            })),
        }
    }
}
