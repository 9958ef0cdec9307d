//! The shell of a simulated server: memory, workers and files in place of sockets and processes.

use crate::client::{self, LOOK, MAKE};
use farcall_idl::{Document, Interface, Place};
use farcall_random::SplitMix64;
use farcall_rpc_proto::{Call, Failure, Transmit};
use farcall_schedule::Policy;
use farcall_schedule::queue;
use farcall_server_proto::{
    ArrayLimits, CallKey, ConnectionKey, DurableLimits, Key, Limits, MemoryKey, Now, Server,
    Settings, WorkerKey,
};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of memory that a simulated server has.
const MEMORY: u64 = 3 << 20;
/// Processor elements that it has.
pub(crate) const PES: u32 = 3;

/// A call that a worker has.
#[derive(Clone, Debug)]
pub(crate) struct Posted {
    pub(crate) call: CallKey,
    pub(crate) tag: u64,
    pub(crate) function: usize,
    pub(crate) arrays: Vec<Array>,
    pub(crate) has_begun: bool,
    /// It was taken back.
    pub(crate) is_withdrawn: bool,
}

/// Where an array of a call lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array {
    pub(crate) memory: MemoryKey,
    offset: usize,
    bytes: usize,
    is_read: bool,
    pub(crate) is_written: bool,
}

/// A worker process.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) posted: VecDeque<Posted>,
    /// Why the server ended it.
    pub(crate) ended: Option<Failure>,
    /// Counts what it does: word of something else comes too late.
    pub(crate) step: u64,
}

/// A server's end of a connection.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) link: usize,
    /// What has come and was not taken yet.
    pub(crate) unread: VecDeque<u8>,
}

/// One life of a server.
pub(crate) struct Machine {
    pub(crate) server: Server,
    document: Document,
    pub(crate) memories: BTreeMap<MemoryKey, Vec<u8>>,
    pub(crate) workers: BTreeMap<WorkerKey, Worker>,
    pub(crate) sockets: BTreeMap<ConnectionKey, Socket>,
    /// Connections with something to write.
    pub(crate) unflushed: Vec<ConnectionKey>,
    pub(crate) resumed: Vec<ConnectionKey>,
}

fn settings(random: &mut SplitMix64, has_time_limit: bool) -> Settings {
    let policies = [Policy::Fcfs, Policy::Sjf, Policy::Fpfs, Policy::Fmpfs];
    let mut seed = [0; 32];
    for bytes in seed.chunks_mut(8) {
        bytes.copy_from_slice(&random.next_u64().to_le_bytes());
    }
    Settings {
        limits: Limits {
            connections: 100,
            connections_per_user: 0,
            calls_per_connection: 64,
            calls_per_user: 0,
            memory_per_user: 0,
            memory: MEMORY,
            greeting_s: 10.0,
            callback_s: 60.0,
            stalled_s: 600.0,
            stalled_busy_s: 60.0,
            objects_per_connection: 4,
            objects: 8,
            reservations_per_user: 2,
            reserve_ahead_s: 3600.0,
            bandwidth_up: 0,
            bandwidth_down: 0,
        },
        durable: DurableLimits {
            keep_h: 1000.0,
            longest_h: 1000.0,
            per_user: 1000,
            bytes_per_user: 1 << 40,
        },
        arrays: ArrayLimits {
            memory: 1 << 20,
            per_user: 100,
            bytes_per_user: 1 << 40,
            keep_h: 1000.0,
            names: 100,
        },
        queue: queue::Settings {
            policy: policies[random.below(4) as usize],
            ..queue::Settings::new(PES)
        },
        priorities: BTreeMap::new(),
        elements: 1,
        time_limit_s: if has_time_limit { 5.0 } else { 0.0 },
        has_state: true,
        audits: false,
        agent: "simulated server",
        version: "0",
        seed,
    }
}

impl Machine {
    pub(crate) fn start(random: &mut SplitMix64, now: Now, has_time_limit: bool) -> Machine {
        let document = client::document();
        let settings = settings(random, has_time_limit);
        let mut server = Server::new(settings, [&document], Vec::new(), now);
        server.start_workers();
        Machine {
            server,
            document,
            memories: BTreeMap::new(),
            workers: BTreeMap::new(),
            sockets: BTreeMap::new(),
            unflushed: Vec::new(),
            resumed: Vec::new(),
        }
    }

    /// How much memory it has taken.
    pub(crate) fn memory(&self) -> u64 {
        self.memories.values().map(|bytes| bytes.len() as u64).sum()
    }

    /// Whether it has taken more than it may.
    pub(crate) fn is_too_large(&self) -> bool {
        self.memory() > MEMORY
    }

