//! Nodes on one switch, each with the intent derived from a cluster's objects, applied by the native speaker or by a
//! BIRD with the files of confd. All assertions of scenarios read the kernel, so they hold for both.

use crate::harness::{Running, wait_for};
use anyhow::{Context as _, Result};
use bgp::{BgpState, Settings};
use confd::for_tests::{Dialect, FileName, render};
use model::{AffinityType, BlockAffinityKey, ResourceKey};
use serde_json::{Value, json};
use speaker::for_tests::{PeerStatus, StateName};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;
use testkit::Process;
use testkit::network::Namespace;

/// The implementation that applies the intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Native,
    Bird,
}

/// The address of a node.
pub(crate) fn address(node: usize) -> String {
    format!("10.65.0.{}", node + 1)
}

/// The block of a node.
pub(crate) fn block(node: usize) -> String {
    format!("10.66.{}.0/26", node + 1)
}

/// The address of the node's pod.
pub(crate) fn pod(node: usize) -> String {
    format!("10.66.{}.1", node + 1)
}

/// The process on a node.
enum Speaking {
    No,
    Native(Running),
    Bird(Process),
}

/// A node.
pub(crate) struct Node {
    pub(crate) namespace: Arc<Namespace>,
    backend: Backend,
    folder: TempDir,
    speaking: Speaking,
}

/// Nodes on one switch, and the objects of their cluster.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    /// Objects besides the nodes and the pool, by kind and name.
    pub(crate) objects: BTreeMap<(&'static str, String), Value>,
    /// Labels of nodes.
    pub(crate) labels: BTreeMap<usize, Value>,
    pub(crate) reflectors: Vec<usize>,
    /// Nodes in the datastore.
    pub(crate) members: Vec<usize>,
    /// Nodes that currently own their block.
    pub(crate) blocks: Vec<usize>,
    _switch: Namespace,
}

impl Cluster {
    /// Creates nodes that are not started yet, all of them members with a block.
    pub(crate) fn new(backends: &[Backend]) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("sc{}x{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let switch = Namespace::new(&format!("{id}s"))?;
        switch.batch("link add br0 type bridge\nlink set br0 up")?;
        let mut nodes = Vec::new();
        for (number, backend) in backends.iter().enumerate() {
            let namespace = Namespace::new(&format!("{id}n{number}"))?;
            switch.batch(&format!(
                "link add port{number} type veth peer name eth0 netns {}\nlink set port{number} master br0\nlink set port{number} up",
                namespace.name()
            ))?;
            namespace.batch(&format!(
                "link set lo up\naddr add {}/32 dev lo\naddr add {}/24 dev eth0\nlink set eth0 up",
                pod(number),
                address(number)
            ))?;
            let folder = TempDir::new()?;
            let namespace = Arc::new(namespace);
            nodes.push(Node { namespace, backend: *backend, folder, speaking: Speaking::No });
        }
        let all: Vec<usize> = (0..nodes.len()).collect();
        Ok(Self {
            nodes,
            objects: BTreeMap::new(),
            labels: BTreeMap::new(),
            reflectors: Vec::new(),
            members: all.clone(),
            blocks: all,
            _switch: switch,
        })
    }

    fn intent(&self, node: usize) -> Result<bgp::Intent> {
        let mut state = BgpState::new(Settings { node: format!("n{node}").into(), ..Settings::default() });
        let mut put = |kind: &str, name: &str, labels: &Value, spec: &Value| -> Result<()> {
            let document = json!({
                "apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec,
            });
            let text = document.to_string();
            let documents = api::document::read("test", text.as_bytes(), api::document::Checks::Everything);
            let documents = documents.map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
            let resource = documents.into_iter().next().context("one document")?.resource;
            let key = ResourceKey { kind: resource.kind(), namespace: String::new(), name: name.to_owned() };
            state.set_resource(&key, Some(&resource));
            Ok(())
        };
        put("IPPool", "pods", &json!({}), &json!({"cidr": "10.66.0.0/16"}))?;
        for member in &self.members {
            let mut spec = json!({"bgp": {"ipv4Address": format!("{}/24", address(*member))}});
            if self.reflectors.contains(member) {
                spec["bgp"]["routeReflectorClusterID"] = json!("224.0.0.1");
            }
            let labels = self.labels.get(member).cloned().unwrap_or_else(|| json!({}));
            put("Node", &format!("n{member}"), &labels, &spec)?;
        }
        for ((kind, name), spec) in &self.objects {
            put(kind, name, &json!({}), spec)?;
        }
        let affinity = serde_json::from_value(json!({"state": "confirmed"}))?;
        for owner in &self.blocks {
            let key = BlockAffinityKey {
                cidr: block(*owner).parse()?,
                host: format!("n{owner}"),
                affinity_type: AffinityType::Host,
            };
            state.set_affinity(&key, Some(&affinity));
        }
        Ok((*state.intent()?).clone())
    }

