//! IP in IP, with routes of Felix and of BGP, and WireGuard with real packets, in a guest whose kernel supports them:
//! three nodes in two subnets, using only this program, and a wire between them that counts its packets.

use std::collections::BTreeMap;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use testkit::Folder;
use testkit::guest::Guest;

const TORTIE: &str = env!("CARGO_BIN_EXE_tortie");
/// The guest's processor is emulated, on a machine that may be busy, so only a condition that is never met takes this
/// long.
const PATIENCE: Duration = Duration::from_secs(180);
/// Name, address, network, and gateway to the other subnet.
const NODES: [(&str, &str, &str); 3] = [
    ("n1", "10.65.0.1", "10.65.0.254"),
    ("n2", "10.65.0.2", "10.65.0.254"),
    ("n3", "10.65.1.3", "10.65.1.254"),
];

#[test]
fn tunnels_and_encryption() {
    let guest = Guest::new("guest::tunnels_and_encryption").binary(TORTIE);
    guest.program("ip").program("nft").run(|| {
        let cluster = Cluster::start();
        settings(&cluster);
        ipip(&cluster);
        bgp(&cluster);
        wireguard(&cluster);
    });
}

/// The cluster in the guest. The machine ends with the test, so nothing has to be removed.
struct Cluster {
    folder: Folder,
    processes: Vec<Child>,
}

impl Cluster {
    fn start() -> Self {
        let mut cluster = Self { folder: Folder::new("cluster").unwrap(), processes: Vec::new() };
        wire();
        let mut store = Command::new(TORTIE);
        let data = cluster.folder.path().join("data");
        store.args(["datastore", "--listen-client-urls=http://127.0.0.1:2379", "--data-dir"]).arg(&data);
        cluster.spawn(store, "store");
        let socket = kvstore_engine::socket_path(&data);
        until("the store's socket", || socket.exists());
        until("the store", || cluster.run("n1", &["ctl", "get", "nodes"], "").status.success());
        for (node, ..) in NODES {
            cluster.must(node, &["component", "node", "startup"], "");
            cluster.must(node, &["component", "node", "allocate-tunnel-addrs", "--run-once"], "");
            // Felix exits when a change of settings requires a restart.
            let again =
                "mount -t tmpfs tmpfs /var/lib; while :; do \"$@\"; echo ended with $?; sleep 1; done";
            let mut felix = cluster.command("ip", node);
            felix.args(["netns", "exec", node, "sh", "-c", again, "sh", TORTIE, "felix"]);
            cluster.spawn(felix, &format!("felix-{node}"));
        }
        for (node, ..) in NODES {
            let pod = pod(node);
            ip(&["netns", "add", &pod]);
            cluster.cni("ADD", node);
        }
        cluster
    }

    fn spawn(&mut self, mut command: Command, log: &str) {
        let log = std::fs::File::create(self.folder.path().join(log)).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.processes.push(command.spawn().unwrap());
    }

    fn command(&self, program: &str, node: &str) -> Command {
        let address = NODES.iter().find(|(name, ..)| *name == node).unwrap().1;
        let folder = self.folder.path();
        let mut command = Command::new(program);
        command
            .env("DATASTORE_TYPE", "embedded")
            .env("EMBEDDED_PATH", folder.join("data"))
            .env("NODENAME", node)
            .env("CALICO_NODENAME_FILE", folder.join(format!("nodename-{node}")))
            .env("IP", format!("{address}/24"))
            .env("CALICO_NETWORKING_BACKEND", "vxlan")
            .env("CALICO_IPV4POOL_CIDR", "172.16.0.0/16")
            .env("CALICO_IPV4POOL_IPIP", "CrossSubnet")
            .env("CALICO_IPV6POOL_CIDR", "none")
            .env("FELIX_FELIXHOSTNAME", node)
            .env("FELIX_IPV6SUPPORT", "false")
            .env("FELIX_NFTABLESMODE", "Enabled")
            .env("FELIX_ENDPOINTSTATUSPATHPREFIX", folder.join(format!("status-{node}")))
            .stdin(Stdio::piped());
        command
    }

