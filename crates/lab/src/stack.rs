//! The whole stack on one machine: two sites, a metaserver, and a client behind a long line. Each
//! site has four nodes, each with two unequal links under a trunk and a gang daemon, and a server
//! on the first node. Every host is a network namespace.
//!
//! The first nodes, the metaserver and the router before the client's line share a backbone.

use crate::line::Line;
use crate::sites::{LineShape, SITE_END, end};
use crate::{Daemon, Direction, Lab, LabError, TrunkProcess, until};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Number of sites.
pub const SITES: usize = 2;
/// Number of nodes of a site.
pub const NODES: usize = 4;
/// Bits per second of the links of a node.
pub const LINKS: [u64; 2] = [200_000_000, 100_000_000];
/// Bits per second of each host's link to the backbone.
pub const BACKBONE: u64 = 400_000_000;
/// The client's line.
pub const LONG_LINE: LineShape = LineShape {
    up: 12.5e6,
    down: 12.5e6,
    round_trip: Duration::from_millis(40),
};

const META: usize = SITES * NODES;
const ROUTER: usize = META + 1;
const CLIENT: usize = META + 2;
const HOSTS: usize = META + 3;
/// The switch of the backbone; each site has two before it.
const MIDDLE: usize = SITES * LINKS.len();
/// Bytes of the queues of the backbone.
const QUEUE: u64 = 1 << 20;
/// The number of the client's line among the addresses of lines.
const LONG: usize = 0;
/// The longest time until the parts have found each other.
const START: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(5);
/// How long a gang daemon waits for a message of another one.
const SILENCE: &str = "3s";

/// What a stack consists of.
#[derive(Clone, Copy, Debug)]
pub struct StackShape<'a> {
    /// The program `farcall`.
    pub farcall: &'a Path,
    /// A folder for state and traces that outlives the stack.
    pub folder: &'a Path,
    /// Interface files of both servers, or names of those that come with Farcall.
    pub interfaces: &'a [String],
    /// Whether servers run C code of interface files.
    pub allow_code: bool,
    /// The secret that the daemons of a gang share.
    pub secret: &'a str,
    /// What the parts log.
    pub log: &'a str,
}

/// The running stack. Dropping it ends all processes, and removes the hosts.
#[derive(Debug)]
pub struct Stack {
    // Processes end before their hosts are removed.
    servers: Vec<Daemon>,
    meta: Vec<Daemon>,
    /// A daemon for each node; none after the node was killed.
    gangs: Vec<Option<Daemon>>,
    trunks: Vec<Option<TrunkProcess>>,
    line: Option<Line>,
    lab: Arc<Lab>,
    folder: PathBuf,
}

impl Stack {
    /// Creates the hosts and starts all parts, and returns when the nodes have joined their gangs
    /// and the servers are known to the metaserver. `tell` gets a line for each part.
    ///
    /// # Errors
    /// The caller is not root, a requirement is missing, or a part does not start. Nothing is left
    /// behind.
    pub fn start(shape: &StackShape, tell: &mut dyn FnMut(&str)) -> Result<Stack, LabError> {
        let mut links: Vec<Vec<usize>> = (0..META).map(links_of).collect();
        links.resize(HOSTS - 1, vec![MIDDLE]);
        links.push(Vec::new());
        let links: Vec<&[usize]> = links.iter().map(Vec::as_slice).collect();
        let mut stack = Stack {
            servers: Vec::new(),
            meta: Vec::new(),
            gangs: Vec::new(),
            trunks: Vec::new(),
            line: None,
            lab: Arc::new(Lab::build(&links, None)?),
            folder: shape.folder.to_owned(),
        };
        stack.shape_links()?;
        stack.connect_client()?;
        tell("11 hosts in two sites, a backbone and a long line");
        stack.start_trunks(shape)?;
        tell("a trunk over two links at each node");
        stack.start_gangs(shape)?;
        tell("a gang of four nodes at each site");
        stack.start_meta(shape)?;
        tell(&format!("metaserver at {}", stack.metaserver()));
        for site in 0..SITES {
            stack.start_server(shape, site)?;
            tell(&format!(
                "server of site {} at {}",
                name_of(site),
                stack.server(site)
            ));
        }
        stack.wait_for_servers(shape.farcall)?;
        Ok(stack)
    }

