//! Remote objects: each has a worker process of its own, which holds its state.

use super::Server;
use crate::connection::{Object, Offer};
use crate::event::Death;
use crate::flaw::{Flaw, has};
use crate::keys::{CallKey, ConnectionKey, WorkerKey};
use crate::worker::Held;
use farcall_rpc_proto::{Call, CallId, Failure, FailureKind};

impl Server {
    /// A client wants an object.
    pub(super) fn create_object(&mut self, key: ConnectionKey, request: CallId, name: &str) {
        let made = self.make_object(key, request, name);
        let proto = &mut self.connections[key].proto;
        match made {
            Ok(()) => proto.created(request),
            Err(failure) => proto.fail(request, &failure),
        }
    }

    fn make_object(
        &mut self,
        key: ConnectionKey,
        request: CallId,
        name: &str,
    ) -> Result<(), Failure> {
        let busy = |text: String| Err(Failure::new(FailureKind::Busy, text));
        if self.stopping.is_some() {
            let text = "the server is stopping";
            return Err(Failure::new(FailureKind::ServerStopping, text));
        }
        let (file, class) = self.functions.class(name)?;
        let class = class.to_string();
        let objects = &self.connections[key].objects;
        let limits = &self.settings.limits;
        if objects.contains_key(&request) {
            let text = "the request number was used before";
            return Err(Failure::new(FailureKind::BadArgument, text));
        }
        if objects.len() >= limits.objects_per_connection {
            return busy(format!(
                "this connection has {} objects, and the server allows no more \
                 (limits.objects_per_connection in its configuration); give one up",
                objects.len()
            ));
        }
        let workers = self.workers.values();
        if workers.filter(|worker| worker.object.is_some()).count() >= limits.objects {
            return busy(format!(
                "there are {} objects, and the server allows no more (limits.objects in its \
                 configuration); try again later",
                limits.objects
            ));
        }
        let worker = self.start_worker(file, 1);
        self.workers[worker].user = Some(self.connections[key].user.clone());
        self.workers[worker].object = Some(Held {
            owner: Some((key, request)),
            ..Held::default()
        });
        let object = Object {
            file,
            class,
            worker: Ok(worker),
            kept: None,
        };
        self.connections[key].objects.insert(request, object);
        Ok(())
    }

    /// A client does not want an object any more.
    pub(super) fn give_object_up(&mut self, key: ConnectionKey, request: CallId) {
        if let Some(object) = self.connections[key].objects.remove(&request) {
            self.delete_object(object);
        }
    }

    /// A client gives an object up, or has gone. One that stays is left alone.
    pub(super) fn delete_object(&mut self, object: Object) {
        if object.kept.is_none() || has(Flaw::EndsKeptObjects) {
            self.end_object(object);
        }
    }

    /// Destroys an object.
    pub(super) fn end_object(&mut self, object: Object) {
        if let Ok(worker) = object.worker {
            let Some(known) = self.workers.get_mut(worker) else {
                return;
            };
            if let Some(held) = &mut known.object {
                (held.owner, held.kept) = (None, None);
            }
            let text = "was ended because its object was given up";
            self.end_worker(worker, FailureKind::Cancelled, text);
        }
    }

    /// The worker that holds the object of a call; none of a function.
    pub(super) fn object_of(
        &self,
        key: ConnectionKey,
        offer: &Offer,
        call: &Call,
    ) -> Result<Option<WorkerKey>, Failure> {
        let function = self.functions.get(call.function)?;
        let bad = |text: String| {
            let name = function.interface.qualified_name();
            Err(Failure::new(
                FailureKind::BadArgument,
                format!("{name} {text}"),
            ))
        };
        if call.object.is_some() && !matches!(offer, Offer::Call(_)) {
            return bad("is called on an object, which ends with its connection".into());
        }
        let (number, class) = match (call.object, &function.interface.class) {
            (None, None) => return Ok(None),
            (Some(_), None) => return bad("is a function, and not called on an object".into()),
            (None, Some(class)) => {
                return bad(format!("is a method: make an object of `{class}` first"));
            }
            (Some(number), Some(class)) => (number, class),
        };
        let objects = &self.connections[key].objects;
        let object = match objects.get(&number) {
            Some(Object { kept: Some(id), .. }) => Some(self.kept.used(*id, self.clock.unix_ms)?),
            object => object,
        };
        match object {
            None => bad("is called on an object that was given up".into()),
            Some(object) if object.class != *class || object.file != function.entry.file => {
                bad(format!("is called on an object of `{}`", object.class))
            }
            Some(Object { worker, .. }) => worker.clone().map(Some),
        }
    }

    /// Whether it is the job's turn to ask for processor elements: what waits for its object takes
    /// none. Else it waits behind the others.
    pub(super) fn takes_turn(&mut self, key: CallKey) -> bool {
        let Some(held) = self.held(key) else {
            return true;
        };
        match held.turn {
            None => held.turn = Some(key),
            Some(turn) if turn == key => {}
            Some(_) => held.behind.push_back(key),
        }
        held.turn == Some(key)
    }

    /// A job of an object is over, or given up: the next one has its turn.
    pub(super) fn passes_turn(&mut self, key: CallKey, worker: WorkerKey) {
        let held = self.workers.get_mut(worker);
        let Some(held) = held.and_then(|worker| worker.object.as_mut()) else {
            return;
        };
        if held.turn != Some(key) {
            return held.behind.retain(|job| *job != key);
        }
        held.turn = held.behind.pop_front();
        if let Some(next) = held.turn {
            self.enqueue(next);
        }
    }

    /// What is known of the object whose method the job is.
    fn held(&mut self, key: CallKey) -> Option<&mut Held> {
        let worker = self.calls[key].object?;
        self.workers.get_mut(worker)?.object.as_mut()
    }

    /// The process of an object has ended: calls that wait for it fail, and later ones will.
    pub(super) fn object_died(&mut self, held: Held, death: &Death) {
        let cause = &death.cause;
        let text = format!("was called on an object that is lost: its process {cause}");
        if let Some((connection, request)) = held.owner
            && let Some(connection) = self.connections.get_mut(connection)
            && let Some(object) = connection.objects.get_mut(&request)
        {
            object.worker = Err(Failure::new(FailureKind::ObjectLost, text.clone()));
        }
        if let Some(id) = held.kept {
            self.kept
                .lost(id, Failure::new(FailureKind::ObjectLost, text.clone()));
        }
        let kind = match (held.owner, held.kept) {
            (None, None) => death.kind,
            _ => FailureKind::ObjectLost,
        };
        let waiting: Vec<CallKey> = held.turn.into_iter().chain(held.behind).collect();
        self.admitted.retain(|job| !waiting.contains(job));
        for job in waiting {
            self.fail_job(job, kind, &text);
        }
    }
}
