//! The configuration of a server. `docs/farcall.toml` shows every setting with comments for
//! operators.

mod folders;
mod values;

use crate::disk::StateSettings;
use crate::listen::fresh_name;
use crate::sources::{Connectors, Source, Sources};
use farcall_access as access;
use farcall_idl::MOST_GPUS;
use farcall_record::Budget;
use farcall_schedule::Policy;
use farcall_schedule::queue::{Patience, Settings};
use farcall_schedule::reservation::Bandwidth;
use farcall_server_proto::{self as proto, DurableLimits, Groups, Limits};
use farcall_worker::{Reach, Sandbox, Walls};
use ipnet::IpNet;
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Least memory limit of a worker. Libraries reserve memory that they do not use.
const LEAST_WORKER_MEMORY: u64 = 4 << 30;

/// Most calls that compute at once under the policy `at-once`, if nothing else bounds them.
const MOST_AT_ONCE: usize = 256;

/// The settings of a server. Every field has a default; unknown names are errors.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub struct Config {
    /// TCP addresses to listen on; port 0 picks a free one.
    pub listen: Vec<SocketAddr>,
    /// Unix socket to listen on.
    pub unix: Option<PathBuf>,
    /// State folder. Without one, nothing outlives the server.
    pub state: Option<PathBuf>,
    /// Address at which Prometheus reads metrics by HTTP. The program that runs the server serves
    /// them there, from [`crate::Server::readings`].
    pub metrics: Option<SocketAddr>,
    /// Address at which browsers show the server. The program that runs the server serves the page.
    pub web: Option<SocketAddr>,
    /// Whether to listen beside another server of this user, and then make that one drain.
    pub takeover: bool,
    /// Limits on what clients may ask for.
    pub limits: Limits,
    /// The processes that call the libraries.
    pub workers: Workers,
    /// Durable calls.
    pub jobs: DurableLimits,
    /// The record of calls.
    pub record: Record,
    /// Spans of calls.
    pub tracing: Tracing,
    /// Groups of users, by name.
    pub groups: Groups,
    /// Stored arrays and named data.
    pub data: Data,
    /// Addresses outside of Farcall from which users may read arrays.
    pub sources: Sources,
    /// Who may connect.
    pub access: access::Settings,
    /// TLS on the TCP addresses; without it connections are in clear text.
    pub tls: Option<access::Tls>,
    /// Which call computes next, and on how many processor elements.
    pub queue: Queue,
    /// Functions of several processes.
    pub parallel: Parallel,
    /// The gang daemon whose jobs share the processors with calls.
    pub gang: Gang,
    /// Functions of Python.
    pub python: Python,
    /// Whether IDL files may contain C text, which is compiled and run.
    pub allow_code: bool,
    /// Settings of GridRPC clients, which can be in the same file. Servers do not read them.
    pub client: IgnoredAny,
}

/// Functions of Python.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Python {
    /// Whether users may run Python functions that they send.
    pub pickled: bool,
}

/// Which call computes next, and on how many processor elements.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// The order in which calls start.
    #[serde(deserialize_with = "policy")]
    pub policy: Policy,
    /// Processor elements that calls share; 0 means the threads of all calls that
    /// [`Workers::count`] allows, or else the processor cores.
    pub pes: u32,
    /// GPUs that calls share. Without a number, those that `CUDA_VISIBLE_DEVICES` names, or else
    /// those of the machine. With 0, functions see the same GPUs as the server.
    pub gpus: Option<u32>,
    /// Seconds after which a user's past use counts half; 0 turns fair shares off, so that all
    /// users count as one.
    #[serde(deserialize_with = "farcall_quantity::from_zero")]
    pub half_life_s: f64,
    /// Seconds after which a user's oldest call is next; 0 means never.
    #[serde(deserialize_with = "farcall_quantity::from_zero")]
    pub patience_s: f64,
    /// Number of other users' calls after which a user's oldest call is next; 0 means any number.
    pub passes: u64,
    /// Priorities of functions by qualified name; 0 by default. A higher one goes first.
    pub priorities: BTreeMap<String, i32>,
    /// Processor elements that cannot be reserved.
    pub unreservable_pes: u32,
}

