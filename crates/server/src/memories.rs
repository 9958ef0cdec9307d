//! The memory objects of calls, arrays and clients, by their keys.

use farcall_rpc_proto::swap_bytes;
use farcall_server_proto::{Beside, Key, MemoryKey};
use farcall_worker::{MemoryObject, free};
use std::io;

/// All memory objects; one that a thread has is not here meanwhile.
#[derive(Default)]
pub(crate) struct Memories(Beside<MemoryKey, MemoryObject>);

impl Memories {
    /// Makes memory that the server maps.
    pub(crate) fn make(&mut self, key: MemoryKey, bytes: u64) -> io::Result<()> {
        let object = MemoryObject::mapped(key.number(), length(bytes)?)?;
        self.0.insert(key, object);
        Ok(())
    }

    /// Makes memory for a client and the workers.
    pub(crate) fn share(&mut self, key: MemoryKey, bytes: u64) -> io::Result<&MemoryObject> {
        let object = MemoryObject::shared(key.number(), length(bytes)?)?;
        self.0.insert(key, object);
        self.get(key).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(crate) fn get(&self, key: MemoryKey) -> Option<&MemoryObject> {
        self.0.get(key)
    }

    /// Takes an object out, for a thread.
    pub(crate) fn take(&mut self, key: MemoryKey) -> Option<MemoryObject> {
        self.0.remove(key)
    }

    /// Puts an object back.
    pub(crate) fn put(&mut self, key: MemoryKey, object: MemoryObject) {
        self.0.insert(key, object);
    }

    /// Ends an object.
    pub(crate) fn free(&mut self, key: MemoryKey) {
        if let Some(object) = self.0.remove(key) {
            free(object.bytes(), object);
        }
    }

    /// Zeroes a part.
    pub(crate) fn clear(&self, key: MemoryKey, offset: u64, bytes: u64) {
        if let Some(object) = self.get(key) {
            // SAFETY: the server clears memory that nobody uses yet.
            unsafe { object.part(offset, bytes) }.fill(0);
        }
    }

    /// Brings a part to this machine's byte order.
    pub(crate) fn swap(&self, key: MemoryKey, offset: u64, bytes: u64, unit: usize) {
        if let Some(object) = self.get(key) {
            // SAFETY: the server swaps memory that no call uses.
            swap_bytes(unsafe { object.part(offset, bytes) }, unit);
        }
    }
}

fn length(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory.into())
}
