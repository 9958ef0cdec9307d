//! Objects: each has one state. Methods change it one after the other, each once or not at all.

use crate::interfaces::Tag;
use crate::machine::keep_ns;
use crate::options::Options;
use farcall_random::SplitMix64;
use farcall_rpc_proto::{FailureKind, HandleId, ObjectPage};
use farcall_server_proto::WorkerKey;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of one object.
#[derive(Clone, Debug)]
struct Object {
    life: u64,
    user: u8,
    /// Its id, if it is persistent.
    id: Option<HandleId>,
    /// When its user learned that it is persistent.
    kept: u64,
    /// Methods that were applied to it, in their order.
    applied: Vec<Tag>,
    /// The worker that has run its methods.
    worker: Option<WorkerKey>,
    /// Its worker has ended, or its server.
    is_gone: bool,
    /// The client cancelled a method, which ends the worker if the method runs.
    may_be_lost: bool,
    /// Its user has released it, or its connection has ended.
    may_be_dropped: bool,
    /// It was used at this time or later.
    used: u64,
}

/// All objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    objects: Vec<Object>,
    /// The object of each method call.
    calls: BTreeMap<Tag, usize>,
    /// Methods that were refused: they must not run.
    refused: BTreeSet<Tag>,
    /// When the last worker of each life was gone.
    gone: BTreeMap<u64, u64>,
}

impl Objects {
    /// A client has a new object, for which it has asked at the time `since`. Returns its number in
    /// this checker.
    pub(crate) fn created(&mut self, (life, user): (u64, u8), since: u64, now: u64) -> usize {
        // Its worker may be gone before the client reads that there is an object.
        let may_be_lost = self.gone.get(&life).is_some_and(|gone| *gone >= since);
        self.objects.push(Object {
            life,
            user,
            id: None,
            kept: 0,
            applied: Vec::new(),
            worker: None,
            is_gone: false,
            may_be_lost,
            may_be_dropped: false,
            used: now,
        });
        self.objects.len() - 1
    }

    /// A method is called.
    pub(crate) fn called(&mut self, tag: Tag, index: usize) {
        self.calls.insert(tag, index);
    }

    /// A client forgets an object, which ends unless it is persistent.
    pub(crate) fn left(&mut self, index: usize) {
        let object = &mut self.objects[index];
        object.may_be_dropped |= object.id.is_none();
    }

    /// A client cancelled a method.
    pub(crate) fn gives_up(&mut self, index: usize) {
        self.objects[index].may_be_lost = true;
    }

    pub(crate) fn used(&mut self, index: usize, since: u64) {
        let object = &mut self.objects[index];
        object.used = object.used.max(since);
    }

    /// An object becomes persistent.
    pub(crate) fn keeps(&mut self, index: usize, id: HandleId, now: u64) {
        let object = &mut self.objects[index];
        (object.id, object.kept) = (Some(id), now);
    }

    /// The user drops a persistent object.
    pub(crate) fn drops(&mut self, id: HandleId) {
        let mut objects = self.objects.iter_mut();
        if let Some(object) = objects.find(|object| object.id == Some(id)) {
            object.may_be_dropped = true;
        }
    }

    /// The id of a persistent object of a user.
    pub(crate) fn pick(
        &self,
        (life, user): (u64, u8),
        random: &mut SplitMix64,
    ) -> Option<HandleId> {
        let own = self.objects.iter().rev().take(16);
        let own = own.filter(|one| (one.life, one.user) == (life, user) && !one.may_be_dropped);
        let ids: Vec<HandleId> = own.filter_map(|one| one.id).collect();
        (!ids.is_empty()).then(|| ids[random.below(ids.len() as u64) as usize])
    }

    /// A worker has applied a method to its state. Fails if that breaks an invariant.
    pub(crate) fn applied(&mut self, life: u64, tag: Tag, worker: WorkerKey) -> Result<(), String> {
        let Some(index) = self.calls.get(&tag).copied() else {
            return Err(format!("method {tag} is applied, and nobody has called it"));
        };
        if self.refused.contains(&tag) {
            return Err(format!("method {tag} is applied, and has failed before"));
        }
        let mut others = self.objects.iter().enumerate();
        if others.any(|(other, one)| {
            (one.life, one.worker) == (life, Some(worker)) && other != index && !one.is_gone
        }) {
            return Err(format!("method {tag} is applied to another object"));
        }
        let object = &mut self.objects[index];
        if object.worker.is_some_and(|known| known != worker) {
            return Err(format!(
                "method {tag} is applied to an object that is not its own"
            ));
        }
        if object.is_gone {
            return Err(format!(
                "method {tag} is applied to an object that was lost"
            ));
        }
        object.worker = Some(worker);
        match object.applied.contains(&tag) {
            true => Err(format!("method {tag} is applied twice")),
            false => {
                object.applied.push(tag);
                Ok(())
            }
        }
    }

