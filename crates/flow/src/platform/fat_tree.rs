//! Fat trees as extended generalised fat trees with destination-modulo routing. The module computes
//! each route from the numbers of its ends, and stores no routes.

use super::{LinkId, Place};

/// A fat tree of `levels` levels of switches with `2p` ports and `2 p^levels` nodes.
///
/// Level 1 holds the nodes; the top switches use all `2p` ports downwards. A message climbs to the
/// nearest common ancestor and takes up port `(dst / p^(i-1)) mod p` at level `i`. The resources
/// are the node links and the switch-to-switch links, one per direction (paper section 4.1). With
/// `taper = t` a leaf switch has only `p / t` up ports.
#[derive(Debug, Clone)]
pub struct FatTree {
    /// Nodes below one subtree of height `i`.
    below: Vec<u32>,
    /// Replicas of a switch of height `i`: `1, 1, w2, w2 w3, ...`.
    replicas: Vec<u32>,
    /// Up ports of an entity at height `i`: 1 for a node.
    up_ports: Vec<u32>,
    /// Divisor of the destination for the choice of an up port at height `i`.
    divisor: Vec<u32>,
    /// First link identifier of height `i` (up, then down).
    base: Vec<[u32; 2]>,
    bandwidth: Vec<f64>,
    links: u32,
}

impl FatTree {
    /// A fat tree of switches with `ports = 2p` ports. `bandwidth` holds bytes/s per level of
    /// links, the node links first, or one value for all levels.
    ///
    /// # Errors
    /// A sentence that says which parameter is out of range.
    pub fn new(ports: u32, levels: u32, taper: u32, bandwidth: &[f64]) -> Result<Self, String> {
        if ports < 2 || !ports.is_multiple_of(2) {
            return Err(format!(
                "ports={ports}: a switch has an even number of ports, at least 2"
            ));
        }
        if !(1..=16).contains(&levels) {
            return Err(format!(
                "levels={levels}: between 1 and 16 levels of switches"
            ));
        }
        let p = ports / 2;
        if taper == 0 || !p.is_multiple_of(taper) {
            return Err(format!("taper={taper}: must divide half the ports, {p}"));
        }
        let bandwidth = match bandwidth {
            [one] => vec![*one; levels as usize],
            many if many.len() == levels as usize => many.to_vec(),
            many => {
                return Err(format!(
                    "{} bandwidths for {levels} levels of links",
                    many.len()
                ));
            }
        };
        let (mut below, mut replicas, mut divisor) = (vec![1u64], vec![1u64], vec![1u64]);
        let up_ports: Vec<u64> = (0..u64::from(levels))
            .map(|i| {
                if i == 0 {
                    1
                } else {
                    u64::from(if i == 1 { p / taper } else { p })
                }
            })
            .collect();
        for i in 0..levels as usize {
            let arity = if i + 1 == levels as usize { ports } else { p };
            below.push(below[i].saturating_mul(u64::from(arity)));
            replicas.push(replicas[i].saturating_mul(up_ports[i]));
            divisor.push(divisor[i].saturating_mul(up_ports[i]));
            if below[i + 1] > super::MAX_SIZE || replicas[i + 1] > super::MAX_SIZE {
                return Err(format!("ports={ports},levels={levels}: too many nodes"));
            }
        }
        let nodes = below[levels as usize];
        let (mut base, mut links) = (Vec::new(), 0u64);
        for i in 0..levels as usize {
            let count = nodes / below[i] * replicas[i] * up_ports[i];
            base.push([links as u32, (links + count) as u32]);
            links += 2 * count;
        }
        if links > super::MAX_SIZE {
            return Err(format!("ports={ports},levels={levels}: too many links"));
        }
        let narrow = |v: Vec<u64>| v.into_iter().map(|x| x as u32).collect::<Vec<u32>>();
        Ok(Self {
            below: narrow(below),
            replicas: narrow(replicas),
            up_ports: narrow(up_ports),
            divisor: narrow(divisor),
            base,
            bandwidth,
            links: links as u32,
        })
    }

    /// Number of levels of switches.
    pub fn levels(&self) -> usize {
        self.base.len()
    }

    pub(super) fn nodes(&self) -> usize {
        self.below[self.levels()] as usize
    }

    pub(super) fn links(&self) -> usize {
        self.links as usize
    }

    pub(super) fn max_hops(&self) -> usize {
        2 * self.levels()
    }

    fn level_of(&self, link: LinkId) -> usize {
        self.base.partition_point(|b| b[0] <= link) - 1
    }

