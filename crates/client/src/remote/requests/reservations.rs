//! Requests about reservations, and the attachment of a connection to a reservation. `reserved`
//! keeps the attached connections. A connection over a Unix socket is never attached, because its
//! bytes cross no network.

use super::directory::check_one_server;
use crate::error::Error;
use crate::remote::connection::{Connection, Pace, answered};
use crate::timeout::Timeout;
use farcall_rpc_proto::{FailureKind, RESERVATIONS, ReservationPage, ReservationRequest};
use std::sync::Arc;
use std::time::Duration;

/// Fails if the server has no reservations.
pub(crate) fn check_reservations(connection: &Connection) -> Result<(), Error> {
    check_one_server(connection, "reservations")?;
    connection.check(RESERVATIONS, FailureKind::BadArgument, "reserve anything")
}

/// Gives this connection the bandwidth of a reservation, for a call with this time-out. Returns
/// `false` if its bytes cross no network link.
pub(crate) fn attach(
    connection: &Arc<Connection>,
    reservation: u64,
    timeout: Timeout,
) -> Result<bool, Error> {
    if connection.is_unix() {
        return Ok(false);
    }
    let page = ask_within(connection, ReservationRequest::Attach(reservation), timeout)?;
    let record = page
        .reservations
        .first()
        .ok_or_else(|| connection.unexpected())?;
    let [begins, ends] = [record.begins, record.ends].map(Duration::from_millis);
    let pace = (record.up > 0).then(|| Pace::new(record.up, begins, ends));
    connection.set_pace(pace);
    Ok(true)
}

/// Gives the bandwidth back.
pub(crate) fn detach(connection: &Connection) {
    connection.set_pace(None);
}

/// Asks about reservations.
pub(crate) fn ask(
    connection: &Arc<Connection>,
    asked: ReservationRequest,
) -> Result<ReservationPage, Error> {
    check_reservations(connection)?;
    connection.ask(|proto| proto.reservations(asked), answered!(Reservations))
}

/// Asks about reservations for a call with this time-out.
pub(crate) fn ask_within(
    connection: &Arc<Connection>,
    asked: ReservationRequest,
    timeout: Timeout,
) -> Result<ReservationPage, Error> {
    check_reservations(connection)?;
    let read = answered!(Reservations);
    connection.ask_within(|proto| proto.reservations(asked), read, timeout)
}
