//! Numbers with units, as users write them on command lines and in specifications: `64KB`, `1GB/s`,
//! `100Mbit/s`, `10ms`.
//!
//! Units are decimal: 1 KB is 1000 bytes. `KiB`, `MiB`, `GiB` are powers of 1024. Bits are
//! converted to bytes.
#![no_std]

extern crate alloc;

use alloc::format;
use alloc::string::String;
use core::time::Duration;

/// What errors say of the units.
const UNITS: &str = "B, KB, MB, GB, TB, KiB, MiB, GiB, Kbit, Mbit, Gbit, s, ms, us, ns";
/// Whole numbers up to this one are exact as `f64`.
const MOST_EXACT: f64 = (1u64 << 53) as f64;

/// The quantity that a number measures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Bytes,
    Rate,
    Time,
}

/// A number of things in words: `1 function`, `2 functions`.
///
/// ```
/// assert_eq!(farcall_quantity::counted(1, "function"), "1 function");
/// assert_eq!(farcall_quantity::counted(0, "error"), "0 errors");
/// ```
pub fn counted(count: usize, thing: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{ending}")
}

/// Reads an amount or a rate with an optional unit: `1e9`, `1GB/s`, `20KB`, `100Mbit/s`. Returns
/// bytes or bytes per second.
///
/// # Errors
/// The error says which form the text must have. A time is none.
pub fn amount(text: &str) -> Result<f64, String> {
    match read(text)? {
        (value, Kind::Plain | Kind::Bytes | Kind::Rate) => Ok(value),
        (_, Kind::Time) => Err(format!("`{text}` is a time: write 1e9, 20KB or 1GB/s")),
    }
}

/// Reads an amount with an optional unit: `1e6`, `20KB`, `1.5MiB`. Returns bytes, whole or not.
///
/// # Errors
/// The error says which form the text must have. A rate and a time are none.
pub fn volume(text: &str) -> Result<f64, String> {
    match read(text)? {
        (value, Kind::Plain | Kind::Bytes) => Ok(value),
        (_, Kind::Rate) => Err(format!("`{text}` is a rate: write 1e6, 20KB or 1GB")),
        (_, Kind::Time) => Err(format!("`{text}` is a time: write 1e6, 20KB or 1GB")),
    }
}

/// Rounds a rate that somebody wants down to whole bytes per second. `text` is what they wrote.
///
/// # Errors
/// The rate would become 0, which means none.
pub fn whole_rate(rate: f64, text: &str) -> Result<u64, String> {
    match rate > 0.0 && rate < 1.0 {
        true => Err(format!(
            "{text} is less than 1 byte/s; write a rate such as 5e6, 5MB/s or 40Mbit/s"
        )),
        false => Ok(rate as u64),
    }
}

/// Reads a time with an optional unit: `0.5`, `5us`, `2ms`. Returns seconds.
///
/// # Errors
/// The error says which form the text must have. Bytes are none.
pub fn seconds(text: &str) -> Result<f64, String> {
    match read(text)? {
        (value, Kind::Plain | Kind::Time) => Ok(value),
        _ => Err(format!("`{text}` is not a time: write 0.5s, 2ms or 5us")),
    }
}

/// Reads a number, or a text with a unit of bytes or bytes per second, from a file.
///
/// # Errors
/// The value is neither.
#[cfg(feature = "serde")]
pub fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    given(deserializer, amount)
}

/// Reads a number of seconds, or a text with a unit of time, from a file.
///
/// # Errors
/// The value is neither.
#[cfg(feature = "serde")]
pub fn time<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    given(deserializer, seconds)
}

/// The same as [`number`], but rounded down and not negative: bytes per second.
///
/// # Errors
/// The value is not such a number.
#[cfg(feature = "serde")]
pub fn whole<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let rate = number(deserializer)?;
    match rate.is_finite() && rate >= 0.0 {
        true => Ok(rate as u64),
        false => Err(serde::de::Error::custom(format!("{rate} bytes per second"))),
    }
}

