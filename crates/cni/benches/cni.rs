//! How long ADD and DEL take, against a floor measured in the same run: the same netlink operations done directly, plus
//! the same number of sequential writes to the same datastore.
//!
//! The plugin is the program that users run if it has been built ([`measured_program`]). Otherwise the benchmark
//! program serves as the plugin when it is started with `CNI_COMMAND`, and as the agent with `AGENT_SOCKET`. Datastore,
//! plugins and floor share one network namespace, so that all of them reach the datastore in the same way. Pods are
//! further namespaces; everything is removed at the end.

#[path = "../tests/it/world.rs"]
#[expect(dead_code, reason = "the world of the tests has more than a benchmark needs")]
mod world;

use anyhow::{Context as _, Result, ensure};
use cni::for_tests::{AgentState, Context, Pair, Plan, Store, bind, remove, serve};
use netlink::namespace::Namespace;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{ApiServer, Etcd, Report, measured_program};
use world::{Cluster, Node, Pod, add_node, pool, prepare};

const PARALLEL: usize = 64;

fn main() -> ExitCode {
    if std::env::var_os("AGENT_SOCKET").is_some() {
        return report(agent());
    }
    if std::env::var_os("CNI_COMMAND").is_some() {
        return ExitCode::from(cni::run_in_process(cni::Program::Plugin));
    }
    report(run())
}

fn report(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Lets a plugin finish its work and returns its peak memory in KiB. Memory allocated in its last microseconds may be
/// missed.
fn peak_memory(mut plugin: Child) -> Result<u64> {
    let status = format!("/proc/{}/status", plugin.id());
    let mut peak = 0;
    loop {
        let text = std::fs::read_to_string(&status)?;
        // A process that has ended has no memory any more.
        let Some(line) = text.lines().find(|line| line.starts_with("VmHWM:")) else { break };
        peak = line.split_whitespace().nth(1).context("no number")?.parse()?;
    }
    ensure!(plugin.wait()?.success(), "the plugin failed");
    Ok(peak)
}

fn agent() -> Result<()> {
    let environment: cni::Environment = std::env::vars().collect();
    // Like the node's own runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let socket = environment.get("AGENT_SOCKET").context("no socket")?;
        let listener = bind(Path::new(socket))?;
        let store = Store::open(&cni::NetConf::default(), &environment).await?;
        let node = environment.get("NODENAME").context("no node")?;
        let paths = cni::HostPaths::of(&environment);
        let context = Context::new(Arc::new(store.warmed(node)), paths, true);
        Ok(serve(listener, AgentState::ready(context)).await?)
    })
}

/// A running agent; killed when dropped.
struct Agent(Child);

