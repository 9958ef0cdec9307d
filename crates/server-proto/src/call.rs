//! Active calls: one call, or one transfer of an array, on its way through the server.
//!
//! The table of states is the only place that says which state may follow which. Debug builds check
//! every change against it.

use crate::action::{Action, Actions, Segment};
use crate::arrays::Use;
use crate::gpus::Gpus;
use crate::ids::Ids;
use crate::keys::{ConnectionKey, MemoryKey, WorkerKey};
use crate::record::Record;
use crate::source::SourceRequest;
use farcall_idl::Layout;
use farcall_rpc_proto::{
    ArrayPart, Call, CallId, Direction, JobId, Made, Nanos, Piece, Pieces, Put, Side, TraceContext,
    User,
};
use farcall_schedule::Interval;
use std::rc::Rc;

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its arguments are arriving.
    Receiving,
    /// It waits for stored arrays.
    Waiting,
    /// It waits for a worker.
    Queued,
    Running {
        worker: WorkerKey,
    },
    /// Its results are being sent.
    Sending,
    /// A thread writes its buffer to the disk, or reads it, or writes an array to an address.
    OnDisk,
}

/// Running at any worker.
const RUNNING: State = State::Running {
    worker: WorkerKey::NONE,
};

/// The allowed changes of state. A call may end in every state.
const TABLE: [(State, State); 14] = {
    use State::*;
    [
        (Receiving, Waiting),
        (Receiving, Queued),
        // A durable call is submitted.
        (Receiving, OnDisk),
        // Results are fetched.
        (Receiving, Sending),
        (Waiting, Queued),
        (Waiting, Sending),
        // The array is written to an address.
        (Waiting, OnDisk),
        (OnDisk, Queued),
        // Its turn on its object has come.
        (Queued, Queued),
        (Queued, RUNNING),
        // The journal has recorded that it runs.
        (RUNNING, RUNNING),
        // Its worker has not begun with it.
        (RUNNING, Queued),
        (RUNNING, Sending),
        (RUNNING, OnDisk),
    ]
};

/// What happens to a call whose client cancels it or disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// It ends at once.
    Ends,
    /// The server takes it back from its worker, or ends the worker if it has begun.
    Withdraws,
    /// It ends after its current pieces are written. If the connection is lost, it ends at once.
    Leaves,
    /// It continues until the disk has answered, or the connector.
    Stays,
}

/// What happens to a call that is given up, by its state.
const GIVEN_UP: [(State, GivenUp); 6] = [
    (State::Receiving, GivenUp::Ends),
    (State::Waiting, GivenUp::Ends),
    (State::Queued, GivenUp::Ends),
    (RUNNING, GivenUp::Withdraws),
    (State::Sending, GivenUp::Leaves),
    (State::OnDisk, GivenUp::Stays),
];

impl State {
    /// What happens to a call in this state if its client gives it up.
    pub(crate) fn given_up(&self) -> GivenUp {
        let mut rows = GIVEN_UP.iter();
        let row = rows.find(|(state, _)| state.is_like(self));
        row.map_or(GivenUp::Ends, |(_, becomes)| *becomes)
    }

    /// Whether both are the same state, at any worker.
    fn is_like(&self, other: &State) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Whether a call may change from this state to `next`, at any worker.
    fn leads_to(&self, next: &State) -> bool {
        let mut rows = TABLE.iter();
        rows.any(|(from, to)| from.is_like(self) && to.is_like(next))
    }
}

/// The purpose of an active call.
pub(crate) enum Task {
    /// To run a function.
    Call,
    /// To receive an array that will be stored.
    Put(Put, User),
    /// To send a stored array, or the results of a durable call.
    Get,
    /// To receive a part of a stored array.
    PutPart(ArrayPart),
    /// To send a part of a stored array.
    GetPart,
    /// To write a stored array to an address outside of Farcall.
    Write(Box<SourceRequest>),
}

/// Whether a call is durable.
pub(crate) enum Durability {
    /// It ends with its connection.
    None,
    /// It is being submitted.
    Submitting(Box<Record>, User),
    /// The journal has its record, or gets it while the call runs.
    Recorded(JobId),
}

