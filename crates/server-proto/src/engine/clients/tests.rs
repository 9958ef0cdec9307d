//! Several clients of one server: who waits for whose memory, and who gives none back. The bytes of
//! their calls do not matter here, so there are none.

use super::*;
use crate::event::{Accepted, Event, Finished, Now, Ready};
use crate::keys::MemoryKey;
use crate::lifecycle::Change;
use crate::record::{Changed, Outcome, Record};
use crate::samples::{call_of, queued};
use crate::settings::{Limits as Bounds, Settings};
use crate::{Server, WorkerKey};
use farcall_idl::{Scalar, parse_document};
use farcall_rpc_proto::{DurableState, Hello, JobId, Limits, Transmit, User, client};

const IDL: &str = "Module m; Library \"libc.so.6\";
    Define fill(IN int n, OUT double a[n]) Calls \"C\" bzero(a, n);";
const SECOND: u64 = 1_000_000_000;

fn at(seconds: u64) -> Now {
    Now {
        nanos: seconds * SECOND,
        unix_ms: 0,
    }
}

/// A server with an idle worker and 64 MiB for calls.
fn server() -> (Server, WorkerKey) {
    server_with(|_| ())
}

fn server_with(limit: impl Fn(&mut Bounds)) -> (Server, WorkerKey) {
    let document = parse_document(IDL).document;
    let mut settings = Settings::simple(false);
    limit(&mut settings.limits);
    settings.limits.memory = 64 << 20;
    settings.limits.stalled_s = 10.0;
    settings.queue.pes = 4;
    let mut server = Server::new(settings, [&document], Vec::new(), at(1));
    server.set_time(at(1));
    let worker = server.start_workers()[0];
    server.handle(Event::Ready(worker, Ready::default()));
    (server, worker)
}

/// A client, and its connection at the server.
struct Client {
    proto: client::Connection,
    key: ConnectionKey,
}

impl Client {
    fn connect(server: &mut Server, name: &str) -> Client {
        let accepted = Accepted {
            peer: name.into(),
            user: User::named(name),
            host: None,
            is_local: true,
            is_unix: false,
            local: None,
            ways: None,
        };
        let key = server.accept(accepted).unwrap();
        let proto = client::Connection::new(Limits::default(), &Hello::new("test"));
        let mut client = Client { proto, key };
        client.send(server);
        let identity = Identity {
            user: User::named(name),
            is_operator: false,
            signature: None,
        };
        server.handle(Event::Authenticated(key, Ok(identity)));
        client.proto.handle_input(&answers(server, key)).unwrap();
        client
    }

    /// Passes on what the client says.
    fn send(&mut self, server: &mut Server) {
        let mut bytes = Vec::new();
        while self.proto.poll_transmit(&mut bytes) != Transmit::Idle {}
        while !bytes.is_empty() {
            let taken = server.handle_input(self.key, &bytes);
            bytes.drain(..taken);
        }
        server.turn();
    }

    /// Gives its only call up.
    fn cancel(&mut self, server: &mut Server) {
        let calls = &server.engine().cx.clients[self.key].calls;
        let id = *calls.keys().next().unwrap();
        assert!(self.proto.cancel(id));
        self.send(server);
    }

    /// Calls a function that returns so many bytes. Returns whether the server has taken the call.
    fn call(&mut self, server: &mut Server, bytes: u64) -> Option<CallKey> {
        let (function, _) = server.engine().cx.functions.describe("fill").unwrap();
        let scalars = vec![Some(Scalar::Int(bytes as i64 / 8)), None];
        let call = call_of(function, scalars);
        let id = self.proto.call(&call, bytes).unwrap();
        self.send(server);
        server.engine().cx.clients[self.key].calls.get(&id).copied()
    }
}

#[test]
fn who_waits_for_memory_of_its_own_is_in_nobodys_way() {
    let (mut server, worker) = server();
    let mut bob = Client::connect(&mut server, "bob");
    let mut again = Client::connect(&mut server, "bob");
    let mut anne = Client::connect(&mut server, "anne");
    let first = bob.call(&mut server, 8000).unwrap();
    assert_eq!(bob.call(&mut server, 52 << 20), None, "more than its share");
    assert!(anne.call(&mut server, 200 << 10).is_some());
    assert!(anne.call(&mut server, 1 << 20).is_some(), "there is memory");
    assert!(
        again.call(&mut server, 1 << 20).is_some(),
        "also for small calls of bob"
    );
    // Its memory comes back.
    server.handle(Event::Lost(again.key, None));
    finish(&mut server, worker, first);
    server.flushed(bob.key);
    server.turn();
    assert_eq!(server.engine().cx.clients[bob.key].calls.len(), 1);
}

