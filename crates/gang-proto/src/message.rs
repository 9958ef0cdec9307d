//! Messages between daemons and front ends: CBOR, one message in a frame of a four-byte length.

use crate::{JobId, Round, Step};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use minicbor::{Decode, Encode};

/// Bytes of the longest message.
pub const MAX_MESSAGE: usize = 4 << 20;

/// What is wrong with a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MessageError(String);

/// What a job is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct JobSpec {
    /// Its elements.
    #[n(0)]
    pub elements: u16,
    /// The program and its arguments.
    #[n(1)]
    pub command: Vec<String>,
    /// `NAME=VALUE` of its environment.
    #[n(2)]
    pub environment: Vec<String>,
    /// Its working folder.
    #[n(3)]
    pub folder: String,
    /// Channels that it may open.
    #[n(4)]
    pub channels: u8,
    /// Bytes and messages of the send FIFO; zeros for the defaults.
    #[n(5)]
    pub send: (u32, u32),
    /// The same of the receive FIFO.
    #[n(6)]
    pub receive: (u32, u32),
    /// Partition of each rank; empty where all may send to all.
    #[n(7)]
    pub partitions: Vec<u16>,
    /// Bytes that each element may need, for admission.
    #[n(8)]
    pub memory: u64,
    /// Whether the job is a tree of any programs, frozen as a control group.
    #[n(9)]
    pub is_tree: bool,
    /// Whether the job is ended when it has terminated as a whole.
    #[n(10)]
    pub detect_termination: bool,
    /// User and group to run as.
    #[n(11)]
    pub owner: (u32, u32),
}

/// Where the elements of a job run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Placement {
    /// The job.
    #[n(0)]
    pub job: JobId,
    /// Its number on the network: no other job ever has it.
    #[n(1)]
    pub network: u64,
    /// Node of each rank.
    #[n(2)]
    pub nodes: Vec<u16>,
    /// Processor of each rank on its node.
    #[n(3)]
    pub processors: Vec<u16>,
    /// Where the engine of each node is reached, by the node's number.
    #[n(4)]
    pub engines: Vec<String>,
    /// Whether each element has a processor of its own.
    #[n(5)]
    pub is_dedicated: bool,
}

/// What a job, or an element, has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Usage {
    /// Microseconds of processor time in user mode.
    #[n(0)]
    pub user_us: u64,
    /// Microseconds in the system.
    #[n(1)]
    pub system_us: u64,
    /// Bytes of the largest element.
    #[n(2)]
    pub peak_bytes: u64,
}

/// How an element, or a whole job, ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Ended {
    /// Its exit status, 128 + signal, or 125 for a failure of Farcall.
    #[n(0)]
    pub status: u8,
    /// Node, rank and cause, where it did not end by itself with 0.
    #[n(1)]
    pub cause: Option<String>,
    /// What it used.
    #[n(2)]
    pub usage: Usage,
}

/// One line of `farcall gang ps`.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct JobRow {
    /// The job.
    #[n(0)]
    pub id: JobId,
    /// `running`, `waiting` for its slice, `stopped`.
    #[n(1)]
    pub state: String,
    /// Names of its nodes.
    #[n(2)]
    pub nodes: Vec<String>,
    /// Elements.
    #[n(3)]
    pub elements: u16,
    /// Slices it has had.
    #[n(4)]
    pub slices: u64,
    /// Microseconds from the decision to switch it out until the next job runs, mean.
    #[n(5)]
    pub lost_us_per_switch: f64,
    /// Its owner.
    #[n(6)]
    pub user: u32,
    /// What it runs.
    #[n(7)]
    pub command: String,
}

/// What one node knows of a job at rest, for the judgement of its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Report {
    /// Rank, channel, kind of waiting and the ranks waited for.
    #[n(0)]
    pub waits: Vec<(u16, u8, u8, u16, u16)>,
    /// Source, target, channel and number of messages, in FIFOs of either side.
    #[n(1)]
    pub queued: Vec<(u16, u16, u8, u64)>,
    /// Ranks that have ended.
    #[n(2)]
    pub ended: Vec<u16>,
    /// Rank, channel, bytes in its receive FIFO.
    #[n(3)]
    pub fill: Vec<(u16, u8, u32)>,
    /// A number that changes with every message put in or taken out on the node.
    #[n(4)]
    pub progress: u64,
}

