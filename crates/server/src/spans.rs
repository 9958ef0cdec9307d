//! The spans of a call at the server, for traces: the call, and in it the transfer of its
//! arguments, its wait, its computation, and the transfer of its results. Their moments are those
//! of the record of calls.

use farcall_otlp::{Role, Span, Value, part_id, unix_nanos};
use farcall_server_proto::TracedCall;

/// Most spans of a call.
pub(crate) const MOST: u64 = 5;

/// Makes the spans of a call that has ended.
pub(crate) fn make(traced: Box<TracedCall>, spans: &mut Vec<Span>) {
    let TracedCall {
        call,
        context,
        parent,
    } = *traced;
    let compute = context.span();
    let server = part_id(compute, 1);
    let part = |name: &str, id, from: Option<f64>, to: Option<f64>| {
        Some(Span {
            trace: context.trace(),
            id,
            parent: Some(server),
            name: name.to_owned(),
            role: Role::Part,
            from_to: [unix_nanos(from?), unix_nanos(to?)],
            attributes: Vec::new(),
            failure: None,
        })
    };
    let (asked, sent) = (Some(call.asked), Some(call.sent));
    let parts = [
        part(
            "transfer arguments",
            part_id(compute, 2),
            asked,
            call.queued,
        ),
        part("wait", part_id(compute, 3), call.queued, call.started),
        part("compute", compute, call.started, call.ended.or(sent)),
        part("transfer results", part_id(compute, 4), call.ended, sent),
    ];
    spans.extend(parts.into_iter().flatten());
    let int = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
    let mut attributes = vec![
        ("farcall.user", Value::Text(call.user)),
        ("farcall.sent_bytes", int(call.sent_bytes)),
        ("farcall.returned_bytes", int(call.returned_bytes)),
        ("farcall.placed_bytes", int(call.placed_bytes)),
        ("farcall.pes", int(u64::from(call.pes))),
        ("farcall.exec_s", Value::Float(call.exec_s)),
        ("farcall.outcome", Value::Text(call.outcome.clone())),
    ];
    attributes.extend(
        call.predicted_s
            .map(|s| ("farcall.predicted_s", Value::Float(s))),
    );
    spans.push(Span {
        trace: context.trace(),
        id: server,
        parent: Some(parent),
        name: call.function,
        role: Role::Server,
        from_to: [unix_nanos(call.asked), unix_nanos(call.sent)],
        attributes,
        failure: Some(call.outcome).filter(|outcome| outcome != "done"),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_rpc_proto::TraceContext;

    #[test]
    fn parts_follow_one_another_within_the_call() {
        let call = farcall_record::Call {
            function: "lapack/dgesv".to_owned(),
            asked: 1.0,
            queued: Some(2.0),
            started: Some(3.0),
            ended: Some(4.0),
            sent: 5.0,
            outcome: "done".to_owned(),
            ..farcall_record::Call::default()
        };
        let context = TraceContext::new([1; 16], [2; 8]).unwrap();
        let traced = |call: &farcall_record::Call| TracedCall {
            call: call.clone(),
            context,
            parent: [3; 8],
        };
        let mut spans = Vec::new();
        make(Box::new(traced(&call)), &mut spans);
        assert_eq!(spans.len() as u64, MOST);
        let whole = spans.pop().unwrap();
        assert_eq!(whole.parent, Some([3; 8]));
        assert_eq!(whole.from_to, [1_000_000_000, 5_000_000_000]);
        let mut at = whole.from_to[0];
        for span in &spans {
            assert_eq!((span.parent, span.from_to[0]), (Some(whole.id), at));
            at = span.from_to[1];
        }
        assert_eq!(at, whole.from_to[1]);
        // The function's own spans are below its computation.
        assert_eq!((spans[2].name.as_str(), spans[2].id), ("compute", [2; 8]));
        // A call that was given up while it waited.
        let mut cut = call.clone();
        (cut.started, cut.ended, cut.outcome) = (None, None, "given up".to_owned());
        spans.clear();
        make(Box::new(traced(&cut)), &mut spans);
        assert_eq!(spans.len(), 2);
        assert_eq!(spans[1].failure.as_deref(), Some("given up"));
    }
}
