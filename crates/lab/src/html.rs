//! The matrix as a page: a grid of reached and refused, with the deciding rule on hover. One file, nothing fetched.

use crate::matrix::Matrix;
use explain::Verdict;
use std::fmt::Write as _;

const STYLE: &str = "
:root { color-scheme: light dark; --ok: #1f8a4c; --no: #b3382c; --odd: #a020a0; --line: #8885; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: .2rem; }
p.sum { color: #888; margin-top: 0; }
.wide { overflow-x: auto; padding-bottom: 9rem; }
table { border-collapse: collapse; }
th { font-weight: 500; text-align: left; white-space: nowrap; padding: .25rem .6rem; }
th small { color: #888; font-weight: 400; display: block; }
thead th { vertical-align: bottom; border-bottom: 1px solid var(--line); }
td { border: 1px solid var(--line); width: 3.2rem; min-width: 3.2rem; height: 2.1rem; text-align: center; position: relative;
  cursor: default; color: #fff; font-weight: 600; }
td.reached { background: var(--ok); } td.refused { background: var(--no); }
td.odd { background: var(--odd); } td.itself { color: #888; }
td span { display: none; position: absolute; z-index: 2; left: 50%; top: 110%; transform: translateX(-50%); width: 20rem;
  background: #222; color: #fff; font-weight: 400; font-size: .85rem; text-align: left; padding: .5rem .7rem; border-radius: .4rem; }
td:hover span, td:focus span { display: block; }
tbody tr:hover th { text-decoration: underline; }
li.odd { color: var(--odd); }
";

/// The page.
#[must_use]
pub fn page(title: &str, matrix: &Matrix) -> String {
    let (reached, refused, wrong) = matrix.counts();
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{0}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>{0}</h1>\n<p class=\"sum\">{reached} reached, {refused} refused, {wrong} not as expected. Every cell is a real \
         connection; hover for the rule that decides.</p>\n<div class=\"wide\"><table>\n<thead><tr><th>from \\ to</th>",
        escape(title)
    );
    for receiver in &matrix.receivers {
        let label = matrix.label(receiver);
        let (pod, port) = label.split_once(':').unwrap_or((label.as_str(), ""));
        let (space, name) = pod.split_once('/').unwrap_or(("", pod));
        let _ = write!(
            out,
            "<th><small>{}</small>{}<small>:{}</small></th>",
            escape(space),
            escape(name),
            escape(port)
        );
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (sender, row) in matrix.senders.iter().zip(&matrix.cells) {
        let _ = write!(out, "<tr><th>{}<small>{}</small></th>", escape(&sender.pod), escape(&sender.node));
        for (receiver, cell) in matrix.receivers.iter().zip(row) {
            let (class, sign, word) = match cell.reached {
                None => ("itself", "·", "not asked"),
                Some(true) if cell.agrees() => ("reached", "✓", "reached"),
                Some(false) if cell.agrees() => ("refused", "✕", "refused"),
                Some(true) => ("odd", "✓!", "reached, and should not be"),
                Some(false) => ("odd", "✕!", "not reached, and should be"),
            };
            let verdict = if cell.expected == Verdict::Allow { "allowed" } else { "refused" };
            let _ = write!(
                out,
                "<td class=\"{class}\" tabindex=\"0\">{sign}<span>{} → {}: {word}.<br>{verdict} by {}</span></td>",
                escape(&sender.pod),
                escape(&matrix.label(receiver)),
                escape(&cell.decided_by)
            );
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n");
    let reasons = matrix.reasons();
    if !reasons.is_empty() {
        out.push_str("<h2>What refused</h2>\n<ol>\n");
        for reason in reasons {
            let _ = writeln!(out, "<li>{}</li>", escape(&reason));
        }
        out.push_str("</ol>\n");
    }
    if wrong > 0 {
        out.push_str("<h2>Not as expected</h2>\n<ul>\n");
        for line in matrix.disagreements() {
            let _ = writeln!(out, "<li class=\"odd\">{}</li>", escape(&line));
        }
        out.push_str("</ul>\n");
    }
    out.push_str("</body>\n</html>\n");
    out
}

/// Text that means only itself.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_cannot_become_markup() {
        assert_eq!(super::escape("<b a=\"1\">&'"), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
    }
}
