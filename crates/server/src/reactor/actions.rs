//! Passes each action of the server to the part of the shell that performs it. It decides nothing
//! itself. If the result of an action is known at once, the server gets it before the next action
//! is performed.

use super::Reactor;
use farcall_server_proto::{Action, Event};
use std::io;

impl Reactor {
    /// Performs actions until there are none left.
    pub(super) fn act(&mut self) {
        while let Some(action) = self.server.poll_action() {
            if let Some(event) = self.execute(action) {
                self.server.handle(event);
            }
        }
    }

    /// Performs one action. Returns the resulting event if it is known at once.
    fn execute(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Authenticate(connection, shown) => {
                let socket = self.sockets.open.get(connection)?;
                return Some(self.operator.identify(socket, connection, &shown));
            }
            Action::Flush(connection) => self.sockets.unflushed.push(connection),
            Action::Resume(connection) => self.sockets.make_ready(connection),
            Action::Serve(connection, direction) => self.serve_way(connection, direction),
            Action::BoundAhead(connection, bytes) => {
                if let Some(socket) = self.sockets.open.get(connection) {
                    socket.bound_ahead(bytes);
                }
            }
            Action::Close(connection) => self.close(connection),
            Action::StopListening => self.stop_listening(),
            Action::ShareMemory {
                memory,
                bytes,
                connection,
                request,
            } => {
                let socket = self.sockets.open.get_mut(connection)?;
                let made = match socket.hands_over_more() {
                    true => self.memories.share(memory, bytes),
                    false => Err(io::Error::other(
                        "the client does not take what it was given",
                    )),
                };
                let made = made.map(|descriptor| socket.hand_over(descriptor));
                let made = made.map(|()| bytes).map_err(|error| error.to_string());
                return Some(Event::Shared(connection, request, made));
            }
            Action::MakeMemory { .. } | Action::ClearMemory { .. } | Action::SwapMemory { .. } => {
                return self.memories.execute(action);
            }
            Action::FreeMemory(memory) => {
                self.memories.free(memory);
                self.crew.forget(memory);
            }
            Action::WriteFile { .. }
            | Action::ReadFile { .. }
            | Action::RemoveFile(..)
            | Action::Record { .. } => return self.state.execute(action, &mut self.memories),
            Action::Pull { .. }
            | Action::OpenSource { .. }
            | Action::TakeSource { .. }
            | Action::LeaveSource(_)
            | Action::WriteSource { .. }
            | Action::ReadData { .. } => {
                return self.arrivals.execute(action, &mut self.memories);
            }
            Action::KeepLearned => self.keep_learned(),
            Action::Audit(told) => self.operator.record(&told),
            Action::Note(line) => self.operator.note(line),
            Action::Trace(traced) => self.operator.trace(traced),
            other => {
                let (server, memories) = (&self.server, &self.memories);
                return self.crew.execute(other, server, memories, &self.poll);
            }
        }
        None
    }
}
