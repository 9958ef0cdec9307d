//! What the functions of a worker find around them: the current folder, the permissions of new
//! files, and the locale, by which C and Fortran read and write numbers as text. They belong to the
//! process, so what a function changes would change the files and results of all later calls of the
//! worker. An object keeps them, because the state of its process is its own.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{fchdir, umask};
use std::ffi::{CStr, CString};
use std::ptr;

/// The surroundings at one moment.
pub(crate) struct Surroundings {
    folder: Option<OwnedFd>,
    mask: Mode,
    locale: Option<CString>,
    /// The locale of this thread alone.
    own_locale: libc::locale_t,
}

impl Surroundings {
    /// The surroundings now.
    pub(crate) fn now() -> Surroundings {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mask = umask(Mode::empty());
        umask(mask);
        Surroundings {
            folder: open(".", flags, Mode::empty()).ok(),
            mask,
            // SAFETY: no function runs that changes it.
            locale: unsafe { locale() }.map(CStr::to_owned),
            // SAFETY: it only asks.
            own_locale: unsafe { libc::uselocale(ptr::null_mut()) },
        }
    }

    /// Makes them those of this process again, after a call.
    pub(crate) fn restore(&self) {
        // SAFETY: no function runs. The locale of the thread is that of the C library, or one that
        // was in use when the library was loaded.
        unsafe {
            if libc::uselocale(ptr::null_mut()) != self.own_locale {
                libc::uselocale(self.own_locale);
            }
            if let Some(known) = &self.locale
                && locale() != Some(known)
            {
                libc::setlocale(libc::LC_ALL, known.as_ptr());
            }
        }
        umask(self.mask);
        if let Some(folder) = &self.folder {
            // If the folder has been closed to this process, nothing can be done.
            let _ = fchdir(folder);
        }
    }
}

/// The locale of the process.
///
/// # Safety
/// Nobody changes it while the result is in use.
unsafe fn locale<'a>() -> Option<&'a CStr> {
    // SAFETY: it only asks, and the text ends with NUL.
    unsafe {
        let name = libc::setlocale(libc::LC_ALL, ptr::null());
        (!name.is_null()).then(|| CStr::from_ptr(name))
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::env;

    #[test]
    fn a_function_leaves_no_folder_mask_or_locale_behind() {
        let (before, folder) = (Surroundings::now(), env::current_dir().unwrap());
        let mask = before.mask;
        env::set_current_dir("/").unwrap();
        umask(Mode::RWXO);
        // SAFETY: no other test uses the locale. glibc and musl have this one.
        let name = unsafe {
            libc::setlocale(libc::LC_ALL, c"C.UTF-8".as_ptr());
            locale().map(CStr::to_owned)
        };
        assert_ne!(name, before.locale);
        before.restore();
        assert_eq!(env::current_dir().unwrap(), folder);
        assert_eq!(umask(mask), mask);
        // SAFETY: as above.
        assert_eq!(unsafe { locale() }, before.locale.as_deref());
    }
}
