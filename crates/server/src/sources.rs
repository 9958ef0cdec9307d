//! Sources: addresses outside of Farcall from which the server reads arrays for its users, and to
//! which it writes them.
//!
//! The operator names the addresses and their credentials. A connector process opens them, without
//! the rights of the server; a few run at a time, each with one source. This module starts and ends
//! connectors. Bytes of a source pass through a pipe into the memory of the array.

mod connector;

use self::connector::Connector;
use crate::memories::Memories;
use farcall_rpc_proto::{Failure, FailureKind, Receipt};
use farcall_server_proto::MemoryKey;
use farcall_server_proto::source::{Answer, SourceFound, SourceRequest};
use farcall_worker::{FileStamp, MemoryObject};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most connectors.
const MOST: usize = 4;
/// How long a connector may take beyond the time limit of its source.
const GRACE: Duration = Duration::from_secs(10);

/// An address, or a folder of addresses, that users may read, or write too.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The address. If it ends with `/`, all addresses that begin with it.
    pub address: String,
    /// The user at the source.
    pub user: Option<String>,
    /// A file with the password.
    pub password_file: Option<PathBuf>,
    /// A file with a token, for HTTP.
    pub token_file: Option<PathBuf>,
    /// A file with the certificates of the authorities that the source's certificate comes from.
    pub certificates: Option<PathBuf>,
    /// The service of a bucket, `https://HOST`; Amazon's if there is none.
    pub endpoint: Option<String>,
    /// The region of a bucket.
    pub region: Option<String>,
    /// Private networks in which the host of the address may be.
    #[serde(default)]
    pub networks: Vec<IpNet>,
    /// Whether users may also write arrays there.
    #[serde(default)]
    pub write: bool,
    /// Most bytes of a source, and of its array.
    #[serde(default = "most_bytes")]
    #[serde(deserialize_with = "farcall_quantity::size")]
    pub max_bytes: u64,
    /// Seconds within which a source must be read.
    #[serde(default = "time_limit")]
    #[serde(deserialize_with = "farcall_quantity::above_zero")]
    pub time_limit_s: f64,
}

fn most_bytes() -> u64 {
    1 << 30
}

fn time_limit() -> f64 {
    60.0
}

/// All sources, by the names that the operator gave them.
pub type Sources = BTreeMap<String, Source>;

impl Source {
    /// Files with secrets.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let files = [self.password_file.clone(), self.token_file.clone()];
        files.into_iter().flatten()
    }

    /// Files that a connector gets the contents of.
    fn files(&self) -> impl Iterator<Item = PathBuf> + use<> {
        self.secrets().chain(self.certificates.clone())
    }

    /// Whether its files can be read.
    pub(crate) fn check(&self) -> io::Result<()> {
        self.credentials().map(drop)
    }

    fn credentials(&self) -> io::Result<Credentials> {
        let text = |path: &Option<PathBuf>| path.as_deref().map(read_text).transpose();
        let word = |path| Ok::<_, io::Error>(text(path)?.map(|text| text.trim_end().to_string()));
        Ok(Credentials {
            password: word(&self.password_file)?,
            token: word(&self.token_file)?,
            certificates: text(&self.certificates)?,
            unreadable: false,
        })
    }

    /// The source as a connector needs it. Without its credentials, the connector refuses it alone.
    fn entry(&self, name: &str) -> Entry {
        let credentials = self.credentials().unwrap_or_else(|error| {
            tracing::warn!("[sources.{name}]: {error}; calls that use this source fail");
            Credentials {
                unreadable: true,
                ..Credentials::default()
            }
        });
        Entry {
            address: self.address.clone(),
            user: self.user.clone(),
            credentials,
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            networks: self.networks.clone(),
            write: self.write,
            max_bytes: self.max_bytes,
            time_limit_s: self.time_limit_s,
        }
    }
}

/// The text of a file, which must have one: without certificates, for example, a connector would
/// accept those of all authorities that its machine knows.
fn read_text(path: &Path) -> io::Result<String> {
    let text = std::fs::read_to_string(path).and_then(|text| match text.trim().is_empty() {
        true => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the file is empty",
        )),
        false => Ok(text),
    });
    text.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// The contents of the files of a source.
#[derive(Default, Serialize)]
struct Credentials {
    password: Option<String>,
    token: Option<String>,
    certificates: Option<String>,
    /// Whether a file cannot be read. Then there are none.
    unreadable: bool,
}

/// A source with its credentials.
#[derive(Serialize)]
struct Entry {
    address: String,
    user: Option<String>,
    #[serde(flatten)]
    credentials: Credentials,
    endpoint: Option<String>,
    region: Option<String>,
    networks: Vec<IpNet>,
    write: bool,
    max_bytes: u64,
    time_limit_s: f64,
}

