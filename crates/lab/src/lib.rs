//! Hosts and switches in network namespaces of this machine. [`Lab::build`] creates them, and
//! dropping the [`Lab`] removes them. Needs root, `ip` and `tc`.
//!
//! A switch is a bridge in a namespace of its own. A link is a veth pair between a host and a
//! switch. Both ends are shaped to the rate of the wire, including all overhead of a frame, with
//! the queue of a small switch. [`Sites`] are distant hosts: a server, and clients with slow lines
//! to it.
//!
//! [`Daemon`] is a program of Farcall that prints in its first line where it listens: `farcall
//! serve`, `farcall meta`, `farcall gang daemon`. It needs no lab.

mod daemon;
mod flow;
mod line;
mod owner;
mod quota;
mod sites;
pub mod stack;
mod topology;
mod trunk;

pub use daemon::{Daemon, output_of};
pub use flow::{Flow, FlowKind};
pub use owner::{folder_name, remove_folders};
pub use quota::Quota;
pub use sites::{LineShape, Sites};
pub use stack::{Stack, StackShape};
pub use topology::{TOPOLOGIES, Topology, jain};
pub use trunk::TrunkProcess;

use owner::Owner;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Why a lab cannot be built, or something in it failed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Namespaces need root.
    #[error("network namespaces need root: run it with sudo")]
    NotRoot,
    /// A program is missing.
    #[error("`{0}` is missing: install iproute2 and util-linux")]
    NoProgram(String),
    /// A command failed.
    #[error("`{command}` failed: {message}")]
    Command {
        /// The command line.
        command: String,
        /// Its standard error.
        message: String,
    },
    /// The machine cannot limit the processor time of processes.
    #[error("cannot limit processor time: {0}")]
    NoQuota(String),
    /// A trunk did not come up.
    #[error("a trunk did not start: {0}")]
    Trunk(String),
    /// Something did not happen in time.
    #[error("timeout: {0} did not appear in time")]
    Late(&'static str),
    /// Another system call failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// How links are shaped.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Rate of each link in bits a second.
    pub rate: u64,
    /// Queue of a switch's port in bytes.
    pub switch_queue: u64,
    /// Queue of a host's interface in bytes.
    pub host_queue: u64,
    /// Whether trunks are told the rate. Otherwise they have to learn it, because the interfaces
    /// report 10 Gbit/s.
    pub told: bool,
}

impl Shape {
    /// 100 Mbit/s and the queues of a small switch.
    pub const FAST_ETHERNET: Shape = Shape {
        rate: 100_000_000,
        switch_queue: 128 << 10,
        host_queue: 400 << 10,
        told: true,
    };
    /// The same, but trunks are not told the rate.
    pub const FAST_ETHERNET_UNTOLD: Shape = Shape {
        told: false,
        ..Shape::FAST_ETHERNET
    };

    /// TCP payload that one link carries, in bytes a second: full frames with time stamps.
    pub fn ideal(&self) -> f64 {
        self.rate as f64 / 8.0 * 1448.0 / 1538.0
    }
}

/// The direction in which a silent failure drops frames, as the host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the host.
    In,
    /// From the host.
    Out,
    /// Both.
    Both,
}

/// A set of hosts and switches.
#[derive(Debug)]
pub struct Lab {
    prefix: String,
    /// For each host, the switch of each of its links.
    links: Vec<Vec<usize>>,
    shape: Option<Shape>,
}

const PREFIX: &str = "farcall-lab";
/// A filter that drops everything: one instruction of classic BPF, `ret TC_ACT_SHOT`.
const DROP: &str = "1,6 0 0 2";

