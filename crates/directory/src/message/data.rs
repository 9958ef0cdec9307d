//! What servers, clients and metaservers tell each other of named data.

use super::{Invalid, MOST_EXCLUDED, Message, Offer, count, name};
use minicbor::{Decode, Encode};

/// Named data of one server.
pub const MOST_DATA: usize = 4096;
/// Named data of which one message tells.
pub const MOST_HELD: usize = 512;
/// Dimensions of data.
const MOST_DIMENSIONS: usize = 32;

/// The name of data, with their owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct DatumName {
    /// The name.
    #[n(0)]
    pub name: String,
    /// Whose they are; nobody's, by an empty text, where they are files of a server's data folder.
    #[n(1)]
    pub owner: String,
}

/// Data with a name, as one server has them.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Datum {
    /// Their name.
    #[n(0)]
    pub name: String,
    /// Whose they are, as in [`DatumName::owner`].
    #[n(1)]
    pub owner: String,
    /// When they were put, in milliseconds since 1970, UTC.
    #[n(2)]
    pub written: u64,
    /// Tells apart what was put at the same time.
    #[n(3)]
    pub stamp: u64,
    /// Counts the versions, for people.
    #[n(4)]
    pub number: u64,
    /// Whether all users may read them.
    #[n(5)]
    pub shared: bool,
    /// Type of the elements.
    #[n(6)]
    pub element: String,
    /// The shape.
    #[n(7)]
    pub shape: Vec<u64>,
    /// All bytes.
    #[n(8)]
    pub bytes: u64,
}

impl Datum {
    /// Names it.
    pub fn key(&self) -> DatumName {
        DatumName {
            name: self.name.clone(),
            owner: self.owner.clone(),
        }
    }

    /// Which version it is; the greater one is the newer, and two with the same are the same
    /// bytes.
    pub fn version(&self) -> (u64, u64) {
        (self.written, self.stamp)
    }

    /// A number for these data in this version.
    pub fn number(&self) -> u64 {
        let Datum {
            name,
            owner,
            written,
            stamp,
            ..
        } = self;
        super::digest(&format!("{written} {stamp} {name} {owner}"))
    }
}

/// A server tells which named data it holds.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Hold {
    /// Its number.
    #[n(0)]
    pub server: u64,
    /// Whether this begins anew: what was told before counts no more.
    #[n(1)]
    pub anew: bool,
    /// What it holds, or holds in another version.
    #[n(2)]
    pub held: Vec<Datum>,
    /// What it does not hold any more.
    #[n(3)]
    pub gone: Vec<DatumName>,
}

/// Asks who holds data of a name.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FindData {
    /// Their name.
    #[n(0)]
    pub name: String,
    /// Whose they are; without it, everybody's that the client may see.
    #[n(1)]
    pub owner: Option<String>,
    /// Asks as well where so many bytes could be put.
    #[n(2)]
    pub room: Option<u64>,
}

/// Answers [`FindData`].
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct DataFound {
    /// The servers that hold data of that name, and what they hold of it.
    #[n(0)]
    pub records: Vec<crate::Record>,
    /// A server that has room.
    #[n(1)]
    pub room: Option<Offer>,
}

/// Asks for the data with names that come after one.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ListData {
    /// The last one that is known.
    #[n(0)]
    pub after: Option<DatumName>,
}

/// Data with a name and where they are.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ListedDatum {
    /// The newest version.
    #[n(0)]
    pub datum: Datum,
    /// The addresses of servers that hold it.
    #[n(1)]
    pub holders: Vec<String>,
}

/// Answers [`ListData`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DataListed {
    /// By name and owner.
    #[n(0)]
    pub data: Vec<ListedDatum>,
    /// Ask for those after this one, if there are more.
    #[n(1)]
    pub next: Option<DatumName>,
}

/// Data that a call reads by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Need {
    /// [`Datum::number`].
    #[n(0)]
    pub number: u64,
    /// Their length.
    #[n(1)]
    pub bytes: u64,
}

fn owner(text: &str) -> Result<(), Invalid> {
    count("bytes of an owner", text.len(), super::MOST_NAME)
}

impl Message for DatumName {
    fn check(&self) -> Result<(), Invalid> {
        name("the name of data", &self.name)?;
        owner(&self.owner)
    }
}

impl Message for Datum {
    fn check(&self) -> Result<(), Invalid> {
        name("the name of data", &self.name)?;
        owner(&self.owner)?;
        name("the type of data", &self.element)?;
        count("dimensions", self.shape.len(), MOST_DIMENSIONS)
    }
}

impl Message for Hold {
    fn check(&self) -> Result<(), Invalid> {
        count("data held", self.held.len(), MOST_HELD)?;
        count("data gone", self.gone.len(), MOST_HELD)?;
        self.held.iter().try_for_each(Message::check)?;
        self.gone.iter().try_for_each(Message::check)
    }
}

impl Message for FindData {
    fn check(&self) -> Result<(), Invalid> {
        name("the name of data", &self.name)?;
        self.owner.as_deref().map_or(Ok(()), owner)
    }
}

impl Message for DataFound {
    fn check(&self) -> Result<(), Invalid> {
        self.records.iter().try_for_each(Message::check)?;
        let address = self.room.as_ref().map(|room| &room.address);
        address.map_or(Ok(()), |address| name("the address", address))
    }
}

impl Message for ListData {
    fn check(&self) -> Result<(), Invalid> {
        self.after.as_ref().map_or(Ok(()), Message::check)
    }
}

impl Message for DataListed {
    fn check(&self) -> Result<(), Invalid> {
        count("data listed", self.data.len(), MOST_HELD)?;
        self.data.iter().try_for_each(|one| {
            one.datum.check()?;
            count("holders", one.holders.len(), MOST_EXCLUDED)?;
            let mut holders = one.holders.iter();
            holders.try_for_each(|address| name("the address", address))
        })
    }
}
