//! A site: hosts, pods and a router as network namespaces, a store, and a Felix of this program on each host.
//!
//! ```text
//!            outside addresses
//!                  │
//!   lan1 ──── router (wan) ──── lan2
//!    │                           │
//!   n1 ── pods                  n2 ── pods
//! ```
//!
//! It does the wiring and the writes of the CNI plugin, which has its own tests.

mod pins;
mod wiring;

use super::plan::{Flavour, Plan};
use anyhow::{Context as _, Result, bail, ensure};
use api::{Kind, Resource};
use client::{Client, ClientConfig, DeleteOptions};
use daemon::Variables;
use pins::Pins;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use testkit::network::{Fate, Namespace, Probe, Station, Traffic, probe};
use testkit::{Folder, Process};

const TORTIE: &str = env!("CARGO_BIN_EXE_tortie");
/// Everything here usually takes less than a second; a busy machine may take longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long an answer may take while the state is changing.
const MOMENT: Duration = Duration::from_millis(300);
/// The ports that all stations answer on.
const TCP_PORTS: &[u16] = &[22, 80, 81, 179, 443, 5000, 5001, 5010, 5011, 8080, 30080];
const UDP_PORTS: &[u16] = &[53, 68, 80, 81, 5000];

/// A namespace with a station, which is dropped first.
struct Place {
    station: Option<Station>,
    namespace: Namespace,
}

/// The source or destination of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) v4: IpAddr,
    pub(crate) v6: IpAddr,
}

/// One question: may this packet be sent from here to there?
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) traffic: Traffic,
    pub(crate) source_port: Option<u16>,
    /// A source address other than the sender's usual one.
    pub(crate) source: Option<IpAddr>,
    pub(crate) v6: bool,
    /// The receiver, if it is not the owner of the address.
    pub(crate) receiver: Option<String>,
}

/// Hosts, pods, store and agents. Dropping it ends and removes everything.
pub(crate) struct Site {
    felixes: Mutex<BTreeMap<String, Process>>,
    /// The folders where eBPF programs and maps of each host are pinned.
    pins: Mutex<BTreeMap<String, Pins>>,
    store: Mutex<Option<Process>>,
    places: BTreeMap<String, Place>,
    addresses: BTreeMap<String, Address>,
    pub(crate) runtime: tokio::runtime::Runtime,
    client: Client,
    pub(crate) plan: Plan,
    flavour: Flavour,
    folder: Folder,
    id: String,
    extra: Vec<(String, String)>,
}

impl Site {
    /// Starts everything, and waits until every Felix is ready.
    pub(crate) fn start(plan: &Plan, flavour: Flavour) -> Result<Self> {
        let site = Self::without_agents(plan, flavour, &[])?;
        site.start_agents()?;
        Ok(site)
    }

    /// Starts every Felix and waits until each is ready.
    pub(crate) fn start_agents(&self) -> Result<()> {
        let nodes: Vec<String> = self.plan.nodes.iter().map(|node| node.name.clone()).collect();
        for node in &nodes {
            self.start_felix(node)?;
        }
        for node in &nodes {
            self.wait_until_ready(node)?;
        }
        Ok(())
    }

    /// Starts everything but the agents; `extra` are additional variables for them.
    pub(crate) fn without_agents(plan: &Plan, flavour: Flavour, extra: &[(&str, &str)]) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = format!("tp{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = Folder::new("packets")?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let data = folder.path().join("data");
        let store = start_store(&data, folder.path())?;
        let config = ClientConfig::from_environment(&Variables::new([
            ("DATASTORE_TYPE", "embedded".into()),
            ("EMBEDDED_PATH", data.clone().into_os_string()),
        ]))?;
        let client = runtime.block_on(Client::open(&config))?;
        let mut site = Self {
            felixes: Mutex::default(),
            pins: Mutex::default(),
            store: Mutex::new(Some(store)),
            places: BTreeMap::new(),
            addresses: BTreeMap::new(),
            runtime,
            client,
            plan: plan.clone(),
            flavour,
            folder,
            id,
            extra: extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        };
        site.wire_router(plan)?;
        for node in &plan.nodes {
            site.wire_node(node)?;
        }
        for pod in &plan.pods {
            site.wire_pod(pod)?;
        }
        site.runtime.block_on(site.client.ensure_initialized("test", ""))?;
        for resource in plan.resources()? {
            site.put(resource)?;
        }
        site.runtime.block_on(plan.assign_addresses(site.client.backend()))?;
        Ok(site)
    }

