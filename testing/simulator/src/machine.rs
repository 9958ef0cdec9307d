//! The shell of a simulated server: models of memory, workers and files in place of the real ones.
//! The server inside is the product's own. Its memory must stay within its limits.

mod sockets;

pub(crate) use sockets::Socket;

use crate::interfaces::{
    self, AGAIN, ASK, ASKED, BOTH, LOOK, LOOKED, MAKE, Tag, look, next, state,
};
use crate::options::{Options, Subjects};
use farcall_idl::{Document, Interface, SharedRange};
use farcall_random::SplitMix64;
use farcall_rpc_proto::{Call, Failure};
use farcall_schedule::Policy;
use farcall_schedule::queue::{self, Patience};
use farcall_schedule::reservation::Bandwidth;
use farcall_server_proto::{
    ArrayLimits, CallKey, ConnectionKey, DataFile, Direction, DurableLimits, Key, Limits,
    MemoryKey, Now, Server, Settings, WorkerKey,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Bytes of memory of a simulated server.
const MEMORY: u64 = 3 << 20;
/// The same where calls use two stored arrays: few arrays leave too little for another.
const LESS_MEMORY: u64 = 5 << 19;
/// The same where clients dawdle: one long call leaves too little for another.
const SCARCE_MEMORY: u64 = 7 << 18;
/// Processor elements of a simulated server.
pub(crate) const PES: u32 = 3;
/// Bytes per second of its link, each way.
pub(crate) const BANDWIDTH: u64 = 4_000_000;
/// Most reservations of one user.
pub(crate) const RESERVATIONS: usize = 2;
/// Most processor elements that one user's reservations have at a time: seven tenths of all.
pub(crate) const RESERVED: u32 = 2;
/// The time in nanoseconds for which a user's oldest call lets other calls start first.
pub(crate) const PATIENCE: u64 = 500_000_000;
/// Most users.
pub(crate) const USERS: u64 = 3;

/// Memory, which clients can share.
pub(crate) type Memory = Rc<RefCell<Vec<u8>>>;

/// The retention of stored arrays and objects, in hours.
fn keep_h(options: &Options) -> f64 {
    match options.subjects.names {
        true => 2.0 / 3600.0,
        false => 1000.0,
    }
}

/// The same in nanoseconds.
pub(crate) fn keep_ns(options: &Options) -> u64 {
    (keep_h(options) * 3.6e12) as u64
}

/// A call that was posted to a worker.
#[derive(Clone, Debug)]
pub(crate) struct Posted {
    pub(crate) call: CallKey,
    pub(crate) tag: Tag,
    pub(crate) function: usize,
    pub(crate) arrays: Vec<Array>,
    pub(crate) has_begun: bool,
    /// It was taken back.
    pub(crate) is_withdrawn: bool,
    pub(crate) reservation: Option<u64>,
    /// The beginning of its array as the callback has changed it, once it was answered.
    pub(crate) answer: Option<Vec<u8>>,
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
    /// Counts its steps, so that an event of an earlier step is ignored.
    pub(crate) step: u64,
    /// Index of its library.
    pub(crate) library: usize,
    /// How often the files of its library had been replaced when it started.
    pub(crate) version: u64,
    /// It started in order to try new files.
    pub(crate) is_trial: bool,
    /// Newer files have been tried, so it gets no new calls.
    pub(crate) is_outdated: bool,
    /// It has a call that it was not handed yet. It gets this one.
    pub(crate) is_booked: bool,
    /// Methods that were applied to the object that it holds.
    pub(crate) applied: Vec<Tag>,
}

/// The files of a library.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Files {
    /// How often they have been replaced.
    pub(crate) version: u64,
    /// The next worker tries them.
    pub(crate) awaits_trial: bool,
}

/// One life of a server.
pub(crate) struct Machine {
    pub(crate) server: Server,
    /// The libraries that workers can bind.
    pub(crate) libraries: Vec<Document>,
    /// The files of each library that were ever replaced, by index.
    pub(crate) files: BTreeMap<usize, Files>,
    pub(crate) memories: BTreeMap<MemoryKey, Memory>,
    /// Bytes of memory that the server may take.
    most: u64,
    pub(crate) workers: BTreeMap<WorkerKey, Worker>,
    pub(crate) sockets: BTreeMap<ConnectionKey, Socket>,
    /// Connections with something to write.
    pub(crate) unflushed: Vec<ConnectionKey>,
    pub(crate) resumed: Vec<ConnectionKey>,
    /// Connections whose turn it is to move bytes at a reserved rate.
    pub(crate) served: VecDeque<(ConnectionKey, Direction)>,
    /// Whether clients can connect, and the clients that wait to be accepted.
    pub(crate) listens: bool,
    pub(crate) backlog: VecDeque<usize>,
    /// The last time at which waiting calls were checked.
    pub(crate) looked: u64,
    /// Sources whose array a connector has found: the source and its version.
    pub(crate) opened: BTreeMap<u64, (u64, u64)>,
}

