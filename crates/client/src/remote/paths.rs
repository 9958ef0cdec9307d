//! The connections to one server over which the arrays of one call may travel at once.

use crate::address::Address;
use crate::options::Options;
use crate::remote::connection::Connection;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long it holds that several connections pay.
const HOLDS: Duration = Duration::from_secs(300);
/// How long it holds that one connection is enough. Asking again costs little, and it may have been
/// measured while the machine was busy.
const HOLDS_FOR_ONE: Duration = Duration::from_secs(30);
/// How long another address of the server may take to answer.
const REACH: Duration = Duration::from_millis(500);

/// Which way arrays travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    There,
    Back,
}

/// What is known of the paths to a server.
#[derive(Default)]
pub(super) struct Paths {
    /// Connections beside the first, in the order in which they join, and how each was reached.
    others: Vec<(Option<SocketAddr>, Arc<Connection>)>,
    unreachable: Vec<SocketAddr>,
    /// Whose turn it is to have the next large call that travels on one of them.
    turn: usize,
    /// How many connections pay, there and back, and when that was found.
    paying: [Option<(usize, Instant)>; 2],
}

impl Paths {
    /// How many connections pay, where that was found.
    pub(super) fn found(&self, direction: Direction) -> Option<usize> {
        let found = self.paying[direction as usize];
        let (count, when) = found?;
        let holds = if count > 1 { HOLDS } else { HOLDS_FOR_ONE };
        (when.elapsed() < holds).then_some(count)
    }

    /// So many pay.
    pub(super) fn find(&mut self, direction: Direction, count: usize) {
        self.paying[direction as usize] = Some((count, Instant::now()));
    }

    /// Whether several may pay, as far as is known.
    pub(super) fn may_split(&self) -> bool {
        let alone = |direction| self.found(direction) == Some(1);
        ![Direction::There, Direction::Back].into_iter().all(alone)
    }

    /// The connection for a call that travels on one: where several were found to pay, calls take
    /// turns on them.
    pub(super) fn next(
        &mut self,
        first: Arc<Connection>,
        to: (&Address, &Options),
    ) -> Arc<Connection> {
        let found = [Direction::There, Direction::Back].map(|direction| self.found(direction));
        let count = found.into_iter().flatten().max().unwrap_or(1);
        self.turn = (self.turn + 1) % count.max(1);
        match self.turn {
            0 => first,
            index => self.another(&first, index, to).unwrap_or(first),
        }
    }

    /// A connection has stalled: it is not used again.
    pub(super) fn leave(&mut self, connection: &Connection) {
        let number = connection.number();
        self.others.retain(|(_, known)| known.number() != number);
        self.paying = [None; 2];
    }

    /// The connection that joins as the `index`th, by the addresses of the server in turn.
    pub(super) fn another(
        &mut self,
        first: &Connection,
        index: usize,
        (address, options): (&Address, &Options),
    ) -> Option<Arc<Connection>> {
        self.others.retain(|(_, known)| !known.is_stale());
        if let Some((_, known)) = self.others.get(index - 1) {
            return Some(known.clone());
        }
        let mut candidates: Vec<Option<SocketAddr>> = vec![None];
        candidates.extend(first.paths().into_iter().map(Some));
        candidates.retain(|way| way.is_none_or(|way| !self.unreachable.contains(&way)));
        let uses = |way: &Option<SocketAddr>| {
            let others = self.others.iter().filter(|(known, _)| known == way).count();
            others + usize::from(way.is_none())
        };
        let way = candidates.into_iter().min_by_key(uses)?;
        let mut options = options.clone();
        options.connect_timeout = options.connect_timeout.min(REACH);
        match Connection::open_by(address, &options, way) {
            Ok(connection) => {
                self.others.push((way, connection.clone()));
                Some(connection)
            }
            Err(_) => {
                self.unreachable.extend(way);
                None
            }
        }
    }
}
