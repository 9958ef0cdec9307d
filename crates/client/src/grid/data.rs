//! Named data behind a metaserver: which servers hold them, and how a copy reaches the server of a
//! call.
//!
//! The directory knows the newest version and its holders. This module never changes the bytes of a
//! version.

use crate::data::{DataStatus, Source};
use crate::error::Error;
use crate::grid::directory::Grid;
use crate::remote::{Handle, Server, check_names, directory, put_within};
use crate::timeout::Timeout;
use farcall_directory::message::{DataFound, DataListed, Datum, FindData, ListData, Need, Offer};
use farcall_directory::{Located, Viewer, source_name};
use farcall_rpc_proto::{ArrayForm, DataName, FailureKind, Kind, Name, Rows};
use std::thread;
use std::time::{Duration, Instant};

/// A metaserver learns within this time what a server holds.
const HEARD: Duration = Duration::from_secs(2);
/// Time between two questions to the metaserver.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A client sees everything that the metaserver told it.
const SELF: Viewer<'static> = Viewer {
    user: "",
    sees_all: true,
};

/// Named data that a call reads.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    datum: Datum,
    /// Numbers and addresses of the servers that hold the data.
    holders: Vec<(u64, String)>,
}

impl Found {
    pub(crate) fn need(&self) -> Need {
        Need {
            number: self.datum.number(),
            bytes: self.datum.bytes,
        }
    }

    /// What a call needs of the data that reads some rows of them.
    pub(crate) fn need_of(&self, rows: Option<Rows>) -> Need {
        let Need { number, bytes } = self.need();
        let all = self.datum.shape.first().copied().unwrap_or(1).max(1);
        let wanted = rows.map_or(all, |rows| {
            let end = rows.end.unwrap_or(all).min(all);
            end.saturating_sub(rows.begin)
        });
        let bytes = u128::from(bytes) * u128::from(wanted) / u128::from(all);
        Need {
            number,
            bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
        }
    }

    fn name(&self) -> DataName {
        DataName {
            name: self.datum.name.clone(),
            owner: Some(self.datum.owner.clone()),
        }
    }
}

impl Grid {
    /// Asks the metaserver who holds named data, and which server has `room` bytes for them.
    fn ask_data(&self, name: &DataName, room: Option<u64>) -> Result<Option<Offer>, Error> {
        let asked = format!("{name}");
        if room.is_none() && self.known().is_fresh_data(self.now(), &asked) {
            return Ok(None);
        }
        let find = FindData {
            name: name.name.clone(),
            owner: name.owner.clone(),
            room,
        };
        let found: Option<DataFound> = self.ask(|connection| {
            check_names(connection)?;
            directory::ask_directory(connection, (Kind::FindData, Kind::DataFound), &find)
        })?;
        let Some(mut found) = found else {
            return Ok(None);
        };
        let room = found.room.take();
        let mut known = self.known();
        known.found_data(self.now(), (&asked, &name.name), found);
        Ok(room)
    }

    /// Makes the next question go to the metaserver, not to the client's copy of the directory.
    fn ask_anew(&self) {
        self.known().ask_data_anew();
    }

    /// What the client's directory knows of named data, with the addresses of the holders.
    fn known_data(&self, name: &DataName) -> Vec<Found> {
        let known = self.known();
        let directory = known.directory();
        let located = directory.data(SELF, &name.name, name.owner.as_deref());
        let address = |server| Some((server, directory.address(server)?.to_string()));
        let found = located.into_iter().map(|Located { datum, holders }| Found {
            datum,
            holders: holders.into_iter().filter_map(address).collect(),
        });
        found.collect()
    }

    /// Finds named data that this user may read. A server that holds them has confirmed it.
    /// `timeout` is that of the call that reads them.
    pub(crate) fn find_data(
        &self,
        name: &DataName,
        timeout: Timeout,
    ) -> Result<(Found, Handle), Error> {
        self.ask_data(name, None)?;
        match self.confirmed(name, timeout) {
            Err(error) if is_over(&error, timeout) => Err(error),
            Err(_) => {
                // The client's copy of the directory may be out of date.
                self.ask_anew();
                self.ask_data(name, None)?;
                self.confirmed(name, timeout)
            }
            found => found,
        }
    }

    /// The array of a source, at servers that have read it; nothing if nobody knows any. Each of
    /// these servers asks the source whether it has changed.
    ///
    /// # Errors
    /// [`Options::on_interrupt`](crate::Options::on_interrupt) asked to give up.
    pub(crate) fn find_source(
        &self,
        source: &Source,
        form: &ArrayForm,
    ) -> Result<Option<Found>, Error> {
        let name = DataName {
            name: source_name(&source.address, form, &source.options),
            owner: None,
        };
        first_known(self, &name)
    }

