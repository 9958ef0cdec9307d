//! Clients that store an array of zeros and fill it part by part, as the real client does with
//! large arrays over several connections, or let the server read an array from another server. An
//! array is used like any other once it is there.

use super::arrays::{Array, Asked, put};
use super::{Client, Purpose, Scene};
use crate::checker::Secret;
use crate::interfaces::Contents;
use farcall_rpc_proto::{ArrayPart, HandleId, Pull, Put};

/// Most parts of an array.
const PARTS: u64 = 5;

/// An array that is being filled.
#[derive(Clone, Debug)]
pub(super) struct Filling {
    id: HandleId,
    contents: Contents,
    /// Parts that were not sent yet.
    left: Vec<ArrayPart>,
    /// How many parts the server has not confirmed.
    open: u64,
}

impl Client {
    /// Stores an array of zeros, fills a part of one, or has one read from another server.
    pub(super) fn act_on_parts(&mut self, scene: &mut Scene<'_>) {
        if scene.random.chance(0.2) {
            return self.pull_array(scene);
        }
        let unsent = self.filling.iter().filter(|one| !one.left.is_empty());
        let count = unsent.count() as u64;
        if count == 0 || scene.random.chance(0.3) {
            return self.put_zeros(scene);
        }
        let wanted = scene.random.below(count) as usize;
        let mut unsent = self.filling.iter_mut().filter(|one| !one.left.is_empty());
        let (Some(filling), Some(connection)) = (unsent.nth(wanted), &mut self.connection) else {
            return;
        };
        let index = scene.random.below(filling.left.len() as u64) as usize;
        let part = filling.left.swap_remove(index);
        let sends = filling.contents.part(part.offset, part.bytes, 0);
        let made = connection.put_part(&part);
        self.asked(made, Purpose::Array(Asked::Fill(part)), sends, scene.now);
    }

    fn put_zeros(&mut self, scene: &mut Scene<'_>) {
        let count = Client::size(scene.random);
        let contents = self.contents(scene, count);
        let zeros = Put {
            data_bytes: 0,
            ..put(contents, false)
        };
        if let Some(connection) = &mut self.connection {
            let made = connection.put(&zeros);
            let purpose = Purpose::Array(Asked::Zeros(contents));
            self.asked(made, purpose, Vec::new(), scene.now);
        }
    }

    /// The address says what the array at the other server has.
    fn pull_array(&mut self, scene: &mut Scene<'_>) {
        let count = Client::size(scene.random);
        let contents = self.contents(scene, count);
        let Contents { user, first, .. } = contents;
        let pull = Pull {
            address: format!("server:{user}:{first}:{count}"),
            loan: HandleId([1; 16]),
            form: put(contents, false).form,
            stays: false,
            source: None,
        };
        if let Some(connection) = &mut self.connection {
            let made = connection.pull(&pull);
            let purpose = Purpose::Array(Asked::Pull(contents));
            self.asked(made, purpose, Vec::new(), scene.now);
        }
    }

    /// The server has an array of zeros.
    pub(super) fn has_zeros(&mut self, contents: Contents, id: HandleId, scene: &mut Scene<'_>) {
        let owner = (self.life, self.user);
        scene.checker.secrets.add(Secret::Array(id), owner);
        let parts = 1 + scene.random.below(PARTS);
        let each = contents.count.div_ceil(parts);
        let offsets = (0..contents.count).step_by(each as usize);
        let left: Vec<ArrayPart> = offsets
            .map(|offset| ArrayPart {
                id,
                offset,
                bytes: each.min(contents.count - offset),
            })
            .collect();
        self.filling.push(Filling {
            id,
            contents,
            open: left.len() as u64,
            left,
        });
        // There is work for each part.
        self.wishes += parts as u32;
    }

    /// The server has filled a part.
    pub(super) fn has_filled(&mut self, id: HandleId) {
        let Some(index) = self.filling.iter().position(|one| one.id == id) else {
            return;
        };
        self.filling[index].open -= 1;
        if self.filling[index].open == 0 {
            let Filling { id, contents, .. } = self.filling.remove(index);
            self.arrays.push(Array::new(id, contents));
        }
    }

    /// A part could not be filled: the array is given up. Returns whether it was not before.
    pub(super) fn gives_up_filling(&mut self, id: HandleId, scene: &mut Scene<'_>) -> bool {
        let known = self.filling.len();
        self.filling.retain(|one| one.id != id);
        let was_known = self.filling.len() < known;
        if was_known && let Some(connection) = &mut self.connection {
            let made = connection.drop_handle(id);
            self.asked(made, Purpose::Array(Asked::Drop), Vec::new(), scene.now);
        }
        was_known
    }
}
