//! Any bytes as the requests of two processes of MPI, and of their PMIx server, to the one that
//! started them. They are answered or refused, with no more answers than lines, and barriers end.

use farcall_gang_proto::{PMIX, Pmi, PmiAction};

/// The body of the target.
pub fn run(data: &[u8]) {
    let mut pmi = Pmi::new(1, &[0, 0, 1], 0);
    for (turn, bytes) in data.chunks(97).enumerate() {
        let before = bytes.iter().filter(|byte| **byte == b'\n').count();
        if pmi.handle_bytes([0, 1, PMIX][turn % 3], bytes).is_err() {
            return;
        }
        let mut answers = 0;
        while let Some(action) = pmi.poll_action() {
            match action {
                PmiAction::Answer(to, line) => {
                    assert!((to < 2 || to == PMIX) && line.ends_with('\n'));
                    answers += 1;
                }
                PmiAction::Fence(pairs) => {
                    pmi.handle_fenced(pairs);
                    // At most one more is answered than the one whose line ended the barrier.
                    answers -= 1;
                }
                PmiAction::Abort(rank, _) => assert!(rank < 2 || turn % 3 == 2),
                PmiAction::Ready(_) => assert_eq!(turn % 3, 2),
            }
        }
        assert!(answers <= before as i32);
    }
}
