//! The dataplane beyond the host of Calico's files: both IP versions, refusals of the kernel, unsupported features, and
//! the cost of idling.

use crate::lab::{Lab, Listener, config, messages, route, settings, workload_id, workloads};
use felix_config::{Config, Interval};
use messages::{
    Encapsulation, FromDataplane, HostMetadata, IpPoolType, IpSetType, Route, RouteTypes, ToDataplane,
    VxlanTunnelEndpoint, WorkloadEndpoint,
};
use rules::Backend;
use std::time::Duration;
use testkit::eventually;

fn status(number: usize, wanted: &'static str) -> impl Fn(&FromDataplane) -> bool {
    move |report| matches!(report, FromDataplane::WorkloadEndpointStatus { id, status, .. } if *id == workload_id(number) && *status == Some(wanted))
}

fn dual_stack(backend: Backend) -> Config {
    Config {
        ipv6_support: true,
        ipv6_vxlan_tunnel_addr: "fd00:66:1::".parse().ok(),
        route_refresh_interval: Interval::from_secs(1),
        ..config(backend)
    }
}

/// The tunnel end of a node in both IP versions.
fn vtep(number: u8) -> VxlanTunnelEndpoint {
    VxlanTunnelEndpoint {
        mac: format!("66:00:00:00:04:0{number}"),
        ipv4: Some([10, 66, number, 0].into()),
        parent_device_ipv4: Some([10, 65, 0, number].into()),
        mac_v6: format!("66:00:00:00:06:0{number}"),
        ipv6: format!("fd00:66:{number}::").parse().ok(),
        parent_device_ipv6: format!("fd00:65::{number}").parse().ok(),
    }
}

#[test]
fn both_ip_versions_side_by_side() {
    for backend in [Backend::Iptables, Backend::Nftables] {
        let mut lab = Lab::new();
        lab.host.shell("ip addr add fd00:65::1/64 dev eth0 nodad");
        let both = Encapsulation { vxlan: true, vxlan_v6: true, ..Encapsulation::default() };
        lab.start_with(settings(dual_stack(backend), both, &lab.metrics));
        let mut all = messages(backend);
        for message in &mut all {
            if let ToDataplane::WorkloadEndpointUpdate(id, endpoint) = message
                && *id == workload_id(1)
            {
                endpoint.ipv6_nets = vec!["fd00:66:1::1/128".parse().expect("a network")];
            }
        }
        let remote = Route {
            dst_node_name: Some("n2".into()),
            dst_node_ip: "fd00:65::2".parse().ok(),
            ..route("fd00:66:2::/122", RouteTypes::REMOTE_WORKLOAD)
        };
        all.extend([
            ToDataplane::VtepUpdate("n1".into(), vtep(1)),
            ToDataplane::VtepUpdate("n2".into(), vtep(2)),
            ToDataplane::RouteUpdate(route("fd00:66:1::/122", RouteTypes::LOCAL_WORKLOAD)),
            ToDataplane::RouteUpdate(Route {
                dst: "fd00:66:3::/122".parse().expect("a network"),
                same_subnet: true,
                ..remote.clone()
            }),
            ToDataplane::RouteUpdate(remote),
            ToDataplane::InSync,
        ]);
        lab.send(all);
        lab.wait_for("workload up", status(1, "up"));
        for route in [
            "fd00:66:1::1 dev cali00000000001 metric 1024",
            "fd00:66:2::/122 via fd00:66:2:: dev vxlan-v6.calico metric 1024 onlink",
            "fd00:66:3::/122 via fd00:65::2 dev eth0 proto 80 metric 1024 onlink",
            "blackhole fd00:66:1::/122 dev lo proto 80 metric 1024",
        ] {
            lab.wait_to_see("ip -6 route", |seen| seen.lines().any(|line| line.starts_with(route)));
        }
        let neighbour = "fd00:66:2:: lladdr 66:00:00:00:06:02 PERMANENT";
        lab.wait_to_see("ip -6 neigh show dev vxlan-v6.calico", |seen| seen.contains(neighbour));
        let entry = "66:00:00:00:06:02 dst fd00:65::2 self permanent";
        lab.wait_to_see("bridge fdb show dev vxlan-v6.calico", |seen| seen.contains(entry));
        let device = lab.host.shell("ip -d link show vxlan-v6.calico; ip addr show vxlan-v6.calico");
        for part in [
            "id 4096",
            "local fd00:65::1",
            "dstport 4789",
            "66:00:00:00:06:01",
            "mtu 1430",
            "fd00:66:1::/128",
        ] {
            assert!(device.contains(part), "{part}: {device}");
        }
        for name in ["proxy_ndp", "forwarding"] {
            let path = format!("cat /proc/sys/net/ipv6/conf/cali00000000001/{name}");
            assert_eq!(lab.host.shell(&path).trim(), "1", "{name}");
        }
        assert_eq!(lab.mtu(), "1430");
        let rules = match backend {
            Backend::Iptables => lab.host.shell("ip6tables-nft-save"),
            Backend::Nftables => lab.host.shell("nft list table ip6 calico"),
        };
        for chain in ["cali-tw-cali00000000001", "cali-pri-kns.shop", "cali-INPUT"] {
            assert!(rules.contains(chain), "{chain}: {rules}");
        }
        // Written state is recognised: it is read every second, and nothing is written again.
        let events = lab.host.shell("timeout 4 ip monitor route | grep -v 'table local' || true");
        assert_eq!(events, "");
        assert!(lab.stop().is_ok());
    }
}

