//! A program in steps: it registers its state, and a function does one step after another. Between
//! two steps the state is all that the process has to know, so it can be taken there, and the
//! process can begin from it again. `checkpoint` has the side of the daemon.
//!
//! A process that is asked to rests at the end of its step. If a process waits within its step for
//! one that rests, the daemon lets that one do another step. At the end of all steps the processes
//! wait for each other, so that none has left before the state of all can no longer be taken.

use crate::channel::Channel;
use crate::checkpoint::{Command, REGION, start_of};
use crate::error::ChannelError;
use crate::ring::indices;
use crate::segment::Standing;
use farcall_channel_proto::saved::{ARRAYS_HEADER, Arrays, MAX_ARRAYS, SavedError};
use farcall_gang_proto::rest::Phase;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest sleep of a resting process that can be interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// A number of which arrays can be registered: any of fixed size whose bytes all mean something.
pub trait Array: sealed::Sealed {}

mod sealed {
    /// # Safety
    /// Every value of its bytes is a value of the type, and the type has no padding.
    pub unsafe trait Sealed {}
}

macro_rules! arrays {
    ($($number:ty)*) => {$(
        // SAFETY: a number has no padding, and any bytes are one.
        unsafe impl sealed::Sealed for $number {}
        impl Array for $number {}
    )*};
}

arrays!(f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 usize isize);

/// The state of a program: its arrays, always in the same order and of the same lengths.
pub trait State {
    /// Passes the bytes of each array to `each`, in order.
    fn arrays(&mut self, each: &mut dyn FnMut(&mut [u8]));
}

fn bytes<T: Array>(numbers: &mut [T]) -> &mut [u8] {
    let count = size_of_val(numbers);
    // SAFETY: the bytes are those of the slice, and any bytes are numbers.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), count) }
}

impl<T: Array> State for [T] {
    fn arrays(&mut self, each: &mut dyn FnMut(&mut [u8])) {
        each(bytes(self));
    }
}

impl<T: Array> State for Vec<T> {
    fn arrays(&mut self, each: &mut dyn FnMut(&mut [u8])) {
        each(bytes(self));
    }
}

impl<T: Array, const N: usize> State for [T; N] {
    fn arrays(&mut self, each: &mut dyn FnMut(&mut [u8])) {
        each(bytes(self));
    }
}

