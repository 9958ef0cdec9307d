//! How a daemon joins its parent, and joins it again after either of them was lost. Without a
//! parent a daemon has no processes and no daemons below it: they join again too. A connection is
//! made in a thread of its own, because another machine may take long to answer.

use super::{Daemon, Party, StartError, WATCH, machine_memory, nanos};
use crate::journal::Journal;
use crate::link::Link;
use crate::proof::{self, Failure};
use farcall_channel::Shape;
use farcall_gang_proto::{Introduction, Message, Root, Settings, Switch, VERSION};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Interval between attempts to join again.
const AGAIN: Duration = Duration::from_secs(1);

/// Attempts after which the log says that processes of lost gang jobs keep this daemon from joining
/// again. Mostly they have ended at the first or second.
const LONG: u32 = 10;

/// The most reasons why this daemon cannot join again that its log tells.
const REASONS: usize = 100;

/// A connection to the parent daemon, or why there is none.
type Made = Result<Link, StartError>;

/// Connections to the parent daemon that threads make.
pub(super) struct Joiner {
    made: (Sender<Made>, Receiver<Made>),
    news: Arc<OwnedFd>,
    /// Whether this daemon had joined and lost its parent.
    pub(super) is_lost: bool,
    is_connecting: bool,
    next: Instant,
    /// Attempts since the parent was lost for which processes had yet to end.
    waits: u32,
    /// Why this daemon could not join again so far, as its log says.
    told: BTreeSet<String>,
}

impl Joiner {
    pub(super) fn new() -> io::Result<Joiner> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Joiner {
            made: channel(),
            news: Arc::new(eventfd(0, flags)?),
            is_lost: false,
            is_connecting: false,
            next: Instant::now(),
            waits: 0,
            told: BTreeSet::new(),
        })
    }

    /// Becomes readable when a connection was made or has failed.
    pub(super) fn news(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Prepares to join again. There is an interval between two attempts, also if the
    /// parent ends the first at once.
    fn begin_again(&mut self) {
        self.is_lost = true;
        self.waits = 0;
        self.next = self.next.max(Instant::now());
    }

    /// Writes to the log why this daemon cannot join again, once for each reason.
    fn tell(&mut self, why: &str) {
        if self.told.len() < REASONS && self.told.insert(why.to_string()) {
            tracing::warn!("{why} (tried again each second)");
        }
    }

    /// Counts an attempt for which processes have yet to end.
    fn wait(&mut self) {
        self.waits = self.waits.saturating_add(1);
        if self.waits == LONG {
            self.tell(
                "this daemon cannot join again before the processes of its lost gang jobs have \
                 ended, which were killed: `ps` shows those that wait for a disk or a file server \
                 in state D",
            );
        }
    }

    /// Handles that this daemon has joined.
    pub(super) fn handle_joined(&mut self) {
        self.is_lost = false;
        self.told.clear();
    }
}

fn connect(address: SocketAddr, token: &str, silence: Duration) -> Result<Link, StartError> {
    let fail = |source| StartError::Parent { address, source };
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).map_err(fail)?;
    let mut link = Link::tcp(stream, silence).map_err(fail)?;
    proof::prove(&mut link, token).map_err(|failure| match failure {
        Failure::Refused(text) => StartError::Refused { address, text },
        Failure::Lost(source) => StartError::Parent { address, source },
    })?;
    Ok(link)
}

