//! What the server has said, told to whom it is for.

use super::{Answer, Answered, Loss, Peer, State};
use farcall_rpc_proto::client::Event;
use farcall_rpc_proto::{CallId, Callback};
use std::io;

impl State {
    pub(super) fn on_event(&mut self, event: Event) {
        let (id, end) = match event {
            Event::Connected(hello) => {
                self.peer = Peer::of(hello);
                return;
            }
            Event::Shared(id, bytes) => match self.handed_over.pop_front() {
                Some(memory) => (id, Ok(Answer::Shared(id, bytes, memory))),
                None => {
                    let text = "the server did not hand its memory over".to_string();
                    (id, Err(Loss::Io(io::ErrorKind::InvalidData, text)))
                }
            },
            Event::Listing(id, listing) => (id, Ok(Answer::Listing(listing))),
            Event::Interface {
                request,
                function,
                text,
                library,
            } => {
                let answered = Answered {
                    function,
                    text,
                    library,
                };
                (request, Ok(Answer::Interface(answered)))
            }
            Event::Estimated(id, estimate) => (id, Ok(Answer::Estimated(estimate))),
            Event::Standing(id, text) => (id, Ok(Answer::Standing(text))),
            Event::Draining(id, calls) => (id, Ok(Answer::Draining(calls))),
            Event::Directory(id, kind, message) => (id, Ok(Answer::Directory(kind, message))),
            Event::Submitted(id, job) => (id, Ok(Answer::Submitted(job))),
            Event::Job(id, job) => (id, Ok(Answer::Job(job))),
            Event::Jobs(id, page) => (id, Ok(Answer::Jobs(page))),
            Event::Handle(id, record) => (id, Ok(Answer::Handle(record))),
            Event::Handles(id, page) => (id, Ok(Answer::Handles(page))),
            Event::Named(id, record) => (id, Ok(Answer::Named(record))),
            Event::Names(id, page) => (id, Ok(Answer::Names(page))),
            Event::Objects(id, page) => (id, Ok(Answer::Objects(id, page))),
            Event::Reservations(id, page) => (id, Ok(Answer::Reservations(page))),
            Event::Created(id) => (id, Ok(Answer::Created(id))),
            Event::Callback(id, callback) => return self.calls_back(id, callback),
            Event::Output(id, bytes) => return self.prints(id, &bytes),
            Event::Done(id, times) => (id, Ok(Answer::Done(times))),
            Event::Failed(id, failure) => (id, Err(Loss::Failed(failure))),
        };
        self.outgoing.withdraw(id);
        let Some(open) = self.open.remove(&id) else {
            return;
        };
        if open.abandoned {
            if let Ok(Answer::Shared(memory, ..)) = end {
                self.proto.unshare(memory);
            } else if let Ok(Answer::Created(object) | Answer::Objects(object, _)) = end {
                self.proto.delete(object);
            }
            return;
        }
        if let Some(mut transfer) = open.transfer {
            transfer.finish();
        }
        self.ended.insert(id, end);
        for waiter in open.waiters {
            waiter.wake();
        }
    }

    /// Keeps a callback for a thread that waits for the call.
    fn calls_back(&mut self, id: CallId, callback: Callback) {
        let Some(open) = self.open.get_mut(&id).filter(|open| !open.abandoned) else {
            return;
        };
        open.callback = Some(Box::new(callback));
        for waiter in &open.waiters {
            waiter.wake();
        }
    }

    fn prints(&mut self, id: CallId, bytes: &[u8]) {
        let Some(open) = self.open.get_mut(&id).filter(|open| !open.abandoned) else {
            return;
        };
        if let Some(printed) = &open.printed {
            printed.push(bytes);
        }
        for waiter in &open.waiters {
            waiter.wake();
        }
    }
}
