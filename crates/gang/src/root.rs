//! What the root alone does: jobs, their places and turns, and their front ends.

mod judgement;

use std::collections::{BTreeMap, BTreeSet};

use farcall_gang_proto::{
    Admission, Ended, Global, JobId, JobRow, JobSpec, Message, Partition, Placement, QueueTree,
    Report, Usage,
};
use farcall_metrics::Text;

/// Most elements of a job.
const MAX_ELEMENTS: u16 = 4096;
/// Exit status where Farcall failed, not the program.
const FARCALL_FAILED: u8 = 125;

/// A node that has joined.
#[derive(Clone, Debug)]
struct NodeEntry {
    name: String,
    slots: u16,
    engine: String,
    is_lost: bool,
}

struct Job {
    spec: JobSpec,
    placement: Placement,
    /// The front end that started it.
    front: u64,
    ended: BTreeSet<u16>,
    outcome: Ended,
    is_stopped: bool,
    is_ending: bool,
    slices: u64,
    /// Nanoseconds of all switches in which it was switched out, and their number.
    lost: (u64, u64),
    bytes: u64,
    inspection: Option<Inspection>,
    /// What the last judgement for [`Root::watch`] said, and the job's progress by then.
    last_judgement: Option<(Global, u64)>,
}

impl Job {
    /// A job that is looked at rests until that is done.
    fn may_run(&self) -> bool {
        !self.is_stopped && self.inspection.is_none()
    }
}

/// A judgement that has been asked for.
struct Inspection {
    /// Front ends that wait for it; none where the daemon itself wants to know.
    fronts: Vec<u64>,
    awaited: Option<BTreeSet<u16>>,
    reports: Vec<Report>,
}

/// What the root wants done.
#[derive(Debug)]
pub(crate) enum Order {
    /// Tell all nodes.
    Nodes(Message),
    /// Tell a front end.
    Front(u64, Message),
    /// Switch as soon as that can be.
    SwitchNow,
}

/// The root's view of everything.
pub(crate) struct Root {
    nodes: Vec<NodeEntry>,
    jobs: BTreeMap<JobId, Job>,
    tree: QueueTree,
    admission: Admission,
    /// Of each slot: node and processor there.
    slots: Vec<(u16, u16)>,
    running: Vec<JobId>,
    /// Jobs that ended in their slice, since the last switch: no switch stops them.
    ended: Vec<JobId>,
    last: JobId,
    /// Distinguishes the jobs of this daemon from those of any other time.
    epoch: u64,
    /// Jobs that ended with 0, and others.
    past: (u64, u64),
    pub(crate) orders: Vec<Order>,
}

impl Root {
    pub(crate) fn new(memory: u64, epoch: u64) -> Root {
        Root {
            nodes: Vec::new(),
            jobs: BTreeMap::new(),
            tree: QueueTree::new(1),
            admission: Admission::new(memory),
            slots: Vec::new(),
            running: Vec::new(),
            ended: Vec::new(),
            last: 0,
            epoch,
            past: (0, 0),
            orders: Vec::new(),
        }
    }

    /// Takes a node in and says its number.
    pub(crate) fn join(&mut self, name: &str, processors: Vec<u16>, engine: String) -> u16 {
        let number = self.nodes.len() as u16;
        self.nodes.push(NodeEntry {
            name: name.to_string(),
            slots: processors.len() as u16,
            engine,
            is_lost: false,
        });
        let slots = processors.into_iter().map(|processor| (number, processor));
        self.slots.extend(slots);
        self.rebuild();
        number
    }

    /// The tree over the slots there are now. Jobs that run keep their places, and their turns are
    /// those of the whole machine until they end.
    fn rebuild(&mut self) {
        self.tree = QueueTree::new(self.slots.len());
        for (id, job) in &self.jobs {
            self.tree.enter(*id, self.slots.len());
            self.tree.set_runnable(*id, job.may_run());
        }
    }

