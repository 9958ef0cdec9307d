//! The calls that wait to use stored arrays: those whose turn may have come, and those that wait
//! for memory for one. It only lists them; `stored` looks whose turn it is.

use crate::keys::CallKey;
use std::collections::VecDeque;

/// The calls that wait to use stored arrays.
#[derive(Default)]
pub(crate) struct Turns {
    /// Calls whose turn may have come.
    candidates: VecDeque<CallKey>,
    /// Calls whose turn has come, and which wait for memory for an array.
    starved: Vec<CallKey>,
}

impl Turns {
    /// Whether the turn of some call may have come.
    pub(crate) fn has_candidates(&self) -> bool {
        !self.candidates.is_empty()
    }

    /// The next call whose turn may have come.
    pub(super) fn pop(&mut self) -> Option<CallKey> {
        self.candidates.pop_front()
    }

    /// The turn of these calls may have come.
    pub(super) fn extend(&mut self, calls: impl IntoIterator<Item = CallKey>) {
        self.candidates.extend(calls);
    }

    /// Lets a call wait for memory.
    pub(super) fn starve(&mut self, call: CallKey) {
        self.starved.retain(|other| *other != call);
        self.starved.push(call);
    }

    /// Whether a call waits for memory for one of its arrays.
    pub(crate) fn starves(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Lets the turn of calls that wait for memory come again: some is free, or one call less goes
    /// on. Returns whether there are any.
    pub(crate) fn look_again(&mut self) -> bool {
        self.candidates.extend(&self.starved);
        !std::mem::take(&mut self.starved).is_empty()
    }
}
