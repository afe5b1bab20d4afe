//! The measured matrix as a web page, drawn by [`explain::Page`].

use crate::matrix::Matrix;
use crate::topology::Topology;
use clap::ValueEnum;
use explain::{Page, PageCell, PageColumn, PageRow, Sign, Verdict};

/// The page, with facts about the lab at its top.
#[must_use]
pub(crate) fn page(title: &str, facts: Vec<(String, String)>, matrix: &Matrix) -> String {
    let reasons = matrix.reasons();
    let columns = matrix.receivers.iter().map(|receiver| {
        let label = matrix.label(receiver);
        let (name, port) = label.split_once(':').unwrap_or((label.as_str(), ""));
        PageColumn { name: name.to_owned(), port: format!(":{port}") }
    });
    let rows = matrix.senders.iter().zip(&matrix.cells).map(|(sender, row)| PageRow {
        name: sender.pod.clone(),
        note: sender.node.clone(),
        cells: matrix
            .receivers
            .iter()
            .zip(row)
            .map(|(receiver, cell)| {
                let number =
                    || reasons.iter().position(|reason| *reason == cell.reason()).unwrap_or_default();
                let (sign, word) = match cell.reached {
                    None => (Sign::Itself, "not measured"),
                    Some(true) if cell.agrees() => (Sign::Allowed, "reached"),
                    Some(false) if cell.agrees() => (Sign::Refused(number() + 1), "refused"),
                    Some(reached) => {
                        let word =
                            if reached { "reached, and should not be" } else { "not reached, and should be" };
                        (Sign::Unexpected { reached }, word)
                    }
                };
                let verdict = if cell.expected == Verdict::Allow { "allowed" } else { "refused" };
                let detail = format!(
                    "{} → {}: {word}; {verdict} at {}",
                    sender.pod,
                    matrix.label(receiver),
                    cell.decided_by
                );
                PageCell { sign, was_allowed: None, detail }
            })
            .collect(),
    });
    Page {
        title: title.to_owned(),
        facts,
        about: "Every cell is a real connection.".to_owned(),
        columns: columns.collect(),
        rows: rows.collect(),
        lists: vec![("Not as expected".to_owned(), matrix.disagreements())],
        reasons,
    }
    .to_html()
}

/// Facts about the lab and the current time for the page.
#[must_use]
pub(crate) fn facts(topology: &Topology) -> Vec<(String, String)> {
    let fact = |name: &str, value: String| (name.to_owned(), value);
    vec![
        fact("lab", topology.name.clone()),
        fact("nodes", topology.nodes.len().to_string()),
        fact("packet filter", named(&topology.dataplane)),
        fact("between nodes", named(&topology.encap)),
        fact("datastore", named(&topology.datastore)),
        fact("tortie", env!("CARGO_PKG_VERSION").to_owned()),
        fact("measured", jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string()),
    ]
}

/// The name of a choice, as used by its flag.
fn named(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