    fn shape_links(&self) -> Result<(), LabError> {
        for host in 0..HOSTS {
            for switch in self.lab.switches_of(host) {
                match *switch {
                    MIDDLE => self.lab.shape_line(host, MIDDLE, [BACKBONE; 2], QUEUE)?,
                    own => self
                        .lab
                        .shape_link(host, own, [LINKS[own % LINKS.len()]; 2])?,
                }
            }
        }
        Ok(())
    }

    /// Connects the client to the router, and tells the hosts on the backbone the way to it.
    fn connect_client(&mut self) -> Result<(), LabError> {
        let lab = &self.lab;
        let near = end(lab, ROUTER, SITE_END.into(), client_side(1), LONG)?;
        let far = end(lab, CLIENT, SITE_END.into(), client_side(2), LONG)?;
        self.line = Some(Line::start([near, far], LONG_LINE.round_trip / 2)?);
        LONG_LINE.shape_ends(lab, [ROUTER, CLIENT], SITE_END)?;
        lab.forward(ROUTER)?;
        lab.via(CLIENT, "10.78.0.0/16", client_side(1))?;
        let router = lab.link_address(ROUTER, MIDDLE);
        let on_backbone = (0..SITES).map(head).chain([META]);
        on_backbone
            .into_iter()
            .try_for_each(|host| lab.via(host, "10.79.0.0/16", router))
    }

    fn start_trunks(&mut self, shape: &StackShape) -> Result<(), LabError> {
        for host in 0..META {
            let links = links_of(host).into_iter().zip(LINKS.map(Some));
            let trunk = TrunkProcess::start_on(&self.lab, host, shape.farcall, links, &[])?;
            self.trunks.push(Some(trunk));
        }
        let expected = LINKS.len() * (NODES - 1);
        for host in 0..META {
            self.lab.wait_for_links(host, shape.farcall, expected)?;
        }
        Ok(())
    }

    /// A daemon on a host. Its state is in a folder of the stack, so that nothing stays and several
    /// stacks can run at the same time.
    fn daemon(&self, shape: &StackShape, host: usize) -> Command {
        let mut command = self.lab.command(host, &shape.farcall.to_string_lossy());
        command.env("XDG_STATE_HOME", self.folder.join(self.lab.host(host)));
        command.env_remove("FARCALL_TOKEN");
        command
    }

    fn start_gangs(&mut self, shape: &StackShape) -> Result<(), LabError> {
        for host in 0..META {
            let own = format!("{}:3717", self.lab.trunk_address(host));
            let mut command = self.daemon(shape, host);
            command
                .env("FARCALL_TOKEN", shape.secret)
                .args(["gang", "daemon", "--slots", "2", "--silence", SILENCE])
                .args(["--interactive-share", "50", "--mpi-interface", "fc0"])
                .args(["--node", &node_name(host), "--listen", &own])
                .args(["--log", shape.log]);
            match host % NODES {
                0 => command.arg("--trace").arg(self.trace(host / NODES)),
                _ => {
                    let root = self.lab.trunk_address(head(host / NODES));
                    command.args(["--parent", &format!("{root}:3717")])
                }
            };
            self.gangs.push(Some(Daemon::start(command)?));
        }
        Ok(())
    }

    fn start_meta(&mut self, shape: &StackShape) -> Result<(), LabError> {
        let mut command = self.daemon(shape, META);
        command.args(["meta", "--store", "none", "--log", shape.log, "--listen"]);
        command.arg(format!("{}:3718", self.lab.link_address(META, MIDDLE)));
        self.meta.push(Daemon::start(command)?);
        Ok(())
    }

    fn start_server(&mut self, shape: &StackShape, site: usize) -> Result<(), LabError> {
        let config = self.folder.join(format!("site-{}.toml", name_of(site)));
        std::fs::write(&config, "[parallel]\nengine = \"gang\"\n")?;
        let own = self.lab.link_address(head(site), MIDDLE);
        let mut command = self.daemon(shape, head(site));
        command
            .args(["serve", "--pes", &NODES.to_string(), "--log", shape.log])
            .args(["--metaserver", self.metaserver(), "--listen"])
            .arg(format!("{own}:3717"))
            .arg("--config")
            .arg(&config)
            .args(shape.allow_code.then_some("--allow-code"))
            .args(shape.interfaces);
        self.servers.push(Daemon::start(command)?);
        Ok(())
    }

