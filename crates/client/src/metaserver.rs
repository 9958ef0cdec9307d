//! A server's connection to a metaserver: it joins, reports, and leaves.
//! `farcall_server_proto::member` decides when to do it. Each question waits for its answer, so a
//! caller with other work needs a thread of its own.

use crate::address::Address;
use crate::error::Error;
use crate::options::Options;
use crate::remote::{Connection, check_names, directory};
use farcall_directory::message::{Hold, Join, Leave, Message, Noted, Report};
use farcall_rpc_proto::{FailureKind, Kind};
use std::sync::Arc;

/// The connection of a server to a metaserver.
pub struct Metaserver {
    connection: Arc<Connection>,
}

impl Metaserver {
    /// Connects to a metaserver.
    ///
    /// # Errors
    /// The metaserver cannot be reached, refuses the connection, or is a server.
    pub fn connect(address: &Address, options: &Options) -> Result<Metaserver, Error> {
        let connection = Connection::open(address, options)?;
        directory::check_metaserver(&connection)?;
        Ok(Metaserver { connection })
    }

    /// Joins the directory, or updates the server's record.
    ///
    /// # Errors
    /// The metaserver refuses the server, or is away.
    pub fn join(&self, join: &Join) -> Result<Noted, Error> {
        self.tell(Kind::Join, join)
    }

    /// Sends a status report, which renews the lease.
    ///
    /// # Errors
    /// The server has no lease ([`Metaserver::wants_join`]), or the metaserver is away.
    pub fn report(&self, report: &Report) -> Result<Noted, Error> {
        self.tell(Kind::Report, report)
    }

    /// Whether the metaserver wants to know which named data the server holds.
    pub fn knows_data(&self) -> bool {
        check_names(&self.connection).is_ok()
    }

    /// Sends the list of named data that the server holds.
    ///
    /// # Errors
    /// The server has no lease ([`Metaserver::wants_join`]), or the metaserver is away.
    pub fn hold(&self, hold: &Hold) -> Result<Noted, Error> {
        self.tell(Kind::Hold, hold)
    }

    /// Leaves the directory.
    ///
    /// # Errors
    /// The metaserver is away.
    pub fn leave(&self, server: u64) -> Result<(), Error> {
        self.tell(Kind::Leave, &Leave { server }).map(drop)
    }

    /// Whether an error means that the server must join again.
    pub fn wants_join(error: &Error) -> bool {
        matches!(error, Error::Failed(failure) if failure.kind == FailureKind::NotJoined)
    }

    fn tell(&self, kind: Kind, message: &impl Message) -> Result<Noted, Error> {
        directory::ask_directory(&self.connection, (kind, Kind::Noted), message)
    }
}