impl Agent {
    fn start(node: &Node, variables: &[(&str, String)]) -> Result<Self> {
        let socket = node.root().join("var/run/calico/cni-agent.sock");
        let mut command = Command::new(std::env::current_exe()?);
        command
            .env_clear()
            .env("AGENT_SOCKET", &socket)
            .env("TORTIE_HOST_ROOT", node.root())
            .env("NODENAME", &node.name);
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let agent = Self(command.spawn()?);
        let deadline = Instant::now() + Duration::from_secs(30);
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            ensure!(Instant::now() < deadline, "the agent does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(agent)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The number of measurements: few in an unoptimised build, which only shows that the benchmark works.
fn rounds() -> usize {
    if cfg!(debug_assertions) { 3 } else { 100 }
}

/// Words on the command line select a datastore (`etcd`, `kubernetes`); without any, both are measured.
fn wanted(datastore: &str) -> bool {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with('-')).peekable();
    words.peek().is_none() || words.any(|word| word == datastore)
}

fn run() -> Result<()> {
    let mut node = Node::with_plugin("node-a", json!({}), &measured_program()?)?;
    // A server of the Kubernetes API needs an address of its host.
    node.host.ip(&["address", "add", "192.0.2.1/32", "dev", "uplink"])?;
    let inside = Namespace::open(node.host.namespace.path())?;
    // Threads and processes that are started from here on are inside the namespace, too.
    let figures = inside.run(|| -> Result<Report> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let mut figures = Report::new("cni");
        if wanted("etcd") {
            runtime.block_on(on_etcd(&mut figures, &mut node))?;
        }
        if wanted("kubernetes") {
            runtime.block_on(on_kubernetes(&mut figures, &mut node))?;
        }
        Ok(figures)
    })?;
    let mut figures = figures?;
    figures.note(format!(
        "{} rounds; each call is a process of its own, from its start to its end. The floor is the pair of devices with \
         addresses, routes and settings, and so many writes over a connection that is open, one after the other: it has no process, \
         no connection to make, and reads nothing.",
        rounds()
    ));
    let mut output = std::io::stdout();
    output.write_all(figures.markdown().as_bytes())?;
    figures.record()
}

/// Starts the plugin as a runtime does.
fn start(node: &Node, pod: &Pod, command: &str, configuration: &Value) -> Result<Child> {
    let mut command = node.command(&node.root().join("bin/calico"), &pod.call(command));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    match stdin.write_all(configuration.to_string().as_bytes()) {
        // Not every command reads its input, and such a process may have ended by now.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    Ok(child)
}

fn call(node: &Node, pod: &Pod, command: &str, configuration: &Value) -> Result<Output> {
    let output = start(node, pod, command, configuration)?.wait_with_output()?;
    ensure!(output.status.success(), "{command} failed: {}", world::told(&output));
    Ok(output)
}

/// Durations of single calls in milliseconds.
#[derive(Default)]
struct Times {
    add: Vec<f64>,
    del: Vec<f64>,
}

/// Measures processes of the plugin that only print their version: the cost of starting and ending a process.
fn measure_start(node: &Node, pods: &[Pod], times: &mut Vec<f64>) -> Result<()> {
    let nothing = json!({});
    for pod in pods {
        let start = Instant::now();
        call(node, pod, "VERSION", &nothing)?;
        times.push(milliseconds(start));
    }
    Ok(())
}

/// How many rounds of one kind are measured before the other kinds have their turn, so that other activity on the
/// machine affects all kinds equally.
const TURN: usize = 10;

/// Measures ADD and DEL of each pod.
fn measure(node: &Node, pods: &[Pod], changes: Value, times: &mut Times) -> Result<()> {
    let configuration = node.configuration(changes);
    for pod in pods {
        let start = Instant::now();
        call(node, pod, "ADD", &configuration)?;
        times.add.push(milliseconds(start));
        let start = Instant::now();
        call(node, pod, "DEL", &configuration)?;
        times.del.push(milliseconds(start));
    }
    Ok(())
}

/// Measures the same work done directly, with the given numbers of writes for an ADD and a DEL.
async fn measure_floor(
    node: &Node,
    client: &client::Client,
    pods: &[Pod],
    writes: (u64, u64),
    times: &mut Times,
) -> Result<()> {
    for (number, pod) in pods.iter().enumerate() {
        let (made, removed) = wire(node, pod, number)?;
        times.add.push(made + write(client, writes.0, number).await?);
        times.del.push(removed + write(client, writes.1, number).await?);
    }
    Ok(())
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}

/// The quantile of the values at this share.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, reason = "an index of a list")]
    let index = ((sorted.len() as f64 - 1.0) * share).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}

fn compare(figures: &mut Report, what: &str, ours: &[f64], floor: &[f64], goal: &str) {
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let (own, base) = (quantile(ours, share), quantile(floor, share));
        let goal = if name == "p50" { goal } else { "" };
        figures.row(
            &format!("{what} {name}"),
            &format!("{own:.2} ms"),
            &format!("floor: {base:.2} ms"),
            &format!("{:.2}", own / base),
            goal,
        );
    }
}

/// The kernel objects of one pod.
fn plan(node: &Node, number: usize) -> Result<Plan> {
    let conf = cni::NetConf::parse(&node.configuration(json!({})))?;
    let mut plan = Plan::new(&conf, format!("califloor{number}"), "eth0", Some(1450))?;
    plan.addresses = vec![format!("10.99.0.{}/32", number % 250 + 1).parse()?];
    Ok(plan)
}

fn connect(plan: &Plan, pod: &Pod) -> Result<()> {
    let namespace = &pod.netns.namespace;
    if let Some(mut pair) = Pair::create(plan, namespace, false)? {
        pair.finish(plan, namespace)?;
    }
    Ok(())
}

/// Does the same kernel operations in this process.
fn wire(node: &Node, pod: &Pod, number: usize) -> Result<(f64, f64)> {
    let plan = plan(node, number)?;
    let namespace = &pod.netns.namespace;
    let start = Instant::now();
    connect(&plan, pod)?;
    let made = milliseconds(start);
    let start = Instant::now();
    remove(namespace, "eth0")?;
    Ok((made, milliseconds(start)))
}

/// Makes `count` sequential writes of an object about as long as an endpoint.
async fn write(client: &client::Client, count: u64, key: usize) -> Result<f64> {
    let text = json!({"metadata": {"name": format!("floor-{key}")}, "spec": {"nets": ["10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16"],
        "extra": "x".repeat(400)}});
    let set: api::GlobalNetworkSet = serde_json::from_value(text)?;
    let entry = model::KvPair::resource(api::Resource::from(set));
    let start = Instant::now();
    for _ in 0..count {
        client.backend().apply(&entry).await?;
    }
    Ok(milliseconds(start))
}

