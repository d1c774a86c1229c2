//! The two levels of intermediate representation.
//!
//! [`tile`] is what a program means: SSA values that are scalars, tiles and views, in structured regions, for one block.
//! [`role`] is how it runs: the same values with layouts, in roles, with shared-memory buffers, conversions and barriers.
//! Both are a [`Body`] of their own kinds of operations and types, so that builder, printer and parser are written once.
//!
//! Invariants: a region's last operation is its only terminator; an operand is defined before its use in the same region
//! or in one around it; a value's type is fixed when it is made. The verifiers of the two levels check these and the
//! typing rules of each operation.

pub mod op;
pub mod role;
pub mod text;
pub mod tile;
mod verify;

use std::collections::HashMap;

use cranelift_entity::{PrimaryMap, entity_impl};
use tesserine_set::{Fact, Formula, Signature};

pub use verify::VerifyError;

use crate::span::Span;

/// A value of a [`Body`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(u32);
entity_impl!(ValueId, "%");

/// An operation of a [`Body`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(u32);
entity_impl!(OpId, "op");

/// A region of a [`Body`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(u32);
entity_impl!(RegionId, "region");

/// What a kernel is, apart from its operations: the same for both levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// The instance, as written: `rmsnorm<bf16>`.
    pub name: String,
    pub signature: Signature,
    /// `where` facts: they hold at every launch.
    pub requires: Vec<Fact>,
    /// What this body may assume beyond `requires` (`specialize`); empty for the general body.
    pub facts: Vec<Fact>,
    /// Where several bodies serve under the same facts: the one of the least cost runs.
    pub cost: Option<Formula>,
    pub axes: Vec<GridAxis>,
    /// How the numbers of blocks walk the axes.
    pub order: Order,
    /// A fixed number of blocks walks the grid: the body is one tile's work, and a block goes on to the tile that is as
    /// many further as blocks were launched.
    pub persistent: bool,
    /// Of a persistent body: a block draws its further tiles from a counter, so that none waits for a slow one.
    pub dynamic: bool,
    pub schedule: Schedule,
    /// The kernel's name in its source.
    pub span: Span,
}

/// The order in which blocks, numbered from 0, take the points of the grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// The last axis is fastest, the first slowest.
    #[default]
    Rows,
    /// The first axis is cut into groups of `group` indices, the last group perhaps shorter. Groups follow each other;
    /// within one, the index on the first axis is fastest, then the other axes in their order, the last fastest of them:
    /// of two axes, a group's rows are walked column by column. `group` is at least 1.
    Grouped { group: u32 },
}

/// One axis of the grid. Axes stand in source order; the last is fastest, but that those of a cluster are faster than all
/// others.
#[derive(Clone, Debug, PartialEq)]
pub struct GridAxis {
    pub name: String,
    pub extent: Formula,
    /// Its indices are walked downwards.
    pub rev: bool,
    /// The blocks that differ on this axis only run at once, as a cluster. The extent is a constant.
    pub cluster: bool,
}

impl GridAxis {
    /// An axis walked upwards, of no cluster.
    pub fn new(name: impl Into<String>, extent: Formula) -> GridAxis {
        GridAxis {
            name: name.into(),
            extent,
            rev: false,
            cluster: false,
        }
    }
}

impl Header {
    /// Blocks of a cluster; 1 where the grid has none.
    pub fn cluster(&self) -> u32 {
        let axes = self.axes.iter().filter(|a| a.cluster);
        axes.filter_map(|a| a.extent.as_int())
            .map(|extent| u32::try_from(extent).unwrap_or(u32::MAX))
            .fold(1, u32::saturating_mul)
    }
}

/// What the schedule says; `None` leaves the choice to the compiler.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    pub warps: Option<u32>,
    pub stages: Option<u32>,
    pub blocks_per_sm: Option<u32>,
    pub max_regs: Option<u32>,
    /// Stages of single loops, by name.
    pub loops: Vec<(String, u32)>,
    /// Warpgroups that compute, where the block is divided into roles.
    pub consumers: Option<u32>,
    /// Warpgroups that copy for the others; none if it is 0.
    pub producers: Option<u32>,
    /// Neighbouring tiles whose blocks form a cluster, along the axes of the grid; empty if none do.
    pub cluster: Vec<u32>,
    /// The blocks of a cluster share the copies of what they have in common.
    pub multicast: bool,
    /// Two blocks compute a product together.
    pub pair: bool,
    /// A launch may begin before the one before it has ended.
    pub overlap: bool,
    /// Chains of eight-bit products are brought to f32 every so many k.
    pub promote: Option<u32>,
}

