//! Tests of whole simulations, from a pattern to the time of its end. The expected times are closed
//! forms, published figures, or values of SimGrid. Runs with `checked` also verify at each event
//! that the rates are max-min fair.

use super::*;
use crate::goal::Goal;
use crate::pattern::Pattern;
use crate::script::{Limits, Script};

fn checked() -> Config {
    Config {
        verify: true,
        ..Config::default()
    }
}

fn simulate(platform: &str, pattern: &str, size: f64, placement: &str, config: Config) -> Summary {
    let platform = Platform::parse(platform).unwrap();
    let n = platform.nodes();
    let pattern = Pattern::parse(pattern, n as u32, size).unwrap();
    let placement = Placement::parse(placement, n).unwrap();
    let workload = Workload::Pattern(pattern);
    Simulation::new(&platform, workload, placement, config)
        .unwrap()
        .run()
        .unwrap()
}

fn script(platform: &str, text: &str, config: Config) -> Result<Summary, RunError> {
    let platform = Platform::parse(platform).unwrap();
    let script = Script::parse_csv(text, Limits::default()).unwrap();
    let workload = Workload::Script(script);
    Simulation::new(&platform, workload, Placement::regular(), config)?.run()
}

fn goal(text: &str, config: Config) -> Result<Summary, RunError> {
    let platform = Platform::parse("hypercrossbar:4").unwrap();
    let workload = Workload::Goal(Goal::parse(text, Limits::default()).unwrap());
    Simulation::new(&platform, workload, Placement::regular(), config)?.run()
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} is not {b}");
}

#[test]
fn fat_tree_regular_ends_after_one_message_time_per_peer() {
    let small = simulate(
        "fat-tree:ports=6,levels=3",
        "all-to-all",
        1.0,
        "regular",
        checked(),
    );
    assert_eq!(
        (small.makespan, small.messages, small.events),
        (53.0, 54 * 53, 53)
    );
    let config = checked();
    let spread = "all-to-all:simple-spread";
    let large = simulate("fat-tree:ports=16,levels=3", spread, 1.0, "regular", config);
    assert_eq!((large.makespan, large.events), (1023.0, 1023));
}

#[test]
fn messages_without_bytes_need_no_memory_each() {
    let platform = Platform::parse("torus:16x16").unwrap();
    let pattern = Pattern::parse("all-to-all:simple-spread", 256, 0.0).unwrap();
    let workload = Workload::Pattern(pattern);
    let config = Config::default();
    let placement = Placement::regular();
    let mut simulation = Simulation::new(&platform, workload, placement, config).unwrap();
    let summary = simulation.run().unwrap();
    assert_eq!((summary.makespan, summary.messages), (0.0, 256 * 255));
    let actions = simulation.actions.capacity();
    assert!(actions < 8192, "{actions} actions");
}

#[test]
fn torus_16x16_has_the_known_digits() {
    let platform = "torus:16x16,bandwidth=1GB/s,ties=even";
    let run = |pattern, config| simulate(platform, pattern, 20e3, "regular", config);
    let spread_2d = run("all-to-all:simple-spread-2d", checked());
    close(spread_2d.makespan, 27.36e-3);
    assert!(
        (255..=256).contains(&spread_2d.events),
        "{}",
        spread_2d.events
    );
    let pairwise = run("all-to-all:pairwise", checked());
    close(pairwise.makespan, 22.22e-3);
    assert!(
        (255..=256).contains(&pairwise.events),
        "{}",
        pairwise.events
    );
    // This pattern is chaotic: the exact value differs between platforms, but its range is known.
    let spread = run("all-to-all:simple-spread", checked());
    assert!(
        (38.0e-3..39.0e-3).contains(&spread.makespan),
        "{}",
        spread.makespan
    );
}