impl Daemon {
    /// Becomes the root daemon, or joins the parent for the first time. A signal that stops the
    /// daemon ends the wait for the parent.
    pub(super) fn join(&mut self) -> Result<(), StartError> {
        let Some(address) = self.config.parent else {
            self.begin_root();
            return Ok(());
        };
        self.begin_to_connect(address)?;
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.joiner.news(), PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
            self.handle_signals();
            if self.is_ending {
                return Err(StartError::Stopped(address));
            }
            if let Ok(made) = self.joiner.made.1.try_recv() {
                self.introduce(made?);
                return Ok(());
            }
        }
    }

    /// Begins to connect to the parent daemon, in a thread of its own.
    fn begin_to_connect(&self, address: SocketAddr) -> io::Result<()> {
        let silence = self.config.silence;
        let (token, made, news) = (
            self.config.token.clone(),
            self.joiner.made.0.clone(),
            self.joiner.news.clone(),
        );
        let thread = std::thread::Builder::new().name("farcall-join".to_string());
        let started = thread.spawn(move || {
            let _ = made.send(connect(address, &token, silence));
            let _ = rustix::io::write(&*news, &1u64.to_ne_bytes());
        });
        started.map(drop)
    }

    fn begin_root(&mut self) {
        let engine = self.node.engine.address().to_string();
        let memory = self.config.memory.unwrap_or_else(machine_memory);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let epoch = now.map_or(0, |now| now.as_millis() as u64) & 0xff_ffff_ffff;
        let settings = Settings {
            memory,
            epoch,
            slice: nanos(self.config.slice),
            watch: nanos(WATCH),
            switch_alone: self.config.switch_alone,
            receive: Shape::RECEIVE.bytes,
            share: u64::from(self.config.share),
        };
        let mut root = Root::new(settings, self.now());
        let user = rustix::process::getuid().as_raw();
        root.handle_join(&self.config.node, self.processors.clone(), engine, user);
        match Journal::open(&self.config.control) {
            Ok((journal, lost)) => {
                for row in &lost {
                    tracing::warn!(
                        "gang job {} of user {} (`{}`) was lost with the daemon before this one",
                        row.id,
                        row.user,
                        row.command
                    );
                }
                root.handle_past(journal.last(), lost);
                self.journal = Some(journal);
            }
            Err(error) => tracing::warn!(
                "no journal of gang jobs ({error}): if this daemon is killed, the next one does \
                 not know which jobs were lost"
            ),
        }
        self.root = Some(root);
    }

    fn introduce(&mut self, mut link: Link) {
        let introduction = Introduction {
            version: VERSION,
            user: rustix::process::getuid().as_raw(),
        };
        link.send(&Message::Join(
            self.config.node.clone(),
            self.processors.clone(),
            self.node.engine.address().to_string(),
            String::new(),
            Some(introduction),
        ));
        self.parent = Some(self.add(link, Party::Parent));
        // The root daemon assigns the number. Until then no placement names this node.
        self.node.number = u16::MAX;
    }

    /// Ends all processes here, lets go of the daemons below, and prepares to join again.
    pub(super) fn lose_parent(&mut self, why: &str) {
        let Some(parent) = self.parent.take() else {
            return;
        };
        self.remove(parent);
        match self.joiner.is_lost {
            true => self.joiner.tell(why),
            false => {
                tracing::error!("{why}: the processes on this node end, and it joins again");
            }
        }
        let own = format!("node {} has lost its own parent daemon", self.config.node);
        for child in self.children() {
            self.say_why(child, &own);
            self.remove(child);
        }
        self.joining.clear();
        self.switch = Switch::new(self.config.form, self.switch.round().drains, false);
        self.node.number = u16::MAX;
        self.node.end();
        self.joiner.begin_again();
    }

    /// Joins again, after all processes have ended.
    pub(super) fn join_again_if_due(&mut self) {
        let joiner = &mut self.joiner;
        let is_busy = joiner.is_connecting || self.parent.is_some();
        if !joiner.is_lost || is_busy || Instant::now() < joiner.next {
            return;
        }
        joiner.next = Instant::now() + AGAIN;
        if self.node.has_processes() {
            joiner.wait();
            self.node.reap();
            return;
        }
        self.node.forget_all();
        self.node.messages.clear();
        let Some(address) = self.config.parent else {
            return;
        };
        self.joiner.is_connecting = self.begin_to_connect(address).is_ok();
    }

    /// Handles a connection that was made, or has failed.
    pub(super) fn handle_connected(&mut self) {
        let _ = rustix::io::read(&*self.joiner.news, &mut [0; 8]);
        while let Ok(made) = self.joiner.made.1.try_recv() {
            self.joiner.is_connecting = false;
            match made {
                Ok(link) => self.introduce(link),
                Err(error) => self.joiner.tell(&error.to_string()),
            }
        }
    }

    /// When the next attempt to join is due.
    pub(super) fn next_attempt(&self) -> Option<Instant> {
        let joiner = &self.joiner;
        let waits = joiner.is_lost && self.parent.is_none() && !joiner.is_connecting;
        waits.then_some(joiner.next)
    }
}

/// Checks that each of two daemons can send the messages of gang jobs to the other. They go to the
/// address of `--listen`: `own` is that of the daemon above, and `engine` has that of the other.
pub(super) fn check_addresses(own: IpAddr, engine: &str) -> Result<(), String> {
    let Ok(other) = engine.parse::<SocketAddr>() else {
        return Err(format!("`{engine}` is no address for messages"));
    };
    let other = other.ip();
    let all = [("the parent", own), ("the daemon that joins", other)];
    let why = "messages of gang jobs go to the address of --listen, and other nodes do not reach";
    let wrong = match all.iter().find(|(_, address)| address.is_unspecified()) {
        Some(wrong) => Some(wrong),
        None if own.is_loopback() == other.is_loopback() => None,
        None => all.iter().find(|(_, address)| address.is_loopback()),
    };
    match wrong {
        None => Ok(()),
        Some((who, address)) => Err(format!(
            "{why} {who} at {address}: start it with --listen and an address of its network"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_to_join_again_have_an_interval_and_tell_each_reason_once() {
        let mut joiner = Joiner::new().expect("a descriptor");
        let begun = Instant::now();
        joiner.begin_again();
        assert!(joiner.next <= Instant::now(), "the first is made at once");
        // The parent answers an attempt at once, and refuses.
        joiner.next = begun + AGAIN;
        joiner.begin_again();
        assert!(joiner.next >= begun + AGAIN);
        for _ in 0..3 {
            for why in ["a node `b` has already joined", "no route to the host"] {
                joiner.tell(why);
            }
        }
        assert_eq!(joiner.told.len(), 2);
        (0..1000).for_each(|why| joiner.tell(&why.to_string()));
        assert_eq!(joiner.told.len(), REASONS);
        joiner.told.clear();
        (0..30).for_each(|_| joiner.wait());
        assert_eq!(joiner.told.len(), 1);
        joiner.handle_joined();
        assert!(joiner.told.is_empty() && !joiner.is_lost);
    }

    #[test]
    fn daemons_that_cannot_reach_each_other_do_not_join() {
        let check = |own: &str, engine| check_addresses(own.parse().expect("an address"), engine);
        for (own, engine) in [
            ("127.0.0.1", "127.0.0.1:40000"),
            ("127.0.0.1", "[::1]:40000"),
            ("10.0.0.1", "10.0.0.2:40000"),
        ] {
            assert_eq!(check(own, engine), Ok(()));
        }
        for (own, engine, wrong) in [
            (
                "10.0.0.1",
                "127.0.0.1:4",
                "the daemon that joins at 127.0.0.1",
            ),
            ("127.0.0.1", "10.0.0.1:4", "the parent at 127.0.0.1"),
            ("0.0.0.0", "10.0.0.1:4", "the parent at 0.0.0.0"),
            ("fd00::1", "[::]:4", "the daemon that joins at ::"),
            ("fd00::1", "", "no address"),
        ] {
            let told = check(own, engine).expect_err("not reachable");
            assert!(told.contains(wrong), "{told}");
        }
    }
}
