//! The control messages between nodes and their encoding. All numbers are big-endian. Bytes after
//! the end of a message are an error.

use crate::handshake::Noise;
use crate::{MAX_LINKS, Mac};
use alloc::vec::Vec;

/// Version of a node without a key, whose messages have the form of the first release.
pub(crate) const PLAIN: u8 = 1;
/// Version of a node with a key, which encrypts data frames.
pub(crate) const ENCRYPTED: u8 = 2;
/// The largest number of ranges in one [`Nack`].
pub(crate) const NACK_RANGES: usize = 64;

/// The header of every control message: its sender and its receiver's session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// Address of the node's virtual interface, which names the node.
    pub node: Mac,
    /// A random number that the node draws when it starts.
    pub session: u32,
    /// The receiver's session as the sender knows it, or 0 if it does not. It proves that the
    /// message is an answer and not a replay.
    pub echo: u32,
    /// A counter that grows with every message of the session.
    pub counter: u32,
    /// Number of the link that the message is sent on, among the sender's links.
    pub link: u8,
}

/// A control message.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Broadcast on each link, so that nodes discover each other.
    Hello(Sender, Hello),
    /// Sent to one peer, on each link shared with it.
    Heartbeat(Sender, Heartbeat),
    /// Asks the peer to send the missing frames of one link again.
    Nack(Sender, Nack),
    /// The node is about to stop.
    Goodbye(Sender),
    /// Agrees on keys for data frames with one peer.
    Handshake(Sender, Handshake),
}

/// What a hello announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Traits of the link that the hello is sent on.
    pub traits: Traits,
    /// What the node understands: 1 without a key, 2 if it has a key and encrypts data frames.
    pub version: u8,
}

/// A message of the handshake that makes keys for a peering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Number of the key.
    pub number: u32,
    /// Whether this is the answer to a request.
    pub answer: bool,
    /// The message of the Noise protocol.
    pub noise: Noise,
}

/// What a node announces about one of its own links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Line rate in bytes a second, preamble and gap included.
    pub rate: u64,
    /// Largest payload after the Ethernet header, in bytes.
    pub mtu: u16,
}

/// A heartbeat: liveness, acknowledgement, grants, and the counts of the published policies in one
/// message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heartbeat {
    /// Traits of the link that the heartbeat is sent on.
    pub traits: Traits,
    /// Approximate time until the next heartbeat on this link, in milliseconds.
    pub interval: u16,
    /// The sender's clock in nanoseconds.
    pub stamp: u64,
    /// The newest `stamp` received on this link.
    pub echo_stamp: u64,
    /// Nanoseconds between receiving that stamp and sending this message.
    pub echo_held: u32,
    /// The sender's clock when it made the grants below. Older grants are void.
    pub grants_made: u64,
    /// A report for every shared link.
    pub paths: Vec<PathReport>,
    /// The published policies' counts on this link.
    pub span: SpanReport,
    /// If the trunk has a key: the number of the newest key that opens the receiver's data frames,
    /// or 0.
    pub key: Option<u32>,
}

/// What the sender of a heartbeat reports about one link shared with the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathReport {
    /// Number of the link among the receiver's.
    pub link: u8,
    /// Whether the sender hears the receiver on it.
    pub heard: bool,
    /// All frames with numbers below this have arrived on the link or are given up.
    pub received: u32,
    /// Bytes a second that the receiver may send on it.
    pub grant: u64,
}

/// Packets counted over a span of time (RI2N++, Fig. 6 of the paper).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanReport {
    /// Number of the span.
    pub span: u32,
    /// `cnt`: peers heard on this link.
    pub peers: u32,
    /// `arrive`: packets from the receiver on this link.
    pub arrive: u32,
    /// `path_total`: packets from all peers on this link.
    pub path_total: u32,
    /// `arrive_total`: packets from all peers on all links.
    pub arrive_total: u32,
}

/// A list of frames that were lost on one link of the receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nack {
    /// Number of the link among the receiver's.
    pub link: u8,
    /// The ranges: the first number and the count of each.
    pub ranges: Vec<(u32, u16)>,
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The message is shorter or longer than its contents.
    #[error("the control message has a wrong length")]
    Length,
    /// The message has an unknown type.
    #[error("the type of the control message is unknown")]
    Type,
    /// A number is outside its bounds.
    #[error("a number in the control message is out of bounds")]
    Bounds,
}

