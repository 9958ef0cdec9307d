//! What front ends say about gang jobs, as lines of text. A server whose functions run as gang jobs
//! reads such a line, because a call that has lost a node can run again. Both directions are here,
//! so that they agree.

use crate::JobId;
use alloc::format;
use alloc::string::String;
use core::fmt;

/// The beginning of each line about a gang job.
pub const BEGINNING: &str = "farcall: gang job";

const NODE: &str = ": node ";
const IS_GONE: &str = " is gone: ";

/// A line about a gang job, without its end.
pub fn line(job: JobId, text: &str) -> String {
    format!("{BEGINNING} {job}: {text}")
}

/// What a line says about a gang job, if it is one.
pub fn text_of(line: &str) -> Option<&str> {
    let (job, text) = line.strip_prefix(BEGINNING)?.split_once(": ")?;
    job.trim_start().parse::<JobId>().is_ok().then_some(text)
}

/// Why a process has ended whose node was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostNode<'a> {
    /// The rank of the process.
    pub rank: u16,
    /// The name of the node.
    pub node: &'a str,
    /// Why it counts as lost, in words.
    pub why: &'a str,
}

impl LostNode<'_> {
    /// Reads a cause, if it is the loss of a node.
    pub fn of(cause: &str) -> Option<LostNode<'_>> {
        let (rank, rest) = cause.strip_prefix("rank ")?.split_once(NODE)?;
        let (node, why) = rest.split_once(IS_GONE)?;
        let rank = rank.parse().ok()?;
        Some(LostNode { rank, node, why })
    }
}

impl fmt::Display for LostNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LostNode { rank, node, why } = self;
        write!(f, "rank {rank}{NODE}{node}{IS_GONE}{why}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_lost_node_is_read_as_it_was_written() {
        let lost = LostNode {
            rank: 2,
            node: "b2",
            why: "node b2 was silent for 30 s: perhaps it was killed",
        };
        let told = line(6, &lost.to_string());
        assert!(
            told.starts_with("farcall: gang job 6: rank 2: node b2 is gone: node b2 was silent")
        );
        assert_eq!(text_of(&told).and_then(LostNode::of), Some(lost));
    }

    #[test]
    fn nothing_else_is_a_lost_node() {
        for cause in [
            "rank 2 on node b2 ended with status 3",
            "rank x: node b2 is gone: killed",
            "rank 2: node b2 is gone",
            "the file is gone: oh",
        ] {
            assert_eq!(LostNode::of(cause), None, "{cause}");
        }
        assert_eq!(text_of("rank 2: node b2 is gone: killed"), None);
        assert_eq!(text_of("farcall: gang jobs: none"), None);
        assert_eq!(text_of("farcall: gang job 2: 1.68 s"), Some("1.68 s"));
    }
}