macro_rules! tuples {
    ($($name:ident)*) => {
        impl<$($name: State),*> State for ($($name,)*) {
            fn arrays(&mut self, each: &mut dyn FnMut(&mut [u8])) {
                #[allow(non_snake_case)]
                let ($($name,)*) = self;
                $($name.arrays(each);)*
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);

/// Passes the bytes of each array, in order, to the function that it receives.
type Visit<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&mut [u8]));

impl Channel {
    /// Registers the state of this process, before it sends or receives the first message. If the
    /// gang job was restarted from a checkpoint, this fills the state, and returns true. Then the
    /// channels hold the messages that they held at the checkpoint.
    ///
    /// # Errors
    /// The process has registered a state already, has used a channel, or the checkpoint is of a
    /// state with other arrays.
    pub fn register(&mut self, state: &mut (impl State + ?Sized)) -> Result<bool, ChannelError> {
        let mut lengths = Vec::new();
        state.arrays(&mut |array| lengths.push(array.len() as u64));
        let Some(mut reader) = self.begin_register(lengths)? else {
            return Ok(false);
        };
        let mut result = Ok(());
        state.arrays(&mut |array| {
            if result.is_ok() {
                result = reader.read(array);
            }
        });
        result?;
        self.end_register();
        Ok(true)
    }

    /// Does one step after another until `step` returns false, then waits until all processes have
    /// done theirs. `step` receives the number of the step, from 0. Between two steps a checkpoint
    /// of the gang job can be taken. Each process must be able to end its step if all others do
    /// theirs; if what a step receives was sent in a step with the same or a lower number, a
    /// checkpoint waits for one step at most.
    ///
    /// # Errors
    /// The first error of a step, or that no state was registered.
    pub fn run<S: State + ?Sized, E: From<ChannelError>>(
        &mut self,
        state: &mut S,
        mut step: impl FnMut(&mut Channel, &mut S, u64) -> Result<bool, E>,
    ) -> Result<(), E> {
        while let Some(number) = self.next_step(&mut |each| state.arrays(each))? {
            let goes_on = step(self, state, number)?;
            self.end_step(goes_on);
        }
        Ok(())
    }

    /// For bindings: begins to register arrays of these lengths. Returns a reader of their contents
    /// if the gang job was restarted; then call [`Channel::end_register`].
    #[doc(hidden)]
    pub fn begin_register(&mut self, lengths: Vec<u64>) -> Result<Option<Reader>, ChannelError> {
        if self.steps.is_some() {
            return Err(ChannelError::Registered);
        }
        if lengths.len() > MAX_ARRAYS {
            return Err(ChannelError::TooManyArrays(lengths.len()));
        }
        if !self.is_untouched() {
            return Err(ChannelError::Late);
        }
        let mut arrays = Arrays {
            lengths,
            ..Arrays::default()
        };
        let reader = match self.saved_arrays()? {
            None => None,
            Some((saved, _)) if saved.lengths != arrays.lengths => {
                return Err(ChannelError::OtherArrays {
                    saved: saved.lengths,
                    given: arrays.lengths,
                });
            }
            Some((saved, at)) => {
                arrays = saved;
                Some(Reader {
                    state: self.state_memory()?,
                    at,
                })
            }
        };
        let standing = self.standing();
        standing.steps.store(arrays.steps, Ordering::Relaxed);
        set_phase(standing, Phase::InStep);
        self.steps = Some(arrays);
        Ok(reader)
    }

    /// For bindings: frees the memory from which the arrays were read.
    #[doc(hidden)]
    pub fn end_register(&mut self) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Ok(state) = self.state_memory() {
            // Without this the memory is free when the gang job ends.
            let _ = fallocate(&*state, flags, start_of(self.place()), 1 << REGION);
        }
    }

    /// For bindings: rests if asked to, and returns the number of the next step, or `None` after
    /// the last one. `arrays` passes the bytes of each array to the function that it receives.
    #[doc(hidden)]
    pub fn next_step(&mut self, arrays: Visit<'_>) -> Result<Option<u64>, ChannelError> {
        loop {
            if self.steps.is_none() {
                return Err(ChannelError::Unregistered);
            }
            if self.is_asked_to_rest() {
                self.rest(arrays)?;
            }
            let counts = |arrays: &Arrays| (arrays.closing, arrays.steps);
            let (closing, steps) = self.steps.as_ref().map_or((0, 0), counts);
            match closing {
                0 => return Ok(Some(steps)),
                round if self.close_round(round)? => self.count_step(true),
                _ => {
                    set_phase(self.standing(), Phase::Finished);
                    self.steps = None;
                    return Ok(None);
                }
            }
        }
    }

    /// For bindings: counts a step that was done, and whether more follow.
    #[doc(hidden)]
    pub fn end_step(&mut self, goes_on: bool) {
        self.count_step(!goes_on);
    }

    fn count_step(&mut self, closes: bool) {
        let Some(arrays) = &mut self.steps else {
            return;
        };
        arrays.steps += 1;
        arrays.closing += u32::from(closes);
        let count = arrays.steps;
        self.standing().steps.store(count, Ordering::Relaxed);
    }

    /// A round of the dissemination barrier among the ranks of this partition, from 1. Each round
    /// is a step. Returns false if there is no such round.
    fn close_round(&mut self, round: u32) -> Result<bool, ChannelError> {
        let partitions = &self.segment().shape().partitions;
        let own = partitions[self.rank()];
        let group: Vec<usize> = (0..self.size())
            .filter(|rank| partitions[*rank] == own)
            .collect();
        let place = group.iter().position(|rank| *rank == self.rank());
        let (place, size) = (place.unwrap_or(0), group.len());
        let distance = 1usize.checked_shl(round - 1).unwrap_or(size);
        if distance >= size {
            return Ok(false);
        }
        let channel = self.collective();
        channel.send(group[(place + distance) % size], &[])?;
        channel.receive(Some(group[(place + size - distance) % size]), &mut [])?;
        Ok(true)
    }

    fn is_asked_to_rest(&self) -> bool {
        self.segment().is_asked()
    }

    /// Rests until the daemon says otherwise.
    fn rest(&mut self, arrays: Visit<'_>) -> Result<(), ChannelError> {
        let segment = self.segment().clone();
        let standing = &segment.element(0, self.place()).standing;
        let mut seen = standing.command.load(Ordering::Acquire);
        set_phase(standing, Phase::Resting);
        let done = loop {
            let now = standing.command.load(Ordering::Acquire);
            if now == seen {
                if !segment.is_asked() {
                    break Ok(());
                }
                crate::futex::wait(&standing.command, seen, Some(LOOK));
                if self.is_interrupted() {
                    break Err(ChannelError::Interrupted);
                }
                continue;
            }
            seen = now;
            match Command::decode(now) {
                Some(Command::Save) => {
                    let phase = match self.write_state(arrays) {
                        Ok(bytes) => {
                            standing.bytes.store(bytes, Ordering::Release);
                            Phase::Saved
                        }
                        Err(_) => Phase::Failed,
                    };
                    set_phase(standing, phase);
                }
                Some(Command::Step | Command::GoOn) => break Ok(()),
                None => {}
            }
        };
        set_phase(standing, Phase::InStep);
        done
    }

    /// Writes the state into this process's part of the memory for it. Returns the bytes.
    fn write_state(&self, arrays: Visit<'_>) -> io::Result<u64> {
        let state = self.state_memory()?;
        let steps = self.steps.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let head = steps.encode();
        let bytes = steps.bytes();
        let bytes = bytes.and_then(|bytes| bytes.checked_add(head.len() as u64));
        let bytes = bytes.filter(|bytes| *bytes <= 1 << REGION);
        let bytes = bytes.ok_or(io::ErrorKind::FileTooLarge)?;
        let mut at = start_of(self.place());
        let mut lengths = steps.lengths.iter();
        let mut result = state.write_all_at(&head, at);
        at += head.len() as u64;
        arrays(&mut |array| {
            if result.is_ok() {
                result = match lengths.next() {
                    Some(length) if *length == array.len() as u64 => state.write_all_at(array, at),
                    _ => Err(io::ErrorKind::InvalidData.into()),
                };
                at += array.len() as u64;
            }
        });
        result.map(|()| bytes)
    }

    /// The head of the state with which this process begins, and where its arrays begin.
    fn saved_arrays(&self) -> Result<Option<(Arrays, u64)>, ChannelError> {
        if !self.segment().shape().is_restored {
            return Ok(None);
        }
        let state = self.state_memory()?;
        let mut reader = Reader {
            state,
            at: start_of(self.place()),
        };
        let mut start = [0; ARRAYS_HEADER];
        reader.read(&mut start)?;
        let mut head = vec![0; Arrays::head_bytes(&start)?];
        head[..ARRAYS_HEADER].copy_from_slice(&start);
        reader.read(&mut head[ARRAYS_HEADER..])?;
        let arrays = Arrays::decode(&head)?;
        let bytes = arrays.bytes();
        let bytes = bytes.and_then(|bytes| bytes.checked_add(head.len() as u64));
        // Behind the state of one process follow zeros, or the state of another.
        if bytes != Some(self.standing().bytes.load(Ordering::Acquire)) {
            return Err(SavedError("its arrays are cut off").into());
        }
        Ok(Some((arrays, reader.at)))
    }

    /// Whether this process has neither sent nor received anything.
    fn is_untouched(&self) -> bool {
        let (segment, layout) = (self.segment(), &self.segment().layout);
        let shape = segment.shape();
        let remotes = (0..layout.remotes).map(|remote| (None, remote));
        let locals = (0..shape.locals.len()).map(|place| (Some(place), self.rank()));
        let targets: Vec<_> = locals.chain(remotes).collect();
        (0..layout.all_channels()).all(|channel| {
            let nothing_sent = || {
                targets.iter().all(|(place, index)| {
                    let ring = match place {
                        Some(place) => layout.inbound(channel, *place, *index),
                        None => layout.outbound(channel, self.place(), *index),
                    };
                    indices(segment.control(ring)).1 == 0
                })
            };
            let received = segment.element(channel, self.place()).inbound.taken();
            received == 0 && (shape.is_restored || nothing_sent())
        })
    }

    fn standing(&self) -> &Standing {
        &self.segment().element(0, self.place()).standing
    }
}

fn set_phase(standing: &Standing, phase: Phase) {
    standing.phase.store(phase as u32, Ordering::Release);
}

/// Reads the arrays with which a process begins, one after the other.
#[doc(hidden)]
pub struct Reader {
    state: Arc<File>,
    at: u64,
}

impl Reader {
    /// Fills the next array.
    pub fn read(&mut self, target: &mut [u8]) -> Result<(), ChannelError> {
        const CUT: SavedError = SavedError("its arrays are cut off");
        let read = self.state.read_exact_at(target, self.at);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ChannelError::from(CUT),
            _ => ChannelError::from(error),
        })?;
        self.at += target.len() as u64;
        Ok(())
    }
}
