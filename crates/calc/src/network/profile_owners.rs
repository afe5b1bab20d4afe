//! Namespaces and service accounts, which arrive as profiles: `kns.NAMESPACE` and `ksa.NAMESPACE.NAME`. Other profiles
//! are ignored.

use crate::sequencer::Sequencer;
use api::Profile;
use api::words::{
    NAMESPACE_LABEL_PREFIX, NAMESPACE_PROFILE_PREFIX, SERVICE_ACCOUNT_LABEL_PREFIX,
    SERVICE_ACCOUNT_PROFILE_PREFIX,
};
use messages::ProfileName;
use std::collections::BTreeMap;

/// Adds, changes or removes the owner of a profile.
pub(crate) fn on_profile(name: &ProfileName, profile: Option<&Profile>, out: &mut Sequencer) {
    if let Some((namespace, account)) =
        name.strip_prefix(SERVICE_ACCOUNT_PROFILE_PREFIX).and_then(|rest| rest.split_once('.'))
    {
        let (namespace, account) = (namespace.into(), account.into());
        match profile {
            Some(profile) => {
                let labels = own_labels(profile, SERVICE_ACCOUNT_LABEL_PREFIX);
                out.service_account_update(namespace, account, labels);
            }
            None => out.service_account_remove(namespace, account),
        }
    } else if let Some(namespace) = name.strip_prefix(NAMESPACE_PROFILE_PREFIX) {
        let namespace = namespace.into();
        match profile {
            Some(profile) => out.namespace_update(namespace, own_labels(profile, NAMESPACE_LABEL_PREFIX)),
            None => out.namespace_remove(&namespace),
        }
    }
}

/// The labels as they are on the namespace or service account itself.
fn own_labels(profile: &Profile, prefix: &str) -> BTreeMap<String, String> {
    let labels = profile.spec.labels_to_apply.iter();
    labels.map(|(key, value)| (key.strip_prefix(prefix).unwrap_or(key).to_owned(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::fixtures::{flushed, from_json};
    use messages::ToDataplane;
    use serde_json::json;

    #[test]
    fn names_and_labels() {
        let profile: Profile = from_json(json!({
            "kind": "Profile", "apiVersion": "projectcalico.org/v3", "metadata": {"name": "any"},
            "spec": {"labelsToApply": {"pcns.team": "a", "pcsa.role": "b", "plain": "c"}}
        }));
        let labels = |pairs: [(&str, &str); 3]| {
            pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        let mut out = Sequencer::default();
        for name in ["kns.shop", "ksa.shop.robot.v2", "ksa.shop", "other", "projectcalico-default-allow"] {
            on_profile(&name.into(), Some(&profile), &mut out);
        }
        let account = labels([("pcns.team", "a"), ("role", "b"), ("plain", "c")]);
        let namespace = labels([("team", "a"), ("pcsa.role", "b"), ("plain", "c")]);
        assert_eq!(
            flushed(&mut out),
            [
                ToDataplane::ServiceAccountUpdate("shop".into(), "robot.v2".into(), account),
                ToDataplane::NamespaceUpdate("shop".into(), namespace),
            ]
        );
        for name in ["kns.shop", "ksa.shop.robot.v2", "ksa.shop", "kns.never-seen"] {
            on_profile(&name.into(), None, &mut out);
        }
        assert_eq!(
            flushed(&mut out),
            [
                ToDataplane::ServiceAccountRemove("shop".into(), "robot.v2".into()),
                ToDataplane::NamespaceRemove("shop".into()),
            ]
        );
    }
}