/// The current revision of etcd.
fn revision(etcd: &Etcd) -> Result<u64> {
    let output = etcd.etcdctl(&["get", "none", "-w", "json"])?;
    let value: Value = serde_json::from_slice(&output.stdout)?;
    value["header"]["revision"].as_u64().context("no revision")
}

async fn on_etcd(figures: &mut Report, node: &mut Node) -> Result<()> {
    let cluster = Cluster::start(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    add_node(&cluster.client, "node-a").await?;
    node.settings =
        json!({"datastore_type": "etcdv3", "etcd_endpoints": cluster.etcd.endpoint(), "log_level": "error"});
    let node = &*node;
    let pods: Vec<Pod> =
        (0..rounds()).map(|number| Pod::new(&format!("c{number}"))).collect::<Result<_>>()?;
    // Warm: the host has its block, the network its profile. With the agent running, only a plugin that is configured
    // to do so works by itself.
    let variables = [("DATASTORE_TYPE", "etcdv3".to_owned()), ("ETCD_ENDPOINTS", cluster.etcd.endpoint())];
    let alone = || json!({"agent_socket": "none"});
    let agent = Agent::start(node, &variables)?;
    let mut peak = 0;
    for pod in &pods[..pods.len().min(TURN)] {
        let configuration = node.configuration(alone());
        peak = peak.max(peak_memory(start(node, pod, "ADD", &configuration)?)?);
        call(node, pod, "DEL", &configuration)?;
    }
    let writes = writes_of(node, &cluster.etcd, &pods[0])?;
    let (mut floor, mut direct, mut through) = (Times::default(), Times::default(), Times::default());
    let mut started = Vec::new();
    for pods in pods.chunks(TURN) {
        measure_floor(node, &cluster.client, pods, writes, &mut floor).await?;
        measure_start(node, pods, &mut started)?;
        measure(node, pods, alone(), &mut direct)?;
        measure(node, pods, json!({}), &mut through)?;
    }
    let (started, base) = (quantile(&started, 0.5), quantile(&floor.add, 0.5));
    figures.row(
        "a process of the plugin that does nothing p50",
        &format!("{started:.2} ms"),
        &format!("floor of an ADD: {base:.2} ms; both together: {:.2} ms", started + base),
        &format!("{:.2}", (started + base) / base),
        "(the least that an ADD can be of its floor)",
    );
    compare(figures, "ADD, etcd, direct", &direct.add, &floor.add, "p50 at most 1.5x the floor");
    compare(figures, "DEL, etcd, direct", &direct.del, &floor.del, "p50 at most 1.5x the floor");
    compare(figures, "ADD, etcd, through the agent", &through.add, &floor.add, "p50 at most 1.3x the floor");
    compare(figures, "DEL, etcd, through the agent", &through.del, &floor.del, "p50 at most 1.5x the floor");
    figures.row(
        "peak memory of the plugin, direct",
        &format!("{:.1} MiB", peak as f64 / 1024.0),
        "",
        "",
        "below 20 MiB",
    );
    let kinds = [("direct", alone(), ""), ("through the agent", json!({}), "at least 5x")];
    tokio::task::block_in_place(|| together(figures, node, &cluster.client, writes.0, &kinds))?;
    drop(agent);
    figures.note(format!("On etcd an ADD takes {} writes and a DEL {}.", writes.0, writes.1));
    Ok(())
}

/// How many writes of etcd an ADD and a DEL take.
fn writes_of(node: &Node, etcd: &Etcd, pod: &Pod) -> Result<(u64, u64)> {
    let configuration = node.configuration(json!({}));
    let before = revision(etcd)?;
    call(node, pod, "ADD", &configuration)?;
    let added = revision(etcd)?;
    call(node, pod, "DEL", &configuration)?;
    Ok((added - before, revision(etcd)? - added))
}

/// ADDs per second with `width` of them at once; what was added is deleted again.
fn parallel(node: &Node, width: usize, changes: Value) -> Result<f64> {
    let count = if width == 1 { rounds().min(20) } else { width };
    let pods: Vec<Pod> = (0..count).map(|number| Pod::new(&format!("p{number}"))).collect::<Result<_>>()?;
    let configuration = node.configuration(changes);
    let begin = Instant::now();
    for group in pods.chunks(width) {
        let started: Vec<Child> =
            group.iter().map(|pod| start(node, pod, "ADD", &configuration)).collect::<Result<_>>()?;
        for child in started {
            world::answer(&child.wait_with_output()?)?;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    for pod in &pods {
        call(node, pod, "DEL", &configuration)?;
    }
    Ok(pods.len() as f64 / seconds)
}

/// The floor per second with `width` at once: what the kernel and the datastore achieve on this machine without
/// processes and any other requests.
fn parallel_floor(node: &Node, client: &client::Client, width: usize, writes: u64) -> Result<f64> {
    let count = if width == 1 { rounds().min(20) } else { width };
    let pods: Vec<Pod> = (0..count).map(|number| Pod::new(&format!("f{number}"))).collect::<Result<_>>()?;
    let plans: Vec<Plan> = (0..count).map(|number| plan(node, number)).collect::<Result<_>>()?;
    let runtime = tokio::runtime::Handle::current();
    let one = |number: usize| -> Result<()> {
        connect(&plans[number], &pods[number])?;
        runtime.block_on(write(client, writes, number)).map(drop)
    };
    let begin = Instant::now();
    let numbers: Vec<usize> = (0..count).collect();
    for group in numbers.chunks(width) {
        std::thread::scope(|scope| {
            let one = &one;
            let started: Vec<_> = group.iter().map(|number| scope.spawn(move || one(*number))).collect();
            started.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread of the floor failed")))
            })
        })?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    for pod in &pods {
        remove(&pod.netns.namespace, "eth0")?;
    }
    Ok(count as f64 / seconds)
}

/// How much faster many concurrent calls are, for the floor and for plugins.
fn together(
    figures: &mut Report,
    node: &Node,
    client: &client::Client,
    writes: u64,
    kinds: &[(&str, Value, &str)],
) -> Result<()> {
    let (alone, together) =
        (parallel_floor(node, client, 1, writes)?, parallel_floor(node, client, PARALLEL, writes)?);
    let floor = together;
    figures.row(
        &format!("{PARALLEL} floors at once"),
        &format!("{together:.1}/s"),
        &format!("one at a time: {alone:.1}/s"),
        &format!("{:.1}", together / alone),
        "(what this machine's kernel and datastore allow)",
    );
    for (what, changes, goal) in kinds {
        let alone = parallel(node, 1, changes.clone())?;
        let together = parallel(node, PARALLEL, changes.clone())?;
        figures.row(
            &format!("{PARALLEL} parallel ADDs, {what}"),
            &format!("{together:.1}/s"),
            &format!("one at a time: {alone:.1}/s; floors at once: {floor:.1}/s"),
            &format!("{:.1}", together / alone),
            goal,
        );
    }
    Ok(())
}

async fn on_kubernetes(figures: &mut Report, node: &mut Node) -> Result<()> {
    let etcd = tokio::task::spawn_blocking(Etcd::start).await??;
    let endpoint = etcd.endpoint();
    let api = tokio::task::spawn_blocking(move || ApiServer::start(&endpoint)).await??;
    let kubeconfig = api.kubeconfig().display().to_string();
    let config = client::ClientConfig {
        datastore_type: client::DatastoreType::Kubernetes,
        etcd: Default::default(),
        kubernetes: client::config::KubernetesSettings {
            kubeconfig: kubeconfig.clone(),
            ..Default::default()
        },
        embedded_path: String::new(),
    };
    let client = client::Client::open(&config).await?;
    client.backend().install().await?;
    let apply = |object: Value| api.kubectl_with_input(&["apply", "-f", "-"], &object.to_string()).map(drop);
    apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}))?;
    prepare(&client, &[pool("pool", "10.10.0.0/16", 26)]).await?;
    node.settings = json!({"datastore_type": "kubernetes", "nodename": "node-a", "policy": {"type": "k8s"}, "log_level": "error",
        "kubernetes": {"kubeconfig": kubeconfig.clone()}, "calico_api_group": "crd.projectcalico.org/v1"});
    let node = &*node;
    let mut pods = Vec::new();
    for number in 0..rounds() {
        apply(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{number}"), "namespace": "default"},
            "spec": {"nodeName": "node-a", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "x"}]}}),
        )?;
        pods.push(Pod::of_kubernetes(&format!("c{number}"), "default", &format!("p{number}"))?);
    }
    let variables = [
        ("DATASTORE_TYPE", "kubernetes".to_owned()),
        ("KUBECONFIG", kubeconfig),
        ("CALICO_API_GROUP", "crd.projectcalico.org/v1".to_owned()),
    ];
    let agent = Agent::start(node, &variables)?;
    measure(node, &pods[..1], json!({}), &mut Times::default())?;
    let writes = writes_of(node, &etcd, &pods[0])?;
    let (mut floor, mut through) = (Times::default(), Times::default());
    for pods in pods.chunks(TURN) {
        measure_floor(node, &client, pods, writes, &mut floor).await?;
        measure(node, pods, json!({}), &mut through)?;
    }
    compare(
        figures,
        "ADD, Kubernetes, through the agent",
        &through.add,
        &floor.add,
        "p50 at most 1.5x the floor",
    );
    compare(
        figures,
        "DEL, Kubernetes, through the agent",
        &through.del,
        &floor.del,
        "p50 at most 1.5x the floor",
    );
    drop(agent);
    figures.note(format!("On Kubernetes an ADD takes {} writes and a DEL {}.", writes.0, writes.1));
    Ok(())
}
