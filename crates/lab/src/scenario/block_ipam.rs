//! Scenario A: a control plane and three workers, one pool with blocks of /24, tunnels, the Kubernetes datastore.

use super::{Lines, Play, has_ipip, ipam_rows};
use crate::inside::node_program;
use crate::lab::{Lab, ROUTER};
use crate::pods::CONFLIST;
use crate::screen::Screen;
use crate::settings::Variables;
use crate::topology::{Dataplane, Datastore, Encap, NodeWish, Wish, plan};
use anyhow::Result;

/// The definitions that exist in every cluster with this datastore.
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

/// The control plane and the workers.
const NODES: [&str; 4] = ["master", "worker1", "worker2", "worker3"];
/// The node whose pods are inspected.
const NODE: &str = "worker1";

pub(super) fn play(lines: Lines, screen: &mut Screen) -> Result<()> {
    let everything = lines == Lines::All;
    // Tunnels need two ends; the other workers only take time.
    let names = if everything { &NODES[..] } else { &NODES[..2] };
    let wish = Wish {
        nodes: names
            .iter()
            .enumerate()
            .map(|(index, name)| NodeWish {
                name: (*name).to_owned(),
                subnet: Some(0),
                pod_cidr: Some(format!("10.244.{index}.0/24")),
                ..NodeWish::default()
            })
            .collect(),
        pod_count: Some(0),
        encap: Some(if has_ipip() { Encap::Ipip } else { Encap::Vxlan }),
        dataplane: Some(if everything { Dataplane::Iptables } else { Dataplane::Nftables }),
        // Tunnels are the same with any datastore; where only their lines are played, the processor may be emulated.
        datastore: Some(if everything { Datastore::Kubernetes } else { Datastore::Embedded }),
        block_size: Some(24),
        // The installer writes the network configuration there, and the node keeps it up to date.
        node_environment: [("CALICO_MANAGE_CNI".to_owned(), everything.to_string())].into(),
        ..Wish::default()
    };
    let topology = plan(&format!("scenario-a-{}", std::process::id()), &wish)?;
    screen.heading(match everything {
        true => "A. Four nodes, block IPAM, tunnels, on a kube-apiserver",
        false => "A. The lines about tunnels of IP in IP, with two of the four nodes",
    });
    let mut play = Play::new(Lab::up(topology, false, screen)?, screen);
    let mut played = if everything { all(&mut play) } else { tunnels(&mut play) };
    if everything && played.is_ok() {
        played = in_etcd(&mut play);
    }
    play.end(played, "A")
}

fn all(play: &mut Play<'_>) -> Result<()> {
    definitions(play)?;
    if has_ipip() {
        tunnels(play)?;
    } else {
        play.elsewhere(
            "the pool has ipipMode Always, and each node a tunl0 with the first address of its block",
        );
    }
    blocks(play)?;
    configuration(play)?;
    chains(play)
}

fn definitions(play: &mut Play<'_>) -> Result<()> {
    play.step("1. The resources of crd.projectcalico.org, the nodes and the pool");
    let found = play.lab.kubectl(&["get", "crd", "-o", "name"], None)?;
    for name in DEFINITIONS {
        let wanted = format!("customresourcedefinition.apiextensions.k8s.io/{name}.crd.projectcalico.org");
        play.check(&format!("{name} is defined"), found.lines().any(|line| line == wanted), &found);
    }
    let shown = play.lab.calicoctl(&["get", "nodes"], "")?;
    let names: Vec<&str> = shown.lines().skip(1).map(str::trim).filter(|line| !line.is_empty()).collect();
    play.check("a control plane and three workers", names == NODES, &shown);
    let pool = play.lab.calicoctl(&["get", "ippools", "-o", "yaml"], "")?;
    let holds = pool.contains("cidr: 172.16.0.0/16") && pool.contains("blockSize: 24");
    play.check("one pool: 172.16.0.0/16, blockSize 24", holds && pool.matches("cidr:").count() == 1, &pool);
    Ok(())
}

/// Plays the lines that need IP in IP.
fn tunnels(play: &mut Play<'_>) -> Result<()> {
    play.step("1 and 2. Tunnels of IP in IP");
    let pool = play.calicoctl(&["get", "ippools", "-o", "yaml"], "")?;
    play.check("the pool's ipipMode is Always", pool.contains("ipipMode: Always"), &pool);
    let shown = play.calicoctl(&["ipam", "show", "--show-blocks"], "")?;
    for node in play.lab.topology().nodes.clone() {
        let stored = play.calicoctl(&["get", "node", &node.name, "-o", "yaml"], "")?;
        let words = stored.lines().find_map(|line| line.trim().strip_prefix("ipv4IPIPTunnelAddr:"));
        let address = words.unwrap_or_default().trim().to_owned();
        let start = address.rsplit_once('.').map(|(start, _)| format!("{start}.0/24")).unwrap_or_default();
        let has_block =
            ipam_rows(&shown).iter().any(|row| row[0] == "Block" && row[1] == start && row[3] == "1 (0%)");
        play.check(
            &format!("{}'s first address, its tunnel's, made its block", node.name),
            has_block,
            &shown,
        );
        let wanted = format!("inet {address}/32 ");
        let holds = !address.is_empty()
            && play.soon(|play| {
                let device = play.at(&node.name, &["ip", "-4", "addr", "show", "dev", "tunl0"])?;
                Ok(device.contains(&wanted) && device.contains("mtu 1480"))
            })?;
        play.check(&format!("{}'s tunl0 is up with {address}/32 and MTU 1480", node.name), holds, &stored);
    }
    Ok(())
}

