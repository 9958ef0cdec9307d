//! Measures one trunk with many peers: its memory and its processor time. The trunk is a real one.
//! Its peers are the state machines of trunks in this process, at the other ends of its links,
//! which are TAP interfaces. They see only this trunk, not each other.

use super::{Arguments, Program, row};
use crate::failure::Failure;
use crate::machine::cpu_seconds;
use crate::table::{Better, Row};
use bytes::Bytes;
use farcall_lab::{Lab, LabError, TrunkProcess};
use farcall_trunk_device::{Interface, Tap, now};
use farcall_trunk_proto::{
    Config, Deliver, ETHERTYPE, Limits, LinkConfig, Mac, Policy, Transmit, Trunk,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const COUNTS: [usize; 3] = [1, 250, 1000];
const LINKS: usize = 2;
/// Bytes a second of each link.
const RATE: f64 = 125e6;
/// The time within which all peers must be known, and then idle.
const FOUND: Duration = Duration::from_secs(20);
const IDLE: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(5);
/// Frames that the kernel holds for the peers: they all answer at once.
const QUEUE: i32 = 20_000;

pub(super) fn measure(arguments: &Arguments, farcall: &Program) -> Result<Vec<Row>, Failure> {
    if !arguments.begins("nodes") {
        return Ok(Vec::new());
    }
    let measured = COUNTS.map(|count| one_trunk(farcall, count));
    let [one, some, many] = measured;
    let (one, some, many) = (one?, some?, many?);
    let none = |value| (("one peer", value), (Better::Lower, None));
    let mut rows = Vec::new();
    for (count, figures) in COUNTS.into_iter().zip([&one, &some, &many]) {
        let name = |what: &str| format!("nodes: {what}, {count} peers");
        let (peer, bar) = none(one.memory / 1e6);
        let memory = vec![figures.memory / 1e6];
        rows.push(row(name("memory"), "MB", memory, peer, bar));
        let (peer, bar) = none(one.busy * 100.0);
        let busy = vec![figures.busy * 100.0];
        rows.push(row(name("processor when idle"), "%", busy, peer, bar));
    }
    let each = (many.memory - one.memory) / (COUNTS[2] - COUNTS[0]) as f64 / 1e3;
    let (limit, bar) = super::at_most(50.0);
    let name = "nodes: memory of a peer".into();
    rows.push(row(name, "KB", vec![each], limit, bar));
    Ok(rows)
}

struct Figures {
    /// Resident bytes of the trunk's process.
    memory: f64,
    /// Part of a processor that it uses while all peers are idle.
    busy: f64,
}

fn one_trunk(farcall: &Program, peers: usize) -> Result<Figures, Failure> {
    let lab = Lab::build(&[&[]], None)?;
    let taps = (0..LINKS).map(|link| tap(&lab, link));
    let taps = taps.collect::<Result<Vec<Tap>, LabError>>()?;
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&over);
    let crowd = std::thread::spawn(move || Crowd::new(taps, peers)?.run(&ended));
    let rate = (RATE * 8.0) as u64;
    let links = [format!("link0={rate}"), format!("link1={rate}")];
    let options = ["--link", &links[0], "--link", &links[1]];
    let trunk = TrunkProcess::start(&lab, 0, farcall, &options)?;
    let figures = observe(&lab, farcall, &trunk, peers);
    over.store(true, Ordering::Relaxed);
    let crowd = crowd.join().map_err(|_| LabError::Late("the peers"))?;
    drop(trunk);
    crowd?;
    figures
}

