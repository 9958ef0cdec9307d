//! `farcall ls`

use crate::arrays::list;
use crate::failure::Failure;
use crate::target::Target;
use clap::Args;
use serde_json::json;

/// List the functions that a server has, or all servers behind a metaserver; or data with names
#[derive(Args)]
#[command(after_help = "Examples:\n  farcall ls farcall://localhost:3717\n  farcall ls --data")]
pub(crate) struct Arguments {
    /// Server to ask; the same as --server
    #[arg(value_name = "SERVER")]
    address: Option<String>,
    #[command(flatten)]
    target: Target,
    /// List data with names instead: version, size, and the servers that hold them
    #[arg(long)]
    data: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(arguments.address.as_deref())?;
    if arguments.data {
        return list::run(&server, arguments.json);
    }
    let functions = server.functions()?;
    if arguments.json {
        let rows: Vec<_> = functions
            .iter()
            .map(|function| json!({ "name": function.name, "title": function.title }))
            .collect();
        println!("{}", json!({ "schema": 1, "functions": rows }));
        return Ok(());
    }
    let width = functions
        .iter()
        .map(|function| function.name.len())
        .max()
        .unwrap_or(0);
    for function in &functions {
        println!("{:width$}  {}", function.name, function.title);
    }
    Ok(())
}
