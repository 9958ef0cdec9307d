//! Messages about named data, and the rules for their names. The server decides what a name refers
//! to and who may read it. A name that passes [`check_name`] has no part that leads out of the data
//! folder when it is used as a path.

use crate::handles::ArrayForm;
use crate::ids::HandleId;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use minicbor::{Decode, Encode};

/// Feature bit: there are named data, at a server or behind a metaserver. At a server it needs
/// [`HANDLES`](crate::HANDLES).
pub const NAMES: u64 = 1 << 18;

/// Longest name of data, and longest name of their owner, in bytes.
pub const MOST_NAME: usize = 200;

/// Owner in a text for files of a server's data folder.
const FOLDER: &str = "folder";

/// The name of data: `atoms`, or `atoms@OWNER` for data of another user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct DataName {
    /// Words separated by `/`.
    #[n(0)]
    pub name: String,
    /// The owner: a user as the server knows them, or empty for files of the server's data folder.
    /// Without an owner, the name means the caller's own data, then the folder's, then those that
    /// others share.
    #[n(1)]
    pub owner: Option<String>,
}

/// Why a text is not a name of data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoName {
    /// Too long, or empty.
    #[error("a name of data must have 1 to {MOST_NAME} bytes")]
    Length,
    /// A word is invalid.
    #[error(
        "`{0}` is not a valid name of data: use letters, digits and `.`, `_`, `-`, `+`, `=` in \
         parts with `/` between, and no part `.` or `..`"
    )]
    Word(String),
    /// The owner is invalid.
    #[error("`{0}` is not an owner of data: write a user or `folder` after the `@`")]
    Owner(String),
}

impl DataName {
    /// A name without an owner.
    pub fn plain(name: &str) -> DataName {
        DataName {
            name: name.to_string(),
            owner: None,
        }
    }

    /// Checks both parts of the name.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), NoName> {
        check_name(&self.name)?;
        match &self.owner {
            Some(owner) if !owner.is_empty() => check_owner(owner),
            Some(_) | None => Ok(()),
        }
    }
}

/// Checks a text that must be a name of data.
///
/// # Errors
/// What is wrong.
pub fn check_name(name: &str) -> Result<(), NoName> {
    if name.is_empty() || name.len() > MOST_NAME {
        return Err(NoName::Length);
    }
    let is_letter = |letter: char| letter.is_alphanumeric() || "._-+=".contains(letter);
    let is_word = |word: &str| !matches!(word, "" | "." | "..") && word.chars().all(is_letter);
    match name.split('/').all(is_word) {
        true => Ok(()),
        false => Err(NoName::Word(name.to_string())),
    }
}

fn check_owner(owner: &str) -> Result<(), NoName> {
    let is_fit =
        owner.len() <= MOST_NAME && owner != FOLDER && !owner.chars().any(char::is_control);
    match is_fit {
        true => Ok(()),
        false => Err(NoName::Owner(owner.to_string())),
    }
}

impl FromStr for DataName {
    type Err = NoName;

    fn from_str(text: &str) -> Result<DataName, NoName> {
        let name = match text.split_once('@') {
            None => DataName::plain(text),
            Some((_, "")) => return Err(NoName::Owner(String::new())),
            Some((name, owner)) => DataName {
                name: name.to_string(),
                owner: Some(if owner == FOLDER { "" } else { owner }.to_string()),
            },
        };
        name.check()?;
        Ok(name)
    }
}

impl fmt::Display for DataName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner.as_deref() {
            None => f.write_str(&self.name),
            Some("") => write!(f, "{}@{FOLDER}", self.name),
            Some(owner) => write!(f, "{}@{owner}", self.name),
        }
    }
}

/// A version of named data. The same version is the same bytes; a later version is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct DataVersion {
    /// When the data were put, in milliseconds since 1970, UTC.
    #[n(0)]
    pub written: u64,
    /// A random number that distinguishes data put at the same time.
    #[n(1)]
    pub stamp: u64,
    /// Number of the version, from 1 on, for people.
    #[n(2)]
    pub number: u64,
}

/// Gives a stored array a name.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Name {
    /// The array. From now on calls may read it but not write it.
    #[n(0)]
    pub id: HandleId,
    /// The name. The array that had it before is dropped.
    #[n(1)]
    pub name: String,
    /// Whether all users may read it.
    #[n(2)]
    pub shared: bool,
    /// Number of the version at another server. The new number is greater.
    #[n(3)]
    pub after: u64,
    /// The version, if the array is a copy of another server's data. A copy never replaces a newer
    /// version.
    #[n(4)]
    pub copy: Option<DataVersion>,
}

/// The status of named data.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NameRecord {
    /// The name, with the owner.
    #[n(0)]
    pub name: DataName,
    /// The version.
    #[n(1)]
    pub version: DataVersion,
    /// Whether all users may read it.
    #[n(2)]
    pub shared: bool,
    /// The array; `None` for a file that is only listed.
    #[n(3)]
    pub id: Option<HandleId>,
    /// Its type and shape.
    #[n(4)]
    pub form: ArrayForm,
    /// Whether the caller owns it.
    #[n(5)]
    pub own: bool,
}

/// A page of named data, by name.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NamePage {
    /// The data of this page.
    #[n(0)]
    pub names: Vec<NameRecord>,
    /// Name after which the next page begins, if there is one.
    #[n(1)]
    pub next: Option<DataName>,
}

/// Asks for data by name.
#[derive(Encode, Decode)]
pub(crate) struct AskNameMessage {
    #[n(0)]
    pub(crate) name: DataName,
}

/// Asks for a page of names.
#[derive(Encode, Decode)]
pub(crate) struct ListNamesMessage {
    /// The page begins after this name.
    #[n(0)]
    pub(crate) after: Option<DataName>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in [
            "atoms",
            "runs/7/atoms.npy",
            "a@alice",
            "a@uid:1000",
            "x@folder",
        ] {
            let name: DataName = text.parse().unwrap();
            assert_eq!(name.to_string(), text);
        }
        let folder: DataName = "x@folder".parse().unwrap();
        assert_eq!(folder.owner.as_deref(), Some(""));
    }

    #[test]
    fn a_path_that_leaves_its_folder_is_not_a_name() {
        for text in [
            "", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a b", "a\\b", "a\0", "a@",
            "a@\n", "@b",
        ] {
            assert!(text.parse::<DataName>().is_err(), "{text:?}");
        }
        let long = "a".repeat(MOST_NAME);
        assert!(long.parse::<DataName>().is_ok());
        assert_eq!((long + "a").parse::<DataName>(), Err(NoName::Length));
    }
}
