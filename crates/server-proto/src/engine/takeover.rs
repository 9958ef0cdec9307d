//! A takeover: this server replaces another one, which still has the state folder.
//!
//! Requests about durable calls wait here until the other server has ended, for a bounded time.
//! All other requests are served meanwhile.

use super::Engine;
use crate::action::Action;
use crate::connection::Offer;
use crate::context::Context;
use crate::flaw::{Flaw, has};
use crate::keys::ConnectionKey;
use farcall_rpc_proto::server::Event;
use farcall_rpc_proto::{CallId, CallName, Failure, FailureKind, Nanos};
use std::collections::VecDeque;

/// How long a request waits.
const PATIENCE: Nanos = 30_000_000_000;
/// Most requests that wait.
const MOST: usize = 1 << 16;

/// The requests that wait for the state folder.
#[derive(Default)]
pub(crate) struct Takeover {
    is_under_way: bool,
    /// In the order of their arrival.
    held: VecDeque<Held>,
}

struct Held {
    until: Nanos,
    connection: ConnectionKey,
    request: CallId,
    /// The request. `None` if its arguments follow at once: then its connection holds it, and
    /// nothing more is read there.
    event: Option<Event>,
}

impl Takeover {
    /// Another server still has the state folder.
    pub(crate) fn begin(&mut self) {
        self.is_under_way = true;
    }

    /// Whether an offer that waits on its connection waits for the state folder, not for memory.
    pub(super) fn holds(&self, offer: &Offer) -> bool {
        self.is_under_way && matches!(offer, Offer::SubmitRequest(_))
    }

    /// When the first request has waited long enough.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let first = self.held.front().filter(|_| self.is_under_way);
        first.map(|held| held.until)
    }

    /// Lets a request about durable calls wait for the state folder. Returns other events.
    pub(super) fn hold(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        event: Event,
    ) -> Option<Event> {
        if !self.is_under_way {
            return Some(event);
        }
        let Some(request) = request_of(&event) else {
            return Some(event);
        };
        let is_full = self.held.len() >= MOST || has(Flaw::RefusesAtTakeover);
        let failure = cx.is_ending();
        if let Some(failure) = failure.or_else(|| is_full.then(still_there)) {
            cx.refuse(key, request, &failure);
            return None;
        }
        let event = match event {
            Event::Submit(id, submission) if !may_wait(cx, key, submission.call.data_bytes) => {
                if cx.clients.is_receiving(key, &cx.calls) {
                    // The rest of that call must be read.
                    let text = "the server that this one replaces still has the durable calls, \
                                and another call is arriving on this connection; connect again";
                    let failure = Failure::new(FailureKind::Draining, text);
                    cx.refuse(key, request, &failure);
                    return None;
                }
                cx.clients[key].waiting = Some(Offer::SubmitRequest(submission).came(id, cx.now()));
                None
            }
            event => Some(event),
        };
        self.held.push_back(Held {
            until: cx.now().saturating_add(PATIENCE),
            connection: key,
            request,
            event,
        });
        None
    }

    /// Whether a request waits for the state folder.
    pub(super) fn has(&self, connection: ConnectionKey, request: CallId) -> bool {
        let mut held = self.held.iter();
        held.any(|held| held.connection == connection && held.request == request)
    }

    /// Forgets a request that its client has given up.
    pub(crate) fn forget(&mut self, connection: ConnectionKey, request: CallId) {
        let is_it = |held: &Held| held.connection == connection && held.request == request;
        self.held.retain(|held| !is_it(held));
    }

    /// Forgets the requests of a connection that has ended.
    pub(super) fn leave(&mut self, connection: ConnectionKey) {
        self.held.retain(|held| held.connection != connection);
    }

    /// Refuses requests that have waited long enough. After the takeover they wait for memory, as
    /// others do.
    pub(super) fn expire(&mut self, cx: &mut Context) {
        if !self.is_under_way {
            return;
        }
        let now = cx.now();
        while let Some(held) = self.held.pop_front_if(|held| held.until <= now) {
            held.refuse(cx, &still_there());
        }
    }

    /// Refuses all requests, because the server itself ends.
    pub(super) fn refuse_all(&mut self, cx: &mut Context) {
        if let Some(failure) = cx.is_ending() {
            for held in self.held.drain(..) {
                held.refuse(cx, &failure);
            }
        }
    }
}

