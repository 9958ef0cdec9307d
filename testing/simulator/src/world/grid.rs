//! Metaservers, the servers that join them, and cuts between hosts. It plays the network and the
//! clocks; the directory and the membership are the product's own. In the end, all metaservers must
//! know exactly the servers that live.

use super::links::{Maker, To};
use super::{Happening, MS, S, World};
use crate::grid::meta::Meta;
use farcall_directory::message::{Leave, Message, Noted};
use farcall_rpc_proto::client::{Answer as KnownOutcome, Connection, Event};
use farcall_rpc_proto::{DIRECTORY, FailureKind, Hello, Kind, Limits, NAMES, Nanos, Transmit};
use farcall_server_proto::ServerStatus;
use farcall_server_proto::member::{Answer, Ask, Member};

/// How often a metaserver looks at leases and at its store.
const TICK: Nanos = 200 * MS;
/// The time after which no metaserver knows a dead server: its last report might have been late,
/// and its lease must end.
const FORGOTTEN: Nanos = 60 * S;
/// The longest time that a server waits for a metaserver.
const PATIENCE: Nanos = 3 * S;

/// A host with a metaserver, one life of it after the other.
#[derive(Default)]
pub(crate) struct MetaHost {
    pub(super) meta: Option<Meta>,
    pub(super) life: u64,
    /// The error of its system clock in milliseconds.
    calendar: i64,
    /// The error when the metaserver started; its monotonic clock continues from there.
    started: i64,
}

/// A server as a member of one metaserver.
pub(crate) struct Membership {
    member: Member,
    /// A status report that waits until the metaserver has answered.
    waits: Option<(Nanos, ServerStatus)>,
    line: Option<(usize, Connection)>,
    /// Counts questions, so that a time-out of an earlier question is ignored.
    asked: u64,
    deadline: Nanos,
}

/// Two ends that cannot reach each other.
pub(super) struct Cut {
    ends: [End; 2],
    until: Nanos,
}

/// An end that can be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Host(usize),
    Meta(usize),
    Client(usize),
}

impl Membership {
    /// Whether the metaserver has not answered yet.
    fn is_busy(&self) -> bool {
        self.asked > 0 && self.member.next_deadline().is_none()
    }
}

impl World {
    /// The time that a metaserver reads from its clock, in seconds since 1970.
    pub(super) fn meta_now(&self, meta: usize) -> f64 {
        let milliseconds = self.calendar + self.metas[meta].started;
        milliseconds as f64 * 1e-3 + self.now as f64 * 1e-9
    }

    pub(super) fn meta_starts(&mut self, meta: usize) {
        self.metas[meta].life += 1;
        let life = self.metas[meta].life;
        self.trace(|| format!("metaserver {meta} starts, life {life}"));
        self.metas[meta].started = self.metas[meta].calendar;
        let first = self.random.next_u64() >> 1;
        self.metas[meta].meta = Some(Meta::new(first));
        self.meta_turns(meta, life);
    }

    /// A metaserver does its periodic work. A kill can come before any write to its store.
    pub(super) fn meta_turns(&mut self, meta: usize, life: u64) {
        if self.metas[meta].life != life {
            return;
        }
        if self.fails(|faults| faults.calendar_jumps, 100) {
            self.metas[meta].calendar += self.random.below(4_000_000) as i64 - 2_000_000;
            self.trace(|| format!("the calendar of metaserver {meta} jumps"));
        }
        let is_killed = self.grid_fails(|faults| faults.metaserver_kills, 100);
        let most = if is_killed {
            self.random.below(3) as usize
        } else {
            usize::MAX
        };
        let now = (self.meta_now(meta), self.now as f64 * 1e-9);
        let store = self.options.stores.then_some(&mut self.store);
        if let Some(known) = &mut self.metas[meta].meta {
            known.turn(store, now, most);
        }
        self.check_dead(meta);
        if is_killed {
            return self.kill_meta(meta);
        }
        self.at(self.now + TICK, Happening::MetaTurns(meta, life));
    }

    fn kill_meta(&mut self, meta: usize) {
        self.trace(|| format!("metaserver {meta} is killed"));
        self.metas[meta].meta = None;
        self.metas[meta].life += 1;
        for link in 0..self.links.len() {
            if self.links[link].to == To::Meta(meta) && self.links[link].is_open {
                let delay = self.random.below(20 * MS);
                self.at(self.now + delay, Happening::LostAtClient(link));
            }
        }
        let delay = self.random.below(10 * S);
        self.at(self.now + delay, Happening::MetaStarts(meta));
    }

    pub(super) fn reaches_meta(&mut self, meta: usize, link: usize, bytes: &[u8]) {
        let now = self.meta_now(meta);
        let Some(known) = &mut self.metas[meta].meta else {
            return;
        };
        match known.input(link, bytes, now) {
            Some(answer) => self.send(link, answer, 1),
            None => {
                known.lost(link, now);
                self.at(self.now + MS, Happening::LostAtClient(link));
            }
        }
    }

