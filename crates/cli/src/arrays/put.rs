//! `farcall data put`: stores an array from a `.npy` file, with a name on request. `npy` reads the
//! file. Elements are converted only if that loses nothing.

use super::shown;
use crate::failure::Failure;
use crate::form::Form;
use crate::npy;
use crate::target::Target;
use clap::{Args, ValueEnum};
use farcall_client::ArrayForm;
use farcall_idl::{Order, Type};
use farcall_npy::Array;
use serde_json::json;
use std::path::Path;

/// Store an array at a server, for calls to use
///
/// The command prints the id of the stored array, and calls take it as handle:ID. The server keeps
/// the array until `farcall data drop`, or until a day after its last use. Only programs of the
/// same user can use it.
///
/// With a name the array is named data, and calls take it as data:NAME, also behind a metaserver.
/// An array that is stored under the same name later is the next version.
#[derive(Args)]
#[command(after_help = "Examples:
  id=$(farcall data put @a.npy --order columns)
  farcall call dgesv n=1000 nrhs=1 a=handle:$id lda=1000 b=@b.npy ldb=1000 -o b=x.npy
  farcall data get $id -o factors.npy
  farcall data drop $id
  farcall data put atoms=@atoms.npy
  farcall data put weights=1,2,3 --type double --shared")]
pub(crate) struct Arguments {
    /// The array: @FILE.npy, or numbers with commas between them. With NAME= it is named data
    #[arg(value_name = "[NAME=]ARRAY")]
    array: String,
    /// Type of the elements at the server: int, long, float, double, scomplex, ... [default: as in
    /// the file; for numbers, long or double]
    #[arg(long = "type", value_name = "TYPE", value_parser = element_type)]
    element: Option<Type>,
    /// Order of the elements at the server; BLAS and LAPACK need columns [default: as in the file]
    #[arg(long, value_enum)]
    order: Option<Layout>,
    /// Name of the data, the same as NAME=: words with `/` between them
    #[arg(long)]
    name: Option<String>,
    /// Let all users read the named data
    #[arg(long)]
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

/// The name and the array of `[NAME=]ARRAY`, where the path of a file may stand for the array.
fn named(arguments: &Arguments) -> Result<(Option<&str>, Array), Failure> {
    let (text, option) = (arguments.array.as_str(), arguments.name.as_deref());
    let read = |text: &str| match text.starts_with('@') || !is_path(text) {
        // Probably a variable of the shell that is not set. A file may have no elements.
        true if text.is_empty() => Err(Failure::usage(
            "the array has no elements: write @FILE.npy, or numbers with commas between them",
        )),
        true => npy::parse(text),
        false => npy::read(Path::new(text)),
    };
    let (name, array) = match text.split_once('=') {
        Some((name, text)) if !is_path(&arguments.array) => (Some(name), read(text)?),
        _ => (option, read(text)?),
    };
    if let (Some(name), Some(option)) = (name, option)
        && name != option
    {
        return Err(Failure::usage(format!(
            "the array has two names, `{name}` and `--name {option}`: give one"
        )));
    }
    if arguments.shared && name.is_none() {
        return Err(Failure::usage(
            "--shared needs a name: write NAME=@FILE.npy",
        ));
    }
    Ok((name, array))
}

fn element_type(name: &str) -> Result<Type, String> {
    let is_number = |ty: &Type| farcall_npy::is_number(*ty);
    let mut types = Type::ALL.into_iter().filter(is_number);
    types.find(|ty| ty.name() == name).ok_or_else(|| {
        let names = Type::ALL.into_iter().filter(is_number).map(Type::name);
        let names = names.collect::<Vec<_>>().join(", ");
        format!("no such type; use one of {names}")
    })
}

/// Whether the text is the path of a file, and not an array.
fn is_path(text: &str) -> bool {
    Path::new(text).exists() || text.ends_with(".npy") && !text.contains(['=', '@'])
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (name, array) = named(arguments)?;
    let order = match arguments.order {
        None => array.order,
        Some(Layout::Columns) => Order::ColumnMajor,
        Some(Layout::Rows) => Order::RowMajor,
    };
    let element = arguments.element.unwrap_or_else(|| array.element());
    let form = ArrayForm {
        element: element.name().to_string(),
        shape: array.shape.clone(),
        column_major: order == Order::ColumnMajor,
    };
    let bytes = array.into_bytes(element, order).map_err(Failure::usage)?;
    let server = arguments.target.connect(None)?;
    let handle = match name {
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
