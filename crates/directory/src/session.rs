//! Sessions: what one connection may ask of a metaserver's directory, and the answers.
//!
//! A session checks the rights of its peer and the messages. The metaserver's shell moves the
//! bytes.

use crate::directory::Asker;
use crate::hints::Hints;
use crate::message::{
    Choose, Chosen, Find, FindData, Found, Hold, Invalid, Join, Leave, ListData, Message, Noted,
    Observe, Report,
};
use crate::{Directory, Refusal, Viewer};
use farcall_rpc_proto::server::{Connection, Event};
use farcall_rpc_proto::{
    CallId, DIRECTORY, Failure, FailureKind, FunctionSummary, Hello, Kind, Listing, NAMES,
    OPERATION, SNAPSHOTS, TRACES, TraceContext,
};
use std::collections::BTreeSet;

/// Functions of one page of a listing.
const PAGE: usize = 256;
/// Most servers that may join through one connection.
const MOST_JOINED: usize = 16;

/// The peer of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name of the user.
    pub user: String,
    /// Whether the user sees all names: [`Viewer::sees_all`].
    pub sees_all: bool,
    /// Why the user's servers may not join, if so.
    pub may_not_join: Option<String>,
    /// The site of the peer.
    pub site: String,
}

impl Peer {
    /// Which named data the peer sees.
    pub fn viewer(&self) -> Viewer<'_> {
        Viewer {
            user: &self.user,
            sees_all: self.sees_all,
        }
    }
}

/// A connection that was accepted. Numbers of connections are never reused.
#[derive(Clone, Debug)]
pub struct Session {
    number: u64,
    peer: Peer,
    /// Servers that have joined through it.
    joined: BTreeSet<u64>,
    hints: Hints,
    /// When the current request came.
    asked: f64,
    traced: Option<PlacedCall>,
}

/// The placement of a call that belongs to a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedCall {
    /// The trace, and the span of the client.
    pub context: TraceContext,
    /// The function.
    pub function: String,
    /// The address of the server, or why there is none.
    pub server: Result<String, String>,
}

/// The greeting of a metaserver.
pub fn hello(agent: &str) -> Hello {
    let mut hello = Hello::new(agent);
    hello.features |= DIRECTORY | OPERATION | NAMES | SNAPSHOTS | TRACES;
    hello
}

