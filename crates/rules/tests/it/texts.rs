//! Chains that are not in the golden files, as texts that Calico writes for them.

use api::QoSControls;
use messages::InterfaceName;
use model::feed::RuleAction;
use rules::names;
use rules::tree::{Chain, IpVersion, Table};
use rules::{
    Backend, Denied, DscpRule, EndpointMarks, Features, HostInterfaces, Marks, OpenStack, Renderer,
    RulesConfig, ServiceLoopAction, Wireguard, WorkloadChains, iptables, nftables,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The rules of a chain as lines of `iptables-restore`, without the chain and the hash.
fn lines(chain: &Chain) -> Vec<String> {
    let hashes = iptables::hashes(&chain.name, &chain.rules);
    let line = |(rule, hash)| {
        let line = iptables::render_append(&chain.name, rule, hash);
        let start = format!("-A {} -m comment --comment \"cali:{hash}\"", chain.name);
        line.strip_prefix(&start).expect("chain and hash first").trim_start().to_owned()
    };
    chain.rules.iter().zip(hashes).map(line).collect()
}

fn nft_lines(layer: Table, version: IpVersion, chain: &Chain) -> Vec<String> {
    chain.rules.iter().map(|rule| nftables::rule_text(layer, version.into(), rule)).collect()
}

fn iptables_with(change: impl FnOnce(&mut RulesConfig)) -> Renderer {
    let mut config = RulesConfig::default();
    change(&mut config);
    Renderer::new(config)
}

fn nftables_with(change: impl FnOnce(&mut RulesConfig)) -> Renderer {
    iptables_with(|config| {
        config.backend = Backend::Nftables;
        change(config);
    })
}

fn fixed(renderer: &Renderer, table: Table, version: IpVersion, name: &str) -> Chain {
    let chains = renderer.fixed_chains(table, version);
    chains.into_iter().find(|chain| &*chain.name == name).expect("the chain")
}

#[test]
fn nat_outgoing() {
    let with_ports = |config: &mut RulesConfig| {
        config.nat_port_range = Some((99, 100));
        config.nat_outgoing_address = Some([10, 0, 0, 1].into());
        config.nat_outgoing_exclude_hosts = true;
        config.features = Features { snat_random_fully: false, ..Features::default() };
    };
    let start = "-m set --match-set cali40masq-ipam-pools src -m set ! --match-set cali40network-ip-pools dst \
                 -m set ! --match-set cali40all-hosts-net dst";
    assert_eq!(
        lines(&iptables_with(with_ports).nat_outgoing_chain(true, IpVersion::V4)),
        [
            format!("{start} -p tcp --jump SNAT --to-source 10.0.0.1:99-100"),
            format!("{start} -p tcp --jump RETURN"),
            format!("{start} -p udp --jump SNAT --to-source 10.0.0.1:99-100"),
            format!("{start} -p udp --jump RETURN"),
            format!("{start} --jump SNAT --to-source 10.0.0.1"),
        ]
    );
    // The address is of the other version, so it is not used.
    let chain = nftables_with(with_ports).nat_outgoing_chain(true, IpVersion::V6);
    let start = "ip6 saddr @cali60masq-ipam-pools ip6 daddr != @cali60network-ip-pools \
                 ip6 daddr != @cali60all-hosts-net";
    assert_eq!(
        nft_lines(Table::Nat, IpVersion::V6, &chain)[0],
        format!("{start} meta l4proto tcp counter masquerade to :99-100 fully-random")
    );
    let on_eth = iptables_with(|config| {
        config.nat_outgoing_interface = Some(rules::tree::InterfacePattern::from_setting("eth+"));
    });
    assert!(
        lines(&on_eth.nat_outgoing_chain(true, IpVersion::V4))[0].contains("dst --out-interface eth+ --jump")
    );
    assert!(on_eth.nat_outgoing_chain(false, IpVersion::V4).rules.is_empty());
}

#[test]
fn floating_addresses() {
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let pairs = [("172.16.0.9", "10.0.0.9"), ("172.16.0.10", "10.0.0.9"), ("172.16.0.1", "10.0.0.1")];
    let by_external: BTreeMap<_, _> =
        pairs.iter().map(|(external, internal)| (address(external), address(internal))).collect();
    let renderer = iptables_with(|config| config.features.snat_random_fully = false);
    let [dnat, snat] = renderer.floating_address_chains(&by_external, IpVersion::V4);
    assert_eq!(
        lines(&dnat),
        [
            "--destination 172.16.0.1 --jump DNAT --to-destination 10.0.0.1",
            "--destination 172.16.0.10 --jump DNAT --to-destination 10.0.0.9",
            "--destination 172.16.0.9 --jump DNAT --to-destination 10.0.0.9",
        ]
    );
    assert_eq!(
        lines(&snat),
        [
            "--destination 10.0.0.1 --source 10.0.0.1 --jump SNAT --to-source 172.16.0.1",
            "--destination 10.0.0.9 --source 10.0.0.9 --jump SNAT --to-source 172.16.0.10",
        ]
    );
    let nothing = renderer.floating_address_chains(&by_external, IpVersion::V6);
    assert!(nothing.iter().all(|chain| chain.rules.is_empty()));
}

#[test]
fn lists_of_addresses() {
    let nets = ["10.96.0.0/12", "10.100.0.0/16", "fd96::/112"].map(|net| net.parse().expect("a network"));
    let renderer = iptables_with(|_| ());
    assert_eq!(
        lines(&renderer.service_loop_chain(&nets, IpVersion::V4)),
        ["--destination 10.100.0.0/16 --jump DROP", "--destination 10.96.0.0/12 --jump DROP"]
    );
    let rejecting = iptables_with(|config| config.service_loop_prevention = ServiceLoopAction::Reject);
    assert_eq!(
        lines(&rejecting.service_loop_chain(&nets, IpVersion::V6)),
        ["--destination fd96::/112 --jump REJECT"]
    );
    let off = iptables_with(|config| config.service_loop_prevention = ServiceLoopAction::Disabled);
    assert!(off.service_loop_chain(&nets, IpVersion::V4).rules.is_empty());

    let marks = [("10.0.0.2", 20), ("10.0.0.10", 46), ("10.0.0.3", 64)]
        .map(|(source, value)| DscpRule { source: source.parse().expect("an address"), value });
    assert_eq!(
        lines(&renderer.egress_dscp_chain(&marks, IpVersion::V4)),
        ["--source 10.0.0.10 --jump DSCP --set-dscp 46", "--source 10.0.0.2 --jump DSCP --set-dscp 20"]
    );
    let allowed = BTreeMap::from([(InterfaceName::from("cali1"), nets.to_vec())]);
    assert_eq!(
        lines(&renderer.rpf_skip_chain(&allowed, IpVersion::V6)),
        ["--in-interface cali1 --source fd96::/112 --jump ACCEPT"]
    );
}

#[test]
fn limits() {
    let qos = QoSControls {
        ingress_packet_rate: 1000,
        ingress_packet_burst: 2000,
        ingress_max_connections: 10,
        ..QoSControls::default()
    };
    let to_workload = |renderer: &Renderer| {
        let [to, _] = renderer.workload_endpoint_chains(&WorkloadChains {
            interface: "cali1",
            admin_up: true,
            tiers: &[],
            profiles: &[],
            qos: Some(&qos),
        });
        to
    };
    assert_eq!(
        lines(&to_workload(&iptables_with(|_| ())))[..7],
        [
            "-m comment --comment \"Clear ingress packet rate limit mark\" --jump MARK --set-mark 0/0x80000",
            "-m comment --comment \"Mark packets within ingress packet rate limit\" -m limit --limit 1000/sec \
             --limit-burst 2000 --jump MARK --set-mark 0x80000/0x80000",
            "-m comment --comment \"Drop packets over ingress packet rate limit\" -m mark ! --mark \
             0x80000/0x80000 --jump DROP",
            "-m comment --comment \"Clear ingress packet rate limit mark\" --jump MARK --set-mark 0/0x80000",
            "-m conntrack --ctstate RELATED,ESTABLISHED --jump ACCEPT",
            "-m conntrack --ctstate INVALID --jump DROP",
            "-m comment --comment \"Reject connections over ingress connection limit\" -p tcp -m tcp \
             --tcp-flags FIN,SYN,RST,ACK SYN -m connlimit --connlimit-above 10 --connlimit-mask 0 -j REJECT \
             --reject-with tcp-reset",
        ]
    );
    assert_eq!(
        nft_lines(Table::Filter, IpVersion::V4, &to_workload(&nftables_with(|_| ())))[..4],
        [
            "counter limit rate over 1000/second burst 2000 packets drop",
            "ct state related,established counter accept",
            "ct state invalid counter drop",
            "counter ct count over 10 reject with tcp reset",
        ]
    );
}

#[test]
fn tunnels_and_openstack() {
    let everything = |config: &mut RulesConfig| {
        config.marks = Marks::from_mask(0xffff_0000, true, false).unwrap_or_default();
        config.ipip_enabled = true;
        config.ipip_tunnel_address = Some([10, 0, 0, 3].into());
        config.wireguard = Wireguard { enabled: true, ..config.wireguard.clone() };
        config.wireguard_encrypt_host_traffic = true;
        config.openstack = Some(OpenStack { metadata: Some(([10, 0, 0, 7].into(), 8775)) });
        config.filter_deny_action = Denied::Reject;
    };
    let renderer = iptables_with(everything);
    assert_eq!(
        lines(&fixed(&renderer, Table::Filter, IpVersion::V4, names::INPUT))[..3],
        [
            "-m comment --comment \"Allow IPIP packets from Calico hosts\" -p 4 -m set --match-set \
             cali40all-hosts-net src -m addrtype --dst-type LOCAL --jump ACCEPT",
            "-m comment --comment \"Reject IPIP packets from non-Calico hosts\" -p 4 --jump REJECT",
            "-m comment --comment \"Allow incoming IPv4 Wireguard packets\" -p 17 -m multiport \
             --destination-ports 51820 -m addrtype --dst-type LOCAL --jump ACCEPT",
        ]
    );
    assert_eq!(
        lines(&fixed(&renderer, Table::Filter, IpVersion::V4, names::WORKLOAD_TO_HOST))[..3],
        [
            "-p tcp --destination 10.0.0.7 -m multiport --destination-ports 8775 --jump ACCEPT",
            "-p udp -m multiport --source-ports 68 -m multiport --destination-ports 67 --jump ACCEPT",
            "-p udp -m multiport --destination-ports 53 --jump ACCEPT",
        ]
    );
    assert_eq!(
        lines(&fixed(&renderer, Table::Nat, IpVersion::V4, names::PREROUTING))[1],
        "-p tcp -m multiport --destination-ports 80 --destination 169.254.169.254/32 --jump DNAT \
         --to-destination 10.0.0.7:8775"
    );
    assert_eq!(
        lines(&fixed(&renderer, Table::Nat, IpVersion::V4, names::POSTROUTING))[2],
        "--out-interface tunl0 -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL \
         --jump MASQUERADE --random-fully"
    );
    assert_eq!(
        lines(&fixed(&renderer, Table::Raw, IpVersion::V4, names::PREROUTING)),
        [
            "--jump MARK --set-mark 0/0x1b0000",
            "--jump cali-wireguard-incoming-mark",
            "--in-interface cali+ --jump MARK --set-mark 0x80000/0x80000",
            "-m mark --mark 0x80000/0x80000 --jump cali-rpf-skip",
            "-p udp --source 0.0.0.0 -m multiport --source-ports 68 -m multiport --destination-ports 67 \
             --jump ACCEPT",
            // Calico rejects here, but the kernel does not support that outside of the filter table.
            "-m mark --mark 0x80000/0x80000 -m rpfilter --invert --validmark --jump DROP",
            "-m mark --mark 0/0x80000 --jump cali-from-host-endpoint",
            "-m mark --mark 0x10000/0x10000 --jump ACCEPT",
        ]
    );
    assert_eq!(
        lines(&fixed(&renderer, Table::Raw, IpVersion::V4, names::WIREGUARD_INCOMING_MARK)),
        [
            "--in-interface lo --jump RETURN",
            "--in-interface wireguard.cali --jump RETURN",
            "--in-interface wg-v6.cali --jump RETURN",
            "--in-interface cali+ --jump RETURN",
            "--jump MARK --set-mark 0x200000/0x200000",
        ]
    );
    let v6 = fixed(&renderer, Table::Filter, IpVersion::V6, names::WORKLOAD_TO_HOST);
    assert_eq!(lines(&v6)[0], "-p 58 -m icmp6 --icmpv6-type 130 --jump ACCEPT");
    let v6 = fixed(&nftables_with(everything), Table::Filter, IpVersion::V6, names::WORKLOAD_TO_HOST);
    assert_eq!(
        nft_lines(Table::Filter, IpVersion::V6, &v6)[5],
        "meta l4proto 58 icmpv6 type 136 counter accept"
    );
}

#[test]
fn dispatch_for_all_interfaces_and_by_character() {
    let renderer = iptables_with(|_| ());
    let interfaces =
        |names: &[&str]| -> BTreeSet<InterfaceName> { names.iter().map(|name| (*name).into()).collect() };
    let hosts = HostInterfaces { names: interfaces(&["eth0", "eth1", "ens1"]), any: true };
    let chains = renderer.mangle_host_dispatch(&HostInterfaces::default(), &hosts);
    let all: Vec<_> = chains.iter().map(|chain| (&*chain.name, lines(chain))).collect();
    let end = [
        "-m comment --comment \"Skip egress WHEP policy for traffic to local workload\" --out-interface cali+ \
         --jump RETURN",
        "--goto cali-th-any-interface-at-all",
    ]
    .map(str::to_owned);
    let with_end =
        |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).chain(end.clone()).collect::<Vec<_>>();
    assert_eq!(
        all,
        [
            ("cali-from-host-endpoint", Vec::new()),
            (
                "cali-to-host-endpoint-t",
                with_end(&[
                    "--out-interface eth0 --goto cali-th-eth0",
                    "--out-interface eth1 --goto cali-th-eth1"
                ]),
            ),
            (
                "cali-to-host-endpoint",
                with_end(&[
                    "--out-interface ens1 --goto cali-th-ens1",
                    "--out-interface et+ --goto cali-to-host-endpoint-t",
                ]),
            ),
        ]
    );
    // A name that no interface can have would mean all interfaces with this prefix.
    let dispatch =
        renderer.workload_dispatch(&interfaces(&["cali+", "cali1", "", "x y", "far-too-long-name"]));
    assert_eq!(
        lines(&dispatch.chains[0]),
        [
            "--in-interface cali1 --goto cali-fw-cali1",
            "-m comment --comment \"Unknown interface\" --jump DROP"
        ]
    );
}

