//! `farcall data get`: prints a stored array, or writes it to a `.npy` file. `npy` writes the file.
//! Without an id, it lists the caller's stored arrays.

use super::{Stored, shown, stored};
use crate::failure::Failure;
use crate::form::Form;
use crate::npy;
use crate::results::SHOWN;
use crate::target::Target;
use clap::Args;
use farcall_client::{Handle, HandleStatus};
use farcall_gateway::Shown;
use farcall_idl::Order;
use serde_json::{Value, json};
use std::path::Path;

/// Get a stored array or named data
///
/// The command waits for earlier calls that write the array.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall data get 5f0c8a4f0e9d4d0f8f1f0a3c2b1d9e77 -o factors.npy
  farcall data get data:atoms -o atoms.npy")]
pub(crate) struct Arguments {
    /// Id of a stored array, which `farcall data put` has printed, or data:NAME. Without it, the
    /// command lists your stored arrays
    #[arg(value_name = "ID|data:NAME", value_parser = stored)]
    array: Option<Stored>,
    /// File for the array. Without it, the command prints the first elements, or with --json all of
    /// them. NAME may be that of the named data
    #[arg(short, long, value_name = "[NAME=]FILE.npy", requires = "array")]
    output: Option<String>,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(None)?;
    match &arguments.array {
        None => {
            let form = &arguments.form;
            form.list("arrays", &server.handles()?, to_json, line);
            Ok(())
        }
        Some(array) => {
            let file = output(arguments, array);
            file.map_or(Ok(()), npy::check_name)?;
            get(&array.find(&server)?, arguments, file)
        }
    }
}

/// The file of `FILE.npy`, or of `NAME=FILE.npy` if that is the name of the data.
fn output<'a>(arguments: &'a Arguments, array: &Stored) -> Option<&'a Path> {
    let text = arguments.output.as_deref()?;
    let named = match array {
        Stored::Data(name) => text.strip_prefix(&name.to_string()),
        Stored::Handle(_) => None,
    };
    let file = named.and_then(|rest| rest.strip_prefix('='));
    Some(Path::new(file.unwrap_or(text)))
}

pub(super) fn line(array: &HandleStatus) -> String {
    let state = match (&array.undefined, array.on_disk) {
        (Some(cause), _) => format!("  undefined: {cause}"),
        (None, true) => "  on disk".to_string(),
        (None, false) => String::new(),
    };
    format!("{}  {}{state}", array.id, shown(&array.form))
}

pub(super) fn to_json(array: &HandleStatus) -> Value {
    json!({
        "id": array.id.to_string(), "type": array.form.element, "shape": array.form.shape,
        "order": if array.form.column_major { "columns" } else { "rows" },
        "on_disk": array.on_disk, "undefined": array.undefined,
    })
}

fn get(handle: &Handle, arguments: &Arguments, file: Option<&Path>) -> Result<(), Failure> {
    let form = handle.form();
    let element = form.ty().map_err(Failure::failed)?;
    let elements = handle.fetch()?;
    let order = match form.column_major {
        true => Order::ColumnMajor,
        false => Order::RowMajor,
    };
    if let Some(path) = file {
        npy::write(path, element, &form.shape, order, &elements)?;
    }
    let words = || match file {
        Some(path) => format!("{} -> {}", shown(form), path.display()),
        None => format!(
            "{} = {}",
            shown(form),
            npy::preview(element, &elements, SHOWN)
        ),
    };
    let fields = || {
        let mut fields = json!({ "type": form.element, "shape": form.shape, "file": file });
        if file.is_none() {
            let values = Shown::new(element, &form.shape, order, &elements, false);
            fields["values"] = json!(values);
        }
        fields
    };
    arguments.form.answer(words, fields);
    Ok(())
}