#[test]
fn every_event_of_contended_runs_has_its_certificate() {
    for (platform, pattern) in [
        ("fat-tree:ports=6,levels=3", "all-to-all:simple-spread"),
        ("torus:6x6", "all-to-all:simple-spread"),
        ("mesh:4x4,wrap=x", "all-to-all:pairwise"),
        ("hypercrossbar:4x4x2", "all-to-all:pairwise"),
        (
            "dragonfly:routers=3,terminals=2,global=1",
            "allgather:bruck",
        ),
        ("hyperx:3x3,terminals=3", "allreduce:recursive-doubling"),
        ("fat-tree:ports=8,levels=2,taper=4", "all-to-all:bruck"),
    ] {
        let summary = simulate(platform, pattern, 3.0, "random:5", checked());
        assert!(summary.makespan > 0.0);
    }
}

#[test]
fn a_wider_window_shares_and_a_delay_delays() {
    // Two messages of 10 bytes from rank 0 over its one link of 1 byte/s.
    let rows = "0,1,1,10\n0,2,2,10\n";
    let one = script("hypercrossbar:4", rows, checked()).unwrap();
    assert_eq!((one.makespan, one.events), (20.0, 2));
    let two = script(
        "hypercrossbar:4",
        rows,
        Config {
            window: 2,
            ..checked()
        },
    )
    .unwrap();
    assert_eq!((two.makespan, two.events), (20.0, 1));
    let late = script("hypercrossbar:4", "0,1,1,10,5\n0,2,2,10,5\n", checked()).unwrap();
    assert_eq!(late.makespan, 30.0);
}

#[test]
fn a_receive_holds_the_queue() {
    let rows = "0,1,1,10\nrecv,1,0,1\n1,2,2,10\n";
    assert_eq!(
        script("hypercrossbar:4", rows, checked()).unwrap().makespan,
        20.0
    );
    // The message is early: rank 1 is busy for 30 s, then the receive is satisfied at once.
    let rows = "0,1,1,10\n1,3,1,30\nrecv,1,0,2\n1,2,3,10\n";
    assert_eq!(
        script("hypercrossbar:4", rows, checked()).unwrap().makespan,
        40.0
    );
}

#[test]
fn latency_counts_at_the_destination_or_behind_the_next_send() {
    let rows = "0,1,1,10\n0,2,2,10\n";
    let platform = "hypercrossbar:4,latency=3";
    assert_eq!(script(platform, rows, checked()).unwrap().makespan, 26.0);
    let config = Config {
        completion: Some(Completion::Source),
        ..checked()
    };
    assert_eq!(script(platform, rows, config).unwrap().makespan, 23.0);
}

#[test]
fn empty_messages_and_messages_to_oneself_take_no_time() {
    let rows = "0,0,1,10\n0,1,2,0\n0,1,3,7\n";
    let summary = script("hypercrossbar:4", rows, checked()).unwrap();
    assert_eq!((summary.makespan, summary.messages), (7.0, 3));
}

#[test]
fn a_script_that_deadlocks_names_ranks_and_lines() {
    let rows = "recv,0,1,1\n0,1,2,5\nrecv,1,0,1\n1,0,2,5\n2,3,1,4\n";
    let Err(RunError::Deadlock(deadlock)) = script("hypercrossbar:4", rows, checked()) else {
        panic!("expected a deadlock");
    };
    assert_eq!(deadlock.time, 4.0);
    let waits: Vec<_> = deadlock
        .blocked
        .iter()
        .map(|b| (b.rank, b.source, b.line))
        .collect();
    assert_eq!(waits, [(0, Some(1), Some(1)), (1, Some(0), Some(3))]);
    assert!(
        deadlock
            .to_string()
            .contains("rank 1 waits for rank 0 (line 3)")
    );
}

#[test]
fn a_trace_computes_sends_and_receives() {
    // 2 s of computation, 10 bytes at 1 byte/s, 3 s of computation.
    let text = "num_ranks 2\nrank 0 {\na: calc 2000000000\nb: send 10b to 1 tag 1\n\
                b requires a\n}\n\
                rank 1 {\na: recv 10b from 0 tag 1\nb: calc 3000000000\nb requires a\n}\n";
    assert_eq!(goal(text, checked()).unwrap().makespan, 15.0);
    let overlapped = text.replace("b requires a\n}\n\nrank 1", "b irequires a\n}\n\nrank 1");
    assert_eq!(goal(&overlapped, checked()).unwrap().makespan, 15.0);
    let both = text.replace("b requires a", "b irequires a");
    assert_eq!(goal(&both, checked()).unwrap().makespan, 10.0);
}

