//! Arrays that a connector reads from addresses outside of Farcall, and those that are still here.
//!
//! A source that says its version is read once: its array becomes named data of its user, and the
//! next request asks only whether the version is the same. A source whose array must wait for
//! memory gives its connector back, and is opened again when there is memory for it.

use super::Data;
use super::pull::{MOST, Waiting};
use crate::action::Action;
use crate::context::Context;
use crate::flaw::{Flaw, has};
use crate::keys::{ConnectionKey, MemoryKey};
use crate::map::Map;
use crate::memory::MemoryGrant;
use crate::source::{SourceFound, SourceRequest};
use farcall_rpc_proto::{CallId, Failure, FailureKind, HandleId, Name, Pull, Put, User};
use std::collections::VecDeque;

/// Most sources that are read at once for one user.
pub(super) const MOST_OF_USER: usize = 8;
/// Most sources that wait for their turn, and most of one user.
const MOST_QUEUED: usize = 1024;
const MOST_QUEUED_OF_USER: usize = 256;
/// Most sources of one user whose arrays stay here: more than calls of one client are under way.
const MOST_CACHED: usize = 1024;

/// Sources that are being opened, and the arrays of those that were read.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    opened: Map<u64, Opened>,
    /// Those that wait for their turn, the oldest first.
    queued: VecDeque<Opened>,
    /// The oldest first.
    cached: Vec<Cached>,
}

/// A client that waits for a source.
#[derive(Debug)]
struct Opened {
    /// `None` after the client has disconnected.
    connection: Option<ConnectionKey>,
    request: CallId,
    user: User,
    stays: bool,
    wanted: SourceRequest,
    /// The array that was found, if it waits for memory. No connector has the source then.
    waits: Option<Put>,
    /// Memory for an array of this form, for which the source is opened again.
    granted: Option<(Put, MemoryKey)>,
}

/// An array that was read.
#[derive(Debug)]
struct Cached {
    user: User,
    /// With the version.
    wanted: SourceRequest,
    id: HandleId,
}

impl Cached {
    fn is_of(&self, user: &User, wanted: &SourceRequest) -> bool {
        self.user == *user
            && self.wanted.address == wanted.address
            && self.wanted.form == wanted.form
            && self.wanted.source == wanted.source
    }
}

/// Starts to read a source for a client.
pub(super) fn offer(data: &mut Data, cx: &mut Context, key: ConnectionKey, id: CallId, pull: Pull) {
    let user = cx.clients[key].user.clone();
    let wanted = SourceRequest {
        address: pull.address,
        form: pull.form,
        source: pull.source.unwrap_or_default(),
        version: None,
    };
    let queued = &data.sources.queued;
    let of_user = queued.iter().filter(|one| one.user == user).count();
    let most = [(queued.len(), MOST_QUEUED), (of_user, MOST_QUEUED_OF_USER)];
    let refused = most.into_iter().find(|(now, most)| now >= most);
    let refused = refused.map(|(now, _)| {
        let text = format!("{now} sources already wait to be read by the server; try again");
        Failure::new(FailureKind::Busy, text)
    });
    let refused = refused.or_else(|| wanted.check().err());
    if let Some(failure) = refused.or_else(|| cx.is_ending()) {
        return cx.refuse(key, id, &failure);
    }
    let opened = Opened {
        connection: Some(key),
        request: id,
        user,
        stays: pull.stays,
        wanted,
        waits: None,
        granted: None,
    };
    data.sources.queued.push_back(opened);
    begin_queued(data, cx);
}

/// Opens the sources whose turn has come: a few at a time, and fewer of one user.
pub(crate) fn begin_queued(data: &mut Data, cx: &mut Context) {
    while !data.sources.queued.is_empty() && arriving(data) < MOST {
        let has_turn = |one: &Opened| of_user(data, &one.user) < MOST_OF_USER;
        let Some(next) = data.sources.queued.iter().position(has_turn) else {
            return;
        };
        if let Some(opened) = data.sources.queued.remove(next) {
            open(data, cx, opened);
        }
    }
}

/// Sources that are being read for a user.
fn of_user(data: &Data, user: &User) -> usize {
    let opened = data.sources.opened.values();
    let opened = opened.filter(|one| one.user == *user).count();
    opened + data.pulls.sources_of(user)
}

/// Lets a connector open a source. If its array is here, only a new version is read.
fn open(data: &mut Data, cx: &mut Context, mut opened: Opened) {
    let (user, wanted) = (&opened.user, &opened.wanted);
    let mut cached = data.sources.cached.iter();
    let cached = cached.find(|cached| cached.is_of(user, wanted));
    let cached = cached.filter(|cached| {
        data.arrays.of_user(cached.id, user).is_ok() && data.names.is_named(cached.id)
    });
    let is_first = opened.granted.is_none();
    if let (true, Some(cached), Some(key)) = (
        has(Flaw::KeepsOldSources) && is_first,
        cached,
        opened.connection,
    ) && let Some(record) = data.arrays.record(cached.id)
    {
        return cx.clients[key].proto.handle(opened.request, &record);
    }
    opened.wanted.version = cached.and_then(|cached| cached.wanted.version.clone());
    let number = data.pulls.next();
    let wanted = Box::new(opened.wanted.clone());
    cx.out.push(Action::OpenSource { number, wanted });
    data.sources.opened.insert(number, opened);
}

