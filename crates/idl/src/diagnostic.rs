//! Findings about an interface file: what is wrong, where it is, and what to do. The parser and the
//! checker find them. The number of findings is bounded, and the cost of printing one does not
//! depend on the size of the file.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use core::fmt;
use core::ops::Range;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file is not accepted.
    Error,
    /// The file is accepted, but it might not mean what its author intended.
    Warning,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// The problem, in one line.
    pub message: String,
    /// The byte range of the text that the finding is about.
    pub span: Range<usize>,
    /// Advice what to do.
    pub help: Option<String>,
}

impl Diagnostic {
    pub(crate) fn error(span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        let severity = Severity::Error;
        Diagnostic {
            severity,
            message: message.into(),
            span,
            help: None,
        }
    }

    pub(crate) fn warning(span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Warning,
            ..Diagnostic::error(span, message)
        }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Adds "did you mean" if one of the candidates is close to the word.
    pub(crate) fn suggest<'a>(
        self,
        word: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Diagnostic {
        let most = (word.len() / 3).max(1);
        match farcall_spelling::closest(word, candidates, most) {
            Some(candidate) => {
                let help = ["did you mean `", candidate, "`?"].concat();
                self.help(help)
            }
            None => self,
        }
    }
}

/// A position in a file, counted as in an editor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The file that a line marker of the C preprocessor names. `None` is the file itself.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        }
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The position of a byte of the text. Line markers of the C preprocessor are taken into account.
pub fn position(text: &str, offset: usize) -> Position {
    let segment = segment(text, offset);
    let end = floor(text, offset);
    let before = &text[segment.start.min(end)..end];
    let line = segment.first_line + before.matches('\n').count();
    let last_line = before.rsplit('\n').next().unwrap_or("");
    let file = segment.file.map(ToString::to_string);
    Position {
        file,
        line,
        column: last_line.chars().count() + 1,
    }
}

/// Largest number of errors, and of warnings, that are shown in full. A file that is not an
/// interface file has an error in every line.
const MOST_SHOWN: usize = 20;

/// Findings as text for a terminal: the line, a caret, and the advice. After 20 errors
/// or warnings it prints only the number of the others.
pub fn render(diagnostics: &[Diagnostic], path: &str, text: &str, colour: bool) -> String {
    let renderer = if colour {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    let mut rendered = String::new();
    let (mut errors, mut warnings) = (0, 0);
    for diagnostic in diagnostics {
        let count = match diagnostic.severity {
            Severity::Error => &mut errors,
            Severity::Warning => &mut warnings,
        };
        *count += 1;
        if *count <= MOST_SHOWN {
            rendered.push_str(&renderer.render(&[group(diagnostic, path, text)]));
            rendered.push_str("\n\n");
        }
    }
    for (count, what) in [(errors, "errors"), (warnings, "warnings")] {
        if count > MOST_SHOWN {
            let rest = count - MOST_SHOWN;
            rendered.push_str(&format!("{rest} more {what} in {path}\n\n"));
        }
    }
    rendered
}

fn group<'a>(
    diagnostic: &'a Diagnostic,
    path: &'a str,
    text: &'a str,
) -> annotate_snippets::Group<'a> {
    let segment = segment(text, diagnostic.span.start);
    let start = floor(text, diagnostic.span.start).max(segment.start);
    let end = floor(text, diagnostic.span.end).clamp(start, segment.end.max(start));
    // Only a few lines around the position: the cost of rendering must not depend on the size of
    // the file.
    let first = text[segment.start..start]
        .rfind('\n')
        .map_or(segment.start, |at| {
            let at = segment.start + at;
            text[segment.start..at]
                .rfind('\n')
                .map_or(segment.start, |at| segment.start + at + 1)
        });
    let last = text[end..segment.end]
        .find('\n')
        .map_or(segment.end, |at| end + at);
    let line = segment.first_line + text[segment.start..first].matches('\n').count();
    let annotation = AnnotationKind::Primary.span(start - first..end - first);
    let snippet = Snippet::source(&text[first..last])
        .line_start(line)
        .path(segment.file.unwrap_or(path))
        .annotation(annotation);
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let group = level
        .primary_title(diagnostic.message.as_str())
        .element(snippet);
    match &diagnostic.help {
        Some(help) => group.element(Level::HELP.message(help.as_str())),
        None => group,
    }
}

/// The text between two line markers.
struct Segment<'a> {
    file: Option<&'a str>,
    first_line: usize,
    start: usize,
    end: usize,
}

