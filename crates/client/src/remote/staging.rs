//! Staging: locations in shared memory for the arrays of a call.
//!
//! Arrays that the caller made in shared memory stay where they are. Other large arrays are copied
//! there and back, which costs less than sending them.

use crate::argument::Argument;
use crate::remote::connection::{Connection, Segment};
use farcall_idl::{ArrayLayout, Interface, Layout, Mode, SharedRange};
use std::sync::Arc;

/// Arrays of at least this many bytes in one call are copied; smaller ones are sent.
const LEAST: u64 = 16 << 10;
/// Every copy starts at a multiple of this.
const ALIGNMENT: u64 = 64;

/// Copies of a call's arrays in shared memory.
pub(crate) struct Staging {
    connection: Arc<Connection>,
    segment: Segment,
    /// The arrays that are copied back.
    returned: Vec<(ArrayLayout, *mut u8)>,
}

// SAFETY: who makes a staging promises that the arrays outlive it and are left alone.
unsafe impl Send for Staging {}
// SAFETY: nothing is done through a shared reference.
unsafe impl Sync for Staging {}

/// Gives the arrays of a call locations in memory shared with the server, if that costs less than
/// sending them.
///
/// # Safety
/// As [`Connection::call`], until the staging is finished or dropped.
pub(crate) unsafe fn place(
    connection: &Arc<Connection>,
    interface: &Interface,
    arguments: &mut [Argument<'_>],
    layout: &mut Arc<Layout>,
) -> Option<Staging> {
    if !connection.shares() {
        return None;
    }
    let mut places = vec![None; layout.arrays.len()];
    let mut copied = Vec::new();
    let mut bytes = 0;
    for (index, array) in layout.arrays.iter().enumerate() {
        let sizes = &interface.element_refs;
        let is_size = sizes.iter().any(|size| size.param == array.param);
        if array.mode == Mode::Work || array.is_shrunk || is_size {
            continue;
        }
        // Stored arrays already have a location at the server.
        if array.place.is_some() {
            places[index] = array.place;
            continue;
        }
        let argument = &arguments[array.param];
        // An array that the call reads keeps its values while the call writes another one.
        let is_aliased = array.mode == Mode::In && {
            let mut others = layout
                .arrays
                .iter()
                .filter(|other| other.mode.is_returned());
            others.any(|other| argument.overlaps(&arguments[other.param]))
        };
        places[index] = match is_aliased {
            false => born(connection, array, argument),
            true => None,
        };
        if places[index].is_none() {
            copied.push((index, bytes));
            bytes = array
                .bytes
                .checked_next_multiple_of(ALIGNMENT)?
                .checked_add(bytes)?;
        }
    }
    let segment = match bytes >= LEAST {
        true => connection.staging_segment(bytes),
        false => None,
    };
    if let Some(segment) = &segment {
        for &(index, offset) in &copied {
            let segment = segment.id();
            places[index] = Some(SharedRange { segment, offset });
        }
    }
    if places.iter().any(Option::is_some) {
        Arc::make_mut(layout).place(places);
    }
    let mut staging = Staging {
        connection: connection.clone(),
        segment: segment?,
        returned: Vec::new(),
    };
    for (index, _) in copied {
        let array = &layout.arrays[index];
        // SAFETY: the caller's promise.
        unsafe { staging.copy_in(array, &mut arguments[array.param]) };
    }
    Some(staging)
}

/// Whether the function fills arrays of the caller in place. Nobody knows what is in them if it
/// does not end.
pub(crate) fn fills_in_place(
    connection: &Connection,
    arguments: &[Argument<'_>],
    layout: &Layout,
) -> bool {
    let is_filled = |array: &ArrayLayout| {
        let may_be = array.mode.is_returned() && array.place.is_none() && !array.is_shrunk;
        may_be && born(connection, array, &arguments[array.param]).is_some()
    };
    connection.shares() && layout.arrays.iter().any(is_filled)
}

/// The location of an array that the caller made in shared memory. A section is copied instead, so
/// that the library cannot reach the rest of the array.
fn born(
    connection: &Connection,
    array: &ArrayLayout,
    argument: &Argument<'_>,
) -> Option<SharedRange> {
    let bytes = argument.bytes();
    let (segment, offset) = connection.pool().find(bytes.as_ptr(), bytes.len())?;
    let unit = u64::from(array.element.swap_unit());
    let whole = array.is_full() && array.bytes == bytes.len() as u64;
    (whole && offset.is_multiple_of(unit)).then_some(SharedRange { segment, offset })
}

impl Staging {
    /// # Safety
    /// The argument outlives the staging, and the layout fits it.
    unsafe fn copy_in(&mut self, array: &ArrayLayout, argument: &mut Argument<'_>) {
        let start = argument.memory().start;
        let place = array.place.map_or(0, |place| place.offset as usize);
        // SAFETY: the segment has room for the array there, and nobody else uses it now.
        unsafe {
            if !array.is_full() {
                let target = self.segment.start().add(place);
                target.write_bytes(0, array.bytes as usize);
            }
            if array.mode.is_sent() {
                copy(array, |client, staged, length| {
                    let target = self.segment.start().add(staged);
                    target.copy_from_nonoverlapping(start.add(client), length);
                });
            }
        }
        if array.mode.is_returned() {
            self.returned.push((array.clone(), start));
        }
    }

    /// Copies the results of a successful call to the caller's arrays.
    pub(crate) fn finish(self) {
        for (array, start) in &self.returned {
            copy(array, |client, staged, length| {
                // SAFETY: the layout fits the caller's array and the segment.
                unsafe {
                    let source = self.segment.start().add(staged);
                    start.add(client).copy_from_nonoverlapping(source, length);
                }
            });
        }
        let excess = self.connection.pool().give_back(self.segment);
        drop(excess);
    }
}

/// The parts of an array's section: offset in the caller's array, offset in the segment, length.
fn copy(array: &ArrayLayout, mut part: impl FnMut(usize, usize, usize)) {
    let mut staged = array.buffer_runs();
    let mut room = 0..0;
    for run in array.client_runs() {
        let (mut client, end) = (run.offset, run.offset + run.len);
        while client < end {
            if room.is_empty() {
                let Some(next) = staged.next() else { return };
                room = next.offset..next.offset + next.len;
            }
            let length = (end - client).min(room.end - room.start);
            part(client as usize, room.start as usize, length as usize);
            client += length;
            room.start += length;
        }
    }
}
