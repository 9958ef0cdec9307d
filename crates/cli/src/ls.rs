//! `farcall ls`: lists the functions of a server, of all servers behind a metaserver, or named
//! data. `arrays::list` prints named data.

use crate::arrays::list;
use crate::failure::Failure;
use crate::form::Form;
use crate::plain;
use crate::target::Named;
use clap::Args;
use farcall_client::FunctionSummary;
use serde_json::json;

/// List the functions of a server, or of all servers behind a metaserver; or named data
#[derive(Args)]
#[command(after_help = "Examples:\n  farcall ls farcall://localhost:3717\n  farcall ls --data")]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Named,
    /// List named data instead: versions, sizes, and the servers that hold them
    #[arg(long)]
    data: bool,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.server.connect()?;
    if arguments.data {
        return list::only_named(&server, &arguments.form);
    }
    let functions = server.functions()?;
    let lengths = functions.iter().map(|function| function.name.len());
    let width = plain::width(lengths);
    let to_json = |one: &FunctionSummary| json!({ "name": one.name, "title": one.title });
    let line = |one: &FunctionSummary| format!("{:width$}  {}", one.name, one.title);
    arguments.form.list("functions", &functions, to_json, line);
    Ok(())
}