#[test]
fn computations_on_one_cpu_run_one_after_the_other() {
    let text = "num_ranks 1\nrank 0 {\na: calc 1000000000\nb: calc 1000000000 cpu 0\n\
                c: calc 1500000000 cpu 1\n}\n";
    assert_eq!(goal(text, checked()).unwrap().makespan, 2.0);
}

#[test]
fn a_trace_that_deadlocks_names_ranks_messages_and_lines() {
    let text =
        "num_ranks 2\nrank 0 {\na: send 4b to 1 tag 7\n}\nrank 1 {\nb: recv 4b from 0 tag 8\n}";
    let Err(RunError::Deadlock(deadlock)) = goal(text, checked()) else {
        panic!("expected a deadlock");
    };
    assert_eq!(deadlock.unreceived, [(0, 1, 7, 1)]);
    let text = deadlock.to_string();
    assert!(
        text.contains("rank 1 waits for rank 0, tag 8 (line 6)"),
        "{text}"
    );
    assert!(text.contains("1 from rank 0 to rank 1, tag 7"), "{text}");
}

#[test]
fn a_deadlock_says_how_many_messages_it_does_not_show() {
    let text = |messages| {
        let unreceived = (0..messages).map(|tag| (0, 1, tag, 1)).collect();
        let blocked = Vec::new();
        let time = 1.0;
        Deadlock {
            time,
            blocked,
            unreceived,
        }
        .to_string()
    };
    assert!(text(12).ends_with("tag 9\n  not received: those of 2 more ranks or tags"));
    assert!(text(10).ends_with("tag 9"));
}

#[test]
fn collectives_take_their_closed_form_on_a_crossbar() {
    let time = |pattern| simulate("hypercrossbar:8", pattern, 64.0, "regular", checked()).makespan;
    close(time("allreduce:ring"), 14.0 * 8.0);
    close(time("allreduce:recursive-doubling"), 3.0 * 64.0);
    close(time("allreduce:tree"), 2.0 * 3.0 * 64.0);
    // Groups of 4: 3 steps of a quarter, 2 of an eighth, 3 of a quarter.
    close(time("allreduce:hierarchical:4"), 6.0 * 16.0 + 2.0 * 8.0);
    close(time("allreduce:hierarchical:8"), 14.0 * 8.0);
    close(time("allreduce:hierarchical:1"), 14.0 * 8.0);
    // The first batch passes 7 links, and 4 more follow it.
    close(time("pipeline:5"), (7.0 + 4.0) * 64.0);
    close(time("allgather:ring"), 7.0 * 64.0);
    close(time("allgather:recursive-doubling"), 7.0 * 64.0);
    close(time("allgather:bruck"), 7.0 * 64.0);
    close(time("broadcast:binomial"), 3.0 * 64.0);
    // Scatter 4 + 2 + 1 blocks of 8; the ring's 7 steps overlap its end.
    let scattered = time("broadcast:scatter-allgather");
    assert!((7.0 * 8.0..=14.0 * 8.0).contains(&scattered), "{scattered}");
    close(time("all-to-all:bruck"), 3.0 * 4.0 * 64.0);
}

#[test]
fn published_modes_agree_with_exact_without_contention() {
    for mode in [Mode::EqualSplit, Mode::Iterated { threshold: 0.01 }] {
        let config = Config {
            mode,
            ..Config::default()
        };
        let spread = "all-to-all:simple-spread";
        let summary = simulate(
            "fat-tree:ports=6,levels=3",
            spread,
            1.0,
            "regular",
            config.clone(),
        );
        assert_eq!(summary.makespan, 53.0);
        let random =
            |config| simulate("fat-tree:ports=6,levels=3", spread, 1.0, "random:1", config);
        let (published, exact) = (random(config).makespan, random(checked()).makespan);
        assert!(
            published > 53.0 && published < 1.3 * exact,
            "{published} {exact}"
        );
    }
}

