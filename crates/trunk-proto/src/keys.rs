//! The keys of one peering, and when they change. The node with the smaller address starts each
//! handshake. `trunk` sends its messages, which are authenticated like all control messages.
//!
//! ```text
//! initiator                                        responder
//!   None --request n-->                              None: makes key n, opens with it
//!   <--answer n-- installs key n, seals with it
//!   --heartbeat "key n" or a frame with it-->        seals with key n
//! ```
//!
//! The old key still opens frames for some seconds, so a change of keys loses none.

use crate::cipher::{Opening, Refusal, Sealing};
use crate::handshake::{Ends, Entropy, Initiator, Noise, SessionKeys, respond};
use crate::{MILLISECOND, Nanos, SECOND, SHIM_BYTES};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A key that has carried frames is replaced after this time.
const RENEW: Nanos = 120 * SECOND;
/// It is replaced earlier after this many frames, which are about 2^34.5 blocks of the cipher, as
/// in TLS (RFC 8446, section 5.5).
const RENEW_FRAMES: u64 = 1 << 28;
/// How long an old key still opens frames.
const FORMER: Nanos = 5 * SECOND;
/// The time after which an unanswered request is sent again.
const RETRY: Nanos = 50 * MILLISECOND;
/// After this many requests without an answer a new handshake starts.
const TRIES: u32 = 20;
/// How long heartbeats that left before a change of keys may still arrive.
const SETTLE: Nanos = SECOND;

/// One key in each direction.
#[derive(Debug)]
struct Pair {
    number: u32,
    made: Nanos,
    sealing: Sealing,
    opening: Opening,
    /// Frames in both directions.
    frames: u64,
}

impl Pair {
    fn new(number: u32, made: Nanos, keys: &SessionKeys, initiator: bool) -> Box<Pair> {
        let (own, theirs) = match initiator {
            true => (&keys.from_initiator, &keys.from_responder),
            false => (&keys.from_responder, &keys.from_initiator),
        };
        Box::new(Pair {
            number,
            made,
            sealing: Sealing::new(own),
            opening: Opening::new(theirs),
            frames: 0,
        })
    }
}

/// A handshake that this node has started.
#[derive(Debug)]
struct Attempt {
    number: u32,
    state: Initiator,
    request: Noise,
    next_try: Nanos,
    tries: u32,
}

/// The keys of a peering.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// The key that seals frames.
    current: Option<Box<Pair>>,
    /// The key that the peer has not confirmed yet. It opens frames.
    next: Option<Box<Pair>>,
    /// The key before, and when it ends.
    former: Option<(Box<Pair>, Nanos)>,
    attempt: Option<Box<Attempt>>,
    /// The newest request and the answer to it.
    answered: Option<Box<(Noise, Noise)>>,
    /// Number of the newest handshake.
    number: u32,
}

impl Keys {
    /// Whether frames can be sealed.
    pub(crate) fn is_ready(&self) -> bool {
        self.current.is_some()
    }

    /// Number of the newest key that opens frames, or 0 if there is none.
    pub(crate) fn newest(&self) -> u32 {
        let newest = self.next.as_ref().or(self.current.as_ref());
        newest.map_or(0, |pair| pair.number)
    }

    /// Whether the number of the sealing key is odd, as the header of a frame tells.
    pub(crate) fn is_odd(&self) -> bool {
        self.current
            .as_ref()
            .is_some_and(|pair| pair.number & 1 == 1)
    }

    pub(crate) fn seal(
        &mut self,
        link: usize,
        number: u64,
        header: &[u8; SHIM_BYTES],
        body: &[u8],
    ) -> Option<Vec<u8>> {
        let pair = self.current.as_mut()?;
        pair.frames += 1;
        let sealed = pair.sealing.seal(link, number, header, body);
        if sealed.is_none() {
            // The key is used up. The peer notices that it is gone, and a new handshake follows.
            self.current = None;
        }
        sealed
    }

