//! Channels between the processes of a gang job, for C. `farcall_channel` does the work. One thread
//! at a time may use a channel.

use crate::Status;
use crate::call::{list, list_mut};
use crate::error::{Problem, guard, status};
use crate::steps::Array;
use farcall_channel::{ChannelError, Message, Reduction};
use std::ffi::c_void;
use std::ptr;

/// The end of a channel in this process. Only one thread may use it at a time.
pub struct Channel(farcall_channel::Channel, pub(crate) Vec<Array>);

/// Opens the channel of a number, from 0, in a process of a gang job. Returns NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_channel_open(number: u8) -> *mut Channel {
    guard(ptr::null_mut(), || {
        let channel = farcall_channel::Channel::open_number(number)?;
        Ok(Box::into_raw(Box::new(Channel(channel, Vec::new()))))
    })
}

/// Closes a channel. NULL does nothing.
///
/// # Safety
/// `channel` is from `farcall_channel_open`; the program does not use it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_close(channel: *mut Channel) {
    guard((), || {
        if !channel.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(channel) });
        }
        Ok(())
    });
}

/// The rank of this process, from 0.
///
/// # Safety
/// `channel` is from `farcall_channel_open`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_rank(channel: *const Channel) -> usize {
    // SAFETY: the caller's promise.
    unsafe { channel.as_ref() }.map_or(0, |channel| channel.0.rank())
}

/// The number of processes of the job.
///
/// # Safety
/// `channel` is from `farcall_channel_open`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_size(channel: *const Channel) -> usize {
    // SAFETY: the caller's promise.
    unsafe { channel.as_ref() }.map_or(0, |channel| channel.0.size())
}

/// Sends a message. It returns when the message is in the FIFO, and sleeps while the FIFO is full.
///
/// # Safety
/// `channel` is from `farcall_channel_open`; `bytes` points to `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_send(
    channel: *mut Channel,
    target: usize,
    bytes: *const c_void,
    count: usize,
) -> Status {
    with(channel, |channel| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { list(bytes.cast(), count, "bytes") }?;
        Ok(channel.send(target, bytes)?)
    })
}

/// The most bytes of a message that `farcall_channel_try_send` accepts. Since `FARCALL_1.8`.
///
/// # Safety
/// `channel` is from `farcall_channel_open`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_eager_bytes(channel: *const Channel) -> usize {
    // SAFETY: the caller's promise.
    unsafe { channel.as_ref() }.map_or(0, |channel| channel.0.eager_bytes())
}

/// Whether the process of a rank runs on this node: 1 or 0, and 0 if the rank does not exist. Since
/// `FARCALL_1.8`.
///
/// # Safety
/// `channel` is from `farcall_channel_open`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_is_local(channel: *const Channel, rank: usize) -> i32 {
    // SAFETY: the caller's promise.
    let channel = unsafe { channel.as_ref() };
    channel.map_or(0, |channel| i32::from(channel.0.is_local(rank)))
}

/// Sends a message if it fits into the FIFO now, and never sleeps. Returns 1 if the message was
/// sent, 0 if there is no space for it now, and -1 for an error, such as a message of more than
/// `farcall_channel_eager_bytes`. Since `FARCALL_1.8`.
///
/// # Safety
/// `channel` is from `farcall_channel_open`; `bytes` points to `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_try_send(
    channel: *mut Channel,
    target: usize,
    bytes: *const c_void,
    count: usize,
) -> i32 {
    attempt(channel, |channel| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { list(bytes.cast(), count, "bytes") }?;
        Ok(channel.try_send(target, bytes)?)
    })
}

/// The same for a message of two parts: `head_count` bytes at `head`, at most 64, and then `count`
/// bytes at `bytes`. Since `FARCALL_1.8`.
///
/// # Safety
/// As for `farcall_channel_try_send`; `head` points to `head_count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_try_send_parts(
    channel: *mut Channel,
    target: usize,
    head: *const c_void,
    head_count: usize,
    bytes: *const c_void,
    count: usize,
) -> i32 {
    attempt(channel, |channel| {
        // SAFETY: the caller's promise.
        let (head, bytes) = unsafe {
            (
                list(head.cast(), head_count, "bytes")?,
                list(bytes.cast(), count, "bytes")?,
            )
        };
        Ok(channel.try_send_parts(target, head, bytes)?)
    })
}

