//! What an expression evaluates to while a kernel is instantiated.

use std::{fmt, rc::Rc};

use tesserine_set::{Access, DType, Formula, ViewArg};

use super::{modules::Module, roles::ChannelValue};
use crate::{ir::ValueId, span::Span, syntax::ast};

/// A value at compile time: known, or the name of one at run time.
#[derive(Clone, Debug)]
pub(crate) enum Value<'a> {
    /// Stands for what could not be made; its error has been told.
    Error,
    Unit,
    /// A compile-time integer: takes the integer type that it meets.
    Int(i128),
    /// A compile-time float: of any type if it has none.
    Float(f64, Option<DType>),
    Bool(bool),
    Str(Rc<str>),
    DType(DType),
    /// `pad = any`.
    Any,
    /// A scalar or tile of the body.
    Run(ValueId),
    /// A scalar that the signature or the grid gives: emitted at its first use.
    Symbol(Symbol),
    View(Rc<ViewValue>),
    /// At the role level.
    Channel(Rc<ChannelValue>),
    /// In an `op`: what the host knows before the launches.
    Host(Rc<Host>),
    Tuple(Rc<[Value<'a>]>),
    List(Rc<[Value<'a>]>),
    Struct(Rc<StructValue<'a>>),
    Variant(Rc<VariantValue<'a>>),
    /// The name of a struct or variant, with its compile-time arguments.
    Type(TypeValue<'a>),
    Fn(FnValue<'a>),
    Builtin(&'static str),
    /// An optional parameter in a body that is for launches without it.
    Absent(Rc<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Symbol {
    Dim(u32),
    /// Scalar parameter `signature.params[i]`.
    Param(u32),
    Grid(u32),
}

/// A view: a parameter, or what is derived from another view. Nothing of a derived view is in the body but the scalars
/// that bound it.
#[derive(Clone, Debug)]
pub(crate) struct ViewValue {
    /// How the author calls it; of a derived view, what it is derived from.
    pub name: String,
    pub elem: DType,
    pub access: Access,
    pub extents: Vec<Extent>,
    pub origin: Origin,
    pub span: Span,
}

/// An integer of the body, perhaps known now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Num {
    Int(i64),
    Run(ValueId),
}

/// How long a dimension of a view is.
#[derive(Clone, Debug)]
pub(crate) enum Extent {
    Launch(Formula),
    Num(Num),
    /// From the first to the second; never negative.
    Between(Num, Num),
    /// Rounded down.
    Quotient(Box<Extent>, i64),
    Product(Box<Extent>, Box<Extent>),
}

/// Where the elements of a view are.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// Parameter of that index, with elements of the view's type: the last dimension is rescaled if it has others.
    Param(u32),
    /// One entry a dimension of the base.
    Part(Rc<ViewValue>, Vec<Part>),
    /// Dimension i is dimension `perm[i]` of the base.
    Permute(Rc<ViewValue>, Vec<usize>),
    /// Dimensions `dim` and `dim + 1` are quotient and remainder of dimension `dim` of the base.
    Split {
        base: Rc<ViewValue>,
        dim: usize,
        inner: i64,
    },
    /// Dimension `dim` counts dimensions `dim` and `dim + 1` of the base, row by row.
    Merge { base: Rc<ViewValue>, dim: usize },
    /// Row t is row `t % page` of page `ids[t / page]` of the base.
    Paged {
        base: Rc<ViewValue>,
        ids: Rc<ViewValue>,
        page: i64,
        len: Num,
    },
    /// Of a flat base: where an element lies the layout says, an item of that module.
    Layout {
        base: Rc<ViewValue>,
        module: Module,
        item: usize,
    },
}

/// What a sub-view takes of one dimension of its base.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// Dropped: this index of it.
    At(Num),
    Whole,
    /// The elements from one (or the beginning) on, up to another (or the end); clamped and in order.
    Range(Option<Num>, Option<Num>),
}

impl Extent {
    /// The extent, if it is known now.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Extent::Launch(formula) => formula.as_int(),
            Extent::Num(Num::Int(v)) => Some(*v),
            Extent::Between(Num::Int(a), Num::Int(b)) => Some((b - a).max(0)),
            Extent::Quotient(a, c) => Some(a.as_int()?.div_euclid(*c)),
            Extent::Product(a, b) => a.as_int()?.checked_mul(b.as_int()?),
            _ => None,
        }
    }
}

impl ViewValue {
    /// The parameter that its elements are of.
    pub fn param(&self) -> u32 {
        self.root().1
    }

    /// The view of the parameter as a whole, and the parameter.
    pub fn root(&self) -> (&ViewValue, u32) {
        match &self.origin {
            Origin::Param(param) => (self, *param),
            Origin::Part(base, _)
            | Origin::Permute(base, _)
            | Origin::Split { base, .. }
            | Origin::Merge { base, .. }
            | Origin::Paged { base, .. }
            | Origin::Layout { base, .. } => base.root(),
        }
    }
}

/// A value of an `op`.
#[derive(Clone, Debug)]
pub(crate) enum Host {
    /// An integer or condition over dimensions and scalar parameters.
    Formula(Formula),
    View(HostView),
}

/// A tensor of an `op`, perhaps transformed.
#[derive(Clone, Debug)]
pub(crate) struct HostView {
    pub name: String,
    pub arg: ViewArg,
    pub dtype: DType,
    pub access: Access,
    pub extents: Vec<Formula>,
}

#[derive(Clone, Debug)]
pub(crate) struct StructValue<'a> {
    pub item: &'a ast::Struct,
    pub fields: Vec<Value<'a>>,
}

#[derive(Clone, Debug)]
pub(crate) struct VariantValue<'a> {
    pub ty: Rc<VariantType<'a>>,
    pub fields: Vec<Value<'a>>,
}

#[derive(Clone, Debug)]
pub(crate) enum TypeValue<'a> {
    Struct(&'a ast::Struct),
    /// Not yet given its compile-time arguments.
    VariantItem(Module, &'a ast::Variant),
    Variant(Rc<VariantType<'a>>),
    Interface(&'a ast::Interface),
}

/// A variant with its compile-time arguments.
#[derive(Clone, Debug)]
pub(crate) struct VariantType<'a> {
    pub module: Module,
    pub item: &'a ast::Variant,
    /// In the order of its compile-time parameters.
    pub args: Vec<Value<'a>>,
}

/// A function, perhaps of a variant.
#[derive(Clone, Debug)]
pub(crate) struct FnValue<'a> {
    pub module: Module,
    pub item: &'a ast::Fn,
    /// The variant whose function it is: its compile-time parameters are in scope.
    pub variant: Option<Rc<VariantType<'a>>>,
    /// What `::<…>` gave.
    pub cargs: Vec<(Option<&'a ast::Ident>, Value<'a>, Span)>,
}

impl fmt::Display for VariantType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.item.name.name)?;
        for (i, arg) in self.args.iter().enumerate() {
            write!(f, "{}{arg}", if i == 0 { "<" } else { ", " })?;
        }
        if !self.args.is_empty() {
            f.write_str(">")?;
        }
        Ok(())
    }
}

/// Constants and types as they stand in an instance's name.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(v) => write!(f, "{v}"),
            Value::Float(v, _) => write!(f, "{v:?}"),
            Value::Bool(v) => write!(f, "{v}"),
            Value::Str(v) => write!(f, "{v:?}"),
            Value::DType(v) => write!(f, "{v}"),
            Value::Type(TypeValue::Struct(s)) => f.write_str(&s.name.name),
            Value::Type(TypeValue::VariantItem(_, v)) => f.write_str(&v.name.name),
            Value::Type(TypeValue::Variant(v)) => write!(f, "{v}"),
            Value::Type(TypeValue::Interface(v)) => f.write_str(&v.name.name),
            Value::Fn(v) => f.write_str(&v.item.name.name),
            Value::Builtin(v) => f.write_str(v),
            Value::Tuple(v) | Value::List(v) => {
                f.write_str("[")?;
                for (i, x) in v.iter().enumerate() {
                    write!(f, "{}{x}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            _ => f.write_str("_"),
        }
    }
}

impl<'a> Value<'a> {
    /// The field `name` of a struct or variant, if it has one.
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        let (declared, values) = match self {
            Value::Struct(v) => (&v.item.fields, &v.fields),
            Value::Variant(v) => (&v.ty.item.fields, &v.fields),
            _ => return None,
        };
        let at = declared.iter().position(|f| f.name.name == name)?;
        Some(values[at].clone())
    }

    /// Whether two compile-time values are the same one.
    pub fn same(&self, other: &Value<'a>) -> bool {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => a == b,
            (Value::Float(a, s), Value::Float(b, t)) => a.to_bits() == b.to_bits() && s == t,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Str(a), Value::Str(b)) => a == b,
            (Value::DType(a), Value::DType(b)) => a == b,
            (Value::Run(a), Value::Run(b)) => a == b,
            (Value::Symbol(a), Value::Symbol(b)) => a == b,
            (Value::Unit, Value::Unit) | (Value::Any, Value::Any) => true,
            (Value::View(a), Value::View(b)) => {
                Rc::ptr_eq(a, b)
                    || matches!(
                        (&a.origin, &b.origin),
                        (Origin::Param(p), Origin::Param(q)) if p == q && a.elem == b.elem
                    )
            }

            (Value::Tuple(a), Value::Tuple(b)) | (Value::List(a), Value::List(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.same(b))
            }
            (Value::Struct(a), Value::Struct(b)) => {
                std::ptr::eq(a.item, b.item)
                    && a.fields.iter().zip(&b.fields).all(|(a, b)| a.same(b))
            }
            (Value::Variant(a), Value::Variant(b)) => {
                a.ty.to_string() == b.ty.to_string()
                    && std::ptr::eq(a.ty.item, b.ty.item)
                    && a.fields.iter().zip(&b.fields).all(|(a, b)| a.same(b))
            }
            (Value::Type(a), Value::Type(b)) => match (a, b) {
                (TypeValue::Struct(a), TypeValue::Struct(b)) => std::ptr::eq(*a, *b),
                (TypeValue::VariantItem(_, a), TypeValue::VariantItem(_, b)) => {
                    std::ptr::eq(*a, *b)
                }
                (TypeValue::Interface(a), TypeValue::Interface(b)) => std::ptr::eq(*a, *b),
                (TypeValue::Variant(a), TypeValue::Variant(b)) => {
                    std::ptr::eq(a.item, b.item)
                        && a.args.iter().zip(&b.args).all(|(a, b)| a.same(b))
                }
                _ => false,
            },
            (Value::Fn(a), Value::Fn(b)) => std::ptr::eq(a.item, b.item),
            (Value::Builtin(a), Value::Builtin(b)) => a == b,
            (Value::Absent(a), Value::Absent(b)) => a == b,
            _ => false,
        }
    }

    /// Whether it is an integer, float or bool known now.
    pub fn is_number(&self) -> bool {
        matches!(self, Value::Int(_) | Value::Float(..) | Value::Bool(_))
    }
}