fn observe(
    lab: &Lab,
    farcall: &Program,
    trunk: &TrunkProcess,
    peers: usize,
) -> Result<Figures, Failure> {
    let up = || -> Result<usize, Failure> {
        let farcall = farcall.to_string_lossy();
        let status = lab.output(0, &farcall, &["trunk", "status", "--json"])?;
        Ok(status.matches("\"state\":\"up\"").count())
    };
    let end = Instant::now() + FOUND;
    while up()? < peers * LINKS {
        if Instant::now() > end {
            return Err(LabError::Late("a peer").into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(IDLE);
    let before = cpu_seconds(trunk.id())?;
    std::thread::sleep(MEASURED);
    let busy = (cpu_seconds(trunk.id())? - before) / MEASURED.as_secs_f64();
    if up()? < peers * LINKS {
        return Err(Failure::failed("a link to an idle peer failed"));
    }
    let memory = resident(trunk.id())?;
    Ok(Figures { memory, busy })
}

/// Bytes of a process that are in memory.
fn resident(pid: u32) -> Result<f64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kilobytes.unwrap_or(f64::NAN) * 1024.0)
}

/// Creates one of the trunk's links. This process holds the other end.
fn tap(lab: &Lab, link: usize) -> Result<Tap, LabError> {
    let made = lab.spawn(0, move || {
        let name = format!("link{link}");
        let mut tap = Tap::create(&name, mac(0, link), 1500).map_err(std::io::Error::other)?;
        tap.bring_up(&[]).map_err(std::io::Error::other)?;
        let interface = Interface::open(&name).map_err(std::io::Error::other)?;
        interface.set_queue(QUEUE).map_err(std::io::Error::other)?;
        Ok(tap)
    })?;
    Ok(made.join().map_err(|_| LabError::Late("an interface"))??)
}

/// The address of a node's link. Node 0 is the trunk.
fn mac(node: usize, link: usize) -> Mac {
    Mac([2, 0x66, 0x63, link as u8, (node >> 8) as u8, node as u8])
}

/// The peers, and the ends of the trunk's links.
struct Crowd {
    taps: Vec<Tap>,
    trunks: Vec<Trunk>,
}

impl Crowd {
    fn new(taps: Vec<Tap>, peers: usize) -> Result<Crowd, Failure> {
        let link = |node, link| LinkConfig {
            name: format!("link{link}"),
            address: mac(node, link),
            rate: RATE,
            mtu: 1500,
        };
        let trunk = |node| {
            let config = Config {
                node: mac(node, 0xff),
                links: (0..LINKS).map(|number| link(node, number)).collect(),
                policy: Policy::MaxMin,
                repair: true,
                order: true,
                counts_only: false,
                span: 2_000_000_000,
                key: None,
                session: node as u32,
                seed: [node as u8; 32],
                limits: Limits::default(),
            };
            Trunk::new(config, now()).map_err(Failure::failed)
        };
        let trunks = (1..=peers).map(trunk).collect::<Result<_, _>>()?;
        Ok(Crowd { taps, trunks })
    }

    fn run(mut self, over: &AtomicBool) -> Result<(), Failure> {
        while !over.load(Ordering::Relaxed) {
            for link in 0..self.taps.len() {
                self.receive(link)?;
            }
            let mut out: Vec<Vec<Deliver>> = vec![Vec::new(); self.taps.len()];
            for (node, trunk) in (1..).zip(&mut self.trunks) {
                let now = now();
                if trunk.poll_timeout(now) <= now {
                    trunk.handle_timeout(now);
                }
                while let Some(frame) = trunk.poll_transmit(now) {
                    out[frame.link].push(on_the_wire(node, &frame));
                }
                while trunk.poll_deliver().is_some() || trunk.poll_event().is_some() {}
            }
            for (tap, frames) in self.taps.iter_mut().zip(out) {
                tap.send(frames.into_iter())?;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn receive(&mut self, link: usize) -> Result<(), Failure> {
        let trunks = &mut self.trunks;
        let mut take = |frame: Bytes| {
            let Some(([destination @ .., _, _, _, _, _, _, _, _], payload)) =
                frame.split_first_chunk::<14>()
            else {
                return;
            };
            if frame[12..14] != ETHERTYPE.to_be_bytes() {
                return;
            }
            let payload = frame.slice_ref(payload);
            let now = now();
            let to = match Mac(*destination) {
                Mac::BROADCAST => 0..trunks.len(),
                Mac([.., high, low]) => {
                    let node = usize::from(high) << 8 | usize::from(low);
                    node.saturating_sub(1)..node.min(trunks.len())
                }
            };
            for trunk in &mut trunks[to] {
                trunk.handle_frame(now, link, mac(0, link), &payload, now);
            }
        };
        while self.taps[link].receive(&mut take)? {}
        Ok(())
    }
}

/// A peer's frame, with its Ethernet header.
fn on_the_wire(node: usize, frame: &Transmit) -> Deliver {
    let mut header = [0; 14];
    header[..6].copy_from_slice(&frame.destination.0);
    header[6..12].copy_from_slice(&mac(node, frame.link).0);
    header[12..].copy_from_slice(&ETHERTYPE.to_be_bytes());
    let body = [&frame.header[..], &frame.body].concat().into();
    Deliver { header, body }
}
