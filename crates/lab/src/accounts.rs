//! The service accounts of a node's container and of the CNI plugin, with the rights that Calico's manifests give the
//! plugin, for labs whose nodes keep the plugin's kubeconfig (`CALICO_MANAGE_CNI=true`).

use serde_json::{Value, json};

/// The namespace of Calico's own programs.
pub(crate) const NAMESPACE: &str = "kube-system";
/// Where a container finds its service account.
pub(crate) const FOLDER: &str = "/run/secrets/kubernetes.io/serviceaccount";
/// The account of the plugin.
pub(crate) const PLUGIN: &str = "calico-cni-plugin";

/// What Kubernetes must know.
pub(crate) fn objects() -> Vec<Value> {
    let account = |name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}});
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods", "nodes", "namespaces"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
        {
            "apiGroups": ["crd.projectcalico.org"],
            "resources": [
                "blockaffinities", "ipamblocks", "ipamhandles", "clusterinformations", "ippools", "ipreservations",
                "ipamconfigs",
            ],
            "verbs": ["get", "list", "create", "update", "delete"],
        },
    ]);
    let group = "rbac.authorization.k8s.io";
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        account("calico-node"),
        account(PLUGIN),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": PLUGIN}, "rules": rules,
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": PLUGIN},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": PLUGIN},
            "subjects": [{"kind": "ServiceAccount", "name": PLUGIN, "namespace": NAMESPACE}],
        }),
    ]
}
