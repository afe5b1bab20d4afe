//! The whole dataplane on a real kernel: the host of Calico's files reaches the state that Calico programmed, keeps it
//! whatever other programs do, and is left as it is when the dataplane ends.

use crate::captured::{CALICO_IPSETS, CALICO_IPTABLES, CALICO_NFT, saved};
use crate::host::Host;
use crate::lab::{Lab, config, messages, workload_id, workloads};
use messages::{FromDataplane, ToDataplane};
use rules::Backend;

const ROUTES: &str = include_str!("../data/calico-routes.txt");
const NEIGHBOURS: &str = include_str!("../data/calico-neigh.txt");
const FORWARDING: &str = include_str!("../data/calico-fdb.txt");
const VXLAN: &str = include_str!("../data/calico-vxlan.txt");
const SETTINGS: &str = include_str!("../data/calico-sysctl.txt");
const RULES: &str = include_str!("../data/calico-rules.txt");

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.sort_unstable();
    lines
}

fn up(number: usize) -> impl Fn(&FromDataplane) -> bool {
    status(number, Some("up"))
}

fn status(number: usize, wanted: Option<&'static str>) -> impl Fn(&FromDataplane) -> bool {
    move |report| matches!(report, FromDataplane::WorkloadEndpointStatus { id, status, .. } if *id == workload_id(number) && *status == wanted)
}

/// A dataplane that has programmed the whole host.
fn running(backend: Backend) -> Lab {
    let mut lab = Lab::new();
    lab.start(config(backend));
    lab.send(messages(backend));
    lab.send(vec![ToDataplane::InSync]);
    lab.wait_for("in sync", |report| *report == FromDataplane::InSync);
    lab.wait_to_see("ip route", |seen| sorted(seen) == sorted(ROUTES));
    lab
}

