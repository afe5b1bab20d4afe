//! Calico's programs are replaced with ours and back, node by node with the commands of docs/migrate.md, while pods
//! talk: open connections stay, new ones are established, denied traffic stays denied, and no pod changes its address.

use crate::bed::{Bed, items, name};
use crate::documents;
use crate::images::TRAFFIC;
use crate::manifest::{REGISTRY, TAG};
use crate::waiting::until;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const NAMESPACE: &str = "e2e-swap";
const PORT: u16 = 7000;
/// Open connections from a client pod to each server.
const OPEN: usize = 25;
/// Milliseconds between new connections from a client pod to one server; with two servers, one every 10 ms.
const EVERY: usize = 20;
/// Milliseconds between attempts of a pod that policy denies.
const KNOCK: usize = 50;
/// How long traffic runs before, between and after the swaps.
const QUIET: Duration = Duration::from_secs(10);

/// Replaces Calico with ours and back.
pub(crate) fn run(bed: &mut Bed) -> Result<()> {
    let (servers, before) = world(bed)?;
    let askers: Vec<String> = (1..=bed.nodes.len()).map(|number| format!("asker{number}")).collect();
    let knockers: Vec<String> = (1..=bed.nodes.len()).map(|number| format!("knocker{number}")).collect();
    let expected = servers.len() * OPEN;
    let mut last = BTreeMap::new();
    // First nothing, then every command of the guide.
    let commands = documents::lines("migrate.md", "tortie migrate from-calico")?;
    for command in std::iter::once(None).chain(commands.iter().map(Some)) {
        let what = command.map_or("with Calico", String::as_str);
        let start = Instant::now();
        if let Some(command) = command {
            migrate(bed, command).with_context(|| what.to_owned())?;
            if command.contains("--dry-run") {
                continue;
            }
            bed.settled("kube-system")?;
        }
        let took = start.elapsed();
        std::thread::sleep(QUIET);
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for pod in askers.iter().chain(&knockers) {
            for (key, value) in counts(bed, pod)? {
                *sums.entry(key).or_default() += value;
            }
        }
        let of = |key: &str| sums.get(key).copied().unwrap_or_default();
        let so_far = |key: &str| of(key) - last.get(key).copied().unwrap_or_default();
        println!(
            "e2e: {what} ({took:.0?}): {} open connections, {} broken; {} new ones, {} lost, {} slower than a lost packet; {} denied, {} let through",
            of("open"),
            of("broken"),
            so_far("new"),
            so_far("lost"),
            so_far("slow"),
            so_far("knocks"),
            so_far("through")
        );
        ensure!(of("open") == u64::try_from(expected * askers.len())?, "{what}: {sums:?}");
        ensure!(of("broken") == 0 && of("lost") == 0 && of("through") == 0, "{what}: {sums:?}");
        ensure!(so_far("new") > 100 && so_far("knocks") > 20, "{what}: hardly any traffic: {sums:?}");
        ensure!(places(bed)? == before, "{what}: pods changed: {:?}, before {before:?}", places(bed)?);
        last = sums;
    }
    println!("e2e: {} pods kept their addresses; {}", before.len(), check_addresses(bed)?);
    bed.remove(&[NAMESPACE])
}

