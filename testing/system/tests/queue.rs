//! Tests the queue of a real server: which call starts when, and on how many processor elements.
//! The functions report the times and threads themselves.

use farcall_client::{Argument, Function, Pending, Scalar};
use farcall_system::ServerProcess;
use std::time::Duration;

/// A library whose number of threads can be set, and that reports when and with how many it has
/// computed.
const IDL: &str = r#"
Module queue;
Globals {
    #include <stdlib.h>
    #include <time.h>
    static int threads;
    void omp_set_num_threads(int count) { threads = count; }
    static double now(void) {
        struct timespec time;
        clock_gettime(CLOCK_MONOTONIC, &time);
        return time.tv_sec + 1e-9 * time.tv_nsec;
    }
    static void nap(double seconds, double *span, int *used) {
        span[0] = now();
        struct timespec time = {(long)seconds, (long)((seconds - (long)seconds) * 1e9)};
        nanosleep(&time, 0);
        span[1] = now();
        *used = threads ? threads : atoi(getenv("OMP_NUM_THREADS"));
    }
}
Define wide(IN int pes, IN double seconds, OUT double span[2], OUT int *used)
    ProcessorElements pes
{ nap(seconds, span, used); }
Define molded(IN int most, IN double seconds, OUT double span[2], OUT int *used)
    ProcessorElements 1, most
{ nap(seconds, span, used); }
Define timed(IN int ms, IN double seconds, OUT double span[2], OUT int *used)
    CalcOrder ms * 1000
{ nap(seconds, span, used); }
"#;

/// Serves the library on a free port.
fn start(options: &[&str]) -> ServerProcess {
    let server = ServerProcess::of(&[IDL]).options(&["--allow-code"]);
    server.options(options).start()
}

/// A call in progress, and its result arrays.
struct Running {
    // Before the arrays, because it must be dropped first.
    pending: Pending,
    span: Box<[u8; 16]>,
    used: Box<[u8; 4]>,
}

/// The time for which a call has computed, and its number of threads.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: f64,
    end: f64,
    used: i32,
}

impl Running {
    fn begin(function: &Function, first: i32, seconds: f64) -> Running {
        let mut span = Box::new([0; 16]);
        let mut used = Box::new([0; 4]);
        let mut arguments = [
            Argument::Scalar(Scalar::Int(first.into())),
            Argument::Scalar(Scalar::Float(seconds)),
            Argument::Out(&mut span[..]),
            Argument::Out(&mut used[..]),
        ];
        // SAFETY: the arrays are on the heap, nobody touches them before the call has ended, and
        // they are dropped after it.
        let pending = unsafe { function.start(&mut arguments) }.unwrap();
        Running {
            pending,
            span,
            used,
        }
    }

    fn end(self) -> Span {
        self.pending.wait_timeout(Duration::from_secs(60)).unwrap();
        self.pending.wait().unwrap();
        let double = |at: usize| f64::from_ne_bytes(self.span[at..at + 8].try_into().unwrap());
        Span {
            start: double(0),
            end: double(8),
            used: i32::from_ne_bytes(*self.used),
        }
    }
}

/// The most processor elements in use at one time.
fn most_in_use(spans: &[Span]) -> i32 {
    let at = |time: f64| {
        let running = spans
            .iter()
            .filter(|span| span.start <= time && time < span.end);
        running.map(|span| span.used).sum()
    };
    spans.iter().map(|span| at(span.start)).max().unwrap_or(0)
}

#[test]
fn libraries_use_as_many_threads_as_there_are_processor_elements_for_them() {
    for policy in ["fcfs", "sjf", "fpfs", "fmpfs"] {
        let server = start(&["--policy", policy, "--pes", "4"]);
        let connection = server.connect();
        let wide = connection.function("wide").unwrap();
        let molded = connection.function("molded").unwrap();
        let calls: Vec<(i32, Running)> = (0..24)
            .map(|call| match call % 3 {
                // A number that is too large means all of them.
                0 => (9, Running::begin(&molded, 9, 0.004)),
                _ => {
                    let pes = 1 + call % 5;
                    (-pes.min(4), Running::begin(&wide, pes, 0.004))
                }
            })
            .collect();
        let mut spans = Vec::new();
        for (wanted, call) in calls {
            let span = call.end();
            match wanted {
                9 => assert!((1..=4).contains(&span.used), "{policy}: {span:?}"),
                rigid => assert_eq!(span.used, -rigid, "{policy}"),
            }
            spans.push(span);
        }
        let most = most_in_use(&spans);
        assert!(most <= 4, "{policy}: {most} of 4 in use");
        assert!(most >= 3, "{policy}: never more than {most} in use");
        // A moldable call that is alone gets all processor elements.
        assert_eq!(Running::begin(&molded, 3, 0.0).end().used, 3, "{policy}");
    }
}

#[test]
fn at_once_every_call_starts_with_all_threads() {
    let server = start(&["--policy", "at-once", "--pes", "2"]);
    let wide = server.connect().function("wide").unwrap();
    let calls: Vec<Running> = (0..6).map(|_| Running::begin(&wide, 1, 6.0)).collect();
    let spans: Vec<Span> = calls.into_iter().map(Running::end).collect();
    let last_start = spans.iter().map(|span| span.start).fold(0.0, f64::max);
    let first_end = spans
        .iter()
        .map(|span| span.end)
        .fold(f64::INFINITY, f64::min);
    assert!(last_start < first_end, "all at the same time: {spans:?}");
    assert!(spans.iter().all(|span| span.used == 2), "{spans:?}");
}

#[test]
fn times_that_were_learned_outlive_the_server_and_order_the_calls() {
    let mut server = start(&["--policy", "sjf", "--pes", "1", "--state", "state"]);
    let timed = server.connect().function("timed").unwrap();
    for ms in [5, 1500] {
        Running::begin(&timed, ms, f64::from(ms) * 1e-3).end();
    }
    server.stop();
    server.restart();
    let timed = server.connect().function("timed").unwrap();
    let seconds = |ms| {
        let scalars = [Some(Scalar::Int(ms)), Some(Scalar::Float(0.0)), None, None];
        let plan = timed.estimate(&scalars, &[]).unwrap();
        plan.exec.expect("it is known")
    };
    assert!((0.005..1.0).contains(&seconds(5)), "{}", seconds(5));
    assert!((1.4..6.0).contains(&seconds(1500)), "{}", seconds(1500));
    // The first call starts at once. Of the others, which come while it runs, the short ones go
    // first.
    let order = [1500, 1500, 1500, 5, 5];
    let calls = order.map(|ms| Running::begin(&timed, ms, f64::from(ms) * 1e-3));
    let spans = calls.map(Running::end);
    let mut by_start: Vec<(f64, i32)> = spans.iter().map(|span| span.start).zip(order).collect();
    by_start.sort_by(|one, other| one.0.total_cmp(&other.0));
    let started: Vec<i32> = by_start.iter().map(|(_, ms)| *ms).collect();
    assert_eq!(started, [1500, 5, 5, 1500, 1500]);
}
