//! Libraries that come with this program. They are beside it, in `lib/farcall` or `lib` of an
//! installation, or in a clone of the project. This module only finds them; `library` knows the
//! interface files.

use crate::failure::Failure;
use std::env;
use std::path::{Path, PathBuf};

/// Folders with libraries: where `make build` puts them, and of an installation.
const LIBRARIES: [&str; 4] = [".", "offload", "../lib/farcall", "../lib"];

/// A library that comes with this program.
pub(crate) fn library(name: &str) -> Result<PathBuf, Failure> {
    let own = env::current_exe()?;
    let program = own.parent().unwrap_or(Path::new("."));
    // Debian has libraries in a folder for the processor.
    let debian = format!("../lib/{}-linux-gnu", env::consts::ARCH);
    let mut found = LIBRARIES
        .into_iter()
        .chain([&*debian])
        .map(|folder| program.join(folder).join(name));
    let found = found.find(|path| path.is_file());
    found
        .and_then(|path| path.canonicalize().ok())
        .ok_or_else(|| {
            Failure::failed(format!(
                "cannot find {name} in {0}, {0}/offload, {0}/../lib/farcall or {0}/../lib, where \
                 packages put it; in a clone of the project, `make build` makes it",
                program.display()
            ))
        })
}
