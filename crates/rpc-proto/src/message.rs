//! Control messages: CBOR (RFC 8949), each an array whose fields are only ever added at the end.

use crate::frame::append_control;
use crate::ids::HandleId;
use crate::{CallId, Kind, ProtocolError};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use farcall_idl::{MOST_TEXTS, Place, Scalar};
use minicbor::data::Type;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

/// Oldest protocol version this code speaks.
pub const VERSION_MIN: u32 = 1;
/// Newest protocol version this code speaks.
pub const VERSION_MAX: u32 = 1;

/// Feature bit: arrays may lie in memory that both sides share. Offered on Unix sockets only, which
/// can hand memory over.
pub const SHARED_MEMORY: u64 = 1;

/// Feature bit: functions may call functions of the client.
pub const CALLBACKS: u64 = 1 << 1;

/// Feature bit: calls may ask for what the function prints.
pub const OUTPUT: u64 = 1 << 2;

/// Feature bit: files that arguments name travel, piece by piece. Needs [`CALLBACKS`].
pub const FILES: u64 = 1 << 3;

/// Feature bit: the server keeps objects, whose methods are called.
pub const OBJECTS: u64 = 1 << 5;

/// Feature bit: the server says what a call would take.
pub const ESTIMATES: u64 = 1 << 4;
/// Feature: the status of the server, and its end by request.
pub const OPERATION: u64 = 1 << 12;

/// Feature bit: streams longer than a chunk wait for the server's word that there is room.
pub const CREDIT: u64 = 1 << 7;

/// Feature bit: operators may register interface files.
pub const REGISTER: u64 = 1 << 16;

/// Feature bit: it is a metaserver, which keeps a directory of servers.
pub const DIRECTORY: u64 = 1 << 17;

/// Most bytes of an encoded [`Callback`] or [`CallbackAnswer`]: a frame, less what the scalars of
/// one that is not in the shortest form grow by when it is encoded again.
pub const CALLBACK_BYTES: usize = (1 << 20) - (32 << 10);

/// First bytes of every greeting, so that a stranger on the port is recognised at once.
const MAGIC: &str = "farcall";

/// Most scalars and element values a call may carry.
const MAX_SCALARS: u64 = 4096;

/// What is wrong with a control message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MessageError(String);

impl MessageError {
    pub(crate) fn new(error: impl ToString) -> MessageError {
        MessageError(error.to_string())
    }
}

/// Greeting of either side.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Hello {
    #[n(0)]
    magic: String,
    /// Oldest version spoken; in the server's greeting, the version chosen.
    #[n(1)]
    pub version_min: u32,
    /// Newest version spoken; in the server's greeting, the version chosen.
    #[n(2)]
    pub version_max: u32,
    /// Optional features, one bit each; unknown bits are ignored.
    #[n(3)]
    pub features: u64,
    /// Program and version, for logs and error messages.
    #[n(4)]
    pub agent: String,
    /// What proves who the client is, where the server asks for it.
    #[n(5)]
    pub token: Option<String>,
    /// In the server's greeting to a client on the same host: the abstract Unix socket on which it
    /// listens too.
    #[n(6)]
    pub local: Option<String>,
    /// In the server's greeting, with [`PARTS`](crate::PARTS): the IP addresses, with ports, at
    /// which it listens too.
    #[n(7)]
    pub ways: Option<Vec<String>>,
    /// In the server's greeting: how many requests may be open at once.
    #[n(8)]
    pub calls: Option<u32>,
}

impl Hello {
    /// A greeting for every version this code speaks.
    pub fn new(agent: &str) -> Hello {
        Hello {
            magic: MAGIC.to_string(),
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            features: 0,
            agent: agent.to_string(),
            token: None,
            local: None,
            ways: None,
            calls: None,
        }
    }

