//! The report: components, network, and problems; as text for people and as JSON for programs.

use super::Facts;
use super::gather::{proxy_mode, text};
use crate::install::condition;
use crate::rollout::{progress, trouble};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// One component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The desired number.
    pub desired: i64,
    /// The number that is ready.
    pub ready: i64,
    /// Its images.
    pub images: Vec<String>,
}

/// The report about a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The address of the API.
    pub server: String,
    /// Components.
    pub components: Vec<Component>,
    /// Calico's version, as recorded in the cluster.
    pub calico_version: String,
    /// How packets are filtered.
    pub dataplane: String,
    /// The reason for that.
    pub dataplane_reason: String,
    /// Pools, a line each.
    pub pools: Vec<String>,
    /// How routes are distributed.
    pub routing: String,
    /// Problems; empty if there are none.
    pub problems: Vec<String>,
    /// Notes that may matter.
    pub notes: Vec<String>,
}

/// Computes the report from the facts.
#[must_use]
pub fn report(facts: &Facts) -> Report {
    let mut report = Report { server: facts.server.clone(), ..Report::default() };
    for workload in &facts.workloads {
        component(workload, facts, &mut report);
    }
    if !report.components.iter().any(|component| ["calico-node", "canal"].contains(&component.name.as_str()))
    {
        report
            .problems
            .push("neither the daemon set calico-node nor canal exists: nothing is installed".to_owned());
    }
    versions(facts, &mut report);
    dataplane(facts, &mut report);
    pools(facts, &mut report);
    routing(facts, &mut report);
    nodes(facts, &mut report);
    report.problems.extend(facts.unread.iter().map(|what| format!("could not be read: {what}")));
    report
}

fn component(workload: &Value, facts: &Facts, report: &mut Report) {
    let number = |place: &str| workload.pointer(place).and_then(Value::as_i64).unwrap_or_default();
    let (name, namespace) = (text(workload, "/metadata/name"), text(workload, "/metadata/namespace"));
    let (desired, ready) = match workload["kind"] == "DaemonSet" {
        true => (number("/status/desiredNumberScheduled"), number("/status/numberReady")),
        false => (
            workload.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1),
            number("/status/readyReplicas"),
        ),
    };
    let images: BTreeSet<String> = crate::install::images(workload).into_iter().collect();
    let pods: Vec<Value> = facts
        .pods
        .iter()
        .filter(|pod| {
            text(pod, "/metadata/namespace") == namespace && text(pod, "/metadata/labels/k8s-app") == name
        })
        .cloned()
        .collect();
    let far = progress(workload, &pods);
    if !far.is_done {
        report.problems.push(far.text);
    }
    let running: BTreeSet<&str> = pods.iter().flat_map(pod_images).collect();
    if running.len() > images.len() && name != "tigera-operator" {
        let list: Vec<&str> = running.into_iter().collect();
        report.notes.push(format!("{name} runs in more than one version: {}", list.join(", ")));
    }
    for pod in &pods {
        let restarts: i64 =
            containers(pod).map(|status| status["restartCount"].as_i64().unwrap_or_default()).sum();
        if restarts > 3 {
            let node = text(pod, "/spec/nodeName");
            report.notes.push(format!(
                "{name} on {node} was restarted {restarts} times: kubectl logs --previous shows why"
            ));
        }
    }
    report.components.push(Component {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        desired,
        ready,
        images: images.into_iter().collect(),
    });
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod.pointer("/status/containerStatuses").and_then(Value::as_array).into_iter().flatten()
}

fn pod_images(pod: &Value) -> Vec<&str> {
    let lists = ["/spec/initContainers", "/spec/containers"];
    let containers = lists.iter().filter_map(|list| pod.pointer(list).and_then(Value::as_array)).flatten();
    containers.filter_map(|container| container["image"].as_str()).collect()
}

