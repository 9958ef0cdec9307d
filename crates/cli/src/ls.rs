//! `farcall ls`

use crate::failure::Failure;
use crate::target::Target;
use clap::Args;
use serde_json::json;

/// List the functions that a server has, or all servers behind a metaserver
#[derive(Args)]
#[command(after_help = "Example:\n  farcall ls farcall://localhost:3717")]
pub(crate) struct Arguments {
    /// Server to ask; the same as --server
    #[arg(value_name = "SERVER")]
    address: Option<String>,
    #[command(flatten)]
    target: Target,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let functions = arguments
        .target
        .connect(arguments.address.as_deref())?
        .functions()?;
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
