//! The floating-point environment of a worker: how numbers are rounded, whether subnormal numbers
//! are 0, and which exceptions end the process. It belongs to the thread, so what a function
//! changes would change the results of all later calls of the worker.

use std::ffi::c_int;
use std::mem::MaybeUninit;

/// Room for `fenv_t`, which has 32 bytes or less.
type Room = MaybeUninit<[u64; 16]>;

unsafe extern "C" {
    fn fegetenv(environment: *mut Room) -> c_int;
    fn fesetenv(environment: *const Room) -> c_int;
}

/// The environment of a thread at one moment.
pub(crate) struct Floats(Option<Room>);

impl Floats {
    /// The environment of this thread now.
    pub(crate) fn now() -> Floats {
        let mut room = Room::uninit();
        // SAFETY: the room is larger than the environment, and aligned for it.
        let got = unsafe { fegetenv(&raw mut room) };
        Floats((got == 0).then_some(room))
    }

    /// Makes it the environment of this thread again.
    pub(crate) fn restore(&self) {
        if let Some(room) = &self.0 {
            // SAFETY: `fegetenv` has filled it.
            unsafe { fesetenv(room) };
        }
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;
    use std::hint::black_box;

    unsafe extern "C" {
        fn fesetround(mode: c_int) -> c_int;
    }

    /// `FE_UPWARD` of this processor.
    const UPWARD: c_int = 0x800;

    #[test]
    fn numbers_are_rounded_as_before() {
        let third = || black_box(1.0f64) / black_box(3.0);
        let (floats, right) = (Floats::now(), third());
        // SAFETY: it changes the rounding of this thread, which the last line restores.
        assert_eq!(unsafe { fesetround(UPWARD) }, 0);
        assert!(third() > right);
        floats.restore();
        assert_eq!(third().to_bits(), right.to_bits());
    }
}
