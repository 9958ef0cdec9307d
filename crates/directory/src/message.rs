//! The messages between servers, clients and metaservers.
//!
//! A message is CBOR (RFC 8949): an array whose fields are only ever added at the end. Each is
//! checked against bounds when it is read. `docs/spec/protocol.md` describes the frames.

mod data;
pub(crate) mod record;

pub use data::{
    DataFound, DataListed, Datum, DatumName, FindData, Hold, ListData, ListedDatum, MOST_DATA,
    MOST_HELD, Need, source_name,
};

use farcall_rpc_proto::TraceContext;
use farcall_schedule::{Learned, MOST_PES, Predictor, Profile};
use minicbor::{Decode, Encode};

/// Longest name of a function, site, agent or address, in bytes.
pub const MOST_NAME: usize = 512;
/// Most functions of one server.
pub const MOST_FUNCTIONS: usize = 10_000;
/// Most calls that a report describes one by one.
pub const MOST_JOBS: usize = 256;
/// Most reservations in a report.
pub const MOST_BOOKED: usize = 256;
/// Most functions whose times are in one report.
pub const MOST_LEARNED: usize = 64;
/// Most servers that a placement excludes.
pub const MOST_EXCLUDED: usize = 256;
/// Longest time of a call: some centuries.
pub(crate) const MOST_SECONDS: f64 = 1e10;

/// A message that breaks its bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub(crate) String);

/// A message with its bounds.
pub trait Message: Sized + Encode<()> + for<'b> Decode<'b, ()> {
    /// Checks every count, length and number.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self) -> Result<(), Invalid>;

    /// The encoded message.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Writing to a Vec cannot fail.
        let _ = minicbor::encode(self, &mut bytes);
        bytes
    }

    /// Reads and checks a message.
    ///
    /// # Errors
    /// What is wrong with it.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Invalid> {
        let message: Self = minicbor::decode(bytes).map_err(|error| Invalid(error.to_string()))?;
        message.check()?;
        Ok(message)
    }
}

/// A number that identifies an interface: FNV-1a over its canonical text. Servers with the same
/// digest have the same interface; a client compares the texts before it calls.
pub fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A function of a server.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Function {
    /// Qualified name.
    #[n(0)]
    pub name: String,
    /// Its one-line description.
    #[n(1)]
    pub title: String,
    /// [`digest`] of its interface.
    #[n(2)]
    pub digest: u64,
    /// Whether a call may run again after a failure.
    #[n(3)]
    pub repeatable: bool,
    /// The library behind it, and its version.
    #[n(4)]
    pub library: Option<String>,
}

/// A server joins, or updates its record.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Join {
    /// A random number that the server drew when it started.
    #[n(0)]
    pub server: u64,
    /// Address for clients.
    #[n(1)]
    pub address: String,
    /// Program and version.
    #[n(2)]
    pub agent: String,
    /// Processor elements.
    #[n(3)]
    pub pes: u32,
    /// Bytes of memory for calls.
    #[n(4)]
    pub memory: u64,
    /// All its functions.
    #[n(5)]
    pub functions: Vec<Function>,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Phase {
    /// Its arguments are arriving.
    #[n(0)]
    Coming,
    /// It waits for processor elements.
    #[n(1)]
    Waiting,
    /// It computes.
    #[n(2)]
    Running,
    /// Its results are leaving.
    #[n(3)]
    Returning,
}

/// Reserved processor elements.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
pub struct Booked {
    /// How many.
    #[n(0)]
    pub pes: u32,
    /// Seconds until the reservation begins.
    #[n(1)]
    pub from_s: f64,
    /// Seconds until it ends.
    #[n(2)]
    pub until_s: f64,
}

/// A call at a server.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
pub struct QueuedCall {
    /// How far it has come.
    #[n(0)]
    pub phase: Phase,
    /// Processor elements that it has or will have.
    #[n(1)]
    pub pes: u32,
    /// Predicted seconds of computation that remain.
    #[n(2)]
    pub seconds: f64,
    /// Argument bytes that have not arrived yet.
    #[n(3)]
    pub up: u64,
    /// Result bytes that have not left yet.
    #[n(4)]
    pub down: u64,
    /// Whether it has reserved processor elements, or will have.
    #[n(5)]
    pub reserved: Option<bool>,
}

