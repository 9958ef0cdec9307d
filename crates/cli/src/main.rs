//! The `farcall` command: the only place where arguments are parsed. One file per subcommand.

mod arrays;
mod bench;
mod call;
mod certificate;
mod describe;
mod doctor;
mod drain;
mod failure;
mod flow;
mod form;
mod gang;
mod idl;
mod jobs;
mod log;
mod ls;
mod meta;
mod npy;
mod objects;
mod picture;
mod register;
mod reservations;
mod results;
mod serve;
mod sim;
mod status;
mod target;
mod texts;
mod token;
mod transaction;
mod trunk;
mod up;

use clap::{Parser, Subcommand};
use failure::Failure;
use std::process::ExitCode;

/// Call numerical libraries on any machine as if they were local.
#[derive(Parser)]
#[command(name = "farcall", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Meta(meta::Arguments),
    Up(up::Arguments),
    Register(register::Arguments),
    Call(call::Arguments),
    Submit(jobs::submit::Arguments),
    Jobs(jobs::list::Arguments),
    Fetch(jobs::fetch::Arguments),
    Cancel(jobs::cancel::Arguments),
    New(objects::new::Arguments),
    Objects(objects::list::Arguments),
    Put(arrays::put::Arguments),
    Get(arrays::get::Arguments),
    Drop(arrays::drop::Arguments),
    Transaction(transaction::Arguments),
    Ls(ls::Arguments),
    Describe(describe::Arguments),
    Doctor(doctor::Arguments),
    Status(status::Arguments),
    Drain(drain::Arguments),
    Reserve(reservations::reserve::Arguments),
    Reservations(reservations::list::Arguments),
    Release(reservations::release::Arguments),
    Token(token::Arguments),
    Certificate(certificate::Arguments),
    Idl(idl::Arguments),
    Flow(flow::Arguments),
    Sim(sim::Arguments),
    Trunk(trunk::Arguments),
    Gang(gang::Arguments),
    Bench(bench::Arguments),
    /// Run as a worker of a server (started by the server, not by hand).
    #[command(hide = true)]
    Worker,
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    fail_where_output_cannot_go();
    if !matches!(
        command,
        Command::Serve(_) | Command::Meta(_) | Command::Up(_) | Command::Worker
    ) {
        end_with_the_reader();
    }
    let result = match command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Meta(arguments) => meta::run(&arguments),
        Command::Up(arguments) => up::run(&arguments),
        Command::Register(arguments) => register::run(&arguments),
        Command::Call(arguments) => call::run(arguments),
        Command::Submit(arguments) => jobs::submit::run(&arguments),
        Command::Jobs(arguments) => jobs::list::run(&arguments),
        Command::Fetch(arguments) => jobs::fetch::run(&arguments),
        Command::Cancel(arguments) => jobs::cancel::run(&arguments),
        Command::New(arguments) => objects::new::run(&arguments),
        Command::Objects(arguments) => objects::list::run(&arguments),
        Command::Put(arguments) => arrays::put::run(&arguments),
        Command::Get(arguments) => arrays::get::run(&arguments),
        Command::Drop(arguments) => arrays::drop::run(&arguments),
        Command::Transaction(arguments) => transaction::run(&arguments),
        Command::Ls(arguments) => ls::run(&arguments),
        Command::Describe(arguments) => describe::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Drain(arguments) => drain::run(&arguments),
        Command::Reserve(arguments) => reservations::reserve::run(&arguments),
        Command::Reservations(arguments) => reservations::list::run(&arguments),
        Command::Release(arguments) => reservations::release::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Token(arguments) => token::run(&arguments),
        Command::Certificate(arguments) => certificate::run(&arguments),
        Command::Idl(arguments) => idl::run(&arguments),
        Command::Flow(arguments) => flow::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Trunk(arguments) => trunk::run(&arguments),
        Command::Gang(arguments) => gang::run(arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Worker => farcall_server::run_worker().map_err(Failure::failed),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure::print(&failure);
            failure.exit_code()
        }
    }
}

/// Makes output that cannot be written, such as to a full disk, a failure as any other.
fn fail_where_output_cannot_go() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        match text.strip_prefix("failed printing to stdout: ") {
            Some(reason) => {
                failure::print(format_args!("standard output: {reason}"));
                std::process::exit(1);
            }
            None => before(panic),
        }
    }));
}

/// Lets `farcall ls | head` end quietly when its reader does.
fn end_with_the_reader() {
    // SAFETY: no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