    /// The newest version both sides speak.
    pub(crate) fn agree(&self) -> Result<u32, ProtocolError> {
        if self.magic != MAGIC {
            return Err(ProtocolError::NotFarcall);
        }
        let newest = self.version_max.min(VERSION_MAX);
        if newest < self.version_min.max(VERSION_MIN) {
            return Err(ProtocolError::Version {
                theirs_min: self.version_min,
                theirs_max: self.version_max,
            });
        }
        Ok(newest)
    }
}

/// A page of the functions served.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Listing {
    /// Functions of this page, by qualified name.
    #[n(0)]
    pub functions: Vec<FunctionSummary>,
    /// Index from which the next page starts, if there is one.
    #[n(1)]
    pub next: Option<u32>,
}

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FunctionSummary {
    /// Qualified name, `module/entry`.
    #[n(0)]
    pub name: String,
    /// The interface's own one-line description.
    #[n(1)]
    pub title: String,
}

/// Asks for a page of the functions served.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct ListRequest {
    /// Index of the first function of the page.
    #[n(0)]
    pub(crate) from: u32,
}

/// Asks for the functions of an interface file to be served.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct RegisterRequest {
    /// Where it is; names of libraries are relative to its folder.
    #[n(0)]
    pub(crate) path: String,
    /// What it says, after the preprocessor.
    #[n(1)]
    pub(crate) text: String,
}

/// Asks for an interface by name, qualified or not.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct DescribeRequest {
    #[n(0)]
    pub(crate) name: String,
}

/// The call has been computed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct ResultMessage {
    /// Length of the result stream in bytes.
    #[n(0)]
    pub(crate) data_bytes: u64,
}

/// Asks for shared memory, or says that it is there.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct MemoryMessage {
    #[n(0)]
    pub(crate) bytes: u64,
}

/// Asks for an object.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct NewRequest {
    /// Name of the class, qualified or not.
    #[n(0)]
    pub(crate) class: String,
}

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct GoodbyeMessage {
    #[n(0)]
    pub(crate) reason: String,
}

/// Answer to a describe request.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct InterfaceMessage {
    /// Number under which calls name the function, valid until the server re-registers it.
    #[n(0)]
    pub(crate) function: u64,
    /// The interface in canonical IDL.
    #[n(1)]
    pub(crate) text: String,
    /// The library behind it: name, version and kernel, for people.
    #[n(2)]
    pub(crate) library: Option<String>,
}

/// How the server stands.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct StandingMessage {
    /// A JSON object; its `schema` says which names it has.
    #[n(0)]
    pub(crate) text: String,
}

/// The server takes no more calls.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct DrainingMessage {
    /// Calls that are to end before it does.
    #[n(0)]
    pub(crate) calls: u64,
}

/// What a call would take, as far as the server has learned it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Encode, Decode)]
pub struct Estimate {
    /// Nanoseconds in the library; none before the first call of the function.
    #[n(0)]
    pub exec: Option<u64>,
    /// Two thirds of the calls lie within `exec` divided and multiplied by this.
    #[n(1)]
    pub factor: Option<f64>,
    /// Nanoseconds until a worker is free, as things stand.
    #[n(2)]
    pub wait: u64,
    /// Bytes per second from the client, and to it; none before the first long transfer.
    #[n(3)]
    pub up: Option<u64>,
    /// See `up`.
    #[n(4)]
    pub down: Option<u64>,
    /// Processor elements of the server.
    #[n(5)]
    pub pes: Option<u32>,
}

/// Opens a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The function, as numbered by its interface message.
    pub function: u64,
    /// One value per parameter, `None` for everything that is not an IN scalar.
    pub scalars: Vec<Option<Scalar>>,
    /// Values of the array elements that dimensions refer to, in the interface's order.
    pub elements: Vec<i64>,
    /// Length of the data stream that follows, in bytes.
    pub data_bytes: u64,
    /// For each array of the interface, where it lies in shared memory instead of travelling;
    /// empty if all travel.
    pub places: Vec<Option<Place>>,
    /// Whether the client wants what the function prints.
    pub output: bool,
    /// Arrays of the interface, by their index among them, that are at the server.
    pub handles: Vec<(u32, HandleId)>,
    /// The object whose method it is, by the request that asked for it.
    pub object: Option<CallId>,
    /// The reservation whose processor elements it has.
    pub reservation: Option<u64>,
}

