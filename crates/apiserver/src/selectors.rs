//! Label and field selectors in Kubernetes' words: `app=web,env in (a, b),!old`, `metadata.name=x,spec.tier!=y`.

use std::collections::BTreeSet;

/// How a label is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The label has one of these values; `=` and `==` give one value.
    In(BTreeSet<String>),
    /// Like `In`, but written with `=`.
    Equals(String),
    /// The label is absent or has another value; written with `!=`.
    NotEquals(String),
    /// The label is absent or has none of these values.
    NotIn(BTreeSet<String>),
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// The label is a larger number.
    GreaterThan(i64),
    /// The label is a smaller number.
    LessThan(i64),
}

/// One condition on a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// The condition.
    pub operator: Operator,
}

/// Conditions on labels that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    /// Parses a selector.
    ///
    /// # Errors
    /// What is wrong with the selector.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("unable to parse requirement: {why} in {text:?}");
        let mut requirements = Vec::new();
        for part in split(text).ok_or_else(|| wrong("parentheses do not match"))? {
            let part = part.trim();
            if part.is_empty() {
                if text.trim().is_empty() {
                    break;
                }
                return Err(wrong("an empty requirement"));
            }
            requirements.push(requirement(part).map_err(|why| wrong(&why))?);
        }
        Ok(Self(requirements))
    }

    /// Whether the selector matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The conditions.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.0
    }

    /// Adds a condition.
    pub fn add(&mut self, requirement: Requirement) {
        self.0.push(requirement);
    }

    /// Whether these labels match the selector.
    #[must_use]
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| {
            let value = label(&requirement.key);
            match &requirement.operator {
                Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                Operator::Equals(wanted) => value == Some(wanted),
                Operator::NotEquals(unwanted) => value != Some(unwanted),
                Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
                Operator::GreaterThan(bound) => number(value).is_some_and(|value| value > *bound),
                Operator::LessThan(bound) => number(value).is_some_and(|value| value < *bound),
            }
        })
    }
}

fn number(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

/// The requirements, split at commas outside parentheses.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut found, mut begin, mut inside) = (Vec::new(), 0, false);
    for (place, character) in text.char_indices() {
        match (character, inside) {
            ('(', false) => inside = true,
            (')', true) => inside = false,
            ('(', true) | (')', false) => return None,
            (',', false) => {
                found.push(&text[begin..place]);
                begin = place + 1;
            }
            _ => {}
        }
    }
    found.push(&text[begin..]);
    (!inside).then_some(found)
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let made = |key: &str, operator| Ok(Requirement { key: valid_key(key)?, operator });
    if let Some(key) = text.strip_prefix('!') {
        return made(key, Operator::DoesNotExist);
    }
    if let Some((head, rest)) = text.split_once('(') {
        let inner = rest.trim_end().strip_suffix(')').ok_or("text after the values")?;
        let mut words = head.split_whitespace();
        let (Some(key), Some(word), None) = (words.next(), words.next(), words.next()) else {
            return Err("expected KEY in (VALUES)".into());
        };
        let values =
            inner.split(',').map(|value| valid_value(value.trim())).collect::<Result<BTreeSet<_>, _>>()?;
        return match word {
            "in" => made(key, Operator::In(values)),
            "notin" => made(key, Operator::NotIn(values)),
            other => Err(format!("{other:?} is neither in nor notin")),
        };
    }
    if let Some((key, value)) = text.split_once("!=") {
        return made(key, Operator::NotEquals(valid_value(value.trim())?));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return made(key, Operator::Equals(valid_value(value.trim())?));
    }
    for (sign, operator) in [
        ('>', Operator::GreaterThan as fn(i64) -> Operator),
        ('<', Operator::LessThan as fn(i64) -> Operator),
    ] {
        if let Some((key, value)) = text.split_once(sign) {
            let bound = value.trim().parse().map_err(|_| format!("{value:?} is not a whole number"))?;
            return made(key, operator(bound));
        }
    }
    made(text, Operator::Exists)
}

