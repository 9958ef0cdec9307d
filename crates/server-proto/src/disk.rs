//! Streams between memory and the disk.

use crate::action::{Action, Actions, Transfer};
use crate::keys::{CallKey, ConnectionKey, MemoryKey};
use crate::map::Map;
use crate::record::Stored;
use farcall_rpc_proto::{CallId, HandleId, JobId};

/// What a transfer between memory and disk is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// The arguments of this call, which is being submitted, are written.
    Submit(CallKey),
    /// The results of this call are written: so many nanoseconds in the library.
    Finish(CallKey, u64),
    /// The arguments of this call are read.
    Load(CallKey),
    /// The results are read for a client; none where it does not want them any more.
    Deliver(Option<Fetch>),
    /// An array goes to the disk for want of memory.
    Spill(HandleId),
    /// An array comes back.
    Unspill(HandleId),
}

/// A client that wants the results of a durable call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) connection: ConnectionKey,
    pub(crate) request: CallId,
    pub(crate) id: JobId,
}

impl Fetch {
    /// Whether it is what a client does not want any more: that request, or everything.
    pub(crate) fn is_of(&self, connection: ConnectionKey, request: Option<CallId>) -> bool {
        self.connection == connection && request.is_none_or(|request| request == self.request)
    }
}

/// The transfers that are under way.
#[derive(Default)]
pub(crate) struct Disk {
    /// Whether arrays may go there: to a folder of their own, or to that of durable calls once it
    /// is this server's.
    pub(crate) takes_arrays: bool,
    /// Bytes of results that are still to come, for which the disk is to have room.
    pub(crate) promised: u64,
    under_way: Map<u64, (Purpose, MemoryKey)>,
    last_ticket: u64,
}

impl Disk {
    /// No transfers yet; arrays may leave memory at once, or when the folder is this server's.
    pub(crate) fn new(takes_arrays: bool) -> Disk {
        Disk {
            takes_arrays,
            ..Disk::default()
        }
    }

    /// Writes a stream to the disk.
    pub(crate) fn write(&mut self, purpose: Purpose, transfer: Transfer, out: &mut Actions) {
        // The results were promised room.
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

    /// What a transfer that has ended was for, and its memory.
    pub(crate) fn ended(&mut self, ticket: u64) -> Option<(Purpose, MemoryKey)> {
        self.under_way.remove(&ticket)
    }

    /// Whether results are on their way to the disk that a server which ends must wait for.
    pub(crate) fn writes_results(&self) -> bool {
        let mut purposes = self.under_way.values();
        purposes.any(|(purpose, _)| matches!(purpose, Purpose::Finish(..)))
    }

    /// A client does not wait for what it wanted to fetch any more.
    pub(crate) fn give_up(&mut self, connection: ConnectionKey, request: Option<CallId>) {
        for (purpose, _) in self.under_way.values_mut() {
            if let Purpose::Deliver(fetch) = purpose {
                *fetch = fetch.filter(|fetch| !fetch.is_of(connection, request));
            }
        }
    }
}
