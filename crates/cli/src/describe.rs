//! `farcall describe`

use crate::failure::Failure;
use crate::target::Target;
use clap::Args;
use farcall_client::Interface;
use serde_json::{Value, json};

/// Show the interface of a function
#[derive(Args)]
#[command(after_help = "Example:\n  farcall describe lapack/dgesv")]
pub(crate) struct Arguments {
    /// Name of the function, with or without its module
    function: String,
    /// Server to ask; the same as --server
    #[arg(value_name = "SERVER")]
    address: Option<String>,
    #[command(flatten)]
    target: Target,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(arguments.address.as_deref())?;
    let function = server.function(&arguments.function)?;
    if arguments.json {
        let mut description = to_json(function.interface(), function.text());
        description["library"] = function.library().into();
        println!("{description}");
    } else {
        print!("{}", function.text());
        if let Some(cost) = &function.interface().calc_order {
            println!(
                "/* operations of one call: {} */",
                function.interface().expr_text(cost)
            );
        }
        if let Some(library) = function.library() {
            println!("/* library: {} */", library.replace("*/", "* /"));
        }
    }
    Ok(())
}

fn to_json(interface: &Interface, text: &str) -> Value {
    let params: Vec<Value> = interface
        .params
        .iter()
        .map(|param| {
            let sizes: Vec<String> = param
                .dims
                .iter()
                .map(|dim| interface.expr_text(&dim.size))
                .collect();
            json!({
                "name": param.name,
                "mode": param.mode.name(),
                "type": param.ty.name(),
                "dimensions": sizes,
            })
        })
        .collect();
    json!({
        "schema": 1,
        "name": interface.qualified_name(),
        "description": interface.description,
        "cost": interface.calc_order.as_ref().map(|cost| interface.expr_text(cost)),
        "parameters": params,
        "idl": text,
    })
}
