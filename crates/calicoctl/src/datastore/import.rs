//! `calicoctl datastore migrate import`: stores the contents of an exported file in a datastore of any type.
//!
//! First everything is read and compared ([`plan`]), then everything is written ([`apply`]): a file with a mistake, or
//! a datastore with other data in it, is refused before anything is changed. Objects that already equal those in the
//! file are kept, so an interrupted import can simply be run again. The datastore stays locked; by unlocking it, the
//! user confirms that all components use it.

mod apply;
mod plan;

use super::ImportArgs;
use super::{bundle, lock};
use crate::context::Context;
use crate::failure::{Failure, Result};
use api::{ClusterInformation, ClusterInformationSpec};
use client::Client;
use std::io::Read as _;
use std::path::Path;

/// Runs the command.
///
/// # Errors
/// When the file or the datastore is not in the required state, or writing fails.
pub(crate) async fn run(args: &ImportArgs, context: &mut Context) -> Result<()> {
    let (name, text) = read(&args.filename, context)?;
    let bundle = bundle::read(&name, &text)?;
    let client = context.connect_to_write(&args.config).await?;
    client.backend().install().await.map_err(|error| {
        Failure::new(format!("error applying the CRDs necessary to begin datastore import: {error}"))
    })?;
    let information = bundle.cluster_information.clone();
    let plan = plan::make(&client, bundle).await?;
    for notice in &plan.notices {
        context.warn(notice);
    }
    if !args.force {
        refuse_conflicts(&plan.conflicts)?;
    }
    client.ensure_initialized("", "").await.map_err(|error| {
        Failure::new(format!("unable to initialize cluster information for the datastore migration: {error}"))
    })?;
    if !lock::is_locked(&client).await? {
        lock::lock(&client, context).await?;
    }
    apply::resources(&client, &plan.steps, context).await?;
    update_cluster_information(&client, &information).await?;
    apply::address_management(&client, &plan.entries, context).await?;
    context.print(
        "Datastore information successfully imported. Point every component at this datastore, then run `calicoctl \
         datastore migrate unlock`.\n",
    )
}

fn read(file: &Path, context: &mut Context) -> Result<(String, String)> {
    let failed = |name: &str, error: std::io::Error| {
        Failure::new(format!("error while reading migration file: {name}: {error}"))
    };
    let mut text = String::new();
    if file == Path::new("-") {
        let name = "standard input".to_owned();
        context.surroundings.stdin.read_to_string(&mut text).map_err(|error| failed(&name, error))?;
        return Ok((name, text));
    }
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| failed(&name, error))?;
    Ok((name, text))
}

/// How many conflicts are listed; the rest are counted.
const LISTED: usize = 20;

fn refuse_conflicts(conflicts: &[String]) -> Result<()> {
    if conflicts.is_empty() {
        return Ok(());
    }
    let mut message = "datastore already has Calico resources:".to_owned();
    for conflict in conflicts.iter().take(LISTED) {
        message.push_str(&format!("\n  {conflict}"));
    }
    if conflicts.len() > LISTED {
        message.push_str(&format!("\n  and {} more", conflicts.len() - LISTED));
    }
    message.push_str(
        "\nNothing was changed. Clear out all Calico resources first, or use --force to overwrite what differs from the \
         file and to leave what is not in it.",
    );
    Err(Failure::new(message))
}

/// Moves the identity of the cluster together with its data.
async fn update_cluster_information(client: &Client, file: &ClusterInformation) -> Result<()> {
    let is_kubernetes = client.backend().is_kubernetes();
    let outcome = client
        .resource::<ClusterInformationSpec>()
        .update_with_retry("", api::words::GLOBAL_NAME, |information| {
            let before = information.spec.clone();
            let spec = &mut information.spec;
            file.spec.cluster_guid.clone_into(&mut spec.cluster_guid);
            file.spec.calico_version.clone_into(&mut spec.calico_version);
            if !file.spec.variant.is_empty() {
                file.spec.variant.clone_into(&mut spec.variant);
            }
            spec.cluster_type = cluster_type(&file.spec.cluster_type, is_kubernetes);
            for (name, value) in &file.spec.extra {
                spec.extra.entry(name.clone()).or_insert_with(|| value.clone());
            }
            *spec != before
        })
        .await;
    outcome.map(|_| ()).map_err(|error| {
        Failure::new(format!(
            "failed to update cluster information: error updating current cluster info for migration: {error}"
        ))
    })
}

/// The cluster type, with the word for the Kubernetes datastore exactly where it applies.
fn cluster_type(words: &str, is_kubernetes: bool) -> String {
    let mut words: Vec<&str> = words.split(',').filter(|word| !word.is_empty() && *word != "kdd").collect();
    if is_kubernetes {
        words.push("kdd");
    }
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_type_names_the_new_datastore() {
        for (words, is_kubernetes, expected) in [
            ("k8s,bgp", true, "k8s,bgp,kdd"),
            ("k8s,bgp,kdd", false, "k8s,bgp"),
            ("k8s,kdd,bgp", true, "k8s,bgp,kdd"),
            ("", true, "kdd"),
            ("", false, ""),
        ] {
            assert_eq!(cluster_type(words, is_kubernetes), expected, "{words}");
        }
    }

    #[test]
    fn conflicts_are_listed_and_counted() {
        assert_eq!(refuse_conflicts(&[]), Ok(()));
        let conflicts: Vec<String> =
            (0..25).map(|number| format!("IPPool(p{number}) is not in the file")).collect();
        let failure = refuse_conflicts(&conflicts).expect_err("conflicts");
        assert!(
            failure
                .message()
                .contains("\n  IPPool(p19) is not in the file\n  and 5 more\nNothing was changed.")
        );
    }
}
