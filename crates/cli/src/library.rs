//! `farcall library`: the interface files that `farcall serve` knows by name. A name has neither
//! `/` nor `.`, which every path of an interface file has. The files of the user come before those
//! of the installation.

use crate::failure::{self, Failure};
use crate::folders;
use clap::{Args, Subcommand};
use farcall_idl::{Document, Library};
use farcall_library::{Catalog, Source};
use farcall_quantity::counted;
use farcall_spelling::closest;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// List the libraries that `farcall serve NAME` knows, show one, or add one
#[derive(Args)]
#[command(after_help = "Examples:
  farcall library list
  farcall library info lapack
  farcall library add ./heat.idl
  farcall serve lapack fftw")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the libraries that can be served by name
    #[command(after_help = "Example:\n  farcall library list")]
    List,
    /// Show the functions of a library, and what it needs on this machine
    #[command(after_help = "Example:\n  farcall library info lapack")]
    Info {
        /// Name of the library
        name: String,
    },
    /// Add an interface file, which stays where it is, to those that can be served by name
    #[command(after_help = "Example:\n  farcall library add ./heat.idl")]
    Add {
        /// Interface file, or Python module
        file: PathBuf,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::List => list(),
        Command::Info { name } => info(name),
        Command::Add { file } => add(file),
    }
}

/// Other names of libraries.
const ALIASES: [(&str, &str); 1] = [("fftw", "fft")];

/// The interface file that a word on the command line means: a path, or a name.
pub(crate) fn interface(word: &str) -> Result<PathBuf, String> {
    match is_name(Path::new(word)) {
        true => find(word),
        false => Ok(PathBuf::from(word)),
    }
}

/// Whether a word is a name and not a path.
fn is_name(file: &Path) -> bool {
    let text = file.to_string_lossy();
    !text.is_empty() && !text.contains(['/', '.'])
}

/// The interface file with a name.
fn find(name: &str) -> Result<PathBuf, String> {
    let known = known();
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let by_alias = || known.get(alias?.1);
    // A library of the user may have such a name.
    known.get(name).or_else(by_alias).cloned().ok_or_else(|| {
        let names = known.keys().map(String::as_str);
        let hint = match closest(name, names.clone(), 2) {
            Some(known) => format!("did you mean `{known}`?"),
            None if known.is_empty() => "no libraries are installed.".to_owned(),
            None => format!("known are {}.", names.collect::<Vec<_>>().join(", ")),
        };
        let file = match name.contains(['/', '.']) {
            true => "To name a file, add it first: `farcall library add FILE`".to_owned(),
            false => format!("Name a file as `./{name}.idl`"),
        };
        format!("there is no library `{name}`; {hint} {file}")
    })
}

/// The interface files by name.
fn known() -> BTreeMap<String, PathBuf> {
    let mut known = BTreeMap::new();
    for folder in folders() {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let is_interface = path
                .extension()
                .is_some_and(|end| end == "idl" || end == "py");
            let is_build_script = path.file_name().is_some_and(|name| name == "generate.py");
            // A link of `farcall library add`: names of libraries start at the folder of the file.
            let file = std::fs::canonicalize(&path).ok().filter(|_| is_interface);
            let name = path
                .file_stem()
                .map(|stem| stem.to_string_lossy().into_owned());
            if let (Some(file), Some(name), false) = (file, name, is_build_script) {
                known.entry(name).or_insert(file);
            }
        }
    }
    known
}

/// The folders of interface files, the user's first.
fn folders() -> Vec<PathBuf> {
    let named = std::env::var_os("FARCALL_LIBRARIES").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&named).collect();
    folders.retain(|folder| !folder.as_os_str().is_empty());
    folders.extend(own_folder());
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent);
    // An installation, and the tree of the sources with its `target/release` and its tests.
    let installed = ["../lib/farcall", "../../libraries", "../../../libraries"];
    folders.extend(
        beside
            .iter()
            .flat_map(|beside| installed.map(|one| beside.join(one))),
    );
    folders
}

/// The folder of the user's own files.
fn own_folder() -> Option<PathBuf> {
    Some(folders::data()?.join("libraries"))
}

fn list() -> Result<(), Failure> {
    let known = known();
    if known.is_empty() {
        return Err(Failure::failed("no libraries are installed"));
    }
    let width = known.keys().map(String::len).max().unwrap_or(0);
    for (name, path) in known {
        let about = match Source::is_module(&path) {
            true => "a Python module".to_owned(),
            false => Source::read(&path).map_or_else(|error| error.to_string(), about),
        };
        println!("{name:width$}  {about}");
    }
    Ok(())
}

