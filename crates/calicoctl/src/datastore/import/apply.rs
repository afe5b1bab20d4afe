//! Writes what an import has to write: one kind after another, many objects of a kind at a time.

use super::plan::{Action, EntryAction, EntryStep, Step, is_built_in};
use crate::context::Context;
use crate::datastore::sameness;
use crate::failure::{Failure, Result};
use ::explain::counted;
use api::kind::KubernetesForm;
use api::{Kind, Resource};
use client::{Client, Error};
use futures::StreamExt as _;
use model::Key;

/// How many writes may be in flight at once.
const AT_ONCE: usize = 16;

const AGAIN: &str = "What was stored stays: repair the cause and run the same import again.";

/// Why one object was not written.
struct Trouble {
    reason: String,
    /// Whether the datastore itself fails: then the other objects would fail as well, each after a wait.
    is_general: bool,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self { is_general: error.is_transient(), reason: Failure::from(error).message().to_owned() }
    }
}

impl From<serde_json::Error> for Trouble {
    fn from(error: serde_json::Error) -> Self {
        Self { reason: error.to_string(), is_general: false }
    }
}

/// Waits for writes, several at once, and collects their failures. Stops early when no further write can succeed.
async fn finish<F>(writes: impl Iterator<Item = (Key, F)>, errors: &mut Vec<String>) -> bool
where
    F: Future<Output = std::result::Result<(), Trouble>>,
{
    let writes = futures::stream::iter(writes.map(|(key, write)| async move { (key, write.await) }));
    let mut outcomes = std::pin::pin!(writes.buffered(AT_ONCE));
    while let Some((key, outcome)) = outcomes.next().await {
        if let Err(trouble) = outcome {
            errors.push(format!("{key}: {}", trouble.reason));
            if trouble.is_general {
                return false;
            }
        }
    }
    true
}

/// Writes the resources.
pub(super) async fn resources(client: &Client, steps: &[Step], context: &mut Context) -> Result<()> {
    let mut errors = Vec::new();
    for group in steps.chunk_by(|one, other| one.resource.kind() == other.resource.kind()) {
        if context.surroundings.progress
            && let [first, ..] = group
        {
            context.warn(&format!("Importing {} '{}' resource(s)", group.len(), first.resource.kind()));
        }
        if !finish(group.iter().map(|step| (key(step), write(client, step))), &mut errors).await {
            break;
        }
    }
    if !errors.is_empty() {
        return Err(Failure::new(format!(
            "failed to import v3 resources: hit error(s):\n  {}\n{AGAIN}",
            errors.join("\n  ")
        )));
    }
    let kept = steps.iter().filter(|step| matches!(step.action, Action::Keep(_))).count();
    if kept > 0 {
        context.warn(&format!("{} already stored, as in the file", were(kept, "resource")));
    }
    let first: Option<Kind> = steps.first().map(|step| step.resource.kind());
    let kind = match first {
        Some(kind) if steps.iter().all(|step| step.resource.kind() == kind) => format!("'{kind}' "),
        _ => String::new(),
    };
    context.print(&format!("Successfully applied {} {kind}resource(s)\n", steps.len()))
}

fn key(step: &Step) -> Key {
    Key::resource(step.resource.kind(), step.resource.namespace(), step.resource.name())
}

async fn write(client: &Client, step: &Step) -> std::result::Result<(), Trouble> {
    let wanted = &step.resource;
    let stored = match &step.action {
        Action::Create => create(client, wanted).await?,
        Action::Keep(existing) => existing.clone(),
        Action::Replace(existing) => replace(client, wanted, existing).await?,
    };
    let Some(status) = sameness::status(wanted)? else { return Ok(()) };
    let has_status = match wanted.kind().info().kubernetes {
        KubernetesForm::CustomResource { status, .. } => status,
        KubernetesForm::Native => false,
    };
    if (client.backend().is_kubernetes() && !has_status)
        || sameness::status(&stored)?.as_ref() == Some(&status)
    {
        return Ok(());
    }
    let mut value = serde_json::to_value(&stored)?;
    value["status"] = status;
    client.update_status_any(Resource::from_value(stored.kind(), value)?).await?;
    Ok(())
}

/// Creates a resource that did not exist when the import was planned. The built-in tiers may have been created since
/// then.
async fn create(client: &Client, wanted: &Resource) -> std::result::Result<Resource, Trouble> {
    let error = match client.create_any(wanted.clone()).await {
        Err(error) if error.is_already_exists() => error,
        outcome => return Ok(outcome?),
    };
    let existing = client.get_any(wanted.kind(), wanted.namespace(), wanted.name(), None).await?;
    if sameness::essence(wanted)? == sameness::essence(&existing)? {
        return Ok(existing);
    }
    if is_built_in(&existing) { replace(client, wanted, &existing).await } else { Err(error.into()) }
}

async fn replace(
    client: &Client,
    wanted: &Resource,
    existing: &Resource,
) -> std::result::Result<Resource, Trouble> {
    let mut resource = wanted.clone();
    let (metadata, current) = (resource.metadata_mut(), existing.metadata());
    current.resource_version.clone_into(&mut metadata.resource_version);
    current.uid.clone_into(&mut metadata.uid);
    metadata.creation_timestamp.clone_from(&current.creation_timestamp);
    Ok(client.update_any(resource).await?)
}

/// Writes the entries of address management.
pub(super) async fn address_management(
    client: &Client,
    steps: &[EntryStep],
    context: &mut Context,
) -> Result<()> {
    context.print("Importing IPAM resources\n")?;
    if steps.is_empty() {
        context.warn("The file holds no IPAM resources.");
        return Ok(());
    }
    let mut errors = Vec::new();
    // Claims before blocks before handles; steps of one type are adjacent.
    let sort = |step: &EntryStep| std::mem::discriminant(&step.entry.key);
    for group in steps.chunk_by(|one, other| sort(one) == sort(other)) {
        let writes = group.iter().map(|step| (step.entry.key.clone(), write_entry(client, step)));
        if !finish(writes, &mut errors).await {
            break;
        }
    }
    if !errors.is_empty() {
        return Err(Failure::new(format!("hit error(s):\n  {}\n{AGAIN}", errors.join("\n  "))));
    }
    let kept = steps.iter().filter(|step| step.action == EntryAction::Keep).count();
    if kept > 0 {
        context.warn(&format!("{} already stored, as in the file", were(kept, "IPAM resource")));
    }
    context.print(&format!("Successfully applied {} IPAM resource(s)\n", steps.len()))
}

async fn write_entry(client: &Client, step: &EntryStep) -> std::result::Result<(), Trouble> {
    let backend = client.backend();
    match step.action {
        EntryAction::Create => backend.create(&step.entry).await.map(drop)?,
        EntryAction::Keep => {}
        EntryAction::Replace => backend.apply(&step.entry).await.map(drop)?,
    }
    Ok(())
}
/// A count and its noun, with "was" or "were".
fn were(number: usize, noun: &str) -> String {
    format!("{} {}", counted(number, noun), if number == 1 { "was" } else { "were" })
}
