//! Virtual time: what happens when, and what of it the server is told.

mod actions;

use crate::checker::{Checker, Violation};
use crate::client::Client;
use crate::disk::Disk;
use crate::machine::{Machine, Socket};
use crate::options::{Faults, Options};
use farcall_random::SplitMix64;
use farcall_rpc_proto::{FailureKind, User};
use farcall_server_proto::{Accepted, ConnectionKey, Death, Event, Flaw, Now, Ready, WorkerKey};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
/// Nothing new goes wrong after this time, and all must end.
const HEALED: u64 = 300 * S;
/// By then everything has ended.
const END: u64 = HEALED + 3600 * S;
/// Steps of one history.
const MOST_STEPS: u64 = 2_000_000;

/// What happens.
#[derive(Debug)]
enum Happening {
    /// A client does something.
    Acts(usize),
    /// A client has its connection.
    Connects(usize),
    /// Bytes arrive at the server.
    ToServer(usize, Vec<u8>),
    /// Bytes arrive at a client.
    ToClient(usize, Vec<u8>),
    /// The server learns that a link is gone.
    LostAtServer(usize),
    /// A client learns that a link is gone.
    LostAtClient(usize),
    /// To one life of the server.
    ToLife(u64, ToLife),
    /// A server starts.
    Starts,
}

/// What happens to a running server.
#[derive(Debug)]
enum ToLife {
    Starting(WorkerKey),
    Steps(WorkerKey, u64),
    Dies(WorkerKey),
    Commits,
    File(Box<Event>),
    Deadline,
}

/// A connection between a client and one life of the server.
#[derive(Debug)]
struct Link {
    client: usize,
    life: u64,
    key: Option<ConnectionKey>,
    /// When the last bytes each way arrive: none overtake others.
    arrives: [u64; 2],
    is_open: bool,
}

/// How a history has ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The promise that was broken.
    pub violation: Option<Violation>,
    /// Calls that were made.
    pub calls: u64,
    /// Faults that happened.
    pub faults: u64,
    /// Virtual seconds.
    pub seconds: f64,
    /// What has happened, where that was to be written down.
    pub history: Vec<String>,
}

pub(crate) struct World {
    options: Options,
    random: SplitMix64,
    now: u64,
    /// Milliseconds since 1970 at the start.
    calendar: i64,
    happenings: BinaryHeap<Reverse<(u64, u64)>>,
    waiting: BTreeMap<u64, Happening>,
    last: u64,
    machine: Option<Machine>,
    life: u64,
    /// Until when the server's machine stands still.
    paused: u64,
    /// When the server wants to look again.
    deadline: u64,
    disk: Disk,
    commits: bool,
    links: Vec<Link>,
    clients: Vec<Client>,
    checker: Checker,
    faults: u64,
    history: Vec<String>,
}

/// Plays one history.
pub fn simulate(options: &Options) -> Outcome {
    Flaw::plant(options.flaw);
    let mut world = World::new(options.clone());
    world.run();
    Flaw::plant(None);
    Outcome {
        violation: world.checker.violation,
        calls: world.checker.calls.len() as u64,
        faults: world.faults,
        seconds: world.now as f64 * 1e-9,
        history: world.history,
    }
}

impl World {
    fn new(options: Options) -> World {
        let mut world = World {
            random: SplitMix64::new(options.seed),
            now: 0,
            calendar: 1_700_000_000_000,
            happenings: BinaryHeap::new(),
            waiting: BTreeMap::new(),
            last: 0,
            machine: None,
            life: 0,
            paused: 0,
            deadline: u64::MAX,
            disk: Disk::default(),
            commits: false,
            links: Vec::new(),
            clients: (0..options.clients)
                .map(|number| Client::new(number, &options))
                .collect(),
            checker: Checker::default(),
            faults: 0,
            history: Vec::new(),
            options,
        };
        world.at(0, Happening::Starts);
        for client in 0..world.clients.len() {
            let soon = world.random.below(50 * MS);
            world.at(soon, Happening::Connects(client));
        }
        world
    }

    fn trace(&mut self, text: impl FnOnce() -> String) {
        if self.options.traces {
            let line = format!("{:>14.6} {}", self.now as f64 * 1e-9, text());
            self.history.push(line);
        }
    }