fn segment(text: &str, offset: usize) -> Segment<'_> {
    let mut current = Segment {
        file: None,
        first_line: 1,
        start: 0,
        end: text.len(),
    };
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if let Some((number, file)) = line_marker(line) {
            if at > offset {
                current.end = at;
                return current;
            }
            let start = at + line.len();
            current = Segment {
                file,
                first_line: number,
                start,
                end: text.len(),
            };
        }
        at += line.len();
    }
    current
}

/// The greatest number of a line, as in C (ISO/IEC 9899, 6.10.4). Lines after it can be counted on.
const MOST_LINE: usize = i32::MAX as usize;

/// Parses a line marker: `# 12 "file" 1` or `#line 12 "file"`.
pub(crate) fn line_marker(line: &str) -> Option<(usize, Option<&str>)> {
    let rest = line.strip_prefix('#')?;
    let rest = rest.trim_start_matches([' ', '\t']);
    let rest = rest
        .strip_prefix("line")
        .unwrap_or(rest)
        .trim_start_matches([' ', '\t']);
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let number = rest[..digits].parse::<usize>().ok();
    let number = number.filter(|number| *number <= MOST_LINE)?;
    let file = rest[digits..].trim_start().strip_prefix('"');
    let file = file.and_then(|file| file.split('"').next());
    Some((number, file))
}

/// The last character boundary that is not after the offset.
fn floor(text: &str, offset: usize) -> usize {
    text.floor_char_boundary(offset.min(text.len()))
}

/// Collects findings, up to a bound.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    found: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
}

/// Largest number of errors, and of warnings, to collect. A longer list does not help the reader.
/// Warnings never take the place of an error, without which a wrong file would be accepted.
const MAX_FINDINGS: usize = 100;

impl Findings {
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        let count = match diagnostic.severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        *count += 1;
        if *count <= MAX_FINDINGS {
            self.found.push(diagnostic);
        }
    }

    /// Reports a name that is none of the parameters. A text from a peer can have one in every
    /// place, and a comparison of each with all parameters would take seconds, so a finding that is
    /// not collected has no suggestion.
    pub(crate) fn not_a_parameter<'n>(
        &mut self,
        text: &str,
        span: &Range<usize>,
        names: impl Iterator<Item = &'n str>,
    ) {
        let message = format!("`{text}` is not a parameter");
        let diagnostic = Diagnostic::error(span.clone(), message);
        let diagnostic = match self.is_full() {
            true => diagnostic,
            false => diagnostic.suggest(text, names),
        };
        self.push(diagnostic);
    }

    pub(crate) fn errors(&self) -> usize {
        self.errors
    }

    /// Whether an error lies inside a part of the text.
    pub(crate) fn has_error_in(&self, span: &Range<usize>) -> bool {
        self.found.iter().any(|diagnostic| {
            diagnostic.severity == Severity::Error && span.contains(&diagnostic.span.start)
        })
    }

    /// Whether further errors would not be collected.
    pub(crate) fn is_full(&self) -> bool {
        self.errors >= MAX_FINDINGS
    }

    pub(crate) fn into_sorted(mut self) -> Vec<Diagnostic> {
        self.found.sort_by_key(|diagnostic| diagnostic.span.start);
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_follow_line_markers() {
        let text = "ab\ncd\n# 7 \"x.h\" 1\nef\n# 3 \"y.idl\"\ngé!\n";
        let at = |needle: &str| position(text, text.find(needle).unwrap()).to_string();
        assert_eq!(at("d"), "2:2");
        assert_eq!(at("f\n# 3"), "x.h:7:2");
        assert_eq!(at("!"), "y.idl:3:3");
    }

    #[test]
    fn a_line_marker_has_a_number_of_c() {
        let most = Some((MOST_LINE, Some("f")));
        assert_eq!(line_marker("# 2147483647 \"f\""), most);
        assert_eq!(line_marker("# 2147483648 \"f\""), None);
        let text = "# 18446744073709551615 \"f\"\n\n@";
        assert_eq!(position(text, text.len()).to_string(), "3:2");
    }

    #[test]
    fn a_position_outside_the_text_is_its_end() {
        assert_eq!(position("ab", 9).to_string(), "1:3");
        let finding = [Diagnostic::error(7..90, "end")];
        assert!(render(&finding, "f", "ab", false).contains("f:1:3"));
        assert!(render(&finding, "f", "", false).contains("end"));
    }
}
