//! A lab: started, used, removed.
//!
//! The keeper holds the resources, the folder holds the state; this value only mediates between the two. Nothing is
//! left behind when starting a lab fails.

use crate::inside::{OWN_PROGRAM, Place, base_environment, file_of_place, make_place, node_program};
use crate::keeper::{Keeper, Request};
use crate::manifests::{documents, first_of_kubernetes, is_own};
use crate::rights;
use crate::screen::Screen;
use crate::settings::{self, Variables};
use crate::state::{Folder, State, start_time};
use crate::topology::{Datastore, Encap, Node, Topology, rack_router};
use crate::{accounts, bgp, called, flows, host_folder, interrupt, pods, servers, typha, wire};
use anyhow::{Context as _, Result, anyhow, bail};
use client::{Client, ClientConfig};
use netlink::namespace::Namespace;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

/// The place where servers and `calicoctl` run.
pub(crate) const ROUTER: &str = "router";
/// How long a node may take to become ready.
const NODE_PATIENCE: Duration = Duration::from_secs(300);
/// How often a node is started before it counts as failed.
const MOST_STARTS: usize = 4;
/// How long processes may take to disappear.
const END_PATIENCE: Duration = Duration::from_secs(20);
/// The port where Felix reports whether it is ready.
const HEALTH_PORT: u16 = 9099;

/// An existing lab.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) folder: Folder,
    pub(crate) state: State,
    pub(crate) keeper: Keeper,
    keeper_pid: u32,
    _lock: File,
}

impl Lab {
    /// Creates a lab. This process must be single-threaded: without root it joins the lab's namespaces. `stays` decides
    /// whether the lab survives this process.
    ///
    /// # Errors
    /// When a step fails; nothing is left then.
    pub(crate) fn up(topology: Topology, stays: bool, screen: &mut Screen) -> Result<Self> {
        let folder = Folder::of(&topology.name)?;
        interrupt::listen()?;
        if folder.is_dead() {
            remove(&folder)?;
            screen.done(&format!(
                "removed the remains of lab '{}', which was no longer running",
                topology.name
            ));
        }
        folder.make()?;
        let made = Self::build(&folder, topology, stays, screen);
        screen.settle();
        match made {
            Ok(lab) => Ok(lab),
            Err(error) => {
                let interrupted = interrupt::came();
                // The first error is the one that matters.
                let removed = remove(&folder);
                if interrupted && removed.is_ok() {
                    bail!("interrupted: lab '{}' is removed again", folder.name());
                }
                Err(error)
            }
        }
    }

    fn build(folder: &Folder, topology: Topology, stays: bool, screen: &mut Screen) -> Result<Self> {
        let lock = folder.lock()?;
        let keeper = Keeper::start(folder)?;
        let known = folder.keeper().context("the keeper wrote nothing")?;
        rights::join(&known)?;
        let state = State { topology, namespaces: BTreeMap::new(), pods: BTreeMap::new(), ready: false };
        let mut lab = Self { folder: folder.clone(), state, keeper, keeper_pid: known.pid, _lock: lock };
        lab.make_network(screen)?;
        lab.start_servers(screen)?;
        lab.start_typhas(screen)?;
        flows::start(&lab, screen)?;
        bgp::start_routers(&lab, screen)?;
        lab.start_nodes(screen)?;
        let wanted = lab.state.topology.pods.clone();
        if !wanted.is_empty() {
            let pods = called::count(wanted.len(), "pod");
            screen.begin(&format!("adding {pods}"));
            pods::add(&mut lab, &wanted)?;
            screen.done(&format!("{pods} wired by the CNI plugin, with policy in place"));
        }
        bgp::wait_for_routes(&lab, screen)?;
        interrupt::check()?;
        lab.state.ready = true;
        lab.folder.save(&lab.state)?;
        if stays {
            lab.keeper.ask(&Request::Stay)?;
        }
        Ok(lab)
    }

