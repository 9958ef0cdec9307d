//! `farcall record`: reads the record of calls that servers keep. It prints lines, cuts a record,
//! and shows a table of what it says. `farcall-recorder` reads the files.

mod summary;

use crate::failure::{self, Failure};
use clap::{Args, Subcommand};
use farcall_record::Line;
use farcall_recorder::{Lines, Told, Writer, files};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Read the record of calls that servers keep
#[derive(Args)]
#[command(after_help = "Examples:
  farcall record summary /var/lib/farcall
  farcall record cat /var/lib/farcall/record > calls.jsonl
  farcall record cut /var/lib/farcall --from 2026-11-22T08:00 -o day.jsonl.zst")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Cat(Cat),
    Cut(Cut),
    Summary(summary::Arguments),
}

/// Print the lines of a record: one JSON object for each
///
/// The server may still be writing the record. The command then prints it up to a second ago.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall record cat /var/lib/farcall
  farcall record cat day.jsonl.zst --from 2026-11-22T12:00 | grep '\"kind\":\"call\"'")]
struct Cat {
    #[command(flatten)]
    source: Source,
}

/// Write a part of a record into a new file
///
/// The lines about servers and links that hold at the beginning of the part are in it, too.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall record cut /var/lib/farcall --from 2026-11-22T08:00 --to 2026-11-22T18:00 -o day.jsonl.zst
  farcall record cut a.jsonl.zst b.jsonl.zst -o both.jsonl.zst")]
struct Cut {
    #[command(flatten)]
    source: Source,
    /// The new file, compressed with zstd if its name ends with .zst
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Where the lines come from.
#[derive(Args)]
pub(crate) struct Source {
    /// Files of records, folders of them, or state folders of servers
    #[arg(required = true, value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Leave out calls before this moment: 2026-11-22T08:00, in UTC unless it ends with an offset
    /// such as +09:00, or seconds since 1970
    #[arg(long, value_name = "TIME")]
    from: Option<Moment>,
    /// Leave out calls from this moment on
    #[arg(long, value_name = "TIME")]
    to: Option<Moment>,
}

/// A moment in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moment(f64);

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        if let Ok(seconds) = text.parse::<f64>()
            && seconds.is_finite()
        {
            return Ok(Moment(seconds));
        }
        let full = full(text);
        let moment = OffsetDateTime::parse(&full, &Rfc3339).map_err(
            |_| "write a moment such as 2026-11-22, 2026-11-22T08:00 or 2026-11-22T08:00:30+09:00",
        )?;
        Ok(Moment(moment.unix_timestamp_nanos() as f64 / 1e9))
    }
}

/// A date with what was left out: the time, the seconds, the offset.
fn full(text: &str) -> String {
    let (date, rest) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let end = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (time, offset) = rest.split_at(end);
    let seconds = match time.matches(':').count() {
        1 => ":00",
        _ => "",
    };
    let offset = if offset.is_empty() { "Z" } else { offset };
    format!("{date}T{time}{seconds}{offset}")
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Cat(cat) => print(&cat.source),
        Command::Cut(arguments) => cut(arguments),
        Command::Summary(arguments) => summary::run(arguments),
    }
}

fn print(source: &Source) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    source.read(|told| {
        out.write_all(&told.text).map_err(Failure::unsaid)?;
        out.write_all(b"\n").map_err(Failure::unsaid)
    })?;
    out.flush().map_err(Failure::unsaid)
}

fn cut(arguments: &Cut) -> Result<(), Failure> {
    let path = &arguments.output;
    let fail = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::cannot(
            "write",
            path.display(),
            "the file exists; name another file",
        ),
        _ => Failure::cannot("write", path.display(), error),
    };
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let mut part = Part::new(path, options.open(path).map_err(fail)?).map_err(fail)?;
    let mut has_header = false;
    let done = arguments.source.read(|told| {
        let is_header = matches!(told.line, Line::Record(_));
        match is_header && std::mem::replace(&mut has_header, true) {
            true => Ok(()),
            false => part.write(&told.text).map_err(fail),
        }
    });
    let ended = done.and_then(|()| part.finish().map_err(fail));
    if ended.is_err() {
        // Half a record must not look like a whole one.
        let _ = std::fs::remove_file(path);
    }
    ended
}

