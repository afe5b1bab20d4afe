//! Configuration objects: one key per setting. A setting that an object no longer has is removed; a setting named by an
//! annotation is remembered, because no table contains it.

use super::{Outputs, Processor};
use api::{Kind, Resource};
use felix_config::resource::{self, CLUSTER_SETTINGS, Field, Scope, cluster, felix, scope};
use model::convert::Faults;
use model::feed::{FeedEntry, FeedKey, ReadyFlag};
use model::v1::HostConfigKey;
use model::{Key, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Converts FelixConfiguration and ClusterInformation.
#[derive(Debug, Default)]
pub struct Settings {
    /// Names of settings that only occur in annotations.
    further_names: BTreeSet<String>,
}

fn setting(scope: Scope<'_>, name: &str, text: Option<String>) -> FeedEntry {
    match scope {
        Scope::Host(host) => {
            let key = HostConfigKey { host: host.into(), name: name.to_owned() };
            FeedEntry::HostConfig(key, text)
        }
        _ => FeedEntry::GlobalConfig(name.to_owned(), text),
    }
}

impl Settings {
    /// The names of all settings that an object of this kind can have.
    fn names(&self, kind: Kind) -> Vec<&str> {
        if kind == Kind::ClusterInformation {
            return CLUSTER_SETTINGS.to_vec();
        }
        let known = resource::fields().map(|field| field.name);
        known.chain(self.further_names.iter().map(String::as_str)).collect()
    }

    fn felix_outputs(
        &mut self,
        scope: Scope<'_>,
        configuration: &api::FelixConfiguration,
        revision: &str,
        outputs: &mut Outputs,
    ) {
        let mut faults = Faults::new();
        let mut settings: BTreeMap<String, String> = felix(configuration, &mut faults);
        for Field { json, name, .. } in resource::fields() {
            let unreadable = faults.iter().any(|fault| fault.path.strip_prefix("spec.") == Some(json));
            match settings.remove(name) {
                None if unreadable => outputs.push_unreadable(setting(scope, name, None), revision),
                text => outputs.push(setting(scope, name, text), revision),
            }
        }
        self.further_names.extend(settings.keys().cloned());
        for name in &self.further_names {
            outputs.push(setting(scope, name, settings.remove(name)), revision);
        }
        outputs.faults.append(faults);
    }
}

impl Processor for Settings {
    fn process(&mut self, key: &Key, value: Value, revision: &str, outputs: &mut Outputs) {
        let (Key::Resource(key), Value::Resource(resource)) = (key, value) else {
            outputs.faults.add("", "this entry is not a resource");
            return;
        };
        match (scope(&key.name), resource) {
            // Their reader evaluates their selector first.
            (Scope::Selected, Resource::FelixConfiguration(configuration)) => {
                let entry = FeedEntry::FelixConfiguration(key.name.clone(), Some(configuration));
                outputs.push(entry, revision);
            }
            (scope, Resource::FelixConfiguration(configuration)) => {
                self.felix_outputs(scope, &configuration, revision, outputs);
            }
            (scope, Resource::ClusterInformation(information)) => {
                for (name, text) in CLUSTER_SETTINGS.iter().zip(cluster(&information)) {
                    outputs.push(setting(scope, name, text), revision);
                }
                if scope == Scope::Global {
                    outputs.push(FeedEntry::Ready(ReadyFlag, information.spec.datastore_ready), revision);
                }
            }
            (_, other) => outputs.faults.add("kind", format!("{} contains no settings", other.kind())),
        }
    }

    fn keys(&self, key: &Key) -> Vec<FeedKey> {
        let Key::Resource(resource) = key else { return Vec::new() };
        let scope = scope(&resource.name);
        if scope == Scope::Selected {
            return vec![FeedKey::FelixConfiguration(resource.name.clone())];
        }
        let names = self.names(resource.kind).into_iter();
        let mut keys: Vec<FeedKey> = names.map(|name| setting(scope, name, None).key().to_owned()).collect();
        if resource.kind == Kind::ClusterInformation && scope == Scope::Global {
            keys.push(FeedKey::Ready(ReadyFlag));
        }
        keys
    }
}
