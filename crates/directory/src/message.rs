//! What servers, clients and metaservers tell each other: CBOR (RFC 8949), each message an array
//! whose fields are only ever added at the end. `docs/spec/protocol.md` has the frames.

mod data;
pub(crate) mod record;

pub use data::{
    DataFound, DataListed, Datum, DatumName, FindData, Hold, ListData, ListedDatum, MOST_DATA,
    MOST_HELD, Need,
};

use farcall_schedule::{Learned, Predictor, Profile};
use minicbor::{Decode, Encode};

/// Longest name of a function, site, agent or address, in bytes.
pub const MOST_NAME: usize = 512;
/// Functions of one server.
pub const MOST_FUNCTIONS: usize = 10_000;
/// Jobs of which a report tells one by one.
pub const MOST_JOBS: usize = 256;
/// Reservations of which a report tells.
pub const MOST_BOOKED: usize = 256;
/// Functions of whose times one report tells.
pub const MOST_LEARNED: usize = 64;
/// Servers that a choice excludes.
pub const MOST_EXCLUDED: usize = 256;
/// Processor elements of a server.
pub const MOST_PES: u32 = 1 << 16;
/// No call takes longer: some centuries.
const MOST_SECONDS: f64 = 1e10;

/// A message that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub(crate) String);

/// A message with its bounds.
pub trait Message: Sized + Encode<()> + for<'b> Decode<'b, ()> {
    /// Whether every count, length and number is one that can be.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self) -> Result<(), Invalid>;

    /// As it travels.
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

/// Tells interfaces apart: FNV-1a over the canonical text. Two servers with the same digest have
/// the same interface; a client compares the texts before it calls.
pub fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A function that a server has.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Function {
    /// Qualified name.
    #[n(0)]
    pub name: String,
    /// What it does, in a line.
    #[n(1)]
    pub title: String,
    /// [`digest`] of its interface.
    #[n(2)]
    pub digest: u64,
    /// Whether a call may be run again after a failure.
    #[n(3)]
    pub repeatable: bool,
    /// The library behind it, and its version.
    #[n(4)]
    pub library: Option<String>,
}

/// A server joins, or says anew what it is.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Join {
    /// A random number that it has drawn when it started.
    #[n(0)]
    pub server: u64,
    /// Where clients reach it.
    #[n(1)]
    pub address: String,
    /// Program and version.
    #[n(2)]
    pub agent: String,
    /// Processor elements.
    #[n(3)]
    pub pes: u32,
    /// Bytes for calls.
    #[n(4)]
    pub memory: u64,
    /// All its functions.
    #[n(5)]
    pub functions: Vec<Function>,
}

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Phase {
    /// Its arguments are on the way.
    #[n(0)]
    Coming,
    /// It waits for processor elements.
    #[n(1)]
    Waiting,
    /// It computes.
    #[n(2)]
    Running,
    /// Its results are on the way.
    #[n(3)]
    Returning,
}

/// Processor elements that are reserved.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
pub struct Booked {
    /// How many.
    #[n(0)]
    pub pes: u32,
    /// Seconds until it begins.
    #[n(1)]
    pub from_s: f64,
    /// Seconds until it is over.
    #[n(2)]
    pub until_s: f64,
}

/// A call at a server.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
pub struct QueuedCall {
    /// Where it is.
    #[n(0)]
    pub phase: Phase,
    /// Processor elements it has, or will have.
    #[n(1)]
    pub pes: u32,
    /// Predicted seconds of computation that are left.
    #[n(2)]
    pub seconds: f64,
    /// Bytes of arguments that are to come.
    #[n(3)]
    pub up: u64,
    /// Bytes of results that are to go.
    #[n(4)]
    pub down: u64,
    /// Whether it has, or will have, processor elements that are reserved.
    #[n(5)]
    pub reserved: Option<bool>,
}

impl QueuedCall {
    /// Whether it has, or will have, processor elements that are reserved.
    pub fn is_reserved(&self) -> bool {
        self.reserved == Some(true)
    }

    /// Seconds that are left of a call that computes, so many seconds later.
    pub(crate) fn left_after(&self, seconds: f64) -> f64 {
        (self.seconds - seconds).max(LEAST_LEFT * self.seconds)
    }
}

/// What was learned of one octave of work on so many processor elements.
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
    /// What a profile knows.
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

    /// The profile of which it tells; what cannot have been learned is left out.
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

