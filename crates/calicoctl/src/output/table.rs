//! Tables: one per answer, each followed by an empty line.

use super::{Answer, tabwriter};
use crate::failure::{Failure, Result};
use crate::kinds::{KindEntry, Settings, cell, entry_of};

/// Which columns a table has.
#[derive(Clone, Copy, Debug)]
pub enum Choice<'a> {
    /// Those of the short table.
    Narrow,
    /// Those of the wide table.
    Wide,
    /// These.
    Custom(&'a [String]),
}

/// The tables of the answers.
///
/// # Errors
/// When a column is not one of the kind's.
pub fn render(
    answers: &[Answer],
    choice: &Choice<'_>,
    with_namespace: bool,
    settings: &Settings,
) -> Result<String> {
    let mut out = String::new();
    for answer in answers {
        let kind = answer.kind();
        let entry = entry_of(kind).ok_or_else(|| Failure::new(format!("there is no table for {kind}")))?;
        let columns = headings(entry, choice, with_namespace)?;
        let mut text = row(columns.iter().copied());
        for resource in answer.resources() {
            let cells: Vec<String> =
                columns.iter().map(|column| cell(resource, column, settings).unwrap_or_default()).collect();
            text.push_str(&row(cells.iter().map(String::as_str)));
        }
        out.push_str(&tabwriter::align(&text));
        out.push('\n');
    }
    Ok(out)
}

fn headings<'a>(entry: &KindEntry, choice: &Choice<'a>, with_namespace: bool) -> Result<Vec<&'a str>> {
    let mut columns: Vec<&'a str> = Vec::new();
    if with_namespace && entry.kind.is_namespaced() {
        columns.push("NAMESPACE");
    }
    match choice {
        Choice::Narrow => columns.extend(entry.narrow.iter().copied()),
        Choice::Wide => columns.extend(entry.wide.iter().copied()),
        Choice::Custom(names) => {
            let known = entry.columns();
            for name in *names {
                if !known.contains(&name.as_str()) {
                    let valid = known.join(", ");
                    return Err(Failure::new(format!("unknown heading {name}, valid values are: {valid}")));
                }
                columns.push(name);
            }
        }
    }
    Ok(columns)
}

fn row<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let mut line = String::new();
    for cell in cells {
        line.push_str(cell);
        line.push('\t');
    }
    line.push('\n');
    line
}
