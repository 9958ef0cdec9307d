//! Connections to servers and their options. A `farcall_server` owns one connection; handles and
//! functions keep it open until they are freed.

use crate::error::{Problem, guard};
use crate::function::Function;
use crate::{session, text};
use farcall_client::{Options, SharedMemory};
use std::collections::HashMap;
use std::ffi::c_char;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A connection to a server, or to all servers behind a metaserver.
pub struct Server {
    client: farcall_client::Server,
    /// The tag of its sessions, which differs from those of other servers.
    tag: usize,
    /// Function handles point to them. They are valid as long as the server or one of their
    /// sessions. The last one of a name is the present one: a restarted server may have another
    /// interface.
    functions: Mutex<HashMap<String, Vec<Arc<Function>>>>,
}

/// Options of a connection. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectOptions {
    /// `sizeof(farcall_options)`: later versions may have more members.
    pub size: usize,
    /// Longest time to wait for a connection, in seconds; 0 for the default, 10.
    pub connect_timeout: f64,
    /// Longest time for one call, from its start to its end, in seconds; 0 for no limit. It also
    /// limits `farcall_function_of`.
    pub timeout: f64,
    /// Not 0 to treat a server on this host like one on another host: without a Unix socket and
    /// shared memory, if the address is one of TCP.
    pub other_host: i32,
}

impl Server {
    pub(crate) fn new(client: farcall_client::Server) -> Server {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        Server {
            client,
            tag: LAST.fetch_add(1, Ordering::Relaxed),
            functions: Mutex::default(),
        }
    }

    /// The function with this name; the client fetches its interface once.
    pub(crate) fn function(&self, name: &str) -> Result<Arc<Function>, Problem> {
        let client = self.client.function(name)?;
        let mut functions = self
            .functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = functions.get(name).and_then(|all| all.last())
            && last.client.text() == client.text()
        {
            return Ok(last.clone());
        }
        let made = Arc::new(Function::new(client, self.tag));
        functions
            .entry(name.to_owned())
            .or_default()
            .push(made.clone());
        Ok(made)
    }

    /// Memory that is shared with the server, if it is on this host and has memory to share.
    pub(crate) fn share(&self, bytes: usize) -> Result<Option<SharedMemory>, Problem> {
        Ok(self.client.share(bytes)?)
    }

    pub(crate) fn put(
        &self,
        form: farcall_client::ArrayForm,
        bytes: &[u8],
    ) -> Result<farcall_client::Handle, Problem> {
        Ok(self.client.put(form, bytes, false)?)
    }

    pub(crate) fn put_named(
        &self,
        form: farcall_client::ArrayForm,
        bytes: &[u8],
        name: &str,
        shared: bool,
    ) -> Result<farcall_client::Handle, Problem> {
        Ok(self.client.put_named(form, bytes, name, shared)?)
    }

    pub(crate) fn data(
        &self,
        name: &farcall_client::DataName,
    ) -> Result<farcall_client::Handle, Problem> {
        Ok(self.client.data(name)?)
    }

    pub(crate) fn handle(
        &self,
        id: farcall_client::HandleId,
    ) -> Result<farcall_client::Handle, Problem> {
        Ok(self.client.handle(id)?)
    }

    pub(crate) fn job(&self, id: farcall_client::JobId) -> farcall_client::DurableCall {
        self.client.job(id)
    }

    /// An object of a class.
    pub(crate) fn object(&self, class: &str) -> Result<farcall_client::Object, Problem> {
        Ok(self.client.new_object(class)?)
    }

    pub(crate) fn client(&self) -> &farcall_client::Server {
        &self.client
    }

    pub(crate) fn tag(&self) -> usize {
        self.tag
    }
}

impl ConnectOptions {
    pub(crate) fn read(self) -> Result<Options, Problem> {
        let seconds = |name: &str, value: f64| match Duration::try_from_secs_f64(value) {
            Ok(time) if time.is_zero() => Ok(None),
            Ok(time) => Ok(Some(time)),
            Err(_) => Err(Problem::argument(format!(
                "{name} is {value}: give seconds, or 0 for the default"
            ))),
        };
        let mut options = Options {
            timeout: seconds("timeout", self.timeout)?,
            same_host: self.other_host == 0,
            ..Options::default()
        };
        if let Some(timeout) = seconds("connect_timeout", self.connect_timeout)? {
            options.connect_timeout = timeout;
        }
        Ok(options)
    }
}

/// Connects to `farcall://host:port`, `unix:///path` or `ssh://host`, or by `meta://host:port` to
/// all servers behind a metaserver. NULL means the server that the environment names:
/// `FARCALL_SERVER`, or `NINF_SERVER` and `NINF_SERVER_PORT`, or the metaserver of
/// `FARCALL_METASERVER`, or else this machine. Returns NULL on failure.
///
/// # Safety
/// `address` is NULL or a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_connect(address: *const c_char) -> *mut Server {
    // SAFETY: the caller's promise.
    unsafe { farcall_connect_with(address, ptr::null()) }
}

/// Connects with options; NULL means the defaults. Otherwise as `farcall_connect`.
///
/// # Safety
/// `address` is NULL or a string ended by NUL; `options` is NULL or has the size that it states.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_connect_with(
    address: *const c_char,
    options: *const ConnectOptions,
) -> *mut Server {
    guard(ptr::null_mut(), || {
        let options = match options.is_null() {
            true => ConnectOptions::default(),
            // SAFETY: the caller's promise; the size comes first in every version.
            false => match unsafe { options.cast::<usize>().read() } {
                // SAFETY: it is at least as large as in this version.
                size if size >= size_of::<ConnectOptions>() => unsafe { options.read() },
                size => {
                    let text = format!("options.size is {size}: set it to sizeof(farcall_options)");
                    return Err(Problem::argument(text));
                }
            },
        };
        let default;
        let address = match address.is_null() {
            true => {
                default = farcall_client::default_address();
                &default
            }
            // SAFETY: the caller's promise.
            false => unsafe { text(address, "farcall_connect: address") }?,
        };
        let client = farcall_client::Server::connect(address, options.read()?)?;
        Ok(Box::into_raw(Box::new(Server::new(client))))
    })
}

/// Closes a connection and frees its functions. Asynchronous calls under way are cancelled; a call
/// in which another thread is goes on to its end. NULL does nothing.
///
/// # Safety
/// `server` is from `farcall_connect`; the program does not use it or its functions afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_disconnect(server: *mut Server) {
    guard((), || {
        if !server.is_null() {
            // SAFETY: the caller's promise.
            let server = unsafe { Box::from_raw(server) };
            session::SESSIONS.cancel_all(Some(server.tag()));
        }
        Ok(())
    });
}
