//! TLS 1.3 over a non-blocking socket, with certificates and keys from PEM files.
//!
//! [`Identity`] is the certificate of a server and the clients that it trusts. [`Trust`] is the
//! authorities that a client trusts and its own certificate. A [`Session`] uses one of them to
//! encrypt the bytes of a socket. rustls implements the protocol.

mod files;
mod session;

pub use files::{FileError, Identity, IdentityFiles, Trust, Validity, serial_number};
pub use session::{Session, is_server_name, may_greet};
