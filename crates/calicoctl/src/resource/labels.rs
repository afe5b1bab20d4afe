//! `-l`: selects objects by their labels, in Kubernetes' syntax (`app=web,tier!=db,env in (a,b)`) or in Calico's
//! selector language (`app == 'web' && !has(quarantine)`).
//!
//! Values are bare in one and quoted in the other, so a text that both can parse means the same in both.

use crate::context::LOG_LEVELS;
use crate::failure::{Failure, Result};
use api::Resource;
use selector::{Selector, is_valid_label};

/// A selector over the labels of objects.
#[derive(Clone, Debug)]
pub(crate) struct Labels(Selector);

impl Labels {
    /// Parses a selector; `None` selects everything.
    ///
    /// # Errors
    /// When it is valid in neither language.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self> {
        let text = text.unwrap_or_default().trim();
        // Calico's tool takes a log level with `-l`; to select nothing instead would be a trap.
        if LOG_LEVELS.contains(&text) || matches!(text, "trace" | "warning") {
            return Err(Failure::new(format!(
                "-l selects by label here: use --log-level={text} for the log, or -l 'has({text})' for the label"
            )));
        }
        match Selector::parse(text) {
            Ok(selector) => Ok(Self(selector)),
            // Quotes, braces and logical operators exist only in Calico's language.
            Err(error) if text.contains(['"', '\'', '{', '&', '|']) || text.contains("has(") => {
                Err(Failure::new(format!("invalid selector '{text}': {error}")))
            }
            Err(_) => {
                let translated = translate(text).map_err(|reason| {
                    Failure::new(format!(
                        "invalid selector '{text}': {reason}; write it as app=web,tier!=db or as app == 'web' && tier != 'db'"
                    ))
                })?;
                let selector = Selector::parse(&translated)
                    .map_err(|error| Failure::new(format!("invalid selector '{text}': {error}")))?;
                Ok(Self(selector))
            }
        }
    }

    /// Whether the selector matches the object's labels.
    #[must_use]
    pub(crate) fn select(&self, resource: &Resource) -> bool {
        self.0.evaluate(&resource.metadata().labels)
    }
}

/// Translates Kubernetes' requirements into a selector in Calico's language.
fn translate(text: &str) -> std::result::Result<String, String> {
    let requirements =
        split(text).into_iter().map(requirement).collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(requirements.join(" && "))
}

/// Splits the requirements at commas outside parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut found, mut begin, mut depth) = (Vec::new(), 0, 0_usize);
    for (place, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(&text[begin..place]);
                begin = place + 1;
            }
            _ => {}
        }
    }
    found.push(&text[begin..]);
    found
}

fn requirement(text: &str) -> std::result::Result<String, String> {
    let text = text.trim();
    for (operator, ours) in [("!=", "!="), ("==", "=="), ("=", "==")] {
        if let Some((label, wanted)) = text.split_once(operator) {
            return Ok(format!("{} {ours} '{}'", key(label)?, value(wanted)?));
        }
    }
    let mut words = text.splitn(2, |character: char| character.is_whitespace() || character == '(');
    let (first, rest) = (words.next().unwrap_or_default(), text);
    let after = rest[first.len()..].trim_start();
    for (word, ours) in [("notin", "not in"), ("in", "in")] {
        let list = after.strip_prefix(word).map(str::trim);
        let Some(list) = list.filter(|list| list.starts_with('(')) else { continue };
        let inside = list.strip_prefix('(').and_then(|list| list.strip_suffix(')'));
        let inside = inside.ok_or_else(|| format!("'{list}' lacks a parenthesis"))?;
        let values = inside.split(',').map(|wanted| Ok(format!("'{}'", value(wanted)?)));
        let values = values.collect::<std::result::Result<Vec<_>, String>>()?;
        return Ok(format!("{} {ours} {{{}}}", key(first)?, values.join(", ")));
    }
    match text.strip_prefix('!') {
        Some(label) => Ok(format!("!has({})", key(label)?)),
        None => Ok(format!("has({})", key(text)?)),
    }
}

fn key(text: &str) -> std::result::Result<&str, String> {
    let text = text.trim();
    if is_valid_label(text) { Ok(text) } else { Err(format!("'{text}' is not a label")) }
}

fn value(text: &str) -> std::result::Result<&str, String> {
    let text = text.trim();
    let is_fine = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    if text.chars().all(is_fine) { Ok(text) } else { Err(format!("'{text}' is not a value of a label")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Kind;

    #[test]
    fn both_languages_select() {
        let json = br#"{"metadata":{"name":"x","labels":{"app":"web","env":"prod","example.com/team":"a","empty":""}}}"#;
        let resource = Resource::from_json(Kind::IPPool, json).expect("an object");
        for (text, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web", true),
            ("app = web , env=prod", true),
            ("app=web,env!=prod", false),
            ("nosuch!=x", true),
            ("nosuch=x", false),
            ("app in (web,db)", true),
            ("app in (api, db)", false),
            ("app notin (api,db)", true),
            ("nosuch notin (a)", true),
            ("app", true),
            ("!app", false),
            ("!nosuch", true),
            ("empty=", true),
            ("example.com/team=a", true),
            ("app in (web),env", true),
            ("app == 'web' && has(env)", true),
            ("app == \"web\" && !has(env)", false),
            ("app in {'web'}", true),
            ("all()", true),
        ] {
            let labels = Labels::parse(Some(text)).unwrap_or_else(|failure| panic!("{text}: {failure}"));
            assert_eq!(labels.select(&resource), expected, "{text}");
        }
        assert!(Labels::parse(None).expect("everything").select(&resource));
    }

    #[test]
    fn mistakes_are_reported() {
        for (text, message) in [
            ("app=web=x", "'web=x' is not a value"),
            ("a b", "'a b' is not a label"),
            ("app in web", "is not a label"),
            ("app in (web", "lacks a parenthesis"),
            ("app == 'web", "invalid selector"),
            (",", "'' is not a label"),
            ("x>5", "is not a label"),
            ("debug", "--log-level=debug"),
        ] {
            let failure = Labels::parse(Some(text)).expect_err(text);
            assert!(failure.message().contains(message), "{text}: {failure}");
        }
    }
}
