//! The event loop in virtual time: which event happens when, and to whom. The modules below handle
//! the events. After a time no new fault happens. Then everything must end, and nothing may be left
//! over.

mod actions;
mod callers;
mod grid;
mod hosts;
mod links;
mod services;
mod sources;

use crate::checker::{Checker, Violation};
use crate::client::Client;
use crate::grid::caller::Caller;
use crate::grid::meta::LEASE_S;
use crate::grid::store::Store;
use crate::machine::keep_ns;
use crate::options::{Faults, Flaw, GridFaults, Options};
use farcall_random::SplitMix64;
use farcall_server_proto::{Content, Event};
use grid::{Cut, MetaHost};
use hosts::{Host, ToLife};
use links::{Dawdler, Link, Maker, To};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::panic::{AssertUnwindSafe, catch_unwind};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
/// No new faults happen after this time, and everything must end.
const HEALED: u64 = 300 * S;
/// Everything has ended by this time.
const END: u64 = HEALED + 3600 * S;
/// The time after the last fault in which every host must have noticed: several leases.
const SETTLE: u64 = (3.0 * LEASE_S) as u64 * S;
/// Most steps of one history.
const MOST_STEPS: u64 = 2_000_000;

/// An event.
#[derive(Debug)]
enum Happening {
    /// A client does something.
    Acts(usize),
    /// A client has its connection.
    Connects(usize),
    /// The next byte of a client that dawdles leaves, over this link.
    Dawdles(usize),
    /// Bytes arrive at a server.
    ToServer(usize, Vec<u8>),
    /// Bytes arrive at a client.
    ToClient(usize, Vec<u8>),
    /// A server learns that a link is gone.
    LostAtServer(usize),
    /// A client learns that a link is gone.
    LostAtClient(usize),
    /// To one life of the server of a host.
    ToLife(usize, u64, ToLife),
    /// The server of a host starts.
    Starts(usize),
    /// A client of metaservers does something.
    CallerActs(usize),
    /// A host tries to connect.
    Reaches(Maker, To),
    /// A connection could not be made.
    Fails(Maker),
    /// A host's server, in one life, does what is due at a metaserver.
    MemberTurns(usize, u64, usize),
    /// A server stops waiting for the answer to a question of this number.
    Patience(usize, u64, usize, u64),
    /// A metaserver starts.
    MetaStarts(usize),
    /// A metaserver, in one life, looks at what is due.
    MetaTurns(usize, u64),
    /// The live servers are compared with those that metaservers know, and each client makes a last
    /// call.
    Settles,
}

/// The end of a history.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The broken invariant.
    pub violation: Option<Violation>,
    /// Calls that were made.
    pub calls: u64,
    /// Faults that happened.
    pub faults: u64,
    /// Virtual seconds.
    pub seconds: f64,
    /// The events, if they were recorded.
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
    hosts: Vec<Host>,
    links: Vec<Link>,
    clients: Vec<Client>,
    /// Clients that dawdle.
    dawdlers: Vec<Dawdler>,
    metas: Vec<MetaHost>,
    store: Store,
    callers: Vec<Caller>,
    cuts: Vec<Cut>,
    /// Numbers of servers that have ended, with the times.
    dead: Vec<(u64, u64)>,
    /// Whether faults have ended, and whether every host had time to notice.
    is_healed: bool,
    is_settled: bool,
    checker: Checker,
    faults: u64,
    history: Vec<String>,
}

