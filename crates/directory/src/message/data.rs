//! Messages about named data between servers, clients and metaservers: what a server holds, and who
//! holds a name. The directory decides who may see what. Every message has bounds, which are
//! checked when it is read.

use super::{Invalid, MOST_EXCLUDED, Message, Offer, count, digest, name};
use farcall_rpc_proto::{ArrayForm, SourceOptions};
use minicbor::{Decode, Encode};

/// Most named data of one server.
pub const MOST_DATA: usize = 4096;
/// Most named data in one message.
pub const MOST_HELD: usize = 512;
/// Most dimensions of data.
const MOST_DIMENSIONS: usize = 32;

/// The name of data, with the owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct DatumName {
    /// The name.
    #[n(0)]
    pub name: String,
    /// The owner. Empty for files of a data folder, which belong to nobody.
    #[n(1)]
    pub owner: String,
}

/// Named data at one server.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Datum {
    /// Their name.
    #[n(0)]
    pub name: String,
    /// The owner, as in [`DatumName::owner`].
    #[n(1)]
    pub owner: String,
    /// When they were put, in milliseconds since 1970, UTC.
    #[n(2)]
    pub written: u64,
    /// Distinguishes data that were put at the same time.
    #[n(3)]
    pub stamp: u64,
    /// Number of the version, for people.
    #[n(4)]
    pub number: u64,
    /// Whether all users may read the data.
    #[n(5)]
    pub shared: bool,
    /// Type of the elements.
    #[n(6)]
    pub element: String,
    /// The shape.
    #[n(7)]
    pub shape: Vec<u64>,
    /// Size in bytes.
    #[n(8)]
    pub bytes: u64,
}

impl Datum {
    /// Name and owner.
    pub fn key(&self) -> DatumName {
        DatumName {
            name: self.name.clone(),
            owner: self.owner.clone(),
        }
    }

    /// The version. A greater one is newer, and the same version is the same bytes.
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
        digest(&format!("{written} {stamp} {name} {owner}"))
    }
}

/// A server's list of named data, or a change of it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Hold {
    /// Number of the server.
    #[n(0)]
    pub server: u64,
    /// Whether the list starts again, so that earlier messages no longer count.
    #[n(1)]
    pub anew: bool,
    /// Data that are new, or have a new version.
    #[n(2)]
    pub held: Vec<Datum>,
    /// Data that the server no longer holds.
    #[n(3)]
    pub gone: Vec<DatumName>,
}

/// Asks who holds named data.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FindData {
    /// Their name.
    #[n(0)]
    pub name: String,
    /// The owner. Without it, the data of all owners that the client may see.
    #[n(1)]
    pub owner: Option<String>,
    /// Also asks for a server with room for this many bytes.
    #[n(2)]
    pub room: Option<u64>,
}

/// The answer to [`FindData`].
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct DataFound {
    /// The servers that hold data with this name.
    #[n(0)]
    pub records: Vec<crate::Record>,
    /// A server with room.
    #[n(1)]
    pub room: Option<Offer>,
}

/// Asks for a page of named data.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ListData {
    /// The last entry of the page before.
    #[n(0)]
    pub after: Option<DatumName>,
}

/// Named data, and where they are.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ListedDatum {
    /// The newest version.
    #[n(0)]
    pub datum: Datum,
    /// Addresses of the servers that hold it.
    #[n(1)]
    pub holders: Vec<String>,
}

/// The answer to [`ListData`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DataListed {
    /// By name and owner.
    #[n(0)]
    pub data: Vec<ListedDatum>,
    /// The last entry of this page, if there are more pages.
    #[n(1)]
    pub next: Option<DatumName>,
}

/// Named data that a call reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Need {
    /// [`Datum::number`].
    #[n(0)]
    pub number: u64,
    /// Size in bytes.
    #[n(1)]
    pub bytes: u64,
}

/// The name that the array of a source has among the named data of its user, at a server that has
/// read it. Clients find by it which servers still have the array.
pub fn source_name(address: &str, form: &ArrayForm, options: &SourceOptions) -> String {
    let plain = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' | '/' => letter,
        _ => '_',
    };
    let words = address.split('/').filter(|word| {
        let is_name = |letter: char| letter.is_ascii_alphanumeric();
        word.chars().any(is_name)
    });
    let words: Vec<&str> = words.collect();
    let shown: String = words.join("/").chars().take(120).map(plain).collect();
    let all = format!("{:?}", (address, form, options));
    format!("sources/{shown}={:016x}", digest(&all))
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
