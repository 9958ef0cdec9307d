//! Clients that call with two stored arrays. Few of these arrays fit into memory at a time, so that
//! calls wait for each other's.

use super::{Client, Scene};
use crate::interfaces::{BOTH, LOOKED};
use farcall_idl::Scalar;

/// Arrays of one client that are put for this.
const ARRAYS: usize = 10;
/// Calls that are made at a time.
const CALLS: usize = 2;
/// Bytes of such an array, at least and at most. Two of them fit into memory beside all else.
const LEAST: u64 = 200_000;
const MOST: u64 = 650_000;

impl Client {
    pub(super) fn act_on_pairs(&mut self, scene: &mut Scene<'_>) {
        match self.arrays.len() < ARRAYS && scene.random.chance(0.5) {
            true => {
                let count = LEAST + scene.random.below(MOST - LEAST);
                self.put_bytes(scene, count);
            }
            false => (0..CALLS).for_each(|_| self.call_with_two(scene)),
        }
    }

    /// Calls with two arrays that are at the server, if there are two.
    fn call_with_two(&mut self, scene: &mut Scene<'_>) {
        let picked = (self.pick_array(scene), self.pick_array(scene));
        let (Some(first), Some(second)) = picked else {
            return self.call(scene);
        };
        if first == second {
            return self.call(scene);
        }
        let [first, second] = [first, second].map(|index| {
            let array = &self.arrays[index];
            (array.id, array.contents.count)
        });
        let (mut made, mut call) = self.new_call(scene, BOTH, first.1);
        call.scalars[3] = Some(Scalar::Int(second.1 as i64));
        call.handles = vec![(0, first.0), (1, second.0)];
        self.uses_array(first.0, true);
        made.expected = self.uses_array(second.0, false);
        made.array = Some((first.0, true));
        made.second = Some(second.0);
        self.make(scene, (made, call), Vec::new(), LOOKED as u64);
    }
}
