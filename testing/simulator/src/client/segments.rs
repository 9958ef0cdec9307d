//! Clients that share memory with their server. The memory must have what its calls have written,
//! and never a byte of another user, even after the client has returned it.

use super::calls::Expected;
use super::{Client, Purpose, Scene};
use crate::interfaces::{LOOK, Tag};
use crate::machine::Memory;
use farcall_rpc_proto::CallId;

/// Most segments that a client has at a time, and most returned ones that it still checks.
const MOST: usize = 3;
const MOST_FORMER: usize = 8;

/// Memory that is shared.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) request: CallId,
    pub(super) memory: Memory,
    pub(super) bytes: u64,
    /// A call has it.
    pub(super) is_busy: bool,
    /// The expected contents when the call has ended.
    expected: Vec<u8>,
}

impl Segment {
    /// Writes the arguments of a call to it.
    pub(super) fn fill(&mut self, sends: &[u8], expected: &Expected, function: usize) {
        self.memory.borrow_mut()[..sends.len()].copy_from_slice(sends);
        self.is_busy = true;
        self.expected = match (function, expected) {
            (LOOK, _) => sends.to_vec(),
            (_, Expected::Bytes(bytes)) => bytes.clone(),
            _ => Vec::new(),
        };
    }
}

impl Client {
    pub(super) fn act_on_segments(&mut self, scene: &mut Scene<'_>) {
        let free = self.segments.iter().position(|segment| !segment.is_busy);
        match free {
            Some(index) if scene.random.chance(0.3) => self.unshare(index),
            _ if self.segments.len() < MOST => {
                let bytes = Client::size(scene.random);
                if let Some(connection) = &mut self.connection {
                    let made = connection.share(bytes);
                    self.asked(made, Purpose::Share, Vec::new(), scene.now);
                }
            }
            _ => self.call(scene),
        }
    }

    /// Returns memory to the server. The client can still see it.
    fn unshare(&mut self, index: usize) {
        let segment = self.segments.remove(index);
        if let Some(connection) = &mut self.connection {
            connection.unshare(segment.request);
        }
        self.former.push(segment.memory);
    }

    /// Memory is shared, and has come.
    pub(super) fn is_shared(
        &mut self,
        request: CallId,
        memory: Option<Memory>,
        scene: &mut Scene<'_>,
    ) {
        let purpose = self.closed(request, scene);
        let (Some((Purpose::Share, _)), Some(memory)) = (purpose, memory) else {
            return scene
                .checker
                .fail("memory is shared and does not come".to_string());
        };
        if memory.borrow().iter().any(|byte| *byte != 0) {
            scene
                .checker
                .fail("memory is shared that is not all zero".to_string());
        }
        let bytes = memory.borrow().len() as u64;
        self.segments.push(Segment {
            request,
            memory,
            bytes,
            is_busy: false,
            expected: Vec::new(),
        });
    }

    /// A call that had a piece of memory has ended well.
    pub(super) fn check_segment(&mut self, request: CallId, tag: Tag, scene: &mut Scene<'_>) {
        let mut segments = self.segments.iter_mut();
        let Some(segment) = segments.find(|segment| segment.request == request) else {
            return;
        };
        segment.is_busy = false;
        let memory = segment.memory.borrow();
        if memory[..segment.expected.len()] != segment.expected[..] {
            let text = format!("call {tag} leaves wrong results in shared memory");
            scene.checker.fail(text);
        }
    }

    /// The contents of a call's memory become unknown: it is returned to the server.
    pub(super) fn spoil_segment(&mut self, request: CallId) {
        let mut segments = self.segments.iter();
        if let Some(index) = segments.position(|segment| segment.request == request) {
            self.unshare(index);
        }
    }

    /// Checks memory that it shares, or has shared.
    pub(super) fn look_at_memory(&mut self, scene: &mut Scene<'_>) {
        if self.former.len() > MOST_FORMER {
            self.former.remove(0);
        }
        let shared = self.segments.iter().map(|segment| &segment.memory);
        for memory in shared.chain(&self.former) {
            // Not all of it each time.
            let memory = memory.borrow();
            let start = scene.random.below(memory.len() as u64) as usize;
            let end = memory.len().min(start + 256);
            scene.checker.received(self.user, &memory[start..end]);
            scene
                .checker
                .received(self.user, &memory[..memory.len().min(64)]);
        }
    }
}
