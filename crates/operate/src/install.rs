//! `tortie install`, `upgrade` and `uninstall`: the objects of [`manifests`] on a cluster, and the record of them.
//!
//! ```text
//! options ─► manifests::all ─► plan (what exists? may we?) ─► definitions, served ─► the rest ─► wait, reporting progress
//!                                                              record: a config map with options and list of objects
//! ```
//!
//! An upgrade takes the options from the record, so that users need not remember them, and deletes objects that the new
//! version no longer has. Uninstalling removes the objects in the record, keeps the definitions and Calico's data
//! unless requested otherwise, adds no finalizer and leaves none.

mod plan;
mod record;
mod removal;

pub(crate) use plan::images;
pub(crate) use plan::{Existing, refusal};
pub use record::Record;
pub use removal::{Removal, uninstall};

use crate::cluster::{Done, Mode, Reference, Target};
use crate::rollout::progress;
use anyhow::{Context as _, Result, bail};
use manifests::{Object, Options};
use serde_json::Value;
use std::io::Write;
use std::time::{Duration, Instant};

/// How to install.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// How to write.
    pub mode: Mode,
    /// How long to wait until everything is ready; `None` to not wait.
    pub wait: Option<Duration>,
    /// Whether an existing installation is required (`upgrade`), or refused (`install`).
    pub is_upgrade: bool,
}

/// The pause between two checks while waiting.
const PAUSE: Duration = Duration::from_secs(1);

/// Installs or upgrades; reports progress on `out`.
///
/// # Errors
/// When something prevents it, is refused, or does not become ready in time.
pub async fn install(
    target: &Target,
    options: &Options,
    settings: &[(String, String)],
    how: How,
    out: &mut dyn Write,
) -> Result<()> {
    options.check()?;
    let existing = Existing::gather(target).await?;
    if let Some(refusal) = refusal(&existing, options, how.is_upgrade) {
        bail!(refusal);
    }
    let objects = manifests::all(options);
    let before = Record::read(target).await?;
    let suffix = if how.mode.dry_run { " (dry run: nothing is changed)" } else { "" };
    writeln!(out, "{}: {} objects on {}{suffix}", options.like.name(), objects.len(), target.server())?;
    let mut counts = [0_usize; 3];
    let (definitions, others): (Vec<&Object>, Vec<&Object>) =
        objects.iter().partition(|object| object.kind() == "CustomResourceDefinition");
    for object in &definitions {
        apply(target, object, how.mode, &mut counts, out).await?;
    }
    if !how.mode.dry_run {
        for object in &definitions {
            served(target, object).await?;
        }
    }
    for object in &others {
        apply(target, object, how.mode, &mut counts, out).await?;
    }
    let record = Record::new(options, settings, &objects);
    for reference in before.map(|before| before.no_longer_in(&record)).unwrap_or_default() {
        writeln!(out, "  deleted    {reference} (this version does not have it)")?;
        if !how.mode.dry_run {
            target.delete_path(&reference.path()?).await?;
        }
    }
    if !how.mode.dry_run {
        target.apply(&record.object(), Mode { force: true, ..how.mode }).await?;
    }
    writeln!(out, "{} created, {} changed, {} unchanged", counts[0], counts[1], counts[2])?;
    match how.wait {
        Some(patience) if !how.mode.dry_run => {
            wait(target, &others, patience, out).await?;
            claim_version(target, out).await
        }
        _ => Ok(()),
    }
}

/// Writes our version to the ClusterInformation if all nodes are ours. Nodes do not write it themselves, because in a
/// mixed cluster the last one to start would win, and Calico's calicoctl refuses any version but its own.
async fn claim_version(target: &Target, out: &mut dyn Write) -> Result<()> {
    let path = "/apis/crd.projectcalico.org/v1/clusterinformations/default";
    let Some(information) = target.look(path).await? else { return Ok(()) };
    let (is, ours) =
        (information["spec"]["calicoVersion"].as_str().unwrap_or_default(), api::words::CALICO_VERSION);
    if is != ours {
        target.patch_path(path, &serde_json::json!({"spec": {"calicoVersion": ours}})).await?;
        writeln!(
            out,
            "the cluster's calicoVersion is {ours} now{}",
            if is.is_empty() { String::new() } else { format!("; it was {is}") }
        )?;
    }
    Ok(())
}

async fn apply(
    target: &Target,
    object: &Object,
    mode: Mode,
    counts: &mut [usize; 3],
    out: &mut dyn Write,
) -> Result<()> {
    let done = target.apply(&object.value, mode).await?;
    let (place, word) = match done {
        Done::Created => (0, "created"),
        Done::Changed => (1, "changed"),
        Done::Unchanged => (2, ""),
    };
    counts[place] += 1;
    if done != Done::Unchanged {
        writeln!(out, "  {word:<10} {}", Reference::of(&object.value))?;
    }
    Ok(())
}

/// Waits until a definition is served: objects of its kind are refused before that.
async fn served(target: &Target, object: &Object) -> Result<()> {
    let reference = Reference::of(&object.value);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let now = target.get(&reference).await?.with_context(|| format!("{reference} disappeared again"))?;
        if condition(&now, "Established") {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{reference} is not served after 60 s: look at its conditions with kubectl describe");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Whether a condition of an object is true.
#[must_use]
pub(crate) fn condition(object: &Value, name: &str) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == name && condition["status"] == "True")
}

/// Waits until workloads are ready, and reports progress whenever it changes.
///
/// # Errors
/// When they do not become ready in time; the message names the reason.
pub async fn wait(
    target: &Target,
    objects: &[&Object],
    patience: Duration,
    out: &mut dyn Write,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    for object in objects.iter().filter(|object| ["DaemonSet", "Deployment"].contains(&object.kind())) {
        let reference = Reference::of(&object.value);
        let label =
            object.value.pointer("/metadata/labels/k8s-app").and_then(Value::as_str).unwrap_or_default();
        let mut told = String::new();
        loop {
            let workload = target.get(&reference).await?.with_context(|| format!("{reference} is gone"))?;
            let pods = target
                .list(&format!(
                    "/api/v1/namespaces/{}/pods?labelSelector=k8s-app%3D{label}",
                    reference.namespace
                ))
                .await?;
            let progress = progress(&workload, &pods);
            if progress.text != told {
                writeln!(out, "  {}", progress.text)?;
                told.clone_from(&progress.text);
            }
            if progress.is_done {
                break;
            }
            if Instant::now() > deadline {
                bail!(
                    "not ready after {} s: {told}. Everything is applied; look again with `tortie status --wait`",
                    patience.as_secs()
                );
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}
