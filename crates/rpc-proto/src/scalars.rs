//! Encodes the scalars of calls and callbacks in CBOR. It does not check whether the values fit an
//! interface. A list must state its length, and a list that is too long is refused before memory is
//! taken for it.

use alloc::vec::Vec;
use farcall_idl::{MOST_TEXTS, Scalar};
use minicbor::data::Type;
use minicbor::{Decoder, Encoder, decode, encode};

/// Most scalars and element values a call may carry.
const MAX_SCALARS: u64 = 4096;

pub(crate) type VecError = encode::Error<core::convert::Infallible>;

pub(crate) fn encode_scalars(
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

pub(crate) fn decode_scalars(d: &mut Decoder) -> Result<Vec<Option<Scalar>>, decode::Error> {
    let count = bounded_count(d)?;
    (0..count).map(|_| decode_scalar(d)).collect()
}

pub(crate) fn bounded_count(d: &mut Decoder) -> Result<u64, decode::Error> {
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
