//! What a call would take at the servers behind a metaserver.

use farcall_directory::message;

/// A server that could have a call, or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// Its number.
    pub server: u64,
    /// Where it is.
    pub address: String,
    /// What the call would take there.
    pub terms: Option<TimeParts>,
    /// Why it cannot have it.
    pub refusal: Option<String>,
}

/// Of what the time of a call consists, all in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeParts {
    /// Until the arguments are there.
    pub up_s: f64,
    /// Until it starts.
    pub wait_s: f64,
    /// The computation.
    pub compute_s: f64,
    /// Until the results are back.
    pub down_s: f64,
    /// Processor elements.
    pub pes: u32,
    /// Two thirds of such calls take between the sum divided by this and multiplied by it.
    pub factor: f64,
    /// Whether a call of the function was ever observed there.
    pub learned: bool,
    /// By how much the call delays others, all together; 0 where the metaserver does not say it.
    pub others_s: f64,
}

impl TimeParts {
    /// Until the results are there.
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
