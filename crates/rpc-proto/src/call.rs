//! Messages of a call: what opens it, what its function prints, how it ends. `client::calls` and
//! `server::calls` know when such a message is allowed. Decoding checks each count before it takes
//! memory for it.

use crate::ids::HandleId;
use crate::message::{self, MessageError};
use crate::scalars::{VecError, bounded_count, decode_scalars, encode_scalars};
use crate::trace::{self, TraceContext};
use crate::{CallId, Kind, ProtocolError};
use alloc::string::String;
use alloc::vec::Vec;
use farcall_idl::{Scalar, SharedRange};
use minicbor::data::Type;
use minicbor::{Decode, Decoder, Encode, Encoder, decode};

/// Feature bit: calls may ask for what the function prints.
pub const OUTPUT: u64 = 1 << 2;
/// Feature bit: calls may have deadlines.
pub const DEADLINES: u64 = 1 << 25;

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
    pub places: Vec<Option<SharedRange>>,
    /// Whether the client wants what the function prints.
    pub output: bool,
    /// Arrays of the interface, by their index among them, that are at the server.
    pub handles: Vec<(u32, HandleId)>,
    /// The object whose method it is, by the request that asked for it.
    pub object: Option<CallId>,
    /// The reservation whose processor elements it has.
    pub reservation: Option<u64>,
    /// The trace that it belongs to.
    pub trace: Option<TraceContext>,
    /// Milliseconds from its arrival at the server within which it must end. A call has this or a
    /// reservation.
    pub before: Option<u64>,
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
        decode_call(&mut Decoder::new(bytes)).map_err(MessageError::new)
    }
}

/// Decodes the payload of a call frame.
pub(crate) fn parse_call(payload: &[u8]) -> Result<Call, ProtocolError> {
    message::parse_with(Kind::Call, Call::decode(payload))
}

fn encode_call(call: &Call, e: &mut Encoder<&mut Vec<u8>>) -> Result<(), VecError> {
    let fields = match (call.object, call.output, call.places.is_empty()) {
        _ if call.trace.is_some() => 10,
        _ if call.reservation.or(call.before).is_some() => 9,
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
                Some(SharedRange { segment, offset }) => e.array(2)?.u64(*segment)?.u64(*offset)?,
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
    match (call.reservation, call.before) {
        (Some(reservation), _) => e.u64(reservation)?.ok()?,
        (None, Some(before)) => e.array(1)?.u64(before)?.ok()?,
        (None, None) if fields > 9 => e.null()?.ok()?,
        (None, None) => {}
    }
    if call.trace.is_some() {
        trace::encode(&call.trace, e, &mut ())?;
    }
    Ok(())
}

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
    let (reservation, before) = match fields {
        ..=8 => (None, None),
        _ if d.datatype()? == Type::Array => (None, Some(decode_before(d)?)),
        _ => (d.decode()?, None),
    };
    let trace = match fields {
        ..=9 => None,
        _ => trace::decode(d, &mut ())?,
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
        trace,
        before,
    })
}

fn decode_before(d: &mut Decoder) -> Result<u64, decode::Error> {
    match d.array()? {
        Some(1) => d.u64(),
        _ => Err(decode::Error::message("a deadline has one part")),
    }
}

fn decode_use(d: &mut Decoder) -> Result<(u32, HandleId), decode::Error> {
    if d.array()? != Some(2) {
        return Err(decode::Error::message("the use of a handle has two parts"));
    }
    Ok((d.u32()?, d.decode()?))
}

fn decode_place(d: &mut Decoder) -> Result<Option<SharedRange>, decode::Error> {
    if d.datatype()? == Type::Null {
        d.null()?;
        return Ok(None);
    }
    if d.array()? != Some(2) {
        return Err(decode::Error::message("a place has two parts"));
    }
    Ok(Some(SharedRange {
        segment: d.u64()?,
        offset: d.u64()?,
    }))
}

/// What a function has printed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct OutputMessage {
    #[cbor(n(0), with = "minicbor::bytes")]
    pub(crate) data: Vec<u8>,
}

/// The call has been computed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct ResultMessage {
    /// Length of the result stream in bytes.
    #[n(0)]
    pub(crate) data_bytes: u64,
}

/// What has computed a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Made {
    /// Threads of the library.
    #[n(0)]
    pub threads: u32,
    /// The library, with version and kernel, if it may differ from the one that the server
    /// described with the function.
    #[n(1)]
    pub library: Option<String>,
}

/// How long the parts of a call took, in nanoseconds: the split of the second Ninf paper
/// (section 4.2), seen from the serving side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
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
    /// What has computed the call; servers before this field do not say it.
    #[n(4)]
    pub made: Option<Made>,
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
                Some(SharedRange {
                    segment: 2,
                    offset: 64,
                }),
            ],
            output: false,
            handles: vec![],
            object: None,
            reservation: None,
            trace: None,
            before: None,
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
                for (reservation, before, is_traced) in [
                    (None, None, false),
                    (Some(3), None, false),
                    (None, Some(70), false),
                    (None, None, true),
                    (None, Some(70), true),
                ] {
                    let trace = TraceContext::new([1; 16], [2; 8]).filter(|_| is_traced);
                    let call = Call {
                        output,
                        object,
                        reservation,
                        trace,
                        before,
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
    fn counts_are_bounded_before_memory_is_taken() {
        // [1, [2^32 - 1 scalars...
        let bytes = [0x84, 0x01, 0x9a, 0xff, 0xff, 0xff, 0xff];
        assert!(Call::decode(&bytes).is_err());
    }
}