    pub(crate) fn lose(&mut self, number: u16) {
        let Some(node) = self.nodes.get_mut(usize::from(number)) else {
            return;
        };
        node.is_lost = true;
        let name = node.name.clone();
        self.slots.retain(|(node, _)| *node != number);
        self.rebuild();
        let hit = self.jobs.iter();
        let hit = hit.filter(|(_, job)| job.placement.nodes.contains(&number));
        for id in hit.map(|(id, _)| *id).collect::<Vec<_>>() {
            let Some(job) = self.jobs.get(&id) else {
                continue;
            };
            let ranks = job.placement.nodes.iter().zip(0u16..);
            let ranks: Vec<u16> = ranks
                .filter_map(|(node, rank)| (*node == number).then_some(rank))
                .collect();
            for rank in ranks {
                let ended = Ended {
                    status: FARCALL_FAILED,
                    cause: Some(format!("rank {rank}: node {name} is gone")),
                    usage: Usage::default(),
                };
                self.element_ended(id, rank, ended);
            }
        }
    }

    /// Starts a job for a front end.
    pub(crate) fn submit(&mut self, front: u64, spec: JobSpec) -> Result<(), String> {
        if spec.command.is_empty() || !(1..=MAX_ELEMENTS).contains(&spec.elements) {
            return Err(format!(
                "a job has a program and from 1 to {MAX_ELEMENTS} elements"
            ));
        }
        if self.slots.is_empty() {
            return Err("no node has joined".to_string());
        }
        let bytes = spec.memory.saturating_mul(spec.elements.into());
        self.admission
            .enter(bytes)
            .map_err(|error| error.to_string())?;
        self.last += 1;
        let id = self.last;
        let partition = self.tree.enter(id, spec.elements.into());
        let placement = self.place(id, partition, spec.elements);
        let prepare = Message::Prepare(spec.clone(), placement.clone());
        let job = Job {
            spec,
            placement,
            front,
            ended: BTreeSet::new(),
            outcome: Ended::default(),
            is_stopped: false,
            is_ending: false,
            slices: 0,
            lost: (0, 0),
            bytes,
            inspection: None,
            last_judgement: None,
        };
        self.jobs.insert(id, job);
        self.orders.push(Order::Nodes(prepare));
        self.orders.push(Order::Front(front, Message::Started(id)));
        if self.running.is_empty() {
            self.orders.push(Order::SwitchNow);
        }
        Ok(())
    }

    /// Gives the ranks the slots of a partition, in order, as evenly as can be.
    fn place(&self, job: JobId, partition: Partition, elements: u16) -> Placement {
        let slots = &self.slots[partition.first..][..partition.slots];
        let elements = usize::from(elements);
        let is_dedicated = elements <= slots.len();
        let slot = |rank: usize| match is_dedicated {
            true => slots[rank],
            false => slots[rank * slots.len() / elements],
        };
        Placement {
            job,
            network: self.epoch << 24 | job,
            nodes: (0..elements).map(|rank| slot(rank).0).collect(),
            processors: (0..elements).map(|rank| slot(rank).1).collect(),
            engines: self.nodes.iter().map(|node| node.engine.clone()).collect(),
            is_dedicated,
        }
    }

    /// A user may do this to a job.
    fn owned(&mut self, id: JobId, user: u32) -> Result<&mut Job, String> {
        let job = self.jobs.get_mut(&id).ok_or(format!("no job {id}"))?;
        if user != 0 && user != job.spec.owner.0 {
            return Err(format!("job {id} belongs to user {}", job.spec.owner.0));
        }
        Ok(job)
    }

    /// Sends a job a signal; the two that stop it and let it go on change its turns.
    pub(crate) fn signal(&mut self, id: JobId, signal: i32, user: u32) -> Result<(), String> {
        let job = self.owned(id, user)?;
        match signal {
            libc::SIGSTOP | libc::SIGTSTP | libc::SIGCONT => {
                job.is_stopped = signal != libc::SIGCONT;
                let may_run = job.may_run();
                self.tree.set_runnable(id, may_run);
                self.orders.push(Order::SwitchNow);
            }
            1..=64 => self.orders.push(Order::Nodes(Message::Deliver(id, signal))),
            _ => return Err(format!("no signal {signal}")),
        }
        Ok(())
    }

