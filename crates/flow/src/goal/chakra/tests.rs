//! Chakra traces that are written byte by byte here, so that the reader is not tested with its own
//! idea of the format. Times are those of a crossbar without contention.

use crate::goal::Operation;
use crate::{Config, Goal, Limits, Placement, Platform, Simulation, Workload};

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn field(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

fn bytes(number: u64, value: &[u8]) -> Vec<u8> {
    let length = varint(value.len() as u64);
    [varint(number << 3 | 2), length, value.to_vec()].concat()
}

/// An attribute whose value has the number `kind` in `AttributeProto`.
fn attribute(name: &str, kind: u64, value: u64) -> Vec<u8> {
    bytes(
        10,
        &[bytes(1, name.as_bytes()), field(kind, value)].concat(),
    )
}

fn node(id: u64, kind: u64, rest: &[Vec<u8>]) -> Vec<u8> {
    let name = bytes(2, b"a name that nobody reads");
    [field(1, id), name, field(3, kind), rest.concat()].concat()
}

fn file(nodes: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![7];
    out.extend(bytes(1, b"0.0.4"));
    for node in nodes {
        out.extend(varint(node.len() as u64));
        out.extend(node);
    }
    out
}

fn comp(id: u64, micros: u64, on_host: bool, rest: Vec<u8>) -> Vec<u8> {
    let host = attribute("is_cpu_op", 27, u64::from(on_host));
    node(id, 4, &[field(7, micros), host, rest])
}

fn collective(id: u64, kind: u64, size: u64) -> Vec<u8> {
    let (kind, size) = (
        attribute("comm_type", 9, kind),
        attribute("comm_size", 9, size),
    );
    node(id, 7, &[kind, size])
}

fn run(files: &[Vec<u8>]) -> (f64, u64) {
    let platform = Platform::parse("hypercrossbar:8,bandwidth=1e6").unwrap();
    let goal = Goal::parse_chakra(files, Limits::default()).unwrap();
    let workload = Workload::Goal(goal);
    let config = Config {
        verify: true,
        ..Config::default()
    };
    let simulation = Simulation::new(&platform, workload, Placement::regular(), config);
    let summary = simulation.unwrap().run().unwrap();
    (summary.makespan, summary.messages)
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} is not {b}");
}

#[test]
fn computations_and_messages_follow_their_dependencies() {
    let (to, size, tag) = (
        attribute("comm_dst", 7, 1),
        attribute("comm_size", 13, 3_000_000),
        attribute("comm_tag", 11, 9),
    );
    let from = attribute("comm_src", 7, 0);
    let send = node(1, 5, &[field(5, 0), to, size.clone(), tag.clone()]);
    // Node 4 waits for a node that comes later; packed numbers are how most programs write lists.
    let wait = bytes(4, &[varint(6), varint(5)].concat());
    let receive = node(6, 6, &[from, size, tag]);
    let first = file(&[comp(0, 2_000_000, false, Vec::new()), send]);
    let last = comp(4, 1_000_000, false, wait);
    let second = file(&[last, comp(5, 500_000, true, Vec::new()), receive]);
    let (makespan, messages) = run(&[first, second]);
    close(makespan, 2.0 + 3.0 + 1.0);
    assert_eq!(messages, 1);
}

#[test]
fn tags_differ_in_all_their_bits() {
    let send = |id, tag| {
        let (to, size) = (attribute("comm_dst", 7, 1), attribute("comm_size", 13, 1));
        node(id, 5, &[to, size, attribute("comm_tag", 13, tag)])
    };
    let receive = |id, tag| {
        let from = attribute("comm_src", 7, 0);
        node(id, 6, &[from, attribute("comm_tag", 13, tag)])
    };
    let sent = file(&[send(0, 1 << 32)]);
    let (_, messages) = run(&[sent.clone(), file(&[receive(0, 1 << 32)])]);
    assert_eq!(messages, 1);
    let goal = Goal::parse_chakra(&[sent, file(&[receive(0, 0)])], Limits::default());
    let tags = |operation: &Operation| match *operation {
        Operation::Send { tag, .. } | Operation::Receive { tag, .. } => Some(tag),
        Operation::Calc { .. } => None,
    };
    let tags: Vec<u64> = goal.unwrap().operations().iter().filter_map(tags).collect();
    assert_eq!(tags, [1 << 32, 0]);
}

