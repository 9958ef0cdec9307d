//! Stored arrays and named data: `farcall data`, and how other commands name an array. A text that
//! begins with neither `handle:` nor `data:` is not taken for an array at a server.

pub(crate) mod drop;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod put;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use farcall_client::{
    Argument, ArrayForm, DataName, Error, Handle, HandleId, NoSource, Server, Source,
};

/// The prefix of a stored array as an argument of a call: `a=handle:ID`.
const HANDLE: &str = "handle:";
/// The prefix of named data as an argument of a call: `a=data:NAME`.
const DATA: &str = "data:";

/// Store arrays at a server, for calls to use
///
/// A stored array has an id, and calls take it as handle:ID. Named data have a name, which all
/// servers behind a metaserver know, and calls take them as data:NAME.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall data put atoms=@atoms.npy
  farcall data list
  farcall call forces n=1000 atoms=data:atoms
  farcall data get data:atoms -o copy.npy
  farcall data drop data:atoms")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Put(put::Arguments),
    Get(get::Arguments),
    List(list::Arguments),
    Drop(drop::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Put(arguments) => put::run(arguments),
        Command::Get(arguments) => get::run(arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Drop(arguments) => drop::run(arguments),
    }
}

/// An array at a server.
#[derive(Clone, Debug)]
pub(crate) enum Stored {
    Handle(HandleId),
    Data(DataName),
}

/// An array that is not on this machine.
#[derive(Clone, Debug)]
pub(crate) enum Remote {
    Stored(Stored),
    /// It is at an address outside of Farcall.
    Source(Box<Source>),
}

impl Remote {
    pub(crate) fn argument(&self) -> Argument<'static> {
        match self {
            Remote::Stored(Stored::Handle(id)) => Argument::Handle(*id),
            Remote::Stored(Stored::Data(name)) => Argument::Named(name.clone()),
            Remote::Source(source) => Argument::Source(source.clone()),
        }
    }
}

impl Stored {
    fn find(&self, server: &Server) -> Result<Handle, Error> {
        match self {
            Stored::Handle(id) => server.handle(*id),
            Stored::Data(name) => server.data(name),
        }
    }
}

/// The array of `handle:ID`, `data:NAME` or `@ADDRESS`; nothing for any other text.
pub(crate) fn named(text: &str) -> Option<Result<Remote, String>> {
    if let Some(address) = text.strip_prefix('@').filter(|text| is_address(text)) {
        let source = address.parse().map_err(|error: NoSource| error.to_string());
        return Some(source.map(|source| Remote::Source(Box::new(source))));
    }
    let is_stored = text.starts_with(HANDLE) || text.starts_with(DATA);
    is_stored.then(|| stored(text).map(Remote::Stored))
}

/// Whether a text behind `@` is an address outside of Farcall, and no file of this machine.
fn is_address(text: &str) -> bool {
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    let is_word = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_local = ["folder", "sqlite", "file"].contains(&scheme);
    is_word && (is_local || text[scheme.len()..].starts_with("://"))
}

/// `ID` as `farcall data put` prints it, `handle:ID`, or `data:NAME`.
fn stored(text: &str) -> Result<Stored, String> {
    if let Some(name) = text.strip_prefix(DATA) {
        return name
            .parse()
            .map(Stored::Data)
            .map_err(|error| format!("{error}"));
    }
    let id = text.strip_prefix(HANDLE).unwrap_or(text).parse();
    id.map(Stored::Handle).map_err(|error| {
        format!("{error}; named data are data:NAME; `farcall data list` lists both")
    })
}

/// `double (1000, 1000) in columns`.
fn shown(form: &ArrayForm) -> String {
    let order = match (form.shape.len(), form.column_major) {
        (0 | 1, _) => "",
        (_, true) => " in columns",
        (_, false) => " in rows",
    };
    format!("{} {:?}{order}", form.element, form.shape)
}
