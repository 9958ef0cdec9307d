//! The transfers under way: it starts flows on the routes of their messages, ends them, moves them
//! when links fail, and has the solver compute the rates. A message is one flow, or several equal
//! ones if its packets are spread over several routes.

use super::calendar::Calendar;
use super::report::RunError;
use super::{Flow, Rates, Simulation, each};
use crate::platform::LinkId;
use crate::solver::{Slot, certify};

/// In place of a message with several flows.
pub(super) const WHOLE: u32 = u32::MAX;

/// A message whose packets take several routes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread {
    message: Flow,
    /// Flows that have not ended.
    left: u32,
}

impl Simulation<'_> {
    /// Ends the flow of a slot, which leaves the network in [`Simulation::settle`]. Returns its
    /// message, unless other flows of it are under way.
    pub(super) fn end(&mut self, slot: Slot) -> Option<Flow> {
        self.calendar.set(slot, f64::INFINITY);
        let flow = self.flows[slot as usize];
        self.count(slot, &flow, flow.part);
        if flow.spread == WHOLE {
            return Some(flow);
        }
        let spread = &mut self.spreads[flow.spread as usize];
        spread.left -= 1;
        if spread.left > 0 {
            return None;
        }
        self.free_spreads.push(flow.spread);
        Some(spread.message)
    }

    /// Counts bytes that a flow has moved.
    #[inline]
    pub(super) fn count(&mut self, slot: Slot, flow: &Flow, bytes: f64) {
        if !self.config.link_bytes && self.watch.is_empty() {
            return;
        }
        let path = self.rates.path(slot);
        if self.config.link_bytes {
            for &link in path {
                self.link_bytes[link as usize] += bytes;
            }
        }
        self.watch.count(path, (flow.rank, flow.to), bytes);
    }

    /// Lets links fail, and takes the flows on them off their routes.
    pub(super) fn fail_links(&mut self) {
        while let Some(failure) = self.failures.front()
            && failure.time <= self.now
        {
            self.router.fail(&failure.links);
            self.failures.pop_front();
        }
        for slot in self.rates.active() {
            if !self.calendar.has_flow(slot) || !self.router.has_failed(self.rates.path(slot)) {
                continue;
            }
            let mut flow = self.flows[slot as usize];
            let moved = flow.rate * (self.now - flow.since);
            flow.remaining = (flow.remaining - moved).max(0.0);
            self.count(slot, &flow, flow.part - flow.remaining);
            flow.part = flow.remaining;
            self.calendar.set(slot, f64::INFINITY);
            self.leaving.push(slot);
            let before = self.time_on(self.rates.path(slot), flow.bytes);
            self.moved.push((flow, before));
        }
    }

    /// Removes the flows that ended from the network, adds the new ones, and computes all rates.
    pub(super) fn settle(&mut self) -> Result<(), RunError> {
        if let Rates::Exact(solver) = &mut self.rates {
            solver.begin(self.leaving.len(), self.starts.len() + self.moved.len());
        }
        if !self.watch.is_empty() || self.router.needs_load() {
            for &slot in &self.leaving {
                let rate = self.flows[slot as usize].rate;
                let path = self.rates.path(slot);
                self.watch.change(path, -rate);
                if self.router.needs_load() {
                    path.iter().for_each(|&l| self.on_link[l as usize] -= 1);
                }
            }
        }
        for &slot in &self.leaving {
            each!(&mut self.rates, r => r.remove(slot));
        }
        // Places are reused in the order in which they became free.
        self.free.extend(self.leaving.drain(..).rev());
        let mut starts = std::mem::take(&mut self.starts);
        for flow in starts.drain(..) {
            self.launch(flow)?;
        }
        self.starts = starts;
        for (mut flow, before) in std::mem::take(&mut self.moved) {
            let path = self.routes(&flow)?.swap_remove(0);
            flow.latency += self.time_on(&path, flow.bytes) - before;
            if let Some(spread) = self.spreads.get_mut(flow.spread as usize) {
                spread.message.latency = spread.message.latency.max(flow.latency);
            }
            self.add(flow, &path);
        }
        self.solve();
        if self.config.tolerance > 0.0 {
            self.unchecked += 1;
        }
        let due = self.unchecked > self.flows.len();
        if !(self.config.verify || due) {
            return Ok(());
        }
        self.unchecked = 0;
        self.certify()
    }

    /// Starts the flows of a message.
    #[inline]
    fn launch(&mut self, mut flow: Flow) -> Result<(), RunError> {
        let (src, dst) = (self.placement.node(flow.rank), self.placement.node(flow.to));
        if self.router.is_static() {
            let mut path = std::mem::take(&mut self.path);
            let hops = self.platform.route(src, dst, &mut path);
            if self.has_latency {
                flow.latency += self.platform.latency_of(src, dst, hops);
                let (stored, least) = self.time_stored(&path[..hops], flow.bytes);
                flow.latency += stored;
                flow.least = least;
            }
            self.add(flow, &path[..hops]);
            self.path = path;
            return Ok(());
        }
        let routes = self.routes(&flow)?;
        let hops = routes.iter().map(Vec::len).max().unwrap_or(0);
        flow.latency += self.platform.latency_of(src, dst, hops);
        let mut longest = 0.0f64;
        for path in &routes {
            let (stored, least) = self.time_stored(path, flow.bytes);
            longest = longest.max(stored);
            flow.least = flow.least.max(least);
        }
        flow.latency += longest;
        if routes.len() > 1 {
            let (message, left) = (flow, routes.len() as u32);
            let spread = Spread { message, left };
            flow.spread = self.free_spreads.pop().unwrap_or(self.spreads.len() as u32);
            if flow.spread as usize == self.spreads.len() {
                self.spreads.push(spread);
            } else {
                self.spreads[flow.spread as usize] = spread;
            }
        }
        flow.part = flow.bytes / routes.len() as f64;
        flow.remaining = flow.part;
        for path in &routes {
            self.add(flow, path);
        }
        Ok(())
    }

    /// What stored packets cost a message: [`Config::stored_packet`](super::Config::stored_packet).
    /// A longer message has the seconds that its first packet is stored on its way, a message of
    /// one packet the seconds that it needs at least on all its links.
    #[inline]
    fn time_stored(&self, path: &[LinkId], bytes: f64) -> (f64, f64) {
        if self.config.stored_packet == 0.0 {
            return (0.0, 0.0);
        }
        let packet = bytes.min(self.config.stored_packet);
        let times = path
            .iter()
            .map(|&link| packet / self.platform.bandwidth(link));
        let (all, longest) = times.fold((0.0, 0.0f64), |(a, l), t| (a + t, l.max(t)));
        match bytes <= self.config.stored_packet {
            true => (0.0, all),
            false => (all - longest, 0.0),
        }
    }

    /// Seconds from the end of a flow to the arrival that depend on its route.
    fn time_on(&self, path: &[LinkId], bytes: f64) -> f64 {
        path.len() as f64 * self.platform.hop_latency() + self.time_stored(path, bytes).0
    }

    /// The routes of a message, at least one.
    pub(super) fn routes(&mut self, flow: &Flow) -> Result<Vec<Vec<LinkId>>, RunError> {
        let (src, dst) = (self.placement.node(flow.rank), self.placement.node(flow.to));
        let on_link = &self.on_link;
        let load = |link: LinkId| f64::from(on_link[link as usize]);
        let routes = self.router.routes(src, dst, load);
        match routes.is_empty() {
            false => Ok(routes),
            true => Err(RunError::Unreachable {
                time: self.now,
                from: self.platform.vertex_name(src),
                to: self.platform.vertex_name(dst),
            }),
        }
    }

    /// Puts a flow on the network.
    #[inline]
    fn add(&mut self, mut flow: Flow, path: &[LinkId]) {
        (flow.rate, flow.since) = (0.0, self.now);
        let slot = self.free.pop().unwrap_or(self.flows.len() as Slot);
        if slot as usize == self.flows.len() {
            self.flows.push(flow);
            self.calendar.grow(self.flows.len());
        } else {
            self.flows[slot as usize] = flow;
        }
        if self.router.needs_load() {
            path.iter().for_each(|&l| self.on_link[l as usize] += 1);
        }
        each!(&mut self.rates, r => r.add(slot, path));
    }

    fn solve(&mut self) {
        each!(&mut self.rates, r => {
            r.solve();
            let (flows, calendar) = (&mut self.flows, &mut self.calendar);
            if !self.watch.is_empty() {
                for &slot in r.changed() {
                    let before = flows[slot as usize].rate;
                    self.watch.change(r.path(slot), r.rate(slot) - before);
                }
            }
            reschedule(flows, calendar, self.now, r.changed(), |slot| r.rate(slot));
        });
        if let Some(sink) = &mut self.sink {
            let platform = self.platform;
            self.watch
                .tell(self.now, sink, |link| platform.bandwidth(link));
        }
    }

    /// Checks that the rates are max-min fair.
    fn certify(&self) -> Result<(), RunError> {
        let Rates::Exact(solver) = &self.rates else {
            return Ok(());
        };
        let links = self.platform.links() as LinkId;
        let bandwidth: Vec<f64> = (0..links).map(|l| self.platform.bandwidth(l)).collect();
        let flows = solver.flows().map(|(_, path, rate)| (path, rate));
        let tolerance = self.config.tolerance + 1e-9;
        certify(&bandwidth, flows, tolerance).map_err(|violation| RunError::Violation {
            time: self.now,
            violation,
        })
    }
}

/// Counts the bytes that flows with a new rate have moved, and sets their finish times.
fn reschedule(
    flows: &mut [Flow],
    calendar: &mut Calendar,
    now: f64,
    changed: &[Slot],
    rate: impl Fn(Slot) -> f64,
) {
    for &slot in changed {
        let flow = &mut flows[slot as usize];
        flow.remaining = (flow.remaining - flow.rate * (now - flow.since)).max(0.0);
        flow.since = now;
        flow.rate = rate(slot);
        // A flow that ended at infinity would count as none.
        calendar.set(slot, (now + flow.remaining / flow.rate).min(f64::MAX));
    }
}
