//! Where a call goes.

use crate::calls::Placed;
use crate::directory::{Directory, Refusal};
use crate::message::{Choose, Chosen, Offer, Terms};
use crate::server::Entry;
use farcall_schedule::Profile;
use farcall_schedule::placement::{self, Call, Candidate, Input, Link, Origin, Route, Unfit};

/// Reasons of which a refusal tells.
const MOST_REASONS: usize = 8;
/// Seconds that a call is taken to compute, at least, where no server has ever had one.
const UNKNOWN_S: f64 = 0.1;

/// What is known of a server and a call together.
struct Known<'d> {
    entry: &'d Entry,
    route: Route,
    profile: &'d Profile,
    unknown_s: f64,
}

impl Directory {
    /// Chooses a server for a call of a client at `site` and reckons with it from now on; or tells
    /// of all servers, where the client wants that.
    ///
    /// # Errors
    /// No server has the function, or none can have the call.
    pub fn choose(&mut self, now: f64, site: &str, wanted: &Choose) -> Result<Chosen, Refusal> {
        self.advance(now);
        let function = self.resolve(&wanted.function)?;
        let site = self.traffic.site(site);
        let found = self.with_function(&function, Some(wanted.digest));
        let servers: Vec<u64> = found.map(|(server, _)| server).collect();
        for server in &servers {
            let placed = self.calls.of_server(*server);
            if let Some(entry) = self.servers.get_mut(server) {
                entry.refresh(self.now, placed);
            }
        }
        let inputs = [Input {
            bytes: wanted.up,
            data: None,
            origin: Origin::Client,
        }];
        let call = Call {
            work: wanted.work,
            inputs: &inputs,
            down_bytes: wanted.down,
            memory: wanted.memory,
            fewest: wanted.fewest.unwrap_or(1),
            most: wanted.most.unwrap_or(1),
        };
        let [client_up, client_down] = self.links_of_site(site, &servers);
        let known = self.known(&function, site, &servers, &call);
        let candidates = known.iter().map(|known| Candidate {
            id: known.entry.join.server,
            server: &known.entry.state,
            route: &known.route,
            profile: known.profile,
            unknown_s: known.unknown_s,
            client_up: &client_up,
            client_down: &client_down,
        });
        if wanted.explain {
            let judged = placement::explain(&call, candidates);
            let offers = judged
                .into_iter()
                .map(|(server, terms)| self.offer(server, terms));
            let (placement, offers) = (0, offers.collect());
            return Ok(Chosen { placement, offers });
        }
        let open = candidates.filter(|one| !wanted.exclude.contains(&one.id));
        let mut placer = self.placer.clone();
        let Some(choice) = placer.choose(&call, open) else {
            return Err(self.none_fits(function, &call, &known, &wanted.exclude));
        };
        drop(known);
        self.placer = placer;
        let placement = self.place(site, choice.id, &call, wanted, &choice.terms);
        let offers = vec![self.offer(choice.id, Ok(choice.terms))];
        Ok(Chosen { placement, offers })
    }

    fn known<'d>(
        &'d self,
        function: &str,
        site: u64,
        servers: &[u64],
        call: &Call<'_>,
    ) -> Vec<Known<'d>> {
        static NOTHING: std::sync::LazyLock<Profile> = std::sync::LazyLock::new(Profile::default);
        let entries = servers.iter().filter_map(|server| self.servers.get(server));
        let entries: Vec<&Entry> = entries.collect();
        let profiles = entries
            .iter()
            .filter_map(|entry| entry.profiles.get(function));
        let elsewhere = profiles.filter_map(|profile| profile.predict(call.work, 1));
        let elsewhere_s = elsewhere.map(|one| one.seconds).fold(0.0, f64::max);
        let known = |entry: &'d Entry| Known {
            entry,
            route: self.traffic.route(site, entry.join.server),
            profile: entry.profiles.get(function).unwrap_or(&NOTHING),
            unknown_s: match entry.profiles.contains_key(function) {
                true => 0.0,
                false if elsewhere_s > 0.0 => entry.slowest(call.work).max(elsewhere_s),
                // A guess that is too low has all calls go to one server, until the first of them
                // has shown what it takes.
                false => entry.slowest(call.work).max(UNKNOWN_S),
            },
        };
        entries.into_iter().map(known).collect()
    }

    /// The links of a site, with the transfers that are under way on them as far as is known.
    fn links_of_site(&self, site: u64, servers: &[u64]) -> [Link; 2] {
        let rates = self.traffic.rates_of_site(site, servers.iter().copied());
        let [up, down] = rates.map(Link::new);
        let calls = || self.calls.of_site(site);
        [
            up.with(calls().map(|call| call.up_left(self.now))),
            down.with(calls().map(|call| call.down_left(self.now))),
        ]
    }

    fn place(
        &mut self,
        site: u64,
        server: u64,
        call: &Call<'_>,
        wanted: &Choose,
        terms: &placement::Terms,
    ) -> u64 {
        let latency_s = self.traffic.route(site, server).up.latency_s;
        if let Some(entry) = self.servers.get_mut(&server) {
            entry.state.assign(call, terms);
        }
        self.calls.place(Placed {
            server,
            site,
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
        })
    }

    fn offer(&self, server: u64, judged: Result<placement::Terms, Unfit>) -> Offer {
        let terms = judged.map(|terms| Terms {
            up_s: terms.up_s,
            wait_s: terms.wait_s,
            compute_s: terms.compute_s,
            down_s: terms.down_s,
            pes: terms.pes,
            factor: terms.factor,
            learned: terms.learned,
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
            Unfit::Refuses if lost => "nothing was heard of it lately".to_string(),
            Unfit::Refuses => "it takes no more calls".to_string(),
            Unfit::Memory { wanted, free } => {
                format!("the call takes {wanted} bytes of memory, and {free} are free")
            }
        }
    }

    fn none_fits(
        &self,
        function: String,
        call: &Call<'_>,
        known: &[Known<'_>],
        exclude: &[u64],
    ) -> Refusal {
        let nothing = Link::unlimited();
        let reasons = known.iter().map(|known| {
            let server = known.entry.join.server;
            let candidate = Candidate {
                id: server,
                server: &known.entry.state,
                route: &known.route,
                profile: known.profile,
                unknown_s: known.unknown_s,
                client_up: &nothing,
                client_down: &nothing,
            };
            let address = &known.entry.join.address;
            match candidate.fits(call) {
                _ if exclude.contains(&server) => format!("{address}: it was tried"),
                Err(unfit) => format!("{address}: {}", self.why(server, unfit)),
                Ok(()) => format!("{address}: it was not chosen"),
            }
        });
        let mut reasons: Vec<String> = reasons.take(MOST_REASONS).collect();
        if reasons.is_empty() {
            reasons.push("no server has it with the interface that you know".to_string());
        }
        Refusal::NoServer { function, reasons }
    }
}

impl Entry {
    /// The longest time of a function with so much work.
    fn slowest(&self, work: f64) -> f64 {
        let known = self.profiles.values();
        let known = known.filter_map(|profile| profile.predict(work, 1));
        known.map(|one| one.seconds).fold(0.0, f64::max)
    }
}
