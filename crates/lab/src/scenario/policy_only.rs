//! Scenario B: a managed cluster where Calico only enforces policy: addresses come from the nodes' own ranges through
//! `host-local`, and there is no BGP. Then a pool is added.

mod policy;
mod pool;
mod wires;

use super::{Lines, Play, ipam_rows};
use crate::lab::Lab;
use crate::pods::CONFLIST;
use crate::screen::Screen;
use crate::topology::{Dataplane, Datastore, Encap, NodeWish, Wish, plan};
use crate::{accounts, host_folder};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const NODE: &str = "gke-node-1";

/// The variables of the managed cluster's nodes, in addition to the datastore's and their names.
const ENVIRONMENT: [(&str, &str); 19] = [
    ("CALICO_MANAGE_CNI", "true"),
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
    ("USE_POD_CIDR", "true"),
    ("IP", "autodetect"),
    ("IP_AUTODETECTION_METHOD", "kubernetes-internal-ip"),
    ("NO_DEFAULT_POOLS", "true"),
    ("WAIT_FOR_DATASTORE", "true"),
];

/// Variables that a lab otherwise sets for its nodes, but not in this cluster.
const NOT_SET: [&str; 9] = [
    "IP6",
    "CLUSTER_TYPE",
    "CALICO_IPV4POOL_CIDR",
    "CALICO_IPV4POOL_BLOCK_SIZE",
    "CALICO_IPV4POOL_VXLAN",
    "CALICO_IPV4POOL_IPIP",
    "CALICO_IPV6POOL_CIDR",
    "CALICO_IPV6POOL_VXLAN",
    "FELIX_PROGRAMCLUSTERROUTES",
];

/// The cluster's version and type as recorded by its nodes, which are older than this program.
const CLUSTER: (&str, &str) = ("v3.26.3-gke.16", "kdd,typha");

/// Pods whose interface names are known.
const KNOWN: [(&str, &str, &str); 3] = [
    ("gmp-system", "collector-4895p", "cali2aa1a9aa779"),
    ("kube-system", "kube-dns-5879b6df8f-7mpgp", "cali6430a18f7ba"),
    ("gke-managed-cim", "kube-state-metrics-0", "cali6a364803b2a"),
];

/// Two pods of users.
const WEB: [(&str, &str); 2] = [("test-web1", "test1"), ("test-web2", "test2")];

pub(super) fn play(lines: Lines, screen: &mut Screen) -> Result<()> {
    let everything = lines == Lines::All;
    let text = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let mut environment: BTreeMap<String, String> = ENVIRONMENT.into_iter().map(text).collect();
    environment.extend(NOT_SET.map(|name| text((name, ""))));
    let node = |name: &str, range: &str| NodeWish {
        name: name.to_owned(),
        subnet: Some(0),
        pod_cidr: Some(range.to_owned()),
        ..NodeWish::default()
    };
    let mut nodes = vec![node(NODE, "192.168.1.0/24")];
    if everything {
        nodes.insert(0, node("gke-node-0", "192.168.0.0/24"));
    }
    let wish = Wish {
        nodes,
        pod_count: Some(0),
        encap: Some(Encap::None),
        dataplane: Some(if everything { Dataplane::Iptables } else { Dataplane::Nftables }),
        datastore: Some(Datastore::Kubernetes),
        node_cidr: Some("10.0.0.0/24".to_owned()),
        node_prefix: Some(32),
        mtu: Some(1460),
        service_cidr: Some("192.168.8.0/24".to_owned()),
        node_environment: environment,
        ..Wish::default()
    };
    let topology = plan(&format!("scenario-b-{}", std::process::id()), &wish)?;
    screen.heading(match everything {
        true => "B. Policy only: addresses of the nodes' own ranges, no BGP, on a kube-apiserver",
        false => "B. The lines about IP in IP, on a kube-apiserver, with one of the nodes",
    });
    let mut play = Play::new(Lab::up(topology, false, screen)?, screen);
    let played = if everything { all(&mut play) } else { only_the_tunnel(&mut play) };
    play.end(played, "B")
}

fn all(play: &mut Play<'_>) -> Result<()> {
    the_nodes(play)?;
    pods_of_the_nodes_range(play)?;
    version(play)?;
    tables(play)?;
    wires::wires(play)?;
    wires::neighbours(play)?;
    policy::policy(play)?;
    pool::a_pool_beside(play)?;
    pool::another_encapsulation(play)
}

fn only_the_tunnel(play: &mut Play<'_>) -> Result<()> {
    play.calicoctl(&["apply", "-f", "-"], pool::POOL)?;
    pool::another_encapsulation(play)
}