/// Bytes of all memory, and of the memory for arrays.
fn memories(options: &Options) -> (u64, u64) {
    match options.subjects {
        Subjects { dawdlers: true, .. } => (SCARCE_MEMORY, SCARCE_MEMORY / 7 * 3),
        Subjects { pairs: true, .. } => (LESS_MEMORY, LESS_MEMORY / 3),
        _ => (MEMORY, MEMORY / 3),
    }
}

fn settings(random: &mut SplitMix64, options: &Options) -> Settings {
    let (memory, arrays) = memories(options);
    let bandwidth = if options.subjects.lanes { BANDWIDTH } else { 0 };
    let policies = [Policy::Fcfs, Policy::Sjf, Policy::Fpfs, Policy::Fmpfs];
    let mut seed = [0; 32];
    for bytes in seed.chunks_mut(8) {
        bytes.copy_from_slice(&random.next_u64().to_le_bytes());
    }
    Settings {
        limits: Limits {
            connections: 100,
            calls_per_connection: 64,
            memory,
            greeting_s: 10.0,
            callback_s: 10.0,
            stalled_s: 600.0,
            stalled_busy_s: 30.0,
            stalled_busy_rate: 100,
            objects_per_connection: 4,
            objects: 8,
            files: 0,
            reservations_per_user: RESERVATIONS,
            reserve_share: 0.7,
            reserve_ahead_s: 3600.0,
            bandwidth_up: bandwidth,
            bandwidth_down: bandwidth,
            ..Limits::default()
        },
        durable: DurableLimits {
            reserve: 0,
            // Longer than any simulation, and shorter than a jump of the calendar.
            keep_h: 24.0,
            longest_h: 24.0,
            per_user: 1000,
            bytes_per_user: 1 << 40,
        },
        arrays: ArrayLimits {
            memory: arrays,
            per_user: 100,
            bytes_per_user: 1 << 40,
            keep_h: keep_h(options),
            names: 100,
        },
        queue: queue::Settings {
            policy: policies[random.below(4) as usize],
            patience: Patience {
                time: PATIENCE,
                ..Patience::default()
            },
            bandwidth: Bandwidth {
                up: bandwidth / 10 * 9,
                down: bandwidth / 10 * 9,
            },
            ..queue::Settings::new(PES)
        },
        priorities: BTreeMap::new(),
        elements: 1,
        time_limit_s: [0.0, 5.0][usize::from(options.faults.worker_hangs)],
        groups: Default::default(),
        has_state: true,
        audits: false,
        record: None,
        traces: false,
        agent: "simulated server",
        version: "0",
        seed,
    }
}

impl Machine {
    pub(crate) fn start(
        random: &mut SplitMix64,
        now: Now,
        options: &Options,
        files: Vec<DataFile>,
    ) -> Machine {
        let document = interfaces::document();
        let settings = settings(random, options);
        let most = settings.limits.memory;
        let mut server = Server::new(settings, [&document], files, now);
        server.start_workers();
        Machine {
            server,
            libraries: vec![document],
            files: BTreeMap::new(),
            memories: BTreeMap::new(),
            most,
            workers: BTreeMap::new(),
            sockets: BTreeMap::new(),
            unflushed: Vec::new(),
            resumed: Vec::new(),
            served: VecDeque::new(),
            listens: true,
            backlog: VecDeque::new(),
            looked: 0,
            opened: BTreeMap::new(),
        }
    }

    /// Bytes of memory that it uses.
    pub(crate) fn memory(&self) -> u64 {
        let memories = self.memories.values();
        memories.map(|bytes| bytes.borrow().len() as u64).sum()
    }

    /// Whether it uses more memory than its limits allow.
    pub(crate) fn is_too_large(&self) -> bool {
        self.memory() > self.most
    }

    /// A worker is ready. If it has tried new files, the workers with older ones get no new calls.
    pub(crate) fn is_ready(&mut self, worker: WorkerKey) {
        let Some(tried) = self.workers.get(&worker).filter(|known| known.is_trial) else {
            return;
        };
        let (library, version) = (tried.library, tried.version);
        let overview = self.server.overview();
        let same = |known: &Worker| known.library == library && known.version < version;
        for (key, known) in self.workers.iter_mut().filter(|(_, known)| same(known)) {
            known.is_outdated = true;
            known.is_booked = known.posted.is_empty() && overview.call_of(*key).is_some();
        }
    }

    fn interface(&self, library: usize, function: usize) -> Option<&Interface> {
        self.libraries.get(library)?.functions().nth(function)
    }

