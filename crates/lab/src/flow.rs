//! Bulk transfers between hosts of the lab. They record how much arrived at each moment.

use crate::{Lab, LabError};
use rustix::net::{AddressFamily, Protocol, SocketType, ipproto, sockopt};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Arrivals are counted in slots of this many milliseconds.
const SLOT: u64 = 5;
/// Number of slots: two minutes.
const SLOTS: usize = 24_000;
/// Congestion control of flows that name none, so that they are comparable.
const CONGESTION_CONTROL: &str = "cubic";
const START: Duration = Duration::from_secs(5);
const CHUNK: usize = 128 << 10;

/// The protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowKind {
    /// TCP to this address of the receiver.
    Tcp(Ipv4Addr),
    /// The same, with this congestion control.
    TcpBy(Ipv4Addr, &'static str),
    /// Multipath TCP of the kernel, first to this address.
    Mptcp(Ipv4Addr),
}

/// A stream of bytes from one host to another, as fast as possible.
#[derive(Debug)]
pub struct Flow {
    slots: Arc<Vec<AtomicU64>>,
    stop: Arc<AtomicBool>,
    origin: Instant,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Flow {
    /// Connects, and begins to send at `start`. Times are relative to `origin`.
    ///
    /// # Errors
    /// The two hosts cannot reach each other.
    pub fn start(
        lab: &Lab,
        (from, to): (usize, usize),
        kind: FlowKind,
        origin: Instant,
        start: Instant,
    ) -> Result<Flow, LabError> {
        let slots: Arc<Vec<AtomicU64>> = Arc::new((0..SLOTS).map(|_| AtomicU64::new(0)).collect());
        let stop = Arc::new(AtomicBool::new(false));
        let (send_port, port) = mpsc::sync_channel(1);
        let (send_ready, ready) = mpsc::sync_channel(1);
        let counted = Arc::clone(&slots);
        let ended = Arc::clone(&stop);
        let sink = lab.spawn(to, move || {
            let listener = TcpListener::from(listen(kind)?);
            let _ = send_port.send(listener.local_addr()?.port());
            let (stream, _) = listener.accept()?;
            receive(stream, &counted, origin, &ended)
        })?;
        let port = port
            .recv_timeout(START)
            .map_err(|_| LabError::Late("a listening socket"))?;
        let ended = Arc::clone(&stop);
        let source = lab.spawn(from, move || {
            let stream = TcpStream::from(connect(kind, port)?);
            let _ = send_ready.send(());
            std::thread::sleep(start.saturating_duration_since(Instant::now()));
            send(stream, &ended)
        })?;
        ready
            .recv_timeout(START)
            .map_err(|_| LabError::Late("a connection"))?;
        Ok(Flow {
            slots,
            stop,
            origin,
            threads: vec![sink, source],
        })
    }

    /// Bytes that arrived between two moments.
    pub fn bytes(&self, from: Duration, to: Duration) -> u64 {
        let slot = |moment: Duration| ((moment.as_millis() as u64 / SLOT) as usize).min(SLOTS);
        self.slots[slot(from)..slot(to)]
            .iter()
            .map(|slot| slot.load(Ordering::Relaxed))
            .sum()
    }

    /// The longest time without a byte between two moments.
    pub fn longest_pause(&self, from: Duration, to: Duration) -> Duration {
        let slot = |moment: Duration| ((moment.as_millis() as u64 / SLOT) as usize).min(SLOTS);
        let (mut longest, mut run) = (0, 0);
        for slot in &self.slots[slot(from)..slot(to)] {
            run = if slot.load(Ordering::Relaxed) == 0 {
                run + 1
            } else {
                0
            };
            longest = longest.max(run);
        }
        Duration::from_millis(longest * SLOT)
    }

    /// The current time, relative to the origin.
    pub fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Whether both ends are still connected.
    pub fn is_alive(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }

    /// Ends the flow.
    ///
    /// # Errors
    /// Returns the reason if the connection broke before.
    pub fn stop(mut self) -> Result<(), LabError> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread
                .join()
                .map_err(|_| LabError::Late("the end of a flow"))??;
        }
        Ok(())
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn socket(kind: FlowKind) -> io::Result<OwnedFd> {
    let protocol = match kind {
        FlowKind::Tcp(_) | FlowKind::TcpBy(..) => ipproto::TCP,
        FlowKind::Mptcp(_) => ipproto::MPTCP,
    };
    let protocol: Option<Protocol> = Some(protocol);
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, protocol)?;
    match kind {
        FlowKind::TcpBy(_, control) => sockopt::set_tcp_congestion(&socket, control)?,
        // If it is not available, all flows use the default of the machine.
        _ => drop(sockopt::set_tcp_congestion(&socket, CONGESTION_CONTROL)),
    }
    Ok(socket)
}

fn address(kind: FlowKind, port: u16) -> SocketAddrV4 {
    match kind {
        FlowKind::Tcp(address) | FlowKind::TcpBy(address, _) | FlowKind::Mptcp(address) => {
            SocketAddrV4::new(address, port)
        }
    }
}

fn listen(kind: FlowKind) -> io::Result<OwnedFd> {
    let socket = socket(kind)?;
    // Multipath TCP connects to the other addresses as well.
    let any = match kind {
        FlowKind::Tcp(_) | FlowKind::TcpBy(..) => address(kind, 0),
        FlowKind::Mptcp(_) => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
    };
    rustix::net::bind(&socket, &any)?;
    rustix::net::listen(&socket, 1)?;
    Ok(socket)
}

fn connect(kind: FlowKind, port: u16) -> io::Result<OwnedFd> {
    let socket = socket(kind)?;
    rustix::net::connect(&socket, &address(kind, port))?;
    Ok(socket)
}

fn receive(
    mut stream: TcpStream,
    slots: &[AtomicU64],
    origin: Instant,
    stop: &AtomicBool,
) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut buffer = vec![0; CHUNK];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => {
                let slot = origin.elapsed().as_millis() as u64 / SLOT;
                if let Some(slot) = slots.get(slot as usize) {
                    slot.fetch_add(bytes as u64, Ordering::Relaxed);
                }
            }
            Err(error) if is_late(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn send(mut stream: TcpStream, stop: &AtomicBool) -> io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    let buffer = vec![0x55; CHUNK];
    while !stop.load(Ordering::Relaxed) {
        match stream.write(&buffer) {
            Ok(_) => {}
            Err(error) if is_late(&error) => {}
            // The receiver ends first.
            Err(_) if stop.load(Ordering::Relaxed) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}