/// Handles what a connector has found at an address, or the error that prevented it.
pub(crate) fn found(
    data: &mut Data,
    cx: &mut Context,
    number: u64,
    found: Result<SourceFound, Failure>,
) {
    let Some(mut opened) = data.sources.opened.remove(&number) else {
        return;
    };
    let granted = opened.granted.take();
    let Some(key) = opened.connection else {
        give_back(data, cx, &opened.user, granted);
        return cx.out.push(Action::LeaveSource(number));
    };
    match found {
        Err(failure) => {
            give_back(data, cx, &opened.user, granted);
            if failure.kind == FailureKind::NotAllowed {
                cx.audit_refusal(key, &failure.message);
            }
            cx.refuse(key, opened.request, &failure);
        }
        Ok(SourceFound::Unchanged) => {
            give_back(data, cx, &opened.user, granted);
            tell_of_cached(data, cx, key, opened);
        }
        Ok(SourceFound::Array { form, version }) => {
            let put = Put {
                form,
                data_bytes: 0,
                stays: opened.stays,
            };
            opened.wanted.version = version;
            match granted {
                Some((other, memory)) if other == put => {
                    pass(data, cx, number, opened, (put, memory));
                }
                other => {
                    give_back(data, cx, &opened.user, other);
                    take(data, cx, number, opened, put);
                }
            }
        }
    }
}

/// Gives back memory that was granted for an array which does not come.
fn give_back(data: &mut Data, cx: &mut Context, user: &User, granted: Option<(Put, MemoryKey)>) {
    if let Some((put, memory)) = granted {
        data.forget_put(cx, &put, user, memory);
    }
}

/// Answers with the array of an unchanged source.
fn tell_of_cached(data: &mut Data, cx: &mut Context, key: ConnectionKey, opened: Opened) {
    let (user, wanted) = (&opened.user, &opened.wanted);
    let mut cached = data.sources.cached.iter();
    let cached = cached.find(|cached| cached.is_of(user, wanted));
    let cached = cached.filter(|cached| cached.wanted.version == wanted.version);
    let record = cached.and_then(|cached| data.arrays.record(cached.id));
    match record {
        Some(record) => {
            data.arrays.touch(record.id);
            cx.clients[key].proto.handle(opened.request, &record);
            cx.answered(key);
        }
        // The array was dropped meanwhile.
        None if wanted.version.is_some() => open(data, cx, opened),
        None => {
            let text = format!("the source {} was not read", wanted.shown());
            cx.refuse(
                key,
                opened.request,
                &Failure::new(FailureKind::Internal, text),
            );
        }
    }
}

/// Takes a found array if there is memory for it. Otherwise its connector leaves it.
fn take(data: &mut Data, cx: &mut Context, number: u64, opened: Opened, put: Put) {
    match room_for(data, cx, &opened.user, &put) {
        MemoryGrant::Here(memory) => pass(data, cx, number, opened, (put, memory)),
        MemoryGrant::Later => {
            cx.out.push(Action::LeaveSource(number));
            let waits = Some(put);
            data.sources
                .opened
                .insert(number, Opened { waits, ..opened });
        }
        MemoryGrant::Never(failure) => {
            cx.out.push(Action::LeaveSource(number));
            refuse(cx, &opened, &failure);
        }
    }
}

/// Refuses a source for whose array there will be no memory.
fn refuse(cx: &mut Context, opened: &Opened, failure: &Failure) {
    if let Some(key) = opened.connection {
        let text = format!("{}: {}", opened.wanted.shown(), failure.message);
        cx.refuse(key, opened.request, &Failure::new(failure.kind, text));
    }
}

/// Memory for the array of a source.
fn room_for(data: &mut Data, cx: &mut Context, user: &User, put: &Put) -> MemoryGrant<MemoryKey> {
    let grant = loop {
        match data.room_for(cx, put, user) {
            // Sources that were read can be read again.
            MemoryGrant::Never(failure)
                if failure.kind == FailureKind::QuotaExceeded && drop_oldest(data, cx, user) => {}
            grant => break grant,
        }
    };
    match grant {
        MemoryGrant::Here((bytes, memory)) => {
            data.arrays.reserve(user, bytes);
            MemoryGrant::Here(memory)
        }
        MemoryGrant::Later => MemoryGrant::Later,
        MemoryGrant::Never(failure) => MemoryGrant::Never(failure),
    }
}

