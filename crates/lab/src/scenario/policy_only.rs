//! Scenario B: a managed cluster where Calico enforces policy only: addresses come from the nodes' own ranges through
//! `host-local`, and there is no BGP. Then a pool is added beside them.

use super::{Play, has_ipip};
use crate::lab::Lab;
use crate::matrix::Columns;
use crate::measure;
use crate::pods::CONFLIST;
use crate::screen::Screen;
use crate::topology::{Dataplane, Datastore, Encap, NodeWish, Wish, plan};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::time::Duration;

const NODE: &str = "gke-node-1";

/// What the managed cluster tells its nodes.
const ENVIRONMENT: [(&str, &str); 16] = [
    ("CALICO_DISABLE_FILE_LOGGING", "true"),
    ("CALICO_NETWORKING_BACKEND", "none"),
    ("FELIX_DEFAULTENDPOINTTOHOSTACTION", "ACCEPT"),
    ("FELIX_HEALTHENABLED", "true"),
    ("FELIX_IGNORELOOSERPF", "false"),
    ("FELIX_IPTABLESMANGLEALLOWACTION", "RETURN"),
    ("FELIX_IPV6SUPPORT", "false"),
    ("FELIX_LOGFILEPATH", "none"),
    ("FELIX_LOGSEVERITYSYS", "none"),
    ("FELIX_LOGSEVERITYSCREEN", "info"),
    ("FELIX_PROMETHEUSMETRICSENABLED", "true"),
    ("FELIX_REPORTINGINTERVALSECS", "0"),
    ("FELIX_ROUTETABLERANGE", "10-250"),
    ("IP", "autodetect"),
    ("IP_AUTODETECTION_METHOD", "kubernetes-internal-ip"),
    ("NO_DEFAULT_POOLS", "true"),
];

/// Pods whose interfaces are known by name.
const KNOWN: [(&str, &str, &str); 3] = [
    ("gmp-system", "collector-4895p", "cali2aa1a9aa779"),
    ("kube-system", "kube-dns-5879b6df8f-7mpgp", "cali6430a18f7ba"),
    ("gke-managed-cim", "kube-state-metrics-0", "cali6a364803b2a"),
];

pub(super) fn play(screen: &mut Screen) -> Result<()> {
    let mut environment: std::collections::BTreeMap<String, String> =
        ENVIRONMENT.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    environment.insert("USE_POD_CIDR".to_owned(), "true".to_owned());
    for pool in ["CALICO_IPV4POOL_CIDR", "CALICO_IPV6POOL_CIDR"] {
        environment.insert(pool.to_owned(), String::new());
    }
    let node = |name: &str, range: &str| NodeWish {
        name: name.to_owned(),
        subnet: Some(0),
        pod_cidr: Some(range.to_owned()),
    };
    let wish = Wish {
        nodes: vec![node("gke-node-0", "192.168.0.0/24"), node(NODE, "192.168.1.0/24")],
        pod_count: Some(0),
        encap: Some(Encap::None),
        dataplane: Some(Dataplane::Iptables),
        datastore: Some(Datastore::Kubernetes),
        node_environment: environment,
        ..Wish::default()
    };
    let topology = plan(&format!("scenario-b-{}", std::process::id()), &wish)?;
    screen.heading("B. Policy only: addresses of the nodes' own ranges, no BGP, on a kube-apiserver");
    let mut play = Play::new(Lab::up(topology, false, screen)?, screen);
    let played = lines(&mut play);
    play.end(played, "B")
}

fn lines(play: &mut Play<'_>) -> Result<()> {
    pods_of_the_nodes_range(play)?;
    wires(play)?;
    policy(play)?;
    a_pool_beside(play)
}

