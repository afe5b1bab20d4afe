//! Scenario A: a control plane and three workers, one pool with blocks of /24, tunnels, the Kubernetes datastore.

use super::{Play, has_ipip};
use crate::lab::{Lab, ROUTER};
use crate::screen::Screen;
use crate::settings::Variables;
use crate::topology::{Dataplane, Datastore, Encap, NodeWish, Wish, plan};
use anyhow::Result;

/// The definitions that every cluster with this datastore has.
const DEFINITIONS: [&str; 18] = [
    "bgpconfigurations",
    "bgpfilters",
    "bgppeers",
    "blockaffinities",
    "caliconodestatuses",
    "clusterinformations",
    "felixconfigurations",
    "globalnetworkpolicies",
    "globalnetworksets",
    "hostendpoints",
    "ipamblocks",
    "ipamconfigs",
    "ipamhandles",
    "ippools",
    "ipreservations",
    "kubecontrollersconfigurations",
    "networkpolicies",
    "networksets",
];

pub(super) fn play(screen: &mut Screen) -> Result<()> {
    let names = ["master", "worker1", "worker2", "worker3"];
    let wish = Wish {
        nodes: names
            .iter()
            .enumerate()
            .map(|(index, name)| NodeWish {
                name: (*name).to_owned(),
                subnet: Some(0),
                pod_cidr: Some(format!("10.244.{index}.0/24")),
            })
            .collect(),
        pod_count: Some(0),
        encap: Some(if has_ipip() { Encap::Ipip } else { Encap::Vxlan }),
        dataplane: Some(Dataplane::Iptables),
        datastore: Some(Datastore::Kubernetes),
        block_size: Some(24),
        ..Wish::default()
    };
    let topology = plan(&format!("scenario-a-{}", std::process::id()), &wish)?;
    screen.heading("A. Four nodes, block IPAM, tunnels, on a kube-apiserver");
    let mut play = Play::new(Lab::up(topology, false, screen)?, screen);
    let mut played = lines(&mut play);
    if played.is_ok() {
        played = in_etcd(&mut play);
    }
    play.end(played, "A")
}

