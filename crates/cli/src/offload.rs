//! `farcall offload`: runs a program whose numerical library calls go to a server, and makes the
//! drop-in libraries that do it. It sets the environment of the program; the crate
//! `farcall-offload` does the rest inside the program.

mod build;

use crate::failure::Failure;
use crate::{installed, target};
use clap::{Args, Subcommand};
use farcall_offload::{library, settings};
use farcall_spelling::closest;
use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

/// The drop-in library that comes with the command, with LAPACK, BLAS 3 and CBLAS.
const LIBRARY: &str = "libfarcall_lapack.so";
/// The client library, which has the runtime of all drop-in libraries.
const RUNTIME: &str = "libfarcall.so.1";

/// Run a program, unmodified, and let a server compute its LAPACK and BLAS calls that pay
///
/// A call goes to the server if it ends sooner there. All others, and all calls that fail, run in
/// the program as without this command. Programs that are linked statically are out of reach.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  farcall offload --server farcall://host:3717 -- octave script.m
  farcall offload --stats -- python3 fit.py
  farcall offload --always --only dgesv,dgemm --verify --stats -- ./solver
  farcall offload build libraries/lapack.idl libraries/blas.idl -o dropin")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Address of the server, or meta://HOST:PORT for all servers behind a metaserver [default:
    /// FARCALL_SERVER, or FARCALL_METASERVER, or farcall://localhost:3717]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Routines or modules that may go to the server, with commas between them [default: all]
    #[arg(long, value_name = "LIST")]
    only: Option<String>,
    /// Send every call that the server can compute, of any size
    #[arg(long, conflicts_with = "auto")]
    always: bool,
    /// Send the calls that pay; this is the default
    #[arg(long)]
    auto: bool,
    /// Compute every remote call in the program, too, and compare the results in --stats
    #[arg(long)]
    verify: bool,
    /// Print what happened to the calls of each routine, on standard error, when the program ends
    #[arg(long)]
    stats: bool,
    /// Drop-in library to use [default: the one that comes with this command]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Program to run, and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Subcommand)]
enum Command {
    Build(build::Arguments),
    /// Show which functions of a program a server can compute
    ///
    /// The program runs as usual and sends nothing. When it ends, the command prints on standard
    /// error, for each library and program file, the functions that it takes from libraries of
    /// linear algebra: those that can go to a server, and those that stay.
    #[command(after_help = "Examples:
  farcall offload explain -- python3 s.py
  farcall offload explain -- R --vanilla -f script.R")]
    Explain {
        /// Drop-in library to use [default: the one that comes with this command]
        #[arg(long, value_name = "FILE")]
        library: Option<PathBuf>,
        /// Program to run, and its arguments
        #[arg(last = true, required = true, value_name = "PROGRAM")]
        program: Vec<OsString>,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Some(Command::Build(arguments)) => build::run(arguments),
        Some(Command::Explain { library, program }) => {
            let mut command = preloaded(library.as_deref(), program)?;
            Err(become_program(command.env(settings::EXPLAIN, "1")))
        }
        None => offload(arguments),
    }
}

/// The program, to be started with the drop-in library.
fn preloaded(library: Option<&Path>, program: &[OsString]) -> Result<Process, Failure> {
    let Some((program, words)) = program.split_first() else {
        let text = "no program is given; put it after `--`: farcall offload -- python3 s.py";
        return Err(Failure::usage(text));
    };
    let library = match library {
        Some(library) => library.canonicalize().map_err(|error| {
            Failure::cannot("use the drop-in library", library.display(), error)
        })?,
        None => installed::library(LIBRARY)?,
    };
    check_path(&library)?;
    let mut command = Process::new(program);
    command
        .args(words)
        .env("LD_PRELOAD", with_others(library.as_os_str()));
    Ok(command)
}

/// Becomes the program; returns only on failure.
fn become_program(command: &mut Process) -> Failure {
    let error = command.exec();
    Failure::cannot("run", Path::new(command.get_program()).display(), error)
}

