//! Checks of a cluster.

use super::{ClusterFacts, Finding};
use crate::status::{parameter, proxy_mode, text};
use explain::counted;
use ipnet::IpNet;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Every check of a cluster.
#[must_use]
pub fn check_cluster(facts: &ClusterFacts) -> Vec<Finding> {
    let mut findings = vec![definitions(facts), owner(facts), bpf(facts), proxy(facts)];
    findings.extend(pools(facts));
    findings.push(node_addresses(facts));
    findings.push(typha(facts));
    findings.push(rights(facts));
    findings.push(clock(facts));
    let unread = &facts.status.unread;
    if !unread.is_empty() {
        findings.push(Finding::problem(
            "reading",
            format!("could not be read: {}", unread.join("; ")),
            "use an administrator's kubeconfig",
        ));
    }
    findings
}

fn definitions(facts: &ClusterFacts) -> Finding {
    let check = "definitions";
    let remedy = "`tortie crds | kubectl apply --server-side -f -` (what `tortie install` does)";
    let remedy_v3 = "`tortie upgrade`, or apply those of `tortie manifests --set useV3CRDs=true`";
    if facts.definitions.is_empty() {
        return Finding::warning(
            check,
            "no custom resource definition of Calico exists (as expected before an installation, and with etcd)",
            remedy,
        );
    }
    let has_group = |group: &str| facts.definitions.iter().any(|found| text(found, "/spec/group") == group);
    let (version, all) = match has_group("crd.projectcalico.org") {
        true => ("v1", api::crds::all()),
        false => ("v3", api::crds::all_v3()),
    };
    let remedy = if version == "v1" { remedy } else { remedy_v3 };
    let mut missing = Vec::new();
    for wanted in &all {
        let name = text(wanted, "/metadata/name");
        let Some(found) = facts.definitions.iter().find(|found| text(found, "/metadata/name") == name) else {
            missing.push(name.to_owned());
            continue;
        };
        let versions = found.pointer("/spec/versions").and_then(Value::as_array);
        let serves =
            versions.into_iter().flatten().any(|one| one["name"] == version && one["served"] == true);
        if !serves {
            return Finding::problem(check, format!("{name} does not serve {version}"), remedy);
        }
        let stored = found.pointer("/status/storedVersions").and_then(Value::as_array);
        let others: Vec<&str> =
            stored.into_iter().flatten().filter_map(Value::as_str).filter(|one| *one != version).collect();
        if !others.is_empty() {
            return Finding::problem(
                check,
                format!(
                    "objects of {name} are stored in {}, which this version does not read",
                    others.join(", ")
                ),
                format!("migrate them back to {version} with the program that wrote them"),
            );
        }
    }
    match missing.is_empty() {
        true => Finding::ok(check, format!("all {} are served, and stored as {version}", all.len())),
        false => Finding::warning(check, format!("missing: {}", missing.join(", ")), remedy),
    }
}

fn owner(facts: &ClusterFacts) -> Finding {
    match facts.has_operator {
        false => Finding::ok("operator", "no operator owns Calico's objects"),
        true => Finding::warning(
            "operator",
            "Calico's operator is installed and reverts changes to its objects",
            "before a change of images: kubectl -n tigera-operator scale deploy/tigera-operator --replicas=0, or the annotation \
             unsupported.operator.tigera.io/ignore: \"true\" on the daemon set",
        ),
    }
}

fn felix(facts: &ClusterFacts) -> Option<&Value> {
    facts.status.felix.iter().find(|object| text(object, "/metadata/name") == "default")
}

