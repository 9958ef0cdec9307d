//! Spans as messages of OTLP. `exporter` sends them.

use crate::{Role, Span, Value};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::common::v1::{self as common, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{self as trace, ResourceSpans, ScopeSpans, Status};
use prost::Message;

/// A request that delivers spans of this resource.
pub(crate) fn request(resource: &[(&'static str, String)], spans: Vec<Span>) -> Vec<u8> {
    let attributes = resource
        .iter()
        .map(|(key, text)| attribute(key, Value::Text(text.clone())));
    let resource = Resource {
        attributes: attributes.collect(),
        ..Resource::default()
    };
    let scope = InstrumentationScope {
        name: "farcall".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let spans = ScopeSpans {
        scope: Some(scope),
        spans: spans.into_iter().map(span).collect(),
        ..ScopeSpans::default()
    };
    let spans = ResourceSpans {
        resource: Some(resource),
        scope_spans: vec![spans],
        ..ResourceSpans::default()
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![spans],
    };
    request.encode_to_vec()
}

fn span(span: Span) -> trace::Span {
    let kind = match span.role {
        Role::Client => SpanKind::Client,
        Role::Server => SpanKind::Server,
        Role::Part => SpanKind::Internal,
    };
    let status = span.failure.map(|message| Status {
        message,
        code: StatusCode::Error.into(),
    });
    let [from, to] = span.from_to;
    let attributes = span.attributes.into_iter();
    trace::Span {
        trace_id: span.trace.to_vec(),
        span_id: span.id.to_vec(),
        parent_span_id: span.parent.map(Vec::from).unwrap_or_default(),
        name: span.name,
        kind: kind.into(),
        start_time_unix_nano: from,
        end_time_unix_nano: to.max(from),
        attributes: attributes
            .map(|(key, value)| attribute(key, value))
            .collect(),
        status,
        ..trace::Span::default()
    }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => AnyValue::StringValue(text),
        Value::Int(number) => AnyValue::IntValue(number),
        Value::Float(number) => AnyValue::DoubleValue(number),
    };
    KeyValue {
        key: key.to_owned(),
        value: Some(common::AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
