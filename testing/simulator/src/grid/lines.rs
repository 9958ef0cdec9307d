//! Moves bytes between a client of metaservers and its peers, over all its connections. `caller`
//! decides what to ask, and the real protocol reads and writes the bytes.

use super::caller::{Asked, Caller};
use crate::checker::Checker;
use farcall_rpc_proto::client::Event;
use farcall_rpc_proto::{ProtocolError, Transmit};

impl Caller {
    /// Connections with bytes to send, and these bytes.
    pub(crate) fn output(&mut self) -> Vec<(usize, Vec<u8>)> {
        let (calls, dealings) = (&mut self.calls, &mut self.dealings);
        let user = self.user;
        let lines = self.lines.iter_mut().map(|(link, line)| {
            let mut out = Vec::new();
            loop {
                match line.proto.poll_transmit(&mut out) {
                    Transmit::Idle => break (*link, out),
                    Transmit::Frames => {}
                    Transmit::Data(chunk) => {
                        let length = chunk.length as usize;
                        let unsent = match line.open.get(&chunk.call) {
                            Some(Asked::Call { tag }) => {
                                calls.get_mut(tag).map(|call| &mut call.unsent)
                            }
                            Some(Asked::Data { id }) => {
                                dealings.get_mut(id).map(|dealing| &mut dealing.unsent)
                            }
                            _ => None,
                        };
                        match unsent {
                            Some(unsent) => out.extend(unsent.drain(..length.min(unsent.len()))),
                            None => out.resize(out.len() + length, user << 4),
                        }
                    }
                }
            }
        });
        lines.filter(|(_, bytes)| !bytes.is_empty()).collect()
    }

    /// Handles bytes of a connection. Returns whether the connection can continue, and if not,
    /// whether the peer closed it.
    pub(crate) fn input(
        &mut self,
        link: usize,
        mut bytes: &[u8],
        now: f64,
        checker: &mut Checker,
    ) -> Result<(), bool> {
        while !bytes.is_empty() {
            let line = self.lines.get_mut(&link).ok_or(false)?;
            if let Some(chunk) = line.proto.incoming() {
                let count = bytes.len().min(chunk.length as usize);
                let (taken, rest) = bytes.split_at(count);
                let received = match line.open.get(&chunk.call) {
                    Some(Asked::Call { tag }) => {
                        self.calls.get_mut(tag).map(|call| &mut call.received)
                    }
                    Some(Asked::Data { id }) => self
                        .dealings
                        .get_mut(id)
                        .map(|dealing| &mut dealing.received),
                    _ => None,
                };
                if let Some(received) = received {
                    received.extend_from_slice(taken);
                }
                line.proto.handle_data(count as u64);
                bytes = rest;
                continue;
            }
            let handled = line.proto.handle_input(bytes);
            let (taken, event) =
                handled.map_err(|error| matches!(error, ProtocolError::Goodbye(_)))?;
            bytes = &bytes[taken..];
            if let Some(Event::Challenge(name)) = event {
                line.proto.prove(name);
            } else if let Some(event) = event {
                self.on_event(link, event, now, checker);
            }
        }
        Ok(())
    }
}
