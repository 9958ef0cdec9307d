//! `farcall object list`: lists the caller's persistent objects at a server. An object whose
//! process has ended is listed as lost, with the cause.

use crate::failure::Failure;
use crate::form::Form;
use crate::target::Target;
use clap::Args;
use farcall_client::ObjectStatus;
use serde_json::{Value, json};

/// List your persistent objects
///
/// If the process of an object has ended, the object and its state are lost: drop it, and make a
/// new one.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall object list")]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let objects = arguments.target.connect(None)?.objects()?;
    arguments.form.list("objects", &objects, to_json, line);
    Ok(())
}

fn line(object: &ObjectStatus) -> String {
    let lost = object.lost.as_ref();
    let lost = lost.map_or_else(String::new, |cause| format!("  lost: {cause}"));
    format!("{}  {}{lost}", object.id, object.class)
}

fn to_json(object: &ObjectStatus) -> Value {
    json!({ "id": object.id.to_string(), "class": object.class, "lost": object.lost })
}
