//! Messages on their way into a ring and out of one, in parts that fit. A message has one place in
//! the memory of its process or two: its first bytes can have one of their own. `channel` has the
//! rings and the waits.

use crate::error::ChannelError;
use crate::ring::{Producer, Record};

/// The most bytes that a message can have in a place of their own: see
/// [`crate::Channel::try_send_parts`].
pub const HEAD_BYTES: usize = 64;

/// A message that was received or can be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The rank of the sender.
    pub source: usize,
    /// Length of the message in bytes.
    pub bytes: usize,
}

impl Message {
    /// The message from this source that begins with, or goes on at, this record.
    pub(crate) fn of(source: usize, record: Record) -> Message {
        Message {
            source,
            bytes: record.bytes as usize + record.rest as usize,
        }
    }
}

pub(crate) fn check_head(head: &[u8]) -> Result<(), ChannelError> {
    match head.len() > HEAD_BYTES {
        true => Err(ChannelError::TooLong {
            bytes: head.len(),
            room: HEAD_BYTES,
        }),
        false => Ok(()),
    }
}

/// A message that is being sent.
pub(crate) struct Outgoing<'a> {
    pub(crate) target: usize,
    /// The first bytes, which are in the first record.
    pub(crate) head: &'a [u8],
    /// The bytes that are not yet in the ring.
    pub(crate) bytes: &'a [u8],
    pub(crate) is_done: bool,
}

impl Outgoing<'_> {
    pub(crate) fn next(&self, part: usize) -> usize {
        (self.head.len() + self.bytes.len()).min(part)
    }

    /// Writes the next part. Returns true if more parts follow.
    pub(crate) fn put(&mut self, part: usize, ring: &mut Producer) -> bool {
        let head = std::mem::take(&mut self.head);
        let (now, rest) = self
            .bytes
            .split_at((part - head.len()).min(self.bytes.len()));
        let record = Record {
            bytes: (head.len() + now.len()) as u32,
            rest: rest.len() as u32,
        };
        ring.write_parts(record, head, now);
        self.bytes = rest;
        self.is_done = rest.is_empty();
        !self.is_done
    }
}

/// A message that is being received.
pub(crate) struct Arrival<'a> {
    pub(crate) source: usize,
    pub(crate) head: &'a mut [u8],
    pub(crate) buffer: &'a mut [u8],
    pub(crate) filled: usize,
    pub(crate) is_done: bool,
}

impl<'a> Arrival<'a> {
    pub(crate) fn new(message: Message, buffer: &'a mut [u8]) -> Result<Arrival<'a>, ChannelError> {
        Arrival::with_head(message, &mut [], buffer)
    }

    pub(crate) fn with_head(
        message: Message,
        head: &'a mut [u8],
        buffer: &'a mut [u8],
    ) -> Result<Arrival<'a>, ChannelError> {
        let room = head.len() + buffer.len();
        let in_head = head.len().min(message.bytes);
        match buffer.get_mut(..message.bytes - in_head) {
            Some(buffer) => Ok(Arrival {
                source: message.source,
                head: &mut head[..in_head],
                buffer,
                filled: 0,
                is_done: false,
            }),
            None => Err(ChannelError::TooLong {
                bytes: message.bytes,
                room,
            }),
        }
    }

    /// Bytes that are missing.
    pub(crate) fn missing(&self) -> usize {
        self.head.len() + self.buffer.len() - self.filled
    }

    /// The places of the next `bytes` bytes: in the head, and in the buffer.
    pub(crate) fn places(&mut self, bytes: usize) -> (&mut [u8], &mut [u8]) {
        let all_head = self.head.len();
        let of_head = self.filled.min(all_head);
        let now = (all_head - of_head).min(bytes);
        (
            &mut self.head[of_head..][..now],
            &mut self.buffer[self.filled - of_head..][..bytes - now],
        )
    }
}
