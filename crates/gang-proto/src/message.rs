//! The messages between daemons and front ends, and their encoding: CBOR, one message in each
//! frame, after a length of four bytes. `gang` sends them. A message is bounded, and one that
//! cannot be read ends its connection.

use crate::rest::Phase;
use crate::{Behind, JobId, Pairs, Round, Step};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use minicbor::{Decode, Encode};

/// Bytes of the longest message.
pub const MAX_MESSAGE: usize = 4 << 20;

/// Bytes of the longest specification of a gang job: a message has room for its placement, too.
pub const MAX_SPEC: usize = 3 << 20;

/// The most queues in a report.
const MAX_QUEUED: usize = 200_000;

/// The version of the messages between daemons. Daemons of different versions refuse each other.
/// Those before version 2 do not say theirs.
pub const VERSION: u16 = 3;

/// What a daemon that joins says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Introduction {
    /// Its [`VERSION`].
    #[n(0)]
    pub version: u16,
    /// The user that it runs as.
    #[n(1)]
    pub user: u32,
}

/// The reason why bytes are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MessageError(String);

/// The specification of a gang job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobSpec {
    /// Number of its processes.
    #[n(0)]
    pub processes: u16,
    /// The program and its arguments.
    #[n(1)]
    pub command: Vec<String>,
    /// Its environment, as `NAME=VALUE`.
    #[n(2)]
    pub environment: Vec<String>,
    /// Its working folder.
    #[n(3)]
    pub folder: String,
    /// Number of channels that it can open.
    #[n(4)]
    pub channels: u8,
    /// Bytes and messages of the send FIFO; zeros select the defaults.
    #[n(5)]
    pub send: (u32, u32),
    /// Bytes and messages of the receive FIFO; zeros select the defaults.
    #[n(6)]
    pub receive: (u32, u32),
    /// Partition of each rank; empty if all ranks can send to each other.
    #[n(7)]
    pub partitions: Vec<u16>,
    /// Bytes of memory that each process may need, for admission.
    #[n(8)]
    pub memory: u64,
    /// Whether the gang job consists of any programs and their descendants, which are frozen as a
    /// control group.
    #[n(9)]
    pub is_tree: bool,
    /// Whether the root daemon ends the gang job when it detects that the whole gang job has
    /// terminated.
    #[n(10)]
    pub detect_termination: bool,
    /// User and group that the processes run as.
    #[n(11)]
    pub owner: (u32, u32),
    /// Whether the interface for MPI is offered to the processes; it is if nothing is said.
    #[n(12)]
    pub mpi: Option<bool>,
    /// Whether the gang job runs only while its front end says that it has work
    /// ([`Message::Work`]). Then it runs before others, within bounds. Without a command it has no
    /// processes: it only keeps its processors free of other gang jobs.
    #[n(13)]
    pub interactive: Option<bool>,
    /// Whether MPI uses a further channel of the gang job as its network, instead of its own
    /// transport.
    #[n(14)]
    pub fabric: Option<bool>,
    /// Whether its processes begin from saved states ([`Message::Fill`]).
    #[n(15)]
    pub restored: Option<bool>,
    /// Names of the nodes that it must have; none if the root daemon chooses.
    #[n(16)]
    pub on: Option<Vec<String>>,
    /// The mask of permissions with which its processes begin; that of the daemon if nothing is
    /// said.
    #[n(17)]
    pub umask: Option<u32>,
}

impl JobSpec {
    /// Checks that the specification fits into the messages to all daemons.
    ///
    /// # Errors
    /// Returns the reason for the user.
    pub fn check_length(&self) -> Result<(), String> {
        let mut encoded = Vec::new();
        // Writing to a Vec cannot fail.
        let _ = minicbor::encode(self, &mut encoded);
        let (length, most) = (encoded.len(), MAX_SPEC);
        if length <= most {
            return Ok(());
        }
        Err(format!(
            "the command and the environment have {length} bytes, and those of a gang job can have \
             {most}: unset long variables, or begin with `env -i`"
        ))
    }
}

/// The nodes and processors on which the processes of a gang job run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Placement {
    /// The gang job.
    #[n(0)]
    pub job: JobId,
    /// Its number on the network, which no other gang job ever has.
    #[n(1)]
    pub network: u64,
    /// Node of each rank.
    #[n(2)]
    pub nodes: Vec<u16>,
    /// Processor of each rank on its node.
    #[n(3)]
    pub processors: Vec<u16>,
    /// Addresses of the engines, by node number.
    #[n(4)]
    pub engines: Vec<String>,
    /// Whether each process has a processor of its own.
    #[n(5)]
    pub is_dedicated: bool,
}

