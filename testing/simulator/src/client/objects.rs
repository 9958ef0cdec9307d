//! Clients that use objects and their methods. Several connections use a persistent object. The
//! checker knows which methods were applied to an object; this module decides which failures are
//! allowed.

use super::calls::Expected;
use super::{Client, Purpose, Scene};
use crate::checker::{Checker, Secret};
use crate::interfaces::{ADD, CLASS, STATE};
use farcall_rpc_proto::{CallId, Failure, FailureKind, HandleId, ObjectPage, ObjectRequest};

/// An object that the connection knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    request: CallId,
    /// Which one it is, as the checker knows it.
    pub(super) index: usize,
    stays: bool,
}

/// What is asked about objects.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Create,
    Keep(usize),
    Attach(HandleId),
    Drop(HandleId),
    List,
}

impl Client {
    pub(super) fn act_on_objects(&mut self, scene: &mut Scene<'_>) {
        let pick = match self.objects.len() as u64 {
            0 => None,
            count => Some(self.objects[scene.random.below(count) as usize]),
        };
        let who = (self.life, self.user);
        let staying = scene.checker.objects.pick(who, scene.random);
        match (scene.random.below(20), pick, staying) {
            (0..=9, Some(object), _) => self.call_method(object, scene),
            (10..=12, Some(object), _) if !object.stays => {
                let asked = Asked::Keep(object.index);
                self.ask_of_objects(asked, ObjectRequest::Keep(object.request), scene);
            }
            (13, Some(object), _) => self.delete(object, scene),
            (14..=16, _, Some(id)) => {
                self.ask_of_objects(Asked::Attach(id), ObjectRequest::Attach(id), scene);
            }
            (17, _, Some(id)) => {
                scene.checker.objects.drops(id);
                self.ask_of_objects(Asked::Drop(id), ObjectRequest::Drop(id), scene);
            }
            (18, ..) => self.ask_of_objects(Asked::List, ObjectRequest::List(0), scene),
            _ => {
                if let Some(connection) = &mut self.connection {
                    let made = connection.create(CLASS);
                    let purpose = Purpose::Object(Asked::Create);
                    self.asked(made, purpose, Vec::new(), scene.now);
                }
            }
        }
    }

    fn ask_of_objects(&mut self, asked: Asked, request: ObjectRequest, scene: &Scene<'_>) {
        if let Some(connection) = &mut self.connection {
            let made = connection.objects(request);
            self.asked(made, Purpose::Object(asked), Vec::new(), scene.now);
        }
    }

    fn call_method(&mut self, object: Object, scene: &mut Scene<'_>) {
        let (mut made, mut call) = self.new_call(scene, ADD, 1);
        call.object = Some(object.request);
        made.object = Some(object.index);
        made.expected = Expected::State;
        scene.checker.objects.called(made.tag, object.index);
        self.make(scene, (made, call), Vec::new(), STATE as u64);
    }

    fn delete(&mut self, object: Object, scene: &mut Scene<'_>) {
        if let Some(connection) = &mut self.connection {
            connection.delete(object.request);
        }
        self.objects.retain(|known| known.request != object.request);
        scene.checker.objects.left(object.index);
    }

    /// An object is there.
    pub(super) fn created(&mut self, request: CallId, scene: &mut Scene<'_>) {
        if let Some((Purpose::Object(_), since)) = self.closed(request, scene) {
            let (objects, who) = (&mut scene.checker.objects, (self.life, self.user));
            let index = objects.created(who, since, scene.now);
            self.objects.push(Object {
                request,
                index,
                stays: false,
            });
        }
    }

    pub(super) fn told_of_objects(
        &mut self,
        asked: Asked,
        (request, since): (CallId, u64),
        page: &ObjectPage,
        scene: &mut Scene<'_>,
    ) {
        let objects = &mut scene.checker.objects;
        let who = (self.life, self.user);
        let told = match asked {
            Asked::Keep(index) => match &page.objects[..] {
                [record] => {
                    let mut known = self.objects.iter_mut();
                    if let Some(object) = known.find(|object| object.index == index) {
                        object.stays = true;
                    }
                    objects.keeps(index, record.id, scene.now);
                    scene.checker.secrets.add(Secret::Object(record.id), who);
                    Ok(())
                }
                _ => Err("the server keeps an object and does not say which".to_string()),
            },
            Asked::Attach(id) => objects.attached(id, page).map(|index| {
                self.objects.push(Object {
                    request,
                    index,
                    stays: true,
                });
            }),
            Asked::List => objects.listed(who, page, (since, scene.now), scene.options),
            Asked::Create | Asked::Drop(_) => Ok(()),
        };
        if let Err(text) = told {
            scene.checker.fail(text);
        }
    }

    /// A request about objects has failed. Returns whether this failure is allowed.
    pub(super) fn object_failed(
        &mut self,
        asked: Asked,
        since: u64,
        failure: &Failure,
        scene: &mut Scene<'_>,
    ) -> bool {
        let objects = &scene.checker.objects;
        let (now, options) = (scene.now, scene.options);
        match (asked, failure.kind) {
            (Asked::Create, FailureKind::Busy) => true,
            (Asked::Keep(_), FailureKind::QuotaExceeded | FailureKind::BadArgument) => true,
            (Asked::Keep(index), FailureKind::ObjectLost) => {
                objects.may_be_lost(index, now, options)
            }
            (Asked::Attach(_), FailureKind::Busy) => true,
            (Asked::Attach(id) | Asked::Drop(id), FailureKind::NotFound) => {
                objects.may_be_dropped(id, (since, now), options)
            }
            _ => false,
        }
    }

    /// The outcome of a request about objects will never be known.
    pub(super) fn object_unknown(&self, asked: Asked, checker: &mut Checker) {
        if let Asked::Keep(index) = asked {
            checker.objects.left(index);
        }
    }
}
