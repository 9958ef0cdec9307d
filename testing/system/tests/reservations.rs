//! Tests reserved processor elements with a real server and two of its users. A call of a
//! reservation goes before all others, and one user leaves elements to others.

use farcall_client::{
    Argument, DurableCall, DurableState, Error, FailureKind, Function, Options, Pending,
    ReservationName, ReservationSpec, Scalar, Server,
};
use farcall_system::server::refusal;
use farcall_system::{ServerProcess, farcall};
use std::time::Duration;

/// A function that reports when it has computed.
const IDL: &str = r#"
Module reserved;
Globals {
    #include <time.h>
    static double now(void) {
        struct timespec time;
        clock_gettime(CLOCK_MONOTONIC, &time);
        return time.tv_sec + 1e-9 * time.tv_nsec;
    }
}
Define wide(IN int pes, IN double seconds, OUT double span[2])
    ProcessorElements pes
{
    span[0] = now();
    struct timespec time = {(long)seconds, (long)((seconds - (long)seconds) * 1e9)};
    nanosleep(&time, 0);
    span[1] = now();
}
"#;

const MINUTE: Duration = Duration::from_secs(60);

/// A server where one user can reserve all of two processor elements.
fn start(options: &[&str]) -> ServerProcess {
    let config = "[limits]\nreserve_share = 1.0\n[queue]\npes = 2\n";
    start_with(config, options)
}

fn start_with(config: &str, options: &[&str]) -> ServerProcess {
    let server = ServerProcess::of(&[IDL]).config(config);
    let server = server.options(&["--allow-code"]);
    server.options(options).start()
}

/// Processor elements, after this time and for this long.
fn of_pes(pes: u32, start: Duration, length: Duration) -> ReservationSpec {
    ReservationSpec {
        pes,
        start,
        length,
        ..ReservationSpec::default()
    }
}

/// Another user than that of [`ServerProcess::connect`], whom the server knows by the Unix socket.
fn stranger(process: &ServerProcess) -> Server {
    let options = Options {
        same_host: false,
        ..Options::default()
    };
    Server::connect(process.address(), options).unwrap()
}

struct Running {
    // Before the array, because it must be dropped first.
    pending: Pending,
    span: Box<[u8; 16]>,
}

impl Running {
    fn begin(function: &Function, pes: i64, seconds: f64) -> Result<Running, Error> {
        let mut span = Box::new([0; 16]);
        let mut arguments = [
            Argument::Scalar(Scalar::Int(pes)),
            Argument::Scalar(Scalar::Float(seconds)),
            Argument::Out(&mut span[..]),
        ];
        // SAFETY: the array is on the heap, nobody touches it before the call has ended, and it is
        // dropped after it.
        let pending = unsafe { function.start(&mut arguments) }?;
        Ok(Running { pending, span })
    }

    /// The start and the end of its computation.
    fn end(self) -> Result<[f64; 2], Error> {
        self.pending.wait_timeout(MINUTE)?;
        self.pending.wait()?;
        let double = |at: usize| f64::from_ne_bytes(self.span[at..at + 8].try_into().unwrap());
        Ok([double(0), double(8)])
    }
}

#[test]
fn calls_of_a_reservation_go_before_all_others() {
    let process = start(&[]);
    let server = stranger(&process);
    let function = server.function("wide").unwrap();
    let reservation = server.reserve(&of_pes(2, Duration::ZERO, MINUTE)).unwrap();
    assert!(reservation.begins.is_zero() && reservation.ends <= MINUTE);
    let outside = Running::begin(&function, 1, 0.0).unwrap();
    let within = function.with_reservation(Some(reservation.id));
    for _ in 0..2 {
        let [_, end] = Running::begin(&within, 2, 0.05).unwrap().end().unwrap();
        assert!(end > 0.0);
    }
    let last = Running::begin(&within, 2, 0.05).unwrap().end().unwrap();
    let status = server.status().unwrap();
    assert!(status.contains("\"ends_in_s\""), "{status}");
    server.release(reservation.id).unwrap();
    let outside = outside.end().unwrap();
    assert!(outside[0] >= last[1], "{outside:?} and {last:?}");
    assert_eq!(server.reservations().unwrap(), []);
}

#[test]
fn a_call_waits_for_its_reservation_and_no_longer() {
    let process = start(&[]);
    let server = stranger(&process);
    let function = server.function("wide").unwrap();
    let [now, _] = Running::begin(&function, 1, 0.0).unwrap().end().unwrap();
    let ahead = Duration::from_millis(700);
    let reservation = server.reserve(&of_pes(2, ahead, MINUTE)).unwrap();
    let within = function.with_reservation(Some(reservation.id));
    // It asks for all processor elements, which are all reserved.
    let [start, _] = Running::begin(&within, 9, 0.0).unwrap().end().unwrap();
    assert!(start - now >= 0.69, "after {} s", start - now);
}

