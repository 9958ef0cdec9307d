//! Any directed graph given as a list of edges, with routes along shortest paths. Among routes of
//! equal length, the order of the edges in the file decides, so a file always gives the same
//! routes. A graph in which a node cannot be reached is refused.

use super::{LinkId, Place, Platform, Topology};
use crate::error::{TextError, lines};
use std::collections::{HashMap, VecDeque};

/// Largest next-hop table, in entries (nodes x vertices).
const MAX_TABLE: usize = 1 << 27;

/// A network given by the user, with the next link of every vertex towards every node.
#[derive(Debug, Clone)]
pub struct EdgeList {
    nodes: usize,
    vertices: Vec<String>,
    /// (from, to, bytes/s), in the order of the file.
    edges: Vec<(u32, u32, f64)>,
    /// `next[dst * vertices + v]`: the link to take at vertex `v`.
    next: Vec<LinkId>,
    max_hops: usize,
}

impl EdgeList {
    /// Reads lines `from,to,bandwidth`, one directed link each; `both,from,to,bandwidth` makes one
    /// link per direction. Names that are whole numbers are nodes and must be `0 .. n-1`; any other
    /// name is a switch. `#` starts a comment. Bandwidth is in bytes/s, `1e9` or `1GB/s`.
    ///
    /// Routes have the fewest links. Among equal routes the edge that comes first in the file wins.
    ///
    /// # Errors
    /// The line and the reason: a malformed row, a missing node number, or a node that cannot be
    /// reached.
    pub fn parse(text: &str) -> Result<Platform, TextError> {
        let mut reader = Reader::default();
        for (index, line) in lines(text).enumerate() {
            reader.line(index + 1, line)?;
        }
        Ok(Platform::new(Topology::EdgeList(reader.finish()?)))
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }

    pub(super) fn links(&self) -> usize {
        self.edges.len()
    }

    pub(super) fn max_hops(&self) -> usize {
        self.max_hops
    }

    pub(super) fn bandwidth(&self, link: LinkId) -> f64 {
        self.edges[link as usize].2
    }

    #[inline]
    pub(super) fn route(&self, src: u32, dst: u32, out: &mut [LinkId]) -> usize {
        let row = dst as usize * self.vertices.len();
        let (mut at, mut len) = (src, 0);
        while at != dst {
            let link = self.next[row + at as usize];
            out[len] = link;
            len += 1;
            at = self.edges[link as usize].1;
        }
        len
    }

    pub(super) fn vertices(&self) -> usize {
        self.vertices.len()
    }

    pub(super) fn ends(&self, link: LinkId) -> [u32; 2] {
        let (from, to, _) = self.edges[link as usize];
        [from, to]
    }

    pub(super) fn vertex_name(&self, vertex: u32) -> String {
        let name = &self.vertices[vertex as usize];
        if (vertex as usize) < self.nodes {
            format!("node {name}")
        } else {
            name.clone()
        }
    }

    /// From the vertex of the row to that of the column, or, in a large graph, the links in turn.
    pub(super) fn place(&self, link: LinkId) -> Place {
        let panel = "links".to_owned();
        if self.vertices.len() > 400 {
            return Place::in_grid(panel, &[self.edges.len() as u32], link);
        }
        let (row, column, _) = self.edges[link as usize];
        Place { panel, row, column }
    }

    pub(super) fn link_name(&self, link: LinkId) -> String {
        let (from, to, _) = self.edges[link as usize];
        format!(
            "{} to {}",
            self.vertices[from as usize], self.vertices[to as usize]
        )
    }
}

/// The name of a vertex as links say it: `07` is node 7. A whole number that no node can have is
/// refused, because it would become the name of a switch.
fn vertex(text: &str) -> Result<String, String> {
    if let Ok(number) = text.parse::<u32>() {
        return Ok(number.to_string());
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    match !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Err(format!("node `{text}`: nodes are numbered 0, 1, 2, ...")),
        false => Ok(text.to_owned()),
    }
}

