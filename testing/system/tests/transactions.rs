//! Transactions at a real server: what happens to other calls when one fails. The Python tests
//! look at results, plans and pictures.

use farcall_client::{
    Argument, ArgumentOptions, Deferred, Error, Function, Options, Scalar, Server, Transaction,
};
use farcall_system::{ServerProcess, wait_until};
use rustix::time::{ClockId, clock_gettime};
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

/// A function that copies its array `a`, in two versions with another order of the arrays.
const VERSIONS: [&str; 2] = [
    "Module system;
Library \"libc.so.6\";
Define nap(IN int us, INOUT char x[n], IN long n) Repeatable \"yes\" Calls \"C\" usleep(us);
Define pick(OUT char out[n], IN char a[n], IN char b[n], IN long n) Repeatable \"yes\"
    Calls \"C\" memcpy(out, a, n);
",
    "Module system;
Library \"libc.so.6\";
Define nap(IN int us, INOUT char x[n], IN long n) Repeatable \"yes\" Calls \"C\" usleep(us);
Define pick(OUT char out[n], IN char b[n], IN char a[n], IN long n) Repeatable \"yes\"
    Calls \"C\" memcpy(out, a, n);
",
];
const ONES: [u8; 8] = [1; 8];
const TWOS: [u8; 8] = [2; 8];

/// Records a call of `pick` with ones and twos.
fn add_pick(transaction: &mut Transaction, pick: &Function, out: &mut [u8; 8]) {
    let arguments = &mut [
        Argument::Out(out),
        Argument::In(&ONES),
        Argument::In(&TWOS),
        Argument::Scalar(Scalar::Int(8)),
    ];
    // SAFETY: who calls this keeps the array until the transaction has run.
    unsafe { transaction.add(pick, arguments, &ArgumentOptions::default()) }.unwrap();
}

/// How many calls run.
fn running(server: &Server) -> u64 {
    let status: serde_json::Value = serde_json::from_str(&server.status().unwrap()).unwrap();
    status["jobs"]["running"].as_u64().unwrap()
}

#[test]
fn each_call_goes_to_a_server_with_its_interface() {
    let processes = VERSIONS.map(|text| ServerProcess::of(&[text]).start());
    let servers = processes.each_ref().map(ServerProcess::connect);
    for order in [[0, 1], [1, 0]] {
        let mut transaction = Transaction::new();
        let mut results = [[0; 8]; 2];
        for (version, out) in order.into_iter().zip(&mut results) {
            add_pick(
                &mut transaction,
                &servers[version].function("pick").unwrap(),
                out,
            );
        }
        transaction.run(&servers).unwrap();
        assert_eq!(order.map(|version| [ONES, TWOS][version]), results);
    }
}

#[test]
fn the_time_out_of_a_call_counts_from_its_start_and_not_from_its_recording() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let process = ServerProcess::of(&[VERSIONS[0]]).start();
    let options = Options {
        timeout: Some(TIMEOUT),
        ..Options::default()
    };
    let server = Server::connect(process.address(), options).unwrap();
    let (mut transaction, mut out) = (Transaction::new(), [0; 8]);
    add_pick(
        &mut transaction,
        &server.function("pick").unwrap(),
        &mut out,
    );
    std::thread::sleep(TIMEOUT);
    transaction.run(&[server]).unwrap();
    assert_eq!(out, ONES);
}

#[test]
fn a_server_that_comes_back_with_another_interface_gets_no_call() {
    let mut before = ServerProcess::of(&[VERSIONS[0]]).start();
    let server = before.connect();
    let [nap, pick] = ["nap", "pick"].map(|name| server.function(name).unwrap());
    let (mut x, mut out) = ([0u8; 8], [0; 8]);
    let mut transaction = Transaction::new();
    let arguments = &mut [
        Argument::Scalar(Scalar::Int(4_000_000)),
        Argument::Out(&mut x),
        Argument::Scalar(Scalar::Int(8)),
    ];
    // SAFETY: the array outlives the transaction.
    unsafe { transaction.add(&nap, arguments, &ArgumentOptions::default()) }.unwrap();
    let arguments = &mut [
        Argument::Out(&mut out),
        Argument::In(&x),
        Argument::In(&TWOS),
        Argument::Scalar(Scalar::Int(8)),
    ];
    // SAFETY: the arrays outlive the transaction.
    unsafe { transaction.add(&pick, arguments, &ArgumentOptions::default()) }.unwrap();
    let address = before.host_and_port().to_owned();
    let replaced = std::thread::spawn(move || {
        wait_until("it naps", || running(&before.connect()) == 1);
        before.kill();
        let after = ServerProcess::of(&[VERSIONS[1]]);
        after.options(&["--listen", &address]).start()
    });
    let error = transaction.run(&[server]).unwrap_err();
    replaced.join().unwrap();
    let text = error.to_string();
    assert!(
        matches!(error, Error::Transaction { call: 2, .. }),
        "{text}"
    );
    assert!(
        text.contains("the interface of `system/pick` is different there"),
        "{text}"
    );
    assert_eq!(out, [0; 8]);
}

