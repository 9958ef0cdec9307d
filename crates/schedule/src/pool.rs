//! The size of a pool: how many servers a batch system should run now, by the predicted backlog.
//!
//! The caller tells the jobs and their backlogs once in a while, and carries out the actions. A
//! server is asked for only if the need lasts, and let go only if nobody has used it for long, so
//! that the pool does not follow each call. The number of jobs never exceeds the bound.

use std::collections::BTreeMap;

/// Longest pause after servers that ended before they joined, in seconds.
const LONGEST_PAUSE_S: f64 = 600.0;
/// The first such pause; each further failure doubles it.
const FIRST_PAUSE_S: f64 = 5.0;

/// When a pool grows and shrinks. Times are in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Servers that always run.
    pub fewest: usize,
    /// Most jobs at once, with those that wait and those that end.
    pub most: usize,
    /// Backlog for each server above which another one is worth its start.
    pub backlog_s: f64,
    /// How long the need for more servers must last.
    pub patience_s: f64,
    /// How long a server must be unused before it is let go.
    pub idle_s: f64,
    /// A server begins to drain so long before its time ends, not counting its backlog.
    pub lead_s: f64,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            fewest: 0,
            most: 20,
            backlog_s: 30.0,
            patience_s: 5.0,
            idle_s: 120.0,
            lead_s: 60.0,
        }
    }
}

/// How far a job of the pool has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits in the batch system, or its server starts.
    Asked,
    /// Its server takes calls.
    Serving,
    /// Its server drains or ends.
    Leaving,
}

/// A job of the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The number of the job in the batch system.
    pub job: u64,
    /// How far it has come.
    pub state: State,
    /// Seconds until its server has done all its calls.
    pub backlog_s: f64,
    /// Calls at its server.
    pub calls: u32,
    /// Seconds until the batch system ends it; infinite without a limit.
    pub left_s: f64,
    /// Its whole time limit in seconds; infinite without one.
    pub limit_s: f64,
}

/// The servers that are not jobs of the pool, such as one beside the metaserver.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Others {
    /// How many take calls.
    pub servers: usize,
    /// The sum of their backlogs in seconds.
    pub backlog_s: f64,
}

/// What the caller must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask the batch system for one more server.
    Ask,
    /// Let the server of this job finish its calls and end.
    Drain(u64),
    /// Remove this job, which has not begun to serve.
    Cancel(u64),
}

/// A pool of servers. See the module documentation.
#[derive(Clone, Debug)]
pub struct Pool {
    rules: Rules,
    /// Since when more servers are needed than there are.
    needed_since: Option<f64>,
    /// Since when there are more servers than are needed.
    spare_since: Option<f64>,
    /// Since when each serving job is unused.
    idle_since: BTreeMap<u64, f64>,
    /// Jobs that have not served yet, as of the last decision.
    starting: Vec<u64>,
    /// Jobs that ended before they served, since the last one that served.
    failed: u32,
    paused_until: f64,
}

impl Pool {
    /// A pool without jobs.
    pub fn new(rules: Rules) -> Pool {
        Pool {
            rules,
            needed_since: None,
            spare_since: None,
            idle_since: BTreeMap::new(),
            starting: Vec::new(),
            failed: 0,
            paused_until: f64::NEG_INFINITY,
        }
    }

    /// Notes the number of the job that the batch system has made for an [`Action::Ask`].
    pub fn asked(&mut self, job: u64) {
        self.starting.push(job);
    }

    /// Notes that the batch system has refused an [`Action::Ask`].
    pub fn refused(&mut self, now: f64) {
        self.pause(now);
    }

    /// Until when the pool asks for no server, because servers ended before they joined.
    pub fn paused_until(&self) -> Option<f64> {
        (self.failed > 0).then_some(self.paused_until)
    }

    /// What to do now. `members` are all jobs of the pool that have not ended.
    pub fn decide(&mut self, now: f64, others: Others, members: &[Member]) -> Vec<Action> {
        self.note_failures(now, members);
        let mut actions = self.let_go_in_time(members);
        let leaves = |job: u64, actions: &[Action]| actions.contains(&Action::Drain(job));
        let staying: Vec<&Member> = members
            .iter()
            .filter(|one| one.state != State::Leaving && !leaves(one.job, &actions))
            .collect();
        let needed = self.needed(others, &staying);
        // Those whose time ends soon get a successor before they drain.
        let lasting = staying.iter().filter(|one| self.lasts(one)).count();
        self.grow(now, needed, (lasting, members.len()), &mut actions);
        self.shrink(now, needed, &staying, &mut actions);
        actions
    }

    /// How many servers of the pool the backlog is worth, within the bounds.
    fn needed(&self, others: Others, staying: &[&Member]) -> usize {
        let backlog_s = staying.iter().map(|one| one.backlog_s.max(0.0));
        let backlog_s = backlog_s.sum::<f64>() + others.backlog_s.max(0.0);
        let worth = (backlog_s / self.rules.backlog_s.max(1e-3)).ceil() as usize;
        let Rules { fewest, most, .. } = self.rules;
        worth
            .saturating_sub(others.servers)
            .clamp(fewest.min(most), most)
    }