/// Functions of several processes (`Backend "MPI"` and `"BLACS"`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parallel {
    /// What starts the processes.
    pub engine: Engine,
    /// Program and arguments that start the processes, with `{processes}` for their number. The
    /// worker's own command follows. If it is empty, the server looks for `mpiexec`, MPICH's first.
    pub launcher: Vec<String>,
}

/// What starts the processes of a parallel function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// The launcher: `mpiexec`, or the program that the configuration names.
    #[default]
    Mpiexec,
    /// The gang daemon of this machine, as a gang job that runs before others while it has calls.
    Gang,
}

/// The gang daemon whose jobs share the processors with calls.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gang {
    /// The control socket of the root daemon: a path, or `@` and an abstract name.
    pub control: String,
    /// Processors to keep free of gang jobs while calls of one process run; 0 means none.
    pub processors: u32,
}

impl Default for Gang {
    fn default() -> Gang {
        Gang {
            control: "@farcall-gang".to_string(),
            processors: 0,
        }
    }
}

/// The processes that call the libraries.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workers {
    /// Most calls that compute at once, without those of reservations; 0 means as many as the
    /// processor elements allow.
    pub count: usize,
    /// Processor elements, and so threads of the library, of a call whose interface does not state
    /// them.
    pub threads: usize,
    /// Time limit of a call in seconds; 0 means none.
    #[serde(deserialize_with = "farcall_quantity::from_zero")]
    pub time_limit_s: f64,
    /// Limit on the private memory of a worker in bytes; 0 means none.
    #[serde(deserialize_with = "values::worker_memory")]
    pub memory: u64,
    /// Microseconds for which the server and its workers poll for work before they sleep, while the
    /// cores are idle. Polling saves the time to wake up; 0 saves processor time instead. The
    /// server polls longer for a quick disk.
    pub spin_us: u64,
    /// Folder for files of running calls, and for arrays when memory is short. Without one, the
    /// system's folder for temporary files.
    pub folder: Option<PathBuf>,
    /// Whether workers are confined. See `docs/security.md`.
    pub sandbox: bool,
    /// Whether confined workers may have sockets.
    pub network: bool,
    /// Private folders that confined workers may read, in addition to those of the interface files.
    pub read: Vec<PathBuf>,
    /// Folders that confined workers may write.
    pub write: Vec<PathBuf>,
    /// The user of the workers, if the server is root.
    pub user: String,
    /// Processes and threads of one worker; 0 means any number.
    pub processes: u64,
    /// Whether the server refuses to start if this machine lacks a protection of functions.
    pub walls_required: bool,
    /// Names of variables of the server's environment that functions see, besides those for paths,
    /// languages and threads.
    pub environment: Vec<String>,
}

/// The record of calls: lines about calls, links and the server, for later study.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Record {
    /// Bytes of all its files; 0 means that there is no record.
    #[serde(deserialize_with = "farcall_quantity::size")]
    pub bytes: u64,
    /// Its folder. Without one, it is in the state folder; without that, there is no record.
    pub folder: Option<PathBuf>,
}

/// Spans of calls that belong to a trace.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tracing {
    /// The address of a collector, `http://HOST:PORT`, which gets them. Without one, the server
    /// makes no spans.
    pub otlp: Option<String>,
}

/// Settings of stored arrays and named data.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// Bytes of memory for stored arrays, a part of `limits.memory`; 0 means a quarter of it.
    /// Beyond that, the least recently used arrays go to the state folder. Without a state folder
    /// they go to a folder in `workers.folder` that ends with the server.
    #[serde(deserialize_with = "farcall_quantity::size")]
    pub memory: u64,
    /// Stored arrays of one user.
    pub per_user: usize,
    /// Bytes of one user's arrays, in memory and on the disk.
    #[serde(deserialize_with = "farcall_quantity::size")]
    pub bytes_per_user: u64,
    /// Hours for which an array is kept after its last use.
    #[serde(deserialize_with = "farcall_quantity::above_zero")]
    pub keep_h: f64,
    /// Networks of the servers from which this one may read arrays.
    pub peers: Vec<IpNet>,
    /// Number of names, including files of the data folder.
    pub names: usize,
    /// Folder whose files are named data for all users.
    pub folder: Option<PathBuf>,
}

