//! Compares what these controllers and Calico's keep in an etcd for the same random objects of Kubernetes: profiles, policies, and
//! labels of nodes and pods; first from nothing, then after changes. Not a measurement, and run only on request.
//!
//! ```text
//! TORTIE_PEER_BIN=/path/to/folder cargo bench -p kube-controllers --bench compare -- compare
//! ```
//!
//! The folder holds Calico's program `calico`. `TORTIE_PEER_CASES` (10) and `TORTIE_PEER_SEED` (1) choose the clusters.
//! Each side has an etcd of its own; both follow one kube-apiserver. `TORTIE_PEER_LOG` names a file for the peer's log.

#![expect(clippy::print_stdout, reason = "the differences are this program's output")]

use anyhow::{Context as _, Result, bail, ensure};
use api::{Kind, Resource};
use client::{Client, ClientConfig, DatastoreType};
use daemon::Variables;
use http::Method;
use kube_access::KubeAccess;
use kube_access::cluster::{Cluster, MERGE_PATCH};
use kube_controllers::cli;
use model::ListOptions;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use testkit::random_kubernetes::{LOCAL, NAMESPACES, NODES, REMOTE, Request, pod_name, requests};
use testkit::{ApiServer, Dice, Etcd, Folder, compare_on_request, number_from_environment};
use tokio::runtime::Runtime;

/// Set in a process that is our controllers: its status file.
const ROLE: &str = "TORTIE_COMPARE_CONTROLLERS";
/// How often a definition that is not served yet is asked for.
const TRIES: usize = 100;
/// How many equal looks, this far apart, show that nothing changes any more.
const LOOKS: usize = 8;
const PAUSE: Duration = Duration::from_millis(500);
/// The most looks.
const PATIENCE: usize = 120;
/// The kinds that controllers write.
const KINDS: [Kind; 4] = [Kind::Profile, Kind::NetworkPolicy, Kind::Node, Kind::WorkloadEndpoint];

fn main() -> ExitCode {
    match std::env::var_os(ROLE) {
        Some(file) => ours(file.into()),
        None => compare_on_request("Calico's controllers", compare),
    }
}

/// Our controllers, in a process of their own: they read their environment.
fn ours(status_file: PathBuf) -> ExitCode {
    let arguments = cli::Arguments {
        status_file,
        health_port: 0,
        leader_elect: false,
        leader_elect_namespace: String::new(),
        leader_elect_name: String::new(),
    };
    cli::main(&arguments).unwrap_or(ExitCode::FAILURE)
}

fn compare() -> Result<()> {
    let peer = PathBuf::from(std::env::var_os("TORTIE_PEER_BIN").context("TORTIE_PEER_BIN is not set")?)
        .join("calico");
    ensure!(peer.is_file(), "{} was not found", peer.display());
    let (cases, seed) =
        (number_from_environment("TORTIE_PEER_CASES", 10)?, number_from_environment("TORTIE_PEER_SEED", 1)?);
    let runtime = Runtime::new()?;
    let (mut objects, mut differing) = (0, 0);
    for case in seed..seed + cases {
        let outcome = runtime.block_on(one(case, &peer)).with_context(|| format!("case {case}"))?;
        for (step, [ours, theirs]) in ["from nothing", "after changes"].iter().zip(outcome) {
            let found = differences(&ours, &theirs);
            println!("case {case}, {step}: {} objects, {} differ", ours.len(), found.len());
            found.iter().for_each(|difference| println!("  {difference}"));
            objects += ours.len();
            differing += found.len();
        }
    }
    println!("{cases} clusters: {objects} objects, {differing} differ");
    ensure!(differing == 0, "{differing} objects differ");
    Ok(())
}

/// Stored objects by kind and name.
type Stored = BTreeMap<String, Value>;

fn differences(ours: &Stored, theirs: &Stored) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let text = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), Value::to_string);
    names
        .into_iter()
        .filter(|name| ours.get(*name) != theirs.get(*name))
        .map(|name| {
            format!("{name}\n    ours   {}\n    theirs {}", text(ours.get(name)), text(theirs.get(name)))
        })
        .collect()
}

