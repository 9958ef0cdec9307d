//! Arrays that stay at a server: `farcall put`, `get` and `drop`.

pub(crate) mod drop;
pub(crate) mod get;
pub(crate) mod put;

use farcall_client::{ArrayForm, HandleId};

/// What names an array at a server where a call takes an array: `a=handle:ID`.
const PREFIX: &str = "handle:";

/// The id in `handle:ID`, or nothing where it is no handle.
pub(crate) fn named(text: &str) -> Option<Result<HandleId, String>> {
    text.strip_prefix(PREFIX).map(id)
}

/// The id of an array, as `farcall put` prints it.
fn id(text: &str) -> Result<HandleId, String> {
    let id = text.strip_prefix(PREFIX).unwrap_or(text).parse();
    id.map_err(|error| format!("{error}; `farcall get` lists the arrays there are"))
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
