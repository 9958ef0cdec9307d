//! Requests to the directory of a metaserver.

use super::state::Answer;
use super::{Connection, Request};
use crate::Error;
use farcall_directory::message::{Message, Observe};
use farcall_rpc_proto::{DIRECTORY, Failure, FailureKind, Kind};
use std::sync::Arc;

impl Connection {
    /// Whether a metaserver is at the other end.
    pub(crate) fn is_to_metaserver(&self) -> bool {
        self.features & DIRECTORY != 0
    }

    /// The error says that a server is at the other end.
    pub(crate) fn check_metaserver(&self) -> Result<(), Error> {
        if self.is_to_metaserver() {
            return Ok(());
        }
        let text = format!(
            "{} is a server, not a metaserver: name one that `farcall meta` runs",
            self.address
        );
        Err(Error::Failed(Failure::new(FailureKind::NotAllowed, text)))
    }

    /// What belongs to one server is not for a metaserver.
    pub(crate) fn check_one_server(&self, what: &str) -> Result<(), Error> {
        if !self.is_to_metaserver() {
            return Ok(());
        }
        let text = format!(
            "{what} are at one server, and {} is a metaserver: connect to one of its servers, \
             which `farcall status` lists",
            self.address
        );
        Err(Error::Failed(Failure::new(FailureKind::NotAllowed, text)))
    }

    /// Asks the directory something; the answer is a message of another kind.
    pub(crate) fn ask_directory<A: Message>(
        self: &Arc<Self>,
        (kind, answered_by): (Kind, Kind),
        message: &impl Message,
    ) -> Result<A, Error> {
        self.check_metaserver()?;
        let message = message.to_bytes();
        let request = self.start(|state| state.ask(|proto| proto.ask_directory(kind, &message)))?;
        match request.finish()? {
            Answer::Directory(kind, answer) if kind == answered_by => A::from_bytes(&answer)
                .map_err(|error| {
                    let text = format!("{}: its answer cannot be read: {error}", self.address);
                    Error::Failed(Failure::new(FailureKind::Internal, text))
                }),
            _ => Err(self.unexpected()),
        }
    }

    /// Tells the directory what became of a call.
    pub(crate) fn observe(&self, observed: &Observe) {
        let mut state = self.lock();
        state.observe(&observed.to_bytes());
        self.send_soon(&mut state);
    }
}

impl Request {
    /// Waits until the request has ended, as long as its own time-out allows.
    pub(crate) fn wait_out(&self) -> Result<(), Error> {
        let timeout = self.connection.options.timeout.unwrap_or_default();
        self.wait(self.deadline, timeout)
    }

    /// Whether results had begun to come when the connection was lost.
    pub(crate) fn was_returning(&self) -> bool {
        self.connection.lock().was_returning(self.id)
    }
}
