//! Host endpoints: the host is part of the feed's key but is stored inside the object, so it is remembered by name.

use super::{Outputs, Processor};
use api::Resource;
use model::convert::{self, Faults};
use model::feed::{FeedEntry, FeedKey};
use model::v1::HostEndpointKey;
use model::{Key, NodeName, Value};
use std::collections::BTreeMap;

/// Converts host endpoints.
#[derive(Debug, Default)]
pub struct HostEndpoints {
    by_name: BTreeMap<String, Known>,
}

#[derive(Debug)]
struct Known {
    host: NodeName,
    seen: bool,
}

fn feed_key(host: &NodeName, name: &str) -> HostEndpointKey {
    HostEndpointKey { host: host.clone(), endpoint: name.to_owned() }
}

fn gone(host: &NodeName, name: &str) -> FeedEntry {
    FeedEntry::HostEndpoint(feed_key(host, name), None)
}

fn name_of(key: &Key) -> &str {
    key.as_resource().map_or("", |key| key.name.as_str())
}

impl Processor for HostEndpoints {
    fn process(&mut self, key: &Key, value: Value, revision: &str, outputs: &mut Outputs) {
        let Value::Resource(Resource::HostEndpoint(endpoint)) = value else {
            outputs.faults.add("kind", "this is not a host endpoint");
            return;
        };
        let name = name_of(key).to_owned();
        let host = NodeName::from(endpoint.spec.node.as_str());
        if host.is_empty() {
            // No node can use it now; one that used it before keeps it.
            outputs.faults.add("spec.node", "no node is named");
            return self.keep_all(key, outputs);
        }
        match self.by_name.get_mut(&name) {
            Some(known) if known.host == host => known.seen = true,
            Some(known) => {
                outputs.push(gone(&known.host, &name), revision);
                known.host.clone_from(&host);
                known.seen = true;
            }
            None => _ = self.by_name.insert(name.clone(), Known { host: host.clone(), seen: true }),
        }
        let mut faults = Faults::new();
        let value = convert::endpoint::host(*endpoint, &mut faults);
        let entry = FeedEntry::HostEndpoint(feed_key(&host, &name), Some(Box::new(value)));
        outputs.push_converted(entry, faults, revision);
    }

    fn remove(&mut self, key: &Key, outputs: &mut Outputs) {
        let name = name_of(key);
        if let Some(known) = self.by_name.remove(name) {
            outputs.push(gone(&known.host, name), "");
        }
    }

    fn keys(&self, key: &Key) -> Vec<FeedKey> {
        let name = name_of(key);
        let known = self.by_name.get(name);
        known.map(|known| FeedKey::HostEndpoint(feed_key(&known.host, name))).into_iter().collect()
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
                outputs.push(gone(&known.host, name), "");
            }
            known.seen
        });
    }
}

impl HostEndpoints {
    fn keep_all(&mut self, key: &Key, outputs: &mut Outputs) {
        self.keep(key);
        for key in self.keys(key) {
            outputs.push_unreadable(key.gone(), "");
        }
    }
}