/// The resources that a gang job, or a process, has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Usage {
    /// Microseconds of processor time in user mode.
    #[n(0)]
    pub user_us: u64,
    /// Microseconds of processor time in system mode.
    #[n(1)]
    pub system_us: u64,
    /// Peak memory of the largest process in bytes.
    #[n(2)]
    pub peak_bytes: u64,
}

/// How a process, or a whole gang job, ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Ended {
    /// Its exit status, 128 + signal, or 125 for a failure of Farcall.
    #[n(0)]
    pub status: u8,
    /// Node, rank and cause, unless it exited with status 0.
    #[n(1)]
    pub cause: Option<String>,
    /// The resources it used.
    #[n(2)]
    pub usage: Usage,
    /// Whether it was a process of MPI that had not left MPI (`MPI_Finalize`), so that others
    /// cannot go on without it.
    #[n(3)]
    pub is_missed: Option<bool>,
}

/// One line of `farcall gang ps`.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct JobRow {
    /// The gang job.
    #[n(0)]
    pub id: JobId,
    /// `running`, `waiting` (for its slice), `resting` (without work), `stopped`, or `lost` with an
    /// earlier daemon.
    #[n(1)]
    pub state: String,
    /// Names of its nodes; `...` stands for the last ones if the list would be too long.
    #[n(2)]
    pub nodes: Vec<String>,
    /// Number of its processes.
    #[n(3)]
    pub processes: u16,
    /// Number of slices it has had.
    #[n(4)]
    pub slices: u64,
    /// Mean time from the decision to switch it out until the next gang job runs, in microseconds.
    #[n(5)]
    pub lost_us_per_switch: f64,
    /// Its owner.
    #[n(6)]
    pub user: u32,
    /// Its command; shortened, with `...` at its end, if the list would be too long.
    #[n(7)]
    pub command: String,
}

/// One node's report about a gang job at rest, from which the root daemon judges its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Report {
    /// Rank, channel, kind of wait, and the ranks waited for.
    #[n(0)]
    pub waits: Vec<(u16, u8, u8, u16, u16)>,
    /// Source, target, channel and number of messages, in the FIFOs of either side.
    #[n(1)]
    pub queued: Vec<(u16, u16, u8, u64)>,
    /// Ranks whose processes have ended.
    #[n(2)]
    pub ended: Vec<u16>,
    /// Rank, channel, and bytes in the receive FIFO of the rank; at least as many as it can hold if
    /// it has no space for another message.
    #[n(3)]
    pub fill: Vec<(u16, u8, u32)>,
    /// A number that changes with every message that enters or leaves a FIFO on the node.
    #[n(4)]
    pub progress: u64,
    /// Where each process stands among its steps.
    #[n(5)]
    pub places: Vec<Place>,
    /// What the processes of MPI over channels say of themselves.
    #[n(6)]
    pub polling: Option<Vec<Polling>>,
    /// Whether a process has met others through the interface for MPI.
    #[n(7)]
    pub uses_mpi: Option<bool>,
}

impl Report {
    /// Shortens a report that would be too long for a message: it says nothing of waits and queues,
    /// so that all processes count as running.
    pub fn shorten(&mut self) {
        if self.queued.len() > MAX_QUEUED {
            self.queued.clear();
            self.waits.clear();
        }
    }
}

/// What a process that never sleeps says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Polling {
    /// Its rank.
    #[n(0)]
    pub rank: u16,
    /// How often it has looked and found nothing, in all.
    #[n(1)]
    pub polls: u64,
    /// Another number whenever it says something else; 0 if it has never said anything.
    #[n(2)]
    pub version: u32,
    /// What it looks for: each of these lets it go on.
    #[n(3)]
    pub wanted: Vec<Wanted>,
    /// Whether it also looks for what `wanted` does not say.
    #[n(4)]
    pub has_others: bool,
}

/// What a process that polls looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Wanted {
    /// A message from a rank, or from any, with a tag, or with any.
    #[n(0)]
    Message(#[n(0)] Option<u16>, #[n(1)] Option<u32>),
    /// That a rank takes a message with this tag.
    #[n(1)]
    Receive(#[n(0)] u16, #[n(1)] Option<u32>),
}

/// Where a process stands among the steps of its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Place {
    /// Its rank.
    #[n(0)]
    pub rank: u16,
    /// Where it stands.
    #[n(1)]
    pub phase: Phase,
    /// Number of steps that it has done.
    #[n(2)]
    pub steps: u64,
}