/// Everything that travels between daemons and front ends.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Message {
    /// Front end: run a job.
    #[n(0)]
    Run(#[n(0)] JobSpec),
    /// Front end: list the jobs.
    #[n(1)]
    List,
    /// Front end: send a signal to a job; SIGSTOP and SIGCONT stop it and let it go on.
    #[n(2)]
    Signal(#[n(0)] JobId, #[n(1)] i32),
    /// Front end: say what state a job is in.
    #[n(3)]
    State(#[n(0)] JobId),
    /// To the front end: the job runs under this number.
    #[n(4)]
    Started(#[n(0)] JobId),
    /// Output of an element: job, rank, 1 or 2, bytes.
    #[n(5)]
    Output(
        #[n(0)] JobId,
        #[n(1)] u16,
        #[n(2)] u8,
        #[cbor(n(3), with = "minicbor::bytes")] Vec<u8>,
    ),
    /// To the front end: the job has ended.
    #[n(6)]
    JobEnded(#[n(0)] JobId, #[n(1)] Ended),
    /// To the front end: the jobs.
    #[n(7)]
    Jobs(#[n(0)] Vec<JobRow>),
    /// To the front end: the state of a job, in words.
    #[n(8)]
    JobState(#[n(0)] String, #[n(1)] String),
    /// To the front end: done.
    #[n(9)]
    Done,
    /// To the front end: refused, and why.
    #[n(10)]
    Refused(#[n(0)] String),
    /// Up: a daemon joins: its name, processors, the address of its engine, the secret.
    #[n(11)]
    Join(
        #[n(0)] String,
        #[n(1)] Vec<u16>,
        #[n(2)] String,
        #[n(3)] String,
    ),
    /// Down: the number of the node that has just joined, by its name.
    #[n(12)]
    Welcome(#[n(0)] String, #[n(1)] u16),
    /// Down: prepare a job.
    #[n(13)]
    Prepare(#[n(0)] JobSpec, #[n(1)] Placement),
    /// Down: a step of a switch.
    #[n(14)]
    Down(#[n(0)] Round, #[n(1)] Step),
    /// Up: all nodes below have done a step of that switch.
    #[n(15)]
    Up(#[n(0)] u64, #[n(1)] Step),
    /// Down: send a signal to a job's elements.
    #[n(16)]
    Deliver(#[n(0)] JobId, #[n(1)] i32),
    /// Down: end what is left of a job and forget it.
    #[n(17)]
    Forget(#[n(0)] JobId),
    /// Up: an element has ended.
    #[n(18)]
    ElementEnded(#[n(0)] JobId, #[n(1)] u16, #[n(2)] Ended),
    /// Down: report on a job at rest.
    #[n(19)]
    Inspect(#[n(0)] JobId),
    /// Up: the report of a node.
    #[n(20)]
    Inspected(#[n(0)] JobId, #[n(1)] u16, #[n(2)] Report),
    /// Up: a node is gone, with everything on it.
    #[n(21)]
    Lost(#[n(0)] u16),
    /// Between daemons, now and then: this one works.
    #[n(22)]
    Alive,
    /// Down: read no output of a job, or read it again: its front end takes nothing.
    #[n(23)]
    Hold(#[n(0)] JobId, #[n(1)] bool),
    /// Front end over TCP: the secret.
    #[n(24)]
    Hello(#[n(0)] String),
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

    /// Takes the first message off the bytes, if it is complete: it, and how long its frame was.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Message, usize)>, MessageError> {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_MESSAGE {
            return Err(MessageError("a message is longer than 4 MiB".to_string()));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let mut decoder = minicbor::Decoder::new(body);
        let message = decoder
            .decode()
            .map_err(|error| MessageError(error.to_string()))?;
        if decoder.position() != length {
            return Err(MessageError("bytes follow a message".to_string()));
        }
        Ok(Some((message, 4 + length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_travel() {
        let sent = [
            Message::Run(JobSpec {
                elements: 2,
                command: ["a".to_string()].into(),
                ..JobSpec::default()
            }),
            Message::Output(1, 2, 1, [0, 255].into()),
            Message::Down(Round::default(), Step::Run),
        ];
        let mut bytes = Vec::new();
        for message in &sent {
            message.encode(&mut bytes);
        }
        let mut place = 0;
        for message in sent {
            let (read, length) = Message::decode(&bytes[place..]).unwrap().unwrap();
            assert_eq!(read, message);
            assert_eq!(Message::decode(&bytes[place..place + length - 1]), Ok(None));
            place += length;
        }
        assert!(Message::decode(&[255; 8]).is_err());
        assert!(Message::decode(&[1, 0, 0, 0, 255]).is_err());
    }
}
