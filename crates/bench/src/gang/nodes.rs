//! Measures two engines, as on two nodes, and plain UDP beside them: over the loopback and between
//! two network namespaces. A message that is lost, repeated or out of order ends the measurement
//! with an error.

use super::channel::{PART, median, shape};
use super::rows::{Bar, Row};
use crate::failure::Failure;
use crate::progress;
use farcall_channel::{Channel, Engine, Faults, Fifo, Segment, Shape};
use farcall_lab::Lab;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MESSAGES: usize = 8000;
const ROUNDS: usize = 5;
/// The largest UDP payload that fits in one Ethernet frame.
const FRAME: usize = 1472;
const NAMESPACES: &str = "two namespaces";
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(super) fn rows() -> Result<Vec<Row>, Failure> {
    let engines = || {
        let start = || Engine::start(LOOPBACK).map_err(Failure::failed);
        Ok([start()?, start()?])
    };
    let sockets = || {
        Ok([
            UdpSocket::bind((LOOPBACK, 0))?,
            UdpSocket::bind((LOOPBACK, 0))?,
        ])
    };
    let mut rows = measure("loopback", &engines, &sockets)?;
    match Lab::build(&[&[0], &[0]], None) {
        Ok(lab) => {
            let address = |host| IpAddr::V4(lab.link_address(host, 0));
            let engine = |host| {
                on(
                    &lab,
                    host,
                    move |at| Engine::start(at).map_err(io::Error::other),
                    address(host),
                )
            };
            let socket = |host| on(&lab, host, |at| UdpSocket::bind((at, 0)), address(host));
            rows.extend(measure(
                NAMESPACES,
                &|| Ok([engine(0)?, engine(1)?]),
                &|| Ok([socket(0)?, socket(1)?]),
            )?);
        }
        Err(error) => progress::left_out(format_args!("two namespaces: skipped: {error}")),
    }
    Ok(rows)
}

/// Runs a function that opens a socket on a host.
fn on<T: Send + 'static>(
    lab: &Lab,
    host: usize,
    make: impl FnOnce(IpAddr) -> io::Result<T> + Send + 'static,
    address: IpAddr,
) -> Result<T, Failure> {
    let thread = lab
        .spawn(host, move || make(address))
        .map_err(Failure::failed)?;
    let made = thread.join();
    Ok(made.map_err(|_| Failure::failed("a thread on a host panicked"))??)
}

fn measure(
    place: &str,
    engines: &dyn Fn() -> Result<[Engine; 2], Failure>,
    sockets: &dyn Fn() -> Result<[UdpSocket; 2], Failure>,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for (fifo, lost) in [
        (Shape::SEND.bytes, 0),
        (Shape::SEND.bytes, 10_000),
        (256 << 10, 0),
        (256 << 10, 10_000),
        (1 << 20, 0),
    ] {
        let (mut ours, mut raw, mut frames) = (vec![], vec![], vec![]);
        for round in 0..ROUNDS as u64 {
            let pair = engines()?;
            for (engine, seed) in pair.iter().zip([round, round + 100]) {
                engine.set_faults(Faults {
                    lost,
                    repeated: lost / 10,
                    seed,
                });
            }
            ours.push(engine_bandwidth(&pair, fifo)?);
            raw.push(udp_bandwidth(sockets()?, PART, MESSAGES)?);
            frames.push(udp_bandwidth(sockets()?, FRAME, MESSAGES * PART / FRAME)?);
        }
        let losses = match lost {
            0 => "",
            _ => ", 1 % lost",
        };
        let name = format!("two engines, {place}, FIFO {} KB{losses}", fifo >> 10);
        // The better of two plain senders: one with messages of our size, one with full frames.
        let (raw, frames) = (median(raw), median(frames));
        let row = Row::new(name, median(ours), "MB/s").higher();
        let row = row.beside("raw UDP", raw.max(frames));
        rows.push(match (place, lost) {
            (NAMESPACES, 0) => row.bar(Bar::LeastOfPeer(0.8)),
            _ => row,
        });
    }
    Ok(rows)
}

/// Megabytes per second of messages of [`PART`] bytes. Each message must arrive once and in order.
fn engine_bandwidth(engines: &[Engine; 2], fifo_bytes: u32) -> Result<f64, Failure> {
    let fifo = |default: Fifo| Fifo {
        bytes: fifo_bytes.max(default.bytes),
        messages: default.messages,
    };
    // If there are only as many cores as engines, processes that spin would slow the engines down.
    let segment = |locals| -> Result<Arc<Segment>, Failure> {
        Ok(Arc::new(Segment::create(Shape {
            send: fifo(Shape::SEND),
            receive: fifo(Shape::RECEIVE),
            spin: false,
            ..shape(2, locals)
        })?))
    };
    let segments = [segment(0..1)?, segment(1..2)?];
    let addresses = engines.each_ref().map(|engine| Some(engine.address()));
    engines[0].attach(segments[0].clone(), &[None, addresses[1]], 0);
    engines[1].attach(segments[1].clone(), &[addresses[0], None], 0);
    let open = |index: usize| -> Result<Channel, Failure> {
        let bell = segments[index].bell();
        let bell = bell.map(|bell| bell.try_clone_to_owned()).transpose()?;
        Channel::attach(segments[index].clone(), bell, index).map_err(Failure::failed)
    };
    let (mut one, mut other) = (open(0)?, open(1)?);
    let start = Instant::now();
    let in_order = std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut message = vec![1; PART];
            for number in 0..MESSAGES as u64 {
                message[..8].copy_from_slice(&number.to_le_bytes());
                let _ = one.send(1, &message);
            }
        });
        let taker = scope.spawn(move || {
            let mut buffer = vec![0; PART];
            (0..MESSAGES as u64).all(|number| {
                let received = other.receive(Some(0), &mut buffer);
                received.is_ok() && buffer[..8] == number.to_le_bytes()
            })
        });
        taker.join().unwrap_or(false)
    });
    let elapsed = start.elapsed().as_secs_f64();
    match in_order {
        true => Ok((PART * MESSAGES) as f64 / elapsed / 1e6),
        false => Err(Failure::failed(
            "a message was lost, repeated or out of order",
        )),
    }
}

/// Bandwidth of plain datagrams, counted at the receiver.
fn udp_bandwidth(
    [sender, receiver]: [UdpSocket; 2],
    bytes: usize,
    count: usize,
) -> Result<f64, Failure> {
    sender.connect(receiver.local_addr()?)?;
    receiver.set_read_timeout(Some(Duration::from_millis(100)))?;
    let start = Instant::now();
    let received = std::thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let mut buffer = vec![0; 1 << 16];
            let (mut received, mut last) = (0, start);
            while let Ok(count) = receiver.recv(&mut buffer) {
                received += count;
                last = Instant::now();
            }
            (received, last)
        });
        let message = vec![1; bytes];
        for _ in 0..count {
            let _ = sender.send(&message);
        }
        taker.join()
    });
    let (received, last) = received.map_err(|_| Failure::failed("the receiver panicked"))?;
    Ok(received as f64 / (last - start).as_secs_f64() / 1e6)
}
