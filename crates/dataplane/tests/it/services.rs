//! Services by eBPF programs, with real packets and sockets: from workloads, from the host and from outside; while
//! backends change, while Felix is not running, and after eBPF is switched off.

mod limits;
mod maglev;
mod node;
mod offload;
mod profiling;
mod sources;
mod switching;
mod tracking;
mod untracked;

use anyhow::{Context as _, Result, ensure};
use api::{BPFConnectTimeLoadBalancing, EnabledOrDisabled};
use felix_config::Config;
use messages::{Policy, PolicyId, Rule, RuleEnd, ToDataplane};
use model::feed::RuleAction;
use model::v1::PolicyKey;
use node::{
    CLIENT, Mounted, NODE, NODE6, Node, PODS, PODS6, SERVICE, SERVICE6, address6, ask, endpoints, service,
    wait, workload,
};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;

const PORTS: [(&str, u16, u16); 2] = [("TCP", 80, 30080), ("UDP", 80, 30080)];
const EMPTY: [u8; 4] = [10, 96, 0, 2];
const OWN: [u8; 4] = [10, 96, 0, 3];

/// A service of both workloads, one without endpoints, and one of the host itself.
fn everything() -> Vec<ToDataplane> {
    let mut all = service("one", SERVICE, &PORTS, &json!({}));
    all.push(endpoints("one", &PORTS, &PODS));
    all.extend(service("empty", EMPTY, &[("TCP", 80, 0), ("UDP", 80, 0)], &json!({})));
    all.extend(service("own", OWN, &[("TCP", 80, 30081), ("UDP", 80, 30081)], &json!({})));
    all.push(endpoints("own", &[("TCP", 80, 0), ("UDP", 80, 0)], &[NODE]));
    all
}

/// Checks that services are reached from everywhere.
fn check(node: &Node) -> Result<()> {
    let both = ["a", "b"];
    for how in ["tcp", "udp"] {
        wait(&node.pods[0], how, (SERVICE, 80), &both).context("a workload to a service")?;
        wait(&node.pods[0], how, (NODE, 30080), &both).context("a workload to a port of its node")?;
        wait(&node.client, how, (NODE, 30080), &both).context("from outside to a port of the node")?;
        wait(&node.host, how, (SERVICE, 80), &both).context("the host to a service")?;
        wait(&node.host, how, (NODE, 30080), &both).context("the host to its own port")?;
        wait(&node.pods[0], how, (OWN, 80), &["host"]).context("a workload to a service of the host")?;
        wait(&node.client, how, (NODE, 30081), &["host"]).context("from outside to a service of the host")?;
        wait(&node.host, how, (OWN, 80), &["host"]).context("the host to itself by a service")?;
        wait(&node.pods[0], how, (EMPTY, 80), &["ConnectionRefused"]).context("a workload to no endpoint")?;
        wait(&node.host, how, (EMPTY, 80), &["ConnectionRefused"]).context("the host to no endpoint")?;
        wait(&node.host, how, (SERVICE, 99), &["ConnectionRefused"]).context("the host to no port")?;
    }
    Ok(())
}

/// Fetches a page of the host.
fn page(node: &Node, port: u16) -> Result<String> {
    let mut stream = node.host.run(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)))??;
    stream.set_read_timeout(Some(testkit::PATIENCE))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Keys and values of a map.
type Elements = Vec<(Vec<u8>, Vec<u8>)>;

fn nat(node: &Node) -> Result<[Elements; 2]> {
    Ok([node.map("cali_v4_nat_fe3")?, node.map("cali_v4_nat_be")?])
}

