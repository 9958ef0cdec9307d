//! Connections: bytes on their way, and how they are lost. Bytes can be cut anywhere and delayed,
//! but they never overtake each other. After a reset, none arrives.

use super::hosts::ToLife;
use super::{HEALED, Happening, MS, S, World};
use crate::client::Scene;
use crate::grid::caller::Whom;
use crate::interfaces::user_name;
use crate::machine::{Machine, Memory, Socket};
use farcall_rpc_proto::User;
use farcall_server_proto::{Accepted, ConnectionKey, Direction, Event};
use std::collections::VecDeque;

/// The host that has made a connection.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Maker {
    /// A client of one server.
    Client(usize),
    /// A client of metaservers, with the peer that it wants.
    Caller(usize, Whom),
    /// A host's server, in one life, to a metaserver.
    Member(usize, u64, usize),
}

/// The other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Host(usize),
    Meta(usize),
}

/// A connection to one life of a server or a metaserver.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) maker: Maker,
    pub(super) to: To,
    life: u64,
    /// At a server.
    key: Option<ConnectionKey>,
    /// When the last bytes in each direction arrive. Bytes never overtake others.
    pub(super) arrives: [u64; 2],
    pub(super) is_open: bool,
    /// Memory can be passed over it, and its bytes cross no network.
    is_unix: bool,
    /// Memory that was passed and has not arrived yet.
    pub(super) memories: VecDeque<Memory>,
    /// A fault has broken it: no last bytes are expected.
    pub(super) is_broken: bool,
}

/// A client that sends one byte after the other, with pauses, as long as others have work.
#[derive(Debug)]
pub(super) struct Dawdler {
    link: usize,
    maker: Maker,
    bytes: VecDeque<u8>,
}

/// The pause of a client that dawdles.
const DAWDLES: u64 = 5 * S;
/// Only a client that sends this many bytes at once dawdles.
const LONG: usize = 100_000;

/// The parts of a world that a client sees.
macro_rules! scene {
    ($world:expr) => {
        &mut Scene {
            random: &mut $world.random,
            checker: &mut $world.checker,
            options: &$world.options,
            now: $world.now,
        }
    };
}

impl World {
    /// A server is gone, and its connections with it. If the whole host is gone, peers notice late.
    pub(super) fn lose_links(&mut self, host: usize, late: u64) {
        for link in 0..self.links.len() {
            let known = &self.links[link];
            let life = self.hosts[host].life;
            if !known.is_open {
                continue;
            }
            if (known.to, known.life) == (To::Host(host), life) {
                let delay = self.random.below(20 * MS + late);
                let arrives = self.links[link].arrives[1].max(self.now + delay);
                self.at(arrives + 1, Happening::LostAtClient(link));
            } else if matches!(known.maker, Maker::Member(of, ..) if of == host) {
                let delay = self.random.below(20 * MS + late);
                let arrives = self.links[link].arrives[0].max(self.now + delay);
                self.links[link].is_open = false;
                self.at(arrives + 1, Happening::LostAtServer(link));
            }
        }
    }

    /// No last bytes are expected on the connections of a server.
    pub(super) fn excuse_links(&mut self, host: usize) {
        let life = self.hosts[host].life;
        let its = |link: &&mut Link| (link.to, link.life) == (To::Host(host), life);
        let links = self.links.iter_mut().filter(its);
        links.for_each(|link| link.is_broken = true);
    }

    /// Moves bytes on all connections of a server that can go on.
    pub(super) fn serve(&mut self, host: usize) {
        loop {
            let Some(machine) = self.machine(host) else {
                return;
            };
            if let Some((key, direction)) = machine.served.pop_front() {
                match direction {
                    Direction::Up => self.take_input(host, key),
                    Direction::Down => {
                        machine.resumed.push(key);
                        self.flush(host, key);
                    }
                }
                continue;
            }
            if let Some(key) = machine.resumed.pop() {
                self.take_input(host, key);
                continue;
            }
            let Some(key) = machine.unflushed.pop() else {
                return;
            };
            self.flush(host, key);
        }
    }

