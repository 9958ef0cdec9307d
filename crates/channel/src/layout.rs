//! The layout of a segment: the offsets of all its parts, computed from its [`Shape`]. `segment`
//! has the memory. Each side computes the layout itself, and the parts do not overlap. An
//! impossible shape is refused before any memory is mapped.

use crate::ring::{CONTROL_BYTES, RECORD_HEADER};

/// Bounds of a FIFO. A message counts with its length plus eight bytes, padded to eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fifo {
    /// The largest number of bytes.
    pub bytes: u32,
    /// The largest number of messages, or of parts of a long message.
    pub messages: u32,
}

/// The parameters of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of the gang job.
    pub job: u64,
    /// Number of its processes.
    pub size: u16,
    /// Ranks of the processes on this node, ascending.
    pub locals: Vec<u16>,
    /// Number of channels that the program can open.
    pub channels: u8,
    /// The partition of each rank. Ranks can send only to ranks of the same partition.
    pub partitions: Vec<u16>,
    /// Bound on the unacknowledged messages from one process to other nodes.
    pub send: Fifo,
    /// Bound on the messages that one process has received and not consumed.
    pub receive: Fifo,
    /// Whether a waiting process may spin before it sleeps: true if each has a processor of its
    /// own.
    pub spin: bool,
    /// Whether the gang job is restarted from a checkpoint. Its rings have space for what both
    /// sides of a pair held.
    pub is_restored: bool,
}

impl Shape {
    /// The size of PM's send FIFO: 512 messages and 48 KB. Its receive FIFO has 4096 messages and
    /// 64 KB.
    pub const SEND: Fifo = Fifo {
        bytes: 48 << 10,
        messages: 512,
    };
    /// See [`Shape::SEND`].
    pub const RECEIVE: Fifo = Fifo {
        bytes: 64 << 10,
        messages: 4096,
    };
}

/// Why a segment of this shape is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A number is out of its range.
    #[error("{what} is {value}; it must be from {least} to {most}")]
    Range {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The smallest allowed value.
        least: u64,
        /// The largest allowed value.
        most: u64,
    },
    /// Ranks or partitions do not fit the number of processes.
    #[error("the ranks on this node, or the partitions, do not match the number of processes")]
    Ranks,
    /// The segment would not fit into the address space.
    #[error("the memory segment would be larger than this machine can map")]
    TooLarge,
}

/// The largest number of processes of a gang job.
pub(crate) const MAX_SIZE: u64 = 4096;
const MAX_CHANNELS: u64 = 8;
const MAX_FIFO: u64 = 1 << 30;
/// A smaller FIFO would not hold two of the smallest parts.
const MIN_FIFO: u64 = 1 << 10;

pub(crate) const HEADER_BYTES: usize = 256;
pub(crate) const ELEMENT_BYTES: usize = 512;
/// Marks a rank on another node.
pub(crate) const REMOTE: u16 = u16::MAX;
const PAGE: u64 = 4096;

/// The offsets of all parts of a segment. Each side computes them once from the shape,
/// independently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub(crate) shape: Shape,
    /// Place of each rank among the local ranks, or [`REMOTE`].
    pub(crate) place: Vec<u16>,
    /// Place of each rank among the ranks of other nodes, or [`REMOTE`] for a local rank.
    pub(crate) remote: Vec<u16>,
    pub(crate) remotes: usize,
    pub(crate) ring_bytes: usize,
    elements: usize,
    controls: usize,
    data: usize,
    bytes: usize,
}

impl Layout {
    /// Computes the layout for a shape.
    pub fn new(shape: Shape) -> Result<Layout, ShapeError> {
        check(&shape)?;
        let size = usize::from(shape.size);
        let mut place = vec![REMOTE; size];
        for (index, rank) in shape.locals.iter().enumerate() {
            place[usize::from(*rank)] = index as u16;
        }
        let mut remotes = 0;
        let remote = |local: &u16| match *local {
            REMOTE => {
                remotes += 1;
                remotes - 1
            }
            _ => REMOTE,
        };
        let remote: Vec<u16> = place.iter().map(remote).collect();
        let remotes = usize::from(remotes);
        let locals = shape.locals.len() as u64;
        let channels = u64::from(shape.channels) * 2;
        let rings = channels * locals * (size + remotes) as u64;
        let fifo = shape.send.bytes.max(shape.receive.bytes);
        let ring_bytes = u64::from(fifo).next_power_of_two().max(PAGE);
        let ring_bytes = ring_bytes << u32::from(shape.is_restored);
        let elements = (HEADER_BYTES as u64 + 4 * size as u64).next_multiple_of(256);
        let controls = elements + channels * locals * ELEMENT_BYTES as u64;
        let data = (controls + rings * CONTROL_BYTES as u64).next_multiple_of(PAGE);
        let bytes = rings
            .checked_mul(ring_bytes)
            .and_then(|rings| rings.checked_add(data))
            .filter(|bytes| *bytes <= isize::MAX as u64)
            .ok_or(ShapeError::TooLarge)?;
        Ok(Layout {
            shape,
            place,
            remote,
            remotes,
            ring_bytes: ring_bytes as usize,
            elements: elements as usize,
            controls: controls as usize,
            data: data as usize,
            bytes: bytes as usize,
        })
    }

