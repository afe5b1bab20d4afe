//! Checks of one machine.

use super::{Finding, HostFacts};

/// Kernel modules: their name, what needs them, and whether every node needs them.
const MODULES: [(&str, &str, bool); 7] = [
    ("nf_tables", "filtering with nftables", false),
    ("ip_tables", "filtering with iptables", false),
    ("nf_conntrack", "connection tracking", true),
    ("vxlan", "VXLAN pools", false),
    ("ipip", "IP in IP pools", false),
    ("wireguard", "encryption", false),
    ("veth", "pods", true),
];

/// Every check of a machine.
#[must_use]
pub(crate) fn check_host(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = vec![kernel(facts)];
    findings.extend(modules(facts));
    findings.push(rp_filter(facts));
    findings.push(forwarding(facts));
    findings.extend(managers(facts));
    findings.push(configurations(facts));
    findings.extend(folders(facts));
    findings.push(portmap(facts));
    findings.push(variants(facts));
    findings.push(addresses(facts));
    findings.push(mtu(facts));
    findings.push(clock(facts));
    findings.extend(peers(facts));
    findings
}

fn kernel(facts: &HostFacts) -> Finding {
    let mut numbers = facts.kernel.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or_default());
    let version = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    match version {
        (0, _) => Finding::unknown("kernel", "the kernel's version cannot be read"),
        version if version < (5, 10) => Finding::problem(
            "kernel",
            format!("Linux {} is older than 5.10", facts.kernel),
            "upgrade the host's kernel: nftables sets with intervals and their errors are not reliable before",
        ),
        _ => Finding::ok("kernel", format!("Linux {}", facts.kernel)),
    }
}

fn modules(facts: &HostFacts) -> Vec<Finding> {
    let Some(modules) = &facts.modules else {
        return vec![Finding::unknown("kernel modules", "neither /lib/modules nor /sys/module can be read")];
    };
    let has = |name: &str| modules.contains(name);
    let mut findings = Vec::new();
    if !facts.has_all_modules {
        let missing: Vec<&str> = MODULES.iter().map(|(name, _, _)| *name).filter(|name| !has(name)).collect();
        return vec![match missing.is_empty() {
            true => Finding::ok("kernel modules", "all that Calico can use are available"),
            false => Finding::unknown(
                "kernel modules",
                format!(
                    "there is no module folder for this kernel, so these may be built in or missing: {}",
                    missing.join(", ")
                ),
            ),
        }];
    }
    if !has("nf_tables") && !has("ip_tables") {
        findings.push(Finding::problem(
            "kernel modules",
            "neither nf_tables nor ip_tables can be loaded: nothing could filter packets",
            "install the package with the kernel's extra modules (linux-modules-extra, kernel-modules)",
        ));
    }
    for (name, what, is_needed) in MODULES {
        if has(name) {
            continue;
        }
        let text = format!("{name} is neither loaded nor available: no {what}");
        let remedy = format!("modprobe {name}; where that fails, install the kernel's extra modules");
        findings.push(match is_needed {
            true => Finding::problem("kernel modules", text, remedy),
            false => Finding::warning("kernel modules", text, remedy),
        });
    }
    if findings.is_empty() {
        findings.push(Finding::ok("kernel modules", "all that Calico can use are available"));
    }
    findings
}

fn rp_filter(facts: &HostFacts) -> Finding {
    match facts.rp_filter {
        None => Finding::unknown("rp_filter", "net.ipv4.conf.all.rp_filter cannot be read"),
        Some(2) => Finding::problem(
            "rp_filter",
            "net.ipv4.conf.all.rp_filter is 2 (loose): a pod could send from addresses of others",
            "sysctl -w net.ipv4.conf.all.rp_filter=1 (and in /etc/sysctl.d), or set ignoreLooseRPF in the FelixConfiguration",
        ),
        Some(value) => Finding::ok("rp_filter", format!("net.ipv4.conf.all.rp_filter is {value}")),
    }
}

fn forwarding(facts: &HostFacts) -> Finding {
    match facts.ip_forward {
        None => Finding::unknown("ip_forward", "net.ipv4.ip_forward cannot be read"),
        Some(0) => Finding::warning(
            "ip_forward",
            "net.ipv4.ip_forward is 0: until Felix sets it, no packet of a pod leaves this host",
            "sysctl -w net.ipv4.ip_forward=1, and in /etc/sysctl.d so that nothing sets it back",
        ),
        Some(_) => Finding::ok("ip_forward", "net.ipv4.ip_forward is 1"),
    }
}