    /// The file of the data folder that a source is, at the servers that have it; nothing for other
    /// sources, and if nobody knows any.
    ///
    /// # Errors
    /// [`Options::on_interrupt`](crate::Options::on_interrupt) asked to give up.
    pub(crate) fn find_file(&self, source: &Source) -> Result<Option<Found>, Error> {
        let Some(path) = source.address.strip_prefix("folder:") else {
            return Ok(None);
        };
        let name = DataName {
            name: path.to_string(),
            owner: Some(String::new()),
        };
        first_known(self, &name)
    }

    /// Brings a file of the data folder, or the part of it that a source names, to a server that
    /// does not have the file: one that has it reads it. Returns nothing if the server has it.
    /// `timeout` is that of the call.
    pub(crate) fn bring_file(
        &self,
        found: &Found,
        (source, form): (&Source, &ArrayForm),
        (number, server): (u64, &Server),
        timeout: Timeout,
    ) -> Result<Option<(Handle, bool)>, Error> {
        if found.holders.iter().any(|(holder, _)| *holder == number) {
            return Ok(None);
        }
        let mut last = None;
        for (holder, address) in &found.holders {
            let at = holder_at(self, (*holder, address), timeout);
            match at.and_then(|at| at.read_source(source, form.clone(), false, timeout)) {
                Ok((from, is_own)) => {
                    let copy = copy_to(&from, server, timeout);
                    if is_own {
                        from.drop_soon();
                    }
                    return Ok(Some((copy?, true)));
                }
                Err(error) => last = Some(of_holder((found, address), timeout, error)?),
            }
        }
        last.map_or(Ok(None), Err)
    }

