//! Failures as HTTP answers: a status that fits, and the words of Farcall as JSON. The text of a
//! failure is written where it happens.

use crate::arguments::Misfit;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use farcall_client::{Error, FailureKind};
use serde_json::json;

/// Why a request failed.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    /// The kind, as programs read it.
    kind: &'static str,
    message: String,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, kind: &'static str, message: impl ToString) -> Failure {
        Failure {
            status,
            kind,
            message: message.to_string(),
        }
    }

    /// The gateway has no room for the request now.
    pub(crate) fn busy(message: impl ToString) -> Failure {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "Busy", message)
    }

    /// The caller sends something that is not a request.
    pub(crate) fn bad(message: impl ToString) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }
}

impl From<Misfit> for Failure {
    fn from(misfit: Misfit) -> Failure {
        let (status, kind) = match &misfit {
            Misfit::Argument(_) => (StatusCode::BAD_REQUEST, "BadArgument"),
            Misfit::TooLarge { .. } | Misfit::TooManyLists { .. } => {
                (StatusCode::PAYLOAD_TOO_LARGE, "TooLarge")
            }
            Misfit::NotCarried { .. } => (StatusCode::NOT_IMPLEMENTED, "NotCarried"),
        };
        Failure::new(status, kind, misfit)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let (status, kind) = match &error {
            Error::Refused { reason, .. } if is_crowd(reason) => {
                (StatusCode::SERVICE_UNAVAILABLE, "Busy")
            }
            Error::Refused { .. } => (StatusCode::UNAUTHORIZED, "Refused"),
            Error::Argument { .. } => (StatusCode::BAD_REQUEST, "BadArgument"),
            Error::Timeout { .. } => (StatusCode::GATEWAY_TIMEOUT, "TimeLimit"),
            Error::Failed(failure) => (status(failure.kind), failure.kind.into()),
            Error::Connect { .. } => (StatusCode::BAD_GATEWAY, "Unreachable"),
            Error::Disconnected { .. } | Error::Lost { .. } => (StatusCode::BAD_GATEWAY, "Lost"),
            _ => (StatusCode::BAD_GATEWAY, "Internal"),
        };
        Failure::new(status, kind, error)
    }
}

/// Whether a server refuses a client because it has too many, and not because of who it is.
fn is_crowd(reason: &str) -> bool {
    reason.contains("connections")
}

fn status(kind: FailureKind) -> StatusCode {
    use FailureKind as Kind;
    match kind {
        Kind::BadArgument => StatusCode::BAD_REQUEST,
        Kind::NotAllowed => StatusCode::FORBIDDEN,
        Kind::UnknownFunction | Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::FunctionFailed => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
        Kind::Unreachable => StatusCode::BAD_GATEWAY,
        Kind::TimeLimit => StatusCode::GATEWAY_TIMEOUT,
        Kind::Busy
        | Kind::NoServer
        | Kind::NotFree
        | Kind::NotJoined
        | Kind::StaleInterface
        | Kind::ServerStopping
        | Kind::Draining => StatusCode::SERVICE_UNAVAILABLE,
        Kind::LibraryCrashed
        | Kind::OutOfMemory
        | Kind::Cancelled
        | Kind::Internal
        | Kind::NoAnswer
        | Kind::ObjectLost
        | Kind::Stalled
        | Kind::StorageFault
        | Kind::OutcomeUnknown => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = json!({ "error": { "kind": self.kind, "message": self.message } });
        let json = (header::CONTENT_TYPE, "application/json");
        let mut response = (self.status, [json], body.to_string()).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                let scheme = HeaderValue::from_static("Bearer");
                headers.insert(header::WWW_AUTHENTICATE, scheme);
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}
