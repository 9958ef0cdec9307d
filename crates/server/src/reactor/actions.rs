//! What the server wants done.

use super::Reactor;
use crate::disk::files::{Stream, Task};
use farcall_server_proto::{
    Action, ConnectionKey, DiskError, Event, Identity, Key, MemoryKey, Transfer,
};
use std::io;

impl Reactor {
    /// Does what the server wants done, until there is no more.
    pub(super) fn act(&mut self) {
        while let Some(action) = self.server.poll_action() {
            if let Some(event) = self.execute(action) {
                self.server.handle(event);
            }
        }
    }

    /// Does one thing. Returns what has come of it, where that is known at once.
    fn execute(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Authenticate { connection, token } => {
                return self.authenticate(connection, token.as_deref());
            }
            Action::Flush(connection) => self.is_answered(connection),
            Action::Resume(connection) => self.make_ready(connection),
            Action::Serve(connection, way) => self.serve_way(connection, way),
            Action::BoundAhead(connection, bytes) => {
                if let Some(socket) = self.sockets.open.get(connection) {
                    socket.bound_ahead(bytes);
                }
            }
            Action::Close(connection) => self.close(connection),
            Action::StopListening => self.stop_listening(),
            Action::MakeMemory { memory, bytes } => {
                let made = self.memories.make(memory, bytes);
                return made.err().map(|error| {
                    let text = format!("no memory for {bytes} bytes: {error}");
                    Event::NoMemory(memory, text)
                });
            }
            Action::ShareMemory {
                memory,
                bytes,
                connection,
            } => {
                let shared = self.share(memory, bytes, connection);
                return shared
                    .err()
                    .map(|error| Event::NotShared(connection, error.to_string()));
            }
            Action::FreeMemory(memory) => self.free_memory(memory),
            Action::ClearMemory {
                memory,
                offset,
                bytes,
            } => self.memories.clear(memory, offset, bytes),
            Action::SwapMemory {
                memory,
                offset,
                bytes,
                unit,
            } => self.memories.swap(memory, offset, bytes, unit),
            other => return self.execute_with_workers(other),
        }
        None
    }

    fn execute_with_workers(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::StartWorker {
                worker,
                library,
                processes,
            } => return self.start_worker(worker, library, processes),
            Action::Run { worker, call } => return self.run_call(worker, call),
            Action::Withdraw { worker, call } => return Some(self.withdraw(worker, call)),
            Action::Answer { worker, answer } => self.answer(worker, &answer),
            Action::EndWorker { worker, reason } => {
                if let Some(worker) = self.crew.workers.get_mut(worker) {
                    worker.end(reason.kind, reason.message);
                }
            }
            Action::CheckLibrary { path, text } => {
                return Some(Event::Library(self.check_library(path, text)));
            }
            Action::KeepLibrary => {
                if let Some(library) = self.crew.libraries.last() {
                    // It was checked before.
                    let _ = self.crew.catalog.add(library.source.clone());
                }
            }
            Action::ForgetLibrary => drop(self.crew.libraries.pop()),
            other => return self.execute_with_disk(other),
        }
        None
    }

    fn execute_with_disk(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::WriteFile {
                ticket,
                transfer,
                room,
            } => {
                let write = |stream| Task::Write {
                    ticket,
                    stream,
                    room,
                };
                let failed = self.hand_to_disk(transfer, write);
                return failed.map(|error| Event::Written(ticket, Err(error)));
            }
            Action::ReadFile {
                ticket,
                transfer,
                stored,
            } => {
                let read = |stream| Task::Read {
                    ticket,
                    stream,
                    stored,
                };
                let failed = self.hand_to_disk(transfer, read);
                return failed.map(|error| Event::Fetched(ticket, Err(error)));
            }
            Action::RemoveFile(id, content) => {
                if let Some(disk) = &self.state.disk {
                    disk.submit(Task::Remove { id, content });
                }
            }
            Action::Record(entry) => {
                if let Some(disk) = &self.state.disk {
                    disk.record(entry);
                }
            }
            Action::Pull {
                number,
                address,
                loan,
                memory,
                bytes,
            } => return self.pull(number, &address, loan, (memory, bytes)),
            Action::ReadData { id, file, memory } => return self.read_data(id, file, memory),
            Action::KeepLearned => self.keep_learned(),
            Action::Audit(told) => {
                if let Some(audit) = &mut self.audit {
                    audit.write(&told);
                }
            }
            _ => {}
        }
        None
    }

    /// Has the disk do something; why not, where that is impossible.
    fn hand_to_disk(
        &mut self,
        transfer: Transfer,
        task: impl FnOnce(Stream) -> Task,
    ) -> Option<DiskError> {
        match (self.memories.take(transfer.memory), &self.state.disk) {
            (Some(object), Some(disk)) => {
                disk.submit(task(Stream { transfer, object }));
                None
            }
            _ => Some(DiskError {
                is_full: false,
                text: "there is no memory for it".to_string(),
            }),
        }
    }

    fn authenticate(&mut self, connection: ConnectionKey, token: Option<&str>) -> Option<Event> {
        let socket = self.sockets.open.get(connection)?;
        let found = match socket.lacks_tls() {
            true => Err("this address speaks TLS; connect to farcalls://".to_string()),
            false => self.access.user(&socket.evidence(token)),
        };
        let found = found.map(|user| Identity {
            is_operator: self.access.is_operator(&user),
            user,
        });
        Some(Event::Authenticated(connection, found))
    }

    fn share(
        &mut self,
        memory: MemoryKey,
        bytes: u64,
        connection: ConnectionKey,
    ) -> io::Result<()> {
        let object = self.memories.share(memory, bytes)?;
        let descriptor = object.fd().try_clone_to_owned()?;
        if let Some(socket) = self.sockets.open.get_mut(connection) {
            socket.hand_over(descriptor);
        }
        Ok(())
    }

    fn free_memory(&mut self, memory: MemoryKey) {
        self.memories.free(memory);
        for (_, worker) in self.crew.workers.iter_mut() {
            worker.forget(memory.number());
        }
    }
}
