//! The descriptors that the reactor waits for, each with its [`Source`]. This module wraps `epoll`
//! and knows nothing about what the events mean. A source has the generation of its key, so an
//! event that comes late for a closed connection finds nothing.

use farcall_server_proto::{ConnectionKey, Key, WorkerKey};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// The source of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Listener(usize),
    Connection(ConnectionKey),
    WorkerSocket(WorkerKey),
    WorkerOutput(WorkerKey),
    Doorbell,
    Signal,
    Drain,
    Reload,
}

impl Source {
    /// The source in 64 bits: 3 for the kind, 24 for the place and 37 for the generation.
    fn data(self) -> EventData {
        fn key(kind: u64, key: impl Key) -> u64 {
            kind << 61 | u64::from(key.generation()) << 24 | u64::from(key.index())
        }
        EventData::new_u64(match self {
            Source::Listener(index) => index as u64,
            Source::Connection(of) => key(1, of),
            Source::WorkerSocket(of) => key(2, of),
            Source::WorkerOutput(of) => key(3, of),
            Source::Doorbell => 4 << 61,
            Source::Signal => 5 << 61,
            Source::Drain => 6 << 61,
            Source::Reload => 7 << 61,
        })
    }

    pub(crate) fn from_data(data: EventData) -> Source {
        fn key<K: Key>(data: u64) -> K {
            K::new(data as u32 & 0xff_ffff, (data >> 24) as u32)
        }
        let data = data.u64();
        match data >> 61 {
            0 => Source::Listener(data as usize),
            1 => Source::Connection(key(data)),
            2 => Source::WorkerSocket(key(data)),
            3 => Source::WorkerOutput(key(data)),
            4 => Source::Doorbell,
            5 => Source::Signal,
            6 => Source::Drain,
            _ => Source::Reload,
        }
    }
}

/// The watched descriptors.
pub(crate) struct Poll(OwnedFd);

impl Poll {
    pub(crate) fn new() -> io::Result<Poll> {
        Ok(Poll(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    pub(crate) fn watch(
        &self,
        fd: BorrowedFd<'_>,
        source: Source,
        flags: EventFlags,
    ) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, source.data(), flags)?)
    }

    pub(crate) fn change(
        &self,
        fd: BorrowedFd<'_>,
        source: Source,
        flags: EventFlags,
    ) -> io::Result<()> {
        Ok(epoll::modify(&self.0, fd, source.data(), flags)?)
    }

    /// Stops watching a descriptor. A process that is about to start keeps a closed descriptor open
    /// for a while, and its events would be taken for those of the next one.
    pub(crate) fn forget(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.0, fd);
    }

    /// Waits for events, for at most `timeout`.
    pub(crate) fn wait(
        &self,
        events: &mut Vec<Event>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        match epoll::wait(&self.0, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
impl Poll {
    /// One that can watch nothing.
    pub(crate) fn broken() -> io::Result<Poll> {
        Ok(Poll(std::fs::File::open("/dev/null")?.into()))
    }
}
