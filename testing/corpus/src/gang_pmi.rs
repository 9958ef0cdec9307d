//! Any bytes as the requests of two processes of MPI to the one that started them. They are
//! answered or refused, with no more answers than lines, and barriers end.

use farcall_gang_proto::{Pmi, PmiAction};

/// The body of the target.
pub fn run(data: &[u8]) {
    let mut pmi = Pmi::new(1, &[0, 0, 1], 0);
    for (rank, bytes) in (0..).zip(data.chunks(97)) {
        let before = bytes.iter().filter(|byte| **byte == b'\n').count();
        if pmi.handle_bytes(rank % 2, bytes).is_err() {
            return;
        }
        let mut answers = 0;
        while let Some(action) = pmi.poll_action() {
            match action {
                PmiAction::Answer(to, line) => {
                    assert!(to < 2 && line.ends_with('\n'));
                    answers += 1;
                }
                PmiAction::Fence(pairs) => {
                    pmi.handle_fenced(pairs);
                    // Both processes are answered.
                    answers -= 1;
                }
                PmiAction::Abort(rank, _) => assert!(rank < 2),
            }
        }
        assert!(answers <= before as i32);
    }
}