fn managers(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let runs = |name: &str| facts.programs.contains(name);
    if runs("NetworkManager") && !facts.manager_files.contains("interface-name:cali") {
        findings.push(Finding::problem(
            "network managers",
            "NetworkManager is running and may manage cali* and vxlan.calico",
            "write /etc/NetworkManager/conf.d/calico.conf with [keyfile] and \
             unmanaged-devices=interface-name:cali*;interface-name:tunl*;interface-name:vxlan.calico;interface-name:wireguard.cali, \
             then reload it",
        ));
    }
    if runs("systemd-network") && !facts.manager_files.contains("ManageForeignRoutes=no") {
        findings.push(Finding::warning(
            "network managers",
            "systemd-networkd is running and removes routes that it did not create",
            "write /etc/systemd/networkd.conf.d/calico.conf with [Network], ManageForeignRoutes=no and \
             ManageForeignRoutingPolicyRules=no, then restart it",
        ));
    }
    if runs("firewalld") {
        findings.push(Finding::warning(
            "network managers",
            "firewalld is running: its rules apply beside Calico's, and it flushes tables when it is reloaded",
            "systemctl disable --now firewalld, and write host policies as HostEndpoints and GlobalNetworkPolicies",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("network managers", "nothing else manages Calico's interfaces"));
    }
    findings
}

fn configurations(facts: &HostFacts) -> Finding {
    let check = "CNI configuration";
    let is_ours = |name: &String| name.ends_with("calico.conflist") || name.ends_with("canal.conflist");
    match facts.cni_files.as_slice() {
        [] => Finding::ok(check, format!("{} is empty: the installer writes one", facts.cni_conf_dir)),
        [only] if is_ours(only) => Finding::ok(check, format!("{only} is the only one")),
        [first, rest @ ..] if is_ours(first) => Finding::warning(
            check,
            format!("{first} is read first; also present: {}", rest.join(", ")),
            format!(
                "move the others out of {}: a runtime that reads another one gives pods another network",
                facts.cni_conf_dir
            ),
        ),
        [first, ..] => Finding::problem(
            check,
            format!("{first} is read first, so that pods do not get Calico's network"),
            format!("remove {}/{first}, or what installs it", facts.cni_conf_dir),
        ),
    }
}

fn folders(facts: &HostFacts) -> Vec<Finding> {
    let check = "CNI folders";
    let mut findings = Vec::new();
    for (folder, writable) in [&facts.cni_conf_dir, &facts.cni_bin_dir].into_iter().zip(facts.writable) {
        match writable {
            Some(true) => {}
            None => findings.push(Finding::warning(
                check,
                format!("{folder} does not exist"),
                "the manifest creates the plugin folder; otherwise mkdir -p, or set the right folder with --set cni.confDir and \
                 cni.binDir",
            )),
            Some(false) => findings.push(Finding::problem(
                check,
                format!("{folder} cannot be written"),
                "hosts with a read-only /usr or /opt keep them elsewhere: configure that with --set cni.binDir and cni.confDir",
            )),
        }
    }
    for (name, key, ours) in
        [("bin_dir", "cni.binDir", &facts.cni_bin_dir), ("conf_dir", "cni.confDir", &facts.cni_conf_dir)]
    {
        let read: Vec<&str> = facts
            .containerd
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, folder)| folder.as_str())
            .collect();
        let is_ours = |folder: &&str| folder.trim_end_matches('/') == ours.trim_end_matches('/');
        if let (Some(first), false) = (read.first(), read.iter().any(is_ours)) {
            findings.push(Finding::problem(
                check,
                format!(
                    "containerd reads {} ({name} in /etc/containerd/config.toml), not {ours}",
                    read.join(", ")
                ),
                format!("install with --set {key}={first}, or change containerd's configuration"),
            ));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            check,
            format!("{} and {} can be written", facts.cni_conf_dir, facts.cni_bin_dir),
        ));
    }
    findings
}

fn portmap(facts: &HostFacts) -> Finding {
    match facts.has_portmap {
        true => Finding::ok("portmap", format!("{}/portmap exists", facts.cni_bin_dir)),
        false => Finding::warning(
            "portmap",
            format!("{}/portmap does not exist: pods with a hostPort do not start", facts.cni_bin_dir),
            "`tortie cni install` (which the init container runs) installs it; nothing else is needed",
        ),
    }
}

fn variants(facts: &HostFacts) -> Finding {
    match facts.legacy_tables {
        None => Finding::ok("iptables variant", "no tables of legacy iptables"),
        Some(false) => Finding::ok("iptables variant", "no tables of legacy iptables"),
        Some(true) => Finding::warning(
            "iptables variant",
            "tables of legacy iptables are in use: iptables-nft does not see them",
            "let kube-proxy and everything else use one variant; FELIX_IPTABLESBACKEND=Legacy if it must be legacy",
        ),
    }
}