/// What a call wants besides its results: what the function prints.
const WANTS_OUTPUT: u64 = 1;

impl Call {
    /// Appends the message's CBOR; also the form in which a server hands scalars to a worker.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut encoder = Encoder::new(out);
        // Writing to a Vec cannot fail.
        let _ = encode_call(self, &mut encoder);
    }

    /// Reads the message, with every count bounded before memory is taken for it.
    pub fn decode(bytes: &[u8]) -> Result<Call, MessageError> {
        decode_call(&mut Decoder::new(bytes)).map_err(|error| MessageError(error.to_string()))
    }
}

fn encode_call(call: &Call, e: &mut Encoder<&mut Vec<u8>>) -> Result<(), VecError> {
    let fields = match (call.object, call.output, call.places.is_empty()) {
        _ if call.reservation.is_some() => 9,
        (Some(_), _, _) => 8,
        _ if !call.handles.is_empty() => 7,
        (None, true, _) => 6,
        (None, false, false) => 5,
        (None, false, true) => 4,
    };
    e.array(fields)?.u64(call.function)?;
    encode_scalars(&call.scalars, e)?;
    e.array(call.elements.len() as u64)?;
    for element in &call.elements {
        e.i64(*element)?;
    }
    e.u64(call.data_bytes)?;
    if fields > 4 && call.places.is_empty() {
        e.null()?;
    } else if fields > 4 {
        e.array(call.places.len() as u64)?;
        for place in &call.places {
            match place {
                None => e.null()?,
                Some(Place { segment, offset }) => e.array(2)?.u64(*segment)?.u64(*offset)?,
            };
        }
    }
    if fields > 5 {
        e.u64(if call.output { WANTS_OUTPUT } else { 0 })?;
    }
    if fields > 6 {
        e.array(call.handles.len() as u64)?;
        for (array, handle) in &call.handles {
            e.array(2)?.u32(*array)?.encode(handle)?;
        }
    }
    match call.object {
        Some(object) => e.u64(object)?.ok()?,
        None if fields > 8 => e.null()?.ok()?,
        None => {}
    }
    if let Some(reservation) = call.reservation {
        e.u64(reservation)?;
    }
    Ok(())
}

fn encode_scalars(
    scalars: &[Option<Scalar>],
    e: &mut Encoder<&mut Vec<u8>>,
) -> Result<(), VecError> {
    e.array(scalars.len() as u64)?;
    for scalar in scalars {
        match scalar {
            None => e.null()?,
            Some(Scalar::Int(value)) => e.i64(*value)?,
            Some(Scalar::Float(value)) => e.f64(*value)?,
            Some(Scalar::Complex { re, im }) => e.array(2)?.f64(*re)?.f64(*im)?,
            Some(Scalar::Text(text)) => e.str(text)?,
            Some(Scalar::Texts(texts)) => {
                e.array(texts.len() as u64)?;
                for text in texts {
                    e.str(text)?;
                }
                &mut *e
            }
        };
    }
    Ok(())
}

fn decode_scalars(d: &mut Decoder) -> Result<Vec<Option<Scalar>>, decode::Error> {
    let count = bounded_count(d)?;
    (0..count).map(|_| decode_scalar(d)).collect()
}

type VecError = encode::Error<core::convert::Infallible>;

