//! The PMIx server of the processes of one gang job on one node, which Open MPI needs. It is a
//! process of its own that runs as the user of the gang job, so that a fault in libpmix cannot harm
//! the daemon. It gives the processes what libpmix knows, and exchanges with other nodes through
//! the daemon, as PMI-1 does.
//!
//! [`serve`] is that process. `library` has the functions of libpmix, which is loaded at run time.

mod library;

use library::{Asked, Info, Library};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{FromRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

/// The exit status of a PMIx server on a machine without libpmix.
pub(crate) const NO_LIBRARY: u8 = 3;
/// Seconds within which the server is ready or gives up. The gang job then begins without it.
const READY_BOUND: u32 = 5;
/// Bytes of a value of PMI-1, which are two characters each.
const PART: usize = 500;

/// Why there is no PMIx server.
#[derive(Debug, thiserror::Error)]
pub enum PmixError {
    /// The machine has no libpmix.
    #[error("cannot load libpmix.so.2: {0}")]
    NoLibrary(String),
    /// A call of libpmix failed.
    #[error("{0} of libpmix failed with status {1}")]
    Call(&'static str, i32),
    /// The arguments are not those that a daemon gives.
    #[error("the variable {0} is missing: only the gang daemon starts this command")]
    Argument(&'static str),
    /// The folder for files of MPI cannot be made.
    #[error("cannot make the folder {} for files of MPI: {source}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The connection to the daemon broke.
    #[error("the connection to the daemon: {0}")]
    Daemon(#[from] io::Error),
}

impl PmixError {
    /// The exit status for it.
    pub fn status(&self) -> u8 {
        match self {
            PmixError::NoLibrary(_) => NO_LIBRARY,
            _ => 1,
        }
    }
}

/// What a PMIx server must know, which the daemon passes in a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The name that no other gang job has.
    pub(crate) name: String,
    /// Its node.
    pub(crate) node: u16,
    /// Node of each rank.
    pub(crate) nodes: Vec<u16>,
    /// The folder for files of MPI.
    pub(crate) folder: PathBuf,
}

impl Place {
    /// The variable with the place.
    pub(crate) const VARIABLE: &str = "FARCALL_PMIX";

    pub(crate) fn to_text(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(u16::to_string).collect();
        let folder = self.folder.display();
        format!("{};{};{};{folder}", self.name, self.node, nodes.join(","))
    }

    fn parse(text: &str) -> Option<Place> {
        let mut fields = text.splitn(4, ';');
        let mut field = || fields.next();
        Some(Place {
            name: field()?.to_string(),
            node: field()?.parse().ok()?,
            nodes: field()?
                .split(',')
                .map(|node| node.parse().ok())
                .collect::<Option<_>>()?,
            folder: field()?.into(),
        })
    }

    fn ranks_on(&self, node: u16) -> Vec<u32> {
        let ranks = (0..).zip(&self.nodes);
        let here = ranks.filter(|(_, other)| **other == node);
        here.map(|(rank, _)| rank).collect()
    }

    /// The nodes in the order of their first ranks.
    fn distinct(&self) -> Vec<u16> {
        let mut nodes = Vec::new();
        for node in &self.nodes {
            if !nodes.contains(node) {
                nodes.push(*node);
            }
        }
        nodes
    }

    /// What processes ask about the gang job as a whole and about each rank.
    fn facts(&self, library: &Library) -> Result<Vec<Info>, PmixError> {
        let nodes = self.distinct();
        let names: Vec<String> = nodes.iter().map(|node| host(*node)).collect();
        let lists: Vec<String> = nodes
            .iter()
            .map(|node| list(&self.ranks_on(*node)))
            .collect();
        let size = self.nodes.len() as u32;
        let here = self.ranks_on(self.node);
        let folder = self.folder.display().to_string();
        let mut facts = vec![
            Info::string("pmix.jobid", &self.name),
            Info::number("pmix.univ.size", size),
            Info::number("pmix.job.size", size),
            Info::number("pmix.app.size", size),
            Info::number("pmix.max.size", size),
            Info::number("pmix.job.napps", 1),
            Info::number("pmix.num.nodes", nodes.len() as u32),
            Info::number("pmix.local.size", here.len() as u32),
            Info::number("pmix.node.size", here.len() as u32),
            Info::rank("pmix.lldr", here.first().copied().unwrap_or_default()),
            Info::string("pmix.lpeers", &list(&here)),
            library.node_map(&names.join(","))?,
            library.process_map(&lists.join(";"))?,
            Info::string("pmix.tmpdir", &folder),
            Info::string("pmix.nsdir", &format!("{folder}/{}", self.name)),
        ];
        for (rank, node) in (0u32..).zip(&self.nodes) {
            let mates = self.ranks_on(*node);
            let local = mates.iter().position(|other| *other == rank);
            let local = local.unwrap_or_default() as u16;
            let index = nodes.iter().position(|other| other == node);
            facts.push(Info::list(
                "pmix.pdata",
                vec![
                    Info::rank("pmix.rank", rank),
                    Info::rank("pmix.grank", rank),
                    Info::rank("pmix.apprank", rank),
                    Info::number("pmix.appnum", 0),
                    Info::short("pmix.lrank", local),
                    Info::short("pmix.nrank", local),
                    Info::number("pmix.nodeid", index.unwrap_or_default() as u32),
                    Info::string("pmix.hname", &host(*node)),
                ],
            ));
        }
        Ok(facts)
    }
}

/// The name of a node for MPI. Two daemons on one machine are two nodes.
fn host(node: u16) -> String {
    format!("farcall-node{node}")
}

fn list(ranks: &[u32]) -> String {
    let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
    ranks.join(",")
}

/// Serves the processes of a gang job until its daemon ends this process. The environment says
/// which gang job, and where the daemon listens.
///
/// # Errors
/// Returns the reason why there is no PMIx server.
pub fn serve() -> Result<(), PmixError> {
    // Other processes of this user must not make use of one that is never stopped.
    // SAFETY: plain system calls.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::alarm(READY_BOUND);
    }
    let variable = |name: &'static str| std::env::var(name).map_err(|_| PmixError::Argument(name));
    let place = Place::parse(&variable(Place::VARIABLE)?);
    let place = place.ok_or(PmixError::Argument(Place::VARIABLE))?;
    let fd: RawFd = variable("PMI_FD")?
        .parse()
        .map_err(|_| PmixError::Argument("PMI_FD"))?;
    // SAFETY: the daemon has opened it for this process alone.
    let mut daemon = Connection::new(unsafe { File::from_raw_fd(fd) })?;
    let library = Library::load()?;
    let (sender, asked) = channel();
    start(&library, &place, sender)?;
    let first = place.ranks_on(place.node)[0];
    daemon.tell("ready", &library.variables(&place.name, first)?.join("\t"))?;
    // SAFETY: a plain system call.
    unsafe { libc::alarm(0) };
    answer(&mut daemon, &library, &place, &asked)
}

/// Starts the server of libpmix, and tells it about the gang job.
fn start(library: &Library, place: &Place, sender: Sender<Asked>) -> Result<(), PmixError> {
    make_folder(&place.folder)?;
    let folder = place.folder.display().to_string();
    let about = [
        Info::string("pmix.srvr.tmpdir", &folder),
        Info::string("pmix.sys.tmpdir", &folder),
        Info::string("pmix.hname", &host(place.node)),
    ];
    library.start(&about, sender)?;
    let here = place.ranks_on(place.node);
    library.add_job(&place.name, here.len(), &place.facts(library)?)?;
    for rank in here {
        library.add_process(&place.name, rank)?;
    }
    Ok(())
}

/// Makes a folder. In the shared memory of the machine, another user who has guessed its name can
/// have made it before, to give this gang job files of their own. It is not used then.
fn make_folder(folder: &Path) -> Result<(), PmixError> {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.mode(0o700).create(folder);
    made.map_err(|source| PmixError::Folder {
        path: folder.to_path_buf(),
        source,
    })
}

/// Answers what libpmix cannot answer alone.
fn answer(
    daemon: &mut Connection,
    library: &Library,
    place: &Place,
    asked: &Receiver<Asked>,
) -> Result<(), PmixError> {
    let size = place.nodes.len();
    let mut round = 0u64;
    // The other end lives as long as libpmix, which ends with this process.
    for asked in asked {
        match asked {
            Asked::Connected { rank } => daemon.write(&format!("cmd=connected rank={rank}\n"))?,
            Asked::Finalized { rank, done } => {
                // The process ends after the answer, and the daemon must know before.
                daemon.write(&format!("cmd=finalized rank={rank}\n"))?;
                done.answer();
            }
            Asked::Fence(fence) if !fence.is_whole(size) => library.refuse(fence),
            Asked::Fence(fence) => {
                round += 1;
                let all = daemon.exchange(round, place, fence.data())?;
                library.answer(fence, all);
            }
            Asked::Abort { rank, code } => {
                daemon.write(&format!("cmd=abort rank={rank} exitcode={code}\n"))?;
            }
        }
    }
    Ok(())
}

/// The connection to the daemon, which speaks PMI-1.
struct Connection {
    input: BufReader<File>,
    output: File,
}

impl Connection {
    fn new(socket: File) -> io::Result<Connection> {
        Ok(Connection {
            output: socket.try_clone()?,
            input: BufReader::new(socket),
        })
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        self.output.write_all(line.as_bytes())
    }

    fn tell(&mut self, command: &str, value: &str) -> io::Result<()> {
        self.write(&format!("cmd={command} value={value}\n"))
    }

    fn read(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.input.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_string()),
        }
    }

    fn ask(&mut self, line: &str) -> io::Result<String> {
        self.write(line)?;
        self.read()
    }

    /// Gives all nodes the bytes of this one, and returns those of all.
    fn exchange(&mut self, round: u64, place: &Place, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let key = |node: u16, part: usize| format!("kvsname=pmix key={round}.{node}.{part}");
        let ends: &[&[u8]] = &[&[]];
        for (part, bytes) in bytes.chunks(PART).chain(ends.iter().copied()).enumerate() {
            let key = key(place.node, part);
            let put = self.ask(&format!("cmd=put {key} value=+{}\n", hex::encode(bytes)))?;
            if !put.contains("rc=0") {
                return Err(io::Error::other(put));
            }
        }
        let passed = self.ask("cmd=barrier_in\n")?;
        if passed != "cmd=barrier_out" {
            return Err(io::Error::other(passed));
        }
        let mut all = Vec::new();
        for node in place.distinct() {
            for part in 0.. {
                let found = self.ask(&format!("cmd=get {}\n", key(node, part)))?;
                let value = found.split_once("value=+").map(|(_, value)| value);
                let bytes = value.and_then(|value| hex::decode(value).ok());
                match bytes.ok_or_else(|| io::Error::other(found))? {
                    bytes if bytes.is_empty() => break,
                    bytes => all.extend(bytes),
                }
            }
        }
        Ok(all)
    }
}