static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Lab {
    /// Creates hosts that each have a link to these switches, shaped or as fast as the machine.
    ///
    /// # Errors
    /// The caller is not root, or `ip` or `tc` is missing. Nothing is left behind.
    pub fn build(links: &[&[usize]], shape: Option<Shape>) -> Result<Lab, LabError> {
        if !rustix::process::geteuid().is_root() {
            return Err(LabError::NotRoot);
        }
        sweep()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let lab = Lab {
            prefix: Owner::own().name(number),
            links: links.iter().map(|links| links.to_vec()).collect(),
            shape,
        };
        let switches = links
            .iter()
            .flat_map(|links| links.iter())
            .max()
            .map_or(0, |most| most + 1);
        let middle = lab.switches();
        run("ip", &["netns", "add", &middle])?;
        for switch in 0..switches {
            let bridge = format!("br{switch}");
            lab.ip(
                &middle,
                &[
                    "link",
                    "add",
                    "name",
                    &bridge,
                    "type",
                    "bridge",
                    "mcast_snooping",
                    "0",
                ],
            )?;
            lab.ip(&middle, &["link", "set", &bridge, "up"])?;
        }
        for (host, switches) in links.iter().enumerate() {
            let space = lab.host(host);
            run("ip", &["netns", "add", &space])?;
            lab.ip(&space, &["link", "set", "lo", "up"])?;
            lab.choose_congestion_control(host)?;
            for switch in *switches {
                lab.connect(host, *switch)?;
            }
        }
        Ok(lab)
    }

    /// Makes TCP on a host behave alike on all machines, whose defaults differ. A host may choose
    /// cubic only where the machine allows it; reno is always allowed, and as good on short links.
    fn choose_congestion_control(&self, host: usize) -> Result<(), LabError> {
        let choose = |name| std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", name);
        let choose = move || choose("cubic").or_else(|_| choose("reno"));
        let chosen = self.spawn(host, choose)?.join();
        let panicked = |_| Err(io::Error::other("the thread panicked"));
        Ok(chosen.unwrap_or_else(panicked)?)
    }

    fn connect(&self, host: usize, switch: usize) -> Result<(), LabError> {
        let (middle, space) = (self.switches(), self.host(host));
        let (port, link) = (port(host, switch), link_name(switch));
        let ends = [
            "link", "add", "name", &port, "type", "veth", "peer", "name", &link, "netns", &space,
        ];
        self.ip(&middle, &ends)?;
        self.ip(
            &middle,
            &["link", "set", &port, "master", &format!("br{switch}"), "up"],
        )?;
        self.ip(&space, &["link", "set", &link, "up"])?;
        let address = format!("{}/24", self.link_address(host, switch));
        self.ip(&space, &["address", "add", &address, "dev", &link])?;
        run(
            "tc",
            &["-n", &middle, "qdisc", "add", "dev", &port, "clsact"],
        )?;
        let Some(shape) = self.shape else {
            return Ok(());
        };
        for (space, device, queue) in [
            (&middle, &port, shape.switch_queue),
            (&space, &link, shape.host_queue),
        ] {
            self.shape_device(space, device, shape.rate, queue)?;
        }
        Ok(())
    }

    fn shape_device(
        &self,
        space: &str,
        device: &str,
        rate: u64,
        queue: u64,
    ) -> Result<(), LabError> {
        // No packet larger than a frame passes the queue, so one drop loses one frame.
        self.ip(space, &["link", "set", "dev", device, "gso_max_segs", "1"])?;
        let place = [
            "-n", space, "qdisc", "replace", "dev", device, "root", "handle", "1:",
        ];
        let wire = "stab overhead 24 mpu 84 linklayer ethernet";
        // On fast links a timer fires four thousand times a second, and not for each frame.
        let burst = (rate / 8 / 4000).max(4000);
        let bucket = format!("tbf rate {rate}bit burst {burst} limit {queue}");
        let words = wire.split(' ').chain(bucket.split(' '));
        run("tc", &place.into_iter().chain(words).collect::<Vec<_>>())
    }

    /// Shapes one link: bits a second on the wire to the host and from it.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn shape_link(&self, host: usize, switch: usize, rates: [u64; 2]) -> Result<(), LabError> {
        self.shape_line(host, switch, rates, Shape::FAST_ETHERNET.switch_queue)
    }

    /// The same, with queues of so many bytes at both ends.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn shape_line(
        &self,
        host: usize,
        switch: usize,
        [to_host, from_host]: [u64; 2],
        queue: u64,
    ) -> Result<(), LabError> {
        let (middle, space) = (self.switches(), self.host(host));
        self.shape_device(&middle, &port(host, switch), to_host, queue)?;
        self.shape_device(&space, &link_name(switch), from_host, queue)
    }

    /// Inserts a second switch between a switch and some of its hosts, with a link of `rate` bits a
    /// second between the two switches.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn add_stage(&self, switch: usize, hosts: &[usize], rate: u64) -> Result<(), LabError> {
        let middle = self.switches();
        let (near, far) = (format!("up{switch}"), format!("down{switch}"));
        let (bridge, stage) = (format!("br{switch}"), format!("stage{switch}"));
        let make = [
            "link",
            "add",
            "name",
            &stage,
            "type",
            "bridge",
            "mcast_snooping",
            "0",
        ];
        self.ip(&middle, &make)?;
        self.ip(&middle, &["link", "set", &stage, "up"])?;
        let line = [
            "link", "add", "name", &near, "type", "veth", "peer", "name", &far,
        ];
        self.ip(&middle, &line)?;
        self.ip(&middle, &["link", "set", &near, "master", &bridge, "up"])?;
        self.ip(&middle, &["link", "set", &far, "master", &stage, "up"])?;
        let queue = self.shape.map_or(128 << 10, |shape| shape.switch_queue);
        for device in [&near, &far] {
            self.shape_device(&middle, device, rate, queue)?;
        }
        for host in hosts {
            let port = port(*host, switch);
            self.ip(&middle, &["link", "set", &port, "master", &stage])?;
        }
        Ok(())
    }

    fn ip(&self, space: &str, arguments: &[&str]) -> Result<(), LabError> {
        run("ip", &[&["-n", space], arguments].concat())
    }

    /// Lets a host forward packets.
    fn forward(&self, host: usize) -> Result<(), LabError> {
        let on = ["-q", "-w", "net.ipv4.ip_forward=1"];
        self.output(host, "sysctl", &on).map(drop)
    }

    /// Adds a route on a host.
    fn via(&self, host: usize, to: &str, by: Ipv4Addr) -> Result<(), LabError> {
        let by = by.to_string();
        self.ip(&self.host(host), &["route", "add", to, "via", &by])
    }

    fn switches(&self) -> String {
        format!("{}-sw", self.prefix)
    }

    /// The namespace of a host.
    pub fn host(&self, host: usize) -> String {
        format!("{}-h{host}", self.prefix)
    }

    /// Number of hosts.
    pub fn hosts(&self) -> usize {
        self.links.len()
    }

    /// Names of a host's links.
    pub fn link_names(&self, host: usize) -> Vec<String> {
        self.links[host]
            .iter()
            .map(|switch| link_name(*switch))
            .collect()
    }

    /// Numbers of the switches that a host is linked to.
    pub fn switches_of(&self, host: usize) -> &[usize] {
        &self.links[host]
    }

    /// How the links are shaped.
    pub fn shape(&self) -> Option<Shape> {
        self.shape
    }

    /// IP address of a host on one link.
    pub fn link_address(&self, host: usize, switch: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 78, switch as u8, host as u8 + 1)
    }

    /// IP address of a host's trunk.
    pub fn trunk_address(&self, host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, host as u8 + 1)
    }

    /// A command that runs on a host.
    pub fn command(&self, host: usize, program: &str) -> Command {
        // The command is killed when the thread that started it ends.
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "TERM",
            "ip",
            "netns",
            "exec",
            &self.host(host),
            program,
        ]);
        command.stdin(Stdio::null());
        command
    }

    /// A command that runs on a host, within a quota of processor time.
    pub fn command_within(&self, quota: &Quota, host: usize, program: &str) -> Command {
        // The shell enters the group and then executes the program. This must happen before the
        // host's namespace is entered, because the group is not visible in the file system there.
        let on_host = self.command(host, program);
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        command.arg(quota.processes());
        command.arg(on_host.get_program()).args(on_host.get_args());
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command on a host to its end, and returns what it printed.
    ///
    /// # Errors
    /// The command fails.
    pub fn output(
        &self,
        host: usize,
        program: &str,
        arguments: &[&str],
    ) -> Result<String, LabError> {
        output(self.command(host, program).args(arguments))
    }

    /// Starts a thread of this process on a host. The sockets that it opens belong to the host.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn spawn<T: Send + 'static>(
        &self,
        host: usize,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<JoinHandle<io::Result<T>>, LabError> {
        let space = self.space(host)?;
        Ok(thread::Builder::new().spawn(move || {
            move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        })?)
    }

    /// Moves this thread to a host for good. The sockets that it opens belong to the host.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn enter(&self, host: usize) -> io::Result<()> {
        let space = self.space(host)?;
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    }

    fn space(&self, host: usize) -> io::Result<File> {
        File::open(format!("/run/netns/{}", self.host(host)))
    }

    /// Makes a host's link fail silently.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn fail(&self, host: usize, switch: usize, direction: Direction) -> Result<(), LabError> {
        self.filter(host, switch, direction, "replace")
    }

    /// Reverts [`Lab::fail`].
    ///
    /// # Errors
    /// The system refuses it.
    pub fn repair(&self, host: usize, switch: usize, direction: Direction) -> Result<(), LabError> {
        self.filter(host, switch, direction, "del")
    }

    fn filter(
        &self,
        host: usize,
        switch: usize,
        direction: Direction,
        action: &str,
    ) -> Result<(), LabError> {
        let sides: &[&str] = match direction {
            Direction::In => &["egress"],
            Direction::Out => &["ingress"],
            Direction::Both => &["egress", "ingress"],
        };
        let (middle, port) = (self.switches(), port(host, switch));
        for side in sides {
            let place = [
                "-n", &middle, "filter", action, "dev", &port, side, "pref", "1",
            ];
            let what: &[&str] = match action {
                "del" => &[],
                _ => &[
                    "handle", "1", "protocol", "all", "bpf", "da", "bytecode", DROP,
                ],
            };
            run("tc", &[&place[..], what].concat())?;
        }
        Ok(())
    }

    /// Removes the carrier of a host's link, or restores it.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn set_carrier(&self, host: usize, switch: usize, up: bool) -> Result<(), LabError> {
        let state = if up { "up" } else { "down" };
        self.ip(
            &self.switches(),
            &["link", "set", &port(host, switch), state],
        )
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let hosts = (0..self.links.len()).map(|host| self.host(host));
        for space in hosts.chain([self.switches()]) {
            // A namespace that was not created yet cannot be removed.
            let _ = run("ip", &["netns", "del", &space]);
        }
    }
}

