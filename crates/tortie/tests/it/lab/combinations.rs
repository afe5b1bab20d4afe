//! Labs of every kind that this kernel supports: all pods reach each other, a default deny closes everything, and one
//! label and port are allowed again; across nodes, subnets and IP versions.

use super::{ALLOW, DENY, Lab, TORTIE};
use testkit::guest::Guest;

/// Three nodes in two subnets, so that packets travel within a node, within a subnet and between subnets.
fn check(flags: &[&str], versions: usize) {
    let mut all = vec!["--nodes", "3", "--pods", "4"];
    all.extend(flags);
    let lab = Lab::up(&all);
    // Four pods, each to three others, on two ports.
    let cells = 4 * 3 * 2 * versions;
    assert_eq!(lab.matrix(&[]), (cells, 0));
    lab.apply(DENY);
    assert_eq!(lab.matrix(&[]), (0, cells));
    lab.apply(ALLOW);
    // One of the four pods belongs to the front.
    assert_eq!(lab.matrix(&[]), (3 * versions, cells - 3 * versions));
    lab.succeed(&["down"]);
    lab.assert_gone();
}

// Four choices with two or three values each: these nine tests cover every pair of values.

#[test]
fn no_encapsulation_with_nftables() {
    check(&["--encap", "none", "--dataplane", "nftables"], 1);
}

#[test]
fn no_encapsulation_with_iptables_on_etcd_with_ipv6() {
    check(&["--encap", "none", "--dataplane", "iptables", "--datastore", "etcd", "--ipv6"], 1);
}

#[test]
fn no_encapsulation_with_nftables_on_kubernetes_dual_stack() {
    check(&["--encap", "none", "--dataplane", "nftables", "--datastore", "kubernetes", "--dual-stack"], 2);
}

#[test]
fn vxlan_with_iptables_and_ipv6() {
    check(&["--encap", "vxlan", "--dataplane", "iptables", "--ipv6"], 1);
}

#[test]
fn vxlan_with_nftables_on_etcd_dual_stack() {
    check(&["--encap", "vxlan", "--dataplane", "nftables", "--datastore", "etcd", "--dual-stack"], 2);
}

#[test]
fn vxlan_with_iptables_on_kubernetes() {
    check(&["--encap", "vxlan", "--dataplane", "iptables", "--datastore", "kubernetes"], 1);
}

#[test]
fn vxlan_between_subnets_with_iptables_dual_stack() {
    check(&["--encap", "cross-subnet", "--dataplane", "iptables", "--dual-stack"], 2);
}

#[test]
fn vxlan_between_subnets_with_iptables_on_etcd() {
    check(&["--encap", "cross-subnet", "--dataplane", "iptables", "--datastore", "etcd"], 1);
}

#[test]
fn vxlan_between_subnets_with_nftables_on_kubernetes_with_ipv6() {
    check(&["--encap", "cross-subnet", "--dataplane", "nftables", "--datastore", "kubernetes", "--ipv6"], 1);
}

#[test]
fn no_encapsulation_with_ebpf_dual_stack() {
    check(&["--encap", "none", "--dataplane", "ebpf", "--dual-stack"], 2);
}

#[test]
fn vxlan_with_ebpf() {
    check(&["--encap", "vxlan", "--dataplane", "ebpf"], 1);
}

#[test]
fn vxlan_between_subnets_with_ebpf_and_ipv6() {
    check(&["--encap", "cross-subnet", "--dataplane", "ebpf", "--ipv6"], 1);
}

/// This machine's kernel may lack IP in IP; the guest's kernel has it.
#[test]
fn ip_in_ip_in_a_guest() {
    let guest = Guest::new("lab::combinations::ip_in_ip_in_a_guest").binary(TORTIE);
    guest.run(|| {
        // The guest's file system in memory contains only what has been created.
        for folder in ["/run", "/var/lib", "/var/log", "/tmp"] {
            std::fs::create_dir_all(folder).expect(folder);
        }
        let lab = Lab::up(&["--encap", "ipip", "--nodes", "2", "--pods", "2"]);
        assert_eq!(lab.matrix(&["--ports", "80"]), (2, 0));
        let routes = lab.succeed(&["exec", "node1", "--", "busybox", "ip", "route"]);
        assert!(routes.contains("dev tunl0"), "{routes}");
        let tunnel = lab.succeed(&["exec", "node1", "--", "busybox", "ip", "addr", "show", "dev", "tunl0"]);
        assert!(tunnel.contains("inet 172.16.") && tunnel.contains("mtu 1480"), "{tunnel}");
        lab.apply(DENY);
        assert_eq!(lab.matrix(&["--ports", "80"]), (0, 2));
        lab.succeed(&["down"]);
        lab.assert_gone();
    });
}

