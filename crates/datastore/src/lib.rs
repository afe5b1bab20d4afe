//! One way to store and watch Calico's data, and three places to keep it.
//!
//! - [`Backend`]: create, update, apply, delete, get, list, watch, with compare-and-swap by revision.
//! - [`parts`]: lists whose entries are decoded by whoever looks at them.
//! - [`etcd`]: etcd's v3 API, spoken to a real etcd cluster, to `tortie datastore`, or to the embedded engine in this
//!   process; one implementation of the semantics over a small transport trait.
//! - [`kubernetes`]: the Kubernetes API: custom resources, and Calico's view of Pods, Nodes, Namespaces and policies.
//!
//! The same conformance suite (`tests/conformance`) runs on all of them. Defaulting and validation are the client's
//! business; caching and resynchronisation are `follow`'s. Nothing here retries silently: who calls decides. The one
//! exception is a Kubernetes API that is busy and has not carried out what it was asked ([`kubernetes::repeating`]).

pub mod backend;
pub mod error;
pub mod etcd;
pub mod kubernetes;
pub mod parts;
pub mod secret;

pub use backend::{
    Backend, Batch, Compaction, InvalidEntry, KvList, ListParts, Watch, WatchEvent, WatchOptions, Write,
    own_revision,
};
pub use error::{Error, Result};
pub use parts::{DecodedEntry, UndecodedPart, UndecodedParts, look_ahead};
pub use secret::Secret;
