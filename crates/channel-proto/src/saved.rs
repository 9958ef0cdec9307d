//! The form in which a checkpoint holds the state of one process: the messages of its channels, and
//! the head of the arrays that its program has registered. A reader of a checkpoint cannot trust
//! it, so everything is bounded by the bytes that are there, and impossible contents are an error.

use alloc::vec::Vec;

/// Bytes of the header of a record, which is a part of a message. A little-endian word has the
/// length of the part in its lower half, and in its upper half the bytes of the message that follow
/// in later records. The part is padded to eight bytes.
const RECORD_HEADER: usize = 8;

/// Bytes of a queue before its records: its channel, a byte of zero, its peer, the length of its
/// records, and its number.
const QUEUE_HEADER: usize = 16;

/// Bytes of the head of registered arrays before their lengths.
pub const ARRAYS_HEADER: usize = 24;

/// The most arrays that a program can register.
pub const MAX_ARRAYS: usize = 4096;

const MAGIC: &[u8; 8] = b"FCARRAY1";

/// Contents that no correct process saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the saved state of a process is damaged: {0}")]
pub struct SavedError(pub &'static str);

/// The messages that one rank has for another on one channel, as whole records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// The channel; those of the collective operations follow the program's.
    pub channel: u8,
    /// The rank at the other end.
    pub peer: u16,
    /// If the two ranks were on different nodes: the number of the first record that the sender
    /// still has, or of the next record that the receiver expects. 0 after [`normalise`].
    pub number: u64,
    /// The records.
    pub records: Vec<u8>,
}

/// What the channels of one rank hold in a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Messages that have arrived and are not consumed, by their senders.
    pub received: Vec<Queue>,
    /// Messages that have not arrived, by their receivers.
    pub unsent: Vec<Queue>,
}

impl Saved {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for list in [&self.received, &self.unsent] {
            out.extend_from_slice(&(list.len() as u32).to_le_bytes());
        }
        for queue in self.received.iter().chain(&self.unsent) {
            out.extend_from_slice(&[queue.channel, 0]);
            out.extend_from_slice(&queue.peer.to_le_bytes());
            out.extend_from_slice(&(queue.records.len() as u32).to_le_bytes());
            out.extend_from_slice(&queue.number.to_le_bytes());
            out.extend_from_slice(&queue.records);
        }
    }

    /// Decodes what [`Saved::encode`] has written, and nothing else.
    ///
    /// # Errors
    /// The bytes end too early or too late, or have records that are not whole.
    pub fn decode(bytes: &[u8]) -> Result<Saved, SavedError> {
        let mut rest = bytes;
        let counts = take::<8>(&mut rest)?;
        let (one, other) = counts.split_at(4);
        let mut lists = [Vec::new(), Vec::new()];
        for (list, count) in lists.iter_mut().zip([one, other]) {
            for _ in 0..word(count) {
                list.push(queue(&mut rest)?);
            }
        }
        if !rest.is_empty() {
            return Err(SavedError("bytes follow its messages"));
        }
        let [received, unsent] = lists;
        Ok(Saved { received, unsent })
    }
}

