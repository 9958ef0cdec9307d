//! One gang job on this node: its processes, its memory and its control group. Its processes are
//! stopped together and continue together. `node` has all gang jobs.

use crate::cgroup::Group;
use crate::mpi::{self, ForMpi};
use crate::own_memory::{self, OwnMemory};
use crate::pmix::{self, Place};
use crate::process::Process;
use crate::start::{Birth, Gate, Order};
use crate::states::States;
use farcall_channel::{Fifo, SavedContext, Segment, Shape};
use farcall_gang_proto::{
    Ended, FARCALL_FAILED, JobSpec, Message, PMIX, Placement, Pmi, PmiAction,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

pub(crate) struct LocalJob {
    pub(crate) spec: JobSpec,
    pub(crate) placement: Placement,
    pub(crate) ranks: Vec<u16>,
    pub(crate) segment: Option<Arc<Segment>>,
    /// Whether it has ranks on other nodes, so that the engine carries its messages.
    pub(crate) is_spread: bool,
    pub(crate) processes: Vec<Process>,
    /// Its processes are born into the group while it is frozen.
    pub(crate) group: Option<Group>,
    /// Without a group, its processes wait here until the first slice; none if it cannot start.
    pub(crate) gate: Option<Arc<Gate>>,
    /// Whether the gate is open.
    has_begun: bool,
    /// Whether it has its slice now.
    is_running: bool,
    /// Whether its output is not read, because its front end reads nothing.
    pub(crate) is_held: bool,
    pub(crate) is_killed: bool,
    /// Whether the log says already that it does not stop in time.
    pub(crate) is_known_stuck: bool,
    /// Signals for processes that were not there when they came.
    owed: Vec<i32>,
    /// Why Farcall ends the gang job.
    pub(crate) cause: Option<String>,
    pub(crate) epoch: u32,
    pub(crate) saved: SavedContext,
    /// Whether `saved` holds its context.
    pub(crate) is_saved: bool,
    pub(crate) ended: BTreeSet<u16>,
    /// What its processes ask for as those of MPI.
    pub(crate) pmi: Pmi,
    /// The PMIx server of its processes here.
    pub(crate) server: Option<Process>,
    /// The processes to start when the PMIx server is ready, or there is none.
    awaiting: Option<Order>,
    /// Whether the PMIx server accepts processes.
    pub(crate) server_is_ready: bool,
    /// The saved states of its processes.
    pub(crate) states: States,
    own_memory: Option<Arc<OwnMemory>>,
}

/// Settings with which processes of MPI yield the processor while they wait: those of Open MPI, of
/// Intel MPI, and of MPICH 5. MPICH 5 yields except in its collective operations in shared memory,
/// which it begins to use after so many collective operations. MPICH 4.0 never yields.
const YIELDING: [(&str, &str); 3] = [
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ("I_MPI_THREAD_YIELD", "3"),
    ("MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD", "2147483647"),
];

/// Bytes of what a process asks for as one of MPI that are read at once.
const PMI_BYTES: usize = 4096;
/// Reads of what one that has ended has asked for: more than a socket holds.
const LAST_READS: usize = 256;

/// Settings that name the network interface of processes of MPI: those of UCX (MPICH), of libfabric
/// (Intel MPI) and of Open MPI.
const INTERFACE: [&str; 4] = [
    "UCX_NET_DEVICES",
    "FI_TCP_IFACE",
    "OMPI_MCA_btl_tcp_if_include",
    "OMPI_MCA_oob_tcp_if_include",
];

impl LocalJob {
    pub(crate) fn new(
        spec: JobSpec,
        placement: Placement,
        ranks: Vec<u16>,
        segment: Option<Arc<Segment>>,
        is_spread: bool,
        group: Option<Group>,
        gate: Option<Arc<Gate>>,
    ) -> LocalJob {
        let node = ranks.first().map_or(0, |rank| usize::from(*rank));
        let node = placement.nodes.get(node).copied().unwrap_or_default();
        LocalJob {
            pmi: match spec.fabric {
                Some(true) => Pmi::apart(placement.network, &placement.nodes, node),
                _ => Pmi::new(placement.network, &placement.nodes, node),
            },
            server: None,
            awaiting: None,
            server_is_ready: false,
            states: States::default(),
            own_memory: (spec.mpi != Some(false)).then(Arc::default),
            spec,
            placement,
            ranks,
            segment,
            is_spread,
            processes: Vec::new(),
            group,
            gate,
            has_begun: false,
            is_running: false,
            is_held: false,
            is_killed: false,
            is_known_stuck: false,
            owed: Vec::new(),
            cause: None,
            epoch: 0,
            saved: SavedContext::default(),
            is_saved: false,
            ended: BTreeSet::new(),
        }
    }

    /// The processes to start on this node.
    ///
    /// # Errors
    /// Returns the cause in words if a descriptor cannot be copied or the network is missing.
    pub(crate) fn births(&self, for_mpi: &ForMpi) -> Result<Order, String> {
        let gate = self.gate.clone().ok_or("no gate")?;
        let of = |rank: u16| self.placement.processors.get(usize::from(rank)).copied();
        let all: BTreeSet<u16> = self.ranks.iter().filter_map(|rank| of(*rank)).collect();
        let mut keep = Vec::new();
        if let Some(segment) = &self.segment {
            let fds = [
                segment.fd(),
                segment.bell(),
                segment.state().map(AsFd::as_fd),
            ];
            for fd in fds.into_iter().flatten() {
                let copy = fd.try_clone_to_owned();
                let copy = copy.map_err(|error| format!("cannot copy a descriptor: {error}"))?;
                keep.push(copy);
            }
        }
        let mut common = self.yielding();
        common.extend(self.interface(for_mpi.interface.as_deref()));
        if self.spec.fabric == Some(true) {
            let path = self.variable("FI_PROVIDER_PATH");
            let network = mpi::variables(for_mpi.fabric.as_deref(), path, self.spec.channels)?;
            common.extend(network);
        }
        let birth = |rank: &u16| {
            let processors = match of(*rank) {
                Some(own) if self.placement.is_dedicated => vec![own],
                _ => all.iter().copied().collect(),
            };
            let mut variables = vec![
                ("FARCALL_RANK", rank.to_string()),
                ("FARCALL_SIZE", self.spec.processes.to_string()),
            ];
            if let [segment, bell, state] = &keep[..] {
                let [segment, bell, state] = [segment, bell, state].map(AsRawFd::as_raw_fd);
                let place = format!("{segment},{bell},{rank},{state}");
                variables.push((farcall_channel::VARIABLE, place));
            }
            variables.extend(common.iter().cloned());
            let variables = variables.into_iter();
            Birth {
                rank: *rank,
                processors,
                variables: variables
                    .map(|(name, value)| (name.to_string(), value))
                    .collect(),
            }
        };
        Ok(Order {
            job: self.placement.job,
            births: self.ranks.iter().map(birth).collect(),
            spec: self.spec.clone(),
            keep,
            group: self.group.as_ref().map(Group::entrance),
            gate,
            own_memory: self.own_memory.clone(),
        })
    }

    /// The value of an environment variable, if the user has set it.
    fn variable(&self, name: &str) -> Option<&str> {
        let pairs = self.spec.environment.iter();
        let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value)
    }

    /// The channel with which MPI sends: it is the one after those of the program.
    pub(crate) fn channel_of_mpi(&self) -> Option<u8> {
        (self.spec.fabric == Some(true)).then(|| self.spec.channels.max(1))
    }

    fn is_set(&self, name: &str) -> bool {
        self.variable(name).is_some()
    }

    /// The settings for processes of MPI that share processors, unless the user has chosen others.
    fn yielding(&self) -> Vec<(&'static str, String)> {
        let is_shared = !self.placement.is_dedicated && self.spec.mpi != Some(false);
        let wanted = YIELDING
            .iter()
            .filter(|(name, _)| is_shared && !self.is_set(name));
        wanted
            .map(|(name, value)| (*name, value.to_string()))
            .collect()
    }

    /// The settings for processes of MPI on several nodes that use this network interface, unless
    /// the user has chosen one.
    fn interface(&self, name: Option<&str>) -> Vec<(&'static str, String)> {
        let has_others = self.ranks.len() < usize::from(self.spec.processes);
        let name = name.filter(|_| has_others && self.spec.mpi != Some(false));
        let all = name.into_iter().flat_map(|name| {
            let unset = INTERFACE.iter().filter(|variable| !self.is_set(variable));
            unset.map(move |variable| (*variable, name.to_string()))
        });
        all.collect()
    }

    /// The PMIx server to start before the processes of `order`. `program` is this program, with
    /// the arguments that make it a PMIx server.
    pub(crate) fn server_birth(&mut self, order: Order, program: &[String]) -> io::Result<Order> {
        self.awaiting = Some(order);
        let gate = Gate::new()?;
        gate.open(1);
        let place = Place {
            name: self.pmi.name().to_string(),
            node: self.node(),
            nodes: self.placement.nodes.clone(),
            folder: self.files_of_server(),
        };
        let spec = JobSpec {
            processes: 1,
            command: program.to_vec(),
            environment: std::env::var("LD_LIBRARY_PATH")
                .map(|path| format!("LD_LIBRARY_PATH={path}"))
                .into_iter()
                .collect(),
            folder: "/".to_string(),
            owner: self.spec.owner,
            ..JobSpec::default()
        };
        Ok(Order {
            job: self.placement.job,
            births: [Birth {
                rank: PMIX,
                processors: Vec::new(),
                variables: vec![(Place::VARIABLE.to_string(), place.to_text())],
            }]
            .into(),
            spec,
            keep: Vec::new(),
            group: None,
            gate: Arc::new(gate),
            own_memory: self.own_memory.clone(),
        })
    }

    /// The processes to start without a PMIx server, if they still wait for one.
    pub(crate) fn take_awaiting(&mut self) -> Option<Order> {
        self.awaiting.take()
    }

    fn node(&self) -> u16 {
        let first = self.ranks.first().map_or(0, |rank| usize::from(*rank));
        self.placement.nodes.get(first).copied().unwrap_or_default()
    }

    fn files_of_server(&self) -> PathBuf {
        let name = format!("{}-{}", self.pmi.name(), self.node());
        PathBuf::from(own_memory::FOLDER).join(name)
    }

    /// The files of the PMIx server, if they are in the shared memory of the machine.
    pub(crate) fn shared_files(&self) -> Option<PathBuf> {
        let is_shared = |memory: &Arc<OwnMemory>| memory.namespaces().is_none();
        let is_shared = self.own_memory.as_ref().is_some_and(is_shared);
        is_shared.then(|| self.files_of_server())
    }

    /// Takes a process that was just started.
    pub(crate) fn adopt(&mut self, mut process: Process) {
        process.is_running = self.is_running;
        if self.has_begun && !self.is_running && self.group.is_none() {
            process.signal(libc::SIGSTOP);
        }
        for signal in &self.owed {
            process.signal(*signal);
        }
        self.processes.push(process);
    }

    /// Counts a process as ended that never began. Returns the message for the root daemon.
    pub(crate) fn never_began(&mut self, rank: u16, cause: &str, node: &str) -> Option<Message> {
        let ended = Ended {
            status: match self.is_killed && self.cause.is_none() {
                true => 128 + libc::SIGKILL as u8,
                false => FARCALL_FAILED,
            },
            cause: Some(format!("rank {rank} on node {node}: {cause}")),
            ..Ended::default()
        };
        let is_new = self.ended.insert(rank);
        is_new.then_some(Message::ProcessEnded(self.placement.job, rank, ended))
    }

    /// The process of a rank, or the PMIx server.
    pub(crate) fn process(&mut self, rank: u16) -> Option<&mut Process> {
        let mut processes = self.processes.iter_mut().chain(&mut self.server);
        processes.find(|process| process.rank == rank)
    }

    /// Handles what a process asks for as one of MPI. Returns messages for the root daemon.
    pub(crate) fn serve_pmi(&mut self, rank: u16, node: u16) -> Vec<Message> {
        self.hear_pmi(rank);
        self.act_for_pmi(node)
    }

    /// Handles what a process that has ended has asked for, and what the PMIx server says of it:
    /// whether it has left MPI, or has aborted the gang job. Returns messages for the root daemon.
    pub(crate) fn serve_last(&mut self, rank: u16, node: u16) -> Vec<Message> {
        for rank in [rank, PMIX] {
            let mut reads = 0..LAST_READS;
            while reads.next().is_some() && self.hear_pmi(rank) {}
        }
        self.act_for_pmi(node)
    }

    /// Reads once what a process asks for. Returns false if there is nothing more now.
    fn hear_pmi(&mut self, rank: u16) -> bool {
        let mut processes = self.processes.iter_mut().chain(&mut self.server);
        let Some(process) = processes.find(|process| process.rank == rank) else {
            return false;
        };
        let Some(fd) = &process.pmi else {
            return false;
        };
        let mut buffer = [0; PMI_BYTES];
        let (is_sound, has_more) = match rustix::io::read(fd, &mut buffer) {
            Ok(0) => (false, false),
            Ok(count) => (self.pmi.handle_bytes(rank, &buffer[..count]).is_ok(), true),
            Err(rustix::io::Errno::INTR) => (true, true),
            Err(error) => (error == rustix::io::Errno::AGAIN, false),
        };
        if !is_sound {
            process.pmi = None;
        }
        has_more
    }

    /// Answers the processes of MPI.
    pub(crate) fn act_for_pmi(&mut self, node: u16) -> Vec<Message> {
        let mut messages = Vec::new();
        let id = self.placement.job;
        while let Some(action) = self.pmi.poll_action() {
            match action {
                PmiAction::Answer(rank, line) => {
                    let Some(process) = self.process(rank) else {
                        continue;
                    };
                    let flags = rustix::net::SendFlags::NOSIGNAL;
                    // A process that asks and does not read gets no more answers.
                    process.pmi.take_if(|fd| {
                        rustix::net::send(fd, line.as_bytes(), flags) != Ok(line.len())
                    });
                }
                PmiAction::Fence(pairs) => messages.push(Message::Fence(id, node, pairs)),
                PmiAction::Abort(rank, code) => messages.push(Message::Aborted(id, rank, code)),
                PmiAction::Ready(pairs) => self.give(pairs.into_iter().collect()),
            }
        }
        messages
    }

    /// Gives the processes that still wait for it the variables of their PMIx server.
    fn give(&mut self, of_server: BTreeMap<String, String>) {
        self.server_is_ready = true;
        // MPICH 5 does not begin if both interfaces are offered and it may choose.
        let choice = ("MPIR_CVAR_PMI_VERSION".to_string(), "1".to_string());
        let choice = Some(choice).filter(|(name, _)| !self.is_set(name));
        for birth in self.awaiting.iter_mut().flat_map(|order| &mut order.births) {
            let variables = pmix::variables(&of_server, birth.rank);
            birth.variables.extend(variables);
            birth.variables.extend(choice.clone());
        }
    }

    /// Begins to stop all processes.
    pub(crate) fn send_stop(&mut self) {
        self.is_running = false;
        if let Some(group) = &self.group {
            if let Err(error) = group.freeze() {
                tracing::warn!("cannot freeze a control group: {error}");
            }
            return;
        }
        for process in self.processes.iter().filter(|process| process.is_running) {
            process.signal(libc::SIGSTOP);
        }
    }

    /// Waits until all processes are stopped. Returns false if they are not at `end`.
    pub(crate) fn wait_stopped(&mut self, end: Instant) -> bool {
        if let Some(group) = &self.group {
            return group.wait_frozen(end);
        }
        let mut stopped = true;
        // Start with the last: when it has stopped, the others probably have as well.
        for process in self.processes.iter_mut().rev() {
            if process.is_running {
                stopped &= process.wait_stopped(end);
                process.is_running = false;
            }
        }
        stopped
    }

    pub(crate) fn go_on(&mut self) {
        self.is_running = true;
        if let Some(group) = &self.group {
            if let Err(error) = group.thaw() {
                tracing::warn!("cannot let a control group go on: {error}");
            }
            return;
        }
        if let Some(gate) = &self.gate
            && !std::mem::replace(&mut self.has_begun, true)
        {
            gate.open(self.ranks.len());
        }
        for process in &mut self.processes {
            process.signal(libc::SIGCONT);
            process.is_running = true;
        }
    }

    /// Sends a signal to all processes, also to those that are being started.
    pub(crate) fn signal(&mut self, signal: i32) {
        if signal == libc::SIGKILL {
            return self.kill();
        }
        let awaits = self.processes.len() + self.ended.len() < self.ranks.len();
        // As with a pending signal, a second one of the same number says nothing new.
        if awaits && !self.owed.contains(&signal) {
            self.owed.push(signal);
        }
        for process in &self.processes {
            process.signal(signal);
        }
    }

    pub(crate) fn kill(&mut self) {
        if !std::mem::replace(&mut self.is_killed, true) {
            self.owed.push(libc::SIGKILL);
        }
        if let Some(gate) = &self.gate {
            gate.close();
        }
        for process in &self.processes {
            process.signal(libc::SIGKILL);
        }
        if let Some(group) = &self.group {
            group.kill();
        }
    }
}

