//! The decisions of the root daemon: gang jobs, their placement and slices, and the messages to
//! their front ends. The caller performs all I/O.

mod checkpoint;
mod interactive;
mod judgement;
mod looks;
mod moving;
mod mpi;
mod rows;

use crate::{
    Admission, Behind, Ended, FARCALL_FAILED, Global, JobId, JobRow, JobSpec, Message, Nanos,
    Pairs, Placement, QueueTree, Turn, Usage,
};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use checkpoint::Checkpoint;
use interactive::Account;
use judgement::Inspection;
use looks::Looks;
pub use rows::Counts;

/// The largest number of processes of a gang job.
const MAX_PROCESSES: u16 = 4096;
/// Signals, by the numbers that daemons exchange: those of Linux.
const SIGKILL: i32 = 9;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;
const SIGTSTP: i32 = 20;

/// The settings of the root daemon.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of memory for all gang jobs together.
    pub memory: u64,
    /// A number that distinguishes the gang jobs of this daemon from those of any other run.
    pub epoch: u64,
    /// Length of a slice in nanoseconds.
    pub slice: Nanos,
    /// Interval in nanoseconds at which gang jobs with `detect_termination` are judged.
    pub watch: Nanos,
    /// Whether a gang job is switched out and in even if it is alone.
    pub switch_alone: bool,
    /// Bytes of a receive FIFO if the gang job does not specify them.
    pub receive: u32,
    /// Percent of the processor time that a user's interactive gang jobs can have before others.
    /// Those of all users together can have twice as much.
    pub share: u64,
}

/// A node that has joined.
#[derive(Clone, Debug)]
struct NodeEntry {
    name: String,
    slots: u16,
    engine: String,
    /// The user that its daemon runs as.
    user: u32,
    is_lost: bool,
    /// Whether it does not answer now.
    is_behind: bool,
}

#[derive(Debug)]
struct Job {
    spec: JobSpec,
    /// Its number at the nodes: another one after each move, so that nothing that comes late from
    /// its former processes counts.
    local: JobId,
    /// Taking its state, or moving it.
    checkpoint: Option<Checkpoint>,
    /// Ranks whose processes have not begun, because their states have not arrived.
    unfilled: BTreeSet<u16>,
    /// Bytes of each piece of a state that is on its way to a node.
    filling: VecDeque<usize>,
    placement: Placement,
    /// Its nodes.
    nodes: BTreeSet<u16>,
    /// Those of its nodes that do not answer now.
    behind: BTreeSet<u16>,
    /// Number of slices that it must miss, because it did not stop in time.
    sits_out: usize,
    /// What its processes have put before a barrier of MPI, by the nodes that have reached it.
    fences: BTreeMap<u16, Pairs>,
    /// The front end that started it.
    front: u64,
    ended: BTreeSet<u16>,
    outcome: Ended,
    is_stopped: bool,
    is_ending: bool,
    /// Whether its front end has work for it; true unless it is interactive.
    has_work: bool,
    /// Since when it runs, if it is interactive and runs.
    since: Option<Nanos>,
    slices: u64,
    /// Total nanoseconds of the gang switches that switched it out, and their number.
    lost: (u64, u64),
    bytes: u64,
    inspection: Option<Inspection>,
    /// The result of the last judgement for `Root::watch`, and the gang job's progress and slices
    /// at that time.
    last_judgement: Option<(Global, u64, u64)>,
    looks: Looks,
}

impl Job {
    /// Whether the gang job may run. It rests as long as it is being judged, one of its nodes does
    /// not answer, or it pays for a gang switch that had to wait for it.
    fn may_run(&self) -> bool {
        let is_free = self.behind.is_empty() && self.sits_out == 0 && self.unfilled.is_empty();
        !self.is_stopped && self.has_work && self.inspection.is_none() && is_free
    }

    fn is_interactive(&self) -> bool {
        self.spec.interactive == Some(true)
    }

    /// Whether it only keeps its processors free of others.
    fn has_no_processes(&self) -> bool {
        self.spec.command.is_empty()
    }
}

/// A message that the root wants to send.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Send to all nodes.
    Nodes(Message),
    /// Send to one node.
    Node(u16, Message),
    /// Send to a front end.
    Front(u64, Message),
}