    /// The name of a namespace of this site.
    fn full_name(&self, place: &str) -> String {
        format!("{}{place}", self.id)
    }

    fn add_place(&mut self, name: &str) -> Result<()> {
        let namespace = Namespace::new(&self.full_name(name))?;
        for parameter in ["net/ipv4/conf/all/rp_filter", "net/ipv4/conf/default/rp_filter"] {
            namespace.set(parameter, "0")?;
        }
        self.places.insert(name.to_owned(), Place { station: None, namespace });
        Ok(())
    }

    /// Starts a station that answers at a place with these addresses.
    fn open_station(&mut self, name: &str, addresses: &[IpAddr]) -> Result<()> {
        let place = self.places.get_mut(name).context("a place")?;
        place.station = Some(Station::open(&place.namespace, TCP_PORTS, UDP_PORTS, addresses)?);
        Ok(())
    }

    /// The namespace of a host, a pod or the router.
    pub(crate) fn namespace(&self, place: &str) -> &Namespace {
        &self.place(place).namespace
    }

    fn station(&self, place: &str) -> &Station {
        self.place(place).station.as_ref().unwrap_or_else(|| panic!("no station at {place}"))
    }

    fn place(&self, name: &str) -> &Place {
        let name = if self.is_outside(name) { "wan" } else { name };
        self.places.get(name).unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// Whether this is a station behind the router.
    fn is_outside(&self, name: &str) -> bool {
        self.plan.outside.iter().any(|(outside, ..)| outside == name)
    }

    /// The address of a station.
    pub(crate) fn address(&self, place: &str, v6: bool) -> IpAddr {
        let address = self.addresses.get(place).unwrap_or_else(|| panic!("{place} has no address"));
        if v6 { address.v6 } else { address.v4 }
    }

    fn environment(&self, node: &str, flavour: Flavour) -> Vec<String> {
        let folder = self.folder.path();
        let mut variables = vec![
            "DATASTORE_TYPE=embedded".to_owned(),
            format!("EMBEDDED_PATH={}", folder.join("data").display()),
            format!("FELIX_FELIXHOSTNAME={node}"),
            format!("FELIX_ENDPOINTSTATUSPATHPREFIX={}", folder.join(format!("status-{node}")).display()),
            "FELIX_HEALTHENABLED=true".to_owned(),
            "FELIX_PROMETHEUSMETRICSENABLED=true".to_owned(),
            "FELIX_DEFAULTENDPOINTTOHOSTACTION=ACCEPT".to_owned(),
            "FELIX_USAGEREPORTINGENABLED=false".to_owned(),
        ];
        variables.extend(flavour.variables().iter().map(|(name, value)| format!("{name}={value}")));
        variables.extend(self.extra.iter().map(|(name, value)| format!("{name}={value}")));
        // For experiments with other settings.
        let more = std::env::var("TORTIE_PACKET_SETTINGS").unwrap_or_default();
        variables.extend(more.split(',').filter(|one| !one.is_empty()).map(str::to_owned));
        variables
    }

    /// Starts a host's Felix. `/var/lib` is its own, so that the machine's files are not changed.
    pub(crate) fn start_felix(&self, node: &str) -> Result<()> {
        self.start_felix_as(node, self.flavour)
    }

    /// Starts a host's Felix with a packet filter that may differ from the site's.
    pub(crate) fn start_felix_as(&self, node: &str, flavour: Flavour) -> Result<()> {
        let mut arguments: Vec<String> =
            ["netns", "exec", &self.full_name(node), "env"].map(str::to_owned).to_vec();
        arguments.extend(self.environment(node, flavour));
        // Pins belong to a host and survive a restart of Felix: `/sys` is new in every `ip netns exec`.
        let pins = self.pins_of(node)?;
        let script =
            "mount -t tmpfs tmpfs /var/lib && mount --bind \"$1\" /sys/fs/bpf && shift && exec \"$@\"";
        let pins = pins.display().to_string();
        arguments.extend(["sh", "-c", script, "sh", &pins, TORTIE, "felix"].map(str::to_owned));
        let ip = testkit::program("ip", "install Debian's iproute2")?;
        let process = Process::start(&ip, &arguments, &self.log(node))?;
        self.felixes().insert(node.to_owned(), process);
        Ok(())
    }

    /// The BPF file system of a host.
    pub(crate) fn pins_of(&self, node: &str) -> Result<PathBuf> {
        let mut all = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pins) = all.get(node) {
            return Ok(pins.path().to_owned());
        }
        let pins = Pins::mount(self.folder.path().join(format!("bpf-{node}")))?;
        let path = pins.path().to_owned();
        all.insert(node.to_owned(), pins);
        Ok(path)
    }