/// How a server stands; renews its lease.
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
    /// Jobs that it has.
    #[n(3)]
    pub calls: u32,
    /// The first of them, in the order in which they will compute.
    #[n(4)]
    pub queued: Vec<QueuedCall>,
    /// Times of functions that have changed.
    #[n(5)]
    pub learned: Vec<Times>,
    /// What is reserved of its processor elements.
    #[n(6)]
    pub booked: Option<Vec<Booked>>,
}

/// What takes longer than predicted takes a while yet: this share of what was predicted.
const LEAST_LEFT: f64 = 0.1;

impl Report {
    /// What is reserved of its processor elements.
    pub fn booked(&self) -> &[Booked] {
        self.booked.as_deref().unwrap_or_default()
    }

    /// The same report, so many seconds later.
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

/// Answers a server.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
pub struct Noted {
    /// Seconds for which the lease holds from now.
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

/// Answers [`Find`].
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Found {
    /// Its qualified name.
    #[n(0)]
    pub function: String,
    /// The servers that have it, with nothing of their other functions, and the paths to them.
    #[n(1)]
    pub records: Vec<crate::Record>,
}

/// A call for which a server is sought.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Choose {
    /// Qualified name.
    #[n(0)]
    pub function: String,
    /// [`digest`] of the interface that the caller knows.
    #[n(1)]
    pub digest: u64,
    /// CalcOrder's operations, or bytes.
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
    /// Fewest processor elements; none for the server's own number.
    #[n(6)]
    pub fewest: Option<u32>,
    /// Most processor elements.
    #[n(7)]
    pub most: Option<u32>,
    /// Servers that are out of the question.
    #[n(8)]
    pub exclude: Vec<u64>,
    /// Whether to tell of all servers, and to place nothing.
    #[n(9)]
    pub explain: bool,
    /// Data that it reads by name, of which nothing is in `up`.
    #[n(10)]
    pub data: Option<Vec<Need>>,
}

impl Choose {
    /// Data that it reads by name.
    pub fn needs(&self) -> &[Need] {
        self.data.as_deref().unwrap_or_default()
    }
}

/// Of what the time of a call consists, all in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
pub struct TimeParts {
    /// Until the arguments are there.
    #[n(0)]
    pub up_s: f64,
    /// Until it starts.
    #[n(1)]
    pub wait_s: f64,
    /// The computation.
    #[n(2)]
    pub compute_s: f64,
    /// Until the results are back.
    #[n(3)]
    pub down_s: f64,
    /// Processor elements.
    #[n(4)]
    pub pes: u32,
    /// Two thirds of such calls take between the sum divided by this and multiplied by it.
    #[n(5)]
    pub factor: f64,
    /// Whether a call of the function was ever observed there.
    #[n(6)]
    pub learned: bool,
    /// By how much the call delays others, all together; 0 where the metaserver does not say it.
    #[n(7)]
    #[cbor(default)]
    pub others_s: f64,
}

impl TimeParts {
    /// Until the results are there.
    pub fn seconds(&self) -> f64 {
        self.up_s + self.wait_s + self.compute_s + self.down_s
    }
}

/// A server that could have a call, or not.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Offer {
    /// Its number.
    #[n(0)]
    pub server: u64,
    /// Where it is.
    #[n(1)]
    pub address: String,
    /// What the call would take there.
    #[n(2)]
    pub terms: Option<TimeParts>,
    /// Why it cannot have it.
    #[n(3)]
    pub refusal: Option<String>,
}

/// Answers [`Choose`].
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Chosen {
    /// The number of the placement; 0 where nothing was placed.
    #[n(0)]
    pub placement: u64,
    /// The server chosen; or all, the soonest first.
    #[n(1)]
    pub offers: Vec<Offer>,
}

/// Bytes that have travelled, and the seconds that they took.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
pub struct Transfer {
    /// Bytes.
    #[n(0)]
    pub bytes: u64,
    /// Seconds from the first byte at one host to the last at the other.
    #[n(1)]
    pub seconds: f64,
}

/// What became of a call, or of a probe. Nothing answers it.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Observe {
    /// The server.
    #[n(0)]
    pub server: u64,
    /// The placement; 0 for a probe.
    #[n(1)]
    pub placement: u64,
    /// To the server.
    #[n(2)]
    pub up: Option<Transfer>,
    /// From the server.
    #[n(3)]
    pub down: Option<Transfer>,
    /// The server could not be reached, or was lost.
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
        false => Err(Invalid(format!("{value} is no number of seconds"))),
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
            false => Err(Invalid(format!("{} is no amount of work", self.work))),
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
