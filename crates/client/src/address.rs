//! Addresses of servers: `farcall://`, `farcalls://`, `unix://`, `ssh://`, and what the environment
//! names.
//!
//! This module reads and prints addresses. It does not connect, and it does not look up names.

mod ssh;

pub use ssh::SshAddress;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port of a server, unless its address names another one.
pub const DEFAULT_PORT: u16 = 3717;

/// The port of a metaserver, unless its address names another one.
pub const METASERVER_PORT: u16 = 3718;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `farcall://host:port`
    Tcp {
        /// Host name or IP address; IPv6 without brackets.
        host: String,
        /// Port number.
        port: u16,
    },
    /// `farcalls://host:port`: TCP with TLS.
    Tls {
        /// Host name or IP address as in the server's certificate; IPv6 without brackets.
        host: String,
        /// Port number.
        port: u16,
    },
    /// `unix:///path`
    Unix(PathBuf),
    /// `ssh://user@host:port`: the user's OpenSSH reaches the host.
    Ssh(Box<SshAddress>),
}

/// The server that the environment names. `FARCALL_SERVER` comes first, then `NINF_SERVER` with
/// `NINF_SERVER_PORT`, then the metaservers of `FARCALL_METASERVER`.
pub fn address_from_environment() -> Option<String> {
    let set = |name| {
        std::env::var(name)
            .ok()
            .filter(|value: &String| !value.is_empty())
    };
    let ninf = || {
        let host = set("NINF_SERVER")?;
        Some(match set("NINF_SERVER_PORT") {
            Some(port) => format!("{host}:{port}"),
            None => host,
        })
    };
    let server = set("FARCALL_SERVER").or_else(ninf);
    server.or_else(|| Some(as_metaservers(&set("FARCALL_METASERVER")?)))
}

/// Turns addresses without a scheme into addresses of metaservers.
fn as_metaservers(text: &str) -> String {
    let one = |one: &str| match one.trim() {
        full if full.contains("://") => full.to_string(),
        bare => format!("meta://{bare}"),
    };
    text.split(',').map(one).collect::<Vec<_>>().join(",")
}

/// The server to use if the caller names none: the one of the environment, or this machine at the
/// default port.
pub fn default_address() -> String {
    address_from_environment().unwrap_or_else(|| format!("farcall://localhost:{DEFAULT_PORT}"))
}

/// Text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a server address: {reason}; write farcall://HOST:PORT, HOST:PORT, \
     farcalls://HOST:PORT for TLS, unix:///PATH, ssh://HOST, or meta://HOST:PORT for a metaserver"
)]
pub struct AddressError {
    text: String,
    reason: &'static str,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let error = |reason| AddressError {
            text: text.to_string(),
            reason,
        };
        let (tls, default, rest) = match text.split_once("://") {
            Some(("unix", path)) if path.starts_with('/') => return Ok(Address::Unix(path.into())),
            Some(("unix", _)) => return Err(error("the path of a Unix socket must be absolute")),
            Some(("ssh", rest)) => {
                let address = SshAddress::parse(rest).map_err(error)?;
                return Ok(Address::Ssh(Box::new(address)));
            }
            Some(("farcall" | "ninf", rest)) => (false, DEFAULT_PORT, rest),
            Some(("farcalls", rest)) => (true, DEFAULT_PORT, rest),
            Some(("meta", rest)) => (false, METASERVER_PORT, rest),
            Some(("metas", rest)) => (true, METASERVER_PORT, rest),
            Some(_) => return Err(error("the scheme is unknown")),
            None => (false, DEFAULT_PORT, text),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = split_port(rest).map_err(error)?;
        if host.is_empty() {
            return Err(error("the host is missing"));
        }
        if host
            .chars()
            .any(|c| c == '/' || c == '@' || c.is_whitespace())
        {
            return Err(error(
                "the host contains a character that is not allowed in host names",
            ));
        }
        let port = match port {
            None => default,
            Some(port) => port
                .parse()
                .map_err(|_| error("the port must be a number from 0 to 65535"))?,
        };
        let host = host.to_string();
        Ok(match tls {
            true => Address::Tls { host, port },
            false => Address::Tcp { host, port },
        })
    }
}

/// Host and port of `host`, `host:port`, `[v6]` or `[v6]:port`.
fn split_port(text: &str) -> Result<(&str, Option<&str>), &'static str> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("the bracket is not closed")?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if after.is_empty() => Ok((host, None)),
            None => Err("after the bracket only a colon and a port may follow"),
        };
    }
    match text.split_once(':') {
        Some((_, port)) if port.contains(':') => Err("write an IPv6 address in brackets"),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match self {
            Address::Tcp { host, port } => ("farcall", host, port),
            Address::Tls { host, port } => ("farcalls", host, port),
            Address::Unix(path) => return write!(f, "unix://{}", path.display()),
            Address::Ssh(address) => return address.fmt(f),
        };
        match host.contains(':') {
            true => write!(f, "{scheme}://[{host}]:{port}"),
            false => write!(f, "{scheme}://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_print_as_they_are_written() {
        for text in [
            "farcall://host:1",
            "farcall://[::1]:3717",
            "farcalls://host:3717",
            "unix:///run/farcall.sock",
            "ssh://host",
            "ssh://ann@[fe80::1]:2222?serve=fft+lapack&farcall=~/bin/farcall",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for (text, full) in [
            ("host", "farcall://host:3717"),
            ("127.0.0.1:80", "farcall://127.0.0.1:80"),
            ("ninf://host/", "farcall://host:3717"),
            ("[fe80::1]", "farcall://[fe80::1]:3717"),
            ("meta://host", "farcall://host:3718"),
            ("metas://host:1", "farcalls://host:1"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), full);
        }
    }

    #[test]
    fn metaservers_need_no_scheme() {
        let text = "one, two:7,farcalls://three";
        assert_eq!(
            as_metaservers(text),
            "meta://one,meta://two:7,farcalls://three"
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, reason) in [
            ("", "the host is missing"),
            ("http://host", "the scheme is unknown"),
            ("host:70000", "the port must be a number from 0 to 65535"),
            ("::1", "write an IPv6 address in brackets"),
            ("[::1", "the bracket is not closed"),
            (
                "unix://relative",
                "the path of a Unix socket must be absolute",
            ),
        ] {
            assert_eq!(
                text.parse::<Address>().unwrap_err().reason,
                reason,
                "{text}"
            );
        }
    }
}
