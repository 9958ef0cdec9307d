//! TLS 1.3 over a socket that never blocks, with certificates and keys from PEM files.
//!
//! [`Identity`] is what a server shows and whom it lets in, [`Trust`] whom a client believes and
//! what it shows; a [`Session`] stands between one of them and a socket. The protocol itself is
//! rustls'.

mod files;
mod session;

pub use files::{FileError, Identity, Trust};
pub use session::Session;
