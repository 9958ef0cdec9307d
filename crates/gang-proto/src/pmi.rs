//! The process manager interface of MPI, version 1 (PMI-1), as a process of MPICH or Intel MPI
//! speaks it with the one that started it: lines of `name=value` pairs. A process puts how others
//! reach it into a store that all processes of the gang job share, and a barrier makes what was put
//! before it visible on all nodes. What a process sends is bounded.
//!
//! The PMIx server of a node, which serves Open MPI, speaks PMI-1 too. It is [`PMIX`] instead of a
//! rank, and exchanges at a barrier what all processes of its node have put.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;

/// The longest line of a request.
const LINE: usize = 4096;
/// The longest name of the store, key and value, with the null byte that C puts at their end.
const LONGEST_NAME: usize = 256;
const LONGEST_KEY: usize = 256;
const LONGEST_VALUE: usize = 1024;
/// The most bytes in the store of a gang job. They fit into a message.
const STORE: usize = 2 << 20;

/// Stands for the PMIx server of a node, which is not a rank. Its barrier is that of the node.
pub const PMIX: u16 = u16::MAX;

/// Names and values that were put into a store.
pub type Pairs = Vec<(String, String)>;

/// Why the connection of a process must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a process sent a line that PMI-1 does not have")]
pub struct PmiError;

/// What the node must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PmiAction {
    /// Send these bytes to the process of a rank.
    Answer(u16, String),
    /// All processes of this node have reached a barrier: tell the root daemon what they have put.
    /// When all nodes have, it calls [`Pmi::handle_fenced`].
    Fence(Pairs),
    /// A process has called `MPI_Abort` with this code.
    Abort(u16, i32),
    /// The PMIx server accepts processes that have these environment variables.
    Ready(Pairs),
}

/// The store of a gang job on one node, and the requests of its processes there. Pass what the
/// processes send to [`Pmi::handle_bytes`], then take all actions ([`Pmi::poll_action`]).
#[derive(Clone, Debug)]
pub struct Pmi {
    /// The name of the store, which no other gang job has: MPICH names files after it.
    name: String,
    size: u16,
    /// Bytes of each process of this node that are not yet a line.
    begun: BTreeMap<u16, Vec<u8>>,
    store: BTreeMap<String, String>,
    bytes: usize,
    /// What was put since the last barrier.
    new: Pairs,
    waiting: BTreeSet<u16>,
    /// Ranks that have begun to use MPI, and have not left it.
    inside: BTreeSet<u16>,
    is_used: bool,
    actions: VecDeque<PmiAction>,
}

impl Pmi {
    /// Creates the store of a gang job, given the node of each rank. `node` is this one.
    pub fn new(network: u64, nodes: &[u16], node: u16) -> Pmi {
        Pmi::with_mapping(network, nodes, node, mapping(nodes))
    }

    /// The same, but the processes are told that each of them is on a node of its own, so that they
    /// share no memory.
    pub fn apart(network: u64, nodes: &[u16], node: u16) -> Pmi {
        let size = nodes.len();
        Pmi::with_mapping(network, nodes, node, format!("(vector,(0,{size},1))"))
    }

    fn with_mapping(network: u64, nodes: &[u16], node: u16, mapping: String) -> Pmi {
        let ranks = (0..).zip(nodes).filter(|(_, other)| **other == node);
        let mapping = ("PMI_process_mapping".to_string(), mapping);
        Pmi {
            name: format!("farcall_{network:x}"),
            size: nodes.len() as u16,
            begun: ranks
                .map(|(rank, _)| rank)
                .chain([PMIX])
                .map(|rank| (rank, Vec::new()))
                .collect(),
            store: [mapping].into(),
            bytes: 0,
            new: Vec::new(),
            waiting: BTreeSet::new(),
            inside: BTreeSet::new(),
            is_used: false,
            actions: VecDeque::new(),
        }
    }

    /// The name of the store, which no other gang job has.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a process of this node has begun to use MPI.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// Whether a process has begun to use MPI and has not left it (`MPI_Finalize`).
    pub fn is_inside(&self, rank: u16) -> bool {
        self.inside.contains(&rank)
    }

    /// Returns the next action, in sequence.
    pub fn poll_action(&mut self) -> Option<PmiAction> {
        self.actions.pop_front()
    }

