//! What `get` prints: the formats, and the objects they print.
//!
//! - [`table`]: `ps`, `wide` and `custom-columns`.
//! - [`json`]: JSON as Go indents and escapes it; YAML is printed by [`api::yaml`].
//! - [`template`]: Go templates over the objects.
//! - [`jsonpath`]: kubectl's paths over the objects.
//!
//! Rendering is pure: objects in, text out. What must be read from the datastore first is in [`Settings`].

pub(crate) mod json;
pub(crate) mod jsonpath;
pub(crate) mod table;
pub(crate) mod tabwriter;
pub(crate) mod template;

use crate::failure::{Failure, Result};
use crate::kinds::Settings;
use api::kind::API_VERSION;
use api::{Kind, Resource};
use serde::Serialize;
use serde::ser::{SerializeStruct as _, Serializer};
use std::path::{Path, PathBuf};

/// One result of `get`: an object, or all objects of a kind.
#[derive(Clone, Debug)]
pub enum Answer {
    /// An object that was requested by name.
    One(Box<Resource>),
    /// The objects of a kind.
    List {
        /// The kind.
        kind: Kind,
        /// The objects.
        items: Vec<Resource>,
        /// The revision that the list was read at.
        revision: String,
    },
}

impl Answer {
    /// The kind of the objects.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::One(resource) => resource.kind(),
            Self::List { kind, .. } => *kind,
        }
    }

    /// The objects.
    #[must_use]
    pub fn resources(&self) -> &[Resource] {
        match self {
            Self::One(resource) => std::slice::from_ref(resource),
            Self::List { items, .. } => items,
        }
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ListMeta<'a> {
            #[serde(rename = "resourceVersion", skip_serializing_if = "str::is_empty")]
            resource_version: &'a str,
        }
        match self {
            Self::One(resource) => resource.serialize(serializer),
            Self::List { kind, items, revision } => {
                let mut out = serializer.serialize_struct("List", 4)?;
                out.serialize_field("kind", &format!("{kind}List"))?;
                out.serialize_field("apiVersion", API_VERSION)?;
                out.serialize_field("metadata", &ListMeta { resource_version: revision })?;
                out.serialize_field("items", items)?;
                out.end()
            }
        }
    }
}

/// How objects are printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// A YAML document.
    Yaml,
    /// A JSON document.
    Json,
    /// `kind/name` lines.
    Name,
    /// The short table.
    Ps,
    /// The wide table.
    Wide,
    /// A table of these columns.
    Columns(Vec<String>),
    /// A Go template.
    Template(String),
    /// A Go template in a file.
    TemplateFile(PathBuf),
    /// A template of kubectl's JSONPath.
    JsonPath(String),
    /// A template of kubectl's JSONPath in a file.
    JsonPathFile(PathBuf),
}

/// The names of the formats, for completion.
pub(crate) const FORMATS: &[&str] = &[
    "ps",
    "wide",
    "yaml",
    "json",
    "name",
    "custom-columns=",
    "go-template=",
    "go-template-file=",
    "jsonpath=",
    "jsonpath-file=",
];