fn decode_call(d: &mut Decoder) -> Result<Call, decode::Error> {
    let Some(fields @ 4..) = d.array()? else {
        return Err(decode::Error::message("a call has at least four fields"));
    };
    let function = d.u64()?;
    let scalars = decode_scalars(d)?;
    let count = bounded_count(d)?;
    let elements = (0..count).map(|_| d.i64()).collect::<Result<_, _>>()?;
    let data_bytes = d.u64()?;
    let count = match fields {
        ..=4 => 0,
        _ if d.datatype()? == Type::Null => d.null().map(|()| 0)?,
        _ => bounded_count(d)?,
    };
    let places = (0..count)
        .map(|_| decode_place(d))
        .collect::<Result<_, _>>()?;
    let wants = match fields {
        ..=5 => 0,
        _ if d.datatype()? == Type::Null => d.null().map(|()| 0)?,
        _ => d.u64()?,
    };
    let count = match fields {
        ..=6 => 0,
        _ if d.datatype()? == Type::Null => d.null().map(|()| 0)?,
        _ => bounded_count(d)?,
    };
    let handles = (0..count)
        .map(|_| decode_use(d))
        .collect::<Result<_, _>>()?;
    let object = match fields {
        ..=7 => None,
        _ => d.decode()?,
    };
    let reservation = match fields {
        ..=8 => None,
        _ => d.decode()?,
    };
    Ok(Call {
        function,
        scalars,
        elements,
        data_bytes,
        places,
        output: wants & WANTS_OUTPUT != 0,
        handles,
        object,
        reservation,
    })
}

fn decode_use(d: &mut Decoder) -> Result<(u32, HandleId), decode::Error> {
    if d.array()? != Some(2) {
        return Err(decode::Error::message("the use of a handle has two parts"));
    }
    Ok((d.u32()?, d.decode()?))
}

fn decode_place(d: &mut Decoder) -> Result<Option<Place>, decode::Error> {
    if d.datatype()? == Type::Null {
        d.null()?;
        return Ok(None);
    }
    if d.array()? != Some(2) {
        return Err(decode::Error::message("a place has two parts"));
    }
    Ok(Some(Place {
        segment: d.u64()?,
        offset: d.u64()?,
    }))
}

fn bounded_count(d: &mut Decoder) -> Result<u64, decode::Error> {
    match d.array()? {
        Some(count) if count <= MAX_SCALARS => Ok(count),
        _ => Err(decode::Error::message(
            "too many values, or their number is not given",
        )),
    }
}

fn decode_scalar(d: &mut Decoder) -> Result<Option<Scalar>, decode::Error> {
    Ok(Some(match d.datatype()? {
        Type::Null => {
            d.null()?;
            return Ok(None);
        }
        Type::F16 | Type::F32 | Type::F64 => Scalar::Float(d.f64()?),
        Type::String => Scalar::Text(d.str()?.into()),
        Type::Array => {
            let count = d.array()?;
            let is_texts = count == Some(0) || d.datatype()? == Type::String;
            match count {
                Some(count) if is_texts && count <= MOST_TEXTS as u64 => {
                    let text = |_| Ok(d.str()?.into());
                    Scalar::Texts((0..count).map(text).collect::<Result<_, _>>()?)
                }
                Some(2) if !is_texts => Scalar::Complex {
                    re: d.f64()?,
                    im: d.f64()?,
                },
                _ => {
                    let text = "a complex value has two parts, an array of texts not so many";
                    return Err(decode::Error::message(text));
                }
            }
        }
        _ => Scalar::Int(d.i64()?),
    }))
}

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
        decode_callback(&mut decoder, big_endian).map_err(|error| MessageError(error.to_string()))
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
            .map_err(|error| MessageError(error.to_string()))
    }
}

/// How long the parts of a call took, in nanoseconds: the split of the second Ninf paper
/// (section 4.2), seen from the serving side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Times {
    /// From the call's first byte to the end of its data stream.
    #[n(0)]
    pub send: u64,
    /// From the end of the data stream to the start of the library.
    #[n(1)]
    pub wait: u64,
    /// The library alone.
    #[n(2)]
    pub exec: u64,
    /// From the first to the last byte of the result handed to the transport.
    #[n(3)]
    pub recv: u64,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind of failure.
    #[n(0)]
    pub kind: FailureKind,
    /// What happened and what to do, for the user's eyes.
    #[n(1)]
    pub message: String,
    /// With [`FailureKind::NotFree`]: milliseconds from now after which it can be had.
    #[n(2)]
    pub earliest: Option<u64>,
}