/// A rule about a missing set: the rule is closed, and its endpoint is in error until the set appears.
#[test]
fn an_endpoint_with_a_refused_rule_is_in_error_until_it_is_not() {
    for backend in [Backend::Iptables, Backend::Nftables] {
        let mut lab = Lab::new();
        lab.start(config(backend));
        let is_missing = |id: &str| id == "s:VU_cp95rDyNVyXI5hW7714L";
        let (missing, mut rest): (Vec<_>, Vec<_>) = messages(backend)
            .into_iter()
            .partition(|message| matches!(message, ToDataplane::IpSetUpdate { id, .. } if is_missing(id)));
        assert_eq!(missing.len(), 1);
        rest.push(ToDataplane::InSync);
        lab.send(rest);
        lab.wait_for("the others are up", status(3, "up"));
        assert!(lab.heard().iter().any(status(1, "error")), "{:?}", lab.heard());
        assert!(lab.heard().iter().any(status(2, "up")));
        let page = lab.metrics.page();
        assert!(
            !page.contains("felix_int_dataplane_refused 0") && page.contains("felix_int_dataplane_refused "),
            "{page}"
        );
        lab.send(missing);
        lab.wait_for("up at last", status(1, "up"));
        assert!(lab.metrics.page().contains("felix_int_dataplane_refused 0"));
        assert!(lab.stop().is_ok());
    }
}

/// This kernel may lack IP in IP: that is reported, and everything else works. Where it is supported, the device is
/// created.
#[test]
fn ip_in_ip_as_far_as_the_kernel_supports_it() {
    let mut lab = Lab::new();
    let config = Config {
        ipip_tunnel_addr: Some([10, 67, 1, 0].into()),
        program_cluster_routes: Some(api::ProgramClusterRoutes::Enabled),
        ..config(Backend::Nftables)
    };
    let need = Encapsulation { ipip: true, no_encap: true, ..Encapsulation::default() };
    lab.start_with(settings(config, need, &lab.metrics));
    let remote = |dst: &str, pool_type| Route {
        ip_pool_type: pool_type,
        dst_node_name: Some("n2".into()),
        dst_node_ip: Some([10, 65, 0, 2].into()),
        ..route(dst, RouteTypes::REMOTE_WORKLOAD)
    };
    let metadata = |address: &str| HostMetadata { ipv4_addr: address.to_owned(), ..HostMetadata::default() };
    let mut all = messages(Backend::Nftables);
    all.extend([
        ToDataplane::HostMetadataUpdate("n2".into(), metadata("10.65.0.2/24")),
        ToDataplane::RouteUpdate(remote("10.67.2.0/26", IpPoolType::Ipip)),
        ToDataplane::RouteUpdate(remote("10.68.2.0/26", IpPoolType::NoEncap)),
        ToDataplane::InSync,
    ]);
    lab.send(all);
    lab.wait_for("in sync", |report| *report == FromDataplane::InSync);
    lab.wait_to_see("ip route", |seen| seen.contains("10.68.2.0/26 via 10.65.0.2 dev eth0 proto 80 onlink"));
    let set = lab.host.shell("nft list set ip calico cali40all-hosts-net");
    assert!(set.contains("10.65.0.1") && set.contains("10.65.0.2"), "{set}");
    if lab.host.try_shell("ip link show tunl0", "").is_ok() {
        lab.wait_to_see("ip route", |seen| {
            seen.contains("10.67.2.0/26 via 10.65.0.2 dev tunl0 proto 80 onlink")
        });
        assert!(lab.host.shell("ip addr show tunl0").contains("10.67.1.0/32"));
    }
    assert!(lab.host.try_shell("ip link show vxlan.calico", "").is_err(), "VXLAN is not needed");
    assert!(lab.stop().is_ok());
}

