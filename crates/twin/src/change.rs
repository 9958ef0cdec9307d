//! What would be different: servers, links, policies, clients. A change is read from the words of
//! the command line, and `twin` applies it to a scenario.

use crate::day::MOST_CALLS;
use farcall_schedule::MOST_PES;
use farcall_schedule::placement;
use farcall_schedule::queue;
use std::str::FromStr;

/// A change of a recorded day.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Another server, which is equal to one of the record.
    Add {
        /// Its name.
        name: String,
        /// The server of the record.
        copy_of: String,
    },
    /// A server does not exist.
    Remove(String),
    /// The link between a client's host and a server has another rate, in both directions.
    Link {
        /// The client's host. `None`: the line of the server, which all hosts share.
        host: Option<String>,
        /// The server. `None`: the line of the host, on the way to all servers.
        server: Option<String>,
        /// Bytes per second.
        rate: f64,
    },
    /// All servers start calls in this order.
    Queue(queue::Policy),
    /// The metaserver chooses servers in this way.
    Placement(placement::Policy),
    /// A server has another number of processor elements.
    Elements {
        /// The server.
        server: String,
        /// Their number.
        pes: u32,
    },
    /// There are so many times as many clients.
    Clients(f64),
}

/// Why a change does not fit the record.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ChangeError {
    /// No server has that name.
    #[error("the record has no server {name}; it has {known}")]
    Server {
        /// The name.
        name: String,
        /// The servers of the record.
        known: String,
    },
    /// No client's host has that name.
    #[error("the record has no calls from a host {name}; it has calls from {known}")]
    Host {
        /// The name.
        name: String,
        /// The hosts of the record.
        known: String,
    },
    /// The name of a new server is taken.
    #[error("there is a server {0} already; choose another name for the new one")]
    Taken(String),
    /// There would be more calls than are replayed.
    #[error(
        "there would be more than {MOST_CALLS} calls; choose a part of the day with --from and --to"
    )]
    TooMany,
    /// Nobody could compute the calls.
    #[error("without {server}, no server has {function}, which calls of the record need")]
    Needed {
        /// The server that would be removed.
        server: String,
        /// The function.
        function: String,
    },
}

impl Change {
    /// Reads `NAME=copy-of:SERVER`.
    ///
    /// # Errors
    /// The text has another form.
    pub fn add(text: &str) -> Result<Change, String> {
        let both = text.split_once("=copy-of:");
        let (name, copy_of) = both
            .filter(|(name, copy_of)| !name.is_empty() && !copy_of.is_empty())
            .ok_or("write NAME=copy-of:SERVER, such as b=copy-of:a")?;
        Ok(Change::Add {
            name: name.to_owned(),
            copy_of: copy_of.to_owned(),
        })
    }

    /// Reads `HOST<->SERVER=RATE`, where one of both may be `*`.
    ///
    /// # Errors
    /// The text has another form, or the rate is none.
    pub fn link(text: &str) -> Result<Change, String> {
        let form = "write HOST<->SERVER=RATE, such as 'lab<->far=1Gbit/s', or '*<->far=1Gbit/s' \
                    for the line of a server";
        let (ends, rate) = text.rsplit_once('=').ok_or(form)?;
        let (host, server) = ends.split_once("<->").ok_or(form)?;
        if host.is_empty() || server.is_empty() || (host, server) == ("*", "*") {
            return Err(form.to_owned());
        }
        let named = |name: &str| (name != "*").then(|| name.to_owned());
        let rate: f64 = farcall_quantity::amount(rate)?;
        if !(rate.is_finite() && rate >= 1.0) {
            return Err("the rate must be at least a byte a second".to_owned());
        }
        Ok(Change::Link {
            host: named(host),
            server: named(server),
            rate,
        })
    }