/// What both sides store, first from nothing and then after changes.
async fn one(case: u64, peer: &Path) -> Result<[[Stored; 2]; 2]> {
    let folder = Folder::new("controllers-compare")?;
    let below = Etcd::start()?;
    let api = ApiServer::start(&below.endpoint())?;
    let kubeconfig = api.kubeconfig().display().to_string();
    let variables = BTreeMap::from([("KUBECONFIG".to_owned(), kubeconfig.clone())]);
    let access = KubeAccess::open(&Variables::new(&variables), Path::new("/nowhere")).await?;
    let cluster = Cluster::new(&access);
    let mut dice = Dice::of(case);
    for request in requests(&mut dice, false).into_iter().chain(nodes_agent()) {
        send(&cluster, &request).await?;
    }
    let stores = [Etcd::start()?, Etcd::start()?];
    let mut clients = Vec::new();
    for store in &stores {
        clients.push(fill(store).await?);
    }
    let mut running = Vec::new();
    for (store, program) in stores.iter().zip([None, Some(peer)]) {
        running.push(Running::start(program, store, &kubeconfig, folder.path())?);
    }
    let first = settled(&clients, &mut running).await?;
    for request in changes(&mut dice) {
        send(&cluster, &request).await?;
    }
    let second = settled(&clients, &mut running).await?;
    if let Some(place) = std::env::var_os("TORTIE_PEER_LOG") {
        std::fs::write(place, running[1].log())?;
    }
    Ok([first, second])
}

/// Sends a request, again while the definition of its kind is not served yet.
async fn send(cluster: &Cluster, request: &Request) -> Result<()> {
    let content = if request.method == "PATCH" { MERGE_PATCH } else { "application/json" };
    let method: Method = request.method.parse()?;
    for _ in 0..TRIES {
        let sent: Result<IgnoredAny, _> =
            cluster.send("fill the cluster", method.clone(), &request.path, &request.body, content).await;
        match sent {
            Err(error) if error.is_not_found() && request.method == "POST" => tokio::time::sleep(PAUSE).await,
            Err(error) if error.is_not_found() => return Ok(()),
            other => return other.map(drop).with_context(|| request.body.to_string()),
        }
    }
    bail!("{} is not served", request.path)
}

