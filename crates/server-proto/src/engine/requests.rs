//! Passes each request of a client to the part that handles it. It answers few requests itself:
//! interfaces, estimates and reservations. A connection that was opened to read a lent array can do
//! nothing else: any other request closes it.

use super::{Engine, Overview, call_status, snapshot};
use crate::action::{Action, Shown};
use crate::connection::Offer;
use crate::context::Context;
use crate::elements::Elements;
use crate::keys::ConnectionKey;
use crate::objects::Objects;
use crate::segments;
use farcall_rpc_proto::server::Event;
use farcall_rpc_proto::{
    Call, CallId, Estimate, Failure, FailureKind, HandleId, Hello, ReservationPage,
    ReservationRequest,
};

/// Why the connection of a reader ends.
const ONLY_READS: &str = "this connection can read one lent array, and nothing else";

/// Whether an event belongs to the reading of this lent array.
fn is_reading(event: &Event, loan: HandleId) -> bool {
    match event {
        Event::Get(_, id) => *id == loan,
        Event::Connected(_) | Event::Cancelled(_) => true,
        _ => false,
    }
}

/// Asks the shell who a client is that has greeted. It may read one lent array instead.
fn ask_who(cx: &mut Context, key: ConnectionKey, hello: Hello) {
    let connection = &mut cx.clients[key];
    (connection.peer.agent, connection.loan) = (hello.agent, hello.loan);
    connection.peer.client = hello.client.unwrap_or_default();
    let shown = match (hello.loan, hello.proof, hello.token) {
        (Some(_), ..) => Shown::Loan,
        (None, Some(first), _) => Shown::First(first),
        (None, None, Some(token)) => Shown::Token(token),
        (None, None, None) => Shown::Nothing,
    };
    cx.out.push(Action::Authenticate(key, shown));
}

fn no_metaserver() -> Failure {
    let text = "this is a server, not a metaserver";
    Failure::new(FailureKind::NotAllowed, text)
}

/// Destroys an object.
fn delete(cx: &mut Context, elements: &mut Elements, key: ConnectionKey, request: CallId) {
    if let Some(object) = cx.clients[key].objects.remove(&request) {
        Objects::give_up(cx, elements, &object);
    }
}

impl Engine {
    pub(crate) fn on_event(&mut self, key: ConnectionKey, event: Event) {
        let cx = &mut self.cx;
        let loan = cx.clients[key].loan;
        if loan.is_some_and(|loan| !is_reading(&event, loan)) {
            return self.close(key, Some(ONLY_READS.to_string()));
        }
        let Some(event) = self.takeover.hold(cx, key, event) else {
            return;
        };
        let now = cx.now();
        match event {
            Event::Connected(hello) => match (self.data.refuses(cx, hello.loan), hello) {
                (None, hello) => ask_who(cx, key, hello),
                (Some(refusal), _) => self.authenticated(key, Err(refusal.into())),
            },
            Event::Proof(text) => cx.out.push(Action::Authenticate(key, Shown::Proof(text))),
            Event::List(request, from) => {
                cx.clients[key]
                    .proto
                    .listing(request, &cx.functions.page(from));
            }
            Event::Register(request, path, text) => {
                self.libraries.register(cx, key, request, path, text);
            }
            Event::Describe(request, name) => self.describe(key, request, &name),
            Event::Estimate(request, call) => match self.estimate(key, &call) {
                Ok(estimate) => self.cx.clients[key].proto.estimated(request, &estimate),
                Err(failure) => self.cx.refuse(key, request, &failure),
            },
            Event::Status(request) => {
                let text = Overview(self).status(key);
                self.cx.clients[key].proto.status_text(request, text);
            }
            Event::Drain(request) => self.drain_for(key, request),
            Event::Directory(request, ..) => cx.refuse(key, request, &no_metaserver()),
            Event::Share(request, bytes) => segments::share(cx, key, request, bytes),
            Event::Unshare(request) => segments::unshare(cx, key, request),
            Event::Objects(request, asked) => {
                self.objects
                    .ask(cx, &mut self.elements, key, request, asked);
            }
            Event::Reservations(request, asked) => match self.reservations(key, asked) {
                Ok(page) => self.cx.clients[key].proto.reservations(request, &page),
                Err(failure) => self.cx.refuse(key, request, &failure),
            },
            Event::AskSnapshot(request, asked) => snapshot::answer(self, key, request, &asked),
            Event::AskCall(request, name) => call_status::answer(self, key, request, name),
            Event::New(request, class) => {
                Objects::create(cx, &mut self.elements, key, request, &class);
            }
            Event::Delete(request) => delete(cx, &mut self.elements, key, request),
            Event::Call(id, call) => self.offer_in_turn(key, Offer::Call(call).came(id, now)),
            Event::Submit(id, submission) => {
                self.offer_in_turn(key, Offer::SubmitRequest(submission).came(id, now));
            }
            Event::Put(id, put) => self.offer_in_turn(key, Offer::Put(put).came(id, now)),
            Event::Ready(id) => {
                let call = cx.clients[key].calls[&id];
                self.received(call);
            }
            Event::Answer(id, answer) => self.elements.answer_callback(cx, key, id, answer),
            Event::Cancelled(id) => self.cancelled(key, id),
            event @ (Event::AskJob(..)
            | Event::Fetch(..)
            | Event::CancelJob(..)
            | Event::ListJobs(..)) => self.durable_calls.ask(cx, key, event),
            event => self.data.ask(cx, key, event),
        }
        self.settle();
    }

