//! The process of a tunnel on Unix: its input and output are one socket. What it says on standard
//! error goes through a pipe, and nobody waits for it.

use super::Stream;
use rustix::io::ioctl_fionbio;
use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

/// What a process says.
pub(super) struct Said(PipeReader);

impl Said {
    /// Takes what the process has said, without waiting for more.
    pub(super) fn take(&self) -> Vec<u8> {
        let mut said = Vec::new();
        // It ends with an error where nothing more can be read at once.
        let _ = (&self.0).read_to_end(&mut said);
        said
    }

    /// Whether a process that has ended has nothing more to say.
    pub(super) fn is_complete(&self) -> bool {
        true
    }
}

/// Starts the process, with `theirs` as its input and output.
pub(super) fn start(mut command: Command, theirs: Stream) -> io::Result<(Child, Said)> {
    let (said, says) = io::pipe()?;
    // A process that says much goes on: what nobody reads in time is lost.
    ioctl_fionbio(&said, true)?;
    ioctl_fionbio(&says, true)?;
    let theirs = OwnedFd::from(theirs);
    let child = command
        .stdin(theirs.try_clone()?)
        .stdout(theirs)
        .stderr(Stdio::from(says))
        .spawn()?;
    Ok((child, Said(said)))
}
