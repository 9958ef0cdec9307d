//! Any bytes from a server, cut anywhere, to a client that has requests of every kind open: no
//! panic, each request ends at most once, and no call receives more data than it expects.
//!
//! The first byte of the input chooses the cuts and whether a call is cancelled on the way. The
//! other bytes come from the server.

use farcall_idl::Scalar;
use farcall_rpc_proto::client::{Answer, Connection, Event};
use farcall_rpc_proto::{
    ArrayForm, ArrayPart, CALLBACKS, CREDIT, Call, CallId, CallbackAnswer, DIRECTORY, DataName,
    HANDLES, HandleId, Hello, JOBS, JobId, KEPT_OBJECTS, Kind, LOANS, Limits, NAMES, Name, OUTPUT,
    ObjectRequest, PARTS, ProtocolError, Pull, Put, RESERVATIONS, ReservationRequest,
    SubmitRequest, Transmit,
};
use std::collections::BTreeMap;

/// Result bytes of the calls; 60 is that of the golden call of dgesv.
const RESULTS: [u64; 3] = [60, 0, 1000];

/// Bytes of shared memory that it asks for.
const MEMORY_BYTES: u64 = 4096;

const ARRAY: HandleId = HandleId([4; 16]);
const JOB: JobId = JobId([3; 16]);
/// Bytes of the results of a durable call.
const FETCHED: u64 = 70;

struct Driver {
    proto: Connection,
    /// Open requests, with the result bytes that they still expect.
    open: BTreeMap<CallId, u64>,
    cancelled: Option<CallId>,
}

/// The body of the target.
pub fn run(data: &[u8]) {
    let Some((&choice, mut rest)) = data.split_first() else {
        return;
    };
    let mut driver = Driver::new();
    let mut cut = usize::from(choice >> 1);
    let mut turns = 0;
    while !rest.is_empty() {
        cut = (cut * 5 + 3) % 257;
        let most = if choice >> 1 == 0 {
            rest.len()
        } else {
            (cut + 1).min(rest.len())
        };
        match driver.input(&rest[..most]) {
            Some(taken) => rest = &rest[taken..],
            None => break,
        }
        turns += 1;
        if choice & 1 == 1 && turns == cut % 8 {
            driver.cancel();
        }
        driver.drain();
    }
}

fn call(result_bytes: u64) -> Call {
    Call {
        function: 7,
        scalars: vec![Some(Scalar::Int(2)), None],
        elements: vec![],
        data_bytes: result_bytes * 3,
        places: vec![],
        output: false,
        handles: vec![],
        object: None,
        reservation: None,
        trace: None,
        before: None,
    }
}

impl Driver {
    fn new() -> Driver {
        let limits = Limits {
            control_bytes: 4096,
            chunk_bytes: 64,
            grant_bytes: 128,
            calls: 32,
        };
        let mut hello = Hello::new("fuzz");
        hello.proof = Some("first".to_string());
        hello.features = CALLBACKS | OUTPUT | JOBS | HANDLES | DIRECTORY | LOANS;
        hello.features |= PARTS | CREDIT | NAMES | KEPT_OBJECTS | RESERVATIONS;
        let mut driver = Driver {
            proto: Connection::new(limits, &hello),
            open: BTreeMap::new(),
            cancelled: None,
        };
        driver.open_calls();
        driver.open_jobs();
        driver.open_arrays();
        driver.open_names();
        driver.open_others();
        driver
    }

    /// Records a request that expects this many result bytes.
    fn opened(&mut self, id: Result<CallId, ProtocolError>, result_bytes: u64) {
        self.open.insert(id.unwrap(), result_bytes);
    }

    /// Questions about functions and the server, and calls.
    fn open_calls(&mut self) {
        let id = self.proto.describe("dgesv");
        self.opened(id, 0);
        for result_bytes in RESULTS {
            let id = self.proto.call(&call(result_bytes), result_bytes);
            self.opened(id, result_bytes);
        }
        let asked = [
            self.proto.list(0),
            self.proto.estimate(&call(0)),
            self.proto.share(MEMORY_BYTES),
            self.proto.status(),
            self.proto.drain(),
        ];
        asked.into_iter().for_each(|id| self.opened(id, 0));
    }

    fn open_jobs(&mut self) {
        let submission = SubmitRequest {
            call: call(20),
            keep: None,
            fetch: None,
        };
        let asked = [
            self.proto.submit(&submission),
            self.proto.ask_job(JOB),
            self.proto.cancel_job(JOB, true),
            self.proto.list_jobs(0),
        ];
        asked.into_iter().for_each(|id| self.opened(id, 0));
        let id = self.proto.fetch(JOB, FETCHED);
        self.opened(id, FETCHED);
    }

