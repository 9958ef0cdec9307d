//! Arrays that threads bring into memory: from other servers, from sources, and from the data
//! folder.
//!
//! Another server is not trusted, because a client chooses its address: connections go to networks
//! that the operator allows (`data.peers`), with a time limit and without shared memory. The other
//! server sees the name of the lent array and none of this server's credentials. The client learns
//! only that the array is not there, after a time that does not depend on the reason.

use crate::folder::{self, Folder};
use crate::memories::Memories;
use crate::sources::{self, Connectors, Destination};
use farcall_client::{Address, Credentials, Error, Options, Server};
use farcall_rpc_proto::{Failure, FailureKind, HandleId};
use farcall_server_proto::source::{SourceFound, SourceRequest};
use farcall_server_proto::{Action, CallKey, DataFile, Event, MemoryKey};
use farcall_worker::MemoryObject;
use ipnet::IpNet;
use std::collections::HashMap;
use std::fs::File;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The slowest link that a read waits for, in bytes per second.
const SLOWEST: f64 = 1e5;
/// How long a read waits for the greeting of the other server. No client learns of a failure
/// earlier.
const GREETING: Duration = Duration::from_secs(3);

/// The result of a thread.
struct Arrival {
    memory: Option<(MemoryKey, MemoryObject)>,
    event: Event,
}

/// Arrays that threads are reading.
pub(crate) struct Arrivals {
    /// The data folder.
    folder: Option<Folder>,
    /// Networks from which arrays may come.
    peers: Vec<IpNet>,
    /// Rung by a thread that has finished.
    doorbell: OwnedFd,
    sender: Sender<Arrival>,
    receiver: Receiver<Arrival>,
    /// Read from the environment at the first use.
    credentials: Option<Credentials>,
    connectors: Arc<Connectors>,
    /// The threads that wait for memory, by the numbers of their reads.
    opened: HashMap<u64, Sender<Destination>>,
}

impl Arrivals {
    pub(crate) fn new(
        folder: Option<Folder>,
        peers: Vec<IpNet>,
        connectors: Arc<Connectors>,
        doorbell: OwnedFd,
    ) -> Arrivals {
        let (sender, receiver) = channel();
        Arrivals {
            folder,
            peers,
            doorbell,
            sender,
            receiver,
            credentials: None,
            connectors,
            opened: HashMap::new(),
        }
    }

    /// The next finished read, with its memory returned.
    pub(crate) fn next(&mut self, memories: &mut Memories) -> Option<Event> {
        if let Ok(Arrival { memory, event }) = self.receiver.try_recv() {
            if let Some((key, object)) = memory {
                memories.put(key, object);
            }
            if let Event::SourceFound(number, found) = &event
                && !matches!(found, Ok(SourceFound::Array { .. }))
            {
                self.opened.remove(number);
            }
            return Some(event);
        }
        let changed = self.folder.as_ref().and_then(Folder::changed);
        changed.map(Event::Folder)
    }

    /// Performs an action on arrays from elsewhere. Returns the resulting event if it is known at
    /// once.
    pub(crate) fn execute(&mut self, action: Action, memories: &mut Memories) -> Option<Event> {
        match action {
            Action::Pull {
                number,
                address,
                loan,
                memory,
                bytes,
            } => self.pull(number, &address, loan, (memory, bytes), memories),
            Action::OpenSource { number, wanted } => self.open_source(number, wanted),
            Action::TakeSource {
                number,
                memory,
                bytes,
            } => self.take_source(number, (memory, bytes), memories),
            Action::LeaveSource(number) => {
                self.opened.remove(&number);
                None
            }
            Action::WriteSource {
                call,
                wanted,
                memory,
            } => {
                let begun = self.write_source(call, wanted, memory, memories);
                let error = begun.err()?;
                let failure = Failure::new(
                    FailureKind::Internal,
                    format!("nothing was written: {error}"),
                );
                Some(Event::SourceWritten(call, Err(failure)))
            }
            Action::ReadData { id, file, memory } => self.read_data(id, file, memory, memories),
            _ => None,
        }
    }

    /// Starts a thread that works on memory and ends with an event.
    fn bring(
        &self,
        name: &str,
        (key, memories): (MemoryKey, &mut Memories),
        work: impl FnOnce(&MemoryObject) -> Event + Send + 'static,
    ) -> Result<(), String> {
        let object = memories.take(key).ok_or("there is no memory for it")?;
        let doorbell = self.doorbell.try_clone();
        let doorbell = match doorbell {
            Ok(doorbell) => doorbell,
            Err(error) => {
                memories.put(key, object);
                return Err(error.to_string());
            }
        };
        let sender = self.sender.clone();
        let (give, take) = channel::<MemoryObject>();
        let thread = std::thread::Builder::new().name(name.to_string());
        let started = thread.spawn(move || {
            let Ok(object) = take.recv() else { return };
            let event = work(&object);
            let memory = Some((key, object));
            // If the server has ended, nobody waits for the result.
            if sender.send(Arrival { memory, event }).is_ok() {
                let _ = rustix::io::write(&doorbell, &1u64.to_ne_bytes());
            }
        });
        match started {
            // The thread has started and waits for its task only.
            Ok(_) => {
                drop(give.send(object));
                Ok(())
            }
            Err(error) => {
                memories.put(key, object);
                Err(error.to_string())
            }
        }
    }

