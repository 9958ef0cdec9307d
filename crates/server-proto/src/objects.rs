//! Remote objects: each one has a worker process of its own, which holds its state. Persistent
//! objects outlive their connection, under ids that nobody can guess.

use crate::connection::{Object, Offer};
use crate::context::Context;
use crate::elements::{Elements, gpus};
use crate::flaw::{Flaw, has};
use crate::gpus::{Gpus, Resources};
use crate::keys::{ConnectionKey, WorkerKey};
use crate::worker::ObjectState;
use farcall_rpc_proto::{
    Call, CallId, Failure, FailureKind, HandleId, ObjectPage, ObjectRecord, ObjectRequest, User,
};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Objects in one page of a list.
const PAGE: usize = 128;

/// A persistent object.
struct PersistentObject {
    id: HandleId,
    user: User,
    /// Qualified name of the class.
    class: String,
    used: Cell<u64>,
    object: Object,
}

impl PersistentObject {
    /// Whether one of its methods runs or waits for its turn.
    fn has_calls(&self, elements: &Elements) -> bool {
        let worker = self.object.worker.as_ref().ok();
        let worker = worker.and_then(|worker| elements.workers.get(*worker));
        let held = worker.and_then(|worker| worker.object.as_ref());
        held.is_some_and(|held| held.turn.is_some())
    }
}

/// All persistent objects, in the order of creation.
#[derive(Default)]
pub(crate) struct Objects {
    objects: BTreeMap<u64, PersistentObject>,
    last_number: u64,
}

impl Objects {
    fn find(&self, id: HandleId) -> Option<(u64, &PersistentObject)> {
        let mut objects = self.objects.iter();
        let found = objects.find(|(_, persistent)| persistent.id == id);
        found.map(|(number, persistent)| (*number, persistent))
    }

    fn of_user(&self, id: HandleId, user: &User) -> Result<u64, Failure> {
        let found = self
            .find(id)
            .filter(|(_, persistent)| persistent.user == *user || has(Flaw::SharesObjects));
        found.map(|(number, _)| number).ok_or_else(|| {
            let text = format!(
                "there is no object {id} at the server: it was dropped, it has expired, the \
                 server was restarted, or it belongs to another user"
            );
            Failure::new(FailureKind::NotFound, text)
        })
    }

    /// The object with this id, marked as used now.
    fn used(&self, id: HandleId, now: u64) -> Result<&Object, Failure> {
        let (_, persistent) = self.find(id).ok_or_else(|| {
            let text = "is called on an object that was dropped or has expired";
            Failure::new(FailureKind::ObjectLost, text)
        })?;
        persistent.used.set(now);
        Ok(&persistent.object)
    }

    /// Records that an object's process has ended.
    fn lost(&mut self, id: HandleId, failure: Failure) {
        let mut objects = self.objects.values_mut();
        if let Some(persistent) = objects.find(|persistent| persistent.id == id) {
            persistent.object.worker = Err(failure);
        }
    }

