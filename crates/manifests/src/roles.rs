//! Accounts and their rights: Calico's rules, plus those that our own components need in addition.
//!
//! Policy-only and canal installations manage no addresses, so their accounts have no rights for that.

use crate::NAMESPACE;
use crate::objects::Object;
use crate::options::{Like, Options};
use crate::parts::Rule;
use serde_json::{Value, json};

const CALICO: &[&str] = &["projectcalico.org", "crd.projectcalico.org"];
const CORE: &[&str] = &[""];
const READ: &[&str] = &["get", "list", "watch"];
const FOLLOW: &[&str] = &["list", "watch"];
const CHANGE: &[&str] = &["create", "delete", "get", "list", "update"];
const ALL: &[&str] = &["create", "delete", "get", "list", "update", "watch"];

const fn rule(
    groups: &'static [&'static str],
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Rule {
    Rule { groups, resources, verbs, names: &[] }
}

/// The rights of every node, however addresses are managed.
const NODE: &[Rule] = &[
    rule(CORE, &["configmaps"], &["get"]),
    rule(CORE, &["endpoints", "namespaces", "nodes", "pods", "services"], READ),
    rule(CORE, &["serviceaccounts"], FOLLOW),
    rule(CORE, &["nodes/status"], &["patch", "update"]),
    rule(CORE, &["pods/status"], &["patch"]),
    rule(&["discovery.k8s.io"], &["endpointslices"], FOLLOW),
    rule(&["networking.k8s.io"], &["networkpolicies"], FOLLOW),
    rule(
        &["policy.networking.k8s.io"],
        &["clusternetworkpolicies", "adminnetworkpolicies", "baselineadminnetworkpolicies"],
        FOLLOW,
    ),
    rule(&["kubevirt.io"], &["virtualmachineinstancemigrations"], READ),
    rule(
        CALICO,
        &[
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
        ],
        READ,
    ),
    rule(CALICO, &["tiers"], &["create"]),
    rule(
        CALICO,
        &["bgpconfigurations", "bgppeers", "clusterinformations", "felixconfigurations", "ippools"],
        &["create", "update"],
    ),
    rule(CALICO, &["caliconodestatuses"], &["update"]),
];

/// Further rights of a node if Calico manages addresses.
const NODE_IPAM: &[Rule] = &[
    rule(CALICO, &["blockaffinities", "ipamblocks", "ipamhandles"], ALL),
    rule(CALICO, &["ipamconfigs", "ipamconfigurations"], &["create", "get"]),
    rule(&["apps"], &["daemonsets"], &["get"]),
    // The node's agent acts for the plugin, and reads virtual machines like the plugin.
    rule(&["kubevirt.io"], &["virtualmachineinstances", "virtualmachines"], &["get"]),
];

/// The rights of a node if Calico's data is in an etcd.
const NODE_ETCD: &[Rule] = &[
    rule(CORE, &["configmaps"], &["get"]),
    rule(CORE, &["namespaces", "nodes", "pods"], &["get"]),
    rule(CORE, &["endpoints", "services"], FOLLOW),
    rule(CORE, &["nodes/status"], &["patch"]),
    rule(&["discovery.k8s.io"], &["endpointslices"], FOLLOW),
];

const PLUGIN: &[Rule] =
    &[rule(CORE, &["namespaces", "nodes", "pods"], &["get"]), rule(CORE, &["pods/status"], &["patch"])];

const PLUGIN_IPAM: &[Rule] = &[
    rule(
        CALICO,
        &[
            "blockaffinities",
            "clusterinformations",
            "ipamblocks",
            "ipamconfigs",
            "ipamconfigurations",
            "ipamhandles",
            "ippools",
            "ipreservations",
        ],
        CHANGE,
    ),
    rule(&["kubevirt.io"], &["virtualmachineinstances", "virtualmachines"], &["get"]),
];

const PLUGIN_ETCD: &[Rule] = &[rule(CORE, &["namespaces", "nodes", "pods"], &["get"])];

const CONTROLLERS: &[Rule] = &[
    rule(CORE, &["namespaces", "nodes", "pods"], READ),
    rule(CORE, &["services", "services/status"], &["get", "list", "update", "watch"]),
    rule(CALICO, &["ipreservations"], FOLLOW),
    rule(
        CALICO,
        &[
            "blockaffinities",
            "hostendpoints",
            "ipamblocks",
            "ipamconfigs",
            "ipamconfigurations",
            "ipamhandles",
            "tiers",
        ],
        ALL,
    ),
    rule(CALICO, &["ippools"], FOLLOW),
    rule(
        CALICO,
        &["clusterinformations", "kubecontrollersconfigurations"],
        &["create", "get", "list", "update", "watch"],
    ),
    rule(CALICO, &["kubecontrollersconfigurations/status"], &["get", "update"]),
    rule(
        CALICO,
        &["globalnetworkpolicies", "networkpolicies", "stagedglobalnetworkpolicies", "stagednetworkpolicies"],
        ALL,
    ),
    rule(&["apps"], &["daemonsets", "deployments"], READ),
    rule(&["kubevirt.io"], &["virtualmachineinstances", "virtualmachines"], READ),
];

