//! Named data: arrays with a name, and files of the data folder. The table of names is in `names`.
//! A user finds only data that the user owns, that others share, or that lie in the data folder.

use super::{Data, room};
use crate::action::Action;
use crate::arrays::{Array, Location};
use crate::context::Context;
use crate::keys::{CallKey, ConnectionKey};
use crate::memory::MemoryGrant;
use crate::names::DataFile;
use farcall_rpc_proto::{
    CallId, DataName, DataVersion, Failure, FailureKind, HandleId, Name, NameRecord, User,
};

/// Most files that are read at once.
const MOST: usize = 8;

impl Data {
    /// The array with this handle, if a user may read it.
    pub(crate) fn readable(&self, id: HandleId, user: &User) -> Result<&Array, Failure> {
        let own = self.arrays.of_user(id, user);
        match own {
            Ok(array) => Ok(array),
            Err(_) if self.names.is_shared(id) => self.arrays.get(id).ok_or_else(|| {
                let text = format!("there is no array {id} at the server");
                Failure::new(FailureKind::NotFound, text)
            }),
            Err(failure) => Err(self.names.replaced(id).unwrap_or(failure)),
        }
    }

    /// Gives an array a name for a user.
    pub(crate) fn name_array(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        request: CallId,
        name: Name,
    ) {
        let user = cx.clients[key].user.clone();
        let named = self.try_name(cx, &user, &name);
        let proto = &mut cx.clients[key].proto;
        match named {
            Ok(record) => proto.named(request, &record),
            Err(failure) => proto.fail(request, &failure),
        }
    }

    pub(super) fn try_name(
        &mut self,
        cx: &mut Context,
        user: &User,
        name: &Name,
    ) -> Result<NameRecord, Failure> {
        let id = name.id;
        let array = self.arrays.of_user(id, user)?;
        let form = array.form.clone();
        if array.is_written() {
            let text = format!(
                "a call writes the array {id}; name the array when the call has \
             ended"
            );
            return Err(Failure::new(FailureKind::Busy, text));
        }
        if let Some(why) = self.arrays.undefined(id) {
            let text = format!("the contents of the array {id} are undefined: {why}");
            return Err(Failure::new(FailureKind::BadArgument, text));
        }
        let version = match name.copy {
            Some(version) => version,
            None => self.next_version(cx, user, name),
        };
        let given = (version, name.shared);
        let before = self.names.put(user, &name.name, (id, &form), given)?;
        if self.names.is_named(id) {
            self.arrays.keep(id);
        }
        if let Some(before) = before {
            self.end_array(cx, before);
        }
        let own = DataName {
            name: name.name.clone(),
            owner: Some(user.to_string()),
        };
        Ok(self.names.find(&own, user)?.record)
    }

    fn next_version(&mut self, cx: &mut Context, user: &User, name: &Name) -> DataVersion {
        let random = cx.ids.next();
        let random = random.iter().take(8);
        let stamp = random.fold(0, |stamp, byte| stamp << 8 | u64::from(*byte));
        let now = cx.clock.now.unix_ms;
        self.names.next(user, &name.name, name.after, now, stamp)
    }

    /// Tells a user about named data. A file gets a place among the arrays.
    pub(crate) fn tell_of_name(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        request: CallId,
        name: &DataName,
    ) {
        let user = cx.clients[key].user.clone();
        let found = self.names.find(name, &user).map(|mut found| {
            if let (None, Some(file)) = (found.record.id, found.file) {
                let id = HandleId(cx.ids.next());
                self.arrays.insert_file(id, file);
                self.names.attach(&found.record.name, id);
                found.record.id = Some(id);
            }
            // Who asks for data is about to use them.
            if let Some(id) = found.record.id {
                self.arrays.touch(id);
            }
            found.record
        });
        let proto = &mut cx.clients[key].proto;
        match found {
            Ok(record) => proto.named(request, &record),
            Err(failure) => proto.fail(request, &failure),
        }
    }

    /// Takes the new contents of the data folder.
    pub(crate) fn folder_changed(&mut self, cx: &mut Context, files: Vec<DataFile>) {
        for id in self.names.set_files(files) {
            self.end_array(cx, id);
        }
    }

    /// Reads a file of the data folder for a call that waits for it.
    pub(crate) fn read_data_file(&mut self, cx: &mut Context, key: CallKey, id: HandleId) {
        let Some(array) = self.arrays.get(id) else {
            return;
        };
        let bytes = array.bytes;
        if self.data_reads.len() >= MOST {
            // The call is looked at again when one of these files has arrived.
            return;
        }
        room::spill(self, cx, bytes);
        let user = cx.calls[key].user.clone();
        let grant = match self.arrays.has_room(bytes) {
            true => room::grant(self, cx, bytes, |memory, out| {
                memory.hold(bytes, &user, out)
            }),
            false => MemoryGrant::Later,
        };
        let MemoryGrant::Here(memory) = grant else {
            return self.await_memory(cx, key, id);
        };
        let Some(file) = self.arrays.file_returning(id) else {
            return cx.memory.free(memory, &mut cx.out);
        };
        self.data_reads.push((id, memory));
        cx.out.push(Action::ReadData { id, file, memory });
    }

    /// Handles the arrival of a data file, or the error that prevented it.
    pub(crate) fn data_read(&mut self, cx: &mut Context, id: HandleId, read: Result<(), String>) {
        let mut reads = self.data_reads.iter();
        let Some(index) = reads.position(|(reading, _)| *reading == id) else {
            return;
        };
        let (_, memory) = self.data_reads.remove(index);
        match read {
            Ok(()) => {
                if let Some(lost) = self.arrays.returned(id, Ok(memory)) {
                    cx.free(lost);
                }
            }
            // Waiting calls are told why. The next call reads the file again.
            Err(error) => {
                tracing::warn!("a file of the data folder cannot be read: {error}");
                cx.free(memory);
                let text = format!("uses the array {id}, whose file cannot be read: {error}");
                for call in self.arrays.not_read(id, Location::File) {
                    cx.fail(call, FailureKind::BadArgument, &text);
                }
            }
        }
        self.turns.extend(cx, self.arrays.waiting());
        cx.has_room = true;
    }
}
