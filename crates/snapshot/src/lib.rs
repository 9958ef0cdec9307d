//! A snapshot: what somebody who watches a server or a metaserver sees at one moment. The page and
//! `farcall top` show it. Servers and metaservers make it, each for one viewer: it holds nothing
//! that the viewer may not see.
//!
//! A snapshot is bounded. A [`List`] has at most as many rows as its maker shows, and says how many
//! there are. All times are in seconds, and all moments are relative to that of the snapshot.

use serde::{Deserialize, Serialize};

/// Version of the format. A reader ignores fields that it does not know.
pub const SCHEMA: u32 = 1;
/// Most calls that a snapshot shows.
pub const MOST_CALLS: usize = 500;
/// Most servers that a snapshot shows.
pub const MOST_SERVERS: usize = 1000;
/// Most rows of every other list.
pub const MOST_ROWS: usize = 200;
/// Most characters of a text in a row.
const MOST_CHARACTERS: usize = 200;

/// What somebody sees of a server or a metaserver at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Version of the format: [`SCHEMA`].
    pub schema: u32,
    /// `server` or `metaserver`.
    pub kind: String,
    /// Version of the program.
    pub version: String,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Who looks.
    pub viewer: Viewer,
    /// The policy of the queue, or of the choice of a server.
    pub policy: String,
    /// Numbers of the calls of all users.
    pub counts: Counts,
    /// The server itself, or the servers that a metaserver knows.
    pub servers: List<Server>,
    /// Calls under way that the viewer may see: those that compute, then those that wait, in the
    /// order in which they will probably start.
    pub calls: List<Call>,
    /// The calls that ended last, of those that the viewer may see.
    pub ended: Vec<Call>,
    /// What users wait for and have used.
    pub users: List<User>,
    /// Reservations.
    pub reservations: List<Reservation>,
    /// What is known of the network.
    pub links: List<Link>,
    /// Named data.
    pub data: List<Data>,
}

impl Snapshot {
    /// The text that travels: one line of JSON.
    pub fn to_json(&self) -> String {
        // Maps with keys other than text could fail, and there are none.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the text of a snapshot.
    ///
    /// # Errors
    /// The text is not a snapshot.
    pub fn parse(text: &str) -> Result<Snapshot, String> {
        let read: Result<Snapshot, _> = serde_json::from_str(text);
        let snapshot = read.map_err(|error| format!("the snapshot cannot be read: {error}"))?;
        match snapshot.schema {
            SCHEMA => Ok(snapshot),
            other => Err(format!(
                "the snapshot has format {other}, and this program reads format {SCHEMA}; update it"
            )),
        }
    }
}

/// Who looks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Viewer {
    /// Name of the user.
    pub user: String,
    /// Whether the user is an operator, who sees everything and may drain the server.
    pub operator: bool,
}

/// Some rows, and how many there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct List<T> {
    /// Rows that exist, shown or not.
    pub total: u64,
    /// Rows before the first one that is shown.
    #[serde(default)]
    pub from: u64,
    /// The rows that are shown.
    pub rows: Vec<T>,
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List {
            total: 0,
            from: 0,
            rows: Vec::new(),
        }
    }
}

impl<T> List<T> {
    /// Shows at most `most` of these, and counts all of them.
    pub fn of<R>(all: impl Iterator<Item = R>, most: usize, show: impl Fn(R) -> T) -> List<T> {
        let mut list = List::default();
        for one in all {
            list.total += 1;
            if list.rows.len() < most {
                list.rows.push(show(one));
            }
        }
        list
    }
}

/// Numbers of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Calls that wait for processor elements.
    pub waiting: u64,
    /// Calls that compute.
    pub running: u64,
    /// Other calls under way: their arguments or results are on their way, or they are on the disk.
    pub moving: u64,
    /// Calls that have ended since the start.
    pub done: u64,
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// Its address; empty for the server that made the snapshot.
    pub address: String,
    /// `serving`, `draining` or `lost`.
    pub state: String,
    /// Processor elements.
    pub pes: u32,
    /// Those that calls use, if this is known.
    pub pes_used: Option<u32>,
    /// Those that are reserved now.
    pub pes_reserved: u32,
    /// Calls under way.
    pub calls: u64,
    /// Predicted seconds until its processor elements are free.
    pub backlog_s: f64,
    /// Bytes of memory for calls.
    pub memory: u64,
    /// Those in use.
    pub memory_used: u64,
    /// Functions.
    pub functions: u64,
    /// Seconds since its last report.
    pub reported_s: f64,
}

/// A time with its interval: one in ten is below `low_s`, one in ten above `high_s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    /// One in ten is below.
    pub low_s: f64,
    /// As many are below as above.
    pub likely_s: f64,
    /// One in ten is above.
    pub high_s: f64,
}

