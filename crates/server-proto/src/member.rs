//! The membership of a server at one metaserver: what to tell it, and when. The driver connects and
//! sends. After a new connection or a lost lease, the server joins again and tells everything anew.

mod held;

use crate::ServerStatus;
use farcall_directory::message::{Function, Hold, Join, MOST_LEARNED, Noted, Report, Times};
use farcall_rpc_proto::Nanos;
use held::HeldData;
use std::collections::{BTreeMap, BTreeSet};

/// Time between two tries to reach a metaserver that is away.
const RETRY: Nanos = 500_000_000;
/// Bytes of functions in the message that joins, about. A metaserver accepts messages of 1 MiB.
const MOST_BYTES: usize = 900 << 10;
/// Bytes of a function in a message beside its texts, at most.
const FUNCTION_BYTES: usize = 24;
/// The number of renewals during a lease.
const RENEWALS: f64 = 3.0;
/// Longest time between two reports, in seconds: a metaserver closes a connection that was idle for
/// an hour.
const LONGEST: f64 = 600.0;

/// The next question to a metaserver.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// Connect to it: [`Member::connected`] or [`Member::lost`] follows.
    Connect,
    /// To let the server join.
    Join(Join),
    /// A status report.
    Report(Report),
    /// The named data that the server holds.
    Hold(Hold),
}

/// The answer of a metaserver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// The metaserver has recorded it.
    Noted(Noted),
    /// The server must join again.
    WantsJoin,
}

/// The connection to the metaserver.
#[derive(Clone, Debug, PartialEq)]
enum Metaserver {
    Away,
    /// Whether the metaserver handles named data.
    Connected {
        knows_data: bool,
    },
}

/// A question without an answer so far.
#[derive(Clone, Debug, PartialEq)]
enum Asked {
    Connect,
    Join,
    Report,
    Hold(Hold),
}

/// The membership of one server at one metaserver.
///
/// The driver passes the server's status to [`Member::take`], does what [`Member::poll`] says,
/// reports the result, and polls again until there is nothing more. It does so again when the
/// status changes, and at [`Member::next_deadline`].
#[derive(Debug)]
pub struct Member {
    /// The message that joins, without functions and figures.
    join: Join,
    functions: Vec<Function>,
    status: Option<(Nanos, ServerStatus)>,
    /// All times that the server has learned.
    learned: BTreeMap<String, Times>,
    /// Functions whose times the metaserver does not know yet.
    untold: BTreeSet<String>,
    held: HeldData,
    metaserver: Metaserver,
    asked: Option<Asked>,
    /// Whether the server must join.
    joins: bool,
    reports: bool,
    holds: bool,
    /// When it reports without a change, or tries to connect again.
    next: Nanos,
}

impl Member {
    /// A server with this number and address.
    pub fn new(server: u64, address: String, agent: &str) -> Member {
        Member {
            join: Join {
                server,
                address,
                agent: agent.to_string(),
                pes: 0,
                memory: 0,
                functions: Vec::new(),
            },
            functions: Vec::new(),
            status: None,
            learned: BTreeMap::new(),
            untold: BTreeSet::new(),
            held: HeldData::default(),
            metaserver: Metaserver::Away,
            asked: None,
            joins: false,
            reports: false,
            holds: false,
            next: 0,
        }
    }

    /// The server's random number.
    pub fn server(&self) -> u64 {
        self.join.server
    }

    /// Takes the status of the server at a time.
    pub fn take(&mut self, at: Nanos, mut status: ServerStatus) {
        for times in std::mem::take(&mut status.report.learned) {
            self.untold.insert(times.function.clone());
            self.learned.insert(times.function.clone(), times);
        }
        if let Some(data) = status.data.take() {
            self.held.set(data);
        }
        if let Some(functions) = status.functions.take() {
            self.functions = functions;
            self.joins = true;
        }
        self.status = Some((at, status));
        self.reports = true;
    }

    /// The next question to the metaserver, if there is one.
    pub fn poll(&mut self, now: Nanos) -> Option<Ask> {
        let (at, status) = self.status.as_ref()?;
        if self.asked.is_some() {
            return None;
        }
        let (asked, ask) = match self.metaserver {
            Metaserver::Away if now < self.next => return None,
            Metaserver::Away => (Asked::Connect, Ask::Connect),
            Metaserver::Connected { .. } if self.joins => {
                let join = Join {
                    pes: status.pes,
                    memory: status.memory,
                    functions: fitting(&self.functions),
                    ..self.join.clone()
                };
                (Asked::Join, Ask::Join(join))
            }
            Metaserver::Connected { .. } if self.reports || now >= self.next => {
                let names = (0..MOST_LEARNED).map_while(|_| self.untold.pop_first());
                let learned = names.filter_map(|name| self.learned.get(&name).cloned());
                let report = Report {
                    server: self.join.server,
                    learned: learned.collect(),
                    ..status.report.clone()
                };
                let age_s = now.saturating_sub(*at) as f64 * 1e-9;
                (Asked::Report, Ask::Report(report.after(age_s)))
            }
            Metaserver::Connected { knows_data } => {
                let holds = knows_data && self.holds;
                let hold = holds.then(|| self.held.next(self.join.server)).flatten()?;
                (Asked::Hold(hold.clone()), Ask::Hold(hold))
            }
        };
        self.asked = Some(asked);
        Some(ask)
    }