/// One call on its way through the server.
pub(crate) struct ActiveCall {
    pub(crate) user: User,
    /// The connection of its client; `None` after the client has disconnected.
    pub(crate) connection: Option<ConnectionKey>,
    pub(crate) id: CallId,
    /// Number of the function in the table.
    pub(crate) function: u64,
    /// The encoded call, for the worker.
    pub(crate) message: Vec<u8>,
    pub(crate) layout: Layout,
    pub(crate) memory: CallMemory,
    pub(crate) state: State,
    pub(crate) run: Run,
    /// Set if the client wants the function's output.
    pub(crate) printing: Option<Printing>,
    pub(crate) durability: Durability,
    pub(crate) task: Task,
    /// The stored arrays that it uses.
    pub(crate) uses: Vec<Use>,
    pub(crate) times: Times,
    pub(crate) streams: Streams,
}

/// The memory of a call.
#[derive(Debug, Default)]
pub(crate) struct CallMemory {
    pub(crate) buffer: Option<MemoryKey>,
    /// Shared memory segments with arrays of the call.
    pub(crate) segments: Vec<Rc<Segment>>,
    /// Memory of the stored arrays that it uses, when its turn has come.
    pub(crate) data: Vec<MemoryKey>,
}

/// Where and how a call computes.
#[derive(Debug)]
pub(crate) struct Run {
    /// Processor elements of the call, when it may start.
    pub(crate) pes: u32,
    /// GPUs of the call, when it may start and they are free.
    pub(crate) gpus: Gpus,
    /// The worker of the object, if the call is of a method.
    pub(crate) object: Option<WorkerKey>,
    /// The reservation whose processor elements it uses.
    pub(crate) reservation: Option<u64>,
    /// Whether that reservation was made for its deadline.
    pub(crate) is_promised: bool,
    /// Whether a worker died that should have run it next.
    pub(crate) again: bool,
    /// Whether no other call may share its worker.
    pub(crate) alone: bool,
    /// What has computed it, once it has been computed.
    pub(crate) made: Option<Made>,
    /// Seconds in the library, as predicted when it was queued.
    pub(crate) predicted: Option<f64>,
    /// Where four of five such calls end, if calls are recorded.
    pub(crate) range: Option<Interval>,
    /// Whether the record of calls has it.
    pub(crate) is_noted: bool,
    /// Whether the audit log has it.
    pub(crate) is_audited: bool,
    /// The span that has caused it.
    pub(crate) cause: Option<TraceContext>,
    /// Its place in its trace, if the shell wants its spans.
    pub(crate) traced: Option<Traced>,
}

/// The place of a call in its trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traced {
    /// The span that has caused the call, at the client.
    pub(crate) parent: [u8; 8],
    /// The span of its computation, which the worker gets.
    pub(crate) context: TraceContext,
}

/// The arguments and results of a call while they travel.
#[derive(Debug)]
pub(crate) struct Streams {
    incoming: Pieces,
    /// Argument bytes that have arrived.
    pub(crate) arrived: u64,
    outgoing: Pieces,
    /// Whether the arguments arrived in the other byte order.
    pub(crate) swap: bool,
    /// When arguments last arrived, or when the results began to leave.
    pub(crate) moved: Nanos,
}

/// When a call entered each of its states so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// The server received the request.
    pub(crate) asked: Nanos,
    /// The server accepted the call.
    pub(crate) accepted: Nanos,
    /// All arguments had arrived.
    pub(crate) queued: Nanos,
    /// A worker got it.
    pub(crate) started: Nanos,
    /// The worker finished.
    pub(crate) ended: Nanos,
    /// Time in the library.
    pub(crate) exec: Nanos,
}

/// How much output of a function may still be sent to its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printing {
    budget: u64,
    since: Nanos,
    /// Bytes that were left out.
    left_out: u64,
}

impl Printing {
    /// Bytes per second, and the largest burst in bytes.
    const RATE: u64 = 1_000_000;

    pub(crate) fn new(now: Nanos) -> Printing {
        Printing {
            budget: Printing::RATE,
            since: now,
            left_out: 0,
        }
    }

    /// How many of these bytes may be sent; none while the client does not read.
    pub(crate) fn allow(&mut self, bytes: usize, reads: bool, now: Nanos) -> usize {
        let elapsed = now.saturating_sub(self.since) as f64 * 1e-9;
        self.since = now;
        let earned = (elapsed.min(1.0) * Printing::RATE as f64) as u64;
        self.budget = (self.budget + earned).min(Printing::RATE);
        let allowed = match reads {
            true => (bytes as u64).min(self.budget),
            false => 0,
        };
        self.budget -= allowed;
        self.left_out += bytes as u64 - allowed;
        allowed as usize
    }

