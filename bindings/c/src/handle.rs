//! Stored arrays and named data. The table of known handles tells an array pointer from a handle
//! where a call takes either.

use crate::call::list;
use crate::connect::Server;
use crate::error::{Problem, guard, status};
use crate::function::kind;
use crate::{Kind, Status, text};
use farcall_client::{Argument, ArrayForm, DataName, NoSource, Source};
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The handle of a stored array, of named data or of an address, which calls take as an array.
pub struct Handle {
    client: Known,
    id: CString,
    version: u64,
}

/// What a handle stands for.
#[derive(Clone)]
enum Known {
    Stored(farcall_client::Handle),
    Source(Box<Source>),
}

impl Handle {
    /// The stored array; an address is none.
    fn stored(&self, function: &str) -> Result<&farcall_client::Handle, Problem> {
        match &self.client {
            Known::Stored(handle) => Ok(handle),
            Known::Source(source) => Err(Problem::argument(format!(
                "{function}: `{}` is an address, which only calls take",
                source.address
            ))),
        }
    }
}

/// The `element` of an array of Fortran that is not allocated (`farcall_fortran.c`).
const NOT_ALLOCATED: c_int = -3;

/// The handles of the process, by their addresses: an argument that is one of them is not an array.
static KNOWN: LazyLock<Mutex<HashMap<usize, Known>>> = LazyLock::new(Mutex::default);
/// How many there are, so that calls without any do not look.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn known() -> MutexGuard<'static, HashMap<usize, Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The array at the server that an argument stands for, if it is a handle, as a call of a function
/// of that server passes it.
pub(crate) fn of_argument(
    argument: *const c_void,
    server: &farcall_client::Server,
) -> Option<Argument<'static>> {
    match COUNT.load(Ordering::Acquire) {
        0 => None,
        _ => Some(match known().get(&argument.addr())? {
            Known::Stored(handle) => handle.argument(server),
            Known::Source(source) => Argument::Source(source.clone()),
        }),
    }
}

/// Whether an argument is a handle.
pub(crate) fn is_one(argument: *const c_void) -> bool {
    COUNT.load(Ordering::Acquire) > 0 && known().contains_key(&argument.addr())
}

fn made(client: farcall_client::Handle) -> *mut Handle {
    let id = client.id();
    let text = CString::new(id.to_string()).unwrap_or_default();
    let version = client.name().map_or(0, |named| named.version);
    registered(Known::Stored(client), text, version)
}

fn registered(client: Known, id: CString, version: u64) -> *mut Handle {
    let of_call = client.clone();
    let handle = Box::into_raw(Box::new(Handle {
        client,
        id,
        version,
    }));
    known().insert(handle.addr(), of_call);
    COUNT.fetch_add(1, Ordering::Release);
    handle
}

/// Stores an array at the server and returns its handle. Pass the handle where a call takes an
/// array. `element` is a kind of number, such as `FARCALL_DOUBLE`. The `rank` lengths of the array
/// are at `shape`. `column_major` is not 0 if the first
/// index varies fastest, as Fortran needs it. If `data` is NULL, all elements are zero: for results
/// that remain at the server. The server keeps the array until `farcall_drop_array`, until the
/// connection ends, or until a day after its last use. Returns NULL on failure.
///
/// # Safety
/// `server` is from `farcall_connect`, `shape` points to `rank` lengths, and `data` is NULL or
/// points to all elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_put(
    server: *mut Server,
    element: c_int,
    shape: *const usize,
    rank: usize,
    column_major: i32,
    data: *const c_void,
) -> *mut Handle {
    // SAFETY: the caller's promise.
    guard(ptr::null_mut(), || unsafe {
        let server = server.as_ref().ok_or(Problem::null("server"))?;
        let (form, bytes) = array_of(element, (shape, rank), column_major, data)?;
        Ok(made(server.put(form, bytes)?))
    })
}

/// Stores an array at the server as `farcall_put` does, but as named data. A name is words with `/`
/// between them. The server keeps named data after the connection ends. Calls can read named data
/// but not write them; another array under the same name is the next version. Behind a metaserver,
/// the array goes to the server that has data of that name, or else to the server with the most
/// free memory. All users can read the data if `shared` is not 0. Returns NULL on failure.
///
/// # Safety
/// As for `farcall_put`; `name` is a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_put_named(
    server: *mut Server,
    element: c_int,
    shape: *const usize,
    rank: usize,
    column_major: i32,
    data: *const c_void,
    name: *const c_char,
    shared: i32,
) -> *mut Handle {
    // SAFETY: the caller's promise.
    guard(ptr::null_mut(), || unsafe {
        let server = server.as_ref().ok_or(Problem::null("server"))?;
        let (form, bytes) = array_of(element, (shape, rank), column_major, data)?;
        let name = text(name, "name")?;
        Ok(made(server.put_named(form, bytes, name, shared != 0)?))
    })
}