#[test]
fn marks_of_endpoints() {
    let renderer = iptables_with(|config| {
        config.ipvs_support = true;
        config.marks = Marks::from_mask(0xffff_0000, false, true).unwrap_or_default();
    });
    let mut marks = EndpointMarks::new(&renderer.config().marks);
    let workloads: BTreeSet<InterfaceName> =
        ["cali1", "cali1a", "cali2"].into_iter().map(Into::into).collect();
    let hosts: BTreeSet<InterfaceName> = BTreeSet::from(["eth0".into()]);
    let chains = renderer.endpoint_mark_dispatch(&mut marks, &workloads, &hosts);
    let [child, set, from] = &chains[..] else { panic!("three chains: {chains:?}") };
    assert_eq!(&*child.name, "cali-set-endpoint-mark-wep-1");
    assert_eq!(
        lines(set),
        [
            "--in-interface cali1+ --goto cali-set-endpoint-mark-wep-1",
            "--in-interface cali2 --goto cali-sm-cali2",
            "--in-interface eth0 --goto cali-sm-eth0",
            "-m comment --comment \"Unknown endpoint\" --in-interface cali+ --jump DROP",
            "-m comment --comment \"Non-Cali endpoint mark\" --jump MARK --set-mark 0x200000/0xffe00000",
        ]
    );
    let mark = marks.get("eth0").expect("a mark");
    assert_eq!(
        lines(from)[3..],
        [
            format!("-m mark --mark {mark:#x}/0xffe00000 --goto cali-fhfw-eth0"),
            "-m comment --comment \"Unknown interface\" --jump DROP".to_owned(),
        ]
    );
    assert_eq!(
        lines(&renderer.set_endpoint_mark_chain("eth0", Some(mark))),
        [format!("--jump MARK --set-mark {mark:#x}/0xffe00000")]
    );
}

