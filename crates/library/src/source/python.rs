//! The Python interpreter: starts it for the interfaces that a module declares, and names the
//! command of a worker for such modules. The module runs in a process of its own and never in the
//! server. Its output is bounded like an interface file.

use super::SourceError;
use farcall_idl::MAX_DOCUMENT;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The module of the `farcall` package that lists the declared functions and runs them.
const MODULE: &str = "farcall._worker";

/// The module of the `farcall` package whose functions run pickled functions.
const PICKLED: &str = "farcall._pickled.python";

/// The module of the `farcall` package that reads sources.
const CONNECTOR: &str = "farcall._connector";

/// The module of the `farcall` package that speaks Arrow Flight.
const FLIGHT: &str = "farcall._flight";

/// The module of the `farcall` package that drafts interfaces.
const DRAFT: &str = "farcall._draft";

/// The interpreter: `FARCALL_PYTHON`, or the one beside this program (in a virtual environment both
/// are in one folder), or `python3`.
fn interpreter() -> OsString {
    if let Some(named) = std::env::var_os("FARCALL_PYTHON").filter(|name| !name.is_empty()) {
        return named;
    }
    let beside = std::env::current_exe().map(|program| program.with_file_name("python3"));
    match beside {
        Ok(path) if path.is_file() => path.into(),
        _ => "python3".into(),
    }
}

/// Program and arguments that start a worker for the functions of Python modules.
pub fn python_worker() -> (OsString, Vec<String>) {
    let arguments = ["-u", "-m", MODULE, "worker"];
    (interpreter(), arguments.map(str::to_string).into())
}

/// Program and arguments that start a connector, which reads sources for a server.
pub fn python_connector() -> (OsString, Vec<String>) {
    let arguments = ["-m", CONNECTOR];
    (interpreter(), arguments.map(str::to_string).into())
}

/// Program and arguments of the gateway for Arrow Flight; one more argument has its settings.
pub fn python_flight() -> (OsString, Vec<String>) {
    (interpreter(), quiet(FLIGHT))
}

/// Program and arguments that draft an interface; more arguments name the files.
pub fn python_draft() -> (OsString, Vec<String>) {
    (interpreter(), quiet(DRAFT))
}

/// Arguments that run a module as `-m` does, and let Ctrl-C end the process without a traceback
/// while Python still imports the module. `signal` would itself take a time to import.
fn quiet(module: &str) -> Vec<String> {
    let code = format!(
        "import _signal; _signal.signal(_signal.SIGINT, _signal.SIG_DFL); \
         import importlib.util, runpy, sys; \
         importlib.util.find_spec('farcall') or sys.exit(sys.executable + ': No module named \
         farcall'); \
         runpy.run_module({module:?}, run_name='__main__', alter_sys=True)"
    );
    vec!["-c".to_string(), code]
}

/// The Python module whose functions run functions that users send.
///
/// # Errors
/// Python or the farcall package is missing.
pub fn pickled_functions() -> Result<PathBuf, SourceError> {
    let path = ask("where", Path::new(PICKLED))?;
    Ok(PathBuf::from(path.trim_end()))
}

/// The interfaces that a module declares.
pub(crate) fn declarations(path: &Path) -> Result<String, SourceError> {
    ask("declare", path)
}

/// Asks the package about a module.
fn ask(question: &str, path: &Path) -> Result<String, SourceError> {
    let interpreter = interpreter();
    let output = Command::new(&interpreter)
        .args(["-m", MODULE, question])
        .arg(path)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| SourceError::NoPython {
        path: path.into(),
        interpreter: interpreter.to_string_lossy().into_owned(),
        error,
    })?;
    if !output.status.success() {
        let mut messages = String::from_utf8_lossy(&output.stderr)
            .trim_end()
            .to_string();
        if messages.contains("No module named") && messages.contains(MODULE) {
            let name = interpreter.to_string_lossy();
            messages = format!(
                "{messages}; install the farcall package for it (`{name} -m pip install farcall`), \
                 or name another interpreter in FARCALL_PYTHON"
            );
        }
        return Err(SourceError::Python {
            path: path.into(),
            messages,
        });
    }
    if output.stdout.len() > MAX_DOCUMENT {
        return Err(SourceError::TooLong { path: path.into() });
    }
    String::from_utf8(output.stdout).map_err(|_| SourceError::Read {
        path: path.into(),
        error: io::Error::new(io::ErrorKind::InvalidData, "the text is not UTF-8"),
    })
}
