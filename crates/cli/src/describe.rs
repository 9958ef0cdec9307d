//! `farcall describe`: prints the interface of a function, or the estimate of a call at each
//! server. It makes no call and sends no array.

use crate::failure::Failure;
use crate::plain;
use crate::target::Target;
use clap::Args;
use farcall_client::Function;
use farcall_gateway::describe;
use serde_json::{Value, json};

/// Show the interface of a function or of a class, or what a call would take at each server
#[derive(Args)]
#[command(after_help = "Examples:
  farcall describe lapack/dgesv
  farcall describe ddot --server meta://localhost --estimate n=1000000 incx=1 incy=1")]
pub(crate) struct Arguments {
    /// Name of the function or the class, with or without its module
    function: String,
    /// Server to ask, as with --server. With --estimate, arguments by name: all scalars, and the
    /// arrays whose elements decide the sizes of others
    #[arg(value_name = "SERVER|NAME=VALUE")]
    words: Vec<String>,
    /// Show what a call would take at each server behind a metaserver
    #[arg(long, alias = "plan")]
    estimate: bool,
    #[command(flatten)]
    target: Target,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.estimate {
        let function = arguments
            .target
            .connect(None)?
            .function(&arguments.function)?;
        return estimate(&function, arguments);
    }
    let address = match &arguments.words[..] {
        [] => None,
        [address] => Some(address.as_str()),
        [_, more, ..] => {
            let text =
                format!("`{more}` is one word too many; add --estimate to give arguments by name");
            return Err(Failure::usage(text));
        }
    };
    let server = arguments.target.connect_to(address)?;
    let unknown = match server.function(&arguments.function) {
        Ok(function) => return show(&function, arguments.json),
        Err(error) => error,
    };
    let methods = server.methods(&arguments.function)?;
    if methods.is_empty() {
        return Err(unknown.into());
    }
    let mut described = Vec::new();
    for method in methods {
        let method = server.function(&method)?;
        match arguments.json {
            true => described.push(describe(method.interface(), method.text())),
            false => show(&method, false)?,
        }
    }
    if arguments.json {
        let class = &arguments.function;
        println!(
            "{}",
            json!({ "schema": 1, "class": class, "methods": described })
        );
    }
    Ok(())
}

/// Prints the interface of a function.
fn show(function: &Function, as_json: bool) -> Result<(), Failure> {
    if as_json {
        let mut description = describe(function.interface(), function.text());
        description["library"] = function.library().into();
        println!("{description}");
    } else {
        print!("{}", plain::text(function.text()));
        if let Some(cost) = &function.interface().calc_order {
            println!(
                "/* operations of one call: {} */",
                function.interface().expr_text(cost)
            );
        }
        if let Some(library) = function.library() {
            plain::say(format_args!(
                "/* library: {} */",
                library.replace("*/", "* /")
            ));
        }
    }
    Ok(())
}

/// Prints what a call would take at each server.
fn estimate(function: &Function, arguments: &Arguments) -> Result<(), Failure> {
    let (scalars, elements) = crate::call::sizes(function, &arguments.words)?;
    let offers = function.offers(&scalars, &elements)?;
    if arguments.json {
        let rows = offers.iter().map(|offer| {
            json!({
                "server": format!("{:016x}", offer.server),
                "address": offer.address,
                "up_s": offer.terms.map(|terms| terms.up_s),
                "wait_s": offer.terms.map(|terms| terms.wait_s),
                "compute_s": offer.terms.map(|terms| terms.compute_s),
                "down_s": offer.terms.map(|terms| terms.down_s),
                "total_s": offer.terms.map(|terms| terms.seconds()),
                "others_s": offer.terms.map(|terms| terms.others_s),
                "factor": offer.terms.map(|terms| terms.factor),
                "pes": offer.terms.map(|terms| terms.pes),
                "learned": offer.terms.map(|terms| terms.learned),
                "refusal": offer.refusal,
            })
        });
        let rows: Vec<Value> = rows.collect();
        let function = function.qualified_name();
        println!(
            "{}",
            json!({ "schema": 1, "function": function, "servers": rows })
        );
        return Ok(());
    }
    let width = plain::width(offers.iter().map(|offer| offer.address.len())).max(6);
    println!(
        "{:width$} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}  x/     PEs",
        "server", "up", "wait", "compute", "down", "total s", "others"
    );
    for offer in &offers {
        let Some(terms) = offer.terms else {
            let why = offer
                .refusal
                .as_deref()
                .unwrap_or("the server cannot take the call");
            plain::say(format_args!("{:width$} {why}", offer.address));
            continue;
        };
        let parts = [
            terms.up_s,
            terms.wait_s,
            terms.compute_s,
            terms.down_s,
            terms.seconds(),
            terms.others_s,
        ];
        let parts = parts.map(|seconds| format!("{seconds:>10.6}")).join(" ");
        let guess = if terms.learned {
            ""
        } else {
            "  (a guess: the server has never run it)"
        };
        plain::say(format_args!(
            "{:width$} {parts}  {:<6.2} {}{guess}",
            offer.address, terms.factor, terms.pes
        ));
    }
    Ok(())
}
