//! Transactions at a real server: what happens to other calls when one fails. The Python tests
//! look at results, plans and pictures.

use farcall_client::{Argument, ArgumentOptions, Options, Scalar, Server, Transaction};
use farcall_system::ServerProcess;
use std::time::{Duration, Instant};

const STEPS: &str = "Module system;
Library \"libc.so.6\";
Define nap(IN int us, INOUT char x[n], IN long n) Calls \"C\" usleep(us);
Define leave(IN int status) Calls \"C\" exit(status);
";

/// Another call fails while the array of the first one still travels.
#[test]
fn after_a_failure_no_other_call_begins() {
    const BYTES: usize = 256 << 20;
    const NAP: Duration = Duration::from_secs(10);
    let server = ServerProcess::of(&[STEPS]).start();
    let options = Options {
        same_host: false,
        ..Options::default()
    };
    let server = Server::connect(server.address(), options).unwrap();
    let [nap, leave] = ["nap", "leave"].map(|name| server.function(name).unwrap());
    let mut array = vec![0u8; BYTES];
    let (mut transaction, ways) = (Transaction::new(), ArgumentOptions::default());
    // Two calls use the array, so that it goes to the server before the first one.
    for time in [NAP, Duration::ZERO] {
        let arguments = &mut [
            Argument::Scalar(Scalar::Int(time.as_micros() as i64)),
            Argument::Out(&mut array),
            Argument::Scalar(Scalar::Int(BYTES as i64)),
        ];
        // SAFETY: the array outlives the transaction.
        unsafe { transaction.add(&nap, arguments, &ways) }.unwrap();
    }
    let arguments = &mut [Argument::Scalar(Scalar::Int(3))];
    // SAFETY: it has no arrays.
    unsafe { transaction.add(&leave, arguments, &ways) }.unwrap();
    let start = Instant::now();
    let error = transaction.run(&[server]).unwrap_err().to_string();
    assert!(error.contains("call 3 of the transaction"), "{error}");
    assert!(start.elapsed() < NAP, "a call began after the failure");
}
