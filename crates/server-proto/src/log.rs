//! The log of durable calls as bytes: frames with checksums, and how they are found again in a
//! file that is damaged.
//!
//! A state folder has two logs with the same frames. A frame has a sequence number and the identity
//! of its folder, so that [`merge()`] can tell which frames a log lacks, and which do not belong to
//! it. This module reads and writes bytes only; `ledger` knows what the frames say.

mod merge;

pub use merge::{Merged, Missing, Place, Verdict, merge};

use farcall_rpc_proto::JobId;

/// First bytes of a frame.
const MAGIC: [u8; 4] = *b"FcLg";
/// Version of the frames.
const VERSION: u8 = 1;
/// Bytes before the payload.
pub const HEAD_BYTES: usize = 68;
/// Most bytes of a payload.
pub const MOST_PAYLOAD: usize = 16 << 20;

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum Kind {
    /// A call with all that is known about it.
    Call = 1,
    /// The newest state of a call.
    Status = 2,
    /// The end of a record.
    Forget = 3,
    /// The log begins anew: the frames before it are no longer needed.
    Snapshot = 4,
    /// How long the server has served.
    Clock = 5,
    /// At the end of a file: the call whose arguments it has.
    Arguments = 6,
    /// At the end of a file: the call whose results it has.
    Result = 7,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it says.
    pub kind: Kind,
    /// Place in the sequence of all frames of the folder.
    pub seq: u64,
    /// The last frame that was in both logs when this one was written.
    pub acked: u64,
    /// Milliseconds that servers had served with this folder.
    pub served: u64,
    /// Identity of the folder.
    pub folder: u64,
    /// The call.
    pub id: JobId,
    /// Bytes of the payload. For a snapshot, [`Head::count`] frames follow instead.
    pub length: u32,
    /// CRC-32 of the payload.
    pub sum: u32,
}

impl Head {
    /// Bytes of the whole frame.
    pub fn bytes(&self) -> u64 {
        HEAD_BYTES as u64 + u64::from(self.length)
    }

    /// How many frames belong to a snapshot: its id has the number.
    pub fn count(&self) -> u64 {
        match self.kind {
            Kind::Snapshot => number(&self.id.0, 0),
            _ => 0,
        }
    }

    /// Greatest number of a call before a snapshot.
    pub(crate) fn last_number(&self) -> u64 {
        number(&self.id.0, 8)
    }
}

/// The id of a snapshot: how many frames belong to it, and the greatest number of a call so far.
pub(crate) fn snapshot_id(count: u64, last_number: u64) -> JobId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&count.to_le_bytes());
    id[8..].copy_from_slice(&last_number.to_le_bytes());
    JobId(id)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

fn short(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

/// Appends a frame. Length and checksum in `head` are ignored, and those of the payload written.
pub fn encode(head: &Head, payload: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    for number in [head.seq, head.acked, head.served, head.folder] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&[head.kind as u8, VERSION, 0, 0]);
    out.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
    out.extend_from_slice(&head.id.0);
    let sum = crc32fast::hash(&out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(payload);
}

/// Reads the head of a frame at the beginning of `bytes`; `None` if there is none, or it is
/// damaged.
pub fn decode(bytes: &[u8]) -> Option<Result<Head, Newer>> {
    let head = bytes.get(..HEAD_BYTES)?;
    let covered = &head[..HEAD_BYTES - 4];
    if !head.starts_with(&MAGIC) || crc32fast::hash(covered) != short(head, HEAD_BYTES - 4) {
        return None;
    }
    let kind = Kind::from_repr(head[40]);
    let (Some(kind), VERSION) = (kind, head[41]) else {
        return Some(Err(Newer(head[41])));
    };
    let length = short(head, 4);
    if length as usize > MOST_PAYLOAD {
        return None;
    }
    let mut id = [0; 16];
    id.copy_from_slice(&head[48..64]);
    Some(Ok(Head {
        kind,
        seq: number(head, 8),
        acked: number(head, 16),
        served: number(head, 24),
        folder: number(head, 32),
        id: JobId(id),
        length,
        sum: short(head, 44),
    }))
}

/// Whether these are the bytes that a head describes.
pub fn is_payload(head: &Head, payload: &[u8]) -> bool {
    payload.len() == head.length as usize && crc32fast::hash(payload) == head.sum
}

/// The frame that ends a file: the frame, its length, and four bytes by which it is found.
pub fn encode_trailer(head: &Head, payload: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    encode(head, payload, out);
    let bytes = (out.len() - start) as u32;
    out.extend_from_slice(&bytes.to_le_bytes());
    out.extend_from_slice(&TRAILER);
}

/// Last bytes of a file with a trailer.
const TRAILER: [u8; 4] = *b"FcTr";
/// Bytes after the frame of a trailer.
pub const TRAILER_BYTES: usize = 8;

/// Bytes of the trailer of a file that ends with these bytes, without the last eight.
pub fn trailer_bytes(last: &[u8; TRAILER_BYTES]) -> Option<usize> {
    let bytes = short(last, 0) as usize;
    let is_sound = last.ends_with(&TRAILER) && bytes >= HEAD_BYTES;
    (is_sound && bytes <= HEAD_BYTES + MOST_PAYLOAD).then_some(bytes)
}

/// The folder was written by a newer farcall, with this version of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newer(pub u8);

/// What is found in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A frame at this offset. If it is not whole, only its head can be used.
    Frame(Head, u64, bool),
    /// Bytes that are not part of a frame, from one offset to another.
    Damaged(u64, u64),
    /// A frame of a newer version.
    Newer(Newer),
}

