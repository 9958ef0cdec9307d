//! Makes snapshots for people who watch a metaserver: the servers, the network, and the named data
//! that the viewer may see. It only reads the directory. Each server makes snapshots of its own
//! calls.

use crate::Shared;
use crate::status::state;
use farcall_directory::message::DatumName;
use farcall_directory::session::Peer;
use farcall_directory::{Directory, ServerStatus};
use farcall_rpc_proto::AskSnapshot;
use farcall_schedule::forecast;
use farcall_snapshot::{
    Counts, Data, Forecast, Link, List, MOST_ROWS, MOST_SERVERS, SCHEMA, Server, Snapshot, Viewer,
    finds, text as short,
};

/// Most holders of named data.
const MOST_HOLDERS: usize = 8;

/// The snapshot for a peer.
pub(crate) fn text(shared: &Shared, peer: &Peer, asked: &AskSnapshot) -> String {
    let now = shared.now();
    let mut directory = shared.directory();
    let search: String = asked.search.chars().take(100).collect();
    let snapshot = Snapshot {
        schema: SCHEMA,
        kind: "metaserver".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_s: shared.start.elapsed().as_secs_f64(),
        viewer: Viewer {
            user: short(&peer.user),
            operator: false,
        },
        ..of(&mut directory, now, peer, &search)
    };
    drop(directory);
    snapshot.to_json()
}

/// What the directory tells a peer.
fn of(directory: &mut Directory, now: f64, peer: &Peer, search: &str) -> Snapshot {
    directory.advance(now);
    let is_wanted = |key: &DatumName| finds(search, &[&key.name, &key.owner]);
    let data = directory.visible_data(peer.viewer(), is_wanted);
    let data = List::of(data, MOST_ROWS, |one| {
        let holders = one.holders.iter().take(MOST_HOLDERS);
        let holders = holders.filter_map(|server| directory.address(*server));
        Data {
            name: short(&one.datum.name),
            owner: short(&one.datum.owner),
            element: short(&one.datum.element),
            shape: one.datum.shape,
            bytes: one.datum.bytes,
            shared: one.datum.shared,
            holders: holders.map(str::to_owned).collect(),
        }
    });
    let (mut calls, mut running) = (0, 0);
    for one in directory.servers().filter_map(|one| one.report) {
        calls += u64::from(one.calls);
        running += one.running().count() as u64;
    }
    let found = directory.servers();
    let found = found.filter(|one| finds(search, &[&one.join.address, state(one)]));
    let servers = List::of(found, MOST_SERVERS, |one| server(&one));
    Snapshot {
        counts: Counts {
            waiting: calls.saturating_sub(running),
            running,
            moving: 0,
            done: 0,
        },
        servers,
        links: links(directory, search),
        data,
        ..Snapshot::default()
    }
}

fn server(one: &ServerStatus<'_>) -> Server {
    let free = one.report.map_or(one.join.memory, |report| report.memory);
    let add = |sum: u32, pes: u32| sum.saturating_add(pes);
    let used = one
        .report
        .map(|report| report.running().map(|call| call.pes).fold(0, add));
    Server {
        address: short(&one.join.address),
        state: state(one).to_owned(),
        pes: one.join.pes,
        pes_used: used.map(|used| used.min(one.join.pes)),
        pes_reserved: one.booked,
        calls: one.report.map_or(0, |report| report.calls).into(),
        backlog_s: one.backlog_s,
        memory: one.join.memory,
        memory_used: one.join.memory.saturating_sub(free),
        functions: one.functions.len() as u64,
        reported_s: one.reported_s,
    }
}

fn links(directory: &Directory, search: &str) -> List<Link> {
    let address = |server| directory.address(server).unwrap_or("?");
    let paths = directory.paths();
    let paths = paths.filter(|(site, server, _)| finds(search, &[site, address(*server)]));
    let way = |[latency, rate]: [Option<forecast::Forecast>; 2]| Forecast {
        rate: rate.map(|rate| rate.value),
        factor: rate.map(|rate| rate.factor),
        latency_s: latency.map(|latency| latency.value),
    };
    List::of(paths, MOST_ROWS, |(site, server, [up, down])| Link {
        site: short(site),
        server: short(address(server)),
        up: way(up),
        down: way(down),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_directory::Settings;
    use farcall_directory::message::{Datum, Hold, Join};

    #[test]
    fn the_search_finds_all_names_that_the_viewer_may_see() {
        let mut directory = Directory::new(Settings::default());
        let join = Join {
            server: 1,
            address: "farcall://host:3717".into(),
            agent: "test".into(),
            pes: 1,
            memory: 0,
            functions: Vec::new(),
        };
        directory.join(1.0, join).unwrap();
        let datum = |number| Datum {
            name: format!("data{number:03}"),
            owner: "alice".into(),
            written: 1,
            stamp: 1,
            number: 1,
            shared: false,
            element: "double".into(),
            shape: vec![1],
            bytes: 8,
        };
        let hold = Hold {
            server: 1,
            anew: true,
            held: (0..500).map(datum).collect(),
            gone: Vec::new(),
        };
        directory.hold(1.0, hold).unwrap();
        for (user, search, total) in [("alice", "", 500), ("alice", "data4", 100), ("bob", "", 0)] {
            let peer = Peer {
                user: user.into(),
                sees_all: false,
                may_not_join: None,
                site: "site".into(),
            };
            let data = of(&mut directory, 2.0, &peer, search).data;
            assert_eq!(data.total, total, "{user} {search}");
            assert_eq!(data.rows.is_empty(), total == 0);
            assert!(
                data.rows
                    .iter()
                    .all(|one| one.holders == ["farcall://host:3717"])
            );
        }
    }
}
