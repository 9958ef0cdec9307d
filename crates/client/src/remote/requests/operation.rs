//! Requests of an operator.

use super::Connection;
use super::state::Answer;
use crate::Error;
use farcall_rpc_proto::{Failure, FailureKind, OPERATION, client};
use std::sync::Arc;

impl Connection {
    /// How the server stands, as a JSON object.
    pub(crate) fn status(self: &Arc<Self>) -> Result<String, Error> {
        self.check_operation()?;
        match self
            .start(|state| state.ask(client::Connection::status))?
            .finish()?
        {
            Answer::Standing(text) => Ok(text),
            _ => Err(self.unexpected()),
        }
    }

    /// Has the server take no more calls and end; how many are still to end.
    pub(crate) fn drain(self: &Arc<Self>) -> Result<u64, Error> {
        self.check_operation()?;
        match self
            .start(|state| state.ask(client::Connection::drain))?
            .finish()?
        {
            Answer::Draining(calls) => Ok(calls),
            _ => Err(self.unexpected()),
        }
    }

    fn check_operation(&self) -> Result<(), Error> {
        if self.features & OPERATION != 0 {
            return Ok(());
        }
        let text = "the server is older than these requests; update it";
        Err(Error::Failed(Failure::new(FailureKind::NotAllowed, text)))
    }
}