fn blocks(play: &mut Play<'_>) -> Result<()> {
    play.step("2. Addresses in blocks");
    let shown = play.lab.calicoctl(&["ipam", "show", "--show-blocks"], "")?;
    let named = |shown: &str, name: &str| {
        ipam_rows(shown).into_iter().filter(|row| row[0] == name).collect::<Vec<[String; 6]>>()
    };
    let first = named(&shown, "Block");
    let holds = first.len() == 4 && first.iter().all(|row| row[3] == "1 (0%)");
    play.check("a node's first address, its tunnel's, makes its block", holds, &shown);
    for name in ["one", "two", "three"] {
        play.pod("default", name, NODE, &[("app", name)])?;
    }
    let shown = play.lab.calicoctl(&["ipam", "show", "--show-blocks"], "")?;
    play.show(&shown);
    let pools = named(&shown, "IP Pool");
    play.check(
        "one pool: 172.16.0.0/16 with 65536 addresses, 7 (0%) in use, 65529 (100%) free",
        pools.len() == 1
            && [&pools[0][1], &pools[0][2], &pools[0][3], &pools[0][5]]
                == ["172.16.0.0/16", "65536", "7 (0%)", "65529 (100%)"],
        &shown,
    );
    let rows = named(&shown, "Block");
    let all_whole = rows.iter().all(|row| row[1].ends_with(".0/24") && row[2] == "256");
    play.check("one block of /24 with 256 addresses per node", rows.len() == 4 && all_whole, &shown);
    let used = |used: &str, free: &str| rows.iter().filter(|row| row[3] == used && row[5] == free).count();
    let holds = used("4 (2%)", "252 (98%)") == 1 && used("1 (0%)", "255 (100%)") == 3;
    play.check("a node with three pods has 4 (2%) in use and 252 (98%) free", holds, &shown);
    Ok(())
}

fn configuration(play: &mut Play<'_>) -> Result<()> {
    play.step("3. Kubernetes' own ranges are not used");
    let range = play.lab.kubectl(&["get", "node", NODE, "-o", "jsonpath={.spec.podCIDR}"], None)?;
    play.check("the node has a podCIDR", range == "10.244.1.0/24", &range);
    let address = play.address("default/one")?;
    play.check("and its pod an address of the pool", address.starts_with("172.16."), &address);
    // The folder has a different name than on a real host: no container is in between.
    let variables = [
        ("SLEEP", "false"),
        ("UPDATE_CNI_BINARIES", "false"),
        ("KUBERNETES_NODE_NAME", NODE),
        ("CNI_NET_DIR", crate::host_folder::NETWORKS),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let output = play.lab.run_in(NODE, &[&node_program(), "cni", "install"], &variables, "")?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    play.check("the CNI installer does its work", output.status.success(), &told);
    let text = std::fs::read_to_string(play.lab.node_file(NODE, CONFLIST)).unwrap_or_default();
    let list: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let holds = list["plugins"][0]["ipam"] == serde_json::json!({"type": "calico-ipam"});
    play.check("10-calico.conflist contains \"ipam\": {\"type\": \"calico-ipam\"}", holds, &text);
    play.pod("default", "four", NODE, &[])?;
    let address = play.address("default/four")?;
    play.check(
        "a pod by that configuration has an address of the pool",
        address.starts_with("172.16."),
        &address,
    );
    Ok(())
}

fn chains(play: &mut Play<'_>) -> Result<()> {
    play.step("4. A pod's interface and chains");
    let shown = play.lab.calicoctl(&["get", "workloadendpoint", "-n", "default", "-o", "wide"], "")?;
    let row = shown.lines().find(|line| line.contains("worker1-k8s-one")).unwrap_or_default();
    let device = row.split_whitespace().find(|word| word.starts_with("cali")).unwrap_or_default().to_owned();
    let is_name = device.len() == 15 && device[4..].chars().all(|it| it.is_ascii_hexdigit());
    play.check("the interface is cali and 11 hexadecimal digits", is_name, &shown);
    let chain = play.iptables(NODE, &["-v", "-n", "-t", "filter", "-L", &format!("cali-tw-{device}")])?;
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
    for (number, words) in wanted.iter().enumerate() {
        let holds = rules.get(number).is_some_and(|rule| words.iter().all(|word| rule.contains(word)));
        play.check(&format!("rule {}: {}", number + 1, words.join(" ")), holds, &chain);
    }
    play.check("and no other rule", rules.len() == wanted.len(), &chain);
    let hashed = rules.iter().all(|rule| rule.contains("cali:"));
    play.check("every rule carries its hash", !rules.is_empty() && hashed, &chain);
    Ok(())
}

/// Plays the lines about etcd, where the data is stored as key-value pairs.
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
