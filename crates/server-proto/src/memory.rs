//! The ledger of memory: call buffers, segments that clients map, and stored arrays.
//!
//! The ledger decides who gets memory and keeps the sum within the limit. The shell has the memory
//! itself, by key. A buffer never passes from one user to another. Each user's buffers leave a part
//! of the memory to others.

use crate::action::{Action, Actions};
use crate::flaw::{Flaw, has};
use crate::keys::{MemoryKey, Table};
use crate::map::Map;
use farcall_rpc_proto::{Failure, User};

/// Why there is no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoMemory {
    /// The request alone exceeds the limit.
    TooLarge,
    /// Others hold the memory now, or the user holds its share.
    Wait,
}

/// The answer to a request for memory.
pub(crate) enum MemoryGrant<M> {
    /// Granted.
    Here(M),
    /// Others hold the memory now. The request must wait.
    Later,
    /// Refused.
    Never(Failure),
}

impl<M> MemoryGrant<M> {
    /// The same answer with something else in place of what was granted.
    pub(crate) fn map<N>(self, change: impl FnOnce(M) -> N) -> MemoryGrant<N> {
        match self {
            MemoryGrant::Here(granted) => MemoryGrant::Here(change(granted)),
            MemoryGrant::Later => MemoryGrant::Later,
            MemoryGrant::Never(failure) => MemoryGrant::Never(failure),
        }
    }
}

/// A piece of memory.
#[derive(Debug)]
struct Piece {
    bytes: u64,
    /// The user whose arrays it has held. It never holds another user's, because workers keep it
    /// mapped.
    user: Option<User>,
    /// Whether it is a call buffer in use.
    is_buffer: bool,
}

/// All memory: pieces in use, and idle ones. Memory is reused because fresh pages are
/// slow: filling a fresh 64 MiB takes twenty times as long as filling a warm one.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Limit on the bytes of all pieces, in use and idle.
    limit: u64,
    total: u64,
    /// Bytes of `total` that clients hold as segments.
    shared: u64,
    pieces: Table<MemoryKey, Piece>,
    /// Idle buffers, and memory of arrays that were dropped, the oldest first.
    idle: Vec<MemoryKey>,
    /// Bytes of the buffers in use of each user.
    held: Map<User, u64>,
}

/// Buffer sizes grow in steps of an eighth of the size, at least this.
const GRAIN: u64 = 64 << 10;
/// Sizes of segments and arrays are multiples of this.
const PAGE: u64 = 4096;
/// The memory of a dropped array is kept up to this part of all memory.
const MOST_RETIRED: u64 = 8;
/// The buffers of one user may have this many times the memory that they leave free. So one user
/// alone has three quarters of the memory, and two users have three sevenths each.
const SHARE: u64 = 3;

impl Memory {
    /// Calls up to this size may use a part of the memory that larger ones must leave free.
    pub(crate) const SMALL: u64 = 256 << 10;

    pub(crate) fn new(limit: u64) -> Memory {
        Memory {
            limit,
            total: 0,
            shared: 0,
            pieces: Table::default(),
            idle: Vec::new(),
            held: Map::default(),
        }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes of all buffers and segments, including idle ones.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        self.total
    }

    /// Bytes of the buffers that a user has in use.
    pub(crate) fn held_by(&self, user: &User) -> u64 {
        self.held.get(user).copied().unwrap_or(0)
    }

    /// Bytes that clients hold as segments.
    pub(crate) fn shared(&self) -> u64 {
        self.shared
    }

    /// The limit for a call of this many bytes. A call that is nearly as large as all memory may
    /// use all of it.
    fn limit_of(&self, bytes: u64) -> u64 {
        match bytes <= Memory::SMALL {
            true => self.limit,
            false => self.wanted(bytes).max(self.limit - self.limit / 16),
        }
    }