    fn interface(&self, function: usize) -> &Interface {
        let mut functions = self.document.functions();
        functions.nth(function).expect("a function of the document")
    }

    /// What a worker is to run, as it finds it: the call, its tag, its arrays and its elements.
    pub(crate) fn posted(&self, call: CallKey) -> Option<(Posted, u32)> {
        let request = self.server.overview().request(call)?;
        let message = Call::decode(request.message).ok()?;
        let tag = match message.scalars.first() {
            Some(Some(farcall_idl::Scalar::Int(tag))) => *tag as u64,
            _ => return None,
        };
        let interface = self.interface(request.function);
        let mut layout = interface.layout(&message.scalars, &message.elements).ok()?;
        layout.place(message.places.iter().copied());
        let arrays = layout.arrays.iter().enumerate();
        let arrays = arrays.map(|(index, array)| {
            let place: Option<Place> = message.places.get(index).copied().flatten();
            let memory = match place {
                Some(place) => MemoryKey::of_number(place.segment),
                None => request.buffer?,
            };
            let offset = place.map_or(array.offset, |place| place.offset);
            Some(Array {
                memory,
                offset: offset as usize,
                bytes: array.bytes as usize,
                is_read: array.mode.is_sent(),
                is_written: array.mode.is_returned(),
            })
        });
        let posted = Posted {
            call,
            tag,
            function: request.function,
            arrays: arrays.collect::<Option<Vec<Array>>>()?,
            has_begun: false,
            is_withdrawn: false,
        };
        Some((posted, request.pes))
    }

    /// The library computes. Returns why it cannot: its memory is not there.
    pub(crate) fn compute(&mut self, posted: &Posted, user: u8) -> Result<(), String> {
        let missing = || format!("call {} runs without its memory", posted.tag);
        let read = posted.arrays.iter().find(|array| array.is_read);
        let read = match read {
            None => Vec::new(),
            Some(array) => {
                let memory = self.memories.get(&array.memory).ok_or_else(missing)?;
                let bytes = memory.get(array.offset..array.offset + array.bytes);
                bytes.ok_or_else(missing)?.to_vec()
            }
        };
        for array in posted.arrays.iter().filter(|array| array.is_written) {
            let memory = self.memories.get_mut(&array.memory).ok_or_else(missing)?;
            let bytes = memory.get_mut(array.offset..array.offset + array.bytes);
            let bytes = bytes.ok_or_else(missing)?;
            match posted.function {
                // The rest is whatever lay there.
                MAKE => bytes[..array.bytes / 2].fill(user << 4 | 5),
                LOOK => {
                    for (index, byte) in bytes.iter_mut().enumerate() {
                        *byte = read.get(index).copied().unwrap_or(0);
                    }
                }
                _ => {
                    for (byte, before) in bytes.iter_mut().zip(&read) {
                        *byte = client::next(*before);
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes what has come on a connection, as far as the server does. Returns whether it has
    /// taken anything.
    pub(crate) fn take_input(&mut self, key: ConnectionKey) -> bool {
        let Some(socket) = self.sockets.get_mut(&key) else {
            return false;
        };
        if socket.unread.is_empty() || !self.server.clients().takes_input(key) {
            return false;
        }
        let bytes = socket.unread.make_contiguous();
        let taken = match self.server.clients().incoming(key) {
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
                        if let Some(memory) = self.memories.get_mut(&landed.memory) {
                            let offset = piece.offset as usize;
                            memory[offset..offset + length]
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
            socket.unread.drain(..taken.min(socket.unread.len()));
        }
        true
    }

    /// What there is to be written on a connection.
    pub(crate) fn output(&mut self, key: ConnectionKey, now: u64) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            match self.server.clients_mut().poll_transmit(key, &mut out, now) {
                Transmit::Idle => break,
                Transmit::Frames => {}
                Transmit::Data(chunk) => {
                    let mut left = chunk.length;
                    while left > 0 {
                        let next = self.server.next_outgoing(key, &chunk, left);
                        let Some((memory, piece)) = next else { break };
                        let offset = piece.offset as usize;
                        let bytes = self.memories.get(&memory);
                        let bytes =
                            bytes.and_then(|all| all.get(offset..offset + piece.length as usize));
                        out.extend_from_slice(bytes.unwrap_or_default());
                        left -= piece.length;
                    }
                }
            }
        }
        self.server.clients_mut().taken(key, now);
        self.server.flushed(key);
        out
    }

    /// Its last words on a connection that ends.
    pub(crate) fn farewell(&mut self, key: ConnectionKey, now: u64) -> Vec<u8> {
        let mut out = Vec::new();
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
