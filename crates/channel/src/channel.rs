//! The [`Channel`]: how a process of a gang job sends and receives messages. `ring` and `segment`
//! have the shared memory, and `engine` carries messages to other nodes. Messages between two
//! processes arrive in order, each exactly once.

use crate::context::{Wait, Waiting};
use crate::error::{ChannelError, Corrupt};
use crate::layout::REMOTE;
use crate::membership::{MEMBERSHIP, Membership};
use crate::message::{Arrival, Message, Outgoing};
use crate::polling::Wanted;
use crate::process::Process;
use crate::ring::{Consumer, Producer, Record};
use crate::segment::Segment;
use farcall_channel_proto::saved::Arrays;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

mod parts;

/// How often a waiting process with a processor of its own checks again before it sleeps.
const SPINS: u32 = 4000;
/// Messages of one rank after which those of other ranks have their turn.
const IN_ROW: u32 = 64;

/// The longest sleep of a process that can be interrupted: a signal may have arrived just before
/// it.
const LOOK: Duration = Duration::from_millis(50);

/// The end of one channel at one process. Messages between two processes arrive in order, each
/// exactly once, even if the gang job is preempted.
pub struct Channel {
    segment: Arc<Segment>,
    bell: Option<Arc<OwnedFd>>,
    number: usize,
    rank: usize,
    place: usize,
    inbound: Vec<Consumer>,
    outbound: Vec<Producer>,
    /// The last known count of what each rank took out of its FIFO. For a rank on another node, the
    /// count of what the engine took out of the send FIFO.
    seen: Vec<u64>,
    /// The rank at which the next search for a message begins.
    turn: usize,
    /// Messages of that rank that were received one after the other.
    in_row: u32,
    /// Whether space was given back without a fence and a check for processes that wait for it.
    has_given: bool,
    interrupt: Option<fn() -> bool>,
    /// Whether an operation stopped in the middle of a message or of a collective operation, so
    /// that the channel is unusable.
    pub(crate) is_cut: bool,
    /// The process that has opened it.
    process: Process,
    /// The channel for the collective operations.
    pub(crate) twin: Option<Box<Channel>>,
    /// The memory for the state of this process.
    state: Option<Arc<File>>,
    /// The steps of the program, if it has registered its state.
    pub(crate) steps: Option<Arrays>,
}

impl Channel {
    /// Opens the first channel of the gang job.
    pub fn open() -> Result<Channel, ChannelError> {
        Channel::open_number(0)
    }

    /// Opens the channel with this number.
    pub fn open_number(number: u8) -> Result<Channel, ChannelError> {
        let membership = MEMBERSHIP.get_or_init(Membership::find).as_ref();
        let membership = membership.map_err(|missing| ChannelError::from(*missing))?;
        if !membership.process.is_this() {
            return Err(ChannelError::Forked);
        }
        let channels = membership.segment.shape().channels;
        if number >= channels {
            return Err(ChannelError::NoChannel {
                channel: number,
                channels,
            });
        }
        let bit = 1 << number;
        // Pairs with the close: another thread may have had the channel before.
        if membership.open.fetch_or(bit, Ordering::Acquire) & bit != 0 {
            return Err(ChannelError::Open(number));
        }
        let make = |number| {
            Channel::new(
                membership.segment.clone(),
                Some(membership.bell.clone()),
                membership.rank.into(),
                number,
            )
        };
        let mut channel = make(number.into())?;
        channel.state.clone_from(&membership.state);
        channel.twin = Some(Box::new(make(usize::from(number + channels))?));
        Ok(channel)
    }

    /// Opens the channels of a rank in a segment of this process, for tests and measurements. Each
    /// ring must have at most one such end.
    #[doc(hidden)]
    pub fn attach(
        segment: Arc<Segment>,
        bell: Option<OwnedFd>,
        rank: usize,
    ) -> Result<Channel, ChannelError> {
        let twin = usize::from(segment.shape().channels);
        let bell = bell.map(Arc::new);
        let mut channel = Channel::new(segment.clone(), bell.clone(), rank, 0)?;
        let state = segment.state().map(File::try_clone);
        channel.state = state.transpose()?.map(Arc::new);
        channel.twin = Some(Box::new(Channel::new(segment, bell, rank, twin)?));
        Ok(channel)
    }

