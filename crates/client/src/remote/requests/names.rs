//! Requests about data with names.

use super::state::Answer;
use super::{Connection, Request};
use crate::{DataName, Error};
use farcall_rpc_proto::{Failure, FailureKind, NAMES, Name, NamePage, NameRecord};
use std::sync::Arc;

impl Connection {
    /// Whether the other side knows data by name; the error says that it does not.
    pub(crate) fn check_names(&self) -> Result<(), Error> {
        if self.features & NAMES != 0 {
            return Ok(());
        }
        let what = match self.is_to_metaserver() {
            true => "metaserver",
            false => "server",
        };
        let text = format!("the {what} is too old to know data by name; update it");
        Err(Error::Failed(Failure::new(FailureKind::BadArgument, text)))
    }

    /// Gives an array a name.
    pub(crate) fn name(self: &Arc<Self>, name: &Name) -> Result<NameRecord, Error> {
        self.check_names()?;
        self.named(self.start(|state| state.ask(|proto| proto.name(name)))?)
    }

    /// Asks for data by name.
    pub(crate) fn ask_name(self: &Arc<Self>, name: &DataName) -> Result<NameRecord, Error> {
        self.check_names()?;
        self.named(self.start(|state| state.ask(|proto| proto.ask_name(name)))?)
    }

    fn named(&self, request: Request) -> Result<NameRecord, Error> {
        match request.finish()? {
            Answer::Named(record) => Ok(record),
            _ => Err(self.unexpected()),
        }
    }

    /// Asks for a page of data with names.
    pub(crate) fn names(self: &Arc<Self>, after: Option<&DataName>) -> Result<NamePage, Error> {
        self.check_names()?;
        let request = self.start(|state| state.ask(|proto| proto.list_names(after)))?;
        match request.finish()? {
            Answer::Names(page) => Ok(page),
            _ => Err(self.unexpected()),
        }
    }
}
