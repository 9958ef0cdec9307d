//! `farcall data list`, and the named data of `farcall ls --data` and `farcall status`. A
//! metaserver lists only named data, because a stored array without a name is known only to its own
//! server.

use super::get;
use crate::failure::Failure;
use crate::form::Form;
use crate::plain;
use crate::target::Named;
use clap::Args;
use farcall_client::{DataStatus, Server};
use serde_json::{Value, json};

/// List your stored arrays, and the named data that you can read
///
/// For named data, the list has the version, the size and the servers that hold it.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall data list
  farcall data list meta://head --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Named,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.server.connect()?;
    // Stored arrays without a name are known to their own server only.
    let arrays = match server.is_metaserver() {
        true => Vec::new(),
        false => server.handles()?,
    };
    let data = server.list_data()?;
    if arguments.form.json {
        let arrays: Vec<Value> = arrays.iter().map(get::to_json).collect();
        let object = json!({ "schema": 1, "arrays": arrays, "data": to_json(&data) });
        println!("{object}");
        return Ok(());
    }
    arrays.iter().for_each(|array| plain::say(get::line(array)));
    if !data.is_empty() {
        print(&data);
    }
    Ok(())
}

/// Prints named data.
pub(crate) fn print(data: &[DataStatus]) {
    let name = |one: &DataStatus| one.name.to_string();
    let width = plain::width(data.iter().map(|one| name(one).len())).max(4);
    println!(
        "{:width$} {:>7} {:>14}  {:24} holders",
        "data", "version", "bytes", "array"
    );
    for one in data {
        let array = format!("{} {:?}", one.element, one.shape);
        let shared = if one.shared { "  (shared)" } else { "" };
        plain::say(format_args!(
            "{:width$} {:>7} {:>14}  {array:24} {}{shared}",
            name(one),
            one.version,
            one.bytes,
            one.holders.join(", "),
        ));
    }
}

/// The same as JSON.
pub(crate) fn to_json(data: &[DataStatus]) -> Vec<Value> {
    let row = |one: &DataStatus| {
        json!({
            "name": one.name.name, "owner": one.name.owner, "version": one.version,
            "shared": one.shared, "type": one.element, "shape": one.shape, "bytes": one.bytes,
            "holders": one.holders,
        })
    };
    data.iter().map(row).collect()
}

/// `farcall ls --data`
pub(crate) fn only_named(server: &Server, form: &Form) -> Result<(), Failure> {
    let data = server.list_data()?;
    match form.json {
        true => println!("{}", json!({ "schema": 1, "data": to_json(&data) })),
        false => print(&data),
    }
    Ok(())
}
