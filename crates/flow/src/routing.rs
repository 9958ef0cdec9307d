//! Which route a message takes: the static one, one of several by chance, the least loaded one, or
//! several at once. It also finds routes around links that have failed.
//!
//! The platform knows the routes. The simulation tells the load of its links, and it keeps the
//! routes of the messages under way.

use crate::error::SpecError;
use crate::platform::{LinkId, Platform};
use farcall_random::SplitMix64;
use std::collections::{HashMap, VecDeque};

/// The most routes over which the packets of a message are spread.
const SPREAD: u64 = 16;
/// The most minimal routes, and the detours, among which an adaptive choice is made.
const MINIMAL: u64 = 16;
const DETOURS: u64 = 2;

/// How a message gets its route. All kinds but [`Routing::Static`] need a fat tree or a dragonfly,
/// and draw random numbers from a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Routing {
    /// The one route of the platform.
    #[default]
    Static,
    /// ECMP per flow: each message takes one of the shortest routes by chance.
    Ecmp(u64),
    /// ECMP per packet: the packets of a message go over the shortest routes in turn, over 16 of
    /// them if there are more. In the flow model, each of these routes carries an equal part of
    /// the message.
    Spray(u64),
    /// Valiant: each message goes by a place drawn at random, a switch of the top level of a fat
    /// tree or another group of a dragonfly.
    Valiant(u64),
    /// The route with the least load when the message starts. In a dragonfly, it can be a detour
    /// by another group if that is worth its length (UGAL, with the loads of the whole route).
    Adaptive(u64),
}

impl Routing {
    /// Reads `static`, `ecmp`, `spray`, `valiant` or `adaptive`, with `:SEED` after the last four
    /// if the seed is not 1.
    ///
    /// # Errors
    /// Lists the alternatives.
    pub fn parse(spec: &str) -> Result<Self, SpecError> {
        let fail = |reason: &str| SpecError::new(spec, reason.to_owned());
        let (name, seed) = spec.split_once(':').unwrap_or((spec, "1"));
        let seed = seed
            .parse()
            .map_err(|_| fail("the seed is a whole number: `ecmp:1`"))?;
        match name {
            "static" if !spec.contains(':') => Ok(Self::Static),
            "ecmp" => Ok(Self::Ecmp(seed)),
            "spray" => Ok(Self::Spray(seed)),
            "valiant" => Ok(Self::Valiant(seed)),
            "adaptive" => Ok(Self::Adaptive(seed)),
            _ => Err(fail(
                "expected `static`, `ecmp`, `spray`, `valiant` or `adaptive`, with a seed such as \
                 `ecmp:1`",
            )),
        }
    }

    /// Fails if the platform has no routes to choose from.
    ///
    /// # Errors
    /// Says which platforms have them.
    pub fn check(&self, platform: &Platform) -> Result<(), SpecError> {
        if *self == Self::Static || platform.has_choices() {
            return Ok(());
        }
        let reason = "only fat trees and dragonflies have routes to choose from; use `static`";
        Err(SpecError::new(self.name(), reason.to_owned()))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Ecmp(_) => "ecmp",
            Self::Spray(_) => "spray",
            Self::Valiant(_) => "valiant",
            Self::Adaptive(_) => "adaptive",
        }
    }

    fn seed(&self) -> u64 {
        match *self {
            Self::Static => 0,
            Self::Ecmp(seed) | Self::Spray(seed) | Self::Valiant(seed) | Self::Adaptive(seed) => {
                seed
            }
        }
    }
}

/// Links that fail at a time, all of a switch or a single one. They never recover.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// Seconds from the start of the simulation.
    pub time: f64,
    /// The links that carry nothing from then on.
    pub links: Vec<LinkId>,
}

