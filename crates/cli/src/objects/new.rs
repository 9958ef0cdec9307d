//! `farcall new`

use crate::failure::Failure;
use crate::form::Form;
use crate::target::Target;
use clap::Args;
use serde_json::json;

/// Make an object of a class, which stays at the server
///
/// Prints its id. It stays until `farcall drop`, or a day after its last use; other programs of the
/// same user find it by its id, nobody else does.
#[derive(Args)]
#[command(after_help = "Example:
  id=$(farcall new counters/Counter)
  farcall call object:$id.add n=3
  farcall objects
  farcall drop object:$id")]
pub(crate) struct Arguments {
    /// Name of the class, with or without its module
    class: String,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(None)?;
    let id = server.new_object(&arguments.class)?.keep()?.to_string();
    let fields = || json!({ "id": id, "class": arguments.class });
    arguments.form.answer(|| id.clone(), fields);
    Ok(())
}
