//! Installs and removes the admission policies of `manifests` in a cluster that serves `projectcalico.org/v3` as custom
//! resources.
//!
//! Mutating policies need a Kubernetes that supports them (1.36, or an older one with the feature enabled). Without
//! them objects are stored as sent; every component fills in the same defaults when it reads them.

use anyhow::Result;
use http::Method;
use kube_access::cluster::Cluster;
use manifests::webhooks::{mutating_policies, validating_policies};
use serde_json::Value;

use crate::migration::delete;

const GROUP: &str = "admissionregistration.k8s.io";
const APPLY: &str = "application/apply-patch+yaml";
const MANAGER: &str = "tortie";

/// The versions that mutating policies have had, newest first.
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// The API path of a cluster-scoped object.
fn path(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let kind = text("/kind").to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    };
    format!("/apis/{}/{plural}/{}", text("/apiVersion"), text("/metadata/name"))
}

/// The newest version of mutating policies that this cluster serves; `None` if it serves none.
async fn version(cluster: &Cluster) -> Option<&'static str> {
    for version in VERSIONS {
        let found: Result<Value, _> =
            cluster.get("read the API's resources", &format!("/apis/{GROUP}/{version}")).await;
        let resources = found.ok().and_then(|mut found| found["resources"].take().as_array().cloned());
        if resources.into_iter().flatten().any(|resource| resource["name"] == "mutatingadmissionpolicies") {
            return Some(version);
        }
    }
    None
}

/// The policies that this cluster supports.
async fn policies(cluster: &Cluster) -> Vec<Value> {
    let mutating = version(cluster).await.map(mutating_policies);
    if mutating.is_none() {
        tracing::warn!(
            "this Kubernetes has no mutating admission policies: objects are stored without the defaults of tiers and types"
        );
    }
    mutating.into_iter().flatten().chain(validating_policies()).collect()
}

/// Installs the policies in a cluster, or updates them.
///
/// # Errors
/// When the cluster rejects a policy.
pub async fn install(cluster: &Cluster) -> Result<()> {
    for policy in policies(cluster).await {
        let path = format!("{}?fieldManager={MANAGER}&force=true", path(&policy));
        let _: Value =
            cluster.send("write an admission policy", Method::PATCH, &path, &policy, APPLY).await?;
    }
    Ok(())
}

/// Removes the policies.
///
/// # Errors
/// When the cluster refuses a deletion.
pub(crate) async fn remove(cluster: &Cluster) -> Result<()> {
    for policy in policies(cluster).await {
        delete(cluster, "remove an admission policy", &path(&policy)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_policies() {
        let paths: Vec<String> =
            mutating_policies("v1").iter().chain(&validating_policies()).map(path).collect();
        assert_eq!(
            paths,
            [
                "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/tierlabel.policy.projectcalico.org",
                "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/set-tier-label-binding",
                "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/policytypes.policy.projectcalico.org",
                "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/set-policytypes-binding",
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/protect-builtin-tiers.projectcalico.org",
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/protect-builtin-tiers.projectcalico.org",
            ]
        );
    }
}