    fn new(
        segment: Arc<Segment>,
        bell: Option<Arc<OwnedFd>>,
        rank: usize,
        number: usize,
    ) -> Result<Channel, ChannelError> {
        let layout = &segment.layout;
        let place = layout.place.get(rank).copied().unwrap_or(REMOTE);
        if place == REMOTE {
            return Err(Corrupt.into());
        }
        let place = usize::from(place);
        let size = usize::from(layout.shape.size);
        let inbound = (0..size).map(|source| {
            // SAFETY: the channel keeps the segment; channels open once, so each end is the only
            // one.
            unsafe { segment.consumer(layout.inbound(number, place, source)) }
        });
        let outbound = (0..size).map(|target| {
            let ring = match layout.place[target] {
                REMOTE => layout.outbound(number, place, layout.remote[target].into()),
                local => layout.inbound(number, local.into(), rank),
            };
            // SAFETY: as above.
            unsafe { segment.producer(ring) }
        });
        let (inbound, outbound) = (inbound.collect(), outbound.collect());
        Ok(Channel {
            inbound,
            outbound,
            segment,
            bell,
            number,
            rank,
            place,
            seen: vec![0; size],
            turn: 0,
            in_row: 0,
            has_given: false,
            interrupt: None,
            is_cut: false,
            process: Process::this(),
            twin: None,
            state: None,
            steps: None,
        })
    }

    /// Sets a function that is called from time to time during a sleep. If it returns true, the
    /// operation ends with [`ChannelError::Interrupted`]. Bindings use it to react to signals.
    pub fn set_interrupt(&mut self, interrupt: fn() -> bool) {
        self.interrupt = Some(interrupt);
        if let Some(twin) = &mut self.twin {
            twin.set_interrupt(interrupt);
        }
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupt.is_some_and(|interrupt| interrupt())
    }

    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The place of this process among those of its node.
    pub(crate) fn place(&self) -> usize {
        self.place
    }

    /// Says what this process looks for, for those who judge the state of the gang job: each of
    /// `wanted` lets it go on, and so does something else if `has_others` is true. It holds until
    /// the next call. Say nothing (`&[]`, `false`) as soon as this may have changed.
    pub fn say_wanted(&mut self, wanted: &[Wanted], has_others: bool) {
        let element = self.segment.element(self.number, self.place);
        element.said.say(wanted, has_others);
    }

    /// Says how often this process has looked for what it wants and found nothing, in all.
    pub fn say_polls(&mut self, polls: u64) {
        let element = self.segment.element(self.number, self.place);
        element.said.say_polls(polls);
    }

    pub(crate) fn state_memory(&self) -> std::io::Result<Arc<File>> {
        let missing = || {
            std::io::Error::other("the gang daemon is of an earlier version, without checkpoints")
        };
        self.state.clone().ok_or_else(missing)
    }

    /// The rank of this process, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of processes of the gang job.
    pub fn size(&self) -> usize {
        self.outbound.len()
    }

    /// Whether the process of a rank runs on this node.
    pub fn is_local(&self, rank: usize) -> bool {
        let place = self.segment.layout.place.get(rank);
        place.is_some_and(|place| *place != REMOTE)
    }

    /// Length of the longest message that [`Channel::try_send`] accepts.
    pub fn eager_bytes(&self) -> usize {
        let shape = self.segment.shape();
        let fifo = shape.send.bytes.min(shape.receive.bytes) as usize;
        let part = self.segment.layout.part_bytes();
        fifo / 2 / (part + 8) * part
    }

    /// Sends a message and returns as soon as it is in the FIFO; the receiver might not have
    /// received it yet. A message longer than [`Channel::eager_bytes`] also waits until the
    /// receiver takes its first parts. Two processes that send such messages to each other at the
    /// same time must use [`Channel::exchange`].
    pub fn send(&mut self, target: usize, bytes: &[u8]) -> Result<(), ChannelError> {
        let mut transfer = self.outgoing(target, bytes)?;
        let done = self.wait(Wait::Send(target), |channel| {
            Ok(channel.push(&mut transfer)?.then_some(()))
        });
        self.is_cut |= done.is_err() && transfer.bytes.len() < bytes.len();
        done
    }

    /// Sends a message if it fits into the FIFO now. Returns whether it was sent.
    pub fn try_send(&mut self, target: usize, bytes: &[u8]) -> Result<bool, ChannelError> {
        self.try_send_parts(target, &[], bytes)
    }

    /// Receives a message from one rank, or from any rank, into `buffer`, and sleeps until there is
    /// one. A message that is too long for the buffer stays in the FIFO and causes an error.
    pub fn receive(
        &mut self,
        source: Option<usize>,
        buffer: &mut [u8],
    ) -> Result<Message, ChannelError> {
        let wait = self.waits_for(source)?;
        let message = self.wait(wait, |channel| channel.poll(source))?;
        let mut arrival = Arrival::new(message, buffer)?;
        self.wait_for_rest(&mut arrival)?;
        Ok(message)
    }

