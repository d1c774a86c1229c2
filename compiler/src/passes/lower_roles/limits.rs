//! Slices of a part of a view's rows, by bulk copies.
//!
//! A bulk copy knows where the view ends, and not where a request within it does: rows beyond the limit would be those of the next request.
//! Only a slice that crosses its limit pays for that. It lands first: its bytes arrive at barriers of their own, the warp waits for them, clears
//! the rows beyond and says that the slot is full. All others go as they always do, and pass the landing's barrier too, so that both rings are
//! in the same phase: the warp arrives there and finds itself alone. No phase of a barrier goes by that nobody waited for.
//!
//! Invariant: one warp puts, and nothing but bulk copies fills the slot; either way one arrival makes it full.

use super::{
    body::Lower,
    flight::Place,
    rings::{Limit, Slice},
};
use crate::ir::{
    ValueId,
    role::{self, ChannelId},
    tile::{self, BinaryOp, CompareOp, OpKind},
};
use tesserine_set::DType;

/// Where a slice begins and what it is limited to, as `i32` scalars.
pub(super) struct Limited {
    start: ValueId,
    from: Option<ValueId>,
    until: Option<ValueId>,
}

impl Limit {
    pub(super) fn of(&self, starts: &[ValueId]) -> Limited {
        Limited {
            start: starts[self.start],
            from: self.from.map(|i| starts[i]),
            until: self.until.map(|i| starts[i]),
        }
    }
}

impl Lower<'_> {
    /// Fills a slot by bulk copies: `slices` by tile, with the coordinates of their boxes. `limits` by tile, with its rows.
    pub(super) fn put_limited(
        &mut self,
        channel: tile::ChannelId,
        landing: ChannelId,
        place: Place,
        slices: &[(u32, Slice, Vec<Vec<ValueId>>)],
        limits: &[(u32, u32, Limited)],
    ) {
        let ring = self.rings.id(channel);
        // The rows to clear: up to the first of these, and from the second on.
        let mut bounds = Vec::new();
        let mut crossing = None;
        for (tile, rows, limit) in limits {
            let all = self.int(*rows);
            let start = self.narrow(limit.start);
            let first = limit.from.map(|from| {
                let from = self.narrow(from);
                self.binary(BinaryOp::Sub, from, start)
            });
            let end = limit.until.map(|until| {
                let until = self.narrow(until);
                self.binary(BinaryOp::Sub, until, start)
            });
            let zero = self.int(0);
            let early = first.map(|first| self.compare(CompareOp::Gt, first, zero));
            let late = end.map(|end| self.compare(CompareOp::Lt, end, all));
            for crosses in early.into_iter().chain(late) {
                crossing = Some(match crossing {
                    None => crosses,
                    Some(others) => {
                        let or = OpKind::Binary(BinaryOp::Or);
                        self.scalar(or, vec![others, crosses], DType::Bool)
                    }
                });
            }
            bounds.push((*tile, all, first, end));
        }
        let tiles = &self.rings.ring(channel).tiles;
        let of_tile = |tile: u32| {
            let tile = &tiles[tile as usize];
            tile.shape[0] * tile.shape[1] * tile.elem.bits() / 8
        };
        let bytes = slices.iter().map(|(tile, ..)| of_tile(*tile)).sum();
        let slot = place.slot;
        let go = |this: &mut Self| {
            this.fetch(ring, slot, bytes, slices);
            this.effect(role::OpKind::ArriveFull { channel: landing }, vec![slot]);
            this.effect(
                role::OpKind::WaitFull { channel: landing },
                vec![slot, place.phase],
            );
        };
        // Another `put` to this channel has limits.
        let Some(crossing) = crossing else {
            return go(self);
        };
        self.either(
            crossing,
            |this| {
                this.fetch(landing, slot, bytes, slices);
                this.effect(
                    role::OpKind::WaitFull { channel: landing },
                    vec![slot, place.phase],
                );
                let zero = this.int(0);
                for (tile, all, first, end) in bounds {
                    let kind = role::OpKind::ClearRows {
                        channel: ring,
                        tile,
                    };
                    if let Some(first) = first {
                        let first = this.binary(BinaryOp::Min, first, all);
                        this.effect(kind.clone(), vec![slot, zero, first]);
                    }
                    if let Some(end) = end {
                        let end = this.binary(BinaryOp::Max, end, zero);
                        this.effect(kind, vec![slot, end, all]);
                    }
                }
                this.effect(role::OpKind::ArriveFull { channel: ring }, vec![slot]);
            },
            go,
        );
    }

    /// Begins the copies of a slot, whose bytes arrive at the barriers of `ring`.
    fn fetch(
        &mut self,
        ring: ChannelId,
        slot: ValueId,
        bytes: u32,
        slices: &[(u32, Slice, Vec<Vec<ValueId>>)],
    ) {
        let kind = role::OpKind::ExpectBytes {
            channel: ring,
            bytes,
        };
        self.effect(kind, vec![slot]);
        for (tile, slice, boxes) in slices {
            self.copies(ring, *tile, slot, slice, boxes, None);
        }
    }

    fn narrow(&mut self, value: ValueId) -> ValueId {
        self.scalar(OpKind::Cast, vec![value], DType::I32)
    }

    pub(super) fn compare(&mut self, op: CompareOp, a: ValueId, b: ValueId) -> ValueId {
        self.scalar(OpKind::Compare(op), vec![a, b], DType::Bool)
    }
}