    /// Handles input of a connection, as far as its rate and the server allow.
    fn take_input(&mut self, host: usize, key: ConnectionKey) {
        let now = self.now;
        let Some(machine) = self.machine(host) else {
            return;
        };
        let granted = machine.server.lanes().grant(key, Direction::Up, now);
        loop {
            let now = self.clock(host);
            let Some(machine) = self.machine(host) else {
                return;
            };
            machine.server.set_time(now);
            let (has_taken, passed) = machine.take_input(key);
            if passed > 0 {
                self.passes(host, key, Direction::Up, passed);
            }
            if !has_taken {
                break;
            }
            self.act(host);
            let is_congested = |machine: &mut Machine| machine.server.clients().is_congested(key);
            if self.machine(host).is_some_and(is_congested) {
                self.flush(host, key);
            }
        }
        if let Some(machine) = self.machine(host) {
            machine.server.settle(key, Direction::Up, granted);
            // Input that was not read is noticed again.
            if machine.is_readable(key) {
                machine.resumed.push(key);
            }
        }
        self.act(host);
        self.flush(host, key);
    }

    /// Bytes of a connection pass the link of a server.
    fn passes(&mut self, host: usize, key: ConnectionKey, direction: Direction, bytes: u64) {
        let life = self.life(host);
        let link = self
            .machine(host)
            .and_then(|machine| machine.sockets.get(&key));
        let Some(link) = link.map(|socket| socket.link) else {
            return;
        };
        let link = &self.links[link];
        // Bytes that a client left when it disappeared belong to the lane of its old connection,
        // not of its next one.
        if let Maker::Client(client) = link.maker
            && link.is_open
            && !link.is_unix
        {
            self.checker.moved((life, client as u64), direction, bytes);
        }
    }

    fn flush(&mut self, host: usize, key: ConnectionKey) {
        let now = self.now;
        let Some(machine) = self.machine(host) else {
            return;
        };
        let Some(link) = machine.sockets.get(&key).map(|socket| socket.link) else {
            return;
        };
        let granted = machine.server.lanes().grant(key, Direction::Down, now);
        let bytes = machine.output(key, now);
        machine.server.settle(key, Direction::Down, granted);
        self.passes(host, key, Direction::Down, bytes.len() as u64);
        self.act(host);
        self.send(link, bytes, 1);
    }

    /// Sends bytes over a link: to the server (0) or from it (1).
    pub(super) fn send(&mut self, link: usize, bytes: Vec<u8>, direction: usize) {
        // After a reset no bytes arrive: later bytes would have a gap before them.
        if bytes.is_empty() || !self.links[link].is_open || self.links[link].is_broken {
            return;
        }
        if self.fails(|faults| faults.resets, 1500) {
            return self.reset(link);
        }
        let Some(bytes) = self.hold_back(link, bytes, direction) else {
            return;
        };
        let mut delay = 20_000 + self.random.below(MS);
        if self.fails(|faults| faults.stalls, 500) {
            delay += self.random.below(20 * S);
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            // Cut anywhere.
            let count = match self.random.chance(0.1) {
                true => 1 + self.random.below(rest.len() as u64) as usize,
                false => rest.len(),
            };
            let (part, left) = rest.split_at(count);
            rest = left;
            let arrives = self.links[link].arrives[direction].max(self.now + delay) + 1;
            self.links[link].arrives[direction] = arrives;
            let happening = match direction {
                0 => Happening::ToServer(link, part.to_vec()),
                _ => Happening::ToClient(link, part.to_vec()),
            };
            self.at(arrives, happening);
        }
    }

    /// Lets a client dawdle. Returns the bytes that leave now.
    fn hold_back(&mut self, link: usize, mut bytes: Vec<u8>, direction: usize) -> Option<Vec<u8>> {
        let maker = self.links[link].maker.clone();
        let faults = &self.options.faults;
        // A server that drains waits for all of its clients.
        let may = self.options.subjects.dawdlers && faults.stalls && !faults.ends;
        if !may || direction != 0 || !matches!(maker, Maker::Client(_)) {
            return Some(bytes);
        }
        let mut dawdlers = self.dawdlers.iter_mut();
        if let Some(dawdler) = dawdlers.find(|dawdler| dawdler.link == link) {
            dawdler.bytes.extend(bytes);
            return None;
        }
        if bytes.len() >= LONG && self.now < HEALED {
            self.faults += 1;
            self.trace(|| format!("the client of link {link} dawdles"));
            self.dawdlers.push(Dawdler {
                link,
                maker,
                bytes: bytes.split_off(bytes.len() / 2).into(),
            });
            self.at(self.now + DAWDLES, Happening::Dawdles(link));
        }
        Some(bytes)
    }

