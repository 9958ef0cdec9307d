//! Transfers between memory and the disk: which are under way, and what for. The shell performs
//! them and answers with the ticket of each. Results may use disk space that arguments and arrays
//! must leave free, because the call has been accepted.

use crate::action::{Action, Actions, Transfer};
use crate::keys::{CallKey, ConnectionKey, MemoryKey};
use crate::map::Map;
use crate::record::Stored;
use farcall_rpc_proto::{CallId, HandleId, JobId, Nanos};

/// The purpose of a transfer.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// Write the arguments of a call that is being submitted.
    Submit(CallKey),
    /// Write the results of a call. The number is its nanoseconds in the library.
    Finish(CallKey, u64),
    /// Read the arguments of a call.
    Load(CallKey),
    /// Read results for a client; `None` if it no longer wants them.
    Deliver(Option<Fetch>),
    /// Write an array to the disk because memory is short.
    Spill(HandleId),
    /// Read an array back, which is there in this form.
    Unspill(HandleId, Stored),
}

/// A client that wants the results of a durable call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) connection: ConnectionKey,
    pub(crate) request: CallId,
    pub(crate) id: JobId,
    /// Since when it needs memory for them.
    pub(crate) since: Nanos,
}

impl Fetch {
    /// Whether this is what a client has given up: one request, or everything (`None`).
    pub(crate) fn is_of(&self, connection: ConnectionKey, request: Option<CallId>) -> bool {
        self.connection == connection && request.is_none_or(|request| request == self.request)
    }
}

/// The transfers under way.
#[derive(Default)]
pub(crate) struct Disk {
    /// Whether arrays may go to the disk: to a folder of their own, or to the state folder after
    /// this server has taken it over.
    pub(crate) takes_arrays: bool,
    /// Bytes of results that are still to be written. The disk must have room for them.
    pub(crate) promised: u64,
    under_way: Map<u64, (Purpose, MemoryKey)>,
    last_ticket: u64,
}

impl Disk {
    /// No transfers yet. Arrays may leave memory now, or after the server has taken the state
    /// folder over.
    pub(crate) fn new(takes_arrays: bool) -> Disk {
        Disk {
            takes_arrays,
            ..Disk::default()
        }
    }

    /// Writes a stream to the disk.
    pub(crate) fn write(&mut self, purpose: Purpose, transfer: Transfer, out: &mut Actions) {
        // Results were promised room, so they may fill the disk.
        let room = match purpose {
            Purpose::Finish(..) => None,
            _ => Some(self.promised),
        };
        let ticket = self.ticket(purpose, transfer.memory);
        out.push(Action::WriteFile {
            ticket,
            transfer,
            room,
        });
    }

    /// Reads a stream from the disk.
    pub(crate) fn read(
        &mut self,
        purpose: Purpose,
        transfer: Transfer,
        stored: Stored,
        out: &mut Actions,
    ) {
        let ticket = self.ticket(purpose, transfer.memory);
        out.push(Action::ReadFile {
            ticket,
            transfer,
            stored,
        });
    }

    fn ticket(&mut self, purpose: Purpose, memory: MemoryKey) -> u64 {
        self.last_ticket += 1;
        self.under_way.insert(self.last_ticket, (purpose, memory));
        self.last_ticket
    }

    /// The purpose and the memory of a transfer that has ended.
    pub(crate) fn ended(&mut self, ticket: u64) -> Option<(Purpose, MemoryKey)> {
        self.under_way.remove(&ticket)
    }

    /// Whether results are being written. A server that ends must wait for them.
    pub(crate) fn writes_results(&self) -> bool {
        let mut purposes = self.under_way.values();
        purposes.any(|(purpose, _)| matches!(purpose, Purpose::Finish(..)))
    }

    /// Forgets the fetches that a client has given up.
    pub(crate) fn give_up(&mut self, connection: ConnectionKey, request: Option<CallId>) {
        for (purpose, _) in self.under_way.values_mut() {
            if let Purpose::Deliver(fetch) = purpose {
                *fetch = fetch.filter(|fetch| !fetch.is_of(connection, request));
            }
        }
    }
}
