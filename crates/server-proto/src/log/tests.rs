//! Tests of the frames of the logs. What is written is found again, and damage to one log hides no
//! frame of the other.

use super::*;
use proptest::prelude::*;

const FOLDER: u64 = 7;

fn head(kind: Kind, seq: u64, id: JobId) -> Head {
    Head {
        kind,
        seq,
        acked: seq.saturating_sub(1),
        served: seq * 10,
        folder: FOLDER,
        id,
        length: 0,
        sum: 0,
    }
}

/// A log of a snapshot and some calls.
fn log_of(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut log = Vec::new();
    let start = head(Kind::Snapshot, 1, snapshot_id(0, 0));
    encode(&start, &[], &mut log);
    for (payload, seq) in payloads.iter().zip(2..) {
        let head = head(Kind::Call, seq, JobId([seq as u8; 16]));
        encode(&head, payload, &mut log);
    }
    log
}

fn merged(a: &[u8], b: &[u8]) -> Merged {
    merge(FOLDER, [&scan(a), &scan(b)])
}

fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..20)
}

#[test]
fn a_log_is_read_in_parts_of_any_size() {
    let log = log_of(&[vec![1; 100], vec![], vec![2; 5000]]);
    for size in [1, 67, 68, 69, 1000] {
        let (mut scanner, mut found) = (Scanner::default(), Vec::new());
        for part in log.chunks(size) {
            scanner.feed(part);
            found.extend(std::iter::from_fn(|| scanner.next(false)));
        }
        found.extend(std::iter::from_fn(|| scanner.next(true)));
        assert_eq!(found, scan(&log));
    }
}

/// Logs without a snapshot are written anew.
#[test]
fn empty_logs_are_not_whole() {
    for room in [0, 100] {
        let empty = vec![0; room];
        assert_eq!(
            merged(&empty, &empty).verdicts,
            [Verdict::Torn, Verdict::Torn]
        );
    }
}

#[test]
fn a_log_of_another_folder_is_told_apart() {
    let log = log_of(&[vec![1; 10]]);
    let mut other = Vec::new();
    let foreign = Head {
        folder: FOLDER + 1,
        ..head(Kind::Snapshot, 1, snapshot_id(0, 0))
    };
    encode(&foreign, &[], &mut other);
    let merged = merged(&log, &other);
    assert_eq!((merged.frames.len(), merged.missing.len()), (2, 0));
    assert!(matches!(&merged.verdicts[1], Verdict::Damaged(how) if how.contains("another")));
}

#[test]
fn a_frame_that_both_logs_lack_is_missing_and_known_by_its_head() {
    let mut log = log_of(&[vec![1; 50], vec![2; 50], vec![3; 50]]);
    // Within the payload of the second call.
    let at = HEAD_BYTES + (HEAD_BYTES + 50) + HEAD_BYTES + 10;
    log[at] ^= 1;
    let merged = merged(&log, &log);
    assert_eq!(merged.missing.len(), 1);
    let missing = &merged.missing[0];
    assert_eq!(missing.seq, 3);
    assert_eq!(missing.head.map(|head| head.id), Some(JobId([3; 16])));
}

