//! A batch of records on its way to both logs: it is written behind their end, and synced.
//!
//! While a server runs, a log has zeros behind its records, which the next records overwrite. So a
//! sync writes only data: a file that grows would make it write the file's length as well. Both
//! logs travel to the disk together. Where the bytes of a file stay in their place, one command to
//! the disk to empty its cache serves both logs.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

/// Bytes that a log gets for its next records at a time.
pub(super) const ROOM: usize = 256 << 10;

/// The room for records in both logs.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// Where it ends: behind the records, and behind zeros that this process has synced.
    pub(super) end: u64,
    /// Whether bytes that are written over others go to the same place of the same disk.
    pub(super) stays_in_place: bool,
}

/// Whether the file system writes over bytes where they are, and has both logs on one disk. Others
/// write them elsewhere, and then make their new place known: all of that needs a sync of the file.
pub(super) fn stays_in_place(logs: &[Arc<File>; 2]) -> bool {
    let is_ext4 = |file: &Arc<File>| {
        let known = rustix::fs::fstatfs(file);
        known.is_ok_and(|known| known.f_type == libc::EXT4_SUPER_MAGIC)
    };
    let disk = |file: &Arc<File>| file.metadata().map(|known| known.dev()).ok();
    logs.iter().all(is_ext4) && disk(&logs[0]) == disk(&logs[1])
}

/// Bytes to append to both logs.
pub(super) struct Batch {
    pub(super) files: [Arc<File>; 2],
    /// Offset in both logs.
    pub(super) at: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) room: Room,
    /// Whether the logs may have bytes behind the offset.
    pub(super) is_dirty: bool,
}

impl Batch {
    /// Appends to both logs, and syncs them. Returns their room.
    pub(super) fn write(&self) -> io::Result<Room> {
        let written = self.append();
        if written.is_err() {
            // What is refused must not be there after a restart. If this fails, it is tried again
            // before the next write.
            let _ = self.files.each_ref().map(|file| file.set_len(self.at));
        }
        written
    }

    fn append(&self) -> io::Result<Room> {
        let end = self.at + self.bytes.len() as u64;
        let mut room = self.room;
        if self.is_dirty {
            room.end = self.at;
            let mut files = self.files.iter();
            files.try_for_each(|file| file.set_len(self.at))?;
        }
        // The second log goes first: the sync of the first one then ends what it began.
        let [first, second] = &self.files;
        second.write_all_at(&self.bytes, self.at)?;
        first.write_all_at(&self.bytes, self.at)?;
        let are_places_known = end <= room.end;
        if !are_places_known {
            room.end = self.make_room(end);
        }
        self.begin_to_write(first);
        if are_places_known && room.stays_in_place {
            self.write_and_wait(second)?;
        } else {
            self.begin_to_write(second);
            second.sync_data()?;
        }
        first.sync_data()?;
        Ok(room)
    }

    /// Writes zeros behind the records. A disk that has no room for them keeps what it has for the
    /// records themselves.
    fn make_room(&self, end: u64) -> u64 {
        let zeros = vec![0; ROOM];
        let mut files = self.files.iter();
        match files.try_for_each(|file| file.write_all_at(&zeros, end)) {
            Ok(()) => end + ROOM as u64,
            Err(_) => {
                let _ = self.files.each_ref().map(|file| file.set_len(end));
                end
            }
        }
    }

    /// Lets the system begin to write the bytes to the disk. It is only a hint: the sync that
    /// follows waits for the disk, and has the errors.
    fn begin_to_write(&self, file: &File) {
        let _ = self.sync_range(file, libc::SYNC_FILE_RANGE_WRITE);
    }

    /// Waits until the disk has the bytes, perhaps in its cache.
    fn write_and_wait(&self, file: &File) -> io::Result<()> {
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        self.sync_range(file, flags)
    }

    fn sync_range(&self, file: &File, flags: libc::c_uint) -> io::Result<()> {
        let (at, bytes) = (self.at as libc::off64_t, self.bytes.len() as libc::off64_t);
        // SAFETY: the descriptor is open, and the call has no pointers.
        let ended = unsafe { libc::sync_file_range(file.as_raw_fd(), at, bytes, flags) };
        match ended {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn both_logs_have_what_was_appended_with_and_without_a_sync_of_each() {
        for stays_in_place in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let paths = ["a", "b"].map(|name| folder.path().join(name));
            let files = paths.each_ref().map(|path| File::create(path).unwrap());
            let files = files.map(Arc::new);
            let end = 0;
            let mut room = Room {
                end,
                stays_in_place,
            };
            let mut written = Vec::new();
            // The first one makes room, and so does the last one, which has no place in it.
            for bytes in [vec![1; 700], vec![2; 5000], vec![3; 1], vec![4; ROOM]] {
                let batch = Batch {
                    files: files.clone(),
                    at: written.len() as u64,
                    bytes: bytes.clone(),
                    room,
                    is_dirty: false,
                };
                written.extend(bytes);
                room = batch.write().unwrap();
                assert!(room.end >= written.len() as u64);
                for path in &paths {
                    let log = fs::read(path).unwrap();
                    assert!(log.starts_with(&written));
                    assert_eq!(log.len() as u64, room.end);
                }
            }
        }
    }

    #[test]
    fn other_file_systems_get_a_sync_of_each_log() {
        let files = [(); 2].map(|()| Arc::new(tempfile::tempfile_in("/dev/shm").unwrap()));
        assert!(!stays_in_place(&files));
    }
}
