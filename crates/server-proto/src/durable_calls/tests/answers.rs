//! What a client hears about its durable calls: each answer comes once, and never before the
//! journal has recorded what it says. The journal is the test itself.

use super::*;
use crate::Server;
use crate::event::{Accepted, Identity};
use farcall_rpc_proto::client::{self, Answer};
use farcall_rpc_proto::{Hello, JOBS, Limits, OUTCOMES, SubmitRequest, Transmit};

/// A server with a client.
struct Pair {
    server: Server,
    client: client::Connection,
    connection: ConnectionKey,
}

impl Pair {
    /// The server has an idle worker, and has recorded nothing yet.
    fn new() -> Pair {
        let document = parse_document(IDL).document;
        let mut server = Server::new(Settings::simple(true), [&document], Vec::new(), NOW);
        server.handle(Event::DurableOpened(Vec::new(), 0));
        for worker in server.start_workers() {
            let ready = Ready {
                libraries: vec![None, None],
                unprotected: Vec::new(),
            };
            server.handle(Event::Ready(worker, ready));
        }
        let accepted = Accepted {
            peer: "test".into(),
            user: User::named("anne"),
            host: None,
            is_local: true,
            is_unix: false,
            local: None,
            ways: None,
        };
        let connection = server.accept(accepted).unwrap();
        let mut hello = Hello::new("test");
        hello.features |= JOBS | OUTCOMES;
        let client = client::Connection::new(Limits::default(), &hello);
        let mut pair = Pair {
            server,
            client,
            connection,
        };
        pair.send();
        let identity = Identity {
            user: User::named("anne"),
            is_operator: false,
            signature: None,
        };
        pair.server
            .handle(Event::Authenticated(connection, Ok(identity)));
        assert!(matches!(
            pair.heard()[..],
            [Ok(client::Event::Connected(_))]
        ));
        pair
    }

    /// Passes on what the client says.
    fn send(&mut self) {
        let mut bytes = Vec::new();
        while self.client.poll_transmit(&mut bytes) != Transmit::Idle {}
        while !bytes.is_empty() {
            let taken = self.server.handle_input(self.connection, &bytes);
            bytes.drain(..taken);
        }
        self.server.turn();
    }

    /// What the client hears.
    fn heard(&mut self) -> Vec<Result<client::Event, String>> {
        let mut bytes = Vec::new();
        let clients = self.server.clients_mut();
        while clients.poll_transmit(self.connection, &mut bytes, NOW.nanos) != Transmit::Idle {}
        let (mut rest, mut events) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            match self.client.handle_input(rest) {
                Ok((taken, event)) => {
                    rest = &rest[taken..];
                    events.extend(event.map(Ok));
                }
                Err(error) => {
                    events.push(Err(error.to_string()));
                    break;
                }
            }
        }
        events
    }

    /// The submission of a call of this function.
    fn submission(&self, name: &str) -> SubmitRequest {
        let (function, _) = self.server.engine().cx.functions.describe(name).unwrap();
        SubmitRequest {
            call: call_of(function, vec![Some(Scalar::Int(1))]),
            keep: None,
            fetch: None,
        }
    }

    /// Submits a call. Returns the id under which the server records it, and its call.
    fn submit(&mut self, name: &str) -> (JobId, CallKey) {
        let submission = self.submission(name);
        self.client.submit(&submission).unwrap();
        self.send();
        self.recorded()
    }

    /// The id under which the server records a call, and the call.
    fn recorded(&mut self) -> (JobId, CallKey) {
        let actions = std::iter::from_fn(|| self.server.poll_action());
        let mut entries = actions.filter_map(|action| match action {
            Action::Record {
                entry: Entry::Insert(record),
                ..
            } => Some(record.id),
            _ => None,
        });
        let id = entries.next().expect("it is recorded");
        drop(entries);
        let key = self.server.engine().cx.calls.iter().next().unwrap().0;
        (id, key)
    }
}

/// The answer about it would be longer than a message, and end the connection of each client that
/// asks.
#[test]
fn a_call_whose_description_would_be_too_long_is_refused() {
    let mut pair = Pair::new();
    let (function, _) = pair.server.engine().cx.functions.describe("tell").unwrap();
    let text = Scalar::Text("x".repeat(MOST_DESCRIBED));
    let call = call_of(function, vec![Some(text)]);
    let submission = SubmitRequest {
        call,
        ..pair.submission("tell")
    };
    pair.client.submit(&submission).unwrap();
    pair.send();
    let heard = pair.heard();
    let Ok(client::Event::Failed(_, failure)) = &heard[0] else {
        panic!("{heard:?}");
    };
    assert_eq!(failure.kind, FailureKind::BadArgument);
    assert!(failure.message.contains("use an array"), "{failure}");
}

fn is_submitted(told: &Result<client::Event, String>, id: JobId) -> bool {
    matches!(told, Ok(client::Event::Answered(_, Answer::Submitted(told))) if *told == id)
}