#[test]
fn flow_offload() {
    let renderer = nftables_with(|config| config.flow_offload = true);
    assert_eq!(
        nft_lines(
            Table::Filter,
            IpVersion::V4,
            &fixed(&renderer, Table::Filter, IpVersion::V4, names::FORWARD)
        )[0],
        "ct state related,established ip saddr != @cali40no-flow-offload ip daddr != @cali40no-flow-offload \
         counter flow offload @calico"
    );
    // iptables has no flow table.
    let renderer = iptables_with(|config| config.flow_offload = true);
    let chain = fixed(&renderer, Table::Filter, IpVersion::V4, names::FORWARD);
    assert_eq!(lines(&chain)[0], "--jump MARK --set-mark 0/0x1a0000");
}

/// Renders one rule of a policy, for both backends.
fn of_rule(rule: messages::Rule, version: IpVersion) -> [Vec<String>; 2] {
    let profile = messages::Profile { inbound_rules: vec![rule], ..messages::Profile::default() };
    let chain = |renderer: Renderer| {
        let mut chain = renderer.profile_chains("p", &profile, version).swap_remove(0).chain;
        std::sync::Arc::make_mut(&mut chain.rules)[0].comments.clear();
        chain
    };
    [lines(&chain(iptables_with(|_| ()))), nft_lines(Table::Filter, version, &chain(nftables_with(|_| ())))]
}

