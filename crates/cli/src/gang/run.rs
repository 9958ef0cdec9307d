//! `farcall gang run`

use super::Control;
use crate::failure::{self, Failure};
use clap::Args;
use farcall_gang::{FARCALL_FAILED, JobSpec};
use farcall_quantity::bytes;
use std::time::Instant;

/// Run a program as a parallel job
///
/// Output of all elements comes here; Ctrl-C, Ctrl-Z, fg and bg act on the whole job. The exit
/// status is the highest of all elements, 128 + signal for one that a signal ended, 125 where
/// Farcall itself failed.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall gang run -n 2 ./solver --size 1000
  farcall gang run -n 8 --tree -- make -j2 all")]
pub(crate) struct Arguments {
    /// Elements of the job
    #[arg(short = 'n', long = "elements", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    elements: u16,
    #[command(flatten)]
    control: Control,
    /// Any programs and what they start, frozen as a control group; without channels
    #[arg(long)]
    tree: bool,
    /// Channels that each element may open
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=8))]
    channels: u8,
    /// Send FIFO of an element, for other nodes [default: 49152 bytes, 512 messages]
    #[arg(long, value_name = "BYTES[,MESSAGES]", value_parser = fifo)]
    send_fifo: Option<(u32, u32)>,
    /// Receive FIFO of an element [default: 65536 bytes, 4096 messages]
    #[arg(long, value_name = "BYTES[,MESSAGES]", value_parser = fifo)]
    receive_fifo: Option<(u32, u32)>,
    /// Groups of ranks that may send to each other: their sizes, e.g. 2,2
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    partitions: Vec<u16>,
    /// Memory that each element may need
    #[arg(long, value_name = "BYTES", default_value = "64MB", value_parser = bytes)]
    memory: u64,
    /// End the job when it has terminated as a whole, or is deadlocked
    #[arg(long)]
    detect_termination: bool,
    /// Print no line about the resources used
    #[arg(long, short)]
    quiet: bool,
    /// Program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<String>,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let spec = spec(&arguments)?;
    let start = Instant::now();
    let mut number = 0;
    let ended = arguments
        .control
        .connect()
        .and_then(|client| Ok(client.run(spec, |job| number = job)?));
    let ended = match ended {
        Ok(ended) => ended,
        Err(failure) => {
            failure::print(&failure);
            std::process::exit(FARCALL_FAILED.into());
        }
    };
    if let Some(cause) = &ended.cause {
        eprintln!("farcall: job {number}: {cause}");
    }
    if !arguments.quiet {
        let usage = ended.usage;
        eprintln!(
            "farcall: job {number}: {:.2} s; user {:.2} s, system {:.2} s, \
             largest element {:.1} MB",
            start.elapsed().as_secs_f64(),
            usage.user_us as f64 / 1e6,
            usage.system_us as f64 / 1e6,
            usage.peak_bytes as f64 / 1e6,
        );
    }
    std::process::exit(ended.status.into())
}

fn spec(arguments: &Arguments) -> Result<JobSpec, Failure> {
    let mut partitions = Vec::new();
    for (number, size) in (0..).zip(&arguments.partitions) {
        partitions.extend(std::iter::repeat_n(number, (*size).into()));
    }
    if !partitions.is_empty() && partitions.len() != usize::from(arguments.elements) {
        return Err(Failure::usage(format!(
            "--partitions names {} ranks, -n {}",
            partitions.len(),
            arguments.elements
        )));
    }
    let pair = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        Some(format!("{name}={value}"))
    };
    let folder = std::env::current_dir()?;
    Ok(JobSpec {
        elements: arguments.elements,
        command: arguments.command.clone(),
        environment: std::env::vars_os().filter_map(pair).collect(),
        folder: folder.to_string_lossy().into_owned(),
        channels: arguments.channels,
        send: arguments.send_fifo.unwrap_or_default(),
        receive: arguments.receive_fifo.unwrap_or_default(),
        partitions,
        memory: arguments.memory,
        is_tree: arguments.tree,
        detect_termination: arguments.detect_termination,
        owner: (0, 0),
    })
}

/// Reads `BYTES` or `BYTES,MESSAGES`.
fn fifo(text: &str) -> Result<(u32, u32), String> {
    let (size, messages) = text.split_once(',').unwrap_or((text, "0"));
    let size = bytes(size)?;
    let size = u32::try_from(size).map_err(|_| format!("`{text}` is too large"))?;
    let messages = messages.parse();
    Ok((
        size,
        messages.map_err(|_| format!("`{text}`: write BYTES,MESSAGES"))?,
    ))
}