    /// Receives the parts of a message that are missing, and sleeps until they are there.
    #[inline]
    fn wait_for_rest(&mut self, arrival: &mut Arrival<'_>) -> Result<(), ChannelError> {
        let done = self.wait(Wait::Receive(arrival.source), |channel| {
            Ok(channel.pull(arrival)?.then_some(()))
        });
        self.is_cut |= done.is_err() && arrival.filled > 0;
        done
    }

    /// Receives a message of any length.
    pub fn receive_vec(&mut self, source: Option<usize>) -> Result<(usize, Vec<u8>), ChannelError> {
        let wait = self.waits_for(source)?;
        let message = self.wait(wait, |channel| channel.poll(source))?;
        let mut bytes = vec![0; message.bytes];
        self.receive(Some(message.source), &mut bytes)?;
        Ok((message.source, bytes))
    }

    /// Receives a message if there is one.
    pub fn try_receive(
        &mut self,
        source: Option<usize>,
        buffer: &mut [u8],
    ) -> Result<Option<Message>, ChannelError> {
        let Some(message) = self.poll(source)? else {
            return Ok(None);
        };
        let mut arrival = Arrival::new(message, buffer)?;
        // Mostly the whole message is there.
        if !self.pull(&mut arrival)? {
            self.wait_for_rest(&mut arrival)?;
        }
        Ok(Some(message))
    }

    /// The message that would be received next, if there is one.
    pub fn poll(&mut self, source: Option<usize>) -> Result<Option<Message>, ChannelError> {
        self.waits_for(source)?;
        let found = self.find(source)?;
        Ok(found.map(|(source, record)| Message::of(source, record)))
    }

    /// Sends one message and receives another at the same time, each of any length.
    pub fn exchange(
        &mut self,
        target: usize,
        bytes: &[u8],
        source: usize,
        buffer: &mut [u8],
    ) -> Result<Message, ChannelError> {
        let mut outgoing = self.outgoing(target, bytes)?;
        self.waits_for(Some(source))?;
        let (mut arrival, mut buffer) = (None, Some(buffer));
        let done: Result<Result<Arrival<'_>, _>, ChannelError> =
            self.wait(Wait::Exchange { source, target }, |channel| {
                let left = |outgoing: &Outgoing<'_>, arrival: &Option<Result<Arrival<'_>, _>>| {
                    let filled = arrival.as_ref().and_then(|arrival| arrival.as_ref().ok());
                    (outgoing.bytes.len(), filled.map(|arrival| arrival.filled))
                };
                loop {
                    let before = left(&outgoing, &arrival);
                    let sent = channel.push(&mut outgoing)?;
                    if let (None, Some((_, record))) = (&arrival, channel.find(Some(source))?)
                        && let Some(buffer) = buffer.take()
                    {
                        arrival = Some(Arrival::new(Message::of(source, record), buffer));
                    }
                    let received = match &mut arrival {
                        None => false,
                        Some(Ok(arrival)) => channel.pull(arrival)?,
                        // A half-sent message must be completed before the error is returned.
                        Some(Err(_)) => true,
                    };
                    if sent && received {
                        return Ok(arrival.take());
                    }
                    // If a process sends to itself, receiving may have made space for more.
                    if left(&outgoing, &arrival) == before {
                        return Ok(None);
                    }
                }
            });
        // An empty message has no part that is missing: it is done, or it has not begun.
        let is_sent = outgoing.is_done || outgoing.bytes.len() < bytes.len();
        let is_received = match &arrival {
            Some(Ok(arrival)) => arrival.is_done || arrival.filled > 0,
            _ => false,
        };
        self.is_cut |= done.is_err() && (is_sent || is_received);
        done?.map(|arrival| Message {
            source,
            bytes: arrival.filled,
        })
    }

    #[inline]
    fn waits_for(&self, source: Option<usize>) -> Result<Wait, ChannelError> {
        self.check_whole()?;
        match source {
            None => Ok(Wait::ReceiveAny),
            Some(rank) if rank < self.size() => Ok(Wait::Receive(rank)),
            Some(rank) => Err(self.no_rank(rank)),
        }
    }

    fn check_whole(&self) -> Result<(), ChannelError> {
        match (self.is_cut, self.process.is_this()) {
            (_, false) => Err(ChannelError::Forked),
            (true, true) => Err(ChannelError::Cut),
            (false, true) => Ok(()),
        }
    }

