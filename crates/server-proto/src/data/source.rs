//! Arrays that a connector reads from addresses outside of Farcall, and those that are still here.
//!
//! A source that says its version is read once: its array becomes named data of its user, and the
//! next request asks only whether the version is the same.

use super::Data;
use super::pull::{MOST, Waiting};
use crate::action::Action;
use crate::context::Context;
use crate::flaw::{Flaw, has};
use crate::keys::ConnectionKey;
use crate::map::Map;
use crate::memory::MemoryGrant;
use crate::source::{SourceFound, SourceRequest};
use farcall_rpc_proto::{CallId, Failure, FailureKind, HandleId, Name, Pull, Put, User};

/// Most sources that are read at once for one user.
pub(super) const MOST_OF_USER: usize = 8;
/// Most sources of one user whose arrays stay here.
const MOST_CACHED: usize = 64;

/// Sources that are being opened, and the arrays of those that were read.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    opened: Map<u64, Opened>,
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
    /// The array, and the version of the source, if the array waits for memory.
    found: Option<(Put, Option<String>)>,
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
    let of_user = data.sources.opened.values();
    let of_user = of_user.filter(|opened| opened.user == user).count();
    let most = [(arriving(data), MOST), (of_user, MOST_OF_USER)];
    let refused = most.into_iter().find(|(now, most)| now >= most);
    let refused = refused.map(|(now, _)| {
        let text = format!("{now} arrays are already on their way to the server; try again");
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
        found: None,
    };
    open(data, cx, opened);
}

/// Lets a connector open a source. If its array is here, only a new version is read.
fn open(data: &mut Data, cx: &mut Context, mut opened: Opened) {
    let (user, wanted) = (&opened.user, &opened.wanted);
    let mut cached = data.sources.cached.iter();
    let cached = cached.find(|cached| cached.is_of(user, wanted));
    let cached = cached.filter(|cached| {
        data.arrays.of_user(cached.id, user).is_ok() && data.names.is_named(cached.id)
    });
    if let (true, Some(cached), Some(key)) = (has(Flaw::KeepsOldSources), cached, opened.connection)
        && let Some(record) = data.arrays.record(cached.id)
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
    let Some(key) = opened.connection else {
        return cx.out.push(Action::LeaveSource(number));
    };
    match found {
        Err(failure) => {
            if failure.kind == FailureKind::NotAllowed {
                cx.audit_refusal(key, &failure.message);
            }
            cx.refuse(key, opened.request, &failure);
        }
        Ok(SourceFound::Unchanged) => tell_of_cached(data, cx, key, opened),
        Ok(SourceFound::Array { form, version }) => {
            let put = Put {
                form,
                data_bytes: 0,
                stays: opened.stays,
            };
            opened.found = Some((put, version));
            take(data, cx, number, opened);
        }
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

/// Takes a found array when there is memory for it.
fn take(data: &mut Data, cx: &mut Context, number: u64, opened: Opened) {
    let Some((put, version)) = &opened.found else {
        return;
    };
    let grant = loop {
        match data.room_for(cx, put, &opened.user) {
            // Sources that were read can be read again.
            MemoryGrant::Never(failure)
                if failure.kind == FailureKind::QuotaExceeded
                    && drop_oldest(data, cx, &opened.user) => {}
            grant => break grant,
        }
    };
    match grant {
        MemoryGrant::Here((bytes, memory)) => {
            data.arrays.reserve(&opened.user, bytes);
            let wanted = SourceRequest {
                version: version.clone(),
                ..opened.wanted
            };
            let waiting = Waiting {
                connection: opened.connection,
                request: opened.request,
                put: put.clone(),
                user: opened.user,
                memory,
                source: Some(wanted),
            };
            data.pulls.insert(number, waiting);
            cx.out.push(Action::TakeSource {
                number,
                memory,
                bytes,
            });
        }
        MemoryGrant::Later => drop(data.sources.opened.insert(number, opened)),
        MemoryGrant::Never(failure) => {
            cx.out.push(Action::LeaveSource(number));
            if let Some(key) = opened.connection {
                let text = format!("{}: {}", opened.wanted.shown(), failure.message);
                let failure = Failure::new(failure.kind, text);
                cx.refuse(key, opened.request, &failure);
            }
        }
    }
}

/// Continues with found arrays that wait for memory.
pub(crate) fn serve(data: &mut Data, cx: &mut Context) {
    let mut waiting: Vec<u64> = data.sources.opened.iter().filter_map(waits).collect();
    waiting.sort_unstable();
    for number in waiting {
        if let Some(opened) = data.sources.opened.remove(&number) {
            take(data, cx, number, opened);
        }
    }
}

/// Forgets a client that has disconnected.
pub(crate) fn forget(data: &mut Data, cx: &mut Context, connection: ConnectionKey) {
    data.pulls.forget(connection);
    let opened = &mut data.sources.opened;
    for opened in opened.values_mut() {
        opened.connection = opened.connection.filter(|key| *key != connection);
    }
    opened.retain(|number, opened| {
        let is_over = opened.connection.is_none() && opened.found.is_some();
        if is_over {
            cx.out.push(Action::LeaveSource(*number));
        }
        !is_over
    });
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

/// Arrays that are on their way from elsewhere.
pub(super) fn arriving(data: &Data) -> usize {
    data.pulls.len() + data.sources.opened.len()
}

/// The number of a source whose array waits for memory.
fn waits((number, opened): (&u64, &Opened)) -> Option<u64> {
    opened.found.as_ref().map(|_| *number)
}
