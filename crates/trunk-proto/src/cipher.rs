//! Encrypts and authenticates data frames with AES-256-GCM (NIST SP 800-38D). A key serves one
//! direction of one peering, and the number of a frame on its link is its nonce. A key never seals
//! two frames with one nonce, and opens each frame at most once.

use crate::{MAX_LINKS, SHIM_BYTES, extend};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// Bytes that sealing adds to a frame.
pub(crate) const SEAL_BYTES: usize = 16;
/// Numbers on a link that may still arrive after a later one.
const WINDOW: u64 = 2048;
/// The most numbers of a link under one key: the wire has 32 bits of them, and no nonce may come
/// again. A new key comes long before.
const NUMBERS: u64 = u32::MAX as u64;

/// The key of one direction, at the sender.
pub(crate) struct Sealing {
    cipher: Option<LessSafeKey>,
    /// The first number on each link, and the one after the last.
    used: [Option<(u64, u64)>; MAX_LINKS],
}

/// The key of one direction, at the receiver.
pub(crate) struct Opening {
    cipher: Option<LessSafeKey>,
    windows: [Option<Box<Window>>; MAX_LINKS],
}

/// Why a frame is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No node with the key has sent it, or somebody changed it.
    Forged,
    /// It has been opened before, or is too old to tell.
    Replayed,
}

/// None only if the key had a wrong length.
fn cipher(key: &[u8; 32]) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, key)
        .ok()
        .map(LessSafeKey::new)
}

fn nonce(link: usize, number: u32) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[3] = link as u8;
    nonce[8..].copy_from_slice(&number.to_be_bytes());
    nonce
}

impl Sealing {
    pub(crate) fn new(key: &[u8; 32]) -> Sealing {
        Sealing {
            cipher: cipher(key),
            used: [None; MAX_LINKS],
        }
    }

    /// Encrypts a frame with this number on a link of the sender, and adds the tag. The tag covers
    /// the header too. Returns none if the number was used before or no nonce is left.
    pub(crate) fn seal(
        &mut self,
        link: usize,
        number: u64,
        header: &[u8; SHIM_BYTES],
        body: &[u8],
    ) -> Option<Vec<u8>> {
        let used = self.used.get_mut(link)?;
        let (first, next) = used.unwrap_or((number, number));
        if number < next || number - first >= NUMBERS {
            return None;
        }
        *used = Some((first, number + 1));
        let mut sealed = Vec::with_capacity(body.len() + SEAL_BYTES);
        sealed.extend_from_slice(body);
        let nonce = Nonce::assume_unique_for_key(nonce(link, number as u32));
        let cipher = self.cipher.as_ref()?;
        let tag = cipher.seal_in_place_separate_tag(nonce, Aad::from(header), &mut sealed);
        sealed.extend_from_slice(tag.ok()?.as_ref());
        Some(sealed)
    }
}

impl Opening {
    pub(crate) fn new(key: &[u8; 32]) -> Opening {
        Opening {
            cipher: cipher(key),
            windows: Default::default(),
        }
    }

    /// Decrypts a frame that has this number on a link of the sender.
    pub(crate) fn open(
        &mut self,
        link: usize,
        number: u32,
        header: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, Refusal> {
        let window = self.windows.get_mut(link).ok_or(Refusal::Forged)?;
        if window.as_ref().is_some_and(|window| !window.is_new(number)) {
            return Err(Refusal::Replayed);
        }
        let cipher = self.cipher.as_ref().ok_or(Refusal::Forged)?;
        let nonce = Nonce::assume_unique_for_key(nonce(link, number));
        let mut body = sealed.to_vec();
        let opened = cipher.open_in_place(nonce, Aad::from(header), &mut body);
        let length = opened.map_err(|_| Refusal::Forged)?.len();
        body.truncate(length);
        window
            .get_or_insert_with(|| Box::new(Window::new(number)))
            .mark(number);
        Ok(body)
    }
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealing")
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opening")
    }
}

/// The numbers of a link that have been opened (RFC 6479).
struct Window {
    /// The number after the largest.
    next: u64,
    /// A bit for each of the last numbers.
    bits: [u64; (WINDOW / 64) as usize],
}

