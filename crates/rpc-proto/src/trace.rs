//! Trace context (W3C): the trace that a call belongs to, and the span that has caused it. It
//! travels with calls, durable calls and placements. Nothing that is decided depends on it, so a
//! receiver ignores a context that it cannot read, as the W3C asks. `tracestate` does not travel.

use core::fmt;
use core::str::FromStr;
use minicbor::data::Type;
use minicbor::decode::Error as DecodeError;
use minicbor::encode::{Error as EncodeError, Write};
use minicbor::{Decoder, Encoder};

/// Feature bit: calls, durable calls and placements may say which trace they belong to.
pub const TRACES: u64 = 1 << 23;

/// The flag of a trace whose spans are wanted.
const SAMPLED: u8 = 1;
/// The flags that version 00 defines.
const KNOWN: u8 = 3;
/// Characters of a `traceparent` of version 00.
const CHARACTERS: usize = 55;

/// The trace that a call belongs to, and the span that has caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace: [u8; 16],
    span: [u8; 8],
    flags: u8,
}

/// Why a text is not a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a traceparent is 00-, 32 hexadecimal digits in lower case for the trace, -, 16 for the span, \
     -, and 2 for the flags; neither id is 0"
)]
pub struct NoTraceContext;

impl TraceContext {
    /// Bytes on the wire: the ids of the trace and of the span, and the flags.
    pub const BYTES: usize = 25;

    /// A context whose spans are wanted; `None` if an id is 0.
    pub fn new(trace: [u8; 16], span: [u8; 8]) -> Option<TraceContext> {
        TraceContext::with_flags(trace, span, SAMPLED)
    }

    /// A context with the flags of a `traceparent`; `None` if an id is 0.
    pub fn with_flags(trace: [u8; 16], span: [u8; 8], flags: u8) -> Option<TraceContext> {
        let flags = flags & KNOWN;
        let is_valid = trace != [0; 16] && span != [0; 8];
        is_valid.then_some(TraceContext { trace, span, flags })
    }

    /// The id of the trace.
    pub fn trace(&self) -> [u8; 16] {
        self.trace
    }

    /// The id of the span that has caused the call.
    pub fn span(&self) -> [u8; 8] {
        self.span
    }

    /// Whether somebody wants the spans of the trace.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The same trace with another span; the same context if the id of the span is 0.
    #[must_use]
    pub fn under(self, span: [u8; 8]) -> TraceContext {
        TraceContext::with_flags(self.trace, span, self.flags).unwrap_or(self)
    }

    /// The id of the trace in hexadecimal digits, as an object to print.
    pub fn trace_hex(&self) -> impl fmt::Display {
        Hex(self.trace)
    }

    /// The bytes on the wire.
    pub fn to_bytes(&self) -> [u8; TraceContext::BYTES] {
        let mut bytes = [0; TraceContext::BYTES];
        bytes[..16].copy_from_slice(&self.trace);
        bytes[16..24].copy_from_slice(&self.span);
        bytes[24] = self.flags;
        bytes
    }

    /// Reads bytes from the wire; `None` if they are no context.
    pub fn from_bytes(bytes: &[u8]) -> Option<TraceContext> {
        let (trace, rest) = bytes.split_first_chunk()?;
        let (span, flags) = rest.split_first_chunk()?;
        let [flags] = flags else { return None };
        TraceContext::with_flags(*trace, *span, *flags)
    }
}

/// Bytes as hexadecimal digits.
struct Hex<const N: usize>([u8; N]);

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (Hex(self.trace), Hex(self.span));
        write!(f, "00-{trace}-{span}-{:02x}", self.flags)
    }
}

impl FromStr for TraceContext {
    type Err = NoTraceContext;

    /// Reads a `traceparent`. Later versions may add fields at the end.
    fn from_str(text: &str) -> Result<TraceContext, NoTraceContext> {
        let text = text.as_bytes();
        let (head, rest) = text.split_at_checked(CHARACTERS).ok_or(NoTraceContext)?;
        let [version] = hex(&head[..2])?;
        let (trace, span, [flags]) = (hex(&head[3..35])?, hex(&head[36..52])?, hex(&head[53..])?);
        let is_divided = [head[2], head[35], head[52]] == [b'-'; 3];
        let is_whole = match version {
            0 => rest.is_empty(),
            255 => false,
            _ => rest.first().is_none_or(|next| *next == b'-'),
        };
        let read = TraceContext::with_flags(trace, span, flags);
        read.filter(|_| is_divided && is_whole)
            .ok_or(NoTraceContext)
    }
}