fn queue(rest: &mut &[u8]) -> Result<Queue, SavedError> {
    let head = take::<QUEUE_HEADER>(rest)?;
    let length = word(&head[4..8]) as usize;
    let (records, more) = rest
        .split_at_checked(length)
        .ok_or(SavedError("its messages are cut off"))?;
    *rest = more;
    count(records)?;
    let mut number = [0; 8];
    number.copy_from_slice(&head[8..]);
    Ok(Queue {
        channel: head[0],
        peer: u16::from_le_bytes([head[2], head[3]]),
        number: u64::from_le_bytes(number),
        records: records.to_vec(),
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], SavedError> {
    let (head, more) = rest
        .split_first_chunk::<N>()
        .ok_or(SavedError("its messages are cut off"))?;
    *rest = more;
    Ok(*head)
}

fn word(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[..4]);
    u32::from_le_bytes(word)
}

/// Bytes of the first record.
fn span(records: &[u8]) -> Result<usize, SavedError> {
    const WRONG: SavedError = SavedError("a message is not whole");
    let header = records.get(..RECORD_HEADER).ok_or(WRONG)?;
    let span = RECORD_HEADER as u64 + u64::from(word(header)).next_multiple_of(8);
    usize::try_from(span)
        .ok()
        .filter(|span| *span <= records.len())
        .ok_or(WRONG)
}

/// Number of records.
///
/// # Errors
/// The last one is not whole.
pub fn count(mut records: &[u8]) -> Result<u64, SavedError> {
    let mut count = 0;
    while !records.is_empty() {
        records = &records[span(records)?..];
        count += 1;
    }
    Ok(count)
}

/// Bytes of the first records that fit into `room` bytes.
///
/// # Errors
/// A record is not whole.
pub fn fitting(records: &[u8], room: usize) -> Result<usize, SavedError> {
    let mut bytes = 0;
    while bytes < records.len() {
        let span = span(&records[bytes..])?;
        if bytes + span > room {
            break;
        }
        bytes += span;
    }
    Ok(bytes)
}

/// Brings the contexts of all ranks into the form in which every message is on one side only: a
/// sender forgets what its receiver already has. Empty queues vanish.
///
/// # Errors
/// A receiver expects a record that its sender cannot have.
pub fn normalise(ranks: &mut [Saved]) -> Result<(), SavedError> {
    const WRONG: SavedError = SavedError("a receiver has messages that were never sent");
    for source in 0..ranks.len() {
        let mut unsent = core::mem::take(&mut ranks[source].unsent);
        for queue in &mut unsent {
            let receiver = ranks.get(usize::from(queue.peer));
            let receiver = receiver.ok_or(SavedError("a receiver does not exist"))?;
            let mut pairs = receiver.received.iter();
            let pair = pairs
                .find(|other| (other.channel, usize::from(other.peer)) == (queue.channel, source));
            let expected = pair.map_or(0, |pair| pair.number);
            let has = expected.checked_sub(queue.number).ok_or(WRONG)?;
            let mut bytes = 0;
            for _ in 0..has {
                bytes += span(&queue.records[bytes..]).map_err(|_| WRONG)?;
            }
            queue.records.drain(..bytes);
        }
        ranks[source].unsent = unsent;
    }
    for rank in ranks {
        for list in [&mut rank.received, &mut rank.unsent] {
            list.retain(|queue| !queue.records.is_empty());
            list.iter_mut().for_each(|queue| queue.number = 0);
        }
    }
    Ok(())
}

/// The head before the arrays that a program has registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrays {
    /// Number of steps that the process has done.
    pub steps: u64,
    /// After the last step of the program: the round of the barrier that ends the steps, from 1.
    pub closing: u32,
    /// Bytes of each array. The arrays follow the head, one after the other.
    pub lengths: Vec<u64>,
}