/// Lets a connector send the array that it has found.
fn pass(
    data: &mut Data,
    cx: &mut Context,
    number: u64,
    opened: Opened,
    (put, memory): (Put, MemoryKey),
) {
    cx.out.push(Action::TakeSource {
        number,
        memory,
        bytes: put.form.bytes().unwrap_or(0),
    });
    let waiting = Waiting {
        connection: opened.connection,
        request: opened.request,
        put,
        user: opened.user,
        memory,
        source: Some(opened.wanted),
    };
    data.pulls.insert(number, waiting);
}

/// How a request fares that reads a source, for its user.
pub(crate) fn status(data: &Data, key: ConnectionKey, id: CallId) -> Option<String> {
    let mut opened = data.sources.opened.values();
    let opened = opened.find(|one| one.connection == Some(key) && one.request == id);
    if let Some(Opened { wanted, waits, .. }) = opened {
        let source = wanted.shown();
        let waits = waits.as_ref().map(|put| put.form.bytes().unwrap_or(0));
        return Some(
            waits.map_or(format!("the server reads the source {source}"), |bytes| {
                format!("the source {source} waits for memory for its {bytes} bytes")
            }),
        );
    }
    let mut queued = data.sources.queued.iter();
    if let Some(one) = queued.find(|one| one.connection == Some(key) && one.request == id) {
        let source = one.wanted.shown();
        return Some(format!(
            "the source {source} waits until the server has read others"
        ));
    }
    let wanted = data.pulls.source_of(key, id)?;
    Some(format!("the server reads the source {}", wanted.shown()))
}

/// Opens sources again whose arrays have waited for memory, when there is some.
pub(crate) fn serve(data: &mut Data, cx: &mut Context) {
    let mut waiting: Vec<u64> = data.sources.opened.iter().filter_map(waits).collect();
    waiting.sort_unstable();
    for number in waiting {
        let Some(mut opened) = data.sources.opened.remove(&number) else {
            continue;
        };
        let Some(put) = opened.waits.take() else {
            continue;
        };
        match room_for(data, cx, &opened.user, &put) {
            MemoryGrant::Here(memory) => {
                opened.granted = Some((put, memory));
                open(data, cx, opened);
            }
            MemoryGrant::Later => {
                opened.waits = Some(put);
                data.sources.opened.insert(number, opened);
            }
            MemoryGrant::Never(failure) => refuse(cx, &opened, &failure),
        }
    }
}

/// Forgets a client that has disconnected.
pub(crate) fn forget(data: &mut Data, connection: ConnectionKey) {
    data.pulls.forget(connection);
    let (opened, queued) = (&mut data.sources.opened, &mut data.sources.queued);
    queued.retain(|one| one.connection != Some(connection));
    for opened in opened.values_mut() {
        opened.connection = opened.connection.filter(|key| *key != connection);
    }
    opened.retain(|_, opened| opened.connection.is_some() || opened.waits.is_none());
}

/// Gives the array of a source a name, so that the next request finds it. Without a version, or
/// if no name is free, the array belongs to its client alone.
pub(super) fn cache(
    data: &mut Data,
    cx: &mut Context,
    id: HandleId,
    user: &User,
    wanted: SourceRequest,
) {
    let name = Name {
        id,
        name: wanted.name(),
        shared: false,
        after: 0,
        copy: None,
    };
    if wanted.version.is_none() || data.try_name(cx, user, &name).is_err() {
        return;
    }
    let (cached, arrays) = (&mut data.sources.cached, &data.arrays);
    cached.retain(|cached| arrays.get(cached.id).is_some() && !cached.is_of(user, &wanted));
    let count = cached.iter().filter(|cached| cached.user == *user).count();
    if count >= MOST_CACHED {
        drop_oldest(data, cx, user);
    }
    data.sources.cached.push(Cached {
        user: user.clone(),
        wanted,
        id,
    });
}

/// Drops the array of the source that a user has read first. Returns whether there was one.
fn drop_oldest(data: &mut Data, cx: &mut Context, user: &User) -> bool {
    let cached = &mut data.sources.cached;
    let oldest = cached.iter().position(|cached| cached.user == *user);
    let oldest = oldest.map(|oldest| cached.remove(oldest));
    if let Some(oldest) = &oldest {
        data.end_array(cx, oldest.id);
    }
    oldest.is_some()
}

/// Arrays that are on their way from elsewhere. Those that wait for memory are not.
pub(super) fn arriving(data: &Data) -> usize {
    let opened = data.sources.opened.values();
    data.pulls.len() + opened.filter(|one| one.waits.is_none()).count()
}

/// The number of a source whose array waits for memory.
fn waits((number, opened): (&u64, &Opened)) -> Option<u64> {
    opened.waits.as_ref().map(|_| *number)
}