    /// A remark at the end about output that was left out.
    pub(crate) fn remark(&self) -> Option<String> {
        let bytes = self.left_out;
        (bytes > 0).then(|| format!("[farcall: {bytes} bytes of output were left out]\n"))
    }
}

impl ActiveCall {
    /// A call of the function with this number.
    pub(crate) fn new(
        user: User,
        client: Option<(ConnectionKey, CallId)>,
        function: u64,
        message: Vec<u8>,
        layout: Layout,
    ) -> ActiveCall {
        let streams = Streams {
            incoming: Pieces::new(&layout, Direction::Sent, Side::Buffer),
            arrived: 0,
            outgoing: Pieces::new(&layout, Direction::Returned, Side::Buffer),
            swap: false,
            moved: 0,
        };
        ActiveCall {
            user,
            connection: client.map(|(connection, _)| connection),
            id: client.map_or(0, |(_, id)| id),
            function,
            message,
            layout,
            memory: CallMemory::default(),
            state: State::Receiving,
            run: Run {
                pes: 0,
                gpus: Gpus::default(),
                object: None,
                reservation: None,
                is_promised: false,
                again: false,
                alone: true,
                made: None,
                predicted: None,
                range: None,
                is_noted: false,
                is_audited: false,
                cause: None,
                traced: None,
            },
            printing: None,
            durability: Durability::None,
            task: Task::Call,
            uses: Vec::new(),
            times: Times::default(),
            streams,
        }
    }

    /// A transfer of one piece at the start of its memory.
    fn of_one_piece(user: User, client: (ConnectionKey, CallId), bytes: u64) -> ActiveCall {
        let layout = Layout {
            arrays: Vec::new(),
            bytes,
            cost: None,
            processor_elements: None,
            fewest_elements: None,
        };
        ActiveCall::new(user, Some(client), 0, Vec::new(), layout)
    }

    /// The delivery of a durable call's results to a client.
    pub(crate) fn delivery(
        user: User,
        client: (ConnectionKey, CallId),
        bytes: u64,
        buffer: MemoryKey,
        now: Nanos,
    ) -> ActiveCall {
        let mut call = ActiveCall::of_one_piece(user, client, bytes);
        call.memory.buffer = Some(buffer);
        call.streams.outgoing = Pieces::whole(bytes);
        call.task = Task::Get;
        call.begin_sending(now);
        call
    }

    /// The arrival of an array that will be stored.
    pub(crate) fn put(
        client: (ConnectionKey, CallId),
        put: Put,
        user: User,
        buffer: MemoryKey,
        now: Nanos,
    ) -> ActiveCall {
        let mut call = ActiveCall::of_one_piece(user.clone(), client, put.data_bytes);
        call.times.accepted = now;
        call.memory.buffer = Some(buffer);
        call.streams.incoming = Pieces::whole(put.data_bytes);
        call.task = Task::Put(put, user);
        call
    }

    /// The sending of a stored array, when its turn has come.
    pub(crate) fn get(
        user: User,
        client: (ConnectionKey, CallId),
        bytes: u64,
        of: Use,
        now: Nanos,
    ) -> ActiveCall {
        let mut call = ActiveCall::of_one_piece(user, client, bytes);
        call.times.accepted = now;
        call.streams.outgoing = Pieces::whole(bytes);
        call.task = Task::Get;
        call.uses.push(of);
        call
    }

    /// The writing of a stored array to an address, when its turn has come.
    pub(crate) fn write(
        user: User,
        client: (ConnectionKey, CallId),
        wanted: SourceRequest,
        of: Use,
        now: Nanos,
    ) -> ActiveCall {
        let mut call = ActiveCall::of_one_piece(user, client, 0);
        call.times.accepted = now;
        call.task = Task::Write(Box::new(wanted));
        call.uses.push(of);
        call
    }