fn port(host: usize, switch: usize) -> String {
    format!("h{host}s{switch}")
}

fn link_name(switch: usize) -> String {
    format!("link{switch}")
}

/// Removes all labs and quotas of this process. Call it before an exit that drops no values.
///
/// # Errors
/// The namespaces cannot be listed.
pub fn remove_all() -> Result<(), LabError> {
    let own = Owner::own();
    quota::remove(|owner| owner == own);
    remove(|owner| owner == own)
}

/// Removes the labs that dead processes left behind.
fn sweep() -> Result<(), LabError> {
    quota::remove(Owner::is_gone);
    remove(Owner::is_gone)
}

/// Removes the labs of some processes.
fn remove(is_one: impl Fn(Owner) -> bool) -> Result<(), LabError> {
    for line in output(Command::new("ip").args(["netns", "list"]))?.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        if Owner::of(name).is_some_and(&is_one) {
            // Another lab may sweep at the same time.
            let _ = run("ip", &["netns", "del", name]);
        }
    }
    Ok(())
}

/// Waits until something is true, but not longer than this.
fn until(
    what: &'static str,
    patience: Duration,
    mut is_true: impl FnMut() -> Result<bool, LabError>,
) -> Result<(), LabError> {
    let end = Instant::now() + patience;
    while !is_true()? {
        if Instant::now() > end {
            return Err(LabError::Late(what));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn run(program: &str, arguments: &[&str]) -> Result<(), LabError> {
    output(Command::new(program).args(arguments)).map(drop)
}

fn output(command: &mut Command) -> Result<String, LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => LabError::NoProgram(program),
        _ => error.into(),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(LabError::Command {
        command: format!("{command:?}").replace('"', ""),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
