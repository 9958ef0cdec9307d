//! Tests of what the network does besides sharing its links: routes, failures, latency, devices and
//! several jobs. The expected times are closed forms, and the packet model repeats the runs where
//! it has the same feature.

use farcall_flow::platform::EdgeList;
use farcall_flow::{
    Config, Failure, Goal, Job, Limits, PacketConfig, PacketSimulation, Pattern, Placement,
    Platform, Routing, RunError, Script, Simulation, Summary, Workload,
};

fn script(text: &str) -> Workload {
    Workload::Script(Script::parse_csv(text, Limits::default()).unwrap())
}

fn pattern(spec: &str, platform: &Platform, size: f64) -> Workload {
    Workload::Pattern(Pattern::parse(spec, platform.nodes() as u32, size).unwrap())
}

fn checked() -> Config {
    Config {
        verify: true,
        ..Config::default()
    }
}

fn routed(spec: &str) -> Config {
    Config {
        routing: Routing::parse(spec).unwrap(),
        ..checked()
    }
}

fn run(platform: &Platform, workload: Workload, placement: Placement, config: Config) -> Summary {
    let mut simulation = Simulation::new(platform, workload, placement, config).unwrap();
    simulation.run().unwrap()
}

fn regular(platform: &Platform, workload: Workload, config: Config) -> f64 {
    run(platform, workload, Placement::regular(), config).makespan
}

/// The makespan of the packet model, with messages of many small packets.
fn packets(platform: &Platform, workload: Workload, placement: Placement, routing: &str) -> f64 {
    let config = PacketConfig {
        packet_bytes: 0.01,
        routing: Routing::parse(routing).unwrap(),
        ..PacketConfig::default()
    };
    let messages = workload.messages();
    let simulation = PacketSimulation::new(platform, workload, placement, config);
    let summary = simulation.unwrap().run().unwrap();
    assert_eq!(summary.messages, messages, "{routing}: packets are stuck");
    summary.makespan
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} is not {b}");
}

fn near(a: f64, b: f64, tolerance: f64) {
    assert!((a / b - 1.0).abs() <= tolerance, "{a} is not near {b}");
}

/// Four nodes of a leaf switch send to four other leaf switches, and the static routes of all
/// four messages go by the same top switch.
const COLLIDING: &str = "0,4,1,1\n1,8,1,1\n2,12,1,1\n3,16,1,1\n";

#[test]
fn routes_by_choice_avoid_the_collisions_of_static_ones() {
    let tree = Platform::parse("fat-tree:ports=8,levels=2").unwrap();
    let time = |routing: &str| regular(&tree, script(COLLIDING), routed(routing));
    close(time("static"), 4.0);
    close(time("adaptive"), 1.0);
    close(time("spray"), 1.0);
    // By chance, as many messages meet as the fullest of four boxes has of four balls.
    let ecmp: Vec<f64> = (1..20).map(|seed| time(&format!("ecmp:{seed}"))).collect();
    assert!(ecmp.iter().all(|time| [1.0, 2.0, 3.0, 4.0].contains(time)));
    assert!(ecmp.iter().any(|time| *time != ecmp[0]), "{ecmp:?}");
    for (routing, time) in [("static", 4.0), ("adaptive", 1.0), ("spray", 1.0)] {
        let packets = packets(&tree, script(COLLIDING), Placement::regular(), routing);
        near(packets, time, 0.06);
    }
}

#[test]
fn spraying_carries_every_permutation_at_full_rate() {
    let tree = Platform::parse("fat-tree:ports=8,levels=3").unwrap();
    let time = |routing, seed| {
        let placement = Placement::random(128, seed);
        run(
            &tree,
            pattern("ring", &tree, 1.0),
            placement,
            routed(routing),
        )
        .makespan
    };
    for seed in 1..4 {
        close(time("spray", seed), 1.0);
        assert!(time("static", seed) >= 2.0);
        assert!(time("adaptive", seed) <= time("ecmp", seed));
        assert!(time("valiant", seed) >= 2.0);
    }
    // In the packet model, packets for busy links block those behind them in the buffers.
    let ring = || pattern("ring", &tree, 1.0);
    let time = |routing| packets(&tree, ring(), Placement::random(128, 1), routing);
    assert!((1.0..2.0).contains(&time("spray")), "{}", time("spray"));
    assert!(time("static") >= 2.0);
}