    /// Opens an existing lab. This process must be single-threaded: without root it joins the lab's namespaces.
    ///
    /// # Errors
    /// When it does not exist, or is no longer running.
    pub(crate) fn open(name: &str) -> Result<Self> {
        let folder = Folder::of(name)?;
        folder.load()?;
        let known = folder.keeper().filter(crate::state::KeeperState::is_alive).ok_or_else(|| {
            let remedy = called::command(name, "down");
            anyhow!("lab '{name}' is no longer running: `{remedy}` removes what is left")
        })?;
        rights::join(&known)?;
        let lock = folder.lock()?;
        // Read only now, so that it includes changes by other commands.
        let state = folder.load()?;
        Ok(Self { keeper: Keeper::of(&folder), folder, state, keeper_pid: known.pid, _lock: lock })
    }

    /// The state of the lab.
    #[must_use]
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// The plan of the lab.
    #[must_use]
    pub(crate) fn topology(&self) -> &Topology {
        &self.state.topology
    }

    fn make_network(&mut self, screen: &mut Screen) -> Result<()> {
        let topology = self.state.topology.clone();
        let nodes = called::count(topology.nodes.len(), "node");
        screen.begin(&format!("making {nodes}"));
        let scratch = self.keeper.namespace("scratch")?;
        wire::check_kernel(&topology, &scratch)?;
        self.keeper.ask(&Request::Forget { name: "scratch".to_owned() })?;
        if topology.dataplane == crate::topology::Dataplane::Iptables {
            servers::find_program(
                "iptables-restore",
                "install Debian's iptables, or choose --dataplane nftables",
            )?;
        }
        let router = self.add_place(ROUTER)?;
        wire::make_router(&topology, &router)?;
        for rack in topology.racks() {
            let netns = self.add_place(&rack_router(rack))?;
            wire::make_rack_router(&topology, rack, &netns, &router)?;
        }
        for (number, node) in topology.nodes.iter().enumerate() {
            let netns = self.add_place(&node.name)?;
            if topology.manages_cni() {
                let program = match node_program() {
                    program if program == OWN_PROGRAM => {
                        std::env::current_exe().context("finding this program's file")?
                    }
                    program => PathBuf::from(program),
                };
                host_folder::make(&self.folder.file("places").join(&node.name), &program)?;
            }
            let rack =
                self.state.namespaces.get(&rack_router(node.subnet)).filter(|_| topology.bgp.is_spoken());
            wire::connect_node(&topology, number, node, &netns, rack.unwrap_or(&router))?;
        }
        self.folder.save(&self.state)?;
        screen.done(&format!("{nodes} created, {}", settings::network_in_words(&topology)));
        Ok(interrupt::check()?)
    }

    fn add_place(&mut self, name: &str) -> Result<PathBuf> {
        let netns = self.keeper.namespace(name)?;
        make_place(&self.folder, name)?;
        self.state.namespaces.insert(name.to_owned(), netns.clone());
        Ok(netns)
    }

    fn start_servers(&mut self, screen: &mut Screen) -> Result<()> {
        let topology = &self.state.topology;
        let router = self.place(ROUTER)?;
        screen.begin(match topology.datastore {
            Datastore::Embedded => "starting the embedded datastore",
            Datastore::Etcd => "starting an etcd",
            Datastore::Kubernetes => "starting a kube-apiserver and installing Calico's resources",
        });
        servers::start(&self.folder, topology, &self.keeper, self.keeper_pid, &router)?;
        if topology.datastore == Datastore::Kubernetes {
            self.with_client(async |client: &Client| Ok(client.backend().install().await?))?;
            let mut objects: Vec<serde_json::Value> = topology.nodes.iter().map(kubernetes_node).collect();
            objects.extend(accounts::objects());
            objects.extend(typha::objects(topology));
            if topology.manages_cni() {
                for node in &topology.nodes {
                    let folder = self.node_file(&node.name, accounts::FOLDER);
                    let prepared = std::fs::create_dir_all(&folder)
                        .and_then(|()| std::fs::write(folder.join("namespace"), accounts::NAMESPACE))
                        .and_then(|()| std::fs::copy(self.folder.file("ca.pem"), folder.join("ca.crt")));
                    prepared.with_context(|| format!("writing to {}", folder.display()))?;
                }
            }
            self.kubectl_apply(&objects)?;
        }
        screen.done(match topology.datastore {
            Datastore::Embedded => "the embedded datastore serves the cluster",
            Datastore::Etcd => "an etcd at the router serves the cluster",
            Datastore::Kubernetes => {
                "a kube-apiserver at the router serves the cluster, with Calico's resources installed"
            }
        });
        Ok(())
    }

