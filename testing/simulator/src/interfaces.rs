//! What the simulated server serves, and what its functions make of bytes.

use farcall_idl::Document;
use std::fmt;

/// Names a call: its user, its client, and which one of the client's it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag(pub(crate) u64);

impl Tag {
    /// Whose call it is.
    pub(crate) fn user(self) -> u8 {
        (self.0 >> 48) as u8
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tag(tag) = self;
        write!(
            f,
            "{}.{}.{}",
            tag >> 48,
            tag >> 32 & 0xffff,
            tag & 0xffff_ffff
        )
    }
}

/// The functions of the first library, by their index in the document.
pub(crate) const NAMES: [&str; 7] = [
    "sim/once",
    "sim/again",
    "sim/make",
    "sim/look",
    "sim/ask",
    "sim/wide",
    "sim/Counter.add",
];
/// Which returns what it made of its array.
pub(crate) const ONCE: usize = 0;
/// The same, and may be run again.
pub(crate) const AGAIN: usize = 1;
/// Of which the worker fills only the first half of what it returns.
pub(crate) const MAKE: usize = 2;
/// Which only reads its array, and returns how it begins.
pub(crate) const LOOK: usize = 3;
/// Which has its caller change the beginning of its array first.
pub(crate) const ASK: usize = 4;
/// Which wants several processor elements.
pub(crate) const WIDE: usize = 5;
/// The method of an object, which returns the state that it leaves.
pub(crate) const ADD: usize = 6;

/// The class of objects.
pub(crate) const CLASS: &str = "sim/Counter";
/// Bytes that `LOOK` returns.
pub(crate) const LOOKED: usize = 8;
/// Bytes of the state that a method returns.
pub(crate) const STATE: usize = 16;
/// Bytes that `ASK` has changed by its caller, at most.
pub(crate) const ASKED: usize = 64;

/// The interfaces that are served from the start.
pub(crate) fn document() -> Document {
    parse(
        r#"
        Module sim;
        Define once(IN long tag, IN int n, INOUT char x[n]) Calls "C" once(tag, n, x);
        Define again(IN long tag, IN int n, INOUT char x[n])
            Repeatable "yes" Calls "C" again(tag, n, x);
        Define make(IN long tag, IN int n, OUT char y[n])
            Repeatable "yes" Calls "C" make(tag, n, y);
        Define look(IN long tag, IN int n, IN char x[n], OUT char y[8])
            Calls "C" look(tag, n, x, y);
        Define ask(IN long tag, IN int n, INOUT char x[n], change(IN int k, INOUT char x[k]))
            Calls "C" ask(tag, n, x, change);
        Define wide(IN long tag, IN int n, INOUT char x[n])
            ProcessorElements 2, 3 Calls "C" wide(tag, n, x);
        DefClass Counter "Counts"
        {
            DefMethod add(IN long tag, IN int n, OUT char y[16]) Calls "C" add(tag, n, y);
        }
        "#,
    )
    .expect("the interfaces are right")
}

/// What an interface file says, if it is one.
pub(crate) fn parse(text: &str) -> Option<Document> {
    let parsed = farcall_idl::parse_document(text);
    (!parsed.has_errors()).then_some(parsed.document)
}

/// An interface file of a library with one function, `again` by another name.
pub(crate) fn library(number: u64) -> String {
    format!(
        "Module extra{number};\n\
         Define again{number}(IN long tag, IN int n, INOUT char x[n])\n    \
         Repeatable \"yes\" Calls \"C\" again(tag, n, x);\n"
    )
}

/// What a worker, or a client that is called back, makes of a byte.
pub(crate) fn next(byte: u8) -> u8 {
    byte & 0xf0 | byte.wrapping_add(1) & 0x0f
}

/// What `LOOK` returns of a byte: it is its caller's from then on, whosever it was.
pub(crate) fn look(user: u8, byte: u8) -> u8 {
    user << 4 | byte & 0x0f
}

/// The state of an object to which these calls were applied, in bytes of its user.
pub(crate) fn state(user: u8, applied: &[Tag]) -> Vec<u8> {
    let step =
        |sum: u64, Tag(tag): &Tag| (sum ^ tag).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    let sum = applied.iter().fold(applied.len() as u64, step);
    let nibbles = (0..STATE).map(|index| (sum >> (4 * index)) as u8 & 0x0f);
    nibbles.map(|nibble| user << 4 | nibble).collect()
}

/// The bytes of an array: whose it is, how it begins, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    /// 0 stands for a file of the data folder.
    pub(crate) user: u8,
    pub(crate) first: u8,
    pub(crate) count: u64,
}

impl Contents {
    /// A part of the bytes, each changed so many times.
    pub(crate) fn part(self, offset: u64, count: u64, changed: u64) -> Vec<u8> {
        let byte = |index: u64| {
            let low = u64::from(self.first)
                .wrapping_add(index)
                .wrapping_add(changed);
            self.user << 4 | low as u8 & 0x0f
        };
        (offset..offset + count).map(byte).collect()
    }

    /// All of the bytes, as they were put.
    pub(crate) fn bytes(self) -> Vec<u8> {
        self.part(0, self.count, 0)
    }
}
