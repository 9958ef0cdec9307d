//! Failures as HTTP answers: a status that fits, and the words of Farcall as JSON. The text of a
//! failure is written where it happens.

use crate::arguments::Misfit;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use farcall_access::penalty_s;
use farcall_client::{Error, FailureKind};
use serde_json::json;

/// Why a request failed.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    /// The kind, as programs read it.
    kind: &'static str,
    message: String,
    /// Seconds after which another try makes sense, if the status asks for one.
    wait_s: u64,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, kind: &'static str, message: impl ToString) -> Failure {
        Failure {
            status,
            kind,
            message: message.to_string(),
            wait_s: 1,
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
        let penalty = match &error {
            Error::Refused { reason, .. } => penalty_s(reason),
            _ => None,
        };
        let (status, kind) = match &error {
            // Nobody has looked at the token.
            Error::Refused { .. } if penalty.is_some() => {
                (StatusCode::TOO_MANY_REQUESTS, "Refused")
            }
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
        let message = match status {
            StatusCode::UNAUTHORIZED => over_http(&error.to_string()),
            _ => error.to_string(),
        };
        let mut failure = Failure::new(status, kind, message);
        failure.wait_s = penalty.unwrap_or(failure.wait_s);
        failure
    }
}

/// What a caller over HTTP does about its token, in place of what a client does.
fn over_http(message: &str) -> String {
    let message = message.replace("unset FARCALL_TOKEN", "send no token");
    message.replace(
        "set FARCALL_TOKEN",
        "send it in the header `Authorization: Bearer TOKEN`",
    )
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
                headers.insert(header::RETRY_AFTER, HeaderValue::from(self.wait_s));
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lacks_a_token_learns_how_to_send_it() {
        let error = Error::Refused {
            address: "farcall://host:1".parse().unwrap(),
            reason: "this server asks for a token; set FARCALL_TOKEN".to_owned(),
        };
        let message = Failure::from(error).message;
        assert!(
            message.ends_with("; send it in the header `Authorization: Bearer TOKEN`"),
            "{message}"
        );
        let unasked = over_http("If it has no tokens, unset FARCALL_TOKEN; otherwise");
        assert_eq!(unasked, "If it has no tokens, send no token; otherwise");
    }

    #[test]
    fn who_must_wait_because_of_wrong_tokens_learns_how_long() {
        let refused = |reason: &str| {
            let error = Error::Refused {
                address: "farcall://host:1".parse().unwrap(),
                reason: reason.to_owned(),
            };
            let response = Failure::from(error).into_response();
            let wait = response.headers().get(header::RETRY_AFTER);
            let wait = wait.map(|wait| wait.to_str().unwrap().to_owned());
            (response.status().as_u16(), wait)
        };
        let reason = "too many wrong tokens came from this host; try again in 32 s";
        assert_eq!(refused(reason), (429, Some("32".to_owned())));
        let full = refused("the server is full (1 connections)");
        assert_eq!(full, (503, Some("1".to_owned())));
        let reason = "the token is unknown to this server; it may have been withdrawn";
        assert_eq!(refused(reason), (401, None));
    }
}
