//! The process of a tunnel on Windows. Programs there take pipes and no sockets, so that three
//! threads carry the bytes. They end with the process.

use super::Stream;
use std::io::{self, Read};
use std::net::Shutdown;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Most bytes that are kept of what a process says, counted from the end.
const MOST_SAID: usize = 4 << 10;

/// What a process says.
pub(super) struct Said {
    words: Arc<Mutex<Vec<u8>>>,
    listener: JoinHandle<()>,
}

impl Said {
    /// Takes what the process has said, without waiting for more.
    pub(super) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut lock(&self.words))
    }

    /// Whether a process that has ended has nothing more to say.
    pub(super) fn is_complete(&self) -> bool {
        self.listener.is_finished()
    }
}

/// Starts the process, with `theirs` behind its input and output.
pub(super) fn start(mut command: Command, theirs: Stream) -> io::Result<(Child, Said)> {
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        let program = command.get_program().to_string_lossy();
        let text = format!(
            "cannot start `{program}`: {error}; install OpenSSH, or name another program in \
             FARCALL_SSH"
        );
        io::Error::new(error.kind(), text)
    })?;
    let carried = carry(&mut child, theirs);
    if carried.is_err() {
        let _ = child.kill();
    }
    Ok((child, carried?))
}

fn carry(child: &mut Child, theirs: Stream) -> io::Result<Said> {
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(input), Some(output), Some(errors)) = pipes else {
        return Err(io::Error::other("a process without pipes"));
    };
    let words = Arc::default();
    let heard = Arc::clone(&words);
    let listener = Builder::new().spawn(move || listen(errors, &heard))?;
    let source = theirs.try_clone()?;
    Builder::new().spawn(move || send(source, input))?;
    Builder::new().spawn(move || receive(output, theirs))?;
    Ok(Said { words, listener })
}

/// Carries bytes to the process. At the end of the stream, its input ends.
fn send(mut source: Stream, mut input: ChildStdin) {
    let _ = io::copy(&mut source, &mut input);
}

/// Carries bytes from the process. At the end of its output, the stream ends in both directions.
fn receive(mut output: ChildStdout, mut target: Stream) {
    let _ = io::copy(&mut output, &mut target);
    let _ = target.shutdown(Shutdown::Both);
}

fn listen(mut errors: ChildStderr, words: &Mutex<Vec<u8>>) {
    let mut piece = [0; 1 << 10];
    while let Ok(length @ 1..) = errors.read(&mut piece) {
        let mut words = lock(words);
        words.extend(&piece[..length]);
        let excess = words.len().saturating_sub(MOST_SAID);
        words.drain(..excess);
    }
}

fn lock(words: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    words.lock().unwrap_or_else(PoisonError::into_inner)
}
