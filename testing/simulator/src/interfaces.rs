//! The functions that the simulated servers serve, and what they do with bytes. From the contents
//! of the arguments, the checker computes what a result must be, so that a byte of another user or
//! call is noticed.

use farcall_idl::Document;
use std::fmt;

/// Identifies a call: its user, its client, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag(pub(crate) u64);

impl Tag {
    /// The user who made the call.
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
pub(crate) const NAMES: [&str; 8] = [
    "sim/once",
    "sim/again",
    "sim/make",
    "sim/look",
    "sim/ask",
    "sim/wide",
    "sim/both",
    "sim/Counter.add",
];
/// Returns its array with each byte changed.
pub(crate) const ONCE: usize = 0;
/// As `ONCE`, and declared repeatable.
pub(crate) const AGAIN: usize = 1;
/// Fills only the first half of the array that it returns.
pub(crate) const MAKE: usize = 2;
/// Reads its array, and returns the beginning of it.
pub(crate) const LOOK: usize = 3;
/// Lets a callback change the beginning of its array first.
pub(crate) const ASK: usize = 4;
/// Needs several processor elements.
pub(crate) const WIDE: usize = 5;
/// Returns its first array with each byte changed, and the beginning of its second one.
pub(crate) const BOTH: usize = 6;
/// The method of an object, which returns the new state.
pub(crate) const ADD: usize = 7;

/// The class of objects.
pub(crate) const CLASS: &str = "sim/Counter";
/// Bytes that `LOOK` and `BOTH` return of an array that they read.
pub(crate) const LOOKED: usize = 8;
/// Bytes of the state that a method returns.
pub(crate) const STATE: usize = 16;
/// Most bytes that the callback of `ASK` changes.
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
        Define both(IN long tag, IN int n, INOUT char x[n], IN int m, IN char y[m], OUT char z[8])
            Calls "C" both(tag, n, x, m, y, z);
        DefClass Counter "Counts"
        {
            DefMethod add(IN long tag, IN int n, OUT char y[16]) Calls "C" add(tag, n, y);
        }
        "#,
    )
    .expect("the interfaces are right")
}

/// Parses an interface file.
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

/// The name of a user.
pub(crate) fn user_name(user: u8) -> String {
    format!("user {user}")
}

/// The byte into which a worker, or a callback, changes a byte.
pub(crate) fn next(byte: u8) -> u8 {
    byte & 0xf0 | byte.wrapping_add(1) & 0x0f
}

/// The byte that `LOOK` returns for a byte. It then belongs to the caller.
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

/// The bytes of an array: its user, its seed and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    /// 0 stands for a file of the data folder.
    pub(crate) user: u8,
    pub(crate) first: u8,
    pub(crate) count: u64,
}

impl Contents {
    /// A part of the bytes, each changed this many times.
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