fn bpf(facts: &ClusterFacts) -> Finding {
    let check = "eBPF";
    let chosen = parameter(&facts.status, "bpfEnabled", "FELIX_BPFENABLED");
    let Some((_, reason)) = chosen.filter(|(value, _)| value.eq_ignore_ascii_case("true")) else {
        return Finding::ok(check, "not in use");
    };
    match facts.proxied_nodes {
        Some(nodes) if nodes > 0 => Finding::warning(
            check,
            format!(
                "eBPF programs serve services ({reason}), and so does kube-proxy on {}",
                counted(usize::try_from(nodes).unwrap_or_default(), "node")
            ),
            "kubectl -n kube-system patch daemonset kube-proxy -p \
             '{\"spec\":{\"template\":{\"spec\":{\"nodeSelector\":{\"non-calico\":\"true\"}}}}}'",
        ),
        _ if !facts.has_api_endpoint => Finding::warning(
            check,
            format!(
                "eBPF programs serve services ({reason}), and no address of the API other than its service is configured: nodes do not start \
                 unless something else routes the service"
            ),
            "--set kubernetesServiceEndpoint.host=... --set kubernetesServiceEndpoint.port=..., or the config map \
             kube-system/kubernetes-services-endpoint",
        ),
        _ => Finding::ok(check, format!("eBPF programs enforce policy and serve services ({reason})")),
    }
}

fn proxy(facts: &ClusterFacts) -> Finding {
    let check = "kube-proxy";
    let wanted = felix(facts).map(|felix| text(felix, "/spec/nftablesMode")).unwrap_or_default();
    let Some(configuration) = facts.status.kube_proxy.as_deref() else {
        return Finding::unknown(
            check,
            "its configuration is not in kube-system/kube-proxy: each node decides by the state of its kernel",
        );
    };
    let mode = match proxy_mode(configuration) {
        "" => "iptables",
        mode => mode,
    };
    match (mode, wanted) {
        ("nftables", "Disabled") => Finding::warning(
            check,
            "kube-proxy uses nftables, and nftablesMode is Disabled: both kinds of rules on every node",
            "set nftablesMode: Auto in the FelixConfiguration default",
        ),
        ("iptables" | "ipvs", "Enabled") => Finding::warning(
            check,
            format!("kube-proxy uses {mode}, and nftablesMode is Enabled: both kinds of rules on every node"),
            "set nftablesMode: Auto in the FelixConfiguration default, or kube-proxy's mode to nftables",
        ),
        _ => Finding::ok(
            check,
            format!(
                "its mode is {mode}; nftablesMode is {}",
                if wanted.is_empty() { "Auto" } else { wanted }
            ),
        ),
    }
}

/// The ranges in a line of a configuration, at any depth.
fn ranges(configuration: Option<&str>, key: &str) -> Vec<IpNet> {
    let lines = configuration.into_iter().flat_map(str::lines);
    let found = lines.filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix(':'));
    let texts = found.flat_map(|value| value.trim().trim_matches('"').split(','));
    texts.filter_map(|text| text.trim().parse().ok()).collect()
}

fn overlaps(left: &IpNet, right: &IpNet) -> bool {
    left.contains(right) || right.contains(left)
}

fn pools(facts: &ClusterFacts) -> Vec<Finding> {
    let check = "pools";
    let mut findings = Vec::new();
    let kubeadm = facts.kubeadm.as_deref();
    let mut pods = ranges(kubeadm, "podSubnet");
    if pods.is_empty() {
        pods = ranges(facts.status.kube_proxy.as_deref(), "clusterCIDR");
    }
    let mut services = ranges(kubeadm, "serviceSubnet");
    services.extend(facts.service_ranges.iter().filter_map(|range| range.parse::<IpNet>().ok()));
    let nodes = addresses(facts);
    for pool in &facts.status.pools {
        let name = text(pool, "/metadata/name");
        let Ok(cidr) = text(pool, "/spec/cidr").parse::<IpNet>() else {
            findings.push(Finding::problem(
                check,
                format!("{name} has no range that can be read: {:?}", text(pool, "/spec/cidr")),
                "calicoctl replace -f with a range",
            ));
            continue;
        };
        let of_family = |net: &&IpNet| net.addr().is_ipv4() == cidr.addr().is_ipv4();
        let same: Vec<&IpNet> = pods.iter().filter(of_family).collect();
        if !same.is_empty() && !same.iter().any(|range| range.contains(&cidr)) {
            let list: Vec<String> = same.iter().map(ToString::to_string).collect();
            findings.push(Finding::warning(
                check,
                format!("{name} ({cidr}) is not inside the cluster's range {}: kube-proxy treats its pods as external", list.join(", ")),
                "create a pool inside that range, or change clusterCIDR of kube-proxy and the controller manager",
            ));
        }
        if let Some(range) = services.iter().find(|range| overlaps(range, &cidr)) {
            findings.push(Finding::problem(
                check,
                format!("{name} ({cidr}) overlaps the services' range {range}"),
                "create another pool, disable this one, and let pods move (docs/operations.md)",
            ));
        }
        if let Some((node, address)) = nodes.iter().find(|(_, address)| cidr.contains(address)) {
            findings.push(Finding::problem(
                check,
                format!("{name} ({cidr}) contains the address {address} of node {node}"),
                "create a pool that overlaps no network of the nodes, and disable this one",
            ));
        }
    }
    if findings.is_empty() {
        findings.push(match facts.status.pools.len() {
            0 => Finding::unknown(check, "none (yet)"),
            count => {
                Finding::ok(check, format!("{count}, none of which overlaps addresses of nodes or services"))
            }
        });
    }
    findings
}

