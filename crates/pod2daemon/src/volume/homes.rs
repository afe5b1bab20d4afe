//! The folders of volumes on the node, and the valid names of volumes.

use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// The default folder. Felix looks here (`PolicySyncPathPrefix`).
const HOME: &str = "/var/run/nodeagent";
const MOUNTS: &str = "mount";
const CREDENTIALS: &str = "creds";

/// The maximum length of a name: with its suffixes it must be a valid file name.
const LONGEST: usize = 200;

/// The folders of all volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Homes {
    mounts: PathBuf,
    credentials: PathBuf,
}

/// The fields of a configuration file that change the folders.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HomeFields {
    #[serde(rename = "nodeagent_management_home")]
    home: String,
    #[serde(rename = "nodeagent_workload_home")]
    mounts: String,
    #[serde(rename = "nodeagent_credentials_home")]
    credentials: String,
}

impl Homes {
    /// The folders below a home.
    #[must_use]
    pub fn under(home: &Path) -> Self {
        Self { mounts: home.join(MOUNTS), credentials: home.join(CREDENTIALS) }
    }

    /// The folder of a volume.
    pub(super) fn folder(&self, name: &VolumeName) -> PathBuf {
        self.mounts.join(&name.0)
    }

    /// The file with the owner of a volume.
    pub(super) fn credentials(&self, name: &VolumeName) -> PathBuf {
        self.credentials.join(format!("{name}.json"))
    }
}

impl From<HomeFields> for Homes {
    /// The last two paths are relative to the first one, with or without a leading slash.
    fn from(fields: HomeFields) -> Self {
        let or = |text: String, usual: &str| if text.is_empty() { usual.to_owned() } else { text };
        let home = PathBuf::from(or(fields.home, HOME));
        let below = |text: String, usual| home.join(or(text, usual).trim_start_matches('/'));
        Self { mounts: below(fields.mounts, MOUNTS), credentials: below(fields.credentials, CREDENTIALS) }
    }
}

/// The name of a volume, which is also that of a folder and of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeName(String);

/// A name that could be a path, or is not a valid file name.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} cannot be the name of a volume: it must have 1 to {LONGEST} characters, no slash, and no leading dot"
)]
pub(crate) struct InvalidName(String);

impl VolumeName {
    /// Checks a name.
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidName> {
        let is_good = !text.is_empty()
            && text.len() <= LONGEST
            && !text.starts_with('.')
            && !text.chars().any(|one| one == '/' || one == '\\' || one.is_control());
        if is_good {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidName(text.chars().take(LONGEST).collect()))
        }
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_not_names() {
        for good in ["csi-0a1b2c", "2dc75e9a-cbec-11e7-b158-0800270da466", "a.b:c d"] {
            assert_eq!(VolumeName::parse(good).unwrap().to_string(), good);
        }
        let long = "x".repeat(LONGEST + 1);
        for bad in
            ["", ".", "..", "../../etc", "a/b", "/etc", ".hidden", "a\0b", "a\nb", "a\\b", long.as_str()]
        {
            let error = VolumeName::parse(bad).unwrap_err().to_string();
            assert!(error.contains("cannot be the name of a volume"), "{bad:?}: {error}");
        }
    }

    #[test]
    fn folders_are_calicos_unless_a_file_moves_them() {
        let homes = |text| Homes::from(serde_json::from_str::<HomeFields>(text).unwrap());
        assert_eq!(homes("{}"), Homes::under(Path::new(HOME)));
        let moved = homes(
            r#"{"nodeagent_management_home": "/run/x", "nodeagent_workload_home": "/m", "nodeagent_credentials_home": "c"}"#,
        );
        let name = VolumeName::parse("v").unwrap();
        assert_eq!(moved.folder(&name), Path::new("/run/x/m/v"));
        assert_eq!(moved.credentials(&name), Path::new("/run/x/c/v.json"));
    }
}
