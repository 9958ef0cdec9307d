//! The keeper: the first process of a PID namespace. It waits for the worker and ends with its
//! status.

use super::{last_error, rights::drop_rights, write};
use rustix::io::Errno;
use std::os::fd::RawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The highest number of a signal.
const MOST_SIGNAL: i32 = 64;
/// Exit statuses of a keeper above this one are signals that ended the worker.
const SIGNALLED: i32 = 128;
/// Environment variable of a keeper, with the number of its worker.
pub(crate) const KEEPER: &str = "FARCALL_KEEPER";

/// Becomes the keeper of this worker: runs the program with these arguments and no files. It gives
/// up its rights later: a program that gains rights would lose the request to end with the server.
///
/// # Safety
/// As [`Namespaces::enter`](super::Namespaces::enter). The arguments end with a null.
pub(super) unsafe fn become_keeper(
    words: &[*const libc::c_char],
    program: RawFd,
    worker: u32,
) -> ! {
    let mut variable = [0; KEEPER.len() + 1 + DIGITS + 1];
    let (name, number) = variable.split_at_mut(KEEPER.len() + 1);
    name[..KEEPER.len()].copy_from_slice(KEEPER.as_bytes());
    name[KEEPER.len()] = b'=';
    decimal(worker, number);
    let variables: [*const libc::c_char; 2] = [variable.as_ptr().cast(), std::ptr::null()];
    // SAFETY: the caller's promise.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for standard in 0..3 {
            libc::dup2(null, standard);
        }
        let (words, empty) = (words.as_ptr(), c"".as_ptr());
        let (variables, flags) = (variables.as_ptr(), libc::AT_EMPTY_PATH);
        libc::syscall(libc::SYS_execveat, program, empty, words, variables, flags);
        libc::_exit(1);
    }
}

/// Waits for the worker and for every process that it leaves behind. Ends with the worker's status;
/// 128 and more stand for a signal.
pub(crate) fn keep() -> ! {
    drop_rights();
    let worker = std::env::var(KEEPER)
        .ok()
        .and_then(|text| text.parse().ok());
    loop {
        let mut status = 0;
        // SAFETY: a system call on memory of this frame.
        let ended = unsafe { libc::waitpid(-1, &mut status, 0) };
        if Some(ended) == worker || ended < 0 && last_error() == Errno::CHILD {
            let status = ExitStatus::from_raw(status);
            let signal = status.signal().map(|signal| SIGNALLED + signal);
            std::process::exit(status.code().or(signal).unwrap_or(1));
        }
    }
}

/// The status of the worker, by that of its keeper.
pub(super) fn of_worker(status: ExitStatus) -> ExitStatus {
    let signal = status.code().map(|code| code - SIGNALLED);
    match signal.filter(|signal| (1..=MOST_SIGNAL).contains(signal)) {
        Some(signal) => ExitStatus::from_raw(signal),
        None => status,
    }
}

/// Digits of a process number, at most.
const DIGITS: usize = 10;

/// Writes a number in digits, without allocation. Returns their count.
fn decimal(number: u32, to: &mut [u8]) -> usize {
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = number;
    for place in to[..digits].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

/// Gives the next process of this PID namespace the number that this process has for the server, so
/// that workers have different numbers. Libraries seed random numbers with them.
///
/// # Safety
/// As [`Namespaces::enter`](super::Namespaces::enter).
pub(super) unsafe fn number_next() {
    let mut text = [0u8; DIGITS];
    // SAFETY: system calls on memory of this frame.
    unsafe {
        let length = libc::readlink(c"/proc/self".as_ptr(), text.as_mut_ptr().cast(), DIGITS);
        let digits = text.iter().take(length.max(0) as usize);
        let digits = digits.filter(|digit| digit.is_ascii_digit());
        let number = digits.fold(0, |number: u32, digit| {
            number
                .wrapping_mul(10)
                .wrapping_add(u32::from(*digit - b'0'))
        });
        let length = decimal(number.saturating_sub(1), &mut text);
        // Without the right to it, the worker has the number 2.
        let _ = write(c"/proc/sys/kernel/ns_last_pid", &text[..length]);
    }
}
