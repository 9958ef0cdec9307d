//! Tests of waiting for the first of several calls, at one server or at many, from several threads.
//! Every wait must end when one of its calls ends, whichever thread moves the bytes.

use super::server::{self, Script, read_frame, whole_call};
use farcall_client::{
    Argument, Error, FailureKind, Options, Outcome, Output, Pending, Scalar, Server, wait_any,
};
use std::io::Write;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// A wait that ends by itself ends long before.
const BOUND: Duration = Duration::from_secs(20);
/// The time-out of a wait in which nothing must happen.
const SHORT: Duration = Duration::from_millis(50);

/// Memory of a call of `scale`.
#[derive(Default)]
struct Arrays {
    x: [u8; 24],
    twice: [u8; 24],
    y: [u8; 12],
}

/// Begins a call of `scale`; the caller keeps `arrays` until it is over.
fn start(script: &Script, arrays: &mut Arrays) -> Pending {
    start_with(script, arrays, Options::default())
}

fn start_with(script: &Script, arrays: &mut Arrays, options: Options) -> Pending {
    let server = Server::connect(&script.address(), options).unwrap();
    let arguments = &mut [
        Argument::Scalar(Scalar::Int(3)),
        Argument::In(&arrays.x),
        Argument::Out(&mut arrays.twice),
        Argument::Out(&mut arrays.y),
    ];
    // SAFETY: every test keeps the arrays beyond the call.
    unsafe { server.function("scale").unwrap().start(arguments) }.unwrap()
}

fn silent() -> Script {
    let mut answers = whole_call(false, 16);
    answers.pop();
    Script::stalling(answers)
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + SHORT)
}

fn later() -> Option<Instant> {
    Some(Instant::now() + BOUND)
}

fn is_cancelled(end: Option<Result<Outcome, Error>>) -> bool {
    matches!(end, Some(Err(Error::Failed(failure))) if failure.kind == FailureKind::Cancelled)
}

#[test]
fn the_first_of_two_servers_ends_the_wait() {
    let (silent, late) = (silent(), Script::late(whole_call(false, 16), 40 * SHORT));
    let (mut one, mut other) = (Arrays::default(), Arrays::default());
    let (never, ends) = (start(&silent, &mut one), start(&late, &mut other));
    assert!(!wait_any(&[&never, &ends], soon()).unwrap());
    assert!(never.take().is_none() && ends.take().is_none());
    assert!(wait_any(&[&never, &ends], later()).unwrap());
    ends.take().expect("the end").unwrap();
    assert!(!wait_any(&[&never], soon()).unwrap());
    assert!(!wait_any(&[], later()).unwrap());
}

#[test]
fn a_cancel_ends_every_wait_for_the_call() {
    let (first, second) = (silent(), silent());
    let (mut one, mut other) = (Arrays::default(), Arrays::default());
    let (a, b) = (start(&first, &mut one), start(&second, &mut other));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        // All sorts of places to wait at: the first socket, both, asleep.
        scope.spawn(|| wait_any(&[&a], later()).unwrap());
        scope.spawn(|| wait_any(&[&a, &b], later()).unwrap());
        scope.spawn(|| wait_any(&[&b, &a], later()).unwrap());
        assert!(!wait_any(&[&a, &b], soon()).unwrap());
        a.cancel();
    });
    assert!(begin.elapsed() < BOUND);
    assert!(is_cancelled(a.take()));
    b.cancel();
    assert!(wait_any(&[&b], None).unwrap());
}

#[test]
fn threads_that_wait_for_the_same_call_all_see_its_end() {
    let late = Script::late(whole_call(false, 16), 2 * SHORT);
    let mut arrays = Arrays::default();
    let call = start(&late, &mut arrays);
    std::thread::scope(|scope| {
        let waits = [(); 4].map(|()| scope.spawn(|| wait_any(&[&call], later()).unwrap()));
        assert!(waits.into_iter().all(|wait| wait.join().unwrap()));
    });
    call.take().expect("the end").unwrap();
}

/// The end of a line comes with the end of the call, so that it is written there.
#[test]
fn who_gets_the_last_output_can_ask_about_the_call() {
    let ends = [server::printed(b"half a line"), server::done(2)].concat();
    let interface = server::interface(1, 7, "Define f(IN int n) Calls \"C\" f(n);");
    let script = Script::stalling(vec![server::hello_of_a_forwarder(), interface, ends]);
    let call: Arc<OnceLock<Pending>> = Arc::default();
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let (asked, seen) = (call.clone(), lines.clone());
    let output = Output::new(move |line| {
        let call = asked.get().unwrap();
        assert!(call.moves_here() && !call.is_done() && !call.has_ended());
        assert!(call.take().is_none());
        assert!(matches!(wait_any(&[call], None), Err(Error::Interrupted)));
        seen.lock().unwrap().push(line.to_string());
        Ok(())
    });
    let server = Server::connect(&script.address(), Options::default()).unwrap();
    let function = server.function("f").unwrap().with_output(Some(output));
    // SAFETY: the call has no arrays.
    let begun = unsafe { function.start(&mut [Argument::Scalar(Scalar::Int(1))]) };
    assert!(call.set(begun.unwrap()).is_ok());
    let call = call.get().unwrap();
    call.wait_timeout(BOUND).unwrap();
    assert!(!call.moves_here());
    assert!(matches!(call.take(), Some(Ok(_))));
    assert_eq!(*lines.lock().unwrap(), ["half a line"]);
}

