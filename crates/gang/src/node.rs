//! The processes of this node: prepares, starts, stops, watches and reaps them. `process` makes the
//! system calls, and the root daemon decides which gang job runs. No message is lost in a gang
//! switch, because each sender keeps what is not acknowledged.

use crate::cgroup::{Group, Groups};
use crate::process::{Process, Start, Ticks};
use farcall_channel::{Engine, Fifo, SavedContext, Segment, Shape, Waiting};
use farcall_channel_proto::Freeze;
use farcall_gang_proto::{
    Ended, FARCALL_FAILED, JobId, JobSpec, Message, Placement, Report, Round, Step, Usage,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

/// Bytes of output read from a process at once.
const OUTPUT_BYTES: usize = 16 << 10;

/// All gang jobs and processes on this node.
pub(crate) struct Node {
    pub(crate) name: String,
    /// The number that the root daemon assigned.
    pub(crate) number: u16,
    pub(crate) engine: Engine,
    /// The gang jobs. They are dropped before the folder of their control groups.
    jobs: BTreeMap<JobId, LocalJob>,
    groups: Option<Groups>,
    /// Messages for the root daemon.
    pub(crate) messages: Vec<Message>,
    /// Whether the wait for processes to stop may have consumed the signal that one has ended.
    may_have_ended: bool,
}

struct LocalJob {
    spec: JobSpec,
    placement: Placement,
    ranks: Vec<u16>,
    segment: Option<Arc<Segment>>,
    /// Whether it has ranks on other nodes, so that the engine carries its messages.
    is_spread: bool,
    processes: Vec<Process>,
    is_started: bool,
    group: Option<Group>,
    /// Whether its output is not read, because its front end reads nothing.
    is_held: bool,
    /// Why Farcall ends the gang job.
    cause: Option<String>,
    epoch: u32,
    saved: SavedContext,
    ended: BTreeSet<u16>,
}

impl Node {
    pub(crate) fn new(name: String, engine: Engine) -> Node {
        Node {
            name,
            number: 0,
            engine,
            jobs: BTreeMap::new(),
            groups: Groups::new(),
            messages: Vec::new(),
            may_have_ended: false,
        }
    }

    /// Whether gang jobs of any programs can be frozen as a control group.
    pub(crate) fn has_groups(&self) -> bool {
        self.groups.is_some()
    }

    /// Prepares the segment and the control group for the processes of a gang job that run here.
    pub(crate) fn prepare(&mut self, spec: JobSpec, placement: Placement) {
        let nodes = placement.nodes.iter().zip(0u16..);
        let ranks: Vec<u16> = nodes
            .filter_map(|(node, rank)| (*node == self.number).then_some(rank))
            .collect();
        if ranks.is_empty() {
            return;
        }
        let id = placement.job;
        let made = self.make_memory(&spec, &placement, &ranks);
        let (segment, is_spread, failure) = match made {
            Ok((segment, is_spread)) => (segment, is_spread, None),
            Err(error) => (
                None,
                false,
                Some(format!("cannot create the memory segment: {error}")),
            ),
        };
        let group = self.groups.as_ref().and_then(|groups| {
            let made = groups.make(&format!("job-{id}"));
            made.inspect_err(|error| {
                tracing::warn!("gang job {id}: cannot create a control group: {error}")
            })
            .ok()
        });
        let job = LocalJob {
            spec,
            placement,
            ranks,
            segment,
            is_spread,
            processes: Vec::new(),
            is_started: false,
            group,
            is_held: false,
            cause: None,
            epoch: 0,
            saved: SavedContext::default(),
            ended: BTreeSet::new(),
        };
        self.jobs.insert(id, job);
        if let Some(cause) = failure {
            self.fail_all(id, &cause);
        }
    }

    fn make_memory(
        &self,
        spec: &JobSpec,
        placement: &Placement,
        ranks: &[u16],
    ) -> io::Result<(Option<Arc<Segment>>, bool)> {
        if spec.is_tree {
            return Ok((None, false));
        }
        let segment = Arc::new(Segment::create(shape(spec, placement, ranks))?);
        let is_spread = ranks.len() < usize::from(spec.processes);
        if is_spread {
            let peer = |node: &u16| -> io::Result<Option<SocketAddr>> {
                if *node == self.number {
                    return Ok(None);
                }
                let address = placement.engines.get(usize::from(*node));
                let address = address.and_then(|address| address.parse().ok());
                address.map(Some).ok_or_else(|| {
                    io::Error::other(format!(
                        "the address of node {node} for messages is missing"
                    ))
                })
            };
            let peers: io::Result<Vec<_>> = placement.nodes.iter().map(peer).collect();
            self.engine.attach(segment.clone(), &peers?, 0);
        }
        Ok((Some(segment), is_spread))
    }

    /// Begins a step of a gang switch. Returns true if it is done already; otherwise
    /// [`Node::is_at_rest`] tells.
    pub(crate) fn step(&mut self, step: Step, round: &Round) -> bool {
        match step {
            Step::Freeze => self.freeze(&round.out, round.drains),
            Step::Save => {
                self.save(&round.out);
                true
            }
            Step::Restore => {
                for id in &round.into {
                    if let Some(job) = self.jobs.get(id)
                        && let Some(segment) = &job.segment
                    {
                        segment.restore(&job.saved);
                    }
                }
                true
            }
            Step::Run => {
                self.close(&round.out);
                self.run(&round.into);
                true
            }
        }
    }

    fn freeze(&mut self, out: &[JobId], drains: bool) -> bool {
        let how = match drains {
            true => Freeze::Drain,
            false => Freeze::Epoch,
        };
        self.may_have_ended |= !out.is_empty();
        let jobs = &mut self.jobs;
        for id in out {
            if let Some(job) = jobs.get(id) {
                job.send_stop();
            }
        }
        let mut at_rest = true;
        for id in out {
            let Some(job) = jobs.get_mut(id) else {
                continue;
            };
            if !job.wait_stopped() {
                tracing::warn!("gang job {id}: some processes did not stop within a second");
            }
            if job.is_spread {
                at_rest &= self.engine.freeze(job.placement.network, how);
            }
        }
        at_rest
    }

    /// Stops waiting for a peer that does not answer: messages in the network become stale. No
    /// message is lost, because each sender keeps what is not acknowledged.
    pub(crate) fn give_up_draining(&self, out: &[JobId]) {
        for job in out.iter().filter_map(|id| self.jobs.get(id)) {
            if job.is_spread && !self.engine.is_at_rest(job.placement.network) {
                tracing::warn!(
                    "gang job {}: other nodes do not acknowledge its messages; they will be sent \
                     again",
                    job.placement.job
                );
                self.engine.freeze(job.placement.network, Freeze::Epoch);
            }
        }
    }

    /// Whether the network of all these gang jobs is at rest, as far as this node sends.
    pub(crate) fn is_at_rest(&self, out: &[JobId]) -> bool {
        let jobs = out.iter().filter_map(|id| self.jobs.get(id));
        jobs.filter(|job| job.is_spread)
            .all(|job| self.engine.is_at_rest(job.placement.network))
    }

    fn close(&self, out: &[JobId]) {
        for id in out {
            if let Some(job) = self.jobs.get(id)
                && job.is_spread
            {
                self.engine.close(job.placement.network);
            }
        }
    }

    fn save(&mut self, out: &[JobId]) {
        self.close(out);
        for id in out {
            let Some(job) = self.jobs.get_mut(id) else {
                continue;
            };
            let saved = match &job.segment {
                Some(segment) => segment.save(&mut job.saved),
                None => Ok(()),
            };
            if let Err(error) = saved {
                self.fail_all(*id, &error.to_string());
            }
        }
    }

    fn run(&mut self, into: &[JobId]) {
        for id in into {
            let Some(job) = self.jobs.get_mut(id) else {
                continue;
            };
            job.epoch = job.epoch.wrapping_add(1);
            if job.is_spread {
                self.engine.thaw(job.placement.network, job.epoch);
            }
            match job.is_started {
                true => job.go_on(),
                false => self.start(*id),
            }
        }
    }

    fn start(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.is_started = true;
        let bell = self.engine.bell().as_raw_fd();
        let entrance = job.group.as_ref().and_then(|group| group.entrance().ok());
        let fd = job.segment.as_ref().and_then(|segment| segment.fd());
        let channel = fd.map(|fd| (fd.as_raw_fd(), bell));
        let mine = |rank: &u16| job.placement.processors.get(usize::from(*rank)).copied();
        let all: BTreeSet<u16> = job.ranks.iter().filter_map(mine).collect();
        let all: Vec<u16> = all.into_iter().collect();
        let mut failure = None;
        for rank in job.ranks.clone() {
            let own = mine(&rank).map(|processor| [processor]);
            let processors = match &own {
                Some(own) if job.placement.is_dedicated => &own[..],
                _ => &all[..],
            };
            let start = Start {
                spec: &job.spec,
                rank,
                processors,
                channel,
                entrance: entrance.as_ref(),
            };
            match Process::start(&start) {
                Ok(process) => job.processes.push(process),
                Err(error) => {
                    let program = &job.spec.command[0];
                    failure = Some(format!("cannot start `{program}`: {error}"));
                    break;
                }
            }
        }
        if let Some(cause) = failure {
            self.fail_all(id, &cause);
        }
    }

    /// Ends a gang job on this node, because its processes could not start or cannot continue.
    fn fail_all(&mut self, id: JobId, cause: &str) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.kill();
        job.is_started = true;
        job.cause.get_or_insert_with(|| cause.to_string());
        let running: BTreeSet<u16> = job.processes.iter().map(|process| process.rank).collect();
        for rank in &job.ranks {
            if running.contains(rank) || !job.ended.insert(*rank) {
                continue;
            }
            let ended = Ended {
                status: FARCALL_FAILED,
                cause: Some(format!("rank {rank} on node {}: {cause}", self.name)),
                usage: Usage::default(),
            };
            self.messages.push(Message::ProcessEnded(id, *rank, ended));
        }
    }

    /// Sends a signal to a gang job's processes.
    pub(crate) fn deliver(&mut self, id: JobId, signal: i32) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if !job.is_started {
            job.is_started = true;
            for rank in &job.ranks {
                if !job.ended.insert(*rank) {
                    continue;
                }
                let ended = Ended {
                    status: 128u8.wrapping_add(signal as u8),
                    cause: Some(format!(
                        "was ended by {} before its first slice",
                        crate::process::name(signal)
                    )),
                    usage: Usage::default(),
                };
                self.messages.push(Message::ProcessEnded(id, *rank, ended));
            }
        }
        if signal == libc::SIGKILL {
            job.kill();
        }
        for process in &job.processes {
            process.signal(signal);
        }
    }

    /// Stops reading the output of a gang job, or resumes.
    pub(crate) fn hold(&mut self, id: JobId, is_held: bool) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.is_held = is_held;
        }
    }

    /// Ends the remaining processes of a gang job and forgets it.
    pub(crate) fn forget(&mut self, id: JobId) {
        if let Some(job) = self.jobs.remove(&id) {
            if job.is_spread {
                self.engine.detach(job.placement.network);
            }
            job.kill();
        }
    }

    /// Reaps the processes that ended during the wait for others to stop.
    pub(crate) fn reap_after_freeze(&mut self) {
        if std::mem::take(&mut self.may_have_ended) {
            self.reap();
        }
    }

    /// Reaps the processes that have ended, after SIGCHLD.
    pub(crate) fn reap(&mut self) {
        for (id, job) in &mut self.jobs {
            let mut place = 0;
            while place < job.processes.len() {
                let Some(mut ended) = job.processes[place].reap() else {
                    place += 1;
                    continue;
                };
                let mut process = job.processes.swap_remove(place);
                for stream in [1, 2] {
                    while read_output(*id, &mut process, stream, &mut self.messages) {}
                }
                let rank = process.rank;
                let place = format!("rank {rank} on node {}", self.name);
                ended.cause = ended.cause.map(|cause| format!("{place} {cause}"));
                if let Some(cause) = &job.cause {
                    ended.cause = Some(format!("{place}: {cause}"));
                    ended.status = FARCALL_FAILED;
                }
                if job.ended.insert(rank) {
                    self.messages.push(Message::ProcessEnded(*id, rank, ended));
                }
            }
        }
    }

    /// Ends the gang jobs whose segment a process has corrupted.
    pub(crate) fn take_faults(&mut self) {
        for network in self.engine.take_faults() {
            let found = self.jobs.iter();
            let mut found = found.filter(|(_, job)| job.placement.network == network);
            if let Some(id) = found.next().map(|(id, _)| *id) {
                self.fail_all(id, &farcall_channel::Corrupt.to_string());
            }
        }
    }

    /// The output streams of all processes.
    pub(crate) fn streams(&self) -> Vec<(JobId, u16, usize, BorrowedFd<'_>)> {
        let mut streams = Vec::new();
        for (id, job) in self.jobs.iter().filter(|(_, job)| !job.is_held) {
            for process in &job.processes {
                for (index, stream) in process.streams.iter().enumerate() {
                    if let Some(stream) = stream {
                        streams.push((*id, process.rank, index + 1, stream.as_fd()));
                    }
                }
            }
        }
        streams
    }

    /// Reads the output that has arrived on a stream.
    pub(crate) fn take_output(&mut self, id: JobId, rank: u16, stream: usize) {
        let processes = self.jobs.get_mut(&id).map(|job| &mut job.processes);
        let mut processes = processes.into_iter().flatten();
        if let Some(process) = processes.find(|process| process.rank == rank) {
            read_output(id, process, stream, &mut self.messages);
        }
    }

    /// Reports on a gang job at rest.
    pub(crate) fn inspect(&mut self, id: JobId) {
        let mut report = Report::default();
        let Some(job) = self.jobs.get(&id) else {
            self.messages
                .push(Message::Inspected(id, self.number, report));
            return;
        };
        report.ended = job.ended.iter().copied().collect();
        let views = job.segment.as_ref().map(|segment| segment.view());
        report.progress = job.segment.as_ref().map_or(0, |segment| segment.progress());
        for view in views.and_then(Result::ok).unwrap_or_default() {
            let (kind, one, other) = match view.waiting {
                Waiting::No => (0, 0, 0),
                Waiting::ReceiveAny => (1, 0, 0),
                Waiting::Receive(source) => (2, source, 0),
                Waiting::Send(target) => (3, target, 0),
                Waiting::Exchange(source, target) => (4, source, target),
            };
            if kind != 0 && !job.ended.contains(&view.rank) {
                report
                    .waits
                    .push((view.rank, view.channel, kind, one, other));
            }
            let received = view.inbound.iter();
            let received = received.map(|(from, count)| (*from, view.rank, *count));
            let sent = view.outbound.iter();
            let sent = sent.map(|(to, count)| (view.rank, *to, *count));
            let queued = received.chain(sent);
            report
                .queued
                .extend(queued.map(|(from, to, count)| (from, to, view.channel, u64::from(count))));
            report
                .fill
                .push((view.rank, view.channel, view.received_bytes));
        }
        self.messages
            .push(Message::Inspected(id, self.number, report));
    }

    /// Kills all processes before the daemon stops.
    pub(crate) fn end(&mut self) {
        for job in self.jobs.values() {
            job.kill();
        }
    }

    /// Number of processes that have not been reaped.
    pub(crate) fn processes(&self) -> usize {
        self.jobs.values().map(|job| job.processes.len()).sum()
    }

    /// Whether there are processes that have not been reaped.
    pub(crate) fn has_processes(&self) -> bool {
        self.processes() > 0
    }
}

