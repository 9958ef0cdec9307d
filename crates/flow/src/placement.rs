//! The map from ranks to nodes. No two ranks share a node. The shuffle is written out in
//! [`Placement`], so that other programs can reproduce it. Files are read by the caller.

use crate::error::{SpecError, TextError, lines};
use farcall_random::SplitMix64;

/// The map from ranks to nodes: a permutation.
///
/// `random:SEED` is a Fisher-Yates shuffle, `for i in (1..n).rev() { swap(i, j) }` with
/// `j` in `0..=i` drawn from SplitMix64: `state += 0x9E3779B97F4A7C15; z = state;
/// z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9; z = (z ^ z >> 27) * 0x94D049BB133111EB; z ^ z >> 31`,
/// starting from `state = SEED`, and `j = (z as u128 * (i + 1) as u128) >> 64`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    node_of: Option<Vec<u32>>,
}

impl Placement {
    /// Jobs that one run can have.
    pub const MOST_JOBS: usize = 65_535;

    /// Places rank `i` on node `i`.
    pub fn regular() -> Self {
        Self { node_of: None }
    }

    /// The shuffle of `n` ranks that [`Placement`] documents.
    pub fn random(n: usize, seed: u64) -> Self {
        let mut node_of: Vec<u32> = (0..n as u32).collect();
        let mut generator = SplitMix64::new(seed);
        for i in (1..n).rev() {
            node_of.swap(i, generator.below(i as u64 + 1) as usize);
        }
        Self {
            node_of: Some(node_of),
        }
    }

    /// A permutation given by the caller: `node_of[rank]`, with distinct nodes below `nodes`.
    ///
    /// # Errors
    /// Names the rank whose node is out of range or used twice. The line counts the ranks from 1.
    pub fn explicit(node_of: Vec<u32>, nodes: usize) -> Result<Self, TextError> {
        let mut taken = vec![false; nodes];
        for (rank, &node) in node_of.iter().enumerate() {
            match taken.get_mut(node as usize) {
                None => {
                    let reason = format!(
                        "rank {rank}: there is no node {node}, the platform has {nodes} nodes"
                    );
                    return Err(TextError::new(rank + 1, reason));
                }
                Some(true) => {
                    let reason = format!("rank {rank}: another rank has node {node} already");
                    return Err(TextError::new(rank + 1, reason));
                }
                Some(free) => *free = true,
            }
        }
        Ok(Self {
            node_of: Some(node_of),
        })
    }

    /// Reads a permutation: one node number per line, starting with rank 0.
    ///
    /// # Errors
    /// The line and the reason.
    pub fn parse_csv(text: &str, nodes: usize) -> Result<Self, TextError> {
        let (mut node_of, mut line_of) = (Vec::new(), Vec::new());
        for (index, line) in lines(text).enumerate() {
            let line = line.trim();
            if index == 0 && line == "node" {
                continue;
            }
            if line.is_empty() {
                continue;
            }
            let node = line.parse().map_err(|_| {
                TextError::new(index + 1, format!("`{line}`: expected a node number"))
            })?;
            node_of.push(node);
            line_of.push(index + 1);
            if node_of.len() > nodes {
                return Err(TextError::new(
                    index + 1,
                    format!("there are more ranks than the {nodes} nodes"),
                ));
            }
        }
        Self::explicit(node_of, nodes).map_err(|error| TextError {
            line: line_of[error.line - 1],
            ..error
        })
    }

    /// Reads `regular` or `random:SEED` for `nodes` nodes.
    ///
    /// # Errors
    /// Lists the alternatives. For `file:PERM.csv` the caller reads the file and uses
    /// [`Placement::parse_csv`].
    pub fn parse(spec: &str, nodes: usize) -> Result<Self, SpecError> {
        match spec.split_once(':').unwrap_or((spec, "")) {
            ("regular", "") => Ok(Self::regular()),
            ("random", seed) => match seed.parse() {
                Ok(seed) => Ok(Self::random(nodes, seed)),
                Err(_) => Err(SpecError::new(
                    spec,
                    "the seed is a whole number: `random:1`",
                )),
            },
            _ => Err(SpecError::new(
                spec,
                "expected `regular`, `random:SEED` or `file:PERM.csv`",
            )),
        }
    }