    pub(super) fn bandwidth(&self, link: LinkId) -> f64 {
        self.bandwidth[self.level_of(link)]
    }

    #[inline]
    pub(super) fn route(&self, src: u32, dst: u32, out: &mut [LinkId]) -> usize {
        self.route_by(src, dst, dst, 0, out)
    }

    /// Number of shortest routes.
    pub(super) fn choices(&self, src: u32, dst: u32) -> u64 {
        let common = |height: &usize| src / self.below[*height] == dst / self.below[*height];
        let height = (0..=self.levels()).find(common).unwrap_or(0);
        self.up_ports[..height]
            .iter()
            .map(|&w| u64::from(w))
            .product()
    }

    /// The route that takes up port `(choice / p^(i-1)) mod p` at level `i`, and that climbs at
    /// least to the height `top`.
    #[inline]
    pub(super) fn route_by(
        &self,
        src: u32,
        dst: u32,
        choice: u32,
        top: usize,
        out: &mut [LinkId],
    ) -> usize {
        if src == dst {
            return 0;
        }
        let levels = self.levels();
        let (mut height, mut replica) = (0, 0u32);
        let mut down = [0u32; 16];
        let (mut s, mut d) = (src, dst);
        while s != d || height < top {
            let w = self.up_ports[height];
            let port = if w == 1 {
                0
            } else {
                (choice / self.divisor[height]) % w
            };
            let [up_base, down_base] = self.base[height];
            let r = self.replicas[height];
            out[height] = up_base + (s * r + replica) * w + port;
            down[height] = down_base + (d * r + replica) * w + port;
            replica += r * port;
            height += 1;
            if height == levels {
                break;
            }
            s = src / self.below[height];
            d = dst / self.below[height];
        }
        for i in 0..height {
            out[height + i] = down[height - 1 - i];
        }
        2 * height
    }

    /// Height of the lower end of a link, its number at this height, its port there, and whether
    /// the link leads up.
    fn lower_end(&self, link: LinkId) -> (usize, u32, u32, bool) {
        let level = self.level_of(link);
        let [up, down] = self.base[level];
        let index = link - if link < down { up } else { down };
        let ports = self.up_ports[level];
        (level, index / ports, index % ports, link < down)
    }

    /// Number of nodes or switches at a height.
    fn count(&self, height: usize) -> u32 {
        self.nodes() as u32 / self.below[height] * self.replicas[height]
    }

    pub(super) fn vertices(&self) -> usize {
        (0..=self.levels()).map(|h| self.count(h) as usize).sum()
    }

    /// Vertices: the nodes, then the switches of level 1, of level 2 and so on.
    pub(super) fn ends(&self, link: LinkId) -> [u32; 2] {
        let (height, entity, port, up) = self.lower_end(link);
        let below: u32 = (0..height).map(|h| self.count(h)).sum();
        let (tree, replica) = (
            entity / self.replicas[height],
            entity % self.replicas[height],
        );
        let above = tree / (self.below[height + 1] / self.below[height]);
        let above = above * self.replicas[height + 1] + replica + self.replicas[height] * port;
        let ends = [below + entity, below + self.count(height) + above];
        if up { ends } else { [ends[1], ends[0]] }
    }

    pub(super) fn vertex_name(&self, vertex: u32) -> String {
        let (mut at, mut height) = (vertex, 0);
        while at >= self.count(height) {
            at -= self.count(height);
            height += 1;
        }
        let (tree, replica) = (at / self.replicas[height], at % self.replicas[height]);
        match height {
            0 => format!("node {at}"),
            _ => format!("level {height} switch {tree}.{replica}"),
        }
    }

    /// A column for each switch at the lower end, a row for each of its ports. For the links of
    /// nodes, a column for each switch, a row for each of its nodes.
    pub(super) fn place(&self, link: LinkId) -> Place {
        let (level, entity, port, up) = self.lower_end(link);
        let way = if up { "up" } else { "down" };
        let (panel, row, column) = match level {
            0 => (
                format!("nodes {way}"),
                entity % self.below[1],
                entity / self.below[1],
            ),
            _ => (format!("level {level} {way}"), port, entity),
        };
        Place { panel, row, column }
    }

    pub(super) fn link_name(&self, link: LinkId) -> String {
        let (level, entity, port, up) = self.lower_end(link);
        let way = if up { "up" } else { "down" };
        let (tree, replica) = (entity / self.replicas[level], entity % self.replicas[level]);
        match level {
            0 => format!("node {tree} {way}"),
            _ => format!("level {level} switch {tree}.{replica} port {port} {way}"),
        }
    }
}
