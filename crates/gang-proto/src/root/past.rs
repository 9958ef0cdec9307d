//! Gang jobs that were lost with an earlier daemon. They are listed until their users have taken
//! note, and no other gang job ever gets their numbers.

use super::Root;
use crate::{JobId, JobRow};
use alloc::string::ToString;
use alloc::vec::Vec;

impl Root {
    /// Continues the numbers of gang jobs of an earlier daemon, and shows those that were lost with
    /// it until their users have taken note.
    pub fn handle_past(&mut self, last: JobId, lost: Vec<JobRow>) {
        self.last = self.last.max(last);
        for mut row in lost {
            row.state = "lost".to_string();
            self.last = self.last.max(row.id);
            self.lost.insert(row.id, row);
        }
    }

    /// Whether a gang job was lost with an earlier daemon, and nobody has taken note.
    pub fn is_past(&self, id: JobId) -> bool {
        self.lost.contains_key(&id)
    }

    /// Forgets a lost gang job, because its user or the user root has taken note. Returns whether
    /// there was such a gang job.
    pub(super) fn take_note(&mut self, id: JobId, user: u32) -> bool {
        let is_own = |row: &JobRow| user == 0 || user == row.user;
        let is_noted = self.lost.get(&id).is_some_and(is_own);
        is_noted && self.lost.remove(&id).is_some()
    }
}
