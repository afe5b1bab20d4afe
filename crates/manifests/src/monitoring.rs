//! Monitoring: alerts as a table, each with a remedy; dashboards from the figures that components offer; the objects by
//! which Prometheus finds them.
//!
//! Figures are passed in (`cargo xtask generate` reads them from the code), so that a dashboard cannot show a figure
//! that no component offers; a test refuses an alert over an unknown figure.

use crate::NAMESPACE;
use crate::objects::Object;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A figure that a component offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// `counter`, `gauge` or `summary`.
    pub kind: String,
    /// What it means.
    pub meaning: String,
}

/// The figures of one component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// Its figures.
    pub figures: Vec<Figure>,
}

/// An alert.
#[derive(Clone, Copy, Debug)]
pub struct Alert {
    /// Its name.
    pub name: &'static str,
    /// When it fires, in Prometheus' language.
    pub expression: &'static str,
    /// How long the condition must hold.
    pub lasting: &'static str,
    /// Its severity.
    pub severity: &'static str,
    /// The problem, in a sentence.
    pub summary: &'static str,
    /// The remedy.
    pub remedy: &'static str,
}

const fn alert(
    name: &'static str,
    severity: &'static str,
    lasting: &'static str,
    expression: &'static str,
) -> Alert {
    Alert { name, expression, lasting, severity, summary: "", remedy: "" }
}

impl Alert {
    const fn says(mut self, summary: &'static str, remedy: &'static str) -> Self {
        self.summary = summary;
        self.remedy = remedy;
        self
    }
}

/// Every alert.
pub const ALERTS: &[Alert] = &[
    alert("CalicoBgpSessionDown", "warning", "5m", "bgp_session_established == 0").says(
        "A BGP session of a node is not established.",
        "`calicoctl node status` on the node says in which state it is and what the last error was; then look at TCP port 179 \
         between the two, at the AS numbers and at the password.",
    ),
    alert("CalicoConnectionsNearlyFull", "warning", "5m", "felix_bpf_conntrack_fullness > 0.8").says(
        "A map of connections of the eBPF dataplane is more than four fifths full; a full one forgets the most silent connections.",
        "Above nine tenths Felix makes it twice as large, unless `bpfMapSizeConntrackScaling` is `Disabled`; `bpfMapSizeConntrack` \
         sets it. `calico-node -bpf conntrack stats` says what the connections are.",
    ),
    alert("CalicoControllersDown", "warning", "15m", "absent(ipam_ippool_size)").says(
        "kube-controllers offers no figures: addresses of pods that are gone are not released.",
        "`kubectl -n kube-system logs deploy/calico-kube-controllers`; `tortie status` says whether it runs.",
    ),
    alert("CalicoDataplaneFailures", "critical", "5m", "increase(felix_int_dataplane_failures[10m]) > 3").says(
        "Felix fails to bring the kernel up to date, again and again.",
        "The node's log names what was refused. What is programmed stays, so that nothing opens; changes of policy do not arrive.",
    ),
    alert(
        "CalicoDataplaneSlow",
        "warning",
        "15m",
        "rate(felix_int_dataplane_apply_time_seconds_sum[5m]) / rate(felix_int_dataplane_apply_time_seconds_count[5m]) > 2",
    )
    .says(
        "It takes seconds until a change of policy is in the kernel.",
        "Look at the node's CPU, and at the number of rules and sets; `felix_calc_graph_update_time_seconds` tells whether \
         calculation or kernel is slow.",
    ),
    alert("CalicoFelixOutOfSync", "critical", "10m", "felix_resync_state < 3").says(
        "A node's Felix does not follow the datastore.",
        "The node's log says what it waits for: the API (or etcd), Typha, or a right that is missing. `tortie doctor` checks rights.",
    ),
    alert("CalicoFilesRunningOut", "warning", "15m", "process_open_fds / process_max_fds > 0.8").says(
        "A component has nearly as many files open as it may.",
        "Raise the limit of open files; if the number only ever grows, restart the pod and report it.",
    ),
    alert(
        "CalicoInterfacesFlapping",
        "warning",
        "15m",
        "rate(felix_int_dataplane_iface_msg_batch_size_sum[5m]) / rate(felix_int_dataplane_iface_msg_batch_size_count[5m]) > 5",
    )
    .says(
        "Interfaces of a node change their state many at a time.",
        "Look for pods that restart in a loop, and for a program that manages `cali*` interfaces (NetworkManager, \
         systemd-networkd): `tortie doctor` on the node.",
    ),
    alert("CalicoIpsetErrors", "critical", "5m", "increase(felix_ipset_errors[10m]) > 0").says(
        "Changes of IP sets fail on a node.",
        "The node's log contains the kernel's error message, which says if a set is full. Rules that use it stay closed.",
    ),
    alert("CalicoIptablesErrors", "critical", "5m", "increase(felix_iptables_restore_errors[10m]) + increase(felix_iptables_save_errors[10m]) > 0").says(
        "iptables refuses to be read or written on a node.",
        "Often two variants of iptables on one host, or a program that holds the lock: `tortie doctor` on the node.",
    ),
    alert("CalicoKernelRefusesRules", "critical", "5m", "felix_int_dataplane_refused > 0").says(
        "The kernel refuses rules, sets or members; they are closed instead.",
        "The node's log names each with its policy. Traffic that such a policy allows does not pass until it is changed.",
    ),
    alert("CalicoLeakedAddresses", "warning", "1h", "sum by (node) (ipam_allocations_gc_candidates) > 50").says(
        "Many unused addresses have not been released yet.",
        "`calicoctl ipam check` lists them; look at kube-controllers' log for what keeps it from releasing them.",
    ),
    alert("CalicoMemoryHigh", "warning", "30m", "process_resident_memory_bytes{job=~\".*(calico|canal|felix|typha).*\"} > 500e6").says(
        "A component uses more than 500 MB.",
        "Compare with the number of endpoints and policies (`felix_cluster_num_*`); above 100 nodes run Typha.",
    ),
    alert("CalicoNftErrors", "critical", "5m", "increase(felix_nft_errors[10m]) + increase(felix_nft_set_errors[10m]) > 0").says(
        "nftables refuses transactions on a node.",
        "The node's log contains the kernel's error message and the rule that it is about.",
    ),
    alert("CalicoNodeUnready", "critical", "10m", "kube_daemonset_status_number_unavailable{daemonset=~\"calico-node|canal\"} > 0").says(
        "Nodes are without a ready calico-node (a figure of kube-state-metrics).",
        "`tortie status` names the nodes and why; `kubectl -n kube-system describe pod` has the probe's words.",
    ),
    alert(
        "CalicoPoolNearlyFull",
        "warning",
        "15m",
        "sum by (ippool) (ipam_allocations_in_use) / sum by (ippool) (ipam_ippool_size - ipam_ippool_reserved) > 0.9",
    )
    .says(
        "A pool has less than a tenth of its addresses left.",
        "`calicoctl ipam show --show-blocks`; add a pool (`calicoctl create -f`), or let go of addresses that leak.",
    ),
    alert("CalicoTyphaSlowClients", "warning", "15m", "rate(typha_client_latency_secs_sum[5m]) / rate(typha_client_latency_secs_count[5m]) > 10").says(
        "Clients of a Typha are seconds behind.",
        "More Typhas, or more CPU for them; a single slow node is named in Typha's log.",
    ),
    alert("CalicoTyphaWithoutClients", "warning", "30m", "typha_connections_active == 0").says(
        "A Typha has no clients.",
        "Nodes that cannot reach port 5473 follow nothing: look at `FELIX_TYPHAK8SSERVICENAME`, certificates and firewalls.",
    ),
    alert("CalicoWireguardStale", "warning", "10m", "time() - wireguard_latest_handshake_seconds > 600 and rate(wireguard_bytes_sent[10m]) > 0").says(
        "Packets are sent to a WireGuard peer that does not answer.",
        "UDP port 51820 (51821 for IPv6) between the nodes; the key in the Node's annotation must be the one of its device.",
    ),
];

