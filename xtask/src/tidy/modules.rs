//! No circles between the top-level modules of a crate: `a` may use `b`, or `b` may use `a`.
//!
//! The check counts `use` lines and paths that begin with `crate` or lead there by `super`. A name
//! that the root exports counts for its module. Tests may use any module.

use super::Finding;
use super::sources::Source;
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;

/// Known circles: a crate, the modules, the reason. An entry that is not a circle any more, or that
/// has grown, is an error. An entry without modules allows any circle in the crate.
const CIRCLES: &[(&str, &[&str], &str)] = &[
    (
        "bindings/c",
        &[],
        "every part of the C interface checks handles of the others; it still lacks layers",
    ),
    (
        "bindings/python",
        &[],
        "Python classes return each other, each in a module of its own",
    ),
    (
        "crates/worker",
        &["files", "handle", "launch", "parallel", "process"],
        "starting a worker and being one share their messages",
    ),
];

/// Which module uses which, in one crate.
type Graph = BTreeMap<String, BTreeSet<String>>;

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !is_test(&source.path)) {
        if let Some((folder, _)) = source.path.split_once("/src/") {
            crates.entry(folder).or_default().push(source);
        }
    }
    let mut findings = Vec::new();
    let mut needed = vec![false; CIRCLES.len()];
    for (folder, sources) in &crates {
        for circle in circles(&graph(sources)) {
            let is_it = |(known, modules, _): &(&str, &[&str], &str)| {
                known == folder && (modules.is_empty() || **modules == circle[..])
            };
            match CIRCLES.iter().position(is_it) {
                Some(place) => needed[place] = true,
                None => {
                    let modules = circle.join(", ");
                    let text = format!(
                        "these modules use each other in a circle: {modules}; let one of them \
                         not know the others"
                    );
                    findings.push(Finding::error(format!("{folder}/src"), text));
                }
            }
        }
    }
    let known = CIRCLES.iter().zip(needed);
    let gone = known.filter(|(_, is_needed)| !is_needed);
    findings.extend(gone.map(|((folder, modules, _), _)| {
        let text = format!(
            "no circle of {modules:?} any more: strike it off CIRCLES in xtask/src/tidy/modules.rs"
        );
        Finding::error(*folder, text)
    }));
    findings
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.contains("/tests/")
}

fn graph(sources: &[&Source]) -> Graph {
    let is_root = |source: &&&Source| source.path.ends_with("/src/lib.rs");
    let root = sources.iter().find(is_root);
    let root = root.or_else(|| {
        sources
            .iter()
            .find(|one| one.path.ends_with("/src/main.rs"))
    });
    let exported = root.and_then(|root| root.rust.as_ref()).map(exports);
    let exported = exported.unwrap_or_default();
    let mut graph = Graph::new();
    for source in sources {
        let Some(rust) = &source.rust else {
            continue;
        };
        let within = modules_of(&source.path);
        let Some(own) = within.first().cloned() else {
            continue;
        };
        let mut uses = Uses {
            within,
            found: BTreeSet::new(),
        };
        uses.visit_file(rust);
        let used = uses.found.iter();
        let used = used.map(|name| exported.get(name).unwrap_or(name).clone());
        graph.entry(own).or_default().extend(used);
    }
    let known: BTreeSet<String> = graph.keys().cloned().collect();
    for (module, used) in &mut graph {
        used.retain(|other| other != module && known.contains(other));
    }
    graph
}

/// The path of a file's module from the root; empty for the root itself.
fn modules_of(path: &str) -> Vec<String> {
    let inner = path.split_once("/src/").map_or(path, |(_, inner)| inner);
    let inner = inner.strip_suffix(".rs").unwrap_or(inner);
    let parts = inner.split('/').filter(|part| *part != "mod");
    let parts: Vec<String> = parts.map(str::to_owned).collect();
    match parts.first().map(String::as_str) {
        Some("lib" | "main" | "bin") => Vec::new(),
        _ => parts,
    }
}

/// Names that the root exports, with their modules.
fn exports(root: &syn::File) -> BTreeMap<String, String> {
    let modules = root.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) => Some(module.ident.to_string()),
        _ => None,
    });
    let modules: BTreeSet<String> = modules.collect();
    let mut exported = BTreeMap::new();
    for item in &root.items {
        if let syn::Item::Use(used) = item {
            for path in paths(&used.tree) {
                let path: Vec<&String> = path
                    .iter()
                    .skip_while(|part| matches!(part.as_str(), "crate" | "self"))
                    .collect();
                if let [module, .., name] = path[..]
                    && modules.contains(module)
                {
                    exported.insert(name.clone(), module.clone());
                }
            }
        }
    }
    exported
}

