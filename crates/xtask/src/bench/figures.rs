//! Extracts figures from the tables that benchmarks write: the row's name, the value in our column, and its unit.

/// The unit of a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unit(String);

impl Unit {
    /// Whether a larger number is better: true for rates per second.
    pub(crate) fn more_is_better(&self) -> bool {
        self.0.ends_with("/s")
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

/// A value with its unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) value: f64,
    pub(crate) unit: Unit,
}

/// The rows of all tables in a text. Cells without a number are skipped.
pub(crate) fn figures(markdown: &str) -> Vec<(String, Figure)> {
    let mut found = Vec::new();
    let mut column: Option<(usize, Option<usize>)> = None;
    for line in markdown.lines() {
        if !line.starts_with('|') {
            column = None;
            continue;
        }
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let Some((ours, unit)) = column else {
            let place = |names: &[&str]| cells.iter().position(|cell| names.contains(cell));
            column = place(&["ours", "embedded store"]).map(|ours| (ours, place(&["unit"])));
            continue;
        };
        let unit = unit.and_then(|unit| cells.get(unit)).copied();
        if let (Some(name), Some(figure)) =
            (cells.first(), cells.get(ours).and_then(|cell| figure(cell, unit)))
        {
            found.push(((*name).to_owned(), figure));
        }
    }
    found
}

/// The first number of a cell, with the word after it as the unit unless the table has a unit column.
fn figure(cell: &str, unit: Option<&str>) -> Option<Figure> {
    let end = cell.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(cell.len());
    let value = cell[..end].parse().ok()?;
    let unit = unit.unwrap_or_else(|| {
        let rest = cell[end..].trim_start();
        rest.split([' ', '(', ';', ',']).next().unwrap_or_default()
    });
    let per_second = cell[end..].contains("/s") && !unit.ends_with("/s");
    Some(Figure { value, unit: Unit(if per_second { format!("{unit}/s") } else { unit.to_owned() }) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: f64, unit: &str) -> Figure {
        Figure { value, unit: Unit(unit.to_owned()) }
    }

    #[test]
    fn numbers_come_with_their_units() {
        let table = "| figure | ours | compared with | ratio | goal |\n| --- | --- | --- | --- | --- |\n\
                     | list | 109.3 ms | fetch: 55 ms | 1.98 | at most 2 |\n| puts | 3747/s | one: 525/s | 7.1 | |\n\
                     | hosts | 9488 addresses/s | x | 4 | |\n| kept | 12 MB (peak 15 MB) | | | |\n| none | - | | | |\n";
        assert_eq!(
            figures(table),
            [
                ("list".to_owned(), of(109.3, "ms")),
                ("puts".to_owned(), of(3747.0, "/s")),
                ("hosts".to_owned(), of(9488.0, "addresses/s")),
                ("kept".to_owned(), of(12.0, "MB")),
            ]
        );
        let other = "| figure | unit | etcd | embedded store |\n|---|---|---|---|\n| puts | puts/s | 991.0 | 1354.5 |\n";
        assert_eq!(figures(other), [("puts".to_owned(), of(1354.5, "puts/s"))]);
        assert!(of(1.0, "puts/s").unit.more_is_better() && !of(1.0, "ms").unit.more_is_better());
    }
}
