//! Two nodes, each with the files of its own intent and a real BIRD in its own namespace.

use anyhow::{Context as _, Result, bail};
use bgp::{BgpState, IpVersion, Password, Settings};
use confd::for_tests::{Dialect, FileName, render};
use model::{AffinityType, BlockAffinityKey, ResourceKey};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::network::Namespace;
use testkit::{Bird, Folder};

const PATIENCE: Duration = Duration::from_secs(90);

/// The objects of a cluster of two nodes.
struct Cluster {
    resources: Vec<api::Resource>,
    affinities: Vec<(&'static str, &'static str)>,
    password: Option<&'static str>,
}

fn resource(kind: &str, name: &str, spec: &Value) -> Result<api::Resource> {
    let document = json!({
        "apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    let text = document.to_string();
    let documents = api::document::read("test", text.as_bytes(), api::document::Checks::Everything);
    let documents = documents.map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
    Ok(documents.into_iter().next().context("one document")?.resource)
}

impl Cluster {
    fn new(more: Vec<api::Resource>, configuration: &Value) -> Result<Self> {
        let node = |address: u8| json!({"bgp": {"ipv4Address": format!("10.65.0.{address}/24"), "ipv6Address": format!("fd65::{address}/64")}});
        let mut resources = vec![
            resource("Node", "n1", &node(1))?,
            resource("Node", "n2", &node(2))?,
            resource("IPPool", "pool", &json!({"cidr": "10.66.0.0/16"}))?,
            resource("IPPool", "pool6", &json!({"cidr": "fd66::/48"}))?,
            resource("BGPConfiguration", "default", configuration)?,
        ];
        resources.extend(more);
        let affinities = vec![
            ("n1", "10.66.1.0/26"),
            ("n1", "10.66.9.0/26"),
            ("n1", "fd66::100/122"),
            ("n2", "10.66.2.0/26"),
            ("n2", "fd66::200/122"),
        ];
        Ok(Self { resources, affinities, password: None })
    }

    fn state(&self, node: &str) -> Result<BgpState> {
        let mut state = BgpState::new(Settings { node: node.into(), ..Settings::default() });
        for resource in &self.resources {
            let name = resource.metadata().name.clone();
            let key = ResourceKey { kind: resource.kind(), namespace: String::new(), name };
            state.set_resource(&key, Some(resource));
        }
        let affinity = serde_json::from_value(json!({"state": "confirmed"}))?;
        for (host, cidr) in &self.affinities {
            let key = BlockAffinityKey {
                cidr: cidr.parse()?,
                host: (*host).to_owned(),
                affinity_type: AffinityType::Host,
            };
            state.set_affinity(&key, Some(&affinity));
        }
        if let Some(password) = self.password {
            state.set_secret("bgp", Some(BTreeMap::from([("mesh".to_owned(), Password::new(password))])));
        }
        Ok(state)
    }
}

/// A BIRD that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node: its network, its files, its two BIRDs.
struct Machine {
    name: &'static str,
    dialect: Dialect,
    folder: Folder,
    birds: Vec<Running>,
    namespace: Namespace,
}

impl Machine {
    fn new(name: &'static str, dialect: Dialect, unique: &str) -> Result<Self> {
        let namespace = Namespace::new(&format!("confd-{name}-{unique}"))?;
        Ok(Self { name, dialect, folder: Folder::new("node")?, birds: Vec::new(), namespace })
    }

    fn write(&self, cluster: &Cluster) -> Result<()> {
        let intent = cluster.state(self.name)?.intent()?;
        let files = render(&intent, self.dialect);
        assert!(files.left.is_empty(), "{:?}", files.left);
        for (name, text) in &files.texts {
            std::fs::write(self.folder.path().join(name.as_str()), text)?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        let bird = match self.dialect {
            Dialect::One => Bird::one()?,
            Dialect::Two => Bird::two()?,
        };
        for (version, program) in [(IpVersion::V4, bird.v4), (IpVersion::V6, bird.v6)] {
            let log = std::fs::File::create(self.folder.path().join(format!("log{version}")))?;
            let mut command = self.namespace.command(&program.to_string_lossy());
            command.args(["-R", "-d", "-s"]).arg(self.socket(version));
            command.arg("-c").arg(self.folder.path().join(FileName::Main(version).as_str()));
            command.current_dir(self.folder.path()).stdin(Stdio::null());
            command.stdout(log.try_clone()?).stderr(log);
            self.birds.push(Running(command.spawn()?));
        }
        Ok(())
    }

    fn socket(&self, version: IpVersion) -> PathBuf {
        self.folder.path().join(if version == IpVersion::V4 { "bird.ctl" } else { "bird6.ctl" })
    }

    /// Makes BIRD read its files again, then sends it a query.
    fn ask(&self, version: IpVersion, question: &[&str]) -> Result<String> {
        let output = Command::new("birdcl").arg("-s").arg(self.socket(version)).args(question).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    async fn established(&self, version: IpVersion) -> usize {
        match bird_control::peers(version, &[self.socket(version)]).await {
            Ok(answer) => answer.peers.iter().filter(|peer| peer.info.starts_with("Established")).count(),
            Err(_) => 0,
        }
    }

    fn routes(&self, flag: &str) -> Result<String> {
        self.namespace.shell(&format!("ip {flag} route show proto bird"))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log4")).unwrap_or_default()
    }
}

/// Two machines on one wire.
fn machines(dialects: [Dialect; 2]) -> Result<[Machine; 2]> {
    static COUNTER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let unique = format!("{}-{number}", std::process::id());
    let one = Machine::new("n1", dialects[0], &unique)?;
    let two = Machine::new("n2", dialects[1], &unique)?;
    one.namespace.batch(&format!("link add eth0 type veth peer name eth0 netns {}", two.namespace.name()))?;
    for (machine, address) in [(&one, 1), (&two, 2)] {
        machine.namespace.batch(&format!(
            "addr add 10.65.0.{address}/24 dev eth0\naddr add fd65::{address}/64 dev eth0\nlink set eth0 up"
        ))?;
    }
    Ok([one, two])
}

async fn eventually(
    what: &str,
    machines: &[Machine],
    mut holds: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    let begin = Instant::now();
    while !holds().await? {
        if begin.elapsed() > PATIENCE {
            let logs: Vec<String> = machines.iter().map(Machine::log).collect();
            bail!("not within {PATIENCE:?}: {what}\n{}", logs.join("\n----\n"));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

fn mesh(password: Option<&'static str>) -> Result<Cluster> {
    let configuration = match password {
        Some(_) => json!({"nodeMeshPassword": {"secretKeyRef": {"name": "bgp", "key": "mesh"}}}),
        None => json!({}),
    };
    Ok(Cluster { password, ..Cluster::new(Vec::new(), &configuration)? })
}

/// Old and new BIRD in one mesh: routes in both directions and families.
#[tokio::test]
async fn a_mesh_of_both_generations_exchanges_blocks() -> Result<()> {
    for dialects in [[Dialect::One, Dialect::Two], [Dialect::Two, Dialect::Two], [Dialect::One, Dialect::One]]
    {
        let cluster = mesh(None)?;
        let mut machines = machines(dialects)?;
        for machine in &mut machines {
            machine.write(&cluster)?;
            machine.start()?;
        }
        for (at, flag, route) in [
            (1, "-4", "10.66.1.0/26 via 10.65.0.1"),
            (1, "-4", "10.66.9.0/26 via 10.65.0.1"),
            (0, "-4", "10.66.2.0/26 via 10.65.0.2"),
            (1, "-6", "fd66::100/122 via fd65::1"),
            (0, "-6", "fd66::200/122 via fd65::2"),
        ] {
            eventually(&format!("{dialects:?}: {route}"), &machines, async || {
                Ok(machines[at].routes(flag)?.contains(route))
            })
            .await?;
        }
        // A node's own blocks are blackholes there: packets to an address that no pod has are dropped.
        assert!(
            machines[0].routes("-4")?.contains("blackhole 10.66.1.0/26"),
            "{}",
            machines[0].routes("-4")?
        );
    }
    Ok(())
}

#[tokio::test]
async fn sessions_need_the_password() -> Result<()> {
    let good = mesh(Some("a secret"))?;
    let mut machines = machines([Dialect::One, Dialect::Two])?;
    for machine in &mut machines {
        machine.write(&good)?;
        machine.start()?;
    }
    let up = async |machines: &[Machine]| machines[0].established(IpVersion::V4).await == 1;
    eventually("up with the password", &machines, async || Ok(up(&machines).await)).await?;
    machines[1].write(&mesh(Some("another one"))?)?;
    machines[1].ask(IpVersion::V4, &["configure"])?;
    eventually("down with another one", &machines, async || Ok(!up(&machines).await)).await?;
    machines[1].write(&good)?;
    machines[1].ask(IpVersion::V4, &["configure"])?;
    eventually("up again", &machines, async || Ok(up(&machines).await)).await
}

/// The effects of a filter that withholds and tags routes are visible on the other side.
#[tokio::test]
async fn filters_are_seen_on_the_other_side() -> Result<()> {
    let filter = json!({"exportV4": [
        {"action": "Reject", "matchOperator": "In", "cidr": "10.66.9.0/24"},
        {"action": "Accept", "matchOperator": "In", "cidr": "10.66.0.0/16",
         "operations": [{"addCommunity": {"value": "65000:7"}}, {"addCommunity": {"value": "65000:7:9"}}]},
    ]});
    let peer = json!({"peerSelector": "all()", "filters": ["hide-and-mark"], "reversePeering": "Manual"});
    let more = vec![resource("BGPFilter", "hide-and-mark", &filter)?, resource("BGPPeer", "all", &peer)?];
    for dialects in [[Dialect::One, Dialect::Two], [Dialect::Two, Dialect::One]] {
        let cluster = Cluster::new(more.clone(), &json!({"nodeToNodeMeshEnabled": false}))?;
        let mut machines = machines(dialects)?;
        for machine in &mut machines {
            machine.write(&cluster)?;
            machine.start()?;
        }
        eventually("the block that passes", &machines, async || {
            Ok(machines[1].routes("-4")?.contains("10.66.1.0/26 via 10.65.0.1"))
        })
        .await?;
        let learned = machines[1].ask(IpVersion::V4, &["show", "route", "all", "10.66.1.0/26"])?;
        assert!(learned.contains("(65000,7)"), "{learned}");
        assert!(learned.contains("(65000, 7, 9)"), "{learned}");
        // If both blocks had been sent, they would have arrived together.
        assert!(!machines[1].routes("-4")?.contains("10.66.9.0/26"), "{}", machines[1].routes("-4")?);
    }
    Ok(())
}
