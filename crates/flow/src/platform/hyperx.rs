//! HyperX: switches that are fully connected in every dimension. Routes are minimal and take the
//! dimensions in order, so there is one direct link for each dimension in which the ends differ.

use super::{LinkId, Place};

/// A HyperX with `dims` switches per dimension and `terminals` nodes on each switch. Node `i` is
/// attached to switch `i / terminals`. A route takes the injection link, one direct link in every
/// dimension where the coordinates differ (x first), and the ejection link.
#[derive(Debug, Clone)]
pub struct HyperX {
    dims: Vec<u32>,
    terminals: u32,
    switches: u32,
    /// First link of each dimension, after the node links.
    base: Vec<u32>,
    links: u32,
    bandwidth: Vec<f64>,
    node_bandwidth: f64,
}

impl HyperX {
    /// A HyperX. `bandwidth` holds bytes/s per dimension, or one value for all. `nic` is bytes/s of
    /// the node links, by default the bandwidth of the first dimension.
    ///
    /// # Errors
    /// A sentence that says which parameter is out of range.
    pub fn new(
        dims: &[u32],
        terminals: u32,
        bandwidth: &[f64],
        nic: Option<f64>,
    ) -> Result<Self, String> {
        let switches = super::spec::product(dims)?;
        if terminals == 0 {
            return Err("terminals=0: a switch needs at least one node".to_owned());
        }
        let mut links = 2 * switches * u64::from(terminals);
        let mut base = Vec::new();
        for &n in dims {
            base.push(links as u32);
            links += switches * u64::from(n - 1);
            if links > super::MAX_SIZE {
                return Err("too many links".to_owned());
            }
        }
        let bandwidth = super::spec::per_dimension(bandwidth, dims.len())?;
        let node_bandwidth = nic.unwrap_or(bandwidth[0]);
        Ok(Self {
            dims: dims.to_vec(),
            terminals,
            switches: switches as u32,
            base,
            links: links as u32,
            bandwidth,
            node_bandwidth,
        })
    }

    pub(super) fn nodes(&self) -> usize {
        (self.switches * self.terminals) as usize
    }

    pub(super) fn links(&self) -> usize {
        self.links as usize
    }

    pub(super) fn max_hops(&self) -> usize {
        self.dims.len() + 2
    }

    fn dimension_of(&self, link: LinkId) -> Option<usize> {
        self.base.partition_point(|&b| b <= link).checked_sub(1)
    }

    pub(super) fn bandwidth(&self, link: LinkId) -> f64 {
        self.dimension_of(link)
            .map_or(self.node_bandwidth, |d| self.bandwidth[d])
    }

    #[inline]
    pub(super) fn route(&self, src: u32, dst: u32, out: &mut [LinkId]) -> usize {
        if src == dst {
            return 0;
        }
        out[0] = src;
        let mut len = 1;
        let (mut at, to) = (src / self.terminals, dst / self.terminals);
        let (mut s, mut t, mut stride) = (at, to, 1u32);
        for (dim, &n) in self.dims.iter().enumerate() {
            let (from, goal) = (s % n, t % n);
            s /= n;
            t /= n;
            if from != goal {
                out[len] = self.base[dim] + at * (n - 1) + goal - u32::from(goal > from);
                len += 1;
                at = at + goal * stride - from * stride;
            }
            stride *= n;
        }
        out[len] = self.nodes() as u32 + dst;
        len + 1
    }

    /// Switch, its coordinate in the dimension of the link, and the coordinate at the other end.
    fn switch_link(&self, link: LinkId, dim: usize) -> (u32, u32, u32) {
        let (x, n) = (link - self.base[dim], self.dims[dim]);
        let (switch, other) = (x / (n - 1), x % (n - 1));
        let stride: u32 = self.dims[..dim].iter().product();
        let at = switch / stride % n;
        (switch, at, other + u32::from(other >= at))
    }

    pub(super) fn vertices(&self) -> usize {
        self.nodes() + self.switches as usize
    }

    /// Vertices: the nodes, then the switches.
    pub(super) fn ends(&self, link: LinkId) -> [u32; 2] {
        let nodes = self.nodes() as u32;
        match self.dimension_of(link) {
            None if link < nodes => [link, nodes + link / self.terminals],
            None => [nodes + (link - nodes) / self.terminals, link - nodes],
            Some(d) => {
                let (switch, at, goal) = self.switch_link(link, d);
                let stride: u32 = self.dims[..d].iter().product();
                [nodes + switch, nodes + switch + goal * stride - at * stride]
            }
        }
    }

    pub(super) fn vertex_name(&self, vertex: u32) -> String {
        match vertex.checked_sub(self.nodes() as u32) {
            None => format!("node {vertex}"),
            Some(switch) => format!("switch {switch}"),
        }
    }

    /// A column for each switch, a row for each of its nodes or for the coordinate at the other
    /// end.
    pub(super) fn place(&self, link: LinkId) -> Place {
        let nodes = self.nodes() as u32;
        let (panel, row, column) = match self.dimension_of(link) {
            None => {
                let panel = ["injection", "ejection"][(link / nodes) as usize];
                let node = link % nodes;
                (
                    panel.to_owned(),
                    node % self.terminals,
                    node / self.terminals,
                )
            }
            Some(d) => {
                let (switch, _, goal) = self.switch_link(link, d);
                let panel = format!("to another {}", super::spec::dimension_name(d));
                (panel, goal, switch)
            }
        };
        Place { panel, row, column }
    }

    pub(super) fn link_name(&self, link: LinkId) -> String {
        let nodes = self.nodes() as u32;
        match self.dimension_of(link) {
            None if link < nodes => format!("node {link} injection"),
            None => format!("node {} ejection", link - nodes),
            Some(d) => {
                let (switch, _, goal) = self.switch_link(link, d);
                let dim = super::spec::dimension_name(d);
                format!("switch {switch} to {dim}={goal}")
            }
        }
    }
}