/// The figures in an alert's expression, of those that begin with one of our prefixes.
#[must_use]
pub fn figures_in(expression: &str) -> Vec<String> {
    let words = expression.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    let ours = ["felix_", "bgp_", "process_", "typha_", "wireguard_", "ipam_"];
    words.filter(|word| ours.iter().any(|prefix| word.starts_with(prefix))).map(str::to_owned).collect()
}

/// The alerts as an object of the Prometheus operator.
#[must_use]
pub fn prometheus_rule() -> Object {
    let rules: Vec<Value> = ALERTS
        .iter()
        .map(|alert| {
            json!({
                "alert": alert.name,
                "expr": alert.expression,
                "for": alert.lasting,
                "labels": {"severity": alert.severity},
                "annotations": {
                    "summary": alert.summary,
                    "description": alert.remedy,
                    "runbook": format!("docs/reference/alerts.md#{}", alert.name.to_lowercase()),
                },
            })
        })
        .collect();
    Object::new(
        "Alerts; docs/reference/alerts.md says what to do about each.",
        json!({
            "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
            "metadata": {"name": "tortie", "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": "tortie"}},
            "spec": {"groups": [{"name": "tortie", "rules": rules}]},
        }),
    )
}

/// Where components serve their figures: the component, its pods' label, the port.
const TARGETS: [(&str, &str, u16); 4] = [
    ("felix-metrics-svc", "calico-node", 9091),
    ("canal-metrics-svc", "canal", 9091),
    ("typha-metrics-svc", "calico-typha", 9093),
    ("kube-controllers-metrics-svc", "calico-kube-controllers", 9094),
];

/// Headless services, for a Prometheus that discovers targets by them.
#[must_use]
pub fn services() -> Vec<Object> {
    let service = |(name, app, port): (&str, &str, u16)| {
        Object::new(
            "",
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {
                    "name": name, "namespace": NAMESPACE, "labels": {"k8s-app": app},
                    "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": port.to_string()},
                },
                "spec": {
                    "clusterIP": "None",
                    "selector": {"k8s-app": app},
                    "ports": [{"name": "metrics", "port": port, "targetPort": port}],
                },
            }),
        )
    };
    TARGETS.into_iter().map(service).collect()
}

