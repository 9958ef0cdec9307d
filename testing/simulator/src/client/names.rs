//! Clients that put, read, replace and drop named data, and read files of the data folder.
//! `checker::names` decides what they may see. A call that would write named data must fail.

use super::{Client, Purpose, Scene, arrays};
use crate::checker::Secret;
use crate::interfaces::{Contents, ONCE, user_name};
use farcall_rpc_proto::{DataName, Failure, FailureKind, HandleId, Name, NameRecord};

/// How many names a user gives.
const NAMES: u64 = 4;

/// An array that will get a name.
#[derive(Clone, Debug)]
pub(super) struct Published {
    pub(super) name: String,
    pub(super) contents: Contents,
    pub(super) is_shared: bool,
}

/// What is asked about named data.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// Puts an array that will get a name.
    Put(Published),
    /// Gives an array its name.
    Name(HandleId),
    /// Asks for data.
    Ask(DataName),
    List,
    /// Reads data.
    Get(HandleId, Contents),
    /// A call that would write data, which must fail.
    Write(HandleId),
    Drop(HandleId),
}

impl Client {
    pub(super) fn act_on_names(&mut self, scene: &mut Scene<'_>) {
        let reader = (self.life, self.user);
        let known = scene.checker.names.pick(reader, scene.random);
        match (scene.random.below(20), known) {
            (0..=5, _) => self.put_with_name(scene),
            (6..=10, _) => self.ask_for_data(scene),
            (11, _) => {
                if let Some(connection) = &mut self.connection {
                    let made = connection.list_names(None);
                    self.asked(made, Purpose::Name(Asked::List), Vec::new(), scene.now);
                }
            }
            (12, Some((id, contents))) if contents.user == self.user => {
                scene.checker.names.drops(self.life, id);
                if let Some(connection) = &mut self.connection {
                    let made = connection.drop_handle(id);
                    self.asked(made, Purpose::Name(Asked::Drop(id)), Vec::new(), scene.now);
                }
            }
            (13..=14, Some((id, contents))) => self.write_data(id, contents, scene),
            (_, Some((id, contents))) => {
                if let Some(connection) = &mut self.connection {
                    let made = connection.get(id, contents.count);
                    let purpose = Purpose::Name(Asked::Get(id, contents));
                    self.asked(made, purpose, Vec::new(), scene.now);
                }
            }
            (_, None) => self.put_with_name(scene),
        }
    }

    fn put_with_name(&mut self, scene: &mut Scene<'_>) {
        let count = 1 + scene.random.below(2000);
        let published = Published {
            name: format!("d{}", scene.random.below(NAMES)),
            contents: self.contents(scene, count),
            is_shared: scene.random.chance(0.5),
        };
        let sends = published.contents.bytes();
        if let Some(connection) = &mut self.connection {
            let made = connection.put(&arrays::put(published.contents, scene.random.chance(0.5)));
            self.asked(made, Purpose::Name(Asked::Put(published)), sends, scene.now);
        }
    }

    /// An array that will get a name is at the server.
    pub(super) fn publish(
        &mut self,
        published: Published,
        id: HandleId,
        since: u64,
        scene: &mut Scene<'_>,
    ) {
        let who = (self.life, self.user);
        if !published.is_shared {
            scene.checker.secrets.add(Secret::Array(id), who);
        }
        let known = (published.contents, published.is_shared);
        let when = (since, scene.now);
        scene
            .checker
            .names
            .publishes(who, &published.name, id, known, when);
        let name = Name {
            id,
            name: published.name,
            shared: published.is_shared,
            after: 0,
            copy: None,
        };
        if let Some(connection) = &mut self.connection {
            let made = connection.name(&name);
            self.asked(made, Purpose::Name(Asked::Name(id)), Vec::new(), scene.now);
        }
    }

