//! `farcall up`: starts a metaserver on this machine, and several servers here, on hosts that ssh
//! reaches or as jobs of Slurm, and ends all of them together; or a lab of all parts. If one of the
//! processes ends, the others are ended too. The servers end before the metaserver, so that they
//! can leave it.

mod lab;
mod slurm;

use crate::failure::{self, Failure};
use crate::{folders, seconds, serve, web};
use clap::{ArgGroup, Args};
use farcall_client::{Address, Credentials, Options, Server, SshAddress};
use farcall_schedule::pool::Rules;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the children have to end before the command kills them.
const PATIENCE: Duration = Duration::from_secs(4);
/// Longest wait until the metaserver knows the servers.
const JOINING: Duration = Duration::from_secs(3);
/// Time between two looks at the processes.
const TICK: Duration = Duration::from_millis(200);

/// Run a small cluster: a metaserver and several servers, here, on hosts that ssh reaches, in Slurm
/// or in a lab
///
/// The command prints `listening on ADDRESS` for the metaserver, then for each server, and then the
/// address of a page that shows them in a browser. That address contains a key: keep it to
/// yourself. The cluster runs until Ctrl-C. If one of the processes ends, the command ends the
/// others.
#[derive(Args)]
#[command(group(ArgGroup::new("places").args(["local", "ssh", "slurm", "lab"]).required(true)
    .multiple(true)))]
#[command(after_help = "Examples:
  farcall up --local 3 libraries/blas.idl
  farcall up --local 2 my.idl --listen 127.0.0.1:0 --threads 1 --pes 1
  farcall up --ssh node1,ann@node2:2222 lapack    # Farcall must be installed there
  farcall up --slurm --min 0 --max 20 --slurm-option=--time=04:00:00 \\
      --listen 10.0.0.1:3718 --tls certificates --tokens tokens --server-user ann lapack
  sudo farcall up --lab          # two sites with trunks and gangs, all on this machine
Then, in another shell:
  FARCALL_METASERVER=localhost farcall call ddot n=3 x=1,2,3 incx=1 y=4,5,6 incy=1")]
pub(crate) struct Arguments {
    /// Number of servers on this machine, at the metaserver's address [default with --slurm and
    /// --min 0: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    local: Option<u16>,
    /// Hosts that run one server each, as `[user@]host[:port]`. They are reached by ssh, also by
    /// the clients, and need no open port
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    ssh: Vec<String>,
    /// Two sites of four nodes, a metaserver and a client behind a long line, in network namespaces
    /// of this machine: each node has two links under a trunk and a gang daemon, and the first one
    /// of each site a server, whose parallel functions run as gang jobs. Needs root
    #[arg(long, conflicts_with_all = ["local", "ssh", "slurm", "pickled", "listen", "policy", "pes",
          "threads", "tls", "tokens", "web"])]
    lab: bool,
    #[command(flatten)]
    pool: PoolArguments,
    /// Interface files that each server serves, or the names of those that come with Farcall. With
    /// --ssh, a path is one on that host [default with --lab: lapack scalapack]
    #[arg(required_unless_present_any = ["pickled", "lab"], value_name = "IDL")]
    files: Vec<String>,
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
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    life: Life,
}

/// Who may connect.
#[derive(Args)]
struct Access {
    /// Use TLS, in the metaserver and in the servers, with server.pem and server.key of this
    /// folder, which all nodes must see. The certificate needs the names and addresses of all of
    /// their hosts; FARCALL_CA names the file of its authority
    #[arg(long, value_name = "FOLDER", conflicts_with = "ssh")]
    tls: Option<PathBuf>,
    /// File of tokens; only clients and servers with one of these tokens can connect. FARCALL_TOKEN
    /// has the token of this command and of the servers
    #[arg(long, value_name = "FILE", requires = "server_user")]
    tokens: Option<PathBuf>,
    /// User whose servers may join, by the name of a token
    #[arg(long, value_name = "NAME", requires = "tokens")]
    server_user: Option<String>,
}