/// The shape of the memory segment of a gang job on a node.
pub(crate) fn shape(spec: &JobSpec, placement: &Placement, ranks: &[u16]) -> Shape {
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
        // A number that no segment can have is refused with the reason.
        channels: spec
            .channels
            .max(1)
            .saturating_add(u8::from(spec.fabric == Some(true))),
        partitions,
        send: fifo(spec.send, Shape::SEND),
        receive: fifo(spec.receive, Shape::RECEIVE),
        spin: placement.is_dedicated,
        is_restored: spec.restored == Some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement() -> Placement {
        Placement {
            nodes: vec![0],
            ..Placement::default()
        }
    }

    /// A user can send any number of signals to a job whose processes have yet to begin.
    #[test]
    fn a_signal_is_owed_once() {
        let spec = JobSpec::default();
        let mut job = LocalJob::new(spec, placement(), vec![0], None, false, None, None);
        for signal in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGUSR1] {
            job.signal(signal);
        }
        assert_eq!(job.owed, [libc::SIGUSR1, libc::SIGUSR2]);
    }

    #[test]
    fn too_many_channels_are_refused_with_their_number() {
        let spec = JobSpec {
            processes: 1,
            channels: u8::MAX,
            fabric: Some(true),
            ..JobSpec::default()
        };
        let refused = Segment::create(shape(&spec, &placement(), &[0])).err();
        let refused = refused.expect("no segment has so many").to_string();
        assert!(
            refused.contains("the number of channels is 255"),
            "{refused}"
        );
    }
}
