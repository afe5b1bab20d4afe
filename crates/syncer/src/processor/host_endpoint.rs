//! Host endpoints: the host is part of the feed's key and stands inside the object, so it is remembered by name.

use super::{Content, Outputs, Processor};
use api::Resource;
use model::convert::{self, Faults};
use model::feed::FeedValue;
use model::{Key, V1Key, Value};
use std::collections::BTreeMap;

/// Converts host endpoints.
#[derive(Debug, Default)]
pub struct HostEndpoints {
    by_name: BTreeMap<String, Known>,
}

#[derive(Debug)]
struct Known {
    host: String,
    seen: bool,
}

fn v1_key(host: &str, name: &str) -> Key {
    Key::V1(V1Key::HostEndpoint { host: host.to_owned(), endpoint: name.to_owned() })
}

fn name_of(key: &Key) -> &str {
    key.as_resource().map_or("", |key| key.name.as_str())
}

impl Processor for HostEndpoints {
    fn process(&mut self, key: &Key, value: Value, revision: &str, outputs: &mut Outputs) {
        let Value::Resource(Resource::HostEndpoint(endpoint)) = value else {
            outputs.faults.add("kind", "this is no host endpoint");
            return;
        };
        let name = name_of(key).to_owned();
        let host = endpoint.spec.node.clone();
        if host.is_empty() {
            // Nobody can have it; but somebody had it, perhaps, and keeps it.
            outputs.faults.add("spec.node", "no node is named");
            return self.keep_all(key, outputs);
        }
        match self.by_name.get_mut(&name) {
            Some(known) if known.host == host => known.seen = true,
            Some(known) => {
                outputs.push(v1_key(&known.host, &name), Content::Gone, revision);
                known.host.clone_from(&host);
                known.seen = true;
            }
            None => _ = self.by_name.insert(name.clone(), Known { host: host.clone(), seen: true }),
        }
        let mut faults = Faults::new();
        let value = convert::endpoint::host(*endpoint, &mut faults);
        let value = FeedValue::HostEndpoint(Box::new(value));
        outputs.push_converted(v1_key(&host, &name), Some(value), faults, revision);
    }

    fn remove(&mut self, key: &Key, outputs: &mut Outputs) {
        let name = name_of(key);
        if let Some(known) = self.by_name.remove(name) {
            outputs.push(v1_key(&known.host, name), Content::Gone, "");
        }
    }

    fn keys(&self, key: &Key) -> Vec<Key> {
        let name = name_of(key);
        self.by_name.get(name).map(|known| v1_key(&known.host, name)).into_iter().collect()
    }

    fn begin(&mut self) {
        self.by_name.values_mut().for_each(|known| known.seen = false);
    }

    fn keep(&mut self, key: &Key) {
        if let Some(known) = self.by_name.get_mut(name_of(key)) {
            known.seen = true;
        }
    }

    fn finish(&mut self, outputs: &mut Outputs) {
        self.by_name.retain(|name, known| {
            if !known.seen {
                outputs.push(v1_key(&known.host, name), Content::Gone, "");
            }
            known.seen
        });
    }
}

impl HostEndpoints {
    fn keep_all(&mut self, key: &Key, outputs: &mut Outputs) {
        self.keep(key);
        for key in self.keys(key) {
            outputs.push(key, Content::Unreadable(None), "");
        }
    }
}
