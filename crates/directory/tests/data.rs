//! Tests of named data in a directory: who learns of them, and where calls that read them go. Only
//! the newest version counts, and nobody learns of what another user does not share.

use farcall_directory::message::{
    Choose, Datum, FindData, Function, Hold, Join, MOST_DATA, Message, Need, Observe, Report,
    Transfer,
};
use farcall_directory::shared::{Exchange, Write};
use farcall_directory::{Change, Directory, Key, Record, Settings, Viewer};

const NOW: f64 = 1.7e9;
const ALICE: Viewer<'static> = Viewer {
    user: "alice",
    sees_all: false,
};
const BOB: Viewer<'static> = Viewer {
    user: "bob",
    ..ALICE
};

fn directory(servers: u64) -> Directory {
    let mut directory = Directory::new(Settings::default());
    for server in 1..=servers {
        let join = Join {
            server,
            address: format!("farcall://host{server}:3717"),
            agent: "test".to_string(),
            pes: 1,
            memory: 1_000_000_000 * server,
            functions: vec![Function {
                name: "m/f".to_string(),
                title: String::new(),
                digest: 1,
                repeatable: true,
                library: None,
            }],
        };
        directory.join(NOW, join).unwrap();
    }
    directory
}

fn datum(name: &str, owner: &str, written: u64, shared: bool) -> Datum {
    Datum {
        name: name.to_string(),
        owner: owner.to_string(),
        written,
        stamp: 5,
        number: written,
        shared,
        element: "double".to_string(),
        shape: vec![1_000_000],
        bytes: 8_000_000,
    }
}

/// What a server without calls reports.
fn idle(server: u64) -> Report {
    Report {
        server,
        accepts: true,
        memory: 1_000_000_000,
        calls: 0,
        queued: Vec::new(),
        learned: Vec::new(),
        booked: None,
    }
}

fn hold(directory: &mut Directory, server: u64, held: Vec<Datum>) {
    let hold = Hold {
        server,
        anew: false,
        held,
        gone: Vec::new(),
    };
    directory.hold(NOW, hold).unwrap();
}

fn holders(directory: &Directory, viewer: Viewer<'_>, name: &str) -> Vec<(String, u64, Vec<u64>)> {
    let located = directory.data(viewer, name, None).into_iter();
    let row = |one: farcall_directory::Located| (one.datum.owner, one.datum.number, one.holders);
    located.map(row).collect()
}

fn choose(directory: &mut Directory, data: Option<Vec<Need>>) -> u64 {
    let wanted = Choose {
        function: "m/f".to_string(),
        digest: 1,
        work: 1.0,
        up: 8,
        down: 8,
        memory: 8_000_016,
        fewest: None,
        most: None,
        exclude: Vec::new(),
        explain: false,
        data,
        trace: None,
    };
    let chosen = directory.choose(NOW + 1.0, "site", &wanted).unwrap();
    let observed = Observe {
        server: chosen.offers[0].server,
        placement: chosen.placement,
        up: None,
        down: None,
        lost: false,
    };
    directory.observe(NOW + 1.0, "site", &observed);
    chosen.offers[0].server
}

#[test]
fn who_asks_finds_their_own_data_whoever_else_has_the_name() {
    let mut directory = directory(1);
    let others = (0..40).map(|number| format!("a{number:02}"));
    let owners = others.chain([String::new(), "bob".to_string()]);
    let held = owners
        .map(|owner| datum("atoms", &owner, 1, true))
        .collect();
    hold(&mut directory, 1, held);
    let found = holders(&directory, BOB, "atoms");
    let owners: Vec<&str> = found.iter().map(|(owner, ..)| &**owner).collect();
    assert_eq!(owners[..4], ["bob", "", "a00", "a01"]);
    assert_eq!(owners.len(), 16);
}

