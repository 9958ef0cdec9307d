//! Control messages. All numbers are big-endian; bytes after a message's end are an error.

use crate::{MAX_LINKS, Mac};
use alloc::vec::Vec;

/// Ranges in one [`Nack`], at most.
pub(crate) const NACK_RANGES: usize = 64;

/// Who says it, and to whom; before every message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// Address of the node's virtual interface, which names the node.
    pub node: Mac,
    /// Drawn at random when the node started.
    pub session: u32,
    /// Session of the receiver as the sender knows it, 0 if it does not: shows that the message
    /// is an answer and no replay.
    pub echo: u32,
    /// Grows with every message of the session.
    pub counter: u32,
    /// Number of the link, among the sender's, that the message is sent on.
    pub link: u8,
}

/// A control message.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Broadcast on each link, so that nodes find each other.
    Hello(Sender, Traits),
    /// To one peer, on each link shared with it.
    Heartbeat(Sender, Heartbeat),
    /// Frames of one link are missing.
    Nack(Sender, Nack),
    /// The node is about to end.
    Goodbye(Sender),
}

/// What a node says about a link of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Line rate in bytes a second, preamble and gap included.
    pub rate: u64,
    /// Largest payload after the Ethernet header, in bytes.
    pub mtu: u16,
}

/// Liveness, acknowledgement, grants and the published policies' counts in one message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heartbeat {
    /// Of the link that it is sent on.
    pub traits: Traits,
    /// Milliseconds until the next one on this link, about.
    pub interval: u16,
    /// The sender's clock in nanoseconds.
    pub stamp: u64,
    /// The newest `stamp` received on this link.
    pub echo_stamp: u64,
    /// Nanoseconds between receiving that and sending this.
    pub echo_held: u32,
    /// The sender's clock when the grants below were made: older grants are void.
    pub grants_made: u64,
    /// A report for every link shared.
    pub paths: Vec<PathReport>,
    /// The published policies' counts on this link.
    pub span: SpanReport,
}

/// What the sender of a heartbeat says about one link shared with the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathReport {
    /// Number of the link among the receiver's.
    pub link: u8,
    /// Whether the sender hears the receiver on it.
    pub heard: bool,
    /// All numbers below this have been received on it, or are given up.
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

/// Frames that were lost on a link of the receiver's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nack {
    /// Number of the link among the receiver's.
    pub link: u8,
    /// First number and how many, each.
    pub ranges: Vec<(u32, u16)>,
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The bytes end before the message does, or after.
    #[error("a message of the wrong length")]
    Length,
    /// A type that does not exist.
    #[error("a type of message that does not exist")]
    Type,
    /// A number outside its bounds.
    #[error("a number out of bounds")]
    Bounds,
}

impl Message {
    /// Who sent it.
    pub fn sender(&self) -> &Sender {
        match self {
            Message::Hello(sender, _)
            | Message::Heartbeat(sender, _)
            | Message::Nack(sender, _)
            | Message::Goodbye(sender) => sender,
        }
    }

    /// The message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(192);
        out.push(match self {
            Message::Hello(..) => 1,
            Message::Heartbeat(..) => 2,
            Message::Nack(..) => 3,
            Message::Goodbye(_) => 4,
        });
        put_sender(&mut out, self.sender());
        match self {
            Message::Hello(_, traits) => put_traits(&mut out, traits),
            Message::Heartbeat(_, heartbeat) => put_heartbeat(&mut out, heartbeat),
            Message::Nack(_, nack) => {
                out.push(nack.link);
                out.push(nack.ranges.len() as u8);
                for (first, count) in &nack.ranges {
                    out.extend(first.to_be_bytes());
                    out.extend(count.to_be_bytes());
                }
            }
            Message::Goodbye(_) => {}
        }
        out
    }

    /// Reads a message that is all of `bytes`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Message, ControlError> {
        let mut input = Input(bytes);
        let kind = input.u8()?;
        let sender = input.sender()?;
        let message = match kind {
            1 => Message::Hello(sender, input.traits()?),
            2 => Message::Heartbeat(sender, input.heartbeat()?),
            3 => Message::Nack(sender, input.nack()?),
            4 => Message::Goodbye(sender),
            _ => return Err(ControlError::Type),
        };
        match input.0 {
            [] => Ok(message),
            _ => Err(ControlError::Length),
        }
    }
}

