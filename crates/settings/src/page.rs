//! The reference page of a table.

use crate::Row;
use std::fmt::Write as _;

/// The table as Markdown, sorted by name. The column of resource fields appears only if a row has one.
#[must_use]
pub fn page(rows: &[Row]) -> String {
    let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
    let has_fields = rows.iter().any(|row| !row.beats.is_empty());
    let mut page = String::from(if has_fields {
        "| Variable | Default | Beats the field | Meaning |\n| --- | --- | --- | --- |\n"
    } else {
        "| Variable | Default | Meaning |\n| --- | --- | --- |\n"
    });
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by_key(|row| row.name);
    for Row { name, default, beats, doc } in rows {
        let beats = if has_fields { format!(" {} |", code(beats)) } else { String::new() };
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{name}` | {} |{beats} {doc} |", code(default));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_empty_columns_left_out() {
        let row = |name, beats| Row { name, default: "", beats, doc: "It is." };
        assert_eq!(
            page(&[row("B", ""), row("A", "")]),
            "| Variable | Default | Meaning |\n| --- | --- | --- |\n| `A` |  | It is. |\n| `B` |  | It is. |\n"
        );
        assert!(page(&[row("A", "spec.a")]).contains("| `A` |  | `spec.a` | It is. |\n"));
    }
}
