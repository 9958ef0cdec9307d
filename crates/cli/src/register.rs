//! `farcall register`: adds the functions of an interface file to a running server. The command
//! runs the preprocessor, and the server checks the file and binds the libraries on its own host.

use crate::failure::Failure;
use crate::form::Form;
use crate::library;
use crate::target::Named;
use clap::Args;
use farcall_library::Source;
use serde_json::json;
use std::path::PathBuf;

/// Add the functions of an interface file to a running server
///
/// The server serves them until it ends. Only operators can do this: root and the server's own
/// user, over its Unix socket or from the same host, and the users in `access.operators` of the
/// server's configuration. The server looks for libraries on its own host; it looks for relative
/// names in the folder of the interface file.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall register my.idl farcall://localhost:3717")]
pub(crate) struct Arguments {
    /// Interface file, or the name of one that comes with Farcall
    #[arg(value_name = "IDL", value_parser = library::interface)]
    file: PathBuf,
    #[command(flatten)]
    server: Named,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let source = Source::read(&arguments.file).map_err(Failure::failed)?;
    let path = std::path::absolute(&source.path)?;
    let server = arguments.server.connect()?;
    let names = server.register(&path.to_string_lossy(), &source.text)?;
    let form = &arguments.form;
    form.list("functions", &names, |name| json!(name), String::clone);
    Ok(())
}
