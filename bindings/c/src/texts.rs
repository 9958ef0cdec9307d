//! Arrays of texts of fixed length: their fields during a call, and where the caller has them.
//! `farcall_idl` has the form of the fields. The texts of a call live as long as the call, and
//! results are given to the caller once.

use crate::Kind;
use crate::argument::{Value, mismatch};
use crate::gridrpc::ninfg;
use crate::ninf;
use farcall_client::Argument;
use farcall_idl::{ArrayLayout, Mode, Param, read_texts};
use std::ffi::{CStr, c_char};
use std::{ptr, slice};

/// The texts of one call. They hold the memory that the call reads and writes.
#[derive(Default)]
pub(crate) struct Texts(Vec<Array>);

struct Array {
    mode: Mode,
    length: usize,
    fields: Vec<u8>,
    place: TextMemory,
}

/// Where the caller has the texts.
#[derive(Clone, Copy)]
enum TextMemory {
    /// Pointers to texts that end with NUL, each with memory for the longest.
    Room(*const *mut c_char),
    /// Pointers that the library sets, to memory of `malloc`.
    Made(*mut *mut c_char),
    /// Rows of this many characters, padded with blanks.
    Rows(*mut u8, usize),
    /// Texts that end with NUL, one after the other; the call only reads them.
    Read,
}

// SAFETY: the pointers belong to the caller, who has promised that no other thread uses them while
// the call is under way.
unsafe impl Send for Texts {}

impl Texts {
    /// Whether the call returns texts.
    pub(crate) fn are_returned(&self) -> bool {
        self.0.iter().any(|array| array.mode.is_returned())
    }

    /// The argument for an array; `mode` says how the call uses it.
    ///
    /// # Safety
    /// As for `farcall_call_array`; the texts outlive the argument.
    pub(crate) unsafe fn add<'a>(
        &mut self,
        (param, layout): (&Param, &ArrayLayout),
        value: &Value,
        mode: Mode,
    ) -> Result<Argument<'a>, String> {
        // SAFETY: the caller's promise.
        let value = unsafe { value.without_rows(layout.text_count()) };
        let value = &value.map_err(|given| mismatch(param, &given))?;
        // SAFETY: the same promise.
        let place = unsafe { place(layout, value, mode) };
        let place = place.map_err(|given| mismatch(param, &given))?;
        let mut fields = vec![0; layout.client_bytes as usize];
        if mode.is_sent() {
            // SAFETY: the caller's promise; `place` has checked the sizes.
            let texts = unsafe { given(place, value, layout) };
            let texts = texts.map_err(|given| mismatch(param, &given))?;
            let texts = texts.iter().copied();
            let written = layout.write_texts(param, texts, &mut fields);
            written.map_err(|error| error.to_string())?;
        }
        let (start, bytes) = (fields.as_mut_ptr(), fields.len());
        self.0.push(Array {
            mode,
            length: layout.text_length(),
            fields,
            place,
        });
        // SAFETY: the memory does not move as long as `self` exists, which outlives the argument,
        // and nothing uses it before the call has ended.
        Ok(unsafe {
            match mode {
                Mode::In => Argument::In(slice::from_raw_parts(start, bytes)),
                _ => Argument::Out(slice::from_raw_parts_mut(start, bytes)),
            }
        })
    }

    /// Gives the returned texts to the caller; works once.
    pub(crate) fn deliver(&mut self) {
        for array in self.0.drain(..).filter(|array| array.mode.is_returned()) {
            for (index, text) in read_texts(&array.fields, array.length).enumerate() {
                // SAFETY: the promise of `add`; `place` has checked what can be checked.
                unsafe { array.place.put(index, text) };
            }
        }
    }
}

impl TextMemory {
    /// # Safety
    /// The place has a text of that index, and as much memory as the interface states.
    unsafe fn put(self, index: usize, text: &[u8]) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                TextMemory::Room(pointers) => {
                    let room: *mut u8 = pointers.add(index).read_unaligned().cast();
                    ptr::copy_nonoverlapping(text.as_ptr(), room, text.len());
                    room.add(text.len()).write(0);
                }
                TextMemory::Made(pointers) => {
                    // It has no NUL: it ends before the first one.
                    let made: *mut u8 = libc::malloc(text.len() + 1).cast();
                    if !made.is_null() {
                        ptr::copy_nonoverlapping(text.as_ptr(), made, text.len());
                        made.add(text.len()).write(0);
                    }
                    pointers.add(index).write_unaligned(made.cast());
                }
                TextMemory::Rows(start, row) => {
                    let row = slice::from_raw_parts_mut(start.add(index * row), row);
                    row[..text.len()].copy_from_slice(text);
                    row[text.len()..].fill(b' ');
                }
                TextMemory::Read => {}
            }
        }
    }
}

