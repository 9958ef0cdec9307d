//! The client against servers that follow a script: right ones in another byte order, and wrong
//! ones of every kind. Each failure is an error of the right kind within the time-out.

mod early;
mod server;
mod several;

use farcall_client::{
    Argument, Callback, CallbackArguments, DataName, Error, FailureKind, Fault, Function, Options,
    Output, Scalar, Server,
};
use server::{
    Script, call_frames, cut, failure, frame, goodbye, hello, interface, interface_text, listing,
    read_frame, whole_call,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest wait for an answer that never comes; every test ends long before [`BOUND`].
const PATIENCE: Duration = Duration::from_secs(1);
const BOUND: Duration = Duration::from_secs(20);

fn options() -> Options {
    Options {
        connect_timeout: PATIENCE,
        timeout: Some(PATIENCE),
        ..Options::default()
    }
}

fn patient() -> Options {
    Options {
        connect_timeout: BOUND,
        timeout: Some(BOUND),
        ..Options::default()
    }
}

/// Arrays as `scale` in the scripted server takes them: x is IN and doubled, y is INOUT.
fn scale(address: &str, options: Options) -> Result<(Vec<f64>, Vec<i32>), Error> {
    scale_by(&Server::connect(address, options)?.function("scale")?)
}

fn scale_by(function: &Function) -> Result<(Vec<f64>, Vec<i32>), Error> {
    let x: Vec<u8> = [1.5f64, -2.0, 1e300]
        .iter()
        .flat_map(|v| v.to_ne_bytes())
        .collect();
    let mut twice = vec![0; 24];
    let mut y: Vec<u8> = [1i32, 2, 3].iter().flat_map(|v| v.to_ne_bytes()).collect();
    function.call(&mut [
        Argument::Scalar(Scalar::Int(3)),
        Argument::In(&x),
        Argument::Out(&mut twice),
        Argument::Out(&mut y),
    ])?;
    let doubles = twice
        .chunks_exact(8)
        .map(|v| f64::from_ne_bytes(v.try_into().unwrap()));
    let ints = y
        .chunks_exact(4)
        .map(|v| i32::from_ne_bytes(v.try_into().unwrap()));
    Ok((doubles.collect(), ints.collect()))
}

/// Runs `scale` and checks that it ends in time.
fn fails(script: Script, options: Options) -> Error {
    let start = Instant::now();
    let error = scale(&script.address(), options).expect_err("a wrong server");
    assert!(start.elapsed() < BOUND);
    error
}

#[test]
fn results_in_either_byte_order_are_understood() {
    for big_endian in [false, true] {
        for chunk in [1, 7, 1000] {
            let script = Script::stalling(whole_call(big_endian, chunk));
            let (twice, y) = scale(&script.address(), patient()).unwrap();
            assert_eq!(twice, [3.0, -4.0, 2e300]);
            assert_eq!(y, [1, 2, -3]);
        }
    }
}

#[test]
fn typed_slices_are_passed_by_name_in_any_order() {
    let script = Script::stalling(whole_call(false, 16));
    let server = Server::connect(&script.address(), patient()).unwrap();
    let (x, mut twice, mut y) = ([1.5, -2.0, 1e300], vec![0.0; 3], [1, 2, 3]);
    let function = server.function("scale").unwrap();
    function
        .call_named([
            ("y", (&mut y).into()),
            ("twice", (&mut twice).into()),
            ("n", 3.into()),
            ("x", (&x).into()),
        ])
        .unwrap();
    assert_eq!((&twice[..], y), (&[3.0, -4.0, 2e300][..], [1, 2, -3]));
}

#[test]
fn a_call_that_was_laid_out_is_made_without_its_scalars() {
    let script = Script::stalling(whole_call(false, 16));
    let server = Server::connect(&script.address(), patient()).unwrap();
    let function = server.function("scale").unwrap();
    let scalars = vec![Some(Scalar::Int(3)), None, None, None];
    let laid_out = function.lay_out(scalars, Vec::new()).unwrap();
    let bytes = |param| laid_out.layout().array(param).unwrap().client_bytes;
    assert_eq!([bytes(1), bytes(2), bytes(3)], [24, 24, 12]);
    let (x, mut twice, mut y) = ([1.5, -2.0, 1e300], [0.0; 3], [1, 2, 3]);
    let arguments = &mut [
        Argument::Skip,
        (&x).into(),
        (&mut twice).into(),
        (&mut y).into(),
    ];
    function.call_laid_out(laid_out, arguments).unwrap();
    assert_eq!((twice, y), ([3.0, -4.0, 2e300], [1, 2, -3]));
}

#[test]
fn a_server_that_closes_at_any_moment_is_a_lost_connection() {
    let all = whole_call(false, 16);
    for length in 0..all.concat().len() {
        let error = fails(Script::closing(cut(&all, length)), patient());
        assert!(
            matches!(error, Error::Disconnected { .. }),
            "after {length} bytes: {error}"
        );
        assert_eq!(error.fault(), Fault::Peer);
    }
}

#[test]
fn a_server_that_stalls_is_given_up() {
    let all = whole_call(false, 16);
    let end = all.concat().len();
    for length in [5, 60, end - 70, end - 1] {
        let start = Instant::now();
        let error = fails(Script::stalling(cut(&all, length)), options());
        assert!(
            matches!(error, Error::Timeout { .. }),
            "after {length} bytes: {error}"
        );
        assert!(start.elapsed() >= PATIENCE);
    }
}

/// More than all socket buffers on the way hold.
const LARGE: usize = 64 << 20;

fn large_call(script: &Script, options: Options) -> Error {
    let server = Server::connect(&script.address(), options).unwrap();
    let function = server.function("take").unwrap();
    let x = vec![0; LARGE];
    let start = Instant::now();
    let arguments = &mut [
        Argument::Scalar(Scalar::Int(LARGE as i64)),
        Argument::In(&x),
    ];
    let error = function
        .call(arguments)
        .expect_err("a server that does not take it");
    assert!(start.elapsed() < BOUND);
    error
}

#[test]
fn a_server_that_does_not_read_is_given_up() {
    let answers = vec![hello(1, 1), interface(1, 7, server::TAKE), vec![]];
    let error = large_call(&Script::slow(answers, 1), options());
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[test]
fn a_server_that_reads_too_slowly_is_given_up_in_time() {
    let answers = vec![hello(1, 1), interface(1, 7, server::TAKE), vec![]];
    let start = Instant::now();
    let error = large_call(&Script::slow(answers, 16 << 10), options());
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(start.elapsed() < 5 * PATIENCE);
}

#[test]
fn an_answer_before_the_arguments_are_sent_is_no_answer() {
    let answers = vec![hello(1, 1), interface(1, 7, server::TAKE), server::done(2)];
    let error = large_call(&Script::slow(answers, 1), patient());
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
}

/// Calls `ask` and returns what its callback was given.
fn ask(said: Vec<Vec<u8>>, options: Options) -> Result<Vec<Vec<u8>>, Error> {
    let answers = [vec![hello(1, 1), interface(1, 7, server::ASK)], said].concat();
    let script = Script::stalling(answers);
    let server = Server::connect(&script.address(), options).unwrap();
    let function = server.function("ask").unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let given = seen.clone();
    let each = Callback::new(move |arguments: &mut CallbackArguments<'_>| {
        given.lock().unwrap().push(arguments.array(1).to_vec());
        arguments.array(2).fill(1);
        Ok(())
    });
    let start = Instant::now();
    let one = Argument::Scalar(Scalar::Int(1));
    let called = function.call(&mut [one, Argument::Function(each)]);
    assert!(start.elapsed() < BOUND);
    called.map(|_| seen.lock().unwrap().clone())
}

#[test]
fn callbacks_in_either_byte_order_are_understood() {
    let little = server::callback(0, &[2], &[1, 0, 0, 0, 2, 0, 0, 0], false);
    let big = server::callback(0, &[1], &[0, 0, 0, 3], true);
    let seen = ask(vec![little, big, server::done(2)], patient()).unwrap();
    let ints = |all: &[i32]| {
        all.iter()
            .flat_map(|v| v.to_ne_bytes())
            .collect::<Vec<u8>>()
    };
    assert_eq!(seen, [ints(&[1, 2]), ints(&[3])]);
}

#[test]
fn callbacks_that_do_not_fit_their_interface_end_the_call() {
    let of = |index, count: &[u8], data: &[u8]| server::callback(index, count, data, false);
    let huge = [0x1b, 0, 1, 0, 0, 0, 0, 0, 0];
    for (wrong, what) in [
        (of(1, &[1], &[0; 4]), "callback 1, which does not exist"),
        (of(0, &[2], &[0; 4]), "have 4 bytes, expected 8"),
        (of(0, &huge, &[0; 4]), "given 281474976710656"),
        (of(0, &[0x1a, 0x10, 0, 0, 0], &[0; 4]), "bytes"),
        (of(0, &[0x20], &[]), "is -1"),
        (of(0, &[0xf6], &[]), "given nothing"),
    ] {
        let error = ask(vec![wrong], patient()).unwrap_err();
        assert!(matches!(error, Error::Callback { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    let twice = [of(0, &[1], &[0; 4]), of(0, &[1], &[0; 4])].concat();
    let error = ask(vec![twice], patient()).unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
    let error = ask(vec![of(0, &[1], &[0; 4])], options()).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[test]
fn a_server_that_is_too_old_to_forward_output_is_an_error_and_other_calls_go_on() {
    let answers = vec![
        hello(1, 1),
        interface(1, 7, "Define f(IN int n) Calls \"C\" f(n);"),
    ];
    let script = Script::stalling([answers, vec![server::done(2)]].concat());
    let server = Server::connect(&script.address(), patient()).unwrap();
    let function = server.function("f").unwrap();
    let printing = function.with_output(Some(Output::new(|_| Ok(()))));
    let mut one = [Argument::Scalar(Scalar::Int(1))];
    let error = printing.call(&mut one).unwrap_err();
    assert!(error.to_string().contains("too old to forward"), "{error}");
    function.call(&mut one).unwrap();
}

#[test]
fn what_a_server_says_before_it_closes_is_heard_by_a_client_that_still_sends() {
    let answers = vec![hello(1, 1), interface(1, 7, server::TAKE), vec![]];
    let text = "the server is stopping; the call did not complete";
    let last = [failure(2, 10, text), goodbye("the server is stopping")].concat();
    match large_call(&Script::hanging_up(answers, last), patient()) {
        Error::Failed(failure) => {
            assert_eq!(
                (failure.kind, failure.message.as_str()),
                (FailureKind::ServerStopping, text)
            );
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_server_that_is_full_says_so() {
    let error = fails(
        Script::hanging_up(vec![], goodbye("the server is full")),
        patient(),
    );
    assert!(error.to_string().contains("the server is full"), "{error}");
}

#[test]
fn a_client_that_comes_while_a_server_drains_connects_again() {
    let farewell = || goodbye("the server is draining; connect again");
    let script = Script::leaving_once(farewell(), whole_call(false, 36));
    assert!(scale(&script.address(), patient()).is_ok());
    // One that always says so is an error in the end.
    let error = fails(Script::closing(vec![farewell()]), patient());
    assert!(error.to_string().contains("is draining"), "{error}");
}

#[test]
fn strangers_are_recognised() {
    for said in [
        &b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.6\r\n\0\0\0\0\0\0\0\0",
        &[0xff; 64],
        &frame(1, 0, b"\x81\x67unknown"),
    ] {
        let error = fails(Script::closing(vec![said.to_vec()]), patient());
        assert!(
            error
                .to_string()
                .contains("does not speak the Farcall protocol"),
            "{error}"
        );
        assert_eq!(error.fault(), Fault::Peer);
    }
}

#[test]
fn another_version_is_an_error_that_says_so() {
    let error = fails(Script::closing(vec![hello(2, 2)]), patient());
    assert!(error.to_string().contains("protocol version"), "{error}");
    let goodbye = goodbye("no protocol version in common: one side speaks 1 to 1");
    let error = fails(Script::closing(vec![goodbye]), patient());
    assert!(
        error.to_string().contains("no protocol version in common"),
        "{error}"
    );
}

#[test]
fn broken_messages_are_errors_of_the_peer() {
    let described = [hello(1, 1), interface(1, 7, &interface_text())];
    let result = frame(8, 2, &[0x81, 0x18, 36]);
    let wrong: &[(&str, Vec<u8>)] = &[
        ("a second greeting", hello(1, 1)),
        ("an unknown kind", frame(99, 2, b"")),
        ("a kind of clients", frame(6, 2, b"\x80")),
        ("CBOR that is none", frame(8, 2, &[0xff, 0xff])),
        ("an empty result message", frame(8, 2, &[0x80])),
        ("a short result", frame(8, 2, &[0x81, 0x18, 35])),
        (
            "a long result",
            frame(8, 2, &[0x81, 0x1b, 0x40, 0, 0, 0, 0, 0, 0, 0]),
        ),
        ("data before the result", frame(7, 2, &[0; 36])),
        (
            "data of another call",
            [result.clone(), frame(7, 3, &[0; 36])].concat(),
        ),
        (
            "too much data",
            [result.clone(), frame(7, 2, &[0; 37])].concat(),
        ),
        ("empty data", [result.clone(), frame(7, 2, b"")].concat()),
        (
            "done too early",
            [result.clone(), frame(9, 2, &[0x84, 0, 0, 0, 0])].concat(),
        ),
        ("two results", [result.clone(), result].concat()),
        (
            "an interface nobody asked for",
            interface(2, 7, &interface_text()),
        ),
        (
            "a message above the limit",
            vec![0, 0, 0, 0x7f, 8, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0],
        ),
    ];
    for (what, bytes) in wrong {
        let said = [&described[..], std::slice::from_ref(bytes)].concat();
        let error = fails(Script::stalling(said), patient());
        assert!(matches!(error, Error::Protocol { .. }), "{what}: {error}");
        assert_eq!(error.fault(), Fault::Peer);
    }
}

#[test]
fn an_interface_that_cannot_be_read_is_named() {
    for text in [
        "",
        "Define scale(",
        "nonsense \u{1F600}",
        "Define f(IN int n) Calls g(m);",
    ] {
        let said = vec![hello(1, 1), interface(1, 7, text)];
        let error = fails(Script::stalling(said), patient());
        assert!(matches!(error, Error::Interface { .. }), "{text}: {error}");
        assert!(error.to_string().contains("scale"), "{error}");
        assert!(error.to_string().contains("update the other"), "{error}");
    }
}

#[test]
fn failures_are_reported_whenever_they_come() {
    let described = [hello(1, 1), interface(1, 7, &interface_text())];
    let begun = [frame(8, 2, &[0x81, 0x18, 36]), frame(7, 2, &[0; 20])].concat();
    for before in [vec![], begun] {
        let answer = [before, failure(2, 6, "scale crashed")].concat();
        let said = [&described[..], &[answer]].concat();
        match fails(Script::stalling(said), patient()) {
            Error::Failed(failure) => assert_eq!(failure.kind, FailureKind::LibraryCrashed),
            other => panic!("{other}"),
        }
    }
    let answer = failure(2, 200, "a kind of the future");
    let said = [&described[..], &[answer]].concat();
    match fails(Script::stalling(said), patient()) {
        Error::Failed(failure) => assert_eq!(failure.kind, FailureKind::Internal),
        other => panic!("{other}"),
    }
}

#[test]
fn a_function_from_before_a_restart_is_described_anew() {
    let stale = failure(2, 2, "the server was restarted; fetch the interface again");
    let described = interface(1, 7, &interface_text());
    let again = interface(3, 8, &interface_text());
    let answer = call_frames(4, false, 36);
    let said = vec![hello(1, 1), described, stale, again, answer];
    let script = Script::stalling(said);
    assert!(scale(&script.address(), patient()).is_ok());

    let stale = failure(2, 2, "the server was restarted; fetch the interface again");
    let described = interface(1, 7, &interface_text());
    let other = interface(3, 8, server::TAKE);
    let said = vec![hello(1, 1), described, stale, other];
    match fails(Script::stalling(said), patient()) {
        Error::Failed(failure) => assert_eq!(failure.kind, FailureKind::StaleInterface),
        other => panic!("{other}"),
    }
}

#[test]
fn a_listing_that_leads_in_a_circle_ends() {
    let said = vec![hello(1, 1), listing(1, Some(1)), listing(2, Some(1))];
    let script = Script::stalling(said);
    let server = Server::connect(&script.address(), patient()).unwrap();
    assert_eq!(server.functions().unwrap().len(), 2);
}

#[test]
fn a_call_without_time_out_lasts_longer_than_connecting_may() {
    let all = whole_call(false, 1000);
    let script = Script::late(all, 2 * PATIENCE);
    let options = Options {
        connect_timeout: PATIENCE,
        timeout: None,
        ..Options::default()
    };
    assert!(scale(&script.address(), options).is_ok());
}

#[test]
fn the_longest_time_outs_are_no_time_outs() {
    let script = Script::stalling(whole_call(false, 1000));
    let options = Options {
        connect_timeout: Duration::MAX,
        timeout: Some(Duration::MAX),
        ..Options::default()
    };
    assert!(scale(&script.address(), options).is_ok());
}

#[test]
fn the_time_out_of_a_function_takes_the_place_of_that_of_the_connection() {
    let script = Script::late(whole_call(false, 1000), 2 * PATIENCE);
    let server = Server::connect(&script.address(), options()).unwrap();
    let function = server.function("scale").unwrap();
    assert!(scale_by(&function.with_timeout(Some(BOUND))).is_ok());
    let script = Script::late(whole_call(false, 1000), 2 * PATIENCE);
    let server = Server::connect(&script.address(), patient()).unwrap();
    let function = server.function("scale").unwrap();
    let late = scale_by(&function.with_timeout(Some(PATIENCE))).unwrap_err();
    assert!(
        matches!(late, Error::Timeout { after, .. } if after == PATIENCE),
        "{late}"
    );
}

#[test]
fn the_time_out_of_a_function_holds_while_its_server_is_looked_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("farcall://{}", listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        server::answer_each(
            &mut stream,
            [hello(1, 1), interface(1, 7, &interface_text())],
        );
        listener
    });
    let function = Server::connect(&address, patient()).unwrap();
    let function = function.function("scale").unwrap();
    // The first connection ends, and nobody greets on another one.
    let _listener = peer.join().unwrap();
    let start = Instant::now();
    let late = scale_by(&function.with_timeout(Some(PATIENCE))).unwrap_err();
    assert!(
        matches!(late, Error::Timeout { after, .. } if after == PATIENCE),
        "{late}"
    );
    assert!(start.elapsed() < BOUND / 2);
}

#[test]
fn the_time_out_of_a_function_holds_while_its_data_are_looked_up() {
    // It does not answer the question for the data.
    let answers = vec![server::hello_of_a_holder(), interface(1, 7, server::TAKE)];
    let script = Script::stalling(answers);
    let server = Server::connect(&script.address(), patient()).unwrap();
    let function = server.function("take").unwrap();
    let function = function.with_timeout(Some(PATIENCE));
    let named = || [Argument::from(1), Argument::Named(DataName::plain("x"))];
    let start = Instant::now();
    let called = function.call(&mut named()).map(drop).unwrap_err();
    // SAFETY: the call has no arrays of the caller.
    let begun = unsafe { function.start(&mut named()) };
    for late in [called, begun.map(drop).unwrap_err()] {
        assert!(
            matches!(late, Error::Timeout { after, .. } if after == PATIENCE),
            "{late}"
        );
    }
    assert!(start.elapsed() < BOUND / 2);
}

#[test]
fn the_time_out_of_a_function_holds_while_its_reservation_is_looked_up() {
    // It does not answer the question for the reservation.
    let answers = vec![server::hello_of_a_holder(), interface(1, 7, server::TAKE)];
    let script = Script::stalling(answers);
    let server = Server::connect(&script.address(), patient()).unwrap();
    let function = server.function("take").unwrap();
    let function = function.with_timeout(Some(PATIENCE));
    let function = function.with_reservation(Some(5_u64));
    let start = Instant::now();
    let arguments = &mut [Argument::Scalar(Scalar::Int(1)), Argument::In(&[0])];
    let late = function.call(arguments).map(drop).unwrap_err();
    assert!(
        matches!(late, Error::Timeout { after, .. } if after == PATIENCE),
        "{late}"
    );
    assert!(start.elapsed() < BOUND / 2);
}

#[test]
fn nobody_there_is_an_error_at_once() {
    let script = Script::closing(vec![]);
    let address = script.address();
    drop(script);
    let error = scale(&address, patient()).expect_err("nobody listens");
    assert!(
        matches!(error, Error::Connect { .. } | Error::Disconnected { .. }),
        "{error}"
    );
}

#[test]
fn threads_do_not_wait_for_a_connection_one_after_the_other() {
    const THREADS: usize = 8;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("farcall://{}", listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_frame(&mut stream);
        stream.write_all(&hello(1, 1)).unwrap();
        listener
    });
    let server = Server::connect(&address, options()).unwrap();
    // The first connection ends, and nobody greets on another one.
    let _listener = peer.join().unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let asks = [(); THREADS].map(|()| scope.spawn(|| server.ping()));
        for ask in asks {
            let error = ask.join().unwrap().unwrap_err();
            if let Error::Timeout { after, .. } = error {
                // Not what was left after the wait for another thread.
                assert_eq!(after, PATIENCE);
            }
        }
    });
    let took = start.elapsed();
    assert!(took < 4 * PATIENCE, "{took:?}");
}

/// A server that drains: it refuses each request. It serves `most` connections, and greets nobody
/// else. Its threads end with the test's process.
fn draining(most: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("farcall://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().take(most) {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                server::answer_each(&mut stream, [hello(1, 1), failure(1, 26, "it drains")]);
                while stream.read(&mut [0]).is_ok_and(|count| count > 0) {}
            });
        }
        loop {
            std::thread::park();
        }
    });
    address
}