impl Message {
    /// The sender of the message.
    pub fn sender(&self) -> &Sender {
        match self {
            Message::Hello(sender, _)
            | Message::Heartbeat(sender, _)
            | Message::Nack(sender, _)
            | Message::Goodbye(sender)
            | Message::Handshake(sender, _) => sender,
        }
    }

    /// The first byte of the message. Nodes without a key use only 1 to 4.
    fn kind(&self) -> u8 {
        match self {
            Message::Hello(_, hello) if hello.version == PLAIN => 1,
            Message::Hello(..) => 5,
            Message::Heartbeat(_, heartbeat) if heartbeat.key.is_none() => 2,
            Message::Heartbeat(..) => 7,
            Message::Nack(..) => 3,
            Message::Goodbye(_) => 4,
            Message::Handshake(..) => 6,
        }
    }

    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(192);
        out.push(self.kind());
        self.sender().put(&mut out);
        match self {
            Message::Hello(_, hello) => {
                hello.traits.put(&mut out);
                if hello.version != PLAIN {
                    hello.version.put(&mut out);
                }
            }
            Message::Heartbeat(_, heartbeat) => {
                heartbeat.put(&mut out);
                if let Some(key) = heartbeat.key {
                    key.put(&mut out);
                }
            }
            Message::Handshake(_, handshake) => handshake.put(&mut out),
            Message::Nack(_, nack) => nack.put(&mut out),
            Message::Goodbye(_) => {}
        }
        out
    }

    /// Decodes a message that occupies all of `bytes`.
    ///
    /// # Errors
    /// Returns the reason if the bytes are not a message.
    pub fn decode(bytes: &[u8]) -> Result<Message, ControlError> {
        let input = &mut &bytes[..];
        let kind = u8::take(input)?;
        let sender = Sender::take(input)?;
        let message = match kind {
            1 | 5 => {
                let traits = Wire::take(input)?;
                let version = match kind {
                    1 => PLAIN,
                    _ => Wire::take(input)?,
                };
                Message::Hello(sender, Hello { traits, version })
            }
            2 | 7 => {
                let mut heartbeat = Heartbeat::take(input)?;
                if kind == 7 {
                    heartbeat.key = Some(Wire::take(input)?);
                }
                Message::Heartbeat(sender, heartbeat)
            }
            3 => Message::Nack(sender, Nack::take(input)?),
            4 => Message::Goodbye(sender),
            6 => Message::Handshake(sender, Wire::take(input)?),
            _ => return Err(ControlError::Type),
        };
        let sound = message.is_sound() && message.kind() == kind;
        match (input.is_empty(), sound) {
            (false, _) => Err(ControlError::Length),
            (true, false) => Err(ControlError::Bounds),
            (true, true) => Ok(message),
        }
    }

    /// Whether all numbers are within their bounds.
    fn is_sound(&self) -> bool {
        let sender = self.sender();
        let is_link = |link: u8| usize::from(link) < MAX_LINKS;
        !sender.node.is_group()
            && sender.session != 0
            && is_link(sender.link)
            && match self {
                Message::Heartbeat(_, heartbeat) => {
                    (1..=10_000).contains(&heartbeat.interval)
                        && heartbeat.paths.iter().all(|path| is_link(path.link))
                }
                Message::Nack(_, nack) => is_link(nack.link),
                Message::Hello(..) | Message::Goodbye(_) | Message::Handshake(..) => true,
            }
    }
}

/// A value with an encoding: it can be appended to a message, or read from its front.
trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(input: &mut &[u8]) -> Result<Self, ControlError>;
}

/// An item of a list. A list is encoded as its length in one byte, followed by its items.
trait Item: Wire {
    /// The largest number of items in a list.
    const MOST: usize;
}

impl Item for PathReport {
    const MOST: usize = MAX_LINKS;
}

impl Item for (u32, u16) {
    const MOST: usize = NACK_RANGES;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_be_bytes());
            }

            fn take(input: &mut &[u8]) -> Result<Self, ControlError> {
                let taken = input.split_off(..size_of::<Self>());
                let bytes = taken.and_then(|bytes| bytes.try_into().ok());
                bytes.map(Self::from_be_bytes).ok_or(ControlError::Length)
            }
        }
    )*};
}

