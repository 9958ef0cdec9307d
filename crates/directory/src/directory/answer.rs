//! The answer about a function: records of its servers and of the paths to them. A connection
//! accepts messages of a certain length only. So each server has a share of the answer, and where
//! that is short, calls at the end of its queue, the path and learned times are left out. A client
//! needs them only while no metaserver answers. Of too many offers, the first ones are told.

use crate::message::record::{PathRecord, Record, ServerRecord};
use crate::message::{Message, Offer};

/// Bytes of all records. The most that a connection accepts is 1 MiB.
const MOST_BYTES: usize = 900 << 10;
/// Bytes of an offer beside its texts, at most.
const OFFER_BYTES: usize = 128;

/// The first offers that one answer has room for.
pub(super) fn fitting(offers: impl Iterator<Item = Offer>) -> Vec<Offer> {
    let mut left = MOST_BYTES;
    let fits = |offer: &Offer| {
        let refusal = offer.refusal.as_ref().map_or(0, String::len);
        let bytes = OFFER_BYTES + offer.address.len() + refusal;
        let rest = left.checked_sub(bytes);
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    offers.take_while(fits).collect()
}

/// An answer in the making.
pub(super) struct Answer {
    pub(super) records: Vec<Record>,
    /// Bytes for one server.
    share: usize,
    /// Bytes that are left.
    left: usize,
}

impl Answer {
    /// An answer about so many servers.
    pub(super) fn about(servers: usize) -> Answer {
        Answer {
            records: Vec::new(),
            share: MOST_BYTES / servers.max(1),
            left: MOST_BYTES,
        }
    }

    /// Adds a server and the path to it.
    pub(super) fn tell(&mut self, mut server: ServerRecord, path: Option<PathRecord>) {
        let length = |server: &ServerRecord| Record::Server(server.clone()).to_bytes().len();
        let mut bytes = length(&server);
        while bytes > self.share
            && let Some(report) = &mut server.report
            && !report.queued.is_empty()
        {
            report.queued.truncate(report.queued.len() / 2);
            bytes = length(&server);
        }
        if bytes > self.share {
            server.learned.clear();
            bytes = length(&server);
        }
        if bytes > self.left {
            return;
        }
        self.left -= bytes;
        self.records.push(Record::Server(server));
        if let Some(path) = path.map(Record::Path) {
            let more = path.to_bytes().len();
            if bytes + more <= self.share && more <= self.left {
                self.left -= more;
                self.records.push(path);
            }
        }
    }
}
