//! `farcall get`

use super::{Kept, kept, shown};
use crate::failure::Failure;
use crate::form::Form;
use crate::npy;
use crate::target::Target;
use clap::Args;
use farcall_client::{Handle, HandleStatus, Server};
use farcall_idl::Order;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Get an array that stays at a server, or list those there are
///
/// Calls that are to write it end before.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall get
  farcall get 5f0c8a4f0e9d4d0f8f1f0a3c2b1d9e77 -o factors.npy
  farcall get data:atoms -o atoms.npy")]
pub(crate) struct Arguments {
    /// Id of the array, as `farcall put` printed it, or data:NAME; without it, list yours
    #[arg(value_name = "ID|data:NAME", value_parser = kept)]
    array: Option<Kept>,
    /// File for it; its first elements are shown otherwise
    #[arg(short, long, value_name = "FILE.npy", requires = "array")]
    output: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(None)?;
    match &arguments.array {
        None => list(&server, &arguments.form),
        Some(array) => get(&array.find(&server)?, arguments),
    }
}

fn list(server: &Server, form: &Form) -> Result<(), Failure> {
    form.list("arrays", &server.handles()?, to_json, line);
    Ok(())
}

fn line(array: &HandleStatus) -> String {
    let state = match (&array.undefined, array.on_disk) {
        (Some(cause), _) => format!("  undefined: {cause}"),
        (None, true) => "  on the disk".to_string(),
        (None, false) => String::new(),
    };
    format!("{}  {}{state}", array.id, shown(&array.form))
}

fn to_json(array: &HandleStatus) -> Value {
    json!({
        "id": array.id.to_string(), "type": array.form.element, "shape": array.form.shape,
        "order": if array.form.column_major { "columns" } else { "rows" },
        "on_disk": array.on_disk, "undefined": array.undefined,
    })
}

fn get(handle: &Handle, arguments: &Arguments) -> Result<(), Failure> {
    let form = handle.form();
    let element = form.ty().map_err(Failure::failed)?;
    let bytes = form.bytes().map_err(Failure::failed)?;
    let bytes = usize::try_from(bytes).map_err(Failure::failed)?;
    let mut elements = vec![0; bytes];
    handle.get(&mut elements)?;
    let order = match form.column_major {
        true => Order::ColumnMajor,
        false => Order::RowMajor,
    };
    if let Some(path) = &arguments.output {
        npy::write(path, element, &form.shape, order, &elements)?;
    }
    let file = arguments.output.as_ref();
    let words = || match file {
        Some(path) => format!("{} -> {}", shown(form), path.display()),
        None => format!("{} = {}", shown(form), npy::preview(element, &elements, 8)),
    };
    let fields = || json!({ "type": form.element, "shape": form.shape, "file": file });
    arguments.form.answer(words, fields);
    Ok(())
}
