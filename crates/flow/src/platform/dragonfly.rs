//! Dragonflies with minimal routing: groups of fully connected routers, and one link between each
//! two groups. A route has at most one local, one global and one local hop between its two node
//! links. A detour by a third group has up to two hops more.

use super::{LinkId, Place};

/// A dragonfly of `groups` groups. A group has `routers` fully connected routers, and a router has
/// `terminals` nodes and `global` global ports.
///
/// Global port `k` of group `i` (port `k mod h` of router `k / h`) leads to group `k` if `k < i`,
/// else to group `k + 1`: the consecutive arrangement. Ports that lead nowhere, because there are
/// fewer groups than ports, have no link. Routes are minimal: at most one local hop,
/// one global hop and one local hop between the injection link and the ejection link.
#[derive(Debug, Clone)]
pub struct Dragonfly {
    groups: u32,
    routers: u32,
    terminals: u32,
    global: u32,
    bandwidth: [f64; 3],
}

impl Dragonfly {
    /// A dragonfly. `bandwidth` holds bytes/s of node, local and global links, or one value for
    /// all.
    ///
    /// # Errors
    /// A sentence that says which parameter is out of range.
    pub fn new(
        groups: u32,
        routers: u32,
        terminals: u32,
        global: u32,
        bandwidth: &[f64],
    ) -> Result<Self, String> {
        if groups == 0 || routers == 0 || terminals == 0 {
            return Err("groups, routers and terminals must be at least 1".to_owned());
        }
        let ports = u64::from(routers) * u64::from(global);
        if u64::from(groups - 1) > ports {
            return Err(format!(
                "groups={groups}: {routers} routers with {global} global ports reach {ports} \
                 other groups only"
            ));
        }
        let router_links = u64::from(routers - 1) + u64::from(global);
        let per_group = u64::from(routers).saturating_mul(router_links);
        let nodes = u64::from(routers).saturating_mul(u64::from(terminals));
        if per_group
            .saturating_add(nodes.saturating_mul(2))
            .saturating_mul(u64::from(groups))
            > super::MAX_SIZE
        {
            return Err("too many links".to_owned());
        }
        let bandwidth = match *bandwidth {
            [one] => [one; 3],
            [node, local, far] => [node, local, far],
            _ => return Err("bandwidth takes one value, or node:local:global".to_owned()),
        };
        Ok(Self {
            groups,
            routers,
            terminals,
            global,
            bandwidth,
        })
    }

    pub(super) fn nodes(&self) -> usize {
        (self.groups * self.routers * self.terminals) as usize
    }

    fn local_base(&self) -> u32 {
        2 * self.nodes() as u32
    }

    fn global_base(&self) -> u32 {
        self.local_base() + self.groups * self.routers * (self.routers - 1)
    }

    pub(super) fn links(&self) -> usize {
        (self.global_base() + self.groups * (self.groups - 1)) as usize
    }

    pub(super) fn max_hops(&self) -> usize {
        5
    }

    pub(super) fn bandwidth(&self, link: LinkId) -> f64 {
        if link < self.local_base() {
            self.bandwidth[0]
        } else if link < self.global_base() {
            self.bandwidth[1]
        } else {
            self.bandwidth[2]
        }
    }

    #[inline]
    pub(super) fn route(&self, src: u32, dst: u32, out: &mut [LinkId]) -> usize {
        self.route_through(src, dst, None, out)
    }

    /// A route through another group, which `random` chooses, if there is one.
    pub(super) fn detour(&self, src: u32, dst: u32, random: u64, out: &mut [LinkId]) -> usize {
        let group = |node: u32| node / self.terminals / self.routers;
        let (mut low, mut high) = (group(src), group(dst));
        if low > high {
            std::mem::swap(&mut low, &mut high);
        }
        let ends = if low == high { 1 } else { 2 };
        if self.groups <= ends {
            return self.route(src, dst, out);
        }
        let mut via = (random % u64::from(self.groups - ends)) as u32;
        via += u32::from(via >= low);
        via += u32::from(low != high && via >= high);
        self.route_through(src, dst, Some(via), out)
    }

