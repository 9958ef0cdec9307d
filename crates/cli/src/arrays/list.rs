//! Data with names, for `farcall ls --data` and `farcall status`.

use crate::failure::Failure;
use crate::form::Form;
use farcall_client::{DataStatus, Server};
use serde_json::{Value, json};

/// Prints the data with names that the user may see.
pub(crate) fn print(data: &[DataStatus]) {
    let name = |one: &DataStatus| one.name.to_string();
    let width = data
        .iter()
        .map(|one| name(one).len())
        .max()
        .unwrap_or(0)
        .max(4);
    println!(
        "{:width$} {:>7} {:>14}  {:24} holders",
        "data", "version", "bytes", "array"
    );
    for one in data {
        let array = format!("{} {:?}", one.element, one.shape);
        let shared = if one.shared { "  (shared)" } else { "" };
        println!(
            "{:width$} {:>7} {:>14}  {array:24} {}{shared}",
            name(one),
            one.version,
            one.bytes,
            one.holders.join(", "),
        );
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
pub(crate) fn run(server: &Server, form: &Form) -> Result<(), Failure> {
    let data = server.list_data()?;
    match form.json {
        true => println!("{}", json!({ "schema": 1, "data": to_json(&data) })),
        false => print(&data),
    }
    Ok(())
}
