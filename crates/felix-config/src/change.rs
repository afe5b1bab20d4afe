//! What a new configuration asks of a running Felix. Almost everything is read once, at the start, and asks for a new
//! one; Felix ends itself with a special exit code and whoever started it starts it again.

use crate::parameter::Parameter;
use crate::table::{Config, PARAMETERS};

/// The parameters that a running Felix follows: limits of health at once, and what the cluster is called, on which nothing
/// depends. Of the cluster's type only the words that Felix looks for ask for a new start.
pub const LIVE_PARAMETERS: [&str; 4] =
    ["CalicoVersion", "ClusterGUID", "ClusterType", "HealthTimeoutOverrides"];

/// What a new configuration asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: all values are the same.
    None,
    /// These parameters changed, and a running Felix follows them all.
    Live(Vec<&'static str>),
    /// These parameters changed that only a new start can follow.
    Restart(Vec<&'static str>),
}

/// The parameters whose values differ. Texts do not count: `1` and `true` are the same.
#[must_use]
pub fn changed(old: &Config, new: &Config) -> Vec<&'static Parameter> {
    PARAMETERS.iter().filter(|parameter| !(parameter.is_equal)(old, new)).collect()
}

impl Change {
    /// From one configuration to another.
    #[must_use]
    pub fn between(old: &Config, new: &Config) -> Self {
        let changed: Vec<&'static str> =
            changed(old, new).into_iter().map(|parameter| parameter.name).collect();
        let means_another_cluster =
            old.is_openstack() != new.is_openstack() || old.provider() != new.provider();
        let is_live =
            |name: &str| LIVE_PARAMETERS.contains(&name) && !(name == "ClusterType" && means_another_cluster);
        let restart: Vec<&'static str> = changed.iter().copied().filter(|name| !is_live(name)).collect();
        match (restart.is_empty(), changed.is_empty()) {
            (false, _) => Self::Restart(restart),
            (true, false) => Self::Live(changed),
            (true, true) => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::NoSurroundings;
    use crate::sources::{Source, Sources};

    fn change(before: &[(&str, &str)], after: &[(&str, &str)]) -> Change {
        let config = |texts: &[(&str, &str)]| {
            let mut sources = Sources::default();
            let texts = texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
            sources.set(Source::DatastoreGlobal, texts);
            crate::resolve(&sources, &NoSurroundings).unwrap().config
        };
        Change::between(&config(before), &config(after))
    }

    #[test]
    fn what_asks_for_a_restart() {
        for live in LIVE_PARAMETERS {
            assert!(Parameter::find(live).is_some(), "{live}");
        }
        assert_eq!(change(&[], &[]), Change::None);
        assert_eq!(change(&[("BPFEnabled", "false")], &[("BPFEnabled", "no")]), Change::None);
        assert_eq!(change(&[], &[("LogSeverityScreen", "info")]), Change::None, "the default, said aloud");
        assert_eq!(change(&[], &[("NoSuchParameter", "x")]), Change::None);
        assert_eq!(change(&[], &[("ClusterType", "k8s")]), Change::Live(vec!["ClusterType"]));
        for (from, to) in [("k8s", "k8s,openstack"), ("k8s", "k8s,EKS"), ("k8s,AKS", "k8s")] {
            let restart = Change::Restart(vec!["ClusterType"]);
            assert_eq!(change(&[("ClusterType", from)], &[("ClusterType", to)]), restart, "{from} to {to}");
        }
        assert_eq!(
            change(&[("ClusterType", "k8s")], &[("LogSeverityScreen", "DEBUG")]),
            Change::Restart(vec!["LogSeverityScreen"])
        );
        assert_eq!(
            change(&[("InterfaceExclude", "/a.*/")], &[("InterfaceExclude", "/a.*/,b")]),
            Change::Restart(vec!["InterfaceExclude"])
        );
    }
}
