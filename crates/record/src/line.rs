//! The lines of a record. A line is one JSON object, whose `kind` says what it describes. Times are
//! seconds since 1970 (UTC), and durations are seconds. Later versions add fields and kinds, and do
//! not change the meaning of those that exist.

use crate::QUANTILES;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the lines.
pub const SCHEMA: u32 = 1;
/// Bytes of the longest line that is read.
pub const MOST_LINE: usize = 64 * 1024;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    /// The first line of a file.
    Record(Header),
    /// One call.
    Call(Box<Call>),
    /// Calls of the same kind that have no lines of their own.
    Together(Box<Together>),
    /// The choice of a server for a call, in the record of a metaserver.
    Placement(Box<Placement>),
    /// Placements of the same kind that have no lines of their own.
    Placements(Box<Placements>),
    /// What is known of the path to a host.
    Link(Link),
    /// A server came, or went.
    Server(Box<Server>),
    /// A kind of a later version.
    #[serde(other)]
    Other,
}

/// The first line of a file: who has written it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the lines.
    pub schema: u32,
    /// When the file was begun.
    pub time: f64,
    /// The program that writes it, and its version.
    pub program: String,
    /// The address of the server.
    pub server: String,
}

/// One call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The trace that the call belongs to; empty if there is none.
    #[serde(default)]
    pub trace: String,
    /// The user.
    pub user: String,
    /// Qualified name of the function.
    pub function: String,
    /// The numbers on which sizes and cost depend, by the names of the parameters.
    #[serde(default)]
    pub scalars: Map<String, Value>,
    /// Operations, if the interface states them (`CalcOrder`).
    pub operations: Option<f64>,
    /// Bytes of arrays to the server.
    pub sent_bytes: u64,
    /// Bytes of arrays back to the client.
    pub returned_bytes: u64,
    /// Bytes of arrays that did not travel: in shared memory, or stored at the server.
    #[serde(default)]
    pub placed_bytes: u64,
    /// The time in the library that was predicted when the call was queued.
    pub predicted_s: Option<f64>,
    /// One of ten such calls was predicted to take less.
    #[serde(default)]
    pub predicted_low_s: Option<f64>,
    /// One of ten such calls was predicted to take more.
    #[serde(default)]
    pub predicted_high_s: Option<f64>,
    /// The server received the request.
    pub asked: f64,
    /// The server had memory for the arguments.
    pub granted: Option<f64>,
    /// All arguments had arrived.
    pub queued: Option<f64>,
    /// A worker got the call.
    pub started: Option<f64>,
    /// The worker had finished.
    pub ended: Option<f64>,
    /// The results had left or were stored, or the call had failed.
    pub sent: f64,
    /// Time in the library.
    pub exec_s: f64,
    /// Processor elements.
    pub pes: u32,
    /// Whether the call is durable.
    pub durable: bool,
    /// The address of the server.
    pub server: String,
    /// The client's host: its address, or `local` on a Unix socket.
    pub host: String,
    /// The client: a random number in 16 hexadecimal digits, the same at all servers.
    #[serde(default)]
    pub client: String,
    /// `done`, `given up`, or the kind of the failure.
    pub outcome: String,
    /// The share of the calls of its kind that had lines of their own at that time, about.
    pub share: f64,
}

/// Calls of the same user, function, host and outcome that have no lines of their own. Their work
/// differs at most by a factor of two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Together {
    /// When the first of them ended, or an earlier moment.
    pub from: f64,
    /// When the last of them ended, or a later moment.
    pub to: f64,
    /// The user; empty if the line counts calls of several kinds, because there were too many.
    pub user: String,
    /// Qualified name of the function; empty as `user` is.
    pub function: String,
    /// The clients' host.
    pub host: String,
    /// The outcome.
    pub outcome: String,
    /// The address of the server.
    pub server: String,
    /// Number of these calls.
    pub calls: u64,
    /// Calls of the same kind in this time that have lines of their own.
    pub alone: u64,
    /// Operations of all these calls.
    pub operations: f64,
    /// Bytes of arrays to the server.
    pub sent_bytes: u64,
    /// Bytes of arrays back to the clients.
    pub returned_bytes: u64,
    /// Bytes of arrays that did not travel, as in a call.
    #[serde(default)]
    pub placed_bytes: u64,
    /// Processor elements times seconds in the library.
    pub pe_s: f64,
    /// Sum of the times from the last argument to the start.
    pub wait_s: f64,
    /// Sum of the times in the library.
    pub exec_s: f64,
    /// Quantiles of the waits, at [`QUANTILES`].
    pub wait_quantiles_s: [f64; QUANTILES.len()],
    /// Quantiles of the times in the library, at [`QUANTILES`].
    pub exec_quantiles_s: [f64; QUANTILES.len()],
}