    fn start_typhas(&self, screen: &mut Screen) -> Result<()> {
        let topology = &self.state.topology;
        if topology.typhas == 0 {
            return Ok(());
        }
        let typhas = called::count(topology.typhas, "Typha");
        screen.begin(&format!("starting {typhas}"));
        typha::start(&self.folder, topology, &self.keeper, self.keeper_pid, &self.place(ROUTER)?)?;
        screen.done(&format!(
            "{typhas} at the router, with TLS: every agent follows one, and not the datastore"
        ));
        Ok(())
    }

    fn start_nodes(&mut self, screen: &mut Screen) -> Result<()> {
        let nodes = called::count(self.state.topology.nodes.len(), "node");
        screen.begin(&format!("starting {nodes}"));
        for node in self.state.topology.nodes.clone() {
            self.start_node(&node)?;
        }
        for node in &self.state.topology.nodes {
            self.wait_for_node(node)?;
        }
        if self.state.topology.datastore == Datastore::Kubernetes {
            let nodes: Vec<serde_json::Value> =
                self.state.topology.nodes.iter().map(settings::node_status).collect();
            self.report_status(&nodes)?;
        }
        let has_tunnels = self.state.topology.encap != Encap::None;
        let tunnel = if has_tunnels { ", has its tunnel address" } else { "" };
        screen.done(&format!("every node is registered{tunnel}, and its Felix is ready"));
        Ok(())
    }

    /// Starts a node's programs.
    fn start_node(&self, node: &Node) -> Result<()> {
        let mut environment = self.environment();
        environment.extend(settings::datastore_for_node(&self.folder, &self.state.topology));
        let number = typha::number_of(&self.state.topology, node);
        environment.extend(typha::for_agents(&self.folder, &self.state.topology, number));
        environment.extend(flows::for_agents(&self.state.topology));
        environment.extend(settings::node(&self.state.topology, node));
        let place = self.place(&node.name)?;
        let words = place.words(self.keeper_pid, &[&node_program(), "node"]);
        self.keeper.ask(&Request::Start { name: node.name.clone(), words, environment })?;
        Ok(())
    }

