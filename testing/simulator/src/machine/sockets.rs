//! The server's ends of connections: bytes that it reads and writes, at reserved rates if there are
//! any. The protocol is the product's own. `world::links` moves the bytes between both ends.

use super::Machine;
use farcall_rpc_proto::Transmit;
use farcall_server_proto::{ConnectionKey, Direction};
use std::collections::VecDeque;

/// Most bytes that are read, or collected for a write, at once.
const AT_ONCE: usize = 64 << 10;

/// A server's end of a connection.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) link: usize,
    /// Bytes that have arrived and were not handled yet.
    pub(crate) unread: VecDeque<u8>,
    /// How many of these bytes were read. The link counts them at that moment.
    read: usize,
    /// Bytes that were collected for a write.
    unsent: Vec<u8>,
}

impl Socket {
    pub(crate) fn new(link: usize) -> Socket {
        Socket {
            link,
            unread: VecDeque::new(),
            read: 0,
            unsent: Vec::new(),
        }
    }
}

impl Machine {
    /// Reads from a connection, as far as its rate allows. Returns the number of bytes.
    fn read(&mut self, key: ConnectionKey, pending: u64) -> usize {
        let allowance = self.server.lanes().allowance(key, Direction::Up);
        let (Some(allowance), Some(socket)) = (allowance, self.sockets.get_mut(&key)) else {
            return 0;
        };
        let most = usize::try_from(allowance.of(pending)).unwrap_or(usize::MAX);
        // Without a reserved rate all bytes can be read at once.
        let count = match allowance.is_limited() {
            true => most.min(socket.unread.len()).min(AT_ONCE),
            false => socket.unread.len(),
        };
        allowance.spend(count as u64);
        socket.read = count;
        count
    }

    /// Whether there is something on a connection that can be taken now.
    pub(crate) fn is_readable(&mut self, key: ConnectionKey) -> bool {
        let waits = self.server.lanes().waits(key, Direction::Up)
            || !self.server.clients().takes_input(key);
        let socket = self.sockets.get(&key);
        socket.is_some_and(|socket| !socket.unread.is_empty() && !waits)
    }

    /// Handles the input of a connection, as far as the server does. Returns whether it handled
    /// any, and how many bytes passed the link.
    pub(crate) fn take_input(&mut self, key: ConnectionKey) -> (bool, u64) {
        if !self.sockets.contains_key(&key) || !self.server.clients().takes_input(key) {
            return (false, 0);
        }
        let incoming = self.server.clients().incoming(key);
        let mut passed = 0;
        if self.sockets[&key].read == 0 {
            passed = self.read(key, incoming.as_ref().map_or(0, |chunk| chunk.length));
            if passed == 0 {
                return (false, 0);
            }
        }
        let Some(socket) = self.sockets.get_mut(&key) else {
            return (false, 0);
        };
        let bytes = &socket.unread.make_contiguous()[..socket.read];
        let taken = match incoming {
            None => self.server.handle_input(key, bytes),
            Some(chunk) => {
                let count = (bytes.len() as u64).min(chunk.length);
                let mut left = count;
                if let Some(mut landed) = self.server.place(key, &chunk) {
                    let mut at = 0;
                    while left > 0
                        && let Some(piece) = landed.next(left)
                    {
                        let length = piece.length as usize;
                        if let Some(memory) = self.memories.get(&landed.memory) {
                            let offset = piece.offset as usize;
                            memory.borrow_mut()[offset..offset + length]
                                .copy_from_slice(&bytes[at..at + length]);
                        }
                        at += length;
                        left -= piece.length;
                    }
                }
                self.server.handle_data(key, count);
                count as usize
            }
        };
        if let Some(socket) = self.sockets.get_mut(&key) {
            let taken = taken.min(socket.read);
            socket.unread.drain(..taken);
            socket.read -= taken;
        }
        (true, passed as u64)
    }

    /// Bytes that are written on a connection now, as far as its rate allows.
    pub(crate) fn output(&mut self, key: ConnectionKey, now: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let Some(socket) = self.sockets.get_mut(&key) else {
            return out;
        };
        let mut unsent = std::mem::take(&mut socket.unsent);
        loop {
            if unsent.is_empty() && !self.collect(key, &mut unsent, now) {
                self.server.flushed(key);
                break;
            }
            let Some(allowance) = self.server.lanes().allowance(key, Direction::Down) else {
                break;
            };
            let most = allowance.of(unsent.len() as u64);
            let count = usize::try_from(most)
                .unwrap_or(usize::MAX)
                .min(unsent.len());
            if count == 0 {
                break;
            }
            allowance.spend(count as u64);
            out.extend(unsent.drain(..count));
            self.server.clients_mut().taken(key, count as u64, now);
        }
        if let Some(socket) = self.sockets.get_mut(&key) {
            socket.unsent = unsent;
        }
        out
    }

    /// Bytes that wait on connections, described for the history.
    pub(crate) fn status(&self) -> Vec<String> {
        let sockets = self.sockets.iter();
        let stands = sockets.filter(|(_, one)| one.unread.len() + one.unsent.len() > 0);
        let words = stands.map(|(key, one)| {
            format!(
                "link {}: {} bytes to be read, {} to be written, takes input: {}",
                one.link,
                one.unread.len(),
                one.unsent.len(),
                self.server.clients().takes_input(*key)
            )
        });
        words.collect()
    }

    /// Whether all that was collected is written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.sockets.values().all(|socket| socket.unsent.is_empty())
    }

    /// Collects bytes to write. Returns whether there are any.
    fn collect(&mut self, key: ConnectionKey, out: &mut Vec<u8>, now: u64) -> bool {
        let left = self.server.lanes().allowance(key, Direction::Down);
        let left = left.map_or(0, |allowance| allowance.left());
        let bound = left.clamp(1, AT_ONCE as u64) as usize;
        while out.len() < bound {
            match self.server.clients_mut().poll_transmit(key, out, now) {
                Transmit::Idle => break,
                Transmit::Frames => {}
                Transmit::Data(chunk) => {
                    let mut left = chunk.length;
                    while left > 0 {
                        let next = self.server.next_outgoing(key, &chunk, left);
                        let Some((memory, piece)) = next else { break };
                        let (start, length) = (piece.offset as usize, piece.length as usize);
                        if let Some(memory) = self.memories.get(&memory) {
                            let memory = memory.borrow();
                            let bytes = memory.get(start..start + length);
                            out.extend_from_slice(bytes.unwrap_or_default());
                        }
                        left -= piece.length;
                    }
                }
            }
        }
        !out.is_empty()
    }

    /// The last bytes on a connection that ends, unless they would cut into a message.
    pub(crate) fn farewell(&mut self, key: ConnectionKey, now: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let is_cut = |socket: &Socket| !socket.unsent.is_empty();
        if self.sockets.get(&key).is_none_or(is_cut) {
            return out;
        }
        loop {
            let start = out.len();
            match self.server.clients_mut().poll_transmit(key, &mut out, now) {
                Transmit::Frames => {}
                Transmit::Idle => return out,
                Transmit::Data(_) => {
                    out.truncate(start);
                    return out;
                }
            }
        }
    }
}
