//! Copies namespaces and service accounts to profiles, for the etcd datastore. (With the Kubernetes datastore Calico
//! reads the originals.)

use crate::copy::Copied;
use crate::informer::kinds::{Namespace, ServiceAccount};
use crate::informer::{Labels, ObjectKey};
use api::meta::{ObjectMeta, StringMap};
use api::words::NAMESPACE_PROFILE_PREFIX;
use api::{Object, Profile, ProfileSpec, Resource, kubernetes};
use model::Value;
use model::kubernetes::profile::{
    ProfileOwner, namespace_profile, profile_owner, service_account_profile, service_account_profile_name,
};
use model::kubernetes::{ConversionError, Converted};

/// Copies a Namespace to the Profile `kns.NAME`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Namespaces;

/// Copies a ServiceAccount to the Profile `ksa.NAMESPACE.NAME`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceAccounts;

impl Copied for Namespaces {
    type Source = Namespace;
    type Spec = ProfileSpec;
    const NAME: &'static str = "Namespace";

    fn copy_of(source: &ObjectKey) -> (String, String) {
        (String::new(), format!("{NAMESPACE_PROFILE_PREFIX}{}", source.name))
    }

    fn source_of(_namespace: &str, name: &str) -> Option<ObjectKey> {
        match profile_owner(name)? {
            ProfileOwner::Namespace(namespace) => Some(ObjectKey::new("", namespace)),
            ProfileOwner::ServiceAccount { .. } => None,
        }
    }

    fn desired(key: &ObjectKey, source: &Namespace) -> Result<Profile, String> {
        let namespace = kubernetes::Namespace { metadata: metadata(key, &source.labels) };
        profile(namespace_profile(&namespace))
    }
}

impl Copied for ServiceAccounts {
    type Source = ServiceAccount;
    type Spec = ProfileSpec;
    const NAME: &'static str = "ServiceAccount";

    fn copy_of(source: &ObjectKey) -> (String, String) {
        (String::new(), service_account_profile_name(&source.namespace, &source.name))
    }

    fn source_of(_namespace: &str, name: &str) -> Option<ObjectKey> {
        match profile_owner(name)? {
            ProfileOwner::ServiceAccount { namespace, name } => Some(ObjectKey::new(namespace, name)),
            ProfileOwner::Namespace(_) => None,
        }
    }

    fn desired(key: &ObjectKey, source: &ServiceAccount) -> Result<Profile, String> {
        let account = kubernetes::ServiceAccount { metadata: metadata(key, &source.labels) };
        profile(service_account_profile(&account))
    }
}

/// The metadata that the conversions read. The copy gets its own identity, so the original's is left out.
pub(crate) fn metadata(key: &ObjectKey, labels: &Labels) -> ObjectMeta {
    ObjectMeta {
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        labels: string_map(labels),
        ..ObjectMeta::default()
    }
}

/// Converts shared labels to an owned map.
pub(crate) fn string_map(labels: &Labels) -> StringMap {
    labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn profile(converted: Result<Converted, ConversionError>) -> Result<Profile, String> {
    let converted = converted.map_err(|error| error.to_string())?;
    match converted.pair.value {
        Value::Resource(Resource::Profile(profile)) => {
            Ok(Object::new("", &profile.metadata.name, profile.spec))
        }
        _ => Err("the conversion did not return a profile".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().copied().collect()
    }

    #[test]
    fn a_namespaces_profile_has_its_labels_and_allows_everything() {
        let key = ObjectKey::new("", "shop");
        let profile =
            Namespaces::desired(&key, &Namespace { labels: labels(&[("team", "a")]) }).expect("a profile");
        assert_eq!(profile.metadata.name, "kns.shop");
        assert_eq!((profile.spec.ingress.len(), profile.spec.egress.len()), (1, 1));
        let handed: Vec<_> = profile.spec.labels_to_apply.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(handed, ["pcns.projectcalico.org/name=shop", "pcns.team=a"]);
        assert!(profile.metadata.uid.is_empty());
    }

    #[test]
    fn names_are_converted_both_ways() {
        for (namespace, name) in [("a", "default"), ("a-b", "robot.with.dots")] {
            let key = ObjectKey::new(namespace, name);
            let (none, copy) = ServiceAccounts::copy_of(&key);
            assert_eq!((none.as_str(), copy.as_str()), ("", format!("ksa.{namespace}.{name}").as_str()));
            assert_eq!(ServiceAccounts::source_of("", &copy), Some(key));
            assert_eq!(Namespaces::source_of("", &copy), None);
        }
        let key = ObjectKey::new("", "shop");
        assert_eq!(Namespaces::source_of("", &Namespaces::copy_of(&key).1), Some(key));
        for stranger in ["projectcalico-default-allow", "mine", "knsx"] {
            assert_eq!(Namespaces::source_of("", stranger), None);
            assert_eq!(ServiceAccounts::source_of("", stranger), None);
        }
    }
}
