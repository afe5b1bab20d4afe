//! Uninstalling: lists what would be deleted first; deletes Calico's data only on request, and leaves no finalizer that
//! would keep something half deleted.

use super::plan::Existing;
use super::record::Record;
use crate::cluster::{Reference, Target};
use anyhow::{Result, bail};
use explain::counted;
use serde_json::Value;
use std::io::Write;
use std::time::{Duration, Instant};

/// What to remove.
#[derive(Clone, Copy, Debug, Default)]
pub struct Removal {
    /// Whether nothing is changed.
    pub dry_run: bool,
    /// Whether to delete the definitions, too, and with them every pool, policy and address.
    pub delete_data: bool,
    /// Whether the user has confirmed the deletion.
    pub is_agreed: bool,
}

/// How long deletions may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Uninstalls; reports progress on `out`.
///
/// # Errors
/// When the deletion was not confirmed, or the server refuses.
pub async fn uninstall(target: &Target, removal: Removal, out: &mut dyn Write) -> Result<()> {
    let existing = Existing::gather(target).await?;
    let objects = match Record::read(target).await? {
        Some(record) => record.objects.into_iter().collect(),
        None => match existing.daemon_sets.first() {
            None => Vec::new(),
            // It may be Calico itself.
            Some((name, images)) => bail!(
                "the daemon set {name} ({}) was not installed by `tortie install`, and is not deleted by this: use kubectl or Helm \
                 if they installed it",
                images.join(", ")
            ),
        },
    };
    let mut ordered = present(target, objects).await?;
    // Workloads go first, so that none runs without its rights; the record goes last, so that an interrupted removal
    // can continue.
    ordered.sort_by_key(|reference| {
        (!["DaemonSet", "Deployment"].contains(&reference.kind.as_str()), reference.clone())
    });
    if target.get(&Record::reference()).await?.is_some() {
        ordered.push(Record::reference());
    }
    let definitions = if removal.delete_data { definitions(target).await? } else { Vec::new() };
    if ordered.is_empty() && definitions.is_empty() {
        writeln!(out, "nothing to uninstall on {}", target.server())?;
        return Ok(());
    }
    writeln!(out, "on {}, these are deleted:", target.server())?;
    for reference in &ordered {
        writeln!(out, "  {reference}")?;
    }
    for (name, count, _) in &definitions {
        writeln!(out, "  CustomResourceDefinition {name}, with {}", counted(*count, "object"))?;
    }
    if !removal.delete_data {
        writeln!(out, "definitions and Calico's data stay; --delete-data deletes them too")?;
    }
    if removal.dry_run {
        return Ok(());
    }
    if !removal.is_agreed {
        bail!("nothing was deleted: pass --yes");
    }
    for reference in &ordered {
        remove(target, &reference.path()?, &reference.to_string(), out).await?;
    }
    for (name, _, path) in &definitions {
        for object in target.list(path).await? {
            // A finalizer whose owner no longer exists would keep the definition forever.
            let own = own_path(path, &object);
            if object
                .pointer("/metadata/finalizers")
                .and_then(Value::as_array)
                .is_some_and(|list| !list.is_empty())
            {
                writeln!(out, "  finalizers of {own} are removed")?;
                target.strip_finalizers(&own).await?;
            }
        }
        let reference = Reference::new("CustomResourceDefinition", "", name);
        remove(target, &reference.path()?, &reference.to_string(), out).await?;
    }
    writeln!(
        out,
        "deleted. These stay on each node until it is rebooted or cleaned: the CNI configuration in /etc/cni/net.d, the plugins in \
         /opt/cni/bin, interfaces and rules of Calico"
    )?;
    Ok(())
}

async fn present(target: &Target, objects: Vec<Reference>) -> Result<Vec<Reference>> {
    let mut found = Vec::new();
    for reference in objects {
        if target.get(&reference).await?.is_some() {
            found.push(reference);
        }
    }
    Ok(found)
}

/// The existing definitions of Calico's kinds, with the number and path of their objects.
async fn definitions(target: &Target) -> Result<Vec<(String, usize, String)>> {
    let mut found = Vec::new();
    for definition in api::crds::all() {
        let reference = Reference::of(&definition);
        if target.get(&reference).await?.is_none() {
            continue;
        }
        let text = |place: &str| definition.pointer(place).and_then(Value::as_str).unwrap_or_default();
        let path = format!("/apis/{}/v1/{}", text("/spec/group"), text("/spec/names/plural"));
        let count = target.list(&path).await?.len();
        found.push((reference.name, count, path));
    }
    Ok(found)
}

fn own_path(collection: &str, object: &Value) -> String {
    let text = |place: &str| object.pointer(place).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    match (namespace, collection.rsplit_once('/')) {
        ("", _) | (_, None) => format!("{collection}/{name}"),
        (_, Some((prefix, plural))) => format!("{prefix}/namespaces/{namespace}/{plural}/{name}"),
    }
}

/// Deletes an object, and waits until it is gone; removes its finalizers if they hold it back.
async fn remove(target: &Target, path: &str, title: &str, out: &mut dyn Write) -> Result<()> {
    target.delete_path(path).await?;
    let deadline = Instant::now() + PATIENCE;
    let mut is_stripped = false;
    loop {
        let Some(object) = target.look(path).await? else { return Ok(()) };
        // It was created again: do not wait for the new object.
        if object.pointer("/metadata/deletionTimestamp").is_none() {
            return Ok(());
        }
        let finalizers: Vec<&str> = object
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            // The server's own finalizer, which it removes when all objects of the kind are gone.
            .filter(|name| *name != "customresourcecleanup.apiextensions.k8s.io")
            .collect();
        if !finalizers.is_empty() && !is_stripped {
            writeln!(out, "  finalizers of {title} are removed: {}", finalizers.join(", "))?;
            target.strip_finalizers(path).await?;
            is_stripped = true;
        }
        if Instant::now() > deadline {
            bail!("{title} is still being deleted after {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
