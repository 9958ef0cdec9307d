//! Channels of a gang job. `farcall.channel` converts what users pass to bytes; every buffer here
//! is an array of bytes or of numbers.

use crate::error;
use crate::server::is_interrupted;
use farcall_channel::{ChannelError, Message, Number, Reduction};
use numpy::{Element, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, TryLockError};

/// The end of a channel in one process of a gang job.
#[pyclass(frozen, module = "farcall._native")]
pub(crate) struct Channel {
    /// None when it is closed.
    channel: Mutex<Option<farcall_channel::Channel>>,
    rank: usize,
    size: usize,
    eager_bytes: usize,
}

impl Channel {
    /// Uses the channel while other Python threads run.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut farcall_channel::Channel) -> Result<T, ChannelError> + Send,
    ) -> PyResult<T> {
        let mut held = match self.channel.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(error::channel_in_use(py)),
        };
        let channel = held.as_mut().ok_or_else(|| error::channel_closed(py))?;
        let done = py.detach(|| act(channel));
        done.map_err(|failure| error::from_channel(py, &failure))
    }

    fn reduced<T: Element + Number + Send + Sync>(
        &self,
        py: Python<'_>,
        root: Option<usize>,
        how: &str,
        mut numbers: PyReadwriteArray1<'_, T>,
    ) -> PyResult<()> {
        let how = match how {
            "sum" => Reduction::Sum,
            "min" => Reduction::Minimum,
            "max" => Reduction::Maximum,
            other => {
                let text = format!("op is {other:?}; it must be \"sum\", \"min\" or \"max\"");
                return Err(PyValueError::new_err(text));
            }
        };
        let numbers = numbers.as_slice_mut()?;
        self.with(py, |channel| match root {
            Some(root) => channel.reduce(root, how, numbers),
            None => channel.all_reduce(how, numbers),
        })
    }
}

fn pair(message: Message) -> (usize, usize) {
    (message.source, message.bytes)
}

#[pymethods]
impl Channel {
    #[new]
    #[pyo3(signature = (number = 0))]
    fn new(py: Python<'_>, number: u8) -> PyResult<Channel> {
        let opened = farcall_channel::Channel::open_number(number);
        let mut channel = opened.map_err(|failure| error::from_channel(py, &failure))?;
        channel.set_interrupt(is_interrupted);
        let (rank, size) = (channel.rank(), channel.size());
        let eager_bytes = channel.eager_bytes();
        Ok(Channel {
            channel: Mutex::new(Some(channel)),
            rank,
            size,
            eager_bytes,
        })
    }

    /// The rank of this process, from 0.
    #[getter]
    fn rank(&self) -> usize {
        self.rank
    }

    /// The number of processes of the job.
    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    /// The most bytes of a message that `try_send` can send.
    #[getter]
    fn eager_bytes(&self) -> usize {
        self.eager_bytes
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.channel.try_lock() {
            Ok(mut held) => *held = None,
            Err(TryLockError::Poisoned(held)) => *held.into_inner() = None,
            Err(TryLockError::WouldBlock) => return Err(error::channel_in_use(py)),
        }
        Ok(())
    }

    fn send(&self, py: Python<'_>, target: usize, data: PyReadonlyArray1<'_, u8>) -> PyResult<()> {
        let data = data.as_slice()?;
        self.with(py, |channel| channel.send(target, data))
    }

    fn try_send(
        &self,
        py: Python<'_>,
        target: usize,
        data: PyReadonlyArray1<'_, u8>,
    ) -> PyResult<bool> {
        let data = data.as_slice()?;
        self.with(py, |channel| channel.try_send(target, data))
    }

