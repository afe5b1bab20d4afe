//! Commands in a form that users can paste from messages. They begin with the words by which this program was called,
//! and name the lab if a different one would be used otherwise.

use daemon::{Environment as _, SystemEnvironment};

/// The variable that selects the lab.
pub(crate) const LAB_VARIABLE: &str = "TORTIE_LAB";
/// The lab that is used by default.
pub(crate) const USUAL_LAB: &str = "lab";

/// A command on the lab as this user would type it, such as `dist/tortie lab --lab second matrix`.
#[must_use]
pub(crate) fn command(lab: &str, words: &str) -> String {
    let called = std::env::args_os().next().map(|word| word.to_string_lossy().into_owned());
    let chosen = SystemEnvironment.text(LAB_VARIABLE);
    spell(called.as_deref().unwrap_or_default(), chosen.as_deref(), lab, words)
}

fn spell(called: &str, chosen: Option<&str>, lab: &str, words: &str) -> String {
    // Processes started by the lab itself do not know the user's words.
    let program = if called.is_empty() || called.starts_with("/proc/") { "tortie" } else { called };
    let choice = if lab == USUAL_LAB && chosen.is_none_or(|name| name == USUAL_LAB) {
        String::new()
    } else {
        format!(" --lab {lab}")
    };
    format!("{} lab{choice} {words}", quote(program))
}

/// A word, quoted for a shell if necessary.
#[must_use]
pub(crate) fn quote(word: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "_./-+@:,%=".contains(it);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A count and its noun, in the singular or with an `s`.
#[must_use]
pub(crate) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::{count, quote, spell};

    #[test]
    fn a_pasted_command_uses_the_same_lab() {
        for (called, chosen, lab, expected) in [
            ("tortie", None, "lab", "tortie lab down"),
            ("dist/tortie", None, "second", "dist/tortie lab --lab second down"),
            ("tortie", Some("second"), "second", "tortie lab --lab second down"),
            ("tortie", Some("second"), "lab", "tortie lab --lab lab down"),
            ("/proc/self/exe", None, "lab", "tortie lab down"),
            ("", None, "lab", "tortie lab down"),
            ("./my tools/tortie", None, "lab", "'./my tools/tortie' lab down"),
        ] {
            assert_eq!(spell(called, chosen, lab, "down"), expected);
        }
    }

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quote("/run/lab-1"), "/run/lab-1");
        assert_eq!(quote("a'b c"), r"'a'\''b c'");
        assert_eq!(quote(""), "''");
    }

    #[test]
    fn singular_and_plural() {
        assert_eq!(
            (count(1, "pod"), count(0, "pod"), count(3, "pod")),
            ("1 pod".into(), "0 pods".into(), "3 pods".into())
        );
    }
}
