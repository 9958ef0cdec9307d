//! The event loop of a trunk's daemon. It moves frames between the links and the virtual interface,
//! drives the [`Trunk`] state machine, and answers requests.

use crate::control::{Request, Requests, serve, user_of};
use crate::device::{BATCH, Link, reserve_all};
use crate::load::{Traffic, Use};
use crate::report::{self, Log};
use crate::{Config, Error};
use bytes::Bytes;
use farcall_trunk_device::{
    Carrier, Tap, is_too_narrow, now, set_priority, sleep_until, thread_time, timespec,
};
use farcall_trunk_proto::{Event, Limits, LinkConfig, Mac, Nanos, Policy, Trunk};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// The most batches read from one link before the other links are served.
const READS: usize = 16;
/// The most packets read from the virtual interface before the links are served.
const PACKETS: usize = 16;

/// The lowest real-time priority.
const PRIORITY: u8 = 1;

const TIMER: u64 = 0x100;
const TAP: u64 = 0x101;
const CARRIER: u64 = 0x102;
const REQUEST: u64 = 0x103;
const SIGNAL: u64 = 0x104;

/// A running trunk.
pub struct Daemon {
    name: String,
    trunk: Trunk,
    tap: Tap,
    mtu: u16,
    links: Vec<Link>,
    carrier: Carrier,
    requests: Requests,
    signals: UnixStream,
    epoll: OwnedFd,
    timer: OwnedFd,
    armed: Nanos,
    traffic: Traffic,
    load: Use,
    may_hurry: bool,
    log: Log,
    end: bool,
}

/// The descriptors that were ready.
#[derive(Default)]
struct Ready {
    tap: bool,
    links: u32,
    carrier: bool,
    requests: bool,
    signal: bool,
}