    /// The pins of a host's eBPF programs and maps.
    pub(crate) fn pins(&self, node: &str) -> Vec<PathBuf> {
        let all = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(node).map(Pins::all).unwrap_or_default()
    }

    /// Makes all programs forget their connections.
    pub(crate) fn forget_connections(&self) -> Result<()> {
        for node in &self.plan.nodes {
            let pins = self.pins(&node.name).into_iter();
            for pin in pins.filter(|pin| ["cali_v4_ct4", "cali_v6_ct4"].iter().any(|map| pin.ends_with(map)))
            {
                let map = bpf::Map::open(&pin)?;
                map.remove_many(&map.keys()?)?;
            }
        }
        Ok(())
    }

    fn log(&self, node: &str) -> PathBuf {
        self.folder.path().join(format!("felix-{node}.log"))
    }

    fn felixes(&self) -> MutexGuard<'_, BTreeMap<String, Process>> {
        self.felixes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills a host's Felix, or asks it to end.
    pub(crate) fn end_felix(&self, node: &str, kill: bool) -> Result<()> {
        let mut process = self.felixes().remove(node).context("a Felix")?;
        if kill { process.kill() } else { process.terminate() }
    }

    /// Fails if an agent has ended by itself.
    fn check_agents(&self) -> Result<()> {
        for (node, felix) in self.felixes().iter_mut() {
            felix.check_running().with_context(|| format!("the Felix of {node}"))?;
        }
        Ok(())
    }

    /// The log of a host's Felix.
    pub(crate) fn felix_log(&self, node: &str) -> String {
        std::fs::read_to_string(self.log(node)).unwrap_or_default()
    }

