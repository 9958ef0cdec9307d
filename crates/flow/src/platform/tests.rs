//! Tests of all platforms: every pair of nodes has a route over distinct links. The routes of each
//! kind have the length and direction that its definition demands.

use super::*;
use std::collections::HashSet;

fn route(platform: &Platform, src: u32, dst: u32) -> Vec<LinkId> {
    let mut out = vec![0; platform.max_hops()];
    let len = platform.route(src, dst, &mut out);
    out.truncate(len);
    out
}

fn all_routes_are_sane(platform: &Platform) {
    let n = platform.nodes() as u32;
    for src in 0..n {
        for dst in 0..n {
            let path = route(platform, src, dst);
            assert_eq!(path.is_empty(), src == dst);
            let mut unique = path.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), path.len(), "{src} -> {dst} repeats a link");
            for link in path {
                assert!((link as usize) < platform.links());
                assert!(platform.bandwidth(link) > 0.0);
                assert!(!platform.link_name(link).is_empty());
            }
        }
    }
}

#[test]
fn every_kind_routes_every_pair_over_distinct_links() {
    for spec in [
        "fat-tree:ports=6,levels=3",
        "fat-tree:ports=8,levels=2,taper=2",
        "fat-tree:ports=4,levels=1",
        "torus:5x4",
        "torus:4x4x3,nic=link,ties=parity",
        "mesh:4x3x2,wrap=z",
        "hypercrossbar:4x3x2",
        "dragonfly:routers=4,terminals=2,global=2",
        "hyperx:4x3,terminals=2",
    ] {
        all_routes_are_sane(&Platform::parse(spec).unwrap());
    }
}

#[test]
fn routes_are_paths_through_vertices_and_pictures_have_a_place_for_each_link() {
    for spec in [
        "fat-tree:ports=6,levels=3",
        "fat-tree:ports=8,levels=2,taper=2",
        "torus:5x4x3,nic=link",
        "torus:100",
        "mesh:4x3x2,wrap=z",
        "hypercrossbar:4x3x2",
        "dragonfly:routers=4,terminals=2,global=2",
        "dragonfly:groups=4,routers=4,terminals=2,global=2",
        "hyperx:4x3,terminals=2",
        "dragonfly:groups=3,routers=2,terminals=2,global=1,devices=3,device-bandwidth=9",
    ] {
        let platform = Platform::parse(spec).unwrap();
        let nodes = platform.nodes() as u32;
        for (src, dst) in (0..nodes).flat_map(|src| (0..nodes).map(move |dst| (src, dst))) {
            let mut at = src;
            for link in route(&platform, src, dst) {
                let [from, to] = platform.ends(link);
                assert_eq!(from, at, "{spec}: {}", platform.link_name(link));
                assert_ne!(from, to, "{spec}: {}", platform.link_name(link));
                at = to;
            }
            assert_eq!(at, dst, "{spec}: {src} to {dst}");
        }
        let links = 0..platform.links() as LinkId;
        let places: HashSet<_> = links
            .map(|link| platform.place(link))
            .map(|place| (place.panel, place.row, place.column))
            .collect();
        assert_eq!(places.len(), platform.links(), "{spec}");
        let vertices = 0..platform.vertices() as u32;
        let names: HashSet<_> = vertices.map(|v| platform.vertex_name(v)).collect();
        assert_eq!(names.len(), platform.vertices(), "{spec}");
    }
}

#[test]
fn fat_tree_has_2p_cubed_nodes_and_six_links_a_node() {
    for (ports, nodes) in [(6, 54), (8, 128), (16, 1024), (24, 3456)] {
        let platform = Platform::parse(&format!("fat-tree:ports={ports},levels=3")).unwrap();
        assert_eq!(platform.nodes(), nodes);
        assert_eq!(platform.links(), 6 * nodes);
    }
}

#[test]
fn fat_tree_down_links_serve_one_destination_each() {
    let platform = Platform::parse("fat-tree:ports=6,levels=3").unwrap();
    let mut owner = vec![None; platform.links()];
    for dst in 0..54 {
        for src in (0..54).filter(|&s| s != dst) {
            let path = route(&platform, src, dst);
            for &link in &path[path.len() / 2..] {
                assert!(*owner[link as usize].get_or_insert(dst) == dst);
            }
        }
    }
}

#[test]
fn a_torus_route_takes_the_shorter_direction_and_positive_at_half() {
    let platform = Platform::parse("torus:4x4").unwrap();
    assert_eq!(route(&platform, 0, 3), [16]);
    assert_eq!(route(&platform, 3, 1), [3, 0]);
    assert_eq!(route(&platform, 0, 8), [32, 33]);
    let parity = Platform::parse("torus:4x4,ties=parity").unwrap();
    assert_eq!(route(&parity, 3, 1), [19, 18]);
}

