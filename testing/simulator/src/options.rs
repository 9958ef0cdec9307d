//! The options of a simulation: its size, its faults, and what its clients do. They follow from the
//! seed alone, so a seed always plays the same history.

use farcall_directory::Flaw as GridFlaw;
use farcall_random::SplitMix64;
use farcall_server_proto::Flaw as ServerFlaw;

macro_rules! flags {
    ($(#[$outer:meta])* $type:ident { $($(#[$doc:meta])* $name:ident,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type {
            $($(#[$doc])* pub $name: bool,)*
        }

        impl $type {
            /// Each one is on or off, at random.
            fn some(random: &mut SplitMix64) -> $type {
                $type { $($name: random.chance(0.5),)* }
            }

            /// How many there are.
            pub const COUNT: usize = [$(stringify!($name)),*].len();

            /// The same without the one of this number; `None` if that one is off.
            pub fn without(mut self, number: usize) -> Option<$type> {
                let all: [&mut bool; $type::COUNT] = [$(&mut self.$name),*];
                std::mem::replace(all[number], false).then_some(self)
            }

            /// Their names.
            pub fn names(self) -> Vec<&'static str> {
                let mut names = Vec::new();
                $(if self.$name { names.push(stringify!($name)); })*
                names
            }
        }
    };
}

flags! {
    /// Faults of servers, workers, disks and connections.
    Faults {
        /// Workers crash.
        worker_crashes,
        /// Workers never finish what they run.
        worker_hangs,
        /// Workers take long to start, or do not start.
        worker_starts_badly,
        /// The disk is full.
        disk_is_full,
        /// The disk reports errors.
        disk_errors,
        /// The disk loses what it has reported as written.
        disk_forgets,
        /// The disk is slow.
        disk_is_slow,
        /// Connections are reset.
        resets,
        /// Bytes stop on their way for a while.
        stalls,
        /// Clients disappear, and the server does not notice.
        half_open,
        /// The server is killed between any two actions.
        kills,
        /// The server stands still for a while.
        pauses,
        /// The system clock jumps forwards and backwards, by days.
        calendar_jumps,
        /// The server is told to end.
        ends,
        /// One log of the journal is damaged while no server runs.
        disk_rots,
    }
}

flags! {
    /// Faults of the operating system.
    SystemFaults {
        /// It refuses memory now and then. What is lost by that looks like an error of the disk, so
        /// this needs that fault.
        refuses_memory,
    }
}

flags! {
    /// Faults of simulations with metaservers.
    GridFaults {
        /// Metaservers are killed, also between two writes to their store.
        metaserver_kills,
        /// Two servers, metaservers or clients cannot reach each other for a while.
        cuts,
    }
}

flags! {
    /// What clients do besides calls, durable calls and stored arrays.
    Subjects {
        /// Objects, some of them persistent.
        objects,
        /// Named data, and files of the data folder.
        names,
        /// Processor elements that are reserved.
        reservations,
        /// Bandwidth that is reserved.
        lanes,
        /// Callbacks.
        callbacks,
        /// Memory that clients share with the server.
        segments,
        /// Libraries that are registered while the server runs.
        libraries,
        /// Ids of other users are tried.
        trespasses,
        /// A client sends its data byte by byte. Its bytes stall, so this needs that fault.
        dawdlers,
        /// The files of libraries are replaced while the server runs.
        replacements,
        /// Arrays that the server reads from outside of Farcall.
        sources,
        /// Clients ask how their calls fare.
        statuses,
        /// Calls with two stored arrays, which are larger than the memory for arrays.
        pairs,
        /// Durable calls are kept for seconds, forgotten at a client's wish, and listed.
        retentions,
        /// Arrays that are filled part by part, or read from other servers.
        parts,
        /// Calls with a stored array and one that travels, for which both need memory.
        mixtures,
        /// The outcomes of durable calls are asked for when they are submitted.
        outcomes,
    }
}

/// A deliberate fault, which the simulator must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Of one server.
    OfServer(ServerFlaw),
    /// Of metaservers, or of their clients.
    OfGrid(GridFlaw),
}

impl Flaw {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Flaw> {
        let of_server = ServerFlaw::ALL.iter().copied().map(Flaw::OfServer);
        of_server.chain(GridFlaw::ALL.iter().copied().map(Flaw::OfGrid))
    }

    /// Activates a deliberate fault, or none, for all simulations on this thread.
    pub(crate) fn plant(flaw: Option<Flaw>) {
        let of = |server, grid| {
            ServerFlaw::plant(server);
            GridFlaw::plant(grid);
        };
        match flaw {
            None => of(None, None),
            Some(Flaw::OfServer(flaw)) => of(Some(flaw), None),
            Some(Flaw::OfGrid(flaw)) => of(None, Some(flaw)),
        }
    }

    /// Options of a history in which the fault can show, without faults of the system.
    pub fn options(self, seed: u64) -> Options {
        let options = match self {
            Flaw::OfServer(_) => Options::of_one_server(seed),
            Flaw::OfGrid(_) => Options::of_grid(seed),
        };
        Options {
            flaw: Some(self),
            system_faults: SystemFaults::default(),
            ..options
        }
    }
}

/// The options of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The seed of all random numbers.
    pub seed: u64,
    /// How many clients there are.
    pub clients: u32,
    /// How many requests each client makes.
    pub wishes: u32,
    /// How many servers there are.
    pub servers: u32,
    /// How many metaservers there are. If there are any, they place all calls.
    pub metaservers: u32,
    /// Whether metaservers share a store.
    pub stores: bool,
    /// Faults of servers, workers, disks and connections.
    pub faults: Faults,
    /// Faults of the operating system.
    pub system_faults: SystemFaults,
    /// Faults of simulations with metaservers.
    pub grid_faults: GridFaults,
    /// What clients do besides calls.
    pub subjects: Subjects,
    /// A deliberate fault to find.
    pub flaw: Option<Flaw>,
    /// Whether the history is recorded in words.
    pub traces: bool,
}

impl Options {
    /// The options that belong to a seed. A quarter of the seeds simulate servers with metaservers.
    pub fn of_seed(seed: u64) -> Options {
        match seed % 4 {
            2 => Options::of_grid(seed),
            _ => Options::of_one_server(seed),
        }
    }

    fn of_one_server(seed: u64) -> Options {
        let mut random = SplitMix64::new(seed ^ 0x5EED);
        Options {
            seed,
            clients: 1 + random.below(6) as u32,
            wishes: 10 + random.below(60) as u32,
            servers: 1,
            metaservers: 0,
            stores: false,
            faults: Faults::some(&mut random),
            system_faults: SystemFaults::some(&mut SplitMix64::new(seed ^ 0x5757)),
            grid_faults: GridFaults::default(),
            subjects: Subjects::some(&mut random),
            flaw: None,
            traces: false,
        }
    }

    fn of_grid(seed: u64) -> Options {
        let mut random = SplitMix64::new(seed ^ 0x6121D);
        Options {
            servers: 2 + random.below(3) as u32,
            metaservers: 1 + random.below(2) as u32,
            stores: random.chance(0.5),
            grid_faults: GridFaults::some(&mut random),
            ..Options::of_one_server(seed)
        }
    }
}
