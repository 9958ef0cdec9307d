//! Carries out the actions of a simulated server, and lets its workers compute. `services` has the
//! rarer actions. The server can be killed before any action.

use super::hosts::ToLife;
use super::services::blank;
use super::{MS, S, World};
use crate::checker::Handed;
use crate::client::OPERATOR;
use crate::interfaces::{ADD, ASK, user_name};
use crate::machine::{PES, Worker};
use farcall_rpc_proto::{FailureKind, User};
use farcall_server_proto::{
    Action, CallKey, ConnectionKey, DiskError, Event, Finished, Identity, Shown, Stored, Transfer,
    Withdrawal, WorkerKey,
};

/// Who a client is. The simulated proof is the name of the user.
fn identify(connection: ConnectionKey, shown: Shown) -> Event {
    let name = match shown {
        Shown::First(name) => return Event::Challenged(connection, name),
        Shown::Proof(name) => name,
        _ => String::new(),
    };
    let identity = Identity {
        user: User::named(&name),
        is_operator: name == user_name(OPERATOR),
        signature: Some(name),
    };
    Event::Authenticated(connection, Ok(identity))
}

impl World {
    /// Carries out the server's actions until there are none left. A kill can come before any of
    /// them.
    pub(super) fn act(&mut self, host: usize) {
        loop {
            let Some(machine) = self.machine(host) else {
                return;
            };
            let Some(action) = machine.server.poll_action() else {
                break;
            };
            // Kills are more frequent before an action that records or starts a call. With several
            // servers, each has fewer calls.
            let once_in = match action {
                Action::Record { .. } | Action::Run { .. } => 1500,
                _ if self.metas.is_empty() => 20_000,
                _ => 2_000,
            };
            if self.fails(|faults| faults.kills, once_in) {
                return self.kill(host);
            }
            let event = self.execute(host, action);
            let now = self.clock(host);
            if let (Some(event), Some(machine)) = (event, self.machine(host)) {
                machine.server.set_time(now);
                machine.server.handle(event);
            }
        }
        if self
            .machine(host)
            .is_some_and(|machine| machine.is_too_large())
        {
            self.checker
                .fail("the server takes more memory than it may".to_string());
        }
    }

    fn execute(&mut self, host: usize, action: Action) -> Option<Event> {
        let now = self.now;
        let machine = self.hosts[host].machine.as_mut()?;
        match action {
            Action::Authenticate(connection, shown) => {
                return Some(identify(connection, shown));
            }
            Action::Flush(connection) => machine.unflushed.push(connection),
            Action::Resume(connection) => machine.resumed.push(connection),
            Action::Close(connection) => {
                let farewell = machine.farewell(connection, now);
                if let Some(socket) = machine.sockets.remove(&connection) {
                    self.send(socket.link, farewell, 1);
                    let delay = 2 * MS + self.random.below(10 * MS);
                    let arrives = self.links[socket.link].arrives[1].max(self.now + delay);
                    self.at(arrives + 1, super::Happening::LostAtClient(socket.link));
                }
            }
            Action::MakeMemory { memory, bytes } => {
                if self.memory_is_refused() {
                    return Some(Event::NoMemory(memory, "the system has none".into()));
                }
                let machine = self.hosts[host].machine.as_mut()?;
                machine.memories.insert(memory, blank(bytes));
            }
            Action::FreeMemory(memory) => {
                machine.memories.remove(&memory);
                self.checker.freed(host, memory);
            }
            Action::ClearMemory {
                memory,
                offset,
                bytes,
            } => {
                if let Some(memory) = machine.memories.get(&memory) {
                    memory.borrow_mut()[offset as usize..(offset + bytes) as usize].fill(0);
                }
            }
            Action::StartWorker {
                worker, library, ..
            } => {
                self.start_worker(host, worker, library);
            }
            Action::Run { worker, call } => return self.run_call(host, worker, call),
            Action::Withdraw { worker, call } => return Some(self.withdraw(host, worker, call)),
            Action::EndWorker { worker, reason } => {
                if let Some(known) = machine.workers.get_mut(&worker) {
                    let is_unwanted = reason.kind == FailureKind::Cancelled;
                    known.ended.get_or_insert(reason);
                    known.step += 1;
                    let delay = self.random.below(2 * MS);
                    self.after(host, delay, ToLife::Dies(worker));
                    if is_unwanted {
                        self.unwanted(host, worker);
                    }
                }
            }
            other => return self.execute_service(host, other),
        }
        None
    }

