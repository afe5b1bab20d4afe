//! A node for tests: a network namespace as the host, a folder as its root, links to the plugin, and a datastore that
//! can be reached at the same address from inside. Pods are further namespaces. All of it is removed when dropped.

use anyhow::{Context as _, Result, bail, ensure};
use client::{Client, ClientConfig, DatastoreType};
use netlink::namespace::Namespace;
use netlink::{DeviceKind, Handle, Kernel as _, NewLink, Operation, Route};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use testkit::{Etcd, Folder};

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A network namespace of a test.
pub(crate) struct Netns {
    pub(crate) name: String,
    pub(crate) namespace: Namespace,
}

impl Netns {
    pub(crate) fn new(purpose: &str) -> Result<Self> {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("cni-{}-{number}-{purpose}", std::process::id());
        run("ip", &["netns", "add", &name])?;
        let namespace = Namespace::open(&Path::new("/var/run/netns").join(&name))?;
        Ok(Self { name, namespace })
    }

    pub(crate) fn path(&self) -> String {
        self.namespace.path().display().to_string()
    }

    /// Runs a program inside; returns its standard output.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = self.namespace.run(|| Command::new(program).args(arguments).output())??;
        ensure!(
            output.status.success(),
            "{program} {arguments:?}: {} {}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub(crate) fn ip(&self, arguments: &[&str]) -> Result<String> {
        self.run("ip", arguments)
    }

    pub(crate) fn links(&self) -> Result<Vec<String>> {
        let mut kernel = self.namespace.run(Handle::open)??;
        Ok(kernel.links()?.into_iter().map(|link| link.name).collect())
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = run("ip", &["netns", "del", &self.name]);
    }
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new(program).args(arguments).output().with_context(|| format!("starting {program}"))?;
    ensure!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) host: Netns,
    pub(crate) folder: Folder,
    pub(crate) settings: Value,
    pub(crate) variables: BTreeMap<String, String>,
}

impl Node {
    /// A node of this name whose plugins' configuration has these datastore settings.
    pub(crate) fn new(name: &str, settings: Value) -> Result<Self> {
        Self::with_plugin(name, settings, &testkit::example("plugin")?)
    }

    /// A node with another program as its plugins.
    pub(crate) fn with_plugin(name: &str, settings: Value, plugin: &Path) -> Result<Self> {
        let folder = Folder::new("cni")?;
        let root = folder.path();
        std::fs::create_dir_all(root.join("var/lib/calico"))?;
        std::fs::write(root.join("var/lib/calico/nodename"), name)?;
        std::fs::create_dir_all(root.join("bin"))?;
        for link in ["calico", "calico-ipam"] {
            symlink(plugin, root.join("bin").join(link))?;
        }
        let host = Netns::new("host")?;
        let mut kernel = host.namespace.run(Handle::open)??;
        // As on any host: an uplink, which proxy ARP needs, and forwarding of IPv6, which Felix enables.
        let uplink = NewLink { up: true, ..NewLink::new("uplink", DeviceKind::Bridge) };
        netlink::first_failure(kernel.apply(&[Operation::up(1), Operation::AddLink(uplink)]))?;
        let uplink = kernel.link(&"uplink".into())?.context("no uplink")?.index;
        let out = Operation::AddRoute(Route::on_link("0.0.0.0/0".parse()?, uplink));
        netlink::first_failure(kernel.apply(&[out]))?;
        host.namespace.run(|| netlink::sysctl::write("net/ipv6/conf/all/forwarding", "1"))??;
        Ok(Self { name: name.to_owned(), host, folder, settings, variables: BTreeMap::new() })
    }

