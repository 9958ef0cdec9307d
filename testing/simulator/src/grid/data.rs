//! Clients of metaservers that put and read named data. They put data where data of the name
//! already are, or where memory is free, and read them from any holder. `checker::grid` checks the
//! bytes.

use super::caller::{Asked, Caller, Whom};
use crate::checker::Checker;
use crate::interfaces::{Contents, user_name};
use farcall_directory::Viewer;
use farcall_directory::message::{DataFound, FindData, Message, Offer};
use farcall_random::SplitMix64;
use farcall_rpc_proto::client::Answer;
use farcall_rpc_proto::{ArrayForm, DataName, Failure, Kind, Name, Put};
use std::collections::VecDeque;

/// How many names a user gives.
const NAMES: u64 = 3;

/// What it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The servers that hold the data; asked this many times.
    Finding(u32),
    /// A connection to a holder.
    Reaching,
    /// An answer of the holder.
    Answer,
}

/// Data that are put, or read.
#[derive(Debug)]
pub(super) struct Dealing {
    name: String,
    /// What is put.
    puts: Option<Contents>,
    pub(super) unsent: VecDeque<u8>,
    pub(super) received: Vec<u8>,
    stage: Stage,
    /// Servers that might hold the data, or accept them.
    holders: VecDeque<(u64, String)>,
    /// The version that is known, and the version that is read.
    after: u64,
    version: (u64, u64),
}

impl Dealing {
    /// Whether it waits for a peer.
    pub(super) fn waits_for(&self, whom: &Whom) -> bool {
        match whom {
            Whom::Meta => matches!(self.stage, Stage::Finding(_)),
            Whom::Server(server, _) => {
                let first = self.holders.front().map(|(server, _)| server);
                self.stage == Stage::Reaching && first == Some(server)
            }
        }
    }
}

impl Caller {
    pub(super) fn deal(&mut self, now: f64, random: &mut SplitMix64, checker: &mut Checker) {
        let name = format!("d{}", random.below(NAMES));
        let contents = Contents {
            user: self.user,
            first: random.below(16) as u8,
            count: 1 + random.below(2000),
        };
        let puts = random.chance(0.5).then_some(contents);
        if let Some(contents) = puts {
            checker.versions.puts(self.user, &name, contents);
        }
        let dealing = Dealing {
            name,
            puts,
            unsent: VecDeque::new(),
            received: Vec::new(),
            stage: Stage::Finding(0),
            holders: VecDeque::new(),
            after: 0,
            version: (0, 0),
        };
        self.dealt += 1;
        self.dealings.insert(self.dealt, dealing);
        self.find_data(self.dealt, now);
    }

    fn find_data(&mut self, id: u64, now: f64) {
        let Some(dealing) = self.dealings.get(&id) else {
            return;
        };
        let is_fresh = dealing.puts.is_none() && self.known.is_fresh_data(now, &dealing.name);
        if is_fresh || !self.known.asks(now) {
            return self.data_found(id, None);
        }
        let find = FindData {
            name: dealing.name.clone(),
            owner: None,
            room: dealing.puts.map(|contents| contents.count),
        };
        self.ask_meta(Asked::Data { id }, Kind::FindData, &find.to_bytes());
    }

    /// The client has learned which servers hold the data.
    fn data_found(&mut self, id: u64, room: Option<Offer>) {
        let Some(dealing) = self.dealings.get_mut(&id) else {
            return;
        };
        let (viewer, owner) = (
            Viewer {
                user: "",
                sees_all: true,
            },
            user_name(self.user),
        );
        let directory = self.known.directory();
        let found = directory.data(viewer, &dealing.name, Some(&owner));
        let holders = found.iter().flat_map(|one| &one.holders);
        let address = |server: &u64| Some((*server, directory.address(*server)?.to_string()));
        dealing.holders = holders.filter_map(address).collect();
        dealing.after = found.first().map_or(0, |one| one.datum.number);
        if dealing.puts.is_some() {
            let room = room.map(|offer| (offer.server, offer.address));
            dealing.holders.extend(room);
            dealing.holders.truncate(1);
        }
        self.reach_holder(id);
    }