#[test]
fn the_wait_for_the_successor_of_a_server_ends_at_the_time_out() {
    for most in [1, usize::MAX] {
        let start = Instant::now();
        let server = Server::connect(&draining(most), options()).unwrap();
        let error = server.function("scale").unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        assert!(start.elapsed() < BOUND);
    }
}

#[test]
fn an_interrupt_ends_the_wait_for_the_successor_of_a_server() {
    let gives_up = Arc::new(AtomicBool::new(false));
    let does = gives_up.clone();
    let options = Options {
        on_interrupt: Some(Arc::new(move || does.load(Ordering::Relaxed))),
        ..patient()
    };
    let server = Server::connect(&draining(1), options).unwrap();
    gives_up.store(true, Ordering::Relaxed);
    let error = server.function("scale").unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
}

#[test]
fn an_interrupt_ends_the_wait_for_a_second_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("farcall://{}", listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        server::answer_each(&mut stream, [hello(1, 1), interface(1, 7, server::TAKE)]);
        // Nobody reads the large call, and nobody greets on another connection.
        (listener, stream)
    });
    let interrupts = Arc::new(AtomicBool::new(false));
    let handler = interrupts.clone();
    let options = Options {
        // A signal is there once.
        on_interrupt: Some(Arc::new(move || handler.swap(false, Ordering::Relaxed))),
        ..patient()
    };
    let server = Server::connect(&address, options).unwrap();
    let take = server.function("take").unwrap();
    let _peer = peer.join().unwrap();
    let x = vec![0; LARGE];
    let large = &mut [
        Argument::Scalar(Scalar::Int(LARGE as i64)),
        Argument::In(&x),
    ];
    // SAFETY: the array outlives the call.
    let call = unsafe { take.start(large) }.unwrap();
    interrupts.store(true, Ordering::Relaxed);
    let small = &mut [Argument::Scalar(Scalar::Int(1)), Argument::In(&[0])];
    let error = take.call(small).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    drop(call);
}