/// Others may wait for the memory that it had.
#[test]
fn results_that_cannot_be_read_leave_their_memory_to_others() {
    let mut pair = Pair::new();
    pair.server.engine_mut().cx.memory = Memory::new(64 * MIB);
    let mut record = queued(ID, "anne", "m/fill", "");
    (record.number, record.state) = (1, DurableState::Done);
    record.result.bytes = MIB;
    pair.server.handle(Event::DurableOpened(vec![record], 0));
    pair.client.fetch(ID, MIB).unwrap();
    pair.send();
    pair.server.turn();
    assert!(!pair.server.has_work());
    let mut actions = std::iter::from_fn(|| pair.server.poll_action());
    let ticket = actions.find_map(|action| match action {
        Action::ReadFile { ticket, .. } => Some(ticket),
        _ => None,
    });
    let error = DiskError {
        is_full: false,
        is_damage: false,
        text: "Input/output error".into(),
    };
    let read = Event::Fetched(ticket.expect("it is read"), Err(error));
    pair.server.handle(read);
    assert!(pair.server.has_work());
}

#[test]
fn a_server_that_stops_tells_first_what_became_of_a_submission() {
    let full = Failure::new(FailureKind::StorageFault, "no room");
    for recorded in [Ok(1), Err(full)] {
        let mut pair = Pair::new();
        let (id, _) = pair.submit("once");
        pair.server.handle(Event::Stop);
        assert_eq!(pair.heard(), [], "nobody knows yet");
        assert!(pair.server.awaits_records());
        pair.server.handle(Event::Inserted(id, recorded.clone()));
        let heard = pair.heard();
        let is_told = match &heard[0] {
            Ok(client::Event::Failed(_, failure)) => recorded == Err(failure.clone()),
            told => recorded.is_ok() && is_submitted(told, id),
        };
        assert!(is_told, "{heard:?}");
        assert!(matches!(&heard[1..], [Err(text)] if text.contains("stopping")));
        assert!(!pair.server.awaits_records());
    }
}

#[test]
fn a_call_that_ends_before_its_record_is_submitted_once() {
    let mut pair = Pair::new();
    let (id, key) = pair.submit("look");
    let finished = Finished {
        exec_nanos: 1000,
        failure: None,
    };
    let worker = worker_of(pair.server.engine(), key);
    pair.server.handle(Event::Finished(worker, key, finished));
    // Its client must not make it again at the next server, as after a goodbye.
    pair.server.handle(Event::Stop);
    assert_eq!(pair.heard(), []);
    pair.server.handle(Event::Inserted(id, Ok(1)));
    let heard = pair.heard();
    assert!(is_submitted(&heard[0], id), "{heard:?}");
    assert!(heard[1].is_err());
}

/// What the journal says of the end of a call.
fn recorded_end() -> Changed {
    Changed {
        change: Change::Finish,
        state: DurableState::Done,
        at: 0,
        served: 0,
        applied: true,
        outcome: Outcome::default(),
    }
}

/// What is not recorded can be lost, and the call would then run again.
#[test]
fn an_outcome_that_comes_with_the_submission_is_recorded_first() {
    let mut pair = Pair::new();
    let submission = pair.submission("look");
    let asked = pair.client.submit_and_fetch(&submission, 0).unwrap();
    let (_, Some(fetch)) = asked else {
        panic!("there is room for both");
    };
    pair.send();
    let (id, key) = pair.recorded();
    let finished = Finished {
        exec_nanos: 1000,
        failure: None,
    };
    let worker = worker_of(pair.server.engine(), key);
    pair.server.handle(Event::Finished(worker, key, finished));
    assert_eq!(pair.heard(), []);
    pair.server.handle(Event::Inserted(id, Ok(1)));
    let heard = pair.heard();
    assert!(
        matches!(&heard[..], [told] if is_submitted(told, id)),
        "{heard:?}"
    );
    pair.server.handle(Event::Changed(id, Some(recorded_end())));
    let heard = pair.heard();
    assert!(
        matches!(heard[..], [Ok(client::Event::Answered(done, Answer::Done(_)))] if done == fetch),
        "{heard:?}"
    );
}

#[test]
fn a_call_that_the_journal_refuses_has_no_outcome() {
    let mut pair = Pair::new();
    let submission = pair.submission("once");
    pair.client.submit_and_fetch(&submission, 0).unwrap();
    pair.send();
    let (id, _) = pair.recorded();
    let full = Failure::new(FailureKind::StorageFault, "no room");
    pair.server.handle(Event::Inserted(id, Err(full)));
    let heard = pair.heard();
    let failed = |told: &Result<_, _>| matches!(told, Ok(client::Event::Failed(..)));
    assert!(heard.len() == 2 && heard.iter().all(failed), "{heard:?}");
}

#[test]
fn who_cancels_a_call_is_answered_even_if_another_request_forgets_it_first() {
    let mut pair = Pair::new();
    let (id, key) = pair.submit("look");
    pair.server.handle(Event::Inserted(id, Ok(1)));
    pair.heard();
    let finished = Finished {
        exec_nanos: 1000,
        failure: None,
    };
    let worker = worker_of(pair.server.engine(), key);
    pair.server.handle(Event::Finished(worker, key, finished));
    // The journal has not told yet that the call has ended.
    pair.client.cancel_job(id, false).unwrap();
    pair.send();
    pair.server.handle(Event::Changed(id, Some(recorded_end())));
    assert_eq!(pair.heard(), [], "the cancellation is not recorded yet");
    pair.client.cancel_job(id, true).unwrap();
    pair.send();
    let heard = pair.heard();
    let answers = heard.iter().filter(|told| {
        matches!(told, Ok(client::Event::Answered(_, Answer::Job(call)))
            if call.record.state == DurableState::Done)
    });
    assert_eq!(answers.count(), 2, "{heard:?}");
}
