//! The golden case of durable calls. It has every request about them: submit, ask, fetch, list and
//! forget.

use super::calls::{DGESV, dgesv_values};
use super::{Answer, Case, Elements, Request, case};
use farcall_rpc_proto::{
    DurableDescription, DurablePage, DurableRecord, DurableState, Failure, FailureKind, JOBS,
    JobId, SubmitRequest,
};

const JOB: JobId = JobId(*b"0123456789abcdef");

pub(super) fn jobs() -> Case {
    let about = "Submits the call of dgesv to be kept for an hour, asks about it, fetches what it\n\
                 has come to, lists the calls there are, and has it forgotten. Bit 8 of the\n\
                 features says that both sides have durable calls.";
    let (call, data) = dgesv_values();
    let id = JOB;
    let record = job_record();
    let queued = DurableRecord {
        state: DurableState::Queued,
        started: None,
        ended: None,
        expires: None,
        ..record.clone()
    };
    let failed = DurableRecord {
        id: JobId(*b"fedcba9876543210"),
        number: 8,
        state: DurableState::Failed,
        failure: Some(Failure::new(FailureKind::OutcomeUnknown, "outcome unknown")),
        ..record.clone()
    };
    let (submitted, keep) = (call.clone(), Some(3600));
    let described = DurableDescription {
        record: queued,
        call: Some((DGESV.to_string(), call.clone())),
    };
    let forgotten = DurableDescription {
        record: record.clone(),
        call: None,
    };
    let page = DurablePage {
        jobs: vec![record, failed],
        next: Some(8),
    };
    let result = vec![
        Elements::Doubles(vec![2.0, 0.5, 1.0, 2.5]),
        Elements::Ints(vec![1, 2]),
        Elements::Doubles(vec![1.0, 2.0]),
        Elements::Ints(vec![0]),
    ];
    let submission = SubmitRequest {
        call: submitted,
        keep,
        fetch: None,
    };
    let exchanges = vec![
        (Request::Submit(submission, data), Answer::Submitted(id)),
        (Request::AskJob(id), Answer::Job(Box::new(described))),
        (Request::Fetch(id, 60), Answer::Delivered(result)),
        (Request::ListJobs(6), Answer::Jobs(page)),
        (
            Request::CancelJob(id, true),
            Answer::Job(Box::new(forgotten)),
        ),
    ];
    case("jobs", about, exchanges).offering(JOBS)
}

fn job_record() -> DurableRecord {
    DurableRecord {
        id: JOB,
        number: 7,
        function: "lapack/dgesv".to_string(),
        state: DurableState::Done,
        submitted: 1_700_000_000_000,
        started: Some(1_700_000_000_010),
        ended: Some(1_700_000_000_020),
        expires: Some(1_700_003_600_020),
        bytes: 500,
        failure: None,
    }
}