#[test]
fn a_panic_of_on_interrupt_leaves_the_socket_to_others() {
    let script = Script::late(whole_call(false, 16), 40 * SHORT);
    let panics = Arc::new(AtomicBool::new(false));
    let does = panics.clone();
    let options = Options {
        on_interrupt: Some(Arc::new(move || {
            assert!(!does.load(Ordering::Relaxed), "as somebody wants it");
            false
        })),
        ..Options::default()
    };
    let mut arrays = Arrays::default();
    let call = start_with(&script, &mut arrays, options);
    panics.store(true, Ordering::Relaxed);
    let waited = catch_unwind(AssertUnwindSafe(|| call.wait_timeout(BOUND)));
    assert!(waited.is_err());
    let waited = catch_unwind(AssertUnwindSafe(|| wait_any(&[&call], later())));
    assert!(waited.is_err());
    panics.store(false, Ordering::Relaxed);
    call.wait_timeout(BOUND).unwrap();
    assert!(matches!(call.take(), Some(Ok(_))));
}

#[test]
fn a_wait_ends_in_time_while_another_thread_moves_the_call() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("farcall://{}", listener.local_addr().unwrap());
    let (told, moves) = std::sync::mpsc::channel();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let interface = server::interface(1, 7, "Define f(IN int n) Calls \"C\" f(n);");
        server::answer_each(
            &mut stream,
            [server::hello(1, 1), interface, server::goodbye("it drains")],
        );
        // Nobody greets the client when it comes again.
        told.send(listener.accept().unwrap()).unwrap();
    });
    let options = Options {
        connect_timeout: 80 * SHORT,
        ..Options::default()
    };
    let server = Server::connect(&address, options).unwrap();
    let function = server.function("f").unwrap();
    // SAFETY: the call has no arrays.
    let call = unsafe { function.start(&mut [Argument::Scalar(Scalar::Int(1))]) }.unwrap();
    std::thread::scope(|scope| {
        let moved = scope.spawn(|| call.wait_out());
        let _silent = moves.recv().unwrap();
        let begin = Instant::now();
        let waited = call.wait_timeout(SHORT);
        assert!(matches!(waited, Err(Error::Timeout { .. })), "{waited:?}");
        assert!(!wait_any(&[&call], soon()).unwrap());
        assert!(begin.elapsed() < 40 * SHORT);
        moved.join().unwrap().unwrap();
    });
    peer.join().unwrap();
    assert!(matches!(call.take(), Some(Err(_))));
}

/// The address of a server whose function prints without a pause, until its client goes. It serves
/// one client after the other.
fn chatterbox() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("farcall://{}", listener.local_addr().unwrap());
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let interface = server::interface(1, 7, "Define f(IN int n) Calls \"C\" f(n);");
            server::answer_each(&mut stream, [server::hello_of_a_forwarder(), interface]);
            read_frame(&mut stream);
            let lines = server::printed(b"line\n").repeat(1 << 12);
            let begin = Instant::now();
            while begin.elapsed() < BOUND && stream.write_all(&lines).is_ok() {}
        }
    });
    address
}

#[test]
fn a_wait_ends_in_time_although_bytes_come_without_a_pause() {
    let address = chatterbox();
    for output in [None, Some(Output::new(|_| Ok(())))] {
        let begin = Instant::now();
        let gives_up = Arc::new(AtomicBool::new(false));
        let does = gives_up.clone();
        let options = Options {
            on_interrupt: Some(Arc::new(move || does.load(Ordering::Relaxed))),
            ..Options::default()
        };
        let server = Server::connect(&address, options).unwrap();
        let function = server.function("f").unwrap().with_output(output);
        // SAFETY: the call has no arrays.
        let call = unsafe { function.start(&mut [Argument::Scalar(Scalar::Int(1))]) }.unwrap();
        let waited = call.wait_timeout(SHORT);
        assert!(matches!(waited, Err(Error::Timeout { .. })), "{waited:?}");
        assert!(!wait_any(&[&call], soon()).unwrap());
        gives_up.store(true, Ordering::Relaxed);
        let waited = call.wait_timeout(BOUND);
        assert!(matches!(waited, Err(Error::Interrupted)), "{waited:?}");
        assert!(begin.elapsed() < BOUND);
    }
}
