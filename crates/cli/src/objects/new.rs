//! `farcall object new`: makes a persistent object of a class and prints its id. The object remains
//! at the server when the command ends.

use crate::failure::Failure;
use crate::form::Form;
use crate::target::Target;
use clap::Args;
use serde_json::json;

/// Make a persistent object of a class
///
/// The command prints the id of the object. The server keeps the object until `farcall object
/// drop`, or until a day after its last use. Only programs of the same user can use it.
#[derive(Args)]
#[command(after_help = "Example:
  id=$(farcall object new counters/Counter)
  farcall call object:$id.add n=3
  farcall object drop $id")]
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
