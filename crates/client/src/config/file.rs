//! The configuration file: YAML (or JSON, which is YAML), read strictly; every mistake is reported with its place.
//!
//! Names are matched case-insensitively, because Calico's decoder does so and files in use rely on it.

use super::parameters::PARAMETERS;
use super::{CONFIG_KIND, Mistake, Settings};
use api::kind::API_VERSION;
use api::schema::Schema as _;
use saphyr::{LoadableYamlNode as _, MarkedYaml, Marker, Scalar, YamlData};
use settings::Holds;

/// Reads the settings of one file.
pub(super) fn read(origin: &str, text: &str) -> Result<Settings, Vec<Mistake>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { origin, text, mistakes: Vec::new() };
    let mut settings = Settings::default();
    match MarkedYaml::load_from_str(text) {
        Ok(documents) => match documents.as_slice() {
            [document] => reader.top_level(document, &mut settings),
            [] => reader.mistake_at(
                1,
                0,
                usize::MAX,
                format!("the file is empty; expected one object of kind {CONFIG_KIND}"),
            ),
            [_, second, ..] => reader.mistake(&second.span.start, "the file contains more than one document"),
        },
        Err(error) => reader.mistake(error.marker(), error.info()),
    }
    if reader.mistakes.is_empty() { Ok(settings) } else { Err(reader.mistakes) }
}

struct Reader<'a> {
    origin: &'a str,
    text: &'a str,
    mistakes: Vec<Mistake>,
}