/// It may want less memory, and nobody gives any back meanwhile.
#[test]
fn who_waits_behind_a_client_that_leaves_goes_on() {
    let (mut server, _) = server();
    let mut bob = Client::connect(&mut server, "bob");
    let mut anne = Client::connect(&mut server, "anne");
    let mut carl = Client::connect(&mut server, "carl");
    assert!(bob.call(&mut server, 30 << 20).is_some());
    assert_eq!(anne.call(&mut server, 40 << 20), None, "bob has the memory");
    assert_eq!(carl.call(&mut server, 1 << 20), None, "anne is first");
    server.handle(Event::Lost(anne.key, None));
    server.turn();
    assert_eq!(server.engine().cx.clients[carl.key].calls.len(), 1);
}

/// A server with 64 MiB for calls, of which carl has 32, and with these durable calls.
fn server_with_durable(records: Vec<Record>) -> (Server, MemoryKey) {
    let document = parse_document(IDL).document;
    let mut settings = Settings::simple(true);
    settings.limits.memory = 64 << 20;
    let mut server = Server::new(settings, [&document], Vec::new(), at(1));
    server.set_time(at(1));
    server.handle(Event::DurableOpened(records, 0));
    let cx = &mut server.engine_mut().cx;
    let carls = cx.memory.take(32 << 20, &User::named("carl"), &mut cx.out);
    (server, carls.unwrap())
}

fn give_back(server: &mut Server, memory: MemoryKey) {
    let cx = &mut server.engine_mut().cx;
    cx.memory.give_back(memory);
    cx.has_room = true;
}

/// A durable call with results of this many bytes.
fn done(id: JobId, user: &str, bytes: u64) -> Record {
    let mut record = queued(id, user, "m/fill", "");
    (record.number, record.state) = (u64::from(id.0[0]), DurableState::Done);
    record.result.bytes = bytes;
    record
}

const RESULTS: JobId = JobId([7; 16]);
const OTHERS: JobId = JobId([8; 16]);

fn fetch(server: &mut Server, client: &Client, id: JobId) {
    let engine = server.engine_mut();
    let durable_calls = &mut engine.durable_calls;
    durable_calls.fetch(&mut engine.cx, client.key, 9, id);
    server.turn();
}

/// Else results that are large would never come from a server that always has calls.
#[test]
fn a_call_waits_behind_results_that_have_waited_for_memory() {
    for gives_up in [false, true] {
        let (mut server, carls) = server_with_durable(vec![done(RESULTS, "anne", 40 << 20)]);
        let anne = Client::connect(&mut server, "anne");
        let mut bob = Client::connect(&mut server, "bob");
        let mut dora = Client::connect(&mut server, "dora");
        fetch(&mut server, &anne, RESULTS);
        assert!(server.engine().durable_calls.await_memory());
        assert!(bob.call(&mut server, 1 << 20).is_some(), "it is shorter");
        server.set_time(at(7));
        assert_eq!(dora.call(&mut server, 1 << 20), None, "anne is first");
        match gives_up {
            true => server.handle(Event::Lost(anne.key, None)),
            false => give_back(&mut server, carls),
        }
        server.turn();
        assert!(!server.engine().durable_calls.await_memory());
        let calls = server.engine().cx.clients[dora.key].calls.len();
        assert_eq!(calls, 1, "{gives_up}");
    }
}

#[test]
fn results_wait_behind_a_call_that_has_waited_for_memory() {
    let (mut server, _) = server_with_durable(vec![done(RESULTS, "anne", 16 << 20)]);
    let anne = Client::connect(&mut server, "anne");
    let mut bob = Client::connect(&mut server, "bob");
    assert_eq!(bob.call(&mut server, 40 << 20), None, "carl has the memory");
    fetch(&mut server, &anne, RESULTS);
    assert!(server.engine().durable_calls.await_memory(), "bob is first");
    server.handle(Event::Lost(bob.key, None));
    server.turn();
    assert!(!server.engine().durable_calls.await_memory());
}

