//! Runs random programs as graphs on servers that come and go, and the same programs call by call.
//! The memory must be the same in the end. The loss of a server costs time or is an error, and
//! never gives a wrong result.

use farcall_random::SplitMix64;
use farcall_schedule::dataflow::{Access, Datum, Graph, Misuse, Run, Source, Step, Use, VersionId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const CELLS: usize = 24;
const SERVERS: u64 = 3;

/// A number that depends on every bit of another.
fn mix(value: u64) -> u64 {
    SplitMix64::new(value).next_u64()
}

/// A number below `most`.
fn below(random: &mut SplitMix64, most: usize) -> usize {
    random.below(most as u64) as usize
}

type Cells = Vec<u64>;
type Program = Vec<Vec<Use>>;

fn memory(start: usize, cells: usize) -> Datum {
    formed(start, cells, 0)
}

fn formed(start: usize, cells: usize, form: u64) -> Datum {
    Datum::Memory {
        start: start as u64,
        bytes: cells as u64,
        form,
    }
}

fn length(datum: Datum) -> usize {
    match datum {
        Datum::Memory { bytes, .. } => bytes as usize,
        Datum::Deferred(_) => 3,
    }
}

/// The contents that a call writes to one of its arrays, computed from what it reads.
fn made(call: usize, argument: usize, reads: &[(usize, Cells)], length: usize) -> Cells {
    let mut seed = mix((call * 31 + argument) as u64);
    for (argument, cells) in reads {
        seed = mix(seed ^ *argument as u64);
        seed = cells.iter().fold(seed, |seed, cell| mix(seed ^ cell));
    }
    (0..length as u64).map(|cell| mix(seed ^ cell)).collect()
}

/// A program of calls whose arrays are often the same and sometimes overlap.
fn program(random: &mut SplitMix64, overlaps: bool) -> Program {
    let mut graph = Graph::default();
    let mut calls = Vec::new();
    for _ in 0..below(random, 12) + 1 {
        let mut uses: Vec<Use> = Vec::new();
        for argument in 0..below(random, 3) + 1 {
            let datum = match random.below(4) {
                0 => Datum::Deferred(random.below(3)),
                _ if overlaps && random.below(3) == 0 => {
                    let start = below(random, CELLS - 6);
                    formed(start, below(random, 6) + 1, random.below(2))
                }
                _ => memory(below(random, CELLS / 4) * 4, 4),
            };
            let access = match random.below(3) {
                0 => Access::Write,
                1 => Access::Update,
                _ => Access::Read,
            };
            uses.push(Use {
                argument,
                datum,
                access,
            });
        }
        if graph.add(1.0, &uses).is_ok() {
            calls.push(uses);
        }
    }
    calls
}

/// Runs the program call by call.
fn in_order(program: &Program, cells: &mut Cells) -> HashMap<u64, Cells> {
    let mut deferred: HashMap<u64, Cells> = HashMap::new();
    for (call, uses) in program.iter().enumerate() {
        let mut reads = Vec::new();
        for used in uses.iter().filter(|used| used.access.reads()) {
            let read = match used.datum {
                Datum::Memory { start, bytes, .. } => {
                    cells[start as usize..(start + bytes) as usize].to_vec()
                }
                Datum::Deferred(number) => deferred[&number].clone(),
            };
            reads.push((used.argument, read));
        }
        for used in uses.iter().filter(|used| used.access.writes()) {
            let made = made(call, used.argument, &reads, length(used.datum));
            match used.datum {
                Datum::Memory { start, bytes, .. } => {
                    cells[start as usize..(start + bytes) as usize].copy_from_slice(&made);
                }
                Datum::Deferred(number) => {
                    deferred.insert(number, made);
                }
            }
        }
    }
    deferred
}

/// Servers and a client that follow the instructions of a run.
struct World {
    run: Run,
    cells: Cells,
    held: BTreeMap<(VersionId, u64), Cells>,
    /// The steps that have started, with what they have read and what they write.
    running: Vec<(Step, Vec<(VersionId, Cells)>)>,
    fetching: Vec<(VersionId, u64)>,
    alive: BTreeSet<u64>,
    moved: usize,
    /// How often each call has begun.
    begun: Vec<usize>,
}

impl World {
    fn new(program: &Program, cells: Cells) -> World {
        let mut graph = Graph::default();
        for uses in program {
            graph.add(1.0, uses).unwrap();
        }
        World {
            run: Run::new(graph),
            cells,
            held: BTreeMap::new(),
            running: Vec::new(),
            fetching: Vec::new(),
            alive: (0..SERVERS).collect(),
            moved: 0,
            begun: vec![0; program.len()],
        }
    }

    fn home(&self, datum: Datum) -> Cells {
        let Datum::Memory { start, bytes, .. } = datum else {
            panic!("only at servers");
        };
        self.cells[start as usize..(start + bytes) as usize].to_vec()
    }

    fn bring(&mut self, datum: Datum, made: &Cells) {
        let Datum::Memory { start, bytes, .. } = datum else {
            panic!("only at servers");
        };
        self.cells[start as usize..(start + bytes) as usize].copy_from_slice(made);
    }

    fn start(&mut self, call: usize, server: u64) {
        let step = self.run.start(call, server);
        let flows = self.run.graph().nodes()[call].flows.clone();
        let mut reads = Vec::new();
        for (place, (flow, from)) in flows.iter().zip(&step.from).enumerate() {
            let Some(version) = flow.reads else { continue };
            let read = match from {
                Source::Direct | Source::Home => self.home(flow.used.datum),
                Source::Here => self.held[&(version, server)].clone(),
                Source::Server(other) => self.held[&(version, *other)].clone(),
                Source::Nothing => panic!("reads nothing"),
            };
            if flow.makes.is_some() {
                // From now on the array belongs to the call, which changes it in place.
                self.held.remove(&(version, server));
            } else if matches!(from, Source::Home | Source::Server(_)) {
                self.held.insert((version, server), read.clone());
                self.run.arrived(&step, place);
                self.moved += 1;
            }
            reads.push((flow.used.argument, read));
        }
        let makes = flows.iter().filter_map(|flow| {
            let length = length(flow.used.datum);
            let made = made(call, flow.used.argument, &reads, length);
            flow.makes.map(|makes| (makes, made))
        });
        let makes = makes.collect();
        self.running.push((step, makes));
    }

    fn finish(&mut self, index: usize) {
        let (step, makes) = self.running.swap_remove(index);
        self.begun[step.call] += 1;
        let flows = self.run.graph().nodes()[step.call].flows.clone();
        for (version, made) in makes {
            let place = flows.iter().position(|flow| flow.makes == Some(version));
            let (flow, from) = (flows[place.unwrap()], step.from[place.unwrap()]);
            if from == Source::Direct {
                self.bring(flow.used.datum, &made);
                continue;
            }
            if step.home.contains(&version) {
                self.bring(flow.used.datum, &made);
            }
            self.held.insert((version, step.server), made);
        }
        let after = self.run.finish(&step);
        self.fetching.extend(after.results);
        self.drop_all(after.unused);
    }

    fn fetch(&mut self, index: usize) {
        let (version, server) = self.fetching.swap_remove(index);
        let made = self.held[&(version, server)].clone();
        self.bring(self.run.graph().versions()[version].datum, &made);
        let after = self.run.came_home(version);
        self.drop_all(after.unused);
    }

    fn drop_all(&mut self, unused: Vec<(VersionId, u64)>) {
        for copy in unused {
            self.held.remove(&copy).unwrap();
        }
    }

    /// Part of a version reaches the client's memory, or nothing does.
    fn break_off(&mut self, version: VersionId, random: &mut SplitMix64) -> bool {
        let datum = self.run.graph().versions()[version].datum;
        let touched = matches!(datum, Datum::Memory { .. }) && random.below(2) == 0;
        if touched {
            self.bring(datum, &vec![u64::MAX; length(datum)]);
        }
        touched
    }

    /// A server ends, and an empty one with the same number takes its place. A call there may have
    /// begun, and its results may have begun to arrive.
    fn crash(&mut self, server: u64, may_repeat: bool, random: &mut SplitMix64) -> bool {
        self.held.retain(|(_, at), _| *at != server);
        let of_server = |fetch: &mut (VersionId, u64)| fetch.1 == server;
        let fetches: Vec<_> = self.fetching.extract_if(.., of_server).collect();
        for (version, _) in fetches {
            if !self.break_off(version, random) {
                self.run.untouched(version);
            }
        }
        let of_server = |run: &mut (Step, Vec<_>)| run.0.server == server;
        let broken: Vec<_> = self.running.extract_if(.., of_server).collect();
        let mut failed = Vec::new();
        for (step, makes) in broken {
            if random.below(3) == 0 {
                self.run.not_begun(&step);
                continue;
            }
            self.begun[step.call] += 1;
            failed.push(step.call);
            let flows = self.run.graph().nodes()[step.call].flows.clone();
            let direct = |version: VersionId| {
                let place = flows.iter().position(|flow| flow.makes == Some(version));
                place.is_some_and(|place| step.from[place] == Source::Direct)
            };
            let coming = makes.iter().map(|(version, _)| *version);
            let coming: Vec<VersionId> = coming
                .filter(|version| direct(*version) || step.home.contains(version))
                .collect();
            let touched = coming
                .iter()
                .map(|version| self.break_off(*version, random));
            if touched.filter(|touched| *touched).count() == 0 {
                self.run.nothing_came(&step);
            }
        }
        let after = self.run.lost(server, &failed, |_| may_repeat);
        self.fetching
            .extend(after.iter().flat_map(|after| after.results.clone()));
        after.is_ok()
    }

    /// Does one possible thing. Returns whether there was one.
    fn go_on(&mut self, random: &mut SplitMix64) -> bool {
        let ready = self.run.ready();
        let choices = ready.len() + self.running.len() + self.fetching.len();
        if choices == 0 {
            return false;
        }
        let choice = below(random, choices);
        if choice < ready.len() {
            let servers: Vec<u64> = self.alive.iter().copied().collect();
            let server = servers[below(random, servers.len())];
            self.start(ready[choice], server);
        } else if choice < ready.len() + self.running.len() {
            self.finish(choice - ready.len());
        } else {
            self.fetch(choice - ready.len() - self.running.len());
        }
        true
    }
}

#[test]
fn a_graph_gives_the_same_result_as_the_program_in_order() {
    for seed in 0..3000 {
        let mut random = SplitMix64::new(seed);
        let program = program(&mut random, seed % 2 == 0);
        let mut expected: Cells = (0..CELLS as u64).map(mix).collect();
        let mut world = World::new(&program, expected.clone());
        let deferred = in_order(&program, &mut expected);
        while world.go_on(&mut random) {}
        assert!(world.run.is_over(), "seed {seed}");
        assert_eq!(world.cells, expected, "seed {seed}: {program:#?}");
        for (number, cells) in &deferred {
            let version = world.run.graph().deferred(*number).unwrap();
            let holder = world.run.holders(version).first().unwrap();
            assert_eq!(&world.held[&(version, *holder)], cells, "seed {seed}");
        }
        // The servers have no other arrays left.
        let kept: usize = world.held.len();
        let holders = deferred.keys().map(|number| {
            let version = world.run.graph().deferred(*number).unwrap();
            world.run.holders(version).len()
        });
        assert_eq!(kept, holders.sum::<usize>(), "seed {seed}");
    }
}

/// Plays a program while servers crash, on average once in `once_in` steps. Returns the world if
/// the program has ended with the right result.
fn play(seed: u64, may_repeat: bool, mut crashes: u32, once_in: u64) -> Option<World> {
    let mut random = SplitMix64::new(seed);
    let program = program(&mut random, seed.is_multiple_of(2));
    let mut expected: Cells = (0..CELLS as u64).map(mix).collect();
    let mut world = World::new(&program, expected.clone());
    in_order(&program, &mut expected);
    while world.go_on(&mut random) {
        if crashes > 0 && random.below(once_in) == 0 {
            crashes -= 1;
            let goes_on = world.crash(random.below(SERVERS), may_repeat, &mut random);
            let begun = world.begun.iter().all(|begun| may_repeat || *begun <= 1);
            assert!(begun, "seed {seed}: {program:#?}");
            if !goes_on {
                return None;
            }
        }
    }
    assert!(world.run.is_over(), "seed {seed}: {program:#?}");
    assert_eq!(world.cells, expected, "seed {seed}: {program:#?}");
    Some(world)
}

#[test]
fn a_server_that_is_lost_costs_time_or_an_error_and_never_a_wrong_result() {
    let done = (0..3000).filter_map(|seed| play(seed, true, 4, 6)).count();
    assert!(done > 2500, "{done} done");
}

#[test]
fn a_call_that_may_not_be_repeated_begins_once() {
    let played = (0..3000).filter_map(|seed| play(seed, false, u32::MAX, 12));
    let done = played.filter(|world| world.begun.iter().all(|begun| *begun == 1));
    let done = done.count();
    assert!(done > 2250, "{done} done");
}

#[test]
fn calls_that_may_not_be_repeated_are_named() {
    let datum = memory(0, 4);
    let program = vec![
        vec![
            Use {
                argument: 0,
                datum: memory(4, 4),
                access: Access::Read,
            },
            Use {
                argument: 1,
                datum,
                access: Access::Write,
            },
        ],
        vec![Use {
            argument: 0,
            datum,
            access: Access::Update,
        }],
    ];
    let mut world = World::new(&program, vec![0; CELLS]);
    world.start(0, 1);
    world.finish(0);
    let failed = world.run.lost(1, &[], |call| call != 0);
    assert_eq!(failed, Err(0));
}

#[test]
fn a_chain_stays_where_it_is_and_only_the_ends_travel() {
    // b = f(a), c = f(b), d = f(c): `a` is sent, and each result is fetched once.
    let program: Program = (0..3)
        .map(|call| {
            vec![
                Use {
                    argument: 0,
                    datum: memory(call * 4, 4),
                    access: Access::Read,
                },
                Use {
                    argument: 1,
                    datum: memory(call * 4 + 4, 4),
                    access: Access::Write,
                },
            ]
        })
        .collect();
    let mut world = World::new(&program, vec![1; CELLS]);
    for call in 0..3 {
        assert_eq!(world.run.ready(), [call]);
        world.start(call, 0);
        world.finish(0);
    }
    assert_eq!(world.moved, 0);
    // The last result has arrived with its call.
    assert_eq!(world.fetching.len(), 2);
}

#[test]
fn results_that_the_client_does_not_need_are_not_fetched() {
    let mut graph = Graph::default();
    let first = Use {
        argument: 0,
        datum: memory(0, 4),
        access: Access::Write,
    };
    graph.add(1.0, &[first]).unwrap();
    graph
        .add(
            1.0,
            &[Use {
                access: Access::Read,
                ..first
            }],
        )
        .unwrap();
    assert_eq!(graph.results().count(), 1);
    graph.discard(0, 4);
    assert_eq!(graph.results().count(), 0);
}

#[test]
fn misuse_is_named() {
    let mut graph = Graph::default();
    let read = Use {
        argument: 2,
        datum: Datum::Deferred(7),
        access: Access::Read,
    };
    assert_eq!(graph.add(1.0, &[read]), Err(Misuse::Unwritten(2)));
    let write = Use {
        argument: 0,
        datum: memory(0, 4),
        access: Access::Write,
    };
    let other = Use {
        argument: 1,
        datum: memory(3, 4),
        access: Access::Read,
    };
    assert_eq!(graph.add(1.0, &[write, other]), Err(Misuse::Aliased(0, 1)));
}
