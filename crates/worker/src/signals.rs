//! The handlers of fatal signals in a worker. They leave the cause for the server, and end the
//! process. A function that has written to an array that it only reads goes on: `lent` decides.

use crate::control::Control;
use crate::lent::{Write, allow_write};
use std::io;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The page that the signal handler writes to.
static LAST_WORDS: AtomicPtr<Control> = AtomicPtr::new(std::ptr::null_mut());

/// Installs handlers that record on the control page which signal ends the process. Ctrl-C at the
/// server's terminal is ignored here; the server handles it.
pub(crate) fn install(control: &'static Control) -> io::Result<()> {
    LAST_WORDS.store(std::ptr::from_ref(control).cast_mut(), Ordering::Release);
    let stack = Box::leak(vec![0u8; 64 << 10].into_boxed_slice());
    let stack = libc::stack_t {
        ss_sp: stack.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: stack.len(),
    };
    // SAFETY: the alternate stack is never freed; the handler makes only system calls and atomic
    // stores.
    unsafe {
        if libc::sigaltstack(&stack, std::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
        for signal in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGABRT,
        ] {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fatal_signal as extern "C" fn(_, _, _) as usize;
            action.sa_flags = libc::SA_ONSTACK | libc::SA_SIGINFO;
            if libc::sigaction(signal, &action, std::ptr::null_mut()) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        libc::signal(libc::SIGINT, libc::SIG_IGN);
    }
    Ok(())
}

extern "C" fn on_fatal_signal(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _: *mut libc::c_void,
) {
    /// If this much memory cannot be mapped, memory has run out.
    const PROBE: usize = 16 << 20;
    // SAFETY: the control page is never freed; mmap, signal and raise are async-signal-safe.
    unsafe {
        let write = match signal {
            libc::SIGSEGV => allow_write((*info).si_addr().addr()),
            _ => Write::Elsewhere,
        };
        if matches!(write, Write::Allowed) {
            return;
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let probe = libc::mmap(std::ptr::null_mut(), PROBE, protection, flags, -1, 0);
        if let Some(control) = LAST_WORDS.load(Ordering::Acquire).as_ref() {
            let has_memory = probe != libc::MAP_FAILED && !matches!(write, Write::NoMemory);
            control.leave_last_words(signal as u32, !has_memory);
        }
        // The default action ends the process.
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}
