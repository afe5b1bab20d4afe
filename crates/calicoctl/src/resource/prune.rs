//! `apply --prune`: deletes objects that an earlier apply of the same set wrote and the files no longer contain.
//!
//! An apply with `--applyset NAME` marks what it writes with an annotation: unlike a label, no policy can select by it.
//! Only objects with the mark of exactly this set are ever candidates, each in exactly the version that was read.
//! Objects that Calico or Kubernetes creates by itself are never pruned, whatever their marks; neither is a pool with
//! addresses in use. A plain apply or replace of an object removes the mark, and with it the object from the set.

use super::labels::Labels;
use super::operations::{self, Refusal};
use super::pipeline;
use super::target::Identity;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::kinds::KINDS;
use api::words;
use api::{Kind, Resource};
use client::{Client, ListQuery};
use futures::StreamExt as _;
use ipnet::IpNet;
use model::{ListOptions, Value};
use std::collections::BTreeSet;

/// The annotation that names the set of an object.
pub(crate) const MARK: &str = "calicoctl/applyset";

/// The maximum length of a set's name.
const LONGEST_NAME: usize = 63;

/// How many kinds are listed at once.
const PARALLEL: usize = 8;

/// The flags of commands that support sets.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct PruneFlags {
    /// Mark the resources as members of this set, by the annotation calicoctl/applyset.
    #[arg(long, value_name = "NAME")]
    pub applyset: Option<String>,
    /// Also delete resources that an earlier apply of the set wrote and the files no longer contain. Resources without
    /// the mark of the set, and those that Calico or Kubernetes creates by itself, are never touched.
    #[arg(long, requires = "applyset")]
    pub prune: bool,
    /// Only resources with these labels, of the files and of the set: app=web,tier!=db,env in (a,b), or a selector of
    /// Calico's language.
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
}

impl PruneFlags {
    /// The validated name of the set.
    ///
    /// # Errors
    /// When it is not a valid name.
    pub(crate) fn set(&self) -> Result<Option<&str>> {
        let Some(name) = self.applyset.as_deref() else { return Ok(None) };
        let is_fine = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_fine) {
            return Err(Failure::new(format!(
                "'{name}' is not a name for a set: up to {LONGEST_NAME} letters, digits, dashes, dots and underscores"
            )));
        }
        Ok(Some(name))
    }
}

/// Marks an object as a member of a set.
pub(crate) fn mark(resource: &mut Resource, set: &str) {
    resource.metadata_mut().annotations.insert(MARK.to_owned(), set.to_owned());
}

/// The reason why an object is never pruned; `None` if it may be.
fn protected(resource: &Resource) -> Option<&'static str> {
    let (kind, name) = (resource.kind(), resource.name());
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let made_by_kubernetes = "Kubernetes derives it from one of its own objects";
    let made_by_calico = "Calico creates it by itself";
    if !resource.metadata().owner_references.is_empty() {
        return Some("it has an owner");
    }
    match kind {
        Kind::ClusterInformation => Some(made_by_calico),
        Kind::Node | Kind::WorkloadEndpoint => Some(made_by_kubernetes),
        Kind::Tier if matches!(name, words::DEFAULT_TIER | words::ADMIN_TIER | words::BASELINE_TIER) => {
            Some(made_by_calico)
        }
        Kind::Tier if matches!(name, "adminnetworkpolicy" | "baselineadminnetworkpolicy") => {
            Some(made_by_calico)
        }
        Kind::Profile
            if starts(&[words::NAMESPACE_PROFILE_PREFIX, words::SERVICE_ACCOUNT_PROFILE_PREFIX]) =>
        {
            Some(made_by_kubernetes)
        }
        Kind::Profile if starts(&["projectcalico-default-"]) => Some(made_by_calico),
        Kind::NetworkPolicy | Kind::GlobalNetworkPolicy
            if starts(&["knp.default.", "kcnp.", "kanp.", "kbanp."]) =>
        {
            Some(made_by_kubernetes)
        }
        Kind::HostEndpoint if resource.metadata().labels.contains_key(words::LABEL_CREATED_BY) => {
            Some(made_by_calico)
        }
        Kind::BGPConfiguration
        | Kind::FelixConfiguration
        | Kind::IPAMConfiguration
        | Kind::KubeControllersConfiguration
            if name == words::GLOBAL_NAME =>
        {
            Some(made_by_calico)
        }
        _ => None,
    }
}

