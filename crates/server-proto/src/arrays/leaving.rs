//! Which stored arrays leave memory, to the disk or, if they are files of the data folder, at once.
//! `room` decides whether any must.

use super::{Array, Location, Store};
use crate::keys::{CallKey, MemoryKey};
use farcall_rpc_proto::HandleId;

/// The least recently used array that nobody needs now, to be written to the disk.
pub(crate) fn least_used(store: &mut Store) -> Option<(HandleId, u64, MemoryKey)> {
    let id = oldest(store, |array| array.file.is_none() && array.bytes > 0)?;
    begin_to_write(store, id)
}

/// The memory of the least recently used data file that nobody needs now. The file can be read
/// again.
pub(crate) fn least_used_file(store: &mut Store) -> Option<MemoryKey> {
    let id = oldest(store, |array| array.file.is_some())?;
    unload(store, id)
}

/// The least recently used of these arrays that is in memory and that nobody needs now.
fn oldest(store: &Store, is_one: impl Fn(&Array) -> bool) -> Option<HandleId> {
    let rests = |array: &Array| is_in_memory(array) && array.calls.is_empty() && is_one(array);
    let mut ids = store.by_use.values().copied();
    ids.find(|id| store.arrays.get(id).is_some_and(rests))
}

fn is_in_memory(array: &Array) -> bool {
    matches!(array.location, Location::Memory(_))
}

/// The arrays in memory that are wanted only by calls which wait, with their bytes. The one that
/// was wanted last comes first.
pub(crate) fn wanted_by(store: &Store, waits: impl Fn(CallKey) -> bool) -> Vec<(HandleId, u64)> {
    let latest = store.by_use.values().rev();
    let known = latest.filter_map(|id| Some((*id, store.arrays.get(id)?)));
    let may_leave = known.filter(|(_, array)| {
        let mut calls = array.calls.iter();
        is_in_memory(array) && array.bytes > 0 && calls.all(|(call, _)| waits(*call))
    });
    may_leave.map(|(id, array)| (id, array.bytes)).collect()
}

/// Marks an array in memory as being written to the disk. Returns it with its bytes and memory.
pub(crate) fn begin_to_write(
    store: &mut Store,
    id: HandleId,
) -> Option<(HandleId, u64, MemoryKey)> {
    let array = store.arrays.get_mut(&id)?;
    let Location::Memory(memory) = array.location else {
        return None;
    };
    array.location = Location::Moving;
    array.is_leaving = true;
    store.leaving += array.bytes;
    Some((id, array.bytes, memory))
}

/// Lets go of the memory of a data file; `None` if the array is none.
pub(crate) fn unload(store: &mut Store, id: HandleId) -> Option<MemoryKey> {
    let array = store.arrays.get_mut(&id)?;
    let Location::Memory(memory) = array.location else {
        return None;
    };
    array.file.as_ref()?;
    array.location = Location::File;
    store.resident = store.resident.saturating_sub(array.bytes);
    Some(memory)
}