/// The choice of a server for a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// The trace that the call belongs to; empty if there is none.
    pub trace: String,
    /// The user.
    pub user: String,
    /// Qualified name of the function.
    pub function: String,
    /// The client's host.
    pub host: String,
    /// The address of the server that was chosen; empty if none was.
    pub server: String,
    /// Operations of the call, or bytes if its interface does not state them.
    pub operations: f64,
    /// Bytes of arrays to the server.
    pub sent_bytes: u64,
    /// Bytes of arrays back to the client.
    pub returned_bytes: u64,
    /// Bytes of memory at the server.
    pub memory: u64,
    /// The request came.
    pub asked: f64,
    /// The server was chosen.
    pub placed: Option<f64>,
    /// The client told how the call had ended.
    pub ended: Option<f64>,
    /// Predicted seconds for the transfer of the arguments.
    pub up_s: Option<f64>,
    /// Predicted seconds of the wait.
    pub wait_s: Option<f64>,
    /// Predicted seconds of the computation.
    pub compute_s: Option<f64>,
    /// Predicted seconds for the transfer of the results.
    pub down_s: Option<f64>,
    /// Processor elements.
    pub pes: u32,
    /// `done`, `lost` (the client has lost the server), `no server`, or `unknown`.
    pub outcome: String,
    /// The share of the placements of its kind that had lines of their own at that time, about.
    pub share: f64,
}

/// Placements of the same user, function, client's host, server and outcome that have no lines of
/// their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Placements {
    /// When the first of them ended.
    pub from: f64,
    /// When the last of them ended.
    pub to: f64,
    /// The user; empty if the line counts placements of several kinds, because there were too many.
    pub user: String,
    /// Qualified name of the function; empty as `user` is.
    pub function: String,
    /// The address of the server.
    pub server: String,
    /// The outcome.
    pub outcome: String,
    /// Number of these placements.
    pub placements: u64,
    /// Placements of the same kind in this time that have lines of their own.
    pub alone: u64,
    /// Operations of all these calls.
    pub operations: f64,
    /// Bytes of arrays to the server.
    pub sent_bytes: u64,
    /// Bytes of arrays back to the clients.
    pub returned_bytes: u64,
}

/// What a server or a metaserver has learned about the path to a host, after transfers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The moment.
    pub time: f64,
    /// The address of the server.
    pub server: String,
    /// The other host.
    pub host: String,
    /// Bytes per second to the server.
    pub up_bytes_per_s: Option<f64>,
    /// Bytes per second from the server.
    pub down_bytes_per_s: Option<f64>,
    /// Seconds until the first byte is at the server, and at the host. Only metaservers measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_s: Option<[f64; 2]>,
}

/// A server came, or went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// The moment.
    pub time: f64,
    /// The address of the server.
    pub server: String,
    /// Its number, in 16 hexadecimal digits: the same in its own record and in those of
    /// metaservers, which may know it by another address.
    #[serde(default)]
    pub id: String,
    /// `started` or `stopped`, in the record of the server. In that of a metaserver: `joined`,
    /// `left`, `lost`, `back`, `expired` or `replaced`.
    pub event: String,
    /// Its processor elements.
    pub pes: u32,
    /// The policy of its queue.
    pub policy: String,
    /// Bytes of memory for calls.
    pub memory: u64,
}