#[test]
fn the_host_and_the_accelerator_compute_one_after_the_other_each() {
    let nodes = [
        comp(0, 1_000_000, true, Vec::new()),
        comp(1, 1_000_000, true, Vec::new()),
        comp(2, 3_000_000, false, Vec::new()),
    ];
    close(run(&[file(&nodes)]).0, 3.0);
}

#[test]
fn collectives_take_their_closed_form() {
    for (kind, expected, messages) in [
        (0, 2.0 * 7.0 / 8.0, 8 * 14),
        (2, 7.0, 8 * 7),
        (7, 7.0 / 8.0, 8 * 7),
        (6, 7.0 / 8.0, 8 * 7),
        (5, 3.0, 7),
        (9, 3e-6, 8 * 3),
    ] {
        let files = vec![file(&[collective(3, kind, 1_000_000)]); 8];
        let (makespan, sent) = run(&files);
        close(makespan, expected);
        assert_eq!(sent, messages, "collective {kind}");
    }
}

#[test]
fn errors_name_rank_and_node() {
    let reduce = collective(3, 0, 8);
    let group = bytes(10, &[bytes(1, b"pg_name"), bytes(29, b"2")].concat());
    let grouped = [reduce.clone(), group].concat();
    let operations = attribute("num_ops", 9, 7);
    let mut cut = file(std::slice::from_ref(&reduce));
    cut.pop();
    for (files, part) in [
        (vec![], "0 ranks"),
        (vec![vec![]], "rank 0: metadata: has no length"),
        (vec![cut], "rank 0: node 0: "),
        (vec![file(&[vec![0xff; 9]])], "rank 0: node 0: "),
        (
            vec![file(&[reduce.clone(), reduce.clone()])],
            "id 3: is given twice",
        ),
        (
            vec![file(&[node(1, 5, &[])])],
            "id 1: has no number `comm_dst`",
        ),
        (
            vec![file(&[node(1, 6, &[attribute("comm_src", 7, 4)])])],
            "`comm_src` is 4, but there are files of 1 ranks",
        ),
        (
            vec![file(&[node(
                1,
                5,
                &[
                    attribute("comm_dst", 7, 0),
                    attribute("comm_size", 13, 1),
                    attribute("comm_tag", 13, 1 << 63),
                ],
            )])],
            "`comm_tag` is 9223372036854775808, which is 2^63 or more",
        ),
        (
            vec![file(&[node(1, 4, &[field(4, 8)])])],
            "there is no node 8",
        ),
        (
            vec![file(&[comp(1, 0, false, operations)])],
            "no `duration_micros`",
        ),
        (vec![file(&[collective(3, 1, 8)])], "have a root"),
        (vec![file(&[collective(3, 99, 8)])], "`comm_type` 99"),
        (vec![file(&[node(1, 99, &[])])], "kind 99"),
        (vec![file(&[grouped])], "process group `2`"),
        (
            vec![
                file(std::slice::from_ref(&reduce)),
                file(&[collective(3, 0, 9)]),
            ],
            "rank 1: node with id 3: collective 0 is not the one of rank 0",
        ),
        (
            vec![file(&[reduce]), file(&[])],
            "rank 1: has 0 collectives, but rank 0 has 1",
        ),
    ] {
        let error = Goal::parse_chakra(&files, Limits::default()).unwrap_err();
        assert!(error.reason.contains(part), "{error} has no {part}");
    }
}
