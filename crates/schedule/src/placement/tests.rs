//! Tests of the estimate of a call's time at a server, and of the choice between servers under each
//! policy. The expected times are computed by hand from the rates of the links and the speed of the
//! servers.

use super::*;

const MB: u64 = 1_000_000;

fn way(rate: f64) -> PathDirection {
    PathDirection {
        latency_s: 0.01,
        rate,
        factor: 1.1,
    }
}

/// A server with the rate of its links, in bytes per second, and the seconds of a unit of work.
struct Known {
    server: Server,
    route: Route,
    profile: Profile,
}

fn known(pes: u32, rate: f64, seconds: f64) -> Known {
    let mut profile = Profile::default();
    (0..10).for_each(|_| profile.observe(1e6, 1, seconds));
    Known {
        server: Server::idle(pes, 1 << 40, Link::new(rate), Link::new(rate)),
        route: Route {
            up: way(rate),
            down: way(rate),
        },
        profile,
    }
}

fn candidates<'a>(
    servers: &'a [Known],
    client: &'a Link,
) -> impl Iterator<Item = Candidate<'a>> + Clone {
    (0..).zip(servers).map(|(id, known)| Candidate {
        id,
        server: &known.server,
        now_s: 0.0,
        route: &known.route,
        profile: &known.profile,
        unknown_s: 1.0,
        client_up: client,
        client_down: client,
    })
}

fn input(bytes: u64) -> Input {
    Input {
        bytes,
        data: None,
        origin: Origin::Client,
    }
}

fn call(inputs: &[Input]) -> Call<'_> {
    Call {
        work: 1e6,
        inputs,
        down_bytes: MB,
        memory: 0,
        fewest: 1,
        most: 1,
    }
}

fn chosen(policy: Policy, call: &Call<'_>, servers: &[Known]) -> Option<u64> {
    let client = Link::unlimited();
    let mut placer = Placer::new(policy);
    let choice = placer.choose(call, candidates(servers, &client));
    choice.map(|choice| choice.id)
}

#[test]
fn the_parts_of_the_time_add_up_to_the_whole_call() {
    let servers = [known(1, 1e6, 3.0)];
    let inputs = [input(2 * MB)];
    let client = Link::unlimited();
    let one = candidates(&servers, &client).next().expect("one");
    let terms = one.terms(&call(&inputs));
    let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-6, "{terms:?}");
    close(terms.up_s, 2.01);
    close(terms.wait_s, 0.0);
    close(terms.compute_s, 3.0);
    close(terms.down_s, 1.01);
    assert!(terms.learned && terms.factor > 1.0 && terms.factor < 1.2);
}

#[test]
fn much_computation_goes_to_the_fast_server_and_much_data_to_the_near_one() {
    let servers = [known(1, 1e8, 10.0), known(1, 1e6, 1.0)];
    let few = [input(1000)];
    assert_eq!(chosen(Policy::Completion, &call(&few), &servers), Some(1));
    let many = [input(100 * MB)];
    assert_eq!(chosen(Policy::Completion, &call(&many), &servers), Some(0));
    let both = Policy::LoadAndThroughput;
    assert_eq!(chosen(both, &call(&few), &servers), Some(1));
    assert_eq!(chosen(both, &call(&many), &servers), Some(0));
}

#[test]
fn calls_are_spread_by_the_speed_of_each_server() {
    // It is three times as fast, so it gets three times as many calls.
    let mut servers = [known(1, 1e9, 3.0), known(1, 1e9, 1.0)];
    let inputs = [input(1000)];
    let client = Link::unlimited();
    let mut placer = Placer::default();
    let mut counts = [0; 2];
    for _ in 0..80 {
        let choice = placer
            .choose(&call(&inputs), candidates(&servers, &client))
            .expect("a server");
        counts[choice.id as usize] += 1;
        let server = &mut servers[choice.id as usize].server;
        server.assign(&call(&inputs), &choice.terms);
    }
    assert_eq!(counts, [20, 60]);
    servers
        .iter_mut()
        .for_each(|known| known.server.elapse(30.0));
    let next = chosen(Policy::Completion, &call(&inputs), &servers);
    assert_eq!(next, Some(1));
    let client = candidates(&servers, &client).nth(1).expect("two");
    let wait_s = client.terms(&call(&inputs)).wait_s;
    assert!((wait_s - 30.0).abs() < 0.1, "{wait_s}");
}