/// The state of the root daemon: gang jobs, their placement and slices, and the messages to their
/// front ends.
///
/// Each event is a `handle_*` method. After each event, take all orders ([`Root::poll_order`]).
/// Then ask for the gang switch that may be due ([`Root::poll_switch`]), pass it to
/// [`crate::Switch::start`], and report its end ([`Root::handle_switched`]). Call
/// [`Root::handle_timeout`] at [`Root::next_deadline`]. The caller chooses the numbers of front
/// ends; the root assigns the numbers of nodes.
#[derive(Debug)]
pub struct Root {
    settings: Settings,
    nodes: Vec<NodeEntry>,
    jobs: BTreeMap<JobId, Job>,
    /// The gang jobs that have another number at the nodes, by that number.
    moved: BTreeMap<JobId, JobId>,
    tree: QueueTree,
    admission: Admission,
    /// Node and processor of each slot.
    slots: Vec<(u16, u16)>,
    running: Vec<JobId>,
    /// Gang jobs that urgent ones have taken the place of.
    displaced: Vec<JobId>,
    /// What interactive gang jobs had before others: those of each user, and all.
    accounts: BTreeMap<u32, Account>,
    account: Account,
    /// Gang jobs that were lost with an earlier daemon, until their users have taken note.
    lost: BTreeMap<JobId, JobRow>,
    /// Gang jobs that ended in their slice since the last gang switch; no gang switch stops them.
    ended: Vec<JobId>,
    last: JobId,
    /// Number of gang jobs that ended with status 0, and of all others that ended.
    past: (u64, u64),
    orders: VecDeque<Order>,
    turns: Turns,
}

/// The time of the next gang switch.
#[derive(Debug, Default)]
struct Turns {
    /// When the slice ends; none before the first slice.
    slice_ends: Option<Nanos>,
    watch_at: Nanos,
    /// The time of the last call that has said it.
    now: Nanos,
    /// Whether something has changed, so that other gang jobs may have to run before the slice
    /// ends.
    is_wanted: bool,
    /// Whether the gang switch in progress begins a slice.
    begins_slice: bool,
    /// Whether a gang switch is in progress.
    is_switching: bool,
    /// The gang jobs that it lets run.
    coming: Vec<JobId>,
    /// The gang jobs that it had to wait for.
    stuck: Vec<JobId>,
}

impl Root {
    /// Creates a root without nodes and gang jobs.
    pub fn new(settings: Settings, now: Nanos) -> Root {
        Root {
            nodes: Vec::new(),
            jobs: BTreeMap::new(),
            moved: BTreeMap::new(),
            tree: QueueTree::new(1),
            admission: Admission::new(settings.memory),
            slots: Vec::new(),
            running: Vec::new(),
            displaced: Vec::new(),
            accounts: BTreeMap::new(),
            account: Account::default(),
            lost: BTreeMap::new(),
            ended: Vec::new(),
            last: 0,
            past: (0, 0),
            orders: VecDeque::new(),
            turns: Turns {
                watch_at: now.saturating_add(settings.watch),
                ..Turns::default()
            },
            settings,
        }
    }

    /// Returns the next order, in sequence.
    pub fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Returns the gang jobs to switch out and in, if a gang switch is due now. The caller must
    /// start it at once.
    pub fn poll_switch(&mut self, now: Nanos) -> Option<Turn> {
        self.turns.now = now;
        let is_over = self.turns.slice_ends.is_none_or(|end| now >= end);
        let is_due = self.turns.is_wanted || is_over && !self.is_idle();
        if self.turns.is_switching || !is_due {
            return None;
        }
        self.turns.is_wanted = false;
        self.charge(now);
        let is_whole = is_over || self.running.is_empty();
        let switch = self.next_switch(is_whole);
        self.turns.begins_slice = is_whole;
        match switch {
            Some(_) => self.turns.is_switching = true,
            None => self.begin_slice(now),
        }
        switch.map(|turn| self.to_nodes(turn))
    }

