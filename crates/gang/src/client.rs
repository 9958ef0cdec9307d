//! The front end of a gang job: starts it, prints its output, and passes signals of the terminal to
//! it. The root daemon decides whether and where the gang job runs. Output is written in whole
//! lines, unless a line is very long.

mod checkpoint;
mod saved;

use checkpoint::WINDOW;
pub use checkpoint::{Progress, Taken};
pub use saved::{FileError, SavedJob};

use crate::link::{self, Link};
use crate::proof::{self, Failure};
use crate::token;
use farcall_gang_proto::{Ended, JobId, JobRow, JobSpec, Message};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Time without a sign of life after which a daemon that was reached over TCP counts as lost.
const SILENCE: Duration = Duration::from_secs(30);
/// Longest wait for what a daemon that runs answers at once.
const ANSWER: Duration = Duration::from_secs(10);

/// Why a request of a front end failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon listens on the control socket.
    #[error(
        "no gang daemon at {control}: {source}; start one with `farcall gang daemon`, or name its \
         socket with --control"
    )]
    NoDaemon {
        /// The control socket.
        control: String,
        /// The system's error.
        source: io::Error,
    },
    /// No daemon listens at this address.
    #[error("no gang daemon at {address}: {source}; is it running, and is this its --listen?")]
    NoDaemonAt {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The secret of this user's daemons cannot be read.
    #[error(
        "cannot read the secret of the daemons in the file gang-token of the state folder: {0}. \
         Set FARCALL_TOKEN to that of the daemon"
    )]
    Secret(#[source] io::Error),
    /// The daemon runs as another user, who is not root.
    #[error(
        "the daemon at this control socket runs as user {0}, who would see the environment of the \
         job, and could choose what a checkpoint runs: name a daemon of root, or one of your own, \
         with --control"
    )]
    Stranger(u32),
    /// The daemon refused the request.
    #[error("{0}")]
    Refused(String),
    /// The daemon stopped, or uses another protocol.
    #[error("the connection to the daemon is lost: {0}")]
    Lost(io::Error),
    /// The connection broke while a gang job ran.
    #[error(
        "gang job {job} is lost, because the connection to the daemon broke: {source}. See whether \
         the daemon runs, and start the job again"
    )]
    JobLost {
        /// The gang job.
        job: JobId,
        /// The system's error.
        source: io::Error,
    },
    /// The output of the gang job cannot be written.
    #[error("cannot write the output of the gang job: {0}; the job ends")]
    Output(#[source] io::Error),
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    File(FileError),
    /// Another system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// A connection to the root daemon.
pub struct Client {
    link: Link,
    /// Messages that have arrived and were not handled.
    arrived: VecDeque<Message>,
    /// The user of the daemon, if it is neither root nor the user of this process. Everybody can
    /// listen at an abstract name.
    stranger: Option<u32>,
    /// How long the daemon may say nothing, if that is bounded.
    patience: Option<Duration>,
}

impl Client {
    /// Connects to a control socket.
    pub fn connect(control: &str) -> Result<Client, ClientError> {
        let stream = link::connect(control).map_err(|source| ClientError::NoDaemon {
            control: control.to_string(),
            source,
        })?;
        let (user, _) = link::peer(&stream)?;
        let own = rustix::process::geteuid().as_raw();
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        Ok(Client {
            link: Link::unix(stream)?,
            arrived: VecDeque::new(),
            stranger: Some(user).filter(|user| is_stranger(*user, own, &map)),
            patience: None,
        })
    }

    /// Checks that the daemon may have what a gang job consists of.
    fn check_daemon(&self) -> Result<(), ClientError> {
        self.stranger
            .map_or(Ok(()), |user| Err(ClientError::Stranger(user)))
    }

    /// Connects to a daemon by TCP and authenticates with the secret of the daemons; if it is
    /// empty, a daemon on the loopback has that of this user. Gang jobs then run as the user that
    /// the daemon uses for TCP.
    pub fn connect_tcp(address: SocketAddr, token: &str) -> Result<Client, ClientError> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5));
        let stream = stream.map_err(|source| ClientError::NoDaemonAt { address, source })?;
        let mut link = Link::tcp(stream, SILENCE)?;
        let own = match token.is_empty() && address.ip().is_loopback() {
            true => token::of_user().map_err(ClientError::Secret)?.1,
            false => token.to_string(),
        };
        proof::prove(&mut link, &own).map_err(|failure| match failure {
            Failure::Refused(text) => {
                ClientError::Refused(format!("the gang daemon at {address}: {text}"))
            }
            Failure::Lost(error) => ClientError::Lost(error),
        })?;
        link.send(&Message::Hello(String::new()));
        Ok(Client {
            link,
            arrived: VecDeque::new(),
            stranger: None,
            patience: None,
        })
    }

    /// Returns the current gang jobs. A daemon that is stopped is an error after 10 s.
    pub fn jobs(&mut self) -> Result<Vec<JobRow>, ClientError> {
        match self.ask_within(ANSWER, &Message::List)? {
            Message::Jobs(rows) => Ok(rows),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends a signal to a gang job. SIGSTOP stops it and SIGCONT continues it. A daemon that is
    /// stopped is an error after 10 s, although it may still pass the signal on later.
    pub fn signal(&mut self, job: JobId, signal: i32) -> Result<(), ClientError> {
        match self.ask_within(ANSWER, &Message::Signal(job, signal))? {
            Message::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the state of a gang job as one word and a description.
    pub fn state(&mut self, job: JobId) -> Result<(String, String), ClientError> {
        match self.ask(&Message::State(job))? {
            Message::JobState(word, text) => Ok((word, text)),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks for what a daemon that runs answers at once.
    fn ask_within(
        &mut self,
        patience: Duration,
        message: &Message,
    ) -> Result<Message, ClientError> {
        self.patience = Some(patience);
        let answer = self.ask(message);
        self.patience = None;
        answer
    }

    fn ask(&mut self, message: &Message) -> Result<Message, ClientError> {
        self.link.send(message);
        self.next()
    }

    /// The next message of the daemon.
    fn next(&mut self) -> Result<Message, ClientError> {
        loop {
            match self.arrived.pop_front() {
                None => {}
                Some(Message::Refused(text)) => return Err(ClientError::Refused(text)),
                Some(message) => return Ok(message),
            }
            self.wait(&[])?;
            let received = self.link.receive().map_err(ClientError::Lost)?;
            self.arrived.extend(received);
        }
    }

    /// Waits for the daemon, or one of these descriptors. Returns which of them have something.
    fn wait(&mut self, more: &[BorrowedFd<'_>]) -> io::Result<Vec<bool>> {
        let mut flags = PollFlags::IN;
        if self.link.wants_to_send() {
            flags |= PollFlags::OUT;
        }
        let mut fds = vec![PollFd::from_borrowed_fd(self.link.fd(), flags)];
        let more = more.iter();
        fds.extend(more.map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        let patience = self.patience.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut fds, patience.as_ref()) {
            Ok(0) => {
                let text = "the gang daemon does not answer; see whether its process is stopped";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = fds[1..].iter().map(|fd| !fd.revents().is_empty());
        let ready = ready.collect();
        // The next read reports a broken stream, after what the daemon has said.
        let _ = self.link.flush();
        Ok(ready)
    }

    /// Runs a gang job until it ends. Its output goes to this process's output. Signals that the
    /// terminal sends to this process go to the whole gang job. `started` receives the number of
    /// the gang job, and the number of its processors if they are fewer than its processes. An
    /// interactive gang job has work after a `1` from `work`, and none after a `0`; it ends when
    /// `work` ends.
    pub fn run(
        self,
        mut spec: JobSpec,
        work: Option<OwnedFd>,
        started: impl FnMut(JobId, Option<u16>),
    ) -> Result<Ended, ClientError> {
        crate::mpi::leave_outer(&mut spec.environment);
        self.run_from(spec, None, work, started)
    }

    /// Runs a gang job that begins from a checkpoint, on nodes with these names if there are any,
    /// as [`Client::run`] does.
    pub fn restart(
        self,
        saved: SavedJob,
        on: Option<Vec<String>>,
        started: impl FnMut(JobId, Option<u16>),
    ) -> Result<Ended, ClientError> {
        let spec = begun_again(saved.spec(), on);
        self.run_from(spec, Some(saved), None, started)
    }

    fn run_from(
        mut self,
        spec: JobSpec,
        mut saved: Option<SavedJob>,
        work: Option<OwnedFd>,
        mut started: impl FnMut(JobId, Option<u16>),
    ) -> Result<Ended, ClientError> {
        self.check_daemon()?;
        spec.check_length().map_err(ClientError::Refused)?;
        let signals = catch_terminal()?;
        self.link.send(&Message::Run(spec));
        let (mut job, mut interrupts) = (None, 0);
        let mut lines = Lines::default();
        loop {
            let fds = [Some(signals.as_fd()), work.as_ref().map(AsFd::as_fd)];
            // Work for a gang job without a number waits.
            let count = if job.is_some() { 2 } else { 1 };
            let fds: Vec<_> = fds.into_iter().take(count).flatten().collect();
            let ready = self.wait(&fds)?;
            if ready[0] {
                for signal in crate::process::take_signals(&signals) {
                    if let Some(job) = job {
                        interrupts += u32::from(signal == libc::SIGINT);
                        self.pass_on(job, signal, interrupts);
                    } else if signal != libc::SIGCONT && signal != libc::SIGTSTP {
                        return Err(ClientError::Refused("interrupted".to_string()));
                    }
                }
            }
            if let (Some(true), Some(job), Some(work)) = (ready.get(1), job, &work) {
                match last_byte(work)? {
                    Some(word) => self.link.send(&Message::Work(job, word == b'1')),
                    // The gang job ends with this connection.
                    None => return Ok(Ended::default()),
                }
            }
            let received = self.link.receive().map_err(|source| match job {
                Some(job) => ClientError::JobLost { job, source },
                None => ClientError::Lost(source),
            });
            for message in received? {
                match message {
                    Message::Started(id, shared) => {
                        job = Some(id);
                        started(id, shared);
                        if let Some(saved) = &mut saved {
                            self.feed(id, saved, WINDOW)?;
                        }
                    }
                    Message::Filled(id, ..) => {
                        if let Some(saved) = &mut saved {
                            self.feed(id, saved, 1)?;
                        }
                    }
                    Message::Output(_, rank, stream, bytes) => {
                        let written = lines.write((stream, rank), &bytes);
                        written.map_err(ClientError::Output)?;
                    }
                    Message::JobEnded(_, ended) => {
                        lines.end().map_err(ClientError::Output)?;
                        return Ok(ended);
                    }
                    Message::Refused(text) => return Err(ClientError::Refused(text)),
                    _ => {}
                }
            }
        }
    }

    /// Passes Ctrl-C, Ctrl-Z, fg and bg to the whole gang job; a third Ctrl-C kills it.
    fn pass_on(&mut self, job: JobId, signal: i32, interrupts: u32) {
        match signal {
            libc::SIGINT if interrupts > 2 => self.link.send(&Message::Signal(job, libc::SIGKILL)),
            libc::SIGTSTP => {
                self.link.send(&Message::Signal(job, libc::SIGSTOP));
                let _ = self.link.flush();
                // SAFETY: a plain system call; the shell lets this process go on.
                unsafe { libc::raise(libc::SIGSTOP) };
                self.link.send(&Message::Signal(job, libc::SIGCONT));
            }
            other => self.link.send(&Message::Signal(job, other)),
        }
    }
}

/// The output of the processes, collected into whole lines.
#[derive(Default)]
struct Lines {
    /// Incomplete lines, by stream and rank.
    begun: BTreeMap<(u8, u16), Vec<u8>>,
}

/// A line longer than this is written in parts.
const LONGEST_LINE: usize = 64 << 10;

impl Lines {
    fn write(&mut self, source: (u8, u16), bytes: &[u8]) -> io::Result<()> {
        let begun = self.begun.entry(source).or_default();
        begun.extend_from_slice(bytes);
        let whole = match begun.iter().rposition(|byte| *byte == b'\n') {
            Some(place) => place + 1,
            None if begun.len() > LONGEST_LINE => begun.len(),
            None => return Ok(()),
        };
        let rest = begun.split_off(whole);
        let whole = std::mem::replace(begun, rest);
        put(source.0, &whole)
    }

    fn end(&mut self) -> io::Result<()> {
        for ((stream, _), rest) in std::mem::take(&mut self.begun) {
            put(stream, &rest)?;
        }
        Ok(())
    }
}

/// What was begun is written too if the connection breaks, or if the job ends in another way.
impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The last byte that can be read; none at the end.
fn last_byte(fd: &OwnedFd) -> io::Result<Option<u8>> {
    let mut buffer = [0; 64];
    let count = rustix::io::read(fd, &mut buffer)?;
    Ok(buffer[..count].last().copied())
}

fn put(stream: u8, bytes: &[u8]) -> io::Result<()> {
    if stream == 2 {
        return io::stderr().write_all(bytes);
    }
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Whether this user is neither root nor `own`. In a container, a user outside of it may have no
/// number, and the kernel shows another one. `map` is `uid_map` of /proc.
fn is_stranger(user: u32, own: u32, map: &str) -> bool {
    const NO_NUMBER: u32 = 65_534;
    let is_container = !map.split_whitespace().eq(["0", "0", "4294967295"]);
    let is_trusted = user == 0 || user == own;
    let has_no_number = is_container && user == NO_NUMBER;
    !is_trusted && !has_no_number
}

/// A gang job that begins again from a checkpoint, on nodes with these names if there are any. One
/// that was interactive would have work for ever, because nobody says when it has none.
fn begun_again(saved: &JobSpec, on: Option<Vec<String>>) -> JobSpec {
    JobSpec {
        restored: Some(true),
        interactive: None,
        on,
        ..saved.clone()
    }
}

fn unexpected(message: &Message) -> ClientError {
    let text = format!("the daemon sent an unexpected answer: {message:?}");
    ClientError::Lost(io::Error::new(io::ErrorKind::InvalidData, text))
}

/// Catches the signals that a terminal or a user sends to the front end of a gang job. With
/// `nohup`, the job outlives the terminal.
fn catch_terminal() -> io::Result<SignalFd> {
    use Signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
    let mut signals = vec![SIGINT, SIGTERM, SIGQUIT, SIGTSTP, SIGUSR1, SIGUSR2];
    if !farcall_child::outlives_terminal() {
        signals.push(SIGHUP);
    }
    crate::process::catch(&signals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_begins_again_takes_turns_like_others() {
        let saved = JobSpec {
            interactive: Some(true),
            processes: 2,
            ..JobSpec::default()
        };
        let spec = begun_again(&saved, None);
        assert_eq!((spec.interactive, spec.restored), (None, Some(true)));
        assert_eq!(spec.processes, 2);
    }

    #[test]
    fn a_daemon_that_says_nothing_is_given_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gang.sock");
        // The system connects front ends to it, and nobody reads.
        let _silent = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        for message in [Message::List, Message::Signal(1, libc::SIGKILL)] {
            let client = Client::connect(path.to_str().expect("plain"));
            let mut client = client.expect("it listens");
            let given_up = client.ask_within(Duration::from_millis(10), &message);
            let error = given_up.expect_err("nobody answers");
            assert!(error.to_string().contains("does not answer"), "{error}");
        }
    }

    #[test]
    fn only_root_and_the_own_user_are_no_strangers() {
        let (machine, container) = (
            "         0          0 4294967295\n",
            "0 1000 1\n1 100000 65536\n",
        );
        for map in [machine, container] {
            assert!(!is_stranger(0, 1000, map) && !is_stranger(1000, 1000, map));
            assert!(is_stranger(1001, 1000, map) && is_stranger(1001, 0, map));
        }
        assert!(is_stranger(65_534, 1000, machine));
        assert!(!is_stranger(65_534, 1000, container));
    }
}