const MOVES: &str = "Module system;
Library \"libc.so.6\";
Define copy(OUT char out[n], IN char in[n], IN long n) Repeatable \"yes\"
    Calls \"C\" memcpy(out, in, n);
Define join(OUT char out[n], IN char a[n], IN char b[m], IN long n, IN long m) Repeatable \"yes\"
    Calls \"C\" memcpy(out, a, n);
Define nap(IN int us, INOUT char x[n], IN long n) Repeatable \"yes\" Calls \"C\" usleep(us);
";

/// Thousands of calls that wait for one server. The time is that of the processor, which other
/// programs do not change.
#[test]
fn many_calls_cost_no_more_each_than_a_few() {
    let server = ServerProcess::of(&[MOVES]).options(&["--pes", "1"]).start();
    let server = server.connect();
    let copy = server.function("copy").unwrap();
    let per_call = |calls: usize| {
        let mut results = vec![[0u8; 8]; calls];
        let mut transaction = Transaction::new();
        for out in &mut results {
            let arguments = &mut [
                Argument::Out(out),
                Argument::In(&TWOS),
                Argument::Scalar(Scalar::Int(8)),
            ];
            // SAFETY: the arrays outlive the transaction.
            unsafe { transaction.add(&copy, arguments, &ArgumentOptions::default()) }.unwrap();
        }
        let before = clock_gettime(ClockId::ProcessCPUTime);
        transaction.run(std::slice::from_ref(&server)).unwrap();
        let used = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime) - before).unwrap();
        assert!(results.iter().all(|result| *result == TWOS));
        used.as_secs_f64() / calls as f64
    };
    per_call(100);
    let (few, many) = (per_call(200), per_call(3000));
    assert!(many < 8.0 * few, "{many} s a call instead of {few} s");
}

/// Records a call of `copy` from memory to a stored array.
fn add_copy(transaction: &mut Transaction, copy: &Function, to: Deferred, from: &[u8]) {
    let arguments = &mut [
        Argument::Skip,
        Argument::In(from),
        Argument::Scalar(Scalar::Int(from.len() as i64)),
    ];
    let ways = ArgumentOptions {
        deferred: vec![(0, to)],
        ..ArgumentOptions::default()
    };
    // SAFETY: who calls this keeps the array until the transaction has run.
    unsafe { transaction.add(copy, arguments, &ways) }.unwrap();
}

/// Records a call of `nap`.
fn add_nap(transaction: &mut Transaction, nap: &Function, time: Duration, x: &mut [u8; 8]) {
    let arguments = &mut [
        Argument::Scalar(Scalar::Int(time.as_micros() as i64)),
        Argument::Out(x),
        Argument::Scalar(Scalar::Int(8)),
    ];
    // SAFETY: who calls this keeps the array until the transaction has run.
    unsafe { transaction.add(nap, arguments, &ArgumentOptions::default()) }.unwrap();
}

/// Records a call of `join` that copies a stored array, and reads `x`.
fn add_join(
    transaction: &mut Transaction,
    join: &Function,
    out: &mut [u8],
    (array, x): (Deferred, &[u8; 8]),
) {
    let length = out.len() as i64;
    let arguments = &mut [
        Argument::Out(out),
        Argument::Skip,
        Argument::In(x),
        Argument::Scalar(Scalar::Int(length)),
        Argument::Scalar(Scalar::Int(8)),
    ];
    let ways = ArgumentOptions {
        deferred: vec![(1, array)],
        ..ArgumentOptions::default()
    };
    // SAFETY: who calls this keeps the arrays until the transaction has run.
    unsafe { transaction.add(join, arguments, &ways) }.unwrap();
}