    /// Handles the end of a gang switch that took `took`. Gang jobs that were to come in, and are
    /// not in `into`, do not run.
    pub fn handle_switched(&mut self, (out, into): (&[JobId], &[JobId]), took: Nanos, now: Nanos) {
        self.turns.now = now;
        let (out, into) = (self.known(out), self.known(into));
        let coming = core::mem::take(&mut self.turns.coming);
        self.running
            .retain(|id| into.contains(id) || !coming.contains(id));
        for id in &into {
            if let Some(job) = self.jobs.get_mut(id) {
                job.slices += 1;
                // An interactive one also pays for the gang switches to it and back.
                job.since = Some(now.saturating_sub(took.saturating_mul(2)));
            }
        }
        for id in &out {
            if let Some(job) = self.jobs.get_mut(id) {
                job.lost.0 += took;
                job.lost.1 += 1;
            }
        }
        // The time that the others lost comes from its own slices.
        let lost = took.div_ceil(self.settings.slice.max(1));
        for id in core::mem::take(&mut self.turns.stuck) {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.sits_out += usize::try_from(lost).unwrap_or(usize::MAX / 2);
            }
        }
        self.turns.is_switching = false;
        self.begin_slice(now);
    }

    fn begin_slice(&mut self, now: Nanos) {
        if !core::mem::take(&mut self.turns.begins_slice) {
            return self.begin_inspections();
        }
        for (id, job) in self.jobs.iter_mut().filter(|(_, job)| job.sits_out > 0) {
            job.sits_out -= 1;
            self.tree.set_runnable(*id, job.may_run());
        }
        self.turns.slice_ends = Some(now.saturating_add(self.settings.slice));
        self.begin_inspections();
    }

    /// Does all work that is due at `now`.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.turns.now = now;
        self.look_when_due();
        if now >= self.turns.watch_at {
            self.turns.watch_at = now.saturating_add(self.settings.watch);
            self.watch();
        }
    }

    /// The time of the next work. Call [`Root::handle_timeout`] and [`Root::poll_switch`] then.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let is_waiting = !self.turns.is_switching && !self.is_idle();
        let end = self.turns.slice_ends.filter(|_| is_waiting);
        let end = end.map(|end| end.min(self.turns.watch_at));
        match (end, self.next_look()) {
            (Some(end), Some(look)) => Some(end.min(look)),
            (end, look) => end.or(look),
        }
    }

    /// Adds a node, or takes one back that was lost, and returns its number. `user` is the one that
    /// its daemon runs as.
    pub fn handle_join(
        &mut self,
        name: &str,
        processors: Vec<u16>,
        engine: String,
        user: u32,
    ) -> u16 {
        let entry = NodeEntry {
            name: name.to_string(),
            slots: processors.len() as u16,
            engine,
            user,
            is_lost: false,
            is_behind: false,
        };
        let jobs = &self.jobs;
        let is_free = |number: u16| !jobs.values().any(|job| job.nodes.contains(&number));
        let places = self.nodes.iter_mut().zip(0u16..);
        let mut gone = places.filter(|(node, number)| node.is_lost && is_free(*number));
        let number = match gone.find(|(node, _)| node.name == name) {
            Some((node, number)) => {
                *node = entry;
                number
            }
            None => {
                drop(gone);
                self.nodes.push(entry);
                (self.nodes.len() - 1) as u16
            }
        };
        let slots = processors.into_iter().map(|processor| (number, processor));
        self.slots.extend(slots);
        self.rebuild();
        number
    }

    /// Builds the tree for the current slots. Gang jobs that run keep their placement, and share
    /// slices with the whole machine until they end.
    fn rebuild(&mut self) {
        self.tree = QueueTree::new(self.slots.len());
        for (id, job) in &self.jobs {
            self.tree.enter(*id, self.slots.len());
            self.tree.set_runnable(*id, job.may_run());
        }
    }

    /// Handles the loss of a node, for a reason in words: its processes count as ended.
    pub fn handle_lost(&mut self, number: u16, why: &str) {
        let Some(node) = self.nodes.get_mut(usize::from(number)) else {
            return;
        };
        node.is_lost = true;
        let name = node.name.clone();
        self.slots.retain(|(node, _)| *node != number);
        for job in self.jobs.values_mut() {
            job.behind.remove(&number);
        }
        self.rebuild();
        let hit = self.jobs.iter();
        let hit = hit.filter(|(_, job)| job.nodes.contains(&number));
        for id in hit.map(|(id, _)| *id).collect::<Vec<_>>() {
            if self.lose_place(id, &name, why) {
                continue;
            }
            let Some(job) = self.jobs.get(&id) else {
                continue;
            };
            if job.has_no_processes() {
                self.finish(id);
                continue;
            }
            let ranks = job.placement.nodes.iter().zip(0u16..);
            let ranks: Vec<u16> = ranks
                .filter_map(|(node, rank)| (*node == number).then_some(rank))
                .collect();
            for rank in ranks {
                let ended = Ended {
                    status: FARCALL_FAILED,
                    cause: Some(format!("rank {rank}: node {name} is gone: {why}")),
                    usage: Usage::default(),
                };
                self.end_process(id, rank, ended);
            }
        }
        self.await_no_longer(number);
    }

    /// Handles what has not kept up with a gang switch. Gang jobs on nodes that do not answer get
    /// no slice until [`Root::handle_back`]. A gang job that did not stop in time misses its next
    /// slice, and as many as the others lost.
    pub fn handle_behind(&mut self, behind: &Behind) {
        let turns = self.jobs.len();
        let stuck = self.known(&behind.jobs);
        // A node that is lost meanwhile does not come back, and nothing is awaited from it.
        let mut late = behind.nodes.clone();
        late.retain(|number| {
            let node = self.nodes.get_mut(usize::from(*number));
            let node = node.filter(|node| !node.is_lost);
            node.is_some_and(|node| {
                node.is_behind = true;
                true
            })
        });
        for (id, job) in &mut self.jobs {
            let late = late.iter().filter(|node| job.nodes.contains(*node));
            job.behind.extend(late);
            if stuck.contains(id) {
                // The others have their slices, then it misses its own.
                job.sits_out = turns;
                self.turns.stuck.push(*id);
            }
            self.tree.set_runnable(*id, job.may_run());
        }
    }

    /// Handles nodes that answer again.
    pub fn handle_back(&mut self, nodes: &[u16]) {
        for number in nodes {
            if let Some(node) = self.nodes.get_mut(usize::from(*number)) {
                node.is_behind = false;
            }
        }
        for (id, job) in &mut self.jobs {
            job.behind.retain(|node| !nodes.contains(node));
            self.tree.set_runnable(*id, job.may_run());
        }
        self.turns.is_wanted = true;
    }

    /// Continues the numbers of gang jobs of an earlier daemon, and shows those that were lost with
    /// it until their users have taken note.
    pub fn handle_past(&mut self, last: JobId, lost: Vec<JobRow>) {
        self.last = self.last.max(last);
        for mut row in lost {
            row.state = "lost".to_string();
            self.last = self.last.max(row.id);
            self.lost.insert(row.id, row);
        }
    }

    /// Starts a gang job for a front end.
    ///
    /// # Errors
    /// Returns the reason for the front end.
    pub fn handle_run(&mut self, front: u64, mut spec: JobSpec) -> Result<(), String> {
        let is_interactive = spec.interactive == Some(true);
        let has_no_processes = spec.command.is_empty();
        if has_no_processes && !is_interactive || !(1..=MAX_PROCESSES).contains(&spec.processes) {
            return Err(format!(
                "a gang job needs a program and 1 to {MAX_PROCESSES} processes"
            ));
        }
        spec.check_length()?;
        if self.slots.is_empty() {
            return Err("no node has joined".to_string());
        }
        let places = spec.on.as_deref().map(|names| self.slots_on(names));
        let places = places.transpose()?;
        let bytes = spec.memory.saturating_mul(spec.processes.into());
        self.admission
            .enter(bytes)
            .map_err(|error| error.to_string())?;
        let foreign = |node: &NodeEntry| ![0, spec.owner.0].contains(&node.user);
        if self.nodes.iter().any(|node| !node.is_lost && foreign(node)) {
            spec.keep_public_environment();
        }
        self.last += 1;
        let id = self.last;
        // The front end of an interactive gang job is on the node of the root daemon, and so is
        // rank 0.
        let here = self.slots.iter().position(|(node, _)| *node == 0);
        let here = here.filter(|_| is_interactive);
        let (partition, placement) = match &places {
            None => {
                let partition = self.tree.enter_at(id, spec.processes.into(), here);
                let slots = self.slots_of(partition, is_interactive);
                (partition, self.place(id, &slots, spec.processes))
            }
            Some(places) => self.place_over(id, places, spec.processes),
        };
        let prepare = Message::Prepare(spec.clone(), placement.clone());
        let job = self.new_job((id, front, bytes), spec, placement);
        self.tree.set_runnable(id, job.may_run());
        let shared = (!job.placement.is_dedicated).then_some(partition.slots as u16);
        self.jobs.insert(id, job);
        if !has_no_processes {
            self.orders.push_back(Order::Nodes(prepare));
        }
        self.orders
            .push_back(Order::Front(front, Message::Started(id, shared)));
        self.turns.is_wanted = true;
        Ok(())
    }

    fn new_job(
        &self,
        (id, front, bytes): (JobId, u64, u64),
        spec: JobSpec,
        placement: Placement,
    ) -> Job {
        let nodes: BTreeSet<u16> = placement.nodes.iter().copied().collect();
        let is_behind = |node: &&u16| self.nodes[usize::from(**node)].is_behind;
        Job {
            behind: nodes.iter().filter(is_behind).copied().collect(),
            local: id,
            checkpoint: None,
            unfilled: match spec.restored {
                Some(true) => (0..spec.processes).collect(),
                _ => BTreeSet::new(),
            },
            filling: VecDeque::new(),
            has_work: !spec.command.is_empty(),
            spec,
            placement,
            nodes,
            sits_out: 0,
            fences: BTreeMap::new(),
            front,
            ended: BTreeSet::new(),
            outcome: Ended::default(),
            is_stopped: false,
            is_ending: false,
            since: None,
            slices: 0,
            lost: (0, 0),
            bytes,
            inspection: None,
            last_judgement: None,
            looks: Looks::default(),
        }
    }

    /// Returns the gang job if the user may act on it.
    fn owned(&mut self, id: JobId, user: u32) -> Result<&mut Job, String> {
        let job = self
            .jobs
            .get_mut(&id)
            .ok_or(format!("there is no gang job {id}"))?;
        if user != 0 && user != job.spec.owner.0 {
            return Err(format!(
                "gang job {id} belongs to user {}",
                job.spec.owner.0
            ));
        }
        Ok(job)
    }

    /// Sends a signal to a gang job. SIGSTOP and SIGCONT also exclude it from the slices and
    /// include it again.
    ///
    /// # Errors
    /// Returns the reason for the front end.
    pub fn handle_signal(&mut self, id: JobId, signal: i32, user: u32) -> Result<(), String> {
        let is_own = |row: &JobRow| user == 0 || user == row.user;
        if signal == SIGKILL && self.lost.get(&id).is_some_and(is_own) {
            self.lost.remove(&id);
            return Ok(());
        }
        let job = self.owned(id, user)?;
        match signal {
            SIGSTOP | SIGTSTP | SIGCONT => {
                job.is_stopped = signal != SIGCONT;
                let may_run = job.may_run();
                self.tree.set_runnable(id, may_run);
                self.turns.is_wanted = true;
            }
            SIGKILL => self.kill(id),
            1..=64 => {
                let deliver = Message::Deliver(job.local, signal);
                self.orders.push_back(Order::Nodes(deliver));
            }
            _ => return Err(format!("no signal {signal}")),
        }
        Ok(())
    }

    /// Handles the loss of a front end: its gang jobs end.
    pub fn handle_front_lost(&mut self, front: u64) {
        self.lose_taker(front);
        let mut mine = Vec::new();
        for (id, job) in &mut self.jobs {
            if job.front == front {
                job.is_ending = true;
                mine.push(*id);
            }
            job.forget_asking(front);
        }
        for id in mine {
            self.kill(id);
        }
    }

    /// Kills the processes of a gang job. One without processes ends at once.
    fn kill(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.nodes.is_empty() {
            // Its processes have ended for a move, and there are no others yet.
            job.outcome.status = job.outcome.status.max(128 + SIGKILL as u8);
        }
        match job.has_no_processes() || job.nodes.is_empty() {
            true => self.finish(id),
            false => {
                let kill = Message::Deliver(job.local, SIGKILL);
                self.orders.push_back(Order::Nodes(kill));
            }
        }
    }

    /// Handles a front end that stops reading, or resumes. The nodes hold back the output of its
    /// gang jobs.
    pub fn handle_hold(&mut self, front: u64, is_held: bool) {
        let mine = self.jobs.iter().filter(|(_, job)| job.front == front);
        let holds = mine.map(|(_, job)| Order::Nodes(Message::Hold(job.local, is_held)));
        self.orders.extend(holds);
    }

    /// Passes the output of a process to its front end.
    pub fn handle_output(&mut self, local: JobId, message: Message) {
        if let Some(job) = self.known_one(local).and_then(|id| self.jobs.get(&id)) {
            self.orders.push_back(Order::Front(job.front, message));
        }
    }

    /// Handles the end of a process.
    pub fn handle_process_ended(&mut self, local: JobId, rank: u16, ended: Ended) {
        if let Some(id) = self.known_one(local) {
            self.end_process(id, rank, ended);
        }
    }

    fn end_process(&mut self, id: JobId, rank: u16, ended: Ended) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if !job.ended.insert(rank) {
            return;
        }
        let outcome = &mut job.outcome;
        outcome.usage.user_us += ended.usage.user_us;
        outcome.usage.system_us += ended.usage.system_us;
        outcome.usage.peak_bytes = outcome.usage.peak_bytes.max(ended.usage.peak_bytes);
        // If the gang job is already being ended, the ends of its processes say nothing new.
        if !job.is_ending {
            if outcome.cause.is_none() {
                outcome.cause = ended.cause;
            }
            outcome.status = outcome.status.max(ended.status);
        }
        if ended.status >= FARCALL_FAILED && !job.is_ending {
            job.is_ending = true;
            let kill = Message::Deliver(job.local, SIGKILL);
            self.orders.push_back(Order::Nodes(kill));
        }
        if job.ended.len() == usize::from(job.spec.processes) {
            self.finish(id);
        }
    }

    fn finish(&mut self, id: JobId) {
        let Some(mut job) = self.jobs.remove(&id) else {
            return;
        };
        let asking = job.take_asking();
        self.tree.leave(id);
        self.admission.leave(job.bytes);
        self.moved.remove(&job.local);
        self.orders
            .push_back(Order::Nodes(Message::Forget(job.local)));
        match job.outcome.status {
            0 => self.past.0 += 1,
            _ => self.past.1 += 1,
        }
        let ended = Message::JobEnded(id, job.outcome);
        self.orders.push_back(Order::Front(job.front, ended));
        let taker = job.checkpoint.map(|checkpoint| checkpoint.front());
        for front in asking.into_iter().chain(taker) {
            let gone = Message::Refused(format!("gang job {id} has ended"));
            self.orders.push_back(Order::Front(front, gone));
        }
        if self.running.contains(&id) {
            self.running.retain(|other| *other != id);
            self.ended.push(id);
            self.turns.is_wanted = true;
        }
    }

    /// The gang jobs to switch out and in next, or `None` if nothing changes. A slice begins with
    /// those whose turn it is; within a slice, those that run go on if they can.
    fn next_switch(&mut self, begins_slice: bool) -> Option<Turn> {
        let base = match (begins_slice, self.displaced.is_empty()) {
            (false, _) => self.running.clone(),
            // Those that had to make room do not lose their turn.
            (true, false) => self.displaced.clone(),
            (true, true) => self.tree.next_slice(),
        };
        let next = self.choose(&base);
        let (old, new) = match self.settings.switch_alone && begins_slice {
            true => (self.running.clone(), next.clone()),
            false => (
                difference(&self.running, &next),
                difference(&next, &self.running),
            ),
        };
        self.running = next;
        if old.is_empty() && new.is_empty() {
            return None;
        }
        self.turns.coming.clone_from(&new);
        let jobs = old.iter().chain(&new);
        let nodes_of = |id: &JobId| Some((*id, self.jobs.get(id)?.nodes.iter().copied().collect()));
        Some(Turn {
            nodes: jobs.filter_map(nodes_of).collect(),
            out: old,
            into: new,
        })
    }

    /// Whether there are no gang jobs.
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Ends all gang jobs because the daemon stops.
    pub fn handle_end(&mut self) {
        for job in self.jobs.values_mut() {
            job.is_ending = true;
            job.outcome.status = FARCALL_FAILED;
            job.outcome.cause = Some("the daemon was stopped".to_string());
        }
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.kill(id);
        }
    }
}

fn difference(one: &[JobId], other: &[JobId]) -> Vec<JobId> {
    let mut left = one.to_vec();
    left.retain(|id| !other.contains(id));
    left
}