    /// The size of the buffer for this many bytes.
    pub(crate) fn wanted(&self, bytes: u64) -> u64 {
        rounded(bytes).min(self.limit)
    }

    /// Bytes that must become free for a request of this many bytes.
    pub(crate) fn lacks(&self, bytes: u64) -> u64 {
        let needed = self.in_use().saturating_add(self.wanted(bytes));
        needed.saturating_sub(self.limit_of(bytes))
    }

    /// Bytes that must become free for a stored array of this many bytes.
    pub(crate) fn lacks_for_array(&self, bytes: u64) -> u64 {
        let needed = self.in_use().saturating_add(of_array(bytes));
        needed.saturating_sub(self.limit)
    }

    /// Whether a request of this many bytes fits if clients keep their segments, and so many bytes
    /// of arrays stay.
    pub(crate) fn fits_beside(&self, bytes: u64, arrays: u64) -> bool {
        let staying = self.shared.saturating_add(arrays);
        self.wanted(bytes).saturating_add(staying) <= self.limit_of(bytes)
    }

    /// Bytes of all pieces but the idle ones.
    pub(crate) fn in_use(&self) -> u64 {
        let idle = self.idle.iter().map(|key| self.pieces[*key].bytes);
        self.total - idle.sum::<u64>()
    }

    /// Whether another buffer of this size would leave too little memory to others. A user's first
    /// buffer may have any size.
    fn exceeds_share(&self, bytes: u64, user: &User) -> bool {
        self.exceeds_beside(bytes, user, self.in_use())
    }

    /// Whether a user must give memory back before it may have a buffer for so many bytes, also if
    /// all others do.
    pub(crate) fn awaits_own(&self, bytes: u64, user: &User) -> bool {
        let stays = self.shared.saturating_add(self.held_by(user));
        bytes > Memory::SMALL && self.exceeds_beside(self.wanted(bytes), user, stays)
    }

    /// Whether another buffer of this size leaves too little memory if so much is in use.
    fn exceeds_beside(&self, bytes: u64, user: &User, in_use: u64) -> bool {
        let held = self.held_by(user);
        let free = (self.limit).saturating_sub(in_use.saturating_add(bytes));
        held > 0 && held.saturating_add(bytes) > SHARE.saturating_mul(free)
    }

    /// Whether a piece exists. The system may have refused it.
    pub(crate) fn has(&self, memory: MemoryKey) -> bool {
        self.pieces.contains(memory)
    }

    /// Size of a piece in bytes.
    pub(crate) fn bytes(&self, key: MemoryKey) -> u64 {
        self.pieces.get(key).map_or(0, |piece| piece.bytes)
    }

    /// A buffer of at least `bytes` bytes. A warm buffer of the same user is reused if it fits
    /// without much waste.
    pub(crate) fn take(
        &mut self,
        bytes: u64,
        user: &User,
        out: &mut Actions,
    ) -> Result<MemoryKey, NoMemory> {
        if bytes > self.limit {
            return Err(NoMemory::TooLarge);
        }
        let wanted = self.wanted(bytes);
        if bytes > Memory::SMALL && self.exceeds_share(wanted, user) {
            return Err(NoMemory::Wait);
        }
        let fits = |key: MemoryKey| {
            let piece = &self.pieces[key];
            let is_own = piece.user.as_ref() == Some(user) || has(Flaw::SharesBuffers);
            (wanted..=2 * wanted).contains(&piece.bytes) && is_own
        };
        let best = (0..self.idle.len())
            .filter(|&index| fits(self.idle[index]))
            .min_by_key(|&index| self.pieces[self.idle[index]].bytes);
        if let Some(index) = best {
            let key = self.idle.remove(index);
            self.count(key);
            return Ok(key);
        }
        self.make_room_within(wanted, self.limit_of(bytes), out)?;
        let key = self.create(wanted, Some(user.clone()), out);
        self.count(key);
        Ok(key)
    }