    /// How long before its end a server drains.
    fn lead_s(&self, member: &Member) -> f64 {
        self.rules.lead_s + member.backlog_s.max(0.0)
    }

    /// Whether a server needs no successor yet.
    fn lasts(&self, member: &Member) -> bool {
        member.left_s > self.lead_s(member) + self.overlap_s(member)
    }

    /// How long before it drains a server gets a successor: one lead, but no more than half of the
    /// time that it serves. Else a server with a short time limit would need one from its start,
    /// and that one, too.
    fn overlap_s(&self, member: &Member) -> f64 {
        let serves_s = (member.limit_s - self.lead_s(member)).max(0.0);
        self.rules.lead_s.min(serves_s / 2.0)
    }

    /// Drains servers whose time ends, early enough for the calls that they have.
    fn let_go_in_time(&self, members: &[Member]) -> Vec<Action> {
        let serving = members.iter().filter(|one| one.state == State::Serving);
        let ending = serving.filter(|one| one.left_s <= self.lead_s(one));
        ending.map(|one| Action::Drain(one.job)).collect()
    }

    fn grow(
        &mut self,
        now: f64,
        needed: usize,
        (have, jobs): (usize, usize),
        actions: &mut Vec<Action>,
    ) {
        if needed <= have {
            self.needed_since = None;
            return;
        }
        let since = *self.needed_since.get_or_insert(now);
        let lasts = now - since >= self.rules.patience_s || have < self.rules.fewest;
        if !lasts || now < self.paused_until {
            return;
        }
        let wanted = match have < self.rules.fewest && now - since < self.rules.patience_s {
            true => self.rules.fewest - have,
            false => needed - have,
        };
        // After a failure, one server must show that it can start.
        let wanted = if self.failed > 0 {
            wanted.min(1)
        } else {
            wanted
        };
        let room = self.rules.most.saturating_sub(jobs);
        actions.extend((0..wanted.min(room)).map(|_| Action::Ask));
    }

    fn shrink(&mut self, now: f64, needed: usize, staying: &[&Member], actions: &mut Vec<Action>) {
        let is_unused =
            |one: &&&Member| one.state == State::Serving && one.calls == 0 && one.backlog_s <= 0.0;
        let unused: Vec<u64> = staying
            .iter()
            .filter(is_unused)
            .map(|one| one.job)
            .collect();
        self.idle_since.retain(|job, _| unused.contains(job));
        for job in unused {
            self.idle_since.entry(job).or_insert(now);
        }
        let mut spare = staying.len().saturating_sub(needed);
        if spare == 0 {
            self.spare_since = None;
            return;
        }
        let since = *self.spare_since.get_or_insert(now);
        if now - since < self.rules.idle_s {
            return;
        }
        // Successors stay, for the pool would ask for others at once.
        let lasting = staying.iter().filter(|one| self.lasts(one));
        let lasting: Vec<u64> = lasting.map(|one| one.job).collect();
        let mut spare_lasting = lasting.len().saturating_sub(needed);
        // Those that have not begun cost nothing yet.
        let asked = staying.iter().filter(|one| one.state == State::Asked);
        let mut asked: Vec<u64> = asked.map(|one| one.job).collect();
        asked.sort_unstable();
        let mut idle: Vec<(f64, u64)> = self
            .idle_since
            .iter()
            .filter(|(_, since)| now - **since >= self.rules.idle_s)
            .map(|(job, since)| (*since, *job))
            .collect();
        idle.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let cancelled = asked.iter().rev().map(|job| (*job, Action::Cancel(*job)));
        let drained = idle.iter().map(|(_, job)| (*job, Action::Drain(*job)));
        for (job, action) in cancelled.chain(drained) {
            let lasts = lasting.contains(&job);
            if spare == 0 || lasts && spare_lasting == 0 {
                continue;
            }
            spare -= 1;
            spare_lasting -= usize::from(lasts);
            actions.push(action);
        }
        let is_cancelled = |job: u64| actions.contains(&Action::Cancel(job));
        self.starting.retain(|job| !is_cancelled(*job));
    }

    /// Pauses if jobs ended before they served: the batch system or the command may be wrong.
    fn note_failures(&mut self, now: f64, members: &[Member]) {
        let state = |job: u64| members.iter().find(|one| one.job == job);
        let (mut has_failed, mut has_served) = (false, false);
        for job in &self.starting {
            match state(*job).map(|one| one.state) {
                None | Some(State::Leaving) => has_failed = true,
                Some(State::Serving) => has_served = true,
                Some(State::Asked) => {}
            }
        }
        if has_served {
            self.failed = 0;
            self.paused_until = f64::NEG_INFINITY;
        } else if has_failed {
            self.pause(now);
        }
        let asked = members.iter().filter(|one| one.state == State::Asked);
        self.starting = asked.map(|one| one.job).collect();
    }

    fn pause(&mut self, now: f64) {
        let pause_s = FIRST_PAUSE_S * f64::from(1u32 << self.failed.min(10));
        self.failed = self.failed.saturating_add(1);
        self.paused_until = now + pause_s.min(LONGEST_PAUSE_S);
    }
}
