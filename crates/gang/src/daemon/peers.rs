//! The other daemons at the end of links: signs of life, and how a daemon is lost. Each loss has a
//! reason, which both ends write to their logs. A front end only fills up if it reads nothing.

use super::{Daemon, Party};
use farcall_gang_proto::Message;
use std::io;
use std::time::Duration;

/// Characters of a reason that another daemon states.
const REASON: usize = 300;

/// Why a daemon is lost.
#[derive(Debug)]
pub(super) enum Loss {
    /// Nothing has arrived from it for this long.
    Silent(Duration),
    /// It has closed the connection, for this reason.
    Closed(String),
    /// The connection has failed.
    Failed(io::Error),
}

impl Loss {
    /// Reads the error of a link.
    pub(super) fn of(error: io::Error) -> Loss {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let why = "no reason given; perhaps it was killed";
                Loss::Closed(why.to_string())
            }
            io::ErrorKind::ConnectionReset => Loss::Closed(error.to_string()),
            _ => Loss::Failed(error),
        }
    }

    /// The reason in words, about a daemon with this name.
    fn describe(&self, name: &str) -> String {
        match self {
            Loss::Silent(time) => format!("{name} was silent for {} s", time.as_secs_f64()),
            Loss::Closed(why) => format!("{name} closed its connection: {}", plain(why)),
            Loss::Failed(error) => format!("the connection to {name} failed: {error}"),
        }
    }
}

/// The text of another daemon in one line of bounded length.
pub(super) fn plain(text: &str) -> String {
    let letters = text.chars().filter(|letter| !letter.is_control());
    letters.take(REASON).collect()
}

impl Daemon {
    /// The links to other daemons.
    pub(super) fn daemons(&self) -> Vec<u64> {
        self.children().into_iter().chain(self.parent).collect()
    }

    /// Sends signs of life, gives up silent daemons, and holds the output of a gang job back as
    /// long as its front end reads nothing.
    pub(super) fn check_peers(&mut self) {
        let now = self.now();
        let pulse = self.heartbeat.handle_timeout(now);
        if let Some(pause) = pulse.pause {
            let pause = Duration::from_nanos(pause).as_secs_f64();
            tracing::warn!("this daemon did not run for {pause:.1} s");
        }
        self.hold_fronts();
        if pulse.is_due {
            for id in self.daemons() {
                self.send(id, &Message::Alive);
            }
            self.node.sweep();
            self.show_metrics();
        }
        for id in pulse.silent {
            self.handle_lost(id, &Loss::Silent(self.config.silence));
        }
    }

    fn hold_fronts(&mut self) {
        for (id, peer) in &mut self.links {
            if !matches!(peer.party, Party::Front(..)) {
                continue;
            }
            let holds = match peer.is_held {
                true => !peer.link.has_room(),
                false => peer.link.is_full(),
            };
            if holds != peer.is_held {
                peer.is_held = holds;
                if let Some(root) = &mut self.root {
                    root.handle_hold(*id, holds);
                }
            }
        }
    }

    /// Tells another daemon why this one closes the connection.
    pub(super) fn say_why(&mut self, id: u64, why: &str) {
        if let Some(peer) = self.links.get_mut(&id) {
            peer.link.send(&Message::Closing(why.to_string()));
            // One that does not read now hears nothing.
            let _ = peer.link.flush();
        }
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.heartbeat.forget(id);
        self.links.remove(&id);
    }

    /// Handles the loss of a peer.
    pub(super) fn handle_lost(&mut self, id: u64, loss: &Loss) {
        let Some(peer) = self.links.get(&id) else {
            return;
        };
        let (party, name) = (peer.party, peer.name.clone());
        match party {
            Party::Front(..) => {
                self.remove(id);
                if let Some(root) = &mut self.root {
                    root.handle_front_lost(id);
                }
            }
            Party::Stranger | Party::Proved => self.remove(id),
            Party::Parent => {
                let why = self.part(id, "the parent daemon", loss);
                self.lose_parent(&why);
            }
            Party::Child => {
                let name = name.as_deref().unwrap_or("a daemon that has not joined");
                let why = self.part(id, name, loss);
                self.lose_child(id, &why);
            }
        }
    }

    /// Lets go of a daemon with this name, and tells it why unless it has closed the connection
    /// itself. Returns the reason in words.
    fn part(&mut self, id: u64, name: &str, loss: &Loss) -> String {
        let why = loss.describe(name);
        if !matches!(loss, Loss::Closed(_)) {
            self.say_why(id, &why);
        }
        self.remove(id);
        why
    }

    fn lose_child(&mut self, id: u64, why: &str) {
        self.joining.retain(|_, link| *link != id);
        let nodes = self.switch.nodes_below(id);
        match nodes.is_empty() {
            true => tracing::warn!("{why}"),
            false => tracing::warn!("{why}: the processes of the nodes {nodes:?} count as ended"),
        }
        for node in nodes {
            self.report(Message::Lost(node, Some(why.to_string())));
        }
        let actions = self.switch.handle_lost(id);
        self.act(actions);
    }
}