    /// Waits until a node's Felix is ready. A node that ends before is restarted a few times, as a kubelet does: an API
    /// server that is still starting can take longer than a node waits.
    fn wait_for_node(&self, node: &Node) -> Result<()> {
        let deadline = Instant::now() + NODE_PATIENCE;
        let mut starts = 1;
        while !self.is_ready(node)? {
            interrupt::check()?;
            let programs = self.keeper.ask(&Request::List)?.programs;
            if let Some(how) = programs.get(&node.name).and_then(|program| program.ended.clone()) {
                if starts < MOST_STARTS {
                    starts += 1;
                    self.start_node(node)?;
                    continue;
                }
                bail!(
                    "{} ended ({how}); its log ends with:\n{}",
                    node.name,
                    self.folder.log_tail(&node.name, 8)
                );
            }
            if Instant::now() > deadline {
                bail!(
                    "{} is not ready after {} s; its log ends with:\n{}",
                    node.name,
                    NODE_PATIENCE.as_secs(),
                    self.folder.log_tail(&node.name, 8)
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Whether a node's Felix reports that it is ready.
    pub(crate) fn is_ready(&self, node: &Node) -> Result<bool> {
        let namespace = Namespace::open(&self.place(&node.name)?.netns)?;
        Ok(namespace.run(|| {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, HEALTH_PORT));
            let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) else {
                return false;
            };
            let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
            let mut answer = [0_u8; 15];
            stream.write_all(b"GET /readiness HTTP/1.0\r\nHost: localhost\r\n\r\n").is_ok()
                && stream.read_exact(&mut answer).is_ok()
                && answer.windows(4).any(|word| word.starts_with(b" 20"))
        })?)
    }

    /// The place of the router, a node or a pod.
    ///
    /// # Errors
    /// When there is none of that name.
    pub(crate) fn place(&self, name: &str) -> Result<Place> {
        let folder = self.folder.path().to_owned();
        if let Some(netns) = self.state.namespaces.get(name) {
            return Ok(Place { folder, netns: netns.clone(), name: Some(name.to_owned()) });
        }
        if let Some(pod) =
            self.state.pods.get(name).or_else(|| self.state.pods.get(&format!("default/{name}")))
        {
            return Ok(Place { folder, netns: pod.netns.clone(), name: None });
        }
        let mut there: Vec<&str> = self.state.namespaces.keys().map(String::as_str).collect();
        there.extend(self.state.pods.keys().map(String::as_str));
        bail!("no node or pod '{name}' in this lab; it has: {}", there.join(", "))
    }

    /// The variables of every program of the lab.
    pub(crate) fn environment(&self) -> Variables {
        let mut environment = base_environment(&self.folder);
        environment.extend(settings::datastore(&self.folder, &self.state.topology));
        environment.extend(flows::for_readers(&self.state.topology));
        environment
    }

    /// Runs `work` with a client of the lab's datastore, at the router.
    pub(crate) fn with_client<T: Send>(
        &self,
        work: impl AsyncFnOnce(&Client) -> Result<T> + Send,
    ) -> Result<T> {
        let datastore = settings::datastore(&self.folder, &self.state.topology);
        let config = ClientConfig::from_environment(&daemon::Variables::new(&datastore))?;
        Namespace::open(&self.place(ROUTER)?.netns)?.run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("preparing a client")?;
            runtime.block_on(async { work(&Client::open(&config).await?).await })
        })?
    }

    /// Runs a program in a place and waits for it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn run_in(
        &self,
        place: &str,
        words: &[&str],
        more: &Variables,
        input: &str,
    ) -> Result<Output> {
        let mut environment = self.environment();
        environment.extend(more.clone());
        let mut child = self
            .place(place)?
            .command(&environment, words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", words.first().unwrap_or(&"nothing")))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ends without reading is not an error of ours.
            let _ = stdin.write_all(input.as_bytes());
        }
        Ok(child.wait_with_output()?)
    }

    /// Runs `calicoctl` with these arguments and returns its output.
    ///
    /// # Errors
    /// The error message of `calicoctl`.
    pub(crate) fn calicoctl(&self, arguments: &[&str], input: &str) -> Result<String> {
        let program = node_program();
        let mut words = vec![program.as_str(), "ctl"];
        words.extend(arguments);
        let output = self.run_in(ROUTER, &words, &Variables::new(), input)?;
        if !output.status.success() {
            let told = [output.stdout, output.stderr].concat();
            bail!("calicoctl {}: {}", arguments.join(" "), String::from_utf8_lossy(&told).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Applies manifests: Calico's with `calicoctl`, others with `kubectl` if there is a Kubernetes API.
    ///
    /// # Errors
    /// When a manifest is invalid.
    pub(crate) fn apply(&self, text: &str) -> Result<String> {
        if self.state.topology.datastore != Datastore::Kubernetes {
            if let Some((version, kind)) = first_of_kubernetes(text) {
                bail!(
                    "{kind} of {version} is Kubernetes' own, and this lab has no Kubernetes API: `{}` creates one that has",
                    called::command(&self.state.topology.name, "up --datastore kubernetes")
                );
            }
            return self.calicoctl(&["apply", "-f", "-"], text);
        }
        let (own, others): (Vec<&str>, Vec<&str>) =
            documents(text).into_iter().partition(|document| is_own(document));
        let mut told = String::new();
        if !own.is_empty() {
            told.push_str(&self.calicoctl(&["apply", "-f", "-"], &own.join("\n---\n"))?);
        }
        if !others.is_empty() {
            told.push_str(&self.kubectl(&["apply", "-f", "-"], Some(&others.join("\n---\n")))?);
        }
        Ok(told)
    }

    /// Runs `kubectl` as administrator.
    ///
    /// # Errors
    /// The error message of `kubectl`.
    pub(crate) fn kubectl(&self, arguments: &[&str], input: Option<&str>) -> Result<String> {
        servers::kubectl(&self.folder, &self.place(ROUTER)?, arguments, input)
    }

    /// Applies objects that the lab itself generates: they need no validation, which takes kubectl long.
    pub(crate) fn kubectl_apply(&self, objects: &[serde_json::Value]) -> Result<()> {
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.kubectl(&["apply", "--validate=false", "-f", "-"], Some(&list.to_string())).map(drop)
    }

    /// Reports the status of nodes or pods to Kubernetes, as a kubelet does.
    pub(crate) fn report_status(&self, objects: &[serde_json::Value]) -> Result<()> {
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let words = [
            "apply",
            "--server-side",
            "--subresource=status",
            "--field-manager=kubelet",
            "--force-conflicts",
            "--validate=false",
            "-f",
            "-",
        ];
        self.kubectl(&words, Some(&list.to_string())).map(drop)
    }

    /// The host's path of a file of a node.
    #[must_use]
    pub(crate) fn node_file(&self, node: &str, path: &str) -> PathBuf {
        file_of_place(&self.folder, node, path)
    }

    /// The running programs with their process ids, and how others ended.
    ///
    /// # Errors
    /// When the keeper is gone.
    pub(crate) fn programs(&self) -> Result<BTreeMap<String, std::result::Result<u32, String>>> {
        let programs = self.keeper.ask(&Request::List)?.programs;
        Ok(programs
            .into_iter()
            .map(|(name, program)| (name, program.ended.map_or(Ok(program.pid), Err)))
            .collect())
    }

    /// The keeper's process id.
    #[must_use]
    pub(crate) fn keeper_pid(&self) -> u32 {
        self.keeper_pid
    }

    /// Removes the lab.
    ///
    /// # Errors
    /// When something could not be removed.
    pub(crate) fn down(self) -> Result<()> {
        remove(&self.folder)
    }
}

fn kubernetes_node(node: &Node) -> serde_json::Value {
    let addresses: Vec<serde_json::Value> = [node.v4, node.v6]
        .into_iter()
        .flatten()
        .map(|address| serde_json::json!({"type": "InternalIP", "address": address.addr().to_string()}))
        .collect();
    let ranges: Vec<String> = node.pod_cidr.iter().map(ToString::to_string).collect();
    serde_json::json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name},
        "spec": {"podCIDR": ranges.first(), "podCIDRs": ranges},
        "status": {"addresses": addresses},
    })
}

