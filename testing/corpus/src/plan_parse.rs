//! The text of a plan: read, bounded, and read again as it is written.

use farcall_plan::{MOST_CALLS, Plan};

/// The body of the target.
pub fn run(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    let Ok(plan) = Plan::parse(text) else {
        return;
    };
    assert!(plan.calls.len() <= MOST_CALLS);
    let written = plan.to_string();
    let again = Plan::parse(&written).expect("what was read can be written");
    // A number that is none differs from itself.
    if !written.contains("nan") {
        assert_eq!(again, plan);
    }
}