    /// This program on a node.
    fn run(&self, node: &str, arguments: &[&str], input: &str) -> Output {
        let mut command = self.command("ip", node);
        let script = "mount -t tmpfs tmpfs /var/lib && exec \"$@\"";
        command.args(["netns", "exec", node, "sh", "-c", script, "sh", TORTIE]).args(arguments);
        finish(command, input)
    }

    /// Runs this program on a node; it must succeed. The emulated machine can be slower than clients' timeouts.
    fn must(&self, node: &str, arguments: &[&str], input: &str) -> String {
        let begin = Instant::now();
        loop {
            let output = self.run(node, arguments, input);
            if output.status.success() {
                return text(&output.stdout);
            }
            let reason = text(&output.stderr);
            let is_slow = reason.contains("no answer within") && begin.elapsed() < PATIENCE;
            assert!(is_slow, "{arguments:?}: {reason}");
        }
    }

    fn apply(&self, manifest: &str) {
        self.must("n1", &["ctl", "apply", "-f", "-"], manifest);
    }

    fn cni(&self, verb: &str, node: &str) {
        let folder = self.folder.path();
        let configuration = format!(
            r#"{{"cniVersion":"1.0.0","name":"net","type":"calico","datastore_type":"embedded","nodename":"{node}",
                "nodename_file":"{}","log_level":"warning","log_file_path":"{}","ipam":{{"type":"calico-ipam"}}}}"#,
            folder.join(format!("nodename-{node}")).display(),
            folder.join("cni.log").display(),
        );
        let mut command = self.command("ip", node);
        command
            .args(["netns", "exec", node, TORTIE])
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", pod(node))
            .env("CNI_NETNS", format!("/var/run/netns/{}", pod(node)))
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", "/usr/lib/cni");
        let output = finish(command, &configuration);
        assert!(output.status.success(), "{verb}: {}", text(&output.stdout));
    }

    /// A text in the resource of each node, in order; empty if missing.
    fn nodes(&self, place: &str) -> Vec<String> {
        let shown = self.must("n1", &["ctl", "get", "nodes", "-o", "json"], "");
        let list: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let items = list["items"].as_array().unwrap();
        let text = |object: &serde_json::Value| {
            object.pointer(place).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
        };
        items.iter().map(text).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (node, ..) in NODES {
                let log = std::fs::read_to_string(self.folder.path().join(format!("felix-{node}")));
                eprintln!("---- Felix of {node}\n{}", log.unwrap_or_default());
                for arguments in [&["rule"] as &[&str], &["route", "show", "table", "all"], &["-d", "addr"]] {
                    let shown = Command::new("ip").args(["-4", "-n", node]).args(arguments).output();
                    eprintln!(
                        "---- {node} {arguments:?}\n{}",
                        shown.map(|it| text(&it.stdout)).unwrap_or_default()
                    );
                }
            }
        }
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Checks that the kernel's settings are written, even those that exist only since rules loaded a module, and that no
/// alarm was logged.
fn settings(cluster: &Cluster) {
    for (node, ..) in NODES {
        until("connections are counted", || {
            let mut shown = Command::new("ip");
            shown.args(["netns", "exec", node, "cat", "/proc/sys/net/netfilter/nf_conntrack_acct"]);
            shown.output().is_ok_and(|output| text(&output.stdout).trim() == "1")
        });
        let log = std::fs::read_to_string(cluster.folder.path().join(format!("felix-{node}"))).unwrap();
        assert!(!log.contains("nf_conntrack_acct"), "{log}");
    }
}

