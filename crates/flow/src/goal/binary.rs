//! Reads the binary form of GOAL, as LogGOPSim's txt2bin writes it. All numbers are little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 8 | 4223; 2342 if a run of LogGOPSim has used the file up |
//! | 4, 1, 1 | number of ranks, largest cpu, largest nic |
//! | 16 a rank | start and end of its schedule, counted from byte 8 |
//!
//! A schedule has the number of operations and the number of those that wait for nothing (4 bytes
//! each), the latter's numbers (4 each), the operations (39 each), and lists of successors (4
//! each). Nothing that a file says is trusted: schedules that overlap are refused, so that the
//! memory is bounded by the length of the file.

use super::{ANY_RANK, ANY_TAG, Builder, Goal, Operation};
use crate::error::TextError;
use crate::script::Limits;

const VALID: u64 = 4223;
const USED_UP: u64 = 2342;
const HEADER: usize = 14;
const OPERATION: usize = 39;

/// Whether the bytes start with a number of this form.
pub(super) fn is_binary(data: &[u8]) -> bool {
    data.first_chunk()
        .is_some_and(|&first| [VALID, USED_UP].contains(&u64::from_le_bytes(first)))
}

pub(super) fn parse(data: &[u8], limits: Limits) -> Result<Goal, TextError> {
    let fail = |reason: String| TextError::new(0, reason);
    read(data, limits).map_err(fail)?.finish()
}

/// Bytes of a file, read from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or("the file ends early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    fn u32(&mut self) -> Result<u32, String> {
        let bytes = self.take(4)?.first_chunk().copied();
        Ok(u32::from_le_bytes(bytes.unwrap_or_default()))
    }

    fn u64(&mut self) -> Result<u64, String> {
        let bytes = self.take(8)?.first_chunk().copied();
        Ok(u64::from_le_bytes(bytes.unwrap_or_default()))
    }
}

fn read(data: &[u8], limits: Limits) -> Result<Builder, String> {
    let mut header = Bytes(data);
    match header.u64()? {
        VALID => {}
        USED_UP => {
            return Err(
                "a run of LogGOPSim with --save-mem has used this schedule up: make it \
                        again with txt2bin"
                    .to_owned(),
            );
        }
        other => return Err(format!("starts with {other}, but a schedule with {VALID}")),
    }
    let ranks = header.u32()?;
    header.take(HEADER - 12)?;
    let mut trace = Builder::new(ranks, limits)?;
    let body = &data[8..];
    let mut room = data.len();
    for rank in 0..ranks {
        let (start, end) = (header.u64()?, header.u64()?);
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let part = range.and_then(|(start, end)| body.get(start..end));
        let Some(part) = part else {
            return Err(format!("rank {rank}: its schedule is not within the file"));
        };
        room = room
            .checked_sub(part.len())
            .ok_or_else(|| format!("rank {rank}: its schedule overlaps with another one"))?;
        trace.open(rank)?;
        schedule(&mut trace, rank, part).map_err(|reason| format!("rank {rank}: {reason}"))?;
    }
    Ok(trace)
}

/// Reads the schedule of one rank.
fn schedule(trace: &mut Builder, rank: u32, part: &[u8]) -> Result<(), String> {
    let mut bytes = Bytes(part);
    let (count, roots) = (bytes.u32()?, bytes.u32()?);
    bytes.take(4 * roots as usize)?;
    let mut operations = Bytes(bytes.take(OPERATION * count as usize)?);
    let lists = bytes.0;
    let mut room = lists.len() / 4;
    let mut waits = vec![0u32; count as usize];
    let mut said = Vec::with_capacity(count as usize);
    for number in 0..count {
        let place = |reason: String| format!("operation {number}: {reason}");
        said.push(operations.u32()?);
        let operation = operation(&mut operations, trace.ranks()).map_err(place)?;
        trace.add(rank, operation, None)?;
        for done in [true, false] {
            let (length, first) = (operations.u32()? as usize, operations.u32()? as usize);
            let too_many = || place("has more successors than the file".to_owned());
            room = room.checked_sub(length).ok_or_else(too_many)?;
            let successors = match length {
                0 => &[],
                _ => lists.get(4 * first..4 * (first + length)).unwrap_or(&[]),
            };
            if successors.len() != 4 * length {
                return Err(place("its successors are not within the file".to_owned()));
            }
            let mut successors = Bytes(successors);
            for _ in 0..length {
                let later = successors.u32()?;
                match waits.get_mut(later as usize) {
                    Some(waits) => *waits += 1,
                    None => return Err(place(format!("successor {later} of {count}"))),
                }
                trace.depend(rank, later, number, done)?;
            }
        }
    }
    match (0..waits.len()).find(|&number| waits[number] != said[number]) {
        Some(number) => Err(format!(
            "operation {number} waits for {} operations, but is a successor of {}",
            said[number], waits[number]
        )),
        None => Ok(()),
    }
}

