//! Programs in steps, for C: a program registers its arrays and a function that does one step. A
//! gang job of such programs can be moved and restarted. `farcall_channel` does the work.

use crate::Status;
use crate::call::list;
use crate::channel::{Channel, with};
use crate::error::Problem;
use std::ffi::c_void;

/// An array of a program: where it is, and its size in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Array {
    pub data: *mut c_void,
    pub bytes: usize,
}

/// One step of a program: its number, from 0, and what the program has passed to
/// `farcall_channel_run`. It returns 1 if another step follows, 0 if this was the last one, and
/// another number if it failed.
pub type StepFunction =
    Option<unsafe extern "C" fn(channel: *mut Channel, step: u64, user: *mut c_void) -> i32>;

/// Registers the state of this process, `count` arrays, before it sends or receives the first
/// message. The arrays must exist until `farcall_channel_run` returns. If the job was restarted or
/// moved, this fills them and sets `*is_restored`, which may be NULL, to 1; otherwise to 0.
///
/// # Safety
/// `channel` is from `farcall_channel_open`; `arrays` points to `count` arrays, each with `bytes`
/// bytes at `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_register(
    channel: *mut Channel,
    arrays: *const Array,
    count: usize,
    is_restored: *mut i32,
) -> Status {
    let done = with(channel, |channel| {
        // SAFETY: the caller's promise.
        let arrays = unsafe { list(arrays, count, "arrays") }?;
        if arrays
            .iter()
            .any(|array| array.data.is_null() && array.bytes > 0)
        {
            return Err(Problem::null("data of an array"));
        }
        let lengths = arrays.iter().map(|array| array.bytes as u64).collect();
        let reader = channel.begin_register(lengths)?;
        let was = i32::from(reader.is_some());
        if let Some(mut reader) = reader {
            for array in arrays {
                // SAFETY: the caller's promise.
                reader.read(unsafe { array.contents() })?;
            }
            channel.end_register();
        }
        // SAFETY: the caller's promise.
        if let Some(is_restored) = unsafe { is_restored.as_mut() } {
            *is_restored = was;
        }
        Ok(())
    });
    if done == Status::FarcallOk && count > 0 {
        // SAFETY: both were checked above.
        unsafe { (*channel).1 = std::slice::from_raw_parts(arrays, count).to_vec() };
    }
    done
}

/// Does one step after another until `step` returns 0, then waits until all processes have done
/// theirs. Between two steps the job can be moved, and its state can be taken. What a step receives
/// should have been sent in a step with the same or a lower number.
///
/// # Safety
/// `channel` is from `farcall_channel_open`, and its arrays exist; `step` is a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_channel_run(
    channel: *mut Channel,
    step: StepFunction,
    user: *mut c_void,
) -> Status {
    loop {
        let mut next = None;
        // SAFETY: `with` refuses NULL; otherwise the caller's promise.
        let arrays = unsafe { channel.as_ref() }.map(|channel| channel.1.clone());
        let arrays = arrays.unwrap_or_default();
        let done = with(channel, |channel| {
            let function = step.ok_or(Problem::null("step"))?;
            let number = channel.next_step(&mut |each| {
                for array in &arrays {
                    // SAFETY: the caller's promise.
                    each(unsafe { array.contents() });
                }
            })?;
            next = number.map(|number| (function, number));
            Ok(())
        });
        let Some((function, number)) = next else {
            return done;
        };
        // SAFETY: the caller's promise. The function uses the channel, so nobody else does now.
        let said = unsafe { function(channel, number, user) };
        let done = with(channel, |channel| match said {
            0 | 1 => {
                channel.end_step(said == 1);
                Ok(())
            }
            other => Err(Problem::argument(format!(
                "step {number} returned {other}; 1 means that another step follows, and 0 that \
                 this was the last one"
            ))),
        });
        if done != Status::FarcallOk {
            return done;
        }
    }
}

impl Array {
    /// # Safety
    /// There are that many bytes, and nobody else uses them.
    unsafe fn contents<'a>(self) -> &'a mut [u8] {
        match self.bytes {
            0 => &mut [],
            // SAFETY: the caller's promise.
            bytes => unsafe { std::slice::from_raw_parts_mut(self.data.cast(), bytes) },
        }
    }
}