fn versions(facts: &Facts, report: &mut Report) {
    match &facts.cluster_information {
        Some(information) => {
            report.calico_version = text(information, "/spec/calicoVersion").to_owned();
            if information.pointer("/spec/datastoreReady") == Some(&Value::Bool(false)) {
                report.problems.push(
                    "the datastore is locked (datastoreReady: false): calicoctl datastore migrate unlock unlocks it".to_owned(),
                );
            }
        }
        None => report.notes.push(
            "no ClusterInformation: no node has started yet, or Calico's data is in an etcd".to_owned(),
        ),
    }
}

/// A parameter of Felix from the cluster's configuration, or otherwise from the daemon set's variable.
pub(crate) fn parameter(facts: &Facts, field: &str, variable: &str) -> Option<(String, String)> {
    let of_cluster = facts.felix.iter().find(|object| text(object, "/metadata/name") == "default");
    if let Some(value) = of_cluster.and_then(|object| object.pointer(&format!("/spec/{field}"))) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        return Some((value, format!("FelixConfiguration default has {field}")));
    }
    let sets = facts.workloads.iter().filter(|workload| workload["kind"] == "DaemonSet");
    let containers =
        sets.filter_map(|set| set.pointer("/spec/template/spec/containers")?.as_array()).flatten();
    let variables = containers.filter_map(|container| container["env"].as_array()).flatten();
    let found = variables.into_iter().find(|entry| entry["name"] == variable)?;
    let value = match found.pointer("/valueFrom/configMapKeyRef/key").and_then(Value::as_str) {
        Some(key) => facts.config.as_ref()?.get("data")?.get(key)?.as_str()?,
        None => found["value"].as_str()?,
    };
    Some((value.to_owned(), format!("calico-node has the variable {variable}")))
}

fn dataplane(facts: &Facts, report: &mut Report) {
    let bpf = parameter(facts, "bpfEnabled", "FELIX_BPFENABLED");
    if let Some((value, reason)) = bpf.filter(|(value, _)| value.eq_ignore_ascii_case("true")) {
        report.dataplane = "eBPF".to_owned();
        report.dataplane_reason = format!("{reason}: {value}");
        return;
    }
    let mode = parameter(facts, "nftablesMode", "FELIX_NFTABLESMODE");
    let proxy = facts.kube_proxy.as_deref().map(proxy_mode);
    let (dataplane, reason) = match (&mode, proxy) {
        (Some((value, reason)), _) if value.eq_ignore_ascii_case("enabled") => ("nftables", reason.clone()),
        (Some((value, reason)), _) if value.eq_ignore_ascii_case("disabled") => ("iptables", reason.clone()),
        (_, Some("nftables")) => ("nftables", "as kube-proxy, whose mode is nftables (nftablesMode is Auto)".to_owned()),
        (_, Some(mode)) => {
            let mode = if mode.is_empty() { "iptables, its default" } else { mode };
            ("iptables", format!("as kube-proxy, whose mode is {mode} (nftablesMode is Auto)"))
        }
        (_, None) => (
            "nftables or iptables",
            "each node decides by its kernel (nftablesMode is Auto, and kube-proxy's configuration is not readable)".to_owned(),
        ),
    };
    report.dataplane = dataplane.to_owned();
    report.dataplane_reason = reason;
}

fn pools(facts: &Facts, report: &mut Report) {
    for pool in &facts.pools {
        let spec = |field: &str| text(pool, &format!("/spec/{field}"));
        let or_never = |mode: &str| if mode.is_empty() { "Never".to_owned() } else { mode.to_owned() };
        let is_off = pool.pointer("/spec/disabled") == Some(&Value::Bool(true));
        report.pools.push(format!(
            "{} {}: IPIP {}, VXLAN {}{}",
            text(pool, "/metadata/name"),
            spec("cidr"),
            or_never(spec("ipipMode")),
            or_never(spec("vxlanMode")),
            if is_off { ", disabled" } else { "" }
        ));
    }
    let has_ipam = parameter(facts, "", "CALICO_NETWORKING_BACKEND").is_none_or(|(value, _)| value != "none");
    if facts.pools.is_empty() && has_ipam && facts.cluster_information.is_some() {
        report.problems.push(
            "there is no IP pool: pods get no addresses. calicoctl create -f with an IPPool creates one"
                .to_owned(),
        );
    }
}

