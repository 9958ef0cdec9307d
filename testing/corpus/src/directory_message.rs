//! Any bytes as messages to a metaserver and as records of its store: they are read or refused. A
//! message that is read encodes to the same bytes, and a directory handles it without a panic.

use farcall_directory::message::{
    Choose, Chosen, DataFound, DataListed, Find, FindData, Found, Hold, Join, Leave, ListData,
    Message, Noted, Observe, Report,
};
use farcall_directory::{Directory, Record, Settings, Viewer};
use std::fmt::Debug;

const NOW: f64 = 1.7e9;

fn read<M: Message + Debug + PartialEq>(bytes: &[u8]) -> Option<M> {
    let message = M::from_bytes(bytes).ok()?;
    let again = M::from_bytes(&message.to_bytes()).expect("what was read can be written");
    // NaN is not equal to itself.
    if !format!("{message:?}").contains("NaN") {
        assert_eq!(again, message);
    }
    Some(message)
}

fn put(directory: &mut Directory, kind: u8, bytes: &[u8], now: f64) {
    let viewer = Viewer {
        user: "alice",
        sees_all: kind >= 128,
    };
    match kind % 15 {
        0 => drop(read::<Join>(bytes).map(|join| directory.join(now, join))),
        1 => drop(read::<Report>(bytes).map(|report| directory.report(now, report))),
        2 => drop(read::<Leave>(bytes).map(|leave| directory.leave(now, leave.server))),
        3 => drop(read::<Choose>(bytes).map(|wanted| directory.choose(now, "site", &wanted))),
        4 => drop(read::<Observe>(bytes).map(|seen| directory.observe(now, "site", &seen))),
        5 => drop(read::<Find>(bytes).map(|find| directory.find(now, "site", &find.function))),
        6 => drop(read::<Record>(bytes).map(|record| directory.apply(now, record))),
        7 => drop(read::<Found>(bytes)),
        8 => drop(read::<Chosen>(bytes)),
        9 => drop(read::<Noted>(bytes)),
        10 => drop(read::<Hold>(bytes).map(|hold| directory.hold(now, hold))),
        11 => drop(read::<FindData>(bytes).map(|find| {
            let found = directory.find_data(now, viewer, &find);
            assert_eq!(read::<DataFound>(&found.to_bytes()), Some(found));
        })),
        12 => drop(read::<ListData>(bytes).map(|list| {
            let listed = directory.list_data(now, viewer, list.after.as_ref());
            assert_eq!(read::<DataListed>(&listed.to_bytes()), Some(listed));
        })),
        13 => drop(read::<DataFound>(bytes)),
        _ => drop(read::<DataListed>(bytes)),
    }
}

/// A sequence of messages. Each has its kind and its length, at most 65535 bytes, in front.
pub fn run(data: &[u8]) {
    let mut directory = Directory::new(Settings {
        most_servers: 4,
        most_sites: 4,
        most_paths: 8,
        most_calls: 8,
        ..Settings::default()
    });
    let (mut left, mut now) = (data, NOW);
    while let [kind, low, high, rest @ ..] = left {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (message, after) = rest.split_at(length);
        put(&mut directory, *kind, message, now);
        (left, now) = (after, now + 0.5);
    }
    for change in directory.changes() {
        if let farcall_directory::Change::Put(key) = change {
            // Records for other metaservers must be readable.
            if let Some(record) = directory.record(key) {
                let read = Record::from_bytes(&record.to_bytes());
                assert!(read.is_ok(), "{read:?}");
            }
        }
    }
    assert!(directory.servers().count() <= 4 && directory.calls() <= 8);
}