/// Reads a number of bytes, or a text with a unit of bytes, from a file.
///
/// # Errors
/// The value is neither, or it is negative.
#[cfg(feature = "serde")]
pub fn size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    use serde::de::Error;
    let wrong = |value| D::Error::custom(format!("`{value}` is not a number of bytes"));
    match serde::Deserialize::deserialize(deserializer)? {
        Given::Whole(number) => u64::try_from(number).map_err(|_| wrong(number as f64)),
        Given::Number(number) if is_whole(number) => Ok(number as u64),
        Given::Number(number) => Err(wrong(number)),
        Given::Text(text) => bytes(&text).map_err(D::Error::custom),
    }
}

/// Reads a number from a file that is 0 or more, such as a number of seconds.
///
/// # Errors
/// The value is no number, or it is negative or NaN.
#[cfg(feature = "serde")]
pub fn from_zero<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    bounded(deserializer, |number| number >= 0.0, "0 or more")
}

/// Reads a number from a file that is more than 0, such as the hours for which results are kept.
///
/// # Errors
/// The value is no number, or it is 0, negative or NaN.
#[cfg(feature = "serde")]
pub fn above_zero<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    bounded(deserializer, |number| number > 0.0, "more than 0")
}

#[cfg(feature = "serde")]
fn bounded<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
    is_right: fn(f64) -> bool,
    wanted: &str,
) -> Result<f64, D::Error> {
    let number: f64 = serde::Deserialize::deserialize(deserializer)?;
    match is_right(number) {
        true => Ok(number),
        false => Err(serde::de::Error::custom(format!(
            "`{number}`: write a number that is {wanted}"
        ))),
    }
}

#[cfg(feature = "serde")]
fn given<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
    read: fn(&str) -> Result<f64, String>,
) -> Result<f64, D::Error> {
    match serde::Deserialize::deserialize(deserializer)? {
        Given::Whole(number) => Ok(number as f64),
        Given::Number(number) => Ok(number),
        Given::Text(text) => read(&text).map_err(serde::de::Error::custom),
    }
}

/// What a file gives for a quantity.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "expected a number, or a text with a unit")]
enum Given {
    Whole(i64),
    Number(f64),
    Text(String),
}

/// Reads a number of bytes: `65536`, `64KB`, `2MB`, `1GiB`.
///
/// # Errors
/// The error says which form the text must have.
pub fn bytes(text: &str) -> Result<u64, String> {
    let size = match read(text) {
        Ok((value, Kind::Plain)) if is_whole(value) => Some(value as u64),
        Ok((value, Kind::Bytes)) => whole_bytes(value),
        _ => None,
    };
    size.ok_or_else(|| format!("`{text}` is not a size: write 65536, 64KB, 2MB or 1GB"))
}

/// The whole number that a product with a unit is, apart from its rounding: in floating point, 16.1
/// times 1000 is not 16100.
fn whole_bytes(value: f64) -> Option<u64> {
    if is_whole(value) {
        return Some(value as u64);
    }
    let near = (value + 0.5) as u64 as f64;
    let rounding = 2.0 * f64::EPSILON * value;
    (is_whole(near) && near - value <= rounding && value - near <= rounding).then_some(near as u64)
}

/// Reads a time: `100ms`, `0.5s`, `20us`.
///
/// # Errors
/// The error says which form the text must have.
pub fn duration(text: &str) -> Result<Duration, String> {
    let time = match read(text) {
        Ok((value, Kind::Time)) => Duration::try_from_secs_f64(value).ok(),
        _ => None,
    };
    time.ok_or_else(|| format!("`{text}` is not a time: write 100ms or 0.5s"))
}

fn is_whole(value: f64) -> bool {
    value <= MOST_EXACT && value as u64 as f64 == value
}

fn read(text: &str) -> Result<(f64, Kind), String> {
    let text = text.trim();
    let (number, unit) = text.split_at(number_ends(text));
    let unit = unit.trim();
    let known = factor(unit);
    if known.is_none() && !number.is_empty() {
        return Err(format!("`{text}`: unknown unit `{unit}`; {UNITS}"));
    }
    match (number.parse::<f64>(), known) {
        (Ok(value), Some((factor, divisor, kind)))
            if (value * factor).is_finite() && value >= 0.0 =>
        {
            Ok((value * factor / divisor, kind))
        }
        _ => Err(format!(
            "`{text}`: expected a number of 0 or more, such as 1e9, 20KB, 1GB/s or 5ms"
        )),
    }
}

