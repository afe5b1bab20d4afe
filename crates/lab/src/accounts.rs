//! The service accounts of a node's programs and of the CNI plugin, with exactly the rights that Calico's manifests
//! grant. Every lab on Kubernetes runs its nodes and its plugin with these: a program that needs more rights than
//! Calico's fails here, as it would in Calico's place on a cluster.

use serde_json::{Value, json};

/// The namespace of Calico's own programs.
pub(crate) const NAMESPACE: &str = "kube-system";
/// The folder where a container finds its service account.
pub(crate) const FOLDER: &str = "/run/secrets/kubernetes.io/serviceaccount";
/// The account of a node.
pub(crate) const NODE: &str = "calico-node";
/// The account of the plugin.
pub(crate) const PLUGIN: &str = "calico-cni-plugin";

/// Calico's API groups: its custom resources in the classic form, and in the form without Calico's own API server.
const GROUPS: [&str; 2] = ["projectcalico.org", "crd.projectcalico.org"];

/// The kubeconfig of an account, its user name in Kubernetes, and its groups.
pub(crate) fn login(account: &str) -> (String, String, String) {
    (
        format!("kubeconfig-{account}"),
        format!("system:serviceaccount:{NAMESPACE}:{account}"),
        format!("system:serviceaccounts,system:serviceaccounts:{NAMESPACE}"),
    )
}

/// One rule of a role.
fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

const READ: [&str; 3] = ["get", "list", "watch"];
const MAKE: [&str; 2] = ["create", "update"];

/// The rights of a node.
fn node_rules() -> Vec<Value> {
    let mut rules = vec![json!({
        "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": [PLUGIN], "verbs": ["create"],
    })];
    let core: [(&[&str], &[&str]); 7] = [
        (&["pods", "nodes", "namespaces"], &["get"]),
        (&["nodes"], &READ),
        (&["pods", "namespaces", "serviceaccounts"], &["list", "watch"]),
        (&["endpoints", "services"], &READ),
        (&["configmaps"], &["get"]),
        (&["nodes/status"], &["patch", "update"]),
        (&["pods/status"], &["patch"]),
    ];
    rules.extend(core.iter().map(|(resources, verbs)| rule(&[""], resources, verbs)));
    let others: [(&str, &str, &[&str]); 5] = [
        ("discovery.k8s.io", "endpointslices", &["list", "watch"]),
        ("networking.k8s.io", "networkpolicies", &["list", "watch"]),
        ("policy.networking.k8s.io", "clusternetworkpolicies", &["list", "watch"]),
        ("apps", "daemonsets", &["get"]),
        ("kubevirt.io", "virtualmachineinstancemigrations", &READ),
    ];
    rules.extend(others.iter().map(|(group, resource, verbs)| rule(&[group], &[resource], verbs)));
    let own: [(&[&str], &[&str]); 7] = [
        (&READABLE, &READ),
        (&["tiers"], &["create"]),
        (&["ippools", "felixconfigurations", "bgpconfigurations", "bgppeers", "clusterinformations"], &MAKE),
        (&["caliconodestatuses"], &["update"]),
        (&["blockaffinities", "ipamblocks", "ipamhandles"], &["get", "list", "create", "update", "delete"]),
        (&["blockaffinities"], &["watch"]),
        (&["ipamconfigurations", "ipamconfigs"], &["get", "create"]),
    ];
    rules.extend(own.iter().map(|(resources, verbs)| rule(&GROUPS, resources, verbs)));
    rules
}

/// The resources of Calico's that a node reads.
const READABLE: [&str; 21] = [
    "bgpconfigurations",
    "bgpfilters",
    "bgppeers",
    "blockaffinities",
    "caliconodestatuses",
    "clusterinformations",
    "felixconfigurations",
    "globalbgpconfigs",
    "globalfelixconfigs",
    "globalnetworkpolicies",
    "globalnetworksets",
    "hostendpoints",
    "ipamblocks",
    "ippools",
    "ipreservations",
    "networkpolicies",
    "networksets",
    "stagedglobalnetworkpolicies",
    "stagedkubernetesnetworkpolicies",
    "stagednetworkpolicies",
    "tiers",
];

/// The rights of the plugin.
fn plugin_rules() -> Vec<Value> {
    let own = [
        "blockaffinities",
        "clusterinformations",
        "ipamblocks",
        "ipamconfigs",
        "ipamconfigurations",
        "ipamhandles",
        "ippools",
        "ipreservations",
    ];
    vec![
        rule(&[""], &["pods", "nodes", "namespaces"], &["get"]),
        rule(&[""], &["pods/status"], &["patch"]),
        rule(&GROUPS, &own, &["get", "list", "create", "update", "delete"]),
        rule(&["kubevirt.io"], &["virtualmachineinstances", "virtualmachines"], &["get"]),
    ]
}

/// The Kubernetes objects for both accounts.
pub(crate) fn objects() -> Vec<Value> {
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    let mut objects = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})];
    for (name, rules) in [(NODE, node_rules()), (PLUGIN, plugin_rules())] {
        objects.push(json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE},
        }));
        objects.push(json!({
            "apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
        }));
        objects.push(json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        }));
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::{NODE, login, objects};

    #[test]
    fn an_account_is_the_subject_of_its_role() {
        let objects = objects();
        let (file, user, groups) = login(NODE);
        assert_eq!(
            (file.as_str(), user.as_str()),
            ("kubeconfig-calico-node", "system:serviceaccount:kube-system:calico-node")
        );
        assert!(groups.contains("system:serviceaccounts:kube-system"));
        let kinds: Vec<_> = objects.iter().filter_map(|object| object["kind"].as_str()).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == "ClusterRole").count(), 2, "{kinds:?}");
        let may_delete_nodes =
            objects.iter().any(|object| object.to_string().contains(r#"["nodes"],"verbs":["delete"#));
        assert!(!may_delete_nodes);
    }
}
