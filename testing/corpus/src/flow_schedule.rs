//! Any bytes as a binary GOAL schedule: it is read, or refused with a reason. A schedule that is
//! read runs to its end or to a deadlock, as the text of the same trace does.

use super::flow_goal::{LIMITS, simulate};
use farcall_flow::Goal;

/// The body of the target.
pub fn run(data: &[u8]) {
    match Goal::parse_binary(data, LIMITS) {
        Ok(goal) => {
            assert!(goal.operations().len() * 39 <= data.len());
            simulate(&goal);
        }
        Err(error) => assert!(!error.reason.is_empty()),
    }
}