    fn record(&self, number: u64) -> ObjectRecord {
        let persistent = &self.objects[&number];
        ObjectRecord {
            id: persistent.id,
            number,
            class: persistent.class.clone(),
            used: persistent.used.get(),
            lost: persistent
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
        let own = numbers
            .by_ref()
            .filter(|(_, persistent)| persistent.user == *user);
        for (number, _) in own.take(PAGE + 1) {
            objects.push(self.record(*number));
        }
        let more = objects.len() > PAGE;
        objects.truncate(PAGE);
        let next = objects.last().filter(|_| more).map(|last| last.number);
        ObjectPage { objects, next }
    }

    /// An object whose retention is over.
    fn expired(&self, now: u64, keep_ms: u64) -> Option<u64> {
        let mut objects = self.objects.iter();
        let is_old =
            |persistent: &PersistentObject| persistent.used.get().saturating_add(keep_ms) <= now;
        let old = objects.find(|(_, persistent)| is_old(persistent));
        old.map(|(number, _)| *number)
    }

    /// When the next object expires.
    pub(crate) fn next_expiry(&self, keep_ms: u64) -> Option<u64> {
        let used = self
            .objects
            .values()
            .map(|persistent| persistent.used.get())
            .min()?;
        Some(used.saturating_add(keep_ms))
    }

    /// Makes an object for a client.
    pub(crate) fn create(
        cx: &mut Context,
        elements: &mut Elements,
        key: ConnectionKey,
        request: CallId,
        name: &str,
    ) {
        let made = Objects::make(cx, elements, key, request, name);
        let proto = &mut cx.clients[key].proto;
        match made {
            Ok(()) => proto.created(request),
            Err(failure) => proto.fail(request, &failure),
        }
    }

    fn make(
        cx: &mut Context,
        elements: &mut Elements,
        key: ConnectionKey,
        request: CallId,
        name: &str,
    ) -> Result<(), Failure> {
        let busy = |text: String| Err(Failure::new(FailureKind::Busy, text));
        if let Some(failure) = cx.is_ending() {
            return Err(failure);
        }
        let (file, class) = cx.functions.class(name)?;
        let class = class.to_string();
        let objects = &cx.clients[key].objects;
        let limits = &cx.settings.limits;
        if objects.contains_key(&request) {
            let text = "the request number was used before";
            return Err(Failure::new(FailureKind::BadArgument, text));
        }
        if objects.len() >= limits.objects_per_connection {
            return busy(format!(
                "this connection has {} objects, which is the limit \
                 (limits.objects_per_connection in the server's configuration); release one",
                objects.len()
            ));
        }
        let workers = elements.workers.values();
        if workers.filter(|worker| worker.object.is_some()).count() >= limits.objects {
            return busy(format!(
                "the server has {} objects, which is its limit (limits.objects in its \
                 configuration); try again later",
                limits.objects
            ));
        }
        let wanted = cx.functions.gpus_of(file, &class);
        cx.has_gpus(wanted).map_err(|failure| Failure {
            message: format!("{name} {}", failure.message),
            ..failure
        })?;
        let gpus = gpus::least_bound(elements, wanted, Gpus::default());
        let resources = Resources { processes: 1, gpus };
        let worker = elements.workers.start_with(cx, file, resources);
        elements.workers[worker].user = Some(cx.clients[key].user.clone());
        elements.workers[worker].object = Some(ObjectState {
            owner: Some((key, request)),
            ..ObjectState::default()
        });
        let object = Object {
            file,
            class,
            worker: Ok(worker),
            persistent: None,
        };
        cx.clients[key].objects.insert(request, object);
        Ok(())
    }

    /// Destroys an object whose client has given it up or disconnected. A persistent object
    /// remains.
    pub(crate) fn give_up(cx: &mut Context, elements: &mut Elements, object: &Object) {
        if object.persistent.is_none() || has(Flaw::EndsKeptObjects) {
            Objects::end(cx, elements, object);
        }
    }

    fn end(cx: &mut Context, elements: &mut Elements, object: &Object) {
        let Ok(worker) = object.worker else { return };
        let Some(known) = elements.workers.get_mut(worker) else {
            return;
        };
        if let Some(held) = &mut known.object {
            (held.owner, held.persistent) = (None, None);
        }
        let text = "was ended because its object was released";
        elements
            .workers
            .end(cx, worker, FailureKind::Cancelled, text);
    }

    /// The worker of the object that a call is for; `None` for a plain function.
    pub(crate) fn worker_of(
        &self,
        cx: &Context,
        key: ConnectionKey,
        offer: &Offer,
        call: &Call,
    ) -> Result<Option<WorkerKey>, Failure> {
        let function = cx.functions.get(call.function)?;
        let named = |kind, text: &str| {
            let name = function.interface.qualified_name();
            Failure::new(kind, format!("{name} {text}"))
        };
        let bad = |text: String| Err(named(FailureKind::BadArgument, &text));
        if call.object.is_some() && !matches!(offer, Offer::Call(_)) {
            return bad("is called on an object, which ends with its connection".into());
        }
        let (number, class) = match (call.object, &function.interface.class) {
            (None, None) => return Ok(None),
            (Some(_), None) => return bad("is a function and cannot be called on an object".into()),
            (None, Some(class)) => {
                return bad(format!("is a method: make an object of `{class}` first"));
            }
            (Some(number), Some(class)) => (number, class),
        };
        let objects = &cx.clients[key].objects;
        let object = match objects.get(&number) {
            Some(Object {
                persistent: Some(id),
                ..
            }) => {
                let used = self.used(*id, cx.steady_ms());
                Some(used.map_err(|ended| named(ended.kind, &ended.message))?)
            }
            object => object,
        };
        match object {
            None => bad("is called on an object that was released".into()),
            Some(object) if object.class != *class || object.file != function.entry.file => {
                bad(format!("is called on an object of `{}`", object.class))
            }
            Some(Object { worker, .. }) => worker.clone().map(Some).map_err(|lost| {
                let why = lost.message;
                let text =
                    format!("was called on an object that is lost because {why}; make a new one");
                named(lost.kind, &text)
            }),
        }
    }

    /// Handles a client's request about persistent objects.
    pub(crate) fn ask(
        &mut self,
        cx: &mut Context,
        elements: &mut Elements,
        key: ConnectionKey,
        request: CallId,
        asked: ObjectRequest,
    ) {
        let user = cx.clients[key].user.clone();
        let answer = match asked {
            ObjectRequest::Keep(object) => self.keep(cx, elements, key, object, user),
            ObjectRequest::Attach(id) => self.attach(cx, key, request, id, &user),
            ObjectRequest::Drop(id) => self.of_user(id, &user).map(|number| {
                let record = self.record(number);
                self.drop_object(cx, elements, number);
                record
            }),
            ObjectRequest::List(after) => {
                let page = self.page(&user, after);
                return cx.clients[key].proto.objects(request, &page);
            }
        };
        let proto = &mut cx.clients[key].proto;
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

    fn keep(
        &mut self,
        cx: &mut Context,
        elements: &mut Elements,
        key: ConnectionKey,
        object: CallId,
        user: User,
    ) -> Result<ObjectRecord, Failure> {
        let bad = |text: &str| Failure::new(FailureKind::BadArgument, text);
        let objects = &cx.clients[key].objects;
        let held = objects
            .get(&object)
            .filter(|object| object.persistent.is_none());
        let held =
            held.ok_or_else(|| bad("there is no such object, or it is already persistent"))?;
        let (file, class) = (held.file, held.class.clone());
        let worker = held.worker.clone().map_err(|lost| {
            let text = format!("the object is lost because {}", lost.message);
            Failure::new(lost.kind, text)
        })?;
        let of_user = self
            .objects
            .values()
            .filter(|persistent| persistent.user == user);
        let most = cx.settings.limits.objects_per_connection;
        if of_user.count() >= most {
            let text = format!(
                "this user has {most} persistent objects, which is the limit \
                 (limits.objects_per_connection in the server's configuration); drop one"
            );
            return Err(Failure::new(FailureKind::QuotaExceeded, text));
        }
        let id = HandleId(cx.ids.next());
        let qualified = cx.functions.qualified_class(file, &class);
        let persistent = Object {
            file,
            class,
            worker: Ok(worker),
            persistent: Some(id),
        };
        if let Some(object) = cx.clients[key].objects.get_mut(&object) {
            object.persistent = Some(id);
        }
        if let Some(held) = elements.workers[worker].object.as_mut() {
            held.persistent = Some(id);
        }
        self.last_number += 1;
        let number = self.last_number;
        let persistent = PersistentObject {
            id,
            user,
            class: qualified,
            used: Cell::new(cx.steady_ms()),
            object: persistent,
        };
        self.objects.insert(number, persistent);
        Ok(self.record(number))
    }

    fn attach(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        request: CallId,
        id: HandleId,
        user: &User,
    ) -> Result<ObjectRecord, Failure> {
        let number = self.of_user(id, user)?;
        let objects = &mut cx.clients[key].objects;
        if objects.contains_key(&request) {
            let text = "the request number was used before";
            return Err(Failure::new(FailureKind::BadArgument, text));
        }
        if objects.len() >= cx.settings.limits.objects_per_connection {
            let text = format!("this connection has {} objects; release one", objects.len());
            return Err(Failure::new(FailureKind::Busy, text));
        }
        let object = self.objects[&number].object.clone();
        objects.insert(request, object);
        Ok(self.record(number))
    }

    fn drop_object(&mut self, cx: &mut Context, elements: &mut Elements, number: u64) {
        if let Some(persistent) = self.objects.remove(&number) {
            Objects::end(cx, elements, &persistent.object);
        }
    }

    /// A call of the object in a worker has ended: the retention of the object begins again.
    pub(crate) fn call_ended(&self, elements: &Elements, worker: WorkerKey, now: u64) {
        let held = elements
            .workers
            .get(worker)
            .and_then(|worker| worker.object.as_ref());
        let found = held.and_then(|held| self.find(held.persistent?));
        if let Some((_, persistent)) = found {
            persistent.used.set(now);
        }
    }

    /// Destroys objects whose retention is over. One whose methods run or wait is in use.
    pub(crate) fn expire(&mut self, cx: &mut Context, elements: &mut Elements, keep_ms: u64) {
        let now = cx.steady_ms();
        while let Some(number) = self.expired(now, keep_ms) {
            if self.objects[&number].has_calls(elements) {
                self.objects[&number].used.set(now);
                continue;
            }
            tracing::debug!("the object {} has expired", self.objects[&number].id);
            self.drop_object(cx, elements, number);
        }
    }

    /// Handles the end of an object's process: later calls of its methods fail.
    pub(crate) fn died(&mut self, cx: &mut Context, held: &ObjectState, failure: Failure) {
        if let Some((connection, request)) = held.owner
            && let Some(connection) = cx.clients.get_mut(connection)
            && let Some(object) = connection.objects.get_mut(&request)
        {
            object.worker = Err(failure.clone());
        }
        if let Some(id) = held.persistent {
            self.lost(id, failure);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::ActiveCall;
    use crate::connection::Connection;
    use crate::context::Step;
    use crate::engine::Engine;
    use crate::event::{Accepted, Event, Finished, Now, Ready};
    use crate::keys::CallKey;
    use crate::settings::Settings;
    use farcall_idl::{Scalar, parse_document};
    use farcall_rpc_proto::{Hello, Limits};

    const IDL: &str = "Module m; Library \"libc.so.6\";
        DefClass Sleeper { DefMethod nap(IN int n) Calls \"C\" usleep(n); }";
    const HOUR: u64 = 3_600_000_000_000;

    /// A server with a persistent object.
    fn server(keep_h: f64) -> (Engine, WorkerKey) {
        let document = parse_document(IDL).document;
        let mut settings = Settings::simple(false);
        settings.arrays.keep_h = keep_h;
        let mut engine = Engine::new(settings, [&document], Vec::new(), Now::default());
        let worker = engine.elements.workers.start(&mut engine.cx, 0);
        engine.handle(Event::Ready(worker, Ready::default()));
        let id = HandleId([1; 16]);
        engine.elements.workers[worker].object = Some(ObjectState {
            persistent: Some(id),
            ..ObjectState::default()
        });
        let object = Object {
            file: 0,
            class: "Sleeper".into(),
            worker: Ok(worker),
            persistent: Some(id),
        };
        let persistent = PersistentObject {
            id,
            user: User::named("anne"),
            class: "m/Sleeper".into(),
            used: Cell::new(0),
            object,
        };
        engine.objects.objects.insert(1, persistent);
        (engine, worker)
    }

    /// Calls the object's method.
    fn call(engine: &mut Engine, worker: WorkerKey) -> CallKey {
        let (number, function) = engine.cx.functions.iter().next().map_or_else(
            || panic!("there is a method"),
            |function| {
                let name = function.interface.qualified_name();
                engine.cx.functions.describe(&name).unwrap()
            },
        );
        let layout = function.interface.layout(&[Some(Scalar::Int(1))], &[]);
        let user = User::named("anne");
        let mut call = ActiveCall::new(user, None, number, Vec::new(), layout.unwrap());
        call.run.object = Some(worker);
        let key = engine.cx.calls.insert(call);
        engine.cx.step(Step::Enqueue(key));
        engine.settle();
        key
    }

    fn turn(engine: &mut Engine, nanos: u64) {
        let now = Now { nanos, unix_ms: 0 };
        engine.cx.clock.set(now);
        engine.data.arrays.now = engine.cx.steady_ms();
        engine.turn();
    }

    /// A connection of a client.
    fn connect(engine: &mut Engine) -> ConnectionKey {
        let accepted = Accepted {
            peer: "test".into(),
            user: User::named("anne"),
            host: None,
            is_local: true,
            is_unix: false,
            local: None,
            ways: None,
        };
        let connection = Connection::new(accepted, Limits::default(), Hello::new("test"), 0);
        engine.cx.clients.insert(connection)
    }

    /// Its methods would be refused. The successor can make it.
    #[test]
    fn a_server_that_drains_makes_no_objects() {
        let (mut engine, _) = server(1.0);
        let key = connect(&mut engine);
        engine.cx.draining = true;
        let made = Objects::make(&mut engine.cx, &mut engine.elements, key, 5, "m/Sleeper");
        assert_eq!(made.unwrap_err().kind, FailureKind::Draining);
        assert!(engine.cx.clients[key].objects.is_empty());
    }

    #[test]
    fn a_request_that_reuses_the_number_of_an_object_does_not_take_its_place() {
        let (mut engine, _) = server(1.0);
        let key = connect(&mut engine);
        Objects::make(&mut engine.cx, &mut engine.elements, key, 5, "m/Sleeper").unwrap();
        let anne = User::named("anne");
        let mut attach = |request| {
            let id = HandleId([1; 16]);
            let attached = engine
                .objects
                .attach(&mut engine.cx, key, request, id, &anne);
            attached.map_err(|failure| failure.kind)
        };
        // The process of the first one would never end.
        assert_eq!(attach(5).err(), Some(FailureKind::BadArgument));
        assert!(attach(6).is_ok());
        assert_eq!(engine.cx.clients[key].objects[&5].persistent, None);
    }

    #[test]
    fn an_object_stays_while_its_method_runs_and_for_its_retention_afterwards() {
        let (mut engine, worker) = server(1.0);
        let key = call(&mut engine, worker);
        for half_hours in 0..10 {
            turn(&mut engine, half_hours * HOUR / 2);
            assert_eq!(engine.objects.objects.len(), 1, "{half_hours}");
        }
        turn(&mut engine, 5 * HOUR - 1);
        let finished = Finished {
            exec_nanos: 1,
            failure: None,
        };
        engine.handle(Event::Finished(worker, key, finished));
        assert!(engine.cx.calls.is_empty());
        turn(&mut engine, 6 * HOUR - 2_000_000);
        assert_eq!(
            engine.objects.objects.len(),
            1,
            "unused for less than an hour"
        );
        turn(&mut engine, 6 * HOUR);
        assert_eq!(engine.objects.objects.len(), 0);
    }

    #[test]
    fn the_shortest_retention_does_not_keep_the_server_busy() {
        let (mut engine, worker) = server(1e-12);
        call(&mut engine, worker);
        turn(&mut engine, HOUR);
        assert!(engine.next_deadline().is_none_or(|next| next > HOUR));
    }
}