impl Failure {
    /// Reads `NAME@TIME`. The name is that of a link, which is one direction, or of a switch or
    /// node, which fails with all its links. Parallel links of an edge list have one name, and fail
    /// together.
    ///
    /// # Errors
    /// Says what is wrong, and names some links and switches if there is no such name.
    pub fn parse(spec: &str, platform: &Platform) -> Result<Self, SpecError> {
        let fail = |reason: String| SpecError::new(spec, reason);
        let Some((name, time)) = spec.rsplit_once('@') else {
            return Err(fail("expected a name and a time, `NAME@1ms`".to_owned()));
        };
        let time = farcall_quantity::seconds(time).map_err(fail)?;
        let all = 0..platform.links() as LinkId;
        let is_named = |l: &LinkId| platform.link_name(*l) == name;
        let links: Vec<LinkId> = all.clone().filter(is_named).collect();
        if !links.is_empty() {
            return Ok(Self { time, links });
        }
        let mut vertices = 0..platform.vertices() as u32;
        let Some(vertex) = vertices.find(|&v| platform.vertex_name(v) == name) else {
            let last = platform.vertices() as u32 - 1;
            return Err(fail(format!(
                "there is no link and no switch `{name}`. Links are called `{}`, and switches or \
                 nodes `{}`; `farcall flow run --links FILE` lists all links",
                platform.link_name(platform.links() as LinkId - 1),
                platform.vertex_name(last)
            )));
        };
        let links = all
            .filter(|&l| platform.ends(l).contains(&vertex))
            .collect();
        Ok(Self { time, links })
    }
}

/// Chooses the routes of one simulation.
pub(crate) struct Router<'a> {
    platform: &'a Platform,
    routing: Routing,
    random: SplitMix64,
    max_hops: usize,
    /// By link, whether it has failed. Empty if none has.
    failed: Vec<bool>,
    /// Routes found around failed links, empty if there is none.
    around: HashMap<(u32, u32), Vec<LinkId>>,
    /// The links that leave each vertex, once they are needed.
    leaving: Vec<Vec<LinkId>>,
}

impl<'a> Router<'a> {
    pub(crate) fn new(platform: &'a Platform, routing: Routing) -> Self {
        let shortest = platform.max_hops();
        let max_hops = match routing {
            Routing::Valiant(_) | Routing::Adaptive(_) => shortest.max(platform.max_detour()),
            Routing::Static | Routing::Ecmp(_) | Routing::Spray(_) => shortest,
        };
        Self {
            platform,
            routing,
            random: SplitMix64::new(routing.seed()),
            max_hops,
            failed: Vec::new(),
            around: HashMap::new(),
            leaving: Vec::new(),
        }
    }

    /// Length of the longest route that a message can get before links fail.
    pub(crate) fn max_hops(&self) -> usize {
        self.max_hops
    }

    /// Whether all messages take the route of the platform.
    #[inline]
    pub(crate) fn is_static(&self) -> bool {
        self.routing == Routing::Static && self.failed.is_empty()
    }

    /// Whether the load of the links matters.
    pub(crate) fn needs_load(&self) -> bool {
        matches!(self.routing, Routing::Adaptive(_))
    }

    pub(crate) fn fail(&mut self, links: &[LinkId]) {
        self.failed.resize(self.platform.links(), false);
        for &link in links {
            if let Some(failed) = self.failed.get_mut(link as usize) {
                *failed = true;
            }
        }
        self.around.clear();
    }

    pub(crate) fn has_failed(&self, path: &[LinkId]) -> bool {
        !self.failed.is_empty() && path.iter().any(|&link| self.failed[link as usize])
    }

    /// The routes of a message, which share it equally. None if failures leave no route. `load` is
    /// the number of flows, or in the packet model of messages, on a link.
    pub(crate) fn routes(
        &mut self,
        src: u32,
        dst: u32,
        load: impl Fn(LinkId) -> f64,
    ) -> Vec<Vec<LinkId>> {
        if src == dst {
            return Vec::new();
        }
        let mut routes = match self.routing {
            Routing::Static => vec![self.shortest(src, dst, None)],
            Routing::Ecmp(_) => {
                let choice = self.random.below(self.platform.choices(src, dst));
                vec![self.shortest(src, dst, Some(choice))]
            }
            Routing::Spray(_) => {
                let choices = self.platform.choices(src, dst);
                let first = self.random.below(choices);
                (0..choices.min(SPREAD))
                    .map(|i| self.shortest(src, dst, Some((first + i) % choices)))
                    .collect()
            }
            Routing::Valiant(_) => vec![self.detour(src, dst)],
            Routing::Adaptive(_) => vec![self.least_loaded(src, dst, load)],
        };
        if !self.failed.is_empty() {
            routes.retain(|route| !self.has_failed(route));
            if routes.is_empty() {
                routes = self.another(src, dst).into_iter().collect();
            }
        }
        routes
    }

