//! Random clusters: nodes, pools with and without tunnels, blocks, pods, host endpoints and settings of Felix.

use super::policies::{self, Made};
use crate::cluster::{HOST, interface};
use anyhow::Result;
use api::Kind;
use model::{Key, KvPair};
use serde_json::{Value, json};
use testkit::Dice;
use testkit::random_kubernetes::{LOCAL, NAMESPACES, NODES, REMOTE};

/// How pods of one node reach those of another.
const MODES: [(&str, &str); 4] =
    [("Never", "Never"), ("Never", "Always"), ("Never", "CrossSubnet"), ("Never", "Always")];

/// The content of one case.
pub(crate) struct Random {
    pub(crate) objects: Vec<Made>,
    pub(crate) entries: Vec<KvPair>,
    /// A short description.
    pub(crate) about: String,
}

pub(crate) fn random(case: u64) -> Result<Random> {
    let mut dice = Dice::of(case);
    let (ipip, vxlan) = *dice.one_of(&MODES);
    let mut objects = pools(&mut dice, ipip, vxlan);
    objects.extend(nodes(vxlan != "Never"));
    let names = settings_and_services(&mut dice, &mut objects);
    let made = policies::made(&mut dice);
    let about = format!("vxlan {vxlan}, {} policy objects, settings {names:?}", made.len());
    objects.extend(made);
    objects.extend(host_endpoints(&mut dice));
    objects.extend((0..LOCAL + REMOTE).map(|number| pod(&mut dice, number)));
    Ok(Random { objects, entries: blocks()?, about })
}

/// The part of a random cluster that Calico's own definitions hold where Kubernetes is the datastore: nodes, profiles and
/// endpoints come from Kubernetes' objects there.
pub(super) fn random_definitions(dice: &mut Dice) -> Result<(Random, bool)> {
    let (ipip, vxlan) = *dice.one_of(&MODES);
    let mut objects = pools(dice, ipip, vxlan);
    let names = settings_and_services(dice, &mut objects);
    let made = policies::made(dice);
    let about = format!("vxlan {vxlan}, {} policy objects, settings {names:?}", made.len());
    objects.extend(made.into_iter().filter(|(kind, _)| *kind != Kind::Profile));
    objects.extend(host_endpoints(dice));
    Ok((Random { objects, entries: blocks()?, about }, vxlan != "Never"))
}

/// Adds settings of Felix, and sometimes the addresses of services; the names of the settings.
fn settings_and_services(dice: &mut Dice, objects: &mut Vec<Made>) -> Vec<&'static str> {
    let (settings, names) = settings(dice);
    objects.push((Kind::FelixConfiguration, json!({"metadata": {"name": "default"}, "spec": settings})));
    if dice.chance(2) {
        objects.push((
            Kind::BGPConfiguration,
            json!({"metadata": {"name": "default"}, "spec": {"serviceClusterIPs": [{"cidr": "10.96.0.0/12"}, {"cidr": "fd00:96::/108"}],
                "serviceExternalIPs": [{"cidr": "192.0.2.0/28"}]}}),
        ));
    }
    names
}

fn pools(dice: &mut Dice, ipip: &str, vxlan: &str) -> Vec<Made> {
    let pool = |name: &str, spec: Value| (Kind::IPPool, json!({"metadata": {"name": name}, "spec": spec}));
    let mut pools = vec![
        pool(
            "pods",
            json!({"cidr": "10.128.0.0/16", "blockSize": 26, "natOutgoing": dice.chance(2), "ipipMode": ipip, "vxlanMode": vxlan}),
        ),
        pool(
            "pods-v6",
            json!({"cidr": "fd00:128::/64", "blockSize": 122, "natOutgoing": dice.chance(2), "vxlanMode": vxlan}),
        ),
    ];
    if dice.chance(3) {
        pools.push(pool(
            "more",
            json!({"cidr": "10.200.0.0/16", "disabled": dice.chance(2), "natOutgoing": true}),
        ));
    }
    if dice.chance(4) {
        pools.push(pool(
            "outside",
            json!({"cidr": "10.201.0.0/16", "allowedUses": ["LoadBalancer"], "assignmentMode": "Manual"}),
        ));
    }
    pools
}

fn nodes(with_vxlan: bool) -> Vec<Made> {
    let node = |(number, (name, v4, v6)): (usize, &(&str, &str, &str))| {
        let mut spec = json!({"bgp": {"ipv4Address": v4, "ipv6Address": v6}});
        if with_vxlan {
            // The first address of the node's block.
            spec["ipv4VXLANTunnelAddr"] = json!(format!("10.128.{number}.0"));
            spec["ipv6VXLANTunnelAddr"] = json!(format!("fd00:128::{number}:0"));
        }
        (Kind::Node, json!({"metadata": {"name": name}, "spec": spec}))
    };
    NODES.iter().enumerate().map(node).collect()
}