#[test]
fn links_that_others_use_are_slower() {
    let mut servers = [known(4, 1e6, 1.0), known(4, 1e6, 1.0)];
    let inputs = [input(MB)];
    assert_eq!(
        chosen(Policy::Completion, &call(&inputs), &servers),
        Some(0)
    );
    servers[0].server.up.begin(1e6);
    assert_eq!(
        chosen(Policy::Completion, &call(&inputs), &servers),
        Some(1)
    );
    let client = Link::new(1e6).with([3e6, 3e6, 3e6]);
    let busy = candidates(&servers, &client).next().expect("one");
    assert!((busy.terms(&call(&inputs)).up_s - 4.01).abs() < 1e-6);
}

#[test]
fn a_server_that_holds_the_data_needs_no_transfer() {
    let mut servers = [known(1, 1e6, 1.0), known(1, 1e6, 2.0)];
    servers[1].server.holds.insert(7);
    let mut inputs = [input(50 * MB)];
    assert_eq!(
        chosen(Policy::Completion, &call(&inputs), &servers),
        Some(0)
    );
    inputs[0].data = Some(7);
    assert_eq!(
        chosen(Policy::Completion, &call(&inputs), &servers),
        Some(1)
    );
    // If the path between the servers is fast enough, the other server is still sooner.
    servers[0].server.up = Link::unlimited();
    inputs[0].origin = Origin::Holder(way(1e9));
    assert_eq!(
        chosen(Policy::Completion, &call(&inputs), &servers),
        Some(0)
    );
}

#[test]
fn a_moldable_call_has_as_many_processor_elements_as_are_free() {
    let mut servers = [known(8, 1e9, 8.0), known(2, 1e9, 4.0)];
    let moldable = Call {
        most: 8,
        ..call(&[])
    };
    let client = Link::unlimited();
    let plan = explain(&moldable, candidates(&servers, &client));
    let terms = |plan: &[(u64, Result<TimeParts, Unfit>)], place: usize| {
        plan[place].1.expect("all servers fit")
    };
    assert_eq!((plan[0].0, terms(&plan, 0).pes), (0, 8));
    assert_eq!((plan[1].0, terms(&plan, 1).pes), (1, 2));
    servers[0].server.backlog.take(0.0, 7, 100.0);
    assert_eq!(servers[0].server.backlog.free(), 1);
    let plan = explain(&moldable, candidates(&servers, &client));
    assert_eq!((plan[0].0, plan[1].0), (1, 0));
    assert_eq!(terms(&plan, 1).pes, 1);
}

#[test]
fn a_call_that_arrives_later_leaves_elements_that_are_free_sooner_to_others() {
    let mut backlog = Backlog::new(2);
    backlog.take(20.0, 1, 5.0);
    backlog.take(0.0, 1, 5.0);
    assert_eq!(backlog.slot(0.0, (1, 1), |_| 0.0).start_s, 0.0);
    assert_eq!(backlog.slot(0.0, (2, 2), |_| 0.0).start_s, 5.0);
    assert_eq!(
        backlog.slot(19.0, (1, 2), |_| 0.0),
        Slot {
            start_s: 19.0,
            pes: 2
        }
    );
    assert_eq!(
        backlog.slot(21.0, (1, 2), |_| 0.0),
        Slot {
            start_s: 21.0,
            pes: 1
        }
    );
    assert_eq!(backlog.slot(21.0, (2, 2), |_| 0.0).start_s, 25.0);
    backlog.elapse(24.0);
    assert_eq!(
        backlog.slot(0.0, (5, 9), |_| 0.0),
        Slot {
            start_s: 1.0,
            pes: 2
        }
    );
}

#[test]
fn a_call_starts_only_if_it_does_not_delay_a_reservation() {
    let mut backlog = Backlog::new(2);
    let kept = |pes, from_s, until_s| BusyElements {
        pes,
        from_s,
        until_s,
    };
    backlog.keep(kept(2, 10.0, 20.0));
    backlog.keep(kept(1, 25.0, 30.0));
    let start = |backlog: &Backlog, fewest, seconds: f64| {
        let slot = backlog.slot(0.0, (fewest, 2), |_| seconds);
        (slot.start_s, slot.pes)
    };
    assert_eq!(start(&backlog, 1, 10.0), (0.0, 2));
    assert_eq!(start(&backlog, 1, 11.0), (20.0, 1));
    assert_eq!(start(&backlog, 2, 11.0), (30.0, 2));
    // A call that waits for the end of a reservation lets shorter calls start first.
    backlog.take(0.0, 1, 12.0);
    assert_eq!(start(&backlog, 1, 10.0), (0.0, 1));
    assert_eq!(start(&backlog, 1, 11.0), (30.0, 1));
    backlog.elapse(15.0);
    assert_eq!((backlog.free(), backlog.kept(0.0)), (0, 2));
    assert_eq!(start(&backlog, 1, 1.0), (5.0, 1));
    backlog.elapse(40.0);
    assert_eq!((backlog.free(), backlog.kept(0.0)), (2, 0));
}