    /// The front end is gone: its jobs end.
    pub(crate) fn front_lost(&mut self, front: u64) {
        let mut mine = Vec::new();
        for (id, job) in &mut self.jobs {
            if job.front == front {
                job.is_ending = true;
                mine.push(*id);
            }
            if let Some(inspection) = &mut job.inspection {
                inspection.fronts.retain(|other| *other != front);
            }
        }
        for id in mine {
            let kill = Message::Deliver(id, libc::SIGKILL);
            self.orders.push(Order::Nodes(kill));
        }
    }

    /// A front end takes nothing, or takes something again: its jobs' output waits at its source.
    pub(crate) fn hold(&mut self, front: u64, is_held: bool) {
        let mine = self.jobs.iter().filter(|(_, job)| job.front == front);
        let holds = mine.map(|(id, _)| Order::Nodes(Message::Hold(*id, is_held)));
        self.orders.extend(holds);
    }

    pub(crate) fn output(&mut self, id: JobId, message: Message) {
        if let Some(job) = self.jobs.get(&id) {
            self.orders.push(Order::Front(job.front, message));
        }
    }

    pub(crate) fn element_ended(&mut self, id: JobId, rank: u16, ended: Ended) {
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
        // Once a job is being ended, what its elements die of says nothing.
        if !job.is_ending {
            if outcome.cause.is_none() {
                outcome.cause = ended.cause;
            }
            outcome.status = outcome.status.max(ended.status);
        }
        if ended.status >= FARCALL_FAILED && !job.is_ending {
            job.is_ending = true;
            let kill = Message::Deliver(id, libc::SIGKILL);
            self.orders.push(Order::Nodes(kill));
        }
        if job.ended.len() == usize::from(job.spec.elements) {
            self.finish(id);
        }
    }

    fn finish(&mut self, id: JobId) {
        let Some(job) = self.jobs.remove(&id) else {
            return;
        };
        self.tree.leave(id);
        self.admission.leave(job.bytes);
        self.orders.push(Order::Nodes(Message::Forget(id)));
        match job.outcome.status {
            0 => self.past.0 += 1,
            _ => self.past.1 += 1,
        }
        let ended = Message::JobEnded(id, job.outcome);
        self.orders.push(Order::Front(job.front, ended));
        for front in job.inspection.into_iter().flat_map(|it| it.fronts) {
            let gone = Message::Refused(format!("job {id} has ended"));
            self.orders.push(Order::Front(front, gone));
        }
        if self.running.contains(&id) {
            self.running.retain(|other| *other != id);
            self.ended.push(id);
            self.orders.push(Order::SwitchNow);
        }
    }

    /// Who goes and who comes at the next switch; `None` where nothing changes.
    pub(crate) fn next_switch(&mut self, switch_alone: bool) -> Option<(Vec<JobId>, Vec<JobId>)> {
        let next = self.tree.next_slice();
        let (old, new) = match switch_alone {
            true => (self.running.clone(), next.clone()),
            false => (
                difference(&self.running, &next),
                difference(&next, &self.running),
            ),
        };
        self.running = next;
        (!old.is_empty() || !new.is_empty()).then_some((old, new))
    }

