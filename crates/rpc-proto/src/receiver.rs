//! The receiver: cuts incoming bytes into frames, and follows the data streams.
//!
//! Payload memory is allocated as its bytes arrive, never from an announced length alone.

use crate::frame::{BIG_ENDIAN, HEADER_BYTES, Header};
use crate::{CallId, FrameError, Kind, Limits, ProtocolError};
use alloc::vec::Vec;

/// A part of a call's data stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The call it belongs to.
    pub call: CallId,
    /// Offset in the call's data stream, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Whether its elements are big endian.
    pub big_endian: bool,
    /// Whether the bytes must be discarded, because the call is gone.
    pub discard: bool,
}

/// A complete control frame, or the header of a data frame.
pub(crate) enum Frame<'a> {
    Control(Header, &'a [u8]),
    Data(Header),
}

/// Cuts bytes into frames.
pub(crate) struct Receiver {
    limits: Limits,
    partial: Vec<u8>,
    /// Whether the partial frame was returned, and must be dropped before the next one.
    handed_out: bool,
    pub(crate) incoming: Option<Chunk>,
}

impl Receiver {
    pub(crate) fn new(limits: Limits) -> Receiver {
        Receiver {
            limits,
            partial: Vec::new(),
            handed_out: false,
            incoming: None,
        }
    }

    /// Takes bytes up to the end of one frame. Returns how many, and the frame if it is complete.
    pub(crate) fn next<'a>(
        &'a mut self,
        input: &'a [u8],
    ) -> Result<(usize, Option<Frame<'a>>), ProtocolError> {
        if self.incoming.is_some() {
            return Ok((0, None));
        }
        if core::mem::take(&mut self.handed_out) {
            self.partial.clear();
        }
        if self.partial.is_empty()
            && let Some(header) = self.header(input)?
        {
            if header.kind == Kind::Data {
                return Ok((HEADER_BYTES, Some(Frame::Data(header))));
            }
            let end = HEADER_BYTES + header.length as usize;
            if let Some(payload) = input.get(HEADER_BYTES..end) {
                return Ok((end, Some(Frame::Control(header, payload))));
            }
        }
        self.next_in_pieces(input)
    }

    fn next_in_pieces<'a>(
        &'a mut self,
        input: &[u8],
    ) -> Result<(usize, Option<Frame<'a>>), ProtocolError> {
        let mut taken = self.take_up_to(HEADER_BYTES, input);
        let Some(header) = self.header(&self.partial)? else {
            return Ok((taken, None));
        };
        if header.kind == Kind::Data {
            self.handed_out = true;
            return Ok((taken, Some(Frame::Data(header))));
        }
        let end = HEADER_BYTES + header.length as usize;
        taken += self.take_up_to(end, &input[taken..]);
        if self.partial.len() < end {
            return Ok((taken, None));
        }
        self.handed_out = true;
        Ok((
            taken,
            Some(Frame::Control(header, &self.partial[HEADER_BYTES..])),
        ))
    }

    fn take_up_to(&mut self, end: usize, input: &[u8]) -> usize {
        let count = end.saturating_sub(self.partial.len()).min(input.len());
        self.partial.extend_from_slice(&input[..count]);
        count
    }

    fn header(&self, bytes: &[u8]) -> Result<Option<Header>, ProtocolError> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = Header::decode(bytes)?;
        let limit = match header.kind {
            Kind::Data => u32::MAX,
            _ => self.limits.control_bytes,
        };
        if header.length > limit {
            return Err(FrameError::TooLong {
                length: header.length,
                limit,
            }
            .into());
        }
        Ok(Some(header))
    }

    /// Records that `count` bytes of the incoming chunk were taken. Returns what they were.
    ///
    /// # Panics
    /// If fewer bytes were incoming. This is a mistake of the caller, not of the peer.
    pub(crate) fn data_taken(&mut self, count: u64) -> Chunk {
        let chunk = self.incoming.as_mut().expect("data was incoming");
        let taken = Chunk {
            length: count,
            ..*chunk
        };
        chunk.offset += count;
        chunk.length = chunk
            .length
            .checked_sub(count)
            .expect("no more than was incoming");
        if chunk.length == 0 {
            self.incoming = None;
        }
        taken
    }
}

/// How much of a data stream has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    expected: u64,
    received: u64,
    big_endian: Option<bool>,
}

impl Stream {
    pub(crate) fn new(expected: u64) -> Stream {
        Stream {
            expected,
            received: 0,
            big_endian: None,
        }
    }

    /// Bytes of the whole stream.
    pub(crate) fn bytes(&self) -> u64 {
        self.expected
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.received == self.expected
    }

    /// Admits the data frame that `header` announces; its bytes count as received.
    pub(crate) fn admit(&mut self, header: &Header, discard: bool) -> Result<Chunk, ProtocolError> {
        let length = u64::from(header.length);
        let big_endian = header.flags & BIG_ENDIAN != 0;
        if length > self.expected - self.received || length == 0 {
            return Err(ProtocolError::StrayData);
        }
        if *self.big_endian.get_or_insert(big_endian) != big_endian {
            return Err(ProtocolError::StrayData);
        }
        let offset = self.received;
        self.received += length;
        Ok(Chunk {
            call: header.call,
            offset,
            length,
            big_endian,
            discard,
        })
    }
}