/// A new file with lines, compressed if its name says so: other programs go by the name.
enum Part {
    Compressed(Writer),
    Plain(BufWriter<File>),
}

impl Part {
    fn new(path: &Path, file: File) -> io::Result<Part> {
        match path.extension().is_some_and(|last| last == "zst") {
            true => Writer::new(file).map(Part::Compressed),
            false => Ok(Part::Plain(BufWriter::new(file))),
        }
    }

    /// Adds a line.
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        match self {
            Part::Compressed(writer) => writer.write_text(text),
            Part::Plain(file) => file.write_all(text).and_then(|()| file.write_all(b"\n")),
        }
    }

    /// Ends the file: it is whole.
    fn finish(self) -> io::Result<()> {
        match self {
            Part::Compressed(writer) => writer.finish(),
            Part::Plain(mut file) => file.flush(),
        }
    }
}

impl Source {
    /// Passes on the lines of the records within the given time, in the order of the files.
    pub(crate) fn read(
        &self,
        mut take: impl FnMut(&Told) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let from = self.from.map_or(f64::MIN, |moment| moment.0);
        let to = self.to.map_or(f64::MAX, |moment| moment.0);
        if from > to {
            return Err(Failure::usage("--from is later than --to"));
        }
        // What holds at the beginning, until a line follows.
        let mut before = BTreeMap::new();
        for path in self.files()? {
            let (mut lines, mut is_empty) = (open(&path)?, true);
            let mut teller = String::new();
            for told in &mut lines {
                let told = told.map_err(Failure::failed)?;
                is_empty = false;
                let time = told.line.time();
                if let Line::Record(header) = &told.line {
                    teller.clone_from(&header.server);
                    take(&told)?;
                } else if time.is_some_and(|time| time < from) {
                    if let Some(subject) = subject(&told.line) {
                        before.insert((subject, teller.clone()), told);
                    }
                } else if time.is_none_or(|time| time < to) {
                    for (_, told) in std::mem::take(&mut before) {
                        take(&told)?;
                    }
                    take(&told)?;
                }
            }
            // Even a record without calls has a first line.
            if (lines.is_cut() || is_empty) && !is_part(&path) {
                failure::say(format_args!(
                    "warning: {} is cut off: whatever followed its last whole line is missing",
                    path.display()
                ));
            }
        }
        // What nothing follows holds to the end.
        before.values().try_for_each(take)
    }

    /// The files, in order.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut all = Vec::new();
        for path in &self.records {
            if !path.is_dir() {
                all.push(path.clone());
                continue;
            }
            let beside = path.join("record");
            let folder = if beside.is_dir() { &beside } else { path };
            let found = files(folder);
            let found = found.map_err(|error| Failure::cannot("read", folder.display(), error))?;
            if found.is_empty() {
                let text = format!("there is no record of calls in {}", folder.display());
                return Err(Failure::failed(text));
            }
            all.extend(found);
        }
        // A file that is named twice, such as by its folder too, is read once.
        let mut seen = BTreeSet::new();
        all.retain(|path| {
            path.canonicalize()
                .ok()
                .is_none_or(|real| seen.insert(real))
        });
        Ok(all)
    }
}

/// Whether a server writes the file, or was killed while it did.
fn is_part(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "part")
}

/// Opens a file. Its server may have ended it since it was found.
fn open(path: &Path) -> Result<Lines<io::BufReader<File>>, Failure> {
    match Lines::open(path) {
        Err(_) if is_part(path) && !path.exists() => Lines::open(&path.with_extension("")),
        opened => opened,
    }
    .map_err(Failure::failed)
}