/// Finds the frames of a log. After a damaged stretch it finds the next whole frame. Zeros at the
/// end are no damage: a log has room for its next frames.
#[derive(Debug, Default)]
pub struct Scanner {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were examined.
    start: usize,
    /// Offset of the buffer in the log.
    offset: u64,
    /// Where the damaged stretch began.
    damaged: Option<u64>,
    /// Whether it has only zeros so far.
    is_blank: bool,
    /// Where the payload of the last damaged frame ends.
    payload_end: u64,
}

impl Scanner {
    /// Accepts the next bytes of the log.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.offset += self.start as u64;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// What comes next; `None` if more bytes are needed, or after all of them if it `is_end`.
    pub fn next(&mut self, is_end: bool) -> Option<Found> {
        loop {
            let here = self.offset + self.start as u64;
            let rest = &self.buffer[self.start..];
            if rest.len() < HEAD_BYTES && !is_end {
                return None;
            }
            // A payload has bytes of callers. What looks like a frame there has no say about the
            // version, and a frame that is ours has the identity of the folder, which nobody knows.
            let may_be = |head: &Result<Head, Newer>| head.is_ok() || here >= self.payload_end;
            let head = match decode(rest).filter(may_be) {
                None if rest.is_empty() => {
                    self.damaged = self.damaged.filter(|_| !self.is_blank);
                    return self.end_damage(here);
                }
                None => {
                    let skipped = next_magic(rest);
                    self.is_blank |= self.damaged.is_none();
                    self.is_blank &= rest[..skipped].iter().all(|byte| *byte == 0);
                    self.damaged.get_or_insert(here);
                    self.start += skipped;
                    continue;
                }
                Some(Err(newer)) => {
                    self.start += HEAD_BYTES;
                    return Some(Found::Newer(newer));
                }
                Some(Ok(head)) => head,
            };
            let length = head.length as usize;
            let payload = rest.get(HEAD_BYTES..HEAD_BYTES + length);
            if payload.is_none() && !is_end {
                return None;
            }
            let is_whole = payload.is_some_and(|payload| is_payload(&head, payload));
            if let Some(found) = self.end_damage(here) {
                return Some(found);
            }
            // Whole frames may lie behind the head of a damaged one.
            self.start += HEAD_BYTES + if is_whole { length } else { 0 };
            if !is_whole {
                (self.damaged, self.is_blank) = (Some(here), false);
                self.payload_end = here + head.bytes();
            }
            return Some(Found::Frame(head, here, is_whole));
        }
    }

    fn end_damage(&mut self, here: u64) -> Option<Found> {
        let from = self.damaged.take()?;
        Some(Found::Damaged(from, here))
    }
}

/// Where the next frame may begin, after the first byte.
fn next_magic(bytes: &[u8]) -> usize {
    let rest = bytes.get(1..).unwrap_or_default();
    let at = rest.iter().position(|byte| *byte == MAGIC[0]);
    at.map_or(bytes.len(), |at| at + 1)
}

/// Finds the frames of a log that is in memory.
pub fn scan(log: &[u8]) -> Vec<Found> {
    let mut scanner = Scanner::default();
    scanner.feed(log);
    std::iter::from_fn(|| scanner.next(true)).collect()
}

#[cfg(test)]
mod tests;