#[test]
fn a_tolerance_changes_a_run_by_about_as_much() {
    let run = |tolerance| {
        let config = Config {
            tolerance,
            ..checked()
        };
        let exchange = "exchange:8x8x8";
        simulate("torus:8x8x8", exchange, 1.0, "random:3", config).makespan
    };
    let exact = run(0.0);
    for tolerance in [0.01, 0.03, 0.1] {
        let error = (run(tolerance) / exact - 1.0).abs();
        assert!(error > 0.0 && error < tolerance, "{tolerance}: {error}");
    }
}

#[test]
fn resolution_bounds_the_number_of_batches() {
    let spread = "all-to-all:simple-spread";
    let run = |resolution| {
        let config = Config {
            resolution,
            ..checked()
        };
        simulate("fat-tree:ports=6,levels=3", spread, 1.0, "random:1", config)
    };
    let (fine, coarse) = (run(0.0), run(1.0));
    assert!(coarse.events < fine.events && coarse.makespan >= fine.makespan);
    assert!(coarse.events as f64 <= coarse.makespan + 1.0);
}

#[test]
fn link_bytes_and_records_add_up() {
    let platform = Platform::parse("torus:4x4").unwrap();
    let pattern = Pattern::parse("all-to-all:simple-spread", 16, 5.0)
        .unwrap()
        .with_count(2);
    let config = Config {
        link_bytes: true,
        ..checked()
    };
    let mut records = Vec::new();
    let mut bytes = 0.0;
    {
        let workload = Workload::Pattern(pattern);
        let sink = Box::new(|record: &Record| match record {
            Record::Message(message) => records.push(*message),
            other => panic!("{other:?}"),
        });
        let simulation = Simulation::new(&platform, workload, Placement::regular(), config);
        let mut simulation = simulation.unwrap().with_sink(sink);
        let summary = simulation.run().unwrap();
        assert_eq!(summary.messages, 2 * 16 * 15);
        bytes += simulation.link_bytes().iter().sum::<f64>();
    }
    let mut path = vec![0; platform.max_hops()];
    let hops = |r: &MessageRecord, path: &mut [u32]| platform.route(r.source, r.destination, path);
    let expected: f64 = records
        .iter()
        .map(|r| r.bytes * hops(r, &mut path) as f64)
        .sum();
    close(bytes, expected);
    assert!(records.iter().all(|r| r.end > r.start));
}

#[test]
fn watched_links_tell_their_users_and_their_load() {
    // Both messages enter node 2 by one link of 1 byte/s; the second one starts 5 s later.
    let text = "0,2,1,10\n1,2,1,10,5\n";
    let platform = Platform::parse("hypercrossbar:4").unwrap();
    let script = Script::parse_csv(text, Limits::default()).unwrap();
    let into = 5;
    assert_eq!(platform.link_name(into), "crossbar x to node 2");
    let config = Config {
        link_bytes: true,
        watch: vec![into, into],
        ..checked()
    };
    let (mut loads, mut computations) = (Vec::new(), Vec::new());
    let sink = Box::new(|record: &Record| match record {
        Record::LinkLoad(load) => loads.push((load.link, load.time, load.rate)),
        Record::Computation(c) => computations.push((c.rank, c.start, c.end)),
        Record::Message(_) => {}
    });
    let workload = Workload::Script(script);
    let simulation = Simulation::new(&platform, workload, Placement::regular(), config);
    let mut simulation = simulation.unwrap().with_sink(sink);
    simulation.run().unwrap();
    assert_eq!(simulation.users(), [[(0, 2, 10.0), (1, 2, 10.0)]]);
    let bandwidth = |link| platform.bandwidth(link);
    let hottest = hottest_links(simulation.link_bytes(), bandwidth, 2);
    assert_eq!((hottest.len(), hottest[0]), (2, into));
    drop(simulation);
    assert_eq!(loads, [(into, 0.0, 1.0), (into, 20.0, 0.0)]);
    assert_eq!(computations, [(1, 0.0, 5.0)]);
}