fn lines(play: &mut Play<'_>) -> Result<()> {
    play.step("1. The resources of crd.projectcalico.org");
    let found = play.lab.kubectl(&["get", "crd", "-o", "name"], None)?;
    for name in DEFINITIONS {
        let wanted = format!("customresourcedefinition.apiextensions.k8s.io/{name}.crd.projectcalico.org");
        play.check(&format!("{name} is defined"), found.lines().any(|line| line == wanted), &found);
    }

    play.step("2. Addresses in blocks");
    let shown = play.lab.calicoctl(&["ipam", "show", "--show-blocks"], "")?;
    let blocks = |shown: &str| shown.lines().filter(|line| line.contains("| Block ")).count();
    play.check("a node's first address, its tunnel's, makes its block", blocks(&shown) == 4, &shown);
    for (name, node) in [("one", "worker1"), ("two", "worker2"), ("three", "worker3")] {
        play.pod("default", name, node, &[("app", name)])?;
    }
    let shown = play.lab.calicoctl(&["ipam", "show", "--show-blocks"], "")?;
    play.show(&shown);
    let pool: Vec<&str> = shown.lines().filter(|line| line.contains("IP Pool")).collect();
    let has = |words: &[&str]| pool.len() == 1 && words.iter().all(|word| pool[0].contains(word));
    play.check(
        "one pool: 172.16.0.0/16 with 65536 addresses, 7 (0%) in use, 65529 (100%) free",
        has(&["172.16.0.0/16", "65536", "7 (0%)", "65529 (100%)"]),
        &shown,
    );
    let of_256 = shown
        .lines()
        .filter(|line| line.contains("| Block ") && line.contains("/24") && line.contains("256"));
    play.check("one block of /24 with 256 addresses per node", of_256.count() == 4, &shown);

    play.step("3. Kubernetes' own ranges are not used");
    let range = play.lab.kubectl(&["get", "node", "worker1", "-o", "jsonpath={.spec.podCIDR}"], None)?;
    play.check("the node has a podCIDR", range == "10.244.1.0/24", &range);
    let address = play.address("default/one")?;
    play.check("and its pod an address of the pool", address.starts_with("172.16."), &address);

    play.step("4. A pod's interface and chains");
    let shown = play.lab.calicoctl(&["get", "workloadendpoint", "-n", "default", "-o", "wide"], "")?;
    let row = shown.lines().find(|line| line.contains("worker1-k8s-one")).unwrap_or_default();
    let device = row.split_whitespace().find(|word| word.starts_with("cali")).unwrap_or_default().to_owned();
    let is_name = device.len() == 15 && device[4..].chars().all(|it| it.is_ascii_hexdigit());
    play.check("the interface is cali and 11 hexadecimal digits", is_name, &shown);
    let name = format!("cali-tw-{device}");
    // Felix chooses between the kernel's two kinds of tables; each has its own program.
    let mut chain = String::new();
    for program in ["iptables-nft", "iptables-legacy"] {
        let shown = play.at("worker1", &[program, "-v", "-n", "-t", "filter", "-L", &name])?;
        if chain.is_empty() || shown.starts_with(&format!("Chain {name}")) {
            chain = shown;
        }
    }
    play.show(&chain);
    let rules: Vec<&str> = chain.lines().skip(2).filter(|line| !line.trim().is_empty()).collect();
    let wanted: [&[&str]; 8] = [
        &["ACCEPT", "ctstate RELATED,ESTABLISHED"],
        &["DROP", "ctstate INVALID"],
        &["MARK", "MARK and"],
        &["cali-pri-kns.default"],
        &["RETURN", "mark match"],
        &["cali-pri-ksa.default.default"],
        &["RETURN", "mark match"],
        &["DROP"],
    ];
    let mut rest = rules.iter();
    for words in wanted {
        let is_next = rest.any(|rule| words.iter().all(|word| rule.contains(word)));
        play.check(&format!("in order: {}", words.join(" ")), is_next, &chain);
    }
    let hashed = rules.iter().all(|rule| rule.contains("cali:"));
    play.check("every rule carries its hash", !rules.is_empty() && hashed, &chain);
    if has_ipip() {
        let device = play.at("worker1", &["ip", "-o", "addr", "show", "dev", "tunl0"])?;
        play.check("the tunnel is tunl0 with an address of the pool", device.contains("172.16."), &device);
    } else {
        play.left_out(
            "tunl0",
            "this kernel has no IP in IP; the tunnel is VXLAN here, and a guest's kernel is tested",
        );
    }
    Ok(())
}

/// The same data are key-values in an etcd.
fn in_etcd(play: &mut Play<'_>) -> Result<()> {
    play.step("5. The same in etcd");
    let wish =
        Wish { node_count: Some(1), pod_count: Some(1), datastore: Some(Datastore::Etcd), ..Wish::default() };
    let topology = plan(&format!("scenario-e-{}", std::process::id()), &wish)?;
    let lab = Lab::up(topology, false, play.screen)?;
    let looked = keys(&lab);
    lab.down()?;
    let keys = looked?;
    for (what, start) in [
        ("the node", "/calico/resources/v3/projectcalico.org/nodes/node1"),
        ("the pool", "/calico/resources/v3/projectcalico.org/ippools/default-ipv4-ippool"),
        (
            "the pod's endpoint",
            "/calico/resources/v3/projectcalico.org/workloadendpoints/shop/node1-k8s-frontend-eth0",
        ),
        ("the block", "/calico/ipam/v2/assignment/ipv4/block/"),
        ("the node's claim on it", "/calico/ipam/v2/host/node1/ipv4/block/"),
        ("the handle", "/calico/ipam/v2/handle/"),
    ] {
        play.check(
            &format!("{what} is under {start}"),
            keys.lines().any(|key| key.starts_with(start)),
            &keys,
        );
    }
    Ok(())
}

fn keys(lab: &Lab) -> Result<String> {
    let endpoint = format!(
        "--endpoints=http://{}",
        crate::settings::host_and_port(lab.topology().server_address(), crate::settings::ETCD_PORT)
    );
    let words = ["etcdctl", &endpoint, "get", "--prefix", "/calico", "--keys-only"];
    let output =
        lab.run_in(ROUTER, &words, &Variables::from([("ETCDCTL_API".to_owned(), "3".to_owned())]), "")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