    /// Opens a frame that the peer sent on this link of its own.
    pub(crate) fn open(
        &mut self,
        now: Nanos,
        odd: bool,
        (link, number): (usize, u32),
        header: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, Refusal> {
        let former = self.former.as_mut().map(|(pair, _)| pair);
        let known = [self.current.as_mut(), self.next.as_mut(), former];
        let mut result = Err(Refusal::Forged);
        let fitting = |pair: &&mut Box<Pair>| (pair.number & 1 == 1) == odd;
        for pair in known.into_iter().flatten().filter(fitting) {
            match pair.opening.open(link, number, header, sealed) {
                Ok(body) => {
                    pair.frames += 1;
                    result = Ok((pair.number, body));
                    break;
                }
                Err(Refusal::Replayed) => result = Err(Refusal::Replayed),
                Err(Refusal::Forged) => {}
            }
        }
        let (used, body) = result?;
        self.confirm(now, used);
        Ok(body)
    }

    /// Seals with the next key if the peer has shown that it has this key. Returns true if so.
    pub(crate) fn confirm(&mut self, now: Nanos, number: u32) -> bool {
        let confirmed = self.next.take_if(|next| next.number == number);
        let Some(next) = confirmed else {
            return false;
        };
        self.install(now, next);
        true
    }

    fn install(&mut self, now: Nanos, pair: Box<Pair>) {
        let former = self.current.replace(pair);
        self.former = former.map(|former| (former, now + FORMER));
    }

    /// Drops the old key when its time is over.
    pub(crate) fn expire(&mut self, now: Nanos) {
        self.former.take_if(|(_, end)| now >= *end);
    }

    /// Returns the request that is due at the initiator, with its number.
    pub(crate) fn request(
        &mut self,
        now: Nanos,
        secret: &[u8; 32],
        ends: impl Fn(u32) -> Ends,
        entropy: &mut Entropy,
    ) -> Option<(u32, Noise)> {
        if self.attempt.is_none() && !self.is_due(now) {
            return None;
        }
        self.attempt
            .take_if(|attempt| attempt.tries >= TRIES && now >= attempt.next_try);
        if self.attempt.is_none() {
            let number = self.number.wrapping_add(1);
            let (state, request) = Initiator::start(secret, &ends(number), entropy)?;
            self.number = number;
            self.attempt = Some(Box::new(Attempt {
                number,
                state,
                request,
                next_try: now,
                tries: 0,
            }));
        }
        let attempt = self.attempt.as_mut()?;
        if now < attempt.next_try {
            return None;
        }
        attempt.next_try = now + RETRY;
        attempt.tries += 1;
        Some((attempt.number, attempt.request))
    }

    fn is_due(&self, now: Nanos) -> bool {
        self.current.as_ref().is_none_or(|pair| {
            pair.frames >= RENEW_FRAMES || pair.frames > 0 && now.saturating_sub(pair.made) >= RENEW
        })
    }

    /// Takes the answer at the initiator. Returns true if there is a new key.
    pub(crate) fn take_answer(&mut self, now: Nanos, number: u32, answer: &Noise) -> bool {
        let attempt = self.attempt.take_if(|attempt| attempt.number == number);
        let Some(attempt) = attempt else {
            return false;
        };
        let Some(keys) = attempt.state.finish(answer) else {
            return false;
        };
        self.install(now, Pair::new(number, now, &keys, true));
        true
    }

    /// Answers a request at the responder. The answer to a repeated request is the same.
    pub(crate) fn answer(
        &mut self,
        now: Nanos,
        secret: &[u8; 32],
        ends: &Ends,
        entropy: &mut Entropy,
        request: &Noise,
    ) -> Option<Noise> {
        if let Some(answered) = &self.answered
            && answered.0 == *request
        {
            return Some(answered.1);
        }
        let (answer, keys) = respond(secret, ends, entropy, request)?;
        self.next = Some(Pair::new(ends.number, now, &keys, false));
        self.answered = Some(Box::new((*request, answer)));
        Some(answer)
    }

    /// Takes the number of the newest key that the peer has. If the initiator's key is not the
    /// peer's, for example because the peer has forgotten this node, it starts a new handshake.
    pub(crate) fn compare(&mut self, now: Nanos, peers: u32, initiator: bool) -> bool {
        if !initiator {
            return self.confirm(now, peers);
        }
        if self.attempt.is_none() {
            self.current
                .take_if(|pair| pair.number != peers && now >= pair.made + SETTLE);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mac;

    const SECRET: [u8; 32] = [3; 32];
    const HEADER: [u8; SHIM_BYTES] = [5; SHIM_BYTES];

    fn ends(number: u32) -> Ends {
        Ends {
            initiator: (Mac([2; 6]), 5),
            responder: (Mac([4; 6]), 6),
            number,
        }
    }

    struct Peering {
        own: Keys,
        peers: Keys,
        entropy: Entropy,
        now: Nanos,
    }

    impl Peering {
        fn new() -> Peering {
            Peering {
                own: Keys::default(),
                peers: Keys::default(),
                entropy: Entropy::new(&[1; 32]),
                now: SECOND,
            }
        }

        /// Sends the request that is due, and the answer to it.
        fn exchange(&mut self) -> bool {
            let entropy = &mut self.entropy;
            let request = self.own.request(self.now, &SECRET, ends, entropy);
            let Some((number, request)) = request else {
                return false;
            };
            let ends = ends(number);
            let answer = self
                .peers
                .answer(self.now, &SECRET, &ends, entropy, &request)
                .unwrap();
            let again = self
                .peers
                .answer(self.now, &SECRET, &ends, entropy, &request);
            assert_eq!(again, Some(answer));
            self.own.take_answer(self.now, number, &answer)
        }
    }

    fn carry(now: Nanos, from: &mut Keys, to: &mut Keys, number: u64) -> Option<Vec<u8>> {
        let odd = from.is_odd();
        let sealed = from.seal(0, number, &HEADER, b"frame")?;
        let opened = to.open(now, odd, (0, number as u32), &HEADER, &sealed);
        Some(opened.unwrap())
    }

    #[test]
    fn frames_pass_in_both_directions_after_a_handshake() {
        let mut peering = Peering::new();
        assert!(!peering.own.is_ready());
        assert!(peering.exchange());
        let Peering {
            own, peers, now, ..
        } = &mut peering;
        // The responder does not send before the initiator has shown that it has the key.
        assert!(carry(*now, peers, own, 0).is_none());
        assert!(carry(*now, own, peers, 0).is_some());
        assert!(carry(*now, peers, own, 0).is_some());
        assert_eq!((own.newest(), peers.newest()), (1, 1));
        assert!(!peering.exchange());
    }

    #[test]
    fn keys_are_renewed_without_a_pause() {
        let mut peering = Peering::new();
        let mut number = 0;
        for key in 1..5 {
            assert!(peering.exchange(), "{key}");
            let Peering {
                own, peers, now, ..
            } = &mut peering;
            assert_eq!(own.newest(), key);
            if key > 1 {
                // The responder still seals with the old key.
                number += 1;
                assert!(carry(*now, peers, own, number).is_some());
            }
            number += 1;
            assert!(carry(*now, own, peers, number).is_some());
            assert!(carry(*now, peers, own, number).is_some());
            peering.now += RENEW;
            let now = peering.now;
            [&mut peering.own, &mut peering.peers]
                .into_iter()
                .for_each(|keys| {
                    keys.expire(now);
                    assert!(keys.former.is_none());
                });
        }
        // A key that has carried nothing is kept.
        peering.exchange();
        peering.now += RENEW;
        assert!(!peering.exchange());
    }

    #[test]
    fn lost_requests_are_repeated_and_given_up_in_the_end() {
        let mut peering = Peering::new();
        let mut requests = Vec::new();
        for _ in 0..2 * TRIES {
            let entropy = &mut peering.entropy;
            let request = peering.own.request(peering.now, &SECRET, ends, entropy);
            requests.push(request.unwrap());
            let early = peering.own.request(peering.now, &SECRET, ends, entropy);
            assert_eq!(early, None);
            peering.now += RETRY;
        }
        requests.dedup();
        assert_eq!(requests.len(), 2);
        assert!(peering.exchange());
    }

    #[test]
    fn a_peer_that_has_lost_its_keys_gets_new_ones() {
        let mut peering = Peering::new();
        assert!(peering.exchange());
        peering.peers = Keys::default();
        let newest = peering.peers.newest();
        // Heartbeats that left before the change of keys prove nothing.
        peering.own.compare(peering.now, newest, true);
        assert!(!peering.exchange());
        peering.now += SETTLE;
        peering.own.compare(peering.now, newest, true);
        assert!(peering.exchange());
        assert!(
            peering
                .peers
                .compare(peering.now, peering.own.newest(), false)
        );
        assert!(peering.peers.is_ready());
    }
}
