//! Tori, meshes and grids with some wrapped dimensions. Routes correct one dimension after the
//! other.

use super::{LinkId, Place};

/// The direction of a message when both directions around an even ring are equally long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ties {
    /// Every source uses the positive direction. This is translation invariant, so a regular
    /// pattern stays regular. The default.
    Even,
    /// Sources with an even coordinate use the positive direction, the others the negative one.
    /// This balances the two directions, but it is not translation invariant.
    Parity,
}

/// A torus (all dimensions wrapped), a mesh (none) or a mixture.
///
/// Node number: `x + nx (y + ny z ...)`. A route corrects x first, then y and so on, and takes the
/// shorter direction in a wrapped dimension. Lane `2 d + w` has the links that leave the nodes in
/// dimension `d`, in the positive (`w = 0`) or negative direction. The links of a lane follow each
/// other in the order of their rings, and those of a ring in the order of their coordinate, so that
/// the links of a route lie side by side. With `nic`, injection and ejection links follow those.
#[derive(Debug, Clone)]
pub struct Grid {
    dims: Vec<u32>,
    wrap: Vec<bool>,
    bandwidth: Vec<f64>,
    ties: Ties,
    nic: Option<f64>,
    nodes: u32,
}

impl Grid {
    /// A grid with `dims[d]` nodes in dimension `d`. `wrap[d]` closes that dimension to a ring.
    /// `bandwidth` holds bytes/s per dimension, or one value for all. `nic` is the bandwidth of
    /// injection and ejection links, if they limit a node.
    ///
    /// # Errors
    /// A sentence that says which parameter is out of range.
    pub fn new(
        dims: &[u32],
        wrap: &[bool],
        bandwidth: &[f64],
        ties: Ties,
        nic: Option<f64>,
    ) -> Result<Self, String> {
        let nodes = super::spec::product(dims)?;
        let d = dims.len();
        if wrap.len() != d {
            return Err(format!("{} wrap flags for {d} dimensions", wrap.len()));
        }
        if nodes * (2 * d as u64 + 2) > super::MAX_SIZE {
            return Err("too many links".to_owned());
        }
        let bandwidth = super::spec::per_dimension(bandwidth, d)?;
        Ok(Self {
            dims: dims.to_vec(),
            wrap: wrap.to_vec(),
            bandwidth,
            ties,
            nic,
            nodes: nodes as u32,
        })
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes as usize
    }

    pub(super) fn links(&self) -> usize {
        let nic = if self.nic.is_some() { 2 } else { 0 };
        self.nodes as usize * (2 * self.dims.len() + nic)
    }

    pub(super) fn max_hops(&self) -> usize {
        let hops = |(n, wrap): (&u32, &bool)| if *wrap { n / 2 } else { n - 1 } as usize;
        let nic = if self.nic.is_some() { 2 } else { 0 };
        self.dims.iter().zip(&self.wrap).map(hops).sum::<usize>() + nic
    }

    pub(super) fn bandwidth(&self, link: LinkId) -> f64 {
        let d = self.dims.len() as u32;
        match self.nic {
            Some(nic) if link >= 2 * d * self.nodes => nic,
            _ => self.bandwidth[(link / self.nodes / 2) as usize],
        }
    }

    #[inline]
    pub(super) fn route(&self, src: u32, dst: u32, out: &mut [LinkId]) -> usize {
        if src == dst {
            return 0;
        }
        let d = self.dims.len() as u32;
        let nic_base = 2 * d * self.nodes;
        let mut len = 0;
        if self.nic.is_some() {
            out[0] = nic_base + src;
            len = 1;
        }
        let (mut at, mut stride, mut s, mut t) = (src, 1u32, src, dst);
        for (dim, &n) in self.dims.iter().enumerate() {
            let (from, to) = (s % n, t % n);
            s /= n;
            t /= n;
            if from != to {
                let (steps, way) = self.steps(dim, n, from, to);
                let lane = 2 * dim as u32 + way;
                let first = lane * self.nodes + n * ring_of(at, stride, n);
                let mut c = from;
                for link in &mut out[len..len + steps as usize] {
                    *link = first + c;
                    c = match way {
                        0 if c + 1 == n => 0,
                        0 => c + 1,
                        _ if c == 0 => n - 1,
                        _ => c - 1,
                    };
                }
                len += steps as usize;
                at = at - from * stride + to * stride;
            }
            stride *= n;
        }
        if self.nic.is_some() {
            out[len] = nic_base + self.nodes + dst;
            len += 1;
        }
        len
    }

