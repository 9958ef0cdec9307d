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
    /// The same for numbers with carries.
    #[doc(hidden)]
    const WITH_CARRIES: Option<u8>;
    #[doc(hidden)]
    fn bytes(self) -> [u8; 8];
    #[doc(hidden)]
    fn from_bytes(bytes: [u8; 8]) -> Self;
    /// The result, and what it lacks in multiples of 2^64.
    #[doc(hidden)]
    fn combine(self, other: Self, how: Reduction) -> (Self, i32);
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f64 {}
    impl Sealed for i64 {}
}

impl Number for f64 {
    const KIND: u8 = b'f';
    const WITH_CARRIES: Option<u8> = None;

    fn bytes(self) -> [u8; 8] {
        self.to_ne_bytes()
    }

    fn from_bytes(bytes: [u8; 8]) -> f64 {
        f64::from_ne_bytes(bytes)
    }

    fn combine(self, other: f64, how: Reduction) -> (f64, i32) {
        let result = match how {
            Reduction::Sum => self + other,
            // Else the other number would hide that one of them is none.
            _ if self.is_nan() || other.is_nan() => f64::NAN,
            Reduction::Minimum => self.min(other),
            Reduction::Maximum => self.max(other),
        };
        (result, 0)
    }
}

impl Number for i64 {
    const KIND: u8 = b'i';
    const WITH_CARRIES: Option<u8> = Some(b'c');

    fn bytes(self) -> [u8; 8] {
        self.to_ne_bytes()
    }

    fn from_bytes(bytes: [u8; 8]) -> i64 {
        i64::from_ne_bytes(bytes)
    }

    fn combine(self, other: i64, how: Reduction) -> (i64, i32) {
        match how {
            Reduction::Sum => match self.overflowing_add(other) {
                (sum, false) => (sum, 0),
                (sum, true) => (sum, if self < 0 { -1 } else { 1 }),
            },
            Reduction::Minimum => (self.min(other), 0),
            Reduction::Maximum => (self.max(other), 0),
        }
    }
}

/// What the sums lack in multiples of 2^64; empty if none has passed 64 bits so far. A sum that
/// passes them on the way may come back.
#[derive(Default)]
struct Carries(Vec<i32>);

impl Carries {
    fn add(&mut self, place: usize, count: usize, carry: i32) {
        if carry != 0 {
            self.0.resize(count, 0);
            self.0[place] = self.0[place].saturating_add(carry);
        }
    }

    fn are_left(&self) -> bool {
        self.0.iter().any(|carry| *carry != 0)
    }
}

/// What a process passes on in a reduction: its numbers, their carries, and their kind.
fn packed<T: Number>(numbers: &[T], carries: &Carries) -> Vec<u8> {
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.bytes()).collect();
    match T::WITH_CARRIES.filter(|_| carries.are_left()) {
        Some(kind) => {
            bytes.extend(carries.0.iter().flat_map(|carry| carry.to_ne_bytes()));
            bytes.push(kind);
        }
        None => bytes.push(T::KIND),
    }
    bytes
}

/// Combines with the numbers that another process has passed on. `None` if they are others.
fn combine<T: Number>(
    numbers: &mut [T],
    carries: &mut Carries,
    how: Reduction,
    message: &[u8],
) -> Option<()> {
    let (kind, body) = message.split_last()?;
    let (words, theirs) = body.split_at_checked(size_of_val(numbers))?;
    let (theirs, rest) = theirs.as_chunks::<4>();
    let fits = match theirs.len() {
        0 => *kind == T::KIND || (numbers.is_empty() && Some(*kind) == T::WITH_CARRIES),
        count => count == numbers.len() && Some(*kind) == T::WITH_CARRIES,
    };
    if !fits || !rest.is_empty() {
        return None;
    }
    let (count, (words, _)) = (numbers.len(), words.as_chunks::<8>());
    for (place, (number, word)) in numbers.iter_mut().zip(words).enumerate() {
        let (result, carry) = number.combine(T::from_bytes(*word), how);
        *number = result;
        carries.add(place, count, carry);
    }
    for (place, carry) in theirs.iter().enumerate() {
        carries.add(place, count, i32::from_ne_bytes(*carry));
    }
    Some(())
}

