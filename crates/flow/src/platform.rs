//! Interconnects: nodes, directed links, and the static route of every pair of nodes.
//!
//! Routes are computed on demand, so a platform needs memory only for its parameters. An edge list
//! also needs a next-hop table. A link and the switch output port that feeds it are one resource:
//! the narrower of the two sets its bandwidth.

mod crossbar;
mod dragonfly;
mod edges;
mod fat_tree;
mod grid;
mod hyperx;
mod place;
mod spec;
#[cfg(test)]
mod tests;

pub use crossbar::HyperCrossbar;
pub use dragonfly::Dragonfly;
pub use edges::EdgeList;
pub use fat_tree::FatTree;
pub use grid::{Grid, Ties};
pub use hyperx::HyperX;
pub use place::Place;
pub use spec::PLATFORM_KINDS;

use crate::error::SpecError;

/// Index of a directed link, below [`Platform::links`].
pub type LinkId = u32;

/// Largest number of nodes or links that a specification can ask for.
pub const MAX_SIZE: u64 = 1 << 28;

/// One interconnect.
#[derive(Debug, Clone)]
pub struct Platform {
    topology: Topology,
    latency: f64,
    hop_latency: f64,
    inside: Option<Inside>,
}

/// The level inside of a machine: each node of the topology is a machine with several devices,
/// such as GPUs, and a device is a node of the platform.
#[derive(Debug, Clone, Copy)]
struct Inside {
    devices: u32,
    /// Bytes/s of the link from a device to the others of its machine and to the network, and of
    /// the link back.
    bandwidth: f64,
}

/// The families of interconnects.
#[derive(Debug, Clone)]
pub enum Topology {
    /// Fat tree of any number of levels, optionally tapered above the leaf switches.
    FatTree(FatTree),
    /// Torus, mesh, or a grid with some dimensions wrapped.
    Grid(Grid),
    /// One crossbar per line of nodes in every dimension.
    HyperCrossbar(HyperCrossbar),
    /// Groups of routers. The routers of a group are fully connected, and so are the groups.
    Dragonfly(Dragonfly),
    /// Switches fully connected in every dimension.
    HyperX(HyperX),
    /// Any directed graph, routed along shortest paths.
    EdgeList(EdgeList),
}

macro_rules! each {
    ($self:expr, $t:ident => $e:expr) => {
        match &$self.topology {
            Topology::FatTree($t) => $e,
            Topology::Grid($t) => $e,
            Topology::HyperCrossbar($t) => $e,
            Topology::Dragonfly($t) => $e,
            Topology::HyperX($t) => $e,
            Topology::EdgeList($t) => $e,
        }
    };
}

