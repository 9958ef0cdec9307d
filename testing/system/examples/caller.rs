//! A client that calls without a pause, and tells in the end how its calls ended. The test of
//! upgrades (`testing/system/tests/upgrade.rs`) runs it. `scripts/upgrade` also builds it from the
//! sources of the previous version, so it uses only what has been in `farcall-client` for long.
//!
//! It reads lines from its standard input. After each one, it prints how many calls have ended and
//! how many failed. When the input ends, it fetches the results of all durable calls, prints the
//! same counts once more, and ends.

use farcall_client::{Argument, DurableCall, Error, Function, Options, Scalar, Server};
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const THREADS: u8 = 4;
/// How long a server may take to come back.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Counts {
    done: AtomicUsize,
    failed: AtomicUsize,
    /// Durable calls that no server took. Nobody has lost anything.
    refused: AtomicUsize,
    accepted: AtomicUsize,
    fetched: AtomicUsize,
    ends: AtomicBool,
}

type Accepted = Arc<Mutex<Vec<(DurableCall, Vec<u8>)>>>;

fn main() -> Result<(), Error> {
    let address = std::env::args()
        .nth(1)
        .expect("the address of a metaserver");
    let server = Server::connect(&address, Options::default())?;
    let counts = Arc::new(Counts::default());
    let accepted = Accepted::default();
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let copy = server.function("copy").expect("it is served");
            let (counts, accepted) = (counts.clone(), accepted.clone());
            std::thread::spawn(move || call(number, &copy, &counts, &accepted))
        })
        .collect();
    for _ in std::io::stdin().lock().lines() {
        print(&counts);
    }
    counts.ends.store(true, Ordering::Relaxed);
    threads
        .into_iter()
        .for_each(|one| one.join().expect("it ends"));
    for (call, expected) in accepted.lock().expect("no thread panics").iter() {
        let start = Instant::now();
        loop {
            match fetch(call, expected.len()) {
                Ok(bytes) if bytes == *expected => {
                    counts.fetched.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                Ok(_) => {
                    eprintln!("wrong bytes of durable call {}", call.id());
                    break;
                }
                Err(error) if start.elapsed() > PATIENCE => {
                    eprintln!("durable call {}: {error}", call.id());
                    break;
                }
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
    print(&counts);
    Ok(())
}

fn call(number: u8, copy: &Function, counts: &Counts, accepted: &Accepted) {
    let mut round = 0usize;
    while !counts.ends.load(Ordering::Relaxed) {
        round += 1;
        let length = if round.is_multiple_of(10) {
            200_000
        } else {
            1000
        };
        let from = vec![number.wrapping_mul(50).wrapping_add(round as u8); length];
        let mut to = vec![0; length];
        let called = copy.call(&mut [
            Argument::Out(&mut to),
            Argument::In(&from),
            Argument::Scalar(Scalar::Int(length as i64)),
        ]);
        match called {
            Ok(_) if to == from => counts.done.fetch_add(1, Ordering::Relaxed),
            Ok(_) => {
                eprintln!("wrong bytes");
                counts.failed.fetch_add(1, Ordering::Relaxed)
            }
            Err(error) => {
                eprintln!("{error}");
                counts.failed.fetch_add(1, Ordering::Relaxed)
            }
        };
        if !round.is_multiple_of(20) {
            continue;
        }
        let submitted = copy.submit(
            &mut [
                Argument::Skip,
                Argument::In(&from),
                Argument::Scalar(Scalar::Int(length as i64)),
            ],
            None,
        );
        match submitted {
            Ok(call) => {
                counts.accepted.fetch_add(1, Ordering::Relaxed);
                accepted
                    .lock()
                    .expect("no thread panics")
                    .push((call, from));
            }
            Err(error) => {
                eprintln!("refused: {error}");
                counts.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn fetch(call: &DurableCall, length: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; length];
    let arguments = &mut [Argument::Out(&mut bytes), Argument::Skip, Argument::Skip];
    call.describe()?.fetch(arguments)?;
    Ok(bytes)
}

fn print(counts: &Counts) {
    let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    println!(
        "done {} failed {} accepted {} fetched {} refused {}",
        of(&counts.done),
        of(&counts.failed),
        of(&counts.accepted),
        of(&counts.fetched),
        of(&counts.refused)
    );
}