    fn start_worker(&mut self, host: usize, worker: WorkerKey, library: usize) {
        let Some(machine) = self.machine(host) else {
            return;
        };
        let files = machine.files.entry(library).or_default();
        let started = Worker {
            library,
            version: files.version,
            is_trial: std::mem::take(&mut files.awaits_trial),
            ..Worker::default()
        };
        machine.workers.insert(worker, started);
        let slow = self.options.faults.worker_starts_badly;
        let delay = self.random.below(if slow { 2 * S } else { 20 * MS });
        self.after(host, delay, ToLife::Starting(worker));
    }

    /// The server ends a worker because nobody wants its call or its object any more.
    fn unwanted(&mut self, host: usize, worker: WorkerKey) {
        let of = (self.life(host), worker);
        let objects = &self.checker.objects;
        if let Err(text) = objects.ends(of, self.now, &self.options) {
            self.checker.fail(text);
        }
    }

    pub(super) fn execute_on_disk(&mut self, host: usize, action: Action) {
        match action {
            Action::WriteFile {
                ticket, transfer, ..
            } => self.write_file(host, ticket, transfer),
            Action::ReadFile {
                ticket,
                transfer,
                stored,
            } => self.read_file(host, ticket, transfer, stored),
            Action::RemoveFile(id, content) => {
                if let Err(text) = self.hosts[host].disk.remove(id, content) {
                    self.checker.fail(text);
                }
            }
            Action::Record { entry, .. } => {
                self.hosts[host].disk.append(entry);
                if !std::mem::replace(&mut self.hosts[host].commits, true) {
                    let delay = self.disk_delay();
                    self.after(host, delay, ToLife::Commits);
                }
            }
            _ => {}
        }
    }

    pub(super) fn disk_delay(&mut self) -> u64 {
        match self.fails(|faults| faults.disk_is_slow, 50) {
            true => self.random.below(10 * S),
            false => MS / 2 + self.random.below(5 * MS),
        }
    }

    fn write_file(&mut self, host: usize, ticket: u64, mut transfer: Transfer) {
        let error = |is_full, text: &str| DiskError {
            is_full,
            is_damage: false,
            text: text.to_string(),
        };
        let mut bytes = Vec::new();
        if let Some(machine) = &self.hosts[host].machine
            && let Some(all) = machine.memories.get(&transfer.memory)
        {
            let all = all.borrow();
            while let Some(piece) = transfer.pieces.take(u64::MAX) {
                let (start, length) = (piece.offset as usize, piece.length as usize);
                bytes.extend_from_slice(&all[start..start + length]);
            }
        }
        let written = if !self.has_memory(host, &transfer) {
            Err(error(false, "its memory was refused"))
        } else if self.fails(|faults| faults.disk_is_full, 50) {
            Err(error(true, "no room"))
        } else if self.fails(|faults| faults.disk_errors, 50) {
            Err(error(false, "the disk cannot be written"))
        } else {
            let is_forgotten = self.fails(|faults| faults.disk_forgets, 20);
            Ok(self.hosts[host]
                .disk
                .write(transfer.id, transfer.content, bytes, is_forgotten))
        };
        let delay = self.disk_delay();
        let event = Event::Written(ticket, written);
        self.after(host, delay, ToLife::Later(Box::new(event)));
    }

    /// Whether there is the memory that a transfer reads or writes. The system may have refused it.
    fn has_memory(&mut self, host: usize, transfer: &Transfer) -> bool {
        let machine = self.machine(host);
        machine.is_none_or(|machine| machine.memories.contains_key(&transfer.memory))
    }

    fn read_file(&mut self, host: usize, ticket: u64, mut transfer: Transfer, stored: Stored) {
        let mut read = self.hosts[host]
            .disk
            .read(transfer.id, transfer.content, stored);
        if !self.has_memory(host, &transfer) || self.fails(|faults| faults.disk_errors, 50) {
            read = Err(DiskError {
                is_full: false,
                is_damage: false,
                text: "the disk cannot be read".to_string(),
            });
        }
        let read = read.map(|bytes| {
            let machine = self.machine(host);
            let all = machine.and_then(|machine| machine.memories.get(&transfer.memory));
            let Some(all) = all else { return };
            let mut all = all.borrow_mut();
            let mut at = 0;
            while let Some(piece) = transfer.pieces.take(u64::MAX) {
                let (start, length) = (piece.offset as usize, piece.length as usize);
                all[start..start + length].copy_from_slice(&bytes[at..at + length]);
                at += length;
            }
        });
        let delay = self.disk_delay();
        let event = Event::Fetched(ticket, read);
        self.after(host, delay, ToLife::Later(Box::new(event)));
    }

