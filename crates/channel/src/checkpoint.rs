//! A gang job's segment as its daemon uses it for a checkpoint: tells the processes to rest between
//! two steps, takes their state and the messages of their channels, and puts both into the segment
//! of a gang job that is restarted. `steps` has the side of the processes, which the daemon does
//! not trust.

use crate::error::Corrupt;
use crate::layout::REMOTE;
use crate::ring::{indices, set_indices};
use crate::segment::{Segment, Standing};
use farcall_channel_proto::PairContext;
use farcall_channel_proto::saved::{Queue, Saved, SavedError, count, fitting};
use farcall_gang_proto::Place;
use farcall_gang_proto::rest::Phase;
use rustix::fs::{fstat, ftruncate};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

/// The memory for the state of each process has this many bytes, as a power of two. Only pages that
/// are written exist.
pub(crate) const REGION: u32 = 40;

/// What the daemon tells a process that rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Command {
    /// Do another step, because somebody waits for a message of it.
    Step = 1,
    /// Write the state.
    Save = 2,
    /// Go on.
    GoOn = 3,
}

impl Command {
    /// The command in a word, which counts the commands so that each is new.
    pub(crate) fn decode(word: u32) -> Option<Command> {
        match word & 3 {
            1 => Some(Command::Step),
            2 => Some(Command::Save),
            3 => Some(Command::GoOn),
            _ => None,
        }
    }
}

impl Segment {
    /// Asks the processes to rest between two steps, or to go on.
    pub fn ask_to_rest(&self, is_asked: bool) {
        self.set_asked(is_asked);
        if !is_asked {
            for rank in self.shape().locals.clone() {
                self.command(rank, Command::GoOn);
            }
        }
    }

    /// Tells a process something. Only one that rests hears it.
    pub fn command(&self, rank: u16, command: Command) {
        let Some(place) = self.place(rank) else {
            return;
        };
        let word = &self.element(0, place).standing.command;
        let count = (word.load(Ordering::Relaxed) >> 2).wrapping_add(1);
        word.store(count << 2 | command as u32, Ordering::Release);
        crate::futex::wake(word);
    }

    /// Where the processes of this node stand.
    pub fn places(&self) -> Vec<Place> {
        let locals = self.shape().locals.iter().enumerate();
        let place = |(place, rank): (usize, &u16)| {
            let standing = &self.element(0, place).standing;
            Place {
                rank: *rank,
                phase: phase(standing),
                steps: standing.steps.load(Ordering::Relaxed),
            }
        };
        locals.map(place).collect()
    }

    fn place(&self, rank: u16) -> Option<usize> {
        let place = *self.layout.place.get(usize::from(rank))?;
        (place != REMOTE).then_some(place.into())
    }

    /// Bytes of the state that a process of this node has written, if it can have written them.
    pub fn state_bytes(&self, rank: u16) -> u64 {
        let bytes = self.place(rank).map_or(0, |place| {
            let standing = &self.element(0, place).standing;
            standing.bytes.load(Ordering::Acquire)
        });
        bytes.min(1 << REGION)
    }

    /// Reads the state of a process from an offset.
    ///
    /// # Errors
    /// The memory cannot be read, or ends before.
    pub fn read_state(&self, rank: u16, offset: u64, target: &mut [u8]) -> io::Result<()> {
        let state = self.state().ok_or(io::ErrorKind::Unsupported)?;
        state.read_exact_at(target, self.region(rank, offset)?)
    }

