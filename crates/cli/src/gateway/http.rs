//! `farcall gateway http`: starts a gateway for HTTP. It turns options into a configuration, and
//! the crate `gateway` does the work.

use super::{Place, number};
use crate::failure::Failure;
use crate::log::Log;
use crate::{notify, target};
use clap::Args;
use farcall_gateway::{Config, Gateway, Limits};

/// The port, unless --listen names another one.
const PORT: u16 = 3719;
/// Most bytes of a request.
const MOST_BYTES: u64 = 64_000_000;

/// Offer functions over HTTP, with JSON
///
/// POST /v1/call/NAME calls a function with its arguments as a JSON object. GET /v1/functions lists
/// the functions, and GET /openapi.json describes them (OpenAPI 3.1). A call runs as the user whose
/// token the request has (Authorization: Bearer TOKEN).
///
/// The command prints `listening on ADDRESS`, and runs until Ctrl-C or SIGTERM.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall gateway http
  farcall gateway http --to meta://localhost --allow-origin https://lab.example.org
  farcall gateway http --to farcalls://node7:3717 --listen 0.0.0.0:443 --tls certificates
Call a function with:
  curl http://127.0.0.1:3719/v1/call/work/twice --json '{\"n\": 2, \"x\": [1, 2]}'")]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Origin of web pages that may call, such as `https://lab.example.org`; may be given several
    /// times
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Most HTTP connections at a time
    #[arg(long, value_name = "N", value_parser = number, default_value = "256")]
    connections: usize,
    #[command(flatten)]
    log: Log,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    arguments.log.init();
    let config = arguments.place.config(PORT, MOST_BYTES)?;
    target::check(&config.server)?;
    let gateway = Gateway::bind(Config {
        origins: arguments.allow_origin,
        limits: Limits {
            connections: arguments.connections,
            ..config.limits
        },
        ..config
    });
    let gateway = gateway.map_err(Failure::failed)?;
    notify::says_ready(format_args!("listening on {}", gateway.url()))?;
    Ok(gateway.run()?)
}