    /// Waits until the client sees both servers.
    fn wait_for_servers(&self, farcall: &Path) -> Result<(), LabError> {
        let farcall = farcall.to_string_lossy();
        let words = ["status", "--json", self.metaserver()];
        until("the servers at the metaserver", START, || {
            let list = self.lab.output(CLIENT, &farcall, &words)?;
            Ok((0..SITES).all(|site| list.contains(self.server(site))))
        })
    }

    /// The hosts. They are removed with the last reference to them.
    pub fn lab(&self) -> &Arc<Lab> {
        &self.lab
    }

    /// The address of the metaserver, for the client.
    pub fn metaserver(&self) -> &str {
        self.meta.first().map_or("", Daemon::address)
    }

    /// The address of a site's server, for the client.
    pub fn server(&self, site: usize) -> &str {
        self.servers.get(site).map_or("", Daemon::address)
    }

    /// Whether a site's server has ended.
    ///
    /// # Errors
    /// The system cannot tell.
    pub fn has_ended(&mut self, site: usize) -> Result<bool, LabError> {
        Ok(self.servers[site].ended()?.is_some())
    }

    /// The part that has ended although nobody killed its node.
    ///
    /// # Errors
    /// The system cannot tell.
    pub fn ended(&mut self) -> Result<Option<&'static str>, LabError> {
        let has_ended = |daemons: &mut dyn Iterator<Item = &mut Daemon>| {
            let ends: Result<Vec<_>, _> = daemons.map(Daemon::ended).collect();
            ends.map(|ends| ends.iter().any(Option::is_some))
        };
        let trunks = &mut self.trunks.iter_mut().flatten().map(TrunkProcess::daemon);
        Ok(match () {
            () if has_ended(&mut self.servers.iter_mut())? => Some("a server"),
            () if has_ended(&mut self.meta.iter_mut())? => Some("the metaserver"),
            () if has_ended(&mut self.gangs.iter_mut().flatten())? => Some("a gang daemon"),
            () if has_ended(trunks)? => Some("a trunk"),
            () => None,
        })
    }

    /// The trace of the gang switches of a site.
    pub fn trace(&self, site: usize) -> PathBuf {
        self.folder.join(format!("gang-{}.csv", name_of(site)))
    }

    /// Makes the faster link of a node fail silently, or repairs it.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn cut(&self, host: usize, is_cut: bool) -> Result<(), LabError> {
        let switch = links_of(host)[0];
        match is_cut {
            true => self.lab.fail(host, switch, Direction::Both),
            false => self.lab.repair(host, switch, Direction::Both),
        }
    }

    /// Kills a node: its links are silent, and its daemons end at once.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn kill_node(&mut self, host: usize) -> Result<(), LabError> {
        for switch in links_of(host) {
            self.lab.set_carrier(host, switch, false)?;
        }
        self.gangs[host] = None;
        self.trunks[host] = None;
        Ok(())
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // Servers leave the metaserver, and gang daemons end their jobs.
        for daemon in self.servers.iter_mut().chain(&mut self.meta) {
            let _ = daemon.stop(END);
        }
        for daemon in self.gangs.iter_mut().flatten().rev() {
            let _ = daemon.stop(END);
        }
    }
}

/// The host of the client.
pub fn client() -> usize {
    CLIENT
}

/// The first node of a site, which runs its server and the root of its gang.
pub fn head(site: usize) -> usize {
    site * NODES
}

/// The name of a site: `a` or `b`.
pub fn name_of(site: usize) -> char {
    (b'a' + site as u8) as char
}

/// The name of a node, such as `a1`.
pub fn node_name(host: usize) -> String {
    format!("{}{}", name_of(host / NODES), host % NODES + 1)
}

/// The switches of a node, those of its site first.
fn links_of(host: usize) -> Vec<usize> {
    let first = host / NODES * LINKS.len();
    let own = first..first + LINKS.len();
    own.chain(host.is_multiple_of(NODES).then_some(MIDDLE))
        .collect()
}

fn client_side(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 79, LONG as u8, last)
}
