//! Converts arrays of texts to the form that C and Fortran expect, and back. The fields of an array
//! of fixed length do not move: C gets copies, whose texts are copied back after the call.

use farcall_idl::{ArrayLayout, Mode, Scalar, text_of};
use std::ffi::{CStr, c_void};
use std::ptr;

/// Private copies of texts in C's form: an array of pointers that ends with NULL.
pub(crate) struct TextArray {
    pointers: Vec<*const u8>,
    _texts: Vec<Box<[u8]>>,
}

impl TextArray {
    pub(crate) fn new(texts: &[String]) -> TextArray {
        let texts: Vec<Box<[u8]>> = texts.iter().map(|text| ended(text)).collect();
        let ends = std::iter::once(ptr::null());
        let null = Scalar::NULL_TEXT.as_bytes();
        let pointers = texts.iter().map(|text| match text.strip_suffix(b"\0") {
            Some(text) if text == null => ptr::null(),
            _ => text.as_ptr(),
        });
        let pointers = pointers.chain(ends);
        TextArray {
            pointers: pointers.collect(),
            _texts: texts,
        }
    }

    pub(crate) fn pointers(&self) -> *const *const u8 {
        self.pointers.as_ptr()
    }
}

/// The text followed by NUL.
pub(crate) fn ended(text: &str) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(text.len() + 1);
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
    bytes.into_boxed_slice()
}

/// An array of texts of fixed length during a call. Before and after the call, each field holds a
/// text followed by NULs.
pub(crate) struct FixedTexts {
    fields: *mut u8,
    bytes: usize,
    length: usize,
    mode: Mode,
    /// For C: pointers to copies of the fields. Each copy is one byte longer, for the NUL at its
    /// end.
    apart: Option<Apart>,
}

struct Apart {
    copies: Vec<u8>,
    pointers: Vec<*mut u8>,
}

impl FixedTexts {
    /// # Safety
    /// `start` is good for reads and writes of the bytes of the array until the last use of this.
    pub(crate) unsafe fn new(array: &ArrayLayout, start: *mut u8, mode: Mode) -> FixedTexts {
        FixedTexts {
            fields: start,
            bytes: array.client_bytes as usize,
            length: array.text_length(),
            mode,
            apart: None,
        }
    }

    fn fields(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let bytes = match self.bytes {
            0 => &mut [],
            // SAFETY: the promise of `new`; nobody else touches the memory while no library runs.
            length => unsafe { std::slice::from_raw_parts_mut(self.fields, length) },
        };
        bytes.chunks_exact_mut(self.length)
    }

    /// Converts to C's form: an array of pointers to NUL-terminated texts that ends with NULL. Each
    /// text has space for the longest text and its NUL.
    pub(crate) fn apart(mut self) -> FixedTexts {
        let (room, is_sent) = (self.length + 1, self.mode.is_sent());
        let mut copies = vec![0; self.bytes / self.length * room];
        for (copy, field) in copies.chunks_exact_mut(room).zip(self.fields()) {
            let text = text_of(field);
            if is_sent {
                copy[..text.len()].copy_from_slice(text);
            }
        }
        let starts = copies.chunks_exact_mut(room).map(<[u8]>::as_mut_ptr);
        let pointers = starts.chain(std::iter::once(ptr::null_mut())).collect();
        self.apart = Some(Apart { copies, pointers });
        self
    }

    /// Converts to Fortran's form: the fields, with each text padded with blanks.
    pub(crate) fn blank(mut self) -> FixedTexts {
        let is_sent = self.mode.is_sent();
        for field in self.fields() {
            let used = if is_sent { text_of(field).len() } else { 0 };
            field[used..].fill(b' ');
        }
        self
    }

    /// The argument for the function.
    pub(crate) fn argument(&mut self) -> *const c_void {
        match &mut self.apart {
            // A function may put other pointers there.
            Some(apart) => apart.pointers.as_mut_ptr().cast_const().cast(),
            None => self.fields.cast_const().cast(),
        }
    }

    /// Copies the texts that the function has written, or to which it has set the pointers, back to
    /// the fields. NULL is an empty text.
    ///
    /// # Errors
    /// A text is longer than its field.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        if !self.mode.is_returned() {
            return Ok(());
        }
        let room = self.length + 1;
        let Some(apart) = self.apart.take() else {
            for field in self.fields() {
                let last = field.iter().rposition(|byte| !matches!(byte, b' ' | 0));
                field[last.map_or(0, |last| last + 1)..].fill(0);
            }
            return Ok(());
        };
        let copies = apart.copies.chunks_exact(room).zip(&apart.pointers);
        for (index, (field, (copy, &pointer))) in self.fields().zip(copies).enumerate() {
            let text = match pointer.cast_const() {
                own if own == copy.as_ptr() => text_of(&copy[..field.len()]),
                null if null.is_null() => &[],
                // SAFETY: the function has put a text there: it is trusted with its interface.
                other => unsafe { CStr::from_ptr(other.cast()) }.to_bytes(),
            };
            let Some((used, rest)) = field.split_at_mut_checked(text.len()) else {
                let (given, most) = (text.len(), field.len());
                return Err(format!(
                    "string {index} of a result has {given} bytes, declared are at most {most}"
                ));
            };
            used.copy_from_slice(text);
            rest.fill(0);
        }
        Ok(())
    }
}