#[test]
fn rounds_in_closed_form_have_the_users_of_single_rounds() {
    let platform = Platform::parse("fat-tree:ports=4,levels=3").unwrap();
    let users = |verify| {
        let pattern = Pattern::parse("allgather:ring", 16, 3.0).unwrap();
        let config = Config {
            verify,
            watch: vec![20, 40],
            ..Config::default()
        };
        let workload = Workload::Pattern(pattern);
        let placement = Placement::random(16, 4);
        let mut simulation = Simulation::new(&platform, workload, placement, config).unwrap();
        simulation.run().unwrap();
        simulation.users()
    };
    assert!(!users(false)[0].is_empty());
    assert_eq!(users(false), users(true));
}

#[test]
fn steps_cut_a_pattern_after_rounds() {
    let platform = Platform::parse("torus:4x4").unwrap();
    let pattern = Pattern::parse("allreduce:ring", 16, 16.0)
        .unwrap()
        .with_steps(3);
    let workload = Workload::Pattern(pattern);
    let simulation = Simulation::new(&platform, workload, Placement::random(16, 2), checked());
    assert_eq!(simulation.unwrap().run().unwrap().messages, 48);
}

#[test]
fn skipping_repeated_rounds_gives_the_same_result() {
    for (spec, pattern) in [
        ("torus:4x4", "allreduce:ring"),
        ("fat-tree:ports=4,levels=3", "allgather:ring"),
        ("mesh:3x3", "broadcast:scatter-allgather"),
    ] {
        for placement in ["regular", "random:4"] {
            let platform = Platform::parse(spec).unwrap();
            let n = platform.nodes();
            let run = |sink: bool| {
                let pattern = Pattern::parse(pattern, n as u32, 1e3).unwrap();
                let placement = Placement::parse(placement, n).unwrap();
                let config = Config {
                    link_bytes: true,
                    ..checked()
                };
                let workload = Workload::Pattern(pattern);
                let mut simulation =
                    Simulation::new(&platform, workload, placement, config).unwrap();
                if sink {
                    simulation = simulation.with_sink(Box::new(|_| {}));
                }
                let mut steps = 0;
                while simulation.step().unwrap() {
                    steps += 1;
                }
                (
                    simulation.summary(),
                    simulation.link_bytes().to_vec(),
                    steps,
                )
            };
            let (skipped, one_by_one) = (run(false), run(true));
            close(skipped.0.makespan, one_by_one.0.makespan);
            assert_eq!(
                skipped.0.messages, one_by_one.0.messages,
                "{spec} {pattern}"
            );
            for (a, b) in skipped.1.iter().zip(&one_by_one.1) {
                assert!((a - b).abs() <= 1e-9 * b, "{a} {b}");
            }
            if placement == "regular" && spec != "mesh:3x3" {
                assert_eq!(skipped.0.events, one_by_one.0.events);
                assert!(skipped.2 < one_by_one.2);
            }
        }
    }
}

#[test]
fn equal_rounds_end_when_their_busiest_link_has_carried_them() {
    for spec in [
        "torus:4x4",
        "mesh:5x3",
        "fat-tree:ports=6,levels=3,bandwidth=3:2:1",
        "fat-tree:ports=8,levels=2,taper=4",
        "dragonfly:routers=3,terminals=2,global=1",
        "hyperx:3x3,terminals=3",
        "torus:3x4x2,bandwidth=1:7:2,nic=link",
    ] {
        for seed in 0..4 {
            let platform = Platform::parse(spec).unwrap();
            let n = platform.nodes();
            let run = |config: Config| {
                let pattern = Pattern::parse("allreduce:ring", n as u32, 1e3).unwrap();
                let (workload, placement) =
                    (Workload::Pattern(pattern), Placement::random(n, seed));
                let mut simulation =
                    Simulation::new(&platform, workload, placement, config).unwrap();
                (simulation.run().unwrap(), simulation.link_bytes().to_vec())
            };
            let config = |verify| Config {
                verify,
                link_bytes: true,
                ..Config::default()
            };
            let (closed, one_by_one) = (run(config(false)), run(config(true)));
            close(closed.0.makespan, one_by_one.0.makespan);
            assert_eq!(closed.0.messages, one_by_one.0.messages);
            for (a, b) in closed.1.iter().zip(&one_by_one.1) {
                assert!((a - b).abs() <= 1e-9 * b, "{spec}: {a} {b}");
            }
        }
    }
}