/// The handle of named data, at the server or behind the metaserver: `atoms`, `atoms@alice` for
/// data that the user alice shares, or the path of a file in a server's data folder. Pass the
/// handle where a call takes an array, and free it with `farcall_free_handle`. Returns NULL if
/// there are no such data.
///
/// # Safety
/// `server` is from `farcall_connect`, `name` is a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_data(server: *mut Server, name: *const c_char) -> *mut Handle {
    // SAFETY: the caller's promise.
    guard(ptr::null_mut(), || unsafe {
        let server = server.as_ref().ok_or(Problem::null("server"))?;
        let name = text(name, "name")?;
        let name: DataName = name
            .parse()
            .map_err(|error| Problem::argument(format!("farcall_data: {error}")))?;
        Ok(made(server.data(&name)?))
    })
}

/// An array at an address outside of Farcall, such as `https://data.example.org/a.npy`. Pass the
/// handle where a call takes an array: the server of the call reads the address, if its operator
/// allows it. Where a call returns an array, the server writes it there. Options follow the
/// address: `s3://BUCKET/KEY#columns=rain&format=csv`; the names are `format`, `type`, `shape`,
/// `order`, `columns`, `rows`, `sha256`, and `query` at the end. Free the handle with
/// `farcall_free_handle`. Returns NULL if an option is wrong. Since `FARCALL_1.6`.
///
/// # Safety
/// `address` is a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_url(address: *const c_char) -> *mut Handle {
    // SAFETY: the caller's promise.
    guard(ptr::null_mut(), || unsafe {
        let source: Source = text(address, "address")?
            .parse()
            .map_err(|error: NoSource| Problem::argument(format!("farcall_url: {error}")))?;
        Ok(registered(
            Known::Source(Box::new(source)),
            CString::default(),
            0,
        ))
    })
}

/// The version of named data, from 1; 0 if the array has no name.
///
/// # Safety
/// `handle` is from `farcall_put_named` or `farcall_data`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_data_version(handle: *const Handle) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.map_or(0, |handle| handle.version)
}

/// Frees the handle of a stored array or of named data. The array remains at the server. Since
/// `FARCALL_1.5`.
///
/// # Safety
/// `handle` is from a function that returns handles, or NULL; the program does not use it
/// afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_free_handle(handle: *mut Handle) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        unsafe { taken(handle, "farcall_free_handle") }?;
        Ok(Status::FarcallOk)
    })
}

/// The handle of a stored array, by its id. Returns NULL if there is no such array.
///
/// # Safety
/// `server` is from `farcall_connect`, `id` is a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_handle_of(server: *mut Server, id: *const c_char) -> *mut Handle {
    // SAFETY: the caller's promise.
    guard(ptr::null_mut(), || unsafe {
        let server = server.as_ref().ok_or(Problem::null("server"))?;
        let id = text(id, "id")?;
        let id = id
            .parse()
            .map_err(|error| Problem::argument(format!("`{id}`: {error}")))?;
        Ok(made(server.handle(id)?))
    })
}

/// The id of a stored array, 32 hexadecimal digits. It is valid as long as the handle.
///
/// # Safety
/// `handle` is from `farcall_put` or `farcall_handle_of`, or NULL, whose id is empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_handle_id(handle: *const Handle) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.map_or(c"".as_ptr(), |handle| handle.id.as_ptr())
}

/// Gets a stored array, in its own order, after all earlier calls that use it. `bytes` is the size
/// of the array.
///
/// # Safety
/// `handle` is from a function that returns handles; `data` points to `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_get(
    handle: *const Handle,
    data: *mut c_void,
    bytes: usize,
) -> Status {
    // SAFETY: the caller's promise.
    status(|| unsafe { get(handle, None, data, bytes) })
}

/// The same as `farcall_get` for an array whose elements must be of this kind, such as
/// `FARCALL_DOUBLE`; with or without a sign makes no difference. Since `FARCALL_1.9`.
///
/// # Safety
/// As for `farcall_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_get_typed(
    handle: *const Handle,
    element: c_int,
    data: *mut c_void,
    bytes: usize,
) -> Status {
    // SAFETY: the caller's promise.
    status(|| unsafe { get(handle, Some(element), data, bytes) })
}

