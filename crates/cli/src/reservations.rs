//! What is reserved ahead of time: `farcall reserve`, `reservations` and `release`.

pub(crate) mod list;
pub(crate) mod release;
pub(crate) mod reserve;

use farcall_client::Reservation;
use serde_json::{Value, json};

fn to_json(reservation: &Reservation) -> Value {
    json!({
        "id": reservation.id,
        "pes": reservation.pes,
        "up": reservation.up,
        "down": reservation.down,
        "begins_in_s": reservation.begins.as_secs_f64(),
        "ends_in_s": reservation.ends.as_secs_f64(),
    })
}

fn line(reservation: &Reservation) -> String {
    let Reservation {
        id,
        pes,
        up,
        down,
        begins,
        ends,
    } = reservation;
    let begins = match begins.is_zero() {
        true => "has begun".to_string(),
        false => format!("begins in {:.1} s", begins.as_secs_f64()),
    };
    let ends = ends.as_secs_f64();
    let what = described(u64::from(*pes), *up, *down);
    format!("{id}  {what}  {begins}, ends in {ends:.1} s")
}

/// What is reserved, in words.
pub(crate) fn described(pes: u64, up: u64, down: u64) -> String {
    let rates = [(up, "up"), (down, "down")];
    let rates = rates.into_iter().filter(|(rate, _)| *rate > 0);
    let rates = rates.map(|(rate, way)| format!(", {} MB/s {way}", rate as f64 / 1e6));
    format!("{pes} PEs{}", rates.collect::<String>())
}
