//! Memory, time to the first comparison, requests per churned pod and idle processor time of the controllers, on a real
//! kube-apiserver with many objects, with the etcd and with the Kubernetes datastore.
//!
//! The controllers run as a separate process: this program, started again with `TORTIE_BENCH_CONTROLLERS` set.
//! `TORTIE_BENCH_PODS` sets the number of pods (10,000 if unset); there is one node for every 20 of them and one
//! namespace for every ten. The benchmark does not fail on missed goals: it prints them.

use anyhow::{Context as _, Result, bail};
use client::config::ClientConfig;
use client::{Client, DatastoreType};
use daemon::Variables;
use futures::StreamExt as _;
use kube_access::KubeAccess;
use kube_access::cluster::Cluster;
use kube_controllers::cli;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use testkit::{ApiServer, Etcd, Report};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The variable that makes this program run the controllers.
const CHILD: &str = "TORTIE_BENCH_CONTROLLERS";

/// How many objects are created concurrently.
const AT_ONCE: usize = 48;

/// How long to wait before memory is read, and how long the idle processor time is measured.
const SETTLE: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(20);

/// Calico v3.32's controllers with the same load on the same kind of machine.
const CALICO_MEMORY: &str = "Calico: 215-237 MiB, and 93 MiB for its restart wrapper";
const CALICO_START: &str = "Calico: all 2,000 profiles within 10 s";

fn main() -> Result<ExitCode> {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure())?;
    Ok(ExitCode::SUCCESS)
}

fn child() -> Result<ExitCode> {
    let status_file = std::env::var(CHILD)?.into();
    cli::main(&cli::Arguments {
        status_file,
        health_port: 0,
        leader_elect: false,
        leader_elect_namespace: String::new(),
        leader_elect_name: String::new(),
    })
}

/// The numbers of objects.
#[derive(Clone, Copy)]
struct Load {
    pods: usize,
    nodes: usize,
    namespaces: usize,
}

async fn measure() -> Result<()> {
    let pods = std::env::var("TORTIE_BENCH_PODS").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let load = Load { pods, nodes: (pods / 20).max(1), namespaces: (pods / 10).max(1) };
    let servers = Servers {
        api_server: {
            let etcd = Etcd::start()?;
            (ApiServer::start(&etcd.endpoint())?, etcd)
        },
        store: Etcd::start()?,
    };
    let begin = Instant::now();
    let kubernetes = servers.variables(DatastoreType::Kubernetes);
    let cluster = Cluster::new(&KubeAccess::open(&Variables::new(&kubernetes), Path::new("/nowhere")).await?);
    fill(&cluster, load).await?;
    println(&format!(
        "{} pods, {} nodes, {} namespaces made in {:.0?}",
        load.pods,
        load.nodes,
        load.namespaces,
        begin.elapsed()
    ));
    let client = Client::open(&ClientConfig::load(None, &Variables::new(&kubernetes))?).await?;
    client.backend().install().await?;

    let mut report = Report::new("controllers");
    for datastore in [DatastoreType::EtcdV3, DatastoreType::Kubernetes] {
        one(&servers, &cluster, load, datastore, &mut report).await?;
    }
    report.note(format!(
        "{} pods, {} nodes, {} namespaces with a service account each, on one kube-apiserver; the etcd datastore is an etcd \
         of its own. Requests are those that the API server (or that etcd) counted while pods were replaced, without ours.",
        load.pods, load.nodes, load.namespaces
    ));
    println(&report.markdown());
    report.record()
}

