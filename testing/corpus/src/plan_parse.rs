//! Any text as a plan: it is read or refused within bounds. A plan that is read prints to text that
//! reads the same.

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
    // NaN is not equal to itself.
    if !written.contains("nan") {
        assert_eq!(again, plan);
    }
}