/// Writes the node's network configuration, with this `ipam` part.
fn write_conflist(play: &Play<'_>, ipam: &Value) -> Result<()> {
    let file = play.lab.node_file(NODE, CONFLIST);
    let (login, _, _) = accounts::login(accounts::PLUGIN);
    let kubeconfig = play.lab.folder.file(&login).display().to_string();
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

fn the_nodes(play: &mut Play<'_>) -> Result<()> {
    play.step("1. Nodes, ranges, and what calico-node is told");
    let device = play.at(NODE, &["ip", "-4", "addr", "show", "dev", "eth0"])?;
    let holds = device.contains("inet 10.0.0.2/32 ") && device.contains("mtu 1460 ");
    play.check("a node's address is a /32 of 10.0.0.0/24 on eth0, with MTU 1460", holds, &device);
    // Without networking of its own, Calico registers no address; it uses what Kubernetes knows.
    let stored = play.lab.calicoctl(&["get", "node", NODE, "-o", "yaml"], "")?;
    let holds = stored.contains("address: 10.0.0.2\n") && stored.contains("type: InternalIP");
    play.check("and the node is known by it", holds, &stored);
    let ranges = ["get", "nodes", "-o", "jsonpath={.items[*].spec.podCIDR}"];
    let ranges = play.lab.kubectl(&ranges, None)?;
    play.check(
        "pods have one /24 of 192.168.0.0/21 per node",
        ranges == "192.168.0.0/24 192.168.1.0/24",
        &ranges,
    );
    let service = ["get", "service", "-n", "default", "kubernetes", "-o", "jsonpath={.spec.clusterIP}"];
    let service = play.lab.kubectl(&service, None)?;
    play.check("services have addresses of 192.168.8.0/24", service.starts_with("192.168.8."), &service);
    let told = environment_of(play)?;
    for (name, value) in ENVIRONMENT.into_iter().chain([("DATASTORE_TYPE", "kubernetes"), ("NODENAME", NODE)])
    {
        let found = told.get(name).map(String::as_str).unwrap_or_default();
        play.check(&format!("calico-node runs with {name}={value}"), found == value, found);
    }
    let kubeconfig = play.lab.node_file(NODE, host_folder::NETWORKS).join("calico-kubeconfig");
    let path = kubeconfig.display().to_string();
    let wanted = format!("system:serviceaccount:{}:{}", accounts::NAMESPACE, accounts::PLUGIN);
    let whoami = ["--kubeconfig", &path, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
    let holds = play.soon(|play| {
        Ok(kubeconfig.exists() && play.lab.kubectl(&whoami, None).is_ok_and(|name| name == wanted))
    })?;
    play.check(
        "it keeps a kubeconfig for the CNI plugin, with a token of the plugin's account",
        holds,
        &path,
    );
    Ok(())
}

/// The environment of the node's first process.
fn environment_of(play: &Play<'_>) -> Result<BTreeMap<String, String>> {
    let programs = play.lab.programs()?;
    let pid = programs
        .get(NODE)
        .context("the node does not run")?
        .as_ref()
        .map_err(|how| anyhow::anyhow!("{how}"))?;
    let bytes = std::fs::read(format!("/proc/{pid}/environ"))?;
    let pair = |text: &[u8]| {
        let text = String::from_utf8_lossy(text).into_owned();
        text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    Ok(bytes.split(|byte| *byte == 0).filter_map(pair).collect())
}

/// The number of lines of the filter and nat tables.
fn lines_of_tables(play: &Play<'_>) -> Result<(usize, usize)> {
    let count = |table: &str| {
        Ok::<_, anyhow::Error>(play.iptables(NODE, &["-n", "-t", table, "-L"])?.lines().count())
    };
    Ok((count("filter")?, count("nat")?))
}

fn pods_of_the_nodes_range(play: &mut Play<'_>) -> Result<()> {
    play.step("1 and 5. Pods get addresses of their node's podCIDR, and rules");
    write_conflist(play, &json!({"type": "host-local", "subnet": "usePodCidr"}))?;
    for (namespace, name, _) in KNOWN {
        play.pod(namespace, name, NODE, &[])?;
    }
    let (filter_before, nat_before) = lines_of_tables(play)?;
    for (name, app) in WEB {
        play.pod("default", name, NODE, &[("app", app)])?;
    }
    let (filter, nat) = lines_of_tables(play)?;
    let seen = format!("filter {filter_before} to {filter}, nat {nat_before} to {nat}");
    play.show(&seen);
    let grown = filter.saturating_sub(filter_before);
    play.check("two pods are about 80 lines of the filter table", (60..=100).contains(&grown), &seen);
    play.check("and none of the nat table", nat == nat_before, &seen);
    let first = play.address("gmp-system/collector-4895p")?;
    play.check("the first pod's address is 192.168.1.2", first == "192.168.1.2", &first);
    for (name, _) in WEB {
        let address = play.address(&format!("default/{name}"))?;
        play.check(
            &format!("{name}'s address is in 192.168.1.0/24"),
            address.starts_with("192.168.1."),
            &address,
        );
    }
    Ok(())
}

fn version(play: &mut Play<'_>) -> Result<()> {
    play.step("2. calicoctl version, on a cluster of another version");
    // The record that nodes of that version would have written.
    let patch = json!({"spec": {"calicoVersion": CLUSTER.0, "clusterType": CLUSTER.1}}).to_string();
    let resource = "clusterinformations.crd.projectcalico.org";
    play.lab.kubectl(&["patch", resource, "default", "--type=merge", "-p", &patch], None)?;
    let shown = play.lab.calicoctl(&["version"], "")?;
    play.show(&shown);
    let value =
        |title: &str| shown.lines().find_map(|line| line.strip_prefix(title)).unwrap_or_default().trim();
    for (title, wanted) in [
        ("Client Version:", ""),
        ("Git commit:", ""),
        ("Cluster Version:", CLUSTER.0),
        ("Cluster Type:", CLUSTER.1),
    ] {
        let found = value(title);
        let holds = !found.is_empty() && (wanted.is_empty() || found == wanted);
        play.check(&format!("it prints {title} {wanted}"), holds, &shown);
    }
    let (printed, warned) = play.calicoctl_streams(&["get", "nodes"])?;
    let holds = printed.contains(NODE) && warned.contains("version mismatch");
    play.check("another command works, with a warning", holds, &warned);
    let (printed, warned) = play.calicoctl_streams(&["get", "nodes", "--allow-version-mismatch"])?;
    let holds = printed.contains(NODE) && warned.is_empty();
    play.check("which --allow-version-mismatch silences", holds, &warned);
    Ok(())
}

/// A pod without a network of its own, as in Kubernetes.
fn host_networked() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "kube-proxy-gke-node-1", "namespace": "kube-system"},
        "spec": {
            "nodeName": NODE, "hostNetwork": true, "serviceAccountName": "default", "automountServiceAccountToken": false,
            "containers": [{"name": "proxy", "image": "tortie"}],
        },
    })
}

