//! Data with names: arrays that were given one, and files of the data folder.

use super::Reactor;
use crate::buffer::JobBuffer;
use crate::config;
use crate::folder::{self, Folder};
use crate::names::Names;
use crate::spool::{Spool, now_ms};
use crate::store::Array;
use crate::user::User;
use farcall_directory::message::MOST_DATA;
use farcall_rpc_proto::{
    CallId, DataName, Edition, Failure, FailureKind, HandleId, Name, NameRecord,
};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Files that are read at the same time.
const MOST: usize = 8;

/// Files on their way to memory.
struct DataReads {
    under_way: usize,
    sender: Sender<DataRead>,
    receiver: Receiver<DataRead>,
}

/// What a thread has read.
struct DataRead {
    id: HandleId,
    buffer: JobBuffer,
    read: Result<(), String>,
}

impl Default for DataReads {
    fn default() -> DataReads {
        let (sender, receiver) = channel();
        DataReads {
            under_way: 0,
            sender,
            receiver,
        }
    }
}

/// The data with names that a server has.
pub(super) struct NamedData {
    pub(super) names: Names,
    /// Where the operator puts data as files.
    folder: Option<Folder>,
    reads: DataReads,
}

impl NamedData {
    /// The names at the start: those of the data folder.
    pub(super) fn open(data: &config::Data, doorbell: &OwnedFd) -> io::Result<NamedData> {
        let mut named = NamedData {
            names: Names::new(data.names.min(MOST_DATA)),
            folder: None,
            reads: DataReads::default(),
        };
        if let Some(path) = &data.folder {
            let (folder, files) = Folder::open(path, doorbell.try_clone()?)?;
            tracing::info!(
                "{} files in the data folder {}",
                files.len(),
                path.display()
            );
            named.names.set_files(files);
            named.folder = Some(folder);
        }
        Ok(named)
    }
}

impl Reactor {
    /// The array of that handle, if a user may read it.
    pub(super) fn readable(&self, id: HandleId, user: &User) -> Result<&Array, Failure> {
        let own = self.store.of_user(id, user);
        match own {
            Ok(array) => Ok(array),
            Err(_) if self.named.names.is_shared(id) => self.store.get(id).ok_or_else(|| {
                let text = format!("there is no array {id} at the server");
                Failure::new(FailureKind::NotFound, text)
            }),
            Err(failure) => Err(self.named.names.replaced(id).unwrap_or(failure)),
        }
    }

    /// A user gives an array a name.
    pub(super) fn name_array(&mut self, key: usize, request: CallId, name: Name) {
        let user = self.connections[key].user.clone();
        let named = self.try_name(&user, &name);
        let proto = &mut self.connections[key].proto;
        match named {
            Ok(record) => proto.named(request, &record),
            Err(failure) => proto.fail(request, &failure),
        }
    }

    fn try_name(&mut self, user: &User, name: &Name) -> Result<NameRecord, Failure> {
        let id = name.id;
        let array = self.store.of_user(id, user)?;
        let form = array.form.clone();
        if array.is_written() {
            let text = format!("a call writes the array {id}; name it when that has ended");
            return Err(Failure::new(FailureKind::Busy, text));
        }
        if let Some(why) = self.store.undefined(id) {
            let text = format!("the contents of the array {id} are undefined: {why}");
            return Err(Failure::new(FailureKind::BadArgument, text));
        }
        let edition = match name.copy {
            Some(edition) => edition,
            None => self.next_edition(user, name)?,
        };
        let given = (edition, name.shared);
        let before = self.named.names.put(user, &name.name, (id, &form), given)?;
        if self.named.names.is_named(id) {
            self.store.keep(id);
        }
        if let Some(before) = before {
            self.end_array(before);
        }
        let own = DataName {
            name: name.name.clone(),
            owner: Some(user.to_string()),
        };
        Ok(self.named.names.find(&own, user)?.record)
    }

    fn next_edition(&self, user: &User, name: &Name) -> Result<Edition, Failure> {
        let random = Spool::new_id();
        let random =
            random.map_err(|error| Failure::new(FailureKind::Internal, error.to_string()))?;
        let stamp = random.0.iter().take(8);
        let stamp = stamp.fold(0, |stamp, byte| stamp << 8 | u64::from(*byte));
        Ok(self
            .named
            .names
            .next(user, &name.name, name.after, now_ms(), stamp))
    }

