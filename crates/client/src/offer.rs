//! Estimates of a call at the servers behind a metaserver, as the program sees them. The metaserver
//! computes them; this module only converts its messages. An offer without estimate says why the
//! server cannot run the call.

use farcall_directory::message;

/// The estimate for one server, or the reason why it cannot run the call.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// Number of the server.
    pub server: u64,
    /// Address of the server.
    pub address: String,
    /// The parts of the call's time there.
    pub terms: Option<TimeParts>,
    /// Why the server cannot run the call.
    pub refusal: Option<String>,
}

/// The parts of a call's time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeParts {
    /// Transfer of the arguments.
    pub up_s: f64,
    /// Wait for its turn after that.
    pub wait_s: f64,
    /// The computation.
    pub compute_s: f64,
    /// Transfer of the results.
    pub down_s: f64,
    /// Processor elements that the call would use.
    pub pes: u32,
    /// Spread: two thirds of such calls take between the sum divided by this and the sum times
    /// this.
    pub factor: f64,
    /// Whether the server has seen a call of the function.
    pub learned: bool,
    /// Delay that the call causes to all other calls together; 0 if the metaserver does not say.
    pub others_s: f64,
}

impl TimeParts {
    /// Time until the results are back: the sum of the parts.
    pub fn seconds(&self) -> f64 {
        self.up_s + self.wait_s + self.compute_s + self.down_s
    }
}

impl From<message::TimeParts> for TimeParts {
    fn from(terms: message::TimeParts) -> TimeParts {
        TimeParts {
            up_s: terms.up_s,
            wait_s: terms.wait_s,
            compute_s: terms.compute_s,
            down_s: terms.down_s,
            pes: terms.pes,
            factor: terms.factor,
            learned: terms.learned,
            others_s: terms.others_s,
        }
    }
}

impl From<message::Offer> for Offer {
    fn from(offer: message::Offer) -> Offer {
        Offer {
            server: offer.server,
            address: offer.address,
            terms: offer.terms.map(TimeParts::from),
            refusal: offer.refusal,
        }
    }
}
