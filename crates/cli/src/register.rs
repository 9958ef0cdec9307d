//! `farcall register`

use crate::failure::Failure;
use crate::target::Target;
use clap::Args;
use farcall_library::Source;
use serde_json::json;
use std::path::PathBuf;

/// Add the functions of an interface file to a running server
///
/// They are served until the server ends. Root and the server's own user may do this, over its Unix
/// socket or from the same host, and those whom `access.operators` in the server's configuration
/// names. Libraries are looked for on the server, relative names beside the file.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall register my.idl farcall://localhost:3717")]
pub(crate) struct Arguments {
    /// Interface file
    #[arg(value_name = "IDL")]
    file: PathBuf,
    /// Server to add them to; the same as --server
    #[arg(value_name = "SERVER")]
    address: Option<String>,
    #[command(flatten)]
    target: Target,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let source = Source::read(&arguments.file).map_err(Failure::failed)?;
    let path = std::path::absolute(&source.path)?;
    let server = arguments.target.connect(arguments.address.as_deref())?;
    let names = server.register(&path.to_string_lossy(), &source.text)?;
    if arguments.json {
        println!("{}", json!({ "schema": 1, "functions": names }));
        return Ok(());
    }
    for name in names {
        println!("{name}");
    }
    Ok(())
}