    /// Waits until a host's Felix has programmed everything once.
    pub(crate) fn wait_until_ready(&self, node: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.check_agents()?;
            let answer = self.ask(node, 9099, "/readiness");
            if answer.as_deref().is_ok_and(|answer| answer.starts_with("HTTP/1.1 20")) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{node} is not ready: {answer:?}\n{}", self.felix_log(node));
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Requests a page from a server on a host's loopback.
    pub(crate) fn ask(&self, node: &str, port: u16, path: &str) -> Result<String> {
        use std::io::{Read as _, Write as _};
        self.namespace(node).run(|| {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        })?
    }

    /// One of Felix's figures; 0 if it has none of this name yet.
    pub(crate) fn figure(&self, node: &str, name: &str) -> Result<f64> {
        let text = self.ask(node, 9091, "/metrics")?;
        let values = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let rest = if rest.starts_with('{') { rest.split_once('}')?.1 } else { rest };
            rest.starts_with(' ').then(|| rest.trim().parse::<f64>().ok())?
        });
        Ok(values.sum())
    }

    /// Kills the store, like a crash.
    pub(crate) fn kill_store(&self) -> Result<()> {
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner).take();
        store.map_or(Ok(()), |mut store| store.kill())
    }

    /// Starts the store again on the same files.
    pub(crate) fn restart_store(&self) -> Result<()> {
        let store = start_store(&self.folder.path().join("data"), self.folder.path())?;
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = Some(store);
        Ok(())
    }

    /// Stores an object with the checks of `calicoctl apply`, replacing any existing one.
    pub(crate) fn put(&self, mut resource: Resource) -> Result<()> {
        let what = format!("{} {}", resource.kind(), resource.name());
        self.runtime
            .block_on(async {
                resource.set_defaults();
                let (kind, namespace, name) =
                    (resource.kind(), resource.namespace().to_owned(), resource.name().to_owned());
                match self.client.get_any(kind, &namespace, &name, None).await {
                    Ok(old) => {
                        let metadata = resource.metadata_mut();
                        metadata.resource_version.clone_from(&old.metadata().resource_version);
                        metadata.uid.clone_from(&old.metadata().uid);
                        metadata.creation_timestamp.clone_from(&old.metadata().creation_timestamp);
                        self.client.update_any(resource).await
                    }
                    Err(error) if error.is_does_not_exist() => self.client.create_any(resource).await,
                    Err(error) => Err(error),
                }
            })
            .map(drop)
            .with_context(|| what)
    }

    /// Stores an object unchecked, as a client of another version might.
    pub(crate) fn put_unchecked(&self, resource: Resource) -> Result<()> {
        let pair = model::KvPair::resource(resource);
        self.runtime.block_on(self.client.backend().apply(&pair)).map(drop).map_err(Into::into)
    }

    /// Deletes an object, if it exists.
    pub(crate) fn delete(&self, kind: Kind, namespace: &str, name: &str) -> Result<()> {
        let options = DeleteOptions::default();
        match self.runtime.block_on(self.client.delete_any(kind, namespace, name, &options)) {
            Ok(_) => Ok(()),
            Err(error) if error.is_does_not_exist() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes an object without any checks.
    pub(crate) fn delete_unchecked(&self, kind: Kind, namespace: &str, name: &str) -> Result<()> {
        let key = model::Key::resource(kind, namespace, name);
        match self.runtime.block_on(self.client.backend().delete(&key, None)) {
            Ok(_) => Ok(()),
            Err(error) if error.is_does_not_exist() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores or deletes many objects, unchecked and in parallel.
    pub(crate) fn write_all_unchecked(&self, resources: &[Resource], delete: bool) -> Result<()> {
        self.runtime.block_on(async {
            for some in resources.chunks(100) {
                let mut writes = tokio::task::JoinSet::new();
                for resource in some.iter().cloned() {
                    let backend = std::sync::Arc::clone(self.client.backend());
                    writes.spawn(async move {
                        let pair = model::KvPair::resource(resource);
                        if delete {
                            backend.delete(&pair.key, None).await
                        } else {
                            backend.apply(&pair).await
                        }
                    });
                }
                while let Some(outcome) = writes.join_next().await {
                    outcome??;
                }
            }
            Ok(())
        })
    }

    /// The datastore.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Sends the packets and returns their fates.
    pub(crate) fn fates(
        &self,
        questions: &[Question],
        wanted: &[bool],
        patience: Duration,
    ) -> Result<Vec<Fate>> {
        let probes: Vec<Probe<'_>> = questions
            .iter()
            .map(|question| Probe {
                from: self.namespace(&question.from),
                // The station outside has several addresses.
                source: question.source.or_else(|| {
                    self.is_outside(&question.from).then(|| self.address(&question.from, question.v6))
                }),
                source_port: question.source_port,
                to: self.address(&question.to, question.v6),
                receiver: self.station(question.receiver.as_deref().unwrap_or(&question.to)),
                traffic: question.traffic,
            })
            .collect();
        probe(&probes, wanted, patience)
    }

    /// Waits until the packets have these fates, twice in a row; otherwise reports which ones do not.
    pub(crate) fn wait_for(&self, questions: &[Question], wanted: &[bool]) -> Result<()> {
        self.wait(questions, wanted, |question, wanted, fate| {
            if wanted { fate.is_through(question.traffic) } else { fate == Fate::Lost }
        })
    }

    /// Waits for these fates of the packets in the forward direction, whatever happens to the answers.
    pub(crate) fn wait_for_one_way(&self, questions: &[Question], wanted: &[bool]) -> Result<()> {
        self.wait(questions, wanted, |_, wanted, fate| wanted == (fate != Fate::Lost))
    }

    fn wait(
        &self,
        questions: &[Question],
        wanted: &[bool],
        is_right: impl Fn(&Question, bool, Fate) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut in_a_row = 0;
        loop {
            if self.flavour.has_programs() {
                // Programs identify ICMP only by its ends: what an earlier policy allowed would still be known.
                self.forget_connections()?;
            }
            let fates = self.fates(questions, wanted, MOMENT)?;
            let wrong: Vec<String> = questions
                .iter()
                .zip(wanted)
                .zip(&fates)
                .filter(|((question, wanted), fate)| !is_right(question, **wanted, **fate))
                .map(|((question, wanted), fate)| {
                    format!("{question}: {fate:?}, expected {}", if *wanted { "allow" } else { "deny" })
                })
                .collect();
            in_a_row = if wrong.is_empty() { in_a_row + 1 } else { 0 };
            if in_a_row == 2 {
                return Ok(());
            }
            self.check_agents()?;
            if Instant::now() > deadline {
                self.hold();
                bail!("after {PATIENCE:?}:\n{}", wrong.join("\n"));
            }
        }
    }

    /// For debugging: keeps the site for the number of seconds in `TORTIE_PACKET_HOLD`.
    pub(crate) fn hold(&self) {
        let seconds = std::env::var("TORTIE_PACKET_HOLD").ok().and_then(|text| text.parse().ok());
        if let Some(seconds) = seconds {
            eprintln!(
                "look at `ip netns exec {}` and {}",
                self.full_name("NAME"),
                self.folder.path().display()
            );
            std::thread::sleep(Duration::from_secs(seconds));
        }
    }
}

impl std::fmt::Display for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let version = if self.v6 { "IPv6" } else { "IPv4" };
        write!(f, "{} → {} {:?} {version}", self.from, self.to, self.traffic)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::env::var_os("TORTIE_PACKET_LOGS").is_some() {
            for node in self.plan.nodes.iter().map(|node| &node.name) {
                let log = self.felix_log(node);
                let lines: Vec<&str> = log.lines().collect();
                eprintln!("{node}:\n{}", lines[lines.len().saturating_sub(60)..].join("\n"));
            }
        }
        self.felixes().clear();
        // It may already be gone.
        let _ = self.kill_store();
    }
}

/// Starts the store and waits for it: a client that came before the server would open the files itself, and lock the
/// server out.
fn start_store(data: &Path, folder: &Path) -> Result<Process> {
    let listen = format!("--listen-client-urls=http://127.0.0.1:{}", testkit::free_port()?);
    let arguments =
        ["datastore".to_owned(), listen, "--data-dir".to_owned(), data.to_string_lossy().into_owned()];
    let socket = kvstore_engine::socket_path(data);
    // A socket left by a killed server is not a running server.
    let _ = std::fs::remove_file(&socket);
    let mut store = Process::start(Path::new(TORTIE), &arguments, &folder.join("store.log"))?;
    let deadline = Instant::now() + PATIENCE;
    while !socket.exists() {
        store.check_running()?;
        ensure!(Instant::now() < deadline, "the store does not serve");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(store)
}