    fn at(&mut self, time: u64, happening: Happening) {
        self.last += 1;
        self.happenings.push(Reverse((time, self.last)));
        self.waiting.insert(self.last, happening);
    }

    fn after(&mut self, delay: u64, to_life: ToLife) {
        let happening = Happening::ToLife(self.life, to_life);
        self.at(self.now + delay, happening);
    }

    /// Whether one of these faults happens now, where it may: once in so many times.
    fn fails(&mut self, pick: impl Fn(&Faults) -> bool, once_in: u64) -> bool {
        let may = self.now < HEALED && pick(&self.options.faults);
        let fails = may && self.random.below(once_in) == 0;
        self.faults += u64::from(fails);
        fails
    }

    fn clock(&self) -> Now {
        Now {
            nanos: self.now,
            unix_ms: (self.calendar + (self.now / MS) as i64) as u64,
        }
    }

    fn run(&mut self) {
        let mut steps = 0;
        while self.checker.violation.is_none() {
            if self.clients.iter().all(Client::is_content) && self.is_quiet() {
                return self.check_end();
            }
            let Some(Reverse((time, number))) = self.happenings.pop() else {
                return self.stuck("nothing happens any more");
            };
            steps += 1;
            if time > END || steps > MOST_STEPS {
                return self.stuck("time is over");
            }
            self.now = self.now.max(time);
            if let Some(happening) = self.waiting.remove(&number) {
                self.happens(happening);
            }
        }
    }

    fn stuck(&mut self, why: &str) {
        let clients = self.clients.iter().enumerate();
        let clients = clients.filter(|(_, client)| !client.is_content());
        let lacking: Vec<String> = clients
            .map(|(number, client)| format!("client {number} lacks {}", client.lacks()))
            .collect();
        let figures = self
            .machine
            .as_ref()
            .map(|machine| machine.server.overview().figures());
        self.checker
            .fail(format!("{why}: {}; {figures:?}", lacking.join("; ")));
    }

