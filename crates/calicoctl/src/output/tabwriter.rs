//! Columns aligned with spaces, by the rules of Go's elastic tabs: a cell ends at a tab, and a column is as wide as its
//! widest cell on adjacent lines.
//!
//! Text after the last tab of a line belongs to no column.

/// The minimum width of a column.
pub(super) const MINIMUM: usize = 5;

/// The number of spaces after the widest cell.
pub(super) const PADDING: usize = 3;

/// The text with its tabs replaced by spaces.
#[must_use]
pub(crate) fn align(text: &str) -> String {
    let lines: Vec<Vec<&str>> = text.split('\n').map(|line| line.split('\t').collect()).collect();
    let mut widths: Vec<Vec<usize>> =
        lines.iter().map(|cells| vec![0; cells.len().saturating_sub(1)]).collect();
    let deepest = widths.iter().map(Vec::len).max().unwrap_or(0);
    for column in 0..deepest {
        let mut first = 0;
        while first < lines.len() {
            if widths[first].len() <= column {
                first += 1;
                continue;
            }
            let end = (first..lines.len()).find(|line| widths[*line].len() <= column).unwrap_or(lines.len());
            let widest = lines[first..end].iter().map(|cells| cells[column].chars().count() + PADDING).max();
            let width = widest.unwrap_or(0).max(MINIMUM);
            for line in &mut widths[first..end] {
                line[column] = width;
            }
            first = end;
        }
    }
    let mut out = String::with_capacity(text.len() * 2);
    for (index, (cells, widths)) in lines.iter().zip(&widths).enumerate() {
        if index > 0 {
            out.push('\n');
        }
        for (column, cell) in cells.iter().enumerate() {
            out.push_str(cell);
            if let Some(width) = widths.get(column) {
                let missing = width.saturating_sub(cell.chars().count());
                out.extend(std::iter::repeat_n(' ', missing));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::align;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let text = "NAME\tX\t\na\tlonger\t\nüü\t\t\n";
        assert_eq!(align(text), "NAME   X        \na      longer   \nüü              \n");
    }

    #[test]
    fn a_line_without_the_column_ends_it() {
        assert_eq!(align("aaaaaaaa\tx\nno tabs\nb\ty\n"), "aaaaaaaa   x\nno tabs\nb    y\n");
    }
}