    /// Starts to read an array from another server.
    fn pull(
        &mut self,
        number: u64,
        address: &str,
        loan: HandleId,
        (memory, bytes): (MemoryKey, u64),
        memories: &mut Memories,
    ) -> Option<Event> {
        let refused =
            |kind, text: String| Some(Event::Pulled(number, Err(Failure::new(kind, text))));
        let address: Address = match address.parse() {
            Ok(Address::Unix(_)) => {
                let text = "other servers send arrays over TCP, not over Unix sockets";
                return refused(FailureKind::BadArgument, text.to_string());
            }
            Ok(address) => address,
            Err(error) => return refused(FailureKind::BadArgument, format!("{error}")),
        };
        let credentials = self
            .credentials
            .get_or_insert_with(Credentials::from_environment);
        let reading = Reading {
            address,
            credentials: credentials.clone().for_loan(loan),
            peers: self.peers.clone(),
            loan,
            bytes,
        };
        let brought = self.bring("pull", (memory, memories), move |memory| {
            let start = Instant::now();
            let read = reading.read(memory).map_err(|error| {
                let address = &reading.address;
                tracing::warn!("cannot read an array from {address}: {error}");
                // A client could otherwise explore the server's network.
                std::thread::sleep(GREETING.saturating_sub(start.elapsed()));
                let text = format!(
                    "{address} did not send the array; the server's log has the reason (it reads \
                     arrays only from networks in data.peers of its configuration)"
                );
                Failure::new(FailureKind::Unreachable, text)
            });
            Event::Pulled(number, read)
        });
        let error = brought.err()?;
        refused(
            FailureKind::Unreachable,
            format!("it cannot be read: {error}"),
        )
    }

    /// Starts a thread that opens a source.
    fn open_source(&mut self, number: u64, wanted: Box<SourceRequest>) -> Option<Event> {
        let doorbell = match self.doorbell.try_clone() {
            Ok(doorbell) => doorbell,
            Err(error) => return Some(not_opened(number, &wanted, &error)),
        };
        let (sender, connectors) = (self.sender.clone(), self.connectors.clone());
        let (give, take) = channel();
        let asked = wanted.clone();
        let run = move || {
            let tell = |memory, event| {
                // If the server has ended, nobody waits for the result.
                if sender.send(Arrival { memory, event }).is_ok() {
                    let _ = rustix::io::write(&doorbell, &1u64.to_ne_bytes());
                }
            };
            let found = |found| tell(None, Event::SourceFound(number, found));
            if let Some((memory, read)) = connectors.read(&asked, found, &take) {
                let memory = Some((memory.key, memory.object));
                tell(memory, Event::Pulled(number, read));
            }
        };
        let thread = std::thread::Builder::new().name("source".to_string());
        match thread.spawn(run) {
            Ok(_) => {
                self.opened.insert(number, give);
                None
            }
            Err(error) => Some(not_opened(number, &wanted, &error)),
        }
    }

    /// Lets the thread that has opened a source read its array.
    fn take_source(
        &mut self,
        number: u64,
        memory: (MemoryKey, u64),
        memories: &mut Memories,
    ) -> Option<Event> {
        let thread = self.opened.remove(&number);
        (!sources::pass(thread, memory, memories)).then(|| {
            let text = "the array of a source did not arrive; try again";
            Event::Pulled(number, Err(Failure::new(FailureKind::Internal, text)))
        })
    }

    /// Starts a thread that writes an array to an address. Others may use the array meanwhile.
    fn write_source(
        &self,
        call: CallKey,
        wanted: Box<SourceRequest>,
        memory: MemoryKey,
        memories: &Memories,
    ) -> std::io::Result<()> {
        let object = memories.get(memory);
        let object = object.ok_or_else(|| std::io::Error::other("the array is not in memory"))?;
        let array = File::from(object.fd().try_clone_to_owned()?);
        let doorbell = self.doorbell.try_clone()?;
        let (sender, connectors) = (self.sender.clone(), self.connectors.clone());
        let run = move || {
            let event = Event::SourceWritten(call, connectors.write(&wanted, &array));
            let arrival = Arrival {
                memory: None,
                event,
            };
            // If the server has ended, nobody waits for the result.
            if sender.send(arrival).is_ok() {
                let _ = rustix::io::write(&doorbell, &1u64.to_ne_bytes());
            }
        };
        let thread = std::thread::Builder::new().name("destination".to_string());
        thread.spawn(run).map(drop)
    }