/// Lengths of the saved state of a process: first the messages of its channels, then what its
/// program has registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Lengths {
    /// Bytes of the messages.
    #[n(0)]
    pub network: u64,
    /// Bytes of the registered state.
    #[n(1)]
    pub program: u64,
}

impl Lengths {
    /// Bytes of both.
    pub fn total(&self) -> u64 {
        self.network.saturating_add(self.program)
    }
}

/// A piece of the saved state of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Piece {
    /// The rank of the process.
    #[n(0)]
    pub rank: u16,
    /// Where the piece begins.
    #[n(1)]
    pub offset: u64,
    /// The whole state.
    #[n(2)]
    pub lengths: Lengths,
    /// The bytes.
    #[cbor(n(3), with = "minicbor::bytes")]
    pub bytes: Vec<u8>,
}

/// What the processes of a gang job that are between two steps, or come there, shall do.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Rest {
    /// Rest between two steps.
    #[n(0)]
    Ask,
    /// These ranks do another step.
    #[n(1)]
    Step(#[n(0)] Vec<u16>),
    /// Write their states.
    #[n(2)]
    Save,
    /// The daemon keeps a copy of the messages of their channels. Then the processes go on if this
    /// is true.
    #[n(3)]
    Collect(#[n(0)] bool),
    /// Go on. The daemon forgets the copies.
    #[n(4)]
    GoOn,
}

/// A message between daemons and front ends. Each comment begins with the sender or the direction:
/// up or down the tree of daemons.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Message {
    /// Front end: run a gang job.
    #[n(0)]
    Run(#[n(0)] JobSpec),
    /// Front end: list the gang jobs.
    #[n(1)]
    List,
    /// Front end: send a signal to a gang job. SIGSTOP stops it and SIGCONT continues it.
    #[n(2)]
    Signal(#[n(0)] JobId, #[n(1)] i32),
    /// Front end: report the state of a gang job.
    #[n(3)]
    State(#[n(0)] JobId),
    /// To the front end: the gang job was started under this number. The second is the number of
    /// processors that its processes share, if they are fewer.
    #[n(4)]
    Started(#[n(0)] JobId, #[n(1)] Option<u16>),
    /// Output of a process: gang job, rank, stream (1 or 2), bytes.
    #[n(5)]
    Output(
        #[n(0)] JobId,
        #[n(1)] u16,
        #[n(2)] u8,
        #[cbor(n(3), with = "minicbor::bytes")] Vec<u8>,
    ),
    /// To the front end: the gang job has ended.
    #[n(6)]
    JobEnded(#[n(0)] JobId, #[n(1)] Ended),
    /// To the front end: the list of gang jobs.
    #[n(7)]
    Jobs(#[n(0)] Vec<JobRow>),
    /// To the front end: the state of a gang job, as one word and a description.
    #[n(8)]
    JobState(#[n(0)] String, #[n(1)] String),
    /// To the front end: the request was carried out.
    #[n(9)]
    Done,
    /// To the front end: the request was refused, with the reason.
    #[n(10)]
    Refused(#[n(0)] String),
    /// Up: a daemon joins, with its name, its processors, the address of its engine, nothing, and
    /// what else it says. Daemons of the first versions end with the secret in place of nothing.
    #[n(11)]
    Join(
        #[n(0)] String,
        #[n(1)] Vec<u16>,
        #[n(2)] String,
        #[n(3)] String,
        #[n(4)] Option<Introduction>,
    ),
    /// Down: the name and the number of a node that has just joined, and the version. The number is
    /// 65535 if another node has the name.
    #[n(12)]
    Welcome(#[n(0)] String, #[n(1)] u16, #[n(2)] Option<u16>),
    /// Down: prepare a gang job.
    #[n(13)]
    Prepare(#[n(0)] JobSpec, #[n(1)] Placement),
    /// Down: perform a step of a gang switch.
    #[n(14)]
    Down(#[n(0)] Round, #[n(1)] Step),
    /// Up: all nodes below have finished a step of that gang switch, but for what is behind.
    #[n(15)]
    Up(#[n(0)] u64, #[n(1)] Step, #[n(2)] Behind),
    /// Down: send a signal to a gang job's processes.
    #[n(16)]
    Deliver(#[n(0)] JobId, #[n(1)] i32),
    /// Down: end the remaining processes of a gang job and forget it.
    #[n(17)]
    Forget(#[n(0)] JobId),
    /// Up: a process has ended.
    #[n(18)]
    ProcessEnded(#[n(0)] JobId, #[n(1)] u16, #[n(2)] Ended),
    /// Down: report on a gang job at rest.
    #[n(19)]
    Inspect(#[n(0)] JobId),
    /// Up: the report of a node.
    #[n(20)]
    Inspected(#[n(0)] JobId, #[n(1)] u16, #[n(2)] Report),
    /// Up: a node is lost, with all processes on it, and why. Earlier daemons do not say why.
    #[n(21)]
    Lost(#[n(0)] u16, #[n(1)] Option<String>),
    /// Between daemons, periodically: the sender is alive.
    #[n(22)]
    Alive,
    /// Down: stop reading the output of a gang job because its front end reads nothing, or resume.
    #[n(23)]
    Hold(#[n(0)] JobId, #[n(1)] bool),
    /// Front end over TCP, after its proof. Front ends of earlier versions send the secret.
    #[n(24)]
    Hello(#[n(0)] String),
    /// Over TCP, before everything else: a message of the proof that both sides know the secret.
    #[n(25)]
    Proof(#[n(0)] String),
    /// Up: nodes that were behind answer again.
    #[n(26)]
    Back(#[n(0)] Vec<u16>),
    /// Up: all processes of a gang job on a node have reached a barrier of MPI, with what they have
    /// put.
    #[n(27)]
    Fence(#[n(0)] JobId, #[n(1)] u16, #[n(2)] Pairs),
    /// Down: the processes of all nodes have reached the barrier, with what all have put.
    #[n(28)]
    Fenced(#[n(0)] JobId, #[n(1)] Pairs),
    /// Front end: its interactive gang job has work now, or no more.
    #[n(30)]
    Work(#[n(0)] JobId, #[n(1)] bool),
    /// Up: the process of a rank has aborted the gang job with a code.
    #[n(29)]
    Aborted(#[n(0)] JobId, #[n(1)] u16, #[n(2)] i32),
    /// Front end: take the state of a gang job, within this number of milliseconds. If the last is
    /// true, its processes rest until [`Message::Release`] or [`Message::Replace`].
    #[n(31)]
    Checkpoint(#[n(0)] JobId, #[n(1)] u32, #[n(2)] bool),
    /// To the front end: the state was taken, and can be fetched.
    #[n(32)]
    Taken(#[n(0)] JobId, #[n(1)] JobSpec),
    /// Front end, and down to a node: send the piece of a state at an offset.
    #[n(33)]
    Fetch(#[n(0)] u16, #[n(1)] JobId, #[n(2)] u16, #[n(3)] u64),
    /// Up, and to the front end: a piece of a state.
    #[n(34)]
    Fetched(#[n(0)] JobId, #[n(1)] Piece),
    /// Front end: the state is not needed any more, and the gang job goes on.
    #[n(35)]
    Release(#[n(0)] JobId),
    /// Front end: end the processes of a gang job whose state it has, and begin them again from it,
    /// on the nodes with these names.
    #[n(36)]
    Replace(#[n(0)] JobId, #[n(1)] Vec<String>),
    /// Front end, and down to a node: a piece of the state with which a process begins.
    #[n(37)]
    Fill(#[n(0)] u16, #[n(1)] JobId, #[n(2)] Piece),
    /// Up, and to the front end: a node has the state of a rank up to this byte.
    #[n(38)]
    Filled(#[n(0)] JobId, #[n(1)] u16, #[n(2)] u64, #[n(3)] Lengths),
    /// Down: what the processes of a gang job that have registered their state shall do.
    #[n(39)]
    Rest(#[n(0)] JobId, #[n(1)] Rest),
    /// Between daemons: the sender closes the connection, for this reason.
    #[n(40)]
    Closing(#[n(0)] String),
}

impl Message {
    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        // Writing to a Vec cannot fail.
        let _ = minicbor::encode(self, &mut *out);
        let bytes = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&bytes.to_le_bytes());
    }

    /// Decodes the first message of `bytes`, if it is complete. Returns it with the length of its
    /// frame.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Message, usize)>, MessageError> {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_MESSAGE {
            return Err(MessageError("the message is longer than 4 MiB".to_string()));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let mut decoder = minicbor::Decoder::new(body);
        let message = decoder
            .decode()
            .map_err(|error| MessageError(error.to_string()))?;
        if decoder.position() != length {
            return Err(MessageError(
                "there are bytes after the end of the message".to_string(),
            ));
        }
        Ok(Some((message, 4 + length)))
    }
}

#[cfg(test)]
mod tests;
