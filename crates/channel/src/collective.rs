//! Collective operations, which every process of a gang job calls in the same order. They are made
//! of messages between pairs of processes, on a twin channel of their own, so they do not disturb
//! other messages. The order of the operations depends only on the size of the gang job, so a sum
//! is the same in each run.

use crate::channel::Channel;
use crate::error::ChannelError;

/// How the numbers of several processes are combined into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// The smallest.
    Minimum,
    /// The largest.
    Maximum,
}

/// A number that can be reduced: `f64` or `i64`.
pub trait Number: Copy + sealed::Sealed {
    /// Tells messages with numbers of different types apart.
    #[doc(hidden)]
    const KIND: u8;
    #[doc(hidden)]
    fn bytes(self) -> [u8; 8];
    #[doc(hidden)]
    fn from_bytes(bytes: [u8; 8]) -> Self;
    #[doc(hidden)]
    fn combine(self, other: Self, how: Reduction) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f64 {}
    impl Sealed for i64 {}
}

impl Number for f64 {
    const KIND: u8 = b'f';

    fn bytes(self) -> [u8; 8] {
        self.to_ne_bytes()
    }

    fn from_bytes(bytes: [u8; 8]) -> f64 {
        f64::from_ne_bytes(bytes)
    }

    fn combine(self, other: f64, how: Reduction) -> f64 {
        match how {
            Reduction::Sum => self + other,
            // Else the other number would hide that one of them is none.
            _ if self.is_nan() || other.is_nan() => f64::NAN,
            Reduction::Minimum => self.min(other),
            Reduction::Maximum => self.max(other),
        }
    }
}

impl Number for i64 {
    const KIND: u8 = b'i';

    fn bytes(self) -> [u8; 8] {
        self.to_ne_bytes()
    }

    fn from_bytes(bytes: [u8; 8]) -> i64 {
        i64::from_ne_bytes(bytes)
    }

    fn combine(self, other: i64, how: Reduction) -> i64 {
        match how {
            Reduction::Sum => self.wrapping_add(other),
            Reduction::Minimum => self.min(other),
            Reduction::Maximum => self.max(other),
        }
    }
}

/// What a process passes on in a reduction: its numbers, and their kind.
fn packed<T: Number>(numbers: &[T]) -> Vec<u8> {
    let bytes = numbers.iter().flat_map(|number| number.bytes());
    bytes.chain([T::KIND]).collect()
}

impl Channel {
    pub(crate) fn collective(&mut self) -> &mut Channel {
        match &mut self.twin {
            Some(twin) => twin,
            // A twin has no twin of its own; it is never used here.
            None => unreachable!("collectives run on opened channels only"),
        }
    }

    /// Runs a collective operation on the twin. If the others pass something else, messages of this
    /// operation may be left over, which a later one would take for its own. So it is the last one.
    /// In a gang job with partitions it fails before the first message: some ranks would wait for
    /// messages that others cannot send.
    fn together(
        &mut self,
        act: impl FnOnce(&mut Channel) -> Result<(), ChannelError>,
    ) -> Result<(), ChannelError> {
        let partitions = &self.segment().shape().partitions;
        let own = partitions[self.rank()];
        if let Some(other) = partitions.iter().position(|partition| *partition != own) {
            return Err(ChannelError::Partition(other));
        }
        let channel = self.collective();
        let done = act(channel);
        let unequal = |error: &ChannelError| {
            matches!(
                error,
                ChannelError::Unequal(_) | ChannelError::TooLong { .. }
            )
        };
        channel.is_cut |= done.as_ref().is_err_and(unequal);
        done
    }

    /// Returns when every process has called it. A dissemination barrier with log2 of the size
    /// rounds (for a power of two, the partners of a binary shuffle).
    pub fn barrier(&mut self) -> Result<(), ChannelError> {
        let (rank, size) = (self.rank(), self.size());
        self.together(|channel| {
            let mut distance = 1;
            while distance < size {
                channel.send((rank + distance) % size, &[])?;
                channel.receive(Some((rank + size - distance) % size), &mut [])?;
                distance *= 2;
            }
            Ok(())
        })
    }

    /// Copies the bytes of `root` to every process, along a binomial tree. All buffers must have
    /// the same length.
    pub fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> Result<(), ChannelError> {
        let (rank, size) = (self.rank(), self.size());
        if root >= size {
            return Err(ChannelError::Rank { rank: root, size });
        }
        let place = (rank + size - root) % size;
        self.together(|channel| {
            let mut bit = 1;
            while bit < size && place & bit == 0 {
                bit *= 2;
            }
            if place != 0 {
                let source = (root + place - bit) % size;
                if channel.receive(Some(source), bytes)?.bytes != bytes.len() {
                    return Err(ChannelError::Unequal(source));
                }
            }
            bit /= 2;
            while bit > 0 {
                if place + bit < size {
                    channel.send((root + place + bit) % size, bytes)?;
                }
                bit /= 2;
            }
            Ok(())
        })
    }

    /// Reduces the numbers of all processes, position by position, into those of `root`, along a
    /// binomial tree. The numbers of the other processes are undefined afterwards. The order of the
    /// operations depends only on the size of the gang job. A sum of integers wraps around at 64
    /// bits, as that of MPI does.
    ///
    /// # Errors
    /// Another process passes more or fewer numbers, or numbers of another type.
    pub fn reduce<T: Number>(
        &mut self,
        root: usize,
        how: Reduction,
        numbers: &mut [T],
    ) -> Result<(), ChannelError> {
        let (rank, size) = (self.rank(), self.size());
        if root >= size {
            return Err(ChannelError::Rank { rank: root, size });
        }
        let place = (rank + size - root) % size;
        self.together(|channel| {
            let mut bytes = Vec::new();
            let mut bit = 1;
            while bit < size {
                if place & bit != 0 {
                    return channel.send((root + place - bit) % size, &packed(numbers));
                }
                if place + bit < size {
                    let source = (root + place + bit) % size;
                    bytes.resize(size_of_val(numbers) + 1, 0);
                    let message = channel.receive(Some(source), &mut bytes)?;
                    if message.bytes != bytes.len() || bytes.last() != Some(&T::KIND) {
                        return Err(ChannelError::Unequal(source));
                    }
                    for (number, other) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
                        let mut word = [0; 8];
                        word.copy_from_slice(other);
                        *number = number.combine(T::from_bytes(word), how);
                    }
                }
                bit *= 2;
            }
            Ok(())
        })
    }

    /// Reduces the numbers of all processes, and gives every process the result.
    pub fn all_reduce<T: Number>(
        &mut self,
        how: Reduction,
        numbers: &mut [T],
    ) -> Result<(), ChannelError> {
        self.reduce(0, how, numbers)?;
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.bytes()).collect();
        self.broadcast(0, &mut bytes)?;
        for (number, place) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut word = [0; 8];
            word.copy_from_slice(place);
            *number = T::from_bytes(word);
        }
        Ok(())
    }
}
