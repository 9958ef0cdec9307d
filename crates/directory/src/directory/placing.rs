//! Placement: which server gets a call. The policies themselves are in `farcall-schedule`.

use super::answer::fitting;
use super::{Directory, Holder, Refusal};
use crate::calls::{Placed, PlacementNote};
use crate::message::{Choose, Chosen, MOST_SECONDS, Offer, TimeParts};
use crate::server::Entry;
use crate::traffic::SitePaths;
use farcall_schedule::Profile;
use farcall_schedule::placement::{self, Call, Candidate, Input, Link, Origin, Unfit};
use std::sync::LazyLock;

/// Most reasons in a refusal.
const MOST_REASONS: usize = 8;

/// What a placement looks at.
struct Field<'d> {
    directory: &'d Directory,
    /// All servers that have the function.
    holders: &'d [Holder],
    /// Digest of the interface that the client knows.
    digest: u64,
    ways: &'d SitePaths,
    work: f64,
    /// Least assumed seconds of a call that its server has never run.
    unknown_s: f64,
    client_up: Link,
    client_down: Link,
}

/// Who asks for a placement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) site: &'a str,
    /// The number of the connection; 0 is the owner of the directory.
    pub(crate) connection: u64,
    pub(crate) user: &'a str,
    /// When the request came.
    pub(crate) asked: f64,
}

impl Asker<'_> {
    /// What the record says of its placement at a server.
    pub(crate) fn note(&self, function: &str, address: &str, wanted: &Choose) -> PlacementNote {
        PlacementNote {
            user: self.user.into(),
            function: function.into(),
            address: address.into(),
            trace: wanted.trace,
            work: wanted.work,
            asked: self.asked,
        }
    }
}

impl Directory {
    /// Chooses a server for a call of a client at `site` and counts the call there from now on. If
    /// the client asks for an explanation, describes all servers and places nothing.
    ///
    /// # Errors
    /// No server has the function, or none can run the call.
    pub fn choose(&mut self, now: f64, site: &str, wanted: &Choose) -> Result<Chosen, Refusal> {
        let asker = Asker {
            site,
            connection: 0,
            user: "",
            asked: now,
        };
        self.choose_for(now, asker, wanted)
    }

    /// [`Directory::choose`] for a client.
    pub(crate) fn choose_for(
        &mut self,
        now: f64,
        asker: Asker<'_>,
        wanted: &Choose,
    ) -> Result<Chosen, Refusal> {
        let (site, connection) = (asker.site, asker.connection);
        self.advance(now);
        let function = self.resolve(&wanted.function)?;
        let site = self.traffic.site(site);
        self.refresh();
        self.traffic.prepare(site, self.servers.places());
        let mut inputs = vec![Input {
            bytes: wanted.up,
            data: None,
            origin: Origin::Client,
        }];
        inputs.extend(self.inputs(wanted.needs()));
        let call = Call {
            work: wanted.work,
            inputs: &inputs,
            down_bytes: wanted.down,
            memory: wanted.memory,
            fewest: wanted.fewest.unwrap_or(1),
            most: wanted.most.unwrap_or(1),
        };
        let Some(field) = self.field(&function, site, wanted) else {
            return Err(Refusal::Unknown {
                name: function,
                closest: None,
            });
        };
        let candidates = field.candidates();
        if wanted.explain {
            let judged = placement::explain(&call, candidates);
            let offers = judged
                .into_iter()
                .map(|(server, terms)| self.offer(server, terms));
            let (placement, offers) = (0, fitting(offers));
            return Ok(Chosen { placement, offers });
        }
        let open = candidates.filter(|one| !wanted.exclude.contains(&one.id));
        let mut placer = self.placer.clone();
        let Some(choice) = placer.choose(&call, open) else {
            return Err(self.none_fits(&function, &call, &field, &wanted.exclude));
        };
        self.placer = placer;
        let note = self.notes.is_some().then(|| {
            let address = self.address(choice.id).unwrap_or_default();
            Box::new(asker.note(&function, address, wanted))
        });
        let by = (site, connection, note);
        let placement = self.place(by, choice.id, &call, wanted, &choice.terms);
        let offers = vec![self.offer(choice.id, Ok(choice.terms))];
        Ok(Chosen { placement, offers })
    }

    /// Updates the states of servers that have news.
    pub(crate) fn refresh(&mut self) {
        for place in self.servers.take_stale() {
            let Some(entry) = self.servers.at_mut(place) else {
                continue;
            };
            let placed = self.calls.of_server(entry.join.server);
            entry.refresh(self.now, placed);
        }
    }