    /// Handles what a process has sent.
    ///
    /// # Errors
    /// The bytes are no request.
    pub fn handle_bytes(&mut self, rank: u16, bytes: &[u8]) -> Result<(), PmiError> {
        let begun = self.begun.get_mut(&rank).ok_or(PmiError)?;
        begun.extend_from_slice(bytes);
        let whole = begun.iter().rposition(|byte| *byte == b'\n');
        let rest = begun.split_off(whole.map_or(0, |place| place + 1));
        let lines = core::mem::replace(begun, rest);
        if begun.len() > LINE {
            return Err(PmiError);
        }
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let line = core::str::from_utf8(line).map_err(|_| PmiError)?;
            self.handle_line(rank, line.trim_end_matches('\n'))?;
        }
        Ok(())
    }

    fn handle_line(&mut self, rank: u16, line: &str) -> Result<(), PmiError> {
        let (fields, value) = split(line);
        let field = |name: &str| fields.get(name).copied();
        // The rank of which a PMIx server speaks.
        let named = field("rank").and_then(|named| named.parse().ok());
        let answer = match field("cmd").ok_or(PmiError)? {
            "init" => {
                self.is_used = true;
                self.inside.insert(rank);
                let is_known = field("pmi_version") == Some("1");
                let result = if is_known { 0 } else { -1 };
                format!("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={result}")
            }
            "get_maxes" => format!(
                "cmd=maxes kvsname_max={LONGEST_NAME} keylen_max={LONGEST_KEY} \
                 vallen_max={LONGEST_VALUE}"
            ),
            "get_appnum" => "cmd=appnum appnum=0".to_string(),
            "get_my_kvsname" => format!("cmd=my_kvsname kvsname={}", self.name),
            "get_universe_size" => format!("cmd=universe_size size={}", self.size),
            "put" => {
                let key = field("key").ok_or(PmiError)?;
                match self.put(key, value.ok_or(PmiError)?) {
                    Ok(()) => "cmd=put_result rc=0 msg=success".to_string(),
                    Err(text) => format!("cmd=put_result rc=-1 msg={text}"),
                }
            }
            "get" => match self.store.get(field("key").ok_or(PmiError)?) {
                Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".to_string(),
            },
            "connected" if rank == PMIX => {
                self.is_used = true;
                self.inside.extend(named);
                return Ok(());
            }
            "finalized" if rank == PMIX => {
                self.inside.retain(|rank| Some(*rank) != named);
                return Ok(());
            }
            "barrier_in" => {
                self.enter_barrier(rank);
                return Ok(());
            }
            "finalize" => {
                self.inside.remove(&rank);
                "cmd=finalize_ack".to_string()
            }
            "abort" => {
                let code = field("exitcode").and_then(|code| code.parse().ok());
                let rank = named.filter(|_| rank == PMIX).unwrap_or(rank);
                let abort = PmiAction::Abort(rank, code.unwrap_or(1));
                self.actions.push_back(abort);
                return Ok(());
            }
            "ready" if rank == PMIX => {
                let pairs = value.ok_or(PmiError)?.split('\t');
                let pairs = pairs.map(|pair| pair.split_once('=').ok_or(PmiError));
                let pair = |(name, value): (&str, &str)| (name.to_string(), value.to_string());
                let pairs = pairs
                    .map(|found| found.map(pair))
                    .collect::<Result<_, _>>()?;
                self.actions.push_back(PmiAction::Ready(pairs));
                return Ok(());
            }
            _ => return Err(PmiError),
        };
        self.answer(rank, answer);
        Ok(())
    }

    fn enter_barrier(&mut self, rank: u16) {
        self.waiting.insert(rank);
        let ranks = self.waiting.iter().filter(|rank| **rank != PMIX);
        if rank == PMIX || ranks.count() == self.begun.len() - 1 {
            let new = core::mem::take(&mut self.new);
            self.actions.push_back(PmiAction::Fence(new));
        }
    }

    fn answer(&mut self, rank: u16, mut line: String) {
        line.push('\n');
        self.actions.push_back(PmiAction::Answer(rank, line));
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        if key.len() >= LONGEST_KEY || value.len() >= LONGEST_VALUE {
            return Err("too_long");
        }
        let bytes = self.bytes + bytes_of(key, value);
        if bytes > STORE {
            return Err("the_store_is_full");
        }
        self.bytes = bytes;
        self.store.insert(key.to_string(), value.to_string());
        self.new.push((key.to_string(), value.to_string()));
        Ok(())
    }

    /// Handles the end of a barrier, with what the processes of all nodes have put before it.
    pub fn handle_fenced(&mut self, pairs: Pairs) {
        self.store.extend(pairs);
        for rank in core::mem::take(&mut self.waiting) {
            self.answer(rank, "cmd=barrier_out".to_string());
        }
    }
}