    /// The methods that its object had applied, this one included.
    pub(crate) fn after(&self, tag: Tag) -> Option<Vec<Tag>> {
        let object = &self.objects[*self.calls.get(&tag)?];
        let end = object.applied.iter().position(|applied| *applied == tag)?;
        Some(object.applied[..=end].to_vec())
    }

    pub(crate) fn worker_gone(&mut self, life: u64, worker: WorkerKey, now: u64) {
        self.gone.insert(life, now);
        for object in &mut self.objects {
            if object.life == life {
                object.is_gone |= object.worker == Some(worker);
                // The object might be one that has run no method yet.
                object.may_be_lost |= object.worker.is_none();
            }
        }
    }

    /// The server ends a worker because nobody wants its call or its object any more. Fails if the
    /// worker has a persistent object that nobody has given up.
    pub(crate) fn ends(
        &self,
        (life, worker): (u64, WorkerKey),
        now: u64,
        options: &Options,
    ) -> Result<(), String> {
        let mut objects = self.objects.iter().enumerate();
        let wanted = objects.find(|(index, object)| {
            let is_it = (object.life, object.worker) == (life, Some(worker));
            is_it && object.id.is_some() && !self.may_be_lost(*index, now, options)
        });
        match wanted {
            Some((_, object)) => Err(format!("the persistent object {:?} is ended", object.id)),
            None => Ok(()),
        }
    }

    pub(crate) fn life_ended(&mut self, life: u64) {
        for object in &mut self.objects {
            object.is_gone |= object.life == life;
        }
    }

    /// Whether a persistent object can have expired.
    fn may_be_expired(object: &Object, now: u64, options: &Options) -> bool {
        let keep = keep_ns(options);
        object.id.is_some()
            && (options.faults.calendar_jumps || now + 2_000_000 - object.used >= keep)
    }

    /// Whether an object may be lost.
    pub(crate) fn may_be_lost(&self, index: usize, now: u64, options: &Options) -> bool {
        let object = &self.objects[index];
        let is_lost = object.is_gone || object.may_be_lost || object.may_be_dropped;
        is_lost || Objects::may_be_expired(object, now, options)
    }

    /// Whether a persistent object can be dropped now.
    pub(crate) fn may_be_dropped(
        &self,
        id: HandleId,
        (_, now): (u64, u64),
        options: &Options,
    ) -> bool {
        let mut objects = self.objects.iter();
        objects
            .find(|object| object.id == Some(id))
            .is_none_or(|object| {
                object.may_be_dropped || Objects::may_be_expired(object, now, options)
            })
    }

    /// A method has failed. Returns whether this failure is allowed, if it concerns the object.
    pub(crate) fn failed(
        &mut self,
        tag: Tag,
        kind: FailureKind,
        now: u64,
        options: &Options,
    ) -> Option<bool> {
        let index = *self.calls.get(&tag)?;
        let has_not_run = matches!(
            kind,
            FailureKind::Busy | FailureKind::BadArgument | FailureKind::ObjectLost
        );
        if has_not_run {
            self.refused.insert(tag);
            if self.objects[index].applied.contains(&tag) {
                return Some(false);
            }
        }
        match kind {
            FailureKind::ObjectLost => Some(self.may_be_lost(index, now, options)),
            FailureKind::BadArgument | FailureKind::Cancelled => {
                let object = &self.objects[index];
                let is_given_up = object.may_be_dropped || object.may_be_lost;
                Some(is_given_up || Objects::may_be_expired(object, now, options))
            }
            _ => None,
        }
    }

    /// A client attaches to a persistent object; returns which one.
    pub(crate) fn attached(&mut self, id: HandleId, page: &ObjectPage) -> Result<usize, String> {
        let index = self.objects.iter().position(|object| object.id == Some(id));
        match (index, &page.objects[..]) {
            (Some(index), [record]) if record.id == id => Ok(index),
            _ => Err(format!(
                "object {id} was asked for, and {page:?} is told of"
            )),
        }
    }

    /// The server lists a user's persistent objects.
    pub(crate) fn listed(
        &self,
        (life, user): (u64, u8),
        page: &ObjectPage,
        (since, now): (u64, u64),
        options: &Options,
    ) -> Result<(), String> {
        for record in &page.objects {
            let mut known = self.objects.iter();
            let known = known.find(|object| object.id == Some(record.id));
            if known.is_some_and(|object| object.user != user) {
                return Err(format!("user {user} is told of another user's object"));
            }
        }
        let own = self.objects.iter().filter(|one| {
            let is_there = !one.may_be_dropped && !one.is_gone && one.id.is_some();
            (one.life, one.user) == (life, user)
                && is_there
                && one.kept <= since
                && !Objects::may_be_expired(one, now, options)
        });
        for object in own {
            if !page
                .objects
                .iter()
                .any(|record| Some(record.id) == object.id)
            {
                return Err(format!("object {:?} stays, and is not listed", object.id));
            }
        }
        Ok(())
    }
}
