//! One interface to store and watch Calico's data, and three stores.
//!
//! - [`Backend`]: create, update, apply, delete, get, list, watch, with compare-and-swap by revision.
//! - [`parts`]: lists whose entries are decoded by their consumer.
//! - [`etcd`]: etcd's v3 API, served by a real etcd cluster, by `tortie datastore`, or by the embedded engine in this
//!   process; one implementation of the semantics over a small transport trait.
//! - [`kubernetes`]: the Kubernetes API: custom resources, and Calico's view of Pods, Nodes, Namespaces and policies.
//!
//! The same conformance suite (`tests/conformance`) runs on all of them. Defaulting and validation belong to the
//! client; caching and resynchronisation to `follow`. Nothing here retries silently: the caller decides. The one
//! exception is a Kubernetes API that is busy and has not carried out a request ([`kubernetes::repeating`]).

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