fn routing(facts: &Facts, report: &mut Report) {
    let mesh = facts
        .bgp
        .iter()
        .find(|object| text(object, "/metadata/name") == "default")
        .and_then(|object| object.pointer("/spec/nodeToNodeMeshEnabled"))
        .and_then(Value::as_bool)
        .unwrap_or(true);
    let backend = parameter(facts, "", "CALICO_NETWORKING_BACKEND").map(|(value, _)| value);
    report.routing = match backend.as_deref() {
        Some("none") => "by another network".to_owned(),
        Some("vxlan") => "VXLAN, without BGP".to_owned(),
        _ => format!(
            "BGP where pools use it: {}, {} peers",
            if mesh { "mesh of all nodes" } else { "no mesh" },
            facts.peers.len()
        ),
    };
    for status in &facts.node_statuses {
        let node = text(status, "/spec/node");
        for (list, version) in [("/status/bgp/peersV4", "IPv4"), ("/status/bgp/peersV6", "IPv6")] {
            for peer in status.pointer(list).and_then(Value::as_array).into_iter().flatten() {
                if text(peer, "/state") != "Established" {
                    let (address, state) = (text(peer, "/peerIP"), text(peer, "/state"));
                    report
                        .problems
                        .push(format!("BGP: {node} has no {version} session with {address} ({state})"));
                }
            }
        }
    }
}

fn nodes(facts: &Facts, report: &mut Report) {
    for node in &facts.nodes {
        let name = text(node, "/metadata/name");
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
        let find = |kind: &str| conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
        if !condition(node, "Ready") {
            let why = find("Ready").map(|condition| text(condition, "/message")).unwrap_or_default();
            report.problems.push(format!("node {name} is not ready: {why}"));
        }
        if condition(node, "NetworkUnavailable") {
            let why =
                find("NetworkUnavailable").map(|condition| text(condition, "/message")).unwrap_or_default();
            report.problems.push(format!("node {name} has no network: {why}"));
        }
        let mut pods = facts.pods.iter().filter(|pod| {
            text(pod, "/spec/nodeName") == name
                && ["calico-node", "canal"].contains(&text(pod, "/metadata/labels/k8s-app"))
        });
        if text(node, "/metadata/labels/kubernetes.io~1os") != "windows" && !facts.workloads.is_empty() {
            match pods.next() {
                None => report.problems.push(format!("node {name} has no pod of calico-node")),
                Some(pod) => report.notes.extend(trouble(pod).map(|what| format!("calico-node on {what}"))),
            }
        }
    }
}

impl Report {
    /// The report as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = format!("Cluster      {}\n", self.server);
        // Writing to a string does not fail.
        if !self.calico_version.is_empty() {
            let _ = writeln!(out, "Calico       {}", self.calico_version);
        }
        for component in &self.components {
            let _ = writeln!(
                out,
                "{:<24} {}/{} ready   {}",
                component.name,
                component.ready,
                component.desired,
                component.images.join(", ")
            );
        }
        if !self.dataplane.is_empty() {
            let _ = writeln!(out, "Dataplane    {}: {}", self.dataplane, self.dataplane_reason);
        }
        let _ = writeln!(out, "Routes       {}", self.routing);
        for pool in &self.pools {
            let _ = writeln!(out, "Pool         {pool}");
        }
        for note in &self.notes {
            let _ = writeln!(out, "Note         {note}");
        }
        for problem in &self.problems {
            let _ = writeln!(out, "Problem      {problem}");
        }
        if self.problems.is_empty() {
            out.push_str("No problems.\n");
        }
        out
    }
}

#[cfg(test)]
mod tests;
