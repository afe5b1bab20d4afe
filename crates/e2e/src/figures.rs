//! Figures of the bed: how long pods' networks take compared with the reference bridge plugin on the same nodes, and
//! which of our processes run on a node.
//!
//! A pod's start is the time that containerd takes for its sandbox, from the call to the answer, read from its log:
//! namespaces, plugins and the first process, without scheduling and without the image. Both networks start the same
//! pods on the same machines, in turn.

use crate::bed::Bed;
use crate::images::BUSYBOX;
use crate::node::Node;
use crate::waiting::until;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const NAMESPACE: &str = "e2e-figures";
const PODS: usize = 100;

/// The reference plugin's configuration, with addresses that nothing else here uses, and programs under unique names.
const BRIDGE: &str = r#"{"cniVersion": "1.0.0", "name": "bridge", "plugins": [{"type": "reference-bridge", "bridge": "cni0", "isGateway": true,
"ipam": {"type": "reference-host-local", "ranges": [[{"subnet": "10.77.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
{"type": "reference-portmap", "capabilities": {"portMappings": true}}]}"#;

const PLUGINS: [&str; 3] = ["bridge", "host-local", "portmap"];
pub(crate) const SETTLE: Duration = Duration::from_secs(10);
/// How many rounds each network gets, in turns; the better round of each counts.
const ROUNDS: usize = 2;
const CONFIGURATION: &str = "/etc/cni/net.d/00-bridge.conflist";

/// How long nodes take to be ready once the reference plugin's files are installed. They are removed again: our
/// manifest is measured afterwards.
pub(crate) fn reference(bed: &Bed) -> Result<Vec<String>> {
    let all = |wanted: bool| {
        until("nodes", || -> Result<()> {
            let nodes = bed.plane.get(&["nodes"])?;
            let nodes = crate::bed::items(&nodes);
            ensure!(nodes.len() == bed.nodes.len(), "{} nodes are known", nodes.len());
            for node in nodes {
                ensure!(crate::bed::is_true(node, "Ready") == wanted, "{node}");
            }
            Ok(())
        })
    };
    all(false)?;
    let start = Instant::now();
    put_reference(bed)?;
    all(true)?;
    println!(
        "e2e: with the reference plugin, nodes are ready {:.1?} after its files are installed",
        start.elapsed()
    );
    take_reference(bed)?;
    all(false)?;
    Ok(Vec::new())
}

pub(crate) fn put_reference(bed: &Bed) -> Result<()> {
    for node in &bed.nodes {
        for plugin in PLUGINS {
            let (from, to) = (format!("/usr/lib/cni/{plugin}"), format!("/opt/cni/bin/reference-{plugin}"));
            node.machine
                .must("cp", &["--remove-destination", &from, &to])
                .context("the reference plugins")?;
        }
        // The first file in the order of names is used.
        node.machine.must("sh", &["-c", &format!("printf '%s' '{BRIDGE}' >{CONFIGURATION}")])?;
    }
    Ok(())
}

pub(crate) fn take_reference(bed: &Bed) -> Result<()> {
    for node in &bed.nodes {
        node.machine.must("rm", &["-f", CONFIGURATION])?;
    }
    Ok(())
}

/// Measures and prints.
pub(crate) fn run(bed: &mut Bed) -> Result<()> {
    let mut memory = Vec::new();
    for node in &bed.nodes {
        memory.push(resident(node)?);
    }
    bed.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})])?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(starts(bed)?);
        put_reference(bed)?;
        // containerd reads the folder on a change notification, or a moment later.
        std::thread::sleep(SETTLE);
        theirs.push(starts(bed)?);
        take_reference(bed)?;
        std::thread::sleep(SETTLE);
    }
    let better = |rounds: Vec<Vec<f64>>| {
        rounds.into_iter().min_by(|one, other| percentile(one, 50).total_cmp(&percentile(other, 50)))
    };
    let (ours, theirs) = (better(ours).unwrap_or_default(), better(theirs).unwrap_or_default());
    println!(
        "e2e: start of a pod's sandbox, {PODS} pods at once on {} nodes, the better of {ROUNDS} rounds: p50, p99",
        bed.nodes.len()
    );
    for (name, all) in [("ours", &ours), ("bridge", &theirs)] {
        println!("e2e:   {name:<7} {:>6.0} ms {:>6.0} ms", percentile(all, 50), percentile(all, 99));
    }
    for (node, processes) in bed.nodes.iter().zip(&memory) {
        let total: u64 = processes.values().sum();
        println!(
            "e2e: memory on {}: {:.1} MiB (proportional set) in {processes:?} KiB",
            node.name,
            kib(total)
        );
    }
    bed.remove(&[NAMESPACE])
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn kib(value: u64) -> f64 {
    value as f64 / 1024.0
}

