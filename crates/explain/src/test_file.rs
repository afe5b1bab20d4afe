//! Expectations as data, for users' own continuous integration: which connections must, and which must not, work.
//!
//! ```yaml
//! namespace: shop            # for names without one; may be left out
//! tests:
//! - name: the shop reaches its database
//!   from: web
//!   to: [db:5432, cache:6379]
//!   expect: allow
//! - from: [outside-tools/scanner, 203.0.113.7]
//!   to: db:5432
//!   expect: deny
//! ```
//!
//! `from` and `to` are one end or a list of ends, and every pair is tested. An unknown field is an error, with its line
//! and a suggestion: a test that silently tests nothing is worse than none.

use crate::counted::counted;
use crate::party::Protocol;
use crate::report::Verdict;
use crate::{Cluster, Query, World};
use api::document::{Diagnostics, read_as};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::sync::OnceLock;

/// A file of expectations.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectations {
    /// The namespace of names without one.
    #[serde(default)]
    pub namespace: String,
    /// The expectations.
    pub tests: Vec<Expectation>,
}

/// One expectation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Expectation {
    /// Its name in the report.
    #[serde(default)]
    pub name: String,
    /// The senders.
    #[serde(deserialize_with = "one_or_many")]
    pub from: Vec<String>,
    /// The receivers.
    #[serde(deserialize_with = "one_or_many")]
    pub to: Vec<String>,
    /// The port, if `to` does not say.
    #[serde(default)]
    pub port: Option<u16>,
    /// The protocol by name or number; TCP if none.
    #[serde(default, deserialize_with = "protocol")]
    pub protocol: Option<Protocol>,
    /// `allow` or `deny`.
    #[serde(deserialize_with = "verdict")]
    pub expect: Verdict,
}

/// A file of expectations is not valid.
#[derive(Debug, thiserror::Error)]
pub enum ExpectationError {
    /// Mistakes, each with its place.
    #[error("the expectations have mistakes\n{}", .0.to_string().trim_end())]
    Mistakes(Diagnostics),
    /// An invalid value.
    #[error("{0}: {1}")]
    Value(String, serde_json::Error),
    /// There are no expectations.
    #[error("{0}: it contains no tests")]
    Empty(String),
}

/// The result of one pair.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CaseReport {
    /// Its name.
    pub name: String,
    /// Whether the result is as expected.
    pub passed: bool,
    /// The expected verdict.
    pub expected: Verdict,
    /// The actual verdict; `None` if the query could not be evaluated.
    pub found: Option<Verdict>,
    /// The reason: the rule that decided, or what was wrong with the query.
    pub reason: String,
}

/// The results of all pairs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TestReport {
    /// One for each pair, in the order of the file.
    pub cases: Vec<CaseReport>,
}

impl Expectations {
    /// Parses the documents of a file; `name` identifies it in messages.
    ///
    /// # Errors
    /// When a field is unknown, missing or wrong, or a document has no tests.
    pub fn read(name: &str, text: &str) -> Result<Vec<Self>, ExpectationError> {
        let documents = read_as(name, text.as_bytes(), schema()).map_err(ExpectationError::Mistakes)?;
        documents.into_iter().map(|document| Self::from_value(name, document)).collect()
    }

    fn from_value(name: &str, value: Value) -> Result<Self, ExpectationError> {
        let wrong = |error| ExpectationError::Value(name.to_owned(), error);
        let expectations: Self = serde_json::from_value(value).map_err(wrong)?;
        let pairs: usize = expectations.tests.iter().map(|test| test.from.len() * test.to.len()).sum();
        if pairs == 0 { Err(ExpectationError::Empty(name.to_owned())) } else { Ok(expectations) }
    }
}

/// The allowed fields: those of [`Expectations`].
fn schema() -> &'static Map<String, Value> {
    static SCHEMA: OnceLock<Map<String, Value>> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let (text, one_or_many) = (json!({"type": "string"}), json!({}));
        let test = json!({
            "type": "object", "required": ["from", "to", "expect"],
            "properties": {
                "name": text, "from": one_or_many, "to": one_or_many, "port": {"type": "integer"},
                "protocol": {"x-kubernetes-int-or-string": true},
                "expect": {"type": "string", "enum": ["allow", "deny", "Allow", "Deny", "ALLOW", "DENY"]},
            },
        });
        let schema = json!({
            "type": "object",
            "properties": {"namespace": text, "tests": {"type": "array", "items": test}},
        });
        schema.as_object().cloned().unwrap_or_default()
    })
}

/// Tests expectations on a cluster.
#[must_use]
pub fn test_file(cluster: &Cluster, expectations: &Expectations) -> TestReport {
    let world = World::new(cluster);
    let mut cases = Vec::new();
    for test in &expectations.tests {
        for from in &test.from {
            for to in &test.to {
                let query = Query {
                    from: from.clone(),
                    to: to.clone(),
                    namespace: expectations.namespace.clone(),
                    protocol: test.protocol,
                    port: test.port,
                    ..Query::default()
                };
                let pair = format!("{from} -> {to}");
                let name = if test.name.is_empty() { pair } else { format!("{}: {pair}", test.name) };
                let (found, reason) = match world.explain(&query) {
                    Ok(explanation) => {
                        let reasons: Vec<String> = explanation
                            .flows
                            .iter()
                            .filter(|flow| flow.verdict != test.expect || explanation.flows.len() == 1)
                            .map(|flow| flow.decided_by.clone())
                            .collect();
                        (Some(explanation.verdict), reasons.join("; "))
                    }
                    Err(error) => (None, error.to_string()),
                };
                let passed = found == Some(test.expect);
                cases.push(CaseReport { name, passed, expected: test.expect, found, reason });
            }
        }
    }
    TestReport { cases }
}

impl TestReport {
    /// The number of failed cases.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.cases.iter().filter(|case| !case.passed).count()
    }

    /// A line per case, with the reason for each that failed.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for case in &self.cases {
            let word = if case.passed { "ok    " } else { "FAILED" };
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{word}  {} ({})", case.name, case.expected.as_str());
            if !case.passed {
                let found = case.found.map_or("no answer", Verdict::as_str);
                let _ = writeln!(out, "        found {found}: {}", case.reason);
            }
        }
        let _ = writeln!(out, "\n{}, {} failed", counted(self.cases.len(), "test"), self.failures());
        out
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}

fn protocol<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Protocol>, D::Error> {
    use serde::de::Error as _;
    let text = match Option::<Value>::deserialize(deserializer)? {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
    };
    Protocol::from_text(&text)
        .map(Some)
        .ok_or_else(|| D::Error::custom(format!("'{text}' is not a protocol")))
}

fn verdict<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Verdict, D::Error> {
    use serde::de::Error as _;
    let text = String::deserialize(deserializer)?;
    match text.to_ascii_lowercase().as_str() {
        "allow" => Ok(Verdict::Allow),
        "deny" => Ok(Verdict::Deny),
        _ => Err(D::Error::custom(format!("expect: '{text}' is neither allow nor deny"))),
    }
}
