//! Lists the existing labs, running or not, from their folders alone: it joins no namespaces and sends no requests.

use crate::state::{Folder, lab_names};
use crate::table::{age, table};
use anyhow::Result;
use clap::ValueEnum as _;
use serde::Serialize;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

/// The state of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Condition {
    /// Running and complete.
    Running,
    /// Its keeper is running, but it is not complete yet, or could not be completed.
    Incomplete,
    /// Only its folder is left.
    NotRunning,
}

impl Condition {
    fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Incomplete => "incomplete",
            Self::NotRunning => "not running",
        }
    }
}

/// A lab of the list.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) state: Condition,
    #[serde(rename = "ageSeconds", serialize_with = "seconds")]
    age: Option<Duration>,
    owner: Option<String>,
    nodes: Option<usize>,
    pods: Option<usize>,
    datastore: Option<String>,
}

fn seconds<S: serde::Serializer>(age: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    age.map(|age| age.as_secs()).serialize(serializer)
}

/// Every lab of this user.
///
/// # Errors
/// When the folder of labs cannot be read.
pub(crate) fn labs() -> Result<Vec<Entry>> {
    lab_names()?.iter().map(|name| Ok(entry(&Folder::of(name)?))).collect()
}

fn entry(folder: &Folder) -> Entry {
    let state = folder.load().ok();
    let alive = folder.keeper().is_some_and(|keeper| keeper.is_alive());
    let condition = match &state {
        _ if !alive => Condition::NotRunning,
        Some(state) if state.ready => Condition::Running,
        _ => Condition::Incomplete,
    };
    let owner = std::fs::metadata(folder.path()).ok().map(|about| user_name(about.uid()));
    Entry {
        name: folder.name().to_owned(),
        state: condition,
        age: folder.age(),
        owner,
        nodes: state.as_ref().map(|state| state.topology.nodes.len()),
        pods: state.as_ref().map(|state| state.pods.len()),
        datastore: state.as_ref().and_then(|state| {
            state.topology.datastore.to_possible_value().map(|value| value.get_name().to_owned())
        }),
    }
}

/// The list as text.
pub(crate) fn text(labs: &[Entry]) -> String {
    if labs.is_empty() {
        return format!(
            "no labs: `{}` creates one\n",
            crate::called::command(crate::called::USUAL_LAB, "up")
        );
    }
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let rows: Vec<Vec<String>> = labs
        .iter()
        .map(|lab| {
            vec![
                lab.name.clone(),
                lab.state.word().to_owned(),
                or_dash(lab.age.map(age)),
                or_dash(lab.owner.clone()),
                or_dash(lab.nodes.map(|count| count.to_string())),
                or_dash(lab.pods.map(|count| count.to_string())),
                or_dash(lab.datastore.clone()),
            ]
        })
        .collect();
    table(&["NAME", "STATE", "AGE", "OWNER", "NODES", "PODS", "DATASTORE"], &rows)
}

/// A user's name, or the number if there is none.
fn user_name(number: u32) -> String {
    name_in(&std::fs::read_to_string("/etc/passwd").unwrap_or_default(), number)
}

fn name_in(passwd: &str, number: u32) -> String {
    let number = number.to_string();
    passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&number.as_str()))
        .and_then(|fields| fields.first().map(|name| (*name).to_owned()))
        .unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::{Condition, Entry, name_in, text};
    use std::time::Duration;

    #[test]
    fn labs_in_a_table() {
        let entry = Entry {
            name: "second".to_owned(),
            state: Condition::NotRunning,
            age: Some(Duration::from_secs(300)),
            owner: Some("root".to_owned()),
            nodes: None,
            pods: Some(6),
            datastore: Some("etcd".to_owned()),
        };
        assert_eq!(
            text(&[entry]),
            "NAME     STATE         AGE   OWNER   NODES   PODS   DATASTORE\n\
             second   not running   5m    root    -       6      etcd\n"
        );
        assert!(text(&[]).contains("no labs"));
    }

    #[test]
    fn owners_have_names() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!((name_in(passwd, 1000), name_in(passwd, 7)), ("ann".to_owned(), "7".to_owned()));
    }
}