    fn run_call(&mut self, host: usize, worker: WorkerKey, call: CallKey) -> Option<Event> {
        let machine = self.machine(host)?;
        let Some((posted, pes)) = machine.posted(worker, call) else {
            return Some(Event::NotRun(worker, "it has ended".to_string()));
        };
        let known = machine.workers.get_mut(&worker)?;
        let memory = posted.arrays.iter();
        let handed = Handed {
            call,
            tag: posted.tag,
            pes,
            reservation: posted.reservation,
            memory: memory
                .map(|array| (array.memory, array.is_written))
                .collect(),
        };
        let tag = posted.tag;
        let is_new = posted.function != ADD && !std::mem::take(&mut known.is_booked);
        let is_outdated = is_new && known.is_outdated;
        known.posted.push_back(posted);
        let is_first = known.posted.len() == 1;
        let life = self.life(host);
        self.checker.handed(life, (host, worker), handed, PES);
        if is_outdated {
            let text = format!("call {tag} runs with files that have been replaced");
            self.checker.fail(text);
        }
        self.trace(|| format!("{worker:?} of server {host} is handed call {tag}"));
        if is_first {
            self.step_after(host, worker, 3_000);
        }
        None
    }

    pub(super) fn step_after(&mut self, host: usize, worker: WorkerKey, delay: u64) {
        let machine = self.machine(host);
        let known = machine.and_then(|machine| machine.workers.get_mut(&worker));
        if let Some(known) = known {
            known.step += 1;
            let step = known.step;
            self.after(host, delay, ToLife::Steps(worker, step));
        }
    }

    fn withdraw(&mut self, host: usize, worker: WorkerKey, call: CallKey) -> Event {
        let machine = self.machine(host);
        let known = machine.and_then(|machine| machine.workers.get_mut(&worker));
        let posted = known.and_then(|known| {
            known
                .posted
                .iter_mut()
                .find(|one| one.call == call && !one.is_withdrawn)
        });
        let withdrawal = match posted {
            None => Withdrawal::Finished,
            Some(posted) if posted.has_begun => Withdrawal::Runs,
            Some(posted) => {
                posted.is_withdrawn = true;
                Withdrawal::Done
            }
        };
        if withdrawal == Withdrawal::Done {
            self.checker.leaves((host, worker), call);
        }
        Event::Withdrawn(worker, call, withdrawal)
    }

    /// A worker begins with a call, or ends it.
    pub(super) fn worker_steps(&mut self, host: usize, worker: WorkerKey, step: u64) {
        let Some(machine) = self.machine(host) else {
            return;
        };
        let Some(known) = machine.workers.get_mut(&worker) else {
            return;
        };
        let Some(posted) = known.posted.front_mut().filter(|_| known.step == step) else {
            return;
        };
        if posted.is_withdrawn {
            known.posted.pop_front();
            self.step_after(host, worker, 1_000);
            return self.tell(host, Event::Passed(worker));
        }
        if !posted.has_begun {
            posted.has_begun = true;
            let tag = posted.tag;
            self.checker.begins(tag);
            self.trace(|| format!("{worker:?} of server {host} begins with call {tag}"));
            if self.fails(|faults| faults.worker_hangs, 100) {
                self.checker.fairness.broken(self.now + 6 * S);
                return;
            }
            if self.fails(|faults| faults.worker_crashes, 60) {
                let delay = self.random.below(5 * MS);
                return self.after(host, delay, ToLife::Dies(worker));
            }
            return self.runs_for_a_while(host, worker);
        }
        if posted.function == ASK && posted.answer.is_none() {
            return self.asks_caller(host, worker);
        }
        let posted = posted.clone();
        known.posted.pop_front();
        let mut applied = Vec::new();
        if posted.function == ADD {
            known.applied.push(posted.tag);
            applied.clone_from(&known.applied);
        }
        let user = posted.tag.user();
        let mut computed = machine.compute(&posted, user, &applied);
        if posted.function == ADD && computed.is_ok() {
            let life = self.life(host);
            computed = self.checker.objects.applied(life, posted.tag, worker);
        }
        if let Err(text) = computed {
            self.checker.fail(text);
        }
        self.checker.leaves((host, worker), posted.call);
        self.step_after(host, worker, 1_000);
        let finished = Finished {
            // The server takes the first functions for brief ones.
            exec_nanos: if posted.function < ASK {
                5_000
            } else {
                20 * MS
            },
            failure: None,
        };
        self.tell(host, Event::Finished(worker, posted.call, finished));
    }

    /// Most calls take little time.
    pub(super) fn runs_for_a_while(&mut self, host: usize, worker: WorkerKey) {
        let delay = match self.random.below(10) {
            0..=5 => 2_000 + self.random.below(10_000),
            6..=8 => self.random.below(20 * MS),
            _ => self.random.below(S),
        };
        self.step_after(host, worker, delay);
    }
}
