//! What networks on top of channels use: messages whose first bytes have a place of their own, as
//! the headers of such a network do. Nearly all of them are short and already there, so that these
//! functions take few steps then.

use super::Channel;
use crate::error::{ChannelError, Corrupt};
use crate::message::{Arrival, Message, check_head};
use crate::ring::Record;

impl Channel {
    /// Sends a message whose bytes are in two places, if it fits into the FIFO now. Returns whether
    /// it was sent. `head` is at most [`crate::HEAD_BYTES`] long.
    #[inline]
    pub fn try_send_parts(
        &mut self,
        target: usize,
        head: &[u8],
        bytes: &[u8],
    ) -> Result<bool, ChannelError> {
        check_head(head)?;
        let mut transfer = self.outgoing(target, bytes)?;
        transfer.head = head;
        let count = head.len() + bytes.len();
        let part = self.segment.layout.part_bytes();
        let (records, span) = match count <= part {
            true => (1, Record::span(count as u32)),
            false => self.records(count)?,
        };
        let space = self.outbound[target].has_space(span)?;
        if !space || !self.reserve(target, records, span)? {
            return Ok(false);
        }
        while transfer.put(part, &mut self.outbound[target]) {}
        self.announce(target);
        Ok(true)
    }

    /// The number of records of a message that is longer than a part, and the bytes that they
    /// occupy.
    fn records(&self, count: usize) -> Result<(u64, u64), ChannelError> {
        let room = self.eager_bytes();
        if count > room {
            return Err(ChannelError::TooLong { bytes: count, room });
        }
        let part = self.segment.layout.part_bytes();
        let records = count.div_ceil(part) as u64;
        let last = count - (records as usize - 1) * part;
        let span = (records - 1) * Record::span(part as u32) + Record::span(last as u32);
        Ok((records, span))
    }

    /// Receives a message of one rank into two places: its first bytes fill `head`, which is at
    /// most [`crate::HEAD_BYTES`] long.
    #[inline]
    pub fn receive_parts(
        &mut self,
        source: usize,
        head: &mut [u8],
        buffer: &mut [u8],
    ) -> Result<Message, ChannelError> {
        check_head(head)?;
        let wait = self.waits_for(Some(source))?;
        // Mostly it is there, in one record.
        if let Some(record) = self.inbound[source].peek()?
            && record.rest == 0
        {
            let message = Message::of(source, record);
            let whole = Arrival::with_head(message, head, buffer)?;
            self.inbound[source].read_parts(record, whole.head, whole.buffer);
            self.give_back(source, Record::span(record.bytes), true);
            return Ok(message);
        }
        let message = self.wait(wait, |channel| channel.poll(Some(source)))?;
        let mut arrival = Arrival::with_head(message, head, buffer)?;
        self.wait_for_rest(&mut arrival)?;
        Ok(message)
    }

    /// The message that would be received next, if there is one, and a copy of its first bytes.
    /// `head` is at most [`crate::HEAD_BYTES`] long. Bytes beyond the end of the message stay as
    /// they are.
    #[inline]
    pub fn peek(
        &mut self,
        source: Option<usize>,
        head: &mut [u8],
    ) -> Result<Option<Message>, ChannelError> {
        check_head(head)?;
        self.waits_for(source)?;
        let Some((source, record)) = self.find(source)? else {
            return Ok(None);
        };
        let message = Message::of(source, record);
        let there = record.bytes as usize;
        if there < head.len().min(message.bytes) {
            return Err(Corrupt.into());
        }
        let count = head.len().min(there);
        self.inbound[source].look(&mut head[..count]);
        Ok(Some(message))
    }
}