    fn ask_for_data(&mut self, scene: &mut Scene<'_>) {
        let user = 1 + scene.random.below(3) as u8;
        let name = match scene.random.below(4) {
            0 => DataName::plain(&format!("f{}", scene.random.below(3))),
            1 => DataName::plain(&format!("d{}", scene.random.below(NAMES))),
            _ => DataName {
                name: format!("d{}", scene.random.below(NAMES)),
                owner: Some(user_name(user)),
            },
        };
        if let Some(connection) = &mut self.connection {
            let made = connection.ask_name(&name);
            self.asked(made, Purpose::Name(Asked::Ask(name)), Vec::new(), scene.now);
        }
    }

    /// Makes a call that would write named data.
    fn write_data(&mut self, id: HandleId, contents: Contents, scene: &mut Scene<'_>) {
        let (_, mut call) = self.new_call(scene, ONCE, contents.count);
        call.handles.push((0, id));
        if let Some(connection) = &mut self.connection {
            let made = connection.call(&call, 0);
            self.asked(made, Purpose::Name(Asked::Write(id)), Vec::new(), scene.now);
        }
    }

    /// A name was given, or asked for.
    pub(super) fn told_of_name(
        &mut self,
        asked: Asked,
        since: u64,
        record: &NameRecord,
        scene: &mut Scene<'_>,
    ) {
        let (who, when) = ((self.life, self.user), (since, scene.now));
        let names = &mut scene.checker.names;
        let told = match asked {
            Asked::Name(id) => names.named(who, id, record, when),
            Asked::Ask(name) => names.found(who, &name, record, when),
            _ => Ok(()),
        };
        if let Err(text) = told {
            scene.checker.fail(text);
        }
    }

    /// Data have come, or a call has written some.
    pub(super) fn has_named(
        &mut self,
        asked: &Asked,
        since: u64,
        received: &[u8],
        scene: &mut Scene<'_>,
    ) {
        match asked {
            Asked::Get(id, contents) => {
                scene.checker.names.used(self.life, *id, since);
                if contents.bytes() != received {
                    let text = format!("the data {id} are not what was put");
                    scene.checker.fail(text);
                }
            }
            Asked::Write(id) => {
                let text = format!("a call has written the data {id}, which have a name");
                scene.checker.fail(text);
            }
            _ => {}
        }
    }

    /// A request about data has failed. Returns whether this failure is allowed.
    pub(super) fn name_failed(
        &mut self,
        asked: &Asked,
        since: u64,
        failure: &Failure,
        scene: &mut Scene<'_>,
    ) -> bool {
        let options = scene.options;
        let faults = &options.faults;
        let names = &scene.checker.names;
        let disk = faults.disk_errors || faults.disk_forgets;
        match (asked, failure.kind) {
            (_, FailureKind::Busy) => true,
            (Asked::Put(_), FailureKind::Stalled) => {
                faults.stalls || faults.pauses || options.subjects.lanes
            }
            (Asked::Put(_) | Asked::Name(_), FailureKind::QuotaExceeded) => true,
            (Asked::Write(_), FailureKind::BadArgument | FailureKind::NotFound) => true,
            (Asked::Write(_), FailureKind::StaleInterface) => faults.kills || faults.ends,
            (Asked::Get(..), FailureKind::BadArgument) => {
                disk || names.is_file(self.life, asked.id())
            }
            (Asked::Get(id, _) | Asked::Drop(id) | Asked::Name(id), FailureKind::NotFound) => {
                names.may_miss(self.life, *id, scene.now)
            }
            (Asked::Ask(name), FailureKind::NotFound | FailureKind::BadArgument) => {
                let is_many = failure.kind == FailureKind::BadArgument;
                let reader = (self.life, self.user);
                names.may_be_absent(reader, name, is_many, (since, scene.now))
            }
            _ => false,
        }
    }
}

impl Asked {
    fn id(&self) -> HandleId {
        match self {
            Asked::Name(id) | Asked::Get(id, _) | Asked::Write(id) | Asked::Drop(id) => *id,
            _ => HandleId([0; 16]),
        }
    }
}
