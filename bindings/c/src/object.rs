//! Remote objects and their methods. A method is a function handle, and calls of it work as any
//! other call.

use crate::connect::Server;
use crate::error::{Problem, guard};
use crate::function::Function;
use crate::text;
use std::collections::HashMap;
use std::ffi::c_char;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// An object at a server.
pub struct Object {
    client: farcall_client::Object,
    server: usize,
    /// Function handles point to them. They are valid as long as the object or one of their
    /// sessions.
    methods: Mutex<HashMap<String, Arc<Function>>>,
}

impl Object {
    /// A new object of a class at a server.
    pub(crate) fn make(server: &Server, class: &str) -> Result<Object, Problem> {
        Ok(Object {
            client: server.object(class)?,
            server: server.tag(),
            methods: Mutex::default(),
        })
    }

    pub(crate) fn close(&self) {
        self.client.close();
    }

    pub(crate) fn method(&self, name: &str) -> Result<Arc<Function>, Problem> {
        let mut methods = self.methods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = methods.get(name) {
            return Ok(known.clone());
        }
        let method = Arc::new(Function::new(self.client.method(name)?, self.server));
        methods.insert(name.to_owned(), method.clone());
        Ok(method)
    }
}

/// Makes an object of a class, `module/class` or `class` alone, at a server. The object has its own
/// process there, which holds its state. Returns NULL on failure.
///
/// # Safety
/// `server` is from `farcall_connect`, `name` is a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_object_new(
    server: *mut Server,
    name: *const c_char,
) -> *mut Object {
    // SAFETY: the caller's promise.
    guard(ptr::null_mut(), || unsafe {
        let server = server.as_ref().ok_or(Problem::null("server"))?;
        let name = text(name, "farcall_object_new: name")?;
        Ok(Box::into_raw(Box::new(Object::make(server, name)?)))
    })
}

/// The method with this name. Call it like a function. It is valid as long as the object. The
/// methods of an object run one after the other. Returns NULL if there is no such method.
///
/// # Safety
/// `object` is from `farcall_object_new`, `name` is a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_object_method(
    object: *mut Object,
    name: *const c_char,
) -> *mut Function {
    // SAFETY: the caller's promise.
    guard(ptr::null_mut(), || unsafe {
        let object = object.as_ref().ok_or(Problem::null("object"))?;
        let name = text(name, "farcall_object_method: name")?;
        Ok(Arc::as_ptr(&object.method(name)?).cast_mut())
    })
}

/// Drops an object at its server, and frees it and its methods. Calls of them that are under way
/// fail. NULL does nothing. Since `FARCALL_1.5`.
///
/// # Safety
/// `object` is from `farcall_object_new`; the program does not use it or its methods afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_drop_object(object: *mut Object) {
    guard((), || {
        if !object.is_null() {
            // SAFETY: the caller's promise.
            let object = unsafe { Box::from_raw(object) };
            object.close();
        }
        Ok(())
    });
}

/// The earlier name of `farcall_drop_object`.
///
/// # Safety
/// As for `farcall_drop_object`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_object_free(object: *mut Object) {
    // SAFETY: the caller's promise.
    unsafe { farcall_drop_object(object) }
}