/// Creates servers, clients, and pods that policy denies, and waits until all of them are active; returns the servers'
/// places and all pods' addresses.
fn world(bed: &mut Bed) -> Result<(Vec<String>, BTreeMap<String, String>)> {
    let nodes: Vec<String> = bed.nodes.iter().map(|node| node.name.clone()).collect();
    let pod = |name: String, role: &str, node: &str, arguments: Vec<String>| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"role": role}},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "enableServiceLinks": false, "restartPolicy": "Never",
                "automountServiceAccountToken": false, "containers": [{"name": "it", "image": TRAFFIC,
                    "imagePullPolicy": "Never", "command": ["/bin/traffic"], "args": arguments,
                    // The same request as the node's own pod: a process without a share of the processors is late,
                    // whatever the network.
                    "resources": {"requests": {"cpu": "250m"}}}]}})
    };
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "servers", "namespace": NAMESPACE}, "spec": {
            "podSelector": {"matchLabels": {"role": "server"}},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"role": "asker"}}}], "ports": [{"port": PORT}]}]}});
    let mut objects =
        vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}), policy];
    for (index, node) in nodes.iter().enumerate() {
        let name = format!("server{}", index + 1);
        objects.push(pod(name, "server", node, vec!["serve".to_owned(), PORT.to_string()]));
    }
    bed.apply(&objects)?;
    bed.settled(NAMESPACE)?;
    let servers: Vec<String> = places(bed)?.values().map(|address| format!("{address}:{PORT}")).collect();
    // The policy must be in effect before anything knocks: its absence would not be caused by the swap.
    std::thread::sleep(QUIET);
    let with = |first: Vec<String>| first.into_iter().chain(servers.clone()).collect::<Vec<_>>();
    let ask = with(vec!["ask".to_owned(), OPEN.to_string(), EVERY.to_string()]);
    let knock = with(vec!["knock".to_owned(), KNOCK.to_string()]);
    let mut objects = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        objects.push(pod(format!("asker{}", index + 1), "asker", node, ask.clone()));
        objects.push(pod(format!("knocker{}", index + 1), "knocker", node, knock.clone()));
    }
    bed.apply(&objects)?;
    bed.settled(NAMESPACE)?;
    for number in 1..=nodes.len() {
        for name in [format!("asker{number}"), format!("knocker{number}")] {
            until(&format!("{name} to begin"), || counts(bed, &name))?;
        }
    }
    Ok((servers, places(bed)?))
}

/// Pods' addresses, each with its restart count: a restarted pod is not the same any more.
fn places(bed: &Bed) -> Result<BTreeMap<String, String>> {
    let pods = bed.plane.get(&["pods", "-n", NAMESPACE])?;
    let place = |pod: &Value| {
        let status = &pod["status"];
        ensure!(status["phase"] == "Running", "{} is {}", name(pod), status["phase"]);
        let address = status["podIP"].as_str().context("a running pod has an address")?;
        Ok((name(pod).to_owned(), address.to_owned()))
    };
    items(&pods).iter().map(place).collect()
}

/// The current counts of a pod.
fn counts(bed: &Bed, pod: &str) -> Result<BTreeMap<String, u64>> {
    let said = bed.plane.kubectl(&["logs", "-n", NAMESPACE, pod, "--tail=1"])?;
    let found: BTreeMap<String, u64> = said
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .filter_map(|(key, value)| Some((key.to_owned(), value.parse().ok()?)))
        .collect();
    ensure!(!found.is_empty(), "{pod} said: {said}");
    Ok(found)
}

/// Runs a command of the guide, with our node and our images instead of its examples.
fn migrate(bed: &Bed, line: &str) -> Result<()> {
    let line = line.replace("worker-1", &bed.nodes[0].name).replace("registry.example.org/tortie", REGISTRY);
    let mut words: Vec<&str> = line.split_whitespace().skip(1).collect();
    if line.contains("--registry") {
        words.extend(["--tag", TAG]);
    }
    let mut command = bed.plane.command(&bed.program)?;
    command.args(&words).args(["--timeout", "4m", "--kubeconfig"]).arg(bed.plane.admin());
    let output = testkit::finish(command, "")?;
    ensure!(
        output.status.success(),
        "tortie {words:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Runs `calicoctl ipam check`, which must find no problems; returns its summary.
fn check_addresses(bed: &Bed) -> Result<String> {
    let mut command = bed.plane.command(&bed.program)?;
    command.args(["ctl", "ipam", "check", "--allow-version-mismatch"]);
    command.env("DATASTORE_TYPE", "kubernetes").env("KUBECONFIG", bed.plane.admin());
    let output = testkit::finish(command, "")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "ipam check: {said}{}", String::from_utf8_lossy(&output.stderr));
    let summary = said.lines().last().unwrap_or_default().trim().to_owned();
    ensure!(summary.contains("found 0 problems"), "ipam check: {said}");
    Ok(summary)
}
