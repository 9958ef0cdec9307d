//! What is reserved ahead of time: `farcall reserve`, `reservations` and `release`.

pub(crate) mod list;
pub(crate) mod release;
pub(crate) mod reserve;

use farcall_client::{Reservation, ReservationName};
use serde_json::{Value, json};

fn to_json(reservation: &Reservation) -> Value {
    json!({
        "id": reservation.id,
        "server": reservation.server.to_string(),
        "pes": reservation.pes,
        "up": reservation.up,
        "down": reservation.down,
        "begins_in_s": reservation.begins.as_secs_f64(),
        "ends_in_s": reservation.ends.as_secs_f64(),
    })
}

/// A reservation in words, with its server where there are several.
fn line(reservation: &Reservation, of_several: bool) -> String {
    let name = match of_several {
        true => ReservationName::from(reservation),
        false => ReservationName::from(reservation.id),
    };
    let begins = match reservation.begins.is_zero() {
        true => "has begun".to_string(),
        false => format!("begins in {:.1} s", reservation.begins.as_secs_f64()),
    };
    let ends = reservation.ends.as_secs_f64();
    let pes = u64::from(reservation.pes);
    let what = described(pes, reservation.up, reservation.down);
    format!("{name}  {what}  {begins}, ends in {ends:.1} s")
}

/// What is reserved, in words.
pub(crate) fn described(pes: u64, up: u64, down: u64) -> String {
    let rates = [(up, "up"), (down, "down")];
    let rates = rates.into_iter().filter(|(rate, _)| *rate > 0);
    let rates = rates.map(|(rate, way)| format!(", {} MB/s {way}", rate as f64 / 1e6));
    format!("{pes} PEs{}", rates.collect::<String>())
}
