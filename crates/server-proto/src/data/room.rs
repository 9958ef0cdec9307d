//! Room in memory. If memory is short, arrays that nobody uses make way for calls and for other
//! arrays: the memory of files of the data folder is freed, and other arrays are written to the
//! disk. If calls wait for each other's arrays, those of the latest calls make way for the oldest
//! call. A request for which there will be no room even then is refused, so that no client waits
//! for ever.

use super::Data;
use crate::action::{Actions, Transfer};
use crate::arrays::{Use, leaving};
use crate::call::{ActiveCall, State};
use crate::context::Context;
use crate::disk::Purpose;
use crate::flaw::{Flaw, has};
use crate::keys::{CallKey, MemoryKey};
use crate::memory::{Memory, MemoryGrant, NoMemory, of_array};
use crate::record::Content;
use farcall_rpc_proto::{Failure, FailureKind, HandleId, JobId, Nanos, Pieces};

/// Pause after a disk has refused an array.
const PAUSE: Nanos = 1_000_000_000;

/// Memory for a call or an array of this many bytes. `take` asks the ledger for it.
pub(crate) fn grant(
    data: &mut Data,
    cx: &mut Context,
    bytes: u64,
    take: impl Fn(&mut Memory, &mut Actions) -> Result<MemoryKey, NoMemory>,
) -> MemoryGrant<MemoryKey> {
    loop {
        match take(&mut cx.memory, &mut cx.out) {
            Ok(memory) => return MemoryGrant::Here(memory),
            Err(NoMemory::Wait) => {}
            Err(refusal) => return MemoryGrant::Never(cx.no_room(bytes, refusal)),
        }
        match make(data, cx, bytes) {
            MemoryGrant::Here(true) => {}
            MemoryGrant::Here(false) | MemoryGrant::Later => return MemoryGrant::Later,
            MemoryGrant::Never(failure) => return MemoryGrant::Never(failure),
        }
    }
}

/// Whether each call that waits for stored arrays can have its turn while all of them keep their
/// buffers, also if a call with these arrays and a buffer of this many bytes joins them. Else they
/// could hold the memory for the arrays that they wait for. A call may join if none waits.
pub(crate) fn leaves_turns(data: &Data, cx: &Context, bytes: u64, uses: &[Use]) -> bool {
    if uses.is_empty() || has(Flaw::TakesTooMany) {
        return true;
    }
    // An array that a call uses twice is in memory once.
    let arrays = |uses: &[Use]| -> u64 {
        let is_first = |(index, wanted): &(usize, &Use)| {
            let mut before = uses[..*index].iter();
            !before.any(|other| other.id == wanted.id)
        };
        let each = uses.iter().enumerate().filter(is_first);
        let known = each.filter_map(|(_, wanted)| data.arrays.get(wanted.id));
        known.fold(0, |sum: u64, array| {
            sum.saturating_add(of_array(array.bytes))
        })
    };
    let waits = |call: &&ActiveCall| !call.uses.is_empty() && call.memory.data.is_empty();
    let mut waiting = cx.calls.values().filter(waits).peekable();
    if waiting.peek().is_none() {
        return true;
    }
    let own = (cx.memory.wanted(bytes), arrays(uses));
    let (buffers, most) = waiting.fold(own, |(buffers, most), call| {
        let buffer = call.memory.buffer.map_or(0, |key| cx.memory.bytes(key));
        (buffers + buffer, most.max(arrays(&call.uses)))
    });
    (cx.memory.shared() + buffers).saturating_add(most) <= cx.memory.limit()
}

/// Lets arrays make way for a request of this many bytes. Says whether one has left memory at
/// once.
pub(crate) fn make(data: &mut Data, cx: &mut Context, bytes: u64) -> MemoryGrant<bool> {
    let mut has_left = false;
    while cx.memory.lacks(bytes) > 0
        && let Some(buffer) = leaving::least_used_file(&mut data.arrays)
    {
        cx.free(buffer);
        has_left = true;
    }
    let lacks = cx.memory.lacks(bytes);
    if lacks == 0 {
        return MemoryGrant::Here(has_left);
    }
    write_unused(data, cx, |data| data.arrays.leaving < lacks);
    // The rest ends by itself: calls, and arrays on their way.
    match cx.memory.fits_beside(bytes, data.arrays.resting()) {
        true => MemoryGrant::Later,
        false => MemoryGrant::Never(full(data, cx, bytes)),
    }
}

