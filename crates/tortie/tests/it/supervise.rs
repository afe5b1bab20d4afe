//! `tortie node`: started, a part killed and restarted, ended on request. Each node has a network namespace and an etcd
//! of its own, because its Felix writes rules.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use testkit::network::Namespace;
use testkit::{Etcd, EtcdOptions, Folder, Process, Signal, program, signal};

/// A namespace where a node disturbs nothing, and its datastore.
fn apart() -> (Namespace, Etcd) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("supervise-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let namespace = Namespace::new(&name).expect("a namespace");
    let etcd = Etcd::start_with(EtcdOptions { namespace: Some(name), ..EtcdOptions::default() });
    (namespace, etcd.expect("etcd"))
}

/// A node with folders of its own.
struct Node {
    process: Process,
    folder: Folder,
}

impl Node {
    fn start(namespace: &Namespace, endpoint: &str, backend: &str) -> Self {
        let folder = Folder::new("tortie-node").expect("a folder");
        let ip = program("ip", "install Debian's iproute2").expect("ip");
        let script = format!(
            "set -e; for place in /var/lib /var/log /run; do mount -t tmpfs tmpfs $place; done; \
             exec env -i PATH=\"$PATH\" DATASTORE_TYPE=etcdv3 ETCD_ENDPOINTS={endpoint} NODENAME=node-a \
             IP=10.99.0.11/24 CALICO_NETWORKING_BACKEND={backend} WAIT_FOR_DATASTORE=true CALICO_IPV6POOL_CIDR=none {} node",
            env!("CARGO_BIN_EXE_tortie")
        );
        let arguments = [
            "netns",
            "exec",
            namespace.name(),
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            &script,
        ]
        .map(str::to_owned);
        let process = Process::start(&ip, &arguments, &folder.path().join("log")).expect("a node");
        Self { process, folder }
    }

    /// A file as the node sees it.
    fn file(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.process.id()))
    }

    fn services_pid(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.file("/run/calico/services/node-services")).ok()?;
        text.trim().parse().ok()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn wait_until(&self, what: &str, holds: impl Fn() -> bool) {
        testkit::eventually(what, holds).unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
    }
}

fn is_running(pid: u32) -> bool {
    // A zombie still has a folder, but does not run.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_node_starts_heals_and_ends() {
    let (namespace, mut etcd) = apart();
    let endpoint = etcd.endpoint();
    etcd.kill();
    let mut node = Node::start(&namespace, &endpoint, "vxlan");
    node.wait_until("it waits for its datastore", || node.log().contains("does not answer yet"));
    etcd.restart().expect("etcd again");
    node.wait_until("its services run", || node.services_pid().is_some_and(is_running));
    let registered =
        etcd.etcdctl(&["get", "--prefix", "/calico/resources/v3/projectcalico.org/nodes"]).expect("etcdctl");
    assert!(String::from_utf8_lossy(&registered.stdout).contains("10.99.0.11/24"), "{registered:?}");
    assert_eq!(std::fs::read_to_string(node.file("/var/lib/calico/nodename")).expect("the name"), "node-a");
    // The plugins' socket exists, accessible only by root.
    let socket = node.file("/run/calico/cni-agent.sock");
    node.wait_until("the CNI agent listens", || socket.exists());
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(std::fs::metadata(&socket).expect("a socket").permissions().mode() & 0o777, 0o600);

    let first = node.services_pid().expect("a process");
    signal(first, Signal::KILL).expect("a kill");
    node.wait_until("its services run again", || {
        node.services_pid().is_some_and(|pid| pid != first && is_running(pid))
    });
    let second = node.services_pid().expect("a process");
    node.process.terminate().expect("an end");
    assert!(!is_running(second), "a part outlived its node:\n{}", node.log());
}

/// Like Ctrl-C: the signal reaches all parts at once, so their ends are not logged as failures.
#[test]
fn a_signal_for_the_whole_group_ends_in_silence() {
    let (namespace, etcd) = apart();
    let mut node = Node::start(&namespace, &etcd.endpoint(), "vxlan");
    let felix = node.file("/run/calico/services/felix");
    node.wait_until("its parts run", || {
        node.services_pid().is_some_and(is_running)
            && std::fs::metadata(&felix).is_ok_and(|file| file.len() > 0)
    });
    let before = node.log().len();
    // The parts first: the supervisor may notice their end before its own signal.
    let felix = std::fs::read_to_string(&felix).expect("Felix's file").trim().parse().expect("a process");
    for part in [felix, node.services_pid().expect("a process"), node.process.id()] {
        signal(part, Signal::TERM).expect("a signal");
    }
    node.process.terminate().expect("an end");
    let log = node.log();
    assert!(log[before..].contains("ending"), "{log}");
    assert!(!log[before..].contains("starting it again"), "{log}");
}

#[test]
fn parts_do_not_outlive_a_killed_node() {
    let (namespace, etcd) = apart();
    let mut node = Node::start(&namespace, &etcd.endpoint(), "bird");
    node.wait_until("its services run", || node.services_pid().is_some_and(is_running));
    let mut parts = vec![node.services_pid().expect("a process")];
    // Calico's own `calicoctl node status` looks for processes with these names.
    for (service, name) in [("felix", "calico-felix"), ("bgp", "bird"), ("bird6", "bird6")] {
        let file = node.file(&format!("/run/calico/services/{service}"));
        let pid = || std::fs::read_to_string(&file).ok()?.trim().parse::<u32>().ok();
        let called = |pid| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).next() == Some(name.as_bytes())
        };
        node.wait_until(name, || pid().is_some_and(called));
        parts.extend(pid());
    }
    node.process.kill().expect("a kill");
    let deadline = Instant::now() + Duration::from_secs(60);
    while parts.iter().any(|part| is_running(*part)) {
        assert!(Instant::now() < deadline, "a part outlived its node:\n{}", node.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_waiting_node_can_be_ended() {
    let (namespace, mut etcd) = apart();
    let endpoint = etcd.endpoint();
    etcd.kill();
    let mut node = Node::start(&namespace, &endpoint, "vxlan");
    node.wait_until("it waits for its datastore", || node.log().contains("does not answer yet"));
    // Returns only when the process has ended.
    node.process.terminate().expect("an end");
}
