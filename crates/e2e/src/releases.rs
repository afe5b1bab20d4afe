//! Manifests of several releases applied over each other on one cluster, each with only its `image:` lines changed,
//! like users who upgrade from release to release: after each of them everything runs, new pods start, and policy
//! holds.

use crate::bed::{Bed, items, name};
use crate::checks;
use crate::manifest::{OURS, with_images};
use crate::waiting::until;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Checks the installation of the first file, then applies and checks each of the others.
pub(crate) fn run(bed: &mut Bed, files: &[PathBuf]) -> Result<()> {
    for (index, file) in files.iter().enumerate() {
        let start = Instant::now();
        if index > 0 {
            apply(bed, file).with_context(|| file.display().to_string())?;
            bed.without_missing_tunnels()?;
        }
        checks::run_brief(bed).with_context(|| file.display().to_string())?;
        println!("e2e: {} holds ({:.0?})", file.display(), start.elapsed());
    }
    Ok(())
}

/// Applies a manifest over the previous one, and waits until every pod is from the new one.
fn apply(bed: &mut Bed, file: &Path) -> Result<()> {
    let text = std::fs::read_to_string(file).context("reading it")?;
    let words = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    bed.plane.kubectl_with_input(&words, &with_images(&text, OURS))?;
    until("everything to be rolled out", || -> Result<()> {
        for owner in items(&bed.plane.get(&["daemonsets,deployments", "-n", "kube-system"])?) {
            ensure!(is_rolled_out(owner), "{}: {}", name(owner), owner["status"]);
        }
        Ok(())
    })?;
    bed.settled("kube-system")
}

/// Whether all pods of a daemon set or a deployment match its current template.
fn is_rolled_out(owner: &Value) -> bool {
    let status = &owner["status"];
    let (wanted, new) = if owner["kind"] == "DaemonSet" {
        (&status["desiredNumberScheduled"], &status["updatedNumberScheduled"])
    } else {
        (&owner["spec"]["replicas"], &status["updatedReplicas"])
    };
    status["observedGeneration"] == owner["metadata"]["generation"]
        && wanted.as_u64() > Some(0)
        && wanted == new
}

#[cfg(test)]
mod tests {
    use super::is_rolled_out;
    use serde_json::json;

    #[test]
    fn old_pods_are_not_enough() {
        let daemon_set = |generation: u64, updated: u64| {
            json!({"kind": "DaemonSet", "metadata": {"generation": generation}, "status": {
                "observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": updated, "numberReady": 2}})
        };
        assert!(is_rolled_out(&daemon_set(2, 2)));
        assert!(!is_rolled_out(&daemon_set(2, 1)));
        assert!(!is_rolled_out(&daemon_set(3, 2)));
    }
}