fn tables(play: &mut Play<'_>) -> Result<()> {
    play.step("3. Endpoints; no pools");
    play.lab.kubectl_apply(&[host_networked()])?;
    let told = json!({"status": {"phase": "Running", "podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}]}})
        .to_string();
    let words =
        ["patch", "pod", "-n", "kube-system", "kube-proxy-gke-node-1", "--subresource=status", "-p", &told];
    play.lab.kubectl(&words, None)?;
    let shown = play.lab.calicoctl(&["get", "wep", "-A"], "")?;
    play.show(&shown);
    let row = |namespace: &str, name: &str| {
        let is_it = |words: &[&str]| words.first() == Some(&namespace) && words.get(1) == Some(&name);
        let words = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        words.into_iter().find(|words| is_it(words)).map(|words| words.join(" ")).unwrap_or_default()
    };
    let all = KNOWN.iter().map(|(namespace, name, _)| (*namespace, *name));
    let all: Vec<(&str, &str)> = all.chain(WEB.iter().map(|(name, _)| ("default", *name))).collect();
    for (namespace, name) in &all {
        let address = play.address(&format!("{namespace}/{name}"))?;
        let found = row(namespace, name);
        let holds =
            found.contains(NODE) && found.contains(&format!("{address}/32")) && found.contains(" cali");
        play.check(
            &format!("{namespace}/{name} is listed with node, {address}/32 and interface"),
            holds,
            &shown,
        );
    }
    for (namespace, name, device) in KNOWN {
        play.check(
            &format!("{namespace}/{name} has {device}"),
            row(namespace, name).ends_with(device),
            &shown,
        );
    }
    let count = shown.lines().skip(1).filter(|line| !line.trim().is_empty()).count();
    let holds = count == all.len() && !shown.contains("kube-proxy");
    play.check("a pod with the host's network is not listed", holds, &shown);
    let shown = play.lab.calicoctl(&["get", "ippool", "-o", "wide"], "")?;
    let lines = shown.lines().filter(|line| !line.trim().is_empty()).count();
    play.check("get ippool prints a header only", lines == 1 && shown.starts_with("NAME"), &shown);
    let shown = play.lab.calicoctl(&["ipam", "show"], "")?;
    let rows = ipam_rows(&shown);
    play.check("ipam show prints a header only", rows.len() == 1 && rows[0][1] == "CIDR", &shown);
    let shown = play.lab.calicoctl(&["ipam", "show", "--show-configuration"], "")?;
    for (name, value) in
        [("StrictAffinity", "false"), ("AutoAllocateBlocks", "true"), ("MaxBlocksPerHost", "0")]
    {
        let holds = shown
            .lines()
            .any(|line| line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).eq([name, value]));
        play.check(&format!("{name} is {value}"), holds, &shown);
    }
    Ok(())
}
