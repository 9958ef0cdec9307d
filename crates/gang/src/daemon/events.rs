//! The event loop of the daemon: the events that can arrive, and how it handles them. `gang-proto`
//! decides about gang jobs, and `node` has the processes. A peer that has not proved that it knows
//! the secret can do nothing else. When the loop ends, all processes of the daemon are ended.

use super::join::check_addresses;
use super::peers::Loss;
use super::{Daemon, Party};
use crate::link::{self, Link};
use crate::process;
use farcall_gang_proto::{JobId, Message, Root, Step, VERSION, check_name};
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The number for a node whose name another one has.
const TAKEN: u16 = u16::MAX;

/// How long a daemon that stops waits for its processes to end.
const END_BOUND: Duration = Duration::from_secs(4);

/// The largest number of front ends at the same time: of one user, of all users, and of all users
/// and those who may always ask, which are root and the user of the daemon.
const USER_FRONTS: usize = 512;
const FRONTS: usize = 1024;
const ALL_FRONTS: usize = 2048;
/// The largest number of unauthenticated peers at the same time.
const STRANGERS: usize = 64;
/// Connections that are accepted at once.
const ACCEPTED: usize = 64;
/// How long no connection is accepted after one could not be.
const DEAF: Duration = Duration::from_millis(100);

/// The owner of a descriptor that became ready.
#[derive(Clone, Copy)]
enum Source {
    Signals,
    News,
    /// Processes were started.
    Begun,
    /// A connection to the parent was made or has failed.
    Connected,
    Tcp,
    Control,
    Link(u64),
    Output(JobId, u16, usize),
}

impl Daemon {
    /// Runs until SIGTERM, SIGINT or SIGHUP. All processes are ended.
    ///
    /// # Errors
    /// The parent daemon does not let this one join, or a system call failed.
    pub fn run(mut self) -> io::Result<()> {
        let result = loop {
            if self.is_ending {
                break Ok(());
            }
            let ready = match self.wait(self.timeout()) {
                Ok(ready) => ready,
                Err(error) => break Err(error),
            };
            for source in ready {
                self.handle(source);
            }
            let now = self.now();
            if let Some(root) = &mut self.root {
                root.handle_timeout(now);
            }
            self.check_peers();
            self.settle();
            self.check_rest();
            self.give_up_late();
            self.switch_if_due();
            self.join_again_if_due();
            if self.switch.step().is_none() {
                self.node.reap_after_freeze();
            }
            self.settle();
        };
        self.end();
        match self.failure {
            Some(text) => Err(io::Error::other(text)),
            None => result,
        }
    }