    fn receive<'py>(
        &self,
        py: Python<'py>,
        source: Option<usize>,
    ) -> PyResult<(usize, Bound<'py, PyBytes>)> {
        let (source, bytes) = self.with(py, |channel| channel.receive_vec(source))?;
        Ok((source, PyBytes::new(py, &bytes)))
    }

    fn receive_into(
        &self,
        py: Python<'_>,
        source: Option<usize>,
        mut buffer: PyReadwriteArray1<'_, u8>,
    ) -> PyResult<(usize, usize)> {
        let buffer = buffer.as_slice_mut()?;
        self.with(py, |channel| channel.receive(source, buffer))
            .map(pair)
    }

    fn try_receive_into(
        &self,
        py: Python<'_>,
        source: Option<usize>,
        mut buffer: PyReadwriteArray1<'_, u8>,
    ) -> PyResult<Option<(usize, usize)>> {
        let buffer = buffer.as_slice_mut()?;
        let message = self.with(py, |channel| channel.try_receive(source, buffer))?;
        Ok(message.map(pair))
    }

    fn poll(&self, py: Python<'_>, source: Option<usize>) -> PyResult<Option<(usize, usize)>> {
        let message = self.with(py, |channel| channel.poll(source))?;
        Ok(message.map(pair))
    }

    fn exchange(
        &self,
        py: Python<'_>,
        target: usize,
        data: PyReadonlyArray1<'_, u8>,
        source: usize,
        mut buffer: PyReadwriteArray1<'_, u8>,
    ) -> PyResult<usize> {
        let (data, buffer) = (data.as_slice()?, buffer.as_slice_mut()?);
        let message = self.with(py, |channel| channel.exchange(target, data, source, buffer))?;
        Ok(message.bytes)
    }

    /// Registers arrays, and fills them if the job was restarted. Returns whether it was.
    fn register(
        &self,
        py: Python<'_>,
        mut arrays: Vec<PyReadwriteArray1<'_, u8>>,
    ) -> PyResult<bool> {
        let slices: Result<Vec<&mut [u8]>, _> = arrays
            .iter_mut()
            .map(|array| array.as_slice_mut())
            .collect();
        let slices = slices?;
        self.with(py, |channel| {
            let lengths = slices.iter().map(|slice| slice.len() as u64).collect();
            let Some(mut reader) = channel.begin_register(lengths)? else {
                return Ok(false);
            };
            for slice in slices {
                reader.read(slice)?;
            }
            channel.end_register();
            Ok(true)
        })
    }

    /// The number of the next step, after a rest if it was asked for; None after the last step.
    fn next_step(
        &self,
        py: Python<'_>,
        mut arrays: Vec<PyReadwriteArray1<'_, u8>>,
    ) -> PyResult<Option<u64>> {
        let slices: Result<Vec<&mut [u8]>, _> = arrays
            .iter_mut()
            .map(|array| array.as_slice_mut())
            .collect();
        let mut slices = slices?;
        self.with(py, |channel| {
            channel.next_step(&mut |each| slices.iter_mut().for_each(|slice| each(slice)))
        })
    }

    fn end_step(&self, py: Python<'_>, goes_on: bool) -> PyResult<()> {
        self.with(py, |channel| {
            channel.end_step(goes_on);
            Ok(())
        })
    }

    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |channel| channel.barrier())
    }

    fn broadcast(
        &self,
        py: Python<'_>,
        root: usize,
        mut buffer: PyReadwriteArray1<'_, u8>,
    ) -> PyResult<()> {
        let buffer = buffer.as_slice_mut()?;
        self.with(py, |channel| channel.broadcast(root, buffer))
    }

    /// Reduces into the numbers of `root`, or of all processes if that is None.
    fn reduce_floats(
        &self,
        py: Python<'_>,
        root: Option<usize>,
        how: &str,
        numbers: PyReadwriteArray1<'_, f64>,
    ) -> PyResult<()> {
        self.reduced(py, root, how, numbers)
    }

    /// The same for integers.
    fn reduce_integers(
        &self,
        py: Python<'_>,
        root: Option<usize>,
        how: &str,
        numbers: PyReadwriteArray1<'_, i64>,
    ) -> PyResult<()> {
        self.reduced(py, root, how, numbers)
    }
}
