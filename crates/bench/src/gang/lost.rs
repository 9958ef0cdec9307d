//! Measures the time that processes lose when they are switched out and in, compared with the same
//! processes without a gang. Both runs have the same load on the same processors. An interruption
//! counts for a switch only if it lies close to it.

use super::element::now;
use crate::failure::Failure;
use crate::machine::cpu_seconds;
use crate::program;
use farcall_channel::{Segment, Shape};
use farcall_lab::Daemon;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Time within which a daemon must end.
const END: Duration = Duration::from_secs(30);

/// The parameters of a measurement.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) program: &'static str,
    pub(super) elements: u16,
    pub(super) slice_ms: u32,
    pub(super) form: &'static str,
    pub(super) seconds: f64,
}

/// The results, as sums over the processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    /// Nanoseconds of processor time.
    pub(super) processor: f64,
    pub(super) steps: f64,
    /// Interrupted steps of all processes: start and duration in nanoseconds.
    gaps: Vec<(f64, f64)>,
}

/// Nanoseconds. An interruption belongs to a switch if it is at most this long before the switch
/// begins or after jobs run again.
const BEFORE: f64 = 200e3;
const AFTER: f64 = 5e6;

/// Means over the switches of a run, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Breakdown {
    pub(super) stop: f64,
    pub(super) rest: f64,
    pub(super) save: f64,
    pub(super) restore: f64,
    pub(super) run: f64,
    pub(super) total: f64,
    pub(super) switches: f64,
    /// Median of the time from first to last.
    pub(super) median: f64,
    /// Interruptions that the processes saw around a switch: the sum over all processes, median
    /// over the switches.
    pub(super) seen: f64,
}

/// Nanoseconds from the start until the processes begin to measure. All of them have started by
/// then.
const LEAD: u64 = 600_000_000;

impl Load {
    /// Runs the processes of the load without a gang.
    pub(super) fn without_gang(&self) -> Result<Sums, Failure> {
        let is_dedicated = usize::from(self.elements) <= processors();
        let plain = self.start_plain(&self.arguments(), is_dedicated)?;
        self.sums(&plain.output()?)
    }

    /// Starts the processes of the load without a gang. If each can have a processor, it is pinned
    /// to one.
    pub(super) fn start_plain(&self, arguments: &[String], spin: bool) -> Result<Plain, Failure> {
        let shape = Shape {
            job: 1,
            size: self.elements,
            locals: (0..self.elements).collect(),
            channels: 1,
            partitions: vec![0; self.elements.into()],
            send: Shape::SEND,
            receive: Shape::RECEIVE,
            spin,
            is_restored: false,
        };
        let segment = Segment::create(shape)?;
        let fd = segment.fd().map(|fd| fd.as_raw_fd()).unwrap_or_default();
        let bell = rustix::io::dup(std::io::stdin()).map_err(std::io::Error::from)?;
        let children: Result<Vec<Child>, std::io::Error> = (0..self.elements)
            .map(|rank| {
                let mut command = Command::new(std::env::current_exe()?);
                command
                    .args(arguments)
                    .env(
                        farcall_channel::VARIABLE,
                        format!("{fd},{},{rank}", bell.as_raw_fd()),
                    )
                    .stdout(Stdio::piped());
                let processor = (usize::from(self.elements) <= processors()).then_some(rank);
                let keep = [fd, bell.as_raw_fd()];
                // SAFETY: the closure makes only system calls on values of its own.
                unsafe { command.pre_exec(move || inherit(&keep, processor)) };
                farcall_child::spawn(command)
            })
            .collect();
        Ok(Plain {
            children: children?,
            _segment: segment,
        })
    }

    /// Runs the same load as a gang job that is switched out and in at every slice.
    pub(super) fn with_gang(&self) -> Result<(Sums, Breakdown, f64), Failure> {
        let daemon = BenchDaemon::start(self.slice_ms, self.form)?;
        let mut command = daemon.run(self.elements)?;
        command.args(self.arguments());
        let output = farcall_lab::output_of(command)?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Failure::failed(format!("the measured job failed: {text}")));
        }
        let sums = self.sums(&String::from_utf8_lossy(&output.stdout))?;
        let (breakdown, processor) = daemon.stop(&sums)?;
        Ok((sums, breakdown, processor))
    }

    pub(super) fn arguments(&self) -> Vec<String> {
        let begin = now() + LEAD;
        let end = begin + (self.seconds * 1e9) as u64;
        let mut arguments = vec!["element".to_string(), self.program.to_string()];
        arguments.extend([begin.to_string(), end.to_string()]);
        arguments
    }

    pub(super) fn sums(&self, text: &str) -> Result<Sums, Failure> {
        let mut sums = Sums::default();
        let mut count = 0;
        for line in text.lines() {
            let numbers: Vec<f64> = line
                .split(' ')
                .filter_map(|field| field.parse().ok())
                .collect();
            let [processor, steps] = numbers[..] else {
                return Err(Failure::failed(format!("an element printed `{line}`")));
            };
            sums.processor += processor;
            sums.steps += steps;
            let gaps = line.split(' ').filter_map(|field| field.split_once(':'));
            let number = |text: &str| text.parse().unwrap_or(f64::NAN);
            sums.gaps
                .extend(gaps.map(|(begin, time)| (number(begin), number(time))));
            count += 1;
        }
        match count == self.elements {
            true => Ok(sums),
            false => Err(Failure::failed(format!(
                "{count} of {} elements",
                self.elements
            ))),
        }
    }
}