#[test]
fn tunnel_devices_that_are_no_longer_needed_are_removed() {
    let mut lab = Lab::new();
    lab.host.shell("ip link add vxlan.calico type vxlan id 4096 dstport 4789 dev eth0 local 10.65.0.1");
    lab.start_with(settings(config(Backend::Nftables), Encapsulation::default(), &lab.metrics));
    lab.send(vec![ToDataplane::InSync]);
    lab.wait_for("in sync", |report| *report == FromDataplane::InSync);
    assert!(lab.host.try_shell("ip link show vxlan.calico", "").is_err());
    assert_eq!(lab.mtu(), "1500");
    assert!(lab.stop().is_ok());
}

/// How often the threads of this process with this name went to sleep voluntarily.
fn sleeps(name: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("tasks");
    let one = |path: std::path::PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let matches = field("Name:") == Some(name);
        matches.then(|| field("voluntary_ctxt_switches:").and_then(|text| text.parse::<u64>().ok())).flatten()
    };
    tasks.filter_map(|task| one(task.ok()?.path())).sum()
}

/// In a separate process, because the threads of other tests have the same names.
#[test]
fn an_idle_loop_sleeps() {
    const ASKED: &str = "TORTIE_TEST_IDLE";
    if std::env::var_os(ASKED).is_none() {
        let program = std::env::current_exe().expect("this program");
        let arguments = ["--exact", "loop_cases::an_idle_loop_sleeps", "--nocapture"];
        let output =
            std::process::Command::new(program).args(arguments).env(ASKED, "1").output().expect("it runs");
        let words =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}");
        return;
    }
    let mut lab = Lab::new();
    lab.start(Config { reporting_interval: Interval::default(), ..config(Backend::Nftables) });
    lab.send(messages(Backend::Nftables));
    lab.send(vec![ToDataplane::InSync]);
    lab.wait_for("workload up", status(3, "up"));
    lab.wait_to_see("bridge fdb show dev vxlan.calico", |seen| seen.contains("66:40:24:34:76:fc"));
    // For a few seconds the kernel itself looks for routers on new interfaces.
    let mut quiet = 0;
    for _ in 0..60 {
        let before = sleeps("dataplane");
        assert!(before > 0, "there is such a thread");
        std::thread::sleep(Duration::from_secs(1));
        quiet = if sleeps("dataplane") == before { quiet + 1 } else { 0 };
        if quiet == 5 {
            assert!(lab.stop().is_ok());
            return;
        }
    }
    panic!("it wakes up although nothing happens");
}