    /// Size of the whole segment in bytes. Only used pages occupy memory; at most `2 x channels x
    /// locals x (size + ranks on other nodes)` rings of a FIFO's size can be in use.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of channels, including those of the collective operations.
    pub(crate) fn all_channels(&self) -> usize {
        usize::from(self.shape.channels) * 2
    }

    /// Bytes of the longest part of a message.
    pub(crate) fn part_bytes(&self) -> usize {
        let fifo = self.shape.send.bytes.min(self.shape.receive.bytes) as usize;
        let part = (fifo / 4).min(8 << 10) - RECORD_HEADER as usize;
        part & !7
    }

    /// The most bytes of a ring that are saved with its receiver.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.ring_bytes >> u32::from(self.shape.is_restored)
    }

    pub(crate) fn element(&self, channel: usize, place: usize) -> usize {
        self.elements + (channel * self.shape.locals.len() + place) * ELEMENT_BYTES
    }

    /// The ring from any rank to a local process: the offsets of its control block and its data.
    pub(crate) fn inbound(&self, channel: usize, place: usize, source: usize) -> (usize, usize) {
        let size = usize::from(self.shape.size);
        self.ring((channel * self.shape.locals.len() + place) * size + source)
    }

    /// The ring from a local process to a rank of another node, given by its place among the remote
    /// ranks.
    pub(crate) fn outbound(&self, channel: usize, place: usize, remote: usize) -> (usize, usize) {
        let locals = self.shape.locals.len();
        let inbound = self.all_channels() * locals * usize::from(self.shape.size);
        self.ring(inbound + (channel * locals + place) * self.remotes + remote)
    }

    fn ring(&self, index: usize) -> (usize, usize) {
        (
            self.controls + index * CONTROL_BYTES,
            self.data + index * self.ring_bytes,
        )
    }
}

fn check(shape: &Shape) -> Result<(), ShapeError> {
    let within = |what, value: u64, least, most| match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(ShapeError::Range {
            what,
            value,
            least,
            most,
        }),
    };
    within("the number of processes", shape.size.into(), 1, MAX_SIZE)?;
    within(
        "the number of channels",
        shape.channels.into(),
        1,
        MAX_CHANNELS,
    )?;
    for (what, fifo) in [("send", shape.send), ("receive", shape.receive)] {
        let (bytes, messages) = match what {
            "send" => ("the send FIFO in bytes", "the send FIFO in messages"),
            _ => ("the receive FIFO in bytes", "the receive FIFO in messages"),
        };
        within(bytes, fifo.bytes.into(), MIN_FIFO, MAX_FIFO)?;
        within(messages, fifo.messages.into(), 8, 1 << 20)?;
    }
    let locals = &shape.locals;
    let ascending = locals.windows(2).all(|pair| pair[0] < pair[1]);
    let in_range = locals.last().is_some_and(|last| *last < shape.size);
    if !ascending || !in_range || shape.partitions.len() != usize::from(shape.size) {
        return Err(ShapeError::Ranks);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(size: u16, locals: Vec<u16>) -> Shape {
        Shape {
            job: 1,
            size,
            locals,
            channels: 1,
            partitions: vec![0; size.into()],
            send: Shape::SEND,
            receive: Shape::RECEIVE,
            spin: true,
            is_restored: false,
        }
    }

    #[test]
    fn rings_lie_side_by_side_within_the_segment() {
        let layout = Layout::new(shape(5, vec![1, 3])).expect("sound");
        let mut rings = Vec::new();
        for channel in 0..2 {
            for place in 0..2 {
                rings.extend((0..5).map(|source| layout.inbound(channel, place, source)));
                rings.extend((0..3).map(|remote| layout.outbound(channel, place, remote)));
            }
        }
        rings.sort_unstable();
        assert!(layout.element(1, 1) + ELEMENT_BYTES <= rings[0].0);
        for pair in rings.windows(2) {
            assert_eq!(pair[0].0 + CONTROL_BYTES, pair[1].0);
            assert_eq!(pair[0].1 + layout.ring_bytes, pair[1].1);
        }
        assert_eq!(rings[31].1 + layout.ring_bytes, layout.bytes());
    }

    #[test]
    fn impossible_shapes_are_refused() {
        assert!(Layout::new(shape(0, vec![])).is_err());
        assert!(Layout::new(shape(4, vec![4])).is_err());
        assert!(Layout::new(shape(4, vec![2, 1])).is_err());
        let mut small = shape(2, vec![0, 1]);
        small.send.bytes = 100;
        let error = Layout::new(small).expect_err("too small").to_string();
        assert!(error.contains("the send FIFO in bytes is 100"), "{error}");
    }
}