    /// Sends the interface of a function to a client.
    fn describe(&mut self, key: ConnectionKey, request: CallId, name: &str) {
        let proto = &mut self.cx.clients[key].proto;
        match self.cx.functions.describe(name) {
            Ok((number, function)) => {
                let library = self.libraries.identity(function.entry);
                proto.interface(request, number, function.text().into(), library);
            }
            Err(failure) => proto.fail(request, &failure),
        }
    }

    /// Handles a client's request about reservations.
    fn reservations(
        &mut self,
        key: ConnectionKey,
        asked: ReservationRequest,
    ) -> Result<ReservationPage, Failure> {
        let (cx, queue) = (&mut self.cx, &mut self.elements.queue);
        let (user, now) = (cx.clients[key].user.clone(), cx.now());
        let reservations = &mut self.reservations;
        match asked {
            ReservationRequest::Reserve(wanted) => {
                let id = reservations.make(cx, queue, &user, &wanted)?;
                if wanted.up > 0 || wanted.down > 0 {
                    self.lanes.retune(queue, cx);
                }
                Ok(reservations.one(queue, id, now))
            }
            ReservationRequest::Release(id) => {
                reservations.check(queue, &user, id, now)?;
                let page = reservations.one(queue, id, now);
                let booking = reservations.release(queue, id, now);
                if booking.is_some_and(|booking| !booking.bandwidth.is_none()) {
                    self.lanes.retune(queue, cx);
                }
                Ok(page)
            }
            ReservationRequest::List(after) => Ok(reservations.page(queue, &user, after, now)),
            // From now on the connection has the bandwidth of this reservation.
            ReservationRequest::Attach(id) => {
                reservations.check(queue, &user, id, now)?;
                self.lanes.change_lane(key, id, &mut cx.out);
                Ok(reservations.one(queue, id, now))
            }
        }
    }

    /// The estimate of a call, from what was learned about functions and links.
    fn estimate(&self, key: ConnectionKey, call: &Call) -> Result<Estimate, Failure> {
        let nanos = |seconds: f64| (seconds * 1e9) as u64;
        let layout = self.check(key, call)?.layout;
        let (cx, pes) = (&self.cx, self.elements.queue.settings().pes);
        let elements = match layout.processor_elements {
            Some(most) => u32::try_from(most).unwrap_or(u32::MAX),
            None => cx.settings.elements,
        };
        let function = cx.functions.get(call.function)?;
        let prediction = function.predict(&layout, elements.min(pes));
        let (up, down) = rates(self, key, call);
        let seconds = prediction.map(|known| known.seconds);
        Ok(Estimate {
            exec: seconds.map(nanos),
            factor: prediction.map(|prediction| prediction.factor),
            wait: nanos(self.elements.wait_of(cx, call, &layout, seconds)),
            up,
            down,
            pes: Some(pes),
        })
    }
}

/// Bytes per second at which the arrays of a call will travel, to the server and from it: what its
/// reservation has, or else what was learned of the link.
fn rates(engine: &Engine, key: ConnectionKey, call: &Call) -> (Option<u64>, Option<u64>) {
    let client = &engine.cx.clients[key];
    let (up, down) = engine.links.rates_to(client.peer.host);
    let (queue, now) = (&engine.elements.queue, engine.cx.now());
    let check = |id| engine.reservations.check(queue, &client.user, id, now);
    let id = call.reservation.filter(|id| check(*id).is_ok());
    // Methods use the connection of their object, which has no reserved rate.
    let id = id.filter(|_| client.peer.crosses_link && call.object.is_none());
    let Some(booking) = id.and_then(|id| queue.booking(id)) else {
        return (up, down);
    };
    let reserved = |rate: u64| Some(rate).filter(|rate| *rate > 0);
    let bandwidth = booking.bandwidth;
    (
        reserved(bandwidth.up).or(up),
        reserved(bandwidth.down).or(down),
    )
}
