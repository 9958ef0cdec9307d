//! The lists of a snapshot as rows of text. A cell also says what it is sorted by.

use crate::plain::one_line;
use clap::ValueEnum;
use farcall_quantity::counted;
use farcall_snapshot::{Call, Forecast, Interval, Snapshot};

/// Most calls that are asked for at a time.
pub(crate) const MOST: u32 = 300;

/// A list of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tab {
    /// Calls under way
    Calls,
    /// Calls that ended last
    Ended,
    /// What users wait for and have used
    Users,
    /// The servers of a metaserver
    Servers,
    /// Reservations
    Reservations,
    /// What is known of the network
    Links,
    /// Named data
    Data,
}

impl Tab {
    /// All lists of a snapshot.
    pub(crate) fn all(snapshot: &Snapshot) -> &'static [Tab] {
        match snapshot.kind.as_str() {
            "metaserver" => &[Tab::Servers, Tab::Links, Tab::Data],
            _ => &[
                Tab::Calls,
                Tab::Ended,
                Tab::Users,
                Tab::Reservations,
                Tab::Links,
                Tab::Data,
            ],
        }
    }

    /// Whether a snapshot can have rows of this list. A server is in its own list of servers.
    pub(crate) fn is_of(self, snapshot: &Snapshot) -> bool {
        self == Tab::Servers || Tab::all(snapshot).contains(&self)
    }

    /// The list that people want to see first.
    pub(crate) fn first(snapshot: &Snapshot) -> Tab {
        Tab::all(snapshot)[0]
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Tab::Calls => "calls",
            Tab::Ended => "ended",
            Tab::Users => "users",
            Tab::Servers => "servers",
            Tab::Reservations => "reservations",
            Tab::Links => "links",
            Tab::Data => "data",
        }
    }
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// Characters on a screen; 0 for what is left.
    pub(crate) width: u16,
    pub(crate) is_number: bool,
}

/// A cell, and the number by which it is sorted, if not by its text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) order: Option<f64>,
}

/// Rows of a list.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
    /// Rows before the first one, and rows that can come into view.
    pub(crate) from: u64,
    pub(crate) total: u64,
    /// Rows that exist and are not here.
    pub(crate) missing: u64,
}

fn word(text: impl Into<String>) -> Cell {
    // A server of another version may send anything.
    Cell {
        text: one_line(&text.into()),
        order: None,
    }
}

/// The address of a server; that of the server that made the snapshot is empty.
fn place(address: &str) -> Cell {
    word(match address {
        "" => "this server",
        other => other,
    })
}

fn number(text: impl Into<String>, order: f64) -> Cell {
    Cell {
        order: Some(order),
        ..word(text)
    }
}

fn count(value: u64) -> Cell {
    number(value.to_string(), value as f64)
}

fn time(value: f64) -> Cell {
    number(seconds(value), value)
}

fn size(value: u64) -> Cell {
    number(bytes(value as f64), value as f64)
}

/// What a server or metaserver does, in at most three lines.
pub(crate) fn heading(snapshot: &Snapshot) -> Vec<String> {
    let counts = &snapshot.counts;
    let first = format!(
        "{} {}, up {}, as {}{}",
        snapshot.kind,
        snapshot.version,
        seconds(snapshot.uptime_s),
        snapshot.viewer.user,
        if snapshot.viewer.operator {
            " (operator)"
        } else {
            ""
        },
    );
    let calls = format!("calls    {} wait, {} run", counts.waiting, counts.running);
    let servers = &snapshot.servers;
    let sum =
        |value: fn(&farcall_snapshot::Server) -> u64| servers.rows.iter().map(value).sum::<u64>();
    let used = sum(|one| one.pes_used.unwrap_or(0).into());
    let elements = format!("elements {used} of {}", sum(|one| one.pes.into()));
    let memory = format!(
        "memory {} of {}",
        bytes(sum(|one| one.memory_used) as f64),
        bytes(sum(|one| one.memory) as f64)
    );
    let (second, third) = match snapshot.kind.as_str() {
        "metaserver" => (
            calls,
            format!(
                "{elements}, {memory}, {}",
                counted(servers.total as usize, "server")
            ),
        ),
        _ => {
            let own = servers.rows.first().cloned().unwrap_or_default();
            let (moving, done) = (counts.moving, counts.done);
            let backlog = seconds(own.backlog_s);
            (
                format!("{calls}, {moving} on their way, {done} done; backlog {backlog}"),
                format!(
                    "{elements}, {memory}, {}, policy {}",
                    own.state, snapshot.policy
                ),
            )
        }
    };
    [first, second, third].map(|line| word(line).text).into()
}

/// The columns of a list: titles and widths. A negative width aligns numbers to the right.
fn columns(tab: Tab) -> &'static [(&'static str, i16)] {
    match tab {
        Tab::Calls => &[
            ("function", 14),
            ("user", 8),
            ("phase", 9),
            ("so far", -7),
            ("starts in", -9),
            ("does or waits for", 0),
        ],
        Tab::Ended => &[
            ("function", 18),
            ("user", 10),
            ("send", -8),
            ("wait", -8),
            ("exec", -8),
            ("predicted", -9),
            ("recv", -8),
        ],
        Tab::Users => &[
            ("user", 0),
            ("waiting", -8),
            ("running", -8),
            ("used lately", -12),
        ],
        Tab::Servers => &[
            ("server", 0),
            ("state", 9),
            ("used", -5),
            ("PEs", -5),
            ("calls", -7),
            ("backlog", -8),
            ("memory used", -11),
        ],
        Tab::Reservations => &[
            ("user", 0),
            ("PEs", -5),
            ("up /s", -9),
            ("down /s", -9),
            ("begins in", -10),
            ("ends in", -10),
        ],
        Tab::Links => &[
            ("from", 18),
            ("server", 0),
            ("up /s", -10),
            ("down /s", -10),
            ("latency", -9),
        ],
        Tab::Data => &[
            ("name", 0),
            ("owner", 10),
            ("array", 20),
            ("size", -9),
            ("held by", 24),
        ],
    }
}