    /// Reads the name of an order of calls, or of a way to choose servers.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn policy(text: &str) -> Result<Change, String> {
        let queue = queue::Policy::named(text).map(Change::Queue);
        let placement = || placement::Policy::named(text).map(Change::Placement);
        queue.or_else(placement).ok_or_else(|| {
            let queues = queue::Policy::NAMES.map(|(name, _)| name).join(", ");
            let placements = placement::Policy::NAMES.map(|(name, _)| name).join(", ");
            format!("no such policy; servers have {queues}, and metaservers {placements}")
        })
    }

    /// Reads `SERVER=NUMBER`.
    ///
    /// # Errors
    /// The text has another form.
    pub fn elements(text: &str) -> Result<Change, String> {
        let form =
            || format!("write SERVER=NUMBER, such as a=8, with 1 to {MOST_PES} processor elements");
        let (server, pes) = text.rsplit_once('=').ok_or_else(form)?;
        let pes = u32::from_str(pes).ok();
        let pes = pes.filter(|pes| (1..=MOST_PES).contains(pes));
        let pes = pes.ok_or_else(form)?;
        Ok(Change::Elements {
            server: server.to_owned(),
            pes,
        })
    }

    /// Reads `xFACTOR`.
    ///
    /// # Errors
    /// The text has another form.
    pub fn clients(text: &str) -> Result<Change, String> {
        let factor = text
            .strip_prefix('x')
            .and_then(|factor| factor.parse().ok());
        let factor = factor.filter(|factor: &f64| (0.01..=100.0).contains(factor));
        let factor = factor.ok_or("write x and a factor from 0.01 to 100, such as x2 or x0.5")?;
        Ok(Change::Clients(factor))
    }
}

/// The index of the only one of these names that a user means: the whole name, its address without
/// the scheme, or its host.
pub(crate) fn find(name: &str, names: &[String]) -> Option<usize> {
    let host_of = |known: &str| {
        let bare = known
            .split_once("://")
            .map_or(known, |(_, bare)| bare)
            .to_owned();
        let host = bare
            .rsplit_once(':')
            .map_or(bare.clone(), |(host, _)| host.to_owned());
        [known.to_owned(), bare, host]
    };
    (0..3).find_map(|form| {
        let mut known = (0..names.len()).filter(|one| host_of(&names[*one])[form] == name);
        let found = known.next()?;
        known.next().is_none().then_some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_from_words() {
        let add = Change::add("b=copy-of:10.0.0.1:3717").unwrap();
        let (name, copy_of) = ("b".to_owned(), "10.0.0.1:3717".to_owned());
        assert_eq!(add, Change::Add { name, copy_of });
        let link = Change::link("lab<->far=1Gbit/s").unwrap();
        assert!(matches!(link, Change::Link { rate: 1.25e8, .. }));
        assert_eq!(Change::policy("sjf"), Ok(Change::Queue(queue::Policy::Sjf)));
        let placement = Change::policy("least-load");
        assert_eq!(
            placement,
            Ok(Change::Placement(placement::Policy::LeastLoad))
        );
        assert_eq!(Change::clients("x0.5"), Ok(Change::Clients(0.5)));
        for refused in [
            Change::add("b"),
            Change::add("=copy-of:a"),
            Change::link("lab=1Gbit/s"),
            Change::link("*<->*=1Gbit/s"),
            Change::link("lab<->far=fast"),
            Change::policy("best"),
            Change::elements("a=0"),
            Change::elements("a=65537"),
            Change::clients("2"),
            Change::clients("xNaN"),
        ] {
            assert!(refused.is_err(), "{refused:?}");
        }
    }

    #[test]
    fn a_server_is_found_by_its_address_or_its_host() {
        let names = ["farcall://a:1", "farcall://a:2", "farcall://b:1", "c"].map(String::from);
        assert_eq!(find("farcall://a:2", &names), Some(1));
        assert_eq!(find("a:1", &names), Some(0));
        assert_eq!(find("b", &names), Some(2));
        assert_eq!(find("c", &names), Some(3));
        assert_eq!(find("a", &names), None);
        assert_eq!(find("d", &names), None);
    }
}
