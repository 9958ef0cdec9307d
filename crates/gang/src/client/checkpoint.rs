//! The front end of checkpoints and moves: fetches the state of a gang job from its nodes, and
//! sends it to the nodes where the gang job begins again. The state of a move stays in a file
//! without a name until the new processes have it, so that the loss of a node loses nothing.

use super::saved::{FileError, SavedJob, Writer};
use super::{Client, ClientError, unexpected};
use farcall_channel_proto::saved::{Saved, normalise};
use farcall_gang_proto::checkpoint::{Head, MAX_NETWORK};
use farcall_gang_proto::{JobId, JobSpec, Lengths, Message, Piece};
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

/// Pieces that are on their way at the same time.
pub(super) const WINDOW: usize = 8;

/// How often a move tries to begin the gang job again after a node was lost.
const TRIES: usize = 5;

/// What was taken, or moved.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Number of processes.
    pub processes: u16,
    /// Bytes of their states.
    pub bytes: u64,
    /// Why a gang job that was moved is not at the nodes with the names that were stated.
    pub elsewhere: Option<String>,
}

/// Told what is done with how many bytes so far, and with how many in all.
pub type Progress<'a> = &'a mut dyn FnMut(&'static str, u64, u64);

impl Client {
    /// Writes the state of a gang job to a file, which appears when it is complete. The gang job
    /// goes on. Its processes have `within` to come to rest.
    ///
    /// # Errors
    /// The gang job cannot be caught, or the file cannot be written.
    pub fn checkpoint(
        &mut self,
        job: JobId,
        within: Duration,
        path: &Path,
        progress: Progress<'_>,
    ) -> Result<Taken, ClientError> {
        self.check_daemon()?;
        let mut writer = Writer::create(path)?;
        let taken = self.take(job, (within, false), &mut writer, progress)?;
        writer.finish()?;
        self.release(job)?;
        Ok(taken)
    }

    /// Moves a gang job to the nodes with these names, or to those with the least load if there are
    /// none. Its number and its front end stay the same.
    ///
    /// # Errors
    /// The gang job cannot be caught, or cannot begin at the nodes; in both cases it goes on where
    /// it was, unless its processes had ended.
    pub fn move_job(
        &mut self,
        job: JobId,
        within: Duration,
        to: &[String],
        progress: Progress<'_>,
    ) -> Result<Taken, ClientError> {
        let mut writer = Writer::unnamed()?;
        let mut taken = self.take(job, (within, true), &mut writer, progress)?;
        let file = writer.finish()?;
        let mut saved = SavedJob::check(file, Path::new("of the move"))?;
        let mut names = to.to_vec();
        let mut has_ended = false;
        let mut why = None;
        for _ in 0..TRIES {
            let placed = match self.ask(&Message::Replace(job, names.clone())) {
                Ok(Message::Done) => {
                    has_ended = true;
                    self.feed_all(job, &mut saved, progress)
                }
                Ok(other) => return Err(unexpected(&other)),
                Err(error) if !has_ended => {
                    self.release(job)?;
                    return Err(error);
                }
                Err(error) => Err(error),
            };
            match placed {
                Ok(()) => return Ok(taken),
                // The nodes that are left can have it.
                Err(ClientError::Refused(text)) => {
                    why.get_or_insert_with(|| text.clone());
                    if !names.is_empty() {
                        taken.elsewhere = Some(text);
                    }
                    names.clear();
                    saved.rewind()?;
                }
                Err(error) => return Err(error),
            }
        }
        let why = why.unwrap_or_default();
        Err(ClientError::Refused(format!(
            "gang job {job} could not begin again after {TRIES} tries, and its processes have \
             ended: {why}"
        )))
    }

    fn release(&mut self, job: JobId) -> Result<(), ClientError> {
        match self.ask(&Message::Release(job))? {
            Message::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes the state of a gang job, and writes it.
    fn take(
        &mut self,
        job: JobId,
        (within, holds): (Duration, bool),
        writer: &mut Writer,
        progress: Progress<'_>,
    ) -> Result<Taken, ClientError> {
        let within = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
        let spec = match self.ask(&Message::Checkpoint(job, within, holds))? {
            Message::Taken(_, spec) => spec,
            other => return Err(unexpected(&other)),
        };
        let processes = spec.processes;
        let mut states = self.fetch_networks(job, processes)?;
        let mut saved = Vec::new();
        for (network, _) in &states {
            saved.push(Saved::decode(network).map_err(damaged)?);
        }
        normalise(&mut saved).map_err(damaged)?;
        for ((network, lengths), saved) in states.iter_mut().zip(&saved) {
            network.clear();
            saved.encode(network);
            lengths.written = network.len() as u64;
        }
        let head = Head {
            spec: as_started(spec),
            ranks: states
                .iter()
                .map(|(_, lengths)| lengths.written())
                .collect(),
        };
        let bytes = head.ranks.iter().map(Lengths::total).sum();
        writer.write(&head.encode())?;
        writer.end_part()?;
        let mut done = 0;
        for (rank, (network, lengths)) in (0..).zip(states) {
            writer.write(&network)?;
            writer.end_part()?;
            done += network.len() as u64;
            let mut told = |count: u64| progress("fetched", done + count, bytes);
            self.fetch_program(job, rank, lengths.fetched, writer, &mut told)?;
            writer.end_part()?;
            done += lengths.fetched.program;
        }
        Ok(Taken {
            processes,
            bytes,
            elsewhere: None,
        })
    }

    /// Fetches the messages in the channels of all ranks.
    fn fetch_networks(
        &mut self,
        job: JobId,
        processes: u16,
    ) -> Result<Vec<(Vec<u8>, Known)>, ClientError> {
        let mut states = vec![(Vec::new(), Known::default()); processes.into()];
        let mut left = states.len();
        for rank in 0..processes {
            self.link.send(&Message::Fetch(0, job, rank, 0));
        }
        while left > 0 {
            let piece = self.next_fetched()?;
            let rank = piece.rank;
            let Some((network, known)) = states.get_mut(usize::from(rank)) else {
                return Err(damaged("a rank that does not exist"));
            };
            let is_next = piece.offset == network.len() as u64 && !piece.bytes.is_empty();
            if !is_next || piece.lengths.network > MAX_NETWORK {
                return Err(damaged("its pieces do not fit together"));
            }
            known.fetched = piece.lengths;
            network.extend_from_slice(&piece.bytes);
            match network.len() as u64 {
                length if length < piece.lengths.network => {
                    let fetch = Message::Fetch(0, job, rank, length);
                    self.link.send(&fetch);
                }
                _ => left -= 1,
            }
        }
        Ok(states)
    }

    /// Fetches what the program of a rank has registered, and writes it.
    fn fetch_program(
        &mut self,
        job: JobId,
        rank: u16,
        lengths: Lengths,
        writer: &mut Writer,
        told: &mut dyn FnMut(u64),
    ) -> Result<(), ClientError> {
        let (mut asked, mut done) = (lengths.network, lengths.network);
        let mut open = 0;
        // All pieces but the last have the size that the node chooses for the first.
        let mut size = None;
        while done < lengths.total() {
            let most = if size.is_some() { WINDOW } else { 1 };
            while open < most && asked < lengths.total() {
                self.link.send(&Message::Fetch(0, job, rank, asked));
                open += 1;
                match size {
                    Some(size) => asked += size,
                    None => break,
                }
            }
            let piece = self.next_fetched()?;
            open -= 1;
            let length = piece.bytes.len() as u64;
            let is_next = (piece.rank, piece.offset) == (rank, done) && length > 0;
            if !is_next || piece.lengths != lengths || length > lengths.total() - done {
                return Err(damaged("its pieces do not fit together"));
            }
            writer.write(&piece.bytes)?;
            done += length;
            if size.is_none() {
                size = Some(length);
                asked = done;
            }
            told(done - lengths.network);
        }
        Ok(())
    }

    fn next_fetched(&mut self) -> Result<Piece, ClientError> {
        match self.next()? {
            Message::Fetched(_, piece) => Ok(piece),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends the state of a gang job until its nodes have all of it.
    fn feed_all(
        &mut self,
        job: JobId,
        saved: &mut SavedJob,
        progress: Progress<'_>,
    ) -> Result<(), ClientError> {
        let (mut open, mut done, bytes) = (VecDeque::new(), 0, saved.bytes());
        loop {
            open.extend(self.feed(job, saved, WINDOW - open.len())?);
            if open.is_empty() {
                return Ok(());
            }
            match self.next()? {
                Message::Filled(..) => done += open.pop_front().unwrap_or(0),
                other => return Err(unexpected(&other)),
            }
            progress("sent", done, bytes);
        }
    }

    /// Sends up to `most` pieces of the state with which a gang job begins. Returns their sizes.
    pub(super) fn feed(
        &mut self,
        job: JobId,
        saved: &mut SavedJob,
        most: usize,
    ) -> Result<Vec<u64>, ClientError> {
        let mut sizes = Vec::new();
        while sizes.len() < most
            && let Some(piece) = saved.next_piece()?
        {
            sizes.push(piece.bytes.len() as u64);
            self.link.send(&Message::Fill(0, job, piece));
        }
        Ok(sizes)
    }
}

/// The lengths of the state of a rank as its node has it, and of its messages as they are written.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    fetched: Lengths,
    written: u64,
}

impl Known {
    fn written(&self) -> Lengths {
        Lengths {
            network: self.written,
            program: self.fetched.program,
        }
    }
}

/// A gang job as its user has started it.
fn as_started(spec: JobSpec) -> JobSpec {
    JobSpec {
        owner: (0, 0),
        restored: None,
        on: None,
        ..spec
    }
}

fn damaged(why: impl std::fmt::Display) -> ClientError {
    ClientError::Refused(format!("the state of the gang job is damaged: {why}"))
}

impl From<FileError> for ClientError {
    fn from(error: FileError) -> ClientError {
        ClientError::File(error)
    }
}