/// The network configuration of the node, with addresses from where it says.
fn write_conflist(play: &Play<'_>, ipam: &Value) -> Result<()> {
    let file = play.lab.node_file(NODE, CONFLIST);
    std::fs::create_dir_all(file.parent().context("a folder")?)?;
    let kubeconfig = play.lab.folder.file("kubeconfig").display().to_string();
    let list = json!({
        "name": "gke-pod-network", "cniVersion": "0.3.1",
        "plugins": [{
            "type": "calico", "mtu": 1460, "log_level": "info", "log_file_path": "/var/log/calico/cni/cni.log",
            "datastore_type": "kubernetes", "nodename": NODE, "nodename_file_optional": true,
            "policy_setup_timeout_seconds": 60,
            "ipam": ipam, "policy": {"type": "k8s"}, "kubernetes": {"kubeconfig": kubeconfig},
        }],
    });
    Ok(std::fs::write(file, list.to_string())?)
}

fn pods_of_the_nodes_range(play: &mut Play<'_>) -> Result<()> {
    play.step("1. Pods get addresses of their node's podCIDR");
    write_conflist(play, &json!({"type": "host-local", "subnet": "usePodCidr"}))?;
    for (namespace, name, _) in KNOWN {
        play.pod(namespace, name, NODE, &[])?;
    }
    play.pod("default", "test-web1", NODE, &[("app", "test1")])?;
    play.pod("default", "test-web2", NODE, &[("app", "test2")])?;
    let address = play.address("default/test-web1")?;
    play.check("a pod's address is in 192.168.1.0/24", address.starts_with("192.168.1."), &address);

    play.step("2. calicoctl version");
    let shown = play.lab.calicoctl(&["version"], "")?;
    play.show(&shown);
    for word in ["Client Version:", "Git commit:", "Cluster Version:", "Cluster Type:"] {
        play.check(&format!("it prints {word}"), shown.contains(word), &shown);
    }

    play.step("3. Endpoints; no pools");
    let shown = play.lab.calicoctl(&["get", "wep", "-A"], "")?;
    play.show(&shown);
    for (namespace, name, device) in KNOWN {
        let is_there = shown.lines().any(|line| {
            line.starts_with(namespace)
                && line.contains(name)
                && line.contains(device)
                && line.contains("/32")
        });
        play.check(&format!("{namespace}/{name} has {device}"), is_there, &shown);
    }
    let shown = play.lab.calicoctl(&["get", "ippool", "-o", "wide"], "")?;
    let lines = shown.lines().filter(|line| !line.trim().is_empty()).count();
    play.check("get ippool prints a header only", lines == 1 && shown.starts_with("NAME"), &shown);
    let shown = play.lab.calicoctl(&["ipam", "show"], "")?;
    play.check(
        "ipam show prints a header only",
        shown.contains("CIDR") && !shown.contains("IP Pool"),
        &shown,
    );
    let shown = play.lab.calicoctl(&["ipam", "show", "--show-configuration"], "")?;
    for (name, value) in
        [("StrictAffinity", "false"), ("AutoAllocateBlocks", "true"), ("MaxBlocksPerHost", "0")]
    {
        let holds = shown.lines().any(|line| line.contains(name) && line.contains(value));
        play.check(&format!("{name} is {value}"), holds, &shown);
    }
    Ok(())
}

