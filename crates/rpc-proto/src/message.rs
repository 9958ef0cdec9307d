//! Control messages in CBOR (RFC 8949). Each is an array whose fields are only ever added at the
//! end, so that peers of other versions can read it. The messages themselves are in the module of
//! their subject.

use crate::frame::append_control;
use crate::{CallId, Kind, ProtocolError};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use minicbor::{Decode, Encode, decode, encode};

/// What is wrong with a control message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MessageError(String);

impl MessageError {
    pub(crate) fn new(error: impl ToString) -> MessageError {
        MessageError(error.to_string())
    }
}

/// A number: of the thing that is asked for, or after which a page begins.
#[derive(Encode, Decode)]
pub(crate) struct NumberMessage {
    #[n(0)]
    pub(crate) number: u64,
}

/// Appends a control frame around a derived message.
pub(crate) fn append(out: &mut Vec<u8>, kind: Kind, call: CallId, message: &impl Encode<()>) {
    // Writing to a Vec cannot fail.
    append_control(out, kind, call, |out| drop(encode(message, out)));
}

/// Decodes the payload of a control frame.
pub(crate) fn parse<'a, T: Decode<'a, ()>>(
    kind: Kind,
    payload: &'a [u8],
) -> Result<T, ProtocolError> {
    decode(payload).map_err(|error| {
        let source = MessageError(error.to_string());
        ProtocolError::Message { kind, source }
    })
}

/// Decodes the payload of a control frame that carries array elements.
pub(crate) fn parse_with<T>(
    kind: Kind,
    decoded: Result<T, MessageError>,
) -> Result<T, ProtocolError> {
    decoded.map_err(|source| ProtocolError::Message { kind, source })
}
