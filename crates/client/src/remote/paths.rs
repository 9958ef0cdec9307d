//! The extra connections to one server over which the arrays of a call may travel at once.
//!
//! This module remembers the connections, and how many of them helped. `streams` measures that.

use crate::address::Address;
use crate::error::Error;
use crate::options::Options;
use crate::remote::connection::Connection;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the result "several connections help" is used.
const HOLDS: Duration = Duration::from_secs(300);
/// How long the result "one connection is enough" is used. It is short because a busy machine can
/// make the measurement wrong, and measuring again costs little.
const HOLDS_FOR_ONE: Duration = Duration::from_secs(30);
/// How long an address that did not answer is left out. A link that was down may be back.
const AWAY: Duration = Duration::from_secs(300);
/// Longest wait for another address of the server.
const REACH: Duration = Duration::from_millis(500);

/// The direction in which arrays travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    There,
    Back,
}

/// The connections to a server, and how many of them help.
#[derive(Default)]
pub(super) struct Paths {
    /// Connections after the first one, in the order in which they join, with the address of each.
    others: Vec<(Option<SocketAddr>, Arc<Connection>)>,
    /// Addresses that did not answer, and when they were tried.
    unreachable: Vec<(SocketAddr, Instant)>,
    /// Index of the connection for the next large call that travels on a single one.
    turn: usize,
    /// Number of connections that help in each direction, and when that was measured.
    paying: [Option<(usize, Instant)>; 2],
}

impl Paths {
    /// How many connections help, if that was measured recently.
    pub(super) fn found(&self, direction: Direction) -> Option<usize> {
        let found = self.paying[direction as usize];
        let (count, when) = found?;
        let holds = if count > 1 { HOLDS } else { HOLDS_FOR_ONE };
        (when.elapsed() < holds).then_some(count)
    }

    /// Records how many connections help.
    pub(super) fn find(&mut self, direction: Direction, count: usize) {
        self.paying[direction as usize] = Some((count, Instant::now()));
    }

    /// Whether several connections may help, as far as is known.
    pub(super) fn may_split(&self) -> bool {
        let alone = |direction| self.found(direction) == Some(1);
        ![Direction::There, Direction::Back].into_iter().all(alone)
    }

    /// The connection for a call that travels on a single one. If several help, calls take turns on
    /// them.
    pub(super) fn next(
        &mut self,
        first: Arc<Connection>,
        to: (&Address, &Options),
    ) -> Result<Arc<Connection>, Error> {
        let found = [Direction::There, Direction::Back].map(|direction| self.found(direction));
        let count = found.into_iter().flatten().max().unwrap_or(1);
        self.turn = (self.turn + 1) % count.max(1);
        let other = match self.turn {
            0 => None,
            index => self.another(&first, index, to)?,
        };
        Ok(other.unwrap_or(first))
    }

    /// Removes a connection that has stalled.
    pub(super) fn leave(&mut self, connection: &Connection) {
        let number = connection.number();
        self.others.retain(|(_, known)| known.number() != number);
        self.paying = [None; 2];
    }

    /// The connection that joins as number `index`. The server's addresses are used in turn.
    ///
    /// # Errors
    /// [`Options::on_interrupt`] asked to give up.
    pub(super) fn another(
        &mut self,
        first: &Connection,
        index: usize,
        (address, options): (&Address, &Options),
    ) -> Result<Option<Arc<Connection>>, Error> {
        self.others.retain(|(_, known)| !known.is_stale());
        if let Some((_, known)) = self.others.get(index - 1) {
            return Ok(Some(known.clone()));
        }
        let mut candidates: Vec<Option<SocketAddr>> = vec![None];
        candidates.extend(first.paths().into_iter().map(Some));
        self.unreachable.retain(|(_, when)| when.elapsed() < AWAY);
        let is_away = |target: SocketAddr| self.unreachable.iter().any(|(away, _)| *away == target);
        candidates.retain(|target| !target.is_some_and(is_away));
        let uses = |target: &Option<SocketAddr>| {
            let others = self
                .others
                .iter()
                .filter(|(known, _)| known == target)
                .count();
            others + usize::from(target.is_none())
        };
        let Some(target) = candidates.into_iter().min_by_key(uses) else {
            return Ok(None);
        };
        let mut options = options.clone();
        options.connect_timeout = options.connect_timeout.min(REACH);
        match Connection::open_by(address, &options, target) {
            Ok(connection) => {
                self.others.push((target, connection.clone()));
                Ok(Some(connection))
            }
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(_) => {
                let now = Instant::now();
                self.unreachable.extend(target.map(|target| (target, now)));
                Ok(None)
            }
        }
    }
}
