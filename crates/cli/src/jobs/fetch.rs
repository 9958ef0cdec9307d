//! `farcall fetch`: waits for the end of a durable call, and prints or writes its results.
//! `results` prints them. The server keeps the results, unless the user asks to forget them.

use super::id;
use crate::call::outputs;
use crate::failure::Failure;
use crate::progress;
use crate::replace;
use crate::results::{Results, SHOWN, print_times};
use crate::target::Target;
use clap::Args;
use farcall_client::{Argument, DurableCall, Interface, JobId, zeroed};
use farcall_idl::{ArrayLayout, Layout};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;

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
    /// Make the server delete the call and its results after this command has them. Long and
    /// fractional results need -o or --json then, because only a part of them is printed
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
    if arguments.forget && !arguments.json {
        check_forgotten(interface, layout, &outputs)?;
    }
    let mut arrays = BTreeMap::new();
    for array in layout
        .arrays
        .iter()
        .filter(|array| array.mode.is_returned())
    {
        arrays.insert(array.param, zeroed(array.client_bytes)?);
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
    match arguments.forget {
        true => forget(&job, &results),
        false => {
            results.warn_of_inexact();
            Ok(())
        }
    }
}

/// Lets the server delete the call, if its results are here for good.
fn forget(job: &DurableCall, results: &Results<'_>) -> Result<(), Failure> {
    if let Some(name) = results.inexact() {
        return Err(Failure::failed(format!(
            "the server keeps the call: `{name}` has strings that are not UTF-8, whose bytes \
             cannot be printed; write them to a file with -o {name}=FILE"
        )));
    }
    for path in results.outputs.values() {
        replace::sync(path).map_err(|error| {
            Failure::cannot("write", path.display(), error).of("the server keeps the call")
        })?;
    }
    job.forget()?;
    Ok(())
}

/// Fails if the command would print only a part of a result, which the server then deletes. Long
/// arrays are cut, and numbers with a fraction are rounded. Those that a file gets are whole there.
fn check_forgotten(
    interface: &Interface,
    layout: &Layout,
    files: &BTreeMap<usize, PathBuf>,
) -> Result<(), Failure> {
    let is_whole = |array: &ArrayLayout| {
        let most = SHOWN as u64 * u64::from(array.element_bytes);
        let is_short = array.client_bytes <= most && array.element.is_integer();
        is_short || array.client_bytes == 0
    };
    let printed = layout
        .arrays
        .iter()
        .filter(|array| array.mode.is_returned() && !files.contains_key(&array.param));
    let cut = printed.filter(|array| !is_whole(array));
    let cut: Vec<&str> = cut
        .map(|array| interface.params[array.param].name.as_str())
        .collect();
    match cut.is_empty() {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "--forget would delete `{}`, of which the command prints only a part: write it to a \
             file with -o NAME=FILE.npy, or print all values with --json",
            cut.join("`, `")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_client::Scalar;

    #[test]
    fn results_that_are_printed_in_part_are_not_forgotten() {
        let checked = |text: &str, n: i64| {
            let interface = farcall_idl::parse_interface(text).unwrap();
            let layout = interface
                .layout(&[Some(Scalar::Int(n)), None], &[])
                .unwrap();
            check_forgotten(&interface, &layout, &BTreeMap::new())
        };
        let counts = "Define f(IN int n, OUT int m[n]) Calls \"C\" f(n, m);";
        assert!(checked(counts, 8).is_ok());
        let failure = checked(counts, 9).unwrap_err();
        assert!(failure.to_string().contains("`m`") && failure.to_string().contains("-o"));
        let rounded = "Define f(IN int n, OUT double x[n]) Calls \"C\" f(n, x);";
        assert!(checked(rounded, 1).is_err());
        let sent = "Define f(IN int n, IN double x[n]) Calls \"C\" f(n, x);";
        assert!(checked(sent, 9).is_ok());
    }

    #[test]
    fn a_result_beside_one_that_a_file_gets_is_not_forgotten_either() {
        let text = "Define f(IN int n, OUT double x[n], OUT double y[n]) Calls \"C\" f(n, x, y);";
        let interface = farcall_idl::parse_interface(text).unwrap();
        let scalars = [Some(Scalar::Int(9)), None, None];
        let layout = interface.layout(&scalars, &[]).unwrap();
        let mut files = BTreeMap::from([(1, PathBuf::from("x.npy"))]);
        let failure = check_forgotten(&interface, &layout, &files).unwrap_err();
        let told = failure.to_string();
        assert!(told.contains("`y`") && !told.contains("`x`"), "{told}");
        files.insert(2, PathBuf::from("y.npy"));
        assert!(check_forgotten(&interface, &layout, &files).is_ok());
    }
}
