//! A client and a server talk over a pipe that cuts the bytes anywhere. The tests check that each
//! call ends as it should wherever the cuts are, that garbage is an error and never a panic, and
//! that a message out of place ends the connection.

mod arrays;
mod jobs;

use farcall_idl::Scalar;
use farcall_rpc_proto::client::Answer;
use farcall_rpc_proto::{
    CALLBACKS, Call, CallId, Callback, CallbackAnswer, Chunk, Failure, FailureKind, HEADER_BYTES,
    Header, Hello, Kind, Limits, Listing, ProtocolError, SHARED_MEMORY, Transmit, client, server,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What the server does with each call: echo its stream, or refuse it.
fn is_refused(function: u64) -> bool {
    function % 5 == 4
}

struct Conversation {
    client: client::Connection,
    server: server::Connection,
    /// Cut sizes, used over and over.
    cuts: Vec<usize>,
    cut: usize,
    up: Vec<u8>,
    down: Vec<u8>,
    sources: BTreeMap<CallId, Vec<u8>>,
    stored: BTreeMap<CallId, Vec<u8>>,
    results: BTreeMap<CallId, Vec<u8>>,
    events: Vec<client::Event>,
}

impl Conversation {
    fn new(cuts: Vec<usize>) -> Conversation {
        let limits = Limits {
            chunk_bytes: 100,
            ..Limits::default()
        };
        Conversation {
            client: client::Connection::new(limits.clone(), &Hello::new("client")),
            server: server::Connection::new(limits, Hello::new("server")),
            cuts,
            cut: 0,
            up: Vec::new(),
            down: Vec::new(),
            sources: BTreeMap::new(),
            stored: BTreeMap::new(),
            results: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    fn next_cut(&mut self, available: usize) -> usize {
        self.cut += 1;
        self.cuts[self.cut % self.cuts.len()].min(available)
    }

    fn call(&mut self, function: u64, data: Vec<u8>) -> CallId {
        let scalars = vec![Some(Scalar::Int(7)), None];
        let bytes = data.len() as u64;
        let call = Call {
            function,
            scalars,
            elements: vec![],
            data_bytes: bytes,
            places: vec![],
            output: false,
            handles: vec![],
            object: None,
            reservation: None,
            trace: None,
            before: None,
        };
        let id = self.client.call(&call, bytes).unwrap();
        self.sources.insert(id, data);
        id
    }

    fn step(&mut self) -> Result<bool, ProtocolError> {
        while let transmit @ (Transmit::Frames | Transmit::Data(_)) =
            self.client.poll_transmit(&mut self.up)
        {
            if let Transmit::Data(chunk) = transmit {
                self.up
                    .extend_from_slice(&self.sources[&chunk.call][span(&chunk)]);
            }
        }
        self.serve_input()?;
        while let transmit @ (Transmit::Frames | Transmit::Data(_)) =
            self.server.poll_transmit(&mut self.down, 0)
        {
            if let Transmit::Data(chunk) = transmit {
                self.down
                    .extend_from_slice(&self.stored[&chunk.call][span(&chunk)]);
            }
        }
        self.client_input()?;
        Ok(!self.up.is_empty() || !self.down.is_empty())
    }

    fn serve_input(&mut self) -> Result<(), ProtocolError> {
        let count = self.next_cut(self.up.len());
        let bytes: Vec<u8> = self.up.drain(..count).collect();
        let mut rest = bytes.as_slice();
        loop {
            let event = if let Some(chunk) = self.server.incoming() {
                let count = rest.len().min(chunk.length as usize);
                if count == 0 {
                    return Ok(());
                }
                let (data, after) = rest.split_at(count);
                rest = after;
                if !chunk.discard {
                    self.stored
                        .get_mut(&chunk.call)
                        .unwrap()
                        .extend_from_slice(data);
                }
                self.server.handle_data(count as u64, 0)
            } else {
                let (taken, event) = self.server.handle_input(rest, 0)?;
                rest = &rest[taken..];
                if event.is_none() && self.server.incoming().is_none() {
                    assert!(rest.is_empty());
                    return Ok(());
                }
                event
            };
            if let Some(event) = event {
                self.serve(event);
            }
        }
    }

    fn serve(&mut self, event: server::Event) {
        match event {
            server::Event::Connected(_) | server::Event::Share(..) | server::Event::Unshare(_) => {}
            server::Event::Proof(_) => panic!("a proof of nobody"),
            server::Event::New(id, _) => self.server.created(id),
            server::Event::Delete(_) => {}
            server::Event::Answer(..) => panic!("an answer to nobody"),
            server::Event::Submit(..)
            | server::Event::Lend(..)
            | server::Event::Pull(..)
            | server::Event::Write(..)
            | server::Event::AskJob(..)
            | server::Event::AskCall(..)
            | server::Event::Fetch(..)
            | server::Event::CancelJob(..)
            | server::Event::ListJobs(..)
            | server::Event::Put(..)
            | server::Event::PutPart(..)
            | server::Event::GetPart(..)
            | server::Event::Get(..)
            | server::Event::AskHandle(..)
            | server::Event::Drop(..)
            | server::Event::Name(..)
            | server::Event::AskName(..)
            | server::Event::ListNames(..)
            | server::Event::Objects(..)
            | server::Event::Reservations(..)
            | server::Event::ListHandles(..) => panic!("without the feature"),
            server::Event::Register(..) => panic!("registered by nobody"),
            server::Event::List(id, _) => {
                self.server.listing(
                    id,
                    &Listing {
                        functions: vec![],
                        next: None,
                    },
                );
            }
            server::Event::Status(id) => self.server.status_text(id, "{}".into()),
            server::Event::Drain(id) => self.server.draining(id, 0),
            server::Event::Directory(id, ..) => self.server.directory(id, Kind::Noted, &[]),
            server::Event::Estimate(id, _) => {
                self.server.estimated(id, &Default::default());
            }
            server::Event::Describe(id, name) => self.server.interface(id, 9, name, None),
            server::Event::Call(id, call) if is_refused(call.function) => {
                self.server
                    .fail(id, &Failure::new(FailureKind::BadArgument, "refused"));
            }
            server::Event::Call(id, _) => {
                self.stored.insert(id, Vec::new());
                if self.server.accept(id, 0) {
                    self.server.complete(id, 0, (0, None), 0);
                }
            }
            server::Event::Ready(id) => {
                let bytes = self.stored[&id].len() as u64;
                self.server.complete(id, bytes, (0, None), 0);
            }
            server::Event::AskSnapshot(id, asked) => self.server.status_text(id, asked.search),
            server::Event::Cancelled(id) => drop(self.stored.remove(&id)),
        }
    }

    fn client_input(&mut self) -> Result<(), ProtocolError> {
        let count = self.next_cut(self.down.len());
        let bytes: Vec<u8> = self.down.drain(..count).collect();
        let mut rest = bytes.as_slice();
        loop {
            if let Some(chunk) = self.client.incoming() {
                let count = rest.len().min(chunk.length as usize);
                if count == 0 {
                    return Ok(());
                }
                let (data, after) = rest.split_at(count);
                rest = after;
                if !chunk.discard {
                    self.results
                        .entry(chunk.call)
                        .or_default()
                        .extend_from_slice(data);
                }
                self.client.handle_data(count as u64);
                continue;
            }
            let (taken, event) = self.client.handle_input(rest)?;
            rest = &rest[taken..];
            let idle = event.is_none() && self.client.incoming().is_none();
            self.events.extend(event);
            if idle {
                assert!(rest.is_empty());
                return Ok(());
            }
        }
    }
}

fn span(chunk: &Chunk) -> std::ops::Range<usize> {
    chunk.offset as usize..(chunk.offset + chunk.length) as usize
}

fn data(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|index| (index as u8).wrapping_mul(31).wrapping_add(seed))
        .collect()
}

proptest! {
    #[test]
    fn calls_are_answered_however_the_bytes_are_cut(
        cuts in prop::collection::vec(1usize..300, 1..20),
        lengths in prop::collection::vec(0usize..2000, 1..12),
    ) {
        let mut talk = Conversation::new(cuts);
        let query = talk.client.describe("dgesv").unwrap();
        let list = talk.client.list(0).unwrap();
        let ids: Vec<CallId> = lengths
            .iter()
            .enumerate()
            .map(|(index, &length)| talk.call(index as u64, data(length, index as u8)))
            .collect();
        while talk.step().unwrap() {}
        prop_assert!(talk.client.is_idle());
        prop_assert_eq!(talk.server.open_calls(), 0);
        prop_assert_eq!(talk.events.len(), ids.len() + 3);
        let named = |event: &client::Event| matches!(event,
            client::Event::Answered(id, Answer::Interface(told))
                if *id == query && told.text == "dgesv");
        prop_assert!(talk.events.iter().any(named));
        let listed = |event: &client::Event| matches!(event,
            client::Event::Answered(id, Answer::Listing(_)) if *id == list);
        prop_assert!(talk.events.iter().any(listed));
        for (index, id) in ids.iter().enumerate() {
            let result = talk.results.get(id).cloned().unwrap_or_default();
            if is_refused(index as u64) {
                prop_assert!(result.is_empty());
            } else {
                prop_assert_eq!(&result, &talk.sources[id]);
            }
        }
    }

    #[test]
    fn a_cancelled_call_ends_and_the_others_go_on(
        cuts in prop::collection::vec(1usize..300, 1..20),
        before in 0usize..30,
    ) {
        let mut talk = Conversation::new(cuts);
        let gone = talk.call(0, data(3000, 1));
        let kept = talk.call(1, data(3000, 2));
        for _ in 0..before {
            talk.step().unwrap();
        }
        talk.client.cancel(gone);
        while talk.step().unwrap() {}
        prop_assert!(talk.client.is_idle());
        prop_assert_eq!(talk.server.open_calls(), 0);
        prop_assert_eq!(&talk.results[&kept], &talk.sources[&kept]);
        let ends = |event: &&client::Event| matches!(event,
            client::Event::Answered(id, _) | client::Event::Failed(id, _) if *id == gone);
        prop_assert_eq!(talk.events.iter().filter(ends).count(), 1);
    }

    #[test]
    fn garbage_is_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut server = server::Connection::new(Limits::default(), Hello::new("server"));
        let result = server.handle_input(&bytes, 0);
        if bytes.len() >= 16 {
            prop_assert_eq!(result, Err(ProtocolError::NotFarcall));
        }
    }
}

#[test]
fn a_stranger_on_the_port_is_recognised() {
    let mut server = server::Connection::new(Limits::default(), Hello::new("server"));
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(
        server.handle_input(request, 0),
        Err(ProtocolError::NotFarcall)
    );
}

#[test]
fn a_client_that_is_refused_learns_why() {
    let mut client = client::Connection::new(Limits::default(), &Hello::new("client"));
    let mut server = server::Connection::new(Limits::default(), Hello::new("server"));
    let events = up(&mut client, &mut server).unwrap();
    assert!(matches!(events[..], [server::Event::Connected(_)]));
    server.refuse("no token");
    let refused = down(&mut server, &mut client);
    assert_eq!(refused, Err(ProtocolError::Goodbye("no token".into())));
}

/// What a client puts out for calls of these lengths: for each frame its kind and call.
fn order(lengths: &[u64]) -> Vec<(u8, CallId)> {
    let limits = Limits {
        chunk_bytes: 100,
        ..Limits::default()
    };
    let mut client = client::Connection::new(limits, &Hello::new("client"));
    let mut out = Vec::new();
    while client.poll_transmit(&mut out) != Transmit::Idle {}
    for &data_bytes in lengths {
        let call = Call {
            function: 1,
            scalars: vec![],
            elements: vec![],
            data_bytes,
            places: vec![],
            output: false,
            handles: vec![],
            object: None,
            reservation: None,
            trace: None,
            before: None,
        };
        client.call(&call, 0).unwrap();
    }
    frames(&mut client)
}

/// What a client puts out: for each frame its kind and call.
fn frames(client: &mut client::Connection) -> Vec<(u8, CallId)> {
    let (mut order, mut out) = (Vec::new(), Vec::new());
    loop {
        out.clear();
        let transmit = client.poll_transmit(&mut out);
        if transmit == Transmit::Idle {
            return order;
        }
        let mut rest = out.as_slice();
        while let Some(header) = rest.first_chunk() {
            let header = Header::decode(header).unwrap();
            order.push((header.kind as u8, header.call));
            let payload = if header.kind == Kind::Data {
                0
            } else {
                header.length
            };
            rest = &rest[HEADER_BYTES + payload as usize..];
        }
    }
}

#[test]
fn large_calls_follow_each_other_and_small_ones_overtake() {
    let (call, data) = (Kind::Call as u8, Kind::Data as u8);
    let expected = [
        (call, 3),
        (data, 3),
        (call, 1),
        (data, 1),
        (data, 1),
        (call, 2),
        (data, 2),
        (data, 2),
    ];
    assert_eq!(order(&[150, 150, 20]), expected);
}

#[test]
fn memory_is_shared_if_both_sides_can() {
    let hello = |name, features| {
        let mut hello = Hello::new(name);
        hello.features = features;
        hello
    };
    let mut client = client::Connection::new(Limits::default(), &hello("client", SHARED_MEMORY));
    let mut server =
        server::Connection::new(Limits::default(), hello("server", SHARED_MEMORY | 1 << 60));
    let memory = client.share(5000).unwrap();
    client.unshare(memory);
    let mut up = Vec::new();
    assert_eq!(client.poll_transmit(&mut up), Transmit::Frames);
    let (mut events, mut rest) = (Vec::new(), up.as_slice());
    while !rest.is_empty() {
        let (taken, event) = server.handle_input(rest, 0).unwrap();
        rest = &rest[taken..];
        events.extend(event);
    }
    let expected = [
        server::Event::Share(memory, 5000),
        server::Event::Unshare(memory),
    ];
    assert_eq!(events[1..], expected);
    server.shared(memory, 8192);
    let mut down = Vec::new();
    assert_eq!(server.poll_transmit(&mut down, 0), Transmit::Frames);
    let (taken, _) = client.handle_input(&down).unwrap();
    let (_, event) = client.handle_input(&down[taken..]).unwrap();
    assert_eq!(
        event,
        Some(client::Event::Answered(memory, Answer::Shared(8192)))
    );
    assert!(client.is_idle());
}

#[test]
fn shared_memory_that_is_too_small_or_was_not_requested_is_refused() {
    for (memory, bytes) in [(1, 4999), (2, 5000)] {
        let mut client = client::Connection::new(Limits::default(), &Hello::new("client"));
        assert_eq!(client.share(5000), Ok(1));
        let mut server = server::Connection::new(Limits::default(), Hello::new("server"));
        let mut bytes_up = Vec::new();
        client.poll_transmit(&mut bytes_up);
        server.handle_input(&bytes_up, 0).unwrap();
        server.shared(memory, bytes);
        let mut down = Vec::new();
        server.poll_transmit(&mut down, 0);
        let (taken, _) = client.handle_input(&down).unwrap();
        let refused = client.handle_input(&down[taken..]);
        assert_eq!(refused, Err(ProtocolError::OutOfPlace(Kind::Shared)));
    }
}

/// A call without data.
fn plain() -> Call {
    Call {
        function: 1,
        scalars: vec![None],
        elements: vec![],
        data_bytes: 0,
        places: vec![],
        output: false,
        handles: vec![],
        object: None,
        reservation: None,
        trace: None,
        before: None,
    }
}

/// Both ends of a connection with callbacks, and a call that runs.
fn running() -> (client::Connection, server::Connection, CallId) {
    let hello = |name| {
        let mut hello = Hello::new(name);
        hello.features = CALLBACKS;
        hello
    };
    let mut client = client::Connection::new(Limits::default(), &hello("client"));
    let mut server = server::Connection::new(Limits::default(), hello("server"));
    let id = client.call(&plain(), 0).unwrap();
    assert_eq!(up(&mut client, &mut server).unwrap().len(), 2);
    server.accept(id, 0);
    assert_eq!(down(&mut server, &mut client).unwrap().len(), 1);
    (client, server, id)
}

fn up(
    client: &mut client::Connection,
    server: &mut server::Connection,
) -> Result<Vec<server::Event>, ProtocolError> {
    let (mut bytes, mut events) = (Vec::new(), Vec::new());
    while client.poll_transmit(&mut bytes) != Transmit::Idle {}
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let (taken, event) = server.handle_input(rest, 0)?;
        rest = &rest[taken..];
        events.extend(event);
    }
    Ok(events)
}