/// Objects of the Prometheus operator that find pods by the port named `metrics`.
#[must_use]
pub fn pod_monitors() -> Vec<Object> {
    let monitor = |(_, app, _): (&str, &str, u16)| {
        Object::new(
            "",
            json!({
                "apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor",
                "metadata": {"name": app, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": "tortie"}},
                "spec": {
                    "selector": {"matchLabels": {"k8s-app": app}},
                    "podMetricsEndpoints": [{"port": "metrics", "path": "/metrics", "interval": "30s"}],
                },
            }),
        )
    };
    TARGETS.into_iter().map(monitor).collect()
}

/// Dashboards for Grafana, as a config map like Calico's.
#[must_use]
pub fn dashboards(components: &[Component]) -> Object {
    let mut data = json!({});
    for component in components {
        let file = format!("{}-dashboard.json", component.name.to_lowercase().replace(' ', "-"));
        data[file] = json!(format!("{:#}\n", dashboard(component)));
    }
    Object::new(
        "Dashboards: a panel for every figure that a component offers.",
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": "grafana-dashboards-config", "namespace": "calico-monitoring",
                "labels": {"grafana_dashboard": "1"},
            },
            "data": data,
        }),
    )
}

/// One dashboard: three panels in a row, in the order of the figures.
#[must_use]
pub fn dashboard(component: &Component) -> Value {
    let panels: Vec<Value> = component
        .figures
        .iter()
        .enumerate()
        .map(|(index, figure)| {
            let (column, row) = (index % 3 * 8, index / 3 * 7);
            json!({
                "id": index + 1,
                "type": "timeseries",
                "title": title(&figure.name),
                "description": figure.meaning,
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "gridPos": {"h": 7, "w": 8, "x": column, "y": row},
                "targets": [{"expr": expression(figure), "legendFormat": "{{instance}}", "refId": "A"}],
            })
        })
        .collect();
    json!({
        "title": format!("Tortie: {}", component.name),
        "uid": format!("tortie-{}", component.name.to_lowercase().replace(' ', "-")),
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
            {
                "name": "instance", "type": "query", "label": "Instance", "multi": true, "includeAll": true,
                "allValue": ".*", "refresh": 2,
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "query": {"query": format!("label_values({}, instance)", first(component)), "refId": "A"},
            },
        ]},
        "panels": panels,
    })
}

fn first(component: &Component) -> &str {
    component.figures.first().map_or("up", |figure| figure.name.as_str())
}

/// How a figure is shown: counters as a rate, summaries as their average.
fn expression(figure: &Figure) -> String {
    let name = &figure.name;
    match figure.kind.as_str() {
        "counter" => format!("rate({name}{{instance=~\"$instance\"}}[$__rate_interval])"),
        "summary" => format!(
            "rate({name}_sum{{instance=~\"$instance\"}}[$__rate_interval]) / \
             rate({name}_count{{instance=~\"$instance\"}}[$__rate_interval])"
        ),
        _ => format!("{name}{{instance=~\"$instance\"}}"),
    }
}

/// The name of a figure as a title.
fn title(name: &str) -> String {
    name.replace('_', " ")
}

/// The alerts as a page: the meaning of each, and its remedy.
#[must_use]
pub fn runbook() -> String {
    let mut text = String::new();
    for alert in ALERTS {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "## {}\n\n{} ({}, after {})\n\n```\n{}\n```\n\n{}\n\n",
            alert.name, alert.summary, alert.severity, alert.lasting, alert.expression, alert.remedy
        );
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alert_is_complete_and_in_order() {
        assert!(ALERTS.is_sorted_by_key(|alert| alert.name));
        for alert in ALERTS {
            assert!(!alert.summary.is_empty() && !alert.remedy.is_empty(), "{}", alert.name);
            let count = |letter| alert.expression.matches(letter).count();
            assert_eq!((count('('), count('[')), (count(')'), count(']')), "{}", alert.expression);
            let is_of_others = alert.expression.starts_with("kube_");
            assert!(is_of_others || !figures_in(alert.expression).is_empty(), "{}", alert.name);
        }
    }

    #[test]
    fn a_panel_for_every_figure() {
        let figure =
            |name: &str, kind: &str| Figure { name: name.into(), kind: kind.into(), meaning: "It.".into() };
        let component = Component {
            name: "Felix".into(),
            figures: vec![
                figure("felix_a", "counter"),
                figure("felix_b", "gauge"),
                figure("felix_c", "summary"),
            ],
        };
        let board = dashboard(&component);
        let expressions: Vec<&str> = board["panels"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|panel| panel["targets"][0]["expr"].as_str())
            .collect();
        assert_eq!(
            expressions,
            [
                "rate(felix_a{instance=~\"$instance\"}[$__rate_interval])",
                "felix_b{instance=~\"$instance\"}",
                "rate(felix_c_sum{instance=~\"$instance\"}[$__rate_interval]) / rate(felix_c_count{instance=~\"$instance\"}[$__rate_interval])",
            ]
        );
        assert_eq!(board["panels"][2]["gridPos"]["x"], 16);
    }
}