fn addresses(facts: &HostFacts) -> Finding {
    let ours = [
        "cali",
        "tunl",
        "vxlan.calico",
        "wireguard.cali",
        "docker",
        "cni",
        "flannel",
        "kube-ipvs",
        "nodelocaldns",
        "lo",
    ];
    let (v4, v6): (Vec<_>, Vec<_>) = facts
        .interfaces
        .iter()
        .filter(|interface| !ours.iter().any(|prefix| interface.name.starts_with(prefix)))
        .partition(|interface| interface.address.contains('.'));
    // A host without IPv4 belongs to an IPv6 cluster.
    let candidates = if v4.is_empty() { v6 } else { v4 };
    let list = || {
        let texts: Vec<String> =
            candidates.iter().map(|one| format!("{} on {}", one.address, one.name)).collect();
        texts.join(", ")
    };
    match candidates.len() {
        0 => Finding::problem(
            "node address",
            "no interface has an address that other nodes could reach",
            "give one an address, or set IP and IP_AUTODETECTION_METHOD",
        ),
        1 => Finding::ok("node address", list()),
        _ => Finding::warning(
            "node address",
            format!("there are several: {}; without IP_AUTODETECTION_METHOD the first is used", list()),
            "choose one with --set ipAutodetectionMethod=kubernetes-internal-ip (or interface=REGEX, can-reach=ADDRESS, cidr=RANGE)",
        ),
    }
}

fn mtu(facts: &HostFacts) -> Finding {
    let tunnels = [
        ("vxlan.calico", 50),
        ("vxlan-v6.calico", 70),
        ("tunl0", 20),
        ("wireguard.cali", 60),
        ("wg-v6.cali", 80),
    ];
    let is_tunnel = |name: &str| tunnels.iter().any(|(tunnel, _)| *tunnel == name);
    let physical = facts.interfaces.iter().filter(|interface| {
        !is_tunnel(&interface.name)
            && !["cali", "docker", "cni", "lo"].iter().any(|prefix| interface.name.starts_with(prefix))
    });
    let Some(smallest) = physical.map(|interface| interface.mtu).min() else {
        return Finding::unknown("MTU", "no interface with an address");
    };
    for (name, overhead) in tunnels {
        if let Some((_, mtu)) =
            facts.links.iter().find(|(link, mtu)| link == name && *mtu > smallest.saturating_sub(overhead))
        {
            return Finding::problem(
                "MTU",
                format!(
                    "{name} has {mtu}, and with {overhead} bytes around it a packet does not fit through {smallest}"
                ),
                format!(
                    "--set mtu={} (veth_mtu in the config map), then restart calico-node",
                    smallest.saturating_sub(overhead)
                ),
            );
        }
    }
    Finding::ok("MTU", format!("the smallest of this host's networks is {smallest}, and tunnels fit into it"))
}

fn clock(facts: &HostFacts) -> Finding {
    let services =
        ["chronyd", "ntpd", "systemd-timesyn", "ptp4l", "phc2sys", "timesyncd", "VBoxService", "vmtoolsd"];
    match services.iter().find(|name| facts.programs.contains(**name)) {
        Some(name) => Finding::ok("clock", format!("{name} synchronises it")),
        None => Finding::warning(
            "clock",
            "no program that synchronises the clock is running",
            "tokens and certificates fail when clocks differ: run chrony or systemd-timesyncd, unless the hypervisor does",
        ),
    }
}

