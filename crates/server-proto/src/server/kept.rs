//! Objects that stay when their connection ends, by names that nobody guesses.

use super::Server;
use crate::connection::Object;
use crate::flaw::{Flaw, has};
use crate::keys::ConnectionKey;
use farcall_rpc_proto::{
    CallId, Failure, FailureKind, HandleId, ObjectPage, ObjectRecord, ObjectRequest, User,
};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Objects in one page of a list.
const PAGE: usize = 128;

/// An object that stays.
struct Kept {
    id: HandleId,
    user: User,
    /// Qualified.
    class: String,
    used: Cell<u64>,
    object: Object,
}

/// All of them, by the order of their creation.
#[derive(Default)]
pub(super) struct KeptObjects {
    objects: BTreeMap<u64, Kept>,
    last_number: u64,
}

impl KeptObjects {
    fn find(&self, id: HandleId) -> Option<(u64, &Kept)> {
        let mut objects = self.objects.iter();
        let found = objects.find(|(_, kept)| kept.id == id);
        found.map(|(number, kept)| (*number, kept))
    }

    fn of_user(&self, id: HandleId, user: &User) -> Result<u64, Failure> {
        let found = self
            .find(id)
            .filter(|(_, kept)| kept.user == *user || has(Flaw::SharesObjects));
        found.map(|(number, _)| number).ok_or_else(|| {
            let text = format!(
                "there is no object {id} at the server: it was dropped or has expired, the server \
                 has started anew, or it is another user's"
            );
            Failure::new(FailureKind::NotFound, text)
        })
    }

    /// What calls of its methods go to, with the file and the class.
    pub(super) fn used(&self, id: HandleId, now: u64) -> Result<&Object, Failure> {
        let (_, kept) = self.find(id).ok_or_else(|| {
            let text = "is called on an object that was dropped or has expired";
            Failure::new(FailureKind::ObjectLost, text)
        })?;
        kept.used.set(now);
        Ok(&kept.object)
    }

    /// Its process has ended.
    pub(super) fn lost(&mut self, id: HandleId, failure: Failure) {
        let mut objects = self.objects.values_mut();
        if let Some(kept) = objects.find(|kept| kept.id == id) {
            kept.object.worker = Err(failure);
        }
    }

    fn record(&self, number: u64) -> ObjectRecord {
        let kept = &self.objects[&number];
        ObjectRecord {
            id: kept.id,
            number,
            class: kept.class.clone(),
            used: kept.used.get(),
            lost: kept
                .object
                .worker
                .as_ref()
                .err()
                .map(|lost| lost.message.clone()),
        }
    }

    fn page(&self, user: &User, after: u64) -> ObjectPage {
        let mut numbers = self.objects.iter().filter(|(number, _)| **number > after);
        let mut objects = Vec::new();
        let own = numbers.by_ref().filter(|(_, kept)| kept.user == *user);
        for (number, _) in own.take(PAGE + 1) {
            objects.push(self.record(*number));
        }
        let more = objects.len() > PAGE;
        objects.truncate(PAGE);
        let next = objects.last().filter(|_| more).map(|last| last.number);
        ObjectPage { objects, next }
    }

    /// The one that nobody has used for so long.
    fn expired(&self, now: u64, keep_ms: u64) -> Option<u64> {
        let mut objects = self.objects.iter();
        let is_old = |kept: &Kept| kept.used.get().saturating_add(keep_ms) <= now;
        let old = objects.find(|(_, kept)| is_old(kept));
        old.map(|(number, _)| *number)
    }

    /// When the next one expires.
    pub(super) fn next_expiry(&self, keep_ms: u64) -> Option<u64> {
        let used = self.objects.values().map(|kept| kept.used.get()).min()?;
        Some(used.saturating_add(keep_ms))
    }
}

impl Server {
    /// A client asks about objects that stay.
    pub(super) fn about_objects(
        &mut self,
        key: ConnectionKey,
        request: CallId,
        asked: ObjectRequest,
    ) {
        let user = self.connections[key].user.clone();
        let answer = match asked {
            ObjectRequest::Keep(object) => self.keep_object(key, object, user),
            ObjectRequest::Attach(id) => self.attach_object(key, request, id, &user),
            ObjectRequest::Drop(id) => self.kept.of_user(id, &user).map(|number| {
                let record = self.kept.record(number);
                self.drop_object(number);
                record
            }),
            ObjectRequest::List(after) => {
                let page = self.kept.page(&user, after);
                return self.connections[key].proto.objects(request, &page);
            }
        };
        let proto = &mut self.connections[key].proto;
        match answer {
            Ok(record) => {
                let objects = vec![record];
                proto.objects(
                    request,
                    &ObjectPage {
                        objects,
                        next: None,
                    },
                );
            }
            Err(failure) => proto.fail(request, &failure),
        }
    }

    fn keep_object(
        &mut self,
        key: ConnectionKey,
        object: CallId,
        user: User,
    ) -> Result<ObjectRecord, Failure> {
        let bad = |text: &str| Failure::new(FailureKind::BadArgument, text);
        let objects = &self.connections[key].objects;
        let held = objects.get(&object).filter(|object| object.kept.is_none());
        let held = held.ok_or_else(|| bad("there is no such object, or it stays already"))?;
        let (file, class) = (held.file, held.class.clone());
        let worker = held.worker.clone()?;
        let of_user = self.kept.objects.values().filter(|kept| kept.user == user);
        let most = self.settings.limits.objects_per_connection;
        if of_user.count() >= most {
            let text = format!(
                "{most} objects of this user stay at the server, and it allows no more \
                 (limits.objects_per_connection in its configuration); drop one"
            );
            return Err(Failure::new(FailureKind::QuotaExceeded, text));
        }
        let id = HandleId(self.ids.next());
        let qualified = self.functions.qualified_class(file, &class);
        let kept = Object {
            file,
            class,
            worker: Ok(worker),
            kept: Some(id),
        };
        if let Some(object) = self.connections[key].objects.get_mut(&object) {
            object.kept = Some(id);
        }
        if let Some(held) = self.workers[worker].object.as_mut() {
            held.kept = Some(id);
        }
        self.kept.last_number += 1;
        let number = self.kept.last_number;
        let kept = Kept {
            id,
            user,
            class: qualified,
            used: Cell::new(self.clock.unix_ms),
            object: kept,
        };
        self.kept.objects.insert(number, kept);
        Ok(self.kept.record(number))
    }

    fn attach_object(
        &mut self,
        key: ConnectionKey,
        request: CallId,
        id: HandleId,
        user: &User,
    ) -> Result<ObjectRecord, Failure> {
        let number = self.kept.of_user(id, user)?;
        let objects = &mut self.connections[key].objects;
        if objects.len() >= self.settings.limits.objects_per_connection {
            let text = format!("this connection has {} objects; give one up", objects.len());
            return Err(Failure::new(FailureKind::Busy, text));
        }
        let object = self.kept.objects[&number].object.clone();
        objects.insert(request, object);
        Ok(self.kept.record(number))
    }

    fn drop_object(&mut self, number: u64) {
        if let Some(kept) = self.kept.objects.remove(&number) {
            self.end_object(kept.object);
        }
    }

    /// Destroys objects that were not used for too long.
    pub(super) fn expire_objects(&mut self) {
        let keep_ms = self.arrays.keep_ms();
        while let Some(number) = self.kept.expired(self.clock.unix_ms, keep_ms) {
            tracing::debug!("the object {} has expired", self.kept.objects[&number].id);
            self.drop_object(number);
        }
    }
}
