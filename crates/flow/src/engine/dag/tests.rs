//! Traces on hosts with costs, on a network that is never the limit. The expected times are the
//! sums that the LogGOPS model states; LogGOPSim gives the same numbers.

use crate::{
    Config, Goal, Job, Limits, LogGops, PacketConfig, PacketSimulation, Placement, Platform,
    RunError, Simulation, Workload,
};

const HOSTS: &str = "L=2500,o=1500,g=1000,G=6,O=0,S=65535";

fn nanoseconds(text: &str, hosts: &str) -> f64 {
    run(text, hosts, "hypercrossbar:8,bandwidth=1e18").unwrap()
}

fn run(text: &str, hosts: &str, platform: &str) -> Result<f64, RunError> {
    let platform = Platform::parse(platform).unwrap();
    let goal = Goal::parse(text, Limits::default()).unwrap();
    let goal = goal.with_hosts(LogGops::parse(hosts).unwrap());
    let workload = Workload::Goal(goal);
    let config = Config {
        verify: true,
        ..Config::default()
    };
    let placement = Placement::regular();
    let summary = Simulation::new(&platform, workload, placement, config)?.run()?;
    Ok(summary.makespan * 1e9)
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-6 * b.abs(), "{a} is not {b}");
}

const ONE: &str = "num_ranks 2\nrank 0 {\nsend 101b to 1 tag 1\n}\nrank 1 {\n\
                   recv 101b from 0 tag 1\n}\n";

#[test]
fn one_message_takes_both_overheads_the_latency_and_its_bytes() {
    close(nanoseconds(ONE, HOSTS), 1500.0 + 2500.0 + 1500.0 + 600.0);
    // O counts at the sender, and at the receiver if it is larger than G.
    let o = "L=2500,o=1500,G=6,O=10";
    close(nanoseconds(ONE, o), 1500.0 + 2500.0 + 1500.0 + 1000.0);
    let slow_sender = ONE.replace("tag 1\n}\nrank 1", "tag 1\ncalc 9000\n}\nrank 1");
    close(nanoseconds(&slow_sender, o), 1500.0 + 1000.0 + 9000.0);
}

#[test]
fn a_trace_among_other_jobs_keeps_its_latency() {
    let platform = Platform::parse("hypercrossbar:4,bandwidth=1e18").unwrap();
    let job = |hosts: &str| {
        let goal = Goal::parse(ONE, Limits::default()).unwrap();
        let workload = Workload::Goal(goal.with_hosts(LogGops::parse(hosts).unwrap()));
        Job {
            workload,
            start: 0.0,
        }
    };
    let jobs = Workload::Jobs(vec![job("L=2500,o=1500"), job("L=7000,o=1500")]);
    let (placement, config) = (Placement::regular(), Config::default());
    let mut flows = Simulation::new(&platform, jobs.clone(), placement.clone(), config).unwrap();
    close(
        flows.run().unwrap().makespan * 1e9,
        1500.0 + 7000.0 + 1500.0,
    );
    close(flows.job_ends()[0] * 1e9, 1500.0 + 2500.0 + 1500.0);
    let config = PacketConfig::default();
    let mut packets = PacketSimulation::new(&platform, jobs, placement, config).unwrap();
    close(
        packets.run().unwrap().makespan * 1e9,
        1500.0 + 7000.0 + 1500.0,
    );
}

#[test]
fn a_network_that_is_slower_than_the_hosts_decides() {
    // 101 bytes at 10 ns a byte: the last byte arrives, then the receiver's overhead follows.
    let platform = "hypercrossbar:2,bandwidth=1e8,latency=1us";
    let expected = 1500.0 + 1010.0 + 2500.0 + 1000.0 + 1500.0;
    close(run(ONE, HOSTS, platform).unwrap(), expected);
    // The receiver's cpu is free while bytes come in, if they cost it nothing.
    let busy = ONE.replace("from 0 tag 1\n", "from 0 tag 1\ncalc 6000\n");
    let free = "L=2500,o=1500";
    close(
        run(&busy, free, platform).unwrap(),
        1500.0 + 1010.0 + 3500.0 + 1500.0,
    );
    let occupied = run(&busy, HOSTS, platform).unwrap();
    close(occupied, 6000.0 + 1500.0 + 600.0);
}

#[test]
fn the_gap_separates_messages_of_an_interface() {
    let sends = |nic: &str, cpu: &str| {
        format!(
            "num_ranks 3\nrank 0 {{\nsend 101b to 1 tag 1\nsend 101b to 2 tag 1 {nic} {cpu}\n}}\n\
             rank 1 {{\nrecv 101b from 0 tag 1\n}}\nrank 2 {{\nrecv 101b from 0 tag 1\n}}\n"
        )
    };
    let hosts = "L=2500,o=100,g=1000,G=6";
    let one = 100.0 + 2500.0 + 100.0 + 600.0;
    close(nanoseconds(&sends("", ""), hosts), 1600.0 + one);
    close(nanoseconds(&sends("nic 1", ""), hosts), 100.0 + one);
    close(nanoseconds(&sends("nic 1", "cpu 1"), hosts), one);
}

