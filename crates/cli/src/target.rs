//! The options that say which server a command talks to. An address on the command line comes
//! before the environment, and the environment before the default. `farcall_client` makes the
//! connection.

use crate::failure::Failure;
use crate::seconds::above_zero;
use clap::Args;
use farcall_client::{Address, Options, Server};
use std::time::Duration;

/// Refuses what is no address, or a list of addresses, before something starts that uses it later.
pub(crate) fn check(addresses: &str) -> Result<(), Failure> {
    let mut addresses = addresses.split(',');
    addresses.try_for_each(|one| one.parse::<Address>().map(drop).map_err(Failure::usage))
}

/// Which server, and how long to wait for it.
#[derive(Args)]
pub(crate) struct Target {
    /// Address of the server, or meta://HOST:PORT for all servers behind a metaserver [default:
    /// FARCALL_SERVER, or FARCALL_METASERVER, or farcall://localhost:3717]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Seconds to wait for each answer [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = above_zero)]
    timeout: Option<Duration>,
}

impl Target {
    /// Connects to the server that the option, or `server` of the command, or the environment
    /// names.
    pub(crate) fn connect(&self, server: Option<&str>) -> Result<Server, Failure> {
        let (timeout, usual) = (self.timeout, Options::default());
        let options = Options {
            timeout,
            // The first answer is the greeting.
            connect_timeout: timeout.map_or(usual.connect_timeout, |time| {
                time.min(usual.connect_timeout)
            }),
            ..usual
        };
        Ok(Server::connect(&self.address(server), options)?)
    }

    /// Connects to the one server that the option, or a word of the command, or the environment
    /// names.
    pub(crate) fn connect_to(&self, word: Option<&str>) -> Result<Server, Failure> {
        match (word, &self.server) {
            (Some(word), Some(server)) => Err(Failure::usage(format!(
                "`{word}` and `--server {server}` are two servers: give one"
            ))),
            _ => self.connect(word),
        }
    }

    /// The address that the option, or `server` of the command, or the environment names.
    pub(crate) fn address(&self, server: Option<&str>) -> String {
        let named = server.or(self.server.as_deref());
        named.map_or_else(farcall_client::default_address, str::to_string)
    }
}

/// Which server, by a word or by option.
#[derive(Args)]
pub(crate) struct Named {
    /// Address of the server, as with --server
    #[arg(value_name = "SERVER", conflicts_with = "server")]
    address: Option<String>,
    #[command(flatten)]
    target: Target,
}

impl Named {
    /// Connects to it.
    pub(crate) fn connect(&self) -> Result<Server, Failure> {
        self.target.connect(self.address.as_deref())
    }

    /// Its address.
    pub(crate) fn address(&self) -> String {
        self.target.address(self.address.as_deref())
    }
}
