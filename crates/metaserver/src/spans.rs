//! The spans of placements, for traces. Each one lies below the client's span of its call.
//! `session` measures the moments.

use farcall_directory::session::PlacedCall;
use farcall_otlp::{Exporter, Role, Settings, Span, Value, part_id, unix_nanos};

/// The number of the placement among the parts of the client's span. The client has others.
const PART: u64 = 2;

/// A placement, and when the request came and was answered.
pub(crate) struct PlacedSpan {
    pub(crate) placed: PlacedCall,
    pub(crate) from_to: [f64; 2],
}

/// What sends the spans of a metaserver at this address.
pub(crate) fn exporter(
    url: &str,
    address: &str,
) -> Result<Exporter<PlacedSpan>, crate::StartError> {
    let settings = Settings {
        endpoint: url.parse()?,
        resource: vec![
            ("service.name", "farcall-metaserver".to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", address.to_owned()),
        ],
    };
    Ok(Exporter::start(settings, 1, |placed, spans| {
        spans.push(span(placed));
    })?)
}

fn span(PlacedSpan { placed, from_to }: PlacedSpan) -> Span {
    let cause = placed.context.span();
    // A call that is placed again has another moment.
    let moment = from_to[0].to_bits();
    let attributes = placed
        .server
        .as_ref()
        .ok()
        .map(|server| ("farcall.server", Value::Text(server.clone())));
    Span {
        trace: placed.context.trace(),
        id: part_id(part_id(cause, PART), moment),
        parent: Some(cause),
        name: format!("place {}", placed.function),
        role: Role::Server,
        from_to: from_to.map(unix_nanos),
        attributes: attributes.into_iter().collect(),
        failure: placed.server.err(),
    }
}
