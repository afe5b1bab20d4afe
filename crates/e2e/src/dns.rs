//! The cluster's name server as kubeadm installs it: CoreDNS in a deployment, its account and rights, and the service `kube-dns`.
//!
//! It resolves the cluster's names only: there is no route out of this bed, so it forwards to no other server.

use crate::images::COREDNS;
use serde_json::{Value, json};

/// kubeadm's configuration, without forwarding to other servers.
const CONFIGURATION: &str = "\
.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    reload
    loadbalance
}
";

/// All objects, with the service at this address.
pub(crate) fn objects(address: &str) -> Vec<Value> {
    let meta = |name: &str| json!({"name": name, "namespace": "kube-system"});
    let label = json!({"k8s-app": "kube-dns"});
    let port =
        |name: &str, protocol: &str, port: u16| json!({"name": name, "protocol": protocol, "port": port});
    let probe = |path: &str, port: u16| json!({"httpGet": {"path": path, "port": port}, "timeoutSeconds": 5});
    let container_port = |name: &str, protocol: &str, port: u16| json!({"name": name, "protocol": protocol, "containerPort": port});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("coredns")}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "system:coredns"},
            "rules": [
                {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "system:coredns"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
            "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}]}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("coredns"), "data": {"Corefile": CONFIGURATION}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "coredns", "namespace": "kube-system", "labels": label},
            "spec": {
                "replicas": 2,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
                "selector": {"matchLabels": label},
                "template": {"metadata": {"labels": label}, "spec": {
                    "priorityClassName": "system-cluster-critical",
                    "serviceAccountName": "coredns",
                    "dnsPolicy": "Default",
                    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100,
                        "podAffinityTerm": {"labelSelector": {"matchLabels": label}, "topologyKey": "kubernetes.io/hostname"}}]}},
                    "tolerations": [
                        {"key": "CriticalAddonsOnly", "operator": "Exists"},
                        {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}],
                    "containers": [{
                        "name": "coredns", "image": COREDNS, "imagePullPolicy": "Never",
                        "args": ["-conf", "/etc/coredns/Corefile"],
                        "resources": {"limits": {"memory": "170Mi"}, "requests": {"cpu": "100m", "memory": "70Mi"}},
                        "ports": [container_port("dns", "UDP", 53), container_port("dns-tcp", "TCP", 53),
                            container_port("metrics", "TCP", 9153)],
                        "livenessProbe": probe("/health", 8080),
                        "readinessProbe": probe("/ready", 8181),
                        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}},
                        "volumeMounts": [{"name": "config-volume", "mountPath": "/etc/coredns", "readOnly": true}]}],
                    "volumes": [{"name": "config-volume", "configMap": {"name": "coredns",
                        "items": [{"key": "Corefile", "path": "Corefile"}]}}]}}}}),
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system",
                "labels": {"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"}},
            "spec": {"clusterIP": address, "selector": label,
                "ports": [port("dns", "UDP", 53), port("dns-tcp", "TCP", 53), port("metrics", "TCP", 9153)]}}),
    ]
}
