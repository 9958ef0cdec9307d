//! Requests about the functions of a server, and what a call of one would take.

use super::Connection;
use super::state::{Answer, Answered};
use crate::Error;
use farcall_rpc_proto::{Call, ESTIMATES, Estimate, Failure, FailureKind, Listing, REGISTER};
use std::sync::Arc;

impl Connection {
    /// Asks for a page of the functions served.
    pub(crate) fn list(self: &Arc<Self>, from: u32) -> Result<Listing, Error> {
        match self
            .start(|state| state.ask(|proto| proto.list(from)))?
            .finish()?
        {
            Answer::Listing(listing) => Ok(listing),
            _ => Err(self.unexpected()),
        }
    }

    /// Asks for number and canonical IDL of a function.
    pub(crate) fn describe(self: &Arc<Self>, name: &str) -> Result<Answered, Error> {
        match self
            .start(|state| state.ask(|proto| proto.describe(name)))?
            .finish()?
        {
            Answer::Interface(answered) => Ok(answered),
            _ => Err(self.unexpected()),
        }
    }

    /// Has the functions of an interface file served; returns them.
    pub(crate) fn register(self: &Arc<Self>, path: &str, text: &str) -> Result<Listing, Error> {
        self.check_one_server("libraries")?;
        if self.features & REGISTER == 0 {
            let text = "the server is too old to register libraries; update it";
            return Err(Error::Failed(Failure::new(FailureKind::NotAllowed, text)));
        }
        match self
            .start(|state| state.ask(|proto| proto.register(path, text)))?
            .finish()?
        {
            Answer::Listing(listing) => Ok(listing),
            _ => Err(self.unexpected()),
        }
    }

    /// What a call would take, as far as the server knows.
    pub(crate) fn estimate(self: &Arc<Self>, call: &Call) -> Result<Estimate, Error> {
        if self.features & ESTIMATES == 0 {
            return Ok(Estimate::default());
        }
        match self
            .start(|state| state.ask(|proto| proto.estimate(call)))?
            .finish()?
        {
            Answer::Estimated(estimate) => Ok(estimate),
            _ => Err(self.unexpected()),
        }
    }
}
