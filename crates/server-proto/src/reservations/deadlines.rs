//! Deadlines: a call that must end in time is promised that, or refused with the earliest end that
//! can be promised. Nine of ten promises hold. The processor elements of a promise are booked as a
//! reservation is, and count towards the user's share of these.

use super::{MILLI, Reservations, check_end, within_share};
use crate::call::Durability;
use crate::context::Context;
use crate::keys::CallKey;
use farcall_rpc_proto::{Failure, FailureKind, Nanos, User};
use farcall_schedule::Queue;
use farcall_schedule::queue::Promises;
use farcall_schedule::reservation::{Booking, Calendar, Refusal};

/// Promises to one user at a time.
const MOST: usize = 64;
/// Most ends that are tried for one that can be promised.
const MOST_ENDS: usize = 16;

/// What is asked for a call.
struct Wanted {
    /// Processor elements.
    pes: u32,
    /// A time in nanoseconds that nine of ten such calls do not exceed.
    length: Nanos,
    /// When the server was asked.
    asked: Nanos,
    /// When it must have been computed.
    ends: Nanos,
    /// Nanoseconds for its results to reach the client.
    returns: Nanos,
}

impl Wanted {
    /// When a call must have been computed that is promised the end which a refusal tells: the next
    /// whole millisecond after its results can be at the client.
    fn told(&self, end: Nanos) -> Nanos {
        let end = end.saturating_add(self.returns);
        let later = end.saturating_sub(self.asked).div_ceil(MILLI);
        let end = self.asked.saturating_add(later.saturating_mul(MILLI));
        end.saturating_sub(self.returns)
    }
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
        asked: call.times.asked,
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
    let now = cx.now();
    let most = cx.settings.limits.reservable(cx.settings.queue.pes);
    let mut own = reservations.calendar(queue, user, most);
    let promises = &mut reservations.promises;
    let mut ends = wanted.ends;
    // The share of the user may allow an end that the queue does not, and the other way round.
    for _ in 0..MOST_ENDS {
        match book_by(promises, &mut own, queue, (wanted, ends), now) {
            Ok(made) if ends == wanted.ends => return Ok(made),
            Ok(made) => {
                promises.forget(made);
                queue.release(made, now);
                break;
            }
            Err(Refusal::NotBefore(end)) => ends = wanted.told(end),
            Err(never) => return Err(never),
        }
    }
    Err(Refusal::NotBefore(ends))
}

/// Books the processor elements of a call that must have been computed by `ends`.
fn book_by(
    promises: &mut Promises,
    own: &mut Calendar,
    queue: &mut Queue,
    (wanted, ends): (&Wanted, Nanos),
    now: Nanos,
) -> Result<u64, Refusal> {
    let length = wanted.length;
    let booking = Booking {
        pes: wanted.pes,
        from: ends.saturating_sub(length).max(now),
        until: ends.max(now.saturating_add(length)),
        ..Booking::default()
    };
    within_share(own, booking).map_err(|refusal| match refusal {
        Refusal::NotBefore(from) => Refusal::NotBefore(from.saturating_add(length)),
        other => other,
    })?;
    let cost = (wanted.pes, length as f64 * 1e-9);
    promises.make(queue, cost, ends, now)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::event::Now;
    use crate::settings::Settings;
    use farcall_idl::parse_document;

    const SECOND: Nanos = 1_000_000_000;

    /// A program asks again for the end that it was told.
    #[test]
    fn the_end_that_a_refusal_tells_is_free_of_the_own_bookings_and_of_those_of_others() {
        let text = "Module m; Library \"libc.so.6\"; Define nap(IN int n) Calls \"C\" usleep(n);";
        let document = parse_document(text).document;
        let mut settings = Settings::simple(false);
        settings.queue.pes = 4;
        let now = Now {
            nanos: SECOND,
            unix_ms: 0,
        };
        let mut engine = Engine::new(settings, [&document], Vec::new(), now);
        let (cx, queue) = (&engine.cx, &mut engine.elements.queue);
        let booking = |pes, from: u64, until: u64| Booking {
            pes,
            from: SECOND * (1 + from),
            until: SECOND * (1 + until),
            ..Booking::default()
        };
        let anne = User::named("anne");
        let own = queue.reserve(booking(2, 0, 100), SECOND).unwrap();
        engine.reservations.owners.insert(own, anne.clone());
        for other in [booking(2, 0, 100), booking(4, 100, 200)] {
            queue.reserve(other, SECOND).unwrap();
        }
        let mut ask = |ends| {
            let wanted = Wanted {
                pes: 1,
                length: 10 * SECOND,
                asked: SECOND,
                ends,
                returns: 0,
            };
            make(&mut engine.reservations, cx, queue, &anne, &wanted)
        };
        let refused = ask(21 * SECOND);
        let Err(Refusal::NotBefore(end)) = refused else {
            panic!("{refused:?}");
        };
        assert!(end > 200 * SECOND, "{end}");
        assert!(ask(end).is_ok());
    }
}