fn wires(play: &mut Play<'_>) -> Result<()> {
    play.step("4. On the node and in the pod");
    let address = play.address("gmp-system/collector-4895p")?;
    let routes = play.at(NODE, &["ip", "route"])?;
    let wanted = format!("{address} dev cali2aa1a9aa779 scope link");
    play.check("a route per pod", routes.lines().any(|line| line.starts_with(&wanted)), &routes);
    let links = play.at(NODE, &["ip", "-o", "link"])?;
    let device = links.lines().find(|line| line.contains("cali2aa1a9aa779")).unwrap_or_default().to_owned();
    play.check(
        "the node's end has the address ee:ee:ee:ee:ee:ee",
        device.contains("ee:ee:ee:ee:ee:ee"),
        &links,
    );
    play.check("there is no tunnel device", !links.contains("vxlan") && !links.contains("tunl0:"), &links);
    let proxy = |device: &str| format!("/proc/sys/net/ipv4/conf/{device}/proxy_arp");
    let found = play.at(NODE, &["cat", &proxy("cali2aa1a9aa779"), &proxy("eth0")])?;
    play.check("proxy_arp is 1 on it and 0 on eth0", found.split_whitespace().eq(["1", "0"]), &found);
    let pod = "gmp-system/collector-4895p";
    let addresses = play.at(pod, &["ip", "-4", "addr", "show", "dev", "eth0"])?;
    let holds = addresses.contains(&format!("{address}/32")) && addresses.contains("mtu 1460");
    play.check("in the pod: eth0 with a /32 and MTU 1460", holds, &addresses);
    let routes = play.at(pod, &["ip", "route"])?;
    let holds = routes.contains("default via 169.254.1.1 dev eth0")
        && routes.contains("169.254.1.1 dev eth0 scope link");
    play.check("its way out is 169.254.1.1", holds, &routes);

    play.step("5. Two pods of one node reach each other");
    let (from, to) = ("default/test-web2", play.address("default/test-web1")?);
    let before = play.at(from, &["ip", "neigh"])?;
    play.check("a pod's neighbours are unknown until it speaks", !before.contains("169.254.1.1"), &before);
    let ping = play.at(from, &["busybox", "ping", "-c", "2", "-W", "2", &to])?;
    play.check("with a TTL of 63", ping.contains("ttl=63"), &ping);
    let after = play.at(from, &["ip", "neigh"])?;
    let holds = after.contains("169.254.1.1") && after.contains("ee:ee:ee:ee:ee:ee");
    play.check("then 169.254.1.1 is at ee:ee:ee:ee:ee:ee", holds, &after);
    Ok(())
}

const DENY_ALL: &str = "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: denyall, namespace: default}
spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
";
const ALLOW: &str = "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web-in, namespace: default}
spec:
  podSelector: {matchLabels: {app: test1}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {app: test2}}}], ports: [{port: 80, protocol: TCP}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web-out, namespace: default}
spec:
  podSelector: {matchLabels: {app: test2}}
  policyTypes: [Egress]
  egress: [{to: [{podSelector: {matchLabels: {app: test1}}}], ports: [{port: 80, protocol: TCP}]}]
";
/// A mistake that people make: `from` where `to` belongs.
const MISTAKEN: &str = "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web-out, namespace: default}
spec:
  podSelector: {matchLabels: {app: test2}}
  policyTypes: [Egress]
  egress: [{from: [{podSelector: {matchLabels: {app: test1}}}], ports: [{port: 80, protocol: TCP}]}]
";

fn policy(play: &mut Play<'_>) -> Result<()> {
    play.step("6. Policy");
    play.lab.apply(DENY_ALL)?;
    let between = |play: &Play<'_>| -> Result<(Vec<String>, bool, String)> {
        let matrix = measure::matrix(&play.lab, &Columns::default(), Duration::from_secs(30))?;
        let mut open = Vec::new();
        for (sender, row) in matrix.senders.iter().zip(&matrix.cells) {
            for (receiver, cell) in matrix.receivers.iter().zip(row) {
                let is_ours = |name: &str| name.starts_with("default/");
                if cell.reached == Some(true) && (is_ours(&sender.pod) || is_ours(&receiver.pod)) {
                    open.push(format!("{} -> {}:{}", sender.pod, receiver.pod, receiver.port));
                }
            }
        }
        Ok((open, matrix.agrees(), matrix.to_text(false)))
    };
    let (open, agrees, text) = between(play)?;
    play.check("denyall stops everything to and from its namespace", open.is_empty() && agrees, &text);
    // The mistake: reported where people apply it, and explained where it is looked at.
    let refused = play.lab.kubectl(&["apply", "--validate=strict", "-f", "-"], Some(MISTAKEN));
    let told = refused.as_ref().err().map(ToString::to_string).unwrap_or_default();
    play.check("a policy with `from` under egress is reported", told.contains("from"), &told);
    let file = play.lab.folder.file("mistaken.yaml");
    std::fs::write(&file, MISTAKEN)?;
    let words = [
        "explain",
        "--with",
        &file.display().to_string(),
        "--from",
        "default/test-web2",
        "--to",
        "default/test-web1:80",
    ];
    let output = play.lab.calicoctl(&words, "")?;
    play.show(&output);
    play.check(
        "and explain shows that the packet is dropped",
        output.to_lowercase().contains("deny"),
        &output,
    );
    play.lab.apply(ALLOW)?;
    let (open, agrees, text) = between(play)?;
    play.show(&text);
    let wanted = ["default/test-web2 -> default/test-web1:80".to_owned()];
    play.check("test-web2 reaches test-web1 on 80, and nothing else works", open == wanted && agrees, &text);
    play.lab.kubectl(&["delete", "networkpolicy", "-n", "default", "--all"], None)?;
    Ok(())
}