fn rows(snapshot: &Snapshot, tab: Tab) -> Vec<Vec<Cell>> {
    fn all<T>(rows: &[T], row: impl Fn(&T) -> Vec<Cell>) -> Vec<Vec<Cell>> {
        rows.iter().map(row).collect()
    }
    match tab {
        Tab::Calls => all(&snapshot.calls.rows, call),
        Tab::Ended => all(&snapshot.ended, ended),
        Tab::Users => all(&snapshot.users.rows, |one| {
            let (waiting, running) = (count(one.waiting), count(one.running));
            vec![word(&*one.user), waiting, running, time(one.usage_s)]
        }),
        Tab::Servers => all(&snapshot.servers.rows, server),
        Tab::Reservations => all(&snapshot.reservations.rows, |one| {
            let (pes, up, down) = (count(one.pes.into()), size(one.up), size(one.down));
            let (begins, ends) = (time(one.begins_s), time(one.ends_s));
            vec![word(&*one.user), pes, up, down, begins, ends]
        }),
        Tab::Links => all(&snapshot.links.rows, |one| {
            let (site, server) = (word(&*one.site), place(&one.server));
            vec![
                site,
                server,
                rate(&one.up),
                rate(&one.down),
                latency(&one.up),
            ]
        }),
        Tab::Data => all(&snapshot.data.rows, data),
    }
}

/// The rows of a list.
pub(crate) fn table(snapshot: &Snapshot, tab: Tab) -> Table {
    let column = |(title, width): &(&'static str, i16)| Column {
        title,
        width: width.unsigned_abs(),
        is_number: *width < 0,
    };
    let rows = rows(snapshot, tab);
    let shown = rows.len() as u64;
    let exist = match tab {
        Tab::Calls => snapshot.calls.total,
        Tab::Ended => shown,
        Tab::Users => snapshot.users.total,
        Tab::Servers => snapshot.servers.total,
        Tab::Reservations => snapshot.reservations.total,
        Tab::Links => snapshot.links.total,
        Tab::Data => snapshot.data.total,
    };
    // Only calls can be asked for from any place.
    let (from, total) = match tab {
        Tab::Calls => (snapshot.calls.from, exist),
        _ => (0, shown),
    };
    Table {
        columns: columns(tab).iter().map(column).collect(),
        rows,
        from,
        total,
        missing: exist.saturating_sub(shown),
    }
}

fn call(one: &Call) -> Vec<Cell> {
    let so_far = one.send_s + one.wait_s + one.exec_s + one.recv_s;
    let starts = one
        .starts
        .map_or_else(|| word(""), |starts| number(span(starts), starts.likely_s));
    vec![
        word(&*one.function),
        word(&*one.user),
        word(&*one.phase),
        time(so_far),
        starts,
        word(&*one.reason),
    ]
}

fn ended(one: &Call) -> Vec<Cell> {
    let predicted = one
        .predicted
        .map_or_else(|| word(""), |exec| time(exec.likely_s));
    vec![
        word(&*one.function),
        word(&*one.user),
        time(one.send_s),
        time(one.wait_s),
        time(one.exec_s),
        predicted,
        time(one.recv_s),
    ]
}

fn server(one: &farcall_snapshot::Server) -> Vec<Cell> {
    let used = one
        .pes_used
        .map_or_else(|| word("?"), |used| count(used.into()));
    vec![
        place(&one.address),
        word(&*one.state),
        used,
        count(one.pes.into()),
        count(one.calls),
        time(one.backlog_s),
        size(one.memory_used),
    ]
}

fn data(one: &farcall_snapshot::Data) -> Vec<Cell> {
    let shape: Vec<String> = one.shape.iter().map(u64::to_string).collect();
    vec![
        word(&*one.name),
        word(&*one.owner),
        word(format!("{} {}", one.element, shape.join(" x "))),
        size(one.bytes),
        place(&one.holders.join(", ")),
    ]
}

fn rate(way: &Forecast) -> Cell {
    way.rate
        .map_or_else(|| word("?"), |rate| number(bytes(rate), rate))
}

fn latency(way: &Forecast) -> Cell {
    way.latency_s.map_or_else(|| word("?"), time)
}

fn span(interval: Interval) -> String {
    seconds(interval.likely_s)
}

/// Seconds, as short as people read them.
fn seconds(value: f64) -> String {
    let whole = value as u64;
    match value {
        ..1e-3 => format!("{:.0} us", value * 1e6),
        1e-3..1.0 => format!("{:.0} ms", value * 1e3),
        1.0..60.0 => format!("{value:.1} s"),
        60.0..3600.0 => format!("{} m {} s", whole / 60, whole % 60),
        _ => format!("{} h {} m", whole / 3600, whole % 3600 / 60),
    }
}

/// Bytes, in a unit that fits.
fn bytes(value: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (value, 0);
    while value >= 1000.0 && unit < units.len() - 1 {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    let decimals = usize::from(unit > 0 && value < 100.0);
    format!("{value:.decimals$} {}", units[unit])
}
