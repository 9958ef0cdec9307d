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
    let (pes, ends) = (reservation.pes, reservation.ends.as_secs_f64());
    format!("{name}  {pes} PEs  {begins}, ends in {ends:.1} s")
}