impl Access {
    /// The options of the metaserver and of each server.
    fn words(&self) -> impl Iterator<Item = String> {
        let files = [("--tls", &self.tls), ("--tokens", &self.tokens)];
        let given = files
            .into_iter()
            .filter_map(|(name, file)| Some((name, file.as_ref()?)));
        given.flat_map(|(name, file)| [name.to_string(), file.display().to_string()])
    }
}

/// What the processes say, and when they end.
#[derive(Args)]
struct Life {
    /// End the cluster when its standard input ends, as after the program that started it has gone
    #[arg(long)]
    end_with_input: bool,
    /// What each process logs on standard error: error, warn, info, debug or trace [default: warn;
    /// with --lab, error]
    #[arg(long, value_name = "LEVEL", env = "FARCALL_LOG")]
    log: Option<String>,
}

impl Arguments {
    fn log(&self) -> &str {
        let default = if self.lab { "error" } else { "warn" };
        self.life.log.as_deref().unwrap_or(default)
    }
}

/// The servers that Slurm runs.
#[derive(Args)]
struct PoolArguments {
    /// Ask Slurm for servers as the backlog of calls asks for them
    #[arg(long)]
    slurm: bool,
    /// Servers that Slurm always runs
    #[arg(long, value_name = "N", default_value_t = 0, requires = "slurm")]
    min: usize,
    /// Most jobs of Slurm at once
    #[arg(long, value_name = "N", default_value_t = 20, requires = "slurm",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    max: u16,
    /// Option of `sbatch` for each server, such as --slurm-option=--time=04:00:00; may be given
    /// several times
    #[arg(
        long,
        value_name = "OPTION",
        requires = "slurm",
        allow_hyphen_values = true
    )]
    slurm_option: Vec<String>,
    /// Seconds of predicted work for each server above which another one is asked for
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "30",
        value_parser = seconds::number,
        requires = "slurm"
    )]
    backlog: f64,
    /// Seconds after which a server that nobody uses leaves
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "120",
        value_parser = seconds::number,
        requires = "slurm"
    )]
    idle: f64,
    /// Seconds before its time limit at which a server drains, beside those of its backlog
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "60",
        value_parser = seconds::number,
        requires = "slurm"
    )]
    lead: f64,
    /// Seconds between two questions to Slurm
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "5",
        value_parser = seconds::number,
        requires = "slurm"
    )]
    every: f64,
    /// Folder for the output of the jobs, which all nodes must see [default: a folder in
    /// $XDG_STATE_HOME/farcall or ~/.local/state/farcall]
    #[arg(long, value_name = "DIR", requires = "slurm")]
    slurm_folder: Option<PathBuf>,
}

/// The processes of the cluster, which end with it.
struct Cluster {
    children: Vec<Process>,
    /// Readable after a signal that ends the cluster.
    signals: UnixStream,
    /// What opens the page.
    key: String,
    /// Servers and their metaserver have tokens.
    has_tokens: bool,
}

