//! The datastore's part of the configuration, from a feed: settings for all nodes, for this node, and the
//! FelixConfigurations that select nodes by labels.
//!
//! Nothing is handed out before the feed is in sync: half of the settings would look like changes to the other half.

use crate::resource::felix;
use crate::sources::{Source, Sources, Texts};
use api::FelixConfiguration;
use api::meta::Time;
use api::scalars::SelectorText;
use model::NodeName;
use model::convert::Faults;
use model::feed::{FeedEntry, Status, TextMap};
use selector::Selector;
use std::collections::BTreeMap;

/// The settings in the datastore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatastoreSettings {
    /// Whether the datastore may be used.
    pub is_ready: bool,
    /// Settings for all nodes.
    pub global: Texts,
    /// Settings for the nodes matched by a selector, if this node is one of them.
    pub selected: Texts,
    /// Settings for this node.
    pub host: Texts,
}

impl DatastoreSettings {
    /// Stores the settings in the sources.
    pub fn apply(self, sources: &mut Sources) {
        sources.set(Source::DatastoreGlobal, self.global);
        sources.set(Source::DatastorePerSelector, self.selected);
        sources.set(Source::DatastorePerHost, self.host);
    }
}

/// Collects settings from a feed.
#[derive(Debug)]
pub struct FeedSettings {
    host_name: NodeName,
    global: Texts,
    host: Texts,
    scoped: BTreeMap<String, Scoped>,
    node_labels: Option<TextMap>,
    is_ready: bool,
    is_in_sync: bool,
    is_dirty: bool,
}

/// A configuration for selected nodes.
#[derive(Debug)]
struct Scoped {
    selector: Option<Selector>,
    created: Option<Time>,
    texts: Texts,
}

impl FeedSettings {
    /// Starts without any settings, for this node.
    #[must_use]
    pub fn new(host_name: impl Into<NodeName>) -> Self {
        Self {
            host_name: host_name.into(),
            global: Texts::new(),
            host: Texts::new(),
            scoped: BTreeMap::new(),
            node_labels: None,
            is_ready: false,
            is_in_sync: false,
            is_dirty: true,
        }
    }

    /// Processes one entry of the feed. Entries that are not settings are ignored.
    pub fn on_entry(&mut self, entry: &FeedEntry) {
        match entry {
            FeedEntry::GlobalConfig(name, text) => {
                self.is_dirty |= put(&mut self.global, name, text.as_deref());
            }
            FeedEntry::HostConfig(key, text) if key.host == self.host_name => {
                self.is_dirty |= put(&mut self.host, &key.name, text.as_deref());
            }
            FeedEntry::Ready(_, is_ready) => {
                self.is_ready = *is_ready == Some(true);
                self.is_dirty |= !self.is_ready;
            }
            FeedEntry::FelixConfiguration(name, configuration) => {
                self.on_configuration(name, configuration.as_deref());
            }
            FeedEntry::Node(name, node) if *name == self.host_name => {
                let labels = node.as_ref().map(|node| node.object.metadata.labels.clone());
                self.is_dirty |= self.node_labels != labels;
                self.node_labels = labels;
            }
            _ => {}
        }
    }

    /// Processes the feed's sync status.
    pub fn on_status(&mut self, status: Status) {
        self.is_in_sync |= status == Status::InSync;
    }

    /// Whether the datastore may be used, according to the feed so far.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Returns the settings if they are complete and have changed since the last call.
    pub fn take_news(&mut self) -> Option<DatastoreSettings> {
        if !self.is_in_sync || !self.is_dirty {
            return None;
        }
        self.is_dirty = false;
        Some(DatastoreSettings {
            is_ready: self.is_ready,
            global: self.global.clone(),
            selected: self.selected(),
            host: self.host.clone(),
        })
    }

    fn on_configuration(&mut self, name: &str, configuration: Option<&FelixConfiguration>) {
        let scoped = configuration.and_then(|configuration| scoped(name, configuration));
        self.is_dirty = true;
        match scoped {
            Some(scoped) => _ = self.scoped.insert(name.to_owned(), scoped),
            None => _ = self.scoped.remove(name),
        }
    }

    /// The settings of the oldest configuration that selects this node; of equally old ones, the first by name.
    fn selected(&self) -> Texts {
        let Some(labels) = &self.node_labels else { return Texts::new() };
        let mut matching: Vec<(&String, &Scoped)> = self
            .scoped
            .iter()
            .filter(|(_, scoped)| scoped.selector.as_ref().is_some_and(|selector| selector.evaluate(labels)))
            .collect();
        // An unknown time counts as the oldest.
        matching.sort_by_cached_key(|(name, scoped)| {
            (scoped.created.as_ref().and_then(|created| created.parse().ok()), (*name).clone())
        });
        if let [(winner, _), (second, _), ..] = *matching {
            tracing::warn!(
                winner,
                second,
                matching = matching.len(),
                "several FelixConfigurations select this node; the oldest is used"
            );
        }
        matching.first().map(|(_, scoped)| scoped.texts.clone()).unwrap_or_default()
    }
}

/// Sets or removes a text. Returns whether anything changed.
fn put(texts: &mut Texts, name: &str, text: Option<&str>) -> bool {
    match text {
        Some(text) if texts.get(name).is_some_and(|known| known == text) => false,
        Some(text) => {
            texts.insert(name.to_owned(), text.to_owned());
            true
        }
        None => texts.remove(name).is_some(),
    }
}

/// A configuration for selected nodes; `None` if its selector cannot be parsed, so that it selects nothing.
fn scoped(name: &str, configuration: &FelixConfiguration) -> Option<Scoped> {
    let text = configuration.spec.node_selector.as_ref().map(SelectorText::as_str).unwrap_or_default();
    let selector = if text.is_empty() {
        None
    } else {
        match Selector::parse(text) {
            Ok(selector) => Some(selector),
            Err(error) => {
                tracing::warn!(name, selector = text, %error, "FelixConfiguration ignored: its selector cannot be read");
                return None;
            }
        }
    };
    let mut faults = Faults::new();
    let texts = felix(configuration, &mut faults);
    for fault in faults.iter() {
        tracing::warn!(name, %fault, "setting of a FelixConfiguration ignored");
    }
    Some(Scoped { selector, created: configuration.metadata.creation_timestamp.clone(), texts })
}

#[cfg(test)]
mod tests;