/// Rules whose text in Calico's rendering is rejected, so that nothing of the table is programmed.
#[test]
fn rules_that_calico_cannot_program() {
    use api::scalars::Protocol;
    let rule = || messages::Rule { action: RuleAction::Allow, ..messages::Rule::default() };
    let message = |icmp_type, code| Some(messages::IcmpMatch { icmp_type, code });
    let set = "--jump MARK --set-mark 0x10000/0x10000";

    let both = messages::Rule { protocol: Some(Protocol::Tcp), not_protocol: Some(Protocol::Udp), ..rule() };
    let [iptables, nftables] = of_rule(both.clone(), IpVersion::V4);
    assert_eq!(iptables, [format!("-p tcp {set}")]);
    assert_eq!(nftables, ["meta l4proto tcp meta l4proto != udp counter meta mark set mark or 0x10000"]);
    let nothing = messages::Rule { not_protocol: Some(Protocol::Number(6)), ..both };
    assert_eq!(of_rule(nothing, IpVersion::V4), [vec![String::new()], vec!["continue".to_owned()]]);

    let echo = messages::Rule { protocol: Some(Protocol::Icmp), icmp: message(8, Some(0)), ..rule() };
    let [iptables, nftables] = of_rule(echo.clone(), IpVersion::V4);
    assert_eq!(iptables, [format!("-p icmp -m icmp --icmp-type 8/0 {set}")]);
    assert_eq!(nftables, ["meta l4proto icmp icmp type 8 icmp code 0 counter meta mark set mark or 0x10000"]);
    // As a number, it is not ICMP of IPv6 either.
    let by_number = messages::Rule { protocol: Some(Protocol::Number(1)), ..echo };
    assert_eq!(of_rule(by_number, IpVersion::V6)[1], ["continue"]);

    let others = messages::Rule { not_icmp: message(3, Some(4)), ..rule() };
    let [iptables, nftables] = of_rule(others.clone(), IpVersion::V6);
    assert_eq!(iptables, [format!("-p icmpv6 -m icmp6 ! --icmpv6-type 3/4 {set}")]);
    assert_eq!(
        nftables,
        [
            "counter meta mark set mark & 0xffe7ffff ^ 0x80000",
            "meta l4proto icmpv6 icmpv6 type 3 icmpv6 code 4 counter meta mark set mark & 0xfff7ffff",
            "meta l4proto icmpv6 meta mark & 0x80000 == 0x80000 counter meta mark set mark or 0x10000",
        ]
    );
    let contradiction = messages::Rule { protocol: Some(Protocol::Tcp), ..others };
    assert_eq!(of_rule(contradiction, IpVersion::V4)[1], ["continue"]);
}

