//! Events of clients of metaservers: when they act, connect, receive and lose connections.
//! `grid::caller` decides what they do.

use super::grid::End;
use super::links::{Maker, To};
use super::{Happening, MS, S, World};
use crate::grid::caller::Whom;

impl World {
    fn seconds(&self) -> f64 {
        self.now as f64 * 1e-9
    }

    pub(super) fn caller_acts(&mut self, caller: usize) {
        let now = self.seconds();
        let is_last = self.is_healed;
        self.callers[caller].act(now, &mut self.random, &mut self.checker, is_last);
        self.caller_goes_on(caller);
        if self.callers[caller].wishes > 0 {
            // Sometimes it pauses, so that hosts end and come back between its calls.
            let most = if self.random.chance(0.2) {
                5 * S
            } else {
                100 * MS
            };
            let delay = self.random.below(most);
            self.at(self.now + delay, Happening::CallerActs(caller));
        }
        self.may_cut();
    }

    /// Records a client's events, sends its bytes, and makes the connections that it wants.
    pub(super) fn caller_goes_on(&mut self, caller: usize) {
        for text in std::mem::take(&mut self.callers[caller].told) {
            self.trace(|| format!("client {caller}: {text}"));
        }
        for (link, bytes) in self.callers[caller].output() {
            self.send(link, bytes, 0);
        }
        for whom in std::mem::take(&mut self.callers[caller].wants) {
            let to = match &whom {
                // Any of them that the name stands for.
                Whom::Meta => To::Meta(self.random.below(self.metas.len() as u64) as usize),
                Whom::Server(_, address) => To::Host(host_of(address)),
            };
            let delay = MS + self.random.below(5 * MS);
            let maker = Maker::Caller(caller, whom);
            self.at(self.now + delay, Happening::Reaches(maker, to));
        }
    }

    /// A client's connection was made, or could not be made.
    pub(super) fn caller_connected(&mut self, caller: usize, whom: Whom, link: Option<usize>) {
        let now = self.seconds();
        let (at, checker) = (&mut self.callers[caller], &mut self.checker);
        match link {
            Some(link) => at.connected(link, whom, now, checker),
            None => at.unreachable(&whom, now, checker),
        }
        self.caller_goes_on(caller);
    }

    /// Bytes have arrived at a client. Returns whether the connection can continue.
    pub(super) fn caller_hears(&mut self, caller: usize, link: usize, bytes: &[u8]) -> bool {
        let now = self.seconds();
        let (at, checker) = (&mut self.callers[caller], &mut self.checker);
        let heard = at.input(link, bytes, now, checker);
        if let Err(was_let_go) = heard {
            self.caller_lost(caller, link, was_let_go);
        }
        self.caller_goes_on(caller);
        heard.is_ok()
    }

    pub(super) fn caller_lost(&mut self, caller: usize, link: usize, was_let_go: bool) {
        let now = self.seconds();
        self.callers[caller].lost(link, was_let_go, now, &mut self.checker);
        self.caller_goes_on(caller);
    }
}

/// The host of a server's address.
fn host_of(address: &str) -> usize {
    let rest = address.strip_prefix("farcall://host").unwrap_or_default();
    let number = rest.split(':').next().and_then(|text| text.parse().ok());
    number.expect("an address that the simulator has made")
}

impl Maker {
    /// The end that it stands for.
    pub(super) fn end(&self) -> End {
        match self {
            Maker::Client(client) | Maker::Caller(client, _) => End::Client(*client),
            Maker::Member(host, ..) => End::Host(*host),
        }
    }
}

impl To {
    /// The end that it stands for.
    pub(super) fn end(self) -> End {
        match self {
            To::Host(host) => End::Host(host),
            To::Meta(meta) => End::Meta(meta),
        }
    }
}
