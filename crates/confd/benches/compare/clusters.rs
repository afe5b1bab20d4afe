//! Random clusters as BGP sees them: nodes, pools, blocks, configurations, peers and filters.
//!
//! What docs/differences.md lists is left out: two peers that describe one session, peers without an AS number, nodes without
//! an IPv4 address and without a router id, AS numbers of some nodes only, and anything else that BIRD would refuse.

use anyhow::Result;
use api::Kind;
use model::{AffinityType, BlockAffinityKey, Key, KvPair};
use serde_json::{Map, Value, json};
use testkit::Dice;

/// The node whose files are compared.
pub(crate) const NODE: &str = "n1";
const FILTERS: [&str; 3] =
    ["first", "second", "a-filter-with-a-name-that-is-longer-than-forty-five-characters"];

/// A random cluster.
pub(crate) struct Random {
    pub(crate) objects: Vec<(Kind, Value)>,
    pub(crate) entries: Vec<KvPair>,
    /// Variables of confd.
    pub(crate) environment: Vec<(&'static str, String)>,
}

pub(crate) fn random(case: u64) -> Result<Random> {
    let mut dice = Dice::of(case);
    let mut objects = pools(&mut dice);
    let have_own_as = dice.chance(3);
    objects.extend((1..=5).map(|number| node(&mut dice, number, have_own_as)));
    objects.push((Kind::BGPConfiguration, named("default", &default_configuration(&mut dice))));
    if dice.chance(2) {
        objects
            .push((Kind::BGPConfiguration, named(&format!("node.{NODE}"), &node_configuration(&mut dice))));
    }
    objects.extend(FILTERS.iter().map(|name| (Kind::BGPFilter, named(name, &filter(&mut dice)))));
    let peers = dice.below(6);
    objects.extend(
        (0..peers).map(|number| (Kind::BGPPeer, named(&format!("peer-{number}"), &peer(&mut dice, number)))),
    );
    let mut environment = Vec::new();
    if dice.chance(4) {
        environment.push(("CALICO_ROUTER_ID", dice.one_of(&["hash", "192.0.2.200"]).to_string()));
    }
    if dice.chance(4) {
        environment.push(("CLUSTER_TYPE", dice.one_of(&["k8s,bgp", "openshift"]).to_string()));
    }
    Ok(Random { objects, entries: affinities(&mut dice)?, environment })
}

fn named(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

fn pools(dice: &mut Dice) -> Vec<(Kind, Value)> {
    let networks = ["10.66.0.0/16", "10.67.0.0/20", "fd00:66::/48", "fd00:67::/64"];
    let pool = |(number, cidr): (usize, &&str)| {
        let is_v4 = cidr.contains('.');
        let mode = |dice: &mut Dice| *dice.one_of(&["Never", "Always", "CrossSubnet"]);
        let (mut ipip, vxlan) = (if is_v4 { mode(dice) } else { "Never" }, mode(dice));
        if vxlan != "Never" {
            ipip = "Never";
        }
        let mut spec =
            json!({"cidr": cidr, "ipipMode": ipip, "vxlanMode": vxlan, "natOutgoing": dice.chance(2)});
        if dice.chance(3) {
            spec["disableBGPExport"] = json!(true);
        }
        if dice.chance(4) {
            spec["disabled"] = json!(true);
        }
        (Kind::IPPool, named(&format!("pool-{number}"), &spec))
    };
    networks.iter().enumerate().map(pool).collect()
}

fn node(dice: &mut Dice, number: u64, has_own_as: bool) -> (Kind, Value) {
    let name = format!("n{number}");
    let mut labels = json!({"zone": dice.one_of(&["a", "b"])});
    if dice.chance(4) {
        labels["route-reflector"] = json!("true");
    }
    let subnet = if dice.chance(3) { 66 } else { 65 };
    let mut bgp = json!({"ipv4Address": format!("10.{subnet}.0.{number}/24")});
    if dice.chance(2) {
        bgp["ipv6Address"] = json!(format!("fd{subnet}::{number}/64"));
    }
    if has_own_as {
        bgp["asNumber"] = json!(dice.one_of(&[64513, 65001]));
    }
    if dice.chance(5) {
        bgp["routeReflectorClusterID"] = json!(dice.one_of(&["244.0.0.1", "244.0.0.2"]));
    }
    if dice.chance(4) {
        bgp["ipv4IPIPTunnelAddr"] = json!(format!("10.66.{number}.1"));
    }
    let mut spec = json!({"bgp": bgp});
    if dice.chance(5) {
        spec["ipv4VXLANTunnelAddr"] = json!(format!("10.66.{number}.2"));
    }
    (Kind::Node, json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))
}

fn affinities(dice: &mut Dice) -> Result<Vec<KvPair>> {
    let blocks =
        ["10.66.1.0/26", "10.66.1.64/26", "10.67.0.0/28", "10.66.9.9/32", "fd00:66::40/122", "fd00:67::/122"];
    let mut entries = Vec::new();
    for cidr in blocks.iter().filter(|_| !dice.chance(3)) {
        let key = Key::BlockAffinity(BlockAffinityKey {
            cidr: cidr.parse()?,
            affinity_type: AffinityType::Host,
            host: NODE.to_owned(),
        });
        let state = ["confirmed", "confirmed", "pending", "pendingDeletion"][entries.len() % 4];
        let value = model::decode(&key, json!({"state": state, "deleted": false}).to_string().as_bytes())?;
        entries.push(KvPair::new(key, value));
    }
    Ok(entries)
}

fn default_configuration(dice: &mut Dice) -> Value {
    let mut spec = Map::new();
    let mut add = |name: &str, value: Value| drop(spec.insert(name.to_owned(), value));
    let has_mesh = !dice.chance(3);
    if !has_mesh || dice.chance(2) {
        add("nodeToNodeMeshEnabled", json!(has_mesh));
    }
    if dice.chance(2) {
        add("asNumber", json!(dice.one_of(&[64512, 65002, 4_200_000_001_u32])));
    }
    if dice.chance(3) {
        add("serviceClusterIPs", json!([{"cidr": "10.96.0.0/12"}, {"cidr": "fd00:96::/108"}]));
    }
    if dice.chance(3) {
        add("serviceExternalIPs", json!([{"cidr": "192.0.2.0/28"}, {"cidr": "198.51.100.7/32"}]));
    }
    if dice.chance(3) {
        add("serviceLoadBalancerIPs", json!([{"cidr": "203.0.113.0/24"}, {"cidr": "fd00:203::/64"}]));
    }
    if dice.chance(3) {
        add("logSeverityScreen", json!(dice.one_of(&["Debug", "Warning", "Error", "Info"])));
    }
    if dice.chance(3) {
        add("listenPort", json!(1790));
    }
    if dice.chance(3) {
        add("bindMode", json!(dice.one_of(&["None", "NodeIP"])));
    }
    if dice.chance(3) {
        add("ignoredInterfaces", json!(["docker*", "eth7"]));
    }
    if has_mesh && dice.chance(3) {
        add("nodeMeshMaxRestartTime", json!(dice.one_of(&["90s", "3m", "1m30s"])));
    }
    if dice.chance(3) {
        add("programClusterRoutes", json!(dice.one_of(&["Enabled", "Disabled"])));
    }
    if dice.chance(4) {
        add("ipv4NormalRoutePriority", json!(512));
        add("ipv6NormalRoutePriority", json!(600));
    }
    advertise(dice, &mut add);
    Value::Object(spec)
}

fn node_configuration(dice: &mut Dice) -> Value {
    let mut spec = Map::new();
    let mut add = |name: &str, value: Value| drop(spec.insert(name.to_owned(), value));
    if dice.chance(2) {
        add("logSeverityScreen", json!(dice.one_of(&["Debug", "Fatal"])));
    }
    if dice.chance(3) {
        add("listenPort", json!(1791));
    }
    advertise(dice, &mut add);
    Value::Object(spec)
}

fn advertise(dice: &mut Dice, add: &mut impl FnMut(&str, Value)) {
    if !dice.chance(3) {
        return;
    }
    let mut advertisements = vec![json!({"cidr": "10.66.0.0/16", "communities": ["many", "65000:300"]})];
    if dice.chance(2) {
        advertisements.push(json!({"cidr": "fd00:66::/48", "communities": ["65000:1:2", "many"]}));
    }
    if dice.chance(2) {
        advertisements.push(json!({"cidr": "10.66.1.0/26", "communities": ["65000:300"]}));
    }
    add(
        "communities",
        json!([{"name": "many", "value": "65000:200"}, {"name": "unused", "value": "65000:1:9"}]),
    );
    add("prefixAdvertisements", json!(advertisements));
}

fn peer(dice: &mut Dice, number: u64) -> Value {
    let mut spec = Map::new();
    let mut add = |name: &str, value: Value| drop(spec.insert(name.to_owned(), value));
    match dice.below(4) {
        0 => add("node", json!(NODE)),
        1 => add(
            "nodeSelector",
            json!(dice.one_of(&["zone == 'a'", "has(route-reflector)", "all()", "!has(none)"])),
        ),
        2 => add("node", json!("n2")),
        _ => {}
    }
    // Peers by selector describe sessions between nodes, which several of them would describe twice.
    let is_outside = number > 0 || dice.chance(2);
    if is_outside {
        let is_v4 = !dice.chance(3);
        let address =
            if is_v4 { format!("192.0.2.{}", 10 + number) } else { format!("fd00:192::{}", 10 + number) };
        add(
            "peerIP",
            json!(match (dice.chance(3), is_v4) {
                (true, true) => format!("{address}:1179"),
                (true, false) => format!("[{address}]:1179"),
                (false, _) => address,
            }),
        );
        add("asNumber", json!(dice.one_of(&[64512, 65010, 65001])));
        if dice.chance(5) {
            add("reachableBy", json!(if is_v4 { "10.65.0.254" } else { "fd65::fe" }));
        }
    } else {
        add("peerSelector", json!(dice.one_of(&["has(route-reflector)", "zone == 'b'", "all()"])));
        if dice.chance(3) {
            add("reversePeering", json!(dice.one_of(&["Auto", "Manual"])));
        }
    }
    if dice.chance(4) {
        add("localASNumber", json!(65055));
    }
    if dice.chance(4) {
        add("keepOriginalNextHop", json!(true));
    } else if dice.chance(3) {
        add("nextHopMode", json!(dice.one_of(&["Auto", "Self", "Keep"])));
    }
    if dice.chance(4) {
        add("sourceAddress", json!(dice.one_of(&["UseNodeIP", "None"])));
    }
    if dice.chance(4) {
        add("maxRestartTime", json!(dice.one_of(&["10s", "2m"])));
    }
    if dice.chance(4) {
        add("keepaliveTime", json!(dice.one_of(&["20s", "1m"])));
    }
    if dice.chance(4) {
        add("numAllowedLocalASNumbers", json!(dice.below(4)));
    }
    if dice.chance(4) {
        add("ttlSecurity", json!(dice.one_of(&[1, 2, 254])));
    }
    if dice.chance(2) {
        add("filters", json!(dice.some_of(&FILTERS, 2)));
    }
    Value::Object(spec)
}

fn filter(dice: &mut Dice) -> Value {
    let mut spec = Map::new();
    for (field, is_v4, is_export) in [
        ("importV4", true, false),
        ("exportV4", true, true),
        ("importV6", false, false),
        ("exportV6", false, true),
    ] {
        let rules = dice.below(4);
        if rules > 0 {
            let rules = (0..rules).map(|_| filter_rule(dice, is_v4, is_export)).collect();
            spec.insert(field.to_owned(), rules);
        }
    }
    Value::Object(spec)
}

fn filter_rule(dice: &mut Dice, is_v4: bool, is_export: bool) -> Value {
    let mut rule = json!({"action": dice.one_of(&["Accept", "Accept", "Reject"])});
    if dice.chance(2) {
        let networks = if is_v4 { ["44.0.0.0/8", "10.66.0.0/16"] } else { ["fd44::/16", "fd00:66::/48"] };
        rule["cidr"] = json!(dice.one_of(&networks));
        rule["matchOperator"] = json!(dice.one_of(&["Equal", "NotEqual", "In", "NotIn"]));
        if matches!(rule["matchOperator"].as_str(), Some("In" | "NotIn")) && dice.chance(2) {
            let (min, max) = if is_v4 { (20, 28) } else { (64, 122) };
            rule["prefixLength"] = dice
                .one_of(&[
                    json!({"min": min}),
                    json!({"max": max}),
                    json!({"min": min, "max": max}),
                    json!({}),
                ])
                .clone();
        }
    }
    if is_export && dice.chance(4) {
        rule["source"] = json!("RemotePeers");
    }
    if dice.chance(4) {
        rule["interface"] = json!(dice.one_of(&["eth0", "*.calico", "cali*"]));
    }
    if dice.chance(4) {
        rule["peerType"] = json!(dice.one_of(&["eBGP", "iBGP"]));
    }
    if dice.chance(4) {
        rule["communities"] = json!({"values": [dice.one_of(&["65000:100", "65000:1:2"])]});
    }
    if dice.chance(5) {
        rule["asPathPrefix"] =
            dice.one_of(&[json!([65001]), json!([65001, 65002, 4_200_000_000_u32])]).clone();
    }
    if dice.chance(6) {
        rule["priority"] = json!(dice.one_of(&[100, 1024]));
    }
    if rule["action"] == "Accept" && dice.chance(3) {
        let all = [
            json!({"setPriority": {"value": 512}}),
            json!({"addCommunity": {"value": "65000:7"}}),
            json!({"addCommunity": {"value": "65000:7:9"}}),
            json!({"prependASPath": {"prefix": [65001, 65002]}}),
        ];
        let chosen = dice.some_of(&all, 2);
        if !chosen.is_empty() {
            rule["operations"] = json!(chosen);
        }
    }
    rule
}
