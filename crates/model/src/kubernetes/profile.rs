//! Namespaces and service accounts as profiles, which give their labels to the pods that belong to them.
//!
//! A namespace's profile also allows everything, which is what applies to a pod without policy. The revision of a
//! profile has two halves, `<namespaces>/<service accounts>`, because one list and one watch cover both kinds of
//! object.

use super::{ConversionError, Converted, translated_uid};
use crate::value::KvPair;
use api::kubernetes::{Namespace, ServiceAccount};
use api::meta::StringMap;
use api::words::{
    LABEL_NAME, NAMESPACE_LABEL_PREFIX, NAMESPACE_PROFILE_PREFIX, SERVICE_ACCOUNT_LABEL_PREFIX,
    SERVICE_ACCOUNT_PROFILE_PREFIX,
};
use api::{Action, DEFAULT_ALLOW_PROFILE, ObjectMeta, Profile, ProfileSpec, Rule};

/// Returns the profile of a namespace.
///
/// # Errors
/// When the object's uid is not one.
pub fn namespace_profile(namespace: &Namespace) -> Result<Converted, ConversionError> {
    let allow = vec![Rule { action: Action::Allow, ..Rule::default() }];
    let spec = ProfileSpec {
        ingress: allow.clone(),
        egress: allow,
        labels_to_apply: handed_down(NAMESPACE_LABEL_PREFIX, &namespace.metadata),
        ..ProfileSpec::default()
    };
    let name = format!("{NAMESPACE_PROFILE_PREFIX}{}", namespace.metadata.name);
    let revision = join_revisions(&namespace.metadata.resource_version, "");
    profile(name, &namespace.metadata, spec, &revision)
}

/// Returns the profile of a service account.
///
/// # Errors
/// When the object's uid is not one.
pub fn service_account_profile(account: &ServiceAccount) -> Result<Converted, ConversionError> {
    let spec = ProfileSpec {
        labels_to_apply: handed_down(SERVICE_ACCOUNT_LABEL_PREFIX, &account.metadata),
        ..ProfileSpec::default()
    };
    let name = service_account_profile_name(&account.metadata.namespace, &account.metadata.name);
    let revision = join_revisions("", &account.metadata.resource_version);
    profile(name, &account.metadata, spec, &revision)
}

/// Returns the profile that exists in every store without being stored: it allows everything.
#[must_use]
pub fn default_allow_profile() -> KvPair {
    let allow = vec![Rule { action: Action::Allow, ..Rule::default() }];
    let spec = ProfileSpec { ingress: allow.clone(), egress: allow, ..ProfileSpec::default() };
    let mut pair = KvPair::resource(Profile::new("", DEFAULT_ALLOW_PROFILE, spec));
    pair.set_revision("1");
    pair
}

fn profile(
    name: String,
    source: &ObjectMeta,
    spec: ProfileSpec,
    revision: &str,
) -> Result<Converted, ConversionError> {
    let metadata = ObjectMeta {
        name,
        uid: translated_uid(&source.uid)?,
        creation_timestamp: source.creation_timestamp.clone(),
        ..ObjectMeta::default()
    };
    Ok(Converted::new(Profile { metadata, spec, ..Profile::default() }, revision))
}

fn handed_down(prefix: &str, metadata: &ObjectMeta) -> StringMap {
    let mut labels: StringMap =
        metadata.labels.iter().map(|(label, value)| (format!("{prefix}{label}"), value.clone())).collect();
    labels.insert(format!("{prefix}{LABEL_NAME}"), metadata.name.clone());
    labels
}

/// Returns the name of a service account's profile.
#[must_use]
pub fn service_account_profile_name(namespace: &str, account: &str) -> String {
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    format!("{SERVICE_ACCOUNT_PROFILE_PREFIX}{namespace}.{account}")
}

/// The owner of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileOwner<'a> {
    /// A namespace.
    Namespace(&'a str),
    /// A service account.
    ServiceAccount {
        /// Its namespace.
        namespace: &'a str,
        /// Its name.
        name: &'a str,
    },
}

/// Returns the owner of the profile of this name; `None` for a name that does not come from a Kubernetes object.
#[must_use]
pub fn profile_owner(name: &str) -> Option<ProfileOwner<'_>> {
    if let Some(namespace) = name.strip_prefix(NAMESPACE_PROFILE_PREFIX) {
        return Some(ProfileOwner::Namespace(namespace));
    }
    let (namespace, name) = name.strip_prefix(SERVICE_ACCOUNT_PROFILE_PREFIX)?.split_once('.')?;
    Some(ProfileOwner::ServiceAccount { namespace, name })
}

/// Returns the revision of a list or watch that covers namespaces and service accounts.
#[must_use]
pub fn join_revisions(namespaces: &str, service_accounts: &str) -> String {
    format!("{namespaces}/{service_accounts}")
}

/// Returns the two halves of such a revision, both empty for an empty revision or `0`; `None` for other texts.
#[must_use]
pub fn split_revision(revision: &str) -> Option<(&str, &str)> {
    if revision.is_empty() || revision == "0" {
        return Some(("", ""));
    }
    let (namespaces, service_accounts) = revision.split_once('/')?;
    (!service_accounts.contains('/')).then_some((namespaces, service_accounts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_show_their_owner() {
        let account = ProfileOwner::ServiceAccount { namespace: "shop", name: "web.v2" };
        let table = [
            ("kns.shop", Some(ProfileOwner::Namespace("shop"))),
            ("ksa.shop.web.v2", Some(account)),
            ("ksa.shop", None),
            ("projectcalico-default-allow", None),
        ];
        for (name, owner) in table {
            assert_eq!(profile_owner(name), owner, "{name}");
        }
        assert_eq!(service_account_profile_name("", "a"), "ksa.default.a");
    }

    #[test]
    fn revisions_have_two_halves() {
        let table = [
            ("", Some(("", ""))),
            ("0", Some(("", ""))),
            ("1/2", Some(("1", "2"))),
            ("1/", Some(("1", ""))),
            ("/2", Some(("", "2"))),
            ("12", None),
            ("1/2/3", None),
        ];
        for (revision, halves) in table {
            assert_eq!(split_revision(revision), halves, "{revision}");
        }
        assert_eq!(join_revisions("1", ""), "1/");
    }
}
