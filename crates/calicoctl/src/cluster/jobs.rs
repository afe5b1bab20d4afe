//! The `kubectl` queries of cluster diagnostics, as data: pure, so that they can be read and tested.

use serde_json::Value;
use std::path::{Path, PathBuf};

/// One query and the file for its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Job {
    /// The line that announces it.
    pub info: String,
    /// The arguments of `kubectl`.
    pub arguments: Vec<String>,
    /// The file for the answer.
    pub file: PathBuf,
    /// A link to the answer from elsewhere.
    pub link: Option<PathBuf>,
    /// The query to use instead if this one is not understood, and the file for its answer.
    pub fallback: Option<(Vec<String>, PathBuf)>,
}

impl Job {
    /// A query whose words contain no spaces.
    #[must_use]
    pub(crate) fn new(info: impl Into<String>, line: &str, file: PathBuf) -> Self {
        Self { info: info.into(), arguments: words(line), file, ..Self::default() }
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// The plurals of Kubernetes resources that matter to networking.
const EVERYWHERE: &[&str] = &[
    "configmaps",
    "daemonsets",
    "deployments",
    "endpoints",
    "endpointslices",
    "pods",
    "pv",
    "pvc",
    "sc",
    "services",
    "statefulsets",
    "jobs",
    "cronjobs",
    "backendlbpolicies",
    "backendtlspolicies",
    "gatewayclasses",
    "gateways",
    "grpcroutes",
    "httproutes",
    "referencegrants",
    "tcproutes",
    "tlsroutes",
    "udproutes",
];

/// Resources with ambiguous short names, and cluster-scoped resources.
const QUALIFIED: &[&str] = &[
    "nodes",
    "namespaces",
    "networkpolicies.networking.k8s.io",
    "adminnetworkpolicies.policy.networking.k8s.io",
    "baselineadminnetworkpolicies.policy.networking.k8s.io",
    "clusternetworkpolicies.policy.networking.k8s.io",
    "network-attachment-definitions.k8s.cni.cncf.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "apiservices.apiregistration.k8s.io",
];

const THIRD_PARTY: &[&str] = &["elasticsearches", "kibanas", "prometheuses", "alertmanagers"];

/// Two queries for a resource: complete, and for reading.
fn both_forms(what: &str, resource: &str, file: &str, folder: &Path) -> [Job; 2] {
    [("yaml", "yaml", "yaml"), ("wide text", "wide", "txt")].map(|(title, form, ending)| {
        Job::new(
            format!("Collect {what} ({title})"),
            &format!("get {resource} -o {form}"),
            folder.join(format!("{file}.{ending}")),
        )
    })
}

/// Queries for the resources of Kubernetes itself.
#[must_use]
pub(crate) fn kubernetes(folder: &Path) -> Vec<Job> {
    let everywhere = EVERYWHERE.iter().map(|resource| (*resource, format!("{resource} --all-namespaces")));
    let qualified = QUALIFIED.iter().map(|resource| (*resource, format!("{resource} --all-namespaces")));
    everywhere
        .chain(qualified)
        .flat_map(|(name, query)| both_forms(name, &query, name.split('.').next().unwrap_or(name), folder))
        .collect()
}

/// Queries for third-party resources that Calico's components may depend on.
#[must_use]
pub(crate) fn third_party(folder: &Path) -> Vec<Job> {
    THIRD_PARTY
        .iter()
        .flat_map(|name| both_forms(name, &format!("{name} --all-namespaces"), name, folder))
        .collect()
}

/// The query for everything in one namespace.
#[must_use]
pub(crate) fn namespace(name: &str, folder: &Path) -> Vec<Job> {
    both_forms(&format!("all in {name}"), &format!("all -n {name}"), name, &folder.join(name)).to_vec()
}

/// Queries for Calico's resources, as named by their definitions (`kubectl get crd -o json`).
#[must_use]
pub(crate) fn calico(definitions: &Value, folder: &Path) -> Vec<Job> {
    let mut jobs = Vec::new();
    for definition in items(definitions) {
        let name = text(definition, "/metadata/name");
        if !name.contains("projectcalico") && !name.contains("tigera") {
            continue;
        }
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
        let stored = versions.into_iter().flatten().find(|version| version["storage"] == Value::Bool(true));
        // Two groups may share a plural; version and group make it unambiguous.
        let resource = match (name.split_once('.'), stored.map(|version| text(version, "/name"))) {
            (Some((plural, group)), Some(version)) if !version.is_empty() => {
                format!("{plural}.{version}.{group}")
            }
            _ => name.to_owned(),
        };
        jobs.extend(both_forms(&format!("Calico {resource}"), &format!("{resource} -A"), name, folder));
    }
    jobs
}

/// Queries for the logs and the description of a pod.
#[must_use]
pub(crate) fn pod(pod: &Value, since: &str, nodes: &Path, links: &Path) -> Vec<Job> {
    let (name, namespace) = (text(pod, "/metadata/name"), text(pod, "/metadata/namespace"));
    let folder = nodes.join(text(pod, "/spec/nodeName")).join(namespace);
    let link = |file: &str| Some(links.join(namespace).join(file));
    let mut jobs = vec![
        Job {
            link: link(&format!("{name}.log")),
            ..Job::new(
                format!("Collect logs for pod {name}"),
                &format!("logs --since={since} -n {namespace} {name} --all-containers"),
                folder.join(format!("{name}.log")),
            )
        },
        Job {
            link: link(&format!("{name}.txt")),
            ..Job::new(
                format!("Collect describe for pod {name}"),
                &format!("-n {namespace} describe pods {name}"),
                folder.join(format!("{name}.txt")),
            )
        },
    ];
    // One at a time: kubectl gives up on all containers when one of them has no earlier log.
    for container in restarted_containers(pod) {
        let file = format!("{name}.{container}.previous.log");
        jobs.push(Job {
            link: link(&file),
            ..Job::new(
                format!("Collect previous logs for container {container} in pod {name}"),
                &format!("logs --previous --since={since} -n {namespace} {name} -c {container}"),
                folder.join(&file),
            )
        });
    }
    jobs
}

fn restarted_containers(pod: &Value) -> Vec<&str> {
    let lists = ["/status/containerStatuses", "/status/initContainerStatuses"];
    let statuses = lists.iter().filter_map(|list| pod.pointer(list).and_then(Value::as_array)).flatten();
    let has_restarted = |status: &&Value| {
        status["restartCount"].as_i64().unwrap_or_default() > 0
            || status.pointer("/lastState/terminated").is_some_and(|state| !state.is_null())
    };
    statuses
        .filter(has_restarted)
        .map(|status| text(status, "/name"))
        .filter(|name| !name.is_empty())
        .collect()
}

/// Facts about the machine from a node's container: from a program, which our image does not have, or else from the
/// node itself.
const MACHINE: &[(&str, &str, &str, &str)] = &[
    ("iptables (legacy)", "iptables-legacy-save -c", "iptables-legacy-save.txt", ""),
    ("iptables (nft)", "iptables-nft-save -c", "iptables-nft-save.txt", "nft"),
    ("nftables", "nft -n -a list ruleset", "nft-ruleset.txt", "nft"),
    ("ip routes", "ip route show table all", "ip-route.txt", "route"),
    ("ipv6 routes", "ip -6 route show table all", "ip-route-v6.txt", "route6"),
    ("ip rule", "ip rule", "ip-rule.txt", "rule"),
    ("ip addr", "ip addr", "ip-addr.txt", "addr"),
    ("ip link", "ip link", "ip-link.txt", "link"),
    ("ip neigh", "ip neigh", "ip-neigh.txt", "neigh"),
    ("ipset list", "ipset list", "ipset-list.txt", "ipset"),
    ("conntrack stats", "conntrack -LSC", "conntrack-list.txt", "conntrack"),
    ("tc qdisc", "tc qdisc show", "tc-qdisc.txt", "qdisc"),
];

/// Facts from the eBPF dataplane; as text if the node does not know JSON.
const BPF: &[(&str, &str, &str)] = &[
    ("conntrack", "conntrack dump", "bpf-conntrack"),
    ("ipsets", "ipsets dump", "bpf-ipsets"),
    ("nat", "nat dump", "bpf-nat"),
    ("routes", "routes dump", "bpf-routes"),
    ("counters", "counters dump", "bpf-counters"),
    ("arp", "arp dump", "bpf-arp"),
    ("ifstate", "ifstate dump", "bpf-ifstate"),
    ("conntrack stats", "conntrack stats", "bpf-conntrack-stats"),
    ("nat affinity", "nat aff", "bpf-nat-aff"),
    ("nat maglev table", "nat maglev", "bpf-nat-maglev"),
];

/// The start of a query that runs inside a node's container.
#[must_use]
pub(crate) fn inside(namespace: &str, pod: &str) -> String {
    format!("exec -n {namespace} -t {pod} -c calico-node --")
}

/// Queries that run inside a node's container.
#[must_use]
pub(crate) fn node(node: &str, namespace: &str, pod: &str, is_bpf: bool, folder: &Path) -> Vec<Job> {
    let inside = inside(namespace, pod);
    let mut jobs: Vec<Job> = MACHINE
        .iter()
        .map(|(what, line, file, native)| Job {
            fallback: (!native.is_empty())
                .then(|| (words(&format!("{inside} {}", dump(native))), folder.join(file))),
            ..Job::new(
                format!("Collect {what} for node {node}"),
                &format!("{inside} {line}"),
                folder.join(file),
            )
        })
        .collect();
    if is_bpf {
        jobs.extend(BPF.iter().map(|(what, line, file)| Job {
            fallback: Some((
                words(&format!("{inside} calico-node -bpf {line}")),
                folder.join(format!("{file}.txt")),
            )),
            ..Job::new(
                format!("Collect eBPF {what} for node {node}"),
                &format!("{inside} calico component node bpf {line} --json"),
                folder.join(format!("{file}.json")),
            )
        }));
        for (what, line, file) in
            [("prog", "bpftool prog list", "bpf-prog.txt"), ("map", "bpftool map list", "bpf-maps.txt")]
        {
            let info = format!("Collect eBPF {what} for node {node}");
            jobs.push(Job::new(info, &format!("{inside} {line}"), folder.join(file)));
        }
    }
    jobs
}

/// The query that makes our container report about the machine without a helper program.
fn dump(what: &str) -> String {
    format!("calico component node dump {what}")
}

/// The query for the logs of the CNI plugin, in a container that has no `ls`.
#[must_use]
pub(crate) fn native_cni_logs(node: &str, namespace: &str, pod: &str, folder: &Path) -> Job {
    Job::new(
        format!("Collect CNI logs for the node {node}"),
        &format!("{} {}", inside(namespace, pod), dump("cni-logs")),
        folder.join("cni.log.log"),
    )
}

/// Queries for the contents of Calico's eBPF maps, as listed by `bpftool map list`.
#[must_use]
pub(crate) fn bpf_maps(list: &str, node: &str, namespace: &str, pod: &str, folder: &Path) -> Vec<Job> {
    let inside = inside(namespace, pod);
    let map = |line: &str| -> Option<Job> {
        let (id, rest) = line.split_once(':')?;
        let name = rest.split_once("name ")?.1.split_whitespace().next()?;
        let is_ours =
            name.starts_with("cali") && !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        is_ours.then(|| {
            Job::new(
                format!("Collect eBPF map {id}:{name} for node {node}"),
                &format!("{inside} bpftool map dump id {id}"),
                folder.join("bpf-maps").join(format!("{name}-id_{id}.txt")),
            )
        })
    };
    list.lines().filter_map(map).collect()
}

/// Queries for the logs of the CNI plugin, as listed by `ls`.
#[must_use]
pub(crate) fn cni_logs(list: &str, node: &str, namespace: &str, pod: &str, folder: &Path) -> Vec<Job> {
    let inside = inside(namespace, pod);
    let names = list.split_whitespace().filter(|name| !name.contains('/'));
    let log = |name: &str| {
        Job::new(
            format!("Collect CNI log {name} for the node {node}"),
            &format!("{inside} cat /var/log/calico/cni/{name}"),
            folder.join(format!("{name}.log")),
        )
    };
    names.map(log).collect()
}

pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.get("items").and_then(Value::as_array).into_iter().flatten()
}

/// The text at a JSON pointer; empty if there is none.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lines(jobs: &[Job]) -> Vec<String> {
        jobs.iter().map(|job| format!("{} > {}", job.arguments.join(" "), job.file.display())).collect()
    }

    #[test]
    fn resources_are_named_with_version_and_group() {
        let definition =
            |name: &str, versions: Value| json!({"metadata": {"name": name}, "spec": {"versions": versions}});
        let list = json!({"items": [
            definition("ippools.crd.projectcalico.org", json!([{"name": "v0", "storage": false}, {"name": "v1", "storage": true}])),
            definition("installations.operator.tigera.io", json!([])),
            definition("widgets.example.org", json!([{"name": "v1", "storage": true}])),
        ]});
        assert_eq!(
            lines(&calico(&list, Path::new("d"))),
            [
                "get ippools.v1.crd.projectcalico.org -A -o yaml > d/ippools.crd.projectcalico.org.yaml",
                "get ippools.v1.crd.projectcalico.org -A -o wide > d/ippools.crd.projectcalico.org.txt",
                "get installations.operator.tigera.io -A -o yaml > d/installations.operator.tigera.io.yaml",
                "get installations.operator.tigera.io -A -o wide > d/installations.operator.tigera.io.txt",
            ]
        );
    }

    #[test]
    fn containers_that_restarted_have_earlier_logs() {
        let object = json!({
            "metadata": {"name": "calico-node-x", "namespace": "calico-system"}, "spec": {"nodeName": "n1"},
            "status": {"containerStatuses": [
                {"name": "calico-node", "restartCount": 2}, {"name": "quiet", "restartCount": 0},
                {"name": "died", "restartCount": 0, "lastState": {"terminated": {"exitCode": 1}}}],
                "initContainerStatuses": [{"name": "install-cni", "restartCount": 1}]},
        });
        let jobs = pod(&object, "0s", Path::new("nodes"), Path::new("links"));
        assert_eq!(
            lines(&jobs),
            [
                "logs --since=0s -n calico-system calico-node-x --all-containers > nodes/n1/calico-system/calico-node-x.log",
                "-n calico-system describe pods calico-node-x > nodes/n1/calico-system/calico-node-x.txt",
                "logs --previous --since=0s -n calico-system calico-node-x -c calico-node > nodes/n1/calico-system/calico-node-x.calico-node.previous.log",
                "logs --previous --since=0s -n calico-system calico-node-x -c died > nodes/n1/calico-system/calico-node-x.died.previous.log",
                "logs --previous --since=0s -n calico-system calico-node-x -c install-cni > nodes/n1/calico-system/calico-node-x.install-cni.previous.log",
            ]
        );
        assert_eq!(jobs[0].link.as_deref(), Some(Path::new("links/calico-system/calico-node-x.log")));
    }

    #[test]
    fn only_calicos_maps_are_dumped() {
        let list = "35: lru_hash  name cali_v4_srmsg  flags 0x0\n\tkey 16B  value 8B\n\tpids calico-node(28576)\n36: hash  name other  flags 0x0\n";
        let jobs = bpf_maps(list, "n1", "ns", "pod", Path::new("d"));
        assert_eq!(
            lines(&jobs),
            [
                "exec -n ns -t pod -c calico-node -- bpftool map dump id 35 > d/bpf-maps/cali_v4_srmsg-id_35.txt"
            ]
        );
    }
}