fn valid_key(key: &str) -> Result<String, String> {
    let key = key.trim();
    let (prefix, name) = key.rsplit_once('/').unwrap_or(("", key));
    let good = |text: &str, most: usize| {
        !text.is_empty()
            && text.len() <= most
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    if good(name, 63) && (prefix.is_empty() && !key.starts_with('/') || good(prefix, 253)) {
        return Ok(key.to_owned());
    }
    Err(format!("{key:?} is not the name of a label"))
}

fn valid_value(value: &str) -> Result<String, String> {
    let good = value.is_empty()
        || (value.len() <= 63
            && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            && value.starts_with(|c: char| c.is_ascii_alphanumeric())
            && value.ends_with(|c: char| c.is_ascii_alphanumeric()));
    if good { Ok(value.to_owned()) } else { Err(format!("{value:?} is not the value of a label")) }
}

/// One condition on a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The field.
    pub field: String,
    /// The value.
    pub value: String,
    /// Whether the field must have that value, rather than any other.
    pub equal: bool,
}

/// Conditions on fields that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldRequirement>);

impl FieldSelector {
    /// Parses a selector. A backslash escapes `,`, `=` and itself.
    ///
    /// # Errors
    /// What is wrong with the selector.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for part in unescaped_split(text).iter().filter(|part| !part.is_empty()) {
            let (field, value, equal) = if let Some((field, value)) = part.split_once("!=") {
                (field, value, false)
            } else if let Some((field, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (field, value, true)
            } else {
                return Err(format!("invalid selector: {text:?}; can't understand {part:?}"));
            };
            let value = value.replace("\\,", ",").replace("\\=", "=").replace("\\\\", "\\");
            requirements.push(FieldRequirement { field: field.trim().to_owned(), value, equal });
        }
        Ok(Self(requirements))
    }

    /// Whether the selector matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The conditions.
    #[must_use]
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.0
    }

    /// The one value that a field must have, if there is one.
    #[must_use]
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|r| r.equal && r.field == field).map(|r| r.value.as_str())
    }

    /// Whether an object with these fields matches the selector.
    #[must_use]
    pub fn matches<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|r| (value(&r.field).unwrap_or_default() == r.value) == r.equal)
    }
}

fn unescaped_split(text: &str) -> Vec<&str> {
    let (mut found, mut begin, mut escaped) = (Vec::new(), 0, false);
    for (place, character) in text.char_indices() {
        if character == ',' && !escaped {
            found.push(&text[begin..place]);
            begin = place + 1;
        }
        escaped = character == '\\' && !escaped;
    }
    found.push(&text[begin..]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_selected() {
        let labels =
            std::collections::BTreeMap::from([("app", "web"), ("n", "5"), ("projectcalico.org/tier", "red")]);
        for (text, expected) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("app=web", true),
            ("app == web", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (db, web)", true),
            ("app notin (db,web)", false),
            ("other notin (a)", true),
            ("projectcalico.org/tier=red,app", true),
            ("app,other", false),
            ("n>4,n<6", true),
            ("n>5", false),
            ("app>4", false),
            ("other=", false),
        ] {
            let selector = LabelSelector::parse(text).expect(text);
            assert_eq!(selector.matches(|name| labels.get(name).copied()), expected, "{text}");
        }
        for text in ["a,,b", "a in (b", "a in b)", "a like (b)", "a=b c", "-a", "a=?", "a>x", "in (a)", "/a"]
        {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn fields_are_selected() {
        let value = |field: &str| match field {
            "metadata.name" => Some("a,b"),
            "spec.tier" => Some("red"),
            _ => None,
        };
        for (text, expected) in [
            ("", true),
            ("metadata.name=a\\,b", true),
            ("metadata.name!=x,spec.tier==red", true),
            ("spec.tier!=red", false),
            ("spec.tier=", false),
        ] {
            assert_eq!(FieldSelector::parse(text).expect(text).matches(value), expected, "{text}");
        }
        assert!(FieldSelector::parse("metadata.name").is_err());
    }
}
