//! Frames: a 16-byte header and a payload.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | payload length, little endian |
//! | 4 | kind |
//! | 5 | flags; bit 0 of a frame with array elements: they are big endian |
//! | 6..8 | zero |
//! | 8..16 | call number, little endian; 0 for frames about the connection |

use crate::CallId;
use alloc::vec::Vec;

/// Length of a frame header in bytes.
pub const HEADER_BYTES: usize = 16;

/// Flag of a frame with array elements: the sender's byte order is big endian.
pub(crate) const BIG_ENDIAN: u8 = 1;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Greeting: versions, features, who is speaking.
    Hello = 1,
    /// Asks for the functions served.
    List = 2,
    /// Answers [`Kind::List`].
    Listing = 3,
    /// Asks for the interface of a function.
    Describe = 4,
    /// Answers [`Kind::Describe`].
    Interface = 5,
    /// Opens a call: function, scalars, length of the data stream that follows.
    Call = 6,
    /// Part of a call's data stream.
    Data = 7,
    /// The call has been computed; its result stream follows.
    Result = 8,
    /// The result stream is complete; how long each part took.
    Done = 9,
    /// The request failed.
    Failure = 10,
    /// The client no longer wants the call.
    Cancel = 11,
    /// The connection ends, and why.
    Goodbye = 12,
    /// Asks for memory that both sides share.
    Share = 13,
    /// Answers [`Kind::Share`]; the memory itself comes beside the bytes.
    Shared = 14,
    /// The client no longer wants the memory.
    Unshare = 15,
    /// The running function calls a function of the client.
    Callback = 16,
    /// Answers [`Kind::Callback`].
    Answer = 17,
    /// What the running function has printed.
    Output = 18,
    /// Fills a part of an array at the server; its data stream follows.
    PutPart = 19,
    /// Asks for a part of an array at the server; answered as a call is.
    GetPart = 20,
    /// The server has room for the data stream of a request.
    Grant = 21,
    /// An object is to stay when its connection ends.
    KeepObject = 22,
    /// An object that stays is to be known on this connection.
    AttachObject = 23,
    /// Asks what a call would take.
    Estimate = 24,
    /// Answers [`Kind::Estimate`].
    Estimated = 25,
    /// Asks for an object of a class.
    New = 26,
    /// Answers [`Kind::New`].
    Created = 27,
    /// The client no longer wants the object.
    Delete = 28,
    /// An object that stays is to be destroyed.
    DropObject = 29,
    /// Asks for the objects that stay.
    ListObjects = 30,
    /// Answers [`Kind::KeepObject`], [`Kind::AttachObject`], [`Kind::DropObject`] and
    /// [`Kind::ListObjects`].
    Objects = 31,
    /// Opens a call that outlives its connection; its data stream follows.
    Submit = 32,
    /// Answers [`Kind::Submit`]: the call will be run, whatever happens to client and server.
    Submitted = 33,
    /// Asks about a submitted call.
    AskJob = 34,
    /// Answers [`Kind::AskJob`] and [`Kind::CancelJob`].
    Job = 35,
    /// Asks for the results of a submitted call; answered as a call is, once it has ended.
    Fetch = 36,
    /// Ends a submitted call.
    CancelJob = 37,
    /// Asks for a page of submitted calls.
    ListJobs = 38,
    /// Answers [`Kind::ListJobs`].
    Jobs = 39,
    /// Puts an array at the server; its data stream follows.
    Put = 40,
    /// Asks for an array at the server; answered as a call is.
    Get = 41,
    /// Asks about an array at the server.
    AskHandle = 42,
    /// The user no longer wants an array at the server.
    Drop = 43,
    /// Asks for a page of the arrays at the server.
    ListHandles = 44,
    /// Answers [`Kind::Put`], [`Kind::AskHandle`], [`Kind::Drop`], [`Kind::Lend`] and
    /// [`Kind::Pull`].
    Handle = 45,
    /// Answers [`Kind::ListHandles`].
    Handles = 46,
    /// Asks how the server stands.
    Status = 48,
    /// Answers [`Kind::Status`].
    Standing = 49,
    /// The server is to take no more calls, and to end after those that it has.
    Drain = 50,
    /// Answers [`Kind::Drain`].
    Draining = 51,
    /// Asks for an interface file to be served; a [`Kind::Listing`] of its functions answers.
    Register = 56,
    /// Asks for a name of an array that is good for one reading, by another server.
    Lend = 57,
    /// Has an array read from another server.
    Pull = 58,
    /// A server joins a metaserver's directory.
    Join = 64,
    /// A server says how it stands.
    Report = 65,
    /// A server leaves.
    Leave = 66,
    /// Answers [`Kind::Join`], [`Kind::Report`] and [`Kind::Leave`].
    Noted = 67,
    /// Asks a metaserver which servers have a function.
    Find = 68,
    /// Answers [`Kind::Find`].
    Found = 69,
    /// Asks a metaserver for the server of a call.
    Choose = 70,
    /// Answers [`Kind::Choose`].
    Chosen = 71,
    /// A client says what became of a call; nothing answers it.
    Observe = 72,
    /// Gives an array at the server a name.
    Name = 73,
    /// Answers [`Kind::Name`] and [`Kind::AskName`].
    Named = 74,
    /// Asks for data by name.
    AskName = 75,
    /// Asks for a page of the data with names.
    ListNames = 76,
    /// Answers [`Kind::ListNames`].
    Names = 77,
    /// A server tells a metaserver which named data it holds.
    Hold = 78,
    /// Asks a metaserver who holds data of a name.
    FindData = 79,
    /// Answers [`Kind::FindData`].
    DataFound = 80,
    /// Asks a metaserver for a page of the data with names.
    ListData = 81,
    /// Answers [`Kind::ListData`].
    DataListed = 82,
    /// Asks for something to be reserved.
    Reserve = 83,
    /// A reservation is given up.
    Release = 84,
    /// Asks for a page of the reservations.
    ListReservations = 85,
    /// Answers [`Kind::Reserve`], [`Kind::Release`], [`Kind::ListReservations`] and
    /// [`Kind::AttachReservation`].
    Reservations = 86,
    /// The connection is to have the bandwidth of a reservation.
    AttachReservation = 87,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::*;
        [
            Hello,
            List,
            Listing,
            Describe,
            Interface,
            Call,
            Data,
            Result,
            Done,
            Failure,
            Cancel,
            Goodbye,
            Share,
            Shared,
            Unshare,
            Callback,
            Answer,
            Output,
            PutPart,
            GetPart,
            Grant,
            KeepObject,
            AttachObject,
            Estimate,
            Estimated,
            New,
            Created,
            Delete,
            DropObject,
            ListObjects,
            Objects,
            Submit,
            Submitted,
            AskJob,
            Job,
            Fetch,
            CancelJob,
            ListJobs,
            Jobs,
            Put,
            Get,
            AskHandle,
            Drop,
            ListHandles,
            Handle,
            Handles,
            Status,
            Standing,
            Drain,
            Draining,
            Register,
            Lend,
            Pull,
            Join,
            Report,
            Leave,
            Noted,
            Find,
            Found,
            Choose,
            Chosen,
            Observe,
            Name,
            Named,
            AskName,
            ListNames,
            Names,
            Hold,
            FindData,
            DataFound,
            ListData,
            DataListed,
            Reserve,
            Release,
            ListReservations,
            Reservations,
            AttachReservation,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// A checked frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the payload is.
    pub kind: Kind,
    /// Flags of this kind.
    pub flags: u8,
    /// The request that the frame belongs to.
    pub call: CallId,
    /// Payload length in bytes.
    pub length: u32,
}

