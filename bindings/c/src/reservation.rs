//! Reservations, for C. The structure states its own size, so that later versions can add members.
//! The server decides what can be reserved.

use crate::Status;
use crate::connect::Server;
use crate::error::{Problem, status};
use crate::function::{Function, share};
use farcall_client::ReservationSpec;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A reservation: what a program asks for, and what the server has reserved. Set the members that
/// are not needed to 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Reservation {
    /// `sizeof(farcall_reservation)`: later versions may have more members.
    pub size: usize,
    /// The id of the reservation at its server, from 1; `farcall_reserve` sets it.
    pub id: u64,
    /// Bytes per second to the server; 0 for none.
    pub up: u64,
    /// Bytes per second from the server; 0 for none.
    pub down: u64,
    /// Processor elements; 0 for bandwidth alone.
    pub pes: u32,
    /// Seconds from now until the reservation begins.
    pub begins: f64,
    /// Seconds from now until the reservation ends.
    pub ends: f64,
    /// Seconds from now until the reservation must begin, if too little is free at `begins`;
    /// `INFINITY` for no limit, 0 for no later than `begins`.
    pub latest: f64,
    /// `farcall_reserve` sets it on failure: seconds from then until enough is free; 0 if no time
    /// is known.
    pub earliest: f64,
}

/// Reserves processor elements and bandwidth of a server from `begins` to `ends`, or for the same
/// length by `latest`. It sets the id and the times of the reservation. Calls that use it
/// (`farcall_use_reservation`) then start at once, and their arrays travel at these rates over a
/// connection of their own. If too little is free, `earliest` and `farcall_error_message` say when
/// enough is free. Since `FARCALL_1.4`.
///
/// # Safety
/// `server` is from `farcall_connect`; `reservation` points to a reservation with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_reserve(
    server: *mut Server,
    reservation: *mut Reservation,
) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        let server = unsafe { server.as_ref() }.ok_or(Problem::null("server"))?;
        if reservation.is_null() {
            return Err(Problem::null("reservation"));
        }
        // SAFETY: every version has the size, at its start.
        let size = unsafe { (&raw const (*reservation).size).read() };
        if size < size_of::<Reservation>() {
            let text = format!("its size is {size}: set it to sizeof(farcall_reservation)");
            return Err(Problem::argument(format!("reservation: {text}")));
        }
        // SAFETY: it is as large as this version knows it, and the caller's alone.
        let reservation = unsafe { &mut *reservation };
        let wanted = wanted(reservation)?;
        reservation.earliest = 0.0;
        let made = server.client().reserve(&wanted).inspect_err(|error| {
            reservation.earliest = error.earliest().unwrap_or_default().as_secs_f64();
        })?;
        reservation.id = made.id;
        reservation.begins = made.begins.as_secs_f64();
        reservation.ends = made.ends.as_secs_f64();
        Ok(Status::FarcallOk)
    })
}

fn wanted(reservation: &Reservation) -> Result<ReservationSpec, Problem> {
    let length = reservation.ends - reservation.begins;
    let duration = |seconds: f64, name: &str| {
        Duration::try_from_secs_f64(seconds)
            .map_err(|error| Problem::argument(format!("reservation: {name} {seconds} s: {error}")))
    };
    Ok(ReservationSpec {
        pes: reservation.pes,
        up: reservation.up,
        down: reservation.down,
        start: duration(reservation.begins, "it begins in")?,
        length: duration(length, "it lasts for")?,
        latest: match reservation.latest {
            0.0 => None,
            f64::INFINITY => Some(Duration::MAX),
            latest => Some(duration(latest, "it begins at the latest in")?),
        },
    })
}

/// Releases a reservation before its end. Calls that wait for it wait like all other calls from now
/// on. Since `FARCALL_1.4`.
///
/// # Safety
/// `server` is from `farcall_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_release_reservation(server: *mut Server, id: u64) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        let server = unsafe { server.as_ref() }.ok_or(Problem::null("server"))?;
        server.client().release(id)?;
        Ok(Status::FarcallOk)
    })
}

/// From now on, calls of the function use the reservation with this id; with 0 they use none, which
/// is the default. Since `FARCALL_1.4`.
///
/// # Safety
/// `function` is from `farcall_function_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_use_reservation(function: *mut Function, id: u64) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        let function = unsafe { share(function) }?;
        function.reservation.store(id, Ordering::Relaxed);
        Ok(Status::FarcallOk)
    })
}

/// From now on, the server promises that a call of the function ends within so many seconds, or
/// refuses it: `farcall_error_message` says what it can promise. With 0, calls have no deadline,
/// which is the default. Since `FARCALL_1.7`.
///
/// # Safety
/// `function` is from `farcall_function_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_set_deadline(function: *mut Function, seconds: f64) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        let function = unsafe { share(function) }?;
        let time = Duration::try_from_secs_f64(seconds)
            .map_err(|error| Problem::argument(format!("deadline: {seconds} s: {error}")))?;
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // A deadline of less than a nanosecond is one.
        let nanos = nanos.max(u64::from(seconds > 0.0));
        function.deadline.store(nanos, Ordering::Relaxed);
        Ok(Status::FarcallOk)
    })
}
