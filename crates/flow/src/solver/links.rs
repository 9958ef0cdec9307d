//! Storage for the solver: the path of each flow, and for each link the list of flows on it. It
//! computes no rates. Freed blocks are used again for later lists.

use super::Slot;
use crate::platform::LinkId;
use std::ops::Range;

/// Longest path for which there is space from the beginning. On a long ring hardly any path is as
/// long as the longest one.
const USUAL: usize = 256;

/// The links of every active flow, in places of `stride` entries. They grow with the longest path.
#[derive(Debug, Clone)]
pub(super) struct Paths {
    stride: usize,
    links: Vec<LinkId>,
    hops: Vec<u32>,
}

impl Paths {
    pub(super) fn new(stride: usize) -> Self {
        Self {
            stride: stride.clamp(1, USUAL),
            links: Vec::new(),
            hops: Vec::new(),
        }
    }

    /// Number of places that have ever been used.
    pub(super) fn slots(&self) -> usize {
        self.hops.len()
    }

    /// Capacity of one place, in links.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    pub(super) fn grow(&mut self, slot: Slot) {
        let slots = slot as usize + 1;
        if slots > self.slots() {
            self.hops.resize(slots, 0);
            self.links.resize(slots * self.stride, 0);
        }
    }

    pub(super) fn set(&mut self, slot: Slot, path: &[LinkId]) {
        if path.len() > self.stride {
            self.widen(path.len());
        }
        let start = slot as usize * self.stride;
        self.links[start..start + path.len()].copy_from_slice(path);
        self.hops[slot as usize] = path.len() as u32;
    }

    /// Enlarges the places: a way around failed links can be long.
    #[cold]
    fn widen(&mut self, longest: usize) {
        let (old, stride) = (std::mem::take(&mut self.links), longest.next_power_of_two());
        self.links.resize(self.slots() * stride, 0);
        for (from, to) in old.chunks(self.stride).zip(self.links.chunks_mut(stride)) {
            to[..from.len()].copy_from_slice(from);
        }
        self.stride = stride;
    }

    pub(super) fn clear(&mut self, slot: Slot) {
        self.hops[slot as usize] = 0;
    }

    #[inline]
    pub(super) fn get(&self, slot: Slot) -> &[LinkId] {
        let start = slot as usize * self.stride;
        &self.links[start..start + self.hops[slot as usize] as usize]
    }

    #[inline]
    pub(super) fn is_active(&self, slot: Slot) -> bool {
        self.hops[slot as usize] > 0
    }

    /// All places in use.
    pub(super) fn active(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..self.slots() as u32).filter(|&slot| self.is_active(slot))
    }
}

/// The links of every active flow again, as runs of links whose numbers follow each other. Routes
/// of tori have few of them, so a loop over runs waits less for memory.
#[derive(Debug, Clone)]
pub(super) struct Runs {
    /// Runs of a place. It grows with the longest path in runs.
    stride: usize,
    /// First link and number of links. Unused entries have no links.
    runs: Vec<[LinkId; 2]>,
}

impl Runs {
    pub(super) fn new() -> Self {
        Self {
            stride: 4,
            runs: Vec::new(),
        }
    }

    pub(super) fn set(&mut self, slot: Slot, path: &[LinkId]) {
        let start = slot as usize * self.stride;
        if self.runs.len() < start + self.stride {
            self.runs.resize(start + self.stride, [0; 2]);
        }
        let place = &mut self.runs[start..start + self.stride];
        place.fill([0; 2]);
        let mut last = 0;
        for &l in path {
            let [first, count] = &mut place[last];
            if *count > 0 && l == *first + *count {
                *count += 1;
            } else if *count > 0 && l + 1 == *first {
                (*first, *count) = (l, *count + 1);
            } else {
                last += usize::from(*count > 0);
                if last == self.stride {
                    self.widen();
                    return self.set(slot, path);
                }
                place[last] = [l, 1];
            }
        }
    }

    /// Doubles the places.
    #[cold]
    fn widen(&mut self) {
        let (old, stride) = (std::mem::take(&mut self.runs), 2 * self.stride);
        self.runs.resize(2 * old.len(), [0; 2]);
        for (from, to) in old.chunks(self.stride).zip(self.runs.chunks_mut(stride)) {
            to[..from.len()].copy_from_slice(from);
        }
        self.stride = stride;
    }