    /// The next byte of a client that dawdles leaves, or all if all others dawdle or have ended.
    pub(super) fn dawdles(&mut self, link: usize) {
        let is_one = |dawdler: &Dawdler| dawdler.link == link;
        let Some(index) = self.dawdlers.iter().position(is_one) else {
            return;
        };
        let dawdles = |client| {
            let mut dawdlers = self.dawdlers.iter();
            dawdlers.any(|dawdler| dawdler.maker == Maker::Client(client))
        };
        let mut clients = self.clients.iter().enumerate();
        let goes_on = clients.any(|(client, known)| !known.is_content() && !dawdles(client));
        let held = &mut self.dawdlers[index].bytes;
        let count = if goes_on { 1 } else { held.len() };
        let bytes: Vec<u8> = held.drain(..count.min(held.len())).collect();
        let known = &mut self.links[link];
        if held.is_empty() || known.is_broken || !known.is_open {
            self.dawdlers.remove(index);
        } else {
            self.at(self.now + DAWDLES, Happening::Dawdles(link));
        }
        let known = &mut self.links[link];
        if !known.is_broken && known.is_open {
            let arrives = known.arrives[0].max(self.now) + 1;
            known.arrives[0] = arrives;
            self.at(arrives, Happening::ToServer(link, bytes));
        }
    }

    fn reset(&mut self, link: usize) {
        self.trace(|| format!("link {link} is reset"));
        self.links[link].is_broken = true;
        let [server, client] = [0, 1].map(|_| self.random.below(5 * MS));
        self.at(self.now + server, Happening::LostAtServer(link));
        self.at(self.now + client, Happening::LostAtClient(link));
    }

    /// Records the requests and answers of a client.
    fn note(&mut self, client: usize) {
        for note in self.clients[client].notes() {
            self.trace(|| format!("client {client}: {note}"));
        }
    }

    pub(super) fn client_acts(&mut self, client: usize) {
        self.clients[client].act(scene!(self));
        self.note(client);
        self.client_sends(client);
        if !self.clients[client].is_content() && self.clients[client].is_connected() {
            let delay = self.random.below(20 * MS);
            self.at(self.now + delay, Happening::Acts(client));
        }
    }

    fn client_sends(&mut self, client: usize) {
        let is_its = |link: &Link| link.maker == Maker::Client(client) && link.is_open;
        let Some(link) = self.links.iter().rposition(is_its) else {
            return;
        };
        let bytes = self.clients[client].output();
        self.send(link, bytes, 0);
        if std::mem::take(&mut self.clients[client].leaves) {
            self.links[link].is_broken = true;
            let arrives = self.links[link].arrives[0].max(self.now) + 1;
            self.at(arrives, Happening::LostAtServer(link));
            return self.lost_at_client(link);
        }
        if self.fails(|faults| faults.half_open, 3000) {
            self.trace(|| format!("client {client} goes without a word"));
            self.links[link].is_open = false;
            self.clients[client].lost(&mut self.checker);
            self.at(self.now + 100 * MS, Happening::Connects(client));
            // After a time the system closes the connection.
            let late = self.now + 30 * S;
            self.at(late, Happening::LostAtServer(link));
        }
    }

    /// A client wants a connection.
    pub(super) fn connect(&mut self, client: usize) {
        if self.clients[client].is_connected() {
            return;
        }
        let host = self.clients[client].host;
        match self.machine(host) {
            Some(machine) if machine.listens => {
                machine.backlog.push_back(client);
                let soon = self.random.below(2 * MS);
                self.after(host, soon, ToLife::Accepts);
            }
            _ => self.at(self.now + 50 * MS, Happening::Connects(client)),
        }
    }

    /// A client that was not accepted tries again.
    pub(super) fn disappoint(&mut self, host: usize) {
        let Some(machine) = self.machine(host) else {
            return;
        };
        for client in std::mem::take(&mut machine.backlog) {
            self.at(self.now + 50 * MS, Happening::Connects(client));
        }
    }

