//! Any text as a platform, pattern, placement, routing or failure: it is built, or refused with a
//! reason, without memory in proportion to its size. The routes of a few pairs stay inside the
//! platform. Text with more than one line is also read as an edge list and as a permutation.

use farcall_flow::platform::EdgeList;
use farcall_flow::{Failure, Pattern, Placement, Platform, Routing};

/// The body of the target.
pub fn run(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    match Platform::parse(text) {
        Ok(platform) => routes(&platform),
        Err(error) => assert!(!error.reason.is_empty()),
    }
    if let Ok(platform) = EdgeList::parse(text) {
        routes(&platform);
    }
    let _ = Placement::parse_csv(text, 64);
    let _ = Placement::parse(text, 64);
    let _ = Placement::of_jobs(&[(8, "regular"), (8, text)], 64);
    let _ = Routing::parse(text);
    if let Ok(tree) = Platform::parse("fat-tree:ports=4,levels=2")
        && let Ok(failure) = Failure::parse(text, &tree)
    {
        assert!(
            failure
                .links
                .iter()
                .all(|&link| (link as usize) < tree.links())
        );
        assert!(failure.time >= 0.0);
    }
    for ranks in [1, 6, 16] {
        if let Ok(pattern) = Pattern::parse(text, ranks, 8.0) {
            for round in 0..pattern.rounds().min(40) {
                let round = pattern.round(ranks / 2, round);
                assert!(round.send.is_none_or(|(to, _)| to < ranks));
                assert!(round.receive.is_none_or(|from| from < ranks));
            }
        }
    }
}

fn routes(platform: &Platform) {
    let nodes = platform.nodes() as u32;
    if platform.max_hops() > 1 << 16 {
        return;
    }
    let mut path = vec![0; platform.max_hops()];
    for (src, dst) in [
        (0, nodes - 1),
        (nodes - 1, 0),
        (nodes / 2, nodes / 3),
        (0, 0),
    ] {
        let hops = platform.route(src, dst, &mut path);
        assert_eq!(hops == 0, src == dst);
        for &link in &path[..hops] {
            assert!((link as usize) < platform.links());
            assert!(platform.bandwidth(link) > 0.0);
            assert!(!platform.link_name(link).is_empty());
            assert!(!platform.place(link).panel.is_empty());
            for vertex in platform.ends(link) {
                assert!((vertex as usize) < platform.vertices());
                assert!(!platform.vertex_name(vertex).is_empty());
            }
        }
    }
}