/// Looks for a message from the rank `*source`, or from any rank if that is negative. If there is
/// one, it sets `*source` to its sender and `*count` to its size, copies its first bytes to `head`,
/// which has `head_room` bytes, at most 64, and returns 1. The message remains in the channel.
/// Returns 0 if there is none, and -1 for an error. Since `FARCALL_1.8`.
///
/// # Safety
/// `channel` is from `farcall_channel_open`; `head` points to `head_room` bytes, `source` and
/// `count` to a number each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_peek(
    channel: *mut Channel,
    source: *mut i64,
    head: *mut c_void,
    head_room: usize,
    count: *mut usize,
) -> i32 {
    attempt(channel, |channel| {
        // SAFETY: the caller's promise.
        unsafe {
            into_buffer(source, head, head_room, count, |source, head| {
                channel.peek(source, head)
            })
        }
    })
}

/// Receives the next message from the rank `source` in two parts: its first bytes fill `head`, of
/// `head_room` bytes, at most 64, and the others go to `buffer`, which has `room` bytes. It sleeps
/// until the whole message is there, and sets `*count` to its size. A larger message remains in the
/// channel. Since `FARCALL_1.8`.
///
/// # Safety
/// `channel` is from `farcall_channel_open`; `head` points to `head_room` bytes, `buffer` to `room`
/// bytes, `count` to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_receive_parts(
    channel: *mut Channel,
    source: usize,
    head: *mut c_void,
    head_room: usize,
    buffer: *mut c_void,
    room: usize,
    count: *mut usize,
) -> Status {
    with(channel, |channel| {
        // SAFETY: the caller's promise.
        let count = unsafe { count.as_mut() }.ok_or_else(|| Problem::null("count"))?;
        // SAFETY: the caller's promise.
        let (head, buffer) = unsafe {
            (
                list_mut(head.cast(), head_room, "buffer")?,
                list_mut(buffer.cast(), room, "buffer")?,
            )
        };
        *count = channel.receive_parts(source, head, buffer)?.bytes;
        Ok(())
    })
}

/// Receives a message as `farcall_channel_receive` does, if there is one. Returns 1 if a message
/// was received, 0 if there is none, and -1 for an error. If only the first part of a message has
/// come, it sleeps until the rest has. Since `FARCALL_1.8`.
///
/// # Safety
/// As for `farcall_channel_receive`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_try_receive(
    channel: *mut Channel,
    source: *mut i64,
    buffer: *mut c_void,
    room: usize,
    count: *mut usize,
) -> i32 {
    attempt(channel, |channel| {
        // SAFETY: the caller's promise.
        unsafe {
            into_buffer(source, buffer, room, count, |source, buffer| {
                channel.try_receive(source, buffer)
            })
        }
    })
}

/// Receives a message from the rank `*source`, or from any rank if that is negative, into `buffer`
/// of `room` bytes. It sleeps until there is a message. It sets `*source` to the sender and
/// `*count` to the size. A message that is larger than the buffer remains in the channel.
///
/// # Safety
/// `channel` is from `farcall_channel_open`; `buffer` points to `room` bytes, `source` and `count`
/// to a number each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_receive(
    channel: *mut Channel,
    source: *mut i64,
    buffer: *mut c_void,
    room: usize,
    count: *mut usize,
) -> Status {
    with(channel, |channel| {
        // SAFETY: the caller's promise.
        unsafe {
            into_buffer(source, buffer, room, count, |source, buffer| {
                channel.receive(source, buffer).map(Some)
            })
        }
        .map(drop)
    })
}

/// Whether a message from the rank `source`, or from any rank if that is negative, can be received
/// without sleeping: 1 or 0, or -1 for an error.
///
/// # Safety
/// `channel` is from `farcall_channel_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_poll(channel: *mut Channel, source: i64) -> i32 {
    attempt(channel, |channel| {
        Ok(channel.poll(usize::try_from(source).ok())?.is_some())
    })
}

/// What a process looks for that never sleeps: a message, or that a process takes a message from
/// it. Since `FARCALL_1.8`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// 1 for a message that this process wants to send, 0 for one that it wants to receive.
    pub is_send: i32,
    /// Whether the tag is known: 1 or 0.
    pub has_tag: i32,
    /// The rank of the other process; negative for any, of a message to receive.
    pub rank: i64,
    pub tag: u32,
}

/// Says what this process looks for, `count` things, to those who judge the state of the job. Each
/// of them lets it go on, and so does something else if `has_others` is not 0. It holds until the
/// next call: call this with nothing (`NULL, 0, 0`) as soon as it may have changed. Since
/// `FARCALL_1.8`.
///
/// # Safety
/// `channel` is from `farcall_channel_open`; `wanted` points to `count` things.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_say_wanted(
    channel: *mut Channel,
    wanted: *const Wanted,
    count: usize,
    has_others: i32,
) -> Status {
    with(channel, |channel| {
        // SAFETY: the caller's promise.
        let wanted = unsafe { list(wanted, count, "wanted") }?;
        let most = wanted.len().min(farcall_channel::WANTED);
        let all: Option<Vec<_>> = wanted[..most].iter().map(Wanted::checked).collect();
        let all = all.ok_or_else(|| Problem::argument("a rank is out of its range".to_string()))?;
        channel.say_wanted(&all, has_others != 0 || most < count);
        Ok(())
    })
}

