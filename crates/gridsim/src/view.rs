//! The knowledge of the simulated metaserver. It is limited to what a real one can know.

use crate::scenario::{Arrival, Known, Machine, Scenario};
use farcall_schedule::Profile;
use farcall_schedule::forecast::Forecasts;
use farcall_schedule::placement::{
    Arrivals, Call, Candidate, Choice, Input, Link, Origin, PathDirection, Placer, Policy, Route,
    Server, unknown_seconds,
};

/// Learned times and rates.
#[derive(Debug)]
pub(crate) struct View {
    forecasts: Forecasts,
    /// Profiles by server, then by function.
    profiles: Vec<Vec<Profile>>,
    placer: Placer,
    /// Arrivals of calls by server.
    arrivals: Vec<Arrivals>,
    sites: usize,
}

impl View {
    /// The knowledge at the start: two probes in each direction between every site and every
    /// server, and what the scenario says of earlier calls.
    pub(crate) fn new(scenario: &Scenario, policy: Policy) -> View {
        let (sites, machines) = (&scenario.sites, &scenario.machines);
        let mut view = View {
            forecasts: Forecasts::new(2 * sites.len() * machines.len()),
            profiles: machines.iter().map(profiles).collect(),
            placer: Placer::new(policy),
            arrivals: vec![Arrivals::default(); machines.len()],
            sites: sites.len(),
        };
        for (site, one) in sites.iter().enumerate() {
            for (server, other) in machines.iter().enumerate() {
                let path = scenario.path(site, server);
                let latency_s = one.port.latency_s + other.port.latency_s + path.latency_s;
                for bytes in [64, 1 << 20] {
                    let seconds = |rate: f64| latency_s + bytes as f64 / rate;
                    let up = seconds(one.port.up.min(other.port.up).min(path.up));
                    let down = seconds(one.port.down.min(other.port.down).min(path.down));
                    view.observe_up(site, server, bytes, up, 1.0);
                    view.observe_down(site, server, bytes, down, 1.0);
                }
            }
        }
        view
    }

    pub(crate) fn observe_up(&mut self, site: usize, server: usize, bytes: u64, s: f64, n: f64) {
        let (site, server) = (site as u64, (self.sites + server) as u64);
        self.forecasts.observe(site, server, bytes, s, n);
    }

    pub(crate) fn observe_down(&mut self, site: usize, server: usize, bytes: u64, s: f64, n: f64) {
        let (site, server) = (site as u64, (self.sites + server) as u64);
        self.forecasts.observe(server, site, bytes, s, n);
    }

    pub(crate) fn observe_call(&mut self, server: usize, call: &Arrival, pes: u32, seconds: f64) {
        self.profiles[server][call.function].observe(call.work, pes, seconds);
    }

    /// The paths between a site and a server, in both directions.
    fn route(&self, site: usize, server: usize) -> Route {
        let (site, server) = (site as u64, (self.sites + server) as u64);
        let way = |from, to| {
            self.forecasts
                .path(from, to)
                .map_or(PathDirection::UNKNOWN, PathDirection::of)
        };
        Route {
            up: way(site, server),
            down: way(server, site),
        }
    }

    /// The links of a server, up and down. Their rate is that of the fastest path over them.
    pub(crate) fn server_links(&self, server: usize) -> [Link; 2] {
        fastest((0..self.sites).map(|site| self.route(site, server)))
    }

    /// The links of a site.
    pub(crate) fn site_links(&self, site: usize) -> [Link; 2] {
        fastest((0..self.profiles.len()).map(|server| self.route(site, server)))
    }

    /// The computing time of a call that its server predicts, if it knows the function.
    pub(crate) fn predicted(&self, server: usize, call: &Arrival) -> Option<f64> {
        let profile = &self.profiles[server][call.function];
        Some(profile.predict(call.work, call.fewest)?.seconds)
    }

    /// The estimated computing time of a call at a server.
    pub(crate) fn seconds(&self, server: usize, call: &Arrival, pes: u32) -> f64 {
        let profile = &self.profiles[server][call.function];
        let known = profile.seconds(call.work, pes);
        known.unwrap_or_else(|| self.slowest(server, call).max(self.unknown_s(call)))
    }

    /// The computing time of the slowest function of a server with as much work.
    fn slowest(&self, server: usize, call: &Arrival) -> f64 {
        let profiles = self.profiles[server].iter();
        let known = profiles.filter_map(|one| one.seconds(call.work, 1));
        known.fold(0.0, f64::max)
    }

    /// Least assumed seconds of a call at a server that has never run its function.
    fn unknown_s(&self, call: &Arrival) -> f64 {
        let profiles = self.profiles.iter();
        let profiles = profiles.filter_map(|server| server.get(call.function));
        unknown_seconds(profiles, call.work)
    }

    /// The arrivals of calls at a server.
    pub(crate) fn arrivals(&self, server: usize) -> Arrivals {
        self.arrivals[server]
    }

    /// Chooses the server for a call, among those that have its function.
    pub(crate) fn choose(
        &mut self,
        call: &Arrival,
        now_s: f64,
        servers: &[(usize, Server)],
        [client_up, client_down]: &[Link; 2],
    ) -> Option<Choice> {
        let inputs = [Input {
            bytes: call.up_bytes,
            data: None,
            origin: Origin::Client,
        }];
        let wanted = Call {
            work: call.work,
            inputs: &inputs,
            down_bytes: call.down_bytes,
            memory: call.up_bytes.saturating_add(call.down_bytes),
            fewest: call.fewest,
            most: call.most,
        };
        let least_s = self.unknown_s(call);
        let known = |server| {
            let unknown_s = self.slowest(server, call).max(least_s);
            (self.route(call.site, server), unknown_s)
        };
        let known: Vec<(Route, f64)> = servers.iter().map(|(id, _)| known(*id)).collect();
        let candidates = servers.iter().zip(&known);
        let candidates = candidates.map(|((id, server), known)| Candidate {
            id: *id as u64,
            server,
            now_s,
            route: &known.0,
            profile: &self.profiles[*id][call.function],
            unknown_s: known.1,
            client_up,
            client_down,
        });
        let choice = self.placer.choose(&wanted, candidates)?;
        self.arrivals[choice.id as usize].arrive(now_s);
        Some(choice)
    }
}

/// What is known of a server's functions at the beginning.
fn profiles(machine: &Machine) -> Vec<Profile> {
    let mut profiles = vec![Profile::default(); machine.functions.len()];
    for Known {
        function,
        work,
        pes,
        seconds,
    } in &machine.known
    {
        if let Some(profile) = profiles.get_mut(*function) {
            profile.observe(*work, *pes, *seconds);
        }
    }
    profiles
}

fn fastest(routes: impl Iterator<Item = Route>) -> [Link; 2] {
    let rates = routes.fold([0.0f64; 2], |[up, down], route| {
        [up.max(route.up.rate), down.max(route.down.rate)]
    });
    rates.map(Link::new)
}