/// Why sixteen bytes are not a frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The kind is not one of this protocol version.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// A flag that the kind does not have, or a reserved byte that is not zero.
    #[error("reserved bits are set")]
    Reserved,
    /// The payload is longer than the limit of its kind.
    #[error("payload of {length} bytes where at most {limit} are allowed")]
    TooLong {
        /// Announced length.
        length: u32,
        /// The limit of this connection.
        limit: u32,
    },
}

impl Header {
    /// Reads a header and checks everything that does not depend on the connection.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
        let kind = Kind::from_byte(bytes[4]).ok_or(FrameError::Kind(bytes[4]))?;
        let flags = bytes[5];
        let allowed = match kind {
            Kind::Data | Kind::Callback | Kind::Answer => BIG_ENDIAN,
            _ => 0,
        };
        if flags & !allowed != 0 || bytes[6] != 0 || bytes[7] != 0 {
            return Err(FrameError::Reserved);
        }
        let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let mut call = [0; 8];
        call.copy_from_slice(&bytes[8..]);
        Ok(Header {
            kind,
            flags,
            call: CallId::from_le_bytes(call),
            length,
        })
    }

    /// The header as it stands on the wire.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[5] = self.flags;
        bytes[8..].copy_from_slice(&self.call.to_le_bytes());
        bytes
    }
}

/// Appends a control frame whose payload `write` produces.
pub(crate) fn append_control(
    out: &mut Vec<u8>,
    kind: Kind,
    call: CallId,
    write: impl FnOnce(&mut Vec<u8>),
) {
    append_flagged(out, kind, 0, call, write);
}

/// The same with flags.
pub(crate) fn append_flagged(
    out: &mut Vec<u8>,
    kind: Kind,
    flags: u8,
    call: CallId,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    write(out);
    let length = (out.len() - start - HEADER_BYTES) as u32;
    let header = Header {
        kind,
        flags,
        call,
        length,
    };
    out[start..start + HEADER_BYTES].copy_from_slice(&header.encode());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trip() {
        for kind in 1..=17 {
            let header = Header {
                kind: Kind::from_byte(kind).unwrap(),
                flags: 0,
                call: 7,
                length: 99,
            };
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn foreign_bytes_are_refused() {
        assert_eq!(
            Header::decode(b"GET / HTTP/1.1\r\n"),
            Err(FrameError::Kind(b'/'))
        );
        let mut bytes = Header {
            kind: Kind::Call,
            flags: 0,
            call: 1,
            length: 0,
        }
        .encode();
        bytes[6] = 1;
        assert_eq!(Header::decode(&bytes), Err(FrameError::Reserved));
    }
}