/// One block of each family for each node, with the addresses of its pods, and one address of the third node's block on
/// the second node.
fn blocks() -> Result<Vec<KvPair>> {
    let mut blocks = Vec::new();
    for (number, (node, ..)) in NODES.iter().enumerate() {
        for (cidr, size) in [(format!("10.128.{number}.0/26"), 64), (format!("fd00:128::{number}:0/122"), 64)]
        {
            let mut allocations = vec![Value::Null; size];
            let mut attributes = vec![
                json!({"handle_id": format!("vxlan-{node}"), "secondary": {"node": node, "type": "vxlanTunnelAddress"}}),
            ];
            allocations[0] = json!(0);
            if number == 2 {
                allocations[40] = json!(1);
                attributes.push(json!({"handle_id": "k8s-pod-network.borrowed", "secondary": {"node": "node2", "pod": "b", "namespace": "shop"}}));
            }
            let unallocated: Vec<usize> = (1..size).filter(|place| allocations[*place].is_null()).collect();
            let value = json!({"cidr": cidr, "affinity": format!("host:{node}"), "allocations": allocations, "unallocated": unallocated,
                "attributes": attributes, "deleted": false});
            let key = Key::Block { cidr: cidr.parse()? };
            let value = model::decode(&key, value.to_string().as_bytes())?;
            blocks.push(KvPair { key, value, revision: String::new(), uid: None, ttl: None });
        }
    }
    Ok(blocks)
}

fn pod(dice: &mut Dice, number: usize) -> Made {
    let node = if number < LOCAL { 0 } else { 1 + number % 2 };
    let name = format!("web-{number}");
    let namespace = NAMESPACES[number % 2];
    let mut spec = json!({
        "orchestrator": "k8s", "node": NODES[node].0, "pod": name, "endpoint": "eth0", "interfaceName": interface(number),
        "profiles": [format!("kns.{namespace}")], "mac": "ee:ee:ee:ee:ee:ee",
        "ipNetworks": [format!("10.128.{node}.{}/32", number + 5), format!("fd00:128::{node}:{:x}/128", number + 5)],
    });
    if dice.chance(3) {
        spec["profiles"] = json!([format!("kns.{namespace}"), "extra"]);
    }
    if dice.chance(2) {
        spec["ports"] = json!([{"name": "http", "protocol": "TCP", "port": 8080}, {"name": "dns", "protocol": "UDP", "port": 53},
            {"name": "http", "protocol": "SCTP", "port": 81}]);
    }
    if dice.chance(4) {
        spec["ipNATs"] = json!([{"internalIP": format!("10.128.{node}.{}", number + 5), "externalIP": format!("192.0.2.{}", number + 1)}]);
    }
    if dice.chance(4) {
        spec["allowSpoofedSourcePrefixes"] = json!(["172.16.0.0/16", "fd00:172::/64"]);
    }
    if dice.chance(4) {
        spec["qosControls"] = json!({"ingressPacketRate": 100, "ingressPacketBurst": 10, "egressPacketRate": 2000, "egressPacketBurst": 5});
    } else if dice.chance(4) {
        spec["qosControls"] = json!({"ingressMaxConnections": 20, "egressMaxConnections": 30, "dscp": dice.one_of(&["EF", "AF11", "20"])});
    } else if dice.chance(5) {
        spec["qosControls"] = json!({"ingressBandwidth": 1_000_000, "ingressBurst": 200_000, "egressBandwidth": 2_000_000, "egressBurst": 400_000});
    }
    let metadata = json!({
        "name": format!("{}-k8s-{}-eth0", NODES[node].0, name.replace('-', "--")), "namespace": namespace,
        "labels": {"app": format!("app-{}", number % LOCAL), "projectcalico.org/orchestrator": "k8s",
            "projectcalico.org/namespace": namespace, "projectcalico.org/serviceaccount": "web"},
    });
    (Kind::WorkloadEndpoint, json!({"metadata": metadata, "spec": spec}))
}