    /// A node with an etcd, which is made reachable from inside.
    pub(crate) fn on_etcd(name: &str, etcd: &Etcd) -> Result<Self> {
        let node = Self::new(name, json!({"datastore_type": "etcdv3", "etcd_endpoints": etcd.endpoint()}))?;
        node.forward(port_of(&etcd.endpoint())?)?;
        Ok(node)
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a port of the test's loopback reachable at the same address inside the node.
    pub(crate) fn forward(&self, port: u16) -> Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = self.host.namespace.run(|| TcpListener::bind(address))??;
        // Ends with the test process; the namespace is removed when the node is dropped.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let Ok(upstream) = TcpStream::connect(address) else {
                        let _ = stream.shutdown(Shutdown::Both);
                        return;
                    };
                    let _ = stream.set_nodelay(true);
                    let _ = upstream.set_nodelay(true);
                    copy_both(stream, upstream);
                });
            }
        });
        Ok(())
    }

    /// The plugins' configuration, with changes.
    pub(crate) fn configuration(&self, changes: Value) -> Value {
        let mut all = json!({
            "cniVersion": "1.0.0",
            "name": "k8s-pod-network",
            "type": "calico",
            "log_level": "info",
            "mtu": 1450,
            "ipam": {"type": "calico-ipam"},
        });
        merge(&mut all, self.settings.clone());
        merge(&mut all, changes);
        all
    }

    /// A command for a plugin, with the variables of an attachment.
    pub(crate) fn command(&self, plugin: &Path, call: &Call<'_>) -> Command {
        let mut command = Command::new(plugin);
        let path = format!("{}:/usr/lib/cni:/opt/cni/bin", self.root().join("bin").display());
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("TORTIE_HOST_ROOT", self.root())
            .env("CNI_COMMAND", call.command)
            .env("CNI_CONTAINERID", call.container)
            .env("CNI_NETNS", call.netns)
            .env("CNI_IFNAME", call.ifname)
            .env("CNI_PATH", path)
            .env("CNI_ARGS", call.args);
        command.envs(&self.variables);
        command
    }

    /// Starts a plugin inside the node.
    pub(crate) fn start(&self, plugin: &Path, call: &Call<'_>, configuration: &Value) -> Result<Child> {
        let mut command = self.command(plugin, call);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.host.namespace.run(move || command.spawn())??;
        let mut stdin = child.stdin.take().context("no standard input")?;
        match stdin.write_all(configuration.to_string().as_bytes()) {
            // A plugin does not read input that it does not need, and may have ended already.
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(child),
        }
    }

    /// Runs the `calico` plugin.
    pub(crate) fn call(&self, call: &Call<'_>, configuration: &Value) -> Result<Output> {
        let plugin = self.root().join("bin/calico");
        Ok(self.start(&plugin, call, configuration)?.wait_with_output()?)
    }

    /// ADD, which must succeed; returns its result.
    pub(crate) fn add(&self, pod: &Pod, changes: Value) -> Result<Value> {
        let output = self.call(&pod.call("ADD"), &self.configuration(changes))?;
        answer(&output)
    }

    /// DEL, which must succeed.
    pub(crate) fn del(&self, pod: &Pod, changes: Value) -> Result<()> {
        let output = self.call(&pod.call("DEL"), &self.configuration(changes))?;
        ensure!(output.status.success(), "DEL failed: {}", told(&output));
        ensure!(output.stdout.is_empty(), "DEL said something: {}", told(&output));
        Ok(())
    }

    /// Checks that nothing of any pod is left on the host.
    pub(crate) fn assert_bare(&self) -> Result<()> {
        let left: Vec<String> =
            self.host.links()?.into_iter().filter(|name| name.starts_with("cali")).collect();
        ensure!(left.is_empty(), "devices are left: {left:?}");
        let routes = self.host.ip(&["route", "show", "table", "main"])?;
        ensure!(!routes.contains("cali"), "routes are left: {routes}");
        Ok(())
    }
}

pub(crate) struct Pod {
    path: String,
    pub(crate) netns: Netns,
    pub(crate) container: String,
    pub(crate) args: String,
}

impl Pod {
    pub(crate) fn new(container: &str) -> Result<Self> {
        let netns = Netns::new("pod")?;
        Ok(Self { path: netns.path(), netns, container: container.to_owned(), args: String::new() })
    }

    pub(crate) fn of_kubernetes(container: &str, namespace: &str, name: &str) -> Result<Self> {
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_INFRA_CONTAINER_ID={container}"
        );
        Ok(Self { args, ..Self::new(container)? })
    }

    pub(crate) fn call<'a>(&'a self, command: &'a str) -> Call<'a> {
        Call { command, container: &self.container, netns: &self.path, ifname: "eth0", args: &self.args }
    }
}

/// The variables of a call.
pub(crate) struct Call<'a> {
    pub(crate) command: &'a str,
    pub(crate) container: &'a str,
    pub(crate) netns: &'a str,
    pub(crate) ifname: &'a str,
    pub(crate) args: &'a str,
}

/// The JSON of a call that must have succeeded.
pub(crate) fn answer(output: &Output) -> Result<Value> {
    ensure!(output.status.success(), "the call failed: {}", told(output));
    serde_json::from_slice(&output.stdout).with_context(|| told(output))
}

/// The error of a call that must have failed.
pub(crate) fn refusal(output: &Output) -> Result<(u64, String)> {
    ensure!(!output.status.success(), "the call succeeded: {}", told(output));
    let value: Value = serde_json::from_slice(&output.stdout).with_context(|| told(output))?;
    let code = value["code"].as_u64().context("no code")?;
    Ok((code, value["msg"].as_str().unwrap_or_default().to_owned()))
}

