//! The servers of `farcall up --slurm`, which are jobs of Slurm. A thread reads the jobs and the
//! status of the metaserver, asks the policy (`farcall_schedule::pool`), and runs Slurm's commands.
//! It ends all jobs at the end.

use crate::failure::{self, Failure};
use farcall_client::{Options, Server};
use farcall_schedule::pool::{Action, Member, Others, Pool, Rules, State};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time for a command of Slurm.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest time for an answer of the metaserver.
const ANSWER: Duration = Duration::from_secs(5);
/// How long Slurm may take to list a job that it has accepted.
const UNLISTED: Duration = Duration::from_secs(15);
/// Slurm sends the warning of `sbatch --signal` up to so many seconds early, says its manual.
const EARLY_S: f64 = 60.0;

/// How the servers are started.
pub(super) struct Settings {
    /// When the pool grows and shrinks.
    pub(super) rules: Rules,
    /// Time between two looks at the jobs.
    pub(super) every: Duration,
    /// Options of `sbatch`.
    pub(super) options: Vec<String>,
    /// A folder that all nodes see.
    pub(super) folder: PathBuf,
    /// The name of all jobs.
    pub(super) name: String,
    /// What a job runs.
    pub(super) script: String,
    /// The address of the metaserver.
    pub(super) metaserver: String,
}

/// The pool. Its jobs end with it.
pub(super) struct Slurm {
    /// Dropped at the end.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Slurm {
    /// Starts the pool, if Slurm answers. It does nothing more after a signal.
    pub(super) fn start(settings: Settings, signals: &UnixStream) -> Result<Slurm, Failure> {
        std::fs::create_dir_all(&settings.folder).map_err(|error| {
            Failure::cannot("make the folder", settings.folder.display(), error)
        })?;
        let (end, ends) = channel();
        let jobs = Jobs::new(settings, ends, signals.try_clone()?);
        // A wrong option or a missing Slurm is an error of the command.
        match jobs.list() {
            Ok(_) => {}
            Err(_) if jobs.must_end() => {
                return Ok(Slurm {
                    end: None,
                    thread: None,
                });
            }
            Err(error) => return Err(Failure::failed(error)),
        }
        let thread = std::thread::Builder::new().name("slurm".to_owned());
        let thread = thread.spawn(move || jobs.run())?;
        Ok(Slurm {
            end: Some(end),
            thread: Some(thread),
        })
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The lines of a job: a server that listens where the metaserver reaches it.
pub(super) fn script(program: &str, words: &str, metaserver: &str) -> String {
    let host = metaserver.rsplit("//").next().unwrap_or(metaserver);
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    format!(
        "#!/bin/sh\n\
         # A server of `farcall up --slurm`.\n\
         meta=$(getent ahosts {host} | awk '{{ print $1; exit }}')\n\
         own=$(ip route get \"$meta\" | sed -n 's/.* src \\([^ ]*\\).*/\\1/p' | head -n1)\n\
         exec {program} {words} --listen \"${{own:-$(hostname -i | cut -d' ' -f1)}}:0\"\n"
    )
}

/// What the pool knows of a job.
struct Job {
    asked: Instant,
    /// Where its server listens.
    address: Option<String>,
    leaves: bool,
    has_served: bool,
}

/// What Slurm says of a job.
#[derive(Debug, PartialEq)]
struct Listed {
    is_running: bool,
    /// Seconds until its time limit.
    left_s: f64,
    /// Its whole time limit in seconds.
    limit_s: f64,
}

struct Jobs {
    settings: Settings,
    pool: Pool,
    start: Instant,
    known: BTreeMap<u64, Job>,
    metaserver: Option<Server>,
    /// What failed at the last look, so that it is said once.
    trouble: Option<String>,
    /// Disconnected when the pool must end.
    ends: Receiver<()>,
    /// Readable after a signal that ends the command.
    signals: UnixStream,
}

/// Removes the folder if no job has printed anything.
impl Drop for Jobs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.settings.folder);
    }
}