impl LocalJob {
    /// The control group, if it is used to stop the gang job. Signals are preferred: they stop
    /// processes faster, and the kernel reports when a process has stopped.
    fn group_to_freeze(&self) -> Option<&Group> {
        self.group.as_ref().filter(|_| self.spec.is_tree)
    }

    fn send_stop(&self) {
        if self.group_to_freeze().is_some() {
            return;
        }
        for process in self.processes.iter().filter(|process| process.is_running) {
            process.signal(libc::SIGSTOP);
        }
    }

    fn wait_stopped(&mut self) -> bool {
        if let Some(group) = self.group_to_freeze() {
            return group.freeze().unwrap_or(false);
        }
        let mut stopped = true;
        let _ticks = Ticks::start();
        // Start with the last: when it has stopped, the others probably have as well.
        for process in self.processes.iter_mut().rev() {
            if process.is_running {
                stopped &= process.wait_stopped();
                process.is_running = false;
            }
        }
        stopped
    }

    fn go_on(&mut self) {
        if let Some(group) = self.group_to_freeze() {
            let _ = group.thaw();
            return;
        }
        for process in &mut self.processes {
            process.signal(libc::SIGCONT);
            process.is_running = true;
        }
    }

    fn kill(&self) {
        for process in &self.processes {
            process.signal(libc::SIGKILL);
        }
        if let Some(group) = &self.group {
            group.kill();
        }
    }
}