/// Why a text is not a line of a record.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// Not a JSON object with the fields of its kind.
    #[error("this is not a line of a record of calls: {0}")]
    Json(#[from] serde_json::Error),
    /// Too long.
    #[error("the line has more than {MOST_LINE} bytes")]
    TooLong,
    /// A later version has written it.
    #[error("the record has version {0}, and this program reads version {SCHEMA}; use a newer one")]
    Later(u32),
}

impl Line {
    /// Reads a line, without its end.
    ///
    /// # Errors
    /// The text is not a line of a record that this version can read.
    pub fn read(text: &[u8]) -> Result<Line, LineError> {
        if text.len() > MOST_LINE {
            return Err(LineError::TooLong);
        }
        let line = serde_json::from_slice(text)?;
        match line {
            Line::Record(Header { schema, .. }) if schema > SCHEMA => Err(LineError::Later(schema)),
            line => Ok(line),
        }
    }

    /// Appends the line and its end.
    pub fn write(&self, out: &mut Vec<u8>) {
        // Writing to a Vec cannot fail, and every map has texts as keys.
        let _ = serde_json::to_writer(&mut *out, self);
        out.push(b'\n');
    }

    /// Its moment: for a call, when the server received it.
    pub fn time(&self) -> Option<f64> {
        match self {
            Line::Record(header) => Some(header.time),
            Line::Call(call) => Some(call.asked),
            Line::Together(together) => Some(together.from),
            Line::Placement(placement) => Some(placement.asked),
            Line::Placements(together) => Some(together.from),
            Line::Link(link) => Some(link.time),
            Line::Server(server) => Some(server.time),
            Line::Other => None,
        }
    }

    /// Sets the address and the number of the server that writes it. The lines of a metaserver are
    /// about others.
    pub fn set_server(&mut self, address: &str, id: &str) {
        let server = match self {
            Line::Record(header) => &mut header.server,
            Line::Call(call) => &mut call.server,
            Line::Together(together) => &mut together.server,
            Line::Link(link) => &mut link.server,
            Line::Server(server) => {
                if server.id.is_empty() {
                    id.clone_into(&mut server.id);
                }
                &mut server.server
            }
            Line::Placement(_) | Line::Placements(_) | Line::Other => return,
        };
        if server.is_empty() {
            address.clone_into(server);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let call = Call {
            user: "alice".to_owned(),
            function: "lapack/dgesv".to_owned(),
            scalars: [("n".to_owned(), Value::from(1000))].into_iter().collect(),
            asked: 1_763_877_123.123_457,
            granted: Some(1_763_877_123.123_46),
            outcome: "done".to_owned(),
            share: 0.25,
            ..Call::default()
        };
        let lines = [
            Line::Record(Header {
                schema: SCHEMA,
                ..Header::default()
            }),
            Line::Call(Box::new(call)),
            Line::Together(Box::default()),
            Line::Placement(Box::default()),
            Line::Placements(Box::default()),
            Line::Link(Link {
                up_bytes_per_s: Some(1e9),
                ..Link::default()
            }),
            Line::Server(Box::new(Server {
                event: "started".to_owned(),
                ..Server::default()
            })),
        ];
        for line in lines {
            let mut text = Vec::new();
            line.write(&mut text);
            assert_eq!(text.pop(), Some(b'\n'));
            assert_eq!(Line::read(&text).unwrap(), line, "{}", text.escape_ascii());
            assert!(line.time().is_some());
        }
    }

    #[test]
    fn later_fields_and_kinds_are_accepted_and_later_versions_are_not() {
        let read = |text: &str| Line::read(text.as_bytes());
        assert_eq!(read(r#"{"kind":"graph","x":[1]}"#).unwrap(), Line::Other);
        let link = r#"{"kind":"link","time":1.5,"server":"a","host":"b","new":{}}"#;
        assert_eq!(read(link).unwrap().time(), Some(1.5));
        let later = r#"{"kind":"record","schema":2,"time":1,"program":"","server":""}"#;
        assert!(read(later).unwrap_err().to_string().contains("version 2"));
        assert!(matches!(read("[]"), Err(LineError::Json(_))));
        let long = "x".repeat(MOST_LINE + 1);
        assert!(matches!(read(&long), Err(LineError::TooLong)));
    }
}