impl Arrays {
    /// The encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.steps.to_le_bytes());
        out.extend_from_slice(&self.closing.to_le_bytes());
        out.extend_from_slice(&(self.lengths.len() as u32).to_le_bytes());
        for length in &self.lengths {
            out.extend_from_slice(&length.to_le_bytes());
        }
        out
    }

    /// Bytes of the whole head of which `start` is the beginning.
    ///
    /// # Errors
    /// It is not a head, or has too many arrays.
    pub fn head_bytes(start: &[u8; ARRAYS_HEADER]) -> Result<usize, SavedError> {
        if start[..8] != *MAGIC {
            return Err(SavedError("it has no registered arrays of this version"));
        }
        match word(&start[20..]) as usize {
            count if count <= MAX_ARRAYS => Ok(ARRAYS_HEADER + 8 * count),
            _ => Err(SavedError("it has too many arrays")),
        }
    }

    /// Decodes a whole head, whose length [`Arrays::head_bytes`] tells.
    ///
    /// # Errors
    /// As for [`Arrays::head_bytes`], or the head has another length.
    pub fn decode(head: &[u8]) -> Result<Arrays, SavedError> {
        const CUT: SavedError = SavedError("the head of its arrays is cut off");
        let start = head.first_chunk::<ARRAYS_HEADER>().ok_or(CUT)?;
        if Arrays::head_bytes(start)? != head.len() {
            return Err(CUT);
        }
        let number = |bytes: &[u8]| {
            let mut number = [0; 8];
            number.copy_from_slice(bytes);
            u64::from_le_bytes(number)
        };
        Ok(Arrays {
            steps: number(&head[8..16]),
            closing: word(&head[16..20]),
            lengths: head[ARRAYS_HEADER..].chunks(8).map(number).collect(),
        })
    }

    /// Bytes of all arrays together, if that is a number.
    pub fn bytes(&self) -> Option<u64> {
        let mut lengths = self.lengths.iter();
        lengths.try_fold(0u64, |sum, length| sum.checked_add(*length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// A record whose part consists of `bytes` bytes.
    fn record(bytes: u8) -> Vec<u8> {
        let mut record = vec![bytes, 0, 0, 0, 0, 0, 0, 0];
        record.resize(8 + usize::from(bytes).next_multiple_of(8), bytes);
        record
    }

    fn queue(peer: u16, number: u64, records: &[u8]) -> Queue {
        Queue {
            channel: 1,
            peer,
            number,
            records: records.iter().flat_map(|bytes| record(*bytes)).collect(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let saved = Saved {
            received: vec![queue(1, 7, &[3, 0, 9]), queue(0, 0, &[])],
            unsent: vec![queue(2, 1, &[16])],
        };
        let mut bytes = Vec::new();
        saved.encode(&mut bytes);
        assert_eq!(Saved::decode(&bytes), Ok(saved));
        for end in 0..bytes.len() {
            assert!(Saved::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        bytes.push(0);
        assert!(Saved::decode(&bytes).is_err());
        let arrays = Arrays {
            steps: 5,
            closing: 2,
            lengths: vec![8, 0, 1 << 40],
        };
        let head = arrays.encode();
        let start = head.first_chunk().expect("long enough");
        assert_eq!(Arrays::head_bytes(start), Ok(head.len()));
        assert_eq!(Arrays::decode(&head), Ok(arrays));
        assert!(Arrays::decode(&head[..head.len() - 1]).is_err());
    }

    /// The receiver has two of the four records that its sender still has.
    #[test]
    fn every_message_is_on_one_side() {
        let mut ranks = [
            Saved {
                received: Vec::new(),
                unsent: vec![queue(1, 5, &[1, 2, 3, 4]), queue(2, 0, &[])],
            },
            Saved {
                received: vec![queue(0, 7, &[9, 1, 2])],
                unsent: Vec::new(),
            },
            Saved::default(),
        ];
        normalise(&mut ranks).expect("sound");
        assert_eq!(ranks[0].unsent, [queue(1, 0, &[3, 4])]);
        assert_eq!(ranks[1].received, [queue(0, 0, &[9, 1, 2])]);
        let mut wrong = ranks.clone();
        wrong[1].received[0].number = 3;
        assert!(normalise(&mut wrong).is_err());
        ranks[0].unsent[0].peer = 3;
        assert!(normalise(&mut ranks).is_err());
    }

    #[test]
    fn records_are_cut_between_them() {
        let records = queue(0, 0, &[8, 8, 24]).records;
        assert_eq!(count(&records), Ok(3));
        assert_eq!(fitting(&records, 16), Ok(16));
        assert_eq!(fitting(&records, 63), Ok(32));
        assert_eq!(fitting(&records, 64), Ok(64));
        assert!(count(&records[..40]).is_err());
    }
}