/// Kinds of failure a server reports, by their numbers on the wire. A number that is not known
/// here, from a newer peer, is read as [`FailureKind::Internal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FailureKind {
    /// No such function.
    UnknownFunction = 1,
    /// The function was registered anew since its interface was fetched.
    StaleInterface = 2,
    /// An argument does not fit the interface.
    BadArgument = 3,
    /// The call is larger than the server allows.
    TooLarge = 4,
    /// The server has no room for the call now.
    Busy = 5,
    /// The library crashed, ended its process, or did not keep to its interface.
    LibraryCrashed = 6,
    /// The library ran past its time limit.
    TimeLimit = 7,
    /// The library ran past its memory limit.
    OutOfMemory = 8,
    /// The client asked for it.
    Cancelled = 9,
    /// The server is going down.
    ServerStopping = 10,
    /// A fault of the server itself.
    Internal = 11,
    /// The function ran and said that it failed.
    FunctionFailed = 12,
    /// The client did not answer a callback in time.
    NoAnswer = 13,
    /// The object whose method it is has lost its process, and its state.
    ObjectLost = 14,
    /// The client did not go on to send the arguments.
    Stalled = 15,
    /// No such job or handle, or none of this user.
    NotFound = 18,
    /// The user has as much at the server as is allowed.
    QuotaExceeded = 19,
    /// The server's disk is full, or does not keep what it was given.
    StorageFault = 20,
    /// A submitted call was running when the server ended, and may not be run again.
    OutcomeUnknown = 21,
    /// The user may not do this.
    NotAllowed = 22,
    /// Another server does not answer, or does not give what it was asked for.
    Unreachable = 24,
    /// No server can have the call now.
    NoServer = 30,
    /// What is to be reserved is not free at that time.
    NotFree = 32,
    /// The server has no lease: it is to join the directory anew.
    NotJoined = 31,
    /// The server takes no more calls; a new connection may lead to the one that follows it.
    Draining = 26,
}

impl<C> Encode<C> for FailureKind {
    fn encode<W: encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.u8(*self as u8)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for FailureKind {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Ok(FailureKind::from_number(d.u32()?))
    }
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The caller's arguments or wishes.
    Caller,
    /// The called library.
    Library,
    /// The serving machine or Farcall itself.
    Machine,
}

impl FailureKind {
    /// Every kind.
    pub const ALL: [FailureKind; 25] = {
        use FailureKind::*;
        [
            UnknownFunction,
            StaleInterface,
            BadArgument,
            TooLarge,
            Busy,
            LibraryCrashed,
            TimeLimit,
            OutOfMemory,
            Cancelled,
            ServerStopping,
            Internal,
            FunctionFailed,
            NoAnswer,
            ObjectLost,
            Stalled,
            NotFound,
            QuotaExceeded,
            StorageFault,
            OutcomeUnknown,
            NotAllowed,
            Unreachable,
            NoServer,
            NotJoined,
            Draining,
            NotFree,
        ]
    };

    /// The kind of that number; [`FailureKind::Internal`] if it is not known here.
    pub fn from_number(number: u32) -> FailureKind {
        let known = FailureKind::ALL.into_iter();
        let mut known = known.filter(|kind| u32::from(*kind as u8) == number);
        known.next().unwrap_or(FailureKind::Internal)
    }