impl QueuedCall {
    /// Whether it has reserved processor elements, or will have.
    pub fn is_reserved(&self) -> bool {
        self.reserved == Some(true)
    }

    /// Seconds of computation that remain of a running call after this many seconds.
    pub(crate) fn left_after(&self, seconds: f64) -> f64 {
        (self.seconds - seconds).max(LEAST_LEFT * self.seconds)
    }
}

/// Learned times for one octave of work on a number of processor elements.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
pub struct Rate {
    /// Processor elements.
    #[n(0)]
    pub pes: u32,
    /// Work between 2^octave and twice that.
    #[n(1)]
    pub octave: u8,
    /// Mean logarithm of the seconds for a unit of work.
    #[n(2)]
    pub mean: f64,
    /// Its variance.
    #[n(3)]
    pub variance: f64,
    /// Calls observed.
    #[n(4)]
    pub calls: u32,
}

/// The times of a function at a server.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Times {
    /// Qualified name.
    #[n(0)]
    pub function: String,
    /// By processor elements, then by octave.
    #[n(1)]
    pub rates: Vec<Rate>,
}

impl Times {
    /// The times in a profile.
    pub fn of(function: &str, profile: &Profile) -> Times {
        let predictors = profile.predictors().iter();
        let rates = predictors.flat_map(|(pes, predictor)| {
            predictor.learned().map(|learned| Rate {
                pes: *pes,
                octave: learned.octave,
                mean: learned.mean,
                variance: learned.variance,
                calls: learned.calls,
            })
        });
        Times {
            function: function.to_string(),
            rates: rates.collect(),
        }
    }

    /// The profile with these times. Impossible values are left out.
    pub fn profile(&self) -> Profile {
        let groups = self.rates.chunk_by(|one, other| one.pes == other.pes);
        Profile::resume(groups.filter_map(|group| {
            let learned = group.iter().map(|rate| Learned {
                octave: rate.octave,
                mean: rate.mean,
                variance: rate.variance,
                calls: rate.calls,
            });
            Some((group.first()?.pes, Predictor::resume(learned)?))
        }))
    }
}

/// A server's status report, which renews its lease.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Report {
    /// Its number.
    #[n(0)]
    pub server: u64,
    /// Whether it takes calls.
    #[n(1)]
    pub accepts: bool,
    /// Bytes free for calls.
    #[n(2)]
    pub memory: u64,
    /// Number of its calls.
    #[n(3)]
    pub calls: u32,
    /// The first of its calls, in the order in which they will compute.
    #[n(4)]
    pub queued: Vec<QueuedCall>,
    /// Learned times that have changed.
    #[n(5)]
    pub learned: Vec<Times>,
    /// Reservations of its processor elements.
    #[n(6)]
    pub booked: Option<Vec<Booked>>,
}

/// A call that takes longer than predicted is assumed to need this share of the prediction again.
const LEAST_LEFT: f64 = 0.1;

impl Report {
    /// Reservations of its processor elements.
    pub fn booked(&self) -> &[Booked] {
        self.booked.as_deref().unwrap_or_default()
    }

    /// The calls that compute, of those that the report names.
    pub fn running(&self) -> impl Iterator<Item = &QueuedCall> {
        let queued = self.queued.iter();
        queued.filter(|call| call.phase == Phase::Running)
    }

    /// The report as it would be this many seconds later.
    #[must_use]
    pub fn after(mut self, seconds: f64) -> Report {
        let running = self.queued.iter_mut();
        for call in running.filter(|call| call.phase == Phase::Running) {
            call.seconds = call.left_after(seconds);
        }
        if let Some(booked) = &mut self.booked {
            for one in booked.iter_mut() {
                one.from_s = (one.from_s - seconds).max(0.0);
                one.until_s -= seconds;
            }
            booked.retain(|one| one.until_s > 0.0);
        }
        self
    }
}

/// A server leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Leave {
    /// Its number.
    #[n(0)]
    pub server: u64,
}