    fn field(&self, function: &str, site: u64, wanted: &Choose) -> Option<Field<'_>> {
        let (holders, ways) = (self.functions.get(function)?, self.traffic.ways(site)?);
        let (work, digest) = (wanted.work, wanted.digest);
        let mut field = Field {
            directory: self,
            holders,
            digest,
            ways,
            work,
            unknown_s: placement::UNKNOWN_S,
            client_up: Link::unlimited(),
            client_down: Link::unlimited(),
        };
        let mut fastest = [0.0f64; 2];
        let mut is_known = true;
        for one in field.known() {
            is_known &= one.profile.is_some();
            let rates = ways.rates[one.place];
            fastest = [0, 1].map(|way| fastest[way].max(rates[way]));
        }
        if !is_known {
            let profiles = field.known().filter_map(|one| one.profile.as_ref());
            field.unknown_s = placement::unknown_seconds(profiles, work);
        }
        [field.client_up, field.client_down] = self.links_of_site(site, fastest);
        Some(field)
    }

    /// The links of a site, with the transfers that are known to use them. A link is as fast as the
    /// fastest path over it.
    fn links_of_site(&self, site: u64, fastest: [f64; 2]) -> [Link; 2] {
        let [up, down] = fastest.map(Link::new);
        let calls = || self.calls.of_site(site);
        [
            up.with(calls().map(|call| call.up_left(self.now))),
            down.with(calls().map(|call| call.down_left(self.now))),
        ]
    }

    fn place(
        &mut self,
        (site, connection, note): (u64, u64, Option<Box<PlacementNote>>),
        server: u64,
        call: &Call<'_>,
        wanted: &Choose,
        terms: &placement::TimeParts,
    ) -> u64 {
        let mut latency_s = 0.0;
        if let Some(place) = self.servers.place(server)
            && let Some(entry) = self.servers.at_mut(place)
        {
            let ways = self.traffic.ways(site);
            latency_s = ways.map_or(0.0, |ways| ways.routes[place].up.latency_s);
            entry.assign(self.now, call, terms);
        }
        let (number, gone) = self.calls.place(Placed {
            server,
            site,
            connection,
            at: self.now,
            latency_s,
            up: wanted.up,
            down: wanted.down,
            memory: wanted.memory,
            pes: terms.pes,
            up_s: terms.up_s,
            wait_s: terms.wait_s,
            compute_s: terms.compute_s,
            down_s: terms.down_s,
            note,
        });
        self.note_gone(gone);
        number
    }

    fn offer(&self, server: u64, judged: Result<placement::TimeParts, Unfit>) -> Offer {
        // A cost that an interface computes has no bound, and clients refuse a time without one.
        let bounded = |seconds: f64| seconds.min(MOST_SECONDS);
        let terms = judged.map(|terms| TimeParts {
            up_s: bounded(terms.up_s),
            wait_s: bounded(terms.wait_s),
            compute_s: bounded(terms.compute_s),
            down_s: bounded(terms.down_s),
            pes: terms.pes,
            factor: terms.factor,
            learned: terms.learned,
            others_s: terms.others_s,
        });
        Offer {
            server,
            address: self.address(server).unwrap_or_default().to_string(),
            terms: terms.ok(),
            refusal: terms.err().map(|unfit| self.why(server, unfit)),
        }
    }

    fn why(&self, server: u64, unfit: Unfit) -> String {
        let lost = self.servers.get(&server).is_some_and(|entry| entry.lost);
        match unfit {
            Unfit::Refuses if lost => "it has sent no status report lately".to_string(),
            Unfit::Refuses => "it takes no more calls".to_string(),
            Unfit::Memory { wanted, free } => {
                format!("the call needs {wanted} bytes of memory, and {free} bytes are free")
            }
        }
    }

    fn none_fits(
        &self,
        function: &str,
        call: &Call<'_>,
        field: &Field<'_>,
        exclude: &[u64],
    ) -> Refusal {
        let reasons = field.candidates().map(|candidate| {
            let server = candidate.id;
            let address = self.address(server).unwrap_or_default();
            match candidate.fits(call) {
                _ if exclude.contains(&server) => format!("{address}: it was tried"),
                Err(unfit) => format!("{address}: {}", self.why(server, unfit)),
                Ok(()) => format!("{address}: it was not chosen"),
            }
        });
        let mut reasons: Vec<String> = reasons.take(MOST_REASONS).collect();
        if reasons.is_empty() {
            reasons.push("no server has it with the interface that this client has".to_string());
        }
        let function = function.to_string();
        Refusal::NoServer { function, reasons }
    }
}

impl Field<'_> {
    /// The servers with the interface that the client knows.
    fn known(&self) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(|one| one.digest == self.digest)
    }

    fn candidates(&self) -> impl Iterator<Item = Candidate<'_>> {
        static NOTHING: LazyLock<Profile> = LazyLock::new(Profile::default);
        let (nothing, now): (&Profile, f64) = (&NOTHING, self.directory.now);
        self.known().map(move |one| {
            let entry = self.directory.servers.at(one.place);
            Candidate {
                id: one.server,
                server: &entry.state,
                now_s: now,
                route: &self.ways.routes[one.place],
                profile: one.profile.as_ref().unwrap_or(nothing),
                unknown_s: match one.profile {
                    Some(_) => 0.0,
                    None => entry.slowest(self.work).max(self.unknown_s),
                },
                client_up: &self.client_up,
                client_down: &self.client_down,
            }
        })
    }
}

impl Entry {
    /// The longest learned time of a function with this much work.
    fn slowest(&self, work: f64) -> f64 {
        let known = self.profiles.values();
        let known = known.filter_map(|profile| profile.seconds(work, 1));
        known.fold(0.0, f64::max)
    }
}