fn shape(spec: &JobSpec, placement: &Placement, ranks: &[u16]) -> Shape {
    let fifo = |(bytes, messages): (u32, u32), default: Fifo| Fifo {
        bytes: if bytes == 0 { default.bytes } else { bytes },
        messages: match messages {
            0 => default.messages,
            messages => messages,
        },
    };
    let mut partitions = spec.partitions.clone();
    partitions.resize(spec.processes.into(), 0);
    Shape {
        job: placement.network,
        size: spec.processes,
        locals: ranks.to_vec(),
        channels: spec.channels.max(1),
        partitions,
        send: fifo(spec.send, Shape::SEND),
        receive: fifo(spec.receive, Shape::RECEIVE),
        spin: placement.is_dedicated,
    }
}

/// Reads a stream once. Returns false if it has nothing more now.
fn read_output(id: JobId, process: &mut Process, stream: usize, out: &mut Vec<Message>) -> bool {
    let place = &mut process.streams[stream - 1];
    let Some(fd) = place else {
        return false;
    };
    let mut buffer = [0; OUTPUT_BYTES];
    match rustix::io::read(&*fd, &mut buffer) {
        Ok(0) => *place = None,
        Ok(count) => {
            let bytes = buffer[..count].to_vec();
            out.push(Message::Output(id, process.rank, stream as u8, bytes));
            return true;
        }
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
        Err(_) => *place = None,
    }
    false
}
