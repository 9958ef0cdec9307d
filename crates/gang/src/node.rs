//! The gang jobs of this node: prepares, starts, stops, watches and reaps their processes. `job`
//! has one of them, `process` makes the system calls, and the root daemon decides which gang job
//! runs. No message is lost in a gang switch, because each sender keeps what is not acknowledged.

mod state;

use crate::cgroup::{Group, Groups};
use crate::job::{self, LocalJob};
use crate::mpi::ForMpi;
use crate::process::{Process, Ticks};
use crate::start::{Begun, Gate, NOT_STARTED, Order, Starter};
use farcall_channel::{Engine, Segment, Waiting};
use farcall_channel_proto::Freeze;
use farcall_gang_proto::{
    FARCALL_FAILED, JobId, JobSpec, Message, PMIX, Pairs, Placement, Report, Round, Step, told,
};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest time that all processes of a gang switch together may take to stop.
const STOP_BOUND: Duration = Duration::from_millis(100);

/// How long a PMIx server that is being ended can make files.
const LEFTOVER_BOUND: Duration = Duration::from_secs(10);

/// The number, beside those of the output streams, of what a process asks for as one of MPI.
const PMI: usize = 0;
/// The most bytes that a pipe holds if nobody with special rights has changed its size.
const LONGEST_PIPE: usize = 1 << 20;
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
    /// Control groups of past gang jobs whose processes have not yet ended.
    dying: Vec<Group>,
    pub(crate) starter: Starter,
    /// Processes of past gang jobs, which were started too late and are being ended.
    orphans: Vec<Process>,
    /// Files of past gang jobs in the shared memory of the machine, their owner, and until when one
    /// that is being ended may still make some.
    leftovers: Vec<(PathBuf, u32, Instant)>,
    /// Gang jobs that did not stop in time for the current gang switch.
    stuck: Vec<JobId>,
    /// Messages for the root daemon.
    pub(crate) messages: Vec<Message>,
    mpi: ForMpi,
    /// Whether the wait for processes to stop may have consumed the signal that one has ended.
    may_have_ended: bool,
}

