//! Results whose memory a library allocates: an array of which only the function knows the length,
//! or a text. They are copied into the call buffer, and the library's memory is released as the
//! interface says. A result that is longer than its declared bound is an error and is never cut.

use farcall_idl::{Interface, Layout, Param, Type};
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

/// A result that the library allocates.
#[derive(Debug)]
pub(crate) struct Allocated {
    /// Index among the arrays.
    pub(crate) array: usize,
    name: String,
    is_text: bool,
    /// The array whose element is the number of elements along the first dimension.
    count: Option<usize>,
}

impl Allocated {
    /// The result in the parameter with this index, if the library allocates it: `ordinal` gives
    /// the index of a parameter among the arrays.
    pub(crate) fn of(
        interface: &Interface,
        index: usize,
        ordinal: impl Fn(usize) -> Option<usize>,
    ) -> Option<Allocated> {
        let param: &Param = &interface.params[index];
        let count = param.count.filter(|_| interface.is_allocated(index));
        Some(Allocated {
            array: ordinal(index)?,
            name: param.name.clone(),
            is_text: param.ty == Type::FixedString,
            count: count.and_then(ordinal),
        })
    }

    /// Copies the result to its array.
    ///
    /// # Safety
    /// `layout` and `starts` are those of the call, which has returned. `given` is NULL, or points
    /// to a text or to as many elements as the function has counted.
    pub(crate) unsafe fn copy(
        &self,
        given: *const u8,
        layout: &Layout,
        starts: &[*mut u8],
    ) -> Result<(), String> {
        let form = &layout.arrays[self.array];
        let room = form.bytes as usize;
        // SAFETY: the promise of the caller, for the text and for the counted elements; the array
        // has `room` bytes, and nobody else uses it now.
        unsafe {
            let bytes = match (given.is_null(), self.is_text) {
                (true, true) => 0,
                (false, true) => CStr::from_ptr(given.cast::<c_char>()).count_bytes(),
                (_, false) => self.bytes(layout, starts)?,
            };
            if bytes > room {
                let problem = format!("a text of {bytes} bytes, declared are at most {room}");
                return Err(self.refused(problem));
            }
            if given.is_null() && bytes > 0 {
                return Err(self.refused("a NULL pointer".to_owned()));
            }
            if bytes > 0 {
                ptr::copy_nonoverlapping(given, starts[self.array], bytes);
            }
            ptr::write_bytes(starts[self.array].add(bytes), 0, room - bytes);
        }
        Ok(())
    }

    /// Bytes of the elements that the function has counted.
    ///
    /// # Safety
    /// The same as [`Allocated::copy`].
    unsafe fn bytes(&self, layout: &Layout, starts: &[*mut u8]) -> Result<usize, String> {
        let form = &layout.arrays[self.array];
        let axis = &form.axes[0];
        let Some(array) = self.count else {
            return Ok(form.wire_bytes as usize);
        };
        let counter = &layout.arrays[array];
        // SAFETY: the array of the count has one element.
        let element = unsafe {
            std::slice::from_raw_parts(starts[array].cast_const(), counter.bytes as usize)
        };
        let count = farcall_idl::read_integer(counter.element, element);
        let count = count.and_then(|count| u64::try_from(count).ok());
        match count.filter(|count| *count <= axis.size) {
            Some(0) => Ok(0),
            Some(count) => Ok((form.bytes / axis.size * count) as usize),
            None => {
                let element = farcall_idl::read_integer(counter.element, element);
                let given = element.map_or("an unknown number of".into(), |n| n.to_string());
                let most = axis.size;
                Err(self.refused(format!("{given} elements, declared are at most {most}")))
            }
        }
    }

    fn refused(&self, problem: String) -> String {
        format!("the result `{}` is {problem}", self.name)
    }
}

/// Releases what the library has allocated, each block once.
///
/// # Safety
/// `release` is a function that takes a block of the library. The blocks are from the library and
/// nobody uses them any more.
pub(crate) unsafe fn release(release: *mut c_void, mut blocks: Vec<*mut c_void>) {
    // SAFETY: the promise of the caller.
    let release: unsafe extern "C" fn(*mut c_void) = unsafe { std::mem::transmute(release) };
    blocks.sort_unstable();
    blocks.dedup();
    for block in blocks.into_iter().filter(|block| !block.is_null()) {
        // SAFETY: the promise of the caller.
        unsafe { release(block) };
    }
}
