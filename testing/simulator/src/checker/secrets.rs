//! Remembers ids that belong to users, so that other users can try them. The clients try them, and
//! the server must refuse each. The number of remembered ids is bounded.

use farcall_random::SplitMix64;
use farcall_rpc_proto::{HandleId, JobId};
use std::collections::VecDeque;

/// Ids of a kind that are remembered.
const MOST: usize = 16;

/// An id that belongs to one user.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Secret {
    Array(HandleId),
    Object(HandleId),
    QueuedCall(JobId),
    Reservation(u64),
}

/// The latest ids of each kind, with the life of the server and the user.
#[derive(Debug, Default)]
pub(crate) struct Secrets([VecDeque<(Secret, (u64, u8))>; 4]);

impl Secrets {
    pub(crate) fn add(&mut self, secret: Secret, owner: (u64, u8)) {
        let kind = match secret {
            Secret::Array(_) => 0,
            Secret::Object(_) => 1,
            Secret::QueuedCall(_) => 2,
            Secret::Reservation(_) => 3,
        };
        self.0[kind].push_back((secret, owner));
        if self.0[kind].len() > MOST {
            self.0[kind].pop_front();
        }
    }

    /// An id of another user.
    pub(crate) fn pick(&self, (life, user): (u64, u8), random: &mut SplitMix64) -> Option<Secret> {
        let others = self.0[random.below(4) as usize].iter();
        let others = others.filter(|(_, (of, owner))| *of == life && *owner != user);
        let count = others.clone().count() as u64;
        let mut others = others.map(|(secret, _)| *secret);
        (count > 0).then(|| others.nth(random.below(count) as usize))?
    }
}