    /// Asks the first holder that is left. Ends the transfer if there is none.
    pub(super) fn reach_holder(&mut self, id: u64) {
        let Some(dealing) = self.dealings.get_mut(&id) else {
            return;
        };
        let Some((server, address)) = dealing.holders.front().cloned() else {
            self.dealings.remove(&id);
            return;
        };
        dealing.stage = Stage::Reaching;
        let Some(link) = self.line(&Whom::Server(server, address)) else {
            return;
        };
        let (Some(line), Some(dealing)) = (self.lines.get_mut(&link), self.dealings.get_mut(&id))
        else {
            return;
        };
        let asked = match dealing.puts {
            Some(contents) => {
                dealing.unsent = contents.bytes().into();
                line.proto.put(&Put {
                    form: ArrayForm {
                        element: "char".to_string(),
                        shape: vec![contents.count],
                        column_major: false,
                    },
                    data_bytes: contents.count,
                    stays: false,
                })
            }
            None => line.proto.ask_name(&DataName {
                name: dealing.name.clone(),
                owner: Some(user_name(self.user)),
            }),
        };
        dealing.stage = Stage::Answer;
        match asked {
            Ok(request) => drop(line.open.insert(request, Asked::Data { id })),
            Err(_) => self.leave_holder(id),
        }
    }

    /// A holder does not have the data, or is lost: asks the next one. Data that were put might be
    /// there or not.
    fn leave_holder(&mut self, id: u64) {
        if let Some(dealing) = self.dealings.get_mut(&id) {
            dealing.holders.pop_front();
            dealing.received.clear();
            self.reach_holder(id);
        }
    }

    /// No peer was reached, or the connection was lost.
    pub(super) fn data_lost(&mut self, id: u64, now: f64) {
        let Some(dealing) = self.dealings.get_mut(&id) else {
            return;
        };
        let Stage::Finding(tries) = &mut dealing.stage else {
            return self.leave_holder(id);
        };
        *tries += 1;
        if *tries >= 2 {
            self.known.answered(now, false);
        }
        self.find_data(id, now);
    }

    /// Goes on where there is a connection now.
    pub(super) fn go_on_dealing(&mut self, id: u64, now: f64) {
        match self.dealings.get(&id).map(|dealing| dealing.stage) {
            Some(Stage::Finding(_)) => self.find_data(id, now),
            Some(Stage::Reaching) => self.reach_holder(id),
            _ => {}
        }
    }

    pub(super) fn data_answer(
        &mut self,
        link: usize,
        id: u64,
        answer: Result<Answer, Failure>,
        now: f64,
        checker: &mut Checker,
    ) {
        let (Some(dealing), Some(line)) = (self.dealings.get_mut(&id), self.lines.get_mut(&link))
        else {
            return;
        };
        let said = match (answer, dealing.puts) {
            (Ok(Answer::Directory(_, message)), _) => {
                self.known.answered(now, true);
                let mut found = DataFound::from_bytes(&message).expect("as it was written");
                let (name, room) = (dealing.name.clone(), found.room.take());
                self.known.found_data(now, (&name, &name), found);
                return self.data_found(id, room);
            }
            (Ok(Answer::Handle(record)), Some(_)) => line.proto.name(&Name {
                id: record.id,
                name: dealing.name.clone(),
                shared: false,
                after: dealing.after,
                copy: None,
            }),
            (Ok(Answer::Named(record)), Some(contents)) => {
                let version = (record.version.written, record.version.stamp);
                let name = std::mem::take(&mut dealing.name);
                self.dealings.remove(&id);
                let named = checker.versions.named(version, self.user, &name, contents);
                return named.unwrap_or_else(|text| checker.fail(text));
            }
            (Ok(Answer::Named(record)), None) => {
                dealing.version = (record.version.written, record.version.stamp);
                let bytes = record.form.bytes().unwrap_or(0);
                match record.id {
                    Some(array) => line.proto.get(array, bytes),
                    None => return self.leave_holder(id),
                }
            }
            (Ok(Answer::Done(_)), None) => {
                let Some(dealing) = self.dealings.remove(&id) else {
                    return;
                };
                let (version, bytes) = (dealing.version, &dealing.received);
                checker.received(self.user, bytes);
                let found = checker
                    .versions
                    .found(version, self.user, &dealing.name, bytes);
                self.tell(|| format!("data `{}` are found: {found:?}", dealing.name));
                return found.unwrap_or_else(|text| checker.fail(text));
            }
            _ => return self.leave_holder(id),
        };
        match said {
            Ok(request) => drop(line.open.insert(request, Asked::Data { id })),
            Err(_) => self.leave_holder(id),
        }
    }
}