    pub(super) fn lost_at_meta(&mut self, meta: usize, link: usize) {
        let now = self.meta_now(meta);
        if let Some(known) = &mut self.metas[meta].meta {
            known.lost(link, now);
        }
    }

    /// A new life of a server joins all metaservers.
    pub(super) fn joins(&mut self, host: usize) {
        let number = self.random.next_u64();
        self.hosts[host].number = number;
        let address = format!("farcall://host{host}:3717");
        let member = |_| Membership {
            member: Member::new(number, address.clone(), "simulated server"),
            waits: None,
            line: None,
            asked: 0,
            deadline: Nanos::MAX,
        };
        self.hosts[host].members = (0..self.metas.len()).map(member).collect();
        if !self.metas.is_empty()
            && let Some(machine) = self.machine(host)
        {
            machine.server.subscribe();
        }
    }

    /// A server that stops leaves its metaservers.
    pub(super) fn leaves(&mut self, host: usize) {
        let number = self.hosts[host].number;
        for meta in 0..self.metas.len() {
            if let Some((_, line)) = &mut self.hosts[host].members[meta].line {
                let _ = line.ask_directory(Kind::Leave, &Leave { server: number }.to_bytes());
            }
            self.member_sends(host, meta);
        }
    }

    /// Sends the server's status to all metaservers, if it is due.
    pub(super) fn report(&mut self, host: usize) {
        let now = self.now;
        let at = &mut self.hosts[host];
        let Some(machine) = &mut at.machine else {
            return;
        };
        let Some(status) = machine.server.poll_report() else {
            return;
        };
        let mut all = true;
        for member in &mut at.members {
            match member.waits {
                Some(_) => all = false,
                None => member.waits = Some((now, status.clone())),
            }
        }
        machine.server.reported(&status, all);
        for meta in 0..self.metas.len() {
            self.member_turns(host, meta);
        }
    }

    /// A server does its periodic work at a metaserver.
    pub(super) fn member_turns(&mut self, host: usize, meta: usize) {
        loop {
            let now = self.now;
            let Some(known) = self.hosts[host].members.get_mut(meta) else {
                return;
            };
            if !known.is_busy()
                && let Some((at, status)) = known.waits.take()
            {
                known.member.take(at, status);
            }
            let Some(ask) = known.member.poll(now) else {
                break;
            };
            known.asked += 1;
            let asked = known.asked;
            let (kind, message) = match ask {
                Ask::Connect => {
                    let delay = MS + self.random.below(5 * MS);
                    let maker = Maker::Member(host, self.hosts[host].life, meta);
                    self.at(self.now + delay, Happening::Reaches(maker, To::Meta(meta)));
                    break;
                }
                Ask::Join(join) => (Kind::Join, join.to_bytes()),
                Ask::Report(report) => (Kind::Report, report.to_bytes()),
                Ask::Hold(hold) => (Kind::Hold, hold.to_bytes()),
            };
            match &mut known.line {
                Some((_, line)) => drop(line.ask_directory(kind, &message)),
                None => known.member.lost(now),
            }
            self.member_sends(host, meta);
            let life = self.hosts[host].life;
            self.at(now + PATIENCE, Happening::Patience(host, life, meta, asked));
        }
        let known = &mut self.hosts[host].members[meta];
        let next = known
            .member
            .next_deadline()
            .map(|next| next.max(self.now + 1000));
        if let Some(next) = next.filter(|next| *next < known.deadline) {
            known.deadline = next;
            let life = self.hosts[host].life;
            self.at(next, Happening::MemberTurns(host, life, meta));
        }
    }

    pub(super) fn member_is_due(&mut self, host: usize, meta: usize) {
        if let Some(known) = self.hosts[host].members.get_mut(meta) {
            known.deadline = Nanos::MAX;
        }
        self.member_turns(host, meta);
    }

    fn member_sends(&mut self, host: usize, meta: usize) {
        let Some((link, line)) = &mut self.hosts[host].members[meta].line else {
            return;
        };
        let (link, mut out) = (*link, Vec::new());
        while line.poll_transmit(&mut out) != Transmit::Idle {}
        self.send(link, out, 0);
    }

    /// A server stops waiting for a metaserver.
    pub(super) fn loses_patience(&mut self, host: usize, meta: usize, asked: u64) {
        let Some(known) = self.hosts[host].members.get(meta) else {
            return;
        };
        let waits = known.asked == asked && known.is_busy();
        if let (true, Some((link, _))) = (waits, &known.line) {
            let link = *link;
            let delay = self.random.below(20 * MS);
            self.at(self.now + delay, Happening::LostAtServer(link));
            self.lost_at_client(link);
        }
    }

