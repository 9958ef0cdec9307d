//! A host of the simulated world: a server, its disk and its clocks, and their faults. A host has
//! one life of its server after the other, and an event of an earlier life has no effect.

use super::grid::Membership;
use super::{Happening, MS, S, World};
use crate::disk::Disk;
use crate::folder::Folder;
use crate::machine::Machine;
use farcall_rpc_proto::{FailureKind, Nanos};
use farcall_server_proto::source::SourceRequest;
use farcall_server_proto::{CallKey, Death, Event, MemoryKey, Now, Ready, WorkerKey};

/// How soon a server hears that a worker has ended, in nanoseconds. It may hand it calls till then.
const NOTICES_DEATH: Nanos = 200_000;

/// A host with a server, one life of it after the other.
#[derive(Default)]
pub(crate) struct Host {
    /// `None` between two lives.
    pub(super) machine: Option<Machine>,
    /// Which life of its server it is.
    pub(super) life: u64,
    /// It does not come back.
    pub(super) is_gone: bool,
    /// The end of a pause of the host.
    pub(super) paused: Nanos,
    /// The next deadline of the server.
    deadline: Nanos,
    /// The error of its system clock in milliseconds.
    calendar: i64,
    pub(super) disk: Disk,
    /// The number of its server in this life, at metaservers.
    pub(super) number: u64,
    /// By the numbers of the metaservers.
    pub(super) members: Vec<Membership>,
    /// Its data folder.
    pub(super) folder: Folder,
    /// Whether the disk is about to commit.
    pub(super) commits: bool,
}

/// What happens to a running server.
#[derive(Debug)]
pub(super) enum ToLife {
    Starting(WorkerKey),
    Steps(WorkerKey, u64),
    Dies(WorkerKey),
    Commits,
    Later(Box<Event>),
    Deadline,
    /// A client that has connected is accepted.
    Accepts,
    /// A file of the data folder changes.
    Folder,
    /// A connector has written an array to an address.
    Writes(CallKey, Box<SourceRequest>, MemoryKey),
}

impl Host {
    /// Whether this life of its server continues.
    pub(super) fn has(&self, life: u64) -> bool {
        self.life == life && self.machine.is_some()
    }

    /// Whether its server has no work left.
    pub(super) fn is_quiet(&self) -> bool {
        self.machine.as_ref().map_or(self.is_gone, |machine| {
            let figures = machine.server.overview().figures();
            let calls: usize = figures.calls.iter().sum();
            // Queued and running durable calls still have to end.
            let submitted: usize = figures.submitted[..2].iter().sum();
            // A connector that waits for ever would be lost to others.
            calls == 0 && submitted == 0 && machine.opened.is_empty()
        })
    }

    /// Whether its server has stopped, with its last bytes sent and its entries recorded. It waits
    /// only briefly for both.
    fn has_ended(&self, now: Nanos) -> bool {
        self.machine.as_ref().is_some_and(|machine| {
            let is_over = machine.is_flushed() && machine.server.is_settled();
            let end = machine.server.stops();
            end.is_some_and(|end| is_over || now >= end)
        })
    }
}

impl World {
    pub(super) fn machine(&mut self, host: usize) -> Option<&mut Machine> {
        self.hosts[host].machine.as_mut()
    }

    /// What the clocks of a host show.
    pub(super) fn clock(&self, host: usize) -> Now {
        let calendar = self.calendar + self.hosts[host].calendar;
        Now {
            nanos: self.now,
            unix_ms: (calendar + (self.now / MS) as i64) as u64,
        }
    }

    pub(super) fn after(&mut self, host: usize, delay: Nanos, to_life: ToLife) {
        let happening = Happening::ToLife(host, self.hosts[host].life, to_life);
        self.at(self.now + delay, happening);
    }

