//! The outcomes of Kubernetes' own tests, read from their report in JUnit's format. Pure.

use std::collections::BTreeMap;
use std::fmt;

/// The outcome of a test.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Passed {
        seconds: f64,
    },
    /// The test inspected the cluster and skipped itself.
    Skipped {
        why: String,
    },
    /// It failed, or never ended.
    Failed,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed { seconds } => write!(f, "passed ({seconds:.0} s)"),
            Self::Skipped { why } => write!(f, "skipped ({why})"),
            Self::Failed => f.write_str("failed"),
        }
    }
}

/// The names in a report of a run that only listed its tests.
pub(crate) fn names_of(report: &str) -> Vec<String> {
    let passed = |(name, outcome)| matches!(outcome, Outcome::Passed { .. }).then_some(name);
    outcomes_of(report).into_iter().filter_map(passed).collect()
}

/// Every test in a report by name; tests that were not selected are among those that skipped themselves.
pub(crate) fn outcomes_of(report: &str) -> BTreeMap<String, Outcome> {
    let mut found = BTreeMap::new();
    for case in report.split("<testcase ").skip(1) {
        let head = case.split('>').next().unwrap_or_default();
        let Some(name) =
            attribute(head, "name").and_then(|name| Some(name.strip_prefix("[It] ")?.to_owned()))
        else {
            // Set-up and tear-down of all tests.
            continue;
        };
        let outcome = match attribute(head, "status").as_deref() {
            Some("passed") => Outcome::Passed {
                seconds: attribute(head, "time").and_then(|time| time.parse().ok()).unwrap_or_default(),
            },
            Some("skipped" | "pending") => Outcome::Skipped {
                why: case
                    .split_once("<skipped ")
                    .and_then(|(_, rest)| attribute(rest, "message"))
                    .unwrap_or_default()
                    .trim_start_matches("skipped - ")
                    .to_owned(),
            },
            _ => Outcome::Failed,
        };
        found.insert(name, outcome);
    }
    found
}

/// The value of an attribute, unescaped.
fn attribute(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("{name}=\""))?;
    let value = rest.split('"').next()?;
    let plain = value.replace("&#34;", "\"").replace("&#39;", "'").replace("&lt;", "<").replace("&gt;", ">");
    Some(plain.replace("&#xA;", " ").replace("&amp;", "&"))
}

#[cfg(test)]
mod tests {
    use super::{Outcome, names_of, outcomes_of};

    #[test]
    fn a_report_is_read() {
        let report = r#"<?xml version="1.0"?>
<testsuite>
  <testcase name="[It] [sig-network] a &#39;quoted&#39; one" classname="Kubernetes e2e suite" status="passed" time="12.5"></testcase>
  <testcase name="[It] b" classname="Kubernetes e2e suite" status="skipped" time="0">
    <skipped message="skipped - needs 3 nodes"></skipped></testcase>
  <testcase name="[It] c" classname="Kubernetes e2e suite" status="timedout" time="9"><failure type="timedout">name="d"</failure></testcase>
  <testcase name="[SynchronizedBeforeSuite]" classname="Kubernetes e2e suite" status="passed" time="0.1"></testcase>
</testsuite>"#;
        let found = outcomes_of(report);
        assert_eq!(found["[sig-network] a 'quoted' one"], Outcome::Passed { seconds: 12.5 });
        assert_eq!(found["b"], Outcome::Skipped { why: "needs 3 nodes".to_owned() });
        assert_eq!((found.len(), &found["c"]), (3, &Outcome::Failed));
        assert_eq!(names_of(report), ["[sig-network] a 'quoted' one"]);
    }
}
