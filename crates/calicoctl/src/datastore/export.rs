//! `calicoctl datastore migrate export`: the contents of a locked datastore, on standard output.
//!
//! Every kind is read to the end before anything is printed, and what cannot be read is an error, not left out: an
//! export that lacks a policy would open what that policy closes.

use super::ExportArgs;
use super::bundle::{Bundle, Identity, KINDS, SUPPLEMENTARY_KINDS, list_document, path_of, remaining_parts};
use super::ipam_part::IpamPart;
use super::lock::is_locked;
use super::node_names::NodeNames;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::version_gate::Access;
use api::words::GLOBAL_NAME;
use api::{
    AllowAction, ClusterInformationSpec, DEFAULT_ALLOW_PROFILE, DenyAction, EndpointToHostAction, Kind,
    Resource,
};
use client::{Client, Error, InvalidEntry, ListQuery};
use model::{AffinityType, Key, KvPair, ListOptions};

/// Policies that Calico creates in etcd from Kubernetes' policies.
const KUBERNETES_POLICY: &str = "knp.default.";

/// Runs the command.
///
/// # Errors
/// When the datastore is not locked, or something in it cannot be read.
pub(crate) async fn run(args: &ExportArgs, context: &mut Context) -> Result<()> {
    let client = context.connect_for(&args.config, Access::Read).await?;
    if !is_locked(&client).await? {
        return Err(Failure::new(
            "datastore is not locked. Run the `calicoctl datastore migrate lock` command in order to begin migration",
        ));
    }
    let (bundle, revisions) = collect(&client, args.keep_node_names).await?;
    for (kind, revision) in KINDS.into_iter().zip(&revisions) {
        let items: Vec<&Resource> =
            bundle.resources.iter().filter(|resource| resource.kind() == kind).collect();
        context.print(&list_document(kind, &items, revision)?)?;
    }
    context.print(&remaining_parts(&bundle)?)
}

/// Reads everything in the datastore, and the revision of the list of each kind.
async fn collect(client: &Client, keep_node_names: bool) -> Result<(Bundle, Vec<String>)> {
    let mut bundle = Bundle::default();
    let mut revisions = Vec::new();
    let mut unreadable = Vec::new();
    for kind in KINDS {
        let list = client.list_any(kind, &ListQuery::all()).await?;
        unreadable.extend(list.invalid);
        revisions.push(list.revision);
        for resource in list.items {
            let from_kubernetes =
                kind == Kind::NetworkPolicy && resource.name().starts_with(KUBERNETES_POLICY);
            let resources =
                if from_kubernetes { &mut bundle.supplement.resources } else { &mut bundle.resources };
            resources.push(resource);
        }
    }
    for kind in SUPPLEMENTARY_KINDS {
        let list = client.list_any(kind, &ListQuery::all()).await?;
        unreadable.extend(list.invalid);
        let items = list.items.into_iter().filter(|resource| resource.name() != DEFAULT_ALLOW_PROFILE);
        bundle.supplement.resources.extend(items);
    }
    let mut entries = address_management(client, &mut unreadable).await?;
    refuse_unreadable(&unreadable)?;

    let names = if keep_node_names { NodeNames::default() } else { NodeNames::of(&bundle.resources)? };
    for resource in bundle.resources.iter_mut().chain(&mut bundle.supplement.resources) {
        names.apply(resource);
        correct_settings(resource);
        let identity = strip_metadata(resource);
        bundle.supplement.identities.insert(path_of(resource)?, identity);
    }
    entries.iter_mut().for_each(|entry| names.apply_to_entry(entry));
    bundle.ipam = IpamPart::from_entries(entries)?;
    bundle.cluster_information = client.resource::<ClusterInformationSpec>().get("", GLOBAL_NAME).await?;
    Ok((bundle, revisions))
}