    /// Counts a buffer that its user now has in use.
    fn count(&mut self, key: MemoryKey) {
        let piece = &mut self.pieces[key];
        piece.is_buffer = true;
        if let Some(user) = &piece.user {
            *self.held.entry(user.clone()).or_default() += piece.bytes;
        }
    }

    /// Counts a buffer no longer.
    fn uncount(&mut self, key: MemoryKey) {
        let piece = &mut self.pieces[key];
        if !std::mem::take(&mut piece.is_buffer) {
            return;
        }
        let Some(user) = &piece.user else { return };
        if let Some(held) = self.held.get_mut(user) {
            *held -= piece.bytes;
            if *held == 0 {
                self.held.remove(user);
            }
        }
    }

    /// A zeroed segment of at least `bytes` bytes, with its length. Clients hold segments as long
    /// as they like, so half of the memory is reserved for call buffers.
    pub(crate) fn share(
        &mut self,
        bytes: u64,
        out: &mut Actions,
    ) -> Result<(MemoryKey, u64), NoMemory> {
        let bytes = pages(bytes).filter(|bytes| *bytes <= self.limit / 2);
        let bytes = bytes.ok_or(NoMemory::TooLarge)?;
        if self.shared + bytes > self.limit / 2 {
            return Err(NoMemory::Wait);
        }
        self.make_room_within(bytes, self.limit, out)?;
        self.total += bytes;
        self.shared += bytes;
        let piece = Piece {
            bytes,
            user: None,
            is_buffer: false,
        };
        Ok((self.pieces.insert(piece), bytes))
    }

    /// Zeroed memory for a stored array.
    pub(crate) fn hold(
        &mut self,
        bytes: u64,
        user: &User,
        out: &mut Actions,
    ) -> Result<MemoryKey, NoMemory> {
        // One that is nearly as large as the limit has no whole page left.
        let bytes = pages(bytes).filter(|bytes| *bytes <= self.limit);
        let bytes = bytes.ok_or(NoMemory::TooLarge)?;
        self.make_room_within(bytes, self.limit, out)?;
        Ok(self.create(bytes, Some(user.clone()), out))
    }

    /// Memory for a stored array whose bytes all arrive before anybody reads it. Warm memory of the
    /// same user and size is reused.
    pub(crate) fn hold_for_arrival(
        &mut self,
        bytes: u64,
        user: &User,
        out: &mut Actions,
    ) -> Result<MemoryKey, NoMemory> {
        let wanted = bytes.max(1).next_multiple_of(PAGE);
        let fits = |key: &MemoryKey| {
            let piece = &self.pieces[*key];
            piece.bytes == wanted && piece.user.as_ref() == Some(user)
        };
        match self.idle.iter().position(fits) {
            Some(index) => Ok(self.idle.remove(index)),
            None => self.hold(bytes, user, out),
        }
    }

    /// Takes back the memory of an array that only its user's calls have used. It will serve the
    /// next array of its size, unless it is a large part of all memory.
    pub(crate) fn retire(&mut self, memory: MemoryKey, out: &mut Actions) {
        let piece = self.pieces.get(memory);
        match piece.is_some_and(|piece| piece.bytes <= self.limit / MOST_RETIRED) {
            true => self.idle.push(memory),
            false => self.free(memory, out),
        }
    }

    /// Frees idle buffers until `bytes` more fit within a limit.
    fn make_room_within(
        &mut self,
        bytes: u64,
        limit: u64,
        out: &mut Actions,
    ) -> Result<(), NoMemory> {
        let mut given_up = 0;
        while self.total + bytes > limit && given_up < self.idle.len() {
            let key = self.idle[given_up];
            given_up += 1;
            self.free(key, out);
        }
        self.idle.drain(..given_up);
        match self.total + bytes > limit {
            true => Err(NoMemory::Wait),
            false => Ok(()),
        }
    }

