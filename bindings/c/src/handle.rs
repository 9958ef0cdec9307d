//! Arrays that stay at a server.

use crate::call::list;
use crate::connect::Server;
use crate::error::{Problem, guard, status};
use crate::{Kind, Status, text};
use farcall_client::{Argument, ArrayForm, DataName};
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// An array that stays at a server. It is passed to calls where they take an array.
pub struct Handle {
    client: farcall_client::Handle,
    id: CString,
    version: u64,
}

/// The handles of the process, by their addresses: an argument that is one of them is no array.
static KNOWN: LazyLock<Mutex<HashMap<usize, farcall_client::Handle>>> =
    LazyLock::new(Mutex::default);
/// How many there are, so that calls without any do not look.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn known() -> MutexGuard<'static, HashMap<usize, farcall_client::Handle>> {
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
        _ => Some(known().get(&argument.addr())?.argument(server)),
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
    let of_call = client.clone();
    let handle = Box::into_raw(Box::new(Handle {
        client,
        id: text,
        version,
    }));
    known().insert(handle.addr(), of_call);
    COUNT.fetch_add(1, Ordering::Release);
    handle
}

/// Puts an array at the server, to be used in calls: pass the handle where a call takes an array.
/// Its `rank` lengths are at `shape`; `column_major` is not 0 where its first index varies fastest,
/// as functions of Fortran want it. NULL for `data` makes all of it zero, for results that are to
/// stay. The array goes with `farcall_drop`, when the connection ends, or when it was not used for
/// long. NULL where that fails.
///
/// # Safety
/// `server` is from `farcall_connect`, `shape` points to `rank` lengths, and `data` is NULL or
/// points to as many elements as they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_put(
    server: *mut Server,
    element: Kind,
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

/// Puts an array at the server as `farcall_put`, under a name: words with `/` between. It stays
/// when the connection ends; calls read it and do not write it, and another array put under the
/// name is its next version. Behind a metaserver it goes to the server that has data of that
/// name, or else most memory free. All users may read it where `shared` is not 0. NULL where
/// that fails.
///
/// # Safety
/// As for `farcall_put`; `name` is a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_put_named(
    server: *mut Server,
    element: Kind,
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

/// The array that is at the server, or behind the metaserver, under that name: `atoms`, or
/// `atoms@alice` for what another user shares, or the path of a file in a server's data folder.
/// Pass the handle where a call takes an array; give it back with `farcall_release`. NULL where
/// there is none.
///
/// # Safety
/// `server` is from `farcall_connect`, `name` a string ended by NUL.
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

/// Which version of the data of its name it is, from 1 on; 0 where it has none.
///
/// # Safety
/// `handle` is from `farcall_put_named` or `farcall_data`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_data_version(handle: *const Handle) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.map_or(0, |handle| handle.version)
}

/// The handle is good for nothing any more; the array stays where it is.
///
/// # Safety
/// `handle` is from one of the functions that give handles, or NULL; nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_release(handle: *mut Handle) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        unsafe { taken(handle, "farcall_release") }?;
        Ok(Status::FarcallOk)
    })
}

/// The handle of an array that is at the server by now, by its id; NULL where there is none.
///
/// # Safety
/// `server` is from `farcall_connect`, `id` a string ended by NUL.
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

/// Its id, 32 hexadecimal digits; lives as long as the handle.
///
/// # Safety
/// `handle` is from `farcall_put` or `farcall_handle_of`, or NULL, whose id is empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_handle_id(handle: *const Handle) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.map_or(c"".as_ptr(), |handle| handle.id.as_ptr())
}

/// Gets the array, in its own order, after the calls that were made before. `bytes` is its length.
///
/// # Safety
/// `handle` is from `farcall_put` or `farcall_handle_of`; `data` points to `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_get(
    handle: *const Handle,
    data: *mut c_void,
    bytes: usize,
) -> Status {
    // SAFETY: the caller's promise.
    status(|| unsafe {
        let handle = handle.as_ref().ok_or(Problem::null("handle"))?;
        let expected = handle.client.form().bytes().unwrap_or(0);
        if bytes as u64 != expected {
            let text = format!("farcall_get: the array has {expected} bytes, given {bytes}");
            return Err(Problem::argument(text));
        }
        let data = match bytes {
            0 => &mut [],
            _ if data.is_null() => return Err(Problem::null("data")),
            _ => std::slice::from_raw_parts_mut(data.cast::<u8>(), bytes),
        };
        handle.client.get(data)?;
        Ok(Status::FarcallOk)
    })
}

/// The server need not keep the array any more, and the handle is good for nothing. Calls that use
/// the array go on.
///
/// # Safety
/// `handle` is from `farcall_put` or `farcall_handle_of`, or NULL; nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_drop(handle: *mut Handle) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        let Some(handle) = unsafe { taken(handle, "farcall_drop") }? else {
            return Ok(Status::FarcallOk);
        };
        handle.client.drop_array()?;
        Ok(Status::FarcallOk)
    })
}

/// Takes a handle out of those that there are.
///
/// # Safety
/// `handle` is from `made`, or NULL; nobody uses it any more.
unsafe fn taken(handle: *mut Handle, function: &str) -> Result<Option<Box<Handle>>, Problem> {
    if handle.is_null() {
        return Ok(None);
    }
    if known().remove(&handle.addr()).is_none() {
        return Err(Problem::argument(format!("{function}: no handle")));
    }
    COUNT.fetch_sub(1, Ordering::Release);
    // SAFETY: it was made by `made`, and is taken out of what is known once.
    Ok(Some(unsafe { Box::from_raw(handle) }))
}

/// The form of an array that a caller gives, and its bytes: none where it is to be zero.
///
/// # Safety
/// As for [`farcall_put`].
unsafe fn array_of<'a>(
    element: Kind,
    (shape, rank): (*const usize, usize),
    column_major: i32,
    data: *const c_void,
) -> Result<(ArrayForm, &'a [u8]), Problem> {
    // SAFETY: the caller's promise.
    let shape = unsafe { list(shape, rank) }?;
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
fn name(element: Kind) -> Result<&'static str, Problem> {
    Ok(match element {
        Kind::FarcallChar => "char",
        Kind::FarcallShort => "short",
        Kind::FarcallInt => "int",
        Kind::FarcallLong => "long",
        Kind::FarcallFloat => "float",
        Kind::FarcallDouble => "double",
        Kind::FarcallScomplex => "scomplex",
        Kind::FarcallDcomplex => "dcomplex",
        Kind::FarcallArray | Kind::FarcallText | Kind::FarcallFunction | Kind::FarcallTexts => {
            let text = "farcall_put: an element is a number".to_owned();
            return Err(Problem::argument(text));
        }
    })
}
