//! Simulates two metaservers with one store, servers and clients, and a network that splits, in
//! virtual time and from seeds. After any split has healed, both metaservers must know the same
//! servers.

use farcall_directory::message::{Choose, Function, Join, Message, Observe, Report};
use farcall_directory::{Change, Directory, Key, Record, Settings, digest};
use farcall_random::SplitMix64;
use std::collections::{BTreeMap, BTreeSet};

const SEEDS: u64 = 200;
const SERVERS: u64 = 5;
const STEPS: usize = 600;
const STEP_S: f64 = 0.25;
const LEASE_S: f64 = 5.0;

/// A store as rows of bytes, and the changes that each metaserver has not seen yet.
#[derive(Default)]
struct Store {
    rows: BTreeMap<Key, (u64, Vec<u8>)>,
    news: [BTreeSet<Key>; 2],
}

struct World {
    random: SplitMix64,
    now: f64,
    metaservers: [Directory; 2],
    /// For each metaserver: whether it runs, whether it reaches the store, and whether servers
    /// reach it.
    up: [bool; 2],
    stored: [bool; 2],
    reached: Vec<[bool; 2]>,
    /// When each server last ran.
    alive: Vec<bool>,
    died_at: Vec<f64>,
    store: Store,
    client: Directory,
}

fn settings() -> Settings {
    Settings {
        lease_s: LEASE_S,
        ..Settings::default()
    }
}

fn join(server: u64) -> Join {
    Join {
        server,
        address: format!("farcall://host{server}:1"),
        agent: "test".into(),
        pes: 1,
        memory: 1 << 30,
        functions: vec![Function {
            name: "m/f".into(),
            title: String::new(),
            digest: digest("f"),
            repeatable: true,
            library: None,
        }],
    }
}

impl World {
    fn new(seed: u64) -> World {
        World {
            random: SplitMix64::new(seed),
            now: 1.7e9,
            metaservers: [(); 2].map(|()| Directory::new(settings())),
            up: [true; 2],
            stored: [true; 2],
            reached: vec![[true; 2]; SERVERS as usize],
            alive: vec![true; SERVERS as usize],
            died_at: vec![f64::NEG_INFINITY; SERVERS as usize],
            store: Store::default(),
            client: Directory::new(Settings {
                forgets: false,
                ..settings()
            }),
        }
    }

    fn step(&mut self, faults: bool) {
        self.now += STEP_S;
        if faults {
            self.fault();
        }
        for server in 0..SERVERS as usize {
            for meta in 0..2 {
                if self.alive[server] && self.up[meta] && self.reached[server][meta] {
                    self.renew(meta, server as u64);
                }
            }
        }
        for meta in 0..2 {
            if self.up[meta] && self.stored[meta] {
                self.exchange(meta);
            }
        }
        self.call();
    }

    fn fault(&mut self) {
        let meta = self.random.below(2) as usize;
        let server = self.random.below(SERVERS) as usize;
        if self.random.below(40) == 0 {
            // A metaserver that is started again knows only what the store contains.
            self.up[meta] ^= true;
            self.metaservers[meta] = Directory::new(settings());
            self.store.news[meta] = self.store.rows.keys().copied().collect();
        }
        if self.random.below(20) == 0 {
            self.stored[meta] ^= true;
        }
        if self.random.below(10) == 0 {
            self.reached[server][meta] ^= true;
        }
        if self.random.below(15) == 0 {
            self.alive[server] ^= true;
            self.died_at[server] = self.now;
        }
    }

    fn heal(&mut self) {
        (self.up, self.stored) = ([true; 2], [true; 2]);
        self.reached.fill([true; 2]);
    }