fn put_sender(out: &mut Vec<u8>, sender: &Sender) {
    out.extend(sender.node.0);
    out.extend(sender.session.to_be_bytes());
    out.extend(sender.echo.to_be_bytes());
    out.extend(sender.counter.to_be_bytes());
    out.push(sender.link);
}

fn put_traits(out: &mut Vec<u8>, traits: &Traits) {
    out.extend(traits.rate.to_be_bytes());
    out.extend(traits.mtu.to_be_bytes());
}

fn put_heartbeat(out: &mut Vec<u8>, heartbeat: &Heartbeat) {
    put_traits(out, &heartbeat.traits);
    out.extend(heartbeat.interval.to_be_bytes());
    out.extend(heartbeat.stamp.to_be_bytes());
    out.extend(heartbeat.echo_stamp.to_be_bytes());
    out.extend(heartbeat.echo_held.to_be_bytes());
    out.extend(heartbeat.grants_made.to_be_bytes());
    let SpanReport {
        span,
        peers,
        arrive,
        path_total,
        arrive_total,
    } = heartbeat.span;
    for count in [span, peers, arrive, path_total, arrive_total] {
        out.extend(count.to_be_bytes());
    }
    out.push(heartbeat.paths.len() as u8);
    for path in &heartbeat.paths {
        out.push(path.link);
        out.push(u8::from(path.heard));
        out.extend(path.received.to_be_bytes());
        out.extend(path.grant.to_be_bytes());
    }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ControlError> {
        let (&taken, rest) = self.0.split_first_chunk().ok_or(ControlError::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, ControlError> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, ControlError> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, ControlError> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, ControlError> {
        self.take().map(u64::from_be_bytes)
    }

    fn bool(&mut self) -> Result<bool, ControlError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(ControlError::Bounds),
        }
    }

    fn link(&mut self) -> Result<u8, ControlError> {
        let link = self.u8()?;
        match usize::from(link) < MAX_LINKS {
            true => Ok(link),
            false => Err(ControlError::Bounds),
        }
    }

    fn sender(&mut self) -> Result<Sender, ControlError> {
        let sender = Sender {
            node: Mac(self.take()?),
            session: self.u32()?,
            echo: self.u32()?,
            counter: self.u32()?,
            link: self.link()?,
        };
        match sender.node.is_group() || sender.session == 0 {
            true => Err(ControlError::Bounds),
            false => Ok(sender),
        }
    }

    fn traits(&mut self) -> Result<Traits, ControlError> {
        Ok(Traits {
            rate: self.u64()?,
            mtu: self.u16()?,
        })
    }

    fn heartbeat(&mut self) -> Result<Heartbeat, ControlError> {
        let mut heartbeat = Heartbeat {
            traits: self.traits()?,
            interval: self.u16()?,
            stamp: self.u64()?,
            echo_stamp: self.u64()?,
            echo_held: self.u32()?,
            grants_made: self.u64()?,
            paths: Vec::new(),
            span: SpanReport {
                span: self.u32()?,
                peers: self.u32()?,
                arrive: self.u32()?,
                path_total: self.u32()?,
                arrive_total: self.u32()?,
            },
        };
        let paths = usize::from(self.u8()?);
        if paths > MAX_LINKS || !(1..=10_000).contains(&heartbeat.interval) {
            return Err(ControlError::Bounds);
        }
        for _ in 0..paths {
            heartbeat.paths.push(PathReport {
                link: self.link()?,
                heard: self.bool()?,
                received: self.u32()?,
                grant: self.u64()?,
            });
        }
        Ok(heartbeat)
    }

    fn nack(&mut self) -> Result<Nack, ControlError> {
        let link = self.link()?;
        let count = usize::from(self.u8()?);
        if count > NACK_RANGES {
            return Err(ControlError::Bounds);
        }
        let mut ranges = Vec::new();
        for _ in 0..count {
            ranges.push((self.u32()?, self.u16()?));
        }
        Ok(Nack { link, ranges })
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
        };
        let nack = Nack {
            link: 1,
            ranges: vec![(5, 2), (9, 1)],
        };
        vec![
            Message::Hello(sender, traits),
            Message::Heartbeat(sender, heartbeat),
            Message::Nack(sender, nack),
            Message::Goodbye(sender),
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
    }
}
