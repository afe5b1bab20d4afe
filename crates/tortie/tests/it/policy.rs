//! A node with two pods, from nothing: the embedded store, node start-up, Felix and the CNI plugin of this program, and
//! packets that policy allows or denies, with each packet filter. Needs root.

use std::process::{Child, Command, Output, Stdio};
use testkit::Folder;

const TORTIE: &str = env!("CARGO_BIN_EXE_tortie");

/// A node and two pods as network namespaces, with the processes of the node. All of it is removed at the end.
struct Node {
    id: String,
    folder: Folder,
    processes: Vec<Child>,
}

impl Node {
    fn start(backend: &str) -> Self {
        let id = format!("tp{}{}", std::process::id(), backend[..1].to_lowercase());
        let folder = Folder::new("policy").unwrap();
        let mut node = Self { id, folder, processes: Vec::new() };
        for name in [node.name("n"), node.name("a"), node.name("b")] {
            ip(&["netns", "add", &name]);
            ip(&["-n", &name, "link", "set", "lo", "up"]);
        }
        let host = node.name("n");
        ip(&["-n", &host, "link", "add", "eth0", "type", "veth", "peer", "name", "wire"]);
        for interface in ["eth0", "wire"] {
            ip(&["-n", &host, "link", "set", interface, "up"]);
        }
        ip(&["-n", &host, "addr", "add", "10.65.0.1/24", "dev", "eth0"]);
        // Proxy ARP answers only for addresses that the host has a route to.
        ip(&["-n", &host, "route", "add", "default", "via", "10.65.0.254"]);
        let data = node.folder.path().join("data");
        // A port of its own: the nodes of both backends run at once, and the default port may be in use.
        let listen = format!("--listen-client-urls=http://127.0.0.1:{}", testkit::free_port().unwrap());
        let mut store = Command::new(TORTIE);
        store.args(["datastore", &listen, "--data-dir"]).arg(&data).stdout(Stdio::null());
        store.stderr(std::fs::File::create(node.folder.path().join("store.log")).unwrap());
        node.processes.push(store.spawn().unwrap());
        // A client that came before the server would open the files itself, and lock the server out.
        let socket = kvstore_engine::socket_path(&data);
        until("the store's socket", || socket.exists());
        until("the store", || node.run(&["ctl", "get", "nodes"], "").status.success());
        let started = node.on_host(&["component", "node", "startup"], "");
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        let mut felix = node.host_command(&["felix"]);
        felix.env("FELIX_NFTABLESMODE", backend).stdout(Stdio::null());
        felix.stderr(std::fs::File::create(node.folder.path().join("felix.log")).unwrap());
        node.processes.push(felix.spawn().unwrap());
        node
    }

    fn name(&self, part: &str) -> String {
        format!("{}{part}", self.id)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let folder = self.folder.path();
        command
            .env("DATASTORE_TYPE", "embedded")
            .env("EMBEDDED_PATH", folder.join("data"))
            .env("NODENAME", "node1")
            .env("CALICO_NODENAME_FILE", folder.join("nodename"))
            .env("IP", "10.65.0.1/24")
            .env("CALICO_NETWORKING_BACKEND", "vxlan")
            .env("CALICO_IPV4POOL_CIDR", "172.16.0.0/16")
            .env("CALICO_IPV6POOL_CIDR", "none")
            .env("FELIX_FELIXHOSTNAME", "node1")
            .env("FELIX_IPV6SUPPORT", "false")
            .env("FELIX_ENDPOINTSTATUSPATHPREFIX", folder.join("status"))
            .stdin(Stdio::piped());
        command
    }

    /// A command of this program in the node's namespaces. `/var/lib` is its own, so that the machine's files are not
    /// changed.
    fn host_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("ip");
        let script = "mount -t tmpfs tmpfs /var/lib && exec \"$@\"";
        command.args(["netns", "exec", &self.name("n"), "sh", "-c", script, "sh", TORTIE]).args(arguments);
        command
    }

    fn on_host(&self, arguments: &[&str], input: &str) -> Output {
        finish(self.host_command(arguments), input)
    }

    fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.command(TORTIE);
        command.args(arguments);
        finish(command, input)
    }

    fn cni(&self, verb: &str, pod: &str) {
        let configuration = format!(
            r#"{{"cniVersion":"1.0.0","name":"net","type":"calico","datastore_type":"embedded","nodename":"node1",
                "nodename_file":"{}","log_level":"warning","log_file_path":"{}","ipam":{{"type":"calico-ipam"}}}}"#,
            self.folder.path().join("nodename").display(),
            self.folder.path().join("cni.log").display(),
        );
        let mut command = self.host_command(&[]);
        command
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", self.name(pod))
            .env("CNI_NETNS", format!("/var/run/netns/{}", self.name(pod)))
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", "/usr/lib/cni");
        let output = finish(command, &configuration);
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stdout));
    }

    fn address(&self, pod: &str) -> String {
        let output = ip(&["-n", &self.name(pod), "-4", "-o", "addr", "show", "dev", "eth0"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let network = text.split_whitespace().nth(3).unwrap_or_default();
        network.split('/').next().unwrap_or_default().to_owned()
    }

    fn reaches(&self, from: &str, to: &str) -> bool {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.name(from), "busybox", "ping", "-c", "1", "-W", "1"])
            .arg(self.address(to));
        command.stdin(Stdio::piped());
        finish(command, "").status.success()
    }

    fn apply(&self, manifest: &str) {
        let output = self.run(&["ctl", "apply", "-f", "-"], manifest);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join("felix.log")).unwrap_or_default();
            eprintln!("{log}");
        }
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        for part in ["n", "a", "b"] {
            let _ = Command::new("ip").args(["netns", "del", &self.name(part)]).status();
        }
    }
}

fn finish(command: Command, input: &str) -> Output {
    testkit::finish(command, input).unwrap()
}

fn ip(arguments: &[&str]) -> Output {
    let output = Command::new("ip").args(arguments).output().expect("`ip` (package iproute2)");
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn until(what: &str, done: impl FnMut() -> bool) {
    testkit::eventually(what, done).unwrap();
}

const DENY: &str = "apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: closed}
spec: {selector: all(), types: [Ingress]}
";
const ALLOW: &str = "apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: closed}
spec:
  selector: all()
  types: [Ingress]
  ingress: [{action: Allow, protocol: ICMP, icmp: {type: 8, code: 0}, source: {selector: has(net)}}]
";

fn pods_and_policy(backend: &str) {
    let node = Node::start(backend);
    node.cni("ADD", "a");
    node.cni("ADD", "b");
    until("pods of one network reach each other", || node.reaches("a", "b"));
    node.apply(DENY);
    until("a policy without rules closes pods", || !node.reaches("a", "b"));
    // A packet of a known connection would pass; a closed pod stays closed for new connections.
    assert!(!node.reaches("b", "a"));
    node.apply(ALLOW);
    until("an allowed type and code of ICMP passes", || node.reaches("a", "b"));
    node.cni("DEL", "b");
    node.cni("DEL", "a");
    let shown = node.run(&["ctl", "get", "wep", "-A"], "");
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(!shown.contains("node1"), "{shown}");
}

#[test]
fn pods_and_policy_with_nftables() {
    pods_and_policy("Enabled");
}

#[test]
fn pods_and_policy_with_iptables() {
    pods_and_policy("Disabled");
}
