//! A host with one container and one client outside:
//!
//! ```text
//! client 192.0.2.2 ── 192.0.2.1 host cali0 ── eth0 10.0.0.2 container
//! ```

use anyhow::{Context as _, Result, bail, ensure};
use cni_plugins::ReferencePlugin;
use cni_protocol::Environment;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use testkit::network::Namespace;

pub(crate) const NETWORK: &str = "k8s-pod-network";
/// Debian's containernetworking-plugins.
const REFERENCE: &str = "/usr/lib/cni";

pub(crate) struct Bed {
    pub(crate) host: Namespace,
    pub(crate) container: Namespace,
    pub(crate) client: Namespace,
    pub(crate) id: String,
}

impl Bed {
    pub(crate) fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("cp{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let name = |part: &str| format!("{id}-{part}");
        let bed = Self {
            host: Namespace::new(&name("host"))?,
            container: Namespace::new(&name("pod"))?,
            client: Namespace::new(&name("out"))?,
            id,
        };
        bed.host.batch(&format!(
            "link add cali0 type veth peer name eth0 netns {}\nlink set cali0 up\n\
             link add up0 type veth peer name eth0 netns {}\nlink set up0 up\n\
             address add 192.0.2.1/24 dev up0\naddress add 2001:db8:1::1/64 dev up0\n\
             route add 10.0.0.2/32 dev cali0\nroute add fd00::2/128 dev cali0\n\
             address add fe80::1/64 dev cali0\nroute add default via 192.0.2.2",
            bed.container.name(),
            bed.client.name()
        ))?;
        bed.host.set("net/ipv4/ip_forward", "1")?;
        bed.host.set("net/ipv6/conf/all/forwarding", "1")?;
        // The host answers for the container's gateway, which no device has as its address.
        bed.host.set("net/ipv4/conf/cali0/proxy_arp", "1")?;
        bed.host.set("net/ipv4/neigh/cali0/proxy_delay", "0")?;
        bed.container.batch(
            "link set eth0 up\naddress add 10.0.0.2/32 dev eth0\naddress add fd00::2/128 dev eth0\n\
             route add 169.254.1.1 dev eth0\nroute add default via 169.254.1.1 dev eth0\n\
             route add default via fe80::1 dev eth0",
        )?;
        bed.client.batch(
            "link set eth0 up\naddress add 192.0.2.2/24 dev eth0\naddress add 2001:db8:1::2/64 dev eth0",
        )?;
        Ok(bed)
    }

    /// The result of the previous plugin in the chain.
    pub(crate) fn previous(&self) -> Value {
        json!({
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "cali0"}, {"name": "eth0", "sandbox": self.netns()}],
            "ips": [{"address": "10.0.0.2/32", "interface": 1}, {"address": "fd00::2/128", "interface": 1}],
        })
    }

    fn netns(&self) -> String {
        format!("/var/run/netns/{}", self.container.name())
    }

    fn variables(&self, command: &str) -> Vec<(&'static str, String)> {
        vec![
            ("CNI_COMMAND", command.to_owned()),
            ("CNI_CONTAINERID", self.id.clone()),
            ("CNI_NETNS", self.netns()),
            ("CNI_IFNAME", "eth0".to_owned()),
            ("CNI_PATH", REFERENCE.to_owned()),
        ]
    }

    fn document(&self, plugin: ReferencePlugin, mut conf: Value) -> Value {
        conf["name"] = NETWORK.into();
        conf["type"] = plugin.name().into();
        conf["cniVersion"] = "1.0.0".into();
        if conf.get("prevResult").is_none() {
            conf["prevResult"] = self.previous();
        }
        conf
    }

    /// Runs our plugin on the host.
    pub(crate) fn ours(&self, plugin: ReferencePlugin, command: &str, conf: Value) -> Result<Value> {
        let input = self.document(plugin, conf).to_string();
        let environment: Environment =
            self.variables(command).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let outcome = self.host.run(|| cni_plugins::run(plugin, &environment, || input.into_bytes()))?;
        let text = String::from_utf8_lossy(&outcome.stdout);
        if outcome.exit != 0 {
            bail!("{}", serde_json::from_str::<Value>(&text)?["msg"].as_str().unwrap_or(&text));
        }
        if text.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&text)?) }
    }

    /// Runs Debian's build of the reference plugin on the host.
    pub(crate) fn theirs(&self, plugin: ReferencePlugin, command: &str, conf: Value) -> Result<Value> {
        let program = format!("{REFERENCE}/{}", plugin.name());
        ensure!(
            std::path::Path::new(&program).is_file(),
            "this test needs {program}: install Debian's containernetworking-plugins (`make setup` does)"
        );
        let mut child = self
            .host
            .command(&program)
            .envs(self.variables(command))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let input = self.document(plugin, conf).to_string();
        child.stdin.take().context("no input")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{program} {command}: {text}");
        if text.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&text)?) }
    }

    /// Answers every connection in the container with one line, until the process ends.
    pub(crate) fn serve(&self, port: u16) -> Result<()> {
        let listener = self.container.run(|| TcpListener::bind(("::", port)))??;
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let from = stream.peer_addr().map(|peer| peer.ip().to_canonical().to_string());
                let _ = stream.write_all(from.unwrap_or_default().as_bytes());
            }
        });
        Ok(())
    }
}

/// The source address that the container sees when `from` connects to it; `None` when nothing answers.
pub(crate) fn seen(from: &Namespace, address: &str, port: u16) -> Result<Option<IpAddr>> {
    let target = SocketAddr::new(address.parse()?, port);
    from.run(|| {
        let mut stream = TcpStream::connect_timeout(&target, Duration::from_secs(3)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(3))).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.parse().ok()
    })
}