/// The processes of a load without a gang.
pub(super) struct Plain {
    children: Vec<Child>,
    /// What they share.
    _segment: Segment,
}

impl Plain {
    /// Waits for the processes, and returns what they printed.
    pub(super) fn output(self) -> Result<String, Failure> {
        let mut text = String::new();
        for mut child in self.children {
            if let Some(mut out) = child.stdout.take() {
                out.read_to_string(&mut text)?;
            }
            child.wait()?;
        }
        Ok(text)
    }
}

/// Passes the segment to a child process, and pins the child to its processor.
fn inherit(keep: &[RawFd], processor: Option<u16>) -> std::io::Result<()> {
    // SAFETY: plain system calls on values that live long enough.
    unsafe {
        for fd in keep {
            if libc::fcntl(*fd, libc::F_SETFD, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        if let Some(processor) = processor {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(processor.into(), &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }
    Ok(())
}

pub(super) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A gang daemon that the benchmark starts for itself.
pub(super) struct BenchDaemon {
    process: Daemon,
    control: String,
    /// An unlinked file, so that nothing remains of it.
    trace: File,
}

impl BenchDaemon {
    pub(super) fn start(slice_ms: u32, form: &str) -> Result<BenchDaemon, Failure> {
        let number = now();
        let control = format!("@farcall-bench-{}-{number}", std::process::id());
        let trace = crate::signals::file()?;
        let mut command = Command::new(program::farcall()?);
        command
            .args([
                "gang",
                "daemon",
                "--switch-alone",
                "--listen",
                "127.0.0.1:0",
            ])
            .args(["--form", form, "--control", &control])
            .args(["--slice", &format!("{slice_ms}ms")])
            .arg("--trace")
            .arg(trace.path());
        let process = Daemon::start(command)?;
        Ok(BenchDaemon {
            process,
            control,
            trace: trace.into_file(),
        })
    }

    /// Its control socket.
    pub(super) fn control(&self) -> &str {
        &self.control
    }

    /// The command that runs a gang job of this program. The caller adds the arguments of the
    /// program.
    pub(super) fn run(&self, elements: u16) -> Result<Command, Failure> {
        self.run_program(elements, &std::env::current_exe()?)
    }

    /// The same for another program.
    pub(super) fn run_program(&self, elements: u16, program: &Path) -> Result<Command, Failure> {
        self.run_over("own", elements, program)
    }

    /// The same with the messages of MPI over this network (`--network`).
    pub(super) fn run_over(
        &self,
        network: &str,
        elements: u16,
        program: &Path,
    ) -> Result<Command, Failure> {
        let mut command = Command::new(program::farcall()?);
        command
            .args(["gang", "run", "--quiet", "--memory", "1MB", "--control"])
            .arg(&self.control)
            .args(["--network", network, "-n", &elements.to_string(), "--"])
            .arg(program);
        Ok(command)
    }

    /// Stops the daemon. Returns the times of the switches, and the seconds that the daemon has
    /// computed.
    pub(super) fn stop(mut self, sums: &Sums) -> Result<(Breakdown, f64), Failure> {
        let processor = cpu_seconds(self.process.id())?;
        self.end();
        let mut text = String::new();
        self.trace.read_to_string(&mut text)?;
        Ok((breakdown(&text, sums), processor))
    }

    fn end(&mut self) {
        // The daemon has no more work that takes time. If it does not end, it is killed.
        let _ = self.process.stop(END);
    }
}

impl Drop for BenchDaemon {
    fn drop(&mut self) {
        self.end();
    }
}

pub(super) fn breakdown(text: &str, sums: &Sums) -> Breakdown {
    let mut sum = Breakdown::default();
    let (mut totals, mut seen) = (Vec::new(), Vec::new());
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let times: Vec<f64> = fields
            .iter()
            .skip(1)
            .flat_map(|field| field.parse())
            .collect();
        // The first switch has no job to stop, and the last has none to start.
        let is_whole = fields.len() == 10 && !fields[7].is_empty() && !fields[8].is_empty();
        if !is_whole || times.len() < 6 {
            continue;
        }
        sum.stop += times[1] - times[0];
        sum.rest += times[2] - times[1];
        sum.save += times[3] - times[2];
        sum.restore += times[4] - times[3];
        sum.run += times[5] - times[4];
        sum.total += times[5] - times[0];
        sum.switches += 1.0;
        totals.push((times[5] - times[0]) * 1e-3);
        let around = times[0] - BEFORE..times[5] + AFTER;
        let hit = sums.gaps.iter().filter(|(begin, _)| around.contains(begin));
        let hit: f64 = hit.map(|(_, time)| time * 1e-3).sum();
        // Processes that do not measure yet, or have stopped measuring, see no interruption.
        if hit > 0.0 {
            seen.push(hit);
        }
    }
    let scale = 1e-3 / sum.switches;
    Breakdown {
        stop: sum.stop * scale,
        rest: sum.rest * scale,
        save: sum.save * scale,
        restore: sum.restore * scale,
        run: sum.run * scale,
        total: sum.total * scale,
        switches: sum.switches,
        median: crate::table::median(&totals),
        seen: crate::table::median(&seen),
    }
}
