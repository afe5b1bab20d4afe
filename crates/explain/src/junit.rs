//! A test report as the XML that continuous integration reads.

use crate::test_file::TestReport;
use std::fmt::Write as _;

/// The report as JUnit XML. It contains no times: the same cluster gives the same bytes.
#[must_use]
pub fn to_junit(report: &TestReport, suite: &str) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let (count, failures) = (report.cases.len(), report.failures());
    let suite = escaped(suite);
    // Writing to a string cannot fail.
    let _ = writeln!(out, "<testsuites tests=\"{count}\" failures=\"{failures}\">");
    let _ = writeln!(
        out,
        "  <testsuite name=\"{suite}\" tests=\"{count}\" failures=\"{failures}\" errors=\"0\">"
    );
    for case in &report.cases {
        let name = escaped(&case.name);
        if case.passed {
            let _ = writeln!(out, "    <testcase classname=\"{suite}\" name=\"{name}\"/>");
            continue;
        }
        let found = case.found.map_or("no answer", crate::Verdict::as_str);
        let message = format!("expected {}, found {found}", case.expected.as_str());
        let _ = writeln!(out, "    <testcase classname=\"{suite}\" name=\"{name}\">");
        let _ = writeln!(out, "      <failure message=\"{message}\">{}</failure>", escaped(&case.reason));
        let _ = writeln!(out, "    </testcase>");
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

/// Escapes text for XML; characters that XML cannot represent become a question mark.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(character),
            control if control.is_control() || matches!(control, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            other => out.push(other),
        }
    }
    out
}