    pub(super) fn start(&mut self, host: usize) {
        self.hosts[host].life += 1;
        let (life, now) = (self.hosts[host].life, self.clock(host));
        self.trace(|| format!("server {host} starts, life {life}"));
        let files = self.folder(host);
        let mut machine = Machine::start(&mut self.random, now, &self.options, files);
        machine.server.set_time(now);
        if self.options.faults.disk_rots && self.random.chance(0.5) {
            let disk = &mut self.hosts[host].disk;
            disk.rot(&mut self.random);
        }
        let at = &mut self.hosts[host];
        let mut awaited = None;
        match at.disk.open(now.unix_ms, now.nanos) {
            Ok((records, served)) => {
                let opened = Event::DurableOpened(records, served);
                if self.options.faults.ends && self.random.chance(0.3) {
                    // The server before still has the state folder.
                    machine.server.handle(Event::DurableAwaited);
                    awaited = Some(opened);
                } else {
                    machine.server.handle(opened);
                }
            }
            Err(damages) => {
                let text = format!("one damaged log of server {host} loses calls: {damages:?}");
                self.checker.fail(text);
            }
        }
        let at = &mut self.hosts[host];
        at.machine = Some(machine);
        at.deadline = Nanos::MAX;
        at.commits = false;
        if self.options.subjects.names {
            self.after(host, S, ToLife::Folder);
        }
        if !self.metas.is_empty() {
            self.joins(host);
        }
        if let Some(opened) = awaited {
            let delay = self.random.below(10 * S);
            self.after(host, delay, ToLife::Later(Box::new(opened)));
        }
        self.go_on(host);
    }

    /// A server is killed between two actions.
    pub(super) fn kill(&mut self, host: usize) {
        self.trace(|| format!("server {host} is killed"));
        let committed = self.random.below(4) as usize;
        self.excuse_links(host);
        // If the whole host is lost, no peer is told.
        let is_silent = !self.metas.is_empty() && self.random.chance(0.3);
        self.ends(host, committed, if is_silent { 30 * S } else { 0 });
        let others = self.hosts.iter().filter(|one| !one.is_gone).count() - 1;
        if others > 0 && self.random.chance(0.3) {
            self.hosts[host].is_gone = true;
            return;
        }
        let away = if self.metas.is_empty() { 2 * S } else { 20 * S };
        let delay = self.random.below(away);
        self.at(self.now + delay, Happening::Starts(host));
    }

    /// A server has stopped: the next one starts.
    fn end_life(&mut self, host: usize) {
        self.trace(|| format!("server {host} ends"));
        if !self.hosts[host]
            .machine
            .as_ref()
            .is_some_and(Machine::is_flushed)
        {
            // It does not wait for peers that read nothing.
            self.excuse_links(host);
        }
        if !self.metas.is_empty() {
            self.leaves(host);
        }
        self.ends(host, usize::MAX, 0);
        self.at(self.now + MS, Happening::Starts(host));
    }

    /// A server is gone. The first `committed` entries in its journal's queue are committed. Peers
    /// notice within `late`.
    fn ends(&mut self, host: usize, committed: usize, late: Nanos) {
        self.checker.killed(self.life(host), host);
        self.disappoint(host);
        let now = self.clock(host);
        let at = &mut self.hosts[host];
        at.machine = None;
        let moment = (now.unix_ms, now.nanos);
        at.disk.killed(committed, moment, &mut self.random);
        self.lose_links(host, late);
        self.hosts[host].members.clear();
        self.dead.push((self.hosts[host].number, self.now));
    }

    pub(super) fn in_life(&mut self, host: usize, to_life: ToLife) {
        match to_life {
            ToLife::Starting(worker) => self.worker_starts(host, worker),
            ToLife::Steps(worker, step) => self.worker_steps(host, worker, step),
            ToLife::Dies(worker) => self.worker_dies(host, worker),
            ToLife::Commits => self.disk_commits(host),
            ToLife::Later(event) => self.tell(host, *event),
            ToLife::Writes(call, wanted, memory) => {
                self.source_written(host, call, &wanted, memory)
            }
            ToLife::Deadline => {
                self.hosts[host].deadline = Nanos::MAX;
                self.go_on(host);
            }
            ToLife::Accepts => self.accept_next(host),
            ToLife::Folder => self.folder_changes(host),
        }
    }

    /// Passes an event to a server, and carries out its actions.
    pub(super) fn tell(&mut self, host: usize, event: Event) {
        let now = self.clock(host);
        if let Some(machine) = self.machine(host) {
            machine.server.set_time(now);
            machine.server.handle(event);
        }
        self.go_on(host);
    }

