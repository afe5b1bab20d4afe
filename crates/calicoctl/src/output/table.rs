//! Tables: one per answer, each followed by an empty line.

use super::{Answer, tabwriter};
use crate::failure::{Failure, Result};
use crate::kinds::{KindEntry, Settings, cell, entry_of};
use api::Resource;

/// The columns of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice<'a> {
    /// The short table's.
    Narrow,
    /// The wide table's.
    Wide,
    /// The named columns.
    Custom(&'a [String]),
}

/// The tables of the answers.
///
/// # Errors
/// When the kind does not have one of the columns.
pub(crate) fn render(
    answers: &[Answer],
    choice: &Choice<'_>,
    with_namespace: bool,
    settings: &Settings,
) -> Result<String> {
    let mut out = String::new();
    for answer in answers {
        let kind = answer.kind();
        let entry = entry_of(kind).ok_or_else(|| Failure::new(format!("no table for {kind}")))?;
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

/// A table whose rows are printed one at a time: columns keep their width, and grow when a cell needs it.
#[derive(Debug)]
pub(crate) struct Growing<'a> {
    columns: Vec<&'a str>,
    widths: Vec<usize>,
}

impl<'a> Growing<'a> {
    /// A table without rows.
    ///
    /// # Errors
    /// When the kind does not have one of the columns.
    pub(crate) fn new(entry: &KindEntry, choice: &Choice<'a>, with_namespace: bool) -> Result<Self> {
        let columns = headings(entry, choice, with_namespace)?;
        Ok(Self { widths: vec![tabwriter::MINIMUM; columns.len()], columns })
    }

    /// The titles and the first rows, aligned together.
    pub(crate) fn begin(&mut self, resources: &[Resource], settings: &Settings) -> String {
        let titles: Vec<String> = self.columns.iter().map(|column| (*column).to_owned()).collect();
        let mut lines = vec![titles];
        lines.extend(resources.iter().map(|resource| self.cells(resource, settings)));
        lines.iter().for_each(|cells| self.grow(cells));
        lines.iter().map(|cells| self.line(cells)).collect()
    }

    /// One more row.
    pub(crate) fn row(&mut self, resource: &Resource, settings: &Settings) -> String {
        let cells = self.cells(resource, settings);
        self.grow(&cells);
        self.line(&cells)
    }

    fn cells(&self, resource: &Resource, settings: &Settings) -> Vec<String> {
        self.columns.iter().map(|column| cell(resource, column, settings).unwrap_or_default()).collect()
    }

    fn grow(&mut self, cells: &[String]) {
        for (width, cell) in self.widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count() + tabwriter::PADDING);
        }
    }

    fn line(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&self.widths) {
            line.push_str(&format!("{cell:<width$}"));
        }
        line.push('\n');
        line
    }
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
