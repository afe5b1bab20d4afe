//! Real containers: containerd and runc attach them with our conflist, as `ctr run --cni` does.

use crate::world::{Cluster, Netns, Node, add_node, pool};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use testkit::program;

const REMEDY: &str =
    "install Debian's containerd, runc, containernetworking-plugins and busybox-static (`make setup` does)";

/// A containerd of its own: state and socket in a folder, `/etc/cni` and `/opt/cni/bin` from its node.
struct Containerd<'a> {
    node: &'a Node,
    folder: PathBuf,
    child: Child,
}

impl<'a> Containerd<'a> {
    fn start(node: &'a Node) -> Result<Self> {
        let folder = node.root().join("containerd");
        std::fs::create_dir_all(&folder)?;
        let configuration = folder.join("config.toml");
        std::fs::write(&configuration, "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n")?;
        let mut command = Command::new(program("containerd", REMEDY)?);
        command
            .arg("--config")
            .arg(&configuration)
            .arg("--root")
            .arg(folder.join("root"))
            .arg("--state")
            .arg(folder.join("state"))
            .arg("--address")
            .arg(folder.join("sock"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("log"))?);
        let child = node.host.namespace.run(move || command.spawn())??;
        let containerd = Self { node, folder, child };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !containerd.ctr(&["version"])?.status.success() {
            ensure!(Instant::now() < deadline, "containerd does not answer: {}", containerd.log());
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(containerd)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Runs `ctr` with a mount namespace of its own, in which the CNI folders are the node's.
    fn ctr(&self, arguments: &[&str]) -> Result<Output> {
        let root = self.node.root();
        let script = format!(
            "mkdir -p /etc/cni/net.d /opt/cni/bin && mount --bind {0}/net.d /etc/cni/net.d && mount --bind {0}/bin /opt/cni/bin && exec \"$@\"",
            root.display()
        );
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"])
            .arg(program("ctr", REMEDY)?)
            .arg("--address")
            .arg(self.folder.join("sock"))
            .args(arguments)
            .env("TORTIE_HOST_ROOT", root)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        Ok(self.node.host.namespace.run(move || command.output())??)
    }

    fn must(&self, arguments: &[&str]) -> Result<String> {
        let output = self.ctr(arguments)?;
        ensure!(
            output.status.success(),
            "ctr {arguments:?}: {} {}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Containerd<'_> {
    fn drop(&mut self) {
        for container in ["one", "two"] {
            let _ = self.ctr(&["task", "kill", "-s", "KILL", container]);
            let _ = self.ctr(&["task", "rm", "-f", container]);
            let _ = self.ctr(&["container", "rm", container]);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A root file system with nothing but busybox.
fn root_file_system(folder: &Path) -> Result<PathBuf> {
    let busybox = program("busybox", REMEDY)?;
    let root = folder.join("rootfs");
    for part in ["bin", "proc", "sys", "dev", "etc", "tmp"] {
        std::fs::create_dir_all(root.join(part))?;
    }
    std::fs::copy(busybox, root.join("bin/busybox"))?;
    Ok(root)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_of_containerd_reach_each_other() -> Result<()> {
    let cluster = Cluster::start(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    add_node(&cluster.client, "node-a").await?;
    let node = Node::on_etcd("node-a", &cluster.etcd)?;
    program("runc", REMEDY)?;
    std::fs::create_dir_all(node.root().join("net.d"))?;
    // Our plugin as a file: a link would point outside the mounted folder.
    let plugin = std::fs::canonicalize(node.root().join("bin/calico"))?;
    std::fs::remove_file(node.root().join("bin/calico"))?;
    std::fs::copy(plugin, node.root().join("bin/calico"))?;
    std::fs::copy("/usr/lib/cni/portmap", node.root().join("bin/portmap")).context(REMEDY)?;
    let mut calico = node.configuration(json!({}));
    if let Some(fields) = calico.as_object_mut() {
        fields.remove("cniVersion");
        fields.remove("name");
    }
    let conflist = json!({"name": "k8s-pod-network", "cniVersion": "0.4.0",
        "plugins": [calico, {"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}]});
    std::fs::write(node.root().join("net.d/10-calico.conflist"), conflist.to_string())?;
    let root = root_file_system(node.root())?;
    let root = root.display().to_string();
    let containerd = Containerd::start(&node)?;
    for container in ["one", "two"] {
        containerd.must(&[
            "run",
            "-d",
            "--cni",
            "--rootfs",
            &root,
            container,
            "/bin/busybox",
            "sleep",
            "600",
        ])?;
    }
    let addresses = |container: &str| {
        containerd.must(&[
            "task",
            "exec",
            "--exec-id",
            "a",
            container,
            "/bin/busybox",
            "ip",
            "-4",
            "addr",
            "show",
            "eth0",
        ])
    };
    let second = addresses("two")?;
    let address =
        second.split("inet ").nth(1).and_then(|rest| rest.split('/').next()).context(second.clone())?;
    assert!(address.starts_with("10.10."), "{second}");
    // busybox stops after sending as many packets as it expects replies, and the first on a new device may be lost.
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut number = 0;
    loop {
        let id = format!("p{number}");
        let ping = ["/bin/busybox", "ping", "-c", "1", "-w", "5", address];
        let output = containerd.ctr(&[&["task", "exec", "--exec-id", &id, "one"][..], &ping[..]].concat())?;
        if output.status.success() {
            break;
        }
        ensure!(Instant::now() < deadline, "{}", crate::world::told(&output));
        number += 1;
    }
    assert_eq!(node.host.links()?.iter().filter(|name| name.starts_with("cali")).count(), 2);
    for container in ["one", "two"] {
        containerd.must(&["task", "kill", "-s", "KILL", container])?;
        let deadline = Instant::now() + Duration::from_secs(120);
        while containerd
            .must(&["task", "ls"])?
            .lines()
            .any(|line| line.starts_with(container) && !line.contains("STOPPED"))
        {
            ensure!(Instant::now() < deadline, "{container} does not stop");
            std::thread::sleep(Duration::from_millis(100));
        }
        containerd.must(&["task", "rm", container])?;
        containerd.must(&["container", "rm", container])?;
    }
    drop(containerd);
    wait_until_bare(&node.host)?;
    // `ctr` forgets the networks of detached containers; the runtime's GC cleans up.
    let gc = crate::world::Call { command: "GC", container: "", netns: "", ifname: "", args: "" };
    let output =
        node.call(&gc, &node.configuration(json!({"cniVersion": "1.1.0", "cni.dev/valid-attachments": []})))?;
    ensure!(output.status.success(), "{}", crate::world::told(&output));
    cluster.assert_bare()
}

/// Devices disappear with their namespaces, which the kernel removes a little later.
fn wait_until_bare(host: &Netns) -> Result<()> {
    testkit::eventually("no device of a pod is left", || {
        Ok(!host.links()?.iter().any(|name| name.starts_with("cali")))
    })
}