/// Plays one history.
pub fn simulate(options: &Options) -> Outcome {
    Flaw::plant(options.flaw);
    let mut world = World::new(options.clone());
    let ran = catch_unwind(AssertUnwindSafe(|| world.run()));
    Flaw::plant(None);
    if let Err(panic) = ran {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref().cloned());
        let text: String = text.unwrap_or_default();
        world.checker.fail(format!("a server panics: {text}"));
    }
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
            hosts: (0..options.servers).map(|_| Host::default()).collect(),
            links: Vec::new(),
            clients: Vec::new(),
            dawdlers: Vec::new(),
            metas: (0..options.metaservers)
                .map(|_| MetaHost::default())
                .collect(),
            store: Store::default(),
            callers: Vec::new(),
            cuts: Vec::new(),
            dead: Vec::new(),
            is_healed: false,
            is_settled: false,
            checker: Checker::default(),
            faults: 0,
            history: Vec::new(),
            options,
        };
        world.checker.names.lasts = keep_ns(&world.options);
        for host in 0..world.hosts.len() {
            world.at(0, Happening::Starts(host));
        }
        world.begin_clients();
        world
    }

    /// Clients begin: those of the one server, or of metaservers.
    fn begin_clients(&mut self) {
        for meta in 0..self.metas.len() {
            self.at(0, Happening::MetaStarts(meta));
        }
        let (numbers, options) = (0..self.options.clients, &self.options);
        if !self.metas.is_empty() {
            self.callers = numbers.map(|number| Caller::new(number, options)).collect();
            for caller in 0..self.callers.len() {
                let soon = self.random.below(2 * S);
                self.at(soon, Happening::CallerActs(caller));
            }
            return;
        }
        self.clients = numbers.map(|number| Client::new(number, options)).collect();
        for client in 0..self.clients.len() {
            let soon = self.random.below(50 * MS);
            self.at(soon, Happening::Connects(client));
        }
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

    /// Whether one of these faults happens now, if it is on: once in `once_in` times.
    fn fails(&mut self, pick: impl Fn(&Faults) -> bool, once_in: u64) -> bool {
        self.may_fail(pick(&self.options.faults), once_in)
    }

    /// The same for faults that need metaservers.
    fn grid_fails(&mut self, pick: impl Fn(&GridFaults) -> bool, once_in: u64) -> bool {
        self.may_fail(pick(&self.options.grid_faults), once_in)
    }

    /// Whether the system refuses memory now.
    fn memory_is_refused(&mut self) -> bool {
        let options = &self.options;
        let may = options.system_faults.refuses_memory && options.faults.disk_errors;
        self.may_fail(may, 20)
    }

    fn may_fail(&mut self, is_among: bool, once_in: u64) -> bool {
        let may = self.now < HEALED && !self.is_healed && is_among;
        let fails = may && self.random.below(once_in) == 0;
        self.faults += u64::from(fails);
        fails
    }

    /// The life of a host's server, as a number that no other life has.
    fn life(&self, host: usize) -> u64 {
        (host as u64) << 32 | self.hosts[host].life
    }

    fn run(&mut self) {
        let mut steps = 0;
        while self.checker.violation.is_none() {
            if self.is_content() && self.has_settled() {
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
            self.checker.now = self.now;
            if let Some(happening) = self.waiting.remove(&number) {
                self.happens(happening);
            }
        }
    }

    /// Whether all clients have their results, and no server has work left.
    fn is_content(&self) -> bool {
        self.clients.iter().all(Client::is_content)
            && self.callers.iter().all(Caller::is_content)
            && self.hosts.iter().all(Host::is_quiet)
    }

    /// Whether nothing more can happen. With metaservers, the end has a time without faults.
    fn has_settled(&mut self) -> bool {
        if self.metas.is_empty() || self.is_settled {
            return true;
        }
        if !self.is_healed {
            self.trace(|| "all is well from now on".to_string());
            self.is_healed = true;
            self.cuts.clear();
            self.at(self.now + SETTLE, Happening::Settles);
        }
        false
    }

    fn settles(&mut self) {
        self.is_settled = true;
        self.check_directories();
        for caller in 0..self.callers.len() {
            self.callers[caller].wishes = 1;
            self.caller_acts(caller);
        }
    }

    fn stuck(&mut self, why: &str) {
        let clients = self.clients.iter().enumerate();
        let clients = clients.filter(|(_, client)| !client.is_content());
        let clients =
            clients.map(|(number, client)| format!("client {number} lacks {}", client.lacks()));
        let callers = self.callers.iter().enumerate();
        let callers = callers.filter(|(_, caller)| !caller.is_content());
        let callers =
            callers.map(|(number, caller)| format!("client {number} lacks {}", caller.lacks()));
        let lacking: Vec<String> = clients.chain(callers).collect();
        let machines = self.hosts.iter().map(|host| host.machine.as_ref());
        let figures: Vec<_> = machines
            .map(|machine| machine.map(|one| (one.server.overview().figures(), one.status())))
            .collect();
        self.checker
            .fail(format!("{why}: {}; {figures:?}", lacking.join("; ")));
    }

    /// Everything has ended: checks that nothing is left over.
    fn check_end(&mut self) {
        let machines = self.hosts.iter().filter_map(|host| host.machine.as_ref());
        let used: u32 = machines
            .map(|one| one.server.overview().figures().pes_used)
            .sum();
        if used != 0 {
            let text = format!("{used} processor elements are never given back");
            self.checker.fail(text);
        }
        self.check_files();
    }

    /// Checks that arrays and durable calls which are gone have left no files, except those whose
    /// files the server still writes or reads.
    fn check_files(&mut self) {
        let moves = |happening: &&Happening| {
            matches!(happening, Happening::ToLife(_, _, ToLife::Later(event))
                if matches!(**event, Event::Written(..) | Event::Fetched(..)))
        };
        let opens = |happening: &Happening| {
            matches!(happening, Happening::ToLife(_, _, ToLife::Later(event))
                if matches!(**event, Event::DurableOpened(..)))
        };
        if self.waiting.values().any(opens) {
            // A server does not know its durable calls yet.
            return;
        }
        let moving = self.waiting.values().filter(moves).count();
        let hosts = self.hosts.iter().filter_map(|host| {
            let machine = host.machine.as_ref()?;
            Some((machine.server.overview().figures(), &host.disk))
        });
        for (figures, disk) in hosts {
            let [_, _, done, ..] = figures.submitted;
            for (content, known) in [
                (Content::Array, figures.arrays),
                (Content::Result, done),
                (Content::Arguments, 0),
            ] {
                let files = disk.files(content);
                if files > known + moving + disk.entries() {
                    let text = format!("{content:?}: there are {files} files for {known} of them");
                    return self.checker.fail(text);
                }
            }
        }
    }

    fn happens(&mut self, happening: Happening) {
        let paused = match &happening {
            Happening::ToServer(link, _) | Happening::LostAtServer(link) => self.pause(*link, 0),
            Happening::ToClient(link, _) | Happening::LostAtClient(link) => self.pause(*link, 1),
            Happening::ToLife(host, ..)
            | Happening::MemberTurns(host, ..)
            | Happening::Patience(host, ..) => self.hosts[*host].paused,
            _ => 0,
        };
        if self.now < paused {
            return self.at(paused, happening);
        }
        match happening {
            Happening::Acts(client) => self.client_acts(client),
            Happening::Connects(client) => self.connect(client),
            Happening::Dawdles(link) => self.dawdles(link),
            Happening::ToServer(link, bytes) => self.reaches_server(link, &bytes),
            Happening::ToClient(link, bytes) => self.reaches_client(link, &bytes),
            Happening::LostAtServer(link) => self.lost_at_server(link),
            Happening::LostAtClient(link) => self.lost_at_client(link),
            Happening::ToLife(host, life, to_life) if life == self.hosts[host].life => {
                self.in_life(host, to_life);
            }
            Happening::ToLife(..) => {}
            Happening::Starts(host) => self.start(host),
            Happening::CallerActs(caller) => self.caller_acts(caller),
            Happening::Reaches(maker, to) => self.reaches(maker, to),
            Happening::Fails(maker) => self.reached(maker, None),
            Happening::MemberTurns(host, life, meta) if self.hosts[host].has(life) => {
                self.member_is_due(host, meta);
            }
            Happening::Patience(host, life, meta, asked) if self.hosts[host].has(life) => {
                self.loses_patience(host, meta, asked);
            }
            Happening::MemberTurns(..) | Happening::Patience(..) => {}
            Happening::MetaStarts(meta) => self.meta_starts(meta),
            Happening::MetaTurns(meta, life) => self.meta_turns(meta, life),
            Happening::Settles => self.settles(),
        }
    }
}