impl Node {
    pub(crate) fn new(name: String, engine: Engine, starter: Starter, mpi: ForMpi) -> Node {
        Node {
            name,
            number: 0,
            engine,
            jobs: BTreeMap::new(),
            groups: Groups::new(),
            dying: Vec::new(),
            starter,
            orphans: Vec::new(),
            leftovers: Vec::new(),
            stuck: Vec::new(),
            messages: Vec::new(),
            mpi,
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
            let made = groups.make_frozen(&format!("job-{id}"));
            made.inspect_err(|error| {
                tracing::warn!("gang job {id}: cannot create a control group: {error}")
            })
            .ok()
        });
        let (gate, failure) = match (Gate::new(), failure) {
            (Ok(gate), failure) => (Some(Arc::new(gate)), failure),
            (Err(error), failure) => (
                None,
                failure.or(Some(format!("cannot create a pipe: {error}"))),
            ),
        };
        let job = LocalJob::new(spec, placement, ranks, segment, is_spread, group, gate);
        let begun = match failure {
            None => job.births(&self.mpi),
            Some(cause) => Err(cause),
        };
        let is_restored = job.spec.restored == Some(true);
        self.jobs.insert(id, job);
        match begun {
            Ok(order) if is_restored => self.await_states(id, order),
            Ok(order) => self.start(id, order),
            Err(cause) => self.refuse(id, &cause),
        }
    }

    /// Starts the processes of a gang job, after their PMIx server if they can have one.
    fn start(&mut self, id: JobId, order: Order) {
        let job = self.jobs.get_mut(&id);
        let job = job.filter(|job| job.spec.mpi != Some(false));
        let (Some(job), Some(program)) = (job, &self.mpi.pmix) else {
            return self.starter.start(order);
        };
        match job.server_birth(order, program) {
            Ok(server) => self.starter.start(server),
            Err(error) => self.start_without_server(id, &error),
        }
    }

    /// Starts the processes that wait for their PMIx server, although there will be none.
    fn start_without_server(&mut self, id: JobId, cause: &dyn std::fmt::Display) {
        let job = self.jobs.get_mut(&id);
        if let Some(order) = job.and_then(LocalJob::take_awaiting) {
            tracing::warn!("gang job {id}: no PMIx server, so Open MPI cannot run: {cause}");
            self.starter.start(order);
        }
    }

    /// Reports that no process of a gang job can start here.
    fn refuse(&mut self, id: JobId, cause: &str) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        for rank in job.ranks.clone() {
            self.messages
                .extend(job.never_began(rank, cause, &self.name));
        }
    }

    /// Takes the processes that were started since the last call.
    pub(crate) fn take_begun(&mut self) {
        for Begun {
            job: id,
            rank,
            result,
        } in self.starter.take()
        {
            let Some(job) = self.jobs.get_mut(&id) else {
                if let Ok(process) = result {
                    process.signal(libc::SIGKILL);
                    self.orphans.push(process);
                }
                continue;
            };
            match result {
                Ok(process) if rank == PMIX => {
                    job.server = Some(process);
                }
                Err(error) if rank == PMIX => self.start_without_server(id, &error),
                Ok(process) => job.adopt(process),
                Err(error) => {
                    let program = &job.spec.command[0];
                    let cause = match (&job.cause, job.is_killed) {
                        (Some(cause), _) => cause.clone(),
                        (None, true) => "was killed before it began".to_string(),
                        (None, false) => format!("cannot start `{program}`: {error}"),
                    };
                    self.messages
                        .extend(job.never_began(rank, &cause, &self.name));
                    if !job.is_killed {
                        self.fail_all(id, &cause);
                    }
                }
            }
        }
        // One that has ended already was not known when its end was told.
        self.reap();
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
        let segment = Arc::new(Segment::create(job::shape(spec, placement, ranks))?);
        let is_spread = ranks.len() < usize::from(spec.processes);
        // The engine must not use the rings before the saved messages are in them.
        if is_spread && spec.restored != Some(true) {
            self.attach(&segment, placement)?;
        }
        Ok((Some(segment), is_spread))
    }

    /// Lets the engine carry the messages of a gang job.
    fn attach(&self, segment: &Arc<Segment>, placement: &Placement) -> io::Result<()> {
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
        Ok(())
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
                        && job.is_saved
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
        self.stuck.clear();
        for id in out {
            if let Some(job) = self.jobs.get_mut(id) {
                job.send_stop();
            }
        }
        let end = Instant::now() + STOP_BOUND;
        let _ticks = Ticks::start();
        let mut at_rest = true;
        for id in out {
            let Some(job) = self.jobs.get_mut(id) else {
                continue;
            };
            if !job.wait_stopped(end) {
                if !std::mem::replace(&mut job.is_known_stuck, true) {
                    tracing::warn!(
                        "gang job {id}: some processes did not stop within {STOP_BOUND:?}; it \
                         pays with its own slices"
                    );
                }
                self.stuck.push(*id);
            }
            if job.is_spread {
                at_rest &= self.engine.freeze(job.placement.network, how);
            }
        }
        at_rest
    }

    /// The gang jobs that did not stop in time for the current gang switch.
    pub(crate) fn stuck(&self) -> &[JobId] {
        &self.stuck
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
            // What still runs keeps its context.
            job.is_saved = job.segment.is_some() && !self.stuck.contains(id);
            let saved = match &job.segment {
                Some(segment) if job.is_saved => segment.save(&mut job.saved),
                _ => Ok(()),
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
            job.is_saved = false;
            job.go_on();
        }
    }

    /// Ends a gang job on this node, because its processes could not start or cannot continue.
    fn fail_all(&mut self, id: JobId, cause: &str) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.cause.get_or_insert_with(|| cause.to_string());
        job.kill();
        self.start_killed(id);
    }

    /// Lets the processes of a killed gang job count as ended that wait for their PMIx server.
    fn start_killed(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.is_killed) else {
            return;
        };
        let orders = [job.take_awaiting(), job.states.waiting.take()];
        for order in orders.into_iter().flatten() {
            self.starter.start(order);
        }
    }

    /// Sends a signal to a gang job's processes.
    pub(crate) fn deliver(&mut self, id: JobId, signal: i32) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.signal(signal);
        self.start_killed(id);
    }

    /// Stops reading the output of a gang job, or resumes.
    pub(crate) fn hold(&mut self, id: JobId, is_held: bool) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.is_held = is_held;
        }
    }

    /// Ends the remaining processes of a gang job and forgets it.
    pub(crate) fn forget(&mut self, id: JobId) {
        if let Some(mut job) = self.jobs.remove(&id) {
            if job.is_spread {
                self.engine.detach(job.placement.network);
            }
            job.kill();
            let until = Instant::now() + LEFTOVER_BOUND;
            let files = job.shared_files();
            // A daemon that is not root runs everything as its own user.
            let owner = match rustix::process::geteuid() {
                user if user.is_root() => job.spec.owner.0,
                user => user.as_raw(),
            };
            self.leftovers
                .extend(files.map(|files| (files, owner, until)));
            if let Some(server) = job.server {
                server.signal(libc::SIGKILL);
                self.orphans.push(server);
            }
            self.orphans.extend(job.processes);
            self.dying.extend(job.group);
            self.sweep();
        }
    }

    /// Removes what is left of past gang jobs, as far as their processes have ended.
    pub(crate) fn sweep(&mut self) {
        self.orphans.retain(|process| process.reap().is_none());
        self.leftovers.retain(|(files, owner, until)| {
            crate::own_memory::remove(files, *owner);
            Instant::now() < *until
        });
        self.dying.retain(|group| !group.remove());
    }

    /// Reaps the processes that ended during the wait for others to stop.
    pub(crate) fn reap_after_freeze(&mut self) {
        if std::mem::take(&mut self.may_have_ended) {
            self.reap();
        }
    }

    /// Reaps the processes that have ended, after SIGCHLD.
    pub(crate) fn reap(&mut self) {
        let mut failed = Vec::new();
        let number = self.number;
        for (id, job) in &mut self.jobs {
            let mut place = 0;
            while place < job.processes.len() {
                let process = &job.processes[place];
                // A control group ends with the gang job. Without one, a process that ends only now
                // is reaped the next time, so that its group ends first.
                let may_reap = job.group.is_some() || process.end_group();
                let ended = if may_reap { process.reap() } else { None };
                let Some(mut ended) = ended else {
                    place += 1;
                    continue;
                };
                let rank = job.processes[place].rank;
                self.messages.extend(job.serve_last(rank, number));
                ended.is_missed = Some(job.pmi.is_inside(rank));
                let mut process = job.processes.swap_remove(place);
                read_rest(*id, &mut process, &mut self.messages);
                let place = format!("rank {rank} on node {}", self.name);
                ended.cause = ended.cause.map(|cause| format!("{place} {cause}"));
                let failure = Some(()).filter(|()| ended.status == NOT_STARTED);
                let failure = failure.and_then(|()| job.gate.as_ref()?.failure(&job.spec));
                if let Some(cause) = failure {
                    job.cause.get_or_insert(cause);
                    failed.push(*id);
                }
                if let Some(cause) = &job.cause {
                    ended.cause = Some(format!("{place}: {cause}"));
                    ended.status = FARCALL_FAILED;
                }
                if job.ended.insert(rank) {
                    self.messages.push(Message::ProcessEnded(*id, rank, ended));
                }
            }
        }
        self.reap_servers();
        for id in failed {
            self.fail_all(id, "");
        }
        if !self.orphans.is_empty() || !self.dying.is_empty() {
            self.sweep();
        }
    }

    /// Reaps the PMIx servers that have ended.
    fn reap_servers(&mut self) {
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            let server = self.jobs.get_mut(&id).map(|job| &mut job.server);
            let ended = server.and_then(|server| server.as_ref()?.reap());
            let Some(ended) = ended else {
                continue;
            };
            if ended.status == crate::pmix::NO_LIBRARY {
                tracing::info!("no libpmix: processes of Open MPI cannot run");
                self.mpi.pmix = None;
                let job = self.jobs.get_mut(&id);
                if let Some(order) = job.and_then(LocalJob::take_awaiting) {
                    self.starter.start(order);
                }
            }
            let cause = ended.cause.unwrap_or_default();
            self.start_without_server(id, &cause);
            let server = self.jobs.get_mut(&id).and_then(|job| job.server.take());
            if let Some(mut server) = server {
                // It says there why it has ended.
                read_rest(id, &mut server, &mut self.messages);
            }
            let job = self.jobs.get(&id);
            if job.is_some_and(|job| job.server_is_ready && !job.is_killed) {
                let text = format!(
                    "the PMIx server on node {} {cause}: processes of Open MPI cannot go on\n",
                    self.name
                );
                let line = told::line(id, &text).into_bytes();
                self.messages.push(Message::Output(id, PMIX, 2, line));
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

    /// The output streams of all processes, except those that are held back, and what they ask for
    /// as processes of MPI, which no front end has to read.
    pub(crate) fn streams(&self) -> Vec<(JobId, u16, usize, BorrowedFd<'_>)> {
        let mut streams = Vec::new();
        for (id, job) in &self.jobs {
            for process in job.processes.iter().chain(&job.server) {
                let output = process.streams.iter().zip(1..);
                for (stream, number) in output.filter(|_| !job.is_held) {
                    if let Some(stream) = stream {
                        streams.push((*id, process.rank, number, stream.as_fd()));
                    }
                }
                if let Some(pmi) = &process.pmi {
                    streams.push((*id, process.rank, PMI, pmi.as_fd()));
                }
            }
        }
        streams
    }

    /// Reads the output that has arrived on a stream.
    pub(crate) fn take_output(&mut self, id: JobId, rank: u16, stream: usize) {
        if stream == PMI {
            let job = self.jobs.get_mut(&id);
            let told = job.map(|job| job.serve_pmi(rank, self.number));
            self.messages.extend(told.into_iter().flatten());
            let job = self.jobs.get_mut(&id).filter(|job| job.server_is_ready);
            if let Some(order) = job.and_then(LocalJob::take_awaiting) {
                self.starter.start(order);
            }
            return;
        }
        let job = self.jobs.get_mut(&id);
        if let Some(process) = job.and_then(|job| job.process(rank)) {
            read_output(id, process, stream, &mut self.messages);
        }
    }

    /// Lets the processes of a gang job pass a barrier of MPI.
    pub(crate) fn pass_fence(&mut self, id: JobId, pairs: Pairs) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.pmi.handle_fenced(pairs);
            self.messages.extend(job.act_for_pmi(self.number));
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
        report.uses_mpi = Some(job.pmi.is_used());
        let views = job.segment.as_ref().map(|segment| segment.view());
        if let Some(segment) = &job.segment {
            report.progress = segment.progress();
            report.places = segment.places();
        }
        let views = views.and_then(Result::ok).unwrap_or_default();
        report.polling = job.channel_of_mpi().map(|channel| {
            let of_mpi = views.iter().filter(|view| view.channel == channel);
            let alive = of_mpi.filter(|view| !job.ended.contains(&view.rank));
            alive.map(state::polling).collect()
        });
        for view in views {
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
        report.shorten();
        self.messages
            .push(Message::Inspected(id, self.number, report));
    }

    /// Kills all processes before the daemon stops.
    pub(crate) fn end(&mut self) {
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.deliver(id, libc::SIGKILL);
        }
    }

    /// Number of processes that have not been reaped.
    pub(crate) fn processes(&self) -> usize {
        self.jobs.values().map(|job| job.processes.len()).sum()
    }

    /// Whether there are processes that have not been reaped, or have yet to begin.
    pub(crate) fn has_processes(&self) -> bool {
        let is_open = |job: &LocalJob| job.ended.len() < job.ranks.len();
        let is_left = !self.orphans.is_empty() || !self.dying.is_empty();
        is_left || self.jobs.values().any(is_open)
    }

    /// Forgets all gang jobs, whose processes have ended.
    pub(crate) fn forget_all(&mut self) {
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.forget(id);
        }
    }
}

/// Reads the streams of a process that has ended. What the process itself has written is in the
/// pipes. Others, which it has started, may write on and on.
fn read_rest(id: JobId, process: &mut Process, out: &mut Vec<Message>) {
    for stream in [1, 2] {
        let mut reads = 0..LONGEST_PIPE / OUTPUT_BYTES;
        while reads.next().is_some() && read_output(id, process, stream, out) {}
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