    /// A user asks for a page of the data with names.
    pub(super) fn list_names(&mut self, key: usize, request: CallId, after: Option<&DataName>) {
        let connection = &mut self.connections[key];
        let page = self.named.names.page(&connection.user, after);
        connection.proto.names(request, &page);
    }

    /// A user asks for data by name. A file gets a place among the arrays.
    pub(super) fn tell_of_name(&mut self, key: usize, request: CallId, name: &DataName) {
        let user = self.connections[key].user.clone();
        let found = self.named.names.find(name, &user).and_then(|mut found| {
            if let (None, Some(file)) = (found.record.id, found.file) {
                let id = Spool::new_id()
                    .map_err(|error| Failure::new(FailureKind::Internal, error.to_string()))?;
                let id = HandleId(id.0);
                self.store.insert_file(id, file);
                self.named.names.attach(&found.record.name, id);
                found.record.id = Some(id);
            }
            Ok(found.record)
        });
        let proto = &mut self.connections[key].proto;
        match found {
            Ok(record) => proto.named(request, &record),
            Err(failure) => proto.fail(request, &failure),
        }
    }

    /// Takes what the data folder has now. Returns whether that has changed.
    pub(super) fn serve_folder(&mut self) -> bool {
        let changed = self.named.folder.as_ref().and_then(Folder::changed);
        let Some(files) = changed else { return false };
        for id in self.named.names.set_files(files) {
            self.end_array(id);
        }
        true
    }

    /// A job waits for a file of the data folder.
    pub(super) fn read_data_file(&mut self, key: usize, id: HandleId) {
        let Some(array) = self.store.get(id) else {
            return;
        };
        let bytes = array.bytes;
        if self.named.reads.under_way >= MOST {
            // It is looked at again when one of them has come.
            return;
        }
        self.spill(bytes);
        let user = self.jobs[key].user.clone();
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let buffer = match self.store.has_room(bytes) {
            true => self.pool.hold(length, &user).ok(),
            false => None,
        };
        self.unmap_retired();
        let Some(buffer) = buffer else {
            // What leaves makes room, and has the job looked at again.
            if self.store.leaving == 0 && self.named.reads.under_way == 0 {
                let text = format!("has no memory for the array {id} now; try again");
                self.fail_job(key, FailureKind::Busy, &text);
            }
            return;
        };
        let root = self.named.folder.as_ref().map(Folder::root);
        let (Some(Ok(root)), Ok(doorbell)) = (root, self.doorbell.try_clone()) else {
            self.pool.retire(buffer);
            return self.fail_job(key, FailureKind::Internal, "cannot reach the data folder");
        };
        let Some(file) = self.store.file_returning(id) else {
            return self.pool.retire(buffer);
        };
        let sender = self.named.reads.sender.clone();
        let (give, take) = channel::<JobBuffer>();
        let thread = std::thread::Builder::new().name("data file".to_string());
        let started = thread.spawn(move || {
            let Ok(buffer) = take.recv() else { return };
            let read = folder::read(&root, &file, &buffer);
            let read = read.map_err(|error| format!("{}: {error}", file.name));
            // Where the server has ended, nobody waits.
            if sender.send(DataRead { id, buffer, read }).is_ok() {
                let _ = rustix::io::write(&doorbell, &1u64.to_ne_bytes());
            }
        });
        self.named.reads.under_way += 1;
        match started {
            // The thread is there, and waits for nothing else.
            Ok(_) => drop(give.send(buffer)),
            Err(error) => self.data_read(DataRead {
                id,
                buffer,
                read: Err(error.to_string()),
            }),
        }
    }

    /// Takes the files that have come. Returns whether there were any.
    pub(super) fn serve_data_reads(&mut self) -> bool {
        let mut any = false;
        while let Ok(read) = self.named.reads.receiver.try_recv() {
            any = true;
            self.data_read(read);
        }
        any
    }

    fn data_read(&mut self, DataRead { id, buffer, read }: DataRead) {
        self.named.reads.under_way -= 1;
        let failed = read.is_err();
        let memory = match read {
            Ok(()) => Ok(buffer),
            Err(error) => {
                tracing::warn!("a file of the data folder cannot be read: {error}");
                Err((buffer, error))
            }
        };
        if let Some(lost) = self.store.returned(id, memory) {
            self.free_array(Rc::new(lost));
        }
        if failed {
            // Those who wait for it are told why; the next one who asks has it read anew.
            self.end_array(id);
        }
        self.candidates.extend(self.store.waiting());
        self.wake_starved();
    }
}
