//! `farcall put`

use super::shown;
use crate::failure::Failure;
use crate::npy::Array;
use crate::target::Target;
use clap::{Args, ValueEnum};
use farcall_client::ArrayForm;
use farcall_idl::Order;
use serde_json::json;
use std::path::PathBuf;

/// Leave an array at a server, for calls to use
///
/// Prints its id. It stays until `farcall drop`, or a day after its last use; other programs of the
/// same user find it by its id, nobody else does.
#[derive(Args)]
#[command(after_help = "Example:
  id=$(farcall put a.npy --order columns)
  farcall call dgesv n=1000 nrhs=1 a=handle:$id lda=1000 b=@b.npy ldb=1000 -o b=x.npy
  farcall get $id -o factors.npy
  farcall drop $id")]
pub(crate) struct Arguments {
    /// The array
    #[arg(value_name = "FILE.npy")]
    file: PathBuf,
    /// Order of its elements at the server: BLAS and LAPACK want columns [default: as in the file]
    #[arg(long, value_enum)]
    order: Option<Layout>,
    #[command(flatten)]
    target: Target,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Which index varies fastest: the first (columns) or the last (rows).
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Layout {
    Columns,
    Rows,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let array = Array::read(&arguments.file)?;
    let order = match arguments.order {
        None => array.order,
        Some(Layout::Columns) => Order::ColumnMajor,
        Some(Layout::Rows) => Order::RowMajor,
    };
    let element = array.element();
    let form = ArrayForm {
        element: element.name().to_string(),
        shape: array.shape.clone(),
        column_major: order == Order::ColumnMajor,
    };
    let bytes = array.into_bytes(element, order).map_err(Failure::usage)?;
    let server = arguments.target.connect(None)?;
    let handle = server.put(form, &bytes, true)?;
    match arguments.json {
        true => println!(
            "{}",
            json!({
                "schema": 1, "id": handle.id().to_string(), "type": handle.form().element,
                "shape": handle.form().shape, "array": shown(handle.form()),
            })
        ),
        false => println!("{}", handle.id()),
    }
    Ok(())
}
