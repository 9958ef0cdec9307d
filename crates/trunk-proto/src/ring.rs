//! Stores the frames that were sent on one link to one peer and are not yet acknowledged, so that
//! they can be sent again. `peer` decides when that happens. A stored frame is taken out at most
//! once, and the oldest frames leave when the limit is reached.

use crate::address::Packed;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A frame with its number in the peer's sequence.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) frame: Packed,
}

/// The stored frames, with consecutive link numbers from `first`.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    first: u64,
    sent: VecDeque<Option<Numbered>>,
}

impl Ring {
    /// Stores the frame with the next link number, and removes the oldest beyond `limit`. With a
    /// limit of 0 it stores nothing.
    pub(crate) fn push(&mut self, link_number: u64, frame: &Numbered, limit: usize) {
        if self.sent.is_empty() {
            self.first = link_number;
        }
        if limit > 0 {
            self.sent.push_back(Some(frame.clone()));
        }
        while self.sent.len() > limit {
            self.sent.pop_front();
            self.first += 1;
        }
    }

    /// Removes the frames below this number.
    pub(crate) fn acknowledge(&mut self, below: u64) {
        while self.first < below && self.sent.pop_front().is_some() {
            self.first += 1;
        }
    }

    /// Takes out the frames of a range that are still stored.
    pub(crate) fn take(&mut self, first: u64, count: u64) -> Vec<Numbered> {
        let from = first.max(self.first);
        let to = first
            .saturating_add(count)
            .min(self.first + self.sent.len() as u64);
        let slot = |number: u64| (number - self.first) as usize;
        (from..to.max(from))
            .filter_map(|number| self.sent[slot(number)].take())
            .collect()
    }

    /// Takes out all frames.
    pub(crate) fn drain(&mut self) -> Vec<Numbered> {
        self.sent.drain(..).flatten().collect()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.sent.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use bytes::Bytes;

    fn numbers(frames: Vec<Numbered>) -> Vec<u64> {
        frames.into_iter().map(|frame| frame.number).collect()
    }

    #[test]
    fn frames_are_taken_once_and_only_while_remembered() {
        let mut ring = Ring::default();
        for number in 10..20 {
            let frame = Packed {
                address: Address::Unicast,
                protocol: 0,
                body: Bytes::new(),
            };
            ring.push(
                number,
                &Numbered {
                    number: number * 2,
                    frame,
                },
                8,
            );
        }
        assert_eq!(ring.len(), 8);
        assert_eq!(numbers(ring.take(11, 3)), [24, 26]);
        assert_eq!(numbers(ring.take(12, 1)), []);
        ring.acknowledge(16);
        assert_eq!(numbers(ring.take(14, 3)), [32]);
        assert_eq!(numbers(ring.take(u64::MAX, u64::MAX)), []);
        assert_eq!(numbers(ring.drain()), [34, 36, 38]);
    }
}
