//! What is simulated.

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
            /// Each of them, or not, as a seed says.
            fn some(random: &mut SplitMix64) -> $type {
                $type { $($name: random.chance(0.5),)* }
            }

            /// How many there are.
            pub const COUNT: usize = [$(stringify!($name)),*].len();

            /// The same without one of them, by its number; none where that is not there.
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
    /// What may go wrong.
    Faults {
        /// Workers crash.
        worker_crashes,
        /// Workers never finish what they run.
        worker_hangs,
        /// Workers take long to start, or do not start.
        worker_starts_badly,
        /// The disk has no room.
        disk_is_full,
        /// Files cannot be read or written.
        disk_errors,
        /// The disk forgets what it has said was written.
        disk_forgets,
        /// The disk takes long.
        disk_is_slow,
        /// Connections are reset.
        resets,
        /// Bytes stand still on their way.
        stalls,
        /// Clients go without a word that reaches the server.
        half_open,
        /// The server is killed between any two actions.
        kills,
        /// The server's machine stops for a while.
        pauses,
        /// The calendar jumps forwards and backwards.
        calendar_jumps,
        /// The server is told to end, when its calls have or at once, and is started again.
        ends,
    }
}

flags! {
    /// What may go wrong where there are metaservers.
    GridFaults {
        /// Metaservers are killed, between two writes to their store too.
        metaserver_kills,
        /// Two of servers, metaservers and clients do not reach each other for a while.
        cuts,
    }
}

flags! {
    /// What clients do besides calls, durable calls and stored arrays.
    Subjects {
        /// Objects, some of which stay.
        objects,
        /// Data with names, and files of the data folder.
        names,
        /// Processor elements that are reserved.
        reservations,
        /// Bandwidth that is reserved.
        lanes,
        /// Functions that call their caller back.
        callbacks,
        /// Memory that clients share with the server.
        segments,
        /// Libraries that are registered while the server runs.
        libraries,
        /// Ids of other users are tried.
        trespasses,
    }
}

/// A deliberate fault that is to be found.
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
        let of_server = ServerFlaw::ALL.into_iter().map(Flaw::OfServer);
        of_server.chain(GridFlaw::ALL.into_iter().map(Flaw::OfGrid))
    }

    /// What is simulated on this thread has this fault, or none, from now on.
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

    /// A history that may show it.
    pub fn options(self, seed: u64) -> Options {
        let options = match self {
            Flaw::OfServer(_) => Options::of_one_server(seed),
            Flaw::OfGrid(_) => Options::of_grid(seed),
        };
        Options {
            flaw: Some(self),
            ..options
        }
    }
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where all chance comes from.
    pub seed: u64,
    /// How many clients there are.
    pub clients: u32,
    /// How much each of them wants done.
    pub wishes: u32,
    /// How many servers there are.
    pub servers: u32,
    /// How many metaservers; with some of them, all calls go by them.
    pub metaservers: u32,
    /// Whether metaservers share a store.
    pub stores: bool,
    /// What may go wrong.
    pub faults: Faults,
    /// What else may, where there are metaservers.
    pub grid_faults: GridFaults,
    /// What clients do besides calls.
    pub subjects: Subjects,
    /// A deliberate fault that is to be found.
    pub flaw: Option<Flaw>,
    /// Whether the history is written down.
    pub traces: bool,
}

impl Options {
    /// What a seed stands for: a quarter of them for servers with metaservers.
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