/// The answer to a server.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
pub struct Noted {
    /// Seconds until the lease ends.
    #[n(0)]
    pub lease_s: f64,
}

/// Asks which servers have a function.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Find {
    /// `module/name`, or `name` alone.
    #[n(0)]
    pub function: String,
}

/// The answer to [`Find`].
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Found {
    /// Its qualified name.
    #[n(0)]
    pub function: String,
    /// Records of the servers that have the function, without their other functions, and of the
    /// paths to them.
    #[n(1)]
    pub records: Vec<crate::Record>,
}

/// Asks for a placement.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Choose {
    /// Qualified name.
    #[n(0)]
    pub function: String,
    /// [`digest`] of the interface that the client knows.
    #[n(1)]
    pub digest: u64,
    /// Operations by `CalcOrder`, or bytes.
    #[n(2)]
    pub work: f64,
    /// Bytes of arguments.
    #[n(3)]
    pub up: u64,
    /// Bytes of results.
    #[n(4)]
    pub down: u64,
    /// Bytes of memory at the server.
    #[n(5)]
    pub memory: u64,
    /// Fewest processor elements; `None` leaves it to the server.
    #[n(6)]
    pub fewest: Option<u32>,
    /// Most processor elements.
    #[n(7)]
    pub most: Option<u32>,
    /// Servers that must not be chosen.
    #[n(8)]
    pub exclude: Vec<u64>,
    /// Whether to describe all servers and place nothing.
    #[n(9)]
    pub explain: bool,
    /// Named data that it reads. Their bytes are not in `up`.
    #[n(10)]
    pub data: Option<Vec<Need>>,
    /// The trace that the call belongs to.
    #[cbor(n(11), with = "farcall_rpc_proto::trace", has_nil)]
    pub trace: Option<TraceContext>,
}

impl Choose {
    /// Named data that it reads.
    pub fn needs(&self) -> &[Need] {
        self.data.as_deref().unwrap_or_default()
    }
}

/// The parts of a call's time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
pub struct TimeParts {
    /// Transfer of the arguments.
    #[n(0)]
    pub up_s: f64,
    /// Wait for its turn after that.
    #[n(1)]
    pub wait_s: f64,
    /// The computation.
    #[n(2)]
    pub compute_s: f64,
    /// Transfer of the results.
    #[n(3)]
    pub down_s: f64,
    /// Processor elements.
    #[n(4)]
    pub pes: u32,
    /// Spread: two thirds of such calls take between the sum divided by this and the sum times
    /// this.
    #[n(5)]
    pub factor: f64,
    /// Whether the server has seen a call of the function.
    #[n(6)]
    pub learned: bool,
    /// Delay that the call causes to all other calls together; 0 if the metaserver does not say.
    #[n(7)]
    #[cbor(default)]
    pub others_s: f64,
}

impl TimeParts {
    /// Time until the results are back: the sum of the parts.
    pub fn seconds(&self) -> f64 {
        self.up_s + self.wait_s + self.compute_s + self.down_s
    }
}

/// The estimate for one server, or the reason why it cannot run the call.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Offer {
    /// Number of the server.
    #[n(0)]
    pub server: u64,
    /// Address of the server.
    #[n(1)]
    pub address: String,
    /// Predicted times of the call there.
    #[n(2)]
    pub terms: Option<TimeParts>,
    /// Why the server cannot run the call.
    #[n(3)]
    pub refusal: Option<String>,
}

/// The answer to [`Choose`].
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Chosen {
    /// Number of the placement; 0 if nothing was placed.
    #[n(0)]
    pub placement: u64,
    /// The chosen server, or all servers with the soonest first.
    #[n(1)]
    pub offers: Vec<Offer>,
}

/// A transfer: bytes and seconds.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
pub struct Transfer {
    /// Bytes.
    #[n(0)]
    pub bytes: u64,
    /// Seconds from the first byte at the sender to the last byte at the receiver.
    #[n(1)]
    pub seconds: f64,
}

