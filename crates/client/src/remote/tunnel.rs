//! Tunnels: the byte stream to a server on another host, through a process of the user's OpenSSH.
//! The other host runs `farcall relay`, which finds or starts a server there. This module starts
//! and ends the process, and keeps what it says for errors.
//!
//! Invariant: the stream begins with the server's first byte. What the login scripts of the other
//! host print comes before the relay's line, and is dropped.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use super::socket::{GiveUp, LOOK_UP, Stream, check_patience, pair};
use crate::address::SshAddress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read};
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

/// What `farcall relay` prints before the first byte of the server.
pub const RELAY_READY: &str = "farcall relay ready\n";
/// Most bytes that login scripts may print before that.
const MOST_NOISE: usize = 64 << 10;
/// Longest time for a login, in which somebody may have to type.
const LOGIN: Duration = Duration::from_secs(120);
/// Longest wait for the end of a process that has closed its output.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Processes whose streams are closed. They end by themselves, and somebody must take their status.
static LEFT: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// A process of `ssh` that carries a connection.
pub(crate) struct Tunnel {
    child: Option<Child>,
    /// What the process says, besides the bytes of the connection.
    said: system::Said,
}

impl Tunnel {
    /// Starts `ssh`, and waits until the other host is ready. Gives up if `give_up` says so.
    pub(crate) fn open(
        address: &SshAddress,
        timeout: Duration,
        give_up: GiveUp<'_>,
    ) -> io::Result<(Stream, Tunnel)> {
        collect();
        let (ours, theirs) = pair()?;
        let (child, said) = system::start(address.relay(timeout.as_secs().max(1)), theirs)?;
        let mut tunnel = Tunnel {
            child: Some(child),
            said,
        };
        tunnel.await_relay(&ours, address, give_up)?;
        ours.set_nonblocking(true)?;
        Ok((ours, tunnel))
    }

    /// Reads up to the end of the relay's line.
    fn await_relay(
        &mut self,
        stream: &Stream,
        address: &SshAddress,
        give_up: GiveUp<'_>,
    ) -> io::Result<()> {
        let end = Instant::now() + LOGIN;
        let mut heard = Vec::new();
        let nap = Timespec::try_from(LOOK_UP).unwrap_or_default();
        while !heard.ends_with(RELAY_READY.as_bytes()) {
            check_patience(give_up)?;
            if Instant::now() >= end {
                let text = format!("{} is not ready after {} s", address.to(), LOGIN.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&nap)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            // One byte at a time: what follows the line belongs to the server.
            let mut byte = [0];
            let read = (&mut &*stream).read(&mut byte).unwrap_or(0);
            if read == 0 {
                return Err(self.failure(address));
            }
            if heard.len() == MOST_NOISE {
                let text = format!(
                    "the login scripts of {} print more than {MOST_NOISE} bytes; let them print \
                     nothing where no terminal is",
                    address.to()
                );
                return Err(io::Error::other(text));
            }
            heard.push(byte[0]);
        }
        Ok(())
    }

    /// Why the process has ended before the other host was ready, in its own words and ours.
    fn failure(&mut self, address: &SshAddress) -> io::Error {
        let status = self.ended();
        let words = self.words();
        let host = address.to();
        let code = status.and_then(|status| status.code());
        let advice = match code {
            Some(127) if words.contains("relay") || words.contains("farcall") => format!(
                "Farcall is not installed on {host}, or not in the PATH of ssh there: install it, \
                 or name the program with `?farcall=PATH`"
            ),
            Some(127) => "the program that makes the connection is missing: install OpenSSH, or \
                          name a program in FARCALL_SSH"
                .to_owned(),
            Some(255) | None => format!("try `ssh {host}` alone"),
            Some(_) => format!("this came from {host}"),
        };
        let said = match words.is_empty() {
            true => "ssh has ended".to_owned(),
            // A relay says `error: ` in front, as every command does.
            false => words.trim_start_matches("error: ").to_owned(),
        };
        io::Error::other(format!("{said}; {advice}"))
    }

    /// The last line that the process has said.
    pub(crate) fn words(&self) -> String {
        let said = self.said.take();
        let said = String::from_utf8_lossy(&said);
        let lines = said.lines().map(str::trim);
        let last = lines.rev().find(|line| !line.is_empty()).unwrap_or("");
        let printable = last.chars().filter(|c| !c.is_control());
        printable.take(400).collect()
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        let end = Instant::now() + LAST_WORDS;
        loop {
            match child.try_wait() {
                Ok(status) if status.is_some() && self.said.is_complete() => return status,
                Ok(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        left.extend(self.child.take());
        drop(left);
        collect();
    }
}

/// Takes the status of processes that have ended.
fn collect() {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}