    /// When to poll again at the latest.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let waits = self.asked.is_some() || self.status.is_none();
        (!waits).then_some(self.next)
    }

    /// Handles a new connection to a metaserver.
    pub fn connected(&mut self, knows_data: bool) {
        self.asked = None;
        self.metaserver = Metaserver::Connected { knows_data };
        self.begin_anew();
    }

    /// Forgets what was told: the metaserver knows nothing about the server.
    fn begin_anew(&mut self) {
        self.joins = true;
        self.untold = self.learned.keys().cloned().collect();
        self.held.begin_anew();
    }

    /// Handles an answer of the metaserver.
    pub fn answered(&mut self, now: Nanos, answer: Answer) {
        let asked = self.asked.take();
        let Answer::Noted(noted) = answer else {
            if let Some(Asked::Hold(_)) = asked {
                // The data are sent again after the server has joined again.
                self.holds = false;
            } else {
                self.begin_anew();
            }
            return;
        };
        match asked {
            Some(Asked::Join) => (self.joins, self.reports) = (false, true),
            Some(Asked::Report) => {
                self.reports = !self.untold.is_empty();
                self.holds = true;
            }
            Some(Asked::Hold(hold)) => self.held.told(&hold),
            _ => {}
        }
        let seconds = (noted.lease_s / RENEWALS).clamp(0.01, LONGEST);
        self.next = now + (seconds * 1e9) as Nanos;
    }

    /// Handles a metaserver that cannot be reached, refuses the server, or does not answer. The
    /// next try follows after a pause.
    pub fn lost(&mut self, now: Nanos) {
        self.asked = None;
        self.metaserver = Metaserver::Away;
        self.next = now + RETRY;
    }
}

/// The functions as a message can carry them: if there are very many, without their titles.
fn fitting(functions: &[Function]) -> Vec<Function> {
    let bytes = |one: &Function| {
        let library = one.library.as_ref().map_or(0, String::len);
        one.name.len() + one.title.len() + library + FUNCTION_BYTES
    };
    let fits = functions.iter().map(bytes).sum::<usize>() <= MOST_BYTES;
    let told = functions.iter().map(|one| match fits {
        true => one.clone(),
        false => Function {
            title: String::new(),
            ..one.clone()
        },
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_directory::message::{MOST_FUNCTIONS, Message};

    fn functions(count: usize) -> Vec<Function> {
        let function = |number| Function {
            name: format!("library/solve_general_system_{number:05}"),
            title: "Solves a general system of linear equations with several right sides".into(),
            digest: u64::MAX,
            repeatable: true,
            library: Some("libopenblas 0.3.21".into()),
        };
        (0..count).map(function).collect()
    }

    fn report() -> Report {
        Report {
            server: 0,
            accepts: true,
            memory: 0,
            calls: 0,
            queued: Vec::new(),
            learned: Vec::new(),
            booked: None,
        }
    }

    fn status(report: Report) -> ServerStatus {
        ServerStatus {
            pes: 1,
            memory: 0,
            functions: None,
            data: None,
            report,
        }
    }

    #[test]
    fn a_server_with_very_many_functions_can_join() {
        for count in [1, 5_000, MOST_FUNCTIONS] {
            let given = functions(count);
            let join = Join {
                server: u64::MAX,
                address: "farcall://host:3717".into(),
                agent: "test".into(),
                pes: 1,
                memory: 0,
                functions: fitting(&given),
            };
            let length = join.to_bytes().len();
            assert!(length < 1 << 20, "{count}: {length}");
            let has_titles = join.functions == given;
            assert_eq!(has_titles, count <= 5_000, "{count}");
            let names = join.functions.iter().map(|one| &one.name);
            assert!(names.eq(given.iter().map(|one| &one.name)));
        }
    }

    #[test]
    fn what_is_learned_while_the_metaserver_is_away_is_remembered_once() {
        let mut member = Member::new(1, "farcall://a:1".to_owned(), "test");
        for calls in 1..1000 {
            let times = Times {
                function: format!("f{}", calls % 3),
                rates: Vec::new(),
            };
            let report = Report {
                learned: vec![times],
                ..report()
            };
            member.take(0, status(report));
        }
        assert_eq!(member.untold.len(), 3);
        member.connected(false);
        let told = std::iter::from_fn(|| {
            let asked = member.poll(0);
            member.answered(0, Answer::Noted(Noted { lease_s: 10.0 }));
            asked
        });
        let reports = told.filter_map(|asked| match asked {
            Ask::Report(report) => Some(report.learned.len()),
            _ => None,
        });
        assert_eq!(reports.collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_long_lease_is_renewed_before_its_connection_counts_as_idle() {
        for (lease_s, minutes) in [(360.0, 2), (36_000.0, 10), (1e9, 10)] {
            let mut member = Member::new(1, "farcall://a:1".to_owned(), "test");
            member.take(0, status(report()));
            member.connected(false);
            for _ in 0..2 {
                let _ = member.poll(0);
                member.answered(0, Answer::Noted(Noted { lease_s }));
            }
            assert_eq!(member.next_deadline(), Some(minutes * 60_000_000_000));
        }
    }
}