fn full(data: &Data, cx: &Context, bytes: u64) -> Failure {
    let (limit, shared) = (cx.memory.limit(), cx.memory.shared());
    let resting = data.arrays.resting();
    let text = format!(
        "{bytes} bytes are needed, and of the server's {limit} bytes (limits.memory in its \
         configuration) clients share {shared} and stored arrays use {resting}: drop some \
         arrays, or try again later{}",
        disk_refuses(data)
    );
    Failure::new(FailureKind::Busy, text)
}

/// Why no array goes to the disk, as the end of a sentence.
pub(super) fn disk_refuses(data: &Data) -> String {
    match &data.refused {
        Some((_, why)) => format!("; the disk accepts none: {why}"),
        None => String::new(),
    }
}

/// Lets unused arrays leave memory until stored arrays have room for this many bytes more.
pub(crate) fn spill(data: &mut Data, cx: &mut Context, bytes: u64) {
    while !data.arrays.will_have_room(bytes)
        && let Some(buffer) = leaving::least_used_file(&mut data.arrays)
    {
        cx.memory.free(buffer, &mut cx.out);
    }
    write_unused(data, cx, |data| !data.arrays.will_have_room(bytes));
}

/// Writes unused arrays to the disk while this is necessary.
fn write_unused(data: &mut Data, cx: &mut Context, is_necessary: impl Fn(&Data) -> bool) {
    let now = cx.now();
    data.refused.take_if(|(until, _)| now >= *until);
    while can_write(data, cx)
        && is_necessary(data)
        && let Some(array) = leaving::least_used(&mut data.arrays)
    {
        write(cx, array);
    }
}

/// Whether arrays can be written to the disk now.
fn can_write(data: &Data, cx: &Context) -> bool {
    cx.disk.takes_arrays && data.refused.is_none()
}

fn write(cx: &mut Context, (id, bytes, buffer): (HandleId, u64, MemoryKey)) {
    let transfer = transfer_of(id, bytes, buffer);
    cx.disk.write(Purpose::Spill(id), transfer, &mut cx.out);
}

/// A whole array on its way to the disk or back.
pub(super) fn transfer_of(id: HandleId, bytes: u64, memory: MemoryKey) -> Transfer {
    Transfer {
        id: JobId(id.0),
        content: Content::Array,
        memory,
        pieces: Pieces::whole(bytes),
        about: None,
    }
}

/// Lets arrays that other calls wait with make way for an array of a call. Those of the latest
/// calls leave first. If that does not give enough memory, none leaves.
///
/// # Errors
/// How many bytes would still lack.
pub(super) fn take(
    data: &mut Data,
    cx: &mut Context,
    key: CallKey,
    id: HandleId,
) -> Result<(), u64> {
    let Some(array) = data.arrays.get(id).filter(|_| !has(Flaw::KeepsWaiting)) else {
        return Err(u64::MAX);
    };
    let mut lacks = cx.memory.lacks_for_array(array.bytes);
    // Only files keep to the limit of stored arrays when they are read.
    if array.file.is_some() {
        lacks = lacks.max(data.arrays.lacks(array.bytes));
    }
    let waits = |call: CallKey| {
        let known = cx.calls.get(call).filter(|_| call != key);
        known.is_some_and(|call| call.state == State::Waiting)
    };
    let writes = can_write(data, cx);
    let is_file = |id: HandleId| {
        data.arrays
            .get(id)
            .is_some_and(|array| array.file.is_some())
    };
    let mut wanted = leaving::wanted_by(&data.arrays, waits);
    wanted.retain(|(id, _)| writes || is_file(*id));
    let mut given = 0;
    let taken = wanted.into_iter().take_while(|(_, bytes)| {
        let is_short = given < lacks;
        given += if is_short { of_array(*bytes) } else { 0 };
        is_short
    });
    let taken: Vec<HandleId> = taken.map(|(id, _)| id).collect();
    if taken.is_empty() || given < lacks {
        return Err(lacks - given.min(lacks));
    }
    for id in taken {
        if let Some(buffer) = leaving::unload(&mut data.arrays, id) {
            cx.free(buffer);
        } else if let Some(array) = leaving::begin_to_write(&mut data.arrays, id) {
            write(cx, array);
        }
    }
    Ok(())
}

/// Sends no array to the disk for a while.
pub(super) fn pause_writing(data: &mut Data, now: Nanos, why: String) {
    data.refused = Some((now + PAUSE, why));
}

/// When arrays may be sent to the disk again.
pub(crate) fn disk_deadline(data: &Data) -> Option<Nanos> {
    data.refused.as_ref().map(|(until, _)| *until)
}

/// Tries again for requests that wait for memory, if the pause is over.
pub(crate) fn try_disk_again(data: &mut Data, cx: &mut Context) {
    let now = cx.now();
    let is_over = data.refused.take_if(|(until, _)| now >= *until).is_some();
    cx.has_room |= is_over;
}
