//! Diagnostics as text for a terminal, and as JSON for tools.
//!
//! Invariants: any diagnostic renders, whatever its spans: what lies outside its file is cut, what no source stands behind is
//! shown without source. The output depends on nothing but the arguments.

use std::ops::Range;

use annotate_snippets::{Annotation, AnnotationKind, Element, Level, Renderer, Snippet};
use indexmap::IndexMap;
use serde_json::{Value, json};

use super::{Diagnostic, Severity};
use crate::span::{FileId, SourceMap, Span};

/// As `error[E0102]: …`, the place, its source line, labels, notes, help, and the calls that led there. No line ends in
/// spaces; the last one ends without a newline.
pub fn render(d: &Diagnostic, sources: &SourceMap, color: bool) -> String {
    let level = match d.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut files: IndexMap<FileId, Vec<Annotation<'_>>> = IndexMap::new();
    let labels = d
        .labels
        .iter()
        .map(|(span, label)| (span, label, AnnotationKind::Context));
    for (span, label, kind) in
        std::iter::once((&d.primary.0, &d.primary.1, AnnotationKind::Primary)).chain(labels)
    {
        if let Some(range) = clamp(*span, sources) {
            let annotation = kind.span(range);
            let annotation = if label.is_empty() {
                annotation
            } else {
                annotation.label(label)
            };
            files.entry(span.file).or_default().push(annotation);
        }
    }
    let mut elements: Vec<Element<'_>> = Vec::new();
    for (file, annotations) in files {
        elements.extend(snippet(file, annotations, sources));
    }
    // A label without source still says something.
    let unplaced = d
        .labels
        .iter()
        .chain([&d.primary])
        .filter(|(span, label)| !label.is_empty() && clamp(*span, sources).is_none());
    elements.extend(unplaced.map(|(_, label)| Level::NOTE.message(label).into()));
    elements.extend(d.notes.iter().map(|note| Level::NOTE.message(note).into()));
    elements.extend(d.help.iter().map(|help| Level::HELP.message(help).into()));
    let mut groups = vec![
        level
            .primary_title(&d.title)
            .id(d.code.as_str())
            .elements(elements),
    ];
    for (span, name) in &d.calls {
        let title = Level::NOTE.secondary_title(format!("in `{name}`, called here"));
        let place = clamp(*span, sources).and_then(|range| {
            snippet(
                span.file,
                vec![AnnotationKind::Primary.span(range)],
                sources,
            )
        });
        groups.push(title.elements(place));
    }
    let renderer = if color {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    let text = renderer.render(&groups);
    // The carriage return that ends a line of a file from elsewhere is nothing to show.
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.trim_end().trim_end_matches('␍').trim_end())
        .collect();
    lines.join("\n")
}

/// For tools: `code`, `severity`, `message`, `file`, `line`, `column`, `end_line`, `end_column` (from 1, columns in bytes; null where
/// no source stands behind it), `label`, `labels`, `notes`, `help`, `calls`.
pub fn to_json(d: &Diagnostic, sources: &SourceMap) -> Value {
    let severity = match d.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let mut out = json!({ "code": d.code.as_str(), "severity": severity, "message": d.title });
    let place = |span: Span, mut rest: Value| {
        let at = clamp(span, sources)
            .zip(sources.get(span.file))
            .map(|(range, file)| {
                (
                    &file.name,
                    file.line_column(range.start as u32),
                    file.line_column(range.end as u32),
                )
            });
        rest["file"] = json!(at.map(|(name, ..)| name));
        rest["line"] = json!(at.map(|(_, start, _)| start.0));
        rest["column"] = json!(at.map(|(_, start, _)| start.1));
        rest["end_line"] = json!(at.map(|(.., end)| end.0));
        rest["end_column"] = json!(at.map(|(.., end)| end.1));
        rest
    };
    out = place(d.primary.0, out);
    out["label"] = json!(d.primary.1);
    out["labels"] = d
        .labels
        .iter()
        .map(|(span, label)| place(*span, json!({ "message": label })))
        .collect();
    out["notes"] = json!(d.notes);
    out["help"] = json!(d.help);
    out["calls"] = d
        .calls
        .iter()
        .map(|(span, name)| place(*span, json!({ "function": name })))
        .collect();
    out
}

fn snippet<'a>(
    file: FileId,
    annotations: Vec<Annotation<'a>>,
    sources: &'a SourceMap,
) -> Option<Element<'a>> {
    let file = sources.get(file)?;
    Some(
        Snippet::source(&file.text)
            .path(&file.name)
            .annotations(annotations)
            .into(),
    )
}

/// The part of a span that lies in its file, moved to whole characters.
fn clamp(span: Span, sources: &SourceMap) -> Option<Range<usize>> {
    let text = &sources.get(span.file)?.text;
    let start = text.floor_char_boundary((span.start as usize).min(text.len()));
    let end = text.ceil_char_boundary((span.end as usize).clamp(start, text.len()));
    Some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::codes;

    fn sources() -> (SourceMap, FileId, FileId) {
        let mut sources = SourceMap::default();
        let a = sources.add("a.tess", "fn f(x) = x;\nfn g(y) = f(y + ü);\n");
        let b = sources.add("std/b.tess", "");
        (sources, a, b)
    }

    #[test]
    fn shows_everything() {
        let (sources, a, _) = sources();
        let mut d = Diagnostic::error(codes::E0002, Span::new(a, 10..11), "`x` is odd").at("here");
        d = d
            .label(Span::new(a, 3..4), "in this function")
            .note("a fact")
            .help("a remedy");
        d.calls.push((Span::new(a, 23..32), "f".into()));
        let text = render(&d, &sources, false);
        let expected = "\
error[E0002]: `x` is odd
 --> a.tess:1:11
  |
1 | fn f(x) = x;
  |    -      ^ here
  |    |
  |    in this function
  |
  = note: a fact
  = help: a remedy
note: in `f`, called here
 --> a.tess:2:11
  |
2 | fn g(y) = f(y + ü);
  |           ^^^^^^^^";
        assert_eq!(text, expected, "\n{text}");
        assert!(render(&d, &sources, true).contains("\u{1b}["));
    }

    #[test]
    fn any_span_renders() {
        let (sources, a, b) = sources();
        let files = [a, b, FileId(7), Span::NONE.file];
        for file in files {
            for range in [
                0..0,
                0..1,
                13..13,
                12..13,
                29..30,
                5..33,
                33..33,
                40..90,
                0..4_000_000,
            ] {
                let span = Span::new(file, range);
                let mut d = Diagnostic::warning(codes::E0001, span, "odd")
                    .at("label")
                    .label(span, "other")
                    .note("n");
                d.calls.push((span, "f".into()));
                let text = render(&d, &sources, false);
                assert!(
                    text.starts_with("warning[E0001]: odd\n") && text.contains("label"),
                    "{text}"
                );
                assert_eq!(
                    to_json(&d, &sources)["line"].is_null(),
                    file != a && file != b
                );
            }
        }
        let json = to_json(
            &Diagnostic::error(codes::E0001, Span::new(a, 13..15), "odd"),
            &sources,
        );
        assert_eq!(
            (
                &json["file"],
                &json["line"],
                &json["column"],
                &json["end_column"]
            ),
            (&json!("a.tess"), &json!(2), &json!(1), &json!(3))
        );
    }
}