/// A call, under way or ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Call {
    /// What distinguishes it from other calls of the server.
    pub number: u64,
    /// The job id of a durable call of the viewer, who can cancel it.
    pub job: Option<String>,
    /// Who made it.
    pub user: String,
    /// The id of its trace, which the calls of a transaction share.
    pub trace: Option<String>,
    /// The function.
    pub function: String,
    /// `arriving`, `waiting`, `running`, `returning` or `over`.
    pub phase: String,
    /// Processor elements, once it has some.
    pub pes: u32,
    /// What it does or waits for.
    pub reason: String,
    /// Seconds since the server accepted it.
    pub since_s: f64,
    /// When it will start.
    pub starts: Option<Interval>,
    /// When it will have computed.
    pub ends: Option<Interval>,
    /// Seconds in which its arguments arrived so far.
    pub send_s: f64,
    /// Seconds in which it has waited so far.
    pub wait_s: f64,
    /// Seconds in which it has computed so far.
    pub exec_s: f64,
    /// Seconds in which its results have left so far.
    pub recv_s: f64,
    /// Seconds to compute, as predicted.
    pub predicted: Option<Interval>,
    /// Bytes of its arguments.
    pub up: u64,
    /// Bytes of its results.
    pub down: u64,
}

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    /// Name.
    pub user: String,
    /// Calls that wait.
    pub waiting: u64,
    /// Calls that compute.
    pub running: u64,
    /// Seconds on one processor element; old ones count less. The user with the least goes first.
    pub usage_s: f64,
}

/// A reservation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reservation {
    /// Its number.
    pub id: u64,
    /// Whose it is. Empty if the viewer may not know.
    pub user: String,
    /// Processor elements.
    pub pes: u32,
    /// Bytes per second to the server.
    pub up: u64,
    /// Bytes per second from the server.
    pub down: u64,
    /// Seconds until it begins.
    pub begins_s: f64,
    /// Seconds until it ends.
    pub ends_s: f64,
}

/// What is known of the network between two places.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    /// Where clients are.
    pub site: String,
    /// Address of the server; empty for the server that made the snapshot.
    pub server: String,
    /// Towards the server.
    pub up: Forecast,
    /// From the server.
    pub down: Forecast,
}

/// A forecast of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Forecast {
    /// Bytes per second.
    pub rate: Option<f64>,
    /// The rate lies within this factor, in about two cases of three.
    pub factor: Option<f64>,
    /// Seconds of latency.
    pub latency_s: Option<f64>,
}

/// Named data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Data {
    /// Name.
    pub name: String,
    /// Owner; empty for files of a data folder.
    pub owner: String,
    /// Type of the elements.
    pub element: String,
    /// Shape.
    pub shape: Vec<u64>,
    /// Bytes.
    pub bytes: u64,
    /// Whether all users may read them.
    pub shared: bool,
    /// Addresses of the servers that hold them; none for the server that made the snapshot.
    pub holders: Vec<String>,
}

/// A text of a row: a long one is cut, and control characters are left out.
pub fn text(long: &str) -> String {
    let plain = long.chars().filter(|character| !character.is_control());
    plain.take(MOST_CHARACTERS).collect()
}

/// Whether one of the texts contains the search text, in letters of any case. An empty search finds
/// everything.
pub fn finds(search: &str, texts: &[&str]) -> bool {
    let wanted = search.to_lowercase();
    let mut texts = texts.iter();
    wanted.is_empty() || texts.any(|text| text.to_lowercase().contains(&wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_takes_what_it_knows_and_refuses_another_format() {
        let snapshot = Snapshot {
            schema: SCHEMA,
            kind: "server".into(),
            calls: List::of(0..9, 3, |_| Call::default()),
            ..Snapshot::default()
        };
        let text = snapshot.to_json();
        assert!(!text.contains('\n'));
        assert_eq!(Snapshot::parse(&text), Ok(snapshot.clone()));
        assert_eq!((snapshot.calls.total, snapshot.calls.rows.len()), (9, 3));
        let newer = text.replacen('{', r#"{"later":1,"#, 1);
        assert_eq!(Snapshot::parse(&newer), Ok(snapshot));
        let refused = Snapshot::parse(r#"{"schema":7}"#).unwrap_err();
        assert!(refused.contains("update"), "{refused}");
        assert!(Snapshot::parse("{").is_err());
    }

    #[test]
    fn a_search_looks_at_all_texts_and_a_row_is_short() {
        assert!(finds("DGE", &["alice", "lapack/dgesv"]));
        assert!(finds("", &[]));
        assert!(!finds("bob", &["alice"]));
        assert_eq!(text(&"x\n".repeat(900)).len(), MOST_CHARACTERS);
    }
}
