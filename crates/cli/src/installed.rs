//! Files that come with this program: interface files, which commands take by name, and libraries.
//! They are beside the program, in `lib/farcall` of an installation, or in a clone of the project.
//! This module only finds them.

use crate::failure::Failure;
use std::env;
use std::path::{Path, PathBuf};

/// Folders with interface files, from that of the program: of an installation, and of a clone.
const INTERFACES: [&str; 2] = ["../lib/farcall", "../../libraries"];

/// Folders with libraries: where cargo puts them, where `make build` does, and of an installation.
const LIBRARIES: [&str; 3] = ["deps", "offload", "../lib/farcall"];

/// The interface file that a word on the command line means: a path contains `/` or `.`, and
/// everything else is the name of an interface file that comes with the program.
pub(crate) fn interface(word: &str) -> Result<PathBuf, String> {
    let folders = match program() {
        Ok(program) if !word.contains(['/', '.']) => within(&program, &INTERFACES),
        _ => return Ok(PathBuf::from(word)),
    };
    let file = format!("{word}.idl");
    let found = folders.iter().map(|folder| folder.join(&file));
    if let Some(path) = found.into_iter().find(|path| path.is_file()) {
        return Ok(path.canonicalize().unwrap_or(path));
    }
    let known = names(&folders);
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    Err(
        match farcall_spelling::closest(word, known.iter().copied(), 2) {
            Some(near) => format!("no interface has this name; did you mean `{near}`?"),
            None if known.is_empty() => format!(
                "no interface has this name, and none comes with this program; a path contains \
                 `/` or `.`, such as ./{file}"
            ),
            None => format!(
                "no interface has this name; those that come with the program are {}; a path \
                 contains `/` or `.`, such as ./{file}",
                known.join(", ")
            ),
        },
    )
}

/// A library that comes with this program.
pub(crate) fn library(name: &str) -> Result<PathBuf, Failure> {
    let program = program()?;
    let folders = within(&program, &LIBRARIES).into_iter();
    let found = folders.map(|folder| folder.join(name));
    let mut found = found.filter(|path| path.is_file());
    found
        .next()
        .and_then(|path| path.canonicalize().ok())
        .ok_or_else(|| {
            Failure::failed(format!(
                "cannot find {name} in {0}/offload or {0}/../lib/farcall, where the package puts \
                 it; in a clone of the project, `make build` makes it",
                program.display()
            ))
        })
}

/// The folder of this program.
fn program() -> std::io::Result<PathBuf> {
    let own = env::current_exe()?;
    Ok(own.parent().unwrap_or(Path::new(".")).to_path_buf())
}

fn within(program: &Path, folders: &[&str]) -> Vec<PathBuf> {
    folders.iter().map(|folder| program.join(folder)).collect()
}

/// The names of the interface files in these folders, in order.
fn names(folders: &[PathBuf]) -> Vec<String> {
    let files = folders.iter().filter_map(|folder| folder.read_dir().ok());
    let files = files.flatten().flatten().map(|entry| entry.path());
    let named = files.filter_map(|path| {
        let name = path.file_stem()?.to_str()?.to_owned();
        (path.extension()? == "idl").then_some(name)
    });
    let mut names: Vec<String> = named.collect();
    names.sort();
    names.dedup();
    names
}
