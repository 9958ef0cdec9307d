//! Processor elements and bandwidth reserved ahead of time.

use crate::error;
use crate::origin::Origin;
use farcall_client::{ReservationName, ReservationSpec};
use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// What is to be reserved.
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
        let expected = "bytes per second, or text such as \"20Mbit/s\"";
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

/// The name of a reservation that is given as such, as a number or as a text.
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
        let expected = "a reservation, its number, or a text such as '3@farcall://host:3717'";
        let function = format!("{function}.with_reservation");
        let shown = error::describe(given);
        error::argument(given.py(), &function, "reservation", expected, &shown)
    })
}

/// Bytes per second, or text with a unit.
#[derive(FromPyObject)]
pub(crate) enum Rate {
    #[pyo3(transparent)]
    Number(f64),
    #[pyo3(transparent)]
    Text(String),
}

impl Rate {
    /// The error is what was given.
    pub(crate) fn bytes(&self) -> Result<u64, String> {
        let (rate, given) = match self {
            Rate::Number(number) => (Some(*number), number.to_string()),
            Rate::Text(text) => (farcall_quantity::parse(text).ok(), format!("{text:?}")),
        };
        let rate = rate.filter(|rate| rate.is_finite() && *rate >= 0.0);
        rate.map(|rate| rate as u64).ok_or(given)
    }
}

/// Processor elements and bandwidth of a server, reserved for calls of
/// `Function.with_reservation`. As a context manager it is released at the end.
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
    /// Its number at the server.
    #[getter]
    fn id(&self) -> u64 {
        self.known.id
    }

    /// The address of its server.
    #[getter]
    fn server(&self) -> String {
        self.known.server.to_string()
    }

    /// Processor elements.
    #[getter]
    fn pes(&self) -> u32 {
        self.known.pes
    }

    /// Bytes per second to the server.
    #[getter]
    fn up(&self) -> u64 {
        self.known.up
    }

    /// Bytes per second from the server.
    #[getter]
    fn down(&self) -> u64 {
        self.known.down
    }

    /// Seconds until it begins; 0 when it has begun.
    #[getter]
    fn begins_in(&self) -> f64 {
        self.left(self.known.begins)
    }

    /// Seconds until it is over; 0 when it is.
    #[getter]
    fn ends_in(&self) -> f64 {
        self.left(self.known.ends)
    }

    /// Ends it before its time. Calls that name it and wait do so as all others from then on. One
    /// that is over already is left alone.
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
