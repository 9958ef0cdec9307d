//! Any bytes as the Chakra traces of one or two ranks: they are read, or refused with a reason.
//! Traces that are read run to their end or to a deadlock. The first byte says where the file of
//! the second rank begins.

use super::flow_goal::{LIMITS, simulate};
use farcall_flow::Goal;

/// The body of the target.
pub fn run(data: &[u8]) {
    let Some((&split, bytes)) = data.split_first() else {
        return;
    };
    let files: Vec<&[u8]> = match bytes.split_at_checked(split.into()) {
        Some((first, second)) => vec![first, second],
        None => vec![bytes],
    };
    match Goal::parse_chakra(&files, LIMITS) {
        Ok(goal) => simulate(&goal),
        Err(error) => assert!(!error.reason.is_empty()),
    }
}
