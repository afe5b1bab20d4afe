//! Checks that messages quoted on a page are messages that a program prints.
//!
//! Checked are tables whose first heading is about messages or log lines: the code in their first cells, and, in the
//! text below, code before a colon at the start of a paragraph. A word in capitals stands for any text.

use crate::words::{is_production, production};
use std::path::Path;

/// The pages that quote messages.
const PAGES: [&str; 1] = ["docs/troubleshooting.md"];

/// Headings of columns that quote messages.
const HEADINGS: [&str; 2] = ["message", "log line"];

/// Quotes that no program prints.
pub(crate) fn check(root: &Path, files: &[String]) -> Vec<String> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
    let code: String =
        files.iter().filter(|name| is_production(name)).map(|name| literals(&read(name))).collect();
    let mut problems = Vec::new();
    for page in PAGES {
        let text = read(page);
        for (line, quote) in quotes(&text).into_iter().filter(|(_, quote)| !is_said(quote, &code)) {
            problems.push(format!("{page}:{line}: no program prints `{quote}`"));
        }
    }
    problems
}

/// Whether each part of a quote, between its words in capitals, appears in the code.
fn is_said(quote: &str, code: &str) -> bool {
    let stands_for_anything = |word: &str| word.len() > 1 && word.chars().all(|one| one.is_ascii_uppercase());
    let words: Vec<&str> = quote.split(' ').collect();
    let mut parts = words.split(|word| stands_for_anything(word.trim_end_matches(':')));
    parts.all(|part| code.contains(&part.join(" ")))
}

/// Production code, with strings that continue on the next line joined.
fn literals(text: &str) -> String {
    let mut found = String::new();
    for (_, line) in production(text) {
        match line.trim().strip_suffix('\\') {
            Some(begun) => found.push_str(begun),
            None => {
                found.push_str(line.trim());
                found.push('\n');
            }
        }
    }
    found
}

/// The quotes of a page, with their lines.
fn quotes(page: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_table_of_messages = false;
    for (index, line) in page.lines().enumerate() {
        let cell = line.strip_prefix("| ").and_then(|row| row.split(" |").next());
        match cell {
            None => {
                is_table_of_messages = false;
                let quote = line.strip_prefix('`').and_then(|rest| rest.split_once("`: "));
                found.extend(quote.map(|(quote, _)| (index + 1, quote)));
            }
            Some(cell) if HEADINGS.iter().any(|heading| cell.starts_with(heading)) => {
                is_table_of_messages = true;
            }
            Some(cell) if is_table_of_messages => {
                let quote = cell.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
                found.extend(quote.map(|quote| (index + 1, quote)));
            }
            Some(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{is_said, literals, quotes};

    #[test]
    fn tables_of_messages_and_paragraphs_quote() {
        let page = "| question | command |\n| --- | --- |\n| `what`? | `this` |\n\n| message of it | meaning |\n| --- | --- |\n\
                    | `it failed` | `this` |\n| exit code 3 | that |\n\n`no store in PATH`: it says.\nSee `this`: nothing.\n";
        assert_eq!(quotes(page), [(7, "it failed"), (10, "no store in PATH")]);
    }

    #[test]
    fn quotes_are_found_across_lines_and_around_words_in_capitals() {
        let code = literals(
            "fn a() {\n    let a = \"no store in {}: \\\n             look\";\n}\n#[cfg(test)]\nmod tests {\n    // it failed\n}\n",
        );
        assert!(is_said("no store in PATH", &code) && is_said("look", &code), "{code}");
        assert!(is_said("in {}: look", &code), "{code}");
        assert!(!is_said("it failed", &code) && !is_said("no stores in PATH", &code));
    }
}