    /// Writes a part of the state with which a process begins.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn write_state(&self, rank: u16, offset: u64, source: &[u8]) -> io::Result<()> {
        let state = self.state().ok_or(io::ErrorKind::Unsupported)?;
        state.write_all_at(source, self.region(rank, offset)?)
    }

    /// Says how many bytes the state has with which a process begins.
    pub fn set_state_bytes(&self, rank: u16, bytes: u64) {
        if let Some(place) = self.place(rank) {
            let standing = &self.element(0, place).standing;
            standing.bytes.store(bytes, Ordering::Release);
        }
    }

    /// Frees the memory of the states.
    pub fn forget_states(&self) {
        if let Some(state) = self.state()
            && fstat(state).is_ok_and(|facts| facts.st_size > 0)
            && let Err(error) = ftruncate(state, 0)
        {
            // Only the memory remains, until the gang job ends.
            debug_assert!(false, "{error}");
        }
    }

    fn region(&self, rank: u16, offset: u64) -> io::Result<u64> {
        let place = self.place(rank).ok_or(io::ErrorKind::NotFound)?;
        match offset < 1 << REGION {
            true => Ok(start_of(place) + offset),
            false => Err(io::ErrorKind::FileTooLarge.into()),
        }
    }

    /// The messages in the channels of each process of this node, when the gang job is at rest.
    /// `pairs` has this node's contexts of the pairs with other nodes, which
    /// [`crate::Engine::contexts`] returns.
    ///
    /// # Errors
    /// Returns [`Corrupt`] if the contents of a ring are impossible.
    pub fn collect(
        &self,
        pairs: &[(u8, u16, u16, PairContext)],
    ) -> Result<Vec<(u16, Saved)>, Corrupt> {
        let locals = &self.shape().locals;
        let mut all: Vec<(u16, Saved)> = locals
            .iter()
            .map(|rank| (*rank, Saved::default()))
            .collect();
        for channel in 0..self.layout.all_channels() {
            for place in 0..locals.len() {
                self.collect_received(channel, place, pairs, &mut all)?;
                self.collect_unsent(channel, place, pairs, &mut all[place].1)?;
            }
        }
        Ok(all)
    }

    fn collect_received(
        &self,
        channel: usize,
        place: usize,
        pairs: &[(u8, u16, u16, PairContext)],
        all: &mut [(u16, Saved)],
    ) -> Result<(), Corrupt> {
        let rank = self.shape().locals[place];
        for source in 0..self.shape().size {
            let ring = self.layout.inbound(channel, place, source.into());
            let mut queue = Queue {
                channel: channel as u8,
                peer: source,
                number: number_of(pairs, (channel, source, rank), |pair| pair.expected),
                records: self.contents(ring)?,
            };
            let kept = self.layout.kept_bytes();
            if let Some(place) = self.place(source)
                && queue.records.len() > kept
            {
                let cut = fitting(&queue.records, kept).map_err(|_| Corrupt)?;
                let records = queue.records.split_off(cut);
                all[place].1.unsent.push(Queue {
                    peer: rank,
                    records,
                    ..queue.clone()
                });
            }
            if queue.number > 0 || !queue.records.is_empty() {
                all[place].1.received.push(queue);
            }
        }
        Ok(())
    }

    fn collect_unsent(
        &self,
        channel: usize,
        place: usize,
        pairs: &[(u8, u16, u16, PairContext)],
        saved: &mut Saved,
    ) -> Result<(), Corrupt> {
        let rank = self.shape().locals[place];
        let remotes = (0..self.shape().size).filter(|rank| self.place(*rank).is_none());
        for (index, target) in remotes.enumerate() {
            let records = self.contents(self.layout.outbound(channel, place, index))?;
            if !records.is_empty() {
                saved.unsent.push(Queue {
                    channel: channel as u8,
                    peer: target,
                    number: number_of(pairs, (channel, rank, target), |pair| pair.sequence),
                    records,
                });
            }
        }
        Ok(())
    }

    /// The whole records in a ring.
    fn contents(&self, ring: (usize, usize)) -> Result<Vec<u8>, Corrupt> {
        let (head, tail) = self.indices(ring)?;
        let mut records = vec![0; (tail - head) as usize];
        self.copy_out(ring, head, &mut records);
        count(&records).map_err(|_| Corrupt)?;
        Ok(records)
    }

    /// Puts saved messages into the channels of the processes of this node, before one of them or
    /// an engine uses the segment.
    ///
    /// # Errors
    /// The messages do not fit, or belong to ranks and channels that do not exist.
    pub fn fill(&self, all: &[(u16, Saved)]) -> Result<(), SavedError> {
        const NOBODY: SavedError = SavedError("its messages belong to ranks that do not exist");
        for (rank, saved) in all {
            let place = self.place(*rank).ok_or(NOBODY)?;
            for queue in &saved.received {
                self.check(queue)?;
                let ring = (queue.channel.into(), place, queue.peer);
                self.append(ring, &queue.records)?;
            }
        }
        for (rank, saved) in all {
            let place = self.place(*rank).ok_or(NOBODY)?;
            for queue in &saved.unsent {
                self.check(queue)?;
                match self.place(queue.peer) {
                    Some(target) => {
                        let ring = (queue.channel.into(), target, *rank);
                        self.append(ring, &queue.records)?;
                    }
                    None => self.append_outbound(place, queue)?,
                }
            }
        }
        Ok(())
    }

    fn check(&self, queue: &Queue) -> Result<(), SavedError> {
        let is_there = queue.peer < self.shape().size
            && usize::from(queue.channel) < self.layout.all_channels();
        match is_there {
            true => Ok(()),
            false => Err(SavedError("its messages belong to ranks that do not exist")),
        }
    }

    /// Appends records to the ring into a process: channel, place of the process, source.
    fn append(
        &self,
        (channel, place, source): (usize, usize, u16),
        records: &[u8],
    ) -> Result<(), SavedError> {
        let ring = self.layout.inbound(channel, place, source.into());
        let credit = &self.element(channel, place).inbound;
        credit.force(self.put(ring, records)?, records.len() as u64);
        Ok(())
    }

    fn append_outbound(&self, place: usize, queue: &Queue) -> Result<(), SavedError> {
        let channel = usize::from(queue.channel);
        let remote = self.layout.remote[usize::from(queue.peer)];
        let ring = self.layout.outbound(channel, place, remote.into());
        let credit = &self.element(channel, place).outbound;
        let bytes = queue.records.len() as u64;
        credit.force(self.put(ring, &queue.records)?, bytes);
        Ok(())
    }

    /// Appends records to a ring that nobody uses. Returns their number.
    fn put(&self, ring: (usize, usize), records: &[u8]) -> Result<u64, SavedError> {
        let control = self.control(ring);
        let (head, tail) = indices(control);
        let free = self.layout.ring_bytes as u64 - (tail - head);
        if records.len() as u64 > free {
            return Err(SavedError("its messages do not fit into the FIFOs"));
        }
        self.copy_in(ring, tail, records);
        set_indices(control, head, tail + records.len() as u64);
        count(records)
    }
}