#[test]
fn only_the_newest_version_counts() {
    let mut directory = directory(3);
    hold(&mut directory, 1, vec![datum("atoms", "alice", 1, false)]);
    hold(&mut directory, 2, vec![datum("atoms", "alice", 2, false)]);
    let expected = |servers: &[u64]| vec![("alice".to_string(), 2, servers.to_vec())];
    assert_eq!(holders(&directory, ALICE, "atoms"), expected(&[2]));
    hold(&mut directory, 3, vec![datum("atoms", "alice", 2, false)]);
    assert_eq!(holders(&directory, ALICE, "atoms"), expected(&[2, 3]));
    // A lost server is left out, as long as another one holds the data.
    directory.lose(NOW, 3);
    assert_eq!(holders(&directory, ALICE, "atoms"), expected(&[2]));
    directory.leave(NOW, 2);
    assert_eq!(holders(&directory, ALICE, "atoms"), expected(&[3]));
    directory.leave(NOW, 3);
    let old = vec![("alice".to_string(), 1, vec![1])];
    assert_eq!(holders(&directory, ALICE, "atoms"), old);
}

#[test]
fn nobody_learns_of_data_that_another_user_does_not_share() {
    let mut directory = directory(1);
    let held = vec![
        datum("x", "alice", 1, false),
        datum("x", "bob", 1, false),
        datum("x", "carol", 1, true),
        datum("x", "", 1, true),
        datum("y", "alice", 1, false),
    ];
    hold(&mut directory, 1, held);
    let owners = |viewer| -> Vec<String> {
        let held = holders(&directory, viewer, "x").into_iter();
        held.map(|(owner, _, _)| owner).collect()
    };
    assert_eq!(owners(BOB), ["bob", "", "carol"]);
    assert_eq!(owners(ALICE), ["alice", "", "carol"]);
    assert_eq!(directory.list_data(NOW, BOB, None).data.len(), 3);
    let find = FindData {
        name: "y".to_string(),
        owner: Some("alice".to_string()),
        room: None,
    };
    assert!(directory.find_data(NOW, BOB, &find).records.is_empty());
    assert_eq!(directory.find_data(NOW, ALICE, &find).records.len(), 2);
    let everything = Viewer {
        sees_all: true,
        ..BOB
    };
    assert_eq!(directory.find_data(NOW, everything, &find).records.len(), 2);
}

#[test]
fn a_call_goes_where_its_data_are() {
    let mut directory = directory(3);
    let atoms = datum("atoms", "alice", 1, false);
    let need = Need {
        number: atoms.number(),
        bytes: atoms.bytes,
    };
    for server in 1..=3 {
        let observed = Observe {
            server,
            placement: 0,
            up: Some(Transfer {
                bytes: 10_000_000,
                seconds: 1.0,
            }),
            down: Some(Transfer {
                bytes: 10_000_000,
                seconds: 1.0,
            }),
            lost: false,
        };
        directory.observe(NOW, "site", &observed);
    }
    for holder in [2, 3, 1] {
        for server in 1..=3 {
            directory.report(NOW + 0.5, idle(server)).unwrap();
            let hold = Hold {
                server,
                anew: true,
                held: if server == holder {
                    vec![atoms.clone()]
                } else {
                    Vec::new()
                },
                gone: Vec::new(),
            };
            directory.hold(NOW + 0.5, hold).unwrap();
        }
        assert_eq!(choose(&mut directory, Some(vec![need])), holder);
        // A report does not delete the named data.
        assert_eq!(choose(&mut directory, Some(vec![need])), holder);
    }
}

#[test]
fn data_go_to_the_server_with_the_most_free_memory() {
    let mut directory = directory(3);
    let mut find = FindData {
        name: "new".to_string(),
        owner: None,
        room: Some(8),
    };
    let found = directory.find_data(NOW, ALICE, &find);
    assert_eq!(found.room.unwrap().server, 3);
    directory.lose(NOW, 3);
    assert_eq!(
        directory.find_data(NOW, ALICE, &find).room.unwrap().server,
        2
    );
    find.room = Some(u64::MAX);
    assert_eq!(directory.find_data(NOW, ALICE, &find).room, None);
}