/// Reads what follows a call, until the client gives it up or asks something else. Returns the data
/// of the call.
fn data_until_given_up(mut stream: TcpStream) -> Vec<u8> {
    let mut data = Vec::new();
    loop {
        let (kind, payload) = read_frame(&mut stream);
        match kind {
            6 => {}
            7 => data.extend(payload),
            _ => return data,
        }
    }
}

#[test]
fn announced_data_of_a_call_that_is_given_up_stay_what_they_are() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("farcall://{}", listener.local_addr().unwrap());
    let (told, goes_on) = std::sync::mpsc::channel();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        server::answer_each(&mut stream, [hello(1, 1), interface(1, 7, server::TAKE)]);
        goes_on.recv().unwrap();
        data_until_given_up(stream)
    });
    let server = Server::connect(&address, patient()).unwrap();
    let x = vec![1; LARGE];
    let arguments = &mut [
        Argument::Scalar(Scalar::Int(LARGE as i64)),
        Argument::In(&x),
    ];
    // SAFETY: the array outlives the call.
    let call = unsafe { server.function("take").unwrap().start(arguments) }.unwrap();
    call.wait_timeout(PATIENCE / 10).unwrap_err();
    call.cancel();
    told.send(()).unwrap();
    // The thread that waits for another answer sends the rest.
    let _ = server.functions();
    let data = peer.join().unwrap();
    assert!(!data.is_empty() && data.iter().all(|byte| *byte == 1));
}