impl Format {
    /// The format that a user's `-o` names.
    ///
    /// # Errors
    /// When there is no such format, or it lacks its template or columns.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "yaml" | "yml" => return Ok(Self::Yaml),
            "json" => return Ok(Self::Json),
            "name" => return Ok(Self::Name),
            "ps" => return Ok(Self::Ps),
            "wide" => return Ok(Self::Wide),
            _ => {}
        }
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        match (name, value) {
            ("go-template", "") => Err(Failure::new("need to specify a template")),
            ("go-template", template) => Ok(Self::Template(template.to_owned())),
            ("go-template-file", "") => Err(Failure::new("need to specify a template file")),
            ("go-template-file", path) => Ok(Self::TemplateFile(path.into())),
            ("jsonpath", "") => Err(Failure::new("need to specify a jsonpath template")),
            ("jsonpath", template) => Ok(Self::JsonPath(template.to_owned())),
            ("jsonpath-file", "") => Err(Failure::new("need to specify a jsonpath template file")),
            ("jsonpath-file", path) => Ok(Self::JsonPathFile(path.into())),
            ("custom-columns", "") => Err(Failure::new("need to specify at least one column")),
            ("custom-columns", columns) => Ok(Self::Columns(columns.split(',').map(str::to_owned).collect())),
            _ => Err(Failure::new(format!("unrecognized output format '{text}'"))),
        }
    }

    /// Whether rendering these answers shows the cluster's AS number.
    #[must_use]
    pub fn shows_as_number(&self, answers: &[Answer]) -> bool {
        match self {
            Self::Wide => answers.iter().any(|answer| answer.kind() == Kind::Node),
            Self::Columns(columns) => {
                columns.iter().any(|column| column == "ASN")
                    && answers.iter().any(|answer| answer.kind() == Kind::Node)
            }
            Self::Template(text) => text.contains("config"),
            Self::TemplateFile(_) => true,
            _ => false,
        }
    }

    /// The text of the answers in this format.
    ///
    /// # Errors
    /// When a column is unknown or a template is wrong.
    pub fn render(&self, answers: &[Answer], with_namespace: bool, settings: &Settings) -> Result<String> {
        match self {
            Self::Yaml => Ok(api::yaml::to_string(&match answers {
                [] => serde_json::Value::Null,
                [only] => serde_json::to_value(only)?,
                several => serde_json::to_value(several)?,
            })),
            Self::Json => Ok(match answers {
                [] => "null".to_owned(),
                [only] => json::to_string(only)?,
                several => json::to_string(several)?,
            }),
            Self::Name => Ok(answers.iter().flat_map(Answer::resources).map(name_line).collect()),
            Self::Ps => table::render(answers, &table::Choice::Narrow, with_namespace, settings),
            Self::Wide => table::render(answers, &table::Choice::Wide, with_namespace, settings),
            Self::Columns(columns) => {
                table::render(answers, &table::Choice::Custom(columns), false, settings)
            }
            Self::Template(text) => template::render(text, answers, settings),
            Self::TemplateFile(path) => template::render(&file(path)?, answers, settings),
            Self::JsonPath(text) => jsonpath::render(text, &whole(answers)?),
            Self::JsonPathFile(path) => {
                jsonpath::render(file(path)?.trim_end_matches('\n'), &whole(answers)?)
            }
        }
    }
}

fn file(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| crate::files::cannot_open(path, &error))
}

/// All answers as one object, combined like kubectl: a single one as it is, several as a list.
fn whole(answers: &[Answer]) -> Result<serde_json::Value> {
    if let [only] = answers {
        return Ok(serde_json::to_value(only)?);
    }
    let items = answers.iter().flat_map(Answer::resources).map(serde_json::to_value);
    let items = items.collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}))
}

/// An object as `kind/name`.
#[must_use]
pub(crate) fn name_line(resource: &Resource) -> String {
    format!("{}/{}\n", resource.kind().as_str().to_lowercase(), resource.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_parsed_like_calico() {
        assert_eq!(
            Format::parse("custom-columns=NAME,ASN").unwrap(),
            Format::Columns(vec!["NAME".into(), "ASN".into()])
        );
        assert_eq!(Format::parse("go-template={{.}}=").unwrap(), Format::Template("{{.}}=".into()));
        for (text, message) in [
            ("go-template", "need to specify a template"),
            ("go-template-file=", "need to specify a template file"),
            ("jsonpath=", "need to specify a jsonpath template"),
            ("custom-columns", "need to specify at least one column"),
            ("xml", "unrecognized output format 'xml'"),
        ] {
            assert_eq!(Format::parse(text).unwrap_err().message(), message);
        }
    }
}