#[test]
fn results_have_waited_for_memory_since_their_call_has_ended() {
    let mut record = done(RESULTS, "anne", 16 << 20);
    record.state = DurableState::Running;
    let (mut server, _) = server_with_durable(vec![record]);
    let anne = Client::connect(&mut server, "anne");
    let mut bob = Client::connect(&mut server, "bob");
    fetch(&mut server, &anne, RESULTS);
    server.set_time(at(7));
    assert_eq!(bob.call(&mut server, 40 << 20), None, "carl has the memory");
    let changed = Changed {
        change: Change::Finish,
        state: DurableState::Done,
        at: 0,
        served: 7000,
        applied: true,
        outcome: Outcome::default(),
    };
    server.handle(Event::Changed(RESULTS, Some(changed)));
    assert!(server.engine().durable_calls.await_memory(), "bob is first");
}

/// Else results that are large would never come from a server whose clients fetch smaller ones.
#[test]
fn results_wait_behind_results_that_have_waited_for_memory() {
    for gives_up in [false, true] {
        let annes = done(RESULTS, "anne", 40 << 20);
        let emils = done(OTHERS, "emil", 1 << 20);
        let (mut server, carls) = server_with_durable(vec![annes, emils]);
        let anne = Client::connect(&mut server, "anne");
        let emil = Client::connect(&mut server, "emil");
        fetch(&mut server, &anne, RESULTS);
        server.set_time(at(7));
        fetch(&mut server, &emil, OTHERS);
        assert_eq!(reads(&mut server), 0, "anne is first");
        match gives_up {
            true => server.handle(Event::Lost(anne.key, None)),
            false => give_back(&mut server, carls),
        }
        server.turn();
        assert!(!server.engine().durable_calls.await_memory());
        assert_eq!(reads(&mut server), if gives_up { 1 } else { 2 });
    }
}

/// How many results the server has begun to read.
fn reads(server: &mut Server) -> usize {
    let actions = std::iter::from_fn(|| server.poll_action());
    let reads = actions.filter(|action| matches!(action, Action::ReadFile { .. }));
    reads.count()
}

/// There is memory for all three, and nobody gives any back until the call has ended.
#[test]
fn results_behind_a_call_behind_other_results_go_on() {
    let annes = done(RESULTS, "anne", 40 << 20);
    let emils = done(OTHERS, "emil", 1 << 20);
    let (mut server, carls) = server_with_durable(vec![annes, emils]);
    let anne = Client::connect(&mut server, "anne");
    let emil = Client::connect(&mut server, "emil");
    let mut dora = Client::connect(&mut server, "dora");
    fetch(&mut server, &anne, RESULTS);
    server.set_time(at(7));
    assert_eq!(dora.call(&mut server, 1 << 20), None, "anne is first");
    fetch(&mut server, &emil, OTHERS);
    give_back(&mut server, carls);
    server.turn();
    assert_eq!(server.engine().cx.clients[dora.key].calls.len(), 1);
    assert!(server.has_work(), "dora was before emil");
    server.turn();
    assert!(!server.engine().durable_calls.await_memory());
    assert!(!server.has_work());
}

/// The clients may keep their segments for as long as they like.
#[test]
fn nobody_waits_behind_a_durable_call_for_which_segments_leave_no_memory() {
    let document = parse_document(IDL).document;
    let mut settings = Settings::simple(true);
    settings.limits.memory = 64 << 20;
    let mut server = Server::new(settings, [&document], Vec::new(), at(1));
    server.set_time(at(1));
    let cx = &mut server.engine_mut().cx;
    let (segment, _) = cx.memory.share(32 << 20, &mut cx.out).unwrap();
    let (function, described) = cx.functions.describe("fill").unwrap();
    let mut record = queued(RESULTS, "anne", "m/fill", described.text());
    let call = call_of(function, vec![Some(Scalar::Int(5 << 20)), None]);
    call.encode(&mut record.call);
    record.number = 1;
    server.handle(Event::DurableOpened(vec![record], 0));
    server.turn();
    assert!(server.engine().cx.calls.is_empty(), "it waits");
    let mut bob = Client::connect(&mut server, "bob");
    server.set_time(at(7));
    assert!(bob.call(&mut server, 1 << 20).is_some());
    assert!(!server.has_work());
    server.engine_mut().cx.free(segment);
    server.turn();
    assert_eq!(server.engine().cx.calls.len(), 2, "it is in memory");
}

