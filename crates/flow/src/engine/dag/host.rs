//! The cpus and network interfaces of a rank, and the operations that wait for them. `dag` decides
//! when an operation starts. Operations that need the same resources form one queue, in the order
//! of their turns.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What kind of operation a queue holds, and the numbers of the cpu and interface that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Send {
        cpu: u8,
        nic: u8,
    },
    Receive,
    Calc {
        cpu: u8,
    },
    /// A message that has come to its receiver.
    Message {
        cpu: u8,
        nic: u8,
    },
}

/// Operations that wait for the same resources, lowest turn first.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) needs: Needs,
    pub(super) ready: BinaryHeap<Reverse<(u32, u32)>>,
}

#[derive(Debug, Default)]
pub(super) struct Nic {
    number: u8,
    /// When the next message can leave.
    pub(super) send_at: f64,
    /// When the next message can come in.
    pub(super) receive_at: f64,
    /// The last times for which a wake-up was asked, for sending and receiving.
    pub(super) alarms: [f64; 2],
    /// Flows that are under way.
    pub(super) active: u32,
    /// Sends whose flow waits for one under way.
    pub(super) waiting: VecDeque<u32>,
}

/// The resources of a rank. Cpus and interfaces appear when they are first used.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// Number, and when it is free.
    cpus: Vec<(u8, f64)>,
    nics: Vec<Nic>,
    pub(super) queues: Vec<Queue>,
}

impl Host {
    /// When a cpu is free. The caller sets it.
    pub(super) fn cpu(&mut self, number: u8) -> &mut f64 {
        let at = self.cpus.iter().position(|cpu| cpu.0 == number);
        let at = at.unwrap_or_else(|| {
            self.cpus.push((number, 0.0));
            self.cpus.len() - 1
        });
        &mut self.cpus[at].1
    }

    pub(super) fn nic(&mut self, number: u8) -> &mut Nic {
        let at = self.nics.iter().position(|nic| nic.number == number);
        let at = at.unwrap_or_else(|| {
            self.nics.push(Nic {
                number,
                ..Nic::default()
            });
            self.nics.len() - 1
        });
        &mut self.nics[at]
    }

    /// The queue for operations with these needs.
    pub(super) fn queue(&mut self, needs: Needs) -> usize {
        let at = self.queues.iter().position(|queue| queue.needs == needs);
        at.unwrap_or_else(|| {
            self.queues.push(Queue {
                needs,
                ready: BinaryHeap::new(),
            });
            self.queues.len() - 1
        })
    }
}
