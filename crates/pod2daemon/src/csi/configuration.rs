//! The driver's file on the node, which is optional and rare.

use crate::volume::HomeFields;
use anyhow::{Context as _, Result};
use daemon::Environment;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The path of the file.
const FILE: &str = "/etc/calico/csi/nodeagent.json";

/// The contents of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Configuration {
    #[serde(flatten)]
    pub(super) homes: HomeFields,
    #[serde(rename = "node_id")]
    pub(super) node: String,
    #[serde(rename = "log_level")]
    pub(super) level: String,
    pub(super) endpoint: String,
    #[serde(flatten)]
    unknown: BTreeMap<String, IgnoredAny>,
}

impl Configuration {
    /// Reads the file; if it does not exist the defaults apply.
    pub(super) fn read(environment: &dyn Environment) -> Result<Self> {
        let text = match environment.read_file(Path::new(FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("reading {FILE}")),
        };
        let configuration: Self = serde_json::from_str(&text).with_context(|| format!("reading {FILE}"))?;
        for name in configuration.unknown.keys() {
            tracing::warn!("{FILE}: unknown setting {name}");
        }
        Ok(configuration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Variables;

    #[test]
    fn a_missing_file_is_accepted_and_a_broken_one_is_named() {
        let none = Variables::default().with_files([("/other", "")]);
        assert!(Configuration::read(&none).unwrap().node.is_empty());
        let with = |text: &str| Configuration::read(&Variables::default().with_files([(FILE, text)]));
        let found = with(r#"{"node_id": "n", "nodeagent_workload_home": "m", "nodid": 1}"#).unwrap();
        assert_eq!(found.node, "n");
        assert_eq!(found.unknown.keys().collect::<Vec<_>>(), ["nodid"]);
        assert!(with("{").unwrap_err().to_string().contains(FILE));
        let hidden = Variables::default().with_unreadable_file(FILE);
        assert!(Configuration::read(&hidden).is_err(), "a file that may not be read is not the same as none");
    }
}
