//! Checks that pure cores do no I/O, read no clock, start no thread and draw no random number. Code
//! for tests is free. `layers` checks the packages that they use.

use super::Finding;
use super::sources::Source;
use syn::spanned::Spanned;
use syn::visit::Visit;

/// Crates that use `std` but must give the same answer for the same input, always.
pub(super) const PURE: &[&str] = &[
    "directory",
    "flow",
    "gridsim",
    "npy",
    "plan",
    "record",
    "schedule",
    "server-proto",
    "snapshot",
    "twin",
];

/// Paths that they may not name, nor anything below.
const IMPURE: &[&str] = &[
    "std::env",
    "std::fs",
    "std::hash::RandomState",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "getrandom",
    "rand::random",
    "rand::rng",
    "rand::rngs::OsRng",
    "rand::rngs::ThreadRng",
    "rand::thread_rng",
];

/// Methods that seed a generator from the machine.
const IMPURE_METHODS: &[&str] = &["from_entropy", "from_os_rng", "try_from_os_rng"];

/// Macros that write.
const IMPURE_MACROS: &[&str] = &["print", "println", "eprint", "eprintln"];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let pure = PURE
        .iter()
        .any(|name| source.path.starts_with(&format!("crates/{name}/src/")));
    match &source.rust {
        Some(rust) if pure && !is_test_file(&source.path) => breaches(&source.path, rust),
        _ => Vec::new(),
    }
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn breaches(path: &str, rust: &syn::File) -> Vec<Finding> {
    let mut visitor = Visitor {
        path,
        findings: Vec::new(),
    };
    visitor.visit_file(rust);
    visitor.findings
}

struct Visitor<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl Visitor<'_> {
    fn report(&mut self, line: usize, name: &str) {
        let text = format!("`{name}` in a core: no I/O, clock, thread or randomness of its own");
        self.findings
            .push(Finding::error(format!("{}:{line}", self.path), text));
    }

    fn consider(&mut self, line: usize, name: &str) {
        // A module imported whole hides what is used of it: `use std::time` is refused too.
        let below = |outer: &str, inner: &str| {
            inner == outer
                || inner
                    .strip_prefix(outer)
                    .is_some_and(|rest| rest.starts_with("::"))
        };
        let wide = name.contains("std") && IMPURE.iter().any(|impure| below(name, impure));
        if wide || IMPURE.iter().any(|impure| below(impure, name)) {
            self.report(line, name);
        }
    }

    fn consider_use(&mut self, tree: &syn::UseTree, prefix: &str) {
        let join = |name: &str| match prefix {
            "" => name.to_owned(),
            _ => format!("{prefix}::{name}"),
        };
        match tree {
            syn::UseTree::Path(path) => {
                self.consider_use(&path.tree, &join(&path.ident.to_string()));
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                self.consider(name.span().start().line, prefix);
            }
            syn::UseTree::Name(name) => {
                self.consider(name.span().start().line, &join(&name.ident.to_string()));
            }
            syn::UseTree::Rename(name) => {
                self.consider(name.span().start().line, &join(&name.ident.to_string()));
            }
            syn::UseTree::Glob(glob) => self.consider(glob.span().start().line, prefix),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.consider_use(tree, prefix);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(item) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.consider_use(&item.tree, "");
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        let line = path.span().start().line;
        if names.len() > 1 {
            self.consider(line, &names.join("::"));
        }
        if names
            .last()
            .is_some_and(|name| IMPURE_METHODS.contains(&name.as_str()))
        {
            self.report(line, &names.join("::"));
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().map(|part| part.ident.to_string());
        if let Some(name) = name.filter(|name| IMPURE_MACROS.contains(&name.as_str())) {
            self.report(call.span().start().line, &format!("{name}!"));
        }
    }
}

/// True for what is compiled for tests only.
fn is_for_tests(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() == "test",
        meta => meta.path().is_ident("test"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        let source = Source::new("crates/flow/src/lib.rs", text.to_owned()).expect("parses");
        let place = |found: &Finding| found.place.rsplit(':').next().map(str::to_owned);
        check(&source).iter().filter_map(place).collect()
    }

    #[test]
    fn clocks_files_and_threads_are_found_however_they_are_named() {
        assert_eq!(
            lines("use std::{collections::BTreeMap,\n fs::File};"),
            ["2"]
        );
        assert_eq!(
            lines("fn f() {\n let t = std::time::Instant::now();\n}"),
            ["2"]
        );
        assert_eq!(lines("use std::time;"), ["1"]);
        assert_eq!(lines("use std::time::*;"), ["1"]);
        assert_eq!(lines("use std::thread as t;"), ["1"]);
        assert_eq!(lines("fn f() {\n let r = StdRng::from_os_rng();\n}"), ["2"]);
        assert_eq!(lines("fn f() { println!(); }"), ["1"]);
    }

    #[test]
    fn pure_things_and_tests_may_pass() {
        assert!(lines("use std::time::Duration; use std::fmt; use std::io::Write;").is_empty());
        assert!(lines("#[cfg(test)] mod tests { use std::time::Instant; }").is_empty());
        assert!(lines("use rand::Rng; fn f(environment: std::cell::Cell<u8>) {}").is_empty());
    }

    #[test]
    fn other_crates_are_free() {
        let text = "use std::net::TcpStream;".to_owned();
        let source = Source::new("crates/server/src/lib.rs", text).expect("parses");
        assert!(check(&source).is_empty());
    }
}