impl Platform {
    /// A platform of the given topology without latency.
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            latency: 0.0,
            hop_latency: 0.0,
            inside: None,
        }
    }

    /// The same platform with `seconds` of latency on every message between different nodes, or,
    /// if nodes are devices, between different machines.
    pub fn with_latency(mut self, seconds: f64) -> Self {
        self.latency = seconds;
        self
    }

    /// The same platform with `seconds` of latency for each link of a route.
    pub fn with_hop_latency(mut self, seconds: f64) -> Self {
        self.hop_latency = seconds;
        self
    }

    /// The same network between machines of `devices` devices, which are the nodes now: node
    /// `m devices + d` is device `d` of machine `m`. A message between two devices passes the link
    /// out of one and the link into the other, with the route of the network between them unless
    /// they are in the same machine.
    ///
    /// # Errors
    /// A sentence that says which parameter is out of range.
    pub fn with_devices(mut self, devices: u32, bandwidth: f64) -> Result<Self, String> {
        let machines = self.nodes() as u64;
        let links = self.links() as u64 + 2 * machines.saturating_mul(u64::from(devices));
        if devices == 0 || links > MAX_SIZE {
            return Err(format!(
                "devices={devices}: none, or too many for {machines} machines"
            ));
        }
        self.inside = Some(Inside { devices, bandwidth });
        Ok(self)
    }

    /// Builds a platform from a specification such as `fat-tree:ports=24,levels=3`,
    /// `torus:16x16,bandwidth=1e9,ties=even` or `mesh:8x8x8,wrap=z,latency=1us`.
    ///
    /// # Errors
    /// Says which part is wrong and lists the alternatives. `edges:FILE` is refused here: read
    /// the file and use [`EdgeList::parse`].
    pub fn parse(spec: &str) -> Result<Self, SpecError> {
        spec::parse(spec)
    }

    /// Number of nodes that send and receive.
    pub fn nodes(&self) -> usize {
        self.machines() * self.inside.map_or(1, |inside| inside.devices as usize)
    }

    fn machines(&self) -> usize {
        each!(self, t => t.nodes())
    }

    /// Number of link identifiers. Some can be unused, for example at the edge of a mesh.
    pub fn links(&self) -> usize {
        self.network_links()
            + if self.inside.is_some() {
                2 * self.nodes()
            } else {
                0
            }
    }

    fn network_links(&self) -> usize {
        each!(self, t => t.links())
    }

    /// The device of a link inside of a machine, and whether the link leads out of it.
    fn device_of(&self, link: LinkId) -> Option<(u32, bool)> {
        let inside = link.checked_sub(self.network_links() as LinkId)?;
        let nodes = self.nodes() as u32;
        Some((inside % nodes, inside < nodes))
    }

    /// Bandwidth of a link in bytes/s.
    pub fn bandwidth(&self, link: LinkId) -> f64 {
        if let Some(inside) = &self.inside
            && link as usize >= self.network_links()
        {
            return inside.bandwidth;
        }
        each!(self, t => t.bandwidth(link))
    }

    /// Seconds added to every message between different nodes.
    pub fn latency(&self) -> f64 {
        self.latency
    }

    /// Seconds added for each link of a route.
    pub fn hop_latency(&self) -> f64 {
        self.hop_latency
    }

    /// Seconds of latency of a message over `hops` links.
    #[inline]
    pub fn latency_of(&self, src: u32, dst: u32, hops: usize) -> f64 {
        let machine = |node: u32| self.inside.map_or(node, |inside| node / inside.devices);
        let between = match machine(src) == machine(dst) {
            true => 0.0,
            false => self.latency,
        };
        between + hops as f64 * self.hop_latency
    }

    /// Length of the longest route in links.
    pub fn max_hops(&self) -> usize {
        each!(self, t => t.max_hops()) + if self.inside.is_some() { 2 } else { 0 }
    }

    /// Length of the longest detour.
    pub(crate) fn max_detour(&self) -> usize {
        let longer = match &self.topology {
            Topology::Dragonfly(_) => 2,
            _ => 0,
        };
        self.max_hops() + longer
    }

    /// Writes the links from `src` to `dst` in order into `out` and returns their number, 0 if `src
    /// == dst`. `out` has at least [`Platform::max_hops`] entries.
    #[inline]
    pub fn route(&self, src: u32, dst: u32, out: &mut [LinkId]) -> usize {
        self.between(
            src,
            dst,
            out,
            |src, dst, out| each!(self, t => t.route(src, dst, out)),
        )
    }

    /// Whether there are several routes between some nodes.
    pub(crate) fn has_choices(&self) -> bool {
        matches!(self.topology, Topology::FatTree(_) | Topology::Dragonfly(_))
    }

    /// Number of shortest routes that [`Platform::minimal`] knows.
    pub(crate) fn choices(&self, src: u32, dst: u32) -> u64 {
        let devices = self.inside.map_or(1, |inside| inside.devices);
        match &self.topology {
            Topology::FatTree(tree) => tree.choices(src / devices, dst / devices),
            _ => 1,
        }
    }

    /// Like [`Platform::route`], for one of the shortest routes.
    pub(crate) fn minimal(&self, src: u32, dst: u32, choice: u64, out: &mut [LinkId]) -> usize {
        self.between(src, dst, out, |src, dst, out| match &self.topology {
            Topology::FatTree(tree) => tree.route_by(src, dst, choice as u32, 0, out),
            _ => each!(self, t => t.route(src, dst, out)),
        })
    }

    /// Like [`Platform::route`], by a switch of the top level of a fat tree, or by another group of
    /// a dragonfly.
    pub(crate) fn detour(&self, src: u32, dst: u32, random: u64, out: &mut [LinkId]) -> usize {
        self.between(src, dst, out, |src, dst, out| match &self.topology {
            Topology::FatTree(tree) => {
                tree.route_by(src, dst, (random >> 32) as u32, tree.levels(), out)
            }
            Topology::Dragonfly(dragonfly) => dragonfly.detour(src, dst, random, out),
            _ => each!(self, t => t.route(src, dst, out)),
        })
    }

    /// The route between two nodes with the given one of the network between their machines.
    #[inline]
    fn between(
        &self,
        src: u32,
        dst: u32,
        out: &mut [LinkId],
        network: impl Fn(u32, u32, &mut [LinkId]) -> usize,
    ) -> usize {
        let Some(inside) = &self.inside else {
            return network(src, dst, out);
        };
        if src == dst {
            return 0;
        }
        let first = self.network_links() as LinkId;
        let (from, to) = (src / inside.devices, dst / inside.devices);
        out[0] = first + src;
        let mut len = 1;
        if from != to {
            len += network(from, to, &mut out[1..]);
        }
        out[len] = first + self.nodes() as LinkId + dst;
        len + 1
    }

    /// The number of the ring that a link is part of. The links of one dimension and direction of a
    /// wrapped grid share it. `None` if routes cannot close a cycle of buffers.
    pub fn ring(&self, link: LinkId) -> Option<u32> {
        match &self.topology {
            Topology::Grid(grid) if (link as usize) < self.network_links() => grid.ring(link),
            _ => None,
        }
    }

    /// Whether a link joins two groups of a dragonfly.
    pub(crate) fn is_global(&self, link: LinkId) -> bool {
        match &self.topology {
            Topology::Dragonfly(dragonfly) if (link as usize) < self.network_links() => {
                dragonfly.is_global(link)
            }
            _ => false,
        }
    }

    /// Number of vertices: the nodes, which come first, and the switches. If nodes are devices,
    /// the machines are vertices as well.
    pub fn vertices(&self) -> usize {
        each!(self, t => t.vertices()) + self.inside.map_or(0, |_| self.nodes())
    }

    /// The vertices at the beginning and the end of a link. A link that no route uses, at the edge
    /// of a mesh, ends where it begins.
    pub fn ends(&self, link: LinkId) -> [u32; 2] {
        let Some(inside) = &self.inside else {
            return each!(self, t => t.ends(link));
        };
        let nodes = self.nodes() as u32;
        match self.device_of(link) {
            Some((device, true)) => [device, nodes + device / inside.devices],
            Some((device, false)) => [nodes + device / inside.devices, device],
            None => each!(self, t => t.ends(link)).map(|vertex| nodes + vertex),
        }
    }

    /// A readable name for a node or a switch.
    pub fn vertex_name(&self, vertex: u32) -> String {
        let Some(inside) = &self.inside else {
            return each!(self, t => t.vertex_name(vertex));
        };
        match vertex.checked_sub(self.nodes() as u32) {
            None => {
                let (machine, device) = (vertex / inside.devices, vertex % inside.devices);
                format!("node {machine} device {device}")
            }
            Some(vertex) => each!(self, t => t.vertex_name(vertex)),
        }
    }

    /// Where a picture of the network shows a link.
    pub fn place(&self, link: LinkId) -> Place {
        let (Some(inside), Some((device, out))) = (&self.inside, self.device_of(link)) else {
            return each!(self, t => t.place(link));
        };
        let panel = if out { "devices out" } else { "devices in" };
        let (machines, n) = (self.machines() as u32, inside.devices);
        Place::in_tile(
            panel.to_owned(),
            device / n,
            machines,
            [n, 1],
            device % n,
            0,
        )
    }

    /// A readable name for a link: its ends, its level or dimension, and its direction.
    pub fn link_name(&self, link: LinkId) -> String {
        match (self.inside, self.device_of(link)) {
            (Some(_), Some((device, true))) => format!("{} out", self.vertex_name(device)),
            (Some(_), Some((device, false))) => format!("{} in", self.vertex_name(device)),
            _ => each!(self, t => t.link_name(link)),
        }
    }
}
