//! Deadlines: a call that must end in time is promised that, or refused with the earliest end that
//! can be promised. Nine of ten promises hold. The processor elements of a promise are booked as a
//! reservation is, and count towards the user's share of these.

use super::{MILLI, Reservations, check_end, within_share};
use crate::call::Durability;
use crate::context::Context;
use crate::keys::CallKey;
use farcall_rpc_proto::{Failure, FailureKind, Nanos, User};
use farcall_schedule::Queue;
use farcall_schedule::reservation::{Booking, Refusal};

/// Promises to one user at a time.
const MOST: usize = 64;

/// What is asked for a call.
struct Wanted {
    /// Processor elements.
    pes: u32,
    /// A time in nanoseconds that nine of ten such calls do not exceed.
    length: Nanos,
    /// When it must have been computed.
    ends: Nanos,
    /// Nanoseconds for its results to reach the client.
    returns: Nanos,
}

/// Promises a call that its results are at the client `before` milliseconds after the server was
/// asked. `down` is the rate of the link to the client in bytes per second, if it is known. Returns
/// the booking.
pub(crate) fn promise(
    reservations: &mut Reservations,
    cx: &Context,
    queue: &mut Queue,
    key: CallKey,
    (before, down): (u64, Option<u64>),
) -> Result<u64, Failure> {
    let call = &cx.calls[key];
    let name = cx.functions.get(call.function)?.interface.qualified_name();
    let user = call.user.clone();
    let own = reservations.promised.values();
    let own = own.filter(|owner| **owner == user).count();
    let wanted = check(cx, key, (before, down), own);
    let wanted = wanted.map_err(|failure| Failure {
        message: format!("{name}: {}", failure.message),
        ..failure
    })?;
    let made = make(reservations, cx, queue, &user, &wanted);
    let refusal = match made {
        Ok(made) => {
            reservations.promised.insert(made, user);
            return Ok(made);
        }
        Err(refusal) => refusal,
    };
    let Refusal::NotBefore(end) = refusal else {
        // The share of a user, or what all of them can have.
        let most = match refusal {
            Refusal::TooMany(most) => most,
            _ => cx.settings.limits.reservable(cx.settings.queue.pes),
        };
        let text = format!(
            "{name}: a deadline needs {} processor elements, and at most {most} can be kept for \
             your calls at this server",
            wanted.pes
        );
        return Err(Failure::new(FailureKind::NotFree, text));
    };
    let end = end.saturating_add(wanted.returns);
    let later = end.saturating_sub(call.times.asked).div_ceil(MILLI);
    let (wanted_s, later_s) = (before as f64 / 1e3, later as f64 / 1e3);
    let text = format!(
        "{name}: an end within {wanted_s} s cannot be promised; an end within {later_s} s can"
    );
    Err(Failure {
        earliest: Some(later),
        ..Failure::new(FailureKind::NotFree, text)
    })
}

/// Checks whether a call of a user with `own` promises can have a deadline.
fn check(
    cx: &Context,
    key: CallKey,
    (before, down): (u64, Option<u64>),
    own: usize,
) -> Result<Wanted, Failure> {
    let call = &cx.calls[key];
    let function = cx.functions.get(call.function)?;
    let reason = if function.interface.gpus > 0 {
        "a call that needs a GPU has no deadline, because GPUs are not reserved"
    } else if call.run.object.is_some() {
        "a method of an object waits for its object, so it has no deadline"
    } else if !matches!(call.durability, Durability::None) {
        "a durable call has no deadline"
    } else if call.run.reservation.is_some() {
        "a call has a reservation or a deadline, and not both"
    } else {
        ""
    };
    if !reason.is_empty() {
        return Err(Failure::new(FailureKind::BadArgument, reason));
    }
    check_end(&cx.settings.limits, before)?;
    if own >= MOST {
        let text = format!("{MOST} of your calls have a deadline already; try again");
        return Err(Failure::new(FailureKind::Busy, text));
    }
    let fewest = match call.layout.fewest_elements {
        Some(fewest) => u32::try_from(fewest).unwrap_or(u32::MAX),
        None => cx.settings.elements,
    };
    let pes = fewest.clamp(1, cx.settings.queue.pes);
    let Some(interval) = cx.interval(key, pes) else {
        let text = "this server does not know yet how long it takes: call it without a deadline \
                    first";
        return Err(Failure::new(FailureKind::NotFree, text));
    };
    let nanos = |seconds: f64| (seconds.clamp(0.0, 1e9) * 1e9) as Nanos;
    let bytes = call.layout.returned_bytes() as f64;
    let returns = nanos(down.map_or(0.0, |rate| bytes / rate.max(1) as f64));
    let ends = (call.times.asked).saturating_add(before.saturating_mul(MILLI));
    Ok(Wanted {
        pes,
        length: nanos(interval.high).max(1),
        ends: ends.saturating_sub(returns),
        returns,
    })
}

/// Books the processor elements of a call. An end that can be promised is in the error.
fn make(
    reservations: &mut Reservations,
    cx: &Context,
    queue: &mut Queue,
    user: &User,
    wanted: &Wanted,
) -> Result<u64, Refusal> {
    let (now, length) = (cx.now(), wanted.length);
    let booking = Booking {
        pes: wanted.pes,
        from: wanted.ends.saturating_sub(length).max(now),
        until: wanted.ends.max(now.saturating_add(length)),
        ..Booking::default()
    };
    let most = cx.settings.limits.reservable(cx.settings.queue.pes);
    let mut own = reservations.calendar(queue, user, most);
    let within = within_share(&mut own, booking);
    within.map_err(|refusal| match refusal {
        Refusal::NotBefore(from) => Refusal::NotBefore(from.saturating_add(length)),
        other => other,
    })?;
    let cost = (wanted.pes, length as f64 * 1e-9);
    reservations.promises.make(queue, cost, wanted.ends, now)
}

/// Judges the promise of a call that has been computed.
pub(crate) fn ended(reservations: &mut Reservations, cx: &Context, key: CallKey) {
    let booking = cx.calls[key].run.reservation;
    if let Some(id) = booking.filter(|id| reservations.promised.remove(id).is_some()) {
        reservations.promises.ended(id, cx.now());
    }
}

/// Forgets the promise of a call that was given up.
pub(crate) fn forget(reservations: &mut Reservations, queue: &mut Queue, booking: u64, now: Nanos) {
    if reservations.promised.remove(&booking).is_some() {
        reservations.promises.forget(booking);
        queue.release(booking, now);
    }
}