/// What a connector may read.
#[derive(Serialize)]
struct Allowed {
    sources: BTreeMap<String, Entry>,
    /// The data folder.
    folder: Option<PathBuf>,
    /// The user and group that the connector becomes.
    user: Option<(u32, u32)>,
}

/// Where the bytes of an array go.
pub(crate) struct Destination {
    pub(crate) key: MemoryKey,
    pub(crate) object: MemoryObject,
    pub(crate) bytes: u64,
}

/// The connectors.
pub(crate) struct Connectors {
    sources: Sources,
    folder: Option<PathBuf>,
    /// The user and group that connectors become, if the server is root.
    user: Option<(u32, u32)>,
    /// The folder for sources that are being read.
    temporary: PathBuf,
    idle: Mutex<Vec<Connector>>,
    /// Number of sources that are being read.
    busy: Mutex<usize>,
    freed: Condvar,
}

/// A connector in use counts until this is dropped.
struct Seat<'c>(&'c Connectors);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        *lock(&self.0.busy) -= 1;
        self.0.freed.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connectors {
    /// No connector yet; the first source starts one. Connectors become `user` and have their
    /// temporary files in a folder.
    ///
    /// # Errors
    /// The current folder is gone.
    pub(crate) fn new(
        sources: Sources,
        folder: Option<&Path>,
        temporary: &Path,
        user: Option<(u32, u32)>,
    ) -> io::Result<Arc<Connectors>> {
        Ok(Arc::new(Connectors {
            sources,
            folder: folder.map(std::path::absolute).transpose()?,
            user,
            temporary: std::path::absolute(temporary)?,
            idle: Mutex::default(),
            busy: Mutex::default(),
            freed: Condvar::new(),
        }))
    }

    /// Reads a source. `found` is told first what is there. The array goes to the destination that
    /// arrives next; if none arrives, it is left. Returns the destination, and whether the array is
    /// in it.
    pub(crate) fn read(
        &self,
        wanted: &SourceRequest,
        found: impl FnOnce(Result<SourceFound, Failure>),
        destination: &Receiver<Destination>,
    ) -> Option<(Destination, Result<(), Failure>)> {
        let explain = |(kind, text): (FailureKind, String)| {
            let source = wanted.shown();
            Failure::new(kind, format!("the source {source} cannot be read: {text}"))
        };
        let opened = self.seat().and_then(|seat| {
            let (connector, answer) = self.open(wanted, false)?;
            Ok((seat, connector, answer))
        });
        let (seat, mut connector, answer) = match opened {
            Ok((seat, connector, Ok(Answer::Found(answer)))) => (seat, connector, answer),
            Ok((_, connector, Err(failure))) => {
                self.give_back(connector);
                found(Err(failure));
                return None;
            }
            Ok((_, _, Ok(_))) => {
                let text = "its connector sent no array".to_string();
                found(Err(explain((FailureKind::Internal, text))));
                return None;
            }
            Err(error) => {
                found(Err(explain(error)));
                return None;
            }
        };
        let is_array = matches!(answer, SourceFound::Array { .. });
        if !is_array {
            self.give_back(connector);
            drop(seat);
            found(Ok(answer));
            return None;
        }
        found(Ok(answer));
        let Ok(destination) = destination.recv() else {
            let until = Instant::now() + GRACE;
            if connector.leave(until).is_ok() {
                self.give_back(connector);
            }
            return None;
        };
        // SAFETY: nobody else has the memory.
        let bytes = unsafe { destination.object.part(0, destination.bytes) };
        let read = connector.take(bytes, Instant::now() + self.patience());
        let read = match read {
            Ok(read) => {
                self.give_back(connector);
                read
            }
            Err(error) => Err(explain((FailureKind::Internal, error.to_string()))),
        };
        Some((destination, read))
    }

    /// Writes an array to an address.
    ///
    /// # Errors
    /// Why nothing was written.
    pub(crate) fn write(&self, wanted: &SourceRequest, array: &File) -> Result<Receipt, Failure> {
        let explain = |(kind, text): (FailureKind, String)| {
            let address = wanted.shown();
            Failure::new(kind, format!("nothing was written to {address}: {text}"))
        };
        let internal = |error: io::Error| explain((FailureKind::Internal, error.to_string()));
        let _seat = self.seat().map_err(explain)?;
        let (mut connector, answer) = self.open(wanted, true).map_err(explain)?;
        let answer = answer.and_then(|answer| match answer {
            Answer::Ready => Ok(()),
            _ => Err(internal(io::Error::other("its connector wants no array"))),
        });
        if let Err(failure) = answer {
            self.give_back(connector);
            return Err(failure);
        }
        let bytes = wanted.form.bytes().unwrap_or(0);
        let until = Instant::now() + self.patience();
        let written = connector.put(array, bytes, until).map_err(internal)?;
        self.give_back(connector);
        written.map(|written| Receipt {
            address: wanted.address.clone(),
            bytes: written.bytes,
            sha256: written.sha256,
            version: written.version,
        })
    }

    /// Waits until fewer than [`MOST`] connectors are busy.
    fn seat(&self) -> Result<Seat<'_>, (FailureKind, String)> {
        if self.sources.is_empty() && self.folder.is_none() {
            let text = "the server reads no sources: its operator has not named any ([sources] in \
                        its configuration)";
            return Err((FailureKind::NotAllowed, text.to_string()));
        }
        let until = Instant::now() + self.patience();
        let mut busy = lock(&self.busy);
        while *busy >= MOST {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = format!("{MOST} other sources are being read; try again");
                return Err((FailureKind::Busy, text));
            }
            let waited = self.freed.wait_timeout(busy, left);
            busy = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *busy += 1;
        Ok(Seat(self))
    }

    /// Lets a connector open a source. Returns its answer. A connector that has waited may have
    /// ended meanwhile; then a new one opens the source.
    fn open(
        &self,
        wanted: &SourceRequest,
        writes: bool,
    ) -> Result<(Connector, Result<Answer, Failure>), (FailureKind, String)> {
        let message = match writes {
            true => wanted.message_to_write(),
            false => wanted.message(),
        };
        let ended = |error: io::Error| (FailureKind::Internal, error.to_string());
        let until = Instant::now() + self.patience();
        if let Some(mut connector) = self.waiting()
            && let Ok(answer) = connector.open(&message, until)
        {
            return Ok((connector, answer));
        }
        let mut connector = self.start().map_err(|error| {
            let text = format!("no connector can be started: {error}");
            (FailureKind::Internal, text)
        })?;
        let answer = connector.open(&message, until).map_err(ended)?;
        Ok((connector, answer))
    }

    /// A connector that waits, if it knows the present credentials. Others end.
    fn waiting(&self) -> Option<Connector> {
        let present = self.stamps();
        let mut idle = lock(&self.idle);
        let all = std::mem::take(&mut *idle).into_iter();
        let (fresh, old): (Vec<_>, Vec<_>) = all.partition(|one| one.knows(&present));
        *idle = fresh;
        let connector = idle.pop();
        drop(idle);
        drop(old);
        connector
    }

    /// The state of the files with credentials; `None` of one that cannot be read.
    fn stamps(&self) -> Vec<Option<FileStamp>> {
        let files = self.sources.values().flat_map(Source::files);
        let readable = |file: &PathBuf| FileStamp::of(file).filter(|_| File::open(file).is_ok());
        files.map(|file| readable(&file)).collect()
    }

    fn start(&self) -> io::Result<Connector> {
        let stamps = self.stamps();
        let entry = |(name, source): (&String, &Source)| (name.clone(), source.entry(name));
        let allowed = Allowed {
            sources: self.sources.iter().map(entry).collect(),
            folder: self.folder.clone(),
            user: self.user,
        };
        let until = Instant::now() + self.patience();
        Connector::start(&self.temporary, &allowed, stamps, until)
    }

    fn give_back(&self, connector: Connector) {
        lock(&self.idle).push(connector);
    }

    /// How long a connector may take.
    fn patience(&self) -> Duration {
        let limits = self.sources.values().map(|source| source.time_limit_s);
        let longest = limits.fold(time_limit(), f64::max);
        Duration::from_secs_f64(longest.clamp(1.0, 86_400.0)) + GRACE
    }
}

