//! A metaserver: the real directory and its real sessions, over simulated connections. It can be
//! killed after any write to its store. Its own rows must be readable to it.

use crate::grid::store::Store;
use farcall_directory::session::{self, Peer, Session};
use farcall_directory::shared::Exchange;
use farcall_directory::{Directory, Settings};
use farcall_rpc_proto::server::{Connection, Event};
use farcall_rpc_proto::{Limits, Transmit};
use std::collections::BTreeMap;

/// Seconds of a lease.
pub(crate) const LEASE_S: f64 = 10.0;

/// A connection, and the session of its peer once it was admitted.
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

    /// A peer connects.
    pub(crate) fn accept(&mut self, link: usize) {
        let hello = session::hello("simulated metaserver");
        let guest = Guest {
            proto: Connection::new(Limits::default(), hello),
            session: None,
        };
        self.guests.insert(link, guest);
    }

    /// Handles bytes, at `now` in seconds since 1970. Returns the answer; `None` closes the
    /// connection.
    pub(crate) fn input(&mut self, link: usize, mut bytes: &[u8], now: f64) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let guest = self.guests.get_mut(&link)?;
        while !bytes.is_empty() {
            let (taken, event) = guest.proto.handle_input(bytes, 0).ok()?;
            bytes = &bytes[taken..];
            match (event, &mut guest.session) {
                (Some(Event::Connected(hello)), _) => {
                    let user = hello.proof.unwrap_or_default();
                    guest.proto.welcome(Some(user.clone()));
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

    /// Checks leases and reads the store. `now` holds seconds since 1970 and the seconds of a
    /// monotonic clock. The metaserver is killed after the given number of writes to the store.
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
                let read = self.exchange.read(&mut self.directory, now, &row);
                read.expect("metaservers read what they write");
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
