//! Callbacks between a worker and its server: short messages on the worker's socket, and their
//! contents in shared memory. `rpc-proto` encodes the contents. The library shares the worker's
//! memory and can write anything, so the server checks every message.

use farcall_memory::sealed_memory;
use farcall_rpc_proto::CALLBACK_BYTES;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Longest message in bytes.
pub(crate) const WORD_BYTES: usize = 4096;

/// A message of a worker that runs a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerMessage {
    /// An encoded callback of this many bytes is in the mailbox.
    Callback(usize),
    /// A callback that cannot be made, or an answer that cannot be used.
    Problem(String),
}

impl WorkerMessage {
    const CALLBACK: u8 = 1;
    const PROBLEM: u8 = 2;

    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            WorkerMessage::Callback(bytes) => {
                [&[WorkerMessage::CALLBACK][..], &bytes.to_ne_bytes()].concat()
            }
            WorkerMessage::Problem(text) => {
                let text = &text.as_bytes()[..text.len().min(WORD_BYTES - 1)];
                [&[WorkerMessage::PROBLEM][..], text].concat()
            }
        }
    }

    /// Decodes a message. The library shares the worker's process and may have written anything.
    pub(crate) fn decode(bytes: &[u8]) -> Option<WorkerMessage> {
        let (&kind, rest) = bytes.split_first()?;
        match kind {
            WorkerMessage::CALLBACK => {
                let bytes = usize::from_ne_bytes(rest.try_into().ok()?);
                (bytes <= CALLBACK_BYTES).then_some(WorkerMessage::Callback(bytes))
            }
            WorkerMessage::PROBLEM => Some(WorkerMessage::Problem(
                String::from_utf8_lossy(rest).into_owned(),
            )),
            _ => None,
        }
    }
}

/// The server's message that the answer is in the mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerWord {
    pub(crate) bytes: usize,
    pub(crate) big_endian: bool,
}

impl AnswerWord {
    pub(crate) fn encode(self) -> [u8; 9] {
        let mut word = [0; 9];
        word[0] = self.big_endian.into();
        word[1..].copy_from_slice(&self.bytes.to_ne_bytes());
        word
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<AnswerWord> {
        let (order, bytes) = bytes.split_first()?;
        Some(AnswerWord {
            bytes: usize::from_ne_bytes(bytes.try_into().ok()?),
            big_endian: *order != 0,
        })
    }
}

/// Memory for one callback or its answer. It takes no pages before the first callback.
pub struct Mailbox(File);

impl Mailbox {
    pub(crate) fn create() -> io::Result<Mailbox> {
        Ok(Mailbox::open(sealed_memory(
            "farcall-callback",
            CALLBACK_BYTES,
        )?))
    }

    pub(crate) fn open(memory: OwnedFd) -> Mailbox {
        Mailbox(memory.into())
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(crate) fn put(&self, message: &[u8]) -> io::Result<()> {
        if message.len() > CALLBACK_BYTES {
            return Err(Errno::MSGSIZE.into());
        }
        self.0.write_all_at(message, 0)
    }

    pub(crate) fn take(&self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut message = vec![0; bytes.min(CALLBACK_BYTES)];
        self.0.read_exact_at(&mut message, 0)?;
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_travel_and_strangers_are_refused() {
        for word in [
            WorkerMessage::Callback(77),
            WorkerMessage::Problem("too long".to_string()),
        ] {
            assert_eq!(WorkerMessage::decode(&word.encode()), Some(word));
        }
        assert_eq!(
            WorkerMessage::decode(&WorkerMessage::Callback(CALLBACK_BYTES + 1).encode()),
            None
        );
        assert_eq!(WorkerMessage::decode(b"ready"), None);
        assert_eq!(WorkerMessage::decode(b""), None);
        let answer = AnswerWord {
            bytes: 5,
            big_endian: true,
        };
        assert_eq!(AnswerWord::decode(&answer.encode()), Some(answer));
    }

    #[test]
    fn the_mailbox_has_a_bound() {
        let mailbox = Mailbox::create().unwrap();
        mailbox.put(b"hello").unwrap();
        assert_eq!(mailbox.take(5).unwrap(), b"hello");
        assert!(mailbox.put(&vec![0; CALLBACK_BYTES + 1]).is_err());
        assert_eq!(mailbox.take(usize::MAX).unwrap().len(), CALLBACK_BYTES);
    }
}