impl Channel {
    pub(crate) fn collective(&mut self) -> &mut Channel {
        match &mut self.twin {
            Some(twin) => twin,
            // A twin has no twin of its own; it is never used here.
            None => unreachable!("collectives run on opened channels only"),
        }
    }

    /// Returns when every process has called it. A dissemination barrier with log2 of the size
    /// rounds (for a power of two, the partners of a binary shuffle).
    pub fn barrier(&mut self) -> Result<(), ChannelError> {
        let (rank, size) = (self.rank(), self.size());
        let channel = self.collective();
        let mut distance = 1;
        while distance < size {
            channel.send((rank + distance) % size, &[])?;
            channel.receive(Some((rank + size - distance) % size), &mut [])?;
            distance *= 2;
        }
        Ok(())
    }

    /// Copies the bytes of `root` to every process, along a binomial tree. All buffers must have
    /// the same length.
    pub fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> Result<(), ChannelError> {
        let (rank, size) = (self.rank(), self.size());
        if root >= size {
            return Err(ChannelError::Rank { rank: root, size });
        }
        let place = (rank + size - root) % size;
        let channel = self.collective();
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
    }

    /// Reduces the numbers of all processes, position by position, into those of `root`, along a
    /// binomial tree. The numbers of the other processes are undefined afterwards. The order of the
    /// operations depends only on the size of the gang job.
    ///
    /// # Errors
    /// Another process passes more or fewer numbers, or numbers of another type. At `root`, a sum
    /// of integers does not fit in 64 bits.
    pub fn reduce<T: Number>(
        &mut self,
        root: usize,
        how: Reduction,
        numbers: &mut [T],
    ) -> Result<(), ChannelError> {
        match self.gather(root, how, numbers)? {
            true => Err(ChannelError::Overflow),
            false => Ok(()),
        }
    }

    /// Reduces the numbers into those of `root`, and says whether a sum there does not fit.
    fn gather<T: Number>(
        &mut self,
        root: usize,
        how: Reduction,
        numbers: &mut [T],
    ) -> Result<bool, ChannelError> {
        let (rank, size) = (self.rank(), self.size());
        if root >= size {
            return Err(ChannelError::Rank { rank: root, size });
        }
        let place = (rank + size - root) % size;
        let channel = self.collective();
        let (mut bytes, mut carries) = (Vec::new(), Carries::default());
        let mut bit = 1;
        while bit < size {
            if place & bit != 0 {
                channel.send((root + place - bit) % size, &packed(numbers, &carries))?;
                return Ok(false);
            }
            if place + bit < size {
                let source = (root + place + bit) % size;
                bytes.resize(
                    size_of_val(numbers) + size_of::<i32>() * numbers.len() + 1,
                    0,
                );
                let message = channel.receive(Some(source), &mut bytes)?;
                combine(numbers, &mut carries, how, &bytes[..message.bytes])
                    .ok_or(ChannelError::Unequal(source))?;
            }
            bit *= 2;
        }
        Ok(carries.are_left())
    }

    /// Reduces the numbers of all processes, and gives every process the result.
    ///
    /// # Errors
    /// As [`Channel::reduce`], and a sum that does not fit is an error of every process.
    pub fn all_reduce<T: Number>(
        &mut self,
        how: Reduction,
        numbers: &mut [T],
    ) -> Result<(), ChannelError> {
        let overflows = self.gather(0, how, numbers)?;
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.bytes()).collect();
        bytes.push(u8::from(overflows));
        self.broadcast(0, &mut bytes)?;
        if bytes.pop() == Some(1) {
            return Err(ChannelError::Overflow);
        }
        let (words, _) = bytes.as_chunks::<8>();
        for (number, word) in numbers.iter_mut().zip(words) {
            *number = T::from_bytes(*word);
        }
        Ok(())
    }
}