/// A process of the cluster.
struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// The input of a process on another host, which ends with it.
    input: Option<ChildStdin>,
    what: String,
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
    let hangup = (!farcall_child::outlives_terminal()).then_some(libc::SIGHUP);
    for signal in [libc::SIGTERM, libc::SIGINT].into_iter().chain(hangup) {
        signal_hook::low_level::pipe::register(signal, theirs.try_clone()?)?;
    }
    if arguments.life.end_with_input {
        std::thread::spawn(serve::end_with_input);
    }
    if arguments.lab {
        return lab::run(arguments, &signals);
    }
    let mut cluster = Cluster {
        children: Vec::new(),
        signals,
        key: key()?,
        has_tokens: arguments.access.tokens.is_some(),
    };
    let hosts: Vec<SshAddress> = arguments
        .ssh
        .iter()
        .map(|host| ssh_address(host))
        .collect::<Result<_, _>>()?;
    let Some(metaserver) = cluster.start(&meta(arguments))? else {
        return Ok(());
    };
    let Some(page) = cluster.page()? else {
        return Ok(());
    };
    // If Slurm runs no server, one must know the interfaces and take the first calls.
    let local = u16::from(arguments.pool.slurm && arguments.pool.min == 0);
    let here = beside(&metaserver).to_string();
    // A certificate has names.
    let metaserver = match arguments.access.tls {
        Some(_) => named(&metaserver),
        None => metaserver,
    };
    let local = arguments.local.unwrap_or(local);
    for number in 1..=local {
        let listens = ["--listen", &here, "--metaserver", &metaserver];
        if cluster.start(&server(arguments, &listens))?.is_none() {
            return Ok(());
        }
        cluster.name(format!("server {number}"));
    }
    for host in &hosts {
        if cluster.start_at(host, arguments, &metaserver)?.is_none() {
            return Ok(());
        }
    }
    await_servers(&metaserver, usize::from(local) + hosts.len());
    let has_pool = arguments.pool.slurm;
    let pool = has_pool.then(|| pool(arguments, &metaserver, &cluster.signals));
    // It ends before the metaserver.
    let _pool = pool.transpose()?;
    // Where this cannot be written, the jobs of Slurm and the processes end in order.
    let mut out = std::io::stdout().lock();
    writeln!(out, "page at {page}#{}", cluster.key).map_err(Failure::unsaid)?;
    out.flush().map_err(Failure::unsaid)?;
    drop(out);
    cluster.wait()
}