/// A call fails because somebody has dropped its array. Another call computes meanwhile, and cannot
/// be made again, because its result replaces what it reads.
#[test]
fn a_result_is_fetched_before_lost_arrays_are_made_again() {
    const LENGTH: usize = 8192;
    let process = ServerProcess::of(&[MOVES]).options(&["--pes", "2"]).start();
    let server = process.connect();
    let [copy, nap, join] = ["copy", "nap", "join"].map(|name| server.function(name).unwrap());
    let (data, mut results) = ([7u8; LENGTH], [[0u8; LENGTH]; 2]);
    let (mut short, mut long) = ([1; 8], [2; 8]);
    let mut transaction = Transaction::new();
    let array = transaction.defer();
    add_copy(&mut transaction, &copy, array, &data);
    add_nap(&mut transaction, &nap, Duration::from_secs(2), &mut short);
    add_nap(&mut transaction, &nap, Duration::from_secs(4), &mut long);
    for (out, x) in results.iter_mut().zip([&short, &long]) {
        add_join(&mut transaction, &join, out, (array, x));
    }
    let other = process.connect();
    let dropped = std::thread::spawn(move || {
        let mut handles = Vec::new();
        wait_until("the array is there, and both naps run", || {
            handles = other.handles().unwrap();
            handles.iter().any(|one| one.form.shape == [LENGTH as u64]) && running(&other) == 2
        });
        let mut found = handles.into_iter();
        let found = found.find(|one| one.form.shape == [LENGTH as u64]).unwrap();
        other.handle(found.id).unwrap().drop_array().unwrap();
    });
    let report = transaction.run(std::slice::from_ref(&server)).unwrap();
    dropped.join().unwrap();
    assert!(report.calls > transaction.len(), "nothing was made again");
    assert_eq!(results, [data; 2]);
    assert_eq!((short, long), ([1; 8], [2; 8]));
}

/// Somebody drops an array of a transaction, which makes all of that server again.
#[test]
fn arrays_that_are_made_again_are_not_left_behind() {
    const LENGTHS: [usize; 2] = [8192, 8193];
    let process = ServerProcess::of(&[MOVES]).start();
    let server = process.connect();
    let [copy, nap] = ["copy", "nap"].map(|name| server.function(name).unwrap());
    let data = LENGTHS.map(|length| vec![7u8; length]);
    let mut results = data.clone().map(|data| vec![0u8; data.len()]);
    let mut x = [0; 8];
    let mut transaction = Transaction::new();
    let arrays = LENGTHS.map(|_| transaction.defer());
    for (array, data) in arrays.iter().zip(&data) {
        add_copy(&mut transaction, &copy, *array, data);
    }
    add_nap(&mut transaction, &nap, Duration::from_secs(3), &mut x);
    let join = server.function("join").unwrap();
    for (array, out) in arrays.iter().zip(&mut results) {
        // It reads the array of the nap, too, so that it comes after the nap.
        add_join(&mut transaction, &join, out, (*array, &x));
    }
    let other = process.connect();
    let dropped = std::thread::spawn(move || {
        let mut handles = Vec::new();
        wait_until("both arrays are there", || {
            handles = other.handles().unwrap();
            let lengths = handles.iter().map(|one| one.form.shape[0] as usize);
            LENGTHS
                .iter()
                .all(|wanted| lengths.clone().any(|one| one == *wanted))
                && running(&other) == 1
        });
        let mut first = handles.into_iter();
        let first = first.find(|one| one.form.shape == [LENGTHS[0] as u64]);
        let first = other.handle(first.unwrap().id).unwrap();
        first.drop_array().unwrap();
    });
    let report = transaction.run(std::slice::from_ref(&server)).unwrap();
    dropped.join().unwrap();
    assert!(report.calls > transaction.len(), "nothing was made again");
    assert_eq!(results, data);
    for array in arrays {
        transaction.take(array).unwrap().drop_array().unwrap();
    }
    assert_eq!(server.handles().unwrap().len(), 0);
}
