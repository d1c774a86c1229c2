//! Columns of a matrix that a loop puts one after another.
//!
//! The elements of a column lie a row apart in memory: each is a request of its own, and a request of four bytes costs what one of 64 does.
//! So the role fetches up to 64 bytes of each row at once, the next columns with it, to a stage of its own, one such group ahead of the one that
//! it hands out column by column.
//!
//! Invariants: a group begins at a multiple of its bytes in its row. The stage holds the group of the column at hand in one of its two slots;
//! the other is on its way, unless the loop ends before it begins, so that nothing is on its way when the loop ends. The role's threads meet
//! before they read what others fetched, and before they fetch to where others read.

use super::body::Lower;
use crate::{
    ir::{
        OpId, RegionId, ValueDef, ValueId,
        role::{self, ChannelId, SharedTile},
        tile::{self, BinaryOp, CompareOp, Constant, Index, OpKind},
    },
    layout::swizzle::{CHUNK, SharedLayout},
    passes::access,
    target::{Feature, Target},
};
use tesserine_set::{DType, ParamKind};

/// How many operations deep it is looked for whether a loop changes a coordinate.
const DEEP: u32 = 10;

/// Columns of a view that a loop puts one after another.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    /// The loop's bounds.
    from: ValueId,
    until: ValueId,
    /// The operand that is the column, counted from the first one of the indices.
    column: usize,
    /// Rows.
    pub(super) rows: u32,
    pub(super) elem: DType,
    /// Pieces of 16 bytes of a row that are fetched at once.
    pub(super) pieces: u32,
}

impl Columns {
    /// What the slice `indices` of a `put` is, if it is one of these; `operands` begin with its view.
    pub(super) fn of(
        kernel: &tile::Kernel,
        put: OpId,
        operands: &[ValueId],
        indices: &[Index],
        target: Target,
    ) -> Option<Columns> {
        if !target.has(Feature::CpAsync) {
            return None;
        }
        let body = &kernel.body;
        let (last, others) = indices.split_last()?;
        let mut extents = others.iter().filter_map(|i| i.extent());
        let (rows, None) = (extents.next()?, extents.next()) else {
            return None;
        };
        let plain = |i: &Index| match *i {
            Index::Scalar => true,
            Index::Range { from, until, .. } => !from && !until,
            Index::Whole { .. } | Index::Gather { .. } => false,
        };
        if *last != Index::Scalar || !others.iter().all(plain) {
            return None;
        }
        let OpKind::Param(param) = body.ops[body.defining_op(operands[0])?].kind else {
            return None;
        };
        let ParamKind::View(view) = &kernel.header.signature.params[param as usize].kind else {
            return None;
        };
        let elem = body.ty(operands[0]).elem();
        let known = view.dtype == elem
            && !view.strided
            && 1 << access::alignment(&kernel.header, param, view).min(31) >= CHUNK
            && matches!(elem.bits(), 8 | 16 | 32)
            && !elem.is_packed();
        let region = body
            .regions
            .keys()
            .find(|r| body.regions[*r].ops.contains(&put))?;
        let around = body.ops.values().find(|o| o.regions.contains(&region))?;
        let OpKind::For { .. } = around.kind else {
            return None;
        };
        let [from, until, step] = around.operands[..3] else {
            return None;
        };
        let one = |v: ValueId| {
            let op = body.defining_op(v).map(|id| &body.ops[id].kind);
            matches!(op, Some(OpKind::Constant(Constant::Int(1, _))))
        };
        let column: usize = others.iter().map(|i| i.operands()).sum();
        let induction = body.regions[region].args[0];
        let stays = |&v: &ValueId| stays(body, region, v, DEEP);
        let found = known
            && one(step)
            && operands[1 + column] == induction
            && operands[1..1 + column].iter().all(stays);
        found.then_some(Columns {
            from,
            until,
            column,
            rows,
            elem,
            pieces: 1,
        })
    }

    /// Where a group of them is kept.
    pub(super) fn stage(&self) -> SharedTile {
        SharedTile {
            elem: self.elem,
            shape: [self.rows, self.group()],
            layout: SharedLayout {
                rows: self.rows,
                // Rows an odd number of pieces apart: those of eight lanes meet no bank twice.
                pitch: CHUNK * (self.pieces | 1),
                mask: 0,
                shift: 0,
                panels: 1,
            },
            offset: 0,
        }
    }

