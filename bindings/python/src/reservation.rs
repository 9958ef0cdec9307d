//! Reservations of processor elements and bandwidth: what is asked for, what was granted, and its
//! release. The server decides. The end of a `with` block releases a reservation, and releasing it
//! twice does nothing.

use crate::error;
use crate::origin::Origin;
use farcall_client::{ReservationName, ReservationSpec};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};
use std::time::{Duration, Instant};

/// The reservation that the caller asks for.
pub(crate) fn wanted(
    py: Python<'_>,
    pes: Elements,
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
    let wrong = |name, what| {
        let what = format!("argument `{name}`: {what}");
        error::arguments(py, "reserve", &what)
    };
    let rate = |name, given: Option<Rate>| {
        let rate = given.map_or(Ok(0), |Rate(rate)| rate);
        rate.map_err(|what| wrong(name, what))
    };
    Ok(ReservationSpec {
        pes: pes.0.map_err(|what| wrong("pes", what))?,
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
    if let Ok(id) = given.extract::<u64>()
        && !given.is_instance_of::<PyBool>()
    {
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

/// A number of processor elements, or what is wrong with it.
pub(crate) struct Elements(Result<u32, String>);

impl Elements {
    pub(crate) const ONE: Elements = Elements(Ok(1));
}

impl<'py> FromPyObject<'_, 'py> for Elements {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Elements> {
        Ok(Elements(given.extract().map_err(|_| {
            let most = u32::MAX;
            let shown = error::describe(&given);
            format!("expected a number from 0 to {most}, given {shown}")
        })))
    }
}

/// Bytes per second, given as a number or as a text with a unit, or what is wrong with it.
pub(crate) struct Rate(Result<u64, String>);

impl<'py> FromPyObject<'_, 'py> for Rate {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Rate> {
        let text: Option<String> = given.extract().ok();
        let rate = match &text {
            Some(text) => farcall_quantity::amount(text).ok(),
            // A bool is a number in Python.
            None if given.is_instance_of::<PyBool>() => None,
            None => given.extract().ok(),
        };
        let rate = rate.filter(|rate: &f64| rate.is_finite() && *rate >= 0.0);
        Ok(Rate(match rate {
            Some(rate) => {
                let text = text.unwrap_or_else(|| rate.to_string());
                farcall_quantity::whole_rate(rate, &text)
            }
            None => {
                let shown = error::describe(&given);
                Err(format!(
                    "expected bytes/s, or a text such as \"20Mbit/s\", given {shown}"
                ))
            }
        }))
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

    /// Releases the reservation. The exception of the block goes before that of a release that
    /// fails.
    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let has_failed = exception.iter().any(|part| !part.is_none());
        match self.release(py) {
            Err(error) if has_failed && error.is_instance_of::<PyException>(py) => Ok(()),
            released => released,
        }
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
