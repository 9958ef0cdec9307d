//! `farcall doctor`: checks what works on this machine and at a server, and says how to mend the
//! rest. Each check is one `Finding`.

mod bundle;

use crate::failure::{self, Failure};
use crate::plain::one_line;
use crate::target::{self, Named};
use anstyle::AnsiColor;
use clap::Args;
use farcall_client::Server;
use farcall_library::{Binding, Source, python_worker};
use farcall_quantity::counted;
use rustix::thread::{CapabilitySet, capabilities};
use serde_json::json;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Check what works on this machine, and say what to do about the rest
///
/// The command checks this machine (what servers, trunks and gang jobs need) and a server (whether
/// it answers, how fast, and over which path). It fails if something that calls need does not work.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall doctor
  farcall doctor farcall://host:3717
  farcall doctor --json
  farcall doctor --bundle report.json --config /etc/farcall/farcall.toml --log farcall.log")]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Named,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Also write a new file for a report of a fault: what was found, versions, kernel, limits, the
    /// status of the server, and the files of --config and --log. It contains no tokens, keys and
    /// passwords; read it before you send it
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Configuration file of the server, for the bundle
    #[arg(long, value_name = "FILE", requires = "bundle")]
    config: Option<PathBuf>,
    /// Log of the server, for the bundle, which contains its end
    #[arg(long, value_name = "FILE", requires = "bundle")]
    log: Option<PathBuf>,
}

/// The device with which a trunk makes its interface.
const TUN: &str = "/dev/net/tun";

/// The state of one thing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    /// Something optional is missing.
    Missing,
    /// Calls do not work without it.
    Bad,
}

struct Finding {
    what: &'static str,
    state: State,
    /// What was found and, if something is wrong, what to do.
    text: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut findings = this_machine();
    findings.extend(server(arguments));
    let is_bad = findings.iter().any(|finding| finding.state == State::Bad);
    if arguments.json {
        println!("{}", to_json(&findings, str::to_owned));
    } else {
        for Finding { what, state, text } in &findings {
            let (colour, mark) = match state {
                State::Good => (AnsiColor::Green, "ok"),
                State::Missing => (AnsiColor::Yellow, "--"),
                State::Bad => (AnsiColor::Red, "!!"),
            };
            let colour = colour.on_default();
            let text = one_line(text);
            anstream::println!("{colour}{mark}{colour:#}  {what:12} {text}");
        }
    }
    let bundled = match &arguments.bundle {
        Some(path) => write_bundle(path, &findings, arguments),
        None => Ok(()),
    };
    if is_bad {
        if let Err(failure) = bundled {
            failure::print(failure);
        }
        return Err(Failure::failed(
            "something that calls need does not work; see the lines with `!!`",
        ));
    }
    bundled
}

fn write_bundle(path: &Path, findings: &[Finding], arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.server.connect().ok();
    let status = server.and_then(|server| server.status().ok());
    let files = (arguments.config.as_deref(), arguments.log.as_deref());
    bundle::write(path, findings, status, files)?;
    failure::say(format_args!(
        "wrote {}; read it before you send it",
        path.display()
    ));
    Ok(())
}

fn to_json(findings: &[Finding], shown: impl Fn(&str) -> String) -> serde_json::Value {
    let findings = findings.iter().map(|Finding { what, state, text }| {
        let state = match state {
            State::Good => "ok",
            State::Missing => "missing",
            State::Bad => "bad",
        };
        json!({"what": what, "state": state, "text": shown(text)})
    });
    json!({"schema": 1, "findings": findings.collect::<Vec<_>>()})
}

fn good(what: &'static str, text: impl Into<String>) -> Finding {
    Finding {
        what,
        state: State::Good,
        text: text.into(),
    }
}

fn missing(what: &'static str, text: impl Into<String>) -> Finding {
    Finding {
        what,
        state: State::Missing,
        text: text.into(),
    }
}

fn bad(what: &'static str, text: impl Into<String>) -> Finding {
    Finding {
        what,
        state: State::Bad,
        text: text.into(),
    }
}

