//! Submissions that ask for the outcome, too. Each of the two requests gets one answer, whatever
//! happens to the other one.

use super::{down, plain, up};
use farcall_rpc_proto::client::{Answer, Event};
use farcall_rpc_proto::{
    CallId, Failure, FailureKind, Hello, JOBS, JobId, Kind, Limits, OUTCOMES, ProtocolError,
    SubmitRequest, Times, client, server,
};

const JOB: JobId = JobId([7; 16]);

/// Both ends of a connection whose server lets so many requests be open at once.
fn with_jobs(features: u64, calls: u32) -> (client::Connection, server::Connection) {
    let mut hello = Hello::new("both");
    hello.features = JOBS | OUTCOMES;
    let mut client = client::Connection::new(Limits::default(), &hello);
    (hello.features, hello.calls) = (features, Some(calls));
    let limits = Limits {
        calls: calls as usize,
        ..Limits::default()
    };
    let mut server = server::Connection::new(limits, hello);
    assert_eq!(up(&mut client, &mut server).unwrap().len(), 1);
    assert_eq!(down(&mut server, &mut client).unwrap().len(), 1);
    (client, server)
}

fn submission() -> SubmitRequest {
    SubmitRequest {
        call: plain(),
        keep: None,
        fetch: None,
    }
}

/// A call that is being submitted, and the request for its outcome. The server knows both.
fn submitting() -> (client::Connection, server::Connection, CallId, CallId) {
    let (mut client, mut server) = with_jobs(JOBS | OUTCOMES, 8);
    let (id, fetch) = client.submit_and_fetch(&submission(), 0).unwrap();
    let events = up(&mut client, &mut server).unwrap();
    let told = SubmitRequest {
        fetch,
        ..submission()
    };
    assert_eq!(events, [server::Event::Submit(id, told)]);
    assert!(server.accept(id, 0));
    (client, server, id, fetch.unwrap())
}

#[test]
fn an_outcome_comes_without_being_asked_for_again() {
    let (mut client, mut server, id, fetch) = submitting();
    assert_eq!(server.submitted(id, JOB), Some(fetch));
    server.deliver(fetch, 0, Times::default(), 0);
    let heard = down(&mut server, &mut client).unwrap();
    let expected = [
        Event::Answered(id, Answer::Submitted(JOB)),
        Event::Answered(fetch, Answer::Done(Times::default())),
    ];
    assert_eq!(heard, expected);
    assert_eq!(server.open_calls(), 0);
}

#[test]
fn both_requests_fail_with_the_submission() {
    let (mut client, mut server, id, fetch) = submitting();
    let failure = Failure::new(FailureKind::StorageFault, "no room");
    server.fail(id, &failure);
    let heard = down(&mut server, &mut client).unwrap();
    let expected = [
        Event::Failed(fetch, failure.clone()),
        Event::Failed(id, failure),
    ];
    assert_eq!(heard, expected);
    assert_eq!(server.submitted(id, JOB), None);
    assert_eq!(server.open_calls(), 0);
}

#[test]
fn a_client_can_give_up_the_outcome_alone() {
    let (mut client, mut server, id, fetch) = submitting();
    assert!(client.cancel(fetch));
    let events = up(&mut client, &mut server).unwrap();
    assert_eq!(events, [server::Event::Cancelled(fetch)]);
    assert_eq!(server.submitted(id, JOB), None);
    let heard = down(&mut server, &mut client).unwrap();
    assert!(matches!(heard[0], Event::Failed(failed, _) if failed == fetch));
    assert_eq!(heard[1..], [Event::Answered(id, Answer::Submitted(JOB))]);
}

#[test]
fn a_client_that_gives_up_the_submission_gets_no_outcome() {
    let (mut client, mut server, id, fetch) = submitting();
    assert!(client.cancel(id));
    let events = up(&mut client, &mut server).unwrap();
    assert_eq!(events, [server::Event::Cancelled(id)]);
    assert_eq!(server.submitted(id, JOB), None);
    let heard = down(&mut server, &mut client).unwrap();
    let failed = heard.iter().map(|event| match event {
        Event::Failed(failed, failure) if failure.kind == FailureKind::Cancelled => *failed,
        other => panic!("{other:?}"),
    });
    assert_eq!(Vec::from_iter(failed), [id, fetch]);
    assert_eq!(server.open_calls(), 0);
}

/// Else it could be open at the client alone, where nothing would end it.
#[test]
fn no_outcome_is_asked_for_if_the_submission_must_wait() {
    let (mut client, _) = with_jobs(JOBS | OUTCOMES, 4);
    assert!(matches!(
        client.submit_and_fetch(&submission(), 0),
        Ok((_, Some(_)))
    ));
    // Two of four requests may have data streams, and both are open.
    let (_, fetch) = client.submit_and_fetch(&submission(), 0).unwrap();
    assert_eq!(fetch, None);
}

#[test]
fn a_request_for_an_outcome_needs_the_feature_and_a_number_of_its_own() {
    let (mut client, mut server) = with_jobs(JOBS, 8);
    client.submit_and_fetch(&submission(), 0).unwrap();
    let refused = Err(ProtocolError::OutOfPlace(Kind::Submit));
    assert_eq!(up(&mut client, &mut server), refused);
    for number in [0, 1] {
        let (mut client, mut server) = with_jobs(JOBS | OUTCOMES, 8);
        let submission = SubmitRequest {
            fetch: Some(number),
            ..submission()
        };
        assert_eq!(client.submit(&submission), Ok(1));
        assert_eq!(up(&mut client, &mut server), refused);
    }
}
