//! Connections: bytes on their way, and how they are lost.

use super::{Happening, MS, S, World};
use crate::grid::caller::Whom;
use crate::machine::{Machine, Socket};
use farcall_rpc_proto::User;
use farcall_server_proto::{Accepted, ConnectionKey, Event};

/// Who has made a connection.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Maker {
    /// A client of one server.
    Client(usize),
    /// A client of metaservers, to whom it wants.
    Caller(usize, Whom),
    /// A host's server, in one life, to a metaserver.
    Member(usize, u64, usize),
}

/// To whom it leads.
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
    /// When the last bytes each way arrive: none overtake others.
    pub(super) arrives: [u64; 2],
    pub(super) is_open: bool,
    /// Nothing passes any more, and both ends will notice.
    pub(super) is_doomed: bool,
}

impl World {
    /// A server is gone, and its connections with it. Where the whole host is, the others notice
    /// late.
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
            } else if known.is_of_member(host) {
                let delay = self.random.below(20 * MS + late);
                let arrives = self.links[link].arrives[0].max(self.now + delay);
                self.links[link].is_open = false;
                self.at(arrives + 1, Happening::LostAtServer(link));
            }
        }
    }

    /// Moves bytes on all connections of a server that can go on.
    pub(super) fn serve(&mut self, host: usize) {
        loop {
            let Some(machine) = self.machine(host) else {
                return;
            };
            let resumed = machine.resumed.pop();
            if let Some(key) = resumed {
                self.take_input(host, key);
                continue;
            }
            let Some(key) = machine.unflushed.pop() else {
                return;
            };
            self.flush(host, key);
        }
    }

    fn take_input(&mut self, host: usize, key: ConnectionKey) {
        loop {
            let now = self.clock(host);
            let Some(machine) = self.machine(host) else {
                return;
            };
            machine.server.set_time(now);
            if !machine.take_input(key) {
                return self.flush(host, key);
            }
            self.act(host);
            let is_congested = |machine: &mut Machine| machine.server.clients().is_congested(key);
            if self.machine(host).is_some_and(is_congested) {
                self.flush(host, key);
            }
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
        let bytes = machine.output(key, now);
        self.act(host);
        self.send(link, bytes, 1);
    }

    /// Sends bytes over a link: to the server (0) or from it (1).
    pub(super) fn send(&mut self, link: usize, bytes: Vec<u8>, way: usize) {
        if bytes.is_empty() || !self.links[link].is_open || self.links[link].is_doomed {
            return;
        }
        if self.fails(|faults| faults.resets, 1500) {
            return self.reset(link);
        }
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
            let arrives = self.links[link].arrives[way].max(self.now + delay) + 1;
            self.links[link].arrives[way] = arrives;
            let happening = match way {
                0 => Happening::ToServer(link, part.to_vec()),
                _ => Happening::ToClient(link, part.to_vec()),
            };
            self.at(arrives, happening);
        }
    }

    fn reset(&mut self, link: usize) {
        self.trace(|| format!("link {link} is reset"));
        let [server, client] = [0, 1].map(|_| self.random.below(5 * MS));
        self.at(self.now + server, Happening::LostAtServer(link));
        self.at(self.now + client, Happening::LostAtClient(link));
    }

    pub(super) fn client_acts(&mut self, client: usize) {
        self.clients[client].act(&mut self.random, &mut self.checker);
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
        if self.fails(|faults| faults.half_open, 3000) {
            self.trace(|| format!("client {client} goes without a word"));
            self.links[link].is_open = false;
            self.clients[client].lost();
            self.at(self.now + 100 * MS, Happening::Connects(client));
            // Some day the system gives the connection up.
            let late = self.now + 30 * S;
            self.at(late, Happening::LostAtServer(link));
        }
    }

    pub(super) fn connect(&mut self, client: usize) {
        let host = self.clients[client].host;
        if self.hosts[host].machine.is_none() {
            return self.at(self.now + 50 * MS, Happening::Connects(client));
        }
        if self.clients[client].is_connected() {
            return;
        }
        let user = self.clients[client].user;
        let Some(link) = self.accept(host, Maker::Client(client), user) else {
            return self.at(self.now + S, Happening::Connects(client));
        };
        self.trace(|| format!("client {client} connects to server {host} by link {link}"));
        self.clients[client].connect();
        self.client_sends(client);
        self.at(self.now + MS, Happening::Acts(client));
        self.go_on(host);
    }

    /// A server takes a connection, or not.
    fn accept(&mut self, host: usize, maker: Maker, user: u8) -> Option<usize> {
        let now = self.clock(host);
        let machine = self.hosts[host].machine.as_mut()?;
        let accepted = Accepted {
            peer: format!("{maker:?}"),
            user: User::named(&format!("user {user}")),
            host: None,
            is_local: false,
            is_unix: false,
            local: None,
            ways: None,
        };
        machine.server.set_time(now);
        let key = machine.server.accept(accepted).ok()?;
        let link = self.links.len();
        let socket = Socket {
            link,
            unread: Default::default(),
        };
        machine.sockets.insert(key, socket);
        let life = self.hosts[host].life;
        self.add_link(maker, To::Host(host), life, Some(key));
        Some(link)
    }

    fn add_link(&mut self, maker: Maker, to: To, life: u64, key: Option<ConnectionKey>) {
        self.links.push(Link {
            maker,
            to,
            life,
            key,
            arrives: [self.now; 2],
            is_open: true,
            is_doomed: false,
        });
    }

    /// Somebody tries to connect.
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
        let link = match (to, &maker) {
            (To::Host(host), Maker::Caller(caller, _)) => {
                let user = self.callers[*caller].user;
                self.accept(host, maker.clone(), user)
            }
            (To::Meta(meta), _) => self.metas[meta].meta.is_some().then(|| {
                let link = self.links.len();
                let life = self.metas[meta].life;
                self.add_link(maker.clone(), to, life, None);
                if let Some(known) = &mut self.metas[meta].meta {
                    known.accept(link);
                }
                link
            }),
            _ => None,
        };
        self.trace(|| format!("{maker:?} reaches {to:?}: link {link:?}"));
        self.reached(maker, link);
        if let To::Host(host) = to {
            self.go_on(host);
        }
    }

    /// Somebody has a connection, or could not make one.
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

    /// Until when bytes or word that go this way over a link wait.
    pub(super) fn pause(&self, link: usize, way: usize) -> u64 {
        let link = &self.links[link];
        match (way, link.to, &link.maker) {
            (0, To::Host(host), _) => self.hosts[host].paused,
            (1, _, Maker::Member(host, ..)) => self.hosts[*host].paused,
            _ => 0,
        }
    }

    pub(super) fn reaches_server(&mut self, link: usize, bytes: &[u8]) {
        if let To::Meta(meta) = self.links[link].to
            && self.links[link].life == self.metas[meta].life
        {
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
        self.take_input(host, key);
        self.go_on(host);
    }

    pub(super) fn reaches_client(&mut self, link: usize, bytes: &[u8]) {
        if !self.links[link].is_open {
            return;
        }
        let goes_on = match self.links[link].maker {
            Maker::Client(client) => {
                let at = &mut self.clients[client];
                let goes_on = at.input(bytes, &self.options, &mut self.checker);
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
        if let To::Meta(meta) = self.links[link].to
            && self.links[link].life == self.metas[meta].life
        {
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
            Maker::Client(client) => {
                self.clients[client].lost();
                let delay = self.random.below(200 * MS);
                self.at(self.now + delay, Happening::Connects(client));
            }
            Maker::Caller(caller, _) => self.caller_lost(caller, link, false),
            Maker::Member(host, _, meta) => self.member_lost(host, meta),
        }
    }
}
