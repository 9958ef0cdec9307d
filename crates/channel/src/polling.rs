//! What a process that never sleeps says of itself: how often it has looked for messages and found
//! nothing, and what it looks for. A network on top of a channel publishes this, and the daemon of
//! the node reads it when the gang job is at rest. A process can write anything here, so every word
//! has a meaning, and there are at most [`WANTED`] entries.

use std::sync::atomic::{AtomicU64, Ordering};

/// The most entries that a process can say. A longer list is cut.
pub const WANTED: usize = 16;

/// A message that a process looks for, or one that it wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A message from this rank, or from any, with this tag, or with any.
    Message {
        /// The rank.
        source: Option<u16>,
        /// The tag.
        tag: Option<u32>,
    },
    /// That this rank takes a message with this tag.
    Receive {
        /// The rank.
        target: u16,
        /// The tag.
        tag: Option<u32>,
    },
}

/// What a process has said of itself on one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Polling {
    /// How often it has looked and found nothing, in all.
    pub polls: u64,
    /// Another number whenever it says something else; 0 if it has never said anything.
    pub version: u32,
    /// What it looks for: each of these lets it go on.
    pub wanted: Vec<Wanted>,
    /// Whether it also looks for what `wanted` does not say.
    pub has_others: bool,
}

const HAS_TAG: u64 = 1 << 48;
const FROM_ANY: u64 = 1 << 49;
const IS_SEND: u64 = 1 << 50;

impl Wanted {
    fn encode(self) -> u64 {
        let of_tag = |tag: Option<u32>| tag.map_or(0, |tag| HAS_TAG | u64::from(tag));
        let of_rank = |rank: u16| u64::from(rank) << 32;
        match self {
            Wanted::Message { source, tag } => source.map_or(FROM_ANY, of_rank) | of_tag(tag),
            Wanted::Receive { target, tag } => IS_SEND | of_rank(target) | of_tag(tag),
        }
    }

    fn decode(word: u64) -> Wanted {
        let rank = (word >> 32) as u16;
        let tag = (word & HAS_TAG != 0).then_some(word as u32);
        match word & IS_SEND != 0 {
            true => Wanted::Receive { target: rank, tag },
            false => Wanted::Message {
                source: (word & FROM_ANY == 0).then_some(rank),
                tag,
            },
        }
    }

    fn is_within(self, size: u16) -> bool {
        match self {
            Wanted::Message { source, .. } => source.is_none_or(|rank| rank < size),
            Wanted::Receive { target, .. } => target < size,
        }
    }
}

/// The words of one process on one channel.
#[repr(C)]
pub(crate) struct Said {
    polls: AtomicU64,
    /// The version in the upper half. Then the number of entries, and whether there are others.
    head: AtomicU64,
    wanted: [AtomicU64; WANTED],
}

const HAS_OTHERS: u64 = 1 << 16;
const VERSION: u64 = 1 << 32;

impl Said {
    /// Says what the process looks for. It may be stopped in between: then it looks for nothing.
    pub(crate) fn say(&self, wanted: &[Wanted], has_others: bool) {
        let version = self.head.load(Ordering::Relaxed).wrapping_add(VERSION) & !(VERSION - 1);
        // 0 means that nothing was ever said.
        let version = version.max(VERSION);
        self.head.store(version, Ordering::Release);
        let count = wanted.len().min(WANTED);
        for (word, wanted) in self.wanted.iter().zip(wanted) {
            word.store(wanted.encode(), Ordering::Release);
        }
        let has_others = has_others || wanted.len() > WANTED;
        let others = if has_others { HAS_OTHERS } else { 0 };
        self.head
            .store(version | others | count as u64, Ordering::Release);
    }

    /// Says how often the process has looked and found nothing, in all.
    pub(crate) fn say_polls(&self, polls: u64) {
        self.polls.store(polls, Ordering::Release);
    }

    /// What the process has said, in a gang job of `size` processes.
    pub(crate) fn read(&self, size: u16) -> Polling {
        let head = self.head.load(Ordering::Acquire);
        let count = usize::from(head as u16);
        let words = self.wanted.iter().take(count);
        let all: Vec<Wanted> = words
            .map(|word| Wanted::decode(word.load(Ordering::Acquire)))
            .collect();
        let sound = all.iter().filter(|wanted| wanted.is_within(size));
        let sound: Vec<Wanted> = sound.copied().collect();
        Polling {
            polls: self.polls.load(Ordering::Acquire),
            version: (head >> 32) as u32,
            has_others: head & HAS_OTHERS != 0 || sound.len() < count,
            wanted: sound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> Said {
        Said {
            polls: AtomicU64::new(0),
            head: AtomicU64::new(0),
            wanted: [const { AtomicU64::new(0) }; WANTED],
        }
    }

    #[test]
    fn what_was_said_is_read_until_something_else_is_said() {
        let said = said();
        assert_eq!(said.read(9), Polling::default());
        let ranks = [None, Some(0), Some(8)];
        let tags = [None, Some(0), Some(u32::MAX)];
        let each = |tag| {
            let messages = ranks.map(|source| Wanted::Message { source, tag });
            let receive = Wanted::Receive { target: 8, tag };
            messages.into_iter().chain([receive])
        };
        let wanted: Vec<Wanted> = tags.into_iter().flat_map(each).collect();
        said.say(&wanted, false);
        let read = said.read(9);
        assert_eq!((read.wanted, read.has_others), (wanted, false));
        said.say(&[], false);
        let later = said.read(9);
        assert_eq!((later.wanted, later.has_others), (Vec::new(), false));
        assert_ne!(later.version, read.version);
    }

    #[test]
    fn a_list_that_is_too_long_has_others() {
        let said = said();
        let one = Wanted::Message {
            source: Some(1),
            tag: None,
        };
        said.say(&[one; WANTED], false);
        assert!(!said.read(2).has_others);
        said.say(&[one; WANTED + 1], false);
        let read = said.read(2);
        assert_eq!((read.wanted.len(), read.has_others), (WANTED, true));
    }

    /// A process can write any words. Ranks that do not exist count as others.
    #[test]
    fn any_words_can_be_read() {
        let said = said();
        let mut word = 1u64;
        for _ in 0..10_000 {
            for place in said.wanted.iter().chain([&said.head, &said.polls]) {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                place.store(word.rotate_left(17), Ordering::Relaxed);
            }
            let read = said.read(3);
            let head = said.head.load(Ordering::Relaxed);
            let count = usize::from(head as u16).min(WANTED);
            assert!(read.wanted.iter().all(|wanted| wanted.is_within(3)));
            assert!(read.wanted.len() == count || read.has_others);
        }
    }

    #[test]
    fn versions_never_become_zero_again() {
        let said = said();
        said.head.store(u64::MAX, Ordering::Relaxed);
        said.say(&[], false);
        assert_eq!(said.read(1).version, 1);
    }
}