/// Every path of a `use`. The last part of a renamed path is the new name.
fn paths(tree: &syn::UseTree) -> Vec<Vec<String>> {
    match tree {
        syn::UseTree::Path(path) => {
            let rest = paths(&path.tree).into_iter();
            let first = path.ident.to_string();
            rest.map(|rest| [vec![first.clone()], rest].concat())
                .collect()
        }
        syn::UseTree::Name(name) => vec![vec![name.ident.to_string()]],
        syn::UseTree::Rename(rename) => vec![vec![rename.rename.to_string()]],
        syn::UseTree::Glob(_) => vec![vec!["*".to_owned()]],
        syn::UseTree::Group(group) => group.items.iter().flat_map(paths).collect(),
    }
}

/// Collects the first names below the root that a file uses.
struct Uses {
    /// The module that is being visited.
    within: Vec<String>,
    found: BTreeSet<String>,
}

impl Uses {
    fn take(&mut self, path: &[String]) {
        let supers = path.iter().take_while(|part| *part == "super").count();
        let first = match path.first().map(String::as_str) {
            Some("crate") => path.get(1),
            Some("super") if supers == self.within.len() => path.get(supers),
            _ => None,
        };
        self.found.extend(first.cloned());
    }
}

impl Visit<'_> for Uses {
    fn visit_item_mod(&mut self, module: &syn::ItemMod) {
        let is_test = module.attrs.iter().any(|attribute| {
            let list = attribute.meta.require_list();
            attribute.path().is_ident("cfg")
                && list.is_ok_and(|list| list.tokens.to_string() == "test")
        });
        if is_test {
            return;
        }
        self.within.push(module.ident.to_string());
        syn::visit::visit_item_mod(self, module);
        self.within.pop();
    }

    fn visit_item_use(&mut self, used: &syn::ItemUse) {
        for path in paths(&used.tree) {
            self.take(&path);
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let parts = path.segments.iter();
        let parts: Vec<String> = parts.map(|part| part.ident.to_string()).collect();
        self.take(&parts);
        syn::visit::visit_path(self, path);
    }
}

/// The modules that reach each other, in the order of their names.
fn circles(graph: &Graph) -> Vec<Vec<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = graph
        .keys()
        .map(|module| (module.as_str(), reach(graph, module)))
        .collect();
    let mut circles = BTreeSet::new();
    for (module, others) in &reached {
        let back = others
            .iter()
            .filter(|other| reached[**other].contains(module));
        let circle: BTreeSet<&str> = back.copied().collect();
        if !circle.is_empty() {
            circles.insert(circle.into_iter().collect());
        }
    }
    circles.into_iter().collect()
}

/// The modules that a module uses, directly or indirectly.
fn reach<'g>(graph: &'g Graph, module: &str) -> BTreeSet<&'g str> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&str> = graph[module].iter().map(String::as_str).collect();
    while let Some(next) = left.pop() {
        if reached.insert(next) {
            left.extend(graph[next].iter().map(String::as_str));
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources = files
            .iter()
            .map(|(path, text)| Source::new(path, (*text).to_owned()).expect("it parses"));
        let sources: Vec<Source> = sources.collect();
        let findings = check(&sources).into_iter();
        let of_these = findings.filter(|finding| finding.place.starts_with("x/"));
        of_these.map(|finding| finding.text).collect()
    }

    #[test]
    fn a_circle_is_named() {
        let files = [
            ("x/src/lib.rs", "mod a; mod b; mod c;"),
            ("x/src/a.rs", "use crate::b::B; mod tests { }"),
            ("x/src/b/inner.rs", "fn f() { super::super::c::g() }"),
            ("x/src/c.rs", "use super::a;"),
        ];
        let circle = found(&files);
        assert!(circle[0].contains("a, b, c"), "{circle:?}");
        assert!(found(&files[..3]).is_empty());
    }

    #[test]
    fn a_name_of_the_root_counts_for_its_module() {
        let files = [
            ("x/src/lib.rs", "mod a; mod b; pub use b::{inner::B as C};"),
            ("x/src/a.rs", "use crate::C;"),
            ("x/src/b.rs", "use crate::a::A;"),
        ];
        assert_eq!(found(&files).len(), 1);
    }

    #[test]
    fn tests_and_the_root_may_use_anything() {
        let files = [
            ("x/src/lib.rs", "mod a; mod b; use a::A; use b::B;"),
            ("x/src/a.rs", "use crate::b::B; use super::Error;"),
            (
                "x/src/b.rs",
                "#[cfg(test)] mod tests { use crate::a::A; use super::*; }",
            ),
            ("x/src/b/tests.rs", "use crate::a::A;"),
        ];
        assert!(found(&files).is_empty());
    }
}