#[test]
fn a_message_inside_of_a_machine_has_no_latency_of_the_network() {
    let devices = "hypercrossbar:2,bandwidth=1e18,devices=2,device-bandwidth=1e18,latency=1ms";
    let one = 1500.0 + 2500.0 + 1500.0 + 600.0;
    close(run(ONE, HOSTS, devices).unwrap(), one);
    let apart = ONE.replace("num_ranks 2", "num_ranks 3");
    let apart = apart.replace("to 1", "to 2").replace("rank 1", "rank 2");
    close(run(&apart, HOSTS, devices).unwrap(), 1e6 + one);
    // Several programs have their own numbers of ranks.
    let platform = Platform::parse(devices).unwrap();
    let hosts = LogGops::parse(HOSTS).unwrap();
    let jobs = [1, 2].map(|_| Job {
        workload: Workload::Goal(
            Goal::parse(ONE, Limits::default())
                .unwrap()
                .with_hosts(hosts),
        ),
        start: 0.0,
    });
    let jobs = || Workload::Jobs(jobs.to_vec());
    let regular = Placement::regular;
    let flows = Simulation::new(&platform, jobs(), regular(), Config::default());
    close(flows.unwrap().run().unwrap().makespan * 1e9, one);
    let packets = PacketSimulation::new(&platform, jobs(), regular(), PacketConfig::default());
    close(packets.unwrap().run().unwrap().makespan * 1e9, one);
}

#[test]
fn a_receiver_takes_messages_one_after_the_other() {
    let senders = "num_ranks 4\nrank 0 {\nrecv 101b from -1 tag -1\nrecv 101b from 2 tag -1\n\
                   recv 101b from -1 tag 5\n}\nrank 1 {\nsend 101b to 0 tag 5\n}\nrank 2 {\n\
                   send 101b to 0 tag 6\n}\nrank 3 {\nsend 101b to 0 tag 5\n}\n";
    let first = 1500.0 + 2500.0;
    close(nanoseconds(senders, HOSTS), first + 3.0 * 2100.0);
    close(
        nanoseconds(senders, "L=2500,o=1500,g=5000"),
        first + 2.0 * 5000.0 + 1500.0,
    );
}

#[test]
fn a_message_larger_than_s_holds_its_sender_until_it_is_received() {
    let text = "num_ranks 2\nrank 0 {\na: send 101b to 1 tag 1\nb: calc 10\nb requires a\n}\n\
                rank 1 {\na: calc 50000\nb: recv 101b from 0 tag 1\nb requires a\n}\n";
    // The message comes to the receiver's cpu after the computation, and matches at 50000 + 2100.
    close(nanoseconds(text, HOSTS), 52100.0);
    let waits = "L=2500,o=1500,g=1000,G=6,S=100";
    let late = text.replace("calc 10\n", "calc 90000\n");
    close(nanoseconds(&late, HOSTS), 1500.0 + 90000.0);
    close(nanoseconds(&late, waits), 50000.0 + 90000.0);
}

#[test]
fn a_send_that_no_receive_matches_is_a_deadlock_only_if_it_waits() {
    let text = "num_ranks 2\nrank 0 {\na: send 101b to 1 tag 1\n}\n";
    close(nanoseconds(text, HOSTS), 1500.0 + 2500.0 + 2100.0);
    let error = run(text, "S=100", "hypercrossbar:2")
        .unwrap_err()
        .to_string();
    assert!(error.contains("a send waits for a receive"), "{error}");
    assert!(error.contains("1 from rank 0 to rank 1, tag 1"), "{error}");
}

#[test]
fn a_deadlock_says_that_a_message_matches_any_tag() {
    let text = "num_ranks 2\nrank 0 {\nsend 1b to 1 tag -1\n}\nrank 1 {\n\
                recv 1b from 1 tag 3\n}\n";
    let error = run(text, HOSTS, "hypercrossbar:2").unwrap_err().to_string();
    assert!(error.contains("rank 1 waits for rank 1, tag 3"), "{error}");
    assert!(
        error.contains("1 from rank 0 to rank 1, any tag"),
        "{error}"
    );
}

/// Every rank but 0 sends a byte to rank 0, which then sends a byte to each of them.
fn linear_barrier(ranks: u32) -> String {
    let mut text = format!("num_ranks {ranks}\nrank 0 {{\nall: calc 0\n");
    for rank in 1..ranks {
        text += &format!("r{rank}: recv 1b from {rank} tag 1\nall requires r{rank}\n");
        text += &format!("s{rank}: send 1b to {rank} tag 2\ns{rank} requires all\n");
    }
    text += "}\n";
    for rank in 1..ranks {
        text += &format!(
            "rank {rank} {{\na: send 1b to 0 tag 1\nb: recv 1b from 0 tag 2\nb requires a\n}}\n"
        );
    }
    text
}

#[test]
fn a_linear_barrier_does_not_wait_for_each_arrival() {
    let text = linear_barrier(8);
    let expected = (1500.0 + 2500.0 + 7.0 * 1500.0) + 7.0 * 1500.0 + 2500.0 + 1500.0;
    close(nanoseconds(&text, HOSTS), expected);
    // Without costs of hosts, a send is complete when its last byte has left.
    let platform = Platform::parse("hypercrossbar:8,bandwidth=1e9,latency=1us").unwrap();
    let workload = Workload::Goal(Goal::parse(&text, Limits::default()).unwrap());
    let config = Config::default();
    let simulation = Simulation::new(&platform, workload, Placement::regular(), config);
    let makespan = simulation.unwrap().run().unwrap().makespan;
    close(makespan * 1e9, (7.0 + 1000.0) + (7.0 + 1000.0));
}

#[test]
fn the_packet_model_has_the_same_hosts() {
    let platform = Platform::parse("hypercrossbar:8,bandwidth=1e18").unwrap();
    let goal = Goal::parse(&linear_barrier(8), Limits::default()).unwrap();
    let goal = goal.with_hosts(LogGops::parse(HOSTS).unwrap());
    let placement = Placement::regular();
    let config = PacketConfig::default();
    let packets = PacketSimulation::new(&platform, Workload::Goal(goal), placement, config);
    let makespan = packets.unwrap().run().unwrap().makespan;
    close(makespan * 1e9, nanoseconds(&linear_barrier(8), HOSTS));
}
