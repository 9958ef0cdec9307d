//! Clients that call with two arrays. If both are stored, few of these arrays fit into memory at a
//! time, so that calls wait for each other's. If one of them travels, the call waits for memory for
//! it, and what follows must not overtake the call.

use super::{Client, Scene};
use crate::interfaces::{BOTH, LOOK, LOOKED};
use farcall_idl::Scalar;

/// Arrays of one client that are put for this.
const ARRAYS: usize = 10;
/// Calls that are made at a time.
const CALLS: usize = 2;
/// Bytes of such an array, at least and at most. Two of them fit into memory beside all else.
const LEAST: u64 = 200_000;
const MOST: u64 = 650_000;
/// Most bytes of an array that travels.
const TRAVELLING: u64 = 700_000;

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

    /// Calls with one array that is at the server and one that travels, and may look at the first
    /// one at once.
    pub(super) fn call_with_mixture(&mut self, scene: &mut Scene<'_>) {
        let Some(index) = self.pick_array(scene) else {
            return self.put(scene);
        };
        let array = &self.arrays[index];
        let (id, count) = (array.id, array.contents.count);
        let (mut made, mut call) = self.new_call(scene, BOTH, count);
        let travels = 1 + scene.random.below(TRAVELLING);
        let sends = self.contents(scene, travels).bytes();
        call.scalars[3] = Some(Scalar::Int(travels as i64));
        (call.handles, call.data_bytes) = (vec![(0, id)], travels);
        self.uses_array(id, true);
        made.expected = self.expected(LOOK, travels, &sends);
        made.array = Some((id, true));
        self.make(scene, (made, call), sends, LOOKED as u64);
        if scene.random.chance(0.5) {
            self.get_from(index, scene);
        }
    }
}