fn down(
    server: &mut server::Connection,
    client: &mut client::Connection,
) -> Result<Vec<client::Event>, ProtocolError> {
    let (mut bytes, mut events) = (Vec::new(), Vec::new());
    while server.poll_transmit(&mut bytes, 0) != Transmit::Idle {}
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let (taken, event) = client.handle_input(rest)?;
        rest = &rest[taken..];
        events.extend(event);
    }
    Ok(events)
}

fn callback() -> Callback {
    Callback {
        index: 0,
        scalars: vec![Some(Scalar::Int(3))],
        data: vec![1, 2, 3, 4],
        big_endian: true,
    }
}

fn answer() -> CallbackAnswer {
    CallbackAnswer {
        data: vec![5; 9],
        big_endian: true,
    }
}

#[test]
fn a_callback_is_answered_once() {
    let (mut client, mut server, id) = running();
    for _ in 0..3 {
        server.call_back(id, &callback());
        let events = down(&mut server, &mut client).unwrap();
        assert_eq!(events, [client::Event::Callback(id, callback())]);
        client.answer(id, &answer());
        client.answer(id, &answer());
        let events = up(&mut client, &mut server).unwrap();
        assert_eq!(events, [server::Event::Answer(id, answer())]);
    }
    server.complete(id, 0, (0, None), 0);
    assert_eq!(down(&mut server, &mut client).unwrap().len(), 1);
    assert!(client.is_idle() && server.open_calls() == 0);
}