/// Each node of a group of the dragonfly sends to the group behind.
fn to_the_next_group() -> Workload {
    let rows = (0..72).map(|node| format!("{node},{},1,1\n", (node + 8) % 72));
    script(&rows.collect::<String>())
}

#[test]
fn detours_relieve_the_one_link_between_two_groups() {
    let dragonfly = Platform::parse("dragonfly:routers=4,terminals=2,global=2").unwrap();
    let time = |routing| regular(&dragonfly, to_the_next_group(), routed(routing));
    // All 8 nodes of a group share one link.
    close(time("static"), 8.0);
    close(time("ecmp"), 8.0);
    for routing in ["valiant", "adaptive"] {
        assert!(
            (1.0..7.0).contains(&time(routing)),
            "{routing}: {}",
            time(routing)
        );
    }
    for (routing, tolerance) in [("static", 0.05), ("valiant", 0.4), ("adaptive", 0.4)] {
        let packets = packets(
            &dragonfly,
            to_the_next_group(),
            Placement::regular(),
            routing,
        );
        near(packets, time(routing), tolerance);
    }
    // Without load, the adaptive route is the shortest one.
    let slow = "dragonfly:routers=4,terminals=2,global=2,hop-latency=1";
    let slow = Platform::parse(slow).unwrap();
    let alone = |routing| regular(&slow, script("0,71,1,1"), routed(routing));
    close(alone("adaptive"), alone("static"));
    assert!(alone("valiant") > alone("static"));
}

#[test]
fn routing_needs_routes_to_choose_from() {
    let torus = Platform::parse("torus:4x4").unwrap();
    let error = Routing::parse("ecmp").unwrap().check(&torus).unwrap_err();
    assert!(error.to_string().contains("only fat trees and dragonflies"));
    assert!(Routing::Static.check(&torus).is_ok());
    for wrong in ["static:1", "valliant", "ecmp:x"] {
        assert!(Routing::parse(wrong).is_err(), "{wrong}");
    }
}

fn failing(platform: &Platform, failures: &[&str], routing: &str) -> Config {
    let failures = failures.iter().map(|spec| Failure::parse(spec, platform));
    Config {
        failures: failures.collect::<Result<_, _>>().unwrap(),
        link_bytes: true,
        ..routed(routing)
    }
}

#[test]
fn a_flow_goes_on_around_a_link_that_fails() {
    let ring = Platform::parse("torus:4").unwrap();
    let config = failing(&ring, &["node 0 +x@4"], "static");
    let workload = script("0,1,1,10");
    let mut simulation = Simulation::new(&ring, workload, Placement::regular(), config).unwrap();
    let summary = simulation.run().unwrap();
    assert_eq!((summary.makespan, summary.messages), (10.0, 1));
    // 4 bytes went from 0 to 1, and 6 from 0 by 3 and 2.
    let bytes = [4.0, 0.0, 0.0, 0.0, 6.0, 0.0, 6.0, 6.0];
    assert_eq!(simulation.link_bytes(), bytes);
    // A failure after the end does not make the simulation longer.
    let late = failing(&ring, &["node 0 +x@40"], "static");
    close(regular(&ring, script("0,1,1,10"), late), 10.0);
    // A message that starts later takes the other way as well, here with the latency of its links.
    let slow = Platform::parse("torus:4,hop-latency=1").unwrap();
    let early = failing(&slow, &["node 0 +x@0"], "static");
    close(
        regular(&slow, script("0,1,1,10,5"), early),
        5.0 + 10.0 + 3.0,
    );
    // So does one that is under way, here also with packets that three switches store.
    let late = failing(&slow, &["node 0 +x@4"], "static");
    close(regular(&slow, script("0,1,1,10"), late.clone()), 10.0 + 3.0);
    let stored = Config {
        stored_packet: 1.0,
        ..late
    };
    close(regular(&slow, script("0,1,1,10"), stored), 10.0 + 3.0 + 2.0);
}