#[test]
fn a_reservation_is_over_at_its_end() {
    let process = start(&[]);
    let server = stranger(&process);
    let function = server.function("wide").unwrap();
    let [now, _] = Running::begin(&function, 1, 0.0).unwrap().end().unwrap();
    let length = Duration::from_millis(500);
    let reservation = server.reserve(&of_pes(2, Duration::ZERO, length)).unwrap();
    let [start, _] = Running::begin(&function, 1, 0.0).unwrap().end().unwrap();
    assert!(start - now >= 0.49, "after {} s", start - now);
    let late = function.with_reservation(Some(reservation.id));
    let late = Running::begin(&late, 1, 0.0).and_then(Running::end);
    assert_eq!(refusal(late).0, FailureKind::NotFound);
}

#[test]
fn what_cannot_be_reserved_is_refused_with_the_reason() {
    let configuration = "[limits]\nreservations_per_user = 2\nreserve_ahead_s = 100.0\n\
                         reserve_share = 1.0\n[queue]\npes = 2\nunreservable_pes = 1\n";
    let process = start_with(configuration, &[]);
    let server = stranger(&process);
    let (no_time, long) = (Duration::ZERO, Duration::from_secs(101));
    let (many, text) = refusal(server.reserve(&of_pes(2, no_time, MINUTE)));
    assert_eq!(many, FailureKind::NotFree, "{text}");
    assert!(text.contains("1 can be reserved"), "{text}");
    let first = server.reserve(&of_pes(1, no_time, MINUTE)).unwrap();
    let (taken, text) = refusal(server.reserve(&of_pes(1, MINUTE / 2, MINUTE / 2)));
    assert_eq!(taken, FailureKind::NotFree);
    assert!(text.contains("earliest start"), "{text}");
    let soonest = |length| ReservationSpec {
        latest: Some(Duration::MAX),
        ..of_pes(1, no_time, length)
    };
    let (ahead, _) = refusal(server.reserve(&soonest(MINUTE)));
    assert_eq!(ahead, FailureKind::QuotaExceeded, "it would end in 120 s");
    let (ahead, text) = refusal(server.reserve(&of_pes(1, no_time, long)));
    assert_eq!(ahead, FailureKind::QuotaExceeded);
    assert!(text.contains("limits.reserve_ahead_s"), "{text}");
    let (empty, _) = refusal(server.reserve(&of_pes(0, no_time, MINUTE)));
    assert_eq!(empty, FailureKind::BadArgument);
    let after = MINUTE + Duration::from_secs(1);
    let second = Duration::from_secs(1);
    server.reserve(&of_pes(1, after, second)).unwrap();
    let (more, text) = refusal(server.reserve(&of_pes(1, after + 2 * second, second)));
    assert_eq!(more, FailureKind::QuotaExceeded, "{text}");
    let known = server.reservations().unwrap();
    assert_eq!(known.len(), 2);
    assert_eq!(known[0].id, first.id);
}

#[test]
fn a_server_without_a_queue_names_its_policy() {
    let process = start(&["--policy", "at-once"]);
    let server = stranger(&process);
    let (none, text) = refusal(server.reserve(&of_pes(1, Duration::ZERO, MINUTE)));
    assert_eq!(none, FailureKind::NotFree, "{text}");
    assert!(text.contains("policy at-once"), "{text}");
}

#[test]
fn one_user_leaves_processor_elements_to_others() {
    let process = start_with("[queue]\npes = 4\n", &[]);
    let (server, other) = (stranger(&process), process.connect());
    let (many, text) = refusal(server.reserve(&of_pes(3, Duration::ZERO, MINUTE)));
    assert_eq!(many, FailureKind::NotFree);
    assert!(text.contains("at most 2 can be reserved"), "{text}");
    assert!(text.contains("limits.reserve_share"), "{text}");
    server.reserve(&of_pes(1, Duration::ZERO, MINUTE)).unwrap();
    server.reserve(&of_pes(1, MINUTE / 2, 2 * MINUTE)).unwrap();
    let soon = |latest| ReservationSpec {
        latest: Some(latest),
        ..of_pes(1, Duration::ZERO, MINUTE)
    };
    let refused = server.reserve(&soon(MINUTE / 2)).unwrap_err();
    assert!(
        refused.to_string().contains("release a reservation"),
        "{refused}"
    );
    assert!(
        refused.earliest().is_some_and(|at| at > MINUTE / 2),
        "{refused}"
    );
    // For half of the time the user has one, and for the other half both.
    server
        .reserve(&of_pes(1, Duration::ZERO, MINUTE / 4))
        .unwrap();
    let later = server.reserve(&soon(Duration::MAX)).unwrap();
    assert!(later.begins > MINUTE / 2, "{later:?}");
    other.reserve(&of_pes(2, Duration::ZERO, MINUTE)).unwrap();
}