    /// The calls that wait for processor elements, with their users.
    pub(crate) fn waiting(&self) -> Vec<(CallKey, u8)> {
        let calls = self.server.overview().waiting().filter_map(|call| {
            let message = Call::decode(self.server.overview().request(call)?.message).ok()?;
            match message.scalars.first() {
                Some(Some(farcall_idl::Scalar::Int(tag))) => Some((call, Tag(*tag as u64).user())),
                _ => None,
            }
        });
        calls.collect()
    }

    /// The call that a worker will run: its tag, arrays and processor elements.
    pub(crate) fn posted(&self, worker: WorkerKey, call: CallKey) -> Option<(Posted, u32)> {
        let library = self.workers.get(&worker)?.library;
        let request = self.server.overview().request(call)?;
        let message = Call::decode(request.message).ok()?;
        let tag = match message.scalars.first() {
            Some(Some(farcall_idl::Scalar::Int(tag))) => Tag(*tag as u64),
            _ => return None,
        };
        let interface = self.interface(library, request.function)?;
        let mut layout = interface.layout(&message.scalars, &message.elements).ok()?;
        layout.place(message.places.iter().copied());
        let arrays = layout.arrays.iter().enumerate();
        let arrays = arrays.map(|(index, array)| {
            let place: Option<SharedRange> = message.places.get(index).copied().flatten();
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
            // A registered library has one function of the first library under another name.
            function: if library > 0 { AGAIN } else { request.function },
            arrays: arrays.collect::<Option<Vec<Array>>>()?,
            has_begun: false,
            is_withdrawn: false,
            // A deadline has a booking of its own, which nobody knows.
            reservation: message.reservation.or(message.before.map(|_| u64::MAX)),
            answer: None,
        };
        Some((posted, request.pes))
    }

    /// The bytes of an array of a call.
    fn bytes(&self, array: &Array) -> Option<Vec<u8>> {
        let memory = self.memories.get(&array.memory)?.borrow();
        let bytes = memory.get(array.offset..array.offset + array.bytes);
        bytes.map(<[u8]>::to_vec)
    }

    /// What a function asks its caller to change.
    pub(crate) fn asks(&self, posted: &Posted) -> Vec<u8> {
        let bytes = posted.arrays.first().and_then(|array| self.bytes(array));
        let mut bytes = bytes.unwrap_or_default();
        bytes.truncate(ASKED);
        bytes
    }

    /// Runs a call. `applied` lists the methods that were applied to its object, this one included.
    /// Fails if the call's memory does not exist.
    pub(crate) fn compute(
        &mut self,
        posted: &Posted,
        user: u8,
        applied: &[Tag],
    ) -> Result<(), String> {
        let missing = || format!("call {} runs without its memory", posted.tag);
        let read = posted.arrays.iter().find(|array| array.is_read);
        let read = match read {
            None => Vec::new(),
            Some(array) => self.bytes(array).ok_or_else(missing)?,
        };
        if posted.function == BOTH {
            return self.compute_both(posted, user, read);
        }
        for array in posted.arrays.iter().filter(|array| array.is_written) {
            let memory = self.memories.get(&array.memory).ok_or_else(missing)?;
            let mut memory = memory.borrow_mut();
            let bytes = memory.get_mut(array.offset..array.offset + array.bytes);
            let bytes = bytes.ok_or_else(missing)?;
            match posted.function {
                // The second half keeps what was in memory.
                MAKE => bytes[..array.bytes / 2].fill(user << 4 | 5),
                LOOK => {
                    for (index, byte) in bytes.iter_mut().enumerate() {
                        *byte = read.get(index).map_or(0, |read| look(user, *read));
                    }
                }
                interfaces::ADD => bytes.copy_from_slice(&state(user, applied)),
                function => {
                    let asked = posted.answer.iter().flatten().filter(|_| function == ASK);
                    let mut changed = read;
                    for (byte, answer) in changed.iter_mut().zip(asked) {
                        *byte = *answer;
                    }
                    for (byte, before) in bytes.iter_mut().zip(&changed) {
                        *byte = next(*before);
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Runs a call of `BOTH`. `changed` has the bytes of its first array.
    fn compute_both(
        &mut self,
        posted: &Posted,
        user: u8,
        mut changed: Vec<u8>,
    ) -> Result<(), String> {
        let missing = || format!("call {} runs without its memory", posted.tag);
        let [first, second, third] = posted.arrays[..] else {
            return Err(missing());
        };
        let looked = self.bytes(&second).ok_or_else(missing)?;
        let mut looked: Vec<u8> = looked.iter().map(|byte| look(user, *byte)).collect();
        looked.resize(LOOKED, 0);
        changed.iter_mut().for_each(|byte| *byte = next(*byte));
        for (array, bytes) in [(first, changed), (third, looked)] {
            let memory = self.memories.get(&array.memory).ok_or_else(missing)?;
            let mut memory = memory.borrow_mut();
            let place = memory.get_mut(array.offset..array.offset + array.bytes);
            place.ok_or_else(missing)?.copy_from_slice(&bytes);
        }
        Ok(())
    }
}