#[test]
fn every_link_has_two_ends_and_a_route() {
    for spec in [
        "dragonfly:routers=4,terminals=2,global=2",
        "dragonfly:groups=1,routers=3,terminals=1,global=1",
        "dragonfly:groups=4,routers=4,terminals=2,global=2",
        "hyperx:4x3,terminals=2",
        "hyperx:5,terminals=1",
    ] {
        let platform = Platform::parse(spec).unwrap();
        let nodes = platform.nodes() as u32;
        let mut used = vec![false; platform.links()];
        for (src, dst) in (0..nodes).flat_map(|src| (0..nodes).map(move |dst| (src, dst))) {
            let path = route(&platform, src, dst);
            path.into_iter().for_each(|link| used[link as usize] = true);
        }
        let unused = used.iter().position(|used| !used);
        let unused = unused.map(|link| platform.link_name(link as LinkId));
        assert_eq!(unused, None, "{spec}: no route");
        let mut names: Vec<String> = (0..used.len())
            .map(|link| platform.link_name(link as LinkId))
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), used.len(), "{spec}");
    }
}

#[test]
fn dragonfly_routes_are_at_most_local_global_local() {
    let platform = Platform::parse("dragonfly:routers=4,terminals=2,global=2").unwrap();
    assert_eq!(platform.nodes(), 9 * 8);
    let global_base = platform.links() - 9 * 8;
    for (src, dst) in [(0, 71), (13, 40), (70, 1)] {
        let path = route(&platform, src, dst);
        let globals = path.iter().filter(|&&l| l as usize >= global_base).count();
        assert_eq!(globals, 1);
    }
}

#[test]
fn edge_list_routes_are_shortest_and_links_have_names() {
    let text = "# two nodes on each of two switches\nboth,0,left,1GB/s\nboth,01,left,1e9\n\
                both,2,right,1e9\nboth,3,right,1e9\nboth,left,right,5e8\n";
    let platform = EdgeList::parse(text).unwrap();
    assert_eq!((platform.nodes(), platform.links()), (4, 10));
    let names: Vec<String> = route(&platform, 0, 3)
        .into_iter()
        .map(|l| platform.link_name(l))
        .collect();
    assert_eq!(names, ["0 to left", "left to right", "right to 3"]);
    all_routes_are_sane(&platform);
}

#[test]
fn edge_list_errors_name_the_line() {
    for (text, line, part) in [
        ("0,1,1e9\n1,0", 2, "expected"),
        ("0,0,1", 1, "different"),
        (
            "both,0,1,1\nboth,-1,0,1",
            2,
            "node `-1`: nodes are numbered",
        ),
        ("both,0,4294967296,1", 1, "node `4294967296`"),
        ("0,1,fast", 1, "expected a number"),
        ("0,2,1", 0, "node 1 has no link"),
        ("0,1,1", 0, "no path from node 1 to node 0"),
        ("a,b,1", 0, "no node"),
    ] {
        let error = EdgeList::parse(text).unwrap_err();
        assert_eq!(error.line, line, "{error}");
        assert!(error.reason.contains(part), "{error}");
    }
}

#[test]
fn errors_of_specifications_list_the_alternatives() {
    for (spec, part) in [
        ("fattree:ports=4", "fat-tree:ports=24"),
        ("fat-tree", "needs ports"),
        ("fat-tree:ports=5", "even number"),
        ("fat-tree:ports=4000,levels=9", "too many nodes"),
        ("fat-tree:ports=8,taper=3", "divide"),
        ("fat-tree:ports=8,colour=3", "no option `colour`"),
        ("edges:net.csv", "flow.edges"),
        ("torus:16y16", "16x16"),
        ("torus:16x16,ties=odd", "`even` or `parity`"),
        ("torus:0x4", "at least one"),
        ("torus:16x16,bandwidth=1:2:3", "3 bandwidths for 2"),
        ("torus:16x16,bandwidth=0", "above 0"),
        ("mesh:8x8,wrap=z", "dimensions are `xy`"),
        ("torus:100000x100000", "more than"),
        ("dragonfly:routers=2,global=1,groups=9", "other groups only"),
        (
            "dragonfly:groups=2,routers=4294967295,terminals=1,global=4294967295",
            "too many links",
        ),
        ("torus:4x4,ties=even,ties=even", "twice"),
        ("torus:4x4,devices=2", "belong together"),
        ("torus:4x4,devices=0,device-bandwidth=1", "devices=0"),
    ] {
        let error = Platform::parse(spec).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