impl Config {
    /// The names of the sections that differ in another configuration.
    pub(crate) fn differences(&self, other: &Config) -> Vec<&'static str> {
        let sections = [
            ("listen", self.listen != other.listen),
            ("unix", self.unix != other.unix),
            ("state", self.state != other.state),
            ("metrics", self.metrics != other.metrics),
            ("web", self.web != other.web),
            ("limits", self.limits != other.limits),
            ("workers", self.workers != other.workers),
            ("jobs", self.jobs != other.jobs),
            ("record", self.record != other.record),
            ("tracing", self.tracing != other.tracing),
            ("groups", self.groups != other.groups),
            ("data", self.data != other.data),
            ("sources", self.sources != other.sources),
            ("access", self.access != other.access),
            ("tls", self.tls != other.tls),
            ("queue", self.queue != other.queue),
            ("parallel", self.parallel != other.parallel),
            ("gang", self.gang != other.gang),
            ("python", self.python != other.python),
            ("allow_code", self.allow_code != other.allow_code),
        ];
        let different = sections.into_iter().filter(|(_, differs)| *differs);
        different.map(|(name, _)| name).collect()
    }
}

impl Default for Record {
    fn default() -> Record {
        Record {
            bytes: 100_000_000,
            folder: None,
        }
    }
}

impl Default for Data {
    fn default() -> Data {
        Data {
            memory: 0,
            per_user: 1000,
            bytes_per_user: 16_000_000_000,
            keep_h: 24.0,
            names: 4096,
            folder: None,
            peers: vec![
                IpNet::new_assert(Ipv4Addr::LOCALHOST.into(), 8).trunc(),
                IpNet::new_assert(Ipv6Addr::LOCALHOST.into(), 128),
            ],
        }
    }
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            policy: Policy::default(),
            pes: 0,
            gpus: None,
            half_life_s: 3600.0,
            patience_s: 600.0,
            passes: 10_000,
            priorities: BTreeMap::new(),
            unreservable_pes: 0,
        }
    }
}

impl Default for Workers {
    fn default() -> Workers {
        Workers {
            count: 0,
            threads: 1,
            time_limit_s: 0.0,
            memory: physical_memory().max(LEAST_WORKER_MEMORY),
            spin_us: 100,
            folder: None,
            sandbox: true,
            network: false,
            read: Vec::new(),
            write: Vec::new(),
            user: "nobody".to_string(),
            environment: Vec::new(),
            processes: 1024,
            walls_required: false,
        }
    }
}

impl Config {
    /// What workers may reach; `None` if they are not confined.
    pub(crate) fn sandbox(&self, walls: &Walls) -> io::Result<Option<Sandbox>> {
        let workers = &self.workers;
        if !workers.sandbox {
            return Ok(None);
        }
        Ok(Some(Sandbox {
            namespaces: walls.namespaces,
            bounds_memory: walls.groups.bound_memory() && workers.memory > 0,
            processes: workers.processes,
            reach: Reach::Alone,
            read: workers.read.clone(),
            write: workers.write.clone(),
            secrets: self.secrets(),
            sockets: self.sockets(),
            network: workers.network,
            gpus: false,
            user: self.worker_user()?,
        }))
    }

    /// The files and folders that functions must not read.
    pub(crate) fn secrets(&self) -> Vec<PathBuf> {
        let tokens = self.access.tokens.iter().cloned();
        let certificates = self.tls.iter().flat_map(access::Tls::secrets);
        let own = tokens
            .chain(certificates)
            .chain(farcall_client::secret_files())
            .chain(self.state.clone())
            .chain(self.sources.values().flat_map(Source::secrets))
            .chain(self.access.audit.clone())
            .chain(self.record_folder());
        own.map(|path| folders::true_path(&path)).collect()
    }

    /// The Unix socket, and where it is until it takes the place of another one. A cover stays with
    /// it then.
    fn sockets(&self) -> Vec<PathBuf> {
        let unix = self.unix.iter();
        let both = unix.flat_map(|path| [path.clone(), fresh_name(path)]);
        both.map(|path| folders::true_path(&path)).collect()
    }