/// Implements `Wire` for records whose fields are encoded in this order. A field after the
/// semicolon is not encoded.
macro_rules! records {
    ($($record:ident { $($field:ident),* $(; $rest:ident)? })*) => {$(
        impl Wire for $record {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(input: &mut &[u8]) -> Result<Self, ControlError> {
                $(let $field = Wire::take(input)?;)*
                Ok($record { $($field,)* $($rest: Default::default())? })
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64);
records! {
    Sender { node, session, echo, counter, link }
    Traits { rate, mtu }
    SpanReport { span, peers, arrive, path_total, arrive_total }
    PathReport { link, heard, received, grant }
    Heartbeat { traits, interval, stamp, echo_stamp, echo_held, grants_made, span, paths; key }
    Nack { link, ranges }
    Handshake { number, answer, noise }
}

impl Wire for Mac {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.0);
    }

    fn take(input: &mut &[u8]) -> Result<Mac, ControlError> {
        let (&bytes, rest) = input.split_first_chunk().ok_or(ControlError::Length)?;
        *input = rest;
        Ok(Mac(bytes))
    }
}

impl Wire for Noise {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self);
    }

    fn take(input: &mut &[u8]) -> Result<Noise, ControlError> {
        let (&bytes, rest) = input.split_first_chunk().ok_or(ControlError::Length)?;
        *input = rest;
        Ok(bytes)
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(input: &mut &[u8]) -> Result<bool, ControlError> {
        match u8::take(input)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(ControlError::Bounds),
        }
    }
}

impl Wire for (u32, u16) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(input: &mut &[u8]) -> Result<(u32, u16), ControlError> {
        Ok((u32::take(input)?, u16::take(input)?))
    }
}

impl<T: Item> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.len() as u8);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(input: &mut &[u8]) -> Result<Vec<T>, ControlError> {
        let count = usize::from(u8::take(input)?);
        match count <= T::MOST {
            true => (0..count).map(|_| T::take(input)).collect(),
            false => Err(ControlError::Bounds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn messages() -> Vec<Message> {
        let sender = Sender {
            node: Mac([2, 1, 2, 3, 4, 5]),
            session: 77,
            echo: 78,
            counter: 79,
            link: 7,
        };
        let traits = Traits {
            rate: 12_500_000,
            mtu: 1500,
        };
        let heartbeat = Heartbeat {
            traits,
            interval: 10,
            stamp: 1,
            echo_stamp: 2,
            echo_held: 3,
            grants_made: 4,
            paths: vec![
                PathReport {
                    link: 1,
                    heard: true,
                    received: 5,
                    grant: 6
                };
                MAX_LINKS
            ],
            span: SpanReport {
                span: 1,
                peers: 2,
                arrive: 3,
                path_total: 4,
                arrive_total: 5,
            },
            key: None,
        };
        let keyed = Heartbeat {
            key: Some(7),
            ..heartbeat.clone()
        };
        let hello = |version| Hello { traits, version };
        let handshake = Handshake {
            number: 7,
            answer: true,
            noise: [5; 48],
        };
        let nack = Nack {
            link: 1,
            ranges: vec![(5, 2), (9, 1)],
        };
        vec![
            Message::Hello(sender, hello(PLAIN)),
            Message::Heartbeat(sender, heartbeat),
            Message::Nack(sender, nack),
            Message::Goodbye(sender),
            Message::Hello(sender, hello(ENCRYPTED)),
            Message::Heartbeat(sender, keyed),
            Message::Handshake(sender, handshake),
        ]
    }

    #[test]
    fn messages_survive_the_wire() {
        for message in messages() {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn every_cut_and_every_excess_is_refused() {
        for message in messages() {
            let mut bytes = message.encode();
            for end in 0..bytes.len() {
                assert!(Message::decode(&bytes[..end]).is_err());
            }
            bytes.push(0);
            assert_eq!(Message::decode(&bytes), Err(ControlError::Length));
        }
    }

    #[test]
    fn numbers_out_of_bounds_are_refused() {
        let mut bytes = messages()[3].encode();
        let last = bytes.len() - 1;
        bytes[last] = MAX_LINKS as u8;
        assert_eq!(Message::decode(&bytes), Err(ControlError::Bounds));
        // The first form of a hello is the only one of its version.
        let mut bytes = messages()[4].encode();
        let last = bytes.len() - 1;
        bytes[last] = PLAIN;
        assert_eq!(Message::decode(&bytes), Err(ControlError::Bounds));
    }
}