impl Held {
    fn refuse(self, cx: &mut Context, failure: &Failure) {
        let key = self.connection;
        if !cx.clients.is_open(key) {
            return;
        }
        if self.event.is_none() {
            cx.clients[key].waiting = None;
            cx.out.push(Action::Resume(key));
        }
        cx.refuse(key, self.request, failure);
    }
}

/// The state folder now belongs to this server: the requests that waited for it go on.
pub(super) fn end(engine: &mut Engine) {
    if std::mem::take(&mut engine.takeover.is_under_way) {
        tracing::info!("this server now has the durable calls");
    }
    go_on(engine);
}

/// Goes on with requests that waited for the state folder. If a connection waits for memory, its
/// other requests wait behind it.
pub(super) fn go_on(engine: &mut Engine) {
    if engine.takeover.is_under_way {
        return;
    }
    for held in std::mem::take(&mut engine.takeover.held) {
        let key = held.connection;
        if !engine.cx.clients.is_open(key) {
            continue;
        }
        if held.event.is_some() && engine.cx.clients[key].waiting.is_some() {
            engine.takeover.held.push_back(held);
            continue;
        }
        match held.event {
            Some(event) => engine.on_event(key, event),
            None => {
                if let Some(offered) = engine.cx.clients[key].waiting.take() {
                    engine.offer_in_turn(key, offered);
                    engine.cx.out.push(Action::Resume(key));
                }
            }
        }
        engine.cx.answered(key);
    }
}

/// Whether a submission with arguments of this length may wait while other requests of its
/// connection are read.
fn may_wait(cx: &Context, key: ConnectionKey, bytes: u64) -> bool {
    bytes == 0 || cx.clients[key].proto.waits_for_grant(bytes)
}

/// The request, if an event is one about durable calls.
fn request_of(event: &Event) -> Option<CallId> {
    match event {
        Event::Submit(id, _)
        | Event::AskJob(id, _)
        | Event::AskCall(id, CallName::Durable(_))
        | Event::Fetch(id, _)
        | Event::CancelJob(id, ..)
        | Event::ListJobs(id, _) => Some(*id),
        _ => None,
    }
}

fn still_there() -> Failure {
    let text = "the server that this one replaces still has the durable calls, because calls run \
                there; try again when it has ended. If it has, the log of this server says why it \
                cannot take them";
    Failure::new(FailureKind::Busy, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Now;
    use crate::keys::Key;
    use crate::settings::Settings;

    /// It waits for memory then, as other requests do.
    #[test]
    fn a_request_that_has_outlasted_the_takeover_is_not_refused_for_it() {
        let none: [&farcall_idl::Document; 0] = [];
        let mut engine = Engine::new(Settings::simple(true), none, Vec::new(), Now::default());
        for is_under_way in [false, true] {
            engine.takeover.is_under_way = is_under_way;
            engine.takeover.held = VecDeque::from([Held {
                until: 0,
                connection: ConnectionKey::new(0, 1),
                request: 7,
                event: None,
            }]);
            let deadline = engine.takeover.next_deadline();
            assert_eq!(deadline, is_under_way.then_some(0));
            engine.takeover.expire(&mut engine.cx);
            assert_eq!(engine.takeover.held.is_empty(), is_under_way);
        }
    }

    /// Clients that come and go would leave a request of a megabyte each.
    #[test]
    fn requests_of_a_client_that_leaves_do_not_wait() {
        let keys = [1, 2].map(|index| ConnectionKey::new(index, 1));
        let held = keys.map(|connection| Held {
            until: 0,
            connection,
            request: 7,
            event: None,
        });
        let mut takeover = Takeover {
            is_under_way: true,
            held: VecDeque::from(held),
        };
        takeover.leave(keys[0]);
        assert_eq!(keys.map(|key| takeover.has(key, 7)), [false, true]);
    }
}
