//! Checks named data behind metaservers: what was put under each name, at any server. The same
//! version must have the same bytes wherever it is read.

use crate::interfaces::Contents;
use std::collections::BTreeMap;

/// Versions of named data.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// What a user has put under a name, or tried to.
    put: BTreeMap<(u8, String), Vec<Contents>>,
    /// What a server has said that a version contains.
    known: BTreeMap<(u64, u64), (u8, String, Contents)>,
}

impl Versions {
    /// A user puts something under a name.
    pub(crate) fn puts(&mut self, user: u8, name: &str, contents: Contents) {
        let all = self.put.entry((user, name.to_string())).or_default();
        all.push(contents);
    }

    /// A server has given it its name, in this version.
    pub(crate) fn named(
        &mut self,
        version: (u64, u64),
        user: u8,
        name: &str,
        contents: Contents,
    ) -> Result<(), String> {
        let now = (user, name.to_string(), contents);
        match self.known.insert(version, now.clone()) {
            Some(before) if before != now => Err(format!(
                "the version {version:x?} is {before:?} and {now:?}: two writers have it"
            )),
            _ => Ok(()),
        }
    }

    /// A user has found a name, in this version, and got these bytes.
    pub(crate) fn found(
        &self,
        version: (u64, u64),
        user: u8,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), String> {
        let is_it = |contents: &Contents| contents.bytes() == bytes;
        let is_right = match self.known.get(&version) {
            Some((owner, known, contents)) => {
                (*owner, known.as_str()) == (user, name) && is_it(contents)
            }
            // The message about it was lost.
            None => {
                let put = self.put.get(&(user, name.to_string()));
                put.is_some_and(|all| all.iter().any(is_it))
            }
        };
        match is_right {
            true => Ok(()),
            false => Err(format!(
                "the data `{name}` of user {user} in the version {version:x?} are other bytes \
                 than were put"
            )),
        }
    }
}