/// A bridge for the first subnet, a link to the second, and a router between them that counts.
fn wire() {
    ip_line("netns add wire");
    ip_line("-n wire link add br0 type bridge");
    ip_line("-n wire link set br0 up");
    ip_line("-n wire addr add 10.65.0.254/24 dev br0");
    for (node, address, gateway) in NODES {
        ip(&["netns", "add", node]);
        ip(&["-n", node, "link", "set", "lo", "up"]);
        ip(&["link", "add", "eth0", "netns", node, "type", "veth", "peer", "name", node, "netns", "wire"]);
        ip(&["-n", node, "addr", "add", &format!("{address}/24"), "dev", "eth0"]);
        ip(&["-n", node, "link", "set", "eth0", "up"]);
        ip(&["-n", "wire", "link", "set", node, "up"]);
        match gateway == "10.65.0.254" {
            true => _ = ip(&["-n", "wire", "link", "set", node, "master", "br0"]),
            false => _ = ip(&["-n", "wire", "addr", "add", &format!("{gateway}/24"), "dev", node]),
        }
        ip(&["-n", node, "route", "add", "default", "via", gateway]);
    }
    let mut forward = Command::new("ip");
    forward.args(["netns", "exec", "wire", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]);
    assert!(forward.status().unwrap().success());
    let counters = "table ip count {
        counter plain {}
        counter ipip {}
        counter wireguard {}
        chain forward {
            type filter hook forward priority 0;
            ip saddr 172.16.0.0/16 counter name plain
            ip protocol 4 counter name ipip
            udp dport 51820 counter name wireguard
        }
    }";
    let mut nft = Command::new("ip");
    nft.args(["netns", "exec", "wire", "nft", "-f", "-"]).stdin(Stdio::piped());
    let output = finish(nft, counters);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// How many packets of each kind the wire has carried since the last call.
fn carried() -> BTreeMap<String, u64> {
    let mut nft = Command::new("ip");
    nft.args(["netns", "exec", "wire", "nft", "reset", "counters", "table", "ip", "count"])
        .stdin(Stdio::piped());
    let shown = text(&finish(nft, "").stdout);
    let words: Vec<&str> = shown.split_whitespace().collect();
    let mut counters = BTreeMap::new();
    let mut name = "";
    for pair in words.windows(2) {
        match pair {
            ["counter", counter] => name = counter,
            ["packets", count] => _ = counters.insert(name.to_owned(), count.parse().unwrap()),
            _ => {}
        }
    }
    assert_eq!(counters.len(), 3, "{shown}");
    counters
}

fn pod(node: &str) -> String {
    node.replace('n', "p")
}

fn address(pod: &str) -> String {
    let shown = ip(&["-n", pod, "-4", "-o", "addr", "show", "dev", "eth0"]);
    let network = shown.split_whitespace().nth(3).unwrap_or_default();
    network.split('/').next().unwrap_or_default().to_owned()
}

fn reaches(from: &str, to: &str) -> bool {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", from, "ping", "-c", "1", "-W", "2", &address(to)]).stdin(Stdio::piped());
    finish(command, "").status.success()
}

/// Whether packets between the subnets arrive, all of them in this form.
fn travel_as(form: &str) -> bool {
    carried();
    if !(reaches("p1", "p3") && reaches("p3", "p1")) {
        return false;
    }
    let seen = carried();
    seen.iter().all(|(name, count)| if name == form { *count >= 4 } else { *count == 0 })
}

fn route(node: &str, table: &str, destination: &str) -> String {
    let shown = ip(&["-n", node, "-4", "route", "show", "table", table]);
    let block = |line: &&str| line.split_whitespace().any(|word| word == destination);
    shown.lines().find(block).unwrap_or_default().trim().to_owned()
}

/// The block of a pod's address: blocks have 64 addresses.
fn block(pod: &str) -> String {
    let address = address(pod);
    let (start, last) = address.rsplit_once('.').unwrap();
    format!("{start}.{}/26", last.parse::<u8>().unwrap() / 64 * 64)
}

