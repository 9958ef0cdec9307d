//! The links of the papers: rate, variation and latency. docs/papers/world-paper.md and
//! docs/papers/load-paper.md give the source of each figure.

use super::statistics::{Chance, Spread};
use farcall_lab::LineShape;
use std::time::Duration;

/// A link between a site and the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) name: &'static str,
    /// KB/s up and down, 1 KB = 1000 bytes.
    pub(super) kb_s: [Spread; 2],
    pub(super) round_trip: Duration,
}

/// Table 4 of the second paper, the last two lines: all transfers over the Pacific, up and down.
pub(super) const WORLD_KB_S: [Spread; 2] = [
    Spread {
        min: 19.58,
        max: 303.47,
        mean: 93.89,
        deviation: 56.78,
    },
    Spread {
        min: 53.10,
        max: 287.58,
        mean: 187.36,
        deviation: 45.76,
    },
];

/// The second paper's three networks (Table 1).
pub(super) const NETWORKS: [Link; 3] = [
    even("lan", 1100.0, Duration::from_micros(400)),
    even("domestic", 500.0, Duration::from_millis(30)),
    Link {
        name: "world",
        kb_s: WORLD_KB_S,
        round_trip: Duration::from_millis(200),
    },
];

/// The first paper's four sites (Fig. 7), and their links to the server.
pub(super) const SITES: [Link; 4] = [
    even("ocha-u", 166.0, Duration::from_millis(32)),
    even("u-tokyo", 300.0, Duration::from_millis(20)),
    even("nitech", 120.0, Duration::from_millis(40)),
    even("titech", 200.0, Duration::from_millis(20)),
];

/// The line before the server, which the four sites share. The paper does not give its rate. With
/// this one, Ocha-U loses a quarter if four clients at each site call at once; the paper says 18 to
/// 44 %.
pub(super) const SHARED: Link = even("shared", 500.0, Duration::from_millis(4));

const fn even(name: &'static str, kb_s: f64, round_trip: Duration) -> Link {
    let spread = Spread {
        min: kb_s,
        max: kb_s,
        mean: kb_s,
        deviation: 0.0,
    };
    Link {
        name,
        kb_s: [spread, spread],
        round_trip,
    }
}

impl Link {
    /// The link at one moment, faster than the paper's by a factor. The latency is not scaled,
    /// because the speed of light is the same.
    pub(super) fn shape(&self, faster: f64, chance: &mut Chance) -> LineShape {
        let [up, down] = self.kb_s.map(|kb_s| chance.draw(kb_s) * 1e3 * faster);
        LineShape {
            up,
            down,
            round_trip: self.round_trip,
        }
    }
}