    /// Starts to read a file of the data folder.
    fn read_data(
        &mut self,
        id: HandleId,
        file: Arc<DataFile>,
        memory: MemoryKey,
        memories: &mut Memories,
    ) -> Option<Event> {
        let root = self.folder.as_ref().map(Folder::root);
        let Some(Ok(root)) = root else {
            let text = "cannot reach the data folder".to_string();
            return Some(Event::DataRead(id, Err(text)));
        };
        let brought = self.bring("data file", (memory, memories), move |memory| {
            read(&root, id, &file, memory)
        });
        let error = brought.err()?;
        Some(Event::DataRead(id, Err(error)))
    }
}

fn not_opened(number: u64, wanted: &SourceRequest, error: &std::io::Error) -> Event {
    let text = format!("the source {} cannot be read: {error}", wanted.shown());
    Event::SourceFound(number, Err(Failure::new(FailureKind::Internal, text)))
}

fn read(root: &OwnedFd, id: HandleId, file: &DataFile, memory: &MemoryObject) -> Event {
    let read = folder::read(root, file, memory);
    Event::DataRead(id, read.map_err(|error| format!("{}: {error}", file.name)))
}

/// A read from another server.
struct Reading {
    address: Address,
    credentials: Credentials,
    peers: Vec<IpNet>,
    loan: HandleId,
    bytes: u64,
}

impl Reading {
    fn read(&self, memory: &MemoryObject) -> Result<(), String> {
        let mut last = "its host has no address".to_string();
        for address in self.checked()? {
            match self.connect(&address) {
                Ok(server) => {
                    // SAFETY: nobody else has the memory.
                    let bytes = unsafe { memory.part(0, self.bytes) };
                    let read = server.redeem(self.loan, bytes);
                    return read.map_err(|error| error.to_string());
                }
                Err(error) => last = error.to_string(),
            }
        }
        Err(last)
    }

    fn connect(&self, address: &Address) -> Result<Server, Error> {
        let options = Options {
            connect_timeout: GREETING,
            timeout: Some(Duration::from_secs_f64(30.0 + self.bytes as f64 / SLOWEST)),
            same_host: false,
            spin: Duration::ZERO,
            credentials: self.credentials.clone(),
            ..Options::default()
        };
        Server::connect(&address.to_string(), options)
    }

    /// The addresses of the other server, which are all in allowed networks. A name is not looked
    /// up again: it could be another host then. A certificate proves the name of a server with TLS.
    fn checked(&self) -> Result<Vec<Address>, String> {
        let (Address::Tcp { host, port } | Address::Tls { host, port }) = &self.address else {
            return Err("it cannot be reached over TCP".to_string());
        };
        let found = (host.as_str(), *port).to_socket_addrs();
        let found: Vec<_> = found.map_err(|error| error.to_string())?.collect();
        for address in &found {
            let ip = address.ip().to_canonical();
            if !self.peers.iter().any(|network| network.contains(&ip)) {
                return Err(format!(
                    "arrays from {ip} are not allowed; add its network to data.peers in the \
                     server's configuration"
                ));
            }
        }
        let is_name = host.parse::<IpAddr>().is_err() && !host.contains('%');
        if !is_name || matches!(self.address, Address::Tls { .. }) {
            return Ok(vec![self.address.clone()]);
        }
        let addresses = found.iter().map(|found| Address::Tcp {
            host: found.ip().to_string(),
            port: *port,
        });
        Ok(addresses.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(address: &str) -> Result<Vec<Address>, String> {
        let reading = Reading {
            address: address.parse().unwrap(),
            credentials: Credentials::anonymous(),
            peers: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
            loan: HandleId([1; 16]),
            bytes: 0,
        };
        reading.checked()
    }

    #[test]
    fn the_addresses_of_a_name_are_those_that_were_checked() {
        let found = checked("farcall://localhost:7").unwrap();
        assert!(!found.is_empty());
        for address in found {
            let Address::Tcp { host, port: 7 } = address else {
                panic!("{address}")
            };
            assert!(host.parse::<IpAddr>().unwrap().is_loopback());
        }
        for address in ["farcall://[::1]:7", "farcalls://localhost:7"] {
            assert_eq!(checked(address), Ok(vec![address.parse().unwrap()]));
        }
        let refused = checked("farcall://192.0.2.1:7").unwrap_err();
        assert!(refused.contains("data.peers"), "{refused}");
    }
}