impl Schedule {
    /// Stages of a loop: its own, else those of all.
    pub fn stages_of(&self, label: Option<&str>) -> Option<u32> {
        let own = self
            .loops
            .iter()
            .find(|(name, _)| Some(name.as_str()) == label);
        own.map(|(_, stages)| *stages).or(self.stages)
    }
}

/// Operations, values and regions of one function, owned together.
#[derive(Clone, Debug)]
pub struct Body<K, T> {
    pub ops: PrimaryMap<OpId, Op<K>>,
    pub values: PrimaryMap<ValueId, Value<T>>,
    pub regions: PrimaryMap<RegionId, Region>,
    pub root: RegionId,
}

/// One operation. Attributes are in `kind`; everything that is a value is an operand.
#[derive(Clone, Debug, PartialEq)]
pub struct Op<K> {
    pub kind: K,
    pub operands: Vec<ValueId>,
    pub results: Vec<ValueId>,
    pub regions: Vec<RegionId>,
    pub span: Span,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub struct Value<T> {
    pub ty: T,
    pub def: ValueDef,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueDef {
    Result { op: OpId, index: u32 },
    Argument { region: RegionId, index: u32 },
}

/// A list of operations with arguments; the last operation is the terminator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Region {
    pub args: Vec<ValueId>,
    pub ops: Vec<OpId>,
}

impl<K, T> Body<K, T> {
    /// A body whose root region is empty.
    pub fn new() -> Body<K, T> {
        let mut regions = PrimaryMap::new();
        let root = regions.push(Region::default());
        Body {
            ops: PrimaryMap::new(),
            values: PrimaryMap::new(),
            regions,
            root,
        }
    }

    pub fn new_region(&mut self) -> RegionId {
        self.regions.push(Region::default())
    }

    /// Adds an argument to `region`.
    pub fn add_argument(&mut self, region: RegionId, ty: T) -> ValueId {
        let index = self.regions[region].args.len() as u32;
        let value = self.values.push(Value {
            ty,
            def: ValueDef::Argument { region, index },
        });
        self.regions[region].args.push(value);
        value
    }

    /// Appends an operation to `region` and makes its results.
    pub fn append(
        &mut self,
        region: RegionId,
        kind: K,
        operands: Vec<ValueId>,
        results: Vec<T>,
        regions: Vec<RegionId>,
        span: Span,
    ) -> OpId {
        let op = self.ops.next_key();
        let results = results
            .into_iter()
            .enumerate()
            .map(|(i, ty)| {
                self.values.push(Value {
                    ty,
                    def: ValueDef::Result {
                        op,
                        index: i as u32,
                    },
                })
            })
            .collect();
        self.ops.push(Op {
            kind,
            operands,
            results,
            regions,
            span,
        });
        self.regions[region].ops.push(op);
        op
    }

    /// Appends a copy of `from`'s operation `id`, with operands as `map` has them; its results join the map.
    pub fn append_copy(
        &mut self,
        region: RegionId,
        from: &Body<K, T>,
        id: OpId,
        regions: Vec<RegionId>,
        map: &mut HashMap<ValueId, ValueId>,
    ) -> OpId
    where
        K: Clone,
        T: Clone,
    {
        let op = &from.ops[id];
        let operands = op.operands.iter().map(|v| map[v]).collect();
        let types = op.results.iter().map(|&r| from.ty(r).clone()).collect();
        let new = self.append(region, op.kind.clone(), operands, types, regions, op.span);
        map.extend(
            op.results
                .iter()
                .copied()
                .zip(self.ops[new].results.iter().copied()),
        );
        new
    }

    pub fn ty(&self, value: ValueId) -> &T {
        &self.values[value].ty
    }

    /// The operation that defines `value`; `None` for a region's argument.
    pub fn defining_op(&self, value: ValueId) -> Option<OpId> {
        match self.values[value].def {
            ValueDef::Result { op, .. } => Some(op),
            ValueDef::Argument { .. } => None,
        }
    }
}

impl<K, T> Default for Body<K, T> {
    fn default() -> Self {
        Body::new()
    }
}