    /// Makes every running node apply the current objects.
    pub(crate) fn apply(&self) -> Result<()> {
        for node in 0..self.nodes.len() {
            match &self.nodes[node].speaking {
                Speaking::No => {}
                Speaking::Native(running) => running.handle.apply(self.intent(node)?),
                Speaking::Bird(_) => {
                    if self.write(node)? {
                        self.ask(node, "configure")?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the files of a node's BIRD; returns whether any changed.
    fn write(&self, node: usize) -> Result<bool> {
        let files = render(&self.intent(node)?, Dialect::Two);
        let mut changed = false;
        for (name, text) in &files.texts {
            let path = self.nodes[node].folder.path().join(name.as_str());
            changed |= std::fs::read_to_string(&path).ok().as_ref() != Some(text);
            std::fs::write(path, text)?;
        }
        Ok(changed)
    }

    /// The output of the client of a node's BIRD.
    pub(crate) fn ask(&self, node: usize, question: &str) -> Result<String> {
        let Node { namespace, folder, .. } = &self.nodes[node];
        namespace.shell(&format!("birdcl -s {}/bird.ctl {question} 2>&1 || true", folder.path().display()))
    }

    /// Starts the speaker of a node. `again`: the kernel has the routes of the previous one.
    pub(crate) fn start(&mut self, node: usize, again: bool) -> Result<()> {
        let intent = self.intent(node)?;
        let speaking = match self.nodes[node].backend {
            Backend::Native => Speaking::Native(Running::start_in(&self.nodes[node].namespace, intent)?),
            Backend::Bird => {
                self.write(node)?;
                let folder = self.nodes[node].folder.path();
                let text = |name: &str| folder.join(name).display().to_string();
                let bird = testkit::Bird::two()?;
                let mut words: Vec<String> =
                    ["netns", "exec", self.nodes[node].namespace.name()].map(str::to_owned).into();
                words.extend([
                    bird.v4.display().to_string(),
                    "-f".to_owned(),
                    "-s".to_owned(),
                    text("bird.ctl"),
                ]);
                words.extend(["-c".to_owned(), text(FileName::Main(bgp::IpVersion::V4).as_str())]);
                words.extend(again.then(|| "-R".to_owned()));
                let ip = testkit::program("ip", "install Debian's iproute2")?;
                Speaking::Bird(Process::start(&ip, &words, &folder.join("bird.log"))?)
            }
        };
        self.nodes[node].speaking = speaking;
        Ok(())
    }

    pub(crate) fn start_all(&mut self) -> Result<()> {
        (0..self.nodes.len()).try_for_each(|node| self.start(node, false))
    }

    /// Stops the speaker of a node as a crash or an update does: without notifying peers.
    pub(crate) fn stop(&mut self, node: usize) -> Result<()> {
        match std::mem::replace(&mut self.nodes[node].speaking, Speaking::No) {
            Speaking::No => {}
            Speaking::Native(running) => running.end(true),
            Speaking::Bird(mut process) => process.kill()?,
        }
        Ok(())
    }

    /// The routes of a node with BGP's protocol number.
    pub(crate) fn routes(&self, node: usize) -> Result<String> {
        self.nodes[node].namespace.shell("ip route show proto bird")
    }

    /// Whether a node's kernel routes the block of another node directly to that node.
    pub(crate) fn knows(&self, node: usize, owner: usize) -> Result<bool> {
        Ok(self.routes(node)?.contains(&format!("{} via {} ", block(owner), address(owner))))
    }

    /// Waits until each of these nodes has routes to the blocks of the others.
    pub(crate) fn wait_whole(&self, nodes: &[usize]) -> Result<()> {
        for node in nodes {
            for owner in nodes.iter().filter(|owner| *owner != node) {
                wait_for(&format!("the route of node {node} to node {owner}"), || self.knows(*node, *owner))
                    .with_context(|| self.report(*node))?;
            }
        }
        Ok(())
    }

    /// Whether all sessions of a node are up and nothing is kept from before a restart.
    pub(crate) fn is_settled(&self, node: usize) -> Result<bool> {
        match &self.nodes[node].speaking {
            Speaking::No => Ok(true),
            Speaking::Native(running) => {
                let peers = running.peers()?;
                let settled =
                    |peer: &PeerStatus| peer.state == StateName::Established && peer.stale == [false; 2];
                let over = running.handle.ask(|engine, _| !engine.is_restarting()).unwrap_or_default();
                Ok(over && peers.iter().all(settled))
            }
            Speaking::Bird(_) => {
                let (status, protocols) = (self.ask(node, "show status")?, self.ask(node, "show protocols")?);
                let mut sessions = protocols.lines().filter(|line| line.contains(" BGP "));
                Ok(status.contains("Daemon is up")
                    && !status.contains("Graceful restart")
                    && sessions.all(|line| line.contains("Established")))
            }
        }
    }

    /// The state of a node, for failure messages.
    fn report(&self, node: usize) -> String {
        let routes = self.routes(node).unwrap_or_default();
        match &self.nodes[node].speaking {
            Speaking::No => routes,
            Speaking::Native(running) => {
                let peers = running.peers().unwrap_or_default();
                format!("{routes}{:#?}", crate::harness::states(&peers))
            }
            Speaking::Bird(process) => {
                let protocols = self.ask(node, "show protocols").unwrap_or_default();
                format!("{routes}{protocols}{}", process.log_tail())
            }
        }
    }

    /// How often sessions of a native node came up, by peer.
    pub(crate) fn establishments(&self, node: usize) -> Result<BTreeMap<String, u64>> {
        let Speaking::Native(running) = &self.nodes[node].speaking else { return Ok(BTreeMap::new()) };
        Ok(running.peers()?.into_iter().map(|peer| (peer.remote, peer.tally.established)).collect())
    }
}
