//! The folders of a user, as the XDG Base Directory Specification names them. An empty variable
//! counts as one that is not set. Nothing here makes a folder.

use std::ffi::OsString;
use std::path::PathBuf;

/// A variable of the environment that is not empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The folder of state: `$XDG_STATE_HOME/farcall`, or `~/.local/state/farcall`.
pub(crate) fn state() -> Option<PathBuf> {
    folder("XDG_STATE_HOME", ".local/state")
}

/// The folder of data: `$XDG_DATA_HOME/farcall`, or `~/.local/share/farcall`.
pub(crate) fn data() -> Option<PathBuf> {
    folder("XDG_DATA_HOME", ".local/share")
}

fn folder(name: &str, below_home: &str) -> Option<PathBuf> {
    let home = || Some(PathBuf::from(variable("HOME")?).join(below_home));
    let folder = variable(name).map(PathBuf::from).or_else(home)?;
    Some(folder.join("farcall"))
}