    /// Stored arrays, and objects.
    fn open_arrays(&mut self) {
        let put = Put {
            form: ArrayForm {
                element: "char".into(),
                shape: vec![90],
                column_major: false,
            },
            data_bytes: 90,
            stays: false,
        };
        let pull = Pull {
            address: "farcall://host".into(),
            loan: ARRAY,
            form: put.form.clone(),
            stays: false,
            source: None,
        };
        let asked = [
            self.proto.put(&put),
            self.proto.ask_handle(ARRAY),
            self.proto.drop_handle(ARRAY),
            self.proto.lend(ARRAY),
            self.proto.pull(&pull),
            self.proto.list_handles(0),
            self.proto.objects(ObjectRequest::List(0)),
        ];
        asked.into_iter().for_each(|id| self.opened(id, 0));
        let part = ArrayPart {
            id: ARRAY,
            offset: 1,
            bytes: FETCHED,
        };
        let id = self.proto.get(ARRAY, FETCHED);
        self.opened(id, FETCHED);
        let id = self.proto.put_part(&part);
        self.opened(id, 0);
        let id = self.proto.get_part(&part);
        self.opened(id, FETCHED);
    }

    fn open_names(&mut self) {
        let name = Name {
            id: ARRAY,
            name: "a".into(),
            shared: false,
            after: 0,
            copy: None,
        };
        let asked = [
            self.proto.name(&name),
            self.proto.ask_name(&DataName::plain("a")),
            self.proto.list_names(None),
        ];
        asked.into_iter().for_each(|id| self.opened(id, 0));
    }

    fn open_others(&mut self) {
        let asked = [
            self.proto.create("counter"),
            self.proto.ask_directory(Kind::Find, b"f"),
            self.proto.reservations(ReservationRequest::List(0)),
            self.proto.reservations(ReservationRequest::Attach(1)),
        ];
        asked.into_iter().for_each(|id| self.opened(id, 0));
        self.proto.observe(b"o");
    }

    /// Handles input. Returns how many bytes were handled, or `None` once the connection is over.
    fn input(&mut self, bytes: &[u8]) -> Option<usize> {
        if let Some(chunk) = self.proto.incoming() {
            let count = (bytes.len() as u64).min(chunk.length);
            assert!(count > 0);
            let left = self
                .open
                .get_mut(&chunk.call)
                .expect("data of an open call");
            assert_eq!(chunk.discard, self.cancelled == Some(chunk.call));
            if !chunk.discard {
                *left = left.checked_sub(count).expect("no more than expected");
            }
            self.proto.handle_data(count);
            return Some(count as usize);
        }
        let (taken, event) = self.proto.handle_input(bytes).ok()?;
        assert!(taken <= bytes.len());
        let idle = event.is_none() && self.proto.incoming().is_none();
        assert!(taken == bytes.len() || !idle);
        if let Some(event) = event {
            self.on_event(event);
        }
        Some(taken)
    }

    fn on_event(&mut self, event: Event) {
        let id = match event {
            Event::Connected(_) => return,
            Event::Challenge(text) => return self.proto.prove(text),
            Event::Output(id, data) => {
                assert!(self.open.contains_key(&id) && self.cancelled != Some(id));
                return assert!(data.len() <= 4096);
            }
            Event::Callback(id, callback) => {
                assert!(self.open.contains_key(&id) && self.cancelled != Some(id));
                assert!(callback.data.len() <= 4096 && callback.scalars.len() <= 4096);
                // Half of them are never answered.
                if callback.index % 2 == 0 {
                    let (data, big_endian) = (callback.data, callback.big_endian);
                    self.proto.answer(id, &CallbackAnswer { data, big_endian });
                }
                return;
            }
            Event::Failed(id, _) => id,
            Event::Answered(id, answer) => {
                match answer {
                    Answer::Created => self.proto.delete(id),
                    Answer::Shared(bytes) => {
                        assert!(bytes >= MEMORY_BYTES);
                        self.proto.unshare(id);
                    }
                    Answer::Done(_) => {
                        let complete = self.open.get(&id) == Some(&0);
                        assert!(complete || self.cancelled == Some(id));
                    }
                    _ => {}
                }
                id
            }
        };
        assert!(self.open.remove(&id).is_some(), "one end for each request");
    }

    /// Cancels the last call, in any state.
    fn cancel(&mut self) {
        let call = RESULTS.len() as CallId + 1;
        if self.open.contains_key(&call) && self.cancelled.is_none() {
            match self.proto.cancel(call) {
                true => self.cancelled = Some(call),
                // It was not sent yet, so it ends here.
                false => drop(self.open.remove(&call)),
            }
        }
    }

    fn drain(&mut self) {
        let mut out = Vec::new();
        loop {
            match self.proto.poll_transmit(&mut out) {
                Transmit::Idle => break,
                Transmit::Frames => {}
                Transmit::Data(chunk) => assert!(self.open.contains_key(&chunk.call)),
            }
        }
        assert!(out.len() <= 64 << 10);
        assert_eq!(self.proto.is_idle(), self.open.is_empty());
    }
}