/// Reads hexadecimal digits in lower case.
fn hex<const N: usize>(digits: &[u8]) -> Result<[u8; N], NoTraceContext> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(NoTraceContext),
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(bytes)
}

/// Writes a context as the field of a message, for the derived messages of other crates.
///
/// # Errors
/// The writer fails.
pub fn encode<C, W: Write>(
    context: &Option<TraceContext>,
    e: &mut Encoder<W>,
    _: &mut C,
) -> Result<(), EncodeError<W::Error>> {
    match context {
        Some(context) => e.bytes(&context.to_bytes())?.ok(),
        None => e.null()?.ok(),
    }
}

/// Reads such a field. Anything that is no context reads as none.
///
/// # Errors
/// The bytes are not CBOR.
pub fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Option<TraceContext>, DecodeError> {
    match d.datatype()? {
        Type::Bytes => Ok(TraceContext::from_bytes(d.bytes()?)),
        _ => d.skip().map(|()| None),
    }
}

/// The value of a field that is missing.
pub fn nil() -> Option<Option<TraceContext>> {
    Some(None)
}

/// Whether a field may be left out.
pub fn is_nil(context: &Option<TraceContext>) -> bool {
    context.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0b8902b7-01";

    #[test]
    fn a_context_is_read_as_the_w3c_says() {
        let context: TraceContext = TEXT.parse().unwrap();
        assert_eq!(context.to_string(), TEXT);
        assert!(context.is_sampled());
        assert_eq!(context.trace_hex().to_string(), &TEXT[3..35]);
        let quiet: TraceContext = TEXT.replace("-01", "-00").parse().unwrap();
        assert!(!quiet.is_sampled());
        // A later version has more fields, and other flags.
        let later = TEXT.replace("00-4", "cc-4").replace("-01", "-ff") + "-more";
        let later: TraceContext = later.parse().unwrap();
        assert_eq!(later.to_string(), TEXT.replace("-01", "-03"));
        assert_eq!(TraceContext::from_bytes(&context.to_bytes()), Some(context));
        let other = context.under([1; 8]);
        assert_eq!((other.trace(), other.span()), (context.trace(), [1; 8]));
    }

    #[test]
    fn whatever_else_is_no_context() {
        let zeros = "0".repeat(32);
        for text in [
            "",
            "00",
            &TEXT[..54],
            &TEXT.to_uppercase(),
            &TEXT.replace("00-4", "ff-4"),
            &TEXT.replace('-', "_"),
            &TEXT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &zeros),
            &TEXT.replace("00f067aa0b8902b7", &zeros[..16]),
            &(TEXT.to_string() + "-more"),
            &TEXT.replace("00-4", "01-4").replace("-01", "-01more"),
            &TEXT.replace('4', "é"),
        ] {
            assert_eq!(text.parse::<TraceContext>(), Err(NoTraceContext), "{text}");
        }
        for bytes in [&[1; 24][..], &[1; 26], &[0; 25], &[]] {
            assert_eq!(TraceContext::from_bytes(bytes), None);
        }
    }

    #[test]
    fn a_field_that_is_no_context_is_passed_over() {
        for value in [
            &b"\x18\x2a"[..],
            b"\x42ab",
            b"\xf6",
            b"\x82\x01\x02",
            b"\x63abc",
        ] {
            let message: Vec<u8> = [value, b"\x07"].concat();
            let mut decoder = Decoder::new(&message);
            assert_eq!(decode(&mut decoder, &mut ()).unwrap(), None);
            assert_eq!(decoder.u8().unwrap(), 7);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,80}") {
            if let Ok(context) = text.parse::<TraceContext>() {
                prop_assert_eq!(context.to_string().parse(), Ok(context));
            }
        }
    }
}
