//! Passes events from the server to the requests that they belong to. `proto` has checked that an
//! event is allowed. A request that was abandoned gets nothing, and memory, objects or arrays that
//! arrive for it are given back.

use super::{Ended, Loss, Peer, State};
use farcall_rpc_proto::client::{Answer, Event};
use farcall_rpc_proto::{CallId, Callback};
use std::io;

impl State {
    pub(super) fn on_event(&mut self, event: Event) {
        let (id, end) = match event {
            Event::Connected(hello) => {
                self.peer = Peer::of(hello);
                return;
            }
            Event::Challenge(text) => {
                self.peer.challenge = Some(text);
                return;
            }
            Event::Callback(id, callback) => return self.calls_back(id, callback),
            Event::Output(id, bytes) => return self.prints(id, &bytes),
            Event::Answered(id, answer) => (id, self.with_memory(id, answer)),
            Event::Failed(id, failure) => (id, Err(Loss::Failed(failure))),
        };
        let Some(open) = self.open.close(id) else {
            return;
        };
        self.outgoing.withdraw(id, open.transfer.as_ref());
        let makes_array = open.makes_array;
        if open.abandoned {
            return self.give_back(id, end, makes_array);
        }
        if let Some(mut transfer) = open.transfer {
            transfer.finish();
        }
        self.ended.insert(id, Ended { end, makes_array });
        self.seat.end(id);
    }

    /// Gives back what came with an answer that nobody takes.
    pub(super) fn give_back(&mut self, id: CallId, end: Result<Answer, Loss>, makes_array: bool) {
        match end {
            Ok(Answer::Shared(_)) => {
                self.memories.remove(&id);
                self.proto.unshare(id);
            }
            Ok(Answer::Created | Answer::Objects(_)) => self.proto.delete(id),
            Ok(Answer::Handle(made)) if makes_array && !made.stays => {
                if let Ok(id) = self.ask(|proto| proto.drop_handle(made.id)) {
                    self.open.abandon(id);
                }
            }
            _ => {}
        }
    }

    /// Keeps memory that came with an answer for the request that asked for it. Memory that did not
    /// arrive, as over a forwarded socket, is given back.
    fn with_memory(&mut self, id: CallId, answer: Answer) -> Result<Answer, Loss> {
        if let Answer::Shared(_) = answer {
            let Some(memory) = self.handed_over.pop_front() else {
                self.proto.unshare(id);
                let text = "the server did not hand its memory over".to_string();
                return Err(Loss::Io(io::ErrorKind::InvalidData, text));
            };
            self.memories.insert(id, memory);
        }
        Ok(answer)
    }

    /// Keeps a callback for a thread that waits for the call.
    fn calls_back(&mut self, id: CallId, callback: Callback) {
        let Some(open) = self.open.get_mut(id).filter(|open| !open.abandoned) else {
            return;
        };
        open.callback = Some(Box::new(callback));
        self.seat.tell(id);
    }

    fn prints(&mut self, id: CallId, bytes: &[u8]) {
        let Some(open) = self.open.get_mut(id).filter(|open| !open.abandoned) else {
            return;
        };
        if let Some(printed) = &open.printed {
            printed.push(bytes);
        }
        self.seat.tell(id);
    }
}