    /// Whether the server has nothing to do any more.
    fn is_quiet(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| {
            let figures = machine.server.overview().figures();
            let calls: usize = figures.calls.iter().sum();
            // Queued and running ones are still to come to an end.
            let submitted: usize = figures.submitted[..2].iter().sum();
            calls == 0 && submitted == 0
        })
    }

    /// Everything has ended: nothing is left behind.
    fn check_end(&mut self) {
        let Some(machine) = &self.machine else { return };
        let figures = machine.server.overview().figures();
        if figures.pes_used != 0 {
            let text = format!(
                "{} processor elements are never given back",
                figures.pes_used
            );
            self.checker.fail(text);
        }
    }

    fn happens(&mut self, happening: Happening) {
        let to_server = matches!(
            happening,
            Happening::ToServer(..) | Happening::LostAtServer(_) | Happening::ToLife(..)
        );
        if to_server && self.now < self.paused {
            return self.at(self.paused, happening);
        }
        match happening {
            Happening::Acts(client) => self.client_acts(client),
            Happening::Connects(client) => self.connect(client),
            Happening::ToServer(link, bytes) => self.reaches_server(link, &bytes),
            Happening::ToClient(link, bytes) => self.reaches_client(link, &bytes),
            Happening::LostAtServer(link) => self.lost_at_server(link),
            Happening::LostAtClient(link) => self.lost_at_client(link),
            Happening::ToLife(life, to_life) if life == self.life => self.in_life(to_life),
            Happening::ToLife(..) => {}
            Happening::Starts => self.start(),
        }
    }

    fn start(&mut self) {
        self.life += 1;
        let (life, now) = (self.life, self.clock());
        self.trace(|| format!("server {life} starts"));
        let hangs = self.options.faults.worker_hangs;
        let mut machine = Machine::start(&mut self.random, now, hangs);
        machine.server.set_time(now);
        let records = self.disk.open(now.unix_ms);
        machine.server.handle(Event::DurableOpened(records));
        self.machine = Some(machine);
        self.deadline = u64::MAX;
        self.commits = false;
        self.go_on();
    }

    /// The server is killed between two actions.
    fn kill(&mut self) {
        let life = self.life;
        self.trace(|| format!("server {life} is killed"));
        self.machine = None;
        self.checker.killed();
        let committed = self.random.below(4) as usize;
        let now = self.clock().unix_ms;
        self.disk.killed(committed, now);
        self.lose_links();
        let delay = self.random.below(2 * S);
        self.at(self.now + delay, Happening::Starts);
    }

    /// Whether the server has stopped, and what it has to record is recorded.
    fn has_ended(&self) -> bool {
        let server = self.machine.as_ref().map(|machine| &machine.server);
        server.is_some_and(|server| {
            let is_late = |end: u64| self.now >= end;
            let settled = server.is_settled();
            server.stops().is_some_and(|end| settled || is_late(end))
        })
    }

    /// The server has ended of itself: the next one starts.
    fn end_life(&mut self) {
        let life = self.life;
        self.trace(|| format!("server {life} ends"));
        self.machine = None;
        self.checker.killed();
        self.disk.killed(usize::MAX, self.clock().unix_ms);
        self.lose_links();
        self.at(self.now + MS, Happening::Starts);
    }

    fn lose_links(&mut self) {
        for link in 0..self.links.len() {
            if self.links[link].is_open && self.links[link].life == self.life {
                let delay = self.random.below(20 * MS);
                let arrives = self.links[link].arrives[1].max(self.now + delay);
                self.at(arrives + 1, Happening::LostAtClient(link));
            }
        }
    }

    fn in_life(&mut self, to_life: ToLife) {
        match to_life {
            ToLife::Starting(worker) => self.worker_starts(worker),
            ToLife::Steps(worker, step) => self.worker_steps(worker, step),
            ToLife::Dies(worker) => self.worker_dies(worker),
            ToLife::Commits => self.disk_commits(),
            ToLife::File(event) => self.tell(*event),
            ToLife::Deadline => {
                self.deadline = u64::MAX;
                self.go_on();
            }
        }
    }

    /// Tells the server what has happened, and does what it wants done.
    fn tell(&mut self, event: Event) {
        let now = self.clock();
        if let Some(machine) = &mut self.machine {
            machine.server.set_time(now);
            machine.server.handle(event);
        }
        self.go_on();
    }

    /// The server goes on until there is no more to do now.
    fn go_on(&mut self) {
        self.act();
        let now = self.clock();
        if let Some(machine) = &mut self.machine {
            machine.server.set_time(now);
            machine.server.turn();
        }
        self.act();
        self.serve();
        if self.fails(|faults| faults.pauses, 5000) {
            let delay = self.random.below(5 * S);
            self.paused = self.now + delay;
            self.trace(|| format!("the server stands still for {} ms", delay / MS));
        }
        if self.fails(|faults| faults.calendar_jumps, 5000) {
            self.calendar += self.random.below(4_000_000) as i64 - 2_000_000;
        }
        if self.fails(|faults| faults.ends, 3000) {
            let ends_now = self.random.chance(0.5);
            self.trace(|| format!("the server is to end, at once: {ends_now}"));
            let event = if ends_now { Event::Stop } else { Event::Drain };
            return self.tell(event);
        }
        if self.has_ended() {
            return self.end_life();
        }
        let Some(machine) = &self.machine else { return };
        let next = match machine.server.has_work() {
            true => Some(self.now),
            false => machine.server.next_deadline(),
        };
        // A moment later, so that time goes on.
        let next = next.map(|next| next.max(self.now + 1000));
        if let Some(next) = next.filter(|next| *next < self.deadline) {
            self.deadline = next;
            self.after(next - self.now, ToLife::Deadline);
        }
    }

    /// Moves bytes on all connections that can go on.
    fn serve(&mut self) {
        loop {
            let Some(machine) = &mut self.machine else {
                return;
            };
            let resumed = machine.resumed.pop();
            if let Some(key) = resumed {
                self.take_input(key);
                continue;
            }
            let Some(key) = machine.unflushed.pop() else {
                return;
            };
            self.flush(key);
        }
    }

    fn take_input(&mut self, key: ConnectionKey) {
        loop {
            let now = self.clock();
            let Some(machine) = &mut self.machine else {
                return;
            };
            machine.server.set_time(now);
            if !machine.take_input(key) {
                return self.flush(key);
            }
            self.act();
            self.flush_if_congested(key);
        }
    }

    fn flush_if_congested(&mut self, key: ConnectionKey) {
        let machine = self.machine.as_ref();
        if machine.is_some_and(|machine| machine.server.clients().is_congested(key)) {
            self.flush(key);
        }
    }

    fn flush(&mut self, key: ConnectionKey) {
        let now = self.now;
        let Some(machine) = &mut self.machine else {
            return;
        };
        let Some(link) = machine.sockets.get(&key).map(|socket| socket.link) else {
            return;
        };
        let bytes = machine.output(key, now);
        self.act();
        self.send(link, bytes, 1);
    }

    /// Sends bytes over a link: to the server (0) or from it (1).
    fn send(&mut self, link: usize, bytes: Vec<u8>, way: usize) {
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

    fn client_acts(&mut self, client: usize) {
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

    fn connect(&mut self, client: usize) {
        let now = self.clock();
        let Some(machine) = &mut self.machine else {
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
            life: self.life,
            key: Some(key),
            arrives: [self.now; 2],
            is_open: true,
        });
        self.trace(|| format!("client {client} connects by link {link}"));
        self.clients[client].connect();
        self.client_sends(client);
        self.at(self.now + MS, Happening::Acts(client));
        self.go_on();
    }

    /// The key of a link's connection in this life.
    fn key(&self, link: usize) -> Option<ConnectionKey> {
        let link = &self.links[link];
        link.key.filter(|_| link.life == self.life)
    }

    fn reaches_server(&mut self, link: usize, bytes: &[u8]) {
        let Some(key) = self.key(link) else { return };
        let Some(machine) = &mut self.machine else {
            return;
        };
        let Some(socket) = machine.sockets.get_mut(&key) else {
            return;
        };
        socket.unread.extend(bytes);
        self.take_input(key);
        self.go_on();
    }

    fn reaches_client(&mut self, link: usize, bytes: &[u8]) {
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

    fn lost_at_server(&mut self, link: usize) {
        let Some(key) = self.key(link) else { return };
        let has_it = |machine: &Machine| machine.sockets.contains_key(&key);
        if self.machine.as_ref().is_some_and(has_it) {
            self.tell(Event::Lost(key, None));
        }
    }

    fn lost_at_client(&mut self, link: usize) {
        if !std::mem::replace(&mut self.links[link].is_open, false) {
            return;
        }
        let client = self.links[link].client;
        self.trace(|| format!("client {client} has lost link {link}"));
        self.clients[client].lost();
        let delay = self.random.below(200 * MS);
        self.at(self.now + delay, Happening::Connects(client));
    }

    fn worker_starts(&mut self, worker: WorkerKey) {
        let has_it = |machine: &Machine| machine.workers.contains_key(&worker);
        if !self.machine.as_ref().is_some_and(has_it) {
            return;
        }
        if self.fails(|faults| faults.worker_starts_badly, 50) {
            return self.worker_dies(worker);
        }
        self.tell(Event::Ready(worker, Ready::default()));
    }

    fn disk_commits(&mut self) {
        self.commits = false;
        let now = self.clock().unix_ms;
        let is_full = self.fails(|faults| faults.disk_is_full, 100);
        let said = match is_full {
            true => self.disk.refuse(),
            false => self.disk.commit(now),
        };
        for event in said {
            self.tell(event);
        }
        if self.machine.is_some() && self.disk.has_entries() && !self.commits {
            self.commits = true;
            self.after(S, ToLife::Commits);
        }
    }

    fn worker_dies(&mut self, worker: WorkerKey) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        let Some(gone) = machine.workers.remove(&worker) else {
            return;
        };
        let had_begun = gone.posted.front().is_some_and(|posted| posted.has_begun);
        let (kind, cause) = match gone.ended {
            Some(reason) => (reason.kind, reason.message),
            None => (FailureKind::LibraryCrashed, "has crashed".to_string()),
        };
        self.checker.gone(worker);
        self.trace(|| format!("{worker:?} {cause}"));
        let death = Death {
            kind,
            cause,
            had_begun,
        };
        self.tell(Event::Died(worker, death));
    }
}
