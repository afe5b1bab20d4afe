//! The type of datastore: one choice for the client's configuration and for components with a parameter of their own.

use std::fmt;

/// A type of datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatastoreType {
    /// An etcd cluster, or anything that speaks etcd's v3 API.
    EtcdV3,
    /// The Kubernetes API.
    Kubernetes,
    /// A file on this machine. Tortie only.
    Embedded,
}

impl DatastoreType {
    /// Every type, in the order in which they are offered.
    pub const ALL: &'static [Self] = &[Self::EtcdV3, Self::Kubernetes, Self::Embedded];

    /// The type as users write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EtcdV3 => "etcdv3",
            Self::Kubernetes => "kubernetes",
            Self::Embedded => "embedded",
        }
    }

    /// The type that users write this way; `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for DatastoreType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