/// What a line describes that holds until its writer tells of it again: a server, or its path to a
/// host. The last part is whether a server tells it of itself: a metaserver knows when the server
/// was lost, and not the policy of its queue.
fn subject(line: &Line) -> Option<(String, String, bool)> {
    match line {
        Line::Server(server) => {
            let is_own = matches!(server.event.as_str(), "started" | "stopped");
            Some((server.server.clone(), String::new(), is_own))
        }
        Line::Link(link) => Some((link.server.clone(), link.host.clone(), false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_record::{Header, Link, SCHEMA, Server};

    #[test]
    fn what_a_server_and_a_metaserver_say_holds_side_by_side() {
        let of = |event: &str| {
            let server = Server {
                event: event.to_owned(),
                ..Server::default()
            };
            subject(&Line::Server(Box::new(server)))
        };
        assert_eq!(of("started"), of("stopped"));
        assert_eq!(of("joined"), of("lost"));
        assert_ne!(of("started"), of("joined"));
    }

    #[test]
    fn what_two_metaservers_say_of_a_path_holds_side_by_side() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, times: &[f64]| {
            let mut text = Vec::new();
            let header = Line::Record(Header {
                schema: SCHEMA,
                server: format!("meta://{name}"),
                ..Header::default()
            });
            header.write(&mut text);
            for time in times {
                let link = Line::Link(Link {
                    time: *time,
                    ..Link::default()
                });
                link.write(&mut text);
            }
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let source = Source {
            records: vec![file("a", &[1.0, 2.0]), file("b", &[1.5, 6.0])],
            from: Some(Moment(5.0)),
            to: None,
        };
        let mut times = Vec::new();
        let told = source.read(|told| {
            if let Line::Link(link) = &told.line {
                times.push(link.time);
            }
            Ok(())
        });
        told.unwrap();
        assert_eq!(times, [2.0, 1.5, 6.0]);
    }

    #[test]
    fn a_server_that_says_nothing_in_a_part_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, times: &[f64]| {
            let mut text = Vec::new();
            Line::Record(Header {
                schema: SCHEMA,
                ..Header::default()
            })
            .write(&mut text);
            for time in times {
                let server = Server {
                    time: *time,
                    server: name.to_owned(),
                    event: "started".to_owned(),
                    ..Server::default()
                };
                Line::Server(Box::new(server)).write(&mut text);
            }
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (busy, idle) = (file("busy", &[1.0, 6.0]), file("idle", &[2.0, 9.0]));
        for records in [[busy.clone(), idle.clone()], [idle, busy]] {
            let source = Source {
                records: records.into(),
                from: Some(Moment(5.0)),
                to: Some(Moment(8.0)),
            };
            let mut told = Vec::new();
            let read = source.read(|one| {
                if let Line::Server(server) = &one.line {
                    told.push((server.server.clone(), server.time));
                }
                Ok(())
            });
            read.unwrap();
            told.sort_by(|one, other| one.1.total_cmp(&other.1));
            let told: Vec<(&str, f64)> = told.iter().map(|(name, time)| (&**name, *time)).collect();
            assert_eq!(told, [("busy", 1.0), ("idle", 2.0), ("busy", 6.0)]);
        }
    }

    #[test]
    fn a_part_is_compressed_if_its_name_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut text = Vec::new();
        Line::Record(Header {
            schema: SCHEMA,
            ..Header::default()
        })
        .write(&mut text);
        let whole = folder.path().join("whole");
        std::fs::write(&whole, &text).unwrap();
        let part = |name: &str| {
            let output = folder.path().join(name);
            let source = Source {
                records: vec![whole.clone()],
                from: None,
                to: None,
            };
            let arguments = Cut {
                source,
                output: output.clone(),
            };
            cut(&arguments).unwrap();
            let mut lines = open(&output).unwrap();
            assert!(lines.by_ref().all(|told| told.is_ok()) && !lines.is_cut());
            std::fs::read(output).unwrap()
        };
        assert_eq!(part("part.jsonl"), text);
        assert_ne!(part("part.jsonl.zst"), text);
    }

    #[test]
    fn moments_may_leave_out_what_is_usual() {
        let read = |text: &str| text.parse::<Moment>().map(|moment| moment.0);
        assert_eq!(read("1700000000.5"), Ok(1_700_000_000.5));
        for text in [
            "2023-11-14T22:13:20Z",
            "2023-11-14 22:13:20",
            "2023-11-15T07:13:20+09:00",
        ] {
            assert_eq!(read(text), Ok(1_700_000_000.0), "{text}");
        }
        assert_eq!(read("2023-11-14T22:13"), Ok(1_699_999_980.0));
        assert_eq!(read("2023-11-14"), Ok(1_699_920_000.0));
        assert!(read("yesterday").unwrap_err().contains("2026-11-22T08:00"));
        assert!(read("NaN").is_err() && read("2023-13-01").is_err());
    }
}