    fn create(&mut self, bytes: u64, user: Option<User>, out: &mut Actions) -> MemoryKey {
        self.total += bytes;
        let memory = self.pieces.insert(Piece {
            bytes,
            user,
            is_buffer: false,
        });
        out.push(Action::MakeMemory { memory, bytes });
        memory
    }

    /// Takes a buffer back. It will serve the next call of about its size.
    pub(crate) fn give_back(&mut self, memory: MemoryKey) {
        if self.pieces.contains(memory) {
            self.uncount(memory);
            self.idle.push(memory);
        }
    }

    /// Removes a piece that the system has refused.
    pub(crate) fn lost(&mut self, memory: MemoryKey, out: &mut Actions) {
        self.idle.retain(|idle| *idle != memory);
        self.free(memory, out);
    }

    /// Frees a piece that nobody else uses: an array's, or a segment whose client may still have it
    /// mapped.
    pub(crate) fn free(&mut self, memory: MemoryKey, out: &mut Actions) {
        if self.pieces.contains(memory) {
            self.uncount(memory);
        }
        let Some(piece) = self.pieces.remove(memory) else {
            return;
        };
        self.total -= piece.bytes;
        if piece.user.is_none() {
            self.shared -= piece.bytes;
        }
        out.push(Action::FreeMemory(memory));
    }
}

/// The memory of a stored array of this many bytes.
pub(crate) fn of_array(bytes: u64) -> u64 {
    pages(bytes).unwrap_or(u64::MAX)
}

/// The length of whole pages with at least so many bytes.
fn pages(bytes: u64) -> Option<u64> {
    bytes.max(1).checked_next_multiple_of(PAGE)
}

