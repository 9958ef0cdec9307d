//! Clients that store arrays, fetch them and drop them. A request that reads an array must see
//! each call that was made before it and changes the array exactly once, in all bytes alike, and
//! no later call.

use super::calls::Expected;
use super::{Client, Purpose, Scene, names};
use crate::checker::Secret;
use crate::interfaces::Contents;
use farcall_rpc_proto::{ArrayForm, ArrayPart, Failure, FailureKind, HandleId, HandleRecord, Put};

/// An array of this client that calls change.
#[derive(Clone, Debug)]
pub(super) struct Array {
    pub(super) id: HandleId,
    pub(super) contents: Contents,
    /// Calls that should change it.
    begun: u64,
    /// A call that should change it has failed.
    is_spoilt: bool,
}

/// What is asked about an array.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Put(Contents),
    /// An array of zeros, which will have these contents.
    Zeros(Contents),
    Fill(ArrayPart),
    /// An array of another server.
    Pull(Contents),
    /// The part that begins at an offset, of an array that so many calls change before.
    Get(HandleId, u64, u64),
    Drop,
}

impl Array {
    pub(super) fn new(id: HandleId, contents: Contents) -> Array {
        Array {
            id,
            contents,
            begun: 0,
            is_spoilt: false,
        }
    }
}

pub(super) fn put(contents: Contents, stays: bool) -> Put {
    Put {
        form: ArrayForm {
            element: "char".to_string(),
            shape: vec![contents.count],
            column_major: false,
        },
        data_bytes: contents.count,
        stays,
    }
}

impl Client {
    pub(super) fn array(&mut self, id: HandleId) -> Option<&mut Array> {
        self.arrays.iter_mut().find(|array| array.id == id)
    }

    pub(super) fn pick_array(&self, scene: &mut Scene<'_>) -> Option<usize> {
        let count = self.arrays.len() as u64;
        (count > 0).then(|| scene.random.below(count) as usize)
    }

    /// A call uses an array: what it returns of it.
    pub(super) fn uses_array(&mut self, id: HandleId, writes: bool) -> Expected {
        let Some(array) = self.array(id) else {
            return Expected::Bytes(Vec::new());
        };
        match writes {
            true => {
                array.begun += 1;
                Expected::Bytes(Vec::new())
            }
            false => Expected::Changed(id, array.begun),
        }
    }

    /// The contents of an array become unknown.
    pub(super) fn spoil(&mut self, id: HandleId) {
        if let Some(array) = self.array(id) {
            array.is_spoilt = true;
        }
    }

    /// Whether these bytes of an array were all changed by so many calls, unless one of them has
    /// failed.
    pub(super) fn is_changed(
        &mut self,
        id: HandleId,
        (offset, bytes): (u64, &[u8]),
        changed: u64,
    ) -> bool {
        let Some(array) = self.array(id).filter(|array| !array.is_spoilt) else {
            return true;
        };
        let count = bytes.len().min(array.contents.count as usize);
        let expected = array.contents.part(offset, count as u64, changed);
        expected == bytes[..count] && bytes[count..].iter().all(|byte| *byte == 0)
    }

    pub(super) fn put(&mut self, scene: &mut Scene<'_>) {
        let count = Client::size(scene.random);
        self.put_bytes(scene, count);
    }

    pub(super) fn put_bytes(&mut self, scene: &mut Scene<'_>, count: u64) {
        let contents = self.contents(scene, count);
        if let Some(connection) = &mut self.connection {
            let made = connection.put(&put(contents, false));
            let purpose = Purpose::Array(Asked::Put(contents));
            self.asked(made, purpose, contents.bytes(), scene.now);
        }
    }

