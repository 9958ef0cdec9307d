//! Ids of things that a server keeps for its users. They are random, so that nobody can guess
//! another user's id.

use core::fmt;
use core::str::FromStr;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

/// The text is not an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id has 32 hexadecimal digits")]
pub struct NoId;

fn read(text: &str) -> Result<[u8; 16], NoId> {
    let digits = text.as_bytes();
    if digits.len() != 32 {
        return Err(NoId);
    }
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16).ok_or(NoId);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Ok(id)
}

macro_rules! id {
    ($(#[$documentation:meta])* $name:ident) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = NoId;

            fn from_str(text: &str) -> Result<$name, NoId> {
                read(text).map($name)
            }
        }

        impl<C> Encode<C> for $name {
            fn encode<W: encode::Write>(
                &self,
                e: &mut Encoder<W>,
                _: &mut C,
            ) -> Result<(), encode::Error<W::Error>> {
                e.bytes(&self.0)?.ok()
            }
        }

        impl<'b, C> Decode<'b, C> for $name {
            fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
                let bytes = d.bytes()?.try_into();
                bytes
                    .map($name)
                    .map_err(|_| decode::Error::message("an id has 16 bytes"))
            }
        }
    };
}

id! {
    /// Id of a durable call.
    JobId
}

id! {
    /// Id of a stored array.
    HandleId
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let id = JobId([0xa5; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "a5", "zz000000000000000000000000000000", "é"] {
            assert_eq!(text.parse::<HandleId>(), Err(NoId));
        }
    }
}
