//! `farcall gateway`: offers the functions of servers to programs that do not use Farcall. `http`
//! and `flight` start the gateways; this module has the options that both have.

mod flight;
mod http;

use crate::failure::Failure;
use crate::seconds::above_zero;
use crate::serve::resolve;
use clap::{Args, Subcommand};
use farcall_access::Tls;
use farcall_gateway::{Config, Limits};
use farcall_quantity::bytes;
use std::path::PathBuf;
use std::time::Duration;

/// Offer the functions of servers to other programs: over HTTP, or over Arrow Flight
#[derive(Args)]
#[command(after_help = "Examples:
  farcall gateway http --to farcall://localhost:3717
  farcall gateway flight --to meta://localhost")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Http(http::Arguments),
    Flight(flight::Arguments),
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        Command::Http(arguments) => http::run(arguments),
        Command::Flight(arguments) => flight::run(&arguments),
    }
}

/// Between whom a gateway stands, and within which bounds.
#[derive(Args)]
struct Place {
    /// Address to listen on. Port 0 picks a free port [default: 127.0.0.1:3719 for HTTP,
    /// 127.0.0.1:3720 for Flight]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Server, or meta://HOST:PORT for all servers behind a metaserver [default: FARCALL_SERVER, or
    /// FARCALL_METASERVER, or farcall://localhost:3717]
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// Let callers without a token use the identity of the gateway: FARCALL_TOKEN, FARCALL_CERT, or
    /// its user of this host
    #[arg(long)]
    own_identity: bool,
    /// Use TLS with server.pem and server.key of this folder; `farcall access certificate` makes
    /// them
    #[arg(long, value_name = "FOLDER")]
    tls: Option<PathBuf>,
    /// Listen on a network without TLS, because a proxy in front of the gateway adds it
    #[arg(long, conflicts_with = "tls")]
    plain: bool,
    /// Most bytes of all arrays of a call, and of a request over HTTP [default: 64MB for HTTP, 1GB
    /// for Flight]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    max_bytes: Option<u64>,
    /// Most calls at a time
    #[arg(long, value_name = "N", value_parser = number, default_value = "32")]
    calls: usize,
    /// Most calls of one user at a time
    #[arg(long, value_name = "N", value_parser = number, default_value = "8")]
    user_calls: usize,
    /// Most users with a connection to the server
    #[arg(long, value_name = "N", value_parser = number, default_value = "100")]
    users: usize,
    /// Seconds after which the gateway gives a call up
    #[arg(long, value_name = "SECONDS", value_parser = above_zero, default_value = "300")]
    time_limit: Duration,
}

impl Place {
    /// The settings, with the port and the bytes that this kind of gateway has by default.
    fn config(&self, port: u16, most_bytes: u64) -> Result<Config, Failure> {
        let listen = self.listen.as_deref().map(resolve).transpose()?;
        let tls = self.tls.as_ref();
        Ok(Config {
            listen: listen.unwrap_or(([127, 0, 0, 1], port).into()),
            server: self
                .to
                .clone()
                .unwrap_or_else(farcall_client::default_address),
            own_identity: self.own_identity,
            origins: Vec::new(),
            tls: tls.map(|folder| Tls::in_folder(folder, None)),
            plain: self.plain,
            limits: Limits {
                bytes: self.max_bytes.unwrap_or(most_bytes),
                calls: self.calls,
                user_calls: self.user_calls,
                users: self.users,
                time: self.time_limit,
                ..Limits::default()
            },
        })
    }
}

/// A number from 1 on.
fn number(text: &str) -> Result<usize, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| (1..=100_000).contains(number));
    number.ok_or_else(|| "expected a number from 1 to 100000".to_owned())
}
