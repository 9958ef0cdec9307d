//! The status of a trunk as JSON and as Prometheus metrics. The figures come from `trunk-proto`;
//! this module only converts them, and keeps the newest changes for people. The names of the JSON
//! fields and of the metrics are documented, so a test compares them.

use farcall_metrics::Text;
use farcall_trunk_proto::{Conflict, Counters, PathStatus, PeerStatus, Status};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

/// The largest number of changes kept for the status.
const LOG: usize = 64;

/// The newest failures and recoveries.
#[derive(Debug, Default)]
pub(crate) struct Log(VecDeque<(f64, String)>);

impl Log {
    pub(crate) fn push(&mut self, text: String) {
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        if self.0.len() == LOG {
            self.0.pop_front();
        }
        self.0.push_back((time.as_secs_f64(), text));
    }
}

/// Converts a rate from bytes to bits a second, on the wire.
fn bits(bytes: f64) -> f64 {
    (bytes * 8.0).round()
}

pub(crate) fn json(name: &str, status: &Status, log: &Log) -> Value {
    let links = status.links.iter().map(|link| {
        json!({
            "name": link.name,
            "carrier": link.carrier,
            "line_rate": bits(link.line_rate),
            "capacity": bits(link.capacity),
        })
    });
    let path = |path: &PathStatus| {
        let mut value = json!({
            "name": status.links[path.link].name,
            "address": path.address.to_string(),
            "state": path.state,
            "capacity": bits(path.capacity),
            "rate": bits(path.rate),
            "sent_rate": bits(path.sent_rate),
            "sent": path.sent,
            "received": path.received,
            "lost": path.lost,
            "resent": path.resent,
            "failures": path.failures,
        });
        match (path.grant, path.weight) {
            (Some(grant), _) => value["grant"] = json!(bits(grant)),
            (_, weight) => value["weight"] = json!(weight),
        }
        value
    };
    let peers = status.peers.iter().map(|peer| {
        json!({
            "address": peer.node.to_string(),
            "queued_bytes": peer.queued_bytes,
            "queue_drops": peer.queue_drops,
            "queue_marks": peer.queue_marks,
            "held_frames": peer.held_frames,
            "given_up": peer.given_up,
            "encrypted": peer.encrypted,
            "refused": peer.refused,
            "resynchronised": peer.resynchronised,
            "round_trip_us": peer.round_trip as f64 / 1e3,
            "links": peer.links.iter().map(path).collect::<Vec<_>>(),
        })
    });
    let events = log
        .0
        .iter()
        .map(|(time, text)| json!({ "time": time, "text": text }));
    json!({
        "schema": 1,
        "name": name,
        "address": status.node.to_string(),
        "policy": status.policy,
        "mtu": status.mtu,
        "links": links.collect::<Vec<_>>(),
        "peers": peers.collect::<Vec<_>>(),
        "conflicts": conflicts(status),
        "dropped": counters(&status.counters)
            .into_iter()
            .map(|(reason, count)| (reason.to_owned(), json!(count)))
            .collect::<serde_json::Map<_, _>>(),
        "events": events.collect::<Vec<_>>(),
    })
}

fn conflicts(status: &Status) -> Value {
    let conflict = |conflict: &Conflict| {
        json!({
            "link": status.links[conflict.link].name,
            "address": conflict.address.to_string(),
            "text": conflict.kind.to_string(),
        })
    };
    status.conflicts.iter().map(conflict).collect()
}

