//! The estimate of a call, before it is made: bytes, memory and time. The server predicts the
//! computation, and this module adds the transfers. A part that is not known yet is missing and is
//! never counted as 0.

use farcall_idl::Layout;
use farcall_rpc_proto::Estimate as ServerEstimate;
use std::fmt;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

/// The estimated cost of a call. Times are in seconds. A missing time is not known yet: the server
/// has seen no call of the function, or no transfer of a megabyte.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Bytes of arrays that travel to the server.
    pub sent_bytes: u64,
    /// Bytes of arrays that travel back.
    pub returned_bytes: u64,
    /// Bytes of memory that the call takes on the server.
    pub memory_bytes: u64,
    /// Number of operations, by `CalcOrder` of the interface.
    pub operations: Option<f64>,
    /// Round trip to the server without data.
    pub latency: f64,
    /// Transfer of the arguments.
    pub send: Option<f64>,
    /// Wait for a free worker.
    pub wait: f64,
    /// Computation in the library.
    pub exec: Option<f64>,
    /// Spread of `exec`: two thirds of the calls take between `exec / factor` and `exec * factor`.
    pub factor: Option<f64>,
    /// Transfer of the results.
    pub recv: Option<f64>,
    /// Rates to the server and back, in bytes per second.
    pub rates: (Option<f64>, Option<f64>),
    /// Processor elements that the call takes.
    pub pes: Option<u32>,
}

impl Estimate {
    pub(crate) fn new(
        layout: &Layout,
        estimate: &ServerEstimate,
        round_trip: f64,
        shares: bool,
    ) -> Estimate {
        let seconds = |nanos: u64| nanos as f64 * 1e-9;
        let transfer = |bytes: u64, rate: Option<u64>| match (bytes, shares, rate) {
            (0, _, _) => Some(0.0),
            (bytes, true, _) => Some(bytes as f64 / copy_rate()),
            (bytes, false, rate) => rate.map(|rate| bytes as f64 / rate.max(1) as f64),
        };
        let (sent, returned) = (layout.sent_bytes(), layout.returned_bytes());
        Estimate {
            sent_bytes: sent,
            returned_bytes: returned,
            memory_bytes: layout.bytes,
            operations: layout.cost,
            latency: round_trip,
            send: transfer(sent, estimate.up),
            wait: seconds(estimate.wait),
            exec: estimate.exec.map(seconds),
            factor: estimate.factor,
            recv: transfer(returned, estimate.down),
            rates: match shares {
                true => (Some(copy_rate()), Some(copy_rate())),
                false => (
                    estimate.up.map(|rate| rate as f64),
                    estimate.down.map(|rate| rate as f64),
                ),
            },
            pes: estimate.pes,
        }
    }

    /// The estimate of another call of the same function: its bytes at the same rates, its
    /// computation at the same speed.
    pub(crate) fn for_layout(&self, layout: &Layout) -> Estimate {
        let (sent, returned) = (layout.sent_bytes(), layout.returned_bytes());
        let transfer = |bytes: u64, rate: Option<f64>| match bytes {
            0 => Some(0.0),
            bytes => rate.map(|rate| bytes as f64 / rate.max(1.0)),
        };
        let ratio = match (layout.cost, self.operations) {
            (Some(here), Some(there)) if there > 0.0 => here / there,
            _ => 1.0,
        };
        Estimate {
            sent_bytes: sent,
            returned_bytes: returned,
            memory_bytes: layout.bytes,
            operations: layout.cost,
            send: transfer(sent, self.rates.0),
            exec: self.exec.map(|exec| exec * ratio),
            recv: transfer(returned, self.rates.1),
            ..*self
        }
    }

    /// Time from the start of the call to its return, if every part is known.
    pub fn total(&self) -> Option<f64> {
        Some(self.latency + self.send? + self.wait + self.exec? + self.recv?)
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = "not known yet";
        let time = |seconds: Option<f64>| match seconds {
            Some(seconds) => format!("{seconds:.6} s"),
            None => unknown.to_string(),
        };
        let exec = match (self.exec, self.factor) {
            (Some(_), Some(factor)) => format!("{}, x/ {factor:.2}", time(self.exec)),
            _ => time(self.exec),
        };
        let operations = match self.operations {
            Some(operations) => format!("{operations:.3e}"),
            None => "not stated by the interface".to_string(),
        };
        writeln!(f, "sent        {} bytes", self.sent_bytes)?;
        writeln!(f, "returned    {} bytes", self.returned_bytes)?;
        writeln!(f, "on server   {} bytes", self.memory_bytes)?;
        writeln!(f, "operations  {operations}")?;
        writeln!(f, "latency     {}", time(Some(self.latency)))?;
        writeln!(f, "send        {}", time(self.send))?;
        writeln!(f, "wait        {}", time(Some(self.wait)))?;
        writeln!(f, "exec        {exec}")?;
        writeln!(f, "recv        {}", time(self.recv))?;
        write!(f, "total       {}", time(self.total()))
    }
}

/// Rate of a memory copy within this host, in bytes per second. Measured once.
fn copy_rate() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        const BYTES: usize = 4 << 20;
        let (from, mut to) = (vec![1u8; BYTES], vec![0u8; BYTES]);
        let times = (0..3).map(|_| {
            let start = Instant::now();
            to.copy_from_slice(black_box(&from));
            black_box(&to);
            start.elapsed().as_secs_f64()
        });
        BYTES as f64 / times.fold(f64::INFINITY, f64::min).max(1e-9)
    })
}