const CONTROLLERS_ETCD: &[Rule] = &[
    rule(CORE, &["namespaces", "nodes", "pods", "serviceaccounts"], READ),
    rule(CORE, &["services", "services/status"], &["get", "list", "update", "watch"]),
    rule(&["networking.k8s.io"], &["networkpolicies"], FOLLOW),
];

const FLANNEL: &[Rule] = &[
    rule(CORE, &["pods"], &["get"]),
    rule(CORE, &["nodes"], FOLLOW),
    rule(CORE, &["nodes/status"], &["patch"]),
];

const TIER_GETTER: &[Rule] = &[rule(&["projectcalico.org"], &["tiers"], &["get"])];

/// The rights of `calico-node`, except the right to fetch tokens, which contains names.
#[must_use]
pub fn node_rules(like: Like) -> Vec<Rule> {
    match like {
        Like::CalicoEtcd => NODE_ETCD.to_vec(),
        _ if like.has_ipam() => [NODE, NODE_IPAM].concat(),
        _ => NODE.to_vec(),
    }
}

/// The rights of the CNI plugin.
#[must_use]
pub fn plugin_rules(like: Like) -> Vec<Rule> {
    match like {
        Like::CalicoEtcd => PLUGIN_ETCD.to_vec(),
        _ if like.has_ipam() => [PLUGIN, PLUGIN_IPAM].concat(),
        _ => PLUGIN.to_vec(),
    }
}

/// The rights of kube-controllers.
#[must_use]
pub fn controllers_rules(like: Like) -> &'static [Rule] {
    if like == Like::CalicoEtcd { CONTROLLERS_ETCD } else { CONTROLLERS }
}

/// The right to fetch tokens for the plugin's kubeconfig.
#[must_use]
pub fn token_rule(like: Like) -> Rule {
    let names: &[&str] =
        if like == Like::Canal { &["canal", "calico-cni-plugin"] } else { &["calico-cni-plugin"] };
    Rule { groups: CORE, resources: &["serviceaccounts/token"], verbs: &["create"], names }
}

/// Accounts, roles and bindings.
#[must_use]
pub fn objects(options: &Options) -> Vec<Object> {
    let like = options.like;
    let account = like.node_name();
    let mut node = vec![token_rule(like)];
    node.extend(node_rules(like));
    let mut objects = vec![
        service_account("calico-kube-controllers"),
        service_account(account),
        service_account("calico-cni-plugin"),
        role("calico-kube-controllers", controllers_rules(like)),
        role("calico-node", &node),
        role("calico-cni-plugin", &plugin_rules(like)),
        role("calico-tier-getter", TIER_GETTER),
        binding("calico-kube-controllers", "calico-kube-controllers", &of_account("calico-kube-controllers")),
        binding("calico-cni-plugin", "calico-cni-plugin", &of_account("calico-cni-plugin")),
        binding(
            "calico-tier-getter",
            "calico-tier-getter",
            &json!({"apiGroup": RBAC, "kind": "User", "name": "system:kube-controller-manager"}),
        ),
    ];
    if like == Like::Canal {
        objects.push(role("flannel", FLANNEL));
        objects.push(binding("canal-flannel", "flannel", &of_account(account)));
        objects.push(binding("canal-calico", "calico-node", &of_account(account)));
    } else {
        objects.push(binding("calico-node", "calico-node", &of_account(account)));
    }
    objects
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// An account in the common namespace.
pub(crate) fn service_account(name: &str) -> Object {
    Object::plain(
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}),
    )
}

/// A cluster role.
pub(crate) fn role(name: &str, rules: &[Rule]) -> Object {
    let rules: Vec<Value> = rules.iter().map(|rule| rule.value()).collect();
    Object::new(
        "",
        json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}),
    )
}

/// An account in that namespace as the subject of a binding.
pub(crate) fn of_account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE})
}

/// A binding of a cluster role.
pub(crate) fn binding(name: &str, role: &str, subject: &Value) -> Object {
    Object::new(
        "",
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        }),
    )
}
