//! Who reaches whom as a page: one file that fetches nothing, readable without scripts, on a phone, in dark and in
//! light.
//!
//! [`Page`] does not depend on the origin of the verdicts, so the lab shows measured connections with it and `explain
//! matrix` shows computed ones.

use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The contents of a page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The heading.
    pub title: String,
    /// What was tested, when and with what: name and value.
    pub facts: Vec<(String, String)>,
    /// The meaning of the cells: `Every cell is a real connection`.
    pub about: String,
    /// The receivers.
    pub columns: Vec<PageColumn>,
    /// The senders.
    pub rows: Vec<PageRow>,
    /// The reasons for refused connections, in the order of the numbers in the cells.
    pub reasons: Vec<String>,
    /// Further lists, each with a heading: changes, policies, unexpected results.
    pub lists: Vec<(String, Vec<String>)>,
}

/// A receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageColumn {
    /// `NAMESPACE/NAME`, or a name.
    pub name: String,
    /// The port, with protocol or IP version if columns would be ambiguous without them.
    pub port: String,
}

/// A sender.
#[derive(Clone, Debug, Default)]
pub struct PageRow {
    /// `NAMESPACE/NAME`, an address, a node.
    pub name: String,
    /// The text below it: its node.
    pub note: String,
    /// One cell per column.
    pub cells: Vec<PageCell>,
}

/// The content of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Connections succeed.
    Allowed,
    /// Connections are refused, for the reason with this number, counted from 1.
    Refused(usize),
    /// Connections succeed but should not, or the reverse.
    Unexpected {
        /// Whether connections succeed.
        reached: bool,
    },
    /// Not tested: a pod and itself.
    Itself,
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageCell {
    /// The content.
    pub sign: Sign,
    /// The previous verdict, if it would change.
    pub was_allowed: Option<bool>,
    /// The full sentence: sender, receiver, and what decides.
    pub detail: String,
}

impl Page {
    /// Renders the page.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{0}</title>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>\n{STYLE}</style>\n</head>\n\
             <body>\n<h1>{0}</h1>\n<p class=\"facts\">",
            escaped(&self.title)
        );
        let counts = self.counts();
        for (name, value) in counts.iter().chain(&self.facts) {
            let _ = write!(out, "<span>{} <b>{}</b></span> ", escaped(name), escaped(value));
        }
        out.push_str("</p>\n<div class=\"grid\"><table>\n<thead><tr><th>from \\ to</th>");
        for column in &self.columns {
            let (space, name) = column.name.split_once('/').unwrap_or(("", &column.name));
            let _ = write!(
                out,
                "<th scope=\"col\"><small>{}</small>{}<small>{}</small></th>",
                escaped(space),
                escaped(name),
                escaped(&column.port)
            );
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            let _ = write!(
                out,
                "<tr><th scope=\"row\">{}<small>{}</small></th>",
                escaped(&row.name),
                escaped(&row.note)
            );
            row.cells.iter().for_each(|cell| cell.write(&mut out));
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n</table></div>\n");
        self.write_key(&mut out);
        if !self.reasons.is_empty() {
            out.push_str("<h2>Why connections are refused</h2>\n<ol>\n");
            for (index, reason) in self.reasons.iter().enumerate() {
                let _ = writeln!(out, "<li id=\"reason-{}\">{}</li>", index + 1, escaped(reason));
            }
            out.push_str("</ol>\n");
        }
        for (heading, lines) in self.lists.iter().filter(|(_, lines)| !lines.is_empty()) {
            let _ = writeln!(out, "<h2>{}</h2>\n<ul>", escaped(heading));
            for line in lines {
                let _ = writeln!(out, "<li>{}</li>", escaped(line));
            }
            out.push_str("</ul>\n");
        }
        let _ = write!(
            out,
            "<div id=\"detail\" aria-live=\"polite\">{} Point at a cell, or tap it, to see what decides.</div>\n\
             <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
            escaped(&self.about)
        );
        out
    }

    fn counts(&self) -> Vec<(String, String)> {
        let cells = || self.rows.iter().flat_map(|row| &row.cells);
        let count = |wanted: fn(&PageCell) -> bool| cells().filter(|cell| wanted(cell)).count();
        let mut counts = vec![
            ("allowed".to_owned(), count(|cell| cell.sign == Sign::Allowed).to_string()),
            ("refused".to_owned(), count(|cell| matches!(cell.sign, Sign::Refused(_))).to_string()),
        ];
        for (name, number) in [
            ("not as expected", count(|cell| matches!(cell.sign, Sign::Unexpected { .. }))),
            ("changed", count(|cell| cell.was_allowed.is_some())),
        ] {
            if number > 0 {
                counts.push((name.to_owned(), number.to_string()));
            }
        }
        counts
    }

    fn write_key(&self, out: &mut String) {
        let has = |wanted: fn(&PageCell) -> bool| self.rows.iter().flat_map(|row| &row.cells).any(wanted);
        out.push_str("<p class=\"key\"><span style=\"background:var(--allowed)\">✓</span>allowed ");
        out.push_str(
            "&emsp;<span style=\"background:var(--refused)\">1</span>refused, for the reason of that number ",
        );
        if has(|cell| matches!(cell.sign, Sign::Unexpected { .. })) {
            out.push_str("&emsp;<span style=\"background:var(--odd)\">!</span>not as expected ");
        }
        if has(|cell| cell.was_allowed.is_some()) {
            out.push_str("&emsp;<span class=\"opened\">&nbsp;</span>changed by the manifests on top");
        }
        out.push_str("</p>\n");
    }
}

