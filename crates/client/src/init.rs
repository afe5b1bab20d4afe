//! Initialises a datastore for a cluster: the ClusterInformation and the built-in tiers.

use crate::Client;
use api::scalars::GoFloat;
use api::{Action, BUILT_IN_TIERS, BuiltInTier, ClusterInformationSpec, Object, TierSpec};
use datastore::{Error, Result};
use std::time::Duration;

/// The name of the one ClusterInformation.
const CLUSTER_INFORMATION: &str = api::words::GLOBAL_NAME;

/// The pause before retrying when another node was faster.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl Client {
    /// Ensures that the datastore is initialised: what the store itself needs, the ClusterInformation, the built-in
    /// tiers. May be called any number of times. An empty version or type changes nothing.
    ///
    /// All steps are tried, so that a program with limited rights gets as far as it can.
    ///
    /// # Errors
    /// The first error of all steps.
    pub async fn ensure_initialized(&self, calico_version: &str, cluster_type: &str) -> Result<()> {
        let mut outcomes = vec![
            ("the store", self.backend().ensure_ready().await),
            ("ClusterInformation", self.ensure_cluster_information(calico_version, cluster_type).await),
        ];
        // The default tier first, as policies need it.
        for tier in BUILT_IN_TIERS.iter().rev() {
            outcomes.push((tier.name, self.ensure_tier(tier).await));
        }
        let mut first = Ok(());
        for (step, outcome) in outcomes {
            if let Err(error) = outcome {
                tracing::info!(step, %error, "could not initialise the datastore");
                if first.is_ok() {
                    first = Err(error);
                }
            }
        }
        first
    }

    async fn ensure_cluster_information(&self, calico_version: &str, cluster_type: &str) -> Result<()> {
        let cluster_type = full_cluster_type(cluster_type, self.backend().is_kubernetes());
        let informations = self.resource::<ClusterInformationSpec>();
        loop {
            let outcome = match informations.get("", CLUSTER_INFORMATION).await {
                Ok(mut information) => {
                    if !merge(&mut information.spec, calico_version, &cluster_type) {
                        return Ok(());
                    }
                    informations.update(information).await
                }
                Err(error) if error.is_does_not_exist() => {
                    let mut spec = ClusterInformationSpec::default();
                    merge(&mut spec, calico_version, &cluster_type);
                    informations.create(Object::new("", CLUSTER_INFORMATION, spec)).await
                }
                Err(error) => return Err(error),
            };
            match outcome {
                Err(error) if error.is_conflict() || error.is_already_exists() => {
                    tracing::info!(%error, "another node is initialising the datastore: trying again");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                outcome => return outcome.map(|_| ()),
            }
        }
    }

    async fn ensure_tier(&self, tier: &BuiltInTier) -> Result<()> {
        let spec = TierSpec {
            order: Some(GoFloat(tier.order)),
            default_action: Some(Action::from(tier.default_action)),
            ..TierSpec::default()
        };
        match self.resource::<TierSpec>().create(Object::new("", tier.name, spec)).await {
            Ok(_) | Err(Error::AlreadyExists { .. }) => Ok(()),
            // A program that may only read still works with tiers created by another.
            Err(Error::Unauthorized { reason }) => {
                tracing::warn!(tier = tier.name, reason, "not allowed to create this tier");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// The cluster type given by the caller, with the word for Kubernetes as the datastore appended.
fn full_cluster_type(cluster_type: &str, is_kubernetes: bool) -> String {
    match (cluster_type.strip_suffix(',').unwrap_or(cluster_type), is_kubernetes) {
        (_, false) => cluster_type.to_owned(),
        ("", true) => "kdd".to_owned(),
        (words, true) => format!("{words},kdd"),
    }
}

/// Updates a ClusterInformation; returns whether anything changed. Values of other writers are kept.
fn merge(spec: &mut ClusterInformationSpec, calico_version: &str, cluster_type: &str) -> bool {
    let before = spec.clone();
    // In a cluster with both Calico's nodes and ours, the last node to start would win, and Calico's calicoctl refuses
    // any version other than its own: an existing value is kept. `tortie install` and `upgrade` write the new one.
    if spec.calico_version.is_empty() {
        calico_version.clone_into(&mut spec.calico_version);
    }
    if spec.cluster_guid.is_empty() {
        spec.cluster_guid = uuid::Uuid::new_v4().simple().to_string();
    }
    // An explicit false means that a migration is in progress, and is kept.
    spec.datastore_ready.get_or_insert(true);
    if spec.cluster_type.is_empty() {
        cluster_type.clone_into(&mut spec.cluster_type);
    } else if !cluster_type.is_empty() {
        let present: Vec<String> = spec.cluster_type.split(',').map(str::to_owned).collect();
        for word in cluster_type.split(',').filter(|word| !present.iter().any(|known| known == word)) {
            spec.cluster_type.push(',');
            spec.cluster_type.push_str(word);
        }
    }
    *spec != before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_for_kubernetes_comes_last() {
        for (given, is_kubernetes, expected) in [
            ("", false, ""),
            ("k8s,bgp", false, "k8s,bgp"),
            ("k8s,", false, "k8s,"),
            ("", true, "kdd"),
            ("k8s,bgp", true, "k8s,bgp,kdd"),
            ("k8s,", true, "k8s,kdd"),
        ] {
            assert_eq!(full_cluster_type(given, is_kubernetes), expected, "{given:?}");
        }
    }

    #[test]
    fn cluster_types_are_merged_without_duplicates() {
        for (stored, given, expected) in [
            ("", "k8s,bgp", "k8s,bgp"),
            ("k8s", "", "k8s"),
            ("k8s,bgp", "bgp,kdd", "k8s,bgp,kdd"),
            ("typha,k8s", "k8s,typha", "typha,k8s"),
        ] {
            let mut spec = ClusterInformationSpec { cluster_type: stored.into(), ..Default::default() };
            merge(&mut spec, "", given);
            assert_eq!(spec.cluster_type, expected, "{stored:?} and {given:?}");
        }
    }

    #[test]
    fn existing_values_are_kept() {
        let mut spec = ClusterInformationSpec::default();
        assert!(merge(&mut spec, "v3.32.1", "k8s"));
        assert_eq!(spec.cluster_guid.len(), 32);
        assert_eq!((spec.datastore_ready, spec.calico_version.as_str()), (Some(true), "v3.32.1"));
        let first = spec.clone();
        assert!(!merge(&mut spec, "", ""));
        assert!(!merge(&mut spec, "v3.32.1", "k8s"));
        assert_eq!(spec, first);
        spec.datastore_ready = Some(false);
        assert!(merge(&mut spec, "v3.33.0", "canal"));
        assert_eq!((spec.datastore_ready, &spec.cluster_guid), (Some(false), &first.cluster_guid));
        assert_eq!(spec.calico_version, "v3.32.1", "the version of the cluster is not a node's to change");
    }
}