/// The outcome of a call or a probe. It has no answer.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Observe {
    /// The server.
    #[n(0)]
    pub server: u64,
    /// The placement; 0 for a probe.
    #[n(1)]
    pub placement: u64,
    /// Transfer to the server.
    #[n(2)]
    pub up: Option<Transfer>,
    /// Transfer from the server.
    #[n(3)]
    pub down: Option<Transfer>,
    /// Whether the server could not be reached, or was lost.
    #[n(4)]
    pub lost: bool,
}

fn name(what: &str, text: &str) -> Result<(), Invalid> {
    match text.len() {
        1..=MOST_NAME => Ok(()),
        length => Err(Invalid(format!(
            "{what} has {length} bytes; 1 to {MOST_NAME} are allowed"
        ))),
    }
}

fn count(what: &str, given: usize, most: usize) -> Result<(), Invalid> {
    match given <= most {
        true => Ok(()),
        false => Err(Invalid(format!(
            "{given} {what}; at most {most} are allowed"
        ))),
    }
}

fn seconds(value: f64) -> Result<(), Invalid> {
    match (0.0..=MOST_SECONDS).contains(&value) {
        true => Ok(()),
        false => Err(Invalid(format!("{value} is not a number of seconds"))),
    }
}

impl Message for Join {
    fn check(&self) -> Result<(), Invalid> {
        name("the address", &self.address)?;
        name("the agent", &self.agent)?;
        count("processor elements", self.pes as usize, MOST_PES as usize)?;
        count("functions", self.functions.len(), MOST_FUNCTIONS)?;
        self.functions.iter().try_for_each(|function| {
            name("a function", &function.name)?;
            count("bytes of a title", function.title.len(), MOST_NAME)?;
            let library = function.library.as_ref().map_or(0, String::len);
            count("bytes of a library", library, MOST_NAME)
        })
    }
}

impl Message for Report {
    fn check(&self) -> Result<(), Invalid> {
        count("jobs", self.queued.len(), MOST_JOBS)?;
        count("functions with times", self.learned.len(), MOST_LEARNED)?;
        count("reservations", self.booked().len(), MOST_BOOKED)?;
        for booked in self.booked() {
            count("processor elements", booked.pes as usize, MOST_PES as usize)?;
            [booked.from_s, booked.until_s]
                .into_iter()
                .try_for_each(seconds)?;
        }
        for times in &self.learned {
            name("a function", &times.function)?;
            count("rates", times.rates.len(), 1024)?;
        }
        self.queued
            .iter()
            .try_for_each(|call| seconds(call.seconds))
    }
}

impl Message for Leave {
    fn check(&self) -> Result<(), Invalid> {
        Ok(())
    }
}

impl Message for Noted {
    fn check(&self) -> Result<(), Invalid> {
        seconds(self.lease_s)
    }
}

impl Message for Find {
    fn check(&self) -> Result<(), Invalid> {
        name("the function", &self.function)
    }
}

impl Message for Found {
    fn check(&self) -> Result<(), Invalid> {
        name("the function", &self.function)?;
        self.records.iter().try_for_each(Message::check)
    }
}

impl Message for Choose {
    fn check(&self) -> Result<(), Invalid> {
        name("the function", &self.function)?;
        count("servers excluded", self.exclude.len(), MOST_EXCLUDED)?;
        count("data needed", self.needs().len(), MOST_HELD)?;
        match self.work.is_finite() && self.work >= 0.0 {
            true => Ok(()),
            false => Err(Invalid(format!("{} is not an amount of work", self.work))),
        }
    }
}

impl Message for Chosen {
    fn check(&self) -> Result<(), Invalid> {
        self.offers.iter().try_for_each(|offer| {
            name("the address", &offer.address)?;
            let Some(terms) = &offer.terms else {
                return Ok(());
            };
            let parts = [terms.up_s, terms.wait_s, terms.compute_s, terms.down_s];
            parts.into_iter().try_for_each(seconds)
        })
    }
}

impl Message for Observe {
    fn check(&self) -> Result<(), Invalid> {
        let transfers = [self.up, self.down].into_iter().flatten();
        transfers.map(|one| one.seconds).try_for_each(seconds)
    }
}
