//! Types and constants of tile IR.

use tesserine_set::{Access, DType};

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Uniform. Sema makes integer scalars `i64` and float scalars `f32` (`f64` if read so); a `load` may give any
    /// element type, which a `cast` then brings there.
    Scalar(DType),
    Tile(TileType),
    View(ViewType),
    /// The result of a product that is in flight.
    Pending(TileType),
}

/// A tile: rank ≥ 1, every extent ≥ 1, any value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TileType {
    pub elem: DType,
    pub shape: Vec<u32>,
}

/// A view: what may be done with it and how many dimensions it has. Extents are those of the parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ViewType {
    pub elem: DType,
    pub rank: u32,
    pub access: Access,
}

impl Type {
    pub fn tile(elem: DType, shape: impl Into<Vec<u32>>) -> Type {
        Type::Tile(TileType {
            elem,
            shape: shape.into(),
        })
    }

    /// Element type of a scalar, tile or view.
    pub fn elem(&self) -> DType {
        match self {
            Type::Scalar(elem) => *elem,
            Type::Tile(tile) | Type::Pending(tile) => tile.elem,
            Type::View(view) => view.elem,
        }
    }

    /// The shape of a tile or pending tile; empty for a scalar or view.
    pub fn shape(&self) -> &[u32] {
        match self {
            Type::Tile(tile) | Type::Pending(tile) => &tile.shape,
            _ => &[],
        }
    }

    /// The same shape with other elements.
    pub fn with_elem(&self, elem: DType) -> Type {
        match self {
            Type::Scalar(_) => Type::Scalar(elem),
            Type::Tile(tile) => Type::tile(elem, tile.shape.clone()),
            Type::Pending(tile) => Type::Pending(TileType {
                elem,
                shape: tile.shape.clone(),
            }),
            Type::View(view) => Type::View(ViewType {
                elem,
                ..view.clone()
            }),
        }
    }
}

/// A constant scalar, in its type's own range and rounding.
#[derive(Clone, Copy, Debug)]
pub enum Constant {
    /// Of any integer type; `u64` by its bits.
    Int(i64, DType),
    /// Of any float type, already rounded to it. NaN and infinities included.
    Float(f64, DType),
    Bool(bool),
    /// Whatever is at hand: the program does not depend on it.
    Any(DType),
}

impl Constant {
    /// What compiled code takes: a zero stands for whatever is at hand.
    pub fn settled(self) -> Constant {
        match self {
            Constant::Any(DType::Bool) => Constant::Bool(false),
            Constant::Any(ty) if ty.is_float() => Constant::Float(0.0, ty),
            Constant::Any(ty) => Constant::Int(0, ty),
            constant => constant,
        }
    }

    pub fn dtype(self) -> DType {
        match self {
            Constant::Int(_, ty) | Constant::Float(_, ty) | Constant::Any(ty) => ty,
            Constant::Bool(_) => DType::Bool,
        }
    }
}

/// Bit for bit: NaN equals itself, and −0 is not 0.
impl PartialEq for Constant {
    fn eq(&self, other: &Constant) -> bool {
        match (self, other) {
            (Constant::Int(a, s), Constant::Int(b, t)) => a == b && s == t,
            (Constant::Float(a, s), Constant::Float(b, t)) => a.to_bits() == b.to_bits() && s == t,
            (Constant::Bool(a), Constant::Bool(b)) => a == b,
            (Constant::Any(s), Constant::Any(t)) => s == t,
            _ => false,
        }
    }
}

impl Eq for Constant {}
