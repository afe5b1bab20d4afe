//! Text tables: a header, columns as wide as their contents, ages in the format of `kubectl`. Pure.

use std::time::Duration;

/// Formats the rows below their header. The last column has no fixed width, so that nothing is cut and no line ends in
/// blanks.
#[must_use]
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |column: usize| {
        std::iter::once(header.get(column).copied().unwrap_or_default())
            .chain(rows.iter().map(move |row| row.get(column).map_or("", String::as_str)))
    };
    let widths: Vec<usize> = (0..header.len())
        .map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    let line = |words: Vec<&str>| {
        let padded: Vec<String> =
            words.iter().zip(&widths).map(|(word, width)| format!("{word:width$}")).collect();
        format!("{}\n", padded.join("   ").trim_end())
    };
    let mut text = line(header.to_vec());
    for row in rows {
        text.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    text
}

/// `42s`, `5m`, `3h`, `2d`.
#[must_use]
pub(crate) fn age(since: Duration) -> String {
    match since.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::{age, table};
    use std::time::Duration;

    #[test]
    fn columns_are_aligned() {
        let rows = [
            vec!["a".to_owned(), "long value".to_owned(), "x".to_owned()],
            vec!["name".to_owned(), "b".to_owned(), String::new()],
        ];
        assert_eq!(
            table(&["N", "V", "LAST"], &rows),
            "N      V            LAST\na      long value   x\nname   b\n"
        );
    }

    #[test]
    fn ages() {
        for (seconds, expected) in
            [(0, "0s"), (119, "119s"), (120, "2m"), (7_199, "119m"), (7_200, "2h"), (200_000, "2d")]
        {
            assert_eq!(age(Duration::from_secs(seconds)), expected);
        }
    }
}
