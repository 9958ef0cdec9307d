//! A gateway: it offers the functions of a server, or of all servers behind a metaserver, over HTTP
//! with JSON.
//!
//! [`Arguments`] reads the arguments of a call, [`results`] writes its results, and [`openapi`]
//! describes the functions; they do no I/O. [`Gateway`] has the sockets. It makes each call as the
//! user whose token the request has, so that users, limits and records are those of the server. It
//! keeps nothing of a call.

mod arguments;
mod body;
mod call;
mod failure;
mod functions;
mod host;
mod http;
mod openapi;
mod page;
mod users;
mod values;

pub use arguments::{Arguments, Misfit, carried, results};
pub use http::{Config, Gateway, GatewayError, Limits};
pub use openapi::{describe, openapi};
pub use page::{Page, PageConfig};
pub use values::Shown;