/// Removes a lab, running or not, based on its folder.
///
/// # Errors
/// When it does not exist, or something cannot be removed.
pub(crate) fn down(name: &str) -> Result<()> {
    let folder = Folder::of(name)?;
    if !folder.exists() {
        return Err(folder.missing());
    }
    remove(&folder)
}

/// Ends the keeper and everything that belongs to the lab, then removes the folder.
fn remove(folder: &Folder) -> Result<()> {
    if let Some(keeper) = folder.keeper().filter(crate::state::KeeperState::is_alive) {
        // Programs get a chance to end by themselves; a keeper that does not answer is killed below.
        let _ = Keeper::of(folder).ask(&Request::End);
        let deadline = Instant::now() + Duration::from_secs(2);
        while keeper.is_alive() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if keeper.is_alive() {
            kill(keeper.pid);
        }
    }
    let deadline = Instant::now() + END_PATIENCE;
    loop {
        let left = processes_of(folder);
        if left.is_empty() {
            break;
        }
        if Instant::now() > deadline {
            bail!("processes {left:?} of lab '{}' do not end", folder.name());
        }
        left.into_iter().for_each(kill);
        std::thread::sleep(Duration::from_millis(20));
    }
    match std::fs::remove_dir_all(folder.path()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", folder.path().display()))
        }
        _ => Ok(()),
    }
}

fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may be gone already.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The processes with the lab's mark in their environment, whoever started them, except this one.
fn processes_of(folder: &Folder) -> Vec<u32> {
    let mark = format!("{}={}", crate::inside::MARK, folder.path().display());
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
                && start_time(*pid).is_some()
        })
        .collect()
}
