//! `farcall put`

use super::shown;
use crate::failure::Failure;
use crate::form::Form;
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
/// same user find it by its id, nobody else does. With a name, calls find it as data:NAME, also
/// behind a metaserver; put again, it is the next version, and takes the place of the one before.
#[derive(Args)]
#[command(after_help = "Examples:
  id=$(farcall put a.npy --order columns)
  farcall call dgesv n=1000 nrhs=1 a=handle:$id lda=1000 b=@b.npy ldb=1000 -o b=x.npy
  farcall get $id -o factors.npy
  farcall drop $id
  farcall put atoms.npy --name atoms
  farcall call forces n=1000 atoms=data:atoms")]
pub(crate) struct Arguments {
    /// The array
    #[arg(value_name = "FILE.npy")]
    file: PathBuf,
    /// Order of its elements at the server: BLAS and LAPACK want columns [default: as in the file]
    #[arg(long, value_enum)]
    order: Option<Layout>,
    /// Name for the data: words with `/` between
    #[arg(long)]
    name: Option<String>,
    /// Let all users read them
    #[arg(long, requires = "name")]
    shared: bool,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    form: Form,
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
    let handle = match &arguments.name {
        None => server.put(form, &bytes, true)?,
        Some(name) => server.put_named(form, &bytes, name, arguments.shared)?,
    };
    let named = handle.name();
    let address = handle.server().address().to_string();
    let words = || match named {
        Some(named) => {
            let (name, version) = (&named.name.name, named.version);
            format!("data:{name} version {version} at {address}")
        }
        None => handle.id().to_string(),
    };
    let fields = || {
        json!({
            "id": handle.id().to_string(), "type": handle.form().element,
            "shape": handle.form().shape, "array": shown(handle.form()),
            "name": named.map(|named| named.name.to_string()),
            "version": named.map(|named| named.version),
            "server": address,
        })
    };
    arguments.form.answer(words, fields);
    Ok(())
}
