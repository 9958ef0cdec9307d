//! Checks the lengths of lines, functions and files. A line that is too long is an error, and a
//! long function or file is a warning. Generated files and texts of other projects have no limits.

use super::Finding;
use super::sources::Source;
use syn::spanned::Spanned;
use syn::visit::Visit;

const COLUMNS: usize = 100;
const FUNCTION_LINES: usize = 70;
const FILE_LINES: usize = 600;

/// Files that may be longer than [`FILE_LINES`], with the reason.
const LONG_FILES: &[(&str, &str)] = &[(
    "bindings/pmpi/record.c",
    "its users compile it with one command on one file",
)];

/// Kinds of file whose lines are held to [`COLUMNS`].
const CODE: &[&str] = &[
    "rs", "py", "pyi", "c", "h", "cpp", "hpp", "f90", "java", "idl",
];

/// Generated files, which have no limits.
const GENERATED: &[&str] = &[
    "libraries/blas.idl",
    "libraries/fft.idl",
    "libraries/lapack.idl",
    "libraries/linalg.idl",
];

/// Folders with text of other projects.
const FOREIGN: &[&str] = &["/fixtures/", "fuzz/corpus/"];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    if CODE.contains(&source.extension()) && !is_free(&source.path) {
        findings.extend(lines(source));
        findings.extend(file(source));
    }
    if let Some(rust) = &source.rust {
        let mut functions = Functions {
            path: &source.path,
            findings: Vec::new(),
        };
        functions.visit_file(rust);
        findings.extend(functions.findings);
    }
    findings
}

fn is_free(path: &str) -> bool {
    GENERATED.contains(&path) || FOREIGN.iter().any(|folder| path.contains(folder))
}

fn lines(source: &Source) -> impl Iterator<Item = Finding> {
    source.text.lines().enumerate().filter_map(|(index, line)| {
        let columns = line.chars().count();
        let place = format!("{}:{}", source.path, index + 1);
        (columns > COLUMNS)
            .then(|| Finding::error(place, format!("{columns} columns; at most {COLUMNS}")))
    })
}

fn file(source: &Source) -> Option<Finding> {
    if LONG_FILES.iter().any(|(path, _)| *path == source.path) {
        return None;
    }
    let lines = source
        .text
        .lines()
        .filter(|line| is_code(line.trim()))
        .count();
    let text = format!("{lines} lines of code; about {FILE_LINES} at most");
    (lines > FILE_LINES).then(|| Finding::warning(&source.path, text))
}

fn is_code(line: &str) -> bool {
    !line.is_empty()
        && !["//", "#", "/*", "* "]
            .iter()
            .any(|start| line.starts_with(start))
}

struct Functions<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.span().start().line;
        let lines = block.span().end().line + 1 - first;
        if lines > FUNCTION_LINES {
            let place = format!("{}:{first}", self.path);
            let text = format!(
                "`{}` has {lines} lines; at most {FUNCTION_LINES}",
                signature.ident
            );
            self.findings.push(Finding::warning(place, text));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig, &function.block);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let source = Source::new(path, text.to_owned()).expect("parses");
        check(&source).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_line_of_101_columns_is_an_error() {
        let text = format!("// {}\n// {}\n", "x".repeat(97), "é".repeat(98));
        assert_eq!(
            found("a.rs", &text),
            ["error: a.rs:2: 101 columns; at most 100"]
        );
    }

    #[test]
    fn prose_may_be_wide() {
        assert!(found("README.md", &"word ".repeat(40)).is_empty());
    }

    #[test]
    fn a_function_of_71_lines_is_a_warning() {
        let text = format!("fn f() {{\n{}}}\nfn g() {{}}\n", "f();\n".repeat(69));
        assert_eq!(
            found("a.rs", &text),
            ["warning: a.rs:1: `f` has 71 lines; at most 70"]
        );
    }

    #[test]
    fn comments_do_not_make_a_file_long() {
        assert!(found("a.rs", &"// reason\n\n".repeat(700)).is_empty());
        let text = "const A: u8 = 1;\n".repeat(601);
        assert_eq!(
            found("a.rs", &text),
            ["warning: a.rs: 601 lines of code; about 600 at most"]
        );
    }
}
