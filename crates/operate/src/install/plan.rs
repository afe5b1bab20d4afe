//! What already exists on the cluster, and whether installing may proceed: a function of facts.

use crate::cluster::{Reference, Target};
use anyhow::Result;
use manifests::{NAMESPACE, Options};
use serde_json::Value;

/// What exists on the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Existing {
    /// Whether there is a record of an installation by us.
    pub has_record: bool,
    /// The images of the daemon sets `calico-node` and `canal`, with their names.
    pub daemon_sets: Vec<(String, Vec<String>)>,
    /// Whether Calico's operator is installed.
    pub has_operator: bool,
}

impl Existing {
    /// Reads the facts.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn gather(target: &Target) -> Result<Self> {
        let mut daemon_sets = Vec::new();
        for name in ["calico-node", "canal"] {
            if let Some(set) = target.get(&Reference::new("DaemonSet", NAMESPACE, name)).await? {
                daemon_sets.push((name.to_owned(), images(&set)));
            }
        }
        let installations = target.list("/apis/operator.tigera.io/v1/installations").await?;
        let operator =
            target.get(&Reference::new("Deployment", "tigera-operator", "tigera-operator")).await?;
        let has_record = super::Record::read(target).await?.is_some();
        Ok(Self { has_record, daemon_sets, has_operator: operator.is_some() || !installations.is_empty() })
    }
}

/// The images of a workload.
pub(crate) fn images(workload: &Value) -> Vec<String> {
    ["initContainers", "containers"]
        .into_iter()
        .filter_map(|list| workload.pointer(&format!("/spec/template/spec/{list}"))?.as_array())
        .flatten()
        .filter_map(|container| container["image"].as_str().map(str::to_owned))
        .collect()
}

/// The reason why installing must not proceed.
#[must_use]
pub(crate) fn refusal(existing: &Existing, options: &Options, is_upgrade: bool) -> Option<String> {
    if existing.has_operator {
        return Some(
            "Calico's operator is on this cluster and would revert everything. Continue with `tortie migrate from-calico`, \
             which explains what to do about it"
                .to_owned(),
        );
    }
    let wanted = options.like.node_name();
    if let Some((other, _)) = existing.daemon_sets.iter().find(|(name, _)| name != wanted) {
        let likes = if other == "canal" {
            "canal"
        } else {
            "calico, calico-vxlan, calico-typha, calico-policy-only or calico-etcd"
        };
        return Some(format!(
            "the daemon set {other} exists, and --like {} would create {wanted} beside it: two networks on every node. Use --like \
             with {likes}, or uninstall the other one first",
            options.like.name()
        ));
    }
    match (existing.has_record, is_upgrade) {
        (true, false) => Some("it is installed already: `tortie upgrade` brings it up to date".to_owned()),
        (false, true) => Some("nothing was installed by `tortie install`: there is nothing to upgrade".to_owned()),
        (false, false) => existing.daemon_sets.first().map(|(name, images)| {
            format!(
                "the daemon set {name} exists, with images {}: a running Calico is swapped node by node with `tortie migrate \
                 from-calico`",
                images.join(", ")
            )
        }),
        (true, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manifests::Like;

    #[test]
    fn obstacles_are_reported() {
        let options = Options::new(Like::CalicoVxlan, "r", "t");
        let theirs = ("calico-node".to_owned(), vec!["quay.io/calico/node:v3.31.0".to_owned()]);
        let canal = ("canal".to_owned(), vec!["x".to_owned()]);
        let ours = Existing { has_record: true, daemon_sets: vec![theirs.clone()], has_operator: false };
        let calico = Existing { daemon_sets: vec![theirs], ..Existing::default() };
        let operator = Existing { has_operator: true, ..Existing::default() };
        let other = Existing { daemon_sets: vec![canal], ..Existing::default() };
        for (existing, is_upgrade, expected) in [
            (&Existing::default(), false, None),
            (&Existing::default(), true, Some("nothing to upgrade")),
            (&ours, false, Some("tortie upgrade")),
            (&ours, true, None),
            (&calico, false, Some("quay.io/calico/node:v3.31.0")),
            (&operator, false, Some("operator")),
            (&other, false, Some("two networks on every node")),
        ] {
            let found = refusal(existing, &options, is_upgrade);
            match expected {
                None => assert_eq!(found, None, "{existing:?}"),
                Some(text) => {
                    assert!(found.as_deref().is_some_and(|found| found.contains(text)), "{found:?}");
                }
            }
        }
    }
}
