//! Connections between clients and servers: bytes on their way, and how they are lost.

use super::{Happening, MS, S, World};
use crate::machine::{Machine, Socket};
use farcall_rpc_proto::User;
use farcall_server_proto::{Accepted, ConnectionKey, Event};

/// A connection between a client and one life of a server.
#[derive(Debug)]
pub(super) struct Link {
    client: usize,
    host: usize,
    life: u64,
    key: Option<ConnectionKey>,
    /// When the last bytes each way arrive: none overtake others.
    pub(super) arrives: [u64; 2],
    pub(super) is_open: bool,
}

impl World {
    /// A server is gone, and its connections with it.
    pub(super) fn lose_links(&mut self, host: usize) {
        for link in 0..self.links.len() {
            let known = &self.links[link];
            let life = self.hosts[host].life;
            if known.is_open && (known.host, known.life) == (host, life) {
                let delay = self.random.below(20 * MS);
                let arrives = self.links[link].arrives[1].max(self.now + delay);
                self.at(arrives + 1, Happening::LostAtClient(link));
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
            let is_congested = |machine: &mut Machine| machine.server.is_congested(key);
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
        if bytes.is_empty() || !self.links[link].is_open {
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
        let is_its = |link: &Link| link.client == client && link.is_open;
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
        let now = self.clock(host);
        let Some(machine) = self.hosts[host].machine.as_mut() else {
            return self.at(self.now + 50 * MS, Happening::Connects(client));
        };
        if self.clients[client].is_connected() {
            return;
        }
        let user = self.clients[client].user;
        let accepted = Accepted {
            peer: format!("client {client}"),
            user: User::named(&format!("user {user}")),
            host: None,
            is_local: false,
            is_unix: false,
            local: None,
            ways: None,
        };
        machine.server.set_time(now);
        let Ok(key) = machine.server.accept(accepted) else {
            return self.at(self.now + S, Happening::Connects(client));
        };
        let link = self.links.len();
        let socket = Socket {
            link,
            unread: Default::default(),
        };
        machine.sockets.insert(key, socket);
        self.links.push(Link {
            client,
            host,
            life: self.hosts[host].life,
            key: Some(key),
            arrives: [self.now; 2],
            is_open: true,
        });
        self.trace(|| format!("client {client} connects to server {host} by link {link}"));
        self.clients[client].connect();
        self.client_sends(client);
        self.at(self.now + MS, Happening::Acts(client));
        self.go_on(host);
    }

    /// The host of a link's server, and the key of its connection in this life.
    fn key(&self, link: usize) -> Option<(usize, ConnectionKey)> {
        let link = &self.links[link];
        let key = link.key.filter(|_| link.life == self.hosts[link.host].life);
        Some((link.host, key?))
    }

    /// Whether bytes or word of a link wait until its server goes on, and until when.
    pub(super) fn pause(&self, link: usize) -> u64 {
        self.hosts[self.links[link].host].paused
    }

    pub(super) fn reaches_server(&mut self, link: usize, bytes: &[u8]) {
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
        let client = self.links[link].client;
        let goes_on = self.clients[client].input(bytes, &self.options, &mut self.checker);
        match goes_on {
            true => self.client_sends(client),
            false => self.lost_at_client(link),
        }
    }

    pub(super) fn lost_at_server(&mut self, link: usize) {
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
        let client = self.links[link].client;
        self.trace(|| format!("client {client} has lost link {link}"));
        self.clients[client].lost();
        let delay = self.random.below(200 * MS);
        self.at(self.now + delay, Happening::Connects(client));
    }
}