/// What the comment in front of a file says, in one sentence.
fn about(source: Source) -> String {
    let text = std::fs::read_to_string(&source.path).unwrap_or_default();
    let comment = text.trim_start().strip_prefix("/*");
    let comment = comment
        .and_then(|rest| rest.split_once("*/"))
        .map_or("", |(text, _)| text);
    let words: Vec<&str> = comment.split_whitespace().collect();
    let words = words.join(" ");
    let sentence = first_sentence(&words);
    let functions = source.parse().document.functions().count();
    let functions = counted(functions, "function");
    format!("{} ({functions})", sentence.trim_end_matches('.'))
}

/// The text up to its first full stop that another sentence follows: `Fig. 4` is none.
fn first_sentence(text: &str) -> &str {
    let mut stops = text.match_indices(". ").map(|(at, _)| at);
    let end = stops.find(|at| text[at + 2..].starts_with(char::is_uppercase));
    &text[..end.unwrap_or(text.len())]
}

fn info(name: &str) -> Result<(), Failure> {
    let path = find(name).map_err(Failure::usage)?;
    let catalog = Catalog::load([&path]).map_err(Failure::failed)?;
    println!("{}", path.display());
    for (_, document) in catalog.files() {
        for need in needs(document) {
            println!("needs {need}");
        }
        for interface in document.functions() {
            let description = interface.description.as_deref().unwrap_or_default();
            println!("{}  {description}", interface.qualified_name());
        }
    }
    Ok(())
}

fn needs(document: &Document) -> impl Iterator<Item = &str> {
    let libraries = document.libraries.iter();
    libraries.map(|library| match library {
        Library::Library(name) | Library::File(name) => name.as_str(),
    })
}

fn add(file: &Path) -> Result<(), Failure> {
    let file = std::fs::canonicalize(file)
        .map_err(|error| Failure::cannot("add", file.display(), &error))?;
    let is_interface = file
        .extension()
        .is_some_and(|end| end == "idl" || end == "py");
    let stem = file
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned());
    let Some(name) = stem.filter(|stem| is_interface && is_name(Path::new(stem))) else {
        let text =
            "an interface file ends in .idl, a Python module in .py, and its name has no dot";
        return Err(Failure::usage(text));
    };
    Catalog::load([&file]).map_err(Failure::failed)?;
    let folder = own_folder().ok_or_else(|| Failure::usage("set HOME or XDG_DATA_HOME"))?;
    check_new(&folder, &name, &file)?;
    std::fs::create_dir_all(&folder)?;
    let before = known().remove(&name);
    let link = folder.join(file.file_name().unwrap_or_default());
    if link.is_symlink() {
        std::fs::remove_file(&link)?;
    }
    std::os::unix::fs::symlink(&file, &link)
        .map_err(|error| Failure::cannot("add", link.display(), &error))?;
    println!("{name} -> {}", file.display());
    match (known().remove(&name), before) {
        (Some(now), _) if now != file => failure::say(format_args!(
            "warning: `{name}` still means {}, whose folder FARCALL_LIBRARIES names",
            now.display()
        )),
        (_, Some(before)) if before != file => failure::say(format_args!(
            "warning: `{name}` meant {} until now",
            before.display()
        )),
        _ => {}
    }
    Ok(())
}

/// Fails if another file that the user has added has this name.
fn check_new(folder: &Path, name: &str, file: &Path) -> Result<(), Failure> {
    for end in ["idl", "py"] {
        let own = folder.join(format!("{name}.{end}"));
        if let Ok(other) = std::fs::canonicalize(&own)
            && other != file
        {
            return Err(Failure::failed(format!(
                "`{name}` is {} already; remove {} first, or give the new file another name",
                other.display(),
                own.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_not_replaced_by_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        let [old, new] = ["old.idl", "new.idl"].map(|name| place.join(name));
        std::fs::write(&old, "").unwrap();
        assert!(check_new(&place, "heat", &new).is_ok());
        std::os::unix::fs::symlink(&old, place.join("heat.idl")).unwrap();
        assert!(check_new(&place, "heat", &old).is_ok(), "it is the same");
        let refused = check_new(&place, "heat", &new).unwrap_err().to_string();
        assert!(
            refused.contains("old.idl") && refused.contains("remove"),
            "{refused}"
        );
    }

    #[test]
    fn a_sentence_ends_where_another_one_begins() {
        let text = "ScaLAPACK, as in the paper (Fig. 4): solvers. A call has processes.";
        let first = "ScaLAPACK, as in the paper (Fig. 4): solvers";
        assert_eq!(first_sentence(text), first);
        assert_eq!(first_sentence(first), first);
    }
}