/// Starts pods and waits for them; returns the time of each sandbox, in milliseconds.
fn starts(bed: &mut Bed) -> Result<Vec<f64>> {
    let before: Vec<usize> = bed.nodes.iter().map(|node| log(node).len()).collect();
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "many", "namespace": NAMESPACE},
        "spec": {"replicas": PODS, "selector": {"matchLabels": {"app": "many"}}, "template": {
            "metadata": {"labels": {"app": "many"}},
            "spec": {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "containers": [
                {"name": "it", "image": BUSYBOX, "imagePullPolicy": "Never"}]}}},
    });
    bed.apply(&[deployment])?;
    bed.settled(NAMESPACE)?;
    let mut all = Vec::new();
    for (node, before) in bed.nodes.iter().zip(before) {
        all.extend(durations(&log(node)[before..]));
    }
    ensure!(all.len() >= PODS, "containerd's logs contain only {} sandboxes", all.len());
    bed.plane.kubectl(&["delete", "deployment", "-n", NAMESPACE, "many", "--wait=true"])?;
    until("pods to go", || {
        let pods: Value = bed.plane.get(&["pods", "-n", NAMESPACE])?;
        ensure!(crate::bed::items(&pods).is_empty(), "pods are left");
        Ok(())
    })?;
    all.sort_by(f64::total_cmp);
    Ok(all)
}

pub(crate) fn log(node: &Node) -> String {
    std::fs::read_to_string(node.machine.folder().join("containerd.log")).unwrap_or_default()
}

/// The time between each call for a sandbox and its answer, in milliseconds.
pub(crate) fn durations(log: &str) -> Vec<f64> {
    let mut begun = BTreeMap::new();
    let mut found = Vec::new();
    for line in log.lines() {
        let Some(time) = line.strip_prefix("time=\"").and_then(|rest| seconds(rest.split('"').next()?))
        else {
            continue;
        };
        let Some((_, rest)) = line.split_once("RunPodSandbox for &PodSandboxMetadata{") else { continue };
        let Some((pod, rest)) = rest.split_once('}') else { continue };
        if rest.contains("returns sandbox id") {
            if let Some(start) = begun.remove(pod) {
                found.push((time - start) * 1000.0);
            }
        } else if !rest.contains("failed") {
            begun.insert(pod.to_owned(), time);
        }
    }
    found
}

/// The second of the day in a time such as `2026-11-17T09:55:41.485026931Z`.
pub(crate) fn seconds(time: &str) -> Option<f64> {
    let (_, clock) = time.trim_end_matches('Z').split_once('T')?;
    let mut parts = clock.split(':');
    let (hours, minutes, seconds): (f64, f64, f64) =
        (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(hours * 3600.0 + minutes * 60.0 + seconds)
}

/// The value below which this percentage of the sorted values is.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// Our processes on a node with their proportional set size in KiB, by command line.
fn resident(node: &Node) -> Result<BTreeMap<String, u64>> {
    let script = r#"for p in /proc/[0-9]*; do
  case "$(readlink $p/exe)" in */usr/bin/calico|*/opt/cni/bin/calico) ;; *) continue ;; esac
  grep -q calico-node $p/cmdline || grep -q . $p/cmdline || continue
  printf '%s %s\n' "$(awk '/^Pss:/ {print $2}' $p/smaps_rollup)" "$(tr '\0' ' ' <$p/cmdline)"
done"#;
    let listed = node.machine.must("sh", &["-c", script])?;
    let mut found = BTreeMap::new();
    for line in listed.lines() {
        if let Some((size, command)) = line.split_once(' ') {
            *found.entry(command.trim().to_owned()).or_insert(0) += size.parse::<u64>().unwrap_or_default();
        }
    }
    ensure!(!found.is_empty(), "nothing of ours runs on {}", node.name);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{durations, percentile};

    #[test]
    fn calls_and_answers_are_paired() {
        let log = "\
time=\"2026-11-17T09:55:41.500Z\" level=info msg=\"RunPodSandbox for &PodSandboxMetadata{Name:a,Uid:1,Attempt:0,}\"
time=\"2026-11-17T09:55:41.600Z\" level=info msg=\"RunPodSandbox for &PodSandboxMetadata{Name:b,Uid:2,Attempt:0,}\"
time=\"2026-11-17T09:55:41.900Z\" level=info msg=\"RunPodSandbox for &PodSandboxMetadata{Name:b,Uid:2,Attempt:0,} returns sandbox id \\\"x\\\"\"
time=\"2026-11-17T09:55:42.000Z\" level=error msg=\"RunPodSandbox for &PodSandboxMetadata{Name:c,Uid:3,Attempt:0,} failed, error\"
time=\"2026-11-17T09:55:42.500Z\" level=info msg=\"RunPodSandbox for &PodSandboxMetadata{Name:a,Uid:1,Attempt:0,} returns sandbox id \\\"y\\\"\"
";
        let found: Vec<String> = durations(log).into_iter().map(|it| format!("{it:.0}")).collect();
        assert_eq!(found, ["300", "1000"]);
    }

    #[test]
    fn percentiles_of_few_values() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((percentile(&values, 50), percentile(&values, 99)), (50.0, 99.0));
        assert!(percentile(&[], 50).is_nan());
    }
}