impl Session {
    /// The session of a new connection with this number.
    pub fn new(number: u64, peer: Peer) -> Session {
        Session {
            number,
            peer,
            joined: BTreeSet::new(),
            hints: Hints::default(),
            asked: f64::MAX,
            traced: None,
        }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Answers a request, at `now` in seconds since 1970. `reached` turns the address at which a
    /// server listens into the one that clients use. Returns requests that are not for the
    /// directory.
    pub fn handle(
        &mut self,
        (directory, now): (&mut Directory, f64),
        proto: &mut Connection,
        event: Event,
        reached: impl Fn(&str) -> Result<String, String>,
    ) -> Option<Event> {
        match event {
            Event::List(request, from) => {
                directory.advance(now);
                proto.listing(request, &page(directory, from as usize));
            }
            Event::Directory(request, kind, message) => {
                let said = self.direct((directory, now), kind, &message, reached);
                match said {
                    Ok(Some((kind, answer))) => proto.directory(request, kind, &answer),
                    Ok(None) => {}
                    // An observation has no answer.
                    Err(_) if kind == Kind::Observe => {}
                    Err(failure) => proto.fail(request, &failure),
                }
            }
            Event::Drain(request) => refuse(
                proto,
                request,
                "this is a metaserver: drain its servers, which `farcall status` lists, one by \
                 one; stop a metaserver with SIGTERM",
            ),
            Event::Describe(request, _) | Event::Call(request, _) => refuse(
                proto,
                request,
                "this is a metaserver, which computes nothing; update the client, so that it asks \
                 where to call",
            ),
            other => return Some(other),
        }
        None
    }

    /// Answers a request with the directory.
    fn direct(
        &mut self,
        (directory, now): (&mut Directory, f64),
        kind: Kind,
        message: &[u8],
        reached: impl Fn(&str) -> Result<String, String>,
    ) -> Result<Option<(Kind, Vec<u8>)>, Failure> {
        let site = &self.peer.site;
        match kind {
            Kind::Join => self.join((directory, now), read(message)?, reached)?,
            Kind::Report => {
                let report: Report = read(message)?;
                self.check_joined(report.server)?;
                directory.report(now, report)?;
            }
            Kind::Leave => {
                let Leave { server } = read(message)?;
                self.check_joined(server)?;
                self.joined.remove(&server);
                directory.joined.remove(&server);
                let named = named(directory, server);
                directory.leave(now, server);
                tracing::info!("{named} has left");
            }
            Kind::Hold => {
                let hold: Hold = read(message)?;
                self.check_joined(hold.server)?;
                directory.hold(now, hold)?;
            }
            Kind::FindData => {
                let find: FindData = read(message)?;
                let found = directory.find_data(now, self.peer.viewer(), &find);
                return Ok(Some((Kind::DataFound, found.to_bytes())));
            }
            Kind::ListData => {
                let ListData { after } = read(message)?;
                let listed = directory.list_data(now, self.peer.viewer(), after.as_ref());
                return Ok(Some((Kind::DataListed, listed.to_bytes())));
            }
            Kind::Find => {
                let Find { function } = read(message)?;
                let (function, records) = directory.find(now, site, &function)?;
                let found = Found { function, records };
                return Ok(Some((Kind::Found, found.to_bytes())));
            }
            Kind::Choose => {
                let wanted: Choose = read(message)?;
                let chosen = self.choose((directory, now), &wanted)?;
                return Ok(Some((Kind::Chosen, chosen.to_bytes())));
            }
            _ => {
                let observed: Observe = read(message)?;
                self.observe((directory, now), &observed);
                return Ok(None);
            }
        }
        let lease_s = directory.settings.lease_s;
        Ok(Some((Kind::Noted, Noted { lease_s }.to_bytes())))
    }

    /// Chooses a server for a call. The servers that this client has lost are the last choice.
    fn choose(
        &mut self,
        (directory, now): (&mut Directory, f64),
        wanted: &Choose,
    ) -> Result<Chosen, Refusal> {
        directory.advance(now);
        let asker = Asker {
            site: &self.peer.site,
            connection: self.number,
            user: &self.peer.user,
            asked: self.asked.min(now),
        };
        let chosen = match self.hints.avoid(directory, wanted) {
            Some(others) => directory.choose_for(now, asker, &others).ok(),
            None => None,
        };
        let chosen = chosen.map_or_else(|| directory.choose_for(now, asker, wanted), Ok);
        if chosen.is_err() && !wanted.explain {
            directory.note_refusal(asker, wanted);
        }
        self.traced = wanted.trace.filter(|_| !wanted.explain).map(|context| {
            let server = chosen.as_ref().map_err(ToString::to_string);
            PlacedCall {
                context,
                function: wanted.function.clone(),
                server: server.map(|chosen| {
                    let offer = chosen.offers.first();
                    offer.map_or_else(String::new, |offer| offer.address.clone())
                }),
            }
        });
        chosen
    }

    /// The placement of a call of a trace, if that was the last request.
    pub fn take_placed(&mut self) -> Option<PlacedCall> {
        self.traced.take()
    }

    /// Says when the next request came. The directory may have been busy since.
    pub fn came(&mut self, asked: f64) {
        self.asked = asked;
    }

    /// Takes what the client says about a server.
    fn observe(&mut self, (directory, now): (&mut Directory, f64), observed: &Observe) {
        directory.advance(now);
        let server = observed.server;
        if observed.lost {
            self.hints.lose(server, now);
            directory.doubt(server);
        }
        let placed = directory.end_call(observed.placement, server, self.number);
        let transfers = self.hints.possible(observed, placed.as_ref(), now);
        let user = (self.peer.site.as_str(), crate::digest(&self.peer.user));
        directory.learn(user, server, placed.as_ref(), transfers);
        directory.note_outcome(placed, observed);
    }

    fn join(
        &mut self,
        (directory, now): (&mut Directory, f64),
        mut join: Join,
        reached: impl Fn(&str) -> Result<String, String>,
    ) -> Result<(), Failure> {
        let refuse = |text: String| Failure::new(FailureKind::NotAllowed, text);
        if let Some(why) = &self.peer.may_not_join {
            return Err(refuse(why.clone()));
        }
        if self.joined.len() >= MOST_JOINED && !self.joined.contains(&join.server) {
            return Err(refuse(format!(
                "{MOST_JOINED} servers have joined by one connection"
            )));
        }
        join.address =
            reached(&join.address).map_err(|text| Failure::new(FailureKind::BadArgument, text))?;
        let (server, address) = (join.server, join.address.clone());
        let functions = join.functions.len();
        directory.join(now, join)?;
        self.joined.insert(server);
        directory.joined.insert(server, self.number);
        tracing::info!("server {server:016x} at {address} has joined with {functions} functions");
        Ok(())
    }

    fn check_joined(&self, server: u64) -> Result<(), Refusal> {
        match self.joined.contains(&server) {
            true => Ok(()),
            false => Err(Refusal::NotJoined),
        }
    }

    /// Ends the session. Its servers get no calls until they report, unless they have joined again.
    pub fn end(self, directory: &mut Directory, now: f64) {
        for server in self.joined {
            if directory.joined.get(&server) == Some(&self.number) {
                directory.joined.remove(&server);
                let named = named(directory, server);
                directory.lose(now, server);
                tracing::warn!("{named} is lost: its connection has ended");
            }
        }
    }
}

/// A server in the log: its number, and its address while the directory knows it.
fn named(directory: &Directory, server: u64) -> String {
    match directory.address(server) {
        Some(address) => format!("server {server:016x} at {address}"),
        None => format!("server {server:016x}"),
    }
}

fn refuse(proto: &mut Connection, request: CallId, text: &str) {
    proto.fail(request, &Failure::new(FailureKind::NotAllowed, text));
}

fn page(directory: &Directory, from: usize) -> Listing {
    let functions = directory.functions().skip(from).take(PAGE);
    let functions = functions.map(|function| FunctionSummary {
        name: function.name.clone(),
        title: function.title.clone(),
    });
    let functions: Vec<FunctionSummary> = functions.collect();
    let next = (functions.len() == PAGE).then_some((from + PAGE) as u32);
    Listing { functions, next }
}

fn read<M: Message>(message: &[u8]) -> Result<M, Failure> {
    M::from_bytes(message)
        .map_err(|error: Invalid| Failure::new(FailureKind::BadArgument, error.to_string()))
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let kind = match refusal {
            Refusal::NotJoined => FailureKind::NotJoined,
            Refusal::Full(_) => FailureKind::Busy,
            Refusal::Unknown { .. } | Refusal::NobodyJoined(_) | Refusal::Ambiguous { .. } => {
                FailureKind::UnknownFunction
            }
            Refusal::NoServer { .. } => FailureKind::NoServer,
        };
        Failure::new(kind, refusal.to_string())
    }
}

#[cfg(test)]
mod tests;
