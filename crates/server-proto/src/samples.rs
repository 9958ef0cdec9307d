//! Durable records and calls, as tests need them. Each test changes what matters to it.

use crate::record::{Record, Stored};
use farcall_idl::Scalar;
use farcall_rpc_proto::{Call, DurableState, JobId};

/// The record of a call that waits.
pub(crate) fn queued(id: JobId, user: &str, name: &str, interface: &str) -> Record {
    Record {
        number: 0,
        id,
        user: user.into(),
        interface: interface.into(),
        repeatable: name != "once",
        function: name.into(),
        call: Vec::new(),
        big_endian: false,
        state: DurableState::Queued,
        submitted: 0,
        started: None,
        ended: None,
        kept_from: None,
        keep: 1,
        arguments: Stored::default(),
        result: Stored::default(),
        made: None,
        exec: None,
        failure: None,
    }
}

/// A call with these scalars and without data.
pub(crate) fn call_of(function: u64, scalars: Vec<Option<Scalar>>) -> Call {
    Call {
        function,
        scalars,
        elements: vec![],
        data_bytes: 0,
        places: vec![],
        output: false,
        handles: vec![],
        object: None,
        reservation: None,
        trace: None,
        before: None,
    }
}