    /// A switch is over; it took so long.
    pub(crate) fn switched(&mut self, out: &[JobId], into: &[JobId], nanos: u64) {
        for id in into {
            if let Some(job) = self.jobs.get_mut(id) {
                job.slices += 1;
            }
        }
        for id in out {
            if let Some(job) = self.jobs.get_mut(id) {
                job.lost.0 += nanos;
                job.lost.1 += 1;
            }
        }
        self.begin_inspections();
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The jobs of a user; all for root.
    pub(crate) fn rows(&self, user: u32) -> Vec<JobRow> {
        let row = |(id, job): (&JobId, &Job)| {
            let state = match (job.is_stopped, self.running.contains(id)) {
                (true, _) => "stopped",
                (false, true) => "running",
                (false, false) => "waiting",
            };
            let nodes: BTreeSet<u16> = job.placement.nodes.iter().copied().collect();
            let name = |node: u16| self.nodes[usize::from(node)].name.clone();
            JobRow {
                id: *id,
                state: state.to_string(),
                nodes: nodes.into_iter().map(name).collect(),
                elements: job.spec.elements,
                slices: job.slices,
                lost_us_per_switch: match job.lost {
                    (_, 0) => 0.0,
                    (nanos, count) => nanos as f64 / count as f64 / 1e3,
                },
                user: job.spec.owner.0,
                command: job.spec.command.join(" "),
            }
        };
        let jobs = self.jobs.iter();
        let mine = jobs.filter(|(_, job)| user == 0 || user == job.spec.owner.0);
        mine.map(row).collect()
    }

    /// What there is, for Prometheus.
    pub(crate) fn describe(&self, text: &mut Text) {
        let stopped = self.jobs.values().filter(|job| job.is_stopped).count();
        let running = self.running.len();
        let waiting = self.jobs.len().saturating_sub(stopped + running);
        text.metric(
            ("jobs", "gauge", "Jobs by what they do."),
            &[
                ("state=\"running\"", running),
                ("state=\"waiting\"", waiting),
                ("state=\"stopped\"", stopped),
            ],
        );
        text.metric(
            ("jobs_ended_total", "counter", "Jobs that have ended."),
            &[
                ("outcome=\"success\"", self.past.0),
                ("outcome=\"failure\"", self.past.1),
            ],
        );
        let slices = self.jobs.values().map(|job| job.slices).sum::<u64>();
        text.metric(
            (
                "slices",
                "gauge",
                "Slices that the jobs there are have had.",
            ),
            &[("", slices)],
        );
        let nodes = self.nodes().count();
        text.metric(
            ("nodes", "gauge", "Nodes that have joined."),
            &[("", nodes)],
        );
        let slots = self.slots.len();
        text.metric(
            ("slots", "gauge", "Elements that run at a time."),
            &[("", slots)],
        );
    }

    /// Jobs that have ended in their slice since this was asked last, for the trace.
    pub(crate) fn take_ended(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.ended)
    }

    /// The names of the nodes of each of these jobs, for the trace; `-` for one that has ended.
    pub(crate) fn nodes_of(&self, jobs: &[JobId]) -> Vec<String> {
        let names = |id: &JobId| {
            let nodes = self.jobs.get(id).map(|job| &job.placement.nodes);
            let nodes: BTreeSet<u16> = nodes.into_iter().flatten().copied().collect();
            let names = nodes
                .iter()
                .map(|node| &self.nodes[usize::from(*node)].name);
            // What separates names, jobs and columns cannot be part of one.
            let names = names.map(|name| name.replace([' ', ',', '+', '\n'], "_"));
            let names: Vec<String> = names.collect();
            match names.is_empty() {
                true => "-".to_string(),
                false => names.join("+"),
            }
        };
        jobs.iter().map(names).collect()
    }

    /// Names and slots of the nodes, for the metrics and `ps`.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, u16)> {
        let alive = self.nodes.iter().filter(|node| !node.is_lost);
        alive.map(|node| (node.name.as_str(), node.slots))
    }

    /// Ends all jobs because the daemon ends.
    pub(crate) fn end(&mut self) {
        for (id, job) in &mut self.jobs {
            job.is_ending = true;
            job.outcome.status = FARCALL_FAILED;
            job.outcome.cause = Some("the daemon was told to end".to_string());
            let kill = Message::Deliver(*id, libc::SIGKILL);
            self.orders.push(Order::Nodes(kill));
        }
    }
}

fn difference(one: &[JobId], other: &[JobId]) -> Vec<JobId> {
    let mut left = one.to_vec();
    left.retain(|id| !other.contains(id));
    left
}