#[test]
fn a_mesh_of_two_nodes_in_a_dimension_has_one_link_in_each_direction() {
    let mesh = Platform::parse("mesh:2x2").unwrap();
    let config = failing(&mesh, &["node 0 +x@0"], "static");
    let workload = script("0,1,1,10");
    let mut simulation = Simulation::new(&mesh, workload, Placement::regular(), config).unwrap();
    assert_eq!(simulation.run().unwrap().makespan, 10.0);
    let used = simulation.link_bytes().iter().enumerate();
    let used = used.filter(|(_, bytes)| **bytes > 0.0);
    let used: Vec<String> = used.map(|(link, _)| mesh.link_name(link as u32)).collect();
    assert_eq!(used, ["node 2 +x", "node 0 +y", "node 3 -y"]);
    let line = Platform::parse("mesh:2").unwrap();
    let config = failing(&line, &["node 0 +x@0"], "static");
    let simulation = Simulation::new(&line, script("0,1,1,1"), Placement::regular(), config);
    let error = simulation.unwrap().run().unwrap_err();
    assert!(matches!(error, RunError::Unreachable { .. }), "{error}");
}

#[test]
fn parallel_links_of_an_edge_list_fail_together() {
    let edges = "both,0,1,1\nboth,0,1,1\nboth,0,s,1\nboth,s,1,1\n";
    let platform = EdgeList::parse(edges).unwrap();
    let links = |spec| Failure::parse(spec, &platform).unwrap().links;
    assert_eq!(links("0 to 1@4"), [0, 2]);
    assert_eq!(links("0 to s@4"), [4]);
    assert_eq!(links("s@4"), [4, 5, 6, 7]);
}

#[test]
fn a_way_around_a_failed_link_can_be_long() {
    let mut edges = "both,0,1,1\n".to_owned();
    let stops: Vec<String> = (1..40).map(|stop| format!("s{stop}")).collect();
    let way = ["0"].into_iter().chain(stops.iter().map(String::as_str));
    let way: Vec<&str> = way.chain(["1"]).collect();
    for ends in way.windows(2) {
        edges += &format!("both,{},{},2\n", ends[0], ends[1]);
    }
    let platform = EdgeList::parse(&edges).unwrap();
    let config = failing(&platform, &["0 to 1@4"], "static");
    let mut simulation = Simulation::new(
        &platform,
        script("0,1,1,10\n1,0,1,10"),
        Placement::regular(),
        config,
    )
    .unwrap();
    // 4 bytes go straight, 6 by the long way with twice the rate.
    let mut ends = Vec::new();
    while simulation.step().unwrap() {
        ends.push(simulation.summary().makespan);
    }
    assert_eq!(ends, [4.0, 7.0, 10.0]);
    assert_eq!(simulation.link_bytes()[2], 6.0);
}

#[test]
fn flows_share_what_a_failed_switch_leaves() {
    let tree = Platform::parse("fat-tree:ports=8,levels=2").unwrap();
    let config = failing(&tree, &["level 2 switch 0.1@0.5"], "adaptive");
    // The flow of the failed switch shares a link: the rest of 0.5 takes both twice as long.
    close(regular(&tree, script(COLLIDING), config), 1.5);
    let config = failing(&tree, &["level 2 switch 0.1@0.5"], "spray");
    let time = regular(&tree, script(COLLIDING), config);
    assert!((1.0 + 1.0 / 6.0 - 1e-9..=1.5).contains(&time), "{time}");
}

/// A search among the flows that leave would take a minute at the failure, and another one at the
/// end.
#[test]
fn many_flows_move_and_end_at_the_same_time() {
    const FLOWS: u32 = 500_000;
    let ring = Platform::parse("torus:4").unwrap();
    let config = Config {
        window: FLOWS,
        ..failing(&ring, &["node 0 +x@4"], "static")
    };
    let rows = "0,1,1,1\n".repeat(FLOWS as usize);
    close(regular(&ring, script(&rows), config), f64::from(FLOWS));
}

