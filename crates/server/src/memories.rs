//! The memory objects of calls, stored arrays and clients, by key. The server decides when memory
//! is made, cleared and freed; this module does it. An object that a thread uses is taken out of
//! the table, so the reactor cannot reach it meanwhile.

use farcall_rpc_proto::swap_bytes;
use farcall_server_proto::{Action, Beside, Event, Key, MemoryKey};
use farcall_worker::{MemoryObject, free};
use rustix::fd::OwnedFd;
use std::io;

/// All memory objects. While a thread uses one, it is not here.
#[derive(Default)]
pub(crate) struct Memories(Beside<MemoryKey, MemoryObject>);

impl Memories {
    /// Performs an action on memory. Returns an event if the system refuses.
    pub(crate) fn execute(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::MakeMemory { memory, bytes } => {
                let made = length(bytes);
                let made = made.and_then(|length| MemoryObject::mapped(memory.number(), length));
                match made {
                    Ok(object) => self.0.insert(memory, object),
                    Err(error) => {
                        let text = format!("no memory for {bytes} bytes: {error}");
                        return Some(Event::NoMemory(memory, text));
                    }
                }
            }
            Action::ClearMemory {
                memory,
                offset,
                bytes,
            } => {
                if let Some(object) = self.get(memory) {
                    // SAFETY: the server clears memory that nobody uses yet.
                    unsafe { object.part(offset, bytes) }.fill(0);
                }
            }
            Action::SwapMemory {
                memory,
                offset,
                bytes,
                unit,
            } => {
                if let Some(object) = self.get(memory) {
                    // SAFETY: the server swaps memory that no call uses.
                    swap_bytes(unsafe { object.part(offset, bytes) }, unit);
                }
            }
            _ => {}
        }
        None
    }

    /// Makes memory for a client and the workers. Returns the client's descriptor.
    pub(crate) fn share(&mut self, key: MemoryKey, bytes: u64) -> io::Result<OwnedFd> {
        let object = MemoryObject::shared(key.number(), length(bytes)?)?;
        let descriptor = object.fd().try_clone_to_owned()?;
        self.0.insert(key, object);
        Ok(descriptor)
    }

    pub(crate) fn get(&self, key: MemoryKey) -> Option<&MemoryObject> {
        self.0.get(key)
    }

    /// Takes an object out for a thread.
    pub(crate) fn take(&mut self, key: MemoryKey) -> Option<MemoryObject> {
        self.0.remove(key)
    }

    /// Puts an object back.
    pub(crate) fn put(&mut self, key: MemoryKey, object: MemoryObject) {
        self.0.insert(key, object);
    }

    /// Frees an object.
    pub(crate) fn free(&mut self, key: MemoryKey) {
        if let Some(object) = self.0.remove(key) {
            free(object.bytes(), object);
        }
    }
}

fn length(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory.into())
}