/// Waits until the metaserver knows so many servers, so that a client that connects at once finds
/// their functions. There is no wait if this program may not ask.
fn await_servers(metaserver: &str, count: usize) {
    let options = Options {
        credentials: Credentials::from_environment(),
        timeout: Some(JOINING),
        connect_timeout: JOINING,
        ..Options::default()
    };
    let Ok(server) = Server::connect(metaserver, options) else {
        return;
    };
    let known = || {
        let status: Value = serde_json::from_str(&server.status().ok()?).ok()?;
        let servers = status["servers"].as_array()?.iter();
        Some(servers.filter(|one| one["state"] == "serving").count())
    };
    let end = Instant::now() + JOINING;
    while Instant::now() < end && known().is_some_and(|known| known < count) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Where a server on this machine listens, so that all clients of the metaserver at this address
/// reach it.
fn beside(metaserver: &str) -> SocketAddr {
    let at = metaserver.rsplit("//").next().unwrap_or(metaserver);
    let host = match at.parse::<SocketAddr>() {
        Ok(at) if at.ip().is_unspecified() => own_address(at.ip()),
        Ok(at) => at.ip(),
        Err(_) => Ipv4Addr::LOCALHOST.into(),
    };
    SocketAddr::from((host, 0))
}

/// The address of this machine on the way to others, for what listens on all addresses.
fn own_address(any: IpAddr) -> IpAddr {
    // Addresses for documentation, behind the default routes. Nothing is sent.
    let other = [
        IpAddr::from([203, 0, 113, 1]),
        IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
    ];
    let mut others = other.into_iter();
    let own = others.find_map(|other| match (any, other) {
        (IpAddr::V4(_), IpAddr::V6(_)) => None,
        _ => source_address(other).ok(),
    });
    own.unwrap_or_else(|| {
        failure::say("warning: no route to other hosts; only this one reaches the servers");
        Ipv4Addr::LOCALHOST.into()
    })
}

/// The address from which this machine would send to another one.
fn source_address(other: IpAddr) -> std::io::Result<IpAddr> {
    let any = match other {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((other, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// Starts the pool of Slurm's servers.
fn pool(
    arguments: &Arguments,
    metaserver: &str,
    signals: &UnixStream,
) -> Result<slurm::Slurm, Failure> {
    let own = &arguments.pool;
    for (name, seconds) in [
        ("backlog", own.backlog),
        ("idle", own.idle),
        ("lead", own.lead),
        ("every", own.every),
    ] {
        if !(0.05..=1e7).contains(&seconds) {
            let text = format!("--{name} {seconds}: use a number of seconds from 0.05 to 10000000");
            return Err(Failure::usage(text));
        }
    }
    if own.min > usize::from(own.max) {
        return Err(Failure::usage(format!(
            "--min {}: --max is {}",
            own.min, own.max
        )));
    }
    let is_local = metaserver.contains("//127.") || metaserver.contains("//[::1]");
    if !is_local && (arguments.access.tokens.is_none() || arguments.access.tls.is_none()) {
        let text = format!(
            "{metaserver} is open to other hosts: add --tokens FILE and --server-user NAME, so \
             that only your servers and clients use it, and --tls FOLDER, because tokens never go \
             over a network without TLS. `farcall access token add` and `farcall access \
             certificate server` make the files"
        );
        return Err(Failure::usage(text));
    }
    let metaserver = named(metaserver);
    let mut words = server(arguments, &["--metaserver", &metaserver]);
    // Servers whose metaserver was killed end by themselves.
    words.extend(["--idle".to_string(), "3600".to_string()]);
    let mut words = line(&words)?;
    if arguments.pes.is_none() {
        words += " --pes \"${SLURM_CPUS_PER_TASK:-1}\"";
    }
    let program = std::env::current_exe()?.display().to_string();
    let name = format!("farcall-{}", &key()?[..16]);
    let folder = own.slurm_folder.clone().map(Ok);
    let folder = folder.unwrap_or_else(state_folder)?.join(&name);
    let settings = slurm::Settings {
        rules: Rules {
            fewest: own.min,
            most: usize::from(own.max),
            backlog_s: own.backlog,
            patience_s: own.every,
            idle_s: own.idle,
            lead_s: own.lead,
        },
        every: Duration::from_secs_f64(own.every),
        options: own.slurm_option.clone(),
        folder,
        name,
        script: slurm::script(&line(&[program])?, &words, &metaserver),
        metaserver,
    };
    slurm::Slurm::start(settings, signals)
}

/// The address with the name of this machine in the place of "all addresses".
fn named(address: &str) -> String {
    let system = rustix::system::uname();
    let name = format!("//{}:", system.nodename().to_string_lossy());
    address
        .replace("//0.0.0.0:", &name)
        .replace("//[::]:", &name)
}

fn state_folder() -> Result<PathBuf, Failure> {
    folders::state()
        .ok_or_else(|| Failure::usage("there is no home folder: add --slurm-folder DIR"))
}

fn ssh_address(host: &str) -> Result<SshAddress, Failure> {
    match format!("ssh://{host}").parse() {
        Ok(Address::Ssh(address)) => Ok(*address),
        Ok(_) => unreachable!("the scheme says so"),
        Err(error) => Err(Failure::usage(format!("--ssh {host}: {error}"))),
    }
}

/// The command line of the metaserver.
fn meta(arguments: &Arguments) -> Vec<String> {
    let mut words = vec!["meta".to_string(), "--log".into(), arguments.log().into()];
    let options = [
        ("--listen", &arguments.listen),
        ("--policy", &arguments.policy),
    ];
    for (name, value) in options {
        let given = value.iter();
        words.extend(given.flat_map(|value| [name.to_string(), value.clone()]));
    }
    words.extend(arguments.access.words());
    if let Some(user) = &arguments.access.server_user {
        words.extend(["--server-user".to_string(), user.clone()]);
    }
    words.extend(["--store".to_string(), "none".to_string()]);
    words.extend(["--web".to_string(), arguments.web.to_string()]);
    words
}

/// The command line of a server.
fn server(arguments: &Arguments, listens: &[&str]) -> Vec<String> {
    let mut words = vec!["serve".to_string()];
    words.extend(arguments.files.iter().cloned());
    words.extend(listens.iter().map(|word| word.to_string()));
    words.extend(["--log".to_string(), arguments.log().to_string()]);
    words.extend(arguments.allow_code.then(|| "--allow-code".to_string()));
    words.extend(arguments.pickled.then(|| "--pickled".to_string()));
    words.extend(arguments.access.words());
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

/// A line of the shell with these words.
fn line(words: &[String]) -> Result<String, Failure> {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "._-+/:=,~".contains(c);
    if let Some(word) = words.iter().find(|word| !word.chars().all(is_safe)) {
        let text = format!(
            "`{word}` cannot be sent to another host: use letters, digits, and . _ - + / : = , ~"
        );
        return Err(Failure::usage(text));
    }
    Ok(words.join(" "))
}

impl Cluster {
    /// Starts a process, waits until it listens, and says where. `None` after a signal.
    fn start(&mut self, words: &[String]) -> Result<Option<String>, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(words)
            .env_remove(web::KEY)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if !self.has_tokens {
            command.env_remove("FARCALL_TOKEN");
        }
        // The functions of the servers must not learn the key.
        if self.children.is_empty() {
            command.env(web::KEY, &self.key);
        }
        // A Ctrl-C of the terminal goes to this process alone, which ends the others in order.
        command.process_group(0);
        let what = words.first().map_or("", String::as_str);
        let address = self.begin(command, format!("`farcall {what}`"))?;
        if let Some(address) = &address {
            println!("listening on {address}");
            std::io::stdout().flush()?;
        }
        Ok(address)
    }

    /// Starts a server on another host. It reaches the metaserver by a socket that ssh forwards.
    /// `None` after a signal.
    fn start_at(
        &mut self,
        host: &SshAddress,
        arguments: &Arguments,
        metaserver: &str,
    ) -> Result<Option<()>, Failure> {
        let name = format!("/tmp/farcall-up-{}", &key()?[..16]);
        let (socket, forwarded) = (format!("{name}.sock"), format!("{name}-meta.sock"));
        let address = Address::Ssh(Box::new(host.at_socket(&socket))).to_string();
        let listens = [
            "--unix",
            &socket,
            "--metaserver",
            &format!("unix://{forwarded}"),
        ];
        let mut words = server(arguments, &listens);
        words.extend(["--end-with-input".to_string()]);
        // A question mark is no word of the shell if it is quoted.
        let line = format!("$FARCALL {} --advertise \"{address}\"", line(&words)?);
        let port = metaserver.rsplit("//").next().unwrap_or(metaserver);
        let forward = format!("{forwarded}:{port}");
        let options = ["-o", "ExitOnForwardFailure=yes", "-R", &forward];
        let mut command = host.command(&options, &format!("{line}; rm -f {forwarded}"));
        // It stays in the group of this process, so that it can ask for a password on the terminal.
        // It ignores a Ctrl-C.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let begun = self.begin(command, format!("the server on {}", host.to()))?;
        if begun.is_some() {
            println!("listening on {address}");
            std::io::stdout().flush()?;
        }
        Ok(begun.map(drop))
    }

    /// Starts a process, and waits until it says where it listens. `None` after a signal.
    fn begin(&mut self, command: Command, what: String) -> Result<Option<String>, Failure> {
        let mut child = farcall_child::spawn(command)?;
        let stdout = child.stdout.take();
        let stdout = BufReader::new(stdout.ok_or_else(|| Failure::failed("no output"))?);
        let failure = format!("{what} did not start; see its error above");
        self.children.push(Process {
            input: child.stdin.take(),
            child,
            stdout,
            what,
        });
        let Some(line) = self.next_line()? else {
            return Ok(None);
        };
        let address = line.trim().strip_prefix("listening on ");
        let address = address.ok_or_else(|| Failure::failed(failure))?;
        Ok(Some(address.to_string()))
    }

    /// The next line of the process that was started last. `None` after a signal.
    fn next_line(&mut self) -> Result<Option<String>, Failure> {
        let mut line = Vec::new();
        let Some(Process { stdout, .. }) = self.children.last_mut() else {
            return Ok(None);
        };
        while line.last() != Some(&b'\n') {
            if stdout.buffer().is_empty() {
                let mut waits = [
                    PollFd::new(stdout.get_ref(), PollFlags::IN),
                    PollFd::new(&self.signals, PollFlags::IN),
                ];
                match poll(&mut waits, None) {
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(error) => return Err(Failure::failed(error)),
                    Ok(_) if !waits[1].revents().is_empty() => return Ok(None),
                    Ok(_) => {}
                }
            }
            let part = stdout.fill_buf()?;
            if part.is_empty() {
                break;
            }
            let end = part.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(part.len(), |end| end + 1);
            line.extend_from_slice(&part[..count]);
            stdout.consume(count);
        }
        Ok(Some(String::from_utf8_lossy(&line).into_owned()))
    }

    /// Names the process that was started last.
    fn name(&mut self, what: String) {
        if let Some(process) = self.children.last_mut() {
            process.what = what;
        }
    }

    /// The address of the page that the metaserver, which was started last, prints. `None` after a
    /// signal.
    fn page(&mut self) -> Result<Option<String>, Failure> {
        let Some(line) = self.next_line()? else {
            return Ok(None);
        };
        self.name("the metaserver".to_string());
        let page = line.trim().strip_prefix("page at ");
        let page = page.ok_or_else(|| Failure::failed("the metaserver shows no page"))?;
        Ok(Some(page.to_string()))
    }

    /// Waits for a signal; the end of a child is an error.
    fn wait(&mut self) -> Result<(), Failure> {
        while !signalled(&self.signals, TICK)? {
            for Process { child, what, .. } in &mut self.children {
                if let Some(status) = child.try_wait()? {
                    let text = format!("{what} has ended ({status}); the cluster ends with it");
                    return Err(Failure::failed(text));
                }
            }
        }
        Ok(())
    }
}

/// Waits for less than a second. Returns true if a signal came.
fn signalled(signals: &UnixStream, wait: Duration) -> Result<bool, Failure> {
    let wait = Timespec {
        tv_sec: 0,
        tv_nsec: wait.subsec_nanos().into(),
    };
    let mut waits = [PollFd::new(signals, PollFlags::IN)];
    match poll(&mut waits, Some(&wait)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!waits[0].revents().is_empty()),
        Err(error) => Err(Failure::failed(error)),
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The servers end first, so that they can leave the metaserver.
        for process in self.children.iter_mut().rev() {
            let pid = Pid::from_raw(process.child.id().cast_signed());
            match (process.input.take(), pid) {
                // A signal would end ssh alone.
                (Some(input), _) => drop(input),
                (None, Some(pid)) => drop(kill_process(pid, Signal::TERM)),
                (None, None) => {}
            }
        }
        let end = Instant::now() + PATIENCE;
        for Process { child, .. } in self.children.iter_mut().rev() {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            // If it has ended, this only collects its status.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_listen_where_clients_reach_their_metaserver() {
        for (metaserver, server) in [
            ("farcall://127.0.0.1:3718", "127.0.0.1:0"),
            ("farcall://127.0.0.2:3718", "127.0.0.2:0"),
            ("farcall://10.0.0.1:3718", "10.0.0.1:0"),
            ("farcall://[::1]:3718", "[::1]:0"),
        ] {
            assert_eq!(beside(metaserver).to_string(), server);
        }
        assert!(!beside("farcall://0.0.0.0:3718").ip().is_unspecified());
        assert!(!beside("farcall://[::]:3718").ip().is_unspecified());
    }
}