fn this_machine() -> Vec<Finding> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = counted(cores, "core");
    let version = env!("CARGO_PKG_VERSION");
    vec![
        good("command", format!("farcall {version}, {cores}")),
        library("LAPACK", "libopenblas.so.0", "dgesv", "libopenblas0"),
        library("FFT", "libfftw3.so.3", "fftw_cleanup", "libfftw3-double3"),
        compiler(),
        python(version),
        descriptors(),
        walls(),
        trunk(),
        gang(),
    ]
}

/// Whether a library that our interface files name can be loaded.
fn library(what: &'static str, name: &str, symbol: &str, package: &str) -> Finding {
    let text = format!("Library \"{name}\";\nDefine f(IN int n) Calls \"FORTRAN\" {symbol}(n);\n");
    let text = match symbol.contains('_') {
        true => text.replace("\"FORTRAN\"", "\"C\""),
        false => text,
    };
    let source = Source {
        path: "doctor.idl".into(),
        text,
        options: Vec::new(),
    };
    match Binding::load(&source.parse().document, Path::new("."), None) {
        Ok(binding) => match binding.identity(0) {
            Some(identity) => good(what, identity.to_string()),
            None => good(what, name),
        },
        Err(error) => missing(
            what,
            format!("{error}; to serve it, install it: apt-get install {package}"),
        ),
    }
}

fn compiler() -> Finding {
    let name = farcall_library::compiler();
    let mut words = name.split_whitespace();
    let program = words.next().unwrap_or("cc");
    let output = Command::new(program).args(words).arg("--version").output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            good("C compiler", text.lines().next().unwrap_or(&name))
        }
        _ => missing(
            "C compiler",
            format!("cannot run `{name}`; interface files with C code or #include need a compiler"),
        ),
    }
}

/// Whether functions of Python modules can be served, by a package of this version.
fn python(version: &str) -> Finding {
    let (interpreter, _) = python_worker();
    let name = interpreter.to_string_lossy().into_owned();
    let program = "import farcall, sys; print(farcall.__version__, sys.version.split()[0])";
    let output = Command::new(&interpreter).args(["-c", program]).output();
    let text = match &output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout),
        Ok(_) => return missing("Python", no_package(&name)),
        Err(error) => return missing("Python", cannot_run(&name, error)),
    };
    match text.split_once(' ') {
        Some((found, python)) if found == version => {
            good("Python", format!("{name}, Python {}", python.trim()))
        }
        _ => missing(
            "Python",
            format!(
                "{name} has farcall {}, this command is {version}: install the same version",
                text.trim()
            ),
        ),
    }
}

fn cannot_run(python: &str, error: &std::io::Error) -> String {
    format!(
        "`{python}` cannot be run: {error}; install Python and its package farcall, or name \
         another interpreter in FARCALL_PYTHON"
    )
}

fn no_package(python: &str) -> String {
    format!(
        "`{python}` has no package farcall: run `{python} -m pip install farcall`, or name another \
         interpreter in FARCALL_PYTHON"
    )
}

/// Refuses an interpreter that runs and has no package `farcall`.
pub(crate) fn check_package(python: &OsStr) -> Result<(), Failure> {
    let program = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('farcall'))";
    match Command::new(python).args(["-c", program]).status() {
        Ok(status) if !status.success() => {
            Err(Failure::failed(no_package(&python.to_string_lossy())))
        }
        _ => Ok(()),
    }
}

/// Connections and shared memory need file descriptors.
fn descriptors() -> Finding {
    const ENOUGH: u64 = 1024;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    match limit.current {
        Some(limit) if limit < ENOUGH => missing(
            "open files",
            format!("at most {limit}; a server with many clients needs more: ulimit -n 65536"),
        ),
        Some(limit) => good("open files", format!("at most {limit}")),
        None => good("open files", "no limit"),
    }
}

/// The walls around functions of a server on this machine.
fn walls() -> Finding {
    let walls = farcall_server::Walls::available();
    let standing = walls.standing();
    let lacking: Vec<String> = walls.missing.into_iter().chain(walls.weaker).collect();
    match lacking.is_empty() {
        true => good("walls", standing),
        false => missing(
            "walls",
            format!("{standing}; missing: {}", lacking.join("; ")),
        ),
    }
}