/// Values of SimGrid 3.32 on the same routes and placement; `farcall bench flow --peers` asks
/// SimGrid itself.
#[test]
fn short_random_runs_have_the_digits_of_a_peer() {
    let run = |spec: &str, size: f64, steps: u64| {
        let platform = Platform::parse(spec).unwrap();
        let n = platform.nodes();
        let pattern = Pattern::parse("all-to-all:simple-spread", n as u32, size).unwrap();
        let workload = Workload::Pattern(pattern.with_steps(steps));
        let placement = Placement::random(n, 1);
        let simulation = Simulation::new(&platform, workload, placement, checked());
        simulation.unwrap().run().unwrap().makespan
    };
    close(run("fat-tree:ports=16,levels=3", 1.0, 20), 60.2276798127437);
    close(
        run("torus:32x32,bandwidth=1e9", 20e3, 4),
        0.000624979285184802,
    );
}

#[test]
fn more_ranks_than_nodes_are_refused() {
    let platform = Platform::parse("mesh:4").unwrap();
    let pattern = Pattern::parse("ring", 4, 1.0).unwrap();
    let placement = Placement::parse_csv("0\n1\n2", 4).unwrap();
    let few = Simulation::new(
        &platform,
        Workload::Pattern(pattern),
        placement,
        Config::default(),
    );
    let few = few.err().map(|error| error.to_string());
    let text = "4 ranks do not fit on 3 nodes; choose a larger platform, or a placement with a \
                node for each rank";
    assert_eq!(few.as_deref(), Some(text));
    let error = script("hypercrossbar:2", "0,5,1,1", checked()).unwrap_err();
    assert_eq!(
        error,
        RunError::TooManyRanks {
            ranks: 6,
            places: 2
        }
    );
    // The ranks of both jobs together are 2^32.
    let job = || Job {
        workload: Workload::Pattern(Pattern::parse("ring", 1 << 31, 1.0).unwrap()),
        start: 0.0,
    };
    let jobs = Workload::Jobs(vec![job(), job()]);
    let many = Simulation::new(&platform, jobs, Placement::regular(), Config::default());
    assert!(matches!(many.err(), Some(RunError::TooManyRanks { .. })));
}

#[test]
fn messages_are_sent_as_often_as_the_largest_count_says() {
    let platform = Platform::parse("mesh:2").unwrap();
    for count in [1 << 31, u32::MAX] {
        let pattern = Pattern::parse("allgather:ring", 2, 1.0).unwrap();
        let workload = Workload::Pattern(pattern.with_count(count));
        let simulation =
            Simulation::new(&platform, workload, Placement::regular(), Config::default());
        assert_eq!(simulation.unwrap().step(), Ok(true), "{count}");
    }
}

#[test]
fn a_single_rank_has_nobody_to_talk_to() {
    for pattern in ["moe:2", "all-to-all", "allreduce:ring", "broadcast"] {
        let summary = simulate("mesh:1", pattern, 8.0, "regular", checked());
        assert_eq!((summary.makespan, summary.messages), (0.0, 0), "{pattern}");
    }
}

#[test]
fn time_ends_at_the_largest_number() {
    let config = Config {
        resolution: 1.7e308,
        ..checked()
    };
    let summary = simulate("mesh:4", "all-to-all:pairwise", 8.0, "regular", config);
    assert_eq!((summary.makespan, summary.messages), (f64::MAX, 12));
    let slow = "torus:4,bandwidth=1e-300";
    let summary = script(slow, "0,1,1,1e300\n1,2,1,1\n2,3,1,1,1e308", checked()).unwrap();
    assert_eq!((summary.makespan, summary.messages), (f64::MAX, 3));
    for ring in ["allreduce:ring", "ring"] {
        let summary = simulate(slow, ring, 1e300, "regular", Config::default());
        assert_eq!(summary.makespan, f64::MAX, "{ring}");
        assert!(summary.messages > 0);
    }
}