fn addresses(facts: &ClusterFacts) -> Vec<(String, IpAddr)> {
    let mut found = Vec::new();
    for node in &facts.status.nodes {
        let name = text(node, "/metadata/name").to_owned();
        for address in node.pointer("/status/addresses").and_then(Value::as_array).into_iter().flatten() {
            if address["type"] == "InternalIP"
                && let Ok(address) = text(address, "/address").parse()
            {
                found.push((name.clone(), address));
            }
        }
    }
    found
}

fn node_addresses(facts: &ClusterFacts) -> Finding {
    let check = "node addresses";
    let mut owners: BTreeMap<IpAddr, Vec<&str>> = BTreeMap::new();
    let internal = addresses(facts);
    let mut odd = Vec::new();
    for node in &facts.status.nodes {
        let name = text(node, "/metadata/name");
        for annotation in ["IPv4Address", "IPv6Address"] {
            let annotation = text(node, &format!("/metadata/annotations/projectcalico.org~1{annotation}"));
            let address = annotation.split('/').next().unwrap_or_default();
            let Ok(address) = address.parse::<IpAddr>() else { continue };
            owners.entry(address).or_default().push(name);
            let own: Vec<String> = internal
                .iter()
                .filter(|(node, own)| node == name && own.is_ipv4() == address.is_ipv4())
                .map(|(_, own)| own.to_string())
                .collect();
            if !own.is_empty() && !own.contains(&address.to_string()) {
                odd.push(format!("{name} uses {address} and not {}", own.join(" or ")));
            }
        }
    }
    if let Some((address, names)) = owners.iter().find(|(_, names)| names.len() > 1) {
        return Finding::problem(
            check,
            format!("{} have the same address {address}", names.join(" and ")),
            "set IP_AUTODETECTION_METHOD (kubernetes-internal-ip, interface=REGEX, cidr=RANGE) and restart calico-node",
        );
    }
    match odd.is_empty() {
        true => {
            let nodes = counted(facts.status.nodes.len(), "node");
            Finding::ok(check, format!("{nodes}, each with an address of its own"))
        }
        false => Finding::warning(
            check,
            format!("not kubelet's address: {}", odd.join("; ")),
            "if that is not intended, --set ipAutodetectionMethod=kubernetes-internal-ip",
        ),
    }
}