    /// The folder of the record of calls, if there is one.
    pub(crate) fn record_folder(&self) -> Option<PathBuf> {
        let beside = || Some(self.state.as_ref()?.join("record"));
        let folder = self.record.folder.clone().or_else(beside);
        folder.filter(|_| self.record.bytes > 0)
    }

    /// The connectors that read sources.
    pub(crate) fn connectors(&self) -> io::Result<Arc<Connectors>> {
        let (sources, folder) = (self.sources.clone(), self.data.folder.as_deref());
        for (name, source) in &sources {
            if let Err(error) = source.check() {
                tracing::warn!(
                    "[sources.{name}]: {error}; calls that use this source fail until it can be \
                     read"
                );
            }
        }
        let user = match sources.is_empty() && folder.is_none() {
            true => None,
            false => self.worker_user()?,
        };
        Connectors::new(sources, folder, &self.workers.folder(), user)
    }

    /// The user and group that workers and connectors become, if the server is root.
    pub(crate) fn worker_user(&self) -> io::Result<Option<(u32, u32)>> {
        match rustix::process::geteuid().is_root() {
            true => user_ids(&self.workers.user).map(Some),
            false => Ok(None),
        }
    }

    /// The settings for `farcall-server-proto`, for this number of GPUs that calls share.
    pub(crate) fn settings(&self, audits: bool, gpus: u32) -> io::Result<proto::Settings> {
        let mut seed = [0; 32];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())?;
        Ok(proto::Settings {
            limits: Limits {
                memory: match self.limits.memory {
                    0 => physical_memory() / 2,
                    bytes => bytes,
                },
                ..self.limits.clone()
            },
            durable: self.jobs.clone(),
            groups: self.groups.clone(),
            arrays: proto::ArrayLimits {
                memory: self.data.memory,
                per_user: self.data.per_user,
                bytes_per_user: self.data.bytes_per_user,
                keep_h: self.data.keep_h,
                names: self.data.names,
            },
            queue: Settings {
                bandwidth: reservable(&self.limits),
                gpus,
                first_booking: first_reservation()?,
                ..self.queue.settings(&self.workers)
            },
            priorities: self.queue.priorities.clone(),
            elements: self.workers.elements(),
            time_limit_s: self.workers.time_limit_s,
            has_state: self.state.is_some(),
            audits,
            record: self
                .record_folder()
                .map(|_| Budget::of_day(self.record.bytes)),
            traces: self.tracing.otlp.is_some(),
            agent: concat!("farcall-server ", env!("CARGO_PKG_VERSION")),
            version: env!("CARGO_PKG_VERSION"),
            seed,
        })
    }

    /// How the state folder is used.
    pub(crate) fn state_settings(&self) -> StateSettings {
        StateSettings {
            reserve: self.jobs.reserve,
            keep_s: (self.jobs.keep_h.clamp(0.0, 1e6) * 3600.0) as u64,
            spin: self.workers.spin(),
        }
    }

    /// Reads the text of a configuration file.
    ///
    /// # Errors
    /// A setting is unknown or has a wrong value. The text is one line, for the log too, and has
    /// the line of the file, or the name of the setting.
    pub fn parse(text: &str) -> Result<Config, String> {
        let config: Config = toml::from_str(text).map_err(|error| values::mistake(&error, text))?;
        config.check_values()?;
        Ok(config)
    }
}

impl Queue {
    /// The names of the GPUs that calls share, as CUDA knows them.
    pub(crate) fn gpus(&self) -> io::Result<Vec<String>> {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        gpus(self.gpus, visible.as_deref(), gpus_of_machine())
    }

