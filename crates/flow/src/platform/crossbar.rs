//! Hypercrossbars: in every dimension, a crossbar connects the nodes of a line. A route corrects
//! one dimension after the other, so it has at most two links for each dimension. No route is
//! stored.

use super::{LinkId, Place};

/// A hypercrossbar. A route corrects one dimension after the other. Each correction takes the link
/// from the node to the crossbar of that line, and then the crossbar's output port to the node with
/// the right coordinate. Link `2 D node + 2 d + w`: `w = 0` into the crossbar, `w = 1` out.
#[derive(Debug, Clone)]
pub struct HyperCrossbar {
    dims: Vec<u32>,
    bandwidth: Vec<f64>,
    nodes: u32,
}

impl HyperCrossbar {
    /// A hypercrossbar with `dims[d]` nodes on a line of dimension `d`. `bandwidth` holds bytes/s
    /// per dimension, or one value for all.
    ///
    /// # Errors
    /// A sentence that says which parameter is out of range.
    pub fn new(dims: &[u32], bandwidth: &[f64]) -> Result<Self, String> {
        let nodes = super::spec::product(dims)?;
        if nodes * 2 * dims.len() as u64 > super::MAX_SIZE {
            return Err("too many links".to_owned());
        }
        let bandwidth = super::spec::per_dimension(bandwidth, dims.len())?;
        Ok(Self {
            dims: dims.to_vec(),
            bandwidth,
            nodes: nodes as u32,
        })
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes as usize
    }

    pub(super) fn links(&self) -> usize {
        self.nodes as usize * 2 * self.dims.len()
    }

    pub(super) fn max_hops(&self) -> usize {
        2 * self.dims.len()
    }

    pub(super) fn bandwidth(&self, link: LinkId) -> f64 {
        self.bandwidth[link as usize % (2 * self.dims.len()) / 2]
    }

    #[inline]
    pub(super) fn route(&self, src: u32, dst: u32, out: &mut [LinkId]) -> usize {
        let lanes = 2 * self.dims.len() as u32;
        let (mut at, mut stride, mut s, mut t, mut len) = (src, 1u32, src, dst, 0);
        for (dim, &n) in self.dims.iter().enumerate() {
            let (from, to) = (s % n, t % n);
            s /= n;
            t /= n;
            if from != to {
                out[len] = lanes * at + 2 * dim as u32;
                at = at + to * stride - from * stride;
                out[len + 1] = lanes * at + 2 * dim as u32 + 1;
                len += 2;
            }
            stride *= n;
        }
        len
    }

    pub(super) fn vertices(&self) -> usize {
        self.nodes as usize * (1 + self.dims.len())
    }

    /// Vertices: the nodes, then for each dimension the crossbar of each line, numbered by the
    /// first node of the line.
    pub(super) fn ends(&self, link: LinkId) -> [u32; 2] {
        let lanes = 2 * self.dims.len() as u32;
        let (node, lane) = (link / lanes, link % lanes);
        let dim = lane as usize / 2;
        let stride: u32 = self.dims[..dim].iter().product();
        let first = node - node / stride % self.dims[dim] * stride;
        let crossbar = self.nodes * (1 + dim as u32) + first;
        match lane % 2 {
            0 => [node, crossbar],
            _ => [crossbar, node],
        }
    }

    pub(super) fn vertex_name(&self, vertex: u32) -> String {
        match (vertex / self.nodes, vertex % self.nodes) {
            (0, node) => format!("node {node}"),
            (dim, first) => {
                let dim = super::spec::dimension_name(dim as usize - 1);
                format!("crossbar {dim} of node {first}")
            }
        }
    }

    pub(super) fn place(&self, link: LinkId) -> Place {
        let lanes = 2 * self.dims.len() as u32;
        let (node, lane) = (link / lanes, link % lanes);
        let dim = super::spec::dimension_name(lane as usize / 2);
        let panel = match lane % 2 {
            0 => format!("to crossbar {dim}"),
            _ => format!("from crossbar {dim}"),
        };
        Place::in_grid(panel, &self.dims, node)
    }

    pub(super) fn link_name(&self, link: LinkId) -> String {
        let lanes = 2 * self.dims.len() as u32;
        let (node, lane) = (link / lanes, link % lanes);
        let dim = super::spec::dimension_name(lane as usize / 2);
        match lane % 2 {
            0 => format!("node {node} to crossbar {dim}"),
            _ => format!("crossbar {dim} to node {node}"),
        }
    }
}
