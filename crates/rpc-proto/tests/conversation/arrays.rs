//! The order of requests that use stored arrays. None overtakes a call before it that uses the same
//! array, and none waits for a call that does not.

use super::{down, frames, plain, up};
use farcall_rpc_proto::{
    ArrayForm, CREDIT, Call, CallId, Failure, FailureKind, HANDLES, HandleId, HandleRecord, Hello,
    Kind, Limits, ProtocolError, Transmit, client, server,
};

/// Both ends of a connection with stored arrays. The server lets four requests be open at once, of
/// which two may be calls.
fn with_arrays() -> (client::Connection, server::Connection) {
    let mut hello = Hello::new("both");
    hello.features = HANDLES;
    let mut client = client::Connection::new(Limits::default(), &hello);
    hello.calls = Some(4);
    let limits = Limits {
        calls: 4,
        ..Limits::default()
    };
    let mut server = server::Connection::new(limits, hello);
    assert_eq!(up(&mut client, &mut server).unwrap().len(), 1);
    assert_eq!(down(&mut server, &mut client).unwrap().len(), 1);
    (client, server)
}

/// The numbers of the requests that reach the server now.
fn opened(client: &mut client::Connection, server: &mut server::Connection) -> Vec<CallId> {
    let number = |event: server::Event| match event {
        server::Event::Call(id, _) | server::Event::Get(id, _) | server::Event::Drop(id, _) => id,
        other => panic!("{other:?}"),
    };
    let events = up(client, server).unwrap();
    events.into_iter().map(number).collect()
}

/// A call that uses a stored array.
fn using(array: HandleId) -> Call {
    Call {
        handles: vec![(0, array)],
        ..plain()
    }
}

#[test]
fn a_request_for_an_array_does_not_overtake_the_data_of_a_call_that_uses_it() {
    let limits = Limits {
        chunk_bytes: 100,
        ..Limits::default()
    };
    let mut client = client::Connection::new(limits, &Hello::new("client"));
    frames(&mut client);
    let (used, other) = (HandleId([7; 16]), HandleId([8; 16]));
    let call = Call {
        data_bytes: 150,
        ..using(used)
    };
    assert_eq!(client.call(&call, 0), Ok(1));
    assert_eq!(client.get(used, 8), Ok(2));
    assert_eq!(client.get(other, 8), Ok(3));
    let (call, data, get) = (Kind::Call as u8, Kind::Data as u8, Kind::Get as u8);
    let expected = [(get, 3), (call, 1), (data, 1), (get, 2), (data, 1)];
    assert_eq!(frames(&mut client), expected);
}

#[test]
fn requests_for_arrays_wait_if_the_server_allows_no_more() {
    let (mut client, mut server) = with_arrays();
    let get = |_| client.get(HandleId([7; 16]), 8).unwrap();
    let asked: Vec<CallId> = (0..6).map(get).collect();
    assert_eq!(opened(&mut client, &mut server), asked[..4]);
    assert!(!client.cancel(asked[4]), "it was not opened");
    let gone = Failure::new(FailureKind::NotFound, "gone");
    server.fail(asked[0], &gone);
    assert_eq!(down(&mut server, &mut client).unwrap().len(), 1);
    assert_eq!(opened(&mut client, &mut server), asked[5..]);
}

#[test]
fn a_request_that_waits_to_be_opened_has_no_answer_yet() {
    let array = HandleId([7; 16]);
    let (mut client, mut server) = with_arrays();
    for id in 1..=4 {
        assert_eq!(client.get(array, 8), Ok(id));
    }
    assert_eq!(client.drop_handle(array), Ok(5));
    assert_eq!(opened(&mut client, &mut server), [1, 2, 3, 4]);
    let failure = Failure::new(FailureKind::NotFound, "gone");
    server.fail(5, &failure);
    assert_eq!(down(&mut server, &mut client), Ok(vec![]));
    server.fail(1, &failure);
    assert_eq!(down(&mut server, &mut client).unwrap().len(), 1);
    assert_eq!(opened(&mut client, &mut server), [5]);

    assert_eq!(client.drop_handle(array), Ok(6));
    let record = HandleRecord {
        id: array,
        number: 1,
        form: ArrayForm {
            element: "double".into(),
            shape: vec![1],
            column_major: false,
        },
        stays: false,
        used: 0,
        on_disk: false,
        undefined: None,
    };
    server.handle(6, &record);
    let early = down(&mut server, &mut client);
    assert_eq!(early, Err(ProtocolError::OutOfPlace(Kind::Handle)));
}

