//! What is reserved ahead of time: `farcall reserve`, `reservations` and `release`.

pub(crate) mod list;
pub(crate) mod release;
pub(crate) mod reserve;

use farcall_client::Reservation;
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

fn line(reservation: &Reservation) -> String {
    let Reservation {
        id,
        pes,
        begins,
        ends,
        ..
    } = reservation;
    let begins = match begins.is_zero() {
        true => "has begun".to_string(),
        false => format!("begins in {:.1} s", begins.as_secs_f64()),
    };
    let ends = ends.as_secs_f64();
    format!("{id}  {pes} PEs  {begins}, ends in {ends:.1} s")
}
