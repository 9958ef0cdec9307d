//! `farcall-bench`: measures Farcall and compares it with a peer or a physical limit in the same
//! run. [`papers`] repeats the experiments of papers. `farcall bench` runs this program.

mod beside;
mod call;
mod contender;
mod disturbance;
mod failure;
mod flow;
mod gang;
mod grid;
mod load;
mod machine;
mod offload;
mod papers;
mod program;
mod progress;
mod raw;
mod reach;
mod reservation;
mod signals;
mod stack;
mod table;
mod transaction;
mod trunk;
mod twin;

use clap::{Parser, Subcommand};
use failure::Failure;
use load::What;
use std::process::ExitCode;

/// Measure Farcall, and a peer or a physical limit in the same run
///
/// The benchmarks measure the `farcall` beside this program. FARCALL_PROGRAM names another one,
/// such as that of an older build.
#[derive(Parser)]
#[command(
    name = "farcall-bench",
    bin_name = "farcall bench",
    version,
    propagate_version = true
)]
#[command(after_help = "Example:\n  farcall bench call --peers")]
struct Bench {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Call(call::Arguments),
    Load(load::Arguments),
    Flow(flow::Arguments),
    Trunk(trunk::Arguments),
    Gang(gang::Arguments),
    Grid(grid::Arguments),
    Transaction(transaction::Arguments),
    Reservation(reservation::Arguments),
    Twin(twin::Arguments),
    Stack(stack::Arguments),
    Reach(reach::Arguments),
    Offload(offload::Arguments),
    #[command(hide = true)]
    Element(gang::element::Arguments),
}

fn main() -> ExitCode {
    let command = Bench::parse().command;
    signals::end_with_the_reader();
    let result = match &command {
        // A measured process has no more threads than its work needs.
        Command::Element(_) => Ok(()),
        _ => signals::leave_nothing(),
    };
    let result = result.and_then(|()| match command {
        Command::Call(arguments) => call::run(&arguments),
        Command::Load(arguments) => under_load(&arguments),
        Command::Flow(arguments) => flow::run(&arguments),
        Command::Trunk(arguments) => trunk::run(&arguments),
        Command::Gang(arguments) => gang::run(&arguments),
        Command::Grid(arguments) => grid::run(&arguments),
        Command::Transaction(arguments) => transaction::run(&arguments),
        Command::Reservation(arguments) => reservation::run(&arguments),
        Command::Twin(arguments) => twin::run(&arguments),
        Command::Stack(arguments) => stack::run(&arguments),
        Command::Reach(arguments) => reach::run(&arguments),
        Command::Offload(arguments) => offload::run(&arguments),
        Command::Element(arguments) => gang::element::run(&arguments),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            signals::end_first();
            progress::over();
            failure.print();
            failure.exit_code()
        }
    }
}

fn under_load(arguments: &load::Arguments) -> Result<(), Failure> {
    match arguments.what {
        What::Dgesv => load::dgesv(arguments),
        What::Single => papers::one_host::single(arguments),
        What::Many => papers::one_host::many(arguments),
        What::Threads => papers::one_host::threads(arguments),
        What::Ep => papers::one_host::ep(arguments),
        What::Wan => papers::sites::wan(arguments),
        What::Sites => papers::sites::sites(arguments),
        What::Policies => papers::policies::measure(arguments),
        What::Shared => papers::sites::shared(arguments),
        What::World => papers::world::measure(arguments),
        What::Bmi => papers::bmi::measure(arguments),
    }
}