impl Jobs {
    fn new(settings: Settings, ends: Receiver<()>, signals: UnixStream) -> Jobs {
        Jobs {
            ends,
            signals,
            pool: Pool::new(settings.rules.clone()),
            settings,
            start: Instant::now(),
            known: BTreeMap::new(),
            metaserver: None,
            trouble: None,
        }
    }

    /// Whether a signal has come, or the cluster ends for another reason.
    fn must_end(&self) -> bool {
        let has_ended = matches!(self.ends.try_recv(), Err(TryRecvError::Disconnected));
        has_ended || super::signalled(&self.signals, Duration::ZERO).unwrap_or(true)
    }

    /// Runs a command of Slurm, and returns what it prints. The end of the pool interrupts it.
    fn told(&self, program: &str, words: &[&str], input: &str) -> Result<String, String> {
        told(program, words, input, || self.must_end())
    }

    fn run(mut self) {
        loop {
            let trouble = self.look().err();
            if self.must_end() {
                break;
            }
            if trouble.is_some() && trouble != self.trouble {
                say(&trouble.clone().unwrap_or_default());
            }
            self.trouble = trouble;
            match self.ends.recv_timeout(self.settings.every) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let words = ["--name", &self.settings.name];
        if let Err(error) = told("scancel", &words, "", || false) {
            say(&error);
        }
    }

    /// Looks at jobs and servers once, and does what the policy says. If Slurm or the metaserver
    /// does not answer, nothing is known, and nothing is done.
    fn look(&mut self) -> Result<(), String> {
        let listed = self.list()?;
        let servers = self.servers()?;
        self.forget_ended(&listed);
        let members = self.members(&listed, &servers);
        let own: Vec<&String> = self
            .known
            .values()
            .filter_map(|job| job.address.as_ref())
            .collect();
        let outside = servers
            .iter()
            .filter(|one| one.serves && !own.contains(&&one.address));
        let others = outside.fold(Others::default(), |sum, one| Others {
            servers: sum.servers + 1,
            backlog_s: sum.backlog_s + one.backlog_s,
        });
        let now = self.start.elapsed().as_secs_f64();
        for action in self.pool.decide(now, others, &members) {
            self.act(now, action)?;
        }
        Ok(())
    }

    fn act(&mut self, now: f64, action: Action) -> Result<(), String> {
        match action {
            Action::Ask => {
                let job = self.submit().inspect_err(|_| self.pool.refused(now))?;
                self.pool.asked(job);
                let new = Job {
                    asked: Instant::now(),
                    address: None,
                    leaves: false,
                    has_served: false,
                };
                self.known.insert(job, new);
                say(&format!("job {job} is asked for"));
            }
            Action::Drain(job) => {
                let words = ["--signal=USR1", "--batch", &job.to_string()];
                self.told("scancel", &words, "")?;
                self.leaves(job, "drains");
            }
            Action::Cancel(job) => {
                self.told("scancel", &[&job.to_string()], "")?;
                self.leaves(job, "is not needed any more");
            }
        }
        Ok(())
    }

    fn leaves(&mut self, job: u64, what: &str) {
        if let Some(known) = self.known.get_mut(&job) {
            known.leaves = true;
        }
        say(&format!("job {job} {what}"));
    }

    fn submit(&self) -> Result<u64, String> {
        let Settings {
            name,
            folder,
            options,
            script,
            rules,
            ..
        } = &self.settings;
        let file = |end: &str| folder.join(format!("%j.{end}")).display().to_string();
        // Slurm's own warning before the time limit, if this program is not there any more. It must
        // not come before that of this program, which has asked for a successor by then.
        let warning_s = (rules.lead_s - EARLY_S).min(65535.0);
        let signal = (warning_s >= 1.0).then(|| format!("--signal=B:USR1@{warning_s:.0}"));
        let (output, errors) = (file("out"), file("err"));
        let mut words: Vec<&str> = signal.as_deref().into_iter().collect();
        words.extend(options.iter().map(String::as_str));
        // The last ones count. By the name and the files, this program finds the job again.
        words.extend(["--parsable", "--no-requeue", "--job-name", name]);
        words.extend(["--output", &output, "--error", &errors]);
        let told = self.told("sbatch", &words, script)?;
        let number = told.trim().split(';').next().unwrap_or_default();
        number
            .parse()
            .map_err(|_| format!("sbatch: `{}` is no number of a job", told.trim()))
    }

    /// The jobs that have not ended.
    fn list(&self) -> Result<BTreeMap<u64, Listed>, String> {
        let words = [
            "--noheader",
            "--name",
            &self.settings.name,
            "--format",
            "%i|%T|%L|%l",
        ];
        let told = self.told("squeue", &words, "")?;
        Ok(told.lines().filter_map(listed).collect())
    }

    fn forget_ended(&mut self, listed: &BTreeMap<u64, Listed>) {
        let folder = &self.settings.folder;
        self.known.retain(|number, job| {
            let is_there = listed.contains_key(number)
                || (job.asked.elapsed() < UNLISTED && !job.has_served && !job.leaves);
            if !is_there {
                let errors = Some(folder.join(format!("{number}.err")));
                let errors = errors.filter(|_| !job.has_served);
                let said = errors.and_then(|file| last_line(&file));
                let said = said.map_or_else(String::new, |said| format!(": {said}"));
                say(&format!("job {number} has ended{said}"));
            }
            is_there
        });
    }

    /// The jobs as the policy sees them.
    fn members(&mut self, listed: &BTreeMap<u64, Listed>, servers: &[Serving]) -> Vec<Member> {
        let folder = self.settings.folder.clone();
        let lead_s = self.settings.rules.lead_s;
        let member = |(number, job): (&u64, &mut Job)| {
            let listed = listed.get(number);
            if job.address.is_none() && listed.is_some_and(|job| job.is_running) {
                job.address = address(&folder.join(format!("{number}.out")));
            }
            let is_it = |one: &&Serving| Some(&one.address) == job.address.as_ref();
            let server = servers.iter().find(is_it);
            if server.is_some() && !job.has_served {
                job.has_served = true;
                let at = job.address.as_deref().unwrap_or_default();
                say(&format!("job {number} serves at {at}"));
                if let Some(text) = listed.and_then(|job| too_short(job, lead_s)) {
                    say(&format!("job {number} {text}"));
                }
            }
            let state = match (job.leaves, server.map(|one| one.serves)) {
                (true, _) | (_, Some(false)) => State::Leaving,
                (_, Some(true)) => State::Serving,
                // Its lease has ended: it is lost.
                (_, None) if job.has_served => State::Leaving,
                (_, None) => State::Asked,
            };
            Member {
                job: *number,
                state,
                backlog_s: server.map_or(0.0, |one| one.backlog_s),
                calls: server.map_or(0, |one| one.calls),
                left_s: match listed {
                    Some(listed) if listed.is_running => listed.left_s,
                    _ => f64::INFINITY,
                },
                limit_s: listed.map_or(f64::INFINITY, |job| job.limit_s),
            }
        };
        self.known.iter_mut().map(member).collect()
    }

    /// The servers that the metaserver knows.
    fn servers(&mut self) -> Result<Vec<Serving>, String> {
        let status = self.status().inspect_err(|_| self.metaserver = None)?;
        let status: Value = serde_json::from_str(&status).map_err(|error| error.to_string())?;
        let servers = status["servers"].as_array().map_or(&[][..], Vec::as_slice);
        Ok(servers.iter().map(Serving::of).collect())
    }

    fn status(&mut self) -> Result<String, String> {
        let said = |error: farcall_client::Error| format!("the metaserver: {error}");
        let server = match &mut self.metaserver {
            Some(server) => server,
            none => {
                let options = Options {
                    timeout: Some(ANSWER),
                    ..Options::default()
                };
                let server = Server::connect(&self.settings.metaserver, options);
                none.insert(server.map_err(said)?)
            }
        };
        server.status().map_err(said)
    }
}

/// A server that the metaserver knows.
struct Serving {
    address: String,
    serves: bool,
    calls: u32,
    backlog_s: f64,
}

impl Serving {
    fn of(status: &Value) -> Serving {
        let backlog_s = status["backlog_s"].as_f64().unwrap_or(0.0);
        Serving {
            address: status["address"].as_str().unwrap_or_default().to_owned(),
            serves: status["state"] == "serving",
            calls: status["calls"]
                .as_u64()
                .map_or(0, |calls| calls.try_into().unwrap_or(u32::MAX)),
            // Less than this is what is left of a call that has just ended.
            backlog_s: if backlog_s < 1e-3 { 0.0 } else { backlog_s },
        }
    }
}

/// What to say of a server that drains as soon as it serves.
fn too_short(job: &Listed, lead_s: f64) -> Option<String> {
    let limit_s = job.limit_s;
    (limit_s <= lead_s).then(|| {
        format!(
            "drains at once: its time limit is {limit_s} s, and `--lead` is {lead_s} s. Give it \
             more time (`--slurm-option=--time=...`), or a shorter `--lead`"
        )
    })
}

fn say(text: &str) {
    failure::say(format_args!("slurm: {text}"));
}

/// The address that a server has printed into the file of its job.
fn address(file: &Path) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(file)
        .ok()?
        .take(4096)
        .read_to_string(&mut text)
        .ok()?;
    let line = text
        .split_inclusive('\n')
        .find(|line| line.ends_with('\n'))?;
    Some(line.trim().strip_prefix("listening on ")?.to_owned())
}