#[test]
fn what_is_taken_can_be_had_at_the_earliest_time_there_is() {
    let process = start(&[]);
    let server = stranger(&process);
    server.reserve(&of_pes(2, Duration::ZERO, MINUTE)).unwrap();
    let refused = server.reserve(&of_pes(1, MINUTE / 2, MINUTE)).unwrap_err();
    let earliest = refused.earliest().unwrap();
    assert!(earliest > MINUTE - Duration::from_secs(30), "{earliest:?}");
    assert!(earliest <= MINUTE, "{earliest:?}");
    let soon = |latest| ReservationSpec {
        latest: Some(latest),
        ..of_pes(1, Duration::ZERO, MINUTE)
    };
    let (late, _) = refusal(server.reserve(&soon(MINUTE / 4)));
    assert_eq!(late, FailureKind::NotFree);
    let made = server.reserve(&soon(Duration::MAX)).unwrap();
    assert!(
        made.begins <= earliest && made.begins > MINUTE / 2,
        "{made:?}"
    );
    // A program that asks for the time in the refusal succeeds.
    let again = server.reserve(&of_pes(1, earliest, MINUTE)).unwrap();
    assert!(again.begins <= earliest, "{again:?}");
}

#[test]
fn the_earliest_time_is_free_of_the_own_reservations_and_of_those_of_others() {
    let process = start_with("[queue]\npes = 4\nunreservable_pes = 2\n", &[]);
    let (server, other) = (stranger(&process), process.connect());
    server.reserve(&of_pes(2, Duration::ZERO, MINUTE)).unwrap();
    other.reserve(&of_pes(2, MINUTE, MINUTE)).unwrap();
    let refused = server
        .reserve(&of_pes(1, Duration::ZERO, MINUTE))
        .unwrap_err();
    let earliest = refused.earliest().unwrap();
    assert!(
        earliest > MINUTE + MINUTE / 2 && earliest <= 2 * MINUTE,
        "{refused}"
    );
    server.reserve(&of_pes(1, earliest, MINUTE)).unwrap();
}

#[test]
fn a_call_of_a_reservation_waits_for_no_worker() {
    let process = start(&["--workers", "1"]);
    let server = stranger(&process);
    let function = server.function("wide").unwrap();
    let outside = Running::begin(&function, 1, 4.0).unwrap();
    // The running call has one of two processor elements, and the only worker.
    let reservation = server.reserve(&of_pes(1, Duration::ZERO, MINUTE)).unwrap();
    let within = function.with_reservation(Some(reservation.id));
    let within = Running::begin(&within, 1, 0.05).unwrap().end().unwrap();
    let outside = outside.end().unwrap();
    assert!(within[1] < outside[1], "{within:?} and {outside:?}");
}

#[test]
fn a_plan_knows_of_reservations() {
    let process = start(&[]);
    let server = stranger(&process);
    let function = server.function("wide").unwrap();
    let wait = |function: &Function| {
        let scalars = [Some(Scalar::Int(1)), Some(Scalar::Float(0.0)), None];
        function.estimate(&scalars, &[]).unwrap().wait
    };
    assert_eq!(wait(&function), 0.0);
    let one = server.reserve(&of_pes(1, Duration::ZERO, MINUTE)).unwrap();
    assert_eq!(wait(&function), 0.0, "there is another");
    let other = server
        .reserve(&of_pes(1, Duration::ZERO, MINUTE / 2))
        .unwrap();
    let outside = wait(&function);
    assert!((20.0..=30.0).contains(&outside), "{outside}");
    assert_eq!(wait(&function.with_reservation(Some(other.id))), 0.0);
    server.release(one.id).unwrap();
    assert_eq!(wait(&function), 0.0);
}

