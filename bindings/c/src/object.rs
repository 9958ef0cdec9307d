//! Remote objects.

use crate::connect::Server;
use crate::error::{Problem, guard};
use crate::function::Function;
use crate::text;
use std::collections::HashMap;
use std::ffi::c_char;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// An object on a server.
pub struct Object {
    client: farcall_client::Object,
    server: usize,
    /// Handles point to them; they live as long as the object, or as a session of theirs.
    methods: Mutex<HashMap<String, Arc<Function>>>,
}

impl Object {
    fn method(&self, name: &str) -> Result<Arc<Function>, Problem> {
        let mut methods = self.methods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = methods.get(name) {
            return Ok(known.clone());
        }
        let method = Arc::new(Function::new(self.client.method(name)?, self.server));
        methods.insert(name.to_owned(), method.clone());
        Ok(method)
    }
}

/// Makes an object of a class, `module/class` or `class` alone, on a server. It has a process of
/// its own there, which holds its state. NULL where that fails.
///
/// # Safety
/// `server` is from `farcall_connect`, `name` a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_object_new(
    server: *mut Server,
    name: *const c_char,
) -> *mut Object {
    // SAFETY: the caller's promise.
    guard(ptr::null_mut(), || unsafe {
        let server = server.as_ref().ok_or(Problem::null("server"))?;
        let name = text(name, "farcall_object_new: name")?;
        let object = Object {
            client: server.object(name)?,
            server: server.tag(),
            methods: Mutex::default(),
        };
        Ok(Box::into_raw(Box::new(object)))
    })
}

/// The method of that name, to be called as functions are; it lives as long as the object. Methods
/// of an object run one after the other. NULL where there is none.
///
/// # Safety
/// `object` is from `farcall_object_new`, `name` a string ended by NUL.
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

/// Destroys the object, and ends its methods; calls under way fail. NULL is let pass.
///
/// # Safety
/// `object` is from `farcall_object_new`; neither it nor its methods are used from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_object_free(object: *mut Object) {
    guard((), || {
        if !object.is_null() {
            // SAFETY: the caller's promise.
            let object = unsafe { Box::from_raw(object) };
            object.client.close();
        }
        Ok(())
    });
}