    fn confirmed(&self, name: &DataName, timeout: Timeout) -> Result<(Found, Handle), Error> {
        let mut last = None;
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for found in self.known_data(name) {
            match self.at_a_holder(&found, timeout) {
                Ok(handle) if handle.name().is_some_and(|name| name.own) => {
                    own.push((found, handle));
                    break;
                }
                Ok(handle) => others.push((found, handle)),
                Err(error) if is_over(&error, timeout) => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        let file = others
            .iter()
            .position(|(found, _)| found.datum.owner.is_empty());
        let first = file.or((others.len() == 1).then_some(0));
        if let Some(one) = own
            .pop()
            .or_else(|| first.map(|first| others.swap_remove(first)))
        {
            return Ok(one);
        }
        if others.len() > 1 {
            let owners = others.iter().map(|(found, _)| found.name().to_string());
            let owners: Vec<String> = owners.collect();
            let text = format!(
                "several users share data named `{name}`: {}; add the owner, as in NAME@USER",
                owners.join(", ")
            );
            return Err(Error::failed(FailureKind::BadArgument, text));
        }
        Err(last.unwrap_or_else(|| {
            let text = format!(
                "no server holds data named `{name}`; `farcall ls --data` lists named data"
            );
            Error::failed(FailureKind::NotFound, text)
        }))
    }

    /// The array at the first reachable holder that gives it.
    fn at_a_holder(&self, found: &Found, timeout: Timeout) -> Result<Handle, Error> {
        let mut last = None;
        for (server, address) in &found.holders {
            let at = holder_at(self, (*server, address), timeout);
            match at.and_then(|server| server.data(&found.name(), timeout)) {
                Ok(handle) => return Ok(handle),
                Err(error) => last = Some(of_holder((found, address), timeout, error)?),
            }
        }
        Err(last.unwrap_or_else(|| {
            let text = format!("no server holds `{}` any more", found.name());
            Error::failed(FailureKind::NotFound, text)
        }))
    }

    /// A handle for named data at a server that holds them.
    pub(crate) fn data(&self, name: &DataName) -> Result<Handle, Error> {
        let timeout = Timeout::from_now(self.meta().options().timeout);
        self.find_data(name, timeout).map(|(_, handle)| handle)
    }

    /// Brings named data to the server of a call, if that server does not hold them. A copy of the
    /// user's own data gets their name, so that the server becomes a holder. A copy of another
    /// user's data is for this call only; the returned `true` says that the caller must drop it.
    /// `timeout` is that of the call.
    pub(crate) fn bring(
        &self,
        found: &Found,
        (number, server): (u64, &Server),
        timeout: Timeout,
    ) -> Result<(Handle, bool), Error> {
        if found.holders.iter().any(|(holder, _)| *holder == number) {
            match server.data(&found.name(), timeout) {
                Ok(handle) => return Ok((handle, false)),
                Err(error) if is_over(&error, timeout) => return Err(error),
                // It has them no more.
                Err(_) => {}
            }
        }
        let from = match self.at_a_holder(found, timeout) {
            Ok(from) => from,
            Err(error) if is_over(&error, timeout) => return Err(error),
            Err(_) => {
                self.ask_anew();
                self.find_data(&found.name(), timeout)?.1
            }
        };
        let lost = |error: Error| {
            if let Error::Interrupted | Error::Timeout { .. } = error {
                return error;
            }
            let text = format!(
                "`{}` is at {} and cannot be copied to {}: {error}",
                found.name(),
                from.address(),
                server.address()
            );
            Error::failed(FailureKind::Unreachable, text)
        };
        let copy = copy_to(&from, server, timeout).map_err(lost)?;
        let Some(named) = from.name().filter(|named| named.own) else {
            return Ok((copy, true));
        };
        let name = Name {
            id: copy.id(),
            name: named.name.name.clone(),
            shared: named.shared,
            after: 0,
            copy: Some(named.identity),
        };
        // If the server has no room for another name, the copy is for this call only.
        let named = server.name(&copy, &name);
        if let Err(Error::Interrupted) = named {
            copy.drop_soon();
            return Err(Error::Interrupted);
        }
        let is_bound = named.as_ref().is_ok_and(|bound| bound.id() == copy.id());
        Ok((copy, !is_bound))
    }

    /// Puts an array under a name, at the server that holds the old version or at one with room.
    pub(crate) fn put_named(
        &self,
        form: ArrayForm,
        bytes: &[u8],
        name: &str,
        shared: bool,
    ) -> Result<Handle, Error> {
        let plain = DataName::plain(name);
        let needed = form.bytes().unwrap_or(u64::MAX);
        let offer = self.ask_data(&plain, Some(needed))?;
        let before = self.own_copies(&plain)?;
        let version = |handle: &Handle| handle.name().map_or(0, |named| named.version);
        let after = before.iter().map(version).max().unwrap_or(0);
        let server = match (before.first(), offer) {
            (Some(handle), _) => handle.at().clone(),
            (None, Some(offer)) => self.server(offer.server, &offer.address)?,
            (None, None) => {
                let text = format!("no known server has {needed} bytes of memory free");
                return Err(Error::failed(FailureKind::NoServer, text));
            }
        };
        let handle = server.put_named(form, bytes, (name, shared, after))?;
        self.await_version(&handle)?;
        for old in before
            .iter()
            .filter(|old| old.address() != server.address())
        {
            old.drop_soon();
        }
        Ok(handle)
    }

    /// Waits until the metaserver knows of data that were just put, so that other programs find
    /// them. If the metaserver does not learn of them in time, the data are still there.
    fn await_version(&self, handle: &Handle) -> Result<(), Error> {
        let Some(named) = handle.name() else {
            return Ok(());
        };
        let end = Instant::now() + HEARD;
        loop {
            self.ask_anew();
            self.ask_data(&named.name, None)?;
            let identity = (named.identity.written, named.identity.stamp);
            let known = self.known_data(&named.name);
            let is_known = known.iter().any(|found| found.datum.version() >= identity);
            if is_known || Instant::now() >= end {
                return Ok(());
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// The user's own data with this name, at each reachable server that has a version of them, the
    /// newest first.
    ///
    /// # Errors
    /// [`Options::on_interrupt`](crate::Options::on_interrupt) asked to give up.
    fn own_copies(&self, name: &DataName) -> Result<Vec<Handle>, Error> {
        let mut own: Vec<Handle> = Vec::new();
        for found in self.known_data(name) {
            for (server, address) in &found.holders {
                let at = self.server(*server, address);
                let copy = at.and_then(|server| {
                    let timeout = Timeout::from_now(server.options().timeout);
                    server.data(&found.name(), timeout)
                });
                match copy {
                    Ok(copy) if copy.name().is_some_and(|named| named.own) => own.push(copy),
                    Err(Error::Interrupted) => return Err(Error::Interrupted),
                    Ok(_) | Err(_) => {}
                }
            }
        }
        own.sort_by_key(|copy| std::cmp::Reverse(copy.name().map(|named| named.identity)));
        Ok(own)
    }

    /// Drops the user's own data with this name at all holders.
    pub(crate) fn drop_data(&self, name: &DataName) -> Result<(), Error> {
        self.ask_anew();
        let timeout = Timeout::from_now(self.meta().options().timeout);
        let (_, handle) = self.find_data(name, timeout)?;
        for copy in self.own_copies(name)? {
            if copy.id() != handle.id() {
                copy.drop_soon();
            }
        }
        self.ask_anew();
        handle.drop_array()
    }

    /// All named data behind the metaserver that the user may see.
    pub(crate) fn list_data(&self) -> Result<Vec<DataStatus>, Error> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let list = ListData {
                after: after.clone(),
            };
            let connection = self.meta().connection()?;
            check_names(&connection)?;
            let kinds = (Kind::ListData, Kind::DataListed);
            let page: DataListed = directory::ask_directory(&connection, kinds, &list)?;
            all.extend(page.data.into_iter().map(|one| DataStatus {
                name: DataName {
                    name: one.datum.name,
                    owner: Some(one.datum.owner),
                },
                version: one.datum.number,
                shared: one.datum.shared,
                element: one.datum.element,
                shape: one.datum.shape,
                bytes: one.datum.bytes,
                holders: one.holders,
            }));
            // A page that points to itself would make this loop endless.
            match page.next.filter(|next| after.as_ref() != Some(next)) {
                Some(next) => after = Some(next),
                None => return Ok(all),
            }
        }
    }
}

/// The first data with this name, at the servers that hold them; nothing if nobody knows any.
fn first_known(grid: &Grid, name: &DataName) -> Result<Option<Found>, Error> {
    match grid.ask_data(name, None) {
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(_) => Ok(None),
        Ok(_) => Ok(grid.known_data(name).into_iter().next()),
    }
}

/// A server that holds data, for a call with this time-out.
fn holder_at(
    grid: &Grid,
    (number, address): (u64, &str),
    timeout: Timeout,
) -> Result<Server, Error> {
    grid.server_within(number, address, timeout.patience())
}

/// Whether a call with this time-out asks nobody else after this error: its caller gives up, or its
/// time has passed.
fn is_over(error: &Error, timeout: Timeout) -> bool {
    matches!(error, Error::Interrupted) || timeout.has_passed()
}

/// The error of a holder of data, if the call asks another one; otherwise the error of the call. A
/// holder that is lost says nothing about the server for which the data are brought.
fn of_holder(
    (found, address): (&Found, &str),
    timeout: Timeout,
    error: Error,
) -> Result<Error, Error> {
    match error {
        Error::Interrupted => Err(error),
        _ if timeout.has_passed() => Err(timeout.error(&address.parse()?)),
        Error::Failed(_) if error.lost_server().is_none() => Ok(error),
        _ => {
            let text = format!("`{}` is at {address}: {error}", found.name());
            Ok(Error::failed(FailureKind::Unreachable, text))
        }
    }
}

/// Copies an array to a server, which reads it from the other one; if it cannot, through the
/// client. A caller that gives up, or whose time has passed, does not wait for that as well.
fn copy_to(from: &Handle, server: &Server, timeout: Timeout) -> Result<Handle, Error> {
    match from.copy(server, false, timeout) {
        Err(error @ (Error::Interrupted | Error::Timeout { .. })) => Err(error),
        Err(_) => through_client(from, server, timeout),
        copied => copied,
    }
}

/// Copies an array through the client, for servers that cannot reach each other.
fn through_client(from: &Handle, server: &Server, timeout: Timeout) -> Result<Handle, Error> {
    let bytes = from.fetch_within(timeout)?;
    put_within(server, (from.form().clone(), &bytes[..], false), timeout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_holder_that_is_lost_does_not_count_as_the_server_of_the_call() {
        let found = Found {
            datum: Datum {
                name: "a.npy".into(),
                owner: String::new(),
                written: 1,
                stamp: 1,
                number: 1,
                shared: true,
                element: "double".into(),
                shape: vec![1],
                bytes: 8,
            },
            holders: Vec::new(),
        };
        let address = "farcall://127.0.0.1:1";
        let gone = || Error::Connect {
            address: address.parse().expect("an address"),
            source: io::ErrorKind::ConnectionRefused.into(),
        };
        let holder = |after: Option<Duration>, error| {
            of_holder((&found, address), Timeout::from_now(after), error)
        };
        for lost in [gone(), Error::failed(FailureKind::Draining, "it drains")] {
            let error = holder(None, lost).unwrap();
            assert_eq!(error.lost_server(), None, "{error}");
            assert!(error.to_string().contains("`a.npy"), "{error}");
        }
        let refused = holder(None, Error::failed(FailureKind::NotFound, "no such file"));
        assert_eq!(refused.unwrap().to_string(), "no such file");
        let late = holder(Some(Duration::ZERO), gone()).unwrap_err();
        assert!(matches!(late, Error::Timeout { .. }), "{late}");
        let interrupted = holder(Some(Duration::ZERO), Error::Interrupted).unwrap_err();
        assert!(matches!(interrupted, Error::Interrupted));
    }
}
