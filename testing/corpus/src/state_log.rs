//! Any bytes as the logs of a state folder: what is found is merged, rebuilt and written anew. The
//! new log has the same calls.

use farcall_rpc_proto::JobId;
use farcall_server_proto::ledger::{
    Moment, Rebuilt, Spot, Unreadable, described, rebuild, short_array,
};
use farcall_server_proto::log::{Found, Head, Kind, Place, encode, merge, scan, trailer_bytes};
use farcall_server_proto::{Content, Record};

/// The body of the target.
pub fn run(data: &[u8]) {
    let at = data.first().map_or(0, |byte| usize::from(*byte) * 16);
    let (first, second) = data.split_at(at.min(data.len()));
    logs(data, data);
    logs(first, second);
    if let Some((rest, last)) = data.split_last_chunk() {
        trailer_bytes(last);
        described(rest);
    }
    // A checksum would keep a fuzzer from the payloads.
    let mut sealed = Vec::new();
    let kinds = [Kind::Snapshot, Kind::Call, Kind::Status, Kind::Result];
    for (kind, seq) in kinds.into_iter().zip(1..) {
        let head = Head {
            kind,
            seq,
            acked: seq - 1,
            served: 0,
            folder: 1,
            id: JobId([0; 16]),
            length: 0,
            sum: 0,
        };
        let start = sealed.len();
        encode(&head, data, &mut sealed);
        described(&sealed[start..]);
        short_array(&sealed[start..], Content::Result);
    }
    logs(&sealed, &sealed);
}

fn logs(a: &[u8], b: &[u8]) {
    let found = [scan(a), scan(b)];
    let folder = found.iter().flatten().find_map(|found| match found {
        Found::Frame(head, _, true) => Some(head.folder),
        _ => None,
    });
    let Some(folder) = folder else { return };
    let merged = merge(folder, [&found[0], &found[1]]);
    let frame = |place: &Place| {
        let (log, at) = match place.at {
            [Some(at), _] => (a, at),
            [None, at] => (b, at.expect("one log has it")),
        };
        let bytes = &log[at as usize..at as usize + place.head.bytes() as usize];
        Ok::<_, Unreadable>(bytes.to_vec())
    };
    let rebuilt = rebuild(folder, &merged, frame).expect("every frame can be read");
    let read = |spot: Spot| match rebuilt.is_sound {
        true => Ok(a[spot.at as usize..(spot.at + spot.bytes) as usize].to_vec()),
        false => {
            let place = merged.frames.iter().find(|place| place.head.seq == spot.at);
            frame(place.expect("its number is known"))
        }
    };
    let mut new = Vec::new();
    let write = |bytes: &[u8]| {
        new.extend_from_slice(bytes);
        Ok::<_, Unreadable>(())
    };
    let written = rebuilt.ledger.rewrite(Moment::default(), read, write);
    let again = again(&new, folder);
    assert!(written.is_ok() && again.is_sound);
    assert_eq!(by_number(again.records), by_number(rebuilt.records));
}

fn again(log: &[u8], folder: u64) -> Rebuilt {
    let found = scan(log);
    let merged = merge(folder, [&found, &found]);
    let frame = |place: &Place| {
        let at = place.at[0].expect("both logs have it") as usize;
        Ok::<_, Unreadable>(log[at..at + place.head.bytes() as usize].to_vec())
    };
    rebuild(folder, &merged, frame).expect("every frame can be read")
}

fn by_number(records: Vec<Record>) -> Vec<(u64, JobId, Record)> {
    let named = records
        .into_iter()
        .map(|record| (record.number, record.id, record));
    let mut all: Vec<_> = named.collect();
    all.sort_by_key(|(number, id, _)| (*number, id.0));
    all
}