/// The last line of what a job has said. Functions can say gigabytes, in any encoding.
fn last_line(file: &Path) -> Option<String> {
    const MOST: u64 = 4096;
    let mut file = std::fs::File::open(file).ok()?;
    let length = file.metadata().ok()?.len();
    let start = length.saturating_sub(MOST);
    file.seek(SeekFrom::Start(start)).ok()?;
    let mut end = Vec::new();
    file.take(MOST).read_to_end(&mut end).ok()?;
    let end = String::from_utf8_lossy(&end);
    end.lines().last().map(str::to_owned)
}

/// A line of `squeue`: the number of the job, its state, the time that it has left, and its time
/// limit. Nothing for a job that ends.
fn listed(line: &str) -> Option<(u64, Listed)> {
    let mut words = line.trim().split('|');
    let number = words.next()?.parse().ok()?;
    let is_running = match words.next()? {
        "PENDING" | "CONFIGURING" | "SUSPENDED" | "REQUEUED" | "STOPPED" => false,
        "RUNNING" => true,
        _ => return None,
    };
    let mut time_s = || words.next().and_then(seconds).unwrap_or(f64::INFINITY);
    let listed = Listed {
        is_running,
        left_s: time_s(),
        limit_s: time_s(),
    };
    Some((number, listed))
}