    /// The first client that has connected is accepted.
    pub(super) fn accept_next(&mut self, host: usize) {
        let client = self.machine(host);
        if let Some(client) = client.and_then(|machine| machine.backlog.pop_front()) {
            self.accept(host, client);
            self.go_on(host);
        }
    }

    /// A client is accepted.
    pub(super) fn accept(&mut self, host: usize, client: usize) {
        let is_unix = self.options.subjects.segments && self.random.chance(0.5);
        let user = self.clients[client].user;
        let life = self.life(host);
        let Some((link, farewell)) = self.admit(host, Maker::Client(client), user, is_unix) else {
            return;
        };
        self.trace(|| format!("client {client} connects to server {host} by link {link}"));
        self.checker.lanes.connects((life, client as u64));
        self.clients[client].connect(life, is_unix, self.now);
        if let Some(farewell) = farewell {
            return self.refuse(link, farewell);
        }
        self.client_sends(client);
        self.at(self.now + MS, Happening::Acts(client));
    }

    /// A listening server accepts a connection, or sends last bytes on it.
    fn admit(
        &mut self,
        host: usize,
        maker: Maker,
        user: u8,
        is_unix: bool,
    ) -> Option<(usize, Option<Vec<u8>>)> {
        let accepted = Accepted {
            peer: format!("{maker:?}"),
            user: User::named(&user_name(user)),
            host: None,
            is_local: is_unix,
            is_unix,
            local: None,
            ways: None,
        };
        let (now, link) = (self.clock(host), self.links.len());
        let machine = self.hosts[host].machine.as_mut()?;
        machine.server.set_time(now);
        let accepted = machine.server.accept(accepted);
        if let Ok(key) = accepted {
            machine.sockets.insert(key, Socket::new(link));
        }
        let life = self.hosts[host].life;
        let key = accepted.as_ref().ok().copied();
        self.add_link(maker, (To::Host(host), life), key, is_unix);
        Some((link, accepted.err()))
    }

    fn add_link(
        &mut self,
        maker: Maker,
        (to, life): (To, u64),
        key: Option<ConnectionKey>,
        is_unix: bool,
    ) {
        self.links.push(Link {
            maker,
            to,
            life,
            key,
            arrives: [self.now; 2],
            is_open: true,
            is_unix,
            memories: VecDeque::new(),
            is_broken: false,
        });
    }

    fn refuse(&mut self, link: usize, farewell: Vec<u8>) {
        self.send(link, farewell, 1);
        let arrives = self.links[link].arrives[1] + 1;
        self.at(arrives, Happening::LostAtClient(link));
    }

    /// A host tries to connect to a server or a metaserver.
    pub(super) fn reaches(&mut self, maker: Maker, to: To) {
        if let Maker::Member(host, life, _) = maker
            && !self.hosts[host].has(life)
        {
            return;
        }
        if self.is_cut(maker.end(), to.end()) {
            let delay = self.random.below(3 * S);
            return self.at(self.now + delay, Happening::Fails(maker));
        }
        let admitted = match (to, &maker) {
            (To::Host(host), Maker::Caller(caller, _)) => {
                let user = self.callers[*caller].user;
                let listens = self.machine(host).is_some_and(|machine| machine.listens);
                let admitted = listens.then(|| self.admit(host, maker.clone(), user, false));
                admitted.flatten()
            }
            (To::Meta(meta), _) => self.reaches_metaserver(meta, &maker),
            _ => None,
        };
        self.trace(|| {
            format!(
                "{maker:?} reaches {to:?}: {:?}",
                admitted.as_ref().map(|one| one.0)
            )
        });
        self.reached(maker, admitted.as_ref().map(|(link, _)| *link));
        if let Some((link, Some(farewell))) = admitted {
            self.refuse(link, farewell);
        }
        if let To::Host(host) = to {
            self.go_on(host);
        }
    }

    fn reaches_metaserver(
        &mut self,
        meta: usize,
        maker: &Maker,
    ) -> Option<(usize, Option<Vec<u8>>)> {
        let link = self.links.len();
        self.metas[meta].meta.as_mut()?.accept(link);
        let life = self.metas[meta].life;
        self.add_link(maker.clone(), (To::Meta(meta), life), None, false);
        Some((link, None))
    }

