//! The `farcall` command: the only place where arguments are parsed. One file per subcommand.

mod access;
mod arrays;
mod bench;
mod call;
mod certificate;
mod commands;
mod completions;
mod describe;
mod doctor;
mod document;
mod drain;
mod failure;
mod flow;
mod folders;
mod form;
mod gang;
mod gateway;
mod idl;
mod installed;
mod jobs;
mod library;
mod log;
mod ls;
mod manual;
mod meta;
mod notify;
mod npy;
mod objects;
mod offload;
mod picture;
mod plain;
mod plans;
mod preprocessor;
mod progress;
mod record;
mod register;
mod relay;
mod replace;
mod reservations;
mod results;
mod seconds;
mod serve;
mod server;
mod sim;
mod state;
mod status;
mod target;
mod texts;
mod token;
mod top;
mod trace_out;
mod trunk;
mod up;
mod web;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
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
    Serve(Box<serve::Arguments>),
    Meta(meta::Arguments),
    Up(up::Arguments),
    Register(register::Arguments),
    Call(call::Arguments),
    Plan(plans::Arguments),
    Submit(jobs::submit::Arguments),
    Jobs(jobs::list::Arguments),
    Fetch(jobs::fetch::Arguments),
    Cancel(jobs::cancel::Arguments),
    Job(jobs::Arguments),
    Data(arrays::Arguments),
    Object(objects::Arguments),
    Offload(offload::Arguments),
    Reservation(reservations::Arguments),
    Ls(ls::Arguments),
    Describe(describe::Arguments),
    Doctor(doctor::Arguments),
    Status(status::Arguments),
    Top(top::Arguments),
    Server(server::Arguments),
    State(state::Arguments),
    Record(record::Arguments),
    Access(access::Arguments),
    Idl(idl::Arguments),
    Library(library::Arguments),
    Flow(flow::Arguments),
    Sim(sim::Arguments),
    Trunk(trunk::Arguments),
    Gang(gang::Arguments),
    Gateway(gateway::Arguments),
    Bench(bench::Arguments),
    Completions(completions::Arguments),
    Manual(manual::Arguments),
    Relay(relay::Arguments),
    /// Run as a worker process of a server, which starts it
    #[command(hide = true)]
    Worker,
}

fn main() -> ExitCode {
    let command = command();
    if !matches!(command, Command::Offload(_)) {
        offload::leave();
    }
    fail_where_output_cannot_go();
    if !matches!(
        command,
        Command::Serve(_)
            | Command::Meta(_)
            | Command::Up(_)
            | Command::Gateway(_)
            | Command::Worker
    ) {
        end_with_the_reader();
    }
    let result = match command {
        Command::Serve(arguments) => serve::run(*arguments),
        Command::Meta(arguments) => meta::run(&arguments),
        Command::Up(arguments) => up::run(&arguments),
        Command::Register(arguments) => register::run(&arguments),
        Command::Call(arguments) => call::run(arguments),
        Command::Plan(arguments) => plans::run(&arguments),
        Command::Submit(arguments) => jobs::submit::run(&arguments),
        Command::Jobs(arguments) => jobs::list::run(&arguments),
        Command::Fetch(arguments) => jobs::fetch::run(&arguments),
        Command::Cancel(arguments) => jobs::cancel::run(&arguments),
        Command::Job(arguments) => jobs::run(&arguments),
        Command::Data(arguments) => arrays::run(&arguments),
        Command::Object(arguments) => objects::run(&arguments),
        Command::Offload(arguments) => offload::run(&arguments),
        Command::Reservation(arguments) => reservations::run(&arguments),
        Command::Ls(arguments) => ls::run(&arguments),
        Command::Describe(arguments) => describe::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Server(arguments) => server::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::State(arguments) => state::run(&arguments),
        Command::Access(arguments) => access::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Idl(arguments) => idl::run(&arguments),
        Command::Library(arguments) => library::run(&arguments),
        Command::Flow(arguments) => flow::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Trunk(arguments) => trunk::run(&arguments),
        Command::Gang(arguments) => gang::run(arguments),
        Command::Gateway(arguments) => gateway::run(arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Manual(arguments) => manual::run(&arguments),
        Command::Relay(arguments) => relay::run(&arguments),
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

/// The command that was asked for.
fn command() -> Command {
    let words = commands::with_present_name(std::env::args_os());
    let command = commands::without_empty_variables(Cli::command());
    let command = commands::with_negative_numbers(command);
    let mut matches = commands::in_groups(command).get_matches_from(words);
    match Cli::from_arg_matches_mut(&mut matches) {
        Ok(cli) => cli.command,
        Err(error) => error.exit(),
    }
}

/// Makes output that cannot be written, such as to a full disk, a failure like any other.
fn fail_where_output_cannot_go() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        match text.strip_prefix("failed printing to stdout: ") {
            Some(reason) => {
                failure::print(format_args!("cannot write to standard output: {reason}"));
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

/// Keeps a daemon alive when the reader of its log ends, such as `tee`.
fn outlive_the_reader() {
    // SAFETY: no handler of a signal runs code here, and the signal is only ignored.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Keeps a server alive when a file reaches the limit of its shell, `ulimit -f`. It handles the
/// failed write as that of a full disk.
fn outlive_the_limit_of_files() {
    // SAFETY: no handler of a signal runs code here, and the signal is only ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