    fn shortest(&self, src: u32, dst: u32, choice: Option<u64>) -> Vec<LinkId> {
        let mut path = vec![0; self.max_hops];
        let hops = match choice {
            None => self.platform.route(src, dst, &mut path),
            Some(choice) => self.platform.minimal(src, dst, choice, &mut path),
        };
        path.truncate(hops);
        path
    }

    fn detour(&mut self, src: u32, dst: u32) -> Vec<LinkId> {
        let mut path = vec![0; self.max_hops];
        let random = self.random.next_u64();
        let hops = self.platform.detour(src, dst, random, &mut path);
        path.truncate(hops);
        path
    }

    /// The route with the least product of its length and the load of its worst link.
    fn least_loaded(&mut self, src: u32, dst: u32, load: impl Fn(LinkId) -> f64) -> Vec<LinkId> {
        let cost = |router: &Self, path: &[LinkId]| {
            let time = |&link: &LinkId| (load(link) + 1.0) / router.platform.bandwidth(link);
            match router.has_failed(path) {
                true => f64::INFINITY,
                false => path.len() as f64 * path.iter().map(time).fold(0.0, f64::max),
            }
        };
        let choices = self.platform.choices(src, dst);
        let first = self.random.below(choices);
        let mut best = (f64::INFINITY, Vec::new());
        for i in 0..choices.min(MINIMAL) {
            let path = self.shortest(src, dst, Some((first + i) % choices));
            let cost = cost(self, &path);
            if cost < best.0 || best.1.is_empty() {
                best = (cost, path);
            }
        }
        let detours = if choices == 1 { DETOURS } else { 0 };
        for _ in 0..detours {
            let path = self.detour(src, dst);
            let cost = cost(self, &path);
            if cost < best.0 {
                best = (cost, path);
            }
        }
        best.1
    }

    /// A route around the failed links: a shortest one of the platform if one works, else the
    /// shortest path through all links that work.
    fn another(&mut self, src: u32, dst: u32) -> Option<Vec<LinkId>> {
        let choices = self.platform.choices(src, dst);
        let first = self.random.below(choices);
        for i in 0..choices.min(64) {
            let path = self.shortest(src, dst, Some((first + i) % choices));
            if !self.has_failed(&path) {
                return Some(path);
            }
        }
        if !self.around.contains_key(&(src, dst)) {
            let path = self.search(src, dst);
            self.around.insert((src, dst), path);
        }
        let path = self.around.get(&(src, dst))?;
        (!path.is_empty()).then(|| path.clone())
    }

    fn search(&mut self, src: u32, dst: u32) -> Vec<LinkId> {
        let platform = self.platform;
        if self.leaving.is_empty() {
            self.leaving.resize(platform.vertices(), Vec::new());
            for link in 0..platform.links() as LinkId {
                let [from, to] = platform.ends(link);
                if from != to {
                    self.leaving[from as usize].push(link);
                }
            }
        }
        let mut reached: Vec<Option<LinkId>> = vec![None; self.leaving.len()];
        let mut queue = VecDeque::from([src]);
        while let Some(at) = queue
            .pop_front()
            .filter(|_| reached[dst as usize].is_none())
        {
            for &link in &self.leaving[at as usize] {
                let [_, to] = platform.ends(link);
                let works = !self.failed[link as usize];
                if works && to != src && reached[to as usize].is_none() {
                    reached[to as usize] = Some(link);
                    queue.push_back(to);
                }
            }
        }
        let (mut path, mut at) = (Vec::new(), dst);
        while let Some(link) = reached[at as usize] {
            path.push(link);
            at = platform.ends(link)[0];
        }
        path.reverse();
        path
    }
}