    /// A server works until it has nothing to do now.
    pub(super) fn go_on(&mut self, host: usize) {
        self.act(host);
        let now = self.clock(host);
        if let Some(machine) = self.machine(host) {
            machine.server.set_time(now);
            machine.server.turn();
        }
        self.act(host);
        self.serve(host);
        if self.fails(|faults| faults.pauses, 5000) {
            // Long enough for a lease to end.
            let most = if self.metas.is_empty() { 5 } else { 25 };
            let delay = self.random.below(most * S);
            self.hosts[host].paused = self.now + delay;
            self.checker.fairness.broken(self.now + delay);
            self.checker.lanes.stands_still(self.life(host));
            self.trace(|| format!("server {host} stands still for {} ms", delay / MS));
        }
        if self.fails(|faults| faults.calendar_jumps, 5000) {
            self.hosts[host].calendar += self.random.below(2_000_000_000) as i64 - 1_000_000_000;
        }
        if self.fails(|faults| faults.ends, 3000) {
            let ends_now = self.random.chance(0.5);
            self.trace(|| format!("server {host} is to end, at once: {ends_now}"));
            let event = if ends_now { Event::Stop } else { Event::Drain };
            return self.tell(host, event);
        }
        if self.hosts[host].has_ended(self.now) {
            return self.end_life(host);
        }
        if self.options.subjects.replacements && self.random.below(2000) == 0 {
            return self.replace_files(host);
        }
        self.report(host);
        self.look_who_waits(host);
        self.set_deadline(host);
    }

    /// Sets the next deadline of a server.
    fn set_deadline(&mut self, host: usize) {
        let (now, at) = (self.now, &mut self.hosts[host]);
        let Some(machine) = &at.machine else { return };
        let next = match machine.server.has_work() {
            true => Some(now),
            false => machine.server.next_deadline(),
        };
        // A moment later, so that time advances.
        let next = next.map(|next| next.max(now + 1000));
        if let Some(next) = next.filter(|next| *next < at.deadline) {
            at.deadline = next;
            self.after(host, next - now, ToLife::Deadline);
        }
    }

    fn worker_starts(&mut self, host: usize, worker: WorkerKey) {
        let has_it = |machine: &mut Machine| machine.workers.contains_key(&worker);
        if !self.machine(host).is_some_and(has_it) {
            return;
        }
        if self.fails(|faults| faults.worker_starts_badly, 50) {
            return self.worker_dies(host, worker);
        }
        if let Some(machine) = self.machine(host) {
            machine.is_ready(worker);
        }
        self.tell(host, Event::Ready(worker, Ready::default()));
    }

    /// The files of a library are replaced.
    fn replace_files(&mut self, host: usize) {
        let number = self.random.next_u64() as usize;
        let Some(machine) = self.machine(host) else {
            return;
        };
        let library = number % machine.libraries.len();
        let files = machine.files.entry(library).or_default();
        files.version += 1;
        files.awaits_trial = true;
        for known in machine.workers.values_mut() {
            known.is_trial &= known.library != library;
        }
        self.trace(|| format!("the files of library {library} of server {host} are replaced"));
        self.tell(host, Event::Replaced(library));
    }

    fn disk_commits(&mut self, host: usize) {
        self.hosts[host].commits = false;
        let now = self.clock(host);
        let is_full = self.fails(|faults| faults.disk_is_full, 100);
        let disk = &mut self.hosts[host].disk;
        let said = match is_full {
            true => disk.refuse(),
            false => disk.commit(now.unix_ms, now.nanos),
        };
        for event in said {
            self.tell(host, event);
        }
        let at = &mut self.hosts[host];
        if at.machine.is_some() && at.disk.entries() > 0 && !at.commits {
            at.commits = true;
            self.after(host, S, ToLife::Commits);
        }
    }

    fn worker_dies(&mut self, host: usize, worker: WorkerKey) {
        let gone = self.machine(host);
        let Some(gone) = gone.and_then(|machine| machine.workers.remove(&worker)) else {
            return;
        };
        let had_begun = gone.posted.front().is_some_and(|posted| posted.has_begun);
        let is_foreign = gone.ended.is_none() && self.random.chance(0.5);
        let (kind, cause) = match gone.ended {
            Some(reason) => (reason.kind, reason.message),
            None if is_foreign => (FailureKind::LibraryCrashed, "was killed".to_string()),
            None => (FailureKind::LibraryCrashed, "has crashed".to_string()),
        };
        self.checker.gone(self.life(host), (host, worker));
        self.trace(|| format!("{worker:?} of server {host} {cause}"));
        let death = Death {
            kind,
            cause,
            had_begun,
            is_foreign,
            is_unborn: false,
        };
        let [leaves, died] = [Event::Leaves(worker), Event::Died(worker, death)].map(Box::new);
        self.after(host, NOTICES_DEATH / 2, ToLife::Later(leaves));
        self.after(host, NOTICES_DEATH, ToLife::Later(died));
    }
}