#[test]
fn a_newer_version_is_no_damage() {
    let mut log = log_of(&[vec![1; 50]]);
    log[41] = VERSION + 1;
    let sum = crc32fast::hash(&log[..HEAD_BYTES - 4]);
    log[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(scan(&log)[0], Found::Newer(Newer(VERSION + 1)));
}

/// The server that was killed while it wrote a caller's array must start again.
#[test]
fn a_caller_cannot_make_a_torn_log_one_of_a_newer_version() {
    let mut newer = log_of(&[]);
    newer[41] = VERSION + 1;
    let sum = crc32fast::hash(&newer[..HEAD_BYTES - 4]);
    newer[HEAD_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    assert!(matches!(scan(&newer)[..], [Found::Newer(_)]));
    let payload = [newer.clone(), vec![7; 1000]].concat();
    let whole = log_of(&[vec![1; 50], payload]);
    for lost in 1..1000 {
        let mut torn = whole.clone();
        torn.truncate(whole.len() - lost);
        let found = scan(&torn);
        assert!(!found.iter().any(|found| matches!(found, Found::Newer(_))));
        assert_eq!(merged(&torn, &torn).frames.len(), 2);
        torn.resize(whole.len(), 0);
        torn.extend(&newer);
        assert!(scan(&torn).contains(&Found::Newer(Newer(VERSION + 1))));
    }
}

#[test]
fn a_trailer_is_found_from_its_end() {
    let mut file = vec![9; 1000];
    let head = head(Kind::Result, 4, JobId([4; 16]));
    encode_trailer(&head, b"record", &mut file);
    let (rest, last) = file.split_last_chunk().unwrap();
    let bytes = trailer_bytes(last).unwrap();
    let frame = &rest[rest.len() - bytes..];
    let found = decode(frame).unwrap().unwrap();
    assert_eq!((found.id, found.kind), (head.id, Kind::Result));
    assert!(is_payload(&found, &frame[HEAD_BYTES..]));
    assert_eq!(trailer_bytes(b"somebody"), None);
}

proptest! {
    /// Whatever happens to one log, no frame is missing, and the damaged log is never called whole.
    #[test]
    fn one_damaged_log_hides_nothing(
        payloads in payloads(),
        first: bool,
        from in 0.0..1.0f64,
        to in 0.0..1.0f64,
        bytes in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let log = log_of(&payloads);
        let at = |part: f64| (log.len() as f64 * part) as usize;
        let mut damaged = log.clone();
        damaged.splice(at(from.min(to))..at(from.max(to)), bytes);
        prop_assume!(damaged != log);
        let merged = match first {
            true => merged(&damaged, &log),
            false => merged(&log, &damaged),
        };
        prop_assert!(merged.missing.is_empty());
        prop_assert_eq!(merged.frames.len(), payloads.len() + 1);
        prop_assert_ne!(&merged.verdicts[usize::from(!first)], &Verdict::Whole);
        prop_assert_eq!(&merged.verdicts[usize::from(first)], &Verdict::Whole);
    }

    /// The loss of unconfirmed frames is not damage.
    #[test]
    fn a_torn_end_is_no_damage(payloads in payloads(), part in 0.0..1.0f64) {
        let log = log_of(&payloads);
        let before = log_of(&payloads[..payloads.len() - 1]).len();
        let end = before + ((log.len() - before) as f64 * part) as usize;
        let merged = merged(&log[..end], &log[..before]);
        prop_assert!(merged.missing.is_empty());
        for verdict in &merged.verdicts {
            prop_assert!(!matches!(verdict, Verdict::Damaged(_)), "{:?}", verdict);
        }
    }

    /// Room for the next frames is no damage, in one log or both.
    #[test]
    fn zeros_at_the_end_are_no_damage(payloads in payloads(), rooms in [0..1000usize, 0..1000]) {
        let logs = rooms.map(|room| [log_of(&payloads), vec![0; room]].concat());
        let merged = merged(&logs[0], &logs[1]);
        prop_assert_eq!(merged.frames.len(), payloads.len() + 1);
        prop_assert_eq!(merged.verdicts, [Verdict::Whole, Verdict::Whole]);
    }

    /// A machine that loses power has any sectors of the last write. What was confirmed is there,
    /// and nothing is missing.
    #[test]
    fn a_write_of_which_any_sectors_are_lost_is_no_damage(
        payloads in payloads(),
        last in payloads(),
        lost in prop::collection::vec(any::<[bool; 2]>(), 30),
    ) {
        let whole = log_of(&payloads);
        let mut written = whole.clone();
        let first = payloads.len() as u64 + 2;
        for (payload, seq) in last.iter().zip(first..) {
            let head = Head { acked: first - 1, ..head(Kind::Call, seq, JobId([seq as u8; 16])) };
            encode(&head, payload, &mut written);
        }
        let logs = [0, 1].map(|log| {
            let mut torn = written.clone();
            for (sector, lost) in torn[whole.len()..].chunks_mut(200).zip(&lost) {
                if lost[log] {
                    sector.fill(0);
                }
            }
            torn
        });
        let merged = merged(&logs[0], &logs[1]);
        prop_assert!(merged.missing.is_empty());
        prop_assert!(merged.frames.len() > payloads.len());
        let seqs = merged.frames.iter().map(|place| place.head.seq);
        prop_assert!(seqs.eq(1..=merged.last));
        for verdict in &merged.verdicts {
            prop_assert!(!matches!(verdict, Verdict::Damaged(_)), "{:?}", verdict);
        }
    }

    /// Any bytes are read to their end.
    #[test]
    fn any_bytes_are_scanned(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        merged(&bytes, &bytes);
    }
}