    /// A server's connection to a metaserver was made, or could not be made.
    pub(super) fn member_connected(&mut self, host: usize, meta: usize, link: Option<usize>) {
        let now = self.now;
        let known = &mut self.hosts[host].members[meta];
        match link {
            None => known.member.lost(now),
            Some(link) => {
                let mut hello = Hello::new("simulated server");
                hello.proof = Some("server".to_string());
                hello.features |= DIRECTORY | NAMES;
                known.line = Some((link, Connection::new(Limits::default(), &hello)));
                known.member.connected(true);
            }
        }
        self.member_turns(host, meta);
    }

    pub(super) fn member_lost(&mut self, host: usize, meta: usize) {
        let now = self.now;
        let known = &mut self.hosts[host].members[meta];
        known.line = None;
        known.member.lost(now);
        self.member_turns(host, meta);
    }

    /// Bytes of a metaserver have arrived at a server. Returns whether the connection can continue.
    pub(super) fn member_hears(&mut self, host: usize, meta: usize, mut bytes: &[u8]) -> bool {
        let now = self.now;
        while !bytes.is_empty() {
            let known = &mut self.hosts[host].members[meta];
            let Some((_, line)) = &mut known.line else {
                return false;
            };
            let Ok((taken, event)) = line.handle_input(bytes) else {
                return false;
            };
            bytes = &bytes[taken..];
            let answer = match event {
                Some(Event::Answered(_, KnownOutcome::Directory(Kind::Noted, message))) => {
                    let Ok(noted) = Noted::from_bytes(&message) else {
                        return false;
                    };
                    Answer::Noted(noted)
                }
                Some(Event::Failed(_, failure)) => match failure.kind {
                    FailureKind::NotJoined => Answer::WantsJoin,
                    _ => return false,
                },
                Some(Event::Connected(_)) => {
                    self.member_sends(host, meta);
                    continue;
                }
                _ => continue,
            };
            known.member.answered(now, answer);
            self.member_turns(host, meta);
        }
        true
    }

    /// Whether two ends reach each other now.
    pub(super) fn is_cut(&self, one: End, other: End) -> bool {
        let is_it = |cut: &Cut| cut.ends == [one, other] || cut.ends == [other, one];
        self.cuts
            .iter()
            .any(|cut| self.now < cut.until && is_it(cut))
    }

    /// Cuts two ends off from each other, at random.
    pub(super) fn may_cut(&mut self) {
        if !self.grid_fails(|faults| faults.cuts, 300) {
            return;
        }
        let host = End::Host(self.random.below(self.hosts.len() as u64) as usize);
        let meta = End::Meta(self.random.below(self.metas.len() as u64) as usize);
        let client = End::Client(self.random.below(self.callers.len() as u64) as usize);
        let ends = match self.random.below(3) {
            0 => [host, meta],
            1 => [client, meta],
            _ => [client, host],
        };
        let until = self.now + self.random.below(40 * S);
        self.trace(|| {
            format!(
                "{ends:?} do not reach each other until {:.1}",
                until as f64 * 1e-9
            )
        });
        self.cuts.push(Cut { ends, until });
        for link in 0..self.links.len() {
            let known = &self.links[link];
            if known.is_open && self.is_cut(known.maker.end(), known.to.end()) {
                self.links[link].is_broken = true;
                let [there, here] = [0, 1].map(|_| self.random.below(10 * S));
                self.at(self.now + there, Happening::LostAtServer(link));
                self.at(self.now + here, Happening::LostAtClient(link));
            }
        }
    }

    /// Whether a metaserver still knows a server that ended long ago.
    fn check_dead(&mut self, meta: usize) {
        let Some(known) = &self.metas[meta].meta else {
            return;
        };
        let is_known = |(number, ended): &&(u64, Nanos)| {
            self.now > ended + FORGOTTEN && known.directory.address(*number).is_some()
        };
        if let Some((number, ended)) = self.dead.iter().find(is_known) {
            let for_s = (self.now - ended) / S;
            let text = format!("metaserver {meta} knows server {number:x}, dead for {for_s} s");
            self.checker.fail(text);
        }
    }

    /// Checks that all metaservers know exactly the live servers, and that these take calls.
    pub(super) fn check_directories(&mut self) {
        let live = self.hosts.iter().filter(|host| !host.is_gone);
        let live = live.map(|host| (host.number, true));
        let mut live: Vec<(u64, bool)> = live.collect();
        live.sort_unstable();
        for meta in 0..self.metas.len() {
            let known = self.metas[meta].meta.as_mut().map(Meta::servers);
            if known.as_ref() != Some(&live) {
                let text = format!(
                    "metaserver {meta} knows the servers {known:x?} when all is well again, and \
                     {live:x?} live"
                );
                self.checker.fail(text);
            }
        }
    }
}