    /// Steps and direction (0 positive, 1 negative) from one coordinate to another.
    #[inline]
    fn steps(&self, dim: usize, n: u32, from: u32, to: u32) -> (u32, u32) {
        if !self.wrap[dim] {
            return if to > from {
                (to - from, 0)
            } else {
                (from - to, 1)
            };
        }
        let forward = if to > from { to - from } else { to + n - from };
        let backward = n - forward;
        let positive = match forward.cmp(&backward) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Equal => self.ties == Ties::Even || from.is_multiple_of(2),
        };
        if positive {
            (forward, 0)
        } else {
            (backward, 1)
        }
    }

    pub(super) fn ring(&self, link: LinkId) -> Option<u32> {
        let d = self.dims.len() as u32;
        let lane = link / self.nodes;
        let wrapped = link < 2 * d * self.nodes && self.wrap[lane as usize / 2];
        wrapped.then_some(lane)
    }

    fn stride(&self, dim: usize) -> u32 {
        self.dims[..dim].iter().product()
    }

    /// The node that a link of the grid leaves, and its lane.
    fn origin(&self, link: LinkId) -> (u32, u32) {
        let (lane, place) = (link / self.nodes, link % self.nodes);
        let dim = lane as usize / 2;
        let (stride, n) = (self.stride(dim), self.dims[dim]);
        let (ring, c) = (place / n, place % n);
        let node = ring / stride * stride * n + c * stride + ring % stride;
        (node, lane)
    }

    pub(super) fn vertices(&self) -> usize {
        self.nodes as usize * if self.nic.is_some() { 2 } else { 1 }
    }

    /// Vertices: the nodes, and after them, if nodes hang on links of their own, their routers.
    pub(super) fn ends(&self, link: LinkId) -> [u32; 2] {
        let d = self.dims.len() as u32;
        let grid = 2 * d * self.nodes;
        let router = if self.nic.is_some() { self.nodes } else { 0 };
        if link >= grid {
            let node = (link - grid) % self.nodes;
            return match (link - grid) / self.nodes {
                0 => [node, router + node],
                _ => [router + node, node],
            };
        }
        let (node, lane) = self.origin(link);
        let dim = lane as usize / 2;
        let (stride, n) = (self.stride(dim), self.dims[dim]);
        let at = node / stride % n;
        let (last, next) = match lane.is_multiple_of(2) {
            true => (n - 1, (at + 1) % n),
            false => (0, (at + n - 1) % n),
        };
        // A link that would leave a mesh ends where it begins.
        let to = if at == last && !self.wrap[dim] {
            node
        } else {
            node - at * stride + next * stride
        };
        [router + node, router + to]
    }

    pub(super) fn vertex_name(&self, vertex: u32) -> String {
        match vertex.checked_sub(self.nodes) {
            None => format!("node {vertex}"),
            Some(router) => format!("router {router}"),
        }
    }

    pub(super) fn place(&self, link: LinkId) -> Place {
        let d = self.dims.len() as u32;
        let grid = 2 * d * self.nodes;
        if link >= grid {
            let panel = ["injection", "ejection"][((link - grid) / self.nodes) as usize];
            return Place::in_grid(panel.to_owned(), &self.dims, (link - grid) % self.nodes);
        }
        let (node, lane) = self.origin(link);
        let sign = if lane.is_multiple_of(2) { '+' } else { '-' };
        let dim = super::spec::dimension_name(lane as usize / 2);
        Place::in_grid(format!("{sign}{dim}"), &self.dims, node)
    }

    pub(super) fn link_name(&self, link: LinkId) -> String {
        let d = self.dims.len() as u32;
        let grid = 2 * d * self.nodes;
        if link >= grid {
            let (node, way) = ((link - grid) % self.nodes, (link - grid) / self.nodes);
            return format!(
                "node {node} {}",
                if way == 0 { "injection" } else { "ejection" }
            );
        }
        let (node, lane) = self.origin(link);
        let sign = if lane % 2 == 0 { '+' } else { '-' };
        format!(
            "node {node} {sign}{}",
            super::spec::dimension_name(lane as usize / 2)
        )
    }
}

/// Number of the ring of a node in a dimension of `n` nodes, among the rings of that dimension.
#[inline]
fn ring_of(node: u32, stride: u32, n: u32) -> u32 {
    node / (stride * n) * stride + node % stride
}