#[test]
fn a_submitted_call_has_the_processor_elements_of_its_reservation() {
    let folder = tempfile::tempdir().unwrap();
    let process = start(&["--state", folder.path().to_str().unwrap()]);
    let server = stranger(&process);
    let function = server.function("wide").unwrap();
    let reservation = server.reserve(&of_pes(2, Duration::ZERO, MINUTE)).unwrap();
    let submit = |function: &Function| {
        let mut arguments = [
            Argument::Scalar(Scalar::Int(2)),
            Argument::Scalar(Scalar::Float(0.0)),
            Argument::Skip,
        ];
        function.submit(&mut arguments, None)
    };
    let outside = submit(&function).unwrap();
    let within = submit(&function.with_reservation(Some(reservation.id))).unwrap();
    let fetch = |job: &DurableCall| {
        let mut span = [0; 16];
        let mut arguments = [Argument::Skip, Argument::Skip, Argument::Out(&mut span)];
        job.describe().unwrap().fetch(&mut arguments).unwrap();
    };
    fetch(&within);
    let state = outside.status().unwrap().state;
    assert_eq!(state, DurableState::Queued);
    server.release(reservation.id).unwrap();
    let refused = submit(&function.with_reservation(Some(reservation.id)));
    assert_eq!(refusal(refused).0, FailureKind::NotFound);
    fetch(&outside);
}

#[test]
fn nobody_has_use_for_the_reservation_of_another_user() {
    let process = start(&[]);
    let server = stranger(&process);
    let reservation = server.reserve(&of_pes(1, Duration::ZERO, MINUTE)).unwrap();
    let other = Server::connect(process.address(), Options::default()).unwrap();
    assert_eq!(other.reservations().unwrap(), []);
    assert_eq!(
        refusal(other.release(reservation.id)).0,
        FailureKind::NotFound
    );
    let function = other.function("wide").unwrap();
    let within = function.with_reservation(Some(reservation.id));
    let refused = Running::begin(&within, 1, 0.0).and_then(Running::end);
    assert_eq!(refusal(refused).0, FailureKind::NotFound);
    let scalars = [Some(Scalar::Int(1)), Some(Scalar::Float(0.0)), None];
    assert_eq!(
        refusal(within.estimate(&scalars, &[])).0,
        FailureKind::NotFound
    );
    // Its one processor element is not reserved.
    Running::begin(&function, 1, 0.0).unwrap().end().unwrap();
}

#[test]
fn a_reservation_of_another_server_is_not_taken_by_its_number() {
    let (here, there) = (start(&[]), start(&[]));
    let [own, other] = [&here, &there].map(stranger);
    let made = other.reserve(&of_pes(1, Duration::ZERO, MINUTE)).unwrap();
    let function = own.function("wide").unwrap();
    let foreign = function.with_reservation(Some(&made));
    let text = format!("reservation {} is at {}", made.id, there.address());
    let called = Running::begin(&foreign, 1, 0.0).and_then(Running::end);
    let scalars = [Some(Scalar::Int(1)), Some(Scalar::Float(0.0)), None];
    let estimated = foreign.estimate(&scalars, &[]).map(|_| [0.0; 2]);
    for refused in [called, estimated] {
        let (kind, told) = refusal(refused);
        assert_eq!(kind, FailureKind::BadArgument);
        assert!(
            told.contains(&text) && told.contains(here.address()),
            "{told}"
        );
    }
    // The server has another name too.
    let own = own.reserve(&of_pes(1, Duration::ZERO, MINUTE)).unwrap();
    let at = here.address().replace("127.0.0.1", "localhost");
    assert_ne!(at, here.address());
    let name: ReservationName = format!("{}@{at}", own.id).parse().unwrap();
    let within = function.with_reservation(Some(name));
    Running::begin(&within, 1, 0.0).unwrap().end().unwrap();
}

#[test]
fn the_command_releases_at_the_named_server_and_goes_on_after_an_error() {
    let (here, there) = (start(&[]), start(&[]));
    let [own, other] = [&here, &there].map(|process| process.connect());
    let reserve = |server: &Server| server.reserve(&of_pes(1, Duration::ZERO, MINUTE)).unwrap();
    let (kept, foreign, released) = (reserve(&own), reserve(&other), reserve(&own));
    let words = [
        format!("99@{}", there.address()),
        "98".into(),
        ReservationName::from(&foreign).to_string(),
        released.id.to_string(),
    ];
    let mut command = farcall();
    command.args(["reservation", "release", "--server", here.address()]);
    let output = command.args(&words).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    for missing in ["no reservation 99:", "no reservation 98:"] {
        assert!(told.contains(missing), "{told}");
    }
    assert_eq!(other.reservations().unwrap(), []);
    let left = own.reservations().unwrap();
    let left: Vec<u64> = left.iter().map(|one| one.id).collect();
    assert_eq!(left, [kept.id]);
}