    #[inline]
    pub(super) fn get(&self, slot: Slot) -> impl Iterator<Item = Range<usize>> + '_ {
        let start = slot as usize * self.stride;
        let runs = self.runs[start..start + self.stride].iter();
        let used = runs.take_while(|[_, count]| *count > 0);
        used.map(|&[first, count]| first as usize..(first + count) as usize)
    }

    /// Reads the runs of a flow that will be needed soon, so that the memory is asked for them
    /// while the caller does something else.
    #[inline]
    pub(super) fn fetch(&self, slot: Slot) {
        std::hint::black_box(self.runs[slot as usize * self.stride]);
    }
}

/// One link's list of flows inside a [`ListPool`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct List {
    start: usize,
    len: u32,
    /// Size class: the list has `4 << class` entries. `0xff` before `start` is set.
    class: u8,
}

const EMPTY: u8 = 0xff;

impl List {
    pub(super) const NEW: Self = Self {
        start: 0,
        len: 0,
        class: EMPTY,
    };
}

/// Storage of all lists: blocks of `4 << class` entries with a free list per class.
#[derive(Debug, Clone, Default)]
pub(super) struct ListPool {
    entries: Vec<Slot>,
    free: Vec<Vec<usize>>,
}

impl ListPool {
    #[inline]
    pub(super) fn get(&self, list: List) -> &[Slot] {
        &self.entries[list.start..list.start + list.len as usize]
    }

    /// Reads a list that will be needed soon, as [`Runs::fetch`] does.
    #[inline]
    pub(super) fn fetch(&self, list: List) {
        std::hint::black_box(self.entries[list.start]);
    }

    #[inline]
    pub(super) fn push(&mut self, list: &mut List, slot: Slot) {
        if list.class == EMPTY || list.len == 4 << list.class {
            let class = list.class.wrapping_add(1);
            self.enlarge(list, class);
        }
        self.entries[list.start + list.len as usize] = slot;
        list.len += 1;
    }

    /// Removes one entry. The order of the others can change.
    #[inline]
    pub(super) fn remove(&mut self, list: &mut List, slot: Slot) {
        let (start, len) = (list.start, list.len as usize);
        let entries = &mut self.entries[start..start + len];
        if let Some(at) = entries.iter().position(|&s| s == slot) {
            entries[at] = entries[len - 1];
            list.len -= 1;
        }
    }

    pub(super) fn clear(&mut self, list: &mut List) {
        list.len = 0;
    }

    /// Makes space in a list for `entries`, so that its block does not grow entry by entry.
    pub(super) fn reserve(&mut self, list: &mut List, entries: u32) {
        let class = entries.div_ceil(4).next_power_of_two().ilog2() as u8;
        if entries > 0 && (list.class == EMPTY || list.class < class) {
            self.enlarge(list, class);
        }
    }

    #[cold]
    fn enlarge(&mut self, list: &mut List, class: u8) {
        let old = *list;
        if self.free.len() <= class as usize {
            self.free.resize(class as usize + 1, Vec::new());
        }
        let start = self.free[class as usize].pop().unwrap_or_else(|| {
            let start = self.entries.len();
            self.entries.resize(start + (4usize << class), 0);
            start
        });
        if old.class != EMPTY {
            let from = old.start;
            self.entries
                .copy_within(from..from + old.len as usize, start);
            self.free[old.class as usize].push(old.start);
        }
        *list = List {
            start,
            len: old.len,
            class,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_for_paths_grow_with_the_paths_that_come() {
        let mut paths = Paths::new(1 << 30);
        for slot in 0..1000 {
            paths.grow(slot);
            paths.set(slot, &[slot]);
        }
        assert!(paths.stride() <= USUAL, "{}", paths.stride());
        let long: Vec<LinkId> = (0..1000).collect();
        paths.set(7, &long);
        assert_eq!((paths.get(7), paths.get(8)), (&long[..], &[8][..]));
    }

    #[test]
    fn a_list_has_space_for_what_was_reserved() {
        let mut pool = ListPool::default();
        let (mut a, mut b) = (List::NEW, List::NEW);
        pool.reserve(&mut a, 9);
        pool.push(&mut b, 7);
        (0..9).for_each(|slot| pool.push(&mut a, slot));
        assert_eq!(pool.get(a), (0..9).collect::<Vec<Slot>>());
        assert_eq!(pool.get(b), [7]);
        assert!(pool.free.iter().all(Vec::is_empty), "{:?}", pool.free);
    }
}