/// The seconds of `D-HH:MM:SS`, whose first parts may be missing. `None` for a word such as
/// `UNLIMITED`.
fn seconds(text: &str) -> Option<f64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<u32>().ok()?, clock),
        None => (0, text),
    };
    let mut parts = clock.split(':').map(|part| part.parse::<u32>().ok());
    let first = f64::from(parts.next()??);
    let sum = parts.try_fold(first, |sum, part| Some(60.0 * sum + f64::from(part?)))?;
    Some(86_400.0 * f64::from(days) + sum)
}

/// Runs a command of Slurm, and returns what it prints, unless the caller must end before.
fn told(
    program: &str,
    words: &[&str],
    input: &str,
    must_end: impl Fn() -> bool,
) -> Result<String, String> {
    let fail = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            format!(
                "cannot run {program}: it is not installed here. `--slurm` needs Slurm's commands"
            )
        }
        _ => format!("cannot run {program}: {error}"),
    };
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = farcall_child::spawn(command).map_err(fail)?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(input.as_bytes()) {
            // The command has not read all of it, and says below why.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            written => written.map_err(fail)?,
        }
    }
    // What a command of a few jobs prints fits into the pipes.
    let end = Instant::now() + PATIENCE;
    while child.try_wait().map_err(fail)?.is_none() {
        let is_late = Instant::now() > end;
        if is_late || must_end() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(match is_late {
                true => format!("{program} has not ended within {} s", PATIENCE.as_secs()),
                false => format!("{program} was interrupted"),
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().map_err(fail)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => {
            let said = text(&output.stderr);
            let said = said
                .trim()
                .lines()
                .last()
                .unwrap_or("it says nothing")
                .to_owned();
            Err(format!("{program} failed ({}): {said}", output.status))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_squeue_are_read() {
        let job = |is_running, left_s, limit_s| Listed {
            is_running,
            left_s,
            limit_s,
        };
        assert_eq!(
            listed("17|RUNNING|59:58|1:00:00"),
            Some((17, job(true, 3598.0, 3600.0)))
        );
        assert_eq!(
            listed(" 9|PENDING|1-02:00:01|1-02:00:01\n"),
            Some((9, job(false, 93_601.0, 93_601.0)))
        );
        let unlimited = listed("3|RUNNING|UNLIMITED|UNLIMITED");
        assert_eq!(
            unlimited,
            Some((3, job(true, f64::INFINITY, f64::INFINITY)))
        );
        for other in [
            "",
            "17",
            "x|RUNNING|1:00",
            "17|COMPLETING|1:00|2:00",
            "17|FAILED|INVALID|INVALID",
        ] {
            assert_eq!(listed(other), None, "{other}");
        }
        assert_eq!(seconds("4294967296"), None);
        assert_eq!(seconds("5"), Some(5.0));
    }

    #[test]
    fn a_time_limit_within_the_lead_is_told() {
        let (_, job) = listed("1|RUNNING|0:59|1:00").expect("a job");
        assert_eq!(too_short(&job, 59.0), None);
        let text = too_short(&job, 60.0).expect("a text");
        assert!(
            text.starts_with("drains at once: its time limit is 60 s"),
            "{text}"
        );
    }

    #[test]
    fn an_address_counts_when_its_line_is_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("1.out");
        assert_eq!(address(&file), None);
        std::fs::write(&file, "listening on farcall://10.0.0.1:37").expect("writes");
        assert_eq!(address(&file), None);
        std::fs::write(&file, "listening on farcall://10.0.0.1:3717\n").expect("writes");
        assert_eq!(address(&file).as_deref(), Some("farcall://10.0.0.1:3717"));
    }

    #[test]
    fn the_last_line_of_a_long_text_in_any_encoding_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("1.err");
        assert_eq!(last_line(&file), None);
        std::fs::write(&file, "").expect("writes");
        assert_eq!(last_line(&file), None);
        let mut text = b"\xff and so on\n".repeat(1000);
        text.extend(b"no library `lapack`\n");
        std::fs::write(&file, text).expect("writes");
        assert_eq!(last_line(&file).as_deref(), Some("no library `lapack`"));
    }

    #[test]
    fn a_missing_command_is_named() {
        let error = told("no-such-slurm", &[], "", || false).expect_err("there is none");
        assert!(
            error.starts_with("cannot run no-such-slurm: it is not installed"),
            "{error}"
        );
        let words = ["-c", "echo first >&2; echo last >&2; exit 3"];
        let error = told("sh", &words, "", || false);
        let error = error.expect_err("it fails");
        assert!(
            error.starts_with("sh failed (exit status: 3): last"),
            "{error}"
        );
    }

    #[test]
    fn the_reason_of_a_command_that_does_not_read_is_told() {
        let words = ["-c", "exec <&-; echo no such partition >&2; exit 1"];
        // More than a pipe holds.
        let script = "#".repeat(1 << 20);
        let error = told("sh", &words, &script, || false).expect_err("it fails");
        assert!(error.ends_with("no such partition"), "{error}");
    }

    #[test]
    fn a_command_that_hangs_is_interrupted() {
        let start = Instant::now();
        let error = told("sleep", &["60"], "", || true).expect_err("it is interrupted");
        assert_eq!(error, "sleep was interrupted");
        assert!(start.elapsed() < PATIENCE);
    }
}