#[test]
fn metaservers_and_clients_know_the_same() {
    let mut one = directory(2);
    hold(&mut one, 1, vec![datum("atoms", "alice", 3, false)]);
    let mut other = Directory::new(Settings::default());
    for change in one.changes() {
        if let Change::Put(key) = change {
            let key = key.to_string().parse().unwrap();
            other.apply(NOW, one.record(key).unwrap());
        }
    }
    assert_eq!(
        holders(&other, ALICE, "atoms"),
        holders(&one, ALICE, "atoms")
    );
    let find = FindData {
        name: "atoms".to_string(),
        owner: None,
        room: None,
    };
    let mut client = Directory::new(Settings {
        forgets: false,
        ..Settings::default()
    });
    let everything = Viewer {
        user: "",
        sees_all: true,
    };
    for _ in 0..2 {
        for record in one.find_data(NOW, ALICE, &find).records {
            client.apply(NOW, record);
        }
        assert_eq!(
            holders(&client, everything, "atoms"),
            holders(&one, ALICE, "atoms")
        );
    }
    client.forget_data("atoms");
    assert!(holders(&client, everything, "atoms").is_empty());
    // When a server is forgotten, so are the data that it holds.
    one.leave(NOW, 1);
    let gone = one.changes().into_iter();
    assert_eq!(
        gone.filter(|change| matches!(change, Change::Gone(..)))
            .count(),
        2
    );
    assert!(matches!(
        one.record("data/1".parse().unwrap()),
        None | Some(Record::Data(_))
    ));
}

/// A metaserver writes a record at most once a second, and reads its own rows again.
#[test]
fn a_row_of_the_store_does_not_replace_what_a_server_has_said_since() {
    let mut directory = directory(1);
    directory.report(NOW, idle(1)).unwrap();
    hold(&mut directory, 1, vec![datum("old", "alice", 1, false)]);
    let mut exchange = Exchange::default();
    exchange.collect(&mut directory);
    let mut rows = Vec::new();
    for key in exchange.due(0.0, false) {
        if let Some(Write::Put(_, _, row)) = exchange.write(&directory, key) {
            rows.push(row);
        }
        exchange.wrote(key, 0.0);
    }
    hold(&mut directory, 1, vec![datum("new", "alice", 2, false)]);
    exchange.collect(&mut directory);
    for row in &rows {
        exchange.read(&mut directory, NOW + 0.5, row).unwrap();
    }
    let named = |directory: &Directory, name| holders(directory, ALICE, name).len();
    assert_eq!(["old", "new"].map(|name| named(&directory, name)), [1, 1]);
    // Another metaserver knows more of a server that is not connected here any more.
    directory.lose(NOW + 1.0, 1);
    for row in &rows {
        directory.apply(NOW + 1.0, Record::from_bytes(row).unwrap());
    }
    assert_eq!(["old", "new"].map(|name| named(&directory, name)), [1, 0]);
}

#[test]
fn a_full_directory_keeps_no_data_of_other_servers() {
    let mut other = directory(2);
    for server in [1, 2] {
        let name = format!("of {server}");
        hold(&mut other, server, vec![datum(&name, "alice", 1, false)]);
    }
    let mut full = Directory::new(Settings {
        most_servers: 1,
        ..Settings::default()
    });
    // A store returns the rows of a server and of its data in any order.
    for key in [Key::Data(1), Key::Server(1), Key::Server(2), Key::Data(2)] {
        full.apply(NOW, other.record(key).unwrap());
    }
    assert_eq!(full.data_count(), 1);
    assert_eq!(holders(&full, ALICE, "of 1").len(), 1);
}

#[test]
fn a_server_holds_no_more_than_it_may() {
    let mut directory = directory(1);
    for page in 0..10u64 {
        let held = (0..500).map(|index| datum(&format!("n{page}-{index}"), "alice", 1, false));
        hold(&mut directory, 1, held.collect());
    }
    assert_eq!(directory.data_count(), MOST_DATA);
    let (mut seen, mut after) = (0, None);
    loop {
        let page = directory.list_data(NOW, ALICE, after.as_ref());
        seen += page.data.len();
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, MOST_DATA);
}