fn ipip(cluster: &Cluster) {
    until("pods of different subnets reach each other by the tunnel", || travel_as("ipip"));
    until("pods of one subnet reach each other", || reaches("p1", "p2"));
    let (far, near) = (route("n1", "main", &block("p3")), route("n1", "main", &block("p2")));
    assert!(far.starts_with(&format!("{} via 10.65.1.3 dev tunl0 proto 80 onlink", block("p3"))), "{far}");
    assert_eq!(near, format!("{} via 10.65.0.2 dev eth0 proto 80 onlink", block("p2")));
    let tunnel = ip_line("-n n1 -4 addr show dev tunl0");
    let own = cluster.nodes("/spec/bgp/ipv4IPIPTunnelAddr").remove(0);
    assert!(tunnel.contains(&format!("inet {own}/32 ")) && tunnel.contains("mtu 1480"), "{own}: {tunnel}");

    // A tunnel packet from a host that is not a node is dropped, and its sender is counted.
    ip_line("-n wire tunnel add forged mode ipip local 10.65.0.254 remote 10.65.0.1");
    ip_line("-n wire link set forged up");
    ip(&["-n", "wire", "route", "add", &format!("{}/32", address("p1")), "dev", "forged"]);
    let mut ping = Command::new("ip");
    ping.args(["netns", "exec", "wire", "ping", "-c", "1", "-W", "1", &address("p1")]).stdin(Stdio::piped());
    assert!(!finish(ping, "").status.success(), "a forged packet is answered");
    let mut nft = Command::new("ip");
    nft.args(["netns", "exec", "n1", "nft", "list", "chain", "ip", "calico", "filter-cali-INPUT"]);
    nft.stdin(Stdio::piped());
    let shown = text(&finish(nft, "").stdout);
    let guard = |line: &&str| line.contains("drop") && line.contains("IPIP") && !line.contains("packets 0 ");
    assert!(shown.lines().any(|line| guard(&line)), "{shown}");
    ip_line("-n wire link del forged");

    cluster.must(
        "n1",
        &["ctl", "patch", "ippool", "default-ipv4-ippool", "-p", r#"{"spec":{"ipipMode":"Always"}}"#],
        "",
    );
    let always = format!("{} via 10.65.0.2 dev tunl0 proto 80 onlink", block("p2"));
    until("packets to the same subnet go by the tunnel too", || {
        route("n1", "main", &block("p2")).starts_with(&always)
    });
    until("and arrive", || reaches("p1", "p2") && reaches("p2", "p1"));
    assert!(travel_as("ipip"));
}

/// The usual configuration of kubeadm's users: IP in IP always, a full BGP mesh; here BGP provides the tunnel's routes,
/// too.
fn bgp(cluster: &Cluster) {
    const FOLDER: &str = "mkdir -p /run/calico && mount -t tmpfs tmpfs /run/calico && exec \"$@\"";
    let mut speakers: Vec<Child> = NODES
        .iter()
        .map(|(node, ..)| {
            let log = std::fs::File::create(cluster.folder.path().join(format!("bgp-{node}"))).unwrap();
            let mut command = cluster.command("ip", node);
            command.env("CALICO_NETWORKING_BACKEND", "bird");
            command.args(["netns", "exec", node, "sh", "-c", FOLDER, "sh", TORTIE, "component", "bgp"]);
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
        })
        .collect();
    let owner = |felix: &str, bgp: &str| {
        let patch = format!(r#"{{"spec":{{"programClusterRoutes":"{felix}"}}}}"#);
        cluster.must("n1", &["ctl", "patch", "felixconfiguration", "default", "-p", &patch], "");
        cluster.apply(&format!(
            "apiVersion: projectcalico.org/v3\nkind: BGPConfiguration\nmetadata: {{name: default}}\nspec: {{programClusterRoutes: {bgp}}}\n"
        ));
    };
    owner("Disabled", "Enabled");
    for (node, other, pod) in
        [("n1", "10.65.1.3", "p3"), ("n1", "10.65.0.2", "p2"), ("n3", "10.65.0.1", "p1")]
    {
        let wanted = format!("{} via {other} dev tunl0 proto bird ", block(pod));
        until(&format!("{wanted} on {node}"), || route(node, "main", &block(pod)).starts_with(&wanted));
    }
    until("pods reach each other by routes of BGP", || travel_as("ipip") && reaches("p1", "p2"));
    // The speakers are killed, and packets still flow; Felix takes the routes over again.
    for speaker in &mut speakers {
        speaker.kill().unwrap();
        speaker.wait().unwrap();
    }
    assert!(travel_as("ipip"), "right after the end of the speakers");
    owner("EnabledIPIPOnly", "EnabledNoEncapOnly");
    until("routes of Felix again", || {
        NODES.iter().all(|(node, ..)| {
            ["p1", "p2", "p3"]
                .iter()
                .all(|other| *other == pod(node) || route(node, "main", &block(other)).contains("proto 80"))
        })
    });
    for (node, ..) in NODES {
        ip(&["-n", node, "-4", "route", "flush", "proto", "bird"]);
    }
    assert!(travel_as("ipip"));
}

fn switch(cluster: &Cluster, on: bool) {
    let patch = format!(r#"{{"spec":{{"wireguardEnabled":{on}}}}}"#);
    cluster.must("n1", &["ctl", "patch", "felixconfiguration", "default", "-p", &patch], "");
}

const CLOSED: &str = "apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: closed}
spec: {selector: all(), types: [Ingress]}
";

fn keys(cluster: &Cluster) -> Vec<String> {
    cluster.nodes("/status/wireguardPublicKey")
}

fn wireguard(cluster: &Cluster) {
    switch(cluster, true);
    until("every node publishes a key", || keys(cluster).iter().all(|key| key.len() == 44));
    let first = keys(cluster);
    assert!(first[0] != first[1] && first[1] != first[2], "{first:?}");
    for (node, ..) in NODES {
        cluster.must(node, &["component", "node", "allocate-tunnel-addrs", "--run-once"], "");
    }
    until("packets between nodes are encrypted", || travel_as("wireguard"));
    let rules = ip_line("-n n1 -4 rule");
    assert!(rules.contains("99:\tnot from all fwmark 0x200000/0x200000 lookup 1"), "{rules}");
    let encrypted = format!("{} dev wireguard.cali scope link", block("p3"));
    assert_eq!(route("n1", "1", &block("p3")), encrypted);
    assert_eq!(route("n1", "1", &block("p1")), format!("throw {}", block("p1")));
    let own = cluster.nodes("/spec/wireguard/interfaceIPv4Address").remove(0);
    until("the device has its address", || {
        let shown = ip_line("-n n1 -4 addr show dev wireguard.cali");
        shown.contains(&format!("inet {own}/32 ")) && shown.contains("mtu 1440")
    });

    cluster.apply(CLOSED);
    until("policy closes pods behind the tunnel", || !reaches("p1", "p3") && !reaches("p3", "p1"));
    cluster.must("n1", &["ctl", "delete", "globalnetworkpolicy", "closed"], "");
    until("and opens them", || travel_as("wireguard"));

    // Killing Felix does not stop packets, and the next Felix takes over the existing state.
    for pid in ip_line("netns pids n1").split_whitespace() {
        if std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "tortie") {
            testkit::signal(pid.parse().unwrap(), testkit::Signal::KILL).unwrap();
        }
    }
    assert!(travel_as("wireguard"), "right after the end of Felix");
    let log = cluster.folder.path().join("felix-n1");
    until("the next Felix", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.rsplit("ended with 137").next().is_some_and(|new| new.contains("for the first time"))
    });
    assert_eq!(keys(cluster), first, "keys stay");
    assert!(travel_as("wireguard"));

    // The device is deleted: a new one is created, with a new key that all nodes learn.
    ip_line("-n n1 link del wireguard.cali");
    until("a new key", || {
        let new = keys(cluster);
        new[0].len() == 44 && new[0] != first[0]
    });
    until("packets are encrypted again", || travel_as("wireguard"));

    switch(cluster, false);
    until("keys are gone", || keys(cluster).iter().all(String::is_empty));
    until("packets go by the other tunnel again", || travel_as("ipip"));
    // Packets take the other route as soon as the device is gone, which is before the first round of the next Felix.
    until("nothing of it is left", || {
        NODES.iter().all(|(node, ..)| {
            !ip(&["-n", node, "-o", "link"]).contains("wireguard.cali")
                && !ip(&["-n", node, "-4", "rule"]).contains("fwmark")
                && route(node, "1", &block("p3")).is_empty()
        })
    });
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn finish(command: Command, input: &str) -> Output {
    testkit::finish(command, input).unwrap()
}

/// Runs `ip` with the words of a line.
fn ip_line(line: &str) -> String {
    ip(&line.split_whitespace().collect::<Vec<_>>())
}

fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).output().expect("`ip` (package iproute2)");
    // A table without routes does not exist.
    let is_empty_table = text(&output.stderr).contains("FIB table does not exist");
    assert!(output.status.success() || is_empty_table, "ip {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    eprintln!("{:6.1} s: {what}", begin.elapsed().as_secs_f64());
}