/// Says how often this process has looked for what it wants and has found nothing, in all. Since
/// `FARCALL_1.8`.
///
/// # Safety
/// `channel` is from `farcall_channel_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_say_polls(channel: *mut Channel, polls: u64) -> Status {
    with(channel, |channel| {
        channel.say_polls(polls);
        Ok(())
    })
}

impl Wanted {
    /// The same for the channel, or none if the rank is impossible.
    fn checked(&self) -> Option<farcall_channel::Wanted> {
        let rank = u16::try_from(self.rank).ok();
        let tag = (self.has_tag != 0).then_some(self.tag);
        match (self.is_send != 0, rank) {
            (true, rank) => Some(farcall_channel::Wanted::Receive { target: rank?, tag }),
            (false, None) if self.rank >= 0 => None,
            (false, source) => Some(farcall_channel::Wanted::Message { source, tag }),
        }
    }
}

/// Waits until every process has called this.
///
/// # Safety
/// `channel` is from `farcall_channel_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_barrier(channel: *mut Channel) -> Status {
    with(channel, |channel| Ok(channel.barrier()?))
}

/// Copies the `count` bytes of `root` to all processes.
///
/// # Safety
/// `channel` is from `farcall_channel_open`; `bytes` points to `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_broadcast(
    channel: *mut Channel,
    root: usize,
    bytes: *mut c_void,
    count: usize,
) -> Status {
    with(channel, |channel| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { list_mut(bytes.cast(), count, "bytes") }?;
        Ok(channel.broadcast(root, bytes)?)
    })
}

/// Adds the numbers of all processes, place by place, and gives the sums to all of them.
///
/// # Safety
/// `channel` is from `farcall_channel_open`; `numbers` points to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_sum(
    channel: *mut Channel,
    numbers: *mut f64,
    count: usize,
) -> Status {
    with(channel, |channel| {
        // SAFETY: the caller's promise.
        let numbers = unsafe { list_mut(numbers, count, "numbers") }?;
        Ok(channel.all_reduce(Reduction::Sum, numbers)?)
    })
}

/// Receives into a buffer of a program. Returns whether there was a message.
///
/// # Safety
/// `buffer` points to `room` bytes, `source` and `count` to a number each.
#[inline]
unsafe fn into_buffer(
    source: *mut i64,
    buffer: *mut c_void,
    room: usize,
    count: *mut usize,
    receive: impl FnOnce(Option<usize>, &mut [u8]) -> Result<Option<Message>, ChannelError>,
) -> Result<bool, Problem> {
    // SAFETY: the caller's promise.
    let source = unsafe { source.as_mut() }.ok_or_else(|| Problem::null("source"))?;
    // SAFETY: the caller's promise.
    let count = unsafe { count.as_mut() }.ok_or_else(|| Problem::null("count"))?;
    // SAFETY: the caller's promise.
    let buffer = unsafe { list_mut(buffer.cast(), room, "buffer") }?;
    let Some(message) = receive(usize::try_from(*source).ok(), buffer)? else {
        return Ok(false);
    };
    *source = message.source as i64;
    *count = message.bytes;
    Ok(true)
}

/// Returns 1 or 0, or -1 for an error.
#[inline]
fn attempt(
    channel: *mut Channel,
    act: impl FnOnce(&mut farcall_channel::Channel) -> Result<bool, Problem>,
) -> i32 {
    guard(-1, || {
        // SAFETY: as in `with`.
        let channel = unsafe { channel.as_mut() }.ok_or_else(|| Problem::null("channel"))?;
        act(&mut channel.0).map(i32::from)
    })
}

#[inline]
pub(crate) fn with(
    channel: *mut Channel,
    act: impl FnOnce(&mut farcall_channel::Channel) -> Result<(), Problem>,
) -> Status {
    status(|| {
        // SAFETY: each caller of this has the promise that it is NULL or an open channel.
        let channel = unsafe { channel.as_mut() }.ok_or_else(|| Problem::null("channel"))?;
        act(&mut channel.0).map(|()| Status::FarcallOk)
    })
}

impl From<ChannelError> for Problem {
    fn from(error: ChannelError) -> Problem {
        let text = error.to_string();
        match error {
            ChannelError::Corrupt(_) | ChannelError::System(_) => {
                Problem::new(Status::FarcallInternal, text)
            }
            _ => Problem::argument(text),
        }
    }
}
