//! The measured programs: the paper's EP and BAR, between two given times. The benchmark starts
//! them as processes of a gang job and reads the interruptions that they print. The number of noted
//! interruptions is bounded.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use farcall_channel::{Channel, Reduction};
use std::time::Duration;

/// Run as a process of a measured gang job (started by the benchmark, not by hand).
#[derive(Args)]
pub(crate) struct Arguments {
    /// Program to run
    #[arg(value_enum)]
    program: Program,
    /// Start time on the monotonic clock, in nanoseconds
    begin: u64,
    /// End time; for `work`, nanoseconds of processor time; for `barriers`, their number
    end: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Program {
    /// Compute and send nothing.
    Ep,
    /// Run only barriers.
    Bar,
    /// Compute until the given processor time is used.
    Work,
    /// Sleep, as a process of EP that has a processor of its own looks to the others.
    Nap,
    /// Run the given number of barriers.
    Barriers,
}

/// Nanoseconds. A barrier or a step of computing that takes longer was interrupted.
const LONG: u64 = 40_000;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match arguments.program {
        Program::Ep => {
            ep(arguments.begin, arguments.end);
            Ok(())
        }
        Program::Bar => bar(arguments.begin, arguments.end).map_err(Failure::failed),
        Program::Nap => {
            while now() < arguments.end {
                std::thread::sleep(Duration::from_millis(1));
            }
            println!("{} 0", processor());
            Ok(())
        }
        Program::Barriers => barriers(arguments.end).map_err(Failure::failed),
        Program::Work => {
            while processor() < arguments.end {
                compute();
            }
            println!("{} {}", now(), processor());
            Ok(())
        }
    }
}

fn ep(begin: u64, end: u64) {
    while now() < begin {
        compute();
    }
    let used = processor();
    let (mut last, mut long, mut steps) = (now(), Gaps::default(), 0u64);
    while last < end {
        compute();
        let time = now();
        long.note(last, time);
        last = time;
        steps += 1;
    }
    println!("{} {steps}{}", processor() - used, long.text());
}

fn bar(begin: u64, end: u64) -> Result<(), farcall_channel::ChannelError> {
    let mut channel = Channel::open()?;
    loop {
        let mut late = [i64::from(now() >= begin)];
        channel.all_reduce(Reduction::Maximum, &mut late)?;
        if late[0] == 1 {
            break;
        }
    }
    let used = processor();
    let (mut last, mut long, mut barriers) = (now(), Gaps::default(), 0u64);
    loop {
        let mut ends = [i64::from(last >= end)];
        if barriers.is_multiple_of(64) {
            channel.all_reduce(Reduction::Maximum, &mut ends)?;
        }
        if barriers.is_multiple_of(64) && ends[0] == 1 {
            break;
        }
        channel.barrier()?;
        let time = now();
        long.note(last, time);
        last = time;
        barriers += 1;
    }
    println!("{} {barriers}{}", processor() - used, long.text());
    Ok(())
}

fn barriers(count: u64) -> Result<(), farcall_channel::ChannelError> {
    let mut channel = Channel::open()?;
    for _ in 0..count {
        channel.barrier()?;
    }
    println!("{} {count}", processor());
    Ok(())
}

/// Steps that were interrupted: start and duration.
#[derive(Default)]
struct Gaps(Vec<(u64, u64)>);

impl Gaps {
    fn note(&mut self, begin: u64, end: u64) {
        // This is enough for any run, and bounds the memory on a noisy machine.
        if end - begin > LONG && self.0.len() < 2000 {
            self.0.push((begin, end - begin));
        }
    }

    fn text(&self) -> String {
        let gaps = self.0.iter();
        gaps.map(|(begin, time)| format!(" {begin}:{time}"))
            .collect()
    }
}

/// A few microseconds of arithmetic.
fn compute() {
    let mut number = 1u64;
    for _ in 0..2000 {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
    }
    std::hint::black_box(number);
}

/// The monotonic clock in nanoseconds, which is the same in all processes.
pub(super) fn now() -> u64 {
    clock(rustix::time::ClockId::Monotonic)
}

/// Processor time of this process in nanoseconds.
fn processor() -> u64 {
    clock(rustix::time::ClockId::ProcessCPUTime)
}

fn clock(id: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(id);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos() as u64
}
