//! Arrays that stay at a server: `farcall put`, `get` and `drop`.

pub(crate) mod drop;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod put;

use farcall_client::{Argument, ArrayForm, DataName, Error, Handle, HandleId, Server};

/// What names an array at a server where a call takes an array: `a=handle:ID`.
const HANDLE: &str = "handle:";
/// What names data where a call takes an array: `a=data:NAME`.
const DATA: &str = "data:";

/// An array at a server.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    Handle(HandleId),
    Data(DataName),
}

impl Kept {
    pub(crate) fn argument(&self) -> Argument<'static> {
        match self {
            Kept::Handle(id) => Argument::Handle(*id),
            Kept::Data(name) => Argument::Named(name.clone()),
        }
    }

    fn find(&self, server: &Server) -> Result<Handle, Error> {
        match self {
            Kept::Handle(id) => server.handle(*id),
            Kept::Data(name) => server.data(name),
        }
    }
}

/// What `handle:ID` or `data:NAME` names; nothing where it is neither.
pub(crate) fn named(text: &str) -> Option<Result<Kept, String>> {
    let is_kept = text.starts_with(HANDLE) || text.starts_with(DATA);
    is_kept.then(|| kept(text))
}

/// `ID` as `farcall put` prints it, `handle:ID`, or `data:NAME`.
fn kept(text: &str) -> Result<Kept, String> {
    if let Some(name) = text.strip_prefix(DATA) {
        return name
            .parse()
            .map(Kept::Data)
            .map_err(|error| format!("{error}"));
    }
    let id = text.strip_prefix(HANDLE).unwrap_or(text).parse();
    id.map(Kept::Handle).map_err(|error| {
        format!("{error}, and data are data:NAME; `farcall get` and `farcall ls --data` list them")
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
