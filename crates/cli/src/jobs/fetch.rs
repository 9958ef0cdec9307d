//! `farcall fetch`: waits for the end of a durable call, and prints or writes its results.
//! `results` prints them. The server keeps the results, unless the user asks to forget them.

use super::id;
use crate::call::outputs;
use crate::failure::Failure;
use crate::progress;
use crate::results::{Results, print_times};
use crate::target::Target;
use clap::Args;
use farcall_client::{Argument, JobId};
use std::collections::BTreeMap;
use std::io::IsTerminal;

/// Wait for the end of a durable call, and fetch its results
///
/// The server keeps the results, so that they can be fetched again until their retention ends.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall fetch 5f0c8a4f0e9d4d0f8f1f0a3c2b1d9e77 -o b=x.npy
  farcall fetch 5f0c8a4f0e9d4d0f8f1f0a3c2b1d9e77 --forget --json")]
pub(crate) struct Arguments {
    /// Job id, which `farcall submit` has printed
    #[arg(value_parser = id)]
    id: JobId,
    /// File for an OUT or INOUT array; may be given several times. NAME may be left out if the
    /// function returns one array
    #[arg(short, long = "output", value_name = "[NAME=]FILE.npy")]
    output: Vec<String>,
    #[command(flatten)]
    target: Target,
    /// Fail if the call has not ended, instead of waiting
    #[arg(long)]
    no_wait: bool,
    /// Make the server delete the call and its results after this command has them
    #[arg(long)]
    forget: bool,
    /// Show the times of the call: send, compute, receive
    #[arg(long)]
    time: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(None)?;
    let job = server.job(arguments.id);
    let submitted = job.describe()?;
    if arguments.no_wait {
        let state = job.status()?.state;
        if !state.is_over() {
            return Err(Failure::failed(format!(
                "the call has not ended: it is {}; leave --no-wait out to wait for it",
                state.name()
            )));
        }
    }
    let (interface, layout) = (submitted.interface(), submitted.layout());
    let outputs = outputs(&arguments.output, interface)?;
    let mut arrays = BTreeMap::new();
    for array in layout
        .arrays
        .iter()
        .filter(|array| array.mode.is_returned())
    {
        let bytes = usize::try_from(array.client_bytes).map_err(Failure::failed)?;
        arrays.insert(array.param, vec![0; bytes]);
    }
    let mut to_fill: BTreeMap<usize, &mut Vec<u8>> = arrays
        .iter_mut()
        .map(|(param, bytes)| (*param, bytes))
        .collect();
    let mut slots: Vec<Argument<'_>> = (0..interface.params.len())
        .map(|param| match to_fill.remove(&param) {
            Some(bytes) => Argument::Out(bytes),
            None => Argument::Skip,
        })
        .collect();
    // SAFETY: the arrays are borrowed by the arguments, which outlive the request.
    let pending = unsafe { submitted.start(&mut slots) }?;
    if std::io::stderr().is_terminal() {
        progress::show(&pending)?;
    }
    let outcome = pending.wait()?;
    drop(slots);
    let results = Results {
        interface,
        scalars: submitted.scalars(),
        layout,
        arrays: &arrays,
        outputs: &outputs,
    };
    results.write()?;
    if arguments.json {
        println!("{}", results.to_json(&outcome));
    } else {
        results.print(&outcome.receipts);
        if arguments.time {
            print_times(&outcome);
        }
    }
    if arguments.forget {
        job.forget()?;
    }
    Ok(())
}
