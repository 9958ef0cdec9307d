//! The calls that wait to use stored arrays: those whose turn may have come, and those that wait
//! for memory for one. It only lists them, the oldest first; `stored` looks whose turn it is.

use crate::context::Context;
use crate::keys::CallKey;
use farcall_rpc_proto::Nanos;
use std::collections::BTreeSet;

/// When a call was accepted. The key tells calls of the same moment apart.
type Age = (Nanos, CallKey);

/// The calls that wait to use stored arrays.
#[derive(Default)]
pub(crate) struct Turns {
    /// Calls whose turn may have come.
    candidates: BTreeSet<Age>,
    /// Calls whose turn has come, and which wait for memory for an array.
    starved: BTreeSet<Age>,
}

fn age(cx: &Context, call: CallKey) -> Option<Age> {
    Some((cx.calls.get(call)?.times.accepted, call))
}

impl Turns {
    /// Whether the turn of some call may have come.
    pub(crate) fn has_candidates(&self) -> bool {
        !self.candidates.is_empty()
    }

    /// The oldest call whose turn may have come.
    pub(super) fn pop(&mut self) -> Option<CallKey> {
        self.candidates.pop_first().map(|(_, call)| call)
    }

    /// The turn of these calls may have come.
    pub(super) fn extend(&mut self, cx: &Context, calls: impl IntoIterator<Item = CallKey>) {
        let ages = calls.into_iter().filter_map(|call| age(cx, call));
        self.candidates.extend(ages);
    }

    /// Lets a call wait for memory.
    pub(super) fn starve(&mut self, cx: &Context, call: CallKey) {
        self.starved.extend(age(cx, call));
    }

    /// Whether a call waits for memory for one of its arrays.
    pub(crate) fn starves(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Whether an older call waits for memory.
    pub(super) fn has_older(&self, cx: &Context, call: CallKey) -> bool {
        let first = self.starved.first().copied();
        first.is_some_and(|first| Some(first) < age(cx, call))
    }

    /// Lets the turn of calls that wait for memory come again: some is free, or one call less goes
    /// on. Returns whether there are any.
    pub(crate) fn look_again(&mut self) -> bool {
        let starves = self.starves();
        self.candidates.append(&mut self.starved);
        starves
    }
}
