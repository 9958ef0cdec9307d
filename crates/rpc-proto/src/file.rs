//! Requests of a server about a file that an argument names.
//!
//! They travel as callbacks. The index is that of the parameter, counted after the callbacks of the
//! interface.

use crate::Callback;
use alloc::vec;
use alloc::vec::Vec;
use farcall_idl::Scalar;

/// Feature bit: files that arguments name travel in pieces. Needs [`CALLBACKS`](crate::CALLBACKS).
pub const FILES: u64 = 1 << 3;

/// Most bytes of a file in one request or answer.
pub const FILE_PIECE_BYTES: usize = 960 << 10;

/// One request about a file of the client. Pieces come in order, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRequest {
    /// Asks for the length of the file. The answer has 8 bytes, little endian.
    Length,
    /// Asks for a piece of the file. The answer has its bytes.
    Read {
        /// Offset of the piece in bytes.
        offset: u64,
        /// Length in bytes, at most [`FILE_PIECE_BYTES`].
        length: u64,
    },
    /// Brings a piece of an output file. The answer is empty. The first piece states the length of
    /// the file; it is empty if the file is empty.
    Write {
        /// Offset of the piece in bytes.
        offset: u64,
        /// Length of the whole file in bytes.
        total: u64,
        /// The piece.
        data: Vec<u8>,
    },
}

impl FileRequest {
    const LENGTH: i64 = 0;
    const READ: i64 = 1;
    const WRITE: i64 = 2;

    /// The request as a callback.
    pub fn into_callback(self, index: u32) -> Callback {
        let (kind, first, second, data) = match self {
            FileRequest::Length => (FileRequest::LENGTH, 0, 0, Vec::new()),
            FileRequest::Read { offset, length } => (FileRequest::READ, offset, length, Vec::new()),
            FileRequest::Write {
                offset,
                total,
                data,
            } => (FileRequest::WRITE, offset, total, data),
        };
        let whole = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let scalars = [kind, whole(first), whole(second)].map(|value| Some(Scalar::Int(value)));
        Callback {
            index,
            scalars: vec![scalars[0].clone(), scalars[1].clone(), scalars[2].clone()],
            data,
            big_endian: false,
        }
    }

    /// The request in a callback, if there is one.
    pub fn from_callback(callback: Callback) -> Option<FileRequest> {
        let [
            Some(Scalar::Int(kind)),
            Some(Scalar::Int(first)),
            Some(Scalar::Int(second)),
        ] = callback.scalars[..]
        else {
            return None;
        };
        let (first, second) = (u64::try_from(first).ok()?, u64::try_from(second).ok()?);
        match kind {
            FileRequest::LENGTH => Some(FileRequest::Length),
            FileRequest::READ if second <= FILE_PIECE_BYTES as u64 => Some(FileRequest::Read {
                offset: first,
                length: second,
            }),
            FileRequest::WRITE if callback.data.len() <= FILE_PIECE_BYTES => {
                Some(FileRequest::Write {
                    offset: first,
                    total: second,
                    data: callback.data,
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_travel_and_strangers_are_refused() {
        let requests = [
            FileRequest::Length,
            FileRequest::Read {
                offset: 1 << 40,
                length: FILE_PIECE_BYTES as u64,
            },
            FileRequest::Write {
                offset: 0,
                total: 3,
                data: vec![1, 2, 3],
            },
        ];
        for request in requests {
            let callback = request.clone().into_callback(7);
            assert_eq!(callback.index, 7);
            assert_eq!(FileRequest::from_callback(callback), Some(request));
        }
        let too_long = FileRequest::Read {
            offset: 0,
            length: FILE_PIECE_BYTES as u64 + 1,
        };
        assert_eq!(FileRequest::from_callback(too_long.into_callback(0)), None);
        for scalars in [
            vec![],
            vec![
                Some(Scalar::Int(9)),
                Some(Scalar::Int(0)),
                Some(Scalar::Int(0)),
            ],
            vec![
                Some(Scalar::Int(1)),
                Some(Scalar::Int(-1)),
                Some(Scalar::Int(0)),
            ],
            vec![Some(Scalar::Int(1)), None, Some(Scalar::Int(0))],
        ] {
            let callback = Callback {
                index: 0,
                scalars,
                data: vec![],
                big_endian: false,
            };
            assert_eq!(FileRequest::from_callback(callback), None);
        }
    }
}