impl Window {
    fn new(first: u32) -> Window {
        Window {
            // So far above zero that earlier numbers can follow.
            next: (1 << 32) + u64::from(first),
            bits: [0; (WINDOW / 64) as usize],
        }
    }

    fn is_new(&self, number: u32) -> bool {
        let number = extend(number, self.next);
        number >= self.next
            || self.next - number <= WINDOW && self.bits[word(number)] & bit(number) == 0
    }

    fn mark(&mut self, number: u32) {
        let number = extend(number, self.next);
        if number >= self.next {
            let skipped = self.next.max(number.saturating_sub(WINDOW - 1))..=number;
            skipped.for_each(|number| self.bits[word(number)] &= !bit(number));
            self.next = number + 1;
        }
        self.bits[word(number)] |= bit(number);
    }
}

fn word(number: u64) -> usize {
    (number % WINDOW / 64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &[u8; SHIM_BYTES] = b"header bytes";

    fn pair() -> (Sealing, Opening) {
        (Sealing::new(&[7; 32]), Opening::new(&[7; 32]))
    }

    #[test]
    fn a_frame_opens_once_and_only_as_it_was_sealed() {
        let (mut sealing, mut opening) = pair();
        let sealed = sealing.seal(1, 5, HEADER, b"a frame").unwrap();
        assert_eq!(sealed.len(), 7 + SEAL_BYTES);
        assert!(!sealed.windows(5).any(|part| part == b"frame"));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            let refused = opening.open(1, 5, HEADER, &changed);
            assert_eq!(refused, Err(Refusal::Forged), "{at}");
        }
        for end in 0..sealed.len() {
            let refused = opening.open(1, 5, HEADER, &sealed[..end]);
            assert_eq!(refused, Err(Refusal::Forged), "{end}");
        }
        let other = opening.open(1, 5, b"heather byte", &sealed);
        assert_eq!(other, Err(Refusal::Forged));
        for (link, number) in [(0, 5), (1, 6), (MAX_LINKS, 5)] {
            let other = opening.open(link, number, HEADER, &sealed);
            assert_eq!(other, Err(Refusal::Forged));
        }
        let mut stranger = Opening::new(&[8; 32]);
        let other = stranger.open(1, 5, HEADER, &sealed);
        assert_eq!(other, Err(Refusal::Forged));
        let opened = opening.open(1, 5, HEADER, &sealed);
        assert_eq!(opened.as_deref(), Ok(&b"a frame"[..]));
        let again = opening.open(1, 5, HEADER, &sealed);
        assert_eq!(again, Err(Refusal::Replayed));
    }

    #[test]
    fn no_nonce_is_used_twice() {
        let (mut sealing, _) = pair();
        assert!(sealing.seal(0, 5, HEADER, b"").is_some());
        assert!(sealing.seal(0, 5, HEADER, b"").is_none());
        assert!(sealing.seal(0, 4, HEADER, b"").is_none());
        // Links have nonces of their own.
        assert!(sealing.seal(1, 5, HEADER, b"").is_some());
        assert!(sealing.seal(0, 4 + NUMBERS, HEADER, b"").is_some());
        assert!(sealing.seal(0, 5 + NUMBERS, HEADER, b"").is_none());
        let of = |link, number| nonce(link, number);
        assert!(of(0, 1) != of(1, 1) && of(0, 1) != of(0, 2));
    }

    #[test]
    fn the_window_takes_each_number_once_in_any_order() {
        for start in [0, 1 << 20, u32::MAX - 1000] {
            let mut window = Window::new(start);
            let mut taken = 0;
            // Numbers in disorder, most of them three times, also across the wrap of the wire.
            for step in 0..20_000_u32 {
                for back in [0, 700, 1900] {
                    let number = start.wrapping_add(step * 2 % 40_000).wrapping_sub(back);
                    if window.is_new(number) {
                        window.mark(number);
                        taken += 1;
                        assert!(!window.is_new(number));
                    }
                }
            }
            assert_eq!(taken, 20_000 + 950);
            // What is older than the window is refused.
            let top = start.wrapping_add(39_998);
            assert!(!window.is_new(top.wrapping_sub(WINDOW as u32 + 1)));
            assert!(window.is_new(top.wrapping_sub(1)));
        }
    }
}
