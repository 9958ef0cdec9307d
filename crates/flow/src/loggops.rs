//! What a host does for a message, in time: the LogGOPS model (Hoefler, Schneider, Lumsdaine,
//! LogGOPSim, 2010). The driver of traces charges it to cpus and network interfaces; the network
//! between them remains the platform's.

use crate::error::SpecError;

/// The parameters of LogGOPS. All are 0 by default, and every message is eager.
///
/// A message of `s` bytes occupies the cpu of its sender for `o + (s - 1) O`, and its network
/// interface for `g + (s - 1) G`. Its first byte leaves after `o`. It arrives after `L` and the
/// latency of the platform. It then occupies the cpu of the receiver for
/// `o + (s - 1) max(O, G)`, and its network interface for `g + (s - 1) G`; the receive is not done
/// earlier than `o` after the last byte came over the network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogGops {
    /// L: seconds that every message travels, besides the latency of the platform.
    pub latency: f64,
    /// o: seconds of a cpu for a message.
    pub overhead: f64,
    /// g: seconds from one message of a network interface to the next.
    pub gap: f64,
    /// G: seconds of a network interface for a byte.
    pub gap_per_byte: f64,
    /// O: seconds of a cpu for a byte.
    pub overhead_per_byte: f64,
    /// S: the largest message in bytes that is sent eagerly. The send of a larger message is done
    /// when its receive has matched.
    pub eager: f64,
}

impl Default for LogGops {
    fn default() -> Self {
        Self {
            latency: 0.0,
            overhead: 0.0,
            gap: 0.0,
            gap_per_byte: 0.0,
            overhead_per_byte: 0.0,
            eager: f64::INFINITY,
        }
    }
}

impl LogGops {
    /// Reads `L=2500,o=1500,g=1000,G=6,O=0,S=65535`: times in nanoseconds, S in bytes, as
    /// LogGOPSim takes them. What is left out keeps its default value.
    ///
    /// # Errors
    /// Names the parameter and lists them all.
    pub fn parse(spec: &str) -> Result<Self, SpecError> {
        let mut parameters = Self::default();
        let mut given = Vec::new();
        for part in spec.split(',') {
            let fail = |reason: String| SpecError::new(spec, reason);
            let Some((name, value)) = part.split_once('=') else {
                let known = "expected `L=2500,o=1500,g=1000,G=6,O=0,S=65535`: nanoseconds, and \
                             bytes for S";
                return Err(fail(format!("`{part}`: {known}")));
            };
            let number = match value.parse::<f64>() {
                Ok(number) if number.is_finite() && number >= 0.0 => number,
                _ => {
                    let reason = "expected a number of nanoseconds, or of bytes for S";
                    return Err(fail(format!("`{part}`: {reason}")));
                }
            };
            if given.contains(&name) {
                return Err(fail(format!("`{name}` is given twice")));
            }
            given.push(name);
            let place = match name {
                "L" => &mut parameters.latency,
                "o" => &mut parameters.overhead,
                "g" => &mut parameters.gap,
                "G" => &mut parameters.gap_per_byte,
                "O" => &mut parameters.overhead_per_byte,
                "S" => &mut parameters.eager,
                _ => {
                    let reason = "the parameters are L, o, g, G, O and S";
                    return Err(fail(format!("`{part}`: {reason}")));
                }
            };
            *place = if name == "S" { number } else { number / 1e9 };
        }
        Ok(parameters)
    }

    /// Seconds of the sender's cpu.
    pub(crate) fn to_send(self, bytes: f64) -> f64 {
        self.overhead + further(bytes) * self.overhead_per_byte
    }

    /// Seconds of the receiver's cpu.
    pub(crate) fn to_receive(self, bytes: f64) -> f64 {
        self.overhead + further(bytes) * self.per_byte()
    }

    /// Seconds of a network interface at either end.
    pub(crate) fn to_transfer(self, bytes: f64) -> f64 {
        self.gap + further(bytes) * self.gap_per_byte
    }

    /// Seconds of the receiver's cpu for each byte.
    pub(crate) fn per_byte(self) -> f64 {
        self.overhead_per_byte.max(self.gap_per_byte)
    }
}

/// The bytes after the first one.
fn further(bytes: f64) -> f64 {
    (bytes - 1.0).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_nanoseconds_and_bytes() {
        let read = LogGops::parse("L=2500,o=1500,G=0.5,S=65535").unwrap();
        assert_eq!((read.latency, read.overhead), (2.5e-6, 1.5e-6));
        assert_eq!((read.gap, read.overhead_per_byte), (0.0, 0.0));
        assert_eq!((read.gap_per_byte, read.eager), (5e-10, 65535.0));
        assert_eq!(read.to_receive(3.0), 1.5e-6 + 2.0 * 5e-10);
        assert_eq!(read.to_send(0.0), 1.5e-6);
        for (spec, part) in [
            ("", "L=2500"),
            ("L", "L=2500"),
            ("l=1", "L, o, g, G, O and S"),
            ("L=-1", "nanoseconds"),
            ("L=nan", "nanoseconds"),
            ("o=1us", "nanoseconds"),
            ("L=1,o=2,L=3", "`L` is given twice"),
        ] {
            let error = LogGops::parse(spec).unwrap_err();
            assert!(error.reason.contains(part), "{error}");
        }
    }
}