impl Reader<'_> {
    fn top_level(&mut self, document: &MarkedYaml<'_>, settings: &mut Settings) {
        const FIELDS: &[&str] = &["apiVersion", "kind", "metadata", "spec"];
        let (mut version, mut kind) = (None, None);
        self.fields(document, "", FIELDS, |reader, field, value| match FIELDS[field] {
            "apiVersion" => version = Some(reader.raw(value)),
            "kind" => kind = Some(reader.raw(value)),
            "metadata" => reader.metadata(value),
            _ => reader.spec(value, settings),
        });
        // Do not list every mistake in a file of another kind.
        if kind.as_deref() != Some(CONFIG_KIND) {
            let found = kind.unwrap_or_default();
            self.mistakes.clear();
            self.mistake(&document.span.start, format!("expected kind '{CONFIG_KIND}', got '{found}'"));
        } else if version.as_deref() != Some(API_VERSION) {
            let found = version.unwrap_or_default();
            self.mistake(
                &document.span.start,
                format!("unknown apiVersion '{found}': expected '{API_VERSION}'"),
            );
        }
    }

    fn metadata(&mut self, value: &MarkedYaml<'_>) {
        let schema = api::ObjectMeta::schema();
        let names: Vec<&str> = match schema.get("properties").and_then(serde_json::Value::as_object) {
            Some(properties) => properties.keys().map(String::as_str).collect(),
            None => Vec::new(),
        };
        // Metadata is not used, but a misspelt field is still reported.
        self.fields(value, "metadata", &names, |_, _, _| ());
    }

    fn spec(&mut self, value: &MarkedYaml<'_>, settings: &mut Settings) {
        let names: Vec<&str> = PARAMETERS.iter().map(|parameter| parameter.field).collect();
        self.fields(value, "spec", &names, |reader, index, value| {
            let parameter = &PARAMETERS[index];
            if let Err(message) = reader.set(index, value, settings) {
                reader.mistake(&value.span.start, format!("spec.{}: {message}", parameter.field));
            }
        });
    }

    fn set(&self, index: usize, value: &MarkedYaml<'_>, settings: &mut Settings) -> Result<(), String> {
        let parameter = &PARAMETERS[index];
        let YamlData::Value(scalar) = &value.data else {
            return Err("must be a single value, not a list or a map".to_owned());
        };
        let fits = match (parameter.holds, scalar) {
            (_, Scalar::Null) => return Ok(()),
            // A number or a boolean is fine where text is expected: a password may be all digits.
            (Holds::Text | Holds::Secret, _) => true,
            (Holds::Bool, scalar) => matches!(scalar, Scalar::Boolean(_)),
            (Holds::Number, scalar) => matches!(scalar, Scalar::Integer(_) | Scalar::FloatingPoint(_)),
        };
        if !fits {
            let wanted = if parameter.holds == Holds::Bool { "true or false" } else { "a number" };
            return Err(format!("must be {wanted}"));
        }
        match self.raw(value) {
            text if text.is_empty() => Ok(()),
            text => (parameter.set)(settings, &text),
        }
    }

    /// Calls `each` with the index of every known field; reports unknown and repeated fields.
    fn fields(
        &mut self,
        node: &MarkedYaml<'_>,
        path: &str,
        known: &[&str],
        mut each: impl FnMut(&mut Self, usize, &MarkedYaml<'_>),
    ) {
        let mapping = match &node.data {
            YamlData::Mapping(mapping) => mapping,
            YamlData::Value(Scalar::Null) => return,
            _ => {
                let what = if path.is_empty() { "the file" } else { path };
                self.mistake(&node.span.start, format!("{what} must be a map"));
                return;
            }
        };
        let mut seen = vec![false; known.len()];
        for (key, value) in mapping {
            let name = self.raw(key);
            let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            match known.iter().position(|candidate| candidate.eq_ignore_ascii_case(&name)) {
                Some(index) if seen[index] => self.mistake_in_name(key, format!("{full} is given twice")),
                Some(index) => {
                    seen[index] = true;
                    each(self, index, value);
                }
                None => {
                    let hint = nearest(&name, known)
                        .map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
                    self.mistake_in_name(key, format!("unknown field {full}{hint}"));
                }
            }
        }
    }

    /// A scalar as written: the text of a string, the source of anything else (so `007` stays `007`).
    fn raw(&self, node: &MarkedYaml<'_>) -> String {
        match &node.data {
            YamlData::Value(Scalar::String(text)) => text.clone().into_owned(),
            YamlData::Value(Scalar::Null) => String::new(),
            _ => {
                let (start, end) = (node.span.start.index(), node.span.end.index());
                self.text
                    .chars()
                    .skip(start)
                    .take(end.saturating_sub(start))
                    .collect::<String>()
                    .trim()
                    .to_owned()
            }
        }
    }

    fn mistake(&mut self, marker: &Marker, message: impl Into<String>) {
        self.mistake_at(marker.line(), marker.col(), usize::MAX, message.into());
    }

    /// Reports a mistake in a field's name. Its value is not shown: it may have been meant as a secret.
    fn mistake_in_name(&mut self, key: &MarkedYaml<'_>, message: String) {
        let width = key.span.end.index().saturating_sub(key.span.start.index());
        self.mistake_at(key.span.start.line(), key.span.start.col(), key.span.start.col() + width, message);
    }

    /// Reports a mistake at this place; the line is shown up to `shown` characters.
    fn mistake_at(&mut self, line: usize, column: usize, shown: usize, message: String) {
        let place = format!("{}:{line}:{}", self.origin, column + 1);
        let excerpt = match self.text.lines().nth(line.saturating_sub(1)) {
            Some(source) => {
                let margin = " ".repeat(line.to_string().len());
                format!(
                    "  {line} | {}\n  {margin} | {}^",
                    without_secrets(source, shown),
                    blank(source, column)
                )
            }
            None => String::new(),
        };
        self.mistakes.push(Mistake { place, message, excerpt });
    }
}

/// The nearest of the known names, if one is near enough.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = name.to_ascii_lowercase();
    known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_ascii_lowercase()), *candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The line, truncated after `shown` characters or after the name of a field that holds a secret, whichever comes
/// first. A long line without any name may be part of a key, and is not shown at all.
fn without_secrets(line: &str, shown: usize) -> String {
    if !line.contains(':') && line.trim().len() > 40 {
        return "***".to_owned();
    }
    let lower = line.to_ascii_lowercase();
    let after_secret_name = PARAMETERS
        .iter()
        .filter(|parameter| parameter.holds == Holds::Secret)
        .filter_map(|parameter| {
            let name = parameter.field.to_ascii_lowercase();
            let end = lower.find(&name)? + name.len();
            // `etcdKeyFile` starts with `etcdKey` and is not a secret.
            (!lower[end..].starts_with("file")).then(|| line[..end].chars().count())
        })
        .min()
        .unwrap_or(usize::MAX);
    let cut = shown.min(after_secret_name);
    if line.chars().count() <= cut {
        line.to_owned()
    } else {
        line.chars().take(cut).collect::<String>() + ": ***"
    }
}

/// Blank space as wide as the line up to this column, keeping tabs.
fn blank(line: &str, column: usize) -> String {
    line.chars().take(column).map(|character| if character == '\t' { '\t' } else { ' ' }).collect()
}