    /// Places several jobs: the ranks of the first one, then those of the second one and so on.
    /// Each has its number of ranks and `regular`, the first free nodes; `random:SEED`, free nodes
    /// in the order of a shuffle; or `at:NODE`, the nodes from this one on.
    ///
    /// # Errors
    /// Says which job does not fit, or that there are more jobs than one run can have.
    pub fn of_jobs(jobs: &[(u32, &str)], nodes: usize) -> Result<Self, SpecError> {
        if let Some(&(_, spec)) = jobs.get(Self::MOST_JOBS) {
            let reason = format!("one run has at most {} jobs", Self::MOST_JOBS);
            return Err(SpecError::new(spec, reason));
        }
        let mut free = vec![true; nodes];
        let mut node_of = Vec::new();
        for &(ranks, spec) in jobs {
            let fail = |reason: String| SpecError::new(spec, reason);
            let too_many = || {
                fail(format!(
                    "the {ranks} ranks of the job do not fit on the nodes that other jobs leave"
                ))
            };
            if ranks as usize > nodes {
                return Err(too_many());
            }
            let mut wanted: Vec<u32> = match spec.strip_prefix("at:").map(str::parse) {
                Some(Ok(first)) => (first..u32::MAX).take(ranks as usize).collect(),
                Some(Err(_)) => return Err(fail("expected a node, `at:64`".to_owned())),
                None => {
                    let all = Self::parse(spec, nodes)?;
                    let nodes = (0..nodes as u32).map(|rank| all.node(rank));
                    nodes.filter(|&node| free[node as usize]).collect()
                }
            };
            wanted.truncate(ranks as usize);
            let fits = |&node: &u32| free.get(node as usize) == Some(&true);
            if wanted.len() < ranks as usize || !wanted.iter().all(fits) {
                return Err(too_many());
            }
            wanted.iter().for_each(|&node| free[node as usize] = false);
            node_of.extend(wanted);
        }
        Ok(Self {
            node_of: Some(node_of),
        })
    }

    /// The node of a rank.
    #[inline]
    pub fn node(&self, rank: u32) -> u32 {
        match &self.node_of {
            None => rank,
            Some(node_of) => node_of[rank as usize],
        }
    }

    /// Number of ranks placed, if the placement fixes it.
    pub fn ranks(&self) -> Option<usize> {
        self.node_of.as_ref().map(Vec::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_placement_is_a_permutation_and_depends_on_the_seed() {
        let one = Placement::random(100, 1);
        let mut nodes: Vec<u32> = (0..100).map(|r| one.node(r)).collect();
        assert_ne!(nodes, (0..100).collect::<Vec<_>>());
        nodes.sort_unstable();
        assert_eq!(nodes, (0..100).collect::<Vec<_>>());
        assert_eq!(one, Placement::random(100, 1));
        assert_ne!(one, Placement::random(100, 2));
    }

    #[test]
    fn jobs_take_the_nodes_that_others_leave() {
        let jobs = [(2, "at:1"), (3, "regular"), (2, "random:4")];
        let placed = Placement::of_jobs(&jobs, 8).unwrap();
        let nodes: Vec<u32> = (0..7).map(|rank| placed.node(rank)).collect();
        assert_eq!(nodes[..5], [1, 2, 0, 3, 4]);
        assert!(nodes[5..].iter().all(|node| (5..8).contains(node)));
        for wrong in ["at:7", "at:x", "at:0", "odd"] {
            let jobs = [(2, "regular"), (2, wrong)];
            assert!(Placement::of_jobs(&jobs, 8).is_err(), "{wrong}");
        }
        assert!(Placement::of_jobs(&[(5, "regular"), (4, "random:1")], 8).is_err());
        let too_many = vec![(1, "regular"); Placement::MOST_JOBS + 1];
        let error = Placement::of_jobs(&too_many, 100_000).unwrap_err();
        assert_eq!(error.reason, "one run has at most 65535 jobs");
    }

    #[test]
    fn wrong_permutations_name_the_line() {
        assert!(Placement::parse_csv("0\n2\n1\n", 3).is_ok());
        for (text, line) in [
            ("0\n0\n", 2),
            ("0\n9\n", 2),
            ("0\nx\n", 2),
            ("0\n1\n2\n3\n", 4),
            ("node\n0\n\n0\n", 4),
            ("node\n9\n", 2),
        ] {
            assert_eq!(Placement::parse_csv(text, 3).unwrap_err().line, line);
        }
        assert!(Placement::parse("random:x", 3).is_err() && Placement::parse("odd", 3).is_err());
    }
}