/// # Safety
/// As for [`Texts::add`].
unsafe fn place(layout: &ArrayLayout, value: &Value, mode: Mode) -> Result<TextMemory, String> {
    let (count, length) = (layout.text_count(), layout.text_length());
    if count > 0 && value.data.is_null() {
        return Err("NULL".to_owned());
    }
    if value.read_only != 0 && mode != Mode::In {
        return Err("one that may not be written to".to_owned());
    }
    let pointers: *mut *mut c_char = value.data.cast();
    match value.kind {
        kind if kind == Kind::FarcallArray as i32 && ninfg::is_calling() && mode != Mode::In => {
            Ok(TextMemory::Made(pointers))
        }
        kind if kind == Kind::FarcallArray as i32 => {
            let is_null = |index: &usize| {
                // SAFETY: the caller's promise.
                unsafe { pointers.add(*index).read_unaligned() }.is_null()
            };
            match (0..count).find(is_null) {
                Some(_) if ninf::is_calling() && mode != Mode::In => Ok(TextMemory::Made(pointers)),
                Some(index) => Err(format!(
                    "NULL as string {index}, and the call needs {count}"
                )),
                None => Ok(TextMemory::Room(pointers)),
            }
        }
        kind if kind == Kind::FarcallTexts as i32 => {
            match value.bytes == count * size_of::<*mut c_char>() {
                true => Ok(TextMemory::Made(pointers)),
                false => Err(format!(
                    "{} of them",
                    value.bytes / size_of::<*mut c_char>()
                )),
            }
        }
        kind if kind == Kind::FarcallChar as i32 => {
            let row = value.bytes.checked_div(count).unwrap_or(0);
            match value.bytes == row * count && (row >= length || mode == Mode::In || count == 0) {
                true => Ok(TextMemory::Rows(value.data.cast(), row)),
                false => Err(format!(
                    "{} characters for {count} of {length}",
                    value.bytes
                )),
            }
        }
        kind if kind == Kind::FarcallText as i32 && mode == Mode::In => Ok(TextMemory::Read),
        _ => Err(value.what()),
    }
}

/// The texts of the caller.
///
/// # Safety
/// As for [`Texts::add`]; nothing writes to them while the slices are used.
unsafe fn given<'a>(
    place: TextMemory,
    value: &Value,
    layout: &ArrayLayout,
) -> Result<Vec<&'a [u8]>, String> {
    let texts = match place {
        TextMemory::Room(_) | TextMemory::Made(_) => {
            let pointers: *const *const c_char = value.data.cast_const().cast();
            let text = |index: usize| {
                // SAFETY: the caller's promise.
                unsafe {
                    match pointers.add(index).read_unaligned() {
                        text if text.is_null() => &[],
                        text => CStr::from_ptr(text).to_bytes(),
                    }
                }
            };
            (0..layout.text_count()).map(text).collect()
        }
        TextMemory::Rows(start, row) => {
            let row = row.max(1);
            // SAFETY: the caller's promise.
            let rows = unsafe { bytes(start, value.bytes) }.chunks_exact(row);
            rows.map(|row| {
                let last = row.iter().rposition(|byte| !matches!(byte, b' ' | 0));
                &row[..last.map_or(0, |last| last + 1)]
            })
            .collect()
        }
        TextMemory::Read => {
            // SAFETY: the caller's promise.
            let texts = unsafe { bytes(value.data.cast(), value.bytes) };
            let texts = texts.split_inclusive(|byte| *byte == 0);
            texts
                .map(|text| text.strip_suffix(&[0]).unwrap_or(text))
                .collect()
        }
    };
    is_utf8(texts)
}

fn is_utf8(texts: Vec<&[u8]>) -> Result<Vec<&[u8]>, String> {
    match texts.iter().any(|text| std::str::from_utf8(text).is_err()) {
        true => Err("text that is not UTF-8".to_owned()),
        false => Ok(texts),
    }
}

/// # Safety
/// `start` points to `length` bytes.
unsafe fn bytes<'a>(start: *const u8, length: usize) -> &'a [u8] {
    match length {
        0 => &[],
        // SAFETY: the caller's promise.
        length => unsafe { slice::from_raw_parts(start, length) },
    }
}

/// Frees the texts that a call has made for an argument of kind `FARCALL_TEXTS`, and sets the
/// pointers to NULL.
///
/// # Safety
/// `texts` points to `count` pointers, which are NULL or were set by such a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_free_texts(texts: *mut *mut c_char, count: usize) {
    if texts.is_null() {
        return;
    }
    for index in 0..count {
        // SAFETY: the caller's promise.
        unsafe {
            let text = texts.add(index).replace(ptr::null_mut());
            if !text.is_null() {
                libc::free(text.cast());
            }
        }
    }
}