/// A node's routes show what is tunnelled and what is not.
#[test]
fn routes_follow_the_encapsulation() {
    let lab = Lab::up(&["--encap", "cross-subnet", "--pods", "3"]);
    let routes = lab.succeed(&["exec", "node1", "--", "ip", "-4", "route"]);
    let blocks: Vec<&str> =
        routes.lines().filter(|line| line.contains("172.16.") && line.contains("via")).collect();
    assert!(blocks.iter().any(|line| line.contains("via 10.65.0.2 dev eth0")), "{routes}");
    assert!(blocks.iter().any(|line| line.contains("dev vxlan.calico")), "{routes}");
}

/// Nodes with isolated addresses (/32), as in a cloud, which maintain the CNI plugin's configuration below `/host`.
#[test]
fn nodes_as_in_a_cloud() {
    let had_folder = std::path::Path::new("/host").exists();
    let folder = testkit::Folder::new("topology").expect("a folder");
    let file = folder.path().join("topology.yaml");
    let text = "nodes: [{name: left}, {name: right}]\nnodeCidr: 10.9.0.0/16\nnodePrefix: 32\nmtu: 1400\n\
                podCidr: 172.20.0.0/16\nnodeEnvironment: {CALICO_MANAGE_CNI: \"true\"}\n";
    std::fs::write(&file, text).expect("a file");
    let lab = Lab::up(&["--file", &file.display().to_string(), "--pods", "2"]);
    assert_eq!(lab.matrix(&["--ports", "80"]), (2, 0));
    let device = lab.succeed(&["exec", "right", "--", "ip", "-4", "addr", "show", "dev", "eth0"]);
    assert!(device.contains("inet 10.9.1.2/32 ") && device.contains("mtu 1400 "), "{device}");
    let install = ["UPDATE_CNI_BINARIES=false", "SLEEP=false", TORTIE, "cni", "install"];
    let mut words = vec!["exec", "left", "--", "env"];
    words.extend(install);
    lab.succeed(&words);
    let list = lab.succeed(&["exec", "left", "--", "cat", "/host/etc/cni/net.d/10-calico.conflist"]);
    assert!(list.contains("calico-ipam"), "{list}");
    // A pod that the plugin refuses leaves nothing behind, and can be added once the plugin accepts it.
    let list = "/host/etc/cni/net.d/10-calico.conflist";
    let broken = format!(
        "mv {list} /run/kept && printf '{{\"name\": \"n\", \"cniVersion\": \"1.0.0\", \"plugins\": [{{\"type\": \"calico\", \"datastore_type\": \"nothing\"}}]}}' > {list}"
    );
    lab.succeed(&["exec", "left", "--", "sh", "-c", &broken]);
    let refused = lab.run(&["pod", "add", "shop/extra", "--node", "left"]);
    assert!(!refused.status.success(), "{}", super::told(&refused));
    let status = lab.run(&["status"]);
    assert!(!super::told(&status).contains("shop/extra"), "{}", super::told(&status));
    lab.succeed(&["exec", "left", "--", "rm", list]);
    lab.succeed(&["pod", "add", "shop/extra", "--node", "left", "--ports", "80"]);
    assert_eq!(lab.matrix(&["--ports", "80"]), (6, 0));
    let other = lab.succeed(&["exec", "right", "--", "ls", "/host/etc/cni/net.d"]);
    assert_eq!(other, "", "each node has its own");
    assert_eq!(std::path::Path::new("/host").exists(), had_folder, "the machine stays as it is");
}
