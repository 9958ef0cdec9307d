//! Writes a data-flow graph in the DOT language, for people. It does not draw: Graphviz does. The
//! texts of the boxes come from the caller and are escaped.

use super::Graph;
use std::fmt::Write;

/// The graph in the DOT language: a box for each call, an arrow for each array that one call makes
/// and another reads, and a dashed arrow if a call only waits. `calls` are the texts of the boxes,
/// and `array` names an array of a call.
pub fn dot(graph: &Graph, calls: &[String], array: impl Fn(usize, usize) -> String) -> String {
    let mut text = String::from("digraph transaction {\n");
    for (call, node) in graph.nodes.iter().enumerate() {
        let label = calls.get(call).map_or("", String::as_str);
        let _ = writeln!(text, "  c{call} [label=\"{}\" shape=box];", escape(label));
        for before in &node.after {
            let names: Vec<String> = node
                .flows
                .iter()
                .filter(|flow| {
                    let reads = flow.reads.map(|reads| graph.versions[reads].made_by);
                    reads == Some(Some(*before))
                })
                .map(|flow| array(call, flow.used.argument))
                .collect();
            let label = escape(&names.join(" "));
            let style = match names.is_empty() {
                true => " style=dashed",
                false => "",
            };
            let _ = writeln!(text, "  c{before} -> c{call} [label=\"{label}\"{style}];");
        }
    }
    text.push_str("}\n");
    text
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