/// Measures the controllers with one datastore.
async fn one(
    servers: &Servers,
    cluster: &Cluster,
    load: Load,
    datastore: DatastoreType,
    report: &mut Report,
) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut variables = servers.variables(datastore);
    let controllers = match datastore {
        DatastoreType::Kubernetes => "node,loadbalancer",
        _ => "policy,namespace,serviceaccount,workloadendpoint,node,loadbalancer",
    };
    variables.insert("ENABLED_CONTROLLERS".to_owned(), controllers.to_owned());
    let client = Client::open(&ClientConfig::load(None, &Variables::new(&variables))?).await?;
    let begin = Instant::now();
    let log = folder.path().join("log");
    let mut running = Running::start(&variables, folder.path(), &log)?;
    loop {
        running.check()?;
        let is_done = match datastore {
            DatastoreType::Kubernetes => {
                let log = std::fs::read_to_string(&log).unwrap_or_default();
                ["pods", "nodes"].iter().all(|kind| log.contains(&format!("kind=\"{kind}\"")))
            }
            _ => {
                let profiles = servers.store.etcdctl(&[
                    "get",
                    "/calico/resources/v3/projectcalico.org/profiles/",
                    "--prefix",
                    "--keys-only",
                ])?;
                let found =
                    String::from_utf8_lossy(&profiles.stdout).lines().filter(|line| !line.is_empty()).count();
                // One profile for every namespace and every account; the cluster's own namespaces come on top.
                found >= 2 * load.namespaces
            }
        };
        if is_done {
            break;
        }
        if begin.elapsed() > Duration::from_secs(300) {
            bail!("not done after 300 s; the log ends with:\n{}", tail(&log));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let started = begin.elapsed();
    tokio::time::sleep(SETTLE).await;
    let memory = running.memory()?;

    let before = servers.requests(cluster, datastore).await?;
    let churned = (load.pods / 50).clamp(10, 200);
    churn(cluster, churned).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = servers.requests(cluster, datastore).await?;
    let ours = match datastore {
        // A deletion and a creation each; reading the counters costs one request in total.
        DatastoreType::Kubernetes => 2.0 * f64::from(u32::try_from(churned)?) + 1.0,
        _ => 0.0,
    };
    let per_pod = ((after - before - ours) / f64::from(u32::try_from(churned)?)).max(0.0);

    let spent = running.processor_time()?;
    tokio::time::sleep(IDLE).await;
    let idle = running.processor_time()?.saturating_sub(spent);
    running.check()?;

    let name = datastore.as_str();
    report.row(
        &format!("resident memory, {name}"),
        &format!(
            "{:.1} MiB, {:.1} MiB of them not the program's file; peak {:.1} MiB",
            memory.resident, memory.own, memory.peak
        ),
        CALICO_MEMORY,
        &format!("{:.2}", memory.resident / 226.0),
        "a sixth (0.17)",
    );
    let (what, compared) = match datastore {
        DatastoreType::Kubernetes => ("start until everything is followed", "-"),
        _ => ("start until every profile is there", CALICO_START),
    };
    let ratio = if compared == "-" { "-".to_owned() } else { format!("{:.2}", started.as_secs_f64() / 10.0) };
    report.row(&format!("{what}, {name}"), &format!("{started:.2?}"), compared, &ratio, "half (0.5)");
    report.row(
        &format!("requests per churned pod, {name}"),
        &format!("{per_pod:.2}"),
        "-",
        "-",
        "does not grow with the cluster",
    );
    let share = idle.as_secs_f64() / IDLE.as_secs_f64() * 100.0;
    report.row(&format!("processor at idle, {name}"), &format!("{share:.2} %"), "-", "-", "zero");
    drop(client);
    Ok(())
}

struct Servers {
    api_server: (ApiServer, Etcd),
    store: Etcd,
}

impl Servers {
    fn variables(&self, datastore: DatastoreType) -> BTreeMap<String, String> {
        let kubeconfig = self.api_server.0.kubeconfig().to_string_lossy().into_owned();
        BTreeMap::from([
            ("KUBECONFIG".to_owned(), kubeconfig),
            ("DATASTORE_TYPE".to_owned(), datastore.as_str().to_owned()),
            ("ETCD_ENDPOINTS".to_owned(), self.store.endpoint()),
        ])
    }

    /// How many requests the datastore's server has answered so far, excluding watches.
    async fn requests(&self, cluster: &Cluster, datastore: DatastoreType) -> Result<f64> {
        match datastore {
            DatastoreType::Kubernetes => {
                let page = self.api_server.0.kubectl(&["get", "--raw", "/metrics"])?;
                let page = String::from_utf8_lossy(&page.stdout).into_owned();
                // The server's own requests do not count under these names; leases and the like are excluded.
                let _ = cluster;
                Ok(sum(&page, "apiserver_request_total{", &["WATCH", "leases", "resource=\"\""]))
            }
            _ => {
                let page = figures(&self.store.endpoint()).await.context("asking etcd for its figures")?;
                Ok(sum(&page, "grpc_server_handled_total{", &["Watch", "Health"]))
            }
        }
    }
}

/// Reads the metrics page of an etcd.
async fn figures(endpoint: &str) -> Result<String> {
    let address = endpoint.strip_prefix("http://").context("a plain etcd")?;
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let question = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(question.as_bytes()).await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    Ok(page)
}

/// Adds up a counter's values, except those whose labels contain one of these words.
fn sum(page: &str, name: &str, without: &[&str]) -> f64 {
    page.lines()
        .filter(|line| line.starts_with(name) && !without.iter().any(|word| line.contains(word)))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// The memory of a process, in MiB.
struct Memory {
    resident: f64,
    /// Without the pages of the program's own file.
    own: f64,
    peak: f64,
}

/// The controllers as a process, which is killed on drop.
struct Running(Child);

impl Running {
    fn start(variables: &BTreeMap<String, String>, folder: &Path, log: &Path) -> Result<Self> {
        let output = std::fs::File::create(log)?;
        let child = Command::new(testkit::measured_program()?)
            .args(["kube-controllers", "--health-port=0", "--status-file"])
            .arg(folder.join("status.json"))
            .env_clear()
            .envs(variables)
            .env(CHILD, folder.join("status.json"))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        Ok(Self(child))
    }

    fn check(&mut self) -> Result<()> {
        match self.0.try_wait()? {
            Some(status) => bail!("the controllers ended: {status}"),
            None => Ok(()),
        }
    }

    fn memory(&self) -> Result<Memory> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let mebibytes = |name: &str| -> Result<f64> {
            let line = status.lines().find(|line| line.starts_with(name));
            let number = line.and_then(|line| line.split_whitespace().nth(1));
            let kibibytes: u32 = number.with_context(|| format!("no {name}"))?.parse()?;
            Ok(f64::from(kibibytes) / 1024.0)
        };
        Ok(Memory { resident: mebibytes("VmRSS:")?, own: mebibytes("RssAnon:")?, peak: mebibytes("VmHWM:")? })
    }

    /// User and system time so far.
    fn processor_time(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks =
            |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
        // Linux reports hundredths of a second to every program, regardless of its own clock rate.
        Ok(Duration::from_millis((ticks(11) + ticks(12)) * 10))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Creates namespaces with one account each, nodes, and pods spread over both.
async fn fill(cluster: &Cluster, load: Load) -> Result<()> {
    let namespace = |number: usize| format!("bench-{number}");
    let create = async |path: String, object: Value| -> Result<()> {
        let _: serde::de::IgnoredAny = cluster.create("fill the cluster", &path, &object).await?;
        Ok(())
    };
    let namespaces = (0..load.namespaces).map(|number| {
        let object = json!({"metadata": {"name": namespace(number), "labels": {"team": format!("team-{}", number % 20)}}});
        ("/api/v1/namespaces".to_owned(), object)
    });
    let accounts = (0..load.namespaces).map(|number| {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts", namespace(number));
        (path, json!({"metadata": {"name": "default"}}))
    });
    let nodes = (0..load.nodes).map(|number| {
        let object = json!({"metadata": {"name": format!("bench-node-{number}"), "labels": {"zone": format!("z{}", number % 3)}}});
        ("/api/v1/nodes".to_owned(), object)
    });
    let pods = (0..load.pods).map(|number| {
        let path = format!("/api/v1/namespaces/{}/pods", namespace(number % load.namespaces));
        (path, pod(number, load.nodes))
    });
    for objects in [
        Box::new(namespaces) as Box<dyn Iterator<Item = (String, Value)> + Send>,
        Box::new(accounts),
        Box::new(nodes),
        Box::new(pods),
    ] {
        let mut made = futures::stream::iter(objects)
            .map(|(path, object)| create(path, object))
            .buffer_unordered(AT_ONCE);
        while let Some(outcome) = made.next().await {
            outcome?;
        }
    }
    Ok(())
}

/// A pod as created by a deployment, mostly fields that controllers do not use.
fn pod(number: usize, nodes: usize) -> Value {
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
    json!({
        "metadata": {
            "name": format!("web-{:x}-{number}", number / 7),
            "labels": {"app": format!("app-{}", number % 50), "pod-template-hash": format!("{:x}", number / 7), "tier": "web"},
            "annotations": {
                "cni.projectcalico.org/podIP": format!("10.{}.{}.{}/32", 64 + number / 65536, number / 256 % 256, number % 256),
                "cni.projectcalico.org/containerID": format!("{number:064x}"),
                "prometheus.io/scrape": "true",
            },
        },
        "spec": {
            "nodeName": format!("bench-node-{}", number % nodes),
            "serviceAccountName": "default",
            "containers": [{
                "name": "web", "image": "registry.example/web:1.2.3",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}],
                "ports": [{"containerPort": 8080}],
                "livenessProbe": probe, "readinessProbe": probe,
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
            }],
        },
    })
}

/// Replaces pods: deletes each and creates another.
async fn churn(cluster: &Cluster, count: usize) -> Result<()> {
    let page = cluster
        .page::<Value>(kube_access::cluster::Collection { prefix: "/api/v1", plural: "pods" }, None)
        .await?;
    let text = |pod: &Value, pointer: &str| {
        pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let targets: Vec<(String, String)> = page
        .items
        .iter()
        .take(count)
        .map(|pod| (text(pod, "/metadata/namespace"), text(pod, "/metadata/name")))
        .collect();
    for (number, (namespace, name)) in targets.into_iter().enumerate() {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        let one = format!("{path}/{name}");
        let _: serde::de::IgnoredAny =
            cluster.send("delete a pod", http::Method::DELETE, &one, &body, "application/json").await?;
        let mut replacement = pod(number, 1);
        replacement["metadata"]["name"] = format!("{name}-x").into();
        let _: serde::de::IgnoredAny = cluster.create("create a pod", &path, &replacement).await?;
    }
    Ok(())
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

#[expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]
fn println(text: &str) {
    println!("{text}");
}