/// Rounds up, to one grain above a multiple of a power of two: the slack between arrays of such
/// sizes must not cost another step.
fn rounded(bytes: u64) -> u64 {
    let above = bytes.saturating_sub(GRAIN);
    let step = (above / 8).next_power_of_two().max(GRAIN);
    above.next_multiple_of(step) + GRAIN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn freed(out: &mut Actions) -> Vec<MemoryKey> {
        let freed = |action| match action {
            Action::FreeMemory(memory) => Some(memory),
            _ => None,
        };
        std::iter::from_fn(|| out.pop()).filter_map(freed).collect()
    }

    #[test]
    fn a_buffer_is_reused() {
        let (mut memory, mut out) = (Memory::new(1 << 24), Actions::default());
        let user = User::anonymous();
        let buffer = memory.take(100_000, &user, &mut out).unwrap();
        memory.give_back(buffer);
        assert_eq!(memory.take(90_000, &user, &mut out), Ok(buffer));
    }

    /// It would wait for others for ever.
    #[test]
    fn what_has_no_room_in_whole_pages_is_too_large() {
        let (mut memory, mut out) = (Memory::new(5000), Actions::default());
        let user = User::anonymous();
        let held = memory.hold(4500, &user, &mut out);
        assert_eq!(held, Err(NoMemory::TooLarge));
        assert_eq!(memory.share(100, &mut out), Err(NoMemory::TooLarge));
        assert!(memory.hold(4096, &user, &mut out).is_ok());
    }

    #[test]
    fn a_buffer_never_changes_its_user() {
        let (mut memory, mut out) = (Memory::new(1 << 20), Actions::default());
        let [alice, bob] = ["alice", "bob"].map(User::named);
        let buffer = memory.take(1 << 19, &alice, &mut out).unwrap();
        memory.give_back(buffer);
        assert_ne!(memory.take(1 << 19, &bob, &mut out), Ok(buffer));
        assert_eq!(memory.take(1 << 20, &bob, &mut out), Err(NoMemory::Wait));
        assert_eq!(freed(&mut out), [buffer]);
    }

    #[test]
    fn memory_of_a_dropped_array_serves_the_next_one_of_its_user() {
        let (mut memory, mut out) = (Memory::new(16 << 20), Actions::default());
        let [alice, bob] = ["alice", "bob"].map(User::named);
        let array = memory.hold_for_arrival(100_000, &alice, &mut out).unwrap();
        memory.retire(array, &mut out);
        // Memory that must be zeroed is new.
        let zeroed = memory.hold(100_000, &alice, &mut out).unwrap();
        let of_bob = memory.hold_for_arrival(100_000, &bob, &mut out).unwrap();
        let longer = memory.hold_for_arrival(200_000, &alice, &mut out).unwrap();
        assert!(![zeroed, of_bob, longer].contains(&array));
        assert_eq!(
            memory.hold_for_arrival(100_001, &alice, &mut out),
            Ok(array)
        );
        assert_eq!(freed(&mut out), []);
        let large = memory.hold_for_arrival(4 << 20, &alice, &mut out).unwrap();
        memory.retire(large, &mut out);
        assert_eq!(freed(&mut out), [large], "it would keep much of all memory");
    }

    #[test]
    fn the_limit_holds_and_idle_memory_makes_room() {
        let (mut memory, mut out) = (Memory::new(1 << 20), Actions::default());
        let user = User::anonymous();
        let too_large = memory.take((1 << 20) + 1, &user, &mut out);
        assert_eq!(too_large, Err(NoMemory::TooLarge));
        let small = memory.take(1 << 19, &user, &mut out).unwrap();
        let large = memory.take(1 << 20, &user, &mut out);
        assert_eq!(large, Err(NoMemory::Wait));
        memory.give_back(small);
        let large = memory.take((1 << 20) - 1, &user, &mut out).unwrap();
        assert_eq!((memory.bytes(large), memory.used()), (1 << 20, 1 << 20));
        assert_eq!(freed(&mut out), [small]);
    }

    #[test]
    fn one_user_leaves_a_part_of_the_memory_to_others() {
        let (mut memory, mut out) = (Memory::new(16 << 20), Actions::default());
        let [alice, bob] = ["alice", "bob"].map(User::named);
        let mut take = |user| memory.take(1 << 20, user, &mut out);
        let of_alice: Vec<_> = std::iter::from_fn(|| take(&alice).ok()).collect();
        // A buffer has 64 KiB more.
        assert_eq!(of_alice.len(), 11);
        let of_bob: Vec<_> = std::iter::from_fn(|| take(&bob).ok()).collect();
        assert_eq!(of_bob.len(), 3);
        assert_eq!(memory.take(300, &alice, &mut out).map(|_| ()), Ok(()));
        for buffer in of_alice.into_iter().chain(of_bob) {
            memory.give_back(buffer);
        }
        assert_eq!(memory.held_by(&bob), 0);
        assert!(
            memory.take(16 << 20, &bob, &mut out).is_err(),
            "alice has 300"
        );
        assert!(
            memory.take(13 << 20, &bob, &mut out).is_ok(),
            "the first one"
        );
    }

    #[test]
    fn segments_leave_room_for_buffers() {
        let (mut memory, mut out) = (Memory::new(1 << 20), Actions::default());
        let user = User::anonymous();
        let too_large = memory.share((1 << 19) + 1, &mut out);
        assert_eq!(too_large, Err(NoMemory::TooLarge));
        let (segment, _) = memory.share(300_000, &mut out).unwrap();
        assert_eq!(memory.share(300_000, &mut out), Err(NoMemory::Wait));
        memory.take(1 << 19, &user, &mut out).unwrap();
        memory.free(segment, &mut out);
        assert_eq!(freed(&mut out), [segment]);
        memory.share(300_000, &mut out).unwrap();
    }

    #[test]
    fn sizes_are_rounded_by_an_eighth_at_most() {
        for bytes in [1, 4096, 65_537, 1 << 20, (64 << 20) + 1] {
            let rounded = rounded(bytes);
            assert!(rounded >= bytes && rounded <= bytes + bytes / 4 + GRAIN);
        }
    }
}
