//! What a new configuration requires of a running Felix. Almost everything is read once, at the start, so that a change
//! requires a restart: Felix exits with a special code, and its supervisor starts it again.

use crate::parameter::Parameter;
use crate::table::{Config, PARAMETERS};

/// What a new configuration requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: all values are the same.
    None,
    /// These parameters changed, and a running Felix can follow them all.
    Live(Vec<&'static str>),
    /// These parameters changed, and following them takes a restart.
    Restart(Vec<&'static str>),
}

/// The parameters whose values differ. The texts do not matter: `1` and `true` are equal.
#[must_use]
pub fn changed(old: &Config, new: &Config) -> Vec<&'static Parameter> {
    PARAMETERS.iter().filter(|parameter| !(parameter.is_equal)(old, new)).collect()
}

impl Change {
    /// What changing from one configuration to another requires.
    #[must_use]
    pub fn between(old: &Config, new: &Config) -> Self {
        let changed = changed(old, new);
        // Of the cluster's type, only the words that Felix looks for require a restart.
        let means_another_cluster =
            old.is_openstack() != new.is_openstack() || old.provider() != new.provider();
        let is_live = |parameter: &Parameter| {
            parameter.is_live && !(parameter.name == "ClusterType" && means_another_cluster)
        };
        let names = |parameters: Vec<&'static Parameter>| -> Vec<&'static str> {
            parameters.into_iter().map(|parameter| parameter.name).collect()
        };
        let restart: Vec<&'static Parameter> =
            changed.iter().copied().filter(|parameter| !is_live(parameter)).collect();
        match (restart.is_empty(), changed.is_empty()) {
            (false, _) => Self::Restart(names(restart)),
            (true, false) => Self::Live(names(changed)),
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
    fn some_changes_require_a_restart() {
        let live = PARAMETERS.iter().filter(|parameter| parameter.is_live).map(|parameter| parameter.name);
        assert_eq!(
            live.collect::<Vec<_>>(),
            ["HealthTimeoutOverrides", "ClusterGUID", "ClusterType", "CalicoVersion"]
        );
        assert_eq!(change(&[], &[]), Change::None);
        assert_eq!(change(&[("BPFEnabled", "false")], &[("BPFEnabled", "no")]), Change::None);
        assert_eq!(
            change(&[], &[("LogSeverityScreen", "info")]),
            Change::None,
            "the default, set explicitly"
        );
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
