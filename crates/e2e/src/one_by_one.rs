//! How long a pod takes from its creation until its container runs, one pod after another, with our plugins and with
//! the reference ones on the same nodes: a hundred pods at once on two processors would measure the processors.
//!
//! A pod counts as created when a watch reports it, and as running when containerd reports that its container was
//! started. The kubelet reports it up to a second later, because it checks once per second, whatever the network.

use crate::bed::{Bed, items};
use crate::figures::{SETTLE, durations, log, percentile, put_reference, seconds, take_reference};
use crate::images::BUSYBOX;
use crate::waiting::until;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const NAMESPACE: &str = "e2e-one-by-one";
/// The number of turns of each network, and of pods per turn.
const ROUNDS: usize = 4;
const PODS: usize = 25;
const PATIENCE: Duration = Duration::from_secs(60);
/// Seconds of a day.
const DAY: f64 = 86_400.0;

/// The times of one network's pods, in milliseconds.
#[derive(Debug, Default)]
struct Times {
    created_to_started: Vec<f64>,
    sandbox: Vec<f64>,
}

/// Measures and prints.
pub(crate) fn run(bed: &mut Bed) -> Result<()> {
    bed.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})])?;
    let (mut ours, mut theirs) = (Times::default(), Times::default());
    let watch = Watch::start(bed)?;
    for round in 0..ROUNDS {
        starts(bed, &watch, round * 2, &mut ours)?;
        put_reference(bed)?;
        // containerd reads the folder on a change notification, or a moment later.
        std::thread::sleep(SETTLE);
        starts(bed, &watch, round * 2 + 1, &mut theirs)?;
        take_reference(bed)?;
        std::thread::sleep(SETTLE);
    }
    drop(watch);
    println!("e2e: pods one after the other, {} of each network in {ROUNDS} turns: p50, p99", ROUNDS * PODS);
    for (name, times) in [("ours", &mut ours), ("bridge", &mut theirs)] {
        for (what, all) in
            [("created to started", &mut times.created_to_started), ("of it the sandbox", &mut times.sandbox)]
        {
            all.sort_by(f64::total_cmp);
            println!(
                "e2e:   {name:<7} {what:<19} {:>6.0} ms {:>6.0} ms",
                percentile(all, 50),
                percentile(all, 99)
            );
        }
    }
    bed.remove(&[NAMESPACE])
}

/// Starts pods, each when the previous one runs, and removes them all.
fn starts(bed: &Bed, watch: &Watch, round: usize, times: &mut Times) -> Result<()> {
    let before: Vec<usize> = bed.nodes.iter().map(|node| log(node).len()).collect();
    for number in 0..PODS {
        let node = &bed.nodes[number % bed.nodes.len()];
        let name = format!("pod-{round}-{number}");
        let logged = log(node).len();
        bed.apply(&[json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"nodeName": node.name, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "containers": [{"name": "it", "image": BUSYBOX, "imagePullPolicy": "Never"}]}})])?;
        let created = watch.created(&name)?;
        let started = until(&format!("{name} to run"), || {
            started(&log(node)[logged..]).context("containerd has not started its container")
        })?;
        // Past midnight, the later time has the smaller number.
        times.created_to_started.push((started - created).rem_euclid(DAY) * 1000.0);
    }
    let known = times.sandbox.len();
    for (node, before) in bed.nodes.iter().zip(before) {
        times.sandbox.extend(durations(&log(node)[before..]));
    }
    let found = times.sandbox.len() - known;
    ensure!(found == PODS, "containerd's logs contain {found} sandboxes, not {PODS}");
    bed.plane.kubectl(&["delete", "pods", "-n", NAMESPACE, "--all", "--wait=true"])?;
    until("pods to go", || {
        let pods = bed.plane.get(&["pods", "-n", NAMESPACE])?;
        ensure!(items(&pods).is_empty(), "pods are left");
        Ok(())
    })
}

/// When the first container in a log was started, in seconds of the day.
fn started(log: &str) -> Option<f64> {
    let line = log
        .lines()
        .find(|line| line.contains("StartContainer for") && line.contains("returns successfully"))?;
    seconds(line.strip_prefix("time=\"")?.split('"').next()?)
}

/// A watch on the namespace's pods: each name with the time at which it was first reported.
struct Watch {
    process: Child,
    heard: Receiver<(String, f64)>,
}

impl Watch {
    fn start(bed: &Bed) -> Result<Self> {
        let printed = r#"jsonpath={.metadata.name}{"\n"}"#;
        let words = ["get", "pods", "-n", NAMESPACE, "--watch-only", "-o", printed];
        let mut command = bed.plane.kubectl_command(&words)?;
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("running kubectl")?;
        let output = process.stdout.take().context("the requested pipe")?;
        let (sender, heard) = channel();
        std::thread::spawn(move || {
            for name in BufReader::new(output).lines().map_while(Result::ok) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
                if sender.send((name, now.rem_euclid(DAY))).is_err() {
                    return;
                }
            }
        });
        // Without output there is no sign that the watch has begun; a pod that is created earlier would never be
        // reported.
        std::thread::sleep(Duration::from_secs(2));
        Ok(Self { process, heard })
    }

    /// When this pod was first reported.
    fn created(&self, name: &str) -> Result<f64> {
        loop {
            let (heard, time) =
                self.heard.recv_timeout(PATIENCE).with_context(|| format!("the watch on {name}"))?;
            if heard == name {
                return Ok(time);
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::started;

    #[test]
    fn the_first_start_counts() {
        let log = "\
time=\"2026-11-17T00:00:01Z\" level=info msg=\"StartContainer for \\\"x\\\"\"
time=\"2026-11-17T00:00:02.5Z\" level=info msg=\"StartContainer for \\\"x\\\" returns successfully\"
time=\"2026-11-17T00:00:03Z\" level=info msg=\"StartContainer for \\\"y\\\" returns successfully\"
";
        assert_eq!(started(log), Some(2.5));
        assert_eq!(started("nothing"), None);
    }
}
