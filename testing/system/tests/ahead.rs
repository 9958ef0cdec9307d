//! Brief calls are posted to a worker one behind the other. A call that crashes, hangs or is
//! cancelled does not affect the others.

use farcall_client::{Argument, Function, Options, Pending, Scalar};
use farcall_system::{ServerProcess, wait_until};
use std::time::{Duration, Instant};

const SYSTEM: &str = "Module system;
Library \"libc.so.6\";
Define raise(IN int signal) Repeatable \"yes\" Calls \"C\" raise(signal);
Define sleep(IN int seconds) Repeatable \"yes\" Calls \"C\" sleep(seconds);
Define fill(OUT char x[8], IN int value, IN long n) Calls \"C\" memset(x, value, n);
";
const CONFIG: &str = "[queue]\npes = 2\n[workers]\nthreads = 1\n";

fn function(of: &str) -> (ServerProcess, Function) {
    let server = ServerProcess::of(&[SYSTEM]).config(CONFIG).start();
    let options = Options {
        same_host: false,
        timeout: Some(Duration::from_secs(30)),
        ..Options::default()
    };
    let client = farcall_client::Server::connect(server.address(), options).unwrap();
    let function = client.function(of).unwrap();
    (server, function)
}

fn start(function: &Function, value: i64) -> Pending {
    // SAFETY: there are no arrays.
    unsafe { function.start(&mut [Argument::Scalar(Scalar::Int(value))]) }.unwrap()
}

/// Lets the server learn that calls of the function are brief.
fn learn(function: &Function) {
    for _ in 0..50 {
        function
            .call(&mut [Argument::Scalar(Scalar::Int(0))])
            .unwrap();
    }
}

#[test]
fn a_crash_fails_the_call_that_ran() {
    let (_server, raise) = function("system/raise");
    for round in 0..5 {
        learn(&raise);
        let calls: Vec<Pending> = (0..12)
            .map(|index| start(&raise, if index == 4 { 11 } else { 0 }))
            .collect();
        for (index, call) in calls.into_iter().enumerate() {
            let outcome = call.wait();
            match index {
                4 => {
                    let text = outcome.unwrap_err().to_string();
                    assert!(text.contains("SIGSEGV"), "{text}");
                }
                _ => drop(outcome.unwrap_or_else(|error| panic!("{round}, {index}: {error}"))),
            }
        }
    }
}

#[test]
fn nobody_waits_behind_a_call_that_takes_long_for_once() {
    let (_server, sleep) = function("system/sleep");
    learn(&sleep);
    let start_of_all = Instant::now();
    let long = start(&sleep, 12);
    let behind: Vec<Pending> = (0..10).map(|_| start(&sleep, 0)).collect();
    for call in behind {
        call.wait().unwrap();
    }
    let waited = start_of_all.elapsed();
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    long.wait().unwrap();
}

#[test]
fn a_call_given_up_takes_no_other_with_it() {
    let (_server, sleep) = function("system/sleep");
    learn(&sleep);
    let long = start(&sleep, 1000);
    let mut behind: Vec<Pending> = (0..10).map(|_| start(&sleep, 0)).collect();
    // The call that runs, and perhaps one that waits behind it.
    behind.remove(5).cancel();
    long.cancel();
    for call in behind {
        call.wait().unwrap();
    }
    learn(&sleep);
}

#[test]
fn results_belong_to_their_calls() {
    let (_server, fill) = function("system/fill");
    let mut results = vec![[0u8; 8]; 400];
    for round in 0..3u8 {
        let calls: Vec<Pending> = results
            .iter_mut()
            .enumerate()
            .map(|(index, result)| {
                let arguments = &mut [
                    Argument::Out(result),
                    Argument::Scalar(Scalar::Int((index % 100) as i64 + i64::from(round))),
                    Argument::Scalar(Scalar::Int(8)),
                ];
                // SAFETY: the arrays outlive the calls.
                unsafe { fill.start(arguments) }.unwrap()
            })
            .collect();
        wait_until("the last call", || calls[399].is_done());
        for call in calls {
            call.wait().unwrap();
        }
        for (index, result) in results.iter().enumerate() {
            assert_eq!(*result, [(index % 100) as u8 + round; 8]);
        }
    }
}
