//! The states of gang jobs on this node: lets processes rest, copies what their channels hold,
//! reads the states that they have written, and receives those with which processes begin. The root
//! daemon decides when; front ends keep the states.

use super::{LocalJob, Node};
use crate::start::Order;
use crate::states::Arriving;
use farcall_channel::{Command, ElementView, Segment};
use farcall_channel_proto::saved::Saved;
use farcall_gang_proto::checkpoint::MAX_NETWORK;
use farcall_gang_proto::{JobId, Lengths, Message, Piece, Polling, Rest, Wanted};
use std::sync::Arc;

/// Bytes of a piece of a state.
const PIECE: u64 = 256 << 10;

/// What a process of MPI over channels says of itself.
pub(super) fn polling(view: &ElementView) -> Polling {
    let wanted = |wanted: &farcall_channel::Wanted| match *wanted {
        farcall_channel::Wanted::Message { source, tag } => Wanted::Message(source, tag),
        farcall_channel::Wanted::Receive { target, tag } => Wanted::Receive(target, tag),
    };
    let said = &view.polling;
    Polling {
        rank: view.rank,
        polls: said.polls,
        version: said.version,
        wanted: said.wanted.iter().map(wanted).collect(),
        has_others: said.has_others,
    }
}

impl Node {
    /// Tells the processes of a gang job that have registered their state what to do.
    pub(crate) fn rest(&mut self, id: JobId, rest: &Rest) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(segment) = job.segment.clone() else {
            return;
        };
        let all = segment.shape().locals.iter();
        match rest {
            Rest::Ask => segment.ask_to_rest(true),
            Rest::Step(ranks) => all
                .filter(|rank| ranks.contains(rank))
                .for_each(|rank| segment.command(*rank, Command::Step)),
            Rest::Save => all.for_each(|rank| segment.command(*rank, Command::Save)),
            Rest::Collect(goes_on) => {
                self.collect(id, &segment);
                if *goes_on {
                    segment.ask_to_rest(false);
                }
            }
            Rest::GoOn => {
                segment.ask_to_rest(false);
                job.states.collected.clear();
                segment.forget_states();
            }
        }
    }

    /// Keeps a copy of what the channels of a gang job at rest hold.
    fn collect(&mut self, id: JobId, segment: &Segment) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let pairs = match job.is_spread {
            true => self.engine.contexts(job.placement.network),
            false => Vec::new(),
        };
        match segment.collect(&pairs) {
            Ok(all) => {
                let encoded = all.into_iter().map(|(rank, saved)| {
                    let mut bytes = Vec::new();
                    saved.encode(&mut bytes);
                    (rank, bytes)
                });
                job.states.collected = encoded.collect();
            }
            Err(error) => self.fail_all(id, &error.to_string()),
        }
    }

    /// Sends a piece of the state of a rank.
    pub(crate) fn fetch(&mut self, id: JobId, rank: u16, offset: u64) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        match piece(job, rank, offset) {
            Ok(piece) => self.messages.push(Message::Fetched(id, piece)),
            Err(error) => {
                let cause = format!("the state of rank {rank} cannot be read: {error}");
                self.fail_all(id, &cause);
            }
        }
    }

    /// Takes a piece of the state with which a rank begins.
    pub(crate) fn fill(&mut self, id: JobId, piece: &Piece) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let done = job.take_piece(piece);
        let done = done.and_then(|is_whole| match is_whole {
            true => self.begin_from_states(id),
            false => Ok(()),
        });
        match done {
            Ok(()) => {
                let offset = piece.offset + piece.bytes.len() as u64;
                let filled = Message::Filled(id, piece.rank, offset, piece.lengths);
                self.messages.push(filled);
            }
            Err(cause) => {
                let cause = format!("cannot begin from the saved state: {cause}");
                self.refuse(id, &cause);
            }
        }
    }

    /// Starts the processes of a gang job whose states have all arrived.
    fn begin_from_states(&mut self, id: JobId) -> Result<(), String> {
        let Some(job) = self.jobs.get_mut(&id) else {
            return Ok(());
        };
        let segment = job.segment.clone().ok_or("it has no channels")?;
        let arriving = std::mem::take(&mut job.states.arriving);
        let decode = |(rank, arriving): (u16, Arriving)| {
            let saved = Saved::decode(&arriving.network);
            segment.set_state_bytes(rank, arriving.lengths.program);
            saved.map(|saved| (rank, saved))
        };
        let all: Result<Vec<_>, _> = arriving.into_iter().map(decode).collect();
        let fill = all.and_then(|all| segment.fill(&all));
        fill.map_err(|error| error.to_string())?;
        let (placement, is_spread) = (job.placement.clone(), job.is_spread);
        if is_spread {
            let attached = self.attach(&segment, &placement);
            attached.map_err(|error| error.to_string())?;
        }
        let order = self.jobs.get_mut(&id);
        if let Some(order) = order.and_then(|job| job.states.waiting.take()) {
            self.start(id, order);
        }
        Ok(())
    }

    /// Keeps the processes of a gang job until their states have arrived.
    pub(super) fn await_states(&mut self, id: JobId, order: Order) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.states.waiting = Some(order);
        }
    }
}

fn piece(job: &LocalJob, rank: u16, offset: u64) -> std::io::Result<Piece> {
    let missing = || std::io::Error::other("it was not taken");
    let network = job.states.collected.get(&rank).ok_or_else(missing)?;
    let segment: &Arc<Segment> = job.segment.as_ref().ok_or_else(missing)?;
    let lengths = Lengths {
        network: network.len() as u64,
        program: segment.state_bytes(rank),
    };
    let bytes = match network.get(usize::try_from(offset).unwrap_or(usize::MAX)..) {
        Some(rest) if !rest.is_empty() => rest[..rest.len().min(PIECE as usize)].to_vec(),
        _ => {
            let left = lengths.total().saturating_sub(offset).min(PIECE);
            let mut bytes = vec![0; left as usize];
            segment.read_state(rank, offset - lengths.network, &mut bytes)?;
            bytes
        }
    };
    Ok(Piece {
        rank,
        offset,
        lengths,
        bytes,
    })
}

impl LocalJob {
    /// Takes a piece of the state with which a rank begins. Returns whether the states of all ranks
    /// here are whole.
    fn take_piece(&mut self, piece: &Piece) -> Result<bool, String> {
        let segment = self.segment.as_ref().ok_or("it has no channels")?;
        if self.states.waiting.is_none() || !self.ranks.contains(&piece.rank) {
            return Err("it does not wait for this state".to_string());
        }
        let arriving = self.states.arriving.entry(piece.rank).or_default();
        if arriving.offset == 0 {
            arriving.lengths = piece.lengths;
        }
        let length = piece.bytes.len() as u64;
        let is_next = piece.offset == arriving.offset
            && piece.lengths == arriving.lengths
            && length <= piece.lengths.total() - piece.offset;
        if !is_next || piece.lengths.network > MAX_NETWORK {
            return Err("its pieces do not fit together".to_string());
        }
        let of_network = piece.lengths.network.saturating_sub(piece.offset);
        let (network, program) = piece.bytes.split_at(of_network.min(length) as usize);
        arriving.network.extend_from_slice(network);
        let at = (piece.offset + network.len() as u64).saturating_sub(piece.lengths.network);
        let written = segment.write_state(piece.rank, at, program);
        written.map_err(|error| error.to_string())?;
        arriving.offset += length;
        let states = &self.states.arriving;
        let is_whole = |one: &Arriving| one.offset == one.lengths.total();
        Ok(states.len() == self.ranks.len() && states.values().all(is_whole))
    }
}