/// It would be refused when there is memory, and its successor may have some now.
#[test]
fn a_request_that_waits_for_memory_does_not_wait_for_a_server_that_drains() {
    let (mut server, _) = server();
    let mut bob = Client::connect(&mut server, "bob");
    let mut anne = Client::connect(&mut server, "anne");
    assert!(bob.call(&mut server, 30 << 20).is_some());
    assert_eq!(anne.call(&mut server, 40 << 20), None, "bob has the memory");
    server.engine_mut().cx.settings.audits = true;
    server.handle(Event::Drain);
    assert!(server.has_work(), "sources may wait for memory, too");
    assert!(server.clients().takes_input(anne.key));
    let said = answers(&mut server, anne.key);
    let (_, event) = anne.proto.handle_input(&said).unwrap();
    let Some(client::Event::Failed(1, failure)) = &event else {
        panic!("{event:?}");
    };
    assert_eq!(failure.kind, FailureKind::Draining);
    assert_eq!(server.engine().cx.calls.len(), 1, "bob's call goes on");
    assert_eq!(server.engine().cx.totals.refused, 1);
    assert_eq!(audited(&mut server), ["refused"]);
}

#[test]
fn a_client_that_has_left_counts_no_more() {
    let (mut server, _) = server_with(|limits| {
        (limits.connections, limits.connections_per_user) = (1, 1);
    });
    for _ in 0..2 {
        let anne = Client::connect(&mut server, "anne");
        assert!(server.engine().cx.clients[anne.key].connected);
        server.handle(Event::Lost(anne.key, None));
    }
}

/// As in the shares of the queue, which the status shows.
#[test]
fn the_processor_time_of_a_failed_call_counts() {
    let (mut server, worker) = server();
    let mut anne = Client::connect(&mut server, "anne");
    let call = anne.call(&mut server, 8000).unwrap();
    server.set_time(at(3));
    let failed = Finished {
        exec_nanos: 1,
        failure: Some(Failure::new(FailureKind::Internal, "it fails")),
    };
    server.handle(Event::Finished(worker, call, failed));
    let mut users = server.engine().cx.totals.users.iter();
    let (name, totals) = users.next().unwrap();
    assert_eq!((name, totals.calls), ("anne", 0));
    assert!(totals.pe_seconds > 1.9, "{totals:?}");
}

#[test]
fn results_that_nobody_wants_and_reads_do_not_hold_memory_for_ever() {
    for is_cancelled in [false, true] {
        let (mut server, worker) = server();
        let mut anne = Client::connect(&mut server, "anne");
        let call = anne.call(&mut server, 16 << 20).unwrap();
        server.set_time(at(2));
        finish(&mut server, worker, call);
        if is_cancelled {
            anne.cancel(&mut server);
        }
        // Until the 30th second the server itself does not run.
        for (seconds, is_open) in [(3, true), (30, true), (31, false)] {
            server.set_time(at(seconds));
            server.turn();
            assert_eq!(
                server.clients().is_open(anne.key),
                is_open,
                "{is_cancelled}"
            );
        }
        assert!(server.engine().cx.calls.is_empty());
    }
}

#[test]
fn each_call_has_one_line_in_the_audit_log() {
    for (end, outcome) in [
        ("read", "done"),
        ("cancelled", "done"),
        ("lost", "given up"),
    ] {
        let (mut server, worker) = server();
        server.engine_mut().cx.settings.audits = true;
        let mut anne = Client::connect(&mut server, "anne");
        let call = anne.call(&mut server, 8000).unwrap();
        finish(&mut server, worker, call);
        match end {
            // The client may have read its results, but for the last bytes.
            "lost" => server.handle(Event::Lost(anne.key, None)),
            "cancelled" => {
                anne.cancel(&mut server);
                server.flushed(anne.key);
            }
            _ => server.flushed(anne.key),
        }
        assert_eq!(audited(&mut server), [outcome], "{end}");
    }
}

#[test]
fn a_call_that_a_stopping_server_fails_is_in_the_audit_log() {
    let (mut server, worker) = server();
    server.engine_mut().cx.settings.audits = true;
    let mut anne = Client::connect(&mut server, "anne");
    let call = anne.call(&mut server, 8000).unwrap();
    server.handle(Event::Stop);
    finish(&mut server, worker, call);
    let outcome = FailureKind::ServerStopping.name();
    assert_eq!(audited(&mut server), [outcome]);
}

