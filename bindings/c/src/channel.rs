//! Channels between the processes of a gang job, for C. `farcall_channel` does the work. One thread
//! at a time may use a channel.

use crate::Status;
use crate::error::{self, Problem, guard};
use crate::steps::Array;
use farcall_channel::{ChannelError, Reduction};
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
        let bytes = match count {
            0 => &[],
            _ if bytes.is_null() => return Err(Problem::null("bytes")),
            // SAFETY: the caller's promise.
            _ => unsafe { std::slice::from_raw_parts(bytes.cast(), count) },
        };
        Ok(channel.send(target, bytes)?)
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
        let source = unsafe { source.as_mut() }.ok_or(Problem::null("source"))?;
        // SAFETY: the caller's promise.
        let count = unsafe { count.as_mut() }.ok_or(Problem::null("count"))?;
        let buffer = match room {
            0 => &mut [],
            _ if buffer.is_null() => return Err(Problem::null("buffer")),
            // SAFETY: the caller's promise.
            _ => unsafe { std::slice::from_raw_parts_mut(buffer.cast(), room) },
        };
        let message = channel.receive(usize::try_from(*source).ok(), buffer)?;
        *source = message.source as i64;
        *count = message.bytes;
        Ok(())
    })
}

/// Whether a message from the rank `source`, or from any rank if that is negative, can be received
/// without sleeping: 1 or 0, or -1 for an error.
///
/// # Safety
/// `channel` is from `farcall_channel_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_poll(channel: *mut Channel, source: i64) -> i32 {
    let mut found = -1;
    with(channel, |channel| {
        found = i32::from(channel.poll(usize::try_from(source).ok())?.is_some());
        Ok(())
    });
    found
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
        let bytes = match count {
            0 => &mut [],
            _ if bytes.is_null() => return Err(Problem::null("bytes")),
            // SAFETY: the caller's promise.
            _ => unsafe { std::slice::from_raw_parts_mut(bytes.cast(), count) },
        };
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
        let numbers = match count {
            0 => &mut [],
            _ if numbers.is_null() => return Err(Problem::null("numbers")),
            // SAFETY: the caller's promise.
            _ => unsafe { std::slice::from_raw_parts_mut(numbers, count) },
        };
        Ok(channel.all_reduce(Reduction::Sum, numbers)?)
    })
}

pub(crate) fn with(
    channel: *mut Channel,
    act: impl FnOnce(&mut farcall_channel::Channel) -> Result<(), Problem>,
) -> Status {
    let done = guard(None, || {
        // SAFETY: each caller of this has the promise that it is NULL or an open channel.
        let channel = unsafe { channel.as_mut() }.ok_or(Problem::null("channel"))?;
        act(&mut channel.0).map(|()| Some(Status::FarcallOk))
    });
    done.unwrap_or_else(|| error::farcall_error_status())
}

impl From<ChannelError> for Problem {
    fn from(error: ChannelError) -> Problem {
        let text = error.to_string();
        match error {
            ChannelError::Corrupt(_) | ChannelError::System(_) => Problem::internal(text),
            _ => Problem::argument(text),
        }
    }
}