fn offload(arguments: &Arguments) -> Result<(), Failure> {
    // The program goes on without a server, so it would not tell of a wrong address.
    let named = arguments.server.clone();
    let named = named.unwrap_or_else(farcall_client::default_address);
    target::check(&named)?;
    let mut command = preloaded(arguments.library.as_deref(), &arguments.program)?;
    if let Some(only) = &arguments.only {
        check_names(only, &command)?;
    }
    let mode = if arguments.always { "always" } else { "auto" };
    command.env(settings::MODE, mode);
    let flags = [
        (settings::VERIFY, arguments.verify),
        (settings::STATISTICS, arguments.stats),
    ];
    for (name, is_set) in flags {
        command.env(name, if is_set { "1" } else { "0" });
    }
    match &arguments.only {
        Some(only) => command.env(settings::ONLY, only),
        None => command.env_remove(settings::ONLY),
    };
    if let Some(server) = &arguments.server {
        command.env("FARCALL_SERVER", server);
    }
    Err(become_program(&mut command))
}

/// Refuses names that no drop-in library of the program has: nothing would go to the server, and
/// nobody would tell.
fn check_names(only: &str, command: &Process) -> Result<(), Failure> {
    let mut variables = command.get_envs();
    let preloaded = variables.find_map(|(name, value)| value.filter(|_| name == "LD_PRELOAD"));
    let files = preloaded.unwrap_or_default().to_string_lossy();
    let mut known = BTreeSet::new();
    for file in files.split(SEPARATORS) {
        // The linker reports a file that is missing.
        known
            .extend(std::fs::read(file).map_or_else(|_| BTreeSet::new(), |it| library::names(&it)));
    }
    let wanted = only
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    for name in wanted {
        if known.iter().any(|one| one.eq_ignore_ascii_case(name)) {
            continue;
        }
        let close = closest(name, known.iter().map(String::as_str), 2);
        let hint = close.map_or_else(
            || "`farcall offload explain` shows the routines of a program".to_string(),
            |close| format!("did you mean `{close}`?"),
        );
        let text = format!("--only: the drop-in library has no routine or module `{name}`; {hint}");
        return Err(Failure::usage(text));
    }
    Ok(())
}

/// What stands between the files of `LD_PRELOAD`.
const SEPARATORS: [char; 2] = [':', ' '];

/// Refuses a library that the dynamic linker would not find, because its path is two words there.
/// The program would run without it, and nobody would tell.
fn check_path(library: &Path) -> Result<(), Failure> {
    match library.to_string_lossy().contains(SEPARATORS) {
        true => Err(Failure::usage(format!(
            "cannot use the drop-in library {}: blanks and colons separate paths in LD_PRELOAD. \
             Copy it to a folder without them, and name it with --library",
            library.display()
        ))),
        false => Ok(()),
    }
}

/// The value of `LD_PRELOAD`: this library before those that are already there.
fn with_others(library: &OsStr) -> OsString {
    let mut list = library.to_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

/// Removes the drop-in library from the environment, so that the processes that a server starts
/// call their libraries themselves.
pub(crate) fn leave() {
    let Some(list) = env::var_os("LD_PRELOAD") else {
        return;
    };
    let text = list.to_string_lossy();
    let is_other = |path: &&str| {
        let file = path.rsplit('/').next().unwrap_or_default();
        !path.is_empty() && !file.starts_with("libfarcall_")
    };
    let others: Vec<&str> = text.split(SEPARATORS).filter(is_other).collect();
    // SAFETY: no other thread runs yet.
    unsafe {
        match others.is_empty() {
            true => env::remove_var("LD_PRELOAD"),
            false => env::set_var("LD_PRELOAD", others.join(":")),
        }
        env::set_var(settings::MODE, "off");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_the_linker_does_not_find_is_refused() {
        assert!(check_path(Path::new("/opt/farcall/libfarcall_lapack.so")).is_ok());
        for path in [
            "/opt/my programs/libfarcall_lapack.so",
            "/opt/a:b/libfarcall_lapack.so",
        ] {
            let told = format!("{:?}", check_path(Path::new(path)).unwrap_err());
            assert!(told.contains(path) && told.contains("LD_PRELOAD"), "{told}");
        }
    }
}