    /// Columns of a group.
    fn group(&self) -> u32 {
        self.pieces * CHUNK * 8 / self.elem.bits()
    }
}

/// Whether a scalar is the same in all iterations of a loop.
fn stays(body: &tile::TileBody, region: RegionId, value: ValueId, deep: u32) -> bool {
    let Some(deep) = deep.checked_sub(1) else {
        return false;
    };
    let op = match body.values[value].def {
        ValueDef::Argument { region: of, .. } => return of != region,
        ValueDef::Result { op, .. } => op,
    };
    if !body.regions[region].ops.contains(&op) {
        return true;
    }
    let op = &body.ops[op];
    let pure = matches!(
        op.kind,
        OpKind::Constant(_)
            | OpKind::Param(_)
            | OpKind::Dim(_)
            | OpKind::GridIndex(_)
            | OpKind::Cast
            | OpKind::Select
            | OpKind::Binary(_)
            | OpKind::Compare(_)
    );
    pure && op.operands.iter().all(|&v| stays(body, region, v, deep))
}

impl Lower<'_> {
    /// Puts a column to tile `tile` of a slot, from `stage`. `operands` are the view and the operands of `indices`.
    pub(super) fn put_column(
        &mut self,
        (ring, tile, slot): (ChannelId, u32, ValueId),
        stage: ChannelId,
        columns: Columns,
        indices: &[Index],
        operands: &[ValueId],
    ) {
        let group = columns.group();
        let column = operands[1 + columns.column];
        let (from, until) = (self.value(columns.from), self.value(columns.until));
        let mask = self.wide(-i64::from(group));
        let first = self.scalar(
            OpKind::Binary(BinaryOp::And),
            vec![column, mask],
            DType::I64,
        );
        let low = self.wide(i64::from(group) - 1);
        let within = self.scalar(OpKind::Binary(BinaryOp::And), vec![column, low], DType::I64);
        // Groups take turns in the stage's slots.
        let number = self.wide(i64::from(group.trailing_zeros()));
        let number = self.scalar(
            OpKind::Binary(BinaryOp::Shr),
            vec![column, number],
            DType::I64,
        );
        let number = self.scalar(OpKind::Cast, vec![number], DType::I32);
        let one = self.int(1);
        let half = self.binary(BinaryOp::And, number, one);
        let begins = self.compare(CompareOp::Eq, column, from);
        let fetch = |this: &mut Self, first: ValueId, half: ValueId| {
            let mut of = operands.to_vec();
            of[1 + columns.column] = first;
            of.push(half);
            let indices = indices.to_vec();
            let channel = stage;
            this.effect(role::OpKind::FetchColumns { channel, indices }, of);
            this.effect(role::OpKind::CommitCopies, Vec::new());
        };
        self.only_if(begins, |this| {
            this.effect(role::OpKind::Barrier, Vec::new());
            fetch(this, first, half);
        });
        let zero = self.wide(0);
        let turns = self.compare(CompareOp::Eq, within, zero);
        let or = OpKind::Binary(BinaryOp::Or);
        let turns = self.scalar(or, vec![begins, turns], DType::Bool);
        self.only_if(turns, |this| {
            this.effect(role::OpKind::WaitCopies { pending: 0 }, Vec::new());
            this.effect(role::OpKind::Barrier, Vec::new());
            let group = this.wide(i64::from(group));
            let add = OpKind::Binary(BinaryOp::Add);
            let next = this.scalar(add, vec![first, group], DType::I64);
            let more = this.compare(CompareOp::Lt, next, until);
            this.only_if(more, |this| {
                let one = this.int(1);
                let other = this.binary(BinaryOp::Xor, half, one);
                fetch(this, next, other);
            });
        });
        let kind = role::OpKind::CopyColumn {
            channel: ring,
            tile,
            stage,
        };
        self.effect(kind, vec![slot, half, within]);
    }

    fn wide(&mut self, value: i64) -> ValueId {
        let constant = OpKind::Constant(Constant::Int(value, DType::I64));
        self.scalar(constant, Vec::new(), DType::I64)
    }
}
