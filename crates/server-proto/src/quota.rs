//! Quotas: how many things, and how many bytes, a user or a group of users may have.
//!
//! This module compares and explains. The things themselves are counted where they are kept: calls
//! in `engine`, stored arrays in `arrays`, durable calls in `durable`.

use core::fmt;
use farcall_quantity::counted;
use farcall_rpc_proto::{Failure, FailureKind, User};

/// A limit, and the setting that changes it.
#[derive(Clone, Copy)]
pub(crate) struct Limit<T> {
    /// `None` means no limit.
    most: Option<T>,
    /// The whole name of the setting for a user; for a group its name in the table of the group.
    setting: &'static str,
}

impl<T: PartialEq + Default> Limit<T> {
    pub(crate) fn of(most: T, setting: &'static str) -> Limit<T> {
        Limit {
            most: Some(most),
            setting,
        }
    }

    /// A limit where 0 means that there is none.
    pub(crate) fn unless_zero(most: T, setting: &'static str) -> Limit<T> {
        Limit {
            most: (most != T::default()).then_some(most),
            setting,
        }
    }
}

/// What things an owner may have.
pub(crate) struct Quota {
    count: Limit<usize>,
    bytes: Limit<u64>,
    /// One of the things.
    what: &'static str,
    /// What an owner of too many can do; may be empty.
    remedy: &'static str,
}

/// A user, or all users of a group together.
#[derive(Clone, Copy)]
pub(crate) enum Owner<'o> {
    User(&'o User),
    Group(&'o str),
}

impl fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::User(user) => user.fmt(f),
            Owner::Group(name) => write!(f, "the group {name}"),
        }
    }
}

impl Quota {
    pub(crate) fn of_calls(count: Limit<usize>, bytes: Limit<u64>) -> Quota {
        Quota {
            count,
            bytes,
            what: "active call",
            remedy: "",
        }
    }

    pub(crate) fn of_arrays(count: Limit<usize>, bytes: Limit<u64>) -> Quota {
        Quota {
            count,
            bytes,
            what: "array",
            remedy: "; drop some arrays",
        }
    }

    pub(crate) fn of_durable_calls(count: Limit<usize>, bytes: Limit<u64>) -> Quota {
        Quota {
            count,
            bytes,
            what: "durable call",
            remedy: "; forget some with `farcall cancel --forget`",
        }
    }

    /// Whether the quota limits anything.
    pub(crate) fn is_limited(&self) -> bool {
        self.count.most.is_some() || self.bytes.most.is_some()
    }

    /// Whether an owner may have `count` things with `bytes` bytes in all, the new one included.
    pub(crate) fn allows(&self, owner: Owner<'_>, count: usize, bytes: u64) -> Result<(), Failure> {
        self.allows_count(owner, count)?;
        self.allows_bytes(owner, bytes)
    }

    pub(crate) fn allows_count(&self, owner: Owner<'_>, count: usize) -> Result<(), Failure> {
        let Limit { most, setting } = self.count;
        match most {
            Some(most) if count > most => {
                let things = counted(most, self.what);
                let text = format!("{owner} has {things}, which is the limit");
                Err(self.exceeded(owner, &text, setting))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn allows_bytes(&self, owner: Owner<'_>, bytes: u64) -> Result<(), Failure> {
        let Limit { most, setting } = self.bytes;
        match most {
            Some(most) if bytes > most => {
                let text = format!(
                    "the {}s of {owner} would take {bytes} bytes, and {most} bytes are allowed",
                    self.what
                );
                Err(self.exceeded(owner, &text, setting))
            }
            _ => Ok(()),
        }
    }

    fn exceeded(&self, owner: Owner<'_>, text: &str, setting: &'static str) -> Failure {
        let setting = Setting(owner, setting);
        let remedy = self.remedy;
        let text = format!("{text} ({setting} in the server's configuration){remedy}");
        Failure::new(FailureKind::QuotaExceeded, text)
    }
}

/// The name of a setting of an owner.
struct Setting<'s>(Owner<'s>, &'static str);

impl fmt::Display for Setting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Owner::User(_) => f.write_str(self.1),
            Owner::Group(name) => write!(f, "groups.{name}.{}", self.1),
        }
    }
}
