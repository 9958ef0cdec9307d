//! Records: what metaservers share through a store, and what clients keep. `shared` decides when a
//! record is written. A record of a server or its data expires with the lease of the server, and a
//! record of a path does not: stores keep it for some time after its last measurement.

use crate::message::{Datum, Invalid, Join, MOST_DATA, Message, Report, Times};
use minicbor::{Decode, Encode};
use std::fmt;
use std::str::FromStr;

/// Most values that are kept for the latency and for the rate of a path.
const MOST_VALUES: usize = 64;

/// The key of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A server.
    Server(u64),
    /// The paths between a site and a server.
    Path {
        /// [`crate::digest`] of the site's name.
        site: u64,
        /// The server.
        server: u64,
    },
    /// The named data that a server holds.
    Data(u64),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Server(server) => write!(f, "server/{server:016x}"),
            Key::Path { site, server } => write!(f, "path/{site:016x}/{server:016x}"),
            Key::Data(server) => write!(f, "data/{server:016x}"),
        }
    }
}

impl FromStr for Key {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Key, Invalid> {
        let unknown = || Invalid(format!("`{}` is not a key", text.escape_debug()));
        let number = |text: &str| u64::from_str_radix(text, 16).map_err(|_| unknown());
        let mut parts = text.splitn(3, '/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("server"), Some(server), None) => Ok(Key::Server(number(server)?)),
            (Some("data"), Some(server), None) => Ok(Key::Data(number(server)?)),
            (Some("path"), Some(site), Some(server)) => Ok(Key::Path {
                site: number(site)?,
                server: number(server)?,
            }),
            _ => Err(unknown()),
        }
    }
}

/// One record.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Record {
    /// A server that has joined.
    #[n(0)]
    Server(#[n(0)] ServerRecord),
    /// The paths between a site and a server.
    #[n(1)]
    Path(#[n(0)] PathRecord),
    /// The named data that a server holds.
    #[n(2)]
    Data(#[n(0)] DataRecord),
}

/// The named data of a server, as others see them.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DataRecord {
    /// The server.
    #[n(0)]
    pub server: u64,
    /// The data.
    #[n(1)]
    pub held: Vec<Datum>,
    /// When the server's lease ends, in milliseconds since 1970, UTC.
    #[n(2)]
    pub expires_ms: u64,
}

/// A server, as others see it.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct ServerRecord {
    /// Its description.
    #[n(0)]
    pub join: Join,
    /// Its status, without learned times.
    #[n(1)]
    pub report: Option<Report>,
    /// Its learned times.
    #[n(2)]
    pub learned: Vec<Times>,
    /// When the lease ends, in milliseconds since 1970, UTC.
    #[n(3)]
    pub expires_ms: u64,
}

/// Measured values of one direction, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Values {
    /// Latencies in seconds.
    #[n(0)]
    pub latencies: Vec<f64>,
    /// Rates in bytes per second.
    #[n(1)]
    pub rates: Vec<f64>,
}

/// The paths between a site and a server, as others see them.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct PathRecord {
    /// The site.
    #[n(0)]
    pub site: String,
    /// The server.
    #[n(1)]
    pub server: u64,
    /// To the server.
    #[n(2)]
    pub up: Values,
    /// From the server.
    #[n(3)]
    pub down: Values,
}

impl Record {
    /// The key of the record.
    pub fn key(&self) -> Key {
        match self {
            Record::Server(record) => Key::Server(record.join.server),
            Record::Path(record) => Key::Path {
                site: crate::digest(&record.site),
                server: record.server,
            },
            Record::Data(record) => Key::Data(record.server),
        }
    }

    /// The same record with another name of the site.
    pub fn at(self, site: &str) -> Record {
        match self {
            Record::Path(path) => Record::Path(PathRecord {
                site: site.to_string(),
                ..path
            }),
            other => other,
        }
    }

    /// When the record expires, in milliseconds since 1970. Paths never do.
    pub fn expires_ms(&self) -> u64 {
        match self {
            Record::Server(record) => record.expires_ms,
            Record::Data(record) => record.expires_ms,
            // The greatest integer of every store.
            Record::Path(_) => i64::MAX as u64,
        }
    }
}

impl Message for Record {
    fn check(&self) -> Result<(), Invalid> {
        match self {
            Record::Server(record) => {
                record.join.check()?;
                if record.learned.len() > crate::message::MOST_FUNCTIONS {
                    return Err(Invalid("times of too many functions".into()));
                }
                record.report.as_ref().map_or(Ok(()), Message::check)
            }
            Record::Data(record) => match record.held.len() {
                ..=MOST_DATA => record.held.iter().try_for_each(Message::check),
                _ => Err(Invalid("a server with too many data".into())),
            },
            Record::Path(record) => {
                let values = [&record.up, &record.down];
                let mut lists = values
                    .into_iter()
                    .flat_map(|values| [&values.latencies, &values.rates]);
                if lists.any(|list| list.len() > MOST_VALUES) {
                    return Err(Invalid("a path has too many values".into()));
                }
                match record.site.len() {
                    1..=crate::message::MOST_NAME => Ok(()),
                    _ => Err(Invalid("the name of a site is too long, or missing".into())),
                }
            }
        }
    }
}
