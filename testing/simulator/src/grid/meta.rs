//! A metaserver: the real directory and its real sessions, over simulated connections.

use crate::grid::store::Store;
use farcall_directory::session::{self, Peer, Session};
use farcall_directory::shared::Exchange;
use farcall_directory::{Directory, Settings};
use farcall_rpc_proto::server::{Connection, Event};
use farcall_rpc_proto::{Limits, Transmit};
use std::collections::BTreeMap;

/// Seconds for which a server is believed to be there without a report.
pub(crate) const LEASE_S: f64 = 10.0;

/// A connection, and what it may say once its peer was let in.
struct Guest {
    proto: Connection,
    session: Option<Session>,
}

/// One life of a metaserver.
pub(crate) struct Meta {
    pub(crate) directory: Directory,
    /// By their links.
    guests: BTreeMap<usize, Guest>,
    exchange: Exchange,
    /// Changes of the store that it has seen.
    seen: u64,
}

impl Meta {
    pub(crate) fn new(first_placement: u64) -> Meta {
        let settings = Settings {
            lease_s: LEASE_S,
            first_placement,
            ..Settings::default()
        };
        let mut exchange = Exchange::default();
        exchange.opened();
        Meta {
            directory: Directory::new(settings),
            guests: BTreeMap::new(),
            exchange,
            seen: 0,
        }
    }

    /// Somebody connects.
    pub(crate) fn accept(&mut self, link: usize) {
        let hello = session::hello("simulated metaserver");
        let guest = Guest {
            proto: Connection::new(Limits::default(), hello),
            session: None,
        };
        self.guests.insert(link, guest);
    }

    /// Bytes have come, at `now` in seconds since 1970. Returns what it answers, or that it lets
    /// the connection go.
    pub(crate) fn input(&mut self, link: usize, mut bytes: &[u8], now: f64) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let guest = self.guests.get_mut(&link)?;
        while !bytes.is_empty() {
            let (taken, event) = guest.proto.handle_input(bytes, 0).ok()?;
            bytes = &bytes[taken..];
            match (event, &mut guest.session) {
                (Some(Event::Connected(hello)), _) => {
                    let user = hello.token.unwrap_or_default();
                    let peer = Peer {
                        sees_all: false,
                        may_not_join: (user != "server").then(|| "no server".to_string()),
                        site: format!("site of {user}"),
                        user,
                    };
                    guest.session = Some(Session::new(link as u64, peer));
                }
                (Some(event), Some(session)) => {
                    let at = (&mut self.directory, now);
                    let reached = |address: &str| Ok(address.to_string());
                    if session
                        .handle(at, &mut guest.proto, event, reached)
                        .is_some()
                    {
                        return None;
                    }
                }
                _ => {}
            }
        }
        while guest.proto.poll_transmit(&mut out, 0) != Transmit::Idle {}
        Some(out)
    }

    /// A connection has ended.
    pub(crate) fn lost(&mut self, link: usize, now: f64) {
        let guest = self.guests.remove(&link);
        if let Some(session) = guest.and_then(|guest| guest.session) {
            session.end(&mut self.directory, now);
        }
    }

    /// Looks at leases, and at the store where there is one: at so many seconds since 1970, and of
    /// a clock that nobody sets. The store takes at most so many writes before it is killed.
    pub(crate) fn turn(
        &mut self,
        store: Option<&mut Store>,
        (now, now_s): (f64, f64),
        most: usize,
    ) {
        self.directory.advance(now);
        let Some(store) = store else { return };
        self.exchange.collect(&mut self.directory);
        if self.exchange.reads_all(now_s) || self.seen != store.version() {
            for row in store.load((now * 1e3) as u64) {
                // What is there was written by this very code.
                let _ = self.exchange.read(&mut self.directory, now, &row);
            }
        }
        for key in self.exchange.due(now_s, false).into_iter().take(most) {
            if let Some(write) = self.exchange.write(&self.directory, key) {
                store.write(write);
            }
            self.exchange.wrote(key, now_s);
        }
        self.seen = store.version();
    }

    /// The servers that it knows, and whether each takes calls.
    pub(crate) fn servers(&mut self) -> Vec<(u64, bool)> {
        let servers = self.directory.servers();
        servers.map(|one| (one.join.server, one.accepts)).collect()
    }
}