#[derive(Default)]
struct Reader {
    /// Rows as read: names and bandwidth.
    rows: Vec<(String, String, f64)>,
    last_line: usize,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) -> Result<(), TextError> {
        self.last_line = number;
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            return Ok(());
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let (both, rest) = match fields.as_slice() {
            ["both", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let [from, to, bandwidth] = rest else {
            let reason = "expected `from,to,bandwidth` or `both,from,to,bandwidth`";
            return Err(TextError::new(number, reason));
        };
        let vertex = |text| vertex(text).map_err(|reason| TextError::new(number, reason));
        let (mut from, mut to) = (vertex(from)?, vertex(to)?);
        if from == to || from.is_empty() || to.is_empty() {
            return Err(TextError::new(
                number,
                "a link joins two different vertices",
            ));
        }
        let value = farcall_quantity::amount(bandwidth).map_err(|e| TextError::new(number, e))?;
        if value <= 0.0 {
            return Err(TextError::new(number, "bandwidth must be above 0"));
        }
        if both {
            self.rows.push((from.clone(), to.clone(), value));
            (from, to) = (to, from);
        }
        self.rows.push((from, to, value));
        Ok(())
    }

    fn finish(self) -> Result<EdgeList, TextError> {
        let mut numbers: Vec<u32> = Vec::new();
        let mut switches: Vec<&str> = Vec::new();
        let mut seen: HashMap<&str, ()> = HashMap::new();
        for name in self.rows.iter().flat_map(|(from, to, _)| [from, to]) {
            if seen.insert(name, ()).is_none() {
                match name.parse::<u32>() {
                    Ok(number) => numbers.push(number),
                    Err(_) => switches.push(name),
                }
            }
        }
        numbers.sort_unstable();
        for (expected, &number) in numbers.iter().enumerate() {
            if number as usize != expected {
                let reason = format!("nodes are numbered 0, 1, ...: node {expected} has no link");
                return Err(TextError::new(0, reason));
            }
        }
        if numbers.is_empty() {
            return Err(TextError::new(
                0,
                "there is no node; the names of nodes are whole numbers",
            ));
        }
        let nodes = numbers.len();
        let vertices: Vec<String> = (0..nodes)
            .map(|n| n.to_string())
            .chain(switches.iter().map(|s| s.to_string()))
            .collect();
        let index: HashMap<&str, u32> = vertices
            .iter()
            .enumerate()
            .map(|(i, v)| (v.as_str(), i as u32))
            .collect();
        // A node number can have leading zeros or a plus sign, so look nodes up by number.
        let find = |name: &str| match name.parse::<u32>() {
            Ok(number) => number,
            Err(_) => index[name],
        };
        let edges: Vec<(u32, u32, f64)> = self
            .rows
            .iter()
            .map(|(f, t, b)| (find(f), find(t), *b))
            .collect();
        let (next, max_hops) = next_hops(nodes, vertices.len(), &edges)?;
        Ok(EdgeList {
            nodes,
            vertices,
            edges,
            next,
            max_hops,
        })
    }
}

fn next_hops(
    nodes: usize,
    vertices: usize,
    edges: &[(u32, u32, f64)],
) -> Result<(Vec<LinkId>, usize), TextError> {
    if nodes.saturating_mul(vertices) > MAX_TABLE {
        let reason = format!(
            "{nodes} nodes x {vertices} vertices: the routing table is limited to {MAX_TABLE}"
        );
        return Err(TextError::new(0, reason));
    }
    let mut into: Vec<Vec<LinkId>> = vec![Vec::new(); vertices];
    for (link, &(_, to, _)) in edges.iter().enumerate() {
        into[to as usize].push(link as LinkId);
    }
    let mut next = vec![LinkId::MAX; nodes * vertices];
    let mut distance = vec![u32::MAX; vertices];
    let mut max_hops = 0;
    let mut queue = VecDeque::new();
    for dst in 0..nodes {
        let row = &mut next[dst * vertices..(dst + 1) * vertices];
        distance.fill(u32::MAX);
        distance[dst] = 0;
        queue.push_back(dst as u32);
        while let Some(v) = queue.pop_front() {
            for &link in &into[v as usize] {
                let from = edges[link as usize].0 as usize;
                let d = distance[v as usize] + 1;
                if distance[from] > d {
                    distance[from] = d;
                    row[from] = link;
                    queue.push_back(from as u32);
                } else if distance[from] == d && row[from] > link {
                    row[from] = link;
                }
            }
        }
        for (src, &d) in distance[..nodes].iter().enumerate() {
            if d == u32::MAX {
                let reason = format!("no path from node {src} to node {dst}");
                return Err(TextError::new(0, reason));
            }
            max_hops = max_hops.max(d as usize);
        }
    }
    Ok((next, max_hops))
}