#[test]
fn requests_for_an_array_do_not_overtake_calls_that_use_it() {
    let (mut client, mut server) = with_arrays();
    let (used, other) = (HandleId([7; 16]), HandleId([8; 16]));
    for id in 1..=3 {
        assert_eq!(client.call(&using(used), 0), Ok(id));
    }
    assert_eq!(client.get(used, 8), Ok(4));
    assert_eq!(client.get(other, 8), Ok(5));
    assert_eq!(client.drop_handle(used), Ok(6));
    assert_eq!(opened(&mut client, &mut server), [1, 2, 5]);
    let failure = Failure::new(FailureKind::Internal, "failed");
    for id in [1, 2, 5] {
        server.fail(id, &failure);
    }
    assert_eq!(down(&mut server, &mut client).unwrap().len(), 3);
    assert_eq!(opened(&mut client, &mut server), [3, 4, 6]);
}

#[test]
fn requests_for_an_array_do_not_overtake_a_call_that_waits_for_its_grant() {
    let mut hello = Hello::new("both");
    hello.features = CREDIT | HANDLES;
    let limits = Limits {
        chunk_bytes: 100,
        grant_bytes: 100,
        ..Limits::default()
    };
    let mut client = client::Connection::new(limits.clone(), &hello);
    let mut server = server::Connection::new(limits, hello);
    assert_eq!(up(&mut client, &mut server).unwrap().len(), 1);
    assert_eq!(down(&mut server, &mut client).unwrap().len(), 1);
    let (used, other) = (HandleId([7; 16]), HandleId([8; 16]));
    let large = Call {
        data_bytes: 150,
        ..using(used)
    };
    assert_eq!(client.call(&large, 0), Ok(1));
    assert_eq!(client.get(used, 8), Ok(2));
    assert_eq!(client.call(&using(used), 0), Ok(3));
    assert_eq!(client.get(other, 8), Ok(4));
    assert_eq!(client.call(&using(other), 0), Ok(5));
    assert_eq!(opened(&mut client, &mut server), [1, 4, 5]);
    assert!(!server.accept(1, 0), "its data are missing");
    assert_eq!(down(&mut server, &mut client), Ok(vec![]));
    let (call, data, get) = (Kind::Call as u8, Kind::Data as u8, Kind::Get as u8);
    let expected = [(get, 2), (call, 3), (data, 1), (data, 1)];
    assert_eq!(frames(&mut client), expected);
}

#[test]
fn a_client_knows_which_calls_it_has_not_sent() {
    let (mut client, mut server) = with_arrays();
    let array = |number: u8| HandleId([number; 16]);
    for number in 1..=3 {
        let call = client.call(&using(array(number)), 0);
        assert_eq!(call, Ok(CallId::from(number)));
    }
    assert_eq!(opened(&mut client, &mut server), [1, 2]);
    let unopened = [1, 2, 3].map(|call| client.is_unopened(call));
    assert_eq!(unopened, [false, false, true]);
}

#[test]
fn a_call_whose_frame_goes_with_its_data_is_unopened_until_then() {
    let mut client = client::Connection::new(Limits::default(), &Hello::new("client"));
    while client.poll_transmit(&mut Vec::new()) != Transmit::Idle {}
    let large = Call {
        data_bytes: u64::from(Limits::default().chunk_bytes) + 1,
        ..using(HandleId([7; 16]))
    };
    assert_eq!(client.call(&large, 0), Ok(1));
    assert!(client.is_unopened(1));
    assert!(!frames(&mut client).is_empty());
    assert!(!client.is_unopened(1));
}
