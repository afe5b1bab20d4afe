//! Boxed tables, as Calico's IPAM commands print them. Titles are aligned left, numeric columns right.

/// The alignment of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// A table, printed when complete.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub(super) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row at the end.
    pub(super) fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// The table as text with a final line break. A table without rows has its bottom directly below its titles.
    pub(super) fn render(&self) -> String {
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(place, (title, _))| {
                let cells =
                    self.rows.iter().filter_map(|row| row.get(place)).map(|cell| cell.chars().count());
                cells.fold(title.chars().count(), usize::max)
            })
            .collect();
        let border: String =
            widths.iter().map(|width| format!("+-{}-", "-".repeat(*width))).collect::<String>() + "+\n";
        let titles: Vec<String> = self.columns.iter().map(|(title, _)| (*title).to_owned()).collect();
        let mut text = border.clone();
        text += &line(&titles, &widths, |_| Align::Left);
        text += &border;
        for row in &self.rows {
            text +=
                &line(row, &widths, |place| self.columns.get(place).map_or(Align::Left, |(_, align)| *align));
        }
        text + &border
    }
}

fn line(cells: &[String], widths: &[usize], align: impl Fn(usize) -> Align) -> String {
    let mut text = String::new();
    for (place, width) in widths.iter().enumerate() {
        let cell = cells.get(place).map_or("", String::as_str);
        text += &match align(place) {
            Align::Left => format!("| {cell:<width$} "),
            Align::Right => format!("| {cell:>width$} "),
        };
    }
    text + "|\n"
}

/// A number with five significant digits, like `%.5g` in C and Go.
pub(super) fn figure(number: u128) -> String {
    let digits = number.to_string();
    if digits.len() <= 5 {
        return digits;
    }
    // Rust rounds an exact value to the nearest digit, like C; only the exponent is spelled differently.
    #[expect(clippy::cast_precision_loss, reason = "five digits are shown; a double has fifteen")]
    let scientific = format!("{:.4e}", number as f64);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
    format!("{mantissa}e+{exponent:0>2}")
}

/// A number and its share of the whole.
pub(super) fn share(number: u128, whole: u128) -> String {
    #[expect(clippy::cast_precision_loss, reason = "whole per cents are shown")]
    let percent = if whole == 0 { 0.0 } else { 100.0 * (number as f64) / (whole as f64) };
    format!("{} ({percent:.0}%)", figure(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_five_digits() {
        for (number, text) in [
            (0, "0"),
            (8, "8"),
            (65536, "65536"),
            (99999, "99999"),
            (100_000, "1e+05"),
            (131_072, "1.3107e+05"),
            (999_999, "1e+06"),
            (16_777_216, "1.6777e+07"),
            (1 << 64, "1.8447e+19"),
            (1 << 100, "1.2677e+30"),
        ] {
            assert_eq!(figure(number), text);
        }
        assert_eq!((share(1, 8), share(7, 8)), ("1 (12%)".to_owned(), "7 (88%)".to_owned()));
        assert_eq!(share(0, 0), "0 (0%)");
    }

    #[test]
    fn tables_are_boxed() {
        let mut table = Table::new(&[("NAME", Align::Left), ("N", Align::Right)]);
        assert_eq!(table.render(), "+------+---+\n| NAME | N |\n+------+---+\n+------+---+\n");
        table.push(vec!["a".to_owned(), "100".to_owned()]);
        table.push(vec!["längere".to_owned(), "7".to_owned()]);
        assert_eq!(
            table.render(),
            "+---------+-----+\n| NAME    | N   |\n+---------+-----+\n| a       | 100 |\n| längere |   7 |\n+---------+-----+\n"
        );
    }
}