    fn renew(&mut self, meta: usize, server: u64) {
        let report = Report {
            server,
            accepts: true,
            memory: 1 << 30,
            calls: 0,
            queued: Vec::new(),
            learned: Vec::new(),
            booked: None,
        };
        let directory = &mut self.metaservers[meta];
        if directory.report(self.now, report.clone()).is_err() {
            directory.join(self.now, join(server)).unwrap();
            directory.report(self.now, report).unwrap();
        }
    }

    /// Exchanges records with the store, as a metaserver does.
    fn exchange(&mut self, meta: usize) {
        let directory = &mut self.metaservers[meta];
        directory.advance(self.now);
        let now_ms = (self.now * 1e3) as u64;
        self.store.rows.retain(|_, (ends, _)| *ends > now_ms);
        for change in directory.changes() {
            let key = match change {
                Change::Put(key) => {
                    let Some(record) = directory.record(key) else {
                        continue;
                    };
                    self.store
                        .rows
                        .insert(key, (record.expires_ms(), record.to_bytes()));
                    key
                }
                Change::Gone(key, until) => {
                    if self
                        .store
                        .rows
                        .get(&key)
                        .is_some_and(|(ends, _)| *ends > until)
                    {
                        continue;
                    }
                    self.store.rows.remove(&key);
                    key
                }
            };
            self.store.news[1 - meta].insert(key);
        }
        for key in std::mem::take(&mut self.store.news[meta]) {
            if let Some((_, bytes)) = self.store.rows.get(&key) {
                directory.apply(self.now, Record::from_bytes(bytes).unwrap());
            }
        }
    }

    /// A client has a call placed by a metaserver that runs, or places it itself. It tries servers
    /// until one takes the call.
    fn call(&mut self) {
        let mut wanted = Choose {
            function: "m/f".into(),
            digest: digest("f"),
            work: 1e6,
            up: 1 << 10,
            down: 1 << 10,
            memory: 1 << 10,
            fewest: None,
            most: None,
            exclude: Vec::new(),
            explain: false,
            data: None,
            trace: None,
        };
        let meta = self.up.iter().position(|up| *up);
        if let Some(meta) = meta
            && let Ok((_, records)) = self.metaservers[meta].find(self.now, "site", "f")
        {
            for record in records {
                self.client.apply(self.now, record);
            }
        }
        for _ in 0..=SERVERS {
            let directory = match meta {
                Some(meta) => &mut self.metaservers[meta],
                None => &mut self.client,
            };
            let Ok(chosen) = directory.choose(self.now, "site", &wanted) else {
                return;
            };
            let server = chosen.offers[0].server;
            let dead_for = self.now - self.died_at[server as usize];
            let lost = !self.alive[server as usize];
            assert!(
                !lost || meta.is_none() || dead_for <= 2.0 * LEASE_S + STEP_S,
                "a server that has been dead for {dead_for} s was chosen"
            );
            let observed = Observe {
                server,
                placement: chosen.placement,
                up: None,
                down: None,
                lost,
            };
            directory.observe(self.now, "site", &observed);
            if !lost {
                return;
            }
            wanted.exclude.push(server);
        }
        panic!("more servers were tried than there are");
    }

    fn known(&mut self, meta: usize) -> Vec<u64> {
        self.metaservers[meta]
            .servers()
            .map(|one| one.join.server)
            .collect()
    }
}

#[test]
fn metaservers_agree_again_after_any_split() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        (0..STEPS).for_each(|_| world.step(true));
        world.heal();
        let steps = (2.5 * LEASE_S / STEP_S) as usize;
        (0..steps).for_each(|_| world.step(false));
        let alive: Vec<u64> = (0..SERVERS)
            .filter(|one| world.alive[*one as usize])
            .collect();
        for meta in 0..2 {
            assert_eq!(world.known(meta), alive, "seed {seed}, metaserver {meta}");
        }
        let rows = world
            .store
            .rows
            .keys()
            .filter(|key| matches!(key, Key::Server(_)));
        assert_eq!(rows.count(), alive.len(), "seed {seed}: rows of the store");
    }
}