    fn no_rank(&self, rank: usize) -> ChannelError {
        ChannelError::Rank {
            rank,
            size: self.size(),
        }
    }

    #[inline]
    fn outgoing<'a>(&self, target: usize, bytes: &'a [u8]) -> Result<Outgoing<'a>, ChannelError> {
        self.check_whole()?;
        if target >= self.size() {
            return Err(self.no_rank(target));
        }
        let partitions = &self.segment.shape().partitions;
        if partitions[target] != partitions[self.rank] {
            return Err(ChannelError::Partition(target));
        }
        if u32::try_from(bytes.len()).is_err() {
            return Err(ChannelError::TooLarge(bytes.len()));
        }
        Ok(Outgoing {
            target,
            head: &[],
            bytes,
            is_done: false,
        })
    }

    /// Takes credit for records to a rank.
    #[inline]
    fn reserve(&mut self, target: usize, records: u64, span: u64) -> Result<bool, Corrupt> {
        let shape = self.segment.shape();
        let place = self.segment.layout.place[target];
        let (credit, fifo) = if place == REMOTE {
            let element = self.segment.element(self.number, self.place);
            (&element.outbound, shape.send)
        } else {
            let element = self.segment.element(self.number, place.into());
            (&element.inbound, shape.receive)
        };
        if credit.reserve(&mut self.seen[target], fifo, records, span) {
            return Ok(true);
        }
        Ok(self.outbound[target].is_empty()? && credit.force(records, span))
    }

    /// Writes as much of a message into its ring as fits. Returns true when the whole message is
    /// written.
    fn push(&mut self, transfer: &mut Outgoing<'_>) -> Result<bool, Corrupt> {
        let (target, part) = (transfer.target, self.segment.layout.part_bytes());
        let mut moved = false;
        while !transfer.is_done {
            let span = Record::span(transfer.next(part) as u32);
            if !self.outbound[target].has_space(span)? || !self.reserve(target, 1, span)? {
                break;
            }
            // Publishes each part at once, so that an awake receiver copies it during the write of
            // the next part.
            transfer.put(part, &mut self.outbound[target]);
            self.outbound[target].publish();
            moved = true;
        }
        if moved {
            self.announce(target);
        }
        Ok(transfer.is_done)
    }

    /// Publishes the records written for a rank, and wakes the process or the engine that takes
    /// them.
    #[inline]
    fn announce(&mut self, target: usize) {
        self.outbound[target].publish();
        match self.segment.layout.place[target] {
            REMOTE => {
                if self.segment.take_engine_asleep()
                    && let Some(bell) = &self.bell
                {
                    // The engine's counter. The write can fail only if the counter is already at
                    // its maximum.
                    let _ = rustix::io::write(&**bell, &1u64.to_ne_bytes());
                }
            }
            place => {
                let element = self.segment.element(self.number, place.into());
                element.bell.0.ring();
            }
        }
    }

    /// The first record of the message that would be received next, and its source.
    #[inline]
    fn find(&mut self, source: Option<usize>) -> Result<Option<(usize, Record)>, Corrupt> {
        if let Some(source) = source {
            let record = self.inbound[source].peek()?;
            return Ok(record.map(|record| (source, record)));
        }
        let mut source = self.turn;
        // The next message mostly comes from there too.
        self.inbound[source].expect();
        for _ in 0..self.inbound.len() {
            if let Some(record) = self.inbound[source].peek()? {
                if self.turn != source {
                    (self.turn, self.in_row) = (source, 0);
                }
                return Ok(Some((source, record)));
            }
            source += 1;
            if source == self.inbound.len() {
                source = 0;
            }
        }
        Ok(None)
    }

    /// Reads the available parts of a message. Returns true when the message is complete.
    #[inline]
    fn pull(&mut self, arrival: &mut Arrival<'_>) -> Result<bool, Corrupt> {
        while !arrival.is_done {
            let source = arrival.source;
            let Some(record) = self.inbound[source].peek()? else {
                return Ok(false);
            };
            let (bytes, rest) = (record.bytes as usize, record.rest as usize);
            if bytes + rest != arrival.missing() {
                return Err(Corrupt);
            }
            let (head, target) = arrival.places(bytes);
            self.inbound[source].read_parts(record, head, target);
            arrival.filled += bytes;
            arrival.is_done = rest == 0;
            self.give_back(source, Record::span(record.bytes), arrival.is_done);
        }
        Ok(true)
    }

    /// Gives back the space of what was read at once, so that other processes see the free space
    /// whatever this process does next.
    #[inline]
    fn give_back(&mut self, source: usize, span: u64, is_last: bool) {
        self.inbound[source].release();
        let element = self.segment.element(self.number, self.place);
        element.inbound.give_back(1, span);
        // Between the parts of a message, this check without a fence may come too early. Another
        // check follows at the end of the message or before this process sleeps.
        self.has_given = true;
        if is_last || element.bell.0.room_waiters.load(Ordering::Relaxed) != 0 {
            self.wake_for_room();
        }
        if is_last && source == self.turn {
            self.count_turn();
        }
    }

    /// Counts a message of the rank whose turn it is. A rank that always has messages does not
    /// keep those of others waiting.
    #[inline]
    fn count_turn(&mut self) {
        self.in_row += 1;
        if self.in_row == IN_ROW {
            (self.turn, self.in_row) = ((self.turn + 1) % self.inbound.len(), 0);
        }
    }

    /// Wakes the processes that wait until this one takes something out of its FIFO.
    #[inline]
    fn wake_for_room(&mut self) {
        self.has_given = false;
        std::sync::atomic::fence(Ordering::SeqCst);
        let element = self.segment.element(self.number, self.place);
        if element.bell.0.room_waiters.load(Ordering::Relaxed) == 0 {
            return;
        }
        for (place, source) in self.segment.shape().locals.iter().enumerate() {
            if self.inbound[usize::from(*source)].wants_room() {
                self.segment.element(self.number, place).bell.0.ring();
            }
        }
    }

    /// Repeats `attempt` until it returns a value. It spins first, if that is allowed, and then
    /// sleeps until this process's bell is rung.
    #[inline]
    fn wait<T>(
        &mut self,
        wait: Wait,
        mut attempt: impl FnMut(&mut Channel) -> Result<Option<T>, ChannelError>,
    ) -> Result<T, ChannelError> {
        match attempt(self)? {
            Some(done) => Ok(done),
            None => self.wait_long(wait, attempt),
        }
    }

    #[inline(never)]
    fn wait_long<T>(
        &mut self,
        wait: Wait,
        mut attempt: impl FnMut(&mut Channel) -> Result<Option<T>, ChannelError>,
    ) -> Result<T, ChannelError> {
        if self.segment.shape().spin {
            for _ in 0..SPINS {
                std::hint::spin_loop();
                if let Some(done) = attempt(self)? {
                    return Ok(done);
                }
            }
        }
        let segment = self.segment.clone();
        let element = segment.element(self.number, self.place);
        let room = self.wants_room(wait);
        let done = loop {
            let seen = element.bell.0.prepare();
            match attempt(self) {
                Ok(None) => {}
                Ok(Some(done)) => break Ok(done),
                Err(error) => break Err(error),
            }
            // Wake others only if space was given back. Otherwise two processes could wake each
            // other forever.
            if self.has_given {
                self.wake_for_room();
            }
            element.say_waiting(Waiting::encode(wait), seen);
            element.bell.0.sleep(seen, self.interrupt.map(|_| LOOK));
            if self.interrupt.is_some_and(|interrupt| interrupt()) {
                // The other ranks would continue a collective operation that this one left: cut its
                // channel.
                self.is_cut |= self.twin.is_none();
                break Err(ChannelError::Interrupted);
            }
        };
        element.bell.0.finish();
        element.say_running();
        if let Some(target) = room {
            self.set_wants_room(target, false);
        }
        done
    }

    /// Announces that a send waits for space.
    fn wants_room(&self, wait: Wait) -> Option<usize> {
        let target = match wait {
            Wait::Send(target) | Wait::Exchange { target, .. } => target,
            Wait::ReceiveAny | Wait::Receive(_) => return None,
        };
        self.set_wants_room(target, true);
        Some(target)
    }

    fn set_wants_room(&self, target: usize, wants: bool) {
        self.outbound[target].set_wants_room(wants);
        let place = self.segment.layout.place[target];
        if place != REMOTE {
            let element = self.segment.element(self.number, place.into());
            let waiters = &element.bell.0.room_waiters;
            match wants {
                true => waiters.fetch_add(1, Ordering::SeqCst),
                false => waiters.fetch_sub(1, Ordering::SeqCst),
            };
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let (Some(_), Some(Ok(membership))) = (&self.twin, MEMBERSHIP.get())
            && self.bell.is_some()
        {
            membership
                .open
                .fetch_and(!(1 << self.number), Ordering::Release);
        }
    }
}