fn peers(facts: &HostFacts) -> Vec<Finding> {
    let check = "other nodes";
    if facts.peers.is_empty() {
        return vec![Finding::unknown(
            check,
            "not tried: name some with --peer ADDRESS:PORT (TCP 179 for BGP, 5473 for Typha). UDP 4789 (VXLAN), 51820 \
             (WireGuard) and protocol 4 (IP in IP) do not answer: `calicoctl node status` and a ping between pods show them",
        )];
    }
    facts
        .peers
        .iter()
        .map(|(peer, failure)| match failure {
            None => Finding::ok(check, format!("{peer} answers")),
            Some(reason) => Finding::problem(
                check,
                format!("{peer} does not answer: {reason}"),
                "open that port between nodes in firewalls and security groups",
            ),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::host_facts::Interface;
    use super::*;

    fn healthy() -> HostFacts {
        HostFacts {
            kernel: "6.1.0".into(),
            modules: Some(MODULES.iter().map(|(name, _, _)| (*name).to_owned()).collect()),
            has_all_modules: true,
            rp_filter: Some(1),
            ip_forward: Some(1),
            programs: ["chronyd".to_owned()].into(),
            cni_files: vec!["10-calico.conflist".into()],
            cni_conf_dir: "/etc/cni/net.d".into(),
            cni_bin_dir: "/opt/cni/bin".into(),
            writable: [Some(true), Some(true)],
            has_portmap: true,
            legacy_tables: Some(false),
            interfaces: vec![Interface { name: "eth0".into(), address: "10.0.0.1/24".into(), mtu: 1500 }],
            links: vec![("vxlan.calico".into(), 1450)],
            peers: vec![("10.0.0.2:179".parse().unwrap(), None)],
            ..HostFacts::default()
        }
    }

    #[test]
    fn a_healthy_machine() {
        let findings = check_host(&healthy());
        assert!(findings.iter().all(|finding| finding.level == Level::Ok), "{findings:#?}");
    }

    #[test]
    fn every_fault_is_found_and_has_a_remedy() {
        type Break = fn(&mut HostFacts);
        let cases: [(&str, Level, &str, Break); 20] = [
            ("kernel", Level::Problem, "older than 5.10", |facts| facts.kernel = "4.19.0-26".into()),
            ("kernel modules", Level::Problem, "nothing could filter", |facts| {
                facts.modules = Some(["veth".to_owned(), "nf_conntrack".to_owned()].into());
            }),
            ("kernel modules", Level::Warning, "no VXLAN pools", |facts| {
                facts.modules.as_mut().unwrap().remove("vxlan");
            }),
            ("rp_filter", Level::Problem, "loose", |facts| facts.rp_filter = Some(2)),
            ("ip_forward", Level::Warning, "no packet of a pod", |facts| facts.ip_forward = Some(0)),
            ("network managers", Level::Problem, "NetworkManager", |facts| {
                facts.programs.insert("NetworkManager".into());
            }),
            ("network managers", Level::Warning, "systemd-networkd", |facts| {
                facts.programs.insert("systemd-network".into());
            }),
            ("network managers", Level::Warning, "firewalld", |facts| {
                facts.programs.insert("firewalld".into());
            }),
            ("CNI configuration", Level::Problem, "05-cilium.conflist is read first", |facts| {
                facts.cni_files.insert(0, "05-cilium.conflist".into());
            }),
            ("CNI configuration", Level::Warning, "also present: 87-podman.conflist", |facts| {
                facts.cni_files.push("87-podman.conflist".into());
            }),
            ("CNI folders", Level::Problem, "cannot be written", |facts| facts.writable[1] = Some(false)),
            ("CNI folders", Level::Warning, "does not exist", |facts| facts.writable[0] = None),
            ("CNI folders", Level::Problem, "containerd reads /usr/lib/cni", |facts| {
                facts.containerd = vec![("bin_dir".into(), "/usr/lib/cni".into())];
            }),
            ("portmap", Level::Warning, "hostPort", |facts| facts.has_portmap = false),
            ("iptables variant", Level::Warning, "legacy", |facts| facts.legacy_tables = Some(true)),
            ("node address", Level::Problem, "no interface", |facts| {
                facts.interfaces[0].name = "cali1".into();
            }),
            ("node address", Level::Warning, "10.9.0.1/24 on eth1", |facts| {
                facts.interfaces.push(Interface {
                    name: "eth1".into(),
                    address: "10.9.0.1/24".into(),
                    mtu: 1500,
                });
            }),
            ("MTU", Level::Problem, "does not fit through 1500", |facts| facts.links[0].1 = 1500),
            ("clock", Level::Warning, "synchronises the clock", |facts| facts.programs.clear()),
            ("other nodes", Level::Problem, "10.0.0.2:179 does not answer", |facts| {
                facts.peers[0].1 = Some("timed out".into());
            }),
        ];
        for (check, level, text, spoil) in cases {
            let mut facts = healthy();
            spoil(&mut facts);
            let findings = check_host(&facts);
            let found = findings.iter().find(|finding| finding.check == check && finding.text.contains(text));
            let found = found.unwrap_or_else(|| panic!("{check}: {text}: {findings:#?}"));
            assert_eq!(found.level, level, "{found:?}");
            assert!(!found.remedy.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn a_machine_of_ipv6_has_an_address() {
        let mut facts = healthy();
        facts.interfaces[0].address = "fd00::1/64".into();
        let findings = check_host(&facts);
        let found = findings.iter().find(|finding| finding.check == "node address").unwrap();
        assert_eq!((found.level, found.text.as_str()), (Level::Ok, "fd00::1/64 on eth0"));
    }

    #[test]
    fn unknown_facts_are_not_ok() {
        let findings = check_host(&HostFacts::default());
        for check in ["kernel", "kernel modules", "rp_filter", "ip_forward", "MTU", "other nodes"] {
            let found = findings.iter().find(|finding| finding.check == check).unwrap();
            assert_eq!(found.level, Level::Unknown, "{found:?}");
        }
    }
}