/// Objects that would be pruned, and marked objects that stay, with the reason.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// Objects to delete.
    pub doomed: Vec<Resource>,
    /// Objects to keep, with the reason.
    pub kept: Vec<(Identity, &'static str)>,
    /// Kinds that could not be listed, with the reason.
    pub unlisted: Vec<String>,
}

/// Kinds that are never pruned; some have very many objects.
const NEVER: [Kind; 3] = [Kind::ClusterInformation, Kind::Node, Kind::WorkloadEndpoint];

/// Finds members of the set that are not among `present`. Kinds that this user may not list are not pruned, but
/// reported.
///
/// # Errors
/// When the datastore fails.
pub(crate) async fn candidates(
    client: &Client,
    set: &str,
    labels: &Labels,
    present: &BTreeSet<Identity>,
) -> Result<Candidates> {
    // Kubernetes' profiles are derived from its own objects; users cannot write them.
    let is_kubernetes = client.backend().is_kubernetes();
    let kinds: Vec<Kind> = KINDS
        .iter()
        .map(|entry| entry.kind)
        .filter(|kind| !NEVER.contains(kind) && (*kind != Kind::Profile || !is_kubernetes))
        .collect();
    let requests = kinds.iter().map(|kind| async move { client.list_any(*kind, &ListQuery::all()).await });
    let lists: Vec<_> = futures::stream::iter(requests).buffered(PARALLEL).collect().await;
    let mut found = Candidates::default();
    for (kind, list) in kinds.iter().zip(lists) {
        let items = match list {
            Ok(list) => list.items,
            // A cluster without the definition of a kind has no objects of that kind.
            Err(error) if error.is_does_not_exist() => continue,
            Err(error @ client::Error::Unauthorized { .. }) => {
                found.unlisted.push(format!("{kind} objects are not pruned: {error}"));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for resource in items {
            let identity = Identity::of(&resource);
            let is_member = resource.metadata().annotations.get(MARK).is_some_and(|name| name == set);
            if !is_member || present.contains(&identity) || !labels.select(&resource) {
                continue;
            }
            match protected(&resource) {
                Some(reason) => found.kept.push((identity, reason)),
                None => found.doomed.push(resource),
            }
        }
    }
    if found.doomed.iter().any(|resource| resource.kind() == Kind::IPPool) {
        let used = used_blocks(client).await?;
        let (pools, others): (Vec<_>, Vec<_>) =
            found.doomed.into_iter().partition(|resource| is_in_use(resource, &used));
        found.doomed = others;
        found.kept.extend(pools.iter().map(|pool| (Identity::of(pool), "addresses of it are in use")));
    }
    Ok(found)
}

/// The blocks that contain allocated addresses.
async fn used_blocks(client: &Client) -> Result<Vec<IpNet>> {
    let list = client.backend().list(&ListOptions::Block { ip_version: None }, None).await?;
    let used = list.items.into_iter().filter_map(|entry| match entry.value {
        Value::Block(block) if block.allocations.iter().any(Option::is_some) => Some(block.cidr),
        _ => None,
    });
    // A block that cannot be read may be in use.
    let unreadable = list.invalid.into_iter().filter_map(|entry| match entry.parsed_key {
        Some(model::Key::Block { cidr }) => Some(cidr),
        _ => None,
    });
    Ok(used.chain(unreadable).collect())
}

fn is_in_use(resource: &Resource, used: &[IpNet]) -> bool {
    let Resource::IPPool(pool) = resource else { return false };
    match pool.spec.cidr.parse() {
        Ok(cidr) => used.iter().any(|block| cidr.masked().contains(block)),
        Err(_) => true,
    }
}

/// Deletes the candidates, each in the version that was read, and reports it.
///
/// # Errors
/// When some objects could not be deleted.
pub(crate) async fn delete(
    client: &Client,
    found: &Candidates,
    parallel: usize,
    context: &mut Context,
) -> Result<()> {
    report_kept(found, context);
    let identities: Vec<Identity> = found.doomed.iter().map(Identity::of).collect();
    let slots = &found.doomed;
    let outcomes: Vec<std::result::Result<(), Refusal>> =
        pipeline::run(context, &identities, pipeline::Direction::Deleting, parallel, |index| async move {
            let resource: &Resource = &slots[index];
            let revision = &resource.metadata().resource_version;
            match operations::delete(client, &Identity::of(resource), revision).await {
                Err(refusal) if refusal.is_does_not_exist() => Ok(()),
                outcome => outcome.map(|_| ()),
            }
        })
        .await;
    let mut failures = Vec::new();
    for (identity, outcome) in identities.iter().zip(outcomes) {
        match outcome {
            Ok(()) => context.print(&format!("{} pruned\n", name(identity)))?,
            Err(refusal) => failures.push(format!("Failed to prune {identity}: {refusal}")),
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::new(failures.join("\n"))) }
}

/// Reports the marked objects that stay.
pub(crate) fn report_kept(found: &Candidates, context: &mut Context) {
    for (identity, reason) in &found.kept {
        context.warn(&format!("Warning: {identity} is not pruned: {reason}"));
    }
    for sentence in &found.unlisted {
        context.warn(&format!("Warning: {sentence}"));
    }
}

fn name(identity: &Identity) -> String {
    let kind = identity.kind.as_str().to_lowercase();
    match identity.namespace.as_str() {
        "" => format!("{kind}/{}", identity.name),
        namespace => format!("{kind}/{} in namespace {namespace}", identity.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_made_by_calico_or_kubernetes_are_never_pruned() {
        let object = |kind: Kind, metadata: &str| {
            Resource::from_json(kind, format!(r#"{{"metadata":{metadata}}}"#).as_bytes()).expect("an object")
        };
        for (kind, metadata, expected) in [
            (Kind::Tier, r#"{"name":"default"}"#, true),
            (Kind::Tier, r#"{"name":"kube-admin"}"#, true),
            (Kind::Tier, r#"{"name":"security"}"#, false),
            (Kind::Profile, r#"{"name":"projectcalico-default-allow"}"#, true),
            (Kind::Profile, r#"{"name":"kns.shop"}"#, true),
            (Kind::Profile, r#"{"name":"ksa.shop.default"}"#, true),
            (Kind::Profile, r#"{"name":"mine"}"#, false),
            (Kind::NetworkPolicy, r#"{"name":"knp.default.x","namespace":"a"}"#, true),
            (Kind::NetworkPolicy, r#"{"name":"x","namespace":"a"}"#, false),
            (Kind::Node, r#"{"name":"n"}"#, true),
            (Kind::WorkloadEndpoint, r#"{"name":"w","namespace":"a"}"#, true),
            (Kind::ClusterInformation, r#"{"name":"default"}"#, true),
            (Kind::FelixConfiguration, r#"{"name":"default"}"#, true),
            (Kind::FelixConfiguration, r#"{"name":"node.n1"}"#, false),
            (
                Kind::HostEndpoint,
                r#"{"name":"n-auto-hep","labels":{"projectcalico.org/created-by":"x"}}"#,
                true,
            ),
            (Kind::HostEndpoint, r#"{"name":"n"}"#, false),
            (
                Kind::IPPool,
                r#"{"name":"p","ownerReferences":[{"apiVersion":"v1","kind":"X","name":"x","uid":"u"}]}"#,
                true,
            ),
            (Kind::IPPool, r#"{"name":"p"}"#, false),
        ] {
            assert_eq!(protected(&object(kind, metadata)).is_some(), expected, "{kind} {metadata}");
        }
    }

    #[test]
    fn set_names_are_validated() {
        let set = |name: &str| PruneFlags { applyset: Some(name.to_owned()), ..PruneFlags::default() };
        assert_eq!(set("team-a.policies_1").set().expect("a name"), Some("team-a.policies_1"));
        for wrong in ["", "a b", "a/b", "ü", &"x".repeat(64)] {
            assert!(set(wrong).set().is_err(), "{wrong}");
        }
    }
}