/// By packets alone, as in a network namespace other than the machine's.
#[test]
fn services_are_served_to_all_clients() -> Result<()> {
    let mut node = Node::new()?;
    // kube-proxy's leftovers, beside chains that the kubelet has too.
    node.host.feed("nft -f -", "table ip kube-proxy {\nchain services {\n}\n}\n")?;
    node.host.shell(
        "iptables-nft -t nat -N KUBE-SERVICES; iptables-nft -t nat -A OUTPUT -j KUBE-SERVICES; \
         iptables-nft -t nat -N KUBE-MARK-MASQ; iptables-nft -t nat -A KUBE-SERVICES -j KUBE-MARK-MASQ",
    )?;
    node.start(Node::config(), everything())?;
    node.wait_until_ready()?;
    check(&node)?;
    testkit::eventually("kube-proxy's rules to go", || {
        let rules = node.host.shell("nft list tables; iptables-nft-save -t nat").unwrap_or_default();
        !rules.contains("kube-proxy") && !rules.contains("KUBE-SERVICES") && rules.contains("KUBE-MARK-MASQ")
    })?;
    let health = page(&node, 10256)?;
    ensure!(health.starts_with("HTTP/1.1 200"), "{health}");

    // Backends are added and removed: the remaining ones answer.
    for round in 0..10 {
        let left = &PODS[round % 2..=round % 2];
        node.send(vec![endpoints("one", &PORTS, left)])?;
        let name = ["a", "b"][round % 2];
        for (from, how) in [(&node.client, "tcp"), (&node.host, "udp"), (&node.pods[0], "tcp")] {
            let target = if std::ptr::eq(from, &node.client) { (NODE, 30080) } else { (SERVICE, 80) };
            wait(from, how, target, &[name]).with_context(|| format!("round {round}"))?;
        }
    }
    node.send(vec![endpoints("one", &PORTS, &PODS[..0])])?;
    wait(&node.client, "tcp", (NODE, 30080), &["ConnectionRefused"])?;
    node.send(vec![endpoints("one", &PORTS, &PODS)])?;
    check(&node)?;

    // The process has ended: services are served all the same.
    let before = nat(&node)?;
    node.stop()?;
    check(&node).context("while Felix is not running")?;
    // The next process finds everything as desired, whatever else it finds.
    node.start(Node::config(), everything())?;
    node.wait_until_ready()?;
    check(&node).context("after a new start")?;
    ensure!(nat(&node)? == before, "a new start changed the maps");

    // A half-finished state, as after a kill in the middle.
    node.stop()?;
    let map = |name: &str| bpf::Map::open(&node.files.path().join("tc/globals").join(name));
    map("cali_v4_nat_fe3")?.remove(&before[0][0].0)?;
    map("cali_v4_nat_be")?.set(&[9, 9, 0, 0, 0, 0, 0, 0], &[1; 8])?;
    node.start(Node::config(), everything())?;
    testkit::eventually("the maps to be whole", || nat(&node).is_ok_and(|now| now == before))?;
    check(&node).context("after a kill")?;

    // With netfilter serving again, or nothing, no leftovers remain.
    node.stop()?;
    node.start(Config { bpf_enabled: false, ..Node::config() }, Vec::new())?;
    testkit::eventually("devices, routes and pins to go", || {
        let links = node.host.shell("ip -o link; ip route").unwrap_or_default();
        let pins = std::fs::read_dir(node.files.path().join("tc/globals")).map_or(0, Iterator::count);
        !links.contains("bpfin") && !links.contains("bpfout") && pins == 0
    })?;
    ensure!(ask(&node.pods[0], "tcp", (SERVICE, 80))? != "a");
    Ok(())
}

/// Services with IPv6, beside IPv4.
#[test]
fn services_of_ipv6_are_served() -> Result<()> {
    let mut node = Node::new()?;
    let pods = PODS6.map(address6);
    let mut all = everything();
    all.extend(service("six", address6(SERVICE6), &[("TCP", 80, 30086), ("UDP", 80, 30086)], &json!({})));
    all.push(endpoints("six", &[("TCP", 80, 0), ("UDP", 80, 0)], &pods));
    all.extend(service("none", address6("fd96::2"), &[("TCP", 80, 0), ("UDP", 80, 0)], &json!({})));
    node.start(Config { ipv6_support: true, ..Node::config() }, all)?;
    node.wait_until_ready()?;
    check(&node).context("IPv4")?;
    for how in ["tcp", "udp"] {
        for from in [&node.pods[0], &node.host] {
            wait(from, how, (address6(SERVICE6), 80), &["a", "b"]).context("to a service")?;
            wait(from, how, (address6("fd96::2"), 80), &["ConnectionRefused"]).context("to no endpoint")?;
        }
        wait(&node.client, how, (address6(NODE6), 30086), &["a", "b"]).context("from outside")?;
    }
    Ok(())
}

/// Moves endpoints to another node.
fn elsewhere(message: ToDataplane) -> ToDataplane {
    let ToDataplane::EndpointSliceObject(name, Some(mut slice)) = message else { return message };
    slice.spec.0.endpoints.iter_mut().for_each(|endpoint| endpoint.node_name = Some("n2".into()));
    ToDataplane::EndpointSliceObject(name, Some(slice))
}