/// Position at which the unit begins.
fn number_ends(text: &str) -> usize {
    let begins_unit = |&(at, c): &(usize, char)| {
        let next = text[at + c.len_utf8()..].chars().next();
        let exponent = matches!(c, 'e' | 'E')
            && next.is_some_and(|next| next.is_ascii_digit() || next == '-' || next == '+');
        !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-') || exponent)
    };
    text.char_indices()
        .find(begins_unit)
        .map_or(text.len(), |(at, _)| at)
}

/// The multiplier and the divisor of a unit. Both are exact.
fn factor(unit: &str) -> Option<(f64, f64, Kind)> {
    let (factor, divisor) = match unit {
        "" => return Some((1.0, 1.0, Kind::Plain)),
        "s" => return Some((1.0, 1.0, Kind::Time)),
        "ms" => return Some((1.0, 1e3, Kind::Time)),
        "us" => return Some((1.0, 1e6, Kind::Time)),
        "ns" => return Some((1.0, 1e9, Kind::Time)),
        unit => match unit.strip_suffix("/s").unwrap_or(unit) {
            "" | "B" => (1.0, 1.0),
            "KB" | "kB" => (1e3, 1.0),
            "MB" => (1e6, 1.0),
            "GB" => (1e9, 1.0),
            "TB" => (1e12, 1.0),
            "Kbit" | "kbit" => (1e3, 8.0),
            "Mbit" => (1e6, 8.0),
            "Gbit" => (1e9, 8.0),
            "KiB" => (1024.0, 1.0),
            "MiB" => (1048576.0, 1.0),
            "GiB" => (1073741824.0, 1.0),
            _ => return None,
        },
    };
    let kind = match unit.ends_with("/s") {
        true => Kind::Rate,
        false => Kind::Bytes,
    };
    Some((factor, divisor, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_decimal_units() {
        for (text, value) in [
            ("1e9", 1e9),
            ("1GB/s", 1e9),
            ("20KB", 2e4),
            ("100Mbit/s", 1.25e7),
            ("1.5MiB", 1572864.0),
        ] {
            assert_eq!(amount(text), Ok(value));
        }
        for wrong in [
            "-1",
            "1 furlong",
            "",
            "é",
            "64KBKB",
            "1GB/s/s",
            "1ms/s",
            "5us",
        ] {
            assert!(amount(wrong).is_err(), "{wrong}");
        }
        for (wrong, why) in [
            ("size", "expected a number"),
            ("5kb", "KiB"),
            ("5min", "ns"),
        ] {
            assert!(amount(wrong).unwrap_err().contains(why), "{wrong}");
        }
        assert_eq!((volume("20KB"), volume("0.5")), (Ok(2e4), Ok(0.5)));
        for wrong in ["20KB/s", "5us", "-1"] {
            assert!(volume(wrong).is_err(), "{wrong}");
        }
        assert_eq!((seconds("5us"), seconds("0.5")), (Ok(5e-6), Ok(0.5)));
        for wrong in ["-1s", "1KB", "1GB/s", "1 furlong"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_are_whole_numbers_and_not_times() {
        assert_eq!(bytes("64KB"), Ok(64_000));
        assert_eq!(bytes("65536"), Ok(65_536));
        assert_eq!(bytes("1.5MB"), Ok(1_500_000));
        // Their products are not whole numbers in floating point.
        assert_eq!(bytes("16.1KB"), Ok(16_100));
        assert_eq!(bytes("4.1MB"), Ok(4_100_000));
        assert_eq!(bytes("2.01GB"), Ok(2_010_000_000));
        for wrong in [
            "",
            "KB",
            "64KBKB",
            "1ms",
            "1GB/s",
            "0.5",
            "0.5B",
            "16.1001KB",
            "1.1KiB",
            "99999999999999GB",
        ] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(duration("0.5s"), Ok(Duration::from_millis(500)));
        for wrong in ["100", "-1s", "ms", "1e99s", "1KB", "1e309s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