/// The most bytes of a pair in a message.
pub(crate) fn bytes_of(key: &str, value: &str) -> usize {
    key.len() + value.len() + 8
}

/// The fields of a line, and the value of a `put`, which may have spaces.
fn split(line: &str) -> (BTreeMap<&str, &str>, Option<&str>) {
    let (front, value) = match line.split_once(" value=") {
        Some((front, value)) => (front, Some(value)),
        None => (line, None),
    };
    let fields = front.split(' ').filter_map(|field| field.split_once('='));
    (fields.collect(), value)
}

/// The nodes of the ranks in the notation of MPICH: a node, a number of nodes, and the ranks on
/// each of them, again and again.
fn mapping(nodes: &[u16]) -> String {
    let mut numbers = BTreeMap::new();
    let mut text = "(vector".to_string();
    for run in nodes.chunk_by(|one, other| one == other) {
        let next = numbers.len();
        let number = *numbers.entry(run[0]).or_insert(next);
        // Writing to a String cannot fail.
        let _ = write!(text, ",({number},1,{})", run.len());
    }
    text.push(')');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn ask(pmi: &mut Pmi, rank: u16, line: &str) -> Vec<PmiAction> {
        pmi.handle_bytes(rank, format!("{line}\n").as_bytes())
            .unwrap();
        core::iter::from_fn(|| pmi.poll_action()).collect()
    }

    fn answer(pmi: &mut Pmi, rank: u16, line: &str) -> String {
        match &ask(pmi, rank, line)[..] {
            [PmiAction::Answer(to, text)] if *to == rank => text.trim_end().to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_process_begins_and_ends() {
        let mut pmi = Pmi::new(0x1f, &[0, 0], 0);
        assert!(!pmi.is_used());
        let mut ask_one = |line: &str| answer(&mut pmi, 1, line);
        let begun = ask_one("cmd=init pmi_version=1 pmi_subversion=1");
        assert_eq!(
            begun,
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
        );
        assert_eq!(
            ask_one("cmd=get_maxes"),
            "cmd=maxes kvsname_max=256 keylen_max=256 vallen_max=1024"
        );
        assert_eq!(
            ask_one("cmd=get_my_kvsname"),
            "cmd=my_kvsname kvsname=farcall_1f"
        );
        assert_eq!(ask_one("cmd=get_universe_size"), "cmd=universe_size size=2");
        assert_eq!(ask_one("cmd=get_appnum"), "cmd=appnum appnum=0");
        assert!(pmi.is_used() && pmi.is_inside(1) && !pmi.is_inside(0));
        let left = answer(&mut pmi, 1, "cmd=finalize");
        assert_eq!(left, "cmd=finalize_ack");
        assert!(pmi.is_used() && !pmi.is_inside(1));
    }

    #[test]
    fn what_was_put_is_known_everywhere_after_a_barrier() {
        let nodes = [4, 4, 7];
        let mut one = Pmi::new(1, &nodes, 4);
        let mut other = Pmi::new(1, &nodes, 7);
        let put = "cmd=put kvsname=farcall_1 key=card value=a b=c";
        assert_eq!(answer(&mut one, 0, put), "cmd=put_result rc=0 msg=success");
        let get = "cmd=get kvsname=farcall_1 key=card";
        assert!(answer(&mut other, 2, get).starts_with("cmd=get_result rc=-1"));
        assert_eq!(ask(&mut one, 0, "cmd=barrier_in"), []);
        let pairs = vec![("card".to_string(), "a b=c".to_string())];
        assert_eq!(
            ask(&mut one, 1, "cmd=barrier_in"),
            [PmiAction::Fence(pairs.clone())]
        );
        assert_eq!(
            ask(&mut other, 2, "cmd=barrier_in"),
            [PmiAction::Fence(vec![])]
        );
        one.handle_fenced(pairs.clone());
        other.handle_fenced(pairs);
        let out = |rank| PmiAction::Answer(rank, "cmd=barrier_out\n".to_string());
        let told: Vec<_> = core::iter::from_fn(|| one.poll_action()).collect();
        assert_eq!(told, [out(0), out(1)]);
        assert_eq!(other.poll_action(), Some(out(2)));
        assert_eq!(
            answer(&mut other, 2, get),
            "cmd=get_result rc=0 msg=success value=a b=c"
        );
        let get = "cmd=get kvsname=farcall_1 key=PMI_process_mapping";
        assert!(answer(&mut one, 0, get).ends_with("value=(vector,(0,1,2),(1,1,1))"));
        let mut apart = Pmi::apart(1, &nodes, 4);
        assert!(answer(&mut apart, 1, get).ends_with("value=(vector,(0,3,1))"));
        let abort = ask(&mut one, 1, "cmd=abort exitcode=7");
        assert_eq!(abort, [PmiAction::Abort(1, 7)]);
    }

    /// A PMIx server stands for all processes of its node.
    #[test]
    fn the_barrier_of_a_pmix_server_is_that_of_its_node() {
        let mut pmi = Pmi::new(1, &[0, 0, 1], 0);
        let ready = ask(&mut pmi, PMIX, "cmd=ready value=A=1\tB=x=y z");
        assert!(!pmi.is_used());
        assert_eq!(ask(&mut pmi, PMIX, "cmd=connected rank=1"), []);
        assert!(pmi.is_used() && pmi.is_inside(1) && !pmi.is_inside(0));
        assert_eq!(ask(&mut pmi, PMIX, "cmd=finalized rank=1"), []);
        assert!(!pmi.is_inside(1));
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(
            ready,
            [PmiAction::Ready(vec![pair("A", "1"), pair("B", "x=y z")])]
        );
        assert_eq!(
            answer(&mut pmi, PMIX, "cmd=put kvsname=x key=k value=v"),
            "cmd=put_result rc=0 msg=success"
        );
        let pairs = vec![pair("k", "v")];
        assert_eq!(
            ask(&mut pmi, PMIX, "cmd=barrier_in"),
            [PmiAction::Fence(pairs.clone())]
        );
        pmi.handle_fenced(pairs);
        let out = PmiAction::Answer(PMIX, "cmd=barrier_out\n".to_string());
        assert_eq!(pmi.poll_action(), Some(out));
        let abort = ask(&mut pmi, PMIX, "cmd=abort rank=1 exitcode=7");
        assert_eq!(abort, [PmiAction::Abort(1, 7)]);
        // It does not stand for a process that waits in a barrier of its own.
        assert_eq!(ask(&mut pmi, 0, "cmd=barrier_in"), []);
        assert!(pmi.handle_bytes(0, b"cmd=ready value=A=1\n").is_err());
        assert!(pmi.handle_bytes(0, b"cmd=connected rank=0\n").is_err());
        assert!(pmi.handle_bytes(0, b"cmd=finalized rank=1\n").is_err());
        assert!(pmi.handle_bytes(PMIX, b"cmd=ready value=A\n").is_err());
    }

    #[test]
    fn what_a_process_sends_is_bounded() {
        let mut pmi = Pmi::new(1, &[0], 0);
        assert_eq!(pmi.handle_bytes(1, b"cmd=init\n"), Err(PmiError));
        assert_eq!(pmi.handle_bytes(0, b"nonsense\n"), Err(PmiError));
        assert_eq!(pmi.handle_bytes(0, &[255, b'\n']), Err(PmiError));
        assert_eq!(pmi.handle_bytes(0, b"cmd=fin"), Ok(()));
        assert_eq!(pmi.handle_bytes(0, &[b'x'; LINE + 1]), Err(PmiError));
        let mut pmi = Pmi::new(1, &[0], 0);
        let value = "v".repeat(LONGEST_VALUE - 1);
        let full = (0..3000).find(|key| {
            let put = format!("cmd=put kvsname=x key={key} value={value}");
            answer(&mut pmi, 0, &put).contains("full")
        });
        assert!(full.is_some_and(|key| key * LONGEST_VALUE > STORE * 9 / 10));
        // Many short pairs fit into a message, too.
        let mut pmi = Pmi::new(1, &[0], 0);
        let is_full = |key: u32| {
            let put = format!("cmd=put kvsname=x key={key} value=");
            answer(&mut pmi, 0, &put).contains("full")
        };
        assert!((0..1 << 20).any(is_full));
        let actions = ask(&mut pmi, 0, "cmd=barrier_in");
        let [PmiAction::Fence(pairs)] = &actions[..] else {
            panic!("no barrier");
        };
        let mut message = Vec::new();
        crate::Message::Fence(1, 0, pairs.clone()).encode(&mut message);
        assert!(message.len() < crate::MAX_MESSAGE);
    }
}