fn counters(counters: &Counters) -> [(&'static str, u64); 8] {
    [
        ("unknown_source", counters.unknown_source),
        ("malformed", counters.malformed),
        ("bad_number", counters.bad_number),
        ("unauthentic", counters.unauthentic),
        ("duplicates", counters.duplicates),
        ("too_long", counters.too_long),
        ("no_peer", counters.no_peer),
        ("peers_refused", counters.peers_refused),
    ]
}

/// The name, the help text and the value of a metric.
type Metric<T> = (&'static str, &'static str, fn(&T) -> f64);

/// Gauges of every link of every peer.
const LINK_GAUGES: [Metric<PathStatus>; 5] = [
    ("up", "Whether the link carries traffic.", |p| {
        f64::from(p.state == "up")
    }),
    (
        "carries_bits_per_second",
        "Learned capacity of the link from the peer.",
        |p| bits(p.capacity),
    ),
    ("receive_bits_per_second", "Wire rate received.", |p| {
        bits(p.rate)
    }),
    ("send_bits_per_second", "Wire rate sent.", |p| {
        bits(p.sent_rate)
    }),
    ("grant_bits_per_second", "Rate granted by the peer.", |p| {
        bits(p.grant.unwrap_or(f64::NAN))
    }),
];

/// Counters of every link of every peer.
const LINK_COUNTERS: [Metric<PathStatus>; 5] = [
    ("sent_frames", "Frames sent.", |p| p.sent as f64),
    ("received_frames", "Frames received.", |p| p.received as f64),
    ("lost_frames", "Frames from the peer that were lost.", |p| {
        p.lost as f64
    }),
    ("resent_frames", "Frames sent again.", |p| p.resent as f64),
    (
        "failures",
        "How often the link was taken out of use.",
        |p| p.failures as f64,
    ),
];

/// Gauges of every peer.
const PEER_GAUGES: [Metric<PeerStatus>; 3] = [
    ("round_trip_seconds", "Round trip over the links.", |p| {
        p.round_trip as f64 / 1e9
    }),
    ("queued_bytes", "Bytes that wait to be sent.", |p| {
        p.queued_bytes as f64
    }),
    (
        "held_frames",
        "Frames held until earlier frames arrive.",
        |p| p.held_frames as f64,
    ),
];

/// Counters of every peer.
const PEER_COUNTERS: [Metric<PeerStatus>; 4] = [
    (
        "queue_dropped_frames",
        "Frames dropped before they got a number, because too many waited.",
        |p| p.queue_drops as f64,
    ),
    (
        "given_up_frames",
        "Frames from the peer that were given up.",
        |p| p.given_up as f64,
    ),
    (
        "refused_frames",
        "Frames refused because heartbeats denied or did not confirm their numbers.",
        |p| p.refused as f64,
    ),
    (
        "resynchronised",
        "How often a heartbeat set the order of the peer's frames right.",
        |p| p.resynchronised as f64,
    ),
];

/// The metrics for Prometheus.
pub(crate) fn metrics(name: &str, status: &Status) -> Text {
    let trunk = ("trunk", name.to_owned());
    let mut text = Text::new("farcall_trunk");
    if status.links.iter().all(|link| !link.carrier) {
        text.not_ready("no link of the trunk has a carrier");
    }
    let carries = status.links.iter().map(|link| {
        let labels = vec![trunk.clone(), ("link", link.name.clone())];
        (labels, bits(link.capacity))
    });
    let help = "Learned capacity of a link.";
    text.gauges("carries_bits_per_second", help, carries);
    let conflicts = status.conflicts.len() as f64;
    let help = "Addresses that two nodes have used in the last minute.";
    let only = [(vec![trunk.clone()], conflicts)];
    text.gauges("address_conflicts", help, only);
    let peers = |value: fn(&PeerStatus) -> f64| {
        status.peers.iter().map({
            let trunk = trunk.clone();
            move |peer| {
                let labels = vec![trunk.clone(), ("peer", peer.node.to_string())];
                (labels, value(peer))
            }
        })
    };
    for (metric, help, value) in PEER_GAUGES {
        text.gauges(format!("peer_{metric}"), help, peers(value));
    }
    for (metric, help, value) in PEER_COUNTERS {
        text.counters(format!("peer_{metric}"), help, peers(value));
    }
    let links = |value: fn(&PathStatus) -> f64| {
        let paths = status.peers.iter();
        let paths = paths.flat_map(|peer| peer.links.iter().map(move |path| (peer, path)));
        let series = paths.map(|(peer, path)| {
            let peer = ("peer", peer.node.to_string());
            let link = ("link", status.links[path.link].name.clone());
            (vec![trunk.clone(), peer, link], value(path))
        });
        let known = series.filter(|(_, value)| value.is_finite());
        known.collect::<Vec<_>>()
    };
    for (metric, help, value) in LINK_GAUGES {
        text.gauges(format!("link_{metric}"), help, links(value));
    }
    for (metric, help, value) in LINK_COUNTERS {
        text.counters(format!("link_{metric}"), help, links(value));
    }
    let dropped = counters(&status.counters).map(|(reason, count)| {
        let labels = vec![trunk.clone(), ("reason", reason.to_owned())];
        (labels, count)
    });
    text.counters("dropped_frames", "Frames dropped.", dropped);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_trunk_proto::{ConflictKind, LinkStatus, Mac, PeerStatus};

    fn status() -> Status {
        let path = PathStatus {
            state: "up",
            grant: Some(12.5e6),
            ..PathStatus::default()
        };
        Status {
            policy: "max-min",
            links: vec![LinkStatus {
                name: "eth1".to_owned(),
                ..LinkStatus::default()
            }],
            peers: vec![PeerStatus {
                links: vec![path],
                ..PeerStatus::default()
            }],
            conflicts: vec![Conflict {
                link: 0,
                address: Mac([2; 6]),
                kind: ConflictKind::PeerLink,
            }],
            ..Status::default()
        }
    }

    #[test]
    fn the_status_has_the_documented_fields() {
        let mut log = Log::default();
        (0..100).for_each(|number| log.push(format!("event {number}")));
        let value = json("fc0", &status(), &log);
        let link = &value["peers"][0]["links"][0];
        assert_eq!(
            (&link["state"], &link["grant"]),
            (&json!("up"), &json!(1e8))
        );
        let peer = &value["peers"][0];
        assert_eq!(
            (&peer["refused"], &peer["resynchronised"]),
            (&json!(0), &json!(0))
        );
        let conflict = json!({
            "link": "eth1",
            "address": "02:02:02:02:02:02",
            "text": "two nodes send from this address",
        });
        assert_eq!(value["conflicts"], json!([conflict]));
        for field in ["rate", "lost", "resent", "name"] {
            assert!(!link[field].is_null(), "{field}");
        }
        assert_eq!(value["schema"], 1);
        assert_eq!(value["events"].as_array().map(Vec::len), Some(LOG));
    }

    #[test]
    fn metrics_name_peer_and_link() {
        let text = metrics("fc0", &status()).encode();
        let line = "farcall_trunk_link_grant_bits_per_second{trunk=\"fc0\",\
                    peer=\"00:00:00:00:00:00\",link=\"eth1\"} 100000000";
        assert!(text.lines().any(|other| other == line), "{text}");
        let peer = "farcall_trunk_peer_queued_bytes{trunk=\"fc0\",peer=\"00:00:00:00:00:00\"} 0";
        assert!(text.lines().any(|other| other == peer), "{text}");
        let conflicts = "farcall_trunk_address_conflicts{trunk=\"fc0\"} 1";
        assert!(text.lines().any(|other| other == conflicts), "{text}");
    }
}