/// Many endpoints at once and then one more, which must cost little.
#[test]
fn one_more_endpoint_is_one_small_change() {
    let mut lab = Lab::new();
    lab.start(config(Backend::Nftables));
    let mut all = messages(Backend::Nftables);
    let template = workloads(Backend::Nftables).swap_remove(0);
    let endpoint = |number: usize| WorkloadEndpoint {
        name: format!("calix{number:05}").into(),
        ipv4_nets: vec![format!("10.70.{}.{}/32", number / 250, number % 250).parse().expect("a network")],
        ..template.clone()
    };
    let update = |number: usize| {
        ToDataplane::WorkloadEndpointUpdate(workload_id(1000 + number), Box::new(endpoint(number)))
    };
    all.extend((0..200).map(update));
    all.push(ToDataplane::InSync);
    lab.send(all);
    lab.wait_for("the last one is reported", status(1199, "down"));
    lab.wait_for("in sync", |report| *report == FromDataplane::InSync);
    let listener = Listener::new(&lab.host, &["nft", "monitor"]);
    // Creating an unrelated table shows that the listener works, and later that it has received everything.
    let mark = |name: &str| {
        eventually("the listener hears a new table", || {
            lab.host.shell(&format!("nft add table ip {name}; nft delete table ip {name}"));
            let seen = listener.heard();
            seen.contains(name).then_some(seen)
        })
        .expect("a listener")
    };
    mark("the-beginning");
    lab.send(vec![update(200)]);
    lab.wait_to_see("nft list chains arp", |seen| seen.contains("calix00200"));
    let seen = mark("the-end");
    let changes: Vec<&str> = seen
        .lines()
        .filter(|line| {
            !line.is_empty() && !line.starts_with("# new generation") && !line.contains("table ip the-")
        })
        .collect();
    assert!(seen.contains("filter-cali-tw-calix00200"), "{seen}");
    // Two chains with their rules, two entries, and the ARP chain with its entry.
    assert!(changes.len() < 60, "{} changes: {seen}", changes.len());
    assert!(!changes.iter().any(|line| line.contains("calix00199")), "{seen}");
    assert!(lab.stop().is_ok());
}

/// A set whose members cannot be used does not delay the others.
#[test]
fn members_that_do_not_fit_are_left_out() {
    let mut lab = Lab::new();
    lab.start(config(Backend::Iptables));
    let mut all = messages(Backend::Iptables);
    all.push(ToDataplane::IpSetUpdate {
        id: "s:odd".into(),
        set_type: IpSetType::IpAndPort,
        members: vec![messages::IpSetMember::Net("10.0.0.0/8".parse().expect("a network"))],
    });
    all.push(ToDataplane::InSync);
    lab.send(all);
    lab.wait_for("workload up", status(3, "up"));
    assert!(lab.host.shell("ipset list cali40s:odd").contains("Number of entries: 0"));
    assert!(lab.stop().is_ok());
}

#[test]
fn a_felix_that_is_not_the_leader_writes_nothing() {
    let mut lab = Lab::new();
    lab.start(Config { variant: "TigeraSecureEnterprise".to_owned(), ..config(Backend::Nftables) });
    lab.send(messages(Backend::Nftables));
    lab.send(vec![ToDataplane::InSync]);
    assert!(lab.stop().is_ok());
    assert_eq!(lab.heard(), []);
    assert_eq!(lab.host.shell("nft list ruleset; ipset save"), "");
}

#[test]
fn where_kube_proxy_uses_ipvs_packets_are_marked_by_endpoint() {
    let mut lab = Lab::new();
    lab.host.shell(
        "ip link add kube-ipvs0 type veth peer name ipvs-peer; ip addr add 10.96.0.1/32 dev kube-ipvs0",
    );
    lab.start(config(Backend::Iptables));
    let mut all = messages(Backend::Iptables);
    all.push(ToDataplane::InSync);
    lab.send(all);
    lab.wait_for("workload up", status(3, "up"));
    let rules = lab.host.shell("iptables-nft-save -t filter");
    for part in [
        "-A cali-set-endpoint-mark",
        "-A cali-from-endpoint-mark",
        "-A cali-sm-cali00000000001",
        "-A cali-sm-eth0",
    ] {
        assert!(rules.contains(part), "{part}: {rules}");
    }
    assert!(
        !lab.host.shell("ipset list cali40this-host").contains("10.96.0.1"),
        "services are not this host's"
    );
    lab.send(vec![ToDataplane::WorkloadEndpointRemove(workload_id(1))]);
    lab.wait_to_see("iptables-nft-save -t filter", |seen| !seen.contains("cali00000000001"));
    assert!(lab.stop().is_ok());
}

