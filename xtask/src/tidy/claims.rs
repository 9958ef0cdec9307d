//! Checks claims about security: each test that SECURITY.md and docs/security.md name for a claim
//! must exist. Whether the test shows the claim is for a reviewer to judge.

use super::Finding;
use super::sources::Source;

const PAGES: [&str; 2] = ["SECURITY.md", "docs/security.md"];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in sources.iter().filter(|one| PAGES.contains(&&*one.path)) {
        for (number, line) in page.text.lines().enumerate() {
            // Between backticks is every second part.
            let spans = line.split('`').skip(1).step_by(2);
            for span in spans.filter(|span| !exists(span, sources)) {
                let text = format!("there is no test `{span}`");
                findings.push(Finding::error(
                    format!("{}:{}", page.path, number + 1),
                    text,
                ));
            }
        }
    }
    findings
}

/// Whether a file or a test is there; true for everything else in backticks.
fn exists(span: &str, sources: &[Source]) -> bool {
    let is_file = span.contains('/') && (span.ends_with(".rs") || span.ends_with(".py"));
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_test = span.chars().all(is_word) && span.matches('_').count() >= 4;
    if is_file {
        // Crates may be named without their folder.
        let within = format!("crates/{span}");
        sources
            .iter()
            .any(|one| one.path == span || one.path == within)
    } else if is_test {
        let forms = [format!("fn {span}("), format!("def {span}(")];
        let mut texts = sources.iter().map(|one| one.text.as_str());
        texts.any(|text| forms.iter().any(|form| text.contains(form)))
    } else {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_needs_its_test() {
        let source = |path: &str, text: &str| Source::new(path, text.to_owned()).expect("parses");
        let there = source("crates/a/src/b.rs", "fn nobody_does_it_in_a() {}\n");
        let page = "| `a/src/b.rs`: `nobody_does_it_in_a` | `limits.connections` |\n\
                    | `a/src/c.rs`, `nobody_does_it_in_b` |\n";
        let findings = check(&[there, source("SECURITY.md", page)]);
        let places: Vec<_> = findings.iter().map(|one| one.place.as_str()).collect();
        assert_eq!(places, ["SECURITY.md:2"; 2], "{findings:?}");
    }
}
