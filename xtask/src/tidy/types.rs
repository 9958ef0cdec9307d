//! Checks how large a type is: its fields, and its methods in all files of a crate. Only the crates
//! in the list are held to the limits, and plain settings and records are exempt from them.

use super::Finding;
use super::sources::Source;
use syn::visit::Visit;

const FIELDS: usize = 15;
const METHODS: usize = 40;

/// Crates whose types are held to these numbers.
const HELD: &[&str] = &[
    "crates/client",
    "crates/server",
    "crates/server-proto",
    "crates/worker",
];

/// Plain settings, and records of the wire and of the disk, which have the fields that they have.
const PLAIN: &[(&str, &str)] = &[
    ("crates/server", "Config"),
    ("crates/server-proto", "Limits"),
    ("crates/server-proto", "Record"),
];

/// A type of a crate: where it stands, its fields and its methods.
#[derive(Debug)]
struct Size {
    folder: String,
    name: String,
    path: String,
    fields: usize,
    methods: usize,
}

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut listed: Vec<&(&str, &str)> = PLAIN.iter().collect();
    for size in sizes(sources) {
        let is_it = |one: &(&str, &str)| *one == (size.folder.as_str(), size.name.as_str());
        let (many_fields, many_methods) = (size.fields > FIELDS, size.methods > METHODS);
        let is_plain = PLAIN.iter().any(is_it) && !many_methods;
        if !many_fields && !many_methods {
            continue;
        }
        listed.retain(|one| !is_it(one));
        let text = format!(
            "`{}` has {} fields and {} methods; at most {FIELDS} and {METHODS}",
            size.name, size.fields, size.methods
        );
        if !is_plain {
            findings.push(Finding::error(size.path, text));
        }
    }
    findings.extend(listed.into_iter().map(|(folder, name)| {
        let text = format!("`{name}` is not large: strike it off xtask/src/tidy/types.rs");
        Finding::error(*folder, text)
    }));
    findings
}

/// All types of the crates that are looked at.
fn sizes(sources: &[Source]) -> Vec<Size> {
    let held = |source: &&Source| {
        let folder = source.path.split_once("/src/").map(|(folder, _)| folder);
        folder.is_some_and(|folder| HELD.contains(&folder))
    };
    let mut types = Types::default();
    for source in sources.iter().filter(held) {
        if let (Some((folder, _)), Some(rust)) = (source.path.split_once("/src/"), &source.rust) {
            (types.folder, types.path) = (folder.to_owned(), source.path.clone());
            types.visit_file(rust);
        }
    }
    for (folder, path, name, methods) in types.impls {
        let known = types.sizes.iter_mut();
        let known = known.filter(|size| size.folder == folder && size.name == name);
        // Of several types of one name it is the one that stands nearest.
        if let Some(size) = known.max_by_key(|size| shared(&size.path, &path)) {
            size.methods += methods;
        }
    }
    types.sizes
}

/// How much of two paths is the same from the start.
fn shared(one: &str, other: &str) -> usize {
    let pairs = one.bytes().zip(other.bytes());
    pairs.take_while(|(one, other)| one == other).count()
}

/// What the files say, one after the other.
#[derive(Default)]
struct Types {
    folder: String,
    path: String,
    sizes: Vec<Size>,
    /// Folder, path, name of the type, methods.
    impls: Vec<(String, String, String, usize)>,
}

impl Types {
    fn add(&mut self, name: &syn::Ident, fields: usize) {
        self.sizes.push(Size {
            folder: self.folder.clone(),
            name: name.to_string(),
            path: self.path.clone(),
            fields,
            methods: 0,
        });
    }
}

impl Visit<'_> for Types {
    fn visit_item_struct(&mut self, item: &syn::ItemStruct) {
        self.add(&item.ident, item.fields.len());
    }

    fn visit_item_enum(&mut self, item: &syn::ItemEnum) {
        self.add(&item.ident, 0);
    }

    fn visit_item_impl(&mut self, item: &syn::ItemImpl) {
        if item.trait_.is_some() {
            return;
        }
        if let syn::Type::Path(path) = &*item.self_ty
            && let Some(name) = path.path.segments.last()
        {
            let methods = item.items.iter();
            let methods = methods.filter(|item| matches!(item, syn::ImplItem::Fn(_)));
            let (folder, path) = (self.folder.clone(), self.path.clone());
            let name = name.ident.to_string();
            self.impls.push((folder, path, name, methods.count()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_methods_are_counted_in_all_files() {
        let fields: String = (0..16).map(|n| format!("f{n}: u8,")).collect();
        let methods: String = (0..21).map(|n| format!("fn m{n}() {{}}")).collect();
        let files = [
            (
                "crates/client/src/a.rs",
                format!("struct Wide {{ {fields} }}"),
            ),
            (
                "crates/client/src/b.rs",
                format!("enum Tall {{}} impl Tall {{ {methods} }}"),
            ),
            (
                "crates/client/src/b/c.rs",
                format!("impl super::Tall {{ {methods} }}"),
            ),
            (
                "crates/client/src/c.rs",
                format!("struct Tall; impl Tall {{ {methods} }}"),
            ),
            (
                "crates/flow/src/a.rs",
                format!("struct Free {{ {fields} }}"),
            ),
        ];
        let sources = files.map(|(path, text)| Source::new(path, text).expect("it parses"));
        let found = check(&sources);
        let has = |part: &str| found.iter().any(|finding| finding.text.contains(part));
        assert!(has("`Wide` has 16 fields") && has("`Tall` has 0 fields and 42"));
        assert!(!has("`Free`"));
    }
}