impl PageCell {
    fn write(&self, out: &mut String) {
        let (class, sign) = match self.sign {
            Sign::Allowed => ("allowed", "✓".to_owned()),
            Sign::Refused(number) => ("refused", number.to_string()),
            Sign::Unexpected { reached: true } => ("odd", "✓!".to_owned()),
            Sign::Unexpected { reached: false } => ("odd", "✕!".to_owned()),
            Sign::Itself => ("itself", "·".to_owned()),
        };
        let changed = match self.was_allowed {
            Some(true) => " closed",
            Some(false) => " opened",
            None => "",
        };
        let detail = escaped(&self.detail);
        let _ = write!(
            out,
            "<td class=\"{class}{changed}\" tabindex=\"0\" aria-label=\"{detail}\" title=\"{detail}\">{sign}</td>"
        );
    }
}

/// Escapes text for HTML.
#[must_use]
pub fn escaped(text: &str) -> String {
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
    use super::{Page, PageCell, PageColumn, PageRow, Sign, escaped};

    #[test]
    fn names_are_escaped() {
        assert_eq!(escaped("<b a=\"1\">&'"), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
    }

    #[test]
    fn cells_show_the_number_of_their_reason_and_nothing_is_fetched() {
        let cell = |sign, was_allowed| PageCell { sign, was_allowed, detail: "a → b: <denied>".to_owned() };
        let page = Page {
            title: "Who reaches whom".to_owned(),
            facts: vec![("dataplane".to_owned(), "nftables".to_owned())],
            columns: vec![PageColumn { name: "shop/web".to_owned(), port: ":80".to_owned() }; 2],
            rows: vec![PageRow {
                name: "shop/db".to_owned(),
                note: "node1".to_owned(),
                cells: vec![cell(Sign::Refused(1), None), cell(Sign::Allowed, Some(false))],
            }],
            reasons: vec!["no rule matches".to_owned()],
            ..Page::default()
        };
        let html = page.to_html();
        assert!(html.contains(">1</td>") && html.contains("id=\"reason-1\">no rule matches"), "{html}");
        assert!(html.contains("class=\"allowed opened\"") && html.contains("changed <b>1</b>"), "{html}");
        assert!(html.contains("dataplane <b>nftables</b>") && !html.contains("<denied>"), "{html}");
        assert!(!html.contains("http") && !html.contains(" src=") && !html.contains(" href="), "{html}");
    }
}