#[test]
fn a_node_that_nothing_reaches_is_told() {
    let tree = Platform::parse("fat-tree:ports=4,levels=2").unwrap();
    let config = failing(&tree, &["level 1 switch 1.0@2"], "static");
    let simulation = Simulation::new(&tree, script("0,2,1,5"), Placement::regular(), config);
    let error = simulation.unwrap().run().unwrap_err();
    assert!(matches!(error, RunError::Unreachable { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("no route from node 0 to node 2 works at 2 s"),
        "{text}"
    );
    for wrong in ["node 99@1", "level 1 switch 0.0", "node 0 up@soon"] {
        assert!(Failure::parse(wrong, &tree).is_err(), "{wrong}");
    }
}

#[test]
fn latency_counts_each_link_and_hosts_need_time_at_both_ends() {
    let mesh = Platform::parse("mesh:5,hop-latency=2,latency=1").unwrap();
    close(
        regular(&mesh, script("0,4,1,10"), checked()),
        10.0 + 4.0 * 2.0 + 1.0,
    );
    // The first byte of packets also waits for three more packets on the way.
    let time = packets(&mesh, script("0,4,1,10"), Placement::regular(), "static");
    close(time, 10.0 + 3.0 * 0.01 + 4.0 * 2.0 + 1.0);
    // A message without bytes has the latency alone.
    close(
        regular(&mesh, script("0,3,1,0"), checked()),
        3.0 * 2.0 + 1.0,
    );
    let config = Config {
        overhead: 3.0,
        ..checked()
    };
    let crossbar = Platform::parse("hypercrossbar:4").unwrap();
    let two = "0,1,1,10\n0,2,2,10,5\n";
    // The second send waits for the first, then 5 s, then for its host.
    close(regular(&crossbar, script(two), config), 16.0 + 5.0 + 16.0);
    let config = PacketConfig {
        packet_bytes: 1.0,
        overhead: 3.0,
        ..PacketConfig::default()
    };
    let simulation = PacketSimulation::new(&crossbar, script(two), Placement::regular(), config);
    // A packet of 1 byte is stored once on the way.
    close(
        simulation.unwrap().run().unwrap().makespan,
        17.0 + 5.0 + 17.0,
    );
}

#[test]
fn stored_packets_make_flows_as_slow_as_packets_where_nothing_contends() {
    for (spec, name, size) in [
        ("fat-tree:ports=6,levels=3", "allreduce:ring", 54.0),
        ("fat-tree:ports=6,levels=3", "all-to-all", 10.0),
        // The last packet is a part of one, and these messages are less than one.
        ("fat-tree:ports=6,levels=3", "all-to-all", 0.7),
        ("hypercrossbar:4x4", "allreduce:recursive-doubling", 6.0),
    ] {
        let platform = Platform::parse(spec).unwrap();
        let workload = || pattern(name, &platform, size);
        let packet_bytes = 1.0;
        let config = Config {
            stored_packet: packet_bytes,
            ..checked()
        };
        let time = regular(&platform, workload(), config);
        assert!(time > regular(&platform, workload(), checked()), "{name}");
        let config = PacketConfig {
            packet_bytes,
            ..PacketConfig::default()
        };
        let simulation = PacketSimulation::new(&platform, workload(), Placement::regular(), config);
        close(simulation.unwrap().run().unwrap().makespan, time);
    }
}

#[test]
fn messages_of_one_packet_that_share_a_link_get_out_of_step() {
    let stored = Config {
        stored_packet: 0.01,
        ..checked()
    };
    // Two nodes send 10 packets each to a third one, whose link is then always busy. Only the first
    // packet finds it empty, which takes the packet model the time of one packet more.
    let crossbar = Platform::parse("hypercrossbar:3").unwrap();
    let mut rows = String::new();
    for order in 1..=10 {
        rows += &format!("0,2,{order},0.01\n1,2,{order},0.01\n");
    }
    close(regular(&crossbar, script(&rows), stored.clone()), 0.2);
    let time = packets(&crossbar, script(&rows), Placement::regular(), "static");
    close(time, 0.21);
    for spec in ["fat-tree:ports=8,levels=3", "hyperx:4x4,terminals=4"] {
        let platform = Platform::parse(spec).unwrap();
        let nodes = platform.nodes();
        let workload = || pattern("allreduce:ring", &platform, 0.01 * nodes as f64);
        let placement = || Placement::random(nodes, 1);
        let time = run(&platform, workload(), placement(), stored.clone()).makespan;
        let error = time / packets(&platform, workload(), placement(), "static") - 1.0;
        assert!(error.abs() < 0.05, "{spec}: {error}");
    }
}

#[test]
fn devices_of_a_machine_share_its_link_to_the_network() {
    let spec = "hypercrossbar:4,latency=1,devices=4,device-bandwidth=8";
    let machines = Platform::parse(spec).unwrap();
    assert_eq!(machines.nodes(), 16);
    // Inside of a machine there is no latency of the network.
    close(regular(&machines, script("0,1,1,40"), checked()), 5.0);
    close(regular(&machines, script("0,4,1,40"), checked()), 41.0);
    close(
        regular(&machines, script("0,4,1,40\n1,5,1,40\n"), checked()),
        81.0,
    );
    // 3 rounds of a quarter inside, 6 of a 16th of each of the 4 devices between the machines, 3
    // of a quarter inside.
    let machines = Platform::parse("hypercrossbar:4,devices=4,device-bandwidth=8").unwrap();
    let workload = pattern("allreduce:hierarchical:4", &machines, 64.0);
    let time = 2.0 * 3.0 * 16.0 / 8.0 + 6.0 * 4.0 * 4.0;
    close(regular(&machines, workload, checked()), time);
    let workload = pattern("allreduce:hierarchical:4", &machines, 64.0);
    near(
        packets(&machines, workload, Placement::regular(), "static"),
        time,
        0.02,
    );
}

#[test]
fn jobs_start_at_their_times_and_slow_each_other_down() {
    let mesh = Platform::parse("mesh:4").unwrap();
    // Both jobs cross the link from node 1 to node 2.
    let jobs = |second: f64| {
        let job = |bytes: u32, start| Job {
            workload: script(&format!("0,1,1,{bytes}")),
            start,
        };
        Workload::Jobs(vec![job(20, 0.0), job(10, second)])
    };
    let placement = || Placement::explicit(vec![0, 2, 1, 3], 4).unwrap();
    let ends = |second| {
        let mut simulation = Simulation::new(&mesh, jobs(second), placement(), checked()).unwrap();
        let summary = simulation.run().unwrap();
        assert_eq!((summary.messages, jobs(second).ranks()), (2, 4));
        simulation.job_ends()
    };
    // Alone for 5 s, together until the second one has its 10 bytes, alone again.
    assert_eq!(ends(5.0), [30.0, 25.0]);
    assert_eq!(ends(20.0), [20.0, 30.0]);
    near(packets(&mesh, jobs(5.0), placement(), "static"), 30.0, 0.01);
    let waits = Workload::Jobs(vec![
        Job {
            workload: script("0,1,1,1"),
            start: 0.0,
        },
        Job {
            workload: script("0,1,1,1\nrecv,1,0,1\nrecv,1,0,2\n"),
            start: 3.0,
        },
    ]);
    let mut simulation = Simulation::new(&mesh, waits, Placement::regular(), checked()).unwrap();
    let error = simulation.run().unwrap_err().to_string();
    assert!(error.contains("rank 3 waits for rank 2"), "{error}");
}

#[test]
fn a_job_ends_with_its_last_computation() {
    let mesh = Platform::parse("mesh:4").unwrap();
    let trace = "num_ranks 2\nrank 0 {\na: send 5b to 1\nb: calc 7000000000\nb requires a\n}\n";
    let job = |workload| Job {
        workload,
        start: 0.0,
    };
    let trace = Goal::parse(
        &format!("{trace}rank 1 {{\nrecv 5b from 0\n}}\n"),
        Limits::default(),
    );
    let jobs = vec![job(Workload::Goal(trace.unwrap())), job(script("0,1,1,20"))];
    let jobs = Workload::Jobs(jobs);
    let regular = Placement::regular;
    let mut flows = Simulation::new(&mesh, jobs.clone(), regular(), checked()).unwrap();
    flows.run().unwrap();
    assert_eq!(flows.job_ends(), [12.0, 20.0]);
    let config = PacketConfig {
        packet_bytes: 5.0,
        ..PacketConfig::default()
    };
    let mut packets = PacketSimulation::new(&mesh, jobs, regular(), config).unwrap();
    packets.run().unwrap();
    assert_eq!(packets.job_ends(), [12.0, 20.0]);
}

#[test]
fn collectives_have_their_closed_forms_on_a_crossbar() {
    let crossbar = Platform::parse("hypercrossbar:16").unwrap();
    let size = 48.0;
    for (name, window, time) in [
        ("allreduce:ring", 1, 2.0 * 15.0 / 16.0 * size),
        ("allreduce:recursive-doubling", 1, 4.0 * size),
        ("allreduce:tree", 1, 8.0 * size),
        (
            "allreduce:hierarchical:4",
            1,
            (2.0 * 3.0 / 4.0 + 6.0 / 16.0) * size,
        ),
        ("pipeline:5", 1, (15.0 + 4.0) * size),
    ] {
        let config = Config {
            window,
            ..checked()
        };
        close(
            regular(&crossbar, pattern(name, &crossbar, size), config),
            time,
        );
        let config = PacketConfig {
            packet_bytes: 0.1,
            window,
            ..PacketConfig::default()
        };
        let workload = pattern(name, &crossbar, size);
        let simulation = PacketSimulation::new(&crossbar, workload, Placement::regular(), config);
        near(simulation.unwrap().run().unwrap().makespan, time, 0.05);
    }
}

#[test]
fn the_most_popular_expert_is_the_bottleneck() {
    let crossbar = Platform::parse("hypercrossbar:16").unwrap();
    let harmonic: f64 = (1..=16).map(|k| 1.0 / f64::from(k)).sum();
    let config = Config {
        window: 15,
        ..checked()
    };
    // It receives its part from 15 ranks.
    let Workload::Pattern(layer) = pattern("moe:1", &crossbar, 48.0) else {
        panic!("not a pattern");
    };
    let there = Workload::Pattern(layer.clone().with_steps(30));
    let time = 15.0 / harmonic * 48.0;
    close(regular(&crossbar, there, config.clone()), time);
    // It sends as much back. Before, it gets answers of the other experts in part.
    let whole = regular(&crossbar, Workload::Pattern(layer.clone()), config);
    assert!((2.0 * time..=2.0 * time + 48.0).contains(&whole), "{whole}");
    let config = PacketConfig {
        packet_bytes: 0.1,
        window: 15,
        ..PacketConfig::default()
    };
    let there = Workload::Pattern(layer.with_steps(30));
    let simulation = PacketSimulation::new(&crossbar, there, Placement::regular(), config);
    near(simulation.unwrap().run().unwrap().makespan, time, 0.05);
}

#[test]
fn alltoallv_ends_when_the_busiest_node_has_sent_and_received_all() {
    let crossbar = Platform::parse("hypercrossbar:12").unwrap();
    let workload = pattern("all-to-allv:5", &crossbar, 30.0);
    let config = Config {
        window: 11,
        link_bytes: true,
        ..checked()
    };
    let mut simulation =
        Simulation::new(&crossbar, workload, Placement::regular(), config).unwrap();
    let time = simulation.run().unwrap().makespan;
    let busiest = simulation.link_bytes().iter().copied().fold(0.0, f64::max);
    assert!(time >= busiest * (1.0 - 1e-12), "{time} {busiest}");
    near(time, busiest, 0.02);
}