/// The entries of address management; empty if the datastore has none.
async fn address_management(client: &Client, unreadable: &mut Vec<InvalidEntry>) -> Result<Vec<KvPair>> {
    let claims = |affinity_type| ListOptions::BlockAffinity {
        host: None,
        affinity_type: Some(affinity_type),
        ip_version: None,
    };
    let lists = [
        claims(AffinityType::Host),
        claims(AffinityType::Virtual),
        ListOptions::Block { ip_version: None },
        ListOptions::IpamHandle,
    ];
    let mut entries = Vec::new();
    for list in lists {
        match client.backend().list(&list, None).await {
            Ok(found) => {
                unreadable.extend(found.invalid);
                entries.extend(found.items);
            }
            Err(Error::NotSupported { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match client.backend().get(&Key::IpamConfig, None).await {
        Ok(entry) => entries.push(entry),
        Err(Error::DoesNotExist { .. } | Error::NotSupported { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(entries)
}

fn refuse_unreadable(entries: &[InvalidEntry]) -> Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut message =
        "nothing is exported, because these cannot be read (repair or delete them, then export again):"
            .to_owned();
    for entry in entries {
        message.push_str(&format!("\n  {}: {}", entry.key, entry.reason));
    }
    Err(Failure::new(message))
}

/// Removes metadata that only applies to the old datastore; returns the identity.
fn strip_metadata(resource: &mut Resource) -> Identity {
    let metadata = resource.metadata_mut();
    metadata.resource_version.clear();
    metadata.self_link.clear();
    metadata.generation = 0;
    metadata.deletion_timestamp = None;
    metadata.deletion_grace_period_seconds = None;
    metadata.extra.remove("managedFields");
    metadata.annotations.remove(api::words::node::KUBE_LABELS);
    Identity {
        uid: std::mem::take(&mut metadata.uid),
        creation_timestamp: metadata.creation_timestamp.take().filter(|time| !time.is_empty()),
    }
}

/// Very old releases wrote some settings in capitals, like iptables.
fn correct_settings(resource: &mut Resource) {
    let Resource::FelixConfiguration(settings) = resource else { return };
    let spec = &mut settings.spec;
    let titled = |text: &str| {
        let mut letters = text.chars();
        letters
            .next()
            .map(|first| first.to_uppercase().collect::<String>() + &letters.as_str().to_lowercase())
    };
    if let Some(text) = titled(spec.default_endpoint_to_host_action.as_str()) {
        spec.default_endpoint_to_host_action = EndpointToHostAction::from(text.as_str());
    }
    for action in [&mut spec.iptables_filter_allow_action, &mut spec.iptables_mangle_allow_action] {
        if let Some(text) = titled(action.as_str()) {
            *action = AllowAction::from(text.as_str());
        }
    }
    if let Some(text) = titled(spec.iptables_filter_deny_action.as_str()) {
        spec.iptables_filter_deny_action = DenyAction::from(text.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_in_capitals_are_corrected() {
        let value = json!({"metadata": {"name": "default"}, "spec": {"defaultEndpointToHostAction": "DROP",
            "iptablesFilterAllowAction": "ACCEPT", "iptablesMangleAllowAction": "RETURN", "iptablesFilterDenyAction": "REJECT"}});
        let mut resource = Resource::from_value(Kind::FelixConfiguration, value).expect("settings");
        correct_settings(&mut resource);
        let spec = serde_json::to_value(&resource).expect("JSON")["spec"].take();
        for (field, expected) in [
            ("defaultEndpointToHostAction", "Drop"),
            ("iptablesFilterAllowAction", "Accept"),
            ("iptablesMangleAllowAction", "Return"),
            ("iptablesFilterDenyAction", "Reject"),
        ] {
            assert_eq!(spec[field], expected, "{field}");
        }
    }

    #[test]
    fn an_identity_is_kept_apart() {
        let value = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-11-15T00:00:00Z", "labels": {"x": "y"}, "managedFields": []}});
        let mut resource = Resource::from_value(Kind::NetworkSet, value).expect("a set");
        let identity = strip_metadata(&mut resource);
        assert_eq!((identity.uid.as_str(), identity.creation_timestamp.is_some()), ("u", true));
        let metadata = serde_json::to_value(resource.metadata()).expect("JSON");
        assert_eq!(metadata, json!({"name": "a", "labels": {"x": "y"}}));
    }
}
