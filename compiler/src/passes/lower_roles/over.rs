//! Channels over another one's slots.
//!
//! Such a channel has full barriers of its own and no slots: a role that holds a slot of the other one writes in place and hands it on, and
//! who releases it frees the slot of the channel that has the storage. So it must be known which slot is meant: each channel's slots are
//! handed on by its only reader, all of them, in order, to one other channel. Then the slots of all of them follow each other alike.

use std::collections::{BTreeMap, HashMap};

use super::{Refused, not_yet, rings::Uses};
use crate::ir::{
    OpId, ValueId,
    tile::{self, ChannelId, OpKind, PutSource, RoleOp},
};

/// Who lies over whom.
#[derive(Default)]
pub(super) struct Storage {
    /// By channel without slots of its own: the one that has them.
    roots: HashMap<ChannelId, ChannelId>,
    /// By channel whose slots are handed on: to which one.
    next: BTreeMap<ChannelId, ChannelId>,
}

impl Storage {
    pub(super) fn of(kernel: &tile::Kernel, uses: &Uses) -> Result<Storage, Refused> {
        let mut storage = Storage::default();
        for (id, channel) in &kernel.channels {
            let mut root = id;
            // Channels are declared in order: no more steps than there are channels.
            for _ in 0..kernel.channels.len() {
                let Some(under) = kernel.channels[root].over else {
                    break;
                };
                root = under;
            }
            if root == id {
                continue;
            }
            storage.roots.insert(id, root);
            let below = &kernel.channels[root];
            let refused = [
                (
                    channel.depth != below.depth,
                    "a channel that has another depth than the one it lies over",
                ),
                (
                    channel.across.is_some() || below.across.is_some(),
                    "slots of a cluster that are handed on",
                ),
                (
                    channel.tensor_memory || below.tensor_memory,
                    "accumulators that are handed on",
                ),
            ];
            if let Some((_, what)) = refused.iter().find(|(is, _)| *is) {
                return Err(not_yet(channel.span, what));
            }
        }
        for &(_, id) in &uses.puts {
            let op = &kernel.body.ops[id];
            let OpKind::Role(RoleOp::Put {
                channel,
                sources,
                within,
                ..
            }) = &op.kind
            else {
                continue;
            };
            if !within {
                continue;
            }
            let from = got(kernel, op.operands[op.operands.len() - 1]);
            let Some((_, from)) = from.filter(|(_, c)| storage.root(*c) == storage.root(*channel))
            else {
                let what = "a slot that is handed on by another name than the one that `get` gave";
                return Err(not_yet(op.span, what));
            };
            if sources.iter().any(|s| *s != PutSource::Value) {
                let what = "a slice that is put in place of what a slot held";
                return Err(not_yet(op.span, what));
            }
            let known = storage.next.insert(from, *channel);
            let twice = storage.next.iter().any(|(&f, c)| f != from && c == channel);
            if twice || known.is_some_and(|c| c != *channel) {
                let what = "slots of a channel that are handed on to several, or from several";
                return Err(not_yet(op.span, what));
            }
        }
        for &from in storage.next.keys() {
            let readers = uses.of_role.iter().filter_map(|u| u.get(&from));
            let given_back = |id: &OpId| {
                let kind = &kernel.body.ops[*id].kind;
                matches!(kind, OpKind::Role(RoleOp::Release { channel, .. }) if *channel == from)
            };
            let span = kernel.channels[from].span;
            if readers.filter(|u| u.gets).count() > 1 {
                let what = "slots that one role hands on and another one reads";
                return Err(not_yet(span, what));
            }
            if kernel.body.ops.keys().any(|id| given_back(&id)) {
                let what = "slots some of which are handed on and some given back";
                return Err(not_yet(span, what));
            }
        }
        Ok(storage)
    }

    /// The channel whose slots it has.
    pub(super) fn root(&self, channel: ChannelId) -> ChannelId {
        self.roots.get(&channel).copied().unwrap_or(channel)
    }

    /// The channel that its slots go through last, whose readers give them back.
    pub(super) fn last(&self, channel: ChannelId) -> ChannelId {
        let mut last = channel;
        for _ in 0..self.next.len() {
            last = self.next.get(&last).copied().unwrap_or(last);
        }
        last
    }

    pub(super) fn is_over(&self, channel: ChannelId) -> bool {
        self.roots.contains_key(&channel)
    }
}

/// The `get` that gave a tile, and its channel.
fn got(kernel: &tile::Kernel, value: ValueId) -> Option<(OpId, ChannelId)> {
    let id = kernel.body.defining_op(value)?;
    match kernel.body.ops[id].kind {
        OpKind::Role(RoleOp::Get { channel }) => Some((id, channel)),
        _ => None,
    }
}
