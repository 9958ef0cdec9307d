//! Makes snapshots for people who watch a metaserver: the servers, the network, and the named data
//! that the viewer may see. It only reads the directory. Each server makes snapshots of its own
//! calls.

use crate::Shared;
use crate::status::state;
use farcall_directory::session::Peer;
use farcall_directory::{Directory, ServerStatus};
use farcall_rpc_proto::AskSnapshot;
use farcall_schedule::forecast;
use farcall_snapshot::{
    Counts, Data, Forecast, Link, List, MOST_ROWS, MOST_SERVERS, SCHEMA, Server, Snapshot, Viewer,
    finds, text as short,
};

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
    let data = directory.list_data(now, peer.viewer(), None).data;
    let data = data.into_iter().filter(|one| {
        let datum = &one.datum;
        finds(search, &[&datum.name, &datum.owner])
    });
    let data = List::of(data, MOST_ROWS, |one| Data {
        name: short(&one.datum.name),
        owner: short(&one.datum.owner),
        element: short(&one.datum.element),
        shape: one.datum.shape,
        bytes: one.datum.bytes,
        shared: one.datum.shared,
        holders: one.holders,
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
        data: List {
            total: directory.data_count() as u64,
            ..data
        },
        ..Snapshot::default()
    }
}

fn server(one: &ServerStatus<'_>) -> Server {
    let free = one.report.map_or(one.join.memory, |report| report.memory);
    let used = one
        .report
        .map(|report| report.running().map(|call| call.pes).sum());
    Server {
        address: short(&one.join.address),
        state: state(one).to_owned(),
        pes: one.join.pes,
        pes_used: used.map(|used: u32| used.min(one.join.pes)),
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
