//! Any bytes as the parts of a checkpoint of a gang job: the beginning of the file, the messages of
//! a process, and the head of its arrays. They are read or refused. What is read encodes to bytes
//! that read the same, and messages can be put into their normal form or are refused.

use farcall_channel_proto::saved::{ARRAYS_HEADER, Arrays, Saved, count, fitting, normalise};
use farcall_gang_proto::checkpoint::{Head, PREFIX};

/// The body of the target.
pub fn run(data: &[u8]) {
    if let Some((prefix, rest)) = data.split_first_chunk::<PREFIX>()
        && let Ok(length) = Head::length(prefix)
        && let Some(encoded) = rest.get(..length)
        && let Ok(head) = Head::decode(encoded)
    {
        assert_eq!(Head::decode(&head.encode()[PREFIX..]), Ok(head.clone()));
        assert_eq!(head.ranks.len(), usize::from(head.spec.processes));
    }
    if let Ok(saved) = Saved::decode(data) {
        let mut again = Vec::new();
        saved.encode(&mut again);
        assert_eq!(Saved::decode(&again), Ok(saved.clone()));
        for queue in &saved.received {
            let all = count(&queue.records).expect("checked");
            let cut = fitting(&queue.records, queue.records.len() / 2).expect("checked");
            let (one, other) = queue.records.split_at(cut);
            assert_eq!(
                count(one).expect("whole") + count(other).expect("whole"),
                all
            );
        }
        let mut ranks = [saved.clone(), saved];
        if normalise(&mut ranks).is_ok() {
            let done = ranks.clone();
            assert_eq!(normalise(&mut ranks), Ok(()));
            assert_eq!(ranks, done);
        }
    }
    if let Some(start) = data.first_chunk::<ARRAYS_HEADER>()
        && let Ok(length) = Arrays::head_bytes(start)
        && let Some(head) = data.get(..length)
    {
        let arrays = Arrays::decode(head).expect("a whole head");
        assert_eq!(arrays.encode(), head);
    }
}