/// Everything but rules and sets, which differ by backend.
fn check_network(lab: &Lab) {
    lab.wait_to_see("ip neigh show nud permanent", |seen| sorted(seen) == sorted(NEIGHBOURS));
    lab.wait_to_see("bridge fdb show dev vxlan.calico", |seen| sorted(seen) == sorted(FORWARDING));
    assert_eq!(sorted(&lab.host.shell("ip rule")), sorted(RULES));
    let device = |text: &str| {
        // The number of the device differs, and the number of queues depends on the machine.
        let line = text.split_once(':').map_or("", |(_, rest)| rest).trim();
        let known = line.split(" numtxqueues").next().unwrap_or(line);
        known.replace('\\', "").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let shown = lab.host.shell("ip -o -d link show vxlan.calico");
    assert_eq!(device(&shown), device(VXLAN));
    assert!(lab.host.shell("ip -o addr show vxlan.calico").contains("inet 10.66.1.0/32 "));
    for line in SETTINGS.lines() {
        let [interface, name, value] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let path = match name.strip_prefix("ipv6.") {
            Some(name) => format!("ipv6/conf/{interface}/{name}"),
            None => format!("ipv4/conf/{interface}/{name}"),
        };
        let found = lab.host.shell(&format!("cat /proc/sys/net/{path}"));
        assert_eq!(found.trim(), value, "{line}");
    }
    assert_eq!(lab.mtu(), "1450");
    assert_eq!(lab.host.shell("cat /proc/sys/net/ipv4/ip_forward").trim(), "1");
    lab.wait_to_see("cat /proc/sys/net/netfilter/nf_conntrack_acct", |seen| seen.trim() == "1");
}

#[test]
fn with_iptables_the_host_reaches_calicos_state() {
    let lab = running(Backend::Iptables);
    check_network(&lab);
    let calico = Host::new();
    calico.feed("ipset restore", CALICO_IPSETS);
    calico.feed("iptables-nft-restore", CALICO_IPTABLES);
    assert_eq!(sorted(&saved(&lab.host, "nft")), sorted(&saved(&calico, "nft")));
    let members = |printed: &str| {
        let lines = printed.lines().map(|line| line.split(" initval").next().unwrap_or(line).to_owned());
        sorted(&lines.collect::<Vec<_>>().join("\n"))
    };
    lab.wait_to_see("ipset save", |seen| members(seen) == members(&calico.shell("ipset save")));
    let page = lab.metrics.page();
    assert!(page.contains("felix_ipsets_calico{ip_version=\"inet\"} 10"), "{page}");
    assert!(page.contains("felix_route_table_num_routes{table=\"IPv4:254\"} 5"), "{page}");
}

#[test]
fn with_nftables_the_host_reaches_calicos_state() {
    let lab = running(Backend::Nftables);
    check_network(&lab);
    let calico = Host::new();
    calico.feed("nft -f -", CALICO_NFT);
    let theirs = calico.ruleset();
    lab.wait_to_see("nft list set ip calico cali40this-host", |seen| seen.contains("10.66.1.0"));
    let ours = lab.host.ruleset();
    assert_eq!(ours.chains, theirs.chains);
    assert_eq!(ours.sets, theirs.sets);
    for chain in theirs.rules.keys() {
        assert_eq!(ours.comments(chain), theirs.comments(chain), "{chain}");
    }
}

#[test]
fn endpoints_are_reported_when_their_rules_are_in_place() {
    for backend in [Backend::Iptables, Backend::Nftables] {
        let mut lab = Lab::new();
        lab.start(config(backend));
        // When the second batch is counted, the loop has completed a round with the first one.
        for batch in [messages(backend), vec![messages(backend).swap_remove(0)]] {
            lab.send_and_wait(batch);
        }
        assert_eq!(lab.heard(), [], "nothing is in sync yet");
        assert_eq!(lab.host.shell("nft list ruleset"), "", "nothing is written before");
        lab.send(vec![ToDataplane::InSync]);
        for number in 1..=3 {
            lab.wait_for("workload up", up(number));
        }
        lab.wait_for("host endpoint up", |report| {
            *report == FromDataplane::HostEndpointStatus("n1-eth0".into(), Some("up"))
        });
        lab.host.shell("ip link set cali00000000001 down");
        lab.wait_for("workload down", status(1, Some("down")));
        lab.wait_to_see("ip route", |seen| !seen.contains("10.66.1.1 "));
        lab.host.shell("ip link set cali00000000001 up");
        lab.wait_for("workload up again", up(1));
        lab.wait_to_see("ip route", |seen| sorted(seen).len() == 6);
        lab.send(vec![ToDataplane::WorkloadEndpointRemove(workload_id(2))]);
        lab.wait_for("workload gone", status(2, None));
        assert!(!lab.host.shell("ip route").contains("10.66.1.2 "));
        assert!(!lab.host.shell("nft list ruleset").contains("cali-tw-cali00000000002"));
        // It returns on the same interface.
        let again = Box::new(workloads(backend).swap_remove(1));
        lab.send(vec![ToDataplane::WorkloadEndpointUpdate(workload_id(2), again)]);
        lab.wait_for("workload up once more", up(2));
        lab.wait_to_see("ip route", |seen| sorted(seen) == sorted(ROUTES));
        assert!(lab.stop().is_ok());
    }
}

#[test]
fn foreign_damage_is_repaired_at_once() {
    let mut lab = running(Backend::Nftables);
    let before = lab.host.ruleset();
    lab.host.shell("ip route del 10.66.2.0/26; ip route del 10.66.1.3; ip route del blackhole 10.66.1.0/26");
    lab.wait_to_see("ip route", |seen| sorted(seen) == sorted(ROUTES));
    lab.host
        .shell("nft flush chain ip calico filter-cali-INPUT; nft flush set ip calico cali40network-ip-pools");
    lab.host.shell("nft add rule ip calico filter-cali-FORWARD accept; nft delete table arp calico-arp");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while lab.host.ruleset() != before {
        assert!(std::time::Instant::now() < end, "{:#?}", lab.host.shell("nft list ruleset"));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    lab.host.shell("ip link del vxlan.calico");
    lab.wait_to_see("ip route", |seen| sorted(seen) == sorted(ROUTES));
    check_network(&lab);
    assert!(lab.stop().is_ok());
}

/// The other end of a workload's interface without a known endpoint must not act as a router.
#[test]
fn interfaces_of_unknown_workloads_are_set_up_as_well() {
    let mut lab = running(Backend::Nftables);
    lab.host.shell("ip link add calistranger type veth peer name stranger; ip link set stranger up; ip link set calistranger up");
    for (path, value) in [
        ("ipv6/conf/calistranger/accept_ra", "0"),
        ("ipv4/conf/calistranger/proxy_arp", "1"),
        ("ipv4/conf/calistranger/forwarding", "1"),
    ] {
        lab.wait_to_see(&format!("cat /proc/sys/net/{path}"), |seen| seen.trim() == value);
    }
    assert_eq!(lab.host.shell("cat /proc/sys/net/ipv4/conf/stranger/proxy_arp").trim(), "0");
    assert!(lab.stop().is_ok());
}

#[test]
fn a_restart_writes_nothing_and_drops_nothing() {
    for backend in [Backend::Iptables, Backend::Nftables] {
        let mut lab = running(backend);
        check_network(&lab);
        let picture = |lab: &Lab| {
            (lab.host.shell("nft -a list ruleset | grep -v counter; ipset save"), lab.host.shell("ip route"))
        };
        // The addresses of the tunnel device reach the sets a little later.
        lab.wait_to_see("nft list ruleset; ipset save", |seen| seen.contains("10.66.1.0"));
        assert!(lab.stop().is_ok());
        let before = picture(&lab);
        lab.start(config(backend));
        lab.send(messages(backend));
        lab.send(vec![ToDataplane::InSync]);
        lab.wait_for("in sync", |report| *report == FromDataplane::InSync);
        assert_eq!(picture(&lab), before, "{backend:?}");
        // Objects that the calculation no longer names are removed.
        assert!(lab.stop().is_ok());
        lab.start(config(backend));
        let without = |message: &ToDataplane| !matches!(message, ToDataplane::WorkloadEndpointUpdate(id, _) if *id == workload_id(1));
        lab.send(messages(backend).into_iter().filter(without).collect());
        lab.send(vec![ToDataplane::InSync]);
        lab.wait_for("in sync", |report| *report == FromDataplane::InSync);
        lab.wait_to_see("ip route; nft list ruleset", |seen| {
            !seen.contains("cali-fw-cali00000000001") && !seen.contains("10.66.1.1 dev")
        });
    }
}

/// From one packet filter to the other: the old one's rules and sets are removed.
#[test]
fn the_other_packet_filter_is_cleaned() {
    let mut lab = running(Backend::Iptables);
    assert!(lab.stop().is_ok());
    lab.start(config(Backend::Nftables));
    lab.send(messages(Backend::Nftables));
    lab.send(vec![ToDataplane::InSync]);
    lab.wait_for("in sync", |report| *report == FromDataplane::InSync);
    lab.wait_to_see("iptables-nft-save; ipset save", |seen| !seen.contains("cali"));
    assert!(lab.stop().is_ok());
    lab.start(config(Backend::Iptables));
    lab.send(messages(Backend::Iptables));
    lab.send(vec![ToDataplane::InSync]);
    lab.wait_for("in sync", |report| *report == FromDataplane::InSync);
    lab.wait_to_see("nft list tables", |seen| !seen.contains("table ip calico"));
    lab.wait_to_see("iptables-nft-save", |seen| seen.contains("cali-fw-cali00000000001"));
    assert!(lab.stop().is_ok());
}

#[test]
fn a_change_that_needs_a_restart_ends_the_loop() {
    let mut lab = running(Backend::Iptables);
    lab.host.shell("ip link add kube-ipvs0 type veth peer name ipvs-peer");
    let ended = lab.wait_for_end().expect_err("kube-proxy changed");
    assert!(ended.is_restart(), "{ended}");
}
