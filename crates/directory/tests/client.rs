//! Tests of what a client knows of servers that come and go behind a metaserver. What a metaserver
//! itself knows of them is tested in `directory`.

use farcall_directory::client::Known;
use farcall_directory::message::{Found, Function, Join};
use farcall_directory::{Directory, Key, Settings, digest};

const T0: f64 = 1.7e9;

/// The answer of a metaserver whose servers have these numbers.
fn answer(servers: impl IntoIterator<Item = u64>) -> Found {
    let mut directory = Directory::new(Settings::default());
    let mut records = Vec::new();
    for server in servers {
        let join = Join {
            server,
            address: format!("farcall://host{server}:3717"),
            agent: "test".into(),
            pes: 2,
            memory: 1 << 30,
            functions: vec![Function {
                name: "test/f".into(),
                title: String::new(),
                digest: digest("f"),
                repeatable: true,
                library: None,
            }],
        };
        directory.join(T0, join).unwrap();
        records.extend(directory.record(Key::Server(server)));
    }
    Found {
        function: "test/f".into(),
        records,
    }
}

fn numbers(known: &Known, now: f64) -> Vec<u64> {
    let servers = known.servers_with(now, "test/f", None);
    servers.into_iter().map(|(server, _)| server).collect()
}

#[test]
fn a_server_that_no_answer_names_for_a_lease_is_gone() {
    let mut known = Known::default();
    known.found(0.0, "f", answer([1, 2]));
    assert_eq!(numbers(&known, 1.0), [1, 2]);
    // The metaserver has started anew, and server 1 has not joined again yet.
    known.found(5.0, "f", answer([2]));
    assert_eq!(numbers(&known, 5.0), [1, 2]);
    known.found(11.0, "f", answer([2]));
    assert_eq!(numbers(&known, 11.0), [2]);
    // Without a metaserver, all that were ever known must do.
    known.answered(12.0, false);
    assert_eq!(numbers(&known, 12.0), [1, 2]);
    known.answered(13.0, true);
    assert_eq!(numbers(&known, 13.0), [2]);
    // Nor does the client lose all of them because its metaserver knows none.
    assert_eq!(numbers(&known, 99.0), [1, 2]);
}

#[test]
fn servers_that_are_gone_make_room_for_new_ones() {
    let mut known = Known::default();
    let most = Settings::default().most_servers as u64;
    known.found(0.0, "f", answer(0..most));
    known.found(1.0, "f", answer([most]));
    assert_eq!(numbers(&known, 1.0).len() as u64, most);
    known.found(20.0, "f", answer([most]));
    assert_eq!(numbers(&known, 20.0), [most]);
}