/// Reads the part of an operation that says what it does.
fn operation(bytes: &mut Bytes<'_>, ranks: u32) -> Result<Operation, String> {
    let (kind, peer, size, tag) = (bytes.u8()?, bytes.u32()?, bytes.u64()?, bytes.u32()?);
    let (cpu, nic) = (bytes.u8()?, bytes.u8()?);
    let tag = match tag {
        u32::MAX => ANY_TAG,
        tag => u64::from(tag),
    };
    match kind {
        1 if peer < ranks => Ok(Operation::Send {
            to: peer,
            bytes: size as f64,
            tag,
            cpu,
            nic,
        }),
        2 if peer < ranks || peer == ANY_RANK => Ok(Operation::Receive { from: peer, tag }),
        1 | 2 => Err(format!("rank {peer} of {ranks}")),
        3 => Ok(Operation::Calc {
            seconds: size as f64 / 1e9,
            cpu,
        }),
        other => Err(format!("kind {other}, but 1, 2 or 3 is expected")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schedule that txt2bin makes of `TEXT`.
    const TEXT: &str = "num_ranks 2\nrank 0 {\nl1: calc 100 cpu 1\nl2: send 10b to 1 tag 4 nic 2\n\
                        l2 requires l1\n}\nrank 1 {\nl1: recv 10b from -1 tag -1\nl2: calc 5\n\
                        l2 irequires l1\n}\n";

    fn node(waits: u32, kind: u8, peer: u32, size: u64, tag: u32, places: [u8; 2]) -> Vec<u8> {
        let mut out = waits.to_le_bytes().to_vec();
        out.push(kind);
        out.extend(peer.to_le_bytes());
        out.extend(size.to_le_bytes());
        out.extend(tag.to_le_bytes());
        out.extend(places);
        out
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn file() -> Vec<u8> {
        let first = [
            words(&[2, 1, 0]),
            node(0, 3, 0, 100, 0, [1, 0]),
            words(&[1, 0, 0, 999]),
            node(1, 1, 1, 10, 4, [0, 2]),
            words(&[0, 999, 0, u32::MAX, 1]),
        ]
        .concat();
        let second = [
            words(&[2, 1, 0]),
            node(0, 2, u32::MAX, 10, u32::MAX, [0, 0]),
            words(&[0, 999, 1, 0]),
            node(1, 3, 0, 5, 0, [0, 0]),
            words(&[0, 999, 0, u32::MAX, 1]),
        ]
        .concat();
        let start = (HEADER - 8 + 32) as u64;
        let middle = start + first.len() as u64;
        let end = middle + second.len() as u64;
        let mut out = VALID.to_le_bytes().to_vec();
        out.extend(words(&[2]));
        out.extend([1, 2]);
        for place in [start, middle, middle, end] {
            out.extend(place.to_le_bytes());
        }
        [out, first, second].concat()
    }

    #[test]
    fn a_binary_schedule_is_the_trace_of_its_text() {
        let limits = Limits::default();
        let (binary, text) = (Goal::read(&file(), limits), Goal::parse(TEXT, limits));
        let (binary, text) = (binary.unwrap(), text.unwrap());
        assert_eq!(binary.operations(), text.operations());
        assert_eq!(binary.waits, text.waits);
        for operation in 0..4 {
            let successors = binary.successors_of(operation);
            assert_eq!(successors, text.successors_of(operation));
            assert_eq!(binary.line(operation), None);
        }
    }

    #[test]
    fn every_shorter_file_is_refused() {
        let whole = file();
        for length in 0..whole.len() {
            assert!(
                Goal::parse_binary(&whole[..length], Limits::default()).is_err(),
                "{length} bytes"
            );
        }
    }

    #[test]
    fn errors_name_rank_and_operation() {
        let first = HEADER + 32 + 12;
        for (at, value, part) in [
            (0, 38u8, "used this schedule up"),
            (0, 1, "starts with"),
            (8, 0, "between 1 and"),
            (HEADER, 255, "rank 0: its schedule"),
            (first + 4, 9, "rank 0: operation 0: kind 9"),
            (first + 39, 7, "operation 1 waits for 7"),
            (first + 39 + 5, 9, "operation 1: rank 9 of 2"),
            (first + 23, 9, "operation 0: has more successors"),
            (first + 78, 6, "operation 0: successor 6 of 2"),
        ] {
            let mut data = file();
            data[at] = value;
            if at == 0 && value == 38 {
                data[1] = 9;
            }
            let error = Goal::parse_binary(&data, Limits::default()).unwrap_err();
            assert!(error.reason.contains(part), "{error}");
        }
    }

    #[test]
    fn schedules_that_overlap_are_refused() {
        let mut data = file();
        let first: Vec<u8> = data[HEADER..HEADER + 16].to_vec();
        data.truncate(HEADER + 32 + 95);
        data[HEADER + 16..HEADER + 32].copy_from_slice(&first);
        let error = Goal::parse_binary(&data, Limits::default()).unwrap_err();
        assert!(error.reason.contains("overlaps"), "{error}");
    }
}