fn typha(facts: &ClusterFacts) -> Finding {
    let nodes = facts.status.nodes.len();
    let find =
        |name: &str| facts.status.workloads.iter().find(|workload| text(workload, "/metadata/name") == name);
    let image = |workload: Option<&Value>| {
        workload
            .map(|workload| text(workload, "/spec/template/spec/containers/0/image").to_owned())
            .unwrap_or_default()
    };
    let (typha, node) = (find("calico-typha"), find("calico-node").or_else(|| find("canal")));
    match typha {
        None if nodes > 50 => Finding::warning(
            "Typha",
            format!("{nodes} nodes follow the API without Typha"),
            "--set typha.enabled=true; one replica for each 100 to 200 nodes",
        ),
        None => Finding::ok("Typha", format!("not in use, with {}", counted(nodes, "node"))),
        Some(_) => {
            let (typha, node) = (image(typha), image(node));
            let tag = |image: &str| image.rsplit_once(':').map(|(_, tag)| tag.to_owned()).unwrap_or_default();
            let place =
                |image: &str| image.rsplit_once('/').map(|(place, _)| place.to_owned()).unwrap_or_default();
            if place(&typha) == place(&node) && tag(&typha) != tag(&node) {
                return Finding::warning(
                    "Typha",
                    format!("Typha is {typha} and nodes are {node}"),
                    "bring both to the same version: a Typha may refuse agents of another version",
                );
            }
            Finding::ok("Typha", typha)
        }
    }
}

fn rights(facts: &ClusterFacts) -> Finding {
    let remedy = "apply the roles of this version: `tortie manifests --like NAME --set includeCRDs=false`, or `tortie upgrade`";
    match &facts.missing_rights {
        None => Finding::unknown("rights", "this account may not query the rights of others"),
        Some(_) if facts.rights_asked == 0 => {
            Finding::unknown("rights", "nothing is installed whose rights could be checked")
        }
        Some(missing) if missing.is_empty() => {
            Finding::ok("rights", format!("all {} that components use", facts.rights_asked))
        }
        Some(missing) => {
            let shown: Vec<&str> = missing.iter().take(5).map(String::as_str).collect();
            let more =
                if missing.len() > 5 { format!("; and {} more", missing.len() - 5) } else { String::new() };
            Finding::warning("rights", format!("{}{more}", shown.join("; ")), remedy)
        }
    }
}