/// # Safety
/// As for `farcall_get`.
unsafe fn get(
    handle: *const Handle,
    element: Option<c_int>,
    data: *mut c_void,
    bytes: usize,
) -> Result<Status, Problem> {
    let refused = |text: String| Err(Problem::argument(format!("farcall_get: the array {text}")));
    // SAFETY: the caller's promise.
    let handle = unsafe { handle.as_ref() }.ok_or(Problem::null("handle"))?;
    let stored = handle.stored("farcall_get")?;
    let form = stored.form();
    let expected = form.bytes().unwrap_or(0);
    if bytes as u64 != expected {
        return refused(format!("has {expected} bytes, given {bytes}"));
    }
    if let Some(element) = element
        && !form.ty().is_ok_and(|ty| kind(ty) as c_int == element)
    {
        let given = name(element)?;
        return refused(format!(
            "has elements of type {}, given {given}",
            form.element
        ));
    }
    let data = match bytes {
        0 => &mut [],
        _ if data.is_null() => return Err(Problem::null("data")),
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts_mut(data.cast::<u8>(), bytes) },
    };
    stored.get(data)?;
    Ok(Status::FarcallOk)
}

/// Drops a stored array or named data at the server, and frees the handle. Calls that use the array
/// complete. Since `FARCALL_1.5`.
///
/// # Safety
/// `handle` is from a function that returns handles, or NULL; the program does not use it
/// afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_drop_array(handle: *mut Handle) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        let Some(handle) = unsafe { taken(handle, "farcall_drop_array") }? else {
            return Ok(Status::FarcallOk);
        };
        if let Known::Stored(array) = &handle.client {
            array.drop_array()?;
        }
        Ok(Status::FarcallOk)
    })
}

/// The earlier name of `farcall_drop_array`.
///
/// # Safety
/// As for `farcall_drop_array`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_drop(handle: *mut Handle) -> Status {
    // SAFETY: the caller's promise.
    unsafe { farcall_drop_array(handle) }
}

/// The earlier name of `farcall_free_handle`. Since `FARCALL_1.4`.
///
/// # Safety
/// As for `farcall_free_handle`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_release(handle: *mut Handle) -> Status {
    // SAFETY: the caller's promise.
    unsafe { farcall_free_handle(handle) }
}

/// Takes a handle out of the list of valid handles.
///
/// # Safety
/// `handle` is from `made`, or NULL; nothing uses it afterwards.
unsafe fn taken(handle: *mut Handle, function: &str) -> Result<Option<Box<Handle>>, Problem> {
    if handle.is_null() {
        return Ok(None);
    }
    if known().remove(&handle.addr()).is_none() {
        return Err(Problem::argument(format!("{function}: no handle")));
    }
    COUNT.fetch_sub(1, Ordering::Release);
    // SAFETY: `made` has made it, and this takes it out of the list only once.
    Ok(Some(unsafe { Box::from_raw(handle) }))
}

/// The type and the shape of an array that a caller gives, and its bytes; none for zeros.
///
/// # Safety
/// As for [`farcall_put`].
unsafe fn array_of<'a>(
    element: c_int,
    (shape, rank): (*const usize, usize),
    column_major: i32,
    data: *const c_void,
) -> Result<(ArrayForm, &'a [u8]), Problem> {
    // SAFETY: the caller's promise.
    let shape = unsafe { list(shape, rank, "the shape") }?;
    let form = ArrayForm {
        element: name(element)?.to_owned(),
        shape: shape.iter().map(|&length| length as u64).collect(),
        column_major: column_major != 0,
    };
    let bytes = form
        .bytes()
        .map_err(|error| Problem::argument(format!("farcall_put: {error}")))?;
    let bytes = match bytes {
        0 => &[],
        _ if data.is_null() => &[],
        // SAFETY: the caller's promise.
        bytes => unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes as usize) },
    };
    Ok((form, bytes))
}

/// The name of an element type in the interface language.
fn name(element: c_int) -> Result<&'static str, Problem> {
    const NAMES: [(Kind, &str); 8] = [
        (Kind::FarcallChar, "char"),
        (Kind::FarcallShort, "short"),
        (Kind::FarcallInt, "int"),
        (Kind::FarcallLong, "long"),
        (Kind::FarcallFloat, "float"),
        (Kind::FarcallDouble, "double"),
        (Kind::FarcallScomplex, "scomplex"),
        (Kind::FarcallDcomplex, "dcomplex"),
    ];
    if element == NOT_ALLOCATED {
        return Err(Problem::argument("the array is not allocated".to_owned()));
    }
    let found = NAMES.iter().find(|(kind, _)| *kind as c_int == element);
    found.map(|(_, name)| *name).ok_or_else(|| {
        Problem::argument(format!(
            "element {element} is not the kind of a number; pass one of FARCALL_CHAR to \
             FARCALL_DCOMPLEX"
        ))
    })
}
