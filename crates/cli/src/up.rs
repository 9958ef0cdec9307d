//! `farcall up`: starts a metaserver and several servers on this machine, and ends all of them
//! together. If one of the processes ends, the others are ended too. The servers end before the
//! metaserver, so that they can leave it.

use crate::failure::Failure;
use crate::web;
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the children have to end before the command kills them.
const PATIENCE: Duration = Duration::from_secs(4);

/// Run a small cluster on this machine: a metaserver and several servers
///
/// The command prints `listening on ADDRESS` for the metaserver, then for each server, and then the
/// address of a page that shows them in a browser. That address contains a key: keep it to
/// yourself. The cluster runs until Ctrl-C. If one of the processes ends, the command ends the
/// others.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall up --local 3 libraries/blas.idl
  farcall up --local 2 my.idl --listen 127.0.0.1:0 --threads 1 --pes 1
Then, in another shell:
  FARCALL_METASERVER=localhost farcall call ddot n=3 x=1,2,3 incx=1 y=4,5,6 incy=1")]
pub(crate) struct Arguments {
    /// Number of servers on this machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    local: u16,
    /// Interface files that each server serves
    #[arg(required_unless_present = "pickled", value_name = "IDL")]
    files: Vec<PathBuf>,
    /// Address of the metaserver; port 0 picks a free port [default: 127.0.0.1:3718]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Address of the page that shows the cluster in a browser
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    web: SocketAddr,
    /// How the metaserver chooses a server for a call; see `farcall meta --help`
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Processor elements of each server [default: the number of processor cores]
    #[arg(long, value_name = "N")]
    pes: Option<u32>,
    /// Processor elements and threads of a call whose interface does not state them [default: 1]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Compile and run the C code in the interface files
    #[arg(long)]
    allow_code: bool,
    /// Run Python functions that users send, for `farcall.Executor`
    #[arg(long)]
    pickled: bool,
    /// What each process logs on standard error: error, warn, info, debug or trace
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "warn",
        env = "FARCALL_LOG"
    )]
    log: String,
}

/// The processes of the cluster, which end with it.
struct Cluster {
    children: Vec<(Child, BufReader<ChildStdout>)>,
    /// What opens the page.
    key: String,
}

/// A word that nobody guesses.
fn key() -> Result<String, Failure> {
    let mut random = [0u8; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(std::io::Error::from)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(random)))
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (signals, theirs) = UnixStream::pair()?;
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        signal_hook::low_level::pipe::register(signal, theirs.try_clone()?)?;
    }
    let mut cluster = Cluster {
        children: Vec::new(),
        key: key()?,
    };
    let mut meta = vec!["meta".to_string(), "--log".into(), arguments.log.clone()];
    let options = [
        ("--listen", &arguments.listen),
        ("--policy", &arguments.policy),
    ];
    for (name, value) in options {
        meta.extend(
            value
                .iter()
                .flat_map(|value| [name.to_string(), value.clone()]),
        );
    }
    meta.extend(["--store".to_string(), "none".to_string()]);
    meta.extend(["--web".to_string(), arguments.web.to_string()]);
    let metaserver = cluster.start(&meta)?;
    let page = cluster.page()?;
    for _ in 0..arguments.local {
        cluster.start(&server(arguments, &metaserver))?;
    }
    println!("page at {page}#{}", cluster.key);
    std::io::stdout().flush()?;
    cluster.wait(&signals)
}

/// The command line of a server.
fn server(arguments: &Arguments, metaserver: &str) -> Vec<String> {
    let files = arguments
        .files
        .iter()
        .map(|file| file.to_string_lossy().into_owned());
    let mut words: Vec<String> = ["serve".to_string()].into_iter().chain(files).collect();
    let fixed = [
        "--listen",
        "127.0.0.1:0",
        "--metaserver",
        metaserver,
        "--log",
        &arguments.log,
    ];
    words.extend(fixed.map(str::to_string));
    words.extend(arguments.allow_code.then(|| "--allow-code".to_string()));
    words.extend(arguments.pickled.then(|| "--pickled".to_string()));
    let counts = [
        ("--pes", arguments.pes.map(|pes| pes.to_string())),
        (
            "--threads",
            arguments.threads.map(|threads| threads.to_string()),
        ),
    ];
    for (name, count) in counts {
        words.extend(
            count
                .into_iter()
                .flat_map(|count| [name.to_string(), count]),
        );
    }
    words
}

impl Cluster {
    /// Starts a process, waits until it listens, and says where.
    fn start(&mut self, words: &[String]) -> Result<String, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(words)
            // The servers and their metaserver have no tokens.
            .env_remove("FARCALL_TOKEN")
            .env_remove(web::KEY)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        // The functions of the servers must not learn the key.
        if self.children.is_empty() {
            command.env(web::KEY, &self.key);
        }
        // A Ctrl-C of the terminal goes to this process alone, which ends the others in order.
        command.process_group(0);
        let mut child = farcall_child::spawn(command)?;
        let stdout = child.stdout.take();
        let mut stdout = BufReader::new(stdout.ok_or_else(|| Failure::failed("no output"))?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        self.children.push((child, stdout));
        let address = line.trim().strip_prefix("listening on ");
        let address = address.ok_or_else(|| {
            let what = words.first().map_or("", String::as_str);
            Failure::failed(format!(
                "`farcall {what}` did not start; see its error above"
            ))
        })?;
        println!("listening on {address}");
        std::io::stdout().flush()?;
        Ok(address.to_string())
    }

    /// The address of the page that the metaserver, which was started last, prints.
    fn page(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if let Some((_, stdout)) = self.children.last_mut() {
            stdout.read_line(&mut line)?;
        }
        let page = line.trim().strip_prefix("page at ");
        let page = page.ok_or_else(|| Failure::failed("the metaserver shows no page"))?;
        Ok(page.to_string())
    }

    /// Waits for a signal; the end of a child is an error.
    fn wait(&mut self, signals: &UnixStream) -> Result<(), Failure> {
        const TICK: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 200_000_000,
        };
        loop {
            let mut waits = [PollFd::new(signals, PollFlags::IN)];
            match poll(&mut waits, Some(&TICK)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Failure::failed(error)),
            }
            if !waits[0].revents().is_empty() {
                return Ok(());
            }
            for (index, (child, _)) in self.children.iter_mut().enumerate() {
                if let Some(status) = child.try_wait()? {
                    let what = match index {
                        0 => "the metaserver".to_string(),
                        number => format!("server {number}"),
                    };
                    let text = format!("{what} has ended ({status}); the cluster ends with it");
                    return Err(Failure::failed(text));
                }
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The servers end first, so that they can leave the metaserver.
        for (child, _) in self.children.iter().rev() {
            if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let end = Instant::now() + PATIENCE;
        for (child, _) in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            // If it has ended, this only collects its status.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