fn clock(facts: &ClusterFacts) -> Finding {
    match facts.clock_ahead {
        None => Finding::unknown("clock", "the API did not report its time"),
        Some(seconds) if seconds.abs() > 5 => Finding::problem(
            "clock",
            format!("the API's clock and this machine's differ by {} seconds", seconds.abs()),
            "tokens and certificates fail when clocks differ: run chrony or systemd-timesyncd on both",
        ),
        Some(_) => Finding::ok("clock", "this machine and the API agree"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use serde_json::json;

    fn node(name: &str, address: &str) -> Value {
        json!({
            "metadata": {"name": name, "annotations": {"projectcalico.org/IPv4Address": format!("{address}/24")}},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        })
    }

    fn healthy() -> ClusterFacts {
        let mut facts = ClusterFacts {
            kubeadm: Some("networking:\n  podSubnet: 10.1.0.0/16\n  serviceSubnet: 10.96.0.0/12\n".into()),
            missing_rights: Some(Vec::new()),
            rights_asked: 100,
            clock_ahead: Some(0),
            definitions: api::crds::all(),
            ..ClusterFacts::default()
        };
        facts.status.nodes = vec![node("a", "172.16.0.1"), node("b", "172.16.0.2")];
        facts.status.pools = vec![json!({"metadata": {"name": "p"}, "spec": {"cidr": "10.1.0.0/16"}})];
        facts.status.kube_proxy = Some("mode: nftables\n".into());
        let image = |name: &str, image: &str| json!({"metadata": {"name": name}, "spec": {"template": {"spec": {"containers": [{"image": image}]}}}});
        facts.status.workloads = vec![image("calico-node", "r/node:v1"), image("calico-typha", "r/typha:v1")];
        facts
    }

    #[test]
    fn a_healthy_cluster() {
        let findings = check_cluster(&healthy());
        assert!(findings.iter().all(|finding| finding.level == Level::Ok), "{findings:#?}");
    }

    #[test]
    fn every_fault_is_found_and_has_a_remedy() {
        type Break = fn(&mut ClusterFacts);
        let cases: [(&str, Level, &str, Break); 20] = [
            ("definitions", Level::Warning, "no custom resource definition", |facts| {
                facts.definitions.clear();
            }),
            ("definitions", Level::Warning, "missing: bgpconfigurations", |facts| {
                facts.definitions.remove(0);
            }),
            ("definitions", Level::Problem, "does not serve v1", |facts| {
                facts.definitions[0]["spec"]["versions"] = json!([{"name": "v3", "served": true}]);
            }),
            ("definitions", Level::Problem, "stored in v2", |facts| {
                facts.definitions[0]["status"] = json!({"storedVersions": ["v1", "v2"]});
            }),
            ("definitions", Level::Warning, "missing: bgpconfigurations.projectcalico.org", |facts| {
                facts.definitions = api::crds::all_v3();
                facts
                    .definitions
                    .retain(|found| found["metadata"]["name"] != "bgpconfigurations.projectcalico.org");
            }),
            ("eBPF", Level::Warning, "so does kube-proxy on 1 node", |facts| {
                facts.status.felix =
                    vec![json!({"metadata": {"name": "default"}, "spec": {"bpfEnabled": true}})];
                facts.proxied_nodes = Some(1);
            }),
            ("eBPF", Level::Warning, "no address of the API", |facts| {
                facts.status.felix =
                    vec![json!({"metadata": {"name": "default"}, "spec": {"bpfEnabled": true}})];
            }),
            ("operator", Level::Warning, "reverts changes to its objects", |facts| facts.has_operator = true),
            ("kube-proxy", Level::Warning, "both kinds of rules", |facts| {
                facts.status.felix =
                    vec![json!({"metadata": {"name": "default"}, "spec": {"nftablesMode": "Disabled"}})];
            }),
            ("pools", Level::Warning, "not inside the cluster's range", |facts| {
                facts.status.pools[0]["spec"]["cidr"] = json!("10.2.0.0/16");
            }),
            ("pools", Level::Problem, "overlaps the services' range", |facts| {
                facts.status.pools[0]["spec"]["cidr"] = json!("10.96.0.0/16");
            }),
            ("pools", Level::Problem, "contains the address 172.16.0.1 of node a", |facts| {
                facts.status.pools[0]["spec"]["cidr"] = json!("172.16.0.0/16");
            }),
            ("pools", Level::Problem, "overlaps the services' range 10.1.128.0/20", |facts| {
                facts.kubeadm = None;
                facts.service_ranges = vec!["10.1.128.0/20".into()];
            }),
            ("pools", Level::Warning, "not inside the cluster's range 10.9.0.0/16", |facts| {
                facts.kubeadm = None;
                facts.status.kube_proxy = Some("clusterCIDR: 10.9.0.0/16,fd00::/48\nmode: nftables\n".into());
            }),
            ("node addresses", Level::Problem, "a and b have the same address fd00::1", |facts| {
                for node in &mut facts.status.nodes {
                    node["metadata"]["annotations"]["projectcalico.org/IPv6Address"] = json!("fd00::1/64");
                }
            }),
            ("node addresses", Level::Problem, "a and b have the same address", |facts| {
                facts.status.nodes[1] = node("b", "172.16.0.1");
            }),
            ("node addresses", Level::Warning, "a uses 172.16.0.1 and not 192.0.2.1", |facts| {
                facts.status.nodes[0]["status"]["addresses"][0]["address"] = json!("192.0.2.1");
            }),
            ("Typha", Level::Warning, "Typha is r/typha:v0", |facts| {
                facts.status.workloads[1]["spec"]["template"]["spec"]["containers"][0]["image"] =
                    json!("r/typha:v0");
            }),
            ("rights", Level::Warning, "calico-node may not watch tiers", |facts| {
                facts.missing_rights = Some(vec!["calico-node may not watch tiers".into()]);
            }),
            ("clock", Level::Problem, "differ by 90 seconds", |facts| facts.clock_ahead = Some(-90)),
        ];
        for (check, level, text, spoil) in cases {
            let mut facts = healthy();
            spoil(&mut facts);
            let findings = check_cluster(&facts);
            let found = findings.iter().find(|finding| finding.check == check && finding.text.contains(text));
            let found = found.unwrap_or_else(|| panic!("{check}: {text}: {findings:#?}"));
            assert_eq!(found.level, level, "{found:?}");
            assert!(!found.remedy.is_empty(), "{found:?}");
        }
    }
}