    /// An array is at the server now, or was dropped.
    pub(super) fn has_handle(
        &mut self,
        purpose: Purpose,
        since: u64,
        record: &HandleRecord,
        scene: &mut Scene<'_>,
    ) {
        match purpose {
            Purpose::Array(Asked::Put(contents) | Asked::Pull(contents)) => {
                let kept = Secret::Array(record.id);
                scene.checker.secrets.add(kept, (self.life, self.user));
                self.arrays.push(Array::new(record.id, contents));
            }
            Purpose::Array(Asked::Zeros(contents)) => self.has_zeros(contents, record.id, scene),
            Purpose::Array(Asked::Fill(part)) => self.has_filled(part.id),
            Purpose::Name(names::Asked::Put(published)) => {
                self.publish(published, record.id, since, scene);
            }
            _ => {}
        }
    }

    /// Asks for one of the arrays.
    pub(super) fn get(&mut self, scene: &mut Scene<'_>) {
        if let Some(index) = self.pick_array(scene) {
            self.get_from(index, scene);
        }
    }

    /// Asks for an array, or a part of one.
    pub(super) fn get_from(&mut self, index: usize, scene: &mut Scene<'_>) {
        let array = &self.arrays[index];
        let (id, bytes, begun) = (array.id, array.contents.count, array.begun);
        let Some(connection) = &mut self.connection else {
            return;
        };
        let (offset, made) = match scene.random.chance(0.5) {
            true => (0, connection.get(id, bytes)),
            false => {
                let offset = scene.random.below(bytes);
                let part = ArrayPart {
                    id,
                    offset,
                    bytes: 1 + scene.random.below(bytes - offset),
                };
                (offset, connection.get_part(&part))
            }
        };
        let purpose = Purpose::Array(Asked::Get(id, offset, begun));
        self.asked(made, purpose, Vec::new(), scene.now);
    }

    /// An array, or a part of one, has come.
    pub(super) fn has_bytes(&mut self, asked: &Asked, received: &[u8], scene: &mut Scene<'_>) {
        let Asked::Get(id, offset, begun) = asked else {
            return;
        };
        scene.checker.received(self.user, received);
        if !self.is_changed(*id, (*offset, received), *begun) {
            let text = format!("the array {id} is not what calls have made of it");
            scene.checker.fail(text);
        }
    }

    pub(super) fn drop_handle(&mut self, scene: &mut Scene<'_>) {
        let Some(index) = self.pick_array(scene) else {
            return;
        };
        let array = self.arrays.remove(index);
        if let Some(connection) = &mut self.connection {
            let made = connection.drop_handle(array.id);
            self.asked(made, Purpose::Array(Asked::Drop), Vec::new(), scene.now);
        }
    }

    /// A request about an array has failed. Returns whether this failure is allowed.
    pub(super) fn array_failed(
        &mut self,
        asked: &Asked,
        failure: &Failure,
        scene: &mut Scene<'_>,
    ) -> bool {
        let mut was_dropped = false;
        if let Asked::Fill(part) = asked {
            was_dropped = !self.gives_up_filling(part.id, scene);
        }
        let faults = &scene.options.faults;
        let subjects = &scene.options.subjects;
        match (asked, failure.kind) {
            (_, FailureKind::Busy | FailureKind::QuotaExceeded) => true,
            (Asked::Pull(_), FailureKind::Unreachable) => true,
            (Asked::Put(_) | Asked::Fill(_), FailureKind::Stalled) => {
                faults.stalls || faults.pauses || subjects.lanes
            }
            (Asked::Fill(_), FailureKind::BadArgument) => faults.disk_errors,
            (Asked::Fill(_), FailureKind::NotFound) => {
                faults.calendar_jumps || subjects.names || was_dropped
            }
            (Asked::Get(id, ..), FailureKind::BadArgument) => {
                let disk = faults.disk_errors || faults.disk_forgets;
                disk || self.array(*id).is_none_or(|array| array.is_spoilt)
            }
            (Asked::Get(id, ..), FailureKind::NotFound) => {
                faults.calendar_jumps || subjects.names || self.array(*id).is_none()
            }
            (Asked::Drop, FailureKind::NotFound) => faults.calendar_jumps || subjects.names,
            _ => false,
        }
    }
}
