//! `farcall gateway flight`: starts the gateway for Arrow Flight, which is a module of the Python
//! package. It checks the settings, and then becomes the interpreter.

use super::Place;
use crate::doctor;
use crate::failure::Failure;
use crate::target;
use clap::Args;
use serde_json::json;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The port, unless --listen names another one.
const PORT: u16 = 3720;
/// Most bytes of the arrays of a call.
const MOST_BYTES: u64 = 1_000_000_000;

/// Offer functions as Arrow Flight exchanges, or a Flight service as functions
///
/// A client calls a function by an exchange (DoExchange) whose command is the name of the function,
/// or a JSON object with `function` and `arguments`. Each record batch is a call with its columns
/// as arrays. A call runs as the user whose token the client shows, as bearer or as password.
///
/// With --from, the command prints a Python module with a function for each flight of a service.
/// `farcall serve` serves it.
///
/// The gateway runs in Python, with pyarrow (FARCALL_PYTHON names the interpreter). It prints
/// `listening on ADDRESS`, and runs until Ctrl-C or SIGTERM.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall gateway flight --to farcall://localhost:3717
  farcall gateway flight --from grpc://node7:8815 > flights.py")]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Flight service whose functions the command prints as a Python module. FLIGHT_TOKEN is the
    /// token for it
    #[arg(long, value_name = "URL", conflicts_with_all = ["to", "listen", "own_identity", "tls",
          "plain", "max_bytes", "calls", "user_calls", "users", "time_limit"])]
    from: Option<String>,
    /// Interface of a function that the service has as an exchange, such as `smooth(IN int n, INOUT
    /// double x[n])`; may be given several times [default: the flights that the service lists]
    #[arg(long, value_name = "INTERFACE", requires = "from")]
    exchange: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let place = &arguments.place;
    let config = place.config(PORT, MOST_BYTES)?;
    if arguments.from.is_none() {
        target::check(&config.server)?;
        config.check().map_err(Failure::failed)?;
    }
    let settings = json!({
        "from": arguments.from,
        "exchange": arguments.exchange,
        "listen": config.listen.to_string(),
        "to": config.server,
        "own_identity": config.own_identity,
        "tls": place.tls,
        "max_bytes": config.limits.bytes,
        "calls": config.limits.calls,
        "user_calls": config.limits.user_calls,
        "users": config.limits.users,
        "time_limit": config.limits.time.as_secs_f64(),
    });
    let (program, words) = farcall_library::python_flight();
    doctor::check_package(&program)?;
    let error = Command::new(&program)
        .args(words)
        .arg(settings.to_string())
        .exec();
    Err(Failure::cannot("run", program.display(), error))
}
