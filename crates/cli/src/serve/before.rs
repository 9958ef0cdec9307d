//! The server that another one takes over from: how to reach it, and how to drain it. A server with
//! TLS or tokens does not take a client over TCP for its own user. A signal tells it instead.

use crate::failure::Failure;
use farcall_client::{Credentials, Error, Fault, Options, Server};
use farcall_quantity::counted;
use farcall_server::Config;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, getpid, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The state of a listening socket in the system's tables.
const LISTENS: &str = "0A";

/// The server that listens where this one will listen.
pub(super) struct Before {
    /// A connection, if it accepts one.
    server: Option<Server>,
    /// Its processes that take the signal.
    processes: Vec<OwnedFd>,
}

impl Before {
    /// Finds the server.
    ///
    /// # Errors
    /// There is none, or it is of another user and refuses this one.
    pub(super) fn find(config: &Config) -> Result<Before, Failure> {
        let address = match (&config.unix, config.listen.first()) {
            (Some(path), _) => format!("unix://{}", std::path::absolute(path)?.display()),
            (None, Some(address)) => format!("farcall://{address}"),
            (None, None) => {
                return Err(Failure::usage(
                    "--takeover needs an address: add --listen or --unix",
                ));
            }
        };
        let processes = match (&config.unix, config.listen.first()) {
            (None, Some(address)) => processes(*address),
            _ => Vec::new(),
        };
        let mut options = Options::default();
        if config.unix.is_some() {
            // There the server knows the user of this process, whom a token would make another one.
            options.credentials = Credentials::anonymous();
        }
        match Server::connect(&address, options) {
            Ok(server) => Ok(Before {
                server: Some(server),
                processes,
            }),
            // So it is a server of Farcall.
            Err(Error::Refused { .. }) if !processes.is_empty() => Ok(Before {
                server: None,
                processes,
            }),
            Err(error) => Err(Failure::failed(format!(
                "cannot reach the server to take over from: {error}; if none runs, leave \
                 --takeover out"
            ))),
        }
    }

    /// Lets the server complete its calls and end.
    ///
    /// # Errors
    /// It goes on: two servers would share the clients for ever.
    pub(super) fn drain(self) -> Result<(), Failure> {
        let error = match self.server.map(|server| server.drain()) {
            Some(Ok(calls)) => {
                let calls = counted(calls as usize, "call");
                tracing::info!("took over; the previous server ends after {calls}");
                return Ok(());
            }
            Some(Err(error)) if error.fault() != Fault::Caller => {
                tracing::error!("cannot drain the previous server: {error}");
                return Ok(());
            }
            Some(Err(error)) => error.to_string(),
            None => String::new(),
        };
        if self.processes.is_empty() {
            let text = format!("cannot drain the previous server, which goes on: {error}");
            return Err(Failure::failed(text));
        }
        for process in &self.processes {
            if let Err(error) = pidfd_send_signal(process, Signal::USR1) {
                tracing::error!("cannot drain the previous server: {error}");
            }
        }
        tracing::info!("took over; the previous server ends after its calls");
        Ok(())
    }
}

/// The processes of this user that listen at an address and handle the signal.
fn processes(address: SocketAddr) -> Vec<OwnedFd> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let tables: Vec<String> = tables.into_iter().flatten().collect();
    let own = geteuid().as_raw();
    let rows = tables.iter().flat_map(|table| table.lines());
    let sockets: BTreeSet<String> = rows
        .filter_map(|row| listens(row, address, own))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ids = ids.filter_map(Pid::from_raw).filter(|id| *id != getpid());
    let found = ids.filter_map(|id| {
        let process = pidfd_open(id, PidfdFlags::empty()).ok()?;
        let folder = format!("/proc/{}", id.as_raw_nonzero());
        let is_it = has_any(Path::new(&folder), &sockets) && handles_signal(Path::new(&folder));
        is_it.then_some(process)
    });
    found.collect()
}

/// The number of a socket in a row of the system's table, if the user listens there.
fn listens(row: &str, address: SocketAddr, user: u32) -> Option<&str> {
    let words: Vec<&str> = row.split_ascii_whitespace().collect();
    let [_, local, _, LISTENS, _, _, _, owner, _, inode, ..] = words[..] else {
        return None;
    };
    let is_it = decoded(local)? == address && owner.parse() == Ok(user);
    is_it.then_some(inode)
}

/// An address in the system's table: words of 32 bits in the order of this machine, and the port.
fn decoded(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let mut bytes = Vec::new();
    for word in ip.as_bytes().chunks(8) {
        let word = u32::from_str_radix(str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::from(*bytes.first_chunk::<4>()?),
        _ => IpAddr::from(*bytes.first_chunk::<16>()?),
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Whether a process has one of these files open.
fn has_any(process: &Path, names: &BTreeSet<String>) -> bool {
    let files = fs::read_dir(process.join("fd"));
    let targets = files.into_iter().flatten().flatten();
    let mut targets = targets.filter_map(|file| fs::read_link(file.path()).ok());
    targets.any(|target| target.to_str().is_some_and(|name| names.contains(name)))
}

/// Whether a process has a handler for SIGUSR1, which would end it otherwise.
fn handles_signal(process: &Path) -> bool {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 1 << (Signal::USR1.as_raw() - 1) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_system_tells_who_listens() {
        let own = geteuid().as_raw();
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            // The machine may have no IPv6.
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let address = listener.local_addr().unwrap();
            let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
            let tables: Vec<String> = tables.into_iter().flatten().collect();
            let rows = || tables.iter().flat_map(|table| table.lines());
            let found: Vec<&str> = rows()
                .filter_map(|row| listens(row, address, own))
                .collect();
            let [inode] = found[..] else {
                panic!("{address}: {found:?}")
            };
            let name = BTreeSet::from([format!("socket:[{inode}]")]);
            assert!(has_any(Path::new("/proc/self"), &name));
            assert!(rows().all(|row| listens(row, address, own + 1).is_none()));
            // This process itself is not the server before.
            assert!(processes(address).is_empty());
        }
    }
}
