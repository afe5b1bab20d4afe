//! Configuration objects: one key for each setting. A setting that an object no longer has is gone; one that an
//! annotation once named is remembered, because no table names it.

use super::{Content, Outputs, Processor};
use api::{Kind, Resource};
use model::convert::Faults;
use model::convert::settings::{CLUSTER_SETTINGS, FELIX_SETTINGS, Scope, cluster, felix, scope};
use model::feed::FeedValue;
use model::{Key, V1Key, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Converts FelixConfiguration and ClusterInformation.
#[derive(Debug, Default)]
pub struct Settings {
    /// Names of settings that only annotations have.
    further_names: BTreeSet<String>,
}

fn setting_key(scope: Scope<'_>, name: &str) -> Key {
    Key::V1(match scope {
        Scope::Host(host) => V1Key::HostConfig { host: host.to_owned(), name: name.to_owned() },
        _ => V1Key::GlobalConfig { name: name.to_owned() },
    })
}

fn text_content(text: Option<String>) -> Content {
    text.map_or(Content::Gone, |text| Content::Value(FeedValue::Text(text)))
}

impl Settings {
    /// The names of all settings that an object of this kind may have.
    fn names(&self, kind: Kind) -> Vec<&str> {
        if kind == Kind::ClusterInformation {
            return CLUSTER_SETTINGS.to_vec();
        }
        let known = FELIX_SETTINGS.iter().map(|(_, name, _)| *name);
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
        for (json, name, _) in FELIX_SETTINGS {
            let unreadable = faults.iter().any(|fault| fault.path.strip_prefix("spec.") == Some(*json));
            let content = match settings.remove(*name) {
                Some(text) => Content::Value(FeedValue::Text(text)),
                None if unreadable => Content::Unreadable(None),
                None => Content::Gone,
            };
            outputs.push(setting_key(scope, name), content, revision);
        }
        self.further_names.extend(settings.keys().cloned());
        for name in &self.further_names {
            outputs.push(setting_key(scope, name), text_content(settings.remove(name)), revision);
        }
        outputs.faults.append(faults);
    }
}

impl Processor for Settings {
    fn process(&mut self, key: &Key, value: Value, revision: &str, outputs: &mut Outputs) {
        let (Key::Resource(key), Value::Resource(resource)) = (key, value) else {
            outputs.faults.add("", "this entry is no resource");
            return;
        };
        match (scope(&key.name), resource) {
            // Who uses these evaluates their selector first.
            (Scope::Selected, resource) => {
                let value = FeedValue::Resource(Box::new(resource));
                outputs.push(Key::Resource(key.clone()), Content::Value(value), revision);
            }
            (scope, Resource::FelixConfiguration(configuration)) => {
                self.felix_outputs(scope, &configuration, revision, outputs);
            }
            (scope, Resource::ClusterInformation(information)) => {
                for (name, text) in CLUSTER_SETTINGS.iter().zip(cluster(&information)) {
                    outputs.push(setting_key(scope, name), text_content(text), revision);
                }
                if scope == Scope::Global {
                    let ready = information.spec.datastore_ready;
                    let content =
                        ready.map_or(Content::Gone, |ready| Content::Value(FeedValue::Ready(ready)));
                    outputs.push(Key::V1(V1Key::ReadyFlag), content, revision);
                }
            }
            (_, other) => outputs.faults.add("kind", format!("{} holds no settings", other.kind())),
        }
    }

    fn keys(&self, key: &Key) -> Vec<Key> {
        let Key::Resource(resource) = key else { return Vec::new() };
        let scope = scope(&resource.name);
        if scope == Scope::Selected {
            return vec![key.clone()];
        }
        let mut keys: Vec<Key> =
            self.names(resource.kind).into_iter().map(|name| setting_key(scope, name)).collect();
        if resource.kind == Kind::ClusterInformation && scope == Scope::Global {
            keys.push(Key::V1(V1Key::ReadyFlag));
        }
        keys
    }
}
