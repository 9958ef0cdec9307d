//! Requests about what is reserved.

use super::Connection;
use super::pace::Pace;
use super::state::Answer;
use crate::Error;
use farcall_rpc_proto::{Failure, FailureKind, RESERVATIONS, ReservationPage, ReservationRequest};
use std::sync::Arc;
use std::time::Duration;

impl Connection {
    /// Whether processor elements can be reserved there; the error says that they cannot.
    pub(crate) fn check_reservations(&self) -> Result<(), Error> {
        self.check_one_server("reservations")?;
        if self.features & RESERVATIONS != 0 {
            return Ok(());
        }
        let text = "the server is too old to reserve anything; update it";
        let failure = Failure::new(FailureKind::BadArgument, text);
        Err(Error::Failed(failure))
    }

    /// Has the bandwidth of a reservation from now on; `false` where its bytes cross no link.
    pub(crate) fn attach(self: &Arc<Self>, reservation: u64) -> Result<bool, Error> {
        if self.socket.is_unix() {
            return Ok(false);
        }
        let page = self.reservations(ReservationRequest::Attach(reservation))?;
        let record = page.reservations.first().ok_or_else(|| self.unexpected())?;
        let [begins, ends] = [record.begins, record.ends].map(Duration::from_millis);
        let pace = (record.up > 0).then(|| Pace::new(record.up, begins, ends));
        self.lock().set_pace(pace);
        Ok(true)
    }

    /// Is as all others again.
    pub(crate) fn detach(&self) {
        let mut state = self.lock();
        state.set_pace(None);
        self.send_soon(&mut state);
    }

    /// Asks about reservations.
    pub(crate) fn reservations(
        self: &Arc<Self>,
        asked: ReservationRequest,
    ) -> Result<ReservationPage, Error> {
        self.check_reservations()?;
        let request = self.start(|state| state.ask(|proto| proto.reservations(asked)))?;
        match request.finish()? {
            Answer::Reservations(page) => Ok(page),
            _ => Err(self.unexpected()),
        }
    }
}