const POOL: &str = "apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pool-zone-1}
spec: {cidr: 192.168.50.0/24, vxlanMode: Always, natOutgoing: true}
";

fn a_pool_beside(play: &mut Play<'_>) -> Result<()> {
    play.step("7. A pool beside the nodes' ranges");
    let told = play.lab.calicoctl(&["create", "-f", "-"], POOL)?;
    play.check("it is created", told.trim() == "Successfully created 1 'IPPool' resource(s)", &told);
    let shown = play.lab.calicoctl(&["ipam", "show"], "")?;
    let holds = shown.lines().any(|line| line.contains("192.168.50.0/24") && line.contains("256 (100%)"));
    play.check("ipam show has it with 256 free", holds, &shown);
    write_conflist(play, &json!({"type": "calico-ipam"}))?;
    play.pod("default", "test-web3", NODE, &[("app", "test3")])?;
    let (old, new) = (play.address("default/test-web1")?, play.address("default/test-web3")?);
    play.check("the next pod gets its first address", new == "192.168.50.0", &new);
    play.check("the old one keeps its own", old.starts_with("192.168.1."), &old);
    for (from, to) in [("default/test-web1", &new), ("default/test-web3", &old)] {
        let holds = play.soon(|play| {
            Ok(play.at(from, &["busybox", "ping", "-c", "1", "-W", "1", to])?.contains("ttl=63"))
        })?;
        play.check(&format!("{from} pings {to}"), holds, "no answer");
    }

    play.step("8. Another encapsulation for the pool");
    let stored = play.lab.calicoctl(&["get", "ippool", "pool-zone-1", "-o", "yaml"], "")?;
    let edited = stored
        .replace("ipipMode: Never", "ipipMode: CrossSubnet")
        .replace("vxlanMode: Always", "vxlanMode: Never");
    play.check("the stored pool can be edited", edited != stored, &stored);
    play.lab.calicoctl(&["apply", "-f", "-"], &edited)?;
    let shown = play.lab.calicoctl(&["get", "ippool", "-o", "wide"], "")?;
    play.show(&shown);
    let holds = shown.lines().any(|line| line.starts_with("pool-zone-1") && line.contains("CrossSubnet"));
    play.check("the table shows CrossSubnet", holds, &shown);
    if has_ipip() {
        let holds = play.soon(|play| {
            let device = play.at(NODE, &["ip", "addr", "show", "dev", "tunl0"])?;
            Ok(device.contains("mtu 1440") && device.contains("192.168.1.1/32"))
        })?;
        play.check("tunl0 comes up with MTU 1440 and the podCIDR's first address", holds, "not there");
    } else {
        play.left_out("tunl0 with MTU 1440 and 192.168.1.1/32", "this kernel has no IP in IP");
    }
    Ok(())
}