    /// Its name, as the specification has it.
    pub fn name(self) -> &'static str {
        use FailureKind::*;
        match self {
            UnknownFunction => "UnknownFunction",
            StaleInterface => "StaleInterface",
            BadArgument => "BadArgument",
            TooLarge => "TooLarge",
            Busy => "Busy",
            LibraryCrashed => "LibraryCrashed",
            TimeLimit => "TimeLimit",
            OutOfMemory => "OutOfMemory",
            Cancelled => "Cancelled",
            ServerStopping => "ServerStopping",
            Internal => "Internal",
            FunctionFailed => "FunctionFailed",
            NoAnswer => "NoAnswer",
            ObjectLost => "ObjectLost",
            Stalled => "Stalled",
            NotFound => "NotFound",
            QuotaExceeded => "QuotaExceeded",
            StorageFault => "StorageFault",
            OutcomeUnknown => "OutcomeUnknown",
            NotAllowed => "NotAllowed",
            Unreachable => "Unreachable",
            NoServer => "NoServer",
            NotJoined => "NotJoined",
            Draining => "Draining",
            NotFree => "NotFree",
        }
    }

    /// Whose fault this kind is.
    pub fn fault(self) -> Fault {
        use FailureKind::*;
        match self {
            UnknownFunction | StaleInterface | BadArgument | TooLarge | Cancelled | NoAnswer
            | Stalled | NotFound | QuotaExceeded | NotAllowed => Fault::Caller,
            LibraryCrashed | TimeLimit | OutOfMemory | FunctionFailed | ObjectLost => {
                Fault::Library
            }
            Busy | ServerStopping | Draining | Internal | StorageFault | OutcomeUnknown
            | Unreachable | NoServer | NotJoined | NotFree => Fault::Machine,
        }
    }
}

impl Failure {
    /// A failure with its text.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure {
            kind,
            message: message.into(),
            earliest: None,
        }
    }
}

/// What a function has printed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct OutputMessage {
    #[cbor(n(0), with = "minicbor::bytes")]
    pub(crate) data: Vec<u8>,
}

/// A number: that of what is asked for, or the one after which a page begins.
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

/// Decodes the payload of a call frame.
pub(crate) fn parse_call(payload: &[u8]) -> Result<Call, ProtocolError> {
    parse_with(Kind::Call, Call::decode(payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn call_round_trip() {
        let call = Call {
            function: 3,
            scalars: vec![
                Some(Scalar::Int(-5)),
                None,
                Some(Scalar::Float(0.5)),
                Some(Scalar::Complex { re: 1.0, im: -2.0 }),
                Some(Scalar::Text("abc".into())),
                Some(Scalar::Texts(vec!["one".into(), "".into(), "three".into()])),
                Some(Scalar::Texts(vec![])),
            ],
            elements: vec![17],
            data_bytes: 1 << 40,
            places: vec![
                None,
                Some(Place {
                    segment: 2,
                    offset: 64,
                }),
            ],
            output: false,
            handles: vec![],
            object: None,
            reservation: None,
        };
        let without_places = Call {
            places: vec![],
            ..call.clone()
        };
        for call in [call, without_places] {
            let handles = [vec![], vec![(1, HandleId([9; 16]))]];
            for (output, object) in [
                (false, None),
                (true, None),
                (false, Some(7)),
                (true, Some(7)),
            ] {
                let handles = handles[usize::from(output)].clone();
                for reservation in [None, Some(3)] {
                    let call = Call {
                        output,
                        object,
                        reservation,
                        handles: handles.clone(),
                        ..call.clone()
                    };
                    let mut bytes = Vec::new();
                    call.encode(&mut bytes);
                    assert_eq!(Call::decode(&bytes), Ok(call));
                }
            }
        }
    }

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

    #[test]
    fn counts_are_bounded_before_memory_is_taken() {
        // [1, [2^32 - 1 scalars...
        let bytes = [0x84, 0x01, 0x9a, 0xff, 0xff, 0xff, 0xff];
        assert!(Call::decode(&bytes).is_err());
    }

    #[test]
    fn versions_without_overlap_are_refused() {
        let mut hello = Hello::new("test");
        hello.version_min = VERSION_MAX + 1;
        hello.version_max = VERSION_MAX + 3;
        assert!(matches!(hello.agree(), Err(ProtocolError::Version { .. })));
        hello.version_min = VERSION_MIN;
        assert_eq!(hello.agree(), Ok(VERSION_MAX));
    }
}
