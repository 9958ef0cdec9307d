//! Reservations of processor elements and bandwidth: what is asked for, what was granted, and its
//! release. The server decides. The end of a `with` block releases a reservation, and releasing it
//! twice does nothing.

use crate::error;
use crate::origin::Origin;
use farcall_client::{ReservationName, ReservationSpec};
use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// The reservation that the caller asks for.
pub(crate) fn wanted(
    py: Python<'_>,
    pes: u32,
    seconds: f64,
    start: f64,
    earliest: bool,
    (up, down): (Option<Rate>, Option<Rate>),
) -> PyResult<ReservationSpec> {
    let duration = |name, value: f64| {
        Duration::try_from_secs_f64(value).map_err(|_| {
            let expected = "seconds, 0 or more";
            error::argument(py, "reserve", name, expected, &value.to_string())
        })
    };
    let rate = |name, given: Option<Rate>| {
        let rate = given.as_ref().map_or(Ok(0), Rate::bytes);
        let expected = "bytes/s, or a text such as \"20Mbit/s\"";
        rate.map_err(|got| error::argument(py, "reserve", name, expected, &got))
    };
    Ok(ReservationSpec {
        pes,
        up: rate("up", up)?,
        down: rate("down", down)?,
        start: duration("start", start)?,
        latest: earliest.then_some(Duration::MAX),
        length: duration("seconds", seconds)?,
    })
}

/// The name of a reservation, which the caller gives as an object, an id or a text.
pub(crate) fn name(function: &str, given: &Bound<'_, PyAny>) -> PyResult<ReservationName> {
    if let Ok(reservation) = given.cast::<Reservation>() {
        return Ok(ReservationName::from(&reservation.get().known));
    }
    if let Ok(id) = given.extract::<u64>() {
        return Ok(ReservationName::from(id));
    }
    let text: Option<String> = given.extract().ok();
    let name = text.and_then(|text| text.parse().ok());
    name.ok_or_else(|| {
        let expected = "a reservation, its id, or a text such as '3@farcall://host:3717'";
        let function = format!("{function}.with_reservation");
        let shown = error::describe(given);
        error::argument(given.py(), &function, "reservation", expected, &shown)
    })
}

/// Bytes per second, or a text with a unit.
#[derive(FromPyObject)]
pub(crate) enum Rate {
    #[pyo3(transparent)]
    Number(f64),
    #[pyo3(transparent)]
    Text(String),
}

impl Rate {
    /// The error is the value that was given.
    pub(crate) fn bytes(&self) -> Result<u64, String> {
        let (rate, given) = match self {
            Rate::Number(number) => (Some(*number), number.to_string()),
            Rate::Text(text) => (farcall_quantity::amount(text).ok(), format!("{text:?}")),
        };
        let rate = rate.filter(|rate| rate.is_finite() && *rate >= 0.0);
        rate.map(|rate| rate as u64).ok_or(given)
    }
}

/// A reservation of processor elements and bandwidth, for calls of `Function.with_reservation`. The
/// end of a `with` block releases it.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct Reservation {
    server: farcall_client::Server,
    origin: Origin,
    known: farcall_client::Reservation,
    told: Instant,
}

impl Reservation {
    pub(crate) fn new(
        server: farcall_client::Server,
        origin: Origin,
        known: farcall_client::Reservation,
    ) -> Reservation {
        Reservation {
            server,
            origin,
            known,
            told: Instant::now(),
        }
    }

    fn left(&self, time: Duration) -> f64 {
        time.saturating_sub(self.told.elapsed()).as_secs_f64()
    }
}

#[pymethods]
impl Reservation {
    /// The id of the reservation at its server.
    #[getter]
    fn id(&self) -> u64 {
        self.known.id
    }

    /// The address of the server.
    #[getter]
    fn server(&self) -> String {
        self.known.server.to_string()
    }

    /// Processor elements.
    #[getter]
    fn pes(&self) -> u32 {
        self.known.pes
    }

    /// The rate to the server in bytes/s.
    #[getter]
    fn up(&self) -> u64 {
        self.known.up
    }

    /// The rate from the server in bytes/s.
    #[getter]
    fn down(&self) -> u64 {
        self.known.down
    }

    /// Seconds until the reservation begins; 0 if it has begun.
    #[getter]
    fn begins_in(&self) -> f64 {
        self.left(self.known.begins)
    }

    /// Seconds until the reservation ends; 0 if it has ended.
    #[getter]
    fn ends_in(&self) -> f64 {
        self.left(self.known.ends)
    }

    /// Ends the reservation before its time. Calls that wait for it wait like all other calls. If
    /// the reservation has ended, this does nothing.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.origin.check(py)?;
        if self.ends_in() == 0.0 {
            return Ok(());
        }
        let released = py.detach(|| self.server.release(self.known.id));
        match released {
            Ok(_) => Ok(()),
            Err(farcall_client::Error::Failed(failure))
                if failure.kind == farcall_client::FailureKind::NotFound =>
            {
                Ok(())
            }
            Err(error) => Err(error::from_client(py, &error)),
        }
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _exception: &Bound<'_, pyo3::types::PyTuple>,
    ) -> PyResult<()> {
        self.release(py)
    }

    fn __repr__(&self) -> String {
        let rates = [(self.known.up, "up"), (self.known.down, "down")];
        let rates = rates.into_iter().filter(|(rate, _)| *rate > 0);
        let rates: String = rates
            .map(|(rate, way)| format!(", {rate} B/s {way}"))
            .collect();
        format!(
            "<reservation {} of {} PEs{rates} at {}>",
            self.known.id, self.known.pes, self.known.server
        )
    }
}