/// A workload's egress policy applies to backends: the service's address is irrelevant.
#[test]
fn policy_applies_to_backends() -> Result<()> {
    let mut node = Node::new()?;
    let mut all = everything();
    all.push(endpoints("one", &PORTS, &PODS[1..]));
    node.start(Node::config(), all)?;
    node.wait_until_ready()?;
    wait(&node.pods[0], "tcp", (SERVICE, 80), &["b"])?;
    let id = PolicyId::new(PolicyKey {
        kind: api::Kind::GlobalNetworkPolicy,
        namespace: String::new(),
        name: "p".into(),
    });
    let to = |net: [u8; 4]| Rule {
        action: RuleAction::Allow,
        destination: RuleEnd { nets: vec![IpAddr::from(net).into()], ..RuleEnd::default() },
        ..Rule::default()
    };
    let policy =
        |rule: Rule| Policy { tier: "default".into(), outbound_rules: vec![rule], ..Policy::default() };
    let put = |rule: Rule| ToDataplane::PolicyUpdate(id.clone(), Arc::new(policy(rule)));
    node.send(vec![put(to(SERVICE)), workload(0, Some(&id))])?;
    for how in ["tcp", "udp"] {
        wait(&node.pods[0], how, (SERVICE, 80), &["TimedOut", "WouldBlock"])
            .context("only the service is allowed")?;
    }
    node.send(vec![put(to(PODS[1]))])?;
    for how in ["tcp", "udp"] {
        wait(&node.pods[0], how, (SERVICE, 80), &["b"]).context("only the backend is allowed")?;
    }
    // Netfilter has no policy chains left.
    let is_bare = |rules: &str| {
        !rules.contains("cali-translated")
            && !rules.contains("chain filter-cali-po-")
            && !rules.contains("cali-tw-")
    };
    testkit::eventually("chains of policy to go", || {
        node.host.shell("nft list table ip calico").is_ok_and(|rules| is_bare(&rules))
    })
    .with_context(|| node.host.shell("nft list table ip calico").unwrap_or_default())?;
    Ok(())
}

/// Source ranges, traffic policies and affinity are honoured.
#[test]
fn service_settings_are_honoured() -> Result<()> {
    let mut node = Node::new()?;
    let local = json!({"externalTrafficPolicy": "Local"});
    let both = [("TCP", 80, 30090), ("UDP", 80, 30090)];
    let mut all = service("far", [10, 96, 1, 1], &both, &local);
    all.push(elsewhere(endpoints("far", &both, &[CLIENT])));
    let sticky = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}}});
    all.extend(service("sticky", [10, 96, 1, 2], &[("TCP", 80, 30091)], &sticky));
    all.push(endpoints("sticky", &[("TCP", 80, 0)], &PODS));
    let ranged = json!({"externalIPs": ["203.0.113.7"], "type": "LoadBalancer", "loadBalancerSourceRanges": ["198.51.100.0/24"]});
    all.extend(service("ranged", [10, 96, 1, 3], &[("TCP", 80, 30092)], &ranged));
    all.push(endpoints("ranged", &[("TCP", 80, 0)], &PODS));
    node.start(Node::config(), all)?;
    node.wait_until_ready()?;
    for how in ["tcp", "udp"] {
        wait(&node.host, how, ([10, 96, 1, 1], 80), &["client"])
            .context("the host to a backend elsewhere")?;
    }
    // No endpoint on this node: it is not served here from outside.
    wait(&node.client, "tcp", (NODE, 30090), &["ConnectionRefused"])?;
    wait(&node.pods[0], "tcp", ([10, 96, 1, 2], 80), &["a", "b"])?;
    let first = ask(&node.pods[0], "tcp", ([10, 96, 1, 2], 80))?;
    for _ in 0..10 {
        ensure!(ask(&node.pods[0], "tcp", ([10, 96, 1, 2], 80))? == first, "a client leaves its backend");
    }
    // The client is in no source range of the external address, but in that of the cluster's.
    node.client.batch("route add 203.0.113.7/32 via 192.0.2.1\nroute add 10.96.0.0/16 via 192.0.2.1")?;
    wait(&node.client, "tcp", ([10, 96, 1, 3], 80), &["a", "b"])?;
    wait(&node.client, "tcp", ([203, 0, 113, 7], 80), &["TimedOut", "WouldBlock"])?;
    node.client.batch(
        "addr add 198.51.100.7/32 dev eth0\nroute replace 203.0.113.7/32 via 192.0.2.1 src 198.51.100.7",
    )?;
    node.host.batch("route add 198.51.100.7/32 via 192.0.2.9")?;
    wait(&node.client, "tcp", ([203, 0, 113, 7], 80), &["a", "b"])?;
    Ok(())
}

