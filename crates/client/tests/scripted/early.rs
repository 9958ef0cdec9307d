//! Results of durable calls that come with the acknowledgement of the submission, and what a client
//! does if they do not come. The client opens the request for them first, so it has number 2.

use super::server::{
    Script, answer_each, call_frames, done, failure, frame, hello_of_a_keeper, interface,
    interface_text, read_frame,
};
use super::{BOUND, patient};
use farcall_client::{Argument, DurableCall, Function, Scalar, Server};
use std::net::{TcpListener, TcpStream};

/// A function without arrays.
const TELL: &str = "Define tell(IN int n) Calls \"C\" usleep(n);";

/// Answers a submission, the third request.
fn submitted() -> Vec<u8> {
    frame(33, 3, &[&[0x81, 0x50][..], &[7; 16]].concat())
}

fn function(address: &str, name: &str) -> Function {
    let server = Server::connect(address, patient()).unwrap();
    server.function(name).unwrap()
}

/// Submits a call of `scale`.
fn submit_scale(script: &Script) -> DurableCall {
    let scale = function(&script.address(), "scale");
    let (x, y) = ([0; 24], [0; 12]);
    let n = Argument::Scalar(Scalar::Int(3));
    let arguments = &mut [n, Argument::In(&x), Argument::Skip, Argument::In(&y)];
    scale.submit(arguments, None).unwrap()
}

/// Checks the results of `scale`.
fn fetch_scale(call: &DurableCall) {
    let (mut twice, mut y) = ([0.0; 3], [0; 3]);
    let arguments = &mut [
        Argument::Skip,
        Argument::Skip,
        (&mut twice).into(),
        (&mut y).into(),
    ];
    call.describe().unwrap().fetch(arguments).unwrap();
    assert_eq!((twice, y), ([3.0, -4.0, 2e300], [1, 2, -3]));
}

fn keeper(idl: &str, answers: [Vec<u8>; 2]) -> Script {
    let begin = [hello_of_a_keeper(), interface(1, 7, idl)];
    Script::stalling(begin.into_iter().chain(answers).collect())
}

#[test]
fn results_that_come_early_are_not_asked_for_again() {
    for big_endian in [false, true] {
        let told = [submitted(), call_frames(2, big_endian, 7)].concat();
        // A second fetch asks the server.
        let script = keeper(&interface_text(), [told, call_frames(4, big_endian, 36)]);
        let call = submit_scale(&script);
        fetch_scale(&call);
        fetch_scale(&call);
    }
}

#[test]
fn results_that_could_not_come_early_are_asked_for_again() {
    let draining = failure(2, 4, "the server is draining");
    let told = [submitted(), draining].concat();
    let script = keeper(&interface_text(), [told, call_frames(4, false, 36)]);
    fetch_scale(&submit_scale(&script));
}

/// A server that accepts one connection after the other.
fn serving<R: Send + 'static>(
    serve: impl FnOnce(&mut dyn FnMut() -> TcpStream) -> R + Send + 'static,
) -> (String, std::thread::JoinHandle<R>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("farcall://{}", listener.local_addr().unwrap());
    let mut accept = move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        stream
    };
    (address, std::thread::spawn(move || serve(&mut accept)))
}

fn submit_tell(address: &str) -> DurableCall {
    let n = Argument::Scalar(Scalar::Int(1));
    let tell = function(address, "tell");
    tell.submit(&mut [n], None).unwrap()
}

#[test]
fn results_are_fetched_from_the_next_server_if_the_first_one_ends() {
    let (address, server) = serving(|accept| {
        let begin = [hello_of_a_keeper(), interface(1, 7, TELL), submitted()];
        answer_each(&mut accept(), begin);
        answer_each(&mut accept(), [hello_of_a_keeper(), done(1)]);
    });
    let call = submit_tell(&address);
    let fetched = call.describe().unwrap().fetch(&mut [Argument::Skip]);
    fetched.unwrap();
    server.join().unwrap();
}

#[test]
fn a_call_that_nobody_keeps_gives_its_early_results_up() {
    let (address, server) = serving(|accept| {
        let mut client = accept();
        let begin = [hello_of_a_keeper(), interface(1, 7, TELL), submitted()];
        answer_each(&mut client, begin);
        read_frame(&mut client).0
    });
    drop(submit_tell(&address));
    assert_eq!(server.join().unwrap(), 11);
}
