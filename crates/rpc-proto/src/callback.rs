//! Messages of callbacks: a function at the server calls a function of the client. `client::calls`
//! and `server::calls` know when such a message is allowed. Decoding checks each count before it
//! takes memory for it.

use crate::message::MessageError;
use crate::scalars::{VecError, decode_scalars, encode_scalars};
use alloc::vec::Vec;
use farcall_idl::Scalar;
use minicbor::{Decoder, Encoder, decode};

/// Feature bit: functions may call functions of the client.
pub const CALLBACKS: u64 = 1 << 1;

/// Most bytes of an encoded [`Callback`] or [`CallbackAnswer`]: a frame, less what the scalars of
/// one that is not in the shortest form grow by when it is encoded again.
pub const CALLBACK_BYTES: usize = (1 << 20) - (32 << 10);

/// A call of a function of the client.
#[derive(Clone, Debug, PartialEq)]
pub struct Callback {
    /// Which one, counted among the callbacks of the interface.
    pub index: u32,
    /// One value per parameter of the callback, `None` for everything that is not a scalar.
    pub scalars: Vec<Option<Scalar>>,
    /// The sections of its IN and INOUT arrays, one after the other.
    pub data: Vec<u8>,
    /// Whether array elements are big endian; travels in the header of the frame.
    pub big_endian: bool,
}

impl Callback {
    /// Appends the message's CBOR; also the form in which a worker hands it to its server.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut encoder = Encoder::new(out);
        // Writing to a Vec cannot fail.
        let _ = encode_callback(self, &mut encoder);
    }

    /// Reads the message, with every count bounded before memory is taken for it.
    pub fn decode(bytes: &[u8], big_endian: bool) -> Result<Callback, MessageError> {
        let mut decoder = Decoder::new(bytes);
        decode_callback(&mut decoder, big_endian).map_err(MessageError::new)
    }
}

fn encode_callback(callback: &Callback, e: &mut Encoder<&mut Vec<u8>>) -> Result<(), VecError> {
    e.array(3)?.u32(callback.index)?;
    encode_scalars(&callback.scalars, e)?;
    e.bytes(&callback.data)?.ok()
}

fn decode_callback(d: &mut Decoder, big_endian: bool) -> Result<Callback, decode::Error> {
    let Some(3..) = d.array()? else {
        return Err(decode::Error::message(
            "a callback has at least three fields",
        ));
    };
    Ok(Callback {
        index: d.u32()?,
        scalars: decode_scalars(d)?,
        data: d.bytes()?.to_vec(),
        big_endian,
    })
}

/// What a function of the client has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackAnswer {
    /// The sections of the INOUT and OUT arrays, one after the other.
    pub data: Vec<u8>,
    /// Whether array elements are big endian; travels in the header of the frame.
    pub big_endian: bool,
}

impl CallbackAnswer {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        // Writing to a Vec cannot fail.
        let _ = Encoder::new(out)
            .array(1)
            .and_then(|e| e.bytes(&self.data).map(drop));
    }

    /// Reads the message, with its length bounded by that of the input.
    pub fn decode(bytes: &[u8], big_endian: bool) -> Result<CallbackAnswer, MessageError> {
        let decode = |d: &mut Decoder| match d.array()? {
            Some(1..) => Ok(d.bytes()?.to_vec()),
            _ => Err(decode::Error::message("an answer has at least one field")),
        };
        decode(&mut Decoder::new(bytes))
            .map(|data| CallbackAnswer { data, big_endian })
            .map_err(MessageError::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn callback_round_trip() {
        let callback = Callback {
            index: 1,
            scalars: vec![Some(Scalar::Int(7)), None],
            data: vec![1, 2, 3],
            big_endian: false,
        };
        let mut bytes = Vec::new();
        callback.encode(&mut bytes);
        assert_eq!(Callback::decode(&bytes, false), Ok(callback));
        // [1, [], bytes of 2^32 - 1...
        let bytes = [0x83, 0x01, 0x80, 0x5a, 0xff, 0xff, 0xff, 0xff, 0x00];
        assert!(Callback::decode(&bytes, false).is_err());
        let answer = CallbackAnswer {
            data: vec![9; 5],
            big_endian: true,
        };
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        assert_eq!(CallbackAnswer::decode(&bytes, true), Ok(answer));
    }
}