/// A UDP flow that never ends leaves a removed backend.
#[test]
fn udp_flows_leave_removed_backends() -> Result<()> {
    let mut node = Node::new()?;
    let mut all = everything();
    all.push(endpoints("one", &PORTS, &PODS[..1]));
    node.start(Node::config(), all)?;
    node.wait_until_ready()?;
    let socket = node.client.run(|| UdpSocket::bind("0.0.0.0:0"))??;
    socket.connect(SocketAddr::from((NODE, 30080)))?;
    socket.set_read_timeout(Some(std::time::Duration::from_millis(500)))?;
    let says = |name: &str| {
        let mut answer = [0; 8];
        let _ = socket.send(b"who?");
        socket.recv(&mut answer).is_ok_and(|length| &answer[..length] == name.as_bytes())
    };
    testkit::eventually("the first backend", || says("a"))?;
    node.send(vec![endpoints("one", &PORTS, &PODS[1..])])?;
    testkit::eventually("the other backend", || says("b"))
}

/// Sockets of a control group choose backends, of TCP only or of both protocols, and no longer once this is disabled.
#[test]
fn sockets_get_backends_themselves() -> Result<()> {
    let mut node = Node::new()?;
    let groups = Mounted::new("cgroup2")?;
    let below = format!("tortie-dp-services-{}", std::process::id());
    let group = groups.path().join(&below);
    let _removed = Removed(group.clone());
    let config = |mode, by_packets| Config {
        bpf_connect_time_load_balancing: Some(mode),
        bpf_host_networked_nat_without_ctlb: Some(by_packets),
        cgroup_v2_path: groups.path().display().to_string(),
        debug_bpf_cgroup_v2: below.clone(),
        ipv6_support: true,
        ..Node::config()
    };
    // A TCP-only service has no route in this mode: only a socket can reach it.
    let mut all = everything();
    all.extend(service("tcp", [10, 96, 2, 1], &[("TCP", 80, 0)], &json!({})));
    all.push(endpoints("tcp", &[("TCP", 80, 0)], &PODS));
    let by_socket = |node: &Node, target: &str| -> String {
        let script = format!(
            "echo $$ > {}/cgroup.procs; exec 3<>/dev/tcp/{target}/80 && echo who >&3 && head -c 1 <&3",
            group.display()
        );
        let mut command = Command::new("ip");
        command.args(["netns", "exec", node.host.name(), "timeout", "3", "bash", "-c", &script]);
        let output = command.output().map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&output).into_owned()
    };
    let pins = |node: &Node| -> Vec<String> {
        let names = std::fs::read_dir(node.files.path().join("ctlb")).into_iter().flatten().flatten();
        let mut names: Vec<_> = names.filter_map(|one| one.file_name().into_string().ok()).collect();
        names.sort();
        names
    };
    node.start(config(BPFConnectTimeLoadBalancing::TCP, EnabledOrDisabled::Enabled), all.clone())?;
    node.wait_until_ready()?;
    testkit::eventually("sockets to get backends", || {
        ["a", "b"].contains(&by_socket(&node, "10.96.2.1").as_str())
    })?;
    let connect = ["calico_connect_v4", "calico_connect_v46", "calico_connect_v6"];
    ensure!(pins(&node) == connect, "{:?}", pins(&node));
    wait(&node.host, "udp", (SERVICE, 80), &["a", "b"]).context("UDP by packets")?;
    let routes = node.host.shell("ip route show dev bpfin.cali")?;
    ensure!(routes.contains("10.96.0.1") && !routes.contains("10.96.2.1"), "{routes}");
    // They outlive the process.
    node.stop()?;
    ensure!(["a", "b"].contains(&by_socket(&node, "10.96.2.1").as_str()));
    node.start(config(BPFConnectTimeLoadBalancing::Enabled, EnabledOrDisabled::Enabled), all.clone())?;
    node.wait_until_ready()?;
    testkit::eventually("programs for both", || pins(&node).len() == 9)?;
    testkit::eventually("the devices to go", || {
        !node.host.shell("ip -o link").unwrap_or_default().contains("bpfin")
    })?;
    node.stop()?;
    node.start(config(BPFConnectTimeLoadBalancing::Disabled, EnabledOrDisabled::Enabled), all)?;
    node.wait_until_ready()?;
    testkit::eventually("sockets to be left alone", || pins(&node).is_empty())?;
    wait(&node.host, "tcp", ([10, 96, 2, 1], 80), &["a", "b"]).context("all by packets")?;
    Ok(())
}

/// A control group that is removed with the test.
struct Removed(std::path::PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