/// Passes memory to the thread that reads a source. Returns whether the thread waits for it.
pub(crate) fn pass(
    to: Option<Sender<Destination>>,
    (key, bytes): (MemoryKey, u64),
    memories: &mut Memories,
) -> bool {
    let (Some(to), Some(object)) = (to, memories.take(key)) else {
        return false;
    };
    let passed = to.send(Destination { key, object, bytes });
    match passed {
        Ok(()) => true,
        Err(refused) => {
            memories.put(key, refused.0.object);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_without_its_credentials_is_known_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let source = Source {
            token_file: Some(path.clone()),
            ..toml::from_str("address = \"https://a/\"").unwrap()
        };
        let told = || serde_json::to_value(source.entry("a")).unwrap();
        let lost = told();
        assert_eq!(
            (&lost["unreadable"], &lost["token"]),
            (&true.into(), &().into())
        );
        std::fs::write(path, "s3cret\n").unwrap();
        let known = told();
        assert_eq!(
            (&known["unreadable"], &known["token"]),
            (&false.into(), &"s3cret".into())
        );
    }

    #[test]
    fn an_empty_file_has_no_credentials() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("authority.pem");
        for text in ["", " \n"] {
            std::fs::write(&path, text).unwrap();
            let error = read_text(&path).unwrap_err().to_string();
            assert!(
                error.ends_with("authority.pem: the file is empty"),
                "{error}"
            );
        }
        std::fs::write(&path, "s3cret\n").unwrap();
        assert_eq!(read_text(&path).unwrap(), "s3cret\n");
    }
}