#[test]
fn a_call_avoids_a_server_that_is_reserved() {
    let mut servers = [known(2, 1e9, 1.0), known(2, 1e9, 1.5)];
    let keep = |known: &mut Known, from_s| {
        known.server.backlog.keep(BusyElements {
            pes: 2,
            from_s,
            until_s: 60.0,
        });
    };
    let wanted = call(&[]);
    keep(&mut servers[0], 5.0);
    for (name, policy) in Policy::NAMES {
        assert_eq!(chosen(policy, &wanted, &servers), Some(0), "{name}");
    }
    keep(&mut servers[0], 0.5);
    assert_eq!(chosen(Policy::Completion, &wanted, &servers), Some(1));
    keep(&mut servers[0], 0.0);
    for (name, policy) in Policy::NAMES.into_iter().skip(1) {
        assert_eq!(chosen(policy, &wanted, &servers), Some(1), "{name}");
    }
    // If there is no other server, the call waits.
    assert_eq!(chosen(Policy::Completion, &wanted, &servers[..1]), Some(0));
}

#[test]
fn servers_that_cannot_run_the_call_come_last_with_the_reason() {
    let mut servers = [known(1, 1e9, 0.1), known(1, 1e9, 1.0), known(1, 1e9, 0.1)];
    servers[0].server.accepts = false;
    servers[2].server.memory = 5;
    let wide = Call {
        memory: 6,
        ..call(&[])
    };
    let client = Link::unlimited();
    let plan = explain(&wide, candidates(&servers, &client));
    assert_eq!(plan[0].0, 1);
    assert_eq!(plan[1], (0, Err(Unfit::Refuses)));
    let memory = Unfit::Memory { wanted: 6, free: 5 };
    assert_eq!(plan[2], (2, Err(memory)));
    for (_, policy) in Policy::NAMES {
        assert_eq!(chosen(policy, &wide, &servers), Some(1));
        assert_eq!(chosen(policy, &wide, &servers[..1]), None);
    }
}

#[test]
fn the_estimate_and_the_choice_agree() {
    let mut servers: Vec<Known> = (1..40u32)
        .map(|k| {
            known(
                1 + k % 5,
                1e5 * f64::from(k * 7 % 31 + 1),
                f64::from(k * 5 % 17 + 1),
            )
        })
        .collect();
    let inputs = [input(MB / 3)];
    let client = Link::new(2e6);
    for _ in 0..100 {
        let choice = Placer::default().choose(&call(&inputs), candidates(&servers, &client));
        let choice = choice.expect("a server");
        let plan = explain(&call(&inputs), candidates(&servers, &client));
        assert_eq!(plan[0], (choice.id, Ok(choice.terms)));
        let server = &mut servers[choice.id as usize].server;
        server.assign(&call(&inputs), &choice.terms);
    }
}

#[test]
fn the_simple_policies_do_what_they_say() {
    let mut servers = [known(1, 1e9, 1.0), known(4, 1e9, 1.0), known(1, 1e9, 1.0)];
    let client = Link::unlimited();
    let mut turns = Placer::new(Policy::RoundRobin);
    let next = |turns: &mut Placer, servers: &[Known]| {
        turns
            .choose(&call(&[]), candidates(servers, &client))
            .map(|choice| choice.id)
    };
    let order: Vec<_> = (0..7).filter_map(|_| next(&mut turns, &servers)).collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 2, 0]);
    servers[1].server.accepts = false;
    assert_eq!(next(&mut turns, &servers), Some(2));
    servers[1].server.accepts = true;
    (
        servers[0].server.calls,
        servers[1].server.calls,
        servers[2].server.calls,
    ) = (1, 3, 2);
    assert_eq!(chosen(Policy::LeastLoad, &call(&[]), &servers), Some(1));
    for (name, policy) in Policy::NAMES {
        assert_eq!((Policy::named(name), policy.name()), (Some(policy), name));
    }
}

#[test]
fn the_time_of_a_function_that_was_never_called_is_guessed() {
    let mut servers = [known(1, 1e9, 2.0), known(1, 1e9, 2.0)];
    servers[1].profile = Profile::default();
    assert_eq!(chosen(Policy::Completion, &call(&[]), &servers), Some(1));
    let client = Link::unlimited();
    let plan = explain(&call(&[]), candidates(&servers, &client));
    let terms = plan[0].1.expect("fits");
    assert!(!terms.learned && terms.factor > 2.0);
}
