//! Times on the command line that are numbers of seconds, without a unit. `farcall_quantity` reads
//! those with one.

use std::time::Duration;

/// Reads a number of seconds from 0 on.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "write a number of seconds, such as 1.5")?;
    let duration = Duration::try_from_secs_f64(seconds);
    duration.map_err(|_| format!("{text} s is not a length of time; write one such as 1.5"))
}

/// The same, but more than 0.
pub(crate) fn above_zero(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        time if time.is_zero() => Err("write a number of seconds greater than 0".to_owned()),
        time => Ok(time),
    }
}

/// The same as [`seconds`], as a number.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    seconds(text).map(|time| time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_finite_and_not_negative() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        for text in ["-1", "inf", "NaN", "1e300", "soon", "1 s", ""] {
            assert!(
                seconds(text).is_err() && above_zero(text).is_err(),
                "{text}"
            );
        }
        assert!(above_zero("0").is_err() && above_zero("1e-12").is_err());
        assert_eq!(above_zero("2"), Ok(Duration::from_secs(2)));
    }
}