#[test]
fn an_answer_that_is_late_is_ignored_and_a_callback_of_a_cancelled_call_too() {
    let (mut client, mut server, id) = running();
    server.call_back(id, &callback());
    down(&mut server, &mut client).unwrap();
    server.fail(id, &Failure::new(FailureKind::NoAnswer, "late"));
    client.answer(id, &answer());
    assert_eq!(up(&mut client, &mut server), Ok(vec![]));
    assert_eq!(down(&mut server, &mut client).unwrap().len(), 1);

    let (mut client, mut server, id) = running();
    server.call_back(id, &callback());
    client.cancel(id);
    assert_eq!(down(&mut server, &mut client), Ok(vec![]));
    client.answer(id, &answer());
    let events = up(&mut client, &mut server).unwrap();
    assert_eq!(events, [server::Event::Cancelled(id)]);
    assert!(matches!(
        down(&mut server, &mut client).unwrap()[..],
        [client::Event::Failed(..)]
    ));
}

#[test]
fn callbacks_out_of_place_end_the_connection() {
    let (mut client, mut server, id) = running();
    server.call_back(id, &callback());
    server.call_back(id, &callback());
    let twice = down(&mut server, &mut client);
    assert_eq!(twice, Err(ProtocolError::OutOfPlace(Kind::Callback)));

    let (mut client, mut server, id) = running();
    server.call_back(id, &callback());
    down(&mut server, &mut client).unwrap();
    server.complete(id, 0, (0, None), 0);
    let result = down(&mut server, &mut client);
    assert_eq!(result, Err(ProtocolError::OutOfPlace(Kind::Result)));

    let (mut client, mut server, id) = running();
    let (mut other, mut other_server, other_id) = running();
    assert_eq!(id, other_id);
    other_server.call_back(id, &callback());
    down(&mut other_server, &mut other).unwrap();
    other.answer(id, &answer());
    let unasked = up(&mut other, &mut server);
    assert_eq!(unasked, Err(ProtocolError::OutOfPlace(Kind::Answer)));
    client.cancel(id);
}

#[test]
fn requests_about_jobs_need_the_feature() {
    let mut client = client::Connection::new(Limits::default(), &Hello::new("client"));
    let mut server = server::Connection::new(Limits::default(), Hello::new("server"));
    client.list_jobs(0).unwrap();
    let mut frames = Vec::new();
    while client.poll_transmit(&mut frames) != Transmit::Idle {}
    let (taken, _) = server.handle_input(&frames, 0).unwrap();
    let refused = server.handle_input(&frames[taken..], 0);
    assert_eq!(refused, Err(ProtocolError::OutOfPlace(Kind::ListJobs)));
}