impl Daemon {
    /// Opens the links, creates the virtual interface and brings it up.
    ///
    /// # Errors
    /// Returns what is missing, and how to get it. Nothing is left behind.
    pub fn start(config: &Config) -> Result<Daemon, Error> {
        for (index, link) in config.links.iter().enumerate() {
            if config.links[..index]
                .iter()
                .any(|other| other.name == link.name)
            {
                return Err(Error::Twice(link.name.clone()));
            }
        }
        let metrics = config
            .metrics
            .map(|at| TcpListener::bind(at).map_err(|error| Error::Metrics(at, error)));
        let metrics = metrics.transpose()?;
        let mut links = config
            .links
            .iter()
            .map(Link::open)
            .collect::<Result<Vec<_>, _>>()?;
        let requests = serve(&config.name, metrics).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Error::Running {
                name: config.name.clone(),
                user: user_of(&config.name),
            },
            _ => error.into(),
        })?;
        reserve_all(&mut links, &config.name)?;
        // On fast links the processor is the limit, so no time may pass without work.
        let is_fast = links.iter().any(Link::is_fast);
        let fastest = links.iter().map(Link::rate).fold(1.0, f64::max);
        let traffic = Traffic::new((!is_fast).then_some(fastest));
        let trunk = Trunk::new(core_config(config, &links)?, now())?;
        let mtu = trunk.mtu();
        if is_too_narrow(mtu, &config.addresses) {
            let link = trunk.narrowest().map_or(0, |(_, link, _)| link);
            let link = config.links[link].name.clone();
            return Err(Error::Narrow { link, mtu });
        }
        let mut tap = Tap::create(&config.name, trunk.status().node, mtu)?;
        tap.bring_up(&config.addresses)?;
        let (signals, sender) = UnixStream::pair()?;
        signals.set_nonblocking(true)?;
        // `nohup` lets a trunk outlive its terminal.
        let hangup = (!farcall_child::outlives_terminal()).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let mut daemon = Daemon {
            name: config.name.clone(),
            trunk,
            tap,
            mtu,
            links,
            carrier: Carrier::new()?,
            requests,
            signals,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?,
            timer: timerfd_create(TimerfdClockId::Monotonic, flags).map_err(io::Error::from)?,
            armed: 0,
            traffic,
            load: Use::default(),
            may_hurry: true,
            log: Log::default(),
            end: false,
        };
        daemon.register()?;
        daemon.look_at_links();
        Ok(daemon)
    }

    fn register(&mut self) -> io::Result<()> {
        let add = |what: &OwnedFd, key| {
            epoll::add(&self.epoll, what, EventData::new_u64(key), EventFlags::IN)
        };
        add(&self.timer, TIMER)?;
        add(self.tap.descriptor(), TAP)?;
        add(self.carrier.descriptor(), CARRIER)?;
        add(&self.requests.wake, REQUEST)?;
        epoll::add(
            &self.epoll,
            &self.signals,
            EventData::new_u64(SIGNAL),
            EventFlags::IN,
        )?;
        for (index, link) in self.links.iter_mut().enumerate() {
            if let Some(device) = link.device() {
                let data = EventData::new_u64(index as u64);
                epoll::add(&self.epoll, device.descriptor(), data, EventFlags::IN)?;
            }
        }
        Ok(())
    }

    /// Serves until a signal or a request ends it. When this returns, the virtual interface is
    /// removed.
    ///
    /// # Errors
    /// The virtual interface is lost.
    pub fn run(mut self) -> Result<(), Error> {
        let mut more = true;
        while !self.end {
            let ready = self.wait(more)?;
            let mut at = now();
            self.hurry(at);
            let next = self.traffic.next(at);
            if ready.carrier && self.carrier.take() {
                self.look_at_links();
            }
            more = self.read_links(ready.links, at);
            if ready.tap {
                more |= self.read_tap(at)?;
            }
            if ready.requests {
                self.answer();
            }
            self.end |= ready.signal;
            at = now();
            if at >= self.trunk.poll_timeout(at) {
                // Frames may have come since the wait.
                let judges = self.trunk.judges_links(at);
                if judges {
                    more |= self.read_links(u32::MAX, at);
                }
                self.trunk.handle_timeout(at);
                if judges {
                    self.follow_mtu();
                }
            }
            self.drain(at)?;
            self.report_events();
            self.arm(at)?;
            if next > at && !more {
                sleep_until(next);
            }
        }
        self.trunk.close();
        self.drain(now())?;
        Ok(())
    }

    /// Takes the priority that fits the use of the processor.
    fn hurry(&mut self, at: Nanos) {
        let Some(first) = self.load.judge(at, thread_time).filter(|_| self.may_hurry) else {
            return;
        };
        match set_priority(first.then_some(PRIORITY)) {
            Ok(()) => tracing::debug!("real-time priority: {first}"),
            Err(error) => {
                self.may_hurry = false;
                tracing::warn!(
                    "no real-time priority ({error}): on a busy machine the links may stay idle \
                     at times. Run as root, or grant it with `sudo setcap \
                     cap_net_admin,cap_net_raw,cap_sys_nice+ep $(command -v farcall)`."
                );
            }
        }
    }

    fn wait(&mut self, more: bool) -> Result<Ready, Error> {
        let mut events = [epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; 32];
        let none = timespec(0);
        let count = match epoll::wait(&self.epoll, &mut events[..], more.then_some(&none)) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(io::Error::from(error).into()),
        };
        let mut ready = Ready::default();
        for event in &events[..count] {
            match event.data.u64() {
                TIMER => {
                    let mut count = [0; 8];
                    // The timer may have been set again in the meantime.
                    let _ = rustix::io::read(&self.timer, &mut count);
                    self.armed = 0;
                }
                TAP => ready.tap = true,
                CARRIER => ready.carrier = true,
                REQUEST => ready.requests = true,
                SIGNAL => ready.signal = true,
                link => ready.links |= 1 << link,
            }
        }
        if more {
            ready.tap = true;
            ready.links = u32::MAX;
        }
        Ok(ready)
    }

    /// Reads from the links that are ready, and lets blocked links try again. Returns true if more
    /// frames may wait.
    fn read_links(&mut self, ready: u32, at: Nanos) -> bool {
        let mut more = false;
        for (index, link) in self.links.iter_mut().enumerate() {
            if ready >> index & 1 == 0 {
                continue;
            }
            if link.blocked {
                link.blocked = !link.flush(at);
                self.trunk.handle_blocked(index, link.blocked);
                watch(&self.epoll, link, index);
            }
            for round in 0..READS {
                let Some(device) = link.device() else { break };
                let (trunk, traffic) = (&mut self.trunk, &mut self.traffic);
                let result = device.receive(at, &mut |frame| {
                    traffic.count(frame.payload.len());
                    trunk.handle_frame(at, index, frame.source, &frame.payload, frame.at);
                });
                match result {
                    Ok(BATCH..) => more |= round + 1 == READS,
                    Ok(_) => break,
                    Err(error) => {
                        tracing::warn!("{}: {error}; the link is not used", link.config.name);
                        link.lose();
                        self.trunk.handle_carrier(at, index, false);
                    }
                }
            }
        }
        more
    }

    fn read_tap(&mut self, at: Nanos) -> Result<bool, Error> {
        for _ in 0..PACKETS {
            let (trunk, traffic) = (&mut self.trunk, &mut self.traffic);
            let take = |frame: Bytes| {
                traffic.count(frame.len());
                trunk.handle_outgoing(at, &frame);
            };
            if !self.tap.receive(take)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves all ready frames to their destinations.
    fn drain(&mut self, at: Nanos) -> Result<(), Error> {
        let trunk = &mut self.trunk;
        self.tap.send(std::iter::from_fn(|| trunk.poll_deliver()))?;
        while let Some(transmit) = self.trunk.poll_transmit(at) {
            let index = transmit.link;
            self.links[index].out.push(transmit);
            if self.links[index].out.len() >= BATCH {
                self.flush(index, at);
            }
        }
        for index in 0..self.links.len() {
            let link = &mut self.links[index];
            let due = link.device().and_then(|device| device.deadline());
            if !link.out.is_empty() || due.is_some_and(|due| due <= at) {
                self.flush(index, at);
            }
        }
        Ok(())
    }

    fn flush(&mut self, index: usize, at: Nanos) {
        let link = &mut self.links[index];
        let blocked = !link.flush(at);
        if link.device().is_none() {
            self.trunk.handle_carrier(at, index, false);
        }
        if blocked != link.blocked {
            link.blocked = blocked;
            self.trunk.handle_blocked(index, blocked);
            watch(&self.epoll, link, index);
        }
    }

    fn arm(&mut self, at: Nanos) -> io::Result<()> {
        let devices = self
            .links
            .iter_mut()
            .filter_map(|link| link.device()?.deadline());
        let deadline = devices
            .min()
            .unwrap_or(Nanos::MAX)
            .min(self.trunk.poll_timeout(at));
        // A deadline in the past must still trigger the timer; zero would disable it.
        let deadline = deadline.max(1);
        if deadline == self.armed || deadline == Nanos::MAX {
            return Ok(());
        }
        self.armed = deadline;
        let spec = Itimerspec {
            it_interval: timespec(0),
            it_value: timespec(deadline),
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }

    fn look_at_links(&mut self) {
        for (index, link) in self.links.iter_mut().enumerate() {
            let (carrier, reopened) = link.look();
            if reopened && let Some(device) = link.device() {
                let data = EventData::new_u64(index as u64);
                if let Err(error) =
                    epoll::add(&self.epoll, device.descriptor(), data, EventFlags::IN)
                {
                    tracing::warn!("{}: {error}", link.config.name);
                }
            }
            if carrier {
                let found = core_link(link);
                let taken = found.and_then(|found| Ok(self.trunk.handle_link(index, found)?));
                if let Err(error) = taken {
                    tracing::warn!("{error}");
                }
            }
            self.trunk.handle_carrier(now(), index, carrier);
        }
    }

    fn answer(&mut self) {
        let mut count = [0; 8];
        // The count does not matter, because every waiting request is answered.
        let _ = rustix::io::read(&*self.requests.wake, &mut count);
        while let Ok(request) = self.requests.queue.try_recv() {
            let status = self.trunk.status();
            // A client that has disconnected needs no answer.
            match request {
                Request::Status(answer) => {
                    let text = report::json(&self.name, &status, &self.log).to_string();
                    let _ = answer.try_send(text);
                }
                Request::Metrics(answer) => answer(report::metrics(&self.name, &status)),
                Request::Down(answer) => {
                    self.end = true;
                    let _ = answer.try_send(String::new());
                }
            }
        }
    }

    fn report_events(&mut self) {
        while let Some(event) = self.trunk.poll_event() {
            let link = |link: usize| &self.links[link].config.name;
            let text = match &event {
                Event::PeerFound { peer } => format!("peer {peer} found"),
                Event::PeerLost {
                    peer,
                    goodbye: true,
                } => format!("peer {peer} has ended"),
                Event::PeerLost { peer, .. } => format!("peer {peer} lost"),
                Event::LinkUp { peer, link: index } => {
                    format!("link {} to {peer} up", link(*index))
                }
                Event::LinkDown {
                    peer,
                    link: index,
                    reason,
                } => {
                    format!("link {} to {peer} down: {reason}", link(*index))
                }
                Event::NumbersDenied { peer, refused } => format!(
                    "peer {peer} did not send the numbers of some frames ({refused} refused): its \
                     heartbeats set the order right. Another host may use its address."
                ),
                Event::Misfit {
                    node,
                    link: index,
                    misfit,
                } => format!(
                    "node {node} on link {} cannot be a peer: {misfit}",
                    link(*index)
                ),
                Event::AddressConflict(conflict) => format!(
                    "address conflict on link {}: {}: {}. Give each interface its own address.",
                    link(conflict.link),
                    conflict.address,
                    conflict.kind
                ),
            };
            match event {
                Event::PeerFound { .. } | Event::LinkUp { .. } => tracing::info!("{text}"),
                _ => tracing::warn!("{text}"),
            }
            self.log.push(text);
        }
    }

    /// Gives the virtual interface the MTU that the smallest link of this node and its peers
    /// allows.
    fn follow_mtu(&mut self) {
        let mtu = self.trunk.mtu();
        if mtu == self.mtu {
            return;
        }
        self.mtu = mtu;
        match self.tap.set_mtu(mtu) {
            Ok(()) if self.tap.is_too_narrow(mtu) => tracing::warn!(
                "MTU is now {mtu}, because of {}: {} has no IPv6 until it is 1280 again. Give \
                 all links of the trunk, on all nodes, an MTU of 1500.",
                self.narrowest(),
                self.name
            ),
            Ok(()) => tracing::info!("MTU is now {mtu}, because of {}", self.narrowest()),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// The end of a link that has the smallest MTU, in words.
    fn narrowest(&self) -> String {
        let name = |link: usize| &self.links[link].config.name;
        match self.trunk.narrowest() {
            Some((_, link, Some(peer))) => format!("peer {peer} on link {}", name(link)),
            Some((_, link, None)) => format!("link {}", name(link)),
            None => "no link".to_owned(),
        }
    }
}

/// Polls a link for writability only if it is blocked.
fn watch(epoll: &OwnedFd, link: &mut Link, index: usize) {
    let blocked = link.blocked;
    if let Some(device) = link.device() {
        let flags = if blocked {
            EventFlags::IN | EventFlags::OUT
        } else {
            EventFlags::IN
        };
        let data = EventData::new_u64(index as u64);
        if let Err(error) = epoll::modify(epoll, device.descriptor(), data, flags) {
            tracing::warn!("{}: {error}", link.config.name);
        }
    }
}

fn core_config(config: &Config, links: &[Link]) -> Result<farcall_trunk_proto::Config, Error> {
    let core_links = links.iter().map(core_link).collect::<Result<Vec<_>, _>>()?;
    let (mut session, mut seed) = ([0; 4], [0; 32]);
    draw(&mut session)?;
    draw(&mut seed)?;
    Ok(farcall_trunk_proto::Config {
        node: core_links
            .first()
            .map(|link| node(link.address))
            .unwrap_or_default(),
        links: core_links,
        policy: config.policy,
        repair: config.repair.unwrap_or(config.policy == Policy::MaxMin),
        order: config.order,
        counts_only: false,
        span: config.span.as_nanos() as Nanos,
        key: config.key.clone(),
        session: u32::from_ne_bytes(session),
        seed,
        limits: Limits::default(),
    })
}

/// A link as the state machine knows it.
fn core_link(link: &Link) -> Result<LinkConfig, Error> {
    Ok(LinkConfig {
        name: link.config.name.clone(),
        address: link.interface.address()?,
        rate: link.rate(),
        mtu: link.mtu()?,
    })
}

/// Fills a buffer of at most 256 bytes, which the system call never cuts, with random bytes.
fn draw(bytes: &mut [u8]) -> io::Result<()> {
    rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(())
}

/// The address of the virtual interface, derived from that of a link. It is locally administered,
/// the same after a restart, and different from the link's address.
fn node(link: Mac) -> Mac {
    let mut bytes = link.0;
    bytes[0] = bytes[0] & 0xfc | 0x02;
    bytes[1] ^= 0xfc;
    Mac(bytes)
}
