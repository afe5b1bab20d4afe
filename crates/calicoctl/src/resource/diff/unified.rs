//! Computes a unified diff of two texts, in the form of `diff -u`.

use similar::DiffTag;
use similar::algorithms::{Capture, Compact, Replace, myers};
use std::ops::Range;

/// Lines that are shown around a change.
const CONTEXT_LINES: usize = 3;

/// A unified diff; empty if the texts are equal.
pub(super) fn unified(before: &str, after: &str, name: &str, state: &str, colours: bool) -> String {
    let text = uncoloured(before, after, name, state);
    if !colours {
        return text;
    }
    let mut out = String::with_capacity(text.len() * 2);
    for line in text.lines() {
        let colour = match line.as_bytes() {
            [b'-', b'-', b'-', ..] | [b'+', b'+', b'+', ..] => "\u{1b}[1m",
            [b'-', ..] => "\u{1b}[31m",
            [b'+', ..] => "\u{1b}[32m",
            [b'@', ..] => "\u{1b}[36m",
            _ => "",
        };
        out.push_str(colour);
        out.push_str(line);
        if !colour.is_empty() {
            out.push_str("\u{1b}[0m");
        }
        out.push('\n');
    }
    out
}

fn uncoloured(before: &str, after: &str, name: &str, state: &str) -> String {
    let old: Vec<&str> = before.lines().collect();
    let new: Vec<&str> = after.lines().collect();
    // Only this algorithm is needed: the library's own function from texts to a diff links all of them, for every text
    // type.
    let mut changes = Compact::new(Replace::new(Capture::new()), &old[..], &new[..]);
    if let Err(never) = myers::diff(&mut changes, &old[..], 0..old.len(), &new[..], 0..new.len()) {
        match never {}
    }
    let groups = changes.into_inner().into_inner().into_grouped_ops(CONTEXT_LINES);
    let mut out = String::new();
    for group in groups {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        if out.is_empty() {
            out.push_str(&format!("--- {name} (stored)\n+++ {name} ({state})\n"));
        }
        let old_place = place(first.old_range().start..last.old_range().end);
        let new_place = place(first.new_range().start..last.new_range().end);
        out.push_str(&format!("@@ -{old_place} +{new_place} @@\n"));
        for change in group {
            let (tag, removed, added) = change.as_tag_tuple();
            if tag == DiffTag::Equal {
                push_lines(&mut out, ' ', &old[removed]);
                continue;
            }
            push_lines(&mut out, '-', &old[removed]);
            push_lines(&mut out, '+', &new[added]);
        }
    }
    out
}

fn push_lines(out: &mut String, sign: char, lines: &[&str]) {
    for line in lines {
        out.extend([sign]);
        out.push_str(line);
        out.push('\n');
    }
}

/// A range of lines as in the header of a hunk: the first line, counted from 1, and the number of lines unless it is
/// one. An empty range names the line before it.
fn place(lines: Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => (lines.start + 1).to_string(),
        many => format!("{},{many}", lines.start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::unified;

    #[test]
    fn a_diff_shows_what_changes() {
        let before = "a: 1\nb: 2\nc: 3\n";
        let after = "a: 1\nb: 4\nc: 3\n";
        let expected = "--- X (stored)\n+++ X (new)\n@@ -1,3 +1,3 @@\n a: 1\n-b: 2\n+b: 4\n c: 3\n";
        assert_eq!(unified(before, after, "X", "new", false), expected);
        assert_eq!(unified(before, before, "X", "new", false), "");
        let added = "--- X (stored)\n+++ X (new)\n@@ -0,0 +1,3 @@\n+a: 1\n+b: 2\n+c: 3\n";
        assert_eq!(unified("", before, "X", "new", false), added);
        let numbers = |skipped: &[u32]| -> String {
            (1..=20).filter(|number| !skipped.contains(number)).map(|number| format!("{number}\n")).collect()
        };
        let parts = "--- X (stored)\n+++ X (new)\n@@ -1,4 +1,3 @@\n-1\n 2\n 3\n 4\n@@ -9,7 +8,6 @@\n 9\n 10\n 11\n-12\n 13\n 14\n 15\n";
        assert_eq!(unified(&numbers(&[]), &numbers(&[1, 12]), "X", "new", false), parts);
        let coloured = unified(before, after, "X", "new", true);
        assert!(coloured.contains("\u{1b}[31m-b: 2\u{1b}[0m\n\u{1b}[32m+b: 4\u{1b}[0m\n"), "{coloured}");
    }
}