/// Rules of two lists are Calico's to the letter. From the third list on, the bit of the previous list is cleared
/// first; otherwise the list would have no effect.
#[test]
fn each_list_from_the_third_on_begins_with_a_clear_bit() {
    let nets = |texts: &[&str]| texts.iter().map(|net| net.parse().expect("a network")).collect::<Vec<_>>();
    let two = messages::Rule {
        action: RuleAction::Allow,
        protocol: Some(api::scalars::Protocol::Tcp),
        source: messages::RuleEnd { nets: nets(&["10.0.1.0/24", "10.0.2.0/24"]), ..Default::default() },
        destination: messages::RuleEnd { nets: nets(&["10.0.3.0/24", "10.0.4.0/24"]), ..Default::default() },
        ..messages::Rule::default()
    };
    let (clear, this) = ("--jump MARK --set-mark 0/0x80000", "--jump MARK --set-mark 0x100000/0x100000");
    let lists = [
        format!("--source 10.0.1.0/24 {this}"),
        format!("--source 10.0.2.0/24 {this}"),
        format!("-m mark --mark 0/0x100000 {clear}"),
        format!("--destination 10.0.3.0/24 {this}"),
        format!("--destination 10.0.4.0/24 {this}"),
        format!("-m mark --mark 0/0x100000 {clear}"),
        "-p tcp -m mark --mark 0x80000/0x80000 --jump MARK --set-mark 0x10000/0x10000".to_owned(),
    ];
    let all = "--jump MARK --set-mark 0x80000/0x80000";
    let expected: Vec<String> = [
        "--jump MARK --set-mark 0x0/0x180000".to_owned(),
        format!("--source 10.0.1.0/24 {all}"),
        format!("--source 10.0.2.0/24 {all}"),
    ]
    .into_iter()
    .chain(lists[3..].iter().cloned())
    .collect();
    assert_eq!(of_rule(two.clone(), IpVersion::V4)[0], expected, "two lists");

    let mut four = two;
    let ports = |first: u16| {
        (first..first + 16).map(|port| messages::PortRange { first: port, last: port }).collect()
    };
    four.source.ports = ports(1000);
    four.destination.ports = ports(2000);
    let rendered = &of_rule(four, IpVersion::V4)[0];
    let own = "--jump MARK --set-mark 0/0x100000";
    assert_eq!(rendered[6], own, "{rendered:#?}");
    assert_eq!(rendered[7..10], lists[..3]);
    assert_eq!(rendered[10], own);
    assert_eq!(rendered[11..], lists[3..]);
    assert_eq!(rendered.iter().filter(|line| *line == own).count(), 2);
}