    /// The arrival or sending of a part of a stored array.
    pub(crate) fn part(
        user: User,
        client: (ConnectionKey, CallId),
        part: ArrayPart,
        of: Use,
        task: Task,
    ) -> ActiveCall {
        let mut call = ActiveCall::of_one_piece(user, client, part.bytes);
        call.streams.incoming = Pieces::part(part.offset, part.bytes);
        call.streams.outgoing = call.streams.incoming.clone();
        call.task = task;
        call.uses.push(of);
        call
    }

    /// Gives the computation a span of its own, if the call belongs to a trace whose spans are
    /// wanted. The worker gets that span in place of the client's.
    pub(crate) fn join_trace(&mut self, ids: &mut Ids) {
        if self.run.traced.is_some() {
            return;
        }
        let Ok(mut request) = Call::decode(&self.message) else {
            return;
        };
        let Some(of) = request.trace.filter(TraceContext::is_sampled) else {
            return;
        };
        let [id @ .., _, _, _, _, _, _, _, _] = ids.next();
        let context = of.under(id);
        request.trace = Some(context);
        self.message.clear();
        request.encode(&mut self.message);
        let parent = of.span();
        self.run.traced = Some(Traced { parent, context });
    }

    /// Changes the state.
    pub(crate) fn enter(&mut self, state: State) {
        debug_assert!(
            self.state.leads_to(&state),
            "{:?} does not lead to {state:?}",
            self.state
        );
        self.state = state;
    }

    /// Its results begin to leave.
    pub(crate) fn begin_sending(&mut self, now: Nanos) {
        self.enter(State::Sending);
        self.streams.moved = now;
    }

    /// The job id, if the call is durable and recorded.
    pub(crate) fn job_id(&self) -> Option<JobId> {
        match self.durability {
            Durability::Recorded(id) => Some(id),
            Durability::None | Durability::Submitting(..) => None,
        }
    }

    /// Zeroes the arrays of which only a section arrives, so that the rest does not hold bytes of
    /// an earlier call.
    pub(crate) fn clear_gaps(&self, out: &mut Actions) {
        let Some(memory) = self.memory.buffer else {
            return;
        };
        let arrays = self.layout.travelling();
        for array in arrays.filter(|array| array.wire_bytes < array.bytes) {
            out.push(Action::ClearMemory {
                memory,
                offset: array.offset,
                bytes: array.bytes,
            });
        }
    }

    /// The next part of the argument stream, at most `most` bytes.
    pub(crate) fn next_incoming(&mut self, most: u64) -> Option<Piece> {
        let piece = self.streams.incoming.take(most)?;
        self.streams.arrived += piece.length;
        Some(piece)
    }

    /// The next part of the result stream, at most `most` bytes.
    pub(crate) fn next_outgoing(&mut self, most: u64) -> Option<Piece> {
        self.streams.outgoing.take(most)
    }

    /// The memory of its streams.
    pub(crate) fn memory(&self) -> Option<MemoryKey> {
        self.memory.buffer.or(self.memory.data.first().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_has_a_rate() {
        let mut now = 1;
        let mut printing = Printing::new(now);
        assert_eq!(printing.allow(700_000, true, now), 700_000);
        assert_eq!(printing.allow(700_000, true, now), 300_000);
        now += 100_000_000;
        let allowed = printing.allow(700_000, true, now);
        assert!((99_000..=101_000).contains(&allowed));
        now += 3_600_000_000_000;
        assert_eq!(printing.allow(10, false, now), 0, "nobody reads");
        assert_eq!(printing.allow(2_000_000, true, now), 1_000_000);
        assert!(printing.remark().unwrap().contains("bytes of output"));
    }

    #[test]
    fn every_state_is_reached_once_and_all_but_the_last_lead_on() {
        let all = GIVEN_UP.map(|(state, _)| state);
        for (index, state) in all.iter().enumerate() {
            let others = &all[index + 1..];
            assert!(!others.iter().any(|other| other.is_like(state)));
        }
        for state in all {
            let is_reached = all.iter().any(|from| from.leads_to(&state));
            assert_eq!(is_reached, state != State::Receiving, "{state:?}");
            let leads_on = all.iter().any(|to| state.leads_to(to));
            assert_eq!(leads_on, state != State::Sending, "{state:?}");
        }
        for (index, row) in TABLE.iter().enumerate() {
            assert!(!TABLE[index + 1..].contains(row), "{row:?} is there twice");
        }
    }
}