/// The flow table covers devices that are up, as they appear and disappear; a workload that speaks BGP has an address
/// to peer with.
#[test]
fn flow_tables_and_bgp_with_workloads() {
    let mut lab = Lab::new();
    lab.start(Config {
        nftables_flow_table_offload: Some(api::NFTablesFlowTableOffload::All),
        nftables_flow_table_data_iface_pattern: felix_config::Pattern::new("^eth.*"),
        ..config(Backend::Nftables)
    });
    let mut all = messages(Backend::Nftables);
    for message in &mut all {
        if let ToDataplane::WorkloadEndpointUpdate(id, endpoint) = message
            && *id == workload_id(2)
        {
            endpoint.local_bgp_peer = "peer".to_owned();
        }
    }
    all.push(ToDataplane::GlobalBgpConfig(messages::GlobalBgpConfig {
        local_workload_peering_ip_v4: "169.254.1.2".to_owned(),
        ..messages::GlobalBgpConfig::default()
    }));
    all.push(ToDataplane::InSync);
    lab.send(all);
    lab.wait_for("workload up", status(2, "up"));
    lab.wait_to_see("ip addr show cali00000000002", |seen| seen.contains("inet 169.254.1.2/32 scope link"));
    if lab
        .host
        .try_shell("nft add table ip probe; nft add flowtable ip probe f '{ hook ingress priority 0; }'", "")
        .is_ok()
    {
        let all = |seen: &str| {
            ["cali00000000001", "cali12345678903", "eth0", "vxlan.calico"]
                .iter()
                .all(|one| seen.contains(one))
        };
        lab.wait_to_see("nft list flowtables ip", all);
        lab.host.shell("ip link del cali12345678903");
        lab.wait_to_see("nft list flowtables ip", |seen| {
            !seen.contains("cali12345678903") && seen.contains("eth0")
        });
        assert!(lab.host.shell("nft list ruleset").contains("flow add @calico"));
    } else {
        // Without the short way packets take the long one.
        let chain = lab.host.shell("nft list chain ip calico filter-cali-FORWARD");
        assert!(chain.contains("cali-from-wl-dispatch") && !chain.contains("drop"), "{chain}");
    }
    lab.send(vec![ToDataplane::WorkloadEndpointRemove(workload_id(2))]);
    lab.wait_to_see("ip addr show cali00000000002", |seen| !seen.contains("169.254.1.2"));
    assert!(lab.stop().is_ok());
}

/// Policies that no endpoint of the host has: one that every node needs anyway, and one that may be absent.
#[test]
fn a_policy_that_every_node_needs_is_programmed_before_any_endpoint_has_it() {
    for backend in [Backend::Iptables, Backend::Nftables] {
        let mut lab = Lab::new();
        lab.start(config(backend));
        let policy = |name: &str, hints: &[&str]| {
            let id = model::v1::PolicyKey {
                kind: api::Kind::GlobalNetworkPolicy,
                namespace: String::new(),
                name: name.to_owned(),
            };
            let rule = messages::Rule { action: model::feed::RuleAction::Allow, ..messages::Rule::default() };
            let policy = messages::Policy {
                tier: "default".into(),
                inbound_rules: vec![rule],
                performance_hints: hints.iter().map(|hint| (*hint).to_owned()).collect(),
                ..messages::Policy::default()
            };
            ToDataplane::PolicyUpdate(id.into(), std::sync::Arc::new(policy))
        };
        let show = match backend {
            Backend::Iptables => "iptables-nft-save -t filter",
            Backend::Nftables => "nft list table ip calico",
        };
        let has = |seen: &str, name: &str| seen.contains(&format!("cali-pi-gnp/{name}"));
        lab.send(messages(backend));
        lab.send(vec![
            policy("needed", &["AssumeNeededOnEveryNode"]),
            policy("other", &[]),
            ToDataplane::InSync,
        ]);
        lab.wait_for("in sync", |report| *report == FromDataplane::InSync);
        lab.wait_to_see(show, |seen| has(seen, "needed") && !has(seen, "other"));
        lab.send(vec![policy("needed", &[]), policy("other", &["AssumeNeededOnEveryNode"])]);
        lab.wait_to_see(show, |seen| has(seen, "other") && !has(seen, "needed"));
    }
}