fn host_endpoints(dice: &mut Dice) -> Vec<Made> {
    let mut made = Vec::new();
    let mut add = |name: &str, spec: Value| {
        let metadata = json!({"name": name, "labels": {"role": "host", "app": "host"}});
        made.push((Kind::HostEndpoint, json!({"metadata": metadata, "spec": spec})));
    };
    match dice.below(4) {
        0 => add("uplink", json!({"node": HOST, "interfaceName": "eth0", "profiles": ["extra"]})),
        1 => add(
            "uplink",
            json!({"node": HOST, "expectedIPs": ["10.65.0.1", "fd00:65::1"], "ports": [{"name": "http", "protocol": "TCP", "port": 80}]}),
        ),
        2 => add(
            "all",
            json!({"node": HOST, "interfaceName": "*", "expectedIPs": ["10.65.0.1"], "profiles": ["kns.shop"]}),
        ),
        _ => {}
    }
    if dice.chance(3) {
        add("other", json!({"node": "node2", "interfaceName": "eth0", "expectedIPs": ["10.65.0.2"]}));
    }
    if dice.chance(4) {
        add("second", json!({"node": HOST, "interfaceName": "eth1"}));
    }
    made
}

/// Settings that change rules, each in some of the cases; returns their names for the report.
fn settings(dice: &mut Dice) -> (Value, Vec<&'static str>) {
    let filter =
        |name: &str, value: &str| json!({format!("iptables{name}"): value, format!("nftables{name}"): value});
    let all: Vec<(&'static str, Value)> = vec![
        ("allow", filter("FilterAllowAction", "Return")),
        ("mangle", filter("MangleAllowAction", "Return")),
        // The kernel accepts no REJECT in iptables' raw table, and Calico's Felix then fails forever.
        ("reject", json!({"nftablesFilterDenyAction": "Reject"})),
        ("mask", json!({"iptablesMarkMask": 0xff00_0000_u32, "nftablesMarkMask": 0xff00_0000_u32})),
        ("toHost", json!({"defaultEndpointToHostAction": dice.one_of(&["Return", "Accept"])})),
        ("append", json!({"chainInsertMode": "Append"})),
        ("prefix", json!({"logPrefix": "%t-%k %p"})),
        ("logLimit", json!({"logActionRateLimit": "10/minute", "logActionRateLimitBurst": 7})),
        (
            "failsafe",
            json!({"failsafeInboundHostPorts": [{"protocol": "TCP", "port": 22, "net": "10.0.0.0/8"}, {"protocol": "UDP", "port": 68},
            {"protocol": "TCP", "port": 2379}, {"protocol": "TCP", "port": 6666}],
            "failsafeOutboundHostPorts": [{"protocol": "TCP", "port": 2379}, {"protocol": "TCP", "port": 6666}, {"protocol": "UDP", "port": 9, "net": "fd00::/8"}]}),
        ),
        ("loops", json!({"serviceLoopPrevention": dice.one_of(&["Reject", "Disabled"])})),
        ("natPorts", json!({"natPortRange": "40000:50000"})),
        ("natAddress", json!({"natOutgoingAddress": "10.65.0.1"})),
        ("natExclusions", json!({"natOutgoingExclusions": "IPPoolsAndHostIPs"})),
        ("natInterface", json!({"iptablesNATOutgoingInterfaceFilter": "eth0"})),
        ("invalid", json!({"disableConntrackInvalidCheck": true})),
        ("fromPods", json!({"allowVXLANPacketsFromWorkloads": true, "allowIPIPPacketsFromWorkloads": true})),
        ("port", json!({"vxlanPort": 4790, "vxlanVNI": 4100})),
        ("floating", json!({"floatingIPs": "Enabled"})),
        ("spoofing", json!({"workloadSourceSpoofing": "Any"})),
        ("external", json!({"externalNodesList": ["10.77.0.0/16", "10.78.0.1"]})),
        (
            "source",
            json!({"deviceRouteSourceAddress": "10.65.0.1", "deviceRouteSourceAddressIPv6": "fd00:65::1"}),
        ),
        ("protocol", json!({"deviceRouteProtocol": 90})),
        ("routes", json!({"programClusterRoutes": "Enabled"})),
        ("workloads", json!({"routeSource": "WorkloadIPs"})),
        ("flowLogs", json!({"flowLogsLocalReporter": "Enabled"})),
        ("priority", json!({"ipv4NormalRoutePriority": 100, "ipv6NormalRoutePriority": 200})),
        ("offload", json!({"nftablesFlowTableOffload": "All"})),
        ("istio", json!({"istioAmbientMode": "Enabled"})),
    ];
    let chosen: Vec<(&'static str, Value)> = dice.some_of(&all, 7).into_iter().cloned().collect();
    let mut spec = json!({"floatingIPs": "Disabled"});
    for (_, fields) in &chosen {
        if let (Some(spec), Some(fields)) = (spec.as_object_mut(), fields.as_object()) {
            spec.extend(fields.clone());
        }
    }
    (spec, chosen.into_iter().map(|(name, _)| name).collect())
}