    fn route_through(&self, src: u32, dst: u32, via: Option<u32>, out: &mut [LinkId]) -> usize {
        if src == dst {
            return 0;
        }
        let (a, h) = (self.routers, self.global);
        let (from, to) = (src / self.terminals, dst / self.terminals);
        // A router has links to the others of its group, not to itself.
        let local = |group: u32, x: u32, y: u32| {
            self.local_base() + (group * a + x) * (a - 1) + y - u32::from(y > x)
        };
        out[0] = src;
        let mut len = 1;
        let (mut group, mut at) = (from / a, from % a);
        for next in via.into_iter().chain([to / a]) {
            if group == next {
                continue;
            }
            let port = if next < group { next } else { next - 1 };
            if at != port / h {
                out[len] = local(group, at, port / h);
                len += 1;
            }
            out[len] = self.global_base() + group * (self.groups - 1) + port;
            len += 1;
            let back = if group < next { group } else { group - 1 };
            (group, at) = (next, back / h);
        }
        if at != to % a {
            out[len] = local(group, at, to % a);
            len += 1;
        }
        out[len] = self.nodes() as u32 + dst;
        len + 1
    }

    pub(super) fn is_global(&self, link: LinkId) -> bool {
        link >= self.global_base()
    }

    /// Router, counted over all groups, and the number in its group of the router at the other end.
    fn local_link(&self, link: LinkId) -> (u32, u32) {
        let (x, a) = (link - self.local_base(), self.routers);
        let (from, other) = (x / (a - 1), x % (a - 1));
        (from, other + u32::from(other >= from % a))
    }

    /// Group and port of a global link.
    fn global_link(&self, link: LinkId) -> (u32, u32) {
        let x = link - self.global_base();
        (x / (self.groups - 1), x % (self.groups - 1))
    }

    /// The group that a port of a group leads to.
    fn group_at(&self, group: u32, port: u32) -> u32 {
        port + u32::from(port >= group)
    }

    pub(super) fn vertices(&self) -> usize {
        self.nodes() + (self.groups * self.routers) as usize
    }

    /// Vertices: the nodes, then the routers of all groups.
    pub(super) fn ends(&self, link: LinkId) -> [u32; 2] {
        let (nodes, a) = (self.nodes() as u32, self.routers);
        if link < nodes {
            [link, nodes + link / self.terminals]
        } else if link < 2 * nodes {
            [nodes + (link - nodes) / self.terminals, link - nodes]
        } else if link < self.global_base() {
            let (from, to) = self.local_link(link);
            [nodes + from, nodes + from / a * a + to]
        } else {
            let (from, port) = self.global_link(link);
            let to = self.group_at(from, port);
            let back = from - u32::from(from > to);
            let router = |group: u32, port: u32| nodes + group * a + port / self.global;
            [router(from, port), router(to, back)]
        }
    }

    pub(super) fn vertex_name(&self, vertex: u32) -> String {
        match vertex.checked_sub(self.nodes() as u32) {
            None => format!("node {vertex}"),
            Some(x) => format!("group {} router {}", x / self.routers, x % self.routers),
        }
    }

    /// Links of nodes: a column for each group. Local links: a square for each group, with the
    /// routers they leave as rows. Global links: from the group of the row to that of the column.
    pub(super) fn place(&self, link: LinkId) -> Place {
        let (nodes, a) = (self.nodes() as u32, self.routers);
        if link < 2 * nodes {
            let panel = ["injection", "ejection"][(link / nodes) as usize].to_owned();
            let each = a * self.terminals;
            let (row, column) = (link % nodes % each, link % nodes / each);
            return Place { panel, row, column };
        }
        if link < self.global_base() {
            let (from, to) = self.local_link(link);
            return Place::in_tile(
                "local".to_owned(),
                from / a,
                self.groups,
                [a, a],
                from % a,
                to,
            );
        }
        let (row, port) = self.global_link(link);
        let column = self.group_at(row, port);
        let panel = "global".to_owned();
        Place { panel, row, column }
    }

    pub(super) fn link_name(&self, link: LinkId) -> String {
        let (nodes, a) = (self.nodes() as u32, self.routers);
        if link < nodes {
            format!("node {link} injection")
        } else if link < 2 * nodes {
            format!("node {} ejection", link - nodes)
        } else if link < self.global_base() {
            let (from, to) = self.local_link(link);
            format!("group {} router {} to {to}", from / a, from % a)
        } else {
            let (from, port) = self.global_link(link);
            let to = self.group_at(from, port);
            format!("group {from} router {} to group {to}", port / self.global)
        }
    }
}
