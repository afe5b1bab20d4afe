//! The sources of values, and their order of priority.

use std::collections::BTreeMap;
use std::fmt;

/// Texts by parameter name.
pub type Texts = BTreeMap<String, String>;

/// A source of values. Later variants override earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The datastore, for all nodes: FelixConfiguration `default`, ClusterInformation.
    DatastoreGlobal,
    /// The datastore, for nodes matched by a selector.
    DatastorePerSelector,
    /// The datastore, for this node: FelixConfiguration `node.NAME`, Node.
    DatastorePerHost,
    /// The configuration file.
    ConfigFile,
    /// The environment.
    EnvironmentVariable,
}

impl Source {
    /// All sources, the strongest first.
    pub const STRONGEST_FIRST: [Self; 5] = [
        Self::EnvironmentVariable,
        Self::ConfigFile,
        Self::DatastorePerHost,
        Self::DatastorePerSelector,
        Self::DatastoreGlobal,
    ];

    /// Whether it is local to this machine.
    #[must_use]
    pub fn is_local(self) -> bool {
        matches!(self, Self::ConfigFile | Self::EnvironmentVariable)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DatastoreGlobal => "datastore (global)",
            Self::DatastorePerSelector => "datastore (per-node-selector)",
            Self::DatastorePerHost => "datastore (per-host)",
            Self::ConfigFile => "config file",
            Self::EnvironmentVariable => "environment variable",
        })
    }
}

/// The texts of every source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    texts: BTreeMap<Source, Texts>,
}

impl Sources {
    /// Replaces the values of a source. Empty texts are not values: the word for an intentional absence is `none`.
    pub fn set(&mut self, source: Source, texts: Texts) {
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty()).collect();
        self.texts.insert(source, texts);
    }

    /// The values of a source, by name.
    pub fn get(&self, source: Source) -> impl Iterator<Item = (&str, &str)> {
        self.texts.get(&source).into_iter().flatten().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Whether a source has a value for a parameter; the case of its name does not matter.
    #[must_use]
    pub fn has(&self, source: Source, name: &str) -> bool {
        self.get(source).any(|(known, _)| known.eq_ignore_ascii_case(name))
    }

    /// Whether the file or the environment has a value for a parameter.
    #[must_use]
    pub fn is_set_by_hand(&self, name: &str) -> bool {
        self.has(Source::ConfigFile, name) || self.has(Source::EnvironmentVariable, name)
    }
}
