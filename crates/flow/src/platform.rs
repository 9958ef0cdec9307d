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
        }
    }

    /// The same platform with `seconds` of latency on every message between different nodes.
    pub fn with_latency(mut self, seconds: f64) -> Self {
        self.latency = seconds;
        self
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
        each!(self, t => t.nodes())
    }

    /// Number of link identifiers. Some can be unused, for example at the edge of a mesh.
    pub fn links(&self) -> usize {
        each!(self, t => t.links())
    }

    /// Bandwidth of a link in bytes/s.
    pub fn bandwidth(&self, link: LinkId) -> f64 {
        each!(self, t => t.bandwidth(link))
    }

    /// Seconds added to every message between different nodes.
    pub fn latency(&self) -> f64 {
        self.latency
    }

    /// Length of the longest route in links.
    pub fn max_hops(&self) -> usize {
        each!(self, t => t.max_hops())
    }

    /// Writes the links from `src` to `dst` in order into `out` and returns their number, 0 if `src
    /// == dst`. `out` has at least [`Platform::max_hops`] entries.
    #[inline]
    pub fn route(&self, src: u32, dst: u32, out: &mut [LinkId]) -> usize {
        each!(self, t => t.route(src, dst, out))
    }

    /// The number of the ring that a link is part of. The links of one dimension and direction of a
    /// wrapped grid share it. `None` if routes cannot close a cycle of buffers.
    pub fn ring(&self, link: LinkId) -> Option<u32> {
        match &self.topology {
            Topology::Grid(grid) => grid.ring(link),
            _ => None,
        }
    }

    /// Number of vertices: the nodes, which come first, and the switches.
    pub fn vertices(&self) -> usize {
        each!(self, t => t.vertices())
    }

    /// The vertices at the beginning and the end of a link. A link that no route uses, at the edge
    /// of a mesh, ends where it begins.
    pub fn ends(&self, link: LinkId) -> [u32; 2] {
        each!(self, t => t.ends(link))
    }

    /// A readable name for a node or a switch.
    pub fn vertex_name(&self, vertex: u32) -> String {
        each!(self, t => t.vertex_name(vertex))
    }

    /// Where a picture of the network shows a link.
    pub fn place(&self, link: LinkId) -> Place {
        each!(self, t => t.place(link))
    }

    /// A readable name for a link: its ends, its level or dimension, and its direction.
    pub fn link_name(&self, link: LinkId) -> String {
        each!(self, t => t.link_name(link))
    }
}