/// The variables of a process of MPI, in addition to those of its PMIx server.
pub(crate) fn variables(of_server: &BTreeMap<String, String>, rank: u16) -> Vec<(String, String)> {
    let mut variables = of_server.clone();
    variables.insert("PMIX_RANK".to_string(), rank.to_string());
    // Open MPI 4 runs as a single process unless it believes that a daemon of its own started it.
    // It never connects to this address.
    variables.insert(
        "OMPI_MCA_orte_local_daemon_uri".to_string(),
        "0.0;tcp://127.0.0.1:1".to_string(),
    );
    variables.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_travels() {
        let place = Place {
            name: "farcall_1f".to_string(),
            node: 7,
            nodes: vec![4, 4, 7],
            folder: "/dev/shm/a;b".into(),
        };
        assert_eq!(Place::parse(&place.to_text()), Some(place.clone()));
        assert_eq!(place.ranks_on(4), [0, 1]);
        assert_eq!(place.distinct(), [4, 7]);
        assert_eq!(Place::parse("a;1;x;/"), None);
    }

    #[test]
    fn a_folder_that_somebody_has_made_before_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("farcall_1f-0");
        make_folder(&path).expect("there is none");
        let made = std::fs::metadata(&path).expect("it is there");
        assert_eq!(made.permissions().mode() & 0o077, 0);
        let refused = make_folder(&path).expect_err("it is there").to_string();
        assert!(refused.starts_with("cannot make the folder"), "{refused}");
        assert!(refused.contains("farcall_1f-0"), "{refused}");
    }
}
