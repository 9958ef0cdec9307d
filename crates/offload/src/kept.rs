//! Which arrays the server still has: the arguments and results of the last calls, by the digest of
//! their contents. It is pure. `remote` stores the arrays; here is what is stored, and what leaves
//! when there is too much.

use sha2::{Digest as _, Sha256};

/// The digest of an array's contents and form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes. `form` tells arrays apart that have the same bytes.
    pub(crate) fn of(form: &str, bytes: &[u8]) -> Digest {
        let mut hash = Sha256::new();
        hash.update(form.as_bytes());
        hash.update([0]);
        hash.update(bytes);
        Digest(hash.finalize().into())
    }
}

/// The arrays at the server, the one that was used last at the end.
#[derive(Debug)]
pub(crate) struct Kept<H> {
    entries: Vec<Entry<H>>,
    /// Bytes of all, at most.
    most: u64,
}

#[derive(Debug)]
struct Entry<H> {
    digest: Digest,
    bytes: u64,
    handle: H,
}

impl<H: Clone> Kept<H> {
    /// Nothing yet, and at most so many bytes.
    pub(crate) fn new(most: u64) -> Kept<H> {
        Kept {
            entries: Vec::new(),
            most,
        }
    }

    /// The array with these contents. It now counts as used last.
    pub(crate) fn find(&mut self, digest: &Digest) -> Option<H> {
        let at = self
            .entries
            .iter()
            .position(|entry| entry.digest == *digest)?;
        let entry = self.entries.remove(at);
        let handle = entry.handle.clone();
        self.entries.push(entry);
        Some(handle)
    }

    /// Adds an array, and returns those that leave for it: the ones unused for longest, another one
    /// with the same contents, or itself if it is too large.
    #[must_use]
    pub(crate) fn add(&mut self, digest: Digest, bytes: u64, handle: H) -> Vec<H> {
        let mut left = Vec::new();
        if let Some(at) = self.entries.iter().position(|entry| entry.digest == digest) {
            left.push(self.entries.remove(at).handle);
        }
        self.entries.push(Entry {
            digest,
            bytes,
            handle,
        });
        while self.entries.iter().map(|entry| entry.bytes).sum::<u64>() > self.most {
            left.push(self.entries.remove(0).handle);
        }
        left
    }

    /// Forgets all, and returns them: they leave, as far as the server still has them.
    #[must_use]
    pub(crate) fn clear(&mut self) -> Vec<H> {
        self.entries.drain(..).map(|entry| entry.handle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(byte: u8) -> Digest {
        Digest::of("double[1]", &[byte; 8])
    }

    #[test]
    fn contents_and_form_both_count() {
        assert_eq!(digest(1), digest(1));
        assert_ne!(digest(1), digest(2));
        assert_ne!(Digest::of("double[2]", &[1; 8]), digest(1));
        // The end of the form is not the start of the contents.
        assert_ne!(Digest::of("ab", b"c"), Digest::of("a", b"bc"));
    }

    #[test]
    fn the_array_unused_for_longest_leaves_first() {
        let mut kept = Kept::new(100);
        assert!(kept.add(digest(1), 40, 'a').is_empty());
        assert!(kept.add(digest(2), 40, 'b').is_empty());
        assert_eq!(kept.find(&digest(1)), Some('a'));
        assert_eq!(kept.add(digest(3), 40, 'c'), ['b']);
        assert_eq!(kept.find(&digest(2)), None);
        assert_eq!(kept.add(digest(4), 101, 'd'), ['a', 'c', 'd']);
        assert_eq!(kept.clear(), []);
    }

    #[test]
    fn all_that_is_forgotten_leaves() {
        let mut kept = Kept::new(100);
        assert!(kept.add(digest(1), 40, 'a').is_empty());
        assert!(kept.add(digest(2), 40, 'b').is_empty());
        assert_eq!(kept.clear(), ['a', 'b']);
        assert_eq!(kept.find(&digest(1)), None);
        assert!(kept.add(digest(3), 100, 'c').is_empty());
    }

    #[test]
    fn the_same_contents_are_kept_once() {
        let mut kept = Kept::new(100);
        assert!(kept.add(digest(1), 60, 'a').is_empty());
        assert_eq!(kept.add(digest(1), 60, 'b'), ['a']);
        assert_eq!(kept.find(&digest(1)), Some('b'));
    }
}
