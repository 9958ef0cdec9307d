//! Memory for arrays whose sizes a peer claims. A size for which there is no memory is an error
//! here, and not the end of the process.

use crate::error::Error;
use farcall_rpc_proto::FailureKind;
use std::hint::black_box;

/// Zeroed memory of this size. Nothing is touched before it is used.
///
/// # Errors
/// This machine has no memory of this size.
pub fn zeroed(bytes: u64) -> Result<Vec<u8>, Error> {
    let none = || {
        let text = format!("this machine has no memory for an array of {bytes} bytes");
        Error::failed(FailureKind::TooLarge, text)
    };
    let length = usize::try_from(bytes).map_err(|_| none())?;
    let mut room = Vec::<u8>::new();
    room.try_reserve_exact(length).map_err(|_| none())?;
    // The compiler must not leave the question out.
    drop(black_box(room));
    // Only `vec!` gets pages that the system zeroes when they are first used.
    Ok(vec![0; length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absurd_size_is_an_error() {
        assert_eq!(zeroed(3).unwrap(), [0; 3]);
        assert!(zeroed(0).unwrap().is_empty());
        let error = zeroed(u64::MAX).unwrap_err().to_string();
        assert!(error.contains(&u64::MAX.to_string()), "{error}");
    }
}