/// The phase of a process. One that was told to go on after it had saved its state says so only
/// when it runs again: until then its old state must not count for the next checkpoint.
fn phase(standing: &Standing) -> Phase {
    let phase = Phase::of(standing.phase.load(Ordering::Acquire));
    let told = Command::decode(standing.command.load(Ordering::Relaxed));
    match phase {
        Phase::Saved | Phase::Failed if told != Some(Command::Save) => Phase::InStep,
        phase => phase,
    }
}

/// A number of the context of a pair between nodes; 0 within a node.
fn number_of(
    pairs: &[(u8, u16, u16, PairContext)],
    (channel, source, target): (usize, u16, u16),
    number: impl Fn(&PairContext) -> u64,
) -> u64 {
    let mut pairs = pairs.iter();
    let found =
        pairs.find(|(on, from, to, _)| (usize::from(*on), *from, *to) == (channel, source, target));
    found.map_or(0, |(.., pair)| number(pair))
}

/// The offset at which the state of a process begins, by its place on the node.
pub(crate) fn start_of(place: usize) -> u64 {
    (place as u64) << REGION
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Shape;

    /// As for two checkpoints between which the gang job has no slice.
    #[test]
    fn a_state_that_was_saved_before_does_not_count_again() {
        let segment = Segment::create(Shape {
            job: 1,
            size: 1,
            locals: vec![0],
            channels: 1,
            partitions: vec![0],
            send: Shape::SEND,
            receive: Shape::RECEIVE,
            spin: false,
            is_restored: false,
        });
        let segment = segment.expect("memory");
        let says = |phase: Phase| {
            let standing = &segment.element(0, 0).standing;
            standing.phase.store(phase as u32, Ordering::Release);
        };
        let phase = || segment.places()[0].phase;
        for said in [Phase::Saved, Phase::Failed] {
            segment.ask_to_rest(true);
            segment.command(0, Command::Save);
            says(said);
            assert_eq!(phase(), said);
            segment.ask_to_rest(false);
            assert_eq!(phase(), Phase::InStep);
            segment.ask_to_rest(true);
            assert_eq!(phase(), Phase::InStep);
        }
        says(Phase::Resting);
        assert_eq!(phase(), Phase::Resting);
    }
}
