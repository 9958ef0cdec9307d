//! Carries out the server's actions for callbacks, shared memory, libraries, the data folder and
//! paced connections, and the end of listening. It also checks that no call starves.

use super::hosts::ToLife;
use super::{MS, S, World};
use crate::interfaces;
use crate::machine::Memory;
use farcall_idl::Scalar;
use farcall_rpc_proto::{Callback, CallbackAnswer, Failure, FailureKind, HandleId};
use farcall_server_proto::{Action, DataFile, Event, MemoryKey, WorkerKey, WorkerReport};
use std::cell::RefCell;
use std::rc::Rc;

/// The interval between checks of waiting calls.
const LOOKS: u64 = 50 * MS;

/// Memory that is all zero.
pub(super) fn blank(bytes: u64) -> Memory {
    Rc::new(RefCell::new(vec![0; bytes as usize]))
}

impl World {
    pub(super) fn execute_service(&mut self, host: usize, action: Action) -> Option<Event> {
        let machine = self.hosts[host].machine.as_mut()?;
        match action {
            Action::Serve(connection, direction) => {
                machine.served.push_back((connection, direction))
            }
            Action::ShareMemory {
                memory,
                bytes,
                connection,
                request,
            } => {
                if self.memory_is_refused() {
                    let made = Err("the system has none".to_string());
                    return Some(Event::Shared(connection, request, made));
                }
                let machine = self.hosts[host].machine.as_mut()?;
                let shared = blank(bytes);
                machine.memories.insert(memory, shared.clone());
                let socket = machine.sockets.get(&connection)?;
                self.links[socket.link].memories.push_back(shared);
                return Some(Event::Shared(connection, request, Ok(bytes)));
            }
            Action::StopListening => {
                machine.listens = false;
                // Clients that have connected already are accepted, so that they can be told.
                for client in std::mem::take(&mut machine.backlog) {
                    self.accept(host, client);
                }
            }
            Action::Answer { worker, answer } => self.has_answer(host, worker, answer),
            Action::CheckLibrary { path, text } => {
                let refused = |text: &str| Failure::new(FailureKind::BadArgument, text);
                let checked = interfaces::parse(&text).ok_or_else(|| refused("it is wrong"));
                let checked =
                    checked.and_then(|document| match machine.libraries.contains(&document) {
                        true => Err(refused("it is registered")),
                        false => Ok(document),
                    });
                if let Ok(document) = &checked {
                    machine.libraries.push(document.clone());
                }
                return Some(Event::Library(checked.map(|document| (path, document))));
            }
            Action::ForgetLibrary => drop(machine.libraries.pop()),
            Action::Pull {
                number,
                address,
                memory,
                ..
            } => self.pull_array(host, number, &address, memory),
            Action::OpenSource { number, wanted } => self.open_source(host, number, &wanted),
            Action::TakeSource { number, memory, .. } => self.take_source(host, number, memory),
            Action::LeaveSource(number) => drop(machine.opened.remove(&number)),
            Action::WriteSource {
                call,
                wanted,
                memory,
            } => self.write_source(host, call, &wanted, memory),
            Action::ReadData { id, file, memory } => self.read_data(host, id, &file, memory),
            other => self.execute_on_disk(host, other),
        }
        None
    }

    /// A function asks for a callback.
    pub(super) fn asks_caller(&mut self, host: usize, worker: WorkerKey) {
        let Some(machine) = self.machine(host) else {
            return;
        };
        let posted = machine.workers.get(&worker);
        let Some(posted) = posted.and_then(|known| known.posted.front()) else {
            return;
        };
        let (tag, call) = (posted.tag, posted.call);
        let data = machine.asks(posted);
        let callback = Callback {
            index: 0,
            scalars: vec![Some(Scalar::Int(data.len() as i64)), None],
            data,
            big_endian: false,
        };
        self.checker.waits((host, worker), call);
        self.trace(|| format!("call {tag} calls back"));
        self.tell(
            host,
            Event::WorkerReport(worker, WorkerReport::Callback(callback)),
        );
    }

    /// A function receives the answer of its callback.
    fn has_answer(&mut self, host: usize, worker: WorkerKey, answer: CallbackAnswer) {
        // It continues with its processor elements, even if other calls have them now.
        self.checker.fairness.broken(self.now);
        let known = self.machine(host);
        let known = known.and_then(|machine| machine.workers.get_mut(&worker));
        let Some(known) = known.filter(|known| known.ended.is_none()) else {
            return;
        };
        let Some(posted) = known.posted.front_mut() else {
            return;
        };
        let tag = posted.tag;
        if posted.function != interfaces::ASK || posted.answer.is_some() {
            let text = format!("call {tag} has an answer, and has not called back");
            return self.checker.fail(text);
        }
        posted.answer = Some(answer.data);
        self.trace(|| format!("call {tag} has its answer"));
        self.runs_for_a_while(host, worker);
    }

    /// The files in the data folder of a server.
    pub(super) fn folder(&mut self, host: usize) -> Vec<DataFile> {
        let life = self.life(host);
        let folder = &self.hosts[host].folder;
        self.checker.names.folder(life, &folder.files(), self.now);
        folder.list()
    }

    /// A file of the data folder changes, and the server learns of it.
    pub(super) fn folder_changes(&mut self, host: usize) {
        self.hosts[host].folder.change(&mut self.random);
        let files = self.folder(host);
        let later = self.random.below(3 * S);
        self.after(host, later, ToLife::Folder);
        self.tell(host, Event::Folder(files));
    }

    fn read_data(&mut self, host: usize, id: HandleId, file: &DataFile, memory: MemoryKey) {
        let failed = self.fails(|faults| faults.disk_errors, 50);
        let bytes = self.hosts[host].folder.read(file).filter(|_| !failed);
        let machine = self.machine(host);
        let memory = machine.and_then(|machine| machine.memories.get(&memory));
        let read = match (bytes, memory) {
            (Some(bytes), Some(memory)) => {
                memory.borrow_mut()[..bytes.len()].copy_from_slice(&bytes);
                Ok(())
            }
            _ => Err("the file was changed, or cannot be read".to_string()),
        };
        let delay = self.disk_delay();
        let event = Event::DataRead(id, read);
        self.after(host, delay, ToLife::Later(Box::new(event)));
    }

    /// Checks that no call starves.
    pub(super) fn look_who_waits(&mut self, host: usize) {
        let (now, life) = (self.now, self.life(host));
        let machine = self.hosts[host].machine.as_mut();
        let Some(machine) = machine.filter(|machine| now >= machine.looked + LOOKS) else {
            return;
        };
        machine.looked = now;
        let waiting = machine.waiting();
        self.trace(|| format!("server {host} has calls that wait: {waiting:?}"));
        let looked = self
            .checker
            .fairness
            .look(life, &waiting, now, &self.options);
        looked.unwrap_or_else(|text| self.checker.fail(text));
    }
}