    /// A host has a connection, or could not make one.
    pub(super) fn reached(&mut self, maker: Maker, link: Option<usize>) {
        match maker {
            Maker::Caller(caller, whom) => self.caller_connected(caller, whom, link),
            Maker::Member(host, life, meta) if self.hosts[host].has(life) => {
                self.member_connected(host, meta, link);
            }
            _ => {}
        }
    }

    /// The host of a link's server, and the key of its connection in this life.
    fn key(&self, link: usize) -> Option<(usize, ConnectionKey)> {
        let link = &self.links[link];
        let To::Host(host) = link.to else { return None };
        let key = link.key.filter(|_| link.life == self.hosts[host].life);
        Some((host, key?))
    }

    /// The metaserver to which a link leads, in this life.
    fn metaserver(&self, link: usize) -> Option<usize> {
        let link = &self.links[link];
        let To::Meta(meta) = link.to else { return None };
        (link.life == self.metas[meta].life).then_some(meta)
    }

    /// The time until which bytes in this direction of a link wait.
    pub(super) fn pause(&self, link: usize, direction: usize) -> u64 {
        let link = &self.links[link];
        match (direction, link.to, &link.maker) {
            (0, To::Host(host), _) => self.hosts[host].paused,
            (1, _, Maker::Member(host, ..)) => self.hosts[*host].paused,
            _ => 0,
        }
    }

    pub(super) fn reaches_server(&mut self, link: usize, bytes: &[u8]) {
        if let Some(meta) = self.metaserver(link) {
            return self.reaches_meta(meta, link, bytes);
        }
        let Some((host, key)) = self.key(link) else {
            return;
        };
        let Some(machine) = self.machine(host) else {
            return;
        };
        let Some(socket) = machine.sockets.get_mut(&key) else {
            return;
        };
        socket.unread.extend(bytes);
        // A connection that waits for its turn is not read before.
        if !machine.server.lanes().waits(key, Direction::Up) {
            self.take_input(host, key);
        }
        self.go_on(host);
    }

    pub(super) fn reaches_client(&mut self, link: usize, bytes: &[u8]) {
        if !self.links[link].is_open {
            return;
        }
        let goes_on = match self.links[link].maker {
            Maker::Client(client) => {
                let memories = &mut self.links[link].memories;
                let goes_on = self.clients[client].input(bytes, memories, scene!(self));
                self.note(client);
                if goes_on {
                    self.client_sends(client);
                }
                goes_on
            }
            Maker::Caller(caller, _) => self.caller_hears(caller, link, bytes),
            Maker::Member(host, _, meta) => self.member_hears(host, meta, bytes),
        };
        if !goes_on {
            self.lost_at_client(link);
            if !self.callers.is_empty() {
                self.at(self.now + MS, Happening::LostAtServer(link));
            }
        }
    }

    pub(super) fn lost_at_server(&mut self, link: usize) {
        if let Some(meta) = self.metaserver(link) {
            return self.lost_at_meta(meta, link);
        }
        let Some((host, key)) = self.key(link) else {
            return;
        };
        let has_it = |machine: &mut Machine| machine.sockets.contains_key(&key);
        if self.machine(host).is_some_and(has_it) {
            self.tell(host, Event::Lost(key, None));
        }
    }

    pub(super) fn lost_at_client(&mut self, link: usize) {
        if !std::mem::replace(&mut self.links[link].is_open, false) {
            return;
        }
        let maker = self.links[link].maker.clone();
        self.trace(|| format!("{maker:?} has lost link {link}"));
        match maker {
            Maker::Client(client) => self.lost_at_only_client(client, link),
            Maker::Caller(caller, _) => self.caller_lost(caller, link, false),
            Maker::Member(host, _, meta) => self.member_lost(host, meta),
        }
    }

    /// A client of one server has lost its connection, and makes another.
    fn lost_at_only_client(&mut self, client: usize, link: usize) {
        let faults = &self.options.faults;
        // A server that ends waits for its disk only for a while.
        let is_unknown = faults.disk_is_slow && self.clients[client].submits();
        let may_be_late = faults.stalls || faults.pauses || is_unknown;
        if !self.clients[client].has_goodbye && !self.links[link].is_broken && !may_be_late {
            let text = format!("client {client} loses its connection without a word");
            self.checker.fail(text);
        }
        self.clients[client].lost(&mut self.checker);
        let delay = self.random.below(200 * MS);
        self.at(self.now + delay, Happening::Connects(client));
    }
}