/// They are not in the record of calls.
#[test]
fn a_call_for_which_there_is_never_memory_is_in_the_audit_log() {
    let (mut server, _) = server();
    server.engine_mut().cx.settings.audits = true;
    let mut anne = Client::connect(&mut server, "anne");
    assert_eq!(anne.call(&mut server, 65 << 20), None, "too large");
    assert_eq!(audited(&mut server), ["refused"]);
    assert_eq!(server.engine().cx.totals.refused, 1);
}

/// The outcomes in the audit log.
fn audited(server: &mut Server) -> Vec<String> {
    let actions = std::iter::from_fn(|| server.poll_action());
    let lines = actions.filter_map(|action| match action {
        Action::Audit(audit) => Some(audit.outcome),
        _ => None,
    });
    lines.collect()
}

/// The client's other calls go on, and it may ask again.
#[test]
fn memory_that_the_system_refuses_is_refused_and_ends_no_connection() {
    let (mut server, _) = server();
    let Client { key, .. } = Client::connect(&mut server, "anne");
    for made in [Err("Too many open files".to_string()), Ok(8192)] {
        let cx = &mut server.engine_mut().cx;
        segments::share(cx, key, 7, 8192);
        assert!(answers(&mut server, key).is_empty(), "it is not known yet");
        let is_shared = made.is_ok();
        server.handle(Event::Shared(key, 7, made));
        assert!(!answers(&mut server, key).is_empty());
        let cx = &server.engine().cx;
        assert!(cx.clients.is_open(key));
        assert_eq!(cx.clients[key].segments.contains_key(&7), is_shared);
        assert_eq!(cx.memory.shared() > 0, is_shared);
    }
}

/// The client sends its arrays then, and they count with its calls.
#[test]
fn a_user_shares_no_more_memory_than_its_calls_may_have() {
    let (mut server, _) = server_with(|limits| limits.memory_per_user = 10_000);
    let names = ["anne", "anne", "bob"];
    let [first, second, bob] = names.map(|name| Client::connect(&mut server, name).key);
    let shares = |server: &mut Server, key: ConnectionKey, request, bytes| {
        let cx = &mut server.engine_mut().cx;
        segments::share(cx, key, request, bytes);
        cx.clients[key].segments.contains_key(&request)
    };
    assert!(!shares(&mut server, first, 7, 10_001));
    assert!(shares(&mut server, first, 8, 8192));
    assert!(!shares(&mut server, second, 7, 4096), "of the same user");
    assert!(shares(&mut server, bob, 7, 8192));
    segments::unshare(&mut server.engine_mut().cx, first, 8);
    assert!(shares(&mut server, second, 8, 4096));
}

/// After a goodbye alone, a client would make them again.
#[test]
fn calls_of_a_client_that_breaks_the_protocol_fail_before_the_goodbye() {
    let (mut server, _) = server();
    let mut anne = Client::connect(&mut server, "anne");
    assert!(anne.call(&mut server, 8000).is_some());
    assert!(answers(&mut server, anne.key).is_empty());
    // A second greeting.
    let mut again = client::Connection::new(Limits::default(), &Hello::new("test"));
    let mut bytes = Vec::new();
    while again.poll_transmit(&mut bytes) != Transmit::Idle {}
    server.handle_input(anne.key, &bytes);
    assert!(!server.clients().is_open(anne.key));
    let said = answers(&mut server, anne.key);
    let (taken, event) = anne.proto.handle_input(&said).unwrap();
    let Some(client::Event::Failed(1, failure)) = &event else {
        panic!("{event:?}");
    };
    assert_eq!(failure.kind, FailureKind::Internal);
    let left = anne.proto.handle_input(&said[taken..]);
    assert!(matches!(left, Err(ProtocolError::Goodbye(_))), "{left:?}");
}

/// What the server says to a client.
fn answers(server: &mut Server, key: ConnectionKey) -> Vec<u8> {
    let mut bytes = Vec::new();
    let clients = server.clients_mut();
    while clients.poll_transmit(key, &mut bytes, SECOND) != Transmit::Idle {}
    bytes
}

/// A worker has finished a call.
fn finish(server: &mut Server, worker: WorkerKey, call: CallKey) {
    let done = Finished {
        exec_nanos: 1,
        failure: None,
    };
    server.handle(Event::Finished(worker, call, done));
}