    fn wait(&self, timeout: Duration) -> io::Result<Vec<Source>> {
        let mut sources = vec![
            (Source::Signals, self.signals.as_fd(), PollFlags::IN),
            (Source::News, self.node.engine.news(), PollFlags::IN),
            (Source::Begun, self.node.starter.news(), PollFlags::IN),
            (Source::Connected, self.joiner.news(), PollFlags::IN),
        ];
        let hears = Instant::now() >= self.deaf;
        let parties = self.links.values().map(|peer| &peer.party);
        let strangers = parties.filter(|party| matches!(party, Party::Stranger | Party::Proved));
        if hears && strangers.count() < STRANGERS {
            sources.push((Source::Tcp, self.tcp.as_fd(), PollFlags::IN));
        }
        if hears {
            sources.push((
                Source::Control,
                self.control.listener.as_fd(),
                PollFlags::IN,
            ));
        }
        for (id, peer) in &self.links {
            let mut flags = PollFlags::IN;
            if peer.link.wants_to_send() {
                flags |= PollFlags::OUT;
            }
            sources.push((Source::Link(*id), peer.link.fd(), flags));
        }
        // A slow reader slows down its writers, like a full pipe: a front end the processes of its
        // own gang job, the parent daemon all processes.
        let parent = self.parent.and_then(|parent| self.links.get(&parent));
        if !parent.is_some_and(|parent| parent.link.is_full()) {
            for (job, rank, stream, fd) in self.node.streams() {
                sources.push((Source::Output(job, rank, stream), fd, PollFlags::IN));
            }
        }
        let mut fds: Vec<PollFd<'_>> = sources
            .iter()
            .map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags))
            .collect();
        let timeout = rustix::time::Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = fds.iter().zip(&sources);
        let ready = ready.filter(|(fd, _)| !fd.revents().is_empty());
        Ok(ready.map(|(_, (source, ..))| *source).collect())
    }

    /// Time until the next work: the end of the slice, the deadline of a freeze, or a sign of life.
    fn timeout(&self) -> Duration {
        let is_switching = self.switch.step().is_some();
        let drained = self.drained.filter(|_| is_switching);
        let answered = self.answered.filter(|_| is_switching);
        let deaf = Some(self.deaf).filter(|deaf| *deaf > Instant::now());
        let more = [drained, answered, deaf, self.next_attempt()];
        let root = self.root.as_ref().and_then(Root::next_deadline);
        let beat = self.heartbeat.next_deadline();
        let due = root.map_or(beat, |due| due.min(beat));
        let left = Duration::from_nanos(due.saturating_sub(self.now()));
        let now = Instant::now();
        let more = more.into_iter().flatten();
        more.map(|next| next.saturating_duration_since(now))
            .fold(left, Duration::min)
    }

    /// Checks whether the outgoing gang jobs are at rest: their network is at rest, they have
    /// ended, or the deadline has passed.
    fn check_rest(&mut self) {
        if self.switch.step() != Some(Step::Freeze) {
            return;
        }
        let out = self.switch.round().out.clone();
        if self
            .drained
            .is_some_and(|drained| Instant::now() >= drained)
        {
            self.drained = None;
            self.node.give_up_draining(&out);
        }
        if self.node.is_at_rest(&out) {
            let actions = self.switch.handle_done(Step::Freeze, self.node.stuck());
            self.act(actions);
        }
    }

    fn handle(&mut self, source: Source) {
        match source {
            Source::Signals => self.handle_signals(),
            Source::News => self.handle_news(),
            Source::Begun => self.node.take_begun(),
            Source::Connected => self.handle_connected(),
            Source::Tcp => self.accept_tcp(),
            Source::Control => self.accept_fronts(),
            Source::Link(id) => self.handle_link(id),
            Source::Output(job, rank, stream) => self.node.take_output(job, rank, stream),
        }
    }

    /// Handles the signals that have arrived.
    pub(super) fn handle_signals(&mut self) {
        let signals = process::take_signals(&self.signals);
        let all = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
        let ends = |signal: &i32| all.contains(signal);
        self.is_ending |= signals.iter().any(ends);
        self.node.reap();
    }

    fn accept_tcp(&mut self) {
        for _ in 0..ACCEPTED {
            match self.tcp.accept() {
                Ok((stream, _)) => {
                    if let Ok(link) = Link::tcp(stream, self.config.silence) {
                        self.add(link, Party::Stranger);
                    }
                }
                Err(error) => return self.rest_from_accepting(&error),
            }
        }
    }

    fn accept_fronts(&mut self) {
        for _ in 0..ACCEPTED {
            match self.control.listener.accept() {
                Ok((stream, _)) => {
                    if let Ok((user, group)) = link::peer(&stream)
                        && let Ok(link) = Link::unix(stream)
                    {
                        self.accept_front(link, user, group);
                    }
                }
                Err(error) => return self.rest_from_accepting(&error),
            }
        }
    }

    /// Without descriptors a daemon in the real-time class would try again and again.
    fn rest_from_accepting(&mut self, error: &io::Error) {
        if error.kind() != io::ErrorKind::WouldBlock {
            self.deaf = Instant::now() + DEAF;
        }
    }

    fn accept_front(&mut self, mut link: Link, user: u32, group: u32) {
        let parties = self.links.values().map(|peer| peer.party);
        let users = parties.filter_map(|party| match party {
            Party::Front(user, _) => Some(user),
            _ => None,
        });
        let own = rustix::process::getuid().as_raw();
        let is_favoured = |user: u32| user == 0 || user == own;
        let (mut mine, mut others, mut all) = (0, 0, 0);
        for other in users {
            all += 1;
            mine += usize::from(other == user);
            others += usize::from(!is_favoured(other));
        }
        let is_full = match is_favoured(user) {
            true => all >= ALL_FRONTS,
            false => mine >= USER_FRONTS || others >= FRONTS,
        };
        if is_full {
            let text = format!(
                "the daemon has {mine} connections of user {user}, and {all} of all users: try \
                 again when some of them have ended"
            );
            return link.send(&Message::Refused(text));
        }
        self.add(link, Party::Front(user, group));
    }

    /// Handles gang jobs that came to rest or whose segment was found corrupt.
    fn handle_news(&mut self) {
        self.node.engine.take_news();
        self.node.take_faults();
        self.check_rest();
    }

    fn handle_link(&mut self, id: u64) {
        let Some(peer) = self.links.get_mut(&id) else {
            return;
        };
        let received = peer.link.flush().and_then(|()| peer.link.receive());
        match received {
            Ok(messages) => {
                if !matches!(peer.party, Party::Stranger | Party::Proved) {
                    self.heartbeat.hear(id);
                }
                for message in messages {
                    self.handle_message(id, message);
                    // A few bytes can ask for a long answer, and one read has many of them.
                    if let Some(peer) = self.links.get_mut(&id)
                        && peer.link.is_broken()
                        && let Err(error) = peer.link.flush()
                    {
                        return self.handle_lost(id, &Loss::of(error));
                    }
                }
            }
            Err(error) => self.handle_lost(id, &Loss::of(error)),
        }
    }

    fn handle_message(&mut self, id: u64, message: Message) {
        let Some(party) = self.links.get(&id).map(|peer| peer.party) else {
            return;
        };
        match party {
            Party::Front(..) if self.is_ending && matches!(message, Message::Run(_)) => {
                let text = "the daemon is stopping: start the job again when it runs again";
                self.send(id, &Message::Refused(text.to_string()));
            }
            Party::Front(user, group) => self.handle_request(id, message, (user, group)),
            Party::Stranger => self.handle_stranger(id, message),
            Party::Proved => self.handle_proved(id, message),
            Party::Parent => self.handle_down(id, message),
            Party::Child => self.handle_up(id, message),
        }
    }

    fn handle_request(&mut self, front: u64, message: Message, owner: (u32, u32)) {
        let peer = self.links.get(&front);
        let is_foreign = peer.is_some_and(|peer| peer.is_foreign);
        let is_full = peer.is_some_and(|peer| peer.link.is_full());
        let now = self.now();
        let Some(root) = &mut self.root else {
            let parent = self.config.parent.map(|parent| parent.to_string());
            let parent = parent.unwrap_or_default();
            let text = format!(
                "this daemon is not the root daemon: its parent is {parent}. Connect to the root \
                 daemon."
            );
            return self.send(front, &Message::Refused(text));
        };
        let own = rustix::process::getuid().as_raw();
        let done = match message {
            Message::Run(_) if own != 0 && own != owner.0 => Err(format!(
                "the daemon runs as user {own} and can start jobs of that user alone: run it as \
                 root, or run one of your own with --control"
            )),
            Message::Run(mut spec) => {
                spec.owner = owner;
                if is_foreign {
                    spec.keep_public_environment();
                }
                root.handle_run(front, spec).map(|()| None)
            }
            Message::List if is_full => Err("read the answers before this one first".to_string()),
            Message::List => Ok(Some(Message::Jobs(root.rows(owner.0)))),
            Message::Signal(job, signal) => {
                let was_past = root.is_past(job);
                let done = root.handle_signal(job, signal, owner.0);
                if was_past
                    && !root.is_past(job)
                    && let Some(journal) = &mut self.journal
                {
                    journal.ended(job);
                }
                done.map(|()| Some(Message::Done))
            }
            Message::State(job) => root.handle_inspect(job, front, owner.0).map(|()| None),
            Message::Checkpoint(job, within, holds) => root
                .handle_checkpoint(job, (front, owner.0), (within, holds), now)
                .map(|()| None),
            Message::Fetch(_, job, rank, offset) => {
                root.handle_fetch(job, front, rank, offset).map(|()| None)
            }
            Message::Release(job) => root
                .handle_release(job, front)
                .map(|()| Some(Message::Done)),
            Message::Replace(job, names) => root
                .handle_replace(job, front, &names)
                .map(|()| Some(Message::Done)),
            Message::Fill(_, job, piece) => root.handle_fill(job, front, piece).map(|()| None),
            Message::Work(job, has_work) => {
                // A front end says so often, and learns of an ended gang job in another way.
                let _ = root.handle_work(job, front, has_work);
                Ok(None)
            }
            _ => Err("front ends must not send this message".to_string()),
        };
        match done {
            Ok(None) => {}
            Ok(Some(answer)) => self.send(front, &answer),
            Err(text) => self.send(front, &Message::Refused(text)),
        }
    }

    /// The user and group that the gang jobs of a front end over TCP run as.
    fn admit(&self) -> Result<(u32, u32), &'static str> {
        let user = rustix::process::getuid();
        match self.config.tcp_user {
            Some(user) => Ok(user),
            None if user.is_root() => Err(
                "this daemon runs as root and does not know the user over TCP: start it with \
                 --tcp-user",
            ),
            None => Ok((user.as_raw(), rustix::process::getgid().as_raw())),
        }
    }

    /// Handles a message of a peer that must prove that it knows the secret.
    fn handle_stranger(&mut self, id: u64, message: Message) {
        let Message::Proof(text) = message else {
            let text = "this daemon accepts no secret that is sent as it is: update the program \
                        that connects, or give it the FARCALL_TOKEN of this daemon";
            return self.refuse(id, text);
        };
        let Some(peer) = self.links.get_mut(&id) else {
            return;
        };
        let answer = match peer.proving.take() {
            None => self.gate.challenge(&text).map(|(exchange, challenge)| {
                peer.proving = Some(Box::new(exchange));
                challenge
            }),
            Some(exchange) => exchange.check(&text).map_err(|error| error.to_string()),
        };
        match answer {
            Ok(text) => {
                if peer.proving.is_none() {
                    peer.party = Party::Proved;
                }
                self.send(id, &Message::Proof(text));
            }
            Err(text) => self.refuse(id, &text),
        }
    }

    fn refuse(&mut self, id: u64, text: &str) {
        self.send(id, &Message::Refused(text.to_string()));
        self.links.remove(&id);
    }

    /// Handles the first message of a peer that knows the secret.
    fn handle_proved(&mut self, id: u64, message: Message) {
        let party = match &message {
            Message::Hello(_) => match self.admit() {
                Ok((user, group)) => Party::Front(user, group),
                Err(text) => return self.refuse(id, text),
            },
            Message::Join(..) => Party::Child,
            _ => return self.refuse(id, "a peer must first say what it is"),
        };
        let own = rustix::process::getuid().as_raw();
        if matches!(party, Party::Front(..)) {
            self.heartbeat.forget(id);
        }
        if let Some(peer) = self.links.get_mut(&id) {
            peer.party = party;
            peer.is_foreign = matches!(party, Party::Front(user, _) if user != own);
        }
        if party == Party::Child {
            self.handle_up(id, message);
        }
    }

    fn handle_down(&mut self, id: u64, message: Message) {
        match message {
            Message::Closing(why) => self.handle_lost(id, &Loss::Closed(why)),
            Message::Down(round, step) => {
                let actions = self.switch.handle_down(round, step);
                self.act(actions);
            }
            Message::Alive => {}
            Message::Welcome(name, number, version) => self.welcome(name, number, version),
            Message::Refused(text) => self.be_refused(&text),
            Message::Fetch(node, ..) | Message::Fill(node, ..) => self.pass(node, message),
            other => self.broadcast(other),
        }
    }

    fn welcome(&mut self, name: String, number: u16, version: Option<u16>) {
        if version != Some(VERSION) {
            let text = "the root daemon is of another version: update it, or this one, so that \
                        all have the same";
            return self.fail(text.to_string());
        }
        if name == self.config.node && self.node.number == u16::MAX {
            if number == TAKEN {
                let text = format!("a node `{name}` has already joined: choose another --node");
                return self.be_refused(&text);
            }
            self.node.number = number;
            self.joiner.handle_joined();
            tracing::info!("joined as node {number}");
        } else if let Some(link) = self.joining.remove(&name) {
            if number != TAKEN {
                self.switch.handle_joined(number, link);
            }
            self.send(link, &Message::Welcome(name, number, version));
        } else if number != TAKEN {
            // Its link is gone, and when that broke, nobody knew its number.
            let why = format!("node {name} went away before it had joined");
            self.report(Message::Lost(number, Some(why)));
        }
    }

    /// Handles that the parent daemon does not let this one join.
    fn be_refused(&mut self, text: &str) {
        if self.joiner.is_lost {
            return self.lose_parent(&format!("the parent daemon refused: {text}"));
        }
        self.fail(format!("the parent daemon refused: {text}"));
    }

    /// Ends this daemon, which cannot go on.
    fn fail(&mut self, text: String) {
        self.failure = Some(text);
        self.is_ending = true;
    }

    fn handle_up(&mut self, id: u64, message: Message) {
        match message {
            Message::Alive => {}
            Message::Closing(why) => self.handle_lost(id, &Loss::Closed(why)),
            Message::Up(number, step, behind) => {
                let actions = self.switch.handle_up(id, number, step, behind);
                self.act(actions);
            }
            Message::Back(nodes) => {
                let actions = self.switch.handle_back(nodes);
                self.act(actions);
            }
            Message::Lost(node, why) => {
                if self.switch.handle_node_lost(id, node) {
                    self.report(Message::Lost(node, why));
                }
            }
            Message::Join(name, processors, engine, token, introduction) => {
                let version = introduction.map(|known| known.version);
                let user = introduction.map_or(u32::MAX, |known| known.user);
                if let Some(text) = self.refusal(version, &name, &engine) {
                    return self.send(id, &Message::Refused(text));
                }
                let taken = |root: &Root| {
                    let mut nodes = root.nodes();
                    nodes.any(|(other, _)| other == name)
                };
                if self.root.as_ref().is_some_and(taken) || self.joining.contains_key(&name) {
                    // Not `Refused`: the link may be that of a daemon between the two.
                    return self.send(id, &Message::Welcome(name, TAKEN, Some(VERSION)));
                }
                if let Some(peer) = self.links.get_mut(&id) {
                    peer.name.get_or_insert_with(|| format!("node {name}"));
                }
                self.joining.insert(name.clone(), id);
                let Some(root) = &mut self.root else {
                    let join = Message::Join(name, processors, engine, token, introduction);
                    return self.report(join);
                };
                let number = root.handle_join(&name, processors, engine, user);
                self.welcome(name, number, Some(VERSION));
            }
            other => self.report(other),
        }
    }

    /// Why a daemon of this version, with this name and this address for messages, cannot join now.
    fn refusal(&self, version: Option<u16>, name: &str, engine: &str) -> Option<String> {
        if version != Some(VERSION) {
            return Some(format!(
                "the daemon is of version {} of the protocol, and this one of {VERSION}: update \
                 them, so that all have the same",
                version.unwrap_or(1)
            ));
        }
        let cannot = check_name(name).and_then(|()| check_addresses(self.address.ip(), engine));
        if let Err(text) = cannot {
            return Some(text);
        }
        let waits = self.root.is_none() && self.node.number == u16::MAX;
        waits.then(|| "this daemon has not joined its own parent yet: try again".to_string())
    }

    /// Ends all processes, and tells their front ends.
    fn end(&mut self) {
        self.is_ending = true;
        if let Some(root) = &mut self.root {
            root.handle_end();
        }
        self.settle();
        self.node.end();
        let end = Instant::now() + END_BOUND;
        loop {
            self.node.reap();
            self.node.sweep();
            self.settle();
            let sent = self.links.values().all(|peer| !peer.link.wants_to_send());
            let is_done = !self.node.has_processes()
                && sent
                && self.root.as_ref().is_none_or(|root| root.is_idle());
            if is_done || Instant::now() >= end {
                break;
            }
            let left = end.saturating_duration_since(Instant::now());
            let pause = left.min(Duration::from_millis(50));
            match self.wait(pause) {
                Ok(ready) => ready.into_iter().for_each(|source| self.handle(source)),
                // It may be why the daemon ends. Its processes need the time that is left.
                Err(_) => std::thread::sleep(pause),
            }
        }
        for id in self.daemons() {
            self.say_why(id, "the daemon was stopped");
        }
        // The PMIx servers end, and nothing of them is left.
        self.node.forget_all();
        self.node.sweep();
        if let Some(journal) = &self.journal {
            journal.end();
        }
    }
}