pub(crate) fn told(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The first address of a result, without its prefix length.
pub(crate) fn address_of(result: &Value) -> Result<String> {
    let text = result["ips"][0]["address"].as_str().context("no address")?;
    Ok(text.split('/').next().unwrap_or_default().to_owned())
}

/// An initialised etcd with a pool.
pub(crate) struct Cluster {
    pub(crate) etcd: Etcd,
    pub(crate) client: Client,
}

impl Cluster {
    pub(crate) async fn start(pools: &[Value]) -> Result<Self> {
        let etcd = tokio::task::spawn_blocking(Etcd::start).await??;
        let client = open_etcd(&etcd).await?;
        prepare(&client, pools).await?;
        Ok(Self { etcd, client })
    }

    /// All of Calico's keys and values, by key.
    pub(crate) fn dump(&self) -> Result<BTreeMap<String, String>> {
        let output = self.etcd.etcdctl(&["get", "/calico/", "--prefix"])?;
        ensure!(output.status.success(), "etcdctl: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        let lines: Vec<&str> = text.lines().collect();
        Ok(lines
            .chunks(2)
            .map(|pair| (pair[0].to_owned(), pair.get(1).copied().unwrap_or_default().to_owned()))
            .collect())
    }

    /// Checks that nothing of any pod is left in the datastore.
    pub(crate) fn assert_bare(&self) -> Result<()> {
        for (key, value) in self.dump()? {
            if key.contains("/handle/") || key.contains("/workloadendpoints/") {
                bail!("left in the datastore: {key} {value}");
            }
            if key.contains("/assignment/") {
                let block: Value = serde_json::from_str(&value)?;
                let taken = block["allocations"]
                    .as_array()
                    .context("no allocations")?
                    .iter()
                    .filter(|it| !it.is_null());
                ensure!(taken.count() == 0, "addresses are left: {key} {value}");
            }
        }
        Ok(())
    }
}

pub(crate) async fn open_etcd(etcd: &Etcd) -> Result<Client> {
    let config = ClientConfig {
        datastore_type: DatastoreType::EtcdV3,
        etcd: client::config::EtcdSettings { endpoints: etcd.endpoint(), ..Default::default() },
        kubernetes: Default::default(),
        embedded_path: String::new(),
    };
    Ok(Client::open(&config).await?)
}

/// Prepares a datastore: like the node's start-up, as far as plugins need it.
pub(crate) async fn prepare(client: &Client, pools: &[Value]) -> Result<()> {
    client.ensure_initialized("v3.32.0", "k8s").await?;
    for pool in pools {
        let pool: api::IPPool = serde_json::from_value(pool.clone())?;
        client.resource::<api::IPPoolSpec>().create(pool).await?;
    }
    Ok(())
}

pub(crate) async fn add_node(client: &Client, name: &str) -> Result<()> {
    let node: api::Node = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    client.resource::<api::NodeSpec>().create(node).await?;
    Ok(())
}

pub(crate) fn pool(name: &str, cidr: &str, block_size: u8) -> Value {
    json!({"metadata": {"name": name}, "spec": {"cidr": cidr, "blockSize": block_size, "natOutgoing": true}})
}

pub(crate) fn port_of(endpoint: &str) -> Result<u16> {
    Ok(endpoint.rsplit(':').next().context("no port")?.trim_end_matches('/').parse()?)
}

fn copy_both(a: TcpStream, b: TcpStream) {
    let (a, b) = (Arc::new(a), Arc::new(b));
    let (c, d) = (Arc::clone(&a), Arc::clone(&b));
    let back = std::thread::spawn(move || copy_one(&d, &c));
    copy_one(&a, &b);
    let _ = back.join();
}

fn copy_one(from: &TcpStream, to: &TcpStream) {
    let (mut reader, mut writer) = (from, to);
    let _ = std::io::copy(&mut reader, &mut writer);
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

pub(crate) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Checks that a pod reaches an address of another one: connects and sends a byte.
///
/// The kernel brings a new device's queue and carrier up from a machine-wide work queue, and drops packets until then.
/// A lost first packet is repeated only after one, three and seven seconds. So connections are retried, each with a
/// short timeout, and a pod that cannot be reached at all is reported only after a long one.
pub(crate) fn reach(from: &Netns, to: &Netns, address: &str) -> Result<()> {
    let target: SocketAddr = SocketAddr::new(address.parse()?, 18_999);
    let listener = to.namespace.run(|| TcpListener::bind(target))??;
    let deadline = Instant::now() + Duration::from_secs(120);
    let connect = || from.namespace.run(|| TcpStream::connect_timeout(&target, Duration::from_secs(2)));
    let mut stream = loop {
        match connect()? {
            Ok(stream) => break stream,
            Err(error) if Instant::now() > deadline => return Err(error).context("the pod is not reached"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    stream.write_all(b"x")?;
    // Connections that were too late for an earlier attempt are closed already, and carry no data.
    loop {
        let (mut accepted, _) = listener.accept()?;
        let mut byte = [0];
        if accepted.read_exact(&mut byte).is_ok() {
            return Ok(());
        }
    }
}