/// Whether a trunk can make its interface and read the packets of links. Root in a container often
/// cannot, and a command with these rights can without root.
fn trunk() -> Finding {
    let wanted = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    let has_rights = capabilities(None).is_ok_and(|rights| rights.effective.contains(wanted));
    let device = OpenOptions::new().read(true).write(true).open(TUN);
    match (has_rights, device) {
        (true, Ok(_)) => good("trunk", format!("the rights that it needs, and {TUN}")),
        (false, _) => missing(
            "trunk",
            "no right to make network interfaces and read packets (CAP_NET_ADMIN, CAP_NET_RAW): \
             sudo farcall trunk up ...; a container needs these rights too",
        ),
        (true, Err(error)) => missing(
            "trunk",
            format!("{TUN}: {error}; run `modprobe tun`, or pass the device to the container"),
        ),
    }
}

fn gang() -> Finding {
    // Other file systems can be in folders whose names are no text.
    let mounts = std::fs::read("/proc/self/mounts").unwrap_or_default();
    let mounts = String::from_utf8_lossy(&mounts).into_owned();
    let is_there = mounts
        .lines()
        .any(|line| line.split(' ').nth(2) == Some("cgroup2"));
    match (is_there, is_there && farcall_gang::control_groups_work()) {
        (_, true) => good("gang", "control groups, version 2"),
        (true, false) => missing(
            "gang",
            "this user cannot make control groups, which `farcall gang run --tree` needs: run the \
             daemon as root, or in a delegated group (`Delegate=yes` of systemd)",
        ),
        (false, _) => missing(
            "gang",
            "no control groups of version 2; `farcall gang run --tree` needs them",
        ),
    }
}

fn server(arguments: &Arguments) -> Vec<Finding> {
    let address = arguments.server.address();
    let server = match arguments.server.connect() {
        Ok(server) => server,
        Err(failure) if target::check(&address).is_err() => {
            return vec![bad("server", failure.to_string())];
        }
        Err(failure) => {
            let text = format!(
                "{failure}; start a server with `farcall serve lapack`, or name another: \
                 farcall doctor URL, or FARCALL_SERVER"
            );
            return vec![bad("server", text)];
        }
    };
    let is_unix = address.starts_with("unix:");
    let mut findings = vec![good("server", address)];
    match look_at(&server, is_unix) {
        Ok(more) => findings.extend(more),
        Err(error) => findings.push(bad("server", error.to_string())),
    }
    findings
}

fn look_at(server: &Server, is_unix: bool) -> Result<Vec<Finding>, farcall_client::Error> {
    const PINGS: usize = 20;
    let mut times = Vec::new();
    for _ in 0..PINGS {
        times.push(server.ping()?.as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let path = match (server.shares_memory()?, is_unix) {
        (true, _) => "on this host, arrays in shared memory",
        (false, false) => "over the network",
        (false, true) => {
            "through a Unix socket without shared memory: it is forwarded from another host, or \
             the server has no memory left to share; arrays travel"
        }
    };
    let (median, worst) = (times[PINGS / 2] * 1e6, times[PINGS - 1] * 1e6);
    let functions = server.functions()?.len();
    let agent = server.agent()?;
    let speaks = match agent.ends_with(concat!(" ", env!("CARGO_PKG_VERSION"))) {
        true => good("version", agent),
        false => missing(
            "version",
            format!("{agent} differs from this command; some features may be missing"),
        ),
    };
    let served = match functions {
        0 => bad("functions", "the server has none"),
        count => good("functions", count.to_string()),
    };
    Ok(vec![
        speaks,
        good("path", path),
        good(
            "round trip",
            format!("median {median:.0} us, worst {worst:.0} us of {PINGS}"),
        ),
        served,
    ])
}

#[cfg(test)]
mod tests {
    use super::check_package;
    use std::ffi::OsStr;

    #[test]
    fn an_interpreter_without_the_package_is_refused() {
        let refused = check_package(OsStr::new("false")).expect_err("it fails");
        assert!(refused.to_string().contains("FARCALL_PYTHON"), "{refused}");
        assert!(check_package(OsStr::new("true")).is_ok());
        // The command that runs it says that it is missing.
        assert!(check_package(OsStr::new("/no/interpreter")).is_ok());
    }
}