    /// The settings for the queue.
    pub(crate) fn settings(&self, workers: &Workers) -> Settings {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let pes = match (self.pes, workers.count) {
            (0, 0) => u32::try_from(cores).unwrap_or(u32::MAX),
            (0, count) => u32::try_from(count)
                .unwrap_or(u32::MAX)
                .saturating_mul(workers.elements()),
            (pes, _) => pes,
        };
        // The policy `at-once` still needs a bound.
        let most_running = match (workers.count, self.policy) {
            (0, Policy::AtOnce) => MOST_AT_ONCE,
            (0, _) => usize::MAX,
            (count, _) => count,
        };
        Settings {
            policy: self.policy,
            most_running,
            half_life_s: (self.half_life_s > 0.0).then_some(self.half_life_s),
            patience: Patience {
                time: match self.patience_s > 0.0 {
                    true => (self.patience_s * 1e9) as u64,
                    false => u64::MAX,
                },
                passes: if self.passes > 0 {
                    self.passes
                } else {
                    u64::MAX
                },
            },
            unreservable: self.unreservable_pes,
            ..Settings::new(pes)
        }
    }
}

/// The number of the first reservation: six digits, which somebody can type. It is drawn, so that
/// the number of a reservation that ended with its server is not that of one at the next server.
fn first_reservation() -> io::Result<u64> {
    let mut drawn = [0; 4];
    rustix::rand::getrandom(&mut drawn, rustix::rand::GetRandomFlags::empty())?;
    Ok(100_000 + u64::from(u32::from_ne_bytes(drawn) % 900_000))
}

/// The first `wanted` GPUs, or all, of those that `CUDA_VISIBLE_DEVICES` names or the machine has.
/// A machine may have more than can be seen here.
fn gpus(wanted: Option<u32>, visible: Option<&str>, found: usize) -> io::Result<Vec<String>> {
    let most = MOST_GPUS as usize;
    let wanted = wanted.map(|wanted| usize::try_from(wanted).unwrap_or(usize::MAX));
    let mut names: Vec<String> = match visible {
        Some(names) => {
            let names = names.split(',').map(str::trim);
            // CUDA sees no GPU from a negative number on: people hide all of them with -1.
            names
                .take_while(|name| !name.starts_with('-'))
                .filter(|name| !name.is_empty())
                .map(str::to_string)
                .collect()
        }
        None => (0..wanted.unwrap_or(found).min(most))
            .map(|number| number.to_string())
            .collect(),
    };
    names.truncate(wanted.unwrap_or(most).min(most));
    match wanted {
        Some(wanted) if wanted > names.len() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "{wanted} GPUs are wanted, and there are {} (the variable CUDA_VISIBLE_DEVICES \
                 limits them, and a server has at most {most}); use a smaller `--gpus`",
                names.len()
            ),
        )),
        _ => Ok(names),
    }
}

/// Number of NVIDIA's GPUs on this machine, by their device files.
fn gpus_of_machine() -> usize {
    let devices = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_gpu = |name: &str| {
        let number = name.strip_prefix("nvidia");
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let names = devices.map(|device| device.file_name());
    names
        .filter(|name| name.to_str().is_some_and(is_gpu))
        .count()
}

/// Bandwidth that can be reserved. A tenth always remains for others.
fn reservable(limits: &Limits) -> Bandwidth {
    let part = |whole: u64| whole - whole.div_ceil(10);
    Bandwidth {
        up: part(limits.bandwidth_up),
        down: part(limits.bandwidth_down),
    }
}

fn policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Policy, D::Error> {
    let name = String::deserialize(deserializer)?;
    Policy::named(&name).ok_or_else(|| {
        let names = Policy::NAMES.map(|(name, _)| name).join(", ");
        D::Error::custom(format!(
            "there is no policy `{name}`; the policies are {names}"
        ))
    })
}

impl Workers {
    /// Processor elements of a call whose interface does not state them.
    pub(crate) fn elements(&self) -> u32 {
        u32::try_from(self.threads.max(1)).unwrap_or(u32::MAX)
    }

    /// Folder for the files of running calls.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// Longest time to poll.
    pub(crate) fn spin(&self) -> Duration {
        Duration::from_micros(self.spin_us)
    }
}

/// The user id of a user of this machine, and its group id.
fn user_ids(name: &str) -> io::Result<(u32, u32)> {
    access::host_user(name)?.ok_or_else(|| {
        let text = format!("there is no user `{name}` (workers.user in the configuration)");
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

fn physical_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit.max(1))
}

#[cfg(test)]
mod tests;