/// A calico-node that is rolled out everywhere: the peer's feed stands still until there is one.
fn nodes_agent() -> [Request; 3] {
    let request = |method, path: &str, body| Request { method, path: path.to_owned(), body };
    let sets = "/apis/apps/v1/namespaces/calico-system/daemonsets";
    let labels = json!({"k8s-app": "calico-node"});
    let set = json!({"metadata": {"name": "calico-node"}, "spec": {"selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "calico-node", "image": "i"}]}}}});
    let status = json!({"status": {"observedGeneration": 1, "currentNumberScheduled": 2, "desiredNumberScheduled": 2,
        "updatedNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": 2}});
    [
        request("POST", "/api/v1/namespaces", json!({"metadata": {"name": "calico-system"}})),
        request("POST", sets, set),
        request("PATCH", &format!("{sets}/calico-node/status"), status),
    ]
}

/// Changes of what was created: labels, rules, deletions.
fn changes(dice: &mut Dice) -> Vec<Request> {
    let mut changes = Vec::new();
    let mut add = |method, path: String, body| changes.push(Request { method, path, body });
    for namespace in NAMESPACES {
        let (core, networking) = (
            format!("/api/v1/namespaces/{namespace}"),
            format!("/apis/networking.k8s.io/v1/namespaces/{namespace}"),
        );
        if dice.chance(2) {
            add("PATCH", core.clone(), json!({"metadata": {"labels": {"team": "green", "name": null}}}));
        }
        if dice.chance(2) {
            add("DELETE", format!("{core}/serviceaccounts/db"), json!({}));
        }
        if dice.chance(2) {
            add(
                "PATCH",
                format!("{core}/serviceaccounts/web"),
                json!({"metadata": {"labels": {"role": "changed"}}}),
            );
        }
        for number in 0..4 {
            let path = format!("{networking}/networkpolicies/np{number}");
            match dice.below(3) {
                0 => add("DELETE", path, json!({})),
                1 => add(
                    "PATCH",
                    path,
                    json!({"spec": {"podSelector": {"matchLabels": {"app": "app-9"}}, "ingress": [{"from": [{"podSelector": {}}]}]}}),
                ),
                _ => {}
            }
        }
    }
    for number in 0..LOCAL + REMOTE {
        let (namespace, name) = pod_name(number);
        if dice.chance(3) {
            add(
                "PATCH",
                format!("/api/v1/namespaces/{namespace}/pods/{name}"),
                json!({"metadata": {"labels": {"app": "app-7", "new": "label"}}}),
            );
        }
    }
    if dice.chance(2) {
        add(
            "PATCH",
            "/api/v1/nodes/node2".to_owned(),
            json!({"metadata": {"labels": {"zone": "moved", "more": ""}}}),
        );
    }
    changes
}

/// Opens an etcd with the nodes and the endpoints that a cluster with these pods has.
async fn fill(store: &Etcd) -> Result<Client> {
    let config = ClientConfig {
        datastore_type: DatastoreType::EtcdV3,
        etcd: client::config::EtcdSettings { endpoints: store.endpoint(), ..Default::default() },
        kubernetes: Default::default(),
        embedded_path: String::new(),
    };
    let client = Client::open(&config).await?;
    client.ensure_initialized("v3.32.0", "bench").await?;
    // Two processes cannot serve figures at one port.
    let settings = json!({"metadata": {"name": "default"}, "spec": {"prometheusMetricsPort": 0,
        "controllers": {"node": {}, "policy": {}, "workloadEndpoint": {}, "serviceAccount": {}, "namespace": {}}}});
    client.create_any(Resource::from_value(Kind::KubeControllersConfiguration, settings)?).await?;
    for (name, v4, v6) in NODES {
        let node = json!({"metadata": {"name": name, "labels": {"own": "label"}},
            "spec": {"bgp": {"ipv4Address": v4, "ipv6Address": v6}, "orchRefs": [{"nodeName": name, "orchestrator": "k8s"}]}});
        client.create_any(Resource::from_value(Kind::Node, node)?).await?;
    }
    for number in 0..LOCAL + REMOTE {
        let (namespace, name) = pod_name(number);
        let node = NODES[if number < LOCAL { 0 } else { 1 + number % 2 }].0;
        let endpoint = json!({
            "metadata": {"name": format!("{node}-k8s-{}-eth0", name.replace('-', "--")), "namespace": namespace,
                "labels": {"app": "old", "projectcalico.org/namespace": namespace, "projectcalico.org/orchestrator": "k8s"}},
            "spec": {"orchestrator": "k8s", "node": node, "pod": name, "endpoint": "eth0", "interfaceName": format!("cali{number:011x}"),
                "profiles": [format!("kns.{namespace}")], "ipNetworks": [format!("10.128.0.{}/32", number + 5)]},
        });
        client.create_any(Resource::from_value(Kind::WorkloadEndpoint, endpoint)?).await?;
    }
    Ok(client)
}

/// What each side stores when nothing changes any more.
async fn settled(clients: &[Client], running: &mut [Running]) -> Result<[Stored; 2]> {
    let mut before = [Stored::new(), Stored::new()];
    let mut same = 0;
    for _ in 0..PATIENCE {
        running.iter_mut().try_for_each(Running::check)?;
        let now = [stored(&clients[0]).await?, stored(&clients[1]).await?];
        same = if now == before { same + 1 } else { 0 };
        if same >= LOOKS && now.iter().all(has_begun) {
            return Ok(now);
        }
        before = now;
        tokio::time::sleep(PAUSE).await;
    }
    bail!("the controllers keep writing, or never begin:\n{}\n{}", running[0].log(), running[1].log())
}

/// Whether every controller has written something: the peer's labels of nodes come late.
fn has_begun(stored: &Stored) -> bool {
    let mut nodes = stored.iter().filter(|(name, _)| name.starts_with("Node("));
    nodes.all(|(_, node)| !node["metadata"]["annotations"].is_null())
        && stored.keys().any(|name| name.starts_with("Profile"))
}

/// All objects that controllers write, without what each store gives them.
async fn stored(client: &Client) -> Result<Stored> {
    let mut found = Stored::new();
    for kind in KINDS {
        let list = client.backend().list(&ListOptions::resources(kind), None).await?;
        ensure!(list.invalid.is_empty(), "{:?}", list.invalid);
        for entry in list.items {
            let mut value = serde_json::to_value(entry.as_resource().context("not a resource")?)?;
            if let Some(metadata) = value["metadata"].as_object_mut() {
                for field in ["uid", "creationTimestamp", "resourceVersion"] {
                    metadata.remove(field);
                }
            }
            found.insert(format!("{}", entry.key), value);
        }
    }
    Ok(found)
}

/// Controllers as a process group of its own, which ends with this value: Calico's are two processes.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    fn start(peer: Option<&Path>, store: &Etcd, kubeconfig: &str, folder: &Path) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let name = if peer.is_some() { "theirs" } else { "ours" };
        let (status, log) = (folder.join(format!("{name}.json")), folder.join(format!("{name}.log")));
        let mut command = match peer {
            Some(peer) => {
                let mut command = Command::new(peer);
                command.args(["component", "kube-controllers", "--status-file"]).arg(&status);
                command
            }
            None => {
                let mut command = Command::new(std::env::current_exe()?);
                command.env(ROLE, &status);
                command
            }
        };
        let output = std::fs::File::create(&log)?;
        let child = command
            .env("DATASTORE_TYPE", "etcdv3")
            .env("ETCD_ENDPOINTS", store.endpoint())
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()?;
        Ok(Self { child, log })
    }

    fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("controllers ended with {status}:\n{}", self.log()),
            None => Ok(()),
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
